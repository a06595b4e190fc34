"""A sample of a source: some of its images, from all of its classes, and in its order."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import packer
from packer import open_pack
from packer._sources.base import spread_indices
from tests.command import packer_many
from tests.samples import SUFFIXES, noise


@given(st.integers(1, 10**9), st.integers(1, 500))
def test_what_is_chosen_is_evenly_spread(length: int, count: int) -> None:
    count = min(count, length)
    chosen = spread_indices(count, length)
    assert 0 <= chosen[0] < length
    assert chosen[-1] < length
    gaps = {*np.diff(chosen).tolist(), int(chosen[0] + length - chosen[-1])}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert 0 not in gaps


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five classes, of 20, 10, 10, 30 and 30 images."""
    root = tmp_path_factory.mktemp("sample") / "tree"
    for label, count in enumerate((20, 10, 10, 30, 30)):
        for number in range(count):
            noise(root / f"class_{label}" / f"{number:02d}.png", number, size=(8, 8))
    return root


def test_every_kind_of_source_gives_the_same_sample(tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "whole.h5")
    with open_pack(tmp_path / "whole.h5") as reader:
        data = {name: bytes(reader.read(index)) for index, name in enumerate(reader.names)}
    digests = set()
    for src, (format, suffix) in itertools.product((tree, tmp_path / "whole.h5"), SUFFIXES.items()):
        path = tmp_path / f"{src.stem}-{format}{suffix}"
        packer.convert(src, path, sample=10)
        packer.convert(src, tmp_path / f"{src.stem}-{format}-parts{suffix}", sample=10, parts=3)
        digests |= {packer.digest(path), packer.digest(tmp_path / f"{src.stem}-{format}-parts{suffix}")}
        with open_pack(path) as reader:
            assert reader.table.label.tolist() == [0, 0, 1, 2, 3, 3, 3, 4, 4, 4]
            assert list(reader.names) == sorted(reader.names)
            assert all(bytes(reader.read(index)) == data[name] for index, name in enumerate(reader.names))
            assert len(reader.manifest.classes) == 5
    assert len(digests) == 1
    assert packer.verify(tmp_path / "whole-lmdb.lmdb") == []
    assert packer.convert(tree, tmp_path / "all.h5", sample=1000).manifest.count == 100


def test_a_sample_of_a_listing(tree: Path, tmp_path: Path) -> None:
    commands = [
        ["scan", tree, tmp_path / "all.scan"],
        ["convert", tmp_path / "all.scan", tmp_path / "a.lmdb", "--sample", 10],
        ["convert", tmp_path / "all.scan", tmp_path / "parts.lmdb", "--sample", 10, "--parts", 2],
        ["scan", tree, tmp_path / "some.scan", "--sample", 10],
        ["convert", tmp_path / "some.scan", tmp_path / "b.lmdb"],
        ["convert", tree, tmp_path / "c.lmdb", "--sample", 10],
    ]
    assert {result.returncode for result in packer_many(commands)} == {0}
    assert len({packer.digest(tmp_path / f"{name}.lmdb") for name in ("a", "b", "c", "parts")}) == 1
