"""Images decoded to grey (`mode="L"`), and as they are stored (`mode="unchanged"`)."""

from __future__ import annotations

import io
import struct
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from packer._images import modes, png
from packer._images.decode import decode
from packer._images.modes import decode_as, decode_unchanged, holds_ids
from packer.errors import ImageError, ImageTooLargeError
from tests.images.samples import encoded, jpeg, oriented, photo
from tests.images.test_png import drawn, samples_of

SIZE = (37, 53)
PHOTO = Image.fromarray(photo(*SIZE))
DEEP = samples_of(3, SIZE, 0, 16)[..., 0]
FLOATS = DEEP.astype(np.float32) / 7
INTEGERS = DEEP.astype(np.int32) * 1000 - 7

STORED: list[tuple[str, Any, dict[str, Any], type, int]] = [
    ("PNG", PHOTO, {}, np.uint8, 3),
    ("PNG", PHOTO.convert("L"), {}, np.uint8, 1),
    ("PNG", PHOTO.convert("LA"), {}, np.uint8, 2),
    ("PNG", PHOTO.convert("RGBA"), {}, np.uint8, 4),
    ("PNG", PHOTO.quantize(200), {}, np.uint8, 1),
    ("PNG", PHOTO.quantize(9), {"transparency": 2}, np.uint8, 1),
    ("PNG", PHOTO.convert("1"), {}, np.uint8, 1),
    ("PNG", Image.fromarray(DEEP), {}, np.uint16, 1),
    ("TIFF", Image.fromarray(DEEP), {}, np.uint16, 1),
    ("TIFF", Image.fromarray(INTEGERS), {}, np.int32, 1),
    ("TIFF", Image.fromarray(FLOATS), {"compression": "tiff_deflate"}, np.float32, 1),
    ("TIFF", PHOTO.convert("CMYK"), {}, np.uint8, 4),
    ("TIFF", PHOTO.convert("1"), {"compression": "group4"}, np.uint8, 1),
    ("JPEG", PHOTO, {}, np.uint8, 3),
    ("JPEG", PHOTO.convert("L"), {}, np.uint8, 1),
    ("JPEG", PHOTO.convert("L"), {"progressive": True}, np.uint8, 1),
    ("JPEG", PHOTO.convert("CMYK"), {}, np.uint8, 4),
    ("GIF", PHOTO.quantize(99), {}, np.uint8, 1),
    ("BMP", PHOTO.convert("1"), {}, np.uint8, 1),
    ("WEBP", Image.merge("RGBA", [*PHOTO.split(), PHOTO.convert("L")]), {"lossless": True}, np.uint8, 4),
    ("PPM", PHOTO.convert("L"), {}, np.uint8, 1),
    ("PPM", Image.fromarray(DEEP), {}, np.uint16, 1),
    ("JPEG2000", Image.fromarray(DEEP), {}, np.uint16, 1),
]


def by_pillow(data: bytes) -> npt.NDArray[Any]:
    numbers = np.asarray(Image.open(io.BytesIO(data)))
    return numbers.reshape(*numbers.shape[:2], -1)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("kind", "image", "options", "dtype", "channels"), STORED)
