"""packer knows which fields of converted annotations have an entry for each box, so crops need no `per_box`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import packer
from packer import Loader, RandomResizedCrop, open_dataset
from packer._fields import Field
from packer._fields.field import fields_of_boxes
from tests.sourcekinds import ROWS, SOURCES

OF_BOXES = {
    "coco": ("category", "iscrowd", "area", "bbox", "annotation_id", "keypoints"),
    "coco with masks": ("category", "area"),
    "voc": ("category", "difficult"),
    "yolo": ("category",),
    "hub, objects": ("labels",),
}
LEFT = RandomResizedCrop(32, scale=(0.05, 0.05), ratio=(1, 1))


def _convert(root: Path, kind: str) -> None:
    source, options = SOURCES[kind](root)
    packer.convert(source, root / "pack.lmdb", **options)


def _convert_again(root: Path, kind: str) -> None:
    source, options = SOURCES[kind](root)
    packer.convert(source, root / "first.h5", **options)
    packer.convert(root / "first.h5", root / "pack.lmdb", resize=24, codec="png")


def _in_parts(root: Path, kind: str) -> None:
    source, options = SOURCES[kind](root)
    if {"yolo", "masks"} & options.keys():
        pytest.skip("parts do not take fields that are computed while images are read")
    packer.convert(source, root / "pack.lmdb", parts=2, **options)


WAYS = {"converted": _convert, "resized": _convert_again, "in parts": _in_parts}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", OF_BOXES)
def test_a_crop_leaves_out_the_entries_of_boxes(kind: str, way: Callable[[Path, str], None], tmp_path: Path) -> None:
    way(tmp_path, kind)
    names = ("image", "boxes", *OF_BOXES[kind])
    dataset = open_dataset(tmp_path / "pack.lmdb", fields=names, crop=LEFT, seed=1)
    said = open_dataset(tmp_path / "pack.lmdb", fields=names, crop=LEFT, seed=1, per_box=OF_BOXES[kind])
    left = 0
    for item, expected in zip(dataset, said, strict=True):
        assert {len(item[name]) for name in names[1:]} == {len(item["boxes"])}
        for name in names:
            assert torch.equal(torch.as_tensor(item[name]), torch.as_tensor(expected[name]))
        left += len(item["boxes"])
    assert left < sum(map(len, ROWS))


@pytest.mark.parametrize("kind", OF_BOXES)
def test_batches_are_padded_alike(kind: str, tmp_path: Path) -> None:
    _convert(tmp_path, kind)
    category = OF_BOXES[kind][0]
    dataset = open_dataset(tmp_path / "pack.lmdb", fields=("image", "boxes", category), crop=RandomResizedCrop(32))
    for batch in Loader(dataset, 3, pad=4):
        assert batch["image"].shape == (3, 3, 32, 32)
        assert torch.equal(batch["boxes_count"], batch[f"{category}_count"])


def test_what_is_of_the_image_keeps_its_entries(tmp_path: Path) -> None:
    samples = [
        {"image": np.zeros((30, 40, 3), np.uint8), "boxes": [[0, 0, 4, 4]] * 2, "labels": labels}
        for labels in ([1, 2, 4], [3], [])
    ]
    packer.pack(samples, tmp_path / "pack.lmdb", fields={"boxes": "boxes", "labels": "labels"})
    with pytest.raises(ValueError, match="list in per_box="):
        open_dataset(tmp_path / "pack.lmdb", fields="all", crop=RandomResizedCrop(32))
    dataset = open_dataset(tmp_path / "pack.lmdb", fields="all", crop=LEFT, per_box=(), seed=0)
    assert [len(item["labels"]) for item in dataset] == [3, 1, 0]


def test_per_box_that_is_said_comes_first(tmp_path: Path) -> None:
    _convert(tmp_path, "coco")
    names = ("image", "boxes", "category")
    with pytest.warns(UserWarning, match="keeps all entries"):
        items = list(open_dataset(tmp_path / "pack.lmdb", fields=names, crop=LEFT, per_box=(), seed=1))
    assert [len(item["category"]) for item in items] == list(map(len, ROWS))


def test_two_fields_of_boxes_tell_nothing() -> None:
    known = {field.name: field for field in (Field("boxes", "boxes"), Field("more", "boxes"), Field("yolo", "text"))}
    assert fields_of_boxes(known, lambda name: np.zeros(1, np.int64)) is None
