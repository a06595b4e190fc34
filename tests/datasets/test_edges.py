"""Settings and indices that a dataset or a Loader could silently ignore or misread."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, WeightedRandomSampler, default_collate

import packer
from packer import CenterCrop, LMDBImageDataset, Loader, PackError, RandomResizedCrop, ShuffleSampler, open_dataset
from packer._conversion.convert import convert
from packer._datasets.image_dataset import items_of
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from packer.testing.reference import torchvision

torchvision()
from torchvision import datasets  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

SIZE = 24
CROP = RandomResizedCrop(16, flip=0.5)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("edges")
    draw_imagefolder(root / "tree", classes=4, per_class=SIZE // 4, size=(40, 50))
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    return root / "tree"


@pytest.fixture
def pack(tree: Path) -> Path:
    return tree.parent / "pack.lmdb"


def images_of(loader: Any) -> torch.Tensor:
    return torch.cat([images.clone() for images, _ in loader])


def labels_of(loader: Any) -> list[int]:
    return [label for _, labels in loader for label in labels.tolist()]


class Shifted(LMDBImageDataset):
    def __getitem__(self, index: Any) -> Any:
        image, label = super().__getitem__(index)
        return image, label + 1000


class ShiftedBatches(LMDBImageDataset):
    def __getitems__(self, indices: Any) -> Any:
        return [(image, label + 100) for image, label in super().__getitems__(indices)]


def test_what_a_subclass_adds_to_items_is_in_batches_too(pack: Path) -> None:
    dataset = Shifted(pack, crop=CenterCrop(16))
    for each in (dataset, Subset(dataset, range(5))):
        assert min(labels_of(DataLoader(each, 3))) >= 1000
    for kind in (Shifted, ShiftedBatches):
        with pytest.raises(TypeError, match=r"overrides __getitems?__, which a Loader would not call"):
            Loader(kind(pack, crop=CenterCrop(16)), 3)


@pytest.mark.parametrize("transform", [None, torch.clone])
@pytest.mark.parametrize("join", [False, True])
def test_a_sample_that_comes_again_gets_another_crop(transform: Any, join: bool, pack: Path) -> None:
    torch.manual_seed(2)  # no two of the 100 crops of small images coincide
    dataset: Any = open_dataset(pack, transform, crop=CROP, output="tensor")
    dataset = ConcatDataset([dataset]) if join else dataset
    weights = [10.0] + [0.1] * (SIZE - 1)
    images = images_of(Loader(dataset, 8, sampler=WeightedRandomSampler(weights, 100)))
    assert len(images.flatten(1).unique(dim=0)) == 100
    images = images_of(Loader(dataset, 8, sampler=[3] * 20, threads=2))
    assert len(images.flatten(1).unique(dim=0)) == 20
    for again in (Subset(dataset, [3] * 20), Subset(Subset(dataset, [3] * 5), [0, 1] * 10)):
        assert len(images_of(Loader(again, 8)).flatten(1).unique(dim=0)) == 20
    if not join:
        assert len(images_of(Loader(dataset.select([3] * 20), 8)).flatten(1).unique(dim=0)) == 20
    with pytest.raises(IndexError, match=f"index {SIZE} is out of range"):
        labels_of(Loader(dataset, 8, sampler=[0, SIZE]))


def test_a_sample_that_comes_once_has_its_crop_in_any_order(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CROP, seed=3)
    whole = images_of(Loader(dataset, 8))
    assert torch.equal(images_of(Loader(dataset, 5, sampler=[7, -1, 2])), whole[[7, SIZE - 1, 2]])


@pytest.mark.parametrize("output", ["tensor", "numpy"])
@pytest.mark.parametrize("antialias", [False, True])
def test_fusing_changes_nothing_of_what_takes_tensors_or_arrays(output: str, antialias: bool, pack: Path) -> None:
    transform = v2.Compose([v2.Resize((20, 20), antialias=antialias), v2.CenterCrop(12)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about transforms that cannot be fused
        plain, fused = (LMDBImageDataset(pack, transform, output=output, fuse=fuse) for fuse in (False, True))
    for index in range(5):
        one, other = torch.as_tensor(plain[index][0]), torch.as_tensor(fused[index][0])
        assert one.shape == other.shape
        assert (one.int() - other.int()).abs().max() <= 1


@pytest.mark.parametrize(
    "rest",
    [
        [v2.PILToTensor()],
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.GaussianNoise()],
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(1)],
        [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
    ],
    ids=["uint8", "noise", "erasing", "half"],
)
def test_fused_images_are_those_of_the_transform(rest: list[Any], pack: Path, tree: Path) -> None:
    transform = v2.Compose([v2.CenterCrop(32), *rest])
    folder, fused = datasets.ImageFolder(str(tree), transform), LMDBImageDataset(pack, transform, fuse=True)
    for index in range(4):
        torch.manual_seed(index)
        expected = folder[index][0]
        torch.manual_seed(index)
        image = fused[index][0]
        assert (type(image), image.dtype) == (type(expected), expected.dtype)
        assert torch.equal(image, expected)


def test_a_collate_function_of_ones_own_is_called(pack: Path) -> None:
    def collate(items: Any) -> Any:
        images, labels = default_collate(items)
        return images.float() / 255, labels

    dataset = open_dataset(pack, crop=CenterCrop(16))
    assert torch.equal(
        images_of(Loader(dataset, 8, collate_fn=collate)), images_of(DataLoader(dataset, 8, collate_fn=collate))
    )


def test_another_sampler_keeps_its_seed_and_fits(pack: Path) -> None:
    loader = Loader(open_dataset(pack, crop=CenterCrop(16)), 4, shuffle=True)
    loader.sampler = ShuffleSampler(SIZE, seed=7)
    labels_of(loader)
    assert loader.sampler.seed == 7
    with pytest.raises(ValueError, match=f"orders 10 samples, but the dataset has {SIZE}"):
        loader.sampler = ShuffleSampler(10)
    with pytest.raises(ValueError, match=f"orders {SIZE} samples, but the dataset has 5"):
        loader.dataset = loader.dataset[:5]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda d: d,
        lambda d: Subset(d, range(8)),
        lambda d: ConcatDataset([d, d]),
        lambda d: Subset(ConcatDataset([d, d]), range(8)),
    ],
)
def test_settings_that_change_between_passes_are_seen(wrap: Callable[[Any], Any], pack: Path) -> None:
    dataset = open_dataset(pack, crop=CenterCrop(16))
    loader = Loader(wrap(dataset), 4)
    labels_of(loader)
    dataset.crop = CenterCrop(20)
    dataset.targets = range(100, 100 + SIZE)
    images, labels = next(iter(loader))
    assert images.shape[2:] == (20, 20)
    assert labels[0] == 100


def test_a_state_leaves_the_dataset_as_it_is(pack: Path) -> None:
    first = Loader(open_dataset(pack, crop=CROP, seed=1), 4)
    expected = images_of(first)
    dataset = open_dataset(pack, crop=CROP, seed=9)
    other, resumed = Loader(dataset, 4), Loader(dataset, 4)
    first.set_epoch(0)
    resumed.load_state_dict(first.state_dict())
    assert dataset.seed == 9
    assert torch.equal(images_of(resumed), expected)
    assert not torch.equal(images_of(other), expected)
    joined = [Loader(ConcatDataset([open_dataset(pack, crop=CROP, seed=seed)] * 2), 4) for seed in (1, 2)]
    expected = images_of(joined[0])
    joined[0].set_epoch(0)
    joined[1].load_state_dict(joined[0].state_dict())
    assert torch.equal(images_of(joined[1]), expected)
    mixed = [
        Loader(ConcatDataset([open_dataset(pack, crop=CROP, seed=own) for own in seeds]), 4)
        for seeds in ([1, 2], [1, 3])
    ]
    with pytest.raises(ValueError, match="its pack is"):
        mixed[1].load_state_dict(mixed[0].state_dict())


def test_masks_are_refused(pack: Path) -> None:
    dataset = open_dataset(pack)
    mask = [label == 1 for label in dataset.targets.tolist()]
    for wrong in (mask, torch.tensor(mask)):
        with pytest.raises(TypeError, match=r"dataset\.where\(mask\)"):
            dataset.select(wrong)
    with pytest.raises(TypeError, match=r"np\.flatnonzero\(mask\)"):
        labels_of(Loader(dataset, 4, sampler=mask, collate_fn=lambda items: ([], torch.tensor([0]))))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda dataset: pickle.loads(pickle.dumps(dataset))])
def test_workers_of_a_copy_learn_the_epoch(again: Callable[[Any], Any], pack: Path) -> None:
    dataset = again(open_dataset(pack, crop=CROP, seed=1))
    loader = DataLoader(dataset, 8, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    first = images_of(loader)
    dataset.set_epoch(1)
    assert not torch.equal(images_of(loader), first)


def test_labels_in_place_are_collated_as_others(pack: Path) -> None:
    for change in (lambda label: label / 2, lambda label: (label, -label)):
        dataset = open_dataset(pack, target_transform=change, crop=CenterCrop(16))
        for (_, labels), (_, expected) in zip(Loader(dataset, 8), DataLoader(dataset, 8), strict=True):
            assert str(labels) == str(expected)


def test_a_crop_beside_a_fused_transform_is_refused_later_as_well(pack: Path) -> None:
    dataset = LMDBImageDataset(pack, v2.CenterCrop(16), fuse=True)
    with pytest.raises(ValueError, match="contradicts crop="):
        dataset.crop = CenterCrop(20)
    joint = LMDBImageDataset(pack, transforms=lambda image, label: (image, label))
    for name in ("transform", "target_transform"):
        with pytest.raises(ValueError, match="applied to image and label together"):
            setattr(joint, name, str)
    with pytest.warns(UserWarning, match="has no effect without transform="):
        LMDBImageDataset(pack, fuse=True)


@pytest.mark.usefixtures("quick_spawn")
def test_another_pack_in_the_place_of_one_that_is_open_is_no_silent_mixture(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    convert(imagefolder_source(tree), path)
    dataset = open_dataset(path, crop=CenterCrop(16))
    expected = images_of(Loader(dataset, 8))
    pickled = pickle.dumps(dataset)
    draw_imagefolder(tmp_path / "tree", classes=4, per_class=SIZE // 4, size=(40, 50), seed=1)
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "other.lmdb")
    (tmp_path / "other.lmdb").rename(path)
    assert torch.equal(images_of(Loader(dataset, 8)), expected)
    with pytest.raises(PackError, match="another pack has replaced the pack that was opened"):
        pickle.loads(pickled)
    with pytest.raises(PackError, match="another pack"), Loader(dataset, 8, threads=1, processes=1) as loader:
        images_of(loader)


def test_labels_of_different_types_do_not_mix(pack: Path, tree: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n" + "\n".join(f"{name},0.5" for name, _ in open_dataset(pack).samples))
    packer.convert(tree, tmp_path / "float.lmdb", labels=table, label_type="float")
    with pytest.raises(ValueError, match="not class and float"):
        Loader(ConcatDataset([open_dataset(pack), open_dataset(tmp_path / "float.lmdb")]), 4)


def test_steps_that_are_put_into_a_fused_transform_count(pack: Path, tree: Path) -> None:
    transform = v2.Compose([v2.CenterCrop(16), v2.ToImage()])
    dataset = LMDBImageDataset(pack, transform, fuse=True)
    dataset[0]
    transform.transforms.insert(1, v2.Grayscale(3))
    transform.transforms.append(v2.RandomErasing(1))
    folder = datasets.ImageFolder(str(tree), transform)
    torch.manual_seed(0)
    expected = folder[0][0]
    torch.manual_seed(0)
    assert torch.equal(dataset[0][0], expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda chain: setattr(chain.transforms[0], "size", (8, 8)),
        lambda chain: setattr(chain.transforms[0], "scale", (0.08, 0.1)),
        lambda chain: setattr(chain.transforms[0], "ratio", (0.1, 0.2)),  # torchvision reads it only in __init__
        lambda chain: setattr(chain.transforms[1], "p", 1.0),
        lambda chain: chain.transforms[-1].mean.__setitem__(0, 0.9),
        lambda chain: chain.transforms[0].register_forward_hook(lambda step, given, made: made.rotate(90)),
    ],
)
@pytest.mark.filterwarnings("ignore:fuse=True has no effect")
def test_settings_of_a_fused_transform_that_change_count(change: Any, pack: Path, tree: Path) -> None:
    steps = [
        v2.RandomResizedCrop(16),
        v2.RandomHorizontalFlip(0.0),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    transform = v2.Compose([*steps, v2.Normalize([0.5] * 3, [0.2] * 3)])
    dataset = LMDBImageDataset(pack, transform, fuse=True)
    before = items_of(dataset).pipeline
    assert items_of(dataset).pipeline is before
    torch.manual_seed(0)
    dataset[0]
    change(transform)
    folder = datasets.ImageFolder(str(tree), transform)
    torch.manual_seed(0)
    expected = folder[0][0]
    torch.manual_seed(0)
    found = dataset[0][0]
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 0.03  # one grey level, normalised


def test_settings_of_a_loaders_own_transform_that_change_count(pack: Path) -> None:
    transform = v2.Compose([v2.CenterCrop(16), v2.ToImage()])
    loader = Loader(
        LMDBImageDataset(pack, fuse=True, transform=v2.CenterCrop(16)), SIZE, transform=transform, threads=2
    )
    assert next(iter(loader))[0].shape[2:] == (16, 16)
    transform.transforms[0].size = (8, 8)
    assert next(iter(loader))[0].shape[2:] == (8, 8)


def test_units_of_0_to_255_are_refused(pack: Path) -> None:
    with pytest.raises(ValueError, match=r"must be for pixels from 0 to 1.* divide mean and std by 255"):
        Loader(open_dataset(pack, crop=CenterCrop(16)), 4, normalize=((123, 116, 103), (58, 57, 57)))


def test_an_index_is_one_integer(pack: Path) -> None:
    with pytest.raises(TypeError, match=r"an index must be an integer, not \[1, 2\]"):
        open_dataset(pack)[[1, 2]]  # type: ignore[index]
    with pytest.raises(TypeError, match="it makes batches itself"):
        Loader(open_dataset(pack), batch_sampler=[[0]])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"packer\.crops\.split"):
        open_dataset(pack, crop=v2.CenterCrop(16))
