"""What no loader of these libraries can exceed: their calls alone, on plain threads, over inputs prepared in memory.

The inputs are those that `packer.Loader` would give the libraries in the same epoch: JPEGs whose header says that
they end below the crop's last row (with `whole`, untouched ones), each with its rectangle. Choosing crops, reading,
checking, patching headers, flipping, queues and batches are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers import BATCH, OUTPUT, RESIZE, own

REQUIRES = ("torch", "simplejpeg")
NOTE = "simplejpeg's decode into a reused buffer, torch's _upsample_bilinear2d_aa.out into the batch; nothing else"

prepare = own.prepare

_TASK = 8  # images that a thread takes in turn
_RING = 4  # batches that are written, in turn


def open_loader(pack: Path, crop: str, threads: int, whole: bool = False) -> Any:
    return Limit(pack, crop, threads, whole)


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
        self.inputs: list[tuple[Any, int, int, bool, tuple[int, int, int, int]]] = []

    def set_epoch(self, epoch: int) -> None:
        from packer.images import jpeg, region

        self.inputs.clear()
        table = self.dataset.reader.table
        indices = np.arange(len(self.dataset), dtype=np.int64)
        boxes = self.dataset.boxes(indices, epoch, 0)
        for index, data in enumerate(self.dataset.reader.read_many(indices)):
            top, left = int(boxes.top[index]), int(boxes.left[index])
            rectangle = (top, left, top + int(boxes.height[index]), left + int(boxes.width[index]))
            height, width = int(table.height[index]), int(table.width[index])
            rows, stored = height, bytes(data)
            if self.raw:
                stored = np.frombuffer(stored, np.uint8).reshape(height, width, 3).copy()
            elif not self.whole:
                header = jpeg.read_header(stored)
                rows = region._rows_needed(header, rectangle[2])
                if rows < height:
                    stored = bytes(jpeg.with_height(stored, header, rows))
            self.inputs.append((stored, rows, width, rows < height, rectangle))

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

        from packer.images.turbojpeg import decode_jpeg

        resize = torch.ops.aten._upsample_bilinear2d_aa.out
        scratch = np.empty(max(rows * width * 3 for _, rows, width, _, _ in self.inputs), np.uint8)
        for start in range(number * _TASK, len(self.inputs), self.threads * _TASK):
            for index in range(start, min(start + _TASK, len(self.inputs))):
                stored, rows, width, cut, (top, left, bottom, right) = self.inputs[index]
                if self.raw:
                    pixels = stored
                else:
                    out = scratch[: rows * width * 3].reshape(rows, width, 3)
                    pixels = decode_jpeg(stored, out, cut=cut)
                source = torch.from_numpy(pixels[top:bottom, left:right]).permute(2, 0, 1)[None]
                place = self.batches[index // BATCH % _RING, index % BATCH][None]
                resize(source, (OUTPUT, OUTPUT), False, None, None, out=place)
