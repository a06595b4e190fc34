"""A data loader of threads: decoders that release Python's lock write their images straight into the batch."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from packer.datasets import ImageDataset
from packer.executors import available_cpus
from packer.images.box import Box
from packer.prefetch import CUDAPrefetcher, Normalizer
from packer.samplers import OrderSampler, SequentialSampler, ShuffleSampler

__all__ = ["Loader"]

Ints = npt.NDArray[np.int64]

_MOST_IN_A_TASK = 32  # images; more make tasks no cheaper
_TASKS_A_THREAD = 4  # in work at a time, so that no thread waits for the slowest image


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
        By default what `packer.executors.available_cpus` counts.
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
    An item is a pure function of seed, epoch and index: neither threads nor ranks change it. Each pass over the loader
    is the next epoch, unless `set_epoch` says which.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        sampler: Any = None,
        threads: int | None = None,
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
        if batch_size < 1 or prefetch < 0 or (threads is not None and threads < 1):
            raise ValueError("batch_size and threads are 1 or more, prefetch is 0 or more")
        if sampler is None:
            sampler = (ShuffleSampler if shuffle else SequentialSampler)(len(dataset), seed=seed)
        elif shuffle:
            raise ValueError("shuffle goes without a sampler: the sampler decides the order")
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.threads = threads or available_cpus()
        self.prefetch = prefetch
        self.drop_last = drop_last
        self.seed = seed
        self.device = torch.device(device) if device is not None else None
        self.pin_memory = (self.device is not None and self.device.type == "cuda") if pin_memory is None else pin_memory
        self.normalizer = Normalizer(normalize, dtype, channels_last)
        self.transform = transform
        self.collate = collate
        self._epoch = 0
        self._done = 0  # samples of this rank that were handed out in the present epoch
        self._begun = False
        self._buffers: list[npt.NDArray[np.uint8]] = []

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
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="packer-loader")
        pending: deque[_Batch] = deque()
        try:
            for indices in self._index_batches():
                pending.append(self._submit(pool, indices))
                if len(pending) > self.prefetch:
                    yield self._finish(pending.popleft())
            while pending:
                yield self._finish(pending.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _index_batches(self) -> Iterator[Ints]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(int(index))
            if len(batch) == self.batch_size:
                yield np.array(batch, np.int64)
                batch = []
        if batch and not self.drop_last:
            yield np.array(batch, np.int64)

    def _submit(self, pool: ThreadPoolExecutor, indices: Ints) -> _Batch:
        transform = self.transform or self.dataset.transform
        size = self.dataset.crop.size if self.dataset.crop is not None and transform is None else None
        batch = _Batch(indices)
        if size is not None and self.dataset.output == "tensor":
            boxes = self.dataset.boxes(indices, self._epoch, self.seed).each()
            with torch.inference_mode(False):  # the threads, which write into it, are not in that mode
                batch.images = self._allocate(len(indices), *size)
        in_work = self.batch_size * (self.prefetch + 1)
        step = min(max(in_work // (self.threads * _TASKS_A_THREAD), 1), _MOST_IN_A_TASK)
        for start in range(0, len(indices), step):
            places = slice(start, start + step)
            if batch.images is not None:
                batch.tasks.append(pool.submit(self._decode, indices, boxes, batch.images, places))
            else:
                batch.tasks.append(pool.submit(self._items, indices, places))
        return batch

    def _decode(self, indices: Ints, boxes: list[Box], images: torch.Tensor, places: slice) -> None:
        some = indices[places]
        stored = self.dataset.reader.read_many(some)
        self.dataset.decode_into(some, stored, boxes[places], images[places].split(1))  # type: ignore[no-untyped-call]

    def _items(self, indices: Ints, places: slice) -> list[Any]:
        return self.dataset.items(indices[places], self._epoch, self.seed, self.transform)

    def _finish(self, batch: _Batch) -> tuple[Any, Any]:
        results = [task.result() for task in batch.tasks]
        if batch.images is None:
            made = self.collate([item for items in results for item in items])
        else:
            made = (batch.images, self.dataset.labels(batch.indices))
        if self.device is None or self.device.type != "cuda":
            made = self.normalizer(made)
        return made  # type: ignore[no-any-return]

    def _allocate(self, count: int, height: int, width: int) -> torch.Tensor:
        """Return memory for a batch: an earlier batch's that nobody holds any more, or new."""
        if self.pin_memory:  # torch keeps pinned memory for reuse by itself
            empty = torch.empty((count, height, width, 3), dtype=torch.uint8, pin_memory=True)
            return empty.permute(0, 3, 1, 2)
        size = count * height * width * 3
        for buffer in self._buffers:
            if buffer.size == size and sys.getrefcount(buffer) == 3:  # the list, this name, and the call's argument
                break
        else:
            buffer = np.empty(size, np.uint8)
            self._buffers = [*self._buffers[-self.prefetch - 2 :], buffer]
        return torch.from_numpy(buffer.reshape(count, height, width, 3)).permute(0, 3, 1, 2)


class _Batch:
    def __init__(self, indices: Ints) -> None:
        self.indices = indices
        self.images: torch.Tensor | None = None
        self.tasks: list[Future[Any]] = []
