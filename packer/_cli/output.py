"""Output of commands: progress and exit statuses. `packer._conversion.words` has the words of summaries.

On a terminal a bar shows progress; in a log, lines show it. For other programs, ``--json-progress`` writes JSON objects
with these keys, which docs/clusters.md explains:

``what``, ``phase``         the pack or directory, and the step; the step of the main work is null
``done``, ``total``         in ``unit``; null if unknown
``unit``                    ``"images"``, ``"bytes"`` or ``"files"``; ``"seconds"`` for work with a fixed duration
``rate``, ``seconds_left``  units per second, and the time left, in this run; null if unknown
``seconds``                 since the phase began
``bytes``                   read in this run
``skipped``                 images that were left out
``notes``                   texts by their subjects
``state``                   ``"running"``; in the last object ``"done"`` or ``"failed"``
"""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from packer._cli.options import HELP, panel_option
from packer._display import duration
from packer._storage.system import in_units
from packer.errors import printable

if TYPE_CHECKING:
    from packer._conversion.convert import ConversionProgress

EXIT_STATUS = {"ok": 0, "error": 1, "usage": 2, "skipped": 3, "corrupt": 4, "locked": 5, "sigint": 130, "sigterm": 143}

NOBODY_READS = (errno.EPIPE, errno.EIO)
"""The errors of printing to a closed pipe, as in ``packer info … | head``, or to a closed terminal."""

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of printing to a file on a full disk, as in ``packer info … > FILE``."""


class Interrupted(BaseException):
    """SIGINT arrived. This exception has a message; click's own exception for SIGINT has none."""


class Terminated(BaseException):
    """SIGTERM arrived, or the terminal was closed."""


_F = TypeVar("_F", bound=Callable[..., Any])

_SECONDS_TO_THE_FIRST_LINE = 2.0
_SECONDS_BETWEEN_LINES = 4.0
_SECONDS_BETWEEN_OBJECTS = 1.0
_BEAT = 0.5  # seconds
_AS_JSON = "packer.json_progress"
_UNITS = {"images": "img", "bytes": "B", "files": "files", "seconds": "s"}
"""The names of units in bars and lines."""
_BAR_OF_SECONDS = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f} of {total:.0f} s{postfix}"


json_option = panel_option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
"""Adds ``--json`` to a command that prints a result."""


def progress_options(quiet: str | None = "Print errors only.") -> Callable[[_F], _F]:
    """Return a decorator that adds ``--json-progress`` and, unless `quiet` is None, ``--quiet`` with this help text."""

    def added(command: _F) -> _F:
        command = panel_option(
            "--json-progress",
            is_flag=True,
            expose_value=False,
            callback=_choose_json,
            panel=HELP,
            help="Write progress to stderr as one JSON object per line, for other programs (docs/clusters.md).",
        )(command)
        return command if quiet is None else panel_option("--quiet", is_flag=True, panel=HELP, help=quiet)(command)

    return added


def _choose_json(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    context.meta[_AS_JSON] = asked


@dataclass
class _Progress:
    """The progress of a phase of a command; `first` and `first_bytes` are the counts of its first update."""

    what: str
    phase: str | None
    unit: str
    began: float = field(default_factory=time.monotonic)
    counted: float | None = None
    updated: float = 0.0
    done: int | None = None
    total: int | None = None
    first: int = 0
    first_bytes: int = 0
    bytes: int = 0
    skipped: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)

    def update(self, done: int, total: int | None, read: int, skipped: int, notes: Mapping[str, str]) -> None:
        self.updated = time.monotonic()
        if self.counted is None:  # the rate does not include an earlier run, the start, or the first batch
            self.counted, self.first, self.first_bytes = self.updated, done, read
        self.done, self.total, self.bytes, self.skipped, self.notes = done, total, read, skipped, notes

    @property
    def title(self) -> str:
        return self.what if self.phase is None else f"{self.what}, {self.phase}"

    @property
    def is_ending(self) -> bool:
        """True if all images are done, but the phase still completes files or waits for the disk."""
        return (
            self.unit != "seconds" and self.total is not None and self.done is not None and self.done >= self.total > 0
        )

    @property
    def silent(self) -> float:
        """Seconds since the last update."""
        return time.monotonic() - max(self.updated, self.began)

    @property
    def rate(self) -> float | None:
        if self.unit == "seconds" or self.counted is None or self.done is None or self.done <= self.first:
            return None
        return (self.done - self.first) / self._elapsed

    @property
    def seconds_left(self) -> float | None:
        if self.unit == "seconds":
            return None if self.total is None or self.done is None else self.total - self.done
        rate = self.rate
        return None if not rate or self.total is None or self.done is None else (self.total - self.done) / rate

    def extra(self) -> dict[str, str]:
        """Return the texts to show in addition to counts and rate, by subject."""
        extra = {}
        if self.bytes > self.first_bytes:
            extra["MB/s"] = f"{(self.bytes - self.first_bytes) / 1e6 / self._elapsed:.0f}"
        if self.skipped:
            extra["skipped"] = str(self.skipped)
        return {**extra, **self.notes}

    @property
    def _elapsed(self) -> float:
        now = self.updated if self.is_ending else time.monotonic()
        return max(now - (self.counted or self.began), 1e-9)


