"""SPDL (https://github.com/facebookresearch/spdl): its own pipeline of threads, its own decoding by FFmpeg."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, random_crop, samples

REQUIRES = ("spdl.io", "spdl.pipeline")
NOTE = (
    "files of the tree; PipelineBuilder: demux and decode an image a task on its threads, FFmpeg's filter graph crops, "
    "mirrors and resizes (area) before it makes RGB; convert_frames makes the batch, NHWC"
)

_QUEUE = 3  # batches, as in SPDL's own advice


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int) -> Any:
    return Epochs(samples(pack), crop == "train", threads)


class Epochs:
    """Builds a pipeline for each epoch, as SPDL's own DataLoader does."""

    def __init__(self, files: list[tuple[Path, int]], train: bool, threads: int) -> None:
        self.files = [(str(path), label) for path, label in files]
        self.train = train
        self.threads = threads

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        order = random.sample(self.files, len(self.files)) if self.train else self.files
        pipeline = (
            PipelineBuilder()
            .add_source(order)
            .pipe(partial(_decode, train=self.train), concurrency=self.threads, output_order="input")
            .aggregate(BATCH)
            .pipe(_batch)
            .add_sink(_QUEUE)
            .build(num_threads=self.threads)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


def _decode(sample: tuple[str, int], train: bool) -> tuple[Any, int]:
    import spdl.io

    packets = spdl.io.demux_image(sample[0])
    size = packets.codec.height, packets.codec.width
    steps = _train_filter(*size) if train else _eval_filter(*size)
    return spdl.io.decode_packets(packets, filter_desc=f"{steps},format=pix_fmts=rgb24"), sample[1]


def _train_filter(height: int, width: int) -> str:
    top, left, rows, columns = random_crop(height, width)
    mirrored = ",hflip" if random.random() < 0.5 else ""
    return f"crop={columns}:{rows}:{left}:{top},scale={OUTPUT}:{OUTPUT}:flags=area{mirrored}"


def _eval_filter(height: int, width: int) -> str:
    scale = RESIZE / min(height, width)
    return f"scale={round(width * scale)}:{round(height * scale)}:flags=area,crop={OUTPUT}:{OUTPUT}"


def _batch(some: list[tuple[Any, int]]) -> tuple[Any, list[int]]:
    import spdl.io

    frames = [frame for frame, _ in some]
    return spdl.io.to_torch(spdl.io.convert_frames(frames)), [label for _, label in some]
