"""Measures how many images a second reach a device, with 1 to 16 threads and processes, and with other decoders.

python benchmarks/gpu.py [--device cuda] [--minutes 4] [--photos PACK] [--json FILE] [--markdown FILE]

The photos, and the same photos resized to 256 pixels, are in packs with and without tiles, and are read from the page
cache; without --photos they are drawn. Batches are random crops of 224 x 224, as uint8 or normalised as float16; a
batch counts when it is complete on the device. The rows are measured one after the other, the most important first,
each three times after a warm-up; the time is divided among them. Rows that were not reached are named. With `--device
cpu` the program runs without a GPU, as a trial: its figures say nothing about a device.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib
import json
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import RESIZE, recipes
from report import machine

from packer._measuring.harness import ChildProcess
from packer._storage.system import available_cpus

WINDOWS = 3
SHORTEST, LONGEST = 0.3, 1.5  # seconds of a window, by default
LEAST = 2.0  # seconds that a row needs to be begun
EPOCH = 16384  # images, at least; each sample occurs equally often
BATCH = 256
THREADS = 1, 2, 4, 8, 16
DRAWN, CLASSES = 320, 16  # photos, without --photos

PHOTOS, TILED, SMALL, SMALL_TILED = "photos", "photos, tiled", f"{RESIZE} px", f"{RESIZE} px, tiled"
HEADER = "loader", "images", "numbers", "workers", "images a second", "lowest", "highest", "x one worker", "CPU ms"
CONVERSIONS: dict[str, tuple[int | None, bool]] = {
    PHOTOS: (None, False),
    TILED: (None, True),
    SMALL: (RESIZE, False),
    SMALL_TILED: (RESIZE, True),
}


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes
    ----------
    loader, data, numbers, workers : str
        Cells of the table: the loader, its images, the type of its batches, its threads or processes.
    threads : int
    module : str
        The module of `peers` that reads, and `options` for its `open_loader`.
    """

    loader: str
    data: str
    numbers: str
    workers: str
    threads: int
    module: str = "own"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.loader}, {self.data}, {self.numbers}, {self.workers}"


