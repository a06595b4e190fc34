"""Random numbers that are a function of seed, epoch and index: the same in every thread, process and rank."""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.native import choosing

__all__ = ["seed_of", "uniforms"]

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, epoch: int, indices: npt.NDArray[np.int64], randoms: int) -> npt.NDArray[np.float64]:
    """Return random numbers that depend on seed, epoch and index alone.

    A counter-based generator: SplitMix64's output function (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
    number generators") over a key of seed and epoch and a counter of index and number.

    Returns
    -------
    (len(indices), randoms) float64 array
        Uniform in [0, 1), with 53 random bits.
    """
    if _native is not None:
        return choosing.uniforms(seed, epoch, np.asarray(indices), randoms)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        key = _mix(_mix(np.uint64(seed % 2**64)) + np.uint64(epoch % 2**64))
        counters = _mix(key + np.asarray(indices).astype(np.uint64)[:, None] * _STEP)
        bits = _mix(counters + np.arange(1, randoms + 1, dtype=np.uint64) * _STEP)
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def seed_of(seed: object) -> int:
    """Return a seed that a person gave; TypeError where it is no integer."""
    try:
        return operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"seed is an integer, not {seed!r}") from None


def _mix(values: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
