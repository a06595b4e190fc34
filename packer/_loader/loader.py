"""A data loader of threads: decoders that release Python's lock write their images straight into the batch.

The Loader plans batches, which threads of this process or of several make, and hands them out in order.

Each random decision has one owner: the sampler's seed decides the order, and the dataset's seed the crops; who has none
gets the Loader's. The sampler's epoch decides both. The Loader counts what was handed out, and its state has all of it.

Arguments of torch's DataLoader that a Loader knows by other names, or does not need.

The workers of a Loader, which stay from one pass to the next as long as the settings do.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch.utils.data import default_collate

from packer._datasets.concat import readable
from packer._datasets.memory import require_same_process
from packer._datasets.pipeline import require_callable
from packer._loader.autotune import Choice, choosing
from packer._loader.batch import Batch, Finishing, How, collation_of, planned, planned_together, submitted
from packer._loader.prefetch import CUDAPrefetcher, Normalizer, usable_device
from packer._loader.processes import Processes
from packer._loader.sampling import Course, Progress
from packer._loader.threads import Threads, Workers
from packer._storage.system import available_cpus, require_count
from packer._table import Ints
from packer.augment import Mixing

__all__ = ["Kept", "Loader", "Settings", "augments_on_device", "refuse_unknown", "require_threads"]

_INSTEAD = {
    "num_workers": "it decodes on threads: say threads=, and processes= for dozens of CPUs",
    "batch_sampler": "it makes batches itself: say batch_size=, and sampler= for the order",
    "prefetch_factor": "say prefetch=, the number of batches in work ahead",
    "generator": "say seed=; without it the seed comes from torch's generator",
    "pin_memory_device": "say device=",
    "persistent_workers": "its threads and processes stay from epoch to epoch",
    "worker_init_fn": "it has no workers to initialise",
    "multiprocessing_context": "its processes are always spawned",
    "timeout": "a process that dies is an error at once",
    "in_order": "its batches come in order",
}


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise TypeError for arguments that a Loader does not have, with what to say instead."""
    for name in names:
        advice = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TypeError(f"a Loader has no argument {name!r}{advice}")


def require_threads(threads: object) -> None:
    """Raise TypeError or ValueError where `threads` is neither None nor "auto" nor a number of threads."""
    if isinstance(threads, str) and threads != "auto":
        raise TypeError(f'threads is a whole number, or "auto", not {threads!r}')
    require_count("threads", None if threads == "auto" else threads)


def augments_on_device(augment_on: object, device: object) -> bool:
    """Tell whether images are augmented on the device; ValueError where that is not said, or there is no device."""
    if augment_on not in {"threads", "device"}:
        raise ValueError(f'augment_on is "threads" or "device", not {augment_on!r}')
    if augment_on == "device" and device is None:
        raise ValueError('augment_on="device" needs device=, such as device="cuda"')
    return augment_on == "device"


class Settings(NamedTuple):
    """What workers are made with; see `Threads` and `Processes`."""

    processes: int
    threads: int
    resizable: bool
    in_work: int
    batches: int
    pinned: bool
    locked: bool
    """Whether the batches that are handed out are held until a device has copied them."""