def test_unchanged_are_the_numbers_that_pillow_opens(  # noqa: PLR0917
    kind: str,
    image: Image.Image,
    options: dict[str, Any],
    dtype: type,
    channels: int,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not compiled:
        monkeypatch.setattr(png, "_native", None)
    data = encoded(image, kind, **options)
    pixels = decode_unchanged(data)
    assert (pixels.shape, pixels.dtype) == ((*SIZE, channels), dtype)
    assert pixels.dtype.isnative
    assert pixels.flags.writeable
    assert np.array_equal(pixels, by_pillow(data))
    assert np.array_equal(decode_as(data, "unchanged"), pixels)
    assert np.array_equal(decode_unchanged(data, size=SIZE, rows=(5, 9)), pixels[5:9])
    with pytest.raises(ImageError, match="53 x 37 pixels instead of 37 x 53"):
        decode_unchanged(data, size=SIZE[::-1])
    with pytest.raises(ImageTooLargeError):
        decode_unchanged(data, max_pixels=100)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("interlaced", [True, False])
@pytest.mark.parametrize("colour", [2, 4, 6])
def test_pngs_of_16_bits_in_colour_keep_them_all(
    colour: int, interlaced: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(png, "_native", None)
    samples = samples_of(4, (9, 11), colour, 16)
    data = drawn(samples, colour, 16, [4, 3, 2, 1, 0], interlaced)
    pixels = decode_unchanged(data)
    assert pixels.dtype == np.uint16
    assert np.array_equal(pixels, samples)
    assert np.array_equal(decode_as(data, "RGB"), decode(data))
    broken = data.replace(b"IDAT", b"IDAT\0", 1)
    with pytest.raises(ImageError):
        decode_unchanged(broken)


def tiff(samples: npt.NDArray[Any], bits: int, format: int) -> bytes:
    """Write a TIFF of (height, width, channels) samples in one strip."""
    height, width, channels = samples.shape
    body = samples.tobytes()
    fields = [(256, 4, width), (257, 4, height), (258, 3, bits), (259, 3, 1), (262, 3, 1 if channels == 1 else 2)]
    fields += [(273, 4, 0), (277, 3, channels), (278, 4, height), (279, 4, len(body)), (339, 3, format)]
    end = 8 + 2 + 12 * len(fields) + 4
    entries = b""
    for tag, kind, value in fields:
        repeated = tag in (258, 339) and channels > 1
        place = {258: end, 339: end + 2 * channels}.get(tag, value) if repeated else value
        entries += struct.pack(
            "<HHII", tag, kind, channels if repeated else 1, place if tag != 273 else end + 4 * channels
        )
    arrays = struct.pack(f"<{channels}H", *[bits] * channels) + struct.pack(f"<{channels}H", *[format] * channels)
    return b"II*\0" + struct.pack("<IH", 8, len(fields)) + entries + bytes(4) + arrays + body


def avif_of_10_bits() -> bytes:
    data = bytearray(encoded(PHOTO, "AVIF"))
    data[data.index(b"av1C") + 6] |= 0x40
    return bytes(data)


def reduced() -> dict[str, bytes]:
    """Return images that Pillow reads with fewer bits than they have."""
    rgb = samples_of(5, (64, 66), 2, 16)
    jpeg2000 = cv2.imencode(".jp2", rgb)[1].tobytes()
    return {
        "doubles": tiff(rgb[..., :1].astype(np.float64), 64, 3),
        "unsigned": tiff(np.full((2, 2, 1), 0xF0000000, np.uint32), 32, 1),
        "ppm": b"P6 66 64 65535\n" + rgb.astype(">u2").tobytes(),
        "jpeg2000": jpeg2000,
        "avif": avif_of_10_bits(),
        "animated png": png.SIGNATURE
        + drawn(rgb, 2, 16, [0])[8:].replace(b"\0\0\0\0IEND", b"\0\0\0\0acTL\0\0\0\0\0\0\0\0IEND"),
    }


REDUCED = ("doubles", "unsigned", "ppm", "jpeg2000", "avif", "animated png")


@pytest.mark.parametrize("name", REDUCED)
def test_what_pillow_would_reduce_is_refused(name: str) -> None:
    with pytest.raises(ImageError):
        decode_unchanged(reduced()[name])


@pytest.mark.parametrize("name", ["ppm", "jpeg2000"])
def test_the_refusal_says_how_many_bits_there_are(name: str) -> None:
    with pytest.raises(ImageError, match="16 bits per channel, of which Pillow reads 8"):
        decode_unchanged(reduced()[name])
    assert decode_as(reduced()[name], "RGB").shape == (64, 66, 3)


@pytest.mark.parametrize(("kind", "image", "options", "dtype", "channels"), STORED)
def test_grey_is_pillows_or_refused(
    kind: str, image: Image.Image, options: dict[str, Any], dtype: type, channels: int
) -> None:
    data = encoded(image, kind, **options)
    if dtype != np.uint8:
        with pytest.raises(ImageError, match="mode='unchanged'"):
            decode_as(data, "L")
        return
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("L"))[..., None]
    pixels = decode_as(data, "L")
    assert np.array_equal(pixels, expected)
    assert pixels.flags.writeable
    with pytest.raises(ImageError, match="instead of"):
        decode_as(data, "L", size=(1, 1))


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4", "grey"])
@pytest.mark.parametrize("decoder", ["auto", "turbojpeg", "pillow"])
def test_the_decoder_changes_no_grey(subsampling: str, decoder: str) -> None:
    data = jpeg(subsampling)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    assert np.array_equal(decode_as(data, "L", decoder=decoder)[..., 0], expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_images_are_turned_upright_in_every_mode(kind: str, orientation: int) -> None:
    for image in (photo(*SIZE), photo(*SIZE)[..., 0], DEEP):
        if image.dtype == np.uint16 and kind not in ("PNG", "TIFF"):
            continue
        data = oriented(image, orientation, kind)
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        pixels = decode_unchanged(data, exif="apply")
        assert np.array_equal(pixels, np.asarray(upright).reshape(pixels.shape))
        if image.dtype == np.uint8:
            assert np.array_equal(decode_as(data, "L", exif="apply")[..., 0], np.asarray(upright.convert("L")))
        if kind != "TIFF":  # Pillow rotates a TIFF when it loads it
            assert np.array_equal(decode_unchanged(data), by_pillow(data))


def test_ids_are_told_from_levels() -> None:
    assert holds_ids(encoded(PHOTO.quantize(9), "PNG"))
    assert holds_ids(encoded(PHOTO.convert("1"), "PNG"))
    assert not holds_ids(encoded(PHOTO.convert("L"), "PNG"))
    with pytest.raises(ImageError):
        holds_ids(b"nothing")


def test_other_modes_and_other_files_are_refused() -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        decode_as(encoded(PHOTO, "PNG"), "RGBA")
    for mode in modes.MODES:
        with pytest.raises(ImageError):
            decode_as(b"nothing", mode)
        with pytest.raises(ImageError):
            decode_as(encoded(PHOTO, "PNG")[:300], mode)
