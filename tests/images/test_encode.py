from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from packer._codecs import CODECS
from packer._images.encode import encode
from packer.errors import ImageError
from tests.images.samples import SIZES, encoded, photo, pillow_pixels

PHOTO = photo(48, 64)


def error_of(data: bytes) -> float:
    """Return the root of the mean squared difference to `PHOTO`, in levels."""
    pixels = pillow_pixels(data)
    assert pixels is not None
    return float(np.sqrt(np.square(pixels.astype(float) - PHOTO).mean()))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("quality", [1, 50, 75, 90, 95, 100])
def test_jpeg_is_pillows(quality: int, size: tuple[int, int]) -> None:
    assert encode(photo(*size), "jpeg", quality) == encoded(photo(*size), "JPEG", quality=quality)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", ["jpeg", "png", "webp", "bmp"])
def test_sizes(codec: str, size: tuple[int, int]) -> None:
    with Image.open(io.BytesIO(encode(photo(*size), codec, 90))) as image:
        assert image.format == codec.upper()
        assert image.size == size[::-1]
        assert image.mode == "RGB"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", ["png", "bmp"])
def test_png_and_bmp_are_lossless(codec: str, size: tuple[int, int]) -> None:
    assert np.array_equal(pillow_pixels(encode(photo(*size), codec, 1)), photo(*size))


@pytest.mark.parametrize("size", SIZES)
def test_bmp_is_pillows(size: tuple[int, int]) -> None:
    assert encode(photo(*size), "bmp", 1) == encoded(photo(*size), "BMP")


@pytest.mark.parametrize("size", SIZES)
def test_raw_is_rows_from_the_top_of_rgb(size: tuple[int, int]) -> None:
    data = encode(photo(*size), "raw", 1)
    assert data == b"".join(bytes(pixel) for row in photo(*size).tolist() for pixel in row)


@pytest.mark.parametrize("codec", ["jpeg", "webp"])
def test_quality_costs_bytes_and_gives_likeness(codec: str) -> None:
    files = [encode(PHOTO, codec, quality) for quality in (5, 40, 75, 95)]
    assert [len(data) for data in files] == sorted(len(data) for data in files)
    errors = [error_of(data) for data in files]
    assert errors == sorted(errors, reverse=True)
    assert len(set(errors)) == len(errors)


def test_webp_is_pillows() -> None:
    assert encode(PHOTO, "webp", 80) == encoded(PHOTO, "WEBP", quality=80)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "keep"])
def test_deterministic_and_of_the_pixels_alone(codec: str) -> None:
    first = encode(PHOTO, codec, 85)
    assert encode(PHOTO.copy(), codec, 85) == first
    assert encode(np.ascontiguousarray(PHOTO[::-1])[::-1], codec, 85) == first  # strides do not matter
    assert encode(np.ascontiguousarray(PHOTO[..., ::-1])[..., ::-1], codec, 85) == first


@pytest.mark.parametrize("size", [(1, 70_000), (70_000, 1)])
def test_jpeg_that_is_too_large(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError, match="65500"):
        encode(np.zeros((*size, 3), np.uint8), "jpeg", 90)


def test_largest_jpeg() -> None:
    with Image.open(io.BytesIO(encode(np.zeros((1, 65_500, 3), np.uint8), "jpeg", 90))) as image:
        assert image.size == (65_500, 1)
