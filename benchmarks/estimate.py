"""Measures whether `packer estimate` is right: it compares estimates with conversions of all photos, in turn.

python benchmarks/estimate.py --source IMAGEFOLDER [--images 6000] [--json FILE]

The photos are linked under other names until there are --images of them. Each set of options is estimated,
converted and estimated again, each time by the command, in a process of its own: other work on the machine changes, and
a conversion is compared with the mean of the estimates before and after it. Targets: size within 5 %, time within 25 %,
in 15 s. ``busy`` is the share of the CPUs that other processes used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import machine, table, write_json

from packer._measuring.harness import Load

OPTIONS = ("", "--resize 256", "--resize 256 --tiles", "--resize 256 --codec raw", "--resize 256 --codec png")
SIZE, TIME, MOST_SECONDS = 0.05, 0.25, 15
"""How far the size and the time may be off, and how long an estimate may take."""
_HEADER = ["options", "images", "size", "said", "within", "time", "said", "within", "busy", "found in", "goal"]
"""``said``: the estimate divided by the true value; ``within``: how many of the intervals contain the true value."""


def main() -> None:
    options = _arguments()
    results: dict[str, Any] = {"machine": machine(), "sets": []}
    rows = []
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=options.work) as directory:
        photos = sorted(path for path in options.source.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
        for one in options.options:
            images = min(options.images, options.few) if "png" in one else options.images
            tree = _linked(Path(directory) / f"{images}", photos, images)
            found = _compared(tree, Path(directory) / "pack.lmdb", one, options.rounds)
            results["sets"].append({"options": one, "images": images, **found})
            rows.append(_row(one or "--codec keep", images, found))
            print(table(_HEADER, rows), flush=True)
    write_json(options.json, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="ImageFolder tree of photos")
    parser.add_argument("--images", type=int, default=6000, help="how many (6000)")
    parser.add_argument("--few", type=int, default=1500, help="how many with --codec png, which is slow (1500)")
    parser.add_argument("--rounds", type=int, default=1, help="conversions of each set of options (1)")
    parser.add_argument("--options", nargs="+", default=list(OPTIONS), metavar="OPTIONS", help="sets of options")
    parser.add_argument("--work", type=Path, help="where to write")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to FILE")
    return parser.parse_args()


def _linked(tree: Path, photos: list[Path], images: int) -> Path:
    """Make a directory of classes with `images` links to photos, unless it exists."""
    for number, photo in zip(range(0 if tree.exists() else images), itertools.cycle(photos), strict=False):
        link = tree / photo.parent.name / f"{number}{photo.suffix}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(photo.absolute())
    return tree


def _compared(tree: Path, pack: Path, options: str, rounds: int) -> dict[str, Any]:
    """Return the results of estimates and conversions, in turn."""
    said, made = [_estimated(tree, pack, options)], []
    for _ in range(rounds):
        made.append(_converted(tree, pack, options))
        said.append(_estimated(tree, pack, options))
    return {"said": said, "made": made}


def _estimated(tree: Path, pack: Path, options: str) -> dict[str, Any]:
    took, busy, printed = _run("estimate", str(tree), str(pack), *options.split(), "--json")
    found = json.loads(printed)
    return {"took": took, "busy": busy, **{name: found[name] for name in ("size", "seconds", "tried", "alternatives")}}


def _converted(tree: Path, pack: Path, options: str) -> dict[str, Any]:
    took, busy, _ = _run("convert", str(tree), str(pack), *options.split(), "--quiet")
    size = pack.stat().st_size
    pack.unlink()
    return {"seconds": took, "busy": busy, "size": size}


def _run(*words: str) -> tuple[float, float, str]:
    """Run a command of packer; return its seconds, the share of the CPUs that others used, and its output."""
    began = time.perf_counter()
    with Load() as load:
        line = [sys.executable, "-m", "packer", *words]
        printed = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
    return time.perf_counter() - began, load.others or 0.0, printed


def _row(options: str, images: int, found: dict[str, Any]) -> list[str]:
    """Return a line of the table: medians, and whether all goals are reached."""
    said, made = found["said"], found["made"]
    sizes = [statistics.median(one["size"]["value"] for one in said), made[0]["size"]]
    around = itertools.pairwise(one["seconds"]["value"] for one in said)
    ratios = [statistics.fmean(pair) / one["seconds"] for pair, one in zip(around, made, strict=True)]
    took, longest = statistics.median(ratios), max(one["took"] for one in said)
    goal = abs(sizes[0] / sizes[1] - 1) <= SIZE and abs(took - 1) <= TIME and longest <= MOST_SECONDS
    size_within, time_within = (
        f"{sum(one[name]['low'] <= truth <= one[name]['high'] for one in said)}/{len(said)}"
        for name, truth in (("size", sizes[1]), ("seconds", statistics.median(one["seconds"] for one in made)))
    )
    return [
        options,
        f"{images:,}",
        f"{sizes[1] / 1e6:.1f} MB",
        f"{sizes[0] / sizes[1]:.3f}",
        size_within,
        f"{statistics.median(one['seconds'] for one in made):.1f} s",
        f"{took:.2f}",
        time_within,
        f"{statistics.median(one['busy'] for one in (*said, *made)):.0%}",
        f"{longest:.1f} s",
        "reached" if goal else "MISSED",
    ]


if __name__ == "__main__":
    main()
