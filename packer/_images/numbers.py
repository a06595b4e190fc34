"""Converts batches of pixels to a network's input: normalises, mixes images, and changes the dtype.

C does this without Python's lock. `NumberFormat` computes the number for each pixel level. `Lookup` instead reads the
number from a table, which holds the results of the user's own per-pixel transforms, such as ToTensor and Normalize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._images import native
from packer._images.extension import _native
from packer._images.native import LevelConversion

TYPES = ("float32", "float16", "bfloat16")
"""The dtypes of numbers, by torch's names."""

_LEVELS = 256


class Mixture(NamedTuple):
    """How each image of a batch, and its label, is mixed with the previous image.

    The first image is mixed with the last.

    Attributes
    ----------
    share : float
        The weight of the image itself in its label and, if there is no `box`, in each pixel. The other image has the
        remaining weight.
    box : (int, int, int, int), optional
        Top, left, bottom and right, in pixels, of the rectangle that is copied from the other image.
    num_classes : int, optional
        The length of the label vectors into which class ids are converted.
    """

    share: float
    box: tuple[int, int, int, int] | None = None
    num_classes: int | None = None


UNMIXED = Mixture(1.0, (0, 0, 0, 0))


class NumberFormat(NamedTuple):
    """How pixel levels of 0 to 255 become a network's input numbers.

    Attributes
    ----------
    normalize : (mean, std), optional
        `mean` and `std` are three float32 numbers each, as Python floats. Levels become ``(level * (1 / 255) - mean) /
        std``; without `normalize` they stay unchanged.
    dtype : one of TYPES
    planes : bool
        True if the numbers of each colour are contiguous in memory; False if the numbers of each pixel are.
    """

    normalize: tuple[tuple[float, ...], tuple[float, ...]] | None
    dtype: str
    planes: bool = False

    def for_c(self, share: float = 1.0) -> LevelConversion:
        """Return this conversion for C; `share` is as in `Mixture`."""
        mean, std = self.normalize or ((0.0,) * 3, (1.0,) * 3)
        scale = 1.0 if self.normalize is None else 1 / 255
        constants = np.array([scale, *mean, *std, share, 1.0 - share], np.float32)
        return LevelConversion(None, constants, TYPES.index(self.dtype), self.planes)

    def write(self, levels: torch.Tensor, out: torch.Tensor) -> None:
        """Convert the images of a batch to the network's input numbers; see `NumberWriter`."""
        NumberWriter(self, levels, out).write(slice(None))


class NumberWriter:
    """Converts the images of a batch to the network's input numbers, slice by slice, on any thread.

    Each step is rounded to float32, so float32 results equal those of torchvision's ``to_dtype``, ``normalize``,
    ``MixUp`` and ``CutMix``. Other dtypes are rounded once, from the float32 result.

    Parameters
    ----------
    numbers : NumberFormat
    levels : (N, 3, height, width) uint8 tensor
        In channels-last memory format.
    out : (N, 3, height, width) tensor
        The dtype and the memory format must be those that `numbers` specifies.
    mixture : Mixture, optional

    Raises
    ------
    ValueError
        If a tensor does not have these properties, or the box does not lie inside of the images.
    """

    def __init__(
        self, numbers: NumberFormat, levels: torch.Tensor, out: torch.Tensor, mixture: Mixture | None = None
    ) -> None:
        count, _, height, width = levels.shape
        layout = torch.contiguous_format if numbers.planes else torch.channels_last
        fitting = levels.dtype == torch.uint8 and levels.is_contiguous(memory_format=torch.channels_last)
        fitting = fitting and out.dtype == getattr(torch, numbers.dtype) and out.is_contiguous(memory_format=layout)
        if not fitting or out.shape != levels.shape or levels.shape[1] != 3:
            raise ValueError(
                f"{tuple(levels.shape)} {levels.dtype} cannot be written as {tuple(out.shape)} {out.dtype}"
            )
        share, box, _ = mixture or UNMIXED
        conversion = numbers.for_c(share)
        _, constants, type, planes = conversion.arguments()
        mixing = 0 if mixture is None else 1 if box is None else 2
        self._held = levels, out, conversion  # C gets only their addresses
        self._images = levels.data_ptr(), count
        rectangle = box or (0, 0, 0, 0)
        self._numbers = height, width, out.data_ptr(), type, planes, constants, mixing, *rectangle

    def write(self, some: slice) -> None:
        """Convert the images of a slice of the batch."""
        levels, count = self._images
        start, end, _ = some.indices(count)
        _native.write_numbers(levels, count, start, max(start, end), *self._numbers)


