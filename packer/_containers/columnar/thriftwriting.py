"""Values in Thrift's compact protocol, each its type and its bytes; `thrift` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packer._containers.columnar.thrift import BINARY, I32, I64, LIST, STRUCT
from packer._containers.records.message import varint

__all__ = ["Encoded", "binary", "i32", "i64", "listed", "struct"]

Encoded = tuple[int, bytes]


def i32(number: int) -> Encoded:
    """Return a whole number of 32 bits."""
    return I32, varint(number << 1 if number >= 0 else ~(number << 1))


def i64(number: int) -> Encoded:
    """Return a whole number of 64 bits."""
    return I64, i32(number)[1]


def binary(data: bytes) -> Encoded:
    """Return bytes, or a text in UTF-8."""
    return BINARY, varint(len(data)) + data


def listed(kind: int, values: Sequence[Encoded]) -> Encoded:
    """Return a list of values that are all of one type."""
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return LIST, head + b"".join(data for _, data in values)


def struct(fields: Mapping[int, Encoded]) -> Encoded:
    """Return a structure of fields by their numbers, which ascend by 15 at most."""
    data, last = bytearray(), 0
    for number, (kind, value) in fields.items():
        data.append((number - last) << 4 | kind)
        data += value
        last = number
    return STRUCT, bytes(data) + b"\0"
