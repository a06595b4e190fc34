from __future__ import annotations

import contextlib
import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images.decode import decode
from packer._images.probe import CLIPPED, MAX_PIXELS, inspect
from packer.errors import ImageError, ImageTooLargeError
from tests.images.samples import (
    damaged,
    encoded,
    jpeg,
    oriented,
    photo,
    pillow_pixels,
    png_chunk,
    tiff_orientation,
)
from tests.memory import PEAK

PHOTO = photo(37, 53)
IMAGE = Image.fromarray(PHOTO)
ALPHA = IMAGE.convert("RGBA")
ALPHA.putalpha(IMAGE.convert("L"))
PAGES = {"save_all": True, "append_images": [IMAGE.rotate(180)]}
WALKED = {
    "jpeg": jpeg(size=(37, 53)),
    "jpeg, progressive": jpeg(variant="progressive", size=(37, 53)),
    "jpeg, grey": jpeg("grey", size=(37, 53)),
    "jpeg, CMYK": encoded(IMAGE.convert("CMYK"), "JPEG"),
    "png": encoded(PHOTO, "PNG"),
    "png, palette": encoded(IMAGE.convert("P"), "PNG"),
    "png, palette, transparent": encoded(IMAGE.convert("P"), "PNG", transparency=3),
    "png, one bit": encoded(IMAGE.convert("1"), "PNG"),
    "png, grey and alpha": encoded(IMAGE.convert("LA"), "PNG"),
    "webp": encoded(PHOTO, "WEBP"),
    "webp, lossless": encoded(PHOTO, "WEBP", lossless=True),
}
ASKED = {
    "png, 16 bit": encoded(np.arange(37 * 53, dtype=np.uint16).reshape(37, 53), "PNG"),
    "png, EXIF": oriented(PHOTO, 6, "PNG"),
    "png, animated": encoded(IMAGE, "PNG", **PAGES),
    "webp, alpha": encoded(ALPHA, "WEBP"),
    "webp, animated": encoded(IMAGE, "WEBP", **PAGES),
    "webp, EXIF": oriented(PHOTO, 6, "WEBP"),
    "bmp": encoded(PHOTO, "BMP"),
    "bmp, palette": encoded(IMAGE.convert("P"), "BMP"),
    "gif": encoded(PHOTO, "GIF"),
    "ppm": encoded(PHOTO, "PPM"),
    "tiff": encoded(PHOTO, "TIFF"),
    "tiff, pages": encoded(IMAGE, "TIFF", **PAGES),
}
ALL = WALKED | ASKED


def refused(data: bytes) -> str:
    """Require that the image is refused, by Pillow too, and return the reason."""
    assert pillow_pixels(data) is None
    with pytest.raises(ImageError) as caught:
        inspect(data)
    return caught.value.reason


@pytest.mark.parametrize("name", ALL)
def test_kind_and_size_are_pillows(name: str) -> None:
    info = inspect(ALL[name])
    with Image.open(io.BytesIO(ALL[name])) as image:
        assert image.format is not None
        assert info.kind == image.format.lower()
        assert (info.width, info.height) == image.size
    assert info.plain == (name in WALKED or name == "bmp")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("name", ALL)
def test_any_buffer(name: str, kind: type) -> None:
    assert inspect(kind(ALL[name])) == inspect(ALL[name])


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        ("jpeg", ()),
        ("png", ()),
        ("webp", ()),
        ("webp, alpha", ()),
        ("jpeg, CMYK", ("CMYK",)),
        ("png, 16 bit", (CLIPPED,)),
        ("png, EXIF", ("EXIF-rotated",)),
        ("webp, EXIF", ("EXIF-rotated",)),
        ("png, animated", ("animated or many pages: the first is used",)),
        ("webp, animated", ("animated or many pages: the first is used",)),
        ("tiff, pages", ("animated or many pages: the first is used",)),
    ],
)
def test_findings(name: str, findings: tuple[str, ...]) -> None:
    assert inspect(ALL[name]).findings == findings


