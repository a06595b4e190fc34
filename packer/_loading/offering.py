"""Images that are offered to C, which reads, checks and decodes many of them in one call, without Python's lock."""

from __future__ import annotations

import itertools

import numpy as np

from packer._formats import Reader
from packer._images.compiled import _native
from packer._images.geometry import MAX_PIXELS, Crops
from packer._images.native import become_in_c
from packer._images.native.locating import Locating
from packer._images.numbers import Numbers
from packer._loading.lookup import Lookup
from packer._storage.locations import NOWHERE
from packer._table import Ints

__all__ = ["Offer"]

_MEMBERS = "height", "width", "crop_height", "out_height", "out_width"


class Offer:
    """Views of images, of which C decodes some at a time. All that does not depend on the others is made at once.

    Parameters
    ----------
    reader : Reader
    locating : Locating
    rows : (N,) int64 array
        As `Reader.positions` gives them.
    crops : (N, V) array of CROP
        With operations or without.
    addresses : (N, V) int64 array
        Where the results go.
    step : int
        How many images are decoded at a time.
    numbers : Lookup or Numbers, optional
        What levels become.

    Attributes
    ----------
    places : (N,) int64 array
        The images in the order in which they are decoded: of each `step` that of their bytes.
    """

    def __init__(  # noqa: PLR0917
        self,
        reader: Reader,
        locating: Locating,
        rows: Ints,
        crops: Crops,
        addresses: Ints,
        step: int,
        numbers: Lookup | Numbers | None,
    ) -> None:
        reader.require_table()  # right before it is read: it is mapped, and the file may become shorter
        found = reader._one_file()
        self._reader, self._held = reader, found
        file = (-1, 0, 0) if found is None else (found[0].number, *found[1:])
        self._tasks, self._operations, self.places, self._most = locating.tasks(rows, crops, addresses, step, file)
        views, each = self._operations.shape[1:]
        self._views, self._each = views, each
        self._places_in_c = self._tasks.ctypes.data, self._operations.ctypes.data if each else 0
        self._sizes = self._tasks.strides[0], self._operations.strides[0] if each else 0
        self._table = numbers.table if isinstance(numbers, Lookup) else None
        self._coded = numbers.coded() if isinstance(numbers, Numbers) else None
        self._become = become_in_c(self._table, self._coded)

    def decode(self, begin: int, end: int) -> list[int]:
        """Decode the images from one place in their order to before another; return the views that are left to others.

        A view's number counts the views of these images.
        """
        _held = self._held or self._locate(begin, end)  # keeps files open until C has read from them
        left: list[int] = []
        for first, last in self._calls(begin, end):
            tasks, operations = (
                place + first * size for place, size in zip(self._places_in_c, self._sizes, strict=True)
            )
            self._reader.require_table()  # C copies the table's names
            count = (last - first) * self._views
            found = _native.decode_into(tasks, count, operations, self._each, *self._become)
            left += [(first - begin) * self._views + number for number in found]
        return left

    def _locate(self, begin: int, end: int) -> object:
        """Let tasks tell in which files the bytes lie, once; return what is to be kept until they were read."""
        tasks = self._tasks[begin:end]
        first = tasks[:, 0].copy()
        held = self._reader._locate_in_files(first)
        tasks["file"] = np.where(tasks["file"] == NOWHERE, NOWHERE, first["file"][:, None])
        tasks["position"] = first["position"][:, None]
        return held

    def _calls(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Divide images among calls of C, as Ctrl-C waits until a call ends.

        One call does for usual images. No call has more pixels than two images of the largest size, some seconds' work.
        """
        if (end - begin) * self._views * self._most <= MAX_PIXELS:
            return [(begin, end)]
        tall, wide, cut, high, across = (self._tasks[begin:end][name] for name in _MEMBERS)
        between = cut * across  # pixels between the two passes of resizing
        pixels = np.maximum(tall * wide, np.maximum(between, high * across)).clip(max=MAX_PIXELS).sum(1)
        ends = np.flatnonzero(np.diff(np.cumsum(pixels) // MAX_PIXELS)) + 1
        return list(itertools.pairwise([begin, *(begin + ends).tolist(), end]))
