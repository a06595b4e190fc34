"""A read orders a sample's blocks from the fetcher once; the fetcher requests each block from the server once."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from packer import Loader, RandomResizedCrop, open_dataset
from packer._storage.remote import client
from packer._storage.remote.cache import BLOCK
from packer._storage.remote.client import SMALL
from tests.command import started
from tests.conftest import Packs, Trees
from tests.pairs import pairwise
from tests.remote.fileserver import Served
from tests.storage.remote.objects import Asked

pytestmark = pytest.mark.filterwarnings("ignore:.*a random order")

FORMATS, KEPT = ["lmdb", "hdf5", "pth"], ["disk", "memory"]
FIRST = 64 << 10
"""Bytes of an object that come with its version, each time that it is opened."""


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=2, per_class=40, size=(150, 200))


@pytest.fixture(scope="module", params=FORMATS)
def pack(request: pytest.FixtureRequest, tree: Path, packs: Packs) -> Path:
    return packs(tree, request.param)


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Return a cache directory, or the empty string for the cache in memory."""
    return tmp_path / "kept" if request.param == "disk" else ""


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the cache in memory by an empty one."""
    monkeypatch.setattr(client._state, "memory", client.Memory(client.default_limit()))


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the verb of each order to the fetcher."""
    told, send = [], client.send

    def sent(fd: int, message: dict[str, Any], payload: bytes = b"") -> None:
        told.append(message["do"])
        send(fd, message, payload)

    monkeypatch.setattr(client, "send", sent)
    return told


def stored(pack: Path) -> tuple[Path, range]:
    """Return the file that contains a pack's samples, and their range of bytes in it."""
    with open_dataset(pack, output="bytes") as dataset:
        samples = [bytes(dataset[row][0]) for row in (0, len(dataset) - 1)]
    for file in [pack] if pack.is_file() else sorted(pack.iterdir()):
        content = file.read_bytes()
        if samples[0] in content:
            return file, range(content.index(samples[0]), content.index(samples[1]) + len(samples[1]))
    raise AssertionError("no file has the samples")


def twice(asked: Iterable[Asked], pack: Path, block: int) -> list[int]:
    """Return the blocks of the samples that were requested more than once."""
    file, samples = stored(pack)
    blocks = range(-(-max(samples.start, FIRST) // block), samples.stop // block)
    counts = Counter(
        number
        for one in asked
        if one.name == str(file)[1:] and one.begin is not None and one.end is not None and one.method == "GET"
        for number in range(one.begin // block, -(-one.end // block))
    )
    assert {*blocks} <= {*counts}, "all was read"
    return [number for number in blocks if counts[number] > 1]


@pairwise("pack", "kept", pack=FORMATS, kept=KEPT, how=[{"output": "bytes"}, {"crop": RandomResizedCrop(32)}])
def test_a_sample_is_one_order(
    pack: Path, served: Served, kept: Path | str, orders: list[str], how: dict[str, Any]
) -> None:
    begun = len(served.server.asked)
    with open_dataset(served.url(pack), cache_dir=kept, **how) as dataset:
        dataset[0]  # opens the file that contains the samples
        counts = []
        for _ in range(2):
            for row in range(0, 7 * len(dataset), 7):  # each row once, far from the previous one
                before = len(orders)
                dataset[row % len(dataset)]
                counts.append(len(orders) - before)
    assert max(counts[: len(dataset)]) == 1
    assert sum(counts[len(dataset) :]) == 0, "what was read once is ordered by nobody"
    assert {*orders[-sum(counts) :]} == {"fill"}
    assert twice(served.server.asked[begun:], pack, BLOCK if kept else SMALL) == []


@pairwise("pack", "kept", pack=FORMATS, kept=KEPT, how=[{"output": "bytes"}, {"crop": RandomResizedCrop(32)}])
def test_a_batch_is_one_order(
    pack: Path, served: Served, kept: Path | str, orders: list[str], how: dict[str, Any]
) -> None:
    begun = len(served.server.asked)
    with open_dataset(served.url(pack), cache_dir=kept, threads=4, **how) as dataset:
        dataset[0]
        for first in range(5):
            before = len(orders)
            dataset.__getitems__(range(first, len(dataset), 5))
            assert len(orders) - before <= 1
    assert twice(served.server.asked[begun:], pack, BLOCK if kept else SMALL) == []


@pairwise("pack", "kept", pack=FORMATS, kept=KEPT, shuffle=[True, False])
def test_a_loader_with_threads_asks_for_no_block_twice(
    pack: Path, served: Served, kept: Path | str, orders: list[str], shuffle: bool
) -> None:
    begun = len(served.server.asked)
    dataset = open_dataset(served.url(pack), crop=RandomResizedCrop(32), seed=1, cache_dir=kept)
    opening = len(orders)
    for _ in range(2):
        with Loader(dataset, 8, seed=3, shuffle=shuffle, threads=4) as loader:
            assert sum(len(labels) for _, labels in loader) == len(dataset)
    dataset.close()
    assert len(orders) - opening <= len(dataset), "fewer orders than samples"
    assert twice(served.server.asked[begun:], pack, BLOCK if kept else SMALL) == []


READER = """
import json, random, sys, packer
for line in iter(sys.stdin.readline, ""):
    url, kept, seed, output = json.loads(line)
    how = {"output": "bytes"} if output == "bytes" else {"crop": packer.RandomResizedCrop(32), "seed": 1}
    with packer.open_dataset(url, cache_dir=kept, cache_size="1 GB", **how) as dataset:
        print("open", flush=True)
        sys.stdin.readline()
        rows = random.Random(seed).sample(range(len(dataset)), len(dataset))
        if output == "loader":
            for _ in packer.Loader(dataset, 8, sampler=rows, threads=2):
                pass
        for row in rows:
            dataset[row]
    print("read", flush=True)
"""


class Reader:
    """A process that reads packs, one after the other."""

    def __init__(self) -> None:
        self._process = started(READER, environment={**os.environ, "PACKER_TIMEOUT": "20"})

    def tell(self, *words: object) -> None:
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert wait([self._process.stdout.fileno()], 60), "it still reads"
        return self._process.stdout.readline().rstrip()

    def close(self) -> None:
        self._process.__exit__(None, None, None)


@pytest.fixture(scope="module")
def readers() -> Iterator[list[Reader]]:
    """Two processes for all packs: starting one takes much longer than reading a pack."""
    started = [Reader(), Reader()]
    yield started
    for reader in started:
        reader.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems lack the locks, and may fetch a block twice")
@pairwise("pack", pack=FORMATS, seeds=[(1, 1), (1, 2)], output=["bytes", "loader"])
def test_two_processes_that_share_a_cache_ask_for_no_block_twice(  # noqa: PLR0917
    pack: Path, served: Served, tmp_path: Path, readers: list[Reader], seeds: tuple[int, int], output: str
) -> None:
    begun = len(served.server.asked)
    for reader, seed in zip(readers, seeds, strict=True):
        reader.tell(served.url(pack), str(tmp_path / "kept"), seed, output)
    assert [reader.answer() for reader in readers] == ["open", "open"]
    for reader in readers:  # at the same time, as far as possible
        reader.tell()
    assert [reader.answer() for reader in readers] == ["read", "read"]
    assert twice(served.server.asked[begun:], pack, BLOCK) == []
