"""Samplers with chosen frequencies of samples: mixed datasets, balanced classes, weights, subsets."""

from __future__ import annotations

import itertools
import json
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader, WeightedRandomSampler

import packer
from packer import Loader, RandomResizedCrop, SequentialSampler, ShuffleSampler, open_dataset
from packer.samplers import BalancedSampler, MixSampler, OrderSampler, SubsetSampler, WeightedSampler
from packer.samplers._weighted import Interleaving

LENGTHS = (50, 700, 3)
TARGETS = np.array([0] * 40 + [2] * 7 + [-1] * 5 + [1] * 12)


class Numbers(torch.utils.data.Dataset[int]):
    """The numbers of ``range(length)``: a dataset that can be a key."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def mixed(**settings: Any) -> MixSampler:
    return MixSampler(dict(zip(map(Numbers, LENGTHS), (0.2, 0.7, 0.1), strict=True)), **settings)


KINDS: dict[str, Callable[..., OrderSampler]] = {
    "mix": mixed,
    "mix of another length": lambda **settings: mixed(length=91, **settings),
    "balanced": lambda **settings: BalancedSampler(TARGETS, 0.7, **settings),
    "weighted": lambda **settings: WeightedSampler(range(60), length=150, **settings),
    "weighted, each once": lambda **settings: WeightedSampler(range(60), 31, replacement=False, **settings),
    "subset": lambda **settings: SubsetSampler([*range(7, 99), 8], **settings),
}
NAMES = st.sampled_from(list(KINDS))


@given(
    name=NAMES,
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**33),
    done=st.integers(0, 800),
    before=st.integers(1, 5),
    after=st.integers(1, 5),
)
def test_an_epoch_goes_on_at_any_sample_on_other_ranks(
    *, name: str, seed: int, epoch: int, done: int, before: int, after: int
) -> None:
    make = KINDS[name]
    whole = make(seed=seed, rank=0, world=1)
    whole.set_epoch(epoch)
    order = list(whole)
    assert len(order) == whole.length
    ranks = [make(seed=seed, rank=rank, world=before, uneven="keep") for rank in range(before)]
    done = min(done, len(ranks[-1]))
    seen: dict[int, int] = {}
    for sampler in ranks:
        sampler.set_epoch(epoch)
        seen |= {sampler.rank + before * place: index for place, index in enumerate(itertools.islice(sampler, done))}
    (state,) = {json.dumps(sampler.state_dict(done)) for sampler in ranks}
    for rank in range(after):
        sampler = pickle.loads(pickle.dumps(make(rank=rank, world=after, uneven="keep")))
        sampler.load_state_dict(json.loads(state))
        seen |= {done * before + rank + after * place: index for place, index in enumerate(sampler)}
    assert [seen[place] for place in sorted(seen)] == order


@given(name=NAMES, data=st.data())
def test_what_stands_at_a_place_is_the_same_whoever_asks(name: str, data: st.DataObject) -> None:
    sampler = KINDS[name](seed=3, rank=0, world=1)
    order = list(sampler)
    places = data.draw(st.lists(st.integers(0, sampler.length - 1), max_size=20))
    assert sampler.order(np.array(places, np.int64)).tolist() == [order[place] for place in places]


@pytest.mark.parametrize("name", KINDS)
def test_a_turn_comes_once_in_an_epoch(name: str) -> None:
    sampler = KINDS[name](seed=5, rank=0, world=1)
    samples, turns = sampler.draws(np.arange(sampler.length))
    pairs = list(zip(samples.tolist(), [0] * len(samples) if turns is None else turns.tolist(), strict=True))
    assert len(set(pairs)) == sampler.length
    assert min(turn for _, turn in pairs) >= 0


@pytest.mark.parametrize("name", KINDS)
def test_epochs_and_seeds_differ(name: str) -> None:
    sampler = KINDS[name]()
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(KINDS[name](seed=1)) != first
    assert list(KINDS[name]()) == first


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataloader_goes_on_at_the_next_sample(name: str, workers: int) -> None:
    def loader(sampler: OrderSampler) -> DataLoader[Any]:
        return DataLoader(Numbers(1000), batch_size=8, sampler=sampler, num_workers=workers)

    sampler = KINDS[name](seed=7)
    sampler.set_epoch(2)
    whole = [batch.tolist() for batch in loader(sampler)]
    resumed = KINDS[name]()
    resumed.load_state_dict(sampler.state_dict(done=2 * 8))
    assert [batch.tolist() for batch in loader(resumed)] == whole[2:]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torch, and torchdata uses it
@pytest.mark.parametrize("name", KINDS)
def test_torchdata_goes_on_at_the_next_sample(name: str) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader() -> Any:
        return torchdata.StatefulDataLoader(Numbers(1000), batch_size=4, sampler=KINDS[name](seed=7), num_workers=1)

    begun = loader()
    whole = [batch.tolist() for batch in loader()]
    iterator = iter(begun)
    assert [next(iterator).tolist() for _ in range(3)] == whole[:3]
    resumed = loader()
    resumed.load_state_dict(begun.state_dict())
    assert [batch.tolist() for batch in resumed] == whole[3:]


@given(weights=st.lists(st.floats(1e-3, 1), min_size=1, max_size=6), seed=st.integers(0, 2**40))
def test_streams_flow_together_as_their_times_say(weights: list[float], seed: int) -> None:
    shares = np.array(weights) / sum(weights)
    flow = Interleaving(shares, seed)
    due = [
        (time, stream, number)
        for stream in range(len(shares))
        for number, time in enumerate(flow._times(np.full(300, stream), np.arange(300)).tolist())
        if time <= 200
    ]
    streams, numbers = flow.at(np.arange(180))
    assert list(zip(streams.tolist(), numbers.tolist(), strict=True)) == [thing[1:] for thing in sorted(due)[:180]]


def test_datasets_have_their_shares_of_every_stretch() -> None:
    weights = np.array([0.5, 0.3, 0.199, 0.001])
    sampler = MixSampler(dict(zip(map(Numbers, (50, 70_000, 300, 9)), weights, strict=True)), 100_000, seed=3)
    order = np.fromiter(sampler, np.int64)
    number = np.searchsorted([50, 70_050, 70_350], order, side="right")
    came = np.vstack([np.zeros(4), np.cumsum(number[:, None] == np.arange(4), axis=0)])
    assert (np.abs(came[-1] / len(order) - weights) <= 0.01 * weights).all()
    for stretch in (1, 10, 256, 5000, 99_999):
        off = np.abs(came[stretch:] - came[:-stretch] - stretch * weights)
        assert (off.max(axis=0) <= 2 + 2 * weights * 4).all()


def test_a_dataset_comes_as_one_permutation_after_the_other_over_the_epochs() -> None:
    sampler = mixed(length=400, seed=2)
    orders = []
    for epoch in range(7):
        sampler.set_epoch(epoch)
        orders += list(sampler)
    numbers = np.searchsorted([50, 750], orders, side="right")
    begin = 0
    for number, length in enumerate(LENGTHS):
        own = np.array(orders)[numbers == number] - begin
        begin += length
        rounds = [own[start : start + length].tolist() for start in range(0, len(own), length)]
        assert len(rounds) > 2
        assert all(sorted(one) == list(range(length)) for one in rounds[:-1])
        assert len(set(rounds[-1])) == len(rounds[-1])
        assert length < 50 or rounds[0] != rounds[1]


def test_a_mix_is_as_long_as_its_datasets_together() -> None:
    a, b, c = Numbers(10), Numbers(990), Numbers(5)
    order = np.array(list(MixSampler({a: 1, b: 1, c: 0})))
    assert len(order) == 1005
    assert order.max() < 1000
    assert np.abs(np.count_nonzero(order < 10) - 502.5) < 4


def test_neither_time_nor_memory_grows_with_the_epoch() -> None:
    def peak(length: int) -> int:
        sampler = MixSampler({Numbers(1000): 0.9, Numbers(10**9): 0.1}, length)
        tracemalloc.start()
        try:
            for _ in itertools.islice(sampler.chunks(1000), 20):
                pass
            next(itertools.islice(sampler, 1))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10**5)
    assert peak(10**12) < 1.1 * peak(10**5)


@pytest.mark.parametrize("world", [2, 8])
def test_each_rank_has_the_shares(world: int) -> None:
    for rank in range(world):
        order = np.array(list(mixed(length=40_000, rank=rank, world=world, seed=4)))
        shares = np.bincount(np.searchsorted([50, 750], order, side="right")) / len(order)
        assert np.allclose(shares, [0.2, 0.7, 0.1], atol=0.02)


def chi_squared(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Return the chi-squared statistic of two histograms with equally many draws."""
    seen = (one + other) > 0
    return float(((one - other)[seen] ** 2 / (one + other)[seen]).sum())


