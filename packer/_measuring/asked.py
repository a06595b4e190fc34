"""What is to be measured: packs and trees by their names, and the ways of reading each."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packer._formats import open_pack
from packer._manifest import TILED
from packer._sources import class_directories, imagefolder_source
from packer._sources.walking import ImageRule, Walk
from packer._storage.remote.urls import is_url, shown
from packer._storage.remote.urls import name as last_part
from packer.errors import NotAPackError, OptionError, PackNotFoundError, SourceError, printable

__all__ = ["RECIPES", "Way", "named", "ways"]

RECIPES = ("trivial", "rand", "three", "dino")
"""The recipes that have a name: see `packer._measuring.recipes`."""


class Way(NamedTuple):
    """A way of reading what lies at a path.

    Attributes
    ----------
    name : str
        What is shown.
    way : str
        What it is, whatever is read.
    path : str
    side : str
        Which process measures it, where it is not one of its own.
    step : tuple of int
        The last step that is done, where the way is a recipe.
    """

    name: str
    way: str
    path: str
    side: str = ""
    step: tuple[int, ...] = ()


def named(paths: list[str]) -> dict[str, str]:
    """Return the paths by names that tell them apart.

    Raises
    ------
    OptionError, PackNotFoundError
        If there are none, one is given twice, or there is nothing at one.
    """
    if not paths:
        raise OptionError("say which pack or tree is to be measured")
    for path in paths:
        if not is_url(path) and not os.path.exists(path):
            index = f". What other tools made is measured by an index: packer index {shlex.quote(path)} OUT.index"
            raise PackNotFoundError(printable(f"{path}: there is nothing{index if glob.has_magic(path) else ''}"))
    bare = [last_part(path) if is_url(path) else Path(os.path.abspath(path)).name for path in paths]
    names = bare if len(set(bare)) == len(bare) else [shown(path) if is_url(path) else path for path in paths]
    if len(set(names)) < len(names):
        raise OptionError("a pack or tree is given twice")
    return {printable(name): path for name, path in zip(names, paths, strict=True)}


def ways(places: dict[str, str], recipe: str | None) -> Iterator[Way]:
    """Yield the ways of reading what lies at some paths, which have names."""
    if recipe is not None and (url := next(filter(is_url, places.values()), None)):
        raise OptionError(f"{shown(url)}: a recipe is measured on a disk: `packer stage` brings the pack there")
    kinds = {path: _kind(path) for path in places.values()}  # what is wrong is said before torch is imported
    if recipe in RECIPES:
        yield from _by_steps(places, recipe)
        return
    from packer._measuring.fetching import BLOCKS, RANDOM
    from packer._measuring.loaders import WAYS_OF_PACKS, WAYS_OF_TREES
    from packer._measuring.recipe import read_recipe

    own = recipe is not None and read_recipe(recipe).loader is not None
    for name, path in places.items():
        kind = kinds[path]
        bare = f"{name}, {kind}" if kind else name
        if is_url(path):
            for way in (BLOCKS, RANDOM):
                yield Way(f"{bare}: {way}", way, path)
            for way in ("Loader", "limit"):
                yield Way(f"{bare}: {way}, from the cache", way, path)
            continue
        for way in WAYS_OF_TREES if kind is None else WAYS_OF_PACKS:
            yield Way(f"{bare}: {way}", way, path)
        if own:
            yield Way(f"{name}: {Path(str(recipe)).name}", "recipe", path)


def _by_steps(places: dict[str, str], recipe: str) -> Iterator[Way]:
    from packer._measuring.recipes import SIDES, steps_of

    for name, path in places.items():
        for side in SIDES:
            for number, step in enumerate(steps_of(recipe)):
                shown = step if number == 0 else f"+ {step}"
                yield Way(f"{name}: {side}: {shown}", side, path, f"{name}: {side}", (number,))


def _kind(path: str) -> str | None:
    """Return what kind of a pack there is, in a word or none; None where there is a directory of images.

    Raises
    ------
    SourceError
        If there are no images in it.
    """
    try:
        with contextlib.closing(open_pack(path)) as reader:
            if not len(reader):
                raise SourceError(f"{printable(path)}: no samples in it, and nothing to measure")
            return "tiled" if reader.manifest.findings.get(TILED) else ""
    except NotAPackError:
        if os.path.isdir(path):
            _require_images(Path(path))
            return None
        raise


def _require_images(tree: Path) -> None:
    """Raise SourceError where a tree has no images; of a large one no more is listed than the first class with some."""
    walk = Walk(tree, ImageRule())
    if not any(walk.images_below(folder) for folder in class_directories(tree)):
        imagefolder_source(tree)  # its error says what there is instead
