"""Threads that do a batch's work, a piece at a time."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from packer._loader.batch import split
from packer._loader.threads import SlicedFuture, ThreadPool
from tests.command import python


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(3)
    yield pool
    pool.end()
    pool.join()


class Memory:
    """An object that a finished job must release."""


def test_results_come_in_the_order_of_the_slices(pool: ThreadPool) -> None:
    last_began = threading.Event()

    def make(some: slice) -> list[int]:
        last_began.set() if some.start == 6 else last_began.wait()
        return [*range(some.start, min(some.stop, 8))]

    names = set[str]()

    def then_make(some: slice) -> list[int]:
        names.add(threading.current_thread().name)
        return [100 + some.start]

    assert SlicedFuture(pool.put, make, split(8, 3), (then_make, split(5, 2))).result() == [*range(8), 100, 102, 104]
    assert names <= {f"packer-loader_{number}" for number in range(3)}
    assert SlicedFuture(pool.put, make, []).result() == []
    assert SlicedFuture(pool.put, make, [], (then_make, [])).result() == []


def test_threads_end_where_ctrl_c_came_while_one_of_them_began(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    pool = ThreadPool(2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SlicedFuture(pool.put, lambda some: [some.start], split(1, 1))
    assert SlicedFuture(pool.put, lambda some: [some.start], split(3, 1)).result() == [0, 1, 2]
    before = {*threading.enumerate()}
    pool.end()
    joining = threading.Thread(target=pool.join, daemon=True)  # without the correction, it waits for ever
    joining.start()
    joining.join(30)
    assert not joining.is_alive()
    assert len(before - {*threading.enumerate()}) == 2  # including the thread whose start was interrupted


def test_the_first_slice_that_failed_is_told_when_all_have_ended(pool: ThreadPool) -> None:
    failed, ended, followed = threading.Event(), list[int](), list[int]()
    held = Memory()

    def make(some: slice, held: Memory = held) -> list[int]:
        if some.start == 1:
            failed.set()
            raise KeyError(some.start)
        failed.wait()
        time.sleep(0.05)
        ended.append(some.start)
        raise ValueError(some.start)

    def follow(some: slice) -> list[int]:
        followed.append(some.start)
        return []

    job = SlicedFuture(pool.put, make, split(3, 1), (follow, split(3, 1)))
    with pytest.raises(ValueError, match="0"):
        job.result()
    assert sorted(ended) == [0, 2]
    assert not followed
    error = job.exception()
    assert isinstance(error, ValueError)
    error.__traceback__ = None
    gone = weakref.ref(held)
    del job, make, held
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:  # the threads may still return from `make`
        time.sleep(0.001)
    assert gone() is None

    def wrong(some: slice) -> list[int]:
        raise OSError("what follows")

    with pytest.raises(OSError, match="what follows"):
        SlicedFuture(pool.put, follow, split(1, 1), (wrong, split(4, 1))).result()


def test_a_job_that_is_done_holds_no_memory(pool: ThreadPool) -> None:
    held = [Memory(), Memory()]
    gone = [weakref.ref(one) for one in held]

    def job_of(first: Memory, second: Memory) -> SlicedFuture:
        return SlicedFuture(pool.put, lambda _: [id(first)], split(4, 1), (lambda _: [id(second)], split(4, 1)))

    job = job_of(*held)
    del held
    assert len(job.result()) == 8
    assert [one() for one in gone] == [None, None]


def test_what_is_cancelled_ends_without_what_nobody_began(pool: ThreadPool) -> None:
    began, go_on, made = threading.Semaphore(0), threading.Event(), list[int]()

    def make(some: slice) -> list[int]:
        began.release()
        go_on.wait()
        made.append(some.start)
        return [some.start]

    job = SlicedFuture(pool.put, make, split(9, 1), (make, split(9, 1)))
    for _ in range(3):
        began.acquire()
    assert not job.cancel()
    waiter = threading.Thread(target=job.exception)
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    go_on.set()
    waiter.join()
    assert sorted(made) == [0, 1, 2]
    with pytest.raises(CancelledError):
        job.result()


def test_a_crew_that_is_stopped_leaves_nobody_waiting() -> None:
    pool, began, go_on = ThreadPool(1), threading.Event(), threading.Event()

    def make(some: slice) -> list[int]:
        began.set()
        go_on.wait()
        return [some.start]

    first = SlicedFuture(pool.put, make, split(1, 1))
    waiting = SlicedFuture(pool.put, make, split(3, 1))
    began.wait()
    threading.Timer(0.05, go_on.set).start()
    pool.stop()
    assert first.result() == [0]
    for job in (waiting, SlicedFuture(pool.put, make, split(2, 1), (make, split(1, 1)))):
        assert job.exception() is None
        with pytest.raises(CancelledError):
            job.result()


SCRIPT = """
import os, sys, time, warnings
from packer._loader.threads import SlicedFuture, ThreadPool
pool = ThreadPool(2)
def make(some):
    print("began", flush=True)
    time.sleep(0.2)
    print("ended", flush=True)
jobs = [SlicedFuture(pool.put, make, [slice(0, 1)]) for _ in range(500)]
time.sleep(0.1)
warnings.simplefilter("ignore")  # of forks of programs with threads
if hasattr(os, "fork") and os.fork() == 0:
    sys.exit(3)  # the fork has none of the threads
if hasattr(os, "wait"):
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
"""


def test_a_program_that_ends_waits_for_what_was_begun_alone() -> None:
    said = python(SCRIPT).stdout
    assert 2 <= said.count("began") == said.count("ended") < 500
