"""Metadata of small images for which Pillow would take gigabytes or minutes, or issue thousands of warnings."""

import io
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from packer._images import pillow
from packer._images.probe import inspect
from packer.errors import ImageError
from tests.images.samples import encoded, photo, pillow_pixels
from tests.memory import PEAK

VALUES = 3000
_LAYOUT = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
_LAYOUT += [(273, 4, 1, 8), (277, 3, 1, 1), (278, 3, 1, 8), (279, 4, 1, 64)]


def directory(
    order: str, values: int, *, layout: list[tuple[int, int, int, int]] = _LAYOUT, next_page: int = 0
) -> bytes:
    """Return a TIFF of 8 x 8 pixels with more entries, each of which has almost all bytes of the file as its value."""
    total = 14 + 12 * (values + len(layout))
    entries = layout + [(tag, 7, total - 2, 1) for tag in range(40000, 40000 + values)]
    if order == ">":
        entries = [(tag, kind, n, value << 16 if kind == 3 else value) for tag, kind, n, value in entries]
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(entries))
    packed = b"".join(struct.pack(order + "HHII", *entry) for entry in entries)
    return start + packed + struct.pack(order + "I", next_page)


def saved(kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 40, 90)).save(file, kind, **options)
    return file.getvalue()


def jpeg_with(*segments: bytes) -> bytes:
    packed = b"".join(segment[:2] + struct.pack(">H", len(segment)) + segment[2:] for segment in segments)
    return b"\xff\xd8" + packed + saved("JPEG")[20:]  # without JFIF, so that Pillow looks for a resolution in the EXIF


def png_with(name: bytes, content: bytes) -> bytes:
    chunk = struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return saved("PNG")[:33] + chunk + saved("PNG")[33:]


def exif(order: str = "<", values: int = VALUES) -> bytes:
    return directory(order, values, layout=[])


def overlapping() -> dict[str, bytes]:
    text = b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n1\n" + exif().hex().encode())
    made = {
        "tiff, little-endian": directory("<", VALUES),
        "tiff, big-endian": directory(">", VALUES),
        "jpeg": jpeg_with(b"\xff\xe1Exif\0\0" + exif()),
        "jpeg, in two segments": jpeg_with(*(b"\xff\xe1Exif\0\0" + part for part in (exif()[:9000], exif()[9000:]))),
        "jpeg, index of pictures": jpeg_with(b"\xff\xe2MPF\0" + exif()),
        "png": png_with(b"eXIf", exif()),
        "png, in a text": png_with(b"zTXt", text),
        "webp": saved("WEBP", exif=exif()),
    }
    avif = b"\0\0\0\x14ftypavif\0\0\0\0avif" + exif()
    return made | {"avif": avif}


@pytest.mark.parametrize("name", overlapping())
def test_metadata_whose_values_share_their_bytes_are_refused(name):
    data = overlapping()[name]
    assert len(data) < 50_000
    if name != "jpeg, index of pictures":  # only Pillow reads it, when it opens the image
        with pytest.raises(ImageError, match=r"its metadata declare \d+ bytes, too many for \d+"):
            inspect(data)
    with pytest.raises(ImageError, match=r"its metadata declare \d+ bytes, too many for \d+"):
        pillow.decode(data, exif="apply")


def test_a_small_image_takes_little_memory_whatever_its_directory_says(tmp_path):
    pytest.importorskip("resource")
    code = (
        PEAK + "import sys\n"
        "from packer._images.probe import inspect\n"
        "from packer.errors import ImageError\n"
        "inspect(open(sys.argv[1], 'rb').read())\n"
        "before = peak()\n"
        "try: inspect(open(sys.argv[2], 'rb').read())\n"
        "except ImageError: pass\n"
        "print((peak() - before) >> 20)\n"
    )
    plain, small = tmp_path / "plain", tmp_path / "small"
    plain.write_bytes(saved("TIFF"))
    small.write_bytes(saved("WEBP", exif=exif(values=5000)))
    ran = subprocess.run([sys.executable, "-c", code, plain, small], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 50  # MB; 300 MB if Pillow reads all


@pytest.mark.parametrize("junk", [b"", b"junk"], ids=["a well-formed header", "a header with junk in it"])
def test_a_jpeg_of_many_exif_segments_is_refused(junk):
    few, many = (jpeg_with(*[b"\xff\xe1Exif\0\0x"] * count) for count in (64, 65))
    few, many = (data[:13] + junk + data[13:] for data in (few, many))  # after the first segment
    assert inspect(few).width == 8
    with pytest.raises(ImageError, match="65 segments"):
        inspect(many)


def test_a_directory_of_values_that_lie_outside_is_refused_without_a_warning():
    data = directory("<", 0, layout=_LAYOUT + [(tag, 7, 1 << 20, 8) for tag in range(40000, 42000)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match="its metadata declare"):
            inspect(data)


def test_a_second_page_that_would_cost_too_much_is_not_looked_for():
    first = directory("<", 0)
    second = exif()[8:]
    shifted = directory("<", 0, next_page=len(first) + 64) + bytes(64) + second
    assert inspect(shifted).findings == ()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_metadata_as_programs_write_them_are_read(kind, orientation):
    tags = Image.Exif()
    tags[0x0112], tags[0x010E], tags[0x013B] = orientation, "a description " * 100, "somebody"
    options = {"lossless": True} if kind == "WEBP" else {}
    data, stored = (encoded(photo(24, 40), kind, **options, **more) for more in ({"exif": tags}, {}))
    assert inspect(data).orientation == (1 if kind == "TIFF" else orientation)  # Pillow turns a TIFF itself
    expected = pillow_pixels(stored)
    if orientation >= 5:
        expected = expected.swapaxes(0, 1)
    expected = expected[:: -1 if orientation in (3, 4, 7, 8) else 1, :: -1 if orientation in (2, 3, 6, 7) else 1]
    assert np.array_equal(pillow.decode(data, exif="apply"), expected)
