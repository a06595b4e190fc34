"""packer reads all bands and bits of a TIFF, or refuses it with their numbers; libtiff prints nothing."""

from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from packer._images import modes as bands, tiff as libtiff, tiff as tiffs
from packer._images.decode import decode
from packer._images.modes import decode_as, decode_unchanged
from packer._images.pillow import opened
from packer._images.probe import bands_not_shown, inspect
from packer.errors import ImageError
from tests.images.samples import encoded, photo
from tests.images.tiffs import GREY, RGB, noise, tiff

CMYK = 5

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"order": ">"},
    {"rows": 7},
    {"deflated": True, "rows": 7},
    {"deflated": True, "order": ">"},
    {"deflated": True, "predicted": True, "rows": 6},
    {"deflated": True, "predicted": True, "order": ">"},
    {"tile": 16},
    {"tile": 16, "deflated": True, "predicted": True},
    {"planar": True, "deflated": True},
    {"planar": True, "deflated": True, "predicted": True, "rows": 6},
    {"planar": True, "deflated": True, "tile": 16},
    {"long": True, "deflated": True},
]

KINDS = [
    (4, "u1", RGB, (0,)),  # RGB and infrared
    (5, "u1", RGB, (0, 0)),
    (6, "u1", RGB, (0, 0, 0)),
    (2, "u1", GREY, (0,)),
    (4, "u1", RGB, (2,)),
    (2, "u1", GREY, (2,)),
    (3, "u2", RGB, ()),
    (4, "u2", RGB, (0,)),
    (4, "u2", RGB, (2,)),
    (4, "u2", RGB, ()),
    (5, "u1", CMYK, (0,)),
    (4, "u2", CMYK, ()),
    (1, "u2", GREY, ()),
    (1, "i2", GREY, ()),
    (1, "i4", GREY, ()),
    (1, "f4", GREY, ()),
]


def named(value: Any) -> str:
    return str(value).replace(" ", "") or "-"


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize(("bands", "dtype", "photometric", "extra"), KINDS)
def test_unchanged_is_all_that_there_is(
    bands: int, dtype: str, photometric: int, extra: tuple[int, ...], layout: dict[str, Any]
) -> None:
    samples = noise(bands, dtype)
    data = tiff(samples, photometric, extra, **layout)
    found = decode_unchanged(data)
    assert found.shape == samples.shape
    assert np.array_equal(found, samples)
    assert found.flags.writeable
    assert np.array_equal(decode_unchanged(data, rows=(3, 11)), samples[3:11])


@pytest.mark.parametrize("bands", [4, 5])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_other_modes_show_what_imagefolder_shows(bands: int, mode: str) -> None:
    samples = noise(bands, "u1")
    data = tiff(samples, RGB, (0,) * (bands - 3))
    expected = np.asarray(Image.fromarray(samples[..., :3]).convert(mode)).reshape(*samples.shape[:2], -1)
    assert np.array_equal(decode_as(data, mode), expected)
    (finding,) = inspect(data).findings
    assert finding == f"{bands} bands, of which 3 are read as RGB"
    assert bands_not_shown(finding)


def test_turned_as_pillow_turns_a_tiff() -> None:
    samples = noise(4, "u1")
    turned = decode_unchanged(tiff(samples, RGB, (0,), tags={274: 6}))
    assert np.array_equal(turned, np.rot90(samples, -1))
    alpha = decode_unchanged(tiff(samples, RGB, (2,), tags={274: 6}))
    assert np.array_equal(alpha, turned)


def test_no_alpha_is_a_hidden_band() -> None:
    for data in (
        tiff(noise(4, "u1"), RGB, (2,)),
        tiff(noise(4, "u1"), RGB, (1,)),
        tiff(noise(4, "u1")),
        tiff(noise(2, "u1"), GREY, (2,)),
        tiff(noise(4, "u1"), CMYK),
        encoded(photo(20, 30), "PNG"),
    ):
        assert not any(map(bands_not_shown, inspect(data).findings))


