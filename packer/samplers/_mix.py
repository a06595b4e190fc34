"""Orders in which groups of samples have the shares that one says: datasets, and classes."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._table import Ints
from packer.samplers._interleaving import LAST_PLACE, Interleaving
from packer.samplers._order import OrderSampler
from packer.samplers._permutation import permute_each
from packer.samplers._values import digest_of, numbers_of

__all__ = ["BalancedSampler", "MixSampler"]

Floats = npt.NDArray[np.float64]


class _Grouped(OrderSampler):
    """An order of groups, each with its share of the places, and its members in one permutation after the other.

    The order of epoch 1 goes on where that of epoch 0 ended: no member comes again before all of its group came,
    whatever the length of an epoch.

    Parameters
    ----------
    sizes : (D,) int64 array
        How many members each group has, 1 or more.
    shares : (D,) float64 array
        Above 0; the sum is 1.
    """

    def __init__(self, length: int, sizes: Ints, shares: Floats, **settings: Any) -> None:
        super().__init__(length, **settings)
        self._sizes = sizes
        self._shares = shares

    @abc.abstractmethod
    def _member(self, groups: Ints, numbers: Ints) -> Ints:
        """Return which samples the members of groups are, counted from 0 in each group."""

    def order(self, places: Ints) -> Ints:
        return self.draws(places)[0]

    def draws(self, places: Ints) -> tuple[Ints, Ints]:
        begin = self.epoch * self.length
        if not 0 <= begin <= LAST_PLACE - self.length:
            raise ValueError(
                f"epoch {self.epoch} of {self.length} samples is beyond what a {type(self).__name__} counts"
            )
        if not len(places):
            return places, places
        groups, numbers = Interleaving(self._shares, self.seed).at(begin + places)
        sizes = self._sizes[groups]
        rounds, within = np.divmod(numbers, sizes)
        chosen = permute_each(within, sizes, self.seed, rounds * len(self._sizes) + groups)
        return self._member(groups, chosen), rounds


class MixSampler(_Grouped):
    """Several datasets, mixed: each has its share of every stretch of the order.

    The indices are those of ``open_dataset([a, b, …])`` and of torch's ConcatDataset over the same datasets in the same
    order. A dataset's samples come in one permutation after the other, also over the epochs: no sample comes again
    before all of its dataset came.

    Parameters
    ----------
    weights : mapping of dataset to float
        How often samples of each dataset come, relative to the others. The datasets may be anything that has a length;
        a dataset of weight 0 never comes.
    length : int, optional
        Number of samples in an epoch; by default as many as the datasets have together. So with equal weights small
        datasets come several times in an epoch, and large ones in part.
    seed, rank, world, uneven
        As for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If a weight is no number of 0 or more, or all are 0, or a dataset with a weight has no samples. A Loader raises
        ValueError where its dataset has other datasets, or the same in another order.

    Notes
    -----
    In a run with D datasets, a dataset of share p has p n of the first n places, to within 2 + 2 p D. The same is so of
    any n places in a row. Where a sample comes again in an epoch, a Loader gives it another crop.

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
            raise TypeError(f"a MixSampler takes datasets and their weights, as {{a: 0.7, b: 0.3}}, not {weights!r}")
        for dataset in weights:
            if isinstance(dataset, str | bytes | os.PathLike):
                raise TypeError(
                    f"a MixSampler takes opened datasets, not paths such as {dataset!r}: say "
                    "whole = open_dataset([a, b]) and MixSampler(dict(zip(whole.datasets, [2, 1])))"
                )
        values = numbers_of("weights", list(weights.values()))
        self._datasets = list(weights)
        self._lengths = np.array([len(dataset) for dataset in weights], np.int64)
        for number in np.flatnonzero((values > 0) & (self._lengths == 0)).tolist():
            raise ValueError(f"dataset {number} has the weight {values[number]:g}, and no samples")
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
        """Raise ValueError where these are not the datasets of the weights in their order: indices would be others'.

        Parameters
        ----------
        datasets : sequence
            A dataset with a weight may be several of them in a row.
        whole : bool
            Whether all of their samples are in the row, so that their lengths say where each begins.
        """
        mine, theirs = [id(dataset) for dataset in self._datasets], [id(dataset) for dataset in datasets]
        if mine != theirs and sorted(mine) == sorted(theirs):
            order = ", ".join(str(mine.index(one)) for one in theirs)
            raise ValueError(
                f"the dataset has the datasets of the weights in another order: {order}. Give the weights in the order "
                "of dataset.datasets"
            )
        lengths = [len(dataset) for dataset in datasets]
        mine = self._lengths.tolist()
        if whole and not set(np.cumsum(mine).tolist()) <= {0, *np.cumsum(lengths).tolist()}:
            raise ValueError(
                f"the datasets of the weights have {mine} samples, and those of the dataset {lengths}: "
                "give the weights in the order of dataset.datasets"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_datasets": []}  # which are others in another process

    def fingerprint(self) -> dict[str, Any]:
        shares = np.zeros(len(self._lengths))
        shares[self._used] = self._shares
        return {**super().fingerprint(), "datasets": self._lengths.tolist(), "weights": shares.tolist()}


class BalancedSampler(_Grouped):
    """Classes as often as one says: all equally often, or as in the set, or in between.

    A class's samples come in one permutation after the other, also over the epochs: no sample comes again before all of
    its class came. A sample of the label -1, unlabeled, never comes.

    Parameters
    ----------
    targets : (N,) array of int
        The class of each sample, as ``dataset.targets``; -1 for an unlabeled sample.
    power : float
        1: every class comes equally often. 0: every class comes as often as it is in the set. A class of n samples
        comes in proportion to ``n ** (1 - power)``.
    length : int, optional
        Number of samples in an epoch; by default the number of labeled samples.
    seed, rank, world, uneven
        As for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If `targets` are no class ids, or all unlabeled, or `power` is no finite number.
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
            raise TypeError(f"targets are a class id a sample, not {labels.dtype} of shape {labels.shape}")
        if len(labels) and labels.min() < -1:
            raise ValueError(f"targets are class ids, or -1 for an unlabeled sample, and one is {labels.min()}")
        if not math.isfinite(power):
            raise ValueError(f"power is a finite number, such as 1 or 0.5, not {power!r}")
        labeled = np.flatnonzero(labels >= 0)
        if not len(labeled):
            raise ValueError("no sample has a class, so there is nothing to balance")
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
