"""`packer.profile` returns the loader's batches, measures how long the loop waits, and names the right cause."""

from __future__ import annotations

import gc
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms

import packer
from packer._measuring.harness import moment, since
from packer._measuring.loader_stages import inspect_loader, measure_stages
from packer._measuring.timing import Timings
from tests.measuring import loaders
from tests.measuring.loaders import LOADERS

pytestmark = [
    pytest.mark.measures,
    pytest.mark.filterwarnings("ignore"),  # torch warns of many workers, and of forks beside threads
]

SECONDS = 0.6
"""The time to find the cause."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    loaders.draw(root := tmp_path_factory.mktemp("drawn"))
    return root


@pytest.fixture(scope="module", autouse=True)
def _two_processors() -> Iterator[None]:
    """Limit the tests to two CPUs, for which the loaders' numbers of workers were chosen."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:2]))
    yield
    os.sched_setaffinity(0, before)


def looped(loader: Any, step: float = 0.0, **settings: Any) -> packer.Profile:
    """Return the profile of a pass whose steps sleep."""
    profiled = packer.profile(loader, **{"show": False, "seconds": SECONDS, **settings})
    for _ in profiled:
        time.sleep(step)
    return profiled


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs two processors, whatever the machine has")
@pytest.mark.parametrize("name", LOADERS)
def test_the_verdict_is_right(drawn: Path, name: str) -> None:
    case = LOADERS[name]
    report = looped(case.make(drawn), case.step, steps=8).report()
    assert report.cause == case.cause, report
    assert case.helps in (None, report.packing_helps), report
    assert ("packing will not help you" in str(report)) != report.packing_helps, report
    if case.cause == "step":
        assert report.waiting < 0.2
        assert not report.stages
    else:
        assert report.stages
    if name == "decoding":
        assert "of each step waits for data" in str(report)
        assert "decoding takes" in str(report)
        assert "packing with --resize 256 would give about" in str(report)
        assert report.gains["packing with --resize 256"] > report.gains["packing"] > 1
        assert report.to_json()["cause"] == "decoding"


def test_batches_are_those_of_the_loader() -> None:
    loader = DataLoader(TensorDataset(torch.arange(20)), 4)
    profiled = packer.profile(loader, seconds=0, show=False)
    assert [batch.tolist() for (batch,) in profiled] == [batch.tolist() for (batch,) in loader]
    assert len(profiled) == 5
    assert profiled.batch_size == 4
    with pytest.raises(AttributeError, match="nothing"):
        _ = profiled.nothing
    assert len(list(packer.profile(loader, steps=2, show=False, seconds=0))) == 2
    assert len(packer.profile(loader, steps=2)) == 2
    assert pickle.loads(pickle.dumps(packer.profile([1, 2], show=False))).loader == [1, 2]


def test_a_batch_lives_no_longer_than_without() -> None:
    class Batch:
        pass

    import weakref

    held: list[Any] = []
    for batch in packer.profile((Batch() for _ in range(3)), show=False):
        assert all(reference() is None for reference in held)
        held.append(weakref.ref(batch))
        del batch


def test_what_training_draws_is_the_same_with_and_without(drawn: Path) -> None:
    def numbers(profiled: bool) -> list[Any]:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        loader = DataLoader(loaders.folder(drawn, "small", transform=loaders.training()), 8, shuffle=True)
        made = packer.profile(loader, show=False, seconds=SECONDS)
        pixels = [images.sum().item() for images, _ in (made if profiled else loader)]
        assert not profiled or made.report().stages
        return [pixels, random.random(), np.random.random(), torch.rand(1).item()]

    assert numbers(True) == numbers(False)


class Stateful(Dataset[Any]):
    """Has generators, counters, a list and open files of its own, which a profile must leave as they are."""

    def __init__(self) -> None:
        self.rng, self.transform = np.random.default_rng(3), Shifted()
        self.augment = self.transform  # one object with two names
        self.count, self.seen, self.counts = 0, list[int](), np.zeros(64, np.int64)
        self.file = open(__file__, "rb")  # noqa: SIM115, held as long as the dataset
        self.later: Any = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.001)
        self.later = self.later or open(__file__, "rb")  # noqa: SIM115
        self.file.seek(0)
        assert self.file.read(3) == b'"""'
        self.count += 1
        self.seen.append(index)
        self.counts[index] += 1
        return self.augment(self.transform(self.rng.random())), self.count, len(self.seen)

    def together(self, items: list[Any]) -> Any:
        return torch.utils.data.default_collate([(*item, self.rng.random()) for item in items])

    def __del__(self) -> None:
        self.file.close()


