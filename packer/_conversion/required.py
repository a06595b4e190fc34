"""What decides the bytes of a pack, and what of that makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packer import __version__
from packer._conversion.recipe import Recipe
from packer._formats import FORMATS, Format
from packer.errors import OptionError

__all__ = ["conversion_settings", "require_format", "require_parts", "require_policy"]


def conversion_settings(format: str, options: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Return everything that decides the bytes of a pack but its source."""
    versions = {"packer": __version__, **recipe.versions()}
    return {"format": format, "options": dict(options), "recipe": recipe.settings(), "versions": versions}


def require_format(name: str) -> Format:
    """Return the format of that name; ValueError where there is none."""
    if name not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}, not {name!r}")
    return FORMATS[name]


def require_parts(format: Format) -> None:
    """Raise OptionError where packs of a format cannot be parts."""
    if not format.parts:
        raise OptionError(
            f"--parts would make a directory of packs, which no other tool knows: {format.suffixes[0]} has no parts. "
            "Leave --parts out."
        )


def require_policy(on_error: str) -> None:
    """Raise ValueError where `on_error` says neither to fail nor to skip."""
    if on_error not in ("fail", "skip"):
        raise ValueError(f"on_error is 'fail' or 'skip', not {on_error!r}")
