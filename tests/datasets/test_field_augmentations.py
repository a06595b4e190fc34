"""Augmentations move masks, boxes and keypoints with their image, to the places of torchvision's functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from packer import CenterCrop, Loader, RandomResizedCrop, augment, open_dataset
from packer._datasets.concat import readable
from packer._images.boxes import KeptBoxes, warp_boxes, warp_keypoints
from packer._images.cropping import warp_pixels
from packer._images.extension import _native
from packer._images.operations import KINDS, Operations, parted
from packer.augment import Chain
from packer.augment._affine import inverse_matrices
from packer.testing.reference import torchvision
from tests.augment.operation import operated, operation
from tests.conftest import FieldPacks
from tests.fieldpack import COUNT

torchvision()

from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler at the installation")

PER_BOX = ("category", "area", "points")
FIELDS = ("image", "mask", "depth", "boxes", "category", "area", "points", "caption")
AFFINE = augment.RandomAffine(30, translate=(0.2, 0.1), scale=(0.6, 1.5), shear=(-10, 10, -5, 5), fill=128)
COLOURS = [augment.ColorJitter(0.4, 0.4), augment.RandomErasing(1), augment.RandomInvert(1)]


@pytest.fixture(scope="module")
def pack(field_packs: FieldPacks) -> Path:
    return field_packs(".lmdb")


def sizes_of(count: int) -> Any:
    return np.random.default_rng(count).integers(1, 70, (count, 2))


def by_torchvision(value: Any, given: dict[str, Any], fill: Any = None) -> Any:
    """Return a tv_tensor moved by torchvision; it clamps boxes itself, but keypoints only in a separate call."""
    filled = {} if isinstance(value, (tv_tensors.BoundingBoxes, tv_tensors.KeyPoints)) else {"fill": fill}
    made = F.affine(value, **given, **filled)
    return F.clamp_keypoints(made) if isinstance(value, tv_tensors.KeyPoints) else made


def drawn_affine(rng: np.random.Generator) -> dict[str, Any]:
    angle, lean, rise = rng.uniform(-180, 180), rng.uniform(-40, 40), rng.uniform(-40, 40)
    shift = rng.integers(-20, 20, 2).tolist()
    return {"angle": angle, "translate": shift, "scale": rng.uniform(0.4, 2), "shear": [lean, rise]}


def operation_of(given: dict[str, Any], **fields: Any) -> Operations:
    """Return packer's operation for parameters of torchvision's `affine`."""
    one = {name: np.array([given[name]], np.float64) for name in ("angle", "translate", "scale", "shear")}
    matrix = inverse_matrices(one["angle"], one["translate"], one["scale"], one["shear"], np.zeros((1, 2)))
    return operation("affine", matrix=matrix[0], **fields)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_masks_have_the_pixels_of_torchvision(dtype: Any, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr("packer._images.cropping._native", None)
    rng = np.random.default_rng(0)
    for number, (height, width) in enumerate(sizes_of(60).tolist()):
        given, fill = drawn_affine(rng), number % 3
        mask = rng.integers(0, 200, (height, width)).astype(dtype)
        expected = by_torchvision(tv_tensors.Mask(torch.from_numpy(mask.astype(np.int32))), given, fill).numpy()
        np.testing.assert_array_equal(warp_pixels(mask, operation_of(given), fill), expected)


def test_moved_masks_keep_numbers_that_no_float32_holds() -> None:
    mask = np.full((9, 9), 2**24 + 1, np.int32)
    assert (
        warp_pixels(mask, operation_of({"angle": 45, "translate": (0, 0), "scale": 3, "shear": (0, 0)}), 0) == mask
    ).all()


def test_all_channels_of_a_pixel_are_moved_however_many() -> None:
    one = operation_of({"angle": 30, "translate": (3, 2), "scale": 0.5, "shear": (0, 0)})
    pixels = np.random.default_rng(0).random((20, 31, 101), np.float32)
    expected = np.stack([warp_pixels(np.ascontiguousarray(pixels[..., k]), one, 0) for k in range(101)], axis=-1)
    np.testing.assert_array_equal(warp_pixels(pixels, one, 0), expected)


def test_further_images_are_filled_with_the_colour_of_the_operation() -> None:
    given = {"angle": 30, "translate": (3, 2), "scale": 0.5, "shear": (0, 0)}
    coloured, grey = operation_of(given, fill=200 + 256 * 90), operation_of(given, fill=7 + 256 * 7 + 65536 * 7)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 31, 3), np.uint8)
    np.testing.assert_array_equal(warp_pixels(pixels, coloured), operated(pixels, coloured))
    depth = pixels[..., :1].astype(np.uint16) * 256
    np.testing.assert_array_equal(warp_pixels(depth, grey), warp_pixels(depth, grey, 7))
    with pytest.raises(ValueError, match="cannot be filled with the colour"):
        warp_pixels(depth, coloured)


def test_boxes_and_keypoints_go_where_torchvision_puts_them() -> None:
    """All images in one call: with two moves, one or none; some have no boxes."""
    rng, count = np.random.default_rng(1), 40
    sizes = sizes_of(count)
    operations = np.zeros((count, 3), operation("affine").dtype)
    boxes, points, expected = [], [], []
    for number, (height, width) in enumerate(sizes.tolist()):
        corners = rng.random((number % 5, 2, 2)) * (width, height)
        own = np.concatenate([corners.min(1), corners.max(1)], 1).astype(np.float32)
        keypoints = np.dstack([*np.moveaxis(corners, 2, 0), np.full((len(own), 2), 2.0)]).astype(np.float32)
        size = {"canvas_size": (height, width)}
        put: Any = tv_tensors.BoundingBoxes(own, format="XYXY", **size)
        dots: Any = tv_tensors.KeyPoints(keypoints[..., :2], **size)
        kept = np.ones(len(own), bool)
        operations[number, 1] = operation("brightness", factor=0.5)[0]
        for place in range(0, 3, 2) if number % 3 == 0 else range(number % 3 - 1):
            given = drawn_affine(rng)
            operations[number, place] = operation_of(given)[0]
            put, dots = by_torchvision(put, given), by_torchvision(dots, given)
            kept &= np.asarray((put[:, 2:] - put[:, :2] >= 1).all(1))
        boxes.append(KeptBoxes(own, np.ones(len(own), bool)))
        points.append(keypoints)
        expected.append((put.numpy(), kept, dots.numpy()))
    found = warp_boxes(boxes, operations, sizes)
    for one, dots, (put, kept, places) in zip(found, warp_keypoints(points, operations, sizes), expected, strict=True):
        assert one is not None
        assert dots is not None
        np.testing.assert_array_equal(one.kept, kept)
        np.testing.assert_allclose(one.boxes, put[kept], atol=1e-3)
        np.testing.assert_allclose(dots[..., :2], places, atol=1e-3)
    assert 0 < sum(len(one.boxes) for one in found if one is not None) < sum(len(one.boxes) for one in boxes)
    assert warp_boxes([None, boxes[1]], operations[:2], sizes[:2])[0] is None


def test_the_visibility_of_a_keypoint_that_leaves_the_image_becomes_0() -> None:
    given = {"angle": 0, "translate": (10, 0), "scale": 1, "shear": (0, 0)}
    points = np.array([[[5, 5, 2], [25, 5, 2]]], np.float32)
    (made,) = warp_keypoints([points], operation_of(given)[None], np.array([[20, 30]]))
    np.testing.assert_allclose(made, [[[15, 5, 2], [29, 5, 0]]], atol=1e-5)


def test_a_box_of_which_too_little_is_left_is_dropped() -> None:
    given = {"angle": 0, "translate": (15, 0), "scale": 1, "shear": (0, 0)}
    boxes = KeptBoxes(np.array([[0, 0, 20, 10], [10, 0, 20, 10]], np.float32), np.array([True, False, True]))
    for min_visible, kept in ((0.4, [True, False, True]), (0.6, [True, False, False])):
        (made,) = warp_boxes([boxes], operation_of(given)[None], np.array([[20, 30]]), min_visible=min_visible)
        assert made is not None
        np.testing.assert_array_equal(made.kept, kept)
        np.testing.assert_allclose(made.boxes[0], [15, 0, 30, 10], atol=1e-5)


@pytest.mark.parametrize("rule", [AFFINE, augment.RandomRotation(180), augment.RandAugment(2), [*COLOURS, AFFINE]])
def test_fields_of_a_dataset_are_moved_as_the_image(rule: Any, pack: Path) -> None:
    crop = RandomResizedCrop((40, 50), scale=(0.5, 1), flip=0.5)
    settings: Any = {"fields": FIELDS, "crop": crop, "seed": 3, "per_box": PER_BOX, "fill": {"mask": 9}}
    plain, dataset = open_dataset(pack, **settings), open_dataset(pack, augment=rule, **settings)
    _, operations = parted(readable(dataset).choose(np.arange(COUNT), 0, 3))
    assert operations is not None
    sizes, changed = np.array([[40, 50]]), 0
    for number in range(COUNT):
        item, before, own = dataset[number], plain[number], operations[number]
        image, depth = (before[name].permute(1, 2, 0).contiguous().numpy() for name in ("image", "depth"))
        np.testing.assert_array_equal(item["image"].permute(1, 2, 0), operated(image, own))
        np.testing.assert_array_equal(item["depth"].permute(1, 2, 0), warp_pixels(depth, own))
        np.testing.assert_array_equal(item["mask"][0], warp_pixels(before["mask"][0].numpy(), own, 9))
        alone = KeptBoxes(before["boxes"].numpy(), np.ones(len(before["boxes"]), bool))
        (boxes,) = warp_boxes([alone], own[None], sizes)
        assert boxes is not None
        np.testing.assert_array_equal(item["boxes"].numpy(), boxes.boxes)
        for name in ("category", "area"):
            assert torch.equal(item[name], before[name][boxes.kept])
        own_points, made_points = (
            np.dstack([one["points"].numpy(), one["points_visibility"].numpy()]).astype(np.float32)
            for one in (before, item)
        )
        (points,) = warp_keypoints([own_points], own[None], sizes)
        assert points is not None
        np.testing.assert_array_equal(made_points, points[boxes.kept])
        assert item["caption"] == before["caption"]
        assert item["boxes"].canvas_size == item["points"].canvas_size == (40, 50)
        changed += not torch.equal(item["mask"], before["mask"])
    assert changed > 0


def test_batches_of_a_loader_have_the_moved_fields(pack: Path) -> None:
    settings: Any = {"fields": FIELDS, "crop": CenterCrop(40), "seed": 3, "per_box": PER_BOX, "fill": {"mask": 9}}
    dataset = open_dataset(pack, augment=[*COLOURS, AFFINE], **settings)
    items = [dataset[number] for number in range(COUNT)]
    batch = next(iter(Loader(dataset, COUNT, threads=2)))
    for number, item in enumerate(items):
        assert batch["caption"][number] == item["caption"]
        for name in item.keys() - {"caption"}:
            assert torch.equal(batch[name][number], item[name].as_subclass(torch.Tensor)), (name, number)


def test_colours_and_erasing_leave_fields_alone_without_a_crop(pack: Path) -> None:
    """This includes boxes that a crop would clip or drop, and lists that may have an entry for each box."""
    names = ("image", "mask", "depth", "boxes", "category", "area", "points")
    plain, dataset = open_dataset(pack, fields=names), open_dataset(pack, fields=names, augment=COLOURS)
    for number in range(COUNT):
        item, before = dataset[number], plain[number]
        for name in names[1:]:
            same = item[name] is before[name] is None or torch.equal(item[name], before[name])
            assert same, (name, number)
        assert not torch.equal(item["image"], before["image"])


def test_whole_images_and_their_fields_are_moved_without_a_crop(pack: Path) -> None:
    rule = augment.RandomAffine(0, translate=(0.5, 0.5))
    dataset = open_dataset(pack, fields=("image", "mask"), augment=rule, seed=1, fill={"mask": 0})
    plain = open_dataset(pack, fields=("image", "mask"), fill={"mask": 0})
    sizes = [tuple(plain[number]["mask"].shape[1:]) for number in range(COUNT)]
    _, operations = parted(readable(dataset).choose(np.arange(COUNT), 0, 1))
    assert operations is not None
    assert (operations["kind"] == KINDS.index("affine")).any()
    for number, size in enumerate(sizes):
        item = dataset[number]
        assert item["mask"].shape[1:] == item["image"].shape[1:] == size
        np.testing.assert_array_equal(
            item["mask"][0], warp_pixels(plain[number]["mask"][0].numpy(), operations[number], 0)
        )


def test_what_cannot_be_moved_is_refused(pack: Path) -> None:
    with pytest.raises(ValueError, match="with depth, pass interpolation='nearest'"):
        open_dataset(pack, fields=("image", "depth"), augment=[augment.RandomRotation(9, "bilinear")])
    with pytest.raises(ValueError, match="list in per_box="):
        open_dataset(pack, fields=("image", "boxes", "category"), augment=AFFINE)
    assert Chain([AFFINE]) == open_dataset(pack, fields=("image", "mask"), augment=[AFFINE]).augment
