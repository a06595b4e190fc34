"""packer's JPEG decoder returns exactly libjpeg-turbo's pixels, or leaves the image to another decoder."""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import random
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from packer._formats import open_pack
from packer._images import native, turbojpeg
from packer._images.decode import decode
from packer._images.encode import encode_tiled
from packer._images.geometry import CROP, INTERPOLATIONS, Box, Rectangle
from packer._images.jpeg import read_header, segments
from packer._images.jpeg_tiles import read_tiles
from packer.errors import ImageError
from tests.images.samples import damaged, encoded, photo

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")

Pixels = npt.NDArray[np.uint8]

FACTORS = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
SAMPLINGS = ("grey", *FACTORS)


def jpeg(  # noqa: PLR0917
    pixels: Pixels,
    sampling: str = "4:2:0",
    quality: int = 90,
    restarts: int = 0,
    optimised: bool = False,
    progressive: bool = False,
) -> bytes:
    """Encode pixels as JPEG; OpenCV takes them as BGR. `restarts` is the number of MCUs between restart markers."""
    settings = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, restarts]
    settings += [cv2.IMWRITE_JPEG_OPTIMIZE, int(optimised), cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive)]
    if sampling == "grey":
        pixels = np.ascontiguousarray(pixels[..., 0])
    else:
        settings += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, FACTORS[sampling]]
    written, data = cv2.imencode(".jpg", pixels, settings)
    assert written
    return data.tobytes()


@st.composite
def jpegs(draw: st.DrawFn, most: int = 70) -> tuple[bytes, tuple[int, int], str]:
    """Draw a JPEG that packer's decoder supports, its height and width, and its sampling."""
    sampling = draw(st.sampled_from(SAMPLINGS))
    height, width = draw(st.integers(1, most)), draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    match draw(st.sampled_from(["photo", "noise", "black and white", "plain"])):
        case "photo":
            pixels = np.array(photo(height, width))
        case "noise":
            pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        case "black and white":
            pixels = rng.choice(np.array([0, 255], np.uint8), (height, width, 3))
        case _:
            pixels = np.full((height, width, 3), rng.integers(0, 256, 3), np.uint8)
    quality, restarts = draw(st.integers(1, 100)), draw(st.sampled_from([0, 0, 1, 2, 3, 7, 50, 1000]))
    made = jpeg(pixels, sampling, quality, restarts, draw(st.booleans()), draw(st.booleans()))
    return made, (height, width), sampling


@st.composite
def rectangles(draw: st.DrawFn, height: int, width: int) -> Rectangle:
    """Draw a rectangle inside an image; many are one pixel thin, or touch the bottom or the right edge."""
    spans = []
    for side in (height, width):
        length = draw(st.one_of(st.just(1), st.integers(1, side)))
        spans.append((draw(st.one_of(st.just(side - length), st.integers(0, side - length))), length))
    (top, tall), (left, wide) = spans
    return top, left, tall, wide


interpolations = st.sampled_from(range(len(INTERPOLATIONS)))


@st.composite
def boxes(draw: st.DrawFn, height: int, width: int, most: int = 300) -> Box:
    """Draw a box whose rectangle lies inside an image."""
    rectangle = draw(rectangles(height, width))
    sides = st.integers(1, most)
    scaled = draw(st.one_of(st.just(rectangle[2:]), st.tuples(sides, sides)))
    out = scaled
    if draw(st.booleans()):
        out = draw(st.integers(1, scaled[0])), draw(st.integers(1, scaled[1]))
    place = draw(st.integers(0, scaled[0] - out[0])), draw(st.integers(0, scaled[1] - out[1]))
    return Box.of(rectangle, scaled, place, out, draw(st.booleans()))._replace(interpolation=draw(interpolations))


def decode_into(images: list[tuple[bytes, tuple[int, int], Box, int]]) -> list[bool]:
    """Decode windows of images, and return for each whether it was decoded.

    An image is given as its bytes, its height and width, a box, and the address of the window's memory.
    """
    data, sizes, boxes, places = zip(*images, strict=True)
    left = native.decode_into(native.tasks(native.in_memory(data, sizes), np.array([*boxes], CROP), np.array(places)))
    return [number not in left for number in range(len(images))]


