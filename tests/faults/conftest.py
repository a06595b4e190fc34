"""Trees and a process that dies on demand, for the tests of faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from packer.testing.photos import draw_imagefolder
from tests.faults.crashes import CrashServer
from tests.samples import solid


@pytest.fixture(scope="package")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tree: samples below and above the size where LMDB gives them pages of their own, and a bad file."""
    root = tmp_path_factory.mktemp("tree")
    draw_imagefolder(root, classes=3, per_class=4, size=(32, 40))
    for number in range(14):
        solid(root / "class_01" / f"small{number:02d}.png", (number, 0, 0), size=(33 + number % 5, 40))
    solid(root / "class_02" / "bad.png").write_text("no image")
    return root


@pytest.fixture(scope="package")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of 1,200 links to a few images."""
    root = tmp_path_factory.mktemp("many")
    draw_imagefolder(root / "few", classes=1, per_class=8, size=(60, 64))
    few = sorted((root / "few" / "class_00").iterdir())
    for label in range(4):
        (root / "tree" / f"{label}").mkdir(parents=True)
        for number in range(300):
            os.link(few[(label + number) % 8], root / "tree" / f"{label}" / f"{number:04d}.jpg")
    return root / "tree"


@pytest.fixture(scope="package")
def crash_server() -> Iterator[CrashServer]:
    if not hasattr(os, "fork"):
        pytest.skip("needs a system that forks")
    server = CrashServer(checkpoint_samples=5)
    yield server
    server.close()
