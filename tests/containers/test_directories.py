"""Directories with images and files of other tools, or with files of several tools: every loss is reported."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import ImageFolder

import packer
from packer._containers import find_container
from packer.errors import SourceError
from packer.testing.photos import draw_imagefolder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    draw_imagefolder(root, classes=2, per_class=2, size=(16, 16))
    return root


def tar(path: Path, image: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, data in ((f"{path.stem}.jpg", image), (f"{path.stem}.cls", b"1")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def photo(tree: Path) -> bytes:
    return next(tree.rglob("*.jpg")).read_bytes()


def environment(tree: Path, image: bytes) -> None:
    lmdb = pytest.importorskip("lmdb", reason="needs lmdb: pip install lmdb")
    with lmdb.open(str(tree), map_size=1 << 20) as opened, opened.begin(write=True) as transaction:
        transaction.put(b"0", image)


STRAYS = {
    "data.mdb": None,
    "data_batch_1.bin": bytes(2 * 3073),
    "train-images-idx3-ubyte": b"\0\0\x08\x03" + b"\0\0\0\1" * 3 + b"\0",
    "index.json": json.dumps({"version": 2, "shards": []}).encode(),
    "a.msgpack": b"\x81\xa5image\xc0",
    "train.tfrecord": b"",
}


@pytest.mark.parametrize("name", STRAYS)
def test_a_tree_of_images_stays_one_whatever_lies_beside_its_classes(tree: Path, name: str) -> None:
    data = STRAYS[name]
    environment(tree, photo(tree)) if data is None else (tree / name).write_bytes(data)
    expected = ImageFolder(str(tree))
    with packer.open_dataset(tree) as dataset:
        assert (dataset.classes, list(dataset.targets)) == (expected.classes, expected.targets)


def test_images_in_no_class_are_never_passed_over_for_a_file_beside_them(tree: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    tar(flat / "x.tar", photo(tree))
    (flat / "b.jpg").write_bytes(photo(tree))
    for attempt in (packer.open_dataset, lambda path: packer.index(path, tmp_path / "x.index")):
        with pytest.raises(SourceError, match=r"To read files of other tools, name them: '.*flat/x\.tar'"):
            attempt(flat)
    assert len(packer.open_dataset(flat / "x.tar")) == 1


def test_files_of_several_tools_are_refused_and_a_pattern_names_one(tree: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    for number in range(2):
        tar(mixed / f"a-{number}.tar", photo(tree))
    (mixed / "b.tfrecord").write_bytes(b"")
    with pytest.raises(
        SourceError, match=r"several kinds: tfrecord \(b\.tfrecord, …\) and .*such as '.*mixed/a-\*\.tar'"
    ):
        packer.open_dataset(mixed)
    assert len(packer.open_dataset(str(mixed / "a-*.tar"))) == 2


@pytest.mark.parametrize("beside", ["logs/a.txt", "val/1.tar"])
def test_shards_in_directories_are_told_with_what_names_them(tree: Path, tmp_path: Path, beside: str) -> None:
    root = tmp_path / "shards"
    shard = tar(root / ("train/0.tar" if beside.endswith("tar") else "0.tar"), photo(tree))
    (root / beside).parent.mkdir(exist_ok=True)
    (root / beside).write_bytes(shard.read_bytes() if beside.endswith("tar") else b"")
    for attempt in (packer.open_dataset, lambda path: packer.convert(path, tmp_path / "x.lmdb")):
        with pytest.raises(SourceError, match=rf"To read files of other tools, name them: '{shard}'"):
            attempt(root)


def test_images_in_a_hidden_directory_are_none(tree: Path, tmp_path: Path) -> None:
    tar(tmp_path / "shards" / "0.tar", photo(tree))
    (tmp_path / "shards" / ".checkpoints").mkdir()
    (tmp_path / "shards" / ".checkpoints" / "x.png").write_bytes(b"")
    assert find_container([tmp_path / "shards"]) is not None


def test_what_a_container_leaves_out_is_warned_of(tree: Path, tmp_path: Path) -> None:
    whole = tar(tmp_path / "0.tar", photo(tree)).read_bytes()
    for number, data in enumerate((whole, whole[: whole.index(b"0.cls")], b"")):
        (tmp_path / f"{number}.tar").write_bytes(data)
    with pytest.warns(UserWarning, match=r"may have been cut short: 2, first in 1\.tar"):
        assert len(packer.open_dataset(str(tmp_path / "*.tar"))) == 2
    np.save(tmp_path / "pixels.npy", np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.warns(UserWarning, match="no label file next to it"):
        assert list(packer.open_dataset(tmp_path / "pixels.npy").targets) == [-1, -1]


def test_an_image_that_cannot_be_read_is_told_with_what_leaves_it_out(tree: Path) -> None:
    next(tree.rglob("*.jpg")).write_bytes(b"none")
    with pytest.raises(packer.ImageError, match=r"class_.*To leave out such images: `packer index .*--on-error skip`"):
        packer.open_dataset(tree)


def test_an_array_without_any_block_is_no_container(tmp_path: Path) -> None:
    shape = {"dimensions": [3, 8, 8, 3], "blockSize": [3, 8, 8, 1], "dataType": "uint8", "compression": {"type": "raw"}}
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "attributes.json").write_text(json.dumps(shape))
    with pytest.raises(SourceError, match="none of its files has data"):
        packer.open_dataset(tmp_path / "images")


@pytest.mark.parametrize("inside", [".", "class_00"])
def test_a_link_to_itself_hides_nothing(tree: Path, tmp_path: Path, inside: str) -> None:
    (tree / inside / "loop").symlink_to("loop")
    assert packer.convert(tree, tmp_path / "out.lmdb").manifest.count == 4
    with packer.open_dataset(tree) as dataset:
        assert len(dataset) == 4
    assert packer.doctor(tree).findings
