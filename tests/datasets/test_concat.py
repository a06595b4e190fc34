"""Several packs as one dataset: their classes, and everything that reads a dataset."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

import packer
from packer import CenterCrop, ConcatImageDataset, ImageDataset, Loader, RandomResizedCrop, open_dataset
from packer._table import Sample
from packer.errors import CorruptPackError, PackNotFoundError
from packer.samplers import BalancedSampler, MixSampler
from packer.testing.photos import draw_imagefolder
from tests.samples import solid, write_pack

CLASSES = (("cat", "dog", "owl"), ("dog", "emu"), ("ant", "cat", "owl"))
SUFFIXES = (".lmdb", ".h5", ".pth")
PER_CLASS = 4


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a pack of each format; their classes overlap."""
    root = tmp_path_factory.mktemp("several")
    made = []
    for number, (classes, suffix) in enumerate(zip(CLASSES, SUFFIXES, strict=True)):
        tree = root / f"tree{number}"
        draw_imagefolder(tree, classes=len(classes), per_class=PER_CLASS, size=(40, 50), seed=number)
        for folder, name in zip(sorted(tree.iterdir()), classes, strict=True):
            folder.rename(tree / name)
        made.append(root / f"pack{number}{suffix}")
        packer.convert(tree, made[-1])
    return made


def united(packs: list[Path], **settings: Any) -> ConcatImageDataset:
    return open_dataset(packs, classes="union", **settings)


def items(batches: Any) -> list[tuple[bytes, Any]]:
    return [
        (image.numpy().tobytes(), label)
        for images, labels in batches
        for image, label in zip(images, labels.tolist(), strict=True)
    ]


def test_classes_are_united_by_name(packs: list[Path]) -> None:
    dataset = united(packs)
    assert dataset.classes == ["cat", "dog", "owl", "emu", "ant"]
    assert dataset.class_to_idx == {"cat": 0, "dog": 1, "owl": 2, "emu": 3, "ant": 4}
    assert [ids.tolist() for ids in dataset.class_maps] == [[0, 1, 2], [1, 3], [4, 0, 2]]
    assert len(dataset) == len(dataset.samples) == 8 * PER_CLASS
    for index, (name, label) in enumerate(dataset.samples):
        assert name.startswith(dataset.classes[label] + "/")
        assert dataset[index][1] == dataset.targets[index] == label
    for part in dataset.datasets:
        assert part.classes == dataset.classes
        assert part[0][1] == part.targets[0] == part.samples[0][1]


def test_images_are_those_of_the_packs_in_a_row(packs: list[Path]) -> None:
    expected = [image for path in packs for image, _ in open_dataset(path)]
    dataset = united(packs)
    assert all(torch.equal(dataset[index][0], image) for index, image in enumerate(expected))
    assert torch.equal(dataset[-1][0], expected[-1])
    with pytest.raises(IndexError, match=r"index 32 is out of range"):
        dataset[len(dataset)]
    with pytest.raises(TypeError, match="an index must be an integer"):
        dataset["cat"]  # type: ignore[index]


def test_classes_that_differ_are_refused_by_name(packs: list[Path], tmp_path: Path) -> None:
    said = r"pack0\.lmdb and .*pack1\.h5 differ in their classes: only .*0\.lmdb has cat, owl; only .*1\.h5 has emu"
    with pytest.raises(ValueError, match=said + r"\. Pass classes='union'"):
        open_dataset(packs)
    paths = []
    for number, classes in enumerate((("a", "b", "c"), ("a", "c", "b"))):
        paths.append(write_pack(tmp_path / f"{number}.lmdb", "lmdb", [], classes=classes))
    with pytest.raises(ValueError, match=r"differ in their classes: class 1 is b here and c there"):
        open_dataset(paths)


def test_packs_of_the_same_classes_keep_their_labels(packs: list[Path]) -> None:
    dataset = open_dataset([packs[1], packs[1]])
    assert dataset.classes == ["dog", "emu"]
    assert dataset.targets.tolist() == [*open_dataset(packs[1]).targets] * 2


