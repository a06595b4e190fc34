"""Which features of Examples are the image, the label and the name, and which fields the others become.

The keys of ImageNet's TFRecords, of TensorFlow Datasets, of TensorFlow's Object Detection API and of img2dataset are
known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packer._account import Account
from packer._containers.chosen import Chosen
from packer._containers.labelkeys import add_candidates, is_named, label_key
from packer._containers.records.example import BYTES, FLOATS, INTS
from packer._containers.records.features import Column, Seen, field_of, is_of_objects
from packer._containers.records.message import MessageError
from packer._fields import MOST_FIELDS, Field
from packer.errors import SourceError, printable

__all__ = ["Boxes", "Roles", "choose"]

_IMAGES = ("image/encoded", "image", "jpg", "jpeg", "png", "webp", "image_raw")
_LABELS = ("image/class/label", "label", "cls")
_IDS = ("class", "cls", "category")  # which name ids, also where they are floats
_NAMES = ("image/filename", "file_name", "filename", "__key__", "key")
_CLASS_NAMES = ("image/class/synset", "image/class/text")  # of the first of the labels
_BOXES = "image/object/bbox"
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_HEIGHT, _WIDTH = "image/height", "image/width"
_SEVERAL_LABELS = ("image/object/class/label", *_LABELS)

Classes = Callable[[str], Sequence[str] | None]


@dataclass(frozen=True)
class Boxes:
    """Boxes whose edges are a feature each, of floats that count height and width of the image as 1."""

    slots: tuple[str, str, str, str]
    field: Field

    def encoded(self, values: dict[str, Any], height: int | None, width: int | None) -> bytes:
        """Take the edges out of the values of a sample; return the boxes in pixels, as a pack holds them.

        Raises
        ------
        MessageError
            If the edges make no boxes.
        """
        edges = [struct.unpack(f"<{len(data) // 4}f", data) for data in (values.pop(slot, b"") for slot in self.slots)]
        if any(len(edge) != len(edges[0]) for edge in edges):
            raise MessageError("there are not as many of each edge of the boxes")
        if edges[0] and not (height and width):
            raise MessageError(f"it has boxes, and no {_HEIGHT} and {_WIDTH}")
        numbers = list[float]()
        for left, top, right, bottom in zip(*edges, strict=True):
            if not (left <= right and top <= bottom and height and width):
                raise MessageError(f"the box {left} {top} {right} {bottom} ends before it begins")
            numbers += left * width, top * height, right * width, bottom * height
        try:
            return struct.pack(f"<{len(numbers)}f", *numbers)
        except OverflowError:
            raise MessageError("a box is too large") from None


@dataclass(frozen=True)
class Roles:
    """What is made of the features of each sample.

    Attributes
    ----------
    columns : dict of bytes to tuple of Column
        By key.
    fields : tuple of Field
    label_type : str
    classes : sequence of str, optional
        The names of the label's classes.
    boxes : Boxes, optional
    strict : bool
        Whether a feature that is in no column is an error.
    notes : list of str
    why_unlabeled : str
        Why samples without a label have none.
    """

    columns: Mapping[bytes, tuple[Column, ...]]
    fields: tuple[Field, ...]
    label_type: str = "class"
    classes: Sequence[str] | None = None
    boxes: Boxes | None = None
    strict: bool = True
    notes: list[str] = field(default_factory=list)
    why_unlabeled: str = "they have no label"


def choose(seen: Mapping[str, Seen], keys: Mapping[str, str], classes: Classes, account: Account) -> Roles:
    """Choose what the features become.

    Parameters
    ----------
    seen : mapping of str to Seen
        What the first samples have, by key.
    keys : mapping
        See `Container.open`.
    classes : callable
        Returns the names of the classes whose ids a feature has, by its key; None where nobody says them.
    account : Account
        What became of the features.

    Raises
    ------
    SourceError
        If no feature is the image, or one that is named does not exist, or is of the wrong kind. It lacks the file.
    OptionError
        As `Chosen.of`.
    """
    chooser = _Chooser(seen, classes, account)
    return (chooser.named(Chosen.of(keys)) if keys else chooser.all()).roles()


class _Chooser:
    def __init__(self, seen: Mapping[str, Seen], classes: Classes, account: Account) -> None:
        self._seen, self._classes_of, self._account = seen, classes, account
        self._why_unlabeled = "they have no feature that is a label"
        self._whole = False  # whether labels are class ids, though they are floats
        self._columns: dict[bytes, list[Column]] = {}
        self._fields: list[Field] = []
        self._taken: set[str] = set()
        self._label: str | None = None
        self._boxes: Boxes | None = None
        self._strict = True
        self._notes: list[str] = []

    def all(self) -> _Chooser:
        """Make a field of all that is neither image nor label nor name."""
        seen = self._seen
        image = self._image()
        self._put(image, Column.image())
        name = next((key for key in _NAMES if key in seen and seen[key].text and not seen[key].several), None)
        if name is not None and seen[name].type == BYTES:
            self._put(name, Column.text("name"))
        self._take_label([key for key in seen if key.encode() not in self._columns and not is_of_objects(key)])
        if all(self._is(f"{_BOXES}/{edge}", FLOATS) for edge in _EDGES):
            if self._is(_HEIGHT, INTS) and self._is(_WIDTH, INTS):
                self._add_boxes("boxes")
            else:
                self._notes.append(f"{_BOXES} are arrays of floats, as there are no {_HEIGHT} and {_WIDTH}")
        for key, of_key in seen.items():
            if key.encode() not in self._columns and of_key.type:
                ids = key in _SEVERAL_LABELS and of_key.type == INTS and of_key.ids and "labels" not in self._taken
                self._add_field(key, *(("labels", "labels") if ids else ()))
        if len(self._fields) > MOST_FIELDS:
            raise SourceError(
                f"there are {len(seen)} features, and a pack has {MOST_FIELDS} fields at most: name those that are "
                "wanted, with --key NAME=KEY"
            )
        if self._boxes is not None:
            self._add_size()
        return self

    def _take_label(self, keys: Sequence[str]) -> None:
        """Take the label that names tell, of features that are nothing else; else say what looks like it."""
        seen, account = self._seen, self._account
        able = [key for key in keys if seen[key].is_label]
        self._label = label_key(able, _LABELS)
        named = [key for key in keys if key in _LABELS or is_named(key)]
        several = [key for key in named if key not in able and seen[key].most > 1]
        account.taken("feature", "a field, as samples have several values", several)
        if self._label is not None:
            self._put(self._label, self._label_column(self._label))
            account.taken("feature", "the label", [self._label])
            others = [key for key in able if key in named and key != self._label]
            account.taken("feature", f"a field beside {printable(self._label)}, which is the label", others)
        elif several:
            self._why_unlabeled = f"they have several labels, which are the field {printable(several[0])}"
        else:
            add_candidates(account, "feature", {key: seen[key].values or [0] for key in able})

    def _label_column(self, key: str) -> Column:
        seen = self._seen[key]
        self._whole = key.rpartition("/")[2].lower() in _IDS and seen.type == FLOATS and seen.most == 1 and seen.are_ids
        return Column.whole_label() if self._whole else Column.label(seen)

    def named(self, chosen: Chosen) -> _Chooser:
        """Take what a person names."""
        self._strict = False
        self._take("image", "", self._image() if chosen.image is None else chosen.image)
        for name, key in (("label", chosen.label), ("name", chosen.name)):
            if key is not None:
                self._take(name, "", key)
        for one in chosen.fields:
            self._take(*one)
        if self._boxes is not None:
            self._add_size()
        left = [key for key in self._seen if key.encode() not in self._columns]
        self._account.left_out("feature", "--key does not name them", left, chosen=True)
        return self

    def roles(self) -> Roles:
        """Return what was chosen."""
        of_label = self._seen[self._label] if self._label is not None else Seen()
        if self._label == _LABELS[0] and of_label.type == INTS:
            names = (key for key in _CLASS_NAMES if self._is(key, BYTES) and self._seen[key].text)
            if (key := next(names, None)) is not None:
                self._put(key, Column.text(" class"))
        return Roles(
            {key: tuple(columns) for key, columns in self._columns.items()},
            tuple(self._fields),
            "float" if of_label.type == FLOATS and of_label.most == 1 and not self._whole else "class",
            self._classes_of(self._label) if self._label is not None and of_label.type == INTS else None,
            self._boxes,
            self._strict,
            self._notes,
            f"they have no {printable(self._label)}" if self._label is not None else self._why_unlabeled,
        )

    def _image(self) -> str:
        """Return the key of the image, which nobody named."""
        seen = self._seen
        images = [key for key, of_key in seen.items() if of_key.type == BYTES and of_key.image and not of_key.several]
        chosen = next((key for key in _IMAGES if key in images), images[0] if len(images) == 1 else None)
        if chosen is None:
            which = f"which of {', '.join(images)} is" if images else "which is, of " + ", ".join(list(seen)[:20])
            raise SourceError(
                f"{'several features are images' if images else 'no feature is an encoded image'}: "
                f"say {printable(which)}, with --key image=KEY"
            )
        return chosen

    def _take(self, name: str, kind: str, key: str) -> None:
        boxes = [f"{key}/{edge}" for edge in _EDGES]
        if kind == "boxes" and all(self._is(edge, FLOATS) for edge in boxes):
            self._add_boxes(name, key)
            return
        seen = self._seen.get(key)
        if seen is None or not seen.type:
            known = ", ".join(map(printable, list(self._seen)[:20]))
            raise SourceError(f"no feature is called {printable(key)}, which --key {name} names. There are {known}")
        if name in ("image", "name") and seen.type != BYTES:
            raise SourceError(f"feature {printable(key)} is no {name}: it has no bytes")
        if name == "image":
            self._put(key, Column.image())
        elif name == "name":
            self._put(key, Column.text("name"))
        elif name == "label":
            self._label = key
            self._put(key, self._label_column(key))
        else:
            self._add_field(key, name, kind)

    def _add_field(self, key: str, name: str = "", kind: str = "") -> None:
        seen = self._seen[key]
        try:
            made = field_of(key, seen, self._taken, (name, kind), self._classes_of(key) or ())
            self._put(key, Column.field(made, seen))
        except ValueError as error:
            raise SourceError(f"feature {printable(key)}: {error}") from error
        self._fields.append(made)

    def _add_boxes(self, name: str, group: str = _BOXES) -> None:
        if not (self._is(_HEIGHT, INTS) and self._is(_WIDTH, INTS)):
            raise SourceError(f"boxes need {_HEIGHT} and {_WIDTH}, and there are none: take their edges as arrays")
        slots = [f"{name} {edge}" for edge in _EDGES]
        self._boxes = Boxes((slots[0], slots[1], slots[2], slots[3]), Field(name, "boxes"))
        self._taken.add(name)
        self._fields.append(self._boxes.field)
        for slot, edge in zip(slots, _EDGES, strict=True):
            self._put(f"{group}/{edge}", Column.edges(slot))

    def _add_size(self) -> None:
        for key, slot in ((_HEIGHT, " height"), (_WIDTH, " width")):
            self._put(key, Column.whole(slot))

    def _put(self, key: str, column: Column) -> None:
        self._columns.setdefault(key.encode(), []).append(column)

    def _is(self, key: str, type_: int) -> bool:
        return key in self._seen and self._seen[key].type == type_
