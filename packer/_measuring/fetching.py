"""A pack at a URL as a first epoch reads it, with nothing of it in a cache: blocks of neighbours, or at random."""

from __future__ import annotations

import tempfile
import time
import warnings

import numpy as np
import torch

from packer._loading.dataset import open_dataset
from packer._loading.loader import Loader
from packer._measuring.loaders import OUTPUT
from packer._table import Ints
from packer.crops import RandomResizedCrop
from packer.samplers import BlockShuffleSampler

__all__ = ["BLOCKS", "RANDOM", "Fetching"]

BLOCKS, RANDOM = "block shuffle, first epoch", "random order, first epoch"

_CROP = RandomResizedCrop(OUTPUT, flip=0.5)
_BLOCK = 256  # samples, as of `BlockShuffleSampler` by default
_LONGEST = 10  # times what a measurement shall take, and then it ends


class Fetching:
    """The first samples of an epoch in one order, fetched anew each time.

    Parameters
    ----------
    way : {BLOCKS, RANDOM}
    url : str
    batch : int
        Samples of a batch.
    images : int
        How many samples at most. Those of a block shuffle are whole blocks, as in an epoch, where all that lies
        between two samples is wanted soon.
    directory : str
        On the disk that keeps what is fetched. Who says so removes it at the end.
    """

    def __init__(self, way: str, url: str, batch: int, images: int, directory: str) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # that a random order fetches each sample by itself is what is measured
        self._way, self._url, self._batch, self._images = way, url, batch, images
        self._epoch, self._directory = 0, directory

    def describe(self) -> tuple[int, int]:
        """Return how many samples are read, and how many bytes."""
        dataset = open_dataset(self._url, crop=_CROP)
        order = self._order(len(dataset))
        return len(order), int(dataset.reader.table.size[order].sum())

    def read(self, threads: int, seconds: float) -> tuple[int, float]:
        """Read the samples once with so many threads; return how many, and how long that took from the beginning."""
        with tempfile.TemporaryDirectory(dir=self._directory, ignore_cleanup_errors=True) as directory:
            dataset = open_dataset(self._url, crop=_CROP, cache_dir=directory)
            self._epoch += 1
            order = self._order(len(dataset)).tolist()
            count, begin = 0, time.perf_counter()
            with Loader(dataset, self._batch, sampler=order, threads=threads) as loader:
                for batch in loader:
                    count += len(batch[-1])
                    if time.perf_counter() - begin > _LONGEST * seconds:
                        break
            return count, time.perf_counter() - begin

    def _order(self, length: int) -> Ints:
        if self._way == RANDOM:
            return np.random.default_rng(self._epoch).permutation(length)[: self._images].astype(np.int64)
        block = min(_BLOCK, self._images)
        window = max(1, self._images // block)
        order = BlockShuffleSampler(length, block, window, seed=self._epoch, rank=0, world=1)
        return order.order(np.arange(min(block * window, length), dtype=np.int64))
