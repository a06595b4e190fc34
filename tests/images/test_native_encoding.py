"""packer's JPEG encoder writes the same bytes as Pillow and OpenCV."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images import encode, native, opencv
from packer._images.encode import encode_tiled, jpeg_encoder
from packer._images.jpeg_tiles import annotate, read_tiles
from tests.images.samples import encoded, photo

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")

Pixels = npt.NDArray[np.uint8]


def pillows(pixels: Pixels, quality: int, interval: int) -> bytes:
    return encoded(pixels, "JPEG", quality=quality, **({"restart_marker_blocks": interval} if interval else {}))


def noise(height: int, width: int) -> Pixels:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def extremes(height: int, width: int) -> Pixels:
    return noise(height, width) // 128 * 255


def flat(height: int, width: int) -> Pixels:
    return np.broadcast_to(noise(1, 1) // 2 + np.uint8((height + width) % 128), (height, width, 3))


def waves(height: int, width: int) -> Pixels:
    """Draw blocks with one large coefficient each, at different positions: after many zeros, or none."""
    rows, columns = np.mgrid[:height, :width]
    u, v = columns // 8 % 8, (rows // 8 + columns // 64) % 8
    wave = np.cos((2 * (columns % 8) + 1) * u * np.pi / 16) * np.cos((2 * (rows % 8) + 1) * v * np.pi / 16)
    levels = np.where(wave >= 0, 255, 0) if height % 2 else 128 + 100 * wave
    return np.repeat(levels.astype(np.uint8)[..., None], 3, 2)


DRAWN = (photo, noise, extremes, flat, waves)


@pytest.mark.parametrize("height", range(1, 34))
def test_small_images_of_all_sizes(height: int) -> None:
    rng = np.random.default_rng(height)
    for draw, width in itertools.product(DRAWN, (*range(1, 34), 63, 64, 65, 70, 129)):
        quality, interval = int(rng.integers(1, 101)), int(rng.choice([0, 0, 1, 2, 3, 7]))
        pixels = draw(height, width)
        made = native.encode_jpeg(pixels, quality, interval)
        assert made == pillows(pixels, quality, interval), (width, quality, interval)


@pytest.mark.parametrize("draw", DRAWN)
def test_all_qualities(draw: Callable[[int, int], npt.NDArray[np.uint8]]) -> None:
    pixels = draw(70, 91)
    for quality in range(1, 101):
        made = native.encode_jpeg(pixels, quality, 0)
        assert made == pillows(pixels, quality, 0) == opencv.encode_jpeg(np.ascontiguousarray(pixels), quality, 0)


@settings(max_examples=60)
@given(
    draw=st.sampled_from(DRAWN),
    size=st.tuples(st.integers(1, 300), st.integers(1, 700)),
    quality=st.integers(1, 100),
    interval=st.one_of(st.just(0), st.integers(1, 80), st.just(65_535)),
)
def test_images(draw: type[photo], size: tuple[int, int], quality: int, interval: int) -> None:
    pixels = draw(*size)
    assert native.encode_jpeg(pixels, quality, interval) == pillows(pixels, quality, interval)


@settings(max_examples=100)
@given(levels=st.binary(min_size=16 * 16 * 3, max_size=16 * 16 * 3), quality=st.integers(1, 100))
def test_any_pixels(levels: bytes, quality: int) -> None:
    pixels = np.frombuffer(levels, np.uint8).reshape(16, 16, 3)
    assert native.encode_jpeg(pixels, quality, 0) == pillows(pixels, quality, 0)


def test_each_wave_at_the_highest_contrast() -> None:
    """Pixels that are white where a wave is positive, and black elsewhere, give the largest possible coefficient."""
    for contrast in (waves(129, 512), 255 - waves(129, 512)):
        assert native.encode_jpeg(contrast, 100, 0) == pillows(contrast, 100, 0)


def test_pixels_that_lie_apart() -> None:
    """Part of an image, every second row, reversed rows, columns and channels, and one column."""
    pixels = photo(96, 128)
    for part in (pixels[3:50, 5:90], pixels[::2], pixels[::-1], pixels[:, ::-1], pixels[..., ::-1], pixels[:, :1]):
        assert native.encode_jpeg(part, 90, 0) == pillows(np.ascontiguousarray(part), 90, 0)


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.uint16, np.int32, np.float64, np.object_])
def test_levels_of_other_types_are_refused(dtype: type) -> None:
    """C takes an address: without the check it would encode bytes of numbers or pointers, or read past the end."""
    with pytest.raises(ValueError, match=r"pixels must be uint8 of shape \(height, width, 3\), not"):
        native.encode_jpeg(photo(20, 30).astype(dtype), 90, 0)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 2), (20, 30, 4), (1, 20, 30, 3), (3, 20, 30), (3,)])
def test_arrays_that_are_no_colours_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"pixels must be uint8 of shape \(height, width, 3\), not"):
        native.encode_jpeg(np.zeros(shape, np.uint8), 90, 0)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 0, 3), (1, 65_501, 3), (65_501, 1, 3)])
def test_sizes_that_a_jpeg_cannot_have_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="1 to 65500 pixels on each side"):
        native.encode_jpeg(np.zeros(shape, np.uint8), 90, 0)


@pytest.mark.parametrize(("quality", "interval"), [(0, 0), (101, 0), (-1, 0), (90, -1), (90, 65_536)])
def test_numbers_out_of_range_are_refused(quality: int, interval: int) -> None:
    with pytest.raises(ValueError, match="the quality or the restart interval is out of range"):
        native.encode_jpeg(photo(20, 30), quality, interval)


@pytest.mark.parametrize("size", [(1, 65_500), (65_500, 1), (17, 65_500), (3000, 2000)])
def test_large_images(size: tuple[int, int]) -> None:
    for draw in (noise, flat):
        assert native.encode_jpeg(draw(*size), 100, 0) == pillows(draw(*size), 100, 0)


def test_tiles_are_those_of_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ((256, 341), (341, 256), (20, 1000)):
        made = encode_tiled(photo(*size), 90)
        tiles = read_tiles(made)
        assert tiles is not None
        interval = -(-size[1] // 16) // tiles.grid.columns
        assert made == annotate(pillows(photo(*size), 90, interval))


def test_threads_write_what_one_writes() -> None:
    images = [photo(100, 90), noise(120, 64), extremes(33, 200), waves(64, 512)]
    expected = [pillows(pixels, 90, 2) for pixels in images]
    begin = threading.Barrier(4)

    def right(place: int) -> bool:
        begin.wait()
        return all(native.encode_jpeg(images[place], 90, 2) == expected[place] for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(4)))


@pytest.mark.parametrize(("writes", "name"), [(True, "packer"), (False, "opencv")])
def test_the_encoder_is_the_fastest_one(monkeypatch: pytest.MonkeyPatch, writes: bool, name: str) -> None:
    monkeypatch.setattr(encode.native, "WRITES_JPEGS", writes)
    jpeg_encoder.cache_clear()
    try:
        found, write = jpeg_encoder()
        assert (found, write(photo(48, 64), 90, 0)) == (name, pillows(photo(48, 64), 90, 0))
        with Image.open(io.BytesIO(encode.encode(photo(48, 64), "jpeg", 90))) as image:
            assert image.size == (64, 48)
    finally:
        jpeg_encoder.cache_clear()
