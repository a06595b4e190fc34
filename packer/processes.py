"""Batches that are made in several processes, which share the batches' memory.

Python's lock lets one thread of a process at a time do what is not done by libraries. With dozens of cores that is
what limits a process, and several processes go on scaling. Each runs `Threads`, over memory that all of them share; a
task that it is sent says where in that memory which images go, and nothing but the answer that they are there comes
back.
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
from collections.abc import Iterator
from concurrent.futures import Future, wait
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer.datasets import ImageDataset
from packer.errors import WorkerError
from packer.slots import SharedMemory, Slot, images_in, page_lock
from packer.workers import HELD, Threads, Transform, Workers, split

__all__ = ["Processes"]

Ints = npt.NDArray[np.int64]

_PARTS_A_PROCESS = 4  # in work at a time, so that no process waits for the slowest image
_SENT = 2  # parts that a process is sent ahead of its answers: one to work at, and the next
_PATIENCE = 5  # seconds that a process has to end in


class Processes(Workers):
    """Makes batches in processes, on threads of theirs.

    The processes are started afresh (spawned), get the pickled dataset when an epoch begins, and stay until `close`,
    or until `owner` is collected; they end by themselves when this process dies.

    Parameters
    ----------
    owner : object
    processes : int
    threads : int
        Of all processes together; each has one at least.
    in_work : int
        Images that are in work at a time.
    size : int
        Bytes of the largest batch; 0 where only items are made.
    count : int
        Batches that are in work at a time.
    pinned : bool
        Whether batches are page-locked.
    """

    def __init__(  # noqa: PLR0917
        self, owner: object, processes: int, threads: int, in_work: int, size: int, count: int, pinned: bool
    ) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[tuple[Future[Any], tuple[Any, ...]]] = deque()
        self._settings = b""
        self._broken: WorkerError | None = None
        self._step = max(in_work // (processes * _PARTS_A_PROCESS), 1)
        self.size = size
        self._count, self._filling = count, 0
        memory = SharedMemory(max(size * (count + HELD), 1))
        if pinned and size:
            page_lock(memory.pixels)
        self._address = memory.pixels.ctypes.data
        self._slots = [Slot(memory.pixels[number * size :][:size]) for number in range(count + HELD)] if size else []
        shares = [max(threads // processes + (number < threads % processes), 1) for number in range(processes)]
        self._workers = [_Worker(memory, share, self._step * _SENT) for share in shares]
        self._readers = [
            threading.Thread(target=self._read, args=(worker,), name="packer-answers", daemon=True)
            for worker in self._workers
        ]
        for reader in self._readers:
            reader.start()
        self._finalizer = weakref.finalize(owner, self._close)

    def close(self) -> None:
        self._finalizer()

    @property
    def usable(self) -> bool:
        """Whether all processes live, and belong to this one rather than to one that it was forked from."""
        return self._broken is None and self._pid == os.getpid()

    def begin(self, dataset: ImageDataset, transform: Transform) -> None:
        self._filling = 0
        settings = pickle.dumps((dataset, transform))
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

    def allocate(self, count: int, height: int, width: int) -> torch.Tensor:
        self._filling += 1
        return next(slot for slot in self._slots if slot.free).images((count, height, width))

    def fill(self, images: torch.Tensor, indices: Ints, plan: Ints) -> list[Future[Any]]:
        _, channels, height, width = images.shape
        begin, size = images.data_ptr() - self._address, channels * height * width
        return [
            self._submit("fill", begin + some.start * size, (height, width), indices[some], plan[some])
            for some in split(len(indices), self._step)
        ]

    def make(self, indices: Ints, epoch: int, seed: int) -> list[Future[list[Any]]]:
        return [self._submit("make", indices[some], epoch, seed) for some in split(len(indices), self._step)]

    def hand_out(self, images: torch.Tensor) -> torch.Tensor:
        """Return the batch itself, or a copy where its memory is needed for those that are in work at a time."""
        self._filling -= 1
        enough = sum(slot.free for slot in self._slots) + self._filling >= self._count
        return images if enough else images.clone()

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
        """Send tasks to the processes with the least to do; needs the lock."""
        while self._queue:
            worker = min(self._workers, key=lambda worker: len(worker.running))
            if len(worker.running) >= _SENT:
                return
            future, task = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                worker.run(future, task)

    def _read(self, worker: _Worker) -> None:
        """Take a process's answers, until it ends."""
        try:
            while True:
                number, failed = worker.connection.recv()
                data = worker.connection.recv_bytes()
                with self._lock:
                    future = worker.running.pop(number)
                    if self._broken is None:
                        self._dispatch()
                _settle(future, failed, data)
        except (EOFError, OSError):
            self._fail(worker)

    def _fail(self, worker: _Worker) -> None:
        """Give up: a process ended, and the tasks that it had will not be done."""
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
        if self._pid != os.getpid():  # a fork has copies of all this, and no processes of its own
            return
        for worker in self._workers:
            worker.process.terminate()
        for worker, reader in zip(self._workers, self._readers, strict=True):
            if reader is not threading.current_thread():  # the garbage collector runs anywhere
                reader.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()


