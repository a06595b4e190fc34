"""benchmarks/read.py: its sections are consistent, and extensions load with stand-ins for CUDA's libraries."""

from __future__ import annotations

import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer

ROOT = Path(packer.__file__).parents[1]

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


EXTENSION = """
int versioned(void);
int named(void);
int own(void) { return 42; }
int theirs(void) { return versioned() + named(); }
"""


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("sections").SECTIONS


def test_every_side_can_be_asked_without_its_loader_installed(sections: Any) -> None:
    """The table leaves out a side whose loader is not installed, with the reason; so its module must be importable."""
    for section in sections.values():
        for side in section.sides:
            module = importlib.import_module(f"peers.{side.module}")
            assert module.REQUIRES
            assert module.NOTE
            inspect.signature(module.prepare).bind("tree", "directory", **side.prepare)
            if side.module != "own":  # passes all arguments on
                inspect.signature(module.open_loader).bind("pack", "train", 2, **side.open)


def test_goals_and_ratios_are_between_sides_of_the_section(sections: Any) -> None:
    for section in sections.values():
        names = [side.name for side in section.sides]
        assert len(set(names)) == len(names)
        assert {section.base, *(name for pair in section.goals for name in pair)} <= set(names)


def test_the_random_crop_of_peers_lies_in_the_image_and_has_the_areas_of_torchvisions(sections: Any) -> None:
    random_crop = importlib.import_module("peers").random_crop
    boxes = np.array([random_crop(300, 400) for _ in range(2000)])
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] > 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= (300, 400)).all()
    areas = boxes[:, 2] * boxes[:, 3] / (300 * 400)
    assert areas.min() > 0.07
    assert 0.4 < areas.mean() < 0.6
    assert random_crop(10, 1000)[2:] == (10, 13)  # no box with these areas and ratios fits


@pytest.mark.skipif(
    sys.platform != "linux" or not all(map(shutil.which, ("cc", "nm"))), reason="needs Linux and a C compiler"
)
def test_an_extension_loads_and_works_where_the_libraries_of_cuda_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    stand_in = importlib.import_module("decoders_without_cuda").stand_in
    needed = [tmp_path / "libone_cudart.so.13", tmp_path / "libtwo_cuda.so"]
    compile_library(needed[0], "int versioned(void) { return 1; }", versioned=True)
    compile_library(needed[1], "int named(void) { return 1; }")
    compile_library(tmp_path / "extension.so", EXTENSION, *map(str, needed), "-Wl,-rpath,$ORIGIN/extension.libs")
    for path in needed:
        path.unlink()
    extension = tmp_path / "extension.so"
    assert "cannot open shared object file" in called(extension, "own")
    stand_in([(extension, tmp_path / "extension.libs")], tmp_path)
    assert called(extension, "own") == "42\n"
    assert "This needs CUDA" in called(extension, "theirs")


def called(extension: Path, function: str) -> str:
    """Call a function in a process of its own, and return the output."""
    line = f"import ctypes; print(ctypes.CDLL({str(extension)!r}).{function}())"
    return subprocess.run(
        [sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout


def compile_library(path: Path, source: str, *options: str, versioned: bool = False) -> None:
    path.with_suffix(".c").write_text(source)
    if versioned:
        path.with_suffix(".map").write_text(f"{path.name} {{ global: *; }};\n")
        options = *options, f"-Wl,--version-script={path.with_suffix('.map')}"
    line = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", str(path.with_suffix(".c")), *options]
    subprocess.run([*line, "-o", str(path)], check=True)
