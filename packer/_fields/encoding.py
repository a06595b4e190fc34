"""Values of each kind of field: checking them, encoding them as bytes, and decoding them."""

from __future__ import annotations

import json
import math
import operator
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from packer._fields.coco import segmentation_problem


def scalar(value: Any, dtype: str) -> int | float:
    if dtype == "bool":
        if not isinstance(value, (bool, np.bool_)) and value not in (0, 1):
            raise ValueError(f"{short(value)} is neither true nor false")
        return int(value)
    if dtype.startswith("float"):
        number = float(value)
        if math.isnan(number):
            raise ValueError("NaN is no number. A missing value is null: None, or an empty cell")
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


def of_dtype(value: Any, stored: str, dtype: str) -> npt.NDArray[Any]:
    """Return a value as an array of a dtype that represents each element exactly, or as the nearest float."""
    array = np.asarray(value)
    target: Any = np.dtype(stored) if dtype != "bool" else np.dtype(bool)
    if array.dtype != target:
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and target.kind != "f"):
            raise ValueError(f"an array of {array.dtype} is none of {dtype}")
        with np.errstate(over="ignore"):
            changed = array.astype(target)
        if target.kind == "f" and (lost := np.isinf(changed) & np.isfinite(array)).any():
            raise ValueError(f"{array[lost].flat[0]} is too large for {dtype}")
        if target.kind != "f" and not np.array_equal(changed, array):
            raise ValueError(f"some elements of the array do not fit into {dtype}")
        array = changed
    return array.astype(stored, copy=False)


def array_bytes(array: npt.NDArray[Any], rank: int) -> bytes:
    if array.ndim != rank:
        raise ValueError(f"the array has {array.ndim} axes, and the field's arrays have {rank}")
    return np.array(array.shape, "<i8").tobytes() + np.ascontiguousarray(array).tobytes()


def array_of(data: bytes, rank: int, dtype: str) -> npt.NDArray[Any]:
    if len(data) < 8 * rank:
        raise ValueError(f"{len(data)} bytes hold no shape of {rank} axes")
    shape = np.frombuffer(data, "<i8", rank).tolist()
    if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(dtype).itemsize != len(data) - 8 * rank:
        raise ValueError(f"{len(data) - 8 * rank} bytes are no elements of an array of {shape}")
    elements: npt.NDArray[Any] = np.frombuffer(data, dtype, offset=8 * rank)
    return np.reshape(elements, shape)


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{short(value)} is no text")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{short(value)} is no text that UTF-8 can hold") from None


def is_text(value: str) -> bool:
    """Tell whether a text can be encoded in UTF-8, which a lone surrogate prevents."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _decoded_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the bytes are no UTF-8: byte {error.start}") from None


def _json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _require_shallow(value, text)
    return _text(text)


def _require_shallow(value: Any, text: str) -> None:
    """Raise ValueError if a value, whose JSON is `text`, is nested so deeply that recursion over it may fail."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return
    level = [value]
    for _ in range(_DEEPEST):
        inner = (one.values() if isinstance(one, Mapping) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, (list, tuple, Mapping))]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def parsed_json(text: str, *, infinite: bool = False) -> Any:
    """Return the value of a JSON text; ValueError if it is not JSON, or has NaN or a number that is too large.

    With `infinite`, numbers that are too large become infinite: ``1e999`` stands for infinity in a table.
    """
    try:
        value = (_JSON_OF_LARGE if not infinite and _LARGE.search(text) else _JSON).decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:
        if "limit" in str(error):  # int's, of digits
            raise ValueError("a number has too many digits") from error
        raise
    _require_shallow(value, text)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; a missing value is null")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{short(text)} is too large a number")
    return number


_DEEPEST = 100  # lists and objects within one another
_TOO_DEEP = "it is nested too deeply"
_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
_JSON_OF_LARGE = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)  # twice as slow
_LARGE = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{200}")  # without which no number is too large for a float


def _decoded_json(data: bytes) -> Any:
    value = parsed_json(_decoded_text(data))
    if b"\\u" in data:  # the half of a character, perhaps, which UTF-8 does not hold
        _json(value)
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"{short(value)} is no bytes")
    return bytes(value)


def _numbers(value: Any, shape: Sequence[int | None], what: str) -> npt.NDArray[Any]:
    """Return finite float32 numbers of a shape; an empty value of another shape becomes an empty array."""
    array: npt.NDArray[Any] = np.asarray(value, "<f4")
    fits = array.ndim == len(shape) and all(size in (None, have) for size, have in zip(shape, array.shape, strict=True))
    if array.size == 0 and not fits:
        return np.zeros([size or 0 for size in shape], "<f4")
    if not fits:
        raise ValueError(f"numbers of the shape {array.shape} are no {what}")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} are finite numbers")
    return array


def _boxes(value: Any) -> bytes:
    boxes = _numbers(value, (None, 4), "boxes, (K, 4): x y x y in pixels")
    if (boxes[:, 2:] < boxes[:, :2]).any():
        raise ValueError("a box ends before it begins: boxes are x y x y, left, top, right, bottom")
    return boxes.tobytes()


def _decoded_boxes(data: bytes) -> npt.NDArray[np.float32]:
    if len(data) % 16:
        raise ValueError(f"{len(data)} bytes are no boxes")
    return np.frombuffer(data, "<f4").reshape(-1, 4).astype(np.float32, copy=False)


def _keypoints(value: Any) -> bytes:
    points = _numbers(value, (None, None, 3), "keypoints, (K, P, 3): x y visibility")
    return np.array(points.shape[:2], "<i8").tobytes() + points.tobytes()


def _decoded_keypoints(data: bytes) -> npt.NDArray[np.float32]:
    return array_of(data[:16] + np.array([3], "<i8").tobytes() + data[16:], 3, "<f4").astype(np.float32, copy=False)


def _segmentation(value: Any) -> bytes:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{short(value)} is no list of segmentations, of each object one")
    for number, one in enumerate(value):
        if problem := segmentation_problem(one):
            raise ValueError(f"segmentation {number}: {problem}")
    return _json(value)


def _decoded_segmentation(data: bytes) -> list[Any]:
    value = parsed_json(_decoded_text(data))
    if not isinstance(value, list):
        raise ValueError(f"{len(data)} bytes are no list of segmentations")
    return value


def _decoded_labels(data: bytes) -> npt.NDArray[np.int64]:
    if len(data) % 8:
        raise ValueError(f"{len(data)} bytes are no ids")
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False)


def short(value: Any) -> str:
    """Return a short form of a value for a message, even if lists are nested deeply."""
    text = _REPR.repr(value) if isinstance(value, (list, tuple, dict)) else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict, _REPR.maxstring, _REPR.maxother = 3, 30, 30, 30, 60, 60

ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "text": _text,
    "json": _json,
    "bytes": _bytes,
    "image": _bytes,
    "mask": _bytes,
    "boxes": _boxes,
    "keypoints": _keypoints,
    "segmentation": _segmentation,
}

DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    "labels": _decoded_labels,
    "text": _decoded_text,
    "json": _decoded_json,
    "bytes": lambda data: data,
    "image": lambda data: data,
    "mask": lambda data: data,
    "boxes": _decoded_boxes,
    "keypoints": _decoded_keypoints,
    "segmentation": _decoded_segmentation,
}
