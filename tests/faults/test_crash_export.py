"""After a kill at any moment, the same command continues an export and makes the same tree as without a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from packer._packs.export import export
from packer._table import Sample
from packer.errors import DestinationError
from tests.faults.crashes import CrashServer
from tests.samples import content, write_pack

NAMES = ["a/x.png", "a/deep/er/y.png", "b/z.png"]


def pack_of(directory: Path, *labels: int) -> Path:
    samples = [Sample(name, label, name.encode() * 9, 1, 1) for name, label in zip(NAMES, labels, strict=True)]
    return write_pack(directory / "pack.lmdb", "lmdb", samples, classes=["a", "b", "empty"])


@pytest.mark.parametrize("labels", [(0, 0, 1), (1, 0, 0)], ids=["tree", "labels.csv"])
def test_killed_before_and_amid_every_change_of_the_disk(
    crash_server: CrashServer, tmp_path: Path, labels: tuple[int, ...]
) -> None:
    pack, out = pack_of(tmp_path, *labels), tmp_path / "new" / "out"
    export(pack, tmp_path / "reference")
    expected, at = content(tmp_path / "reference"), 1
    while crash_server.export(pack, out, at=at) is None:
        assert crash_server.export(pack, out) is not None, f"killed at change {at}"
        assert content(out) == expected, f"killed at change {at}"
        shutil.rmtree(tmp_path / "new")
        at += 1
    assert at > 20
    assert content(out) == expected


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    pack, out = pack_of(tmp_path, 1, 0, 0), tmp_path / "out"
    export(pack, out)
    expected, whole, cut = content(out), out / NAMES[0], out / NAMES[1]
    before = os.stat(whole)
    os.link(cut, tmp_path / "linked")
    os.truncate(cut, 5)
    (out / NAMES[2]).unlink()
    assert export(pack, out) == 3
    assert content(out) == expected
    assert (os.stat(whole).st_ino, os.stat(whole).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (tmp_path / "linked").read_bytes() == NAMES[1].encode()[:5]  # a linked file is not written to


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("notes.txt", Path.touch),
        ("a/more.png", Path.touch),
        ("a/deep/x.png", Path.touch),
        ("photos", Path.mkdir),
        ("a/link", lambda path: path.symlink_to("/etc/passwd")),
        ("link", lambda path: path.symlink_to("a", target_is_directory=True)),
        ("empty", Path.touch),  # the name of a directory
        ("packer-Probe-0123456789abcdef", lambda path: path.write_text("not of an export")),
    ],
)
def test_a_directory_with_anything_else_in_it_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    pack, out = pack_of(tmp_path, 0, 0, 1), tmp_path / "out"
    (out / "a" / "deep").mkdir(parents=True)
    make(out / name)
    before = content(out)
    with pytest.raises(DestinationError, match=f"out: not empty, and {name} does not belong to this pack"):
        export(pack, out)
    assert content(out) == before


@pytest.mark.parametrize("data", [b"an older photo", NAMES[1].encode() * 10])
def test_a_file_with_other_bytes_is_never_overwritten(tmp_path: Path, data: bytes) -> None:
    pack, out = pack_of(tmp_path, 0, 0, 1), tmp_path / "out"
    (out / "a" / "deep" / "er").mkdir(parents=True)
    (out / NAMES[1]).write_bytes(data)
    with pytest.raises(DestinationError, match=f"{NAMES[1]}: already exists, and is not the sample"):
        export(pack, out)
    assert (out / NAMES[1]).read_bytes() == data
