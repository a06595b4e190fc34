from __future__ import annotations

import gc
import inspect
import io
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset, Subset

import packer
from packer._codecs import CODECS
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._datasets.concat import readable
from packer._datasets.open import (
    DatasetSettings,
    HDF5ImageDataset,
    ImageDataset,
    LMDBImageDataset,
    OpenOptions,
    PthImageDataset,
    open_dataset,
)
from packer._datasets.pipeline import OUTPUTS
from packer._formats import FORMATS, open_pack
from packer._images.resize import ResizeSpec
from packer._sources.imagefolder import imagefolder_source
from packer.crops import RandomResizedCrop, Resize
from packer.errors import CorruptPackError, ImageError, NotAPackError
from packer.testing.reference import torchvision
from tests.pairs import pairwise

DATASETS = {"lmdb": LMDBImageDataset, "hdf5": HDF5ImageDataset, "pth": PthImageDataset}
START_METHODS = [
    method for method in ("fork", "forkserver", "spawn") if method in torch.multiprocessing.get_all_start_methods()
]
QUICK_METHODS = [method for method in START_METHODS if method != "spawn"] or START_METHODS
"""Start methods that take little time; workers of forkserver receive the same pickled data as spawned workers."""
WORKERS = {"fork": 2, "forkserver": 2, "spawn": 1}
"""The number of workers for each start method: every spawned worker imports torch, which takes time."""

Packs = Callable[..., Path]

# Without simplejpeg, opening a dataset warns; the tests must run in this case too.
pytestmark = [
    pytest.mark.filterwarnings("ignore:simplejpeg is not installed:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*16 bits or floats per pixel:UserWarning"),  # odd_tree has some
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),  # fork, Python >= 3.12
]


