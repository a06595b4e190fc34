"""C reads and decodes an image once for all of its views; each has the pixels that it has alone."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from packer._images import native
from packer._images.geometry import CROP, PADDINGS, Box, Crops
from packer._images.operations import KINDS, nothing
from packer._storage.packfile import LOCATION
from tests.images.samples import encoded, jpeg, photo

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")

SIZE = 61, 83
IMAGES = {
    "baseline": jpeg(size=SIZE),
    "progressive": jpeg(variant="progressive", size=SIZE),
    "4:4:0": jpeg("4:4:0", size=SIZE),
    "grey": jpeg("grey", size=SIZE),
    "png": encoded(photo(*SIZE), "PNG"),
    "raw": photo(*SIZE).tobytes(),
}


def crops_of(count: int, seed: int = 0) -> Crops:
    """Return random crops, of which some are bicubic, mirrored, padded or not resized; the last is the whole image."""
    rng, made = np.random.default_rng(seed), []
    for number in range(count):
        height, width = (int(rng.integers(1, side + 1)) for side in SIZE)
        top, left = int(rng.integers(SIZE[0] - height + 1)), int(rng.integers(SIZE[1] - width + 1))
        scaled = (height, width) if number % 4 == 0 else (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
        cut, out = ((-3, 2), (scaled[0] + 5, scaled[1])) if number % 5 == 3 else ((0, 0), scaled)
        box = Box.of((top, left, height, width), scaled, cut, out, flip=bool(number % 2))
        made.append(box._replace(interpolation=number % 3 % 2, padding=number % len(PADDINGS), fill=0x102030))
    return np.array([*made, Box.of((0, 0, *SIZE), SIZE)], CROP)


def drawn(locations: npt.NDArray[np.void], crops: Crops) -> tuple[list[int], list[npt.NDArray[np.uint8]]]:
    """Return the tasks left undone and the pixels of each crop; crops with even numbers are inverted."""
    operations = nothing(len(crops), 1)
    operations["kind"][::2] = KINDS.index("invert")
    outs = [np.zeros((*Box(*crop).out, 3), np.uint8) for crop in crops.tolist()]
    addresses = np.array([out.ctypes.data for out in outs])
    return native.decode_into(native.tasks(locations, crops, addresses), operations), outs


@pytest.mark.parametrize("kind", IMAGES)
def test_views_have_the_pixels_that_each_has_alone(kind: str) -> None:
    crops = crops_of(40)  # more than one decoding makes
    here = native.in_memory([IMAGES[kind]], [SIZE])
    here["raw"] = kind == "raw"
    left, together = drawn(np.repeat(here, len(crops)), crops)
    assert not left
    expected = []
    for number in range(len(crops)):
        place = slice(number, number + 1)
        (one,) = drawn(here, crops[place])[1]
        expected.append(one if number % 2 == 0 else 255 - one)
    for one, other in zip(together, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_views_of_several_images_are_told_apart() -> None:
    other = encoded(photo(*SIZE)[::-1], "PNG")
    both = np.repeat(native.in_memory([IMAGES["png"], other], [SIZE, SIZE]), 3)
    crops = np.concatenate([crops_of(2, 1), crops_of(2, 1)])
    left, outs = drawn(both, crops)
    assert not left
    np.testing.assert_array_equal(outs[2], 255 - photo(*SIZE))
    np.testing.assert_array_equal(outs[5], photo(*SIZE)[::-1])


def test_views_of_a_damaged_image_are_all_left() -> None:
    data = IMAGES["png"][:-40] + bytes(40)
    crops = np.array([Box.of((0, 0, *SIZE), SIZE)] * 3, CROP)
    assert drawn(np.repeat(native.in_memory([data], [SIZE]), 3), crops)[0] == [0, 1, 2]


def test_an_image_is_read_once_for_all_views(tmp_path: Path) -> None:
    io_file = Path("/proc/self/io")
    if not io_file.exists():
        pytest.skip("needs Linux to count what is read")
    stored, crops = IMAGES["baseline"] + bytes(100_000), crops_of(9)
    (tmp_path / "photo").write_bytes(stored)

    def read_so_far() -> int:
        return int(io_file.read_text().split()[1])

    with io.FileIO(tmp_path / "photo") as file:
        locations = np.zeros(len(crops), LOCATION)
        locations["file"], locations["size"] = file.fileno(), len(stored)
        locations["height"], locations["width"] = SIZE
        before = read_so_far()
        assert not drawn(locations, crops)[0]
        assert len(stored) <= read_so_far() - before < 1.5 * len(stored)
