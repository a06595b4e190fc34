"""Arrays as MDS and LitData store them: with or without their dtype and their shape before the elements."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers.shards.roles import ColumnType

__all__ = ["MDSArray", "array_type", "litdata_array", "plain_dtype"]

_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32"}
_DTYPES |= {64: "uint64", 65: "int64", 66: "float64"}
_NUMBERED = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_WIDER = {"uint32": "int64", "uint64": "int64"}
"""The dtypes of fields that hold what no field has; a number that does not fit is an error."""

_MOST_AXES = 8


def array_type(array: npt.NDArray[Any]) -> ColumnType:
    """Return the type of a column that holds such arrays."""
    return ColumnType("array", _WIDER.get(array.dtype.name, array.dtype.name), array.ndim)


@dataclass(frozen=True)
class MDSArray:
    """What stands in the name of the encoding, ``ndarray:DTYPE:SHAPE``, rather than before each array.

    Attributes
    ----------
    dtype : str
        Empty where each array has its own.
    shape : tuple of int, optional
    """

    dtype: str = ""
    shape: tuple[int, ...] | None = None

    @classmethod
    def of(cls, said: str) -> MDSArray:
        """Return what ``DTYPE:SHAPE`` says; ValueError where that is none."""
        match = re.fullmatch(r"(\w*)(?::([0-9]{1,18}(?:,[0-9]{1,18})*))?", said, re.ASCII)
        if match is None or (match[1] and match[1] not in _DTYPES.values()):
            raise ValueError(f"ndarray:{said} is no encoding of arrays")
        return cls(match[1], tuple(map(int, match[2].split(","))) if match[2] else None)

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Return an array; ValueError where the bytes are none."""
        start, dtype, shape = 0, self.dtype, self.shape
        if not dtype:
            dtype, start = _DTYPES.get(data[0] if data else 0, ""), 1
            if not dtype:
                raise ValueError("an array has no known dtype")
        if shape is None:
            if len(data) <= start or data[start] >> 2 > _MOST_AXES:
                raise ValueError("an array has no shape, or too many axes")
            axes, width = data[start] >> 2, 1 << data[start] % 4
            start += 1
            told = data[start : start + axes * width]
            if len(told) < axes * width:
                raise ValueError("an array is too short for its shape")
            shape = tuple(np.frombuffer(told, f"<u{width}").tolist())
            start += axes * width
        return _elements(data, start, dtype, shape)


def plain_dtype(number: str) -> str:
    """Return the dtype that a number of LitData's stands for; ValueError where it is of none that a field has."""
    if not (number.isascii() and number.isdecimal() and len(number) < 3 and int(number) < len(_NUMBERED)):
        raise ValueError(f"an array has the dtype {number!r}, which packer does not read")
    return _NUMBERED[int(number)]


def litdata_array(data: bytes, dtype: str | None) -> npt.NDArray[Any]:
    """Return an array that LitData stores: of one axis, or where `dtype` is None with a head of u32.

    The head is the dtype's number, the number of axes, and the length of each. ValueError where the bytes are none.
    """
    if dtype is not None:
        return _elements(data, 0, dtype, (len(data) // np.dtype(dtype).itemsize,))
    head = np.frombuffer(data, "<u4", min(len(data) // 4, 2 + _MOST_AXES)).tolist()
    axes = head[1] if len(head) > 1 else _MOST_AXES + 1
    if axes > _MOST_AXES or len(head) < 2 + axes:
        raise ValueError("an array has no shape, or too many axes")
    return _elements(data, 4 * (2 + axes), plain_dtype(str(head[0])), tuple(head[2 : 2 + axes]))


def _elements(data: bytes, start: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    of_elements = np.dtype(dtype).newbyteorder("<")
    if math.prod(shape) * of_elements.itemsize != len(data) - start:
        raise ValueError(f"{len(data) - start} bytes are no array of {dtype} {shape}")
    return np.frombuffer(data, of_elements, offset=start).reshape(shape)
