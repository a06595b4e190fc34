"""`packer merge`, and `packer convert` of packs."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer._conversion import merge
from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._packs.info import digest
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many
from tests.samples import content


def test_packs_are_joined_and_converted(tmp_path: Path) -> None:
    for name, classes in [("a", 2), ("b", 3)]:
        draw_imagefolder(tmp_path / name, classes=classes, per_class=2, size=(16, 16))
        convert(imagefolder_source(tmp_path / name), tmp_path / f"{name}.lmdb")
    draw_imagefolder(tmp_path / "c", classes=1, per_class=3, size=(16, 16))
    (tmp_path / "c" / "class_00").rename(tmp_path / "c" / "zebra")
    convert(imagefolder_source(tmp_path / "c"), tmp_path / "c.h5")
    pack = {name: tmp_path / name for name in ("a.lmdb", "b.lmdb", "c.h5", "both.pth", "small.h5", "copy.lmdb")}
    results = packer_many(
        [
            ["merge", pack["a.lmdb"], pack["c.h5"], pack["both.pth"]],
            ["merge", "--classes", "union", pack["a.lmdb"], pack["c.h5"], pack["both.pth"]],
            ["merge", pack["a.lmdb"], pack["b.lmdb"], tmp_path / "clash.lmdb", "--classes", "union"],
            ["convert", pack["both.pth"], pack["copy.lmdb"]],
            ["convert", pack["copy.lmdb"], pack["small.h5"], "--resize", "8", "--limit", "5"],
            ["convert", pack["a.lmdb"], tmp_path / "a.h5", "--classes-from", pack["both.pth"]],
            ["merge", pack["a.lmdb"], tmp_path / "alone"],
            ["merge", tmp_path / "missing.lmdb", tmp_path / "out.lmdb"],
        ]
    )
    assert [result.returncode for result in results] == [1, 0, 1, 0, 0, 0, 2, 1]
    assert "--classes union" in results[0].stderr
    assert "7 samples, 3 classes" in results[1].stdout
    assert "two samples" in results[2].stderr
    assert digest(pack["copy.lmdb"]) == digest(pack["both.pth"])
    with open_pack(pack["small.h5"]) as reader:
        assert reader.manifest.codec == "jpeg"
        assert reader.table.height.tolist() == [8] * 5
    with open_pack(tmp_path / "a.h5") as reader:
        assert reader.manifest.classes == ["class_00", "class_01", "zebra"]
    assert not any("Traceback" in result.stderr for result in results)


def test_one_pack_does_not_replace_another_one(tmp_path: Path) -> None:
    """``merge train.lmdb val.lmdb`` lacks DST and is refused; merging one pack to a new name makes a copy."""
    for name in ("train", "val"):
        draw_imagefolder(tmp_path / name, classes=2, per_class=2, size=(16, 16))
        convert(imagefolder_source(tmp_path / name), tmp_path / f"{name}.lmdb")
    train, val, copy = tmp_path / "train.lmdb", tmp_path / "val.lmdb", tmp_path / "copy.h5"
    before = val.read_bytes()
    *refused, made = packer_many([["merge", train, val], ["merge", train, val, "--overwrite"], ["merge", train, copy]])
    for result in refused:
        assert result.returncode == 2
        assert f"packer merge {train} {val} DST" in result.stderr
    assert val.read_bytes() == before
    assert made.returncode == 0
    assert digest(copy) == digest(train)


@pytest.fixture
def alike(tmp_path: Path) -> list[Path]:
    """Return two packs whose samples have the same names."""
    for name in ("one", "other one"):
        draw_imagefolder(tmp_path / "trees" / name, classes=2, per_class=2, size=(16, 16))
        convert(imagefolder_source(tmp_path / "trees" / name), tmp_path / f"{name}.lmdb")
    return [tmp_path / "one.lmdb", tmp_path / "other one.lmdb"]


def test_names_that_coincide_get_prefixes(alike: list[Path], tmp_path: Path) -> None:
    both, again, prefixes = tmp_path / "both.h5", tmp_path / "again.h5", ["one", "other one"]
    refused, made = packer_many(
        [["merge", *alike, both], ["merge", *alike, both, *(word for name in prefixes for word in ("--prefix", name))]]
    )
    assert refused.returncode == 1
    assert "Pass a prefix for each pack, in their order: --prefix one --prefix 'other one'" in refused.stderr
    assert made.returncode == 0
    packer.merge(alike, again, prefixes=prefixes)
    assert digest(again) == digest(both)
    with open_pack(both) as reader, open_pack(alike[0]) as first, open_pack(alike[1]) as second:
        assert list(reader.names) == [f"one/{name}" for name in first.names] + [f"other one/{n}" for n in second.names]
        assert reader.table.label.tolist() == first.table.label.tolist() + second.table.label.tolist()
        assert np.array_equal(reader.table.size, np.concatenate([first.table.size, second.table.size]))
    assert packer.verify(both) == []
    packer.export(both, tmp_path / "files")  # each prefix becomes a directory, as in "trees"
    assert {f: d for f, d in content(tmp_path / "files").items() if f != "labels.csv"} == content(tmp_path / "trees")
    both.write_bytes(both.read_bytes().replace(b"JFIF", b"JFIX"))
    assert packer.repair(both, tmp_path / "trees").left == []
    assert digest(both) == digest(again)


@pytest.mark.parametrize("stems", [["train", "train"], ["train", "train", "train-2"]])
def test_the_names_that_are_proposed_for_packs_of_one_name_differ(
    alike: list[Path], tmp_path: Path, stems: list[str]
) -> None:
    packs = [tmp_path / str(number) / f"{stem}.lmdb" for number, stem in enumerate(stems)]
    for pack in packs:
        pack.parent.mkdir()
        shutil.copy(alike[0], pack)
    with pytest.raises(packer.SourceError, match="two samples of") as caught:
        merge.merge(packs, tmp_path / "both.lmdb")
    proposed = ast.literal_eval(str(caught.value).partition("prefixes=")[2])
    assert packer.merge(packs, tmp_path / "both.lmdb", prefixes=proposed).manifest.count == 4 * len(packs)


@pytest.mark.parametrize("prefixes", [["a", 3], [b"a", "b"], ["a", None], [1, 2, 3], 5, b"ab", "ab"])
def test_prefixes_that_are_no_texts(alike: list[Path], tmp_path: Path, prefixes: Any) -> None:
    with pytest.raises(TypeError, match=r"^prefixes must be (strings|a sequence of strings), "):
        packer.merge(alike, tmp_path / "both.lmdb", prefixes=prefixes)
    assert not (tmp_path / "both.lmdb").exists()


def test_an_empty_prefix_changes_no_name(alike: list[Path], tmp_path: Path) -> None:
    packer.merge(alike, tmp_path / "both.lmdb", prefixes=["", "more/of it"])
    with open_pack(tmp_path / "both.lmdb") as reader, open_pack(alike[0]) as first:
        assert list(reader.names) == [*first.names, *(f"more/of it/{name}" for name in first.names)]


@pytest.mark.parametrize("prefixes", [["a"], ["a", "b", "c"], ["a", "../b"], ["a", "/b"], ["a", "b/"], ["a", "a"]])
def test_prefixes_that_make_no_names(alike: list[Path], tmp_path: Path, prefixes: list[str]) -> None:
    with pytest.raises(packer.SourceError if prefixes == ["a", "a"] else packer.OptionError):
        packer.merge(alike, tmp_path / "both.lmdb", prefixes=prefixes)
    assert not (tmp_path / "both.lmdb").exists()
