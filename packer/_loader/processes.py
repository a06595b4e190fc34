"""Workers of a Loader that are processes and share the memory of the batches.

Python's lock lets only one thread of a process run Python code at a time. With dozens of cores this lock limits the
speed of one process, while several processes still scale. Each process runs `Threads`. A request lists images and the
region of the shared memory for them; the response confirms that the images are written.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._datasets.pipeline import Transform
from packer._datasets.protocol import Layout, LoaderDataset, Tensors
from packer._images.operations import crops_from
from packer._loader.batch import BatchFuture, BatchJob, BatchTransform, Postprocess, split
from packer._loader.threads import BATCHES_THE_LOOP_MAY_KEEP, Choices, Slot, Threads, Workers, WorkerSettings
from packer._storage.system import interrupts_held
from packer._table import Ints
from packer.errors import OptionTypeError, WorkerError

_REQUESTS_A_PROCESS = 4  # requests for one process's share of the images in progress, so that no process waits
_SENT = 2  # requests that a process has at a time: the current one and the next
_PATIENCE = 5  # seconds to wait for a process to end


_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for every device


class SharedMemory:
    """Memory shared with the child processes that get this object when they start (`Process(args=...)`).

    The memory has no name, so the system frees it when the last process ends, even if that process is killed.

    Parameters
    ----------
    size : int
        Number of bytes.

    Attributes
    ----------
    pixels : (size,) uint8 array
    """

    def __init__(self, size: int) -> None:
        buffer: Any
        self._fd: int | None = None
        if hasattr(os, "memfd_create"):  # unlike /dev/shm, it is not limited to 64 MB in many containers
            self._fd = os.memfd_create("packer-batches")
            weakref.finalize(self, os.close, self._fd)
            os.ftruncate(self._fd, size)
            buffer = mmap.mmap(self._fd, size)
        else:
            buffer = multiprocessing.get_context("spawn").RawArray(ctypes.c_uint8, size)
        self._buffer = buffer
        self.pixels = np.frombuffer(buffer, np.uint8)

    def __reduce__(self) -> Any:
        if self._fd is not None:
            return _attached, (reduction.DupFd(self._fd), self.pixels.size)
        return _pixels, (self._buffer,)


def _attached(duplicate: Any, size: int) -> npt.NDArray[np.uint8]:
    fd = duplicate.detach()
    try:
        return _pixels(mmap.mmap(fd, size))
    finally:
        os.close(fd)


def _pixels(buffer: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, np.uint8)


def page_lock(pixels: npt.NDArray[np.uint8]) -> None:
    """Page-lock an array's memory until the array is deleted, so that a GPU can copy directly from it.

    The caller must keep a reference to the array until a copy is done, because PyTorch tracks only memory that it
    page-locked itself.
    """
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = pixels.ctypes.data
    torch.cuda.check_error(cudart.cudaHostRegister(address, pixels.nbytes, _PORTABLE))
    weakref.finalize(pixels, _unlock, os.getpid(), cudart, address, pixels.base)


def _unlock(process: int, cudart: Any, address: int, memory: Any) -> None:
    """Undo `page_lock` while `memory` still exists; do nothing in a fork, where CUDA cannot be used."""
    if os.getpid() == process:
        cudart.cudaHostUnregister(address)


class _Region(NamedTuple):
    """The part of the shared memory that a batch uses: its offset in bytes, and the layout of the batch."""

    offset: int
    layout: Layout
    samples: int

    def tensors(self, pixels: npt.NDArray[np.uint8]) -> Tensors:
        return self.layout.tensors(pixels[self.offset :][: self.layout.bytes_for(self.samples)], self.samples)


class Processes(Workers):
    """Makes batches in several processes, each with its own threads.

    The processes are spawned, and receive the pickled dataset when a pass begins. They run until `close` is called or
    `owner` is deleted, and end when this process dies. They belong to this process only: a fork starts new ones.

    Parameters
    ----------
    owner : object
        The processes end when this object is deleted.
    settings : WorkerSettings
        The settings of the workers; each process has at least one thread. The memory is page-locked if batches are held
        until a device has copied them.
    size : int
        The size of the largest batch in bytes; 0 if only items are made.
    """

    def __init__(self, owner: object, settings: WorkerSettings, size: int) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[tuple[Future[Any], tuple[Any, ...]]] = deque()
        self._pickled = b""  # the dataset and the transforms that the processes have
        self._broken: WorkerError | None = None
        self._step = max(settings.images // (settings.processes * _REQUESTS_A_PROCESS), 1)
        self.size = size
        self._count, self._filling = settings.batches, 0
        memory = SharedMemory(max(size * (self._count + BATCHES_THE_LOOP_MAY_KEEP), 1))
        if settings.held and size:
            page_lock(memory.pixels)
        self._address = memory.pixels.ctypes.data
        slots = self._count + BATCHES_THE_LOOP_MAY_KEEP if size else 0
        self._slots = [Slot(memory.pixels[number * size :][:size]) for number in range(slots)]
        self._processes: list[_Process] = []
        self._finalizer = weakref.finalize(owner, self._close)
        try:
            for threads in _shares(settings.threads, settings.processes):
                own = settings._replace(threads=threads, images=self._step * _SENT)
                self._processes.append(_Process(self._read, memory, own))
        except BaseException:
            self.close()
            raise
        _STARTED.add(self)

    def close(self) -> None:
        self._finalizer()

    @property
    def usable(self) -> bool:
        """Whether all processes are alive and belong to this process, and enough of the shared memory is free."""
        enough = not self.size or self._free() >= self._count
        return self._broken is None and self._pid == os.getpid() and enough

    def begin(self, dataset: LoaderDataset, transform: Transform, batch_transform: BatchTransform = None) -> None:
        self._filling = 0
        pickled = _pickled({"dataset": dataset, "transform": transform, "batch_transform": batch_transform})
        if pickled == self._pickled:
            return
        self._pickled = b""
        begun: list[Future[Any]] = []
        with self._lock:
            if self._broken is not None:
                raise self._broken
            for process in self._processes:
                begun.append(Future())
                process.send(begun[-1], ("begin", pickled))
        for future in begun:
            future.result()
        self._pickled = pickled

    def resize(self, threads: int) -> None:
        with self._lock:
            if self._broken is None:
                for process, share in zip(self._processes, _shares(threads, len(self._processes)), strict=True):
                    process.send(Future(), ("resize", share))

    def _allocate(self, count: int, layout: Layout) -> Tensors:
        slot = next((slot for slot in self._slots if slot.free), None)
        if slot is None:
            raise WorkerError(f"all {len(self._slots)} batches in the shared memory of the processes are in use")
        self._filling += 1
        return slot.tensors(layout, count)

    def _decode(self, job: BatchJob, layout: Layout, memory: Tensors, choices: Choices) -> Sequence[BatchFuture]:
        count, indices = len(job.indices), job.indices
        region = _Region(memory[layout.parts[0].name].data_ptr() - self._address, layout, count)
        futures = [
            self._request("decode", region, some, indices[some], _as_bytes(choices[some]))
            for some in split(count, self._step)
        ]
        postprocess = job.postprocess
        if postprocess is None:
            return futures

        def request_postprocessing() -> list[Future[Any]]:
            some_of_all = postprocess.slices(count, self._step)
            return [self._request("postprocess", region, some, postprocess) for some in some_of_all]

        return [*futures, _after(futures, request_postprocessing)]

    def _make_items(self, job: BatchJob) -> Sequence[BatchFuture]:
        return [
            self._request("make_items", job.indices[some], job.plan.epoch, job.plan.seed)
            for some in split(len(job.indices), self._step)
        ]

    def _hand_out(self, memory: Tensors) -> Tensors:
        """Return the batch itself, or a copy if batches in progress need its memory."""
        self._filling -= 1
        if self._free() + self._filling >= self._count:
            return memory
        return {name: tensor.clone() for name, tensor in memory.items()}

    def forget(self) -> None:
        """Forget the processes in a fork, because they and their requests belong to the parent process."""
        for process in self._processes:
            process.forget()

    def _free(self) -> int:
        return sum(slot.free for slot in self._slots)

    def _request(self, *request: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._broken is not None:
                future.set_exception(self._broken)
            else:
                self._queue.append((future, request))
                self._dispatch()
        return future

    def _dispatch(self) -> None:
        """Send requests to the processes with the least work. The caller must hold the lock."""
        while self._queue:
            process = min(self._processes, key=lambda process: len(process.running))
            if len(process.running) >= _SENT:
                return
            future, request = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                process.send(future, request)

    def _read(self, process: _Process) -> None:
        """Receive the responses of a process until it ends."""
        try:
            while True:
                number, failed, drew = process.connection.recv()
                data = process.connection.recv_bytes()
                with self._lock:
                    self.drew = self.drew or drew
                    future = process.running.pop(number)
                    if self._broken is None:
                        self._dispatch()
                _resolve(future, failed, data)
        except (EOFError, OSError):
            self._fail(process)

    def _fail(self, process: _Process) -> None:
        """Make all requests fail, because a process ended."""
        error = WorkerError(process.cause_of_end())
        with self._lock:
            self._broken = self._broken or error
            lost = [*process.running.values()]
            lost += [future for future, _ in self._queue if future.set_running_or_notify_cancel()]
            process.running.clear()
            self._queue.clear()
        for future in lost:
            future.set_exception(self._broken)

    def _close(self) -> None:
        if self._pid != os.getpid():  # a fork does not have these threads and processes
            return
        for process in self._processes:
            process.process.terminate()
        for process in self._processes:
            if process.reader is not threading.current_thread():  # the garbage collector may run on any thread
                process.reader.join(_PATIENCE)
            if process.process.is_alive():
                process.process.kill()
                process.process.join(_PATIENCE)  # or it would stay a zombie


def _pickled(settings: Mapping[str, Any]) -> bytes:
    """Pickle the values of settings; raise TypeError, with the name of the setting, if a value cannot be pickled."""
    cannot = pickle.PicklingError, AttributeError, TypeError
    try:
        return pickle.dumps(tuple(settings.values()))
    except cannot as error:
        for name, value in settings.items():
            with contextlib.suppress(*cannot):
                pickle.dumps(value)
                continue
            raise OptionTypeError(
                f"processes= cannot pickle the {name} ({error}): define its functions at the top level of a module, "
                "not as lambdas or inside other functions; or leave out processes="
            ) from error
        raise


def _as_bytes(choices: Choices) -> Choices | bytes:
    """Return crops as bytes, because pickling their dtype takes longer than the data; other choices stay unchanged."""
    return choices.tobytes() if choices.dtype.names else choices


def _shares(threads: int, processes: int) -> list[int]:
    """Return the number of threads of each process, at least one."""
    return [max(threads // processes + (number < threads % processes), 1) for number in range(processes)]


class _Process:
    """A worker process, the thread that reads its responses, and the futures of pending requests by number."""

    def __init__(self, read: Callable[[_Process], None], memory: SharedMemory, settings: WorkerSettings) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, memory, settings), name="packer-worker", daemon=True)
        self.reader = threading.Thread(target=read, args=(self,), name="packer-answers", daemon=True)
        self.running: dict[int, Future[Any]] = {}
        self._count = 0
        try:
            with interrupts_held(), _without_rendezvous():
                self.process.start()
            self.reader.start()
        except BaseException:
            self.connection.close()
            if self.process.pid is not None:
                self.process.kill()
                self.process.join()
            raise
        finally:
            theirs.close()  # otherwise the connection would stay open when the process ends

    def send(self, future: Future[Any], request: tuple[Any, ...]) -> None:
        """Send a request; `future` gets the response."""
        self._count += 1
        self.running[self._count] = future
        with contextlib.suppress(OSError):  # the process died; the thread that reads its responses notices it
            self.connection.send((*request, self._count))

    def forget(self) -> None:
        """Forget the process in a fork: otherwise `multiprocessing` would kill it as a child when the fork ends."""
        self.connection.close()
        getattr(multiprocessing.process, "_children", set()).discard(self.process)

    def cause_of_end(self) -> str:
        """Wait for the process to end, and return the reason why it ended."""
        self.process.join(_PATIENCE)
        self.connection.close()
        code = self.process.exitcode
        if code is not None and code < 0:
            cause = f"was killed by signal {-code} ({signal.Signals(-code).name})"
            cause += ", which the system does when memory runs out" if code == -signal.SIGKILL else ""
        else:
            cause = (
                f"ended with exit code {code}; its output above has the reason. A script that uses `processes` must "
                "do its work below `if __name__ == '__main__':`, because each process imports the script"
            )
        return f"a worker process of the Loader (pid {self.process.pid}) {cause}."


@contextlib.contextmanager
def _without_rendezvous() -> Iterator[None]:
    """Hide from a new process the address at which the ranks of `torch.distributed` meet.

    If the user's script does its work without ``if __name__ == "__main__":``, the process would otherwise join the
    ranks and wait forever. Now it ends with an error, and `cause_of_end` names the remedy.
    """
    address = os.environ.pop("MASTER_ADDR", None)
    try:
        yield
    finally:
        if address is not None:
            os.environ["MASTER_ADDR"] = address


def _resolve(future: Future[Any], failed: bool, data: bytes) -> None:
    """Resolve a future with the response of a process."""
    try:
        response = pickle.loads(data)
    except Exception as unreadable:  # an item of a class that cannot be unpickled
        future.set_exception(unreadable)
        return
    if failed:
        error, text = response
        error.__cause__ = _RemoteTraceback(text)
        future.set_exception(error)
    else:
        future.set_result(response)


class _RemoteTraceback(Exception):  # noqa: N818
    """The cause of an error that was raised in another process; it shows the traceback from that process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _after(futures: Sequence[Future[Any]], then: Callable[[], Sequence[Future[Any]]]) -> Future[list[Any]]:
    """Call `then` when all `futures` are done; return a future that is done when the futures from `then` are done.

    The future has no results of its own. If one of `futures` fails or is cancelled, `then` is not called.
    """
    whole: Future[list[Any]] = Future()
    left = [then]  # emptied as soon as possible: `then` holds the memory of a batch, and futures hold `start`

    def start(failed: BaseException | None, cancelled: bool) -> None:
        then = left.pop()
        if not whole.set_running_or_notify_cancel():
            return
        try:
            begun = [] if failed is not None or cancelled else then()
        except BaseException as error:
            failed, begun = error, []
        _when_all(begun, lambda error, _: end(failed or error))

    def end(error: BaseException | None) -> None:
        if error is None:
            whole.set_result([])
        else:
            whole.set_exception(error)

    _when_all(futures, start)
    return whole


