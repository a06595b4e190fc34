"""Measures the time of each stage of loading: reading, decoding, transforms, collation, the copy to the device.

`inspect_loader` finds out which dataset a loader reads, how the loader makes items and batches, and how many workers it
has. `measure_stages` makes a limited number of items on one thread. The indices of the items are random, because files
that the pass has just read would come from memory. The time of a call is the CPU time plus the waiting time of its
thread. So the loader's other workers and other programs do not count. `fewer_workers` runs the same DataLoader with
fewer workers. `measure_packed` converts some of the samples, in memory if possible, and reads them from the pack.

Measuring must not change the training, so it uses copies of datasets, transforms and collate functions
(`isolated_copy`).
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from packer._images.probe import inspect
from packer._measuring.harness import (
    Cost,
    Load,
    TimeLimit,
    best_cost,
    moment,
    rounds,
    run_together,
    scratch_directory,
    since,
)
from packer._storage.files import SHARED_MEMORY
from packer.errors import ImageError

Copies = dict[int, tuple[Any, Any]]
"""Originals and their copies, by the id of the original."""

_LARGEST_COPIED = 1 << 20  # bytes of an array
_MOST_COPIED = 256  # entries of a list, dict or tuple; the entries of a longer one are shared
_DEEPEST_COPY = 12


def isolated_copy(value: Any, copies: Copies | None = None) -> Any:
    """Return a copy that can be used without changing the original.

    Random generators, counters, lists, dictionaries and small arrays are copied. Large arrays and tensors, open files
    and connections are shared, because a copy would be costly or impossible. When the copy is deleted, files that the
    copy opened are closed; shared files stay open.

    Parameters
    ----------
    value : object
        A dataset, a transform, or a collate function; a value that cannot be copied is returned unchanged.
    copies : dict, optional
        The copies so far; new copies are added. If two values share a part, their copies share a copy of this part.
    """
    return _Copier({} if copies is None else copies).copy(value, 0)


class _Copier:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def copy(self, value: Any, depth: int) -> Any:
        """Return the copy of a value, or the value itself if it is shared."""
        if id(value) not in self._copies:
            try:
                copied = self._copy(value, depth)
            except Exception:  # a user's own class may do anything
                copied = value
            self._copies[id(value)] = value, copied
        return self._copies[id(value)][1]

    def _copy(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST_COPY or isinstance(value, type | ModuleType | FunctionType):
            return value
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.copy(value.__self__, depth + 1))
        if type(value) in (list, dict, set, tuple, deque, bytearray):
            return self._container(value, depth)
        if _is_generator(value):
            return _generator(value)
        if _is_small_array(value):
            return value.copy() if hasattr(value, "copy") else value.clone()
        is_part = hasattr(value, "__dict__") and _is_dataset_or_callable(value)
        return self._instance(value, depth) if is_part else value  # a file, a connection or a thread pool is shared

    def _container(self, value: Any, depth: int) -> Any:
        if len(value) > _MOST_COPIED or type(value) in (set, deque, bytearray):
            return value if type(value) is tuple else copy.copy(value)
        if type(value) is dict:
            return {key: self.copy(one, depth + 1) for key, one in value.items()}
        return type(value)(self.copy(one, depth + 1) for one in value)

    def _instance(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        if hasattr(kind, "__del__"):  # the copy's __del__ would close files that the original still uses
            names = {"__del__": lambda this: None, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
            kind = type(value.__class__)(kind.__name__, (kind,), names)
        copied = object.__new__(kind)  # without __getstate__, which drops open files
        self._copies[id(value)] = value, copied
        for name, attribute in vars(value).items():
            copied.__dict__[name] = self.copy(attribute, depth + 1)
        return copied


def _is_dataset_or_callable(value: Any) -> bool:
    return callable(value) or any("__getitem__" in vars(kind) for kind in type(value).__mro__)


def _is_generator(value: Any) -> bool:
    generators = random.Random | np.random.Generator | np.random.RandomState
    return isinstance(value, generators) or _is(value, "torch", "Generator")


def _generator(value: Any) -> Any:
    if _is(value, "torch", "Generator"):
        copied = sys.modules["torch"].Generator(value.device)
        copied.set_state(value.get_state())
        return copied
    return copy.deepcopy(value)


def _is_small_array(value: Any) -> bool:
    is_array = type(value) in (np.ndarray, getattr(sys.modules.get("torch"), "Tensor", None))
    return is_array and bool(value.nbytes <= _LARGEST_COPIED)


_WRAPPED = ("source", "loader", "dataloader", "base_dataloader", "_loader")
"""The names of attributes in which prefetchers and other wrappers hold the wrapped loader."""

_MOST_WRAPPERS = 5

_STAGES = {"loader": "loading", "transforms": "transform", "transform": "transform", "target_transform": "transform"}
"""The names of a dataset's functions that are called for each item, and the stage to which each belongs."""


