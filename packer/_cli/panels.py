"""Help in panels: options grouped by subject, commands grouped by task, each with a one-line summary.

click prints the text. A library for this would replace two methods; docs/architecture.md compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from packer._conversion.options import GROUPS

MOST_USED, URLS, HELP = "Most used", "Packs at URLs", "Progress and help"
OPTIONS, *_SUBJECTS = GROUPS.values()
PANELS = (OPTIONS, MOST_USED, *_SUBJECTS, URLS, HELP)
"""The titles of panels, in the order of the help."""

_SMALL = 10
"""A command with this many options or fewer has one panel."""

_UNCUT = 1000  # characters of a summary, which click would cut at its line's end


_F = TypeVar("_F", bound=Callable[..., Any])


class PanelOption(click.Option):
    """An option with the title of its panel, one of `PANELS`."""

    def __init__(self, *words: Any, panel: str = OPTIONS, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.panel = panel


def panel_option(*words: str, panel: str = OPTIONS, **settings: Any) -> Callable[[_F], _F]:
    """Return a decorator that adds an option in a panel to a command; `settings` are those of `click.option`."""
    return click.option(*words, cls=PanelOption, panel=panel, **settings)


def panel_of(option: click.Parameter) -> str:
    """Return the title of an option's panel, also for ``--help``, which click itself adds."""
    return option.panel if isinstance(option, PanelOption) else HELP


def panels_of(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    """Return the options that the help of a command shows, by the titles of their panels, both in order."""
    shown = [
        one
        for one in command.get_params(context)
        if isinstance(one, click.Option) and one.get_help_record(context) is not None
    ]
    if len(shown) <= _SMALL:
        return {OPTIONS: shown}
    return {title: found for title in PANELS if (found := [one for one in shown if panel_of(one) == title])}


class PanelCommand(click.Command):
    """A command whose help shows the options in panels, and which refuses excess arguments in packer's words."""

    allow_extra_args = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.sort(key=lambda one: -1 if isinstance(one, click.Argument) else PANELS.index(panel_of(one)))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments in excess, with those that the command takes."""
        left = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            raise click.UsageError(self.too_many(ctx, left), ctx)
        return left

    def too_many(self, ctx: click.Context, left: Sequence[str]) -> str:
        """Return the message on arguments in excess."""
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
        The names of the commands by the titles of their panels, both in order.
    """

    command_class = PanelCommand

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panels: dict[str, list[str]] = {}

    def add_panel(self, title: str, commands: Iterable[click.Command]) -> None:
        """Add commands in a panel of their own."""
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
    """Return the end of a message that proposes similar words; empty if there are none."""
    from difflib import get_close_matches

    bare = {one.lstrip("-"): one for one in known or ()}  # dashes alone make no words similar
    similar = [bare[one] for one in get_close_matches(word.lstrip("-"), bare)]
    return f"; did you mean {' or '.join(similar)}?" if similar else ""