class _Face(Protocol):
    """A way to show progress. `show` is called at short intervals, even if the progress has not changed."""

    def show(self, progress: _Progress) -> None: ...

    def end(self, progress: _Progress, *, last: bool, failed: bool) -> None:
        """End a phase and, if it is the `last` one, the command."""


class _Bar:
    """A bar on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, progress: _Progress) -> None:
        if self._bar is None:
            if progress.done is None and time.monotonic() - progress.began < _SECONDS_TO_THE_FIRST_LINE / 2:
                return
            from tqdm import tqdm

            from packer._storage.progress import bars_of_this_process

            self._bar = bars_of_this_process(tqdm)(
                total=progress.total,
                initial=progress.done or 0,
                desc=progress.title,
                unit=_UNITS[progress.unit],
                unit_scale=progress.unit == "bytes",
                dynamic_ncols=True,
                smoothing=0.1,
                leave=progress.phase is None,
                bar_format=_BAR_OF_SECONDS if progress.unit == "seconds" else None,
            )
        ending = {"ending": duration(progress.silent)} if progress.is_ending and progress.silent > _BEAT else {}
        self._bar.set_postfix({**progress.extra(), **ending}, refresh=False)
        if progress.done is not None:
            self._bar.total = progress.total
            self._bar.update(progress.done - self._bar.n)
        if progress.silent >= _BEAT:
            self._bar.refresh()

    def end(self, progress: _Progress, *, last: bool, failed: bool) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Lines:
    """A line every few seconds, in a log."""

    def __init__(self) -> None:
        self._next = 0.0

    def show(self, progress: _Progress) -> None:
        now = time.monotonic()
        self._next = self._next or (progress.counted or progress.began) + _SECONDS_TO_THE_FIRST_LINE
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_LINES
            click.echo(f"{progress.title}: {_line(progress)}", err=True)

    def end(self, progress: _Progress, *, last: bool, failed: bool) -> None:
        self._next = 0.0


class _Objects:
    """One JSON object per line, with the keys that the module's docstring lists."""

    def __init__(self) -> None:
        self._shown = 0.0

    def show(self, progress: _Progress) -> None:
        if time.monotonic() - self._shown >= _SECONDS_BETWEEN_OBJECTS:
            self._write(progress, "running")

    def end(self, progress: _Progress, *, last: bool, failed: bool) -> None:
        self._shown = 0.0
        if last:
            self._write(progress, "failed" if failed else "done")

    def _write(self, progress: _Progress, state: str) -> None:
        self._shown = time.monotonic()
        rounded = {name: None if (value := getattr(progress, name)) is None else round(value, 2) for name in _FLOATS}
        counts = {name: getattr(progress, name) for name in ("what", "phase", "done", "total", "unit")}
        read = {"bytes": progress.bytes - progress.first_bytes, "skipped": progress.skipped}
        seconds = round(self._shown - progress.began, 2)
        shown = {**counts, **rounded, "seconds": seconds, **read, "notes": dict(progress.notes), "state": state}
        click.echo(json.dumps(shown), err=True)


_FLOATS = ("rate", "seconds_left")


