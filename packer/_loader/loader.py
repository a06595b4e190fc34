"""A data loader that uses threads: decoders release Python's lock and write images directly into the batch.

In an epoch, `SamplingState` yields chunks of indices, and a `BatchPlan` makes a job for each batch. Workers decode
several jobs ahead, and the Loader returns the batches in order.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.utils.data import default_collate

from packer._datasets.concat import readable
from packer._datasets.description import named, one_line
from packer._datasets.pipeline import require_callable
from packer._display import Block, Displayable, TextTable, counted
from packer._loader.autotune import ThreadTuner
from packer._loader.batch import BatchJob, BatchPlan, cancel, chunk_size
from packer._loader.collate import collation_of
from packer._loader.prefetch import CUDAPrefetcher, Normalizer, forked, usable_device
from packer._loader.processes import Processes
from packer._loader.sampling import SamplingState
from packer._loader.threads import Threads, Workers, WorkerSettings
from packer._storage.system import available_cpus, require_count
from packer._table import Ints
from packer.augment import Mixing
from packer.errors import OptionError, OptionTypeError


class Loader(Displayable):
    """Batches of a pack, decoded by threads.

    If the dataset has a `crop` of a fixed size and no transform, images are decoded directly into an (N, 3, H, W) uint8
    batch, laid out channels last. In all other cases, the items of the dataset are collated.

    Parameters
    ----------
    dataset : ImageDataset or ConcatImageDataset
        The dataset to read. It may also be torch's Subset or ConcatDataset of such datasets
        (`torch.utils.data.random_split` makes Subsets), or your own `packer.LoaderDataset`.
    batch_size : int
    shuffle : bool
        Whether to shuffle all samples in every epoch, each time in a new order.
    sampler : OrderSampler or iterable of int, optional
        The order of the samples, instead of `shuffle`. If `torch.distributed` is initialised, packer's samplers, such
        as `packer.BlockShuffleSampler`, give each rank its share. An iterable that already returns only the indices of
        its own rank, such as `DistributedSampler`, is used unchanged. With any other iterable, the ranks divide the
        indices of rank 0 among themselves. Only the order of packer's samplers can be resumed.
    threads : int or "auto", optional
        The number of decoding threads; by default the number of CPUs that CPU affinity, cgroup and SLURM allow. With
        "auto", the first pass measures how many threads the training needs; see Notes.
    processes : int, optional
        The number of processes among which the threads are divided. The processes write to memory that they share with
        this process. By default, the threads run in this process. Use processes on a machine with dozens of CPUs, where
        the threads of one process would wait for Python's lock; see Notes.
    prefetch : int
        The number of batches to prepare in addition to the next one.
    drop_last : bool
        Whether to leave out the last batch if it is not full.
    seed : int, optional
        The seed for the order with `shuffle`, and for crops if the dataset has no seed. By default the seed is drawn
        from torch's generator when the Loader is made, and all ranks use the seed of rank 0. A `sampler` uses its own
        seed.
    device : torch.device or str, optional
        The device to which batches are copied. Batches for a CUDA device are copied ahead of time, as with
        `CUDAPrefetcher`.
    pin_memory : bool, optional
        Whether batches are page-locked. By default they are page-locked only if `device` is a CUDA device.
    normalize : (sequence of float, sequence of float), optional
        Mean and standard deviation of each channel, for pixels scaled to 0 to 1. Images are normalised on the device,
        or by the threads if the device is a CPU. The float32 numbers equal the result of torchvision's v2 transforms
        ToDtype (with scale=True) and Normalize.
    dtype : torch.dtype, optional
        The type of the images; by default uint8, or float32 with `normalize`.
    mix : Mixing, optional
        Mixes the images of a batch (after `normalize` and `dtype`) and their labels. The mixed labels are an (N,
        num_classes) float32 tensor with the share of each class. Pass `packer.augment.MixUp`, `CutMix`, or a
        `RandomChoice` of these.
    channels_last : bool
        Whether batches are laid out channels last.
    transform : callable, optional
        A transform to apply to each image, instead of the dataset's own transform.
    augment_on : {"threads", "device"}
        Where the dataset's augmentations run: in C on the threads, or in torch on `device`, for whole batches. Threads
        and device use the same random parameters; after each augmentation, their pixels (0 to 255) differ by at most 1.
        If `device` is a CPU, the threads are faster.
    batch_transform : callable, optional
        A function, such as one of torchvision's v2 transforms, that the threads apply to each (N, 3, H, W) uint8 batch
        before `normalize` and `mix`. It must return a uint8 batch of the same shape, and may change its input.
    pad : int, or dict of str to int or None, optional
        For a dataset with `fields`: boxes, labels, keypoints, and arrays with an entry for each box are padded with 0
        to this number of entries. They become (N, pad, ...) tensors, and ``NAME_count`` is an (N,) tensor with the
        actual numbers of entries. A dict selects the fields to pad, which may include other arrays; the value None
        makes an array field a list instead. By default arrays are stacked, and the other fields are lists of tensors.
    collate_fn : callable
        The function that makes a batch from a list of items. Images are decoded directly into the batch only if
        `collate_fn` is torch's own function.
    **unknown
        Arguments of torch's DataLoader that a Loader lacks or names differently raise an error that gives advice.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, or two arguments contradict each other.

    Notes
    -----
    The order depends only on the sampler's seed and the epoch; a crop depends only on the seed for crops, the epoch and
    the sample. Neither depends on the number of threads, processes or ranks. Numbers that a `transform` draws from the
    generators of torch, Python and NumPy are reproducible too if each process has one thread, as with ``threads=8,
    processes=8``. Otherwise, and with ``threads="auto"``, these numbers are not reproducible, and a warning reports
    this. Each pass over the loader is a new epoch: the next one, unless `set_epoch` chooses another. A running pass
    keeps the epoch, the seeds, and the dataset's labels and settings with which it began.

    The first pass spawns the processes, which takes as long as importing torch; the processes run until the loader is
    closed. They receive the dataset and the transform by pickling, and import the main script. Therefore the script
    must do its work under ``if __name__ == "__main__":``.

    With ``threads="auto"``, the first pass measures several numbers of threads in turn, and chooses the lowest number
    that is as fast as the best one. Each rank chooses its own number. A short epoch may end before a number is chosen.
    `mix`, and the functions of torch that `batch_transform` calls, draw random numbers that depend only on the seed for
    crops, the epoch and the first sample of the batch.
    """

    batch_sampler = None  # frameworks look for it if there is a `sampler`

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        sampler: Any = None,
        threads: int | str | None = None,
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
        mix: Mixing | None = None,
        augment_on: str = "threads",
        batch_transform: Callable[[torch.Tensor], Any] | None = None,
        pad: int | Mapping[str, int | None] | None = None,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        **unknown: NoReturn,
    ) -> None:
        _refuse_unknown(unknown)
        images = readable(dataset)
        require_count("batch_size", batch_size, 1)
        require_count("prefetch", prefetch, 0)
        require_count("processes", processes, 0)
        self._sampling = SamplingState(images, sampler, shuffle=shuffle, seed=seed)
        self._dataset = dataset
        self.batch_size, self.prefetch, self.drop_last = batch_size, prefetch, drop_last
        self.processes = processes or 0
        self.threads = threads
        self.device = usable_device(device) if device is not None else None
        self._augments_on_device = _augments_on_device(augment_on, device)
        self.pin_memory = (self.device is not None and self.device.type == "cuda") if pin_memory is None else pin_memory
        self._numbers: dict[str, Any] = {"normalize": normalize, "dtype": dtype, "channels_last": channels_last}
        self._normalizer = Normalizer(**self._numbers)
        require_callable("batch_transform", batch_transform)
        self.transform, self.batch_transform, self.mix = transform, batch_transform, mix
        self.collate_fn, self._pad, self._collation = collate_fn, pad, collation_of(images.traits().parts, pad)
        self._plan(0, 0)  # raises an error if settings contradict each other
        self._pass_waits = False  # whether an iterator was made, and no batch was requested from it
        self._progress = _Progress()
        self._worker_cache = WorkerCache()

    @property
    def threads(self) -> int:
        """The number of threads; between two passes you may set it to a number, "auto", or None for the default."""
        return self._threads if self._tuner is None else self._tuner.threads

    @threads.setter
    def threads(self, threads: int | str | None) -> None:
        _require_threads(threads)
        self._auto = threads == "auto"
        self._tuner = ThreadTuner(available_cpus(), self.processes) if self._auto else None
        self._threads = available_cpus() if self._auto or threads is None else int(threads)

    @property
    def dataset(self) -> Any:
        """The dataset; between two passes you may replace it by another dataset with the same number of samples."""
        return self._dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        images = readable(dataset)
        collation = collation_of(images.traits().parts, self._pad)
        self._sampling.images = images  # raises an error if the length differs
        self._collation, self._dataset = collation, dataset

    @property
    def sampler(self) -> Any:
        """The sampler that determines the order."""
        return self._sampling.sampler

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self._sampling.sampler = sampler

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch; the first pass after `load_state_dict` may have fewer."""
        count = self._sampling.order.whole
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; order and crops depend on the epoch.

        The pass begins at its first sample, or at the position of a state of the same epoch that was just loaded.
        """
        self._sampling.order.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the order, the seeds, and the position of the first sample that has not been returned yet.

        Returns
        -------
        dict
            The state: only numbers, strings and dicts. After a complete pass, the state is the beginning of the next
            epoch.

        Raises
        ------
        TypeError
            If the sampler is not one of packer's, because its order cannot be resumed.
        """
        if self._sampling.order.begun and self._pass_waits:
            return self._sampling.state_of_next_epoch(self.batch_size)
        done = self._progress.handed_out if self._sampling.order.begun else 0
        return self._sampling.state(done, self.batch_size)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Let the next pass continue at the position of a `state_dict`, with any number of ranks and threads.

        The sampler and the crops take their seeds from the state. A warning reports crops or augmentations that differ
        from those in the state. A state saved by packer 0.1.0 has a single seed. The Loader accepts such a state if
        this seed produces the Loader's order and the dataset's crops.

        Parameters
        ----------
        state : mapping
        strict : bool
            Whether to refuse a state with another batch size. The remaining samples are the same with any batch size.

        Raises
        ------
        TypeError
            If the sampler is not one of packer's.
        ValueError
            If `state` is not the state of a Loader, or belongs to other samples, another order or another batch size.
        """
        self._sampling.load(state, self.batch_size if strict else None)

    def close(self) -> None:
        """End the processes and free the memory for batches; no pass can begin afterwards.

        A running pass continues to its end. Returned batches stay valid. The dataset stays open.
        """
        self._worker_cache.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        if self._worker_cache.closed:
            raise OptionError("the Loader is closed: make a new one")
        self._pass_waits = True
        return self._pass()

    def _pass(self) -> Generator[tuple[Any, Any], None, None]:
        """Begin a pass when its first batch is requested, because frameworks make iterators that they never use."""
        self._pass_waits = False
        sampling = self._sampling
        sampling.agree_on_seed(self._draws_by_seed)
        if sampling.order.begun:
            self.set_epoch(sampling.order.epoch + 1)
        self._progress = progress = _Progress()
        chunks = sampling.chunks(chunk_size(self.batch_size))
        batches: Iterable[Any] = self._batches(chunks, self._plan(sampling.order.epoch, sampling.crop_seed))
        if self.device is not None and self._on_device:
            batches = CUDAPrefetcher(batches, self.device, **self._numbers)
        for batch in batches:
            progress.handed_out += self.batch_size
            yield batch
        if progress is self._progress and sampling.order.begun:
            self.set_epoch(sampling.order.epoch + 1)

    def _batches(self, chunks: Iterator[Ints], plan: BatchPlan) -> Generator[tuple[Any, Any], None, None]:
        """Yield the batches of all chunks; meanwhile, `prefetch` jobs after the current one are in progress."""
        process, whole = os.getpid(), not self._sampling.resumes
        size = plan.layout.bytes_for(self.batch_size) if plan.layout is not None else 0
        with (
            self._worker_cache.lend(self, self._worker_settings, size) as (workers, jobs),
            self._tuning() as tuner,
        ):
            workers.begin(plan.dataset, plan.transform, plan.batch_transform)
            chunks = workers.fetch_ahead(plan.dataset, chunks, self._sampling.block)
            for job in plan.jobs(chunks, self.batch_size, self.drop_last, workers.step):
                jobs.append(job)
                workers.submit(job)
                if len(jobs) > self.prefetch:
                    yield _oldest(jobs, workers, tuner)
                    if os.getpid() != process:
                        raise forked(process)
            while jobs:
                yield _oldest(jobs, workers)
                if os.getpid() != process:
                    raise forked(process)
            if tuner is not None and whole:  # after a resumed epoch, the next one may be long enough
                tuner.over = True

    def _plan(self, epoch: int, seed: int) -> BatchPlan:
        """Return the plan of a pass with the current settings. Raises the same errors as `BatchPlan.with_layout`."""
        return BatchPlan(
            self._sampling.images,
            self._normalizer,
            epoch=epoch,
            seed=seed,
            transform=self.transform,
            batch_transform=self.batch_transform,
            mix=self.mix,
            collate=self.collate_fn,
            collation=self._collation,
            pinned=self.pin_memory,
            on_device=self._on_device,
            augments_on_device=self._augments_on_device,
        ).with_layout()

    @property
    def _on_device(self) -> bool:
        """Whether images are normalised and converted to `dtype` on the device."""
        return self._augments_on_device or (self.device is not None and self.device.type != "cpu")

    @property
    def _draws_by_seed(self) -> bool:
        """Whether other random numbers, those of mixtures or of a transform, also depend on the seed for crops."""
        one_thread_each = bool(self.processes) and self.threads <= self.processes and not self._auto
        if self.mix is not None or self.batch_transform is not None:
            return True
        return one_thread_each and self._sampling.images.traits(self.transform).transforms

    @property
    def _worker_settings(self) -> WorkerSettings:
        count = self.prefetch + 1
        # `CUDAPrefetcher` holds each batch until it is copied; the training loop may not.
        held = self.pin_memory and self.device is not None and self.device.type == "cuda"
        images = self.batch_size * count
        return WorkerSettings(self.processes, self.threads, self._auto, images, count, self.pin_memory, held)

    @contextlib.contextmanager
    def _tuning(self) -> Iterator[ThreadTuner | None]:
        """With ``threads="auto"``, choose the number of threads during a pass, unless it is already chosen."""
        tuner = self._tuner
        if tuner is None:
            yield None
            return
        try:
            with tuner.tuning(self.prefetch) as measuring:
                yield measuring
        finally:
            if tuner.over and tuner is self._tuner:
                self._threads, self._tuner = tuner.threads, None

    def _blocks(self) -> Iterator[Block]:
        threads = f"threads={self.threads}{' (auto)' if self._tuner else ''}"
        try:
            batches = counted(len(self), "batch")
        except TypeError:  # the sampler has no length
            batches = "batches"
        yield f"{type(self).__name__} of {batches}, batch_size={self.batch_size}"
        rows = [("dataset", named(self.dataset)), ("order", one_line(self.sampler))]
        rows.append(("workers", f"{threads}, processes={self.processes}, prefetch={self.prefetch}"))
        names = ("device", "drop_last", "transform", "batch_transform", "mix")
        settings = {name: value for name in names if (value := getattr(self, name))}
        numbers = {name: value for name, value in self._numbers.items() if name != "channels_last"}
        settings |= {name: value for name, value in numbers.items() if value is not None}
        rows += [(name, " ".join(repr(value).split())) for name, value in settings.items()]
        yield TextTable(rows, (f"<{max(len(name) for name, _ in rows)}", ""))


@dataclass
class _Progress:
    """The number of this rank's samples that a pass has returned, counted in whole batches."""

    handed_out: int = 0


