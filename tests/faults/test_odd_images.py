"""Images as they are found on disks, one kind at a time: every decoder returns Pillow's pixels or raises an error."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from packer._conversion.convert import convert
from packer._datasets.open import open_dataset
from packer._images.decode import decode, installed_decoders
from packer._images.probe import inspect
from packer._sources.imagefolder import imagefolder_source
from packer.errors import ImageError
from tests.images.samples import encoded, jpeg, oriented, photo, png_chunk, tiff_orientation

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow warns about unusual images

SIZE = (37, 53)


def drawn() -> Image.Image:
    return Image.fromarray(photo(*SIZE))


def with_marker(data: bytes, marker: int, change: Callable[[bytearray, int], None]) -> bytes:
    """Return a copy of a JPEG, changed at the first marker of this kind."""
    changed = bytearray(data)
    change(changed, data.index(bytes([0xFF, marker])))
    return bytes(changed)


def precision(bits: int) -> Callable[[bytearray, int], None]:
    return lambda data, at: data.__setitem__(at + 4, bits)


def renamed(marker: int) -> Callable[[bytearray, int], None]:
    return lambda data, at: data.__setitem__(at + 1, marker)


def height(rows: int) -> Callable[[bytearray, int], None]:
    return lambda data, at: struct.pack_into(">H", data, at + 5, rows)


def adobe(data: bytes, transform: int) -> bytes:
    """Insert an Adobe segment with a colour transform at the beginning, and disable any other one."""
    segment = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([transform])
    return data[:2] + segment + data[2:].replace(b"\xff\xee\x00\x0eAdobe", b"\xff\xee\x00\x0eOther")


def no_markers(data: bytes, marker: int) -> bytes:
    """Remove the first segment of this kind from a JPEG."""
    at = data.index(bytes([0xFF, marker]))
    return data[:at] + data[at + 2 + struct.unpack_from(">H", data, at + 2)[0] :]


def with_lines(data: bytes) -> bytes:
    """Set the height in the header to 0, and add a DNL segment with the height after the scan."""
    opened = with_marker(data, 0xC0, height(0))
    return opened[:-2] + b"\xff\xdc\x00\x04" + struct.pack(">H", SIZE[0]) + b"\xff\xd9"


def interlaced() -> bytes:
    """Draw a PNG of one colour in seven passes, which Pillow does not write."""
    import zlib

    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 1)
    rows = b"".join(
        b"\0" + bytes([9, 99, 199]) * columns
        for columns, count in [(1, 1), (1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4)]
        for _ in range(count)
    )
    parts = [png_chunk(b"IHDR", header), png_chunk(b"IDAT", zlib.compress(rows)), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def images() -> dict[str, bytes]:
    plain, image = jpeg(size=SIZE), drawn()
    cmyk = encoded(image.convert("CMYK"), "JPEG", quality=95)
    deep = Image.fromarray(np.arange(SIZE[0] * SIZE[1], dtype=np.uint16).reshape(SIZE) * 33)
    palette = image.convert("P", palette=Image.Palette.ADAPTIVE, colors=50)
    progressive = jpeg(variant="progressive", size=SIZE)
    last = progressive[progressive.rfind(b"\xff\xda") : -2]
    found = {f"exif-{value}.jpg": oriented(photo(*SIZE), value) for value in range(1, 9)}
    for value in (0, 9, 65535):
        segment = tiff_orientation("<", 3, value)
        found[f"exif-{value}.jpg"] = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + plain[2:]
    found["exif-broken.jpg"] = plain[:2] + b"\xff\xe1\x00\x0eExif\0\0II*\0\xff\xff" + plain[2:]
    found |= {
        "cmyk.jpg": cmyk,
        "cmyk-adobe-0.jpg": adobe(cmyk, 0),
        "ycck-adobe-2.jpg": adobe(cmyk, 2),
        "cmyk-no-adobe.jpg": no_markers(cmyk, 0xEE),
        "adobe-0.jpg": adobe(plain, 0),
        "adobe-1.jpg": adobe(plain, 1),
        "adobe-2.jpg": adobe(plain, 2),
        "adobe-9.jpg": adobe(plain, 9),
        "no-jfif.jpg": no_markers(plain, 0xE0),
        "12-bit.jpg": with_marker(plain, 0xC0, precision(12)),
        "9-bit.jpg": with_marker(plain, 0xC0, precision(9)),
        "extended.jpg": with_marker(plain, 0xC0, renamed(0xC1)),
        "lossless.jpg": with_marker(plain, 0xC0, renamed(0xC3)),
        "hierarchical.jpg": with_marker(plain, 0xC0, renamed(0xC5)),
        "arithmetic.jpg": with_marker(plain, 0xC0, renamed(0xC9)),
        "arithmetic-progressive.jpg": with_marker(progressive, 0xC2, renamed(0xCA)),
        "progressive.jpg": progressive,
        "progressive-300-scans.jpg": progressive[:-2] + last * 300 + b"\xff\xd9",
        "dnl.jpg": with_lines(plain),
        "height-0.jpg": with_marker(plain, 0xC0, height(0)),
        "height-too-large.jpg": with_marker(plain, 0xC0, height(SIZE[0] + 40)),
        "restarts.jpg": jpeg(variant="restarts", size=SIZE),
        "restart-lost.jpg": jpeg(variant="restarts", size=SIZE).replace(b"\xff\xd3", b"\x12\x34", 1),
        "trailing-junk.jpg": plain + bytes(range(256)) * 20,
        "trailing-zeros.jpg": plain + bytes(5000),
        "junk-prefix.jpg": bytes(range(1, 200)) + plain,
        "newline-prefix.jpg": b"\n" + plain,
        "concatenated.jpg": plain + jpeg("grey", size=(20, 20)),
        "jpeg-and-zip.jpg": plain + b"PK\5\6" + bytes(18),
        "gif-and-script.jpg": b"GIF89a/*" + plain,
        "no-end.jpg": plain[:-2],
        "half.jpg": plain[: len(plain) // 2],
        "header-only.jpg": plain[:600],
        "one-byte.jpg": b"\xff",
        "empty.jpg": b"",
        "interlaced.png": interlaced(),
        "palette-transparent.png": encoded(palette, "PNG", transparency=3),
        "palette-transparent-all.png": encoded(palette, "PNG", transparency=bytes(range(50))),
        "rgb-transparent.png": encoded(image, "PNG", transparency=(1, 2, 3)),
        "grey-transparent.png": encoded(image.convert("L"), "PNG", transparency=7),
        "16-bit.png": encoded(deep, "PNG"),
        "16-bit.tiff": encoded(deep, "TIFF"),
        "animated.png": encoded(image, "PNG", save_all=True, append_images=[image.rotate(180)]),
        "animated.gif.jpg": encoded(palette, "GIF", save_all=True, append_images=[palette.rotate(180)]),
        "animated.webp": encoded(image, "WEBP", save_all=True, append_images=[image.rotate(180)]),
        "pages.tiff": encoded(image, "TIFF", save_all=True, append_images=[image.rotate(90, expand=True)]),
        "pages.mpo.jpg": encoded(image, "MPO", save_all=True, append_images=[image.rotate(180)]),
        "1x1.jpg": encoded(image.crop((0, 0, 1, 1)), "JPEG"),
        "1x65500.jpg": encoded(image.resize((1, 65500)), "JPEG"),
        "65500x1.png": encoded(image.resize((65500, 1)), "PNG"),
        "heic.jpg": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200),
        "svg.jpg": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
        "pdf.jpg": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        "jxl.jpg": b"\xff\x0a" + bytes(100),
        "bad-crc.png": encoded(image, "PNG").replace(b"IDAT", b"IDAU", 1),
        "icc-broken.jpg": plain[:2] + b"\xff\xe2\x00\x14ICC_PROFILE\0\x01\x01bad!"[:22] + plain[2:],
        "exif-10-mb.png": encoded(image, "PNG", exif=b"Exif\0\0II*\0" + bytes(10 << 20)),
    }
    return found


IMAGES = images()
READABLE = {name for name in IMAGES if name.startswith(("exif", "progressive", "animated", "pages", "1", "6"))} - {
    "12-bit.jpg"
}


def pillow_pixels(data: bytes, exif: str) -> npt.NDArray[np.uint8] | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            upright = ImageOps.exif_transpose(image) if exif == "apply" else image
            return np.asarray(upright.convert("RGB"))
    except Exception:  # each of Pillow's plugins has errors of its own
        return None


@pytest.mark.parametrize("exif", ["ignore", "apply"])
@pytest.mark.parametrize("name", IMAGES)
def test_pillows_pixels_or_an_error_from_every_decoder(name: str, exif: str) -> None:
    data = IMAGES[name]
    expected = pillow_pixels(data, exif)
    for decoder in installed_decoders():
        if expected is None:
            with pytest.raises(ImageError):
                decode(data, exif=exif, decoder=decoder)
        else:
            assert np.array_equal(decode(data, exif=exif, decoder=decoder), expected), decoder
    if expected is None:
        with pytest.raises(ImageError):
            inspect(data)
    else:
        assert inspect(data).size_shown(exif) == expected.shape[:2]


def test_what_can_be_read_and_what_cannot() -> None:
    """Check what the test above assumes: some images are readable, and some are not."""
    readable = {name for name, data in IMAGES.items() if pillow_pixels(data, "ignore") is not None}
    assert readable >= READABLE
    for name in ("12-bit.jpg", "lossless.jpg", "dnl.jpg", "junk-prefix.jpg", "half.jpg", "heic.jpg", "svg.jpg"):
        assert name not in readable
    assert 10 < len(IMAGES.keys() - readable) < len(IMAGES) - 30


def test_all_in_a_tree(tmp_path: Path) -> None:
    """Unreadable images are named with a reason; the others have ImageFolder's pixels."""
    for name, data in IMAGES.items():
        (tmp_path / "tree" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / "a" / name).write_bytes(data)
    summary = convert(imagefolder_source(tmp_path / "tree"), tmp_path / "x.lmdb", on_error="skip")
    skipped = {entry["name"].removeprefix("a/"): entry["reason"] for entry in summary.manifest.skipped}
    unreadable = {name for name, data in IMAGES.items() if pillow_pixels(data, "ignore") is None}
    assert skipped.keys() == unreadable
    assert all(skipped.values())
    dataset = open_dataset(tmp_path / "x.lmdb", output="numpy")
    for index, (name, _) in enumerate(dataset.samples):
        assert np.array_equal(dataset[index][0], pillow_pixels(IMAGES[name.removeprefix("a/")], "ignore"))
