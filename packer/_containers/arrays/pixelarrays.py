"""Arrays of images: how the pixels of one with a shape lie."""

from __future__ import annotations

from collections.abc import Sequence

from packer._containers.contract import PixelLayout

__all__ = ["WANTED", "pixel_layout"]

WANTED = "uint8, N x H x W x 3, N x 3 x H x W or N x H x W"

_CHANNELS = (1, 3, 4)


def pixel_layout(shape: Sequence[int]) -> tuple[PixelLayout, int, int] | None:
    """Return how the pixels of images lie in an array of bytes, and their height and width.

    None where they are no images, or nobody can tell: three axes of which one has 1, 3 or 4 elements may be a single
    image with channels, and so are none of N images.
    """
    if 0 in shape[1:]:
        return None
    if len(shape) == 3 and shape[0] not in _CHANNELS and shape[2] not in _CHANNELS:
        return PixelLayout("HWC", "L"), shape[1], shape[2]
    if len(shape) != 4 or (shape[1] in (1, 3) and shape[3] in (1, 3)):
        return None
    if shape[3] in (1, 3):
        return PixelLayout("HWC", "L" if shape[3] == 1 else "RGB"), shape[1], shape[2]
    if shape[1] in (1, 3):
        return PixelLayout("CHW", "L" if shape[1] == 1 else "RGB"), shape[2], shape[3]
    return None
