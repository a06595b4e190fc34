"""Whatever is opened is closed: files, threads, processes, memory."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import packer._conversion.workspace
from packer._conversion.convert import ConversionProgress, convert
from packer._datasets.open import open_dataset
from packer._loader.loader import Loader
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._table import Names
from tests.samples import SUFFIXES, solid

process = psutil.Process()
KB = 1 << 10


@pytest.fixture
def pack(photo_tree: Path, tmp_path: Path, format: str) -> Path:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    convert(imagefolder_source(photo_tree), path, options={"shard_size": 9000} if format == "pth" else {})
    return path


def held() -> tuple[int, int, int]:
    """Return how many files, threads and child processes there are."""
    gc.collect()
    files = process.num_fds() if hasattr(process, "num_fds") else len(process.open_files())
    return files, threading.active_count(), len(process.children(recursive=True))


def require_no_more(before: tuple[int, int, int]) -> None:
    """Assert that nothing was left open. Threads take time to end; files of earlier tests may be closed later."""
    deadline, now = time.monotonic() + 10, held()
    while any(one > other for one, other in zip(now, before, strict=True)):
        assert time.monotonic() < deadline, (now, before)
        time.sleep(0.05)
        now = held()


@pytest.mark.parametrize("format", SUFFIXES)
def test_opening_many_datasets(pack: Path, format: str) -> None:
    """Every second dataset is closed, the others are garbage."""

    def use(number: int) -> None:
        dataset = open_dataset(pack, output="bytes")
        assert len(dataset[number % len(dataset)]) == 2
        if number % 2:
            dataset.reader.close()

    for number in range(50):  # for allocations that happen once
        use(number)
    before, memory = held(), process.memory_info().rss
    count = 150
    for number in range(count):
        use(number)
    require_no_more(before)
    assert process.memory_info().rss - memory < 8 * KB * count


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than there may be CPUs
@pytest.mark.skipif(os.name == "nt", reason="needs workers that start fast")
@pytest.mark.parametrize("format", SUFFIXES)
def test_three_epochs_with_two_workers(pack: Path, format: str) -> None:
    dataset = open_dataset(pack)
    loader = torch.utils.data.DataLoader(dataset, 4, shuffle=True, num_workers=2, collate_fn=list)
    for _ in loader:
        pass
    before, memory = held(), process.memory_info().rss
    for _ in range(3):
        assert sum(map(len, loader)) == len(dataset)
    require_no_more(before)
    assert process.memory_info().rss < 1.05 * memory


@pytest.mark.parametrize("format", SUFFIXES)
def test_three_epochs_of_the_loader(pack: Path, format: str) -> None:
    loader = Loader(open_dataset(pack), 4, shuffle=True, threads=4, collate_fn=list)
    for _ in loader:
        pass
    before, memory = held(), process.memory_info().rss
    for _ in range(3):
        assert sum(len(batch) for batch in loader) == len(loader.dataset)
    require_no_more(before)
    assert process.memory_info().rss < 1.05 * memory


@pytest.mark.parametrize("format", SUFFIXES)
def test_packing_takes_no_more_memory_for_more_samples(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for each sample until the end would be found: a row of the table has 44 bytes and its name."""
    monkeypatch.setattr(packer._conversion.workspace, "_CHECKPOINT_SAMPLES", 100)
    solid(tmp_path / "tree" / "a" / "tiny.png", size=(40, 40))
    count = 10_000
    names, labels = Names.of(["a/tiny.png"] * count), np.zeros(count, np.int64)
    held: dict[int, int] = {}

    def note(progress: ConversionProgress) -> None:
        if progress.done % 500 < 64:
            held[progress.done] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        source = Source("csv", tmp_path / "tree", names, labels, ["a"])
        convert(source, tmp_path / f"pack{SUFFIXES[format]}", workers=1, progress=note)
    finally:
        tracemalloc.stop()
    early, late = (
        np.median([size for done, size in held.items() if low < done / count <= low + 0.3]) for low in (0.1, 0.7)
    )
    assert (late - early) / (0.6 * count) < 40  # bytes per sample; other memory varies by up to 25