MANY = {
    "13 bands": (tiff(noise(13, "u2"), GREY, (0,) * 12), "13 bands .channels. of 16 bits"),
    "13 bands in RGB": (tiff(noise(13, "u1"), RGB, (0,) * 10), "13 bands .channels. of 8 bits"),
    "13 bands apart": (tiff(noise(13, "u2"), GREY, (0,) * 12, planar=True), "13 bands .channels. of 16 bits"),
    "13 bands, nothing said": (tiff(noise(13, "u2"), GREY), "13 bands .channels. of 16 bits"),
    "2 bands, nothing said": (tiff(noise(2, "u1"), GREY), "2 bands .channels. of 8 bits"),
    "2 bands of 16 bits": (tiff(noise(2, "u2"), GREY, (0,)), "2 bands .channels. of 16 bits"),
    "7 bands": (tiff(noise(7, "u1"), RGB, (0,) * 4, order=">"), "7 bands .channels. of 8 bits"),
    "floats in colour": (tiff(noise(3, "f4")), "3 bands .channels. of floats of 32 bits"),
    "doubles": (tiff(noise(1, "f8"), GREY), "1 band .channel. of floats of 64 bits"),
    "a BigTIFF": (tiff(noise(13, "u2"), GREY, long=True), "13 bands .channels. of 16 bits"),
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("mode", ["RGB", "L", "unchanged"])
def test_what_pillow_does_not_read_is_refused_by_its_numbers(
    name: str, mode: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data, reason = MANY[name]
    for look in (lambda: inspect(data), lambda: decode_as(data, mode)):
        with pytest.raises(ImageError, match=reason):
            look()
    assert not capfd.readouterr().err
    assert not caplog.records


def test_a_jpeg_2000_of_five_components_is_refused_by_their_number() -> None:
    data = bytearray(cv2.imencode(".jp2", photo(40, 40))[1].tobytes())
    at = data.index(b"\xff\x4f\xff\x51")
    size, count = int.from_bytes(data[at + 4 : at + 6], "big"), 5
    data[at + 4 : at + 6] = (size + 6).to_bytes(2, "big")
    data[at + 40 : at + 42] = count.to_bytes(2, "big")
    data[at + 42 + 9 : at + 42 + 9] = data[at + 42 : at + 42 + 6]
    with pytest.raises(ImageError, match=r"JPEG 2000 of 5 bands \(channels\) of 8 bits"):
        inspect(bytes(data[at:]))


@pytest.mark.parametrize("order", ["<", ">"])
def test_negative_numbers_are_no_others(order: str) -> None:
    signed = noise(1, "i1")
    with pytest.raises(ImageError, match="signed numbers of 8 bits"):
        decode_unchanged(tiff(signed, GREY, order=order))
    with pytest.raises(ImageError):  # above 2147483647, or of a kind that Pillow does not read
        decode_unchanged(tiff(noise(1, "u4"), GREY, order=order))


@pytest.mark.parametrize("cut", [10, 40, 200, 1000])
def test_a_tiff_that_is_cut_short_is_an_error(cut: int) -> None:
    for layout in LAYOUTS:
        data = tiff(noise(5, "u1"), RGB, (0, 0), **layout)
        for damaged in (data[:cut], data[:-cut], bytes(cut) + data):
            with pytest.raises(ImageError):
                decode_unchanged(damaged)


@pytest.mark.parametrize(("tag", "value"), [(256, 65535), (257, 65535), (277, 60000), (258, 64), (317, 3), (259, 5)])
def test_a_directory_that_lies_is_an_error_or_as_it_says(tag: int, value: int) -> None:
    for layout in LAYOUTS:
        with contextlib.suppress(ImageError):
            found = decode_unchanged(tiff(noise(5, "u1"), RGB, (0, 0), **layout, tags={tag: value}))
            assert found.shape == {256: (20, value, 5), 257: (value, 33, 5)}.get(tag, (20, 33, 5))


def test_alpha_and_animations_of_other_formats() -> None:
    """`unchanged` returns the alpha that Pillow reads; of several pages the first is used, with a finding."""
    alpha = Image.fromarray(noise(4, "u1"))
    pages = [Image.fromarray(photo(40, 40)), Image.fromarray(255 - photo(40, 40))]
    for kind in ("PNG", "TIFF", "WEBP"):
        data = encoded(alpha, kind, lossless=True, exact=True)
        assert np.array_equal(decode_unchanged(data), noise(4, "u1"))
        assert not inspect(data).findings
    for kind in ("GIF", "PNG", "WEBP", "TIFF", "AVIF"):
        stream = io.BytesIO()
        pages[0].save(stream, kind, save_all=True, append_images=pages[1:])
        assert inspect(stream.getvalue()).findings == ("animated or many pages: the first is used",)
        found, (first, second) = decode(stream.getvalue()), (np.asarray(page, np.int16) for page in pages)
        assert np.abs(found - first).mean() < np.abs(found - second).mean() / 2, kind


def damaged_tiff(compression: str) -> bytes:
    image = Image.fromarray(noise(3, "u1", (64, 64)))
    data = bytearray(encoded(image.convert("1") if compression == "group4" else image, "TIFF", compression=compression))
    middle = len(data) // 2
    data[middle : middle + 200] = noise(1, "u1", (200, 1)).tobytes()
    return bytes(data)


@pytest.mark.skipif(libtiff._library() is None, reason="Pillow has libtiff inside of itself")
def test_what_libtiff_says_is_said_of_the_file(capfd: pytest.CaptureFixture[str]) -> None:
    """Also for a damaged image that Pillow accepts without an error, and in many threads at once."""
    with pytest.raises(ImageError, match=r"cannot be decoded: .* \(libtiff: .*\)"):
        inspect(damaged_tiff("tiff_lzw"))
    damaged, whole = damaged_tiff("group4"), tiff(noise(3, "u1"), deflated=True)
    expected = ("damaged, and read as far as possible: Fax4Decode: Bad code word",)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda data: inspect(data).findings, [damaged, whole] * 40))
    assert found == [expected, ()] * 40
    assert decode(damaged).shape == (64, 64, 3)
    assert not capfd.readouterr().err
    Image.open(io.BytesIO(damaged)).load()  # other users of Pillow still get libtiff's messages
    assert "Fax4Decode: Bad code word" in capfd.readouterr().err


