"""Batches that are made in several processes, which share the batches' memory.

Python's lock lets one thread of a process at a time run Python code. With dozens of cores that lock limits a process,
and several processes go on scaling. Each process runs `Threads` over memory that all of them share. A task says which
images go where in that memory, and the answer says only that they are there.

What runs in each worker process of `packer._loader.processes`: threads that serve the requests of a connection.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._datasets.memory import IMAGES, Layout, SharedMemory, Slot, page_lock
from packer._datasets.pipeline import Transform
from packer._datasets.protocol import LoaderDataset
from packer._images.geometry import Crops
from packer._images.operations import crops_from
from packer._loader.threads import (
    BATCHES_THE_LOOP_MAY_KEEP,
    BatchTransform,
    Ending,
    Memory,
    Task,
    Threads,
    Workers,
    after,
    split,
)
from packer._storage.system import interrupts_held
from packer._table import Ints
from packer.errors import WorkerError

__all__ = ["Processes", "serve"]


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
        self, place: int, layout: Layout, count: int, some: slice, indices: Ints, crops: Any
    ) -> Sequence[Task]:
        """Decode `some` of the samples of a batch, which lies at a place of the memory."""
        self._dataset.ahead(indices)  # while threads are at work at what was asked for before
        if isinstance(crops, bytes):
            crops = crops_from(crops, (len(indices), layout.views) if layout.views else (len(indices),))
        share = {name: tensor[some] for name, tensor in self._memory(place, layout, count).items()}
        return self._workers.fill(share, layout, indices, crops)

    def finish(self, place: int, layout: Layout, count: int, some: slice, ending: Ending) -> Sequence[Task]:
        """Do what is left to do with `some` of the samples of such a batch."""
        return self._workers.finish_some(self._memory(place, layout, count), layout, ending, some)

    def _memory(self, place: int, layout: Layout, count: int) -> Memory:
        return layout.tensors(self._pixels[place:][: layout.bytes_for(count)], count)

    def make(self, indices: Ints, epoch: int, seed: int) -> Sequence[Task]:
        self._dataset.ahead(indices)
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
            failed, data = True, _pickled_error(error)
        try:
            connection.send((number, failed, server.drew))
            connection.send_bytes(data)
        except OSError:
            return


def _pickled_error(error: BaseException) -> bytes:
    """Return an error with the text of its traceback, pickled; as a RuntimeError where it cannot be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps((error, text))
        pickle.loads(data)
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    return data


_TASKS_A_PROCESS = 4  # tasks that a process's share of the images in work is cut into: none waits for the slowest image
_SENT = 2  # tasks that a process has at a time: one to work at, and the next
_PATIENCE = 5  # seconds that a process gets to end


