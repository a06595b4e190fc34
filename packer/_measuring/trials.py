"""Trial conversions of some images of a source, and the extrapolation to all images.

The time of a conversion consists of a fixed part, for beginning and ending, and a part for each image and byte. A trial
reports when its first and its last batch were written, to separate the two. Modules are loaded and code is compiled
once, before the trials, or in the first of them if only some images need it.

Images of similar sizes are a stratum. Strata of large images have fewer members, because the estimated quantity, such
as the bytes in the pack, varies more among these; at first the same number is drawn from every stratum. Later images
are drawn uniformly, so that their average time equals the average over the source. The sum over all images is estimated
by regression on the size, which is known for every image. See Cochran, Sampling Techniques, 5.5 and 7.10.
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

_LEAST, _SHORT, _ENOUGH = 16, 34, 300  # images of a trial; of all trials of the request itself
_MOST_BYTES = 256 << 20  # of the images of a trial, whose pack goes to the disk
_MOST_IMAGES = 4000
_OF_EACH_SIZE, _APART = 20, 5  # the first images of a population's order are of all sizes
_DOUBT = 0.2  # of a duration: other work on the machine, and disks that slow down, show only later
_OF_BYTES = 0.3  # how far the share of the time that grows with the bytes may be off
_LEAST_DOUBT = 0.002  # of a size that was not counted
_STRUCTURE = 0.05  # of the bytes in addition to the images, which grow with their number, but for a page here and there

ShowTrial = Callable[[str, ConversionProgress | None], None]
"""Called with the subject of the trials, and their progress; None while they are prepared."""


@dataclass(frozen=True)
class ConversionTime:
    """The duration of a conversion, in parts.

    Attributes
    ----------
    first : float
        Seconds that are spent once in a process, to load modules.
    fixed : float
        Seconds for beginning and ending, in every conversion.
    work : Interval
        Seconds for all images.
    """

    first: float
    fixed: float
    work: Interval

    def on(self, jobs: int = 1, before: float = 0.0) -> Interval:
        """Return the seconds if some machines share the work, including the seconds before it begins.

        The part that is spent once is assumed to be as uncertain as the work.
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
        Seconds that were spent once, to load modules for images.
    by_bytes : float
        Share of the time of all images that grows with their bytes; the rest is the same for each image.
    each : list of TrialConversion
        A short trial, and others as long as time allows. The last one has all images if there is time for them.
    others : float or None
        Share of the processors that other programs took meanwhile.
    """

    population: Population
    workers: int
    first: float = 0.0
    by_bytes: float = 0.5
    each: list[TrialConversion] = field(default_factory=list)
    others: float | None = None

    @property
    def tried(self) -> int:
        """The number of images that were tried."""
        return sum(map(len, self._counted))

    @property
    def _counted(self) -> list[TrialConversion]:
        """The trials that count: only the last one if it has all images."""
        return self.each[-1:] if self.is_exact else self.each

    @property
    def is_exact(self) -> bool:
        """Whether all images were tried at once."""
        return len(self.each[-1]) == len(self.population)

    def size(self) -> Interval:
        """The estimated size of the pack in bytes."""
        if self.is_exact:
            last = self.each[-1]
            return Interval.around(float(last.stored.sum()) + last.structure, 0.0)
        total = self.population.total(self._positions, np.concatenate([trial.stored for trial in self.each]))
        short, long = self.each[0], max(self.each, key=len)
        an_image = max(0.0, (long.structure - short.structure) / max(len(long) - len(short), 1))
        beside = long.structure + an_image * (len(self.population) - len(long))
        value, drawn = total.value + beside, (total.high - total.low) / 2
        return Interval.around(value, math.hypot(drawn, _STRUCTURE * beside, _LEAST_DOUBT * value))

    def duration(self) -> ConversionTime:
        """The time of the conversion of all images."""
        long, whole = self.each[1:] or self.each, len(self.population)
        if len(long[-1]) == whole:
            long = long[-1:]
        fixed = min(trial.around for trial in self.each)  # all of it, where there is a single batch
        works = [self._work(trial) for trial in long]
        rates = [max(trial.seconds - fixed, 1e-6) / work for trial, work in zip(long, works, strict=True)]
        rate = float(np.average(rates, weights=works))
        unlike = float(np.average([self._unlike(trial) for trial in long], weights=works))
        doubt = math.hypot(_DOUBT, (max(rates) - min(rates)) / rate, (self.others or 0.0) / 2, _OF_BYTES * unlike)
        late = self.each[0].seconds - fixed - rate * self._work(self.each[0])  # of modules that only some images need
        return ConversionTime(self.first + max(0.0, late), fixed, Interval.around(rate * whole, rate * whole * doubt))

    def findings(self) -> dict[str, Interval]:
        """The estimated number of images with each finding."""
        each = [findings for trial in self._counted for findings in trial.findings]
        return {
            name: self.population.number(self._positions, np.array([name in findings for findings in each], bool))
            for name in sorted({name for findings in each for name in findings})
        }

    def remarkable(self) -> Interval:
        """The estimated number of images with any finding."""
        found = [bool(findings) for trial in self._counted for findings in trial.findings]
        return self.population.number(self._positions, np.array(found, bool))

    def unreadable(self) -> Interval:
        """The estimated number of images that cannot be converted."""
        return self.population.number(self._positions, np.concatenate([trial.is_left_out for trial in self._counted]))

    def left_out(self) -> list[dict[str, str]]:
        """Name and reason of the images among those tried that cannot be converted."""
        return [entry for trial in self._counted for entry in trial.left_out]

    @property
    def _positions(self) -> Ints:
        return np.concatenate([trial.positions for trial in self._counted])

    def _work(self, trial: TrialConversion) -> float:
        """Return the work for the images of a trial, in units of the work for an average image."""
        return len(trial) * (1 + self.by_bytes * self._unlike(trial)) + self._idle(len(trial))

    def _unlike(self, trial: TrialConversion) -> float:
        """Return the share by which the mean size of a trial's images exceeds the mean of all images."""
        mean = self.population.mean_size
        return float(self.population.sizes(trial.positions).mean()) / mean - 1 if mean else 0.0

    def _idle(self, images: int) -> float:
        """Return the work that idle threads could do while another thread processes its last batch."""
        batch = min(BATCH_BYTES / max(self.population.mean_size, 1.0), images / (2 * self.workers))
        return (self.workers - 1) * batch / 2