@dataclass(frozen=True, kw_only=True)
class LoaderInfo:
    """The dataset of a loader, and how the loader makes items and batches.

    Attributes
    ----------
    loader : object
        The innermost loader, which makes the batches.
    kind : str
        ``"DataLoader"``, ``"Loader"`` (packer's), ``"packer.DataLoader"`` if packer's threads make its batches, or the
        name of the loader's class.
    dataset : object, optional
        The dataset, if its items can be requested one by one.
    unseen : str
        The reason why the stages cannot be measured; empty if they can.
    batch_size : int
    collate : callable, optional
    workers : int
        Number of processes that make batches; for packer's loaders without processes, the number of threads. 0 if the
        loop itself makes the batches.
    burst : int
        Number of batches that are made at the same time; each worker of a DataLoader makes one.
    threaded : bool
        Whether several threads of one process make items.
    in_processes : bool
        Whether processes other than the loop's process make the items.
    transform : callable, optional
        The transform of a packer Loader, which replaces the dataset's transform.
    """

    loader: Any
    kind: str
    dataset: Any = None
    unseen: str = ""
    batch_size: int = 1
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0
    burst: int = 1
    threaded: bool = False
    in_processes: bool = False
    transform: Any = None

    @property
    def of_packer(self) -> bool:
        """Whether the items come from a pack or an index, or from a subset of one."""
        return all(map(_is_pack, self.leaves))

    @property
    def leaves(self) -> list[Any]:
        """The datasets inside Subsets and concatenations."""
        return list(_leaves(self.dataset))

    def items(self, dataset: Any, indices: Sequence[int]) -> list[Any]:
        """Return items of `dataset` as the loader's workers make them."""
        if self.kind == "Loader" and self.of_packer:
            from packer._datasets.concat import readable

            transform = self.transform if _is_row_of_packs(dataset) else None  # in a single pack, `watched` has set it
            return readable(dataset).items(np.array(indices), 0, 0, transform)
        if hasattr(dataset, "__getitems__"):
            return list(dataset.__getitems__(list(indices)))
        return [dataset[index] for index in indices]


def innermost(loader: Any) -> Any:
    """Return the loader inside wrappers such as prefetchers."""
    for _ in range(_MOST_WRAPPERS):
        if _is(loader, "packer._loader.loader", "Loader") or _is(loader, "torch.utils.data", "DataLoader"):
            return loader
        inner = next((getattr(loader, name, None) for name in _WRAPPED if hasattr(loader, name)), None)
        if not hasattr(inner, "__iter__") or isinstance(inner, str | bytes):
            return loader
        loader = inner
    return loader


