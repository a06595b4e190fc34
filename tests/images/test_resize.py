from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, strategies as st
from PIL import Image

from packer._codecs import INTERPOLATIONS, RESIZE_MODES
from packer._images.resize import ResizeSpec, resize
from packer.testing.photos import draw_photo
from packer.testing.reference import torchvision

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
SOURCES: dict[str, npt.NDArray[np.uint8]] = {
    "photo": draw_photo(np.random.default_rng(1), 80, 120),
    "noise": np.random.default_rng(2).integers(0, 256, (50, 64, 3), dtype=np.uint8),
    "checkerboard": np.repeat((np.indices((60, 41)).sum(0) % 2 * 255).astype(np.uint8)[..., None], 3, axis=2),
    "flat": np.full((1, 500, 3), 200, np.uint8),
}
TARGETS = ((40, 60), (39, 57), (20, 200), (200, 20), (160, 240), (161, 233), (1, 1), (7, 300), (80, 33))

sides = st.one_of(st.integers(1, 40), st.integers(1, 70_000))
specs = st.builds(
    ResizeSpec,
    st.integers(1, 2000),
    st.sampled_from(RESIZE_MODES),
    st.booleans(),
    st.sampled_from(INTERPOLATIONS),
)


@pytest.fixture(scope="module")
def functional() -> Any:
    """Return torchvision's v2 functional transforms, which work on uint8 as packer does."""
    torchvision()
    return importlib.import_module("torchvision.transforms.v2.functional")


def largest_difference(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other).max())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_bilinear_is_pillows(name: str, target: tuple[int, int]) -> None:
    height, width = target
    expected = Image.fromarray(SOURCES[name]).resize((width, height), Image.Resampling.BILINEAR)
    assert largest_difference(resize(SOURCES[name], height, width, "bilinear"), np.asarray(expected)) <= 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_bicubic_is_pillows(name: str, target: tuple[int, int]) -> None:
    """Within 2 levels, one for each pass, of Pillow's two passes in the order of columns, rows.

    Bicubic overshoots, and each pass clips to 0 to 255, so the order of the passes shows at hard edges. Pillow may
    choose the cheaper order; torch always begins with the width, so Pillow is asked for one pass at a time.
    """
    height, width = target
    source = Image.fromarray(SOURCES[name])
    expected = source.resize((width, source.height), Image.Resampling.BICUBIC)
    expected = expected.resize((width, height), Image.Resampling.BICUBIC)
    assert largest_difference(resize(SOURCES[name], height, width, "bicubic"), np.asarray(expected)) <= 2


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_is_torchvisions(name: str, target: tuple[int, int], interpolation: str, functional: Any) -> None:
    image = torch.from_numpy(SOURCES[name]).permute(2, 0, 1)
    mode = torchvision().transforms.InterpolationMode(interpolation)
    expected = functional.resize(image, list(target), mode, antialias=True).permute(1, 2, 0).numpy()
    assert np.array_equal(resize(SOURCES[name], *target, interpolation), expected)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_anti_aliases(interpolation: str) -> None:
    """A checkerboard becomes grey; without anti-aliasing some of its squares would be picked."""
    small = resize(SOURCES["checkerboard"], 6, 4, interpolation)
    assert np.abs(small.astype(int) - 127).max() < 16


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("height", "width"), [(40, 60), (80, 120), (160, 200), (1, 1)])
def test_result_is_contiguous_and_the_source_untouched(height: int, width: int, interpolation: str) -> None:
    source = SOURCES["photo"].copy()
    result = resize(source, height, width, interpolation)
    assert result.shape == (height, width, 3)
    assert result.dtype == np.uint8
    assert result.flags.c_contiguous
    assert np.array_equal(source, SOURCES["photo"])


def test_same_size_is_the_same_pixels() -> None:
    assert np.array_equal(resize(SOURCES["photo"], 80, 120, "bicubic"), SOURCES["photo"])


@given(height=sides, width=sides, size=st.integers(1, 2000))
@example(height=375, width=500, size=256)
@example(height=1, width=65_500, size=256)
@example(height=65_500, width=1, size=256)
def test_short_is_torchvisions_size(height: int, width: int, size: int) -> None:
    torchvision()
    from torchvision.transforms.functional import _compute_resized_output_size

    expected = tuple(_compute_resized_output_size((height, width), [size]))
    assert ResizeSpec(size, "short", upscale=True).final(height, width) == expected
    if min(height, width) >= size:
        assert ResizeSpec(size, "short").final(height, width) == expected
        assert ResizeSpec(size, "crop").scaled(height, width) == expected
    else:
        assert ResizeSpec(size, "short").final(height, width) == (height, width)


@given(specs, sides, sides)
def test_never_larger_unless_asked(spec: ResizeSpec, height: int, width: int) -> None:
    scaled_height, scaled_width = spec.scaled(height, width)
    assert scaled_height >= 1
    assert scaled_width >= 1
    if not spec.upscale:
        assert scaled_height <= height
        assert scaled_width <= width


