"""What the commands that write packs have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.cli.status import EXIT_STATUS
from packer.errors import printable

if TYPE_CHECKING:
    from packer.sample import Manifest

__all__ = ["done_already", "format_options", "say", "status_of"]


def say(text: str, options: dict[str, Any]) -> None:
    """Print a line or more, unless ``--quiet`` was said."""
    if not options["quiet"]:
        click.echo(text)


def format_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the format's own settings among the options."""
    return {"shard_size": options["shard_size"]} if options["shard_size"] else {}


def status_of(manifest: Manifest) -> int:
    """Return the exit status for a pack that is complete: whether files were left out of it."""
    return EXIT_STATUS["skipped"] if manifest.skipped else EXIT_STATUS["ok"]


def done_already(destination: Path, manifest: Manifest, options: dict[str, Any]) -> int:
    """Say that the same command has made this pack before; return the exit status that it had."""
    left_out = f", {len(manifest.skipped):,} x left out" if manifest.skipped else ""
    say(f"{printable(destination)}: done already{left_out}", options)
    return status_of(manifest)
