"""Counts the instructions that a 64-bit ARM processor needs for an image: with NEON, and with plain C.

python benchmarks/instructions TREE [--photos 20] [--json FILE]

A count is not a time: instructions take different times, and processors execute several at once. But it can be measured
without the processor: QEMU runs the code and counts (counting.c). scripts/qemu-python lists its requirements; this
program also needs gcc, and the package qemu-user, because the static QEMU loads no plugins.

The same compiler makes three kinds of code: with packer's NEON code; plain C, which the compiler may vectorise itself;
and plain C without vectors. One process decodes images from memory once, and another three times; half the difference
of their counts is the count of one pass. The images are photos as they are, the same photos as progressive JPEGs, and
the same photos cut and resized to 256 x 256 as PNGs; Pillow writes the last two kinds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--photos", type=int, default=20, help="how many of the tree's JPEGs (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = sorted(path for path in options.tree.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    paths = found[:: max(len(found) // options.photos, 1)][: options.photos]
    if not paths:
        sys.exit(f"no JPEGs below {options.tree}")
    qemu = shutil.which("qemu-aarch64")
    if qemu is None:
        sys.exit("this needs qemu-aarch64, which loads plugins: apt-get install qemu-user")
    with tempfile.TemporaryDirectory() as directory:
        counts = measure(qemu, write(paths, Path(directory)), Path(directory))
    print(f"{len(paths)} of each; million instructions an image (a count, no time)\n")
    print(f"{'':44}{'NEON':>8}{'plain C':>10}{'ratio':>8}{'no vectors':>12}{'ratio':>8}")
    for name, of in counts.items():
        print(f"{name:44}{of['neon'] / 1e6:8.2f}", end="")
        print(f"{of['plain'] / 1e6:10.2f}{of['neon'] / of['plain']:8.2f}", end="")
        print(f"{of['scalar'] / 1e6:12.2f}{of['neon'] / of['scalar']:8.2f}")
    if options.json:
        options.json.write_text(json.dumps({"photos": len(paths), "instructions": counts}, indent=1) + "\n")


def write(photos: list[Path], directory: Path) -> dict[str, list[str]]:
    """Write progressive JPEGs and PNGs of photos, and return the paths of all images by their kind."""
    images: dict[str, list[str]] = {"photos": [str(path.resolve()) for path in photos], "progressive": [], "PNGs": []}
    for n, path in enumerate(photos):
        with Image.open(path) as photo:
            photo.save(directory / f"{n}.jpg", quality="keep", progressive=True)
            ImageOps.fit(photo.convert("RGB"), (256, 256)).save(directory / f"{n}.png")
        images["progressive"].append(str(directory / f"{n}.jpg"))
        images["PNGs"].append(str(directory / f"{n}.png"))
    return images


def measure(qemu: str, images: dict[str, list[str]], directory: Path) -> dict[str, dict[str, float]]:
    """Return the instructions for an image, by the kind of image and of code."""
    plugin, count = directory / "counting.so", directory / "count"
    run("gcc", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o", str(plugin), str(HERE / "counting.c"))
    kinds = {"neon": "", "plain": "-DPACKER_PLAIN", "scalar": "-DPACKER_PLAIN -fno-tree-vectorize"}
    for kind, flags in kinds.items():
        places = ["--build-lib", str(directory / kind), "--build-temp", str(directory / f"{kind}-temp")]
        emulated("setup.py", "-q", "build_ext", *places, CFLAGS=flags)
    counts: dict[str, dict[str, float]] = {}
    for (what, paths), way in itertools.product(images.items(), ("whole", "crop")):
        name, drawn = f"{what}, {'a crop, resized to 224 x 224' if way == 'crop' else way}", set()
        counts[name] = {}
        for kind in kinds:
            library, totals = directory / kind / "packer" / "_images" / "_native.abi3.so", []
            for times in (1, 3):
                drawing = ["benchmarks/instructions/drawing.py", str(library), way, str(times), *paths]
                # Threads that wait, and the order of dicts, would differ from run to run.
                same = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
                drawn.add(emulated(*drawing, QEMU=f"{qemu} -plugin {plugin},into={count}", **same))
                totals.append(int(count.read_text()))
            counts[name][kind] = (totals[1] - totals[0]) / 2 / len(paths)
        if len(drawn) > 1:
            sys.exit(f"not all kinds of code draw the same: {drawn}")
        left = int(next(iter(drawn)).split()[0])
        if left:
            sys.exit(f"{left} of the images are none that packer's own decoder knows: {what}")
    return counts


def emulated(*arguments: str, **variables: str) -> str:
    """Run Python on the emulated processor, and return its output."""
    return run(str(ROOT / "scripts" / "qemu-python"), *arguments, **variables)


def run(*line: str, **variables: str) -> str:
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        sys.exit(f"{line[0]} failed")
    return done.stdout


if __name__ == "__main__":
    main()
