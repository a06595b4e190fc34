"""Thrift's compact protocol, as far as Parquet needs it: structures are dicts by the numbers of their fields.

The specification is ``doc/specs/thrift-compact-protocol.md`` of Apache Thrift. Only fields that are asked for are kept,
so that what a stranger's file has besides costs no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BINARY", "I32", "I64", "LIST", "STRUCT", "Shape", "ThriftError", "read_struct"]

Shape = Mapping[int, Any]
"""The fields of a structure that are wanted, and what each is: int, bytes, bool, a shape, or a list of one of these."""

_TRUE, _FALSE, _BYTE, _I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_DEEPEST = 32
_LONGEST_LIST = 1 << 20
_LONGEST_VARINT = 10  # bytes


class ThriftError(ValueError):
    """The bytes are no structure; `ended` tells that they may be one with more bytes."""

    def __init__(self, message: str, *, ended: bool = False) -> None:
        super().__init__(message)
        self.ended = ended


def read_struct(data: bytes, begin: int, shape: Shape) -> tuple[dict[int, Any], int]:
    """Return the wanted fields of a structure, and where it ends.

    Raises
    ------
    ThriftError
        If there is none.
    """
    reader = _Reader(data, begin)
    return reader.struct(shape, 0), reader.at


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def struct(self, shape: Shape, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ThriftError(f"structures lie in each other more than {_DEEPEST} deep")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._zigzag()
            if number in shape:
                found[number] = self._value(kind, shape[number], depth)
            else:
                self._skip(kind, depth)
        return found

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if isinstance(wanted, list) and kind in (LIST, _SET):
            of, count = self._list_head()
            if count > _LONGEST_LIST:
                raise ThriftError(f"a list of {count} elements")
            return [self._value(of, wanted[0], depth) for _ in range(count)]
        if isinstance(wanted, Mapping) and kind == STRUCT:
            return self.struct(wanted, depth + 1)
        if wanted is bytes and kind == BINARY:
            return self._bytes(self._varint())
        if wanted is int and kind in (_I16, I32, I64):
            return self._zigzag()
        if wanted is bool and kind in (_TRUE, _FALSE):
            return kind == _TRUE
        raise ThriftError("a field has another type than it should have")

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ThriftError(f"structures lie in each other more than {_DEEPEST} deep")
        if kind in (_TRUE, _FALSE):
            return
        if kind in (_I16, I32, I64):
            self._varint()
        elif kind == BINARY:
            self._advance(self._varint())
        elif kind == STRUCT:
            self.struct({}, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self._advance(1 if kind == _BYTE else 8)
        elif kind in (LIST, _SET):
            of, count = self._list_head()
            for _ in range(count):
                self._skip(_BYTE if of in (_TRUE, _FALSE) else of, depth + 1)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            for _ in range(count):
                for of in (kinds >> 4, kinds & 15):
                    self._skip(_BYTE if of in (_TRUE, _FALSE) else of, depth + 1)
        else:
            raise ThriftError(f"{kind} is no type")

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        return head & 15, self._varint() if count == 15 else count

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ThriftError("it ends too early", ended=True)
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for place in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return number
        raise ThriftError("a number has too many bytes")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, size: int) -> bytes:
        self._advance(size)
        return self._data[self.at - size : self.at]

    def _advance(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise ThriftError("it ends too early", ended=True)
        self.at += size
