"""Files of several splits in one directory are not read as one set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from packer._containers import find_container
from packer._containers.discovery import one_set, splits_of
from packer.errors import SourceError
from tests.command import packer_many
from tests.containers.everywhere import GOLDEN, source_of

FILES = [
    "bagz/images.bag",
    "datadings/train.msgpack",
    "mds-jpeg/shard.00000.mds",
    "datasets/train-00000-of-00001.parquet",
]


def paths(*names: str) -> list[Path]:
    return [Path("/data/shards") / name for name in names]


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["train-000.tar", "train-001.tar", "val-000.tar"], ["train-*.tar", "val-000.tar"]),
        (["in1k-train-00000-of-00002.tar", "in1k-train-00001-of-00002.tar", "in1k-validation-00000-of-00002.tar"],
         ["in1k-train-*-of-00002.tar", "in1k-validation-00000-of-00002.tar"]),
        (["ds-train.tfrecord-00000-of-00002", "ds-train.tfrecord-00001-of-00002", "ds-test.tfrecord-00000-of-00001"],
         ["ds-train.tfrecord-*-of-00002", "ds-test.tfrecord-00000-of-00001"]),
        (["train/0.tar", "train/1.tar", "val/0.tar"], ["train/*.tar", "val/0.tar"]),
        (["train_a.tar", "train_b.tar", "extra.tar"], ["train_*", "extra.tar"]),
    ],
)  # fmt: skip
def test_names_of_splits_are_told_apart_by_patterns(names: list[str], patterns: list[str]) -> None:
    assert splits_of(paths(*names)) == patterns
    with pytest.raises(SourceError, match=r"several splits.*Name one, such as '/data/shards/") as error:
        one_set(paths(*names))
    assert patterns[0] in str(error.value)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["train.tar"],
        ["train-000.tar", "train-001.tar"],
        ["n01440764.tar", "n01443537.tar"],
        ["cats.tar", "dogs.tar"],
        ["00000.tar", "00001.tar"],
        ["protest-0.tar", "contrail-0.tar"],
    ],
)
def test_one_set_of_files_is_one(names: list[str]) -> None:
    one_set(paths(*names))


@pytest.mark.parametrize("file", FILES)
def test_a_directory_of_several_splits_is_refused_whatever_files_they_are(file: str, tmp_path: Path) -> None:
    suffix = Path(file).suffix
    shutil.copy(GOLDEN / file, tmp_path / f"train-0{suffix}")
    shutil.copy(GOLDEN / file, tmp_path / f"train-1{suffix}")
    found = find_container([tmp_path])
    assert found is not None
    assert [path.name for path in found[1]] == [f"train-0{suffix}", f"train-1{suffix}"]
    shutil.copy(GOLDEN / file, tmp_path / f"val-0{suffix}")
    with pytest.raises(SourceError, match=r"several splits: train-\*\S+, val-0\S+\. Name one"):
        find_container([tmp_path])
    for pattern, notes in (("train-*", []), ("*-*", [f"files of several splits: train-*{suffix}, val-0{suffix}"])):
        source = source_of(tmp_path / pattern)
        assert [note for note in source.notes if "splits" in note] == notes


@pytest.mark.parametrize("file", FILES)
def test_a_directory_of_images_is_none_for_a_file_that_lies_there_too(file: str, tmp_path: Path) -> None:
    shutil.copy(GOLDEN / file, tmp_path / f"features{Path(file).suffix}")
    assert find_container([tmp_path]) is not None
    shutil.copy(GOLDEN / "images" / "a.jpg", tmp_path / "a.JPG")
    assert find_container([tmp_path]) is None


def test_splits_of_files_are_named_where_directories_are_wanted(tmp_path: Path) -> None:
    for name in ("train-0.bag", "train-1.bag", "val-0.bag"):
        shutil.copy(GOLDEN / FILES[0], tmp_path / name)
    all_files, directory = packer_many(
        [["convert", src, tmp_path / "x.lmdb", "--split", "all"] for src in (tmp_path / "*.bag", tmp_path)]
    )
    assert (all_files.returncode, directory.returncode) == (2, 2)
    assert "names files: convert the files of each split to a pack of its own" in all_files.stderr
    assert f"name them: '{tmp_path}/train-*.bag', '{tmp_path}/val-0.bag'" in directory.stderr
