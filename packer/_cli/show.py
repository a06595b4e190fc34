"""How numbers and progress are shown to a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from packer._cli.status import NOBODY_READS
from packer._storage.limits import in_units
from packer.errors import printable

if TYPE_CHECKING:
    from packer._conversion.convert import Summary
    from packer._fields import Field
    from packer._manifest import Manifest

__all__ = [
    "ProgressDisplay",
    "conversion",
    "count",
    "counted",
    "duration",
    "fields",
    "kept",
    "labels",
    "outcome",
    "rates",
]

_SECONDS_TO_THE_FIRST_LINE = 2.0
_SECONDS_BETWEEN_LINES = 5.0


def count(number: int) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def counted(number: int, what: str) -> str:
    """Return how many of something there are: ``1 sample``, ``2 samples``, ``2 classes``."""
    return f"{count(number)} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def labels(label_type: str, classes: int) -> str:
    """Return what the labels are: of how many classes, or numbers of which type."""
    return counted(classes, "class") if label_type == "class" else f"{label_type} labels"


def duration(seconds: float) -> str:
    """Return a time as a person would say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} h" if hours else f"{minutes}:{seconds:02d} min"


def conversion(summary: Summary) -> str:
    """Return what a person should know of a conversion that is done."""
    manifest = summary.manifest
    done = manifest.count + len(manifest.skipped) - summary.continued
    rate = done / max(summary.seconds, 1e-9)
    head = (
        f"{printable(summary.destination)}: {counted(manifest.count, 'sample')}, {labels(manifest.label_type, len(manifest.classes))}, "
        f"{in_units(summary.bytes_in)} in, {in_units(summary.bytes_out)} out, {duration(summary.seconds)} ({rate:,.0f} img/s)"
    )
    notes = list(summary.notes)
    if summary.continued:
        notes.insert(0, f"continued after {counted(summary.continued, 'image')} of an earlier run")
    if summary.kept and manifest.codec != "keep":
        notes.append(kept(summary.kept, manifest.codec))
    return "\n".join([head, *outcome(summary.destination, manifest, notes)])


def kept(number: int, codec: str) -> str:
    """Return the note on files that a conversion could have encoded anew, and had no reason to."""
    return (
        f"{count(number)} x kept as it was, being {codec.upper()} already and not resized; --recode encodes such files"
    )


def outcome(destination: Path, manifest: Manifest, notes: Iterable[str] = ()) -> list[str]:
    """Return lines that say what was found and left out, and how to read a pack."""
    from packer._formats import FORMATS
    from packer._manifest import TILED

    lines = [*fields(manifest.fields), *(f"  {printable(note)}" for note in notes)]
    if tiled := manifest.findings.get(TILED):
        lines.append(f"  {count(tiled)} of {counted(manifest.count, 'sample')} are tiled JPEGs")
    lines += [f"  {line}" for line in findings(manifest.findings, manifest.codec, manifest.settings)]
    if manifest.skipped:
        lines.append(f"  {count(len(manifest.skipped))} x left out:")
        lines += [f"    {printable(entry['name'])}: {printable(entry['reason'])}" for entry in manifest.skipped[:10]]
        if len(manifest.skipped) > 10:
            lines.append(
                f"    … and {len(manifest.skipped) - 10} more; --report FILE lists all, as does the pack's manifest"
            )
    dataset = FORMATS[manifest.format].dataset if manifest.format in FORMATS else "open_dataset"
    return [
        *lines,
        "",
        f"  from packer import {dataset}",
        f"  dataset = {dataset}({str(destination)!r})  # with ImageFolder's transform=, and fuse=True beside",
    ]


def fields(of: Sequence[Field]) -> list[str]:
    """Return a line that names fields with their kinds, and scalars with their dtypes; none where there are none."""
    said = ", ".join(f"{field.name} ({field.dtype if field.kind == 'scalar' else field.kind})" for field in of)
    return [f"  fields: {said}"] if said else []


