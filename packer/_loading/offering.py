"""Images that are offered to C, which reads, checks and decodes many of them in one call, without Python's lock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from packer._formats import Reader
from packer._images.compiled import _native
from packer._images.geometry import MAX_PIXELS, Crops
from packer._images.native import become_in_c
from packer._images.native.locating import Locating
from packer._images.numbers import Numbers
from packer._loading.lookup import Lookup
from packer._loading.placing import OTHERS, places_of, results_of
from packer._storage.locations import NOWHERE
from packer._table import Ints

__all__ = ["Offer"]


class Offer:
    """Views of images of some batches, of which C decodes some at a time. What C needs of all is made at once.

    Parameters
    ----------
    reader : Reader
    locating : Locating
    rows : (N,) int64 array
        As `Reader.positions` gives them.
    crops : (N, V) array of CROP
        With operations or without.
    batch : int
        How many images a batch has; the last one may have fewer.
    step : int
        How many images of a batch are decoded at a time.
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
        batch: int,
        step: int,
        numbers: Lookup | Numbers | None,
    ) -> None:
        reader.require_table()
        found = reader._one_file()
        self._reader, self._held = reader, found
        file = (-1, 0, 0) if found is None else (found[0].number, *found[1:])
        located = locating.tasks(rows, crops, batch, step, file)
        self._names = reader._hold_names(located.tasks.reshape(-1))
        self._located, self._crops = located, crops
        self.places, self._sums = located.places, located.sums.tolist()
        (_, self._views, self._each), size = located.operations.shape, located.tasks.dtype.itemsize
        self._task = size * self._views  # bytes of an image's tasks
        self._operations = located.operations[:1].nbytes
        self._numbers = numbers
        self._table = numbers.table if isinstance(numbers, Lookup) else None
        self._coded = numbers.coded() if isinstance(numbers, Numbers) else None
        self._become = become_in_c(self._table, self._coded)

    def aim(self, begin: int, end: int, outs: Sequence[torch.Tensor | Sequence[torch.Tensor]]) -> None:
        """Say where the images of a batch go, for each view; ValueError where the tensors are none for them."""
        batches = [out for out in outs if isinstance(out, torch.Tensor)]
        if len(batches) == len(outs):
            if not self._located.aim(begin, end, [results_of(out, end - begin, self._numbers) for out in batches]):
                raise ValueError(OTHERS)
            return
        for view, out in enumerate(outs):
            addresses = places_of(out, self._crops[begin:end, view], self._numbers)
            self._located.tasks["out"][begin:end, view] = addresses[self.places[begin:end] - begin]

    def decode(self, begin: int, end: int) -> list[int]:
        """Decode the images from one place in their order to before another; return the views that are left to others.

        A view's number counts the views of these images. `aim` was called before.
        """
        _held = self._held or self._locate(begin, end)  # keeps files open until C has read from them
        if self._sums[end] - self._sums[begin] <= MAX_PIXELS:
            return self._decode(begin, end)
        left: list[int] = []
        for first, last in self._calls(begin, end):
            left += [(first - begin) * self._views + number for number in self._decode(first, last)]
        return left

    def _decode(self, first: int, last: int) -> list[int]:
        tasks = self._located.at + first * self._task
        operations = self._located.operations_at + first * self._operations if self._each else 0
        return _native.decode_into(tasks, (last - first) * self._views, operations, self._each, *self._become)

    def _locate(self, begin: int, end: int) -> object:
        """Let tasks tell in which files the bytes lie, once; return what is to be kept until they were read."""
        tasks = self._located.tasks[begin:end]
        first = tasks[:, 0].copy()
        held = self._reader._locate_in_files(first)
        tasks["file"] = np.where(tasks["file"] == NOWHERE, NOWHERE, first["file"][:, None])
        tasks["position"] = first["position"][:, None]
        return held

    def _calls(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Divide images among calls of C, as Ctrl-C waits until a call ends.

        One call does for usual images. No call has more pixels than two images of the largest size, some seconds' work.
        """
        sums = np.array(self._sums[begin + 1 : end + 1]) - self._sums[begin]
        ends = np.flatnonzero(np.diff(sums // MAX_PIXELS)) + 1
        return list(itertools.pairwise([begin, *(begin + ends).tolist(), end]))
