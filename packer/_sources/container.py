"""The source whose samples are in a container, that is, in files that another tool wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._containers import Container, ForeignFiles, PixelLayout, Ranges, Seals, list_samples
from packer._containers.roles import LABEL_SUFFIXES, is_label_name
from packer._fields import Stored
from packer._images.encode import encode_png
from packer._sources.base import Column, FileColumn, NumberColumn, RangeColumn, ReadBuffer, Source, read_range
from packer._sources.labels import account_for_labels
from packer._storage.stamps import NO_STAMP, Stamp, Stamps, stamp_at, stamp_in
from packer._table import Buffer, Ints
from packer.errors import (
    CorruptPackError,
    ImageChangedError,
    ImageError,
    OptionError,
    PackError,
    SourceError,
    option,
    printable,
)

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False, kw_only=True)
class ContainerSource(Source):
    """The samples of a container.

    Attributes
    ----------
    files : ForeignFiles
    images : Ranges
        The location of each sample's image.
    shapes : (N, 2) int64 array
        Height and width of images that are stored as raw pixels; 0 for encoded images.
    pixels : PixelLayout, optional
        The layout of the raw pixels; None if all images are encoded.
    copied : (B,) uint8 array
        The bytes of images that are not a range of a file.
    seals : Seals, optional
        The checksums that the files contain.
    """

    _by_row: ClassVar[tuple[str, ...]] = (*Source._by_row, "images", "shapes", "seals")

    files: ForeignFiles
    images: Ranges
    shapes: Ints
    pixels: PixelLayout | None
    copied: npt.NDArray[np.uint8]
    seals: Seals | None

    @property
    def place(self) -> Path:
        return Path(self.files.path(0)) if len(self.files) == 1 else self.root

    @property
    def tree(self) -> Path | None:
        return None

    def inputs(self) -> Iterator[str]:
        yield from map(self.files.path, range(len(self.files)))

    def present_stamps(self) -> Stamps:
        """Return the stamp of each image: its size in bytes, and the current modification time of its file."""
        present = [stamp_at(self.files.path(number)) for number in range(len(self.files))]
        return _stamps(self.files, self.images, np.array(present, np.int64))

    def path(self, index: int) -> str:
        """Return the path of the file that contains image `index`."""
        return self.files.path(self._file(index))

    def stamp(self, index: int) -> Stamp:
        """Return the stamp of image `index`: its size in bytes, and the current modification time of its file."""
        there = stamp_at(self.path(index))
        return there if there == NO_STAMP else (int(self.images.size[index]), there[1])

    def read(self, index: int, buffer: ReadBuffer) -> tuple[memoryview, Stamp]:
        """Return image `index` as an encoded image: raw pixels are encoded as PNG.

        Raises
        ------
        ImageError
            If the image's file has changed, or if the image is raw pixels with the wrong number of bytes.
        SourceError
            If the disk fails.
        """
        if not self.is_pixels(index):
            data = self._bytes(index)
        else:
            from PIL import Image

            data = encode_png(Image.fromarray(self.read_pixels(index)))
        return memoryview(data), (int(self.images.size[index]), stamp_in(self.files.stamps, self._file(index))[1])

    def require_pixels(self, index: int) -> None:
        """Raise ImageError if image `index` has the wrong number of bytes for its height and width. Reads no file."""
        assert self.pixels is not None
        size, (height, width) = int(self.images.size[index]), self.shapes[index].tolist()
        if height < 1 or width < 1 or size != self.pixels.size(height, width):
            raise ImageError(f"{size} bytes are not {width} x {height} pixels", self.names[index])

    def is_pixels(self, index: int) -> bool:
        """Tell whether image `index` is stored as raw pixels and not encoded."""
        return self.pixels is not None and bool(self.shapes[index].any())

    def read_pixels(self, index: int) -> npt.NDArray[np.uint8]:
        """Return the (height, width, 3) RGB pixels of image `index`. Raises the same errors as `read`."""
        assert self.pixels is not None
        data, (height, width) = self._bytes(index), self.shapes[index].tolist()
        try:
            return self.pixels.rgb(data, height, width)
        except ValueError as error:
            raise ImageError(f"{len(data)} bytes are not {width} x {height} pixels", self.names[index]) from error

    def broken(self, rows: range) -> Iterator[int]:
        """Yield the rows of images that do not match the checksums in their files, or cannot be read."""
        if self.seals is None:
            return
        part = slice(rows.start, rows.stop)
        seals, files = self.seals.taken(part), self.files.packed.origins(self.images.file[part])
        for file, begin, size, positions in seals.runs(files):
            try:
                data = self.files.read(file, begin, size)
            except PackError:
                yield from (rows[position] for position in positions)
                continue
            for position in positions:
                first = int(seals.offset[position]) - begin
                if seals.of(data[first : first + int(seals.size[position])]) != seals.checksum[position]:
                    yield rows[position]

    def _bytes(self, index: int) -> Buffer:
        sealed = self.seals is not None and self.seals.size[index] >= 0
        return self._checked(index, lambda: self._sealed(index) if sealed else self._lying(index)) or b""

    def _lying(self, index: int) -> Buffer | None:
        return read_range(self.files, self.images, self.copied, index)

    def _sealed(self, index: int) -> Buffer:
        """Return the bytes of an image, after comparing the checksum of the byte range that contains the image."""
        assert self.seals is not None
        file, begin, size = (int(column[index]) for column in (self.images.file, self.seals.offset, self.seals.size))
        data = self.files.read(file, begin, size)
        if self.seals.of(data) != self.seals.checksum[index]:
            where = f"{printable(self.files.path(file))}, byte {begin}"
            raise ImageError(f"{where}: the checksum of {size} bytes does not match", self.names[index])
        first = int(self.images.offset[index]) - begin
        return memoryview(data)[first : first + int(self.images.size[index])]

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        return tuple(self._in_container(index, column) for column in self.columns)

    def _in_container(self, index: int, column: Column) -> Stored:
        assert not isinstance(column, FileColumn)
        stored = self._checked(index, lambda: column.get(index))
        if reason := column.field.misfit(stored):
            raise ImageError(f"field {column.field.name!r}: {reason}", self.names[index])
        return stored

    def _checked(self, index: int, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except CorruptPackError as error:
            where = f"{printable(str(error.path))}: {error.reason}"
            raise ImageChangedError(where, self.names[index]) from error
        except PackError as error:
            raise SourceError(str(error)) from error

    def _file(self, index: int) -> int:
        return int(self.files.packed.origins(self.images.file[index : index + 1])[0])

    def require_whole(self) -> None:
        for doubt in self.doubts:
            where = f"{printable(self.root / doubt['name'])}: {doubt['reason']}"
            raise SourceError(
                f"{where}. Download it again; or convert its other samples, and list it as left out: "
                f"{option('on_error', 'skip')}"
            )

    def require_listable(self) -> None:
        raise OptionError(
            f"a list of images has no offsets, which are needed for images inside {printable(self.path(0))}: make an "
            "index instead with `packer index SRC OUT.index`, and convert OUT.index"
        )


def container_source(
    container: Container,
    classes: Sequence[str] | None = None,
    *,
    directory: Path | None = None,
    in_place: bool = False,
    unlabeled: bool = False,
    bad: BadSamples | None = None,
) -> ContainerSource:
    """List the samples of a container.

    Parameters
    ----------
    container : Container
    classes : sequence of str, optional
        Class names in the order of their ids.
    directory : Path, optional
        The directory that the user passed. Files in it that do not belong to the container may contain labels.
    in_place, bad : optional
        The same as for `list_samples`.
    unlabeled : bool
        Whether the user has allowed samples without labels.

    Raises
    ------
    SourceError
        If the files are damaged; or if no sample has a label, but a key, a column or a file looks like labels.
    """
    if directory is not None:
        _account_for_tables(container, directory)
    bad = bad or BadSamples()
    before = ForeignFiles(container.root, container.files)  # before the listing, so that a later change is detected
    listing = list_samples(container, classes, in_place=in_place, bad=bad)
    files = ForeignFiles(container.root, container.files, before.stamps, listing.packed)
    columns: list[Column] = []
    for field in container.fields:
        if field.is_blob:
            columns.append(RangeColumn(field, files, listing.ranges[field.name], listing.copied))
        else:
            columns.append(NumberColumn(field, *listing.numbers[field.name]))
    source = ContainerSource(
        container.kind,
        container.root,
        listing.names,
        listing.labels,
        listing.classes,
        listing.notes,
        stamps=_stamps(files, listing.images, files.stamps),
        label_type=listing.label_type,
        fields=container.fields,
        columns=tuple(columns),
        about=container.about,
        doubts=(*({"name": name, "reason": why} for name, why in container.doubts.items()), *bad.found),
        account=container.account,
        files=files,
        images=listing.images,
        shapes=listing.shapes,
        pixels=container.pixels,
        copied=listing.copied,
        seals=listing.seals,
    )
    account_for_labels(source, container.why_unlabeled, chosen=unlabeled)
    return source


def _account_for_tables(container: Container, directory: Path) -> None:
    """Record in the account the files next to the container's files whose names suggest that they contain labels."""
    own = {name.rpartition("/")[2] for name in container.files}
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file() and entry.name not in own)
    for name in names:
        stem, _, suffix = name.partition(".")
        if is_label_name(stem) and f".{suffix}".lower() in LABEL_SUFFIXES:
            why = f"next to files of {container.kind}, whose samples have no labels"
            container.account.looks_like_labels("file", name, "", why)


def _stamps(files: ForeignFiles, images: Ranges, stamps: Stamps) -> Stamps:
    """Return the stamps of images: their sizes, and the modification times of their files."""
    there = stamps[files.packed.origins(images.file)]
    return np.where(there == NO_STAMP, there, np.stack([images.size, there[:, 1]], 1))
