"""Random crops: torchvision's draws, one by one, from torch's generator; otherwise torchvision's distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from packer.crops import Compose, Crop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, split
from packer.samplers._random import uniforms
from packer.testing.reference import torchvision

v1 = torchvision().transforms
from torchvision.transforms import v2  # noqa: E402


def sizes(count: int, seed: int, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return heights and widths of many shapes, including extreme ones."""
    sides = np.exp(np.random.default_rng(seed).uniform(np.log(least), np.log(3000), (2, count))).astype(np.int64)
    return sides[0], sides[1]


def images(heights: np.ndarray, widths: np.ndarray) -> Any:
    return (torch.empty((3, h, w), device="meta") for h, w in zip(heights.tolist(), widths.tolist(), strict=True))


@pytest.mark.parametrize("settings", [{}, {"scale": (0.5, 1.0)}, {"scale": (0.9, 1.5), "ratio": (0.3, 0.5)}])
def test_random_resized_crop_draws_as_torchvision(settings: Any) -> None:
    heights, widths = sizes(1000, 1)
    torch.manual_seed(5)
    ours = RandomResizedCrop(224, **settings, flip=0.4).choose(heights, widths)
    state = torch.get_rng_state()
    for make in (v1.RandomResizedCrop(224, **settings), v2.RandomResizedCrop(224, **settings)):
        torch.manual_seed(5)
        for record, image in zip(ours, images(heights, widths), strict=True):
            if isinstance(make, v2.RandomResizedCrop):
                made = make.make_params([image])
                top, left, height, width = (made[name] for name in ("top", "left", "height", "width"))
            else:
                top, left, height, width = make.get_params(image, make.scale, make.ratio)
            mirrored = bool(torch.rand(1) < 0.4)
            assert record["flip"] == mirrored
            if min(height, width) > 0:  # otherwise torchvision has no pixels to resize, and fails
                assert record.item()[:4] == (top, left, height, width)
        assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("settings", [{}, {"padding": 4}, {"padding": (0, 9), "pad_if_needed": True}])
def test_random_crop_draws_as_torchvision(settings: Any) -> None:
    heights, widths = sizes(3000, 2, least=1 if "pad_if_needed" in settings else 32)
    heights[:300], widths[200:500] = 32, 32
    torch.manual_seed(6)
    ours = Compose([RandomCrop(32, **settings), RandomHorizontalFlip(0.7)]).choose(heights, widths)
    torch.manual_seed(6)
    make = v2.RandomCrop(32, **settings)
    for record, image in zip(ours, images(heights, widths), strict=True):
        made = make.make_params([image])
        left, top, _, _ = made["padding"]
        mirrored = bool(torch.rand(1) < 0.7)
        corner = record["top"] + record["cut_top"], record["left"] + record["cut_left"]
        assert corner == (made["top"] - top, made["left"] - left)
        assert record["flip"] == mirrored


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest distance of the two empirical distribution functions."""
    values = np.union1d(a, b)
    steps = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (a, b)]
    return float(np.abs(steps[0] - steps[1]).max())


COUNT = 10_000
LIMIT = 1.95 * np.sqrt(2 / COUNT)  # p = 0.001


def described(records: Any) -> dict[str, np.ndarray]:
    height, width = records["crop_height"], records["crop_width"]
    top, left = records["top"] + records["cut_top"], records["left"] + records["cut_left"]
    kinds = {"top": top, "left": left, "height": height, "width": width, "flip": records["flip"]}
    return {**kinds, "area": height * width, "aspect": width / height}


@pytest.mark.parametrize(
    "crop",
    [
        RandomResizedCrop(224, flip=0.3),
        RandomResizedCrop(224, (0.3, 0.6), (1, 4)),
        RandomCrop(40, padding=(3, 9), pad_if_needed=True, flip=0.5),
        Compose([RandomHorizontalFlip(0.6), Resize(60), RandomCrop((44, 50))]),
    ],
    ids=repr,
)
@pytest.mark.parametrize(("height", "width"), [(375, 500), (100, 1000), (64, 64), (3, 7)])
def test_uniform_numbers_give_the_distribution_of_the_draws(crop: Crop, height: int, width: int) -> None:
    """The draws are torchvision's, as the tests above show."""
    heights, widths = np.full(COUNT, height), np.full(COUNT, width)
    torch.manual_seed(0)
    theirs = described(crop.choose(heights, widths))
    ours = described(crop.choose(heights, widths, uniforms(1, 2, np.arange(COUNT), crop.randoms)))
    for name, values in ours.items():
        assert kolmogorov_smirnov(values, theirs[name]) < LIMIT, name


def test_the_default_generator_is_drawn_from_image_after_image() -> None:
    heights, widths = sizes(50, 3)
    crop = RandomResizedCrop(16, flip=0.5)
    torch.manual_seed(1)
    together = crop.choose(heights, widths)
    torch.manual_seed(1)
    alone = [crop.choose(heights[k : k + 1], widths[k : k + 1]) for k in range(50)]
    assert np.array_equal(np.concatenate(alone), together)


def test_a_flip_of_no_probability_draws_nothing() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    crop = RandomCrop(4, flip=0.0)
    crop.choose(np.array([4]), np.array([4]))
    assert torch.get_rng_state().equal(state)
    RandomHorizontalFlip(0.0).choose(np.array([4]), np.array([4]))
    assert not torch.get_rng_state().equal(state)  # torchvision's draws, too


def test_a_random_crop_of_v1_draws_as_v1() -> None:
    transform = v1.RandomCrop(20)
    crop = split(transform).crop
    assert crop is not None
    for height, width in [(20, 20), (20, 31), (31, 20), (33, 47)] * 20:
        torch.manual_seed(height + width)
        (record,) = crop.choose(np.array([height]), np.array([width]))
        state = torch.get_rng_state()
        torch.manual_seed(height + width)
        (image,) = images(np.array([height]), np.array([width]))
        assert record.item()[:4] == transform.get_params(image, transform.size)
        assert torch.get_rng_state().equal(state)


def test_a_flip_compares_as_float32() -> None:
    """torch compares its float32 number with p in float32; in float64 this number would be less than p."""
    image = torch.tensor([[[0, 1]]], dtype=torch.uint8)
    for seed in range(20):
        torch.manual_seed(seed)
        p = torch.rand(1).item() + 1e-12
        torch.manual_seed(seed)
        (record,) = RandomHorizontalFlip(p).choose(np.array([1]), np.array([2]))
        torch.manual_seed(seed)
        assert bool(record["flip"]) == (not v1.RandomHorizontalFlip(p)(image).equal(image))
