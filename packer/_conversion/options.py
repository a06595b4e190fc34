"""The options of a conversion, each declared once.

Each class declares the options of one step. Each dataclass field is one option, with its name, type, default and help
text. `packer._cli` generates the command-line options from these classes. The classes of requests inherit from them and
check the values. The signature and the docstring of `packer.convert` repeat the options, for editors and for `help`. A
test compares both with these classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from packer._codecs import CODECS, INTERPOLATIONS, LABEL_TYPES, MAX_PIXELS, QUALITY, RESIZE_MODES, TO_8_BIT
from packer._storage.remote.urls import user_path
from packer._storage.system import require_count
from packer.errors import OptionError, flag

AUDITS = ("structure", "decode")
EXIF_POLICIES = ("ignore", "apply")
ERROR_POLICIES = ("fail", "skip")

OF_THE_PACK = ("format", "classes_from", "parts", "overwrite")
"""The options that `packer append` takes from the pack."""

GROUPS = {
    "command": "Options",
    "source": "Input",
    "image": "What is stored",
    "labels": "Labels",
    "fields": "Fields and annotations",
    "errors": "Errors and resuming",
    "run": "Where it runs",
}
"""The groups of options, with the titles of their panels in the help, in order."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Properties of an option in addition to its name, type and default.

    Attributes
    ----------
    kind : {"flag", "switch", "count", "choice", "text", "char", "size", "path", "file", "directory", "pack"}
        A switch is True, False, or None for undecided. A pack is a path or a URL; a char is one character.
    group : str
        One of `GROUPS`.
    help : str
        The help text on the command line.
    metavar : str, optional
        The placeholder for the value in the help.
    choices : tuple of str
        The allowed values, if `kind` is ``choice``.
    least, most : int, optional
        The smallest and the largest allowed value, if `kind` is ``count`` or ``size``.
    hint : str
        The end of the message that refuses a value: advice on the value to pass instead.
    common : bool
        True if most users need the option; the help then shows it before all groups.
    taken_away : bool
        True if the option is True by default; its flag on the command line is then ``--no-NAME``.
    repeated : bool
        Whether the command line accepts the option several times, and functions accept a sequence.
    shows_default : bool
        Whether the help shows the default.
    assumed : optional
        The value that applies if the option is None; the help shows this value as the default. `assumed` is None if the
        applied value depends on other options or on the source.
    recorded : str, optional
        The name of the option in manifests and other records on disk, if it differs from the name on the command line;
        see `recorded_as`.
    younger : bool
        Whether the option is newer than the schema of manifests. A manifest contains such an option only if it has an
        effect.
    """

    kind: str
    group: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int | None = None
    hint: str = ""
    common: bool = False
    taken_away: bool = False
    repeated: bool = False
    shows_default: bool = False
    assumed: Any = None
    recorded: str | None = None
    younger: bool = False


def _option(kind: str, group: str, help: str, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field that declares an option."""
    return field(default=default, metadata={"option": Option(kind=kind, group=group, help=help, **more)})


def _flag(group: str, help: str, **more: Any) -> Any:
    return _option("flag", group, help, False, **more)


def _several(group: str, metavar: str, help: str, kind: str = "text", **more: Any) -> Any:
    """Declare an option for several texts or paths; on the command line, users repeat the option."""
    return _option(kind, group, help, (), metavar=metavar, repeated=True, **more)


def _on_error() -> Any:
    return _option(
        "choice",
        "errors",
        "What to do with an unusable image or annotation. fail: stop; skip: leave it out, and exit with status 3.",
        ERROR_POLICIES[0],
        choices=ERROR_POLICIES,
        shows_default=True,
        common=True,
    )


def _exif(help: str) -> Any:
    return _option("choice", "image", help, EXIF_POLICIES[0], choices=EXIF_POLICIES, shows_default=True)


