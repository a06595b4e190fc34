"""`packer append`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from packer._cli import show
from packer._cli.convert import convert_command
from packer._cli.converting import explaining
from packer._cli.progress import progress_options
from packer._cli.reading import READING
from packer._cli.source import CommandOfSource
from packer._cli.values import PackPath
from packer._cli.writing import done_already, say, status_of
from packer.errors import printable

__all__ = ["append_command"]

_OF_A_PACK = ("src", "dst", "format", "splits", "classes_from", "check", "overwrite", "quiet", "json_progress")
_OF_PARTS = ("parts", "part", "cluster", "jobs", "scratch")
_NO_PART_OF_IT = (*_OF_A_PACK, *_OF_PARTS, *READING)


@click.command("append", cls=CommandOfSource)
@click.argument("pack", type=PackPath())
@click.argument("src", type=PackPath())
@progress_options()
def append_command(pack: Path, src: Path, *, quiet: bool, **values: Any) -> int:
    """Convert the images below SRC to one more part of PACK, a pack with parts.

    SRC is what `packer convert` takes. Its class ids are those of PACK. Readers that have PACK open go on with what they
    opened. The same command continues an interrupted one; where PACK has that part already, it does nothing.

    \b
      packer convert imagenet/train train.lmdb --parts 4
      packer append train.lmdb more
    """
    from packer._conversion.appending import append

    warnings.filterwarnings("ignore", module="PIL")
    with explaining(src), show.ProgressDisplay(pack.name, quiet=quiet) as display:
        summary = append(
            pack,
            src,
            progress=lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped),
            **values,
        )
    manifest = summary.manifest
    if summary.notes == ["done already"]:
        return done_already(pack, manifest, quiet=quiet)
    name, count, _ = manifest.parts[-1]
    head = (
        f"{printable(pack)}: {show.counted(manifest.count, 'sample')} in {show.counted(len(manifest.parts), 'part')}, "
        f"{show.count(count)} of them in {printable(name)}, {show.duration(summary.seconds)}"
    )
    say("\n".join([head, *show.outcome(pack, manifest, summary.notes)]), quiet=quiet)
    return status_of(manifest)


append_command.params += [option for option in convert_command.params if option.name not in _NO_PART_OF_IT]
