"""A data loader of threads: decoders that release Python's lock write their images straight into the batch.

Who does it, threads of this process or of several, is the business of `packer.workers` and `packer.processes`.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from packer.datasets import ImageDataset
from packer.executors import available_cpus
from packer.prefetch import CUDAPrefetcher, Normalizer, usable_device
from packer.processes import Processes
from packer.samplers import OrderSampler, SequentialSampler, ShuffleSampler
from packer.workers import Threads, Workers

__all__ = ["Loader"]

Ints = npt.NDArray[np.int64]

_PLANNED_TOGETHER = 8  # batches; so far ahead the sampler is asked


class Loader:
    """Batches of a pack, decoded by threads.

    With a dataset that has a `crop` of a fixed size and no transform, images are decoded into their place in a
    (N, 3, H, W) uint8 batch that is laid out channels last. Otherwise each item is made as the dataset makes it, and
    the items are collated.

    Parameters
    ----------
    dataset : ImageDataset
    batch_size : int
    shuffle : bool
        A new permutation every epoch.
    sampler : OrderSampler or iterable of int, optional
        The order, instead of `shuffle`. By default each rank of an initialised `torch.distributed` gets its share.
    threads : int, optional
        How many threads decode; by default what `packer.executors.available_cpus` counts.
    processes : int, optional
        Divide the threads over so many processes, each with one at least, which write into memory shared with this
        one. For dozens of CPUs, where the threads of one process wait for Python's lock; see Notes.
    prefetch : int
        How many batches are in work beyond the one that is asked for.
    drop_last : bool
        Leave out the last batch where it is not full.
    seed : int
        Of the order and of the crops.
    device : torch.device or str, optional
        Where the batches are brought, ahead of time; see `CUDAPrefetcher`.
    pin_memory : bool, optional
        Whether batches are page-locked; by default where `device` is a CUDA device.
    normalize : (sequence of float, sequence of float), optional
        Mean and standard deviation a channel, in units of 0 to 1; done on the device.
    dtype : torch.dtype, optional
        What images are converted to; uint8 by default, float32 with `normalize`.
    channels_last : bool
        Whether batches are laid out channels last.
    transform : callable, optional
        Applied to each image, instead of the dataset's.
    collate : callable
        Makes a batch of a list of items, where items are not written in place.

    Notes
    -----
    An item is a pure function of seed, epoch and index: neither threads nor processes nor ranks change it. Each pass
    over the loader is the next epoch, unless `set_epoch` says which.

    Processes are spawned by the first pass, which takes as long as importing torch, and stay as long as the loader.
    They get the dataset and the transform pickled, and import the script that the program began with, which
    therefore does its work below ``if __name__ == "__main__":``.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        sampler: Any = None,
        threads: int | None = None,
        processes: int | None = None,
        prefetch: int = 2,
        drop_last: bool = False,
        seed: int = 0,
        device: torch.device | str | None = None,
        pin_memory: bool | None = None,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
        transform: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        if not isinstance(dataset, ImageDataset):
            raise TypeError(f"a Loader reads a dataset such as packer.open_dataset gives, not {dataset!r}")
        if batch_size < 1 or prefetch < 0 or (threads is not None and threads < 1):
            raise ValueError("batch_size and threads are 1 or more, prefetch is 0 or more")
        if processes is not None and processes < 0:
            raise ValueError("processes is 0 or more")
        if sampler is None:
            sampler = (ShuffleSampler if shuffle else SequentialSampler)(len(dataset), seed=seed)
        elif shuffle:
            raise ValueError("shuffle goes without a sampler: the sampler decides the order")
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.threads = threads or available_cpus()
        self.processes = processes or 0
        self.prefetch = prefetch
        self.drop_last = drop_last
        self.seed = seed
        self.device = usable_device(device) if device is not None else None
        self.pin_memory = (self.device is not None and self.device.type == "cuda") if pin_memory is None else pin_memory
        self.normalizer = Normalizer(normalize, dtype, channels_last)
        self.transform = transform
        self.collate = collate
        self._epoch = 0
        self._done = 0  # samples of this rank that were handed out in the present epoch
        self._begun = False
        self._workers: tuple[tuple[Any, ...], Workers] | None = None  # with their settings, while no pass uses them

    def __len__(self) -> int:
        """Return the number of batches from where the epoch begins, or was resumed."""
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is."""
        self._epoch, self._done, self._begun = epoch, 0, False
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the present epoch stands: at the first sample that was not handed out yet."""
        start, world = getattr(self.sampler, "start", 0), getattr(self.sampler, "world", 1)
        return {"epoch": self._epoch, "start": start + self._done * world, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on where `state_dict` was taken, also on another number of ranks or threads."""
        if not isinstance(self.sampler, OrderSampler):
            raise TypeError("only packer's samplers can be resumed; give the loader one of them")
        self.seed = self.sampler.seed = int(state["seed"])
        self._epoch, self._done, self._begun = int(state["epoch"]), 0, False
        self.sampler.load_state_dict({"epoch": state["epoch"], "start": state["start"]})

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        if self._begun:
            self.set_epoch(self._epoch + 1)
        self._begun = True
        return self._counted(len(self.sampler))

    def _counted(self, total: int) -> Generator[tuple[Any, Any], None, None]:
        batches: Iterable[tuple[Any, Any]] = self._batches()
        if self.device is not None and self.device.type == "cuda":
            batches = CUDAPrefetcher(batches, self.device, normalizer=self.normalizer)
        for number, batch in enumerate(batches, 1):
            self._done = min(number * self.batch_size, total)
            yield batch

    def _batches(self) -> Generator[tuple[Any, Any], None, None]:
        transform = self.transform or self.dataset.transform
        in_place = self.dataset.crop is not None and transform is None and self.dataset.output == "tensor"
        size = self.dataset.crop.size if in_place and self.dataset.crop is not None else None
        settings, workers = self._take_workers(self.batch_size * 3 * math.prod(size) if size is not None else 0)
        pending: deque[_Batch] = deque()
        try:
            workers.begin(self.dataset, transform)
            for batch in self._planned_batches(size is not None):
                pending.append(self._submit(workers, batch, size))
                if len(pending) > self.prefetch:
                    yield self._finish(workers, pending)
            while pending:
                yield self._finish(workers, pending)
        finally:
            running = [task for batch in pending for task in batch.tasks if not task.cancel()]
            for task in running:
                task.exception()  # waits: tasks write into memory that the next batches use
            pending.clear()  # the traceback of an error may be kept, and with it what this holds
            workers.end()
            self._keep_workers(settings, workers)

    def _take_workers(self, size: int) -> tuple[tuple[Any, ...], Workers]:
        """Return workers for batches of `size` bytes, and their settings: those kept, or new ones."""
        count = self.prefetch + 1
        in_work = self.batch_size * count
        # Only the prefetcher to a CUDA device is known to hold a batch until it is copied.
        locked = self.pin_memory and self.device is not None and self.device.type == "cuda"
        settings = (self.processes, self.threads, in_work, count, self.pin_memory, locked)
        kept, self._workers = self._workers, None
        if kept is not None:
            if kept[0] == settings and kept[1].size >= size and kept[1].usable:
                return kept
            kept[1].close()
        if self.processes:
            return settings, Processes(self, self.processes, self.threads, in_work, size, count, locked)
        return settings, Threads.with_memory(self.threads, in_work, size, count, self.pin_memory)

    def _keep_workers(self, settings: tuple[Any, ...], workers: Workers) -> None:
        if self._workers is None and workers.usable:
            self._workers = settings, workers
        else:
            workers.close()

    def _index_chunks(self, size: int) -> Iterator[Ints]:
        # Arrays at once, unless a subclass says by its own `__iter__` what comes.
        if isinstance(self.sampler, OrderSampler) and type(self.sampler).__iter__ is OrderSampler.__iter__:
            yield from self.sampler.chunks(size)
            return
        indices = map(int, self.sampler)
        while len(chunk := np.fromiter(itertools.islice(indices, size), np.int64)):
            yield chunk

    def _planned_batches(self, written_in_place: bool) -> Iterator[_Batch]:
        """Yield batches whose crops are chosen and whose labels are looked up, which is cheap for many at a time."""
        for indices in self._index_chunks(self.batch_size * _PLANNED_TOGETHER):
            if self.drop_last:
                indices = indices[: len(indices) // self.batch_size * self.batch_size]
            plan = labels = None
            if written_in_place:
                plan = self.dataset.boxes(indices, self._epoch, self.seed).plan()
                labels = self.dataset.labels(indices)
            for begin in range(0, len(indices), self.batch_size):
                batch = slice(begin, begin + self.batch_size)
                if plan is None or labels is None:
                    yield _Batch(indices[batch])
                else:
                    yield _Batch(indices[batch], plan[batch], labels[batch])

    def _submit(self, workers: Workers, batch: _Batch, size: tuple[int, int] | None) -> _Batch:
        if size is None or batch.plan is None:
            return batch._replace(tasks=workers.make(batch.indices, self._epoch, self.seed))
        images = workers.allocate(len(batch.indices), *size)
        return batch._replace(images=images, tasks=workers.fill(images, batch.indices, batch.plan))

    def _finish(self, workers: Workers, pending: deque[_Batch]) -> tuple[Any, Any]:
        results = [task.result() for task in pending[0].tasks]
        batch = pending.popleft()  # not before all of its tasks have ended
        if batch.images is None:
            made = self.collate([item for items in results for item in items])
        else:
            images = workers.hand_out(batch.images)
            if self.pin_memory and not images.is_pinned():
                images = images.pin_memory()
            made = images, batch.labels
            if self.normalizer.changes_nothing:
                return made
        if self.device is None or self.device.type != "cuda":
            made = self.normalizer(made)
        return made  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}


class _Batch(NamedTuple):
    """A batch in work; where images are written in place, with what is wanted of each, their labels and the images."""

    indices: Ints
    plan: Ints | None = None
    labels: torch.Tensor | None = None
    images: torch.Tensor | None = None
    tasks: Sequence[Future[Any]] = ()
