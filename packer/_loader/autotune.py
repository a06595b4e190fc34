"""Chooses a Loader's number of threads while training runs (``threads="auto"``); `Race` compares any settings.

The tuner measures the time from one batch to the next, including the training step. So if two threads keep up with the
training, the Loader uses no more than two. The number of threads does not change any batch.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from packer.samplers._orders import rank_and_world

TOLERANCE = 0.02
"""A simpler setting is chosen if it is slower than the best setting by at most this share."""

_BATCHES, _SECONDS = 6, 0.25  # the minimum number and time of the batches in a measurement
_GOOD = 1 + TOLERANCE  # a setting counts as fast as the best one if the ratio of their costs is at most this
_SURE = 2  # a difference of this many standard errors is certain
_ERRORS_OF_FEW = {1: 0.5, 2: 0.15}  # the smallest error that a ratio is believed to have after one or two rounds
_LEAST_ERROR = 0.002  # the same after more rounds; clocks and batches are not more exact
_FEWEST, _MOST = 3, 8  # rounds before small differences count, and rounds after which a race ends

Setting = TypeVar("Setting")


class ThreadTuner:
    """Chooses a number of threads during the first complete pass over a whole epoch.

    Each number of threads is measured over a few batches, one number after the other. Batches that are in progress when
    the number changes are not measured. A pickled tuner loses its measurements.

    Parameters
    ----------
    cpus : int
        The number of threads at the beginning. The number stays the same if the tuner makes no choice.
    least : int
        The minimum number of threads.

    Attributes
    ----------
    threads : int
        The current number of threads.
    over : bool
        True if the number no longer changes: the best one is known, or a whole epoch is complete.
    """

    def __init__(self, cpus: int, least: int = 1) -> None:
        self._limits = cpus, least
        self.threads = max(cpus, least)
        self.over = False
        self._race = Race(thread_counts(cpus, least))
        self._own_step: float | None = None  # seconds of the training loop for a batch, without waiting
        self._running = False

    @contextlib.contextmanager
    def tuning(self, prefetch: int) -> Iterator[ThreadTuner | None]:
        """Measure a pass; the context yields this tuner, or None if another pass is being measured.

        Parameters
        ----------
        prefetch : int
            The number of batches that are prepared ahead, in addition to the one for which the loop waits.
        """
        if self._running:
            yield None
            return
        self._running = True
        self._alone = rank_and_world()[1] == 1  # otherwise the loop also waits for other ranks
        self._in_progress = prefetch + 1
        self._race = Race(self._race.settings)
        self._warm = False
        self._settle()
        try:
            yield self
        finally:
            self._running = False
            if not self._race.over:
                self.threads = max(self._limits)

    def handed_out(self, waited: float) -> bool:
        """Record that a batch was returned after `waited` seconds of waiting; return whether `threads` has changed."""
        if self.over:
            return False
        if self._unsettled > 0:
            self._unsettled -= 1
            self._began = time.perf_counter()
            return False
        self._batches += 1
        self._waited += waited
        seconds = time.perf_counter() - self._began
        if self._batches < _BATCHES or seconds < _SECONDS:
            return False
        self._note(seconds / self._batches, self._waited / self._batches)
        before, self.threads = self.threads, self._next()
        self._settle()
        return self.threads != before

    def _note(self, step: float, waited: float) -> None:
        """Record the time from batch to batch. The first time includes the program's start and is not compared."""
        if not self._warm:
            self._warm, self._own_step = True, max(step - waited, 0.0)
        else:
            self._race.note(max(step if self._alone else (self._own_step or 0.0) + waited, 1e-9))

    def _next(self) -> int:
        if not self._race.over:
            return self._race.next
        self.over = True
        return self._race.chosen or self.threads

    def _settle(self) -> None:
        self._unsettled, self._batches, self._waited = self._in_progress, 0, 0.0

    def __reduce__(self) -> Any:
        return ThreadTuner, self._limits