@given(specs, sides, sides)
def test_final_sizes(spec: ResizeSpec, height: int, width: int) -> None:
    final = spec.final(height, width)
    size, short, long = spec.size, min(height, width), max(height, width)
    if spec.mode == "pad" or (spec.upscale and spec.mode in ("exact", "crop")):
        assert final == (size, size)
    elif spec.mode == "exact":
        assert final == (min(size, height), min(size, width))
    elif spec.mode == "crop":
        assert final == (min(size, short), min(size, short))
    elif spec.mode == "short":
        assert min(final) == (size if spec.upscale else min(size, short))
    else:
        assert max(final) == (size if spec.upscale else min(size, long))


@given(specs.filter(lambda spec: spec.mode != "exact"), sides, sides)
def test_shape_is_kept_to_within_a_pixel(spec: ResizeSpec, height: int, width: int) -> None:
    scaled_height, scaled_width = spec.scaled(height, width)
    factor = min(scaled_height, scaled_width) / min(height, width)
    if spec.mode in ("long", "pad"):
        factor = max(scaled_height, scaled_width) / max(height, width)
    assert abs(scaled_height - height * factor) <= 1
    assert abs(scaled_width - width * factor) <= 1


@given(specs, sides, sides)
def test_symmetric(spec: ResizeSpec, height: int, width: int) -> None:
    assert spec.scaled(width, height) == spec.scaled(height, width)[::-1]
    assert spec.final(width, height) == spec.final(height, width)[::-1]


@given(specs, sides, sides)
def test_changes_is_whether_the_size_does(spec: ResizeSpec, height: int, width: int) -> None:
    same = spec.scaled(height, width) == (height, width) == spec.final(height, width)
    assert spec.changes(height, width) == (not same)


@given(specs.filter(lambda spec: spec.size <= 64), st.integers(1, 90), st.integers(1, 90))
def test_frame_gives_the_final_size(spec: ResizeSpec, height: int, width: int) -> None:
    scaled = np.ones((*spec.scaled(height, width), 3), np.uint8)
    framed = spec.frame(scaled)
    assert framed.shape == (*spec.final(height, width), 3)
    assert framed.flags.c_contiguous
    if spec.mode == "pad":
        assert framed.sum() == scaled.sum()


@given(st.integers(1, 40), st.integers(1, 40))
def test_crop_is_torchvisions(height: int, width: int) -> None:
    pixels = np.arange(height * width * 3, dtype=np.uint16).astype(np.uint8).reshape(height, width, 3)
    side = min(height, width)
    expected = torchvision().transforms.CenterCrop(side)(torch.from_numpy(pixels).permute(2, 0, 1))
    framed = ResizeSpec(side, "crop").frame(pixels)
    assert np.array_equal(framed, expected.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    ("shape", "top", "left"),
    [((10, 4), 0, 3), ((4, 10), 3, 0), ((10, 5), 0, 2), ((5, 10), 2, 0), ((10, 10), 0, 0), ((3, 4), 3, 3)],
)
def test_pad_is_black_and_centred(shape: tuple[int, int], top: int, left: int) -> None:
    framed = ResizeSpec(10, "pad").frame(np.full((*shape, 3), 255, np.uint8))
    expected = np.zeros((10, 10, 3), np.uint8)
    expected[top : top + shape[0], left : left + shape[1]] = 255
    assert np.array_equal(framed, expected)


@pytest.mark.parametrize(
    ("mode", "upscale", "expected"),
    [
        ("short", False, (1, 65500)),
        ("long", False, (1, 256)),
        ("exact", False, (1, 256)),
        ("crop", False, (1, 1)),
        ("pad", False, (256, 256)),
        ("long", True, (1, 256)),
        ("exact", True, (256, 256)),
        ("pad", True, (256, 256)),
    ],
)
def test_line_of_65500_pixels(mode: str, upscale: bool, expected: tuple[int, int]) -> None:
    spec = ResizeSpec(256, mode, upscale)
    line = np.random.default_rng(3).integers(0, 256, (1, 65_500, 3), dtype=np.uint8)
    for pixels, size in [(line, expected), (line.transpose(1, 0, 2).copy(), expected[::-1])]:
        assert spec.final(*pixels.shape[:2]) == size
        result = spec.frame(resize(pixels, *spec.scaled(*pixels.shape[:2]), spec.interpolation))
        assert result.shape == (*size, 3)


@pytest.mark.parametrize("mode", RESIZE_MODES)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_one_pixel(mode: str, interpolation: str) -> None:
    pixel = np.array([[[10, 20, 30]]], np.uint8)
    spec = ResizeSpec(8, mode, upscale=True, interpolation=interpolation)
    result = spec.frame(resize(pixel, *spec.scaled(1, 1), interpolation))
    assert np.array_equal(result, np.broadcast_to(pixel, (8, 8, 3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "the size must be 1 or more, not 0"),
        ((-5,), "the size must be 1 or more, not -5"),
        ((8, "shortest"), "the mode must be one of .*'short'.*, not 'shortest'"),
        ((8, "short", False, "nearest"), "the interpolation must be one of .*'bilinear'.*, not 'nearest'"),
    ],
)
def test_refused_settings(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResizeSpec(*arguments)
