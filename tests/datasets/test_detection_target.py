"""Items of `target="coco"`: the targets that torchvision's detectors are trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer import Loader, open_dataset
from packer._conversion.convert import convert
from packer._sources.coco import coco_source
from packer.testing.reference import torchvision
from tests.cocoset import draw_coco

torchvision()
from torchvision import datasets, tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

KEYS = {"boxes", "labels", "masks", "image_id", "area", "iscrowd"}
ANNOTATED = 40


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a pack, the images that it was made of, and their annotations."""
    root = tmp_path_factory.mktemp("coco")
    file = draw_coco(root)["instances"]
    convert(coco_source(root / "images", [file]), root / "pack.lmdb")
    return root / "pack.lmdb", root / "images", file


def test_items_are_those_of_torchvisions_wrapped_coco_detection(drawn: tuple[Path, Path, Path]) -> None:
    pack, images, file = drawn
    theirs = datasets.wrap_dataset_for_transforms_v2(datasets.CocoDetection(images, file), target_keys=KEYS)
    dataset = open_dataset(pack, target="coco")
    for index in range(ANNOTATED):
        (image, target), (expected, wanted) = dataset[index], theirs[index]
        assert torch.equal(image, v2.functional.pil_to_tensor(expected))
        assert set(target) == KEYS
        assert isinstance(image, tv_tensors.Image)
        assert isinstance(target["boxes"], tv_tensors.BoundingBoxes)
        assert isinstance(target["masks"], tv_tensors.Mask)
        for name in set(wanted) - {"image_id"}:
            assert torch.equal(target[name], torch.as_tensor(wanted[name])), name
        assert target["image_id"] == wanted["image_id"]


@pytest.mark.parametrize("degrees", [0, 40])
def test_a_crop_and_a_turn_move_boxes_and_masks(degrees: float, drawn: tuple[Path, Path, Path]) -> None:
    crop = packer.Compose([packer.RandomResizedCrop(32), packer.RandomHorizontalFlip(0.5)])
    dataset = open_dataset(drawn[0], target="coco", crop=crop, seed=1, min_visible=0.2)
    dataset.augment = packer.augment.RandomRotation(degrees) if degrees else None
    looked_at = 0
    for image, target in dataset:
        count = len(target["boxes"])
        assert image.shape == (3, 32, 32)
        assert target["masks"].shape == (count, 32, 32)
        assert len(target["labels"]) == len(target["area"]) == len(target["iscrowd"]) == count
        for box, mask in zip(target["boxes"], target["masks"], strict=True):
            rows, columns = torch.nonzero(mask, as_tuple=True)
            if len(rows):
                left, top, right, bottom = box.tolist()
                inside = left - 2 <= columns.min() and columns.max() <= right + 2
                looked_at += 1
                assert inside
                assert top - 2 <= rows.min()
                assert rows.max() <= bottom + 2
    assert looked_at > 20
    plain = open_dataset(drawn[0], target="coco", crop=crop, seed=1)
    assert torch.equal(plain[0][0], dataset[0][0]) == (degrees == 0)


def test_a_joint_transform_takes_image_and_target_and_a_loader_gives_lists(drawn: tuple[Path, Path, Path]) -> None:
    transforms: Any = v2.Compose([v2.RandomHorizontalFlip(1), v2.ToDtype(torch.float32, scale=True)])
    plain = open_dataset(drawn[0], target="coco", output="tensor")
    flipped = open_dataset(drawn[0], target="coco", output="tensor", transforms=transforms)
    images, targets = next(iter(Loader(flipped, 4, threads=1)))
    for image, target, (before, wanted) in zip(images, targets, plain[:4], strict=True):
        assert torch.equal(image, v2.functional.to_dtype(before.flip(2), torch.float32, scale=True))
        assert torch.equal(target["masks"], wanted["masks"].flip(2))
        assert torch.equal(target["boxes"], v2.functional.horizontal_flip(wanted["boxes"]))


def test_a_pack_without_boxes_has_no_target(tmp_path: Path) -> None:
    packer.pack([{"image": torch.zeros(4, 4, 3).byte().numpy()}], tmp_path / "pack.pth")
    with pytest.raises(ValueError, match="needs the fields boxes and category"):
        open_dataset(tmp_path / "pack.pth", target="coco")