def options_of(*kinds: type) -> Iterator[tuple[str, Option]]:
    """Yield the name and the `Option` of each field of these classes that declares an option, in order."""
    for kind in kinds:
        for one in fields(kind):
            if "option" in one.metadata:
                yield one.name, one.metadata["option"]


def recorded_as(name: str, option: Option) -> str:
    """Return the name of an option in records on disk; empty if records do not contain the option."""
    return flag(name)[2:].replace("-", "_") if option.recorded is None else option.recorded


def require_counts(options: Any) -> None:
    """Raise TypeError or ValueError if a count in a request's options is not a whole number in its range."""
    for name, option in options_of(type(options)):
        if option.kind in ("count", "size"):
            require_count(name, getattr(options, name), option.least, option.most)


def require_choices(options: Any, kind: type) -> None:
    """Raise ValueError if a value in `options` is neither a choice that `kind` declares for its option nor the default.

    So None is refused unless it is the default.
    """
    for name, option in options_of(kind):
        value = getattr(options, name)
        if option.choices and value not in (*option.choices, getattr(kind, name)):
            two = len(option.choices) == 2
            allowed = " or ".join(map(repr, option.choices)) if two else f"one of {', '.join(option.choices)}"
            raise OptionError(f"{name} must be {allowed}, not {value!r}")


