"""Which images of a list stand for all, and what is known of all when these are known.

Images of like sizes are a stratum. Strata of large images have fewer of them, as what is asked for, such as the bytes
in the pack, varies more among these; from every stratum the same number is drawn at first. What is drawn beyond that is
drawn from all alike, so that many images together take the time that as many of all take. The sum over all images is
estimated by regression on the size, which is known of every image. See Cochran, Sampling Techniques, 5.5 and 7.10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer._table import Ints

__all__ = ["Interval", "Population"]

Floats = npt.NDArray[np.float64]

_STRATA = 20
_FROM_EACH = 4  # images of a stratum that an estimate wants, at least
_ALIKE = 8  # images of each stratum that are drawn before others
_STEP = 7  # from a stratum to the next one, so that few images are spread too; prime to _STRATA
_Z = 1.96  # of 95 %


@dataclass(frozen=True)
class Interval:
    """A number that was estimated: what it is thought to be, and between which two it is with 95 %.

    Attributes
    ----------
    value, low, high : float
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """Return what so many times the number is."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Return an interval as wide on both sides; nothing that is counted or measured here is below 0."""
        return cls(value, max(0.0, value - half), value + half)


class Population:
    """The images of a list, in an order of which every beginning is a sample of all strata.

    Parameters
    ----------
    sizes : (M,) int64 array
        Bytes of the images whose size is known.
    which : (M,) int64 array
        The indices of these images in the list, drawn without regard to anything.
    length : int
        How many images the list has.
    seed : int
        Decides which images are drawn.

    Attributes
    ----------
    order : (M,) int64 array
        Indices into the list.
    known : int
        How many images have a known size.
    """

    def __init__(self, sizes: Ints, which: Ints, length: int, seed: int = 0) -> None:
        self._length = length
        self.known = known = len(sizes)
        mixed = np.random.default_rng(seed).permutation(known)
        by_size = mixed[np.argsort(sizes[mixed], kind="stable")]
        self._sizes = sizes[by_size].astype(np.float64)
        self._stratum = stratum = _strata(self._sizes)
        turn = np.empty(known, np.int64)  # of an image among those of its stratum
        drawn = np.random.default_rng([seed, 1]).permutation(known)
        turn[drawn[np.argsort(stratum[drawn], kind="stable")]] = np.arange(known) - np.searchsorted(stratum, stratum)
        first = turn < _ALIKE
        later = np.random.default_rng([seed, 3]).permutation(known)
        place = np.lexsort((np.where(first, stratum * _STEP % _STRATA, later), np.where(first, turn, _ALIKE)))
        self.order = which[by_size[place]]
        self._rank_of = place  # of the images in `order`, their ranks by size

    def __len__(self) -> int:
        return self._length

    @property
    def bytes(self) -> Interval:
        """How many bytes all images have: known, or estimated where not all were looked at."""
        total = float(self._sizes.sum()) * self._length / max(self.known, 1)
        return Interval.around(total, self._unseen(float(self._sizes.std())))

    @property
    def mean_size(self) -> float:
        """Bytes of an image."""
        return float(self._sizes.mean()) if self.known else 0.0

    def sizes(self, places: Ints) -> Floats:
        """Return the bytes of the images at some places of `order`."""
        return self._sizes[self._rank_of[places]]

    def total(self, places: Ints, values: Floats) -> Interval:
        """Estimate the sum of something over all images.

        Parameters
        ----------
        places : (n,) int64 array
            The images that it is known of, as places in `order`.
        values : (n,) float64 array
            What it is of them.
        """
        ranks, n = self._rank_of[places], len(places)
        scale = self._length / self.known
        if n == self.known:
            return Interval.around(float(values.sum()) * scale, self._unseen(float(values.std())))
        strata = max(1, min(_STRATA, n // _FROM_EACH))
        stratum = self._stratum * strata // _STRATA
        members, of = _without_empty(stratum, stratum[ranks])
        seen = np.bincount(of).astype(np.float64)
        sizes = self._sizes[ranks]
        y, x = values - _means(values, of, seen)[of], sizes - _means(sizes, of, seen)[of]
        weight = members**2 * (1 - seen / members) / (seen * np.maximum(seen - 1, 1))
        spread = float((weight[of] * x * x).sum())
        slope = float((weight[of] * x * y).sum()) / spread if spread else 0.0
        total = float((members * _means(values, of, seen)).sum())
        total += slope * (float(self._sizes.sum()) - float((members * _means(sizes, of, seen)).sum()))
        pull = weight[of] * x * x / spread if spread else np.zeros(n)  # of each image on the slope, up to 1
        left = (y - slope * x) / np.maximum(1 - pull, 0.1)  # as if the image had not been in it: MacKinnon and White
        variances = weight * np.bincount(of, left**2, minlength=len(seen))
        half = _quantile(variances, seen) * math.sqrt(variances.sum())
        return Interval.around(total * scale, math.hypot(half * scale, self._unseen(float(values.std()))))

    def number(self, places: Ints, found: npt.NDArray[np.bool_]) -> Interval:
        """Estimate how many of all images have something; Wilson's interval, where images stand for different numbers.

        Parameters
        ----------
        places : (n,) int64 array
            The images of which it is known, as places in `order`.
        found : (n,) bool array
            Whether they have it.
        """
        if len(places) == self._length:
            return Interval.around(float(found.sum()), 0.0)
        members, of = _without_empty(self._stratum, self._stratum[self._rank_of[places]])
        stands_for = (members / np.bincount(of))[of]
        share = float(stands_for[found].sum() / stands_for.sum())
        effective = float(stands_for.sum() ** 2 / (stands_for**2).sum())
        z = _Z * math.sqrt(1 - len(places) / self._length)
        middle, width = share * effective + z * z / 2, z * math.sqrt(share * (1 - share) * effective + z * z / 4)
        low, high = (self._length * (middle + side) / (effective + z * z) for side in (-width, width))
        seen = float(found.sum())
        return Interval(max(seen, share * self._length), max(seen, math.floor(low)), math.ceil(max(seen, high)))

    def _unseen(self, deviation: float) -> float:
        """Return what a sum may be off by for images whose size nobody looked at."""
        missing = 1 - self.known / self._length
        return _Z * self._length * deviation * math.sqrt(missing / self.known) if self.known else 0.0


def _strata(sizes: Floats) -> Ints:
    """Return the stratum of each image, of ascending sizes: those of every stratum, and means, sum to the same."""
    reached = np.cumsum(sizes + max(float(sizes.mean()), 1.0)) if len(sizes) else sizes
    return np.minimum(reached * _STRATA / reached[-1:], _STRATA - 1).astype(np.int64)


def _without_empty(stratum: Ints, drawn: Ints) -> tuple[Floats, Ints]:
    """Join strata from which nothing was drawn with others; return numbers of members, and what was drawn where."""
    seen = np.bincount(drawn, minlength=int(stratum.max()) + 1) > 0
    joined = np.minimum(np.cumsum(seen) - seen, seen.sum() - 1)
    return np.bincount(joined[stratum]).astype(np.float64), joined[drawn]


def _means(values: Floats, of: Ints, seen: Floats) -> Floats:
    return np.bincount(of, values, minlength=len(seen)) / seen


def _quantile(variances: Floats, seen: Floats) -> float:
    """Return how many standard errors hold 95 %: Student's t, with Satterthwaite's degrees of freedom."""
    squares = float((variances**2 / np.maximum(seen - 1, 1)).sum())
    freedom = max(float(variances.sum()) ** 2 / squares, 2.0) if squares else math.inf
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
