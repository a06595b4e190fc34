"""Fields, the data of a sample in addition to its image and label: names, properties and columns. No I/O.

`packer._fields.kinds` declares the kinds, and encodes and decodes their values. Scalars and classes are numbers in
columns of the table. A value of any other kind is a blob, which is stored as bytes after the image. Its size and
checksum are in columns of the table. `formats.md` specifies both forms. `fields_of_boxes` returns the fields whose
values have an entry for each box.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields.encoding import short
from packer._fields.kinds import DTYPES, KINDS, OF_SCALARS
from packer.errors import OptionError

Stored = int | float | bytes | bytearray | memoryview | None
"""A value in the form that a pack stores: a number for a scalar or a class, bytes for other kinds, None if missing."""

MOST_FIELDS = 200
"""The largest number of fields that a pack can have."""

MARGIN = 1.0
"""The pixels by which boxes and keypoints may be outside of their image, because annotation tools round positions."""

RESERVED = ("image", "label", "name", "index", "target", "height", "width", "size")
"""Names that no field can have, because members of items, or columns in conditions, have these names."""

_FEW = 100  # up to this number, ids are looked up one by one
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MEMBERS = {"name": str, "kind": str, "dtype": str, "rank": int, "classes": list, "ids": list, "file": str}
_NO_CLASS = -1


@dataclass(frozen=True)
class Field:
    """One field: its name, its kind, and the properties of this kind.

    Attributes
    ----------
    name : str
        The name: at most 64 letters, digits and underscores; not in `RESERVED`.
    kind : str
        One of `KINDS`.

        ============  =====================================================  =========================================
        kind          a value                                                as a blob
        ============  =====================================================  =========================================
        scalar        bool, int or float                                     (a column)
        class         int, an id                                             (a column)
        labels        (K,) int64 array of ids                                the ids
        text          str                                                    UTF-8
        json          any JSON value                                         JSON in UTF-8
        bytes         bytes                                                  the bytes
        array         array of `dtype` with `rank` axes                      the shape as int64, then the elements
        image, mask   an encoded image                                       the encoded image
        boxes         (K, 4) float32 array: x y x y in pixels                the numbers
        keypoints     (K, P, 3) float32 array: x y in pixels, visibility     K and P as int64, then the numbers
        segmentation  list of K: polygons, run lengths, or None              JSON in UTF-8
        ============  =====================================================  =========================================

        A segmentation is polygons or run lengths in COCO's form, in pixels of the image.

    dtype : str
        The dtype of a scalar or an array, one of `DTYPES`.
    rank : int
        Number of an array's axes.
    classes : tuple of str
        Class names of a class or labels field; empty if the classes have no names.
    ids : tuple of int
        The id of each of `classes`; empty if they are 0, 1, 2, ...
    file : str
        The template of the files from which the values were read, such as ``../masks/{stem}.png``. Empty if the values
        did not come from files.

    Raises
    ------
    ValueError
        If the attributes are invalid or contradict each other.
    """

    name: str
    kind: str
    dtype: str = ""
    rank: int = 0
    classes: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    file: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in RESERVED:
            raise OptionError(
                f"a field cannot have the name {self.name!r}: a name has at most 64 letters, digits and underscores, "
                f"and is not one of {', '.join(RESERVED)}"
            )
        if self.kind not in KINDS:
            raise OptionError(f"field {self.name!r}: its kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        kind = KINDS[self.kind]
        if self.dtype not in kind.dtypes:
            raise OptionError(
                f"field {self.name!r}: {self.dtype!r} is not a dtype of the kind {self.kind}: {kind.dtypes}"
            )
        if not 0 <= self.rank <= 8 or (self.rank and "rank" not in kind.properties):
            raise OptionError(f"field {self.name!r}: the kind {self.kind} has no {self.rank} axes")
        if (self.classes or self.ids) and not kind.has_classes:
            raise OptionError(f"field {self.name!r}: the kind {self.kind} has no classes")
        if any(number <= _NO_CLASS for number in self.ids):
            raise OptionError(f"field {self.name!r}: {min(self.ids)} is not the id of a class: ids are 0 or more")
        if self.ids and (len(self.ids) != len(self.classes) or len(set(self.ids)) != len(self.ids)):
            raise OptionError(f"field {self.name!r}: {len(self.classes)} classes have {len(set(self.ids))} ids")

    @property
    def is_blob(self) -> bool:
        """Whether values are stored as bytes after the image, instead of as numbers in the table."""
        return KINDS[self.kind].form != "number"

    def columns(self) -> dict[str, str]:
        """Return the field's columns in the table, with their dtypes.

        A scalar has a column of values, and a column that marks missing values. A class has a column of ids, -1 if the
        value is missing. Every other field has a column of sizes in bytes, -1 if the value is missing, and a column of
        checksums.
        """
        column = f"field.{self.name}"
        if self.is_blob:
            return {f"{column}.size": "<i8", f"{column}.crc32c": "<u4"}
        if KINDS[self.kind].has_null:
            return {column: DTYPES[self.dtype], f"{column}.null": "|u1"}
        return {column: "<i8"}

    def to_json(self) -> dict[str, Any]:
        """Return the field as JSON values for the manifest."""
        members = {name: getattr(self, name) for name in _MEMBERS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in members.items() if value}

    @classmethod
    def from_json(cls, members: Any) -> Field:
        """Build a field from its JSON values in a manifest; ValueError if they are invalid."""
        if not isinstance(members, dict) or not {"name", "kind"} <= members.keys() <= _MEMBERS.keys():
            raise ValueError("a field must have a name, a kind and only properties of this kind")
        for name, value in members.items():
            if type(value) is not _MEMBERS[name]:
                raise ValueError(f"a field's {name} is of the wrong type")
        for name, of in (("classes", str), ("ids", int)):
            if any(type(value) is not of for value in members.get(name, ())):
                raise ValueError(f"a field's {name} are of the wrong type")
        arguments: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in members.items()
        }
        return cls(**arguments)

    def encode(self, value: Any) -> Stored:
        """Encode a value in the form that a pack stores; None is returned unchanged.

        Raises
        ------
        ValueError
            If the value is not a value of the field's kind; the message has the reason, without the field's name.
        """
        if value is None:
            return None
        kind = KINDS[self.kind]
        try:
            if kind.has_classes:
                value = [self._id(one) for one in value] if self.is_blob else self._id(value)
            stored: Stored = kind.encode(value, *self._properties)
            return stored
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{short(value)} is not a value of the kind {self.kind}: {error}") from error

    def decode(self, stored: Stored) -> Any:
        """Decode a value from the form that a pack stores; None is returned unchanged.

        Raises
        ------
        ValueError
            If the bytes cannot be decoded.
        """
        if stored is None:
            return None
        data = bytes(stored) if self.is_blob else stored  # type: ignore[arg-type]
        return KINDS[self.kind].decode(data, *self._properties)

    def misfit(self, stored: Stored) -> str | None:
        """Return the reason why `encode` cannot have made a stored value; None if the value is valid.

        The content of encoded images is not checked.
        """
        kind = KINDS[self.kind]
        if stored is None or kind.form == "pixels":
            return None
        if kind.has_null:
            assert isinstance(stored, (int, float))
            wrong = stored not in (0, 1) if self.dtype == "bool" else math.isnan(stored)
            return f"{stored} is not a {self.dtype}" if wrong else None
        try:
            value = self.decode(stored)
            if kind.has_classes:
                unknown = np.atleast_1d(np.asarray(value, np.int64))[~self.knows(value)]
                return f"{unknown[0]} is not a class id of the field" if len(unknown) else None
            if not kind.is_proved_by_decoding:
                self.encode(value)
        except ValueError as error:
            return str(error)
        return None

    @property
    def _properties(self) -> list[Any]:
        return [getattr(self, name) for name in KINDS[self.kind].properties]

    @functools.cached_property
    def _ids_of_classes(self) -> dict[str, int]:
        pairs = list(zip(self.classes, self.ids or range(len(self.classes)), strict=True))
        return dict(reversed(pairs))  # if two classes have the same name, the first one counts

    @functools.cached_property
    def _id_set(self) -> frozenset[int]:
        return frozenset(self.ids)

    def knows(self, ids: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Tell which numbers are class ids. If the classes have no names, every number from 0 on is an id."""
        numbers = np.atleast_1d(np.asarray(ids, np.int64))
        if self.ids and numbers.size <= _FEW:
            return np.array([number in self._id_set for number in numbers.ravel().tolist()], bool).reshape(
                numbers.shape
            )
        if self.ids:
            return np.isin(numbers, self.ids)
        return np.asarray((numbers >= 0) & (numbers < (len(self.classes) or np.iinfo(np.int64).max)))

    def _id(self, value: Any) -> int:
        """Return the id of a class that is given by its id or by its name."""
        if isinstance(value, str):
            if not self.classes:
                fields = f"{{{self.name!r}: packer.Field({self.name!r}, {self.kind!r}, classes=(...))}}"
                raise ValueError(f"{short(value)} is not an id, and the classes have no names: pass fields={fields}")
            number = self._ids_of_classes.get(value)
            if number is None:
                count = f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
                raise ValueError(f"{short(value)} is not one of the field's {count}")
            return number
        number = operator.index(value)
        if not self.knows(number).all():
            raise ValueError(f"{number} is not a class id of the field")
        return number


