"""Processes make the same batches as threads, and leave nothing behind, however they end."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from packer import open_dataset
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._datasets.protocol import BatchPart, Layout
from packer._loader.loader import Loader
from packer._loader.processes import Processes
from packer._loader.threads import Slot, WorkerSettings
from packer._sources.imagefolder import imagefolder_source
from packer.crops import Compose, RandomResizedCrop, ResizeCenterCrop
from packer.errors import CorruptPackError, ImageError, WorkerError
from packer.testing.photos import draw_imagefolder
from tests.command import python, started
from tests.conftest import Packs, Trees
from tests.samples import SUFFIXES
from tests.spawn import quick_spawn

CROP = RandomResizedCrop(32, flip=0.5)
BATCH = 7


@pytest.fixture(scope="module")
def photo_packs(trees: Trees, packs: Packs) -> dict[str, Path]:
    tree = trees(classes=4, per_class=13, size=(60, 80))
    return {**{format: packs(tree, format) for format in SUFFIXES}, "raw": packs(tree, recipe=Recipe("raw"))}


@pytest.fixture(scope="module")
def loader(photo_packs: dict[str, Path]) -> Loader:
    """Return a loader whose two processes all tests of the module use."""
    dataset = open_dataset(photo_packs["lmdb"], crop=CROP, seed=0)
    loader = Loader(dataset, BATCH, shuffle=True, seed=0, threads=3, processes=2)
    with quick_spawn():
        next(iter(loader))
    return loader


@pytest.fixture(autouse=True)
def _as_it_was(loader: Loader) -> Iterator[None]:
    before, dataset, sampler = dict(vars(loader)), loader.dataset, loader.sampler
    loader.set_epoch(0)
    yield
    vars(loader).update({name: value for name, value in before.items() if name != "_worker_cache"})
    loader.dataset, loader.sampler = dataset, sampler


def batches(loader: Any) -> list[tuple[Any, list[int]]]:
    return [(images.clone(), labels.tolist()) for images, labels in loader]


def same(made: list[tuple[Any, list[int]]], expected: list[tuple[Any, list[int]]]) -> bool:
    return all(
        torch.equal(images, others) and images.stride() == others.stride() and labels == more
        for (images, labels), (others, more) in zip(made, expected, strict=True)
    )


def workers() -> list[psutil.Process]:
    """Return the worker processes of all live loaders."""
    gc.collect()
    return [psutil.Process(child.pid) for child in multiprocessing.active_children() if child.name == "packer-worker"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("pack", [*SUFFIXES, "raw"])
def test_batches_are_those_of_threads(photo_packs: dict[str, Path], loader: Loader, pack: str) -> None:
    loader.dataset = open_dataset(photo_packs[pack], crop=CROP, seed=0)
    expected = Loader(loader.dataset, BATCH, shuffle=True, seed=0, threads=1)
    for _ in range(2):
        assert same(batches(loader), batches(expected))


@pytest.mark.parametrize(("processes", "memfd"), [(1, False), (3, True)])
@pytest.mark.usefixtures("quick_spawn")
def test_their_number_changes_nothing(
    photo_packs: dict[str, Path], processes: int, memfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not memfd:  # as on a system that is not Linux
        monkeypatch.delattr(os, "memfd_create", raising=False)
    dataset = open_dataset(photo_packs["lmdb"], crop=CROP, seed=0)
    loader = Loader(dataset, 10, shuffle=True, seed=0, threads=2, processes=processes, prefetch=0)
    assert same(batches(loader), batches(Loader(dataset, 10, shuffle=True, seed=0)))
    assert len(workers()) >= processes


def test_an_epoch_sees_the_dataset_as_it_is_then(loader: Loader) -> None:
    batches(loader)
    loader.dataset.crop = ResizeCenterCrop(20, 40)
    loader.set_epoch(0)
    made = batches(loader)
    assert made[0][0].shape == (BATCH, 3, 20, 20)
    assert same(made, batches(Loader(loader.dataset, BATCH, shuffle=True, seed=0)))
    loader.dataset.crop = CROP


def test_processes_stay_from_epoch_to_epoch(loader: Loader) -> None:
    batches(loader)
    before = {child.pid for child in workers()}
    batches(loader)
    assert {child.pid for child in workers()} == before


@pytest.mark.usefixtures("quick_spawn")
def test_two_passes_at_once_do_not_disturb_each_other(loader: Loader) -> None:
    expected = batches(loader)
    loader.set_epoch(0)
    first = iter(loader)
    begun = [next(first)]
    loader.set_epoch(0)
    others = batches(loader)
    begun = [(images.clone(), labels.tolist()) for images, labels in itertools.chain(begun, first)]
    assert same(others, expected)
    assert same(begun, expected)


@pytest.mark.usefixtures("quick_spawn")
def test_batches_that_are_kept_do_not_change(loader: Loader) -> None:
    expected = [*batches(loader), *batches(loader)]
    loader.set_epoch(0)
    kept = [*loader, *loader]
    assert same([(images, labels.tolist()) for images, labels in kept], expected)
    view = kept[3][0][2]
    pixels = view.clone()
    del kept
    batches(loader)
    assert torch.equal(view, pixels)


def test_resuming(photo_packs: dict[str, Path], loader: Loader) -> None:
    expected = batches(loader)
    loader.set_epoch(0)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    iterator.close()
    threads = Loader(open_dataset(photo_packs["lmdb"], crop=CROP, seed=0), BATCH, shuffle=True, seed=0)
    for resumed in (threads, loader):
        resumed.load_state_dict(state)
        assert same(batches(resumed), expected[3:])


def shrink(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image.resize((20, 10)))).permute(2, 0, 1)


def test_items_that_are_made_and_collated(photo_packs: dict[str, Path], loader: Loader) -> None:
    loader.dataset, loader.transform = open_dataset(photo_packs["hdf5"], output="pil"), shrink
    assert same(batches(loader), batches(Loader(loader.dataset, BATCH, shuffle=True, seed=0, transform=shrink)))
    loader.dataset, loader.transform, loader.collate_fn = open_dataset(photo_packs["pth"], crop=Compose([])), None, list
    loader.set_epoch(0)
    expected = Loader(loader.dataset, BATCH, shuffle=True, seed=0, collate_fn=list)
    for items, others in zip(loader, expected, strict=True):
        for (image, label), (other, more) in zip(items, others, strict=True):
            assert torch.equal(image, other)
            assert label == more


class OddError(Exception):
    """Cannot be unpickled: `args` does not match `__init__`."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def refuse(image: Any) -> Any:
    raise OddError(1, 2)