@pytest.fixture(params=DATASETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def encoding(codec: str, **settings: Any) -> Recipe:
    """Return a recipe for images some of which have 16 bits; these are clipped, as Pillow does."""
    return Recipe(codec=codec, to_8_bit=None if codec == "keep" else "clip", **settings)


def image_folder(tree: Path) -> Any:
    return torchvision().datasets.ImageFolder(str(tree))


def as_array(image: Any) -> npt.NDArray[np.uint8]:
    """Return an image of any output as (height, width, 3) RGB, after checking its type."""
    if isinstance(image, torch.Tensor):
        assert image.dtype == torch.uint8
        assert image.shape[0] == 3
        return image.permute(1, 2, 0).numpy()
    if isinstance(image, bytes):
        with Image.open(io.BytesIO(image)) as opened:
            return np.asarray(opened.convert("RGB"))
    if isinstance(image, Image.Image):
        assert image.mode == "RGB"
    else:
        assert isinstance(image, np.ndarray)
        assert image.dtype == np.uint8
    return np.asarray(image)


def damage(pack: Path, index: int) -> None:
    """Flip a bit in the middle of a sample's data; the content locates the data in the file."""
    with open_dataset(pack, output="bytes").reader as reader:
        data = bytes(reader.read(index))
    files = sorted(pack.iterdir()) if pack.is_dir() else [pack]
    found = [(file, file.read_bytes().find(data)) for file in files if data in file.read_bytes()]
    assert len(found) == 1
    file, place = found[0]
    with open(file, "r+b") as stream:
        stream.seek(place + len(data) // 2)
        stream.write(bytes([data[len(data) // 2] ^ 0x10]))


def copied(pack: Path, directory: Path) -> Path:
    return Path(shutil.copytree(pack, directory / pack.name) if pack.is_dir() else shutil.copy(pack, directory))


def loaded(dataset: Dataset[Any], **options: Any) -> list[tuple[npt.NDArray[np.uint8], int]]:
    """Return all images and labels of a DataLoader."""
    loader = DataLoader(dataset, batch_size=4, collate_fn=list, **options)
    return [(as_array(image), label) for batch in loader for image, label in batch]


def assert_same(found: list[tuple[npt.NDArray[np.uint8], int]], reference: Any) -> None:
    assert len(found) == len(reference)
    for (pixels, label), (image, expected) in zip(found, reference, strict=True):
        assert label == expected
        assert np.array_equal(pixels, np.asarray(image))


def same_images(image: Any, other: Any) -> bool:
    return type(image) is type(other) and np.array_equal(as_array(image), as_array(other))


def test_open_dataset_shows_the_parameters_of_the_datasets() -> None:
    shown = dict(inspect.signature(open_dataset).parameters)
    expected = dict(inspect.signature(LMDBImageDataset).parameters)
    assert shown.pop("classes").default == "same"
    assert shown.pop("index").default is None  # only for a root that is not a pack
    assert shown.pop("progress").default is None
    assert shown.pop("keys").default == ()  # only for a container
    assert shown.pop("unlabeled").default is False
    assert "Sequence" in shown.pop("root").annotation  # or several packs
    assert expected.pop("root")
    assert list(shown.items()) == list(expected.items())
    assert all(f"\n{name} : " in str(inspect.getdoc(open_dataset)) for name in ("root", "crop", "seed", "stage"))


@pytest.mark.parametrize(("function", "options"), [(ImageDataset, DatasetSettings), (open_dataset, OpenOptions)])
def test_overloads_have_the_types_of_the_signature(function: Callable[..., Any], options: Any) -> None:
    keywords = [one for one in inspect.signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY]
    types = {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}
    assert types == {one.name: one.annotation for one in keywords}


def test_public_names() -> None:
    assert packer.LMDBImageDataset is LMDBImageDataset
    assert packer.HDF5ImageDataset is HDF5ImageDataset
    assert packer.PthImageDataset is PthImageDataset
    assert packer.open_dataset is open_dataset


@pytest.mark.parametrize("by_content", [False, True])
@pytest.mark.parametrize("tree", ["photo_tree", "odd_tree"])
def test_attributes_are_image_folders(
    tree: str, by_content: bool, name: str, packs: Packs, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(tree)
    reference = image_folder(root)
    opened = open_dataset if by_content else DATASETS[name]
    dataset = opened(packs(root, name))
    assert isinstance(dataset, DATASETS[name])
    assert isinstance(dataset, Dataset)
    assert len(dataset) == len(reference)
    assert dataset.classes == reference.classes
    assert dataset.class_to_idx == reference.class_to_idx
    expected = [(os.path.relpath(path, root).replace(os.sep, "/"), label) for path, label in reference.samples]
    assert list(dataset.samples) == list(dataset.imgs) == expected
    assert list(dataset.targets) == reference.targets
    assert dataset.samples[-1] == expected[-1]
    assert dataset.samples[2:9:3] == expected[2:9:3]
    assert (expected[3] in dataset.samples, ("x", 0) in dataset.samples) == (True, False)
    with pytest.raises(IndexError):
        dataset.samples[len(expected)]


def test_attributes_are_arrays_and_cannot_be_written(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name))
    assert isinstance(dataset.targets, np.ndarray)
    assert dataset.targets.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        dataset.targets[0] = 5
    assert torch.equal(torch.tensor(dataset.targets), torch.tensor(image_folder(photo_tree).targets))
    assert np.bincount(dataset.targets).tolist() == [5, 5, 5]


@pairwise("name", tree=["photo_tree", "odd_tree"], output=OUTPUTS, name=DATASETS)
def test_items_are_image_folders(
    tree: str, output: str, name: str, packs: Packs, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(tree)
    reference = image_folder(root)
    dataset = DATASETS[name](packs(root, name), output=output)
    for index, (image, label) in enumerate(reference):
        found, target = dataset[index]
        assert type(target) is int
        assert target == label
        tolerance = 2 if "cmyk" in reference.samples[index][0] else 0
        pixels = as_array(found)
        assert pixels.shape == (image.height, image.width, 3)
        assert np.abs(pixels.astype(int) - np.asarray(image)).max() <= tolerance, reference.samples[index][0]
        if output == "bytes":
            assert found == Path(reference.samples[index][0]).read_bytes()


@pytest.mark.parametrize("decoder", ["opencv", "pillow"])
def test_decoders_give_the_same(decoder: str, packs: Packs, odd_tree: Path) -> None:
    path = packs(odd_tree, "lmdb")
    one, other = open_dataset(path), open_dataset(path, decoder=decoder)
    assert all(torch.equal(one[index][0], other[index][0]) for index in range(len(one)))


@pytest.mark.parametrize("output", OUTPUTS)
def test_transforms(output: str, name: str, packs: Packs, photo_tree: Path) -> None:
    path = packs(photo_tree, name)
    plain = open_dataset(path, output=output)
    dataset = DATASETS[name](path, lambda image: [image], lambda label: label + 10, output=output)
    for index in range(len(plain)):
        (image,), label = dataset[index]
        assert same_images(image, plain[index][0])
        assert label == plain[index][1] + 10
    only = DATASETS[name](path, target_transform=str, output=output)
    assert only[14][1] == "2"


def test_torchvision_pipeline_works_unchanged(name: str, packs: Packs, photo_tree: Path) -> None:
    transforms = torchvision().transforms
    pipeline = transforms.Compose([transforms.Resize(32), transforms.CenterCrop(24), transforms.ToTensor()])
    reference = torchvision().datasets.ImageFolder(str(photo_tree), pipeline)
    dataset = open_dataset(packs(photo_tree, name), pipeline, output="pil")
    for (image, label), (expected, target) in zip(dataset, reference, strict=True):  # type: ignore[call-overload]
        assert torch.equal(image, expected)
        assert label == target


def test_indices(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name))
    assert torch.equal(dataset[-1][0], dataset[14][0])
    assert torch.equal(dataset[-15][0], dataset[0][0])
    assert dataset[-1][1] == 2
    for index in (np.int64(3), np.uint8(3), torch.tensor(3)):
        assert torch.equal(dataset[index][0], dataset[3][0])  # type: ignore[index]
    for wrong in ("1", 1.7, np.float64(3), None):
        with pytest.raises(TypeError, match="an index must be an integer, not"):
            dataset[wrong]  # type: ignore[index]
        with pytest.raises(TypeError, match="an index must be an integer, not"):
            dataset.read_region(wrong, 0, 0, 1, 1)  # type: ignore[arg-type]
    for index in (15, -16, 10**9, 2**63):
        with pytest.raises(IndexError, match="15 samples"):
            dataset[index]
    assert len(list(dataset)) == 15  # type: ignore[call-overload]


@pairwise(output=OUTPUTS, indices=[range(2, 12, 3), [5, 1, 1, 14], [-1, 0], []], name=DATASETS)
def test_many_are_as_one_by_one(output: str, indices: list[int], name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name), output=output)
    expected = [dataset[index] for index in indices]
    for found in (
        dataset.__getitems__(list(indices)),
        list(Subset(dataset, list(indices))),  # type: ignore[call-overload]
        Subset(dataset, list(indices)).__getitems__(list(range(len(indices)))),
    ):
        assert [label for _, label in found] == [label for _, label in expected]
        assert all(same_images(one[0], other[0]) for one, other in zip(found, expected, strict=True))


def test_many_refuse_what_one_refuses(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name))
    for wrong in ([0, 15], [-16, 1], [2**62]):
        with pytest.raises(IndexError, match="15 samples"):
            dataset.__getitems__(wrong)


@pytest.mark.parametrize("codec", CODECS)
def test_images_are_writable_and_their_own(codec: str, name: str, packs: Packs, photo_tree: Path) -> None:
    path = packs(photo_tree, name, Recipe(codec=codec))
    array, tensor = open_dataset(path, output="numpy"), open_dataset(path)
    before = array[4][0].copy()
    array[4][0][:] = 0
    tensor[4][0].zero_()
    one, other = array.__getitems__([4, 4])
    one[0][:] = 0
    assert np.array_equal(other[0], before)
    assert np.array_equal(array[4][0], before)
    assert np.array_equal(as_array(tensor[4][0]), before)
    assert before.flags.c_contiguous


@pairwise(codec=["keep", "raw"], output=["tensor", "numpy", "pil"], name=DATASETS)
def test_read_region(codec: str, output: str, name: str, packs: Packs, odd_tree: Path) -> None:
    dataset = DATASETS[name](packs(odd_tree, name, encoding(codec)), output=output)
    for index in range(len(dataset)):
        whole = as_array(dataset[index][0])
        height, width = whole.shape[:2]
        for top, left, tall, wide in [
            (0, 0, height, width),
            (height // 2, width // 3, 1, 1),
            (height - 1, 0, 1, width),
        ]:
            found = dataset.read_region(index, top, left, tall, wide)
            assert isinstance(found, type(dataset[index][0]))
            assert np.array_equal(as_array(found), whole[top : top + tall, left : left + wide])
            again = dataset.read_region(np.int64(index), *map(np.int32, (top, left, tall, wide)))  # type: ignore[arg-type]
            assert np.array_equal(as_array(again), as_array(found))
    with pytest.raises(TypeError):
        dataset.read_region(0, 0.5, 0, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"does not lie inside sample 0, which has \d+ x \d+"):
        dataset.read_region(0, 0, 1, 1, 100_000)
    with pytest.raises(ValueError, match="does not lie inside"):
        dataset.read_region(0, 0, 0, 0, 1)
    with pytest.raises(IndexError, match="out of range"):
        dataset.read_region(len(dataset), 0, 0, 1, 1)


def test_tensors_are_channels_last(packs: Packs, photo_tree: Path) -> None:
    image = open_dataset(packs(photo_tree, "lmdb"))[0][0]
    assert image[None].is_contiguous(memory_format=torch.channels_last)


@pairwise(codec=["png", "raw"], output=OUTPUTS, name=DATASETS)
def test_lossless_codecs(codec: str, output: str, name: str, packs: Packs, odd_tree: Path) -> None:
    dataset = open_dataset(packs(odd_tree, name, encoding(codec)), output=output)
    for index, (image, label) in enumerate(image_folder(odd_tree)):
        found, target = dataset[index]
        if (codec, output) == ("raw", "bytes"):
            found = np.frombuffer(found, np.uint8).reshape(image.height, image.width, 3)
        tolerance = 2 if "cmyk" in dataset.samples[index][0] else 0
        assert np.abs(as_array(found).astype(int) - np.asarray(image)).max() <= tolerance
        assert target == label


@pytest.mark.parametrize("codec", ["jpeg", "png", "webp", "bmp", "raw"])
def test_resized(codec: str, name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name, Recipe(codec=codec, resize=ResizeSpec(24))), output="numpy")
    allowed = {"png": 1, "bmp": 1, "raw": 1, "jpeg": 12, "webp": 12}[codec]  # the mean difference of a lossy codec
    for index, (image, _) in enumerate(image_folder(photo_tree)):
        short = 24 / min(image.size)
        size = int(image.width * short), int(image.height * short)
        expected = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
        difference = np.abs(dataset[index][0].astype(int) - expected)
        assert (difference.max() if codec in ("png", "bmp", "raw") else difference.mean()) <= allowed


@pairwise(codec=["keep", "png", "raw"], output=["tensor", "numpy", "pil"], name=DATASETS)
def test_exif_applied(output: str, codec: str, name: str, packs: Packs, odd_tree: Path) -> None:
    dataset = open_dataset(packs(odd_tree, name, encoding(codec, exif="apply")), output=output)
    table = dataset.reader.table
    for index, (sample, _) in enumerate(dataset.samples):
        with Image.open(odd_tree / sample) as image:
            upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        pixels = as_array(dataset[index][0])
        assert pixels.shape == upright.shape == (table.height[index], table.width[index], 3)
        assert np.abs(pixels.astype(int) - upright).max() <= (2 if "cmyk" in sample else 0), sample


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(
    ("name", "method"),
    [*(("lmdb", method) for method in START_METHODS), *((name, QUICK_METHODS[0]) for name in ("hdf5", "pth"))],
)
def test_data_loader_with_workers(name: str, method: str, packs: Packs, photo_tree: Path) -> None:
    """Two datasets of the parent have read the pack before the workers start; the workers live for two epochs."""
    path = packs(photo_tree, name)
    dataset, other = DATASETS[name](path), open_dataset(path, output="numpy")
    assert np.array_equal(as_array(dataset[3][0]), other[3][0])
    loader = DataLoader(
        dataset,
        batch_size=4,
        collate_fn=_first_pixels,
        num_workers=WORKERS[method],
        persistent_workers=True,
        multiprocessing_context=method,
    )
    expected = [_first_pixels([dataset[i] for i in range(start, min(start + 4, 15))]) for start in range(0, 15, 4)]
    assert list(loader) == expected
    assert list(loader) == expected
    assert np.array_equal(as_array(dataset[3][0]), other[3][0])
    assert_same([(as_array(image), label) for image, label in dataset], image_folder(photo_tree))  # type: ignore[attr-defined]


def test_workers_of_two_datasets_that_do_not_persist(name: str, packs: Packs, photo_tree: Path) -> None:
    if "fork" not in START_METHODS:
        pytest.skip("needs fork, which starts workers at once")
    path = packs(photo_tree, name)
    iterators = [
        iter(
            DataLoader(open_dataset(path), batch_size=4, collate_fn=list, num_workers=2, multiprocessing_context="fork")
        )
        for _ in range(2)
    ]
    for batch, other in zip(*iterators, strict=True):
        assert [label for _, label in batch] == [label for _, label in other]
        assert all(torch.equal(one[0], two[0]) for one, two in zip(batch, other, strict=True))


def _first_pixels(batch: list[tuple[torch.Tensor, int]]) -> list[tuple[int, int, int]]:
    """Collate images to sum, last pixel and label: these distinguish images and need no shared memory."""
    return [(int(image.sum()), int(image[2, -1, -1]), label) for image, label in batch]


@pytest.mark.parametrize("output", ["tensor", "numpy", "pil", "bytes"])
def test_data_loader_of_every_output(output: str, name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name), output=output)
    assert_same(loaded(dataset), image_folder(photo_tree))
    if "fork" in START_METHODS and name == "lmdb":
        assert_same(loaded(dataset, num_workers=2, multiprocessing_context="fork"), image_folder(photo_tree))


def test_shuffled_loader_gives_each_once(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name))
    sums = sorted(int(dataset[index][0].sum()) for index in range(15))
    assert sorted(int(pixels.astype(np.int64).sum()) for pixels, _ in loaded(dataset, shuffle=True)) == sums


def test_default_collation(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name, Recipe(codec="raw", resize=ResizeSpec(16, "crop"))))
    images, labels = next(iter(DataLoader(dataset, batch_size=15)))
    assert images.shape == (15, 3, 16, 16)
    assert images.dtype == torch.uint8
    assert labels.tolist() == image_folder(photo_tree).targets


def test_two_formats_and_two_datasets_at_once(packs: Packs, photo_tree: Path) -> None:
    opened = [open_dataset(packs(photo_tree, name)) for name in (*DATASETS, *DATASETS)]
    for index in range(15):
        assert len({dataset[index][0].numpy().tobytes() for dataset in opened}) == 1
    opened[0].reader.close()
    assert all(torch.equal(opened[3][index][0], opened[1][index][0]) for index in range(15))


def test_threads(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name))
    indices = list(range(15)) * 20
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda index: dataset[index][0], indices))
    expected = [dataset[index][0] for index in range(15)]
    assert all(torch.equal(image, expected[index]) for image, index in zip(images, indices, strict=True))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("threads", 0, "threads must be 1 or more, not 0"),
        ("threads", 1.5, "threads must be a whole number, not 1.5"),
        ("threads", None, "threads must be a whole number, not None"),
        ("seed", "7", "seed must be an integer, not '7'"),
        ("seed", 0.5, "seed must be an integer, not 0.5"),
    ],
)
def test_an_assigned_setting_is_checked_like_the_argument(
    setting: str, value: Any, message: str, packs: Packs, photo_tree: Path
) -> None:
    pack = packs(photo_tree, "lmdb")
    dataset = open_dataset(pack, seed=3, threads=2)
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        open_dataset(pack, **{setting: value})
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        setattr(dataset, setting, value)
    assert (dataset.seed, dataset.threads) == (3, 2)
    dataset.seed, dataset.threads = None, 1
    assert (dataset.seed, dataset.threads) == (None, 1)


