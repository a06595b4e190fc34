"""Counts the instructions that a 64-bit ARM processor needs for a photo: with NEON, and with packer's plain C.

python benchmarks/instructions TREE [--photos 20] [--json FILE]

A count is no time: instructions take different times, and processors do several at once. It is what can be measured of
a processor that is not at hand. QEMU runs the code and counts (counting.c); scripts/qemu-python says what that needs,
and this needs the package qemu-user beside it, as the static QEMU loads no plugins, and gcc.

Both kinds of code come from the same compiler with the same options, and the plain one may use what NEON instructions
the compiler finds by itself. A process draws photos from memory once, and another three times; half the difference of
their counts is what drawing them takes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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
        counts = measure(qemu, [str(path.resolve()) for path in paths], Path(directory))
    print(f"{len(paths)} photos; million instructions a photo (a count, no time)\n")
    print(f"{'':32}{'NEON':>8}{'plain C':>10}{'ratio':>8}")
    for way, name in (("whole", "whole photos"), ("crop", "a crop, resized to 224 x 224")):
        neon, plain = counts[way]["neon"], counts[way]["plain"]
        print(f"{name:32}{neon / 1e6:8.2f}{plain / 1e6:10.2f}{neon / plain:8.2f}")
    if options.json:
        options.json.write_text(json.dumps({"photos": len(paths), "instructions": counts}, indent=1) + "\n")


def measure(qemu: str, paths: list[str], directory: Path) -> dict[str, dict[str, float]]:
    """Return the instructions a photo, by way and kind of code."""
    plugin, count = directory / "counting.so", directory / "count"
    run("gcc", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o", str(plugin), str(HERE / "counting.c"))
    kinds = {"neon": "", "plain": "-DPACKER_PLAIN"}
    for kind, flags in kinds.items():
        places = ["--build-lib", str(directory / kind), "--build-temp", str(directory / f"{kind}-temp")]
        emulated("setup.py", "-q", "build_ext", *places, CFLAGS=flags)
    counts: dict[str, dict[str, float]] = {}
    for way in ("whole", "crop"):
        counts[way], drawn = {}, set()
        for kind in kinds:
            library, totals = directory / kind / "packer" / "_images" / "_native.abi3.so", []
            for times in (1, 3):
                drawing = ["benchmarks/instructions/drawing.py", str(library), way, str(times), *paths]
                # Threads that wait, and the order of dicts, would differ from run to run.
                same = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
                drawn.add(emulated(*drawing, QEMU=f"{qemu} -plugin {plugin},into={count}", **same))
                totals.append(int(count.read_text()))
            counts[way][kind] = (totals[1] - totals[0]) / 2 / len(paths)
        if len(drawn) > 1:
            sys.exit(f"NEON and plain C draw differently: {drawn}")
        left = int(next(iter(drawn)).split()[0])
        if left:
            sys.exit(f"{left} of the photos are none that packer's own decoder knows")
    return counts


def emulated(*arguments: str, **variables: str) -> str:
    """Run Python on the emulated processor, and return what it says."""
    return run(str(ROOT / "scripts" / "qemu-python"), *arguments, **variables)


def run(*line: str, **variables: str) -> str:
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        sys.exit(f"{line[0]} failed")
    return done.stdout


if __name__ == "__main__":
    main()
