"""The interface of a format: the classes that its author implements, to append samples to a pack and to read them.

A format is a `Writer`, and a `Reader` of `packer._formats.reader`, which builds every way to read on the methods of
`PackAccess`. Code above this package knows `Writer` and `Reader`, but no particular format. The order of a conversion
is::

    # `written`: the rows that an earlier, interrupted run left behind
    writer = Writer(path, options, written, contents)
    placed = writer.append(sample)            # in the order of the indices, once a sample
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
    """The locations of some rows' bytes, as in `LOCATION`: the file and the position of each.

    Keep `held` until the bytes were read: it keeps files open and memory alive.
    """

    file: Ints
    position: Ints
    held: object


class Placed(NamedTuple):
    """The offsets of an appended sample, for the offset columns of the table.

    Attributes
    ----------
    offset : int
        The offset of its image.
    blobs : tuple of int
        The offset of the blob of each field that has blobs, 0 if the sample has no value; nothing if the blobs
        follow the image.
    """

    offset: int
    blobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contents:
    """Properties of all samples, for layouts that repeat them with each sample; and how files are written.

    Attributes
    ----------
    classes : sequence of str
    label_type : str
    fields : tuple of Field
    codec : str
        As in the manifest.
    cached : bool
        Whether the system's cache is to hold the files of the samples; see `packer._storage.files.AppendFile`.
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
        The file, or the directory, to write.
    options : mapping
        The format's own settings, as in the manifest's `layout`; see the format.
    written : Table
        Rows whose data are in `path` already. Data beyond them are dropped, and the next `append` has the index
        ``len(written)``. Placement depends on the sizes alone, so that an interrupted and continued conversion gives
        the same bytes as one that ran through.
    contents : Contents
        The properties of all samples.

    Attributes
    ----------
    apart : bool
        Whether blobs are separate from their image, so that `append` returns their offsets, and the table has columns
        for them.
    """

    apart: ClassVar[bool] = False

    @abc.abstractmethod
    def __init__(
        self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING
    ) -> None: ...

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Raise DestinationError if `options` make no sense, before anything is written."""

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        """Raise DestinationError if a table is too large for a pack.

        Parameters
        ----------
        rows : int
        names : int
            Bytes of all names.
        types : mapping
            The columns and their dtypes.
        """

    @classmethod
    def check_names(cls, names: Names) -> None:
        """Raise DestinationError, before anything is written, if samples with these names cannot be in one pack."""

    @abc.abstractmethod
    def append(self, sample: Sample) -> Placed:
        """Append the next sample; return its offsets, for the table.

        Its `parts` are stored one after the other, unless blobs are `apart`. The data are used until the next `flush`,
        and must not change until then.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Write everything appended so far to the operating system. Called on the appending thread."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Return once the flushed bytes are on the disk.

        May be called on another thread while `append` and `flush` continue.
        """

    @abc.abstractmethod
    def commit(self, manifest: Manifest, table: Table) -> None:
        """Write the table and then the manifest, and return once the whole pack is on the disk.

        Columns are written by `packer._table`, in bounded memory.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the files, committed or not."""

    def layout(self) -> dict[str, Any]:
        """Return the manifest's members that lead a reader to the data; called just before `commit`."""
        return {}


AGAIN = f"Start again with {option('fresh', True)}."


def not_of_journal(path: str | Path) -> DestinationError:
    """Return the error for an unfinished file that does not match the journal."""
    return DestinationError(f"{printable(path)}: does not fit its journal. {AGAIN}")


