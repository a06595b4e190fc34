"""Each byte of the headers of images is changed: C then does the same as Python and other decoders, or declines."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from packer._images import native
from packer._images.encode import encode_tiled
from packer._images.jpeg import read_header
from packer._images.jpeg_tiles import cut_out, cut_out_in_python, first_rows, first_rows_in_python, transcode
from packer.errors import NotTileableError
from tests.images.samples import encoded, jpeg, oriented, photo, pillow_pixels, png_chunk, segment
from tests.images.test_native_probe import require_pythons, surveyed
from tests.images.test_png import chunks_of, drawn

pytestmark = [
    pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation, and AVX2 or NEON"),
    pytest.mark.filterwarnings("ignore"),  # Pillow warns about damaged metadata
]

SIZE = (32, 48)
PIXELS = np.array(photo(*SIZE))


def with_metadata(data: bytes) -> bytes:
    """Return a JPEG with segments that cameras and programs write."""
    pieces = (
        segment(0xE2, b"ICC_PROFILE\0\1\1a"),
        segment(0xED, b"Photoshop 3.0\0" + b"8BIM\3\xed\0\0\0\0\0\x10" + bytes(16)),
    )
    return data[:2] + b"".join(pieces) + data[2:]


JPEGS = {
    "baseline": jpeg(size=SIZE),
    "grey": jpeg("grey", "restarts", SIZE),
    "progressive": jpeg("4:4:4", "progressive", SIZE),
    "CMYK": encoded(Image.fromarray(PIXELS).convert("CMYK"), "JPEG", quality=40),
    "tiled": encode_tiled(np.array(photo(32, 160)), 60),
    "metadata": with_metadata(oriented(PIXELS, 6)),
}


def changes(data: bytes, end: int, seed: int) -> Iterator[bytes]:
    """Change each byte before `end` to near, far and random values; remove it; and truncate the data there."""
    rng = random.Random(seed)
    for at in range(end):
        for byte in {data[at] - 1 & 0xFF, data[at] + 1 & 0xFF, 0, 0xFF, data[at] ^ 0x10, rng.randrange(256)} - {
            data[at]
        }:
            yield data[:at] + bytes([byte]) + data[at + 1 :]
        yield data[:at] + data[at + 1 :]
        yield data[:at]


def header_of(data: bytes) -> tuple[tuple[int, int], int]:
    header = read_header(data)
    assert header is not None
    return (header.height, header.width), header.scan + 8


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_is_seen_as_python_sees_it(name: str) -> None:
    images = list(changes(JPEGS[name], header_of(JPEGS[name])[1], 1))
    for checked in (0, 1):
        assert require_pythons(surveyed(images, None, checked=checked), images) > len(images) // 2


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_and_its_tiles_have_pillows_pixels(name: str) -> None:
    size, end = header_of(JPEGS[name])
    decoded = tiled = 0
    for data in changes(JPEGS[name], end, 2):
        pixels = native.decode(data, *size)
        try:
            made = transcode(data)
        except NotTileableError:
            made = None
        expected = pillow_pixels(data) if pixels is not None or made is not None else None
        if pixels is not None:
            decoded += 1
            assert np.array_equal(pixels, expected)
        if made is not None:
            tiled += 1
            assert np.array_equal(pillow_pixels(made), expected)
    assert decoded
    assert tiled or name == "CMYK"


@pytest.mark.parametrize("name", JPEGS)
def test_of_a_jpeg_the_same_is_cut_out(name: str) -> None:
    size, end = header_of(JPEGS[name])
    for data in changes(JPEGS[name], end, 3):
        assert cut_out(data, size, (3, 5, 9, 8)) == cut_out_in_python(data, size, (3, 5, 9, 8))
        assert first_rows(data, size, 9) == first_rows_in_python(data, size, 9)


CHUNKS = (
    (b"gAMA", bytes([0, 0, 0xB1, 0x8F])),
    (b"cHRM", bytes(range(32))),
    (b"sRGB", b"\0"),
    (b"pHYs", bytes([0, 0, 0x0B, 0x13, 0, 0, 0x0B, 0x13, 1])),
    (b"tEXt", b"Software\0packer"),
    (b"tEXt", b"bbox"),
    (b"tEXt", b"bbox\0of the image"),
    (b"tEXt", b"Raw profile type exif\0"),
    (b"tEXt", b"XML:com.adobe.xmp\0<x/>"),
    (b"zTXt", b"Comment\0\0x\x9c\x03\0\0\0\0\x01"),
    (b"iTXt", b"Comment\0\0\0\0\0text"),
    (b"bKGD", b"\0\1"),
    (b"eXIf", b"MM\0*\0\0\0\x08\0\0"),
)
PNGS = {
    (colour, depth): drawn(
        np.arange(24).reshape(4, 6, 1).repeat(channels, 2) % (1 << depth), colour, depth, [0, 1, 2, 3, 4]
    )
    for colour, depth, channels in ((0, 8, 1), (0, 1, 1), (2, 8, 3), (3, 8, 1), (6, 16, 4))
}


def chunks_changed(data: bytes, seed: int) -> Iterator[bytes]:
    """Change each of the first bytes of all chunks, including their names, and recompute the checksums."""
    chunks = [chunk[4:-4] for chunk in chunks_of(data)]
    for number, chunk in enumerate(chunks):
        for made in changes(chunk, min(len(chunk), 60) if chunk[:4] != b"IDAT" else 16, seed):
            pieces = [*chunks[:number], made, *chunks[number + 1 :]]
            yield data[:8] + b"".join(png_chunk(piece[:4].ljust(4), piece[4:]) for piece in pieces)


@pytest.mark.parametrize("kind", PNGS)
def test_a_png_has_pillows_pixels_and_is_seen_as_python_sees_it(kind: tuple[int, int]) -> None:
    plain = PNGS[kind]
    images = list(chunks_changed(plain, 5))
    for name, body in (*CHUNKS, (b"tRNS", b"\0\1"), (b"PLTE", bytes(range(30)))):
        place = plain.index(b"IDAT") - 4
        one = png_chunk(name, body)
        images += [plain[:place] + one + plain[place:]]
        images += [
            plain[:place] + png_chunk(made[:4].ljust(4), made[4:]) + plain[place:]
            for made in changes(name + body, min(4 + len(body), 24), 6)
        ]
    decoded = 0
    for data in images:
        pixels = native.decode(data, 4, 6)
        if pixels is not None:
            decoded += 1
            assert np.array_equal(pixels, np.asarray(pillow_pixels(data)))
    assert decoded
    seen = require_pythons(surveyed(images, None, checked=1), images)
    assert seen > len(images) // 3 or kind == (6, 16)  # C leaves 16 bits in colour to Python


@pytest.mark.parametrize("lossless", [False, True])
def test_a_webp_is_seen_as_python_sees_it(lossless: bool) -> None:
    images = list(changes(encoded(PIXELS, "WEBP", lossless=lossless), 34, 7))
    assert require_pythons(surveyed(images, None), images) > len(images) // 4
