"""A single sample is read by separate code: its item must equal that of a batch of one, after the same random draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import packer
from packer import augment
from packer.testing.photos import draw_imagefolder

COUNT = 6
CODECS = {
    "keep": {},
    "jpeg": {"codec": "jpeg", "resize": 40},
    "png": {"codec": "png", "resize": 40},
    "webp": {"codec": "webp", "resize": 40},
    "raw": {"codec": "raw", "resize": 40},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "whole": {},
    "arrays": {"output": "numpy"},
    "PIL": {"output": "pil", "crop": packer.CenterCrop(24)},
    "bytes": {"output": "bytes"},
    "grey": {"mode": "L", "crop": packer.RandomCrop(20, pad_if_needed=True)},
    "random": {"crop": packer.RandomResizedCrop(16)},
    "chain": {"crop": [packer.Resize(30), packer.RandomCrop(20, padding=4), packer.RandomHorizontalFlip()]},
    "center": {"crop": packer.ResizeCenterCrop(24, 16)},
    "padded": {"crop": packer.CenterCrop(90)},
    "augmented": {"crop": packer.RandomResizedCrop(16), "augment": [augment.TrivialAugmentWide()]},
    "augmented whole": {"augment": [augment.RandAugment()]},
    "seed": {"crop": packer.RandomResizedCrop(16), "augment": [augment.TrivialAugmentWide()], "seed": 5},
    "halved": {"crop": packer.RandomResizedCrop(8), "scaled_decode": True},
    "pillow": {"crop": packer.RandomResizedCrop(16), "decoder": "pillow"},
    "views": {"views": [packer.View(packer.RandomResizedCrop(16))] * 2},
    "fields": {"fields": ["image", "label", "name"], "crop": packer.RandomResizedCrop(16)},
    "numbers": {"transform": lambda image: np.asarray(image).sum(), "target_transform": str},
}


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("single")
    draw_imagefolder(root / "tree", classes=2, per_class=COUNT // 2, size=(48, 64))
    made = {}
    for name, settings in CODECS.items():
        made[name] = root / f"{name}.lmdb"
        packer.convert(root / "tree", made[name], **settings)
    return made


def drawn(make: Any, index: Any) -> tuple[Any, bytes]:
    """Make an item after a fixed seed; return it, and the state of torch's generator afterwards."""
    torch.manual_seed(3)
    return make(index), bytes(torch.get_rng_state().numpy())


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Image.Image):
        return one.mode == other.mode and one.tobytes() == other.tobytes()
    if isinstance(one, torch.Tensor):
        return one.stride() == other.stride() and torch.equal(one, other)
    return type(one) is type(other) and bool(np.all(one == other))


@pytest.mark.filterwarnings("ignore:.*dataset is read a second time", "ignore:scaled_decode", "ignore:.*scaled_decode")
@pytest.mark.parametrize(  # "jpeg" is read as "keep", which has JPEGs too
    ("codec", "settings"), [(codec, one) for codec in CODECS for one in SETTINGS if codec != "jpeg" or one == "whole"]
)
def test_a_sample_is_that_of_a_batch_of_one(codec: str, settings: str, packs: dict[str, Path]) -> None:
    dataset = packer.open_dataset(packs[codec], **SETTINGS[settings])
    for shown in (dataset, dataset.select([4, 1, 1]), packer.open_dataset([packs[codec]] * 2, **SETTINGS[settings])):
        for index in (-1, 0, len(shown) // 2):
            one, one_state = drawn(shown.__getitem__, index)
            (other,), other_state = drawn(shown.__getitems__, [index])
            assert one_state == other_state
            assert same(one, other)


def test_labels_that_were_assigned_are_shown(packs: dict[str, Path]) -> None:
    dataset = packer.open_dataset(packs["keep"], output="bytes")
    dataset.targets = np.arange(COUNT) + 0.5
    assert [dataset[index][1] for index in (0, 3, -1)] == [0.5, 3.5, COUNT - 0.5]


def test_labels_of_united_classes_are_shown(packs: dict[str, Path], tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=1, size=(48, 64))
    (tmp_path / "tree" / sorted(path.name for path in (tmp_path / "tree").iterdir())[0]).rename(tmp_path / "tree" / "a")
    packer.convert(tmp_path / "tree", tmp_path / "other.lmdb")
    both = packer.open_dataset([packs["keep"], tmp_path / "other.lmdb"], classes="union", output="bytes")
    assert [both[index][1] for index in range(len(both))] == both.targets.tolist()


@pytest.mark.parametrize("settings", ["whole", "random", "bytes"])
def test_a_damaged_sample_is_named_and_replaced(settings: str, packs: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(packs["keep"].read_bytes())
    with packer.open_pack(packs["keep"]) as reader:
        row = reader.table.row(2)
    data[row.offset + row.size // 2] ^= 0xFF
    damaged = tmp_path / "damaged.lmdb"
    damaged.write_bytes(data)
    with pytest.raises(packer.CorruptPackError, match=r"sample 2 .*checksum"):
        packer.open_dataset(damaged, **SETTINGS[settings])[2]
    dataset = packer.open_dataset(damaged, on_error="replace", max_bad=0.5, **SETTINGS[settings])
    with pytest.warns(UserWarning, match="Another sample replaces it"):
        one = drawn(dataset.__getitem__, 2)
    (other,), state = drawn(dataset.__getitems__, [2])
    assert same(one, (other, state))
    assert len(dataset.replaced) == 1
