"""The list of an ImageFolder tree is torchvision's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source, refuse_splits, split_directories
from packer.errors import SourceError
from packer.testing.reference import torchvision
from tests.command import without_root_powers
from tests.samples import solid

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any bytes as a name")


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def require_imagefolder(root: Path) -> Source:
    """Compare with ImageFolder; return packer's list."""
    reference = torchvision().datasets.ImageFolder(str(root), allow_empty=True)
    source = imagefolder_source(root, allow_empty=True)
    assert source.classes == reference.classes
    assert [(source.path(i), int(source.labels[i])) for i in range(len(source))] == reference.samples
    assert [source.names[i] for i in range(len(source))] == [
        os.path.relpath(path, root).replace(os.sep, "/") for path, _ in reference.samples
    ]
    assert len(source) == len(reference.samples)
    return source


def test_order_of_nested_directories(tmp_path: Path) -> None:
    touch(
        tmp_path,
        *("a/z.jpg", "a/b/1.jpg", "a/b-c/1.jpg", "a/b.jpg", "a/b/c/1.jpg", "a/B/1.jpg", "a/b0/1.jpg"),
        *("a-b/1.jpg", "a-b/0.jpg", "A/10.jpg", "A/9.jpg", "A/2.JPG", "10/x.png", "9/x.png", "a b/x.webp", "a.b/x.bmp"),
    )
    source = require_imagefolder(tmp_path)
    assert source.classes[:2] == ["10", "9"]
    assert len(source) == 16


def test_which_files_count(tmp_path: Path) -> None:
    suffixes = ["jpg", "JPEG", "Png", "ppm", "BMP", "pgm", "tif", "TIFF", "webp", "gif", "txt", "jpg.txt", "jpgx"]
    touch(tmp_path, *(f"a/x.{suffix}" for suffix in suffixes))
    touch(tmp_path, "a/.hidden.jpg", "a/.jpg", "a/jpg", "a/._x.jpg", "a/.git/x.jpg", "a/x.jpg ", "a/no suffix")
    touch(
        tmp_path, "__MACOSX/a/._x.jpg", ".hidden/x.jpg", "root.jpg", "root.txt", "a/dir.jpg/inside.png", "a/dir.png/t"
    )
    source = require_imagefolder(tmp_path)
    assert "a/x.TIFF" in source.names
    assert "a/x.gif" not in source.names
    assert "root.jpg" not in source.names
    assert any("root.jpg" in remark for remark in source.remarks())
    assert not any("root.txt" in remark for remark in source.remarks())


def test_classes_without_images_keep_their_ids(tmp_path: Path) -> None:
    touch(tmp_path, "b/x.jpg", "d/x.jpg", "e/readme.txt")
    for name in ("a", "c", "d/empty", "f/empty"):
        (tmp_path / name).mkdir(parents=True)
    source = require_imagefolder(tmp_path)
    assert source.labels.tolist() == [1, 3]
    others, note = source.notes
    assert others == "1 file of another type was not looked at: .txt 1"
    assert "a, c, e, f" in note


