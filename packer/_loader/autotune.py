"""Choice of a Loader's number of threads while training runs (``threads="auto"``), and races of settings.

The measure is the time from one batch to the next, whatever takes it. So a Loader that keeps up with the training with
two threads gets no more of them. The number of threads changes no batch.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from packer.samplers._orders import rank_and_world

TOLERANCE = 0.02
"""The share by which a simpler setting may be slower than the best, and is still chosen."""

_BATCHES, _SECONDS = 6, 0.25  # that a measurement has at least
_GOOD = 1 + TOLERANCE  # a ratio to the best
_SURE = 2  # standard errors
_UNKNOWN = {1: 0.5, 2: 0.15}  # errors of a ratio, at least, where so few rounds were measured
_FEWEST, _MOST = 3, 8  # rounds before the best of several is believed, and after which a race is over
_LEAST = 0.002  # of many rounds: clocks and batches are no finer

Setting = TypeVar("Setting")


class ThreadTuner:
    """Chooses a number of threads in the first pass over a whole epoch that comes to its end.

    Measurements of a few batches each are made with one number of threads after the other, in turn. The batches that
    are in work when the number changes belong to neither. A pickled tuner has measured nothing.

    Parameters
    ----------
    cpus : int
        How many threads there are at first, and where nothing is chosen.
    least : int
        The fewest threads that there can be.

    Attributes
    ----------
    threads : int
        How many there are to be now.
    over : bool
        Whether the number stays: the best one is known, or a whole epoch came to its end before.
    """

    def __init__(self, cpus: int, least: int = 1) -> None:
        self._limits = cpus, least
        self.threads = max(cpus, least)
        self.over = False
        self._race = Race(thread_counts(cpus, least))
        self._own_step: float | None = None  # seconds a batch that the loop takes for itself
        self._running = False

    @contextlib.contextmanager
    def tuning(self, prefetch: int) -> Iterator[ThreadTuner | None]:
        """Measure a pass; the context is None where another pass is being measured.

        Parameters
        ----------
        prefetch : int
            How many batches are in work beyond the one that the loop waits for.
        """
        if self._running:
            yield None
            return
        self._running = True
        self._alone = rank_and_world()[1] == 1  # otherwise the loop waits for other ranks, and that says nothing
        self._in_work = prefetch + 1
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
        """Note that a batch is handed out that was waited for, in seconds; return whether `threads` is another now."""
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
        """Note the time from batch to batch; the first one is of the program's beginning, and not compared."""
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
        self._unsettled, self._batches, self._waited = self._in_work, 0, 0.0

    def __reduce__(self) -> Any:
        return ThreadTuner, self._limits


def thread_counts(cpus: int, least: int = 1) -> list[int]:
    """Return the numbers of threads among which to choose, in ascending order, of `least` and more.

    Few CPUs: all numbers. Many: shares of them. More threads than CPUs help where they wait for a disk.
    """
    some = range(1, cpus + 1) if cpus <= 4 else [round(cpus * share) for share in (1 / 4, 1 / 2, 3 / 4, 1)]
    return sorted({max(count, least) for count in (*some, round(1.5 * cpus), 2 * cpus)})


class Standing(NamedTuple):
    """How a setting compares with the best: its cost by that of the best, with the standard error of this ratio."""

    ratio: float
    error: float


class Race(Generic[Setting]):
    """Settings that are measured in turn on a machine that other work makes uneven, until one can be chosen.

    All settings that are left are measured once a round, and ratios within a round are compared: whatever slows the
    machine for seconds slows the whole round. A setting that is surely slower than the best is left out, so that the
    rounds become shorter. The simplest of those that are as fast as the best is chosen.

    Parameters
    ----------
    settings : sequence
        The simplest first.

    Attributes
    ----------
    costs : list of list of float
        The cost of each setting in each round that it was measured in.
    """

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.settings = list(settings)
        self.costs: list[list[float]] = [[] for _ in self.settings]
        self._left = list(range(len(self.settings)))  # that are not surely slower than the best
        self._round = 0
        self._turns = self._left[::-1]  # settings that are still to be measured in this round, the next one at the end

    @property
    def over(self) -> bool:
        """Whether one can be chosen, and nothing is to be measured any more."""
        return not self._turns

    @property
    def believed(self) -> bool:
        """Whether so many rounds were measured that small differences say something."""
        return self._round >= _FEWEST

    @property
    def next(self) -> Setting:
        """The setting whose cost is noted next."""
        return self.settings[self._turns[-1]]

    def note(self, cost: float) -> None:
        """Note the cost of the next setting in this round; more than 0, in any unit."""
        self.costs[self._turns.pop()].append(cost)
        if not self._turns:
            self._end_round()

    @property
    def chosen(self) -> Setting | None:
        """The simplest setting that is as fast as the best; None where none was measured."""
        for setting, standing in zip(self.settings, self.standings(), strict=True):
            if standing is not None and standing.ratio - min(standing.error, TOLERANCE / 2) <= _GOOD:
                return setting
        return None

    def standings(self) -> list[Standing | None]:
        """Return how each setting compares with the best; None for those that were left out, or not measured."""
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
        begin = self._round % len(self._left)
        self._turns = [*self._left[begin:], *self._left[:begin]][::-1]


def _standing(costs: Sequence[float], best: Sequence[float]) -> Standing:
    """Compare costs with those of the best, in the rounds that both were measured in."""
    ratios = [cost / other for cost, other in zip(costs, best, strict=False)]
    if costs is best:
        return Standing(1.0, 0.0)
    return Standing(statistics.median(ratios), max(median_error(ratios), _UNKNOWN.get(len(ratios), _LEAST)))


def median_error(values: Sequence[float]) -> float:
    """Return the standard error of the median of some measurements; 0 of a single one, which does not tell."""
    if len(values) < 2:
        return 0.0
    return float(1.25 * statistics.stdev(values) / len(values) ** 0.5)  # sqrt(pi / 2) times that of the mean