def values_of(
    kind: type, arguments: Mapping[str, Any], path: Callable[[str | os.PathLike[str]], Path] = user_path
) -> dict[str, Any]:
    """Return those arguments of a function that are options declared by `kind`, with paths converted to `Path`.

    Parameters
    ----------
    kind : type
        A class that declares options.
    arguments : mapping
        Arguments by name; may include arguments that are not options.
    path : callable
        Converts a path to a `Path`; raises an error for a URL if URLs are not allowed.
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
    """Options that select the images, and their labels and fields."""

    labels: Path | None = _option(
        "path",
        "labels",
        "Read image paths and labels from a table (.csv, .tsv, .jsonl, .parquet), not from directory names.",
        metavar="FILE",
        common=True,
    )
    path_column: str | None = _option(
        "text",
        "labels",
        "Column of --labels with the image paths, relative to SRC or absolute.",
        metavar="COLUMN",
        assumed="path",
    )
    label_column: str | None = _option(
        "text", "labels", "Column of --labels with the labels.", metavar="COLUMN", assumed="label"
    )
    delimiter: str | None = _option(
        "char",
        "labels",
        "Column separator of --labels: one character, or `tab`.  [default: tab for FILE.tsv, otherwise a comma]",
        metavar="CHAR",
    )
    label_type: str | None = _option(
        "choice",
        "labels",
        "Type of the labels in --labels. class: class names, which get ids in sorted order; int, float: numbers, stored unchanged, without classes.  [default: class; but if all labels are whole numbers, packer takes them as class ids, and -1 as unlabeled]",
        choices=tuple(LABEL_TYPES),
    )
    suffix: str | None = _option(
        "text",
        "labels",
        "Append this suffix to each path in --labels.  [default: a path without a suffix, such as cat/1, means the image file cat/1.*, if there is exactly one]",
        metavar=".JPG",
    )
    no_header: bool = _flag(
        "labels",
        "--labels has no header line. Its columns are named 1, 2, 3, ...; by default, column 1 has the paths and column 2 the labels.",
    )
    unlabeled: bool = _flag(
        "labels",
        "Accept images without a label and store -1 for them. If SRC is a directory and you do not pass --labels, take all images in SRC; the pack then has no classes.",
    )
    strict: bool = _flag(
        "errors",
        "Before anything is written, check the source, and stop with an error if an image, a label or a field would be left out, if an image has no label, or if a class would get another id than in SRC. Losses that you request with another option, such as --limit, do not count.",
        recorded="",
    )
    no_classes: bool = _flag(
        "labels",
        "Ignore all labels: all images get the label -1, and the pack has no classes.",
    )
    fields: Sequence[str] | Mapping[str, str] = _several(
        "fields",
        "NAME[:KIND]=TEMPLATE",
        "For each image, store another file as a field, such as mask=../masks/{stem}.png. TEMPLATE is a path relative to SRC, with the placeholders {path} {dir} {name} {stem} {class}. KIND is image, mask, text, json, array or bytes.  [default: NAME and the suffix of TEMPLATE decide KIND]",
    )
    columns: Sequence[str] | Mapping[str, str] = _several(
        "fields",
        "NAME[=COLUMN]:KIND",
        "Store a column of the file of --labels as a field. Give the name and the kind, for example caption:text, age:float32, split:class, tags:labels or box:boxes. NAME is the name of the field; COLUMN is needed only if the column has another name: mask=mask_path:mask stores the files named in the column mask_path as the field mask. KIND may also be keypoints, json or array:float32.",
    )
    on_missing: str | None = _option(
        "choice",
        "fields",
        "What to do if an image lacks the file of a --field, or its row in a table of fields such as metadata.csv. error: stop; null: store no value; skip: leave the image out.",
        choices=("error", "null", "skip"),
        assumed="error",
    )
    keys: Sequence[str] | Mapping[str, str] = _several(
        "fields",
        "NAME[:KIND]=KEY",
        "For files of other tools: choose what is read as the image, the label, the sample's name or a field. NAME is `image`, `label`, `name` or a name for the field. KIND is the kind of a field: text, json, bytes, image, mask, class, labels, boxes, keypoints, segmentation, array, or a type of numbers such as int64. KEY is the key, column or member to read, or its position. For example, image=image/encoded reads the image from the key image/encoded, and caption:text=txt reads a field named caption, of the kind text, from the member txt. In a tar, label=json:category takes the label from the value of `category` in the JSON file, and label=directory from the directory of the image.  [default: the usual keys of the format]",
    )
    no_metadata: bool = _flag(
        "fields", "Ignore metadata.csv, metadata.jsonl, metadata.parquet and dataset.json in SRC."
    )
    coco: Sequence[Path] = _several(
        "fields",
        "FILE.json",
        "Read images and fields from COCO annotations: boxes, categories, segmentations, keypoints, captions. SRC is the directory to which the file_name entries are relative. If several FILEs describe the same images, their annotations are merged.",
        "path",
    )
    masks: bool = _flag(
        "fields",
        "For each image, draw the segmentations of --coco into a mask whose pixels are category ids, and store it as the field `mask`. Crowd regions are painted first, then large objects, then small ones over them.",
    )
    voc: Path | None = _option(
        "path",
        "fields",
        "Read fields from Annotations/*.xml and SegmentationClass in DIR, such as VOCdevkit/VOC2012. SRC is DIR or DIR/JPEGImages; --split names a list of images in DIR/ImageSets.",
        metavar="DIR",
    )
    yolo: Path | None = _option(
        "path",
        "fields",
        "Read fields from YOLO label files. SRC is the directory with the images; --split names a split of DATA.yaml.",
        metavar="DATA.yaml",
    )
    split: str | None = _option("text", "fields", "The split of --voc or --yolo.", metavar="NAME")
    extensions: str | Sequence[str] | None = _option(
        "text",
        "source",
        "Suffixes of image files.  [default, as for ImageFolder: .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp]",
        metavar=".JPG,.GIF",
    )
    any_image: bool = _flag("source", "Take every file that contains an image, whatever the file's suffix.")
    skip_hidden: bool = _flag(
        "source",
        "Skip files and directories whose names begin with a dot. By default packer takes them, as ImageFolder does, and a hidden directory is a class.",
    )
    allow_empty: bool = _flag(
        "source", "Accept class directories without images; they keep their class ids, as in ImageFolder."
    )
    classes_from: Path | None = _option(
        "pack",
        "labels",
        "Use the same class ids as PACK, such as the training pack. --on-error applies to images of classes that are not in PACK.",
        metavar="PACK",
        common=True,
    )
    limit: int | None = _option("count", "source", "Take the first N images.", metavar="N")
    sample: int | None = _option(
        "count",
        "source",
        "Take N images at equal distances in the list of all images, so that each class gets its share.",
        metavar="N",
    )
    where: str | None = _option(
        "text",
        "source",
        "If SRC is a pack, take only the samples that meet a condition, such as 'age > 30 and split == \"train\"' (docs/reading.md). --limit and --sample count only the samples that meet the condition.",
        metavar="CONDITION",
    )


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options for the stored form of images, and for checking them."""

    resize: int | None = _option(
        "count",
        "image",
        "Resize the shorter side to N pixels and store JPEG; see --resize-mode and --codec.",
        metavar="N",
        hint="It is the length of the shorter side; for exactly 256 x 256 pixels pass --resize 256 --resize-mode exact",
        common=True,
    )
    resize_mode: str | None = _option(
        "choice",
        "image",
        "Which side --resize N sets to N pixels. short: the shorter side; long: the longer side; exact: both sides; crop: the shorter side, and then the centre square is cut out; pad: the longer side, and then black borders make the image square.",
        choices=RESIZE_MODES,
        assumed=RESIZE_MODES[0],
    )
    upscale: bool = _flag("image", "Enlarge images that are smaller than --resize; by default they keep their size.")
    interpolation: str | None = _option(
        "choice",
        "image",
        "Filter of --resize, anti-aliased as in Pillow and torchvision.",
        choices=INTERPOLATIONS,
        assumed=INTERPOLATIONS[0],
    )
    codec: str | None = _option(
        "choice",
        "image",
        "How images are stored. keep: the bytes of the files, unchanged; raw: uint8 RGB pixels; jpeg, png, webp, bmp: encoded as this type; files that already have the type and need no resizing stay unchanged.  [default: keep; jpeg with --resize]",
        choices=tuple(CODECS),
    )
    recode: bool = _flag(
        "image",
        "Encode all files again, even those that already have the type of --codec, for example to store them at a lower --quality.",
        younger=True,
    )
    to_8_bit: str | None = _option(
        "choice",
        "image",
        "How to make 8-bit RGB of an image that has more than 8 bits per channel or other bands than RGB, if packer encodes the image. clip: as in Pillow, grey values above 255 become 255; type: scale by the range of the data type (65535 becomes 255; floats must be from 0 to 1); file: scale so that the lowest and highest value in the file become 0 and 255.  [default: refuse such images]",
        choices=TO_8_BIT,
        younger=True,
    )
    quality: int | None = _option(
        "count", "image", "JPEG and WebP quality, 1 to 100.", metavar="N", most=100, assumed=QUALITY
    )
    tiles: bool | None = _option(
        "switch",
        "image",
        "Store JPEGs in tiles, so that a crop is decoded without the rest of the image. With --codec keep, JPEGs are rewritten without loss: the bytes change, the pixels do not. With --no-tiles, no image gets tiles.  [default: JPEGs that packer encodes get tiles; other JPEGs stay unchanged]",
    )
    exif: str = _exif(
        "Whether to rotate images according to their EXIF orientation. ImageFolder ignores the orientation."
    )
    audit: str = _option(
        "choice",
        "errors",
        "How to check each image. structure: check its type, header and size, and that its file is not cut short; decode: also decode all its pixels.",
        AUDITS[0],
        choices=AUDITS,
        shows_default=True,
        recorded="check",
    )
    max_pixels: int | None = _option(
        "count",
        "errors",
        f"Refuse images with more than N pixels; --on-error decides whether to stop or to skip them.  [default and maximum: {MAX_PIXELS}, Pillow's limit]",
        metavar="N",
        most=MAX_PIXELS,
    )


