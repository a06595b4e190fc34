"""The options of commands that read a pack at a URL."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import click

from packer._cli.values import Duration, UserPath

__all__ = ["READING", "reading_options"]

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
