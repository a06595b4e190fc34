"""The options of a conversion, each declared once.

A class holds the options of one step, a field an option: its name, type and default, and beside them what the command
line shows of it. `packer._cli` makes its options of these fields, and requests inherit them and check their values. The
signature and the docstring of `packer.convert` spell them once more, for editors and for `help`; a test compares both
with this table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from packer._codecs import CODECS, INTERPOLATIONS, LABEL_TYPES, MAX_PIXELS, RESIZE_MODES, TO_8_BIT
from packer._storage.remote.urls import user_path
from packer._storage.system import require_count
from packer.errors import flag

AUDITS = ("structure", "decode")
EXIF_POLICIES = ("ignore", "apply")

OF_THE_PACK = ("format", "classes_from", "parts", "overwrite")
"""The options that a pack decides to which a part is appended."""

GROUPS = {
    "source": "Which images are taken",
    "labels": "Their labels",
    "annotations": "Their annotations and other fields",
    "image": "What is stored of an image",
    "output": "The pack",
    "run": "The run",
}
"""The groups of options, in an order for readers."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Facts of an option beside its name, type and default.

    Attributes
    ----------
    kind : {"flag", "switch", "count", "choice", "text", "char", "size", "path", "file", "directory", "pack"}
        A switch is True, False or None, where nobody decides. A pack is a path or a URL, a char one character.
    group : str
        One of `GROUPS`.
    help : str
        The sentence of the command line.
    metavar : str, optional
        What stands for the value in the help.
    choices : tuple of str
        The values of a choice.
    most : int, optional
        The highest count; the lowest one is `least`.
    taken_away : bool
        Whether the flag of the command line is ``--no-NAME``, which makes False of what is True without it.
    repeated : bool
        Whether the command line takes it several times, and a function a sequence.
    shows_default : bool
        Whether the help shows the default; where nobody decides, the sentence itself tells what happens.
    recorded : str, optional
        What records on a disk call the option, where that is not the command line's word; see `recorded_as`.
    younger : bool
        Whether manifests of the schema did not have it from the beginning, and have it only where it decides something.
    """

    kind: str
    group: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int | None = None
    taken_away: bool = False
    repeated: bool = False
    shows_default: bool = False
    recorded: str | None = None
    younger: bool = False


def _option(kind: str, group: str, help: str, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field that declares an option."""
    return field(default=default, metadata={"option": Option(kind=kind, group=group, help=help, **more)})


def _flag(group: str, help: str, **more: Any) -> Any:
    return _option("flag", group, help, False, **more)


def _several(group: str, metavar: str, help: str, kind: str = "text") -> Any:
    """Declare texts or paths that the command line takes one by one."""
    return _option(kind, group, help, (), metavar=metavar, repeated=True)


def options_of(*kinds: type) -> Iterator[tuple[str, Option]]:
    """Yield the options that classes declare, in their order, by name."""
    for kind in kinds:
        for one in fields(kind):
            if "option" in one.metadata:
                yield one.name, one.metadata["option"]


def recorded_as(name: str, option: Option) -> str:
    """Return what records on a disk call an option; the empty text where they have none such."""
    return flag(name)[2:].replace("-", "_") if option.recorded is None else option.recorded


def require_counts(options: Any) -> None:
    """Raise TypeError or ValueError where a count among the options of a request is none, or too low."""
    for name, option in options_of(type(options)):
        if option.kind in ("count", "size"):
            require_count(name, getattr(options, name), option.least)


def require_choices(options: Any, kind: type) -> None:
    """Raise ValueError where a request has another value than the choices of an option that `kind` declares."""
    for name, option in options_of(kind):
        value = getattr(options, name)
        if option.choices and value is not None and value not in option.choices:
            two = len(option.choices) == 2
            allowed = " or ".join(map(repr, option.choices)) if two else f"one of {', '.join(option.choices)}"
            raise ValueError(f"{name} is {allowed}, not {value!r}")


def values_of(
    kind: type, arguments: Mapping[str, Any], path: Callable[[str | os.PathLike[str]], Path] = user_path
) -> dict[str, Any]:
    """Return those of a function's arguments that are options of `kind`, each path as a `Path`.

    Parameters
    ----------
    kind : type
        A class that declares options.
    arguments : mapping
        Arguments by name, also others.
    path : callable
        Makes a `Path` of a path; where URLs are none of them, it raises for one.
    """
    values = {name: arguments[name] for name, _ in options_of(kind) if name in arguments}
    for name, option in options_of(kind):
        if option.kind in ("path", "file", "directory", "pack") and values.get(name) is not None:
            values[name] = list(map(path, _each(values[name]))) if option.repeated else path(values[name])
    return values


