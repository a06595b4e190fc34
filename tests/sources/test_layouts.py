"""Trees that ImageFolder reads as classes but that look like another layout: a note names the options for that."""

from __future__ import annotations

import re
import shutil
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer._account import Account
from packer._containers.discovery import account_for_layout, by_class
from packer._sources.imagefolder import imagefolder_source
from packer._table import Names
from packer.errors import SourceError
from tests.samples import Walked, solid

PAIRS: Mapping[str, tuple[str, str, str, str]] = {
    "masks": ("images/{}.jpg", "masks/{}.png", "images", "mask=../masks/{stem}.png"),
    "labels": ("images/{}.jpg", "labels/{}.png", "images", "mask=../labels/{stem}.png"),
    "ends": ("img/{}.png", "mask/{}_mask.png", "img", "mask=../mask/{stem}_mask.png"),
    "VOC": ("JPEGImages/{}.jpg", "SegmentationClass/{}.png", "JPEGImages", "mask=../SegmentationClass/{stem}.png"),
    "ADE20K": (
        "images/training/{}.jpg",
        "annotations/training/{}.png",
        "images/training",
        "mask=../../annotations/training/{stem}.png",
    ),
    "Cityscapes": (
        "leftImg8bit/train/bonn/{}_leftImg8bit.png",
        "gtFine/train/bonn/{}_gtFine_labelIds.png",
        "leftImg8bit/train",
        "mask=../../gtFine/train/{dir}/{stem%leftImg8bit}gtFine_labelIds.png",
    ),
    "DUTS": ("DUTS-TR-Image/{}.jpg", "DUTS-TR-Mask/{}.png", "DUTS-TR-Image", "mask=../DUTS-TR-Mask/{stem}.png"),
    "braces": ("images/{}.png", "masks/{}{{1}}.png", "images", "mask=../masks/{stem}{{1}}.png"),
    "pictures": ("LR/{}.png", "HR/{}.png", "LR", "paired:image=../HR/{stem}.png"),
    "domains": ("trainA/{}_A.png", "trainB/{}_B.png", "trainA", "paired:image=../trainB/{stem%A}B.png"),
}
"""Paths of images and of their masks, the directory to convert, and the template of the field."""

AMONG: Mapping[str, tuple[str, str, dict[str, object], str]] = {
    "in classes": ("benign/{}.png", "benign/{}_mask.png", {}, "mask={dir}/{stem}_mask.png"),
    "an image a directory": ("{}/image.png", "{}/mask.png", {"no_classes": True}, "mask={dir}/mask.png"),
    "in directories of a class": ("cells/images/{}.png", "cells/masks/{}.png", {}, "mask={dir}/../masks/{stem}.png"),
    "in directories of an image": (
        "{0}/images/{0}.png",
        "{0}/masks/{0}.png",
        {"no_classes": True},
        "mask={dir}/../masks/{stem}.png",
    ),
}

COUNT = 3


def draw(root: Path, images: str, masks: str) -> None:
    """Draw images, and for each a mask whose pixels have the number of the image."""
    for number in range(COUNT):
        solid(root / images.format(f"{number:03d}"), size=(40, 36))
        mask = root / masks.format(f"{number:03d}")
        mask.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 36), number).save(mask)


def remarks(root: Path) -> str:
    return "\n".join(imagefolder_source(root).remarks())


def require_masks(pack: Path, field: str) -> None:
    dataset = packer.open_dataset(pack, fields=("image", field), output="numpy")
    assert [int(np.max(item[field])) for item in dataset] == [*range(COUNT)]


@pytest.mark.parametrize("case", PAIRS)
def test_directories_of_images_and_masks_are_classes_and_the_way_to_pairs_is_named(case: str, tmp_path: Path) -> None:
    images, masks, directory, template = PAIRS[case]
    root, pack = tmp_path / "root", tmp_path / "x.lmdb"
    draw(root, images, masks)
    source = imagefolder_source(root)
    assert source.classes == sorted(template.partition("/")[0] for template in (images, masks))
    first = source.remarks()[0]
    assert f"convert {root / directory} with --no-classes --field '{template}'" in first
    packer.convert(root / directory, pack, no_classes=True, fields=[template])
    require_masks(pack, template.partition("=")[0].partition(":")[0])


@pytest.mark.parametrize("case", AMONG)
def test_masks_among_the_images_of_a_class_are_named(case: str, tmp_path: Path) -> None:
    images, masks, options, template = AMONG[case]
    root, pack = tmp_path / "root", tmp_path / "x.lmdb"
    draw(root, images, masks)
    assert f"the source with{' --no-classes' if options else ''} --field '{template}'" in remarks(root)
    packer.convert(root, pack, fields=[template], **options)  # type: ignore[arg-type]
    require_masks(pack, "mask")


def test_a_class_of_masks_is_walked_through_once(tmp_path: Path) -> None:
    names = Walked(f"cells/{number}_seg.png" for number in range(300))
    account = Account()
    account_for_layout(account, {"cells": names}, "", "convert")
    assert names.walks == 1
    assert account.lines() == []


def test_images_by_class_are_their_paths_below_a_directory() -> None:
    names = Names.of(["all/b/1.jpg", "all/a/x/2.jpg", "all/3.jpg", "b/4.jpg", "all/b/5.jpg"])
    listed = by_class(names, "all/")
    assert {folder: list(images) for folder, images in listed.items()} == {
        "b": ["b/1.jpg", "b/5.jpg"],
        "a": ["a/x/2.jpg"],
    }
    assert listed["b"][-1:] == ["b/5.jpg"]


