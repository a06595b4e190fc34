"""Operations on a batch in place: which images get which of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from packer._images.operations import KINDS, Operations
from packer._images.tensors import levels, neighbours, places

__all__ = ["operate"]

_OPERATE: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "brightness": levels.brighten,
    "contrast": levels.contrast,
    "saturation": levels.saturate,
    "hue": levels.turn_hue,
    "grayscale": levels.make_grey,
    "blur": neighbours.blur,
    "solarize": levels.solarize,
    "posterize": levels.posterize,
    "equalize": levels.equalize,
    "autocontrast": levels.stretch,
    "invert": levels.invert,
    "sharpness": neighbours.sharpen,
    "affine": places.move,
    "erase": places.erase,
}


def operate(images: torch.Tensor, operations: Operations) -> None:
    """Change the images of a batch in place, each by its operations, one after the other.

    Images that get the same operation at the same step are changed together. Each operation gives what the function of
    torchvision's ``transforms.v2.functional`` gives of a uint8 tensor, or levels that differ by one.

    Parameters
    ----------
    images : (N, 3, height, width) uint8 tensor
        RGB, on any device.
    operations : (N, M) array of OPERATION
        See `packer._images.operations.OPERATION`.

    Raises
    ------
    ValueError
        If there are operations for another number of images.
    """
    if operations.ndim != 2 or len(operations) != len(images):
        raise ValueError(f"{len(images)} images need operations for each, not {operations.shape}")
    with torch.autocast(images.device.type, enabled=False):  # the training may be inside of one
        for step in operations.T:
            for kind in np.unique(step["kind"]):
                if KINDS[kind] != "nothing":
                    chosen = np.flatnonzero(step["kind"] == kind)
                    which = torch.from_numpy(chosen).to(images.device)
                    images[which] = _OPERATE[KINDS[kind]](images[which], step[chosen])