def test_unlabeled_samples_stay_unlabeled(packs: list[Path], tmp_path: Path) -> None:
    solid(tmp_path / "tree" / "one.png", size=(50, 40))
    packer.convert(tmp_path / "tree", tmp_path / "unlabeled.pth", unlabeled=True)
    dataset = united([packs[1], tmp_path / "unlabeled.pth", packs[0]])
    assert dataset[8][1] == dataset.targets[8] == -1
    assert dataset.targets[9:].tolist() == [2] * 4 + [0] * 4 + [3] * 4


def test_a_label_that_is_no_class_of_its_pack_becomes_no_other_class(packs: list[Path], tmp_path: Path) -> None:
    data = open_dataset(packs[0], output="bytes")[0][0]
    bad = write_pack(tmp_path / "bad.lmdb", "lmdb", [Sample("x/1.jpg", 2, data, 50, 40)], classes=("owl", "dog"))
    dataset = united([packs[0], bad])
    with pytest.raises(CorruptPackError, match=r"label 2 is not one of the 2 classes"):
        dataset[12]
    with pytest.raises(CorruptPackError, match=r"bad\.lmdb.*label 2 is not one of the 2 classes"):
        _ = dataset.targets


@pytest.mark.parametrize(
    "settings",
    [
        {"crop": CenterCrop(16)},
        {"crop": CenterCrop(16), "transform": torch.clone},
        {"crop": RandomResizedCrop(16), "seed": 3},
    ],
    ids=["in place", "items", "random"],
)
def test_loaders_give_the_items(settings: dict[str, Any], packs: list[Path]) -> None:
    def dataset() -> ConcatImageDataset:
        return united(packs, output="tensor", **settings)

    order = np.random.default_rng(0).permutation(32).tolist()
    one_by_one = dataset()
    expected = [(image.numpy().tobytes(), label) for image, label in (one_by_one[index] for index in order)]
    assert items(DataLoader(dataset(), 5, sampler=order)) == expected
    assert items(Loader(dataset(), 5, sampler=order, threads=3)) == expected
    assert items(Loader(dataset()[::-1], 5)) == [expected[order.index(index)] for index in reversed(range(32))]


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(("start", "count"), [("fork", 2), ("forkserver", 2)])
def test_workers_give_the_items(start: str, count: int, packs: list[Path]) -> None:
    dataset = united(packs, crop=CenterCrop(16))
    expected = items(DataLoader(dataset, 5))
    assert items(DataLoader(dataset, 5, num_workers=count, multiprocessing_context=start)) == expected


def test_a_pickled_dataset_is_small_and_the_same(packs: list[Path]) -> None:
    dataset = united(packs, crop=RandomResizedCrop(16), seed=3)
    for original in (dataset, dataset.select([30, 2, 2])):
        data = pickle.dumps(original)
        copy = pickle.loads(data)
        assert len(data) < 10_000
        assert copy.targets.tolist() == original.targets.tolist()
        assert items([next(iter(Loader(copy, 3)))]) == items([next(iter(Loader(original, 3)))])


def test_selections_are_of_the_same_samples(packs: list[Path]) -> None:
    dataset = united(packs, crop=RandomResizedCrop(16), seed=3)
    whole = items(Loader(dataset, 8))
    chosen = [31, 0, 13, 12, 5]
    assert len(dataset[10:13]) == 3
    for part in (dataset.select(chosen), Subset(dataset, chosen), dataset[::-1].select([31 - i for i in chosen])):
        assert items(Loader(part, 2)) == items(DataLoader(part, 2)) == [whole[index] for index in chosen]
    selection = dataset.select(chosen)
    assert selection.targets.tolist() == [dataset.targets[index] for index in chosen]
    assert list(selection.samples) == [dataset.samples[index] for index in chosen]
    assert selection.samples[:2] == [dataset.samples[31], dataset.samples[0]]


def test_a_sample_selected_twice_has_two_crops(packs: list[Path]) -> None:
    dataset = united(packs, crop=RandomResizedCrop(16), seed=3)
    twice = dataset.select([5, 20, 5, 5])
    made = items(Loader(twice, 4, sampler=[0, 1, 2, 3, 0, 2]))
    assert len(set(made)) == 6
    assert len({label for _, label in made}) == 2


