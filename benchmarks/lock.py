"""Measures how long packer's Loader holds Python's lock for an image, which tells how far one process scales.

python benchmarks/lock.py PACK [--crop train|eval]

One thread decodes whole epochs. The result is the CPU time of the process, less the time that its threads spend inside
of the calls that release the lock (`_releasing`), for an image. The result is an upper bound, because the system and
smaller calls do some of the rest without the lock; only the hundredths of a microsecond in which C reads its arguments
are missing. The cost of measuring is measured before, and subtracted. The least of several epochs counts, because other
processes can only add time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peers import own

from packer._images import native, rectangle

_IN_C = ("decode_into", "resize", "look_up")
_OF_LIBRARIES = (("simplejpeg", "decode_jpeg"), ("cv2", "flip"))


def _releasing() -> list[tuple[Any, str]]:
    """Return the calls that release the lock, of the libraries that are installed: where each stands, and its name."""
    found: list[tuple[Any, str]] = [(rectangle, "resize_batch"), (os, "pread"), (torch.Tensor, "copy_")]
    if native._native is not None:
        found += [(native._native, name) for name in _IN_C]
    for library, name in _OF_LIBRARIES:
        with contextlib.suppress(ImportError):
            found.append((importlib.import_module(library), name))
    return found


def lock_held(pack: Path, crop: str, epochs: int = 5) -> float:
    """Return for how many microseconds an image Python's lock is held."""
    torch.set_num_threads(1)
    loader = own.open_loader(pack, crop, 1)
    inside = [0.0, 0]
    cost = _cost_of_measuring()
    originals = [(owner, name, getattr(owner, name)) for owner, name in _releasing()]
    held = []
    try:
        for owner, name, function in originals:
            setattr(owner, name, _measured(function, inside))
        for _ in range(epochs + 1):
            inside[:] = 0.0, 0
            begin, images = time.process_time(), 0
            for _, labels in loader:
                images += len(labels)
            held.append((time.process_time() - begin - inside[0] - inside[1] * cost) / images)
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)
    return 1e6 * min(held[1:])  # the first warms up


def _measured(function: Callable[..., Any], inside: list[Any]) -> Callable[..., Any]:
    """Return a function that adds the CPU time of its calls, and their number, to `inside`."""
    clock = time.thread_time

    def measured(*arguments: Any, **options: Any) -> Any:
        begin = clock()
        try:
            return function(*arguments, **options)
        finally:
            inside[0] += clock() - begin
            inside[1] += 1

    return measured


def _cost_of_measuring(calls: int = 20_000) -> float:
    """Return the seconds of CPU time that measuring adds to a call."""

    def nothing(*arguments: Any, **options: Any) -> None:
        return None

    inside = [0.0, 0]
    measured = _measured(nothing, inside)
    costs = []
    for _ in range(5):
        inside[:] = 0.0, 0
        begin = time.thread_time()
        for _ in range(calls):
            measured(None, None, None)
        costs.append((time.thread_time() - begin - inside[0]) / calls)
    return min(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--crop", choices=("train", "eval"), default="train")
    options = parser.parse_args()
    print(f"{lock_held(options.pack, options.crop):.1f}")


if __name__ == "__main__":
    main()
