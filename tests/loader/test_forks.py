"""Forks with a live iterator end, or begin a pass of their own, without effect on the parent's batches and workers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.command import started

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")

SCRIPT = """
import contextlib, gc, os, sys, warnings
import psutil
import torch
from packer import open_dataset
from packer.crops import RandomResizedCrop
from packer.errors import WorkerError
from packer._loader.loader import Loader
from packer._loader import prefetch
from packer._loader.prefetch import BackgroundPrefetcher, CUDAPrefetcher

class Stream:
    def record_event(self):
        return Event()
    def wait_event(self, event):
        pass
    def synchronize(self):
        assert os.getpid() == first

class Event:
    def query(self):
        assert os.getpid() == first
        return False
    def __del__(self):
        if os.getpid() != first:
            os.abort()  # as an event of CUDA does

def with_events(loader):
    # The prefetcher's work on a stream, where there is no device.
    torch.cuda.Stream = torch.cuda.current_stream = lambda device: Stream()
    torch.cuda.stream = contextlib.nullcontext
    prefetch._pinned = torch.clone
    prefetcher = CUDAPrefetcher(loader, "cpu")
    return prefetcher._on_cuda(prefetcher._begin())

def passed(loader):
    loader.set_epoch(0)
    return [(images.cpu().clone(), labels.tolist()) for images, labels in loader]

def same(made, expected):
    return len(made) == len(expected) and all(
        torch.equal(images.cpu(), others) and list(labels) == more
        for (images, labels), (others, more) in zip(made, expected)
    )

def in_fork(what):
    pid = os.fork()
    if not pid:
        what()  # and on to the end of the script, unless it leaves Python before
        return True
    status = os.waitpid(pid, 0)[1]
    print("status", os.waitstatus_to_exitcode(status), flush=True)
    return False

def leave(status):
    # As workers of a DataLoader end: Python's clean-up would free tensors on the device, which a fork cannot.
    if device == "cuda":
        os._exit(status)
    sys.exit(status)

def dropped():
    global iterator
    del iterator
    leave(11)

def left():
    leave(12)

def failed():
    raise SystemError("of the fork")

def began_anew():
    good = same(passed(loader), expected) and same(passed(fresh), expected)
    leave(14 if good else 1)

def went_on():
    try:
        next(iterator)
    except WorkerError as error:
        assert "is a fork, which has none of its threads" in str(error)
        leave(15)

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads
    first = os.getpid()
    gc.collect()
    gc.freeze()  # what is imported: a fork that ends would copy all of torch to collect it
    pack, processes, device, *names = sys.argv[1:]
    dataset = open_dataset(pack, crop=RandomResizedCrop(16, flip=0.5), seed=0)
    fresh = Loader(dataset, 4, shuffle=True, seed=0, threads=2)
    expected = passed(fresh)
    loader = Loader(dataset, 4, shuffle=True, seed=0, threads=2, processes=int(processes))
    prefetched = lambda loader: CUDAPrefetcher(loader, device)
    wrappers = {"none": iter, "background": BackgroundPrefetcher, "device": prefetched, "events": with_events}
    for name in names:
        print(name, flush=True)
        loader.set_epoch(0)
        iterator = iter(wrappers[name](loader))
        made = [next(iterator)]
        for what in (dropped, left, began_anew, went_on, *([failed] if device == "cpu" else [])):
            if in_fork(what):
                sys.exit(99)
            made.append(next(iterator))
        made += iterator
        print(same([(images, labels.tolist()) for images, labels in made], expected), flush=True)
        before = {child.pid for child in psutil.Process().children()}
        print(same(passed(loader), expected), flush=True)
        print(before <= {child.pid for child in psutil.Process().children()}, flush=True)  # the same processes
"""


ON_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


@pytest.mark.parametrize(
    ("processes", "device", "wrappers"),
    [
        (0, "cpu", ["none", "background", "device", "events"]),
        (1, "cpu", ["events", "device"]),  # a fork that begins anew starts a process of its own, which takes long
        pytest.param(0, "cuda", ["device"], marks=ON_CUDA),
        pytest.param(2, "cuda", ["device"], marks=ON_CUDA),
    ],
)
def test_a_fork_ends_and_the_parent_goes_on(
    pack: Path, tmp_path: Path, processes: int, device: str, wrappers: list[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with started(script, pack, processes, device, *wrappers) as program:
        try:
            output, errors = program.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, 9)
            raise
    assert program.returncode == 0, errors
    ended = [11, 12, 14, 15, *([1] if device == "cpu" else [])]
    each = [*(f"status {status}" for status in ended), "True", "True", "True"]
    assert output.splitlines() == [line for wrapper in wrappers for line in (wrapper, *each)], errors
    assert errors.count("Traceback") == (len(wrappers) if device == "cpu" else 0), errors
    assert device == "cuda" or "SystemError: of the fork" in errors
