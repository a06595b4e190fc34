"""The options that only the command line has: which of its runs is meant, and what is printed.

SRC: the options that say what is in it, and its splits.

The options that say which annotations images have: COCO's, Pascal VOC's or YOLO's.

The options of commands that read a pack at a URL.

The kinds of values that options and arguments take: paths, sizes, delimiters.
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from packer._codecs import LABEL_TYPES
from packer._storage.remote.urls import is_url, shown, user_path
from packer.errors import OptionError, SourceError, printable
from packer.plugins import plugin_help

__all__ = [
    "ANNOTATIONS",
    "READING",
    "CommandOfSource",
    "Delimiter",
    "Duration",
    "ObjectUrl",
    "PackPath",
    "RunOptions",
    "Size",
    "UserPath",
    "reading_options",
    "requested",
    "require_one_class_map",
    "source_options",
    "targets",
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `packer convert` beside those of a `ConversionRequest`; None where an option was not given."""

    splits: tuple[str, ...]
    part: int | None
    cluster: str | None
    jobs: int | None
    scratch: Path | None
    quiet: bool


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class UserPath(click.Path):
    """A path, in which ``~`` is the user's home: shells leave the one in ``--report=~/FILE`` as it is.

    Whether it can be read or written is the library's to find. An empty path would be the present directory.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, readable=False, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty path. Is a variable of the shell not set?", param, ctx)
        if is_url(value):
            self.fail(
                f"{shown(value)} is a URL, and this works with paths of this machine. `packer stage URL DIRECTORY` "
                "copies a pack here",
                param,
                ctx,
            )
        return super().convert(os.path.expanduser(value), param, ctx)


class PackPath(UserPath):
    """A path, or the URL of a pack."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return user_path(value) if is_url(value) else super().convert(value, param, ctx)


