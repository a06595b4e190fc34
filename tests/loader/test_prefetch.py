"""Prefetchers: the same items, errors in the loop, no thread left behind."""

from __future__ import annotations

import gc
import threading
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from packer._loader.prefetch import BackgroundPrefetcher, CUDAPrefetcher, Normalizer
from packer.samplers import ShuffleSampler

Pair = namedtuple("Pair", "images labels")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OPAQUE = object()
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[needs_cuda, pytest.mark.cuda])]


class Source:
    """Batches that depend on the epoch."""

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
            yield {"pair": Pair(images, torch.arange(4)), "list": [number, "name", None, OPAQUE], "tuple": (images[0],)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [True, False])
def test_cuda_prefetcher_normalises_and_keeps_the_structure(
    device: str, dtype: torch.dtype, channels_last: bool
) -> None:
    source = Source()
    prefetcher = CUDAPrefetcher(source, device, normalize=(MEAN, STD), dtype=dtype, channels_last=channels_last)
    assert len(prefetcher) == 5
    for epoch in (0, 1, 1, 0):
        prefetcher.set_epoch(epoch)
        assert source.epoch == epoch
        for made, given in zip(prefetcher, source, strict=True):
            images = made["pair"].images
            mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
            expected = ((given["pair"].images.double() / 255 - mean) / std).to(dtype)
            torch.testing.assert_close(images.cpu(), expected, atol=1e-6 if dtype == torch.float32 else 2e-2, rtol=1e-2)
            assert images.dtype == dtype
            assert images.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
            assert {tensor.device.type for tensor in (*made["pair"], *made["tuple"])} == {device}
            assert type(made["pair"]) is Pair
            assert made["pair"].labels.tolist() == [0, 1, 2, 3]
            assert type(made["list"]) is list
            assert made["list"] == given["list"]
            assert made["list"][3] is OPAQUE
            assert type(made["tuple"]) is tuple
            assert made["tuple"][0].shape == (3, 6, 5)


@pytest.mark.parametrize("device", DEVICES)
def test_each_device_gives_the_same(device: str) -> None:
    settings: list[dict[str, Any]] = [{}, {"normalize": (MEAN, STD)}, {"dtype": torch.float16, "channels_last": False}]
    for each in settings:
        made = [batch["pair"].images for batch in CUDAPrefetcher(Source(), device, **each)]
        on_cpu = [batch["pair"].images for batch in CUDAPrefetcher(Source(), "cpu", **each)]
        for one, other in zip(made, on_cpu, strict=True):
            torch.testing.assert_close(one.cpu(), other)
            assert one.stride() == other.stride()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA GPU")
def test_a_missing_device_is_refused() -> None:
    with pytest.raises(ValueError, match="no CUDA device here; with 'cpu' the"):
        CUDAPrefetcher([], "cuda:0")


def test_the_device_is_cuda_where_there_is_one() -> None:
    prefetcher = CUDAPrefetcher(Source())
    assert prefetcher.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert len(list(prefetcher)) == 5


@pytest.mark.parametrize("device", DEVICES)
def test_cuda_prefetcher_passes_errors_on_and_can_be_left(device: str) -> None:
    with pytest.raises(RuntimeError, match="batch 3 is bad"):
        list(CUDAPrefetcher(Source(fail_at=3), device))
    prefetcher = CUDAPrefetcher(Source(), device)
    for batch in prefetcher:
        assert batch["list"][0] == 0
        break
    assert [batch["list"][0] for batch in prefetcher] == [0, 1, 2, 3, 4]


class Spy(Normalizer):
    """Records the stream that it is called on, and delays it."""

    def __init__(self, cycles: int = 0) -> None:
        super().__init__((MEAN, STD))
        self.cycles = cycles
        self.streams: list[int] = []

    def __call__(self, value: Any) -> Any:
        self.streams.append(torch.cuda.current_stream().cuda_stream)
        torch.cuda._sleep(self.cycles)
        return super().__call__(value)


def watched(source: Source, spy: Spy) -> CUDAPrefetcher:
    prefetcher = CUDAPrefetcher(source, "cuda")
    prefetcher._normalizer = spy
    return prefetcher


@needs_cuda
@pytest.mark.cuda
def test_the_next_batch_is_copied_on_a_stream_of_its_own() -> None:
    source, spy = Source(), Spy()
    current = torch.cuda.current_stream().cuda_stream
    for number, _ in enumerate(watched(source, spy)):
        assert torch.cuda.current_stream().cuda_stream == current
        assert source.made == len(spy.streams) == min(number + 2, 5)
    assert len(set(spy.streams)) == 1
    assert current not in spy.streams


@needs_cuda
@pytest.mark.cuda
def test_a_batch_is_not_used_before_it_is_complete() -> None:
    expected = [batch["pair"].images for batch in CUDAPrefetcher(Source(), "cpu", normalize=(MEAN, STD))]
    used = [batch["pair"].images * 2 for batch in watched(Source(), Spy(cycles=20_000_000))]
    for one, other in zip(used, expected, strict=True):
        torch.testing.assert_close(one.cpu(), 2 * other)