def leave(image: Any) -> Any:
    raise SystemExit("enough")


class Unreadable:
    def __init__(self, image: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        raise OddError(3, 4)

    def __getstate__(self) -> Any:
        return {"image": None}


@pytest.mark.parametrize(
    ("transform", "error", "text"),
    [
        (refuse, RuntimeError, "OddError: 1 and 2"),
        (leave, SystemExit, "enough"),
        (Unreadable, OddError, "3 and 4"),
        (memoryview, TypeError, "pickle"),
    ],
)
def test_errors_of_transforms_arrive(
    photo_packs: dict[str, Path], loader: Loader, transform: Any, error: Any, text: str
) -> None:
    loader.dataset, loader.transform = open_dataset(photo_packs["lmdb"], output="numpy"), transform
    with pytest.raises(error, match=text):
        batches(loader)
    loader.dataset, loader.transform = open_dataset(photo_packs["lmdb"], crop=CROP, seed=0), None
    assert len(batches(loader)) == 8


def test_a_dataset_that_cannot_be_handed_over(photo_packs: dict[str, Path], loader: Loader) -> None:
    for name in ("transform", "batch_transform"):
        setattr(loader, name, lambda image: image)
        with pytest.raises(TypeError, match=f"cannot pickle the {name}.*or leave out processes="):
            batches(loader)
        setattr(loader, name, None)
    assert len(batches(loader)) == 8


def test_a_damaged_sample_stops_the_loop_with_its_name(tmp_path: Path, loader: Loader) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=6, size=(60, 80))
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.h5")
    dataset = open_dataset(tmp_path / "pack.h5", crop=CROP, seed=0)
    with open(tmp_path / "pack.h5", "r+b") as file:
        file.seek(4096 + int(dataset.reader.table.offset[7]))
        file.write(b"no longer a JPEG")
    loader.sampler, loader.dataset = range(12), dataset
    with pytest.raises(CorruptPackError, match=r"sample 7 .*0001.jpg") as caught:
        batches(loader)
    assert "decode" in str(caught.value.__cause__) or "read" in str(caught.value.__cause__)
    loader.dataset = open_dataset(tmp_path / "pack.h5", crop=CROP, check="never")
    with pytest.raises(ImageError, match=r"sample 7 \(class_01/0001.jpg\)"):
        batches(loader)


