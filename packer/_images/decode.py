"""Decodes images to pixels, and chooses the decoder for each.

packer's own decoder decodes JPEGs and PNGs, if it is the fastest decoder on this machine. A library decodes the
ordinary JPEGs that packer's decoder rejects. Plain BMPs need no decoder. Pillow decodes all other images and those that
the other decoders reject; if Pillow cannot, its error is raised. So the choice of the decoder affects only the speed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from packer._codecs import MAX_PIXELS
from packer._images import extension, jpeg, native, pillow, png
from packer._images.probe import require_affordable
from packer._table import Buffer
from packer.errors import ImageError, MissingDependencyError, OptionError, pip_install, warn

LIBJPEG_TURBO = ("turbojpeg", "pyturbojpeg")
"""The decoders that use libjpeg-turbo: the copy in simplejpeg, and the system's. Both can decode parts of JPEGs."""

DECODERS = (*LIBJPEG_TURBO, "opencv", "pillow")
"""The libraries that decode JPEGs, the fastest first."""

AUTOMATIC = ("turbojpeg", "opencv", "pillow")
"""With ``"auto"``, the first of these that is installed decodes the JPEGs that packer's own decoder rejects.

The system's libjpeg-turbo is used on request only: an upgrade of the system must not change which library decodes.
"""

_INSTALLING = {
    "turbojpeg": "pip install simplejpeg",
    "pyturbojpeg": (
        "pip install 'PyTurboJPEG<2', and the system's libjpeg-turbo: libturbojpeg0 on Debian, jpeg-turbo with Homebrew"
    ),
    "opencv": pip_install("opencv"),
}

Sample = TypeVar("Sample", bound=np.generic)
Decoder = Callable[[Buffer], npt.NDArray[np.uint8]]


@functools.cache
def fast_decoder(name: str = "auto") -> tuple[str, Decoder]:
    """Return a JPEG decoder: its name and its function. ``"auto"`` stands for the first of `AUTOMATIC` that works.

    Raises
    ------
    MissingDependencyError
        If the decoder of this name is not installed.
    """
    if name not in ("auto", *DECODERS):
        raise OptionError(f"decoder must be 'auto' or one of {DECODERS}, not {name!r}")
    if name == "auto":
        for candidate in AUTOMATIC[:-1]:
            try:
                return fast_decoder(candidate)
            except MissingDependencyError:
                continue
        name = AUTOMATIC[-1]
    if name == "pillow":
        return name, pillow.decode
    try:
        return name, importlib.import_module(f"packer._images.{name}").decode_jpeg
    except ImportError as error:
        raise MissingDependencyError(f"the decoder {name}: {error} ({_INSTALLING[name]})") from error


def installed_decoders() -> tuple[str, ...]:
    """Return the JPEG decoders that work here, in the order of `DECODERS`."""
    found = []
    for name in DECODERS:
        with contextlib.suppress(MissingDependencyError):
            found.append(fast_decoder(name)[0])
    return tuple(found)


def decoder_advice() -> str | None:
    """Return a line of advice for faster decoding on this machine; None if there is nothing to advise."""
    name, _ = fast_decoder()
    short = extension.shortcoming()
    if short is None or (name in LIBJPEG_TURBO and not short.cure):
        return None
    if native.PREFERRED:
        return f"packer's own decoder takes about twice as long here: {short.reason}. {short.cure}."
    advice = f"packer's own decoder does not work here: {short.reason}. {name} decodes instead, "
    if name in LIBJPEG_TURBO:
        advice += "with the same pixels, but more slowly (on x86-64 at about half the speed)."
    else:
        advice += (
            "and decodes the whole image for each crop, because simplejpeg is not installed either (pip "
            "install simplejpeg)."
        )
    return f"{advice} {short.cure}." if short.cure else advice


@functools.cache
def warn_of_slow_decoding() -> None:
    """Warn with `decoder_advice`, once per process."""
    advice = decoder_advice()
    if advice is not None:
        warn(advice)


def decode(
    data: Buffer,
    *,
    exif: str = "ignore",
    decoder: str = "auto",
    max_pixels: int = MAX_PIXELS,
    header: jpeg.JPEGHeader | None = None,
) -> npt.NDArray[np.uint8]:
    """Decode an image of any type.

    Parameters
    ----------
    data : bytes-like
        The encoded image.
    exif : {"ignore", "apply"}
        Whether to turn the image by its EXIF orientation; ImageFolder ignores the orientation.
    decoder : str
        ``"auto"`` or one of `DECODERS`; affects the speed, not the pixels. With ``"pillow"``, Pillow decodes every type
        of image.
    max_pixels : int
        Images whose headers declare more pixels are refused.
    header : JPEGHeader, optional
        The header of a JPEG, if the caller has read it; otherwise it is read here.

    Returns
    -------
    (height, width, 3) uint8 array
        RGB: the pixels of ``PIL.Image.open(f).convert("RGB")``. Writable.

    Raises
    ------
    ImageError
        If Pillow cannot read the image.
    """
    if bytes(data[:3]) == b"\xff\xd8\xff":
        header = header or jpeg.read_header(data)
        if header is not None:
            require_affordable(header, data, max_pixels)
        own_is_faster = native.WHOLE_JPEGS or header is None or not (header.ordinary and header.sequential)
        if header is not None and decoder == "auto" and native.PREFERRED and own_is_faster:
            own = native.decode(data, header.height, header.width)
            if own is not None:
                return apply_orientation(own, header.orientation) if exif == "apply" else own
        if header is not None and header.ordinary:
            try:
                pixels = fast_decoder(decoder)[1](data)
            except ImageError:
                pass  # Pillow decodes the image, or raises the error
            else:
                if pixels.shape == (header.height, header.width, 3):
                    return apply_orientation(pixels, header.orientation) if exif == "apply" else pixels
    if decoder == "auto" and native.PREFERRED and exif == "ignore" and (size := png.size_of(data)) is not None:
        pillow.require_pixels(*size, max_pixels)
        found = native.decode(data, *size)
        if found is not None:
            return found
    if decoder != "pillow" and (plain := pillow.read_bmp(data)) is not None:
        pillow.require_pixels(plain.height, plain.width, max_pixels)
        return plain.decode()
    return pillow.decode(data, exif=exif, max_pixels=max_pixels)


def apply_orientation(pixels: npt.NDArray[Sample], orientation: int) -> npt.NDArray[Sample]:
    """Turn (H, W, ...) pixels upright, and return them contiguous. `orientation` is 1 to 8 (EXIF 2.32, tag 0x0112)."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
