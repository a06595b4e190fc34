"""What the commands that write have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli.status import EXIT_STATUS, Interrupted, Terminated
from packer.errors import printable

if TYPE_CHECKING:
    from packer._manifest import Manifest

__all__ = ["done_already", "resumable", "say", "status_of"]


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Say of work that a signal ends that the same command continues the work."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        kind = Terminated if isinstance(error, Terminated) else Interrupted
        raise kind("; the same command continues where this one stopped") from None


def say(text: str, *, quiet: bool) -> None:
    """Print a line or more, unless ``--quiet`` was said."""
    if not quiet:
        click.echo(text)


def status_of(manifest: Manifest) -> int:
    """Return the exit status for a pack that is complete: whether files were left out of it."""
    return EXIT_STATUS["skipped"] if manifest.skipped else EXIT_STATUS["ok"]


def done_already(destination: Path, manifest: Manifest, *, quiet: bool) -> int:
    """Say that the same command has made this pack before; return the exit status that it had."""
    left_out = f", {len(manifest.skipped):,} x left out" if manifest.skipped else ""
    say(f"{printable(destination)}: done already{left_out}", quiet=quiet)
    return status_of(manifest)
