"""Crops of masks and of images of any mode have torchvision's pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._codecs import RESIZE_MODES
from packer._images import cropping, png
from packer._images.cropping import crop_image, crop_mask, decode_mask, gather, nearest, smooth, source_pixels
from packer._images.geometry import INTERPOLATIONS, PADDINGS, Box
from packer._images.resize import ResizeSpec, resize
from packer.errors import ImageError, ImageTooLargeError
from packer.testing.reference import torchvision
from tests.crops.reference import executed
from tests.images.samples import encoded, photo

torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms.v2 import InterpolationMode, functional  # noqa: E402

DTYPES = (np.uint8, np.uint16, np.int32, np.float32)


def ids(height: int, width: int, dtype: Any = np.uint8) -> npt.NDArray[Any]:
    """Draw a mask of random ids, so that neighbours are rarely equal."""
    return np.random.default_rng(height * 1009 + width).integers(0, 250, (height, width)).astype(dtype)


def mask_of(pixels: npt.NDArray[Any]) -> Any:
    return tv_tensors.Mask(torch.from_numpy(pixels))


@st.composite
def boxes(draw: st.DrawFn, size: tuple[int, int], padded: bool = True) -> Box:
    """Draw a crop record for an image of this size."""
    sides = st.integers(1, size[0]), st.integers(1, size[1])
    height, width = draw(sides[0]), draw(sides[1])
    top, left = draw(st.integers(0, size[0] - height)), draw(st.integers(0, size[1] - width))
    scaled = draw(st.one_of(st.just((height, width)), st.tuples(st.integers(1, 90), st.integers(1, 90))))
    if padded:
        cut = draw(st.integers(-9, scaled[0] + 3)), draw(st.integers(-9, scaled[1] + 3))
        out = draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
    else:
        cut = draw(st.integers(0, scaled[0] - 1)), draw(st.integers(0, scaled[1] - 1))
        out = draw(st.integers(1, scaled[0] - cut[0])), draw(st.integers(1, scaled[1] - cut[1]))
    box = Box.of((top, left, height, width), scaled, cut, out, draw(st.booleans()))
    return box._replace(padding=draw(st.integers(0, 3)), interpolation=draw(st.integers(0, 1)))


def by_torchvision(pixels: npt.NDArray[Any], box: Box, fill: float) -> npt.NDArray[Any]:
    """Crop a mask with torchvision, step by step: crop, resize, pad and crop, flip."""
    mask = functional.crop(mask_of(pixels), *box.rectangle)
    mask = functional.resize(mask, list(box.scaled), InterpolationMode.NEAREST)
    after = [out + cut - scaled for out, cut, scaled in zip(box.out, box.cut, box.scaled, strict=True)]
    margins = [max(0, -box.cut_left), max(0, -box.cut_top), max(0, after[1]), max(0, after[0])]
    mode = PADDINGS[box.padding]
    mask = functional.pad(mask, margins, fill, mode) if any(margins) else mask
    mask = functional.crop(mask, margins[1] + box.cut_top, margins[0] + box.cut_left, *box.out)
    return np.asarray(functional.horizontal_flip(mask) if box.flip else mask)


@pytest.fixture(params=[True, False], ids=["in C", "in NumPy"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(cropping, "_native", None)


def test_nearest_neighbours_are_torchs_for_thousands_of_sizes() -> None:
    rng = np.random.default_rng(0)
    for side in [*range(1, 50), *rng.integers(50, 4000, 60).tolist()]:
        line = torch.arange(side, dtype=torch.float32)[None, None, None]
        for scaled in [*range(1, 60, 7), 2 * side, 3 * side, *rng.integers(1, 3000, 12).tolist()]:
            expected = torch.nn.functional.interpolate(line, (1, scaled), mode="nearest")[0, 0, 0]
            assert np.array_equal(source_pixels(Box.of((0, 0, 1, side), (1, scaled)))[1], expected.numpy()), (
                side,
                scaled,
            )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_resized_crops_of_masks_are_torchvisions(dtype: type) -> None:
    pixels, rng = ids(75, 100, dtype), np.random.default_rng(1)
    for number in range(100):
        height, width = rng.integers(1, (76, 101)).tolist()
        top, left = rng.integers(0, (76 - height, 101 - width)).tolist()
        size = rng.integers(1, 140, 2).tolist()
        flip = bool(number % 2)
        expected = functional.resized_crop(mask_of(pixels), top, left, height, width, size, InterpolationMode.NEAREST)
        expected = np.asarray(expected)[:, :: -1 if flip else 1]  # torch cannot flip uint16
        found = nearest(pixels, Box.of((top, left, height, width), (size[0], size[1]), flip=flip))
        assert found.dtype == dtype
        assert np.array_equal(found, expected)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), size=st.tuples(st.integers(1, 70), st.integers(1, 70)), fill=st.sampled_from([0, 255]))
def test_windows_of_masks_are_torchvisions(data: st.DataObject, size: tuple[int, int], fill: int) -> None:
    pixels, box = ids(*size), data.draw(boxes(size))
    far = box.cut_top >= box.scaled_height or box.cut_left >= box.scaled_width
    if PADDINGS[box.padding] == "constant" or not far:
        before = [max(0, -cut) for cut in box.cut]
        after = [max(0, o + c - s) for o, c, s in zip(box.out, box.cut, box.scaled, strict=True)]
        widest = [max(pair) for pair in zip(before, after, strict=True)]
        if PADDINGS[box.padding] == "reflect" and any(w >= s for w, s in zip(widest, box.scaled, strict=True)):
            return  # torch reflects once
        if PADDINGS[box.padding] == "symmetric" and any(w > s for w, s in zip(widest, box.scaled, strict=True)):
            return
        assert np.array_equal(nearest(pixels, box, fill), by_torchvision(pixels, box, fill))


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(), size=st.tuples(st.integers(1, 40), st.integers(1, 40)), channels=st.sampled_from([0, 1, 2, 3, 4])
)
def test_c_and_numpy_gather_the_same(data: st.DataObject, size: tuple[int, int], channels: int) -> None:
    box, dtype = data.draw(boxes(size)), data.draw(st.sampled_from(DTYPES))
    shape = (size[0] + 3, size[1] + 5, *([channels] if channels else []))
    pixels = np.random.default_rng(channels).integers(0, 255, shape).astype(dtype)[3:, 2:-3]
    expected = nearest(pixels, box, 7)
    native, cropping._native = cropping._native, None  # type: ignore[assignment]
    try:
        assert np.array_equal(nearest(pixels, box, 7), expected)
    finally:
        cropping._native = native
    assert np.array_equal(
        nearest(pixels[:, :, ..., ::-1] if channels else pixels, box, 7), expected[..., ::-1] if channels else expected
    )


def test_rectangles_outside_and_fills_that_do_not_fit_are_refused() -> None:
    pixels = ids(9, 12)
    for rectangle in ((0, 0, 10, 12), (0, 1, 9, 12), (-1, 0, 2, 2), (0, 0, 0, 1)):
        with pytest.raises(ValueError, match="is not a rectangle inside of 12 x 9 pixels"):
            nearest(pixels, Box.of(rectangle, (3, 3)))
    for fill in (256, -1, 0.5):
        with pytest.raises(ValueError, match="does not fit into uint8"):
            nearest(pixels, Box.of((0, 0, 9, 12), (9, 12)), fill)
    assert nearest(pixels.astype(np.float32), Box.of((0, 0, 1, 1), (1, 1), (2, 2), (1, 1)), 0.5)[0, 0] == 0.5
    assert gather(pixels, np.array([-1]), np.array([3]), 9).tolist() == [[9]]


def palette(pixels: npt.NDArray[np.uint8]) -> bytes:
    image = Image.fromarray(pixels)
    image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tolist())
    return encoded(image, "PNG")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_encoded_masks_are_cut_as_decoded_ones(data: st.DataObject) -> None:
    pixels, box = MASK, data.draw(boxes(MASK.shape))
    kind = data.draw(st.sampled_from(sorted(ENCODED)))
    expected = nearest(pixels, box, 9)
    found = crop_mask(ENCODED[kind], MASK.shape, box, fill=9)
    assert np.array_equal(found, expected)


MASK = ids(33, 47) % 16
ENCODED = {
    "palette": palette(MASK),
    "grey": encoded(MASK, "PNG"),
    "16 bits": encoded(MASK.astype(np.uint16), "PNG"),
    "tiff": encoded(MASK, "TIFF"),
    "bmp": encoded(MASK, "BMP"),
}


def test_masks_of_another_kind_or_size_are_refused() -> None:
    box = Box.of((0, 0, 33, 47), (8, 8))
    with pytest.raises(ImageError, match="47 x 33 pixels instead of 33 x 47"):
        crop_mask(ENCODED["palette"], (47, 33), Box.of((0, 0, 33, 33), (8, 8)))
    with pytest.raises(ImageError, match="one id for each pixel, but this image has 3 channels"):
        decode_mask(encoded(photo(9, 9), "PNG"))
    with pytest.raises(ImageError, match="1 channels of floats"):
        decode_mask(encoded(np.ones((4, 4), np.float32), "TIFF"))
    with pytest.raises(ImageError):
        crop_mask(ENCODED["palette"][:-40], MASK.shape, box)
    with pytest.raises(ValueError, match="not a rectangle"):
        crop_mask(ENCODED["palette"], MASK.shape, Box.of((0, 0, 34, 47), (8, 8)))


def test_of_a_mask_no_more_than_its_upper_rows_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int | None, ...]] = []
    decode = png.decode
    monkeypatch.setattr(png, "decode", lambda found, *rows: asked.append(rows) or decode(found, *rows))  # type: ignore[func-returns-value]
    crop_mask(ENCODED["palette"], MASK.shape, Box.of((5, 0, 10, 47), (10, 47)))
    assert asked == [(5, 15)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_images_of_any_mode_are_resized_as_torchvision_resizes_tensors(
    dtype: type, channels: int, interpolation: str
) -> None:
    most = 250 if dtype == np.uint8 else 60_000
    pixels = np.random.default_rng(channels).integers(2000 if most > 250 else 0, most, (40, 50, channels)).astype(dtype)
    pixels[4:30, 5:30] = most - 5_000 if most > 250 else most
    rng = np.random.default_rng(0)
    for flip in (False, True):
        for size in ((17, 23), (64, 70), (12, 90)):
            height, width = rng.integers(9, (41, 51)).tolist()
            top, left = rng.integers(0, (41 - height, 51 - width)).tolist()
            tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
            mode = InterpolationMode(interpolation)
            if dtype == np.uint16:  # torchvision truncates uint16, and lets it overflow
                tensor = tensor.to(torch.int32)
            expected = functional.resized_crop(tensor, top, left, height, width, list(size), mode, antialias=True)
            expected = functional.horizontal_flip(expected) if flip else expected
            box = Box.of((top, left, height, width), size, flip=flip)
            found = smooth(pixels, box._replace(interpolation=INTERPOLATIONS.index(interpolation)))
            assert found.dtype == dtype
            wanted = expected.permute(1, 2, 0).numpy().astype(np.float64)
            wanted = wanted.clip(0, 65_535) if dtype == np.uint16 else wanted
            assert np.abs(found - wanted).max() <= (1 if dtype != np.float32 else 1e-2)


def test_what_bicubic_interpolation_makes_too_large_stays_the_largest() -> None:
    pixels = np.zeros((8, 8, 1), np.uint16)
    pixels[:, 4:] = 65_535
    found = smooth(pixels, Box.of((0, 0, 8, 8), (24, 24))._replace(interpolation=1))
    assert found[12, :2, 0].tolist() == [0, 0]
    assert (np.diff(found[12, 9:15, 0].astype(int)) >= 0).all()
    assert found[12, 14, 0] == 65_535


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_windows_of_images_in_colour_are_those_of_the_main_image(data: st.DataObject) -> None:
    pixels = photo(40, 50)
    box = data.draw(boxes((40, 50)))._replace(fill=0x102030)
    record = np.array([box], [(name, np.int64) for name in Box._fields])[0]
    expected = executed(torch.from_numpy(pixels.copy()).permute(2, 0, 1), record)
    assert np.array_equal(smooth(pixels, box), expected.permute(1, 2, 0))


def test_padding_shows_the_fill_of_the_crop() -> None:
    pixels, box = np.zeros((4, 4, 2), np.uint16), Box.of((0, 0, 4, 4), (4, 4), (-1, 0), (2, 4))._replace(fill=0x070707)
    assert smooth(pixels, box)[0].tolist() == [[7, 7]] * 4
    with pytest.raises(ValueError, match=r"2 channels cannot be padded with the colour \(1, 2, 3\)"):
        smooth(pixels, box._replace(fill=0x030201))
    with pytest.raises(ImageTooLargeError):
        smooth(pixels, Box.of((0, 0, 4, 4), (1 << 20, 1 << 20), (0, 0), (4, 4)))


def test_encoded_images_are_cut_in_their_mode() -> None:
    box = Box.of((3, 4, 20, 30), (11, 13), flip=True)
    rgb = photo(33, 47)
    for mode, image in (("RGB", rgb), ("L", np.asarray(Image.fromarray(rgb).convert("L"))[..., None])):
        assert np.array_equal(crop_image(encoded(rgb, "PNG"), (33, 47), box, mode), smooth(image, box))
    deep = MASK.astype(np.uint16) * 999
    found = crop_image(encoded(deep, "PNG"), MASK.shape, box, "unchanged")
    assert found.dtype == np.uint16
    assert np.array_equal(found, smooth(deep[..., None], box))
    with pytest.raises(ImageError, match="instead of"):
        crop_image(encoded(rgb, "PNG"), (40, 47), box, "RGB")


def test_indices_of_a_palette_are_never_mixed() -> None:
    box = Box.of((3, 4, 20, 30), (41, 53))
    found = crop_image(ENCODED["palette"], MASK.shape, box, "unchanged")
    assert np.array_equal(found[..., 0], nearest(MASK, box))
    copied = Box.of((3, 4, 20, 30), (20, 30))
    assert np.array_equal(crop_image(ENCODED["palette"], MASK.shape, copied, "unchanged")[..., 0], MASK[3:23, 4:34])


@pytest.mark.parametrize("mode", RESIZE_MODES)
@pytest.mark.parametrize("size", [(30, 47), (47, 30), (33, 33), (7, 60)])
def test_what_is_resized_while_packing_is_a_record_too(mode: str, size: tuple[int, int]) -> None:
    pixels = photo(*size)
    for length in (5, 16, 40):
        spec = ResizeSpec(length, mode, upscale=length == 40, interpolation="bicubic")
        expected = spec.frame(resize(pixels, *spec.scaled(*size), "bicubic"))
        assert np.array_equal(smooth(pixels, spec.box(*size)), expected)
