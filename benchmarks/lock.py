"""Measures how long packer's Loader holds Python's lock for an image, which tells how far one process scales.

python benchmarks/lock.py PACK [--crop train|eval] [--recipe trivial|rand|views] [--batch N] [--threads K] [--all]

With a recipe, images are augmented, normalised, and with "rand" mixed: see peers/recipes.py. --all prints a table of
both crops and all recipes, in batches of 16, 64 and 128.

Threads decode whole epochs, of 4000 images or more. The result is the CPU time of the process for an image, minus the
time that its threads spend in calls that release the lock (`_releasing`). It is an upper bound, because the system and
smaller calls also work without the lock; only the hundredths of a microsecond in which C reads its arguments are
missing. The cost of measuring is measured before, and subtracted. The minimum of several epochs counts, because other
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
from peers import BATCH, own

from packer import open_dataset
from packer._images import native, rectangle

_IN_C = ("augment", "choose", "decide", "decode_into", "look_up", "mix_labels", "resize", "uniforms", "write_numbers")
_LEAST = 4000  # images of an epoch, which share the cost of the pass's beginning and end
_CASES = (("train", None), ("eval", None), ("train", "trivial"), ("train", "rand"), ("train", "views"))
_BATCHES = (16, 64, 128)
_OF_LIBRARIES = (("simplejpeg", "decode_jpeg"), ("cv2", "flip"))


def _releasing() -> list[tuple[Any, str]]:
    """Return the functions that release the lock, of installed libraries, each as its owner and its name."""
    found: list[tuple[Any, str]] = [(rectangle, "resize_batch"), (os, "pread"), (torch.Tensor, "copy_")]
    if native._native is not None:
        found += [(native._native, name) for name in _IN_C]
    for library, name in _OF_LIBRARIES:
        with contextlib.suppress(ImportError):
            found.append((importlib.import_module(library), name))
    return found


def lock_held(  # noqa: PLR0917
    pack: Path, crop: str, recipe: str | None = None, batch: int = BATCH, threads: int = 1, epochs: int = 5
) -> float:
    """Return for how many microseconds an image Python's lock is held."""
    torch.set_num_threads(1)
    with open_dataset(pack) as dataset:
        times = -(-_LEAST // len(dataset))
    how: dict[str, Any] = {"batch": batch, "times": times}
    loader = own.open_loader(pack, crop, threads, **how, **({"by": "recipe", "recipe": recipe} if recipe else {}))
    inside: list[float] = []
    cost = _cost_of_measuring()
    originals = [(owner, name, getattr(owner, name)) for owner, name in _releasing()]
    held = []
    try:
        for owner, name, function in originals:
            setattr(owner, name, _measured(function, inside))
        for _ in range(epochs + 1):
            inside.clear()
            begin, images = time.process_time(), 0
            for made, _ in loader:
                images += len(made[0] if isinstance(made, list) else made)
            held.append((time.process_time() - begin - sum(inside) - len(inside) * cost) / images)
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)
    return 1e6 * min(held[1:])  # the first warms up


def _measured(function: Callable[..., Any], inside: list[float]) -> Callable[..., Any]:
    """Return a function that appends the CPU time of its calls to `inside`, as several threads may at once."""
    clock, keep = time.thread_time, inside.append

    def measured(*arguments: Any, **options: Any) -> Any:
        begin = clock()
        try:
            return function(*arguments, **options)
        finally:
            keep(clock() - begin)

    return measured


def _cost_of_measuring(calls: int = 20_000) -> float:
    """Return the seconds of CPU time that measuring adds to a call."""

    def nothing(*arguments: Any, **options: Any) -> None:
        return None

    inside: list[float] = []
    measured = _measured(nothing, inside)
    costs = []
    for _ in range(5):
        inside.clear()
        begin = time.thread_time()
        for _ in range(calls):
            measured(None, None, None)
        costs.append((time.thread_time() - begin - sum(inside)) / calls)
    return min(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--crop", choices=("train", "eval"), default="train")
    parser.add_argument("--recipe", choices=("trivial", "rand", "views"))
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if not options.all:
        print(f"{lock_held(options.pack, options.crop, options.recipe, options.batch, options.threads):.1f}")
        return
    print("us an image, in batches of", *_BATCHES)
    for crop, recipe in _CASES:
        held = (lock_held(options.pack, crop, recipe, batch, options.threads, 3) for batch in _BATCHES)
        print(f"{crop} {recipe or ''}".ljust(16), *(f"{each:6.1f}" for each in held), flush=True)


if __name__ == "__main__":
    main()
