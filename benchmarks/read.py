"""Measures how fast batches come from packer and from alternative loaders, side by side.

python benchmarks/read.py --source IMAGEFOLDER [--json FILE]

Every side runs in a process of its own, on the same CPUs (as many as --threads), with as many threads or worker
processes, over the same images, from a warm page cache. Sides take turns: after a warm-up, one epoch of each, then
again, each time beginning with another side. Rates are medians. A ratio is the rate of packer.Loader (in sections of
recipes, with the recipe) divided by the other's, as the median over the rounds. Because machines are shared, the table
also has the CPU time that a side itself spent on an image (all its processes; the median), and the share of the CPUs
that other processes took meanwhile (median and worst). A side that is not installed is left out, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, samples
from sections import LIMIT, LOADER, SECTIONS, Section, Side

from packer._measuring.harness import ChildProcess, Measurement, ratio, rounds
from packer._measuring.machine import processor

LOCK_GOAL = 40
"""The goal: the most microseconds that Python's lock is held for an image."""

_NOISY = 0.1

_PACKAGES = (
    "packer",
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "simplejpeg",
    "ffcv",
    "numba",
    "nvidia-dali-cuda120",
    "nvidia-nvimgcodec-cu12",
    "spdl",
    "torchcodec",
    "megatron-energon",
    "litdata",
    "mosaicml-streaming",
    "webdataset",
)


def main() -> None:
    options = _arguments()
    with contextlib.ExitStack() as stack:
        cpus = sorted(os.sched_getaffinity(0))[: options.threads] if hasattr(os, "sched_setaffinity") else []
        if cpus:
            os.sched_setaffinity(0, cpus)
        # On the disk where temporary files lie. The data are read from the page cache.
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="packer-read-")))
        work.mkdir(parents=True, exist_ok=True)
        trees = _trees(options.source, options.images, work)
        report: dict[str, Any] = {
            "machine": _machine(cpus, options),
            "images": {name: _describe(tree) for name, tree in trees.items()},
            "results": [],
        }
        print(_heading(report), flush=True)
        for name in options.sections:
            section = SECTIONS[name]
            chosen = [side for side in section.sides if _wanted(side, options.sides)]
            packs = _prepare(chosen, trees, section.tree, work / section.packs)
            for crop in options.crops:
                runs = _measure([side for side in chosen if crop in side.crops], packs, crop, options)
                if not runs:
                    continue
                result = _result(name, section, crop, runs)
                result["lock_us_per_image"] = _lock_held(packs.get(LOADER), crop) if section.base == LOADER else None
                report["results"].append(result)
                print(_table(f"{section.title}; {crop} crop", section.base, result), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="ImageFolder tree of photos; without it, photos are drawn")
    parser.add_argument("--images", type=int, default=1000, help="how many; the source's come again and again (1000)")
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs of each side (5)")
    parser.add_argument(
        "--retries",
        type=int,
        default=0,
        help="repeat an epoch this often while others take over a tenth of the CPUs; the quietest counts (0)",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads or workers, and CPUs, of each side (2)")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--crops", nargs="+", choices=("train", "eval"), default=["train", "eval"])
    parser.add_argument("--sides", nargs="+", metavar="TEXT", help="only sides whose name or module contains one")
    parser.add_argument("--work", type=Path, help="directory for the packs, kept and used again; else temporary")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to FILE")
    return parser.parse_args()


def _wanted(side: Side, texts: list[str] | None) -> bool:
    return texts is None or any(text.lower() in f"{side.name} {side.module}".lower() for text in texts)


# Images.