def test_weights_draw_as_torch_draws() -> None:
    weights = np.random.default_rng(0).exponential(size=50) * (np.arange(50) % 5 > 0)
    theirs = np.array(list(WeightedRandomSampler(weights, 200_000, generator=torch.Generator().manual_seed(1))))
    ours = np.array(list(WeightedSampler(weights, 200_000, seed=1)))
    counts = np.bincount(ours, minlength=50)
    assert not counts[::5].any()
    assert chi_squared(counts, np.bincount(theirs, minlength=50)) < 73.4  # 39 degrees of freedom, p = 0.001
    pairs = ours[:-1] % 4 * 4 + ours[1:] % 4
    their_pairs = theirs[:-1] % 4 * 4 + theirs[1:] % 4
    assert chi_squared(np.bincount(pairs), np.bincount(their_pairs)) < 37.7  # 15 degrees of freedom


def test_without_replacement_weights_draw_as_torch_draws() -> None:
    weights, rounds = [0.0, 1.0, 2.0, 4.0, 8.0], 4000
    generator = torch.Generator().manual_seed(2)
    sampler = WeightedSampler(weights, 2, replacement=False)
    counts = np.zeros((2, 25), np.int64)
    for epoch in range(rounds):
        sampler.set_epoch(epoch)
        for number, drawn in enumerate((sampler, WeightedRandomSampler(weights, 2, False, generator=generator))):
            first, second = list(drawn)
            assert first != second
            counts[number, first * 5 + second] += 1
    assert chi_squared(*counts) < 31.3  # 11 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("power", "shares"), [(1, [1, 1, 1]), (0, [40, 12, 7]), (0.5, [40**0.5, 12**0.5, 7**0.5])])
