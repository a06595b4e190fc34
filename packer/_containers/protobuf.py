"""Parser of Protocol Buffers messages in a file, in particular of tf.train.Example.

A field begins with a varint: its lowest three bits are the wire type, and the other bits are the field's number. The
content follows: a varint, 4 or 8 bytes, or a size and that many bytes. A varint has 7 bits in each byte, the lowest
first; the uppermost bit of a byte is set if another byte follows. https://protobuf.dev/programming-guides/encoding

::

    Example { Features features = 1; }      Features { map<string, Feature> feature = 1; }
    Feature { one of: BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; }
    BytesList { repeated bytes value = 1; }  FloatList { repeated float value = 1; }  Int64List { repeated int64 ... }

A map is a list of messages; each has a key in field 1 and a value in field 2, in any order. The numbers of a list are
either packed in one field, or stored in one field each.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

from packer._containers.blocks import BlockReader

VARINT, SIZED, FOUR = 0, 2, 5
"""Wire types of fields."""

_EIGHT = 1


class MessageError(ValueError):
    """Bytes are not a supported message; the error's text has the reason and the offset in the file."""


def varint(value: int) -> bytes:
    """Encode a 64-bit integer as a varint; a negative integer takes ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def fields(window: BlockReader, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field that has a size, and where its content begins and ends; skip other fields."""
    for tag, start, stop in tagged(window, begin, end):
        if tag & 7 == SIZED:
            yield tag >> 3, start, stop


