"""The packs that tests of crops, augmentations and views read."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from packer._conversion.recipe import Recipe
from tests.conftest import Packs

# Where a server forks the workers of a DataLoader, it has imported once what each of them needs.
multiprocessing.set_forkserver_preload(["__main__", "torch", "packer", "torchvision"])

CODECS = {"lmdb": Recipe(), "hdf5": Recipe("raw"), "pth": Recipe("webp")}
"""Samples that C decodes, that it copies, and that it leaves to Python."""


@pytest.fixture(scope="session", params=CODECS)
def pack(request: pytest.FixtureRequest, numbered_tree: Path, packs: Packs) -> Path:
    return packs(numbered_tree, request.param, CODECS[request.param])
