"""Random numbers and permutations as functions of seed, epoch and index, the same on every thread and rank."""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.extension import _native
from packer._images.native import crop_steps
from packer._table import Ints
from packer.errors import OptionError, OptionTypeError

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, epoch: int, indices: npt.NDArray[np.int64], randoms: int) -> npt.NDArray[np.float64]:
    """Return random numbers that depend only on seed, epoch and index.

    A counter-based generator: SplitMix64's output function (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
    number generators") over a key of seed and epoch and a counter of index and number.

    Returns
    -------
    (len(indices), randoms) float64 array
        Uniform in [0, 1), with 53 random bits.
    """
    if _native is not None:
        return crop_steps.uniforms(seed, epoch, np.asarray(indices), randoms)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        key = _mix(_mix(np.uint64(seed % 2**64)) + np.uint64(epoch % 2**64))
        counters = _mix(key + np.asarray(indices).astype(np.uint64)[:, None] * _STEP)
        bits = _mix(counters + np.arange(1, randoms + 1, dtype=np.uint64) * _STEP)
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def seed_of(seed: object) -> int:
    """Return a user's seed; TypeError if it is not an integer."""
    try:
        return operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise OptionTypeError(f"seed is an integer, not {seed!r}") from None


def epoch_of(epoch: object) -> int:
    """Return a user's epoch; TypeError if it is not an integer."""
    try:
        return operator.index(epoch)  # type: ignore[arg-type]
    except TypeError:
        raise OptionTypeError(f"epoch is an integer, not {epoch!r}") from None


def _mix(values: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


_Bits = npt.NDArray[np.uint64]

_ROUNDS = 6
_OF_NUMBERS = -2  # in the place of an epoch: the keys of `permute_each` are none that `permute` has


def permute(places: Ints, length: int, seed: int, epoch: int) -> Ints:
    """Return the elements of a permutation of ``range(length)`` at some places, without computing the others.

    A Feistel network on the smallest even number of bits that can represent `length` values; results that are too large
    go through the network again until they are not (Black, Rogaway 2002, "Ciphers with arbitrary finite domains", cycle
    walking).
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
    """Return the element at each of N places, each in a permutation of its own.

    Parameters
    ----------
    places, lengths, numbers : (N,) int64 arrays
        A place, the length of the permutation, and the number of the permutation among the permutations of `seed`.
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
    """Send values of twice `half` bits through the network; each row of `keys` has the keys of one round."""
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
    """Return for each of N values the number of its earlier occurrences."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=-1))  # of the runs of one value
    counted = np.empty_like(values)
    counted[order] = np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))
    return counted


def weights_of(values: Any) -> npt.NDArray[np.float64]:
    """Return a user's weights as an (N,) float64 array.

    Raises
    ------
    TypeError
        If they are not numbers in one dimension.
    ValueError
        If a weight is below 0, infinite or NaN, or the sum is 0.
    """
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise OptionTypeError(f"weights are numbers of 0 or more, not {values!r}") from None
    if numbers.ndim != 1:
        raise OptionTypeError(f"weights are numbers in one dimension, not an array of shape {numbers.shape}")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise OptionError(f"weights are numbers of 0 or more, and number {wrong[0]} is {numbers[wrong[0]]:g}")
    if not numbers.any() or not np.isfinite(numbers.sum()):
        raise OptionError(f"weights have a finite sum above 0, and these have {numbers.sum():g}")
    return numbers


def digest_of(values: npt.NDArray[Any]) -> str:
    """Return a digest of values, for the state of a sampler."""
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
