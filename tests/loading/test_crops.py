"""Crops: torchvision's distribution, inside the image, a function of seed, epoch and index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer._loading.crops import CenterCrop, Full, RandomResizedCrop, Resize
from packer._loading.uniforms import uniforms

SIDES = st.integers(1, 3000)


@given(heights=st.lists(SIDES, min_size=1, max_size=20), seed=st.integers(0, 2**63), output=st.integers(1, 300))
def test_every_crop_lies_inside_its_image(heights: list[int], seed: int, output: int) -> None:
    tall = np.array(heights)
    wide = np.array(heights[::-1])
    rules = [RandomResizedCrop(output), RandomResizedCrop(output, (0.5, 1), (2, 3)), CenterCrop(output, 300)]
    for crop in (*rules, Resize(output), Full()):
        crops = crop.choose(tall, wide, uniforms(seed, 0, np.arange(len(tall)), crop.randoms))
        assert (crops["top"] >= 0).all()
        assert (crops["left"] >= 0).all()
        assert (crops["crop_height"] >= 1).all()
        assert (crops["crop_width"] >= 1).all()
        assert (crops["top"] + crops["crop_height"] <= tall).all()
        assert (crops["left"] + crops["crop_width"] <= wide).all()


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 375), (100, 1000), (64, 64), (3, 7)])
def test_random_resized_crop_has_torchvisions_distribution(height: int, width: int) -> None:
    transforms = pytest.importorskip("packer.testing.reference").torchvision().transforms
    torch = pytest.importorskip("torch")
    count = 4000
    crop = RandomResizedCrop(224)
    crops = crop.choose(np.full(count, height), np.full(count, width), uniforms(1, 2, np.arange(count), crop.randoms))
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    theirs = np.array([transforms.RandomResizedCrop.get_params(image, (0.08, 1), (3 / 4, 4 / 3)) for _ in range(count)])
    ours = np.stack([crops["top"], crops["left"], crops["crop_height"], crops["crop_width"]], 1)
    for column in range(4):
        assert kolmogorov_smirnov(ours[:, column], theirs[:, column]) < 1.95 * np.sqrt(2 / count)  # p = 0.001
    assert abs(crops["flip"].mean() - 0.5) < 4 * 0.5 / np.sqrt(count)


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest distance of the two empirical distribution functions."""
    values = np.union1d(a, b)
    steps = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (a, b)]
    return float(np.abs(steps[0] - steps[1]).max())


@pytest.mark.parametrize(
    "made",
    [
        lambda: RandomResizedCrop((224, 224)),  # type: ignore[arg-type]  # torchvision's form
        lambda: RandomResizedCrop(224.5),  # type: ignore[arg-type]
        lambda: RandomResizedCrop(224, 0.08),  # type: ignore[arg-type]
        lambda: RandomResizedCrop(224, ratio=("3/4", "4/3")),  # type: ignore[arg-type]
        lambda: CenterCrop((224, 192)),  # type: ignore[arg-type]
        lambda: CenterCrop(224, None),  # type: ignore[arg-type]
        lambda: Resize("224"),  # type: ignore[arg-type]
        lambda: RandomResizedCrop(True),
        lambda: RandomResizedCrop(224, flip="x"),  # type: ignore[arg-type]
        lambda: RandomResizedCrop(224, flip=True),
    ],
)
def test_arguments_of_another_kind_are_refused_at_once(made: Callable[[], object]) -> None:
    with pytest.raises(
        TypeError, match=r"^(output|resize) is an integer|^flip is a number|^(scale|ratio) is two numbers, not"
    ):
        made()


@pytest.mark.parametrize(
    "made",
    [
        lambda: RandomResizedCrop(0),
        lambda: RandomResizedCrop(13_378),  # such a square has more pixels than an image may have
        lambda: RandomResizedCrop(224, (1, 0.08)),
        lambda: RandomResizedCrop(224, (-1, 1)),
        lambda: RandomResizedCrop(224, (0.1, float("nan"))),
        lambda: RandomResizedCrop(224, ratio=(0, 1)),
        lambda: RandomResizedCrop(224, flip=-0.5),
        lambda: CenterCrop(0),
        lambda: CenterCrop(257),
        lambda: Resize(-1),
    ],
)
def test_arguments_out_of_range_are_refused_at_once(made: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"^(output|scale|ratio|flip) is"):
        made()


def test_numbers_of_numpy_and_lists_are_taken() -> None:
    assert RandomResizedCrop(np.int64(224), [0.1, 1], flip=0).size == (224, 224)  # type: ignore[arg-type]
