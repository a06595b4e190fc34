"""Commands that look at packs: `info`, `verify` and `view`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import output
from packer._cli.options import PackPath, UserPath, reading_options
from packer._cli.output import EXIT_STATUS, progress_options
from packer._display import counted, text
from packer._storage.system import in_units
from packer.errors import CorruptPackError, NotAPackError, OptionError, printable

if TYPE_CHECKING:
    from packer._packs.info import PackInfo
    from packer._packs.verify import Verification
    from packer._viewing.catalog import Catalog


@click.command("info")
@click.argument("pack", type=PackPath())
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@click.option("--classes", "all_classes", is_flag=True, help="List every class, not only the first and the last ones.")
@click.option(
    "--plot",
    type=UserPath(),
    metavar="FILE",
    help="Draw histograms of sizes and labels too: .svg, or .png by matplotlib.",
)
@reading_options
@progress_options(quiet=None)
def info_command(pack: Path, as_json: bool, all_classes: bool, plot: Path | None) -> None:
    """Say what PACK holds: settings, sizes, classes with their counts, image sizes."""
    from packer._packs.description import description
    from packer._packs.info import info

    if plot is not None:
        from packer._viewing.histograms import require_plot

        require_plot(plot)
    with output.ProgressDisplay(pack.name) as display:
        display.phase("reading the table")
        held = info(pack)
    click.echo(json.dumps(_as_json(held), indent=2) if as_json else text(description(held, all_classes=all_classes)))
    if plot is not None:
        _plot(pack, plot)
        click.echo(f"written to {printable(plot)}", err=True)


def _plot(pack: Path, target: Path) -> None:
    """Draw what the table says."""
    from packer._viewing.catalog import open_catalog
    from packer._viewing.histograms import histograms, plot

    catalog = open_catalog([pack])
    try:
        plot(target, catalog.title, histograms(catalog))
    finally:
        catalog.close()


def _as_json(pack: PackInfo) -> dict[str, Any]:
    sides = [{"from": row.start, "below": row.below, "samples": row.samples} for row in pack.shorter_side]
    return {**asdict(pack), "shorter_side": sides}


@click.command("verify")
@click.argument("pack", type=PackPath())
@click.option("--quick", is_flag=True, help="Check structure and table only; do not read the samples.")
@click.option(
    "--digest",
    "with_digest",
    is_flag=True,
    help="Print one hash over classes, names, labels and data: the same for packs that give the same samples in the same order, whatever their format.",
)
@click.option(
    "--with",
    "library",
    type=click.Choice(["liblmdb"]),
    help="Let the format's own library read the pack too: it must find the same samples.",
)
@click.option(
    "--repair",
    "source",
    type=UserPath(),
    metavar="SRC",
    help="Make damaged samples again from SRC: the directory that was converted, or a pack with the same samples.",
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.  [default: the CPUs granted]")
@reading_options
@progress_options("Print nothing, or with --digest the hash alone; the exit status tells about damage.")
def verify_command(
    pack: Path,
    *,
    quick: bool,
    with_digest: bool,
    library: str | None,
    source: Path | None,
    workers: int | None,
    quiet: bool,
) -> int:
    """Check that everything in PACK is what was written. Exit status 4 where it is not."""
    if quick and (with_digest or source is not None):
        raise click.UsageError("--digest and --repair read every sample, which --quick leaves out")
    if library is not None and source is not None:
        raise click.UsageError("--with compares a pack that is intact: repair it first")
    try:
        with _telling_damage(pack):
            damage = _damage(pack, source, library, quick=quick or with_digest, workers=workers, quiet=quiet)
            hashed = _digest(pack, workers, quiet=quiet) if with_digest and not damage else ""
    except CorruptPackError as error:
        if quiet and not isinstance(error, NotAPackError):
            return EXIT_STATUS["corrupt"]
        raise
    if damage:
        if not quiet:
            click.echo(damage, err=True)
            if source is not None and any(item.index is None for item in damage):
                click.echo("Damage outside of the samples is not repaired: convert the images again.", err=True)
        return EXIT_STATUS["corrupt"]
    if hashed:
        click.echo(hashed if quiet else f"{hashed}  {printable(pack)}")
    elif not quiet:
        click.echo(damage)
    return EXIT_STATUS["ok"]


def _damage(
    pack: Path, source: Path | None, library: str | None, *, quick: bool, workers: int | None, quiet: bool
) -> Verification:
    """Check a pack, and where there is a source, repair it; return what is damaged then."""
    from packer._packs.verify import Verification, listed, notes_of, verify

    with output.ProgressDisplay(pack.name, quiet=quiet) as display:
        if source is None:
            return verify(pack, quick=quick, library=library, workers=workers, progress=display.update)
        from packer._formats import open_pack
        from packer._packs.repair import repair

        repaired = repair(pack, source, workers=workers, progress=display.update)
    if not quiet:
        made = counted(len(repaired.samples), "sample")
        click.echo(text([f"{pack}: {made} made again from {source}", *listed(repaired.samples)]))
    with open_pack(pack) as reader:
        return Verification(repaired.left, str(pack), [] if repaired.left else notes_of(reader))


def _digest(pack: Path, workers: int | None, *, quiet: bool) -> str:
    from packer._packs.info import digest

    with output.ProgressDisplay(pack.name, quiet=quiet) as display:
        display.phase("hashing")
        return digest(pack, workers=workers, progress=display.update)


@contextlib.contextmanager
def _telling_damage(pack: Path) -> Iterator[None]:
    """Take what claims to be a pack, and is recognised as none, for a damaged one; say that no repair is possible."""
    try:
        yield
    except CorruptPackError as error:
        from packer._storage.place import place_of

        if isinstance(error, NotAPackError) and not _claims_to_be_a_pack(pack):
            raise
        if error.index is not None or not place_of(pack).contains(error.path):
            raise
        advice = ". It cannot be repaired: copy or convert it again"
        raise CorruptPackError(error.reason + advice, error.path) from error


def _claims_to_be_a_pack(path: Path) -> bool:
    """Tell whether what is at `path` has a suffix that packs alone have, or a pack's content: it is a damaged pack."""
    from packer._conversion.request import is_pack
    from packer._formats import FORMATS

    return any(path.suffix.lower() in row.suffixes for row in FORMATS.values() if row.parts) or is_pack(path)


