"""The Loader: the dataset's items in the sampler's order, from threads that end with the loop."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from packer import open_dataset
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._loader.loader import Loader
from packer._sources.imagefolder import imagefolder_source
from packer.crops import Compose, RandomResizedCrop, Resize, ResizeCenterCrop
from packer.errors import CorruptPackError, ImageError
from packer.samplers import BlockShuffleSampler, SequentialSampler, ShuffleSampler
from packer.testing.photos import draw_imagefolder
from tests.conftest import Packs, Trees

CROP = RandomResizedCrop(32, flip=0.5)


@pytest.fixture(scope="module", params=["keep", "raw"])
def pack(request: pytest.FixtureRequest, trees: Trees, packs: Packs) -> Path:
    return packs(trees(classes=4, per_class=13, size=(60, 80)), recipe=Recipe(request.param))


def batches(loader: Any) -> list[tuple[torch.Tensor, list[int]]]:
    return [(images.clone(), labels.tolist()) for images, labels in loader]


@pytest.mark.parametrize("crop", [CROP, ResizeCenterCrop(32, 40), Resize((24, 24))])
def test_batches_are_the_datasets_items(pack: Path, crop: Any) -> None:
    dataset = open_dataset(pack, crop=crop, seed=5)
    loader = Loader(dataset, 10, threads=3)
    assert len(loader) == 6
    made = batches(loader)
    assert [len(labels) for _, labels in made] == [10, 10, 10, 10, 10, 2]
    images = torch.cat([images for images, _ in made])
    assert images.dtype == torch.uint8
    assert all(part.is_contiguous(memory_format=torch.channels_last) for part, _ in made)
    assert [label for _, labels in made for label in labels] == dataset.targets.tolist()
    for index, image in enumerate(images):
        assert torch.equal(image, dataset[index][0])


def test_neither_threads_nor_prefetching_change_anything(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    first = batches(Loader(dataset, 7, shuffle=True, seed=0, threads=1, prefetch=0))
    for threads, prefetch in [(2, 1), (5, 4)]:
        for (images, labels), (others, more) in zip(
            first, batches(Loader(dataset, 7, shuffle=True, seed=0, threads=threads, prefetch=prefetch)), strict=True
        ):
            assert torch.equal(images, others)
            assert labels == more


def test_epochs_differ_and_come_again(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=0), 52, shuffle=True, seed=0)
    (first,), (second,) = batches(loader), batches(loader)
    assert not torch.equal(first[0], second[0])
    assert sorted(first[1]) == sorted(second[1])
    loader.set_epoch(0)
    (again,) = batches(loader)
    assert torch.equal(first[0], again[0])
    (other,) = batches(Loader(open_dataset(pack, crop=CROP, seed=0), 52, shuffle=True, seed=1))
    assert not torch.equal(first[0], other[0])


def test_in_inference_mode(pack: Path) -> None:
    dataset = open_dataset(pack, crop=ResizeCenterCrop(32, 256))
    expected = batches(Loader(dataset, 20))
    with torch.inference_mode():
        made = batches(Loader(dataset, 20))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(expected, made, strict=True))


def test_a_batch_that_is_kept_does_not_change(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=0), 8, shuffle=True, seed=0)
    kept = [images for images, _ in loader]
    copies = [images.clone() for images in kept]
    view = kept[0][3]
    pixels = view.clone()
    del kept[1:]
    batches(loader)
    assert torch.equal(kept[0], copies[0])
    del kept
    batches(loader)
    assert torch.equal(view, pixels)


def test_without_a_crop_items_are_transformed_and_collated(pack: Path) -> None:
    dataset = open_dataset(pack, output="pil")

    def transform(image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image.resize((20, 10))))

    for loader in (
        Loader(dataset, 9, transform=transform, threads=2),
        Loader(open_dataset(pack, transform=transform, output="pil"), 9),
    ):
        images = torch.cat([images for images, _ in batches(loader)])
        assert images.shape == (52, 10, 20, 3)
        assert torch.equal(images[17], transform(dataset[17][0]))


def test_full_images_of_different_sizes_need_a_collate_function(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=Compose([])), 4, collate_fn=list)
    items = [item for batch in loader for item in batch]
    whole = open_dataset(pack)
    assert all(torch.equal(image, whole[index][0]) for index, (image, _) in enumerate(items))


def test_normalising(pack: Path) -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    dataset = open_dataset(pack, crop=ResizeCenterCrop(32, 256))
    plain = torch.cat([images for images, _ in batches(Loader(dataset, 52))]).double() / 255
    expected = (plain - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    for dtype, tolerance in [(None, 1e-5), (torch.bfloat16, 5e-2)]:
        ((images, _),) = Loader(dataset, 52, normalize=(mean, std), dtype=dtype)
        assert images.dtype == (dtype or torch.float32)
        torch.testing.assert_close(images.double(), expected, atol=tolerance, rtol=tolerance)
    ((images, _),) = Loader(dataset, 52, normalize=(mean, std), channels_last=False)
    assert images.is_contiguous()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_batches_on_a_gpu_are_those_of_the_cpu(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    settings: dict[str, Any] = {"shuffle": True, "seed": 4, "normalize": ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1))}
    expected = list(Loader(dataset, 6, **settings))
    loader = Loader(dataset, 6, device="cuda", **settings)
    assert loader.pin_memory
    made = list(loader)
    for (images, labels), (others, more) in zip(made, expected, strict=True):
        assert images.is_cuda
        assert labels.is_cuda
        assert images.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(images.cpu(), others)
        assert labels.tolist() == more.tolist()
    loader.set_epoch(0)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()  # two batches were handed out, and more were fetched
    iterator.close()
    loader.load_state_dict(state)
    for (images, _), (others, _) in zip(loader, made[2:], strict=True):
        assert torch.equal(images, others)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(
    ("dtype", "channels_last", "processes"),
    [
        (torch.float32, True, None),
        (torch.float32, False, None),
        (torch.float16, True, None),
        (torch.float16, True, 2),
        (torch.bfloat16, True, None),
    ],
)
def test_a_gpu_normalises_to_the_last_bit_as_the_threads_do(
    pack: Path, dtype: torch.dtype, channels_last: bool, processes: int | None
) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    settings: dict[str, Any] = {"normalize": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "dtype": dtype}
    settings |= {"channels_last": channels_last, "threads": 2}
    expected = batches(Loader(dataset, 6, **settings))
    with Loader(dataset, 6, device="cuda", processes=processes, **settings) as loader:
        made = batches(loader)
    for (images, labels), (others, more) in zip(made, expected, strict=True):
        assert images.dtype == dtype
        assert images.stride() == others.stride()
        assert torch.equal(images.cpu(), others)
        assert labels == more


@pytest.mark.parametrize("kind", [SequentialSampler, ShuffleSampler, BlockShuffleSampler])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_resuming_in_the_middle_of_an_epoch(pack: Path, kind: Any, stop: int) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    whole = Loader(dataset, 6, sampler=kind(len(dataset)))
    batches(whole)
    expected = batches(whole)  # the second epoch
    loader = Loader(dataset, 6, sampler=kind(len(dataset)), threads=2)
    batches(loader)
    iterator = iter(loader)
    for _ in range(stop):
        next(iterator)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    iterator.close()
    resumed = Loader(dataset, 6, sampler=kind(len(dataset)), threads=5)
    resumed.load_state_dict(state)
    for (images, labels), (others, more) in zip(batches(resumed), expected[stop:], strict=True):
        assert torch.equal(images, others)
        assert labels == more
    assert len(batches(resumed)) == 9  # the next epoch is whole again


def test_resuming_with_another_world_size(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    whole = torch.cat([images for images, _ in batches(Loader(dataset, 6, shuffle=True, seed=0))])
    two = [Loader(dataset, 6, sampler=ShuffleSampler(52, rank=rank, world=2)) for rank in range(2)]
    states = []
    for loader in two:
        iterator = iter(loader)
        next(iterator), next(iterator)
        states.append(loader.state_dict())
        iterator.close()
    assert states[0] == states[1]
    alone = Loader(dataset, 6, shuffle=True, seed=0)
    alone.load_state_dict(states[0])
    assert torch.equal(torch.cat([images for images, _ in batches(alone)]), whole[24:])


@pytest.mark.parametrize("options", [{"dtype": torch.uint8}, {"channels_last": False}, {"dtype": torch.float16}])
def test_what_becomes_of_the_bytes(options: dict[str, Any], pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    expected = torch.cat([images for images, _ in Loader(dataset, 5)])
    found = [images for images, _ in Loader(dataset, 5, **options)]
    assert torch.equal(torch.cat(found).to(torch.uint8), expected)
    for images in found:
        assert images.dtype == options.get("dtype", torch.uint8)
        assert images.is_contiguous() == ("channels_last" in options)


class Backwards(SequentialSampler):
    """A sampler that changes what its base class yields."""

    def __iter__(self) -> Iterator[int]:
        return iter(list(super().__iter__())[::-1])


def test_samplers_that_iterate_in_a_way_of_their_own(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    loader = Loader(dataset, 5, sampler=Backwards(len(dataset)))
    labels = [label for _, labels in loader for label in labels.tolist()]
    assert labels == [dataset[index][1] for index in range(len(dataset))][::-1]


def test_samplers_of_others_work_and_say_that_they_cannot_resume(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    loader = Loader(dataset, 5, sampler=[3, 1, 4, 1, 5, 9, 2], drop_last=True)
    assert [labels for _, labels in batches(loader)] == [[int(dataset.targets[i]) for i in (3, 1, 4, 1, 5)]]
    with pytest.raises(TypeError, match="samplers"):
        loader.load_state_dict({"epoch": 0, "start": 3, "seed": 0})


def test_dataloader_gives_the_same_as_the_loader(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0, threads=2)
    sampler = ShuffleSampler(len(dataset))
    workers = DataLoader(dataset, 10, sampler=sampler, num_workers=2, persistent_workers=True)
    loader = Loader(dataset, 10, shuffle=True, seed=0)
    for epoch in (0, 3):
        for each in (dataset, sampler, loader):
            each.set_epoch(epoch)
        for (images, labels), (others, more) in zip(batches(workers), batches(loader), strict=True):
            assert torch.equal(images, others)
            assert labels == more
    workers._iterator._shutdown_workers()


def test_a_damaged_sample_stops_the_loop_with_its_name(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=6, size=(60, 80))
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.h5")
    dataset = open_dataset(tmp_path / "pack.h5", crop=CROP, seed=0)
    with open(tmp_path / "pack.h5", "r+b") as file:
        file.seek(4096 + int(dataset.reader.table.offset[7]) + 900)
        file.write(b"????")
    threads = threading.active_count()
    with pytest.raises(CorruptPackError, match="sample 7") as caught:
        batches(Loader(dataset, 4))
    assert "class_01/0001.jpg" in str(caught.value)
    assert threading.active_count() == threads
    unchecked = open_dataset(tmp_path / "pack.h5", crop=CROP, check="never")
    with open(tmp_path / "pack.h5", "r+b") as file:
        file.seek(4096 + int(dataset.reader.table.offset[7]))
        file.write(b"no longer a JPEG")
    with pytest.raises(ImageError, match=r"sample 7 \(class_01/0001.jpg\)"):
        batches(Loader(unchecked, 4))


def test_abandoned_epochs_leave_nothing_behind(pack: Path) -> None:
    process = psutil.Process()
    dataset = open_dataset(pack, crop=CROP, seed=0)
    loader = Loader(dataset, 4, shuffle=True, seed=0, threads=4, prefetch=3)

    def abandon() -> None:
        for number, _ in enumerate(loader):
            if number == 2:
                break

    for _ in range(3):
        abandon()
    gc.collect()
    threads, files, memory = threading.active_count(), process.num_fds(), process.memory_info().rss
    for _ in range(20):
        abandon()
    gc.collect()
    assert threading.active_count() == threads
    assert process.num_fds() <= files
    assert process.memory_info().rss < 1.05 * memory


@pytest.mark.parametrize("options", [{}, {"normalize": ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1))}])
def test_batches_are_brought_to_any_device_that_torch_has(pack: Path, options: dict[str, Any]) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    for (images, labels), (expected, _) in zip(
        Loader(dataset, 10, device="meta", **options), Loader(dataset, 10, **options), strict=True
    ):
        assert (images.device.type, labels.device.type) == ("meta", "meta")
        assert (images.shape, images.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("output", ["tensor", "numpy"])
def test_images_of_different_shapes_ask_for_a_crop(tmp_path: Path, output: str) -> None:
    for label, size in enumerate([(40, 50), (40, 60)]):
        draw_imagefolder(tmp_path / "tree" / str(label), classes=1, per_class=2, size=size)
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.lmdb")
    with pytest.raises(
        ValueError, match=r"different shapes, such as \(.*40.*50.*\) and .*60.*pass the dataset a crop="
    ):
        list(Loader(open_dataset(tmp_path / "pack.lmdb", output=output), 4))

    def fail(items: list[Any]) -> Any:
        raise RuntimeError("of the collate function")

    with pytest.raises(RuntimeError, match="of the collate function"):
        list(Loader(open_dataset(tmp_path / "pack.lmdb", output=output), 4, collate_fn=fail))


@pytest.mark.parametrize(
    "settings", [{"output": "numpy"}, {"output": "tensor", "transform": lambda image: image.float() / 255}]
)
def test_images_that_cannot_be_normalised_are_refused(pack: Path, settings: dict[str, Any]) -> None:
    dataset = open_dataset(pack, crop=ResizeCenterCrop(32, 256), **settings)
    for asked in ({"normalize": ([0.5] * 3, [0.5] * 3)}, {"dtype": torch.float16}):
        with pytest.raises(ValueError, match="no such tensor"):
            next(iter(Loader(dataset, 4, **asked)))


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("processes", [0, 1])
def test_a_closed_loader_has_ended_its_processes_and_begins_no_pass(pack: Path, processes: int) -> None:
    with open_dataset(pack, crop=ResizeCenterCrop(32, 256)) as dataset:
        before = set(psutil.Process().children(recursive=True))
        with Loader(dataset, 20, processes=processes, threads=1) as loader:
            running = iter(loader)
            batch = next(running)[0].clone()
            loader.close()
            assert len(list(running)) == 2
        assert set(psutil.Process().children(recursive=True)) <= before | _resource_trackers()
        with pytest.raises(ValueError, match="closed"):
            iter(loader)
        loader.close()
        assert torch.equal(batch[0], dataset[0][0])


def _resource_trackers() -> set[psutil.Process]:
    return {child for child in psutil.Process().children() if "resource_tracker" in " ".join(child.cmdline())}


def test_bad_arguments(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    with pytest.raises(ValueError, match="batch_size"):
        Loader(dataset, 0)
    with pytest.raises(TypeError, match="open_dataset"):
        Loader(str(pack), 4)  # type: ignore[arg-type]
    numbers = (0.5, 0.5, 0.5)
    for wrong in ((1, 2), numbers, (numbers, 1), (numbers, numbers[:2]), (numbers, (1, 1, 0)), 1, ("abc", "def")):
        with pytest.raises(ValueError, match=r"normalize must be \(mean, std\)"):
            Loader(dataset, 4, normalize=wrong)  # type: ignore[arg-type]
    for unsound in ((float("nan"),) * 3, (float("inf"),) * 3, ()):
        with pytest.raises(ValueError, match=r"normalize must be \(mean, std\)"):
            Loader(dataset, 4, normalize=(unsound, unsound or numbers[:0]))
    for count in (1, 4):
        with pytest.raises(ValueError, match=f"{count} means.* 3 channels"):
            Loader(dataset, 4, normalize=([0.5] * count, [0.5] * count))
    for name in ("batch_size", "threads", "prefetch", "processes"):
        with pytest.raises(TypeError, match=f"^{name} must be a whole number, not 2.5"):
            Loader(dataset, **{"batch_size": 4, name: 2.5})
    with pytest.raises(ValueError, match="sampler"):
        Loader(dataset, 4, shuffle=True, seed=0, sampler=SequentialSampler(52))
    with pytest.raises(ValueError, match="bytes"):
        open_dataset(pack, crop=CROP, output="bytes")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    if set(threading.enumerate()) - before:  # garbage holds them, or they are about to end
        gc.collect()
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(10)  # threads of torch's DataLoader feed its workers' queues, and end a moment after it
    assert not any(thread.is_alive() for thread in started) or os.name == "nt"