def inspect_loader(loader: Any) -> LoaderInfo:
    """Find out how a loader makes items and batches, from its attributes."""
    loader = innermost(loader)
    if _is(loader, "packer._loader.loader", "Loader"):
        processes, threads = loader.processes, loader.threads
        return LoaderInfo(
            loader=loader,
            kind="Loader",
            dataset=loader.dataset,
            batch_size=loader.batch_size,
            collate=loader.collate_fn,
            workers=max(threads, processes),
            threaded=threads > max(processes, 1),
            in_processes=processes > 0,
            transform=loader.transform,
        )
    if not _is(loader, "torch.utils.data", "DataLoader"):
        name = type(loader).__name__
        return LoaderInfo(loader=loader, kind=name, unseen=f"packer cannot see how a {name} makes its batches")
    workers, dataset = loader.num_workers, loader.dataset
    info = LoaderInfo(
        loader=loader, kind="DataLoader", workers=workers, burst=max(workers, 1), in_processes=workers > 0
    )
    if _is(dataset, "torch.utils.data", "IterableDataset") or not hasattr(dataset, "__len__"):
        return replace(info, unseen=f"{type(dataset).__name__} returns its items in its own order, and not by index")
    if loader.batch_sampler is None:
        return replace(info, unseen="the DataLoader has no batches (batch_size=None)")
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
    info = replace(info, dataset=dataset, batch_size=size, collate=loader.collate_fn)
    if _is(loader, "packer._loader.dataloader", "DataLoader") and loader._plan() is not None:
        return replace(info, kind="packer.DataLoader", burst=1, threaded=workers > 1, in_processes=False)
    return info


def watched(dataset: Any, watch: Watch, transform: Any = None, copies: Copies | None = None) -> Any:
    """Return an isolated copy of a dataset with timed loading and transforms; the dataset itself if copying fails.

    Parameters
    ----------
    dataset : object
    watch : Watch
        Collects the times.
    transform : callable, optional
        Replaces the transform of a packer dataset.
    copies : dict, optional
        The same as for `isolated_copy`.
    """
    if _is_pack(dataset):
        return _watched_pack(dataset, watch, transform)
    if _is_row_of_packs(dataset):
        return dataset
    return _watched_own(dataset, watch, transform, {} if copies is None else copies)


def _watched_own(dataset: Any, watch: Watch, transform: Any, copies: Copies) -> Any:
    """Do the same as `watched`, for a dataset that is not packer's."""
    copied = isolated_copy(dataset, copies)
    if copied is dataset:
        return dataset
    try:
        if type(dataset).__name__ == "Subset":
            copied.dataset = watched(dataset.dataset, watch, transform, copies)
        elif type(dataset).__name__ == "ConcatDataset":
            copied.datasets = [watched(part, watch, transform, copies) for part in dataset.datasets]
        for name, stage in _STAGES.items():
            function = getattr(copied, name, None)
            if callable(function) and not isinstance(function, Timed):
                setattr(copied, name, Timed(watch, stage, function))
    except Exception:  # setting an attribute of a user's own class may do anything
        return isolated_copy(dataset)
    return copied


def _watched_pack(dataset: Any, watch: Watch, transform: Any) -> Any:
    from packer._datasets.image_dataset import items_of

    copied = copy.copy(dataset)
    if transform is not None:
        copied.transform = isolated_copy(transform)
    pipeline = items_of(copied).pipeline
    timed: dict[str, Any] = {
        name: Timed(watch, "transform", isolated_copy(function))
        for name in ("transform", "target_transform", "transforms")
        if (function := getattr(pipeline, name)) is not None
    }
    if timed:
        items_of(copied).use_steps(replace(pipeline, **timed))
    return copied