def declared_field(name: str, spelling: str) -> Field:
    """Return a field of the kind `spelling`, or a scalar if `spelling` is a dtype.

    A field of arrays gets the dtype float32 and the rank 0.
    """
    if spelling in OF_SCALARS:
        return Field(name, "scalar", spelling)
    return Field(name, spelling, KINDS[spelling].dtype if spelling in KINDS else "")


Sizes = Callable[[str], npt.NDArray[np.int64]]
"""Returns the sizes in bytes of a field's blobs, one for each sample; -1 if a sample has no value."""

BOXES = "boxes"

_COCO = {
    "annotation_id": ("array", "int64", 1),
    "area": ("array", "float64", 1),
    "bbox": ("array", "float64", 2),
    "category": ("labels", "", 0),
    "iscrowd": ("array", "uint8", 1),
    "iscrowd_given": ("array", "uint8", 1),
    "keypoint_count": ("array", "int64", 1),
    "keypoints": ("keypoints", "", 0),
    "members": ("json", "", 0),
    "segmentation": ("segmentation", "", 0),
}
_VOC = {
    "category": ("labels", "", 0),
    "difficult": ("array", "int8", 1),
    "occluded": ("array", "int8", 1),
    "truncated": ("array", "int8", 1),
}
_YOLO = {"category": ("labels", "", 0), "keypoints": ("keypoints", "", 0), "segmentation": ("segmentation", "", 0)}
_CAFFE = {
    "category": ("labels", "", 0),
    "difficult": ("array", "uint8", 1),
    "instance": ("array", "int64", 1),
}
_LAYOUTS = (
    ({"image_info": "json", "annotation_id": "array", "bbox": "array"}, _COCO),
    ({"annotation": "json", "category": "labels"}, _VOC),
    ({"yolo": "text", "category": "labels"}, _YOLO),
    ({"category": "labels", "instance": "array", "difficult": "array"}, _CAFFE),
)
"""For each tool: the fields by which a pack of its annotations is recognised, and those with an entry for each box."""

