"""What the features of Examples are: those of the first samples are looked at, and of all samples read likewise.

A feature whose list had one value in all samples that were looked at is one value: a scalar, a text, an image or bytes.
One whose lists had other lengths, or whose key says that it is of objects, is an array, or a list of texts.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packer._containers.chosen import field_name
from packer._containers.contract import Piece
from packer._containers.imagenames import suffix_of
from packer._containers.numericlabels import one_hot
from packer._containers.records.example import (
    BYTES,
    FLOATS,
    INTS,
    NOTHING,
    byte_strings,
    feature_lists,
    floats,
    ints,
    one_bytes,
    one_float,
    one_int,
)
from packer._containers.records.message import MessageError
from packer._containers.records.window import Window
from packer._fields import OF_SCALARS, Field, Stored
from packer._sample import UNLABELED

__all__ = ["TYPES", "Column", "Look", "Seen", "field_of", "is_of_objects", "text_of"]

Read = Callable[[Window, int, int, int], Any]

TYPES = {NOTHING: "nothing", BYTES: "byte strings", FLOATS: "floats", INTS: "ints"}
_OF_OBJECTS = re.compile(r"(^|/)(objects?|bbox)/")
_HEAD = 32  # bytes by which an image is known
_SHORT = 256  # bytes of a text that may be a label
_LONGEST_ONE_HOT = 1 << 16  # numbers
_TEXT = 1 << 16  # bytes of a text that are looked at
_HELD = 64  # values of one feature that are looked at
_MOST_KEYS = 1 << 12
_TEXTS = 1 << 24  # bytes of a list of texts


@dataclass
class Seen:
    """What the lists of a feature had in the samples that were looked at.

    Attributes
    ----------
    type : int
    several : bool
        Whether a list had other than one value, or would have, as it is of objects.
    text, image : bool
        Whether all byte strings were UTF-8, and images.
    ids : bool
        Whether no int was negative.
    most : int
        The most values that a list had.
    one_hot : bool
        Whether all numbers of each list were 0, but for one that was 1.
    values : list
        The first numbers and short texts that stood alone in their lists.
    """

    type: int = NOTHING
    several: bool = False
    text: bool = True
    image: bool = True
    ids: bool = True
    most: int = 0
    one_hot: bool = True
    values: list[int | float | str] = field(default_factory=list)

    @property
    def is_label(self) -> bool:
        """Whether each list is one label, or says by the place of a 1 which it is."""
        if self.type == BYTES:
            return self.most == 1 and self.text
        return self.type != NOTHING and (self.most == 1 or (self.most > 1 and self.one_hot))

    @property
    def are_ids(self) -> bool:
        """Whether all floats were whole numbers, as class ids are."""
        return all(
            not isinstance(value, str) and value >= UNLABELED and float(value).is_integer() for value in self.values
        )


class Look:
    """Looks at samples.

    Attributes
    ----------
    seen : dict of str to Seen
        By key.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def add(self, window: Window, begin: int, end: int) -> None:
        """Look at the Example that lies in some bytes of a file; MessageError where there is none."""
        for encoded, type_, start, stop in feature_lists(window, begin, end):
            key = text_of(encoded, start)
            seen = self.seen.setdefault(key, Seen(several=is_of_objects(key)))
            if NOTHING not in (type_, seen.type) and type_ != seen.type:
                raise MessageError(f"feature {key!r} has {TYPES[type_]} here, and had {TYPES[seen.type]}")
            if len(self.seen) > _MOST_KEYS:
                raise MessageError(f"the first records have more than {_MOST_KEYS:,} different features")
            seen.type = seen.type or type_
            self._add_values(seen, window, type_, start, stop)

    def _add_values(self, seen: Seen, window: Window, type_: int, begin: int, end: int) -> None:
        count = 1
        alone: list[int | float | str] = []
        if type_ == BYTES:
            strings = byte_strings(window, begin, end)
            count = len(strings)
            if count == 1 and strings[0][1] <= _SHORT:
                alone = [window.read(*strings[0]).decode(errors="replace")]
            for offset, size in strings[:_HELD]:
                is_image = bool(suffix_of(window.read(offset, min(size, _HEAD))))
                seen.image = seen.image and is_image
                seen.text = seen.text and not is_image and _is_text(window.read(offset, min(size, _TEXT)), size)
        elif type_ == INTS:
            numbers = ints(window, begin, end)
            count, alone = len(numbers), list(numbers[:1])
            seen.ids = seen.ids and min(numbers, default=0) >= 0
            seen.one_hot = seen.one_hot and (not numbers or one_hot(numbers) is not None)
        elif type_ == FLOATS:
            data = floats(window, begin, end)
            count, alone = len(data) // 4, list(struct.unpack_from("<f", data)) if data else []
            parts = struct.unpack(f"<{count}f", data) if count <= _LONGEST_ONE_HOT else ()
            seen.one_hot = seen.one_hot and (not count or one_hot(parts) is not None)
        seen.several = seen.several or (type_ != NOTHING and count != 1)
        seen.most = max(seen.most, count if type_ != NOTHING else 0)
        seen.values += alone if count == 1 else []


