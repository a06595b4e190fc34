"""`packer.profile`: a loop's time, step by step, and what it says about the loader."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from packer._measuring.profiling.report import ProfileReport
from packer._measuring.profiling.timings import Timings
from packer._measuring.profiling.verdict import diagnose
from packer._storage.limits import require_count

__all__ = ["Profile", "profile"]


def profile(loader: Iterable[Any], *, steps: int | None = None, seconds: float = 10.0, show: bool = True) -> Profile:
    """Tell how long a training loop waits for data, what the data wait for, and what packing would give.

    Wrap the loader where the loop iterates over it: ``for batch in packer.profile(loader):``. The batches are those of
    the loader. At the end of the first pass a report is printed to stderr, by rank 0 alone.

    Parameters
    ----------
    loader : iterable
        A torch DataLoader, a `packer.Loader`, a prefetcher around one, or any iterable. Where it is none of the
        first three, only the waiting is measured.
    steps : int, optional
        End the pass after so many batches, as if the loader had no more; by default a pass is a whole one.
    seconds : float
        How long finding out may take after a pass. Then some samples are read, decoded, transformed and collated one
        stage at a time, by this process, and some of them are packed in a temporary directory. 0 leaves this out.
    show : bool
        Whether the report is printed. `Profile.report` returns it in any case.

    Returns
    -------
    Profile
        The batches, and ``report()``. It has the loader's length and attributes.

    Raises
    ------
    TypeError, ValueError
        If `loader` cannot be iterated over, or a number is none or out of range.

    Notes
    -----
    A step costs about a microsecond more. Nothing is read from the loader beyond the batches asked for, and the random
    numbers that the training draws are the same with and without. Stages are tried on a copy of the dataset, with
    generators, counters and lists of its own; large arrays, and files that are open, are those of the dataset. A loop
    that is left early has no report printed; ``report()`` makes it.

    Examples
    --------
    >>> profiled = packer.profile(loader, steps=200)
    >>> for images, labels in profiled:
    ...     train(images, labels)
    >>> print(profiled.report())  # doctest: +SKIP
    """
    return Profile(loader, steps=steps, seconds=seconds, show=show)


class Profile:
    """Batches of a loader, and how long the loop waited for them; see `packer.profile`."""

    def __init__(
        self, loader: Iterable[Any], *, steps: int | None = None, seconds: float = 10.0, show: bool = True
    ) -> None:
        if not hasattr(loader, "__iter__"):
            raise TypeError(f"loader is what a training loop iterates over, not {loader!r}")
        require_count("steps", steps)
        if not seconds >= 0:
            raise ValueError(f"seconds is 0 or more, not {seconds!r}")
        self.loader = loader
        self._steps, self._seconds = steps, seconds
        self._show = show and os.environ.get("RANK", "0") == "0"
        self._timings: Timings | None = None
        self._report: ProfileReport | None = None

    def __iter__(self) -> Iterator[Any]:
        self._timings = timings = Timings()
        self._report = None
        yield from measured_pass(self.loader, timings, self._steps)
        if self._show:
            self._show = False
            said = self.report() if timings.steps else "packer.profile: the loader gave no batch"
            sys.stderr.write(f"{said}\n")

    def report(self, seconds: float | None = None) -> ProfileReport:
        """Return what the last pass says. What it takes to find out is done once.

        Parameters
        ----------
        seconds : float, optional
            How long that may take, in place of `packer.profile`'s.

        Raises
        ------
        ValueError
            If there was no pass, or it gave no batch.
        """
        if self._timings is None or not self._timings.steps:
            raise ValueError("no batch was taken yet: iterate over what packer.profile gave, and then ask for a report")
        if self._report is None or seconds is not None:
            self._report = diagnose(self.loader, self._timings, self._seconds if seconds is None else seconds)
        return self._report

    def __len__(self) -> int:
        length = len(self.loader)  # type: ignore[arg-type]
        return length if self._steps is None else min(length, self._steps)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while this is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)


def measured_pass(loader: Iterable[Any], timings: Timings, steps: int | None = None) -> Iterator[Any]:
    """Yield the batches of a pass, or the first `steps`, and note when they are asked for and given."""
    clock, gpu, works = time.perf_counter, timings.gpu, timings.works
    asked = clock()
    in_use = gpu.asked()
    batches = iter(loader)
    try:
        for number, batch in enumerate(itertools.islice(batches, steps), 1):
            given = clock()
            if in_use:
                gpu.given()
            timings.waited(given - asked)
            try:
                yield batch
            finally:
                del batch  # the loop alone decides how long a batch lives
                asked = clock()
                works.append(asked - given)
            if in_use or not number & (number - 1):  # who trains with CUDA uses it from the first steps on
                in_use = gpu.asked()
        timings.complete = True
    finally:
        timings.end()
