"""What runs in each worker process of `packer._loading.processes`: threads that serve the requests of a connection."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._images.operations import crops_from
from packer._loading.ending import Ending
from packer._loading.memory import Layout
from packer._loading.threads import Memory, Task, Threads
from packer._table import Ints

__all__ = ["serve"]


def serve(connection: Connection, pixels: npt.NDArray[np.uint8], threads: int, in_work: int, resizable: bool) -> None:
    """Serve the requests of a connection until it is closed; each worker process runs this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides when it ends
    torch.set_num_threads(1)
    torch.seed()  # or random transforms would do the same in every process
    answers: queue.SimpleQueue[tuple[int, Sequence[Task]]] = queue.SimpleQueue()
    server = _Server(pixels, threads, in_work, resizable)
    threading.Thread(target=_answer, args=(connection, answers, server), daemon=True).start()
    while True:
        try:
            request, *arguments, number = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # without waiting for threads whose work nobody wants any more
        try:
            tasks = getattr(server, request)(*arguments)
        except Exception as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            tasks = [failed]
        answers.put((number, tasks))


class _Server:
    """The requests that a process serves, as methods."""

    def __init__(self, pixels: npt.NDArray[np.uint8], threads: int, in_work: int, resizable: bool) -> None:
        self._pixels = pixels
        self._workers = Threads(threads, in_work, [], alone=True, resizable=resizable)

    @property
    def drew(self) -> bool:
        return self._workers.drew

    def begin(self, settings: bytes) -> Sequence[Task]:
        self._dataset, *transforms = pickle.loads(settings)
        self._workers.begin(self._dataset, *transforms)  # the threads of an earlier epoch are at rest, and end
        return []

    def resize(self, threads: int) -> Sequence[Task]:
        self._workers.resize(threads)
        return []

    def decode(  # noqa: PLR0917
        self, place: int, layout: Layout, count: int, some: slice, indices: Ints, crops: bytes
    ) -> Sequence[Task]:
        """Decode `some` of the samples of a batch, which lies at a place of the memory."""
        self._dataset._ahead(indices)  # while threads are at work at what was asked for before
        shape = (len(indices), layout.views) if layout.views else (len(indices),)
        share = {name: tensor[some] for name, tensor in self._memory(place, layout, count).items()}
        return self._workers.fill(share, layout, indices, crops_from(crops, shape))

    def finish(self, place: int, layout: Layout, count: int, some: slice, ending: Ending) -> Sequence[Task]:
        """Do what is left to do with `some` of the samples of such a batch."""
        return self._workers.finish_some(self._memory(place, layout, count), layout, ending, some)

    def _memory(self, place: int, layout: Layout, count: int) -> Memory:
        return layout.tensors(self._pixels[place:][: layout.bytes_for(count)], count)

    def make(self, indices: Ints, epoch: int, seed: int) -> Sequence[Task]:
        self._dataset._ahead(indices)
        return self._workers.make(indices, epoch, seed)


def _answer(connection: Connection, answers: queue.SimpleQueue[tuple[int, Sequence[Task]]], server: _Server) -> None:
    """Send the result or the error of each request back, when all of its tasks have ended."""
    while True:
        number, tasks = answers.get()
        for task in tasks:
            task.exception()  # waits
        failed = False
        try:
            data = pickle.dumps([item for task in tasks for item in task.result() or ()], pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # a transform may raise anything
            failed, data = True, _pickled(error)
        try:
            connection.send((number, failed, server.drew))
            connection.send_bytes(data)
        except OSError:
            return


def _pickled(error: BaseException) -> bytes:
    """Return an error with the text of its traceback, pickled; as a RuntimeError where it cannot be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps((error, text))
        pickle.loads(data)
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    return data
