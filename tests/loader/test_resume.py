"""A resumed Loader has the same order and the same crops, whichever seeds were set."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils.data import ConcatDataset, DistributedSampler, Subset, WeightedRandomSampler

from packer import DataLoader, open_dataset
from packer._loader.loader import Loader
from packer._loader.prefetch import BackgroundPrefetcher, CUDAPrefetcher
from packer.augment import CutMix, RandomErasing
from packer.crops import RandomResizedCrop, ResizeCenterCrop
from packer.errors import OptionTypeError
from packer.samplers import BlockShuffleSampler, OrderSampler, SequentialSampler, ShuffleSampler

CROP = RandomResizedCrop(16, flip=0.5)
SIZE = 40


def batches(loader: Any) -> list[tuple[torch.Tensor, list[int]]]:
    return [(images.clone(), labels.tolist()) for images, labels in loader]


def same(made: list[tuple[Any, list[int]]], expected: list[tuple[Any, list[int]]]) -> bool:
    return all(
        torch.equal(images, others) and labels == more
        for (images, labels), (others, more) in zip(made, expected, strict=True)
    )


def order(loader: Any) -> list[int]:
    return [label for _, labels in loader for label in labels.tolist()]


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from a checkpoint."""
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=True)  # type: ignore[no-any-return]


def after(loader: Any, number: int) -> dict[str, Any]:
    """Return the state after `number` batches of a pass that then ends early."""
    iterator = iter(loader)
    for _ in range(number):
        next(iterator)
    return saved(loader.state_dict())


def make(kind: type[OrderSampler], **options: Any) -> OrderSampler:
    return BlockShuffleSampler(SIZE, 4, 3, **options) if kind is BlockShuffleSampler else kind(SIZE, **options)


@pytest.mark.parametrize("kind", [SequentialSampler, ShuffleSampler, BlockShuffleSampler])
def test_a_sampler_and_a_dataset_with_seeds_of_their_own(pack: Path, kind: type[OrderSampler]) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=3), 6, sampler=make(kind, seed=7))
    loader.set_epoch(2)
    expected = batches(loader)
    loader.set_epoch(2)
    state = after(loader, 2)
    for sampler_seed, crop_seed in [(7, 3), (0, 0)]:
        resumed = Loader(open_dataset(pack, crop=CROP, seed=crop_seed), 6, sampler=make(kind, seed=sampler_seed))
        resumed.load_state_dict(state)
        assert same(batches(resumed), expected[2:])
        assert len(resumed) == 7


def labels_of(items: list[Any]) -> tuple[list[Any], torch.Tensor]:
    return [], torch.tensor([label for _, label in items])


