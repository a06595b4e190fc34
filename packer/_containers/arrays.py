"""Images in arrays: NumPy's ``.npy``, the binary files of CIFAR, and the IDX files of MNIST.

``X.npy`` holds N x H x W x 3, N x 3 x H x W or N x H x W bytes, in C order. The labels are in ``X_labels.npy``; the
labels of ``x.npy`` may also be in ``y.npy``, and those of ``images.npy`` in ``labels.npy``. Labels are N whole numbers,
stored as integers or floats; N x 1 numbers; or N x C one-hot rows. A regular expression parses the headers; no code in
a header is evaluated.

CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): a record has a class of 1 byte (in CIFAR-100 two
bytes: the coarse class, then the fine class) and 32 x 32 pixels. The pixels are a red plane, a green plane and a blue
plane, each stored row by row. Text files next to the binary files list the names of the classes, one on each line.

IDX (http://yann.lecun.com/exdb/mnist) is also the format of Fashion-MNIST, KMNIST and EMNIST. A file is big-endian: u16
0, u8 type (8: bytes), u8 number of axes, a u32 length for each axis, and the elements. An array of images has three
axes, and its pixels are grey; an array of labels has one axis. ``X-labels-idx1-ubyte`` has the labels of
``X-images-idx3-ubyte``.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers.blocks import ContainerFile, reading, text_in
from packer._containers.contract import Container, Entry, Piece, PixelLayout, natural, no_keys
from packer._containers.roles import are_one_hot, are_whole, has_label_name
from packer._fields import Field
from packer.errors import SourceError, printable

WANTED = "uint8, N x H x W x 3, N x 3 x H x W or N x H x W"

_CHANNELS = (1, 3, 4)


def pixel_layout(shape: Sequence[int], *, of_many: bool = False) -> tuple[PixelLayout, int, int] | None:
    """Return the pixel layout, height and width of the images in an array of bytes.

    The result is None if the array does not hold images. It is also None if the layout is ambiguous: an array of three
    axes, one of them with 1, 3 or 4 elements, may be a single image with channels. If `of_many` is true, the caller
    knows that the array holds many images, and that the first axis counts them.
    """
    if 0 in shape[1:]:
        return None
    if len(shape) == 3 and (of_many or not may_be_one_image(shape)):
        return PixelLayout("HWC", "L"), shape[1], shape[2]
    if len(shape) != 4 or (shape[1] in (1, 3) and shape[3] in (1, 3)):
        return None
    if shape[3] in (1, 3):
        return PixelLayout("HWC", "L" if shape[3] == 1 else "RGB"), shape[1], shape[2]
    if shape[1] in (1, 3):
        return PixelLayout("CHW", "L" if shape[1] == 1 else "RGB"), shape[2], shape[3]
    return None


def may_be_one_image(shape: Sequence[int]) -> bool:
    """Tell whether an array of three axes may be a single image with the channels first or last."""
    return len(shape) == 3 and (shape[0] in _CHANNELS or shape[2] in _CHANNELS)


def undecided(shape: Sequence[int]) -> str:
    """Return the end of the error message for an array of three axes that may be a single image."""
    return f"which may be a single image with channels or {shape[0]} grey images. Write grey images as N x H x W x 1"


def matlab_layout(shape: Sequence[int], *, of_many: bool = False) -> tuple[PixelLayout, int, int] | None:
    """Do the same as `pixel_layout` for an array that MATLAB wrote.

    MATLAB stores images as H x W x C x N, column by column, and HDF5 reports the axes in reverse order: N x C x W x H.
    """
    found = pixel_layout(shape, of_many=of_many)
    if found is None or (len(shape) == 4 and found[0].order != "CHW"):
        return None
    return PixelLayout("CWH", found[0].channels), shape[-1], shape[-2]


_ARCHIVE = ".npz"
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 4096  # bytes of a header
_NPY_BLOCK = 1 << 14
_WORDS = {"images": "labels", "image": "label", "imgs": "labels", "data": "labels", "x": "y", "X": "y"}
_LABELS = re.compile(r"(?:.*[_-])?(?:labels?|targets?|y)(?:[_-].*)?\.npy", re.IGNORECASE)


@dataclass(eq=False)
class NpyImages(Container):
    """``.npy`` files of images, with label files next to them."""

    kind = "npy"
    suffixes = (".npy",)

    labels: Sequence[int] = ()
    """For each image file, the index in `files` of its label file; -1 for an image file without labels."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return (path.suffix == ".npy" and head.startswith(_MAGIC)) or path.suffix == _ARCHIVE

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        if any(not name.startswith(".") and not name.endswith((".npy", ".txt", ".md", ".json")) for name in names):
            return None  # the arrays may be masks or features of images
        found = sorted(
            (path / name for name in names if name.endswith(".npy") and not _LABELS.fullmatch(name)), key=natural
        )
        return found or None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> NpyImages:
        no_keys(cls.kind, keys)
        if archives := [path for path in paths if path.suffix == _ARCHIVE]:
            raise SourceError(
                f"{printable(archives[0])}: is an archive of arrays. Extract it, and pass the .npy file of the "
                f"images: unzip {printable(archives[0].name)}"
            )
        sidecars, numbers, layouts, notes = list[Path](), list[int](), set[PixelLayout](), list[str]()
        likely = list[Path]()
        for path in paths:
            with reading(path) as file:
                layouts.add(_images(file)[1])
            sidecar = _labels_of(path)
            if sidecar is not None:
                numbers.append(len(paths) + len(sidecars))
                sidecars.append(sidecar)
                notes.append(f"{printable(path.name)}: labels are read from {printable(sidecar.name)}")
            else:
                numbers.append(-1)
                likely += [name for name in _label_files(path) if name not in likely]
                notes.append(f"{printable(path.name)}: no label file next to it")
        if len(layouts) > 1:
            raise SourceError(f"{printable(paths[0])}: some of the files are grey, others have three channels")
        container = cls.of_files(paths, sidecars, pixels=layouts.pop(), notes=notes[:5])
        container.labels = numbers
        for path in likely:
            why = f"is used if it is renamed to {paths[0].stem}_labels.npy"
            container.account.looks_like_labels("file", path.name, "", why)
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        stem = self.files[unit].removesuffix(".npy")
        assert self.pixels is not None
        with self.reading(unit) as file:
            begin, _, (count, height, width) = _images(file)
            labels = self._labels(unit, count)
            size, digits = self.pixels.size(height, width), len(str(count))
            for number in range(count):
                piece = Piece(unit, begin + number * size, size)
                yield Entry(f"{stem}/{number:0{digits}d}.png", piece, next(labels), {}, (height, width))

    def _labels(self, unit: int, count: int) -> Iterator[int | None]:
        """Yield the labels of a file's images."""
        if self.labels[unit] < 0:
            yield from (None for _ in range(count))
            return
        with self.reading(self.labels[unit]) as file:
            begin, dtype, shape = _header(file)
            row = math.prod(shape[1:])

            def blocks() -> Iterator[npt.NDArray[Any]]:
                for first in range(0, count, _NPY_BLOCK):
                    part = min(_NPY_BLOCK, count - first) * row
                    data = file.read(begin + first * row * dtype.itemsize, part * dtype.itemsize)
                    yield np.frombuffer(data, dtype).reshape(-1, row)

            if shape[:1] != (count,) or (len(shape) > 2 and row > 1) or not row:
                raise SourceError(f"{file.path}: {dtype} {shape} cannot be labels of {count} images")
            if row > 1 and are_one_hot(blocks()):
                yield from (int(index) for block in blocks() for index in block.argmax(axis=1))
            elif row == 1 and dtype.kind in "iub":
                yield from (int(label) for block in blocks() for label in block[:, 0])
            elif row == 1 and are_whole(blocks())[0]:
                yield from (None if np.isnan(label) else int(label) for block in blocks() for label in block[:, 0])
            else:
                what = "several numbers for each image, not one-hot" if row > 1 else "some numbers are not integers"
                raise SourceError(f"{file.path}: {dtype} {shape} are not class ids: {what}")


