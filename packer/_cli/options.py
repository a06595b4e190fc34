"""Options of the command line, generated from the fields that declare them, and the types of their values.

Also the options of all commands that read a pack at a URL, and the splits of SRC.
"""

from __future__ import annotations

import functools
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from packer._cli.panels import MOST_USED, URLS, PanelCommand, panel_option
from packer._conversion.options import (
    GROUPS,
    ImageOptions,
    Option,
    OutputOptions,
    RunOptions,
    SourceOptions,
    options_of,
)
from packer._storage.remote.urls import is_url, shown, user_path
from packer.errors import OptionError, OptionTypeError, SourceError, flag, printable
from packer.plugins import PluginDescriptor

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class UserPath(click.Path):
    """A path, in which ``~`` is the user's home, because shells do not expand the one in ``--report=~/FILE``.

    The library checks whether the path can be read or written. An empty path, which would mean the current directory,
    is refused.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, readable=False, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty. Is a shell variable not set?", param, ctx)
        if is_url(value):
            self.fail(
                f"{shown(value)} is a URL, and this takes only paths on this machine. `packer stage URL DIRECTORY` "
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
    """The URL of an object, or of a container of objects."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value) if is_url(value) else self.fail(f"{value!r} is not a URL such as s3://bucket/x", param, ctx)


