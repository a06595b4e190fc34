"""A conversion in parts on a Dask cluster: each worker makes one part at a time, with the threads that Dask gives it.

Workers read the source, and write the parts to a disk that all nodes see, or to an object store. Images are not sent
through the scheduler. This module assigns parts to workers itself, because Dask's scheduler would give n parts at once
to a worker with n threads.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any
from uuid import uuid4

from packer._conversion.convert import ConversionProgress
from packer._conversion.options import RunOptions, options_of
from packer._conversion.partition import Part, Partition, SharedSource
from packer._storage.system import available_cpus, interrupts_held
from packer.errors import ClusterError, MissingDependencyError, pip_install, printable

JOB_QUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
"""Job queues, and the class of `dask-jobqueue` for each."""

_JOBS: int = dict(options_of(RunOptions))["jobs"].assumed
"""The number of jobs that are submitted to a queue by default."""


def check_address(where: str) -> None:
    """Raise ClusterError if `where` is not an address that `open_client` supports."""
    kind, _, rest = where.partition(":")
    if kind == "local":
        known = re.fullmatch("[1-9][0-9]*", rest, re.ASCII) is not None
    elif kind == "file":
        known = rest != ""
    else:
        known = where in JOB_QUEUES or re.fullmatch(r"\w+://\S+", where) is not None
    if not known:
        raise ClusterError(
            f"--cluster {where!r} is not tcp://HOST:PORT, file:SCHEDULER.json, local:N with N of 1 or more, "
            f"or one of {', '.join(JOB_QUEUES)}"
        )


@contextlib.contextmanager
def open_client(where: str, jobs: int | None = None) -> Iterator[Any]:
    """Connect to a Dask cluster, or start one that ends with the block; yield a `distributed.Client`.

    Parameters
    ----------
    where : str
        The address of a scheduler (``tcp://host:8786``); ``file:PATH``, with the path of its scheduler file;
        ``local:N``, for N processes on this machine; or one of `JOB_QUEUES`, with the configuration of `dask-jobqueue`.
    jobs : int, optional
        Number of jobs to submit to a queue; by default 1.

    Raises
    ------
    ClusterError
        If there is no such cluster.
    MissingDependencyError
    """
    check_address(where)
    distributed = import_dask("distributed")
    kind, _, rest = where.partition(":")
    with contextlib.ExitStack() as opened:
        try:
            if kind == "local":
                workers = int(rest)
                with interrupts_held():  # otherwise Ctrl-C would end the workers with tracebacks
                    target = opened.enter_context(
                        distributed.LocalCluster(
                            n_workers=workers,
                            threads_per_worker=max(1, available_cpus() // workers),
                            dashboard_address=":0",
                            silence_logs=40,  # logging.ERROR; this module itself reports cancelled and failed parts
                        )
                    )
            elif where in JOB_QUEUES:
                target = opened.enter_context(getattr(import_dask("dask_jobqueue"), JOB_QUEUES[where])())
                target.scale(jobs=jobs or _JOBS)
            else:
                target = None
            if target is not None:
                client = distributed.Client(target)
            elif kind == "file":
                os.stat(rest)  # an error if there is no such file; Dask would wait for it
                client = distributed.Client(scheduler_file=rest)
            else:
                client = distributed.Client(where)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            advice = ""
            if where in JOB_QUEUES:
                advice = (
                    ". Describe the jobs in ~/.config/dask/jobqueue.yaml; scripts/slurm/jobqueue.yaml is an example"
                )
            raise ClusterError(f"--cluster {printable(where)}: {error}{advice}") from error
        yield opened.enter_context(client)


def import_dask(module: str) -> ModuleType:
    """Import a module of Dask; raise MissingDependencyError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"--cluster needs Dask: {pip_install('cluster')} ({error})") from error


_ATTEMPTS = 3
_TOPIC = "packer"
_SECONDS_BETWEEN_REPORTS = 0.5
_SECONDS_TO_WAIT_FOR_A_LOST_WORKER = 120.0  # it may be alive, and still be making the part


