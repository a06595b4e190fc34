"""MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), walked without copying what is long."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from packer._containers.shards.reading import Reading

__all__ = ["Span", "read_map", "unpacked"]

_DEEPEST = 32
_MOST_NESTED = 1 << 16  # values in one value
_HEAD = 16  # bytes, more than any length or number has
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I")}
_LENGTHS |= {0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I")}
_LENGTHS |= {0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")}
_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}


class Span(NamedTuple):
    """Where a string or bytes lie; or where an array or a map begins, as whose size the values in it are counted.

    Attributes
    ----------
    kind : {"str", "bin", "array", "map"}
    offset, size : int
    """

    kind: str
    offset: int
    size: int


def read_map(file: Reading, at: int) -> tuple[dict[str, Any], int]:
    """Return the values of the map at a position by their keys, and where the map ends.

    Strings and bytes are Spans. Arrays and maps within are Spans of the kind ``"array"``, which `unpacked` reads.

    Raises
    ------
    ValueError
        If there is no map, a key is no text, or more is nested in one value than anything needs.
    """
    head, at = _head(file, at)
    if not isinstance(head, Span) or head.kind != "map":
        raise ValueError("a map is expected")
    values: dict[str, Any] = {}
    for _ in range(_modest(head.size)):
        key, at = _text(file, at)
        if key in values:
            raise ValueError(f"the key {key!r} is there twice")
        start = at
        value, at = _head(file, at)
        if isinstance(value, Span) and value.kind in ("array", "map"):
            value, at = Span("array", start, 0), _skip(file, start)
        values[key] = value
    return values, at


def unpacked(file: Reading, at: int) -> Any:
    """Return an array or a map at a position, with what is in it, none of which may be bytes; errors as `read_map`."""
    return _unpacked(file, at, _DEEPEST)[0]


def _unpacked(file: Reading, at: int, depth: int) -> tuple[Any, int]:
    if not depth:
        raise ValueError("it is nested too deeply")
    head, at = _head(file, at)
    if not isinstance(head, Span):
        return head, at
    if head.kind == "str":
        return file.read(head.offset, head.size).decode(), at
    if head.kind == "bin":
        raise ValueError("there are bytes in it")
    if head.kind == "array":
        values = []
        for _ in range(_modest(head.size)):
            value, at = _unpacked(file, at, depth - 1)
            values.append(value)
        return values, at
    members = {}
    for _ in range(_modest(head.size)):
        key, at = _text(file, at)
        members[key], at = _unpacked(file, at, depth - 1)
    return members, at


def _skip(file: Reading, at: int) -> int:
    """Return where the value at a position ends."""
    left, most = 1, _MOST_NESTED
    while left:
        head, at = _head(file, at)
        left, most = left - 1, most - 1
        if isinstance(head, Span) and head.kind in ("array", "map"):
            left += head.size * (2 if head.kind == "map" else 1)
        if left > most:
            raise ValueError("too much is nested in one value")
    return at


def _head(file: Reading, at: int) -> tuple[Any, int]:
    """Return the number at a position, or what says how long the value is; and where the next one begins."""
    data = file.read(at, min(_HEAD, max(1, file.size - at)))
    code = data[0]
    if code < 0x80 or code >= 0xE0:
        return (code if code < 0x80 else code - 0x100), at + 1
    if code in _PLAIN:
        return _PLAIN[code], at + 1
    if code in _NUMBERS:
        return _unpack(_NUMBERS[code], data), at + 1 + struct.calcsize(_NUMBERS[code])
    if code in _LENGTHS:
        kind, stored = _LENGTHS[code]
        size, begin = _unpack(stored, data), at + 1 + struct.calcsize(stored)
    elif code < 0xC0:
        kind = "map" if code < 0x90 else "array" if code < 0xA0 else "str"
        size, begin = code & (0x1F if kind == "str" else 0x0F), at + 1
    else:
        raise ValueError(f"a value of the type {code:#x}, which packer does not read")
    span = Span(kind, begin, size)
    if kind not in ("str", "bin"):
        return span, begin
    if begin + size > file.size:
        raise ValueError(f"{size} bytes are wanted at byte {begin} of {file.size}")
    return span, begin + size


def _unpack(stored: str, data: bytes) -> Any:
    if len(data) < 1 + struct.calcsize(stored):
        raise ValueError("it ends within a number")
    return struct.unpack_from(stored, data, 1)[0]


def _text(file: Reading, at: int) -> tuple[str, int]:
    head, at = _head(file, at)
    if not isinstance(head, Span) or head.kind not in ("str", "bin") or head.size > _HEAD * 64:
        raise ValueError("a key is no text")
    return file.read(head.offset, head.size).decode(), at


def _modest(count: int) -> int:
    if count > _MOST_NESTED:
        raise ValueError(f"{count} values are too many for one value")
    return count