class Count(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A whole number in a range.

    Parameters
    ----------
    least, most : int, optional
    hint : str
        The end of the message that refuses another value.
    """

    name = "n"

    def __init__(self, least: int = 1, most: int | None = None, hint: str = "") -> None:
        self.least, self.most, self.hint = least, most, hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if number < self.least or (self.most is not None and number > self.most):
            span = f"of {self.least} or more" if self.most is None else f"from {self.least} to {self.most}"
            self.fail(". ".join(filter(None, [f"{value!r} is not a whole number {span}", self.hint])), param, ctx)
        return number


class Duration(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A duration: a finite number above 0, so neither ``inf`` nor ``nan``."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        return seconds if 0 < seconds < math.inf else self.fail(f"{value!r} is not a number above 0", param, ctx)


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
    """The separator of the columns of a CSV file."""

    name = "char"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = "\t" if value in ("tab", "\\t") else str(value)
        if len(text) != 1 or text in '\r\n"':
            self.fail(f"{value!r} is not one character, or `tab`", param, ctx)
        return text


_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


class CommandOfSource(PanelCommand):
    """A command with one SRC. If the shell expands a pattern to several paths, the error explains how to avoid it."""

    def too_many(self, ctx: click.Context, left: Sequence[str]) -> str:
        """Return the message on paths in excess."""
        more = "" if len(left) == 1 else f" and {len(left) - 1} more"
        return f"{left[0]}{more}: too many paths. Put a pattern in quotes, such as 'shards/*.tar'"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Add the containers and formats of plug-ins to the help."""
        super().format_epilog(ctx, formatter)
        if plugins := _plugins():
            with formatter.section("Plug-ins"):
                formatter.write_dl(plugins)


def _plugins() -> list[tuple[str, str]]:
    """Return name and help of each container and format of other packages."""
    from packer.plugins._registries import CONTAINERS, FORMATS

    def described(row: PluginDescriptor, use: str) -> tuple[str, str]:
        suffixes = f" ({', '.join(row.suffixes)})" if row.suffixes else ""
        return f"{row.name}{suffixes}", f"{use} by {row.plugin}" + (f": {row.help}" if row.help else "")

    return [
        *(described(row, "read") for row in CONTAINERS.plugins.values()),
        *(described(row, "written") for row in FORMATS.plugins.values()),
    ]


_TYPES: dict[str, Callable[[Option], Any]] = {
    "count": lambda option: Count(option.least, option.most, option.hint),
    "choice": lambda option: click.Choice(option.choices),
    "char": lambda option: Delimiter(),
    "size": lambda option: Size(),
    "path": lambda option: UserPath(),
    "file": lambda option: UserPath(dir_okay=False),
    "directory": lambda option: UserPath(file_okay=False),
    "pack": lambda option: PackPath(),
}
"""The type that click has for the values of an option, by its kind; a text needs none."""


def options(kind: type, only: str = "", *, without: Collection[str] = ()) -> Callable[[_F], _F]:
    """Return a decorator that adds the options which a class declares to a command, in their order.

    Parameters
    ----------
    kind : type
        A class of `packer._conversion.options`.
    only : str, optional
        The names of the options to add, with spaces between them; by default all.
    without : collection of str
        The names of options to leave out.
    """
    defaults = {one.name: one.default for one in fields(kind)}
    names = only.split() or defaults
    chosen = [(name, option) for name, option in options_of(kind) if name in names and name not in without]

    def added(command: _F) -> _F:
        for name, option in reversed(chosen):
            command = _click_option(name, option, defaults[name])(command)
        return command

    return added


def _click_option(name: str, option: Option, default: Any) -> Callable[[_F], _F]:
    word = flag(name)
    settings: dict[str, Any] = {"help": option.help, "panel": MOST_USED if option.common else GROUPS[option.group]}
    if option.kind == "flag":
        settings["is_flag"] = True
        if option.taken_away:
            word, settings["callback"] = f"--no-{word[2:]}", lambda context, parameter, value: not value
    elif option.kind == "switch":
        word, settings["default"] = f"{word}/--no-{word[2:]}", None
    else:
        settings |= {"metavar": option.metavar, "multiple": option.repeated, "show_default": option.shows_default}
        settings["help"] += "  [repeatable]" if option.repeated else ""
        if option.kind in _TYPES:
            settings["type"] = _TYPES[option.kind](option)
        if not option.repeated:
            settings["default"] = default
    return panel_option(word, name, **settings)


def conversion_options(*, tasks: bool = True, without: Collection[str] = ()) -> Callable[[_F], _F]:
    """Return a decorator that adds the options of a conversion to a command.

    Parameters
    ----------
    tasks : bool
        Whether to add the options that choose the splits and parts to make, and where they are made.
    without : collection of str
        The names of options to leave out.
    """
    everything: list[tuple[type, str]] = [
        (OutputOptions, "format"),
        (RunOptions, "splits"),
        (SourceOptions, ""),
        (ImageOptions, ""),
        (OutputOptions, "on_error report workers shard_size parts"),
        (RunOptions, "part cluster jobs scratch"),
        (OutputOptions, "overwrite fresh ignore_free_space"),
    ]

    def added(command: _F) -> _F:
        for kind, only in reversed(everything):
            if tasks or kind is not RunOptions:
                command = options(kind, only, without=("split", *without))(command)
        return command

    return added


def requested(kind: Callable[..., _T], **values: Any) -> _T:
    """Return the request that the options describe; UsageError if it does not accept a value."""
    try:
        return kind(**values)
    except (OptionError, OptionTypeError) as error:
        name, *_ = re.split(r"\W", str(error), maxsplit=1)  # a message may begin with the parameter of the function
        option = flag(name) if name in values else name
        raise click.UsageError(option + str(error)[len(name) :]) from error


_NO_SPLITS = "splits such as train and val with class directories"


def targets(src: Path, dst: Path, splits: tuple[str, ...]) -> list[tuple[Path, Path]]:
    """Return the directories to convert, each with its pack."""
    from packer._containers import files_to_name, named_paths
    from packer._sources.imagefolder import class_directories, split_directories

    if not splits:
        return [(src, dst)]
    if not os.path.isdir(src) and named_paths(src):
        raise click.UsageError(
            f"--split is for a directory of splits, and {printable(src)} names files: convert the files of each split to "
            "their own pack, the second with --classes-from FIRST_PACK"
        )
    found = split_directories(src)
    flat = sorted(set(class_directories(src)) - set(found))
    if found and flat and "all" in splits:
        shown = ", ".join(map(printable, flat[:5])) + (f", … ({len(flat)})" if len(flat) > 5 else "")
        click.echo(f"packer: left out, as they have no class directories: {shown}", err=True)
    wanted = found if "all" in splits else list(dict.fromkeys(splits))
    present = class_directories(src)
    missing = [name for name in splits if name != "all" and not (name in present and class_directories(src / name))]
    if missing or not wanted:
        what = f"split {printable(', '.join(missing))} with class directories" if missing else _NO_SPLITS
        raise click.UsageError(f"{printable(src)} has no {what}{files_to_name(src)}")
    return [(src / name, dst.with_name(f"{dst.stem}-{name}{dst.suffix}")) for name in wanted]


def require_one_class_map(splits: list[Path]) -> None:
    """Raise SourceError if a split has a class that the first split, whose ids all splits use, lacks."""
    from packer._sources.base import some
    from packer._sources.imagefolder import class_directories

    first, known = splits[0], set(class_directories(splits[0]))
    for split in splits[1:]:
        if unknown := sorted(set(class_directories(split)) - known):
            one = len(unknown) == 1
            raise SourceError(
                f"{printable(split)} has {len(unknown)} class{'' if one else 'es'} that {printable(first)} lacks: "
                f"{some(unknown)}. All splits use the class ids of {printable(first)}. Move {'it' if one else 'them'} away; or "
                f"make {'a directory' if one else 'directories'} of {'this name' if one else 'these names'} in "
                f"{printable(first)}, empty ones with --allow-empty; or convert each split alone, with its own ids."
            )


READING = ("cache_dir", "cache_size", "timeout")
"""What the options are called in Python."""

_OPTIONS = [
    panel_option(
        "--cache-dir",
        type=UserPath(file_okay=False),
        metavar="DIR",
        panel=URLS,
        help="Directory that caches the data of packs at URLs.  [default: $PACKER_CACHE_DIR, or ~/.cache/packer]",
    ),
    panel_option(
        "--cache-size",
        metavar="SIZE",
        panel=URLS,
        help="Largest size of the cache, such as 200GB.  [default: $PACKER_CACHE_SIZE, or a share of the free space]",
    ),
    panel_option(
        "--timeout",
        type=Duration(),
        metavar="SECONDS",
        panel=URLS,
        help="How long to wait for data from a URL.  [default: $PACKER_TIMEOUT, or 60]",
    ),
]


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for packs at URLs to a command; they apply to all URLs among its arguments."""

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
