"""A pack's samples on their way into another pack: carried over as they are, or made anew from their pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from packer._conversion.change import Change
from packer._conversion.prepare import Prepared, encoded, prepare, tiled
from packer._conversion.recipe import Recipe
from packer._images.decode import decode
from packer._images.probe import inspect
from packer._sources.base import StoredSample
from packer._table import Buffer, are_pixels
from packer.errors import ImageError

__all__ = ["carries", "prepare_sample"]


def carries(recipe: Recipe, codec: str, exif: str) -> bool:
    """Tell whether samples of a pack keep their bytes, or are tiled, and keep their size in pixels.

    That is so unless they are to be re-encoded, or kept files whose EXIF orientation was ignored are to be turned.
    """
    return recipe.codec == "keep" and not (codec == "keep" and recipe.exif == "apply" != exif)


def prepare_sample(data: Buffer, name: str, recipe: Recipe, stored: StoredSample) -> Prepared:
    """Turn a sample of a pack into one of another; ImageError where that is not possible."""
    if stored.codec == "raw" and not are_pixels(len(data), stored.height, stored.width):
        raise ImageError(f"{len(data)} bytes are not {stored.width} x {stored.height} pixels")
    if carries(recipe, stored.codec, stored.exif):
        pixels = None
        findings: tuple[str, ...] = ()
        if recipe.audit == "decode" and stored.codec != "raw":
            pixels = decode(data, max_pixels=recipe.max_pixels)
        if recipe.tiles and stored.codec in ("keep", "jpeg"):
            data, finding = tiled(data, inspect(data, recipe.max_pixels), pixels)
            findings = (finding,)
        return Prepared(
            data, stored.height, stored.width, findings, Change((stored.height, stored.width), exif=stored.exif)
        )
    if stored.codec == "raw":
        rows = np.frombuffer(data, np.uint8).reshape(stored.height, stored.width, 3)
        return encoded(np.array(rows), recipe)  # a copy: torch wants it writable
    if stored.codec == "keep" and stored.exif == "apply":  # whose values speak of the upright image
        prepared = prepare(data, name, replace(recipe, exif="apply"))
        return prepared._replace(change=Change(prepared.change.upright, 1, recipe.resize, "apply"))
    if stored.codec == "keep":
        return prepare(data, name, recipe)
    # Any turning was done before, and the name's suffix says nothing any more.
    return prepare(data, "", replace(recipe, exif="ignore"))