@settings(max_examples=25)
@given(
    kind=st.sampled_from([SequentialSampler, ShuffleSampler, BlockShuffleSampler]),
    seed=st.integers(0, 2**63),
    world=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    stop=st.integers(0, 40),
    drop_last=st.booleans(),
)
def test_every_sample_comes_exactly_once_at_whatever_batch_it_is_resumed(
    pack: Path,
    *,
    kind: type[OrderSampler],
    seed: int,
    world: int,
    sizes: tuple[int, int],
    stop: int,
    drop_last: bool,
) -> None:
    dataset = open_dataset(pack, output="bytes", seed=0)
    options: dict[str, Any] = {
        "threads": 1,
        "collate_fn": labels_of,
    }
    whole = make(kind, seed=seed)
    seen: dict[int, int] = {}
    states = []
    for rank in range(world):
        sampler = make(kind, seed=seed, rank=rank, world=world, uneven="keep")
        loader = Loader(dataset, sizes[0], sampler=sampler, drop_last=drop_last, **options)
        iterator = iter(loader)
        for number, (_, labels) in enumerate(itertools.islice(iterator, min(stop, SIZE // world // sizes[0]))):
            places = itertools.count(rank + number * sizes[0] * world, world)
            seen |= dict(zip(places, labels.tolist(), strict=False))
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    resumed = Loader(dataset, sizes[1], sampler=make(kind), **options)
    resumed.load_state_dict(states[0], strict=False)
    rest = order(resumed)
    assert [seen[place] for place in sorted(seen)] + rest == list(whole)


@pytest.mark.parametrize("wrapped", [lambda loader: loader, CUDAPrefetcher, BackgroundPrefetcher])
def test_the_state_after_an_epoch_is_the_beginning_of_the_next(pack: Path, wrapped: Any) -> None:
    loader = wrapped(Loader(open_dataset(pack, crop=CROP, seed=0), 6, shuffle=True, seed=0))
    begun = iter(loader)
    last = [saved(loader.state_dict()) for _ in begun][-1]
    finished = saved(loader.state_dict())
    expected = batches(loader)
    for state, rest in [(last, []), (finished, expected)]:
        resumed = Loader(open_dataset(pack, crop=CROP, seed=0), 6, shuffle=True, seed=0)
        resumed.load_state_dict(state)
        assert same([(images.cpu(), labels) for images, labels in batches(resumed)], rest)
    assert len(loader) == 7


@pytest.mark.parametrize("wrapper", [CUDAPrefetcher, BackgroundPrefetcher])
def test_a_wrapped_pass_that_gave_nothing_yet_is_at_its_beginning(pack: Path, wrapper: Any) -> None:
    loader = wrapper(Loader(open_dataset(pack, crop=CROP, seed=0), 6, shuffle=True, seed=0))
    next(iter(loader))  # an epoch that ends early
    iterator = iter(loader)
    state = loader.state_dict()
    assert (state["sampler"]["epoch"], state["sampler"]["start"]) == (1, 0)
    next(iterator)
    assert loader.state_dict()["sampler"]["start"] == 6


def test_the_samplers_epoch_is_the_loaders(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    expected = Loader(dataset, 6, shuffle=True, seed=0)
    loader = Loader(dataset, 6, sampler=ShuffleSampler(SIZE))
    for epoch in (4, 9):
        expected.set_epoch(epoch)
        loader.sampler.set_epoch(epoch)  # as DistributedSampler's users do
        assert same(batches(loader), batches(expected))
    loader.sampler.set_epoch(4)
    state = after(loader, 3)
    expected.set_epoch(4)
    rest = batches(expected)[3:]
    loader.load_state_dict(state)
    assert same(batches(loader), rest)


def test_the_epoch_of_another_sampler_is_the_loaders(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    sampler = DistributedSampler(dataset, num_replicas=2, rank=1, seed=5)
    loader = Loader(dataset, 6, sampler=sampler)
    for epoch in (6, 7, 2):
        sampler.set_epoch(epoch)
        expected = list(sampler)
        dataset.set_epoch(epoch)
        images, labels = next(iter(loader))
        assert labels.tolist() == expected[:6]
        assert torch.equal(images[0], dataset[expected[0]][0])


def test_two_passes_at_once_each_keep_their_epoch(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=0), 6, shuffle=True, seed=0, prefetch=0)
    first, second = batches(loader), batches(loader)
    loader.set_epoch(0)
    pairs = [(a, b) for a, b in zip(loader, loader, strict=True)]
    assert same([(images, labels.tolist()) for (images, labels), _ in pairs], first)
    assert same([(images, labels.tolist()) for _, (images, labels) in pairs], second)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"x": 1}, "no number 'seed'"),
        ({"version": 1}, "no number 'crop_seed'"),
        ({"version": 1, "crop_seed": 0}, "no number 'epoch'"),
        ({"version": 3, "crop_seed": 0}, "a newer packer"),
        ({"version": 2, "crop_seed": 0}, "no number 'epoch'"),
        ({"version": 2, "crop_seed": 0, "pack": "other"}, "its pack is 'other'"),
        ({"version": 1, "crop_seed": 5, "sampler": SequentialSampler(SIZE).state_dict()}, "its kind is 'Seq"),
        ({"version": 1, "crop_seed": 5, "sampler": ShuffleSampler(7).state_dict()}, "its length is 7"),
        ({"epoch": 0, "start": 200, "seed": 0}, "sample 200, but there are only 40"),
        ({"epoch": 0, "start": 0, "seed": 9}, "open the dataset with seed=9, not 1"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(pack: Path, state: Any, reason: str) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=state.get("seed", 1) % 9 or 1), 6, shuffle=True)
    if state.get("seed") == 0:
        loader.dataset.seed = 0
    before = loader.state_dict()
    with pytest.raises(ValueError, match=reason):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_states_of_the_first_version(pack: Path) -> None:
    """They have one seed for order and crops, which is right only if the sampler has the same seed."""
    old = {"epoch": 1, "start": 12, "seed": 5}
    whole = Loader(open_dataset(pack, crop=CROP, seed=5), 6, shuffle=True, seed=5)
    whole.set_epoch(1)
    expected = batches(whole)[2:]
    for loader in (
        Loader(open_dataset(pack, crop=CROP, seed=5), 6, shuffle=True, seed=0),
        Loader(open_dataset(pack, crop=CROP, seed=5), 6, sampler=ShuffleSampler(SIZE, seed=5)),
    ):
        loader.load_state_dict(old)
        assert same(batches(loader), expected)
    with pytest.raises(ValueError, match="the sampler has seed 7, so it is unclear which order"):
        Loader(open_dataset(pack, crop=CROP, seed=5), 6, sampler=ShuffleSampler(SIZE, seed=7)).load_state_dict(old)
    without_chance = Loader(open_dataset(pack, crop=ResizeCenterCrop(16, 20)), 6)
    without_chance.load_state_dict(old)
    assert order(without_chance) == list(range(12, SIZE))


def test_the_order_has_one_seed(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    with pytest.raises(ValueError, match="seed cannot be combined with a sampler"):
        Loader(dataset, 6, sampler=ShuffleSampler(SIZE), seed=1)
    with pytest.raises(ValueError, match="orders 39 samples, but the dataset has 40"):
        Loader(dataset, 6, sampler=ShuffleSampler(39))
    assert order(Loader(dataset, 6, shuffle=True, seed=4)) == list(ShuffleSampler(SIZE, seed=4))
    assert order(Loader(dataset, 6, shuffle=True, seed=0)) == list(ShuffleSampler(SIZE, seed=0))


class Endless:
    """Indices that can be iterated again, but have no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(13))


class Backwards(ShuffleSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(list(super().__iter__())[::-1])


def test_what_is_no_state_is_refused(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CROP), 6, shuffle=True)
    for state in (None, [1]):
        with pytest.raises(TypeError, match="a state must be a dict from `state_dict`, not"):
            loader.load_state_dict(state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sampler", [WeightedRandomSampler([1.0] * SIZE, SIZE), [3, 1, 2], range(9), Endless(), Backwards(SIZE)]
)
def test_what_cannot_be_resumed_says_so_when_the_state_is_asked_for(pack: Path, sampler: Any) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=0), 6, sampler=sampler)
    for each in (loader, CUDAPrefetcher(loader, "cpu"), BackgroundPrefetcher(loader)):
        for _ in each:  # iterating works
            with pytest.raises(TypeError, match=r"cannot be resumed.*BlockShuffleSampler"):
                each.state_dict()
    with pytest.raises(TypeError, match="only packer's samplers"):
        loader.load_state_dict({"epoch": 0, "start": 3, "seed": 0})
    for wrapper in (CUDAPrefetcher([], "cpu"), BackgroundPrefetcher([])):
        with pytest.raises(TypeError, match="list cannot be resumed"):
            wrapper.state_dict()
        with pytest.raises(TypeError, match="list cannot be resumed"):
            wrapper.load_state_dict({})


def test_samplers_that_are_iterated_once_or_not_at_all_are_refused(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=0)
    for once in ((index for index in range(9)), iter([1, 2]), map(int, "123")):
        with pytest.raises(TypeError, match="returns them only once: pass a list"):
            Loader(dataset, 6, sampler=once)
    for wrong in (7, "x", b"x"):
        with pytest.raises(TypeError, match=f"an iterable of indices, not {wrong!r}"):
            Loader(dataset, 6, sampler=wrong)


@pytest.mark.parametrize("sampler", [None, [3, 1, 4]], ids=["packer's", "a list"])
@pytest.mark.parametrize("epoch", ["a", 1.5, None])
def test_an_epoch_is_an_integer(pack: Path, sampler: list[int] | None, epoch: Any) -> None:
    """Another value is refused at once, and the previous epoch remains."""
    datasets = [open_dataset(pack, crop=CROP, seed=0) for _ in range(2)]
    loader, plain = (Loader(dataset, 6, sampler=sampler) for dataset in datasets)
    for one in (loader, plain, *datasets):
        one.set_epoch(3)
    for target in (loader, datasets[0]):
        with pytest.raises(OptionTypeError, match=f"epoch must be an integer, not {epoch!r}"):
            target.set_epoch(epoch)
    assert torch.equal(datasets[0][7][0], datasets[1][7][0])
    assert [images.tolist() for images, _ in loader] == [images.tolist() for images, _ in plain]


def test_a_sampler_without_a_length(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, seed=0), 6, sampler=Endless())
    for _ in range(2):
        assert order(loader) == list(range(13))
    with pytest.raises(TypeError, match="the sampler has no len"):
        len(loader)


def test_indices_are_whole_numbers(pack: Path) -> None:
    with pytest.raises(TypeError, match="integer"):
        order(Loader(open_dataset(pack, crop=CROP, seed=0), 6, sampler=[0.5, 1.5]))


def test_a_loader_shows_its_settings(pack: Path) -> None:
    text = repr(Loader(open_dataset(pack, crop=CROP, seed=0), 6, shuffle=True, seed=0, threads=3))
    assert len(text.splitlines()) == 4
    for part in ("Loader of 7 batches, batch_size=6", "ShuffleSampler(length=40, seed=0", "threads=3", "40 samples"):
        assert part in text
    mixing = Loader(open_dataset(pack, crop=CROP), 6, batch_transform=torch.nn.Identity(), mix=CutMix(num_classes=SIZE))
    assert repr(mixing).splitlines()[-2:] == ["  batch_transform  Identity()", f"  mix              {mixing.mix!r}"]


def test_a_loader_shows_what_subsets_contain(pack: Path) -> None:
    dataset = open_dataset(pack)
    first = repr(dataset).partition("\n")[0]
    subset = Subset(dataset, range(4))
    assert f"  dataset  Subset of 4 samples of {first}\n" in repr(Loader(subset, 2))
    assert f"Subset of 1 sample of Subset of 4 samples of {first}\n" in repr(Loader(Subset(subset, [1]), 2))
    joined = ConcatDataset([dataset, subset])
    assert f"ConcatDataset of {SIZE + 4} samples: {first}; Subset of 4 samples of {first}\n" in repr(Loader(joined, 2))
    assert "object at 0x" not in repr(DataLoader(subset, 2, shuffle=True))


@pytest.mark.parametrize("options", [{"crop": ResizeCenterCrop(16, 20)}, {"crop": CROP, "augment": [RandomErasing()]}])
def test_a_state_of_other_images_is_warned_of(
    pack: Path, options: dict[str, Any], recwarn: pytest.WarningsRecorder
) -> None:
    state = saved(Loader(open_dataset(pack, crop=CROP, seed=1), 6).state_dict())
    Loader(open_dataset(pack, crop=CROP, seed=1), 6).load_state_dict(state)
    older = {name: value for name, value in state.items() if name != "images"}
    Loader(open_dataset(pack, **options, seed=1), 6).load_state_dict(older)
    assert not recwarn
    with pytest.warns(UserWarning, match="with other image settings"):
        Loader(open_dataset(pack, **options, seed=1), 6).load_state_dict(state)