def test_classes_come_as_often_as_the_power_says(power: float, shares: list[float]) -> None:
    order = np.array(list(BalancedSampler(TARGETS, power, 30_000, seed=1)))
    counts = np.bincount(TARGETS[order], minlength=3)  # raises where a label is -1
    assert np.abs(counts - 30_000 * np.array(shares) / sum(shares)).max() < 5
    (of_one,) = [order[TARGETS[order] == 2]]
    assert all(len(set(of_one[start : start + 7].tolist())) == 7 for start in range(0, len(of_one) - 7, 7))


def test_an_epoch_is_as_long_as_there_are_labeled_samples() -> None:
    assert len(list(BalancedSampler(TARGETS))) == 59
    whole = BalancedSampler(TARGETS)
    whole.require_samples(64)
    with pytest.raises(ValueError, match="orders 64 samples, but the dataset has 59"):
        whole.require_samples(59)


def test_a_subset_is_a_permutation_of_its_indices() -> None:
    sampler = SubsetSampler([5, 3, 900, 3])
    assert sorted(sampler) == [3, 3, 5, 900]
    sampler.require_samples(901)
    with pytest.raises(ValueError, match="has index 900, but the dataset has 900 samples"):
        sampler.require_samples(900)


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (lambda: MixSampler([1, 2]), TypeError, r"datasets and their weights"),  # type: ignore[arg-type]
        (
            lambda: MixSampler({"a.lmdb": 2, "b.h5": 1}),
            TypeError,
            "opened datasets, not paths such as 'a.lmdb': use whole",
        ),
        (lambda: MixSampler({Path("a.lmdb"): 2}), TypeError, "opened datasets, not paths"),  # type: ignore[dict-item]
        (lambda: MixSampler({}), ValueError, "finite and above 0"),
        (lambda: MixSampler({Numbers(3): -1}), ValueError, "weight 0 is -1"),
        (lambda: MixSampler({Numbers(3): 1, Numbers(0): 2}), ValueError, "dataset 1 has the weight 2, but no samples"),
        (lambda: MixSampler({Numbers(3): "much"}), TypeError, "numbers of 0 or more"),  # type: ignore[dict-item]
        (lambda: MixSampler({Numbers(3): 1}, 2.5), TypeError, "length must be a whole number"),  # type: ignore[arg-type]
        (lambda: WeightedSampler([1, float("nan")]), ValueError, "weight 1 is nan"),
        (lambda: WeightedSampler([0, 0]), ValueError, "finite and above 0"),
        (lambda: WeightedSampler([[1, 2]]), TypeError, "in one dimension"),  # type: ignore[list-item]
        (lambda: WeightedSampler([1, 0, 2], replacement=False), ValueError, "at most 2 samples"),
        (lambda: BalancedSampler([-1, -1]), ValueError, "no sample has a class"),
        (lambda: BalancedSampler([0, -2]), ValueError, "one is -2"),
        (lambda: BalancedSampler([0.5, 1.0]), TypeError, "one class id for each sample, not float64"),  # type: ignore[list-item]
        (lambda: BalancedSampler([0], power=float("inf")), ValueError, "power is a finite number"),
        (lambda: SubsetSampler([True, False]), TypeError, r"np\.flatnonzero"),
        (lambda: SubsetSampler([3, -1]), ValueError, "one is -1"),
        (lambda: SubsetSampler([1.5]), TypeError, "indices must be integers"),  # type: ignore[list-item]
        (lambda: mixed().load_state_dict(mixed(length=9).state_dict()), ValueError, "its length is 9"),
        (
            lambda: WeightedSampler([1, 2]).load_state_dict(WeightedSampler([1, 3]).state_dict()),
            ValueError,
            "its weights is",
        ),
    ],
)
def test_what_makes_no_order_is_refused(make: Callable[[], object], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        make()


def test_an_epoch_too_far_away_is_refused() -> None:
    sampler = mixed()
    sampler.set_epoch(2**60)
    with pytest.raises(ValueError, match="exceeds the range of a MixSampler"):
        list(sampler)


def test_a_mix_shows_its_settings() -> None:
    sampler = MixSampler({Numbers(3): 3, Numbers(5): 1}, rank=0, world=2)
    assert repr(sampler) == (
        "MixSampler(length=8, datasets=[3, 5], weights=[0.75, 0.25], seed=0, epoch=0, start=0, rank=0, world=2, "
        "uneven='pad')"
    )


SIZE = 40


LOADED: dict[str, Callable[..., OrderSampler]] = {
    "mix": lambda **settings: MixSampler({Numbers(2): 1, Numbers(SIZE - 2): 1}, **settings),
    "balanced": lambda **settings: BalancedSampler([0] * 3 + [1] * (SIZE - 3), **settings),
    "weighted": lambda **settings: WeightedSampler([5] * 3 + [1] * (SIZE - 3), **settings),
    "subset": lambda **settings: SubsetSampler([3, 3, 4, 5, 3, 6], **settings),
}


@pytest.mark.parametrize("name", LOADED)
def test_a_sample_that_comes_again_gets_another_crop_on_any_ranks(name: str, pack: Path) -> None:
    dataset = open_dataset(pack, crop=RandomResizedCrop(16), seed=1)

    def items(world: int, begin: dict[str, Any] | None = None) -> dict[int, tuple[int, bytes]]:
        made = {}
        for rank in range(world):
            loader = Loader(dataset, 1, sampler=LOADED[name](seed=4, rank=rank, world=world, uneven="keep"))
            if begin is not None:
                loader.load_state_dict(begin)
            first = loader.sampler.start + rank
            for place, (images, labels) in enumerate(loader):
                made[first + world * place] = int(labels[0]), images.numpy().tobytes()
        return made

    whole = items(1)
    labels = [label for label, _ in whole.values()]
    assert len(set(labels)) < len(labels)
    assert len(set(whole.values())) == len(labels)
    assert items(2) == whole
    loader = Loader(dataset, 1, sampler=LOADED[name](seed=4))
    for done, _ in enumerate(loader, 1):
        if done == 4:
            break
    rest = items(3, loader.state_dict())
    assert rest == {place: item for place, item in whole.items() if place >= 4}


def test_a_sampler_of_other_samples_is_refused(pack: Path) -> None:
    for sampler in (
        mixed(),
        WeightedSampler([1, 2], 20),
        BalancedSampler([1] * (SIZE - 1), length=20),
        SubsetSampler([SIZE]),
    ):
        with pytest.raises(ValueError, match=f"but the dataset has {SIZE}"):
            Loader(open_dataset(pack), 4, sampler=sampler)
    Loader(open_dataset(pack), 4, sampler=WeightedSampler([1] * SIZE, 7))


def test_the_samplers_are_in_a_package_of_their_own() -> None:
    assert packer.samplers.ShuffleSampler is packer.ShuffleSampler
    assert set(packer.samplers.__all__) > {"MixSampler", "OrderSampler", "SequentialSampler", "BlockShuffleSampler"}


def test_an_epoch_that_comes_again_is_said_once() -> None:
    """torch's samplers draw a new order for each pass; packer's need a call of set_epoch in the loop."""
    for sampler in (BalancedSampler([0, 1, 1, 0]), WeightedSampler([1, 2, 3]), ShuffleSampler(5)):
        list(DataLoader(range(5), sampler=sampler))
        with pytest.warns(
            UserWarning, match=r"repeats the order of the previous pass, epoch 0: call sampler.set_epoch"
        ):
            list(DataLoader(range(5), sampler=sampler))
        list(DataLoader(range(5), sampler=sampler))  # does not warn again
    sampler = ShuffleSampler(5)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        list(sampler)
    again = SequentialSampler(5)
    assert list(again) == list(again)
