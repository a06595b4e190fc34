"""Profiles of loaders as users have them: bursts of many workers, data in memory, parts of packs, joined trees."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split

import packer
from packer._measuring.diagnosis import ProfileFindings, _packing
from packer._measuring.harness import Cost
from packer._measuring.loader_stages import LoaderInfo, PackedCost, Stages, fewer_workers, inspect_loader
from packer._measuring.timing import Timings
from tests.measuring import loaders
from tests.measuring.test_profile import _two_processors, drawn, looped  # noqa: F401

pytestmark = [
    pytest.mark.measures,
    pytest.mark.filterwarnings("ignore"),  # torch warns of many workers, and of forks beside threads
]

forks = pytest.mark.skipif(sys.platform != "linux", reason="its workers are forks")


class Remote(Dataset[int]):
    """Items that take a while to arrive, as from a network disk."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


@pytest.mark.parametrize("steps", [16, 19, 24, 100])
def test_batches_of_several_workers_come_in_bursts(steps: int) -> None:
    """Eight workers need 0.8 s for a batch each; the loop works for half of this time, and waits for the rest."""
    timings = Timings()
    timings.burst = 8
    for number in range(steps):
        timings.waits.append((1.3 if not number else 0.4) if number % 8 == 0 else 0.0)
        timings.works.append(0.05)
    share, error = timings.waiting()
    assert timings.is_representative
    assert share == pytest.approx(0.5)
    assert timings.interval == pytest.approx(0.1)
    assert error == (1.0 if steps < 48 else pytest.approx(0.0)), "a few bursts do not tell their spread"


@forks
def test_the_first_batches_of_many_workers_do_not_say_that_the_loader_keeps_up() -> None:
    report = looped(DataLoader(Remote(0.1), 1, num_workers=4), 0.002, steps=4).report()
    assert report.cause == "reading", "though all four were made while the first was waited for"
    assert "Only 4 steps were measured, and 4 workers make 4 batches at a time" in str(report)
    report = looped(DataLoader(Remote(0.001), 1, num_workers=4), 0.3, steps=4).report()
    assert report.cause == "step"


def most_common(loader: DataLoader[Any]) -> list[packer.ProfileReport]:
    """Return those of three reports that name the most frequent cause: other tests may disturb a pass."""
    reports = []
    for _ in range(3):
        profiled = packer.profile(loader, show=False, seconds=0.6)
        for _ in profiled:
            pass
        reports.append(profiled.report())
    causes = [report.cause for report in reports]
    return [report for report in reports if report.cause == max(causes, key=causes.count)]


def test_workers_are_not_advised_where_their_batches_take_longer_on_the_way(drawn: Path) -> None:  # noqa: F811
    reports = most_common(DataLoader(TensorDataset(torch.zeros(2048, 16), torch.zeros(2048)), 16))
    assert reports[0].cause in ("items", "collation"), reports
    assert any("num_workers" not in str(report).split("Without workers")[0] for report in reports), reports
    assert "default_collate does" not in str(reports[0]), "it is that of torch already"


@forks
def test_workers_of_what_lies_in_memory_are_advised_against() -> None:
    dataset = TensorDataset(torch.zeros(512, 3, 64, 64), torch.zeros(512))
    reports = most_common(DataLoader(dataset, 16, num_workers=2))
    assert reports[0].cause == "handing over", reports
    assert max(report.gains["num_workers=0"] for report in reports) > 1.2
    assert any("num_workers=0 would give about" in str(report) for report in reports)


def hashed(seconds: float) -> None:
    """Keep a CPU busy, without Python's lock."""
    end, data = time.thread_time() + seconds, bytes(1 << 18)
    while time.thread_time() < end:
        hashlib.sha256(data)


