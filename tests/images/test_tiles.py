"""Tiles: annotated JPEGs stay ordinary JPEGs, parts have the pixels of the whole, wrong tables are not believed."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from packer.errors import ImageError, NotTileableError
from packer.images import jpeg, turbojpeg
from packer.images.box import Rectangle
from packer.images.cutting import Part, cut_out
from packer.images.decode import decode
from packer.images.region import decode_rectangle, decode_rectangles
from packer.images.tiles import Grid, annotate, columns, read_tiles
from packer.testing.photos import draw_photo
from tests.images.drawn import encoded, pillow_pixels

MCU = {"4:4:4": (8, 8), "4:2:2": (8, 16), "4:2:0": (16, 16), "4:4:0": (16, 8), "4:1:1": (8, 32), "grey": (8, 8)}
_FACTORS = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}


@functools.cache
def with_restarts(subsampling: str, size: tuple[int, int], count: int, quality: int = 90) -> bytes:
    """Return a JPEG whose MCU rows are cut into `count` intervals, or as nearly so as divides them."""
    mcus = -(-size[1] // MCU[subsampling][1])
    count = max(divisor for divisor in range(1, count + 1) if mcus % divisor == 0)
    pixels = draw_photo(np.random.default_rng(sum(size)), *size)
    if subsampling == "grey":
        pixels = pixels[..., 0]
        factor = []
    else:
        factor = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _FACTORS[subsampling]]
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, mcus // count]
    written, data = cv2.imencode(".jpg", pixels, [*options, *factor])
    assert written
    return data.tobytes()


def tiled(subsampling: str = "4:2:0", size: tuple[int, int] = (121, 190), count: int = 3, quality: int = 90) -> bytes:
    return annotate(with_restarts(subsampling, size, count, quality))


def part_of(image: bytes, rectangle: Rectangle, halvings: int = 0) -> Part:
    table = read_tiles(image)
    assert table is not None
    return cut_out([(image, table)], [rectangle], [halvings])[0]


def sizes_of(image: bytes) -> np.ndarray:
    table = read_tiles(image)
    assert table is not None
    return np.frombuffer(image[table.table : table.header], ">u2")


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (7, 33), (121, 190), (64, 640)])
@pytest.mark.parametrize("subsampling", MCU)
def test_annotating_adds_a_segment_and_nothing_else(subsampling: str, size: tuple[int, int]) -> None:
    before = with_restarts(subsampling, size, 4)
    after = annotate(before)
    assert np.array_equal(pillow_pixels(after), pillow_pixels(before))
    table = read_tiles(after)
    assert table is not None
    assert table.grid[:4] == (*size, MCU[subsampling][0], table.grid.tile_width)
    header = jpeg.read_header(before)
    assert header is not None
    assert after[table.scan :] == before[header.scan :]
    assert int(sizes_of(after).sum()) == len(before) - header.scan
    assert annotate(after) == after
    assert read_tiles(before) is None


@settings(max_examples=300, deadline=None)
@given(data=st.data(), subsampling=st.sampled_from(sorted(MCU)), count=st.integers(1, 6))
def test_any_part_has_the_pixels_of_the_whole(data: st.DataObject, subsampling: str, count: int) -> None:
    size = data.draw(st.sampled_from([(1, 1), (17, 5), (40, 700), (121, 163), (121, 190), (130, 97), (64, 96)]))
    image = tiled(subsampling, size, count)
    top, left = data.draw(st.integers(0, size[0] - 1)), data.draw(st.integers(0, size[1] - 1))
    rectangle = top, left, data.draw(st.integers(1, size[0] - top)), data.draw(st.integers(1, size[1] - left))
    height, width = rectangle[2:]
    part = part_of(image, rectangle)
    expected = pillow_pixels(image)
    assert expected is not None
    # By Pillow: the part is an ordinary JPEG. Strictly: libjpeg has nothing to complain about.
    pixels = pillow_pixels(bytes(part.data))
    assert pixels is not None
    assert np.array_equal(turbojpeg.decode_jpeg(part.data), pixels)
    assert pixels.shape == (*part.rectangle[2:], 3)
    inner = pixels[top - part.rectangle[0] :, left - part.rectangle[1] :][:height, :width]
    assert np.array_equal(inner, expected[top : top + height, left : left + width])
    assert np.array_equal(decode_rectangle(image, rectangle, size), inner)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), subsampling=st.sampled_from(sorted(MCU)), halvings=st.integers(1, 3))
def test_a_halved_part_has_the_pixels_of_the_halved_whole(data: st.DataObject, subsampling: str, halvings: int) -> None:
    size, step = (300, 405), 1 << halvings
    image = tiled(subsampling, size, 6)
    top, left = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 300))
    rectangle = top, left, data.draw(st.integers(1, 300 - top)), data.draw(st.integers(1, 405 - left))
    whole = np.empty((-(-size[0] // step), -(-size[1] // step), 3), np.uint8)
    turbojpeg.decode_jpeg(image, whole, scaled=True)
    expected = whole[top // step : -(-(top + rectangle[2]) // step), left // step : -(-(left + rectangle[3]) // step)]
    assert np.array_equal(decode_rectangle(image, rectangle, size, halvings=halvings), expected)


def test_tiles_outside_of_a_part_are_not_needed() -> None:
    image = tiled(count=3)
    table = read_tiles(image)
    assert table is not None
    assert table.grid.columns > 1
    expected = decode(image)
    wanted = (40, 100, 30, 40)
    part = part_of(image, wanted)
    assert len(part.data) < len(image) * 2 // 3
    zeroed = bytearray(image)
    start, end = table.scan, table.scan + int(sizes_of(image)[0])
    zeroed[start + 1 : end - 2] = bytes(end - start - 3)  # the first tile, up to its marker
    assert np.array_equal(decode_rectangle(bytes(zeroed), wanted, (121, 190)), expected[40:70, 100:140])


def changed(image: bytes, seal: bool, **fields: Any) -> bytes:
    """Return a tiled JPEG whose segment says something else, with a fitting checksum if `seal`."""
    table = read_tiles(image)
    assert table is not None
    names = "identifier", "version", "zero", "columns", "frame", "length"
    values = dict(zip(names, struct.unpack_from(">6sBBHHH", image, table.segment + 4), strict=True))
    sizes = fields.pop("sizes", image[table.segment + 22 : table.header])
    fixed = struct.pack(">6sBBHHH", *(values | fields).values())
    core = image[table.header : table.scan]
    checksum = zlib.crc32(core, zlib.crc32(sizes, zlib.crc32(fixed)))
    if not seal:
        checksum ^= 1
    segment = struct.pack(">HH", 0xFFE9, 20 + len(sizes)) + fixed + struct.pack(">I", checksum) + sizes
    return image[: table.segment] + segment + image[table.header :]


WHOLE = tiled()
_TABLE = read_tiles(WHOLE)
assert _TABLE is not None
SIZES = WHOLE[_TABLE.segment + 22 : _TABLE.header]
WRONG: dict[str, dict[str, Any]] = {
    "unchanged but for the checksum": {},
    "version": {"version": 2},
    "another identifier": {"identifier": b"TILEZ\0"},
    "no columns": {"columns": 0},
    "too many columns": {"columns": 11},
    "fewer columns": {"columns": 1},
    "frame": {"frame": 0},
    "frame behind the scan": {"frame": 65_535},
    "header": {"length": 10},
    "header beyond the file": {"length": 65_535},
    "one tile less": {"sizes": SIZES[:-2]},
    "one tile more": {"sizes": SIZES + SIZES[:2]},
    "half a tile": {"sizes": SIZES[:-1]},
    "no tiles": {"sizes": b""},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_segment_is_ignored(name: str) -> None:
    assert read_tiles(changed(WHOLE, seal=True)) is not None
    image = changed(WHOLE, seal=name != "unchanged but for the checksum", **WRONG[name])
    assert read_tiles(image) is None
    expected = pillow_pixels(WHOLE)
    assert expected is not None
    assert np.array_equal(decode_rectangle(image, (40, 90, 30, 40), (121, 190)), expected[40:70, 90:130])


def test_the_first_segment_counts_and_its_reserved_byte_does_not() -> None:
    reserved = changed(WHOLE, seal=True, zero=255)
    assert read_tiles(reserved) is not None
    assert _TABLE is not None
    unreadable = changed(WHOLE, seal=True, version=2)[_TABLE.segment : _TABLE.header]
    assert read_tiles(WHOLE[: _TABLE.segment] + unreadable + WHOLE[_TABLE.segment :]) is None


def moved(by: int) -> bytes:
    sizes = np.frombuffer(SIZES, ">u2").copy()
    sizes[4:6] += np.array([by, -by]).astype(">u2")
    return sizes.tobytes()


@pytest.mark.parametrize("sizes", [moved(1), moved(-2), moved(300), b"\xff" * len(SIZES), bytes(len(SIZES))])
def test_tiles_that_lie_elsewhere_are_not_believed(sizes: bytes) -> None:
    image = changed(WHOLE, seal=True, sizes=sizes)
    assert read_tiles(image) is not None
    expected = pillow_pixels(WHOLE)
    assert expected is not None
    for top in range(0, 100, 10):
        assert np.array_equal(decode_rectangle(image, (top, 60, 21, 60), (121, 190)), expected[top : top + 21, 60:120])


@settings(max_examples=400, deadline=None)
@given(place=st.floats(0, 1), bit=st.integers(0, 7), rectangle=st.sampled_from([(0, 0, 121, 163), (40, 90, 30, 40)]))
def test_flipped_bits_give_the_usual_pixels_or_the_usual_error(
    place: float, bit: int, rectangle: tuple[int, int, int, int]
) -> None:
    image = bytearray(WHOLE)
    image[int(place * (len(image) - 1))] ^= 1 << bit
    top, left, height, width = rectangle
    try:
        found = decode_rectangle(bytes(image), rectangle, (121, 190))
    except ImageError:
        return
    assert found.shape == (height, width, 3)
    table, whole = read_tiles(bytes(image)), pillow_pixels(bytes(image))
    if table is None and whole is not None:  # as any JPEG
        assert np.array_equal(found, whole[top : top + height, left : left + width])


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, len(WHOLE) - 1))
def test_truncated(length: int) -> None:
    with pytest.raises(ImageError):
        decode_rectangle(WHOLE[:length], (0, 0, 121, 190), (121, 190))


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read_tiles(data)
    read_tiles(WHOLE[: _TABLE.segment] + WHOLE[_TABLE.segment : _TABLE.segment + 10] + data)  # type: ignore[union-attr]


def test_metadata_stay_and_stand_first() -> None:
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = Image.fromarray(draw_photo(np.random.default_rng(0), 64, 96))
    photo.save(stream, "JPEG", exif=exif, icc_profile=b"profile" * 9, comment=b"a comment", restart_marker_blocks=3)
    image = annotate(stream.getvalue())
    with Image.open(io.BytesIO(image)) as opened:
        assert opened.getexif()[0x0112] == 6
        assert opened.info["icc_profile"] == b"profile" * 9
        assert opened.info["comment"] == b"a comment"
    pixels = decode_rectangle(image, (0, 0, 96, 64), (96, 64), exif="apply")  # turned by a quarter
    assert np.array_equal(pixels, decode(image, exif="apply"))


def test_many_images_at_once() -> None:
    shapes = [("4:2:0", (121, 190), 3), ("grey", (40, 700), 6), ("4:4:4", (64, 96), 1), ("4:2:2", (17, 5), 1)]
    images = [tiled(*shape) for shape in shapes]
    images.insert(2, changed(WHOLE, seal=True, sizes=moved(1)))
    images.insert(3, with_restarts("4:2:0", (121, 190), 3))
    images.insert(4, encoded(draw_photo(np.random.default_rng(0), 50, 60), "PNG"))
    wholes = [decode(image) for image in images]
    sizes = [whole.shape[:2] for whole in wholes]
    rectangles = [(height // 3, width // 3, height // 3 + 1, width // 2 + 1) for height, width in sizes]
    found = decode_rectangles(images, rectangles, sizes)
    for (pixels, _), whole, (top, left, height, width) in zip(found, wholes, rectangles, strict=True):
        assert np.array_equal(pixels, whole[top : top + height, left : left + width])


def test_what_follows_the_image_stays() -> None:
    image = annotate(with_restarts("4:4:4", (40, 40), 2) + b"a second picture")
    assert image.endswith(b"\xff\xd9a second picture")
    assert read_tiles(image) is not None


@pytest.mark.parametrize(
    "options", [{}, {"restart_marker_blocks": 4}, {"progressive": True, "restart_marker_blocks": 3}]
)
def test_what_has_no_tiles_is_refused(options: dict[str, Any]) -> None:
    stream = io.BytesIO()
    Image.fromarray(draw_photo(np.random.default_rng(0), 64, 80)).save(stream, "JPEG", subsampling=2, **options)
    with pytest.raises(NotTileableError):
        annotate(stream.getvalue())


def test_grid() -> None:
    colour = bytes.fromhex("08 0100 0180 03 01 22 00 02 11 01 03 11 01")
    assert Grid.of(colour, 4) == Grid(256, 384, 16, 96, 16, 4, 6, 2, 2)
    assert Grid.of(colour, 5) is None
    assert Grid.of(bytes.fromhex("08 0100 0180 01 01 22 00"), 4) == Grid(256, 384, 8, 96, 32, 4, 12, 0, 0)
    assert Grid.of(bytes.fromhex("0c 0100 0180 01 01 11 00"), 1) is None
    assert Grid.of(bytes.fromhex("08 0100 0180 04 01 11 00 02 11 00 03 11 00 04 11 00"), 1) is None


def test_columns() -> None:
    assert columns(60, 2000, 800) == 2
    assert columns(60, 2400, 800) == 3
    assert columns(60, 1e9, 800) == 30  # two MCUs a tile
    assert columns(61, 1e9, 800) == 1
    assert columns(1, 1e9, 0) == 1