@click.command("view")
@click.argument("packs", metavar="PACK...", nargs=-1, required=True, type=PackPath())
@click.option("--port", type=click.IntRange(1, 65535), help="The port of the page; by default any that is free.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@click.option("--html", type=UserPath(), metavar="FILE", help="Write one page that needs no server, and end.")
@reading_options
@progress_options("Print nothing but the address of the page, and errors.")
def view_command(packs: tuple[Path, ...], port: int | None, no_browser: bool, html: Path | None, quiet: bool) -> None:
    """Look at PACK in a browser: pictures, classes, fields, crops, histograms, duplicates.

    PACK is a pack, an index, a tree of images or a container of another tool; several are shown as one. The page is for
    this machine alone: nobody has its address but who started it. Ctrl-C ends it.

    \b
      packer view train.lmdb
      packer view train.lmdb --html report.html
    """
    if html is not None and (port is not None or no_browser):
        raise OptionError("--html writes a file, for which there is no --port and no --no-browser")
    from packer._viewing.catalog import open_catalog

    if html is not None:
        from packer._viewing.report import require_report

        require_report(html)
    with output.ProgressDisplay("indexing", quiet=quiet) as display:
        catalog = open_catalog(packs, display.update)
    try:
        if html is not None:
            _write(catalog, html, quiet=quiet)
        else:
            _serve(catalog, port or 0, browser=not no_browser, quiet=quiet)
    finally:
        catalog.close()


def _write(catalog: Catalog, target: Path, *, quiet: bool) -> None:
    from packer._viewing.report import write_report

    with output.ProgressDisplay(target.name, quiet=quiet) as display:
        size = write_report(catalog, target, progress=display.update)
    if not quiet:
        click.echo(f"{printable(target)}: {in_units(size)}")


def _serve(catalog: Catalog, port: int, *, browser: bool, quiet: bool) -> None:
    """Serve the page until Ctrl-C."""
    from packer._viewing.server import Server

    with Server(catalog, port) as server:
        click.echo(server.address)
        if not quiet:
            click.echo("Ctrl-C ends it.", err=True)
        if browser:
            import webbrowser

            # Some browsers, and what BROWSER names, are waited for until they end.
            threading.Thread(target=webbrowser.open, args=(server.door,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # which is how a person ends it
            server.serve_forever()