def decoded(data: bytes, size: tuple[int, int], box: Box) -> Pixels | None:
    """Decode the window of a box, or return None if packer leaves the image to other decoders.

    Require that the memory around the window does not change.
    """
    height, width = box.out
    count, guard = height * width * 3, 64
    memory = np.full(count + 2 * guard, 0xA5, np.uint8)
    (done,) = decode_into([(data, size, box, memory.ctypes.data + guard)])
    assert (memory[:guard] == 0xA5).all()
    assert (memory[guard + count :] == 0xA5).all()
    return memory[guard : guard + count].reshape(height, width, 3) if done else None


def cut(data: bytes, size: tuple[int, int], rectangle: Rectangle) -> Pixels | None:
    return decoded(data, size, Box.of(rectangle, rectangle[2:]))


def same(found: Pixels | None, expected: Pixels) -> bool:
    return found is not None and np.array_equal(found, expected)


# The pixels are libjpeg-turbo's.


@given(image=jpegs())
def test_whole_images_have_the_pixels_of_libjpeg_turbo(image: tuple[bytes, tuple[int, int], str]) -> None:
    data, size, _ = image
    assert same(native.decode(data, *size), turbojpeg.decode_jpeg(data))


@given(image=jpegs(), data=st.data())
def test_rectangles_are_cut_out_of_the_whole(image: tuple[bytes, tuple[int, int], str], data: st.DataObject) -> None:
    stored, size, _ = image
    rectangle = top, left, height, width = data.draw(rectangles(*size))
    expected = turbojpeg.decode_jpeg(stored)[top : top + height, left : left + width]
    assert same(cut(stored, size, rectangle), expected)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sizes_around_those_of_blocks(sampling: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (34, 36, 3), np.uint8)
    for height, width in itertools.product([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 34], range(1, 37)):
        data = jpeg(np.ascontiguousarray(noise[:height, :width]), sampling, 95)
        assert same(native.decode(data, height, width), turbojpeg.decode_jpeg(data)), (height, width)


@pytest.mark.parametrize("restarts", [0, 1, 5])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_each_pixel_alone(sampling: str, restarts: int) -> None:
    size = 35, 37
    data = jpeg(np.array(photo(*size)), sampling, 95, restarts)
    whole = turbojpeg.decode_jpeg(data)
    for top, left in np.ndindex(size):
        assert same(cut(data, size, (top, left, 1, 1)), whole[top : top + 1, left : left + 1]), (top, left)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", ["photo", "noise"])
def test_large_images(kind: str, sampling: str) -> None:
    """Their scans are longer than the part of 8 KiB that the decoder copies at a time."""
    size = 405, 525
    pixels = photo(*size) if kind == "photo" else np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    for restarts in (0, 1, 17, 40):
        data = jpeg(np.array(pixels), sampling, 100, restarts)
        whole = turbojpeg.decode_jpeg(data)
        assert same(native.decode(data, *size), whole)
        for top, left, height, width in [(0, 0, 405, 1), (404, 0, 1, 525), (200, 301, 57, 66), (3, 500, 400, 25)]:
            rectangle = top, left, height, width
            assert same(cut(data, size, rectangle), whole[top : top + height, left : left + width])


def test_long_and_narrow() -> None:
    for size in ((65_500, 7), (7, 65_500)):
        data = jpeg(np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8), "4:2:0", 30)
        whole = turbojpeg.decode_jpeg(data)
        assert same(native.decode(data, *size), whole)
        assert same(cut(data, size, (size[0] - 5, size[1] - 5, 5, 5)), whole[-5:, -5:])


