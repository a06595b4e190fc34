"""For any image, each decoder returns Pillow's pixels, or refuses the image if Pillow does."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fuzz.campaign import disagreement, inputs
from packer._images import native, pillow
from packer._images.decode import decode, installed_decoders
from packer._images.encode import encode_tiled
from packer._images.jpeg import read_header, segments
from packer._images.jpeg_tiles import cut_out, first_rows, read_tiles
from packer._images.probe import inspect
from packer.errors import ImageError, ImageTooLargeError
from tests.images.samples import encoded, photo, tiff_orientation

ALL = ("auto", *installed_decoders())

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow warns about damaged metadata


def refused_by_all(data: bytes) -> bool:
    """Tell whether every decoder refuses an image, and packer's C does not decode the whole of it."""
    for decoder in ALL:
        try:
            decode(data, decoder=decoder)
        except ImageError:
            continue
        return False
    header = read_header(data)
    return header is None or not native.PREFERRED or native.decode(data, header.height, header.width) is None


# After the last row.


@pytest.mark.parametrize("interval", [1, 5, 6, 7, 24, 1000])
@pytest.mark.parametrize("junk", [b"\0", bytes(9000), b"\xff\x0f", bytes(9000) + b"\xff\x0f", b"\xff\xd0\0"])
def test_data_after_the_last_row_are_refused_or_passed_over_as_pillow_does(interval: int, junk: bytes) -> None:
    data = encoded(photo(32, 48), "JPEG", subsampling=0, restart_marker_blocks=interval)
    outcome, problem = disagreement(data[:-2] + junk + b"\xff\xd9", ALL)
    assert problem is None
    assert outcome != "own decoder"


def test_an_image_found_by_an_attack(shared_data: Path) -> None:
    found = shared_data.parent / "attack" / "accepted_alone_2_1.bin"
    if not found.exists():
        pytest.skip("needs the image that was found")
    assert refused_by_all(found.read_bytes())


# Sizes.


def tall(height: int) -> bytes:
    """Return a grey JPEG of many rows of blocks, which are all the same."""
    data = encoded(Image.new("L", (8, 8), 128), "JPEG", restart_marker_blocks=1)
    header = read_header(data)
    assert header is not None
    block, rows = data[header.scan : -2], -(-height // 8)
    head = bytearray(data[: header.scan])
    struct.pack_into(">H", head, header.frame + 1, height)
    scan = b"".join(block + bytes([0xFF, 0xD0 + row % 8]) for row in range(rows))
    return bytes(head) + scan[:-2] + b"\xff\xd9"


def test_sides_are_as_long_as_libjpeg_allows() -> None:
    assert disagreement(tall(65_500), ALL)[1] is None
    assert decode(tall(65_500)).shape == (65_500, 8, 3)
    assert refused_by_all(tall(65_501))
    assert refused_by_all(tall(65_535))


def test_an_image_of_too_many_scans_is_refused_by_all_whatever_pillow_thinks_of_it() -> None:
    data = encoded(photo(40, 56), "JPEG", progressive=True) + b"\xff\xda" * 20
    assert pillow.decode(data).shape == (40, 56, 3)
    for decoder in ALL:
        with pytest.raises(ImageTooLargeError):
            decode(data, decoder=decoder, max_pixels=40 * 56)
    assert disagreement(data, ALL, max_pixels=40 * 56)[1] is None


# Metadata.


def with_metadata(*pieces: tuple[int, bytes], instead_of_jfif: bool = False) -> bytes:
    """Return a photo with more segments, given as the second byte of the marker and the content."""
    data = encoded(photo(40, 56), "JPEG", quality=80)
    (_, _, end) = next(segments(data))
    made = b"".join(struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content for marker, content in pieces)
    return data[: 2 if instead_of_jfif else end] + made + data[end:]


def exif(*fields: tuple[int, int, int, int], order: str = "<") -> bytes:
    """Return EXIF: tag, type, number of values and value of each field."""
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(fields))
    return b"Exif\0\0" + head + b"".join(struct.pack(order + "HHII", *field) for field in fields) + bytes(20)


