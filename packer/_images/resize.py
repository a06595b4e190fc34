"""Resizing: which size an image gets, and how it gets there.

Anti-aliased, as Pillow and torchvision resize: torch's kernel for uint8 gives Pillow's result to within one
level, seldom two, at a fraction of the time. packer's own C gives what torch's gives, sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._images import native
from packer._images.geometry import INTERPOLATIONS, Box

if TYPE_CHECKING:
    import torch

__all__ = ["require_kernel", "resize", "resize_batch", "resize_numbers"]

_BY_TORCH = {"bilinear": "_upsample_bilinear2d_aa", "bicubic": "_upsample_bicubic2d_aa"}


def require_kernel() -> None:
    """Import what `resize` needs, which may take a second."""
    if not native.PREFERRED:
        import torch  # noqa: F401


def resize(pixels: npt.NDArray[np.uint8], height: int, width: int, interpolation: str) -> npt.NDArray[np.uint8]:
    """Resize (H, W, 3) uint8 pixels to (height, width, 3), by "bilinear" or "bicubic" interpolation."""
    full_height, full_width, _ = pixels.shape
    if (full_height, full_width) == (height, width):
        return pixels
    if native.PREFERRED:
        out = np.empty((height, width, 3), np.uint8)
        box = Box.of((0, 0, full_height, full_width), (height, width))
        if native.resize(pixels, box._replace(interpolation=INTERPOLATIONS.index(interpolation)), out.ctypes.data):
            return out
    import torch

    # In this order: with the batch dimension put in last, torch does not see that the memory is channels last, and the
    # slower kernel for planes does the work.
    images = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    return np.ascontiguousarray(resize_batch(images, (height, width), interpolation)[0].permute(1, 2, 0).numpy())


def resize_numbers(numbers: npt.NDArray[Any], height: int, width: int, interpolation: str) -> npt.NDArray[Any]:
    """Resize (H, W, C) numbers of any dtype to (height, width, C): as torchvision resizes tensors, and rounded.

    Integers other than uint8 are resized as floats. What bicubic interpolation makes less or more than their dtype can
    hold becomes the least or the most; torchvision lets it run over.
    """
    if numbers.shape[:2] == (height, width):
        return numbers
    if numbers.dtype == np.uint8 and numbers.shape[2] == 3:
        return resize(np.ascontiguousarray(numbers), height, width, interpolation)
    import torch

    floating = {1: np.float32, 2: np.float32, 4: np.float64, 8: np.float64}[numbers.dtype.itemsize]
    # torch's kernel for uint8 mistakes the layout of images that are one pixel wide or high.
    levels = numbers.dtype == np.uint8 and min(*numbers.shape[:2], height, width) > 1
    native_kernel = levels or numbers.dtype.kind == "f"
    planes = np.ascontiguousarray(numbers.transpose(2, 0, 1), None if native_kernel else floating)
    kernel = getattr(torch.ops.aten, _BY_TORCH[interpolation])
    resized: npt.NDArray[Any] = kernel(torch.from_numpy(planes)[None], (height, width), False)[0].numpy()
    if not native_kernel:
        limits = np.iinfo(numbers.dtype)
        resized = resized.round().clip(limits.min, limits.max).astype(numbers.dtype)
    return np.ascontiguousarray(resized.transpose(1, 2, 0))


def resize_batch(
    images: torch.Tensor,
    size: tuple[int, int],
    interpolation: str = "bilinear",
    scale: tuple[float, float] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Resize (N, 3, H, W) uint8 images by torch's kernel, anti-aliased, as torch.nn.functional.interpolate does.

    Parameters
    ----------
    images : (N, 3, H, W) uint8 tensor
        Channels last.
    size : (height, width)
    interpolation : {"bilinear", "bicubic"}
    scale : (float, float), optional
        Height and width of the whole result in units of the images', where `size` is a part of the result.
    out : (N, 3, height, width) uint8 tensor, optional
    """
    import torch

    kernel = getattr(torch.ops.aten, _BY_TORCH[interpolation])
    down, across = scale or (None, None)
    if out is None:
        return kernel(images, size, False, down, across)  # type: ignore[no-any-return]
    return kernel.out(images, size, False, down, across, out=out)  # type: ignore[no-any-return]
