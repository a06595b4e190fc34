"""A pack in place of torchvision's ImageFolder: its arguments, its attributes, and torchvision's own tests of it.

torchvision's tests (test/test_datasets.py, test/datasets_utils.py) that are repeated here, on a pack of the same tree:
`test_smoke`, `test_num_examples`, `test_feature_types`, `test_transforms`, `test_str_smoke` of every dataset, and
`test_classes`, `test_is_valid_file` and `test_allow_empty` of the folders. Left out, because a pack has no directories:
`test_not_found_or_corrupted` (packs have tests of their own), and the loaders and extensions of DatasetFolder.
"""

from __future__ import annotations

import copy
import operator
import os
import pathlib
import pickle
import re
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import packer
from packer import LMDBImageDataset, open_dataset
from packer._conversion.convert import convert
from packer._datasets.sample_view import row_of
from packer._sources.imagefolder import imagefolder_source
from packer._table import Names
from packer.testing.reference import torchvision
from tests.pairs import pairwise

torchvision()
from torchvision import datasets, transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

CLASSES = {"cat": 4, "dog": 3}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagefolder") / "tree"
    rng = np.random.default_rng(0)
    for name, count in CLASSES.items():
        for number in range(count):
            folder = root / name / ("deep" if number == 2 else "")
            folder.mkdir(parents=True, exist_ok=True)
            suffix = ("png", "jpg")[number % 2]
            Image.fromarray(rng.integers(0, 256, (30 + number, 40, 3), np.uint8)).save(folder / f"{number}.{suffix}")
    convert(imagefolder_source(root), root.parent / "pack.lmdb")
    return root


@pytest.fixture
def pack(tree: Path) -> Path:
    return tree.parent / "pack.lmdb"


def relative(samples: Any, root: Path) -> list[tuple[str, int]]:
    return [(os.path.relpath(path, root).replace(os.sep, "/"), label) for path, label in samples]


def test_smoke(pack: Path) -> None:
    dataset = LMDBImageDataset(pack)
    assert isinstance(dataset, datasets.VisionDataset)
    assert isinstance(dataset, torch.utils.data.Dataset)
    assert isinstance(dataset, LMDBImageDataset)
    assert type(dataset).__name__ == "LMDBImageDataset"
    assert isinstance(open_dataset(pack), LMDBImageDataset)


def test_num_examples(pack: Path) -> None:
    assert len(LMDBImageDataset(pack)) == sum(CLASSES.values())


def test_feature_types(pack: Path) -> None:
    image, label = LMDBImageDataset(root=pack, output="pil")[0]
    assert isinstance(image, Image.Image)
    assert isinstance(label, int)
    image, _ = LMDBImageDataset(pack, transform=lambda image: image)[0]
    assert isinstance(image, Image.Image)


def test_str_smoke(pack: Path) -> None:
    assert "LMDBImageDataset" in str(LMDBImageDataset(pack))


def test_classes(pack: Path, tree: Path) -> None:
    dataset, reference = LMDBImageDataset(pack), datasets.ImageFolder(str(tree))
    assert dataset.classes == reference.classes == sorted(CLASSES)
    assert dataset.find_classes(dataset.root) == reference.find_classes(reference.root)
    assert dataset.class_to_idx == reference.class_to_idx
    assert list(dataset.samples) == list(dataset.imgs) == relative(reference.samples, tree)
    assert list(dataset.targets) == reference.targets
    assert dataset.extensions == datasets.folder.IMG_EXTENSIONS
    assert dataset.root == str(pack)


@pytest.mark.parametrize("name", ["transform", "target_transform", "transforms"])
def test_transforms(name: str, pack: Path) -> None:
    called = []

    def remember(*arguments: Any) -> Any:
        called.append(arguments)
        return arguments if len(arguments) > 1 else arguments[0]

    settings: dict[str, Callable[..., Any]] = {name: remember}
    dataset = LMDBImageDataset(pack, **settings)  # type: ignore[arg-type]
    image, label = dataset[1]
    assert called == [{"transform": (image,), "target_transform": (label,), "transforms": (image, label)}[name]]
    assert dataset.transforms(image, label) == (image, label)
    if name != "transforms":
        assert isinstance(dataset.transforms, datasets.vision.StandardTransform)
        with pytest.raises(ValueError, match="transforms= is applied to image and label together"):
            LMDBImageDataset(pack, transforms=remember, **settings)  # type: ignore[arg-type]


