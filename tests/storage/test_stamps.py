"""Stamps: sizes and times of files, taken on one thread or on many, and the comparison of two stamps."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from packer._sources.base import ReadBuffer, Source
from packer._storage import stamps as subject
from packer._storage.stamps import MENDABLE, NO_STAMP, Stamp, same_stamp, stamp_at, take_stamps, what_changed
from packer._table import Names
from packer.errors import ImageChangedError

sizes = st.integers(0, 1 << 40)
times = st.integers(-(1 << 62), 1 << 62)


@pytest.mark.parametrize("slow", [0, 1000])
@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 10_000])
def test_they_are_the_file_systems(tmp_path: Path, count: int, slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_SLOW", slow)  # 0: all but the first files on threads
    names = [f"\udcff {number % 7}/é{number}" for number in range(count)]
    for number in range(7):
        (tmp_path / f"\udcff {number}").mkdir()
    for number, name in enumerate(names):
        if number % 10:
            (tmp_path / name).write_bytes(bytes(number % 13))
            os.utime(tmp_path / name, ns=(1, number * 10**9 + number))
    expected = [(number % 13, number * 10**9 + number) if number % 10 else NO_STAMP for number in range(count)]
    stamps = take_stamps(tmp_path, Names.of(names))
    assert stamps.dtype == np.int64
    assert stamps.shape == (count, 2)
    assert list(map(tuple, stamps.tolist())) == expected


def test_times_beyond_64_bits(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"1")
    try:
        os.utime(file, (1, 13_569_465_600))  # the year 2400
    except OSError as error:
        pytest.skip(f"needs a file system that knows the year 2400: {error}")
    if os.stat(file).st_mtime != 13_569_465_600:
        pytest.skip("needs a file system that knows the year 2400")
    source = Source("csv", tmp_path, Names.of(["x"]), np.zeros(1, np.int64), ["a"]).stamped()
    assert stamp_at(str(file)) == (1, (1 << 63) - 1)
    assert bytes(source.read(0, ReadBuffer())[0]) == b"1"


def test_a_nul_in_a_name(tmp_path: Path) -> None:
    assert take_stamps(tmp_path, Names.of(["a\0b"])).tolist() == [list(NO_STAMP)]


@given(st.tuples(sizes, times), st.tuples(sizes, times))
def test_which_are_the_same(one: Stamp, other: Stamp) -> None:
    assert same_stamp(one, one)
    assert same_stamp(MENDABLE, one)
    assert not same_stamp(one, NO_STAMP)
    assert not same_stamp(NO_STAMP, one)
    assert same_stamp(one, other) == same_stamp(other, one)
    if one[0] != other[0] or abs(one[1] - other[1]) >= 10**9:
        assert same_stamp(one, other) == (one == other)


@given(sizes, times, st.sampled_from([100, 10**3, 10**6, 10**9]), st.integers(1, 10**9 - 1))
def test_a_disk_that_keeps_less_of_a_time(size: int, when: int, grain: int, later: int) -> None:
    cut = size, when // grain * grain
    assert same_stamp((size, when), cut)
    if when % 100:  # a time with full precision equals only its own truncations
        other = (size, when + later)
        assert same_stamp((size, when), other) == any(
            other[1] % grain == 0 and when // grain == other[1] // grain for grain in (100, 10**3, 10**6, 10**9)
        )


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ((5, 1), (7, 2), "its size was 5 bytes and is now 7"),
        (
            (5, 1_000),
            (5, 10**18 + 2_000),
            "its modification time was 1970-01-01 00:00:00.000001 and is now 2001-09-09 01:46:40.000002 UTC",
        ),
        (
            (5, -1),
            (5, -(1 << 63)),
            "its modification time was 1969-12-31 23:59:59.999999 and is now 1677-09-21 00:12:43.145224 UTC",
        ),
        ((5, 1), NO_STAMP, "it was deleted or cannot be read"),
        (NO_STAMP, (5, 1), "it did not exist before"),
    ],
)
def test_what_is_said(before: Stamp, now: Stamp, said: str) -> None:
    assert what_changed(before, now) == said


def test_a_source_with_stamps_reads_nothing_else(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_bytes(b"12345")
    names = ["a", "b", "c", "d", "missing"]
    source = Source("csv", tmp_path, Names.of(names), np.zeros(5, np.int64), ["x"]).stamped()
    assert source.stamped() is source
    (tmp_path / "b").write_bytes(b"1234567")
    (tmp_path / "c").unlink()
    os.utime(tmp_path / "d", (1, 1))
    (tmp_path / "missing").write_bytes(b"")
    for part, offset in [(source, 0), (source.between(1, 5), 1)]:
        for index in range(len(part)):
            if names[index + offset] == "a":
                assert bytes(part.read(index, ReadBuffer())[0]) == b"12345"
                continue
            with pytest.raises(ImageChangedError, match="changed since it was listed: it") as caught:
                part.read(index, ReadBuffer())
            assert caught.value.name == names[index + offset]


def test_absolute_paths_count_from_nowhere(tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    (tmp_path / "root").mkdir()
    masks = [tmp_path / "masks" / f"{number}.png" for number in range(3)]
    for number, mask in enumerate(masks):
        mask.write_bytes(bytes(number + 1))
    stamps = take_stamps(tmp_path / "root", Names.of(["../masks/0.png", *map(str, masks)]))
    assert stamps[:, 0].tolist() == [1, 1, 2, 3]
