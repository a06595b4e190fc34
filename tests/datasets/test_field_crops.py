"""One crop cuts a sample's image, masks, boxes and keypoints, in the same way as torchvision's functions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer import CenterCrop, Compose, Pad, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, open_dataset
from packer._datasets.concat import readable
from packer._images.geometry import CROP, Box
from packer.testing.reference import torchvision
from tests.conftest import FieldPacks
from tests.fieldpack import COUNT, sample

torchvision()

from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

PER_BOX = ("category", "area", "points")
CROPS = [
    RandomResizedCrop(24, flip=0.5),
    RandomResizedCrop((33, 47), scale=(0.5, 1)),
    Compose([RandomCrop(40), RandomHorizontalFlip(0.5)]),
    Compose([Pad(12), RandomHorizontalFlip(0.5)]),
    CenterCrop(50),
]


@pytest.fixture(scope="module")
def pack(field_packs: FieldPacks) -> Path:
    return field_packs(".pth")


def cut(dataset: Any, number: int) -> Box:
    """Return the crop that the dataset draws for a sample."""
    return Box(*readable(dataset).choose(np.array([number]), 0, dataset.seed).astype(CROP)[0].item())


def by_torchvision(value: Any, box: Box) -> Any:
    """Return a tv_tensor cut by torchvision's functions."""
    part = functional.resized_crop(value, *box.rectangle, list(box.scaled), antialias=True)
    top, left = box.cut
    (tall, wide), (height, width) = box.scaled, box.out
    part = functional.pad(part, [max(-left, 0), max(-top, 0), max(left + width - wide, 0), max(top + height - tall, 0)])
    part = functional.crop(part, max(top, 0), max(left, 0), height, width)
    return functional.horizontal_flip(part) if box.flip else part


@pytest.mark.parametrize("crop", CROPS, ids=lambda crop: type(crop).__name__)
def test_all_fields_are_cut_as_torchvision_cuts_them(crop: Any, pack: Path) -> None:
    dataset = open_dataset(pack, fields="all", crop=crop, seed=3, per_box=PER_BOX, fill={"mask": 0})
    whole = open_dataset(pack, fields="all", fill={"mask": 0})
    for number in range(COUNT):
        item, given, box = dataset[number], whole[number], cut(dataset, number)
        for name in ("image", "mask"):
            assert torch.equal(item[name], by_torchvision(given[name], box)), (name, number)
        levels = by_torchvision(given["depth"].float(), box)
        assert (item["depth"].float() - levels).abs().max() <= 1
        assert item["boxes"].canvas_size == item["points"].canvas_size == box.out
        boxes = functional.clamp_bounding_boxes(by_torchvision(given["boxes"], box))
        kept = ((boxes[:, 2:] - boxes[:, :2]) >= 1).all(1)
        torch.testing.assert_close(item["boxes"], boxes[kept], rtol=0, atol=1e-3)
        points = functional.clamp_keypoints(by_torchvision(given["points"], box))
        torch.testing.assert_close(item["points"], points[kept], rtol=0, atol=1e-3)
        for name in ("category", "area"):
            assert torch.equal(item[name], given[name][kept])


