"""One file's bytes to one sample's bytes: look at it, and where asked decode, resize and encode it."""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer._conversion.change import Change
from packer._conversion.recipe import Recipe
from packer._images import native
from packer._images.decode import decode, fast_decoder
from packer._images.encode import encode, encode_tiled
from packer._images.jpeg.transcode import transcode
from packer._images.levels import FOUND, decode_to_8_bit, require_8_bit
from packer._images.probe import CLIPPED, DEEP, SIGNED, ImageInfo, inspect
from packer._images.resize import resize
from packer._images.scratch import scratch
from packer._manifest import TILED
from packer._table import Buffer
from packer.errors import ImageError, NotTileableError

__all__ = ["Prepared", "encoded", "prepare", "tiled"]

_TINY = 32
_SUFFIXES = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".png": "png",
    ".ppm": "ppm",
    ".pgm": "ppm",
    ".bmp": "bmp",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".webp": "webp",
}


class Prepared(NamedTuple):
    """An image as a sample holds it.

    Attributes
    ----------
    data : bytes-like
    height, width : int
        The size of what decoding gives, in pixels.
    findings : tuple of str
        What the audit found.
    change : Change
        What was done to the image.
    kept : bool
        Whether the bytes are a file's own.
    """

    data: Buffer
    height: int
    width: int
    findings: tuple[str, ...]
    change: Change
    kept: bool = False


class _Plan(NamedTuple):
    """What becomes of images of one type and size.

    Attributes
    ----------
    findings : tuple of str
    height, width : int
        The size of what decoding gives.
    change : Change
    kept : bool
        Whether the file's own bytes are stored.
    scaled : (height, width)
        The size that the image is resized to.
    at_once : bool
        Whether packer's C may decode and resize the image in one step.
    """

    findings: tuple[str, ...]
    height: int
    width: int
    change: Change
    kept: bool
    scaled: tuple[int, int]
    at_once: bool


def prepare(data: Buffer, name: str, recipe: Recipe, info: ImageInfo | None = None) -> Prepared:
    """Turn a file's bytes into a sample's.

    Parameters
    ----------
    data : bytes-like
    name : str
    recipe : Recipe
    info : ImageInfo, optional
        What `inspect` says of the file, where that is known.

    Raises
    ------
    ImageError
        If the file is not an image that Pillow reads, or the codec cannot hold it.
    """
    info = info or inspect(data, recipe.max_pixels)
    plan = _plan(recipe, info, os.path.splitext(name)[1].lower())
    findings, height, width, change = plan.findings, plan.height, plan.width, plan.change
    if plan.kept:
        pixels = None
        if recipe.audit == "decode" and info.plain:  # Pillow decoded all others
            pixels = decode(data, max_pixels=recipe.max_pixels, header=info.header)
        if not recipe.tiles:
            return Prepared(data, height, width, findings, change, kept=True)
        stored, finding = tiled(data, info, pixels)
        return Prepared(stored, height, width, (*findings, finding), change, kept=stored is data)
    return _encoded(_decoded(data, info, plan, recipe), recipe, findings, change)


@functools.lru_cache(maxsize=1024)
def _plan(recipe: Recipe, info: ImageInfo, suffix: str) -> _Plan:
    """Return what becomes of an image, before its pixels are looked at; most sources have many images of one size.

    Raises
    ------
    ImageTooLargeError
        If the resized image would have far too many pixels.
    ImageError
        If the codec cannot hold all bits or bands of the image, and nothing says how it becomes 8-bit RGB.
    """
    height, width = info.size_shown(recipe.exif)
    findings, scaled, resize = _audit(info, suffix), (height, width), recipe.resize
    turned = info.orientation if recipe.exif == "apply" and info.orientation in range(2, 9) else 1
    change = Change((info.height, info.width), turned, resize, recipe.exif)
    if resize is not None and not resize.upscale and resize.enlarges(height, width):
        findings += ("smaller than --resize, and not enlarged",)
    kept = _kept(info, height, width, recipe)
    if not kept and info.depth.excess:
        findings = _reduced(info, findings, recipe)
    if resize is not None and not kept:
        resize.require_affordable(height, width)
        scaled = resize.scaled(height, width)
    bilinear = resize is None or resize.interpolation == "bilinear"
    upright = recipe.exif == "ignore" or info.orientation == 1
    at_once = native.PREFERRED and info.plain and info.kind == "jpeg" and upright and bilinear
    return _Plan(findings, height, width, change, kept, scaled, at_once)


