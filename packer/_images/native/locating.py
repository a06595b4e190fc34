"""What the table of a pack says of samples, gathered in C: the part of a task that is the same each time it is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.native import TASK
from packer._table import LONGEST_NAME, Ints, Table

__all__ = ["Locating"]

_COLUMNS = "label", "height", "width", "offset", "size", "crc32c", "name_end"


class Locating:
    """Begins the tasks of a pack's samples. It needs packer's C.

    Parameters
    ----------
    table : Table
    raw : bool
        Whether the pack has pixels.
    checked : bool
        Whether what is read is compared with its checksum.
    """

    def __init__(self, table: Table, *, raw: bool, checked: bool) -> None:
        self._table = table  # kept alive: the addresses are those of its columns
        columns = [getattr(table, name) for name in _COLUMNS]
        addresses, steps = [column.ctypes.data for column in columns], [column.strides[0] for column in columns]
        numbers = table.names.ctypes.data, len(table.names), LONGEST_NAME, raw, checked
        self._numbers = np.array([*addresses, *numbers, *steps], np.int64)
        self._address = self._numbers.ctypes.data

    def tasks(self, positions: Ints) -> npt.NDArray[Any]:
        """Return the beginning of tasks.

        Parameters
        ----------
        positions : (N,) int64 array
            As `Reader.positions` gives. They are believed, as is the table to be whole: see `Reader.require_table`.

        Returns
        -------
        (N,) array of TASK
            The position is the table's offset; the file is `NOWHERE` where a name does not lie among the names, and
            otherwise to be filled in, as all fields of a crop, and the result's address.
        """
        positions = np.ascontiguousarray(positions, np.int64)
        made = np.empty(len(positions), TASK)
        _native.locate(self._address, positions.ctypes.data, len(positions), made.ctypes.data)
        return made
