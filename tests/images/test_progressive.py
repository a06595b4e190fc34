"""Progressive JPEGs, unusual samplings and CMYK: packer's C returns Pillow's pixels, or leaves them to others."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from packer._images import native, pillow, turbojpeg
from packer._images.decode import decode
from packer._images.geometry import MAX_PIXELS
from packer._images.jpeg import read_header, scans
from packer._images.modes import decode_as
from packer.errors import ImageTooLargeError
from tests.images.jpeg_writer import Factors, Scan, draw_coefficients, scripts, write
from tests.images.samples import SUBSAMPLINGS, encoded, jpeg, photo, pillow_pixels
from tests.images.test_native_pixels import cut, rectangles, same

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler when packer is installed")

ONE = ((1, 1),)
FACTORS: tuple[Factors, ...] = (
    *(ONE, ((2, 2),), ((3, 4),)),
    *((first, *2 * ONE) for first in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4), (3, 1), (1, 3))),
    *(((3, 2), *2 * ONE), ((2, 2), (1, 2), (2, 1)), ((1, 1), (2, 2), (1, 1)), ((2, 1), (2, 1), (1, 1))),
    *(((4, 1), (2, 1), (2, 1)), ((1, 4), (1, 2), (1, 2)), ((2, 2), (2, 1), (2, 1)), ((4, 2), (1, 1), (1, 1))),
)
PRINT: tuple[Factors, ...] = (
    4 * ONE,
    ((2, 2), *3 * ONE),
    ((2, 2), (1, 1), (1, 1), (2, 2)),
    ((1, 1), (1, 1), (2, 1), (1, 2)),
)


@st.composite
def images(draw: st.DrawFn) -> tuple[bytes, tuple[int, int]]:
    """Draw a JPEG of any sampling, progressive or not, and its height and width."""
    factors = draw(st.sampled_from((*FACTORS, *PRINT)))
    size = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    planes = draw_coefficients(np.random.default_rng(draw(st.integers(0, 2**32))), size, factors)
    progressive = draw(st.booleans())
    script = draw(scripts(len(factors))) if progressive else [Scan(tuple(range(len(factors))))]
    restarts = draw(st.sampled_from([0, 0, 1, 2, 5, 50]))
    adobe = draw(st.sampled_from([None, 0, 2])) if len(factors) == 4 else None
    return write(size, factors, planes, script, restarts, adobe=adobe), size


@given(image=images(), data=st.data())
def test_any_sampling_and_any_scans_give_the_pixels_of_pillow(
    image: tuple[bytes, tuple[int, int]], data: st.DataObject
) -> None:
    stored, size = image
    expected = pillow_pixels(stored)
    assert expected is not None
    assert same(native.decode(stored, *size), expected)
    rectangle = top, left, height, width = data.draw(rectangles(*size))
    assert same(cut(stored, size, rectangle), expected[top : top + height, left : left + width])


@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_large_progressive_photos(sampling: str) -> None:
    """Their scans are longer than the part of 8 KiB that the decoder copies at a time."""
    size = 405, 525
    data = jpeg(sampling, "progressive", size)
    whole = turbojpeg.decode_jpeg(data)
    assert same(native.decode(data, *size), whole)
    for top, left, height, width in [(0, 0, 405, 1), (404, 0, 1, 525), (200, 301, 57, 66), (3, 500, 400, 25)]:
        assert same(cut(data, size, (top, left, height, width)), whole[top : top + height, left : left + width])


@pytest.mark.parametrize("sampling", range(3))
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("transform", [0, 2])
def test_the_colours_of_print(sampling: int, progressive: bool, transform: int) -> None:
    """The image is CMYK as Pillow writes it, or the same bytes declared as YCCK."""
    picture = Image.fromarray(photo(90, 117)).convert("CMYK")
    data = bytearray(encoded(picture, "JPEG", subsampling=sampling, progressive=progressive))
    data[data.index(b"Adobe") + 11] = transform
    expected = pillow.decode(bytes(data))
    assert same(native.decode(data, 90, 117), expected)
    assert same(cut(bytes(data), (90, 117), (31, 40, 17, 50)), expected[31:48, 40:90])
    assert np.array_equal(decode(bytes(data)), expected)


# Images that are left to other decoders.

SIZE = 40, 56
COLOURS = ((2, 2), *2 * ONE)
PLANES = draw_coefficients(np.random.default_rng(0), SIZE, COLOURS)
DC = [Scan((0, 1, 2), 0, 0, 0, 1), Scan((0, 1, 2), 0, 0, 1, 0)]
AC = [
    *(Scan((0,), 1, 5, 0, 1), Scan((0,), 6, 63, 0, 1), Scan((1,), 1, 63, 0, 1), Scan((2,), 1, 63, 0, 0)),
    *(Scan((1,), 1, 63, 1, 0), Scan((0,), 1, 63, 1, 0)),
]
WHOLE = [*DC, *AC]


def written(script: list[Scan], restarts: int = 0) -> bytes:
    return write(SIZE, COLOURS, PLANES, script, restarts)


UNUSUAL = {
    **{f"without scan {number}": written([*WHOLE[:number], *WHOLE[number + 1 :]]) for number in range(len(WHOLE))},
    **{f"with scan {number} twice": written([*WHOLE[: number + 1], *WHOLE[number:]]) for number in range(len(WHOLE))},
    "other coefficients before the first": written([*AC, *DC]),
    "no other coefficients": written(DC),
    "no first coefficients": written(AC),
    "other coefficients of several components": written([*WHOLE, Scan((0, 1), 1, 5, 0, 0)]),
    "first and other coefficients together": written([Scan((0, 1, 2), 0, 5, 0, 0), *AC]),
    "a refinement that leaves a bit out": written([*DC[:1], Scan((0, 1, 2), 0, 0, 3, 2), *AC]),
    "no last coefficients": written([*DC, *AC[:1], *AC[2:]]),
    "all scans twice": written([*WHOLE, *WHOLE]),
    "no end": written(WHOLE)[:-2],
    "half of it": written(WHOLE)[: len(written(WHOLE)) // 2],
    "a byte after a scan": written(WHOLE).replace(b"\xff\xda\0\x08\x01\x01\0\x06", b"\0\xff\xda\0\x08\x01\x01\0\x06"),
    "a restart after a scan": written(WHOLE).replace(
        b"\xff\xda\0\x08\x01\x01\0\x06", b"\xff\xd0\xff\xda\0\x08\x01\x01\0\x06"
    ),
    "new quanta between scans": written(WHOLE).replace(
        b"\xff\xda\0\x08\x01\x01\0\x06", b"\xff\xdb\0\x43\0" + b"\2" * 64 + b"\xff\xda\0\x08\x01\x01\0\x06"
    ),
    "a comment between scans": written(WHOLE).replace(
        b"\xff\xda\0\x08\x01\x01\0\x06", b"\xff\xfe\0\x04ab\xff\xda\0\x08\x01\x01\0\x06"
    ),
    "a second frame": written(WHOLE).replace(
        b"\xff\xda\0\x08\x01\x01\0\x06", b"\xff\xc2\0\x0b\x08\0\x28\0\x38\1\1\x11\0\xff\xda\0\x08\x01\x01\0\x06"
    ),
}


def test_the_image_that_those_are_made_of_is_not_left_to_others() -> None:
    for restarts in (0, 1, 7):
        data = written(WHOLE, restarts)
        assert same(native.decode(data, *SIZE), pillow.decode(data))


@pytest.mark.parametrize("name", UNUSUAL)
def test_incomplete_and_odd_scans_are_left_to_others(name: str) -> None:
    data = UNUSUAL[name]
    assert native.decode(data, *SIZE) is None
    assert cut(data, SIZE, (0, 0, *SIZE)) is None
    expected = pillow_pixels(data)
    if expected is not None:
        assert np.array_equal(decode(data), expected)


def test_what_follows_a_rectangle_in_a_scan_is_not_looked_at() -> None:
    data = written(WHOLE, restarts=7)
    whole = pillow.decode(data)
    begin = data.index(b"\xff\xd2")
    damaged = data[: begin + 2] + b"\0\0" + data[begin + 4 :]
    assert native.decode(damaged, *SIZE) is None
    assert same(cut(damaged, SIZE, (0, 0, 15, 56)), whole[:15])


def test_as_many_scans_as_python_allows() -> None:
    """Each scan may cost a pass over all blocks, although it takes only a few bytes."""
    size = 1000, 1000
    flat = encoded(Image.new("L", size, 128), "JPEG", progressive=True)
    header = read_header(flat)
    assert header is not None
    most = 16 * MAX_PIXELS // 1_000_000
    allowed = flat + b"\xff\xda" * (most - scans(flat, header))
    assert same(native.decode(allowed, *size), pillow.decode(flat))
    assert native.decode(allowed + b"\xff\xda", *size) is None
    assert native.decode_grey(allowed + b"\xff\xda", *size) is None
    with pytest.raises(ImageTooLargeError, match=f"{most + 1} passes over 1000 x 1000 pixels"):
        decode(allowed + b"\xff\xda")


HUGE = """
import sys
from resource import getpagesize
from pathlib import Path
import numpy as np
from packer._images import native

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()