def tagged(window: BlockReader, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tag (number and wire type) of each field, and where its content begins and ends, in file order."""
    while at < end:
        field = field_at(window, at, end)
        yield field
        at = field[2]


def field_at(window: BlockReader, at: int, end: int) -> tuple[int, int, int]:
    """Return a field's tag (number and wire type), and where its content begins and ends; the message ends at `end`.

    Raises
    ------
    MessageError
        If no valid field begins here.
    """
    p = window.at(at, 20)
    data, shift = window.data, at - p
    try:
        tag, q = read_varint(data, p)
        if tag & 7 == SIZED:
            size, q = read_varint(data, q)
        elif tag & 7 == VARINT:
            size = read_varint(data, q)[1] - q
        else:
            size = {_EIGHT: 8, FOUR: 4}.get(tag & 7, -1)
    except IndexError:
        raise MessageError(f"a message is cut short, at byte {at}") from None
    if size < 0 or not tag >> 3 or q + shift + size > end:
        raise MessageError(f"not a Protocol Buffers message: its field at byte {at} is damaged")
    return tag, q + shift, q + shift + size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a 64-bit number and the position after it; IndexError if the data end within the varint."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise MessageError("a number has more than ten bytes")


NOTHING, BYTES, FLOATS, INTS = 0, 1, 2, 3
"""The types of lists that a feature may have."""

_MANY = 1 << 24  # bytes of numbers in one feature
_MOST = 1 << 16  # byte strings of one feature
_AHEAD = 512  # bytes: longer headers of a feature are parsed one by one
_LONGEST_KEY = 1 << 12
_ONE_INT = 12  # the most bytes of an Int64List with one value

_T = TypeVar("_T")


class SeveralError(MessageError):
    """A feature has several values instead of one."""


def feature_lists(window: BlockReader, begin: int, end: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the features of an Example; if a key occurs several times, its last feature counts.

    Parameters
    ----------
    window : BlockReader
        The reader of the file.
    begin, end : int
        The range of the Example in the file.

    Yields
    ------
    key : bytes
    type : int
        `NOTHING`, `BYTES`, `FLOATS` or `INTS`.
    begin, end : int
        The range of the list in the file.

    Raises
    ------
    MessageError
        If the bytes are not an Example.
    """
    while begin < end:
        tag, start, begin = field_at(window, begin, end)
        if tag == _FEATURES:
            yield from _features(window, start, begin)
        elif tag == _FEATURE_LISTS and begin > start:
            raise MessageError(
                "it is a SequenceExample, whose feature lists packer does not read: write it as an Example"
            )


def _features(window: BlockReader, at: int, end: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the features of a Features message.

    A feature whose parts are in numerical order is parsed here, without a function call, because this is faster.
    """
    while at < end:
        p = window.at(at, _AHEAD)
        data, shift = window.data, at - p
        try:
            q, size = p + 2, data[p + 1]
            if size > 127:
                q, size = (p + 3, size & 127 | data[q] << 7) if data[q] < 128 else _long(data, q)
            stop, k = q + size, q + 2 + data[q + 1]
            if data[p] == data[q] == 0x0A and data[q + 1] < 128 and stop + shift <= end and data[k] == 0x12:
                v, size = k + 2, data[k + 1]
                if size > 127:
                    v, size = (k + 3, size & 127 | data[v] << 7) if data[v] < 128 else _long(data, v)
                if v + size == stop and size:
                    begin, size = v + 2, data[v + 1]
                    if size > 127:
                        begin, size = (
                            (v + 3, size & 127 | data[begin] << 7) if data[begin] < 128 else _long(data, begin)
                        )
                    if begin + size == stop and data[v] in _LISTS:
                        at = stop + shift
                        yield data[q + 2 : k], _LISTS[data[v]], begin + shift, at
                        continue
        except IndexError:
            pass  # the feature is cut short, or its headers are longer than most
        tag, start, at = field_at(window, at, end)
        if tag == _MAP_ENTRY:
            yield _any_feature(window, start, at)


def _long(data: bytes, second: int) -> tuple[int, int]:
    """Return the end and the value of a varint of several bytes, given the offset of its second byte."""
    value, end = read_varint(data, second - 1)
    return end, value


_FEATURES = _MAP_ENTRY = 1 << 3 | SIZED
_FEATURE_LISTS = 2 << 3 | SIZED
_LISTS = {number << 3 | SIZED: number for number in (BYTES, FLOATS, INTS)}


def _any_feature(window: BlockReader, begin: int, end: int) -> tuple[bytes, int, int, int]:
    """Parse a map entry whose parts are in any order, and return its feature."""
    key, value = b"", None
    for part, first, last in fields(window, begin, end):
        if part == 1:
            if last - first > _LONGEST_KEY:
                raise MessageError(f"the key of a feature is too long ({last - first} bytes), at byte {first}")
            key = window.read(first, last - first)
        elif part == 2:
            if value is not None:
                raise MessageError(f"a feature has two values, at byte {first}")
            value = _list_of(window, first, last)
    return key, *(value or (NOTHING, end, end))


def _list_of(window: BlockReader, begin: int, end: int) -> tuple[int, int, int]:
    found = NOTHING, end, end
    for number, start, stop in fields(window, begin, end):
        if number in (BYTES, FLOATS, INTS):
            if found[0]:
                raise MessageError(f"a feature has two lists, at byte {start}")
            found = number, start, stop
    return found


def one_bytes(window: BlockReader, begin: int, end: int) -> tuple[int, int] | None:
    """Return offset and size of the only value of a BytesList; None if the list is empty.

    Raises
    ------
    SeveralError
        If the list has several values.
    """
    p = window.at(begin, 12)
    data = window.data
    try:
        q, size = p + 2, data[p + 1]
        if size > 127:
            q, size = _long(data, q)
        if data[p] == 0x0A and begin + q - p + size == end:
            return end - size, size
    except IndexError:
        pass
    return _only(byte_strings(window, begin, end), begin)


def one_int(window: BlockReader, begin: int, end: int) -> int | None:
    """Return the only value of an Int64List; None if the list is empty. Raises the same errors as `one_bytes`."""
    if end - begin <= _ONE_INT:
        p = window.at(begin, end - begin)
        value = _int_of(window.data[p : p + end - begin])
        if value is not None:
            return value
    return _only(ints(window, begin, end), begin)


def one_float(window: BlockReader, begin: int, end: int) -> float | None:
    """Return the only value of a FloatList; None if the list is empty. Raises the same errors as `one_bytes`."""
    data = floats(window, begin, end)
    return _only(struct.unpack(f"<{len(data) // 4}f", data), begin)


@functools.lru_cache(1 << 12)
def _int_of(message: bytes) -> int | None:
    """Return the value of an Int64List with one element, packed or not; None for any other message."""
    try:
        begin = 2 if message[0] == 0x0A and message[1] == len(message) - 2 else 1
        value, end = read_varint(message, begin)
    except (IndexError, MessageError):
        return None
    return _signed(value) if end == len(message) and (begin == 2 or message[0] == 0x08) else None


def _only(values: Sequence[_T], begin: int) -> _T | None:
    if len(values) > 1:
        raise SeveralError(f"a feature has {len(values):,} values, at byte {begin}")
    return values[0] if values else None


def _signed(value: int) -> int:
    return value if value < 1 << 63 else value - (1 << 64)


def byte_strings(window: BlockReader, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the offset and the size of each value of a BytesList."""
    values = []
    for number, start, stop in fields(window, begin, end):
        if number == 1:
            values.append((start, stop - start))
            if len(values) > _MOST:
                raise MessageError(f"a feature has more than {_MOST:,} byte strings, at byte {begin}")
    return values


def ints(window: BlockReader, begin: int, end: int) -> list[int]:
    """Return the values of an Int64List."""
    _require_few(begin, end)
    values: list[int] = []
    for tag, start, stop in tagged(window, begin, end):
        if tag in (1 << 3 | SIZED, 1 << 3 | VARINT):
            data, at = window.read(start, stop - start), 0
            while at < len(data):
                try:
                    value, at = read_varint(data, at)
                except IndexError:
                    raise MessageError(f"a list of numbers ends in the middle of a number, at byte {stop}") from None
                values.append(_signed(value))
    return values


def floats(window: BlockReader, begin: int, end: int) -> bytes:
    """Return the values of a FloatList: 4 bytes each, little-endian."""
    _require_few(begin, end)
    values = [
        window.read(start, stop - start)
        for tag, start, stop in tagged(window, begin, end)
        if tag in (1 << 3 | SIZED, 1 << 3 | FOUR)
    ]
    if any(len(value) % 4 for value in values):
        raise MessageError(f"a list of floats ends in the middle of a float, at byte {end}")
    return b"".join(values)


def _require_few(begin: int, end: int) -> None:
    if end - begin > _MANY:
        raise MessageError(f"a feature has too many numbers ({end - begin:,} bytes), at byte {begin}")
