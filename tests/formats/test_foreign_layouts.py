"""Commands and datasets on packs in the layouts of other tools."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer._conversion.convert import convert
from packer._formats import FORMATS, open_pack
from packer._packs.export import export
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer.errors import CorruptPackError, DestinationError, OptionError
from packer.testing.conformance import flip
from tests.conftest import Trees
from tests.faults.crashes import with_fields
from tests.samples import content

LAYOUTS = {row.name: row.suffixes[0] for row in FORMATS.values() if not row.parts}


_SUFFIXES = (".tar", ".tfrecord", ".rec", ".mds", ".mdb", ".parquet")


def shards_of(path: Path) -> list[Path]:
    """Return the files of a pack that contain samples."""
    files = [file for file in path.iterdir() if file.suffix in _SUFFIXES]
    return sorted(files) or sorted((path / "data").glob("[0-9]*"))


layouts = pytest.mark.parametrize("format", LAYOUTS)


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=3, per_class=4, size=(40, 50))


@pytest.fixture(scope="module")
def source(tree: Path) -> Source:
    return with_fields(imagefolder_source(tree))


@layouts
def test_a_pack_is_converted_there_and_back_without_loss(source: Source, tmp_path: Path, format: str) -> None:
    lmdb, there, back = tmp_path / "a.lmdb", tmp_path / f"b{LAYOUTS[format]}", tmp_path / "c.lmdb"
    convert(source, lmdb)
    packer.convert(lmdb, there)
    packer.convert(there, back)
    assert content(back) == content(lmdb)
    assert digest(there) == digest(lmdb)
    again = tmp_path / f"d{LAYOUTS[format]}"
    convert(source, again)
    assert {name: data for name, data in content(again).items() if "manifest" not in name} == {
        name: data for name, data in content(there).items() if "manifest" not in name
    }
    assert verify(there) == verify(again) == []


@layouts
def test_export_and_merge(tree: Path, tmp_path: Path, format: str) -> None:
    one, two, merged = (tmp_path / f"{name}{LAYOUTS[format]}" for name in ("one", "two", "merged"))
    for path in (one, two):
        convert(imagefolder_source(tree), path)
    assert content(one) == content(two)
    export(one, tmp_path / "files")
    assert content(tmp_path / "files") == content(tree)
    packer.merge([one, two], merged, prefixes=["a", "b"])
    with open_pack(merged) as reader:
        assert len(reader) == 24
        assert verify(merged) == []


@layouts
def test_a_dataset_and_a_staged_copy(tree: Path, tmp_path: Path, format: str) -> None:
    path, plain = tmp_path / f"pack{LAYOUTS[format]}", tmp_path / "pack.lmdb"
    convert(imagefolder_source(tree), path)
    convert(imagefolder_source(tree), plain)
    copy = packer.stage(path, tmp_path / "disk")
    assert content(Path(copy)) == content(path)
    with packer.open_dataset(copy, output="numpy") as one, packer.open_dataset(plain, output="numpy") as other:
        assert one.classes == other.classes
        for (pixels, label), (expected, target) in zip(one, other, strict=True):
            assert label == target
            assert np.array_equal(pixels, expected)


@layouts
def test_what_these_packs_refuse(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{LAYOUTS[format]}"
    with pytest.raises(OptionError, match=f"which other tools cannot read as {LAYOUTS[format]}. Leave out parts="):
        packer.convert(tree, path, parts=2)
    packer.convert(tree, path)
    with pytest.raises(DestinationError, match=r"in the layout of another tool cannot .* open_dataset\(\[a, b\]\)"):
        packer.append(path, tree)


@pytest.mark.parametrize("format", ["wds", "tfrecord", "mds", "n5", "parquet"])
def test_the_size_of_shards(tree: Path, tmp_path: Path, format: str) -> None:
    path, whole = tmp_path / f"pack{LAYOUTS[format]}", tmp_path / f"whole{LAYOUTS[format]}"
    packer.convert(tree, path, shard_size=20_000)
    packer.convert(tree, whole)
    shards = shards_of(path)
    assert len(shards) > 1
    assert max(file.stat().st_size for file in shards) <= 20_000 + 10_240
    assert len(shards_of(whole)) == 1
    assert digest(path) == digest(whole)


@pytest.mark.parametrize("format", ["rec", "caffe"])
def test_a_pack_of_one_file_has_no_shards(tree: Path, tmp_path: Path, format: str) -> None:
    with pytest.raises(
        OptionError, match=r"applies only to formats with several files: \.pth, \.wds, \.tfrecord, \.mds"
    ):
        packer.convert(tree, tmp_path / f"pack{LAYOUTS[format]}", shard_size=20_000)


@layouts
def test_a_shard_that_was_cut_is_named_and_the_rest_reads(source: Source, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{LAYOUTS[format]}"
    options: dict[str, Any] = {"shard_size": 20_000} if FORMATS[format].shards else {}
    convert(source, path, options=options)
    with open_pack(path) as reader:
        expected = [bytes(reader.read(index)) for index in range(len(reader))]
    shard = shards_of(path)[-1]
    whole = shard.read_bytes()
    cut = [data in whole for data in expected]
    assert any(cut)
    assert all(cut) != bool(options)
    os.truncate(shard, len(whole) - 1)
    found = [str(damage) for damage in verify(path)]
    assert any(shard.name in damage and "when it was written" in damage for damage in found)
    with open_pack(path) as reader:
        for index, data in enumerate(expected):
            with pytest.raises(CorruptPackError) if cut[index] else contextlib.nullcontext():
                assert bytes(reader.read(index)) == data


@layouts
def test_a_pack_replaces_another_and_is_replaced(tree: Path, tmp_path: Path, format: str) -> None:
    path, other = (tmp_path / f"{name}{LAYOUTS[format]}" for name in ("pack", "other"))
    few, all_of_it = imagefolder_source(tree).limited(3), imagefolder_source(tree)
    convert(few, path)
    for source in (all_of_it, few):
        convert(source, path, overwrite=True)
        convert(source, other, overwrite=other.exists())
        assert content(path) == content(other)
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, other.name])


@layouts
def test_a_damaged_sample_is_repaired(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{LAYOUTS[format]}"
    convert(imagefolder_source(tree), path)
    expected = content(path)
    with open_pack(path) as reader:
        image = bytes(reader.read(5))
    flip(path, image, 100)
    assert [damage.index for damage in verify(path)] == [5]
    assert packer.repair(path, tree).left == []
    assert content(path) == expected
