"""`packer.tune`: finds the fastest Loader settings on this machine: threads, processes, batches ahead and order.

The settings are chosen one after the other: the numbers of threads, of processes, and of batches ahead, and the order.
A race (`packer._loader.autotune`) chooses each value, and prefers a simpler value unless another one is clearly faster.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from packer._datasets.concat import readable
from packer._datasets.open import open_dataset
from packer._datasets.protocol import layout_of
from packer._display import Block, Code, Displayable, TextTable
from packer._loader.autotune import TOLERANCE, Race, median_error, thread_counts
from packer._loader.loader import Loader
from packer._measuring.harness import (
    ShowSeconds as TuningProgress,
    TimeLimit,
    keeping_random_states,
    timed_calls,
)
from packer._measuring.loaders import Endless, read_recipe
from packer._storage.progress import shown_progress
from packer._storage.system import available_cpus, available_memory, require_count, require_seconds
from packer.crops import RandomResizedCrop
from packer.errors import OptionError, WorkerError, printable
from packer.samplers import BlockShuffleSampler, OrderSampler, ShuffleSampler
from packer.samplers._orders import rank_and_world

ORDERS = ("shuffle", "blocks")

_RACES_END = 0.5, 0.8, 0.92, 1.0  # shares of the time at which the races for the four settings end
_BATCHES, _SECONDS = 3, 0.5  # the least batches and seconds of a measurement
_MARGIN = 0.95  # a batch has to be ready in this share of a step, because the speed of a machine varies
_UNKNOWN_ERROR = 0.25  # the assumed error of a rate that was measured once
_DOUBT = 0.1  # of rates that were measured once or twice, one counts as higher only by this share
_MOST_MEMORY = 0.1  # share of the memory that batches ahead may take


@dataclass(frozen=True)
class LoaderSettings:
    """Arguments of a `Loader` that affect its speed; `order` is "shuffle", or "blocks" for BlockShuffleSampler."""

    threads: int
    processes: int = 0
    prefetch: int = 2
    order: str = "shuffle"

    def __str__(self) -> str:
        order = "shuffle=True" if self.order == "shuffle" else "sampler=packer.BlockShuffleSampler(len(dataset))"
        processes = f", processes={self.processes}" if self.processes else ""
        return f"{order}, threads={self.threads}{processes}, prefetch={self.prefetch}"


@dataclass(frozen=True)
class Trial:
    """The measurements of one choice of settings, each in seconds per batch."""

    settings: LoaderSettings
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds per batch."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, repr=False)
class Tuning(Displayable):
    """The result of `packer.tune`.

    Attributes
    ----------
    settings : LoaderSettings
    batch : int
    rate : float
        Samples per second with these settings.
    error : float
        The standard error of `rate`, as a share of `rate`.
    step_ms : float or None
        The duration of a training step, in milliseconds, within which the next batch must be ready; None if `tune` got
        no `step_ms`.
    wait_ms : float
        The time, in milliseconds, that a step of `step_ms` waits for its batch; 0 if the Loader keeps up with the
        steps.
    trials : tuple of Trial
        All measured settings, in the order in which they were first measured.
    notes : tuple of str
        Settings that could not be tried, and other remarks.
    seconds : float
        Total duration.
    """

    settings: LoaderSettings
    batch: int
    rate: float
    error: float
    step_ms: float | None
    wait_ms: float
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def line(self) -> str:
        """The line of Python that makes the Loader."""
        return f"loader = packer.Loader(dataset, {self.batch}, {self.settings})"

    def _blocks(self) -> Iterator[Block]:
        """Yield the settings that were tried, the fastest first, and the line to paste."""
        yield f"{self.rate:,.0f} images a second, ± {max(self.error, 0.01):.0%}, found in {self.seconds:.0f} s"
        if self.step_ms is not None:
            need = f"{self.batch / self.step_ms * 1000:,.0f} images a second"
            short = f"a step of {self.step_ms:g} ms waits {self.wait_ms:.0f} ms for its batch"
            yield (
                f"{short}: no settings on this machine reach the required {need}"
                if self.wait_ms
                else f"keeps up with steps of {self.step_ms:g} ms, which need {need}"
            )
        yield ""
        tried = sorted(self.trials, key=lambda trial: trial.median)
        yield TextTable([(f"{self.batch / trial.median:,.0f}", str(trial.settings)) for trial in tried], (">9", ""))
        yield from (f"  {note}" for note in self.notes)
        yield ""
        yield Code([self.line])


@dataclass
class _Search:
    """A search for the fastest settings: the measurements so far, and the loaders to measure with."""

    dataset: Any
    batch: int
    enough: float
    """Seconds for a batch, below which settings count as equally fast."""
    limit: TimeLimit
    costs: dict[LoaderSettings, list[float]] = field(default_factory=dict)
    loaders: dict[LoaderSettings, Loader] = field(default_factory=dict)
    """Loaders with processes, which take long to start; see `_key`."""
    notes: list[str] = field(default_factory=list)
    unsure: bool = False
    """Whether the time was too short for one of the races."""
    untried: list[LoaderSettings] = field(default_factory=list)

    def race(self, candidates: list[LoaderSettings], default: LoaderSettings, share: float) -> LoaderSettings:
        """Measure candidates for a share of the time; return the simplest one that is as fast as the fastest."""
        race, limit = Race(candidates), self.limit.until(share)
        while not race.over and not limit.is_over:
            self.limit.show(str(race.next))
            race.note(max(self.measured(race.next), self.enough))
        is_decided = race.over or race.believed
        chosen = (race.chosen or default) if is_decided else self._guessed(candidates, default)
        self._close_others(chosen)
        return chosen

    def _guessed(self, candidates: list[LoaderSettings], default: LoaderSettings) -> LoaderSettings:
        """After an undecided race, choose the default, unless another candidate is fast enough or certainly faster."""
        self.unsure = True
        if default not in self.costs:
            self.measured(default)
        self.untried += [candidate for candidate in candidates if candidate not in self.costs]
        tried = [candidate for candidate in candidates if candidate in self.costs]
        costs = {settings: max(statistics.median(self.costs[settings]), self.enough) for settings in tried}
        best = min(costs.values())
        if self.enough < best and costs[default] <= (1 + _DOUBT) * best:
            return default
        return next(settings for settings, cost in costs.items() if cost <= (1 + TOLERANCE) * best)

    def measured(self, settings: LoaderSettings) -> float:
        """Measure the seconds per batch."""
        key = _key(settings)
        loader = self.loaders.get(key)
        if loader is None:
            loader = loader_with(self.dataset, self.batch, settings)
        loader.sampler = _endless(self.dataset, settings.order)
        if settings.processes:
            self.loaders[key] = loader
        seconds = measure(loader)
        self.costs.setdefault(settings, []).append(seconds)
        return seconds

    def _close_others(self, settings: LoaderSettings) -> None:
        """End the processes of other settings, because each of them has its own copy of the libraries in memory."""
        for key in [key for key in self.loaders if key != _key(settings)]:
            self.loaders.pop(key).close()

    def close(self) -> None:
        for loader in self.loaders.values():
            loader.close()


def _key(settings: LoaderSettings) -> LoaderSettings:
    """Return the settings that must be equal for a loader to be used again: all except the order."""
    return replace(settings, order=ORDERS[0])


def tune(
    dataset: Any,
    batch: int = 256,
    *,
    step_ms: float | None = None,
    seconds: float = 90,
    progress: TuningProgress | bool | None = None,
) -> Tuning:
    """Find the fastest `Loader` settings for a dataset on this machine: threads, processes, prefetch and order.

    Reading fills the system's cache, so a pack that fits in memory is measured from memory. To train with several ranks
    on a node, tune on as many CPUs as one rank has (``taskset``). A script that calls `tune` must do its work under
    ``if __name__ == "__main__":``, because `tune` also starts processes.

    Parameters
    ----------
    dataset : path, or dataset of a `Loader`
        A path is opened with ``RandomResizedCrop(224, flip=0.5)``. A dataset keeps its own crop and transforms, whose
        time is measured too.
    batch : int
        The number of samples in a batch.
    step_ms : float, optional
        The duration of a training step without waiting, in milliseconds. With this argument, `tune` finds the lowest
        number of threads that keeps up with the training; by default, it finds the fastest settings.
    seconds : float
        The approximate time limit.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the elapsed seconds, the time limit in seconds, and a
        description of the current measurement.

    Returns
    -------
    Tuning

    Raises
    ------
    ValueError, TypeError
        If an argument has a wrong type or value, the dataset is empty, or `torch.distributed` is initialised.
    PackError
        If the pack cannot be read.
    """
    require_count("batch", batch)
    require_seconds("seconds", seconds)
    show = shown_progress(progress, "tune", "s")
    if step_ms is not None:
        require_seconds("step_ms", step_ms)
    if rank_and_world()[1] > 1:
        raise OptionError("call tune before torch.distributed is initialised, because ranks would wait for each other")
    enough = step_ms * _MARGIN / 1000 if step_ms is not None else 0.0
    with contextlib.ExitStack() as stack:
        if isinstance(dataset, (str, os.PathLike)):
            dataset = stack.enter_context(dataset_of(dataset))
        if len(dataset) == 0:
            raise OptionError("the dataset is empty: there is nothing to measure")
        search = _Search(dataset, batch, enough, TimeLimit(seconds, show))
        stack.callback(search.close)
        with keeping_random_states():
            return _result(search, _best_settings(search), step_ms)


def _best_settings(search: _Search) -> LoaderSettings:
    """Choose threads, processes, batches ahead and order, one after the other."""
    cpus = available_cpus()
    default = LoaderSettings(cpus)
    search.limit.show(str(default))
    search.measured(default)  # the first measurement fills the file cache and imports modules
    search.costs.clear()
    settings = search.race([LoaderSettings(count) for count in thread_counts(cpus)], default, _RACES_END[0])
    if settings in search.costs and statistics.median(search.costs[settings]) <= search.enough:
        return settings
    with_processes = [replace(settings, threads=max(count, cpus), processes=count) for count in _process_counts(cpus)]
    try:
        settings = search.race([settings, *with_processes], settings, _RACES_END[1])
    except (WorkerError, pickle.PicklingError, AttributeError, TypeError) as error:
        search.notes.append(f"processes cannot be used: {error}")
    most = 8 if not settings.processes else 4  # because each number of batches ahead needs new processes
    ahead = [replace(settings, prefetch=count) for count in _ahead(search, most)]
    settings = search.race(ahead, settings, _RACES_END[2])
    return search.race([replace(settings, order=order) for order in ORDERS], settings, _RACES_END[3])


def _result(search: _Search, settings: LoaderSettings, step_ms: float | None) -> Tuning:
    costs = search.costs.get(settings) or [search.measured(settings)]
    cost = statistics.median(costs)
    error = median_error(costs) / cost if len(costs) > 1 else _UNKNOWN_ERROR
    wait = max(cost * 1000 - step_ms, 0.0) if step_ms is not None else 0.0
    if search.unsure:
        not_tried = f", and {len(search.untried)} were not tried" if search.untried else ""
        search.notes.append(
            f"{search.limit.seconds:g} seconds are too few for a reliable result: settings were measured only once or "
            f"twice{not_tried}"
        )
    return Tuning(
        settings,
        search.batch,
        search.batch / cost,
        error,
        step_ms,
        wait,
        tuple(Trial(tried, tuple(measured)) for tried, measured in search.costs.items()),
        tuple(search.notes),
        search.limit.passed,
    )


def measure(loader: Loader) -> float:
    """Return the seconds per batch of a loop that only waits for batches; the first batches are not counted."""
    with contextlib.closing(iter(loader)) as iterator:  # type: ignore[type-var]
        for _ in range(loader.prefetch + 1):
            next(iterator)

        def one() -> int:
            next(iterator)
            return 1

        count, seconds = timed_calls(one, _SECONDS, _BATCHES)
        return seconds / count


def loader_with(dataset: Any, batch: int, settings: LoaderSettings) -> Loader:
    """Return a Loader with these settings that yields batches without end."""
    return Loader(
        dataset,
        batch,
        sampler=_endless(dataset, settings.order),
        threads=settings.threads,
        processes=settings.processes,
        prefetch=settings.prefetch,
    )


def _endless(dataset: Any, order: str) -> Endless:
    """Return an endless order, a new one in each call, so that no sample is read again soon."""
    kind: type[OrderSampler] = ShuffleSampler if order == "shuffle" else BlockShuffleSampler
    return Endless(kind(len(dataset), seed=int(torch.empty((), dtype=torch.int64).random_())))


def _process_counts(cpus: int) -> list[int]:
    """Return the numbers of processes to try: an eighth of the CPUs, a quarter, and all."""
    return sorted({count for count in (cpus // 8, cpus // 4, cpus) if count > 1})


def _ahead(search: _Search, most: int) -> list[int]:
    """Return the numbers of batches ahead to try: first the default, then others if the batches fit into memory."""
    layout = layout_of(readable(search.dataset).layout())
    size, memory = (layout.bytes_for(search.batch) if layout is not None else 0), available_memory()
    fitting = [count for count in (1, 4, 8) if memory is None or (count + 4) * size <= _MOST_MEMORY * memory]
    return [2, *(count for count in fitting if count <= most)]


def dataset_of(pack: str | os.PathLike[str], recipe: str | os.PathLike[str] | None = None) -> Any:
    """Open a pack with the definitions of a recipe; without a recipe, with ``RandomResizedCrop(224, flip=0.5)``.

    Raises
    ------
    OptionError
        If the recipe cannot be read, or defines neither a crop nor a transform.
    PackError
        If the pack cannot be read.
    """
    if recipe is None:
        return open_dataset(pack, crop=RandomResizedCrop(224, flip=0.5))
    own = read_recipe(recipe)
    if own.crop is not None:
        return open_dataset(pack, own.transform, crop=own.crop)
    if own.transform is None:
        raise OptionError(f"{printable(recipe)} defines neither transform nor crop; one of them is required")
    return open_dataset(pack, own.transform, fuse=True)
