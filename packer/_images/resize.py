"""Resizing: which size an image gets, and how it gets there.

Anti-aliased, as Pillow and torchvision resize: torch's kernel for uint8 gives Pillow's result to within one
level, seldom two, at a fraction of the time. packer's own C gives what torch's gives of bilinear interpolation, sooner.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._images import native
from packer._images.geometry import Box

__all__ = ["require_kernel", "resize"]

_BY_TORCH = {"bilinear": "_upsample_bilinear2d_aa", "bicubic": "_upsample_bicubic2d_aa"}


def require_kernel(interpolation: str) -> None:
    """Import what `resize` needs, which may take a second."""
    if interpolation != "bilinear" or not native.PREFERRED:
        import torch  # noqa: F401


def resize(pixels: npt.NDArray[np.uint8], height: int, width: int, interpolation: str) -> npt.NDArray[np.uint8]:
    """Resize (H, W, 3) uint8 pixels to (height, width, 3), by "bilinear" or "bicubic" interpolation."""
    full_height, full_width, _ = pixels.shape
    if (full_height, full_width) == (height, width):
        return pixels
    if interpolation == "bilinear" and native.PREFERRED:
        out = np.empty((height, width, 3), np.uint8)
        box = Box((0, 0, full_height, full_width), (height, width))
        if native.resize(pixels, box, (height, width), out.ctypes.data):
            return out
    return _resize_by_torch(pixels, height, width, interpolation)


def _resize_by_torch(
    pixels: npt.NDArray[np.uint8], height: int, width: int, interpolation: str
) -> npt.NDArray[np.uint8]:
    import torch

    kernel = getattr(torch.ops.aten, _BY_TORCH[interpolation])
    # In this order: with the batch dimension put in last, torch does not see that the memory is channels last, and the
    # slower kernel for planes does the work.
    source = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    resized = kernel(source, (height, width), False, None, None)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())
