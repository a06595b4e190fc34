"""The kernels on a CUDA device equal their twin, and the program that measures them works."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from benchmarks.kernels import compare_stages
from device.batch import batch_of
from device.twin import Twin
from tests.command import python
from tests.device.crops import LEVELS, mutation, random_box, table_of, tiled
from tests.images.samples import SUBSAMPLINGS

ROOT = Path(__file__).parents[2]
MEASUREMENT = f"""
import os, runpy, sys
os.chdir({str(ROOT)!r})
sys.path.insert(0, os.getcwd())
runpy.run_module("benchmarks.kernels", run_name="__main__", alter_sys=True)
"""


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kind", ["uint8", "float16", "float32"])
def test_a_device_equals_the_twin(twin: Twin, kind: str) -> None:
    """Compare every buffer after every kernel, for sound and for damaged photos."""
    from device.cuda import Device

    chance, photos = random.Random(kind), []
    for subsampling in SUBSAMPLINGS:
        sound = tiled(subsampling, (131, 100))
        photos += [sound, *(mutation(sound, chance) for _ in range(20))]
    boxes = [random_box(photo, (40, 40), chance) for photo in photos]
    table = LEVELS if kind == "uint8" else table_of(kind, True)
    assert compare_stages(Device(), twin, batch_of(photos, boxes), table) == []


def test_the_measurement_runs_with_the_twin_as_the_device(twin: Twin, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--batches", "1,2", "--rounds", "1"]
    words += ["--equal", "6", "--damaged", "20", "--most", "4", "--json", str(tmp_path / "made.json")]
    done = python(MEASUREMENT, *words, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads((tmp_path / "made.json").read_text())
    assert [row["batch"] for row in made["batches"]] == [1, 2]
    assert all(row["ms"]["whole"] > 0 and row["symbols"] > row["longest"] > 0 for row in made["batches"])
    assert [check["differing_batches"] for check in made["compared"]] == [0, 0]
    assert made["compared"][1]["damaged"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA GPU")
def test_without_a_device_one_line_says_so() -> None:
    done = python(MEASUREMENT, "--small", check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"kernels: torch {torch.__version__} finds no CUDA device"
