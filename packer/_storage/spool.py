"""Data that grow with a pack while it is made, on the disk, so that the memory does not grow with the pack."""

from __future__ import annotations

import contextlib
import struct
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from packer._storage.files import writing_to
from packer._table import COLUMNS, Buffer, Names, Table

__all__ = ["Spool", "TableBuilder"]

_COLLECT = 1 << 16  # bytes
_CODES = {"<i8": "q", "<i4": "i", "<i2": "h", "|i1": "b", "<u4": "I", "|u1": "B", "<f8": "d", "<f4": "f"}
"""How `struct` calls the dtypes of columns."""


class Spool:
    """Bytes in a file that has no name, and is gone when it is closed.

    Parameters
    ----------
    directory : Path, optional
        Where the file lies; by default where the system keeps temporary files.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or Path(tempfile.gettempdir())
        with writing_to(self._directory):
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - held until `close`
        self._close = weakref.finalize(self, _close, self._file)
        self._collected = bytearray()
        self._size = 0

    def append(self, data: Buffer) -> None:
        """Add bytes at the end."""
        self._collected += data
        if len(self._collected) >= _COLLECT:
            self._write()

    def array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return all bytes so far as a vector, which stays valid; it is a mapping of the file."""
        self._write()
        if not self._size:  # which cannot be mapped
            return np.empty(0, dtype)
        return np.asarray(np.memmap(self._file, dtype, "r"))

    def close(self) -> None:
        """Close the file; vectors that were handed out stay valid."""
        self._close()

    def _write(self) -> None:
        with writing_to(self._directory):
            self._file.write(self._collected)
            self._file.flush()
        self._size += len(self._collected)
        self._collected.clear()


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # the error of a full disk, which was reported when the file was written to
        file.close()


class TableBuilder:
    """Collects the rows of a table in spools.

    Parameters
    ----------
    directory : Path, optional
        Where their files lie.
    types : mapping, optional
        The columns and their dtypes; see `packer._table.column_types`.
    """

    def __init__(self, directory: Path | None = None, types: Mapping[str, str] = COLUMNS) -> None:
        self._types = types
        of_a_row = {name: dtype for name, dtype in types.items() if name != "names"}
        self._row = struct.Struct("<" + "".join(map(_CODES.__getitem__, of_a_row.values())))
        self._row_type = np.dtype(list(of_a_row.items()))
        self._rows, self._names = Spool(directory), Spool(directory)
        self._count = 0
        self._name_end = 0

    def __len__(self) -> int:
        return self._count

    def append(
        self,
        *,
        label: int | float,
        height: int,
        width: int,
        offset: int,
        size: int,
        crc32c: int,
        name: bytes,
        more: Sequence[int | float] = (),
    ) -> None:
        """Add one row; `more` are the columns of the fields, in their order."""
        self._count += 1
        self._name_end += len(name)
        self._rows.append(self._row.pack(label, height, width, offset, size, crc32c, self._name_end, *more))
        self._names.append(name)

    def extend(self, columns: Mapping[str, npt.NDArray[Any]], names: Names) -> None:
        """Add rows; `columns` are all but the two of the names, which may be of wider numbers than the table's."""
        rows = np.empty(len(names), self._row_type)
        for name in rows.dtype.names or ():
            rows[name] = names.ends + self._name_end if name == "name_end" else columns[name]
        self._count += len(names)
        self._name_end += len(names.blob)
        self._rows.append(rows.tobytes())
        self._names.append(names.blob.tobytes())

    def build(self) -> Table:
        """Return the table of the rows so far, which stays valid."""
        rows = self._rows.array(self._row_type)
        columns = {name: rows[name] for name in self._types if name != "names"}
        return Table.of({**columns, "names": self._names.array(np.uint8)}, self._types)

    def close(self) -> None:
        """Close the files; tables that were built stay valid."""
        self._rows.close()
        self._names.close()