def _images(file: ContainerFile) -> tuple[int, PixelLayout, tuple[int, int, int]]:
    """Return the offset of the first image, the pixel layout, and the number, height and width of the images."""
    begin, dtype, shape = _header(file)
    found = pixel_layout(shape) if dtype == np.uint8 else None
    if found is None:
        if dtype == np.uint8 and may_be_one_image(shape):
            raise SourceError(f"{file.path}: an array of {dtype} {shape}, {undecided(shape)}")
        raise SourceError(f"{file.path}: an array of {dtype} {shape}; images must be {WANTED}")
    layout, height, width = found
    return begin, layout, (shape[0], height, width)


_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[?a-zA-Z][0-9]*)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18}(?:, ?|(?=\))))*)\),? *\} *\n?"
)


def _header(file: ContainerFile) -> tuple[int, np.dtype[np.generic], tuple[int, ...]]:
    """Return offset, dtype and shape of an array's elements; SourceError if the elements do not fill the file."""
    magic, major, _ = struct.unpack("<6sBB", file.read(0, 8))
    start = 10 if major == 1 else 12
    length = int.from_bytes(file.read(8, start - 8), "little")
    if magic != _MAGIC or major not in (1, 2, 3) or length > _LONGEST_HEADER:
        raise SourceError(f"{file.path}: not a NumPy array")
    match = _HEADER.fullmatch(file.read(start, length))
    try:
        dtype: np.dtype[np.generic] = np.dtype(match[1].decode() if match else "O")
    except TypeError:
        dtype = np.dtype("O")
    if match is None or dtype.kind not in "biuf":
        raise SourceError(f"{file.path}: not an array of numbers; packer reads no other NumPy arrays")
    shape = tuple(int(number) for number in re.findall(rb"[0-9]+", match[3]))
    if match[2] == b"True" and len(shape) > 1:
        raise SourceError(
            f"{file.path}: is in Fortran order. Write it in C order: np.save(path, np.ascontiguousarray(array))"
        )
    if math.prod(shape) * dtype.itemsize != file.size - start - length:
        raise SourceError(
            f"{file.path}: {file.size} bytes are not the size of {dtype} {shape}: it was cut short, or is damaged"
        )
    return start + length, dtype, shape