class PackAccess(abc.ABC):
    """The methods that a format defines for an open pack. Three are abstract; the others have a default.

    Attributes
    ----------
    place : Place
        The pack's place.
    path : str
        The user's name for the place.
    manifest : Manifest
    table : Table
        As `_open` returned them.
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
        """Return the `size` bytes at a row's `offset`; CorruptPackError if there are none."""

    def stored(self) -> Table:
        """Return the table with the stored sizes of samples, which differ for grey pixels."""
        return self.table

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        """Locate the bytes of rows for C. The default locates none, and Python reads them.

        Parameters
        ----------
        offset, size : (N,) int64 array
            As in the table, which may be damaged.
        """
        return Locations(np.full(len(offset), NOWHERE), offset, None)

    def _one_file(self) -> tuple[Descriptor, int, int] | None:
        """Return, for C, the file with all samples, the base of offsets in it, and the number of bytes from there on.

        None if samples are in several files, or C cannot read the file: see `_locate`.
        """
        return None

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        """Prefetch the bytes of rows, without waiting, if the format supports it.

        Parameters
        ----------
        offset, size : (N,) int64 array
            As of `_locate`.
        urgent : bool
            Whether they are read at once.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the files; arrays of the table stay valid."""

    def data_files(self) -> list[tuple[str, int, int]]:
        """Return the files that offsets refer to: path in the pack, offset and size of the data.

        The path is empty if the pack is one file. A format needs this to support packs with parts.
        """
        raise NotImplementedError(f"packs such as {self.path} cannot be parts of another")

    def file_names(self) -> list[str]:
        """Return the files of the pack by their paths in it, as its format and its manifest name them.

        One empty name if the pack is one file. Other files in its directory do not belong to it.
        """
        return [""]

    @functools.cached_property  # the place of a reader never changes, and a batch needs it many times
    def remote(self) -> bool:
        """Whether the bytes of samples come from another machine."""
        return self.place.remote

    @property
    def in_place(self) -> bool:
        """Whether the samples are in files of other tools."""
        return False

    @property
    def has_checksums(self) -> bool:
        """Whether the samples can be compared with checksums."""
        return True

    def place_of(self, name: str) -> Place | None:
        """Return the place of a file that `file_names` lists; None if it is in the pack."""
        return None

    def changed_files(self) -> Iterable[str]:
        """Yield the defects of other tools' files: each that is missing, or has changed."""
        return ()

    def require_distinct_files(self) -> None:
        """Raise CorruptPackError if several of the `data_files` are the same file, so that samples share bytes."""

    def require_table(self) -> None:
        """Raise CorruptPackError if the file of the table was truncated since it was opened.

        Called before a batch is read, so that training fails immediately on a truncated pack, and not at the first
        missing sample.
        """

    def check_structure(self) -> Iterable[str]:
        """Yield the defects of parts of the pack that neither the table nor the samples' checksums cover."""
        return ()


class GrowingFiles:
    """Growing and complete files in directories.

    `sync` may run on another thread while `grow`, `finish` and `flush` continue.

    Parameters
    ----------
    *directories : Path
        Their directories, and the parents of these.
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
        """Register a complete file, whether it grew or not."""
        self._directories[file.path.parent] = None
        self._finished.append(file)
        if file in self._open:
            self._open.remove(file)

    def flush(self) -> None:
        """Write everything to the operating system."""
        for file in [*self._finished, *self._open]:
            file.flush()
        self._flushed += self._finished
        self._finished = []
        self._growing = list(self._open)

    def sync(self) -> None:
        """Return once the flushed bytes are on the disk; close complete files."""
        growing, done = (
            self._growing,
            [],
        )  # `flush` may continue: files that grew then may be among the complete ones below
        while self._flushed:
            done.append(self._flushed.pop(0))
            done[-1].sync()
        for file in growing:
            if file not in done:
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
"""The slot of the image in a frame; those of fields that have blobs are their numbers."""


class Frame:
    """The framed bytes of one sample in a layout, with the offsets of the image and the blobs in them.

    An image or a blob that is not contiguous is copied into packer's index.

    Parameters
    ----------
    blobs : int
        Number of fields that have blobs.

    Attributes
    ----------
    pieces : list of bytes-like
        One after the other.
    size : int
    image : int
        Negative if it is copied: -1 if it begins at the first copied byte.
    blobs : list of int, or None
        As `image`; None if there is no value.
    framing : list of bytes
        The pieces that are neither the image nor a blob.
    copies : list of bytes-like
        The copied bytes.
    copied : int
        Bytes of it.
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
        """Add bytes of the layout; return where they begin."""
        self.framing.append(piece)
        return self._add(piece)

    def add_image(self, data: Buffer) -> int:
        """Add the image; return its offset."""
        self.image = self._add(data)
        return self.image

    def add_blob(self, number: int, data: Buffer) -> int:
        """Add the blob of a field, by the field's number among those with blobs; return its offset."""
        self.blobs[number] = begin = self._add(data)
        return begin

    def add_value(self, data: Buffer, slot: int | None) -> int:
        """Add the image, where `slot` is `IMAGE`, a blob of this number, or else bytes; return where they begin."""
        if slot is None:
            return self.add(bytes(data))
        return self.add_image(data) if slot == IMAGE else self.add_blob(slot, data)

    def copy_image(self, data: Buffer) -> None:
        """Copy the image into packer's index."""
        self.image = self._copy(data)

    def copy_blob(self, number: int, data: Buffer) -> None:
        """Copy a blob into packer's index; `number` is as of `add_blob`."""
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
