"""What no loader can exceed: the calls alone that decode and resize, on plain threads, over images that lie in memory.

Choosing crops, reading, checking, queues and batches are left out.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from packer._images import native
from packer._images.geometry import CROP, Box
from packer._images.operations import parted
from packer._images.rectangle import RectangleDecoder
from packer._loading.imagedataset import ImageDataset
from packer._table import Ints

__all__ = ["AT_A_TIME", "Call", "Limit", "drawing"]

AT_A_TIME = 8  # images that a thread takes in turn

Call = Callable[[torch.Tensor], None]
"""Draws images, into the (N, 3, H, W) places that it is given."""


class Limit:
    """packer's own calls over some images of a dataset whose crops have one size; crops are those of epoch 0, seed 0.

    Parameters
    ----------
    dataset : ImageDataset
        With a `crop`.
    indices : (N,) int64 array
        Which images; their bytes are held in memory.
    """

    def __init__(self, dataset: ImageDataset, indices: Ints) -> None:
        crops, _ = parted(dataset._choose_crops(indices, 0, 0))
        self._tasks: list[tuple[Call, int]] = []
        self._shape = 3, int(crops["out_height"][0]), int(crops["out_width"][0])
        table, raw = dataset.reader.table, dataset.reader.manifest.codec == "raw"
        for start in range(0, len(indices), AT_A_TIME):
            some = indices[start : start + AT_A_TIME]
            stored = [bytes(dataset.reader.read(int(index))) for index in some]
            sizes = list(zip(table.height[some].tolist(), table.width[some].tolist(), strict=True))
            boxes = [Box(*numbers) for numbers in crops[start : start + AT_A_TIME].tolist()]
            self._tasks.append((drawing(raw, stored, sizes, boxes), len(some)))

    def read(self, threads: int, seconds: float) -> tuple[int, float]:
        """Draw images on so many threads for about so long, again and again; return how many, and how long it took."""
        tasks = itertools.cycle(self._tasks)
        counts, errors = [0] * threads, []
        begin = time.perf_counter()

        def work(number: int) -> None:
            _, height, width = self._shape
            place = torch.empty((AT_A_TIME, height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
            try:
                while not counts[number] or time.perf_counter() - begin < seconds:
                    call, count = next(tasks)
                    call(place[:count])
                    counts[number] += count
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]
        return sum(counts), time.perf_counter() - begin


def drawing(raw: bool, stored: Sequence[bytes], sizes: Sequence[tuple[int, int]], boxes: Sequence[Box]) -> Call:
    """Return packer's call that draws some images, each by its size and its crop; raw pixels are only resized."""
    images = native.in_memory(stored, sizes)
    images["raw"] = raw
    tasks = native.tasks(images, np.array(boxes, CROP), np.zeros(len(boxes), np.int64))

    def call(places: Any) -> None:
        _, channels, height, width = places.shape
        own = tasks.copy()
        own["out"] = places.data_ptr() + channels * height * width * np.arange(len(places))
        for number in native.decode_into(own):  # what is left to libraries
            RectangleDecoder().decode_into(stored[number], sizes[number], boxes[number], places[number][None])

    return call