GOLDEN = sorted(
    path for path in (Path(__file__).parents[1] / "golden").glob("schema-*/*.lmdb") if path.stem[:4] in ("keep", "jpeg")
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_photos_have_the_pixels_that_were_written_down(path: Path) -> None:
    rows = json.loads((path.parent / "samples.json").read_text())[path.name]
    with open_pack(path) as reader:
        for index, (_, _, height, width, _, digest, _) in enumerate(rows):
            pixels = native.decode(bytes(reader.read(index)), height, width)
            assert pixels is not None
            assert hashlib.sha256(pixels.tobytes()).hexdigest() == digest


def changed_segments(data: bytes, marker: int, change: Any) -> bytes:
    """Return a JPEG with other content in all segments of a marker: `change` maps the old content to the new."""
    pieces, at = [data[:2]], 2
    for found, start, end in segments(data):
        content = data[start + 4 : end]
        if found == marker:
            content = change(content)
        pieces.append(data[start : start + 2] + struct.pack(">H", len(content) + 2) + content)
        at = end
    return b"".join(pieces) + data[at:]


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="needs libjpeg-turbo's code for x86: its sums wrap"
)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", ["noise", "columns", "plain", "black and white"])
def test_coefficients_that_no_image_has(kind: str, sampling: str) -> None:
    """Damage makes coefficients that no encoder writes; libjpeg-turbo decodes them without an error."""
    rng = np.random.default_rng(0)
    pixels = {
        "noise": rng.integers(0, 256, (48, 48, 3), np.uint8),
        "columns": np.repeat(rng.integers(0, 256, (1, 48, 3), np.uint8), 48, 0),
        "plain": np.full((48, 48, 3), 255, np.uint8),
        "black and white": rng.choice(np.array([0, 255], np.uint8), (48, 48, 3)),
    }[kind]
    for factor in (20, 60, 130, 255):
        data = changed_segments(
            jpeg(pixels, sampling, 100),
            0xDB,
            lambda tables, factor=factor: b"".join(
                tables[at : at + 1] + bytes([factor]) * 64 for at in range(0, len(tables), 65)
            ),
        )
        assert same(native.decode(data, 48, 48), turbojpeg.decode_jpeg(data)), factor


@given(image=jpegs(40), data=st.data())
def test_damaged_images(image: tuple[bytes, tuple[int, int], str], data: st.DataObject) -> None:
    """The default decoder returns the pixels of the decoder turbojpeg, or both raise an error."""
    stored = data.draw(damaged(image[0]))
    try:
        expected = decode(stored, decoder="turbojpeg")
    except ImageError:
        with pytest.raises(ImageError):
            decode(stored)
    else:
        assert np.array_equal(decode(stored), expected)


# Images that are left to other decoders.

SIZE = 40, 56
ORDINARY = jpeg(np.array(photo(*SIZE)))
GREY = jpeg(np.array(photo(*SIZE)), "grey")
PHOTO = Image.fromarray(photo(*SIZE))


def frame(data: bytes, **fields: int) -> bytes:
    """Change fields of the frame header: the marker, precision, height, width, or a component's id or factors."""
    header = read_header(data)
    assert header is not None
    at = {"marker": -3, "precision": 0, "height": 1, "width": 3, "first_id": 6, "factors": 7, "chroma_factors": 10}
    patched = bytearray(data)
    for name, value in fields.items():
        struct.pack_into(">H" if name in ("height", "width") else ">B", patched, header.frame + at[name], value)
    return bytes(patched)


def with_segment(marker: int, content: bytes) -> bytes:
    """Return a JPEG with this segment in place of its JFIF segment."""
    (_, _, end) = next(segments(ORDINARY))
    return b"\xff\xd8\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content + ORDINARY[end:]


def all_ones(tables: bytes) -> bytes:
    """Return a Huffman table with two codes of one bit; one of them is all ones, which the standard forbids."""
    counts, symbols = bytes([2, *([0] * 15)]), b"\0\1"
    return tables[:1] + counts + symbols


def one_scan_each(data: bytes) -> bytes:
    """Return a JPEG whose scan header names one of its three components."""
    return changed_segments(data, 0xDA, lambda scan: b"\x01" + scan[1:3] + scan[-3:])