def _oldest(jobs: deque[BatchJob], workers: Workers, tuner: ThreadTuner | None = None) -> Any:
    """Wait for the oldest job and return its batch; the tuner, if any, records the time and may resize the workers."""
    before = time.perf_counter()
    batch = workers.finish(jobs[0])
    jobs.popleft()
    if tuner is not None and tuner.handed_out(time.perf_counter() - before):
        workers.resize(tuner.threads)
    return batch


class WorkerCache:
    """A cache that reuses workers from one pass to the next while their settings stay the same; empty after pickling.

    Attributes
    ----------
    closed : bool
        Whether workers end as soon as no pass uses them.
    """

    def __init__(self) -> None:
        self.closed = False
        self._idle: tuple[WorkerSettings, Workers] | None = None

    @contextlib.contextmanager
    def lend(self, owner: object, settings: WorkerSettings, size: int) -> Iterator[tuple[Workers, deque[BatchJob]]]:
        """Lend workers for batches of `size` bytes, and a queue for their jobs.

        Jobs that remain in the queue at the end are cancelled. Worker processes end when `owner` is deleted.
        """
        process = os.getpid()
        workers, jobs = self._take(owner, settings, size), deque[BatchJob]()
        try:
            yield workers, jobs
        finally:
            if os.getpid() == process:  # a fork does not have the threads, so it would wait forever
                cancel(jobs)
                jobs.clear()  # the traceback of an error may keep the frame of the pass, which refers to the jobs
                workers.end()
                self._put_back(settings, workers)

    def close(self) -> None:
        """End the idle workers at once, and the workers of each running pass when the pass ends."""
        self.closed = True
        idle, self._idle = self._idle, None
        if idle is not None:
            idle[1].close()

    def _take(self, owner: object, settings: WorkerSettings, size: int) -> Workers:
        idle, self._idle = self._idle, None
        if idle is not None:
            before, workers = idle
            same = before == settings or (settings.resizable and before == settings._replace(threads=before.threads))
            if same and workers.size >= size and workers.usable:
                if settings.resizable:
                    workers.resize(settings.threads)
                return workers
            workers.close()
        return Processes(owner, settings, size) if settings.processes else Threads.with_memory(settings, size)

    def _put_back(self, settings: WorkerSettings, workers: Workers) -> None:
        if self._idle is None and workers.usable and not self.closed:
            self._idle = settings, workers
        else:
            workers.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"closed": self.closed, "_idle": None}


