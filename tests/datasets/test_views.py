"""Several views of each image: each has the pixels that it has alone, in any order and with any reader."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer import CenterCrop, Loader, Pad, RandomResizedCrop, View, augment, open_dataset
from packer._datasets.decoder import _BETWEEN_VIEWS
from packer._images.extension import _native
from packer.errors import CorruptPackError
from tests.conftest import NUMBERED, FieldPacks

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler at the installation")

JITTER = [augment.RandomApply([augment.ColorJitter(0.4, hue=0.1)], 0.8), augment.RandomGrayscale(0.2)]
VIEWS = [
    View(RandomResizedCrop(32, scale=(0.4, 1), flip=0.5), [*JITTER, augment.GaussianBlur(5)]),
    View([RandomResizedCrop(32, scale=(0.4, 1)), Pad(1)], [*JITTER, augment.RandomSolarize(128, 0.5)]),
    *[View(RandomResizedCrop(16, scale=(0.05, 0.4)))] * 3,
]
COUNT = NUMBERED


def images_of(dataset: Any) -> list[tuple[torch.Tensor, ...]]:
    return [dataset[index][0] for index in range(len(dataset))]


def by_label(loader: Any) -> list[tuple[torch.Tensor, ...]]:
    found = {}
    for views, labels in loader:
        for place, label in enumerate(labels.tolist()):
            found[label] = tuple(view[place].clone() for view in views)
    return [found[label] for label in range(len(found))]


def same(made: Any, expected: Any) -> bool:
    return len(made) == len(expected) and all(
        len(one) == len(other) and all(map(torch.equal, one, other)) for one, other in zip(made, expected, strict=True)
    )


def test_each_view_has_the_pixels_that_its_crop_and_augmentation_give_alone(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS, seed=5)
    dataset.set_epoch(2)
    made = images_of(dataset)
    for number, view in enumerate(VIEWS):
        alone = open_dataset(pack, crop=view.crop, augment=view.augment, seed=5 + number * _BETWEEN_VIEWS)
        alone.set_epoch(2)
        assert all(torch.equal(views[number], alone[index][0]) for index, views in enumerate(made)), number
    assert not any(torch.equal(views[2], views[3]) or torch.equal(views[3], views[4]) for views in made)
    dataset.set_epoch(3)
    assert not same(images_of(dataset), made)


def test_views_do_not_depend_on_who_reads_them(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS, seed=5)
    expected = images_of(dataset)
    for options in ({"threads": 1}, {"threads": 3, "shuffle": True, "seed": 4}):
        assert same(by_label(Loader(dataset, 7, **options)), expected), options
    dataset.set_epoch(0)
    assert same([image for image, _ in dataset.__getitems__([3, 1])], [expected[3], expected[1]])


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_views_do_not_depend_on_processes(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS, seed=5)
    expected = images_of(dataset)
    assert same(by_label(Loader(dataset, 7, processes=2)), expected)
    dataset.set_epoch(0)
    assert same(by_label(torch.utils.data.DataLoader(dataset, 7, num_workers=2)), expected)


def test_batches_of_a_loader_and_of_a_dataloader_are_alike(pack: Path) -> None:
    dataset, made = open_dataset(pack, views=VIEWS[:3], seed=5), []
    for batches in (Loader(dataset, 4), torch.utils.data.DataLoader(dataset, 4)):
        views, labels = next(iter(batches))
        assert [tuple(view.shape) for view in views] == [(4, 3, 32, 32), (4, 3, 34, 34), (4, 3, 16, 16)]
        assert isinstance(views, list)
        assert labels.tolist() == [0, 1, 2, 3]
        made.append([view.clone() for view in views])
        dataset.set_epoch(0)
    assert same(made[:1], made[1:])
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    numbers, _ = next(iter(Loader(dataset, 4, normalize=(mean, std))))
    for view, pixels in zip(numbers, views, strict=True):
        expected = (pixels / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        torch.testing.assert_close(view, expected)


def test_one_view_is_a_list_of_one(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS[:1], seed=5)
    assert len(dataset[0][0]) == 1
    (view,), _ = next(iter(Loader(dataset, 4)))
    assert view.shape == (4, 3, 32, 32)


def test_a_pass_over_views_goes_on_with_the_same_pixels(pack: Path) -> None:
    loader = Loader(open_dataset(pack, views=VIEWS), 3, shuffle=True, seed=2)
    expected = [[view.clone() for view in views] for views, _ in loader]
    loader.set_epoch(0)
    begun = iter(loader)
    for _ in range(3):
        next(begun)
    resumed = Loader(open_dataset(pack, views=VIEWS), 3, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert same([[view.clone() for view in views] for views, _ in resumed], expected[3:])


def test_views_come_in_every_form_and_mode(pack: Path) -> None:
    plain = open_dataset(pack, views=VIEWS, seed=1)[3][0]
    for pil, pixels in zip(open_dataset(pack, views=VIEWS, seed=1, output="pil")[3][0], plain, strict=True):
        np.testing.assert_array_equal(np.asarray(pil), pixels.permute(1, 2, 0).numpy())
    halved = open_dataset(pack, views=VIEWS, seed=1, output="numpy", transform=lambda image: image // 2)[3][0]
    np.testing.assert_array_equal(halved[4], plain[4].permute(1, 2, 0).numpy() // 2)
    unchanged = [View(view.crop) for view in VIEWS]
    grey = open_dataset(pack, views=unchanged, seed=1, mode="L")[3][0]
    alone = open_dataset(pack, crop=VIEWS[0].crop, seed=1, mode="L")[3][0]
    assert torch.equal(grey[0], alone)
    assert [tuple(view.shape) for view in grey[2:]] == [(1, 16, 16)] * 3


def test_without_a_seed_torchs_generator_draws_views(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS)
    torch.manual_seed(1)
    first, second = dataset[0][0], dataset[0][0]
    torch.manual_seed(1)
    assert same([dataset[0][0]], [first])
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[3], first[4])


def test_other_views_may_be_set_between_two_passes(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS, seed=1)
    assert dataset.views == tuple(VIEWS)
    expected = dataset[3][0][0]
    dataset.views = VIEWS[:1]
    assert len(dataset[3][0]) == len(dataset.select([3])[0][0]) == 1
    dataset.views = None
    dataset.crop, dataset.augment = VIEWS[0].crop, VIEWS[0].augment
    assert torch.equal(dataset[3][0], expected)
    assert "View(" in repr(open_dataset(pack, views=VIEWS))


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_joined_packs_have_views_of_their_own(pack: Path) -> None:
    both = open_dataset([pack, pack], views=VIEWS, seed=5)
    expected = images_of(both)
    assert same([tuple(views) for views in expected[:COUNT]], images_of(open_dataset(pack, views=VIEWS, seed=5)))
    assert not any(torch.equal(one[2], other[2]) for one, other in zip(expected, expected[COUNT:], strict=False))
    for options in ({}, {"processes": 1}):
        both.set_epoch(0)
        made = [[view.clone() for view in views] for views, _ in Loader(both, 9, **options)]
        assert same(
            [tuple(view[place] for view in views) for views in made for place in range(len(views[0]))], expected
        )
    both.views = VIEWS[:2]
    assert [len(dataset.views or ()) for dataset in both.datasets] == [2, 2]
    assert both.views == tuple(VIEWS[:2])


@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_a_damaged_sample_is_an_error_or_replaced(pack: Path, tmp_path: Path) -> None:
    copy = tmp_path / pack.name
    shutil.copyfile(pack, copy)
    with packer.open_pack(pack) as reader:
        begin, size = int(reader.table.offset[3]), int(reader.table.size[3])
    with copy.open("r+b") as file:
        file.seek(begin + size // 2)
        file.write(bytes(20))
    dataset = open_dataset(copy, views=VIEWS, seed=1)
    with pytest.raises(CorruptPackError, match="sample 3"):
        dataset[3]
    with pytest.raises(CorruptPackError, match="sample 3"):
        list(Loader(dataset, 5))
    good = images_of(open_dataset(pack, views=VIEWS, seed=1))
    with pytest.warns(UserWarning, match="sample 3"):
        made = list(Loader(open_dataset(copy, views=VIEWS, seed=1, on_error="replace", max_bad=0.1), COUNT))
    ((views, labels),) = made
    assert 3 not in labels.tolist()
    assert same([tuple(view[0] for view in views), tuple(view[4] for view in views)], [good[0], good[4]])


@pytest.mark.usefixtures("quick_spawn")
def test_fields_that_no_crop_changes_go_with_views(field_packs: FieldPacks) -> None:
    names = ("image", "label", "index", "name", "caption", "embedding", "seen")
    dataset = open_dataset(field_packs(".lmdb"), fields=names, views=VIEWS, seed=1)
    plain = open_dataset(field_packs(".lmdb"), views=VIEWS, seed=1)
    item = dataset[3]
    assert same([item["image"]], [plain[3][0]])
    assert (item["caption"], item["name"], item["index"]) == ("sample 3", "03.png", 3)
    items = open_dataset(
        field_packs(".lmdb"), fields=names, views=VIEWS, seed=1, output="tensor", transform=torch.nn.Identity()
    )
    for source, options in ((dataset, {}), (dataset, {"processes": 1}), (items, {})):
        source.set_epoch(0)
        batch = next(iter(Loader(source, 5, **options)))
        assert list(batch) == list(names)
        assert same([tuple(view[3] for view in batch["image"])], [item["image"]])
        assert batch["embedding"].shape == (5, 4)
        assert batch["caption"][3] == "sample 3"


def test_views_of_different_sizes_are_items_and_no_batch(field_packs: FieldPacks) -> None:
    dataset = open_dataset(field_packs(".lmdb"), views=[VIEWS[0], View(packer.Resize(20))], seed=1)
    assert [tuple(view.shape) for view in dataset[0][0]] == [(3, 32, 32), (3, 20, 30)]
    assert dataset[4][0][1].shape == (3, 20, 25)
    with pytest.raises(ValueError, match="different shapes"):
        list(Loader(dataset, 5))


def test_what_views_cannot_do_is_refused(pack: Path, field_packs: FieldPacks) -> None:
    for views in (VIEWS[0], [], [VIEWS[0].crop], "ab"):
        with pytest.raises(TypeError, match="views must be a list of views"):
            open_dataset(pack, views=views)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="crop is one of packer's crops"):
        View(augment.Grayscale(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="augment must be a list of packer's augmentations"):
        View(CenterCrop(3), CenterCrop(3))  # type: ignore[arg-type]
    refused: dict[str, dict[str, Any]] = {
        "replace crop=": {"crop": CenterCrop(8)},
        "replace augment=": {"augment": JITTER},
        "replace fuse=True": {"fuse": True, "transform": torch.nn.Identity()},
        "expects one image": {"transforms": lambda *both: both},
        "stored bytes": {"output": "bytes"},
        "not mode='L'": {"mode": "L"},
    }
    for reason, settings in refused.items():
        with pytest.raises(ValueError, match=reason):
            open_dataset(pack, views=VIEWS, **settings)
    dataset = open_dataset(pack, views=VIEWS)
    for name, value in (("crop", CenterCrop(8)), ("augment", JITTER)):
        with pytest.raises(ValueError, match=f"replace {name}="):
            setattr(dataset, name, value)
    for fields in (("image", "mask"), ("image", "boxes"), "all"):
        with pytest.raises(ValueError, match="several images of a sample"):
            open_dataset(field_packs(".lmdb"), fields=fields, views=VIEWS)


def test_what_a_loader_does_to_one_image_of_each_is_refused_of_views(pack: Path) -> None:
    dataset = open_dataset(pack, views=VIEWS)
    with pytest.raises(ValueError, match="views= make several"):
        Loader(dataset, 4, mix=augment.MixUp(num_classes=COUNT))
    with pytest.raises(ValueError, match="views= or another mode="):
        next(iter(Loader(dataset, 4, batch_transform=torch.nn.Identity())))
