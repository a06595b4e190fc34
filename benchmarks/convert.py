"""Measure conversions: keeping bytes against a plain loop over the same files, resizing against Pillow's own loop.

Both sides run in turn, warm cache, everything on disk synced before each timed part. README.md says more.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from PIL import Image
from report import machine, table, write_json

from packer._conversion.convert import convert
from packer._conversion.pipeline import threads_for
from packer._conversion.recipe import Recipe
from packer._formats import FORMATS
from packer._images import native
from packer._images.decode import decode
from packer._images.encode import encode
from packer._images.jpeg import read_header
from packer._images.resize import ResizeSpec, resize
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage.system import available_cpus
from packer.testing.photos import draw_imagefolder

KEEP_TARGETS = {"lmdb": 0.6, "hdf5": 0.5, "pth": 0.5}  # of the plain loop's rate
RESIZE_TARGET = 1200  # img/s, on two cores
QUALITY = 90
SPEC = ResizeSpec(256)
CHUNK = 32


def main() -> None:
    arguments = _arguments()
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=arguments.work) as directory:
        work = Path(directory)
        tree = _prepare_tree(arguments.source, work, arguments.files)
        source = imagefolder_source(tree)
        size = sum(len(Path(source.path(index)).read_bytes()) for index in range(len(source)))  # and the cache is warm
        cpus = arguments.workers or available_cpus()
        threads = threads_for(arguments.workers, Recipe("jpeg", SPEC, QUALITY))
        print(
            f"{len(source):,} files, {size / 1e6:,.0f} MB, {size / len(source) / 1e3:.0f} kB each; "
            f"{cpus} threads, {threads} to resize, {arguments.rounds} rounds, medians\n"
        )
        results: dict[str, Any] = {
            "machine": machine(),
            "source": str(arguments.source or "drawn"),
            "files": len(source),
            "bytes": size,
            "workers": [cpus, threads],
            "rounds": arguments.rounds,
        }
        if "keep" in arguments.parts:
            results["keep"] = _measure_keep(tree, source, work, cpus, arguments.rounds)
            print(_show_keep(results["keep"], len(source)), end="\n\n", flush=True)
        if "resize" in arguments.parts:
            results["resize"] = _measure_resize(source, work, threads, cpus, arguments.rounds)
            print(_show_resize(results["resize"], len(source)), flush=True)
    write_json(arguments.json, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, metavar="DIR", help="an ImageFolder tree; by default photos are drawn")
    parser.add_argument("--files", type=int, default=4000, help="the tree is copied until it has as many (4000)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to write: on the disk that is to be measured")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured (5)")
    parser.add_argument("--workers", type=int, help="threads, and others' processes (packer's default, and the CPUs)")
    parser.add_argument("--parts", nargs="+", choices=["keep", "resize"], default=["keep", "resize"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


def _prepare_tree(given: Path | None, work: Path, count: int) -> Path:
    """Copy the images of a tree under new names, class by class, until there are `count`."""
    if given is None:
        given = work / "drawn"
        print("drawing 400 photos ...", flush=True)
        draw_imagefolder(given, classes=10, per_class=40)
    source = imagefolder_source(given)
    tree = work / "tree"
    for number in range(max(count, len(source))):
        copy, index = divmod(number, len(source))
        name = Path(source.names[index])
        target = tree / name.with_stem(f"{name.stem}-{copy:03d}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.path(index), target)
    return tree


def _timed(part: Callable[[], object]) -> float:
    """Return the seconds of `part`; the data of earlier parts are synced before, so it waits only for its own."""
    os.sync()
    started = time.perf_counter()
    part()
    return time.perf_counter() - started


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Keeping the files' bytes.


def _append_all(paths: Sequence[str], blob: Path) -> None:
    """The plain loop: every file, in order, to the end of one file, and sync."""
    with open(blob, "wb") as out:
        for path in paths:
            with open(path, "rb") as file:
                out.write(file.read())
        out.flush()
        os.fsync(out.fileno())


def _measure_keep(tree: Path, source: Source, work: Path, workers: int, rounds: int) -> dict[str, Any]:
    paths = [source.path(index) for index in range(len(source))]
    blob = work / "plain.blob"
    results: dict[str, Any] = {}
    for name, target in KEEP_TARGETS.items():
        pack = work / f"warm{FORMATS[name].suffixes[0]}"
        convert(source.limited(64), pack, workers=workers)  # modules are loaded before the first round
        _remove(pack)
        results[name] = {"target": target, "loop_s": [], "convert_s": [], "listing_s": []}
    for number, name in itertools.product(range(rounds), results):
        pack = work / f"pack{FORMATS[name].suffixes[0]}"
        figures = results[name]

        def convert_tree(pack: Path = pack, listings: list[float] = figures["listing_s"]) -> None:
            started = time.perf_counter()
            listed = imagefolder_source(tree)
            listings.append(time.perf_counter() - started)
            convert(listed, pack, workers=workers)

        sides = [("loop_s", lambda: _append_all(paths, blob), blob), ("convert_s", convert_tree, pack)]
        for figure, part, written in sides if number % 2 else reversed(sides):
            figures[figure].append(_timed(part))
            _remove(written)
    for figures in results.values():
        figures["ratios"] = [a / b for a, b in zip(figures["loop_s"], figures["convert_s"], strict=True)]
        figures["ratio"] = statistics.median(figures["ratios"])
    return results


def _show_keep(results: dict[str, Any], count: int) -> str:
    rows = []
    for name, figures in results.items():
        loop, packed, listing = (statistics.median(figures[figure]) for figure in ("loop_s", "convert_s", "listing_s"))
        rows.append(
            [
                name,
                f"{count / loop:,.0f}",
                f"{count / packed:,.0f}",
                f"{1e3 * listing:.0f}",
                " ".join(f"{ratio:.2f}" for ratio in figures["ratios"]),
                f"{figures['ratio']:.2f}",
                f"{figures['target']}",
            ]
        )
    header = ["keep", "loop img/s", "convert img/s", "of it listing, ms", "ratio, each round", "median", "target"]
    return table(header, rows)


# Resizing.


def _resize_with_pillow(job: tuple[str, str]) -> None:
    path, target = job
    with Image.open(path) as image:
        pixels = image.convert("RGB")
    height, width = SPEC.scaled(pixels.height, pixels.width)
    pixels.resize((width, height), Image.Resampling.BILINEAR).save(target, "JPEG", quality=QUALITY)


def _resize_all_with_pillow(pool: Pool, paths: Sequence[str], directory: Path) -> None:
    jobs = [(path, str(directory / f"{number}.jpg")) for number, path in enumerate(paths)]
    for _ in pool.imap_unordered(_resize_with_pillow, jobs, chunksize=CHUNK):
        pass


class _Pixels:
    """Images as FFCV's writer takes them, in its own processes."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        with Image.open(self._paths[index]) as image:
            return image.convert("RGB"), 0