@pytest.mark.usefixtures("quick_spawn")
def test_a_process_that_is_killed_is_an_error_and_replaced(loader: Loader) -> None:
    def readers() -> int:
        return sum(thread.name == "packer-answers" for thread in threading.enumerate())

    iterator = iter(loader)
    next(iterator)
    (victim, *others), before = workers(), readers()
    victim.send_signal(signal.SIGKILL)
    until(lambda: readers() < before)  # otherwise the other process may have made the remaining batches
    with pytest.raises(WorkerError, match=rf"pid {victim.pid}\) was killed by signal 9 \(SIGKILL\)"):
        list(iterator)
    assert len(batches(loader)) == 8
    until(lambda: not any(other.is_running() for other in others))


def test_abandoned_epochs_leave_nothing_behind(loader: Loader) -> None:
    process = psutil.Process()

    def shared() -> set[str]:  # of this process, whose pid is in the names
        names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
        return {name for name in names if str(process.pid) in name}

    def abandon(number: int) -> None:
        for batch, _ in enumerate(loader):
            if batch == number % 5:
                break

    def figures() -> tuple[int, int, int]:
        gc.collect()
        return threading.active_count(), process.num_fds(), len(process.children(recursive=True))

    abandon(1)
    before, named, (worker, *_) = figures(), shared(), workers()
    files, memory = worker.num_fds(), process.memory_info().rss
    for number in range(20):
        abandon(number)
    assert figures() == before
    assert worker.num_fds() <= files
    assert process.memory_info().rss < 1.05 * memory
    assert shared() <= named


def test_a_loader_that_is_no_longer_held_leaves_nothing_behind(photo_packs: dict[str, Path], loader: Loader) -> None:
    process = psutil.Process()
    batches(loader)
    gc.collect()
    before = threading.active_count(), process.num_fds(), len(process.children())
    other = Loader(open_dataset(photo_packs["lmdb"], crop=CROP, seed=0), BATCH, threads=1, processes=1)
    iterator = iter(other)
    images, _ = next(iterator)
    pixels = images.clone()
    assert len(process.children()) > before[2]
    reference = weakref.ref(other)
    del other, iterator
    gc.collect()
    assert reference() is None
    assert torch.equal(images, pixels)  # its memory outlives the processes
    del images
    gc.collect()
    after = threading.active_count(), process.num_fds(), len(process.children())
    assert all(now <= then for now, then in zip(after, before, strict=True)), (after, before)


SCRIPT = """
import os, signal, sys
import psutil
from packer import open_dataset
from packer.crops import RandomResizedCrop
from packer._loader.loader import Loader

if __name__ == "__main__":
    dataset = open_dataset(sys.argv[1], crop=RandomResizedCrop(32, flip=0.5), seed=0)
    loader = Loader(dataset, 4, threads=1, processes=1)
    iterator = iter(loader)
    next(iterator)
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    sys.stdin.read()
    while sys.argv[2] != "exit":
        for _ in loader:
            pass
"""


