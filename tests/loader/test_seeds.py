"""Random crops and orders: new ones each time without a seed; with a seed, a function of seed, epoch and sample."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from packer import Loader, RandomResizedCrop, open_dataset
from tests.command import python

SIZE = 40
CROP = RandomResizedCrop(16, flip=0.5)


class Numbered(torch.utils.data.Dataset[Any]):
    """The items of a dataset with their indices, so that a shuffled epoch can be put in order."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index][0], index

    def __getitems__(self, indices: list[int]) -> Any:
        return [(image, index) for (image, _), index in zip(self.dataset.__getitems__(indices), indices, strict=True)]


def epoch_of(loader: Any) -> torch.Tensor:
    """Return the images of an epoch, in the order of their indices."""
    parts = [(images, indices) for images, indices in loader]
    order = torch.cat([indices for _, indices in parts]).argsort()
    return torch.cat([images for images, _ in parts])[order]


def equal_share(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one == other).flatten(1).all(1).float().mean().item()


WORKERS = [
    {},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "forkserver"},
    {"num_workers": 2, "multiprocessing_context": "forkserver", "persistent_workers": True},
]


@pytest.mark.parametrize("workers", WORKERS, ids=str)
@pytest.mark.usefixtures("quick_spawn")  # forkserver uses its server
def test_without_a_seed_no_two_epochs_have_a_crop_in_common(workers: dict[str, Any], pack: Path) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(3)
        loader = DataLoader(Numbered(open_dataset(pack, crop=CROP)), 8, shuffle=True, **workers)
        return [epoch_of(loader) for _ in range(3)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epochs = run()
        assert [equal_share(epochs[0], epoch) for epoch in epochs] == [1, 0, 0]
        assert equal_share(epochs[1], epochs[2]) == 0
        assert all(torch.equal(one, other) for one, other in zip(epochs, run(), strict=True))


def test_without_a_seed_each_look_at_an_image_is_another(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP)
    looks = [dataset[3][0] for _ in range(4)]
    assert not any(torch.equal(looks[0], look) for look in looks[1:])
    torch.manual_seed(5)
    one_by_one = [dataset[index][0] for index in (3, 1, 3)]
    torch.manual_seed(5)
    together = [image for image, _ in dataset.__getitems__([3, 1, 3])]
    assert all(torch.equal(one, other) for one, other in zip(one_by_one, together, strict=True))


def test_threads_draw_the_crops_that_one_thread_draws(pack: Path) -> None:
    batches = []
    for threads in (1, 3):
        torch.manual_seed(5)
        batches.append([image for image, _ in open_dataset(pack, crop=CROP, threads=threads).__getitems__(range(SIZE))])
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))


def test_with_a_seed_a_crop_is_a_function_of_seed_epoch_and_sample(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=1)
    first = [dataset[index][0] for index in range(SIZE)]
    torch.manual_seed(8)
    assert all(torch.equal(image, dataset[index][0]) for index, image in enumerate(first[:9]))
    assert all(torch.equal(image, open_dataset(pack, crop=CROP, seed=1)[0][0]) for image in first[:1])
    assert not torch.equal(first[0], open_dataset(pack, crop=CROP, seed=2)[0][0])
    dataset.set_epoch(1)
    assert not torch.equal(first[0], dataset[0][0])
    dataset.set_epoch(0)
    assert torch.equal(first[0], dataset[0][0])
    part = dataset[5:9]
    assert torch.equal(part[1][0], first[6])


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(20)), lambda d: ConcatDataset([d, d[:0]])])
def test_a_second_pass_over_an_epoch_warns_once_and_names_set_epoch(wrap: Any, pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=1)
    loader = DataLoader(wrap(dataset), 8, shuffle=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epoch in range(3):
            dataset.set_epoch(epoch)
            list(loader)
        dataset.set_epoch(5)
        list(loader)
        assert not caught
        for _ in range(4):
            list(loader)
    (warning,) = caught
    assert "call dataset.set_epoch(epoch) before each pass" in str(warning.message)
    assert str(warning.message).startswith(f"{pack}: ")
    assert warning.filename == __file__


def test_nobody_is_warned_whose_crops_are_not_random_or_have_no_seed(pack: Path) -> None:
    from packer import CenterCrop

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dataset in (
            open_dataset(pack, crop=CROP),
            open_dataset(pack, crop=CenterCrop(16), seed=1),
            open_dataset(pack, crop=RandomResizedCrop(16), seed=1),
        ):
            seeded_and_random = dataset.seed is not None and dataset.randoms
            loader: Any = Loader(dataset, 8) if seeded_and_random else DataLoader(dataset, 8)
            for _ in range(3):
                list(loader)


WORKER = """
import multiprocessing, sys, torch, warnings
from torch.utils.data import DataLoader
from packer import RandomResizedCrop, open_dataset
if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["packer", "torch"])
    dataset = open_dataset(sys.argv[1], crop=RandomResizedCrop(16), seed=1)
    for _ in range(int(sys.argv[4])):
        list(DataLoader(dataset, 8, num_workers=int(sys.argv[3]), multiprocessing_context=sys.argv[2]))
"""


@pytest.mark.parametrize(("method", "count", "passes"), [("fork", 2, 3), ("forkserver", 1, 2)])
def test_workers_that_are_made_anew_each_epoch_notice_the_second_pass(
    method: str, count: int, passes: int, pack: Path
) -> None:
    script = pack.parent / "workers.py"
    script.write_text(WORKER)
    errors = python(script, pack, method, count, passes).stderr
    assert errors.count("call dataset.set_epoch(epoch)") == 1, errors


def order_and_images(loader: Loader) -> tuple[list[int], torch.Tensor]:
    batches = [(images.clone(), labels) for images, labels in loader]
    return torch.cat([labels for _, labels in batches]).tolist(), torch.cat([images for images, _ in batches])


def test_a_loader_without_a_seed_takes_one_from_torch_and_keeps_it(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP)
    dataset.targets = range(SIZE)

    def loader(seed: int) -> Loader:
        torch.manual_seed(seed)
        return Loader(dataset, 8, shuffle=True)

    one, same, other = loader(1), loader(1), loader(2)
    order, images = order_and_images(one)
    assert order == order_and_images(same)[0]
    same.set_epoch(0)
    assert torch.equal(order_and_images(same)[1], images)
    assert order_and_images(other)[0] != order
    second_order, second = order_and_images(one)
    assert second_order != order
    assert equal_share(images[torch.tensor(order).argsort()], second[torch.tensor(second_order).argsort()]) == 0
    state = one.state_dict()
    resumed = loader(9)
    resumed.load_state_dict(state)
    third = order_and_images(one)
    assert order_and_images(resumed)[0] == third[0]
    resumed.set_epoch(2)
    assert torch.equal(order_and_images(resumed)[1], third[1])


def test_a_loaders_seed_is_that_of_the_crops_unless_the_dataset_has_one(pack: Path) -> None:
    def images(seed: int | None, loader_seed: int) -> torch.Tensor:
        return order_and_images(Loader(open_dataset(pack, crop=CROP, seed=seed), 8, seed=loader_seed))[1]

    assert torch.equal(images(None, 4), images(4, 9))
    assert equal_share(images(None, 4), images(None, 9)) == 0