def _write_with_ffcv(paths: Sequence[str], beton: Path, workers: int) -> None:
    """Resize photos of 4:3 to packer's size: FFCV takes the length of the longer side."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    image = RGBImageField(write_mode="jpg", max_resolution=round(SPEC.size * 4 / 3), jpeg_quality=QUALITY)
    writer = DatasetWriter(str(beton), {"image": image, "label": IntField()}, num_workers=workers)
    writer.from_indexed_dataset(_Pixels(paths))


def _resize_in_memory(encoded: Sequence[bytes]) -> None:
    for data in encoded:
        header = read_header(data)
        assert header is not None
        scaled = SPEC.scaled(header.height, header.width)
        pixels = native.decode(data, header.height, header.width, scaled) if native.PREFERRED else None
        if pixels is None:
            pixels = resize(decode(data), *scaled, SPEC.interpolation)
        encode(pixels, "jpeg", QUALITY)


def _measure_resize(source: Source, work: Path, workers: int, processes: int, rounds: int) -> dict[str, Any]:
    paths = [source.path(index) for index in range(len(source))]
    encoded = [Path(path).read_bytes() for path in paths]
    chunks = [encoded[start : start + CHUNK] for start in range(0, len(encoded), CHUNK)]
    recipe = Recipe("jpeg", SPEC, QUALITY)
    pack, directory, beton = work / "resized.lmdb", work / "pillow", work / "resized.beton"
    with (
        multiprocessing.get_context("spawn").Pool(processes) as pool,
        ThreadPoolExecutor(workers) as threads,
    ):
        parts: dict[str, Callable[[], object]] = {
            "convert": lambda: convert(source, pack, recipe=recipe, workers=workers),
            "pillow": lambda: _resize_all_with_pillow(pool, paths, directory),
            "limit": lambda: list(threads.map(_resize_in_memory, chunks)),
        }
        if importlib.util.find_spec("ffcv") is not None:
            parts["ffcv"] = lambda: _write_with_ffcv(paths, beton, processes)
            _write_with_ffcv(paths[:64], beton, processes)
        convert(source.limited(64), work / "warm.lmdb", recipe=recipe, workers=workers)
        directory.mkdir()
        _resize_all_with_pillow(pool, paths[: 4 * CHUNK * processes], directory)
        list(threads.map(_resize_in_memory, chunks[:workers]))
        seconds: dict[str, list[float]] = {name: [] for name in parts}
        for _, (name, part) in itertools.product(range(rounds), parts.items()):
            for written in (pack, directory, beton):
                _remove(written)
            directory.mkdir()
            seconds[name].append(_timed(part))
    return {"target": RESIZE_TARGET, "size": SPEC.size, "quality": QUALITY, "seconds": seconds}


def _show_resize(results: dict[str, Any], count: int) -> str:
    rates = {name: [count / taken for taken in seconds] for name, seconds in results["seconds"].items()}
    limit = statistics.median(rates["limit"])
    says = {
        "convert": "packer convert to LMDB",
        "pillow": "Pillow: open, convert, resize, save; processes",
        "ffcv": "FFCV's writer: Pillow's pixels, resized and encoded by OpenCV; processes",
        "limit": "the limit: decode, resize, encode of bytes in memory",
    }
    rows = [
        [
            says[name],
            " ".join(f"{rate:,.0f}" for rate in rates[name]),
            f"{statistics.median(rates[name]):,.0f}",
            f"{statistics.median(rates[name]) / limit:.2f}",
            f"{results['target']:,}" if name == "convert" else "",
        ]
        for name in rates
    ]
    header = [f"--resize {results['size']}", "img/s, each round", "median", "of the limit", "target (2 cores)"]
    return table(header, rows)


if __name__ == "__main__":
    main()
