"""The limit of every loader: only the calls that decode and resize, on plain threads, with inputs prepared in memory.

The calls are those of packer's own decoder, which takes eight images and boxes at a time (for raw pixels, those of its
resizing), or those of libraries: libjpeg-turbo's decoder through simplejpeg, and torch's resizing. The libraries get
the input that packer would pass to them in the same epoch: JPEGs whose header is changed to end below the crop's last
row, or the tiles that the crop touches, joined, each with its rectangle. Choosing crops, reading, checking, patching
headers, joining tiles, queues and batches are left out.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from packer._measuring.loaders import AT_A_TIME, Call, drawing
from peers import BATCH, OUTPUT, RESIZE, own

REQUIRES = ("torch", "simplejpeg")
NOTE = "the calls that decode and resize into the batch; nothing else"

prepare = own.prepare

_RING = 4  # batches that are written, in turn


def open_loader(pack: Path, crop: str, threads: int, libraries: bool = False) -> Any:
    return Limit(pack, crop, threads, libraries)


class Limit:
    def __init__(self, pack: Path, crop: str, threads: int, libraries: bool) -> None:
        import torch

        from packer import open_dataset
        from packer.crops import RandomResizedCrop, ResizeCenterCrop

        torch.set_num_threads(1)
        chosen = RandomResizedCrop(OUTPUT, flip=0.5) if crop == "train" else ResizeCenterCrop(OUTPUT, RESIZE)
        self.dataset = open_dataset(pack, crop=chosen)
        self.threads = threads
        raw = self.dataset.reader.manifest.codec == "raw"
        self.prepare_calls = _library_calls if libraries else functools.partial(drawing, raw)
        self.batches = torch.empty((_RING, BATCH, OUTPUT, OUTPUT, 3), dtype=torch.uint8).permute(0, 1, 4, 2, 3)
        self.tasks: list[tuple[Call, Any]] = []

    def set_epoch(self, epoch: int) -> None:
        from packer._images.geometry import Box

        table = self.dataset.reader.table
        crops = self.dataset._choose_crops(np.arange(len(self.dataset), dtype=np.int64), epoch, 0)
        boxes = [Box(*numbers) for numbers in crops.tolist()]
        sizes = list(zip(table.height.tolist(), table.width.tolist(), strict=True))
        self.tasks = []
        for start in range(0, len(boxes), AT_A_TIME):
            some = slice(start, start + AT_A_TIME)
            stored = [bytes(self.dataset.reader.read(index)) for index in range(len(boxes))[some]]
            places = self.batches[start // BATCH % _RING, start % BATCH :][: len(stored)]
            self.tasks.append((self.prepare_calls(stored, sizes[some], boxes[some]), places))

    def __iter__(self) -> Iterator[Any]:
        errors: list[BaseException] = []
        tasks = iter(self.tasks)
        workers = [threading.Thread(target=_work, args=(tasks, errors)) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]
        labels = self.dataset.reader.table.label
        for start in range(0, len(labels), BATCH):
            some = labels[start : start + BATCH]
            yield self.batches[start // BATCH % _RING][: len(some)], some


def _work(tasks: Iterator[tuple[Call, Any]], errors: list[BaseException]) -> None:
    try:
        for call, places in tasks:  # shared by the threads, which take the next one each
            call(places)
    except BaseException as error:
        errors.append(error)


def _library_calls(stored: list[bytes], sizes: list[tuple[int, int]], boxes: list[Any]) -> Call:
    calls = [_library_call(*one) for one in zip(stored, sizes, boxes, strict=True)]

    def call(places: Any) -> None:
        for place, one in zip(places.split(1), calls, strict=True):
            one(place)

    return call


def _library_call(stored: bytes, size: tuple[int, int], box: Any) -> Call:
    import torch

    from packer._images import jpeg_tiles
    from packer._images.rectangle import resize_by_torch
    from packer._images.turbojpeg import decode_jpeg

    top, left, height, width = _rectangle(box)
    part = jpeg_tiles.cut_out(stored, size, (top, left, height, width))
    if part is not None:
        data, (part_top, part_left, rows, columns) = part
        top, left, cut = top - part_top, left - part_left, False
    else:
        data, rows = jpeg_tiles.first_rows(stored, size, top + height) or (stored, size[0])  # progressive: all
        columns, cut = size[1], rows < size[0]
    data = bytes(data)
    resize = torch.ops.aten._upsample_bilinear2d_aa.out

    def call(place: Any) -> None:
        pixels = decode_jpeg(data, _scratch(rows, columns), cut=cut)[top : top + height, left : left + width]
        if box.scaled == (OUTPUT, OUTPUT):
            resize(torch.from_numpy(pixels).permute(2, 0, 1)[None], box.scaled, False, None, None, out=place)
        else:  # the evaluation crop, which is not mirrored
            resize_by_torch(pixels, box, place)

    return call


def _rectangle(box: Any) -> tuple[int, int, int, int]:
    from packer._images.geometry import from_corner, touched

    return from_corner(box, touched(box))


_memory = threading.local()


def _scratch(rows: int, columns: int) -> Any:
    """Return memory of this thread for an image, used again and again."""
    needed = rows * columns * 3
    if getattr(_memory, "pixels", np.empty(0)).size < needed:
        _memory.pixels = np.empty(2 * needed, np.uint8)
    return _memory.pixels[:needed].reshape(rows, columns, 3)