class Shifted:
    def __init__(self) -> None:
        self.random = random.Random(5)

    def __call__(self, value: float) -> float:
        return value + self.random.random()


def descriptors() -> int:
    """Return the number of open files, after the files of unreachable loaders were closed."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_with_a_state_of_its_own_is_left_as_it_is(workers: int) -> None:
    def trained(profiled: bool) -> Any:
        torch.manual_seed(0)
        dataset = Stateful()
        loader = DataLoader(dataset, 8, shuffle=True, num_workers=workers, collate_fn=dataset.together)
        passes = packer.profile(loader, show=False, seconds=SECONDS) if profiled else loader
        drawn = []
        for _ in range(2):
            drawn += [[part.tolist() for part in batch] for batch in passes]
            if isinstance(passes, packer.Profile):
                assert "reading" in passes.report().stages
        return drawn, dataset.count, dataset.seen, dataset.counts.tolist(), dataset.file.closed

    trained(True)
    opened = descriptors()
    assert trained(True) == trained(False)
    assert descriptors() <= opened


def test_a_report_is_printed_once_and_by_rank_0_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled = packer.profile(range(12), seconds=0)
    for _ in range(2):
        for _ in profiled:
            time.sleep(0.001)
    assert capsys.readouterr().err.count("of each step waits for data") == 1
    monkeypatch.setenv("RANK", "1")
    list(packer.profile(range(3), seconds=0))
    assert not capsys.readouterr().err


def test_a_loop_that_is_left_has_a_report_for_who_asks(capsys: pytest.CaptureFixture[str]) -> None:
    profiled = packer.profile(range(100), seconds=0)
    with pytest.raises(ValueError, match="no batch was read yet"):
        profiled.report()
    for number in profiled:
        time.sleep(0.001)
        if number == 5:
            break
    assert not capsys.readouterr().err
    assert profiled.report().steps == 6
    assert profiled.report().cause == "step"


@pytest.mark.parametrize(
    ("loader", "settings", "error"),
    [
        (3, {}, TypeError),
        ([], {"steps": 0}, ValueError),
        ([], {"steps": "many"}, TypeError),
        ([], {"seconds": -1}, ValueError),
        ([], {"seconds": float("nan")}, ValueError),
    ],
)
def test_arguments_that_make_no_sense_are_refused(loader: Any, settings: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        packer.profile(loader, **settings)


def slow_generator() -> Iterator[int]:
    for number in range(5):
        time.sleep(0.01)
        yield number


class Refusing(Dataset[int]):
    """Items for one pass of the training loop; further reads fail."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.asked += 1
        if self.asked > 8:
            raise RuntimeError("not outside of the loop")
        time.sleep(0.01)
        return index


def test_what_cannot_be_seen_is_said_to_be_so() -> None:
    report = looped(slow_generator(), seconds=1.0).report()
    assert report.cause == "unknown"
    assert report.waiting > 0.5
    assert "packer cannot see how a generator makes its batches" in str(report)
    assert "packing will not help" not in str(report)
    report = looped(DataLoader(Refusing(), 2)).report()
    assert report.cause == "unknown"
    assert "RuntimeError: not outside of the loop" in str(report)