def _label_files(path: Path) -> list[Path]:
    """Return the ``.npy`` files in the same directory whose names contain a word for labels."""
    return [file for file in sorted(path.parent.glob("*.npy")) if file != path and has_label_name(file.stem)]


def _labels_of(path: Path) -> Path | None:
    """Return the label file of an image file, such as ``X_labels.npy`` for ``X.npy``; None if there is none."""
    stem = path.stem
    names = [f"{stem}_labels", f"{stem}-labels"]
    for word, label in _WORDS.items():
        found = re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", label, stem)
        names += [found] if found != stem else []
    return next((file for name in names if os.path.isfile(file := path.with_name(f"{name}.npy"))), None)


_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_TEN = re.compile(r"(data_batch_[0-9]+|test_batch)\.bin")
_HUNDRED = re.compile(r"(train|test)\.bin")
_PICKLES = re.compile(r"data_batch_[0-9]+|test_batch")
_NAMES = {1: ("batches.meta.txt",), 2: ("fine_label_names.txt", "coarse_label_names.txt")}
_LONGEST_META = 1 << 16
_CIFAR_BLOCK = 256  # records


@dataclass(eq=False)
class CIFAR(Container):
    """CIFAR's binary files, such as ``data_batch_1.bin``, ``test_batch.bin`` and ``train.bin``."""

    kind = "cifar"

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if _HUNDRED.fullmatch(path.name):  # other tools use this name too
            return os.path.isfile(path.with_name(_NAMES[2][0]))
        return _TEN.fullmatch(path.name) is not None or (
            _PICKLES.fullmatch(path.name) is not None and head[:1] == b"\x80"
        )

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        binary = [name for name in names if _bytes_of_labels(name)]
        pickles = [name for name in names if _PICKLES.fullmatch(name)] if "batches.meta" in names else []
        if any(_bytes_of_labels(name) == 2 for name in binary) and _NAMES[2][0] not in names:
            return None
        found = sorted((path / name for name in binary or pickles), key=natural)
        return found or None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> CIFAR:
        no_keys(cls.kind, keys)
        for path in paths:
            if not _bytes_of_labels(path.name):
                raise SourceError(
                    f"{printable(path)}: is a pickle, which can run any code. Download the binary version of CIFAR: "
                    "cifar-10-binary.tar.gz, cifar-100-binary.tar.gz"
                )
        labels = _bytes_of_labels(paths[0].name)
        if any(_bytes_of_labels(path.name) != labels for path in paths):
            raise SourceError(f"{printable(paths[0])}: some of the files are from CIFAR-10, others from CIFAR-100")
        sidecar = [file for name in _NAMES[labels] if os.path.isfile(file := paths[0].parent / name)]
        container = cls.of_files(paths, sidecar, pixels=PixelLayout("CHW", "RGB"))
        names = {file.name: _lines(file) for file in sidecar}
        container.classes = names.get(_NAMES[labels][0])
        if labels == 2:
            container.fields = (Field("coarse", "class", classes=tuple(names.get(_NAMES[2][1], ()))),)
        if container.classes is None:
            container.notes.append(f"classes have no names, because there is no {_NAMES[labels][0]}")
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        name = self.files[unit]
        stem, labels = name.removesuffix(".bin"), 1 + len(self.fields)
        size = labels + _PIXELS
        with self.reading(unit) as file:
            if file.size % size:
                raise SourceError(
                    f"{file.path}: {file.size} bytes are not a multiple of a record's {size}: it was cut short"
                )
            for first in range(0, file.size, _CIFAR_BLOCK * size):
                block = file.read(first, min(_CIFAR_BLOCK * size, file.size - first))
                for begin in range(0, len(block), size):
                    start, label = first + begin, block[begin + labels - 1]
                    piece = Piece(unit, start + labels, _PIXELS)
                    entry = Entry(f"{stem}/{start // size:05d}.png", piece, label, {}, (_SIDE, _SIDE))
                    yield self._with_coarse(entry, block[begin], start) if labels == 2 else entry

    def _with_coarse(self, entry: Entry, number: int, start: int) -> Entry:
        """Add the coarse class to an entry; set the entry's `problem` if the class does not exist."""
        known = len(self.fields[0].classes)
        wrong = f"byte {start}: the coarse class is {number}, but there are {known}" if number >= known > 0 else ""
        return entry._replace(values={"coarse": number}, problem=wrong)