def _reduced(info: ImageInfo, findings: tuple[str, ...], recipe: Recipe) -> tuple[str, ...]:
    """Return the findings of an image that becomes 8-bit RGB; ImageError where nothing says how it does."""
    if recipe.to_8_bit is None:
        require_8_bit(info.depth, recipe.codec)
        return findings
    others = tuple(note for note in findings if note not in (CLIPPED, DEEP, SIGNED))
    return (*others, FOUND[recipe.to_8_bit]) if info.depth.is_deep else others


def encoded(pixels: npt.NDArray[np.uint8], recipe: Recipe) -> Prepared:
    """Resize and encode the pixels of an image, (height, width, 3) uint8 RGB."""
    height, width = pixels.shape[:2]
    if recipe.resize is not None:
        recipe.resize.require_affordable(height, width)
        pixels = resize(pixels, *recipe.resize.scaled(height, width), recipe.resize.interpolation)
    return _encoded(pixels, recipe, (), Change((height, width), 1, recipe.resize))


def _decoded(data: Buffer, info: ImageInfo, plan: _Plan, recipe: Recipe) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, resized."""
    scaled, decoder = plan.scaled, "auto"
    if plan.at_once:  # without a detour of all pixels through memory
        pixels = native.decode(data, plan.height, plan.width, scaled, scratch.decoded(*scaled, 0))
        if pixels is not None:
            return pixels
        decoder, _ = fast_decoder()  # as packer's own has left the image to others
    if info.depth.is_deep and recipe.to_8_bit is not None:
        pixels = decode_to_8_bit(data, recipe.to_8_bit, info.depth, exif=recipe.exif, max_pixels=recipe.max_pixels)
    else:
        pixels = decode(data, exif=recipe.exif, decoder=decoder, max_pixels=recipe.max_pixels, header=info.header)
    return resize(pixels, *scaled, "bilinear" if recipe.resize is None else recipe.resize.interpolation)


def _encoded(pixels: npt.NDArray[np.uint8], recipe: Recipe, findings: tuple[str, ...], change: Change) -> Prepared:
    if recipe.resize is not None:
        pixels = recipe.resize.frame(pixels)
    data, noted = _encode(pixels, recipe)
    return Prepared(data, pixels.shape[0], pixels.shape[1], findings + noted, change)


def _kept(info: ImageInfo, height: int, width: int, recipe: Recipe) -> bool:
    """Tell whether the file's own bytes are stored: asked for, or already what would be made of them."""
    if recipe.codec == "keep" or recipe.recode:
        return recipe.codec == "keep"
    unchanged = recipe.resize is None or not recipe.resize.changes(height, width)
    upright = recipe.exif == "ignore" or info.orientation == 1
    return unchanged and upright and info.plain and info.kind == recipe.codec


def _encode(pixels: npt.NDArray[np.uint8], recipe: Recipe) -> tuple[bytes, tuple[str, ...]]:
    """Return encoded pixels, and what there is to say about them."""
    try:
        if recipe.tiles or (recipe.tiles is None and recipe.codec == "jpeg"):
            return encode_tiled(pixels, recipe.quality), (TILED,)
        return encode(pixels, recipe.codec, recipe.quality), ()
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot be encoded as {recipe.codec}: {error}") from error


def tiled(data: Buffer, info: ImageInfo, pixels: npt.NDArray[np.uint8] | None) -> tuple[Buffer, str]:
    """Return an image as a tiled JPEG, or unchanged where that is not possible, and the finding that says which.

    The pixels of both are compared, as the image's own bytes are lost. packer's own decoder reads scans by other code
    than the transcoder does. Where the image's `pixels` are given, a library decodes the tiled JPEG, so that two
    decoders have to agree.
    """
    if info.kind != "jpeg":
        return data, f"not tiled: {info.kind.upper()}"
    try:
        made = transcode(data)
        decoder = "auto" if pixels is None else fast_decoder()[0]
        before = decode(data, header=info.header) if pixels is None else pixels
        if not np.array_equal(decode(made, decoder=decoder), before):
            raise NotTileableError("its pixels would change")
    except NotTileableError as error:
        return data, f"not tiled: {error.reason}"
    except ImageError:
        return data, "not tiled: its pixels cannot be compared"
    return made, TILED


def _audit(info: ImageInfo, suffix: str) -> tuple[str, ...]:
    findings = info.findings
    expected = _SUFFIXES.get(suffix)
    kind = {"mpo": "jpeg", "pgm": "ppm"}.get(info.kind, info.kind)
    if expected is not None and kind != expected:
        findings += (f"{info.kind.upper()} named {suffix}",)
    if min(info.height, info.width) < _TINY:
        findings += (f"tiny (a side below {_TINY} pixels)",)
    return findings
