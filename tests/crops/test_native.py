"""C and NumPy choose the same crops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from packer._images import native
from packer._images.native import crop_steps
from packer._table import Ints
from packer.crops import (
    CenterCrop,
    Compose,
    Crop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)
from packer.crops._steps import coded
from packer.errors import ImageError
from packer.samplers import _random

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs packer's own C")

IMAGES = 20_000
GOLDEN_NUMBERS = [0.9793433413811715, 0.9909980639336716]
GOLDEN_CROPS = [
    (57, 278, 264, 215, 224, 224, 0, 0, 224, 224, 1, 0, 0, 0),
    (0, 186, 20, 27, 224, 224, 0, 0, 224, 224, 0, 0, 0, 0),
]
CROPS = [
    RandomResizedCrop(224, flip=0.5),
    RandomResizedCrop((30, 500), (0.5, 3.0), (0.1, 9.0), "bicubic"),
    CenterCrop((99, 401)),
    ResizeCenterCrop(224, 256, flip=0.3),
    Resize(77),
    Resize((7, 9)),
    RandomCrop(10, 4, fill=(1, 2, 3), flip=0.5),
    RandomCrop((200, 300), (1, 2, 3, 4), pad_if_needed=True, padding_mode="edge"),
    Pad((5, 6, 7, 8), padding_mode="reflect"),
    Compose([RandomHorizontalFlip(), CenterCrop((401, 99))]),
    Compose([RandomHorizontalFlip(0.6), Pad((1, 2, 3, 4)), RandomCrop(8, flip=0.4)]),
    Compose([RandomCrop(4, flip=0.5), RandomHorizontalFlip(), RandomResizedCrop(15)]),
    Compose([Resize(40, "bicubic"), RandomCrop(33)]),
    Compose([]),
]


def by_numpy(crop: Crop) -> Crop:
    """Return the same crop, chosen by NumPy instead of C."""
    other = Compose([crop])
    vars(other)["_coded"] = None
    return other


@pytest.mark.parametrize("crop", CROPS, ids=repr)
def test_crops_are_the_same_chosen_in_c_and_by_numpy(crop: Crop) -> None:
    assert coded(crop._steps) is not None
    generator = np.random.default_rng(0)
    sides = 4 + np.rint(2 ** generator.uniform(0, 11.5, (2, IMAGES))).astype(np.int64)
    sides[:, :99] = 20
    random = generator.random((IMAGES, crop.randoms + 3))[:, 1 : 1 + crop.randoms]
    random[: IMAGES // 50] = 0
    random[-IMAGES // 50 :] = 1 - 2.0**-53
    np.testing.assert_array_equal(crop.choose(*sides, random), by_numpy(crop).choose(*sides, random))


@pytest.mark.parametrize("crop", CROPS, ids=repr)
def test_crops_of_numbers_that_torch_draws_are_the_same_taken_in_c_and_by_numpy(crop: Crop) -> None:
    sides = np.random.default_rng(0).integers(12, 700, (2, 300))
    taken = []
    for one in (crop, by_numpy(crop)):
        torch.manual_seed(2)
        taken.append(one.choose(*sides))
    np.testing.assert_array_equal(*taken)


@pytest.mark.parametrize("widths", [np.array([40]), np.full((4, 1), 40), np.full(5, 40)])
def test_c_reads_no_sizes_that_were_not_given(widths: Ints) -> None:
    crop = RandomResizedCrop(8)
    with pytest.raises(ValueError, match="heights and widths must have the same shape"):
        crop.choose(np.full(4, 40), widths, np.zeros((4, crop.randoms)))


def test_c_chooses_nothing_of_images_that_a_rule_refuses() -> None:
    crop = RandomCrop(30)
    heights, widths, random = np.array([40, 29]), np.array([30, 99]), np.zeros((2, 2))
    assert crop._coded is not None
    assert crop_steps.choose(crop._coded, heights, widths, random) is None
    with pytest.raises(ImageError, match="99 x 29 pixels are too small for the crop of 30 x 30") as raised:
        crop.choose(heights, widths, random)
    assert raised.value.index == 1
    assert crop_steps.choose(crop._coded, np.array([1 << 40]), np.array([30]), random[:1]) is None
    assert crop_steps.choose(crop._coded, np.array([0]), np.array([30]), random[:1]) is None


def test_random_numbers_are_the_same_made_in_c_and_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    indices = np.array([0, 1, 5, 2**40, -3, 2**63 - 1])
    for seed, epoch in ((0, 0), (-1, 7), (2**63, 2**64 + 3), (12345678901234567890, -2)):
        made = _random.uniforms(seed, epoch, indices, 25)
        with monkeypatch.context() as patched:
            patched.setattr(_random, "_native", None)
            np.testing.assert_array_equal(made, _random.uniforms(seed, epoch, indices, 25))
    assert made.shape == (6, 25)
    assert _random.uniforms(0, 0, indices[::2], 1)[:, 0].tolist() == _random.uniforms(0, 0, indices, 1)[::2, 0].tolist()


def test_random_numbers_and_crops_stay_what_they_were() -> None:
    """A seed means the same in every version, so that a continued training has the crops that it would have had."""
    numbers = _random.uniforms(7, 3, np.array([5, 10**9]), 24)
    assert numbers[:, 0].tolist() == GOLDEN_NUMBERS
    crops = RandomResizedCrop(224, flip=0.5).choose(np.array([375, 20]), np.array([500, 400]), numbers[:, :23])
    assert crops.tolist() == GOLDEN_CROPS