def is_of_objects(key: str) -> bool:
    """Tell whether a key says that a feature is of objects in the image."""
    return _OF_OBJECTS.search(key) is not None


def text_of(key: bytes, at: int) -> str:
    """Return a key as text; MessageError where it is no UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MessageError(f"the key of a feature is no UTF-8, at byte {at}") from None


def _is_text(head: bytes, size: int) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return size > len(head) and error.start > len(head) - 4
    return b"\0" not in head


@dataclass(frozen=True)
class Column:
    """How a feature's value is read.

    Attributes
    ----------
    slot : str
        ``image``, ``label``, ``name``, or the name of a field.
    type : int
        The feature's.
    read : callable
        Takes the window, the number of the file, and the bytes of the file that are the list; returns the value.
    """

    slot: str
    type: int
    read: Read

    @classmethod
    def label(cls, seen: Seen) -> Column:
        """Return how a label is read: an int, a float, or the name of a class; of a list the place of the 1."""
        if seen.most > 1 and seen.type != BYTES:
            return cls("label", seen.type, _place_in_ints if seen.type == INTS else _place_in_floats)
        return cls("label", seen.type, {BYTES: _string, FLOATS: _float, INTS: _int}[seen.type])

    @classmethod
    def whole_label(cls) -> Column:
        """Return how a class id is read that is a float."""
        return cls("label", FLOATS, _whole)

    @classmethod
    def text(cls, slot: str) -> Column:
        """Return how a text is read, as text."""
        return cls(slot, BYTES, _string)

    @classmethod
    def image(cls) -> Column:
        """Return how the image is found."""
        return cls("image", BYTES, _piece)

    @classmethod
    def edges(cls, slot: str) -> Column:
        """Return how floats are read, as such."""
        return cls(slot, FLOATS, _floats)

    @classmethod
    def whole(cls, slot: str) -> Column:
        """Return how one int is read."""
        return cls(slot, INTS, _int)

    @classmethod
    def field(cls, field: Field, seen: Seen) -> Column:
        """Return how the value of a field is read; ValueError where the feature has none of the field's kind."""
        readers = _READERS[seen.type] | (_OF_SEVERAL if seen.type == BYTES and seen.several else {})
        if field.kind not in readers:
            raise ValueError(f"it has {TYPES[seen.type]}, which are no {field.kind}")
        return cls(field.name, seen.type, readers[field.kind])


def field_of(
    key: str, seen: Seen, taken: set[str], said: tuple[str, str] = ("", ""), classes: Sequence[str] = ()
) -> Field:
    """Return the field that a feature becomes.

    Parameters
    ----------
    key : str
    seen : Seen
    taken : set of str
        Names of other fields, to which the new one's is added.
    said : (str, str), optional
        The name and the kind that are wanted; either may be empty.
    classes : sequence of str, optional
        The names of the classes whose ids the feature has.

    Raises
    ------
    ValueError
        If the kind is none.
    """
    name, kind = said
    name = name or field_name(key, taken)
    taken.add(name)
    kind = kind or _kind_of(seen, bool(classes))
    dtype = "int64" if seen.type == INTS else "float32"
    if kind in ("array", "scalar"):
        return Field(name, kind, dtype, int(kind == "array"))
    if kind in OF_SCALARS:
        if kind != dtype:
            raise ValueError(f"it has {TYPES[seen.type]}, and no {kind}")
        return Field(name, "scalar", dtype)
    return Field(name, kind, classes=tuple(classes) if kind in ("class", "labels") else ())


