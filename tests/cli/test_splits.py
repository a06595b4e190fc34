"""Splits: recognised, converted with one class map, and continued."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from packer._formats import open_pack
from packer.testing.photos import draw_imagefolder
from tests.command import packer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, split in enumerate(("train", "val")):
        draw_imagefolder(tmp_path / "root" / split, classes=3, per_class=2, size=(40, 48), seed=number)
    return tmp_path / "root"


@pytest.mark.parametrize("beside", ["devkit", ".cache", "out.pth"])
def test_splits_are_refused_whatever_stands_beside_them(root: Path, tmp_path: Path, beside: str) -> None:
    (root / beside).mkdir()
    result = packer("convert", root, tmp_path / "x.lmdb")
    assert result.returncode == 1
    assert "--split all" in result.stderr
    assert not list(tmp_path.glob("x.lmdb*"))
    assert packer("convert", root, tmp_path / "x.lmdb", "--split", "val").returncode == 0


def test_the_commands_for_splits_in_parts_make_them(root: Path, tmp_path: Path) -> None:
    result = packer("convert", root, tmp_path / "x.lmdb", "--parts", "2")
    assert "--split" not in result.stderr
    for line in result.stderr.splitlines()[2:]:
        assert packer(*shlex.split(line)[1:]).returncode == 0
    train, val = (open_pack(tmp_path / f"x-{split}.lmdb") for split in ("train", "val"))
    assert len(train.manifest.parts) == len(val.manifest.parts) == 2
    assert train.manifest.classes == val.manifest.classes


def test_any_directory_with_classes_may_be_named(root: Path, tmp_path: Path) -> None:
    (root / "train").rename(root / "fold-1")
    assert packer("convert", root, tmp_path / "x.lmdb", "--split", "fold-1").returncode == 0
    assert len(open_pack(tmp_path / "x-fold-1.lmdb")) == 6
    for name in ("fold-2", "class_00"):
        result = packer("convert", root, tmp_path / "x.lmdb", "--split", name)
        assert result.returncode == 2
        assert f"has no split {name} with class directories" in result.stderr


def test_what_stands_beside_splits_is_named_in_short(root: Path, tmp_path: Path) -> None:
    for number in range(8):
        (root / f"other-{number}").mkdir()
    result = packer("convert", root, tmp_path / "x.lmdb", "--split", "all")
    assert result.returncode == 0
    beside = "other-0, other-1, other-2, other-3, other-4, … (8)"
    assert f"left out, because they have no class directories: {beside}\n" in result.stderr


def test_a_command_that_ended_between_two_splits_goes_on(root: Path, tmp_path: Path) -> None:
    (root / "val" / "class_01" / "0000.jpg").write_bytes(b"broken")
    command = ["convert", root, tmp_path / "x.lmdb", "--split", "all"]
    first = packer(*command)
    assert first.returncode == 1
    assert "--on-error skip" in first.stderr
    before = (tmp_path / "x-train.lmdb").stat().st_mtime_ns
    second = packer(*command, "--on-error", "skip", "--report", tmp_path / "report.jsonl")
    assert second.returncode == 3
    assert "done already" in second.stdout
    assert (tmp_path / "x-train.lmdb").stat().st_mtime_ns == before
    assert len(open_pack(tmp_path / "x-val.lmdb")) == 5
    (line,) = (tmp_path / "report-val.jsonl").read_text().splitlines()
    assert json.loads(line)["name"] == "class_01/0000.jpg"
    third = packer(*command, "--on-error", "skip")
    assert (third.returncode, third.stdout.count("done already")) == (3, 2)
    changed = packer(*command, "--resize", "20")
    assert changed.returncode == 1
    assert "exists already" in changed.stderr


def test_classes_of_splits_that_differ_are_found_before_anything_is_written(root: Path, tmp_path: Path) -> None:
    (root / "val" / "class_02").rename(root / "val" / "fox")
    command = ["convert", root, tmp_path / "x.lmdb", "--split", "all"]
    result = packer(*command)
    assert (result.returncode, result.stdout) == (1, "")
    assert "val has 1 class that " in result.stderr
    assert "train lacks: fox. All splits use the class ids of" in result.stderr
    assert not list(tmp_path.glob("x*"))
    (root / "train" / "fox").mkdir()
    assert packer(*command, "--allow-empty").returncode == 0
    assert open_pack(tmp_path / "x-val.lmdb").manifest.classes[-1] == "fox"


def test_every_split_has_a_report_of_its_own(root: Path, tmp_path: Path) -> None:
    """That holds even if the name of one split ends with the name of the other."""
    for before, after in [("train", "fold-1"), ("val", "old-1")]:
        (root / before).rename(root / after)
        (root / after / "class_01" / f"{after}.jpg").write_bytes(b"broken")
    options = ["--split", "fold-1", "--split", "old-1", "--on-error", "skip", "--report", tmp_path / "r.jsonl"]
    assert packer("convert", root, tmp_path / "x.lmdb", *options).returncode == 3
    for name in ("fold-1", "old-1"):
        (line,) = (tmp_path / f"r-{name}.jsonl").read_text().splitlines()
        assert json.loads(line)["name"] == f"class_01/{name}.jpg"


def test_a_destination_inside_the_source_is_refused(root: Path) -> None:
    result = packer("convert", root / "train", root / "train" / "x.lmdb")
    assert result.returncode == 1
    assert "is inside" in result.stderr
    assert sorted(path.name for path in (root / "train").iterdir()) == ["class_00", "class_01", "class_02"]