@dataclass(frozen=True)
class ClusterProgress(ConversionProgress):
    """The progress of a conversion on a cluster.

    Attributes
    ----------
    workers : int
        Number of workers at present.
    rates : dict of str to float
        Images per second for each node, over this run.
    """

    workers: int
    rates: dict[str, float]


def convert_on(
    client: Any,
    partition: Partition,
    source: SharedSource,
    *,
    workers: int | None = None,
    progress: Callable[[ClusterProgress], None] | None = None,
) -> list[Part]:
    """Make the parts that are missing, and return them; `packer._conversion.partition.finish` joins them.

    If a worker fails or is lost, its part is made again, on another worker if there is one.

    Parameters
    ----------
    client : distributed.Client
    partition : Partition
        The conversion in parts, which `Partition.begin` has begun with ``share=True``.
    source : SharedSource
    workers : int, optional
        The number of threads for each part; by default the threads that Dask gives to the worker.
    progress : callable, optional
        Called about twice a second, on the thread that called this function.

    Raises
    ------
    ClusterError
        If a part failed three times, or the scheduler is lost. If a part failed, all other parts are made before the
        error is raised.
    """
    images = len(source.open())
    watch = _Watch(partition, images)
    client.subscribe_topic(_TOPIC, watch.note)
    try:
        run = _Run(client, partition.missing(), lambda number: (partition, source, number, workers))
        try:
            for _ in run.steps():
                if progress is not None:
                    progress(watch.progress(len(run.workers)))
        finally:
            run.cancel()
    except OSError as error:
        raise ClusterError(
            f"the connection to the scheduler was lost: {error}. Run the same command to continue."
        ) from error
    finally:
        client.unsubscribe_topic(_TOPIC)
    if run.failed:
        causes = "\n".join(
            f"  part {number}: {printable(reasons[-1])}" for number, reasons in sorted(run.failed.items())
        )
        raise ClusterError(
            f"{len(run.failed)} of {partition.parts} parts failed {_ATTEMPTS} times, the other parts are "
            f"complete:\n{causes}\nFix the cause, and run the same command to make the missing parts."
        )
    return run.parts


class _Run:
    """Assigns parts to workers until all parts are made or have failed too often."""

    def __init__(self, client: Any, missing: list[int], arguments: Callable[[int], tuple[Any, ...]]) -> None:
        self._client = client
        self._arguments = arguments
        self._pending = deque(missing)
        self._running: dict[Any, tuple[int, str]] = {}  # maps a future to a part's number and a worker's address
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._tried: dict[int, set[str]] = {number: set() for number in missing}
        self._reasons: dict[int, list[str]] = {number: [] for number in missing}
        self.workers: set[str] = set()
        self.parts: list[Part] = []
        self.failed: dict[int, list[str]] = {}

    def steps(self) -> Iterator[None]:
        """Run until all parts are made or have failed; yield whenever the progress may have changed."""
        looked = -_SECONDS_BETWEEN_REPORTS
        while self._pending or self._running:
            if time.monotonic() - looked >= _SECONDS_BETWEEN_REPORTS:
                looked = time.monotonic()
                self.workers = set(self._client.nthreads())
                self._drop_lost()
                yield
            self._submit()
            with contextlib.suppress(Empty):
                ended = self._ended.get(timeout=_SECONDS_BETWEEN_REPORTS)
                while True:
                    self._end(ended)
                    ended = self._ended.get_nowait()
        yield

    def cancel(self) -> None:
        """Make the workers stop."""
        self._client.cancel(list(self._running))

    def _submit(self) -> None:
        """Give each worker a part. While enough parts remain, give each worker a second part, so that none waits."""
        busy = Counter(address for _, address in self._running.values())
        for ahead in range(2):
            for address in sorted(self.workers):
                if busy[address] == ahead and len(self._pending) > ahead * len(self.workers):
                    self._assign(address)
                    busy[address] += 1

    def _assign(self, address: str) -> None:
        number = next((number for number in self._pending if address not in self._tried[number]), self._pending[0])
        self._pending.remove(number)
        key = f"packer-part-{number}-{uuid4().hex}"
        future = self._client.submit(_make_part, *self._arguments(number), key=key, workers=[address])
        self._running[future] = number, address
        future.add_done_callback(self._ended.put)

    def _drop_lost(self) -> None:
        for future, (_, address) in list(self._running.items()):
            if address not in self.workers and not future.done():
                self._client.cancel([future])
                self._fail(future, f"its worker {address} was lost")

    def _end(self, future: Any) -> None:
        if future not in self._running:  # `_drop_lost` has given it up
            return
        if future.status == "finished":
            self.parts.append(future.result())
            del self._running[future]
        elif future.status == "error":
            self._fail(future, str(future.exception()))
        else:
            self._fail(future, f"its Dask task was {future.status}")

    def _fail(self, future: Any, reason: str) -> None:
        number, address = self._running.pop(future)
        self._tried[number].add(address)
        self._reasons[number].append(reason)
        if len(self._reasons[number]) < _ATTEMPTS:
            self._pending.append(number)
        else:
            self.failed[number] = self._reasons[number]