def thread_counts(cpus: int, least: int = 1) -> list[int]:
    """Return the numbers of threads to choose from, in ascending order, each `least` or more.

    With up to 4 CPUs, the result has all numbers up to the number of CPUs; with more CPUs, it has 1/4, 1/2, 3/4 and all
    of them. It also has 1.5 and 2 times the number of CPUs, because more threads help if threads wait for a disk.
    """
    some = range(1, cpus + 1) if cpus <= 4 else [round(cpus * share) for share in (1 / 4, 1 / 2, 3 / 4, 1)]
    return sorted({max(count, least) for count in (*some, round(1.5 * cpus), 2 * cpus)})


class Standing(NamedTuple):
    """A setting compared with the best: the ratio of its cost to the best cost, and the ratio's standard error."""

    ratio: float
    error: float


class Race(Generic[Setting]):
    """Measures settings in turn until one can be chosen, on a machine whose speed varies because of other programs.

    In each round, every remaining setting is measured once. The race compares ratios within a round, because anything
    that slows the machine for seconds slows the whole round. A setting that is certainly slower than the best is
    dropped, so that the rounds become shorter. Of the settings that are as fast as the best one, the race chooses the
    simplest.

    Parameters
    ----------
    settings : sequence
        The settings, the simplest first.

    Attributes
    ----------
    costs : list of list of float
        For each setting, a list of its costs, one for each round that measured the setting.
    """

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.settings = list(settings)
        self.costs: list[list[float]] = [[] for _ in self.settings]
        self._left = list(range(len(self.settings)))  # settings that are not surely slower than the best
        self._round = 0
        self._turns = self._left[::-1]  # settings to be measured in this round; the next one is at the end

    @property
    def over(self) -> bool:
        """Whether a setting can be chosen without further measurements."""
        return not self._turns

    @property
    def believed(self) -> bool:
        """Whether enough rounds were measured for small differences to be significant."""
        return self._round >= _FEWEST

    @property
    def next(self) -> Setting:
        """The setting to measure next."""
        return self.settings[self._turns[-1]]

    def note(self, cost: float) -> None:
        """Record the measured cost of the setting `next`: a number above 0, in any unit."""
        self.costs[self._turns.pop()].append(cost)
        if not self._turns:
            self._end_round()

    @property
    def chosen(self) -> Setting | None:
        """The simplest setting that is as fast as the best; None if no setting was measured."""
        for setting, standing in zip(self.settings, self.standings(), strict=True):
            if standing is not None and standing.ratio - min(standing.error, TOLERANCE / 2) <= _GOOD:
                return setting
        return None

    def standings(self) -> list[Standing | None]:
        """Return the standing of each setting; None for settings that were dropped or not measured."""
        left = [number for number in self._left if self.costs[number]]
        if not left:
            return [None] * len(self.settings)
        best = self.costs[min(left, key=lambda number: statistics.median(self.costs[number]))]
        return [_standing(costs, best) if number in left else None for number, costs in enumerate(self.costs)]

    def _end_round(self) -> None:
        standings = self.standings()

        def surely_slower(standing: Standing | None) -> bool:
            return standing is None or standing.ratio - _SURE * standing.error > _GOOD

        self._left = [number for number in self._left if not surely_slower(standings[number])]
        self._round += 1
        simplest = standings[self._left[0]]
        surely_good = simplest is not None and simplest.ratio + _SURE * simplest.error < _GOOD
        if len(self._left) == 1 or self._round == _MOST or (surely_good and self.believed):
            return
        first = self._round % len(self._left)
        self._turns = [*self._left[first:], *self._left[:first]][::-1]


def _standing(costs: Sequence[float], best: Sequence[float]) -> Standing:
    """Compare a setting's costs with the best setting's, over the rounds in which both were measured."""
    ratios = [cost / other for cost, other in zip(costs, best, strict=False)]
    if costs is best:
        return Standing(1.0, 0.0)
    return Standing(statistics.median(ratios), max(median_error(ratios), _ERRORS_OF_FEW.get(len(ratios), _LEAST_ERROR)))


def median_error(values: Sequence[float]) -> float:
    """Return the standard error of the median of measurements; 0 for a single measurement, whose error is unknown."""
    if len(values) < 2:
        return 0.0
    return float(1.25 * statistics.stdev(values) / len(values) ** 0.5)  # sqrt(pi / 2) times that of the mean