@pytest.mark.parametrize("others", range(3))
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"])
def test_further_pictures_in_a_jpeg_are_found_as_pillow_finds_them(others: int, exif: bytes) -> None:
    """Phones and stereo cameras list them in an MPF index; a comment that looks like an index is ignored."""
    more = [IMAGE.rotate(90 * number).resize((20, 10)) for number in range(1, others + 1)]
    data = encoded(PHOTO, "MPO", save_all=True, append_images=more, exif=exif, comment=b"MPF\0II*\0")
    with Image.open(io.BytesIO(data)) as image:
        several = getattr(image, "n_frames", 1) > 1
    assert several == (others > 0)
    assert inspect(data).findings == ("animated or many pages: the first is used",) * several


@pytest.mark.parametrize("index", [b"", b"II*\0", b"II*\0\xff\xff\xff\x7f", b"MM\0*\0\0\0\x08\xff\xff" + bytes(40)])
def test_a_damaged_index_of_pictures_is_none(index: bytes) -> None:
    data = encoded(PHOTO, "JPEG")
    segment = b"\xff\xe2" + (6 + len(index)).to_bytes(2, "big") + b"MPF\0" + index
    assert inspect(data[:2] + segment + data[2:]).findings == ()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation(kind: str, orientation: int) -> None:
    info = inspect(oriented(PHOTO, orientation, kind))
    assert info.orientation == orientation
    assert info.findings == (("EXIF-rotated",) if orientation > 1 else ())
    assert info.size_shown("ignore") == (37, 53)
    assert info.size_shown("apply") == ((53, 37) if orientation >= 5 else (37, 53))


XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encoded(PHOTO, "JPEG", exif=tiff_orientation("<", 4, 6)), id="JPEG, LONG instead of SHORT"),
        pytest.param(encoded(PHOTO, "JPEG", xmp=XMP), id="JPEG, XMP"),
        pytest.param(
            encoded(PHOTO, "PNG").replace(
                png_chunk(b"IEND", b""),
                png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP) + png_chunk(b"IEND", b""),
            ),
            id="PNG, XMP",
        ),
    ],
)
def test_orientation_in_unusual_places_is_pillows(data: bytes) -> None:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.getexif()[0x0112] == 6
    assert inspect(data).orientation == 6


@pytest.mark.parametrize("percent", [0, 1, 10, 50, 90, 99])
@pytest.mark.parametrize(
    "name", [name for name in ALL if not name.startswith(("gif", "tiff", "png, animated", "png, 16"))]
)
def test_truncated(name: str, percent: int) -> None:
    data = ALL[name][: len(ALL[name]) * percent // 100]
    if percent < 99 or pillow_pixels(data) is None:
        assert refused(data)
    else:  # only the end of a PNG, behind the last pixel, is missing
        assert (inspect(data).height, inspect(data).width, inspect(data).plain) == (37, 53, False)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 8, 11, 12, 16, 20])
@pytest.mark.parametrize("name", WALKED)
def test_first_bytes_alone(name: str, length: int) -> None:
    assert refused(WALKED[name][:length])


def test_zero_bytes() -> None:
    assert refused(b"") == "empty file"
    assert refused(bytes(5000)) == "not an image that Pillow can read"


@pytest.mark.parametrize("name", WALKED)
def test_junk_before(name: str) -> None:
    assert refused(b"junk" * 1000 + WALKED[name]) == "not an image that Pillow can read"


@pytest.mark.parametrize("junk", [b"\0", b"junk", bytes(70_000), WALKED["jpeg"][:-2]])
@pytest.mark.parametrize("name", [name for name in WALKED if name.startswith("jpeg")])
def test_junk_after_a_jpeg_is_a_finding(name: str, junk: bytes) -> None:
    info = inspect(WALKED[name] + junk)
    assert (info.height, info.width) == (37, 53)
    assert info.findings == (*inspect(WALKED[name]).findings, "bytes after its end")


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("jpeg")])
def test_junk_after_others_is_accepted_where_pillow_does(name: str) -> None:
    data = ALL[name] + b"junk" * 100
    if pillow_pixels(data) is None:
        assert refused(data)
    else:
        assert (inspect(data).height, inspect(data).width) == (37, 53)


