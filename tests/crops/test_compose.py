"""Chains of crops: one record describes all of them, or the chain is refused when it is made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

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
from packer.testing.reference import torchvision
from tests.crops.reference import executed, noise

torchvision()
from torchvision.transforms import v2  # noqa: E402

SIZES = [(3, 5), (31, 33), (48, 64), (97, 20), (20, 97), (130, 131)]


def settings(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a transform that both torchvision and packer have."""
    side = chance.choice([1, 16, 17, 40, (20, 33)])
    pads = {"padding": chance.choice([1, 4, (0, 3, 2, 5)]), "fill": chance.choice([0, 9])}
    pads["padding_mode"] = chance.choice(["constant", "constant", "edge"])
    return chance.choice(
        [
            ("CenterCrop", {"size": side}),
            ("Resize", {"size": side}),
            ("RandomHorizontalFlip", {"p": 0.5}),
            ("RandomHorizontalFlip", {"p": 0.5}),
            ("RandomResizedCrop", {"size": side}),
            ("RandomCrop", {"size": side, "pad_if_needed": True, **pads}),
            ("Pad", pads),
        ]
    )


def test_a_chain_is_refused_or_does_what_the_transforms_do_one_after_the_other(sweep: int) -> None:
    chance, refused, compared = random.Random(3), 0, 0
    for seed in range(600 * sweep):
        chosen = [settings(chance) for _ in range(chance.randint(2, 4))]
        try:
            crop = Compose([eval(name)(**given) for name, given in chosen])
        except ValueError:
            refused += 1
            continue
        transform = v2.Compose([getattr(v2, name)(**given) for name, given in chosen])
        height, width = chance.choice(SIZES)
        image = noise(height, width)
        torch.manual_seed(seed)
        (record,) = crop.choose(np.array([height]), np.array([width]))
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        assert executed(image, record).equal(transform(image)), (crop, height, width)
        assert torch.get_rng_state().equal(state)
        compared += 1
    assert compared > 100
    assert refused > 100


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: [Resize(9), Resize(8)], r"crop 2, Resize\(size=8.*: an earlier step resizes the image"),
        (
            lambda: [RandomResizedCrop(9), CenterCrop(8), Resize(8)],
            r"crop 3, Resize.*: an earlier step resizes the image",
        ),
        (lambda: [CenterCrop(9), Resize(8)], "crop 2, Resize.*: an earlier step may pad the image"),
        (lambda: [Pad(1), RandomResizedCrop(8)], "crop 2, RandomResizedCrop.*: an earlier step may pad the image"),
        (
            lambda: [Resize(9), CenterCrop(9), Pad(1)],
            "crop 3, Pad.*: an earlier step resizes the image and cuts off pixels",
        ),
        (lambda: [RandomCrop(9, 1), Pad(1)], "crop 2, Pad.*: an earlier step pads the image and cuts off pixels"),
        (
            lambda: [Pad(1, 3), CenterCrop(9)],
            r"crop 2, CenterCrop.*: it adds constant padding of \(0, 0, 0\), but an earlier step may add .*\(3, 3, 3\)",
        ),
        (
            lambda: [Pad(1), Pad(1, 0, "edge")],
            "crop 2, Pad.*: it adds edge padding, but an earlier step may add constant",
        ),
        (
            lambda: [Pad(1, 0, "reflect"), Pad(1, 0, "reflect")],
            "crop 2, Pad.*: .* reflect padding of a padded image is not supported",
        ),
    ],
)
def test_what_one_record_cannot_say_is_refused_with_the_crop_and_the_reason(
    made: Callable[[], list[Crop]], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^Compose cannot apply its {reason}"):
        Compose(made())


def cropped(image: torch.Tensor, crops: list[Crop]) -> torch.Tensor:
    """Apply crops one after the other."""
    for crop in crops:
        (record,) = crop.choose(np.array([image.shape[1]]), np.array([image.shape[2]]))
        image = executed(image, record)
    return image


@pytest.mark.parametrize(
    "chain",
    [
        [Resize(256), CenterCrop(224), RandomHorizontalFlip()],
        [RandomCrop(200), Resize(100), Pad(4, 0, "reflect"), RandomCrop(100)],
        [Pad(2), Pad(2), CenterCrop(300)],
        [Pad(2, 7, "edge"), Pad(2, 8, "edge")],
        [Pad(0), Resize(8)],
        [RandomCrop(300), CenterCrop(200), Resize(100)],  # never smaller than 200, so never padded
        [Resize((30, 30)), RandomCrop(20, pad_if_needed=True), CenterCrop(10)],
        [RandomCrop(40), Pad(4), RandomCrop(40)],  # the first cut becomes the rectangle
        [ResizeCenterCrop(8, 9), CenterCrop(7)],
    ],
    ids=repr,
)
def test_what_one_record_can_say_does_the_same_as_the_crops_one_after_the_other(chain: list[Crop]) -> None:
    torch.manual_seed(0)
    found = cropped(noise(400, 300), [Compose([Compose(chain)])])
    torch.manual_seed(0)
    assert found.equal(cropped(noise(400, 300), chain))


def test_crops_may_be_given_one_by_one() -> None:
    assert Compose(crop for crop in [Resize(9), CenterCrop(8)]) == Compose([Resize(9), CenterCrop(8)])  # type: ignore[arg-type]


def test_a_cut_before_any_resizing_becomes_the_rectangle() -> None:
    (record,) = Compose([RandomHorizontalFlip(1.0), RandomCrop((10, 21)), Resize(5)]).choose(
        np.array([30]), np.array([50]), np.array([[0.0, 0.0, 0.0]])
    )
    assert record.item()[:10] == (0, 29, 10, 21, 5, 10, 0, 0, 5, 10)
    assert record["flip"] == 1
