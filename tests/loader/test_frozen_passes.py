"""A pass keeps the labels and the settings that its dataset had when the pass began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer import CenterCrop, Loader, open_dataset

CROP = CenterCrop(16)
WAYS: dict[str, dict[str, Any]] = {
    "images in their batch": {"crop": CROP},
    "items": {"crop": CROP, "output": "tensor", "transform": torch.clone},
    "fields": {"crop": CROP, "fields": ("image", "label")},
    "items with fields": {"fields": ("label",), "output": "numpy"},
}


def negative(label: int) -> int:
    return -label


def labels_of(batch: Any) -> list[int]:
    labels = batch["label"] if isinstance(batch, dict) else batch[1]
    return [int(label) for label in labels]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_labels_that_change_amid_a_pass_are_those_of_the_next_pass(way: str, count: int, pack: Path) -> None:
    dataset = open_dataset([pack] * count, **WAYS[way]) if count > 1 else open_dataset(pack, **WAYS[way])
    before, after = dataset.targets.tolist(), list(range(100, 100 + len(dataset)))
    loader, found = Loader(dataset, 2, threads=2, prefetch=0), list[int]()
    for batch in loader:
        found += labels_of(batch)
        dataset.targets, dataset.target_transform = after, negative  # type: ignore[assignment]
    assert found == before
    assert [label for batch in loader for label in labels_of(batch)] == [-label for label in after]


def test_a_transform_that_is_replaced_amid_a_pass_is_that_of_the_next_pass(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, output="tensor", transform=torch.zeros_like)
    loader = Loader(dataset, 2, threads=2, prefetch=0)
    for images, _ in loader:
        assert not images.any()
        dataset.transform = torch.ones_like
    assert all(images.all() for images, _ in loader)


def test_packers_dataloader_keeps_the_labels_too(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP)
    before, found = dataset.targets.tolist(), list[int]()
    for batch in packer.DataLoader(dataset, 2, num_workers=0):
        found += labels_of(batch)
        dataset.targets = [label + 1 for label in before]  # type: ignore[assignment]
    assert found == before
