"""A format is one file, one row in `FORMATS` and one test class: the contract requires no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer import open_dataset
from packer._conversion.convert import convert
from packer._formats import FORMATS, open_pack
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer.errors import DestinationError
from packer.testing.conformance import FormatConformance
from packer.testing.photos import draw_imagefolder

from .memory import ROW, MemoryReader


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS.own, ROW.name, ROW)


class TestMemory(FormatConformance):
    format = "memory"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    draw_imagefolder(root, classes=2, per_class=3, size=(40, 50))
    return root


def test_the_rest_of_packer_needs_no_more_of_a_format(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.memory"
    summary = convert(imagefolder_source(tree), path)
    assert summary.manifest.format == "memory"
    assert verify(path) == []
    with open_pack(path) as reader:
        assert isinstance(reader, MemoryReader)
        files = sorted(tree.rglob("*.jpg"))
        assert [tree / name for name in reader.table.sample_names()] == files
        assert [bytes(reader.read(index)) for index in range(len(reader))] == [file.read_bytes() for file in files]


def test_it_opens_as_a_dataset(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.memory"
    convert(imagefolder_source(tree), path)
    dataset = open_dataset(path, output="bytes")
    assert dataset[-1] == (sorted(tree.rglob("*.jpg"))[-1].read_bytes(), 1)


def test_a_conversion_does_not_replace_another_pack_unasked(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.memory"
    convert(imagefolder_source(tree), path)
    before = path.read_bytes()
    with pytest.raises(DestinationError, match="exists already"):
        convert(imagefolder_source(tree), path)
    assert path.read_bytes() == before
    convert(imagefolder_source(tree), path, overwrite=True)
    assert path.read_bytes() != before
    assert verify(path) == []
