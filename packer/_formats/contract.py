"""The interface of a format: classes that a format's author implements to write and read the samples of a pack.

A format consists of a `Writer` and of a `Reader` (see `packer._formats.reader`). `Reader` implements all ways of
reading by means of the methods of `PackAccess`. Code above this package knows `Writer` and `Reader`, but no particular
format. A conversion calls the methods of a writer in this order::

    # `written`: the rows that an earlier, interrupted run left behind
    writer = Writer(path, options, written, contents)
    placed = writer.append(sample)            # in the order of the indices, once for each sample
    writer.flush()                            # from now on the samples' memory may be used again
    writer.sync()                             # from time to time: what was flushed is now durable
    writer.commit(manifest, table)            # the pack at `path` is complete and durable
    writer.close()

`path` is never the pack's final name; `packer._conversion.workspace` moves the complete pack there. `GrowingFiles` and
`Frame` serve writers of several formats.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from packer._fields import Field
from packer._manifest import Manifest
from packer._storage.files import AppendFile, sync_directory
from packer._storage.packfile import NOWHERE, Descriptor
from packer._storage.place import Place
from packer._table import COLUMNS, Buffer, Ints, Names, Sample, Table
from packer.errors import DestinationError, option, printable


class Locations(NamedTuple):
    """Where the bytes of some rows are: the file and the position of each, as in `LOCATION`.

    The caller must keep `held` until the bytes have been read, because `held` keeps files open and memory valid.
    """

    file: Ints
    position: Ints
    held: object


class Placed(NamedTuple):
    """The offsets of an appended sample, as the table's offset columns store them.

    Attributes
    ----------
    offset : int
        The offset of the sample's image.
    blobs : tuple of int
        For each field with blobs (values that are bytes), the offset of the sample's blob, or 0 for a missing value.
        Empty if blobs directly follow the image.
    """

    offset: int
    blobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contents:
    """Properties that all samples of a pack share, which some formats store with each sample; and a cache setting.

    Attributes
    ----------
    classes : sequence of str
    label_type : str
    fields : tuple of Field
    codec : str
        As in the manifest.
    cached : bool
        Whether the system's cache should keep the files of the samples; see `AppendFile`.
    """

    classes: Sequence[str] = ()
    label_type: str = "class"
    fields: tuple[Field, ...] = ()
    codec: str = "keep"
    cached: bool = True


NOTHING = Contents()


class Writer(abc.ABC):
    """Appends the samples of one pack.

    Parameters
    ----------
    path : Path
        The file or directory to write.
    options : mapping
        The settings of the format, as in the manifest's `layout`. Each format has its own.
    written : Table
        The rows of samples that are in `path` already. Data after these samples are dropped, and the next appended
        sample has the index ``len(written)``. Offsets must depend only on sizes, so that a continued conversion writes
        the same bytes as an uninterrupted one.
    contents : Contents
        The properties of all samples.

    Attributes
    ----------
    apart : bool
        Whether blobs are stored apart from their image, so that `append` returns their offsets and the table has
        columns for them.
    """

    apart: ClassVar[bool] = False

    @abc.abstractmethod
    def __init__(
        self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING
    ) -> None: ...

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Raise DestinationError, before anything is written, if `options` are invalid."""

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        """Raise DestinationError if a table is too large for a pack.

        Parameters
        ----------
        rows : int
        names : int
            The size of all names together, in bytes.
        types : mapping
            The columns and their dtypes.
        """

    @classmethod
    def check_names(cls, names: Names) -> None:
        """Raise DestinationError, before anything is written, if a pack cannot contain samples with these names."""

    @abc.abstractmethod
    def append(self, sample: Sample) -> Placed:
        """Append the next sample; return its offsets for the table.

        The image and the blobs, `sample.parts`, are stored one after the other, unless the format stores blobs `apart`.

        The caller must not change the sample's data before the next `flush`, because the writer may use them until
        then.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Pass everything appended so far to the operating system. Called on the thread that appends."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Wait until the flushed bytes are on the disk.

        `sync` may run on another thread, at the same time as `append` and `flush`.
        """

    @abc.abstractmethod
    def commit(self, manifest: Manifest, table: Table) -> None:
        """Write the table and then the manifest, and wait until the whole pack is on the disk.

        Columns are written in pieces, so memory use does not depend on their length.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the files, whether or not the pack was committed."""

    def layout(self) -> dict[str, Any]:
        """Return the `layout` for the manifest, which tells a reader where the data are.

        Called just before `commit`.
        """
        return {}


