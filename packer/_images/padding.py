"""Windows that reach outside of what they are cut out of, as numpy.pad and torchvision's functional.pad fill them.

The C of `packer._images.native` pads for itself. The code below is for images that are decoded in another way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._images.geometry import PADDINGS, Box, sources

__all__ = ["pad_into"]

Pixels = npt.NDArray[np.uint8]


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
    rows, columns = sources(box)
    unmirrored = out[:, ::-1] if box.flip else out
    unmirrored[:] = pixels[(rows - part.cut_top)[:, None], columns - part.cut_left]
    if PADDINGS[box.padding] == "constant":
        colour = [box.fill >> shift & 0xFF for shift in (0, 8, 16)]
        unmirrored[_outside(box.cut_top, box.out_height, box.scaled_height)] = colour
        unmirrored[:, _outside(box.cut_left, box.out_width, box.scaled_width)] = colour


def _outside(first: int, count: int, side: int) -> npt.NDArray[np.bool_]:
    """Tell which of `count` places from `first` on lie outside of `side` pixels."""
    places = np.arange(first, first + count)
    return (places < 0) | (places >= side)
