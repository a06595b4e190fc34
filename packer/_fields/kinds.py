"""The kinds of fields. No I/O.

`KINDS` declares those properties of kinds that several packages of `packer` need. These are the form of the values,
their encoding, and whether they refer to pixels of the image. Code that treats a single kind differently, such as
masks, compares the kind's name. Code that needs torch or Pillow is in other packages. Their tables have an entry for
each kind for which `is_spatial` or `is_cropped` is True.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields.coco import segmentation_problem
from packer._fields.encoding import decoded_json, decoded_text, encoded_json, encoded_text, parsed_json, short

DTYPES: Mapping[str, str] = {
    "bool": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
}
"""The dtypes of scalars and arrays by NumPy's names, each with the dtype of the stored bytes."""

OF_SCALARS = ("bool", "int8", "int16", "int32", "int64", "float32", "float64")
"""The dtypes that a scalar can have."""

NO_VALUE = -1
"""In columns of class ids and of blobs' sizes, the number that stands for a missing value."""


@dataclass(frozen=True)
class Kind:
    """A kind of field.

    Attributes
    ----------
    values : str
        A noun for the values, for messages.
    form : {"number", "rows", "array", "pixels", "object"}
        ``"number"``: stored in a column of the table. The others are stored as blobs: ``"rows"``, an array with a row
        for each object of the image; ``"array"``, another array; ``"pixels"``, an encoded image; ``"object"``, a
        Python object.
    encode, decode : callable
        `encode` converts a value, with classes as ids, to the form that a pack stores; `decode` converts it back. Both
        take the value and the field's `properties`, and raise ValueError if the value is invalid.
    properties : tuple of str
        The attributes of a field on which the encoding depends: none, ``dtype``, or ``dtype`` and ``rank``.
    dtypes : tuple of str
        The dtypes that a field of this kind can have.
    dtype : str
        The default dtype of a field of this kind.
    has_classes : bool
        Whether values are ids of classes.
    has_entries : bool
        Whether a value can have an entry for each box of another field.
    has_null : bool
        True if a separate column marks missing values; False if a missing value is stored as `NO_VALUE` in the column.
    has_visibilities : bool
        Whether an item of a dataset contains the visibilities of points as a separate value.
    is_spatial : bool
        Whether a value refers to pixels of the image, so that a conversion that rotates or resizes the image changes
        the value.
    is_proved_by_decoding : bool
        True if bytes that `decode` accepts are always a valid value; False if `encode` checks more rules than `decode`.
    pixels : {"", "colours", "ids"}
        What the pixels of an encoded image mean. Ids are never interpolated.
    syntax : {"", "text", "json"}
        The syntax of a blob that is UTF-8; empty for other blobs.
    file : {"", "content", "npy"}
        How a value can be read from a file. ``"content"``: the file's content is the blob. ``"npy"``: the file is an
        array in NumPy's format. Empty if values cannot be read from files.
    """

    values: str
    form: str
    encode: Callable[..., Any]
    decode: Callable[..., Any]
    properties: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("",)
    dtype: str = ""
    has_classes: bool = False
    has_entries: bool = False
    has_null: bool = False
    has_visibilities: bool = False
    is_spatial: bool = False
    is_proved_by_decoding: bool = False
    pixels: str = ""
    syntax: str = ""
    file: str = ""

    @property
    def is_cropped(self) -> bool:
        """Whether crops, and augmentations that move pixels, change a value. Python objects are never changed."""
        return self.is_spatial and self.form != "object"

    @property
    def is_list(self) -> bool:
        """Whether a value is an array that can have an entry for each box. Lists of Python objects do not count."""
        return self.has_entries and self.form in ("rows", "array")

    def missing(self, columns: list[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the missing values; `columns` has the columns of `Field.columns`, or some rows of each."""
        return np.asarray(columns[1] != 0 if self.has_null else columns[0] == NO_VALUE)


def _scalar(value: Any, dtype: str) -> int | float:
    if dtype == "bool":
        if not isinstance(value, (bool, np.bool_)) and value not in (0, 1):
            raise ValueError(f"{short(value)} is neither true nor false")
        return int(value)
    if dtype.startswith("float"):
        number = float(value)
        if math.isnan(number):
            raise ValueError("NaN is not a number. A missing value is None, null or an empty cell")
        with np.errstate(over="ignore"):
            rounded = float(np.array(number).astype(dtype))
        if math.isinf(rounded) and not math.isinf(number):
            raise ValueError(f"{number} is too large for {dtype}")
        return rounded
    number = operator.index(value.item() if isinstance(value, np.generic) else value)
    range_of = np.iinfo(dtype)
    if not range_of.min <= number <= range_of.max:
        raise ValueError(f"{number} does not fit into {dtype}")
    return number


def _scalar_of(stored: float, dtype: str) -> int | float:
    return bool(stored) if dtype == "bool" else stored


def _labels(ids: Sequence[int]) -> bytes:
    return np.array(ids, "<i8").tobytes()


def _labels_of(data: bytes) -> npt.NDArray[np.int64]:
    if len(data) % 8:
        raise ValueError(f"{len(data)} bytes are not a list of ids")
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False)


def _content(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"{short(value)} is not bytes")
    return bytes(value)


def _array(value: Any, dtype: str, rank: int) -> bytes:
    array = _of_dtype(value, DTYPES[dtype], dtype)
    if array.ndim != rank:
        raise ValueError(f"the array has {array.ndim} axes, but the field's arrays have {rank}")
    return np.array(array.shape, "<i8").tobytes() + np.ascontiguousarray(array).tobytes()


def _array_of(data: bytes, dtype: str, rank: int) -> npt.NDArray[Any]:
    return _elements(data, DTYPES[dtype], rank).astype(dtype, copy=False)


def _of_dtype(value: Any, stored: str, dtype: str) -> npt.NDArray[Any]:
    """Convert a value to an array of `dtype`.

    If `dtype` is a float, numbers may be rounded. For any other dtype, raise ValueError if a number would change.
    """
    array = np.asarray(value)
    target: Any = np.dtype(stored) if dtype != "bool" else np.dtype(bool)
    if array.dtype != target:
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and target.kind != "f"):
            raise ValueError(f"an array of {array.dtype} cannot be stored as {dtype}")
        with np.errstate(over="ignore"):
            changed = array.astype(target)
        if target.kind == "f" and (lost := np.isinf(changed) & np.isfinite(array)).any():
            raise ValueError(f"{array[lost].flat[0]} is too large for {dtype}")
        if target.kind != "f" and not np.array_equal(changed, array):
            raise ValueError(f"some elements of the array do not fit into {dtype}")
        array = changed
    return array.astype(stored, copy=False)


def _elements(data: bytes, dtype: str, rank: int) -> npt.NDArray[Any]:
    if len(data) < 8 * rank:
        raise ValueError(f"{len(data)} bytes are too few for the shape of an array with {rank} axes")
    shape = np.frombuffer(data, "<i8", rank).tolist()
    if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(dtype).itemsize != len(data) - 8 * rank:
        raise ValueError(f"{len(data) - 8 * rank} bytes are not the elements of an array of the shape {shape}")
    elements: npt.NDArray[Any] = np.frombuffer(data, dtype, offset=8 * rank)
    return np.reshape(elements, shape)


def _numbers(value: Any, shape: Sequence[int | None], what: str) -> npt.NDArray[Any]:
    """Convert a value to an array of finite float32 numbers of the given shape, in which None permits any length.

    An empty value becomes an array with the length 0 along each axis for which `shape` has None.
    """
    array: npt.NDArray[Any] = np.asarray(value, "<f4")
    fits = array.ndim == len(shape) and all(size in (None, have) for size, have in zip(shape, array.shape, strict=True))
    if array.size == 0 and not fits:
        return np.zeros([size or 0 for size in shape], "<f4")
    if not fits:
        raise ValueError(f"numbers of the shape {array.shape} are not {what}")
    if not np.isfinite(array).all():
        raise ValueError(f"not all numbers are finite: expected {what}")
    return array


def _boxes(value: Any) -> bytes:
    boxes = _numbers(value, (None, 4), "boxes, (K, 4): x y x y in pixels")
    if (boxes[:, 2:] < boxes[:, :2]).any():
        raise ValueError("a box ends before it begins: boxes are x y x y (left, top, right, bottom)")
    return boxes.tobytes()


def _boxes_of(data: bytes) -> npt.NDArray[np.float32]:
    if len(data) % 16:
        raise ValueError(f"{len(data)} bytes are not boxes")
    return np.frombuffer(data, "<f4").reshape(-1, 4).astype(np.float32, copy=False)


def _keypoints(value: Any) -> bytes:
    points = _numbers(value, (None, None, 3), "keypoints, (K, P, 3): x y visibility")
    return np.array(points.shape[:2], "<i8").tobytes() + points.tobytes()


def _keypoints_of(data: bytes) -> npt.NDArray[np.float32]:
    return _elements(data[:16] + np.array([3], "<i8").tobytes() + data[16:], "<f4", 3).astype(np.float32, copy=False)


def _segmentation(value: Any) -> bytes:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{short(value)} is not a list of segmentations, one for each object")
    for number, one in enumerate(value):
        if problem := segmentation_problem(one):
            raise ValueError(f"segmentation {number}: {problem}")
    return encoded_json(value)


def _segmentation_of(data: bytes) -> list[Any]:
    value = parsed_json(decoded_text(data))
    if not isinstance(value, list):
        raise ValueError(f"{len(data)} bytes are not a list of segmentations")
    return value


KINDS: Mapping[str, Kind] = {
    "scalar": Kind("numbers", "number", _scalar, _scalar_of, ("dtype",), OF_SCALARS, has_null=True),
    "class": Kind("ids", "number", int, int, has_classes=True),
    "labels": Kind("lists of ids", "rows", _labels, _labels_of, has_classes=True, has_entries=True),
    "text": Kind(
        "texts", "object", encoded_text, decoded_text, is_proved_by_decoding=True, syntax="text", file="content"
    ),
    "json": Kind("JSON", "object", encoded_json, decoded_json, has_entries=True, syntax="json", file="content"),
    "bytes": Kind("bytes", "object", _content, bytes, is_proved_by_decoding=True, file="content"),
    "array": Kind(
        "arrays",
        "array",
        _array,
        _array_of,
        ("dtype", "rank"),
        tuple(DTYPES),
        "float32",
        has_entries=True,
        is_proved_by_decoding=True,
        file="npy",
    ),
    "image": Kind("images", "pixels", _content, bytes, is_spatial=True, pixels="colours", file="content"),
    "mask": Kind("masks", "pixels", _content, bytes, is_spatial=True, pixels="ids", file="content"),
    "boxes": Kind("boxes", "rows", _boxes, _boxes_of, is_spatial=True),
    "keypoints": Kind(
        "keypoints", "rows", _keypoints, _keypoints_of, has_entries=True, has_visibilities=True, is_spatial=True
    ),
    "segmentation": Kind(
        "segmentations", "object", _segmentation, _segmentation_of, has_entries=True, is_spatial=True, syntax="json"
    ),
}
"""All kinds, by the names that manifests and options use."""