def test_a_box_goes_where_its_pixels_go(pack: Path) -> None:
    """Red is a pixel's row and green its column, so the pixels inside a box show its position in the whole image."""
    crop = Compose([RandomCrop(40), RandomHorizontalFlip(0.5)])
    fields = ("image", "mask", "boxes", "category")
    dataset = open_dataset(pack, fields=fields, crop=crop, seed=5, per_box=("category",), min_visible=0.2)
    looked_at = 0
    for number in range(COUNT):
        item, given = dataset[number], sample(number)
        rows, columns, _ = item["image"].long()
        if item["mask"] is not None:
            assert torch.equal(item["mask"][0].long(), rows // 2 + columns // 2)
        for box, category in zip(item["boxes"], item["category"].tolist(), strict=True):
            first, last = given["boxes"][category - 10 * number].reshape(2, 2)
            left, top, right, bottom = box.round().long().tolist()
            for places, low, high in [(rows, first[1], last[1]), (columns, first[0], last[0])]:
                part = places[top:bottom, left:right]
                assert low - 1 <= part.min() <= part.max() <= high + 1
            looked_at += 1
    assert looked_at > 5


def test_boxes_of_which_little_is_left_are_left_out(pack: Path) -> None:
    counts = {}
    for least in (0.0, 0.3, 0.9):
        dataset = open_dataset(pack, fields=("boxes",), crop=CenterCrop(40), min_visible=least)
        counts[least] = sum(len(item["boxes"]) for item in dataset)
    assert counts[0.0] > counts[0.3] > counts[0.9]


def test_around_an_image_a_mask_shows_what_fill_says(pack: Path) -> None:
    item = open_dataset(pack, fields=("mask", "image"), crop=Pad(3), fill={"mask": 255})[2]
    assert (item["mask"][0, :3] == 255).all()
    assert (item["image"][:, :3] == 0).all()
    assert torch.equal(item["mask"][0, 3:-3, 3:-3], torch.from_numpy(sample(2)["mask"]))


def test_a_joint_transform_is_fused_where_that_is_exact(pack: Path) -> None:
    transforms = v2.Compose(
        [
            v2.RandomResizedCrop(24),
            v2.RandomHorizontalFlip(),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
        ]
    )
    settings: Any = {"fields": ("image", "mask", "age"), "transforms": transforms, "fill": {"age": 0}}
    plain, fused = (open_dataset(pack, fuse=fuse, **settings) for fuse in (False, True))
    assert "packer: " in repr(fused)
    for number in (0, 3, 8):
        torch.manual_seed(number)
        expected = plain[number]
        torch.manual_seed(number)
        item = fused[number]
        assert torch.equal(item["image"], expected["image"])
        assert torch.equal(item["mask"], expected["mask"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fields": ("image", "boxes")}, "packer's crops remove boxes"),
        ({"fields": ("image", "depth")}, "the transform also resizes image fields"),
        ({"fields": ("image", "mask"), "fill": {"mask": 255}}, "pads masks"),
        (
            {"fields": ("image", "mask"), "transforms": v2.ColorJitter()},
            "does not support the first step of the transform",
        ),
        ({"fields": ("image", "mask"), "transforms": None, "transform": v2.RandomResizedCrop(8)}, "the image"),
    ],
)
def test_what_is_not_fused_is_said(settings: dict[str, Any], words: str, pack: Path) -> None:
    with pytest.warns(UserWarning, match=words):
        dataset = open_dataset(pack, **{"transforms": v2.RandomResizedCrop(8), **settings}, fuse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "packer: " not in repr(dataset)
        assert dataset[2]["image"] is not None


def test_crops_without_a_seed_are_torchs(pack: Path) -> None:
    dataset = open_dataset(pack, fields=("image", "mask"), crop=packer.RandomResizedCrop(16))
    torch.manual_seed(1)
    first = dataset[3]["mask"], dataset[3]["mask"]
    torch.manual_seed(1)
    assert torch.equal(first[0], dataset[3]["mask"])
    assert not torch.equal(*first)


def test_a_crop_that_would_leave_segmentations_where_they_are_is_refused(tmp_path: Path) -> None:
    samples = [{"image": np.zeros((8, 9, 3), np.uint8), "shapes": [[[0, 0, 5, 0, 5, 5]], None]}]
    packer.pack(samples, tmp_path / "pack.lmdb", fields={"shapes": "segmentation"})
    assert open_dataset(tmp_path / "pack.lmdb", fields="all")[0]["shapes"] == samples[0]["shapes"]
    with pytest.raises(ValueError, match=r"cannot cut the polygons and run lengths of shapes: .* target='coco'"):
        open_dataset(tmp_path / "pack.lmdb", fields="all", crop=packer.CenterCrop(4))


def test_a_list_that_keeps_its_entries_where_boxes_go_is_said_once(tmp_path: Path) -> None:
    boxes = [[0, 0, 4, 4], [30, 30, 40, 40], [31, 31, 44, 44]]
    samples = [{"image": np.zeros((48, 48, 3), np.uint8), "boxes": boxes, "kinds": [1, 2, 3], "areas": [1.0, 2.0, 3.0]}]
    declared = {"boxes": "boxes", "kinds": "labels", "areas": "array:float32:1"}
    packer.pack(samples, tmp_path / "pack.lmdb", fields=declared)
    dataset = open_dataset(tmp_path / "pack.lmdb", fields="all", crop=CenterCrop(30), per_box=("kinds",))
    with pytest.warns(UserWarning, match="removes some of 'boxes', but 'areas' keeps all entries"):
        item = dataset[0]
    assert (len(item["boxes"]), len(item["kinds"]), len(item["areas"])) == (2, 2, 3)
    dataset[0]  # does not warn again


@pytest.mark.parametrize("packs", [1, 2])
def test_fields_follow_the_crops_of_their_images_when_a_pass_loses_its_crop(packs: int, pack: Path) -> None:
    def boxes_of(crop_is_lost: bool) -> list[Any]:
        each = [open_dataset(pack, fields=("image", "boxes"), crop=RandomCrop(32), seed=1) for _ in range(packs)]
        dataset = each[0] if packs == 1 else packer.ConcatImageDataset(each)
        found = []
        for batch in packer.Loader(dataset, 2, threads=1, prefetch=1):
            found += [boxes.tolist() for boxes in batch["boxes"]]
            assert batch["image"].shape[2:] == (32, 32)
            if crop_is_lost:
                for one in each:
                    one.crop, one.augment = None, packer.augment.ColorJitter(0.4)
        return found

    assert boxes_of(crop_is_lost=True) == boxes_of(crop_is_lost=False)