PNG = WALKED["png"]


@pytest.mark.parametrize("chunk", [b"IHDR", b"IDAT", b"IEND"])
def test_bad_crc(chunk: bytes) -> None:
    place = PNG.index(chunk) + 4 + int.from_bytes(PNG[PNG.index(chunk) - 4 : PNG.index(chunk)], "big")
    data = PNG[:place] + bytes([PNG[place] ^ 1]) + PNG[place + 1 :]
    if pillow_pixels(data) is None:
        assert refused(data)
    else:  # Pillow is lenient once it has all pixels
        assert (inspect(data).height, inspect(data).width) == (37, 53)
        assert not inspect(data).plain


def test_no_end_of_png() -> None:
    data = PNG[:-12]
    assert data + png_chunk(b"IEND", b"") == PNG
    info = inspect(data)  # as Pillow, which stops reading at the last pixel
    assert np.array_equal(pillow_pixels(data), PHOTO)
    assert (info.height, info.width, info.plain) == (37, 53, False)


def test_png_without_pixels() -> None:
    assert refused(PNG[:33] + png_chunk(b"IEND", b""))


@pytest.mark.parametrize(
    ("field", "place", "value"),
    [
        ("width", 16, b"\0\0\0\0"),
        ("height", 20, b"\0\0\0\0"),
        ("depth", 24, b"\x03"),
        ("depth", 24, b"\x63"),
        ("colour type", 25, b"\x01"),
        ("colour type", 25, b"\x09"),
    ],
)
def test_png_header_that_cannot_be(field: str, place: int, value: bytes) -> None:
    header = bytearray(PNG[16:29])
    header[place - 16 : place - 16 + len(value)] = value
    assert refused(PNG[:8] + png_chunk(b"IHDR", bytes(header)) + PNG[33:])


def test_png_whose_text_is_a_bomb() -> None:
    text = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(64 << 20)))
    assert refused(PNG[:33] + text + PNG[33:])


@pytest.mark.parametrize("name", ["webp", "webp, lossless", "webp, alpha", "webp, animated"])
@pytest.mark.parametrize("change", [-100, -2, -1, 1, 2, 100])
def test_wrong_riff_size(name: str, change: int) -> None:
    data = ALL[name]
    data = data[:4] + struct.pack("<I", len(data) - 8 + change) + data[8:]
    if pillow_pixels(data) is None:
        assert refused(data)
    else:
        assert (inspect(data).height, inspect(data).width) == (37, 53)


def bomb(kind: str) -> bytes:
    """Return some bytes whose header announces gigapixels."""
    if kind == "jpeg":
        whole = jpeg()
        return whole.replace(struct.pack(">HH", 48, 64), struct.pack(">HH", 65500, 65500), 1)
    if kind == "png":
        body = zlib.compress(bytes(1 << 20))
        header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
        return PNG[:8] + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", body) + png_chunk(b"IEND", b"")
    if kind == "webp":
        return ALL["webp"][:26] + struct.pack("<HH", 16383, 16383) + ALL["webp"][30:]
    if kind == "gif":
        return ALL["gif"][:6] + struct.pack("<HH", 65535, 65535) + ALL["gif"][10:]
    assert kind == "bmp"
    return ALL["bmp"][:18] + struct.pack("<ii", 50_000, 50_000) + ALL["bmp"][26:]


BOMBS = ("jpeg", "png", "webp", "gif", "bmp")


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs(kind: str) -> None:
    with pytest.raises(ImageTooLargeError, match="pixels"):
        inspect(bomb(kind))


