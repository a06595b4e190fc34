"""Images in an array of NumPy, ``X.npy``: N x H x W x 3, N x 3 x H x W or N x H x W bytes, in C's order.

Labels are those of ``X_labels.npy`` or, beside ``x.npy`` and ``images.npy``, of ``y.npy`` and ``labels.npy``: N whole
numbers, also as floats, N x 1, or one-hot N x C. Headers are read by a pattern, and nothing is evaluated.
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

from packer._account import has_label_name
from packer._containers.arrays.pixelarrays import WANTED, may_be_one_image, pixel_layout, undecided
from packer._containers.contract import Container, Entry, Piece, PixelLayout, natural, no_keys
from packer._containers.numericlabels import are_one_hot, are_whole
from packer._containers.shards.reading import Reading, reading
from packer.errors import SourceError, printable

__all__ = ["NpyImages"]

_ARCHIVE = ".npz"
_MAGIC = b"\x93NUMPY"
_LONGEST = 4096  # bytes of a header
_BLOCK = 1 << 14
_WORDS = {"images": "labels", "image": "label", "imgs": "labels", "data": "labels", "x": "y", "X": "y"}
_LABELS = re.compile(r"(?:.*[_-])?(?:labels?|targets?|y)(?:[_-].*)?\.npy", re.IGNORECASE)


@dataclass(eq=False)
class NpyImages(Container):
    """Files ``.npy``, with those of their labels beside."""

    kind = "npy"
    suffixes = (".npy",)

    labels: Sequence[int] = ()
    """The number in `files` of each file's labels, -1 where it has none."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return (path.suffix == ".npy" and head.startswith(_MAGIC)) or path.suffix == _ARCHIVE

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        if any(not name.startswith(".") and not name.endswith((".npy", ".txt", ".md", ".json")) for name in names):
            return None  # masks or features, perhaps, beside the images
        found = sorted(
            (path / name for name in names if name.endswith(".npy") and not _LABELS.fullmatch(name)), key=natural
        )
        return found or None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> NpyImages:
        no_keys(cls.kind, keys)
        if archives := [path for path in paths if path.suffix == _ARCHIVE]:
            raise SourceError(
                f"{printable(archives[0])}: is an archive of arrays. Unpack it, and name the .npy of the images: "
                f"unzip {printable(archives[0].name)}"
            )
        files, numbers, layouts, notes = list(paths), list[int](), set[PixelLayout](), list[str]()
        likely = list[Path]()
        for path in paths:
            with reading(path) as file:
                layouts.add(_images(file)[1])
            beside = _labels_of(path)
            numbers.append(-1 if beside is None else len(files))
            if beside is not None:
                files.append(beside)
            else:
                likely += [name for name in _label_files(path) if name not in likely]
            what = "no labels beside it" if beside is None else f"its labels are those of {printable(beside.name)}"
            notes.append(f"{printable(path.name)}: {what}")
        if len(layouts) > 1:
            raise SourceError(f"{printable(paths[0])}: some of the files are grey, and others of three channels")
        container = cls.of_files(files, pixels=layouts.pop(), notes=notes[:5])
        container.labels = numbers
        for path in likely:
            why = f"is taken where it is called {paths[0].stem}_labels.npy"
            container.account.looks_like_labels("file", path.name, "", why)
        return container

    @property
    def units(self) -> int:
        return len(self.labels)

    def entries(self, unit: int) -> Iterator[Entry]:
        stem = self.files[unit].removesuffix(".npy")
        assert self.pixels is not None
        with reading(self.root / self.files[unit]) as file:
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
        with reading(self.root / self.files[self.labels[unit]]) as file:
            begin, dtype, shape = _header(file)
            row = math.prod(shape[1:])

            def blocks() -> Iterator[npt.NDArray[Any]]:
                for first in range(0, count, _BLOCK):
                    part = min(_BLOCK, count - first) * row
                    data = file.read(begin + first * row * dtype.itemsize, part * dtype.itemsize)
                    yield np.frombuffer(data, dtype).reshape(-1, row)

            if shape[:1] != (count,) or (len(shape) > 2 and row > 1) or not row:
                raise SourceError(f"{file.path}: {dtype} {shape} are no labels of {count} images")
            if row > 1 and are_one_hot(blocks()):
                yield from (int(place) for block in blocks() for place in block.argmax(axis=1))
            elif row == 1 and dtype.kind in "iub":
                yield from (int(label) for block in blocks() for label in block[:, 0])
            elif row == 1 and are_whole(blocks())[0]:
                yield from (None if np.isnan(label) else int(label) for block in blocks() for label in block[:, 0])
            else:
                what = "several numbers an image, not one-hot" if row > 1 else "numbers that are not whole"
                raise SourceError(f"{file.path}: {dtype} {shape} are no class ids: {what}")


def _images(file: Reading) -> tuple[int, PixelLayout, tuple[int, int, int]]:
    """Return where images begin, how their pixels lie, and how many they are, their height and width."""
    begin, dtype, shape = _header(file)
    found = pixel_layout(shape) if dtype == np.uint8 else None
    if found is None:
        if dtype == np.uint8 and may_be_one_image(shape):
            raise SourceError(f"{file.path}: an array of {dtype} {shape}, {undecided(shape)}")
        raise SourceError(f"{file.path}: an array of {dtype} {shape}, and images are {WANTED}")
    layout, height, width = found
    return begin, layout, (shape[0], height, width)


_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[?a-zA-Z][0-9]*)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18}(?:, ?|(?=\))))*)\),? *\} *\n?"
)


def _header(file: Reading) -> tuple[int, np.dtype[np.generic], tuple[int, ...]]:
    """Return where the elements begin, their dtype and the shape; SourceError where they do not fill the file."""
    magic, major, _ = struct.unpack("<6sBB", file.read(0, 8))
    start = 10 if major == 1 else 12
    length = int.from_bytes(file.read(8, start - 8), "little")
    if magic != _MAGIC or major not in (1, 2, 3) or length > _LONGEST:
        raise SourceError(f"{file.path}: no array of NumPy")
    match = _HEADER.fullmatch(file.read(start, length))
    try:
        dtype: np.dtype[np.generic] = np.dtype(match[1].decode() if match else "O")
    except TypeError:
        dtype = np.dtype("O")
    if match is None or dtype.kind not in "biuf":
        raise SourceError(f"{file.path}: no array of numbers: packer reads no texts and objects of NumPy")
    shape = tuple(int(number) for number in re.findall(rb"[0-9]+", match[3]))
    if match[2] == b"True" and len(shape) > 1:
        raise SourceError(
            f"{file.path}: lies in Fortran's order. Write it anew: np.save(path, np.ascontiguousarray(array))"
        )
    if math.prod(shape) * dtype.itemsize != file.size - start - length:
        raise SourceError(f"{file.path}: {file.size} bytes hold no {dtype} {shape}: it was cut short, or is damaged")
    return start + length, dtype, shape


def _label_files(path: Path) -> list[Path]:
    """Return files beside one of images that are called as labels are."""
    return [file for file in sorted(path.parent.glob("*.npy")) if file != path and has_label_name(file.stem)]


def _labels_of(path: Path) -> Path | None:
    """Return the file of the labels of a file of images: it has the same name but for the word."""
    stem = path.stem
    names = [f"{stem}_labels", f"{stem}-labels"]
    for word, label in _WORDS.items():
        found = re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", label, stem)
        names += [found] if found != stem else []
    return next((file for name in names if os.path.isfile(file := path.with_name(f"{name}.npy"))), None)
