"""Arrays of images: how the pixels of one with a shape lie."""

from __future__ import annotations

from collections.abc import Sequence

from packer._containers.contract import PixelLayout

__all__ = ["WANTED", "matlab_layout", "may_be_one_image", "pixel_layout", "undecided"]

WANTED = "uint8, N x H x W x 3, N x 3 x H x W or N x H x W"

_CHANNELS = (1, 3, 4)


def pixel_layout(shape: Sequence[int], *, of_many: bool = False) -> tuple[PixelLayout, int, int] | None:
    """Return how the pixels of images lie in an array of bytes, and their height and width.

    None where they are no images, or nobody can tell: three axes of which one has 1, 3 or 4 elements may be a single
    image with channels. With `of_many` it is known that the first axis counts images.
    """
    if 0 in shape[1:]:
        return None
    if len(shape) == 3 and (of_many or not may_be_one_image(shape)):
        return PixelLayout("HWC", "L"), shape[1], shape[2]
    if len(shape) != 4 or (shape[1] in (1, 3) and shape[3] in (1, 3)):
        return None
    if shape[3] in (1, 3):
        return PixelLayout("HWC", "L" if shape[3] == 1 else "RGB"), shape[1], shape[2]
    if shape[1] in (1, 3):
        return PixelLayout("CHW", "L" if shape[1] == 1 else "RGB"), shape[2], shape[3]
    return None


def may_be_one_image(shape: Sequence[int]) -> bool:
    """Tell whether an array of three axes may be a single image with channels, first or last."""
    return len(shape) == 3 and (shape[0] in _CHANNELS or shape[2] in _CHANNELS)


def undecided(shape: Sequence[int]) -> str:
    """Return what to say of an array of three axes that may be a single image."""
    return f"which may be a single image with channels, or {shape[0]} grey images. Write grey images as N x H x W x 1"


def matlab_layout(shape: Sequence[int], *, of_many: bool = False) -> tuple[PixelLayout, int, int] | None:
    """Return what `pixel_layout` does of images that MATLAB wrote.

    MATLAB has them as H x W x C x N, one column after the other, and HDF5 shows the axes in reverse: N x C x W x H.
    """
    found = pixel_layout(shape, of_many=of_many)
    if found is None or (len(shape) == 4 and found[0].order != "CHW"):
        return None
    return PixelLayout("CWH", found[0].channels), shape[-1], shape[-2]
