"""What was found in a value and not read: bytes, and the elements of arrays, by where in the file they lie."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from packer._storage.packfile import PackFile

__all__ = ["HELD", "Array", "Blob", "array_of"]

_DTYPE = re.compile(r"[<>|=]?[biuf][1248]")

HELD = 64
"""Bytes of a blob that are read at once."""


class Blob(NamedTuple):
    """Bytes in a file.

    Attributes
    ----------
    offset, size : int
    head : bytes
        The first of them.
    """

    offset: int
    size: int
    head: bytes

    def data(self, file: PackFile) -> bytes:
        """Return all of them."""
        return self.head if len(self.head) == self.size else file.read(self.offset, self.size)


class Array(NamedTuple):
    """An array of NumPy: its dtype, its shape, its elements, and whether the first axis counts fastest."""

    dtype: str
    shape: tuple[int, ...]
    elements: Blob | bytes
    fortran: bool = False

    def value(self, file: PackFile) -> Any:
        """Return the array; ValueError where the elements are not as many."""
        data = self.elements.data(file) if isinstance(self.elements, Blob) else self.elements
        array = np.frombuffer(data, self.dtype)
        return array.reshape(self.shape, order="F" if self.fortran else "C")


def array_of(dtype: str, shape: Any, elements: Any, fortran: bool) -> Array:
    """Return the array that a stranger describes; ValueError where it is none of numbers, or of another size."""
    if not _DTYPE.fullmatch(dtype):
        raise ValueError("an array of something else than numbers")
    if (
        not isinstance(shape, tuple)
        or len(shape) > 8
        or not all(isinstance(side, int) and 0 <= side < 1 << 40 for side in shape)
    ):
        raise ValueError("an array of a strange shape")
    if not isinstance(elements, (Blob, bytes)):
        raise ValueError("an array whose elements are no bytes")
    size = elements.size if isinstance(elements, Blob) else len(elements)
    if math.prod(shape) * int(dtype[-1]) != size:
        raise ValueError(f"an array whose elements have {size} bytes, which do not fit its shape")
    return Array(dtype, shape, elements, fortran)
