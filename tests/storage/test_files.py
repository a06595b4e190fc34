"""Appending to files."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from packer._storage.files import AppendFile, write_uncached

LONG = 3 << 20


@pytest.mark.parametrize("vectored", [True, False], ids=["writev", "write"])
def test_parts_of_all_lengths_are_written_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectored: bool
) -> None:
    if not vectored:
        monkeypatch.delattr(os, "writev", raising=False)  # as on Windows
    parts = [os.urandom(size) for size in (16, LONG, 0, 100, LONG + 1, *[7] * 2000, 1 << 19, 1)]
    file = AppendFile(tmp_path / "file")
    for start in range(0, len(parts), 4):
        file.append(*parts[start : start + 4])
    for part in parts:
        file.append(memoryview(part))
    assert file.size == 2 * sum(map(len, parts))
    file.flush()
    file.close()
    assert (tmp_path / "file").read_bytes() == 2 * b"".join(parts)


def test_what_is_not_to_be_cached_is_the_same_file_and_leaves_the_cache(disk_tmp: Path) -> None:
    path = disk_tmp / "file"
    with open(path, "wb") as file:
        if write_uncached(file.fileno(), [b"some"]) is None:
            pytest.skip("this system or its file system keeps in its cache what is written")
    parts = [os.urandom(1 << 20), b"x" * 4000, os.urandom(1 << 20)]
    for cached in (False, True):
        appended = AppendFile(path, cached=cached)
        appended.append(bytes(5000), *parts)
        appended.flush()
        appended.write_at(4096, b"corrected")  # as for a page that was written before it was complete
        appended.sync()
        pages = _pages_in_cache(path)
        for _ in range(100):  # the system drops them after they are on the disk
            if not cached and pages > 10:
                time.sleep(0.05)
                pages = _pages_in_cache(path)
        assert pages == -(-appended.size // mmap.PAGESIZE) if cached else pages <= 10
        appended.append(b"more")
        appended.flush()
        appended.close()
        expected = bytearray(bytes(5000) + b"".join(parts) + b"more")
        expected[4096:4105] = b"corrected"
        assert path.read_bytes() == expected


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a file system without a disk")
def test_a_file_system_that_has_nothing_but_its_cache_takes_the_same_bytes() -> None:
    directory = tempfile.mkdtemp(dir="/dev/shm")
    try:
        file = AppendFile(Path(directory, "file"), cached=False)
        file.append(b"first", bytes(1 << 20))
        file.append(b"last")
        file.flush()
        file.close()
        assert Path(directory, "file").read_bytes() == b"first" + bytes(1 << 20) + b"last"
    finally:
        shutil.rmtree(directory)


def _pages_in_cache(path: Path) -> int:
    """Count the pages of a file that the system has in its cache, without reading any."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
        at = np.frombuffer(mapped, np.uint8)
        held = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        found = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(at.ctypes.data), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(held.ctypes.data)
        )
        assert found == 0, os.strerror(ctypes.get_errno())
        del at
        return int((held & 1).sum())
