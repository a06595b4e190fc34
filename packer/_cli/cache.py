"""`packer cache info` and `packer cache clear`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.values import ObjectUrl, UserPath
from packer._storage.limits import in_units
from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._storage.remote.cache import Kept

__all__ = ["cache_commands"]


@click.group("cache")
def cache_commands() -> None:
    """Say or remove what is kept on this node of packs at URLs."""


@cache_commands.command("info")
@click.argument("directory", type=UserPath(), metavar="[DIR]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_options(quiet=None)
def info_command(directory: Path | None, as_json: bool) -> None:
    """Say what the cache DIR keeps: each object, the version, how much of it, when it was used last.

    Without DIR it is the cache that PACKER_CACHE_DIR names, or ~/.cache/packer. What may be kept at most is what
    PACKER_CACHE_SIZE says, or half of what would be free without the cache. A program that says cache_size= is
    bounded by that.
    """
    from packer._storage.remote.cache import default_limit
    from packer._storage.remote.settings import Settings

    place = _directory(directory)
    with show.ProgressDisplay(Path(place).name) as display:
        display.phase("looking")
        found = _kept(place, directory)[::-1]
    chosen = Settings.of(place).cache_size
    limit = default_limit(place) if chosen is None else chosen
    if as_json:
        objects = [asdict(one) for one in found]
        total = sum(one.size for one in found)
        click.echo(json.dumps({"directory": place, "size": total, "limit": limit, "objects": objects}, indent=2))
    else:
        bound = "half of what would be free without them" if chosen is None else "PACKER_CACHE_SIZE"
        click.echo("\n".join(_described(place, found, f"at most {in_units(limit)} ({bound})")))


@cache_commands.command("clear")
@click.argument("directory", type=UserPath(), metavar="[DIR]", required=False)
@click.option(
    "--url", type=ObjectUrl(), metavar="URL", help="Remove the object there and those below it, and no other."
)
@progress_options()
def clear_command(directory: Path | None, url: str | None, quiet: bool) -> None:
    """Remove what the cache DIR keeps, and no other file; DIR as of `packer cache info`.

    Processes may read meanwhile: what they lack afterwards they fetch again. What they have open takes its place on the
    disk until they end.
    """
    from packer._storage.remote.cache import clear
    from packer._storage.remote.urls import shown

    place = _directory(directory)
    with show.ProgressDisplay(Path(place).name, quiet=quiet) as display:
        display.phase("removing")
        removed = clear(place, url) if directory is not None or os.path.isdir(place) else []
    if quiet:
        return
    if removed:
        what = show.counted(len(removed), "object")
        click.echo(f"{printable(place)}: {in_units(sum(one.size for one in removed))} removed, {what}")
    else:
        click.echo(f"{printable(place)}: nothing {'' if url is None else f'of {shown(url)} '}is kept there")


def _directory(given: Path | None) -> str:
    """Return the directory that is meant; OptionError where there is none."""
    from packer._storage.remote.settings import Settings

    found = Settings.of(given).cache_dir
    if found is None:
        raise OptionError(
            "PACKER_CACHE_DIR is empty: memory keeps what is fetched, and no directory. Say which is meant"
        )
    return found


def _kept(place: str, given: Path | None) -> list[Kept]:
    """Return what a cache keeps; nothing where it is the default one, and nobody has made it yet."""
    from packer._storage.remote.cache import kept

    return kept(place) if given is not None or os.path.isdir(place) else []


def _described(place: str, found: Sequence[Kept], bound: str) -> list[str]:
    """Return what a person should know of a cache, as lines: those that were used last first."""
    if not found:
        return [f"{printable(place)}: nothing is kept there, {bound}"]
    total = in_units(sum(one.size for one in found))
    rows = [_row(one) for one in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head = f"{printable(place)}: {total} of {show.counted(len(found), 'object')}, {bound}"
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [head, "", *(f"  {line}".rstrip() for line in lines)]


def _row(one: Kept) -> list[str]:
    written = f"written {_moment(one.modified / 1e9)}" if one.modified else ""
    version = f"ETag {one.etag}" if one.etag else written or "an unknown version"
    part = f"{min(1, one.size / one.object_size):.0%} of {in_units(one.object_size)}" if one.object_size else ""
    return [
        f"used {_moment(one.used)}",
        in_units(one.size).rjust(8),
        part.rjust(16),
        printable(one.url) or "an unknown object",
        printable(version),
    ]


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