data = Path(sys.argv[1]).read_bytes()
out = np.empty((8, 8, 3), np.uint8)
before = resident()
assert native.decode(data, 12000, 13000, out) is None
assert resident() - before < 5e6, resident() - before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_memory_is_taken_for_an_image_that_the_data_cannot_hold(tmp_path: Path) -> None:
    header = read_header(written(WHOLE))
    assert header is not None
    data = bytearray(written(WHOLE))
    struct.pack_into(">HH", data, header.frame + 1, 12000, 13000)
    (tmp_path / "huge.jpg").write_bytes(data)
    line = [sys.executable, "-c", HUGE, tmp_path / "huge.jpg"]
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


# Grey.


@pytest.mark.parametrize("variant", ["baseline", "progressive", "restarts"])
@pytest.mark.parametrize("size", [(48, 64), (1, 1), (37, 53)])
def test_grey_is_decoded_without_colours(variant: str, size: tuple[int, int]) -> None:
    data = jpeg("grey", variant, size)
    expected = pillow.decode(data)[..., :1]
    assert same(native.decode_grey(data, *size), expected)
    assert np.array_equal(decode_as(data, "L"), expected)
    assert np.array_equal(decode_as(data, "unchanged"), expected)


def test_an_image_in_colour_has_no_grey_of_its_own() -> None:
    for variant in ("baseline", "progressive"):
        data = jpeg("4:2:0", variant)
        assert native.decode_grey(data, 48, 64) is None
        assert np.array_equal(decode_as(data, "L")[..., 0], np.array(Image.fromarray(decode(data)).convert("L")))


def test_a_grey_image_of_no_pixels_is_refused() -> None:
    for size in ((0, 64), (48, 0), (-1, 64)):
        with pytest.raises(ValueError, match=r"empty|negative"):
            native.decode_grey(jpeg("grey"), *size)
