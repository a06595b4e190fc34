"""Permutations that are computed at a place, without computing them elsewhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._table import Ints
from packer.samplers._uniforms import uniforms

__all__ = ["earlier", "permute", "permute_each"]

_Bits = npt.NDArray[np.uint64]

_ROUNDS = 6
_OF_NUMBERS = -2  # in the place of an epoch: the keys of `permute_each` are none that `permute` has


def permute(places: Ints, length: int, seed: int, epoch: int) -> Ints:
    """Return a permutation of ``range(length)`` at the given places, without computing it elsewhere.

    A Feistel network on the smallest even number of bits that counts `length` things; values that come out too large go
    through it again until they do not (Black, Rogaway 2002, "Ciphers with arbitrary finite domains", cycle walking).
    """
    half = np.uint64(max(1, -(-(length - 1).bit_length() // 2)))
    keys = (uniforms(seed, epoch, np.arange(_ROUNDS), 1)[:, 0] * 2.0**53).astype(np.uint64)
    values = places.astype(np.uint64)
    wandering = np.ones(len(values), np.bool_)
    while wandering.any():
        values[wandering] = _mixed(values[wandering], half, keys)
        wandering = values >= np.uint64(length)
    return values.astype(np.int64)


def permute_each(places: Ints, lengths: Ints, seed: int, numbers: Ints) -> Ints:
    """Return for each of N places what stands there in a permutation of its own.

    Parameters
    ----------
    places, lengths, numbers : (N,) int64 arrays
        A place, the length of the permutation, and the number of the permutation among those of `seed`.
    """
    bits = np.frexp((lengths - 1).astype(np.float64))[1]  # as int.bit_length
    halves = np.maximum(1, -(-bits // 2)).astype(np.uint64)
    keys = (uniforms(seed, _OF_NUMBERS, numbers, _ROUNDS).T * 2.0**53).astype(np.uint64)
    values, ends = places.astype(np.uint64), lengths.astype(np.uint64)
    wandering = np.arange(len(values))
    while len(wandering):
        values[wandering] = _mixed(values[wandering], halves[wandering], keys[:, wandering])
        wandering = wandering[values[wandering] >= ends[wandering]]
    return values.astype(np.int64)


def _mixed(values: _Bits, half: _Bits | np.uint64, keys: _Bits) -> _Bits:
    """Send values of twice `half` bits through the network; the keys of the rounds are rows."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & mask
    with np.errstate(over="ignore"):
        for key in keys:
            mixed = (right + key) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0x94D049BB133111EB)
            left, right = right, left ^ (mixed >> np.uint64(32)) & mask
    return np.asarray(left << half | right)


def earlier(values: Ints) -> Ints:
    """Return for each of N values how often it stands before its place."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=-1))  # of the runs of one value
    counted = np.empty_like(values)
    counted[order] = np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))
    return counted