def test_is_valid_file(pack: Path, tree: Path) -> None:
    valid = {"0.png", "1.jpg"}

    def is_valid_file(path: str) -> bool:
        return pathlib.Path(path).name in valid

    dataset = LMDBImageDataset(pack, is_valid_file=is_valid_file)
    reference = datasets.ImageFolder(str(tree), is_valid_file=is_valid_file)
    assert list(dataset.samples) == relative(reference.samples, tree)
    assert list(dataset.targets) == reference.targets
    assert len(dataset) == 4
    for index, (image, label) in enumerate(reference):
        ours = LMDBImageDataset(pack, is_valid_file=is_valid_file, output="pil")[index]
        assert (np.asarray(ours[0]).tolist(), ours[1]) == (np.asarray(image).tolist(), label)


def test_a_name_is_found_without_a_copy_of_all_names() -> None:
    names = Names.of(f"{number % 100:03}/{number:0100}.png" for number in range(1 << 17))
    tracemalloc.start()
    try:
        found = [row_of(names, names[row]) for row in (0, *range(9, len(names), 10085), len(names) - 1)]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [0, *range(9, len(names), 10085), len(names) - 1]
    assert most < len(names.blob) // 4
    across = [int(np.searchsorted(names.ends, end)) for end in range(1 << 20, len(names.blob), 1 << 20)]
    assert [row_of(names, names[row]) for row in across] == across, "names that lie in two parts"
    with pytest.raises(FileNotFoundError, match=r"no sample has the name 0\.png"):
        row_of(names, "0.png")  # the end of many names


def test_allow_empty(pack: Path, tree: Path) -> None:
    settings = {"is_valid_file": lambda path: "cat" in path}
    for kind, root in ((LMDBImageDataset, pack), (datasets.ImageFolder, str(tree))):
        with pytest.raises(FileNotFoundError, match="dog"):
            kind(root, **settings)
        dataset = kind(root, **settings, allow_empty=True)
        assert dataset.classes == ["cat", "dog"]
        assert list(dataset.targets) == [0, 0, 0, 0]


def test_labels_stay_read_only(pack: Path) -> None:
    dataset = LMDBImageDataset(pack)
    dataset.targets = list(range(len(dataset)))
    for one in (dataset, pickle.loads(pickle.dumps(dataset)), dataset.select([2, 1])):
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.targets.setflags(write=True)


def test_loaders(pack: Path, tree: Path) -> None:
    reference = datasets.ImageFolder(str(tree))
    dataset = LMDBImageDataset(pack, loader=datasets.folder.default_loader)
    for (name, _), (path, _) in zip(dataset.samples, reference.samples, strict=True):
        assert dataset.loader(name).tobytes() == reference.loader(path).tobytes()
    with pytest.raises(FileNotFoundError, match=r"no sample has the name cat/99\.png"):
        dataset.loader("cat/99.png")
    with pytest.raises(TypeError, match="pass output='bytes'"):
        LMDBImageDataset(pack, loader=np.load)


def test_find_classes_cannot_be_overridden_to_no_effect(pack: Path) -> None:
    class Some(LMDBImageDataset):
        def find_classes(self, directory: Any = None) -> Any:
            return ["dog"], {"dog": 0}

    with pytest.raises(TypeError, match="chosen by `packer convert`"):
        Some(pack)


def test_targets_may_be_assigned_and_count(pack: Path) -> None:
    dataset = LMDBImageDataset(pack)
    dataset.targets = [5, 4, 3, 2, 1, 0, 9]
    assert [label for _, label in dataset] == [5, 4, 3, 2, 1, 0, 9]
    assert [label for _, label in dataset.samples] == [5, 4, 3, 2, 1, 0, 9]
    assert [label for _, label in dataset.__getitems__([6, 0])] == [9, 5]
    assert [label for _, label in dataset[2:4]] == [3, 2]
    assert [label for _, labels in packer.Loader(dataset[:2], 1) for label in labels.tolist()] == [5, 4]
    assert pickle.loads(pickle.dumps(dataset))[6][1] == 9
    for wrong in ([1, 2], [[1]] * 7, ["a"] * 7):
        with pytest.raises(ValueError, match="targets must be 7 numbers"):
            dataset.targets = wrong
    dataset.targets = [0.5] * 7
    assert dataset[0][1] == 0.5


