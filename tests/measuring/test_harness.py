"""Limits of time, rounds in turn, and calls that are counted and timed."""

from __future__ import annotations

import os
import pickle
import threading
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from packer._measuring import harness
from packer._measuring.harness import ChildProcess, TimeLimit, best_cost, rounds, run_together, timed_calls
from tests.measuring.objects import Reader


def test_a_limit_shows_the_time_and_is_over_at_its_end() -> None:
    shown: list[tuple[float, float, str]] = []
    limit = TimeLimit(1000.0, lambda *now: shown.append(now))
    limit.show("threads=2")
    ((passed, seconds, subject),) = shown
    assert (seconds, subject) == (1000.0, "threads=2")
    assert 0 <= passed <= limit.passed
    assert limit.left <= 1000.0
    assert not limit.is_over
    assert TimeLimit(-1.0).is_over


def test_a_share_of_a_limit_has_its_beginning() -> None:
    limit = TimeLimit(1000.0)
    half, before = limit.until(0.5), limit.passed
    assert half.seconds == 500.0
    assert before <= half.passed <= limit.passed
    assert not half.is_over
    assert limit.until(0.0).is_over


def test_there_is_one_round_at_least_and_none_after_the_time() -> None:
    assert list(rounds(2, 5, TimeLimit(-1.0))) == [[0, 1]]
    assert len(list(rounds(2, 5, TimeLimit(1000.0)))) == 5
    assert list(rounds(4, 2, step=2)) == [[0, 1, 2, 3], [2, 3, 0, 1]]


def test_calls_go_on_until_there_are_enough() -> None:
    total, seconds = timed_calls(lambda: 10, 0.0, 3)
    assert (total, seconds >= 0) == (30, True)
    total, seconds = timed_calls(lambda: 1, 0.01)
    assert total >= 1
    assert seconds >= 0.01


def test_the_best_of_some_costs_ends_after_a_long_call() -> None:
    calls: list[int] = []
    best_cost(lambda: calls.append(1), 3)
    assert len(calls) == 3
    best_cost(lambda: calls.append(1), 3, enough=-1.0)
    assert len(calls) == 4


def test_threads_run_together_and_raise_the_first_error() -> None:
    met, numbers = threading.Barrier(3, timeout=60), set[int]()

    def work(number: int) -> None:
        met.wait()  # all three threads pass, or none
        numbers.add(number)

    run_together(work, 3)
    assert numbers == {0, 1, 2}

    def fail(number: int) -> None:
        if number == 1:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        run_together(fail, 2)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_a_child_that_hangs_ends_with_the_processes_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "_PATIENCE", 0.1)
    fifo = str(tmp_path / "held")
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        side = ChildProcess(Reader)
        side.call("start_child", fifo)
        with pytest.raises(BlockingIOError):  # the grandchild holds the other end
            os.read(held, 1)
        side._connection.send(("hang",))
        side.close()
        assert wait([held], 30), "the grandchild lives"
        assert os.read(held, 1) == b""
    finally:
        os.close(held)


def test_an_answer_that_cannot_be_pickled_is_an_error_in_words() -> None:
    side = ChildProcess(Reader)
    try:
        assert side.call("give_function") is None
        assert side.reason is not None
        assert "give_function.<locals>" in side.reason  # Python 3.13 says no more than that it cannot get it
    finally:
        side.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts the open files of a process by /proc")
def test_a_child_that_cannot_be_started_leaves_no_file_open() -> None:
    ChildProcess(Reader).close()  # starts the tracker of `multiprocessing`, which stays
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises((pickle.PicklingError, AttributeError)) as error:
        ChildProcess(lambda: None)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert error.tb is not None  # keeps its frames alive
