"""The conversion of a source that was listed, as `packer convert` and others show it, and what ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli import show
from packer._cli.writing import resumable
from packer.errors import ImageChangedError, ImageError

if TYPE_CHECKING:
    from packer._conversion.convert import Summary
    from packer._conversion.request import ConversionRequest
    from packer._sources import Source

__all__ = ["convert_listed", "explaining"]


def convert_listed(
    request: ConversionRequest, source: Source, display: show.ProgressDisplay, *, quiet: bool
) -> Summary:
    """Make one pack of a source that was listed, and show how far it is."""
    from packer._images.decode import decoder_advice

    advice = decoder_advice() if request.recipe.codec != "keep" and not quiet else None
    if advice is not None:
        click.echo(f"packer: {advice}", err=True)
    display.phase(None)
    with explaining(request.src):
        return request.convert(source, lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped))


@contextlib.contextmanager
def explaining(src: Path) -> Iterator[None]:
    """Add to what ends a conversion of `src` what its person can do."""
    from packer._sources import is_listing

    try:
        with resumable():
            yield
    except ImageChangedError as error:
        again = "run `packer scan` again, and start over" if is_listing(src) else "start over"
        raise ImageError(f"{error}. Put it back, and the same command continues; or {again} with --fresh.") from error
    except ImageError as error:
        if "--to-8-bit" in error.reason:
            raise ImageError(
                f"{error}. Say --on-error skip to leave such files out, and the same command continues; with another "
                "option, start over with --fresh."
            ) from error
        of_a_field = error.reason.startswith("field ")
        mend = "Correct the file" if of_a_field else "Put an image in its place"
        without = "Where a table or annotations change" if of_a_field else "If the source is to go without it"
        raise ImageError(
            f"{error}. {mend}, or say --on-error skip, and the same command continues. {without}, start over with --fresh."
        ) from error
