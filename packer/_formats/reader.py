"""Random access to the samples of a pack, in every way that there is, from the little that a format must say."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Field, Stored
from packer._formats.contract import PackAccess
from packer._manifest import Manifest
from packer._storage.locations import LOCATION, NOWHERE
from packer._table import (
    LONGEST_NAME,
    NO_VALUE,
    Buffer,
    Ints,
    Names,
    Row,
    Table,
    column_checksum,
    value_checksum,
)
from packer.errors import CorruptPackError, PackError, printable

__all__ = ["Reader", "table_from"]

_MOST_TOGETHER = 1 << 26  # bytes: larger blobs are read one by one


class Reader(PackAccess):
    """Gives random access to the samples of one pack.

    Safe in many threads at once and after a fork; a pickled reader is its path, and opens the pack again where
    it is unpickled. Two readers of one pack do not disturb each other.

    Parameters
    ----------
    path : path
        The pack.
    check : {"always", "never"}
        Whether `read` compares every sample with its checksum (5 to 10 µs for a photo of 100 kB).

    Attributes
    ----------
    path : str
    manifest : Manifest
    table : Table
        Its columns are read-only views of the pack.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the file is no pack of this format, is damaged, or was written by a newer packer.
    """

    def __init__(self, path: str | os.PathLike[str], *, check: str = "always") -> None:
        if check not in ("always", "never"):
            raise ValueError(f"check is 'always' or 'never', not {check!r}")
        self.path = os.path.abspath(path)
        self.check = check
        self.manifest, self.table = self._open()
        self._checked_columns: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]] = {}
        self._names_begin = self.table.names.ctypes.data
        if len(self.table) != self.manifest.count:
            raise CorruptPackError(
                f"the table has {len(self.table)} rows and the manifest counts {self.manifest.count}", self.path
            )

    @property
    def names(self) -> Names:
        """The samples' names, read from the table when they are asked for."""
        return self.table.sample_names(self.path)

    def __len__(self) -> int:
        return self.manifest.count

    def position(self, index: int) -> int:
        """Return an index counted from the beginning; IndexError where there is no such sample."""
        try:
            return range(len(self))[operator.index(index)]
        except TypeError:
            raise TypeError(f"an index is an integer, not {index!r}") from None
        except IndexError:
            raise IndexError(f"index {index} is out of range: {printable(self.path)} has {len(self)} samples") from None

    def read(self, index: int) -> Buffer:
        """Return the data of one sample.

        Raises
        ------
        IndexError
            If there is no such index; negative ones count from the end.
        CorruptPackError
            If the data, or the row that leads to them, are not what was written.
        PackError
            If the disk fails.
        """
        index = self.position(index)
        try:
            self.require_table()
        except CorruptPackError as error:  # whose name is in what is gone
            raise CorruptPackError(error.reason, error.path, index) from error
        return self._read(self.table.row(index))

    def locate(self, positions: Ints) -> tuple[npt.NDArray[Any], object]:
        """Return where the bytes of samples lie, for C, which reads and checks them without Python's lock.

        Parameters
        ----------
        positions : (N,) int64 array
            As `positions` gives.

        Returns
        -------
        (N,) array of LOCATION
            See there.
        object
            To be kept until they were read: files and memory.
        """
        self.require_table()
        table, found = self.table, np.empty(len(positions), LOCATION)
        for name in ("size", "height", "width", "crc32c"):
            found[name] = getattr(table, name)[positions]
        found["label"] = table.label[positions].view(np.int64)  # its eight bytes, of which C takes the checksum
        found["raw"] = self.manifest.codec == "raw"
        found["checked"] = self.check == "always"
        places = self._locate(table.offset[positions], found["size"])
        start, end = np.where(positions > 0, table.name_end[positions - 1], 0), table.name_end[positions]
        named = (start >= 0) & (start <= end) & (end <= len(table.names)) & (end - start <= LONGEST_NAME)
        found["file"] = np.where(named, places.file, NOWHERE)
        found["position"] = places.position
        found["name"] = self._names_begin + start
        found["name_size"] = end - start
        return found, places.held

    def positions(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return indices counted from the beginning; errors as for `position`."""
        wanted = np.asarray(indices)
        if wanted.dtype.kind not in "iu":
            return np.array([self.position(index) for index in indices], np.int64)
        counted = np.where(wanted < 0, wanted + len(self), wanted)
        for index in wanted[(counted < 0) | (counted >= len(self))]:
            self.position(index)  # which refuses it
        return counted.astype(np.int64, copy=False)

    def read_rows(self, positions: Ints) -> Iterator[tuple[int, Row, Buffer]]:
        """Yield place, row and data of several samples; reads go through the file in one direction.

        `positions` are indices counted from the beginning; errors as for `read`.
        """
        self.require_table()
        rows = self.table.rows(positions)
        for place in sorted(range(len(rows)), key=lambda place: rows[place].offset):
            yield place, rows[place], self._read(rows[place])

    def read_many(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> list[Buffer]:
        """Return the data of several samples, in the order asked for; errors as for `read`."""
        found = {place: data for place, _, data in self.read_rows(self.positions(indices))}
        return [found[place] for place in range(len(found))]

    def _read(self, row: Row) -> Buffer:
        try:
            data = self._fetch_image(row)
        except CorruptPackError as error:
            raise self._damaged(row.number, error.reason) from error
        except PackError as error:  # of the disk, which says nothing about the sample
            raise PackError(f"{error} (sample {row.number})") from error
        if self.check == "always" and not row.matches(data):
            reason = "the checksum does not fit" if row.name is not None else "its name lies outside of the names"
            raise self._damaged(row.number, reason)
        return data

    @functools.cached_property
    def fields(self) -> Mapping[str, Field]:
        """What there is beside image and label, by name, in the order of the pack."""
        return {field.name: field for field in self.manifest.fields}

    def value(self, index: int, name: str) -> Stored:
        """Return what the pack holds of a field of one sample: a number, bytes, or None where there is no value.

        Raises
        ------
        KeyError
            If the pack has no such field.
        IndexError, CorruptPackError, PackError
            As for `read`; the errors name the field.
        """
        position = self.position(index)
        if not self.fields[name].is_blob:
            values, present = self.column(name)
            return values[position].item() if present[position] else None
        return self.blobs(np.array([position]), name)[0]

    def column(self, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all values of a scalar or a class, and which of them are there, both (N,) arrays.

        They are views of the pack, compared with their checksums when they are first asked for. What stands in the
        place of a value that is not there means nothing. A bool is a uint8.

        Raises
        ------
        KeyError
            If the pack has no such field.
        CorruptPackError
            If a column is damaged.
        """
        self.require_table()
        if name not in self._checked_columns:
            for column in self.fields[name].columns():
                self.require_column(column)
            values = self.table.more[f"field.{name}"]
            missing = self.table.more.get(f"field.{name}.null")
            self._checked_columns[name] = values, values != NO_VALUE if missing is None else missing == 0
        return self._checked_columns[name]

    def blobs(self, positions: Ints, name: str) -> list[Buffer | None]:
        """Return what the pack holds of a field of several samples; None where there is no value.

        Parameters
        ----------
        positions : (N,) int64 array
            As `positions` gives.
        name : str
            The name of a field whose values are bytes.

        Raises
        ------
        CorruptPackError
            If the bytes, or the row that leads to them, are not what was written; the error names index and field.
        """
        (found,) = self.blobs_of(positions, (name,))
        return found

    def blobs_of(self, positions: Ints, names: Sequence[str]) -> list[list[Buffer | None]]:
        """Return what `blobs` returns, of each of several fields; what lies side by side is read at once."""
        located = [rows.T.tolist() for rows in self._locate_all(positions, names)]
        found: list[list[Buffer | None]] = [[None] * len(positions) for _ in names]
        for place in np.argsort(self.table.offset[positions]).tolist():  # reads go through the file in one direction
            blobs = self._blobs_of_one(int(positions[place]), names, *(rows[place] for rows in located))
            for of_field, blob in zip(found, blobs, strict=True):
                of_field[place] = blob
        return found

    def locate_blobs(self, positions: Ints, name: str) -> tuple[Ints, Ints, Ints]:
        """Return where the blobs of a field begin, as a row's `offset` counts; their sizes, and their checksums."""
        offsets, sizes, checksums = self._locate_all(positions, (name,))
        return offsets[0], sizes[0], checksums[0]

    def _locate_all(self, positions: Ints, names: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """Return what `locate_blobs` returns, of F fields: three (F, N) arrays."""
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
        """Yield what the pack holds of several fields of one sample, compared with the checksums."""
        name = None
        begin, together = self._fetch_together(offsets, sizes)
        for field, offset, size, expected in zip(names, offsets, sizes, checksums, strict=True):
            if size == NO_VALUE and expected == 0:
                yield None
                continue
            try:
                if size == 0:  # and it may lie where the data end
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
                    raise self._damaged(position, f"field {field!r}: the checksum does not fit")
            yield blob

    def _fetch_together(self, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[int, Buffer]:
        """Return where the first of several blobs begins, and the bytes from there to the end of the last.

        No bytes where more lie between that are others'; or where a damaged size leads out of the file, so that each
        blob is fetched by itself, and the error names the one that cannot be.
        """
        places = [(offset, size) for offset, size in zip(offsets, sizes, strict=True) if size > 0]
        if len(places) > 1:
            begin, wanted = min(places)[0], sum(size for _, size in places)
            length = max(offset + size for offset, size in places) - begin
            if length <= min(2 * wanted, _MOST_TOGETHER):
                with contextlib.suppress(PackError):
                    return begin, self._fetch(begin, length)
        return 0, b""

    def require_column(self, name: str) -> None:
        """Compare a whole column of the table with its checksum; CorruptPackError where it does not fit."""
        if column_checksum(self.table.columns()[name]) != self.manifest.columns.get(name):
            raise CorruptPackError(f"the table's column {name!r} does not fit its checksum", self.path)

    def _damaged(self, index: int, reason: str) -> CorruptPackError:
        return CorruptPackError(f"damaged: {reason}", self.path, index, self.names.get(index))

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "check": self.check, "identity": self.manifest.identity()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], check=state["check"])  # type: ignore[misc]
        if self.manifest.identity() != state["identity"]:
            self.close()
            raise PackError(
                f"{printable(state['path'])}: another pack now lies where this one was opened. Whoever reads the old "
                "one and whoever opens the path would read different samples: open the dataset anew"
            )


def table_from(columns: Mapping[str, Any], manifest: Manifest, path: str) -> Table:
    """Build a table from what a format found; CorruptPackError where the columns do not fit together."""
    try:
        return Table.of(columns, manifest.column_types)
    except ValueError as error:
        raise CorruptPackError(str(error), path) from error
