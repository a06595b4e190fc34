"""An ordered list of image files with their labels, and reading them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from packer._fields import Field, Stored
from packer._manifest import Manifest
from packer._sample import LABEL_TYPES
from packer._sources.others import OtherFiles
from packer._sources.stamps import (
    ABOUT_THE_FILE,
    Stamp,
    Stamps,
    same_stamp,
    stamp_at,
    stamp_in,
    stamp_of,
    take_stamps,
    what_changed,
)
from packer._storage.packfile import LARGEST_READ
from packer._table import Ints, Labels, Names, blocks
from packer.errors import ImageChangedError, ImageError, SourceError, printable

__all__ = ["ReadBuffer", "Source", "StoredSample", "class_ids", "listing_digest", "some", "spread", "unknown_classes"]

_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a FIFO must not block


class ReadBuffer:
    """Memory that a batch of files is read into, again and again: fresh memory costs more than the reading."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._memory = np.empty(size, np.uint8).data
        self._used = 0

    def reset(self) -> None:
        """Forget what was read; all that `read` returned before is overwritten from now on."""
        self._used = 0

    def read(self, path: str) -> tuple[memoryview, Stamp]:
        """Read a whole regular file; OSError where that fails. The view is read-only and valid until `reset`."""
        fd = os.open(path, _OPEN_FLAGS)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "not a regular file")
            if status.st_size > LARGEST_READ:
                raise OSError(0, f"has {status.st_size} bytes, and a sample has {LARGEST_READ} at most")
            room = self._room(status.st_size + 1)  # one byte more tells whether the file grew
            count = 0
            while count < len(room):
                got = _read_some(fd, room[count:], status.st_size)
                if not got:
                    break
                count += got
            changed = os.fstat(fd).st_mtime_ns != status.st_mtime_ns
        finally:
            os.close(fd)
        if changed or count != status.st_size:
            raise OSError(0, "the file changed while it was read")
        self._used += count
        return room[:count].toreadonly(), stamp_of(status)

    def _room(self, size: int) -> memoryview:
        if self._used + size > len(self._memory):
            # Views of the old memory keep it alive.
            self._memory = np.empty(max(size, 2 * len(self._memory)), np.uint8).data
            self._used = 0
        return self._memory[self._used : self._used + size]


def _read_some(fd: int, room: memoryview, size: int) -> int:
    """Read what comes at once of a file of `size` bytes; OSError where that fails."""
    try:
        return _read_into(fd, room)
    except OSError as error:
        if size:
            raise
        # No disk holds any of the file, so none fails: the system makes the file up, as it does those of /proc.
        raise OSError(0, f"it has 0 bytes, and reading fails: {error.strerror}") from error


def _read_into(fd: int, room: memoryview) -> int:
    if hasattr(os, "readv"):
        return os.readv(fd, [room])
    data = os.read(fd, len(room))
    room[: len(data)] = data
    return len(data)


@dataclass(frozen=True, slots=True)
class StoredSample:
    """What a pack knows of one of its samples.

    Attributes
    ----------
    codec : str
        One of `packer._sample.CODECS`.
    height, width : int
        Size in pixels of what decoding gives.
    exif : {"ignore", "apply"}
        What becomes of an EXIF orientation in it.
    """

    codec: str
    height: int
    width: int
    exif: str


