"""Commands for local copies on this node: `cache info`, `cache clear`, `stage`, `unstage` and `warm`."""

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
from packer._cli.options import ObjectUrl, PackPath, PanelCommand, PanelGroup, UserPath, panel_option, reading_options
from packer._cli.output import json_option, progress_options
from packer._display import TextTable, counted, text
from packer._storage.system import in_units
from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._storage.remote.cache import CachedObject


@click.group("cache", cls=PanelGroup)
def cache_commands() -> None:
    """Show or clear the cache of packs at URLs."""


@cache_commands.command("info")
@click.argument("directory", type=UserPath(), metavar="[DIR]", required=False)
@json_option
@progress_options(quiet=None)
def info_command(directory: Path | None, as_json: bool) -> None:
    """List the objects in the cache.

    An object is a file of a pack at a URL. For each object, the list has its version, the percentage of its bytes that
    is cached, and the time of its last use.

    The default DIR is $PACKER_CACHE_DIR, or ~/.cache/packer. $PACKER_CACHE_SIZE limits the size of the cache. By
    default the limit is half of the space that would be free without the cache. In Python, cache_size= sets another
    limit.
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
        bound = "half of the space that would be free without the cache" if chosen is None else "PACKER_CACHE_SIZE"
        click.echo(_described(place, found, f"at most {in_units(limit)} ({bound})"))


@cache_commands.command("clear")
@click.argument("directory", type=UserPath(), metavar="[DIR]", required=False)
@panel_option("--url", type=ObjectUrl(), metavar="URL", help="Remove only the objects at or below URL.")
@progress_options()
def clear_command(directory: Path | None, url: str | None, quiet: bool) -> None:
    """Remove cached objects, and no other files.

    The default DIR is $PACKER_CACHE_DIR, or ~/.cache/packer. Programs can continue to read packs at URLs: they download
    missing data again. If a program has a removed file open, the file takes up space until the program ends.
    """
    from packer._storage.remote.cache import clear
    from packer._storage.remote.urls import redacted

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
        click.echo(f"{printable(place)}: nothing {'' if url is None else f'of {redacted(url)} '}is cached")


def _directory(given: Path | None) -> str:
    """Return the directory of the cache; OptionError if downloads are cached in memory only."""
    from packer._storage.remote.urls import RemoteSettings

    found = RemoteSettings.of(given).cache_dir
    if found is None:
        raise OptionError("PACKER_CACHE_DIR is empty, so downloads are cached in memory only. Pass the DIR of a cache")
    return found


def _kept(place: str, given: Path | None) -> list[CachedObject]:
    """Return the objects in a cache; an empty list if the default cache does not exist yet."""
    from packer._storage.remote.cache import cached_objects

    return cached_objects(place) if given is not None or os.path.isdir(place) else []


def _described(place: str, found: Sequence[CachedObject], bound: str) -> str:
    """Describe a cache, with the most recently used objects first."""
    if not found:
        return f"{printable(place)}: the cache is empty; {bound}"
    total = in_units(sum(one.size for one in found))
    rows = [_row(one) for one in found]
    columns = [f"<{max(map(len, cells))}" for cells in zip(*rows, strict=True)]
    head = f"{place}: {total} of {counted(len(found), 'object')}, {bound}"
    return text([head, "", TextTable(rows, columns)])


def _row(one: CachedObject) -> list[str]:
    written = f"written {_moment(one.modified / 1e9)}" if one.modified else ""
    version = f"ETag {one.etag}" if one.etag else written or "unknown version"
    part = f"{min(1, one.size / one.object_size):.0%} of {in_units(one.object_size)}" if one.object_size else ""
    return [
        f"used {_moment(one.used)}",
        in_units(one.size).rjust(8),
        part.rjust(16),
        printable(one.url) or "unknown object",
        printable(version),
    ]


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@click.command("stage", cls=PanelCommand)
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@reading_options
@progress_options()
def stage_command(pack: Path, directory: Path, quiet: bool) -> None:
    """Copy a pack to the disk of this machine.

    Prints the path of the copy. A dataset that is opened with stage=DIRECTORY reads the copy. DIRECTORY is created if its
    parent exists. If other users can write to DIRECTORY, for example to /dev/shm, the copy goes to the subdirectory
    packer-UID, where UID is your user ID. Only you can write to this subdirectory. `packer unstage` deletes the copy.

    \b
      packer stage /nfs/train.lmdb /scratch
    """
    from packer._datasets.staging import stage

    with output.ProgressDisplay(pack.name, quiet=quiet, unit="bytes") as display:
        staged = stage(pack, directory, progress=display.update)
    if not quiet:
        click.echo(printable(staged))


@click.command("unstage", cls=PanelCommand)
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@panel_option(
    "--all-versions",
    is_flag=True,
    help="Delete the copies of all packs that have the same name as PACK: earlier versions, and packs from other directories. PACK itself need not exist.",
)
@progress_options()
def unstage_command(pack: Path, directory: Path, *, all_versions: bool, quiet: bool) -> None:
    """Delete a copy that `packer stage` made.

    Also deletes a copy that a dataset with stage=DIRECTORY made.
    """
    from packer._datasets.staging import unstage

    with output.ProgressDisplay(pack.name, quiet=quiet) as display:
        display.phase("removing")
        removed = unstage(pack, directory, all_versions=all_versions)
    if quiet:
        return
    if removed:
        click.echo(f"{printable(directory)}: {in_units(removed)} removed")
    else:
        others = "" if all_versions else "; --all-versions also deletes copies of earlier versions"
        click.echo(f"{printable(directory)}: no copy of {printable(pack)}{others}")


@click.command("warm", cls=PanelCommand)
@click.argument("pack", type=PackPath())
@reading_options
@progress_options()
def warm_command(pack: Path, quiet: bool) -> None:
    """Read a pack once, so that training finds it in memory.

    This helps if the pack fits into the free memory of this machine.
    """
    from packer._datasets.staging import warm

    with output.ProgressDisplay(pack.name, quiet=quiet, unit="bytes") as display:
        read = warm(pack, progress=display.update)
    if not quiet:
        click.echo(f"{printable(pack)}: {in_units(read)} read")
