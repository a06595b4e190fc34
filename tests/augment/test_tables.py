"""Automatic augmentations on images of one size take their operations from a table."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from packer import augment
from packer._images.operations import as_bytes, parted, with_operations
from packer.augment import Augmentation
from packer.augment._base import Chain
from packer.crops import RandomResizedCrop

RULES = [
    augment.TrivialAugmentWide(),
    augment.TrivialAugmentWide(7, "bilinear", (1, 2, 3)),
    augment.RandAugment(3, 5, fill=9),
    augment.AutoAugment("imagenet"),
    augment.AutoAugment("svhn", "bilinear"),
]
IMAGES = 4000


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_operations_on_images_of_one_size_are_those_beside_images_of_another(rule: Augmentation) -> None:
    random = np.random.default_rng(0).random((IMAGES + 1, rule.randoms))
    heights, widths = np.full(IMAGES + 1, 224), np.full(IMAGES + 1, 160)
    alone = rule.choose(heights[:-1], widths[:-1], random[:-1])
    heights[-1] = 100  # then no table is used, as a table is for one size
    np.testing.assert_array_equal(as_bytes(alone), as_bytes(rule.choose(heights, widths, random)[:-1]))


def test_operations_stay_what_they_were() -> None:
    rule = Chain([augment.TrivialAugmentWide(), augment.RandAugment(), augment.RandomErasing()])
    random = np.arange(1, 1 + 500 * rule.randoms).reshape(500, -1) * 0.6180339887498949 % 1
    sizes = np.full(500, 224)
    chosen = rule.choose(sizes, sizes, random)
    rounded = np.round(np.concatenate([chosen["factor"].ravel(), chosen["matrix"].ravel()]), 6) + 0.0
    whole = [chosen[name] for name in ("kind", "fill", "top", "left", "height", "width", "interpolation")]
    digest = hashlib.sha256(rounded.tobytes() + np.stack(whole).tobytes())
    assert digest.hexdigest()[:16] == "bc03de972bc55a43"


def test_crops_and_operations_are_joined_and_parted() -> None:
    crop, rule = RandomResizedCrop(50, flip=0.5), RULES[2]
    generator, sides = np.random.default_rng(1), np.full(30, 90)
    crops = crop.choose(sides, sides + 9, generator.random((30, crop.randoms)))
    operations = rule.choose(sides, sides, generator.random((30, rule.randoms)))
    joined = with_operations(crops, operations)
    np.testing.assert_array_equal(joined["out_width"], crops["out_width"])
    np.testing.assert_array_equal(joined["operations"]["factor"], operations["factor"])
    for some in (slice(None), slice(3, 17), slice(None, None, 2)):
        bare, found = parted(joined[some])
        np.testing.assert_array_equal(bare, crops[some])
        assert found is not None
        np.testing.assert_array_equal(as_bytes(found), as_bytes(operations[some]))
    assert parted(crops)[1] is None
