"""Samples of different names become files of different names."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from packer._packs.export_layout import FileNames, below_files, free_name
from packer._table import Names

PARTS = st.sampled_from(["x", "x.jpg", "x.jpg.png", "x.jpg-1.png", "x-1", "a/x", "a/x.PNG", "é" * 127, "é" * 126])


@given(st.lists(PARTS | st.text("x.png-1", min_size=1, max_size=9), unique=True))
def test_no_two_are_alike_and_what_fits_stays(names: list[str]) -> None:
    files = FileNames(Names.of(names), (".png",))
    found = list(files)
    assert len(set(found)) == len(names) == len(files)
    assert [files[index] for index in range(len(names))] == found
    for name, file in zip(names, found, strict=True):
        assert file.lower().endswith(".png")
        assert len(file.rpartition("/")[2].encode()) <= 255
        if name.lower().endswith(".png"):
            assert file == name
        else:
            assert file.startswith(name[:120])
            assert file == name + ".png" or name + ".png" in found or len(name.encode()) > 251
    free = free_name(files, "x", ".png")
    assert free not in found
    assert list(FileNames(Names.of(names))) == names


def test_the_one_whose_name_it_is_keeps_it() -> None:
    names = ["a/x.jpg", "a/x.jpg.png", "a/y.jpg", "a/x.jpg-1"]
    files = FileNames(Names.of(names), (".png",))
    assert list(files) == ["a/x.jpg-2.png", "a/x.jpg.png", "a/y.jpg.png", "a/x.jpg-1.png"]


def test_names_below_another_name_are_found_however_deep_they_are() -> None:
    names = ["a/x", "x" + "/x" * 1500 + "/y", "a/xy", "x/x", "a/x/y/z"]
    assert list(below_files(Names.of(names))) == [(1, "x/x"), (4, "a/x")]


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from packer._packs.export_layout import FileNames, free_name
from packer._table import Names
names = [f"{'x' * 245}{number:06d}{end}" for number in range(20_000) for end in "ab"]
files = FileNames(Names.of(names), (".png",))
assert len(set(files)) == len(names)
assert max(map(len, files)) == 255
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits")
def test_long_names_that_meet_in_pairs_are_numbered_in_linear_time() -> None:
    """Both names of a pair are truncated to the same; with a number, so are those of a hundred pairs."""
    subprocess.run([sys.executable, "-c", LIMITED], check=True)


FREE = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from packer._packs.export_layout import FileNames, free_name
from packer._table import Names
names = ["labels.csv", *(f"labels-{number}.csv" for number in range(1, 20_000))]
assert free_name(FileNames(Names.of(names)), "labels", ".csv") == "labels-20000.csv"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits")
def test_a_name_is_found_though_twenty_thousand_candidates_are_taken() -> None:
    subprocess.run([sys.executable, "-c", FREE], check=True)
