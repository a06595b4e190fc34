"""More than 8 bits per channel become levels from 0 to 255: C, Python and Pillow give those that NumPy computes."""

from __future__ import annotations

import io
import warnings
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from packer._codecs import TO_8_BIT
from packer._conversion.pipeline import prepare
from packer._conversion.recipe import Recipe
from packer._images import decode, native, png
from packer._images.depth import decode_to_8_bit
from packer._images.probe import inspect
from packer.errors import ImageError
from tests.images.samples import encoded, photo, png_chunk
from tests.images.tiffs import GREY, RGB, noise, tiff
from tests.pairs import pairwise

Numbers = npt.NDArray[Any]

DARK = np.linspace(0, 24_000, 30 * 41).reshape(30, 41).astype(np.uint16)


def deep_png(samples: Numbers) -> bytes:
    channels = samples.shape[2]
    ordered = samples[..., [2, 1, 0, 3][:channels]] if channels > 2 else samples  # OpenCV has blue first
    return cv2.imencode(".png", ordered)[1].tobytes()


def alpha_png() -> bytes:
    return png.encode_deep(noise(2, "u2"))


DEEP: dict[str, tuple[bytes, Numbers, int]] = {
    "dark grey png": (encoded(DARK, "PNG"), DARK[..., None], 16),
    "grey png": (encoded(noise(1, "u2")[..., 0], "PNG"), noise(1, "u2"), 16),
    "small numbers": (encoded(noise(1, "u2")[..., 0] % 256, "PNG"), noise(1, "u2") % 256, 16),
    "one number": (encoded(np.full((9, 9), 5000, np.uint16), "PNG"), np.full((9, 9, 1), 5000, np.uint16), 16),
    "rgb png": (deep_png(noise(3, "u2")), noise(3, "u2"), 16),
    "rgba png": (deep_png(noise(4, "u2")), noise(4, "u2")[..., :3], 16),
    "grey and alpha png": (alpha_png(), noise(2, "u2")[..., :1], 16),
    "grey pgm": (b"P5 33 20 65535\n" + noise(1, "u2").astype(">u2").tobytes(), noise(1, "u2"), 16),
    "grey tiff": (tiff(noise(1, "u2"), GREY), noise(1, "u2"), 16),
    "rgb tiff": (tiff(noise(3, "u2")), noise(3, "u2"), 16),
    "rgb tiff, bands apart": (tiff(noise(3, "u2"), planar=True, deflated=True), noise(3, "u2"), 16),
    "rgb and infrared": (tiff(noise(4, "u2"), RGB, (0,)), noise(4, "u2")[..., :3], 16),
    "signed tiff": (tiff(noise(1, "i2"), GREY), noise(1, "i2"), 15),
    "long tiff": (tiff(noise(1, "i4"), GREY), noise(1, "i4"), 31),
    "unsigned tiff": (tiff(noise(1, "u4"), GREY), noise(1, "u4"), 32),
    "bytes with signs": (tiff(noise(1, "i1"), GREY), noise(1, "i1"), 7),
    "floats": (tiff(noise(1, "f4"), GREY), noise(1, "f4"), 0),
    "floats, other order": (tiff(noise(1, "f4"), GREY, order=">", deflated=True), noise(1, "f4"), 0),
}
"""Encoded images, their numbers without alpha, and the number of bits without the sign; 0 for floats."""

WIDE = {
    "wide floats": tiff(noise(1, "f4") * 700 - 100, GREY),
    "not a number": tiff(np.where(noise(1, "f4") < 0.1, np.nan, noise(1, "f4") - 3).astype("f4"), GREY),
    "infinite": tiff(np.where(noise(1, "f4") < 0.1, np.inf, noise(1, "f4") * 9).astype("f4"), GREY),
}


