"""Rules: their settings, in torchvision's forms, and the properties of every crop that they choose."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from packer.crops import (
    CenterCrop,
    Compose,
    Crop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)
from packer.errors import ImageError
from packer.samplers._random import uniforms
from packer.testing.reference import torchvision

SIDES = st.integers(1, 3000)


@given(heights=st.lists(SIDES, min_size=1, max_size=20), seed=st.integers(0, 2**63), size=st.integers(1, 300))
def test_every_rectangle_lies_inside_its_image(heights: list[int], seed: int, size: int) -> None:
    tall = np.array(heights)
    wide = np.array(heights[::-1])
    rules = [
        RandomResizedCrop(size),
        RandomResizedCrop(size, (0.5, 1), (2, 3), flip=0.5),
        CenterCrop(size),
        Resize(size),
        Resize((size, 7)),
        ResizeCenterCrop(size, 150, flip=0.5),
        RandomCrop(size, padding=3, pad_if_needed=True),
        Compose([RandomHorizontalFlip(), RandomCrop(1), Resize(size)]),
        Compose([]),
    ]
    for crop in rules:
        crops = crop.choose(tall, wide, uniforms(seed, 0, np.arange(len(tall)), crop.randoms))
        assert (crops["top"] >= 0).all()
        assert (crops["left"] >= 0).all()
        assert (crops["crop_height"] >= 1).all()
        assert (crops["crop_width"] >= 1).all()
        assert (crops["top"] + crops["crop_height"] <= tall).all()
        assert (crops["left"] + crops["crop_width"] <= wide).all()
        if crop.size is not None:
            assert {*zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True)} == {crop.size}


SIZES: list[tuple[Crop, tuple[int, int] | None]] = [
    (RandomResizedCrop([224]), (224, 224)),
    (RandomResizedCrop(np.int64(224), [0.1, 1], flip=0), (224, 224)),  # type: ignore[arg-type]
    (CenterCrop((3, 4)), (3, 4)),
    (Resize(256), None),
    (Resize((256, 128)), (256, 128)),
    (ResizeCenterCrop(224, 256), (224, 224)),
    (RandomCrop((32, 30), 4), (32, 30)),
    (Pad(3), None),
    (RandomHorizontalFlip(), None),
    (Compose([]), None),
    (Compose([RandomCrop(10), Pad((1, 2, 3, 4)), RandomHorizontalFlip()]), (16, 14)),
    (Compose([RandomCrop((20, 10)), Resize(30)]), (60, 30)),
]


@pytest.mark.parametrize(("crop", "size"), SIZES, ids=repr)
def test_a_rule_knows_the_size_of_its_results(crop: Crop, size: tuple[int, int] | None) -> None:
    assert crop.size == size


@pytest.mark.parametrize(("crop", "size"), SIZES, ids=repr)
def test_rules_are_frozen_values(crop: Crop, size: tuple[int, int] | None) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        crop.size = 3, 3  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(crop))
    assert again == crop == eval(repr(crop))  # repr is code
    assert hash(again) == hash(crop)
    assert crop != Resize(3)
    assert crop != size
    height, width = np.array([40, 50]), np.array([60, 45])
    random = np.random.default_rng(0).random((2, crop.randoms))
    assert np.array_equal(again.choose(height, width, random), crop.choose(height, width, random))


def test_interpolation_may_be_torchvisions() -> None:
    modes = torchvision().transforms.InterpolationMode
    assert Resize(9, modes.BICUBIC) == Resize(9, "bicubic") != Resize(9, modes.BILINEAR)
    assert Resize(9, Image.Resampling.BICUBIC) == Resize(9, 3) == Resize(9, "bicubic")
    for other in (modes.NEAREST, "lanczos", 1, None):
        with pytest.raises(ValueError, match=r"^interpolation must be one of bilinear, bicubic, not"):
            RandomResizedCrop(9, interpolation=other)


def test_torchvisions_antialias_is_taken_where_it_says_what_packer_does() -> None:
    assert RandomResizedCrop(32, antialias=True) == RandomResizedCrop(32)
    assert Resize(32, antialias=True) == Resize(32)
    for other in (False, None, "warn"):
        for rule in (RandomResizedCrop, Resize):
            with pytest.raises(
                ValueError, match=r"antialias must be True, not .*: packer always resizes with anti-aliasing"
            ):
                rule(32, antialias=other)  # type: ignore[arg-type]


def test_a_center_crop_of_an_earlier_packer_is_refused_with_its_new_name() -> None:
    for made in (lambda: CenterCrop(224, 256), lambda: CenterCrop(224, resize=256)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"ResizeCenterCrop\(224, 256\)"):
            made()


def test_the_abstract_crop_is_no_rule() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Crop()  # type: ignore[abstract]


@pytest.mark.parametrize(
    "made",
    [
        lambda: RandomResizedCrop(224.5),
        lambda: RandomResizedCrop((1, 2, 3)),
        lambda: RandomResizedCrop(()),
        lambda: RandomResizedCrop(224, 0.08),
        lambda: RandomResizedCrop(224, "01"),
        lambda: RandomResizedCrop(224, ratio=("3/4", "4/3")),
        lambda: RandomResizedCrop(True),
        lambda: RandomResizedCrop(224, flip="x"),
        lambda: RandomResizedCrop(224, flip=True),
        lambda: CenterCrop(None),
        lambda: ResizeCenterCrop(224, None),
        lambda: Resize("224"),
        lambda: Resize(4, max_size="8"),
        lambda: RandomCrop(4, padding=1.5),
        lambda: RandomCrop(4, padding=(1, 2, 3)),
        lambda: Pad(None),
        lambda: Pad(4, fill="red"),
        lambda: Pad(4, fill=(1, 2)),
        lambda: Pad(4, fill=0.5),
        lambda: RandomHorizontalFlip("1"),
        lambda: Compose([4]),
    ],
)
def test_arguments_of_another_kind_are_refused_at_once(made: Callable[[], Any]) -> None:
    with pytest.raises(
        TypeError,
        match=r"^((size|resize|max_size|padding|fill) must be (an|one) integer|(flip|p) must be a number|"
        r"(scale|ratio) must be two numbers, not|crops must be packer's crops)",
    ):
        made()


@pytest.mark.parametrize(
    "made",
    [
        lambda: RandomResizedCrop(0),
        lambda: RandomResizedCrop(13_378),  # a square of this size has more pixels than allowed
        lambda: RandomResizedCrop((1, 10**9)),
        lambda: RandomResizedCrop(224, (1, 0.08)),
        lambda: RandomResizedCrop(224, (-1, 1)),
        lambda: RandomResizedCrop(224, (0.1, float("nan"))),
        lambda: RandomResizedCrop(224, ratio=(0, 1)),
        lambda: RandomResizedCrop(224, flip=-0.5),
        lambda: CenterCrop(0),
        lambda: Resize(-1),
        lambda: Resize(256, max_size=256),
        lambda: Resize((256, 256), max_size=300),
        lambda: RandomCrop(4, padding=-1),
        lambda: Pad(4, fill=256),
        lambda: Pad(4, fill=(0, 0, -1)),
        lambda: Pad(4, padding_mode="wrap"),
        lambda: RandomHorizontalFlip(float("nan")),
    ],
)
def test_arguments_out_of_range_are_refused_at_once(made: Callable[[], Any]) -> None:
    with pytest.raises(
        ValueError,
        match=r"^(size|scale|ratio|flip|p|padding|fill|padding_mode) (must be|is width to height)|^max_size ",
    ):
        made()


def test_an_image_that_is_too_small_is_refused_with_its_place_and_advice() -> None:
    heights, widths = np.array([40, 30, 20]), np.array([40, 50, 20])
    for random in (None, np.zeros((3, 2))):
        with pytest.raises(
            ImageError, match=r"^50 x 30 pixels are too small for the crop of 32 x 32; pad_if_needed=True"
        ) as e:
            RandomCrop(32).choose(heights, widths, random)
        assert e.value.index == 1
    with pytest.raises(ImageError, match="28 x 28 pixels are too small"):
        RandomCrop(32, padding=4).choose(heights, widths)
    with pytest.raises(ImageError, match="900 x 1 pixels cannot be resized to a longer side of 300: no pixel is left"):
        Resize(2, max_size=300).choose(np.array([1]), np.array([900]))


def test_random_numbers_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"random must have the shape \(2, 22\), not \(2, 23\)"):
        RandomResizedCrop(8).choose(np.array([9, 9]), np.array([9, 9]), np.zeros((2, 23)))


def test_no_images_have_no_crops() -> None:
    none = np.array([], np.int64)
    for crop, _ in SIZES:
        assert len(crop.choose(none, none)) == len(crop.choose(none, none, np.zeros((0, crop.randoms)))) == 0