AGAIN = f"Start again with {option('fresh', True)}."


def not_of_journal(path: str | Path) -> DestinationError:
    """Return the error for an unfinished file that does not match the journal."""
    return DestinationError(f"{printable(path)}: does not match its journal. {AGAIN}")


class PackAccess(abc.ABC):
    """The methods that a format implements for an open pack. Three methods are abstract; the others have defaults.

    Attributes
    ----------
    place : Place
        The location of the pack.
    path : str
        The path or URL as the user wrote it.
    manifest : Manifest
    table : Table
        The table of the pack. `_open` returns the manifest and the table.
    """

    place: Place
    path: str
    manifest: Manifest
    table: Table

    @abc.abstractmethod
    def _open(self) -> tuple[Manifest, Table]:
        """Open the pack at `self.place`, in constant time, and read only its structure."""

    @abc.abstractmethod
    def _fetch(self, offset: int, size: int) -> Buffer:
        """Return the `size` bytes that begin at `offset`, a position as the table stores it.

        Raise CorruptPackError if the file does not have these bytes.
        """

    def stored(self) -> Table:
        """Return the table, but with the sizes that the samples have in the files.

        `self.table` has the sizes of images with three channels, but a file may store grey pixels as one channel.
        """
        return self.table

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        """Locate the bytes of rows, so that C can read them. By default no row is located, and Python reads the rows.

        Parameters
        ----------
        offset, size : (N,) int64 array
            The values in the table, which may be damaged.
        """
        return Locations(np.full(len(offset), NOWHERE), offset, None)

    def _one_file(self) -> tuple[Descriptor, int, int] | None:
        """Return the file with all samples, the position of offset 0 in it, and the number of bytes from there on.

        C reads samples from this file. The result is None if samples are in several files, or if C cannot read the
        file; see `_locate`.
        """
        return None

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        """Prefetch the bytes of rows, without waiting, if the format supports it.

        Parameters
        ----------
        offset, size : (N,) int64 array
            As for `_locate`.
        urgent : bool
            Whether the bytes are about to be read.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the files; arrays of the table stay valid."""

    def data_files(self) -> list[tuple[str, int, int]]:
        """Return the files that contain samples: path in the pack, offset of the data in the file, size of the data.

        The path is empty if the pack is one file. A format needs this method to support packs with parts.
        """
        raise NotImplementedError(f"a pack like {self.path} cannot be a part of another pack")

    def file_names(self) -> list[str]:
        """Return the paths, relative to the pack, of the files that its format requires or its manifest lists.

        If the pack is one file, the only path is an empty string. Other files in a pack's directory do not belong to
        the pack.
        """
        return [""]

    @functools.cached_property  # the place of a reader never changes, and a batch needs it many times
    def remote(self) -> bool:
        """Whether the samples are stored on another machine."""
        return self.place.remote

    @property
    def in_place(self) -> bool:
        """Whether the samples are in files of other tools."""
        return False

    @property
    def has_checksums(self) -> bool:
        """Whether the pack has checksums of its samples."""
        return True

    def place_of(self, name: str) -> Place | None:
        """Return the location of the file `name`, one of `file_names`; None if the file is inside of the pack."""
        return None

    def changed_files(self) -> Iterable[str]:
        """Yield a message for each indexed file of another tool that is missing or has changed."""
        return ()

    def require_distinct_files(self) -> None:
        """Raise CorruptPackError if several of `data_files` are the same file, because samples would share bytes."""

    def require_table(self) -> None:
        """Raise CorruptPackError if the file of the table was truncated since it was opened.

        Called before a batch is read: if a pack was truncated, training fails at once instead of at the first missing
        sample.
        """

    def check_structure(self) -> Iterable[str]:
        """Yield a message for each defect in bytes that no checksum of the table or of a sample covers."""
        return ()


