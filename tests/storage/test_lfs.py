"""Pointers of Git LFS in place of files: every command that opens one says so, by the file's name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._storage.safe_open import PointerError, open_regular
from packer.errors import PackerError
from packer.testing.photos import draw_imagefolder

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
SAID = r"is a Git LFS pointer.*`git lfs pull`"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    return tmp_path / "tree"


def convert(src: Path, **options: Any) -> None:
    packer.convert(src, src.parent / "out.lmdb", **options)


SHARDS = ("a.tar", "a.zip", "a.parquet", "a.arrow", "a.tfrecord", "a.rec", "a.mds", "a.beton", "a.msgpack", "a.bag")
OF_DIRECTORIES = ("data.mdb", "index.json", "train-00000-of-00001.parquet")
ALONE = ("a.npy", "a.h5", "a.lmdb", "a.index")  # a directory with one of these is not a container


@pytest.mark.parametrize(
    ("name", "inside"),
    [*itertools.product((*SHARDS, *OF_DIRECTORIES), (False, True)), *itertools.product(ALONE, (False,))],
)
def test_a_container_or_a_pack_is_named(tmp_path: Path, name: str, inside: bool) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / name).write_bytes(POINTER)
    (tmp_path / "hub" / "README.md").write_text("a data set")
    with pytest.raises(PackerError, match=SAID) as caught:
        convert(tmp_path / "hub" if inside else tmp_path / "hub" / name)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("labels.csv", lambda tree, path: convert(tree, labels=path)),
        ("labels.parquet", lambda tree, path: convert(tree, labels=path)),
        ("annotations.json", lambda tree, path: convert(tree, coco=path)),
        ("pack.lmdb", lambda tree, path: packer.open_dataset(path)),
        ("pack.lmdb", lambda tree, path: packer.info(path)),
        ("classes.lmdb", lambda tree, path: convert(tree, classes_from=path)),
    ],
)
def test_a_table_annotations_or_a_pack_beside_are_named(
    tree: Path, tmp_path: Path, name: str, use: Callable[[Path, Path], None]
) -> None:
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(PackerError, match=rf"{name}.*{SAID}"):
        use(tree, tmp_path / name)


def test_an_image_of_a_tree_is_named(tree: Path, tmp_path: Path) -> None:
    photo = next(tree.rglob("*.jpg"))
    photo.write_bytes(POINTER)
    for attempt in (convert, packer.open_dataset, lambda src: packer.index(src, tmp_path / "x.index")):
        with pytest.raises(PackerError, match=rf"{photo.name}.*{SAID}"):
            attempt(tree)
    photo.rename(photo.with_suffix(""))
    with pytest.raises(PackerError, match=SAID):
        convert(tree, any_image=True, fresh=True)  # the first attempt stopped after any number of images


def test_a_file_is_read_from_its_beginning_and_a_pointer_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"version of something else")
    with open(open_regular(tmp_path / "small"), "rb") as file:
        assert file.read() == b"version of something else"
    (tmp_path / "pointer").write_bytes(POINTER)
    with pytest.raises(PointerError):
        open_regular(tmp_path / "pointer")
    (tmp_path / "large").write_bytes(POINTER + bytes(1024))  # no pointer is so large
    with open(open_regular(tmp_path / "large"), "rb") as file:
        assert file.read() == POINTER + bytes(1024)
