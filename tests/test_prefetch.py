"""Prefetchers: the same items, errors in the loop, no thread left behind."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from packer.prefetch import BackgroundPrefetcher, CUDAPrefetcher, Normalizer

Pair = namedtuple("Pair", "images labels")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")),
]


class Source:
    """Batches that know their epoch."""

    def __init__(self, length: int = 5, fail_at: int | None = None) -> None:
        self.length = length
        self.fail_at = fail_at
        self.epoch = 0
        self.made = 0

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(self.epoch)
        for number in range(self.length):
            if number == self.fail_at:
                raise RuntimeError(f"batch {number} is bad")
            self.made += 1
            images = torch.randint(0, 256, (4, 3, 6, 5), dtype=torch.uint8, generator=generator)
            yield {"pair": Pair(images, torch.arange(4)), "list": [number, "name", None], "tuple": (images[0],)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cuda_prefetcher_normalises_and_keeps_the_structure(device: str, dtype: torch.dtype) -> None:
    source = Source()
    prefetcher = CUDAPrefetcher(source, device, normalize=(MEAN, STD), dtype=dtype)
    assert len(prefetcher) == 5
    for epoch in range(2):
        prefetcher.set_epoch(epoch)
        assert source.epoch == epoch
        for made, given in zip(prefetcher, source, strict=True):
            images = made["pair"].images
            mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
            expected = ((given["pair"].images.double() / 255 - mean) / std).to(dtype)
            torch.testing.assert_close(images.cpu(), expected, atol=1e-6 if dtype == torch.float32 else 2e-2, rtol=1e-2)
            assert images.dtype == dtype
            assert images.device.type == device
            assert images.is_contiguous(memory_format=torch.channels_last)
            assert made["pair"].labels.tolist() == [0, 1, 2, 3]
            assert made["list"] == given["list"]
            assert made["tuple"][0].shape == (3, 6, 5)


def test_without_settings_nothing_changes() -> None:
    for made, given in zip(CUDAPrefetcher(Source(), "cpu"), Source(), strict=True):
        assert torch.equal(made["pair"].images, given["pair"].images)
        assert made["pair"].images.dtype == torch.uint8


def test_integer_results_of_normalising_are_refused() -> None:
    with pytest.raises(ValueError, match="floating point"):
        Normalizer((MEAN, STD), torch.int32)


def test_background_prefetcher_gives_the_same_items() -> None:
    prefetcher = BackgroundPrefetcher(Source(), 2)
    assert len(prefetcher) == 5
    for _ in range(2):
        assert [item["list"][0] for item in prefetcher] == [0, 1, 2, 3, 4]
    prefetcher.set_epoch(4)
    assert prefetcher.source.epoch == 4  # type: ignore[attr-defined]


def test_background_prefetcher_passes_errors_on_behind_the_items_before() -> None:
    items = iter(BackgroundPrefetcher(Source(fail_at=3)))
    assert [next(items)["list"][0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="batch 3 is bad"):
        next(items)


def test_background_prefetcher_is_bounded_and_ends_with_the_loop() -> None:
    threads = threading.active_count()
    source = Source(1000)
    for item in BackgroundPrefetcher(source, 3):
        if item["list"][0] == 4:
            break
    assert source.made <= 5 + 3 + 1 + 1
    assert threading.active_count() == threads
