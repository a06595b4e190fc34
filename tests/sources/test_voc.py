"""Pascal VOC's layout: objects, flags and masks are in the fields, with the numbers that torchvision returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer._account import BadSamples
from packer._sources.base import ReadBuffer, Source
from packer._sources.voc import voc_source
from packer.errors import SourceError
from packer.testing.reference import torchvision


def object_of(name: str, box: tuple[float, ...], more: str = "") -> str:
    sides = "".join(f"<{s}>{v}</{s}>" for s, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object>\n<name>{name}</name><pose>Left</pose>{more}<bndbox>{sides}</bndbox></object>"


def write(directory: Path, stem: str, *objects: str, more: str = "") -> None:
    """Write an image of 30 x 20 pixels and its annotation."""
    for folder in ("Annotations", "JPEGImages", "SegmentationClass", "ImageSets/Main", "ImageSets/Segmentation"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30, 20)).save(directory / "JPEGImages" / f"{stem}.jpg")
    size = "<size><width>30</width><height>20</height><depth>3</depth></size>"
    text = f"{more}<annotation>\n<filename>{stem}.jpg</filename>{size}{''.join(objects)}</annotation>"
    (directory / "Annotations" / f"{stem}.xml").write_text(text)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Return ``VOC2012`` with three annotated images, of which one has no objects and one has a mask."""
    directory = tmp_path / "VOCdevkit" / "VOC2012"
    flags = "<truncated>1</truncated><difficult>0</difficult>"
    part = "<part><name>head</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>4</xmax><ymax>5</ymax></bndbox></part>"
    write(directory, "b", object_of("person", (1, 1, 30, 20), flags + part), object_of("cat", (5, 6, 7, 8)))
    write(directory, "a", object_of("dog", (2, 3, 10, 11), flags))
    write(directory, "c")
    mask = Image.fromarray(np.array([[0, 8], [255, 15]], np.uint8).repeat(10, 0).repeat(15, 1))
    mask.putpalette(range(256))
    mask.save(directory / "SegmentationClass" / "b.png")
    (directory / "ImageSets" / "Main" / "train.txt").write_text("b\na\n")
    (directory / "ImageSets" / "Segmentation" / "train.txt").write_text("b\n")
    (directory / "ImageSets" / "Segmentation" / "val.txt").write_text("c \n")
    (directory / "ImageSets" / "Main" / "cat_train.txt").write_text("a -1\nb  1\n")
    return directory


def values_of(source: Source, index: int) -> dict[str, Any]:
    stored = source.values(index, ReadBuffer(1))
    return {field.name: field.decode(one) for field, one in zip(source.fields, stored, strict=True)}


def test_a_split_is_that_of_torchvision(voc: Path) -> None:
    torchvision()
    from torchvision import datasets

    theirs = datasets.VOCDetection(voc.parents[1], image_set="train")
    wrapped = datasets.wrap_dataset_for_transforms_v2(theirs)
    source = voc_source(voc / "JPEGImages", voc, split="train")
    assert list(source.names) == [Path(image).name for image in theirs.images] == ["b.jpg", "a.jpg"]
    for index in range(len(source)):
        values = values_of(source, index)
        assert values["annotation"] == theirs[index][1]
        assert values["boxes"].tolist() == wrapped[index][1]["boxes"].tolist()
        assert values["category"].tolist() == wrapped[index][1]["labels"].tolist()
    assert any("VOC counts pixels from 1" in note for note in source.notes)


def test_flags_say_where_a_file_says_nothing(voc: Path) -> None:
    source = voc_source(voc / "JPEGImages", voc)
    assert list(source.names) == ["a.jpg", "b.jpg", "c.jpg"]
    values = values_of(source, 1)
    assert values["truncated"].tolist() == [1, -1]
    assert values["difficult"].tolist() == [0, -1]
    assert "occluded" not in values
    empty = values_of(source, 2)
    assert empty["boxes"].shape == (0, 4)
    assert empty["annotation"]["annotation"]["object"] == []


def test_masks_keep_the_bytes_of_their_files(voc: Path) -> None:
    source = voc_source(voc, voc)
    assert list(source.names) == ["JPEGImages/a.jpg", "JPEGImages/b.jpg", "JPEGImages/c.jpg"]
    assert values_of(source, 0)["mask"] is None
    assert values_of(source, 1)["mask"] == (voc / "SegmentationClass" / "b.png").read_bytes()
    assert next(field for field in source.fields if field.name == "mask").file == "SegmentationClass/{stem}.png"


def test_a_split_may_be_one_of_segmentation(voc: Path) -> None:
    assert list(voc_source(voc, voc, split="Segmentation/train").names) == ["JPEGImages/b.jpg"]
    assert list(voc_source(voc, voc, split="val").names) == ["JPEGImages/c.jpg"]


