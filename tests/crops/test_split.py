"""Split transforms: the crop and then the rest give the result of the whole transform, with the same draws."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from packer.crops import CenterCrop, RandomCrop, RandomHorizontalFlip, split
from packer.crops._fuse import begins_with_pil, pointwise
from packer.errors import ImageError
from packer.testing.reference import torchvision
from tests.crops.reference import executed, noise, smooth

v1 = torchvision().transforms
from torchvision.transforms import v2  # noqa: E402

BICUBIC = v1.InterpolationMode.BICUBIC
NORMAL = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOAT = v2.ToDtype(torch.float32, scale=True)
SIZES = [(33, 47), (48, 64), (65, 40), (130, 131), (300, 40)]

CHAINS: dict[str, tuple[Any, int]] = {  # a transform, and how many of its steps become the crop
    "reference, train, v1": (
        v1.Compose(
            [
                v1.RandomResizedCrop(24, antialias=True),
                v1.RandomHorizontalFlip(0.5),
                v1.TrivialAugmentWide(),
                v1.PILToTensor(),
                v1.ConvertImageDtype(torch.float),
                v1.Normalize(*NORMAL),
                v1.RandomErasing(0.5),
            ]
        ),
        2,
    ),
    "reference, train, v2": (
        v2.Compose(
            [
                v2.RandomResizedCrop(24, antialias=True),
                v2.RandomHorizontalFlip(0.5),
                v2.AutoAugment(),
                v2.PILToTensor(),
                FLOAT,
                v2.Normalize(*NORMAL),
                v2.ToPureTensor(),
            ]
        ),
        2,
    ),
    "reference, train, by tensors": (
        v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomResizedCrop((24, 20), antialias=True, interpolation=BICUBIC),
                v2.RandomHorizontalFlip(0.5),
                v2.RandAugment(),
                FLOAT,
                v2.Normalize(*NORMAL),
            ]
        ),
        2,
    ),
    "reference, eval, v1": (
        v1.Compose(
            [
                v1.Resize(32, antialias=True),
                v1.CenterCrop(28),
                v1.PILToTensor(),
                v1.ConvertImageDtype(torch.float),
                v1.Normalize(*NORMAL),
            ]
        ),
        2,
    ),
    "reference, eval, by tensors": (
        v2.Compose([v2.ToImage(), v2.Resize(32), v2.CenterCrop(28), FLOAT, v2.Normalize(*NORMAL), v2.ToPureTensor()]),
        2,
    ),
    "CIFAR, v1": (
        v1.Compose([v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(*NORMAL)]),
        2,
    ),
    "CIFAR, v2": (
        v2.Compose([v2.ToImage(), v2.RandomCrop(32, padding=(4, 3, 2, 1), fill=(1, 2, 3)), v2.RandomHorizontalFlip()]),
        2,
    ),
    "flip first": (v1.Compose([v1.RandomHorizontalFlip(), v1.RandomResizedCrop(20), v1.ColorJitter(0.4)]), 2),
    "flip first, by tensors": (v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.Resize((20, 9)), FLOAT]), 2),
    "centre, then resized": (v1.Compose([v1.CenterCrop(40), v1.Resize(20), v1.ToTensor()]), 1),
    "resized twice": (v1.Compose([v1.Resize(40), v1.Resize(20), v1.ToTensor()]), 1),
    "padded, then cut": (v1.Compose([v1.Pad(5, padding_mode="reflect"), v1.RandomCrop(32), v1.ToTensor()]), 2),
    "cut as v1": (v1.Compose([v1.RandomCrop((33, 40), 0), v1.RandomVerticalFlip(), v1.ToTensor()]), 1),
    "padded if needed, v1": (v1.Compose([v1.RandomCrop(60, 1, True, 9, "edge"), v1.RandomRotation(9)]), 1),
    "padded if needed, v2": (v2.Compose([v2.RandomCrop(60, 1, True, {int: 0}), v2.RandomRotation(9)]), 0),
    "nested": (
        v1.Compose(
            [v1.Compose([v1.Resize(32), v1.Compose([v1.CenterCrop(28), v1.ToTensor()])]), v1.RandomErasing(1.0)]
        ),
        2,
    ),
    "sequential": (nn.Sequential(v2.Resize(30), v2.RandomCrop(20), v2.RandomGrayscale(0.5)), 2),
    "converted twice": (v2.Compose([v2.PILToTensor(), v2.ToImage(), v2.RandomCrop(20), v2.RandomGrayscale(0.5)]), 1),
    "floats first": (v1.Compose([v1.ToTensor(), v1.RandomCrop(20)]), 0),
    "v1 resizes tensors as floats": (v1.Compose([v1.PILToTensor(), v1.RandomCrop(30), v1.Resize(20)]), 1),
    "not anti-aliased": (v2.Compose([v2.ToImage(), v2.Resize(20, antialias=False)]), 0),
    "not anti-aliased, which Pillow is": (v2.Compose([v2.Resize(20, antialias=False), v2.ToImage()]), 1),
    "another interpolation": (v2.Compose([v2.CenterCrop(40), v2.Resize(20, "nearest")]), 1),
    "Pillow's number of an interpolation": (v2.Compose([v2.Resize(20, Image.Resampling.BICUBIC)]), 1),
    "padded twice": (v1.Compose([v1.RandomCrop(60, 3, True, 0, "reflect")]), 0),
    "at random": (v1.Compose([v1.RandomApply([v1.Resize(20)]), v1.CenterCrop(20)]), 0),
    "cutting by padding": (v1.Compose([v1.Pad(-3), v1.ToTensor()]), 0),
    "alone": (v2.RandomResizedCrop(20), 1),
}


def timm_chains() -> dict[str, tuple[Any, int]]:
    create = pytest.importorskip("timm.data").create_transform
    return {
        "train": (create(24, is_training=True), 2),
        "train, random interpolation": (create(24, is_training=True, interpolation="random", color_jitter=None), 2),
        "train, augmented": (create(24, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.5), 2),
        "train, prefetched": (create(24, is_training=True, use_prefetcher=True), 2),
        "train, no augmentation": (create(24, is_training=True, no_aug=True), 2),
        "train, ratio at random": (create(24, is_training=True, train_crop_mode="rkrc"), 0),
        "eval": (create(24), 2),
        "eval, bicubic": (create(24, interpolation="bicubic", crop_pct=0.95), 2),
        "eval, not square": (create((3, 24, 30)), 2),
        "eval, squashed": (create(24, crop_mode="squash"), 2),
        "eval, with a border": (create(24, crop_mode="border", crop_pct=1.0), 2),
    }


def leaves(transform: Any) -> list[Any]:
    steps = getattr(transform, "transforms", transform if isinstance(transform, nn.Sequential) else None)
    if steps is None or type(transform).__name__ == "RandomApply":
        return [transform]
    return [leaf for step in steps for leaf in leaves(step)]


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # timm's augmentations


def as_array(result: Any) -> np.ndarray:
    array = np.asarray(result) if isinstance(result, Image.Image) else result.permute(1, 2, 0).numpy()
    return array * (255 if array.dtype == np.float32 else 1)


def resizes(transform: Any) -> list[str]:
    return [str(getattr(leaf, "interpolation", "")) for leaf in leaves(transform) if "Resize" in type(leaf).__name__]


def compare(transform: Any, taken: int, height: int, width: int) -> None:
    """Compare a transform with its crop and the rest, after the same seed, from the same PIL image.

    If the transform resizes PIL images, their pixels are not compared, as packer's may differ by a level or two.
    """
    image = (smooth if resizes(transform) else noise)(height, width)
    pil = Image.fromarray(image.permute(1, 2, 0).numpy())
    crop, rest = split(transform)
    assert [*map(id, leaves(rest) if rest is not None else [])] == kept(transform, taken)
    seed(height)
    expected = transform(pil)
    states = torch.get_rng_state(), random.getstate()
    seed(height)
    if crop is None:
        assert rest is transform
        return
    (record,) = crop.choose(np.array([height]), np.array([width]))
    result: Any = Image.fromarray(executed(image, record).permute(1, 2, 0).contiguous().numpy())
    result = rest(result) if rest is not None else result
    assert type(result) is type(expected)
    assert torch.get_rng_state().equal(states[0])
    assert random.getstate() == states[1]
    assert as_array(result).shape == as_array(expected).shape
    by_tensor = type(leaves(transform)[0]).__name__ in ("ToImage", "PILToTensor")
    if by_tensor or not resizes(transform):
        assert np.array_equal(as_array(result), as_array(expected))


def kept(transform: Any, taken: int) -> list[int]:
    """Return the ids of the leaves that remain: all except the first `taken` ones that are no conversions."""
    conversions, others = [], leaves(transform)
    while taken:
        leaf = others.pop(0)
        if type(leaf).__name__ in ("ToImage", "PILToTensor"):
            conversions.append(leaf)
        else:
            taken -= 1
    return [*map(id, conversions + others)]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.filterwarnings("ignore:Anti-alias option is always applied")
def test_crop_and_rest_are_the_transform(name: str) -> None:
    transform, taken = CHAINS[name]
    for height, width in SIZES:
        compare(transform, taken, height, width)


@pytest.mark.parametrize("name", ["train", "train, random interpolation", "train, augmented", "train, prefetched"])
def test_crop_and_rest_are_timms_training(name: str) -> None:
    for height, width in SIZES:
        compare(*timm_chains()[name], height, width)


def test_crop_and_rest_are_timms_other_transforms() -> None:
    for name, (transform, taken) in timm_chains().items():
        if not name.startswith("train, ratio"):
            for height, width in SIZES:
                compare(transform, taken, height, width)


@pytest.mark.filterwarnings("ignore:Anti-alias option is always applied")
def test_resized_pixels_are_a_level_or_two_from_pillows() -> None:
    """Later steps may amplify a difference of a level, so crops are compared alone."""
    chains = [(transform, taken) for transform, taken in {**CHAINS, **timm_chains()}.values() if taken]
    compared = 0
    for transform, taken in chains:
        first = leaves(transform)[:taken]
        if not resizes(v1.Compose(first)):
            continue
        whole = v1.Compose(first)
        crop, rest = split(whole)
        assert crop is not None
        for height, width in SIZES if rest is None else []:
            image = smooth(height, width)
            seed(width)
            (record,) = crop.choose(np.array([height]), np.array([width]))
            seed(width)
            theirs = np.asarray(whole(Image.fromarray(image.permute(1, 2, 0).numpy()))).astype(int)
            difference = np.abs(theirs - executed(image, record).permute(1, 2, 0).numpy()).max()
            assert difference <= 2, (whole, height, width)
            compared += 1
    assert compared > 50


def test_the_rest_is_a_chain_of_the_same_kind_in_the_same_mode() -> None:
    for make in (v1.Compose, v2.Compose, lambda steps: nn.Sequential(*steps)):
        steps = [v2.ToImage(), v2.CenterCrop(8), FLOAT]
        chain = make(steps)
        if isinstance(chain, nn.Module):
            chain.eval()
            steps[0].train()
        crop, rest = split(chain)
        assert crop == CenterCrop(8)
        assert type(rest) is type(chain)
        assert [*map(id, leaves(rest))] == [id(steps[0]), id(steps[2])]
        assert len(leaves(chain)) == 3  # split leaves it unchanged
        if isinstance(rest, nn.Module):
            assert not rest.training
            assert steps[0].training
    assert split(v1.Compose([v1.CenterCrop(8)])) == (CenterCrop(8), None)
    assert split(v1.RandomHorizontalFlip(0.1)) == (RandomHorizontalFlip(0.1), None)


class Mine(v2.Resize):
    """A subclass that may behave differently."""


def test_what_is_not_known_is_left_as_it_is() -> None:
    hooked, changed = v2.Resize(8), v2.Resize(8)
    hooked.register_forward_hook(lambda *_: None)
    changed.forward = lambda image: image
    impostor = type("Resize", (), {"__module__": "torchvision.transforms.transforms", "size": 8})()
    for transform in (
        *(len, Mine(8), hooked, changed, impostor, v1.Compose([]), v1.Compose([Mine(8), v1.CenterCrop(8)])),
        *(v2.ToImage(), v2.Compose([v2.ToImage(), FLOAT]), v1.Lambda(lambda image: image), v1.RandomVerticalFlip()),
        *(
            v1.Pad(3, fill=(1, 2)),
            v2.Pad(3, fill={torch.Tensor: 1}),
            v1.RandomHorizontalFlip(1.5),
            v2.Resize(None, max_size=9),
        ),
    ):
        crop, rest = split(transform)
        assert crop is None
        assert rest is transform


def test_a_scripted_transform_is_left_as_it_is() -> None:
    chain = nn.Sequential(v1.CenterCrop(8))
    with pytest.warns((DeprecationWarning, FutureWarning), match="torch.jit"):  # the category depends on torch
        scripted = torch.jit.script(chain)
    assert split(scripted) == (None, scripted)
    assert split(chain).crop == CenterCrop(8)


def test_an_image_that_torchvision_refuses_is_refused() -> None:
    crop, _ = split(v1.RandomCrop(20))
    assert crop is not None
    assert crop != RandomCrop(20)  # they draw differently
    with pytest.raises(ImageError, match="pad_if_needed"):
        crop.choose(np.array([19]), np.array([30]))


def test_conversions_of_single_pixels_are_found() -> None:
    normalize, erase = v1.Normalize(*NORMAL), v1.RandomErasing()
    chain = v1.Compose([v1.PILToTensor(), v1.Compose([v1.ConvertImageDtype(torch.float), normalize, erase])])
    found, left = pointwise(chain)
    assert [*map(type, found)] == [v1.PILToTensor, v1.ConvertImageDtype, v1.Normalize]
    assert leaves(left) == [erase]
    everything = v2.Compose([v2.ToImage(), FLOAT, v2.Normalize(*NORMAL), v2.ToPureTensor()])
    assert pointwise(everything) == (everything.transforms, None)
    assert pointwise(None) == ([], None)
    for other in (
        v2.ToDtype(torch.float32),
        v2.ToDtype(torch.float16, scale=True),
        v2.ToDtype({torch.Tensor: torch.float32}),
    ):
        assert pointwise(other) == ([], other)


def test_what_a_transform_takes_is_known_of_torchvisions() -> None:
    takes_pil = [
        v1.Resize(8),
        v1.ToTensor(),
        v2.ToImage(),
        v2.Resize(8),
        v1.ColorJitter(),
        v1.AutoAugment(),
        v2.JPEG(5),
    ]
    takes_pil += [v1.RandomApply([v1.Resize(8)]), v1.Compose([v1.Compose([]), v1.ToTensor(), v1.Normalize(*NORMAL)])]
    takes_pil += [transform for transform, _ in {**CHAINS, **timm_chains()}.values()]
    assert {begins_with_pil(transform) for transform in takes_pil} == {True}
    takes_tensors = [
        v1.Normalize(*NORMAL),
        v1.ConvertImageDtype(torch.float),
        v1.RandomErasing(),
        v1.ToPILImage(),
        FLOAT,
    ]
    takes_tensors += [v2.Compose([v2.Normalize(*NORMAL), v2.Resize(8)]), v2.ToPureTensor(), v2.RandomErasing()]
    assert {begins_with_pil(transform) for transform in takes_tensors} == {False}
    unknown = [len, Mine(8), v1.Lambda(len), nn.Identity(), v1.Compose([]), v1.Compose([len, v1.ToTensor()]), None]
    assert {begins_with_pil(transform) for transform in unknown} == {None}


def test_splitting_imports_neither_torchvision_nor_timm() -> None:
    code = """
import sys
from packer.crops import split
assert split(len) == (None, len)
assert not {"torchvision", "timm", "PIL"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
