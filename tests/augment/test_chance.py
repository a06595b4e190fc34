"""Random operations are drawn with torchvision's frequencies."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from packer import augment
from packer._images.operations import KINDS
from packer.samplers._random import uniforms

pytest.importorskip("packer.testing.reference").torchvision()
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2.functional._geometry import _get_inverse_affine_matrix  # noqa: E402

HEIGHT, WIDTH = 60, 100
IMAGE = torch.zeros((3, HEIGHT, WIDTH), dtype=torch.uint8)


def drawn(rule: augment.Augmentation, count: int) -> npt.NDArray[Any]:
    random = uniforms(3, 1, np.arange(count), rule.randoms)
    return rule.choose(np.full(count, HEIGHT), np.full(count, WIDTH), random)


def same_distribution(ours: npt.NDArray[Any], theirs: npt.ArrayLike) -> bool:
    """Tell whether numbers may have one distribution: the Kolmogorov-Smirnov test, at a level of 1 in 10,000."""
    theirs = np.sort(np.asarray(theirs, np.float64))
    ours = np.sort(ours.astype(np.float64))
    both = np.concatenate([ours, theirs])
    apart = np.searchsorted(ours, both, "right") / len(ours) - np.searchsorted(theirs, both, "right") / len(theirs)
    return bool(np.abs(apart).max() < 2.23 * np.sqrt(1 / len(ours) + 1 / len(theirs)))


def same_frequencies(ours: Iterable[Any], theirs: Iterable[Any]) -> bool:
    """Tell whether two samples may have the same frequencies: Pearson's test, at a level of 1 in 10,000."""
    counted, expected = Counter(ours), Counter(theirs)
    assert counted.keys() == expected.keys()
    assert counted.total() == expected.total()
    free = max(len(counted) - 1, 1)
    apart = sum((counted[key] - expected[key]) ** 2 / (counted[key] + expected[key]) for key in counted)
    return apart < free + 3.72 * np.sqrt(2 * free) + 6


def key_of(record: Any) -> Any:
    """Return the operation of a record as a key, rounded so that equal operations compare equal."""
    kind = KINDS[record["kind"]]
    if kind == "affine":
        return kind, *(np.round(record["matrix"], 4) + 0.0).tolist()
    return (kind, round(float(record["factor"]), 4)) if kind != "nothing" else (kind,)


@functools.cache
def key_of_theirs(name: str, magnitude: float) -> Any:
    """Return the same key for the arguments of torchvision's ``_apply_image_or_video_transform``."""
    center, angle, shift, shear = [0.0, 0.0], 0.0, [0.0, 0.0], [0.0, 0.0]
    axis = 1 if name.endswith("Y") else 0
    if name.startswith("Shear"):
        shear[axis], center = np.degrees(np.arctan(magnitude)), [-WIDTH / 2, -HEIGHT / 2]
    elif name.startswith("Translate"):
        shift[axis] = int(magnitude)
    elif name == "Rotate":
        angle = -magnitude
    else:
        return of_levels(name, magnitude)
    matrix = np.round(_get_inverse_affine_matrix(center, angle, shift, 1.0, shear), 4) + 0.0
    return ("nothing",) if matrix.tolist() == [1, 0, 0, 0, 1, 0] else ("affine", *matrix.tolist())


def of_levels(name: str, magnitude: float) -> Any:
    factors = {"Brightness": "brightness", "Color": "saturation", "Contrast": "contrast", "Sharpness": "sharpness"}
    if name in factors and magnitude != 0:
        return factors[name], round(1 + magnitude, 4)
    if name == "Posterize" and int(magnitude) < 8:
        return "posterize", float(int(magnitude))
    if name == "Solarize":
        return "solarize", round(255 * magnitude, 4)
    return (name.lower(), 0.0) if name in {"AutoContrast", "Equalize", "Invert"} else ("nothing",)


def recorded(transform: type[Any], count: int, *settings: Any) -> list[tuple[Any, ...]]:
    """Return the keys of the operations that a transform of torchvision applies to each image."""
    asked: list[Any] = []

    class Recording(transform):  # type: ignore[misc]
        def _apply_image_or_video_transform(self, image: Any, name: str, magnitude: float, **_: Any) -> Any:
            asked.append(key_of_theirs(name, magnitude))
            return image

    torch.manual_seed(5)
    make, images = Recording(*settings), []
    for _ in range(count):
        asked.clear()
        make(IMAGE)
        images.append(tuple(key for key in asked if key != ("nothing",)))
    return images


