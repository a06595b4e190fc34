"""Windows that reach outside of what they are cut out of, as numpy.pad and torchvision's functional.pad fill them.

The C of `packer._images.native` pads for itself. The code below is for images that are decoded in another way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._images.geometry import PADDINGS, Box, Rectangle, sources

__all__ = ["pad_into"]

Pixels = npt.NDArray[np.uint8]

_BLOCK = 1 << 18  # pixels at a time: the places that pixels come from take far more memory than the pixels


def pad_into(pixels: Pixels, part: Box, box: Box, out: Pixels) -> None:
    """Make the window of a box of the pixels that it shows of the resized rectangle.

    Parameters
    ----------
    pixels : (part.out_height, part.out_width, 3) uint8 array
        Not mirrored.
    part : Box
        What `packer._images.geometry.shown` says of the box.
    out : (box.out_height, box.out_width, 3) uint8 array
        The window, mirrored where the box says so.
    """
    unmirrored = out[:, ::-1] if box.flip else out
    across = max(1, min(box.out_width, _BLOCK))
    down = _BLOCK // across
    for top in range(0, box.out_height, down):
        for left in range(0, box.out_width, across):
            _pad_block(pixels, part, box, unmirrored, (top, left, down, across))


def _pad_block(pixels: Pixels, part: Box, box: Box, window: Pixels, rectangle: Rectangle) -> None:
    """Make the pixels in a rectangle of the window, which may end beyond the window."""
    top, left, height, width = rectangle
    block = window[top : top + height, left : left + width]
    first, count = (box.cut_top + top, box.cut_left + left), block.shape
    rows, columns = sources(box._replace(cut_top=first[0], cut_left=first[1], out_height=count[0], out_width=count[1]))
    block[:] = pixels[(rows - part.cut_top)[:, None], columns - part.cut_left]
    if PADDINGS[box.padding] == "constant":
        colour = [box.fill >> shift & 0xFF for shift in (0, 8, 16)]
        block[_outside(first[0], count[0], box.scaled_height)] = colour
        block[:, _outside(first[1], count[1], box.scaled_width)] = colour


def _outside(first: int, count: int, side: int) -> npt.NDArray[np.bool_]:
    """Tell which of `count` places from `first` on lie outside of `side` pixels."""
    places = np.arange(first, first + count)
    return (places < 0) | (places >= side)
