"""An index of a source: where its images and the values of its fields lie, and what a table says of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer import __version__
from packer._containers import COPIED, ForeignFiles, PixelLayout, Ranges
from packer._fields import Stored
from packer._formats.index import base_from, write_index
from packer._manifest import Manifest
from packer._sources.base import Source
from packer._sources.container import ContainerSource
from packer._sources.fieldvalues import Files, InContainer
from packer._sources.pack import PackSource
from packer._sources.survey import Surveyed, survey
from packer._storage.spool import Spool, TableBuilder
from packer._storage.stamps import Stamps, take_stamps
from packer._table import Buffer, Ints, Names, column_types, encode_name
from packer.errors import ImageError, OptionError, SourceError, printable

__all__ = ["build_index"]

_BLOCK = 1024  # images
_PIECE = 1 << 24  # bytes

ProgressCallback = Callable[[int, int], None]


def build_index(
    source: Source,
    directory: Path,
    destination: Path,
    *,
    checksums: bool = True,
    exif: str = "ignore",
    on_error: str = "fail",
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Write the index of a source into an empty directory, and return its manifest once all is on the disk.

    Parameters
    ----------
    source : Source
        Files, or samples of a container.
    directory : Path
    destination : Path
        Where the directory will be, from which relative paths are counted.
    checksums : bool
        Whether each sample is read, and its checksum kept.
    exif : {"ignore", "apply"}
        Whether images are shown as their EXIF orientation says.
    on_error : {"fail", "skip"}
        What to do with an image that cannot be read: stop, or leave it out and list it in the manifest.
    progress : callable, optional
        Called with how many images were looked at, and how many there are.

    Raises
    ------
    ImageError
        With ``on_error="fail"``, for the first image that cannot be read.
    OptionError
        If the source is a pack, or takes annotations that are computed.
    SourceError
        If the disk fails, or not one image can be read.
    """
    if isinstance(source, PackSource):
        raise OptionError(f"{printable(source.root)}: is a pack already, which needs no index")
    places = _Places.of(source)
    own = Spool()
    for start in range(0, len(places.copied), _PIECE):
        own.append(places.copied[start : start + _PIECE].tobytes())
    types = column_types(source.label_type, source.fields, apart=True)
    builder = TableBuilder(types=types)
    rows = _Rows(source, places, builder, own)
    for start in range(0, len(source), _BLOCK):
        block = range(start, min(start + _BLOCK, len(source)))
        for index, found in zip(block, survey(source, block, exif, checksums=checksums), strict=True):
            if found.reason and on_error == "fail":
                error = ImageError(found.reason, source.names[index])
                error.index = index
                raise error
            rows.add(index, found)
        if progress is not None:
            progress(block.stop, len(source))
    if not len(builder):
        raise SourceError(f"{printable(source.root)}: not one of its {len(source)} images can be read")
    manifest = Manifest(
        "index",
        len(builder),
        source.classes,
        source.label_type,
        source.fields,
        "keep" if places.pixels is None else "raw",
        {"codec": "keep", "exif": exif},
        list(map(dict, source.about)),
        source.describe(),
        rows.skipped,
        dict(sorted(rows.findings.items())),
        {"packer": __version__},
        schema=2,
    )
    return write_index(
        directory,
        manifest,
        builder.build(),
        places.files,
        base=base_from(places.files.root, destination),
        checksums=checksums,
        pixels=places.pixels,
        data=_pieces(own.array(np.uint8)),
    )


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the images and the values of fields lie.

    Attributes
    ----------
    files : ForeignFiles
    images : Ranges
    ranges : dict of str to Ranges
        Of the fields whose values lie in files.
    copied : (B,) uint8 array
    pixels : PixelLayout, optional
    shapes : (N, 2) int64 array
        Of pixels.
    """

    files: ForeignFiles
    images: Ranges
    ranges: dict[str, Ranges]
    copied: npt.NDArray[np.uint8]
    pixels: PixelLayout | None
    shapes: Ints

    @classmethod
    def of(cls, source: Source) -> _Places:
        if isinstance(source, ContainerSource):
            if source.pixels is not None and not source.shapes.any(axis=1).all():
                raise SourceError(
                    f"{printable(source.root)}: some images are pixels, and others are encoded, which an index cannot "
                    "list together: convert them"
                )
            ranges = {column.field.name: column.ranges for column in source.columns if isinstance(column, InContainer)}
            return cls(source.files, source.images, ranges, source.copied, source.pixels, source.shapes)
        columns = [column for column in source.columns if isinstance(column, Files)]
        root, names = _below_one_directory(source, columns)
        stamps = take_stamps(root, names)
        first, ranges = len(source), {}
        for column in columns:
            ranges[column.field.name], first = _whole_files(column, stamps, first)
        count = len(source)
        images = Ranges(np.arange(count), np.zeros(count, np.int64), stamps[:count, 0])
        none = np.empty(0, np.uint8), None, np.zeros((count, 2), np.int64)
        return cls(ForeignFiles(root, names, stamps), images, ranges, *none)


def _below_one_directory(source: Source, columns: list[Files]) -> tuple[Path, Names]:
    """Return a directory, and the paths of all files below it: those of the images, and then those of each field."""
    root = Path(os.path.abspath(source.root))
    if not columns:
        return root, source.names
    paths = [os.path.abspath(source.path(index)) for index in range(len(source))]
    for column in columns:
        paths += (os.path.abspath(path) for index in range(len(column)) if (path := column.path(index)) is not None)
    common = Path(os.path.commonpath([root, *map(os.path.dirname, paths)]))
    return common, Names.of(Path(os.path.relpath(path, common)).as_posix() for path in paths)


def _whole_files(column: Files, stamps: Stamps, first: int) -> tuple[Ranges, int]:
    """Return the ranges of values that are whole files, numbered from `first` on; and the number after the last."""
    present = column.paths.sizes >= 0
    number = first + np.cumsum(present) - 1
    file = np.where(present, number, COPIED)
    size = np.where(present, stamps[np.where(present, number, 0), 0], -1)
    return Ranges(file, np.zeros(len(file), np.int64), size), first + int(present.sum())


class _Rows:
    """Makes rows of the table of what was found."""

    def __init__(self, source: Source, places: _Places, builder: TableBuilder, own: Spool) -> None:
        self._source, self._places, self._builder, self._own = source, places, builder, own
        sizes = np.maximum(places.files.stamps[:, 0], 0)
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._end = len(places.copied)
        self.skipped: list[dict[str, str]] = []
        self.findings: Counter[str] = Counter()

    def add(self, index: int, found: Surveyed) -> None:
        source = self._source
        if found.reason:
            self.skipped.append({"name": source.names[index], "reason": found.reason})
            return
        self.findings.update(found.findings)
        size = int(self._places.images.size[index])
        if self._places.pixels is not None:
            size = found.height * found.width * 3
        self._builder.append(
            label=source.labels[index].item(),
            height=found.height,
            width=found.width,
            offset=self._offset(self._places.images, index),
            size=size,
            crc32c=found.crc32c,
            name=encode_name(source.names[index]),
            more=list(self._with_offsets(index, found)),
        )

    def _with_offsets(self, index: int, found: Surveyed) -> Iterator[int | float]:
        """Yield the columns of the fields, with the offset of each blob after its size and checksum."""
        columns = iter(found.more)
        for field, stored in zip(self._source.fields, found.values, strict=True):
            yield next(columns)
            if field.kind == "class":
                continue
            yield next(columns)
            if field.is_blob:
                ranges = self._places.ranges.get(field.name)
                yield self._copy(stored) if ranges is None else self._offset(ranges, index)

    def _offset(self, ranges: Ranges, index: int) -> int:
        """Return where a range begins, counted through all files and then through the index's own data."""
        file, offset = int(ranges.file[index]), int(ranges.offset[index])
        return offset + int(self._starts[-1] if file == COPIED else self._starts[file])

    def _copy(self, stored: Stored) -> int:
        """Add a value to the index's own data; return where it begins."""
        if stored is None:
            return 0
        assert not isinstance(stored, (int, float))
        begin = self._end
        self._own.append(bytes(stored))
        self._end += len(stored)
        return int(self._starts[-1]) + begin


def _pieces(data: npt.NDArray[np.uint8]) -> Iterator[Buffer]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE].tobytes()
