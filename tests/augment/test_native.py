"""C and NumPy choose the same operations."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from packer._images import native
from packer.augment import (
    Augmentation,
    ColorJitter,
    RandAugment,
    RandomErasing,
    TrivialAugmentWide,
)
from packer.augment._base import Chain

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs packer's own C")

IMAGES = 5000
RULES = [
    TrivialAugmentWide(),
    TrivialAugmentWide(5, "bilinear", (1, 2, 3)),
    RandAugment(2, 9),
    RandAugment(0, 9),
    RandomErasing(),
    RandomErasing(1, (0.02, 1.0), (0.1, 9), (124, 116, 104)),
    Chain([TrivialAugmentWide(), RandomErasing(0.25), RandAugment(3, 5, 7)]),
]


def by_numpy(rule: Augmentation, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> Any:
    """Return the operations that NumPy chooses."""
    with monkeypatch.context() as patched:
        patched.setattr("packer.augment._base._native", None)
        return rule.choose(*arguments)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_operations_are_the_same_decided_on_in_c_and_by_numpy(
    rule: Augmentation, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0).random((IMAGES, rule.randoms + 3))[:, 1 : 1 + rule.randoms]
    random[: IMAGES // 50] = 0
    random[-IMAGES // 50 :] = 1 - 2.0**-53
    for height, width in ((224, 224), (32, 500), (1, 1)):
        sides = np.full(IMAGES, height), np.full(IMAGES, width)
        assert rule._coded_for(*sides) is not None
        np.testing.assert_array_equal(
            rule.choose(*sides, random), by_numpy(rule, monkeypatch, *sides, random), strict=True
        )


def test_c_decides_on_nothing_of_images_of_several_sizes_or_by_other_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = np.array([20, 30]), np.array([40, 40])
    chain = Chain([TrivialAugmentWide(), RandomErasing(1)])
    assert chain._coded_for(*sides) is None
    assert Chain([TrivialAugmentWide(), ColorJitter(0.1)])._coded_for(sides[1], sides[1]) is None
    assert TrivialAugmentWide(1000)._coded_for(sides[1], sides[1]) is None
    random = np.random.default_rng(0).random((2, chain.randoms))
    np.testing.assert_array_equal(chain.choose(*sides, random), by_numpy(chain, monkeypatch, *sides, random))


@pytest.mark.parametrize("another", [copy.copy, copy.deepcopy, lambda rule: pickle.loads(pickle.dumps(rule))])
def test_a_copy_of_a_rule_has_no_addresses_of_its_own_tables(another: Any) -> None:
    rule, sides = Chain([TrivialAugmentWide()]), np.full(50, 33)
    random = np.random.default_rng(0).random((50, rule.randoms))
    chosen = rule.choose(sides, sides, random)
    made = another(rule)
    assert "_coded" not in vars(made)
    np.testing.assert_array_equal(made.choose(sides, sides, random), chosen)
