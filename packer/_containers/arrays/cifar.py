"""CIFAR-10 and CIFAR-100 in their binary version (https://www.cs.toronto.edu/~kriz/cifar.html).

A record is its class, 1 byte (of CIFAR-100 first the coarse class and then the fine one), and 32 x 32 pixels: the red
plane, the green and the blue, row after row. The classes' names are lines of text files beside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packer._containers.contract import Container, Entry, Piece, PixelLayout, natural, no_keys
from packer._containers.shards.reading import reading
from packer._fields import Field
from packer.errors import SourceError, printable

__all__ = ["CIFAR"]

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_TEN = re.compile(r"(data_batch_[0-9]+|test_batch)\.bin")
_HUNDRED = re.compile(r"(train|test)\.bin")
_PICKLES = re.compile(r"data_batch_[0-9]+|test_batch")
_NAMES = {1: ("batches.meta.txt",), 2: ("fine_label_names.txt", "coarse_label_names.txt")}
_LONGEST = 1 << 16
_BLOCK = 256  # records


@dataclass(eq=False)
class CIFAR(Container):
    """Files ``data_batch_1.bin``, ``test_batch.bin`` and ``train.bin``."""

    kind = "cifar"

    data: int = 0
    """How many of `files` have images; the others are names of classes."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if _HUNDRED.fullmatch(path.name):  # a name that others have too
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
                    f"{printable(path)}: is a pickle, which can run any code. Get CIFAR's binary version: "
                    "cifar-10-binary.tar.gz, cifar-100-binary.tar.gz"
                )
        labels = _bytes_of_labels(paths[0].name)
        if any(_bytes_of_labels(path.name) != labels for path in paths):
            raise SourceError(f"{printable(paths[0])}: some of the files are CIFAR-10's, and others CIFAR-100's")
        beside = [file for name in _NAMES[labels] if os.path.isfile(file := paths[0].parent / name)]
        container = cls.of_files([*paths, *beside], pixels=PixelLayout("CHW", "RGB"))
        container.data = len(paths)
        names = {file.name: _lines(file) for file in beside}
        container.classes = names.get(_NAMES[labels][0])
        if labels == 2:
            container.fields = (Field("coarse", "class", classes=tuple(names.get(_NAMES[2][1], ()))),)
        if container.classes is None:
            container.notes.append(f"classes have no names, as there is no {_NAMES[labels][0]}")
        return container

    @property
    def units(self) -> int:
        return self.data

    def entries(self, unit: int) -> Iterator[Entry]:
        name = self.files[unit]
        stem, labels = name.removesuffix(".bin"), 1 + len(self.fields)
        size = labels + _PIXELS
        with reading(self.root / name) as file:
            if file.size % size:
                raise SourceError(f"{file.path}: {file.size} bytes are no records of {size}: it was cut short")
            for first in range(0, file.size, _BLOCK * size):
                block = file.read(first, min(_BLOCK * size, file.size - first))
                for begin in range(0, len(block), size):
                    start, label = first + begin, block[begin + labels - 1]
                    values = {"coarse": self._coarse(file.path, start, block[begin])} if labels == 2 else {}
                    piece = Piece(unit, start + labels, _PIXELS)
                    yield Entry(f"{stem}/{start // size:05d}.png", piece, label, values, (_SIDE, _SIDE))

    def _coarse(self, path: str, start: int, number: int) -> int:
        known = len(self.fields[0].classes)
        if known and number >= known:
            raise SourceError(f"{path}: byte {start}: the coarse class is {number}, and there are {known}")
        return number


def _bytes_of_labels(name: str) -> int:
    """Return how many bytes of a record come before the pixels, in a file of a name; 0 where it is none of CIFAR's."""
    return 1 if _TEN.fullmatch(name) else 2 if _HUNDRED.fullmatch(name) else 0


def _lines(path: Path) -> list[str]:
    """Return the names of classes."""
    with reading(path) as file:
        if file.size > _LONGEST:
            raise SourceError(f"{file.path}: {file.size} bytes are no names of classes")
        try:
            lines = file.read(0, file.size).decode().splitlines()
        except UnicodeDecodeError as error:
            raise SourceError(f"{file.path}: is no text: {error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.strip() for line in lines]
