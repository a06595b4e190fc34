"""CIFAR's and MNIST's binary files, and arrays of NumPy, as torchvision and NumPy read them."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.errors import SourceError
from packer.testing.reference import torchvision
from tests.containers.everywhere import everywhere, listed

RNG = np.random.default_rng(5)
RGB = RNG.integers(0, 256, (7, 32, 32, 3), np.uint8)
GREY = RNG.integers(0, 256, (7, 28, 20), np.uint8)
LABELS = [3, 0, 9, 9, 1, 2, 5]
TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar10(directory: Path, *, test: bool = False) -> Path:
    directory.mkdir()
    planes = RGB.transpose(0, 3, 1, 2)
    records = [bytes([label]) + image.tobytes() for label, image in zip(LABELS, planes, strict=True)]
    (directory / "data_batch_1.bin").write_bytes(b"".join(records[:4]))
    (directory / "data_batch_2.bin").write_bytes(b"".join(records[4:]))
    if test:
        (directory / "test_batch.bin").write_bytes(records[0])
    (directory / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")
    return directory


def cifar100(directory: Path) -> Path:
    directory.mkdir()
    planes = RGB.transpose(0, 3, 1, 2)
    records = [bytes([label % 2, label]) + image.tobytes() for label, image in zip(LABELS, planes, strict=True)]
    (directory / "train.bin").write_bytes(b"".join(records))
    (directory / "fine_label_names.txt").write_text("\n".join(f"fine{n}" for n in range(10)))
    (directory / "coarse_label_names.txt").write_text("even\nodd\n")
    return directory


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "train-images-idx3-ubyte").write_bytes(idx(GREY))
    (directory / "train-labels-idx1-ubyte").write_bytes(idx(np.array(LABELS, np.uint8)))
    return directory


def npy(directory: Path) -> Path:
    directory.mkdir()
    np.save(directory / "images.npy", RGB)
    np.save(directory / "labels.npy", np.array(LABELS))
    return directory


def test_cifar_10_gives_planes_labels_and_names_as_torchvision_gives_its_pickles(tmp_path: Path) -> None:
    seen = everywhere(cifar10(tmp_path / "cifar"), tmp_path, pixels=True)
    vision = torchvision().datasets
    folder = tmp_path / "reference" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    data = RGB.transpose(0, 3, 1, 2).reshape(7, -1)
    (folder / "one").write_bytes(pickle.dumps({"data": data, "labels": LABELS}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": TEN}))
    kind = type(
        "One",
        (vision.CIFAR10,),
        {"train_list": [["one", None]], "test_list": [], "meta": {**vision.CIFAR10.meta, "md5": None}},
    )
    reference = kind(tmp_path / "reference")
    assert seen.data == [np.asarray(image).tobytes() for image, _ in reference]
    assert seen.labels == [label for _, label in reference]
    assert seen.classes == reference.classes
    assert seen.names[3:5] == ["data_batch_1/00003.png", "data_batch_2/00000.png"]


def test_cifar_100_has_coarse_classes_beside_the_fine_ones(tmp_path: Path) -> None:
    seen = everywhere(cifar100(tmp_path / "cifar"), tmp_path, pixels=True)
    assert seen.data == [image.tobytes() for image in RGB]
    assert seen.labels == LABELS
    assert seen.classes[9] == "fine9"
    assert seen.fields == {"coarse": [label % 2 for label in LABELS]}


def test_files_for_training_and_for_testing_are_not_taken_together(tmp_path: Path) -> None:
    directory = cifar10(tmp_path / "cifar", test=True)
    with pytest.raises(SourceError, match="several splits"):
        listed(directory)
    assert len(listed(directory / "data_batch_*.bin")) == 7
    assert len(listed(directory / "test_batch.bin")) == 1
    directory = mnist(tmp_path / "mnist")
    for name in ("images-idx3", "labels-idx1"):
        shutil.copy(directory / f"train-{name}-ubyte", directory / f"t10k-{name}-ubyte")
    with pytest.raises(SourceError, match="several splits"):
        listed(directory)
    assert len(listed(directory / "t10k-images-idx3-ubyte")) == 7


def test_mnist_gives_what_torchvision_gives(tmp_path: Path) -> None:
    directory = mnist(tmp_path / "reference" / "MNIST" / "raw")
    seen = everywhere(directory, tmp_path, pixels=True)
    for name in ("images-idx3", "labels-idx1"):
        shutil.copy(directory / f"train-{name}-ubyte", directory / f"t10k-{name}-ubyte")
    reference = torchvision().datasets.MNIST(tmp_path / "reference")
    assert seen.data == [np.asarray(image.convert("RGB")).tobytes() for image, _ in reference]
    assert seen.labels == [label for _, label in reference]


@pytest.mark.parametrize(
    "array",
    [
        RGB,
        np.ascontiguousarray(RGB.transpose(0, 3, 1, 2)),
        GREY,
        GREY[..., None],
        GREY[:, None],
        RGB[:, :, :5],
        RGB[:1],
    ],
    ids=lambda array: "x".join(map(str, array.shape)),
)
def test_arrays_of_numpy_are_read_where_they_lie(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x_train.npy", array)
    np.save(tmp_path / "y_train.npy", np.array(LABELS[: len(array)], np.int16)[:, None])
    seen = everywhere(tmp_path / "x_train.npy", tmp_path, pixels=True)
    pixels = array.transpose(0, 2, 3, 1) if array.ndim == 4 and array.shape[1] in (1, 3) else array
    pixels = pixels if pixels.shape[-1] == 3 else np.repeat(pixels.reshape(len(array), 28, 20, 1), 3, 3)
    assert seen.data == [image.tobytes() for image in pixels]
    assert seen.labels == LABELS[: len(array)]
    assert seen.notes[0] == "x_train.npy: labels are read from y_train.npy"


def test_images_without_labels_are_unlabeled_and_a_note_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "pictures.npy", RGB)
    np.save(tmp_path / "y.npy", np.array(LABELS))
    with pytest.raises(
        SourceError, match=r"'y\.npy' \(is used if it is renamed to pictures_labels\.npy\) looks like labels"
    ):
        packer.convert(tmp_path / "pictures.npy", tmp_path / "made.lmdb")
    seen = everywhere(tmp_path / "pictures.npy", tmp_path, pixels=True, unlabeled=True)
    assert seen.labels == [-1] * 7
    assert seen.notes == [
        "unlabeled: 7 images (pictures/0.png, pictures/1.png, pictures/2.png, …): they have no label",
        "pictures.npy: no label file next to it",
    ]


@pytest.mark.parametrize("dtype", [np.int64, np.float64, bool])
def test_labels_of_numpy_may_be_one_hot(tmp_path: Path, dtype: type) -> None:
    np.save(tmp_path / "images.npy", RGB)
    np.save(tmp_path / "labels.npy", np.eye(10, dtype=dtype)[LABELS])
    assert everywhere(tmp_path / "images.npy", tmp_path, pixels=True).labels == LABELS


@pytest.mark.parametrize(
    "array",
    [
        RGB[0],
        RGB[0].transpose(2, 0, 1),
        RGB.astype(np.float32),
        np.asfortranarray(RGB),
        RGB[..., 0, 0],
        np.array([None]),
    ],
    ids=["one image", "one image in planes", "floats", "Fortran's order", "two axes", "objects"],
)
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(SourceError, match=r"x\.npy: (an array of|is in Fortran order|not an array of numbers)"):
        listed(tmp_path / "x.npy")


def test_what_would_have_to_be_unpickled_or_decompressed_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": b""}))
    with pytest.raises(SourceError, match=r"is a pickle.*Download the binary version of CIFAR"):
        listed(tmp_path / "data_batch_1")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREY)))
    with pytest.raises(SourceError, match="gunzip"):
        listed(tmp_path / "train-images-idx3-ubyte.gz")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _without_labels(path: Path) -> None:
    path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1")).unlink()


def _other_labels(path: Path) -> None:
    path.with_name("train-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))


@pytest.mark.parametrize(
    ("make", "name", "damage", "message"),
    [
        (cifar10, "data_batch_2.bin", _cut, r"data_batch_2\.bin: 9218 bytes are not a multiple of a record's 3073"),
        (cifar100, "train.bin", _cut, "are not a multiple of a record's 3074"),
        (
            cifar100,
            "coarse_label_names.txt",
            lambda path: path.write_text("one"),
            "the coarse class is 1, but there are 1",
        ),
        (cifar100, "fine_label_names.txt", lambda path: path.write_bytes(b"\xff"), "is not a text file"),
        (
            cifar100,
            "fine_label_names.txt",
            lambda path: path.write_text("one"),
            r"train/00000\.png: its label is 3, but there are 1 classes",
        ),
        (mnist, "train-images-idx3-ubyte", _cut, "are not the size of 7 x 28 x 20"),
        (mnist, "train-labels-idx1-ubyte", _cut, "are not the size of 7"),
        (mnist, "train-images-idx3-ubyte", _without_labels, "are not in the same directory"),
        (mnist, "train-images-idx3-ubyte", _other_labels, "has 7 images, but .* has 3 labels"),
        (npy, "images.npy", _cut, "it was cut short"),
        (npy, "labels.npy", _cut, r"labels\.npy: .* it was cut short"),
        (
            npy,
            "labels.npy",
            lambda path: np.save(path, np.full(7, 0.5)),
            "are not class ids: some numbers are not integers",
        ),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, make: Callable[[Path], Path], name: str, damage: Callable[[Path], object], message: str
) -> None:
    directory = make(tmp_path / "set")
    damage(directory / name)
    with pytest.raises(SourceError, match=message):
        listed(directory)


def test_changed_labels_make_a_kept_index_another(tmp_path: Path) -> None:
    directory = mnist(tmp_path / "set")
    kept = tmp_path / "kept.index"
    assert packer.open_dataset(directory, index=kept)[0][1] == 3
    (directory / "train-labels-idx1-ubyte").write_bytes(idx(np.array([7, *LABELS[1:]], np.uint8)))
    os.utime(directory / "train-labels-idx1-ubyte", ns=(1, 1))
    assert packer.open_dataset(directory, index=kept)[0][1] == 7


def test_an_archive_of_arrays_is_refused_with_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(SourceError, match=r"a.npz: is an archive of arrays. Extract it.*unzip a.npz"):
        packer.index(tmp_path / "a.npz", tmp_path / "a.index")
    with pytest.raises(packer.NotAPackError, match=r"a.npz: is an archive of arrays. Extract it"):
        packer.info(tmp_path / "a.npz")
