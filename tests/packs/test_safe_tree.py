"""Export writes nothing outside of its directory, whatever is there or appears there in the meantime."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._packs import export as export_module
from packer._packs.export import export
from packer._packs.safe_tree import SafeTree
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.errors import CorruptPackError, DestinationError
from tests.faults.disk import Disk
from tests.samples import content, noise, write_pack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


def test_files_and_directories(root: Path) -> None:
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    tree = SafeTree(root)
    for name in ("a/b/c/1", "a/b/2", "3", "a/b/c/4", "d/5"):
        tree.write(name, name.encode())
    tree.make("e/f")
    tree.make("e/f")
    assert not tree.folds_names() or os.name == "nt"
    tree.close()
    tree.close()
    found = {name: data for name, data in content(root).items() if data is not None}
    assert found == {name: name.encode() for name in ("a/b/c/1", "a/b/2", "3", "a/b/c/4", "d/5")}
    assert (root / "e" / "f").is_dir()
    assert len(os.listdir("/proc/self/fd") if before else []) <= len(before)


@pytest.mark.skipif(os.name == "nt", reason="needs directories that are opened by descriptor")
def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (root / "folder").symlink_to(outside, target_is_directory=True)
    (root / "file").symlink_to(outside / "new")
    (root / "deep").mkdir()
    (root / "deep" / "er").symlink_to("../../outside", target_is_directory=True)
    tree = SafeTree(root)
    for name in ("folder/x", "file", "deep/er/x", "deep/er/more/x"):
        with pytest.raises(DestinationError, match=str(root)):
            tree.write(name, b"data")
    for folder in ("folder", "deep/er/more"):
        with pytest.raises(DestinationError, match=str(root)):
            tree.make(folder)
    (root / "there").write_bytes(b"first")
    with pytest.raises(DestinationError, match="there: already exists, and is not the sample"):
        tree.write("there", b"second")
    tree.close()
    assert (root / "there").read_bytes() == b"first"
    assert not list(outside.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="needs directories that are opened by descriptor")
def test_a_link_that_is_put_there_while_exporting(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in "abc":
        for number in range(2):
            noise(tmp_path / "tree" / label / f"{number}.png", number)
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.lmdb")
    read = export_module._content

    def plant(reader: object, index: int) -> object:
        if index == 2:
            (root / "c").rmdir()
            (root / "c").symlink_to(tmp_path / "outside", target_is_directory=True)
        return read(reader, index)  # type: ignore[arg-type]

    monkeypatch.setattr(export_module, "_content", plant)
    with pytest.raises(DestinationError, match="root/c"):
        export(tmp_path / "pack.lmdb", root)
    assert not list((tmp_path / "outside").iterdir())
    assert (root / "b" / "1.png").exists()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//x", "./x", "x/.", "a\0b", "..", "a/"])
def test_names_that_lead_elsewhere_are_refused_here_too(root: Path, name: str) -> None:
    tree = SafeTree(root)
    for add in (tree.make, lambda name: tree.write(name, b"data"), lambda name: tree.write(f"{name}/x", b"data")):
        with pytest.raises(DestinationError, match="cannot write to"):
            add(name)
    tree.close()
    assert content(root.parent) == {"outside": None, "root": None}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/fd, which names open files")
@pytest.mark.parametrize("labels", [[0, 0, 1], [1, 0, 0]], ids=["tree", "labels.csv"])
def test_what_is_exported_is_on_the_disk(tmp_path: Path, labels: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a/x.png", "a/deep/er/y.png", "b/z.png"]
    path = write_pack(
        tmp_path / "pack.lmdb",
        "lmdb",
        [Sample(name, label, name.encode(), 1, 1) for name, label in zip(names, labels, strict=True)],
        classes=["a", "b", "empty"],
    )
    (tmp_path / "work").mkdir()
    disk = Disk(tmp_path / "work")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        export(path, tmp_path / "work" / "new" / "out")
    disk.restore(tmp_path / "after")
    assert content(tmp_path / "after") == content(tmp_path / "work")
    assert (tmp_path / "after" / "new" / "out" / names[1]).read_bytes() == names[1].encode()


def samples(*names: str) -> list[Sample]:
    return [Sample(name, 0, b"data", 1, 1) for name in names]


@pytest.mark.parametrize(
    "names",
    [
        ("a/x.png", "a/X.png"),
        ("A/x", "a/x"),
        ("a/\u00e9", "a/e\u0301"),
        ("a/ß", "a/SS"),
        ("a/x", "a/b", "A/X"),
        ("a/X", "a/x/y"),
    ],
)
def test_names_that_a_file_system_takes_for_one(
    tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples(*names))
    with monkeypatch.context() as patch:
        patch.setattr(SafeTree, "folds_names", lambda tree: True)
        with pytest.raises(CorruptPackError, match="cannot be exported") as caught:
            export(path, tmp_path / "out")
    assert caught.value.index == len(names) - 1
    assert content(tmp_path / "out") == {}
    tree = SafeTree(tmp_path)
    if not tree.folds_names():
        export(path, tmp_path / "both")
        assert {name.replace(os.sep, "/") for name in content(tmp_path / "both")} >= set(names)
    tree.close()


def test_classes_that_a_file_system_takes_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their samples have different names, but would lose their labels."""
    both = [Sample("A/x", 0, b"data", 1, 1), Sample("a/y", 1, b"data", 1, 1)]
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", both, classes=["A", "a"])
    monkeypatch.setattr(SafeTree, "folds_names", lambda tree: True)
    with pytest.raises(DestinationError, match="the classes A and a would have the same directory"):
        export(path, tmp_path / "out")
    assert content(tmp_path / "out") == {}


def test_names_as_long_as_they_may_be(tmp_path: Path) -> None:
    """An added suffix replaces the end of the name."""
    for stem in ("x" * 251, "é" * 125 + "x"):
        noise(tmp_path / "tree" / "a" / f"{stem}.png", 1)
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "keep.lmdb")
    export(tmp_path / "keep.lmdb", tmp_path / "kept")
    assert content(tmp_path / "kept") == content(tmp_path / "tree")
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "jpeg.lmdb", recipe=Recipe("jpeg"))
    export(tmp_path / "jpeg.lmdb", tmp_path / "out")
    names = sorted(os.listdir(tmp_path / "out" / "a"))
    assert len(names) == 2
    assert all(name.endswith(".jpg") and len(os.fsencode(name)) in (254, 255) for name in names)
