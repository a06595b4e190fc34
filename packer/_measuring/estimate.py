"""`packer.estimate`: predicts the size and the conversion time of a pack from trials with some of the images.

It also reports the number of unusual images (findings), the results of other options, and the command that makes the
pack. The share of the files that was in the page cache is reported too, because trials with such files do not measure
the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from packer._conversion.convert import (
    BESIDE_A_SAMPLE,
    ConversionProgress,
    note_on_overhead,
    require_format,
    require_parts,
)
from packer._conversion.options import options_of, values_of
from packer._conversion.request import ConversionRequest, texts_of
from packer._conversion.workspace import check_outside, check_place
from packer._display import Block, Code, Displayable, TextTable, count, counted, duration
from packer._images.probe import is_beyond_8_bit
from packer._measuring.harness import BUSY, TimeLimit, scratch_directory
from packer._measuring.trials import Interval, Population, Trials, TrialSetup
from packer._sources.base import Source
from packer._storage.files import writing_to
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import local_path
from packer._storage.safe_open import open_regular
from packer._storage.system import in_units, require_count, require_seconds
from packer._table import Ints
from packer.errors import DestinationError, OptionError, OptionTypeError, PackerError, SourceError, flag, printable

_LEAST_SECONDS = 0.1  # for the trials of an alternative


@dataclass(frozen=True)
class Alternative:
    """The expected size and duration of the conversion with other options.

    Attributes
    ----------
    options : str
        The options, as the command line spells them.
    size : Interval
        Size of the pack in bytes.
    seconds : Interval
        Duration of the conversion on this machine.
    """

    options: str
    size: Interval
    seconds: Interval


def try_alternatives(
    request: ConversionRequest,
    setup: TrialSetup,
    *,
    ends: TimeLimit,
    before: float,
    first: float,
    to_8_bit: str | None,
) -> tuple[list[Alternative], list[str]]:
    """Try other options until time runs out; return the results, and the options that were not tried.

    A real conversion runs in its own process, and loads its modules there. Here all trials share one process, and only
    the first trial that needs a module loads it. Therefore each duration includes the longest loading time that was
    measured so far among comparable options: those with tiles, or those without tiles.

    Parameters
    ----------
    before : float
        Seconds for the start of the process and for listing the source, which each conversion would need.
    first : float
        Seconds that the trials of `request` took for loading modules.
    to_8_bit : str, optional
        The option `to_8_bit` for alternatives that encode pixels; None if 8-bit RGB can represent all images.
    """
    found, not_tried = [], []
    loaded = {bool(request.recipe.tiles): first}  # only the modules for tiles take long to load
    others = list(_others(request, to_8_bit))
    for number, (options, other) in enumerate(others):
        until = TimeLimit(ends.left / (len(others) - number))
        if until.seconds < _LEAST_SECONDS:
            not_tried.append(options)
            continue
        try:
            trials = setup.run(other, f"trying {options}", until=until, ends=ends, enough=0)
        except (DestinationError, OSError):  # the disk is full
            not_tried.append(options)
            continue
        except (PackerError, ValueError):
            continue  # these images cannot be converted with these options
        if not trials.conversions:
            not_tried.append(options)
            continue
        duration, tiled = trials.duration(), bool(other.recipe.tiles)
        loaded[tiled] = max(duration.first, loaded.get(tiled, 0.0))
        duration = replace(duration, first=loaded[tiled])
        found.append(Alternative(options, trials.size(), duration.on(before=before)))
    return found, not_tried


def _others(request: ConversionRequest, to_8_bit: str | None) -> Iterator[tuple[str, ConversionRequest]]:
    """Yield each alternative: its options, as the command line spells them, and its request."""
    resize = request.resize or 256
    plain: dict[str, Any] = {"codec": None, "resize": None, "tiles": None, "quality": None, "recode": False}
    plain |= {"resize_mode": None, "upscale": False, "interpolation": None}
    resized = {name: getattr(request, name) for name in ("resize_mode", "upscale", "interpolation")}
    for codec, tiles, size in _KINDS:
        encodes = size or codec is not None
        changed = plain | ({"resize": resize, **resized} if size else {}) | {"codec": codec, "tiles": tiles}
        changed["to_8_bit"] = to_8_bit if encodes else None
        words = [f"--resize {resize}"] if size else []
        words += [f"--codec {codec}"] if codec else []
        words += ["--tiles"] if tiles else ["--no-tiles"] if tiles is False else []
        words += [f"--to-8-bit {to_8_bit}"] if to_8_bit and encodes else []
        try:
            other = replace(request, **changed)
        except OptionError:
            continue
        if other.recipe != request.recipe:
            yield " ".join(words) or "--codec keep", other


_KINDS = (
    (None, None, False),
    (None, None, True),
    (None, False, True),
    (None, True, False),
    ("webp", None, True),
    ("png", None, True),
    ("raw", None, True),
    ("jpeg", None, False),
    ("webp", None, False),
    ("png", None, False),
    ("raw", None, False),
)
"""The options of the alternatives, the most usual first: the codec, whether tiled, whether resized."""


def command_of(request: ConversionRequest, *more: str) -> str:
    """Return the shell command for `request`, with additional words."""
    words = ["packer", "convert", str(request.src), str(request.dst), *_options(request), *more]
    return " ".join(shlex.quote(printable(word)) for word in words)


def _options(request: ConversionRequest) -> Iterator[str]:
    defaults = {one.name: one.default for one in fields(request)}
    for name, declared in options_of(ConversionRequest):
        value, word = getattr(request, name), flag(name)
        if value is None or value == defaults[name]:
            continue
        if isinstance(value, bool):
            yield word if value else f"--no-{word[2:]}"
        elif declared.repeated:
            texts = texts_of(name, value) if declared.kind == "text" else map(str, value)
            yield from (one for text in texts for one in (word, text))
        else:
            yield from (word, ",".join(value) if isinstance(value, list | tuple) else str(value))


def share_in_memory(paths: Iterable[str]) -> float | None:
    """Return the share of files that are in the page cache, judged by their first pages; None if it is unknown.

    Nothing is read from the disk: the kernel returns a page only if it is in memory (preadv2, RWF_NOWAIT).
    """
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # reading the file reports the error
            found.append(_is_in_memory(path))
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else None


def _is_in_memory(path: str) -> bool | None:
    fd = open_regular(path)
    try:
        return os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            return None
        raise
    finally:
        os.close(fd)


_MOST_NAMED = 5  # of the files that cannot be converted
_CHUNK = 4096  # files whose sizes are read at a time
_TIME_FOR_SIZES, _TIME_FOR_REQUEST = 0.3, 0.65  # shares of the time
_LOOKED_UP = 64  # files whose first page is looked up in the page cache

ShowPhase = Callable[[str, int, int | None], None]


@dataclass(frozen=True, repr=False)
class Estimate(Displayable):
    """The expected size, duration and findings of a conversion.

    An interval has `value`, `low` and `high`, and contains the true value with a probability of 95 %. For durations,
    this holds if the machine and its disks stay as fast as during the trials.

    Attributes
    ----------
    images : int
        Number of images in the source.
    bytes_in : Interval
        Size of all images in bytes, as the source stores them.
    tried : int
        Number of images that were converted for the estimate.
    looked_at : int
        Number of images whose size in bytes was read: all images, if there was time.
    exact : bool
        True if all images were converted; then the size is exact.
    size : Interval
        Size of the pack in bytes.
    seconds : Interval
        Duration of the conversion on this machine.
    workers, jobs : int
        Number of threads, and number of machines for `seconds_on_jobs`.
    seconds_on_jobs : Interval
        Duration if `jobs` machines like this one make the parts, and the disk is as fast for each machine as for a
        single one.
    remarkable : Interval
        Number of images with at least one finding: an unusual property that a conversion reports, such as an EXIF
        orientation.
    findings : dict of str to Interval
        Number of images with each finding.
    left_out : list of dict
        Name and reason of each image that could not be converted in the trials.
    unreadable : Interval
        Number of images in the source that cannot be converted.
    in_memory : float or None
        Share of the files that was in the page cache before the trials; reading these files does not measure the disk.
        None if unknown.
    others : float or None
        Share of the processors that other programs used during the trials; None if unknown.
    room : int
        Free bytes on the disk that will hold the pack.
    alternatives : list of Alternative
    not_tried : list of str
        Alternatives that were skipped for lack of time or disk space.
    notes : list of str
        Remarks on the source.
    command : str
        The command that makes the pack.
    part_command : str or None
        The command with which a job makes part K of the pack; None if one job makes the whole pack.
    """

    images: int
    bytes_in: Interval
    tried: int
    looked_at: int
    exact: bool
    size: Interval
    seconds: Interval
    workers: int
    jobs: int
    seconds_on_jobs: Interval
    remarkable: Interval
    findings: dict[str, Interval]
    left_out: list[dict[str, str]]
    unreadable: Interval
    in_memory: float | None
    others: float | None
    room: int
    alternatives: list[Alternative]
    not_tried: list[str]
    notes: list[str]
    command: str
    part_command: str | None

    def _blocks(self) -> Iterator[Block]:
        """Yield blocks of text: size and time of the conversion, remarks, and size and time with other options."""
        words = shlex.split(self.command)  # packer convert SRC DST OPTION ...
        tried = "all of them" if self.exact else count(self.tried)
        about, basis = "", ""
        if self.looked_at != self.images:
            about, basis = "about ", f" (from {count(self.looked_at)} of them)"
        size = f"{about}{in_units(self.bytes_in.value)}{basis}"
        yield f"{words[2]}: {counted(self.images, 'image')}, {size}; {tried} tried"
        yield _expected(self)
        yield TextTable(list(_remarks(self, skips="--on-error skip" in " ".join(words))), ("<10", ""))
        yield from (f"  {note}" for note in self.notes)
        if self.alternatives:
            yield ""
            width = max(30, *(len(other.options) for other in self.alternatives))
            rows = [
                (one.options, in_units(one.size.value), _between(one.size, in_units), duration(one.seconds.value))
                for one in self.alternatives
            ]
            yield TextTable(rows, (f"<{width}", ">10", "<24", ">10"), ("with other options", "size", "", "time"))
        if self.not_tried:
            yield f"  not tried, because time or space ran out: {', '.join(self.not_tried)}"
        yield ""
        parts = self.part_command
        yield Code([f"  {self.command}", *([] if parts is None else [f"  {parts}    # in each job, K from 0"])])


def _expected(found: Estimate) -> TextTable:
    """Return the expected size and time."""
    seconds = found.seconds
    with_threads = f"{_between(seconds, duration)}, with {counted(found.workers, 'thread')}"
    rows = [
        ("size", in_units(found.size.value), _between(found.size, in_units)),
        ("time", duration(seconds.value), with_threads),
    ]
    if found.jobs > 1:
        many = found.seconds_on_jobs
        serving = f"{_between(many, duration)}, if the disk is fast enough for all"
        rows.append((f"on {found.jobs} jobs", duration(many.value), serving))
    return TextTable(rows, ("<10", "<8", ""))


def _remarks(found: Estimate, *, skips: bool) -> Iterator[tuple[str, str]]:
    """Yield topics and remarks; `skips` tells whether the conversion leaves out unusable images."""
    if found.in_memory is not None:
        cold = "" if found.in_memory < 0.05 else ": if they are not, reading them may take longer"
        yield "disk", f"{found.in_memory:.0%} of the files were in memory{cold}"
    if (found.others or 0) > BUSY:
        yield (
            "others",
            f"other programs used {found.others:.0%} of the processors: without them, the conversion is faster",
        )
    lacking = found.size.high - found.room
    fits = "enough" if lacking <= 0 else f"up to {in_units(lacking)} too little"
    yield "room", f"{in_units(found.room)} free: {fits}"
    if found.remarkable.value:
        yield "findings", _images(found.remarkable)
        yield from (("", f"{name}: {_images(images)}") for name, images in found.findings.items())
    else:
        most = f"none found, so at most {count(round(found.remarkable.high))} images"
        yield "findings", "none" if found.exact else most
    if found.left_out:
        stops = "left out" if skips else "a conversion stops at the first one, unless you pass --on-error skip"
        yield "unreadable", f"{_images(found.unreadable)}; {stops}"
        yield from (("", f"{entry['name']}: {entry['reason']}") for entry in found.left_out[:_MOST_NAMED])
        if len(found.left_out) > _MOST_NAMED:
            yield "", f"… and {count(len(found.left_out) - _MOST_NAMED)} more"


def _images(number: Interval) -> str:
    """Return a text that states an estimated number of images, with its bounds."""
    low, value, high = (round(one) for one in (number.low, number.value, number.high))
    between = "" if low == high else f" ({count(low)} to {count(high)})"
    return f"{counted(value, 'image')}{between}"


def _between(number: Interval, format: Callable[[float], str]) -> str:
    """Return the bounds of a number in words."""
    return "(exactly)" if number.low == number.high else f"({format(number.low)} to {format(number.high)})"


def estimate_request(
    request: ConversionRequest,
    *,
    jobs: int = 1,
    seconds: float = 10.0,
    seed: int = 0,
    spent: float = 0.0,
    others: bool = True,
    progress: ShowPhase | None = None,
) -> Estimate:
    """Estimate the size and duration of a conversion; see `packer.estimate`.

    Parameters
    ----------
    spent : float
        Seconds that a process of packer needs until it begins a conversion.
    others : bool
        Whether to try alternatives too.
    """
    show = progress or _ignore
    if jobs > 1:
        require_parts(request.format_row)
    began = time.monotonic()
    show(f"listing {printable(request.src)}", 0, None)
    check_place(request.dst)
    source = request.open(None, request.classes())
    check_outside(request.dst, source.tree)
    source.require_undamaged()
    before = spent + time.monotonic() - began
    ends = TimeLimit(max(seconds / 2, seconds - before))
    population, reading_sizes = _population(source, seconds * _TIME_FOR_SIZES, seed, show)
    before += reading_sizes
    in_memory = share_in_memory(_files(source, population.order[-_LOOKED_UP:]))

    def show_trial(subject: str, now: ConversionProgress | None) -> None:
        show(subject, now.done if now else 0, now.total if now else None)

    def tried(directory: Path) -> tuple[Trials, list[Alternative], list[str]]:
        setup = TrialSetup(source, population, directory, show_trial)
        until = TimeLimit(ends.left - (1 - _TIME_FOR_REQUEST) * seconds) if others else ends
        trials = setup.run(request, "trying", until=until, ends=ends)
        _require_readable(source, trials)
        if not others:
            return trials, [], []
        first = trials.duration().first
        to_8_bit = request.to_8_bit or ("type" if _has_excess(trials) else None)
        return trials, *try_alternatives(request, setup, ends=ends, before=before, first=first, to_8_bit=to_8_bit)

    (trials, alternatives, not_tried), notes = _where_they_fit(tried, Path(os.path.abspath(request.dst)).parent)
    found = _estimate(
        request,
        source,
        trials,
        jobs=jobs,
        before=before,
        in_memory=in_memory,
        alternatives=alternatives,
        not_tried=not_tried,
    )
    return replace(found, notes=[*found.notes, *notes])


_Tried = TypeVar("_Tried")


def _where_they_fit(tried: Callable[[Path], _Tried], beside: Path) -> tuple[_Tried, list[str]]:
    """Run trials in a directory below `beside`, or in the system's temporary directory if the disk of `beside` is full.

    Returns
    -------
    result
        The return value of `tried`.
    notes : list of str
        A remark if the trials did not run on the disk of the pack.
    """
    elsewhere, then = Path(tempfile.gettempdir()), "an estimate needs to write a few images next to DST"
    try:
        with writing_to(beside, then), scratch_directory("estimate", beside) as directory:
            return tried(directory), []
    except DestinationError as error:
        full = getattr(error.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if not full or os.stat(elsewhere).st_dev == os.stat(beside).st_dev:
            raise
    with writing_to(elsewhere, then), scratch_directory("estimate", elsewhere) as directory:
        note = (
            f"the disk of DST has no space for the trials: they ran in {printable(elsewhere)}, at the speed of that "
            "disk"
        )
        return tried(directory), [note]


def _require_readable(source: Source, trials: Trials) -> None:
    """Raise SourceError if none of the tried images can be read."""
    if len(trials.left_out()) == trials.tried:
        entry = trials.left_out()[0]
        raise SourceError(
            f"{printable(source.root)}: none of the {trials.tried} tried images can be read, such as "
            f"{printable(entry['name'])}: {entry['reason']}"
        )


def _estimate(
    request: ConversionRequest,
    source: Source,
    trials: Trials,
    *,
    jobs: int,
    before: float,
    in_memory: float | None,
    alternatives: list[Alternative],
    not_tried: list[str],
) -> Estimate:
    """Return the estimate that follows from the trials."""
    population, duration = trials.population, trials.duration()
    parts = replace(request, parts=request.parts or jobs) if jobs > 1 else None
    return Estimate(
        images=len(source),
        bytes_in=population.bytes,
        tried=trials.tried,
        looked_at=population.known,
        exact=trials.is_exact,
        size=trials.size(),
        seconds=duration.on(before=before),
        workers=trials.workers,
        jobs=jobs,
        seconds_on_jobs=duration.on(jobs, before),
        remarkable=trials.remarkable(),
        findings=trials.findings(),
        left_out=trials.left_out(),
        unreadable=trials.unreadable(),
        in_memory=in_memory,
        others=trials.others,
        room=shutil.disk_usage(Path(os.path.abspath(request.dst)).parent).free,
        alternatives=alternatives,
        not_tried=not_tried,
        notes=[
            *_in_the_way(request),
            *source.unusable(skip=request.on_error == "skip"),
            *source.remarks(),
            *_refusals(trials),
            *_overhead(request, trials),
        ],
        command=command_of(request),
        part_command=None if parts is None else command_of(parts, "--part", "K"),
    )


def _overhead(request: ConversionRequest, trials: Trials) -> Iterator[str]:
    """Yield a remark on the bytes that the format needs in addition to the images."""
    data = sum(trial.data for trial in trials.conversions)
    stored = sum(float(trial.stored.sum()) for trial in trials.conversions)
    if not data:
        return
    images, size = len(trials.population), trials.size().value
    beside = (size - images * BESIDE_A_SAMPLE) * (1 - data / stored) + images * BESIDE_A_SAMPLE
    note = note_on_overhead(request.format_row.name, images, size - beside, size)
    if note is not None:
        yield note


def _in_the_way(request: ConversionRequest) -> Iterator[str]:
    """Yield an error that the command would raise but the trials did not, for example if DST exists already."""
    try:
        request.require_destination()
    except DestinationError as error:
        yield f"the command below needs a change: {error}"


def _has_excess(trials: Trials) -> bool:
    """Tell whether 8-bit RGB cannot represent some of the tried images."""
    return bool(_refusals(trials)) or any(is_beyond_8_bit(finding) for finding in trials.findings())


def _refusals(trials: Trials) -> list[str]:
    """Return advice on the option to choose if the conversion refuses images that 8-bit RGB cannot represent."""
    number = sum("--to-8-bit" in entry["reason"] for entry in trials.left_out())
    if not number:
        return []
    return [
        (
            f"{number} of {trials.tried} images have more bits than 8-bit RGB: the command needs --to-8-bit clip, "
            "type or file"
        )
    ]


def _population(source: Source, seconds: float, seed: int, show: ShowPhase) -> tuple[Population, float]:
    """Return the images, and the seconds that reading the sizes of all images would take."""
    length, sizes = len(source), source.sizes()
    if sizes is not None:
        return Population(sizes, np.arange(length), length, seed), 0.0
    mixed = np.random.default_rng([seed, 2]).permutation(length)
    limit, spent, known = TimeLimit(seconds), 0.0, list[Ints]()
    for start in range(0, length, _CHUNK):
        some = source.taken(mixed[start : start + _CHUNK])
        began = time.monotonic()
        known.append(some.present_stamps()[:, 0].clip(0))
        spent += time.monotonic() - began
        show("sizes", start + len(some), length)
        if limit.is_over:
            break
    sizes = np.concatenate(known)
    return Population(sizes, mixed[: len(sizes)], length, seed), spent * length / len(sizes)


def _files(source: Source, indices: Ints) -> Iterator[str]:
    """Yield the paths of some images, if each image is a file of its own."""
    paths = [source.path(index) for index in indices.tolist()]
    return iter(paths if len(set(paths)) == len(paths) else [])


def _ignore(what: str, done: int, total: int | None) -> None:
    """Ignore a report of progress."""


def estimate(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    progress: Callable[[str, int, int | None], None] | bool | None = None,
    **options: Any,
) -> Estimate:
    """Estimate the size, the duration and the findings of a conversion, as `packer estimate` does.

    A sample of small and large images is converted with the same settings into a temporary directory next to `dst`. All
    images are listed and, if time allows, their sizes are read.

    Parameters
    ----------
    src : path
        The same as for `convert`.
    dst : path, optional
        The path of the pack, whose suffix decides the format. The files of trials are written to the disk of this path,
        if there is room. By default the path is the name of `src` with the suffix of `format` (``.lmdb`` without a
        `format`), in the current directory.
    jobs : int, optional
        The number of machines, each as fast as this one, that share the conversion by making parts; 1 by default.
    seconds : float
        The approximate time limit. If listing the images takes more than half of this limit, the listing time is added
        to the limit.
    seed : int
        Selects the images that are tried.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the name of the current stage, the amount done, and the
        total amount, or None if it is unknown.
    **options
        The arguments of `convert`.

    Returns
    -------
    Estimate
        `size` in bytes and `seconds`, both with `value`, `low` and `high`; `findings`, `alternatives`, the `command`
        that makes the pack, and further figures.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    OptionError, SourceError, PackError, DestinationError, MissingDependencyError
        The same as for `convert`.
    """
    progress = shown_progress(progress, "estimate")
    require_count("jobs", jobs)
    require_seconds("seconds", seconds)
    request = requested(src, dst, options)
    return estimate_request(request, jobs=jobs or 1, seconds=seconds, seed=seed, progress=progress)


def requested(
    src: str | os.PathLike[str], dst: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> ConversionRequest:
    """Return the conversion request for these arguments; TypeError for an option that `packer.convert` lacks."""
    known = {name for name, _ in options_of(ConversionRequest)}
    for name in options:
        if name not in known:
            raise OptionTypeError(f"estimate has no argument {name!r}, because packer.convert has none")
    destination = default_destination(local_path(src), options.get("format")) if dst is None else local_path(dst)
    return ConversionRequest(src=local_path(src), dst=destination, **values_of(ConversionRequest, options, local_path))


def default_destination(src: Path, format: str | None) -> Path:
    """Return an unused path for a pack in the current directory, or next to `src` if `src` contains that directory."""
    suffix = ".lmdb" if format is None else require_format(format).suffixes[0]
    name = re.sub(r"[^\w.-]+", "", Path(os.path.abspath(src)).stem).strip(".-") or "pack"
    inside = Path.cwd().is_relative_to(os.path.realpath(src))
    folder = Path(os.path.realpath(src)).parent if inside else Path()
    number, path = 1, folder / f"{name}{suffix}"
    while os.path.lexists(path):
        number += 1
        path = folder / f"{name}-{number}{suffix}"
    return path