_HUB = "labels"  # the categories of `objects` in a table of the Hub; the source has checked that each bbox has one


def names_of_boxes(known: Mapping[str, Field]) -> list[str]:
    return [name for name, field in known.items() if field.kind == "boxes"]


def fields_of_boxes(known: Mapping[str, Field], sizes: Sizes) -> tuple[str, ...] | None:
    """Return the names of the fields with one entry for each box of ``boxes``; None if these fields are unknown.

    A pack does not record which fields these are. They are recognised if the pack has the fields that ``--coco``,
    ``--voc``, ``--yolo`` or Caffe's annotated Datum make. The ``labels`` of the Hub's ``objects`` are recognised by
    their sizes: every sample has as many labels as boxes, and at least one sample has several of each.

    Parameters
    ----------
    known : mapping of str to Field
    sizes : callable
    """
    if names_of_boxes(known) != [BOXES]:
        return None
    for marks, of_boxes in _LAYOUTS:
        if all(name in known and known[name].kind == kind for name, kind in marks.items()):
            found = {name: (field.kind, field.dtype, field.rank) for name, field in known.items()}
            return tuple(name for name in known if of_boxes.get(name) == found[name])
    if _HUB in known and known[_HUB].kind == "labels":
        boxes, labels = sizes(BOXES), sizes(_HUB)
        counts = np.where(boxes < 0, -1, boxes // 16)
        if (counts == np.where(labels < 0, -1, labels // 8)).all() and counts.max(initial=0) > 1:
            return (_HUB,)
    return None