LIST: dict[str, Callable[[Any, Any], Any]] = {
    "a + b": lambda a, b: a + b,
    "b + a + a": lambda a, b: b + a + a,
    "a + a list": lambda a, b: a + list(b),
    "a list + a": lambda a, b: list(b) + a,
    "sum": lambda a, b: sum([a, b], []),  # noqa: RUF017
    "a list += a": lambda a, b: operator.iadd(list(b), a),
    "+=": lambda a, b: operator.iadd(copy.copy(a) if isinstance(a, list) else a, b),
    "a + []": lambda a, b: operator.add(a, []),
    "len": lambda a, b: len(a + b),
    "bool": lambda a, b: (bool(a), bool(b), not a),
    "count": lambda a, b: [a.count(one) for one in (*b, "cat", None, (1, 2), 7)],
    "index": lambda a, b: [a.index(one) for one in a],
    "index in a part": lambda a, b: (a.index(a[3], 3), a.index(a[-1], -2), a.index(a[2], 1, 5)),
    "in": lambda a, b: [one in a for one in (*b, "cat", None, (1, 2), 7)],
    "reversed": lambda a, b: list(reversed(a)),
    "sorted": lambda a, b: sorted(a, reverse=True),
    "slices": lambda a, b: [list(a[2:5]), list(a[::-2]), list(a[-1:]), list(a[9:])],
    "loop": lambda a, b: list(a),
    "pickle": lambda a, b: pickle.loads(pickle.dumps(a)) + b,
    "deepcopy": lambda a, b: list(copy.deepcopy(a)),
    "copy": lambda a, b: list(a.copy()),
}
"""Operations that scripts apply to ImageFolder's lists; none changes a list."""


@pairwise(
    kind=["a pack", "a selection", "two packs", "other labels"],
    attribute=["targets", "samples", "imgs", "classes"],
    how=LIST,
)
def test_attributes_do_what_imagefolders_lists_do(kind: str, attribute: str, how: str, pack: Path, tree: Path) -> None:
    folder, dataset = datasets.ImageFolder(tree), open_dataset(pack)
    samples = relative(folder.samples, tree)
    if kind == "a selection":
        dataset, samples = dataset[::2], samples[::2]
    elif kind == "two packs":
        dataset, samples = open_dataset([pack, pack]), [*samples, *samples]
    elif kind == "other labels":
        dataset.targets = [1 - label for label in dataset.targets]
        samples = [(name, 1 - label) for name, label in samples]
    whole = {"targets": [label for _, label in samples], "classes": folder.classes}.get(attribute, samples)
    if attribute == "classes" and how == "index in a part":
        pytest.skip("there are two")
    own, other = getattr(dataset, attribute), getattr(open_dataset(pack)[1:], attribute)
    expected = LIST[how](whole, whole_of_rest(folder, tree, attribute))
    found = LIST[how](own, other)
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == expected


def whole_of_rest(folder: Any, tree: Path, attribute: str) -> Any:
    """Return an attribute of ImageFolder without the first sample."""
    rest: Any = relative(folder.samples, tree)[1:]
    return {"targets": [label for _, label in rest], "classes": folder.classes}.get(attribute, rest)


def test_samples_equal_a_list(pack: Path, tree: Path) -> None:
    samples, expected = open_dataset(pack).samples, relative(datasets.ImageFolder(tree).samples, tree)
    assert samples == expected
    assert expected == samples
    assert samples == open_dataset(pack).samples
    assert samples != expected[:-1]
    assert samples != expected[::-1]
    assert samples != 3
    assert samples * 2 == expected * 2
    assert pickle.loads(pickle.dumps(samples)) == expected
    for change in (lambda: hash(samples), lambda: operator.add(samples, (1,)), lambda: operator.add((1,), samples)):
        with pytest.raises(TypeError):
            change()