def test_symbolic_links(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    root = tmp_path / "root"
    touch(elsewhere, "one.jpg", "deep/two.jpg", "three.txt")
    touch(root, "a/x.jpg")
    (root / "b").symlink_to(elsewhere, target_is_directory=True)
    (root / "a" / "link").symlink_to(elsewhere / "deep", target_is_directory=True)
    (root / "a" / "dir.jpg").symlink_to(elsewhere / "deep", target_is_directory=True)
    (root / "a" / "file.jpg").symlink_to(elsewhere / "one.jpg")
    (root / "a" / "text.png").symlink_to(elsewhere / "three.txt")
    (root / "a" / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    (root / "rootfile").symlink_to(elsewhere / "one.jpg")
    source = require_imagefolder(root)
    assert source.classes == ["a", "b"]
    assert "a/dangling.jpg" in source.names  # listed as ImageFolder lists it, and reported when it is read
    linked = tmp_path / "linked"
    linked.symlink_to(root, target_is_directory=True)
    require_imagefolder(linked)


@pytest.mark.parametrize("target", [".", "..", "../..", "../b"])
def test_a_loop_of_links_ends(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    touch(root, "a/x.jpg", "b/y.jpg")
    (root / "a" / "loop").symlink_to(target, target_is_directory=True)
    (root / "b" / "back").symlink_to("../a", target_is_directory=True)
    source = imagefolder_source(root)
    assert {"a/x.jpg", "b/y.jpg", "b/back/x.jpg"} <= set(source.names)
    assert any("symbolic link" in note and "not followed" in note for note in source.notes)


def test_a_link_to_the_top_makes_no_class_of_the_whole_tree(tmp_path: Path) -> None:
    touch(tmp_path, "cat/x.jpg", "dog/y.jpg")
    (tmp_path / "cat" / "up").symlink_to("..", target_is_directory=True)
    source = imagefolder_source(tmp_path)
    assert list(source.names) == ["cat/x.jpg", "dog/y.jpg"]
    assert [note for note in source.notes if "cat/up" in note and "not followed" in note] != []


@linux
def test_names_of_any_bytes(tmp_path: Path) -> None:
    names = [
        b"caf\xc3\xa9",
        b"cafe\xcc\x81",
        b"caf\xe9",
        b"new\nline",
        b"tab\tx",
        b"\xff\xfe",
        b"\xf0\x9f\x90\xb1",
        b"\x1b[31m",
    ]
    names += ["日本".encode(), "日本".encode("euc-jp"), b"\xed\xa0\x80", b"back\\slash", b"*", b"'\"", b" ", b"..."]
    for name in names:
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        for file in names:
            open(os.path.join(folder, file + b".jpg"), "wb").close()
    source = require_imagefolder(tmp_path)
    assert len(source) == len(names) ** 2
    assert {os.fsencode(name) for name in source.classes} == set(names)
    assert source.names.encoded(0) == os.fsencode(source.names[0])


parts = st.one_of(
    st.sampled_from(["a", "b", "a-b", "a b", "A", "a.jpg", "train", "val", ".x", "é", "e\u0301", "\u017f.JPG"]),
    st.binary(min_size=1, max_size=4)
    .filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))
    .map(os.fsdecode),
)
endings = st.sampled_from([".jpg", ".JPG", ".jpeg", ".png", ".tif", ".webp", ".gif", "", "/", "/"])


@linux
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.lists(parts, min_size=1, max_size=4), endings), min_size=1, max_size=25))
def test_any_tree_is_listed_as_imagefolder_lists_it(files: list[tuple[list[str], str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "always").mkdir()
        for names, ending in files:
            path = root.joinpath(*names[:-1], names[-1] + ending.rstrip("/"))
            with contextlib.suppress(OSError):  # a file may stand where this one needs a directory
                path.mkdir(parents=True) if ending == "/" else touch(root, str(path.relative_to(root)))
        if torchvision().datasets.ImageFolder(str(root), allow_empty=True).samples:
            require_imagefolder(root)
        else:
            with pytest.raises(SourceError, match="no images"):
                imagefolder_source(root)


def test_what_is_no_tree_of_images(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or directory"):
        imagefolder_source(tmp_path / "missing")
    touch(tmp_path, "flat/x.jpg", "texts/a/x.txt")
    with pytest.raises(SourceError, match="a file, not a directory"):
        imagefolder_source(tmp_path / "flat" / "x.jpg")
    with pytest.raises(SourceError, match=r"no subdirectories.*labels="):
        imagefolder_source(tmp_path / "flat")
    with pytest.raises(SourceError, match="no images"):
        imagefolder_source(tmp_path / "texts")


@linux
def test_a_directory_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.jpg")
    here = os.open(tmp_path / "a", os.O_RDONLY)
    for _ in range(20):  # until the path is longer than the system takes
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(SourceError, match="cannot be listed"):
        imagefolder_source(tmp_path)


@without_root_powers
def test_a_directory_that_may_not_be_listed_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path, "tree/a/x.jpg", "tree/a/closed/y.jpg")
    code = "import sys, pathlib, packer._sources.imagefolder as s; s.imagefolder_source(pathlib.Path(sys.argv[1]))"
    line = [sys.executable, "-c", code, str(tmp_path / "tree")]
    if os.geteuid() == 0:
        line = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *line]
    for closed in (tmp_path / "tree/a/closed", tmp_path / "tree"):
        closed.chmod(0)
        result = subprocess.run(line, capture_output=True, text=True, check=False)
        closed.chmod(0o700)
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1].startswith("packer.errors.SourceError: " + str(closed))


