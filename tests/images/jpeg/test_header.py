from __future__ import annotations

import io

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images.jpeg import JPEGHeader, end_of_image, read_header
from tests.images.samples import (
    SIZES,
    SUBSAMPLINGS,
    VARIANTS,
    damaged,
    encoded,
    jpeg,
    oriented,
    photo,
    pillow_pixels,
    tiff_orientation,
)
from tests.pairs import pairwise


def header_of(data: bytes) -> JPEGHeader:
    header = read_header(data)
    assert header is not None
    return header


@pairwise(subsampling=SUBSAMPLINGS, variant=VARIANTS, size=SIZES)
def test_header_is_what_pillow_reads(subsampling: str, variant: str, size: tuple[int, int]) -> None:
    data = jpeg(subsampling, variant, size)
    header = header_of(data)
    with Image.open(io.BytesIO(data)) as image:
        assert (header.width, header.height) == image.size
        assert header.components == len(image.getbands())
        assert (header.process == 0xC2) == ("progressive" in image.info)
    assert header.precision == 8
    assert header.orientation == 1
    assert header.ordinary


def test_subsamplings_are_what_they_are_called() -> None:
    found = {}
    for name in SUBSAMPLINGS:
        with Image.open(io.BytesIO(jpeg(name))) as image:
            found[name] = [layer[1:3] for layer in image.layer]
    chroma = [(1, 1), (1, 1)]
    expected = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2), "4:4:0": (1, 2), "4:1:1": (4, 1)}
    assert found.pop("grey") == [(1, 1)]
    assert found == {name: [luma, *chroma] for name, luma in expected.items()}


def test_cmyk_is_not_ordinary() -> None:
    header = header_of(encoded(Image.fromarray(photo(48, 64)).convert("CMYK"), "JPEG"))
    assert (header.components, header.ordinary) == (4, False)


@pytest.mark.parametrize("process", [0xC3, 0xC5, 0xC9, 0xCA, 0xCB])
def test_lossless_hierarchical_and_arithmetic_are_not_ordinary(process: int) -> None:
    data = jpeg().replace(b"\xff\xc0\x00\x11", bytes([0xFF, process, 0x00, 0x11]))
    assert (header_of(data).process, header_of(data).ordinary) == (process, False)


def test_twelve_bits_are_not_ordinary() -> None:
    data = jpeg().replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c")
    assert (header_of(data).precision, header_of(data).ordinary) == (12, False)


@pytest.mark.parametrize("orientation", range(10))
def test_orientation_is_pillows(orientation: int) -> None:
    data = oriented(photo(20, 30), orientation)
    with Image.open(io.BytesIO(data)) as image:
        assert image.getexif()[0x0112] == orientation
    assert header_of(data).orientation == (orientation if 1 <= orientation <= 8 else 1)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
def test_orientation_of_any_byte_order_and_integer_type(order: str, kind: int) -> None:
    data = encoded(photo(20, 30), "JPEG", exif=tiff_orientation(order, kind, 6))
    with Image.open(io.BytesIO(data)) as image:
        assert image.getexif()[0x0112] == 6
    assert header_of(data).orientation == 6


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0",
        b"Exif\0\0II*\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01",
        b"Exif\0\0garbage, not a TIFF",
    ],
)
def test_broken_exif_is_no_orientation(exif: bytes) -> None:
    header = header_of(encoded(photo(20, 30), "JPEG", exif=exif))
    assert (header.height, header.width, header.orientation) == (20, 30, 1)


def test_size_does_not_come_from_a_thumbnail() -> None:
    thumbnail = jpeg(size=(17, 1))
    data = encoded(photo(48, 64), "JPEG", exif=tiff_orientation("<", 3, 6) + thumbnail)
    header = header_of(data)
    assert (header.height, header.width, header.orientation) == (48, 64, 6)
    assert end_of_image(data[:-2], header.scan) is None  # the thumbnail has an end-of-image marker of its own


def test_fill_bytes_before_markers() -> None:
    data = jpeg()
    filled = data.replace(b"\xff\xdb", b"\xff\xff\xff\xdb").replace(b"\xff\xda", b"\xff\xff\xda")
    assert len(filled) > len(data)
    assert pillow_pixels(filled) is not None
    header = header_of(filled)
    assert (header.height, header.width) == (48, 64)
    assert filled[header.scan :] == data[header_of(data).scan :]


def test_header_cut_anywhere_is_none_and_whole_is_enough() -> None:
    data = jpeg()
    header = header_of(data)
    assert all(read_header(data[:length]) is None for length in range(header.scan))
    assert all(read_header(data[:length]) == header for length in range(header.scan, len(data)))


def test_a_second_frame_is_no_header() -> None:
    data = jpeg()
    frame = header_of(data).frame
    begin, end = frame - 4, frame - 2 + int.from_bytes(data[frame - 2 : frame], "big")
    assert read_header(data[:end] + data[begin:]) is None


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer(kind: type) -> None:
    data = jpeg()
    assert read_header(kind(data)) == header_of(data)
    assert end_of_image(kind(data), header_of(data).scan) == len(data)


@pytest.mark.parametrize("variant", VARIANTS)
def test_end_of_image(variant: str) -> None:
    data = jpeg(variant=variant)
    scan = header_of(data).scan
    assert end_of_image(data, scan) == len(data)
    assert end_of_image(data + b"junk", scan) == len(data)
    assert end_of_image(data[:-2], scan) is None
    assert end_of_image(data[:-1], scan) is None


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_header_or_none(data: bytes) -> None:
    check_invariants(b"\xff\xd8\xff" + data)


@settings(max_examples=300)
@given(st.sampled_from(sorted(VARIANTS)).flatmap(lambda variant: damaged(jpeg(variant=variant))))
def test_damaged_bytes_are_a_header_or_none(data: bytes) -> None:
    check_invariants(data)


@settings(max_examples=300)
@given(damaged(jpeg()[:700]))
def test_where_both_read_a_damaged_header_pillow_agrees(head: bytes) -> None:
    data = head + jpeg()[700:]
    header = read_header(data)
    if data.startswith(b"\xff\xd8\xff") and header is not None and header.ordinary and pillow_pixels(data) is not None:
        with Image.open(io.BytesIO(data)) as image:
            assert (header.width, header.height, header.components) == (*image.size, len(image.getbands()))


def check_invariants(data: bytes) -> None:
    header = read_header(data)
    if header is None:
        return
    assert header.height > 0
    assert header.width > 0
    assert 1 <= header.orientation <= 8
    assert 0 < header.scan <= len(data)
    end = end_of_image(data, header.scan)
    assert end is None or (header.scan <= end <= len(data) and data[end - 2 : end] == b"\xff\xd9")
