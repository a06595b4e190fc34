"""Where the images of a source lie, and the values of its fields, counted as an index counts them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer._containers import ForeignFiles, PixelLayout, Ranges
from packer._fields import Field
from packer._sources.base import Source
from packer._sources.container import ContainerSource
from packer._sources.fieldvalues import Files, InContainer
from packer._storage.packfile import Descriptor
from packer._storage.stamps import Stamps, take_stamps
from packer._table import Ints, Names
from packer.errors import SourceError, printable

__all__ = ["Places"]


@dataclass(frozen=True, eq=False)
class Places:
    """Where the images and the values of fields lie.

    Attributes
    ----------
    files : ForeignFiles
    images : Ranges
    ranges : dict of str to Ranges
        Where the values of each field lie, if they lie in files.
    copied : (B,) uint8 array
    pixels : PixelLayout, optional
    shapes : (N, 2) int64 array
        Height and width of images that are pixels; 0 of encoded images.
    """

    files: ForeignFiles
    images: Ranges
    ranges: dict[str, Ranges]
    copied: npt.NDArray[np.uint8]
    pixels: PixelLayout | None
    shapes: Ints

    @classmethod
    def of(cls, source: Source) -> Places:
        """Find the places; SourceError where the disk fails."""
        if isinstance(source, ContainerSource):
            if source.pixels is not None and not source.shapes.any(axis=1).all():
                raise SourceError(
                    f"{printable(source.root)}: some images are pixels, and others are encoded, which an index cannot "
                    "list together: convert them"
                )
            ranges = {column.field.name: column.ranges for column in source.columns if isinstance(column, InContainer)}
            return cls(source.files, source.images, ranges, source.copied, source.pixels, source.shapes)
        columns = [column for column in source.columns if isinstance(column, Files) and column.field.kind != "array"]
        listed = _Listed(source, columns)
        stamps = take_stamps(listed.root, listed.names)
        ranges = {column.field.name: listed.ranges(column, stamps) for column in columns}
        count = len(source)
        images = Ranges(np.arange(count), np.zeros(count, np.int64), stamps[:count, 0])
        none = np.empty(0, np.uint8), None, np.zeros((count, 2), np.int64)
        return cls(ForeignFiles(listed.root, listed.names, stamps), images, ranges, *none)

    @functools.cached_property
    def directory(self) -> Descriptor:
        """The directory that the files are relative to."""
        return Descriptor(os.open(self.files.root, os.O_RDONLY))

    @functools.cached_property
    def starts(self) -> Ints:
        """Where each file begins, counted through all; and last, where the index's own data begin."""
        sizes = np.maximum(self.files.stamps[:, 0], 0)
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def holds_all(self, fields: Iterable[Field]) -> bool:
        """Tell whether all values that are bytes lie in files."""
        return all(field.name in self.ranges for field in fields if field.is_blob)

    def offsets(self, ranges: Ranges, rows: slice) -> Ints:
        """Return where values begin, counted through all files and then through the index's own data."""
        part = ranges.taken(rows)
        return part.offset + self.starts[np.maximum(part.file, -1)]


class _Listed:
    """All files of a source below one directory: those of the images, and then those of fields, each once."""

    def __init__(self, source: Source, columns: list[Files]) -> None:
        self.root, self.names = Path(os.path.abspath(source.root)), source.names
        if not columns:
            return
        paths = [os.path.abspath(source.path(index)) for index in range(len(source))]
        self._numbers = {path: number for number, path in enumerate(paths)}
        for column in columns:
            for index in range(len(column)):
                if (path := column.path(index)) is not None:
                    self._numbers.setdefault(os.path.abspath(path), len(self._numbers))
        self.root = Path(os.path.commonpath([self.root, *map(os.path.dirname, self._numbers)]))
        self.names = Names.of(Path(os.path.relpath(path, self.root)).as_posix() for path in self._numbers)

    def ranges(self, column: Files, stamps: Stamps) -> Ranges:
        """Return where the values of a field lie: whole files."""
        paths = (column.path(index) for index in range(len(column)))
        file = np.array([-1 if path is None else self._numbers[os.path.abspath(path)] for path in paths], np.int64)
        size = np.where(file < 0, -1, stamps[np.maximum(file, 0), 0])
        return Ranges(file, np.zeros(len(file), np.int64), size)
