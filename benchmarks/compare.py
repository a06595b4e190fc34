"""Compares the speed of two checkouts of packer: loaders, conversions, and opening a large pack.

    python benchmarks/compare.py OTHER_CHECKOUT [--source IMAGEFOLDER] [--ways WAY ...] [--rounds 9] [--json FILE]

Both checkouts are compiled. They read the same packs, which this one writes. Each side of a way is a process of its own
with packer from its checkout. The sides take turns, and a rate is the median of the rounds. A ratio is the median, over
the rounds, of the other checkout's seconds divided by this one's: above 1 this checkout is faster. On a busy machine
the ratio of processor time is the steadier one. The sides use packer's public names alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from versions import Side, in_turn

HERE = Path(__file__).resolve()
BATCH, OUTPUT, RESIZE, THREADS = 64, 224, 256, 2
SECONDS = 0.5  # about as long as a side works in a round
SAMPLES = 1_281_167  # of ImageNet's train split
PACKS: dict[str, dict[str, Any]] = {
    "photos": {"tiles": False},
    "photos, tiled": {"tiles": True},
    "256": {"resize": RESIZE, "tiles": False},
    "256, tiled": {"resize": RESIZE, "tiles": True},
}
"""Packs that are read, with the settings of their conversion."""

Work = Callable[[], object]


def main() -> None:
    options = parse()
    if options.side:
        serve(options)
        return
    with tempfile.TemporaryDirectory(prefix="packer-compare-", dir=options.work) as directory:
        work = Path(directory)
        prepare(work, options)
        found = {way: compare(way, work, options) for way in options.ways}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def prepare(work: Path, options: argparse.Namespace) -> None:
    """Write the tree and the packs that the sides read."""
    sys.path[:0] = [str(HERE.parents[1])]
    import packer
    from packer.testing.photos import draw_imagefolder

    if options.source is None:
        draw_imagefolder(work / "tree", classes=8, per_class=25)
    else:
        copy_of(options.source, work / "tree", options.images)
    for name, settings in PACKS.items():
        if any(way.endswith(f", {name}") for way in options.ways):
            packer.convert(work / "tree", work / f"{name}.lmdb", **settings)
    if OPENING in options.ways:
        from open import build

        build("lmdb", work / "large.lmdb", SAMPLES)


def copy_of(source: Path, tree: Path, count: int) -> None:
    """Copy the images of a tree under new names until there are `count`."""
    images = [path for path in sorted(source.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg")]
    for number, image in enumerate(itertools.islice(itertools.cycle(images), count)):
        copy = tree / image.parent.name / f"{number:06d}.jpg"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image, copy)


def compare(way: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a way on both sides, in turn, and print the result."""
    words = [str(options.other), "--side", way, "--work", str(work)]
    checkouts = {"this": HERE.parents[1], "other": options.other.resolve()}
    sides = {name: Side(HERE, words, checkout) for name, checkout in checkouts.items()}
    for name, side in sides.items():
        if not Path(side.first["packer"]).is_relative_to(checkouts[name]):
            sys.exit(f"{name}: imports packer from {side.first['packer']}")
    seconds = in_turn(sides, options.rounds)
    items = sides["this"].first["items"]
    for side in sides.values():
        side.end()
    rates = {name: items / statistics.median(one["time"] for one in rounds) for name, rounds in seconds.items()}
    ratios = {
        clock: statistics.median(
            other[clock] / this[clock] for this, other in zip(seconds["this"], seconds["other"], strict=True)
        )
        for clock in ("time", "cpu")
    }
    print(
        f"{way:26} this {rates['this']:9,.1f}/s  other {rates['other']:9,.1f}/s"
        f"  ratio {ratios['time']:.3f} by time, {ratios['cpu']:.3f} by processor time",
        flush=True,
    )
    return {"rates": rates, "ratios": ratios, "seconds": seconds}


def serve(options: argparse.Namespace) -> None:
    """Run a side: warm a way up; then, for each line of the standard input, measure it for a while."""
    import packer

    items, work = WAYS[options.side](options.work)
    work()
    begin = time.perf_counter()
    work()
    repetitions = max(1, round(SECONDS / (time.perf_counter() - begin)))
    print(json.dumps({"items": items, "packer": os.path.abspath(packer.__file__)}), flush=True)
    for _ in sys.stdin:
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(repetitions):
            work()
        took = {"time": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
        print(json.dumps({clock: seconds / repetitions for clock, seconds in took.items()}), flush=True)


def loader(pack: str) -> Callable[[Path], tuple[int, Work]]:
    """Return the way that runs epochs of a Loader, with a training crop."""

    def way(work: Path) -> tuple[int, Work]:
        import packer

        dataset = packer.open_dataset(work / f"{pack}.lmdb", crop=packer.RandomResizedCrop(OUTPUT), seed=0)
        loader = packer.Loader(dataset, BATCH, threads=THREADS)
        return len(dataset), lambda: exhaust(loader)

    return way


def fused(pack: str) -> Callable[[Path], tuple[int, Work]]:
    """Return the way that runs epochs of packer's DataLoader, with torchvision's transforms, fused."""

    def way(work: Path) -> tuple[int, Work]:
        import packer
        from packer.testing.reference import torchvision

        torchvision()
        from torchvision import transforms

        chain = [transforms.RandomResizedCrop(OUTPUT), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        dataset = packer.open_dataset(work / f"{pack}.lmdb", transforms.Compose([*chain, normalize]), fuse=True, seed=0)
        loader = packer.DataLoader(dataset, BATCH, shuffle=True, num_workers=THREADS)
        return len(dataset), lambda: exhaust(loader)

    return way


def converting(**settings: Any) -> Callable[[Path], tuple[int, Work]]:
    """Return the way that converts the tree."""

    def way(work: Path) -> tuple[int, Work]:
        import packer

        out = work / f"out-{os.getpid()}.lmdb"

        def convert() -> None:
            packer.convert(work / "tree", out, overwrite=True, workers=THREADS, **settings)

        return sum(path.is_file() for path in (work / "tree").rglob("*")), convert

    return way


def opening(work: Path) -> tuple[int, Work]:
    """Return the way that opens a pack of ImageNet's size and reads the bytes of one sample."""
    import packer

    def opened() -> None:
        for _ in range(20):
            with packer.open_dataset(work / "large.lmdb", output="bytes") as dataset:
                _ = dataset[SAMPLES // 2]

    return 20, opened


def exhaust(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


OPENING = "opening 1.28 M samples"
WAYS: dict[str, Callable[[Path], tuple[int, Work]]] = {
    **{f"Loader, {pack}": loader(pack) for pack in PACKS},
    **{f"DataLoader, fused, {pack}": fused(pack) for pack in ("photos", "256")},
    "converting, keep": converting(),
    f"converting, {RESIZE}": converting(resize=RESIZE),
    OPENING: opening,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--source", type=Path, metavar="IMAGEFOLDER", help="default: 200 photos are drawn")
    parser.add_argument(
        "--images", type=int, default=1000, help="copy those of --source up to this number (%(default)s)"
    )
    parser.add_argument(
        "--ways", nargs="+", choices=[*WAYS], default=[*WAYS], metavar="WAY", help="measure these alone"
    )
    parser.add_argument("--rounds", type=int, default=9, help="(%(default)s)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="write the packs below DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all seconds to FILE")
    parser.add_argument("--side", choices=[*WAYS], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
