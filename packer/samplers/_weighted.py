"""Samplers that choose samples, classes or datasets with frequencies in proportion to weights."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._table import Ints
from packer.errors import OptionError, OptionTypeError
from packer.samplers._orders import OrderSampler
from packer.samplers._random import digest_of, permute_each, uniforms, weights_of

Floats = npt.NDArray[np.float64]

LAST_PLACE = 1 << 48
"""The number of positions that `Interleaving` can order: later ones would have times too large for exact floats."""

_EPOCH_OF_TIMES = -1  # stands in place of the epoch, so that times and permutations have different random numbers
_AT_ONCE = 1 << 18  # number of times that are computed together


class WeightedSampler(OrderSampler):
    """Samples drawn at random by their weights, like torch's WeightedRandomSampler.

    Parameters
    ----------
    weights : (N,) sequence of float
        The relative probability of each sample; a sample with weight 0 is never drawn.
    length : int, optional
        Number of samples in an epoch; by default N.
    replacement : bool
        Whether a sample can occur several times in an epoch. Without replacement, each draw chooses among the remaining
        samples, and every epoch begins by sorting N random numbers.
    seed, rank, world, uneven
        The same as for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If a weight is not a number of 0 or more, or all weights are 0. Without replacement, also if `length` exceeds
        the number of samples with a weight above 0.

    Notes
    -----
    If a sample is repeated in an epoch, a Loader gives it another crop.
    """

    def __init__(
        self,
        weights: Sequence[float] | Floats,
        length: int | None = None,
        replacement: bool = True,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        numbers = weights_of(weights)
        super().__init__(len(numbers) if length is None else length, seed=seed, rank=rank, world=world, uneven=uneven)
        possible = int(np.count_nonzero(numbers))
        if not replacement and self.length > possible:
            raise OptionError(
                f"without replacement an epoch can have at most {possible} samples, those with a weight above 0, not "
                f"{self.length}: pass length="
            )
        self.replacement = replacement
        self._digest = digest_of(numbers)
        self._weights = numbers
        self._ends = np.cumsum(numbers)
        self._sorted: tuple[tuple[int, int], Ints] | None = None

    def order(self, places: Ints) -> Ints:
        return self.draws(places)[0]

    def draws(self, places: Ints) -> tuple[Ints, Ints | None]:
        if not self.replacement:
            return self._drawn_once()[places], None
        random = uniforms(self.seed, self.epoch, places, 1)[:, 0]
        drawn = np.searchsorted(self._ends, random * self._ends[-1], side="right")
        return drawn.astype(np.int64, copy=False), places  # each position is unique, so it serves as the turn

    def _drawn_once(self) -> Ints:
        """Return the order of this epoch, drawn without replacement.

        The samples are sorted by random waiting times, each from an exponential distribution whose rate is the sample's
        weight (Efraimidis, Spirakis 2006, "Weighted random sampling with a reservoir").
        """
        settings = self.seed, self.epoch
        if self._sorted is None or self._sorted[0] != settings:
            possible = np.flatnonzero(self._weights)
            times = -np.log1p(-uniforms(self.seed, self.epoch, possible, 1)[:, 0]) / self._weights[possible]
            self._sorted = settings, possible[np.argsort(times, kind="stable")[: self.length]]
        return self._sorted[1]

    @property
    def _samples(self) -> int:
        return len(self._weights)

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "weights": self._digest, "replacement": self.replacement}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sorted": None}


class _Grouped(OrderSampler):
    """An order of samples in groups: each group has its share of the order, and its members are in permuted order.

    Each epoch continues the permutations of the previous epoch. So no member is repeated before all members of its
    group have occurred, whatever the length of an epoch.

    Parameters
    ----------
    sizes : (D,) int64 array
        The number of members of each group, 1 or more.
    shares : (D,) float64 array
        The share of each group in the order, above 0; the sum is 1.
    """

    def __init__(self, length: int, sizes: Ints, shares: Floats, **settings: Any) -> None:
        super().__init__(length, **settings)
        self._sizes = sizes
        self._shares = shares

    @abc.abstractmethod
    def _member(self, groups: Ints, numbers: Ints) -> Ints:
        """Return the sample for each pair of a group and a member's number in the group, counted from 0."""

    def order(self, places: Ints) -> Ints:
        return self.draws(places)[0]

    def draws(self, places: Ints) -> tuple[Ints, Ints]:
        first = self.epoch * self.length
        if not 0 <= first <= LAST_PLACE - self.length:
            raise OptionError(
                f"epoch {self.epoch} of {self.length} samples exceeds the range of a {type(self).__name__}"
            )
        if not len(places):
            return places, places
        groups, numbers = Interleaving(self._shares, self.seed).at(first + places)
        sizes = self._sizes[groups]
        rounds, within = np.divmod(numbers, sizes)
        chosen = permute_each(within, sizes, self.seed, rounds * len(self._sizes) + groups)
        return self._member(groups, chosen), rounds