@contextlib.contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Let torch use one thread, as in a DataLoader's workers."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is(value: Any, module: str, name: str) -> bool:
    """Tell whether a value is an instance of a class, without importing a module that is not imported yet."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _is_pack(dataset: Any) -> bool:
    return _is(dataset, "packer._datasets.image_dataset", "ImageDataset")


def _is_row_of_packs(dataset: Any) -> bool:
    return _is(dataset, "packer._datasets.concat", "ConcatImageDataset")


def _leaves(dataset: Any) -> Iterator[Any]:
    if type(dataset).__name__ == "Subset" and hasattr(dataset, "dataset"):
        yield from _leaves(dataset.dataset)
    elif type(dataset).__name__ in ("ConcatDataset", "ConcatImageDataset") and hasattr(dataset, "datasets"):
        for part in dataset.datasets:
            yield from _leaves(part)
    else:
        yield dataset


class Watch:
    """The costs of calls, by stage; the cost of a call includes the costs of nested calls.

    Attributes
    ----------
    costs : dict of str to Cost
        The costs by stage.
    paths : list of str
        The files that were opened.
    loaded : object
        The last loaded image.
    """

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self.paths: list[str] = []
        self.loaded: Any = None
        self._inside = False

    def call(self, stage: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a function, and add its cost to those of a stage."""
        if self._inside:
            return function(*arguments, **options)
        self._inside = True
        begin = moment()
        try:
            result = function(*arguments, **options)
            if stage == "loading":
                _decode(result)
        finally:
            self.costs[stage] = self.costs.get(stage, Cost()) + since(begin)
            self._inside = False
        if stage == "loading":
            self.loaded = result
            named = arguments[0] if arguments else None
            if not isinstance(named, str | os.PathLike):
                named = getattr(named, "name", None)  # of an open file
            if isinstance(named, str | os.PathLike) and os.path.isfile(named):
                self.paths.append(os.fspath(named))
        return result


