"""Bad samples during training: an error, or replacement by other samples, the same ones in every run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

import packer
from packer import Loader, RandomResizedCrop, open_dataset
from packer.samplers import SequentialSampler
from tests.samples import SUFFIXES

CROP = RandomResizedCrop(16, flip=0.5)
BAD = 3, 4, 19
COUNT = 20
GOOD_IN_PLACE = {3: 5, 4: 5, 19: 0}


def stacked(items: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*items, strict=True)
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)


@pytest.fixture(scope="module", params=SUFFIXES.values())
def pack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replacing") / f"pack{request.param}"
    rng = np.random.default_rng(0)
    samples = [
        {
            "image": rng.integers(0, 256, (40, 50, 3), np.uint8),
            "label": index,
            "mask": np.full((40, 50), index, np.uint8),
        }
        for index in range(COUNT)
    ]
    packer.pack(samples, path, fields={"mask": "mask"}, classes=[str(index) for index in range(COUNT)])
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    with packer.open_pack(path) as reader:
        wanted = [bytes(reader.read(index))[-60:-40] for index in BAD]
    for file in files:
        data = file.read_bytes()
        for piece in wanted:
            data = data.replace(piece, bytes(len(piece)))
        file.write_bytes(data)
    return path


def opened(pack: Path, **arguments: Any) -> Any:
    return open_dataset(pack, **{"crop": CROP, "seed": 1, "on_error": "replace", "max_bad": 0.2, **arguments})


def expected() -> list[int]:
    return [GOOD_IN_PLACE.get(index, index) for index in range(COUNT)]


def batches(loader: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        return [(images.clone(), labels) for images, labels in loader]


def test_a_bad_sample_is_an_error_by_default(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=1)
    for loader in (DataLoader(dataset, 4), Loader(dataset, 4)):
        with pytest.raises(packer.CorruptPackError, match="sample 3"):
            list(loader)


@pytest.mark.parametrize(
    "loading",
    [
        lambda dataset: DataLoader(dataset, 6),
        lambda dataset: DataLoader(dataset, 6, num_workers=2),
        lambda dataset: Loader(dataset, 6, threads=2),
        lambda dataset: Loader(dataset, 6, transform=np.array, collate_fn=stacked),
    ],
)
def test_the_next_good_sample_takes_its_place_in_every_loader(pack: Path, loading: Any) -> None:
    in_their_places(pack, loading)


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("pack", [".lmdb"], indirect=True)
def test_the_next_good_sample_takes_its_place_in_another_process(pack: Path) -> None:
    in_their_places(pack, lambda dataset: Loader(dataset, 6, threads=1, processes=1))


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("pack", [".lmdb"], indirect=True)
def test_replaced_batches_take_no_memory_of_others_that_processes_share(pack: Path) -> None:
    with Loader(opened(pack), 2, threads=1, processes=2, prefetch=0) as loader:
        found = batches(loader)
    assert torch.cat([labels for _, labels in found]).tolist() == expected()
    alone = batches(Loader(opened(pack), 2, threads=1))
    assert all(torch.equal(images, others) for (images, _), (others, _) in zip(found, alone, strict=True))


def in_their_places(pack: Path, loading: Any) -> None:
    """Expect good samples in the places of bad ones, the same in each loader that `loading` makes."""
    dataset = opened(pack)
    loader = loading(dataset)
    if isinstance(loader, Loader):
        loader.set_epoch(0)
    found = batches(loader)
    assert torch.cat([labels for _, labels in found]).tolist() == expected()
    reference = torch.cat([images for images, _ in batches(DataLoader(opened(pack), 1))]).float()
    again = torch.cat([images for images, _ in batches(loading(opened(pack)))]).float()
    images = torch.cat([images for images, _ in found]).float()
    assert torch.equal(images, again)
    if isinstance(loader, DataLoader):
        assert torch.equal(images, reference)
    assert not torch.equal(images[3], images[5])  # the replacement has a crop of its own


def test_they_are_named_once_and_counted(pack: Path) -> None:
    dataset = opened(pack)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for epoch in range(2):
            dataset.set_epoch(epoch)
            list(DataLoader(dataset, 5))
    assert len(dataset.replaced) == len(warned) == len(BAD)
    assert all(f"sample {index}" in str(warning.message) for index, warning in zip(BAD, warned, strict=True))


def test_more_than_a_share_stop_the_run(pack: Path) -> None:
    for loader in (DataLoader(opened(pack, max_bad=0.1), 5), Loader(opened(pack, max_bad=0.1), 5)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(packer.PackError, match=r"3 of 20 samples cannot be read, more than max_bad=0.1"):
                list(loader)


def test_ranks_and_resumed_runs_replace_alike(pack: Path) -> None:
    def of_rank(rank: int, world: int) -> dict[int, torch.Tensor]:
        sampler = SequentialSampler(COUNT, rank=rank, world=world)
        images = torch.cat([images for images, _ in batches(Loader(opened(pack), 1, sampler=sampler))])
        return dict(zip(range(rank, COUNT, world), images, strict=True))

    alone = of_rank(0, 1)
    for rank in (0, 1):
        for place, image in of_rank(rank, 2).items():
            assert torch.equal(image, alone[place])
    loader = Loader(opened(pack), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running = iter(loader)
        next(running)
        state = loader.state_dict()
        rest = torch.cat([images.clone() for images, _ in running])
        resumed = Loader(opened(pack), 2)
        resumed.load_state_dict(state)
        assert torch.equal(torch.cat([images.clone() for images, _ in resumed]), rest)


def test_fields_selections_and_joined_datasets(pack: Path) -> None:
    dataset = opened(pack, fields=("image", "mask", "label"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (batch,) = Loader(dataset, COUNT)
        assert batch["label"].tolist() == expected()
        assert batch["mask"].amax((1, 2, 3)).tolist() == expected()
        some = Subset(opened(pack), [2, 3, 7])
        ((_, labels),) = Loader(some, 3)
        assert labels.tolist() == [2, 7, 7]
        both = ConcatDataset([opened(pack), opened(pack)])
        ((_, labels),) = Loader(both, 2 * COUNT)
        assert labels.tolist()[:19] == expected()[:19]
        assert labels.tolist()[19] == 0


@pytest.mark.parametrize("arguments", [{"on_error": "skip"}, {"max_bad": 2}, {"max_bad": -0.1}])
def test_what_makes_no_sense_is_refused(pack: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"on_error|max_bad"):
        opened(pack, **arguments)
