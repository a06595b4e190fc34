"""Commands that look at packs: `info`, `verify` and `view`."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import output
from packer._cli.options import Count, PackPath, PanelCommand, UserPath, panel_option, reading_options
from packer._cli.output import EXIT_STATUS, json_option, progress_options
from packer._display import counted, text
from packer._storage.system import in_units
from packer.errors import CorruptPackError, NotAPackError, OptionError, PackerError, printable

if TYPE_CHECKING:
    from packer._packs.info import PackInfo
    from packer._packs.verify import Verification
    from packer._viewing.catalog import Catalog


@click.command("info", cls=PanelCommand)
@click.argument("pack", type=PackPath())
@json_option
@panel_option("--classes", "all_classes", is_flag=True, help="List all classes, not only the first and last ones.")
@panel_option(
    "--plot",
    type=UserPath(),
    metavar="FILE",
    help="Also draw histograms of sizes and labels, and write them to FILE.svg or FILE.png (PNG needs matplotlib).",
)
@reading_options
@progress_options(quiet=None)
def info_command(pack: Path, as_json: bool, all_classes: bool, plot: Path | None) -> None:
    """Show what a pack contains: settings, classes, sizes, fields.

    \b
      packer info train.lmdb
      packer info train.lmdb --plot histograms.svg
    """
    from packer._packs.info import description, info

    if plot is not None:
        from packer._viewing.histograms import require_plot

        require_plot(plot)
    with output.ProgressDisplay(pack.name) as display:
        display.phase("reading the table")
        held = info(pack)
    click.echo(json.dumps(_as_json(held), indent=2) if as_json else text(description(held, all_classes=all_classes)))
    if plot is not None:
        _plot(pack, plot)
        click.echo(f"packer: written to {printable(plot)}", err=True)


def _plot(pack: Path, target: Path) -> None:
    """Draw the histograms of a pack's table."""
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


@click.command("verify", cls=PanelCommand)
@click.argument("pack", type=PackPath())
@panel_option("--quick", is_flag=True, help="Check structure and table only, without reading the samples.")
@panel_option(
    "--digest",
    "with_digest",
    is_flag=True,
    help="Print a hash of classes, names, labels and data. Packs with the same samples in the same order have the same hash, whatever their formats.",
)
@panel_option(
    "--with",
    "library",
    type=click.Choice(["liblmdb"]),
    help="Also read the LMDB pack with liblmdb, and check that liblmdb finds the same samples.",
)
@panel_option(
    "--repair",
    "source",
    type=UserPath(),
    metavar="SRC",
    help="Restore damaged samples from SRC: the directory that was converted, or a pack with the same samples.",
)
@panel_option(
    "--workers",
    type=Count(),
    metavar="N",
    help="Number of threads.  [default: one for each CPU that affinity, cgroup and SLURM grant]",
)
@reading_options
@progress_options("Print nothing except the hash of --digest; the exit status tells whether the pack is damaged.")
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
    """Check that a pack contains what was written to it.

    The exit status is 4 if the pack is damaged.

    \b
      packer verify train.lmdb
      packer verify train.lmdb --repair imagenet/train
    """
    if quick and (with_digest or source is not None):
        raise click.UsageError("--digest and --repair read every sample, but --quick reads none: leave out --quick")
    if library is not None and source is not None:
        raise click.UsageError("--with cannot be combined with --repair: repair the pack first")
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
            click.echo(f"packer: {damage}", err=True)
            if source is not None and any(item.index is None for item in damage):
                click.echo("packer: damage outside the samples cannot be repaired: convert the images again", err=True)
        return EXIT_STATUS["corrupt"]
    if hashed:
        click.echo(hashed if quiet else f"{hashed}  {printable(pack)}")
    elif not quiet:
        click.echo(damage)
    return EXIT_STATUS["ok"]


def _damage(
    pack: Path, source: Path | None, library: str | None, *, quick: bool, workers: int | None, quiet: bool
) -> Verification:
    """Check a pack, and repair it if there is a source; return the remaining damage."""
    from packer._packs.verify import Verification, listed, notes_of, verify

    with output.ProgressDisplay(pack.name, quiet=quiet) as display:
        if source is None:
            return verify(pack, quick=quick, library=library, workers=workers, progress=display.update)
        from packer._formats import open_pack
        from packer._packs.repair import repair

        repaired = repair(pack, source, workers=workers, progress=display.update)
    if not quiet:
        made = counted(len(repaired.samples), "sample")
        click.echo(text([f"{pack}: {made} restored from {source}", *listed(repaired.samples)]))
    with open_pack(pack) as reader:
        return Verification(repaired.left, str(pack), [] if repaired.left else notes_of(reader))


def _digest(pack: Path, workers: int | None, *, quiet: bool) -> str:
    from packer._packs.info import digest

    with output.ProgressDisplay(pack.name, quiet=quiet) as display:
        display.phase("hashing")
        return digest(pack, workers=workers, progress=display.update)


@contextlib.contextmanager
def _telling_damage(pack: Path) -> Iterator[None]:
    """If a pack is too damaged to be opened, add to the error that the pack cannot be repaired."""
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
    """Tell whether `path` has the suffix or the content of a pack, and is not a file of another tool."""
    from packer._containers import find_container
    from packer._conversion.request import looks_like_pack
    from packer._formats import FORMATS

    with contextlib.suppress(PackerError):
        if find_container([Path(os.path.abspath(path))]) is not None:
            return False
    return any(path.suffix.lower() in row.suffixes for row in FORMATS.values() if row.parts) or looks_like_pack(path)


@click.command("view", cls=PanelCommand)
@click.argument("packs", metavar="PACK...", nargs=-1, required=True, type=PackPath())
@panel_option("--port", type=Count(1, 65535), metavar="PORT", help="Port of the page.  [default: any free port]")
@panel_option("--no-browser", is_flag=True, help="Print the address of the page without opening a browser.")
@panel_option(
    "--html",
    type=UserPath(),
    metavar="FILE",
    help="Write the page to FILE and exit. A browser can open FILE without a server.",
)
@reading_options
@progress_options("Print only errors and the address of the page.")
def view_command(packs: tuple[Path, ...], port: int | None, no_browser: bool, html: Path | None, quiet: bool) -> None:
    """Show the images of a pack in the browser.

    The page shows images, classes, fields, crops, histograms and duplicates. PACK is a pack, an index, an image folder
    or a file of another tool. Several PACKs are shown as one pack. The page can be opened only on this machine, and
    only with the address that is printed. Ctrl-C stops the server.

    \b
      packer view train.lmdb
      packer view train.lmdb --html report.html
    """
    if html is not None and (port is not None or no_browser):
        raise OptionError("--html writes a file and starts no server: leave out --port and --no-browser")
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
            click.echo("packer: press Ctrl-C to stop the server", err=True)
        if browser:
            import webbrowser

            # In a thread, because `webbrowser.open` waits until some browsers end.
            threading.Thread(target=webbrowser.open, args=(server.door,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # the user ends the server by Ctrl-C
            server.serve_forever()
