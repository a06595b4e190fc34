"""Streams that flow into one order, each with its share of the places."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._table import Ints
from packer.samplers._uniforms import uniforms

__all__ = ["LAST_PLACE", "Interleaving"]

Floats = npt.NDArray[np.float64]

LAST_PLACE = 1 << 48
"""Beyond this place, times have too few bits left."""

_OF_TIMES = -1  # in the place of an epoch: the random numbers of times are none that a permutation has
_AT_ONCE = 1 << 18  # numbers that are computed at once, at the least


class Interleaving:
    """An endless order in which each of D streams has its share of the places, in any stretch of the order.

    The things of stream d, numbered from 0, are due one after the other: thing k at a random time between k / share and
    (k + 1) / share. The order is that of the times. So what stands at a place follows from the times nearby: until time
    t, each stream has sent its share of t things or one less or more, and all together t things, or up to D less or
    more.

    Parameters
    ----------
    shares : (D,) float64 array
        Above 0; the sum is 1.
    seed : int
    """

    def __init__(self, shares: Floats, seed: int) -> None:
        self._shares = shares
        self._seed = seed
        self._slack = len(shares) + 1  # one more for rounded times

    def at(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the streams of what stands at N places, and its numbers in these streams: two (N,) int64 arrays."""
        wanted, back = np.unique(places, return_inverse=True)
        # Places that lie close together are found together, as one run.
        begins = np.flatnonzero(np.diff(wanted, prepend=-np.inf) > 2 * self._slack + 1)
        step = max(_AT_ONCE // len(self._shares), 1)
        cuts = begins[::step].tolist()
        found = [
            self._in_runs(wanted[begin:end], begins[number * step : (number + 1) * step] - begin)
            for number, (begin, end) in enumerate(zip(cuts, [*cuts[1:], len(wanted)], strict=True))
        ]
        streams, numbers = (np.concatenate(parts)[back] for parts in zip(*found, strict=True))
        return streams, numbers

    def _in_runs(self, wanted: Ints, begins: Ints) -> tuple[Ints, Ints]:
        """Return streams and numbers at ascending places; `begins` says where among these each run begins."""
        ends = np.append(begins[1:], len(wanted))
        sent = self._sent_before(np.maximum(wanted[begins] - self._slack, 0))
        counts = self._sent_before(wanted[ends - 1] + 1 + self._slack) - sent
        streams = np.repeat(np.tile(np.arange(len(self._shares)), len(begins)), counts.ravel())
        numbers = np.arange(len(streams)) + np.repeat(sent.ravel() - _sums_before(counts.ravel()), counts.ravel())
        by_time = np.lexsort((streams, self._times(streams, numbers)))
        sizes = counts.sum(1)
        there = np.arange(len(streams)) + np.repeat(sent.sum(1) - _sums_before(sizes), sizes)
        chosen = by_time[np.searchsorted(there, wanted)]
        return streams[chosen], numbers[chosen]

    def _sent_before(self, times: Ints) -> Ints:
        """Return how many things each stream sent before each of R times: an (R, D) array."""
        certain = np.maximum(np.floor(times[:, None] * self._shares).astype(np.int64) - 1, 0)
        streams = np.arange(len(self._shares))
        sent = certain.copy()
        for more in range(3):
            sent += self._times(streams, certain + more) < times[:, None]
        return np.asarray(sent)

    def _times(self, streams: Ints, numbers: Ints) -> Floats:
        """Return when things are due."""
        things = numbers * len(self._shares) + streams
        random = uniforms(self._seed, _OF_TIMES, things.ravel(), 1).reshape(things.shape)
        return np.asarray((numbers + random) / self._shares[streams])


def _sums_before(counts: Ints) -> Ints:
    """Return for each count the sum of those before it."""
    return np.asarray(np.cumsum(counts) - counts)
