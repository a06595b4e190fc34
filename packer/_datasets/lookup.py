"""Conversions of single pixels, such as ToTensor and Normalize, by one look-up in a table with the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._images import native

_LEVELS = 256


class Lookup:
    """A table with the result of conversions for each level of each colour.

    Parameters
    ----------
    table : (3, 256) float32 array
        The result for each level of red, green and blue.
    kind : type
        The class of the result, torch.Tensor or one derived from it.
    conversions : sequence of callable
        The conversions that the table replaces, for its repr.
    planes : bool
        Whether the result is contiguous; otherwise it is laid out channels last. This is the layout that the
        conversions produce.

    Attributes
    ----------
    table : (3, 256) float32 array
    """

    dtype = "float32"
    """The type of the numbers in a batch, where they are written colour by colour; as those of `NumberFormat`."""
    planes = True

    def __init__(
        self,
        table: npt.NDArray[np.float32],
        kind: type[torch.Tensor],
        conversions: Sequence[Callable[[Any], Any]],
        *,
        planes: bool,
    ) -> None:
        self.table = table
        self._planes = planes
        self._kind = kind
        self._conversions = conversions

    def __eq__(self, other: object) -> bool:
        """Tell whether another Lookup converts images to the same results."""
        return isinstance(other, Lookup) and self._made == other._made

    def __hash__(self) -> int:
        return hash(self._made)

    @property
    def _made(self) -> tuple[object, ...]:
        return self.table.tobytes(), self._kind, self._planes

    def __repr__(self) -> str:
        return ", ".join(" ".join(repr(convert).split()) for convert in self._conversions)

    def __call__(self, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Return (height, width, 3) uint8 pixels as a (3, height, width) float32 tensor."""
        return self._shown(torch.from_numpy(native.look_up(pixels, self.table, planes=self._planes)))

    def write(self, pixels: npt.NDArray[np.uint8], out: torch.Tensor) -> None:
        """Write (N, height, width, 3) uint8 pixels as numbers into a contiguous (N, 3, height, width) tensor."""
        native.look_up(pixels, self.table, out=out.numpy())

    def images(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Return the images of a batch of numbers, each as an instance of `kind`."""
        return [self._shown(image) for image in numbers.unbind(0)]

    def _shown(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._kind is torch.Tensor else tensor.as_subclass(self._kind)


def lookup_of(conversions: Sequence[Callable[[Any], Any]], shown: Callable[[npt.NDArray[np.uint8]], Any]) -> Any:
    """Return a Lookup equivalent to some conversions, one after the other; None if no table is equivalent.

    Parameters
    ----------
    conversions : sequence of callable
        Each converts a number independently of its position and neighbours; see `packer.crops._fuse.pointwise`.
    shown : callable
        Converts pixels to the form that the first conversion expects.
    """
    levels = np.repeat(np.arange(_LEVELS, dtype=np.uint8)[None, :, None], 3, 2)
    try:
        image = shown(levels)
        for convert in conversions:
            image = convert(image)
    except Exception:  # which each image would raise as well, and then names itself
        return None
    if not isinstance(image, torch.Tensor) or image.dtype != torch.float32 or image.shape != (3, 1, _LEVELS):
        return None
    return Lookup(
        image.as_subclass(torch.Tensor)[:, 0].contiguous().numpy(),
        type(image),
        conversions,
        planes=image.stride(2) == 1,
    )
