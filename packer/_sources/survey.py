"""What a table says of images, found from their bytes: height and width, and the checksum.

C reads the images of a block at once, and no more of each than that needs. Python decides what the images are that C
finds unusual.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from packer._fields import Stored
from packer._images.native.survey import CAN_SURVEY, FINDINGS, SURVEY
from packer._images.native.survey import survey as survey_in_c
from packer._images.probe import inspect
from packer._sources.base import Source
from packer._sources.container import ContainerSource
from packer._sources.places import Places
from packer._sources.readbuffer import ReadBuffer
from packer._storage.locations import BY_PATH, MEMORY, NOWHERE, by_path
from packer._table import Buffer, Ints, checksum, encode_name, field_columns
from packer.errors import ImageError, PackError

__all__ = ["Surveyed", "survey"]


@dataclass(eq=False)
class Surveyed:
    """What rows of the table say of a block of images, beside their names, their labels and where they lie.

    Attributes
    ----------
    rows : range
        Which images these are.
    height, width : (N,) int64 arrays
        Pixels.
    crc32c : (N,) int64 array
        0 without checksums.
    kept : (N,) bool array
        Which images can be used.
    values : list of tuple
        For each image, what there is of each field that is copied into the index; empty where the image cannot be used.
    more : list of tuple
        For each image, the columns of the fields.
    skipped : list of (int, str)
        The images that cannot be used, and why.
    findings : Counter
    """

    rows: range
    height: Ints
    width: Ints
    crc32c: Ints
    kept: npt.NDArray[np.bool_]
    values: list[tuple[Stored, ...]] = field(default_factory=list)
    more: list[tuple[int | float, ...]] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)

    def keep_all(self) -> None:
        """Take the images that cannot be used too, with a size of 1 x 1."""
        self.height[~self.kept] = self.width[~self.kept] = 1
        self.kept[:] = True
        self.skipped = []


def survey(source: Source, places: Places, rows: range, exif: str, *, checksums: bool) -> Surveyed:
    """Look at images of a source. Safe in many threads at once.

    Parameters
    ----------
    source : Source
    places : Places
        Where its images lie.
    rows : range
    exif : {"ignore", "apply"}
        Whether an EXIF orientation has a say in height and width.
    checksums : bool
        Whether checksums are taken.

    Raises
    ------
    SourceError
        If the disk fails.
    """
    records = _records(source, places, rows, exif, checksums)
    found = Surveyed(rows, records["height"], records["width"], records["crc32c"], np.ones(len(rows), np.bool_))
    for bit, words in FINDINGS.items():
        if count := int(np.count_nonzero(records["findings"] & bit)):
            found.findings[words] += count
    seen = records["seen"] != 0
    if checksums and isinstance(source, ContainerSource):
        seen[[index - rows.start for index in source.broken(rows)]] = False  # so that Python says what is wrong
    if source.fields or not seen.all():
        blobs = [number for number, field in enumerate(source.fields) if field.is_blob]
        copied = [number for number in blobs if source.fields[number].name not in places.ranges]
        _Looking(source, exif, checksums, copied).at_all(found, seen)
    return found


def _records(source: Source, places: Places, rows: range, exif: str, checksums: bool) -> npt.NDArray[np.void]:
    """Return what C found of images: nothing where it was not compiled, or where they are pixels."""
    records = np.zeros(len(rows), SURVEY)
    if not CAN_SURVEY or places.pixels is not None or os.name == "nt":
        return records
    part = slice(rows.start, rows.stop)
    images = places.images.taken(part)
    names, sizes = source.names.between(rows.start, rows.stop), np.empty(len(rows), np.int64)
    ends = names.ends
    starts = np.concatenate([[0], ends[:-1]])
    np.subtract(ends, starts, out=sizes)
    if len(rows) and ((sizes < 0).any() or starts[0] < 0 or ends[-1] > len(names.blob)):
        return records
    blob = np.ascontiguousarray(names.blob)
    records["size"], records["checked"], records["turned"] = images.size, checksums, exif == "apply"
    records["label"] = np.ascontiguousarray(source.labels[part]).view(np.int64)  # of a float, its eight bytes
    records["name"], records["name_size"] = blob.ctypes.data + starts, sizes
    records["file"], records["position"], held = _located(source, places, rows)
    survey_in_c(records)
    del held, blob
    return records


def _located(source: Source, places: Places, rows: range) -> tuple[Ints, Ints, object]:
    """Return where images lie, for C, and what is to be kept until they were read."""
    images, files = places.images.taken(slice(rows.start, rows.stop)), places.files
    if not isinstance(source, ContainerSource):
        numbers = images.file.tolist()
        paths = [encode_name(files.names[number]) for number in numbers]
        position, listed = by_path(places.directory.number, paths, files.stamps[images.file])
        return np.full(len(rows), BY_PATH), position, (listed, places.directory)
    file, position, held = np.full(len(rows), NOWHERE), images.offset.copy(), []
    copied = (images.file < 0) & (images.size >= 0)
    file[copied] = MEMORY
    position[copied] += places.copied.ctypes.data
    for number in np.unique(images.file[~copied]).tolist():
        chosen = images.file == number
        try:
            opened = files.open(number)
            file[chosen], position[chosen], descriptor = opened.locate(images.offset[chosen], images.size[chosen])
        except PackError:  # Python says of which image
            continue
        held.append(descriptor)
    return file, position, held


@dataclass(frozen=True)
class _Looking:
    """Looking at images one by one."""

    source: Source
    exif: str
    checksums: bool
    copied: list[int]

    def at_all(self, found: Surveyed, seen: npt.NDArray[np.bool_]) -> None:
        """Look at the images that C did not see, and at the values of all."""
        source, buffer = self.source, ReadBuffer()
        for place, index in enumerate(found.rows):
            buffer.reset()
            name = encode_name(source.names[index])
            try:
                if not seen[place]:
                    self._at_image(found, place, name, buffer)
                values = source.values(index, buffer) if source.fields else ()
            except ImageError as error:
                found.kept[place] = False
                found.skipped.append((index, error.reason))
                values = (None,) * len(source.fields)
            if source.fields:
                found.more.append(field_columns(source.fields, values, name))
                found.values.append(tuple(_owned(values[number]) for number in self.copied))

    def _at_image(self, found: Surveyed, place: int, name: bytes, buffer: ReadBuffer) -> None:
        source, index = self.source, found.rows[place]
        data: Buffer
        if isinstance(source, ContainerSource) and source.pixels is not None:
            if not self.checksums:
                source.require_pixels(index)
                found.height[place], found.width[place] = source.shapes[index]
                return
            pixels = source.read_pixels(index)
            data, (height, width) = pixels.tobytes(), pixels.shape[:2]
        else:
            data, _ = source.read(index, buffer)
            info = inspect(data)
            height, width = info.size_shown(self.exif)
            found.findings.update(info.findings)
        found.height[place], found.width[place] = height, width
        if self.checksums:
            found.crc32c[place] = checksum(data, source.labels[index].item(), height, width, name)


def _owned(stored: Stored) -> Stored:
    """Return a value that stays when the buffer is used again."""
    return bytes(stored) if isinstance(stored, memoryview) else stored
