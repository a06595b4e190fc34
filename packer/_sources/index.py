"""Build the index of a source: locations, sizes and checksums of its images and field values.

C code reads the images in blocks. It reads only those bytes of an image that height, width and checksum depend on.
Python handles the images that the C code does not support.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers import ForeignFiles, PixelLayout, Ranges
from packer._fields import KINDS, Field, Stored
from packer._formats.index import as_stored, base_from, write_index
from packer._images.native.records import CAN_SURVEY, FINDINGS, SURVEY, survey
from packer._images.probe import inspect
from packer._manifest import Manifest
from packer._sources.base import FileColumn, RangeColumn, ReadBuffer, Source, none_readable
from packer._sources.container import ContainerSource
from packer._sources.pack import PackSource
from packer._storage.files import Spool, TableBuilder
from packer._storage.packfile import BY_PATH, MEMORY, NOWHERE, Descriptor, by_path
from packer._storage.stamps import Stamps, take_stamps
from packer._storage.system import in_order
from packer._table import Buffer, Ints, Names, Table, checksum, column_types, decode_name, encode_name, field_columns
from packer._version import __version__
from packer.errors import ImageError, OptionError, PackError, SourceError, printable, recorded


@dataclass(frozen=True, eq=False)
class IndexLocations:
    """Locations of images and of the values of fields.

    Attributes
    ----------
    files : ForeignFiles
    images : Ranges
    ranges : dict of str to Ranges
        The locations of the values of each field whose values are in files.
    copied : (B,) uint8 array
        The bytes of images and values that are not in files.
    pixels : PixelLayout, optional
        The layout of images that are stored as raw pixels.
    """

    files: ForeignFiles
    images: Ranges
    ranges: dict[str, Ranges]
    copied: npt.NDArray[np.uint8]
    pixels: PixelLayout | None = None

    @classmethod
    def of(cls, source: Source) -> IndexLocations:
        """Find the locations of a source; SourceError if the disk fails."""
        if isinstance(source, ContainerSource):
            if source.pixels is not None and not source.shapes.any(axis=1).all():
                raise SourceError(
                    f"{printable(source.root)}: some images are raw pixels and others are encoded, but an index can "
                    "contain only one of the two: convert the images"
                )
            ranges = {column.field.name: column.ranges for column in source.columns if isinstance(column, RangeColumn)}
            return cls(source.files, source.images, ranges, source.copied, source.pixels)
        of_files = (column for column in source.columns if isinstance(column, FileColumn))
        columns = [column for column in of_files if KINDS[column.field.kind].file == "content"]
        listed = _Listed(source, columns)
        stamps = take_stamps(listed.root, listed.names)
        ranges = {column.field.name: listed.ranges(column, stamps) for column in columns}
        count = len(source)
        images = Ranges(np.arange(count), np.zeros(count, np.int64), stamps[:count, 0])
        return cls(ForeignFiles(listed.root, listed.names, stamps), images, ranges, np.empty(0, np.uint8))

    @functools.cached_property
    def directory(self) -> Descriptor:
        """The directory to which the files' paths are relative."""
        return Descriptor(os.open(self.files.root, os.O_RDONLY))

    @functools.cached_property
    def starts(self) -> Ints:
        """The offset of each file in the concatenation of all files, followed by the offset of the index's own data."""
        sizes = np.maximum(self.files.stamps[:, 0], 0)
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def copied_fields(self, fields: Iterable[Field]) -> list[int]:
        """Return the indices of the fields whose values are bytes outside of files. The index stores these bytes."""
        return [number for number, field in enumerate(fields) if field.is_blob and field.name not in self.ranges]

    def offsets(self, ranges: Ranges, rows: slice) -> Ints:
        """Return the offsets of values in the concatenation of all files and the index's own data."""
        part = ranges.taken(rows)
        return part.offset + self.starts[np.maximum(part.file, -1)]


class _Listed:
    """The paths of a source's files, relative to one directory: first images, then files of fields; each only once."""

    def __init__(self, source: Source, columns: list[FileColumn]) -> None:
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

    def ranges(self, column: FileColumn, stamps: Stamps) -> Ranges:
        """Return the locations of the values of a field; each value is a whole file."""
        paths = (column.path(index) for index in range(len(column)))
        file = np.array([-1 if path is None else self._numbers[os.path.abspath(path)] for path in paths], np.int64)
        size = np.where(file < 0, -1, stamps[np.maximum(file, 0), 0])
        return Ranges(file, np.zeros(len(file), np.int64), size)


