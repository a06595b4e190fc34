"""Random numbers of a Loader's transforms: reproducible where possible, otherwise with a warning."""

from __future__ import annotations

import os
import random
import socket
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, RandomSampler

from packer import Loader, RandomResizedCrop, open_dataset
from tests.command import python

SIZE = 40


def drawn(image: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.rand(1), torch.tensor([random.random(), np.random.rand(), image.float().mean()])])


def plain(image: torch.Tensor) -> torch.Tensor:
    return image.float()


def dataset_of(pack: Path, transform: Any = drawn) -> Any:
    return open_dataset(pack, transform, crop=RandomResizedCrop(16), output="tensor")


def numbers_of(loader: Any) -> torch.Tensor:
    return torch.cat([images for images, _ in loader])


@pytest.mark.usefixtures("quick_spawn")
def test_processes_of_one_thread_draw_by_seed_epoch_and_sample(pack: Path) -> None:
    epochs, states, rests = [], [], []
    for processes in (1, 2):
        torch.manual_seed(3)
        loader = Loader(dataset_of(pack), 5, shuffle=True, threads=processes, processes=processes)
        with loader:
            epochs.append([numbers_of(loader) for _ in range(2)])
            for _ in loader:
                states.append(loader.state_dict())
                break
            loader.load_state_dict(states[-1])
            rests.append(numbers_of(loader))
    assert states[0] == states[1]
    torch.manual_seed(9)
    with Loader(dataset_of(pack), 5, shuffle=True, threads=1, processes=1) as resumed:
        resumed.load_state_dict(states[1])
        assert torch.equal(numbers_of(resumed), rests[1])
    (one, other), again = epochs
    assert torch.equal(one, again[0])
    assert torch.equal(other, again[1])
    assert torch.equal(*rests)
    for column in range(3):  # torch, random, numpy
        assert len(torch.cat([one, other])[:, column].unique()) == 2 * SIZE


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(
    ("workers", "wrap"),
    [
        ({"threads": 2}, list),
        ({"threads": 2, "processes": 1}, list),
        ({"threads": 2}, lambda parts: [ConcatDataset(parts)]),
    ],
)
def test_several_threads_that_draw_are_warned_of_once(workers: dict[str, int], wrap: Any, pack: Path) -> None:
    (dataset,) = wrap([dataset_of(pack)])
    with warnings.catch_warnings(record=True) as caught, Loader(dataset, 5, **workers) as loader:  # type: ignore[arg-type]
        warnings.simplefilter("always")
        for _ in range(2):
            numbers_of(loader)
    (warning,) = caught
    assert "draws random numbers on several threads" in str(warning.message)
    assert "threads=8, processes=8" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("transform", "threads"),
    [(plain, 2), (None, 2), (drawn, 1)],
)
def test_nobody_is_warned_of_what_repeats(transform: Any, threads: int, pack: Path) -> None:
    dataset = dataset_of(pack, transform)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers_of(Loader(dataset, 5, threads=threads, sampler=RandomSampler(dataset)))


UNGUARDED = """
import sys, torch
from packer import CenterCrop, Loader, open_dataset
torch.distributed.init_process_group("gloo")
for batch in Loader(open_dataset(sys.argv[1], crop=CenterCrop(8)), 4, processes=1):
    pass
"""


def test_a_rank_whose_script_has_no_guard_is_told_so(pack: Path, tmp_path: Path) -> None:
    """The worker imports the script, but must not join the process group: the ranks would wait for ever."""
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1"}
    result = python(script, pack, environment=os.environ | ranks, check=False)
    assert result.returncode == 1
    assert "MASTER_ADDR expected" in result.stderr
    assert "must do its work below `if __name__ == '__main__':`" in result.stderr.splitlines()[-1]
