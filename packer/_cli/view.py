"""`packer view`."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.values import PackPath, UserPath
from packer._storage.limits import in_units
from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._viewing.catalog import Catalog

__all__ = ["view_command"]


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
    with show.ProgressDisplay("indexing", quiet=quiet) as display:
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

    with show.ProgressDisplay(target.name, quiet=quiet) as display:
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
