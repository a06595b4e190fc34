"""Measures whether images are read as fast from a pack with fields as from the pack without.

python benchmarks/fields.py --source IMAGEFOLDER [--format lmdb] [--rounds 7]

Both packs hold the same images. The one with fields has a mask of 500 x 375 pixels, boxes, a caption and a number for
each image. One process reads random crops of both in batches through `packer.Loader`, an epoch of each in turn, from a
warm page cache. The ratio is the median over the rounds of the rate with fields by the rate without.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import packer
from packer._conversion.convert import convert
from packer._fields import Field
from packer._sources.base import BlobColumn, NumberColumn, Source
from packer._sources.imagefolder import imagefolder_source


def with_fields(source: Source) -> Source:
    """Return the images with values that do not depend on them; masks, whose sizes would not fit, are plain bytes."""
    rng = np.random.default_rng(0)
    masks = []
    for _ in range(8):
        stream = io.BytesIO()
        blocks = rng.integers(0, 21, (38, 50), np.uint8).repeat(10, 0).repeat(10, 1)
        Image.fromarray(blocks[:375]).save(stream, "png")
        masks.append(stream.getvalue())
    boxes = Field("boxes", "boxes").encode([[0, 0, 9, 9], [1, 1, 8, 8]])
    count = len(source)
    return source.having(
        BlobColumn.of(Field("mask", "bytes"), (masks[index % 8] for index in range(count))),
        BlobColumn.of(Field("boxes", "boxes"), (bytes(boxes) for _ in range(count))),  # type: ignore[arg-type]
        BlobColumn.of(Field("caption", "text"), (f"caption {index}".encode() for index in range(count))),
        NumberColumn(Field("age", "scalar", "float32"), np.arange(count, dtype="<f4"), np.zeros(count, bool)),
    )


def epoch(loader: packer.Loader, number: int) -> float:
    """Return how many images a second come in one epoch."""
    loader.set_epoch(number)
    images, begun = 0, time.perf_counter()
    for batch, _ in loader:
        images += len(batch)
    return images / (time.perf_counter() - begun)


def main() -> int:
    """Measure and print both sides and the ratio; the exit status is 1 where that is below 0.97."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--source", type=Path, required=True, help="ImageFolder tree of photos")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--format", choices=("lmdb", "h5", "pth"), default="lmdb")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    source = imagefolder_source(options.source).limited(options.images)
    with tempfile.TemporaryDirectory() as directory:
        loaders = {}
        for name, images in (("without", source), ("with fields", with_fields(source))):
            path = Path(directory) / f"{name}.{options.format}"
            convert(images, path)
            dataset = packer.open_dataset(path, crop=packer.RandomResizedCrop(224, flip=0.5), seed=0)
            loaders[name] = packer.Loader(dataset, 64, shuffle=True, threads=options.threads)
        rates: dict[str, list[float]] = {name: [] for name in loaders}
        for number in range(options.rounds + 1):
            for name in sorted(loaders, reverse=number % 2 == 1):
                rates[name].append(epoch(loaders[name], number))
    for name, measured in rates.items():
        sys.stdout.write(f"{name:12} {statistics.median(measured[1:]):8.0f} images/s\n")  # the first warms up
    pairs = zip(rates["with fields"][1:], rates["without"][1:], strict=True)
    ratio = statistics.median(one / other for one, other in pairs)
    sys.stdout.write(f"ratio        {ratio:8.3f}\n")
    return ratio < 0.97


if __name__ == "__main__":
    sys.exit(main())