def test_bombs_take_no_memory() -> None:
    code = f"""{PEAK}
import sys
from packer.errors import ImageTooLargeError
from packer._images.decode import decode
from packer._images.probe import inspect
small = bytes.fromhex(sys.stdin.readline())
inspect(small), decode(small)
before = peak()
refused = 0
for line in sys.stdin:
    for look in (inspect, decode):
        try:
            look(bytes.fromhex(line))
        except ImageTooLargeError:
            refused += 1
print(refused, peak() - before)
"""
    pytest.importorskip("resource", reason="needs getrusage, which Windows has not")
    lines = "\n".join(data.hex() for data in [ALL["gif"], *map(bomb, BOMBS)])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], input=lines, capture_output=True, text=True, check=True
    )
    refusals, grown = map(int, run.stdout.split())
    assert refusals == 2 * len(BOMBS)
    assert grown < 50 << 20


@pytest.mark.parametrize("name", ALL)
def test_limit_is_inclusive(name: str) -> None:
    assert inspect(ALL[name], max_pixels=37 * 53) == inspect(ALL[name])
    with pytest.raises(ImageTooLargeError, match="53 x 37 pixels exceed the 1960 allowed"):
        inspect(ALL[name], max_pixels=37 * 53 - 1)


def test_limit_is_pillows() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert MAX_PIXELS == 2 * Image.MAX_IMAGE_PIXELS


@settings(max_examples=400)
@given(st.sampled_from(sorted(ALL)).flatmap(lambda name: damaged(ALL[name])))
@pytest.mark.filterwarnings("ignore")  # Pillow warns about damaged metadata
def test_what_pillow_reads_is_accepted_with_its_size(data: bytes) -> None:
    pixels = pillow_pixels(data)
    size = None if pixels is None else pixels.shape[:2]
    try:
        info = inspect(data)
    except ImageError:
        assert size is None
    else:
        assert size in (None, (info.height, info.width))


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(name for name in ALL if name[:3] in ("png", "bmp", "gif", "tif", "ppm"))).flatmap(
        lambda name: damaged(ALL[name])
    )
)
@pytest.mark.filterwarnings("ignore")
def test_what_pillow_refuses_is_refused(data: bytes) -> None:
    """Any damage is found if the chunks have checksums, or if packer opens the image with Pillow."""
    if pillow_pixels(data) is None:
        assert refused(data)


@settings(max_examples=200)
@given(
    st.sampled_from([b"", b"\xff\xd8\xff", PNG[:8], b"RIFF\x20\0\0\0WEBPVP8 ", b"GIF89a", b"BM", b"II*\0"]), st.binary()
)
@pytest.mark.filterwarnings("ignore")
def test_any_bytes_raise_nothing_else(head: bytes, body: bytes) -> None:
    with contextlib.suppress(ImageError):
        inspect(head + body)


def pages(count: int, then: int = 0) -> bytes:
    """Return a TIFF image after which `count` directories follow; the last one leads to the `then`-th, or nowhere."""
    data = bytearray(ALL["tiff"])
    data += bytes(len(data) % 2)
    (first,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, first)
    size = 2 + 12 * entries
    directory, begin = data[first : first + size], len(data)
    struct.pack_into("<I", data, first + size, begin)
    for page in range(1, count + 1):
        following = page if page < count else then - 1 if then else None
        data += directory + struct.pack("<I", 0 if following is None else begin + (size + 4) * following)
    return bytes(data)


@pytest.mark.timeout(30)  # counting so many pages takes a minute, ten times as many take hours
@pytest.mark.parametrize("data", [pages(100_000), pages(1), pages(5000, then=1)], ids=["many", "two", "a circle"])
def test_pages_are_not_counted(data: bytes) -> None:
    info = inspect(data)
    assert (info.height, info.width) == (37, 53)
    assert info.findings == ("animated or many pages: the first is used",)
    assert np.array_equal(decode(data), PHOTO)


def test_a_broken_second_page_is_none() -> None:
    broken = bytearray(pages(1))
    (first,) = struct.unpack_from("<I", broken, 4)
    (entries,) = struct.unpack_from("<H", broken, first)
    struct.pack_into("<I", broken, first + 2 + 12 * entries, len(broken) + 1000)
    info = inspect(bytes(broken))
    assert (info.height, info.width, info.findings) == (37, 53, ())
