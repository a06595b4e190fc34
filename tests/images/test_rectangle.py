"""A decoded rectangle is exactly the crop of the whole image, and is resized as torchvision resizes it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images import jpeg_tiles
from packer._images.decode import decode, fast_decoder
from packer._images.geometry import Box, Rectangle, from_corner, touched
from packer._images.jpeg_tiles import annotate, first_rows, first_rows_in_python
from packer._images.rectangle import RectangleDecoder, resize_into
from packer.crops import ResizeCenterCrop
from packer.errors import ImageError, ImageTooLargeError
from packer.testing.photos import draw_photo
from packer.testing.reference import torchvision


def decode_rectangle(
    data: bytes, rectangle: Rectangle, size: tuple[int, int], touched: Rectangle | None = None, **options: Any
) -> np.ndarray:
    return RectangleDecoder(**options).decode(data, rectangle, size, touched=touched)


PHOTO = draw_photo(np.random.default_rng(0), 121, 163)


def encode(pixels: np.ndarray, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, **{"format": "JPEG", "quality": 90, **options})
    return stream.getvalue()


IMAGES = {
    **{f"4:{name}": encode(PHOTO, subsampling=code) for name, code in [("4:4", 0), ("2:2", 1), ("2:0", 2)]},
    "grey": encode(PHOTO[..., 0]),
    "progressive": encode(PHOTO, progressive=True),
    "optimised": encode(PHOTO, optimize=True),
    "restarts": encode(PHOTO, restart_marker_blocks=5),
    "restart rows": encode(PHOTO, restart_marker_rows=1),
    "png": encode(PHOTO, format="PNG"),
}


@given(name=st.sampled_from(sorted(IMAGES)), data=st.data())
def test_a_rectangle_is_exactly_the_crop_of_the_whole(name: str, data: st.DataObject) -> None:
    height, width = PHOTO.shape[:2]
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    tall, wide = data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    found = decode_rectangle(IMAGES[name], (top, left, tall, wide), (height, width))
    whole = np.asarray(Image.open(io.BytesIO(IMAGES[name])).convert("RGB"))
    assert np.array_equal(found, whole[top : top + tall, left : left + wide])


@pytest.mark.parametrize("name", ["4:4:4", "4:2:0", "grey", "restarts"])
def test_rows_below_are_not_decoded(name: str) -> None:
    if fast_decoder()[0] != "turbojpeg":
        pytest.skip("needs simplejpeg")
    whole = IMAGES[name]
    # Remove the last quarter of the compressed data, which a rectangle at the top does not need.
    damaged = whole[: 3 * len(whole) // 4] + whole[-2:]
    expected = decode(whole)
    found = decode_rectangle(damaged, (0, 0, 24, 163), (121, 163))
    assert np.array_equal(found, expected[:24])


def test_a_truncated_image_is_an_error_where_it_matters() -> None:
    cut = IMAGES["4:2:0"][: len(IMAGES["4:2:0"]) // 2]
    with pytest.raises(ImageError):
        decode_rectangle(cut, (0, 0, 121, 163), (121, 163))


def test_another_size_than_the_table_says_is_an_error() -> None:
    for name in ("4:2:0", "png"):
        with pytest.raises(ImageError, match="163 x 121 pixels"):
            decode_rectangle(IMAGES[name], (0, 0, 10, 10), (121, 164))


def test_large_images_are_refused_from_their_header() -> None:
    with pytest.raises(ImageTooLargeError):
        decode_rectangle(IMAGES["4:2:0"], (0, 0, 10, 10), (121, 163), max_pixels=121 * 163 - 1)


@pytest.mark.parametrize("flip", [False, True])
def test_resizing_equals_torchvision(flip: bool) -> None:
    torchvision()
    from torchvision.transforms.v2 import functional

    whole = torch.from_numpy(decode(IMAGES["4:4:4"])).permute(2, 0, 1)
    for top, left, height, width, size in [
        (3, 5, 100, 120, 64),
        (0, 0, 121, 163, 32),
        (50, 60, 10, 12, 40),
        (7, 7, 64, 64, 64),
    ]:
        out = torch.empty((1, size, size, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        pixels = decode_rectangle(IMAGES["4:4:4"], (top, left, height, width), (121, 163))
        resize_into(pixels, Box.of((top, left, height, width), (size, size), flip=flip), out)
        expected = functional.resized_crop(whole, top, left, height, width, [size, size], antialias=True)
        assert torch.equal(out[0], expected.flip(2) if flip else expected)
        pil = Image.fromarray(whole.permute(1, 2, 0).numpy())
        pil = functional.resized_crop(pil, top, left, height, width, [size, size])
        against_pillow = np.asarray(functional.hflip(pil) if flip else pil).astype(int)
        assert np.abs(out[0].permute(1, 2, 0).numpy() - against_pillow).max() <= 1


NOISE = encode(np.random.default_rng(3).integers(0, 256, (700, 700, 3), np.uint8))


def tile_of(width: int) -> int:
    """Return the MCUs in a tile of a 4:2:0 image: the smallest divisor of the MCUs in a row, from 2 on."""
    mcus = -(-width // 16)
    return next(count for count in range(1, mcus + 1) if mcus % count == 0 and count >= min(2, mcus))


@pytest.mark.parametrize(
    "size", [(121, 163), (63, 95), (98, 63), (163, 121), (300, 97), (64, 64), (65, 640), (100, 131), (256, 300)]
)
@pytest.mark.parametrize(("output", "resize"), [(56, 64), (64, 64), (48, 100), (224, 256)])
def test_center_crop_equals_torchvisions(size: tuple[int, int], output: int, resize: int) -> None:
    torchvision()
    from torchvision.transforms import v2 as transforms

    photo = draw_photo(np.random.default_rng(size[0]), *size)
    data = encode(photo, subsampling=2)
    whole = torch.from_numpy(decode(data)).permute(2, 0, 1)
    expected = transforms.CenterCrop(output)(transforms.Resize(resize, antialias=True)(whole))
    crop = ResizeCenterCrop(output, resize)
    (chosen,) = crop.choose(np.array([size[0]]), np.array([size[1]]), np.zeros((1, 0)))
    box = Box(*chosen.item())
    seen = touched(box)
    corner = from_corner(box, seen)
    for stored in (data, annotate(encode(photo, subsampling=2, restart_marker_blocks=tile_of(size[1])))):
        decode_rectangle(NOISE, (0, 0, 700, 700), (700, 700))  # leaves other pixels in the memory that is used again
        pixels = decode_rectangle(stored, corner, size, touched=seen)
        out = torch.empty((1, output, output, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        resize_into(pixels, box, out)
        difference = (out[0].int() - expected.int()).abs()
        assert difference.max() <= 1
        assert difference.double().mean() < 0.001


def test_center_crop_leaves_out_what_it_does_not_show() -> None:
    crop = ResizeCenterCrop(224, 256)
    chosen = crop.choose(np.array([512, 256]), np.array([640, 300]), np.zeros((2, 0)))
    boxes = [Box(*numbers) for numbers in chosen.tolist()]
    seen = touched(boxes[0])
    top, left, height, width = seen
    assert 26 <= top <= 32
    assert 90 <= left <= 96
    assert 448 <= height < 462
    assert 448 <= width < 462
    assert from_corner(boxes[0], seen) == (0, 0, top + height, left + width)
    assert touched(boxes[1]) == (16, 38, 224, 224)  # nothing is resized


@settings(max_examples=100, deadline=None)
@given(size=st.tuples(st.integers(1, 400), st.integers(1, 400)), output=st.sampled_from([1, 7, 64, 224, 299]))
def test_mirroring_before_resizing_changes_nothing(size: tuple[int, int], output: int) -> None:
    pixels = np.random.default_rng(size).integers(0, 256, (*size, 3), np.uint8)
    outs = []
    for flip in (False, True):
        out = torch.empty((1, output, output, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        resize_into(pixels, Box.of((0, 0, *size), (output, output), flip=flip), out)
        outs.append(out)
    assert torch.equal(outs[0].flip(3), outs[1])


@pytest.mark.skipif(jpeg_tiles._native is None, reason="needs a C compiler when packer is installed")
@settings(max_examples=300)
@given(data=st.data())
def test_compiled_and_in_python_the_rows_are_the_same(data: st.DataObject) -> None:
    image = bytearray(IMAGES[data.draw(st.sampled_from(sorted(IMAGES)))])
    near = st.one_of(st.integers(0, len(image) - 1), st.integers(0, min(700, len(image) - 1)))
    for at, byte in data.draw(st.lists(st.tuples(near, st.one_of(st.just(0xFF), st.integers(0, 255))), max_size=3)):
        image[at] = byte
    cut = bytes(image[: data.draw(st.one_of(st.just(len(image)), st.integers(0, len(image))))])
    bottom = data.draw(st.integers(1, PHOTO.shape[0]))
    height, width = PHOTO.shape[:2]
    assert first_rows(cut, (height, width), bottom) == first_rows_in_python(cut, (height, width), bottom)
