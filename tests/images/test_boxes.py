"""Crops and orientations move boxes and keypoints to torchvision's positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st

from packer._images.boxes import crop_boxes, crop_keypoints, turn_boxes, turn_keypoints
from packer._images.decode import apply_orientation
from packer._images.geometry import PADDINGS, Box
from packer._images.resize import ResizeSpec
from packer.crops import Compose, Pad, RandomHorizontalFlip, RandomResizedCrop, ResizeCenterCrop
from packer.testing.reference import torchvision
from tests.images.test_cropping import boxes as records

torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

Numbers = npt.NDArray[np.float32]
SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90))


def drawn_boxes(size: tuple[int, int], seed: int, count: int = 9) -> Numbers:
    points = np.random.default_rng(seed).random((count, 2, 2)) * (size[1], size[0])
    return np.concatenate([points.min(1), points.max(1)], 1).astype(np.float32)


def drawn_keypoints(size: tuple[int, int], seed: int) -> Numbers:
    rng = np.random.default_rng(seed)
    points = rng.random((4, 5, 2)) * (size[1], size[0])
    return np.concatenate([points, rng.integers(0, 3, (4, 5, 1))], -1).astype(np.float32)


def executed(value: Any, box: Box) -> Any:
    """Apply the steps of a crop record with torchvision's functions."""
    value = functional.resized_crop(value, *box.rectangle, list(box.scaled))
    after = [out + cut - scaled for out, cut, scaled in zip(box.out, box.cut, box.scaled, strict=True)]
    margins = [max(0, -box.cut_left), max(0, -box.cut_top), max(0, after[1]), max(0, after[0])]
    value = functional.pad(value, margins)
    value = functional.crop(value, margins[1] + box.cut_top, margins[0] + box.cut_left, *box.out)
    return functional.horizontal_flip(value) if box.flip else value


def boxes_by_torchvision(boxes: Numbers, size: tuple[int, int], box: Box) -> Numbers:
    value = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=size)  # type: ignore[call-overload]
    moved = functional.clamp_bounding_boxes(executed(value, box))
    return np.asarray(moved)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), size=SIZES, seed=st.integers(0, 1000))
def test_boxes_lie_where_torchvision_puts_them(data: st.DataObject, size: tuple[int, int], seed: int) -> None:
    box = data.draw(records(size))._replace(padding=0)
    boxes = drawn_boxes(size, seed)
    expected = boxes_by_torchvision(boxes, size, box)
    moved, kept = crop_boxes(boxes, box, min_size=0)
    assert moved.dtype == np.float32
    sides = expected[:, 2:] - expected[:, :2]
    assert np.allclose(moved, expected[kept], atol=1e-3)
    assert (sides[~kept].min(1, initial=0) <= 1e-3).all()
    assert (sides[kept].min(1, initial=1) >= 0).all()


@settings(max_examples=200, deadline=None)
@given(data=st.data(), size=SIZES, seed=st.integers(0, 1000), least=st.sampled_from([1.0, 2.5]))
def test_boxes_are_dropped_as_torchvision_sanitizes(
    data: st.DataObject, size: tuple[int, int], seed: int, least: float
) -> None:
    box = data.draw(records(size))._replace(padding=0)
    boxes = drawn_boxes(size, seed)
    expected = torch.from_numpy(boxes_by_torchvision(boxes, size, box))
    sides = expected[:, 2:] - expected[:, :2]
    if (sides - least).abs().min() < 1e-3:
        return  # a side is so close to the least size that rounding decides
    _, valid = functional.sanitize_bounding_boxes(expected, "XYXY", box.out, min_size=least)
    assert np.array_equal(crop_boxes(boxes, box, min_size=least).kept, valid)


def test_boxes_are_dropped_below_the_visible_share_that_one_sets() -> None:
    boxes = np.array([[0, 0, 10, 10], [10, 0, 30, 10], [40, 5, 44, 6], [15, 5, 15, 9]], np.float32)
    box = Box.of((0, 0, 10, 20), (20, 40))
    for share, kept in ((0, [1, 1, 0, 0]), (0.5, [1, 1, 0, 0]), (0.51, [1, 0, 0, 0]), (1, [1, 0, 0, 0])):
        moved = crop_boxes(boxes, box, min_visible=share)
        assert moved.kept.tolist() == [bool(number) for number in kept]
        assert moved.boxes.tolist() == [[[0, 0, 20, 20], [20, 0, 40, 20]][number] for number in range(sum(kept))]
    assert crop_boxes(boxes, box, min_size=0).kept.tolist() == [True, True, False, False]
    none = crop_boxes(np.zeros((0, 4), np.float32), box)
    assert (none.boxes.shape, none.kept.shape) == ((0, 4), (0,))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), size=SIZES, seed=st.integers(0, 1000))
def test_keypoints_lie_where_torchvision_puts_them(data: st.DataObject, size: tuple[int, int], seed: int) -> None:
    box = data.draw(records(size))._replace(padding=0)
    keypoints = drawn_keypoints(size, seed)
    value = tv_tensors.KeyPoints(torch.from_numpy(keypoints[..., :2].copy()), canvas_size=size)  # type: ignore[call-overload]
    expected = np.asarray(functional.clamp_keypoints(executed(value, box)))
    moved = crop_keypoints(keypoints, box)
    assert moved.dtype == np.float32
    assert np.allclose(moved[..., :2], expected, atol=1e-3)
    unflipped = np.asarray(executed(value, box._replace(flip=0)))
    inside = ((unflipped >= 0) & (unflipped < (box.out_width, box.out_height))).all(-1)
    assert not (moved[..., 2] * ~inside).any()