def test_a_step_that_needs_the_processors_itself_leaves_none_for_workers(drawn: Path) -> None:  # noqa: F811
    dataset = loaders.folder(drawn, "ordinary", transform=loaders.training())
    profiled = packer.profile(DataLoader(dataset, 4), show=False, seconds=1, steps=8)
    for _ in profiled:
        both = [threading.Thread(target=hashed, args=(0.02,)) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    gain = profiled.report().gains["num_workers=2"]
    assert 1 <= gain < 1.65, "twice as fast would need four processors"


def transformed(image: Any) -> torch.Tensor:
    loaders.busy(0.001)
    return torch.zeros(3)


def test_a_part_of_a_pack_is_a_pack(drawn: Path) -> None:  # noqa: F811
    pack = loaders.packed(drawn, "small", transform=transformed, output="pil")
    train, _ = random_split(pack, [48, 16])
    row = ConcatDataset([Subset(train, range(24)), pack])
    for loader in (DataLoader(train, 8), DataLoader(row, 8), packer.Loader(row, 8, threads=1)):
        assert inspect_loader(loader).of_packer
        report = looped(loader, steps=3).report()
        assert "this is a pack already, so packing will not help you" in str(report), report
        assert "was not measured" not in str(report)
    assert not inspect_loader(DataLoader(ConcatDataset([pack, TensorDataset(torch.zeros(3))]))).of_packer


def test_parts_of_trees_in_a_row_are_packed_as_one_tree(drawn: Path) -> None:  # noqa: F811
    transform = loaders.training()
    trees = [loaders.folder(drawn, name, transform=transform) for name in ("large", "ordinary")]
    row = ConcatDataset([Subset(trees[0], range(12)), trees[1]])
    report = looped(DataLoader(Subset(row, range(0, 60, 2)), 4), steps=3).report()
    assert {"packing", "packing with --resize 256"} <= set(report.gains)
    trees[1].transform = loaders.training()  # type: ignore[attr-defined]
    report = looped(DataLoader(row, 4), steps=3).report()
    assert "the joined datasets have different transforms" in str(report)


def test_a_loader_without_batches_ends_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(packer.profile([])) == []
    assert "the loader returned no batch" in capsys.readouterr().err


@forks
def test_persistent_workers_are_advised_to_who_has_workers_that_start_again() -> None:
    def begin(worker: int) -> None:
        time.sleep(0.3)

    def slow_to_start() -> Iterator[int]:
        begin(0)
        yield from range(12)

    again, once = (
        DataLoader(Remote(0.0), 8, num_workers=1, worker_init_fn=begin, persistent_workers=persistent)
        for persistent in (False, True)
    )
    for loader, advised in ((slow_to_start(), False), (once, False), (again, True)):
        said = str(looped(loader, seconds=0).report())
        assert "The first batch came after " in said
        assert ("persistent_workers=True" in said) == advised


@forks
def test_numbers_of_workers_are_compared_within_their_time() -> None:
    class Counted(Remote):
        def __getitem__(self, index: int) -> int:
            with made.get_lock():
                made.value += 1
            return index

    made = multiprocessing.Value("i", 0)
    seen = inspect_loader(DataLoader(Counted(0.0), 32, num_workers=8))
    assert fewer_workers(seen, 2, 100, sample=0.02, seconds=1.0) > 0
    assert 16 <= made.value <= 4 * 50, "for a second, of which each pass has a half, on two processors"


@forks
def test_fewer_workers_gain_nothing_where_the_step_takes_longest() -> None:
    seen = inspect_loader(DataLoader(Remote(0.0), 1, num_workers=8))
    assert fewer_workers(seen, 2, 64, sample=0.001, seconds=0.5, step=10.0) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("waited", "others", "least", "most"), [(0.02, 0.0, 3.9, 4), (0.3, 0.0, 1, 1.1), (0.3, 0.9, 1.9, 2.1)]
)
def test_what_stages_do_not_explain_is_not_promised_to_go_with_packing(
    waited: float, others: float, least: float, most: float
) -> None:
    """A batch costs 10 ms, of which packing saves 7.5; it comes every 20 or 300 ms, with or without other processes."""
    timings = Timings()
    timings.waits.extend([waited] * 20)
    timings.works.extend([0.0] * 20)
    info = LoaderInfo(loader=None, kind="DataLoader", workers=1)
    found = ProfileFindings(timings=timings, info=info, waiting=1.0, error=0.0)
    found.stages = Stages(costs={"decoding": Cost(0.01)}, samples=8, others=others)
    assert least <= _packing(found, PackedCost("", Cost(0.0025), 8)) <= most


def test_a_path_is_no_loader_within_a_loader() -> None:
    class FromPath:
        source = os.fspath("photos.tar")

        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    assert inspect_loader(FromPath()).kind == "FromPath"
