"""Tiles: annotated JPEGs stay ordinary JPEGs, parts have the pixels of the whole, wrong tables are not trusted."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images import jpeg, jpeg_tiles, turbojpeg
from packer._images.decode import decode
from packer._images.geometry import Rectangle
from packer._images.jpeg_tiles import (
    CutOut,
    Grid,
    annotate,
    annotate_in_python,
    choose_columns,
    cut_out,
    cut_out_in_python,
    read_tiles,
)
from packer.errors import ImageError, NotTileableError
from packer.testing.photos import draw_photo
from tests.images.samples import encoded, pillow_pixels

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
    """Return a JPEG whose MCU rows are divided into `count` intervals, or the next smaller number that divides them."""
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


def part_of(image: bytes, rectangle: Rectangle) -> CutOut:
    height, width = read_tiles(image).grid[:2]  # type: ignore[union-attr]
    part = cut_out_in_python(image, (height, width), rectangle)
    assert part is not None
    if jpeg_tiles._native is not None:
        assert cut_out(image, (height, width), rectangle) == part
    return part


def decode_rectangle(image: bytes, rectangle: Rectangle, size: tuple[int, int], **options: Any) -> np.ndarray:
    rectangles = pytest.importorskip("packer._images.rectangle", reason="needs torch")
    return rectangles.RectangleDecoder(options.pop("exif", "ignore")).decode(image, rectangle, size, **options)


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (7, 33), (121, 190), (64, 640)])
@pytest.mark.parametrize("subsampling", MCU)
def test_annotating_adds_a_segment_and_nothing_else(subsampling: str, size: tuple[int, int]) -> None:
    before = with_restarts(subsampling, size, 4)
    after = annotate(before)
    assert after == annotate_in_python(before)
    assert np.array_equal(pillow_pixels(after), pillow_pixels(before))
    table = read_tiles(after)
    assert table is not None
    assert table.grid[:4] == (*size, MCU[subsampling][0], table.grid.tile_width)
    header = jpeg.read_header(before)
    assert header is not None
    assert after[table.scan :] == before[header.scan :]
    assert table.group_ends[-1] == len(after)
    assert annotate(after) == after
    assert read_tiles(before) is None


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
    # Pillow decodes the part, so it is an ordinary JPEG. The strict decoder does, so libjpeg has no warning.
    pixels = pillow_pixels(bytes(part.data))
    assert pixels is not None
    assert np.array_equal(turbojpeg.decode_jpeg(part.data), pixels)
    assert pixels.shape == (*part.rectangle[2:], 3)
    inner = pixels[top - part.rectangle[0] :, left - part.rectangle[1] :][:height, :width]
    assert np.array_equal(inner, expected[top : top + height, left : left + width])
    assert np.array_equal(decode_rectangle(image, rectangle, size), inner)


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
    start, end = table.scan, image.index(b"\xff\xd0", table.scan)
    zeroed[start + 1 : end] = bytes(end - start - 1)  # the first tile, up to its marker
    assert np.array_equal(decode_rectangle(bytes(zeroed), wanted, (121, 190)), expected[40:70, 100:140])


def changed(image: bytes, seal: bool, **fields: Any) -> bytes:
    """Return a tiled JPEG with other fields in its segment, and a valid checksum if `seal`."""
    table = read_tiles(image)
    assert table is not None
    names = "identifier", "version", "entry", "columns", "group", "frame", "length"
    values = dict(zip(names, struct.unpack_from(">6sBBHHHH", image, table.segment + 4), strict=True))
    sizes = fields.pop("sizes", image[table.table : table.header])
    fixed = struct.pack(">6sBBHHHH", *(values | fields).values())
    core = image[table.header : table.scan]
    checksum = zlib.crc32(core, zlib.crc32(sizes, zlib.crc32(fixed)))
    if not seal:
        checksum ^= 1
    segment = struct.pack(">HH", 0xFFE9, 22 + len(sizes)) + fixed + struct.pack(">I", checksum) + sizes
    return image[: table.segment] + segment + image[table.header :]


WHOLE = tiled("4:2:0", (421, 390), 5, 50)
SIZE = (421, 390)
_TABLE = read_tiles(WHOLE)
assert _TABLE is not None
assert _TABLE.group > 1
assert len(_TABLE.group_ends) > 2
SIZES = WHOLE[_TABLE.table : _TABLE.header]
WRONG: dict[str, dict[str, Any]] = {
    "unchanged but for the checksum": {},
    "version": {"version": 1},
    "another identifier": {"identifier": b"TILEZ\0"},
    "no columns": {"columns": 0},
    "too many columns": {"columns": 11},
    "fewer columns": {"columns": 1},
    "no rows in a group": {"group": 0},
    "a row in a group": {"group": 1},
    "all rows in a group": {"group": 65_535},
    "wide entries": {"entry": 4},
    "entries of another width": {"entry": 3},
    "frame": {"frame": 0},
    "frame behind the scan": {"frame": 65_535},
    "header": {"length": 10},
    "header beyond the file": {"length": 65_535},
    "one group less": {"sizes": SIZES[:-2]},
    "one group more": {"sizes": SIZES + SIZES[:2]},
    "half a group": {"sizes": SIZES[:-1]},
    "no groups": {"sizes": b""},
    "not up to the end": {"sizes": bytes(2) + SIZES[2:]},
    "beyond the end": {"sizes": b"\xff" * len(SIZES)},
    "beyond memory": {"entry": 4, "sizes": b"\xff" * 2 * len(SIZES)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_segment_is_ignored(name: str) -> None:
    assert read_tiles(changed(WHOLE, seal=True)) is not None
    image = changed(WHOLE, seal=name != "unchanged but for the checksum", **WRONG[name])
    assert read_tiles(image) is None
    expected = pillow_pixels(WHOLE)
    assert expected is not None
    assert cut_out_in_python(image, SIZE, (40, 90, 30, 40)) is None
    assert cut_out(image, SIZE, (40, 90, 30, 40)) is None
    assert np.array_equal(decode_rectangle(image, (40, 90, 30, 40), SIZE), expected[40:70, 90:130])


def test_the_first_segment_counts() -> None:
    assert _TABLE is not None
    unreadable = changed(WHOLE, seal=True, version=1)[_TABLE.segment : _TABLE.header]
    assert read_tiles(WHOLE[: _TABLE.segment] + unreadable + WHOLE[_TABLE.segment :]) is None


def moved(by: int) -> bytes:
    sizes = np.frombuffer(SIZES, ">u2").copy()
    sizes[:2] += np.array([by, -by]).astype(">u2")
    return sizes.tobytes()


@pytest.mark.parametrize("sizes", [moved(1), moved(-2), moved(300), SIZES[2:4] + SIZES[:2] + SIZES[4:]])
def test_groups_that_end_elsewhere_are_not_believed(sizes: bytes) -> None:
    image = changed(WHOLE, seal=True, sizes=sizes)
    assert read_tiles(image) is not None
    expected = pillow_pixels(WHOLE)
    assert expected is not None
    for top in range(0, 400, 10):
        assert np.array_equal(decode_rectangle(image, (top, 60, 21, 60), SIZE), expected[top : top + 21, 60:120])


def test_a_wide_table() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (48, 30_000), np.uint8)
    written, data = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 100, cv2.IMWRITE_JPEG_RST_INTERVAL, 375])
    assert written
    image = annotate(data.tobytes())
    assert image == annotate_in_python(data.tobytes())
    table = read_tiles(image)
    assert table is not None
    assert table.header - table.table == 4 * 6
    part_of(image, (17, 2000, 10, 10))
    found = decode_rectangle(image, (17, 2000, 10, 10), (48, 30_000))
    assert np.array_equal(found, decode(image)[17:27, 2000:2010])


@given(place=st.floats(0, 1), bit=st.integers(0, 7), rectangle=st.sampled_from([(0, 0, 421, 163), (40, 90, 30, 40)]))
def test_flipped_bits_give_the_usual_pixels_or_the_usual_error(
    place: float, bit: int, rectangle: tuple[int, int, int, int]
) -> None:
    image = bytearray(WHOLE)
    image[int(place * (len(image) - 1))] ^= 1 << bit
    top, left, height, width = rectangle
    try:
        found = decode_rectangle(bytes(image), rectangle, SIZE)
    except ImageError:
        return
    assert found.shape == (height, width, 3)
    table, whole = read_tiles(bytes(image)), pillow_pixels(bytes(image))
    if table is None and whole is not None:  # decoded as any JPEG
        assert np.array_equal(found, whole[top : top + height, left : left + width])


@pytest.mark.skipif(jpeg_tiles._native is None, reason="needs a C compiler when packer is installed")
@given(data=st.data())
def test_compiled_and_in_python_the_same_is_cut_out(data: st.DataObject) -> None:
    """Bytes are changed, mostly in the header, and segments have random fields with a valid checksum."""
    assert _TABLE is not None
    image = WHOLE
    if data.draw(st.booleans()):
        numbers = st.one_of(st.integers(0, 65_535), st.integers(0, 40))
        fields = dict.fromkeys(("columns", "group", "frame", "length"), numbers)
        fields |= {"entry": st.sampled_from([0, 2, 3, 4]), "sizes": st.binary(max_size=40)}
        chosen = data.draw(st.fixed_dictionaries({}, optional=fields))
        image = changed(image, seal=True, **chosen)
    table, end = bytearray(image), len(image) - 1
    place = st.one_of(st.integers(0, end), st.integers(0, min(_TABLE.scan + 20, end)))
    for at, byte in data.draw(st.lists(st.tuples(place, st.one_of(st.just(0xFF), st.integers(0, 255))), max_size=3)):
        table[at] = byte
    image = bytes(table)[: data.draw(st.one_of(st.just(end + 1), st.integers(0, end + 1)))]
    top, left = data.draw(st.integers(0, SIZE[0] - 1)), data.draw(st.integers(0, SIZE[1] - 1))
    tall, wide = data.draw(st.integers(1, SIZE[0] - top)), data.draw(st.integers(1, SIZE[1] - left))
    rectangle = top, left, tall, wide
    assert cut_out(image, SIZE, rectangle) == cut_out_in_python(image, SIZE, rectangle)


@pytest.mark.skipif(jpeg_tiles._native is None, reason="needs a C compiler when packer is installed")
@given(data=st.data(), subsampling=st.sampled_from(sorted(MCU)))
def test_compiled_and_in_python_the_same_table_is_made(data: st.DataObject, subsampling: str) -> None:
    """Any bytes are changed; C leaves unusual images to Python."""
    image = bytearray(
        data.draw(st.sampled_from([with_restarts(subsampling, (41, 60), 2), tiled(subsampling, (41, 60))]))
    )
    header, end = image.index(b"\xff\xda") + 14, len(image) - 1
    place = st.one_of(st.integers(0, end), st.integers(0, header))
    for at, byte in data.draw(st.lists(st.tuples(place, st.one_of(st.just(0xFF), st.integers(0, 255))), max_size=3)):
        image[at] = byte
    given = bytes(image[: data.draw(st.one_of(st.just(end + 1), st.integers(0, end + 1)))]) + data.draw(
        st.binary(max_size=3)
    )
    made = jpeg_tiles._native.annotate(given)
    if made is not None:
        assert made == annotate_in_python(given)


@pytest.mark.skipif(jpeg_tiles._native is None, reason="needs a C compiler when packer is installed")
@pytest.mark.parametrize("top", [-1, 417, 2**63 - 1])
@pytest.mark.parametrize("height", [0, 5, 422, 2**62])
def test_a_rectangle_outside_is_refused(top: int, height: int) -> None:
    for function in (cut_out, cut_out_in_python):
        with pytest.raises(ValueError, match="inside"):
            function(WHOLE, SIZE, (top, 0, height, 5))


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, len(WHOLE) - 1))
def test_truncated(length: int) -> None:
    with pytest.raises(ImageError):
        decode_rectangle(WHOLE[:length], (0, 0, *SIZE), SIZE)


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


def test_images_of_all_kinds() -> None:
    shapes = [("4:2:0", (121, 190), 3), ("grey", (40, 700), 6), ("4:4:4", (64, 96), 1), ("4:2:2", (17, 5), 1)]
    images = [tiled(*shape) for shape in shapes]
    images.insert(2, changed(WHOLE, seal=True, sizes=moved(1)))
    images.insert(3, with_restarts("4:2:0", (121, 190), 3))
    images.insert(4, encoded(draw_photo(np.random.default_rng(0), 50, 60), "PNG"))
    wholes = [decode(image) for image in images]
    sizes = [whole.shape[:2] for whole in wholes]
    rectangles = [(height // 3, width // 3, height // 3 + 1, width // 2 + 1) for height, width in sizes]
    for image, whole, rectangle, size in zip(images, wholes, rectangles, sizes, strict=True):
        top, left, height, width = rectangle
        assert np.array_equal(decode_rectangle(image, rectangle, size), whole[top : top + height, left : left + width])


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
    assert choose_columns(60, 2) == 2
    assert choose_columns(60, 9) == 6
    assert choose_columns(60, 99) == 30  # two MCUs a tile
    assert choose_columns(61, 99) == 1
    assert choose_columns(1, 16) == 1
