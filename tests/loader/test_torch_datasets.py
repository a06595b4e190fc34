"""A Loader over parts and joins of datasets: Subset, random_split, ConcatDataset, and slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from packer import CenterCrop, Loader, RandomResizedCrop, ShuffleSampler, open_dataset
from tests.conftest import Packs, Trees


@pytest.fixture(scope="module")
def two_packs(trees: Trees, packs: Packs) -> tuple[Path, Path]:
    first, second = (trees(classes=3, per_class=5, size=(40, 50), seed=seed) for seed in range(2))
    return packs(first), packs(second, "hdf5")


def joined(two_packs: tuple[Path, Path], **settings: Any) -> list[Any]:
    """Return several parts and joins of two datasets, some of them nested."""
    one, other = (open_dataset(path, **settings) for path in two_packs)
    train, _ = random_split(one, [10, 5], torch.Generator().manual_seed(0))
    both = ConcatDataset([one, other])
    return [
        Subset(one, [3, 1, 14]),
        train,
        one[4:9],
        both,
        Subset(both, [0, 29, 15, 14, 3]),
        ConcatDataset([Subset(both, [20, 1]), other[2:4], ConcatDataset([train, other])]),
        Subset(Subset(one[5:], range(8)), [7, 0, 3]),
    ]


def items(batches: Any) -> list[tuple[torch.Tensor, int]]:
    return [
        (image.clone(), label)
        for images, labels in batches
        for image, label in zip(images, labels.tolist(), strict=True)
    ]


def same(one: Any, other: Any) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(torch.equal(image, expected) and label == wanted for (image, label), (expected, wanted) in pairs)


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("settings", [{"crop": CenterCrop(16)}, {"crop": CenterCrop(16), "transform": torch.clone}])
def test_a_loader_gives_the_items(number: int, settings: dict[str, Any], two_packs: tuple[Path, Path]) -> None:
    dataset = joined(two_packs, output="tensor", **settings)[number]
    expected = items(DataLoader(dataset, 4))
    assert len(Loader(dataset, 4)) == -(-len(dataset) // 4)
    assert same(items(Loader(dataset, 4)), expected)


@pytest.mark.usefixtures("quick_spawn")
def test_processes_read_joined_datasets(two_packs: tuple[Path, Path]) -> None:
    dataset = joined(two_packs, crop=CenterCrop(16))[5]
    with Loader(dataset, 8, threads=2, processes=2) as loader:
        assert same(items(loader), items(DataLoader(dataset, 8)))


def test_samples_keep_the_crops_that_they_have_in_the_whole(two_packs: tuple[Path, Path]) -> None:
    dataset = open_dataset(two_packs[0], crop=RandomResizedCrop(16), seed=3)
    whole, part = items(Loader(dataset, 15)), items(Loader(Subset(dataset, [3, 1, 14]), 3))
    assert same(part, [whole[3], whole[1], whole[14]])


def test_datasets_that_are_joined_get_crops_of_their_own(two_packs: tuple[Path, Path]) -> None:
    dataset = ConcatDataset([open_dataset(two_packs[0], crop=RandomResizedCrop(16)) for _ in range(2)])
    images = [image for image, _ in items(Loader(dataset, 10, seed=1))]
    assert not any(torch.equal(one, other) for one, other in zip(images[:15], images[15:], strict=True))


def test_resuming_a_part(two_packs: tuple[Path, Path]) -> None:
    def loader(number: int = 1) -> Loader:
        return Loader(joined(two_packs, crop=RandomResizedCrop(16))[number], 2, shuffle=True)

    begun = loader()
    iterator = iter(begun)
    next(iterator)
    state = begun.state_dict()
    rest = items(iterator)
    resumed = loader()
    resumed.load_state_dict(state)
    assert same(items(resumed), rest)
    with pytest.raises(ValueError, match="the state belongs to another run: its pack is"):
        Loader(open_dataset(two_packs[0], crop=RandomResizedCrop(16))[:10], 2, shuffle=True).load_state_dict(state)


def test_a_state_of_another_pack_or_batch_size_is_refused(two_packs: tuple[Path, Path]) -> None:
    first, second = (open_dataset(path, crop=CenterCrop(16)) for path in two_packs)
    state = Loader(first, 4, shuffle=True).state_dict()
    loader = Loader(second, 4, shuffle=True)
    before = loader.state_dict()
    with pytest.raises(ValueError, match=r"its pack is '[0-9a-f]+', but this run has .*pack\.h5.*open the samples"):
        loader.load_state_dict(state)
    other = Loader(first, 5, shuffle=True)
    with pytest.raises(ValueError, match="its batch_size is 4, but this run has 5"):
        other.load_state_dict(state)
    assert loader.state_dict() == before
    other.load_state_dict(state, strict=False)
    assert list(other.sampler) == list(ShuffleSampler(15, seed=state["sampler"]["seed"]))


def test_a_pack_in_another_format_continues(two_packs: tuple[Path, Path], tmp_path: Path) -> None:
    import packer

    packer.convert(two_packs[0], tmp_path / "pack.pth")
    state = Loader(open_dataset(two_packs[0]), 4, shuffle=True).state_dict()
    Loader(open_dataset(tmp_path / "pack.pth"), 4, shuffle=True).load_state_dict(state)


class Own(Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        image, label = self.dataset[self.indices[index]]
        return image.flip(2), label

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def test_what_a_loader_would_pass_over_is_refused(two_packs: tuple[Path, Path]) -> None:
    dataset = open_dataset(two_packs[0], crop=CenterCrop(16))
    with pytest.raises(TypeError, match=r"Own overrides __getitem__.*DataLoader"):
        Loader(Own(dataset, [1]), 4)
    with pytest.raises(TypeError, match=r"a Subset or ConcatDataset of these.*DataLoader reads any"):
        Loader(torch.utils.data.TensorDataset(torch.zeros(3)), 4)


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        ("num_workers", "threads="),
        ("batch_sampler", "batch_size=, and sampler="),
        ("prefetch_factor", "prefetch="),
        ("generator", "seed="),
        ("batchsize", "no argument 'batchsize'$"),
    ],
)
def test_arguments_of_dataloader_are_answered(argument: str, word: str, two_packs: tuple[Path, Path]) -> None:
    with pytest.raises(TypeError, match=word):
        Loader(open_dataset(two_packs[0]), 4, **{argument: 2})  # type: ignore[arg-type]
