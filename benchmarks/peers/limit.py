"""What no loader of these libraries can exceed: their calls alone, on plain threads, over inputs prepared in memory.

The inputs are those that `packer.Loader` would give the libraries in the same epoch: JPEGs whose header says that
they end below the crop's last row, or the tiles that the crop touches, joined (with `whole`, untouched ones), each with
its rectangle. Choosing crops, reading, checking, patching headers, joining tiles, flipping, queues and batches are left
out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peers import BATCH, OUTPUT, RESIZE, own

REQUIRES = ("torch", "simplejpeg")
NOTE = "simplejpeg's decode into a reused buffer, torch's anti-aliased resize into the batch; nothing else"

prepare = own.prepare

_TASK = 8  # images that a thread takes in turn
_RING = 4  # batches that are written, in turn


def open_loader(pack: Path, crop: str, threads: int, whole: bool = False) -> Any:
    return Limit(pack, crop, threads, whole)


class Input(NamedTuple):
    """What a thread gets: a JPEG or pixels, its size, whether it is cut below, the rectangle and how to resize that."""

    data: Any
    size: tuple[int, int]
    cut: bool
    rectangle: tuple[int, int, int, int]
    box: Any


class Limit:
    def __init__(self, pack: Path, crop: str, threads: int, whole: bool) -> None:
        import torch

        from packer import open_dataset
        from packer.crops import CenterCrop, RandomResizedCrop

        chosen = RandomResizedCrop(OUTPUT) if crop == "train" else CenterCrop(OUTPUT, RESIZE)
        self.dataset = open_dataset(pack, crop=chosen)
        self.threads = threads
        self.whole = whole
        self.raw = self.dataset.reader.manifest.codec == "raw"
        self.batches = torch.empty((_RING, BATCH, OUTPUT, OUTPUT, 3), dtype=torch.uint8).permute(0, 1, 4, 2, 3)
        self.inputs: list[Input] = []

    def set_epoch(self, epoch: int) -> None:
        self.inputs.clear()
        table = self.dataset.reader.table
        indices = np.arange(len(self.dataset), dtype=np.int64)
        for index, box in enumerate(self.dataset.boxes(indices, epoch, 0).each()):
            size = int(table.height[index]), int(table.width[index])
            self.inputs.append(self._input(bytes(self.dataset.reader.read(index)), size, box))

    def _input(self, stored: bytes, size: tuple[int, int], box: Any) -> Input:
        from packer.images import cutting
        from packer.images.box import from_corner, touched

        top, left, height, width = from_corner(box, touched(box, OUTPUT, OUTPUT))
        if self.raw:
            pixels = np.frombuffer(stored, np.uint8).reshape(*size, 3)[top : top + height, left : left + width].copy()
            return Input(pixels, size, False, (0, 0, height, width), box)
        part = None if self.whole else cutting.cut_out(stored, size, (top, left, height, width))
        if part is not None:
            part_top, part_left, *part_size = part.rectangle
            rectangle = top - part_top, left - part_left, height, width
            return Input(bytes(part.data), tuple(part_size), False, rectangle, box)
        data, rows = (stored, size[0]) if self.whole else cutting.first_rows(stored, size, top + height)
        return Input(bytes(data), (rows, size[1]), rows < size[0], (top, left, height, width), box)

    def __iter__(self) -> Iterator[Any]:
        errors: list[BaseException] = []
        workers = [threading.Thread(target=self._guarded, args=(number, errors)) for number in range(self.threads)]
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

    def _guarded(self, number: int, errors: list[BaseException]) -> None:
        try:
            self._work(number)
        except BaseException as error:
            errors.append(error)

    def _work(self, number: int) -> None:
        import torch

        from packer.images.region import resize_into
        from packer.images.turbojpeg import decode_jpeg

        resize = torch.ops.aten._upsample_bilinear2d_aa.out
        scratch = np.empty(max(one.size[0] * one.size[1] * 3 for one in self.inputs), np.uint8)
        for start in range(number * _TASK, len(self.inputs), self.threads * _TASK):
            for index in range(start, min(start + _TASK, len(self.inputs))):
                stored, (rows, columns), cut, (top, left, height, width), box = self.inputs[index]
                pixels = stored
                if not self.raw:
                    out = scratch[: rows * columns * 3].reshape(rows, columns, 3)
                    pixels = decode_jpeg(stored, out, cut=cut)
                place = self.batches[index // BATCH % _RING, index % BATCH][None]
                pixels = pixels[top : top + height, left : left + width]
                if box.scaled == (OUTPUT, OUTPUT):
                    source = torch.from_numpy(pixels).permute(2, 0, 1)[None]
                    resize(source, (OUTPUT, OUTPUT), False, None, None, out=place)
                else:  # the evaluation crop, which is not mirrored
                    resize_into(pixels, box, place)