def test_pickle_is_small_and_opens_the_pack_again(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(
        packs(photo_tree, name), target_transform=str, output="numpy", decoder="pillow", check="never"
    )
    expected = dataset[7]
    assert dataset.targets[7] == dataset.class_to_idx[dataset.classes[1]] == 1  # fills the caches
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 2000
    again = pickle.loads(pickled)
    assert (again.output, again.decoder, again.reader.check) == ("numpy", "pillow", "never")
    assert np.array_equal(again[7][0], expected[0])
    assert again[7][1] == "1"
    assert list(again.samples) == list(dataset.samples)
    assert list(again.targets) == list(dataset.targets)


def test_pickle_does_not_grow_with_the_pack(name: str, tmp_path: Path) -> None:
    """1,000 classes, and 1,000 samples with long names: a pickle below 10 kB."""
    pixel = io.BytesIO()
    Image.new("RGB", (1, 1)).save(pixel, "PNG")
    for number in range(1000):
        folder = tmp_path / "tree" / f"a class with a rather long name, {number:04d}"
        folder.mkdir(parents=True)
        (folder / f"{'long' * 20}.png").write_bytes(pixel.getvalue())
    path = tmp_path / f"pack{FORMATS[name].suffixes[0]}"
    convert(imagefolder_source(tmp_path / "tree"), path)
    dataset = open_dataset(path)
    assert dataset[999][1] == 999
    assert len(dataset.targets) == len(dataset.samples) == len(dataset.class_to_idx) == 1000
    assert len(pickle.dumps(dataset)) < 10_000


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"check": "sometimes"}, ValueError),
        ({"threads": 0}, ValueError),
        ({"threads": 1.5}, TypeError),
        ({"seed": "x"}, TypeError),
        ({"cache": "disk"}, ValueError),
        ({"decoder": "other"}, ValueError),
    ],
)
def test_a_wrong_setting_is_refused_before_the_pack_is_copied(
    wrong: dict[str, Any], error: type[Exception], packs: Packs, photo_tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(error):
        LMDBImageDataset(packs(photo_tree, "lmdb"), stage=tmp_path / "disk", **wrong)
    assert not (tmp_path / "disk").exists()


def test_a_pack_of_another_format_is_refused_before_it_is_copied(
    packs: Packs, photo_tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotAPackError, match="read it with LMDBImageDataset"):
        PthImageDataset(packs(photo_tree, "lmdb"), stage=tmp_path / "disk")
    assert not (tmp_path / "disk").exists()


@pytest.mark.parametrize("setting", ["decoder", "scaled_decode", "output"])
def test_what_was_settled_on_opening_cannot_be_set_to_no_effect(setting: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, "lmdb"))
    with pytest.raises(AttributeError):
        setattr(dataset, setting, "other")
    with pytest.raises(TypeError, match="crop is one of packer's crops"):
        dataset.crop = 224  # type: ignore[assignment]