_INSTEAD = {
    "num_workers": "it decodes on threads: pass threads=, and processes= for dozens of CPUs",
    "batch_sampler": "it makes batches itself: pass batch_size=, and sampler= for the order",
    "prefetch_factor": "pass prefetch=, the number of batches that are made ahead",
    "generator": "pass seed=; without it the seed comes from torch's generator",
    "pin_memory_device": "pass device=",
    "persistent_workers": "its threads and processes always persist from epoch to epoch",
    "worker_init_fn": "it has no workers to initialise",
    "multiprocessing_context": "its processes are always spawned",
    "timeout": "a process that dies raises an error immediately",
    "in_order": "its batches are always in order",
}
"""Advice for arguments of torch's DataLoader that a Loader does not have."""


def _refuse_unknown(names: Iterable[str]) -> None:
    """Raise TypeError, with advice, for arguments that a Loader does not have."""
    for name in names:
        advice = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise OptionTypeError(f"a Loader has no argument {name!r}{advice}")


def _require_threads(threads: object) -> None:
    """Raise TypeError or ValueError if `threads` is neither None nor "auto" nor a number of threads."""
    if isinstance(threads, str) and threads != "auto":
        raise OptionTypeError(f'threads must be a whole number or "auto", not {threads!r}')
    require_count("threads", None if threads == "auto" else threads)


def _augments_on_device(augment_on: object, device: object) -> bool:
    """Tell whether images are augmented on the device; raise ValueError for an unknown value, or without a device."""
    if augment_on not in {"threads", "device"}:
        raise OptionError(f'augment_on must be "threads" or "device", not {augment_on!r}')
    if augment_on == "device" and device is None:
        raise OptionError('augment_on="device" needs device=, such as device="cuda"')
    return augment_on == "device"