def run_trials(
    request: ConversionRequest,
    source: Source,
    population: Population,
    directory: Path,
    *,
    until: TimeLimit,
    ends: TimeLimit,
    enough: int = _ENOUGH,
    show: ShowTrial,
    subject: str,
) -> Trials:
    """Convert some images several times, different ones each time.

    If there is time for all images, the last trial converts all of them.

    Parameters
    ----------
    until, ends : TimeLimit
        The trials continue until the first of these, and until the second one if they have fewer than `enough` images
        by then. There is at least one trial, unless none fits and `enough` is 0.
    """
    show(subject, None)
    trials = Trials(population, threads_for(request.workers, request.recipe))
    known, begun = len(population.order), 0
    trials.first, trials.by_bytes, an_image = _load(request, source, population)

    def convert(start: int, count: int) -> None:
        positions = np.arange(start, min(start + count, known))
        indices, progress = population.order[positions], partial(show, subject)
        trials.each.append(convert_some(request, source, positions, indices, directory=directory, progress=progress))

    def fitting(limit: TimeLimit) -> int:
        return max(0, int(limit.left / an_image))

    if not enough and fitting(ends) < _LEAST:
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
            count = max(min(fitting(until), most, _MOST_IMAGES) // parts, min(enough - begun, fitting(ends)) // parts)
            if min(count, known - begun) >= _LEAST:
                convert(begun, min(count, -(-(known - begun) // parts)))
    trials.others = load.others
    return trials


def _load(request: ConversionRequest, source: Source, population: Population) -> tuple[float, float, float]:
    """Load the modules that the images need.

    Images of several sizes are prepared twice, because different kinds of images need different modules, which are
    loaded the first time.

    Returns
    -------
    first : float
        Seconds for loading, which every process spends once.
    by_bytes : float
        Share of an image's time that grows with its bytes.
    an_image : float
        Seconds for an image on one thread, including delays by other programs.
    """
    begin = moment()
    request.recipe.load()
    loaded = since(begin).total
    positions = np.arange(0, min(_OF_EACH_SIZE, len(population.order)), _APART)
    some = population.order[positions]
    once = np.array([_prepared(request, source, index) for index in some])
    began = time.perf_counter()
    again = np.array([_prepared(request, source, index) for index in some])
    an_image = (time.perf_counter() - began) / len(some)
    a_byte, any_image = (
        np.polyfit(population.sizes(positions), again, 1) if np.ptp(population.sizes(positions)) else (0, 1)
    )
    of_bytes = a_byte * population.mean_size
    by_bytes = min(max(float(of_bytes / max(any_image + of_bytes, 1e-9)), 0.0), 1.0)
    return loaded + max(0.0, float((once - again).sum())), by_bytes, max(an_image, 1e-6)


def _prepared(request: ConversionRequest, source: Source, index: int) -> float:
    """Return the seconds for preparing an image on this thread, without the delays that other programs cause."""
    begin = moment()
    pipeline = ConversionPipeline(source.taken(np.array([index])), request.recipe, "skip", start=0)
    for _ in pipeline.run(_ThisThread(), ahead=1):
        pass
    return since(begin).total


class _ThisThread(Executor):
    """Runs each function at once, on this thread."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except BaseException as error:
            done.set_exception(error)
        return done


_MOST_PADDING = 1 << 16  # bytes; a larger gap holds something else


@dataclass(frozen=True, eq=False)
class TrialConversion:
    """The result of converting some images.

    Attributes
    ----------
    positions : (n,) int64 array
        The images, as positions in the order of a `Population`.
    stored : (n,) float64 array
        Bytes of each image in the pack, with the blobs of its fields and the format's padding; 0 for an image that was
        left out.
    data : int
        Bytes of all images, without the padding.
    structure : int
        Other bytes of the pack: its structure, table and manifest.
    seconds : float
        Seconds that the conversion took.
    around : float
        Seconds of these before the first batch was written and after the last one.
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
    around: float
    findings: list[tuple[str, ...]]
    is_left_out: npt.NDArray[np.bool_]
    left_out: list[dict[str, str]]

    def __len__(self) -> int:
        return len(self.positions)


def convert_some(
    request: ConversionRequest,
    source: Source,
    positions: Ints,
    indices: Ints,
    *,
    directory: Path,
    progress: Callable[[ConversionProgress], None] | None = None,
) -> TrialConversion:
    """Convert some images of a source into a directory, in the same way as all images, and remove the pack.

    Parameters
    ----------
    request : ConversionRequest
    source : Source
        All images.
    positions, indices : (n,) int64 arrays
        The images, as positions in the order of a `Population`, and as indices of `source`.
    directory : Path
        The temporary directory of the pack.
    progress : callable, optional
        As for `packer.convert`.

    Raises
    ------
    PackerError
        For the same reasons as `packer.convert`, except for images that cannot be read, which are left out.
    """
    in_order = np.argsort(indices)
    account = source.complete_account()
    some = replace(source.taken(indices[in_order]), others=OtherFiles(), notes=[], doubts=(), account=account)
    pack, report = directory / f"trial{request.format_row.suffixes[0]}", directory / "findings.jsonl"
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
        if progress is not None:
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
            positions[in_order],
            stored,
            data,
            summary.bytes_out - int(stored.sum()),
            seconds,
            max(0.0, seconds - (written[-1] - written[0])) if written else seconds,
            [findings.get(name, ()) for name in names],
            is_left_out,
            summary.manifest.skipped,
        )
    finally:
        for path in (pack, report):
            remove(path)


def _stored(pack: Path) -> tuple[Floats, int]:
    """Return the bytes of each sample in a pack: its data, its fields' blobs, and the padding up to the next sample.

    The padding is the rest of a page, or a record's header. The second value is the size of all samples without
    padding.
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
_FROM_EACH = 4  # images of a stratum that an estimate wants, at least
_ALIKE = 8  # images of each stratum that are drawn before others
_STEP = 7  # from a stratum to the next one, so that few images are spread too; prime to _STRATA
_Z = 1.96  # of 95 %


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
        """Return the estimate of a multiple of the number."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Return a symmetric interval, cut at 0, because numbers of images, bytes and seconds are not negative."""
        return cls(value, max(0.0, value - half), value + half)


class Population:
    """The images of a list, in an order in which the first images, however many, are a sample of all strata.

    Parameters
    ----------
    sizes : (M,) int64 array
        Bytes of the images whose size is known.
    which : (M,) int64 array
        The indices of these images in the list, drawn uniformly at random.
    length : int
        Number of images in the list.
    seed : int
        Decides which images are drawn.

    Attributes
    ----------
    order : (M,) int64 array
        Indices into the list.
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
        turn = np.empty(known, np.int64)  # of an image among those of its stratum
        drawn = np.random.default_rng([seed, 1]).permutation(known)
        turn[drawn[np.argsort(stratum[drawn], kind="stable")]] = np.arange(known) - np.searchsorted(stratum, stratum)
        first = turn < _ALIKE
        later = np.random.default_rng([seed, 3]).permutation(known)
        rank = np.lexsort((np.where(first, stratum * _STEP % _STRATA, later), np.where(first, turn, _ALIKE)))
        self.order = which[by_size[rank]]
        self._rank_of = rank  # of the images in `order`, their ranks by size

    def __len__(self) -> int:
        return self._length

    @property
    def bytes(self) -> Interval:
        """Bytes of all images: known, or estimated if not all sizes were read."""
        total = float(self._sizes.sum()) * self._length / max(self.known, 1)
        return Interval.around(total, self._unseen(float(self._sizes.std())))

    @property
    def mean_size(self) -> float:
        """Mean size of an image in bytes."""
        return float(self._sizes.mean()) if self.known else 0.0

    def sizes(self, positions: Ints) -> Floats:
        """Return the bytes of the images at some positions of `order`."""
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
        pull = weight[of] * x * x / spread if spread else np.zeros(n)  # of each image on the slope, up to 1
        left = (y - slope * x) / np.maximum(1 - pull, 0.1)  # as if the image had not been in it: MacKinnon and White
        variances = weight * np.bincount(of, left**2, minlength=len(seen))
        half = _quantile(variances, seen) * math.sqrt(variances.sum())
        return Interval.around(total * scale, math.hypot(half * scale, self._unseen(float(values.std()))))

    def number(self, positions: Ints, found: npt.NDArray[np.bool_]) -> Interval:
        """Estimate the number of images with a property; returns Wilson's interval, with weights.

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
        """Return the error of a sum that is caused by images of unknown size."""
        missing = 1 - self.known / self._length
        return _Z * self._length * deviation * math.sqrt(missing / self.known) if self.known else 0.0


def _strata(sizes: Floats) -> Ints:
    """Return the stratum of each image, by ascending size; strata have about equal sums of size plus mean size."""
    reached = np.cumsum(sizes + max(float(sizes.mean()), 1.0)) if len(sizes) else sizes
    return np.minimum(reached * _STRATA / reached[-1:], _STRATA - 1).astype(np.int64)


def _without_empty(stratum: Ints, drawn: Ints) -> tuple[Floats, Ints]:
    """Join strata without a drawn image to others; return the size of each stratum, and the stratum of each draw."""
    seen = np.bincount(drawn, minlength=int(stratum.max()) + 1) > 0
    joined = np.minimum(np.cumsum(seen) - seen, seen.sum() - 1)
    return np.bincount(joined[stratum]).astype(np.float64), joined[drawn]


def _means(values: Floats, of: Ints, seen: Floats) -> Floats:
    return np.bincount(of, values, minlength=len(seen)) / seen


def _quantile(variances: Floats, seen: Floats) -> float:
    """Return the number of standard errors for 95 %: Student's t, with Satterthwaite's degrees of freedom."""
    squares = float((variances**2 / np.maximum(seen - 1, 1)).sum())
    freedom = max(float(variances.sum()) ** 2 / squares, 2.0) if squares else math.inf
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