def test_a_closed_dataset_reads_nothing_and_keeps_what_was_read(name: str, packs: Packs, photo_tree: Path) -> None:
    with open_dataset(packs(photo_tree, name), threads=2, crop=Resize((16, 16))) as dataset:
        items = dataset.__getitems__([0, 1, 2])
        targets = dataset.targets
        assert isinstance(dataset, DATASETS[name])
    for read in (
        lambda: dataset[0],
        lambda: dataset.__getitems__([0, 1, 2]),
        lambda: dataset.read_region(0, 0, 0, 1, 1),
    ):
        with pytest.raises(ValueError, match="is closed"):
            read()
    assert [label for _, label in items] == targets[:3].tolist()
    dataset.close()


@pytest.mark.parametrize("column", ["names", "name_end", "label"])
def test_samples_of_a_damaged_table_are_refused(column: str, packs: Packs, photo_tree: Path, tmp_path: Path) -> None:
    path = copied(packs(photo_tree, "lmdb"), tmp_path)
    with open_pack(path) as reader:
        stored = getattr(reader.table, column).tobytes()
    content = bytearray(path.read_bytes())
    assert content.count(stored) == 1
    content[content.index(stored)] ^= 1
    path.write_bytes(content)
    dataset = open_dataset(path)
    for shown in (lambda: dataset.samples, lambda: dataset.imgs):
        with pytest.raises(CorruptPackError, match=f"column '{column}' does not match its checksum"):
            shown()


