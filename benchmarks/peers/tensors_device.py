"""torchvision on a device: `decode_jpeg` of a batch at once, then its crop and resize, image by image."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from peers import BATCH, OUTPUT, random_crop, recipes
from peers.tensors import decoder

REQUIRES = ("torchvision.io",)
NOTE = (
    "decode_jpeg of a list of whole images on the device, resized_crop (anti-aliased) and flip of each; the next "
    "batch's bytes are read from packer's pack meanwhile"
)


def open_loader(
    pack: Path,
    crop: str,
    threads: int,
    *,
    device: str = "cuda",
    batch: int = BATCH,
    times: int = 1,
    crops: bool = True,
    dtype: str = "uint8",
) -> Any:
    """Return batches; without `crops`, of whole images as they were decoded."""
    decoder()  # raises ImportError if the operators do not load
    from packer import open_dataset

    files = open_dataset(pack, output="bytes")
    return Batches(files, [*range(len(files))] * times, threads, Settings(device, batch, crops, dtype))


class Settings(NamedTuple):
    """Settings of batches: device, images a batch, crops or whole images, and their type."""

    device: str
    batch: int
    crops: bool
    dtype: str


class Batches:
    """Batches of images on a device, in another order each time."""

    def __init__(self, files: Any, indices: list[int], threads: int, settings: Settings) -> None:
        self._files, self._indices, self._threads, self._settings = files, indices, threads, settings

    def __iter__(self) -> Iterator[Any]:
        import torch

        order = random.sample(self._indices, len(self._indices))
        size = self._settings.batch
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        with ThreadPoolExecutor(self._threads) as pool:
            ahead = [pool.submit(self._read, index) for index in parts[0]]
            for following in [*parts[1:], []]:
                read = [one.result() for one in ahead]
                ahead = [pool.submit(self._read, index) for index in following]
                yield self._images([data for data, _ in read]), torch.tensor([label for _, label in read])

    def _read(self, index: int) -> tuple[Any, int]:
        import torch

        data, label = self._files[index]
        return torch.frombuffer(bytearray(data), dtype=torch.uint8), label

    def _images(self, encoded: list[Any]) -> Any:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        images: Any = decode_jpeg(encoded, ImageReadMode.RGB, device=self._settings.device)
        if not self._settings.crops:
            return images
        batch = torch.stack([resized(image) for image in images])
        return batch if self._settings.dtype == "uint8" else normalized(batch, self._settings.dtype)


def resized(image: Any) -> Any:
    """Return a random crop of a (3, height, width) tensor, resized on its device, and half of the time mirrored."""
    from torchvision.transforms.v2 import functional

    box = random_crop(*image.shape[1:])
    made = functional.resized_crop(image, *box, [OUTPUT, OUTPUT], antialias=True)
    return functional.horizontal_flip(made) if random.random() < 0.5 else made


def normalized(batch: Any, dtype: str) -> Any:
    """Return uint8 images as normalised numbers of a type."""
    import torch
    from torchvision.transforms.v2 import functional

    numbers = functional.normalize(functional.to_dtype(batch, torch.float32, scale=True), recipes.MEAN, recipes.STD)
    return numbers.to(getattr(torch, dtype))
