"""Conversion of batches of pixels to a network's input, in C, without Python's lock: normalising, mixing, types."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from packer._images.extension import _native
from packer._images.native import CodedNumbers

TYPES = ("float32", "float16", "bfloat16")
"""The dtypes of numbers, by torch's names."""


class Mixture(NamedTuple):
    """The mixing of each image of a batch and its label with the previous image, and of the first with the last.

    Attributes
    ----------
    share : float
        The share that remains of the label and, unless there is a box, of each pixel.
    box : (int, int, int, int), optional
        Top, left, bottom and right, in pixels, of the rectangle that is copied from the other image.
    num_classes : int, optional
        The length of the label vectors that are made from class ids.
    """

    share: float
    box: tuple[int, int, int, int] | None = None
    num_classes: int | None = None


UNMIXED = Mixture(1.0, (0, 0, 0, 0))


class NumberFormat(NamedTuple):
    """The conversion of levels of 0 to 255 to numbers.

    Attributes
    ----------
    normalize : (mean, std), optional
        Three float32 numbers each, as Python floats: levels become ``(level * (1 / 255) - mean) / std``. Without it,
        levels are not changed.
    dtype : one of TYPES
    planes : bool
        Whether the numbers of each colour are contiguous in memory, instead of the numbers of each pixel.
    """

    normalize: tuple[tuple[float, ...], tuple[float, ...]] | None
    dtype: str
    planes: bool = False

    def coded(self, share: float = 1.0) -> CodedNumbers:
        """Return this format for C; `share` is the share of a mixed image."""
        mean, std = self.normalize or ((0.0,) * 3, (1.0,) * 3)
        scale = 1.0 if self.normalize is None else 1 / 255
        constants = np.array([scale, *mean, *std, share, 1.0 - share], np.float32)
        return CodedNumbers(constants, TYPES.index(self.dtype), self.planes)


def write(
    numbers: NumberFormat, pixels: torch.Tensor, out: torch.Tensor, some: slice, mixture: Mixture | None = None
) -> None:
    """Write images of a batch as numbers at once; `writer` returns a function that writes a slice of them."""
    writer(numbers, pixels, out, mixture)(some)


def writer(
    numbers: NumberFormat, pixels: torch.Tensor, out: torch.Tensor, mixture: Mixture | None = None
) -> Callable[[slice], None]:
    """Return a function that writes the images of a slice of a batch as numbers, on any thread.

    Each step is rounded to float32, as in torchvision's ``to_dtype``, ``normalize``, ``MixUp`` and ``CutMix``, so the
    float32 numbers are equal to theirs. Numbers of other types are the float32 numbers, rounded once.

    Parameters
    ----------
    numbers : NumberFormat
    pixels : (N, 3, height, width) uint8 tensor
        In channels-last memory format.
    out : (N, 3, height, width) tensor
        Its dtype and its memory format are those in `numbers`.
    mixture : Mixture, optional

    Raises
    ------
    ValueError
        If a tensor does not have these properties, or the box does not lie inside of the images.
    """
    count, _, height, width = pixels.shape
    layout = torch.contiguous_format if numbers.planes else torch.channels_last
    fitting = pixels.dtype == torch.uint8 and pixels.is_contiguous(memory_format=torch.channels_last)
    fitting = fitting and out.dtype == getattr(torch, numbers.dtype) and out.is_contiguous(memory_format=layout)
    if not fitting or out.shape != pixels.shape or pixels.shape[1] != 3:
        raise ValueError(f"{tuple(pixels.shape)} {pixels.dtype} cannot be written as {tuple(out.shape)} {out.dtype}")
    share, box, _ = mixture or UNMIXED
    constants, type, planes = numbers.coded(share)
    kind = 0 if mixture is None else 1 if box is None else 2
    address, rectangle = constants.ctypes.data, box or (0, 0, 0, 0)
    images = height, width, out.data_ptr(), type, planes, address, kind, *rectangle
    levels = pixels.data_ptr()

    def write_some(some: slice, _held: object = (pixels, out, constants)) -> None:
        begin, end, _ = some.indices(count)
        _native.write_numbers(levels, count, begin, max(begin, end), *images)

    return write_some
