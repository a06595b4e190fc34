"""Adds options to commands: generates them from `packer._conversion.options`, and checks the types of their values.

The help groups options into panels by subject, and commands into panels by task. Each command has a one-line summary.
click prints the text. A library for panels would replace two methods; docs/architecture.md compares such libraries.

Commands that read packs share the options for packs at URLs.
"""

from __future__ import annotations

import functools
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from packer._conversion.options import (
    GROUPS,
    ImageOptions,
    Option,
    OutputOptions,
    RunOptions,
    SourceOptions,
    options_of,
)
from packer._storage.remote.urls import is_url, redacted, user_path
from packer.errors import DestinationOptionError, OptionError, OptionTypeError, flag
from packer.plugins import PluginDescriptor

MOST_USED, URLS, HELP = "Most used", "Packs at URLs", "Progress and help"
OPTIONS, *_SUBJECTS = GROUPS.values()
PANELS = (OPTIONS, MOST_USED, *_SUBJECTS, URLS, HELP)
"""The titles of panels, in the order of the help."""

_SMALL = 10
"""A command with this many options or fewer has one panel."""

_UNCUT = 1000  # characters: by default, click cuts a command's summary at the end of the line

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


class PanelOption(click.Option):
    """An option with the title of its panel, one of `PANELS`."""

    def __init__(self, *words: Any, panel: str = OPTIONS, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.panel = panel


def panel_option(*words: str, panel: str = OPTIONS, **settings: Any) -> Callable[[_F], _F]:
    """Return a decorator that adds an option in a panel to a command; `settings` are those of `click.option`."""
    return click.option(*words, cls=PanelOption, panel=panel, **settings)


def panel_of(option: click.Parameter) -> str:
    """Return the title of an option's panel: `HELP` for ``--help``, which click adds without a panel."""
    return option.panel if isinstance(option, PanelOption) else HELP


def panels_of(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    """Return the panels of a command's help: for each title, the options that the panel shows, in order."""
    shown = [
        one
        for one in command.get_params(context)
        if isinstance(one, click.Option) and one.get_help_record(context) is not None
    ]
    if len(shown) <= _SMALL:
        return {OPTIONS: shown}
    return {title: found for title in PANELS if (found := [one for one in shown if panel_of(one) == title])}


class PanelCommand(click.Command):
    """A command whose help has panels, and which has its own message for excess arguments."""

    allow_extra_args = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.sort(key=lambda one: -1 if isinstance(one, click.Argument) else PANELS.index(panel_of(one)))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raise UsageError, with the usage of the command, if there are too many."""
        left = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            raise click.UsageError(self.too_many(ctx, left), ctx)
        return left

    def too_many(self, ctx: click.Context, left: Sequence[str]) -> str:
        """Return the message for excess arguments."""
        usage = " ".join((ctx.command_path, *self.collect_usage_pieces(ctx)))
        return f"{' '.join(left)}: too many arguments for `{usage}`"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each panel."""
        for title, options in panels_of(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for one in options if (record := one.get_help_record(ctx)) is not None])


class PanelGroup(click.Group):
    """A group whose help shows the commands in panels.

    Attributes
    ----------
    panels : dict of str to list of str
        The titles of the panels, each with the names of its commands, in the order of the help.
    """

    command_class = PanelCommand

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panels: dict[str, list[str]] = {}

    def add_panel(self, title: str, commands: Iterable[click.Command]) -> None:
        """Add a panel of commands."""
        for command in commands:
            self.add_command(command)
            self.panels.setdefault(title, []).append(command.name or "")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options of the group itself."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        listed = [name for names in self.panels.values() for name in names]
        return [*listed, *(name for name in super().list_commands(ctx) if name not in listed)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each panel, with a line for each command."""
        width = max(map(len, self.commands))
        for title, names in (self.panels or {"Commands": self.list_commands(ctx)}).items():
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].get_short_help_str(_UNCUT)) for name in names]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; UsageError with similar names if there is none."""
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"{word}: no such command{did_you_mean(word, self.commands)}", ctx)
        return super().resolve_command(ctx, args)


def did_you_mean(word: str, known: Iterable[str] | None) -> str:
    """Return a text that proposes similar words, for the end of a message; empty if there are none."""
    from difflib import get_close_matches

    bare = {one.lstrip("-"): one for one in known or ()}  # words are not similar because both begin with dashes
    similar = [bare[one] for one in get_close_matches(word.lstrip("-"), bare)]
    return f"; did you mean {' or '.join(similar)}?" if similar else ""


class UserPath(click.Path):
    """A path. ``~`` becomes the user's home directory, because shells do not expand it in ``--report=~/FILE``.

    The rest of packer checks whether the path can be read or written. An empty path, which would mean the current
    directory, is refused.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, readable=False, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty. Is a shell variable not set?", param, ctx)
        if is_url(value):
            self.fail(
                f"{redacted(value)} is a URL, but only paths on this machine are allowed here. `packer stage URL "
                "DIRECTORY` copies a pack to this machine",
                param,
                ctx,
            )
        return super().convert(os.path.expanduser(value), param, ctx)


class PackPath(UserPath):
    """A path, or the URL of a pack."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return user_path(value) if is_url(value) else super().convert(value, param, ctx)


class ObjectUrl(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """The URL of an object, or the beginning of the URLs of several objects."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value) if is_url(value) else self.fail(f"{value!r} is not a URL such as s3://bucket/x", param, ctx)


class Count(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A whole number in a range.

    Parameters
    ----------
    least, most : int, optional
    hint : str
        The end of the error message for a value outside the range.
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
    """A duration in seconds: a finite number above 0; ``inf`` and ``nan`` are refused."""

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


class CommandOfSource(PanelCommand):
    """A command with one SRC. If the shell expanded a pattern to several paths, the error says to quote the pattern."""

    def too_many(self, ctx: click.Context, left: Sequence[str]) -> str:
        """Return the message for excess paths."""
        more = "" if len(left) == 1 else f" and {len(left) - 1} more"
        return f"{left[0]}{more}: too many paths. Put a pattern in quotes, such as 'shards/*.tar'"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Add the containers and formats of plug-ins to the help."""
        super().format_epilog(ctx, formatter)
        if plugins := _plugins():
            with formatter.section("Plug-ins"):
                formatter.write_dl(plugins)


def _plugins() -> list[tuple[str, str]]:
    """Return the name and the help of each container and format that other packages add."""
    from packer.plugins import CONTAINERS, FORMATS

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
"""The click type for each kind of option; an option of the kind "text" needs none."""


def options(kind: type, only: str = "", *, without: Collection[str] = ()) -> Callable[[_F], _F]:
    """Return a decorator that adds options to a command, in the order in which a class declares them.

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
        settings["help"] += f"  [default: {option.assumed}]" if option.assumed is not None else ""
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
        Whether to add the options that choose the splits and parts to make, and the machines that make them.
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
    """Return a request of the class `kind`; UsageError if the class refuses a value."""
    try:
        return kind(**values)
    except DestinationOptionError as error:  # whose message begins with a path
        raise click.UsageError(str(error)) from error
    except (OptionError, OptionTypeError) as error:
        name, *_ = re.split(r"\W", str(error), maxsplit=1)  # the message may begin with the name of an argument
        option = flag(name) if name in values else name
        raise click.UsageError(option + str(error)[len(name) :]) from error


_OPTIONS = [
    panel_option(
        "--cache-dir",
        type=UserPath(file_okay=False),
        metavar="DIR",
        panel=URLS,
        help="Cache directory for the data of packs at URLs.  [default: $PACKER_CACHE_DIR, or ~/.cache/packer]",
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
        help="How many seconds to wait for data from a URL.  [default: $PACKER_TIMEOUT, or 60]",
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
            warnings.filterwarnings("ignore", "downloads are cached in ")
        return command(*args, **values)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
