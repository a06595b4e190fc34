"""packer's PNG decoder returns Pillow's RGB pixels, or leaves the image to Pillow."""

from __future__ import annotations

import io
import warnings
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images import native
from packer._images.decode import decode
from packer._images.geometry import Box
from packer.errors import ImageError
from tests.images.samples import encoded, photo, png_chunk
from tests.images.test_png import CHANNELS, KINDS, chunks_of, drawn

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")

SIZES = ((1, 1), (1, 9), (7, 1), (2, 3), (13, 17), (9, 40), (40, 33))
HEADER = 33  # bytes up to the end of the first chunk


def by_pillow(data: bytes) -> npt.NDArray[np.uint8]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def with_chunk(data: bytes, name: bytes, body: bytes, place: int = HEADER) -> bytes:
    return data[:place] + png_chunk(name, body) + data[place:]


def smooth(rng: np.random.Generator, size: tuple[int, int], colour: int, depth: int) -> npt.NDArray[Any]:
    """Draw smooth samples, noise or ones, so that every branch of the filters is reached."""
    steps = rng.integers(-3, 4, (*size, CHANNELS[colour])).cumsum(1) + rng.integers(0, 1 << depth, (size[0], 1, 1))
    kind = rng.integers(3)
    if kind == 0:
        return steps % (1 << depth)
    return rng.integers(0, 1 << depth, steps.shape) if kind == 1 else np.zeros(steps.shape, np.int64) + 1


@st.composite
def pngs(draw: st.DrawFn) -> tuple[bytes, tuple[int, int]]:
    """Draw a PNG of any kind, and its size."""
    colour, depth = draw(st.sampled_from(KINDS))
    size = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    filters = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    samples = smooth(rng, size, colour, depth)
    data = drawn(samples, colour, depth, filters, draw(st.booleans()), draw(st.integers(1, 3)))
    if draw(st.booleans()):
        transparent = {0: b"\0\1", 2: bytes(6), 3: bytes([255, 0, 7][: draw(st.integers(1, 3))])}.get(colour)
        place = data.index(b"IDAT") - 4
        data = data if transparent is None else with_chunk(data, b"tRNS", transparent, place)
    return data, size


@given(png=pngs())
def test_every_kind_of_png_has_pillows_pixels(png: tuple[bytes, tuple[int, int]]) -> None:
    data, size = png
    pixels = native.decode(data, *size)
    assert pixels is not None
    assert np.array_equal(pixels, by_pillow(data))