class Processes(Workers):
    """Makes batches in several processes, each with threads of its own.

    The processes are spawned, and get the pickled dataset when an epoch begins. They stay until `close`, or until
    `owner` is collected, and end by themselves when this process dies. They belong to this process alone: a fork of it
    makes new ones.

    Parameters
    ----------
    owner : object
        The processes end with it.
    processes : int
        Number of processes.
    threads : int
        Number of threads of all processes together; each process has one at least.
    in_work : int
        Images that are in work at a time, of which tasks are cut.
    size : int
        Bytes of the largest batch; 0 where only items are made.
    count : int
        Batches that are in work at a time.
    pinned : bool
        Whether batches are page-locked.
    resizable : bool
        Whether `resize` may come: see `Threads`.
    """

    def __init__(  # noqa: PLR0917
        self,
        owner: object,
        processes: int,
        threads: int,
        in_work: int,
        size: int,
        count: int,
        pinned: bool,
        resizable: bool = False,
    ) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[tuple[Future[Any], tuple[Any, ...]]] = deque()
        self._settings = b""
        self._broken: WorkerError | None = None
        self._step = max(in_work // (processes * _TASKS_A_PROCESS), 1)
        self.size = size
        self._count, self._filling = count, 0
        memory = SharedMemory(max(size * (count + BATCHES_THE_LOOP_MAY_KEEP), 1))
        if pinned and size:
            page_lock(memory.pixels)
        self._address = memory.pixels.ctypes.data
        slots = count + BATCHES_THE_LOOP_MAY_KEEP if size else 0
        self._slots = [Slot(memory.pixels[number * size :][:size]) for number in range(slots)]
        in_a_process = self._step * _SENT
        self._workers = [_Worker(memory, share, in_a_process, resizable) for share in _shares(threads, processes)]
        self._readers = [
            threading.Thread(target=self._read, args=(worker,), name="packer-answers", daemon=True)
            for worker in self._workers
        ]
        for reader in self._readers:
            reader.start()
        self._finalizer = weakref.finalize(owner, self._close)
        _STARTED.add(self)

    def close(self) -> None:
        self._finalizer()

    @property
    def usable(self) -> bool:
        """Whether all processes live and are this process's, and enough memory is free of batches that are held."""
        enough = not self.size or self._free() >= self._count
        return self._broken is None and self._pid == os.getpid() and enough

    def begin(self, dataset: LoaderDataset, transform: Transform, batch_transform: BatchTransform = None) -> None:
        self._filling = 0
        settings = _pickled({"dataset": dataset, "transform": transform, "batch_transform": batch_transform})
        if settings == self._settings:
            return
        self._settings = b""
        begun: list[Future[Any]] = []
        with self._lock:
            if self._broken is not None:
                raise self._broken
            for worker in self._workers:
                begun.append(Future())
                worker.run(begun[-1], ("begin", settings))
        for future in begun:
            future.result()
        self._settings = settings

    def resize(self, threads: int) -> None:
        with self._lock:
            if self._broken is None:
                for worker, share in zip(self._workers, _shares(threads, len(self._workers)), strict=True):
                    worker.run(Future(), ("resize", share))

    def allocate(self, count: int, layout: Layout) -> Memory:
        slot = next((slot for slot in self._slots if slot.free), None)
        if slot is None:
            raise WorkerError(f"all {len(self._slots)} batches of the memory that processes share are in use")
        self._filling += 1
        return slot.tensors(layout, count)

    def fill(
        self, memory: Memory, layout: Layout, indices: Ints, crops: Crops, ending: Ending | None = None
    ) -> list[Future[list[Any]]]:
        place = self._place(memory, layout)
        tasks = [
            self._submit("decode", place, layout, len(indices), some, indices[some], share)
            for some in split(len(indices), self._step)
            for share in [crops[some].tobytes() if crops.dtype.names else crops[some]]
        ]
        return tasks if ending is None else [*tasks, after(tasks, lambda: self._finish(memory, layout, ending))]

    def _finish(self, memory: Memory, layout: Layout, ending: Ending) -> list[Future[list[Any]]]:
        begin, count = self._place(memory, layout), len(memory[IMAGES])
        step = self._step if ending.seed is None else count
        return [self._submit("finish", begin, layout, count, some, ending) for some in split(count, step)]

    def _place(self, memory: Memory, layout: Layout) -> int:
        return memory[layout.parts[0].name].data_ptr() - self._address

    def make(self, indices: Ints, epoch: int, seed: int) -> list[Future[list[Any]]]:
        return [self._submit("make", indices[some], epoch, seed) for some in split(len(indices), self._step)]

    def hand_out(self, memory: Memory) -> Memory:
        """Return the batch itself, or a copy where the batches that are in work at a time need its memory."""
        self._filling -= 1
        if self._free() + self._filling >= self._count:
            return memory
        return {name: tensor.clone() for name, tensor in memory.items()}

    def forget(self) -> None:
        """Let go of the processes, in a fork: they and what they are asked belong to the process that started them."""
        for worker in self._workers:
            worker.forget()

    def _free(self) -> int:
        return sum(slot.free for slot in self._slots)

    def _submit(self, *task: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._broken is not None:
                future.set_exception(self._broken)
            else:
                self._queue.append((future, task))
                self._dispatch()
        return future

    def _dispatch(self) -> None:
        """Send tasks to the processes with the least to do. The caller holds the lock."""
        while self._queue:
            worker = min(self._workers, key=lambda worker: len(worker.running))
            if len(worker.running) >= _SENT:
                return
            future, task = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                worker.run(future, task)

    def _read(self, worker: _Worker) -> None:
        """Take a process's answers until it ends."""
        try:
            while True:
                number, failed, drew = worker.connection.recv()
                data = worker.connection.recv_bytes()
                with self._lock:
                    self.drew = self.drew or drew
                    future = worker.running.pop(number)
                    if self._broken is None:
                        self._dispatch()
                _settle(future, failed, data)
        except (EOFError, OSError):
            self._fail(worker)

    def _fail(self, worker: _Worker) -> None:
        """Fail all tasks, because a process ended."""
        error = WorkerError(worker.last_words())
        with self._lock:
            self._broken = self._broken or error
            lost = [*worker.running.values()]
            lost += [future for future, _ in self._queue if future.set_running_or_notify_cancel()]
            worker.running.clear()
            self._queue.clear()
        for future in lost:
            future.set_exception(self._broken)

    def _close(self) -> None:
        if self._pid != os.getpid():  # in a fork, which has none of these threads and processes
            return
        for worker in self._workers:
            worker.process.terminate()
        for worker, reader in zip(self._workers, self._readers, strict=True):
            if reader is not threading.current_thread():  # the garbage collector runs anywhere
                reader.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()


def _pickled(settings: Mapping[str, Any]) -> bytes:
    """Return the values of settings, pickled; TypeError that names what cannot be."""
    cannot = pickle.PicklingError, AttributeError, TypeError
    try:
        return pickle.dumps(tuple(settings.values()))
    except cannot as error:
        for name, value in settings.items():
            with contextlib.suppress(*cannot):
                pickle.dumps(value)
                continue
            raise TypeError(
                f"processes= pickles the {name}, and that fails ({error}): its functions have to stand at the top of a "
                "module, which lambdas and functions within others do not; or leave out processes="
            ) from error
        raise


def _shares(threads: int, processes: int) -> list[int]:
    """Return how many threads each process has; one at least."""
    return [max(threads // processes + (number < threads % processes), 1) for number in range(processes)]


class _Worker:
    """A process, and the tasks that it was sent and has not answered yet."""

    def __init__(self, memory: SharedMemory, threads: int, in_work: int, resizable: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, memory, threads, in_work, resizable), name="packer-worker", daemon=True
        )
        with interrupts_held(), _without_rendezvous():
            self.process.start()
        theirs.close()  # or the connection would not end with the process
        self.running: dict[int, Future[Any]] = {}
        self._count = 0

    def run(self, future: Future[Any], task: tuple[Any, ...]) -> None:
        """Send a task, whose answer `future` gets."""
        self._count += 1
        self.running[self._count] = future
        with contextlib.suppress(OSError):  # the process died, and the thread that reads its answers finds that out
            self.connection.send((*task, self._count))

    def forget(self) -> None:
        """Let go of the process, in a fork: as a child of ours, `multiprocessing` would kill it when the fork ends."""
        self.connection.close()
        getattr(multiprocessing.process, "_children", set()).discard(self.process)

    def last_words(self) -> str:
        """Wait for the process to end, and return why it did."""
        self.process.join(_PATIENCE)
        self.connection.close()
        code = self.process.exitcode
        if code is not None and code < 0:
            cause = f"was killed by signal {-code} ({signal.Signals(-code).name})"
            cause += ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        else:
            cause = (
                f"ended with exit code {code}; what it wrote before says why. A script that uses `processes` does its "
                "work below `if __name__ == '__main__':`, because each process imports it"
            )
        return f"a worker process of the Loader (pid {self.process.pid}) {cause}."


@contextlib.contextmanager
def _without_rendezvous() -> Iterator[None]:
    """Hide from a process where the ranks meet.

    Where the program's script does its work without ``if __name__ == "__main__":``, the process would join the ranks,
    and wait for ever. So it ends with an error, and `last_words` says what to do.
    """
    met = os.environ.pop("MASTER_ADDR", None)
    try:
        yield
    finally:
        if met is not None:
            os.environ["MASTER_ADDR"] = met


def _settle(future: Future[Any], failed: bool, data: bytes) -> None:
    """Resolve a future with a process's answer."""
    try:
        answer = pickle.loads(data)
    except Exception as unreadable:  # an item of a class that cannot be unpickled
        future.set_exception(unreadable)
        return
    if failed:
        error, text = answer
        error.__cause__ = _Elsewhere(text)
        future.set_exception(error)
    else:
        future.set_result(answer)


class _Elsewhere(Exception):  # noqa: N818
    """The cause of an error that was raised in another process: shows the traceback from there."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


_STARTED: weakref.WeakSet[Processes] = weakref.WeakSet()  # to be forgotten by forks


def _forget_processes() -> None:
    for processes in list(_STARTED):
        processes.forget()
    _STARTED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_processes)