@pytest.mark.parametrize("output", OUTPUTS)
def test_damage_is_an_error_with_index_and_name(
    output: str, name: str, packs: Packs, photo_tree: Path, tmp_path: Path
) -> None:
    path = copied(packs(photo_tree, name), tmp_path)
    damage(path, 7)
    dataset = open_dataset(path, output=output)
    reads: list[Callable[[], Any]] = [
        lambda: dataset[7],
        lambda: dataset[-8],
        lambda: dataset.__getitems__([1, 7, 2]),
        lambda: Subset(dataset, [7])[0],
        lambda: loaded(dataset),
    ]
    for read in reads:
        with pytest.raises(CorruptPackError) as caught:
            read()
        assert caught.value.index == 7
        assert caught.value.path == str(path)
        assert "class_01/0002.jpg" in str(caught.value)
        assert "sample 7" in str(caught.value)
    for index in (6, 8):
        assert same_images(dataset[index][0], open_dataset(packs(photo_tree, name), output=output)[index][0])


@pytest.mark.parametrize("codec", ["png", "raw"])
def test_damage_of_other_codecs(codec: str, name: str, packs: Packs, photo_tree: Path, tmp_path: Path) -> None:
    path = copied(packs(photo_tree, name, Recipe(codec=codec)), tmp_path)
    damage(path, 7)
    with pytest.raises(CorruptPackError, match=r"sample 7.*class_01/0002\.jpg"):
        open_dataset(path)[7]


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(
    ("name", "method"),
    [(name, QUICK_METHODS[0]) for name in DATASETS] + [("lmdb", method) for method in QUICK_METHODS[1:]],
)
def test_damage_in_a_worker_keeps_its_type(
    name: str, method: str, packs: Packs, photo_tree: Path, tmp_path: Path
) -> None:
    path = copied(packs(photo_tree, name), tmp_path)
    damage(path, 7)
    loader = DataLoader(
        open_dataset(path), batch_size=4, collate_fn=_first_pixels, num_workers=1, multiprocessing_context=method
    )
    batches = iter(loader)
    with pytest.raises(CorruptPackError) as caught:
        list(batches)
    batches._shutdown_workers()  # type: ignore[attr-defined]  # left to the garbage collector, it takes torch 5 seconds
    assert "class_01/0002.jpg" in str(caught.value)
    assert "sample 7" in str(caught.value)