UNUSUAL = {
    "nothing": b"",
    "a marker": b"\xff\xd8",
    "WebP": encoded(photo(*SIZE), "WEBP"),
    "progressive, half of it": encoded(photo(*SIZE), "JPEG", progressive=True)[:700],
    "RGB": encoded(photo(*SIZE), "JPEG", keep_rgb=True),
    "RGB, as Adobe says it": with_segment(0xEE, b"Adobe\0d\0\0\0\0\0"),
    "RGB, as its components say it": frame(with_segment(0xFE, b"no JFIF"), first_id=82),
    "four colours, as nobody says them": changed_segments(
        encoded(PHOTO.convert("CMYK"), "JPEG"), 0xEE, lambda adobe: adobe[:11] + b"\1"
    ),
    "arithmetic": frame(ORDINARY, marker=0xC9),
    "lossless": frame(ORDINARY, marker=0xC3),
    "12 bits": frame(ORDINARY, precision=12),
    "another height": frame(ORDINARY, height=41),
    "another width": frame(ORDINARY, width=55),
    "height at its end (DNL)": frame(ORDINARY, height=0),
    "factors that do not divide each other": frame(frame(ORDINARY, factors=0x31), chroma_factors=0x21),
    "other factors than it has": frame(ORDINARY, factors=0x41),
    "chroma as large as luma": frame(ORDINARY, chroma_factors=0x22),
    "factors that are none": frame(GREY, factors=0x10),
    "factors that are too large": frame(GREY, factors=0x51),
    "a component at a time": one_scan_each(ORDINARY),
    "a code of ones only": changed_segments(GREY, 0xC4, all_ones),
    "no table of quanta": changed_segments(ORDINARY, 0xDB, lambda tables: b""),
    "quanta of 16 bits": changed_segments(GREY, 0xDB, lambda table: b"\x10" + bytes(64) + b"\1" * 64),
    "restarts that are not announced": changed_segments(
        jpeg(np.array(photo(*SIZE)), restarts=1), 0xDD, lambda interval: b"\0\0"
    ),
    "restarts that are not there": with_segment(0xDD, b"\0\1"),
    "a byte behind the last row": ORDINARY[:-2] + b"\0\xff\xd9",
    "a marker behind the last row": ORDINARY[:-2] + b"\0\xff\xc8\xff\xd9",
    "no end": ORDINARY[:-2],
    "half of it": ORDINARY[: len(ORDINARY) // 2],
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_images_are_left_to_others(name: str) -> None:
    assert native.decode(UNUSUAL[name], *SIZE) is None
    assert cut(UNUSUAL[name], SIZE, (0, 0, *SIZE)) is None


def test_the_ordinary_images_that_those_are_made_of_are_not() -> None:
    for data in (ORDINARY, GREY, with_segment(0xFE, b"no JFIF"), with_segment(0xEE, b"Adobe\0d\0\0\0\0\1")):
        assert same(native.decode(data, *SIZE), turbojpeg.decode_jpeg(data))
    for factors in (0x22, 0x41, 0x14, 0x33):  # factors have no effect with one component
        assert same(native.decode(frame(GREY, factors=factors), *SIZE), turbojpeg.decode_jpeg(GREY))


def test_a_restart_that_is_missing_or_wrong() -> None:
    data = jpeg(np.array(photo(*SIZE)), restarts=2)
    assert native.decode(data, *SIZE) is not None
    second = data.index(b"\xff\xd1")
    for wrong in (
        data[:second] + data[second + 2 :],
        data[: second + 1] + b"\xd2" + data[second + 2 :],
        data[:second] + b"\xff\xd1" + data[second:],
        data[:second] + b"\0" + data[second:],
        data[: second - 1] + data[second:],
    ):
        assert native.decode(wrong, *SIZE) is None
        assert same(cut(wrong, SIZE, (0, 0, 15, 31)), decode(data)[:15, :31])  # it lies before the damage


ONE, END, ZEROS, ONE_AFTER_ZEROS = 0x01, 0x00, 0xF0, 0xF1  # symbols of AC: a coefficient of 1 or -1 after 0 or 15 zeros
SYMBOLS = {ONE: "00", END: "01", ZEROS: "100", ONE_AFTER_ZEROS: "101"}
BLOCKS = {
    "63 coefficients": [ONE] * 63,
    "62 coefficients": [*[ONE] * 62, END],
    "a coefficient": [ONE, END],
    "the last one": [*[ZEROS] * 3, ONE, *[ONE] * 13, ONE],
    "the last one after zeros": [*[ONE] * 47, ONE_AFTER_ZEROS],
    "zeros at last": [*[ONE] * 46, ZEROS, END],
}
LONG_BLOCKS = {
    "one after zeros beyond the last": [*[ONE] * 48, ONE_AFTER_ZEROS],
    "zeros up to the last": [*[ONE] * 47, ZEROS],
    "zeros beyond the last": [*[ONE] * 48, ZEROS],
    "the last one, and an end": [*[ONE] * 63, END],
}


def of_blocks(symbols: list[int], restarts: int) -> bytes:
    """Return an image of 16 x 16 pixels whose four blocks have these symbols, and coefficients of 1 and -1."""
    chance = random.Random(len(symbols))
    scan, rows = b"", 2 if restarts else 1
    for row in range(rows):
        bits = ""
        for _ in range(4 // rows):
            bits += "0"  # the DC coefficient is that of the previous block
            for symbol in symbols:
                bits += SYMBOLS[symbol] + (chance.choice("01") if symbol & 15 else "")
        bits += "1" * (-len(bits) % 8)
        scan += int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
        scan += b"\xff\xd0" if row + 1 < rows else b""
    pieces = {
        0xDB: b"\0" + bytes([9] * 64),
        0xC0: b"\x08\0\x10\0\x10\x01\x01\x11\0",
        0xC4: b"\0\x01" + bytes(15) + b"\0" + b"\x10" + bytes([0, 2, 2, *[0] * 13]) + bytes(SYMBOLS),
        0xDD: struct.pack(">H", restarts),
        0xDA: b"\x01\x01\0\0\x3f\0",
    }
    headers = [
        b"\xff" + bytes([marker]) + struct.pack(">H", len(piece) + 2) + piece for marker, piece in pieces.items()
    ]
    return b"".join([b"\xff\xd8", *headers, scan, b"\xff\xd9"])


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_end_by_a_code_or_by_their_last_coefficient(name: str, restarts: int) -> None:
    data = of_blocks(BLOCKS[name], restarts)
    assert same(native.decode(data, 16, 16), turbojpeg.decode_jpeg(data))
    assert same(cut(data, (16, 16), (8, 8, 8, 8)), turbojpeg.decode_jpeg(data)[8:, 8:])  # the other blocks are skipped


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("name", LONG_BLOCKS)
def test_blocks_of_too_many_coefficients_are_left_to_others(name: str, restarts: int) -> None:
    data = of_blocks(LONG_BLOCKS[name], restarts)
    assert native.decode(data, 16, 16) is None
    assert cut(data, (16, 16), (8, 8, 8, 8)) is None


RESIZED = {sampling: jpeg(np.array(photo(131, 157)), sampling, 95, 3) for sampling in SAMPLINGS}


FAR = 2**63 - 1


@pytest.mark.parametrize(
    "box",
    [
        Box.of((-1, 0, 5, 5), (5, 5), out=(5, 5)),
        Box.of((0, -1, 5, 5), (5, 5), out=(5, 5)),
        Box.of((36, 0, 5, 5), (5, 5), out=(5, 5)),
        Box.of((0, 52, 5, 5), (5, 5), out=(5, 5)),
        Box.of((0, 0, 0, 5), (5, 5), out=(5, 5)),
        Box.of((0, 0, 5, -1), (5, 5), out=(5, 5)),
        Box.of((0, 0, -FAR - 1, 5), (5, 5), out=(5, 5)),
        Box.of((FAR, 0, 5, 5), (5, 5), out=(5, 5)),
        Box.of((1, 0, FAR, 5), (5, 5), out=(5, 5)),
        Box.of((-FAR - 1, 0, 5, 5), (5, 5), out=(5, 5)),
    ],
)
def test_what_does_not_lie_inside_is_refused(box: Box) -> None:
    with pytest.raises(ValueError, match="inside"):
        decoded(ORDINARY, SIZE, box)
    height, width = SIZE
    for size in ((-FAR - 1, width), (height, -FAR - 1), (0, 0)):
        with pytest.raises(ValueError, match="inside"):
            decoded(ORDINARY, size, box)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        *((name, number, "resized to") for name in ("scaled_height", "scaled_width") for number in (0, -FAR - 1, FAR)),
        *((name, number, "the window is") for name in ("cut_top", "cut_left") for number in (-FAR - 1, 1 << 31, FAR)),
        *((name, number, "the window is") for name in ("out_height", "out_width") for number in (0, -FAR - 1, FAR)),
        *(("interpolation", number, "the interpolation is unknown") for number in (-1, 2, FAR)),
        *(("padding", number, "the padding is unknown") for number in (-1, 4, FAR)),
        *(("fill", number, "fill colour is out of range") for number in (-1, 1 << 24, FAR)),
    ],
)
def test_numbers_far_out_of_range_are_refused(name: str, number: int, message: str) -> None:
    task = native.task_of(ORDINARY, SIZE, Box.of((0, 0, 5, 5), (5, 5)), 0)
    task[name] = number
    with pytest.raises(ValueError, match=message):
        native.decode_into(task)


def test_any_bytes_will_do() -> None:
    for data in (bytearray(ORDINARY), memoryview(ORDINARY), memoryview(ORDINARY[:-1] + b"\xd9").cast("c")):
        assert same(cut(data, SIZE, (0, 0, 5, 5)), decode(ORDINARY)[:5, :5])  # type: ignore[arg-type]
    for other in ("text", memoryview(ORDINARY)[::2]):
        with pytest.raises((TypeError, ValueError, BufferError)):
            native.in_memory([other], [SIZE])  # type: ignore[list-item]


def test_images_beside_damaged_ones() -> None:
    box = Box.of((3, 4, 20, 30), (20, 30))
    images = [ORDINARY, UNUSUAL["half of it"], GREY, UNUSUAL["WebP"], ORDINARY]
    outs = np.zeros((len(images), 20, 30, 3), np.uint8)
    done = decode_into([(data, SIZE, box, out.ctypes.data) for data, out in zip(images, outs, strict=True)])
    assert done == [True, False, True, False, True]
    for number in (0, 2, 4):
        assert np.array_equal(outs[number], decode(images[number])[3:23, 4:34])


# Tiles, threads, and memory.


def test_of_tiles_that_a_rectangle_does_not_touch_nothing_is_decoded() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (650, 800, 3), np.uint8)
    for pixels in (noise, np.array(photo(650, 800))):
        data, size = encode_tiled(pixels, 90), (650, 800)
        whole = turbojpeg.decode_jpeg(data)
        tiles = read_tiles(data)
        assert tiles is not None
        first_tile = slice(tiles.scan, data.index(b"\xff\xd0", tiles.scan))
        zeroed = bytearray(data)
        zeroed[first_tile] = bytes(first_tile.stop - first_tile.start)
        assert native.decode(bytes(zeroed), *size) is None
        for top, left, height, width in [(300, 400, 100, 90), (649, 799, 1, 1), (0, 300, 650, 1), (100, 0, 7, 800)]:
            rectangle = top, left, height, width
            expected = whole[top : top + height, left : left + width]
            assert same(cut(data, size, rectangle), expected)
            assert same(cut(bytes(zeroed), size, rectangle), expected)


