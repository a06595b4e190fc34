"""What a pack was made of: what its manifest says of that, and whether a conversion was done before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packer.errors import NotAPackError, SourceError, printable
from packer.formats import open_pack
from packer.prepare import Recipe
from packer.repack import carries
from packer.sample import Manifest
from packer.sources import Source

__all__ = ["carried_from", "made_before", "provenance", "require_tileable"]


def carried_from(source: Source, recipe: Recipe) -> Manifest | None:
    """Return the manifest of the pack whose samples keep their bytes, or are tiled; None where they are made anew."""
    origin = source.origin
    return origin if origin is not None and carries(recipe, origin.codec, origin.exif) else None


def provenance(source: Source, recipe: Recipe) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return what a manifest says a pack was made of, and how: its codec, its settings and its source.

    Samples that are carried over from another pack keep what that pack says: what made their bytes, made them before.
    """
    origin = carried_from(source, recipe)
    if origin is None:
        return recipe.codec, recipe.settings(), source.describe()
    return origin.codec, {**origin.settings, "tiles": True} if recipe.tiles else origin.settings, origin.source


def made_before(destination: Path, source: Source, recipe: Recipe, format: str, parts: int = 0) -> Manifest | None:
    """Return the manifest of the pack at `destination` where it is what this conversion would make; None where not.

    Parameters
    ----------
    destination : Path
    source : Source
    recipe : Recipe
    format : str
    parts : int
        How many parts it would have; 0 for an ordinary pack.

    Raises
    ------
    PackError
        If there is a pack, and it is damaged or a newer packer's.
    """
    try:
        with open_pack(destination) as reader:
            manifest = reader.manifest
    except NotAPackError:
        return None
    made = manifest.format, len(manifest.layout.get("parts", ())), manifest.classes
    said = manifest.codec, _with_defaults(manifest.settings), manifest.source
    codec, settings, described = provenance(source, recipe)
    same = made == (format, parts, source.classes) and said == (codec, _with_defaults(settings), described)
    return manifest if same else None


def require_tileable(source: Source, recipe: Recipe) -> None:
    """Raise SourceError where the samples of a pack are to be tiled as they are, and are no JPEGs."""
    origin = carried_from(source, recipe)
    if recipe.tiles and origin is not None and origin.codec not in ("keep", "jpeg"):
        raise SourceError(
            f"{printable(source.root)}: its samples are {origin.codec}, and tiles are parts of JPEGs. "
            "Say --codec jpeg, or leave --tiles out."
        )


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as a manifest holds them, with those that are younger than the pack."""
    return {**Recipe().settings(), **json.loads(json.dumps(settings))}