@pairwise("name", output=["tensor", "numpy", "pil"], decoder=["auto", "opencv", "pillow"], name=DATASETS)
def test_images_that_were_damaged_before_they_were_packed(
    output: str, decoder: str, name: str, photo_tree: Path, tmp_path: Path
) -> None:
    """The checksum is right, but the JPEG's scan is damaged: every decoder raises an error with index and name."""
    tree = Path(shutil.copytree(photo_tree, tmp_path / "tree"))
    victim = tree / "class_02" / "0001.jpg"
    data = victim.read_bytes()
    middle = (data.index(b"\xff\xda") + len(data)) // 2
    victim.write_bytes(data[:middle] + b"\xff\xb9" + data[middle + 2 :])
    path = tmp_path / f"pack{FORMATS[name].suffixes[0]}"
    convert(imagefolder_source(tree), path)
    with pytest.raises(OSError, match="broken data stream"):
        image_folder(tree)[11]
    dataset = open_dataset(path, output=output, decoder=decoder)
    for read in (lambda: dataset[11], lambda: dataset.__getitems__([11]), lambda: loaded(dataset)):
        with pytest.raises(ImageError) as caught:
            read()
        assert "class_02/0001.jpg" in str(caught.value)
        assert "sample 11" in str(caught.value)
    assert open_dataset(path, output="bytes")[11][0] == victim.read_bytes()


