"""A tree, and the digest of its conversion in one piece, for tests of conversions by several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._packs.info import digest
from packer._sources.imagefolder import imagefolder_source
from tests.conftest import Trees


@pytest.fixture(scope="session")
def tree(trees: Trees) -> Path:
    return trees(classes=4, per_class=30, size=(96, 128))


@pytest.fixture(scope="module")
def whole(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("whole") / "whole.lmdb"
    convert(imagefolder_source(tree), path, recipe=Recipe("png"))
    return digest(path)
