"""The forms in which a person gets the values of fields: tensors, torchvision's tv_tensors, arrays, PIL images."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._fields import Field
from packer._loading.parts import Parts

__all__ = ["as_tensor", "in_form", "item_of", "target_in_form", "tensor_dtype", "wrapped_image"]


def in_form(output: str, pixels: npt.NDArray[Any]) -> Any:
    """Return (height, width, channels) pixels in the form that a dataset's `output` says."""
    if output == "tensor":
        return as_tensor(pixels).permute(2, 0, 1)
    if output == "numpy":
        return pixels
    if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
        raise ValueError("Pillow has no images of 16 bits in colour: say output='tensor' or 'numpy'")
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor on the same memory; of uint16 where torch lacks that dtype, a copy as int32."""
    if not array.flags.writeable:
        array = array.copy()  # torch warns of others
    if array.dtype == np.uint8:  # of nearly every image, and the lines below cost more than the tensor itself
        return torch.from_numpy(array)
    return torch.from_numpy(array.astype(tensor_dtype(array.dtype.name), copy=False))


def tensor_dtype(dtype: str) -> str:
    """Return the dtype of tensors that hold numbers of a dtype of NumPy."""
    return dtype if hasattr(torch, dtype) else "int32"


def item_of(parts: Parts, values: Mapping[str, Any], output: str, size: tuple[int, int]) -> dict[str, Any]:
    """Return an item: values of fields in their forms, and the rest as it is, in the order of the item's keys.

    Parameters
    ----------
    parts : Parts
    values : mapping
        All values of a sample: those of `FieldDecoder.values`, and the sample's own.
    output : one of OUTPUTS
    size : (height, width)
        The size of the image in the item, in which boxes and keypoints lie.
    """
    item: dict[str, Any] = {}
    for key in parts.keys:
        field = parts.fields.get(key)
        value = values[key]
        if field is not None and value is not None:
            value = _shown(field, value, output, size, parts.wrapped)
        elif key not in parts.names and output != "numpy" and value is not None:
            value = as_tensor(value)  # of the visibilities of keypoints
        elif key == "image" and parts.wrapped and output == "tensor" and isinstance(value, torch.Tensor):
            value = wrapped_image(value)
        item[key] = value
    return item


def wrapped_image(image: torch.Tensor) -> torch.Tensor:
    """Return an image's tensor as a tv_tensor."""
    wrapped: torch.Tensor = _tv().Image(image)
    return wrapped


def target_in_form(target: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return a detector's target with its boxes and masks as tv_tensors; `size` is that of its image."""
    wrapped = {**target, "boxes": _tv().BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)}
    return {**wrapped, "masks": _tv().Mask(target["masks"])} if "masks" in target else wrapped


def _shown(field: Field, value: Any, output: str, size: tuple[int, int], wrapped: bool) -> Any:
    if field.kind == "image":
        if output == "bytes":
            return value
        shown = in_form(output, value)
        return _tv().Image(shown) if wrapped and output == "tensor" else shown
    if output == "numpy" or not isinstance(value, np.ndarray):
        return value
    tensor = as_tensor(value[None] if field.kind == "mask" else value)
    return _wrapped(field, tensor, size) if wrapped else tensor


def _wrapped(field: Field, tensor: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    made: torch.Tensor = tensor
    if field.kind == "mask":
        made = _tv().Mask(tensor)
    elif field.kind == "boxes":
        made = _tv().BoundingBoxes(tensor, format="XYXY", canvas_size=size)
    elif field.kind == "keypoints" and hasattr(_tv(), "KeyPoints"):  # not so before torchvision 0.23
        made = _tv().KeyPoints(tensor, canvas_size=size)
    return made


def _tv() -> Any:
    return importlib.import_module("torchvision.tv_tensors")