class Timed:
    """A proxy of a callable whose calls a `Watch` times."""

    def __init__(self, watch: Watch, stage: str, function: Any) -> None:
        self._watch, self._stage, self._function = watch, stage, function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._watch.call(self._stage, self._function, arguments, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __repr__(self) -> str:
        return repr(self._function)


@contextlib.contextmanager
def openers_watched(watch: Watch) -> Iterator[None]:
    """Time the functions with which datasets open images: Pillow's ``Image.open`` and ``cv2.imread``."""
    found = [(sys.modules.get(module), name) for module, name in (("PIL.Image", "open"), ("cv2", "imread"))]
    originals = [(module, name, getattr(module, name)) for module, name in found if hasattr(module, name)]
    try:
        for module, name, function in originals:
            setattr(module, name, Timed(watch, "loading", function))
        yield
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def _decode(image: Any) -> None:
    """Decode an image that Pillow has only opened, so that its decoding does not count as a part of the transform."""
    if type(image).__module__.startswith("PIL."):
        image.load()


_MOST_SAMPLES, _FEWEST_SAMPLES = 256, 8
_AT_A_TIME = 16  # samples that are made in one call
_SECONDS_OF_TWO_THREADS = 0.4  # for which two threads make items, to measure how long they wait for each other


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The cost of each stage of a loader.

    Attributes
    ----------
    costs : dict of str to Cost
        Seconds per sample, by stage, in the order of the work: reading, decoding, items (the rest of ``dataset[i]``),
        transform, collation, handing over (from a worker to the loop), transfer.
    samples : int
        Number of samples that were measured; 0 if the stages were not measured.
    paths : sequence of str
        Files that were opened for these samples.
    form : str
        The type of the images that the transform receives: ``"pil"``, ``"numpy"`` or ``"tensor"``; empty if unknown.
    lock : float
        The share of time for which two threads that make items wait for each other; 0 for a loader without threads.
    handing : Cost
        Seconds per sample for handing a batch from a worker to the loop; without workers, the seconds that this would
        take.
    others : float
        The share of the processors that other programs and the loader's persistent workers used during the
        measurements.
    """

    costs: dict[str, Cost] = field(default_factory=dict)
    samples: int = 0
    paths: Sequence[str] = ()
    form: str = ""
    lock: float = 0.0
    handing: Cost = field(default_factory=Cost)
    others: float = 0.0

    @property
    def total(self) -> Cost:
        """Seconds per sample."""
        return sum(self.costs.values(), Cost())

    def share(self, stage: str) -> float:
        """Return the share of a stage in the time of a sample."""
        return self.costs[stage].total / max(self.total.total, 1e-12) if stage in self.costs else 0.0


@dataclass
class _Items:
    """Items of a dataset, and the cost of making them."""

    cost: Cost = field(default_factory=Cost)
    indices: list[int] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)


def measure_stages(info: LoaderInfo, seconds: float) -> Stages:
    """Return the cost of each stage of the loader, measured within some seconds.

    Raises
    ------
    Exception
        Errors of the dataset, its transforms or the collation.
    """
    watch = Watch()
    copies: Copies = {}
    dataset = watched(info.dataset, watch, info.transform, copies)
    chosen = np.random.default_rng().permutation(len(dataset))[: _MOST_SAMPLES + 2].tolist()
    handing, load = Cost(), Load()
    with load, as_in_a_worker(), openers_watched(watch):
        in_place = _in_place(info)
        make = in_place or (lambda indices: info.items(dataset, indices))
        make(chosen[:2])  # not measured: the first call imports modules and allocates memory
        watch.costs.clear()
        watch.paths.clear()
        made = _make(make, chosen[2:] or chosen, info.batch_size, seconds)
        count = len(made.indices)
        costs = _divided(info, made, watch, count)
        if in_place is None and info.collate is not None:
            costs["collation"], batch = _collated(isolated_copy(info.collate, copies), made.items, info.batch_size)
            if info.kind == "DataLoader":
                handing = _handed_over(batch, info.workers > 0) / info.batch_size
            if info.workers:
                costs["handing over"] = handing
            costs["transfer"] = _transferred(batch) / info.batch_size
        lock = _lock(make, chosen, made.cost) if info.threaded else 0.0
    shown = {stage: cost for stage, cost in costs.items() if cost.total > 0}
    return Stages(
        costs=shown,
        samples=count,
        paths=watch.paths,
        form=_form(watch.loaded),
        lock=lock,
        handing=handing,
        others=load.others or 0.0,
    )


def _make(make: Callable[[list[int]], Any], indices: list[int], batch_size: int, seconds: float) -> _Items:
    """Make items until time runs out."""
    made, limit = _Items(), TimeLimit(seconds)
    step = max(1, min(batch_size, _AT_A_TIME))
    for first in range(0, len(indices), step):
        some = indices[first : first + step]
        begin = moment()
        items = make(some)
        made.cost += since(begin)
        made.indices += some
        if len(made.items) < batch_size:
            made.items += items
        if limit.is_over and len(made.indices) >= _FEWEST_SAMPLES:
            break
    return made


def _divided(info: LoaderInfo, made: _Items, watch: Watch, count: int) -> dict[str, Cost]:
    """Divide the cost of items among reading, decoding, transforms, and the rest."""
    loading, transform = watch.costs.get("loading"), watch.costs.get("transform", Cost())
    rest = made.cost - transform
    if loading is not None:
        reading = _reading_files(watch.paths)
        parts = {
            "reading": Cost(min(reading.cpu, loading.cpu), loading.blocked),
            "decoding": Cost(max(loading.cpu - reading.cpu, 0.0)),
            "items": rest - loading,
        }
    elif info.of_packer:
        reading = _reading_pack(info, made.indices)
        parts = {"reading": Cost(min(reading.cpu, rest.cpu), rest.blocked), "decoding": Cost(rest.cpu - reading.cpu)}
        parts["decoding"] = Cost(max(parts["decoding"].cpu, 0.0))
    else:
        parts = {"reading": Cost(0.0, rest.blocked), "items": Cost(rest.cpu)}
    return {stage: cost / count for stage, cost in {**parts, "transform": transform}.items()}


def _reading_files(paths: Sequence[str]) -> Cost:
    """Return the cost of reading files a second time, from memory: only the calls, without waits for the disk."""
    begin = moment()
    for path in paths:
        with open(path, "rb") as file:
            file.read()
    return since(begin)


def _reading_pack(info: LoaderInfo, indices: list[int]) -> Cost:
    """Return the cost of reading samples of a pack again, from memory; zero for a dataset of several packs."""
    dataset = info.dataset
    while type(dataset).__name__ == "Subset":
        indices, dataset = [dataset.indices[index] for index in indices], dataset.dataset
    if not hasattr(dataset, "reader"):
        return Cost()
    from packer._datasets.image_dataset import items_of

    rows = items_of(dataset).view.rows_of(indices)
    begin = moment()
    dataset.reader.read_many(rows)
    return since(begin)


def _in_place(info: LoaderInfo) -> Callable[[list[int]], list[Any]] | None:
    """Return a function that decodes samples into a batch, as packer's loaders do; None if items are collated."""
    if info.kind not in ("Loader", "packer.DataLoader"):
        return None
    from torch.utils.data import default_collate

    from packer._datasets.concat import readable
    from packer._datasets.protocol import layout_of
    from packer._loader.threads import Slot

    images: Any = readable(info.dataset)
    if info.kind == "packer.DataLoader":
        layout = images.batch_layout()
    else:
        layout = layout_of(images.layout(info.transform)) if info.collate is default_collate else None
    if layout is None:
        return None

    def make(indices: list[int]) -> list[Any]:
        memory = Slot(np.empty(layout.bytes_for(len(indices)), np.uint8)).tensors(layout, len(indices))
        rows = np.array(indices)
        open_batch = images.begin(rows, images.choose(rows, 0, 0), len(rows), len(rows), layout.decoded_numbers)
        open_batch(slice(None), memory)(slice(len(rows)))
        return []

    return make


def _collated(collate: Callable[[list[Any]], Any], items: list[Any], batch_size: int) -> tuple[Cost, Any]:
    """Return the cost of collation per sample, and the batch; items are repeated if there are too few."""
    items_of_batch = [items[number % len(items)] for number in range(batch_size)]
    batch = None

    def work() -> None:
        nonlocal batch
        batch = collate(list(items_of_batch))

    return best_cost(work, 3, enough=0.2) / batch_size, batch


def _handed_over(batch: Any, shared: bool) -> Cost:
    """Return the cost of handing a batch to the loop: a worker copies its tensors to shared memory.

    If `shared` is false, the tensors are copied to ordinary memory, because a training without workers may run on a
    machine that has little shared memory.
    """
    from packer._loader.prefetch import map_tensors

    copies = [map_tensors(batch, lambda tensor: tensor.clone()) for _ in range(2)]
    hand_over = (lambda tensor: tensor.share_memory_()) if shared else (lambda tensor: tensor.clone())
    return best_cost(lambda: map_tensors(copies.pop(), hand_over), len(copies))


def _transferred(batch: Any) -> Cost:
    """Return the cost of copying a batch to the CUDA device; zero if the program does not use CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return Cost()
    from packer._loader.prefetch import map_tensors

    def work() -> None:
        map_tensors(batch, lambda tensor: tensor.to("cuda"))
        torch.cuda.synchronize()

    torch.cuda.synchronize()
    return Cost(best_cost(work, 3).total)


def _lock(make: Callable[[list[int]], Any], indices: list[int], alone: Cost) -> float:
    """Return the share of time for which two threads are blocked, in excess of the share of a single thread."""
    shares: list[float] = []
    together = threading.Barrier(2)

    def work(number: int) -> None:
        together.wait()
        begin, limit, position = moment(), TimeLimit(_SECONDS_OF_TWO_THREADS), number
        while not limit.is_over:
            make([indices[position % len(indices)]])
            position += 2
        cost = since(begin, alone=False)
        shares.append(cost.blocked / max(cost.total, 1e-12))

    try:
        run_together(work, 2)
    except Exception:  # an error that only threads cause, because single items were made before
        return 0.0
    return max(sum(shares) / 2 - alone.blocked / max(alone.total, 1e-12), 0.0)


def _form(loaded: Any) -> str:
    """Return packer's name of the type of an image; empty for other values."""
    module = type(loaded).__module__.partition(".")[0]
    return {"PIL": "pil", "numpy": "numpy", "torch": "tensor"}.get(module, "")


_BATCHES_OF_A_WORKER, _FEWEST_BATCHES = 2, 8  # of a trial that is shorter than a pass


def fewer_workers(
    info: LoaderInfo, workers: int, batches: int, *, sample: float, seconds: float, step: float = 0.0
) -> float:
    """Return the speed-up of a pass of `batches` batches if the loader has only `workers` workers.

    Passes with the two numbers of workers alternate while time allows. They read the same batches, and include the
    start of the workers. Batches are made smaller if whole batches would take too long.

    Parameters
    ----------
    workers : int
        The lower number of workers: one for each processor.
    sample : float
        Seconds that a sample takes on one worker.
    step : float
        Seconds that the training loop works on a batch, while workers make the next ones.
    """
    count = min(batches, max(info.workers * _BATCHES_OF_A_WORKER, _FEWEST_BATCHES))
    fitting = int(seconds / 2 * workers / max(sample, 1e-9))  # samples, for two passes
    size = min(info.batch_size, max(fitting // count, 1))
    chosen = np.random.default_rng().integers(len(info.dataset), size=(count, size)).tolist()
    best: dict[int, float] = {}
    numbers = info.workers, workers
    for order in rounds(len(numbers), 2, TimeLimit(seconds)):
        for number in (numbers[position] for position in order):
            first, duration = _pass(info, number, chosen, batches * info.batch_size / size)
            duration = max(duration, first + step * batches)
            best[number] = min(duration, best.get(number, duration))
    return best[info.workers] / max(best[workers], 1e-9)


def _pass(info: LoaderInfo, workers: int, chosen: list[list[int]], batches: float) -> tuple[float, float]:
    """Return the seconds until the first batch, and the seconds for `batches` batches, extrapolated from `chosen`."""
    arrivals, begin = [], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too many workers, and of forks in a process with threads
        for _ in _loader(info, workers, chosen):
            arrivals.append(time.perf_counter() - begin)
    half = len(arrivals) // 2
    steady = (arrivals[-1] - arrivals[half - 1]) / (len(arrivals) - half) if half else arrivals[-1]
    return arrivals[0], arrivals[-1] + steady * (batches - len(arrivals))


def _loader(info: LoaderInfo, workers: int, chosen: list[list[int]]) -> Any:
    from torch import Generator
    from torch.utils.data import DataLoader

    loader = info.loader
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


_SAMPLES_OF_A_PACK = 32
_RESIZED = 256  # pixels of the shorter side
_WORTH_RESIZING = 1.1  # resizing is tried if the mean shorter side is more than this many times `_RESIZED`
_ITEM_SETTINGS = ("crop", "output", "fuse", "mode", "transform")
"""The settings of packer's datasets on which an item depends."""


class UnpackedError(Exception):
    """Raised if packing cannot be tried; the message has the reason."""


@dataclass(frozen=True)
class PackedCost:
    """The cost of items that are read from a pack.

    Attributes
    ----------
    options : str
        The options of ``packer convert``; empty for packing without further changes.
    cost : Cost
        Seconds per sample, with transforms and collation.
    samples : int
    """

    options: str
    cost: Cost
    samples: int


def measure_packed(info: LoaderInfo, stages: Stages, seconds: float) -> list[PackedCost]:
    """Return the cost of the loader's items from a pack and, if images are large, from a pack of smaller images.

    Raises
    ------
    UnpackedError
        If the files of the images, or the transform, cannot be found.
    """
    from packer._conversion.api import pack as write
    from packer._datasets.open import open_dataset

    samples = list(_samples(info, stages))
    if not samples:
        raise UnpackedError("packer cannot see which files the dataset reads")
    settings = _settings(info, stages)
    found: list[PackedCost] = []
    with scratch_directory("profile", SHARED_MEMORY) as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transforms that fuse= does not support
        for options, conversion in _ways(info, samples):
            try:
                pack = directory / f"{len(found)}.lmdb"
                write(samples, pack, classes=["any"], on_error="skip", **conversion)
                with open_dataset(pack, **settings) as dataset:
                    measured = measure_stages(replace(info, dataset=dataset, threaded=False), seconds / 2)
            except Exception as error:  # from a user's transform, or for images that packer refuses
                raise UnpackedError(f"packing the images or applying the transform failed: {error}") from error
            found.append(PackedCost(options, measured.total, len(samples)))
    return found


def _samples(info: LoaderInfo, stages: Stages) -> Iterator[dict[str, Any]]:
    """Yield some of the files or samples that were read, in the form that `packer.pack` takes."""
    if not info.of_packer:
        for path in list(dict.fromkeys(stages.paths))[:_SAMPLES_OF_A_PACK]:
            yield {"image": Path(path), "label": 0}
        return
    from packer._datasets.image_dataset import items_of

    packs = [pack for pack in info.leaves if len(pack)][:_SAMPLES_OF_A_PACK]
    for pack in packs:
        step = max(len(pack) * len(packs) // _SAMPLES_OF_A_PACK, 1)
        indices = list(range(0, len(pack), step)[: _SAMPLES_OF_A_PACK // len(packs)])
        for row in items_of(pack).view.rows_of(indices).tolist():
            yield {"image": bytes(pack.reader.read(row)), "label": 0}


def _settings(info: LoaderInfo, stages: Stages) -> dict[str, Any]:
    """Return settings for packer's dataset that give the same items as the loader's dataset."""
    dataset, *others = info.leaves
    if info.of_packer:
        from packer._datasets.image_dataset import items_of

        first, *further = (items_of(pack).item_settings for pack in info.leaves)
        settings = {name: getattr(first, name) for name in _ITEM_SETTINGS}
        if any(getattr(other, name) != value for other in further for name, value in settings.items()):
            raise UnpackedError("the joined datasets have different transforms")
        if any(one.parts is not None for one in (first, *further)):
            raise UnpackedError("the samples have fields in addition to the image")
        return settings
    if any(not hasattr(leaf, "transform") for leaf in info.leaves):
        raise UnpackedError("the dataset has no transform that could be applied to a pack's images")
    settings = {"transform": dataset.transform}
    if any(other.transform != dataset.transform for other in others):
        raise UnpackedError("the joined datasets have different transforms")
    transform = isolated_copy(settings["transform"])
    output = "numpy" if stages.form == "numpy" else "pil" if transform is None else None
    return {"transform": transform, "fuse": transform is not None, "output": output}


def _ways(info: LoaderInfo, samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the options of each trial, as words of the command and as arguments of `packer.pack`."""
    if not info.of_packer:
        yield "", {}
    if _shorter_side(samples) > _RESIZED * _WORTH_RESIZING:
        yield f"--resize {_RESIZED}", {"resize": _RESIZED}


def _shorter_side(samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean length of the images' shorter sides, in pixels, according to the images' headers."""
    sides: list[int] = []
    for sample in samples:
        image = sample["image"]
        with contextlib.suppress(OSError, ImageError):
            info = inspect(image if isinstance(image, bytes) else Path(image).read_bytes())
            sides.append(min(info.height, info.width))
    return sum(sides) / max(len(sides), 1)