def keys(operations: npt.NDArray[Any]) -> list[tuple[Any, ...]]:
    known: dict[bytes, Any] = {}
    for record in operations.ravel():
        if record.tobytes() not in known:
            known[record.tobytes()] = key_of(record)
    found = ([known[record.tobytes()] for record in records] for records in operations)
    return [tuple(key for key in image if key != ("nothing",)) for image in found]


def test_trivial_augment_is_torchvisions(sweep: int) -> None:
    count = 40_000 * sweep
    assert same_frequencies(keys(drawn(augment.TrivialAugmentWide(), count)), recorded(v2.TrivialAugmentWide, count))


def kinds_of(images: Iterable[tuple[Any, ...]], step: int) -> Iterator[tuple[str, ...]]:
    """Yield the kinds of an image's operation and of the next one: are they drawn independently?"""
    return (tuple(key[0] for key in image[step : step + 2]) for image in images)


@pytest.mark.parametrize("settings", [(2, 9), (3, 14, 15)])
def test_rand_augment_is_torchvisions(settings: tuple[int, ...]) -> None:
    ours, theirs = keys(drawn(augment.RandAugment(*settings), 10_000)), recorded(v2.RandAugment, 10_000, *settings)
    for step in range(settings[0]):
        one = slice(step, step + 1)
        assert same_frequencies((image[one] for image in ours), (image[one] for image in theirs))
        assert same_frequencies(kinds_of(ours, step), kinds_of(theirs, step))
    assert same_distribution(np.array([*map(len, ours)]), [*map(len, theirs)])


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_auto_augment_is_torchvisions(policy: str) -> None:
    theirs = recorded(v2.AutoAugment, 10_000, v2.AutoAugmentPolicy(policy))
    assert same_frequencies(keys(drawn(augment.AutoAugment(policy), 10_000)), theirs)


def params(transform: Any, count: int) -> list[Any]:
    torch.manual_seed(7)
    return [transform.make_params([IMAGE]) for _ in range(count)]


def test_color_jitter_is_torchvisions() -> None:
    settings: Any = (0.4, (0.2, 0.9), 1.5, 0.1)
    ours, theirs = drawn(augment.ColorJitter(*settings), 20_000), params(v2.ColorJitter(*settings), 20_000)
    names = [KINDS.index(name) for name in ("brightness", "contrast", "saturation", "hue")]
    assert same_frequencies(
        (tuple(names.index(kind) for kind in kinds) for kinds in ours["kind"].tolist()),
        (tuple(made["fn_idx"].tolist()) for made in theirs),
    )
    for kind, name in zip(names, ("brightness", "contrast", "saturation", "hue"), strict=True):
        factors = ours["factor"][ours["kind"] == kind]
        assert same_distribution(factors, [made[f"{name}_factor"] for made in theirs]), name


def test_what_color_jitter_leaves_costs_no_operation() -> None:
    assert augment.ColorJitter(0.4, hue=0).operations == 1
    assert (drawn(augment.ColorJitter(), 3).size, augment.ColorJitter().randoms) == (0, 0)


@pytest.mark.parametrize("settings", [{}, {"scale": (0.2, 1.0), "ratio": (0.2, 9.0)}])
def test_random_erasing_is_torchvisions(settings: Any) -> None:
    ours = drawn(augment.RandomErasing(1, **settings), 20_000)[:, 0]
    erased = ours[ours["kind"] == KINDS.index("erase")]
    theirs = [made for made in params(v2.RandomErasing(1, **settings), 20_000) if made["v"] is not None]
    assert abs(len(erased) - len(theirs)) < 400
    for ours_name, name in (("top", "i"), ("left", "j"), ("height", "h"), ("width", "w")):
        assert same_distribution(erased[ours_name], [made[name] for made in theirs]), name
    areas = [made["h"] * made["w"] for made in theirs]
    assert same_distribution(erased["height"] * erased["width"], areas)


