"""One operation on an image, by packer's C and by torchvision's v2 functional."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._images import native
from packer._images.operations import KINDS, NO_FILL, OPERATION

Pixels = npt.NDArray[np.uint8]


def operation(kind: str, **fields: Any) -> npt.NDArray[Any]:
    made = np.zeros(1, OPERATION)
    made["kind"], made["fill"] = KINDS.index(kind), NO_FILL
    for name, value in fields.items():
        made[name] = value
    return made


def operated(pixels: Pixels, *operations: npt.NDArray[Any]) -> Pixels:
    changed = pixels.copy()
    native.augment(changed, np.concatenate(operations))
    return changed


def tensor(pixels: Pixels) -> torch.Tensor:
    """Return a (3, height, width) tensor, in the memory layout of a batch."""
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def pixels_of(image: torch.Tensor) -> Pixels:
    pixels: Pixels = image.permute(1, 2, 0).contiguous().numpy()
    return pixels


def differing(one: Pixels, other: Pixels) -> int:
    """Return the largest difference of two images, in levels."""
    return int(np.abs(one.astype(np.int16) - other).max(initial=0))
