"""The stages of an item, one at a time: reading, decoding, transforms, collation, the copy to the device.

A bounded number of items is made on one thread, with random indices, as files that were read a moment ago are read
again from memory. What a call takes is what it costs its thread (`clocks`), so that neither the loader's other workers
nor other programs count.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from packer._measuring.load import Load
from packer._measuring.profiling.apart import Known, apart
from packer._measuring.profiling.clocks import Cost, Watch, moment, openers_watched, since
from packer._measuring.profiling.seen import Seen, as_in_a_worker, watched

__all__ = ["Stages", "measure_stages"]

_MOST_SAMPLES = 256
_AT_A_TIME = 16
_NEEDED = 8
"""Samples that are measured however long they take."""

_LOCKED_FOR = 0.4
"""Seconds that two threads make items at the same time."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """What the stages cost.

    Attributes
    ----------
    costs : dict of str to Cost
        Seconds a sample, by stage, in the order of the work: reading, decoding, items (what ``dataset[i]`` does beside
        these), transform, collation, handing over (from a worker to the loop), transfer.
    samples : int
        How many samples were measured.
    paths : sequence of str
        Files that were opened for them.
    form : str
        What a transform is given: ``"pil"``, ``"numpy"`` or ``"tensor"``; empty where no image was seen.
    lock : float
        The share of the time that two threads, making items at the same time, wait for each other; 0 for a loader
        without threads.
    handing : Cost
        Seconds a sample that a worker would need for handing over, where there are no workers.
    others : float
        The share of the processors that was taken by others meanwhile, with workers that stay.
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
        """Seconds a sample."""
        return sum(self.costs.values(), Cost())

    def share(self, stage: str) -> float:
        """Return the share of a stage in the time of a sample."""
        return self.costs[stage].total / max(self.total.total, 1e-12) if stage in self.costs else 0.0


@dataclass
class _Made:
    """Items that were made, and what that cost."""

    cost: Cost = field(default_factory=Cost)
    indices: list[int] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)


def measure_stages(seen: Seen, seconds: float) -> Stages:
    """Return what each stage of the loader costs, within some seconds.

    Raises
    ------
    Exception
        What the dataset, its transforms or the collation raise.
    """
    watch = Watch()
    known: Known = {}
    dataset = watched(seen.dataset, watch, seen.transform, known)
    chosen = np.random.default_rng().permutation(len(dataset))[: _MOST_SAMPLES + 2].tolist()
    handing, load = Cost(), Load()
    with load, as_in_a_worker(), openers_watched(watch):
        in_place = _in_place(seen)
        make = in_place or (lambda indices: seen.items(dataset, indices))
        make(chosen[:2])  # imports, and memory that is allocated once
        watch.costs.clear()
        watch.paths.clear()
        made = _make(make, chosen[2:] or chosen, seen.batch_size, seconds)
        count = len(made.indices)
        costs = _divided(seen, made, watch, count)
        if in_place is None and seen.collate is not None:
            costs["collation"], batch = _collated(apart(seen.collate, known), made.items, seen.batch_size)
            if seen.kind == "DataLoader":
                handing = _handed_over(batch, seen.workers > 0) / seen.batch_size
            if seen.workers:
                costs["handing over"] = handing
            costs["transfer"] = _transferred(batch) / seen.batch_size
        lock = _lock(make, chosen, made.cost) if seen.threaded else 0.0
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
    made, begun = _Made(), time.perf_counter()
    step = max(1, min(batch_size, _AT_A_TIME))
    for first in range(0, len(indices), step):
        some = indices[first : first + step]
        begin = moment()
        items = make(some)
        made.cost += since(begin)
        made.indices += some
        if len(made.items) < batch_size:
            made.items += items
        if time.perf_counter() - begun > seconds and len(made.indices) >= _NEEDED:
            break
    return made


def _divided(seen: Seen, made: _Made, watch: Watch, count: int) -> dict[str, Cost]:
    """Divide the cost of items among reading, decoding, transforms, and what is left."""
    loading, transform = watch.costs.get("loading"), watch.costs.get("transform", Cost())
    rest = made.cost - transform
    if loading is not None:
        reading = _reading_files(watch.paths)
        parts = {
            "reading": Cost(min(reading.cpu, loading.cpu), loading.blocked),
            "decoding": Cost(max(loading.cpu - reading.cpu, 0.0)),
            "items": rest - loading,
        }
    elif seen.of_packer:
        reading = _reading_pack(seen, made.indices)
        parts = {"reading": Cost(min(reading.cpu, rest.cpu), rest.blocked), "decoding": Cost(rest.cpu - reading.cpu)}
        parts["decoding"] = Cost(max(parts["decoding"].cpu, 0.0))
    else:
        parts = {"reading": Cost(0.0, rest.blocked), "items": Cost(rest.cpu)}
    return {stage: cost / count for stage, cost in {**parts, "transform": transform}.items()}


