"""`packer tune`: settings that a Loader takes, and the fewest threads that keep up with a step."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import packer as packer_module
from packer import LoaderSettings, Tuning, doctor, open_dataset, tune
from packer._cli import EXIT_STATUS
from packer._conversion.convert import convert
from packer._loader.autotune import thread_counts
from packer._measuring import tune as module
from packer._measuring.harness import TimeLimit
from packer._sources.imagefolder import imagefolder_source
from packer._storage.system import available_cpus
from packer.crops import CenterCrop
from packer.testing.photos import draw_imagefolder
from tests.measuring.conftest import packer_with_torch


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tune")
    draw_imagefolder(root / "tree", classes=2, per_class=5, size=(32, 40))
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    (root / "crop.py").write_text("import packer\ncrop = packer.CenterCrop(16)\n")
    return root / "pack.lmdb"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, prepared_processes: None) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.01)


def trained(found: Tuning, pack: Path) -> int:
    """Run the line, and return the number of samples that its loader yields."""
    names = {"packer": packer_module, "dataset": open_dataset(pack, crop=CenterCrop(16))}
    exec(found.line, names)
    with names["loader"] as loader:  # type: ignore[attr-defined]
        return sum(len(labels) for _, labels in loader)


def test_no_more_batches_are_made_ahead_than_memory_has_room_for(pack: Path) -> None:
    with open_dataset(pack, crop=CenterCrop(16)) as dataset:
        few, many = (module._Search(dataset, batch, 0.0, TimeLimit(1.0)) for batch in (4, 1 << 40))
        assert module._ahead(few, 8) == [2, 1, 4, 8]
        assert module._ahead(many, 8) == [2]


@pytest.mark.measures
def test_the_line_makes_a_loader(pack: Path) -> None:
    shown: list[tuple[float, float, str]] = []
    dataset = open_dataset(pack, crop=CenterCrop(16))
    found = tune(dataset, 4, seconds=2, progress=lambda *now: shown.append(now))
    assert found.settings.threads in {*thread_counts(available_cpus()), available_cpus()}
    assert {trial.settings.threads for trial in found.trials} >= set(thread_counts(available_cpus()))
    assert found.rate > 0
    assert found.error >= 0
    assert found.wait_ms == 0
    assert {name for _, _, name in shown}
    if not found.settings.processes:  # a test's module cannot start processes
        assert trained(found, pack) == 10


@pytest.mark.measures
def test_of_all_that_keep_up_the_fewest_threads_are_taken(pack: Path) -> None:
    found = tune(pack, 4, step_ms=60_000, seconds=20)
    assert found.settings == LoaderSettings(1)
    assert found.wait_ms == 0
    assert trained(found, pack) == 10


@pytest.mark.measures
def test_too_little_time_takes_what_is_faster_beyond_doubt_and_says_so(pack: Path) -> None:
    candidates = [LoaderSettings(threads) for threads in (1, 2, 3, 4)]
    for third, enough, taken in ((1.0, 0.0, 3), (1.15, 0.0, 2), (1.0, 3.0, 1)):
        measured = dict(zip(candidates, ([2.0], [1.2, 1.2], [third]), strict=False))
        search = module._Search(None, 4, enough, TimeLimit(1.0), measured)
        assert search._guessed(candidates, LoaderSettings(2)) == LoaderSettings(taken)
        assert search.untried == [LoaderSettings(4)]
    found = tune(pack, 4, seconds=0.05)
    (note,) = found.notes
    assert note.startswith("0.05 seconds are too few for a reliable result")
    assert found.rate >= max(4 / trial.median for trial in found.trials) / 1.1


@pytest.mark.measures
def test_where_nothing_keeps_up_it_says_how_long_a_step_waits(pack: Path) -> None:
    found = tune(pack, 4, step_ms=1e-6, seconds=0.3)
    assert found.wait_ms > 0


def test_the_order_of_blocks_is_a_line_of_python(pack: Path) -> None:
    settings = LoaderSettings(2, 0, 4, "blocks")
    found = Tuning(settings, 4, 1.0, 0.1, None, 0.0, (), (), 1.0)
    assert "BlockShuffleSampler" in found.line
    assert trained(found, pack) == 10
    assert "processes=3" in str(LoaderSettings(6, 3))


def test_the_command_prints_the_line_and_takes_a_recipe(pack: Path) -> None:
    words = ["--batch", "2", "--step-ms", "60000", "--seconds", "1", "--recipe", pack.with_name("crop.py")]
    result = packer_with_torch("tune", pack, *words)
    assert result.returncode == 0, result.stderr
    assert "keeps up with steps of 60000 ms" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("loader = packer.Loader(dataset, 2, shuffle=True, threads=")
    result = packer_with_torch("tune", pack, "--json", "--batch", "2", "--seconds", "0.1")
    assert json.loads(result.stdout)["line"].startswith("loader = ")
    assert packer_with_torch("tune", pack.with_name("no.lmdb")).returncode == EXIT_STATUS["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("transform = 3\n", ": transform is not callable: 3"),
        ("\n\ndef transform(image):\n    raise ValueError('no such size')\n", ", line 4: ValueError: no such size"),
        ("1 / 0\n", ": ZeroDivisionError: division by zero"),
    ],
)
def test_a_mistake_in_a_recipe_is_a_line_that_names_its_place(
    pack: Path, tmp_path: Path, code: str, reason: str
) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(code)
    result = packer_with_torch("tune", pack, "--seconds", "1", "--recipe", recipe)
    assert result.returncode == EXIT_STATUS["usage"], result
    assert f"{recipe}{reason}\nTry `packer tune --help`.\n" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_pack_that_was_opened_to_be_measured_is_closed(pack: Path) -> None:
    def opened() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{fd}") == str(pack) for fd in os.listdir("/proc/self/fd"))

    gc.collect()
    before = opened()
    gc.disable()
    try:
        tune(pack, 4, step_ms=60_000, seconds=0.3)
        assert opened() == before
        with pytest.raises(ValueError, match="empty"):
            tune(open_dataset(pack, crop=CenterCrop(8))[:0])
    finally:
        gc.enable()


def test_processes_of_settings_that_were_not_taken_end(pack: Path) -> None:
    dataset = open_dataset(pack, crop=CenterCrop(16))
    search = module._Search(dataset, 4, 0.0, TimeLimit(60.0))
    try:
        search.measured(LoaderSettings(1, 1))
        assert multiprocessing.active_children()
        assert search.race([LoaderSettings(1)], LoaderSettings(1), 1.0) == LoaderSettings(1)
        assert not multiprocessing.active_children()
    finally:
        search.close()


def test_wrong_arguments_are_refused(pack: Path) -> None:
    with pytest.raises(ValueError, match="step_ms must be a number above 0"):
        tune(pack, step_ms=0)
    with pytest.raises(ValueError, match="seconds must be a number above 0"):
        tune(pack, seconds=float("nan"))
    with pytest.raises(ValueError, match="batch must be 1 or more"):
        tune(pack, 0)
    with pytest.raises(ValueError, match="empty"):
        tune(open_dataset(pack, crop=CenterCrop(8))[:0])


def test_the_programs_random_numbers_are_what_they_would_have_been_without_it(pack: Path) -> None:
    drawn = []
    for seconds in (None, 0.1):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        if seconds is not None:
            tune(pack, 4, seconds=seconds)
            doctor(pack, seconds=0.1)
        drawn.append((torch.rand(1).item(), random.random(), np.random.rand()))
    assert drawn[0] == drawn[1]
