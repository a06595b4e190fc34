"""Declared augmentations: repr, equality, pickling, and refused settings."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from packer import augment
from packer.errors import ImageError

RULES = [
    augment.TrivialAugmentWide(),
    augment.RandAugment(2, 9),
    augment.AutoAugment("cifar10", "bilinear", (1, 2, 3)),
    augment.ColorJitter(0.4, 0.4, 0.2, 0.1),
    augment.RandomApply([augment.GaussianBlur(9)], 0.5),
    augment.RandomErasing(0.25, value=(124, 116, 104)),
    augment.RandomAffine(10, (0.1, 0.1), shear=5),
    augment.RandomRotation(30, fill=None),
]


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        (augment.TrivialAugmentWide, "fill"),
        (augment.AutoAugment, "fill"),
        (lambda **colour: augment.RandomRotation(30, **colour), "fill"),
        (lambda **colour: augment.RandomAffine(30, **colour), "fill"),
        (augment.RandomErasing, "value"),
    ],
)
def test_a_colour_given_as_a_list_is_kept_as_it_was(rule: Callable[..., augment.Augmentation], setting: str) -> None:
    colour = [124, 116, 104]
    made = rule(**{setting: colour})
    colour[0] = 0
    assert made == rule(**{setting: (124, 116, 104)})
    assert hash(made) == hash(rule(**{setting: (124, 116, 104)}))
    sizes = np.array([32, 32])
    assert made.choose(sizes, sizes).shape == (2, made.operations)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_is_its_settings(rule: augment.Augmentation) -> None:
    again: augment.Augmentation = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert hash(again) == hash(rule)
    assert repr(again) == repr(rule)
    assert [rule != other for other in RULES].count(False) == 1
    with pytest.raises(AttributeError, match="augmentations are immutable"):
        rule.randoms = 3  # type: ignore[misc]


def test_settings_of_torchvision_are_taken() -> None:
    pytest.importorskip("packer.testing.reference").torchvision()
    from torchvision.transforms import v2

    made = augment.AutoAugment(v2.AutoAugmentPolicy.SVHN, v2.InterpolationMode.BILINEAR)
    assert made == augment.AutoAugment("svhn", "bilinear")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: augment.RandomErasing(1.5), "p must be a probability"),
        (lambda: augment.RandomErasing(value="random"), "noise"),
        (lambda: augment.RandomErasing(value=256), "0 to 255"),
        (lambda: augment.RandomErasing(scale=(0.5, 0.2)), "must be ascending"),
        (lambda: augment.RandAugment(2, 31), "less than num_magnitude_bins=31"),
        (lambda: augment.AutoAugment("coco"), "imagenet, cifar10, svhn"),
        (lambda: augment.TrivialAugmentWide(interpolation="bicubic"), "nearest, bilinear"),
        (lambda: augment.TrivialAugmentWide(1), "2 or more"),
        (lambda: augment.ColorJitter(-1), "brightness must be 0 or more"),
        (lambda: augment.ColorJitter(hue=0.6), "hue must be a number from 0 to 0.5"),
        (lambda: augment.ColorJitter(contrast=(2, 1)), "must be ascending"),
        (lambda: augment.GaussianBlur(4), "odd"),
        (lambda: augment.GaussianBlur(3, 0), "sigma"),
        (lambda: augment.RandomRotation(30, expand=True), "keep their size"),
        (lambda: augment.RandomRotation(-3), "degrees"),
        (lambda: augment.RandomPosterize(9), "0 to 8"),
        (lambda: augment.RandomSolarize(256), "0 to 255"),
        (lambda: augment.Grayscale(1), "num_output_channels must be 3"),
        (lambda: augment.RandomChoice([]), "there is nothing to choose from"),
        (lambda: augment.RandomChoice([augment.Grayscale(3)], [1, 2]), "weight"),
        (lambda: augment.RandomAffine(10, (0.1, 2)), "translate"),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: augment.RandomPosterize(2.5),  # type: ignore[arg-type]
        lambda: augment.RandAugment(True, 9),
        lambda: augment.RandomSolarize("much"),  # type: ignore[arg-type]
        lambda: augment.ColorJitter("much"),  # type: ignore[arg-type]
        lambda: augment.RandomAffine((1, 2, 3)),
        lambda: augment.Chain([print]),  # type: ignore[list-item]
        lambda: augment.RandomErasing(value=None),  # type: ignore[arg-type]
        lambda: augment.RandomErasing(value=np.array([1, 2, 3])),  # type: ignore[arg-type]
    ],
)
def test_settings_of_another_kind_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        make()


def test_an_image_that_is_too_small_for_a_blur_is_named() -> None:
    with pytest.raises(ImageError, match="40 x 11 pixels are too few for a blur with 3 x 23 pixels") as caught:
        augment.GaussianBlur((3, 23)).choose(np.array([30, 11]), np.array([40, 40]))
    assert caught.value.index == 1


def test_an_image_that_is_too_small_for_one_of_a_choice_is_named() -> None:
    rule = augment.RandomChoice([augment.Grayscale(3), augment.GaussianBlur(23)])
    random = np.zeros((4, rule.randoms))
    random[2:, 0] = 0.9  # the last two are blurred
    with pytest.raises(ImageError, match="8 x 9 pixels") as caught:
        rule.choose(np.array([99, 9, 99, 9]), np.array([99, 8, 99, 8]), random)
    assert caught.value.index == 3


def test_sizes_that_are_not_as_many_are_refused() -> None:
    rule = augment.TrivialAugmentWide()
    with pytest.raises(ValueError, match=r"heights and widths must have the same shape \(N,\), not \(2,\) and \(3,\)"):
        rule.choose(np.full(2, 9), np.full(3, 9), np.zeros((2, rule.randoms)))


def test_an_image_that_is_too_large_to_be_moved_is_named() -> None:
    rule, sides = augment.RandomChoice([augment.RandomRotation((9, 10)), augment.ColorJitter(0.5)]), np.array([5, 5])
    widths, random = np.array([1 << 20, (1 << 20) + 1]), np.array([[0.4, 0.5], [0.4, 0.5]])
    random = np.pad(random, ((0, 0), (0, rule.randoms - 2)))
    with pytest.raises(ImageError, match="1048577 x 5 pixels cannot be moved") as raised:
        rule.choose(sides, widths, random)
    assert raised.value.index == 1
    random[:, 0] = 0.6
    rule.choose(sides, widths, random)


def test_numbers_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the shape \(2, 3\), not \(2, 4\)"):
        augment.TrivialAugmentWide().choose(np.array([9, 9]), np.array([9, 9]), np.zeros((2, 4)))


@pytest.mark.parametrize("number", [1.0, -1e-9, 1e18, np.nan, np.inf])
def test_random_numbers_outside_of_0_to_1_are_refused(number: float) -> None:
    """C computes positions in tables from these numbers."""
    for rule in RULES:
        random = np.full((2, rule.randoms), 0.5)
        random[1, -1] = number
        with pytest.raises(ValueError, match=r"random must contain only numbers from 0"):
            rule.choose(np.array([99, 99]), np.array([99, 99]), random)


@pytest.mark.parametrize(
    "made",
    [
        lambda: augment.RandomRotation(1.7e308),
        lambda: augment.RandomAffine((-1.7e308, 1.7e308)),
        lambda: augment.RandomAffine(1, center=(1e300, 1e300)),
        lambda: augment.ColorJitter(brightness=1e308),
        lambda: augment.MixUp(alpha=1e300),
    ],
)
def test_numbers_of_which_infinite_ones_would_be_made_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must be a number from -1e\+100 to 1e\+100"):
        made()


def test_far_settings_make_operations_that_can_be_done() -> None:
    far = augment.RandomAffine(1e30, (1, 1), (1e-6, 1e100), (-90, 90, -90, 90), center=(1e100, -1e100))
    chain = augment.Chain([far, augment.RandomRotation(1e100), augment.ColorJitter((0, 1e100), 1e100, 1e100)])
    sizes, random = np.full(50, 7), np.random.default_rng(1).random((50, chain.randoms))
    chosen = chain.choose(sizes, sizes, random)
    assert np.isfinite(chosen["matrix"]).all()
    assert np.isfinite(chosen["factor"]).all()
