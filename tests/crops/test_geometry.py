"""The pixels of each rule are those of torchvision's transform with the same name and arguments."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from packer import crops
from packer.testing.reference import torchvision
from tests.crops.reference import executed, noise, smooth
from tests.pairs import pairwise

v1 = torchvision().transforms
from torchvision.transforms import v2  # noqa: E402

SIZES = [(1, 1), (1, 37), (37, 1), (2, 3), (31, 33), (32, 32), (33, 31), (48, 64), (47, 65), (97, 20), (300, 7)]
NAMES = {"v1": v1, "v2": v2}


def equal(rule: crops.Crop, transform: Any, height: int, width: int, levels: dict[str, int] | None = None) -> None:
    """Compare a rule with a transform, on a tensor and on a PIL image, after the same seed."""
    image = (smooth if levels else noise)(height, width)
    torch.manual_seed(height + width)
    (record,) = rule.choose(np.array([height]), np.array([width]))
    state = torch.get_rng_state()
    ours = executed(image, record).int()
    forms = {"tensor": image, "pil": Image.fromarray(image.permute(1, 2, 0).numpy())}
    for form, given in forms.items():
        torch.manual_seed(height + width)
        theirs = v2.functional.pil_to_tensor(transform(given)) if form == "pil" else transform(given)
        assert theirs.shape == ours.shape
        assert (theirs.int() - ours).abs().max() <= (levels or {}).get(form, 0), (rule, height, width, form)
        assert torch.get_rng_state().equal(state)


def levels(version: str, interpolation: str = "bilinear") -> dict[str, int]:
    """Return how many levels resized pixels may differ by: v1 resizes tensors as floats, and Pillow differs."""
    return {"tensor": int(version == "v1"), "pil": 1 + (interpolation == "bicubic")}


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize("size", [1, 8, 32, (31, 32), (33, 8), [16], (100, 7)])
def test_center_crop(version: str, size: Any) -> None:
    for height, width in SIZES:
        equal(crops.CenterCrop(size), NAMES[version].CenterCrop(size), height, width)


@pairwise(version=NAMES, size=[1, 16, 40, [24], (31, 32), (33, 8)], interpolation=["bilinear", "bicubic"])
def test_resize(version: str, size: Any, interpolation: str) -> None:
    mode = v1.InterpolationMode(interpolation)
    if size == 1 and version == "v1":
        pytest.skip("torch resizes floats to a width of one pixel wrongly")
    for height, width in SIZES:
        transform = NAMES[version].Resize(size, mode, antialias=True)
        equal(crops.Resize(size, interpolation), transform, height, width, levels(version, interpolation))


@pytest.mark.parametrize("version", NAMES)
def test_resize_with_a_largest_side(version: str) -> None:
    for (height, width), (size, most) in itertools.product(SIZES, [(4, 300), (16, 17), (16, 30), (40, 90)]):
        transform = NAMES[version].Resize(size, max_size=most, antialias=True)
        if max(height, width) > most * min(height, width):
            continue  # less than a pixel is left, and torchvision stops too
        equal(crops.Resize(size, max_size=most), transform, height, width, levels(version))


def test_sizes_of_resized_images_are_torchvisions() -> None:
    """The grid has sizes at which rounding may go either way."""
    heights, widths = (side.ravel() for side in np.mgrid[1:400:7, 1:2000:31])
    for size, most in [(224, None), (256, None), (33, None), (33, 77), (224, 1000)]:
        kept = np.maximum(heights, widths) <= (most or 10**6) * np.minimum(heights, widths)
        chosen = crops.Resize(size, max_size=most).choose(heights[kept], widths[kept])
        expected = [
            v1.functional._compute_resized_output_size(sides, [size], most)
            for sides in zip(heights[kept].tolist(), widths[kept].tolist(), strict=True)
        ]
        assert np.stack([chosen["scaled_height"], chosen["scaled_width"]], 1).tolist() == expected


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize(("size", "resize"), [(28, 32), (16, 64), ((20, 30), 24), (32, (20, 50)), (40, 16)])
def test_resize_center_crop(version: str, size: Any, resize: Any) -> None:
    transform = v1.Compose(
        [
            NAMES[version].Resize(resize, antialias=True),
            NAMES[version].CenterCrop(size),
            NAMES[version].RandomHorizontalFlip(0.5),
        ]
    )
    for height, width in SIZES:
        equal(crops.ResizeCenterCrop(size, resize, flip=0.5), transform, height, width, levels(version))


PADDINGS = [0, 3, [5], (4, 2), (1, 0, 3, 2)]
FILLS: list[tuple[Any, str]] = [(0, "constant"), (200, "constant"), *[(0, m) for m in ("edge", "reflect", "symmetric")]]


@pairwise(version=NAMES, padding=PADDINGS, filling=FILLS)
def test_pad(version: str, padding: Any, filling: tuple[Any, str]) -> None:
    fill, mode = filling
    for height, width in SIZES:
        if min(height, width) > 5 or mode in ("constant", "edge"):  # torch reflects no more than the image
            equal(crops.Pad(padding, fill, mode), NAMES[version].Pad(padding, fill, mode), height, width)


def test_pad_with_a_colour() -> None:
    for height, width in SIZES:
        equal(crops.Pad((2, 3), (255, 1, 128)), v2.Pad((2, 3), (255, 1, 128)), height, width)


@pairwise(padding=[None, *PADDINGS], filling=FILLS, size=[7, (33, 20), 64])
def test_random_crop(padding: Any, filling: tuple[Any, str], size: Any) -> None:
    fill, mode = filling
    for height, width in SIZES:
        if min(height, width) > 30 or mode in ("constant", "edge"):
            needed = {"pad_if_needed": True, "fill": fill, "padding_mode": mode}
            transform = v2.Compose([v2.RandomCrop(size, padding, **needed), v2.RandomHorizontalFlip(0.5)])
            if mode not in ("constant", "edge") and size == 64:
                continue
            equal(crops.RandomCrop(size, padding, **needed, flip=0.5), transform, height, width)


def test_random_crop_without_padding() -> None:
    for height, width in SIZES:
        for size in {(height, width), (1, width), (height, 1), (1 + height // 2, 1 + width // 2)}:
            equal(crops.RandomCrop(size), v2.RandomCrop(size), height, width)


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_random_resized_crop(version: str, interpolation: str) -> None:
    mode = v1.InterpolationMode(interpolation)
    transform = v1.Compose(
        [
            NAMES[version].RandomResizedCrop((24, 20), interpolation=mode, antialias=True),
            NAMES[version].RandomHorizontalFlip(0.3),
        ]
    )
    for height, width in SIZES:
        rule = crops.RandomResizedCrop((24, 20), interpolation=mode, flip=0.3)
        equal(rule, transform, height, width, levels(version, interpolation))


@pytest.mark.parametrize("version", NAMES)
def test_random_horizontal_flip(version: str) -> None:
    for p, (height, width) in itertools.product((0.0, 0.3, 0.5, 1.0), SIZES):
        equal(crops.RandomHorizontalFlip(p), NAMES[version].RandomHorizontalFlip(p), height, width)
