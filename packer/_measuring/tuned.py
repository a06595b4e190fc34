"""The dataset that `packer tune` measures: a pack with the crop or the transform of a recipe."""

from __future__ import annotations

import os
from typing import Any

from packer._loading.dataset import open_dataset
from packer._measuring.recipe import read_recipe
from packer.crops import RandomResizedCrop
from packer.errors import OptionError, printable

__all__ = ["dataset_of"]


def dataset_of(pack: str | os.PathLike[str], recipe: str | os.PathLike[str] | None = None) -> Any:
    """Open a pack with what a recipe defines, or else with ``RandomResizedCrop(224, flip=0.5)``.

    Raises
    ------
    OptionError
        If the recipe cannot be read, or defines neither a crop nor a transform.
    PackError
        If the pack cannot be read.
    """
    if recipe is None:
        return open_dataset(pack, crop=RandomResizedCrop(224, flip=0.5))
    own = read_recipe(recipe)
    if own.crop is not None:
        return open_dataset(pack, own.transform, crop=own.crop)
    if own.transform is None:
        raise OptionError(f"{printable(recipe)} defines neither transform nor crop, with which the pack is to be read")
    return open_dataset(pack, own.transform, fuse=True)