class Kept:
    """Keeps the workers that no pass uses. Pickled, there are none.

    Attributes
    ----------
    closed : bool
        Whether workers are ended as soon as no pass uses them.
    """

    def __init__(self) -> None:
        self.closed = False
        self._workers: tuple[Settings, Workers] | None = None

    @contextlib.contextmanager
    def in_use(self, owner: object, settings: Settings, size: int) -> Iterator[tuple[Workers, deque[Batch]]]:
        """Give workers for batches of `size` bytes, and a place for the batches that they are working at.

        Workers that are kept are used again. What is still in work at the end is ended. Processes end with `owner`.
        """
        process = os.getpid()
        workers, pending = self._take(owner, settings, size), deque[Batch]()
        try:
            yield workers, pending
        finally:
            if os.getpid() == process:  # a fork has no threads that would end the tasks
                for task in [task for batch in pending for task in batch.tasks if not task.cancel()]:
                    task.exception()  # waits: tasks write into memory that the next batches use
                pending.clear()  # the traceback of an error may be kept, and the frame of its pass with it
                workers.end()
                self._give_back(settings, workers)

    def close(self) -> None:
        """End the workers that are kept, and each that a pass uses at the end of this pass."""
        self.closed = True
        kept, self._workers = self._workers, None
        if kept is not None:
            kept[1].close()

    def _take(self, owner: object, settings: Settings, size: int) -> Workers:
        kept, self._workers = self._workers, None
        if kept is not None:
            before, workers = kept
            same = before == settings or (settings.resizable and before == settings._replace(threads=before.threads))
            if same and workers.size >= size and workers.usable:
                if settings.resizable:
                    workers.resize(settings.threads)
                return workers
            workers.close()
        processes, threads, resizable, in_work, batches, pinned, locked = settings
        if processes:
            return Processes(owner, processes, threads, in_work, size, batches, locked, resizable)
        return Threads.with_memory(threads, in_work, size, batches, pinned, resizable)

    def _give_back(self, settings: Settings, workers: Workers) -> None:
        if self._workers is None and workers.usable and not self.closed:
            self._workers = settings, workers
        else:
            workers.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"closed": self.closed, "_workers": None}


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
        initialised `torch.distributed` its share. Where it is another iterable, rank 0's indices are divided among the
        ranks, each epoch anew, unless it divides itself as `DistributedSampler` does; it cannot be resumed.
    threads : int or "auto", optional
        How many threads decode; by default the CPUs that affinity, cgroup and SLURM grant. "auto" finds in the first
        pass how many the training needs; see Notes.
    processes : int, optional
        Divide the threads over so many processes, which write into memory shared with this one. For dozens of CPUs,
        where the threads of one process wait for Python's lock; see Notes.
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
        Mean and standard deviation a channel, in units of 0 to 1; done on the device, on the CPU by the threads. The
        float32 numbers are those of torchvision's v2 transforms ToDtype, with scale=True, and Normalize.
    dtype : torch.dtype, optional
        The type that images are converted to; uint8 by default, float32 with `normalize`.
    mix : Mixing, optional
        Mixes images when they are numbers, and labels, which become (N, num_classes) float32 shares:
        `packer.augment.MixUp`, `CutMix`, or a `RandomChoice` of these.
    channels_last : bool
        Whether batches are laid out channels last.
    transform : callable, optional
        Applied to each image, instead of the dataset's.
    augment_on : {"threads", "device"}
        Where the dataset's augmentations are done: in C by the threads, or by torch on `device`, for whole batches. The
        parameters are the same, and pixels differ by a level at most in a step. On a CPU the threads are faster.
    batch_transform : callable, optional
        Applied by the threads to each (N, 3, H, W) uint8 batch before `normalize` and `mix`, such as a v2 transform of
        torchvision. It gives as many uint8 images of the same size, and may change those that it gets.
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
    The order is a function of the sampler's seed and epoch, and a crop of the crops' seed, this epoch and the sample:
    neither threads nor processes nor ranks change them. So are the numbers that a `transform` draws from the
    generators of torch, Python and numpy, where each process has one thread: ``threads=8, processes=8``. Otherwise, and
    with ``threads="auto"``, no state holds these numbers, as a warning says. Each pass over the loader is the next
    epoch, unless `set_epoch` says which. A pass keeps the epoch and the seeds that it began with.

    Processes are spawned by the first pass, which takes as long as importing torch, and stay as long as the loader.
    They get the dataset and the transform pickled, and import the script that the program began with, which
    therefore does its work below ``if __name__ == "__main__":``.

    With ``threads="auto"`` the first pass measures other numbers of threads in turn, and stays with the fewest that are
    as fast as the best; each rank does so for itself. A short epoch may end without a choice. What `mix` draws, and
    `batch_transform` by torch's functions, is a function of the crops' seed, the epoch and the batch's first sample.
    """

    batch_sampler = None  # frameworks ask for it where there is a `sampler`

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
        refuse_unknown(unknown)
        images = readable(dataset)
        require_count("batch_size", batch_size, 1)
        require_count("prefetch", prefetch, 0)
        require_count("processes", processes, 0)
        self._course = Course(images, sampler, shuffle=shuffle, seed=seed)
        self._dataset = dataset
        self.batch_size, self.prefetch, self.drop_last = batch_size, prefetch, drop_last
        self.processes = processes or 0
        self.threads = threads
        self.device = usable_device(device) if device is not None else None
        self._augments_on_device = augments_on_device(augment_on, device)
        self.pin_memory = (self.device is not None and self.device.type == "cuda") if pin_memory is None else pin_memory
        self._prepared: dict[str, Any] = {"normalize": normalize, "dtype": dtype, "channels_last": channels_last}
        self._normalizer = Normalizer(**self._prepared)
        require_callable("batch_transform", batch_transform)
        self.transform, self.batch_transform, self.mix = transform, batch_transform, mix
        self.collate_fn, self._pad, self._collation = collate_fn, pad, collation_of(images, pad)
        self._finishing.layout(images, transform, batch_transform, mix)  # says at once what does not go
        self._asked_for = False  # a pass, of which no batch was taken yet
        self._progress = Progress()
        self._kept = Kept()

    @property
    def threads(self) -> int:
        """How many threads there are; any number may be set between two passes, or "auto", or None for the default."""
        return self._threads if self._choice is None else self._choice.threads

    @threads.setter
    def threads(self, threads: int | str | None) -> None:
        require_threads(threads)
        self._auto = threads == "auto"
        self._choice = Choice(available_cpus(), self.processes) if self._auto else None
        self._threads = available_cpus() if self._auto or threads is None else int(threads)

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

        The seeds of the sampler and of the crops become the state's. Other crops or augmentations are warned of. A
        state of packer 0.1.0 has one seed. It is accepted where it says the same order and the same crops as the Loader
        and the dataset were made with.

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
        self._kept.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        if self._kept.closed:
            raise ValueError("the Loader is closed: make a new one")
        self._asked_for = True
        return self._pass()

    def _pass(self) -> Generator[tuple[Any, Any], None, None]:
        """Begin a pass when its first batch is asked for: frameworks make iterators of which they take no batch."""
        self._asked_for = False
        seeding = bool(self.processes) and self.threads <= self.processes and not self._auto
        of_batches = self.mix is not None or self.batch_transform is not None
        self._course.agree(of_batches or (seeding and self._course.images.traits(self.transform).transforms))
        if self._course.order.begun:
            self.set_epoch(self._course.order.epoch + 1)
        self._progress = progress = Progress()
        chunks = self._course.chunks(planned_together(self.batch_size))
        yield from self._counted(progress, self._batches(chunks, self._course.order.epoch, self._course.crop_seed))

    def _counted(self, progress: Progress, batches: Iterable[Any]) -> Generator[tuple[Any, Any], None, None]:
        if self.device is not None and self._finishing.elsewhere:
            batches = CUDAPrefetcher(batches, self.device, **self._prepared)
        for batch in batches:
            progress.handed_out += self.batch_size
            yield batch
        if progress is self._progress and self._course.order.begun:
            self.set_epoch(self._course.order.epoch + 1)

    def _batches(self, chunks: Iterator[Ints], epoch: int, seed: int) -> Generator[tuple[Any, Any], None, None]:
        process, images, whole = os.getpid(), self._course.images, not self._course.goes_on
        finishing = self._finishing
        layout = finishing.layout(images, self.transform, self.batch_transform, self.mix)
        size, count = layout.bytes_for(self.batch_size) if layout is not None else 0, self.prefetch + 1
        # Only the prefetcher to a CUDA device is known to hold a batch until it is copied.
        pins = self.pin_memory, self.pin_memory and self.device is not None and self.device.type == "cuda"
        settings = Settings(self.processes, self.threads, self._auto, self.batch_size * count, count, *pins)
        how = How(layout, epoch, seed, self.mix, self.batch_transform is not None, self._augments_on_device)
        with (
            self._kept.in_use(self, settings, size) as (workers, pending),
            choosing(self._choice, self.prefetch, self._chosen) as choice,
        ):
            workers.begin(images, self.transform, self.batch_transform)
            chunks, how = workers.ahead(images, chunks, self._course.block), how._replace(step=workers.step)
            for batch in planned(images, chunks, self.batch_size, self.drop_last, how):
                pending.append(submitted(workers, batch))
                if len(pending) > self.prefetch:
                    yield _measured(lambda: finishing.oldest(images, workers, pending), workers, choice)
                    require_same_process(process)
            while pending:
                yield finishing.oldest(images, workers, pending)
                require_same_process(process)
            if choice is not None and whole:  # the rest of an epoch says nothing of how long the next one is
                choice.over = True

    def _chosen(self, choice: Choice) -> None:
        if choice.over and choice is self._choice:
            self._threads, self._choice = choice.threads, None

    @property
    def _finishing(self) -> Finishing:
        augments = self._augments_on_device
        elsewhere = augments or (self.device is not None and self.device.type != "cpu")
        return Finishing(self.collate_fn, self._collation, self._normalizer, self.pin_memory, elsewhere, augments)

    def __repr__(self) -> str:
        threads = f"{self.threads}{' (auto)' if self._choice else ''}"
        given = ((name, getattr(self, name)) for name in ("transform", "batch_transform", "mix"))
        more = "".join(f", {name}={' '.join(repr(value).split())}" for name, value in given if value is not None)
        return (
            f"Loader({self.dataset!r}, batch_size={self.batch_size}, sampler={self.sampler!r}, threads={threads}, "
            f"processes={self.processes}, device={self.device}{more})"
        )


def _measured(oldest: Callable[[], Any], workers: Workers, choice: Choice | None) -> Any:
    """Return the oldest batch, and let a choice of the number of threads know how long it was waited for."""
    asked = time.perf_counter()
    made = oldest()
    if choice is not None and choice.handed_out(time.perf_counter() - asked):
        workers.resize(choice.threads)
    return made