@dataclass(frozen=True, eq=False)
class Source:
    """An ordered list of images with their labels; here, of files.

    Attributes
    ----------
    kind : str
        ``"imagefolder"``, ``"csv"``, ``"files"`` or ``"pack"``.
    root : Path
    names : Names
        Paths relative to `root`, with forward slashes, in the order of the pack.
    labels : (N,) int64 or float64 array
        Indices into `classes`, -1 for an unlabeled image; or numbers, as `label_type` says.
    classes : list of str
    notes : list of str
        What a person should know about the source.
    stamps : (N, 2) int64 array, optional
        Size and time of every file when it was listed. A file that has changed since is not read.
    label_type : str
        One of `packer._sample.LABEL_TYPES`.
    others : OtherFiles
        The files that were not looked at.
    fields : tuple of Field
        What there is beside image and label.
    lines : (N,) int64 array, optional
        The line of a table that names each image.
    """

    kind: str
    root: Path
    names: Names
    labels: Labels
    classes: list[str]
    notes: list[str] = field(default_factory=list)
    stamps: Stamps | None = None
    label_type: str = "class"
    others: OtherFiles = field(default_factory=OtherFiles)
    fields: tuple[Field, ...] = ()
    lines: Ints | None = None

    def __len__(self) -> int:
        return len(self.names)

    def between(self, start: int, stop: int) -> Source:
        """Return a source of images `start` to `stop` - 1; the classes stay."""
        names, labels = self.names.between(start, stop), self.labels[start:stop]
        stamps = None if self.stamps is None else self.stamps[start:stop]
        lines = None if self.lines is None else self.lines[start:stop]
        return replace(self, names=names, labels=labels, stamps=stamps, lines=lines)

    def limited(self, count: int) -> Source:
        """Return a source of the first `count` images; the classes stay."""
        return self.between(0, min(count, len(self)))

    def sampled(self, count: int) -> Source:
        """Return a source of `count` images, evenly spread over the list and in its order; the classes stay."""
        if count >= len(self):
            return self
        chosen = spread(count, len(self))
        names = Names.of(self.names[index] for index in chosen.tolist())
        stamps = None if self.stamps is None else self.stamps[chosen]
        lines = None if self.lines is None else self.lines[chosen]
        return replace(self, names=names, labels=self.labels[chosen], stamps=stamps, lines=lines)

    def stamped(self) -> Source:
        """Return the source with the stamps of its files: those that it has, or the present ones."""
        return replace(self, stamps=take_stamps(self.root, self.names)) if self.stamps is None else self

    @property
    def origin(self) -> Manifest | None:
        """Return the manifest of the pack that the images come from; None where they are files."""
        return None

    def identities(self) -> list[str]:
        """Return the names of the very packs that the images come from; none where they are files."""
        return []

    def sample_of(self, index: int) -> StoredSample | None:
        """Return what the pack that image `index` comes from knows of it; None where it is a file."""
        return None

    def path(self, index: int) -> str:
        """Return where image `index` lies."""
        return os.path.join(self.root, self.names[index])

    def read(self, index: int, buffer: ReadBuffer) -> tuple[memoryview, Stamp]:
        """Read image `index`.

        Raises
        ------
        ImageError
            If this file cannot be read, or is not the one that was listed; it knows the file's name.
        SourceError
            If the disk fails, which says nothing about the file.
        """
        try:
            data, stamp = buffer.read(self.path(index))
        except OSError as error:
            if error.errno not in ABOUT_THE_FILE:
                raise SourceError(f"{printable(self.path(index))}: reading failed: {error.strerror}") from error
            self._require_as_listed(index, self.stamp(index))
            named = "" if self.lines is None else f", which line {self.lines[index]} of the labels names"
            raise ImageError(f"cannot be read: {error.strerror}{named}", self.names[index]) from error
        except MemoryError as error:
            raise ImageError("cannot be read: the file is larger than the memory", self.names[index]) from error
        self._require_as_listed(index, stamp)
        return data, stamp

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        """Return what there is of each of `fields` for image `index`, in their order, as a pack would hold it.

        Positions in pixels are those of the file's image as it lies there, without any EXIF orientation.

        Raises
        ------
        ImageError
            If a value cannot be had, or is none of its field's kind; the error names the field, the file and the row.
        SourceError
            If the disk fails.
        """
        return ()

    def stamp(self, index: int) -> Stamp:
        """Return the present stamp of image `index`; SourceError where the disk fails."""
        return stamp_at(self.path(index))

    def _require_as_listed(self, index: int, stamp: Stamp) -> None:
        if self.stamps is not None and not same_stamp(stamp_in(self.stamps, index), stamp):
            what = what_changed(stamp_in(self.stamps, index), stamp)
            raise ImageChangedError(f"changed since it was listed: {what}", self.names[index])

    def require_undamaged(self) -> None:
        """Raise SourceError where the list of the images is damaged; this one was made in memory."""

    def describe(self) -> dict[str, str]:
        """Return kind and digest of names, labels and classes, for the manifest."""
        return {"kind": self.kind, "sha256": listing_digest(self.classes, self.names, self.labels, self.label_type)}


def spread(count: int, length: int) -> Ints:
    """Return `count` of `length` indices, in ascending order and evenly spread."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * length // (2 * count)


def some(names: Sequence[str]) -> str:
    """Return the first few of some names, and how many there are where these are more."""
    return ", ".join(map(printable, names[:5])) + (f", … ({len(names):,})" if len(names) > 5 else "")


def unknown_classes(unknown: Sequence[str], what: str = "classes") -> str:
    """Return the end of a message on classes that a given class list lacks; printable already."""
    shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
    return (
        f"{len(unknown)} of its {what} {'is' if len(unknown) == 1 else 'are'} unknown to the given class list: {shown}"
    )


def class_ids(classes: Sequence[str]) -> dict[str, int]:
    """Return the id of each class, its place in a list of classes; SourceError where a name is listed twice."""
    ids: dict[str, int] = {}
    for label, name in enumerate(classes):
        if ids.setdefault(name, label) != label:
            raise SourceError(f"the class list names {printable(name)} twice, so that its label is not known")
    return ids


def listing_digest(classes: Sequence[str], names: Names, labels: Labels, label_type: str = "class") -> str:
    """Return the SHA-256, in hexadecimal, of a list of images."""
    digest = hashlib.sha256()
    if label_type != "class":
        digest.update(label_type.encode("ascii"))
    digest.update("\0".join(classes).encode("utf-8", "surrogateescape"))
    for column, dtype in ((labels, LABEL_TYPES[label_type]), (names.ends, "<i8"), (names.blob, "|u1")):
        for block in blocks(column):
            digest.update(block.astype(dtype, copy=False).tobytes())
    return digest.hexdigest()
