"""MNIST's IDX files (http://yann.lecun.com/exdb/mnist): also those of Fashion-MNIST, KMNIST, EMNIST.

Layout, big-endian: u16 0, u8 type (8: bytes), u8 axes, for each axis u32 length, and the elements. Images have three
axes, and pixels are grey; labels have one. ``X-labels-idx1-ubyte`` has the labels of ``X-images-idx3-ubyte``.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packer._containers.contract import Container, Entry, Piece, PixelLayout, natural, no_keys
from packer._containers.shards.reading import Reading, reading
from packer.errors import SourceError, printable

__all__ = ["MNIST"]

_IMAGES = re.compile(r"(.*)images([-.])idx3-ubyte(\.gz)?")
_BYTES = 8
_BLOCK = 1 << 16


@dataclass(eq=False)
class MNIST(Container):
    """Files ``X-images-idx3-ubyte`` with ``X-labels-idx1-ubyte`` beside."""

    kind = "mnist"

    data: int = 0
    """How many of `files` have images; after them come their files of labels, in the same order."""

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
        beside = []
        for path in paths:
            if path.name.endswith(".gz"):
                raise SourceError(
                    f"{printable(path)}: is compressed. Decompress it and its labels first: `gunzip FILE.gz`"
                )
            match = _IMAGES.fullmatch(path.name)
            assert match is not None
            labels = path.with_name(f"{match[1]}labels{match[2]}idx1-ubyte")
            if not os.path.isfile(labels):
                raise SourceError(f"{printable(path)}: its labels, {printable(labels.name)}, are not beside it")
            beside.append(labels)
        container = cls.of_files([*paths, *beside], pixels=PixelLayout("HWC", "L"))
        container.data = len(paths)
        if paths[0].name.startswith("emnist"):
            container.notes.append("EMNIST's images lie on their side, and torchvision shows them so too")
        return container

    @property
    def units(self) -> int:
        return self.data

    def entries(self, unit: int) -> Iterator[Entry]:
        name, labels_of = self.files[unit], self.root / self.files[self.data + unit]
        with reading(self.root / name) as images, reading(labels_of) as labels:
            count, height, width = _shape(images, 3)
            (labelled,) = _shape(labels, 1)
            if labelled != count:
                raise SourceError(f"{images.path}: has {count} images, and {labels.path} has {labelled} labels")
            size, begin = height * width, 4 * (1 + 3)
            stem, digits = re.sub(r"[-.]idx3-ubyte$", "", name), len(str(count))
            for first in range(0, count, _BLOCK):
                block = labels.read(4 * (1 + 1) + first, min(_BLOCK, count - first))
                for number, label in enumerate(block, first):
                    piece = Piece(unit, begin + number * size, size)
                    yield Entry(f"{stem}/{number:0{digits}d}.png", piece, label, {}, (height, width))


def _shape(file: Reading, axes: int) -> tuple[int, ...]:
    """Return the lengths of the axes; SourceError where the file does not hold just so many bytes."""
    zero, type, found = struct.unpack(">HBB", file.read(0, 4))
    if zero or type != _BYTES or found != axes:
        raise SourceError(f"{file.path}: no IDX file of bytes with {axes} ax{'i' if axes == 1 else 'e'}s")
    shape: tuple[int, ...] = struct.unpack(f">{axes}I", file.read(4, 4 * axes))
    if file.size - 4 * (1 + axes) != math.prod(shape) or 0 in shape[1:]:
        raise SourceError(
            f"{file.path}: {file.size} bytes hold no {' x '.join(map(str, shape))}: it was cut short, or is damaged"
        )
    return shape
