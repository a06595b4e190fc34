"""`packer doctor --train` runs a user's training as it is, measures it and ends it; no file is changed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from packer import OptionError
from packer._cli import EXIT_STATUS
from packer._measuring import train_hook
from packer._measuring.train_hook import TrainingProfile, profile_training
from tests.command import packer, packer_many, started
from tests.measuring.conftest import COMMAND, packer_with_torch
from tests.samples import content

SCRIPT = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset

def slow(items):
    time.sleep(0.02)
    return torch.utils.data.default_collate(items)

if __name__ == "__main__":
    import mine
    loader = DataLoader(TensorDataset(torch.zeros(8, 3)), 2, collate_fn=slow)
    for epoch in range(int(sys.argv[1])):
        for batch in loader:
            pass
        print("epoch", epoch, flush=True)
    sys.exit(int(sys.argv[2]))
"""
STUBBORN = """
import signal, time, torch
from torch.utils.data import DataLoader, TensorDataset

signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    for batch in DataLoader(TensorDataset(torch.zeros(8, 3))):
        pass
finally:
    time.sleep(600)
"""
"""Ignores SIGTERM, and does not end by itself."""

ALTERNATING = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

def slow(items):
    time.sleep(0.02)
    return default_collate(items)

class Slow(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)

training = DataLoader(TensorDataset(torch.zeros(8, 3)), 2, collate_fn=slow)
testing = DataLoader(Slow(torch.zeros(16, 3)), 4)
for loader in (training, testing, training, training):
    for batch in loader:
        pass
print("the last pass has ended")
sys.exit(3)
"""
"""After the first two passes `testing` has taken more time, at the end `training`."""

SITECUSTOMIZE = "import sys, types; sys.modules['mine'] = types.ModuleType('mine')\n"
"""The user's own sitecustomize, without which the script fails."""


@pytest.fixture
def training(tmp_path: Path) -> Path:
    return write_training(tmp_path)


def write_training(root: Path) -> Path:
    (root / "own").mkdir()
    (root / "own" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    (root / "train.py").write_text(SCRIPT)
    return root


def train(training: Path, epochs: int, status: int = 0) -> str:
    path = os.pathsep.join([str(training / "own"), os.environ.get("PYTHONPATH", "")])
    variables = f"PYTHONPATH={shlex.quote(path)} PYTHONDONTWRITEBYTECODE=1"
    return f"{variables} {sys.executable} {training / 'train.py'} {epochs} {status}"


def test_a_training_is_measured_and_ended_and_its_files_stay(training: Path) -> None:
    before = content(training)
    line = ["doctor", "--train", train(training, 10**6), "--steps", 6, "--seconds", 60, "--json"]
    result = packer_with_torch(*line)
    assert result.returncode == EXIT_STATUS["ok"], result
    report = json.loads(result.stdout)
    assert report["cause"] == "collation"
    assert report["waiting"] > 0.9
    assert "epoch 0" in result.stderr
    assert content(training) == before


@pytest.fixture(scope="module")
def of_packer(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingProfile, list[tuple[float, float, str]]]:
    """Return the profile of a training with packer's DataLoader, and what was shown meanwhile."""
    shown = list[tuple[float, float, str]]()
    training = write_training(tmp_path_factory.mktemp("packer"))
    own = "from packer import DataLoader\nfrom torch.utils.data import TensorDataset"
    slower = SCRIPT.replace("from torch.utils.data import DataLoader, TensorDataset", own).replace("0.02", "0.2")
    (training / "train.py").write_text(slower)
    line = train(training, 10**6)
    found = profile_training(line, steps=12, seconds=60, finding=2.0, progress=lambda *told: shown.append(told))
    return found, shown


def test_packers_dataloader_is_measured_as_torchs(of_packer: tuple[TrainingProfile, Any]) -> None:
    profile, _ = of_packer
    assert profile.status is None, "it was ended after enough steps"
    assert profile.report is not None
    assert profile.report.cause == "collation"


def test_the_steps_and_the_search_for_the_cause_are_shown_while_they_last(
    of_packer: tuple[Any, list[tuple[float, float, str]]],
) -> None:
    _, shown = of_packer
    states = list(dict.fromkeys(state for *_, state in shown))
    steps = [state for state in states if re.fullmatch(r"step \d+ of 12", state)]
    assert len(steps) > 1
    assert states[0] == steps[0]
    assert set(states) == {*steps, "finding out why steps wait"}
    assert all(0 < passed <= most for passed, most, _ in shown)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal elsewhere")
def test_ctrl_c_ends_the_training_and_says_what_was_measured(training: Path) -> None:
    with started(COMMAND, "doctor", "--train", train(training, 10**6), "--steps", 10**6) as process:
        while "epoch 2" not in process.stdout.readline():
            pass
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_STATUS["sigint"]
    assert "of each step waits for data" in said


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
def test_a_training_that_will_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_hook, "_PATIENCE", 0.2)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    result = profile_training(f"{sys.executable} {tmp_path / 'stubborn.py'}", steps=3, seconds=60, finding=0.0)
    assert result.report is not None
    assert result.status is None


def test_the_report_is_on_the_loader_that_took_most_of_the_time_in_the_end_and_the_status_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "alternating.py").write_text(ALTERNATING)
    result = packer_with_torch("doctor", "--train", f"{sys.executable} {tmp_path / 'alternating.py'}")
    assert result.returncode == EXIT_STATUS["error"], result
    assert "the last pass" in result.stdout
    assert "collation takes" in result.stdout
    assert "the command ended by itself, with status 3" in result.stderr


def test_a_command_sets_variables_and_quotes_words_as_in_a_shell(training: Path) -> None:
    said = "import os, sys; print(os.environ['FOO'], sys.argv[1:])"
    line = f"FOO='a b' BAR= {sys.executable} -c {shlex.quote(said)} 'x | y' '&&' --name=\"a|b\" c\\;"
    result = packer("doctor", "--train", line)
    assert result.stdout == "a b ['x | y', '&&', '--name=a|b', 'c;']\n"


def test_a_command_of_no_words_is_refused() -> None:
    for nothing in ("", "  ", "''", "A=1"):
        with pytest.raises(OptionError, match="--train takes a command, such as"):
            profile_training(nothing)


def test_a_command_without_a_loader_is_an_error_that_says_what_to_do() -> None:
    for line, message in {
        f"{sys.executable} -c pass": "ended with status 0 before a DataLoader or packer.Loader returned a batch",
        "./no-such-program": "./no-such-program cannot be started",
        "no-such-script.py --lr 1": "Pass --train 'python no-such-script.py --lr 1'",
    }.items():
        result = packer("doctor", "--train", line)
        assert result.returncode == EXIT_STATUS["error"], result
        assert message in result.stderr
        assert "Traceback" not in result.stderr
    shell = [f"{sys.executable} -c pass {rest}" for rest in ("| cat", "> nowhere", "&& true", "; true")]
    for result in packer_many(["doctor", "--train", line] for line in shell):
        assert result.returncode == EXIT_STATUS["usage"], result
        assert "without a shell, but it contains" in result.stderr
    lines = [["--train", ""], ["--train", "'"], ["--train", "true", "."], ["--steps", "3"]]
    for result in packer_many(["doctor", *words] for words in lines):
        assert result.returncode == EXIT_STATUS["usage"], result