@dataclass(eq=False)
class Surveyed:
    """Sizes, checksums and field values of a block of images, from which rows of the table are made.

    Attributes
    ----------
    rows : range
        The indices of these images.
    height, width : (N,) int64 arrays
        Size of each image in pixels.
    crc32c : (N,) int64 array
        The checksum of each image; 0 if the index has no checksums.
    usable : (N,) bool array
    values : list of tuple
        For each image, the value of each field that is copied into the index; None if the image is unusable.
    more : list of tuple
        For each image, the numbers that the table stores for its fields.
    skipped : list of (int, str)
        The index of each unusable image, and the reason.
    findings : Counter
    """

    rows: range
    height: Ints
    width: Ints
    crc32c: Ints
    usable: npt.NDArray[np.bool_]
    values: list[tuple[Stored, ...]] = dataclasses.field(default_factory=list)
    more: list[tuple[int | float, ...]] = dataclasses.field(default_factory=list)
    skipped: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    findings: Counter[str] = dataclasses.field(default_factory=Counter)

    def keep_all(self) -> None:
        """Include unusable images, with a size of 1 x 1."""
        self.height[~self.usable] = self.width[~self.usable] = 1
        self.usable[:] = True
        self.skipped = []


@dataclass(frozen=True)
class Survey:
    """Reads sizes, checksums and field values of a source's images. Many threads can use it at once.

    Attributes
    ----------
    source : Source
    locations : IndexLocations
        The locations of the source's images.
    exif : {"ignore", "apply"}
        ``apply``: height and width are those after the rotation by the EXIF orientation.
    checksums : bool
        Whether checksums are computed.
    """

    source: Source
    locations: IndexLocations
    exif: str
    checksums: bool

    def block(self, rows: range) -> Surveyed:
        """Survey some images; SourceError if the disk fails."""
        source, records = self.source, self._records(rows)
        found = Surveyed(rows, records["height"], records["width"], records["crc32c"], np.ones(len(rows), np.bool_))
        for bit, words in FINDINGS.items():
            if count := int(np.count_nonzero(records["findings"] & bit)):
                found.findings[words] += count
        seen = records["seen"] != 0
        if self.checksums and isinstance(source, ContainerSource):
            seen[[index - rows.start for index in source.broken(rows)]] = False  # Python inspects these, to report why
        if source.fields or not seen.all():
            self._inspect(found, seen)
        return found

    def _records(self, rows: range) -> npt.NDArray[np.void]:
        """Inspect images in C, and return one record for each image.

        No image is inspected here on Windows, or without the C extension, or if the images are raw pixels.
        """
        source, locations, records = self.source, self.locations, np.zeros(len(rows), SURVEY)
        if not CAN_SURVEY or locations.pixels is not None or os.name == "nt":
            return records
        part = slice(rows.start, rows.stop)
        names, sizes = source.names.between(rows.start, rows.stop), np.empty(len(rows), np.int64)
        ends = names.ends
        starts = np.concatenate([[0], ends[:-1]])
        np.subtract(ends, starts, out=sizes)
        if len(rows) and ((sizes < 0).any() or starts[0] < 0 or ends[-1] > len(names.blob)):
            return records
        blob = np.ascontiguousarray(names.blob)
        records["size"], records["checked"] = locations.images.size[part], self.checksums
        records["turned"] = self.exif == "apply"
        records["label"] = np.ascontiguousarray(source.labels[part]).view(np.int64)  # a float label as its eight bytes
        records["name"], records["name_size"] = blob.ctypes.data + starts, sizes
        records["file"], records["position"], held = self._located(part)
        survey(records)
        del held, blob
        return records

    def _located(self, rows: slice) -> tuple[Ints, Ints, object]:
        """Return file numbers and positions of images for C, and an object to hold until C has read the images."""
        locations = self.locations
        images, files = locations.images.taken(rows), locations.files
        if not isinstance(self.source, ContainerSource):
            numbers = images.file.tolist()
            paths = [encode_name(files.names[number]) for number in numbers]
            position, listed = by_path(locations.directory.number, paths, files.stamps[images.file])
            return np.full(len(images), BY_PATH), position, (listed, locations.directory)
        file, position, held = np.full(len(images), NOWHERE), images.offset.copy(), []
        copied = (images.file < 0) & (images.size >= 0)
        file[copied] = MEMORY
        position[copied] += locations.copied.ctypes.data
        for number in np.unique(images.file[~copied]).tolist():
            chosen = images.file == number
            try:
                opened = files.open(number)
                file[chosen], position[chosen], descriptor = opened.locate(images.offset[chosen], images.size[chosen])
            except PackError:  # Python inspects the images of this file later, and reports the error
                continue
            held.append(descriptor)
        return file, position, held

    def _inspect(self, found: Surveyed, seen: npt.NDArray[np.bool_]) -> None:
        """Inspect the images that C skipped, and the field values of all images."""
        source, buffer = self.source, ReadBuffer()
        copied = self.locations.copied_fields(source.fields)
        for row, index in enumerate(found.rows):
            buffer.reset()
            name = encode_name(source.names[index])
            try:
                if not seen[row]:
                    self._inspect_image(found, row, name, buffer)
                values = source.values(index, buffer) if source.fields else ()
            except ImageError as error:
                found.usable[row] = False
                found.skipped.append((index, recorded(error.args[0])))
                values = (None,) * len(source.fields)
            if source.fields:
                found.more.append(field_columns(source.fields, values, name))
                found.values.append(tuple(_owned(values[number]) for number in copied))

    def _inspect_image(self, found: Surveyed, row: int, name: bytes, buffer: ReadBuffer) -> None:
        source, index = self.source, found.rows[row]
        data: Buffer
        if isinstance(source, ContainerSource) and source.pixels is not None:
            if not self.checksums:
                source.require_pixels(index)
                found.height[row], found.width[row] = source.shapes[index]
                return
            pixels = source.read_pixels(index)
            data, (height, width) = pixels.tobytes(), pixels.shape[:2]
        else:
            data, _ = source.read(index, buffer)
            info = inspect(data)
            height, width = info.size_shown(self.exif)
            found.findings.update(info.findings)
        found.height[row], found.width[row] = height, width
        if self.checksums:
            found.crc32c[row] = checksum(data, source.labels[index].item(), height, width, name)


