"""Directories that occur in practice: hidden ones, empty ones, and with files that macOS and Windows leave behind."""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._sources.imagefolder import (
    ImageRule,
    imagefolder_source,
    refuse_splits,
    split_directories,
    unlabeled_source,
)
from packer.errors import SourceError
from packer.testing.reference import torchvision
from tests.command import packer as run_packer
from tests.samples import solid

APPLE_DOUBLE = struct.pack(">II16xH", 0x00051607, 0x00020000, 0)
IMAGES = ("cat/0.png", "cat/1.png", "dog/2.png", "dog/3.png")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in IMAGES:
        solid(tmp_path / "tree" / name)
    return tmp_path / "tree"


def write(root: Path, name: str, data: bytes = b"") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)


def torchvisions(root: Path, **options: Any) -> tuple[list[str], list[int]]:
    reference = torchvision().datasets.ImageFolder(str(root), **options)
    return reference.classes, reference.targets


HIDDEN = [".ipynb_checkpoints/0-checkpoint.png", "cat/.ipynb_checkpoints/0-checkpoint.png", "dog/.copy.png"]
SYSTEM = {
    "AppleDouble": {"cat/._0.png": APPLE_DOUBLE, "dog/._2.png": APPLE_DOUBLE},
    "zip of macOS": {"__MACOSX/cat/._0.png": APPLE_DOUBLE, "__MACOSX/._cat": APPLE_DOUBLE},
    "zip of macOS in a class": {"cat/__MACOSX/._0.png": APPLE_DOUBLE},
    "files of the Finder and the Explorer": {
        ".DS_Store": b"",
        "cat/.DS_Store": b"",
        "dog/Thumbs.db": b"",
        "dog/desktop.ini": b"",
    },
    "a directory of such alone": {"bird/._0.png": APPLE_DOUBLE, "bird/.DS_Store": b""},
    "a directory of macOS that is empty": {"__MACOSX/.DS_Store": b""},
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_hidden_images_are_taken_as_by_imagefolder_and_said_first(tree: Path, tmp_path: Path, hidden: str) -> None:
    solid(tree / hidden)
    write(tree, "cat/notes.txt")
    source = imagefolder_source(tree)
    assert (source.classes, source.labels.tolist()) == torchvisions(tree)
    result = run_packer("convert", tree, tmp_path / "out.lmdb")
    first = [line.strip() for line in (result.stdout + result.stderr).splitlines() if "--skip-hidden" in line]
    assert first[0].startswith("taken: 1 ")
    assert source.remarks()[0] == first[0]
    with pytest.warns(UserWarning, match="--skip-hidden"):
        packer.open_dataset(tree)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("unlabeled", [False, True])
def test_hidden_images_are_left_out_where_that_is_said(
    tree: Path, tmp_path: Path, hidden: str, unlabeled: bool
) -> None:
    solid(tree / hidden)
    packer.convert(tree, tmp_path / "out.lmdb", skip_hidden=True, strict=True, unlabeled=unlabeled)
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert [name for name, _ in dataset.samples] == list(IMAGES)
    assert dataset.classes == ([] if unlabeled else ["cat", "dog"])
    items = [(item.fate, item.chosen, item.names) for item in dataset_account(tmp_path / "out.lmdb")]
    assert [item for item in items if item[0] == "left out"] == [
        ("left out", True, [hidden if "copy" in hidden else hidden.rpartition("/")[0]])
    ]


def dataset_account(pack: Path) -> Any:
    from packer._account import Account

    return Account.from_json(packer.info(pack).account)


def test_hidden_images_of_an_unlabeled_source_are_said(tree: Path) -> None:
    for hidden in HIDDEN:
        solid(tree / hidden)
    source = unlabeled_source(tree)
    assert set(HIDDEN) < set(source.names)
    said = " ".join(source.remarks())
    assert all(part in said for part in (".ipynb_checkpoints", "cat/.ipynb_checkpoints", "dog/.copy.png"))


@pytest.mark.parametrize("left", SYSTEM.values(), ids=SYSTEM)
def test_what_the_system_left_is_neither_image_nor_class(tree: Path, tmp_path: Path, left: dict[str, bytes]) -> None:
    for name, data in left.items():
        write(tree, name, data)
    for source in (imagefolder_source(tree), unlabeled_source(tree)):
        assert list(source.names) == list(IMAGES)
        account = source.account
        assert account is not None
        assert sum(item.count for item in account if item.what == "file") == len(left)
        assert not account.losses()
    assert imagefolder_source(tree).classes == ["cat", "dog"]
    packer.convert(tree, tmp_path / "out.lmdb", strict=True)
    assert len(packer.open_dataset(tree)) == 4  # without a warning


def test_what_only_looks_like_that_stays_an_image(tree: Path) -> None:
    for name in ("cat/._9.png", "__MACOSX/5.png"):
        solid(tree / name)
    source = imagefolder_source(tree)
    assert (source.classes, source.labels.tolist()) == torchvisions(tree)


def test_an_empty_class_is_an_error_as_for_imagefolder(tree: Path, tmp_path: Path) -> None:
    (tree / "bird").mkdir()
    write(tree, "fox/.DS_Store")
    with pytest.raises(FileNotFoundError):
        torchvisions(tree)
    for call in (
        lambda: packer.convert(tree, tmp_path / "out.lmdb"),
        lambda: packer.index(tree, tmp_path / "out.index"),
        lambda: packer.open_dataset(tree),
        lambda: packer.estimate(tree, tmp_path / "out.lmdb", seconds=0.1),
    ):
        with pytest.raises(SourceError, match=r"no images in the class directories bird, fox.*allow_empty"):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree"]
    result = run_packer("convert", tree, tmp_path / "out.lmdb")
    assert (result.returncode, "--allow-empty" in result.stderr) == (1, True)


def test_an_empty_class_keeps_its_id_where_that_is_said(tree: Path, tmp_path: Path) -> None:
    (tree / "bird").mkdir()
    expected = torchvisions(tree, allow_empty=True)
    packer.convert(tree, tmp_path / "one.lmdb", allow_empty=True)
    packer.convert(tree, tmp_path / "two.lmdb", classes_from=tmp_path / "one.lmdb")
    packer.convert(tree, tmp_path / "three.lmdb", parts=2)
    assert run_packer("scan", tree, tmp_path / "list").returncode == 0
    packer.convert(tmp_path / "list", tmp_path / "four.lmdb")
    packs = [packer.open_dataset(tmp_path / f"{name}.lmdb") for name in ("one", "two", "three", "four")]
    with pytest.warns(UserWarning, match="classes without images"):
        packs.append(packer.open_dataset(tree, allow_empty=True))
    for pack in packs:
        assert (list(pack.classes), [int(target) for target in pack.targets]) == expected


def test_a_split_that_lacks_a_class_says_so(tmp_path: Path) -> None:
    for name in ("train/a", "train/b", "train/c", "val/a", "val/c", "test/a", "test/b", "dev/a", "dev/b", "dev/c"):
        solid(tmp_path / name / "0.png")
    packer.convert(tmp_path / "train", tmp_path / "train.lmdb")
    said = (
        "not looked at: 1 class (b): the directory train next to this one has it, "
        "and other classes have other ids there"
    )
    last = "not looked at: 1 class (c): the directory train next to this one has it"
    for split, line in (("val", said), ("test", last), ("dev", ""), ("train", "")):
        notes = packer.convert(tmp_path / split, tmp_path / f"{split}-own.lmdb", strict=True).notes
        assert [note.startswith(line) for note in notes if "train" in note] == [True] * bool(line)
    with pytest.warns(UserWarning, match=re.escape(said)):
        assert packer.open_dataset(tmp_path / "val").classes == ["a", "c"]
    given = tmp_path / "given.lmdb"
    summary = packer.convert(tmp_path / "val", given, classes_from=tmp_path / "train.lmdb", strict=True)
    assert summary.notes == ["taken: 1 class (b): no image has it; it keeps its id because of --classes-from"]
    assert summary.manifest.account is not None
    assert [(item["what"], item["names"]) for item in summary.manifest.account] == [("class", ["b"])]
    assert [int(target) for target in packer.open_dataset(given).targets] == [0, 2]
    assert packer.convert(tmp_path / "dev", tmp_path / "x.lmdb", classes_from=given).notes == []


def test_a_split_beside_trainval_says_which_classes_it_lacks(tmp_path: Path) -> None:
    for name in ("trainval/a", "trainval/b", "testdev/a"):
        solid(tmp_path / name / "0.png")
    notes = packer.convert(tmp_path / "testdev", tmp_path / "x.lmdb").notes
    assert "not looked at: 1 class (b): the directory trainval next to this one has it" in notes


def test_given_classes_that_a_table_and_an_archive_lack_are_said(tmp_path: Path) -> None:
    for name in ("train/a", "train/b", "train/c", "val/a", "val/c"):
        solid(tmp_path / name / "0.png")
    packer.convert(tmp_path / "train", tmp_path / "train.lmdb")
    (tmp_path / "t.csv").write_text("path,label\na/0.png,a\nc/0.png,c\n")
    with zipfile.ZipFile(tmp_path / "val.zip", "w") as archive:
        for name in ("a/0.png", "c/0.png"):
            archive.write(tmp_path / "val" / name, name)
    for src, options in ((tmp_path / "val", {"labels": tmp_path / "t.csv"}), (tmp_path / "val.zip", {})):
        summary = packer.convert(src, tmp_path / f"{src.name}.lmdb", classes_from=tmp_path / "train.lmdb", **options)
        assert any(note.startswith("taken: 1 class (b): no image has it") for note in summary.notes)


def test_a_hidden_directory_beside_a_split_makes_it_no_class(tmp_path: Path) -> None:
    solid(tmp_path / "tree" / "train" / "cat" / "0.png")
    solid(tmp_path / "tree" / ".ipynb_checkpoints" / "0.png")
    assert split_directories(tmp_path / "tree") == ["train"]
    with pytest.raises(SourceError, match="contains splits"):
        refuse_splits(tmp_path / "tree", tmp_path / "out.lmdb")


def test_the_rule_says_whether_hidden_files_count() -> None:
    assert ImageRule.of(".gif", skip_hidden=True) == ImageRule((".gif",), skip_hidden=True)