@given(png=pngs(), data=st.data())
def test_a_window_of_a_png_is_that_of_the_whole(png: tuple[bytes, tuple[int, int]], data: st.DataObject) -> None:
    encoded_image, (height, width) = png
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    crop = (top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
    scaled = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    box = Box.of(crop, scaled, flip=data.draw(st.booleans()))
    out, expected = (np.empty((*scaled, 3), np.uint8) for _ in "ab")
    assert not native.decode_into(native.task_of(encoded_image, (height, width), box, out.ctypes.data))
    part = by_pillow(encoded_image)[top : top + crop[2], left : left + crop[3]]
    assert native.resize(part, box, expected.ctypes.data)
    assert np.array_equal(out, expected)


def changed(data: bytes, draw: st.DrawFn) -> bytes:
    """Change, shorten, repeat or remove chunks, and recompute the checksums."""
    chunks = [bytearray(chunk) for chunk in chunks_of(data)]
    for _ in range(draw(st.integers(1, 3))):
        chunk = chunks[draw(st.integers(0, len(chunks) - 1))]
        match draw(st.integers(0, 3)):
            case 0 if len(chunk) > 12:
                chunk[draw(st.integers(4, len(chunk) - 5))] = draw(st.integers(0, 255))
            case 1 if len(chunk) > 12:
                del chunk[draw(st.integers(8, len(chunk) - 5)) : -4]
            case 2:
                chunks.insert(draw(st.integers(0, len(chunks))), bytearray(chunk))
            case _:
                chunks.remove(chunk)
        if not chunks:
            break
    return data[:8] + b"".join(png_chunk(bytes(chunk[4:8]), bytes(chunk[8:-4])) for chunk in chunks)


@given(png=pngs(), data=st.data())
def test_a_changed_png_has_pillows_pixels_or_is_left_to_pillow(
    png: tuple[bytes, tuple[int, int]], data: st.DataObject
) -> None:
    damaged = changed(png[0], data.draw)
    pixels = native.decode(damaged, *png[1])
    assert pixels is None or np.array_equal(pixels, by_pillow(damaged))


@settings(max_examples=50, deadline=None)
@given(png=pngs(), data=st.data())
def test_a_png_of_which_a_bit_is_another_is_left_to_pillow(
    png: tuple[bytes, tuple[int, int]], data: st.DataObject
) -> None:
    whole = bytearray(png[0])
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = png[0][: data.draw(st.integers(0, len(png[0]) - 1))]
    assert native.decode(bytes(whole), *png[1]) is None
    assert native.decode(cut, *png[1]) is None


def test_paeths_filter_is_undone_for_all_neighbours() -> None:
    """Two rows contain every combination of corner, upper and left sample, in steps of 5; pixels have 3 and 4 bytes."""
    levels = np.arange(0, 256, 5, np.uint8)
    corner, up, left = np.meshgrid(levels, levels, levels, indexing="ij")
    rows = np.zeros((2, 2 * corner.size, 1), np.uint8)
    rows[0, ::2, 0], rows[0, 1::2, 0], rows[1, ::2, 0] = corner.ravel(), up.ravel(), left.ravel()
    rows[1, 1::2, 0] = np.random.default_rng(1).integers(0, 256, corner.size)
    for colour, channels in ((2, 3), (6, 4)):
        data = drawn(np.repeat(rows, channels, 2), colour, 8, [0, 4])
        pixels = native.decode(data, *rows.shape[:2])
        assert pixels is not None
        assert np.array_equal(pixels, np.repeat(rows, 3, 2))


def test_metadata_that_change_no_pixel_are_passed_over() -> None:
    data, profile = encoded(photo(20, 30), "PNG"), zlib.compress(bytes(3000))
    for name, body in (
        (b"gAMA", bytes([0, 0, 0xB1, 0x8F])),
        (b"iCCP", b"a profile\0\0" + profile),
        (b"eXIf", b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0"),
        (b"tEXt", b"Software\0packer"),
        (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0<x/>"),
        (b"PLTE", bytes(range(30))),
    ):
        image = with_chunk(data, name, body)
        pixels = native.decode(image, 20, 30)
        assert pixels is not None, name
        assert np.array_equal(pixels, by_pillow(image))


def test_what_pillow_stumbles_over_is_left_to_pillow() -> None:
    data, end = drawn(photo(20, 30), 2, 8, [1]), b"\0\0\0\0IEND\xaeB`\x82"
    for name, body in (
        (b"iCCP", b"a profile\0\1" + zlib.compress(b"")),
        (b"iCCP", b"a profile\0\0" + zlib.compress(bytes(1 << 21))),
        (b"tEXt", b"bbox\0of the image"),
        (b"tEXt", b"interlace\0yes"),
        (b"iTXt", b"transparency\0\0\0\0\0of the image"),
        (b"gAMA", b"\0"),
        (b"acTL", b"\0\0\0\1\0\0\0\0"),
        (b"ABCD", b""),
    ):
        assert native.decode(with_chunk(data, name, body), 20, 30) is None, name
    profile = png_chunk(b"iCCP", b"a profile\0\0" + zlib.compress(b""))
    assert native.decode(data[:HEADER] + profile + data[HEADER:], 20, 30) is not None
    assert native.decode(data[:HEADER] + 2 * profile + data[HEADER:], 20, 30) is None
    header = data[:HEADER]
    assert native.decode(header + end, 20, 30) is None
    assert native.decode(data[:HEADER] + data[HEADER : -len(end)] * 2 + end, 20, 30) is not None
    assert native.decode(data, 30, 20) is None


def test_colours_that_the_palette_lacks_are_left_to_pillow() -> None:
    indices = np.arange(12).reshape(3, 4, 1)
    data = drawn(indices, 3, 8, [0])
    ihdr, _, *others = chunks_of(data)
    image = data[:8] + b"".join([ihdr, png_chunk(b"PLTE", bytes(range(33))), *others])
    assert native.decode(image, 3, 4) is None
    assert np.array_equal(decode(image), by_pillow(image))


def test_images_that_pillow_refuses_are_refused() -> None:
    data = bytearray(encoded(photo(20, 30), "PNG"))
    data[60] ^= 1
    with pytest.raises(ImageError):
        decode(bytes(data))
    with pytest.raises(ImageError, match="allowed"):
        decode(encoded(photo(20, 30), "PNG"), max_pixels=599)
