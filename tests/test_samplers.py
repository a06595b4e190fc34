"""Samplers: every sample exactly once, on any number of ranks, from any place."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.samplers import BlockShuffleSampler, OrderSampler, SequentialSampler, ShuffleSampler, permute


def make(kind: type[OrderSampler], length: int, **settings: Any) -> OrderSampler:
    if kind is BlockShuffleSampler:
        return BlockShuffleSampler(length, block=7, window=3, **settings)
    return kind(length, **settings)


KINDS = st.sampled_from([SequentialSampler, ShuffleSampler, BlockShuffleSampler])


@given(length=st.integers(1, 5000), seed=st.integers(0, 2**40), epoch=st.integers(0, 2**20))
def test_permute_is_a_permutation(length: int, seed: int, epoch: int) -> None:
    assert sorted(permute(np.arange(length), length, seed, epoch).tolist()) == list(range(length))


def test_permutations_of_four_are_equally_frequent() -> None:
    rounds = 24000
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


@given(kind=KINDS, length=st.integers(1, 300), start=st.integers(0, 300), world=st.integers(1, 5))
def test_resuming_on_another_number_of_ranks_leaves_nothing_out(
    kind: type[OrderSampler], length: int, start: int, world: int
) -> None:
    start = min(start, length)
    whole = make(kind, length, rank=0, world=1)
    whole.set_epoch(2)
    order = list(whole)
    rest: dict[int, int] = {}
    for rank in range(world):
        sampler = make(kind, length, rank=rank, world=world, uneven="keep")
        sampler.load_state_dict({"epoch": 2, "start": start})
        rest |= {start + rank + world * place: index for place, index in enumerate(sampler)}
    assert [rest[place] for place in sorted(rest)] == order[start:]


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
        with pytest.raises(ValueError, match="is"):
            ShuffleSampler(10, **settings)
    with pytest.raises(ValueError, match="block"):
        BlockShuffleSampler(10, block=0)


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
