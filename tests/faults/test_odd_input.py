"""Trees as they are found on disks are listed as ImageFolder lists them; nothing in them stops or misleads packer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from PIL import Image

from packer._conversion.convert import convert
from packer._datasets.open import open_dataset
from packer._formats import open_pack
from packer._packs.export import export
from packer._sources.imagefolder import ImageRule, imagefolder_source
from packer._sources.table_source import csv_source
from packer._sources.tables import TableOptions
from packer.errors import ImageError, SourceError
from packer.testing.reference import torchvision
from tests.command import packer, without_root_powers
from tests.samples import SUFFIXES, content, noise, solid

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs file names of any bytes")

GOOD = [
    b"a/plain.jpg",
    b"a/UPPER.JPG",
    b"a/MiXed.JpEg",
    b"a/ lead.png",
    b"a/-dash.png",
    b"a/new\nline.png",
    b"a/tab\t\"quo'te\\.png",
    b"a/\xff\xfe.jpg",  # not UTF-8
    b"a/caf\xc3\xa9.png",  # NFC
    b"a/cafe\xcc\x81.png",  # and NFD
    "a/\u202eright\u200fto left 🐱.png".encode(),
    b"a/" + b"x" * 251 + b".png",
    b"a/.hidden.png",
    b"a/con.png",
    b"a/deep/er/x.png",
    b"a/x.png",
    b"a/X.png",
    b"caf\xe9/x.png",
    b"cafe\xcc\x81/x.png",
    b".hidden/x.png",
    b"b/x.png",  # of the same name as others
    b"b/linked.png",
]
BAD = {
    b"a/dangling.jpg": "No such file",
    b"a/empty.png": "empty file",
    b"a/fifo.jpg": "not a regular file",
    b"a/loop.jpg": "symbolic links",
    b"a/page.html.jpg": "not an image",
    b"b/folder.jpg": "",  # a directory, not an image
}
IGNORED = [b".DS_Store", b"Thumbs.db", b"a/.DS_Store", b"a/x.gif", b"a/x.jpg.bak", b"b/noextension", b"readme.txt"]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    root = tmp_path / "tree"

    def at(name: bytes) -> Path:
        path = root / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    for number, name in enumerate(GOOD):
        if name != b"b/linked.png":
            solid(tmp_path / "image.png", (number, 7, 7), size=(33, 40)).rename(at(name))
    noise(tmp_path / "elsewhere.png", 1)
    at(b"b/linked.png").symlink_to(tmp_path / "elsewhere.png")
    at(b"a/dangling.jpg").symlink_to("nowhere")
    at(b"a/loop.jpg").symlink_to("loop.jpg")
    at(b"a/round").symlink_to("..", target_is_directory=True)
    at(b"a/empty.png").touch()
    at(b"a/page.html.jpg").write_text("<html>")
    os.mkfifo(at(b"a/fifo.jpg"))
    at(b"b/folder.jpg").mkdir()
    at(b"empty").mkdir()
    for name in IGNORED:
        at(name).write_bytes(b"ignored")
    return root


@linux
@pytest.mark.timeout(60)  # opening a FIFO to read waits without end
def test_everything_at_once(odd: Path, tmp_path: Path) -> None:
    (odd / "a" / "round").unlink()  # ImageFolder would follow it until the path is too long
    reference = torchvision().datasets.ImageFolder(str(odd), allow_empty=True)
    source = imagefolder_source(odd, allow_empty=True)
    assert source.classes == reference.classes
    assert [str(odd / name) for name in source.names] == [path for path, _ in reference.samples]
    assert source.labels.tolist() == reference.targets
    for format, suffix in SUFFIXES.items():
        pack, out = tmp_path / f"pack{suffix}", tmp_path / f"out-{format}"
        summary = convert(source, pack, on_error="skip")
        skipped = {os.fsencode(entry["name"]): entry["reason"] for entry in summary.manifest.skipped}
        assert skipped.keys() == {name for name, reason in BAD.items() if reason}
        assert all(BAD[name] in reason for name, reason in skipped.items()), skipped
        dataset = open_dataset(pack, output="bytes")
        assert {os.fsencode(name) for name, _ in dataset.samples} == set(GOOD)
        for index, (name, label) in enumerate(dataset.samples):
            assert dataset.classes[label] == name.split("/")[0]
            assert dataset[index][0] == (odd / name).read_bytes()
        export(pack, out)
        exported = {os.fsencode(name): data for name, data in content(out).items() if data is not None}
        assert exported == {name: (odd / os.fsdecode(name)).read_bytes() for name in GOOD}
        assert imagefolder_source(out, allow_empty=True).classes == source.classes  # also those without images


@linux
def test_a_loop_is_left_out_and_said(odd: Path) -> None:
    source = imagefolder_source(odd, allow_empty=True)
    assert any("not followed: a/round" in note for note in source.notes)
    assert any("classes without images" in note and "empty" in note for note in source.notes)


def test_one_class_and_one_image(tmp_path: Path) -> None:
    solid(tmp_path / "tree" / "only" / "x.png")
    for suffix in SUFFIXES.values():
        convert(imagefolder_source(tmp_path / "tree"), tmp_path / f"pack{suffix}")
        dataset = open_dataset(tmp_path / f"pack{suffix}")
        assert (len(dataset), dataset.classes, dataset[0][1]) == (1, ["only"], 0)


def test_classes_without_any_image(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "b").mkdir()
    with pytest.raises(SourceError, match="no images"):
        imagefolder_source(tmp_path / "tree")
    result = packer("convert", tmp_path / "tree", tmp_path / "x.lmdb")
    assert result.returncode == 1
    assert not (tmp_path / "x.lmdb").exists()


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_hundred_thousand_classes(tmp_path: Path, format: str) -> None:
    classes = [f"class number {number:06d}" for number in range(100_000)]
    for number in (0, 51_234, 99_999):
        solid(tmp_path / "root" / f"{number}.png", (number % 256, 0, 0))
    rows = "".join(f"{number}.png,{classes[number]}\n" for number in (99_999, 0, 51_234))
    (tmp_path / "labels.csv").write_text("path,label\n" + rows)
    source = csv_source(tmp_path / "root", tmp_path / "labels.csv", TableOptions(classes=classes))
    convert(source, tmp_path / f"pack{SUFFIXES[format]}")
    with open_pack(tmp_path / f"pack{SUFFIXES[format]}") as reader:
        assert reader.manifest.classes == classes
        assert reader.table.label.tolist() == [99_999, 0, 51_234]
    result = packer("info", tmp_path / f"pack{SUFFIXES[format]}")
    assert "100,000 classes" in result.stdout
    assert result.stdout.count("\n") < 40


@without_root_powers
def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        solid(tmp_path / "tree" / name)
    (tmp_path / "tree" / "a" / "2.png").chmod(0)
    result = packer("convert", tmp_path / "tree", tmp_path / "x.lmdb", powerless=True)
    assert result.returncode == 1
    assert "a/2.png: cannot be read: Permission denied" in result.stderr
    result = packer("convert", tmp_path / "tree", tmp_path / "x.lmdb", "--on-error", "skip", powerless=True)
    assert result.returncode == 3
    assert open_dataset(tmp_path / "x.lmdb").targets.tolist() == [0, 1]


def test_files_that_change_while_they_are_converted(tmp_path: Path) -> None:
    """Emptied, deleted and replaced files are reported with their names; the others keep their labels."""
    for number in range(400):
        noise(tmp_path / "tree" / f"{number % 2}" / f"{number:03d}.png", number, size=(8, 8))
    changed = {"0/390.png": b"", "1/391.png": None, "0/392.png": b"no image any more"}

    def change(progress: object) -> None:
        for name, data in changed.items():
            path = tmp_path / "tree" / name
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)

    source = imagefolder_source(tmp_path / "tree")
    summary = convert(source, tmp_path / "x.lmdb", on_error="skip", workers=1, progress=change)
    assert {entry["name"] for entry in summary.manifest.skipped} == changed.keys()
    dataset = open_dataset(tmp_path / "x.lmdb", output="bytes")
    assert len(dataset) == 397
    for index, (name, label) in enumerate(dataset.samples):
        assert label == int(name[0])
        assert dataset[index] == ((tmp_path / "tree" / name).read_bytes(), label)


def test_wrong_suffixes_are_stored_as_what_they_are(tmp_path: Path) -> None:
    for suffix, kind in [(".jpg", "PNG"), (".png", "JPEG"), (".bmp", "WEBP"), (".webp", "GIF"), (".tiff", "BMP")]:
        (tmp_path / "tree" / "a").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (1, 2, 3)).save(tmp_path / "tree" / "a" / f"x{suffix}", kind)
    summary = convert(imagefolder_source(tmp_path / "tree"), tmp_path / "x.lmdb")
    for finding in ("PNG named .jpg", "JPEG named .png", "WEBP named .bmp", "GIF named .webp", "BMP named .tiff"):
        assert summary.manifest.findings[finding] == 1
    assert len(open_dataset(tmp_path / "x.lmdb")) == 5


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs Linux's /proc")
@pytest.mark.parametrize("name", ["memory.jpg", "memory.dat"])
def test_a_file_of_the_systems_that_cannot_be_read_is_left_out_as_others_are(tmp_path: Path, name: str) -> None:
    for number in range(3):
        solid(tmp_path / "tree" / "a" / f"{number}.png", (number, 0, 0))
    (tmp_path / "tree" / "a" / name).symlink_to("/proc/self/mem")
    source = imagefolder_source(tmp_path / "tree", rule=ImageRule(any_image=True))
    with pytest.raises(ImageError, match=f"a/{name}: cannot be read: .* reading fails: Input/output error"):
        convert(source, tmp_path / "x.lmdb")
    summary = convert(source, tmp_path / "x.lmdb", on_error="skip", fresh=True)
    assert [entry["name"] for entry in summary.manifest.skipped] == [f"a/{name}"]
    assert summary.manifest.count == 3
