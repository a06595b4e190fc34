"""Tasks of a pack's samples, made in C: what the table says of each, and what is wanted of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.geometry import CROP, MAX_PIXELS, Crops
from packer._images.native import TASK
from packer._images.operations import OPERATION, Operations
from packer._storage.packfile import LARGEST_READ
from packer._table import LONGEST_NAME, Ints, Table

__all__ = ["Located", "Locating"]

_COLUMNS = "label", "height", "width", "offset", "size", "crc32c", "name_end"
_OF_CROP, _OF_OPERATION = CROP.itemsize // 8, OPERATION.itemsize // 8  # numbers of each record


class Located(NamedTuple):
    """Tasks of V views of N images.

    Attributes
    ----------
    tasks : (N, V) array of TASK
        Without a file, the position is the table's offset, and the file is to be filled in, unless it is `NOWHERE`: a
        name does not lie among the names, or packer's decoder does not suit.
    operations : (N, V, M) array of OPERATION
        What is done to each result.
    places : (N,) int64 array
        Which of the images these are.
    most : int
        The most pixels of an image, a result, or what lies between the two passes of resizing.
    """

    tasks: npt.NDArray[Any]
    operations: Operations
    places: Ints
    most: int


class Locating:
    """Makes the tasks of a pack's samples. It needs packer's C.

    Parameters
    ----------
    table : Table
    raw : bool
        Whether the pack has pixels.
    checked : bool
        Whether what is read is compared with its checksum.
    scaled : bool
        Whether images may be halved, which is left to others.
    """

    def __init__(self, table: Table, *, raw: bool, checked: bool, scaled: bool = False) -> None:
        self._table = table  # kept alive: the addresses are those of its columns
        columns = [getattr(table, name) for name in _COLUMNS]
        addresses, steps = [column.ctypes.data for column in columns], [column.strides[0] for column in columns]
        names = table.names.ctypes.data, len(table.names), LONGEST_NAME
        self._numbers = np.array([*addresses, *names, raw, checked, MAX_PIXELS, scaled, LARGEST_READ, *steps], np.int64)
        self._address = self._numbers.ctypes.data

    def tasks(self, positions: Ints, crops: Crops, addresses: Ints, step: int, file: tuple[int, int, int]) -> Located:
        """Return tasks; of each `step` images in the order in which their bytes lie.

        Parameters
        ----------
        positions : (N,) int64 array
            As `Reader.positions` gives. They are believed, as is the table to be whole: see `Reader.require_table`.
        crops : (N, V) array of CROP
            With operations or without; see `packer._images.operations.with_operations`.
        addresses : (N, V) int64 array
            Addresses of the results' memory.
        step : int
            1 or more.
        file : (int, int, int)
            The file in which all bytes lie, if they lie in one: a descriptor, at which byte offsets begin to count, and
            how many bytes there are from there on. A descriptor of -1 without such a file.
        """
        positions, crops = np.ascontiguousarray(positions, np.int64), np.ascontiguousarray(crops)
        addresses, each = np.ascontiguousarray(addresses, np.int64), crops.dtype.itemsize // 8
        tasks, places = np.empty(crops.shape, TASK), np.empty(len(positions), np.int64)
        operations = np.empty((*crops.shape, (each - _OF_CROP) // _OF_OPERATION), OPERATION)
        count, views = crops.shape
        given = count, views, crops.ctypes.data, each, addresses.ctypes.data, step, *file
        made = tasks.ctypes.data, operations.ctypes.data, places.ctypes.data
        most = _native.locate(self._address, positions.ctypes.data, *given, *made)
        return Located(tasks, operations, places, most)