def test_keypoints_that_leave_the_window_are_not_visible() -> None:
    keypoints = np.array([[[9.5, 2, 2], [10, 2, 2], [3, 2, 1], [2.9, 2, 2], [5, 5, 0]]], np.float32)
    box = Box.of((0, 3, 10, 7), (10, 7), (0, -2), (10, 11), flip=True)
    moved = crop_keypoints(keypoints, box)
    assert moved[0, :, 2].tolist() == [2, 0, 1, 0, 0]
    assert np.allclose(moved[0, :, 0], [1.5, 1, 8, 8.1, 6])
    assert crop_keypoints(np.zeros((0, 0, 3), np.float32), box).shape == (0, 0, 3)


def test_the_last_column_of_a_shrunk_image_stays_visible() -> None:
    keypoints = np.array([[[99, 99, 2]]], np.float32)
    for flip in (False, True):
        moved = crop_keypoints(keypoints, Box.of((0, 0, 100, 100), (10, 10), flip=flip))
        assert moved[0, 0].tolist() == [0 if flip else 9, 9, 2]


@pytest.mark.parametrize("mode", PADDINGS[1:])
def test_padding_with_the_images_own_pixels_is_refused(mode: str) -> None:
    padded = Box.of((0, 0, 9, 9), (9, 9), (-1, 0), (11, 9))._replace(padding=PADDINGS.index(mode))
    for move in (lambda: crop_boxes(np.zeros((1, 4), np.float32), padded), lambda: crop_keypoints(KEYPOINTS, padded)):
        with pytest.raises(ValueError, match=f"{mode} padding"):
            move()
    inside = padded._replace(cut_top=0, out_height=9)
    assert crop_keypoints(KEYPOINTS, inside).shape == KEYPOINTS.shape


KEYPOINTS = drawn_keypoints((9, 9), 0)


@pytest.mark.parametrize(
    ("crop", "transform"),
    [
        (RandomResizedCrop(24, flip=0.5), v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip()])),
        (ResizeCenterCrop(20, 26), v2.Compose([v2.Resize(26), v2.CenterCrop(20)])),
        (
            Compose([Pad((3, 1, 4, 2)), RandomHorizontalFlip()]),
            v2.Compose([v2.Pad([3, 1, 4, 2]), v2.RandomHorizontalFlip()]),
        ),
    ],
)
def test_the_transforms_of_torchvision_move_boxes_and_keypoints_so(crop: Any, transform: Any) -> None:
    size, boxes, keypoints = (41, 57), drawn_boxes((41, 57), 3), drawn_keypoints((41, 57), 3)
    for seed in range(10):
        torch.manual_seed(seed)
        (record,) = crop.choose(np.array([41]), np.array([57]))
        box = Box(*record.item())
        torch.manual_seed(seed)
        _, moved, points = transform(
            tv_tensors.Image(torch.zeros((3, *size), dtype=torch.uint8)),
            tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=size),  # type: ignore[call-overload]
            tv_tensors.KeyPoints(torch.from_numpy(keypoints[..., :2].copy()), canvas_size=size),  # type: ignore[call-overload]
        )
        found, kept = crop_boxes(boxes, box)
        assert np.allclose(found, np.asarray(functional.clamp_bounding_boxes(moved))[kept], atol=1e-3)
        clamped = np.asarray(functional.clamp_keypoints(points))
        assert np.allclose(crop_keypoints(keypoints, box)[..., :2], clamped, atol=1e-3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_boxes_and_keypoints_show_the_same_pixels(orientation: int) -> None:
    height, width = size = 6, 9
    pixels = np.arange(height * width).reshape(size)
    upright = apply_orientation(pixels, orientation)
    for top, left in np.ndindex(height - 2, width - 3):
        box = np.array([[left, top, left + 3, top + 2]], np.float32)
        x, y, right, bottom = turn_boxes(box, orientation, size)[0].astype(int).tolist()
        before, after = pixels[top : top + 2, left : left + 3], upright[y:bottom, x:right]
        assert np.array_equal(apply_orientation(before, orientation), after)
        keypoint = np.array([[[left, top, 2]]], np.float32)
        x, y, visibility = turn_keypoints(keypoint, orientation, size)[0, 0].astype(int).tolist()
        assert (upright[y, x], visibility) == (pixels[top, left], 2)
    assert turn_boxes(np.zeros((0, 4), np.float32), orientation, size).shape == (0, 4)


def test_what_is_resized_while_packing_moves_boxes_too() -> None:
    boxes = np.array([[10, 5, 20, 15]], np.float32)
    assert crop_boxes(boxes, ResizeSpec(20, "short").box(40, 80)).boxes.tolist() == [[5, 2.5, 10, 7.5]]
    assert crop_boxes(boxes, ResizeSpec(40, "pad").box(40, 80)).boxes.tolist() == [[5, 12.5, 10, 17.5]]
    assert crop_boxes(boxes, ResizeSpec(40, "crop").box(40, 80)).kept.tolist() == [False]