class MixSampler(_Grouped):
    """A mixture of several datasets: every part of an epoch has samples of each dataset, in proportion to its weight.

    With the weights ``{a: 0.8, b: 0.2}``, the sampler yields indices into the concatenation of a and b:
    ``open_dataset([a, b])``, or torch's ConcatDataset. Each dataset is shuffled again and again, across epochs: no
    sample is repeated before all samples of its dataset have occurred.

    Parameters
    ----------
    weights : mapping of dataset to float
        The relative frequency of samples of each dataset. The datasets may be any objects with a length; a dataset with
        weight 0 is not used.
    length : int, optional
        Number of samples in an epoch; by default the sum of the datasets' lengths. So with equal weights, small
        datasets are repeated in an epoch, and large ones are used in part.
    seed, rank, world, uneven
        The same as for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If a weight is not a number of 0 or more, all weights are 0, or a dataset with a weight above 0 has no samples.
        A Loader raises ValueError if its dataset consists of other datasets, or of these datasets in another order.

    Notes
    -----
    Of the first n samples, about ``p * n`` come from a dataset with the share p: with D datasets, the number differs
    from ``p * n`` by at most ``2 + 2 * p * D``. The same holds for any n consecutive samples. If a sample is repeated
    in an epoch, a Loader gives it another crop.

    Examples
    --------
    >>> both = open_dataset(["photos.lmdb", "drawings.h5"], crop=RandomResizedCrop(224))  # doctest: +SKIP
    >>> photos, drawings = both.datasets  # doctest: +SKIP
    >>> loader = Loader(both, 256, sampler=MixSampler({photos: 0.8, drawings: 0.2}))  # doctest: +SKIP
    """

    def __init__(
        self,
        weights: Mapping[Sized, float],
        length: int | None = None,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        if not isinstance(weights, Mapping):
            raise OptionTypeError(
                f"a MixSampler takes datasets and their weights, as in {{a: 0.7, b: 0.3}}, not {weights!r}"
            )
        for dataset in weights:
            if isinstance(dataset, str | bytes | os.PathLike):
                raise OptionTypeError(
                    f"a MixSampler takes opened datasets, not paths such as {dataset!r}: use "
                    "whole = open_dataset([a, b]) and MixSampler(dict(zip(whole.datasets, [2, 1])))"
                )
        values = weights_of(list(weights.values()))
        self._datasets = list(weights)
        self._lengths = np.array([len(dataset) for dataset in weights], np.int64)
        for number in np.flatnonzero((values > 0) & (self._lengths == 0)).tolist():
            raise OptionError(f"dataset {number} has the weight {values[number]:g}, but no samples")
        self._used = np.flatnonzero(values)
        self._begins = np.cumsum(self._lengths) - self._lengths
        shares = values[self._used] / math.fsum(values)
        settings: dict[str, Any] = {"seed": seed, "rank": rank, "world": world, "uneven": uneven}
        super().__init__(self._samples if length is None else length, self._lengths[self._used], shares, **settings)

    def _member(self, groups: Ints, numbers: Ints) -> Ints:
        return np.asarray(self._begins[self._used[groups]] + numbers)

    @property
    def _samples(self) -> int:
        return int(self._lengths.sum())

    def require_datasets(self, datasets: Sequence[Sized], *, whole: bool = True) -> None:
        """Raise ValueError if the datasets of a Loader are not those of `weights`, in the same order.

        Parameters
        ----------
        datasets : sequence
            The datasets that the Loader reads. Several neighbouring ones may together be one dataset of `weights`.
        whole : bool
            True if the Loader reads all samples of `datasets`, and not a selection. Lengths are compared only if
            `whole` is True.
        """
        mine, theirs = [id(dataset) for dataset in self._datasets], [id(dataset) for dataset in datasets]
        if mine != theirs and sorted(mine) == sorted(theirs):
            order = ", ".join(str(mine.index(one)) for one in theirs)
            raise OptionError(
                f"the weights list the datasets in another order than the dataset, which has the order {order}. "
                "Pass them in the order of dataset.datasets"
            )
        lengths = [len(dataset) for dataset in datasets]
        mine = self._lengths.tolist()
        if whole and not set(np.cumsum(mine).tolist()) <= {0, *np.cumsum(lengths).tolist()}:
            raise OptionError(
                f"the datasets of the weights have {mine} samples, and those of the dataset {lengths}: "
                "pass the weights in the order of dataset.datasets"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_datasets": []}  # another process gets copies of datasets, which cannot be compared

    def fingerprint(self) -> dict[str, Any]:
        shares = np.zeros(len(self._lengths))
        shares[self._used] = self._shares
        return {**super().fingerprint(), "datasets": self._lengths.tolist(), "weights": shares.tolist()}


class BalancedSampler(_Grouped):
    """Samples drawn so that each class has a chosen frequency: equal for all classes, as in the dataset, or in between.

    The samples of each class are shuffled again and again, across epochs: no sample is repeated before all samples of
    its class have occurred. Unlabeled samples, with the label -1, are never used.

    Parameters
    ----------
    targets : (N,) array of int
        The class of each sample, as in ``dataset.targets``; -1 for an unlabeled sample.
    power : float
        1: all classes occur equally often. 0: every class occurs as often as in the dataset. In general, the frequency
        of a class of n samples is proportional to ``n ** (1 - power)``.
    length : int, optional
        Number of samples in an epoch; by default the number of labeled samples.
    seed, rank, world, uneven
        The same as for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If `targets` are not class ids, all samples are unlabeled, or `power` is not a finite number.
    """

    def __init__(
        self,
        targets: Sequence[int] | Ints,
        power: float = 1.0,
        length: int | None = None,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        labels = np.asarray(targets)
        if labels.ndim != 1 or (labels.dtype.kind not in "iu" and len(labels)):
            raise OptionTypeError(
                f"targets must be one class id for each sample, not {labels.dtype} of shape {labels.shape}"
            )
        if len(labels) and labels.min() < -1:
            raise OptionError(f"targets must be class ids, or -1 for an unlabeled sample, but one is {labels.min()}")
        if not math.isfinite(power):
            raise OptionError(f"power is a finite number, such as 1 or 0.5, not {power!r}")
        labeled = np.flatnonzero(labels >= 0)
        if not len(labeled):
            raise OptionError("no sample has a class, so there is nothing to balance")
        self._members = labeled[np.argsort(labels[labeled], kind="stable")]
        self._labels = len(labels)
        self._power = float(power)
        self._digest = digest_of(labels.astype(np.int64))
        _, sizes = np.unique(labels[labeled], return_counts=True)
        self._begins = np.cumsum(sizes) - sizes
        weights = (sizes / sizes.max()) ** (1 - self._power)
        settings: dict[str, Any] = {"seed": seed, "rank": rank, "world": world, "uneven": uneven}
        super().__init__(
            len(labeled) if length is None else length, sizes.astype(np.int64), weights / math.fsum(weights), **settings
        )

    def _member(self, groups: Ints, numbers: Ints) -> Ints:
        return np.asarray(self._members[self._begins[groups] + numbers])

    @property
    def _samples(self) -> int:
        return self._labels

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "targets": self._digest, "power": self._power}


class Interleaving:
    """An endless order of the elements of D streams; each stream has its share of any stretch of the order.

    The elements of a stream are numbered from 0. Element k is due at a random time between k / share and (k + 1) /
    share. The elements of all streams are ordered by these times. Until time t, a stream has sent share * t elements,
    plus or minus one. So all streams together have sent t elements, plus or minus D. Therefore the element at position
    t of the order is found among those with times close to t.

    Parameters
    ----------
    shares : (D,) float64 array
        The share of each stream, above 0; the sum is 1.
    seed : int
    """

    def __init__(self, shares: Floats, seed: int) -> None:
        self._shares = shares
        self._seed = seed
        self._slack = len(shares) + 1  # one more than D, because times are rounded

    def at(self, places: Ints) -> tuple[Ints, Ints]:
        """Return, for each of N positions, the element's stream and its number in the stream: two (N,) int64 arrays."""
        ordered, back = np.unique(places, return_inverse=True)
        # Positions that are close together form a run. The elements of a run are sorted by time together.
        starts = np.flatnonzero(np.diff(ordered, prepend=-np.inf) > 2 * self._slack + 1)
        step = max(_AT_ONCE // len(self._shares), 1)
        cuts = starts[::step].tolist()
        found = [
            self._in_runs(ordered[start:end], starts[number * step : (number + 1) * step] - start)
            for number, (start, end) in enumerate(zip(cuts, [*cuts[1:], len(ordered)], strict=True))
        ]
        streams, numbers = (np.concatenate(parts)[back] for parts in zip(*found, strict=True))
        return streams, numbers

    def _in_runs(self, places: Ints, begins: Ints) -> tuple[Ints, Ints]:
        """Return the same as `at`, for ascending positions that form runs; a run begins at each index in `begins`."""
        ends = np.append(begins[1:], len(places))
        sent = self._sent_before(np.maximum(places[begins] - self._slack, 0))
        counts = self._sent_before(places[ends - 1] + 1 + self._slack) - sent
        streams = np.repeat(np.tile(np.arange(len(self._shares)), len(begins)), counts.ravel())
        numbers = np.arange(len(streams)) + np.repeat(sent.ravel() - _sums_before(counts.ravel()), counts.ravel())
        by_time = np.lexsort((streams, self._times(streams, numbers)))
        sizes = counts.sum(1)
        there = np.arange(len(streams)) + np.repeat(sent.sum(1) - _sums_before(sizes), sizes)
        chosen = by_time[np.searchsorted(there, places)]
        return streams[chosen], numbers[chosen]

    def _sent_before(self, times: Ints) -> Ints:
        """Return the number of elements that each stream sent before each of R times, as an (R, D) array."""
        certain = np.maximum(np.floor(times[:, None] * self._shares).astype(np.int64) - 1, 0)
        streams = np.arange(len(self._shares))
        sent = certain.copy()
        for more in range(3):
            sent += self._times(streams, certain + more) < times[:, None]
        return np.asarray(sent)

    def _times(self, streams: Ints, numbers: Ints) -> Floats:
        """Return the times at which elements are due."""
        elements = numbers * len(self._shares) + streams
        random = uniforms(self._seed, _EPOCH_OF_TIMES, elements.ravel(), 1).reshape(elements.shape)
        return np.asarray((numbers + random) / self._shares[streams])


def _sums_before(counts: Ints) -> Ints:
    """Return for each count the sum of all earlier counts."""
    return np.asarray(np.cumsum(counts) - counts)
