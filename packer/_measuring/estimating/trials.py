"""Several trials of one conversion, and what they say of converting all images: how large, how long, what is found.

A conversion takes the time that it needs to begin and to end, and a time for each image and each byte. A trial tells
when its first batch was written and when the last one, so that the two can be told apart. What is loaded and compiled
once is loaded before the trials, or in the first of them where only some images need it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from packer._conversion.convert import ConversionProgress
from packer._conversion.pipeline import BATCH_BYTES, Pipeline, threads_for
from packer._conversion.request import ConversionRequest
from packer._measuring.estimating.sampling import Interval, Population
from packer._measuring.estimating.trial import Trial, convert_some
from packer._measuring.load import Load
from packer._measuring.profiling.clocks import moment, since
from packer._sources import Source
from packer._table import Ints

__all__ = ["Duration", "Trials", "run_trials"]

_LEAST, _SHORT, _WANTED = 16, 34, 300  # images of a trial; of all trials of what is asked for
_MOST_BYTES = 256 << 20  # of the images of a trial: what it writes goes to the disk
_MOST_IMAGES = 4000
_OF_EACH_SIZE, _APART = 20, 5  # the first images of a population's order are of all sizes
_DOUBT = 0.2  # of a duration: other work on the machine, and disks that slow down, show only later
_OF_BYTES = 0.3  # how far the share of the time that grows with the bytes may be off
_LEAST_DOUBT = 0.002  # of a size that was not counted
_STRUCTURE = 0.05  # of what is beside the images, which grows with their number, but for a page here and there

ShowTrial = Callable[[str, ConversionProgress | None], None]
"""Called with what is tried, and how far that is; None while it is prepared."""


@dataclass(frozen=True)
class Duration:
    """How long a conversion takes.

    Attributes
    ----------
    first : float
        Seconds that are spent once in a process: what is loaded.
    fixed : float
        Seconds of every conversion: to begin and to end.
    work : Interval
        Seconds for all images.
    """

    first: float
    fixed: float
    work: Interval

    def on(self, jobs: int = 1, before: float = 0.0) -> Interval:
        """Return the seconds where so many machines share the work, after so many seconds before it.

        What is spent once varies as the work does, by which share that was seen of the work.
        """
        seconds = self.work.value / jobs + self.first + self.fixed + before
        return Interval.around(seconds, seconds * (self.work.high - self.work.value) / max(self.work.value, 1e-9))


@dataclass
class Trials:
    """The trials of one conversion.

    Attributes
    ----------
    population : Population
    workers : int
        On how many threads.
    first : float
        Seconds that were spent once, to load what images need.
    by_bytes : float
        Which share of the time of all images grows with their bytes; the rest is the same for each image.
    each : list of Trial
        A short one, and others as long as time allows. The last one has all images where there is time for that.
    others : float or None
        Share of the processors that other work took meanwhile.
    """

    population: Population
    workers: int
    first: float = 0.0
    by_bytes: float = 0.5
    each: list[Trial] = field(default_factory=list)
    others: float | None = None

    @property
    def tried(self) -> int:
        """How many images were tried."""
        return sum(map(len, self._counted))

    @property
    def _counted(self) -> list[Trial]:
        """The trials that say what images become: the last one alone where it has them all."""
        return self.each[-1:] if self.is_exact else self.each

    @property
    def is_exact(self) -> bool:
        """Whether all images were tried at once."""
        return len(self.each[-1]) == len(self.population)

    def size(self) -> Interval:
        """Bytes of the pack."""
        if self.is_exact:
            last = self.each[-1]
            return Interval.around(float(last.stored.sum()) + last.beside, 0.0)
        total = self.population.total(self._places, np.concatenate([trial.stored for trial in self.each]))
        short, long = self.each[0], max(self.each, key=len)
        an_image = max(0.0, (long.beside - short.beside) / max(len(long) - len(short), 1))
        beside = long.beside + an_image * (len(self.population) - len(long))
        value, drawn = total.value + beside, (total.high - total.low) / 2
        return Interval.around(value, math.hypot(drawn, _STRUCTURE * beside, _LEAST_DOUBT * value))

    def duration(self) -> Duration:
        """How long the conversion of all images takes, in seconds."""
        long, whole = self.each[1:] or self.each, len(self.population)
        if len(long[-1]) == whole:
            long = long[-1:]
        fixed = min(trial.around for trial in self.each)  # all of it, where there is a single batch
        works = [self._work(trial) for trial in long]
        rates = [max(trial.seconds - fixed, 1e-6) / work for trial, work in zip(long, works, strict=True)]
        rate = float(np.average(rates, weights=works))
        unlike = float(np.average([self._unlike(trial) for trial in long], weights=works))
        doubt = math.hypot(_DOUBT, (max(rates) - min(rates)) / rate, (self.others or 0.0) / 2, _OF_BYTES * unlike)
        late = self.each[0].seconds - fixed - rate * self._work(self.each[0])  # of what only some images need
        return Duration(self.first + max(0.0, late), fixed, Interval.around(rate * whole, rate * whole * doubt))

    def findings(self) -> dict[str, Interval]:
        """How many of all images have each finding."""
        each = [findings for trial in self._counted for findings in trial.findings]
        return {
            name: self.population.number(self._places, np.array([name in findings for findings in each], bool))
            for name in sorted({name for findings in each for name in findings})
        }

    def remarkable(self) -> Interval:
        """How many images have a finding, of whatever kind."""
        found = [bool(findings) for trial in self._counted for findings in trial.findings]
        return self.population.number(self._places, np.array(found, bool))

    def unreadable(self) -> Interval:
        """How many images cannot be converted."""
        return self.population.number(self._places, np.concatenate([trial.is_left_out for trial in self._counted]))

    def left_out(self) -> list[dict[str, str]]:
        """Name and reason of the images among those tried that cannot be converted."""
        return [entry for trial in self._counted for entry in trial.left_out]

    @property
    def _places(self) -> Ints:
        return np.concatenate([trial.places for trial in self._counted])

    def _work(self, trial: Trial) -> float:
        """Return how much work the images of a trial are, by the image and by the byte; all images are N."""
        return len(trial) * (1 + self.by_bytes * self._unlike(trial)) + self._idle(len(trial))

    def _unlike(self, trial: Trial) -> float:
        """Return by which share the images of a trial are larger than all are."""
        mean = self.population.mean_size
        return float(self.population.sizes(trial.places).mean()) / mean - 1 if mean else 0.0

    def _idle(self, images: int) -> float:
        """Return how much work the threads could do that have ended while another one has its last batch."""
        batch = min(BATCH_BYTES / max(self.population.mean_size, 1.0), images / (2 * self.workers))
        return (self.workers - 1) * batch / 2


def run_trials(
    request: ConversionRequest,
    source: Source,
    population: Population,
    directory: Path,
    *,
    until: float,
    ends: float,
    wanted: int = _WANTED,
    show: ShowTrial,
    what: str,
) -> Trials:
    """Convert some images several times, other ones each time.

    Where there is time for all images, the last trial is of all of them.

    Parameters
    ----------
    until, ends : float
        Times of `time.monotonic`. The trials go on until the first of these, and until the second one where they have
        less than `wanted` images by then. There is at least one trial, but where none fits and no image is wanted.
    """
    show(what, None)
    trials = Trials(population, threads_for(request.workers, request.recipe))
    known, begun = len(population.order), 0
    trials.first, trials.by_bytes, an_image = _load(request, source, population)

    def convert(start: int, count: int) -> None:
        places = np.arange(start, min(start + count, known))
        indices = population.order[places]
        trials.each.append(
            convert_some(
                request, source, places, indices, directory=directory, progress=lambda progress: show(what, progress)
            )
        )

    def fitting(end: float) -> int:
        return max(0, int((end - time.monotonic()) / an_image))

    if not wanted and fitting(ends) < _LEAST:
        return trials
    with Load() as load:
        convert(0, max(_LEAST, min(_SHORT, fitting(until) // 4)))
        for parts in (2, 1):
            last = trials.each[-1]
            begun, an_image = begun + len(last), max(last.seconds - last.around, 1e-6) / len(last)
            most = int(_MOST_BYTES / max(population.mean_size, 1))
            if known == len(population) and known <= min(fitting(until), most, _MOST_IMAGES):
                convert(0, known)
                break
            count = max(min(fitting(until), most, _MOST_IMAGES) // parts, min(wanted - begun, fitting(ends)) // parts)
            if min(count, known - begun) >= _LEAST:
                convert(begun, min(count, -(-(known - begun) // parts)))
    trials.others = load.others
    return trials


def _load(request: ConversionRequest, source: Source, population: Population) -> tuple[float, float, float]:
    """Load what images need.

    Images of several sizes are prepared, twice: they may take different ways, and what a way needs is loaded at first.

    Returns
    -------
    first : float
        Seconds of that, which every process needs once.
    by_bytes : float
        Which share of an image's time grows with its bytes.
    an_image : float
        Seconds of an image, on one thread, with what others on this machine take.
    """
    begin = moment()
    request.recipe.load()
    loaded = since(begin).total
    places = np.arange(0, min(_OF_EACH_SIZE, len(population.order)), _APART)
    some = population.order[places]
    once = np.array([_prepared(request, source, index) for index in some])
    began = time.perf_counter()
    again = np.array([_prepared(request, source, index) for index in some])
    an_image = (time.perf_counter() - began) / len(some)
    a_byte, any_image = np.polyfit(population.sizes(places), again, 1) if np.ptp(population.sizes(places)) else (0, 1)
    of_bytes = a_byte * population.mean_size
    by_bytes = min(max(float(of_bytes / max(any_image + of_bytes, 1e-9)), 0.0), 1.0)
    return loaded + max(0.0, float((once - again).sum())), by_bytes, max(an_image, 1e-6)


def _prepared(request: ConversionRequest, source: Source, index: int) -> float:
    """Return how long preparing an image takes on one thread that nobody disturbs."""
    begin = moment()
    pipeline = Pipeline(source.taken(np.array([index])), request.recipe, "skip", start=0)
    for _ in pipeline.run(_Here(), ahead=1):
        pass
    return since(begin).total


class _Here(Executor):
    """Does what it is given at once, on this thread."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except BaseException as error:
            done.set_exception(error)
        return done
