"""Vectors in files: read into memory that forks share, or, for very large tables, read from the file each time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from packer._storage.packfile import PackFile
from packer._table import Names, Vector, column_checksum
from packer.errors import CorruptPackError

VALUES = np.arange(100_000, dtype="<i8")


@pytest.fixture(params=[True, False], ids=["held", "mapped"])
def vector(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vector:
    if not request.param:
        monkeypatch.setattr("packer._storage.packfile.MOST_HELD", 1000)
    (tmp_path / "file").write_bytes(bytes(8) + VALUES.tobytes())
    with PackFile(tmp_path / "file") as file:  # closed before the vector is read
        found = file.vectors({"a": (8, len(VALUES), "<i8")})["a"]
    assert isinstance(found, Vector)
    assert found.held == request.param
    return found


def test_every_way_to_the_elements_gives_them(vector: Vector) -> None:
    for found in (vector.array(), vector.copy(), vector[:]):
        assert np.array_equal(found, VALUES)
    assert not vector.copy().flags.writeable
    for part in (slice(5, 9), slice(-3, None), slice(9, 5), slice(None, None, 7), slice(9, 2, -2)):
        assert np.array_equal(vector[part], VALUES[part])
    assert [vector[0], vector[-1]] == [0, len(VALUES) - 1]
    with pytest.raises(IndexError):
        vector[len(VALUES)]
    assert column_checksum(vector) == column_checksum(VALUES)


def test_a_file_that_was_cut_is_an_error_until_the_vector_is_memory(vector: Vector, tmp_path: Path) -> None:
    read = vector.copy()
    os.truncate(tmp_path / "file", 4096)
    assert np.array_equal(read, VALUES)
    if vector.held:
        assert np.array_equal(vector.array(), VALUES)
        return
    for way in (vector.array, vector.copy, lambda: vector[50_000], lambda: vector[::2]):
        with pytest.raises(CorruptPackError, match="became shorter"):
            way()


def test_a_file_that_became_another_is_refused(vector: Vector, tmp_path: Path) -> None:
    vector.checksum = column_checksum(VALUES)
    with (tmp_path / "file").open("r+b") as file:
        file.write(bytes(8) + VALUES[::-1].tobytes())
    os.utime(tmp_path / "file", ns=(1, 1))
    for way in (vector.array, vector.copy):
        with pytest.raises(CorruptPackError, match="overwritten"):
            way()
    with (tmp_path / "file").open("r+b") as file:
        file.write(bytes(8) + VALUES.tobytes())
    os.utime(tmp_path / "file", ns=(2, 2))  # touched, with the original content
    assert np.array_equal(vector.array(), VALUES)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_what_a_fork_read_the_parent_has(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(VALUES.tobytes())
    with PackFile(tmp_path / "file") as file:
        vector = file.vectors({"a": (0, len(VALUES), "<i8")})["a"]
    assert isinstance(vector, Vector)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(vector.array(), VALUES) else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.truncate(tmp_path / "file", 0)
    assert np.array_equal(vector.array(), VALUES)


def test_names_of_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer._storage.packfile.MOST_HELD", 1000)
    expected = [f"a/{number}.jpg" for number in range(20_000)]
    plain = Names.of(expected)
    (tmp_path / "file").write_bytes(plain.ends.tobytes() + plain.blob.tobytes())
    with PackFile(tmp_path / "file") as file:
        vectors = file.vectors({"ends": (0, 20_000, "<i8"), "blob": (160_000, len(plain.blob), "|u1")})
    names = Names(vectors["blob"], vectors["ends"])
    assert list(names) == expected
    assert [names[0], names[-1], names[7:9]] == [expected[0], expected[-1], expected[7:9]]
    assert list(names.between(100, 200)) == expected[100:200]
