"""Start many readers of a remote pack, none of which may hang: ``python -m tests.remote.starts 200``.

A start is one epoch of a DataLoader whose workers are made by fork, spawn or forkserver, or of `Loader(processes=2)`.
Half of the starts find an empty cache directory, a third have no cache directory, and in half of them this process
reads first, so that it has a fetcher, and a thread that listens to it, before the workers begin. Each epoch is compared
with that of the pack on a disk. A start that takes longer than ``--seconds`` ends the script, which prints where the
threads of the hanging process are.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.command import python
from tests.remote.fileserver import FilesOfThisMachine, Served
from tests.storage.remote.objects import serving

METHODS = ("fork", "spawn", "forkserver", "processes")
_BATCH = 4


def run(method: str, starts: int, seconds: float, url: str, path: Path) -> float:
    """Run starts in a process of its own, and return the seconds; RuntimeError if one hangs or reads wrong data."""
    code = "import sys; from tests.remote.starts import main; main(sys.argv[1:])"
    words = [starts, "--methods", method, "--seconds", seconds, "--url", url, "--path", path]
    begun = time.monotonic()
    ended = python(code, *words, check=False)
    if ended.returncode:
        raise RuntimeError(f"{method}, start {ended.stdout.count('.') + 1} of {starts}: {ended.stderr}")
    assert ended.stdout.count(".") == starts
    return time.monotonic() - begun


def make_pack(directory: Path) -> Path:
    """Write a small pack and return its path."""
    import packer
    from packer.testing.photos import draw_imagefolder

    draw_imagefolder(directory / "tree", classes=2, per_class=8, size=(32, 32))
    packer.convert(directory / "tree", directory / "photos.lmdb")
    return directory / "photos.lmdb"


def _start_many(method: str, starts: int, seconds: float, url: str, path: Path) -> None:
    """Start in this process, and print a dot after each start."""
    import multiprocessing

    import packer

    multiprocessing.set_forkserver_preload(["torch", "packer", "tests.remote.starts"])
    expected = _epoch(packer.open_dataset(path, crop=packer.CenterCrop(24)), "fork")
    faulthandler.enable(all_threads=True)
    for number in range(starts):
        faulthandler.dump_traceback_later(seconds, exit=True)
        cache = "" if number % 3 == 2 else path.parent / f"cache-{method}-{os.getpid()}-{number // 2}"
        with packer.open_dataset(url, crop=packer.CenterCrop(24), cache_dir=cache, timeout=2 * seconds) as dataset:
            if number % 4 < 2:
                dataset[number % len(dataset)]
            found = _epoch(dataset, method)
        if found != expected:
            raise SystemExit(f"start {number}: other batches than on a disk")
        sys.stdout.write(".")
        sys.stdout.flush()
    faulthandler.cancel_dump_traceback_later()


def _epoch(dataset: Any, method: str) -> list[tuple[bytes, list[int]]]:
    from torch.utils.data import DataLoader

    import packer

    if method == "processes":
        with packer.Loader(dataset, _BATCH, threads=2, processes=2) as loader:
            return [(images.numpy().tobytes(), labels.tolist()) for images, labels in loader]
    loader = DataLoader(dataset, _BATCH, num_workers=2, multiprocessing_context=method)
    return [(images.numpy().tobytes(), labels.tolist()) for images, labels in loader]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starts", type=int, help="how many of each kind")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seconds", type=float, default=60, help="that a start may take (60)")
    for name in ("--url", "--path"):  # for the process of `run`
        parser.add_argument(name, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.url:
        _start_many(asked.methods[0], asked.starts, asked.seconds, asked.url, Path(asked.path))
        return
    with tempfile.TemporaryDirectory() as directory, serving(FilesOfThisMachine()) as server:
        path = make_pack(Path(directory))
        for method in asked.methods:
            took = run(method, asked.starts, asked.seconds, Served(server).url(path), path)
            print(f"{method}: {asked.starts} starts, {took / asked.starts:.2f} s each, none hung")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