def _line(progress: _Progress) -> str:
    """Return the counts, the rate and the remaining time in words."""
    spent = duration(time.monotonic() - progress.began)
    if progress.done is None:
        return f"{spent} so far"
    if progress.unit == "seconds":
        of = "" if progress.total is None else f" of {duration(progress.total)}"
        return f"{spent}{of}, {', '.join(progress.extra().values())}"
    amount, unit = (in_units, "") if progress.unit == "bytes" else (_thousands, f" {_UNITS[progress.unit]}")
    of = "" if progress.total is None else f" of {amount(progress.total)}"
    rate, left = progress.rate, progress.seconds_left
    speed = "" if rate is None else f", {amount(rate) if progress.unit == 'bytes' else f'{rate:.0f}'}{unit}/s"
    others = "".join(f", {value} {name}" for name, value in progress.extra().items())
    last = "" if left is None else f", {duration(left)} left"
    if progress.is_ending and progress.silent > _BEAT:
        last = f", ending for {duration(progress.silent)}"
    return f"{amount(progress.done)}{of}{speed}{others}{last}"


def _thousands(number: float) -> str:
    return f"{number:,.0f}"


class ProgressDisplay:
    """Shows the progress of a command, even while nothing changes; with `quiet`, only as JSON for programs.

    Parameters
    ----------
    what : str
        The pack or directory that the command is about.
    quiet : bool
    unit : str
        What is counted: images, bytes, files, or the seconds of work with a fixed duration.
    lines : bool
        Whether to print lines even on a terminal. Needed if another program writes to the terminal, because its output
        would mix with a bar.
    """

    def __init__(self, what: str, *, quiet: bool = False, unit: str = "images", lines: bool = False) -> None:
        context = click.get_current_context(silent=True)
        as_json = context is not None and bool(context.meta.get(_AS_JSON))
        text = _Bar if _on_terminal() and not lines else _Lines
        self._face: _Face | None = _Objects() if as_json else None if quiet else text()
        self._unit = unit
        self._progress = _Progress(printable(what), None, self._unit)
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None

    def phase(self, name: str | None, unit: str | None = None) -> None:
        """Begin another phase; None is the main work of the command, other phases are before or after it."""
        with self._lock:
            self._safely(lambda face: face.end(self._progress, last=False, failed=False))
            self._progress = _Progress(self._progress.what, name and printable(name), unit or self._unit)

    def update(
        self, done: int, total: int | None, *, read: int = 0, skipped: int = 0, notes: Mapping[str, str] | None = None
    ) -> None:
        """Show that `done` of `total` images, or of another unit, are done; `total` may be unknown.

        `skipped` of these images were left out, and `read` bytes were read. `notes` are further values to
        show, each with its name as the key.
        """
        with self._lock:
            self._progress.update(done, total, read, skipped, notes or {})
            self._safely(lambda face: face.show(self._progress))

    def show(self, now: ConversionProgress) -> None:
        """Show the progress of a conversion."""
        self.update(now.done, now.total, read=now.bytes_read, skipped=now.skipped)

    def spend(self, passed: float, seconds: float, now: str) -> None:
        """Show that `passed` seconds of `seconds` have passed, and that the current work is `now`."""
        self.update(round(min(passed, seconds)), round(seconds), notes={"now": printable(now)})

    def __enter__(self) -> ProgressDisplay:
        if self._face is not None:
            self._progress.began = time.monotonic()
            self._beating = threading.Thread(target=self._beat, name="packer-progress", daemon=True)
            self._beating.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._beating is not None:
            self._beating.join()
        self._safely(lambda face: face.end(self._progress, last=True, failed=kind is not None))

    def _beat(self) -> None:
        """Refresh the display at intervals, so that it shows that the command is alive."""
        while not self._ended.wait(_BEAT):
            with self._lock:
                self._safely(lambda face: face.show(self._progress))

    def _safely(self, do: Callable[[_Face], None]) -> None:
        if self._face is None:
            return
        try:
            do(self._face)
        except OSError as error:
            if error.errno not in NOBODY_READS:
                raise
            self._face = None  # the work continues


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def rates(nodes: Mapping[str, float], workers: int) -> dict[str, str]:
    """Return each node's images per second as notes for a `ProgressDisplay`; for many nodes, the lowest and highest."""
    if not nodes:
        return {"workers": str(workers)}
    if len(nodes) <= 4:
        return {"workers": str(workers), **{f"img/s on {node}": f"{rate:.0f}" for node, rate in nodes.items()}}
    least, most = min(nodes.values()), max(nodes.values())
    return {"workers": str(workers), f"img/s on each of {len(nodes)} nodes": f"{least:.0f} to {most:.0f}"}
