"""A data loader of threads: decoders that release Python's lock write their images straight into the batch.

The Loader plans batches and hands them out in order. `packer._loading.threads` has the threads of this
process, and `packer._loading.processes` those of several.

Each random decision has one owner: the sampler's seed decides the order, and the dataset's seed the crops; who has none
gets the Loader's. The sampler's epoch decides both. The Loader counts what was handed out, and its state has all of it.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.utils.data import default_collate

from packer._loading.arguments import refuse_unknown
from packer._loading.course import Course
from packer._loading.forks import require_same_process
from packer._loading.joining import readable
from packer._loading.memory import pinned
from packer._loading.normalizing import Normalizer
from packer._loading.planning import PLANNED_TOGETHER, Batch, awaited, collation_of, finished, planned, submitted
from packer._loading.prefetch import CUDAPrefetcher, usable_device
from packer._loading.processes import Processes
from packer._loading.threads import Threads, Workers
from packer._storage.limits import available_cpus, require_count
from packer._table import Ints

__all__ = ["Loader"]


class Loader:
    """Batches of a pack, decoded by threads.

    With a dataset that has a `crop` of a fixed size and no transform, images are decoded into their place in a
    (N, 3, H, W) uint8 batch that is laid out channels last. Otherwise each item is made as the dataset makes it, and
    the items are collated.

    Parameters
    ----------
    dataset : ImageDataset or ConcatImageDataset
        Or a torch Subset or ConcatDataset of such, as `torch.utils.data.random_split` gives.
    batch_size : int
    shuffle : bool
        A new permutation every epoch.
    sampler : OrderSampler or iterable of int, optional
        The order, instead of `shuffle`. packer's samplers, such as `packer.BlockShuffleSampler`, give each rank of an
        initialised `torch.distributed` its share. Of another iterable rank 0's indices are divided among the ranks,
        each epoch anew, unless it divides itself as `DistributedSampler` does; it cannot be resumed.
    threads : int, optional
        How many threads decode; by default the CPUs that affinity, cgroup and SLURM grant.
    processes : int, optional
        Divide the threads over so many processes, each with one at least, which write into memory shared with this
        one. For dozens of CPUs, where the threads of one process wait for Python's lock; see Notes.
    prefetch : int
        How many batches are in work beyond the one that is asked for.
    drop_last : bool
        Leave out the last batch where it is not full.
    seed : int, optional
        Seed of the order that `shuffle` makes, and of the crops where the dataset has no seed. By default it is drawn
        from torch's generator when the Loader is made, and the ranks take rank 0's. A `sampler` has a seed of its own.
    device : torch.device or str, optional
        The device that batches are copied to; to a CUDA device ahead of time, as `CUDAPrefetcher` does.
    pin_memory : bool, optional
        Whether batches are page-locked; by default where `device` is a CUDA device.
    normalize : (sequence of float, sequence of float), optional
        Mean and standard deviation a channel, in units of 0 to 1; done on the device.
    dtype : torch.dtype, optional
        The type that images are converted to; uint8 by default, float32 with `normalize`.
    channels_last : bool
        Whether batches are laid out channels last.
    transform : callable, optional
        Applied to each image, instead of the dataset's.
    pad : int, or dict of str to int or None, optional
        For a dataset with `fields`: to how many entries boxes, labels, keypoints, arrays, and what has an entry for
        each box are padded with 0, so that they are (N, pad, ...) tensors; ``NAME_count`` is then a (N,) tensor of how
        many there are. By default they are lists of tensors, and arrays are stacked; None makes lists of arrays.
    collate_fn : callable
        Makes a batch of a list of items. With another one than torch's, images are not decoded into their place.
    **unknown
        Arguments of torch's DataLoader that a Loader has by another name are answered with that name.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, or two of them contradict each other.

    Notes
    -----
    The order is a function of the sampler's seed and epoch, and a crop of the crops' seed, the sampler's epoch and the
    sample: neither threads nor processes nor ranks change them. So are the numbers that a `transform` draws from the
    generators of torch, Python and numpy, where each process has one thread: ``threads=8, processes=8``. Otherwise no
    state holds these numbers, as a warning says. Each pass over the loader is the next epoch, unless `set_epoch` says
    which. A pass keeps the epoch and the seeds that it began with.

    Processes are spawned by the first pass, which takes as long as importing torch, and stay as long as the loader.
    They get the dataset and the transform pickled, and import the script that the program began with, which
    therefore does its work below ``if __name__ == "__main__":``.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        sampler: Any = None,
        threads: int | None = None,
        processes: int | None = None,
        prefetch: int = 2,
        drop_last: bool = False,
        seed: int | None = None,
        device: torch.device | str | None = None,
        pin_memory: bool | None = None,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
        transform: Callable[[Any], Any] | None = None,
        pad: int | Mapping[str, int | None] | None = None,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        **unknown: NoReturn,
    ) -> None:
        refuse_unknown(unknown)
        images = readable(dataset)
        for name, number, least in [
            ("batch_size", batch_size, 1),
            ("threads", threads, 1),
            ("prefetch", prefetch, 0),
            ("processes", processes, 0),
        ]:
            require_count(name, number, least)
        self._course = Course(images, sampler, shuffle=shuffle, seed=seed)
        self._dataset = dataset
        self.batch_size = batch_size
        self.threads = threads or available_cpus()
        self.processes = processes or 0
        self.prefetch = prefetch
        self.drop_last = drop_last
        self.device = usable_device(device) if device is not None else None
        self.pin_memory = (self.device is not None and self.device.type == "cuda") if pin_memory is None else pin_memory
        self._prepared: dict[str, Any] = {"normalize": normalize, "dtype": dtype, "channels_last": channels_last}
        self._normalizer = Normalizer(**self._prepared)
        self.transform = transform
        self.collate_fn = collate_fn
        if (layout := images._in_place(transform)) is not None and layout.with_images:
            self._normalizer.require_channels(3)
        self._pad = pad
        self._collation = collation_of(images, pad)
        self._closed = False
        self._asked_for = False  # a pass, of which no batch was taken yet
        self._progress = _Progress()
        self._workers: tuple[tuple[Any, ...], Workers] | None = None  # with their settings, while no pass uses them

    @property
    def dataset(self) -> Any:
        """What is read, as it was given; another dataset of as many samples may be set between two passes."""
        return self._dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        images = readable(dataset)
        self._collation = collation_of(images, self._pad)
        self._course.images = images
        self._dataset = dataset

    @property
    def sampler(self) -> Any:
        """The sampler that decides the order."""
        return self._course.sampler

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self._course.sampler = sampler

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, which the first pass after `load_state_dict` does not give."""
        count = self._course.order.whole
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be `epoch`, with the order and the crops of this epoch.

        The pass begins at its first sample, or where a state of the same epoch, just loaded, goes on.
        """
        self._course.order.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the order, the seeds and the first sample that was not handed out yet.

        Returns
        -------
        dict
            Numbers, strings and dicts only. After a pass that ran to its end, the state is the next epoch's beginning.

        Raises
        ------
        TypeError
            If the order is not one of packer's samplers: it cannot be resumed.
        """
        if self._course.order.begun and self._asked_for:
            return self._course.state_of_next_epoch(self.batch_size)
        done = self._progress.handed_out if self._course.order.begun else 0
        return self._course.state(done, self.batch_size)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Let the next pass go on where `state_dict` was taken, also with another number of ranks or threads.

        The seeds of the sampler and of the crops become the state's. Of packer 0.1.0's states, which have one seed,
        those are accepted that say the same order and the same crops as the Loader and the dataset were made with.

        Parameters
        ----------
        state : mapping
        strict : bool
            Whether a state of another batch size is refused. The samples that are left are the same with any.

        Raises
        ------
        TypeError
            If the order is not one of packer's samplers.
        ValueError
            If `state` is no such state, or of other samples, another order or another batch size.
        """
        self._course.load(state, self.batch_size if strict else None)

    def close(self) -> None:
        """End the processes, and let go of the memory for batches; no pass can begin after that.

        A pass that is running goes on to its end. Batches that were handed out stay what they are. The dataset stays
        open.
        """
        self._closed = True
        kept, self._workers = self._workers, None
        if kept is not None:
            kept[1].close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        if self._closed:
            raise ValueError("the Loader is closed: make a new one")
        self._asked_for = True
        return self._pass()

    def _pass(self) -> Generator[tuple[Any, Any], None, None]:
        """Begin a pass when its first batch is asked for: frameworks make iterators of which they take no batch."""
        self._asked_for = False
        seeding = bool(self.processes) and self.threads <= self.processes
        self._course.agree(seeding and self._course.images._transforms_items(self.transform))
        if self._course.order.begun:
            self.set_epoch(self._course.order.epoch + 1)
        self._progress = progress = _Progress()
        chunks = self._course.chunks(self.batch_size * PLANNED_TOGETHER)
        yield from self._counted(progress, self._batches(chunks, self._course.order.epoch, self._course.crop_seed))

    def _counted(self, progress: _Progress, batches: Iterable[Any]) -> Generator[tuple[Any, Any], None, None]:
        if self.device is not None and self.device.type != "cpu":
            batches = CUDAPrefetcher(batches, self.device, **self._prepared)
        for batch in batches:
            progress.handed_out += self.batch_size
            yield batch
        if progress is self._progress and self._course.order.begun:
            self.set_epoch(self._course.order.epoch + 1)

    def _batches(self, chunks: Iterator[Ints], epoch: int, seed: int) -> Generator[tuple[Any, Any], None, None]:
        process = os.getpid()
        layout = self._course.images._in_place(self.transform) if self.collate_fn is default_collate else None
        settings, workers = self._take_workers(layout.bytes_for(self.batch_size) if layout is not None else 0)
        pending: deque[Batch] = deque()
        try:
            workers.begin(self._course.images, self.transform)
            for batch in planned(
                self._course.images, chunks, self.batch_size, self.drop_last, epoch, seed, layout is not None
            ):
                pending.append(submitted(workers, batch, layout, epoch, seed))
                if len(pending) > self.prefetch:
                    yield self._finish(workers, pending)
                    require_same_process(process)
            while pending:
                yield self._finish(workers, pending)
                require_same_process(process)
        finally:
            if os.getpid() == process:  # a fork has no threads that would end the tasks
                self._end(settings, workers, pending)

    def _end(self, settings: tuple[Any, ...], workers: Workers, pending: deque[Batch]) -> None:
        """End a pass, also one that is left early."""
        for task in [task for batch in pending for task in batch.tasks if not task.cancel()]:
            task.exception()  # waits: tasks write into memory that the next batches use
        pending.clear()  # the traceback of an error may be kept, and this frame with it
        workers.end()
        if self._workers is None and workers.usable and not self._closed:
            self._workers = settings, workers
        else:
            workers.close()

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

    def _finish(self, workers: Workers, pending: deque[Batch]) -> Any:
        batch, results = awaited(self._course.images, workers, pending[0])
        pending.popleft()  # not before all of its tasks have ended
        if batch.memory is not None:
            memory = workers.hand_out(batch.memory)
            batch = batch._replace(memory=pinned(memory) if self.pin_memory else memory)
        else:
            workers.warn_of_draws()
        made = finished(self._course.images, batch, results, self.collate_fn, self._collation)
        if batch.memory is not None and self._normalizer.changes_nothing:
            return made
        return self._normalizer(made) if self.device is None or self.device.type == "cpu" else made

    def __repr__(self) -> str:
        return (
            f"Loader({self.dataset!r}, batch_size={self.batch_size}, sampler={self.sampler!r}, "
            f"threads={self.threads}, processes={self.processes}, device={self.device})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}


@dataclass
class _Progress:
    """How far a pass has come: how many samples of this rank were handed out, counted in whole batches."""

    handed_out: int = 0