class OfMyOwn(Dataset[Any]):
    """A dataset as users write it, without ImageFolder's attributes."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        return self.transform(image), 0


def test_stages_of_a_persons_own_dataset_are_seen(drawn: Path) -> None:
    dataset = OfMyOwn(
        sorted((drawn / "large").rglob("*.jpg")), transforms.Compose([transforms.CenterCrop(64), transforms.ToTensor()])
    )
    own = dataset.transform
    report = looped(DataLoader(dataset, 4, num_workers=loaders.WORKERS), steps=3).report()
    assert report.cause == "decoding"
    assert report.gains["packing with --resize 256"] > 2
    assert dataset.transform is own  # the dataset of the training is not touched
    assert Image.open.__module__ == "PIL.Image"


def test_stages_add_up_to_what_an_item_takes(drawn: Path) -> None:
    """The sum is compared with the CPU time of the process."""
    seen = inspect_loader(DataLoader(loaders.folder(drawn, "ordinary", transform=loaders.training()), 8))
    stages = measure_stages(seen, 0.5)
    images = seen.dataset
    begin = time.process_time()
    for index in range(len(images)):
        _ = images[index]
    whole = (time.process_time() - begin) / len(images)
    apart = stages.total.cpu - stages.costs["collation"].cpu
    assert 0.5 * whole < apart < 2 * whole
    assert 8 <= stages.samples <= 46


def test_a_loader_in_wrappers_is_found(drawn: Path) -> None:
    pack = loaders.packed(drawn, "small", crop=packer.RandomResizedCrop(32))
    loader = packer.Loader(pack, 8, threads=2, seed=0)
    assert inspect_loader(packer.BackgroundPrefetcher(loader)).loader is loader
    assert inspect_loader(packer.profile(loader)).loader is loader
    report = looped(loader).report()
    assert set(report.stages) <= {"reading", "decoding"}
    assert "this is a pack already" in str(report) or not report.stages


def test_threads_of_packers_dataloader_hand_nothing_over(drawn: Path) -> None:
    transform = transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])
    pack = loaders.packed(drawn, "small", transform=transform, fuse=True)
    seen = inspect_loader(packer.DataLoader(pack, 8, num_workers=2))
    assert (seen.kind, seen.workers, seen.burst) == ("packer.DataLoader", 2, 1)
    assert (seen.threaded, seen.in_processes) == (True, False)
    report = looped(packer.DataLoader(pack, 8, num_workers=2)).report()
    assert set(report.stages) <= {"reading", "decoding"}
    assert inspect_loader(packer.DataLoader([(0, 1)] * 8, 4, num_workers=2)).kind == "DataLoader"


def test_sleeping_is_waiting_and_neighbours_are_not() -> None:
    begin = moment()
    time.sleep(0.05)
    assert since(begin).blocked > 0.04
    line = [sys.executable, "-c", "import time\nend = time.time() + 0.6\nwhile time.time() < end: pass"]
    neighbours = [subprocess.Popen(line) for _ in range(4)]
    time.sleep(0.1)
    begin = moment()
    loaders.busy(0.1)
    cost = since(begin)
    for neighbour in neighbours:
        neighbour.wait()
    assert cost.cpu >= 0.1
    if Path("/proc/thread-self/schedstat").exists():
        assert cost.blocked < 0.05


def test_clocks_are_those_of_their_thread() -> None:
    costs = []

    def work() -> None:
        begin = moment()
        loaders.busy(0.02)
        costs.append(since(begin, alone=False))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(0.02 <= cost.cpu < 0.04 for cost in costs)


def test_the_share_of_waiting_is_a_ratio_with_its_error() -> None:
    """The error is compared with the spread of the share over many passes."""
    rng = np.random.default_rng(0)
    shares, errors = [], []
    for _ in range(300):
        timings = Timings()
        timings.waits.extend([5.0, *rng.exponential(0.02, 200)])
        timings.works.extend([0.01, *rng.exponential(0.05, 200)])
        share, error = timings.waiting()
        shares.append(share)
        errors.append(error)
    assert abs(np.mean(shares) - 2 / 7) < 0.005
    assert 0.7 < np.mean(errors) / np.std(shares) < 1.4
    assert timings.first == 5.0
    assert Timings().waiting() == (0.0, 1.0)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_copies_to_a_gpu_are_a_stage_where_the_training_uses_one(drawn: Path) -> None:
    images = loaders.folder(drawn, "small", transform=loaders.training())
    torch.zeros(1, device="cuda")
    stages = measure_stages(inspect_loader(DataLoader(images, 8)), 0.5)
    assert 0 < stages.costs["transfer"].total < stages.total.total
    pack = loaders.packed(drawn, "small", crop=packer.RandomResizedCrop(32))
    report = looped(packer.Loader(pack, 8, threads=2, seed=0, device="cuda")).report()
    assert report.gpu_idle is not None
    assert 0 <= report.gpu_idle <= 1


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_that_is_busy_does_not_wait() -> None:
    """Kernels that are queued keep the GPU at work while the loop waits for its next batch."""
    work = torch.randn(8192, 8192, device="cuda")

    def pass_with(kernels: int) -> packer.ProfileReport:
        profiled = packer.profile(slow_generator(), show=False, seconds=0)
        for _ in profiled:
            for _ in range(kernels):
                work @ work
        report = profiled.report()
        torch.cuda.synchronize()  # kernels of the last step would run in the next pass
        return report

    pass_with(1)
    busy, idle = pass_with(40), pass_with(0)
    assert busy.gpu_idle is not None
    assert idle.gpu_idle is not None
    assert busy.gpu_idle < 0.1
    assert idle.gpu_idle > 0.8