RESOLUTION_UNIT = 0x0128, 3, 1, 2
REFUSED = {
    "JFIF without a version": with_metadata((0xE0, b"JFIF\0"), instead_of_jfif=True),
    "JFIF with half a version": with_metadata((0xE0, b"JFIF\0\1")),
    "Adobe without a version": with_metadata((0xEE, b"Adobe")),
    "a profile without its number": with_metadata((0xE2, b"ICC_PROFILE\0\1")),
    "a resource of Photoshop without a name": with_metadata((0xED, b"Photoshop 3.0\0" + b"8BIM\4\4")),
    "a second resource without a name": with_metadata(
        (0xED, b"Photoshop 3.0\0" + b"8BIM\4\4" + bytes(6) + b"8BIM\4\4")
    ),
    "a resolution that is an empty text": with_metadata((0xE1, exif((0x011A, 2, 1, 0), RESOLUTION_UNIT))),
    "a resolution of one byte": with_metadata((0xE1, exif((0x011A, 7, 1, 5), RESOLUTION_UNIT))),
    "the same, upper byte first": with_metadata((0xE1, exif((0x011A, 1, 1, 5), RESOLUTION_UNIT, order=">"))),
    "EXIF in two pieces": with_metadata(
        (0xE1, exif((0x0100, 3, 1, 5), (0x011A, 7, 1, 5), RESOLUTION_UNIT)[:24]),
        (0xE1, b"Exif\0\0" + exif((0x0100, 3, 1, 5), (0x011A, 7, 1, 5), RESOLUTION_UNIT)[24:]),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_metadata_that_pillow_stumbles_over(name: str) -> None:
    assert refused_by_all(REFUSED[name])
    with pytest.raises(ImageError):
        inspect(REFUSED[name])
    assert cut_out(REFUSED[name], (40, 56), (0, 0, 8, 8)) is None
    assert first_rows(REFUSED[name], (40, 56), 8) is None


def test_tiles_of_an_image_that_pillow_refuses_are_not_cut_out() -> None:
    data = encode_tiled(np.array(photo(40, 160)), 90)
    refused = data[:2] + b"\xff\xe2\0\x0eICC_PROFILE\0" + data[2:]
    assert read_tiles(refused) is not None
    assert cut_out(data, (40, 160), (0, 0, 8, 8)) is not None
    assert cut_out(refused, (40, 160), (0, 0, 8, 8)) is None
    assert refused_by_all(refused)


ORDINARY = {
    "JFIF with a resolution": encoded(photo(40, 56), "JPEG", dpi=(72, 72)),
    "no JFIF": with_metadata(instead_of_jfif=True),
    "JFXX": with_metadata((0xE0, b"JFXX\0\x13")),
    "EXIF": encoded(photo(40, 56), "JPEG", exif=Image.Exif()),
    "a resolution": with_metadata((0xE1, exif((0x011A, 5, 1, 34), RESOLUTION_UNIT) + bytes(20))),
    "an orientation, upper byte first": with_metadata((0xE1, tiff_orientation(">", 3, 6))),
    "XMP": with_metadata((0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")),
    "a profile in two pieces": with_metadata((0xE2, b"ICC_PROFILE\0\1\2a"), (0xE2, b"ICC_PROFILE\0\2\2b")),
    "Photoshop": with_metadata((0xED, b"Photoshop 3.0\0" + b"8BIM\3\xed\0\0\0\0\0\x10" + bytes(16))),
    "Photoshop in two pieces": with_metadata(
        (0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\x10ab"), (0xED, b"Photoshop 3.0\0c")
    ),
    "several images": encoded(photo(40, 56), "MPO", save_all=True, append_images=[Image.new("RGB", (9, 9))]),
    "Adobe": with_metadata((0xEE, b"Adobe\0d\0\0\0\0\1")),
    "a comment": with_metadata((0xFE, b"")),
    "segments of any program": with_metadata(*((0xE0 + number, b"any" + bytes(number)) for number in range(16))),
}


@pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")
@pytest.mark.parametrize("name", ORDINARY)
def test_usual_metadata_leave_an_image_to_the_fastest_decoder(name: str) -> None:
    assert disagreement(ORDINARY[name], ALL) == ("own decoder", None)
    assert inspect(ORDINARY[name]).plain


ODD = {
    "no TIFF in EXIF": with_metadata((0xE1, b"Exif\0\0none")),
    "a field whose value lies outside": with_metadata((0xE1, exif((0x010F, 2, 50, 9000), (0x0112, 3, 1, 6)))),
    "an orientation that is a fraction": with_metadata(
        (0xE1, exif((0x0112, 5, 1, 22))[:28] + struct.pack("<II", 6, 1))
    ),
    "an orientation of signed numbers": with_metadata((0xE1, exif((0x0112, 8, 1, 6)))),
    "a directory of EXIF before its beginning": with_metadata(
        (0xE1, exif((0x0112, 3, 1, 6), (0x8769, 9, 1, (1 << 32) - 5)))
    ),
}


@pytest.mark.parametrize("turning", ["ignore", "apply"])
@pytest.mark.parametrize("name", [*ODD, *REFUSED])
def test_odd_orientations_are_those_of_pillow(name: str, turning: str) -> None:
    assert disagreement((ODD | REFUSED)[name], ALL, turning)[1] is None


def test_an_image_is_turned_whatever_else_its_metadata_say() -> None:
    data = ODD["a directory of EXIF before its beginning"]
    assert decode(data, exif="apply").shape == pillow.decode(data, exif="apply").shape == (56, 40, 3)


# Anything.


def test_a_short_campaign() -> None:
    found = [(name, *disagreement(data, ALL)) for name, data in inputs(300, seed=5)]
    assert [(name, problem) for name, _, problem in found if problem is not None] == []
    assert {outcome for _, outcome, _ in found} >= {"decoded", "refused"}


def test_a_short_campaign_with_real_images(shared_data: Path) -> None:
    chance = random.Random(0)
    files = [path.read_bytes() for path in sorted((shared_data / "odd").rglob("*.jpg"))]
    for name, data in inputs(100, seed=6, images=chance.sample(files, 20)):
        assert disagreement(data)[1] is None, name