def _owned(stored: Stored) -> Stored:
    """Return a value that stays valid when the buffer is reused."""
    return bytes(stored) if isinstance(stored, memoryview) else stored


_BLOCK, _SMALL_BLOCK = 1024, 64  # images at a time; the second if values are copied, because they wait in memory
_PIECE = 1 << 24  # bytes that are copied at a time

ProgressCallback = Callable[[int, int], None]


def build_index(
    source: Source,
    directory: Path,
    destination: Path,
    *,
    checksums: bool = True,
    exif: str = "ignore",
    on_error: str = "fail",
    keys: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Write the index of a source into an empty directory; return the manifest when everything is on the disk.

    Parameters
    ----------
    source : Source
        A source of files, or of samples of a container.
    directory : Path
    destination : Path
        The final path of the directory; relative paths in the index are relative to it.
    checksums : bool
        Whether each sample is read to store its checksum.
    exif : {"ignore", "apply"}
        Whether images are rotated by their EXIF orientation.
    on_error : {"fail", "skip", "keep"}
        What happens if an image cannot be read: ``"fail"`` raises the error; ``"skip"`` leaves the image out and lists
        it in the manifest; ``"keep"`` includes it with a size of 1 x 1, so that reading it reports the error.
    keys : mapping, optional
        The keys with which a container was opened, such as ``label=target``; the manifest's settings record them.
    progress : callable, optional
        Called with the number of images inspected so far, and the total.

    Raises
    ------
    ImageError
        If ``on_error="fail"``, for the first image that cannot be read.
    OptionError
        If the source is a pack, or has fields computed from annotations.
    SourceError
        If the disk fails, no image can be read, or two samples share bytes.
    """
    if isinstance(source, PackSource):
        raise OptionError(f"{printable(source.root)}: is already a pack, which needs no index")
    locations = IndexLocations.of(source)
    own = Spool()
    for start in range(0, len(locations.copied), _PIECE):
        own.append(locations.copied[start : start + _PIECE].tobytes())
    types = column_types(source.label_type, source.fields, apart=True)
    builder = TableBuilder(types=types)
    rows = _Rows(source, locations, builder, own)
    size = _SMALL_BLOCK if locations.copied_fields(source.fields) else _BLOCK
    blocks = (range(start, min(start + size, len(source))) for start in range(0, len(source), size))
    for found in in_order(Survey(source, locations, exif, checksums).block, blocks):
        if found.skipped and on_error == "fail":
            index, reason = found.skipped[0]
            error = ImageError(reason, source.names[index])
            error.index = index
            raise error
        if on_error == "keep":
            found.keep_all()
        rows.add(found)
        if progress is not None:
            progress(found.rows.stop, len(source))
    if not len(builder):
        raise none_readable(source.root, len(source), rows.skipped)
    table = builder.build()
    _require_apart(table, locations)
    account = source.complete_account()
    manifest = Manifest(
        "index",
        len(builder),
        source.classes,
        source.label_type,
        source.fields,
        "keep" if locations.pixels is None else "raw",
        {"codec": "keep", "exif": exif, **({"keys": dict(keys)} if keys else {})},
        list(map(dict, source.about)),
        source.describe(),
        [*map(dict, source.doubts), *rows.skipped],
        dict(sorted(rows.findings.items())),
        {"packer": __version__},
        schema=2,
        account=None if account is None else account.to_json(),
    )
    return write_index(
        directory,
        manifest,
        table,
        locations.files,
        base=base_from(locations.files.root, destination),
        checksums=checksums,
        pixels=locations.pixels,
        data=_pieces(own.array(np.uint8)),
    )


def _require_apart(table: Table, locations: IndexLocations) -> None:
    """Raise SourceError if two samples share bytes, for example in a dictionary-encoded column or a forged list.

    Readers treat samples of a pack that share bytes as damaged.
    """
    for index in as_stored(table, locations.pixels).overlapping():
        name = printable(decode_name(table.row(index).name or b""))
        raise SourceError(
            f"{printable(locations.files.root)}: {name} shares its bytes with another sample, which an index does not "
            "support. Convert the source, which stores the bytes for each sample"
        )


class _Rows:
    """Builds rows of the table from surveyed images."""

    def __init__(self, source: Source, locations: IndexLocations, builder: TableBuilder, own: Spool) -> None:
        self._source, self._locations, self._builder, self._own = source, locations, builder, own
        self._end = len(locations.copied)
        self.skipped: list[dict[str, str]] = []
        self.findings: Counter[str] = Counter()

    def add(self, found: Surveyed) -> None:
        """Add the rows of a block of images."""
        source, locations, usable = self._source, self._locations, found.usable
        part = slice(found.rows.start, found.rows.stop)
        self.skipped += [{"name": source.names[index], "reason": reason} for index, reason in found.skipped]
        self.findings.update(found.findings)
        pixels = locations.pixels is not None
        columns = {
            "label": source.labels[part],
            "height": found.height,
            "width": found.width,
            "offset": locations.offsets(locations.images, part),
            "size": found.height * found.width * 3 if pixels else locations.images.size[part],
            "crc32c": found.crc32c,
            **self._of_fields(found, part),
        }
        names = source.names.between(part.start, part.stop)
        if not usable.all():
            columns = {name: column[usable] for name, column in columns.items()}
            names = names.taken(np.flatnonzero(usable))
        self._builder.extend(columns, names)

    def _of_fields(self, found: Surveyed, part: slice) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the fields; bytes that are not in files are copied to the index's own data."""
        columns: dict[str, npt.NDArray[Any]] = {}
        rows, copied = iter(zip(*found.more, strict=True)), iter(zip(*found.values, strict=True))
        for field in self._source.fields:
            columns |= {name: np.array(next(rows), dtype) for name, dtype in field.columns().items()}
            offset = f"field.{field.name}.offset"
            if field.name in self._locations.ranges:
                columns[offset] = self._locations.offsets(self._locations.ranges[field.name], part)
            elif field.is_blob:
                columns[offset] = np.array([*map(self._copy, next(copied))])
        return columns

    def _copy(self, stored: Stored) -> int:
        """Add a value to the index's own data; return its offset."""
        begin = int(self._locations.starts[-1]) + self._end
        if stored is not None:
            assert not isinstance(stored, (int, float))
            self._own.append(bytes(stored))
            self._end += len(stored)
        return begin


def _pieces(data: npt.NDArray[np.uint8]) -> Iterator[Buffer]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE].tobytes()
