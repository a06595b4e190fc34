"""torch augments on the Loader's device with the same parameters as the Loader's threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from packer import Loader, RandomResizedCrop, augment, open_dataset
from packer._images.extension import _native
from tests.conftest import NUMBERED

CROP = RandomResizedCrop(32, flip=0.5)
RECIPE = [augment.TrivialAugmentWide(), augment.RandomErasing(1)]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[needs_cuda, pytest.mark.cuda])]


def batches(pack: Path, device: str, augment_on: str, views: bool = False, **options: Any) -> list[Any]:
    view = augment.View(CROP, RECIPE)
    settings: dict[str, Any] = {"views": [view, view]} if views else {"crop": CROP, "augment": RECIPE}
    dataset = open_dataset(pack, seed=3, **settings)
    made = Loader(dataset, 8, device=device, augment_on=augment_on, **options)
    return [([*images] if views else [images], labels.cpu()) for images, labels in made]


def far(ours: list[Any], theirs: list[Any], step: float) -> float:
    """Return the share of values that differ by more than `step`, after a check that the labels are equal."""
    counted = 0.0
    for (images, labels), (others, other_labels) in zip(ours, theirs, strict=True):
        assert torch.equal(labels, other_labels)
        for image, other in zip(images, others, strict=True):
            assert image.dtype == other.dtype
            counted += float(((image.cpu().float() - other.cpu().float()).abs() > step).float().mean()) / len(images)
    return counted / len(ours)


@pytest.mark.skipif(_native is None, reason="needs a C compiler at the installation")
@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_the_device_makes_the_pixels_of_the_threads_or_levels_beside_them(pack: Path, device: str, views: bool) -> None:
    expected = batches(pack, device, "threads", views)
    assert far(batches(pack, device, "device", views), expected, 1) < 1e-3
    assert far(batches(pack, device, "device", views, processes=1), expected, 1) < 1e-3


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_and_mixtures_come_after_augmentation(pack: Path, device: str) -> None:
    normalize, mix = ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)), augment.MixUp(num_classes=NUMBERED)
    options: dict[str, Any] = {"normalize": normalize, "mix": mix, "seed": 2}
    expected = batches(pack, device, "threads", **options)
    found = batches(pack, device, "device", **options)
    assert found[0][0][0].dtype == torch.float32
    assert far(found, expected, 1.01 / 255 / 0.2) < 1e-3


def test_what_cannot_be_augmented_on_the_device_is_refused(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, augment=RECIPE)
    with pytest.raises(ValueError, match='"threads" or "device"'):
        Loader(dataset, 8, augment_on="gpu")
    with pytest.raises(ValueError, match="needs device="):
        Loader(dataset, 8, augment_on="device")
    with pytest.raises(ValueError, match="decoded directly into a batch"):
        Loader(dataset, 8, augment_on="device", device="cpu", transform=lambda image: image)
    with pytest.raises(ValueError, match="decoded directly into a batch"):
        Loader(dataset, 8, augment_on="device", device="cpu", batch_transform=torch.clone)
    with pytest.raises(ValueError, match="decoded directly into a batch"):
        Loader(open_dataset(pack, augment=RECIPE), 8, augment_on="device", device="cpu")
