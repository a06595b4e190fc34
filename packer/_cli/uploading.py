"""`packer convert` with a URL as DST: the pack is made on this machine, and then uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from packer._cli import show
from packer._cli.converting import convert_listed, explaining
from packer._cli.options import RunOptions
from packer._cli.writing import resumable, say, status_of
from packer.errors import printable

if TYPE_CHECKING:
    from packer._conversion.convert import Summary
    from packer._conversion.request import ConversionRequest
    from packer._conversion.uploaded import UploadedConversion

__all__ = ["convert_to_url"]


def convert_to_url(request: ConversionRequest, how: RunOptions) -> int:
    """Make a pack and upload it; return the exit status."""
    from packer._conversion.uploaded import UploadedConversion

    _require_sense(how)
    with resumable(), UploadedConversion(request, how.scratch) as conversion:
        if not how.quiet:
            click.echo(f"packer: made in {printable(conversion.room)}, and then uploaded", err=True)
        said = _say_new(conversion, 0)
        summary = conversion.made or _convert(request, conversion, quiet=how.quiet)
        with show.ProgressDisplay(request.dst.name, quiet=how.quiet) as display:
            display.phase("uploading", unit="bytes")
            summary = conversion.upload(summary, display.update)
        _say_new(conversion, said)
    say(show.conversion(summary), quiet=how.quiet)
    return status_of(summary.manifest)


def _require_sense(how: RunOptions) -> None:
    """Raise UsageError where an option does not fit a URL."""
    if how.splits:
        raise click.UsageError(
            "--split is for packs on a disk: convert SRC/SPLIT to a URL of its own, the others with --classes-from"
        )
    if how.part is not None or how.cluster is not None or how.jobs is not None:
        raise click.UsageError(
            "--part, --cluster and --jobs are for packs on a disk that all nodes see: make the pack there, and then "
            "convert it to the URL"
        )


def _convert(request: ConversionRequest, conversion: UploadedConversion, *, quiet: bool) -> Summary:
    """Make the pack on this machine."""
    from packer._conversion.in_parts import convert_in_parts

    own = conversion.request
    with show.ProgressDisplay(request.dst.name, quiet=quiet) as display:
        display.phase(f"listing {request.src.name}")
        if own.parts is None:
            return convert_listed(own, own.open(request.dst, own.classes()), display, quiet=quiet)
        with explaining(request.src):
            return convert_in_parts(
                own, lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped)
            )


def _say_new(conversion: UploadedConversion, said: int) -> int:
    """Print the notes that were not printed yet; return how many there are."""
    for note in conversion.notes[said:]:
        click.echo(f"packer: {printable(note)}", err=True)
    return len(conversion.notes)
