"""Times of the stages of an item, one by one: reading, decoding, transforms, collation, the copy to the device.

`inspect_loader` finds a loader's dataset, how it makes items and batches, and on how many workers. `measure_stages`
makes a bounded number of items on one thread, with random indices, because files that were read a moment ago would be
read again from memory. A call is timed by the CPU time and the waiting time of its thread, so that neither the loader's
other workers nor other programs count. `fewer_workers` runs the same DataLoader with fewer workers. `measure_packed`
converts some of the samples, in memory if possible, and reads them as packer would.

Measuring must not change the training: datasets, transforms and collations are tried on a copy (`isolated_copy`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
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
from packer._storage.scratch import SHARED_MEMORY
from packer.errors import ImageError

Copies = dict[int, tuple[Any, Any]]

_SMALL = 1 << 20  # bytes of an array that is copied
_FEW = 256  # entries of a list or dictionary that are copied, too
_DEEPEST_COPY = 12


def isolated_copy(value: Any, copies: Copies | None = None) -> Any:
    """Return a copy that can be used without changing the original.

    Random generators, counters, lists, dictionaries and small arrays are the copy's own. Large arrays and tensors, open
    files and connections are shared: they are costly, or cannot be opened twice. Files that the copy opens are closed
    with the copy; shared ones are not.

    Parameters
    ----------
    value : object
        A dataset, a transform, a collation; a value that cannot be copied is returned itself.
    copies : dict, optional
        The copies so far, each with its original, by the id of the original. If two values share a part, their copies
        share its copy.
    """
    return _Copying({} if copies is None else copies).of(value, 0)


class _Copying:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def of(self, value: Any, depth: int) -> Any:
        """Return the copy of a value, or the value itself."""
        if id(value) not in self._copies:
            try:
                made = self._made(value, depth)
            except Exception:  # a user's own class may do anything
                made = value
            self._copies[id(value)] = value, made
        return self._copies[id(value)][1]

    def _made(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST_COPY or isinstance(value, type | ModuleType | FunctionType):
            return value
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.of(value.__self__, depth + 1))
        if type(value) in (list, dict, set, tuple, deque, bytearray):
            return self._container(value, depth)
        if _is_generator(value):
            return _generator(value)
        if _is_small_array(value):
            return value.copy() if hasattr(value, "copy") else value.clone()
        return self._instance(value, depth) if hasattr(value, "__dict__") and _is_work(value) else value

    def _container(self, value: Any, depth: int) -> Any:
        if len(value) > _FEW or type(value) in (set, deque, bytearray):
            return value if type(value) is tuple else copy.copy(value)
        if type(value) is dict:
            return {key: self.of(one, depth + 1) for key, one in value.items()}
        return type(value)(self.of(one, depth + 1) for one in value)

    def _instance(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        if hasattr(kind, "__del__"):  # which would close files that both have
            names = {"__del__": lambda this: None, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
            kind = type(value.__class__)(kind.__name__, (kind,), names)
        alike = object.__new__(kind)  # without __getstate__, which drops open files
        self._copies[id(value)] = value, alike
        for name, held in vars(value).items():
            alike.__dict__[name] = self.of(held, depth + 1)
        return alike


def _is_work(value: Any) -> bool:
    """Tell whether a value is a dataset or a callable, and not a file, a connection or a thread pool."""
    return callable(value) or any("__getitem__" in vars(kind) for kind in type(value).__mro__)


def _is_generator(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        isinstance(value, random.Random)
        or (numpy is not None and isinstance(value, numpy.random.Generator | numpy.random.RandomState))
        or (torch is not None and isinstance(value, torch.Generator))
    )


def _generator(value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        alike = torch.Generator(value.device)
        alike.set_state(value.get_state())
        return alike
    return copy.deepcopy(value)


def _is_small_array(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and type(value) is numpy.ndarray:
        return bool(value.nbytes <= _SMALL)
    return torch is not None and type(value) is torch.Tensor and bool(value.nbytes <= _SMALL)


_WRAPPERS = ("source", "loader", "dataloader", "base_dataloader", "_loader")
_DEEPEST = 5

_STAGES = {"loader": "loading", "transforms": "transform", "transform": "transform", "target_transform": "transform"}
"""Attributes of datasets that are called for each item, with the stage that they are."""


@dataclass(frozen=True, kw_only=True)
class LoaderInfo:
    """The dataset of a loader, and how it makes items and batches.

    Attributes
    ----------
    loader : object
        The innermost loader, which makes the batches.
    kind : str
        ``"DataLoader"``, ``"Loader"`` (packer's), ``"packer.DataLoader"`` if packer's threads make its batches, or the
        name of its class.
    dataset : object, optional
        The dataset of the items, if these can be requested one by one.
    unseen : str
        Why stages cannot be separated; empty if they can.
    batch_size : int
    collate : callable, optional
    workers : int
        Number of processes that make batches; for packer's loaders without processes, of threads. 0 if the loop itself
        makes the batches.
    burst : int
        Number of batches that are made at the same time: a DataLoader's workers make one each.
    threaded : bool
        Whether several threads of one process make items.
    in_processes : bool
        Whether processes other than the loop's make the items.
    transform : callable, optional
        The transform of a packer Loader, which replaces the dataset's.
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
            import numpy as np

            from packer._datasets.concat import readable

            own = not _is_row_of_packs(dataset)  # then the dataset has the transform from `watched`
            return readable(dataset).items(np.array(indices), 0, 0, None if own else self.transform)
        if hasattr(dataset, "__getitems__"):
            return list(dataset.__getitems__(list(indices)))
        return [dataset[index] for index in indices]


def innermost(loader: Any) -> Any:
    """Return the loader below wrappers such as prefetchers."""
    for _ in range(_DEEPEST):
        if _is(loader, "packer._loader.loader", "Loader") or _is(loader, "torch.utils.data", "DataLoader"):
            return loader
        inner = next((getattr(loader, name, None) for name in _WRAPPERS if hasattr(loader, name)), None)
        if not hasattr(inner, "__iter__") or isinstance(inner, str | bytes):
            return loader
        loader = inner
    return loader


def inspect_loader(loader: Any) -> LoaderInfo:
    """Describe a loader by its attributes."""
    loader = innermost(loader)
    name = type(loader).__name__
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
        return LoaderInfo(loader=loader, kind=name, unseen=f"a {name} does not show how it makes its batches")
    workers, dataset = loader.num_workers, loader.dataset
    made: dict[str, Any] = {"workers": workers, "burst": max(workers, 1), "in_processes": workers > 0}
    if _is(dataset, "torch.utils.data", "IterableDataset") or not hasattr(dataset, "__len__"):
        reason = f"{type(dataset).__name__} gives its items in its own order, and not one by one"
        return LoaderInfo(loader=loader, kind="DataLoader", unseen=reason, **made)
    if loader.batch_sampler is None:
        reason = "the DataLoader has no batches (batch_size=None)"
        return LoaderInfo(loader=loader, kind="DataLoader", unseen=reason, **made)
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
    if _is(loader, "packer._loader.dataloader", "DataLoader") and loader._plan() is not None:
        made = {"workers": workers, "threaded": workers > 1, "collate": loader.collate_fn}
        return LoaderInfo(loader=loader, kind="packer.DataLoader", dataset=dataset, batch_size=size, **made)
    return LoaderInfo(
        loader=loader, kind="DataLoader", dataset=dataset, batch_size=size, collate=loader.collate_fn, **made
    )


def watched(dataset: Any, watch: Watch, transform: Any = None, copies: Copies | None = None) -> Any:
    """Return a copy of a dataset with its loading and transforms timed; the dataset itself if it cannot be copied.

    The copy has a state of its own (`isolated_copy`). `transform` replaces the transform of a packer dataset. `copies`
    are the copies made so far.
    """
    if _is_pack(dataset):
        return _watched_pack(dataset, watch, transform)
    if _is_row_of_packs(dataset):
        return dataset
    return _watched_own(dataset, watch, transform, {} if copies is None else copies)


def _watched_own(dataset: Any, watch: Watch, transform: Any, copies: Copies) -> Any:
    """Return a copy of a dataset that is not packer's, with its loading and transforms timed."""
    alike = isolated_copy(dataset, copies)
    if alike is dataset:
        return dataset
    try:
        if type(dataset).__name__ == "Subset":
            alike.dataset = watched(dataset.dataset, watch, transform, copies)
        elif type(dataset).__name__ == "ConcatDataset":
            alike.datasets = [watched(part, watch, transform, copies) for part in dataset.datasets]
        for name, stage in _STAGES.items():
            function = getattr(alike, name, None)
            if callable(function) and not isinstance(function, Timed):
                setattr(alike, name, Timed(watch, stage, function))
    except Exception:  # a user's own class: setting its attributes may do anything
        return isolated_copy(dataset)
    return alike


def _watched_pack(dataset: Any, watch: Watch, transform: Any) -> Any:
    from packer._datasets.image_dataset import items_of

    alike = copy.copy(dataset)
    if transform is not None:
        alike.transform = isolated_copy(transform)
    pipeline = items_of(alike).pipeline
    timed: dict[str, Any] = {
        name: Timed(watch, "transform", isolated_copy(function))
        for name in ("transform", "target_transform", "transforms")
        if (function := getattr(pipeline, name)) is not None
    }
    if timed:
        items_of(alike).use_steps(dataclasses.replace(pipeline, **timed))
    return alike


@contextlib.contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Let torch use one thread, as a DataLoader's workers do."""
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
    """Tell whether a value is of a class, without importing its module, which is imported if such a value exists."""
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
    """Sums the costs of calls by stage; a nested call counts for the outer one.

    Attributes
    ----------
    costs : dict of str to Cost
        By stage.
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
        """Call a function, and add its cost to a stage."""
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
    """A callable whose calls a `Watch` times; otherwise the callable itself."""

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
    """Time the openers of images inside of a dataset: ``Image.open`` of Pillow, ``cv2.imread``."""
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
    """Decode an image that Pillow opened and would decode later, as a part of a transform."""
    if type(image).__module__.startswith("PIL."):
        image.load()


_MOST_SAMPLES = 256
_AT_A_TIME = 16
_NEEDED = 8
"""Samples that are measured however long they take."""

_LOCKED_FOR = 0.4
"""Seconds that two threads make items at the same time."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The costs of the stages.

    Attributes
    ----------
    costs : dict of str to Cost
        Seconds per sample, by stage, in the order of the work: reading, decoding, items (the rest of ``dataset[i]``),
        transform, collation, handing over (from a worker to the loop), transfer.
    samples : int
        Number of samples that were measured.
    paths : sequence of str
        Files that were opened for these samples.
    form : str
        The input of a transform: ``"pil"``, ``"numpy"`` or ``"tensor"``; empty if no image was seen.
    lock : float
        The share of the time that two threads, making items at the same time, wait for each other; 0 for a loader
        without threads.
    handing : Cost
        Seconds per sample that a worker would need for handing over, if there are no workers.
    others : float
        The share of the processors that other programs took meanwhile, with persistent workers.
    """

    costs: dict[str, Cost]
    samples: int
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
class _Made:
    """Items that were made, and their cost."""

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
        make(chosen[:2])  # imports, and memory that is allocated once
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


def _make(make: Callable[[list[int]], Any], indices: list[int], batch_size: int, seconds: float) -> _Made:
    """Make items until the time is over."""
    made, limit = _Made(), TimeLimit(seconds)
    step = max(1, min(batch_size, _AT_A_TIME))
    for first in range(0, len(indices), step):
        some = indices[first : first + step]
        begin = moment()
        items = make(some)
        made.cost += since(begin)
        made.indices += some
        if len(made.items) < batch_size:
            made.items += items
        if limit.is_over and len(made.indices) >= _NEEDED:
            break
    return made


def _divided(info: LoaderInfo, made: _Made, watch: Watch, count: int) -> dict[str, Cost]:
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
    """Return the cost of reading files again: the calls, without waiting for the disk."""
    begin = moment()
    for path in paths:
        with open(path, "rb") as file:
            file.read()
    return since(begin)


def _reading_pack(info: LoaderInfo, indices: list[int]) -> Cost:
    """Return the cost of reading samples of a pack again; no cost for several packs."""
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
    """Return a function that decodes samples into a batch, as packer's loaders do; None if items are made."""
    if info.kind not in ("Loader", "packer.DataLoader"):
        return None
    from torch.utils.data import default_collate

    from packer._datasets.concat import readable
    from packer._datasets.memory import Slot, layout_of

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
    batch = [items[number % len(items)] for number in range(batch_size)]
    made = None

    def work() -> None:
        nonlocal made
        made = collate(list(batch))

    return best_cost(work, 3, enough=0.2) / batch_size, made


def _handed_over(batch: Any, shared: bool) -> Cost:
    """Return the cost of handing a batch to the loop: a worker copies the tensors to shared memory.

    Unless `shared`, they are copied to ordinary memory: a machine without workers may have no room in shared memory.
    """
    from packer._loader.prefetch import map_tensors

    copies = [map_tensors(batch, lambda tensor: tensor.clone()) for _ in range(2)]
    hand_over = (lambda tensor: tensor.share_memory_()) if shared else (lambda tensor: tensor.clone())
    return best_cost(lambda: map_tensors(copies.pop(), hand_over), len(copies))


def _transferred(batch: Any) -> Cost:
    """Return the cost of copying a batch to the CUDA device; no cost if the program does not use CUDA."""
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
    """Return the share of the time that two threads wait for each other, beyond the blocking of one of them."""
    shares: list[float] = []
    together = threading.Barrier(2)

    def work(number: int) -> None:
        together.wait()
        begin, limit, position = moment(), TimeLimit(_LOCKED_FOR), number
        while not limit.is_over:
            make([indices[position % len(indices)]])
            position += 2
        cost = since(begin, alone=False)
        shares.append(cost.blocked / max(cost.total, 1e-12))

    try:
        run_together(work, 2)
    except Exception:  # items made one by one would have raised it before
        return 0.0
    return max(sum(shares) / 2 - alone.blocked / max(alone.total, 1e-12), 0.0)


def _form(loaded: Any) -> str:
    """Return packer's name of the type of an image; empty for other values."""
    module = type(loaded).__module__.partition(".")[0]
    return {"PIL": "pil", "numpy": "numpy", "torch": "tensor"}.get(module, "")


_A_WORKER = 2  # batches that each worker makes at least, where they last for longer than the trial


def fewer_workers(
    info: LoaderInfo, workers: int, batches: int, *, sample: float, seconds: float, step: float = 0.0
) -> float:
    """Return the speed-up of a pass of `batches` with fewer workers.

    Both passes include the start of workers and use the same batches, in turn, as long as time allows. If whole batches
    would take too long, they are smaller.

    Parameters
    ----------
    workers : int
        The number of processors.
    sample : float
        Seconds that a sample takes on one worker.
    step : float
        Seconds that the training loop works on a batch, while workers make the next ones.
    """
    count = min(batches, max(info.workers * _A_WORKER, 8))
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
    """Return the time for the first batch and for all `batches`; some are made, and the rest is extrapolated."""
    arrivals, begin = [], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on many workers, and on forks beside threads: the training loop gave them
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


_SAMPLES = 32
_RESIZED = 256
_WORTH_RESIZING = 1.1
_OF_PACKS = ("crop", "output", "fuse", "mode", "transform")
"""The settings of packer's datasets that decide on an item."""


class UnpackedError(Exception):
    """Packing cannot be tried; the message says why."""


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
    """Return the cost of the loader's items from a pack and, if the images are large, from one with smaller images.

    Raises
    ------
    UnpackedError
        If the images' files, or the transform, cannot be seen.
    """
    from packer._conversion.api import pack as write
    from packer._datasets.open import open_dataset

    samples = list(_samples(info, stages))
    if not samples:
        raise UnpackedError("which files the images are is not to be seen in the dataset")
    settings = _settings(info, stages)
    found: list[PackedCost] = []
    with scratch_directory("profile", SHARED_MEMORY) as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transforms that fuse= cannot take over
        for options, conversion in _ways(info, samples):
            try:
                pack = directory / f"{len(found)}.lmdb"
                write(samples, pack, classes=["any"], on_error="skip", **conversion)
                with open_dataset(pack, **settings) as dataset:
                    measured = measure_stages(replace(info, dataset=dataset, threaded=False), seconds / 2)
            except Exception as error:  # of a user's transform, or of images that packer refuses
                raise UnpackedError(f"the transform and the images do not go together with packer: {error}") from error
            found.append(PackedCost(options, measured.total, len(samples)))
    return found


def _samples(info: LoaderInfo, stages: Stages) -> Iterator[dict[str, Any]]:
    """Yield samples as `packer.pack` takes them: some of the files that were read, or samples of the pack."""
    if not info.of_packer:
        for path in list(dict.fromkeys(stages.paths))[:_SAMPLES]:
            yield {"image": Path(path), "label": 0}
        return
    from packer._datasets.image_dataset import items_of

    packs = [pack for pack in info.leaves if len(pack)][:_SAMPLES]
    for pack in packs:
        step = max(len(pack) * len(packs) // _SAMPLES, 1)
        for row in items_of(pack).view.rows_of(list(range(0, len(pack), step)[: _SAMPLES // len(packs)])).tolist():
            yield {"image": bytes(pack.reader.read(row)), "label": 0}


def _settings(info: LoaderInfo, stages: Stages) -> dict[str, Any]:
    """Return settings for packer's dataset that give the same items as the loader's dataset."""
    dataset, *others = info.leaves
    if info.of_packer:
        from packer._datasets.image_dataset import items_of

        first, *further = (items_of(pack).item_settings for pack in info.leaves)
        settings = {name: getattr(first, name) for name in _OF_PACKS}
        if any(getattr(other, name) != value for other in further for name, value in settings.items()):
            raise UnpackedError("the datasets in a row have transforms of their own")
        if any(one.parts is not None for one in (first, *further)):
            raise UnpackedError("the samples have fields beside the image")
        return settings
    if any(not hasattr(leaf, "transform") for leaf in info.leaves):
        raise UnpackedError("the dataset has no transform that could be applied to a pack's images")
    settings = {"transform": dataset.transform}
    if any(other.transform != dataset.transform for other in others):
        raise UnpackedError("the datasets in a row have transforms of their own")
    transform = isolated_copy(settings["transform"])
    output = "numpy" if stages.form == "numpy" else "pil" if transform is None else None
    return {"transform": transform, "fuse": transform is not None, "output": output}


def _ways(info: LoaderInfo, samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the options to try, as words of the command and as arguments of `packer.pack`."""
    if not info.of_packer:
        yield "", {}
    if _shorter_side(samples) > _RESIZED * _WORTH_RESIZING:
        yield f"--resize {_RESIZED}", {"resize": _RESIZED}


def _shorter_side(samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean of the images' shorter sides, in pixels, according to their headers."""
    sides: list[int] = []
    for sample in samples:
        image = sample["image"]
        with contextlib.suppress(OSError, ImageError):
            info = inspect(image if isinstance(image, bytes) else Path(image).read_bytes())
            sides.append(min(info.height, info.width))
    return sum(sides) / max(len(sides), 1)
