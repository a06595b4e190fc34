"""Random access to the samples of a pack: `Reader` builds all ways of reading on a format's few methods.

`PackColumns` provides the columns of a pack for conditions that select samples; `read_manifest` and `write_manifest`
are for packs that are directories.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import KINDS, NO_VALUE, Column, Field, Stored
from packer._formats.contract import Locations, PackAccess
from packer._manifest import Manifest
from packer._storage.files import AppendFile, sync_directory
from packer._storage.packfile import LOCATION, MEMORY, NOWHERE, Descriptor, PackFile
from packer._storage.place import FoundFile, Place, place_of
from packer._table import LONGEST_NAME, Buffer, Ints, Labels, Names, Row, Table, Vector, value_checksum
from packer.errors import (
    CorruptPackError,
    NoSampleError,
    NotAPackError,
    PackError,
    UnsupportedVersionError,
    printable,
)

_MOST_TOGETHER = 1 << 26  # bytes: larger blobs are read one by one


class Reader(PackAccess):
    """Random access to the samples of one pack.

    Readers may be used by many threads at once and after a fork. A pickled reader stores its path; unpickling opens the
    pack again. Several readers of the same pack do not affect each other.

    Parameters
    ----------
    path : path or URL
        The pack.
    check : {"always", "never"}
        Whether `read` compares every sample with its checksum, which takes 5 to 10 µs for a photo of 100 kB.

    Attributes
    ----------
    path : str
        The absolute path of the pack; or its URL, without secrets.
    manifest : Manifest
    table : Table
        The table of the pack. Its columns are read-only, and each is read from the pack when it is first used.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the file is not a pack of this format, is damaged, or was written by a newer packer.
    """

    def __init__(self, path: str | os.PathLike[str] | Place, *, check: str = "always") -> None:
        if check not in ("always", "never"):
            raise ValueError(f"check must be 'always' or 'never', not {check!r}")
        self.place = place_of(path)
        self.path = self.place.path
        self.check = check
        self.manifest, self.table = self._open()
        self._checked_columns: dict[str, npt.NDArray[np.bool_]] = {}  # values present, of fields that were checked
        if len(self.table) != self.manifest.count:
            raise CorruptPackError(
                f"the table has {len(self.table)} rows, but the manifest counts {self.manifest.count}", self.path
            )

    @property
    def names(self) -> Names:
        """The samples' names, read from the table when they are first used."""
        return self.table.sample_names(self.path)

    @classmethod
    def shows_mark(cls, place: Place) -> bool:
        """Tell whether packer wrote the file or directory at a location, which may be a damaged pack.

        ``--overwrite`` replaces only files and directories that packer wrote. The default implementation opens the
        pack, which fails for many damaged packs. If the files of a format have a mark that can be found without the
        rest of the file, the format should look for that mark here.

        Raises
        ------
        PackError
            If the pack is too damaged to tell, or cannot be read.
        """
        try:
            cls(place).close()
        except UnsupportedVersionError:  # according to its manifest
            return True
        except NotAPackError:
            return False
        return True

    def __len__(self) -> int:
        return self.manifest.count

    def position(self, index: int) -> int:
        """Convert an index, which may be negative, to a position counted from 0; IndexError if it is out of range."""
        try:
            return range(len(self))[operator.index(index)]
        except TypeError:
            raise TypeError(f"an index must be an integer, not {index!r}") from None
        except IndexError:
            raise NoSampleError(
                f"index {index} is out of range: {printable(self.path)} has {len(self)} samples"
            ) from None

    def read(self, index: int) -> Buffer:
        """Return the data of one sample.

        Raises
        ------
        IndexError
            If the index is out of range; negative indices count from the end.
        CorruptPackError
            If the data or their row in the table have changed since they were written.
        PackError
            If the disk reports an error.
        """
        index = self.position(index)
        try:
            row = self.row(index)
        except CorruptPackError as error:  # of a sample whose name cannot be read
            raise CorruptPackError(error.reason, error.path, index) from error
        return self.read_row(row)

    def row(self, position: int) -> Row:
        """Return a sample's row of the table; CorruptPackError if the table was cut short.

        `position` is a result of the method `position`.
        """
        self.require_table()
        return self.table.row(position)

    def read_row(self, row: Row) -> Buffer:
        """Return the data of a row, after comparing them with their checksum. Raises the same errors as `read`."""
        try:
            data = self._fetch_image(row)
        except CorruptPackError as error:
            raise self._damaged(row.number, error.reason) from error
        except PackError as error:  # an error of the disk; the sample may be intact
            raise PackError(f"{error} (sample {row.number})") from error
        if self.check == "always" and not row.matches(data):
            reason = (
                "the checksum does not match" if row.name is not None else "its name is outside of the list of names"
            )
            raise self._damaged(row.number, reason)
        return data

    def locate(self, positions: Ints) -> tuple[npt.NDArray[Any], object]:
        """Return the locations of samples, so that C can read and check their bytes without Python's lock.

        Parameters
        ----------
        positions : (N,) int64 array
            As returned by the method `positions`.

        Returns
        -------
        (N,) array of LOCATION
            See `LOCATION`.
        object
            Files and memory; the caller must keep the object until the samples have been read.
        """
        self.require_table()
        table, names, found = self.table, self.table.names, np.empty(len(positions), LOCATION)
        for name in ("size", "height", "width", "crc32c"):
            found[name] = getattr(table, name)[positions]
        found["label"] = table.label[positions].view(np.int64)  # its eight bytes, whose checksum C computes
        found["raw"], found["checked"] = self.manifest.codec == "raw", self.check == "always"
        start, end = np.where(positions > 0, table.name_end[positions - 1], 0), table.name_end[positions]
        named = (start >= 0) & (start <= end) & (end <= len(names)) & (end - start <= LONGEST_NAME)
        found["name"], found["name_size"] = np.where(named, (names.ctypes.data + start, end - start), 0)
        found["file"], found["position"] = np.where(named, MEMORY, NOWHERE), table.offset[positions]
        return found, (self._hold_names(found), self._locate_in_files(found))

    def _hold_names(self, records: npt.NDArray[Any]) -> object:
        """Point the names in `LOCATION` or `TASK` records to memory that cannot disappear while C reads it.

        Returns
        -------
        object
            The owner of the memory; the caller must keep it while C reads.
        """
        names = self.table.stored("names")
        if not isinstance(names, Vector):
            return names
        begins = records["name"] - self.table.names.ctypes.data  # a very large table is mapped, and may be cut short
        pieces = [
            names[begin : begin + size].tobytes() if size else b""
            for begin, size in zip(begins.tolist(), records["name_size"].tolist(), strict=True)
        ]
        held = np.frombuffer(b"".join(pieces) or b"\0", np.uint8)
        records["name"] = held.ctypes.data + np.cumsum([0, *map(len, pieces)])[:-1]
        return held

    def _locate_in_files(self, found: npt.NDArray[Any]) -> object:
        """Set the files and positions of records; a file that is `NOWHERE` stays `NOWHERE`.

        Parameters
        ----------
        found : (N,) array
            An array with the fields of LOCATION. Its positions are offsets of the table, and are replaced by offsets in
            the files.

        Returns
        -------
        object
            Files and memory; the caller must keep the object until the samples have been read.
        """
        files, positions, held = self._locate(found["position"], found["size"])
        found["file"] = np.where(found["file"] == NOWHERE, NOWHERE, files)
        found["position"] = positions
        return held

    def ahead(self, positions: Ints, image: bool = True, fields: Sequence[str] = (), *, urgent: bool = False) -> None:
        """Request the bytes of samples of a remote pack, in the order of `positions`, without waiting.

        Does nothing for a pack on a disk.

        Bytes that were requested before are not requested again.

        Parameters
        ----------
        positions : (N,) int64 array
            As returned by the method `positions`.
        image : bool
            Whether to fetch the images.
        fields : sequence of str
            Names of fields to fetch too; their values must be bytes.
        urgent : bool
            Whether to fetch these samples before those that were requested earlier.
        """
        if not self.remote or not len(positions):
            return
        self.require_table()
        ranges = [(self.table.offset[positions], self.table.size[positions])] if image else []
        ranges += [self.locate_blobs(positions, name)[:2] for name in fields]
        if ranges:
            offset, size = (np.stack(column, 1).ravel() for column in zip(*ranges, strict=True))
            self._ahead(offset[size > 0], size[size > 0], urgent=urgent)

    def ahead_whole(self, positions: Sequence[int]) -> None:
        """Request images and all field values of samples; see `ahead`."""
        if self.remote:
            self.ahead(np.asarray(positions), fields=[name for name, field in self.fields.items() if field.is_blob])

    def positions(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Convert indices, which may be negative, to positions counted from 0. Raises the same errors as `position`."""
        numbers = np.asarray(indices)
        if numbers.dtype == np.int64 and len(numbers) and numbers.min() >= 0 and numbers.max() < len(self):
            return numbers
        if numbers.dtype.kind not in "iu":
            return np.array([self.position(index) for index in indices], np.int64)
        positions = np.where(numbers < 0, numbers + len(self), numbers)
        for index in numbers[(positions < 0) | (positions >= len(self))]:
            self.position(index)  # raises the error
        return positions.astype(np.int64, copy=False)

    def read_rows(self, positions: Ints) -> Iterator[tuple[int, Row, Buffer]]:
        """Yield several samples in the order of the file: the index into `positions`, the row and the data of each.

        `positions` is a result of the method `positions`. Raises the same errors as `read`.
        """
        self.require_table()
        if len(positions) > 1:
            self.ahead(np.sort(positions), urgent=True)
        rows = self.table.rows(positions)
        for number in sorted(range(len(rows)), key=lambda number: rows[number].offset):
            yield number, rows[number], self.read_row(rows[number])

    def read_many(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> list[Buffer]:
        """Return the data of several samples, in the order of `indices`. Raises the same errors as `read`."""
        found = {number: data for number, _, data in self.read_rows(self.positions(indices))}
        return [found[number] for number in range(len(found))]

    def _fetch_image(self, row: Row) -> Buffer:
        """Return the data of a row in the form that its checksum covers. Raises the same errors as `_fetch`."""
        return self._fetch(row.offset, row.size)

    def require_column(self, name: str) -> None:
        """Compare a whole column of the table with its checksum; CorruptPackError if they differ."""
        if self.table.checksum(name) != self.manifest.columns.get(name):
            raise CorruptPackError(f"the table's column {name!r} does not match its checksum", self.path)

    def known_name(self, index: int) -> str:
        """Return a sample's name for a message; empty if the names are damaged or unreadable."""
        try:
            return self.names.get(index)
        except PackError:
            return ""

    def describe(self, index: int) -> str:
        """Return the text by which messages identify a sample: its pack, index and name."""
        return f"{printable(self.path)}, sample {index} ({printable(self.known_name(index))})"

    def corrupt(self, index: int, reason: str) -> CorruptPackError:
        """Return the error for a damaged sample, with the sample's index and name."""
        return CorruptPackError(reason, self.path, index, self.known_name(index))

    def _damaged(self, index: int, reason: str) -> CorruptPackError:
        return self.corrupt(index, f"damaged: {reason}")

    @functools.cached_property
    def fields(self) -> Mapping[str, Field]:
        """The fields other than image and label, by name, in the order of the pack."""
        return {field.name: field for field in self.manifest.fields}

    def value(self, index: int, name: str) -> Stored:
        """Return the stored value of one sample's field: a number, bytes, or None if it is missing.

        Raises
        ------
        KeyError
            If the pack has no such field.
        IndexError, CorruptPackError, PackError
            For the same reasons as `read`; the errors name the field.
        """
        position = self.position(index)
        if not self.fields[name].is_blob:
            values, present = self.values(np.array([position]), name)
            return values[0].item() if present[0] else None
        return self.blobs(np.array([position]), name)[0]

    def column(self, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all values of a scalar or class field, and which of them are present, both as (N,) arrays.

        The column is compared with its checksum when it is first used. The numbers at missing values are meaningless.
        Booleans are returned as uint8.

        Raises
        ------
        KeyError
            If the pack has no such field.
        CorruptPackError
            If a column is damaged.
        """
        present = self._present(name)
        return self.table.kept(f"field.{name}"), present

    def values(self, positions: Ints, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return the values of a scalar or class field for some samples, in the form that `column` returns."""
        present = self._present(name)
        return self.table.more[f"field.{name}"][positions], present[positions]

    def _present(self, name: str) -> npt.NDArray[np.bool_]:
        """Return the mask of present values of a scalar or a class, (N,)."""
        self.require_table()
        if name not in self._checked_columns:
            field = self.fields[name]
            for column in field.columns():
                self.require_column(column)
            columns = [self.table.more[column] for column in field.columns()]
            self._checked_columns[name] = ~KINDS[field.kind].missing(columns)
        return self._checked_columns[name]

    def blobs(self, positions: Ints, name: str) -> list[Buffer | None]:
        """Return the stored values of a field for several samples; None for a missing value.

        Parameters
        ----------
        positions : (N,) int64 array
            As returned by the method `positions`.
        name : str
            The name of a field whose values are bytes.

        Raises
        ------
        CorruptPackError
            If the bytes or their row in the table have changed since they were written; the error names index and
            field.
        """
        (found,) = self.blobs_of(positions, (name,))
        return found

    def blobs_of(self, positions: Ints, names: Sequence[str]) -> list[list[Buffer | None]]:
        """Return the results of `blobs` for several fields; values that are adjacent in the file are read together."""
        located = [rows.T.tolist() for rows in self._locate_all(positions, names)]
        found: list[list[Buffer | None]] = [[None] * len(positions) for _ in names]
        for number in np.argsort(self.table.offset[positions]).tolist():  # reads go through the file in one direction
            blobs = self._blobs_of_one(int(positions[number]), names, *(rows[number] for rows in located))
            for of_field, blob in zip(found, blobs, strict=True):
                of_field[number] = blob
        return found

    def locate_blobs(self, positions: Ints, name: str) -> tuple[Ints, Ints, Ints]:
        """Return the offsets (counted like a row's `offset`), the sizes and the checksums of a field's blobs."""
        offsets, sizes, checksums = self._locate_all(positions, (name,))
        return offsets[0], sizes[0], checksums[0]

    def _locate_all(self, positions: Ints, names: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """Return the results of `locate_blobs` for F fields: three (F, N) arrays."""
        self.require_table()
        table, begins, left = self.table, {}, set(names)
        at = table.offset[positions] + table.size[positions]
        for field in self.manifest.fields:  # each blob begins where the one before it ends, unless they lie apart
            if left and field.is_blob:
                sizes = table.more[f"field.{field.name}.size"][positions]
                own = table.more.get(f"field.{field.name}.offset")
                begins[field.name] = at if own is None else own[positions], sizes
                at = at + np.maximum(sizes, 0)
                left.discard(field.name)
        if left:
            raise KeyError(min(left))
        found = np.empty((3, len(names), len(positions)), np.int64)
        for number, name in enumerate(names):
            found[:2, number] = begins[name]
            found[2, number] = table.more[f"field.{name}.crc32c"][positions]
        return found[0], found[1], found[2]

    def _blobs_of_one(
        self, position: int, names: Sequence[str], offsets: list[int], sizes: list[int], checksums: list[int]
    ) -> Iterator[Buffer | None]:
        """Yield the stored values of several fields of one sample, after comparing checksums."""
        name = None
        begin, together = self._fetch_together(offsets, sizes)
        for field, offset, size, expected in zip(names, offsets, sizes, checksums, strict=True):
            if size == NO_VALUE and expected == 0:
                yield None
                continue
            try:
                if size == 0:  # it may be at the end of the data
                    blob: Buffer = b""
                elif size > 0 and together:
                    blob = together[offset - begin : offset - begin + size]
                else:
                    blob = self._fetch(offset, size)
            except CorruptPackError as error:
                raise self._damaged(position, f"field {field!r}: {error.reason}") from error
            except PackError as error:
                raise PackError(f"{error} (field {field!r} of sample {position})") from error
            if self.check == "always":
                name = self.names.encoded(position) if name is None else name
                if value_checksum(blob, name) != expected:
                    raise self._damaged(position, f"field {field!r}: the checksum does not match")
            yield blob

    def _fetch_together(self, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[int, Buffer]:
        """Return the offset of the first of several blobs, and the bytes from there to the end of the last.

        The result has no bytes if too many other bytes are in between, or if a damaged size exceeds the file. Each blob
        is then fetched separately, so that an error names the blob that fails.
        """
        present = [(offset, size) for offset, size in zip(offsets, sizes, strict=True) if size > 0]
        if len(present) > 1:
            begin, total = min(present)[0], sum(size for _, size in present)
            length = max(offset + size for offset, size in present) - begin
            if length <= min(2 * total, _MOST_TOGETHER):
                with contextlib.suppress(PackError):
                    return begin, self._fetch(begin, length)
        return 0, b""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "check": self.check, "identity": self.manifest.identity()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["place"], check=state["check"])  # type: ignore[misc]
        if self.manifest.identity() != state["identity"]:
            self.close()
            raise PackError(
                f"{printable(self.path)}: another pack has replaced the pack that was opened. Processes that read "
                "the old pack and processes that open the path now would read different samples: open the dataset "
                "again"
            )


class FileReader(Reader):
    """A reader of a pack that is one file with all samples in one range; `_open` opens the file."""

    _file: PackFile
    _data_at = 0  # the position of offset 0 in the file
    _data_size: int  # bytes after this position

    def _fetch(self, offset: int, size: int) -> Buffer:
        return self._file.read(offset, size)

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        return Locations(*self._file.locate(offset, size))

    def _one_file(self) -> tuple[Descriptor, int, int] | None:
        descriptor = self._file.duplicate()
        return None if descriptor is None else (descriptor, self._data_at, self._data_size)

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        self._file.ahead(zip((self._data_at + offset).tolist(), size.tolist(), strict=True), urgent=urgent)

    def data_files(self) -> list[tuple[str, int, int]]:
        return [("", self._data_at, self._data_size)]

    def require_table(self) -> None:
        self._file.require_whole()

    def close(self) -> None:
        self._file.close()


class TaskFiles:
    """Adds files and names of samples to the decode tasks that are made from a pack's table and run in C.

    Parameters
    ----------
    reader : Reader

    Attributes
    ----------
    one : (int, int, int)
        The descriptor of the file with all samples, the position of offset 0 in it, and the number of bytes from there
        on; the descriptor is -1 if samples are in several files, or C cannot read the file.
    held : object, optional
        Keeps that file open. None if there is no such file; in that case, `locate` must be called before tasks run.
    """

    def __init__(self, reader: Reader) -> None:
        reader.require_table()
        self._reader = reader
        self.held = found = reader._one_file()
        self.one = (-1, 0, 0) if found is None else (found[0].number, *found[1:])

    def hold_names(self, tasks: npt.NDArray[Any]) -> None:
        """Point the names in an array of TASK to memory that lives as long as this object."""
        self._names = self._reader._hold_names(tasks.reshape(-1))

    def locate(self, tasks: npt.NDArray[Any]) -> object:
        """Set the files and offsets in tasks that are about to run, if samples are in several files.

        Parameters
        ----------
        tasks : (N, V) array of TASK
            The tasks of V views of N samples.

        Returns
        -------
        object
            An object that keeps the files open; the caller must keep it until C has read the samples.
        """
        first = tasks[:, 0].copy()
        held = self._reader._locate_in_files(first)
        tasks["file"] = np.where(tasks["file"] == NOWHERE, NOWHERE, first["file"][:, None])
        tasks["position"] = first["position"][:, None]
        return held


def table_from(columns: Mapping[str, npt.NDArray[Any] | Vector], manifest: Manifest, path: str) -> Table:
    """Build a table from a format's columns; CorruptPackError if the columns do not fit together."""
    for name, column in columns.items():
        if isinstance(column, Vector):
            column.checksum = manifest.columns.get(name)
    try:
        return Table.of(columns, manifest.column_types)
    except ValueError as error:
        raise CorruptPackError(str(error), path) from error


_SIZES = ("height", "width", "size")
_OWN = ("label", "name", *_SIZES)


class PackColumns(Mapping[str, Column]):
    """The columns of a pack's samples. Each column is read and compared with its checksum when it is first used.

    They are the fields and packer's own columns: ``label``, an id or a class name, missing if the sample is unlabeled;
    ``name``; ``height`` and ``width``, in pixels; ``size``, the size of the image, in bytes. No field has one of these
    names. For fields that are neither numbers, ids nor texts, only the presence of values is available.

    Parameters
    ----------
    reader : Reader
    rows : (N,) int64 array, optional
        The rows of the pack's table that the columns contain; by default all rows.
    labels : (N,) int64 or float64 array, optional
        Labels that replace those of the pack.
    classes : sequence of str, optional
        Class names that replace those of the pack, in the order of the ids in `labels`.

    Raises
    ------
    CorruptPackError
        When a damaged column is requested.
    """

    def __init__(
        self,
        reader: Reader,
        rows: Ints | None = None,
        labels: Labels | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._reader = reader
        self._rows = np.arange(len(reader)) if rows is None else rows
        self._which: slice | Ints = slice(None) if rows is None else rows
        self._labels = labels
        self._classes = reader.manifest.classes if classes is None else classes

    def __iter__(self) -> Iterator[str]:
        yield from (*self._reader.fields, *_OWN)

    def __len__(self) -> int:
        return len(self._reader.fields) + len(_OWN)

    def __getitem__(self, name: str) -> Column:
        if name in self._reader.fields:
            return self._field(self._reader.fields[name])
        if name == "label":
            return self._label()
        if name == "name":
            return _complete(_texts(self._names()))
        if name in _SIZES:
            return _complete(self._own(name))
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._reader.fields or name in _OWN

    def _own(self, name: str) -> npt.NDArray[Any]:
        self._reader.require_column(name)
        return self._reader.table.kept(name)[self._which]

    def _label(self) -> Column:
        manifest = self._reader.manifest
        labels = self._own("label") if self._labels is None else self._labels
        if manifest.label_type != "class" or labels.dtype.kind == "f":
            return _complete(labels)
        return Column(labels, labels >= 0, {name: label for label, name in enumerate(self._classes)})

    def _field(self, field: Field) -> Column:
        kind = KINDS[field.kind]
        if not field.is_blob:
            values, present = self._reader.column(field.name)
            values = values.view(bool) if field.dtype == "bool" else values
            ids = dict(zip(field.classes, field.ids or range(len(field.classes)), strict=True))
            return Column(values[self._which], present[self._which], ids if kind.has_classes else None)
        if kind.syntax != "text":
            present = self._own(f"field.{field.name}.size") >= 0
            return Column(present, present, of=kind.values)
        texts = self._read(field)
        present = np.fromiter((text is not None for text in texts), bool, len(texts))
        return Column(_texts([text or "" for text in texts]), present)

    def _read(self, field: Field) -> list[str | None]:
        blobs = self._reader.blobs(self._rows, field.name)
        try:
            return [field.decode(blob) for blob in blobs]
        except ValueError as error:
            raise CorruptPackError(f"field {field.name!r}: {error}", self._reader.path) from error

    def _names(self) -> list[str]:
        for column in ("names", "name_end"):
            self._reader.require_column(column)
        names = self._reader.names
        return list(names) if isinstance(self._which, slice) else [names[row] for row in self._rows.tolist()]


def _complete(values: npt.NDArray[Any]) -> Column:
    return Column(values, np.ones(len(values), bool))


def _texts(texts: Sequence[str]) -> npt.NDArray[Any]:
    column = np.empty(len(texts), object)
    column[:] = texts
    return column


MANIFEST_FILE = "manifest.json"
"""Without this file, a directory is no pack."""


def read_manifest(directory: Place) -> Manifest:
    """Read the manifest of the pack in a directory.

    Raises
    ------
    NotAPackError
        If there is no manifest, which means that the pack was not finished.
    PackError
        As for `PackFile.read` and `Manifest.from_json`.
    """
    if not directory.holding([MANIFEST_FILE]):
        raise NotAPackError(f"not a complete pack: it contains no {MANIFEST_FILE}", directory.path)
    with directory.open(MANIFEST_FILE) as file:
        return Manifest.from_json(file.read(0, file.size), file.path)


def holds_manifest(directory: Place) -> bool:
    """Tell whether a directory has a manifest of packer, which may be damaged; PackError if it cannot be read."""
    if not directory.holding([MANIFEST_FILE]):
        return False
    with directory.open(MANIFEST_FILE) as file:
        return Manifest.is_recognisable(file.read(0, file.size))


def require_distinct(files: Iterable[tuple[str, FoundFile | PackFile]]) -> None:
    """Raise CorruptPackError if two files of a pack are hard links to the same file.

    A copy of such a pack could be far larger than the pack itself, and fill a disk.

    Parameters
    ----------
    files : iterable of (str, FoundFile or PackFile)
        The path of each file, and the file.
    """
    linked: dict[tuple[int, int], str] = {}
    for path, file in files:
        first = linked.setdefault(file.inode, path) if file.links > 1 else path
        if first != path:
            raise CorruptPackError(f"is the same file as {printable(first)}", path)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of the pack in `directory`, and return once it is on the disk under its name."""
    with contextlib.closing(AppendFile(directory / MANIFEST_FILE)) as file:
        file.append(manifest.to_json())
        file.flush()
        file.sync()
    sync_directory(directory)