class _Worker:
    """A process, seen from outside: what it was sent and has not answered yet."""

    def __init__(self, memory: SharedMemory, threads: int, in_work: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, memory, threads, in_work), name="packer-worker", daemon=True
        )
        with _interrupts_held():
            self.process.start()
        theirs.close()  # so that the process's end is the connection's
        self.running: dict[int, Future[Any]] = {}
        self._count = 0

    def run(self, future: Future[Any], task: tuple[Any, ...]) -> None:
        """Send a task; its answer is for `future`."""
        self._count += 1
        self.running[self._count] = future
        with contextlib.suppress(OSError):  # the process died, which who reads its answers learns too
            self.connection.send((*task, self._count))

    def last_words(self) -> str:
        """Return why the process ended, when it has."""
        self.process.join(_PATIENCE)
        self.connection.close()
        code = self.process.exitcode
        if code is not None and code < 0:
            cause = f"was killed by signal {-code} ({signal.Signals(-code).name})"
            cause += ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        else:
            cause = f"ended with exit code {code}; what it wrote before says why"
        return (
            f"a worker process of the Loader (pid {self.process.pid}) {cause}. A script that uses `processes` does its "
            "work below `if __name__ == '__main__':`, because each process imports it."
        )


def _settle(future: Future[Any], failed: bool, data: bytes) -> None:
    """Give a future what a process answered."""
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


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back; a process that is started meanwhile never gets one, not even while it imports its modules.

    A signal that this thread blocks goes to another thread, and Python then interrupts the main thread all the same,
    which would leave a process behind that was started by half. So its handler is held back too.
    """
    held: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and callable(handler)
    blocking = hasattr(signal, "pthread_sigmask")
    if blocking:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # which unblocks the signal when it starts its process
    if ours:
        signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blocking else None
        try:
            yield
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


class _Elsewhere(Exception):  # noqa: N818
    """Shows where in another process an error was raised, as the cause of the error."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _serve(connection: Connection, pixels: npt.NDArray[np.uint8], threads: int, in_work: int) -> None:
    """Do what is asked for on `connection`, until it is closed: what a process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process decides when it ends
    torch.set_num_threads(1)
    torch.seed()  # or random transforms would do the same in every process
    answers: queue.SimpleQueue[tuple[int, list[Future[Any]]]] = queue.SimpleQueue()
    threading.Thread(target=_answer, args=(connection, answers), daemon=True).start()
    server = _Server(pixels, threads, in_work)
    while True:
        try:
            request, *arguments, number = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # threads may be at work, for nobody
        try:
            tasks = getattr(server, request)(*arguments)
        except Exception as error:
            tasks = [Future()]
            tasks[0].set_exception(error)
        answers.put((number, tasks))


class _Server:
    """What a process can be asked for."""

    def __init__(self, pixels: npt.NDArray[np.uint8], threads: int, in_work: int) -> None:
        self._pixels = pixels
        self._workers = Threads(threads, in_work, [])

    def begin(self, settings: bytes) -> list[Future[Any]]:
        self._workers.begin(*pickle.loads(settings))  # the threads of an earlier epoch are at rest, and end
        return []

    def fill(self, place: int, size: tuple[int, int], indices: Ints, plan: Ints) -> list[Future[Any]]:
        height, width = size
        pixels = self._pixels[place:][: len(indices) * height * width * 3]
        return self._workers.fill(images_in(pixels, (len(indices), height, width)), indices, plan)

    def make(self, indices: Ints, epoch: int, seed: int) -> list[Future[Any]]:
        return self._workers.make(indices, epoch, seed)


def _answer(connection: Connection, answers: queue.SimpleQueue[tuple[int, list[Future[Any]]]]) -> None:
    """Send back what became of each request, when all of its tasks have ended."""
    while True:
        number, tasks = answers.get()
        wait(tasks)
        failed = False
        try:
            data = pickle.dumps([item for task in tasks for item in task.result() or ()], pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # whatever a transform raises
            failed, data = True, _pickled(error)
        try:
            connection.send((number, failed))
            connection.send_bytes(data)
        except OSError:
            return


def _pickled(error: BaseException) -> bytes:
    """Return an error with the text of its traceback, pickled; or a RuntimeError that tells what it was."""
    text = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps((error, text))
        pickle.loads(data)
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    return data
