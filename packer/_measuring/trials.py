"""Trial conversions of some images of a source, and the extrapolation to all images.

The time of a conversion has a fixed part, for the beginning and the end, and a part that grows with the number of
images and bytes. A trial reports when the first and the last batch were written, which separates the two parts. Modules
are loaded once, before the trials; a module that only some images need may be loaded in the first trial.

Images of similar sizes form a stratum. Strata of large images have fewer members, because the estimated quantity, such
as the bytes in the pack, varies more among large images. The order begins with the same number of images from every
stratum. Later images are drawn uniformly, so that their average time equals the average over the source. The sum over
all images is estimated by regression on the size, which is known for every image. See Cochran, Sampling Techniques, 5.5
and 7.10.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._conversion.convert import ConversionProgress
from packer._conversion.pipeline import BATCH_BYTES, ConversionPipeline, threads_for
from packer._conversion.request import ConversionRequest
from packer._formats import open_pack
from packer._measuring.harness import Load, TimeLimit, moment, since
from packer._sources.base import OtherFiles, Source
from packer._storage.files import remove
from packer._table import Ints

Floats = npt.NDArray[np.float64]

_LEAST, _SHORT = 16, 34  # the fewest images of any trial, and the most of the first trial
_ENOUGH = 300  # images that all trials of a request together need
_MOST_BYTES, _MOST_IMAGES = 256 << 20, 4000  # of a trial
_OF_EACH_SIZE, _SIZE_STEP = 20, 5  # images that are timed one by one: every 5th of the first 20, which cover all sizes
_MORE_PASSES, _SHORT_IMAGE = 2, 0.1  # more passes if an image takes less than this, as a pause distorts short times
_DURATION_ERROR = 0.2  # after the trials, other programs may start to interfere, and disks may slow down
_BY_BYTES_ERROR = 0.3  # the error of the share of the time that grows with the bytes
_SIZE_ERROR = 0.002  # the least error of an extrapolated size
_STRUCTURE_ERROR = 0.05  # of the bytes in addition to the images: they are nearly proportional to the number of images

ShowTrial = Callable[[str, ConversionProgress | None], None]
"""A progress callback: takes the subject of the trials, and their progress; None during the preparation."""


@dataclass(frozen=True)
class ConversionTime:
    """The duration of a conversion, in parts.

    Attributes
    ----------
    first : float
        Seconds for loading modules, which a process spends once.
    fixed : float
        Seconds for the beginning and the end of a conversion.
    work : Interval
        Seconds for all images.
    """

    first: float
    fixed: float
    work: Interval

    def on(self, jobs: int = 1, before: float = 0.0) -> Interval:
        """Return the seconds if several machines share the work, including `before` seconds for preparing the work.

        The parts of the duration that machines do not share are assumed to be as uncertain as the work.
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
        The number of threads.
    first : float
        Seconds for loading the modules that images need, which a process spends once.
    by_bytes : float
        Share of the images' time that is proportional to their bytes; the rest is the same for each image.
    conversions : list of TrialConversion
        A short trial, and longer trials if time allows. If there is time, the last trial has all images.
    others : float or None
        Share of the processors that other programs used during the trials; None if the system does not report it.
    """

    population: Population
    workers: int
    first: float = 0.0
    by_bytes: float = 0.5
    conversions: list[TrialConversion] = field(default_factory=list)
    others: float | None = None

    @property
    def tried(self) -> int:
        """The number of images that were tried."""
        return sum(map(len, self._counted))

    @property
    def _counted(self) -> list[TrialConversion]:
        """The trials on which estimates are based: only the last trial if it has all images."""
        return self.conversions[-1:] if self.is_exact else self.conversions

    @property
    def is_exact(self) -> bool:
        """Whether the last trial converted all images of the source."""
        return len(self.conversions[-1]) == len(self.population)

    def size(self) -> Interval:
        """Return the estimated size of the pack in bytes."""
        if self.is_exact:
            last = self.conversions[-1]
            return Interval.around(float(last.stored.sum()) + last.structure, 0.0)
        total = self.population.total(self._positions, np.concatenate([trial.stored for trial in self.conversions]))
        short, long = self.conversions[0], max(self.conversions, key=len)
        an_image = max(0.0, (long.structure - short.structure) / max(len(long) - len(short), 1))
        beside = long.structure + an_image * (len(self.population) - len(long))
        value, drawn = total.value + beside, (total.high - total.low) / 2
        return Interval.around(value, math.hypot(drawn, _STRUCTURE_ERROR * beside, _SIZE_ERROR * value))

    def duration(self) -> ConversionTime:
        """Return the estimated time of converting all images."""
        short, *longer = self.conversions
        long, whole = longer or [short], len(self.population)
        if len(long[-1]) == whole:
            long = long[-1:]
        fixed = min(trial.fixed for trial in self.conversions)  # the whole time of a trial with one batch is in `fixed`
        works = [self._work(trial) for trial in long]
        rates = [max(trial.seconds - fixed, 1e-6) / work for trial, work in zip(long, works, strict=True)]
        rate = float(np.average(rates, weights=works))
        unlike = float(np.average([self._unlike(trial) for trial in long], weights=works))
        spread = (max(rates) - min(rates)) / rate
        error = math.hypot(_DURATION_ERROR, spread, (self.others or 0.0) / 2, _BY_BYTES_ERROR * unlike)
        late = short.seconds - fixed - rate * self._work(short)  # loading modules that only some images need
        return ConversionTime(self.first + max(0.0, late), fixed, Interval.around(rate * whole, rate * whole * error))

    def findings(self) -> dict[str, Interval]:
        """Return the estimated number of images with each finding."""
        each = [findings for trial in self._counted for findings in trial.findings]
        return {
            name: self.population.number(self._positions, np.array([name in findings for findings in each], bool))
            for name in sorted({name for findings in each for name in findings})
        }

    def remarkable(self) -> Interval:
        """Return the estimated number of images with at least one finding."""
        found = [bool(findings) for trial in self._counted for findings in trial.findings]
        return self.population.number(self._positions, np.array(found, bool))

    def unreadable(self) -> Interval:
        """Return the estimated number of images that cannot be converted."""
        return self.population.number(self._positions, np.concatenate([trial.is_left_out for trial in self._counted]))

    def left_out(self) -> list[dict[str, str]]:
        """Return the name of each tried image that cannot be converted, and the reason."""
        return [entry for trial in self._counted for entry in trial.left_out]

    @property
    def _positions(self) -> Ints:
        return np.concatenate([trial.positions for trial in self._counted])

    def _work(self, trial: TrialConversion) -> float:
        """Return the work for the images of a trial, as a multiple of the work for an average image."""
        return len(trial) * (1 + self.by_bytes * self._unlike(trial)) + self._idle(len(trial))

    def _unlike(self, trial: TrialConversion) -> float:
        """Return the share by which the mean size of a trial's images exceeds the mean size of all images."""
        mean = self.population.mean_size
        return float(self.population.sizes(trial.positions).mean()) / mean - 1 if mean else 0.0

    def _idle(self, images: int) -> float:
        """Return the work lost because other threads idle while one thread processes the last batch."""
        batch = min(BATCH_BYTES / max(self.population.mean_size, 1.0), images / (2 * self.workers))
        return (self.workers - 1) * batch / 2


