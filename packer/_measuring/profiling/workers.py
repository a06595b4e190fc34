"""The same DataLoader with other numbers of workers, over the same batches."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from packer._measuring.profiling.seen import Seen

__all__ = ["fewer_workers"]

_A_WORKER = 2  # batches that each worker makes at least, where they last for longer than the trial


def fewer_workers(seen: Seen, workers: int, batches: int, *, sample: float, seconds: float, step: float = 0.0) -> float:
    """Return how many times as fast a pass of `batches` is with fewer workers.

    Both take their start and the same batches, in turn, as long as the time lasts. Where whole batches would take too
    long, they are smaller ones.

    Parameters
    ----------
    workers : int
        As many as there are processors.
    sample : float
        Seconds that a sample takes on one of these.
    step : float
        Seconds that the training loop works on a batch, while workers make the next ones.
    """
    count = min(batches, max(seen.workers * _A_WORKER, 8))
    fitting = int(seconds / 2 * workers / max(sample, 1e-9))  # samples, for two passes
    size = min(seen.batch_size, max(fitting // count, 1))
    chosen = np.random.default_rng().integers(len(seen.dataset), size=(count, size)).tolist()
    best: dict[int, float] = {}
    begun = time.perf_counter()
    for _ in range(2):
        for number in (seen.workers, workers):
            first, took = _pass(seen, number, chosen, batches * seen.batch_size / size)
            took = max(took, first + step * batches)
            best[number] = min(took, best.get(number, took))
        if time.perf_counter() - begun > seconds / 2:
            break
    return best[seen.workers] / max(best[workers], 1e-9)


def _pass(seen: Seen, workers: int, chosen: list[list[int]], batches: float) -> tuple[float, float]:
    """Return when the first batch comes and how long `batches` take: some are made, the others taken for as fast."""
    given, begin = [], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on many workers, and on forks beside threads: the training loop said them
        for _ in _loader(seen, workers, chosen):
            given.append(time.perf_counter() - begin)
    half = len(given) // 2
    steady = (given[-1] - given[half - 1]) / (len(given) - half) if half else given[-1]
    return given[0], given[-1] + steady * (batches - len(given))


def _loader(seen: Seen, workers: int, chosen: list[list[int]]) -> Any:
    from torch import Generator
    from torch.utils.data import DataLoader

    loader = seen.loader
    return DataLoader(
        loader.dataset,
        batch_sampler=chosen,
        num_workers=workers,
        collate_fn=loader.collate_fn,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        generator=Generator(),
    )