def findings(found: Mapping[str, int], codec: str, settings: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of finding, with what a person can do; of a pack with this codec and these settings."""
    from packer._images.probe import CLIPPED, ROTATED
    from packer._manifest import TILED

    exif = settings.get("exif")
    bytes_kept = (
        'mode="unchanged" reads them as they are' if codec == "keep" else "--codec keep stores the files' own bytes"
    )
    turned = {"ignore": ": not turned, as with ImageFolder; --exif apply turns them", "apply": ": turned upright"}
    lines = []
    for finding, number in found.items():
        if finding == CLIPPED:
            have = "1 image has" if number == 1 else f"{count(number)} images have"
            what = "16 bits or floats a pixel; read as 8-bit RGB, such images turn white or black"
            lines.append(f"{have} {what}; {bytes_kept}")
        elif finding == ROTATED:
            lines.append(f"{count(number)} x {ROTATED}{turned.get(str(exif), '')}")
        elif finding != TILED:
            lines.append(f"{count(number)} x {printable(finding)}")
    return lines


def rates(nodes: Mapping[str, float], workers: int) -> dict[str, str]:
    """Return the images a second of each node, as notes of a `ProgressDisplay`; of many nodes, the least and the most."""
    if not nodes:
        return {"workers": str(workers)}
    if len(nodes) <= 4:
        return {"workers": str(workers), **{f"img/s on {node}": f"{rate:.0f}" for node, rate in nodes.items()}}
    least, most = min(nodes.values()), max(nodes.values())
    return {"workers": str(workers), f"img/s on each of {len(nodes)} nodes": f"{least:.0f} to {most:.0f}"}


class ProgressDisplay:
    """A bar on a terminal; a line every few seconds elsewhere; nothing when quiet."""

    def __init__(self, what: str, *, quiet: bool = False, of_bytes: bool = False) -> None:
        self._of_bytes = of_bytes
        self._what = printable(what)
        self._quiet = quiet
        self._began: tuple[float, int, int] | None = None  # when, with how many done, and how much read
        self._shown = 0.0
        self._bar: Any = None

    def update(
        self, done: int, total: int, *, read: int = 0, skipped: int = 0, notes: Mapping[str, str] | None = None
    ) -> None:
        """Show that `done` of `total` images, or bytes, are done.

        Of them `skipped` were left out; `read` bytes were read for them. `notes` are what else there is to show: values
        by what they are values of.
        """
        if self._quiet:
            return
        try:
            self._show(done, total, read, skipped, notes or {})
        except OSError as error:
            if error.errno not in NOBODY_READS:
                raise
            self._quiet = True  # the work goes on

    def _show(self, done: int, total: int, read: int, skipped: int, notes: Mapping[str, str]) -> None:
        now = time.monotonic()
        if self._began is None:  # what an earlier run did, loading, and the first batch say nothing about the rate
            self._began = now, done, read
            self._shown = now - max(0.0, _SECONDS_BETWEEN_LINES - _SECONDS_TO_THE_FIRST_LINE)
        began, first, first_read = self._began
        elapsed = max(now - began, 1e-9)
        extra = {"MB/s": f"{(read - first_read) / 1e6 / elapsed:.0f}"} if read > first_read else {}
        if skipped:
            extra["skipped"] = str(skipped)
        extra.update(notes)
        if sys.stderr.isatty():
            if self._bar is None:
                from tqdm import tqdm

                self._bar = tqdm(
                    total=total,
                    initial=done,
                    desc=self._what,
                    unit="B" if self._of_bytes else "img",
                    unit_scale=self._of_bytes,
                    dynamic_ncols=True,
                    smoothing=0.1,
                )
            self._bar.set_postfix(extra, refresh=False)
            self._bar.update(done - self._bar.n)
        elif now - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = now
            rate = (done - first) / elapsed
            left = f", {duration((total - done) / rate)} left" if rate else ""
            others = "".join(f", {value} {name}" for name, value in extra.items())
            if self._of_bytes:
                line = f"{in_units(done)} of {in_units(total)}" + (f", {in_units(rate)}/s" if rate else "")
            else:
                line = f"{count(done)} of {count(total)}" + (f", {rate:.0f} img/s" if rate else "")
            click.echo(f"{self._what}: {line}{others}{left}", err=True)

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None and not self._quiet:
            self._bar.close()