def test_nothing_is_left_when_the_program_ends(photo_packs: dict[str, Path], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with contextlib.ExitStack() as stack:
        ways = "exit", "interrupt", "kill"
        programs = {how: stack.enter_context(started(script, photo_packs["lmdb"], how)) for how in ways}
        for how, program in programs.items():
            children = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
            assert children
            if how == "kill":
                program.kill()
            program.stdin.close()
            if how == "interrupt":
                time.sleep(0.3)
                os.killpg(program.pid, signal.SIGINT)  # as Ctrl-C does: to all processes of the terminal
            assert program.wait(60) == {"exit": 0, "interrupt": -signal.SIGINT, "kill": -signal.SIGKILL}[how]
            _, alive = psutil.wait_procs(children, timeout=60)
            assert not alive
            errors = program.stderr.read()
            assert errors.count("Traceback") == (how == "interrupt"), errors


HELD = """
import multiprocessing, os, signal, sys, threading, time
from packer._storage.system import interrupts_held

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()  # takes the signals that are blocked here
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    try:
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            process.start()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
    except KeyboardInterrupt:
        blocked = next(line for line in open(f"/proc/{process.pid}/status") if line.startswith("SigBlk:"))
        print(bool(int(blocked.split()[1], 16) >> signal.SIGINT - 1 & 1), flush=True)
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of open files")
def test_processes_of_which_one_cannot_be_started_leave_none_behind() -> None:
    import resource

    settings, owner = WorkerSettings(3, 3, False, 1, 1, False, False), threading.Event()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    Processes(owner, settings, 0).close()  # imports all modules that are needed
    before, refused = {child.pid for child in workers()}, 0
    gc.freeze()  # what is there already, which would take each collection long
    first = os.dup(0)  # with lower limits no file can be opened
    os.close(first)
    try:
        for limit in range(first, 999):  # a process takes several files, so some limits let one or two processes start
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                Processes(owner, settings, 0).close()
                break
            except OSError as error:  # its frames hold the processes that were started
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                if error.errno != errno.EMFILE:
                    raise
                refused += 1
                assert {child.pid for child in workers()} == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.unfreeze()
    assert refused > 6


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see which signals a process blocks")
def test_an_interrupt_while_a_process_is_started(tmp_path: Path) -> None:
    """An interrupt is held until the new process is complete, and does not reach it; the next takes effect at once."""
    script = tmp_path / "script.py"
    script.write_text(HELD)
    program = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert program.stdout.split() == ["True", "False"], program.stderr
    assert program.returncode == -signal.SIGINT
    assert program.stderr.count("Traceback") == 1, program.stderr


def test_a_script_without_a_main_block_is_told_so(photo_packs: dict[str, Path], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('__name__ == "__main__"', "True"))
    result = python(script, photo_packs["lmdb"], "exit", check=False)
    assert result.returncode == 1
    assert "WorkerError: a worker process of the Loader" in result.stderr
    assert "below `if __name__ == '__main__':`" in result.stderr


def test_a_slot_is_free_when_no_view_is_left() -> None:
    slot = Slot(np.zeros(1000, np.uint8))
    assert slot.free
    images = slot.tensors(Layout((BatchPart("image", (4, 5), 3),)), 2)["image"]
    assert images.shape == (2, 3, 4, 5)
    assert images.is_contiguous(memory_format=torch.channels_last)
    for view in (images[1], images.numpy(), images.permute(0, 2, 3, 1).reshape(-1)[7:].view(torch.int8)):
        del images
        images = view
        del view
        assert not slot.free
    del images
    assert slot.free


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("device", ["cuda", None])
def test_page_locked_batches(photo_packs: dict[str, Path], device: str | None) -> None:
    dataset = open_dataset(photo_packs["lmdb"], crop=CROP, seed=0)
    loader = Loader(dataset, 10, shuffle=True, seed=0, threads=2, processes=2, device=device, pin_memory=True)
    expected = batches(Loader(dataset, 10, shuffle=True, seed=0))
    made = [(images, labels.tolist()) for images, labels in loader]
    for (images, labels), (others, more) in zip(made, expected, strict=True):
        assert images.is_cuda if device else images.is_pinned()
        assert torch.equal(images.cpu(), others)
        assert labels == more


def test_bad_arguments(photo_packs: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="processes"):
        Loader(open_dataset(photo_packs["lmdb"], crop=CROP, seed=0), 4, processes=-1)