_SHARD_SIZE = "Largest size of a file in a .pth, .wds, .tfrecord, .mds, .n5 or .parquet pack, such as 1GiB.  [default: 512MiB; for .n5 64MiB]"


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options for the new pack, and for the run that makes it."""

    format: str | None = _option(
        "text",
        "image",
        "Format of the pack: lmdb, hdf5, pth, wds, tfrecord, rec, mds, caffe, n5 or parquet.  [default: set by the suffix of DST]",
        metavar="FORMAT",
    )
    on_error: str = _on_error()
    report: Path | None = _option(
        "file",
        "errors",
        "Write a line to FILE.jsonl for each file that was left out or has an unusual property, such as an EXIF rotation.",
        metavar="FILE.jsonl",
    )
    workers: int | None = _option(
        "count",
        "run",
        "Number of threads.  [default: one for each CPU that affinity, cgroup and SLURM grant, and one more if images are encoded]",
        metavar="N",
    )
    shard_size: int | None = _option("size", "image", _SHARD_SIZE, metavar="SIZE")
    parts: int | None = _option(
        "count",
        "run",
        "Write DST as a directory of N packs that readers open as one pack (docs/clusters.md).",
        metavar="N",
    )
    overwrite: bool = _flag("errors", "Replace DST once the new pack is complete.", common=True)
    fresh: bool = _flag("errors", "Start from the beginning instead of continuing an interrupted conversion.")
    ignore_free_space: bool = _flag("errors", "Start even if the disk has less free space than the pack needs.")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that determine where a command converts, and in how many jobs. Python functions have only `scratch`."""

    splits: tuple[str, ...] = _several(
        "source",
        "NAME",
        "The split to convert, or `all`. Each split becomes a pack; all packs have the same class ids.",
        common=True,
    )
    part: int | None = _option(
        "count",
        "run",
        "Make only part K of --parts, counted from 0, as one task of a job array. The last task to end completes the pack.",
        metavar="K",
        least=0,
    )
    cluster: str | None = _option(
        "text",
        "run",
        "Make the --parts on a Dask cluster. WHERE is tcp://HOST:PORT, file:SCHEDULER.json, local:N, slurm, pbs, lsf or sge. slurm, pbs, lsf and sge use the configuration of dask-jobqueue (for example scripts/slurm/jobqueue.yaml).",
        metavar="WHERE",
    )
    jobs: int | None = _option(
        "count", "run", "Number of jobs that --cluster submits to the queue.", metavar="N", assumed=1
    )
    scratch: Path | None = _option(
        "directory",
        "run",
        "Build the pack or part in DIR, on the node's own disk, then copy or upload it to DST. Allowed only with --part, with --cluster, or if DST is a URL.  [default for a URL: packer-UID in the system's temporary directory]",
        metavar="DIR",
    )
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Options of an index, in addition to `SourceOptions`."""

    checksums: bool = _option(
        "flag",
        "image",
        "Store no checksums. packer then reads only the structure of the files and the headers of the images, not all their bytes.",
        True,
        taken_away=True,
    )
    exif: str = _exif(
        "Whether to rotate images according to their EXIF orientation when they are read. ImageFolder ignores the orientation."
    )
    on_error: str = _on_error()
    overwrite: bool = _flag("errors", "Replace OUT.index.", common=True)


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Options for joining packs."""

    classes: str = _option(
        "choice",
        "command",
        "Whether the classes of the packs may differ. same: all packs must have the same classes; union: classes that the first pack lacks get new ids, after the ids of the first pack.",
        "same",
        choices=("same", "union"),
        shows_default=True,
    )
    prefixes: Sequence[str] = _several(
        "command",
        "NAME",
        "Put NAME/ before the sample names of one pack. Pass the option once for each pack, in the order of PACKS. Labels stay the same.",
    )
    workers: int | None = _option(
        "count",
        "command",
        "Number of threads.  [default: one for each CPU that affinity, cgroup and SLURM grant]",
        metavar="N",
    )
    shard_size: int | None = _option("size", "command", _SHARD_SIZE, metavar="SIZE")
    overwrite: bool = _flag("command", "Replace DST once the new pack is complete.")
    fresh: bool = _flag("command", "Start from the beginning instead of continuing an interrupted merge.")