class Lookup:
    """A table that replaces per-pixel conversions: it has the conversions' result for each level of each colour.

    Parameters
    ----------
    table : (3, 256) float32 array
        The result for each level of red, green and blue.
    tensor_class : type
        The class of the result: torch.Tensor or a subclass.
    conversions : sequence of callable
        The conversions that the table replaces, for its repr.
    is_contiguous : bool
        Whether the conversions return a contiguous tensor for a single image; if not, they return channels last.

    Attributes
    ----------
    table : (3, 256) float32 array
    """

    # The numbers of a batch, as `NumberFormat` describes them.
    dtype = "float32"
    planes = True

    def __init__(
        self,
        table: npt.NDArray[np.float32],
        tensor_class: type[torch.Tensor],
        conversions: Sequence[Callable[[Any], Any]],
        *,
        is_contiguous: bool,
    ) -> None:
        self.table = table
        self._is_contiguous = is_contiguous
        self._tensor_class = tensor_class
        self._conversions = conversions

    def __eq__(self, other: object) -> bool:
        """Tell whether another Lookup converts images to the same results."""
        return isinstance(other, Lookup) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.table.tobytes(), self._tensor_class, self._is_contiguous

    def __repr__(self) -> str:
        return ", ".join(" ".join(repr(convert).split()) for convert in self._conversions)

    def __call__(self, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Convert (height, width, 3) uint8 pixels to a (3, height, width) float32 tensor."""
        return self._shown(torch.from_numpy(native.look_up(pixels, self.table, planes=self._is_contiguous)))

    def for_c(self) -> LevelConversion:
        """Return this conversion for C."""
        return LevelConversion(self.table)

    def write(self, levels: torch.Tensor, out: torch.Tensor) -> None:
        """Convert the images of a batch, (N, 3, height, width) uint8, to numbers in a contiguous tensor."""
        native.look_up(levels.permute(0, 2, 3, 1).numpy(), self.table, out=out.numpy())

    def images(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Return the images of a batch of numbers, each as an instance of `tensor_class`."""
        return [self._shown(image) for image in numbers.unbind(0)]

    def _shown(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._tensor_class is torch.Tensor else tensor.as_subclass(self._tensor_class)


Numbers = NumberFormat | Lookup
"""A conversion of levels to numbers: both have `dtype`, `planes`, `for_c` and `write`."""


def lookup_of(
    conversions: Sequence[Callable[[Any], Any]], to_input: Callable[[npt.NDArray[np.uint8]], Any]
) -> Lookup | None:
    """Return a Lookup that is equivalent to a chain of conversions; None if no table is equivalent.

    Parameters
    ----------
    conversions : sequence of callable
        Each converts a number independently of its position and neighbours; see `packer.crops._fuse.pointwise`.
    to_input : callable
        Converts pixels to the form that the first conversion expects.
    """
    levels = np.repeat(np.arange(_LEVELS, dtype=np.uint8)[None, :, None], 3, 2)
    try:
        image = to_input(levels)
        for convert in conversions:
            image = convert(image)
    except Exception:  # the conversion of an image will raise it again, with the image's name
        return None
    if not isinstance(image, torch.Tensor) or image.dtype != torch.float32 or image.shape != (3, 1, _LEVELS):
        return None
    return Lookup(
        image.as_subclass(torch.Tensor)[:, 0].contiguous().numpy(),
        type(image),
        conversions,
        is_contiguous=image.stride(2) == 1,
    )
