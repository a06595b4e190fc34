"""What can be seen of a loader: its dataset, how it makes items and batches, and on how many workers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from packer._measuring.profiling.apart import Known, apart
from packer._measuring.profiling.clocks import Timed, Watch

__all__ = ["Seen", "as_in_a_worker", "innermost", "see", "watched"]

_WRAPPERS = ("source", "loader", "dataloader", "base_dataloader", "_loader")
_DEEPEST = 5

_STAGES = {"loader": "loading", "transforms": "transform", "transform": "transform", "target_transform": "transform"}
"""Attributes of datasets that are called for each item, with the stage that they are."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of a loader.

    Attributes
    ----------
    loader : object
        The innermost one, which makes the batches.
    kind : str
        ``"DataLoader"``, ``"Loader"`` (packer's), ``"packer.DataLoader"`` where packer's threads make its batches, or
        the name of its class.
    dataset : object, optional
        What items are taken of, where these can be asked for one by one.
    unseen : str
        Why stages cannot be separated; empty where they can.
    batch_size : int
    collate : callable, optional
    workers : int
        Processes that make batches; of packer's loaders without processes, threads. 0: the loop makes them itself.
    burst : int
        How many batches are made at the same time: a DataLoader's workers make one each.
    threaded : bool
        Whether several threads of one process make items.
    apart : bool
        Whether other processes than the loop's make the items.
    transform : callable, optional
        That of a packer Loader, in place of the dataset's.
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
    apart: bool = False
    transform: Any = None

    @property
    def of_packer(self) -> bool:
        """Whether the items are a pack's, or an index's, or some of such."""
        return all(map(_is_pack, self.leaves))

    @property
    def leaves(self) -> list[Any]:
        """The datasets below Subsets and several in a row."""
        return list(_leaves(self.dataset))

    def items(self, dataset: Any, indices: Sequence[int]) -> list[Any]:
        """Return items of `dataset` as the loader's workers make them."""
        if self.kind == "Loader" and self.of_packer:
            import numpy as np

            from packer._loading.joining import readable

            own = not _is_row_of_packs(dataset)  # then `watched` gave the transform to what is read
            return readable(dataset)._items(np.array(indices), 0, 0, None if own else self.transform)
        if hasattr(dataset, "__getitems__"):
            return list(dataset.__getitems__(list(indices)))
        return [dataset[index] for index in indices]


def innermost(loader: Any) -> Any:
    """Return what makes the batches below wrappers such as prefetchers."""
    for _ in range(_DEEPEST):
        if _is(loader, "packer._loading.loader", "Loader") or _is(loader, "torch.utils.data", "DataLoader"):
            return loader
        inner = next((getattr(loader, name, None) for name in _WRAPPERS if hasattr(loader, name)), None)
        if not hasattr(inner, "__iter__") or isinstance(inner, str | bytes):
            return loader
        loader = inner
    return loader


def see(loader: Any) -> Seen:
    """Return what can be seen of a loader."""
    loader = innermost(loader)
    name = type(loader).__name__
    if _is(loader, "packer._loading.loader", "Loader"):
        processes, threads = loader.processes, loader.threads
        return Seen(
            loader=loader,
            kind="Loader",
            dataset=loader.dataset,
            batch_size=loader.batch_size,
            collate=loader.collate_fn,
            workers=max(threads, processes),
            threaded=threads > max(processes, 1),
            apart=processes > 0,
            transform=loader.transform,
        )
    if not _is(loader, "torch.utils.data", "DataLoader"):
        return Seen(loader=loader, kind=name, unseen=f"a {name} does not show how it makes its batches")
    workers, dataset = loader.num_workers, loader.dataset
    made: dict[str, Any] = {"workers": workers, "burst": max(workers, 1), "apart": workers > 0}
    if _is(dataset, "torch.utils.data", "IterableDataset") or not hasattr(dataset, "__len__"):
        said = f"{type(dataset).__name__} gives its items in its own order, and not one by one"
        return Seen(loader=loader, kind="DataLoader", unseen=said, **made)
    if loader.batch_sampler is None:
        said = "the DataLoader has no batches (batch_size=None)"
        return Seen(loader=loader, kind="DataLoader", unseen=said, **made)
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
    if _is(loader, "packer._loading.dataloader", "DataLoader") and loader._source() is not None:
        made = {"workers": workers, "threaded": workers > 1, "collate": loader.collate_fn}
        return Seen(loader=loader, kind="packer.DataLoader", dataset=dataset, batch_size=size, **made)
    return Seen(loader=loader, kind="DataLoader", dataset=dataset, batch_size=size, collate=loader.collate_fn, **made)


def watched(dataset: Any, watch: Watch, transform: Any = None, known: Known | None = None) -> Any:
    """Return a copy of a dataset whose loading and transforms are timed; the dataset itself where it has no copy.

    The copy has a state of its own (`apart`). `transform` takes the place of a packer dataset's own. `known` are the
    copies that were made so far.
    """
    if _is_pack(dataset):
        return _watched_pack(dataset, watch, transform)
    if _is_row_of_packs(dataset):
        return dataset
    return _watched_own(dataset, watch, transform, {} if known is None else known)


def _watched_own(dataset: Any, watch: Watch, transform: Any, known: Known) -> Any:
    """Return a copy of a dataset that is not packer's, with its loading and transforms timed."""
    alike = apart(dataset, known)
    if alike is dataset:
        return dataset
    try:
        if type(dataset).__name__ == "Subset":
            alike.dataset = watched(dataset.dataset, watch, transform, known)
        elif type(dataset).__name__ == "ConcatDataset":
            alike.datasets = [watched(part, watch, transform, known) for part in dataset.datasets]
        for name, stage in _STAGES.items():
            function = getattr(alike, name, None)
            if callable(function) and not isinstance(function, Timed):
                setattr(alike, name, Timed(watch, stage, function))
    except Exception:  # a person's own class: setting its attributes may do anything
        return apart(dataset)
    return alike


def _watched_pack(dataset: Any, watch: Watch, transform: Any) -> Any:
    alike = dataset._alike()
    if transform is not None:
        alike.transform = apart(transform)
    prepared = alike._preparation
    timed = {
        name: Timed(watch, "transform", apart(function))
        for name in ("transform", "target_transform", "transforms")
        if (function := getattr(prepared, name)) is not None
    }
    if timed:
        known = alike.__dict__["_prepared"]
        alike.__dict__["_prepared"] = (known[0], known[1], prepared._replace(**timed))
    return alike


@contextlib.contextmanager
def as_in_a_worker(threads: int = 1) -> Iterator[None]:
    """Let torch use one thread, as a DataLoader's workers do."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is(value: Any, module: str, name: str) -> bool:
    """Tell whether a value is of a class, without importing the module: who has such a value has imported it."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _is_pack(dataset: Any) -> bool:
    return _is(dataset, "packer._loading.imagedataset", "ImageDataset")


def _is_row_of_packs(dataset: Any) -> bool:
    return _is(dataset, "packer._loading.concat", "ConcatImageDataset")


def _leaves(dataset: Any) -> Iterator[Any]:
    if type(dataset).__name__ == "Subset" and hasattr(dataset, "dataset"):
        yield from _leaves(dataset.dataset)
    elif type(dataset).__name__ in ("ConcatDataset", "ConcatImageDataset") and hasattr(dataset, "datasets"):
        for part in dataset.datasets:
            yield from _leaves(part)
    else:
        yield dataset