def test_pillow_still_reads_big_endian_numbers_wrongly_by_itself() -> None:
    """If this fails, Pillow reads compressed big-endian samples correctly, and packer need not read them itself."""
    samples = noise(1, "f4")
    data = tiff(samples, GREY, order=">", deflated=True)
    with opened(data) as image:
        assert not np.array_equal(np.asarray(image), samples[..., 0])
    assert np.array_equal(decode_unchanged(data), samples)
    assert decode(data).shape == (20, 33, 3)


def test_tags_that_refer_to_one_place_take_no_memory() -> None:
    """An entry of a directory takes 12 bytes, but may declare as many numbers as fit into the file."""
    count, size = 100, 1 << 20
    for tags in ([tiffs.BITS] * count, range(1000, 1000 + count)):
        entries = b"".join(struct.pack("<HHII", tag, 4, size // 8, 512) for tag in tags)
        head = b"II*\0" + struct.pack("<IH", 8, count) + entries
        tracemalloc.start()
        tiffs.read(head.ljust(size, b"\1"))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 * size


def test_a_copy_for_each_of_very_many_bands_is_never_made() -> None:
    pixel = noise(300, "u1", (1, 1))
    directory = tiffs.read(tiff(pixel, GREY, [0] * 299, planar=True))
    assert directory is not None
    assert bands.decode_bands(tiff(pixel, GREY, [0] * 299, planar=True), directory) is None
