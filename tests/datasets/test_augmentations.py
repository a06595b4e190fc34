"""Augmented samples have the pixels of torchvision's functions on the crops, in any order and with any reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from packer import Loader, RandomResizedCrop, augment, open_dataset
from packer._images.extension import _native
from packer._images.operations import OPERATION
from packer.samplers._random import uniforms
from tests.augment.operation import operated
from tests.conftest import NUMBERED

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler at the installation")

CROP = RandomResizedCrop(32, flip=0.5)
RECIPE = [
    augment.TrivialAugmentWide(),
    augment.RandomApply([augment.ColorJitter(0.4, hue=0.1)]),
    augment.RandomErasing(),
]
COUNT = NUMBERED


def images_of(loader: Any) -> dict[int, torch.Tensor]:
    return {label: image.clone() for images, labels in loader for image, label in zip(images, labels, strict=True)}


def by_label(loader: Any) -> list[torch.Tensor]:
    found = {int(label): image for label, image in images_of(loader).items()}
    return [found[label] for label in range(COUNT)]


def same(made: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(made, expected, strict=True))


def test_the_operations_of_seed_epoch_and_index_are_done_to_the_crops(pack: Path) -> None:
    dataset, chain = open_dataset(pack, crop=CROP, augment=RECIPE, seed=5), augment.Chain(RECIPE)
    assert dataset.augment == chain
    dataset.set_epoch(3)
    plain = open_dataset(pack, crop=CROP, seed=5)
    plain.set_epoch(3)
    numbers = uniforms(5, 3, np.arange(COUNT), CROP.randoms + chain.randoms)[:, CROP.randoms :]
    operations = chain.choose(np.full(COUNT, 32), np.full(COUNT, 32), numbers)
    assert operations.dtype == OPERATION
    changed = 0
    for index in range(COUNT):
        crop, made = (one[index][0].permute(1, 2, 0).contiguous().numpy() for one in (plain, dataset))
        np.testing.assert_array_equal(made, operated(crop, operations[index]))
        changed += not np.array_equal(made, crop)
    assert changed > COUNT / 2


def test_the_pixels_do_not_depend_on_who_reads_them(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, augment=RECIPE, seed=5)
    expected = [dataset[index][0] for index in range(COUNT)]
    for options in ({"threads": 1}, {"threads": 3, "shuffle": True, "seed": 4}):
        assert same(by_label(Loader(dataset, 7, **options)), expected), options
    dataset.set_epoch(1)
    assert not same([dataset[index][0] for index in range(COUNT)], expected)


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_the_pixels_do_not_depend_on_processes(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, augment=RECIPE, seed=5)
    expected = [dataset[index][0] for index in range(COUNT)]
    assert same(by_label(Loader(dataset, 7, processes=2)), expected)
    dataset.set_epoch(0)
    assert same(by_label(torch.utils.data.DataLoader(dataset, 7, num_workers=2)), expected)


def test_a_pass_goes_on_with_the_same_pixels(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CROP, augment=RECIPE), 7, shuffle=True, seed=2)
    expected = [images.clone() for images, _ in loader]
    loader.set_epoch(0)
    begun = iter(loader)
    for _ in range(3):
        next(begun)
    state = loader.state_dict()
    resumed = Loader(open_dataset(pack, crop=CROP, augment=RECIPE), 7, shuffle=True)
    resumed.load_state_dict(state)
    assert same([images.clone() for images, _ in resumed], expected[3:])


def test_a_transform_gets_augmented_images(pack: Path) -> None:
    settings: Any = {"crop": CROP, "augment": [augment.RandomInvert(1)], "seed": 1}
    plain = open_dataset(pack, **settings)[3][0]
    pil = open_dataset(pack, output="pil", **settings)[3][0]
    np.testing.assert_array_equal(np.asarray(pil), plain.permute(1, 2, 0).numpy())
    halved = open_dataset(pack, transform=lambda image: np.asarray(image) // 2, **settings)[3][0]
    np.testing.assert_array_equal(halved, np.asarray(pil) // 2)


def test_whole_images_are_augmented_where_there_is_no_crop(pack: Path) -> None:
    whole, inverted = open_dataset(pack), open_dataset(pack, augment=augment.RandomInvert(1))
    assert torch.equal(inverted[7][0], 255 - whole[7][0])


def test_without_a_seed_torchs_generator_draws(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, augment=RECIPE)
    torch.manual_seed(1)
    first, second = dataset[0][0], dataset[0][0]
    torch.manual_seed(1)
    assert torch.equal(dataset[0][0], first)
    assert not torch.equal(first, second)


HIDDEN = """
import sys
sys.modules["packer._images._native"] = None
import numpy as np
from tests.datasets.test_augmentations import CROP, RECIPE, open_dataset
dataset = open_dataset(sys.argv[1], crop=CROP, augment=RECIPE, seed=5)
np.save(sys.argv[2], np.stack([dataset[index][0].numpy() for index in range(len(dataset))]))
"""


@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_without_the_compiled_part_torch_makes_the_same_pixels_or_levels_beside_them(
    pack: Path, tmp_path: Path
) -> None:
    dataset, found = open_dataset(pack, crop=CROP, augment=RECIPE, seed=5), tmp_path / "found.npy"
    expected = np.stack([dataset[index][0].numpy() for index in range(COUNT)])
    line = [sys.executable, "-c", HIDDEN, str(pack), str(found)]
    subprocess.run(line, check=True, cwd=Path(__file__).parents[2])
    apart = np.abs(np.load(found).astype(int) - expected)
    assert (apart > 1).mean() < 1e-4  # a difference of one level may cross a threshold of a later step
    assert (apart > 0).mean() < 0.05


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_several_packs_have_augmentations_of_their_own(pack: Path) -> None:
    both = open_dataset([pack, pack], crop=CROP, augment=RECIPE, seed=5)
    expected = [both[index][0] for index in range(2 * COUNT)]
    assert same([image for images, _ in Loader(both, 9) for image in images.clone()], expected)
    both.datasets[1].augment = augment.RandomInvert(1)
    both.set_epoch(0)
    expected = [both[index][0] for index in range(2 * COUNT)]
    assert same([image for images, _ in Loader(both, 9, processes=2) for image in images.clone()], expected)
    both.augment = None
    both.set_epoch(0)
    assert torch.equal(both[COUNT + 3][0], 255 - expected[COUNT + 3])  # expected has the inverted image


def test_what_cannot_be_augmented_is_refused(pack: Path) -> None:
    with pytest.raises(TypeError, match="augment must be a list of packer's augmentations"):
        open_dataset(pack, augment=torch.nn.Identity())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a crop, which comes before"):
        open_dataset(pack, augment=[CROP])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="cannot be augmented"):
        open_dataset(pack, augment=RECIPE, output="bytes")
    with pytest.raises(ValueError, match="not mode='L'"):
        open_dataset(pack, augment=RECIPE, mode="L")
