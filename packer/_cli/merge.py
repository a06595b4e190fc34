"""`packer merge`."""

from __future__ import annotations

from pathlib import Path

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.values import PackPath, Size
from packer._cli.writing import resumable, say, status_of
from packer.errors import printable

__all__ = ["merge_command"]


@click.command("merge")
@click.argument("packs", nargs=-1, type=PackPath())
@click.argument("dst", type=PackPath())
@click.option(
    "--classes",
    "class_map",
    type=click.Choice(["same", "union"]),
    help="same: the packs must have the same classes; union: the first pack's keep their ids, and those that others have beyond them follow.  [default: same]",
)
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    metavar="NAME",
    help="Put NAME/ before the names of a pack's samples; once for each of PACKS, in their order. Labels stay.",
)
@click.option(
    "--finish", "finishing", is_flag=True, help="Make one pack of the complete parts of DST (`packer convert --parts`)."
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.  [default: the CPUs granted]")
@click.option(
    "--shard-size",
    type=Size(),
    metavar="SIZE",
    help="Most bytes of a file of a .pth, .wds, .tfrecord, .mds, .n5 or .parquet pack, such as 1GiB.  "
    "[default: 512MiB; 64MiB of .n5]",
)
@click.option("--overwrite", is_flag=True, help="Replace DST, once the new pack is complete.")
@click.option("--fresh", is_flag=True, help="Start over instead of continuing an interrupted merge.")
@reading_options
@progress_options()
def merge_command(
    packs: tuple[Path, ...],
    dst: Path,
    *,
    class_map: str | None,
    prefixes: tuple[str, ...],
    finishing: bool,
    workers: int | None,
    shard_size: int | None,
    overwrite: bool,
    fresh: bool,
    quiet: bool,
) -> int:
    """Join PACKS, one after the other, into the pack DST.

    The samples keep their bytes. PACKS may be of different formats; the suffix of DST decides its own.

    \b
      packer merge a.lmdb b.lmdb both.lmdb
      packer merge a.lmdb b.lmdb both.lmdb --prefix a --prefix b    where names coincide
      packer merge --finish out.lmdb
    """
    from packer._conversion.finish import finish
    from packer._conversion.merging import merge

    if finishing:
        said = class_map is not None or prefixes or workers or shard_size or overwrite or fresh
        if packs or said:
            raise click.UsageError("--finish takes DST alone: how to make it was said to `packer convert --parts`")
        with show.ProgressDisplay(dst.name, quiet=quiet) as display:
            display.phase("joining parts")
            manifest = finish(dst)
        head = f"{printable(dst)}: {show.count(manifest.count)} samples in {len(manifest.parts)} parts"
        say("\n".join([head, *show.outcome(dst, manifest)]), quiet=quiet)
        return status_of(manifest)
    if not packs:
        raise click.UsageError("say which packs to join, and after them DST")
    with resumable(), show.ProgressDisplay(dst.name, quiet=quiet) as display:
        summary = merge(
            packs,
            dst,
            classes=class_map or "same",
            prefixes=prefixes,
            shard_size=shard_size,
            workers=workers,
            overwrite=overwrite,
            fresh=fresh,
            progress=lambda p: display.update(p.done, p.total, read=p.bytes_read),
        )
    say(show.conversion(summary), quiet=quiet)
    return status_of(summary.manifest)