class GrowingFiles:
    """Syncs the files that a writer has open, both growing and complete files, and their directories.

    `sync` may run on another thread while `grow`, `finish` and `flush` continue.

    Parameters
    ----------
    *directories : Path
        The directories of the files, and the parents of these directories.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = dict.fromkeys(directories)
        self._open: list[AppendFile] = []
        self._finished: list[AppendFile] = []  # complete since the last `flush`
        self._flushed: list[AppendFile] = []  # complete, for `sync` to sync and close
        self._growing: list[AppendFile] = []  # open at the last `flush`

    def grow(self, file: AppendFile) -> None:
        """Register a file that grows from now on."""
        self._directories[file.path.parent] = None
        self._open.append(file)

    def finish(self, file: AppendFile) -> None:
        """Register a file that is complete; `grow` need not have registered it before."""
        self._directories[file.path.parent] = None
        self._finished.append(file)
        if file in self._open:
            self._open.remove(file)

    def flush(self) -> None:
        """Pass everything written so far to the operating system."""
        for file in [*self._finished, *self._open]:
            file.flush()
        self._flushed += self._finished
        self._finished = []
        self._growing = list(self._open)

    def sync(self) -> None:
        """Return once the flushed bytes are on the disk; close complete files."""
        growing, done = self._growing, list[AppendFile]()
        while self._flushed:
            done.append(self._flushed.pop(0))
            done[-1].sync()
        for file in growing:
            if file not in done:  # another thread may have finished and flushed it meanwhile
                file.sync()
        for file in done:
            file.close()
        for directory in list(self._directories):
            sync_directory(directory)

    def close(self) -> None:
        """Close all files."""
        for file in [*self._flushed, *self._finished, *self._open]:
            file.close()


IMAGE = -1
"""The slot of the image in a frame. The slot of a blob is the number of its field, counting only fields with blobs."""


class Frame:
    """The bytes of one sample in another tool's format, with the offsets of the image and of each blob in these bytes.

    If the other tool does not store an image or a blob as one range of bytes, packer copies the image or blob into its
    index.

    Parameters
    ----------
    blobs : int
        Number of fields with blobs.

    Attributes
    ----------
    pieces : list of bytes-like
        The bytes of the sample, in pieces that follow each other.
    size : int
    image : int
        The offset of the image. A negative offset refers to `copies`: -1 is the first copied byte.
    blobs : list of int, or None
        The offsets of the blobs, as for `image`; None for a missing value.
    framing : list of bytes
        The pieces that are neither image nor blob.
    copies : list of bytes-like
        The copied bytes.
    copied : int
        Number of the copied bytes.
    """

    def __init__(self, blobs: int) -> None:
        self.pieces: list[Buffer] = []
        self.size = 0
        self.image = 0
        self.blobs: list[int | None] = [None] * blobs
        self.framing: list[bytes] = []
        self.copies: list[Buffer] = []
        self.copied = 0

    def add(self, piece: bytes) -> int:
        """Add bytes that belong to neither image nor blob; return their offset."""
        self.framing.append(piece)
        return self._add(piece)

    def add_image(self, data: Buffer) -> int:
        """Add the image; return its offset."""
        self.image = self._add(data)
        return self.image

    def add_blob(self, number: int, data: Buffer) -> int:
        """Add the blob of field `number`, counting only fields with blobs; return its offset."""
        self.blobs[number] = begin = self._add(data)
        return begin

    def add_value(self, data: Buffer, slot: int | None) -> int:
        """Add bytes, and return their offset.

        They are the image if `slot` is `IMAGE`, framing if `slot` is None, otherwise the blob with this number.
        """
        if slot is None:
            return self.add(bytes(data))
        return self.add_image(data) if slot == IMAGE else self.add_blob(slot, data)

    def copy_image(self, data: Buffer) -> None:
        """Copy the image into packer's index."""
        self.image = self._copy(data)

    def copy_blob(self, number: int, data: Buffer) -> None:
        """Copy a blob into packer's index; `number` as for `add_blob`."""
        self.blobs[number] = self._copy(data)

    def _add(self, piece: Buffer) -> int:
        begin = self.size
        self.pieces.append(piece)
        self.size += len(piece)
        return begin

    def _copy(self, piece: Buffer) -> int:
        begin = self.copied
        self.copies.append(piece)
        self.copied += len(piece)
        return ~begin
