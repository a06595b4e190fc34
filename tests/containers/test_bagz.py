"""Bagz: a file that bagz wrote, the vector of its specification, and files made by hand."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from packer._containers import Piece
from packer.errors import OptionError, SourceError
from tests.containers.everywhere import GOLDEN, IMAGES, everywhere, listed, opened

DATA = list(IMAGES.values())


def bag(path: Path, records: Sequence[bytes], *, apart: bool = False) -> Path:
    """Write records, and their end offsets after them or in a separate file."""
    ends = np.cumsum(list(map(len, records))).astype("<u8").tobytes()
    path.write_bytes(b"".join(records) + (b"" if apart else ends))
    if apart:
        path.with_name(f"limits.{path.name}").write_bytes(ends)
    return path


def test_a_file_of_bagz_gives_what_was_written(tmp_path: Path) -> None:
    seen = everywhere(GOLDEN / "bagz" / "images.bag", tmp_path)
    assert seen.data == DATA
    assert seen.names == ["images/0.jpg", "images/1.png", "images/2.jpg"]
    assert seen.labels == [-1, -1, -1]
    assert not len(listed(GOLDEN / "bagz" / "images.bag").copied)


def test_the_vector_of_the_specification(tmp_path: Path) -> None:
    vector = b"abcdef123catcat" + struct.pack("<3Q", 6, 9, 15)
    (tmp_path / "x.bag").write_bytes(vector)
    assert bag(tmp_path / "y.bag", [b"abcdef", b"123", b"catcat"]).read_bytes() == vector
    pieces = [entry.image for entry in opened(tmp_path / "x.bag").entries(0)]
    assert pieces == [Piece(0, 0, 6), Piece(0, 6, 3), Piece(0, 9, 6)]


def test_limits_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    bag(tmp_path / "x.bag", DATA, apart=True)
    assert everywhere(tmp_path / "x.bag", tmp_path).data == DATA
    assert everywhere(tmp_path / "*.bag", tmp_path).names == ["x/0.jpg", "x/1.png", "x/2.jpg"]
    limits = tmp_path / "limits.x.bag"
    limits.write_bytes(limits.read_bytes()[:-1])
    with pytest.raises(SourceError, match=r"limits\.x\.bag: 23 bytes are not a list of record limits"):
        listed(tmp_path / "x.bag")
    limits.write_bytes(limits.read_bytes()[:16])
    with pytest.raises(SourceError, match=r"x\.bag: damaged: its last record ends at byte 750 of 1414"):
        listed(tmp_path / "x.bag")


def test_shards_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2):
        bag(tmp_path / f"x-{number}-of-11.bag", [DATA[number == 10]])
    seen = everywhere(tmp_path, tmp_path.parent)
    assert seen.data == DATA[:2]
    assert seen.names == ["x-2-of-11/0.jpg", "x-10-of-11/0.png"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1234", "is not a Bagz file, or was cut short"),
        (b"abc" + struct.pack("<Q", 99), "is not a Bagz file, or was cut short"),
        (b"abcdef" + struct.pack("<2Q", 7, 6), "damaged: record 0 ends at byte 7"),
        (b"abcdef" + struct.pack("<3Q", 4, 3, 6), "damaged: record 1 ends at byte 3"),
        (b"", "no images in it"),
    ],
)
def test_ends_are_not_believed(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.bag").write_bytes(data)
    with pytest.raises(SourceError, match=message):
        listed(tmp_path / "x.bag")


def test_compressed_records_and_keys_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bagz").write_bytes(b"")
    with pytest.raises(SourceError, match=r"compressed\. Write them uncompressed, to a \.bag"):
        listed(tmp_path / "x.bagz")
    with pytest.raises(OptionError, match="bagz has no keys"):
        opened(GOLDEN / "bagz" / "images.bag", {"image": "x"})


@pytest.mark.skipif(sys.platform == "win32", reason="files have no holes by themselves")
def test_holes_in_a_file_promise_no_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file of any size costs nothing; its zeros read as empty records, and listing them would take hours."""
    monkeypatch.setattr("packer._containers.listing._FEW", 5000)
    for zeros in (0, 4096):
        path = tmp_path / "x.bag"
        path.write_bytes(bytes(zeros))
        os.truncate(path, 1 << 40)
        with pytest.raises(
            SourceError, match=r"lists 8,192 samples or more, although its files have only [0-9,]+ bytes"
        ):
            listed(path)
