"""Sides in processes of their own, and rounds in which they are measured in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from packer._measuring.harness import ChildProcess, ratio, relative_spread, rounds
from tests.measuring.objects import Reader


def test_a_side_is_measured_and_says_why_it_cannot_be_any_more() -> None:
    side = ChildProcess(Reader)
    images, measured = side.measure("read", 0.05)
    assert (images, side.note, side.reason) == (30, "as asked", None)
    assert 0 < measured.rate <= 600
    if sys.platform == "linux":
        assert measured.cpu_ms is not None
        assert measured.others is not None
    assert side.call("fail") is None
    assert side.reason == "OSError: the disk is gone"
    assert side.measure("read", 0.05)[0] == 0
    side.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_ctrl_c_does_not_reach_a_side_not_even_while_it_imports() -> None:
    side = ChildProcess(Reader)
    blocked = Path(f"/proc/{side._process.pid}/status").read_text("ascii").partition("SigBlk:")[2].split()[0]
    assert int(blocked, 16) >> signal.SIGINT - 1 & 1
    side.close()
    assert side._process.exitcode == -signal.SIGKILL  # `close` did not wait for the imports


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_others_take_a_share_of_the_cpus_however_few_are_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    line = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(line) for _ in os.sched_getaffinity(0)]
    side = ChildProcess(Reader)
    try:
        _, measured = side.measure("read", 0.3)
    finally:
        side.close()
        for process in others:
            process.kill()
            process.wait()
    assert measured.others is not None
    assert 0 < measured.others <= 1


@pytest.mark.parametrize(
    ("how", "method", "reason"),
    [
        ("missing", "read", "not installed: no module named 'quick'"),
        ("badly", "read", "ValueError: a wrong pack"),
        ("well", "die", "its process died"),
    ],
)
def test_a_side_that_cannot_be_made_or_dies_says_so(how: str, method: str, reason: str) -> None:
    side = ChildProcess(Reader, how)
    assert side.call(method) is None
    assert side.call("read", 0.0) is None
    assert side.reason == reason
    side.close()


def test_each_round_begins_with_another_side() -> None:
    assert list(rounds(3, 4)) == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_a_ratio_is_that_within_the_rounds() -> None:
    """The machine became ten times slower in the second round, for both."""
    assert ratio([200.0, 20.0, 200.0], [100.0, 10.0, 50.0]) == 2.0
    assert ratio([], [1.0]) is None
    assert relative_spread([90.0, 100.0, 110.0]) == pytest.approx(0.1)
