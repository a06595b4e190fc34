"""Which names may become files; the rules for Windows are compared with Python's `pathlib`."""

from __future__ import annotations

import ntpath
import os
from pathlib import PureWindowsPath

import pytest
from hypothesis import given, strategies as st

from packer._storage.safe_open import name_problem, path_problem, windows_problem

ODD = st.sampled_from(
    [*'\\:|?*<>"/. \x1f\u00b9', "..", "aux", "CON", "com1", "LPT\u00b2", "conout$", "nul", "C:", "x", "a"]
)


def is_reserved(part: str) -> bool:
    isreserved = getattr(ntpath, "isreserved", None)  # since Python 3.13, in place of pathlib's
    return bool(isreserved(part) if isreserved else PureWindowsPath(part).is_reserved())


@given(st.lists(ODD | st.text(max_size=3), min_size=1, max_size=6).map("".join))
def test_what_windows_takes_for_a_plain_path_stays_below_a_directory(name: str) -> None:
    if name_problem(name) is None and windows_problem(name) is None:
        path = PureWindowsPath("Z:\\root", name)
        assert path.is_relative_to("Z:\\root")
        assert path.parts == ("Z:\\", "root", *name.split("/"))
        assert not any(map(is_reserved, name.split("/")))


@pytest.mark.parametrize(
    "name",
    [
        "..\\..\\Startup\\x",
        "C:\\evil",
        "C:evil",
        "aux",
        "a/NUL.txt",
        "con .txt",
        "COM\u00b9",
        "conin$",
        "x ",
        "x.",
        "a:b",
    ],
)
def test_names_that_windows_reads_otherwise(name: str) -> None:
    assert windows_problem(name) is not None
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["a/b.jpg", "..a/b", "a b/c.d", "caf\u00e9/x", "auxiliary/con1"])
def test_ordinary_names(name: str) -> None:
    assert path_problem(name) is windows_problem(name) is None


def test_a_part_that_is_longer_than_a_file_systems_names_becomes_no_path() -> None:
    unit, fits = ("characters", "é" * 255) if os.name == "nt" else ("bytes", "é" * 127 + "x")
    assert path_problem(f"a/{fits}/x.jpg") is None
    assert path_problem(f"a/{fits}x/x.jpg") == f"a part of its name has more than 255 {unit}"
