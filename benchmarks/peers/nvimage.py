"""nvImageCodec (https://github.com/NVIDIA/nvImageCodec): its decoder for the CPU, and torchvision's resizing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from peers import OUTPUT, RESIZE, data_loader, random_crop, samples

REQUIRES = ("nvidia.nvimgcodec", "torchvision")
NOTE = (
    "CPU_ONLY backend (libjpeg-turbo), which decodes the rectangle of the crop alone, a batch a call; torchvision v2 "
    "resizes, anti-aliased; DataLoader with persistent workers"
)


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int) -> Any:
    return data_loader(Images(samples(pack), crop == "train"), crop, threads)


class Images:
    """A dataset whose batches are decoded in one call, which is what nvImageCodec is made for."""

    def __init__(self, files: list[tuple[Path, int]], train: bool) -> None:
        self.files = files
        self.train = train
        self.decoder: Any = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, int]]:
        import numpy as np
        import torch
        from nvidia import nvimgcodec

        if self.decoder is None:  # in the worker
            self.decoder = nvimgcodec.Decoder(
                device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=1,
                backends=[nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
            )
        streams = [nvimgcodec.CodeStream(self.files[index][0].read_bytes()) for index in indices]
        if self.train:
            streams = [stream.get_sub_code_stream(region=random_region(stream)) for stream in streams]
        images = self.decoder.decode(streams)
        tensors = [torch.from_numpy(np.asarray(image)).permute(2, 0, 1) for image in images]
        return [(self._resized(image), self.files[index][1]) for image, index in zip(tensors, indices, strict=True)]

    def _resized(self, image: Any) -> Any:
        from torchvision.transforms.v2 import functional

        if not self.train:
            return functional.center_crop(functional.resize(image, [RESIZE], antialias=True), [OUTPUT])
        image = functional.resize(image, [OUTPUT, OUTPUT], antialias=True)
        return functional.horizontal_flip(image) if random.random() < 0.5 else image


def random_region(stream: Any) -> Any:
    from nvidia import nvimgcodec

    top, left, height, width = random_crop(stream.height, stream.width)
    return nvimgcodec.Region(top, left, top + height, left + width)