def _bytes_of_labels(name: str) -> int:
    """Return how many label bytes each record has in a file of this name; 0 if no CIFAR file has this name."""
    return 1 if _TEN.fullmatch(name) else 2 if _HUNDRED.fullmatch(name) else 0


def _lines(path: Path) -> list[str]:
    """Return the class names in a text file, one from each line."""
    lines = text_in(path, _LONGEST_META).splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.strip() for line in lines]


_IMAGES = re.compile(r"(.*)images([-.])idx3-ubyte(\.gz)?")
_BYTES = 8
_IDX_BLOCK = 1 << 16


@dataclass(eq=False)
class MNIST(Container):
    """IDX files ``X-images-idx3-ubyte``, with their labels in ``X-labels-idx1-ubyte`` in the same directory."""

    kind = "mnist"

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return _IMAGES.fullmatch(path.name) is not None and head[:4] in (
            b"\0\0\x08\x03",
            b"\x1f\x8b\x08\0",
            b"\x1f\x8b\x08\x08",
        )

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        found = [name for name in names if _IMAGES.fullmatch(name)]
        plain = {name for name in found if not name.endswith(".gz")}
        chosen = sorted((path / name for name in plain or found), key=natural)
        return chosen or None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> MNIST:
        no_keys(cls.kind, keys)
        sidecar = []
        for path in paths:
            if path.name.endswith(".gz"):
                raise SourceError(
                    f"{printable(path)}: is compressed. Decompress it and its labels first: `gunzip FILE.gz`"
                )
            match = _IMAGES.fullmatch(path.name)
            assert match is not None
            labels = path.with_name(f"{match[1]}labels{match[2]}idx1-ubyte")
            if not os.path.isfile(labels):
                raise SourceError(
                    f"{printable(path)}: its labels, {printable(labels.name)}, are not in the same directory"
                )
            sidecar.append(labels)
        container = cls.of_files(paths, sidecar, pixels=PixelLayout("HWC", "L"))
        if paths[0].name.startswith("emnist"):
            container.notes.append("EMNIST stores its images transposed; torchvision does not correct this either")
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        name = self.files[unit]
        with self.reading(unit) as images, self.reading(self.units + unit) as labels:
            count, height, width = _shape(images, 3)
            (labelled,) = _shape(labels, 1)
            if labelled != count:
                raise SourceError(f"{images.path}: has {count} images, but {labels.path} has {labelled} labels")
            size, begin = height * width, 4 * (1 + 3)
            stem, digits = re.sub(r"[-.]idx3-ubyte$", "", name), len(str(count))
            for first in range(0, count, _IDX_BLOCK):
                block = labels.read(4 * (1 + 1) + first, min(_IDX_BLOCK, count - first))
                for number, label in enumerate(block, first):
                    piece = Piece(unit, begin + number * size, size)
                    yield Entry(f"{stem}/{number:0{digits}d}.png", piece, label, {}, (height, width))


def _shape(file: ContainerFile, axes: int) -> tuple[int, ...]:
    """Return an array's shape from an IDX header; SourceError if the shape does not match the file's size."""
    zero, type, found = struct.unpack(">HBB", file.read(0, 4))
    if zero or type != _BYTES or found != axes:
        raise SourceError(f"{file.path}: not an IDX file of bytes with {axes} ax{'i' if axes == 1 else 'e'}s")
    shape: tuple[int, ...] = struct.unpack(f">{axes}I", file.read(4, 4 * axes))
    if file.size - 4 * (1 + axes) != math.prod(shape) or 0 in shape[1:]:
        raise SourceError(
            f"{file.path}: {file.size} bytes are not the size of {' x '.join(map(str, shape))}: it was cut "
            "short, or is damaged"
        )
    return shape