def test_given_classes(tmp_path: Path) -> None:
    touch(tmp_path, "val/b/x.jpg", "val/d/y.jpg")
    source = imagefolder_source(tmp_path / "val", ["d", "c", "b", "a"])
    assert source.classes == ["d", "c", "b", "a"]
    assert dict(zip(source.names, source.labels.tolist(), strict=True)) == {"b/x.jpg": 2, "d/y.jpg": 0}
    with pytest.raises(
        SourceError,
        match=r"1 of its classes is not in the given class list: d. Correct them, or leave out classes_from=\. To",
    ):
        imagefolder_source(tmp_path / "val", ["a", "b", "c"])
    many = [f"new{number}" for number in range(9)]
    touch(tmp_path, *(f"val/{name}/x.jpg" for name in many))
    with pytest.raises(SourceError, match=r"9 of its classes .*new0, new1, new2, new3, new4, …"):
        imagefolder_source(tmp_path / "val", ["b", "d"])


def test_a_limited_source_keeps_its_classes(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/1.jpg", "b/2.jpg", "c/1.jpg")
    source = imagefolder_source(tmp_path)
    limited = source.limited(2)
    assert list(limited.names) == ["a/1.jpg", "b/1.jpg"]
    assert limited.classes == ["a", "b", "c"]
    assert limited.labels.tolist() == [0, 1]
    assert list(source.limited(100).names) == list(source.names)
    assert limited.describe() != source.describe()


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    root = tmp_path / "root"
    touch(root, "train/a/x.jpg", "bus/x.jpg")
    refuse_splits(root, tmp_path / "out.lmdb")
    assert imagefolder_source(root).classes == ["bus", "train"]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train/a/x.jpg", "val/a/x.jpg"], ["train", "val"]),
        (["val/a/x.jpg", "test/a/x.jpg", "train/a/x.jpg"], ["train", "val", "test"]),
        (["Train/a/x.jpg", "Validation/a/x.jpg"], ["Train", "Validation"]),
        (["train/a/x.jpg", "test/x.jpg"], ["train"]),
        (["train/a/x.jpg"], ["train"]),
        (["testdev/a/x.jpg", "trainval/a/x.jpg", "minival/a/x.jpg"], ["trainval", "minival", "testdev"]),
        (["train/x.jpg", "test/x.jpg"], []),  # classes that are named like splits
        (["train/a/x.jpg", "bus/a/x.jpg", "val/a/x.jpg"], ["train", "val"]),
        (["a/train/x.jpg", "b/val/x.jpg"], []),
    ],
)
def test_splits_are_told_from_classes(tmp_path: Path, names: list[str], splits: list[str]) -> None:
    root = tmp_path / "root"
    touch(root, *names)
    assert split_directories(root) == splits
    if not splits:
        refuse_splits(root, tmp_path / "out.lmdb")
        require_imagefolder(root)
        return
    with pytest.raises(SourceError) as caught:
        refuse_splits(root, tmp_path / "out.lmdb")
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert f"packer convert {root} {tmp_path}/out.lmdb --split all" in lines
    assert f"packer convert {root}/{splits[0]} {tmp_path}/out-{splits[0]}.lmdb" in lines


def test_a_class_list_that_names_a_class_twice(photo_tree: Path) -> None:
    """Its images could get either label, and dropping one of the names would shift the labels of later classes."""
    classes = sorted(path.name for path in photo_tree.iterdir() if path.is_dir())
    with pytest.raises(SourceError, match=f"contains {classes[0]} twice"):
        imagefolder_source(photo_tree, [*classes, classes[0]])


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["0", "1", "2"], None),
        (["1", "2", "3"], "class 1 has the id 0"),
        ([str(number) for number in range(11)], "class 10 has the id 2"),
        (["0", "1", "ten"], None),
    ],
)
def test_classes_called_by_numbers_that_are_not_their_ids_are_said(
    tmp_path: Path, classes: list[str], said: str | None
) -> None:
    for name in classes:
        solid(tmp_path / name / "a.png")
    notes = [note for note in imagefolder_source(tmp_path).notes if "class names are numbers" in note]
    assert [said in note for note in notes] == ([True] if said else [])
    given = imagefolder_source(tmp_path, classes).notes
    assert not any("class names are numbers" in note for note in given)
