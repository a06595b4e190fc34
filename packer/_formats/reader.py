"""Random access to the samples of a pack, in every way that there is, from the little that a format must say."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._formats.values import ValueAccess
from packer._manifest import Manifest
from packer._storage.locations import LOCATION, MEMORY, NOWHERE
from packer._storage.place import Place, place_of
from packer._table import (
    LONGEST_NAME,
    Buffer,
    Ints,
    Names,
    Row,
    Table,
    Vector,
)
from packer.errors import CorruptPackError, PackError, printable

__all__ = ["Reader", "table_from"]


class Reader(ValueAccess):
    """Gives random access to the samples of one pack.

    Safe in many threads at once and after a fork; a pickled reader is its path, and opens the pack again where
    it is unpickled. Two readers of one pack do not disturb each other.

    Parameters
    ----------
    path : path or URL
        The pack.
    check : {"always", "never"}
        Whether `read` compares every sample with its checksum (5 to 10 µs for a photo of 100 kB).

    Attributes
    ----------
    path : str
        That of the pack, absolute; or its URL, without what is secret in it.
    manifest : Manifest
    table : Table
        Its columns are read-only, and read from the pack when they are first asked for.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the file is no pack of this format, is damaged, or was written by a newer packer.
    """

    def __init__(self, path: str | os.PathLike[str] | Place, *, check: str = "always") -> None:
        if check not in ("always", "never"):
            raise ValueError(f"check is 'always' or 'never', not {check!r}")
        self.place = place_of(path)
        self.path = self.place.path
        self.check = check
        self.manifest, self.table = self._open()
        self._checked_columns = {}
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
        table, names, found = self.table, self.table.names, np.empty(len(positions), LOCATION)
        for name in ("size", "height", "width", "crc32c"):
            found[name] = getattr(table, name)[positions]
        found["label"] = table.label[positions].view(np.int64)  # its eight bytes, of which C takes the checksum
        found["raw"], found["checked"] = self.manifest.codec == "raw", self.check == "always"
        start, end = np.where(positions > 0, table.name_end[positions - 1], 0), table.name_end[positions]
        named = (start >= 0) & (start <= end) & (end <= len(names)) & (end - start <= LONGEST_NAME)
        found["name"], found["name_size"] = np.where(named, (names.ctypes.data + start, end - start), 0)
        found["file"], found["position"] = np.where(named, MEMORY, NOWHERE), table.offset[positions]
        return found, (self._hold_names(found), self._locate_in_files(found))

    def _hold_names(self, records: npt.NDArray[Any]) -> object:
        """Let records of samples, `LOCATION` or `TASK`, have their names where these stay while C reads them.

        Returns
        -------
        object
            To be kept for as long.
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
        """Let records of what the table says tell in which files the bytes lie: those whose file is not `NOWHERE`.

        Parameters
        ----------
        found : (N,) array
            It has the fields of LOCATION. The position is the table's offset, and becomes the place in the file.

        Returns
        -------
        object
            What `locate` returns.
        """
        files, positions, held = self._locate(found["position"], found["size"])
        found["file"] = np.where(found["file"] == NOWHERE, NOWHERE, files)
        found["position"] = positions
        return held

    def ahead(self, positions: Ints, image: bool = True, fields: Sequence[str] = (), *, urgent: bool = False) -> None:
        """Have the bytes of samples fetched, in this order, without waiting; those on a disk are read when wanted.

        Bytes that were ordered before are not ordered again.

        Parameters
        ----------
        positions : (N,) int64 array
            As `positions` gives.
        image : bool
            Whether the images are wanted.
        fields : sequence of str
            The fields that are wanted too, of those whose values are bytes.
        urgent : bool
            Whether they are read at once, before what was ordered ahead.
        """
        if not self.remote or not len(positions):
            return
        self.require_table()
        wanted = [(self.table.offset[positions], self.table.size[positions])] if image else []
        wanted += [self.locate_blobs(positions, name)[:2] for name in fields]
        if wanted:
            offset, size = (np.stack(column, 1).ravel() for column in zip(*wanted, strict=True))
            self._ahead(offset[size > 0], size[size > 0], urgent=urgent)

    def ahead_whole(self, positions: Sequence[int]) -> None:
        """Have all that belongs to samples fetched, as `ahead`."""
        if self.remote:
            self.ahead(np.asarray(positions), fields=[name for name, field in self.fields.items() if field.is_blob])

    def positions(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return indices counted from the beginning; errors as for `position`."""
        wanted = np.asarray(indices)
        if wanted.dtype == np.int64 and len(wanted) and wanted.min() >= 0 and wanted.max() < len(self):
            return wanted
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
        if len(positions) > 1:
            self.ahead(np.sort(positions), urgent=True)
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

    def require_column(self, name: str) -> None:
        """Compare a whole column of the table with its checksum; CorruptPackError where it does not fit."""
        if self.table.checksum(name) != self.manifest.columns.get(name):
            raise CorruptPackError(f"the table's column {name!r} does not fit its checksum", self.path)

    def _damaged(self, index: int, reason: str) -> CorruptPackError:
        return CorruptPackError(f"damaged: {reason}", self.path, index, self._name_in_error(index))

    def _name_in_error(self, index: int) -> str:
        """Return a sample's name for a message; empty where the names cannot be read, which may be what is wrong."""
        try:
            return self.names.get(index)
        except PackError:
            return ""

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
                f"{printable(self.path)}: another pack now lies where this one was opened. Whoever reads the old "
                "one and whoever opens the path would read different samples: open the dataset anew"
            )


def table_from(columns: Mapping[str, npt.NDArray[Any] | Vector], manifest: Manifest, path: str) -> Table:
    """Build a table from what a format found; CorruptPackError where the columns do not fit together."""
    for name, column in columns.items():
        if isinstance(column, Vector):
            column.checksum = manifest.columns.get(name)
    try:
        return Table.of(columns, manifest.column_types)
    except ValueError as error:
        raise CorruptPackError(str(error), path) from error
