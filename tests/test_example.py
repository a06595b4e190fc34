"""The training example: runs on the CPU, with two ranks, and continues at the very next sample."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder

SCRIPT = Path(__file__).parents[1] / "examples" / "train.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="needs the repository's examples")


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("example")
    draw_imagefolder(root / "tree", classes=3, per_class=16, size=(48, 64))
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    return [str(root / "pack.lmdb")] * 2


WATCHED = f"""
import atexit, os, pathlib, runpy

@atexit.register
def say():
    for name in pathlib.Path("/proc/self/task").glob("*/comm"):
        print("thread at the end:", name.read_text().strip())

runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def run(
    packs: list[str],
    checkpoint: Path,
    *options: str,
    launcher: tuple[str, ...] = (),
    script: Path = SCRIPT,
    status: int = 0,
    device: str = "cpu",
) -> str:
    command = [sys.executable, *launcher, str(script), *packs, "--arch", "tiny", "--size", "32", "--batch-size", "4"]
    command += ["--threads", "1", "--lr", "0.05", "--checkpoint", str(checkpoint), *options]
    devices = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    environment = os.environ | devices
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert result.returncode == status, result.stderr
    return result.stdout if status == 0 else result.stderr


def test_continuing_equals_running_through(packs: list[str], tmp_path: Path) -> None:
    whole = run(packs, tmp_path / "whole.pt", "--epochs", "2")
    assert "epoch 1, step 24" in whole
    for stop in ("5", "17"):
        run(packs, tmp_path / "parts.pt", "--epochs", "2", "--save-every", stop, "--stop-after", stop)
    run(packs, tmp_path / "parts.pt", "--epochs", "2")
    assert run(packs, tmp_path / "parts.pt", "--epochs", "2").startswith("all 2 epochs are done; remove ")
    whole_state, state = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "parts"))
    assert state["step"] == whole_state["step"] == 24
    for name, values in whole_state["model"].items():
        assert torch.equal(values, state["model"][name]), name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_trains_and_goes_on(packs: list[str], tmp_path: Path) -> None:
    checkpoint = tmp_path / "gpu.pt"
    run(packs, checkpoint, "--epochs", "2", "--save-every", "5", "--stop-after", "5", device="cuda")
    assert "epoch 1, step 24" in run(packs, checkpoint, "--epochs", "2", device="cuda")
    assert torch.load(checkpoint, weights_only=True)["step"] == 24


def test_two_ranks(packs: list[str], tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone")
    output = run(packs, tmp_path / "two.pt", "--epochs", "2", "--stop-after", "4", launcher=launcher)
    assert output.count("epoch 0, step 4") == 1
    watched = tmp_path / "watched.py"
    watched.write_text(WATCHED)
    output = run(packs, tmp_path / "two.pt", "--epochs", "2", launcher=launcher, script=watched)
    assert "epoch 0, step 6" in output
    assert "epoch 1, step 12" in output
    assert "gloo" not in output, "a thread of gloo that outlives Python may abort the process"


def test_a_pack_that_fills_no_batch_is_refused(packs: list[str], tmp_path: Path) -> None:
    error = run(packs, tmp_path / "none.pt", "--batch-size", "49", status=1)
    assert error == f"{packs[0]}: 48 samples do not fill a batch of 49 on each rank; say a smaller --batch-size\n"
    assert not list(tmp_path.iterdir())