def _each(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Iterable[str | os.PathLike[str]]:
    return [paths] if isinstance(paths, str | os.PathLike) else paths


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options that choose the images, and say their labels and fields."""

    labels: Path | None = _option(
        "path",
        "labels",
        "Take paths (relative to SRC, or below it) and labels from a table instead of from directory names: .csv, .tsv, .jsonl or .parquet. Whole numbers are class ids as they stand, -1 is unlabeled; other texts are names of classes.",
        metavar="FILE",
    )
    path_column: str | None = _option("text", "labels", "The column of --labels that holds the paths.  [default: path]")
    label_column: str | None = _option(
        "text", "labels", "The column of --labels that holds the labels.  [default: label]"
    )
    delimiter: str | None = _option(
        "char",
        "labels",
        "What separates the columns of --labels: one character, or `tab`.  [default: tab for FILE.tsv, else a comma]",
    )
    label_type: str | None = _option(
        "choice",
        "labels",
        "What the labels of --labels are: class, names whose ids follow their order as text; int or float, numbers that are kept, without classes.  [default: ids where all are whole numbers, else names]",
        choices=tuple(LABEL_TYPES),
    )
    suffix: str | None = _option(
        "text",
        "labels",
        "What the paths in --labels lack at their end, such as .jpg.  [default: that of the one image which a path without a suffix fits]",
        metavar=".JPG",
    )
    no_header: bool = _flag(
        "labels",
        "The first line of --labels is a row, and no header: columns are called 1, 2, ... .  [default columns: 1 for the paths, 2 for the labels]",
    )
    unlabeled: bool = _flag(
        "labels",
        "Take images without labels, with the label -1: the rows of --labels, or the samples of a container, that have none; of a directory without --labels, all images below it.",
    )
    strict: bool = _flag(
        "source",
        "Refuse to begin where images, labels or fields are left out, images are unlabeled or classes are renumbered, unless an option asks for it.",
        recorded="",
    )
    no_classes: bool = _flag(
        "labels",
        "Take all images below SRC, or all rows of --labels, with the label -1: there are no classes.",
    )
    fields: Sequence[str] | Mapping[str, str] = _several(
        "annotations",
        "NAME[:KIND]=TEMPLATE",
        "A file beside each image, such as mask=../masks/{stem}.png, relative to SRC. {path} {dir} {name} {stem} {class} are parts of the image's path. KIND is image, mask, text, json, array or bytes.  [default: by the name and the suffix]",
    )
    columns: Sequence[str] | Mapping[str, str] = _several(
        "annotations",
        "NAME[=COLUMN]:KIND",
        "A column of --labels as a field: caption:text, age:float32 (a dtype is a scalar), split:class, tags:labels, box:boxes, keypoints, json, array:float32, mask=mask_path:mask.",
    )
    on_missing: str | None = _option(
        "choice",
        "annotations",
        "What becomes of an image without the file or the row of a field: an error, no value, or it is left out.  [default: error]",
        choices=("error", "null", "skip"),
    )
    keys: Sequence[str] | Mapping[str, str] = _several(
        "annotations",
        "NAME[:KIND]=KEY",
        "What in a container of another tool is the image, the label or the name, or becomes a field: image=image/encoded, label=cls, label=json:category (a member of the JSON in a tar), label=directory (of the images in a tar), caption:text=txt.  [default: by the container's own names]",
    )
    no_metadata: bool = _flag("annotations", "Leave metadata.csv, metadata.jsonl or metadata.parquet in SRC alone.")
    coco: Sequence[Path] = _several(
        "annotations",
        "FILE.json",
        "Take images and fields from annotations in COCO's format: boxes, categories, segmentations, keypoints, captions. SRC is the directory that file_name counts from. Several files of the same images are joined.",
        "path",
    )
    masks: bool = _flag(
        "annotations",
        "Draw the annotations of --coco into the field `mask`, as ids of categories: crowds below others, smaller ones on top.",
    )
    voc: Path | None = _option(
        "path",
        "annotations",
        "Take fields from Annotations/*.xml and SegmentationClass in DIR, such as VOCdevkit/VOC2012; SRC is DIR or its JPEGImages. --split names a list in ImageSets.",
        metavar="DIR",
    )
    yolo: Path | None = _option(
        "path",
        "annotations",
        "Take fields from the files in labels beside images; SRC is the directory of images. --split names a split of DATA.yaml.",
        metavar="DATA.yaml",
    )
    split: str | None = _option("text", "annotations", "Which images of --voc or --yolo.", metavar="NAME")
    extensions: str | Sequence[str] | None = _option(
        "text",
        "source",
        "The suffixes of images, in place of ImageFolder's (.jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp), as with its argument of that name.",
        metavar=".JPG,.GIF",
    )
    any_image: bool = _flag(
        "source", "Open the files of other suffixes too, and take those that begin as an image does."
    )
    skip_hidden: bool = _flag(
        "source",
        "Leave out files and directories whose names begin with a dot. ImageFolder takes them, and makes a class of a hidden directory.",
    )
    allow_empty: bool = _flag(
        "source",
        "A class directory may have no image, and keeps its id, as with ImageFolder's argument of that name.",
    )
    classes_from: Path | None = _option(
        "pack",
        "labels",
        "Use the class ids of another pack (for val: train's), of labels and of --column NAME:class or NAME:labels. A class that is not in it is an error; --on-error skip leaves out its images.",
        metavar="PACK",
    )
    limit: int | None = _option("count", "source", "Take the first N images only.", metavar="N")
    sample: int | None = _option(
        "count",
        "source",
        "Take N images only, evenly spread over the list, and so over the classes; their order stays.",
        metavar="N",
    )
    where: str | None = _option(
        "text",
        "source",
        "Take those samples of the pack SRC only that meet a condition, such as 'age > 30 and split == \"train\"'; see the guide. --limit and --sample count these.",
        metavar="CONDITION",
    )


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options that say what is stored of an image, and how it is checked."""

    resize: int | None = _option("count", "image", "Resize to N pixels, anti-aliased; see --resize-mode.", metavar="N")
    resize_mode: str | None = _option(
        "choice",
        "image",
        "What becomes N: short, the shorter side; long, the longer side; exact, both; crop, the shorter side, then the centre square; pad, the longer side, then black borders to a square.  [default: short]",
        choices=RESIZE_MODES,
    )
    upscale: bool = _flag("image", "Enlarge images that are smaller than --resize; without it they are never enlarged.")
    interpolation: str | None = _option(
        "choice",
        "image",
        "Anti-aliased, as in Pillow and torchvision.  [default: bilinear]",
        choices=INTERPOLATIONS,
    )
    codec: str | None = _option(
        "choice",
        "image",
        "What is stored: keep, the files' own bytes; raw, uint8 RGB pixels; or a re-encoding. Files that have the right type and need no resizing keep their bytes.  [default: keep; jpeg with --resize]",
        choices=tuple(CODECS),
    )
    recode: bool = _flag(
        "image",
        "Encode files anew that are of the type of --codec already and need no resizing, as for a lower --quality.",
        younger=True,
    )
    to_8_bit: str | None = _option(
        "choice",
        "image",
        "How an image that has more than 8 bits a channel, or bands that RGB does not show, becomes 8-bit RGB where pixels are encoded: clip, as Pillow reads it, grey cut off at 255; type, scaled by the range of its type, 65535 to 255, floats from 0 to 1; file, by its own lowest and highest value. Without this option such an image is refused.",
        choices=TO_8_BIT,
        younger=True,
    )
    quality: int | None = _option("count", "image", "Quality of jpeg and webp.  [default: 90]", most=100)
    tiles: bool | None = _option(
        "switch",
        "image",
        "Store JPEGs tiled, so that a crop is decoded without the rest of its image. Kept JPEGs are transcoded losslessly: their pixels stay, their bytes do not.  --no-tiles encodes without tiles; images that have some and are kept, keep them.  [default: what is encoded is tiled, what is kept is not]",
    )
    exif: str = _option(
        "choice",
        "image",
        "Whether the EXIF orientation turns the image; ImageFolder ignores it.",
        "ignore",
        choices=EXIF_POLICIES,
        shows_default=True,
    )
    audit: str = _option(
        "choice",
        "image",
        "How each image is checked: structure, its real type, header, size and end; decode, all its pixels.",
        "structure",
        choices=AUDITS,
        shows_default=True,
        recorded="check",
    )
    max_pixels: int | None = _option(
        "count",
        "image",
        f"Report images with more pixels than this.  [default, and most: {MAX_PIXELS}, Pillow's limit]",
        metavar="N",
        most=MAX_PIXELS,
    )


_SHARD_SIZE = "Most bytes of a file of a .pth, .wds, .tfrecord, .mds, .n5 or .parquet pack, such as 1GiB.  [default: 512MiB; 64MiB of .n5]"


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The pack that is made, and the run that makes it."""

    format: str | None = _option(
        "text",
        "output",
        "Format of the pack: lmdb, hdf5, pth, wds, tfrecord, rec, mds, caffe, n5 or parquet.  [default: by DST's suffix]",
        metavar="FORMAT",
    )
    on_error: str = _option(
        "choice",
        "run",
        "What to do with a sample that cannot be used, such as a file that is no readable image or changed after it was listed, a bad row of a table or a bad annotation: stop, or leave it out, list it, and exit with status 3.",
        "fail",
        choices=("fail", "skip"),
        shows_default=True,
    )
    report: Path | None = _option(
        "file",
        "run",
        "Write a line for every file with a finding and every file left out.",
        metavar="FILE.jsonl",
    )
    workers: int | None = _option(
        "count",
        "run",
        "Threads.  [default: the CPUs that affinity, cgroup and SLURM grant, and one more to encode]",
        metavar="N",
    )
    shard_size: int | None = _option("size", "output", _SHARD_SIZE, metavar="SIZE")
    parts: int | None = _option(
        "count",
        "output",
        "Make DST a directory of N packs that is read as one; see docs/clusters.md.",
        metavar="N",
    )
    overwrite: bool = _flag("output", "Replace DST, once the new pack is complete.")
    fresh: bool = _flag("run", "Start over instead of continuing an interrupted conversion.")
    ignore_free_space: bool = _flag(
        "run", "Begin even where the disk has less room than the files take that keep their bytes."
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a command: how often and where it converts; of these, functions have `scratch` alone."""

    splits: tuple[str, ...] = _several(
        "source",
        "NAME",
        "SRC holds splits: convert this one, or `all` of them, each to a pack of its own with one class map. May be given several times.",
    )
    part: int | None = _option(
        "count",
        "run",
        "Make part K of --parts only, counted from 0, as a task of a job array; the last task to end finishes the pack.",
        metavar="K",
        least=0,
    )
    cluster: str | None = _option(
        "text",
        "run",
        "With --parts: make them on a Dask cluster: tcp://HOST:PORT, file:SCHEDULER.json, local:N, or slurm, pbs, lsf, sge as dask-jobqueue is configured (such as by scripts/slurm/jobqueue.yaml).",
        metavar="WHERE",
    )
    jobs: int | None = _option("count", "run", "How many jobs --cluster submits to a queue.  [default: 1]", metavar="N")
    scratch: Path | None = _option(
        "directory",
        "run",
        "With --part or --cluster: make each part in this directory of the node's own disk, then copy it to its place, or upload it where DST is a URL. Without them, of a DST that is a URL: make the pack here, then upload it.  [default for a URL: packer-UID in the system's temporary directory]",
        metavar="DIR",
    )
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Options of an index, beside those of its source."""

    checksums: bool = _option(
        "flag",
        "image",
        "Read no more than the structure of the files and the headers of the images.",
        True,
        taken_away=True,
    )
    exif: str = _option(
        "choice",
        "image",
        "Whether images are shown as their EXIF orientation says.  [default: ignore, as ImageFolder does]",
        "ignore",
        choices=EXIF_POLICIES,
    )
    on_error: str = _option(
        "choice",
        "run",
        "What to do with a sample that cannot be used, such as an image that cannot be read or a bad annotation: stop, or leave it out and list it.  [default: fail]",
        "fail",
        choices=("fail", "skip"),
    )
    overwrite: bool = _flag("output", "Replace OUT.index.")


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Options by which packs are joined."""

    classes: str = _option(
        "choice",
        "labels",
        "same: the packs must have the same classes; union: the first pack's keep their ids, and those that others have beyond them follow.  [default: same]",
        "same",
        choices=("same", "union"),
    )
    prefixes: Sequence[str] = _several(
        "source",
        "NAME",
        "Put NAME/ before the names of a pack's samples; once for each of PACKS, in their order. Labels stay.",
    )
    workers: int | None = _option("count", "run", "Threads.  [default: the CPUs granted]", metavar="N")
    shard_size: int | None = _option("size", "output", _SHARD_SIZE, metavar="SIZE")
    overwrite: bool = _flag("output", "Replace DST, once the new pack is complete.")
    fresh: bool = _flag("run", "Start over instead of continuing an interrupted merge.")
