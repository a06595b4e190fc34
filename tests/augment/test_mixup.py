"""MixUp and CutMix make torchvision's numbers, and draw with torchvision's distributions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from packer import augment
from packer._images.numbers import Mixture
from packer.augment._mixup import mixed_labels
from packer.samplers._random import uniforms
from tests.augment.test_chance import same_distribution

pytest.importorskip("packer.testing.reference").torchvision()
from torchvision.transforms import v2  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[needs_cuda, pytest.mark.cuda])]
CLASSES = 7
HEIGHT, WIDTH = 24, 40
EITHER = augment.RandomChoice([augment.MixUp(num_classes=CLASSES), augment.CutMix(num_classes=CLASSES)])


def batch(count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.rand((count, 3, HEIGHT, WIDTH), generator=generator)
    return images, torch.randint(0, CLASSES, (count,), generator=generator)


def choices(rule: Any, count: int) -> list[Any]:
    return [rule.choose(HEIGHT, WIDTH, numbers) for numbers in uniforms(5, 0, np.arange(count), rule.randoms)]


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("kind", ["MixUp", "CutMix"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_mixed_batch_is_torchvisions(device: str, kind: str, shares: bool) -> None:
    images, labels = (part.to(device) for part in batch())
    if shares:
        labels = torch.nn.functional.one_hot(labels, CLASSES).float().softmax(1)
    rule, theirs = getattr(augment, kind)(num_classes=CLASSES), getattr(v2, kind)(num_classes=CLASSES)
    for seed in range(20):
        torch.manual_seed(seed)
        mixture = rule.choose(HEIGHT, WIDTH)
        if mixture.box is None:
            params = {"lam": mixture.share}
        else:
            top, left, bottom, right = mixture.box
            params = {"box": (left, top, right, bottom), "lam_adjusted": mixture.share}
        params |= {"labels": labels, "batch_size": len(labels)}
        torch.manual_seed(seed)
        made = rule(images, labels)
        for part, given in zip(made, (images, labels), strict=True):
            assert torch.equal(part, theirs.transform(given, params)), seed
        assert made[1].dtype == torch.float32


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 2 / 3, 1.0])
def test_mixed_class_ids_are_the_mixed_shares_of_one_class_each(share: float) -> None:
    for ids in ([3, 3, 0, 8, 7, 3], [8], []):
        labels, mixture = torch.tensor(ids, dtype=torch.int64), Mixture(share, None, 9)
        expected = mixed_labels(torch.nn.functional.one_hot(labels, 9).float(), mixture)
        for given in (labels, labels.repeat_interleave(2)[::2], labels.to(torch.int32)):
            assert torch.equal(mixed_labels(given, mixture), expected)


def test_mixed_labels_are_float32_whatever_torch_makes_by_default() -> None:
    labels, mixture = torch.tensor([0, 2]), Mixture(0.3, None, 4)
    torch.set_default_dtype(torch.bfloat16)
    try:
        mixed = mixed_labels(labels, mixture)
    finally:
        torch.set_default_dtype(torch.float32)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, mixed_labels(labels, mixture))


@pytest.mark.parametrize("alpha", [0.2, 3.0])
def test_the_shares_of_mixup_are_drawn_as_torchvisions(alpha: float) -> None:
    ours = np.array([mixture.share for mixture in choices(augment.MixUp(alpha=alpha, num_classes=2), 10_000)])
    torch.manual_seed(1)
    theirs = v2.MixUp(alpha=alpha, num_classes=2)
    assert same_distribution(ours, [theirs.make_params([])["lam"] for _ in range(10_000)])


def test_the_rectangles_of_cutmix_are_drawn_as_torchvisions() -> None:
    ours = choices(augment.CutMix(alpha=0.7), 10_000)
    torch.manual_seed(1)
    transform, images = v2.CutMix(alpha=0.7), [torch.zeros(1, 3, HEIGHT, WIDTH)]
    made = [transform.make_params(images) for _ in range(10_000)]
    for place, theirs in enumerate([1, 0, 3, 2]):
        assert same_distribution(np.array([one.box[place] for one in ours]), [one["box"][theirs] for one in made])
    assert same_distribution(np.array([one.share for one in ours]), [one["lam_adjusted"] for one in made])
    for top, left, bottom, right in (one.box for one in ours):
        assert 0 <= top <= bottom <= HEIGHT
        assert 0 <= left <= right <= WIDTH


def test_one_of_both_is_chosen_by_its_weight() -> None:
    rule = augment.RandomChoice([augment.MixUp(), augment.CutMix()], p=[1, 3])
    blended = sum(mixture.box is None for mixture in choices(rule, 10_000))
    assert abs(blended - 2500) < 200


def test_a_rule_is_its_settings() -> None:
    assert isinstance(EITHER, augment.Mixing)
    assert pickle.loads(pickle.dumps(EITHER)) == EITHER != augment.MixUp(num_classes=CLASSES)
    assert repr(EITHER).startswith("RandomChoice(transforms=(MixUp(")
    assert pickle.loads(pickle.dumps(augment.RandomChoice([augment.RandomErasing()]))).randoms > 1
    with pytest.raises(AttributeError, match="immutable"):
        EITHER.alpha = 2


def test_torchvisions_random_choice_takes_them_and_a_pair_is_a_batch() -> None:
    torch.manual_seed(2)
    images, labels = v2.RandomChoice([augment.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)])(*batch())
    assert (images.shape, labels.shape) == ((5, 3, HEIGHT, WIDTH), (5, CLASSES))
    torch.manual_seed(2)
    assert torch.equal(augment.MixUp(num_classes=CLASSES)([*batch()])[1].sum(1), torch.ones(5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: augment.MixUp(alpha=0), "above 0"),
        (lambda: augment.CutMix(alpha="1"), "a number"),
        (lambda: augment.MixUp(num_classes=0), "1 or more"),
        (lambda: augment.RandomChoice([augment.MixUp(), augment.RandomErasing()]), "pass it to a Loader"),
        (lambda: augment.Chain([augment.CutMix()]), "pass it to a Loader"),
        (lambda: augment.RandomChoice([augment.MixUp()], p=[0]), "a weight"),
        (lambda: augment.MixUp()(*batch()), "pass the number of classes"),
        (lambda: augment.MixUp(num_classes=3)(*batch()), "there is a label"),
        (lambda: augment.MixUp(num_classes=9)(batch()[0], batch()[1] - 9), "there is a label -"),
        (lambda: augment.MixUp(num_classes=9)(batch()[0], batch()[1].float()), "class ids"),
        (lambda: augment.MixUp(num_classes=9)(batch()[0], torch.zeros(5, 2)), "num_classes=9"),
        (lambda: augment.MixUp(num_classes=9)(batch()[0], torch.zeros(4)), "N labels"),
        (lambda: augment.MixUp(num_classes=9)(batch()[0].byte(), batch()[1]), "fractions"),
        (lambda: augment.MixUp(num_classes=9)(batch()[0]), "two tensors"),
        (lambda: augment.MixUp().choose(9, 9, np.zeros(2)), "random must have the shape"),
        (lambda: augment.MixUp().choose(9, 9, np.ones(1)), "random must contain only numbers from 0"),
        (lambda: augment.MixUp(alpha=1e-310), "alpha must be above 0, at least 1e-100"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
