"""Reading files: it ends, whatever kind of file is at a path, and reused memory damages nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from packer._sources.base import ReadBuffer, Source
from packer._storage.stamps import NO_STAMP
from packer._table import Names
from packer.errors import ImageError
from tests.command import without_root_powers


def source_of(root: Path, *names: str) -> Source:
    return Source("csv", root, Names.of(names), np.zeros(len(names), np.int64), ["a"])


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / "dir.jpg").mkdir()
    (tmp_path / "dangling.jpg").symlink_to("nowhere")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    names = ["dir.jpg", "dangling.jpg", "loop.jpg", "gone.jpg", "x" * 300 + ".jpg", "dir.jpg/below.jpg"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo.jpg")
        names += ["fifo.jpg"]
    if os.path.exists("/dev/zero"):
        (tmp_path / "zero.jpg").symlink_to("/dev/zero")
        names += ["zero.jpg"]
    source = source_of(tmp_path, *names)
    buffer = ReadBuffer()
    for index, name in enumerate(names):
        with pytest.raises(ImageError, match="cannot be read: ") as caught:
            source.read(index, buffer)
        assert caught.value.name == name
    assert [source.stamp(index) for index in range(len(names))] == [NO_STAMP] * len(names)


def test_a_file_of_holes(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").touch()
    os.truncate(tmp_path / "x.jpg", 1 << 43)  # more than any memory
    with pytest.raises(ImageError, match=f"has {1 << 43} bytes, but a sample can have at most 2147483648"):
        source_of(tmp_path, "x.jpg").read(0, ReadBuffer())


@without_root_powers
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"data")
    (tmp_path / "x.jpg").chmod(0)
    code = "import sys; from packer._sources.base import ReadBuffer; ReadBuffer().read(sys.argv[1])"
    line = [sys.executable, "-c", code, str(tmp_path / "x.jpg")]
    if os.geteuid() == 0:
        line = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *line]
    assert "PermissionError" in subprocess.run(line, capture_output=True, text=True, check=False).stderr


def test_the_stamp_is_the_file_systems(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"12345")
    source = source_of(tmp_path, "x.jpg")
    status = os.stat(tmp_path / "x.jpg")
    data, stamp = source.read(0, ReadBuffer())
    assert bytes(data) == b"12345"
    assert stamp == source.stamp(0) == (5, status.st_mtime_ns)
    assert data.readonly


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 300) | st.sampled_from([0, 99, 100, 101, 5000]), max_size=12), st.integers(1, 200))
def test_files_read_into_one_buffer_do_not_disturb_each_other(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], room: int
) -> None:
    root = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(len(sizes))
    files = {f"{number}": rng.bytes(size) for number, size in enumerate(sizes)}
    for name, data in files.items():
        (root / name).write_bytes(data)
    buffer = ReadBuffer(room)
    for _ in range(3):
        buffer.reset()
        views = {name: buffer.read(str(root / name))[0] for name in files}
        assert {name: bytes(view) for name, view in views.items()} == files


def test_a_large_file_with_a_hole_is_read_whole(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.write(b"begin")
        file.seek(40 << 20, os.SEEK_CUR)
        file.write(b"end")
    data, (size, _) = ReadBuffer(10).read(str(tmp_path / "large"))
    assert size == (40 << 20) + 8
    assert data == b"begin" + bytes(40 << 20) + b"end"


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs a file in /proc, whose size is unknown")
def test_a_file_whose_size_is_not_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").symlink_to("/proc/self/status")
    with pytest.raises(ImageError, match="changed while it was read"):
        source_of(tmp_path, "x.jpg").read(0, ReadBuffer())
