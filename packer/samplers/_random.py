"""Random numbers and permutations as functions of seed, epoch and index, the same on every thread and rank.

Users' transforms draw from the generators of torch, Python and NumPy. `seeder` seeds these generators with seed, epoch
and index too.
"""

from __future__ import annotations

import hashlib
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

from packer._images.extension import _native
from packer._images.native import crop_steps
from packer._table import Ints
from packer.errors import OptionError, OptionTypeError

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, epoch: int, indices: npt.NDArray[np.int64], randoms: int) -> npt.NDArray[np.float64]:
    """Return random numbers that depend only on seed, epoch and index.

    The generator is counter-based: it applies SplitMix64's output function (Steele, Lea, Flood 2014, "Fast splittable
    pseudorandom number generators") to a key and a counter. The key is computed from seed and epoch; the counter is
    computed from the index and the position of the random number.

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
    """Return a seed from the user as an int; TypeError if it is not an integer."""
    try:
        return operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise OptionTypeError(f"seed must be an integer, not {seed!r}") from None


def epoch_of(epoch: object) -> int:
    """Return an epoch from the user as an int; TypeError if it is not an integer."""
    try:
        return operator.index(epoch)  # type: ignore[arg-type]
    except TypeError:
        raise OptionTypeError(f"epoch must be an integer, not {epoch!r}") from None


def _mix(values: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


_Bits = npt.NDArray[np.uint64]

_ROUNDS = 6
_EPOCH_OF_NUMBERS = -2  # stands in place of the epoch, so that `permute_each` and `permute` have different keys


def permute(places: Ints, length: int, seed: int, epoch: int) -> Ints:
    """Return the elements of a permutation of ``range(length)`` at some positions, without computing the others.

    The permutation is a Feistel network on the smallest even number of bits that can represent `length` values. A
    result of `length` or more goes through the network again until it is below `length` (Black, Rogaway 2002, "Ciphers
    with arbitrary finite domains", cycle walking).
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
    """Return N numbers, each an element of its own permutation.

    Parameters
    ----------
    places, lengths, numbers : (N,) int64 arrays
        For each element: its position in the permutation, the permutation's length, and a number that, together with
        `seed`, selects the permutation.
    """
    bits = np.frexp((lengths - 1).astype(np.float64))[1]  # the same as int.bit_length
    halves = np.maximum(1, -(-bits // 2)).astype(np.uint64)
    keys = (uniforms(seed, _EPOCH_OF_NUMBERS, numbers, _ROUNDS).T * 2.0**53).astype(np.uint64)
    values, ends = places.astype(np.uint64), lengths.astype(np.uint64)
    wandering = np.arange(len(values))
    while len(wandering):
        values[wandering] = _mixed(values[wandering], halves[wandering], keys[:, wandering])
        wandering = wandering[values[wandering] >= ends[wandering]]
    return values.astype(np.int64)


def _mixed(values: _Bits, half: _Bits | np.uint64, keys: _Bits) -> _Bits:
    """Send values of ``2 * half`` bits through the Feistel network; each row of `keys` has the keys of one round."""
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
    """Return, for each of N values, how often it occurs before its position."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=-1))  # the first index of each run of equal values
    counted = np.empty_like(values)
    counted[order] = np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))
    return counted


def weights_of(values: Any) -> npt.NDArray[np.float64]:
    """Return weights from the user as an (N,) float64 array.

    Raises
    ------
    TypeError
        If the weights are not numbers in one dimension.
    ValueError
        If a weight is below 0, infinite or NaN, or the sum is 0.
    """
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise OptionTypeError(f"weights must be numbers of 0 or more, not {values!r}") from None
    if numbers.ndim != 1:
        raise OptionTypeError(f"weights must be numbers in one dimension, not an array of shape {numbers.shape}")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise OptionError(f"weights must be numbers of 0 or more, but weight {wrong[0]} is {numbers[wrong[0]]:g}")
    if not numbers.any() or not np.isfinite(numbers.sum()):
        raise OptionError(f"the sum of the weights must be finite and above 0, not {numbers.sum():g}")
    return numbers


def digest_of(values: npt.NDArray[Any]) -> str:
    """Return a digest of values, for the state of a sampler."""
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


_OF_TRANSFORMS = 0x5851F42D4C957F2D  # added to a seed, so that transforms and crops draw different numbers


def generator_states() -> tuple[Any, ...]:
    """Return the states of the generators of torch, Python and NumPy, to compare them."""
    _, key, position, *_ = np.random.get_state()
    return bytes(torch.get_rng_state().numpy()), random.getstate(), np.asarray(key).tobytes(), position


def seeder(seed: int, epoch: int, keys: Ints) -> Callable[[int], None]:
    """Return a function that takes an index into `keys`, and seeds the generators with seed, epoch and that key."""
    seeds = (uniforms(seed + _OF_TRANSFORMS, epoch, keys, 1)[:, 0] * 2**53).astype(np.int64).tolist()

    def seed_generators(index: int) -> None:
        torch.default_generator.manual_seed(seeds[index])
        random.seed(seeds[index])
        np.random.seed(seeds[index] % 2**32)

    return seed_generators


_WITH_GENERATOR = {
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial),
    *(torch.poisson, torch.binomial, torch._standard_gamma, torch._sample_dirichlet),
    *(torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.bernoulli_),
    *(torch.Tensor.exponential_, torch.Tensor.cauchy_, torch.Tensor.geometric_, torch.Tensor.log_normal_),
    *(torch.Tensor.bernoulli, torch.Tensor.multinomial),
}
"""torch's functions that take the argument `generator`."""

_FILLED_BY = {torch.rand_like: torch.Tensor.uniform_, torch.randn_like: torch.Tensor.normal_}
"""For each function without the argument `generator`, the method that fills a new tensor with the same numbers."""


class drawing_from(TorchFunctionMode):  # noqa: N801 - it stands in a with statement
    """Make torch's functions draw, in this thread, the same numbers as after ``torch.manual_seed(seed)``.

    The functions draw from a new generator. torch's default generator, which all threads share, is unchanged.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FILLED_BY:
            return _FILLED_BY[func](torch.empty_like(*args, **kwargs), generator=self._generator)
        if func in _WITH_GENERATOR and kwargs.get("generator") is None:
            kwargs["generator"] = self._generator
        return func(*args, **kwargs)