def _kind_of(seen: Seen, has_classes: bool) -> str:
    if seen.type == BYTES:
        if seen.text:
            return "json" if seen.several else "text"
        return "image" if seen.image and not seen.several else "bytes"
    if seen.ids and has_classes:
        return "labels" if seen.several else "class"
    return "array" if seen.several else "scalar"


def _piece(window: Window, unit: int, begin: int, end: int) -> Piece | None:
    found = one_bytes(window, begin, end)
    return None if found is None else Piece(unit, *found)


def _list(window: Window, unit: int, begin: int, end: int) -> Piece:
    return Piece(unit, begin, end - begin)


def _string(window: Window, unit: int, begin: int, end: int) -> str | None:
    found = one_bytes(window, begin, end)
    return None if found is None else _decoded(window, *found)


def _strings(window: Window, unit: int, begin: int, end: int) -> Stored:
    if end - begin > _TEXTS:
        raise MessageError(f"a list of texts has {end - begin:,} bytes, at byte {begin}")
    return _JSON.encode([_decoded(window, *found) for found in byte_strings(window, begin, end)])


def _decoded(window: Window, offset: int, size: int) -> str:
    if size > _TEXT:
        raise MessageError(f"a text has {size:,} bytes, at byte {offset}")
    try:
        return window.read(offset, size).decode()
    except UnicodeDecodeError:
        raise MessageError(f"a text is no UTF-8, at byte {offset}") from None


def _int(window: Window, unit: int, begin: int, end: int) -> int | None:
    return one_int(window, begin, end)


def _float(window: Window, unit: int, begin: int, end: int) -> float | None:
    value = one_float(window, begin, end)
    return None if value is None or math.isnan(value) else value


def _whole(window: Window, unit: int, begin: int, end: int) -> int | None:
    value = _float(window, unit, begin, end)
    if value is not None and not value.is_integer():
        raise MessageError(f"its label is {value}, and no class id, at byte {begin}")
    return None if value is None else int(value)


def _place_in_ints(window: Window, unit: int, begin: int, end: int) -> int | None:
    return _place_of_one(ints(window, begin, end), begin)


def _place_in_floats(window: Window, unit: int, begin: int, end: int) -> int | None:
    data = floats(window, begin, end)
    return _place_of_one(struct.unpack(f"<{len(data) // 4}f", data), begin)


def _place_of_one(values: Sequence[float], begin: int) -> int | None:
    """Return the place of the only 1 among zeros; None of no numbers."""
    place = one_hot(values)
    if values and place is None:
        raise MessageError(f"its label is no list of zeros and one 1, as those before are, at byte {begin}")
    return place


def _ids(window: Window, unit: int, begin: int, end: int) -> bytes:
    values = ints(window, begin, end)
    if min(values, default=0) < 0:
        raise MessageError(f"{min(values)} is no id of a class, at byte {begin}")
    return struct.pack(f"<{len(values)}q", *values)


def _int_array(window: Window, unit: int, begin: int, end: int) -> bytes:
    values = ints(window, begin, end)
    return struct.pack(f"<{len(values) + 1}q", len(values), *values)


def _float_array(window: Window, unit: int, begin: int, end: int) -> bytes:
    data = floats(window, begin, end)
    return struct.pack("<q", len(data) // 4) + data


def _floats(window: Window, unit: int, begin: int, end: int) -> bytes:
    return floats(window, begin, end)


_JSON = Field("texts", "json")
_READERS: Mapping[int, dict[str, Read]] = {
    NOTHING: {},
    BYTES: dict.fromkeys(("text", "json", "bytes", "image", "mask"), _piece),
    FLOATS: {"scalar": _float, "array": _float_array},
    INTS: {"scalar": _int, "class": _int, "labels": _ids, "array": _int_array},
}
_OF_SEVERAL: dict[str, Read] = {"json": _strings, "bytes": _list}