def test_datasets_in_a_row_may_be_rows_themselves(packs: list[Path]) -> None:
    dataset = united(packs, crop=CenterCrop(16))
    more = open_dataset(packs[0], crop=CenterCrop(16))
    nested = ConcatDataset([dataset[20:], more, Subset(dataset, [3, 1]), dataset])
    assert items(Loader(nested, 7)) == items(DataLoader(nested, 7))


def test_packs_have_crops_of_their_own_and_epochs_change_them(packs: list[Path]) -> None:
    dataset = open_dataset([packs[0], packs[0]], crop=RandomResizedCrop(16), seed=1)
    first = items(DataLoader(dataset, 8))
    assert not {image for image, _ in first[:12]} & {image for image, _ in first[12:]}
    part = dataset.select([1])
    dataset.set_epoch(1)
    second = items(DataLoader(dataset, 8))
    assert all(one != other for one, other in zip(first, second, strict=True))
    assert items(DataLoader(part, 1)) == second[1:2]


def test_without_a_seed_each_look_is_another(packs: list[Path]) -> None:
    dataset = united(packs, crop=RandomResizedCrop(16))
    assert dataset.seed is None
    assert items(DataLoader(dataset, 8)) != items(DataLoader(dataset, 8))
    loader = Loader(dataset, 8, seed=4)
    assert items(loader) != items(loader)


def test_settings_are_those_of_all_packs(packs: list[Path]) -> None:
    dataset = united(packs, output="tensor")
    part = dataset[:5]
    dataset.crop = CenterCrop(8)
    dataset.transform = torch.clone
    dataset.target_transform = str
    for index in (0, 12, 20):
        image, label = dataset[index]
        assert image.shape == (3, 8, 8)
        assert label == str(dataset.targets[index])
    assert (dataset.crop, dataset.transform, dataset.target_transform) == (CenterCrop(8), torch.clone, str)
    assert part.crop is None
    assert part[1][0].shape == (3, 40, 50)
    assert len(next(iter(Loader(dataset, 32)))[1]) == 32
    assert torch.equal(dataset.read_region(13, 3, 4, 5, 6), open_dataset(packs[1]).read_region(1, 3, 4, 5, 6))


def test_other_labels_may_be_assigned(packs: list[Path]) -> None:
    dataset = united(packs)
    dataset.targets = range(100, 132)  # type: ignore[assignment]
    assert [dataset[index][1] for index in (0, 12, 31)] == [100, 112, 131]
    assert dataset.select([31, 1]).targets.tolist() == [131, 101]
    with pytest.raises(ValueError, match="targets must be 32 numbers"):
        dataset.targets = [1]  # type: ignore[assignment]
    with pytest.raises(ValueError, match="before samples are selected"):
        dataset[:3].targets = [1, 2, 3]  # type: ignore[assignment]


def open_files() -> set[str]:
    return {os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)}


def _is_open(number: str) -> bool:
    return os.path.exists(f"/proc/self/fd/{number}")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a list of open files")
def test_packs_are_closed(packs: list[Path], tmp_path: Path) -> None:
    copies = [tmp_path / path.name for path in packs]
    for path, copy in zip(packs, copies, strict=True):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)

    def held() -> bool:
        return any(name.startswith(os.fspath(tmp_path)) for name in open_files())

    with united(copies) as dataset:
        dataset[:2].close()
        assert dataset[0]
        assert held()
    assert not held()
    with pytest.raises(PackNotFoundError):
        open_dataset([*copies, tmp_path / "nothing.lmdb"])
    with pytest.raises(ValueError, match="differ in their classes"):
        open_dataset(copies)
    assert not held()


class Own(ImageDataset):
    def __getitem__(self, index: Any) -> Any:
        return index


