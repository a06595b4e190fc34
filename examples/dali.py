"""DALI decodes and augments, and packer's pack or index gives it the encoded images, in any order, without copies.

    python examples/dali.py train.lmdb [--batch-size 64] [--device gpu]

DALI's own readers read files one after the other; this source shuffles the whole set, in a new order in each epoch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from packer import ShuffleSampler, open_dataset

MEAN, STD = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]


def encoded_images(path: str, batch_size: int, seed: int) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """Return a function that gives DALI a sample: the bytes of an image and its label."""
    dataset = open_dataset(path, output="bytes")
    sampler = ShuffleSampler(len(dataset), seed=seed)
    orders: dict[int, list[int]] = {}

    def sample(info: Any) -> tuple[np.ndarray, np.ndarray]:
        if info.iteration >= len(dataset) // batch_size:  # the last batch would not be full
            raise StopIteration
        if info.epoch_idx not in orders:
            orders.clear()
            sampler.set_epoch(info.epoch_idx)
            orders[info.epoch_idx] = list(sampler)
        data, label = dataset[orders[info.epoch_idx][info.idx_in_epoch]]
        return np.frombuffer(data, np.uint8), np.array(label)

    return sample


@pipeline_def
def training(source: Callable[[Any], tuple[np.ndarray, np.ndarray]], size: int, seed: int, device: str) -> Any:
    images, labels = fn.external_source(source, num_outputs=2, batch=False, dtype=[types.UINT8, types.INT64])
    images = fn.decoders.image_random_crop(images, device="mixed" if device == "gpu" else "cpu", seed=seed)
    images = fn.resize(images, size=(size, size), antialias=True)
    images = fn.crop_mirror_normalize(images, mean=MEAN, std=STD, mirror=fn.random.coin_flip(seed=seed))
    return images, labels


def batches(path: str, *, size: int = 224, batch_size: int = 64, seed: int = 0, device: str = "cpu") -> Any:
    """Return a pipeline: each `run` gives a batch, and StopIteration ends an epoch."""
    place = {"device_id": 0 if device == "gpu" else None, "num_threads": 2, "batch_size": batch_size}
    pipeline = training(encoded_images(path, batch_size, seed), size, seed, device, **place)
    pipeline.build()
    return pipeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    options = parser.parse_args()
    pipeline = batches(options.pack, batch_size=options.batch_size, device=options.device)
    for epoch in range(options.epochs):
        count = 0
        while True:
            try:
                images, _ = pipeline.run()
            except StopIteration:
                pipeline.reset()
                break
            count += len(images)
        print(f"epoch {epoch}: {count} images")


if __name__ == "__main__":
    main()