def test_images_by_class_need_few_bytes_each() -> None:
    names = Names.of(f"{number % 10}/{number:012d}.jpg" for number in range(20_000))
    tracemalloc.start()
    try:
        listed = by_class(names, "")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, listed.values())) == len(names)
    assert held < 16 * len(names)


def test_masks_whose_names_tell_nothing_are_named_without_a_template(tmp_path: Path) -> None:
    draw(tmp_path, "images/{}.png", "masks/of-{}.png")
    assert f"convert {tmp_path}/images with --no-classes --field NAME=TEMPLATE" in remarks(tmp_path)


def test_several_masks_of_an_image_are_to_be_joined(tmp_path: Path) -> None:
    for number in range(COUNT):
        solid(tmp_path / f"{number:03d}" / "images" / f"{number:03d}.png", size=(40, 36))
        for nucleus in range(2):
            solid(tmp_path / f"{number:03d}" / "masks" / f"{nucleus}{number}f.png", size=(40, 36))
    way = "join the masks of each image to one file, convert the source with --no-classes --field NAME=TEMPLATE"
    assert "each has a directory of images and one of masks, images and masks" in remarks(tmp_path)
    assert way in remarks(tmp_path)


def test_splits_of_two_domains_are_classes_and_the_option_is_named(tmp_path: Path) -> None:
    for number, folder in enumerate(("trainA", "trainB", "testA", "testB")):
        for image in range(COUNT):
            solid(tmp_path / folder / f"{number * 7 + image * 13}.png", size=(40, 36))
    assert "4 classes (testA, testB, trainA, …): they are named like splits" in remarks(tmp_path)
    assert f"convert each directory, such as {tmp_path}/testA, with --unlabeled" in remarks(tmp_path)


@pytest.mark.parametrize(
    "folders",
    [
        ("cat", "dog"),
        ("with_mask", "without_mask"),
        ("mask", "none"),
        ("photo", "sketch"),
        ("images",),
        ("testA", "testB", "testC"),
        ("trainA",),
        ("cat/images", "dog/images"),
        ("cat/images", "cat/masks", "dog/images"),
        ("cat/front", "cat/back"),
    ],
)
def test_classes_are_not_taken_for_pairs(folders: tuple[str, ...], tmp_path: Path) -> None:
    for folder in folders:
        for number in range(COUNT):
            solid(tmp_path / folder / f"{number}.png", size=(40, 36))
    assert remarks(tmp_path) == ""


def test_splits_of_images_without_classes_are_classes_and_the_option_is_named(tmp_path: Path) -> None:
    for split in ("train", "val"):
        solid(tmp_path / split / "x.png", size=(40, 36))
    assert f"2 classes (train, val): they are named like splits, {''}" in remarks(tmp_path)
    assert f"convert each directory, such as {tmp_path}/train, with --unlabeled" in remarks(tmp_path)
    assert imagefolder_source(tmp_path).classes == ["train", "val"]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_of_images_and_masks_are_named(kind: str, tmp_path: Path) -> None:
    draw(tmp_path / "root", "images/{}.jpg", "masks/{}.png")
    archive = shutil.make_archive(str(tmp_path / "x"), kind, tmp_path / "root")
    notes = packer.convert(archive, tmp_path / "x.lmdb").notes
    assert any("unpack it, and convert images with --no-classes --field 'mask=../masks/{stem}.png'" in n for n in notes)


def test_a_tree_read_in_place_warns_of_pairs(tmp_path: Path) -> None:
    draw(tmp_path / "root", "images/{}.jpg", "masks/{}.png")
    with pytest.warns(UserWarning, match="like images and their masks"):
        packer.open_dataset(tmp_path / "root")


ANNOTATED: Mapping[str, tuple[list[str], list[str], str]] = {
    "VOC": (["JPEGImages/1.jpg"], ["Annotations/1.xml"], "{0} and --voc {0} --split train"),
    "YOLO": (["images/1.jpg"], ["labels/1.txt", "data.yaml"], "{0} and --yolo {0}/data.yaml --split train"),
    "YOLO without a list": (["images/1.jpg"], ["labels/1.txt"], "{0} and --yolo data.yaml --split train"),
    "YOLO's splits": (
        ["train/images/1.jpg", "val/images/1.jpg"],
        ["train/labels/1.txt", "val/labels/1.txt", "data.yaml"],
        "{0} and --yolo {0}/data.yaml --split train",
    ),
    "COCO": (
        ["train2017/1.jpg", "val2017/1.jpg"],
        ["annotations/instances_val2017.json"],
        "{0}/val2017 and --coco {0}/annotations/instances_val2017.json",
    ),
}


@pytest.mark.parametrize("case", ANNOTATED)
def test_directories_of_annotations_that_are_no_classes_name_the_option(case: str, tmp_path: Path) -> None:
    images, others, way = ANNOTATED[case]
    for name in images:
        solid(tmp_path / name)
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(SourceError) as refused:
        packer.convert(tmp_path, tmp_path.with_suffix(".lmdb"))
    pattern = re.sub(r"--(\w+) (\S+)", r"\1='\2'", f"To convert the images with .*, pass {way.format(tmp_path)}")
    assert re.search(pattern, str(refused.value)), str(refused.value)