def test_what_is_no_row_of_datasets_is_refused(packs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one pack or more"):
        open_dataset([])
    with pytest.raises(ValueError, match="classes is 'same' or 'union', not 'both'"):
        open_dataset(packs, classes="both")
    with pytest.raises(TypeError, match="use torch's ConcatDataset"):
        ConcatImageDataset([Own(packs[0])])
    (tmp_path / "labels.csv").write_text("path,label\nx.png,0.5\n")
    solid(tmp_path / "tree" / "x.png")
    packer.convert(tmp_path / "tree", tmp_path / "numbers.lmdb", labels=tmp_path / "labels.csv", label_type="float")
    with pytest.raises(ValueError, match="labels of the same type, not class and float"):
        united([packs[0], tmp_path / "numbers.lmdb"])
    both = ConcatImageDataset([open_dataset(packs[0]), open_dataset(packs[1])])
    with pytest.raises(ValueError, match="a label would have two meanings"):
        _ = both.classes


def test_a_mix_of_packs_goes_on_with_other_ranks(packs: list[Path]) -> None:
    dataset = united(packs, crop=RandomResizedCrop(16))

    def loader(rank: int, world: int) -> Loader:
        mix = dict(zip(dataset.datasets, (0.5, 0.3, 0.2), strict=True))
        return Loader(dataset, 2, sampler=MixSampler(mix, 80, seed=5, rank=rank, world=world))

    torch.manual_seed(1)
    whole = loader(0, 1)
    state = whole.state_dict()
    made = items(whole)
    assert len({image for image, _ in made}) == 80  # of 32 samples
    begun = loader(0, 1)
    begun.load_state_dict(state)
    for done, _ in enumerate(begun, 1):
        if done == 11:
            break
    shares = []
    for rank in range(3):
        resumed = loader(rank, 3)
        resumed.load_state_dict(begun.state_dict())
        shares.append(items(resumed))
    rest = [item for row in zip(*shares, strict=True) for item in row]
    assert rest[:58] == made[22:]


def test_classes_of_several_packs_are_balanced(packs: list[Path]) -> None:
    dataset = united(packs, crop=CenterCrop(16))
    order = BalancedSampler(dataset.targets, length=1000)
    labels = torch.cat([labels for _, labels in Loader(dataset, 100, sampler=order)])
    assert np.abs(np.bincount(labels.numpy()) - 200).max() <= 3


def test_a_state_of_other_classes_is_refused(packs: list[Path]) -> None:
    state = Loader(united(packs), 4).state_dict()
    Loader(united(packs), 4).load_state_dict(state)
    with pytest.raises(ValueError, match="the state belongs to another run: its pack is"):
        Loader(united([packs[1], packs[0], packs[2]]), 4).load_state_dict(state)
    with pytest.raises(ValueError, match="the state belongs to another run: its pack is"):
        Loader(ConcatDataset(list(map(open_dataset, packs))), 4).load_state_dict(state)


def test_datasets_are_mixed_in_the_order_in_which_they_were_opened(packs: list[Path]) -> None:
    both = united(packs)
    first, second, third = both.datasets
    order = MixSampler({first: 1, second: 2, third: 3})
    Loader(both, 4, sampler=order)
    Loader(ConcatDataset([first, second, third]), 4, sampler=order)
    Loader(united(packs), 4, sampler=order)  # other datasets of the same lengths
    for dataset in (united(packs[::-1]), both):
        first, second, third = dataset.datasets
        with pytest.raises(ValueError, match=r"has the order 1, 0, 2\. Pass them in"):
            Loader(dataset, 4, sampler=MixSampler({second: 1, first: 2, third: 3}))
    assert list(pickle.loads(pickle.dumps(order))) == list(order)


def test_weights_of_other_datasets_are_refused_by_their_lengths(packs: list[Path]) -> None:
    both, (first, second, third) = united(packs), united(packs).datasets
    assert len(first) != len(second)
    with pytest.raises(ValueError, match="pass the weights in the order of dataset"):
        Loader(both, 4, sampler=MixSampler({second: 1, first: 2, third: 3}))
    first, second, third = both.datasets
    Loader(both, 4, sampler=MixSampler({open_dataset(packs[:2], classes="union"): 1, third: 2}))  # two of them as one
    halves = [Subset(first, range(3)), Subset(second, range(4))]
    Loader(ConcatDataset(halves), 2, sampler=MixSampler(dict(zip(halves, (1, 2), strict=True))))
