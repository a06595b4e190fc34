"""The training example: runs on the CPU, with two ranks, and continues at the very next sample."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
import torch

from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.command import python

SCRIPT = Path(__file__).parents[1] / "examples" / "train.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="needs the repository's examples")
needs_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("example")
    draw_imagefolder(root / "tree", classes=3, per_class=16, size=(48, 64))
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    return [str(root / "pack.lmdb")] * 2


TORCHRUN = """
import sys
from torch.distributed.run import main

main(["--nproc-per-node", "2", "--standalone", "--run-path", "--start-method", "fork", *sys.argv[1:]])
"""
"""Runs torchrun, whose ranks are forks: torch is imported already, but not what a rank imports beside its group."""

WATCHED = f"""
import pathlib, runpy

runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
for name in pathlib.Path("/proc/self/task").glob("*/comm"):
    print("thread at the end:", name.read_text().strip())
"""

RUNS = f"""
import json, os, runpy, sys
import torch._dynamo  # optimizers import it, which takes longer than a run

def start(words, variables):
    child = os.fork()
    if child == 0:
        sys.argv[1:] = words
        os.environ.update(variables)
        runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
        sys.exit()
    return child

for ranks in json.loads(sys.argv[1]):
    children = [start(*rank) for rank in ranks]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(ranks)
    print("---", flush=True)
"""
"""Runs the script several times, one run after the other, each with a process for every rank."""

Rank = tuple[list[str], dict[str, str]]
CPU = {"CUDA_VISIBLE_DEVICES": ""}


def line(packs: list[str], checkpoint: Path, *options: str) -> list[str]:
    tiny = ["--arch", "tiny", "--size", "32", "--batch-size", "4", "--threads", "1", "--lr", "0.05"]
    return [*packs, *tiny, "--checkpoint", str(checkpoint), *options]


def outputs(*runs: list[Rank]) -> list[str]:
    """Run the script several times; return the output of each run, of all its ranks together."""
    return python(RUNS, json.dumps(runs)).stdout.split("---\n")[:-1]


@needs_forks
def test_continuing_equals_running_through(packs: list[str], tmp_path: Path) -> None:
    parts = line(packs, tmp_path / "parts.pt", "--epochs", "2")
    lines = [
        line(packs, tmp_path / "whole.pt", "--epochs", "2"),
        *([*parts, "--save-every", stop, "--stop-after", stop] for stop in ("5", "17")),
        parts,
        parts,
    ]
    whole, *_, again = outputs(*([(one, CPU)] for one in lines))
    assert "epoch 1, step 24" in whole
    assert again.startswith("all 2 epochs are done; remove ")
    whole_state, state = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "parts"))
    assert state["step"] == whole_state["step"] == 24
    for name, values in whole_state["model"].items():
        assert torch.equal(values, state["model"][name]), name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_trains_and_goes_on(packs: list[str], tmp_path: Path) -> None:
    checkpoint = tmp_path / "gpu.pt"
    whole = line(packs, checkpoint, "--epochs", "2")
    _, output = outputs([([*whole, "--save-every", "5", "--stop-after", "5"], {})], [(whole, {})])
    assert "epoch 1, step 24" in output
    assert torch.load(checkpoint, weights_only=True)["step"] == 24


@needs_forks
def test_two_ranks(packs: list[str], tmp_path: Path) -> None:
    whole = line(packs, tmp_path / "two.pt", "--epochs", "2")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = CPU | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [([*whole, "--stop-after", "4"], shared | {"RANK": rank, "LOCAL_RANK": rank}) for rank in "01"]
    (output,) = outputs(ranks)
    assert output.count("epoch 0, step 4") == 1
    watched = tmp_path / "watched.py"
    watched.write_text(WATCHED)
    result = python(TORCHRUN, watched, *whole, environment=os.environ | CPU)
    assert "epoch 0, step 6" in result.stdout
    assert "epoch 1, step 12" in result.stdout
    assert "gloo" not in result.stdout, "a thread of gloo that outlives Python may abort the process"


REFUSED = f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"


def test_a_pack_that_fills_no_batch_is_refused(packs: list[str], tmp_path: Path) -> None:
    words = line(packs, tmp_path / "none.pt", "--batch-size", "49")
    result = python(REFUSED, *words, environment=os.environ | CPU, check=False)
    assert result.returncode == 1
    assert (
        result.stderr == f"{packs[0]}: 48 samples do not fill a batch of 49 on each rank; say a smaller --batch-size\n"
    )
    assert not list(tmp_path.iterdir())
