"""Samplers: every sample exactly once, on any number of ranks, from any place."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader

from packer.samplers import BlockShuffleSampler, OrderSampler, SequentialSampler, ShuffleSampler
from packer.samplers._random import permute


def make(kind: type[OrderSampler], length: int, **settings: Any) -> OrderSampler:
    if kind is BlockShuffleSampler:
        return BlockShuffleSampler(length, block=7, window=3, **settings)
    return kind(length, **settings)


KINDS = st.sampled_from([SequentialSampler, ShuffleSampler, BlockShuffleSampler])


@given(length=st.integers(1, 5000), seed=st.integers(0, 2**40), epoch=st.integers(0, 2**20))
def test_permute_is_a_permutation(length: int, seed: int, epoch: int) -> None:
    assert sorted(permute(np.arange(length), length, seed, epoch).tolist()) == list(range(length))


def test_permutations_of_four_are_equally_frequent() -> None:
    rounds = 8_000
    counted = Counter(tuple(permute(np.arange(4), 4, 0, epoch).tolist()) for epoch in range(rounds))
    assert len(counted) == 24
    chi_squared = sum((number - rounds / 24) ** 2 / (rounds / 24) for number in counted.values())
    assert chi_squared < 49.7  # 23 degrees of freedom, p = 0.001


@given(kind=KINDS, length=st.integers(1, 300), world=st.integers(1, 9), epoch=st.integers(0, 5))
def test_ranks_share_every_sample_exactly_once(kind: type[OrderSampler], length: int, world: int, epoch: int) -> None:
    ranks = [make(kind, length, rank=rank, world=world, uneven="keep") for rank in range(world)]
    for sampler in ranks:
        sampler.set_epoch(epoch)
    shares = [list(sampler) for sampler in ranks]
    assert sorted(itertools.chain(*shares)) == list(range(length))
    assert [len(sampler) for sampler in ranks] == [len(share) for share in shares]


@given(kind=KINDS, length=st.integers(1, 300), world=st.integers(1, 9))
def test_padding_gives_every_rank_equally_many(kind: type[OrderSampler], length: int, world: int) -> None:
    shares = [list(make(kind, length, rank=rank, world=world)) for rank in range(world)]
    assert {len(share) for share in shares} == {-(-length // world)}
    assert set(itertools.chain(*shares)) == set(range(length))
    dropped = [list(make(kind, length, rank=rank, world=world, uneven="drop")) for rank in range(world)]
    assert {len(share) for share in dropped} == {length // world}
    assert len(set(itertools.chain(*dropped))) == length // world * world


@given(
    kind=KINDS,
    length=st.integers(1, 300),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**33),
    done=st.integers(0, 300),
    before=st.integers(1, 5),
    after=st.integers(1, 5),
)
def test_a_resumed_epoch_is_the_rest_of_the_same_order(
    *, kind: type[OrderSampler], length: int, seed: int, epoch: int, done: int, before: int, after: int
) -> None:
    whole = make(kind, length, seed=seed, rank=0, world=1)
    whole.set_epoch(epoch)
    order = list(whole)
    ranks = [make(kind, length, seed=seed, rank=rank, world=before, uneven="keep") for rank in range(before)]
    done = min(done, len(ranks[-1]))
    seen: dict[int, int] = {}
    for sampler in ranks:
        sampler.set_epoch(epoch)
        seen |= {sampler.rank + before * place: index for place, index in enumerate(itertools.islice(sampler, done))}
    states = [pickle.loads(pickle.dumps(sampler.state_dict(done))) for sampler in ranks]
    assert all(state == states[0] for state in states)
    for rank in range(after):
        sampler = make(kind, length, seed=seed ^ 1, rank=rank, world=after, uneven="keep")
        sampler.set_epoch(epoch + 1)
        list(sampler)  # what was done before loading must not matter
        sampler.load_state_dict(states[0])
        start = done * before
        seen |= {start + rank + after * place: index for place, index in enumerate(sampler)}
        assert sampler.seed == seed
        assert len(list(sampler)) == len(make(kind, length, rank=rank, world=after, uneven="keep"))  # whole again
    assert [seen[place] for place in sorted(seen)] == order


@pytest.mark.parametrize("kind", [SequentialSampler, ShuffleSampler, BlockShuffleSampler])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_goes_on_at_the_next_sample(kind: type[OrderSampler], workers: int) -> None:
    def loader(sampler: OrderSampler) -> DataLoader[Any]:
        return DataLoader(torch.arange(60), batch_size=8, sampler=sampler, num_workers=workers)  # type: ignore[arg-type]

    sampler = make(kind, 60, seed=7)
    sampler.set_epoch(2)
    whole = [batch.tolist() for batch in loader(sampler)]
    sampler.set_epoch(2)
    for stop, _ in enumerate(loader(sampler), 1):
        if stop == 3:
            break
    resumed = make(kind, 60)
    resumed.load_state_dict(sampler.state_dict(done=3 * 8))
    assert [batch.tolist() for batch in loader(resumed)] == whole[3:]


@given(kind=KINDS, taken=st.integers(0, 50), world=st.integers(1, 3))
def test_an_iterator_knows_its_state_as_torchdata_asks_for_it(kind: type[OrderSampler], taken: int, world: int) -> None:
    sampler = make(kind, 150, seed=3, rank=world - 1, world=world)
    sampler.set_epoch(5)
    iterator: Any = iter(sampler)
    list(itertools.islice(iterator, taken))
    states = sampler.state_dict(), iterator.state_dict()
    other = make(kind, 150, rank=world - 1, world=world)
    other.load_state_dict(states[0])
    resumed: Any = iter(other)
    resumed.load_state_dict(states[1])
    assert list(resumed) == list(iterator)


def test_the_seed_of_a_sampler_that_was_used_may_change() -> None:
    sampler = BlockShuffleSampler(100, 7, 3, seed=1)
    list(sampler), sampler.order(np.arange(100))
    sampler.seed = 2
    assert sampler.order(np.arange(100)).tolist() == list(BlockShuffleSampler(100, 7, 3, seed=2))


@pytest.mark.parametrize("kind", [ShuffleSampler, BlockShuffleSampler])
def test_a_pass_keeps_its_epoch(kind: type[OrderSampler]) -> None:
    sampler = make(kind, 100)
    expected = list(sampler)
    for running in (iter(sampler), itertools.chain.from_iterable(sampler.chunks(7))):
        begun = [next(running)]
        sampler.set_epoch(9)
        list(sampler)
        assert [int(index) for index in begun + list(running)] == expected
        sampler.set_epoch(0)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"x": 1}, "no number 'epoch'"),
        ({"epoch": 0}, "no number 'start'"),
        ({"epoch": 0, "start": 1.5}, "no number 'start'"),
        ({"epoch": 0, "start": -1}, "its start is -1"),
        (None, "no number 'epoch'"),
        ({"epoch": 0, "start": 200}, "sample 200, but there are only 52"),
        ({**ShuffleSampler(52).state_dict(), "version": 2}, "a newer packer"),
        ({**ShuffleSampler(52).state_dict(), "seed": None}, "no number 'seed'"),
        (ShuffleSampler(51).state_dict(), "its length is 51, but this sampler's is 52"),
        (SequentialSampler(52).state_dict(), "its kind is 'SequentialSampler', but this sampler's is 'ShuffleSampler'"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(state: Any, reason: str) -> None:
    sampler = ShuffleSampler(52, seed=4)
    with pytest.raises(ValueError, match=reason):
        sampler.load_state_dict(state)
    assert sampler.state_dict() == ShuffleSampler(52, seed=4).state_dict()


def test_a_state_of_other_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="its window is 64, but this sampler's is 32"):
        BlockShuffleSampler(52, 8, 32).load_state_dict(BlockShuffleSampler(52, 8, 64).state_dict())


def test_states_of_the_first_version_leave_the_seed() -> None:
    sampler = ShuffleSampler(52, seed=4)
    sampler.load_state_dict({"epoch": 3, "start": 10})
    whole = ShuffleSampler(52, seed=4)
    whole.set_epoch(3)
    assert list(sampler) == list(whole)[10:]


def test_a_sampler_shows_its_settings() -> None:
    sampler = BlockShuffleSampler(52, 8, 4, seed=7, rank=1, world=2)
    assert repr(sampler) == (
        "BlockShuffleSampler(length=52, block=8, window=4, seed=7, epoch=0, start=0, rank=1, world=2, uneven='pad')"
    )


def test_epochs_and_seeds_differ() -> None:
    for kind in (ShuffleSampler, BlockShuffleSampler):
        sampler = make(kind, 1000)
        first = list(sampler)
        sampler.set_epoch(1)
        assert list(sampler) != first
        assert list(make(kind, 1000, seed=1)) != first
        assert list(make(kind, 1000)) == first


def test_block_shuffle_stays_inside_a_window() -> None:
    sampler = BlockShuffleSampler(10_000, block=50, window=4)
    order = np.array(list(sampler))
    for start in range(0, 10_000, 200):
        assert len(np.unique(order[start : start + 200] // 50)) == 4
    assert len({tuple(np.unique(order[start : start + 200] // 50)) for start in range(0, 10_000, 200)}) == 50


def test_bad_settings_are_refused() -> None:
    for settings in ({"rank": 3, "world": 3}, {"uneven": "maybe"}):
        with pytest.raises(ValueError, match="must be"):
            ShuffleSampler(10, **settings)
    with pytest.raises(ValueError, match="block"):
        BlockShuffleSampler(10, block=0)
    with pytest.raises(TypeError, match=r"^window must be a whole number"):
        BlockShuffleSampler(10, window=2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^length must be a whole number"):
        ShuffleSampler(10.5)  # type: ignore[arg-type]


def test_samplers_pickle_small() -> None:
    sampler = BlockShuffleSampler(10**7)
    assert len(pickle.dumps(sampler)) < 1000


@pytest.mark.parametrize("kind", [SequentialSampler, ShuffleSampler, BlockShuffleSampler])
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_chunks_are_what_iterating_gives(kind: type[OrderSampler], size: int) -> None:
    sampler = make(kind, 301, rank=1, world=2)
    sampler.set_epoch(3)
    chunks = list(sampler.chunks(size))
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    assert np.concatenate(chunks).tolist() == list(sampler)


@pytest.mark.parametrize("seed", ["7", 0.5, None])
def test_a_seed_is_checked_when_it_is_assigned(seed: Any) -> None:
    sampler = ShuffleSampler(8, seed=3)
    with pytest.raises(TypeError, match="seed must be an integer, not"):
        sampler.seed = seed
    assert sampler.seed == 3
    sampler.seed = np.int64(4)  # type: ignore[assignment]
    assert list(sampler) == list(ShuffleSampler(8, seed=4))
    assert pickle.loads(pickle.dumps(sampler)).seed == 4
