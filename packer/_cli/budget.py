"""Progress of work that has a certain time."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

import click

from packer._cli.status import NOBODY_READS
from packer.errors import printable

__all__ = ["BudgetDisplay"]

_SECONDS_BETWEEN_LINES = 10.0


class BudgetDisplay:
    """A bar of the seconds on a terminal; a line every few seconds elsewhere; nothing when quiet."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._shown = time.monotonic()
        self._bar: Any = None

    def update(self, passed: float, seconds: float, now: str) -> None:
        """Show that `passed` of `seconds` are over, and what is measured now."""
        if self._quiet:
            return
        try:
            self._show(min(passed, seconds), seconds, printable(now))
        except OSError as error:
            if error.errno not in NOBODY_READS:
                raise
            self._quiet = True  # the work goes on

    def _show(self, passed: float, seconds: float, now: str) -> None:
        if sys.stderr.isatty():
            if self._bar is None:
                from tqdm import tqdm

                form = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f} of {total:.0f} s, {postfix}"
                self._bar = tqdm(total=seconds, desc=self._what, bar_format=form, dynamic_ncols=True)
            self._bar.set_postfix_str(now, refresh=False)
            self._bar.update(passed - self._bar.n)
        elif time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            click.echo(f"{self._what}: {passed:.0f} of {seconds:.0f} s, {now}", err=True)

    def __enter__(self) -> BudgetDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None and not self._quiet:
            self._bar.close()
