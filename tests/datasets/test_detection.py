"""`coco_target` makes the target of torchvision's wrapped `CocoDetection`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from packer._datasets.fields import coco_target
from packer._fields.coco import drawn
from packer._sources.base import ReadBuffer
from packer._sources.coco import coco_source
from packer.testing.reference import torchvision
from tests.cocoset import draw_coco


def test_targets_are_those_of_torchvisions_wrapped_coco_detection(tmp_path: Path) -> None:
    file = draw_coco(tmp_path)["instances"]
    root = tmp_path / "images"
    keys = {"boxes", "labels", "masks", "image_id", "area", "iscrowd"}
    torchvision()
    from torchvision import datasets

    theirs = datasets.wrap_dataset_for_transforms_v2(datasets.CocoDetection(root, file), target_keys=keys)
    source = coco_source(root, [file])
    assert len(source) == len(theirs) == 200
    empty = 0
    for index in range(len(source)):
        stored = source.values(index, ReadBuffer(1))
        values = {field.name: field.decode(one) for field, one in zip(source.fields, stored, strict=True)}
        image, expected = theirs[index]
        target = coco_target(values, (image.height, image.width))
        assert set(target) == keys
        if set(expected) == {"image_id"}:
            empty += 1
            expected |= {"boxes": torch.zeros(0, 4), "masks": torch.zeros((0, image.height, image.width)).byte()}
            expected |= {"labels": torch.zeros(0).long(), "area": [], "iscrowd": []}
        assert target["image_id"] == expected["image_id"]
        for name in keys - {"image_id"}:
            wanted: Any = torch.as_tensor(expected[name])
            assert torch.equal(target[name], wanted.as_subclass(torch.Tensor)), name
            assert target[name].dtype == wanted.dtype or not len(wanted), name
    assert empty == 50


def test_a_target_has_what_there_is() -> None:
    values = {"boxes": None, "category": None, "segmentation": None}
    target = coco_target(values, (4, 5))
    assert target["boxes"].shape == (0, 4)
    assert target["masks"].shape == (0, 4, 5)
    assert "area" not in target
    boxes = np.array([[0, 0, 1, 1]], np.float32)
    boxes.flags.writeable = False
    target = coco_target({"boxes": boxes, "category": [3]}, (4, 5))
    assert target["labels"].dtype == torch.int64
    with pytest.raises(ValueError, match="its size"):
        coco_target({**values, "segmentation": [{"size": [5, 4], "counts": [20]}]}, (4, 5))


def test_masks_beyond_2_gib_are_refused_before_they_take_memory() -> None:
    values = {"boxes": None, "category": None, "segmentation": [None] * 300_000}
    with pytest.raises(ValueError, match="300,000 masks of 4000 x 5000 pixels would need more than 2 GiB"):
        coco_target(values, (4000, 5000))


def test_masks_of_sizes_that_no_image_has_are_not_drawn() -> None:
    with pytest.raises(ValueError, match="at most 178,956,970 pixels are allowed"):
        drawn([[[0, 0, 5, 0, 5, 5]]], [1], [0], 10**9, 10**9)
