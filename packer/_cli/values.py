"""The kinds of values that options and arguments take: paths, sizes, delimiters."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click

from packer._storage.remote.urls import is_url, shown
from packer._storage.urlpath import user_path

__all__ = ["Delimiter", "Duration", "ObjectUrl", "PackPath", "Size", "UserPath"]

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
