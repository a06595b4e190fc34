"""Several trials of one conversion, and what they say of converting all images: how large, how long, what is found.

A conversion takes the time that it needs to begin and to end, and a time for each image and each byte. Trials of
different lengths tell the two apart. The very first images also pay for what is loaded and compiled once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from packer._conversion.convert import ConversionProgress
from packer._conversion.pipeline import BATCH_BYTES
from packer._conversion.request import ConversionRequest
from packer._measuring.estimating.sampling import Interval, Population
from packer._measuring.estimating.trial import Trial, convert_some
from packer._sources import Source
from packer._storage.limits import available_cpus
from packer._table import Ints

__all__ = ["Duration", "Trials", "run_trials"]

_FIRST, _LEAST, _SHORT = 2, 14, 34  # images
_MOST_BYTES = 256 << 20  # of the images of a trial: what it writes goes to the disk
_MOST_IMAGES = 4000
_DOUBT = 0.15  # of a duration: other work on the machine, and disks that slow down, show only later
_LEAST_DOUBT = 0.002  # of a size that was not counted
_STRUCTURE = 0.05  # of what is beside the images, which grows with their number, but for a page here and there

ShowTrial = Callable[[str, ConversionProgress], None]


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

    def on(self, jobs: int = 1) -> Interval:
        """Return the seconds where so many machines share the work."""
        return self.work.times(1 / jobs).plus(self.first + self.fixed)


@dataclass
class Trials:
    """The trials of one conversion.

    Attributes
    ----------
    population : Population
    workers : int
        On how many threads.
    each : list of Trial
        The first for what happens once, the second short, the others as long as time allows. Only one where it has all
        images.
    """

    population: Population
    workers: int
    each: list[Trial] = field(default_factory=list)

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
        works = [self._work(trial) for trial in self.each]
        whole = len(self.population)
        if len(self.each) == 1:
            return Duration(0.0, 0.0, Interval.around(self.each[0].seconds, self.each[0].seconds * _DOUBT))
        short, *long = self.each[1:] if len(self.each) > 2 else self.each
        mean_work = float(np.mean(works[-len(long) :]))
        mean_seconds = float(np.mean([trial.seconds for trial in long]))
        rate = mean_seconds / mean_work
        if mean_work > 2 * self._work(short):
            rate = max(rate / 2, min(rate, (mean_seconds - short.seconds) / (mean_work - self._work(short))))
        fixed = max(0.0, mean_seconds - rate * mean_work)
        rates = [(trial.seconds - fixed) / self._work(trial) for trial in long]
        doubt = math.hypot(_DOUBT, (max(rates) - min(rates)) / rate)
        first = max(0.0, self.each[0].seconds - fixed - rate * works[0])
        return Duration(first, fixed, Interval.around(rate * whole, rate * whole * doubt))

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
        """Return how much work the images of a trial are, half by the image and half by the byte; all images are N."""
        mean = self.population.mean_size
        of_bytes = float(self.population.sizes(trial.places).sum()) / mean if mean else float(len(trial))
        return (len(trial) + of_bytes) / 2 + self._idle(len(trial))

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
    seconds: float,
    most: int = _MOST_IMAGES,
    show: ShowTrial,
    what: str,
) -> Trials:
    """Convert some images several times, other ones each time, for about so many `seconds`.

    Where there is time for all images, the last trial is of all of them.
    """
    ends, trials, known = (
        time.monotonic() + seconds,
        Trials(population, request.workers or available_cpus()),
        len(population.order),
    )

    def convert(start: int, count: int) -> Trial:
        places = np.arange(start, min(start + count, known))
        trial = convert_some(
            request,
            source,
            places,
            population.order[places],
            directory=directory,
            progress=lambda progress: show(what, progress),
        )
        trials.each.append(trial)
        return trial

    first = convert(0, _FIRST)
    if known <= _FIRST:
        return trials
    affordable = int((ends - time.monotonic()) / first.seconds * len(first))
    short = convert(_FIRST, max(_LEAST, min(_SHORT, affordable)))
    begun = len(first) + len(short)
    left, each = ends - time.monotonic(), short.seconds / len(short)
    fitting = int(min(left / each, _MOST_BYTES / max(population.mean_size, 1), most))
    if known == len(population) and fitting >= known:
        convert(0, known)
        return trials
    long = min(fitting, known - begun) // 2
    if long > len(short):
        for start in (begun, begun + long):
            convert(start, long)
    return trials