def test_other_classes_are_those_of_all_splits_sorted(voc: Path) -> None:
    write(voc, "d", object_of("zebra", (1, 1, 2, 2)), object_of("ant", (1, 1, 2, 2)))
    for split in ("d", None):
        (voc / "ImageSets" / "Main" / "d.txt").write_text("d\n")
        source = voc_source(voc, voc, split=split)
        category = next(field for field in source.fields if field.name == "category")
        assert category.classes == ("ant", "cat", "dog", "person", "zebra")
        assert category.ids == (1, 2, 3, 4, 5)


def test_names_of_a_split_may_contain_spaces(voc: Path) -> None:
    write(voc, "IMG (1)", object_of("cat", (1, 1, 2, 2)))
    (voc / "ImageSets" / "Main" / "val.txt").write_text("b\nIMG (1)\n")
    assert list(voc_source(voc, voc, split="val").names) == ["JPEGImages/b.jpg", "JPEGImages/IMG (1).jpg"]


def test_images_outside_of_a_split_are_all_counted(voc: Path) -> None:
    Image.new("RGB", (30, 20)).save(voc / "JPEGImages" / "c.png")
    assert "left out: 2 images: --split train" in voc_source(voc, voc, split="train").remarks()


def test_images_in_subdirectories_are_counted(voc: Path) -> None:
    for image in ("in/d.jpg", "in/e/f.jpg"):
        (voc / "JPEGImages" / image).parent.mkdir()
        Image.new("RGB", (30, 20)).save(voc / "JPEGImages" / image)
    why = "they are in subdirectories, where VOC has no images"
    Image.new("RGB", (30, 20)).save(voc / "JPEGImages" / "in" / ".g.jpg")
    remarks = voc_source(voc, voc).remarks()
    assert f"left out: 3 images (in/.g.jpg, in/d.jpg, in/e/f.jpg): {why}" in remarks
    assert not any(remark.startswith("taken") for remark in remarks)
    (voc / "JPEGImages" / "in" / ".g.jpg").unlink()
    for image in "abc":
        (voc / "JPEGImages" / f"{image}.jpg").unlink()
    with pytest.raises(SourceError, match=r"no images \(.*\) in it, only in subdirectories: in/d\.jpg, in/e/f\.jpg"):
        voc_source(voc, voc)


def test_images_without_annotation_are_counted_and_have_no_values(voc: Path) -> None:
    Image.new("RGB", (30, 20)).save(voc / "JPEGImages" / "plain.jpg")
    source = voc_source(voc, voc)
    assert values_of(source, 3) == dict.fromkeys(field.name for field in source.fields)
    assert source.account is not None
    assert any("they have no file in Annotations" in item.why and item.count == 1 for item in source.account.losses())


def test_images_of_a_split_that_are_not_there(voc: Path) -> None:
    (voc / "JPEGImages" / "a.jpg").unlink()
    with pytest.raises(SourceError, match=r"1 images of the split train do not exist: a\."):
        voc_source(voc, voc, split="train")
    source = voc_source(voc, voc, split="train", on_missing="skip")
    assert list(source.names) == ["JPEGImages/b.jpg"]
    assert any(remark.startswith("left out: 1 image (a)") for remark in source.remarks())


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">]>'


@pytest.mark.parametrize(
    ("objects", "more", "message"),
    [
        ([object_of("cat", (5, 6, 32, 8))], "", r"object 1 \(cat\): its box .* outside the image of 30 x 20"),
        ([object_of("cat", (5, 6, 4, 8))], "", "ends before it begins"),
        ([object_of("cat", (5, 6, "x", 8))], "", "no bndbox of four numbers"),  # type: ignore[arg-type]
        ([object_of("cat", (5, 6, "nan", 8))], "", "no bndbox of four numbers"),  # type: ignore[arg-type]
        ([object_of(" ", (5, 6, 7, 8))], "", "object 1 has no name"),
        ([], BOMB, "it has a DTD"),
        (["<object>"], "", "it is not XML"),
        ([], "<other/>", "it is not XML"),
        (["<a>" * 200 + "</a>" * 200], "", "it is nested too deeply. Correct the file"),
        (["<a>" * 100_000 + "</a>" * 100_000], "", "it is not XML: maximum recursion"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_one_line(
    objects: list[str], more: str, message: str, tmp_path: Path
) -> None:
    write(tmp_path, "a", *objects, more=more)
    with pytest.raises(SourceError, match=message) as caught:
        voc_source(tmp_path, tmp_path)
    assert "a.xml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_around_the_files_is_said(voc: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no directory Annotations"):
        voc_source(voc, tmp_path)
    with pytest.raises(SourceError, match=r"no split test: there is no file .*test.txt"):
        voc_source(voc, voc, split="test")
    for bad in (BadSamples(), BadSamples(skip=True)):
        with pytest.raises(SourceError, match=r"cat_train.txt, line 1: it has more than a name"):
            voc_source(voc, voc, split="cat_train", bad=bad)
    Image.new("RGB", (30, 20)).save(voc / "JPEGImages" / "a.png")
    with pytest.raises(SourceError, match=r"a.jpg and a.png have the same annotation file, a.xml"):
        voc_source(voc, voc)
