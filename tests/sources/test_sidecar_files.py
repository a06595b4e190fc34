"""Fields whose values are files of their own, next to the images."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._conversion.request import SourceRequest
from packer._sources.base import ReadBuffer, Source
from packer._sources.imagefolder import imagefolder_source, unlabeled_source
from packer._sources.sidecar_files import FileField, with_files
from packer.errors import ImageChangedError, ImageError, OptionError, SourceError


def draw(path: Path, color: int = 7, mode: str = "RGB") -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (8, 6), color).save(path)
    return path.read_bytes()


def tree(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        draw(root / "images" / name, number)
    return root / "images"


def fields(source: Source, *said: str, on_missing: str = "error") -> Source:
    return with_files(source, [FileField.of(one) for one in said], on_missing)


def values(source: Source) -> list[tuple[Any, ...]]:
    """Return all values as a reader of the pack would decode them."""
    buffer = ReadBuffer()
    return [
        tuple(
            field.decode(bytes(stored) if isinstance(stored, memoryview) else stored)
            for field, stored in zip(source.fields, source.values(index, buffer), strict=True)
        )
        for index in range(len(source))
    ]


@pytest.mark.parametrize(
    ("template", "file"),
    [
        ("../masks/{stem}.png", "masks/b.c.png"),
        ("../masks/{path}.png", "masks/x/y/b.c.jpg.png"),
        ("../masks/{dir}/{stem}_m.png", "masks/x/y/b.c_m.png"),
        ("../masks/{class}/{name}", "masks/x/b.c.jpg"),
        ("../{{{stem}}}.png", "{b.c}.png"),
        ("../{class}/{stem%.c}{stem%no}.png", "x/bb.c.png"),
        ("{dir}/{stem}.mask", "images/x/y/b.c.mask"),
    ],
)
def test_a_template_leads_to_the_file_of_an_image(tmp_path: Path, template: str, file: str) -> None:
    root = tree(tmp_path, "x/y/b.c.jpg")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"its mask")
    source = fields(imagefolder_source(root), f"mask:mask={template}")
    assert values(source) == [(b"its mask",)]
    assert source.fields[0].file == template


def test_an_image_at_the_top_has_the_directory_dot(tmp_path: Path) -> None:
    root = tree(tmp_path, "a.jpg")
    draw(tmp_path / "masks" / "a.png")
    assert len(fields(unlabeled_source(root), "mask=../masks/{dir}/{class}/{stem}.png")) == 1


def test_kinds_follow_from_names_and_suffixes(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg")
    mask, depth = draw(tmp_path / "a.png", mode="P"), draw(tmp_path / "a.tif", mode="L")
    (tmp_path / "a.txt").write_text("ein Käfer", "utf-8")
    (tmp_path / "a.json").write_text(json.dumps({"k": [1, 2.5]}))
    (tmp_path / "a.bin").write_bytes(b"\0\1")
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    said = ["the_Mask=../{stem}.png", "depth=../{stem}.tif", "caption=../{stem}.txt", "more=../{stem}.json"]
    source = fields(imagefolder_source(root), *said, "raw=../{stem}.bin", "flow=../{stem}.npy", "own:bytes={path}")
    assert [field.kind for field in source.fields] == ["mask", "image", "text", "json", "bytes", "array", "bytes"]
    assert (source.fields[5].dtype, source.fields[5].rank) == ("int16", 2)
    got = values(source)[0]
    assert got[:5] == (mask, depth, "ein Käfer", {"k": [1, 2.5]}, b"\0\1")
    assert got[5].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert got[6] == (root / "x/a.jpg").read_bytes()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("mask", "pass NAME=TEMPLATE"),
        ("mask=", "pass NAME=TEMPLATE"),
        ("mask=../{sten}.png", r"the template has \{sten\}, which is not a placeholder.*\{stem\}"),
        ("mask=../{}.png", "not a placeholder"),
        ("mask=../{stem.png", "mask=../"),
        ("mask=../{stem!r}.png", "cannot have a format or a conversion"),
        ("mask=../mask.png", "all images would have the same file"),
        ("image=../{stem}.png", "a field cannot have the name 'image'"),
        ("mask:boxes=../{stem}.png", "not 'boxes'"),
    ],
)
def test_a_wrong_field_is_refused_in_a_line(said: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as caught:
        FileField.of(said)
    assert "\n" not in str(caught.value)


def test_a_template_that_leads_to_nothing_says_where_it_looked(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/b.jpg")
    for on_missing in ("error", "null", "skip"):
        with pytest.raises(SourceError) as caught:
            fields(imagefolder_source(root), "mask=../msaks/{stem}.png", on_missing=on_missing)
        said = str(caught.value)
        assert "mask=../msaks/{stem}.png" in said
        assert "first image, x/a.jpg" in said
        assert str(tmp_path / "msaks" / "a.png") in said
        assert "\n" not in said


def test_missing_files_are_named_null_or_left_out(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/b.jpg", "y/c.jpg")
    mask = draw(tmp_path / "masks" / "b.png")
    listed = imagefolder_source(root)
    with pytest.raises(SourceError, match=r"2 of 3 images have no mask file: x/a.jpg \(.*a.png\), y/c"):
        fields(listed, "mask=../masks/{stem}.png")
    null = fields(listed, "mask=../masks/{stem}.png", on_missing="null")
    assert values(null) == [(None,), (mask,), (None,)]
    assert any("2 of 3 images" in note and "null" in note for note in null.notes)
    skip = fields(listed, "mask=../masks/{stem}.png", on_missing="skip")
    assert (list(skip.names), values(skip), skip.labels.tolist()) == (["x/b.jpg"], [(mask,)], [0])
    assert any("left out" in remark for remark in skip.remarks())


def test_masks_among_the_images_are_no_images(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/a_mask.png", "x/b.jpg", "x/b_mask.png")
    source = fields(imagefolder_source(root), "mask={dir}/{stem}_mask.png")
    assert list(source.names) == ["x/a.jpg", "x/b.jpg"]
    assert "2 field files are among the images; they are not packed as images" in source.notes


def test_parts_and_samples_of_a_source_keep_their_values(tmp_path: Path) -> None:
    names = [f"x/{number}.jpg" for number in range(9)]
    root = tree(tmp_path, *names)
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text(f"{number}")
    source = fields(imagefolder_source(root), "caption=../{stem}.txt")
    assert values(source.between(2, 5)) == [("2",), ("3",), ("4",)]
    assert values(source.limited(2)) == [("0",), ("1",)]
    assert values(source.sampled(3)) == [("1",), ("4",), ("7",)]
    assert source.between(2, 5).describe() == source.limited(5).between(2, 5).describe()


def test_a_file_that_changed_since_it_was_listed_is_not_read(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/b.jpg")
    for stem in "ab":
        draw(tmp_path / "masks" / f"{stem}.png")
    source = fields(imagefolder_source(root), "mask=../masks/{stem}.png").stamped()
    assert source.stamps is not None
    together = sum(os.path.getsize(path) for path in (root / "x/a.jpg", tmp_path / "masks/a.png"))
    assert source.stamps[0, 0] == together
    buffer = ReadBuffer()
    _, stamp = source.read(0, buffer)
    assert stamp == tuple(source.stamps[0].tolist())
    mask = tmp_path / "masks" / "a.png"
    old = mask.stat()
    os.utime(mask, ns=(0, old.st_mtime_ns - 10**12))  # older than the image, and of the same size
    for attempt in (source.read, source.values):
        with pytest.raises(ImageChangedError, match="its files of 'mask'"):
            attempt(0, buffer)
    os.utime(mask, ns=(0, old.st_mtime_ns))
    source.values(0, buffer)
    mask.unlink()
    with pytest.raises(ImageChangedError):
        source.values(0, buffer)
    source.values(1, buffer)


def test_times_that_another_mount_rounds_are_the_same(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg")
    draw(tmp_path / "a.png")
    whole = 1_700_000_000 * 10**9
    for path, rest in ((root / "x/a.jpg", 123_456_789), (tmp_path / "a.png", 987_654_321)):
        os.utime(path, ns=(0, whole + rest))
    source = fields(imagefolder_source(root), "mask=../{stem}.png").stamped()
    for path in (root / "x/a.jpg", tmp_path / "a.png"):
        os.utime(path, ns=(0, whole))
    source.read(0, ReadBuffer())
    os.utime(tmp_path / "a.png", ns=(0, whole + 10**9))
    with pytest.raises(ImageChangedError):
        source.read(0, ReadBuffer())


@pytest.mark.parametrize(
    ("suffix", "content", "problem"),
    [
        (".txt", b"\xff\xfe", "not UTF-8"),
        (".json", b"{", r"field 'f': \.\./b\.json"),
        (".npy", b"PK\3\4", "not a .npy file of numbers"),
    ],
)
def test_a_file_that_is_no_value_is_named_with_its_field(
    tmp_path: Path, suffix: str, content: bytes, problem: str
) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/b.jpg")
    good = io.BytesIO()
    np.save(good, np.zeros(3, np.float32))
    (tmp_path / f"a{suffix}").write_bytes({".txt": b"a", ".json": b"[1]", ".npy": good.getvalue()}[suffix])
    (tmp_path / f"b{suffix}").write_bytes(content)
    source = fields(imagefolder_source(root), f"f=../{{stem}}{suffix}")
    source.values(0, ReadBuffer())
    with pytest.raises(ImageError, match=problem) as caught:
        source.values(1, ReadBuffer())
    assert caught.value.reason.startswith("field 'f': ")
    assert caught.value.name == "x/b.jpg"


def test_arrays_are_never_converted(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/b.jpg")
    np.save(tmp_path / "a.npy", np.zeros(3, np.float32))
    np.save(tmp_path / "b.npy", np.full(3, 0.1))
    source = fields(imagefolder_source(root), "f=../{stem}.npy")
    with pytest.raises(ImageError, match="an array of float64, but the first file has an array of float32"):
        source.values(1, ReadBuffer())
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(SourceError, match=r"a\.npy.*f:bytes=../\{stem\}\.npy' stores any file"):
        fields(imagefolder_source(root), "f=../{stem}.npy")


def test_the_digest_covers_fields_and_their_files(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg", "x/b.jpg")
    for folder in ("m", "n"):
        for stem in "ab":
            draw(tmp_path / folder / f"{stem}.png")
    plain = imagefolder_source(root)
    digests = {plain.describe()["sha256"]}
    for said in ("mask=../m/{stem}.png", "mask=../n/{stem}.png", "other=../m/{stem}.png", "mask:image=../m/{stem}.png"):
        digests.add(fields(plain, said).describe()["sha256"])
    (tmp_path / "m" / "b.png").unlink()
    digests.add(fields(plain, "mask=../m/{stem}.png", on_missing="null").describe()["sha256"])
    assert len(digests) == 6


def test_a_directory_of_files_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"x/{number}.jpg" for number in range(50)]
    root = tree(tmp_path, *names)
    shutil.copytree(root / "x", tmp_path / "other")
    images, listdir = imagefolder_source(root), os.listdir
    listed: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda path: (listed.append(os.path.abspath(path)), listdir(path))[1])
    source = fields(images, "other=../other/{name}", "same=../other/{stem}.jpg")
    assert listed == [str(tmp_path / "other")]
    assert len(source) == 50
    assert replace(source, stamps=None).present_stamps().shape == (50, 2)


def test_a_name_is_that_of_one_field(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/a.jpg")
    with pytest.raises(SourceError, match="two fields have the same name: f"):
        fields(imagefolder_source(root), "f={path}", "f={path}")


def opened(root: Path, **options: Any) -> Source:
    request = SourceRequest(src=root, **options)
    return request.open(root / "x.lmdb", request.classes())


@pytest.mark.parametrize(
    "template", ["annotation/{stem}.png", "../images/annotation/{stem}.png", "{dir}/../annotation/{stem}.png"]
)
def test_a_directory_of_masks_inside_of_the_source_is_no_class(tmp_path: Path, template: str) -> None:
    root = tree(tmp_path, "bird/a.jpg", "cat/b.jpg", "annotation/a.png", "annotation/b.png")
    (root / "dog").mkdir()
    source = opened(root, fields={"mask": template})
    assert (list(source.names), source.labels.tolist()) == (["bird/a.jpg", "cat/b.jpg"], [0, 1])
    assert source.classes == ["bird", "cat", "dog"]  # an empty class keeps its id
    assert any("not classes: annotation" in note for note in source.notes)
    assert any("2 field files" in note for note in source.notes)
    assert opened(root).classes == ["annotation", "bird", "cat", "dog"]


def test_classes_of_another_pack_need_not_name_a_directory_of_masks(tmp_path: Path) -> None:
    root = tree(tmp_path, "cat/b.jpg", "annotation/b.png")
    packer.pack([{"image": root / "cat/b.jpg"}], tmp_path / "old.lmdb", classes=["bird", "cat"])
    source = opened(root, fields={"mask": "annotation/{stem}.png"}, classes_from=tmp_path / "old.lmdb")
    assert (source.classes, source.labels.tolist()) == (["bird", "cat"], [1])


def test_a_directory_of_texts_inside_of_the_source_is_no_class(tmp_path: Path) -> None:
    root = tree(tmp_path, "cat/a.jpg")
    (root / "a_texts").mkdir()
    (root / "a_texts" / "a.txt").write_text("a cat")
    assert opened(root, fields={"caption": "a_texts/{stem}.txt"}).classes == ["cat"]


def test_a_directory_of_masks_with_another_image_stays_a_class_and_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path, "cat/b.jpg", "annotation/b.png", "annotation/c.png")
    source = opened(root, fields={"mask": "annotation/{stem}.png"}, on_missing="null")
    assert source.classes == ["annotation", "cat"]
    assert any("such as annotation/c.png: annotation" in note for note in source.notes)


def test_directories_of_files_that_tables_name_are_no_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, "cat/a.jpg", "annotation/a.png")
    (tmp_path / "rows.csv").write_text("path,mask\ncat/a.jpg,annotation/a.png\n")
    table = opened(root, labels=tmp_path / "rows.csv", columns=["mask:mask"])
    assert (table.classes, table.labels.tolist()) == (["cat"], [0])
    (root / "metadata.csv").write_text("file_name,mask_file_name\ncat/a.jpg,annotation/a.png\n")
    described = opened(root)
    assert (described.classes, list(described.names), described.fields[0].kind) == (["cat"], ["cat/a.jpg"], "mask")
