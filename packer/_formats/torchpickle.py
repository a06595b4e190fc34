"""The pickle in a file that `torch.save` writes of a dict of vectors, without torch.

`pickle` itself can name a function only after importing it, and importing torch takes longer than converting a thousand
photos. So the opcodes are written here. They are the same as `pickle` writes of the same dict, protocol 2.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping

__all__ = ["pickled_vectors"]


def pickled_vectors(vectors: Mapping[str, tuple[str, int]]) -> bytes:
    """Return the pickle of a dict of vectors, each of which is a view of a storage.

    Parameters
    ----------
    vectors : mapping
        The vectors by their keys in the dict: the name of the storage's class in `torch`, and the number of elements.
        There are 2 to 1000 of them. The storages are numbered in this order, and lie beside the pickle.
    """
    opcodes = _Opcodes()
    opcodes.write(pickle.PROTO + b"\2")
    opcodes.remember(pickle.EMPTY_DICT)
    opcodes.write(pickle.MARK)
    for number, (key, (storage, length)) in enumerate(vectors.items()):
        opcodes.remember(_text(key))
        _write_vector(opcodes, number, storage, _integer(length))
    opcodes.write(pickle.SETITEMS + pickle.STOP)
    return bytes(opcodes.written)


def _write_vector(opcodes: _Opcodes, number: int, storage: str, length: bytes) -> None:
    """Write the call ``_rebuild_tensor_v2(storage, 0, (length,), (1,), False, OrderedDict())``."""
    opcodes.recall(_global("torch._utils", "_rebuild_tensor_v2"))
    opcodes.write(pickle.MARK)
    _write_storage(opcodes, number, storage, length)
    opcodes.write(_integer(0))
    opcodes.remember(length + pickle.TUPLE1)
    opcodes.recall(_integer(1) + pickle.TUPLE1)
    opcodes.write(pickle.NEWFALSE)
    opcodes.recall(_global("collections", "OrderedDict"))
    opcodes.remember(pickle.EMPTY_TUPLE + pickle.REDUCE)
    opcodes.remember(pickle.TUPLE)
    opcodes.remember(pickle.REDUCE)


def _write_storage(opcodes: _Opcodes, number: int, storage: str, length: bytes) -> None:
    """Write the persistent id by which torch finds a storage: ``("storage", class, number, "cpu", length)``."""
    opcodes.write(pickle.MARK)
    opcodes.recall(_text("storage"))
    opcodes.recall(_global("torch", storage))
    opcodes.remember(_text(str(number)))
    opcodes.recall(_text("cpu"))
    opcodes.write(length)
    opcodes.remember(pickle.TUPLE)
    opcodes.write(pickle.BINPERSID)


class _Opcodes:
    """A pickle that grows, and the memo in which the objects that it made are numbered."""

    def __init__(self) -> None:
        self.written = bytearray()
        self._memo: dict[bytes, int] = {}
        self._remembered = 0

    def write(self, opcodes: bytes) -> None:
        """Write opcodes."""
        self.written += opcodes

    def remember(self, opcodes: bytes) -> None:
        """Write opcodes that make an object, and number the object."""
        self.write(opcodes + _numbered(pickle.BINPUT, pickle.LONG_BINPUT, self._remembered))
        self._remembered += 1

    def recall(self, opcodes: bytes) -> None:
        """Write opcodes that make an object, or its number where the same opcodes were recalled before."""
        if opcodes in self._memo:
            self.write(_numbered(pickle.BINGET, pickle.LONG_BINGET, self._memo[opcodes]))
        else:
            self._memo[opcodes] = self._remembered
            self.remember(opcodes)


def _numbered(short: bytes, long: bytes, number: int) -> bytes:
    """Return one of two opcodes with a number of the memo, the short one where the number is a byte."""
    return short + bytes([number]) if number < 1 << 8 else long + struct.pack("<I", number)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _integer(value: int) -> bytes:
    """Return the shortest opcode of a number of 0 or more."""
    if value < 1 << 8:
        return pickle.BININT1 + struct.pack("<B", value)
    if value < 1 << 16:
        return pickle.BININT2 + struct.pack("<H", value)
    if value < 1 << 31:
        return pickle.BININT + struct.pack("<i", value)
    encoded = pickle.encode_long(value)
    return pickle.LONG1 + struct.pack("<B", len(encoded)) + encoded