@needs_cuda
@pytest.mark.cuda
def test_memory_of_a_batch_is_not_given_away_while_it_is_used() -> None:
    """The loop drops each batch at once, while the GPU has not yet run the loop's kernels on it."""
    source = [torch.full((8, 3, 64, 64), number, dtype=torch.uint8).pin_memory() for number in range(20)]
    sums = []
    for batch in CUDAPrefetcher(source, "cuda"):
        torch.cuda._sleep(20_000_000)
        sums.append(batch.sum(dtype=torch.int64))
        del batch
    assert [int(each) for each in sums] == [number * 8 * 3 * 64 * 64 for number in range(20)]


@needs_cuda
@pytest.mark.cuda
def test_abandoned_epochs_leave_no_memory_on_the_device() -> None:
    prefetcher = CUDAPrefetcher(Source(), "cuda", normalize=(MEAN, STD))

    def abandon() -> None:
        next(iter(prefetcher))
        gc.collect()
        torch.cuda.synchronize()

    abandon()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        abandon()
    assert torch.cuda.memory_allocated() == before


def test_without_settings_nothing_changes() -> None:
    for made, given in zip(CUDAPrefetcher(Source(), "cpu"), Source(), strict=True):
        assert torch.equal(made["pair"].images, given["pair"].images)
        assert made["pair"].images.dtype == torch.uint8


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_masks_stay_as_they_are_beside_images(batch: int) -> None:
    images = torch.full((batch, 3, 5, 6), 200, dtype=torch.uint8)
    masks = [torch.full(shape, 7, dtype=torch.uint8) for shape in [(batch, 5, 6), (batch, 1, 5, 6), (batch, 4, 5, 6)]]
    for normalizer in (Normalizer((MEAN, STD)), Normalizer(dtype=torch.float16), Normalizer(channels_last=False)):
        made, *others = normalizer((images, *masks))
        assert made.dtype == (normalizer.dtype or torch.uint8)
        for other, mask in zip(others, masks, strict=True):
            assert other is mask


def test_images_have_as_many_channels_as_there_are_means() -> None:
    normalizer = Normalizer(((0.5,), (0.25,)))
    grey, rgb = torch.full((2, 1, 5, 6), 255, dtype=torch.uint8), torch.zeros((2, 3, 5, 6), dtype=torch.uint8)
    made, other = normalizer([grey, rgb])
    torch.testing.assert_close(made, torch.full((2, 1, 5, 6), 2.0))
    assert other is rgb


def test_single_images_are_normalised_where_there_is_no_batch() -> None:
    images = [torch.full((3, size, 6), 51, dtype=torch.uint8) for size in (4, 5)]
    expected = (0.2 - torch.tensor(MEAN)) / torch.tensor(STD)
    for image, (made, label) in zip(images, Normalizer((MEAN, STD))([(image, 1) for image in images]), strict=True):
        assert label == 1
        torch.testing.assert_close(made, expected.view(3, 1, 1).expand(image.shape))


@pytest.mark.parametrize(
    ("settings", "images"),
    [
        ({"normalize": ((0.5,), (0.5,))}, torch.zeros(2, 3, 5, 6, dtype=torch.uint8)),
        ({"normalize": ((0.5,) * 4, (0.5,) * 4)}, torch.zeros(2, 3, 5, 6, dtype=torch.uint8)),
        ({"normalize": (MEAN, STD)}, torch.zeros(2, 3, 5, 6)),
        ({"normalize": (MEAN, STD)}, torch.zeros(2, 5, 6, 3, dtype=torch.uint8)),
        ({"dtype": torch.float16}, torch.zeros(2, 3, 5, 6)),
    ],
)
def test_a_batch_without_an_image_to_normalise_or_convert_is_refused(
    settings: dict[str, Any], images: torch.Tensor
) -> None:
    shape = str(tuple(images.shape)).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"no such tensor.*{shape} {images.dtype}.*\(2,\) torch.int64"):
        next(iter(CUDAPrefetcher([(images, torch.arange(2))], "cpu", **settings)))


def test_masks_are_not_taken_for_images_beside_images_of_another_type() -> None:
    batch = torch.zeros(3, 3, 5, 6), torch.ones(3, 5, 6, dtype=torch.uint8)
    with pytest.raises(ValueError, match="no such tensor"):
        next(iter(CUDAPrefetcher([batch], "cpu", normalize=(MEAN, STD))))


def test_the_epoch_reaches_the_sampler_and_the_dataset_of_a_dataloader() -> None:
    class Dataset(torch.utils.data.TensorDataset):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    sampler, dataset = ShuffleSampler(5), Dataset(torch.arange(5))
    BackgroundPrefetcher(DataLoader(dataset, sampler=sampler)).set_epoch(3)
    assert (sampler.epoch, dataset.epoch) == (3, 3)


@pytest.mark.parametrize("device", ["xpu", "mps", "mtia:0", "vulkan"])
def test_a_device_that_torch_cannot_use_here_is_refused(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        with pytest.raises(ValueError, match=f"device '{device}': torch cannot use it here; with 'cpu' the"):
            CUDAPrefetcher([], device)


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