def test_threads() -> None:
    rng = np.random.default_rng(0)
    images, expected = [], []
    for number in range(24):
        size = int(rng.integers(20, 300)), int(rng.integers(20, 300))
        data = jpeg(np.array(photo(*size)), SAMPLINGS[number % len(SAMPLINGS)], 90, number % 4)
        images.append((data, size, Box.of((0, 0, *size), (64, 80), flip=number % 2 == 1)))
        expected.append(decoded(*images[-1]))
    with ThreadPoolExecutor(12) as pool:
        for _ in range(10):
            for found, one in zip(pool.map(lambda image: decoded(*image), images), expected, strict=True):
                assert one is not None
                assert same(found, one)


MEMORY = """
import sys
from resource import getpagesize
from pathlib import Path
import numpy as np
from packer._images import native

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()

large, small = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_bytes()
assert native.decode(small, 64, 64) is not None
before = resident()
assert native.decode(large, 6000, 8000, np.empty((8, 8, 3), np.uint8)) is not None
assert resident() - before < 5e6, resident() - before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_large_images_need_little_memory(tmp_path: Path) -> None:
    (tmp_path / "large.jpg").write_bytes(encoded(Image.new("RGB", (8000, 6000), (9, 8, 7)), "JPEG", subsampling=0))
    (tmp_path / "small.jpg").write_bytes(encoded(photo(64, 64), "JPEG"))
    line = [sys.executable, "-c", MEMORY, tmp_path / "large.jpg", tmp_path / "small.jpg"]
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_tables_of_an_image_are_not_taken_for_those_of_the_next_one() -> None:
    """The decoder reuses its memory, which contains the tables of the previous image."""
    pixels = photo(48, 64)
    standard, optimised = jpeg(pixels), jpeg(pixels, quality=50, optimised=True)
    places = [begin + 4 for marker, begin, _ in segments(standard) if marker == 0xC4]
    first = next(at for at in places if standard[at] == 0x10) + 17  # the symbols of luma's AC table
    broken = standard[:first] + b"\x0f" + standard[first + 1 :]  # a value of 15 bits
    exchanged = standard[:first] + standard[first : first + 2][::-1] + standard[first + 2 :]
    expected = turbojpeg.decode_jpeg(standard)
    for other in (broken, exchanged, optimised):
        assert np.array_equal(native.decode(standard, 48, 64), expected)  # type: ignore[arg-type]
        found = native.decode(other, 48, 64)
        assert found is None if other is broken else not np.array_equal(found, expected)  # type: ignore[arg-type]
        assert np.array_equal(native.decode(standard, 48, 64), expected)  # type: ignore[arg-type]
