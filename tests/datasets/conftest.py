"""The packs that tests of crops, augmentations and views read."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer._conversion.recipe import Recipe
from tests.conftest import Packs

CODECS = {"lmdb": Recipe(), "hdf5": Recipe("raw"), "pth": Recipe("webp")}
"""C decodes the samples of the first pack, copies those of the second, and leaves those of the third to Python."""


@pytest.fixture(scope="session", params=CODECS)
def pack(request: pytest.FixtureRequest, numbered_tree: Path, packs: Packs) -> Path:
    return packs(numbered_tree, request.param, CODECS[request.param])