def _when_all(futures: Sequence[Future[Any]], call: Callable[[BaseException | None, bool], None]) -> None:
    """When all futures are done, call `call` with their first error, if any, and whether one was cancelled."""
    if not futures:
        call(None, False)
        return
    lock, left, cancelled, failed = threading.Lock(), len(futures), False, None

    def done(future: Future[Any]) -> None:
        nonlocal left, cancelled, failed
        with lock:
            left -= 1
            if future.cancelled():
                cancelled = True
            else:
                failed = failed or future.exception()
            if left:
                return
        call(failed, cancelled)

    for future in futures:
        future.add_done_callback(done)


def serve(connection: Connection, pixels: npt.NDArray[np.uint8], settings: WorkerSettings) -> None:
    """Serve the requests of a connection until it is closed; each worker process runs this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when this one ends
    torch.set_num_threads(1)
    torch.seed()  # otherwise random transforms would draw the same numbers in every process
    responses: queue.SimpleQueue[tuple[int, Sequence[BatchFuture]]] = queue.SimpleQueue()
    server = _Server(pixels, settings)
    threading.Thread(target=_respond, args=(connection, responses, server), daemon=True).start()
    while True:
        try:
            request, *arguments, number = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # without waiting for threads, whose results are not needed any more
        try:
            futures = getattr(server, request)(*arguments)
        except Exception as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            futures = [failed]
        responses.put((number, futures))


class _Server:
    """Serves the requests to a worker process; each kind of request has a method."""

    def __init__(self, pixels: npt.NDArray[np.uint8], settings: WorkerSettings) -> None:
        self._pixels = pixels
        self._workers = Threads(settings, [], alone=True)

    @property
    def drew(self) -> bool:
        return self._workers.drew

    def begin(self, pickled: bytes) -> Sequence[BatchFuture]:
        self._dataset, *transforms = pickle.loads(pickled)
        self._workers.begin(self._dataset, *transforms)
        return []

    def resize(self, threads: int) -> Sequence[BatchFuture]:
        self._workers.resize(threads)
        return []

    def decode(self, region: _Region, some: slice, indices: Ints, choices: Choices | bytes) -> Sequence[BatchFuture]:
        """Decode `some` of the samples of a batch."""
        self._dataset.ahead(indices)  # samples at a URL are fetched while threads work on earlier requests
        layout = region.layout
        if isinstance(choices, bytes):
            choices = crops_from(choices, (len(indices), layout.views) if layout.views else (len(indices),))
        part = {name: tensor[some] for name, tensor in region.tensors(self._pixels).items()}
        return self._workers.decode(indices, choices, part, layout)

    def postprocess(self, region: _Region, some: slice, postprocess: Postprocess) -> Sequence[BatchFuture]:
        """Postprocess `some` of the samples of a batch."""
        return self._workers.postprocess(postprocess, region.tensors(self._pixels), region.layout, some)

    def make_items(self, indices: Ints, epoch: int, seed: int) -> Sequence[BatchFuture]:
        self._dataset.ahead(indices)
        return self._workers.make_items(indices, epoch, seed)


def _respond(
    connection: Connection, responses: queue.SimpleQueue[tuple[int, Sequence[BatchFuture]]], server: _Server
) -> None:
    """Send back the result or the error of a request when all work for this request has ended."""
    while True:
        number, futures = responses.get()
        for future in futures:
            future.exception()  # waits for the end of the work
        failed = False
        try:
            data = pickle.dumps([item for future in futures for item in future.result() or ()], pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # a transform may raise any error
            failed, data = True, _pickled_error(error)
        try:
            connection.send((number, failed, server.drew))
            connection.send_bytes(data)
        except OSError:
            return


def _pickled_error(error: BaseException) -> bytes:
    """Pickle an error with the text of its traceback; an error that cannot be pickled becomes a RuntimeError."""
    text = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps((error, text))
        pickle.loads(data)
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    return data


_STARTED: weakref.WeakSet[Processes] = weakref.WeakSet()  # a forked process must forget them


def _forget_processes() -> None:
    for processes in list(_STARTED):
        processes.forget()
    _STARTED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_processes)
