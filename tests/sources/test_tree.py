"""Which files of a tree are images, and how all others are reported."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._images.pillow import FORMATS
from packer._images.signatures import SUFFIXES, is_image
from packer._sources.base import Source
from packer._sources.imagefolder import ImageRule, imagefolder_source, unlabeled_source
from packer._sources.scan_list import listed_source, write_listing
from packer.errors import SourceError
from packer.testing.reference import torchvision
from tests.command import packer_many
from tests.samples import solid


def encoded(format: str, **options: Any) -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8)).save(data, format, **options)
    return data.getvalue()


IMAGES = {name: encoded(name) for name in FORMATS if name != "MPO"}
TEXTS = [b"", b"P1thon", b"Pfund", b"BMW is a car, and this text says nothing else", b"GIF", b"II and MM", b"RIFF"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with images under all kinds of names, and other files."""
    root = tmp_path / "tree"
    for name in ("a/1.jpg", "a/2.PNG", "b/c/3.webp"):
        solid(root / name)
    files = {
        "a/anim.gif": IMAGES["GIF"],
        "b/photo.AVIF": IMAGES["AVIF"],
        "b/c/no suffix": IMAGES["JPEG"],
        "b/c/wrong.txt": IMAGES["PNG"],
        "b/notes.txt": b"P1, P2 and P3 were taken at noon",
        "a/.hidden": b"",
        "readme.md": b"",
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    return root


def named(source: Source) -> list[tuple[str, int]]:
    return list(zip(source.names, source.labels.tolist(), strict=True))


def by_torchvision(root: Path, **rule: Any) -> list[tuple[str, int]]:
    reference = torchvision().datasets.ImageFolder(str(root), allow_empty=True)
    classes = {name: label for label, name in enumerate(reference.classes)}
    found = reference.make_dataset(str(root), classes, **{"extensions": None, **rule}, allow_empty=True)
    return [(os.path.relpath(path, root).replace(os.sep, "/"), label) for path, label in found]


def opens(path: str) -> bool:
    if path.lower().endswith(ImageRule().extensions):
        return True
    try:
        with Image.open(path):
            return True
    except OSError:
        return False


def test_extensions_are_torchvisions(tree: Path) -> None:
    for said in [(".gif", ".avif"), (".jpg",), (".txt", ".png"), (".webp", ".gif", ".jpg")]:
        assert named(imagefolder_source(tree, rule=ImageRule.of(said), allow_empty=True)) == by_torchvision(
            tree, extensions=said
        )


def test_any_image_is_torchvisions_with_pillow_as_the_judge(tree: Path) -> None:
    found = named(imagefolder_source(tree, rule=ImageRule(any_image=True)))
    assert found == by_torchvision(tree, is_valid_file=opens)
    assert len(found) == 7


@pytest.mark.parametrize(
    ("said", "extensions"),
    [
        (".GIF,avif", (".gif", ".avif")),
        ([".jpg", " .gif"], (".jpg", ".gif")),
        ("tar.jpg", (".tar.jpg",)),
    ],
)
def test_spellings_of_extensions(said: Any, extensions: tuple[str, ...]) -> None:
    assert ImageRule.of(said).extensions == extensions


@pytest.mark.parametrize("said", ["", ".gif,", [], ["."], "a/b", [1]])
def test_what_is_no_extension(said: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="extensions are"):
        ImageRule.of(said)


@pytest.mark.parametrize("format", IMAGES)
def test_the_beginning_of_every_format_is_known(format: str) -> None:
    assert is_image(io.BytesIO(IMAGES[format]))
    assert any(suffix in SUFFIXES for suffix, name in Image.registered_extensions().items() if name == format)


def test_more_beginnings() -> None:
    jp2 = encoded("JPEG2000", no_jp2=True)
    tiff = encoded("TIFF", big_tiff=True)
    for mode, format in [("1", "PPM"), ("L", "PPM"), ("F", "PPM"), ("1", "BMP"), ("P", "DIB"), ("L", "TGA")]:
        data = io.BytesIO()
        Image.new(mode, (5, 4)).save(data, format)
        data.seek(0)
        assert is_image(data), (mode, format)
    assert all(is_image(io.BytesIO(data)) for data in (jp2, tiff))


@pytest.mark.parametrize("data", TEXTS, ids=repr)
def test_texts_begin_otherwise(data: bytes) -> None:
    assert not is_image(io.BytesIO(data))
    assert not is_image(io.BytesIO(data + b"and so on" * 20))


def test_suffixes_are_those_that_pillow_knows() -> None:
    Image.init()
    known = {suffix for suffix, format in Image.registered_extensions().items() if format in FORMATS}
    assert known <= SUFFIXES


def test_files_of_other_types_are_counted(tree: Path) -> None:
    source = imagefolder_source(tree)
    assert source.others.counts == {".gif": 1, ".avif": 1, "(none)": 2, ".txt": 2, ".md": 1}
    assert (
        "7 files of other types were not looked at: (none) 2, .txt 2, .avif 1, .gif 1, .md 1. "
        "--any-image packs the images among them; --extensions sets the suffixes of images"
    ) in source.notes
    rest = imagefolder_source(tree, rule=ImageRule(any_image=True))
    assert "3 files of other types were not looked at: (none) 1, .md 1, .txt 1" in rest.notes[0]
    solid(tree / "a" / "x.jpg")
    for name in ("a/anim.gif", "b/photo.AVIF", "b/c/no suffix", "b/c/wrong.txt", "a/.hidden"):
        (tree / name).unlink()
    assert imagefolder_source(tree).notes == ["2 files of other types were not looked at: .md 1, .txt 1"]


def test_a_tree_without_other_files_is_no_occasion_to_speak(tmp_path: Path) -> None:
    solid(tmp_path / "a" / "x.jpg")
    assert imagefolder_source(tmp_path).notes == []


def test_many_files_of_many_types(tmp_path: Path) -> None:
    solid(tmp_path / "a" / "x.jpg")
    for number in range(2100):
        (tmp_path / "a" / f"scan.{number:04d}").touch()
    others = imagefolder_source(tmp_path).others
    assert (len(others), others.names) == (2100, None)
    assert len(others.counts) == 1001
    assert len(others.notes()[0]) < 300
    assert [*others.report()] == [{"not_looked_at": others.counts}]


def test_the_error_on_a_tree_without_images_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.gif").write_bytes(IMAGES["GIF"])
    said = r"no images \(.*\.webp\).*1 file of another type was not looked at: \.gif 1\. any_image=True"
    for source in (imagefolder_source, unlabeled_source):
        with pytest.raises(SourceError, match=said):
            source(tmp_path)
    assert list(imagefolder_source(tmp_path, rule=ImageRule(any_image=True)).names) == ["a/x.gif"]


def test_a_list_keeps_what_was_not_looked_at(tree: Path, tmp_path: Path) -> None:
    source = imagefolder_source(tree)
    write_listing(source, tmp_path / "list")
    again = listed_source(tmp_path / "list")
    assert (again.others, again.notes) == (source.others, source.notes)


def test_summary_and_report_say_what_was_not_looked_at(tree: Path, tmp_path: Path) -> None:
    write_listing(imagefolder_source(tree), tmp_path / "list")
    for src in (tree, tmp_path / "list"):
        report, pack = tmp_path / f"{src.name}.jsonl", tmp_path / f"{src.name}.lmdb"
        summary = packer.convert(src, pack, report=report)
        assert summary.not_looked_at == {".gif": 1, ".avif": 1, "(none)": 2, ".txt": 2, ".md": 1}
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        assert [line for line in lines if "not_looked_at" in line] == [
            {"name": "a/.hidden", "not_looked_at": "(none)"},
            {"name": "a/anim.gif", "not_looked_at": ".gif"},
            {"name": "b/c/no suffix", "not_looked_at": "(none)"},
            {"name": "b/c/wrong.txt", "not_looked_at": ".txt"},
            {"name": "b/notes.txt", "not_looked_at": ".txt"},
            {"name": "b/photo.AVIF", "not_looked_at": ".avif"},
            {"name": "readme.md", "not_looked_at": ".md"},
        ]


def test_any_image_is_packed_and_read(tree: Path, tmp_path: Path) -> None:
    summary = packer.convert(tree, tmp_path / "pack.lmdb", any_image=True)
    assert summary.not_looked_at == {"(none)": 1, ".txt": 1, ".md": 1}
    with packer.open_dataset(tmp_path / "pack.lmdb", output="numpy") as dataset:
        for (pixels, _), (name, _) in zip(dataset, dataset.samples, strict=True):
            with Image.open(tree / name) as image:
                assert np.array_equal(pixels, np.asarray(image.convert("RGB")))
    again = packer.convert(tree, tmp_path / "pack.h5", extensions=".jpg,.png,.webp,.gif")
    assert again.manifest.count == 4


def test_a_continued_conversion_takes_the_same_files(tree: Path, tmp_path: Path) -> None:
    (tree / "b" / "z.jpg").write_bytes(b"no image")
    with pytest.raises(packer.ImageError):
        packer.convert(tree, tmp_path / "pack.lmdb")
    with pytest.raises(packer.ResumeError, match=r"4 images were added: a/anim\.gif"):
        packer.convert(tree, tmp_path / "pack.lmdb", any_image=True)
    with pytest.raises(packer.ImageError):
        packer.convert(tree, tmp_path / "parts.lmdb", parts=2)
    with pytest.raises(packer.ResumeError, match="any_image=True was not given and is now on"):
        packer.convert(tree, tmp_path / "parts.lmdb", parts=2, any_image=True)
    with pytest.raises(packer.ResumeError, match=r"extensions= was not given and is now \.gif"):
        packer.convert(tree, tmp_path / "parts.lmdb", parts=2, extensions="GIF")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_what_is_no_regular_file_is_not_opened(tree: Path) -> None:
    os.mkfifo(tree / "a" / "fifo")
    (tree / "a" / "link").symlink_to("fifo")
    source = imagefolder_source(tree, rule=ImageRule(any_image=True))
    assert len(source) == 7
    assert source.others.counts["(none)"] == 3
    (tree / "a" / "lost").symlink_to("nowhere")  # it may be an image: reading it will fail
    assert "a/lost" in imagefolder_source(tree, rule=ImageRule(any_image=True)).names


def test_the_command_names_the_way_to_take_them(tree: Path, tmp_path: Path) -> None:
    plain, anything, some, wrong, scan = packer_many(
        [
            ["convert", tree, tmp_path / "1.lmdb"],
            ["convert", tree, tmp_path / "2.lmdb", "--any-image"],
            ["convert", tree, tmp_path / "3.lmdb", "--extensions", ".gif,.avif"],
            ["convert", tree, tmp_path / "4.lmdb", "--extensions", ","],
            ["scan", tree, tmp_path / "list", "--any-image"],
        ]
    )
    assert "7 files of other types were not looked at: (none) 2, .txt 2, .avif 1, .gif 1, .md 1. --any" in plain.stdout
    assert "7 samples, 2 classes" in anything.stdout
    assert "2 samples, 2 classes" in some.stdout
    assert wrong.returncode == 2
    assert "extensions are suffixes such as '.jpg,.gif'" in wrong.stderr
    assert "3 files of other types were not looked at" in scan.stdout
