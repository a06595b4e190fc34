"""`packer convert`."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import show
from packer._cli.converting import convert_listed, explaining
from packer._cli.options import RunOptions
from packer._cli.parts import make_parts
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.source import CommandOfSource, requested, require_one_class_map, source_options, targets
from packer._cli.uploading import convert_to_url
from packer._cli.values import PackPath, Size, UserPath
from packer._cli.writing import done_already, say, status_of
from packer._sample import CODECS, TO_8_BIT
from packer._storage.remote.urls import is_url

if TYPE_CHECKING:
    from packer._conversion.request import ConversionRequest

__all__ = ["convert_command"]


@click.command("convert", cls=CommandOfSource)
@click.argument("src", type=PackPath())
@click.argument("dst", type=PackPath())
@click.option(
    "--format",
    metavar="FORMAT",
    help="Format of the pack: lmdb, hdf5, pth, wds, tfrecord, rec, mds, caffe, n5 or parquet.  [default: by DST's suffix]",
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME",
    help="SRC holds splits: convert this one, or `all` of them, each to a pack of its own with one class map. May be given several times.",
)
@source_options
@click.option(
    "--where",
    metavar="CONDITION",
    help="Take those samples of the pack SRC only that meet a condition, such as 'age > 30 and split == \"train\"'; see the guide. --limit and --sample count these.",
)
@click.option(
    "--resize", type=click.IntRange(min=1), metavar="N", help="Resize to N pixels, anti-aliased; see --resize-mode."
)
@click.option(
    "--resize-mode",
    type=click.Choice(["short", "long", "exact", "crop", "pad"]),
    help="What becomes N: short, the shorter side; long, the longer side; exact, both; crop, the shorter side, then the centre square; pad, the longer side, then black borders to a square.  [default: short]",
)
@click.option(
    "--upscale", is_flag=True, help="Enlarge images that are smaller than --resize; without it they are never enlarged."
)
@click.option(
    "--interpolation",
    type=click.Choice(["bilinear", "bicubic"]),
    help="Anti-aliased, as in Pillow and torchvision.  [default: bilinear]",
)
@click.option(
    "--codec",
    type=click.Choice(list(CODECS)),
    help="What is stored: keep, the files' own bytes; raw, uint8 RGB pixels; or a re-encoding. Files that have the right type and need no resizing keep their bytes.  [default: keep; jpeg with --resize]",
)
@click.option(
    "--recode",
    is_flag=True,
    help="Encode files anew that are of the type of --codec already and need no resizing, as for a lower --quality.",
)
@click.option(
    "--to-8-bit",
    type=click.Choice(list(TO_8_BIT)),
    help="How an image that has more than 8 bits a channel, or bands that RGB does not show, becomes 8-bit RGB where pixels are encoded: clip, as Pillow reads it, grey cut off at 255; type, scaled by the range of its type, 65535 to 255, floats from 0 to 1; file, by its own lowest and highest value. Without this option such an image is refused.",
)
@click.option("--quality", type=click.IntRange(1, 100), help="Quality of jpeg and webp.  [default: 90]")
@click.option(
    "--tiles/--no-tiles",
    default=None,
    help="Store JPEGs tiled, so that a crop is decoded without the rest of its image. Kept JPEGs are transcoded losslessly: their pixels stay, their bytes do not.  --no-tiles encodes without tiles; images that have some and are kept, keep them.  [default: what is encoded is tiled, what is kept is not]",
)
@click.option(
    "--exif",
    type=click.Choice(["ignore", "apply"]),
    default="ignore",
    show_default=True,
    help="Whether the EXIF orientation turns the image; ImageFolder ignores it.",
)
@click.option(
    "--audit",
    type=click.Choice(["structure", "decode"]),
    default="structure",
    show_default=True,
    help="How each image is checked: structure, its real type, header, size and end; decode, all its pixels.",
)
@click.option("--check", type=click.Choice(["structure", "decode"]), hidden=True)  # the earlier name of --audit
@click.option(
    "--max-pixels",
    type=click.IntRange(min=1, max=178_956_970),
    metavar="N",
    help="Report images with more pixels than this.  [default, and most: 178956970, Pillow's limit]",
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do with a sample that cannot be used, such as a file that is no readable image or changed after it was listed, a bad row of a table or a bad annotation: stop, or leave it out, list it, and exit with status 3.",
)
@click.option(
    "--report",
    type=UserPath(dir_okay=False),
    metavar="FILE.jsonl",
    help="Write a line for every file with a finding and every file left out.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads.  [default: the CPUs that affinity, cgroup and SLURM grant, and one more to encode]",
)
@click.option(
    "--shard-size",
    type=Size(),
    metavar="SIZE",
    help="Most bytes of a file of a .pth, .wds, .tfrecord, .mds, .n5 or .parquet pack, such as 1GiB.  "
    "[default: 512MiB; 64MiB of .n5]",
)
@click.option(
    "--parts",
    type=click.IntRange(min=1),
    metavar="N",
    help="Make DST a directory of N packs that is read as one; see docs/clusters.md.",
)
@click.option(
    "--part",
    type=click.IntRange(min=0),
    metavar="K",
    help="Make part K of --parts only, counted from 0, as a task of a job array; the last task to end finishes the pack.",
)
@click.option(
    "--cluster",
    metavar="WHERE",
    help="With --parts: make them on a Dask cluster: tcp://HOST:PORT, file:SCHEDULER.json, local:N, or slurm, pbs, lsf, sge as dask-jobqueue is configured (such as by scripts/slurm/jobqueue.yaml).",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="How many jobs --cluster submits to a queue.  [default: 1]"
)
@click.option(
    "--scratch",
    type=UserPath(file_okay=False),
    metavar="DIR",
    help="With --part or --cluster: make each part in this directory of the node's own disk, then copy it to its place, or upload it where DST is a URL. Without them, of a DST that is a URL: make the pack here, then upload it.  [default for a URL: packer-UID in the system's temporary directory]",
)
@click.option("--overwrite", is_flag=True, help="Replace DST, once the new pack is complete.")
@click.option("--fresh", is_flag=True, help="Start over instead of continuing an interrupted conversion.")
@click.option(
    "--ignore-free-space",
    is_flag=True,
    help="Begin even where the disk has less room than the files take that keep their bytes.",
)
@reading_options
@progress_options()
def convert_command(src: Path, dst: Path, **values: Any) -> int:
    """Convert the images below SRC into the pack DST.

        SRC is a directory with one subdirectory a class, as for torchvision's ImageFolder; a pack, whose samples keep
    their bytes unless options say otherwise; or what another tool made: WebDataset tars, TFRecord, RecordIO, Parquet,
    MDS, LMDB, zip and others, as a file, a directory or a pattern in quotes (docs/containers.md). DST is FILE.lmdb,
    FILE.h5 or DIRECTORY.pth, or for other tools to read as well DIRECTORY.wds (WebDataset), .tfrecord, .rec (MXNet),
    .mds (MosaicML Streaming), .caffe, .n5 or .parquet (Hugging Face); or the URL of one, such as s3://bucket/train.lmdb
    (docs/uploading.md). It appears when it is complete; the same command continues an interrupted conversion.

        \b
          packer convert imagenet/train train.lmdb                       the files' own bytes
          packer convert imagenet/train train-256.h5 --resize 256        the shorter side at 256, JPEG
          packer convert imagenet/val val.lmdb --classes-from train.lmdb
          packer convert train.lmdb train.h5                             the samples' own bytes
          packer convert 'shards/*.tar' train.lmdb                       the samples of another tool
    """
    from packer._conversion.request import ConversionRequest

    how = RunOptions(**{field.name: values.pop(field.name) for field in fields(RunOptions)})
    values["audit"] = values.pop("check") or values["audit"]
    if how.splits and (values["voc"] or values["yolo"]):
        values["split"], how = _one_split(how)
    # Pillow's remarks on single files go to stderr without the file's name; the summary and the report have both.
    warnings.filterwarnings("ignore", module="PIL")
    request = requested(ConversionRequest, src=src, dst=dst, **values)
    if is_url(src) and how.splits:
        raise click.UsageError("--split is for a directory: convert SRC/SPLIT, the others with --classes-from")
    if (request.labels is not None or request.coco) and how.splits:
        option = "--coco" if request.coco else "--labels"
        raise click.UsageError(f"{option} is for one split: convert SRC/SPLIT with it")
    if how.splits and is_url(dst) and request.parts is None:
        return _convert_splits(request, how)
    if is_url(dst) and not how.splits and how.part is None and how.cluster is None and how.jobs is None:
        return convert_to_url(request, how)
    if any(option is not None for option in (request.parts, how.part, how.cluster, how.jobs, how.scratch)):
        with explaining(src):
            return make_parts(request, how)
    if how.splits:
        return _convert_splits(request, how)
    request.require_destination()
    with show.ProgressDisplay(dst.name, quiet=how.quiet) as display:
        display.phase(f"listing {src.name}")
        summary = convert_listed(request, request.open(dst, request.classes()), display, quiet=how.quiet)
    say(show.conversion(summary), quiet=how.quiet)
    return status_of(summary.manifest)


def _one_split(how: RunOptions) -> tuple[str, RunOptions]:
    """Return the split that a list of annotations has, and the other options; UsageError where there are several."""
    if len(how.splits) > 1 or how.splits == ("all",):
        raise click.UsageError("--voc and --yolo convert one split at a time: say each with a pack of its own")
    return how.splits[0], replace(how, splits=())


def _convert_splits(request: ConversionRequest, how: RunOptions) -> int:
    """Convert each split to a pack of its own, all with one class map; return the exit status."""
    from packer._conversion.provenance import made_before

    requests = [
        replace(request, src=root, dst=destination, report=_report(request.report, root))
        for root, destination in targets(request.src, request.dst, how.splits)
    ]
    for split in requests:
        if not is_url(split.dst) and not os.path.exists(split.dst):
            split.require_destination()
    statuses = set()
    classes = request.classes()
    if classes is None:
        require_one_class_map([split.src for split in requests])
    for split in requests:
        with show.ProgressDisplay(split.dst.name, quiet=how.quiet) as display:
            display.phase(f"listing {split.src.name}")
            source = split.open(split.dst, classes, is_split=True)
            classes = source.classes  # the first split's, for all
            before = None if split.overwrite else made_before(split.dst, source, split.recipe, split.format_row.name)
            here = before is None and not is_url(split.dst)
            summary = convert_listed(split, source, display, quiet=how.quiet) if here else None
        if before is None and is_url(split.dst):
            statuses.add(convert_to_url(split, how, source))
        elif summary is None:
            assert before is not None
            statuses.add(done_already(split.dst, before, quiet=how.quiet))
        else:
            say(show.conversion(summary), quiet=how.quiet)
            statuses.add(status_of(summary.manifest))
    return max(statuses)


def _report(report: Path | None, root: Path) -> Path | None:
    """Return where the report of a split goes: it has the split's name, as its pack has."""
    return None if report is None else report.with_name(f"{report.stem}-{root.name}{report.suffix}")