def test_blurs_and_rotations_are_torchvisions() -> None:
    blurs = drawn(augment.GaussianBlur((5, 9), (0.3, 3.0)), 20_000)
    assert set(blurs["width"].ravel()) == {5}
    assert set(blurs["height"].ravel()) == {9}
    theirs = [made["sigma"][0] for made in params(v2.GaussianBlur((5, 9), (0.3, 3.0)), 20_000)]
    assert same_distribution(blurs["factor"][:, 0], theirs)
    turns = drawn(augment.RandomRotation((-20, 70)), 20_000)["matrix"][:, 0]
    angles = [made["angle"] for made in params(v2.RandomRotation((-20, 70)), 20_000)]
    assert same_distribution(np.degrees(np.arctan2(turns[:, 3], turns[:, 0])), angles)


def test_affine_moves_are_torchvisions() -> None:
    settings: Any = {"degrees": 30, "translate": (0.1, 0.3), "scale": (0.5, 1.5), "shear": (-10, 20, -5, 5)}
    matrices = drawn(augment.RandomAffine(**settings), 20_000)["matrix"][:, 0]
    made = params(v2.RandomAffine(**settings), 20_000)
    theirs = np.array(
        [_get_inverse_affine_matrix([0.0, 0.0], p["angle"], [*p["translate"]], p["scale"], [*p["shear"]]) for p in made]
    )
    for column in range(6):
        assert same_distribution(matrices[:, column], theirs[:, column]), column


BY_CHANCE: dict[str, Callable[[float], augment.Augmentation]] = {
    "grayscale": augment.RandomGrayscale,
    "equalize": augment.RandomEqualize,
    "autocontrast": augment.RandomAutocontrast,
    "invert": augment.RandomInvert,
    "posterize": lambda p: augment.RandomPosterize(3, p),
    "solarize": lambda p: augment.RandomSolarize(100, p),
    "sharpness": lambda p: augment.RandomAdjustSharpness(1.5, p),
    "erase": augment.RandomErasing,
    "blur": lambda p: augment.RandomApply([augment.GaussianBlur(3)], p),
}


@pytest.mark.parametrize("kind", [*BY_CHANCE])
def test_what_is_done_by_chance_is_done_as_often_as_asked(kind: str) -> None:
    made = drawn(BY_CHANCE[kind](0.3), 10_000)["kind"][:, 0]
    assert set(made.tolist()) == {0, KINDS.index(kind)}
    assert abs(np.count_nonzero(made) - 3000) < 200


def test_one_of_several_is_chosen_by_its_weight() -> None:
    rule = augment.RandomChoice([augment.Grayscale(3), augment.RandAugment(3), augment.RandomSolarize(9, 1)], [1, 0, 3])
    made = drawn(rule, 10_000)
    assert made.shape == (10_000, 3)
    assert not made["kind"][:, 1:].any()
    assert abs(np.count_nonzero(made["kind"][:, 0] == KINDS.index("grayscale")) - 2500) < 200
    assert set(made["kind"][:, 0].tolist()) == {KINDS.index("grayscale"), KINDS.index("solarize")}


def test_a_chain_draws_of_each_what_it_draws_alone_with_its_numbers() -> None:
    first, second = augment.TrivialAugmentWide(), augment.RandomErasing()
    random = uniforms(0, 0, np.arange(50), first.randoms + second.randoms)
    sides = np.full(50, 40), np.full(50, 70)
    both = augment.Chain([first, second]).choose(*sides, random)
    assert both[:, :1].tobytes() == first.choose(*sides, random[:, : first.randoms]).tobytes()
    assert both[:, 1:].tobytes() == second.choose(*sides, random[:, first.randoms :]).tobytes()


def test_translations_follow_the_size_of_each_image() -> None:
    rule = augment.RandAugment(1, 30)
    random = np.tile([3.5 / 14, 0.9], (2, 1))  # TranslateX, not negative
    moved = rule.choose(np.array([50, 50]), np.array([331, 662]), random)
    assert moved["matrix"][:, 0, 2].tolist() == [-150, -300]


def test_without_numbers_torchs_generator_draws() -> None:
    rule = augment.TrivialAugmentWide()
    sides = np.full(20, 64), np.full(20, 64)
    torch.manual_seed(1)
    first, second = rule.choose(*sides), rule.choose(*sides)
    torch.manual_seed(1)
    assert rule.choose(*sides).tobytes() == first.tobytes() != second.tobytes()
