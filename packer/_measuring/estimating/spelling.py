"""The command that does what a request asks for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from packer._conversion.request import ConversionRequest
from packer._conversion.sourcerequest import option
from packer.errors import printable

__all__ = ["command_of"]

_SIGNS = {"fields": "=", "columns": ":", "keys": "="}
"""What stands between the name and the value of an option that is given by names."""

_PLACES = ("src", "dst")


def command_of(request: ConversionRequest, *more: str) -> str:
    """Return the line of a shell that converts as `request` asks, with some words more."""
    words = ["packer", "convert", str(request.src), str(request.dst), *_options(request), *more]
    return " ".join(shlex.quote(printable(word)) for word in words)


def _options(request: ConversionRequest) -> Iterator[str]:
    for field in fields(request):
        value, default = getattr(request, field.name), field.default
        if field.name in _PLACES or default is MISSING or value == default or value is None:
            continue
        if field.name == "tiles" and value is False:
            yield "--no-tiles"
        elif value is True:
            yield option(field.name)
        elif field.name == "extensions" and not isinstance(value, str):
            yield from (option(field.name), ",".join(value))
        else:
            yield from (word for one in _texts(field.name, value) for word in (option(field.name), one))


def _texts(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{key}{_SIGNS[name]}{one}" for key, one in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from map(str, value)
    else:
        yield str(value)
