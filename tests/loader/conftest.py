"""Packs that the tests of loading share."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packer._conversion.convert import convert
from packer._conversion.pipeline import Recipe
from packer._formats import FORMATS
from packer._sources.imagefolder import imagefolder_source

Packs = Callable[..., Path]

# Where a server forks the workers of a DataLoader, it has imported once what each of them needs.
multiprocessing.set_forkserver_preload(["__main__", "torch", "packer", "torchvision"])


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    """Return a function that converts a tree, once a session for the same arguments."""
    made: dict[tuple[Any, ...], Path] = {}

    def pack(tree: Path, name: str, recipe: Recipe | None = None) -> Path:
        recipe = recipe or Recipe()
        key = tree, name, recipe
        if key not in made:
            made[key] = tmp_path_factory.mktemp("packs") / f"pack{FORMATS[name].suffixes[0]}"
            convert(imagefolder_source(tree), made[key], recipe=recipe)
        return made[key]

    return pack
