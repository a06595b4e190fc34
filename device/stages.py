"""The kernels of a batch in their order: the blocks and threads of each, and the buffers it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from device.batch import TABLES, Batch

Array = npt.NDArray[Any]

KINDS: dict[str, np.dtype[Any]] = {
    "uint8": np.dtype(np.uint8),
    "float16": np.dtype(np.uint16),
    "float32": np.dtype(np.uint32),
}
"""Types of results, and an integer type of the same size; in the order of the enumeration in ``pixels.h``."""

STAGES = ("tiles", "tables", "entropy", "idct", "weights", "across", "down")

WRITES = {
    "tiles": ("words", "spans_of_tiles", "status"),
    "tables": ("tables",),
    "entropy": ("status", "coefficients"),
    "idct": ("samples",),
    "weights": ("spans", "weights", "precisions"),
    "across": ("resized",),
    "down": ("out",),
}
"""The buffers of each stage that are the same on every machine; the order of tiles is not."""

THREADS = {"tiles": 128, "tables": 128, "entropy": 128, "idct": 128, "weights": 128, "across": 128, "down": 128}
"""Threads of a block."""

MOST = {"tiles": 256, "tables": 256, "entropy": 128, "idct": 128, "weights": 256, "across": 256, "down": 256}
"""The most that kernels have room for."""


class Table(NamedTuple):
    """How levels become results.

    Attributes
    ----------
    kind : one of KINDS
    planes : bool
        Whether the numbers of a colour lie together, or those of a pixel.
    numbers : (3, 256) array, optional
        The bits of the number that each level of each colour becomes; levels stay if the kind is uint8.
    """

    kind: str
    planes: bool
    numbers: Array | None = None


class Machine(Protocol):
    """A machine that runs kernels: a device, or the twin."""

    def put(self, array: Array) -> Any:
        """Return a copy of an array in the machine's memory."""

    def zeros(self, count: int, dtype: np.dtype[Any]) -> Any:
        """Return memory for so many numbers, all of them 0."""

    def clear(self, memory: Any) -> None:
        """Make all of it 0."""

    def fetch(self, memory: Any) -> Array:
        """Return a copy of the machine's memory."""

    def replace(self, memory: Any, array: Array) -> None:
        """Copy an array into memory of as many bytes."""

    def synchronise(self, name: str = "the kernels") -> None:
        """Wait for all that was launched; errors mention `name`."""

    def launch(self, name: str, blocks: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        """Run a kernel; arguments are memory and numbers of 32 bits."""


class Buffers(NamedTuple):
    """The memory of a batch, on a machine; `memory` has the names that `WRITES` and the arguments of stages use."""

    memory: dict[str, Any]
    dtypes: dict[str, np.dtype[Any]]


class Stage(NamedTuple):
    """A kernel of a batch: see `Machine.launch`."""

    name: str
    blocks: tuple[int, int]
    threads: int
    arguments: tuple[Any, ...]


def buffers_of(machine: Machine, batch: Batch, table: Table) -> Buffers:
    """Return the memory of a batch: the arrays from the host, and buffers of zeros."""
    numbers = np.zeros(1, np.uint32) if table.numbers is None else table.numbers
    given = {"slab": batch.slab, "groups": batch.groups.view(np.uint8), "images": batch.images.view(np.uint8)}
    given |= {"chunks": batch.chunks.view(np.uint8), "says": batch.says, "quanta": batch.quanta, "table": numbers}
    sizes = batch.sizes
    made: dict[str, tuple[int, np.dtype[Any]]] = {
        "words": (sizes["words"], np.dtype(np.uint32)),
        "spans_of_tiles": (2 * sizes["tiles"], np.dtype(np.uint32)),
        "status": (sizes["tiles"], np.dtype(np.uint8)),
        "order": (sizes["order"], np.dtype(np.uint32)),
        "tables": (TABLES.itemsize * len(batch.images), np.dtype(np.uint8)),
        "coefficients": (64 * sizes["blocks"], np.dtype(np.int16)),
        "samples": (sizes["samples"], np.dtype(np.uint8)),
        "spans": (2 * sizes["spans"], np.dtype(np.int32)),
        "weights": (sizes["weights"], np.dtype(np.int16)),
        "precisions": (sizes["precisions"], np.dtype(np.int32)),
        "resized": (sizes["resized"], np.dtype(np.uint32)),
        "out": (3 * sizes["pixels"], KINDS[table.kind]),
    }
    memory = {name: machine.put(np.ascontiguousarray(array).reshape(-1)) for name, array in given.items()}
    memory |= {name: machine.zeros(max(count, 1), dtype) for name, (count, dtype) in made.items()}
    return Buffers(memory, {name: dtype for name, (_, dtype) in made.items()})


def stages_of(batch: Batch, buffers: Buffers, table: Table, threads: dict[str, int] | None = None) -> Iterator[Stage]:
    """Yield the kernels of a batch in their order; the coefficients are 0 before.

    Parameters
    ----------
    threads : dict of str to int, optional
        The threads of a block, of some kernels; otherwise those of `THREADS`.
    """
    count, most = len(batch.images), {**THREADS, **(threads or {})}
    if not count:
        return
    of = buffers.memory
    # Blocks that go over an image of mean size once, and over a larger one in turns. With blocks for the largest, most
    # of the others' would be idle, and starting these takes longer than the work.
    blocks, across = -(-batch.sizes["blocks"] // (count * most["idct"])), -(-int(batch.images["height"].mean()) // 4)
    down, kind = -(-batch.out[0] * batch.out[1] // most["down"]), list(KINDS).index(table.kind)
    grids = {"tiles": (len(batch.groups), 1), "tables": (count, 1), "entropy": (len(batch.chunks), 1)}
    grids |= {"idct": (blocks, count), "weights": (2, count), "across": (across, count), "down": (down, count)}
    arguments: dict[str, tuple[Any, ...]] = {
        "tiles": (of["slab"], of["groups"], of["words"], of["spans_of_tiles"], of["status"]),
        "tables": (of["images"], of["says"], of["spans_of_tiles"], of["status"], of["order"], of["tables"]),
        "entropy": (
            *(of["images"], of["chunks"], of["tables"], of["words"], of["spans_of_tiles"]),
            *(of["status"], of["order"], of["coefficients"]),
        ),
        "idct": (of["images"], of["quanta"], of["coefficients"], of["samples"], blocks),
        "weights": (of["images"], of["spans"], of["weights"], of["precisions"]),
        "across": (
            *(of["images"], of["samples"], of["spans"], of["weights"], of["precisions"]),
            *(of["resized"], across),
        ),
        "down": (
            *(of["images"], of["resized"], of["spans"], of["weights"], of["precisions"]),
            *(of["out"], of["table"], kind, int(table.planes)),
        ),
    }
    for name in STAGES:
        yield Stage(name, grids[name], most[name], arguments[name])


class Run(NamedTuple):
    """The results of a batch.

    Attributes
    ----------
    out : (N, height, width, 3) or (N, 3, height, width) array
        The results of the images that are there; the bits of numbers.
    status : (N,) uint8 array
        The status of each image: the highest of its tiles.
    """

    out: Array
    status: Array


def run(
    machine: Machine,
    batch: Batch,
    table: Table,
    threads: dict[str, int] | None = None,
    after: Callable[[Stage, Buffers], None] | None = None,
) -> Run:
    """Run the kernels of a batch; `after` is called after each."""
    buffers = buffers_of(machine, batch, table)
    for stage in stages_of(batch, buffers, table, threads):
        machine.launch(*stage)
        if after is not None:
            after(stage, buffers)
    return result_of(machine, batch, buffers, table)


def result_of(machine: Machine, batch: Batch, buffers: Buffers, table: Table) -> Run:
    """Return the results of a batch after its kernels ran."""
    count, (height, width) = len(batch.images), batch.out
    status = machine.fetch(buffers.memory["status"])
    shape = (count, 3, height, width) if table.planes else (count, height, width, 3)
    out = machine.fetch(buffers.memory["out"]).view(buffers.dtypes["out"])[: 3 * batch.sizes["pixels"]].reshape(shape)
    return Run(out, np.array([status[tiles].max(initial=0) for tiles in batch.tiles], np.uint8))