@dataclass(frozen=True)
class _Report:
    """A worker's report about the progress of its part.

    Attributes
    ----------
    part : int
    host : str
    begin : int
        The number of the part's images that were done before the worker began.
    done, skipped : int
        The number of the part's images that were processed, and of those among them that were left out.
    read : int
        The number of bytes that this worker has read for the part.
    """

    part: int
    host: str
    begin: int
    done: int
    skipped: int
    read: int


@dataclass
class _Node:
    """The number of images that a node has converted in this run, and the time at which the node began."""

    began: float
    images: int = 0


class _Watch:
    """The latest reports of the workers. They arrive on a thread of the client, and are read on another thread."""

    def __init__(self, partition: Partition, images: int) -> None:
        self._images = images
        self._before = images - sum(len(partition.rows(number, images)) for number in partition.missing())
        self._lock = threading.Lock()
        self._reports: dict[int, _Report] = {}  # the latest report of each part
        self._nodes: dict[str, _Node] = {}

    def note(self, event: tuple[float, Any]) -> None:
        """Store a report of `_make_part`, with its time."""
        when, content = event  # Dask has added the worker's address to the content
        report = _Report(**{field.name: content[field.name] for field in fields(_Report)})
        with self._lock:
            before = self._reports.get(report.part)
            node = self._nodes.setdefault(report.host, _Node(when))
            node.images += max(0, report.done - (report.begin if before is None else before.done))
            self._reports[report.part] = report

    def progress(self, workers: int) -> ClusterProgress:
        """Return the progress of the conversion, with the number of workers."""
        now = time.time()
        with self._lock:
            reports = list(self._reports.values())
            rates = {host: node.images / max(now - node.began, 1.0) for host, node in sorted(self._nodes.items())}
        return ClusterProgress(
            done=self._before + sum(report.done for report in reports),
            total=self._images,
            skipped=sum(report.skipped for report in reports),
            bytes_read=sum(report.read for report in reports),
            workers=workers,
            rates=rates,
        )


_one_at_a_time = threading.Lock()
"""A worker holds this lock while it makes a part. A second part, which was submitted ahead, waits for the lock."""


class _NotWantedError(Exception):
    """The client has ended, or has assigned the part to another worker."""


def _make_part(partition: Partition, source: SharedSource, number: int, workers: int | None) -> Part:
    """Make a part; this function runs on a worker, and reports its progress to the client."""
    distributed = import_dask("distributed")
    worker = distributed.get_worker()
    key, host = worker.get_current_task(), socket.gethostname()
    last, begin = time.monotonic(), -1

    def report(progress: ConversionProgress) -> None:
        nonlocal last, begin
        begin = progress.done if begin < 0 else begin
        if progress.done < progress.total and time.monotonic() - last < _SECONDS_BETWEEN_REPORTS:
            return
        last = time.monotonic()
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise _NotWantedError
        worker.log_event(
            _TOPIC,
            asdict(_Report(number, host, begin, progress.done, progress.skipped, progress.bytes_read)),
        )

    with _one_at_a_time:
        return partition.convert(
            source.open(),
            number,
            workers=workers or worker.state.nthreads,
            wait=_SECONDS_TO_WAIT_FOR_A_LOST_WORKER,
            progress=report,
        )