DERIVED: dict[str, Callable[[Any], Any]] = {
    "mask": lambda targets: targets[targets > 0],
    "slice": lambda targets: targets[1:],
    "times": lambda targets: targets * 2,
    "equal": lambda targets: targets == 1,
    "negative": lambda targets: -targets,
    "plus one": lambda targets: targets + 1,
    "one plus": lambda targets: 1 + targets,
    "plus an array": lambda targets: targets + np.ones(len(targets), int),
    "an array plus": lambda targets: np.ones(len(targets), int) + targets,
    "asarray": np.asarray,
    "array": np.array,
    "copy": lambda targets: targets.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "astype": lambda targets: targets.astype(float),
    "reshape": lambda targets: targets.reshape(-1, 1),
    "view": lambda targets: targets.view(),
    "T": lambda targets: targets.T,
    "take": lambda targets: targets.take([0, 1]),
    "concatenate": lambda targets: np.concatenate([targets, targets]),
    "unique": np.unique,
    "where": lambda targets: np.where(targets > 0, targets, 5),
    "sort": np.sort,
    "zeros": np.zeros_like,
    "bincount": np.bincount,
}


@pytest.mark.parametrize("how", DERIVED)
def test_what_is_made_of_targets_is_an_ordinary_array(how: str, pack: Path) -> None:
    targets = open_dataset(pack).targets
    found, expected = DERIVED[how](targets), DERIVED[how](np.array(targets))
    assert type(found) is np.ndarray
    assert np.array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_targets_are_a_read_only_array(pack: Path) -> None:
    targets = open_dataset(pack).targets
    assert isinstance(targets, np.ndarray)
    assert repr(targets) == repr(np.array(targets))
    assert (targets.dtype, targets.shape, targets.sum(), targets.max()) == (np.int64, (7,), 3, 1)
    for change in (lambda: targets.__setitem__(0, 1), targets.sort, lambda: np.add(targets, 1, out=targets)):
        with pytest.raises(ValueError, match="read-only"):
            change()
    assert torch.tensor(targets).tolist() == torch.as_tensor(targets.copy()).tolist() == targets.tolist()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        assert torch.as_tensor(targets).tolist() == torch.arange(2)[targets].tolist() == targets.tolist()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(targets, protocol))
        assert (again + targets).tolist() == targets.tolist() * 2
    with pytest.raises(ValueError, match="2 is not among"):
        targets.index(2)


def test_samples_are_not_assigned_but_selected(pack: Path) -> None:
    dataset = LMDBImageDataset(pack)
    with pytest.raises(AttributeError, match=r"use dataset\[:10\], dataset\.select\(indices\) or a .*Subset"):
        dataset.samples = dataset.samples[:3]  # type: ignore[assignment]
    few = dataset[1:7:2]
    assert (len(few), list(few.samples), list(few.targets)) == (3, dataset.samples[1:7:2], [0, 0, 1])
    assert torch.equal(few[-1][0], dataset[5][0])
    again = few.select([2, 0])
    assert list(again.samples) == [few.samples[2], few.samples[0]]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"index {index} is out of range: the dataset has 3 samples"):
            few[index]
    copied = pickle.loads(pickle.dumps(few))
    assert list(copied.samples) == list(few.samples)
    assert isinstance(copy.deepcopy(few), datasets.VisionDataset)
    few.close()
    assert torch.equal(again[0][0], dataset[5][0])


NORMALIZE = [0.5] * 3, [0.2] * 3
V1 = v1.Compose([v1.RandomResizedCrop(16), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(*NORMALIZE)])
V2 = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(16), v2.ToDtype(torch.float32, scale=True)])
TENSORS = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMALIZE)])


