"""``python -m fuzz.device [TILES [SEED]]``: run the kernels' twin over changed tiles, under the compiler's sanitizers.

TILES tiles are changed, 100,000 by default; they are from crops of drawn photos with all chroma subsamplings. The last
line has the number of tiles that were found damaged, or the driver's arguments that repeat a crash.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from device.batch import TABLES, Batch, batch_of
from device.twin import SOURCES, compiler
from packer._images.geometry import Box
from tests.device.crops import random_box, tiled
from tests.images.samples import SUBSAMPLINGS

HERE = Path(__file__).parent
FLAGS = ("-std=c11", "-O1", "-g", "-ffp-contract=off", "-fno-omit-frame-pointer")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SIZES = ((48, 64), (37, 53), (97, 140), (150, 260))
OUT = (16, 16)


def compile_driver(directory: Path, sources: Path = SOURCES, flags: Sequence[str] = ()) -> Path:
    """Compile the driver with the kernels. Later flags override `FLAGS`.

    Raises
    ------
    RuntimeError
        If the compiler refuses, as where it has no sanitizers.
    """
    program = directory / "driver"
    line = [*compiler(), *FLAGS, *SANITIZERS, *flags, f"-I{sources}", str(HERE / "driver.c"), "-o", str(program)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the C compiler refuses the driver:\n{' '.join(line)}\n{done.stderr}")
    return program


def write_batches(directory: Path) -> list[Path]:
    """Write batches of crops, of one image or three."""
    chance, paths = random.Random(3), []
    for subsampling in SUBSAMPLINGS:
        for size in SIZES:
            photo = tiled(subsampling, size, "optimised")
            for number in range(2):
                boxes = [random_box(photo, OUT, chance) for _ in range(1 + 2 * number)]
                boxes[0] = Box.of((0, 0, *size), OUT) if number else boxes[0]
                path = directory / f"{subsampling.replace(':', '')}-{size[0]}-{number}"
                path.write_bytes(_written(batch_of([photo] * len(boxes), boxes)))
                paths.append(path)
    return paths


def _written(batch: Batch) -> bytes:
    """Return the bytes of each buffer, in the driver's order, then those that the host sets."""
    given = [batch.slab, batch.groups, batch.images, batch.chunks, batch.says, batch.quanta]
    of = batch.sizes
    sizes = [4 * of["words"], 8 * of["tiles"], of["tiles"], 4 * of["order"]]
    sizes += [TABLES.itemsize * len(batch.images), 128 * of["blocks"], of["samples"]]
    sizes += [8 * of["spans"], 2 * of["weights"], 4 * of["precisions"], 4 * of["resized"], 12 * of["pixels"]]
    every = np.array([*(array.nbytes for array in given), *sizes], np.uint32)
    return every.tobytes() + b"".join(array.tobytes() for array in given)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; return the driver's exit status, which is not 0 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.device")
    parser.add_argument("tiles", nargs="?", type=int, default=100_000, help="how many are changed")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        program, paths = compile_driver(Path(directory)), write_batches(Path(directory))
        return subprocess.run(
            [program, str(options.tiles), str(options.seed), *map(str, paths)], check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
