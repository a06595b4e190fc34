"""Appending to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packer._storage.files import AppendFile

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
