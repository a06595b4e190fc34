"""Forks with a live iterator: they end, may begin anew, and leave the parent's batches and processes alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")

SCRIPT = """
import os, sys, warnings
import psutil
import torch
from packer import open_dataset
from packer.crops import RandomResizedCrop
from packer.errors import WorkerError
from packer._loader.loader import Loader
from packer._loader.prefetch import BackgroundPrefetcher, CUDAPrefetcher

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
    # In a fork nothing can be freed on the device, which Python's clean-up would do.
    if device == "cuda":
        os._exit(status)
    sys.exit(status)

def dropped():
    global iterator
    del iterator
    sys.exit(11)

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
        assert "is a fork without its threads" in str(error)
        leave(15)

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads
    pack, processes, wrapper, device = sys.argv[1:]
    dataset = open_dataset(pack, crop=RandomResizedCrop(16, flip=0.5), seed=0)
    fresh = Loader(dataset, 4, shuffle=True, seed=0, threads=2)
    expected = passed(fresh)
    loader = Loader(dataset, 4, shuffle=True, seed=0, threads=2, processes=int(processes))
    prefetched = lambda loader: CUDAPrefetcher(loader, device)
    wrappers = {"none": iter, "background": BackgroundPrefetcher, "device": prefetched}
    iterator = iter(wrappers[wrapper](loader))
    made = [next(iterator)]
    kept = [made[0][0].clone()]
    for what in (left, began_anew, went_on) if device == "cuda" else (dropped, left, failed, began_anew, went_on):
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
    ("processes", "wrapper", "device"),
    [
        (0, "none", "cpu"),
        (2, "device", "cpu"),
        (0, "background", "cpu"),
        pytest.param(0, "device", "cuda", marks=ON_CUDA),
        pytest.param(2, "device", "cuda", marks=ON_CUDA),
    ],
)
def test_a_fork_ends_and_the_parent_goes_on(
    pack: Path, tmp_path: Path, processes: int, wrapper: str, device: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    program = subprocess.Popen(
        [sys.executable, str(script), str(pack), str(processes), wrapper, device],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = program.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, 9)
        raise
    assert program.returncode == 0, errors
    ended = [12, 14, 15] if device == "cuda" else [11, 12, 1, 14, 15]
    assert output.splitlines() == [*(f"status {status}" for status in ended), "True", "True", "True"], errors
    assert errors.count("Traceback") == (device != "cuda"), errors
    assert device == "cuda" or "SystemError: of the fork" in errors