class ObjectUrl(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """The URL of an object, or of what objects lie in."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value) if is_url(value) else self.fail("that is no URL, such as s3://bucket/x", param, ctx)


class Duration(click.FloatRange):
    """A time that something may take: a finite number above 0, which ``inf`` and ``nan`` are not."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        return seconds if math.isfinite(seconds) else self.fail(f"{value!r} is no time", param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A number of bytes such as 512MB or 1GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().upper()
        number = text.rstrip("KMGIB")
        unit = text[len(number) :]
        try:
            size = int(float(number) * _UNITS[unit])
            return size if size > 0 else self.fail(f"{value!r}: a shard has 1 byte or more", param, ctx)
        except (ValueError, KeyError, OverflowError):
            self.fail(f"{value!r} is not a size such as 512MB or 1GiB", param, ctx)


class Delimiter(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """What separates the columns of a CSV file."""

    name = "char"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = "\t" if value in ("tab", "\\t") else str(value)
        if len(text) != 1 or text in '\r\n"':
            self.fail(f"{value!r} is not one character, or `tab`", param, ctx)
        return text


ANNOTATIONS = (
    click.option(
        "--coco",
        type=UserPath(),
        multiple=True,
        metavar="FILE.json",
        help="Take images and fields from annotations in COCO's format: boxes, categories, segmentations, keypoints, captions. SRC is the directory that file_name counts from. Several files of the same images are joined.",
    ),
    click.option(
        "--masks",
        is_flag=True,
        help="Draw the annotations of --coco into the field `mask`, as ids of categories: crowds below others, smaller ones on top.",
    ),
    click.option(
        "--voc",
        type=UserPath(),
        metavar="DIR",
        help="Take fields from Annotations/*.xml and SegmentationClass in DIR, such as VOCdevkit/VOC2012; SRC is DIR or its JPEGImages. --split names a list in ImageSets.",
    ),
    click.option(
        "--yolo",
        type=UserPath(),
        metavar="DATA.yaml",
        help="Take fields from the files in labels beside images; SRC is the directory of images. --split names a split of DATA.yaml.",
    ),
)
"""Decorators of a command."""


_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


class CommandOfSource(click.Command):
    """A command with one SRC: a shell that writes a pattern out gives it more paths, and the error says what to do."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse the paths that are left over."""
        left = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            more = "" if len(left) == 1 else f" and {len(left) - 1} more"
            raise click.UsageError(
                f"{left[0]}{more}: too many paths. A pattern stands in quotes, such as 'shards/*.tar'", ctx
            )
        return left

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Add what other packages read and write to the help."""
        super().format_epilog(ctx, formatter)
        if plugins := plugin_help():
            with formatter.section("Plug-ins"):
                formatter.write_dl(plugins)


_OF_LABELS = [
    click.option(
        "--labels",
        type=UserPath(),
        metavar="FILE",
        help="Take paths (relative to SRC, or below it) and labels from a table instead of from directory names: .csv, .tsv, .jsonl or .parquet. Whole numbers are class ids as they stand, -1 is unlabeled; other texts are names of classes.",
    ),
    click.option("--path-column", help="The column of --labels that holds the paths.  [default: path]"),
    click.option("--label-column", help="The column of --labels that holds the labels.  [default: label]"),
    click.option(
        "--delimiter",
        type=Delimiter(),
        help="What separates the columns of --labels: one character, or `tab`.  [default: tab for FILE.tsv, else a comma]",
    ),
    click.option(
        "--label-type",
        type=click.Choice(list(LABEL_TYPES)),
        help="What the labels of --labels are: class, names whose ids follow their order as text; int or float, numbers that are kept, without classes.  [default: ids where all are whole numbers, else names]",
    ),
    click.option(
        "--suffix",
        metavar=".JPG",
        help="What the paths in --labels lack at their end, such as .jpg.  [default: that of the one image which a path without a suffix fits]",
    ),
    click.option(
        "--no-header",
        is_flag=True,
        help="The first line of --labels is a row, and no header: columns are called 1, 2, ... .  [default columns: 1 for the paths, 2 for the labels]",
    ),
    click.option(
        "--unlabeled",
        is_flag=True,
        help="Take images without labels, with the label -1: the rows of --labels, or the samples of a container, that have none; of a directory without --labels, all images below it.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        help="Refuse to begin where images, labels or fields are left out, images are unlabeled or classes are renumbered, unless an option asks for it.",
    ),
    click.option(
        "--no-classes",
        is_flag=True,
        help="Take all images below SRC, or all rows of --labels, with the label -1: there are no classes.",
    ),
]

_OF_FIELDS = [
    click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="NAME[:KIND]=TEMPLATE",
        help="A file beside each image, such as mask=../masks/{stem}.png, relative to SRC. {path} {dir} {name} {stem} {class} are parts of the image's path. KIND is image, mask, text, json, array or bytes.  [default: by the name and the suffix]",
    ),
    click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="NAME[=COLUMN]:KIND",
        help="A column of --labels as a field: caption:text, age:float32 (a dtype is a scalar), split:class, tags:labels, box:boxes, keypoints, json, array:float32, mask=mask_path:mask.",
    ),
    click.option(
        "--on-missing",
        type=click.Choice(["error", "null", "skip"]),
        help="What becomes of an image without the file or the row of a field: an error, no value, or it is left out.  [default: error]",
    ),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="NAME[:KIND]=KEY",
        help="What in a container of another tool is the image, the label or the name, or becomes a field: image=image/encoded, label=cls, label=json:category (a member of the JSON in a tar), label=directory (of the images in a tar), caption:text=txt.  [default: by the container's own names]",
    ),
    click.option(
        "--no-metadata",
        is_flag=True,
        help="Leave metadata.csv, metadata.jsonl or metadata.parquet in SRC alone.",
    ),
]

_OF_FILES = [
    click.option(
        "--extensions",
        metavar=".JPG,.GIF",
        help="The suffixes of images, in place of ImageFolder's (.jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp), as with its argument of that name.",
    ),
    click.option(
        "--any-image",
        is_flag=True,
        help="Open the files of other suffixes too, and take those that begin as an image does.",
    ),
    click.option(
        "--skip-hidden",
        is_flag=True,
        help="Leave out files and directories whose names begin with a dot. ImageFolder takes them, and makes a class of a hidden directory.",
    ),
    click.option(
        "--allow-empty",
        is_flag=True,
        help="A class directory may have no image, and keeps its id, as with ImageFolder's argument of that name.",
    ),
    click.option(
        "--classes-from",
        type=PackPath(),
        metavar="PACK",
        help="Use the class ids of another pack (for val: train's), of labels and of --column NAME:class or NAME:labels. A class that is not in it is an error.",
    ),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take the first N images only."),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="Take N images only, evenly spread over the list, and so over the classes; their order stays.",
    ),
]


def requested(kind: Callable[..., _T], **values: Any) -> _T:
    """Return the request that the options are; UsageError where a value is none that it takes."""
    try:
        return kind(**values)
    except OptionError:
        raise
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error


_NO_SPLITS = "splits such as train and val with classes in them"


def source_options(command: _F) -> _F:
    """Add the options that say which images SRC holds, and their labels and fields."""
    for option in reversed([*_OF_LABELS, *_OF_FIELDS, *ANNOTATIONS, *_OF_FILES]):
        command = option(command)
    return command


def targets(src: Path, dst: Path, splits: tuple[str, ...]) -> list[tuple[Path, Path]]:
    """Return the directories to convert, each with its pack."""
    from packer._containers import files_to_name, named_paths
    from packer._sources import class_directories, split_directories

    if not splits:
        return [(src, dst)]
    if not os.path.isdir(src) and named_paths(src):
        raise click.UsageError(
            f"--split is for a directory that holds splits, and {printable(src)} names files: convert those of each "
            "split to a pack of their own, the second with --classes-from FIRST_PACK"
        )
    found = split_directories(src)
    flat = sorted(set(class_directories(src)) - set(found))
    if found and flat and "all" in splits:
        shown = ", ".join(map(printable, flat[:5])) + (f", … ({len(flat)})" if len(flat) > 5 else "")
        click.echo(f"packer: left out, without class directories in it: {shown}", err=True)
    wanted = found if "all" in splits else list(dict.fromkeys(splits))
    present = class_directories(src)
    missing = [name for name in splits if name != "all" and not (name in present and class_directories(src / name))]
    if missing or not wanted:
        what = f"split {printable(', '.join(missing))} with classes in it" if missing else _NO_SPLITS
        raise click.UsageError(f"{printable(src)} has no {what}{files_to_name(src)}")
    return [(src / name, dst.with_name(f"{dst.stem}-{name}{dst.suffix}")) for name in wanted]


def require_one_class_map(splits: list[Path]) -> None:
    """Raise SourceError where a split has a class that the first one, whose ids all get, lacks."""
    from packer._sources import class_directories
    from packer._sources.base import some

    first, known = splits[0], set(class_directories(splits[0]))
    for split in splits[1:]:
        if unknown := sorted(set(class_directories(split)) - known):
            one = len(unknown) == 1
            raise SourceError(
                f"{printable(split)} has {len(unknown)} class{'' if one else 'es'} that {printable(first)} lacks, whose "
                f"class ids all splits get: {some(unknown)}. Move {'it' if one else 'them'} away, or make "
                f"{'a directory' if one else 'directories'} of the name in {printable(first)}, which may be empty with --allow-empty; "
                "or convert each split alone, with ids of its own."
            )


READING = ("cache_dir", "cache_size", "timeout")
"""What the options are called in Python."""

_OPTIONS = [
    click.option(
        "--cache-dir",
        type=UserPath(file_okay=False),
        metavar="DIR",
        help="Keep in DIR what is fetched of a pack at a URL.  [default: $PACKER_CACHE_DIR, or ~/.cache/packer]",
    ),
    click.option(
        "--cache-size",
        metavar="SIZE",
        help="Most bytes that are kept there, such as 200GB.  [default: $PACKER_CACHE_SIZE, or a share of what is free]",
    ),
    click.option(
        "--timeout",
        type=Duration(),
        metavar="SECONDS",
        help="How long bytes of a URL are waited for.  [default: $PACKER_TIMEOUT, or 60]",
    ),
]


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; they are those of all URLs among its arguments."""

    @functools.wraps(command)
    def run(*args: Any, cache_dir: Any, cache_size: str | None, timeout: float | None, **values: Any) -> Any:
        if (cache_dir, cache_size, timeout) != (None, None, None):
            from packer._storage.place import choose_reading

            said = [one for value in values.values() for one in (value if isinstance(value, tuple) else (value,))]
            choose_reading([one for one in said if isinstance(one, os.PathLike)], cache_dir, cache_size, timeout)
        if values.get("quiet"):
            warnings.filterwarnings("ignore", "what is fetched is kept in ")
        return command(*args, **values)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
