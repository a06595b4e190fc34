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
    from packer._sources import Source

__all__ = ["convert_to_url"]


def convert_to_url(request: ConversionRequest, how: RunOptions, source: Source | None = None) -> int:
    """Make a pack, of a source that may be listed already, and upload it; return the exit status."""
    from packer._conversion.uploaded import UploadedConversion

    with resumable(), UploadedConversion(request, how.scratch) as conversion:
        if not how.quiet:
            click.echo(f"packer: made in {printable(conversion.room)}, and then uploaded", err=True)
        said = _say_new(conversion, 0)
        summary = conversion.made or _convert(request, conversion, source, quiet=how.quiet)
        with show.ProgressDisplay(request.dst.name, quiet=how.quiet) as display:
            display.phase("uploading", unit="bytes")
            summary = conversion.upload(summary, display.update)
        _say_new(conversion, said)
    say(show.conversion(summary), quiet=how.quiet)
    return status_of(summary.manifest)


def _convert(
    request: ConversionRequest, conversion: UploadedConversion, source: Source | None, *, quiet: bool
) -> Summary:
    """Make the pack on this machine."""
    from packer._conversion.in_parts import convert_in_parts

    own = conversion.request
    with show.ProgressDisplay(request.dst.name, quiet=quiet) as display:
        display.phase(f"listing {request.src.name}")
        if own.parts is None:
            source = own.open(request.dst, own.classes()) if source is None else source
            return convert_listed(own, source, display, quiet=quiet)
        with explaining(request.src):
            return convert_in_parts(
                own, lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped)
            )


def _say_new(conversion: UploadedConversion, said: int) -> int:
    """Print the notes that were not printed yet; return how many there are."""
    for note in conversion.notes[said:]:
        click.echo(f"packer: {printable(note)}", err=True)
    return len(conversion.notes)