def by_type(numbers: Numbers, bits: int) -> Numbers:
    if not bits:
        return np.rint(numbers * np.float32(255)).astype(np.uint8)
    return (numbers.astype(object).clip(0, None) * 256 // 2**bits).astype(np.uint8)


def by_file(numbers: Numbers) -> Numbers:
    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        return np.zeros(numbers.shape, np.uint8)
    return np.rint((numbers.astype(np.float64) - low) * 255 / (high - low)).astype(np.uint8)


def pillows(data: bytes) -> Numbers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def expected(name: str, how: str) -> Numbers:
    data, numbers, bits = DEEP[name]
    if how == "clip":
        return pillows(data)
    levels = by_type(numbers, bits) if how == "type" else by_file(numbers)
    return np.broadcast_to(levels, (*levels.shape[:2], 3))


WAYS = ("compiled", "python", "pillow")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decode with packer's C, without it, or with Pillow wherever that is possible."""
    if request.param != "compiled":
        monkeypatch.setattr(png, "_native", None)
        monkeypatch.setattr(native, "PREFERRED", False)
        monkeypatch.setattr(decode.native, "PREFERRED", False)
    if request.param == "pillow":
        monkeypatch.setattr(decode, "fast_decoder", lambda name="auto": ("pillow", decode.pillow.decode))
    return str(request.param)


@pairwise("way", name=DEEP, how=TO_8_BIT, way=WAYS)
def test_levels_are_the_same_in_all_ways(name: str, how: str, way: str) -> None:
    data = DEEP[name][0]
    depth = inspect(data).depth
    assert depth.is_deep
    levels = decode_to_8_bit(data, how, depth)
    assert levels.dtype == np.uint8
    assert levels.flags.writeable
    assert np.array_equal(levels, expected(name, how))
    stored = prepare(data, "a/b", Recipe("raw", to_8_bit=how))
    assert bytes(stored.data) == levels.tobytes()
    assert not any("8-bit RGB" in finding for finding in stored.findings)


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("codec", ["raw", "jpeg", "png", "webp", "bmp"])
def test_without_an_option_they_are_refused(name: str, codec: str) -> None:
    data, _, _ = DEEP[name]
    with pytest.raises(ImageError, match="to_8_bit='clip'") as caught:
        prepare(data, "a/b", Recipe(codec))
    assert f"{inspect(data).depth.bits} bits a channel" in caught.value.reason
    assert bytes(prepare(data, "a/b", Recipe()).data) == data


@pytest.mark.parametrize("name", ["grey and alpha png", "rgb png", "grey png"])
def test_turned_upright(name: str) -> None:
    exif, data = Image.Exif(), DEEP[name][0]
    exif[0x0112] = 6
    turned = data[:33] + png_chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + data[33:]
    for how in TO_8_BIT:
        found = decode_to_8_bit(turned, how, inspect(turned).depth, exif="apply")
        assert np.array_equal(found, np.rot90(expected(name, how), -1))


@pytest.mark.parametrize("name", WIDE)
def test_floats_beyond_one_have_no_range_of_a_type(name: str) -> None:
    data = WIDE[name]
    depth = inspect(data).depth
    with pytest.raises(ImageError, match="to_8_bit='file'"):
        decode_to_8_bit(data, "type", depth)
    numbers = np.asarray(Image.open(io.BytesIO(data)))
    finite = np.where(np.isfinite(numbers), numbers, np.nan)
    low, high = float(np.nanmin(finite)), float(np.nanmax(finite))
    with np.errstate(invalid="ignore"):
        scaled = np.rint((np.clip(numbers.astype(np.float64), low, high) - low) * 255 / (high - low))
    levels = np.where(np.isnan(numbers), 0, np.nan_to_num(scaled)).astype(np.uint8)
    assert np.array_equal(decode_to_8_bit(data, "file", depth)[..., 0], levels)


def test_colours_of_which_pillow_reads_8_bits() -> None:
    """Pillow keeps the upper 8 bits, as `type` requires; `file` fails: lowest and highest numbers are unknown."""
    rgb = noise(3, "u2", (64, 66))
    for data in (b"P6 66 64 65535\n" + rgb.astype(">u2").tobytes(), cv2.imencode(".jp2", rgb)[1].tobytes()):
        depth = inspect(data).depth
        assert depth.bits == 16
        assert np.array_equal(decode_to_8_bit(data, "type", depth), pillows(data))
        with pytest.raises(ImageError, match="to_8_bit='clip'"):
            decode_to_8_bit(data, "file", depth)
    inks = tiff(noise(4, "u2"), 5)
    assert np.array_equal(decode_to_8_bit(inks, "type", inspect(inks).depth), pillows(inks))
    with pytest.raises(ImageError, match="to_8_bit='type'"):
        decode_to_8_bit(inks, "file", inspect(inks).depth)


@pytest.mark.parametrize("how", TO_8_BIT)
def test_what_has_8_bits_stays_as_it_is(how: str) -> None:
    infrared = tiff(noise(4, "u1"), RGB, (0,))
    for data in (infrared, encoded(photo(20, 33), "PNG"), encoded(photo(20, 33), "JPEG")):
        stored = prepare(data, "a/b", Recipe("raw", to_8_bit=how))
        assert bytes(stored.data) == pillows(data).tobytes()
    with pytest.raises(ImageError, match="it has 4 bands"):
        prepare(infrared, "a/b", Recipe("raw"))
