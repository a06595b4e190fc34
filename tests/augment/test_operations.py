"""packer's C changes pixels as torchvision's v2 functional changes uint8 tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from packer._images import native
from packer._images.extension import _native
from packer._images.operations import FILTERS, LONGEST_MOVED, NO_FILL
from tests.augment.operation import Pixels, differing, operated, operation, pixels_of, tensor

pytest.importorskip("packer.testing.reference").torchvision()
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812
from torchvision.transforms.v2.functional._geometry import _get_inverse_affine_matrix  # noqa: E402

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler at the installation")

MAGENTA = 200 + 65536 * 90

OF_LEVELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "grayscale": lambda image: F.rgb_to_grayscale(image, 3),
    "equalize": F.equalize,
    "autocontrast": F.autocontrast,
    "invert": F.invert,
}
ADJUSTED: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "sharpness": F.adjust_sharpness,
}


@st.composite
def images(draw: st.DrawFn, least: int = 1) -> Pixels:
    """Draw images of any size: noise in a range of levels, which may be one level, or a smooth ramp.

    C processes 64 levels or pixels at once, in blocks of 256 or 1,024.
    """
    height, width = draw(st.integers(least, 70)), draw(st.one_of(st.integers(least, 70), st.integers(250, 270)))
    low = draw(st.integers(0, 255))
    high = draw(st.integers(low, 255))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    noise = generator.integers(low, high + 1, (height, width, 3), np.uint8)
    if draw(st.booleans()):
        return noise
    ramp = np.linspace(low, high, height * width).reshape(height, width, 1)
    pixels: Pixels = np.clip(ramp + generator.integers(-9, 10, 3), 0, 255).astype(np.uint8)
    return pixels


@settings(max_examples=100)
@given(pixels=images(), kind=st.sampled_from([*OF_LEVELS]))
def test_what_has_no_setting_gives_the_pixels_of_torchvision(pixels: Pixels, kind: str) -> None:
    expected = pixels_of(OF_LEVELS[kind](tensor(pixels)))
    np.testing.assert_array_equal(operated(pixels, operation(kind)), expected)


@settings(max_examples=100)
@given(pixels=images(), kind=st.sampled_from([*ADJUSTED]), factor=st.floats(0, 3))
def test_adjusted_pixels_are_within_a_level_of_torchvisions(pixels: Pixels, kind: str, factor: float) -> None:
    """They are equal, except where torch rounds the end of a row differently from the rest."""
    assert (
        differing(operated(pixels, operation(kind, factor=factor)), pixels_of(ADJUSTED[kind](tensor(pixels), factor)))
        <= 1
    )


@settings(max_examples=50)
@given(pixels=images(), shift=st.floats(-0.5, 0.5))
def test_a_turned_hue_is_within_a_level_of_torchvisions(pixels: Pixels, shift: float) -> None:
    expected = pixels_of(F.adjust_hue(tensor(pixels), shift))
    assert differing(operated(pixels, operation("hue", factor=shift)), expected) <= 1


@pytest.mark.parametrize("shift", [-0.37, 0.0, 0.1, 0.5])
def test_the_hue_of_any_colour_is_turned_as_torchvision_turns_it(shift: float) -> None:
    """Fewer than one value in 1,000 differs, by a level. The colours include all that have the same level twice."""
    colours = np.random.default_rng(0).integers(0, 256, (5, 256, 256, 3), np.uint8)
    one, other = np.mgrid[0:256, 0:256]
    for place in range(3):
        colours[place], colours[place, ..., place] = one[..., None], other
    pixels = colours.reshape(-1, 256, 3)
    found, expected = operated(pixels, operation("hue", factor=shift)), pixels_of(F.adjust_hue(tensor(pixels), shift))
    assert differing(found, expected) <= 1
    assert np.mean(found != expected) < 0.001


@pytest.mark.parametrize("kind", ["saturation", "sharpness"])
def test_a_factor_may_have_any_size(kind: str) -> None:
    pixels, most = np.random.default_rng(0).integers(0, 256, (40, 90, 3), np.uint8), 2.0**20
    found = operated(pixels, operation(kind, factor=most))
    assert differing(found, pixels_of(ADJUSTED[kind](tensor(pixels), most))) <= 1
    np.testing.assert_array_equal(operated(pixels, operation(kind, factor=1e300)), found)


@settings(max_examples=50)
@given(pixels=images(), threshold=st.floats(0, 255), bits=st.integers(0, 8))
def test_solarized_and_posterized_pixels_are_torchvisions(pixels: Pixels, threshold: float, bits: int) -> None:
    solarized = operated(pixels, operation("solarize", factor=threshold))
    np.testing.assert_array_equal(solarized, pixels_of(F.solarize(tensor(pixels), threshold)))
    posterized = operated(pixels, operation("posterize", factor=bits))
    np.testing.assert_array_equal(posterized, pixels_of(F.posterize(tensor(pixels), bits)))


@settings(max_examples=40)
@given(
    pixels=images(least=12),
    kernel=st.tuples(st.sampled_from([1, 3, 5, 23]), st.sampled_from([1, 3, 9])),
    sigma=st.floats(0.1, 5),
)
def test_blurred_pixels_are_within_a_level_of_torchvisions(
    pixels: Pixels, kernel: tuple[int, int], sigma: float
) -> None:
    width, height = kernel
    found = operated(pixels, operation("blur", factor=sigma, width=width, height=height))
    assert differing(found, pixels_of(F.gaussian_blur(tensor(pixels), [width, height], [sigma, sigma]))) <= 1


@pytest.mark.parametrize("sigma", [0.1, 0.24, 0.5, 1.0, 2.0, 30.0])
def test_blurred_noise_has_the_values_of_torchvision_but_for_one_in_a_hundred(sigma: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 100, 3), np.uint8)
    found = operated(pixels, operation("blur", factor=sigma, width=23, height=23))
    expected = pixels_of(F.gaussian_blur(tensor(pixels), [23, 23], [sigma, sigma]))
    assert differing(found, expected) <= 1
    assert np.mean(found != expected) < 0.01


@settings(max_examples=20)
@given(level=st.integers(0, 255), sigma=st.floats(0.05, 50), side=st.sampled_from([1, 3, 9, 23]))
def test_what_has_one_level_keeps_it_when_it_is_blurred(level: int, sigma: float, side: int) -> None:
    pixels = np.full((30, 40, 3), level, np.uint8)
    assert (operated(pixels, operation("blur", factor=sigma, width=side, height=side)) == level).all()


@settings(max_examples=100)
@given(
    pixels=images(),
    angle=st.floats(-180, 180),
    move=st.tuples(st.integers(-40, 40), st.integers(-40, 40)),
    scale=st.floats(0.3, 3),
    shear=st.tuples(st.floats(-60, 60), st.floats(-60, 60)),
    interpolation=st.sampled_from(FILTERS),
    fill=st.sampled_from([NO_FILL, 0, MAGENTA]),
    cornered=st.booleans(),
)
def test_moved_pixels_are_torchvisions_and_interpolated_ones_within_a_level(  # noqa: PLR0917
    pixels: Pixels,
    angle: float,
    move: tuple[int, int],
    scale: float,
    shear: tuple[float, float],
    interpolation: str,
    fill: int,
    cornered: bool,
) -> None:
    height, width = pixels.shape[:2]
    center = [-width / 2, -height / 2] if cornered else [0.0, 0.0]
    matrix = _get_inverse_affine_matrix(center, angle, [*map(float, move)], scale, [*shear])
    chosen = {"interpolation": FILTERS.index(interpolation), "fill": fill}
    colour = None if fill == NO_FILL else [float(fill & 255), float(fill >> 8 & 255), float(fill >> 16)]
    expected = F.affine(
        tensor(pixels), angle, [*move], scale, [*shear], interpolation=interpolation, fill=colour,
        center=[0.0, 0.0] if cornered else None,
    )  # fmt: skip
    found = operated(pixels, operation("affine", matrix=matrix, **chosen))
    assert differing(found, pixels_of(expected)) <= (interpolation == "bilinear")


@pytest.mark.parametrize("width", [5, 224, 257])
@pytest.mark.parametrize(
    ("move", "shear"),
    [((9, 0), 0.0), ((-9, 0), 0.0), ((0, 7), 0.0), ((3, -7), 0.0), ((400, 2), 0.0), ((4, 60), 10.0), ((-4, -5), -35.0)],
)
def test_rows_that_stay_even_are_torchvisions_also_beside_their_edges(
    move: tuple[int, int], shear: float, width: int
) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (90, width, 3), np.uint8)
    matrix = _get_inverse_affine_matrix([0.0, 0.0], 0.0, [*map(float, move)], 1.0, [shear, 0.0])
    expected = F.affine(tensor(pixels), 0.0, [*move], 1.0, [shear, 0.0], fill=[200.0, 0.0, 90.0])
    found = operated(pixels, operation("affine", matrix=matrix, fill=MAGENTA))
    assert differing(found, pixels_of(expected)) == 0


@pytest.mark.parametrize("interpolation", range(len(FILTERS)))
@pytest.mark.parametrize("far", [1e9, 1e30, 1e300])
def test_what_comes_from_very_far_is_filled(far: float, interpolation: int) -> None:
    pixels, chosen = np.full((9, 12, 3), 50, np.uint8), {"interpolation": interpolation, "fill": MAGENTA}
    found = operated(pixels, operation("affine", matrix=[1, 0, far, 0, 1, 0], **chosen))
    assert (found == (200, 0, 90)).all()


@settings(max_examples=40)
@given(data=st.data(), pixels=images())
def test_a_rectangle_is_erased_and_nothing_else(data: st.DataObject, pixels: Pixels) -> None:
    top, left = data.draw(st.integers(0, pixels.shape[0])), data.draw(st.integers(0, pixels.shape[1]))
    height, width = data.draw(st.integers(0, pixels.shape[0] - top)), data.draw(st.integers(0, pixels.shape[1] - left))
    found = operated(pixels, operation("erase", top=top, left=left, height=height, width=width, fill=MAGENTA))
    expected = pixels.copy()
    expected[top : top + height, left : left + width] = 200, 0, 90
    np.testing.assert_array_equal(found, expected)


def test_operations_follow_one_another() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (31, 47, 3), np.uint8)
    found = operated(pixels, operation("nothing"), operation("invert"), operation("brightness", factor=0.5))
    np.testing.assert_array_equal(found, pixels_of(F.adjust_brightness(F.invert(tensor(pixels)), 0.5)))


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("erase", {"top": 3, "height": 3, "width": 1, "fill": 0}, "does not lie inside"),
        ("erase", {"left": -1, "height": 1, "width": 1, "fill": 0}, "does not lie inside"),
        ("blur", {"height": 3, "width": 11, "factor": 1.0}, "kernel of a blur"),
        ("blur", {"height": 2, "width": 3, "factor": 1.0}, "kernel of a blur"),
        ("brightness", {"factor": np.nan}, "not a finite number"),
        ("affine", {"matrix": [np.inf] * 6}, "not a finite number"),
        ("posterize", {"factor": 9}, "0 to 8 bits"),
        ("invert", {"fill": 1 << 24}, "fill colour is out of range"),
    ],
)
def test_what_does_not_fit_an_image_is_refused(kind: str, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operated(np.zeros((5, 5, 3), np.uint8), operation(kind, **fields))


@pytest.mark.parametrize("interpolation", FILTERS)
def test_no_place_of_the_longest_image_that_is_moved_is_rounded_to_another(interpolation: str) -> None:
    """float32 cannot represent the positions in longer images exactly, so they are refused."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, LONGEST_MOVED, 3), np.uint8)
    ahead = operation("affine", matrix=[1, 0, 5, 0, 1, 0], interpolation=FILTERS.index(interpolation))
    moved = operated(pixels, ahead)
    np.testing.assert_array_equal(moved[:, :-5], pixels[:, 5:])
    assert not moved[:, -5:].any()
    longer = np.zeros((1, LONGEST_MOVED + 1, 3), np.uint8)
    with pytest.raises(ValueError, match="too large to be moved"):
        operated(longer, ahead)


def test_an_unknown_operation_and_another_array_are_refused() -> None:
    unknown = operation("invert")
    unknown["kind"] = 99
    with pytest.raises(ValueError, match="operation is unknown"):
        operated(np.zeros((5, 5, 3), np.uint8), unknown)
    with pytest.raises(ValueError, match="contiguous"):
        native.augment(np.zeros((5, 5, 4), np.uint8)[..., :3], operation("invert"))
