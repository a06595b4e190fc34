"""Builds the records that tell C which samples to read and decode, and where to write the pixels.

The C code also computes sizes and checksums of images, and reads no more bytes than it needs for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._codecs import MAX_PIXELS
from packer._images.extension import _native, require_fields
from packer._images.geometry import CROP, Crops
from packer._images.native import TASK
from packer._images.operations import OPERATION, Operations
from packer._images.probe import ROTATED
from packer._storage.packfile import LARGEST_READ, LOCATION
from packer._table import LONGEST_NAME, Ints, Table

_COLUMNS = "label", "height", "width", "offset", "size", "crc32c", "name_end"
_OF_TASK, _OF_CROP, _OF_OPERATION = (record.itemsize // 8 for record in (TASK, CROP, OPERATION))  # numbers of 64 bits


class Results(NamedTuple):
    """The output memory of one view: address of the first result, stride in bytes, and size of each result."""

    address: int
    step: int
    height: int
    width: int


class DecodeTasks:
    """The decode tasks for V views of N images.

    Parameters
    ----------
    count, views, operations : int
        N, V, and how many operations each view has.

    Attributes
    ----------
    at, operations_at, places_at, sums_at : int
        The addresses of this object's arrays, for C.
    """

    def __init__(self, count: int, views: int, operations: int) -> None:
        self._shape = count, views
        sizes = count * views * _OF_TASK, count * views * operations * _OF_OPERATION, count, count + 1
        self._parts = np.split(np.empty(sum(sizes), np.int64), np.cumsum(sizes[:-1]))
        self.at, self.operations_at, self.places_at, self.sums_at = (part.ctypes.data for part in self._parts)

    @property
    def tasks(self) -> npt.NDArray[Any]:
        """(N, V) array of TASK; `aim` sets the addresses of the results.

        If the samples are in several files, `position` in a task is the sample's offset as the table stores it, and the
        caller must set `file`. If the file is `NOWHERE`, the caller must not change it: the row's
        name is damaged, or packer's decoder is not suitable.
        """
        return self._parts[0].view(TASK).reshape(self._shape)

    @property
    def operations(self) -> Operations:
        """(N, V, M) array of OPERATION: the operations on each result."""
        count, views = self._shape
        operations = len(self._parts[1]) // max(count * views * _OF_OPERATION, 1)
        return self._parts[1].view(OPERATION).reshape(count, views, operations)

    @property
    def places(self) -> Ints:
        """(N,) int64 array: the index of each task's image in the batch."""
        return self._parts[2]

    @property
    def sums(self) -> Ints:
        """(N + 1,) int64 array: running totals of pixels, from 0 up to the total of all images.

        For each image, the largest of three numbers is added: its pixels, the pixels of its result, and the pixels
        between the two passes of resizing.
        """
        return self._parts[3]

    def aim(self, start: int, end: int, results: Sequence[Results]) -> bool:
        """Set the outputs for a range of images in a batch; return whether the outputs have the right size."""
        numbers = np.array(results, np.int64)
        views = self._shape[1]
        tasks, places = self.at + 8 * _OF_TASK * views * start, self.places_at + 8 * start
        return _native.aim(tasks, end - start, views, places, start, numbers.ctypes.data)


class TaskBuilder:
    """Builds decode tasks for the samples of a pack, in C.

    Parameters
    ----------
    table : Table
    raw : bool
        Whether the pack stores raw pixels.
    checked : bool
        Whether C compares the bytes of samples with their checksums.
    """

    def __init__(self, table: Table, *, raw: bool, checked: bool) -> None:
        self._table = table  # C gets only the addresses of its columns
        columns = [getattr(table, name) for name in _COLUMNS]
        addresses, steps = [column.ctypes.data for column in columns], [column.strides[0] for column in columns]
        names = table.names.ctypes.data, len(table.names), LONGEST_NAME
        self._numbers = np.array([*addresses, *names, raw, checked, MAX_PIXELS, LARGEST_READ, *steps], np.int64)
        self._address = self._numbers.ctypes.data

    def tasks(self, rows: Ints, crops: Crops, batch: int, step: int, file: tuple[int, int, int]) -> DecodeTasks:
        """Return the tasks of some rows.

        A batch is divided into groups of `step` images; within a group, the tasks are sorted by offset in the file.

        Parameters
        ----------
        rows : (N,) int64 array
            The result of `Reader.positions`, which is not checked here.
        crops : (N, V) array of CROP
            With operations or without; see `packer._images.operations.with_operations`.
        batch, step : int
            The number of images in a batch, and of images that are sorted together; each 1 or more.
        file : (int, int, int)
            The single file that contains all samples: its descriptor, the position of offset 0 in it, and the number of
            bytes from there on. The descriptor is -1 if samples are in several files.
        """
        for name in (*_COLUMNS, "names"):
            self._table.column(name)  # raises an error if the file of a mapped table was cut short
        rows, crops = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(crops)
        each, (count, views) = crops.dtype.itemsize // 8, crops.shape
        tasks = DecodeTasks(count, views, (each - _OF_CROP) // _OF_OPERATION)
        arguments = count, views, crops.ctypes.data, each, batch, step, *file
        outputs = tasks.at, tasks.operations_at, tasks.places_at, tasks.sums_at
        _native.locate(self._address, rows.ctypes.data, *arguments, *outputs)
        return tasks


CAN_SURVEY = _native is not None
"""Whether `survey`, which needs packer's C, is available; otherwise `packer._images.probe.inspect` is used."""

FINDINGS = {1: "CMYK", 2: ROTATED, 4: "bytes after its end"}
"""Findings of `inspect`, by their bits in the field ``findings`` of `SURVEY`."""

KINDS = "jpeg", "png", "webp"
"""Kinds of images, as `inspect` names them; the field ``kind`` of `SURVEY` is an index into this tuple."""

_OF_AN_IMAGE = "turned", "out", "read", "modified", "kind", "orientation", "findings", "seen"

SURVEY = np.dtype([*LOCATION.descr, *((name, np.int64) for name in _OF_AN_IMAGE)])
"""An image and its properties.

The fields of `LOCATION`
    ``checked`` tells whether a checksum is computed. The results ``height``, ``width`` and ``crc32c`` are written here.
``turned``
    Whether height and width are those of the image turned by its EXIF orientation.
``out``
    The address of memory for all bytes of an image in a file; 0 to read only the bytes that the results need.
``read``
    Result: whether all bytes were read to ``out``; 0 if the image is a whole file that changed meanwhile.
``modified``
    Result: if the image is a whole file that was ``read``, the time of its last change in nanoseconds.
``kind``, ``orientation``
    Results: an index into `KINDS`; the EXIF orientation, 1 to 8.
``findings``
    Result: bits of `FINDINGS`.
``seen``
    Result: 0 if the image does not exist, or is so unusual that `inspect` has to inspect it.
"""

require_fields(SURVEY.names, "SURVEY_FIELDS")


def survey(records: npt.NDArray[Any]) -> None:
    """Inspect images, as `inspect` does, and write the results into their records.

    Parameters
    ----------
    records : contiguous (N,) array of SURVEY
        The addresses in them are not checked.
    """
    _native.survey(records.ctypes.data, len(records))
