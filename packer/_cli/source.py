"""SRC: the options that say what is in it, and opening it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from packer._cli.options import SourceOptions
from packer.errors import NotAPackError, printable

if TYPE_CHECKING:
    from packer._sources import Source

__all__ = ["classes_of", "given", "is_pack", "open_source", "refuse_without_labels", "source_options", "targets"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Delimiter(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """What separates the columns of a CSV file."""

    name = "char"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = "\t" if value in ("tab", "\\t") else str(value)
        if len(text) != 1 or text in '\r\n"':
            self.fail(f"{value!r} is not one character, or `tab`", param, ctx)
        return text


def given(*names: str) -> list[str]:
    """Return those of the present command's options that stand on its command line."""
    source = click.get_current_context().get_parameter_source
    present = [name for name in names if source(name) is click.core.ParameterSource.COMMANDLINE]
    return [f"--{name.replace('_', '-')}" for name in present]


def refuse_without_labels(options: SourceOptions) -> None:
    """Raise UsageError where an option says how to read the file of labels, and there is none."""
    reading = given("path_column", "label_column", "delimiter")
    if options.labels is None and reading:
        raise click.UsageError(f"{reading[0]} says how to read a file of labels: say which with --labels")


def source_options(command: _F) -> _F:
    """Add the options that say which images SRC holds, and their labels."""
    for option in reversed(
        [
            click.option(
                "--labels",
                type=click.Path(path_type=Path),
                metavar="FILE.csv",
                help="Take paths (relative to SRC, or below it) and labels from a CSV file instead of from directory names.",
            ),
            click.option(
                "--path-column", default="path", show_default=True, help="The column of --labels that holds the paths."
            ),
            click.option(
                "--label-column",
                default="label",
                show_default=True,
                help="The column of --labels that holds the labels.",
            ),
            click.option(
                "--delimiter",
                type=Delimiter(),
                default=",",
                show_default=True,
                help="What separates the columns of --labels: one character, or `tab`.",
            ),
            click.option(
                "--classes-from",
                type=click.Path(path_type=Path),
                metavar="PACK",
                help="Use the class ids of another pack (for val: train's). A class that is not in it is an error.",
            ),
            click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take the first N images only."),
        ]
    ):
        command = option(command)
    return command


def targets(src: Path, dst: Path, splits: tuple[str, ...]) -> list[tuple[Path, Path]]:
    """Return the directories to convert, each with its pack."""
    from packer._sources import class_directories, split_directories

    if not splits:
        return [(src, dst)]
    found = split_directories(src)
    flat = sorted(set(class_directories(src)) - set(found))
    if found and flat and "all" in splits:
        shown = ", ".join(map(printable, flat[:5])) + (f", … ({len(flat)})" if len(flat) > 5 else "")
        click.echo(f"packer: left out, without class directories in it: {shown}", err=True)
    wanted = found if "all" in splits else list(dict.fromkeys(splits))
    present = class_directories(src)
    missing = [name for name in splits if name != "all" and not (name in present and class_directories(src / name))]
    if missing or not wanted:
        raise click.UsageError(
            f"{printable(src)} has no split {printable(', '.join(missing))} with classes in it"
            if missing
            else f"{printable(src)} has no splits such as train and val with classes in them"
        )
    return [(src / name, dst.with_name(f"{dst.stem}-{name}{dst.suffix}")) for name in wanted]


def classes_of(pack: Path | None) -> list[str] | None:
    """Return the classes of a pack; None without one."""
    if pack is None:
        return None
    from packer._formats import open_pack

    with open_pack(pack) as reader:
        return reader.manifest.classes


def is_pack(path: Path) -> bool:
    """Tell whether there is a pack at `path`."""
    from packer._formats import recognise

    try:
        recognise(path)
    except NotAPackError:
        return False
    return True


def open_source(
    root: Path, destination: Path, classes: list[str] | None, options: SourceOptions, *, splits: bool = False
) -> Source:
    """List what `root`, which is SRC or one of its `splits`, holds, as the options say."""
    from packer._sources import csv_source, imagefolder_source, is_listing, listed_source, pack_source, refuse_splits

    source: Source
    if options.labels is not None:
        if is_listing(root) or is_pack(root):
            raise click.UsageError(f"--labels is for a directory of images: {printable(root)} says its own")
        source = csv_source(
            root,
            options.labels,
            path_column=options.path_column,
            label_column=options.label_column,
            delimiter=options.delimiter,
            classes=classes,
        )
    elif is_listing(root):
        if classes is not None:
            raise click.UsageError("--classes-from is for `packer scan`, which made the list that SRC is")
        source = listed_source(root)
    elif is_pack(root):
        source = pack_source(root, classes=classes)
    else:
        if not splits:
            refuse_splits(root, destination)
        source = imagefolder_source(root, classes)
    return source.limited(options.limit) if options.limit else source