def test_unchecked_reads_do_not_compare_checksums(packs: Packs, photo_tree: Path, tmp_path: Path) -> None:
    path = copied(packs(photo_tree, "lmdb", Recipe(codec="raw")), tmp_path)
    damage(path, 7)
    different = open_dataset(path, check="never")[7][0] != open_dataset(packs(photo_tree, "lmdb"))[7][0]
    assert int(different.sum()) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output": "jax"}, "output must be one of tensor, numpy, pil, bytes, not 'jax'"),
        ({"decoder": "dali"}, "decoder must be 'auto' or one of .*, not 'dali'"),
        ({"check": "sometimes"}, "check must be 'always' or 'never', not 'sometimes'"),
    ],
)
def test_refused_settings(settings: dict[str, str], message: str, name: str, packs: Packs, photo_tree: Path) -> None:
    with pytest.raises(ValueError, match=message):
        open_dataset(packs(photo_tree, name), **settings)


def test_a_number_is_no_crop(name: str, packs: Packs, photo_tree: Path) -> None:
    with pytest.raises(TypeError, match=r"such as packer.RandomResizedCrop\(224\), not 224"):
        open_dataset(packs(photo_tree, name), crop=224)


def test_what_is_no_pack(name: str, packs: Packs, photo_tree: Path, tmp_path: Path) -> None:
    (tmp_path / "text.lmdb").write_text("not a pack")
    (tmp_path / "empty.h5").touch()
    (tmp_path / "directory.pth").mkdir()
    for entry in ("text.lmdb", "empty.h5", "directory.pth", "missing.lmdb"):
        for opened in (open_dataset, DATASETS[name]):
            with pytest.raises(packer.PackerError, match=entry):
                opened(tmp_path / entry)
        with pytest.raises(FileNotFoundError if entry == "missing.lmdb" else NotAPackError):
            open_dataset(tmp_path / entry)
    for other, dataset in DATASETS.items():
        if other != name:
            with pytest.raises(packer.PackerError):
                dataset(packs(photo_tree, name))


def test_content_and_not_the_name_tells_the_format(name: str, packs: Packs, photo_tree: Path, tmp_path: Path) -> None:
    path = copied(packs(photo_tree, name), tmp_path)
    path.rename(tmp_path / "renamed.bin")
    assert isinstance(open_dataset(tmp_path / "renamed.bin"), DATASETS[name])


