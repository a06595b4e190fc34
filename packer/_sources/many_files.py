"""Batched reading of a source's files in C: their bytes, and the sizes and checksums of the images."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.geometry import MAX_PIXELS
from packer._images.native.records import CAN_SURVEY, FINDINGS, KINDS, SURVEY, survey
from packer._images.probe import ImageInfo
from packer._sources.base import ReadBuffer, Source
from packer._storage.packfile import BY_PATH, LARGEST_READ, NOWHERE, Descriptor, by_path
from packer._storage.stamps import Stamp
from packer._table import Ints

_FOUND = ("size", "read", "modified", "seen", "kind", "height", "width", "orientation", "findings", "crc32c")


class FileRead(NamedTuple):
    """A file of an image, read completely.

    Attributes
    ----------
    data : memoryview
    stamp : Stamp
    info : ImageInfo or None
        The result of `inspect`; None if it has yet to be called.
    crc32c : int or None
        The result of `checksum` for the file's bytes; None if not computed.
    """

    data: memoryview
    stamp: Stamp
    info: ImageInfo | None = None
    crc32c: int | None = None


class ManyFiles:
    """Reads the files of a source without Python's lock. Safe in many threads at once.

    Parameters
    ----------
    source : Source
    exif : {"ignore", "apply"}
        Whether an EXIF orientation affects the height and the width that a checksum covers.
    max_pixels : int
        Larger images are refused.
    checked : bool
        Whether checksums are taken.
    """

    def __init__(self, source: Source, exif: str, max_pixels: int, *, checked: bool) -> None:
        self._source = source
        self._turned = exif == "apply"
        self._checked = checked
        self._directory: Descriptor | None = None
        # The results of C are valid only with the default limit.
        if CAN_SURVEY and os.name != "nt" and source.whole_files and max_pixels == MAX_PIXELS:
            with contextlib.suppress(OSError):  # which reading the first file reports
                self._directory = Descriptor(os.open(source.root, os.O_RDONLY))

    def read(self, rows: range, names: Sequence[bytes | None], buffer: ReadBuffer) -> list[FileRead | None]:
        """Read the files of images with these names; None for a file that `Source.read` has to read.

        Such a file has changed since the listing, cannot be read, or has an unusual path.
        """
        if self._directory is None or self._source.stamps is None:
            return [None] * len(rows)
        stamps, paths = self._source.stamps[rows.start : rows.stop], [name or b"" for name in names]
        fits = (stamps[:, 0] > 0) & (stamps[:, 0] <= LARGEST_READ)
        sizes = stamps[:, 0] * fits
        room, starts = buffer.room(int(sizes.sum())), np.cumsum(sizes) - sizes
        records = np.zeros(len(rows), SURVEY)
        records["position"], listed = by_path(self._directory.number, paths, stamps)
        records["file"], records["size"] = np.where(fits, BY_PATH, NOWHERE), sizes
        records["out"] = np.frombuffer(room, np.uint8).ctypes.data + starts
        records["turned"], records["checked"] = self._turned, self._checked
        records["label"] = np.ascontiguousarray(self._source.labels[rows.start : rows.stop]).view(np.int64)
        records["name"], records["name_size"] = listed.records["path"], [len(path) for path in paths]
        survey(records)
        return list(self._found(records, starts, room.toreadonly()))

    def _found(self, records: npt.NDArray[Any], starts: Ints, room: memoryview) -> Iterator[FileRead | None]:
        for start, *found in zip(starts.tolist(), *(records[column].tolist() for column in _FOUND), strict=True):
            size, read, modified, seen, kind, height, width, orientation, findings, crc32c = found
            data, stamp = room[start : start + size], (size, modified)
            if not read:
                yield None
            elif not seen:
                yield FileRead(data, stamp)
            else:
                stored = (width, height) if self._turned and orientation >= 5 else (height, width)
                info = _info(kind, *stored, orientation, findings)
                yield FileRead(data, stamp, info, crc32c if self._checked else None)


@functools.lru_cache(maxsize=1024)
def _info(kind: int, height: int, width: int, orientation: int, findings: int) -> ImageInfo:
    """Return C's results for an image as an ImageInfo; cached, because many images have the same size."""
    words = tuple(words for bit, words in FINDINGS.items() if findings & bit)
    return ImageInfo(KINDS[kind], height, width, orientation, words)
