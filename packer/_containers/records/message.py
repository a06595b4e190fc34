"""Messages of Protocol Buffers: the fields in them, written, and found where they lie in a file.

A field is a varint, which has the field's number above its lowest three bits and the type in these, and then the
content: a varint, 4 or 8 bytes, or a size and so many bytes. A varint has 7 bits a byte, the lowest first, and the
uppermost bit of a byte says that more follow. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator

from packer._containers.records.window import Window

__all__ = ["FOUR", "SIZED", "VARINT", "MessageError", "field_at", "fields", "read_varint", "sized", "tagged", "varint"]

VARINT, SIZED, FOUR = 0, 2, 5
"""Types of fields."""

_EIGHT = 1


class MessageError(ValueError):
    """Bytes are no message, or none that is read; the text says why and at which byte of the file."""


def sized(number: int, content: bytes) -> bytes:
    """Return a field that has a size."""
    return b"".join((varint(number << 3 | SIZED), varint(len(content)), content))


def varint(value: int) -> bytes:
    """Return an integer of 64 bits as a varint; a negative one has ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def fields(window: Window, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field that has a size, and where its content lies; other fields are skipped."""
    for tag, start, stop in tagged(window, begin, end):
        if tag & 7 == SIZED:
            yield tag >> 3, start, stop


def tagged(window: Window, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number and type of each field, as they are written, and where its content lies."""
    while at < end:
        field = field_at(window, at, end)
        yield field
        at = field[2]


def field_at(window: Window, at: int, end: int) -> tuple[int, int, int]:
    """Return number and type of a field of a message that ends at `end`, and where the field's content lies.

    Raises
    ------
    MessageError
        If there is no field.
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
        raise MessageError(f"no message: its field at byte {at} is damaged")
    return tag, q + shift, q + shift + size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
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
