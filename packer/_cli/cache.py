"""Commands for copies on this node: `cache info`, `cache clear`, `stage`, `unstage` and `warm`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli import output
from packer._cli.options import ObjectUrl, PackPath, UserPath, reading_options
from packer._cli.output import progress_options
from packer._display import counted
from packer._storage.system import in_units
from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._storage.remote.cache import CachedObject


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
    from packer._storage.remote.urls import RemoteSettings

    place = _directory(directory)
    with output.ProgressDisplay(Path(place).name) as display:
        display.phase("looking")
        found = _kept(place, directory)[::-1]
    chosen = RemoteSettings.of(place).cache_size
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
    with output.ProgressDisplay(Path(place).name, quiet=quiet) as display:
        display.phase("removing")
        removed = clear(place, url) if directory is not None or os.path.isdir(place) else []
    if quiet:
        return
    if removed:
        what = counted(len(removed), "object")
        click.echo(f"{printable(place)}: {in_units(sum(one.size for one in removed))} removed, {what}")
    else:
        click.echo(f"{printable(place)}: nothing {'' if url is None else f'of {shown(url)} '}is kept there")


def _directory(given: Path | None) -> str:
    """Return the directory that is meant; OptionError where there is none."""
    from packer._storage.remote.urls import RemoteSettings

    found = RemoteSettings.of(given).cache_dir
    if found is None:
        raise OptionError(
            "PACKER_CACHE_DIR is empty: memory keeps what is fetched, and no directory. Say which is meant"
        )
    return found


def _kept(place: str, given: Path | None) -> list[CachedObject]:
    """Return what a cache keeps; nothing where it is the default one, and nobody has made it yet."""
    from packer._storage.remote.cache import cached_objects

    return cached_objects(place) if given is not None or os.path.isdir(place) else []


def _described(place: str, found: Sequence[CachedObject], bound: str) -> list[str]:
    """Return what a person should know of a cache, as lines: those that were used last first."""
    if not found:
        return [f"{printable(place)}: nothing is kept there, {bound}"]
    total = in_units(sum(one.size for one in found))
    rows = [_row(one) for one in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head = f"{printable(place)}: {total} of {counted(len(found), 'object')}, {bound}"
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [head, "", *(f"  {line}".rstrip() for line in lines)]


def _row(one: CachedObject) -> list[str]:
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


@click.command("stage")
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@reading_options
@progress_options()
def stage_command(pack: Path, directory: Path, quiet: bool) -> None:
    """Copy PACK to DIRECTORY on this node, where stage=DIRECTORY finds it; print where the copy is.

    DIRECTORY is made where it is missing; what it lies in must be there. Where others may write into DIRECTORY, as into
    /dev/shm, the copy lies in a directory of your own in it, packer-UID. `packer unstage` gives the space back.
    """
    from packer._datasets.staging import stage

    with output.ProgressDisplay(pack.name, quiet=quiet, unit="bytes") as display:
        staged = stage(pack, directory, progress=display.update)
    if not quiet:
        click.echo(printable(staged))


@click.command("unstage")
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@click.option(
    "--all-versions",
    is_flag=True,
    help="Remove the copies of every pack of PACK's name: of earlier versions, and of packs in other directories. PACK itself may be gone.",
)
@progress_options()
def unstage_command(pack: Path, directory: Path, *, all_versions: bool, quiet: bool) -> None:
    """Remove the copy of PACK from DIRECTORY, which `packer stage PACK DIRECTORY` or stage=DIRECTORY put there."""
    from packer._datasets.staging import unstage

    with output.ProgressDisplay(pack.name, quiet=quiet) as display:
        display.phase("removing")
        removed = unstage(pack, directory, all_versions=all_versions)
    if quiet:
        return
    if removed:
        click.echo(f"{printable(directory)}: {in_units(removed)} removed")
    else:
        others = "" if all_versions else "; --all-versions looks for copies of earlier versions too"
        click.echo(f"{printable(directory)}: no copy of {printable(pack)} is there{others}")


@click.command("warm")
@click.argument("pack", type=PackPath())
@reading_options
@progress_options()
def warm_command(pack: Path, quiet: bool) -> None:
    """Read PACK once from beginning to end, so that training finds it in memory (if it fits)."""
    from packer._datasets.staging import warm

    with output.ProgressDisplay(pack.name, quiet=quiet, unit="bytes") as display:
        read = warm(pack, progress=display.update)
    if not quiet:
        click.echo(f"{printable(pack)}: {in_units(read)} read")
