"""NVIDIA DALI on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, samples

REQUIRES = ("nvidia.dali",)
NOTE = (
    "CPU pipeline of DALI's ImageNet example, crop in the decoder, anti-aliased (INTERP_TRIANGULAR), NHWC; "
    "prefetch queue of 2; outputs taken without a copy; the last batch is full"
)

_QUEUE = 2


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int) -> Any:
    return Epochs(pack, crop, threads)


class Epochs:
    """Runs a pipeline for one epoch at a time; its own iterator would work ahead into the next one, between epochs."""

    def __init__(self, tree: Path, crop: str, threads: int) -> None:
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=_QUEUE, seed=1)  # type: ignore[untyped-decorator]
        def pipeline() -> Any:
            encoded, labels = fn.readers.file(file_root=str(tree), random_shuffle=crop == "train", name="reader")
            if crop == "train":
                images = fn.decoders.image_random_crop(
                    encoded,
                    device="cpu",
                    output_type=types.RGB,
                    random_aspect_ratio=[3 / 4, 4 / 3],
                    random_area=[0.08, 1.0],
                    num_attempts=10,
                )
                images = fn.resize(images, resize_x=OUTPUT, resize_y=OUTPUT, interp_type=types.INTERP_TRIANGULAR)
                images = fn.flip(images, horizontal=fn.random.coin_flip())
            else:
                images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
                images = fn.resize(images, resize_shorter=RESIZE, interp_type=types.INTERP_TRIANGULAR)
                images = fn.crop(images, crop=(OUTPUT, OUTPUT))
            return images, labels

        self.batches = -(-len(samples(tree)) // BATCH)
        self.pipeline = pipeline()
        self.pipeline.build()

    def __iter__(self) -> Iterator[Any]:
        import torch

        scheduled = 0
        for done in range(self.batches):
            while scheduled < min(done + _QUEUE, self.batches):
                self.pipeline.schedule_run()
                scheduled += 1
            images, labels = self.pipeline.share_outputs()
            yield tuple(torch.from_dlpack(part.as_tensor()) for part in (images, labels))
            self.pipeline.release_outputs()
