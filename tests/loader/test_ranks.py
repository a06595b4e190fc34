"""The ranks of torch.distributed divide the samples among themselves, whichever sampler made the order."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.command import started

RANK = """
import json, sys, warnings
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, RandomSampler, Subset
from packer import CenterCrop, Loader, RandomResizedCrop, open_dataset
from packer._loader import autotune as choice
from packer.samplers import WeightedSampler

pack, store, rank = sys.argv[1:]
warnings.simplefilter("error")
torch.manual_seed(int(rank))  # as many scripts do, for their augmentation
dataset = open_dataset(pack, crop=CenterCrop(16))
dataset.targets = range(40)
early = Loader(dataset, 6)  # before the ranks know of each other
dist.init_process_group("gloo", init_method="file://" + store, rank=int(rank), world_size=2)

def order(loader):
    return [label for _, labels in loader for label in labels.tolist()]

said = {"early": order(early)}
said["list"] = order(Loader(dataset, 2, sampler=[1, 2, 3, 4, 5]))
said["length"] = len(Loader(dataset, 2, sampler=[1, 2, 3, 4, 5]))
shuffled = Loader(dataset, 6, sampler=RandomSampler(range(40)))
said["random"] = [order(shuffled) for _ in range(2)]
said["distributed"] = order(Loader(dataset, 10, sampler=DistributedSampler(dataset)))
choice._SECONDS = 0  # so that some dozens of batches are enough for a choice
for threads in (1, "auto"):
    weighted = WeightedSampler([1] * 40, 800, seed=2)
    said[f"threads={threads}"] = order(Loader(dataset, 2, sampler=weighted, threads=threads))
own = Loader(dataset, 6, shuffle=True)
said["shuffle"] = [order(own) for _ in range(2)]
said["part"] = order(Loader(Subset(dataset, range(10, 20)), 6, shuffle=True))
random = Loader(open_dataset(pack, crop=RandomResizedCrop(16)), 6)
list(random)
said["crop_seed"] = random.state_dict()["crop_seed"]
try:
    order(Loader(dataset, 2, sampler=list(range(int(rank), 40, 2))))
except ValueError as error:
    said["shares"] = str(error)
print(json.dumps(said))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the output of each of two ranks."""
    root = tmp_path_factory.mktemp("ranks")
    draw_imagefolder(root / "tree", classes=4, per_class=10, size=(20, 30))
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    said = []
    with contextlib.ExitStack() as stack:
        words = root / "pack.lmdb", root / "store"
        for process in [stack.enter_context(started(RANK, *words, rank)) for rank in range(2)]:
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
            said.append(json.loads(output))
    return said


def test_a_rank_learns_late_which_it_is(ranks: list[dict[str, Any]]) -> None:
    assert [rank["early"] for rank in ranks] == [list(range(0, 40, 2)), list(range(1, 40, 2))]


def test_the_order_of_another_sampler_is_divided(ranks: list[dict[str, Any]]) -> None:
    assert [rank["list"] for rank in ranks] == [[1, 3, 5], [2, 4, 1]]
    assert [rank["length"] for rank in ranks] == [2, 2]


@pytest.mark.parametrize("kind", ["random", "shuffle"])
def test_ranks_with_seeds_of_their_own_read_each_sample_once(kind: str, ranks: list[dict[str, Any]]) -> None:
    epochs = [rank[kind] for rank in ranks]
    for first, second in zip(*epochs, strict=True):
        assert len(first) == len(second) == 20
        assert sorted(first + second) == list(range(40))
    assert epochs[0][0] != epochs[0][1]


def test_parts_are_divided_as_well(ranks: list[dict[str, Any]]) -> None:
    assert sorted(ranks[0]["part"] + ranks[1]["part"]) == list(range(10, 20))


def test_a_sampler_that_divides_itself_is_left_to_it(ranks: list[dict[str, Any]]) -> None:
    assert sorted(ranks[0]["distributed"] + ranks[1]["distributed"]) == list(range(40))


def test_the_ranks_agree_on_the_crops(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["crop_seed"] == ranks[1]["crop_seed"]


def test_indices_that_are_shares_already_are_not_divided_again(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "pass the same complete list on each rank" in rank["shares"]


def test_each_rank_chooses_its_threads_and_reads_what_it_reads_with_one(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert len(rank["threads=1"]) == 400
        assert rank["threads=auto"] == rank["threads=1"]