def main() -> None:
    options = parse()
    deadline = time.monotonic() + 60 * options.minutes
    threads = options.threads or [count for count in THREADS if count <= available_cpus()] or [1]
    rows = [row for row in chosen(options.device, threads) if wanted(row, options.only)]
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": device_facts(options.device),
        "machine": machine(),
        "batch": options.batch,
        "rows": [],
    }
    with tempfile.TemporaryDirectory(prefix="packer-device-") as work:
        packs = converted(options.photos, Path(work), options.images)
        report["images"] = {name: described(pack) for name, pack in packs.items()}
        for result in measured(rows, packs, options, deadline):
            report["rows"].append(result)
            report["not_reached"] = [row.name for row in rows[len(report["rows"]) :]]
            print(line_of(result), flush=True)
            write(options, report)
    report["not_reached"] = [row.name for row in rows[len(report["rows"]) :]]
    write(options, report)
    print(report["table"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="torch's name of the device (%(default)s)")
    parser.add_argument("--minutes", type=float, default=4, help="end after so many (%(default)s)")
    parser.add_argument("--photos", type=Path, help="a pack or an ImageFolder of photos; without it, photos are drawn")
    parser.add_argument("--images", type=int, default=DRAWN, help="how many photos at most (%(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", help="numbers of threads; by default 1, 2, 4, 8 and 16")
    parser.add_argument("--batch", type=int, default=BATCH, help="images of a batch (%(default)s)")
    parser.add_argument("--epoch", type=int, default=EPOCH, help="images of an epoch, at least (%(default)s)")
    parser.add_argument("--window", type=float, default=LONGEST, help="seconds of a window at most (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="measure rows whose name has one of these texts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to FILE")
    return parser.parse_args()


def wanted(row: Row, texts: Sequence[str] | None) -> bool:
    return texts is None or any(text in row.name for text in texts)


# Rows.


def chosen(device: str, threads: Sequence[int]) -> list[Row]:
    """Return the rows of the table, the most important first."""
    most = max(threads)
    tiled = [reading(device, data, "float16", count) for data in (TILED, SMALL_TILED) for count in threads]
    others = [decoding(device, data, most) for data in (PHOTOS, SMALL)]
    levels = [reading(device, data, "uint8", count) for data in (TILED, SMALL_TILED) for count in threads]
    numbers = "float16", "uint8"
    plain = [reading(device, data, each, count) for each in numbers for data in (PHOTOS, SMALL) for count in threads]
    processes = [
        reading(device, data, "float16", count, processes=True)
        for count in reversed(threads)
        for data in (TILED, SMALL_TILED)
    ]
    ahead = [
        prefetching(device, data, each, most, locked)
        for data in (TILED, SMALL_TILED)
        for each in numbers
        for locked in ((False, True) if device != "cpu" else (False,))
    ]
    augmented = [
        augmenting(device, data, recipe, where, count)
        for data in (SMALL_TILED, TILED)
        for recipe in ("trivial", "rand")
        for count in sorted({most, max(1, most // 4)}, reverse=True)
        for where in ("device", "threads")
    ]
    of_most, of_fewer = processes[:2], processes[2:]  # they take long to start
    decoders = [row for rows in others for row in rows]
    return [*tiled, *decoders, *levels, *of_most, *augmented, *ahead, *plain, *of_fewer]


def reading(device: str, data: str, numbers: str, threads: int, processes: bool = False) -> Row:
    """Return a row of packer's Loader."""
    options = {"settings": {"device": device, **(normalised() if numbers == "float16" else {})}}
    workers = counted(threads, "process" if processes else "thread")
    return Row("packer.Loader", data, numbers, workers, threads, options=options | {"processes": processes})


def prefetching(device: str, data: str, numbers: str, threads: int, locked: bool) -> Row:
    """Return a row of CUDAPrefetcher around a Loader, which page-locks its batches or leaves it to the prefetcher."""
    settings = {"device": device, **(normalised() if numbers == "float16" else {})}
    options = {"by": "prefetcher", "settings": settings, "locked": locked}
    name = "packer.CUDAPrefetcher, page-locked batches" if locked else "packer.CUDAPrefetcher"
    return Row(name, data, numbers, counted(threads, "thread"), threads, options=options)


def augmenting(device: str, data: str, recipe: str, where: str, threads: int) -> Row:
    """Return a row of a training recipe, whose augmentations run on the threads or on the device."""
    settings = {"device": device, "dtype": normalised()["dtype"], "augment_on": where}
    words = {"trivial": "TrivialAugmentWide, erasing", "rand": "RandAugment, MixUp or CutMix"}[recipe]
    name = f"packer.Loader, {words} on the {where}"
    options = {"by": "recipe", "recipe": recipe, "settings": settings}
    return Row(name, data, "float16", counted(threads, "thread"), threads, options=options)


def decoding(device: str, data: str, threads: int) -> list[Row]:
    """Return the rows of other decoders, which work on the device."""
    of_device: dict[str, Any] = {"device": device}
    alone = of_device | {"crops": False}
    sides = [
        ("torchvision.decode_jpeg", "tensors_device", of_device),
        ("torchvision.decode_jpeg, whole images alone", "tensors_device", alone),
    ]
    if device != "cpu":
        sides += [
            ("nvImageCodec, crops as regions", "nvimage_device", of_device),
            ("nvImageCodec, regions alone", "nvimage_device", alone),
            ("DALI, mixed", "dali", {"mixed": True}),
        ]
    workers = counted(threads, "thread")
    return [Row(name, data, "uint8", workers, threads, module, options) for name, module, options in sides]


def normalised() -> dict[str, Any]:
    import torch

    return {"normalize": (recipes.MEAN, recipes.STD), "dtype": torch.float16}


def counted(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"


# Images.


def converted(photos: Path | None, work: Path, most: int) -> dict[str, Path]:
    """Write the packs of the photos, and return them by their names in the table."""
    from packer import convert

    if photos is None:
        photos = drawn(work / "drawn", most)
    packs = {name: work / f"{number}.lmdb" for number, name in enumerate(CONVERSIONS)}
    for name, (size, tiles) in CONVERSIONS.items():
        convert(photos, packs[name], resize=size, tiles=tiles, sample=most, progress=False)
    return packs


def drawn(root: Path, count: int) -> Path:
    """Draw photos on all processors, and return their tree."""
    from packer.testing.photos import draw_imagefolder

    def draw(label: int) -> None:
        draw_imagefolder(root / f"{label:02d}", classes=1, per_class=-(-count // CLASSES), seed=label)

    with ThreadPoolExecutor(available_cpus()) as pool:
        deque(pool.map(draw, range(CLASSES)), maxlen=0)
    return root


def described(pack: Path) -> dict[str, int]:
    """Return the number of samples of a pack, and their mean size in bytes."""
    from packer import open_dataset

    dataset = open_dataset(pack, output="bytes")
    sizes = [len(dataset[index][0]) for index in range(len(dataset))]
    return {"count": len(sizes), "mean_bytes": round(statistics.fmean(sizes))}


def tree_of(pack: Path, times: int) -> Path:
    """Return a tree of a pack's files, each with `times` names: for a loader that reads each file once an epoch."""
    from packer import export

    once = pack.with_suffix(".files")
    tree = once.with_name(f"{once.name}-{times}")
    if not tree.exists():
        export(pack, once, progress=False)
        for path in sorted(path for path in once.rglob("*") if path.is_file()):
            for number in range(times):
                name = tree / path.relative_to(once).with_name(f"{number:04d}-{path.name}")
                name.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, name)
    return tree


# Measuring.


class Process:
    """A process in which a module of `peers` opens one loader after the other; batches are read in windows."""

    def __init__(self, module: str, device: str) -> None:
        from packer.testing.reference import torchvision

        with contextlib.suppress(ImportError):
            torchvision()
        self._module, self._device = importlib.import_module(f"peers.{module}"), device
        for name in self._module.REQUIRES:
            importlib.import_module(name)
        if module == "tensors_device":
            self._module.decoder()  # ImportError where torchvision's operators do not load
        self.note = self._module.NOTE
        self._loader: Any = None
        self._batches: Iterator[Any] | None = None

    def open(self, pack: Path, threads: int, options: dict[str, Any]) -> None:
        self._loader = self._module.open_loader(pack, "train", threads, **options)
        self._batches = self._without_end()

    def window(self, seconds: float) -> tuple[int, float]:
        """Take batches for `seconds`, and wait until the last one is on the device; return images and seconds."""
        assert self._batches is not None
        images, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            images += next(self._batches)
        synchronize(self._device)
        return images, time.perf_counter() - begin

    def close(self) -> None:
        """Close the loader, and its processes."""
        if self._batches is not None:
            self._batches.close()  # type: ignore[attr-defined]
        if hasattr(self._loader, "close"):
            self._loader.close()
        self._loader = self._batches = None

    def _without_end(self) -> Iterator[int]:
        while True:
            for images, _ in self._loader:
                yield len(images)


def synchronize(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


def measured(
    rows: Sequence[Row], packs: dict[str, Path], options: argparse.Namespace, deadline: float
) -> Iterator[dict[str, Any]]:
    """Measure row after row until the time is over; yield the result of each."""
    with contextlib.ExitStack() as stack:
        processes: dict[str, ChildProcess] = {}
        for number, row in enumerate(rows):
            left = deadline - time.monotonic()
            if left < LEAST:
                return
            process = processes.get(row.module)
            if process is None or (process.reason is not None and not is_absent(process)):
                # After an error of the device, its process cannot be used any more.
                process = processes[row.module] = ChildProcess(Process, row.module, options.device)
                stack.callback(process.close)
            window = min(max(left / (len(rows) - number) / (WINDOWS + 3), SHORTEST), options.window)
            yield result_of(row, process, packs[row.data], window, options)


def is_absent(process: ChildProcess) -> bool:
    """Tell whether a process has no loader, because it is not installed here."""
    return process.reason is not None and process.reason.startswith("not installed")


def result_of(
    row: Row, process: ChildProcess, pack: Path, window: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Open the loader of a row, measure it after a warm-up, and close it."""
    times = -(-options.epoch // options.images)
    given = {**row.options, "batch": options.batch}
    if row.module == "dali":
        pack = tree_of(pack, times)
    else:
        given["times"] = times
    process.call("open", pack, row.threads, given)
    process.call("window", window)
    found = [process.measure("window", window)[1] for _ in range(WINDOWS)]
    process.call("close")
    result = dataclasses.asdict(row) | {"note": process.note}
    result["options"] = {name: str(value) for name, value in row.options.items()}
    if process.reason is not None:
        return result | {"failed": process.reason}
    rates = [one.rate for one in found]
    return result | {
        "images_per_second": statistics.median(rates),
        "windows": rates,
        "cpu_ms_per_image": median_of([one.cpu_ms for one in found]),
        "others_share_of_cpus": median_of([one.others for one in found]),
    }


def median_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


# Output.


def device_facts(device: str) -> dict[str, str]:
    """Return the name of the device, and its driver, memory and link as `packer doctor` finds them."""
    if device == "cpu":
        return {"name": "the CPU, in place of a device"}
    import torch

    from packer._measuring.machine import describe_machine

    found = {finding.topic: finding for finding in describe_machine()}
    said = found["GPU"].found if "GPU" in found else ""
    return {"name": torch.cuda.get_device_name(device), "found": said, "cuda": str(torch.version.cuda)}


def line_of(result: dict[str, Any]) -> str:
    name = ", ".join(result[key] for key in ("loader", "data", "numbers", "workers"))
    return f"{name}: " + (result["failed"] if "failed" in result else f"{result['images_per_second']:,.0f} img/s")


def write(options: argparse.Namespace, report: dict[str, Any]) -> None:
    """Write the report to its files. Called after every row, so that an interrupted program loses none."""
    report["table"] = markdown(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.markdown is not None:
        options.markdown.write_text(report["table"] + "\n", encoding="utf-8")


def markdown(report: dict[str, Any]) -> str:
    """Return the report as a page."""
    facts, device = report["machine"], report["device"]
    lines = [
        f"{device['name']}{', ' + device['found'] if device.get('found') else ''}; {facts['cpus']} processors "
        f"({facts['cpu']}); torch {facts['torch']}, Python {facts['python']}; {report['date']}",
        "",
        *(
            f"- {name}: {of['count']} images of {of['mean_bytes'] / 1000:.0f} kB"
            for name, of in report["images"].items()
        ),
        f"- batches of {report['batch']}; medians of {WINDOWS} windows after a warm-up",
        "",
        f"| {' | '.join(HEADER)} |",
        f"{'|---' * len(HEADER)}|",
        *(cells_of(result, report["rows"]) for result in report["rows"] if "failed" not in result),
        "",
        *(f"- failed: {line_of(result)}" for result in report["rows"] if "failed" in result),
        *(f"- not reached: {name}" for name in report.get("not_reached", [])),
    ]
    return "\n".join(lines).rstrip()


def cells_of(result: dict[str, Any], results: Sequence[dict[str, Any]]) -> str:
    """Return a line of the table, with the ratio to the same row of one worker."""
    same = [one for one in results if all(one[key] == result[key] for key in ("loader", "data", "numbers"))]
    # A process does the work of one thread.
    of_one = [one["images_per_second"] for one in same if one["threads"] == 1 and "failed" not in one]
    rate, cost = result["images_per_second"], result["cpu_ms_per_image"]
    cells = [
        *(result[key] for key in ("loader", "data", "numbers", "workers")),
        *(f"{value:,.0f}" for value in (rate, min(result["windows"]), max(result["windows"]))),
        f"{rate / of_one[0]:.1f}" if of_one else "",
        f"{cost:.3f}" if cost is not None else "",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