def _reading_files(paths: Sequence[str]) -> Cost:
    """Return what reading the files costs that were read just now: the calls, without the disk."""
    begin = moment()
    for path in paths:
        with open(path, "rb") as file:
            file.read()
    return since(begin)


def _reading_pack(seen: Seen, indices: list[int]) -> Cost:
    """Return what reading samples of a pack costs that were read just now; nothing for several packs."""
    dataset = seen.dataset
    while type(dataset).__name__ == "Subset":
        indices, dataset = [dataset.indices[index] for index in indices], dataset.dataset
    if not hasattr(dataset, "reader"):
        return Cost()
    rows = dataset._rows_of(indices)
    begin = moment()
    dataset.reader.read_many(rows)
    return since(begin)


def _in_place(seen: Seen) -> Callable[[list[int]], list[Any]] | None:
    """Return what decodes samples into their places in a batch, as packer's loaders do; None where it makes items."""
    if seen.kind not in ("Loader", "packer.DataLoader"):
        return None
    from torch.utils.data import default_collate

    from packer._loading.joining import readable
    from packer._loading.memory import Layout, Slot

    images = readable(seen.dataset)
    if seen.kind == "packer.DataLoader":
        layout: Layout | None = images._in_batches()
    else:
        layout = images._in_place(seen.transform) if seen.collate is default_collate else None
    if layout is None:
        return None

    def make(indices: list[int]) -> list[Any]:
        memory = Slot(np.empty(layout.bytes_for(len(indices)), np.uint8)).tensors(layout, len(indices))
        rows = np.array(indices)
        crops = images._choose_crops(rows, 0, 0)
        images._begun(rows, crops, memory, len(rows), layout.decoded_numbers)(slice(len(rows)))
        return []

    return make


def _collated(collate: Callable[[list[Any]], Any], items: list[Any], batch_size: int) -> tuple[Cost, Any]:
    """Return what collation costs a sample, and the batch; where too few items were made, they stand in it again."""
    batch = [items[number % len(items)] for number in range(batch_size)]
    costs, made = [], None
    for _ in range(3):
        begin = moment()
        made = collate(list(batch))
        costs.append(since(begin))
        if costs[-1].total > 0.2:
            break
    return min(costs, key=lambda cost: cost.total) / batch_size, made


def _handed_over(batch: Any, shared: bool) -> Cost:
    """Return what a worker spends on giving a batch to the loop: it copies the tensors to memory that both share.

    Where it is not `shared`, any memory is copied to: who has no workers may have no room for what is shared.
    """
    from packer._loading.normalizing import map_tensors

    costs = []
    for _ in range(2):
        copy = map_tensors(batch, lambda tensor: tensor.clone())
        begin = moment()
        map_tensors(copy, lambda tensor: tensor.share_memory_() if shared else tensor.clone())
        costs.append(since(begin))
    return min(costs, key=lambda cost: cost.total)


def _transferred(batch: Any) -> Cost:
    """Return what copying a batch to the CUDA device takes; nothing without one that the program uses."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return Cost()
    from packer._loading.normalizing import map_tensors

    took = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        map_tensors(batch, lambda tensor: tensor.to("cuda"))
        torch.cuda.synchronize()
        took.append(time.perf_counter() - begin)
    return Cost(min(took))


def _lock(make: Callable[[list[int]], Any], indices: list[int], alone: Cost) -> float:
    """Return for which share of their time two threads wait for each other, beyond what one of them is blocked."""
    shares: list[float] = []
    together = threading.Barrier(2)

    def work(number: int) -> None:
        together.wait()
        begin, end = moment(), time.perf_counter() + _LOCKED_FOR
        place = number
        while time.perf_counter() < end:
            make([indices[place % len(indices)]])
            place += 2
        cost = since(begin, alone=False)
        shares.append(cost.blocked / max(cost.total, 1e-12))

    threads = [threading.Thread(target=work, args=(number,), name="packer-profile") for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(shares) < 2:  # a thread ended by an error, which items made one by one would have raised
        return 0.0
    return max(sum(shares) / 2 - alone.blocked / max(alone.total, 1e-12), 0.0)


def _form(loaded: Any) -> str:
    """Return what an image is, as packer calls it; empty for what is none."""
    module = type(loaded).__module__.partition(".")[0]
    return {"PIL": "pil", "numpy": "numpy", "torch": "tensor"}.get(module, "")
