"""packer's C resizes exactly as torch does, after its own decoder and on given pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from packer._images import native, turbojpeg
from packer._images.geometry import INTERPOLATIONS, Box
from packer._images.rectangle import RectangleDecoder, resize_by_torch, resize_into
from packer.errors import ImageTooLargeError
from tests.images.samples import encoded
from tests.images.test_native_pixels import RESIZED, SAMPLINGS, boxes, decoded, interpolations, rectangles, same

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")


def placed(height: int, width: int) -> torch.Tensor:
    return torch.zeros((1, height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)


@given(sampling=st.sampled_from(SAMPLINGS), box=boxes(131, 157))
def test_windows_are_those_of_torch(sampling: str, box: Box) -> None:
    size, expected = box.out, placed(*box.out)
    top, left, height, width = box.rectangle
    pixels = turbojpeg.decode_jpeg(RESIZED[sampling])[top : top + height, left : left + width]
    if box.scaled == box.crop:  # without resizing, torch gets only the window
        (row, column) = box.cut
        pixels = pixels[row : row + size[0], column : column + size[1]]
    resize_by_torch(np.ascontiguousarray(pixels), box, expected)
    found = decoded(RESIZED[sampling], (131, 157), box)
    assert same(found, expected[0].permute(1, 2, 0).numpy())


@given(data=st.data(), side=st.sampled_from([1, 2, 3, 31, 224, 500]))
def test_whole_rectangles_are_interpolated_as_torch_interpolates(data: st.DataObject, side: int) -> None:
    rectangle = top, left, height, width = data.draw(rectangles(131, 157))
    target = data.draw(st.tuples(st.integers(1, side), st.integers(1, side)))
    whole = torch.from_numpy(turbojpeg.decode_jpeg(RESIZED["4:2:0"])[None]).permute(0, 3, 1, 2)
    crop = whole[:, :, top : top + height, left : left + width]
    place = data.draw(interpolations)
    expected = torch.nn.functional.interpolate(crop, size=target, mode=INTERPOLATIONS[place], antialias=True)
    box = Box.of(rectangle, target)._replace(interpolation=place)
    found = decoded(RESIZED["4:2:0"], (131, 157), box)
    assert same(found, expected[0].permute(1, 2, 0).numpy())
    flipped = decoded(RESIZED["4:2:0"], (131, 157), box._replace(flip=1))
    assert same(flipped, expected[0].permute(1, 2, 0).numpy()[:, ::-1])


@given(data=st.data())
def test_pixels_are_resized_as_torch_resizes(data: st.DataObject) -> None:
    size = data.draw(st.tuples(st.integers(1, 200), st.integers(1, 200)))
    pixels = np.random.default_rng(size).integers(0, 256, (*size, 3), np.uint8)
    scaled = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 300)))
    box = Box.of((0, 0, *size), scaled, flip=data.draw(st.booleans()))._replace(interpolation=data.draw(interpolations))
    expected, found = placed(*scaled), placed(*scaled)
    resize_by_torch(pixels, box, expected)
    assert native.resize(pixels, box, found.data_ptr())
    assert torch.equal(found, expected)
    spread = np.repeat(pixels, 2, 1)[:, ::2]  # the same pixels, not contiguous in memory
    found.zero_()
    assert native.resize(spread, box, found.data_ptr())
    assert torch.equal(found, expected)


@pytest.mark.parametrize("place", range(len(INTERPOLATIONS)))
@pytest.mark.parametrize("target", [(64, 96), (192, 288), (480, 33), (5, 7), (1, 1)])
@pytest.mark.parametrize("size", [(7, 11), (40, 90), (255, 3)])
def test_black_and_white_is_resized_as_torch_resizes(
    size: tuple[int, int], target: tuple[int, int], place: int
) -> None:
    """Bicubic overshoots and is clipped after each pass; with these sizes many weights are halfway between integers."""
    pixels = np.random.default_rng(size).choice(np.array([0, 255], np.uint8), (*size, 3))
    images = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(images, size=target, mode=INTERPOLATIONS[place], antialias=True)
    found = placed(*target)
    assert native.resize(pixels, Box.of((0, 0, *size), target)._replace(interpolation=place), found.data_ptr())
    assert torch.equal(found, expected)


def test_resizing_alone_pads_nothing() -> None:
    box = Box.of((0, 0, 5, 5), (5, 5), (0, -1))
    with pytest.raises(ValueError, match="the window does not lie inside"):
        native.resize(np.zeros((5, 5, 3), np.uint8), box, placed(5, 5).data_ptr())


@pytest.mark.parametrize("size", [(3, 70_000), (70_000, 3)])
def test_sides_that_are_longer_than_those_of_any_jpeg(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    data, box = encoded(pixels, "PNG"), Box.of((0, 0, *size), (5, 7))
    found, expected = placed(5, 7), placed(5, 7)
    resize_by_torch(pixels, box, expected)
    assert native.resize(pixels, box, found.data_ptr())
    assert torch.equal(found, expected)
    assert np.array_equal(decoded(data, size, box), expected[0].permute(1, 2, 0).numpy())
    RectangleDecoder().decode_into(data, size, box, found.zero_())
    assert torch.equal(found, expected)


@pytest.mark.parametrize("size", [(1, (1 << 20) + 1), ((1 << 20) + 1, 1)])
def test_sides_of_more_than_a_million_pixels_are_not_resized(size: tuple[int, int]) -> None:
    pixels, found = np.zeros((*size, 3), np.uint8), placed(5, 7)
    assert not native.resize(pixels, Box.of((0, 0, *size), (5, 7)), found.data_ptr())
    with pytest.raises(ImageTooLargeError, match="cannot be resized to 7 x 5: the shape is too extreme"):
        resize_into(pixels, Box.of((0, 0, *size), (5, 7)), found)
