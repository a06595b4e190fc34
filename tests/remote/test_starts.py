"""Readers of a remote pack that start, fork and die: a few rounds of `starts` and `crashes`, which can do hundreds."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import threading
from pathlib import Path

import pytest

import packer
from tests.remote import crashes, starts
from tests.remote.fileserver import Served
from tests.storage.remote.objects import serving

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return starts.make_pack(tmp_path_factory.mktemp("started"))


def test_workers_that_are_forked_start_again_and_again(pack: Path, served: Served, sweep: int) -> None:
    """Those that are spawned, and the processes of a Loader, take longer: test_reading.py starts them once."""
    # Eight starts have each state of the cache, with a fetcher and without.
    starts.run("fork", 8 * sweep, 60, served.url(pack), pack)


def test_a_start_that_hangs_is_found(pack: Path, served: Served) -> None:
    held = threading.Event()
    served.server.faults.append(lambda handler, asked: held.wait(20))
    try:
        with pytest.raises(RuntimeError, match=r"fork, start 1 of 2: Timeout \(0:00:02\)!\n(.*\n)*.*_start_many"):
            starts.run("fork", 2, 2, served.url(pack), pack)
    finally:
        held.set()
        served.server.faults.clear()


def digest(dataset: packer.ImageDataset) -> str:
    images = dataset.__getitems__(range(len(dataset)))
    return hashlib.sha256(b"".join(image.tobytes() + bytes([label]) for image, label in images)).hexdigest()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("cached", [True, False], ids=["disk", "memory"])
def test_a_fork_reads_beside_its_parent(pack: Path, served: Served, tmp_path: Path, cached: bool) -> None:
    """The fetcher runs, other threads read, and both processes read what nobody has fetched yet."""
    expected, url = digest(packer.open_dataset(pack, output="numpy")), served.url(pack)
    signal.alarm(100)  # ends this process if it hangs
    for number in range(6):
        kept = tmp_path / f"cache{number}" if cached else ""
        dataset = packer.open_dataset(url, output="numpy", cache_dir=kept, cache_size="1 GB")
        if number % 2:
            assert dataset[3][1] == 0
        others = [threading.Thread(target=digest, args=(dataset,)) for _ in range(2)]
        for other in others:
            other.start()
        come, go = os.pipe()
        child = os.fork()
        if not child:
            try:
                signal.alarm(60)
                os.write(go, digest(dataset).encode())
            finally:
                os._exit(0)
        os.close(go)
        found = [digest(dataset), os.read(come, 64).decode()]
        os.close(come)
        os.waitpid(child, 0)
        for other in others:
            other.join()
        assert found == [expected, expected]
    signal.alarm(0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("kind", crashes.KINDS)
def test_what_is_killed_amid_writes_leaves_a_cache_that_is_right(kind: str) -> None:
    data = random.Random(1).randbytes(1_500_001)
    with serving({"object": data}) as server:
        crashes.many(kind, 2, random.Random(2), server, data)