@pytest.mark.parametrize(
    ("transform", "output"),
    [(None, "tensor"), (V1, "pil"), (V2, "pil"), (TENSORS, "tensor"), (v1.ToTensor(), "pil"), (np.asarray, "pil")],
    ids=["none", "v1", "v2", "tensors only", "one", "callable"],
)
def test_the_form_of_images_follows_from_the_transform(transform: Any, output: str, pack: Path) -> None:
    dataset = LMDBImageDataset(pack, transform=transform)
    assert dataset.output == output
    dataset[0]
    assert LMDBImageDataset(pack, transform=transform, output="numpy").output == "numpy"
    changed = LMDBImageDataset(pack)
    changed.transform = transform
    assert changed.output == output


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("transform", [V1, V2], ids=["v1", "v2"])
def test_one_line_changes(transform: Any, fuse: bool, pack: Path, tree: Path) -> None:
    """After the same seed the images are equal, with fuse=True at most one level apart; so training does not change."""
    reference = datasets.ImageFolder(str(tree), transform=transform)
    dataset = LMDBImageDataset(str(pack), transform=transform, fuse=fuse)
    level = 1 / 255 / 0.2 + 1e-5
    for ordered in ([0, 3, 5], list(range(7))):
        torch.manual_seed(4)
        expected = [reference[index] for index in ordered]
        torch.manual_seed(4)
        found = dataset.__getitems__(ordered)
        for (image, label), (other, wanted) in zip(found, expected, strict=True):
            assert type(image) is type(other)
            assert label == wanted
            assert (image - other).abs().max() <= (level if fuse else 0)


def test_a_dataset_shows_what_runs_where(pack: Path) -> None:
    transform = v1.Compose([V1, v1.RandomErasing(0.1), v1.Normalize(*NORMALIZE)])
    lines = repr(LMDBImageDataset(pack, transform=transform, fuse=True)).splitlines()
    (shown,) = (line for line in lines if line.startswith("  items "))
    own, then = shown.split(", then: ")
    assert all(name in own for name in ("packer: ", "RandomResizedCrop", "ToTensor", "Normalize"))
    assert "RandomErasing" in then
    assert not any(name in then for name in ("RandomResizedCrop", "ToTensor"))
    unfused = repr(LMDBImageDataset(pack, transform=V1))
    assert "packer: " not in unfused


class Recorded(LMDBImageDataset):
    """A user's subclass: a warning must name the user's file, not packer's."""

    def __init__(self, root: Path, transform: Any, *, fuse: bool) -> None:
        super().__init__(root, transform, fuse=fuse)


def test_fusing_in_vain_is_said(pack: Path) -> None:
    with pytest.warns(UserWarning, match="fuse=True has no effect.*ColorJitter"):
        LMDBImageDataset(pack, transform=v1.Compose([v1.ColorJitter(0.5), v1.CenterCrop(16)]), fuse=True)
    with pytest.warns(UserWarning, match="has no effect") as said:
        Recorded(pack, v1.ColorJitter(0.5), fuse=True)
    assert said[0].filename == __file__
    with pytest.raises(ValueError, match="contradicts crop="):
        LMDBImageDataset(pack, transform=V1, fuse=True, crop=packer.CenterCrop(16))


def test_a_random_transform_draws_after_its_images_crop(pack: Path, tree: Path) -> None:
    transform = v1.Compose([v1.RandomResizedCrop(16), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.RandomErasing(0.9)])
    reference = datasets.ImageFolder(str(tree), transform=transform)
    torch.manual_seed(4)
    expected = [reference[index][0] for index in range(7)]
    torch.manual_seed(4)
    found = LMDBImageDataset(pack, transform=transform, fuse=True).__getitems__(range(7))
    assert all((image - other).abs().max() <= 1.01 / 255 for (image, _), other in zip(found, expected, strict=True))


@pytest.mark.skipif(sys.flags.optimize > 1, reason="has no docstrings")
def test_the_one_difference_of_an_item_stands_where_a_person_looks_first() -> None:
    """Without a transform an image is a tensor; ImageFolder returns a PIL image."""
    for named in (packer.LMDBImageDataset, packer.HDF5ImageDataset, packer.PthImageDataset, packer.open_dataset):
        first = (named.__doc__ or "").splitlines()[0]
        assert "without a transform" in first
        assert "tensor" in first
        assert "PIL" in first
    readme = Path(packer.__file__).parents[1] / "README.md"
    if readme.exists():  # an installed package has none
        (line,) = re.findall(r"^dataset = LMDBImageDataset\(.*$", readme.read_text("utf-8"), re.MULTILINE)[:1]
        assert "without transform=, images are tensors" in line