@dataclass(frozen=True)
class TrialSetup:
    """The images that trials convert, and the directory of their packs.

    Attributes
    ----------
    source : Source
        All images.
    population : Population
        The order in which the images are tried.
    directory : Path
        A temporary directory.
    show : ShowTrial
    """

    source: Source
    population: Population
    directory: Path
    show: ShowTrial

    def run(
        self, request: ConversionRequest, subject: str, *, until: TimeLimit, ends: TimeLimit, enough: int = _ENOUGH
    ) -> Trials:
        """Run several trial conversions, each of different images.

        If there is time for all images, the last trial converts all of them.

        Parameters
        ----------
        request : ConversionRequest
        subject : str
            The subject of the trials, for `show`.
        until, ends : TimeLimit
            No trial begins after `until`. But if the trials had fewer than `enough` images by then, further trials may
            begin until `ends`. There is at least one trial, unless `enough` is 0 and there is no time for a trial.
        """
        population = self.population
        self.show(subject, None)
        trials = Trials(population, threads_for(request.workers, request.recipe))
        known, begun = len(population.order), 0
        trials.first, trials.by_bytes, an_image = self.prepare_images(request)

        def convert(start: int, count: int) -> None:
            positions = np.arange(start, min(start + count, known))
            trials.conversions.append(self._convert(request, positions, partial(self.show, subject)))

        def fitting(limit: TimeLimit) -> int:
            return max(0, int(limit.left / an_image))

        if not enough and fitting(ends) < _LEAST:
            return trials
        with Load() as load:
            convert(0, max(_LEAST, min(_SHORT, fitting(until) // 4)))
            for parts in (2, 1):
                last = trials.conversions[-1]
                begun, an_image = begun + len(last), max(last.seconds - last.fixed, 1e-6) / len(last)
                most = min(int(_MOST_BYTES / max(population.mean_size, 1)), _MOST_IMAGES)
                if known == len(population) and known <= min(fitting(until), most):
                    convert(0, known)
                    break
                count = max(min(fitting(until), most) // parts, min(enough - begun, fitting(ends)) // parts)
                if min(count, known - begun) >= _LEAST:
                    convert(begun, min(count, -(-(known - begun) // parts)))
        trials.others = load.others
        return trials

    def prepare_images(self, request: ConversionRequest) -> tuple[float, float, float]:
        """Measure how long it takes to read and encode some images, and to load the modules that they need.

        Each image is prepared a few times. The first time takes longer, because it loads the modules that the different
        kinds of images need. Of the later runs, only the fastest one of each image is used. The others may contain a
        pause, such as a garbage collection, that takes longer than preparing a small image.

        Returns
        -------
        first : float
            Seconds for loading modules, which every process spends once.
        by_bytes : float
            Share of an image's time that grows with its bytes.
        an_image : float
            Seconds for an image on one thread, including delays by other programs.
        """
        population = self.population
        begin = moment()
        request.recipe.load()
        loaded = since(begin).total
        positions = np.arange(0, min(_OF_EACH_SIZE, len(population.order)), _SIZE_STEP)
        indices, sizes = population.order[positions], population.sizes(positions)
        once = np.array([self._prepare(request, index) for index in indices])
        began = time.perf_counter()
        again = np.array([self._prepare(request, index) for index in indices])
        an_image = (time.perf_counter() - began) / len(indices)
        for _ in range(_MORE_PASSES if an_image < _SHORT_IMAGE else 0):
            again = np.minimum(again, [self._prepare(request, index) for index in indices])
        a_byte, any_image = np.polyfit(sizes, again, 1) if np.ptp(sizes) else (0, 1)
        of_bytes = a_byte * population.mean_size
        by_bytes = min(max(float(of_bytes / max(any_image + of_bytes, 1e-9)), 0.0), 1.0)
        return loaded + max(0.0, float((once - again).sum())), by_bytes, max(an_image, 1e-6)

    def _prepare(self, request: ConversionRequest, index: int) -> float:
        """Return the seconds for reading and encoding an image on this thread, without delays by other programs."""
        begin = moment()
        pipeline = ConversionPipeline(self.source.taken(np.array([index])), request.recipe, "skip", start=0)
        for _ in pipeline.run(_ThisThread(), ahead=1):
            pass
        return since(begin).total

    def _convert(
        self, request: ConversionRequest, positions: Ints, progress: Callable[[ConversionProgress], None]
    ) -> TrialConversion:
        """Convert some images with the settings of the request, and remove the pack.

        Raises
        ------
        PackerError
            For the same reasons as `packer.convert`, except for images that cannot be read, which are left out.
        """
        indices = self.population.order[positions]
        in_order = np.argsort(indices)
        account = self.source.complete_account()
        some = replace(self.source.taken(indices[in_order]), others=OtherFiles(), notes=[], doubts=(), account=account)
        pack = self.directory / f"trial{request.format_row.suffixes[0]}"
        report = self.directory / "findings.jsonl"
        trial_request = replace(
            request,
            dst=pack,
            format=request.format_row.name,
            on_error="skip",
            report=report,
            parts=None,
            overwrite=False,
            fresh=True,
            ignore_free_space=True,
        )
        written = list[float]()

        def note(done: ConversionProgress) -> None:
            written.append(time.perf_counter())
            progress(done)

        try:
            began = time.perf_counter()
            summary = trial_request.convert(some, note, allow_empty=True)
            seconds = time.perf_counter() - began
            noted = map(json.loads, report.read_text("utf-8").splitlines())
            findings = {line["name"]: tuple(line["findings"]) for line in noted if "findings" in line}
            skipped = {entry["name"] for entry in summary.manifest.skipped}
            names = [some.names.get(index) for index in range(len(some))]
            is_left_out = np.array([name in skipped for name in names], bool)
            stored = np.zeros(len(some))
            stored[~is_left_out], data = _stored(pack)
            return TrialConversion(
                positions=positions[in_order],
                stored=stored,
                data=data,
                structure=summary.bytes_out - int(stored.sum()),
                seconds=seconds,
                fixed=max(0.0, seconds - (written[-1] - written[0])) if written else seconds,
                findings=[findings.get(name, ()) for name in names],
                is_left_out=is_left_out,
                left_out=summary.manifest.skipped,
            )
        finally:
            for path in (pack, report):
                remove(path)


class _ThisThread(Executor):
    """An executor that runs each function immediately, on the calling thread."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except BaseException as error:
            done.set_exception(error)
        return done


_MOST_PADDING = 1 << 16  # bytes; a larger gap between two samples is no padding


@dataclass(frozen=True, eq=False)
class TrialConversion:
    """The result of converting some images.

    Attributes
    ----------
    positions : (n,) int64 array
        The images, as positions in the order of a `Population`.
    stored : (n,) float64 array
        Size of each image in the pack in bytes, including the blobs of its fields and the format's padding; 0 for an
        image that was left out.
    data : int
        Size of all images in bytes, without the padding.
    structure : int
        Size of the rest of the pack in bytes: its structure, table and manifest.
    seconds : float
        Seconds that the conversion took.
    fixed : float
        The part of `seconds` before the first batch was written and after the last one.
    findings : list of tuple of str
        The findings of each image.
    is_left_out : (n,) bool array
        Mask of images that cannot be converted.
    left_out : list of dict
        Name and reason of each image that was left out.
    """

    positions: Ints
    stored: Floats
    data: int
    structure: int
    seconds: float
    fixed: float
    findings: list[tuple[str, ...]]
    is_left_out: npt.NDArray[np.bool_]
    left_out: list[dict[str, str]]

    def __len__(self) -> int:
        return len(self.positions)


def _stored(pack: Path) -> tuple[Floats, int]:
    """Return the size of each sample in a pack, and the size of all samples without padding, in bytes.

    The size of a sample includes its data, its fields' blobs, and the padding up to the next sample.

    The padding is the unused rest of a page, or a record's header.
    """
    with open_pack(pack) as reader:
        sizes = reader.table.size.astype(np.float64)
        for field in reader.fields.values():
            if field.is_blob:
                sizes += reader.table.more[f"field.{field.name}.size"].clip(0)
        data = int(sizes.sum())
        ranges, buffers = reader.locate(np.arange(len(reader)))
        order = np.lexsort((ranges["position"], ranges["file"]))
        padding = np.diff(ranges["position"][order]) - sizes[order[:-1]]
        del buffers
    same_file = np.diff(ranges["file"][order]) == 0
    sizes[order[:-1]] += np.where(same_file & (padding >= 0) & (padding < _MOST_PADDING), padding, 0)
    return sizes, data


_STRATA = 20
_FROM_EACH = 4  # the fewest images of a stratum in an estimate
_BALANCED = 8  # images from each stratum at the beginning of the order
_STEP = 7  # images between neighbouring strata in the order, so that even few images are spread; prime to _STRATA
_Z = 1.96  # standard errors for 95 %


@dataclass(frozen=True)
class Interval:
    """An estimate of a number, and the bounds between which the number lies with a probability of 95 %.

    Attributes
    ----------
    value, low, high : float
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """Return the interval multiplied by a factor."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Return a symmetric interval, cut off at 0, because images, bytes and seconds are never negative."""
        return cls(value, max(0.0, value - half), value + half)


class Population:
    """The images of a source, ordered so that the first n images, for any n, are a sample of all sizes (strata).

    Parameters
    ----------
    sizes : (M,) int64 array
        Bytes of the images whose size is known.
    which : (M,) int64 array
        The indices of these images in the source, drawn uniformly at random.
    length : int
        Number of images in the source.
    seed : int
        Decides which images are drawn.

    Attributes
    ----------
    order : (M,) int64 array
        Indices of images in the source.
    known : int
        Number of images with a known size.
    """

    def __init__(self, sizes: Ints, which: Ints, length: int, seed: int = 0) -> None:
        self._length = length
        self.known = known = len(sizes)
        mixed = np.random.default_rng(seed).permutation(known)
        by_size = mixed[np.argsort(sizes[mixed], kind="stable")]
        self._sizes = sizes[by_size].astype(np.float64)
        self._stratum = stratum = _strata(self._sizes)
        turn = np.empty(known, np.int64)  # the number of an image within its stratum
        drawn = np.random.default_rng([seed, 1]).permutation(known)
        turn[drawn[np.argsort(stratum[drawn], kind="stable")]] = np.arange(known) - np.searchsorted(stratum, stratum)
        first = turn < _BALANCED
        later = np.random.default_rng([seed, 3]).permutation(known)
        rank = np.lexsort((np.where(first, stratum * _STEP % _STRATA, later), np.where(first, turn, _BALANCED)))
        self.order = which[by_size[rank]]
        self._rank_of = rank  # the rank by size of each image in `order`

    def __len__(self) -> int:
        return self._length

    @property
    def bytes(self) -> Interval:
        """Bytes of all images, estimated if not all sizes were read."""
        total = float(self._sizes.sum()) * self._length / max(self.known, 1)
        return Interval.around(total, self._unseen(float(self._sizes.std())))

    @property
    def mean_size(self) -> float:
        """Mean size of an image in bytes."""
        return float(self._sizes.mean()) if self.known else 0.0

    def sizes(self, positions: Ints) -> Floats:
        """Return the sizes, in bytes, of the images at some positions of `order`."""
        return self._sizes[self._rank_of[positions]]

    def total(self, positions: Ints, values: Floats) -> Interval:
        """Estimate the sum of a quantity over all images.

        Parameters
        ----------
        positions : (n,) int64 array
            The images whose values are known, as positions in `order`.
        values : (n,) float64 array
        """
        ranks, n = self._rank_of[positions], len(positions)
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
        leverage = weight[of] * x * x / spread if spread else np.zeros(n)
        residual = (y - slope * x) / np.maximum(1 - leverage, 0.1)  # of a fit without the image: MacKinnon and White
        variances = weight * np.bincount(of, residual**2, minlength=len(seen))
        half = _quantile(variances, seen) * math.sqrt(variances.sum())
        return Interval.around(total * scale, math.hypot(half * scale, self._unseen(float(values.std()))))

    def number(self, positions: Ints, found: npt.NDArray[np.bool_]) -> Interval:
        """Estimate the number of images with a property, as a weighted Wilson interval.

        Parameters
        ----------
        positions : (n,) int64 array
            The examined images, as positions in `order`.
        found : (n,) bool array
            Whether these images have the property.
        """
        if len(positions) == self._length:
            return Interval.around(float(found.sum()), 0.0)
        members, of = _without_empty(self._stratum, self._stratum[self._rank_of[positions]])
        stands_for = (members / np.bincount(of))[of]
        share = float(stands_for[found].sum() / stands_for.sum())
        effective = float(stands_for.sum() ** 2 / (stands_for**2).sum())
        z = _Z * math.sqrt(1 - len(positions) / self._length)
        middle, width = share * effective + z * z / 2, z * math.sqrt(share * (1 - share) * effective + z * z / 4)
        low, high = (self._length * (middle + side) / (effective + z * z) for side in (-width, width))
        seen = float(found.sum())
        return Interval(max(seen, share * self._length), max(seen, math.floor(low)), math.ceil(max(seen, high)))

    def _unseen(self, deviation: float) -> float:
        """Return the part of a sum's error that comes from images of unknown size."""
        missing = 1 - self.known / self._length
        return _Z * self._length * deviation * math.sqrt(missing / self.known) if self.known else 0.0


def _strata(sizes: Floats) -> Ints:
    """Return the stratum of each image; `sizes` is in ascending order.

    The strata are chosen so that the sum of (size of the image + mean size) is about the same in each stratum.
    """
    reached = np.cumsum(sizes + max(float(sizes.mean()), 1.0)) if len(sizes) else sizes
    return np.minimum(reached * _STRATA / reached[-1:], _STRATA - 1).astype(np.int64)


def _without_empty(stratum: Ints, drawn: Ints) -> tuple[Floats, Ints]:
    """Join each stratum that has no drawn image to a stratum that has one.

    Returns
    -------
    members : (S,) float64 array
        Number of images in each stratum.
    of : (n,) int64 array
        The stratum of each drawn image.
    """
    seen = np.bincount(drawn, minlength=int(stratum.max()) + 1) > 0
    joined = np.minimum(np.cumsum(seen) - seen, seen.sum() - 1)
    return np.bincount(joined[stratum]).astype(np.float64), joined[drawn]


def _means(values: Floats, of: Ints, seen: Floats) -> Floats:
    return np.bincount(of, values, minlength=len(seen)) / seen


def _quantile(variances: Floats, seen: Floats) -> float:
    """Return the half-width of a 95 % interval, in standard errors.

    The result approximates the quantile of Student's t with Satterthwaite's degrees of freedom.
    """
    squares = float((variances**2 / np.maximum(seen - 1, 1)).sum())
    freedom = max(float(variances.sum()) ** 2 / squares, 2.0) if squares else math.inf
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
