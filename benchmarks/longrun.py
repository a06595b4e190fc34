"""Pack and read many small samples, and print the memory of the process, which must not grow with their number.

    python benchmarks/longrun.py [--count 1000000] [--format lmdb] [DIRECTORY]

The images are links to a few files, 1,000 in each directory, so that they are made quickly.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from packer import open_dataset
from packer._conversion.convert import ConversionProgress, convert
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder

MARKS = (0.1, 0.5, 1.0)


class Memory:
    """Prints the resident memory of this process when a share of the work is done."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._left = list(MARKS)
        self._process = psutil.Process()
        self._started = time.monotonic()

    def __call__(self, done: int) -> None:
        while self._left and done >= self._left[0] * self._total:
            share = self._left.pop(0)
            memory = self._process.memory_info()
            own = (memory.rss - memory.shared) / 1e6 if hasattr(memory, "shared") else memory.rss / 1e6
            seconds = time.monotonic() - self._started
            print(
                f"{self._what:>12} {share:4.0%}: RSS {memory.rss / 1e6:6.0f} MB, of its own {own:6.0f} MB, "
                f"{seconds:6.0f} s, {done / seconds:8,.0f} samples/s",
                flush=True,
            )


def make_tree(root: Path, count: int) -> Path:
    """Link `count` images into directories of 1,000."""
    draw_imagefolder(root / "few", classes=1, per_class=20, size=(32, 32))
    few = sorted((root / "few" / "class_00").iterdir())
    for number in range(count):
        folder = root / "tree" / f"{number // 1000:05d}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        os.link(few[number % len(few)], folder / f"{number % 1000:03d}.jpg")
    return root / "tree"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--format", default="lmdb", choices=["lmdb", "hdf5", "pth"])
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="packer-longrun-", dir=options.directory))
    try:
        source = imagefolder_source(make_tree(root, options.count))
        pack = root / {"lmdb": "pack.lmdb", "hdf5": "pack.h5", "pth": "pack.pth"}[options.format]
        packing = Memory("packing", len(source))

        def show(progress: ConversionProgress) -> None:
            packing(progress.done)

        convert(source, pack, progress=show)
        dataset = open_dataset(pack, output="numpy")
        for name, order in [
            ("reading", np.arange(len(dataset))),
            ("at random", np.random.default_rng(0).permutation(len(dataset))),
        ]:
            reading = Memory(name, len(dataset))
            for start in range(0, len(dataset), 100):
                dataset.__getitems__(order[start : start + 100].tolist())
                reading(min(start + 100, len(dataset)))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
