"""tf.train.Example: the features of a sample as a message of Protocol Buffers, written, and read where it lies.

::

    Example { Features features = 1; }      Features { map<string, Feature> feature = 1; }
    Feature { one of: BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; }
    BytesList { repeated bytes value = 1; }  FloatList { repeated float value = 1; }  Int64List { repeated int64 ... }

A map is a list of messages with a key in field 1 and a value in field 2. A field is a varint, which has the field's
number and above its lowest three bits the type, and then the content: a varint, 4 or 8 bytes, or a size and so many
bytes. Fields may stand in any order. Numbers of a list stand in one field, packed, or in one field each.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto and
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._containers.window import Window
from packer._table import Buffer

__all__ = [
    "BYTES",
    "FLOATS",
    "INTS",
    "NOTHING",
    "FeatureList",
    "MessageError",
    "byte_strings",
    "encode_example",
    "features",
    "floats",
    "ints",
]

NOTHING, BYTES, FLOATS, INTS = 0, 1, 2, 3
"""Which list a feature has."""

Value = Buffer | str | int | float | Sequence[Any] | npt.NDArray[Any]

_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
_MANY = 1 << 24  # bytes of numbers in one feature
_MOST = 1 << 16  # features, and byte strings of one
_AHEAD = 512  # bytes that the headers of a feature have at most, else they are read one by one
_LONGEST_KEY = 1 << 12
_LOWEST = -(1 << 63)


class MessageError(ValueError):
    """Bytes are no message, or none that is read; the text says why and at which byte of the file."""


class FeatureList(NamedTuple):
    """Where the list of a feature lies: its type, and the bytes of the file from `begin` to `end`."""

    type: int
    begin: int
    end: int


def encode_example(features: Mapping[str, Value]) -> bytes:
    """Return the Example that has these features, in their order.

    Parameters
    ----------
    features : mapping
        By key: bytes, a text, an int of 64 bits, a float, which is kept as float32, or several of one of these, as a
        sequence or a vector. None at all are a feature without a list.

    Raises
    ------
    ValueError, TypeError
        If a value is none of these.
    """
    entries = b"".join(
        _sized(1, _sized(1, key.encode()) + _sized(2, _feature(value))) for key, value in features.items()
    )
    return _sized(1, entries)


def _feature(value: Value) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview, str, int, float, np.generic)):
        value = [value]
    if len(value) == 0:
        return b""
    if all(isinstance(one, (bytes, bytearray, memoryview, str)) for one in value):
        return _sized(BYTES, b"".join(_sized(1, one.encode() if isinstance(one, str) else bytes(one)) for one in value))
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "buif" or (array.dtype.kind == "u" and array.max() >= 1 << 63):
        raise ValueError(f"a feature is bytes, texts, ints of 64 bits or floats, and not {str(value)[:60]}")
    if array.dtype.kind == "f":
        return _sized(FLOATS, _sized(1, array.astype("<f4").tobytes()))
    return _sized(INTS, _sized(1, b"".join(_varint(one) for one in array.astype(np.int64).tolist())))


def _sized(number: int, content: bytes) -> bytes:
    return b"".join((_varint(number << 3 | _SIZED), _varint(len(content)), content))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def features(window: Window, begin: int, end: int) -> dict[bytes, FeatureList]:
    """Return where the features of an Example lie, by key.

    Parameters
    ----------
    window : Window
        Of the file.
    begin, end : int
        The bytes of the file that are the Example.

    Raises
    ------
    MessageError
        If they are none.
    """
    found: dict[bytes, FeatureList] = {}
    for number, start, stop in _fields(window, begin, end):
        if number == 1:
            _add_features(window, start, stop, found)
        elif number == 2 and stop > start:
            raise MessageError("it is a SequenceExample, whose lists of features are not read: write it as an Example")
    return found


def _add_features(window: Window, at: int, end: int, found: dict[bytes, FeatureList]) -> None:
    """Add features; those whose parts stand in the order of their numbers are read without a call."""
    while at < end:
        p = window.at(at, _AHEAD)
        data, shift = window.data, at - p
        try:
            size, q = data[p + 1], p + 2
            if size > 127:
                size, q = _read_varint(data, p + 1)
            stop, k = q + size, q + 2 + data[q + 1]
            if data[p] == 0x0A and data[q] == 0x0A and data[q + 1] < 128 and stop + shift <= end and data[k] == 0x12:
                size, v = data[k + 1], k + 2
                if size > 127:
                    size, v = _read_varint(data, k + 1)
                if v + size == stop and size:
                    type_, size, begin = data[v], data[v + 1], v + 2
                    if size > 127:
                        size, begin = _read_varint(data, v + 1)
                    if begin + size == stop and type_ in _LISTS:
                        found[data[q + 2 : k]] = FeatureList(_LISTS[type_], begin + shift, stop + shift)
                        at = stop + shift
                        continue
        except IndexError:
            pass
        at = _add_any(window, at, end, found)
        if len(found) > _MOST:
            raise MessageError(f"an Example has more than {_MOST:,} features")


_LISTS = {number << 3 | _SIZED: number for number in (BYTES, FLOATS, INTS)}


def _add_any(window: Window, at: int, end: int, found: dict[bytes, FeatureList]) -> int:
    """Add a feature whose parts stand in any order; return where its field ends, or where another field does."""
    number, start, stop = _field(window, at, end)
    if number != 1:
        return stop
    key, value = b"", None
    for part, first, last in _fields(window, start, stop):
        if part == 1:
            if last - first > _LONGEST_KEY:
                raise MessageError(f"the key of a feature has {last - first} bytes, at byte {first}")
            key = window.read(first, last - first)
        elif part == 2:
            if value is not None:
                raise MessageError(f"a feature has two values, at byte {first}")
            value = _list_of(window, first, last)
    found[key] = value or FeatureList(NOTHING, stop, stop)
    return stop


def _list_of(window: Window, begin: int, end: int) -> FeatureList:
    found = FeatureList(NOTHING, end, end)
    for number, start, stop in _fields(window, begin, end):
        if number in (BYTES, FLOATS, INTS):
            if found.type:
                raise MessageError(f"a feature has two lists, at byte {start}")
            found = FeatureList(number, start, stop)
    return found


def byte_strings(window: Window, begin: int, end: int) -> list[tuple[int, int]]:
    """Return where the values of a BytesList lie: the offset and the size of each."""
    values = []
    for number, start, stop in _fields(window, begin, end):
        if number == 1:
            values.append((start, stop - start))
            if len(values) > _MOST:
                raise MessageError(f"a feature has more than {_MOST:,} byte strings, at byte {begin}")
    return values


def ints(window: Window, begin: int, end: int) -> list[int]:
    """Return the values of an Int64List."""
    _require_few(begin, end)
    values: list[int] = []
    for tag, start, stop in _tagged(window, begin, end):
        if tag in (1 << 3 | _SIZED, 1 << 3 | _VARINT):
            data, at = window.read(start, stop - start), 0
            while at < len(data):
                try:
                    value, at = _read_varint(data, at)
                except IndexError:
                    raise MessageError(f"numbers end amid one, at byte {stop}") from None
                values.append(value if value < 1 << 63 else value - (1 << 64))
    return values


def floats(window: Window, begin: int, end: int) -> bytes:
    """Return the values of a FloatList: 4 bytes each, little-endian."""
    _require_few(begin, end)
    values = [
        window.read(start, stop - start)
        for tag, start, stop in _tagged(window, begin, end)
        if tag in (1 << 3 | _SIZED, 1 << 3 | _FOUR)
    ]
    if any(len(value) % 4 for value in values):
        raise MessageError(f"floats end amid one, at byte {end}")
    return b"".join(values)


def _require_few(begin: int, end: int) -> None:
    if end - begin > _MANY:
        raise MessageError(f"a feature has {end - begin:,} bytes of numbers, at byte {begin}")


def _fields(window: Window, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field that has a size, and where its content lies; other fields are skipped."""
    for tag, start, stop in _tagged(window, begin, end):
        if tag & 7 == _SIZED:
            yield tag >> 3, start, stop


def _field(window: Window, at: int, end: int) -> tuple[int, int, int]:
    """Return the number of one field and where its content lies; a number of no field where it has no size."""
    tag, start, stop = _one(window, at, end)
    return (tag >> 3 if tag & 7 == _SIZED else 0), start, stop


def _tagged(window: Window, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number and type of each field, as they are written, and where its content lies."""
    while at < end:
        field = _one(window, at, end)
        yield field
        at = field[2]


def _one(window: Window, at: int, end: int) -> tuple[int, int, int]:
    p = window.at(at, 20)
    data, shift = window.data, at - p
    try:
        tag, q = _read_varint(data, p)
        if tag & 7 == _SIZED:
            size, q = _read_varint(data, q)
        elif tag & 7 == _VARINT:
            size = _read_varint(data, q)[1] - q
        else:
            size = {_EIGHT: 8, _FOUR: 4}.get(tag & 7, -1)
    except IndexError:
        raise MessageError(f"a message is cut short, at byte {at}") from None
    if size < 0 or not tag >> 3 or q + shift + size > end:
        raise MessageError(f"no message: its field at byte {at} is damaged")
    return tag, q + shift, q + shift + size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 64 bits and where it ends; IndexError where the data end before."""
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