def _trees(source: Path | None, count: int, work: Path) -> dict[str, Path]:
    """Return the tree of `count` photos, and the same resized."""
    photos, resized = work / "tree", work / "tree-resized"
    if not photos.exists():
        if source is None:
            from packer.testing.photos import draw_imagefolder

            source = work / "drawn"
            draw_imagefolder(source, per_class=min(20, -(-count // 10)))
        files = samples(source)
        with _complete(photos) as partial:
            for number in range(count):
                path, _ = files[number % len(files)]
                copy = partial / path.parent.name / f"{number // len(files):04d}-{path.name}"
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    if not resized.exists():
        pack = work / "resized.lmdb"
        _packer("convert", "--resize", str(RESIZE), "--no-tiles", photos, pack)  # ordinary JPEGs, for all loaders
        with _complete(resized) as partial:
            partial.rmdir()
            _packer("export", pack, partial)
        pack.unlink()
    return {"photos": photos, "resized": resized}


def _packer(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "packer", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def _complete(directory: Path) -> Iterator[Path]:
    """Yield a directory that gets its final name when it is complete."""
    partial = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    partial.rename(directory)


def _describe(tree: Path) -> dict[str, int]:
    sizes = [path.stat().st_size for path, _ in samples(tree)]
    return {"count": len(sizes), "mean_bytes": round(statistics.fmean(sizes))}


# Processes.


class Runner:
    """A side of the table, in a process of its own."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.epochs: list[Measurement] = []
        self._process = ChildProcess(Peer, side, traces=True)

    @property
    def reason(self) -> str | None:
        return self._process.reason

    @reason.setter
    def reason(self, reason: str | None) -> None:
        self._process.reason = reason

    @property
    def note(self) -> str:
        return self._process.note

    def call(self, *message: Any) -> Any:
        return self._process.call(*message)

    def epoch(self, number: int, options: argparse.Namespace) -> None:
        """Run an epoch; number 0 is the warm-up, which is not recorded."""
        attempts = [self._attempt(number, options.images)]
        while number and self.reason is None and _others(attempts[-1]) > _NOISY and len(attempts) <= options.retries:
            attempts.append(self._attempt(number, options.images))
        if number and self.reason is None:
            self.epochs.append(min(attempts, key=_others))

    def _attempt(self, number: int, count: int) -> Measurement:
        self.call("begin", number)
        images, measured = self._process.measure("epoch")
        if images < count:
            self.reason = self.reason or f"gave {images} images of {count}"
        return measured

    def close(self) -> None:
        self._process.close()


def _others(measured: Measurement) -> float:
    return measured.others or 0.0


class Peer:
    """Runs in the process of a side: a module of `peers`."""

    def __init__(self, side: Side) -> None:
        from packer.testing.reference import torchvision

        with contextlib.suppress(ImportError):
            torchvision()  # first, because some sides import it in the ordinary way
        import torch

        torch.set_num_threads(1)
        self._side = side
        self._module = importlib.import_module(f"peers.{side.module}")
        for name in self._module.REQUIRES:
            importlib.import_module(name)
        self.note = self._module.NOTE

    def prepare(self, *arguments: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return self._module.prepare(*arguments, **self._side.prepare)

    def open(self, *arguments: Any) -> None:
        self._loader = self._module.open_loader(*arguments, **self._side.open)

    def begin(self, epoch: int) -> None:
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)

    def epoch(self) -> tuple[int, float]:
        return _epoch(self._loader, self._side.open.get("recipe"))


def _epoch(loader: Any, recipe: str | None) -> tuple[int, float]:
    count = 0
    start = time.perf_counter()
    for images, labels in loader:
        if count == 0:
            _require_batch(images, recipe)
        count += len(labels)
    return count, time.perf_counter() - start


def _require_batch(images: Any, recipe: str | None) -> None:
    views = list(images) if recipe == "views" else [images]
    kind = "torch.float32" if recipe else "torch.uint8"
    shapes = ((BATCH, 3, OUTPUT, OUTPUT), (BATCH, OUTPUT, OUTPUT, 3))
    found = [(str(view.dtype), tuple(view.shape)) for view in views]
    if len(found) != (2 if recipe == "views" else 1) or any(one[0] != kind or one[1] not in shapes for one in found):
        raise ValueError(f"a batch is {found}")


# Measurement.


def _prepare(sides: list[Side], trees: dict[str, Path], tree: str, directory: Path) -> dict[str, Any]:
    """Write each side's pack and return the paths; sides with equal settings share one."""
    packs: dict[str, Any] = {}
    for side in sides:
        # The limit reads packer's own pack.
        module = "own" if side.module == "limit" else side.module
        words = (value if isinstance(value, tuple) else (str(value),) for value in side.prepare.values())
        key = "-".join([module, *(word.strip("-") for some in words for word in some)])
        place = directory / key
        if key not in packs:
            note = directory / f"{key}.pack"
            if not note.exists():
                runner = Runner(side)
                with _complete(place) as partial:
                    pack = runner.call("prepare", trees[side.tree or tree], partial)
                runner.close()
                if pack is None:
                    shutil.rmtree(place)
                else:
                    moved = place / pack.relative_to(partial) if pack.is_relative_to(partial) else pack
                    note.write_text(str(moved.resolve()))
                packs[key] = runner.reason
            packs[key] = Path(note.read_text()) if note.exists() else packs[key]
        packs[side.name] = packs[key]
    return packs


def _measure(sides: list[Side], packs: dict[str, Any], crop: str, options: argparse.Namespace) -> list[Runner]:
    runners: list[Runner] = []
    try:
        for side in sides:
            runner = Runner(side)
            runners.append(runner)
            pack = packs[side.name]
            if not isinstance(pack, Path):
                runner.reason = runner.reason or pack
            runner.call("open", pack, crop, options.threads)
            runner.epoch(0, options)
        for number, order in enumerate(rounds(len(runners), options.epochs), 1):
            for position in order:
                runners[position].epoch(number, options)
    finally:
        for runner in runners:
            runner.close()
    return runners


def _lock_held(pack: Any, crop: str) -> float | None:
    """Return for how many microseconds packer.Loader holds Python's lock for an image; None if it has no pack."""
    if not isinstance(pack, Path):
        return None
    line = [sys.executable, Path(__file__).with_name("lock.py"), pack, "--crop", crop]
    return float(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def _result(name: str, section: Section, crop: str, runs: list[Runner]) -> dict[str, Any]:
    rates = {run.side.name: [epoch.rate for epoch in run.epochs] for run in runs if run.reason is None}

    def ratio_of(side: str, other: str) -> float | None:
        return ratio(rates[side], rates[other]) if side in rates and other in rates else None

    rows = []
    for run in runs:
        row: dict[str, Any] = {"side": run.side.name, "settings": asdict(run.side), "note": run.note}
        if run.reason is None:
            row |= {
                "images_per_second": statistics.median(rates[run.side.name]),
                "epochs": rates[run.side.name],
                "cpu_ms_per_image": statistics.median(epoch.cpu_ms or 0.0 for epoch in run.epochs),
                "others_share_of_cpus": [_others(epoch) for epoch in run.epochs],
                "loader_ratio": ratio_of(section.base, run.side.name),
            }
        else:
            row["skipped"] = run.reason
        rows.append(row)
    goals = [
        {"side": side, "of": other, "goal": goal, "ratio": ratio_of(side, other)}
        for (side, other), goal in section.goals.items()
    ]
    return {"section": name, "crop": crop, "sides": rows, "goals": goals}


# Output.


def _machine(cpus: list[int], options: argparse.Namespace) -> dict[str, Any]:
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "cpu": processor(),
        "cpus_used": len(cpus) or os.cpu_count(),
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "threads": options.threads,
        "epochs": options.epochs,
        "retries": options.retries,
        "batch": BATCH,
    }


def _heading(report: dict[str, Any]) -> str:
    machine = report["machine"]
    lines = [
        f"{machine['cpu']}, {machine['cpus_used']} of {machine['cpus']} CPUs, {machine['threads']} threads or workers; "
        f"batches of {BATCH}; medians of {machine['epochs']} epochs after a warm-up",
        ", ".join(f"{name} {version}" for name, version in machine["versions"].items()),
    ]
    lines += [
        f"{name}: {images['count']} images of {images['mean_bytes'] / 1000:.0f} kB"
        for name, images in report["images"].items()
    ]
    return "\n".join(lines)


def _table(title: str, base: str, result: dict[str, Any]) -> str:
    beside = "Loader is" if base == LOADER else "recipe is"
    lines = ["", title, f"{'':38}{'img/s':>7}{'lowest':>8}{'highest':>8}{'CPU ms':>8}{'others':>12}{beside:>11}"]
    measured = [row for row in result["sides"] if "skipped" not in row]
    for row in sorted(measured, key=lambda row: -row["images_per_second"]):
        others = row["others_share_of_cpus"]
        ratio = row["loader_ratio"]
        lines.append(
            f"{row['side']:38}{row['images_per_second']:7.0f}{min(row['epochs']):8.0f}{max(row['epochs']):8.0f}"
            f"{row['cpu_ms_per_image']:8.2f}{statistics.median(others):7.0%}{max(others):5.0%}"
            + (f"{ratio:9.2f} x" if ratio is not None else "")
        )
    lines += [f"{row['side']:38}skipped: {row['skipped']}" for row in result["sides"] if "skipped" in row]
    for goal in result["goals"]:
        if goal["ratio"] is not None:
            verdict = "reached" if goal["ratio"] >= goal["goal"] else "MISSED"
            found = f"{goal['ratio']:.2f} x, goal {goal['goal']:.2f} x  {verdict}"
            lines.append(f"  {goal['side']} / {goal['of']}: {found}")
    if result["lock_us_per_image"] is not None:
        held = result["lock_us_per_image"]
        lines.append(
            f"  {LOADER} holds Python's lock for {held:.0f} us an image at most, goal {LOCK_GOAL} us: "
            f"one process can give {1e6 / held:,.0f} img/s, given the CPUs"
        )
    cost = {row["side"]: row["cpu_ms_per_image"] for row in measured}
    if LOADER in cost and LIMIT in cost:
        beside = 1000 * (cost[LOADER] - cost[LIMIT])
        lines.append(f"  {LOADER}'s CPU time beside its own calls: {beside:.0f} us an image")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