@pytest.mark.parametrize("spelled", [str, Path, os.fspath])
def test_paths(
    spelled: Callable[[Path], Any], name: str, packs: Packs, photo_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packs(photo_tree, name)
    monkeypatch.chdir(path.parent)
    dataset = DATASETS[name](spelled(Path(path.name)))
    monkeypatch.chdir(os.path.sep)
    assert dataset[0][1] == 0
    assert pickle.loads(pickle.dumps(dataset))[0][1] == 0
    assert dataset.root == str(path)


def test_repr(name: str, packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, name))
    assert repr(dataset).splitlines()[0].endswith("15 samples, 3 classes")
    assert repr(dataset.samples) == "<15 samples>"


@pytest.fixture(scope="module")
def photo_digests(shared_data: Path) -> list[tuple[str, int, tuple[int, ...], int]]:
    """Return name, shape, hash of the pixels, and label of each of the 400 photos as ImageFolder gives them."""
    root = shared_data / "imagenet-sample"
    reference = image_folder(root)
    assert len(reference) == 400

    def digest(index: int) -> tuple[str, int, tuple[int, ...], int]:
        image, label = reference[index]
        name = os.path.relpath(reference.samples[index][0], root)
        return name, hash(image.tobytes()), (image.height, image.width, 3), label

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(digest, range(400)))


@pytest.mark.parametrize("output", OUTPUTS)
def test_400_photos(output: str, name: str, packs: Packs, photo_digests: list[Any], shared_data: Path) -> None:
    root = shared_data / "imagenet-sample"
    dataset = open_dataset(packs(root, name), output=output)
    assert list(dataset.samples) == [(digest[0], digest[3]) for digest in photo_digests]
    assert dataset.class_to_idx == image_folder(root).class_to_idx

    def check(index: int) -> bool:
        image, label = dataset[index]
        name, digest, shape, expected = photo_digests[index]
        if output == "bytes":
            return bool(label == expected and image == (root / name).read_bytes())
        pixels = as_array(image)
        return (hash(pixels.tobytes()), pixels.shape, label) == (digest, shape, expected)

    first = [(one, other) for one in OUTPUTS for other in DATASETS].index((output, name))
    some = range(first, 400, len(OUTPUTS) * len(DATASETS))  # each output of each format reads other photos
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(check, some))


def threads_of_datasets() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("packer")}


def test_a_dataset_keeps_its_threads_until_it_ends(packs: Packs, photo_tree: Path) -> None:
    before = threads_of_datasets()
    dataset = open_dataset(packs(photo_tree, "lmdb"), crop=RandomResizedCrop(16, flip=0.5), threads=3)
    seen = set()
    for _ in range(4):
        dataset.__getitems__(list(range(12)))
        seen |= threads_of_datasets() - before
    assert 1 <= len(seen) <= 3
    del dataset
    gc.collect()
    for thread in seen:
        thread.join(10)
    assert not threads_of_datasets() - before


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("method", QUICK_METHODS)
def test_threads_in_workers(method: str, packs: Packs, photo_tree: Path) -> None:
    """The dataset has started threads in this process, which workers do not inherit."""
    dataset = open_dataset(packs(photo_tree, "lmdb"), crop=Resize((16, 16)), threads=2)
    expected = [image for image, _ in dataset.__getitems__(list(range(15)))]
    loader = DataLoader(dataset, 5, num_workers=WORKERS[method], multiprocessing_context=method)
    found = [image for images, _ in loader for image in images]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.timeout(60)
def test_a_transform_may_read_batches_of_its_dataset(packs: Packs, photo_tree: Path) -> None:
    """All threads wait for a batch at once, so no thread is free to decode it: this must not deadlock."""
    dataset = open_dataset(packs(photo_tree, "lmdb"), crop=Resize((16, 16)), threads=2, output="tensor")
    dataset.transform = lambda image: (image, readable(dataset).items(np.arange(3), 0, 0, torch.clone))
    for (_, others), _ in dataset.__getitems__(list(range(15))):
        assert len(others) == 3


def test_after_an_error_in_a_thread_nobody_reads_on(packs: Packs, photo_tree: Path) -> None:
    dataset = open_dataset(packs(photo_tree, "lmdb"), output="bytes", threads=2)
    running: list[int] = []

    def fail(image: bytes) -> bytes:
        running.append(1)
        try:
            if threading.current_thread().name.endswith("_0"):
                raise RuntimeError("no")
            threading.Event().wait(0.05)
            return image
        finally:
            running.pop()

    dataset.transform = fail
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no"):
            dataset.__getitems__(list(range(6)))
        assert not running
