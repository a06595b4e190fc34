"""Values of fields in small files of their own: ASCII numbers, ``.npy``, JSON."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Field, Stored
from packer._sample import UNLABELED

__all__ = ["AS_THEY_ARE", "array_field", "class_of", "stored_value"]

AS_THEY_ARE = ("text", "json", "bytes", "image", "mask")
"""The kinds of fields whose values are files' own bytes."""

_INT = re.compile(rb"\s*([+-]?[0-9]{1,19})\s*")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf|nan", re.IGNORECASE)
_MOST_OF_HEADER = 10_000  # bytes


def class_of(data: bytes) -> int | str:
    """Return the label that a file says: a class id, or else the name of a class; ValueError where it is neither.

    -1 says that there is no class, as everywhere in packer.
    """
    match = _INT.fullmatch(data)
    if match and int(match[1]) >= UNLABELED:
        return int(match[1])
    try:
        name = data.decode("utf-8").strip()
    except UnicodeDecodeError:
        name = ""
    if not name or _FLOAT.fullmatch(name):
        raise ValueError(f"{data[:20]!r} is neither a class id nor the name of a class")
    return name


def stored_value(field: Field, data: bytes) -> Stored:
    """Return what a pack holds of the value in a file, of a kind that is none of `AS_THEY_ARE`.

    Raises
    ------
    ValueError
        If there is no value of the kind in it.
    """
    if field.kind == "array":
        return field.encode(npy_array(data))
    if field.kind in ("scalar", "class"):
        match = _INT.fullmatch(data)
        if match:
            return field.encode(int(match[1]))
        if not field.dtype.startswith("float"):
            raise ValueError(f"{data[:20]!r} is no whole number")
        return field.encode(float(data))
    try:
        return field.encode(json.loads(data))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def array_field(name: str, data: bytes) -> Field:
    """Return a field of arrays like the one in a ``.npy`` file; ValueError where packer holds none such."""
    array = npy_array(data)
    return Field(name, "array", array.dtype.name, array.ndim)


def npy_array(data: bytes) -> npt.NDArray[Any]:
    """Return the array in the bytes of a ``.npy`` file; ValueError where there is none.

    NumPy's own reader takes the memory that the header asks for before it looks whether the bytes are there.
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}.get(version[0])
        if read is None:
            raise ValueError(f"version {version[0]} of .npy")
        shape, transposed, dtype = read(stream, max_header_size=_MOST_OF_HEADER)
        if dtype.hasobject:
            raise ValueError("it holds pickled objects, which packer runs never")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise ValueError(f"its bytes are no {dtype} of shape {shape}")
        elements = np.frombuffer(data, dtype, offset=stream.tell()) if math.prod(shape) else np.empty(0, dtype)
        return elements.reshape(shape, order="F" if transposed else "C")
    except Exception as error:  # NumPy parses the header as Python, and says in many ways that it is none
        raise ValueError(f"it is no .npy file of numbers: {error}") from error
