"""What a command shows while it works: lines in a log, and with ``--json-progress`` objects that programs read."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from packer._cli import cli
from packer._cli.output import ProgressDisplay, _line, _Progress
from packer._storage.remote.cache import prepare
from tests.command import every_command, packer, packer_many
from tests.conftest import Trees

KEYS = [
    "what",
    "phase",
    "done",
    "total",
    "unit",
    "rate",
    "seconds_left",
    "seconds",
    "bytes",
    "skipped",
    "notes",
    "state",
]


def objects(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Return the JSON objects on a command's stderr, which contains nothing else."""
    return [json.loads(line) for line in result.stderr.splitlines()]


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=2, per_class=4, size=(24, 32))


def test_every_command_says_in_json_how_far_it_is_and_that_it_is_done(tree: Path, tmp_path: Path) -> None:
    pack, parts, more = tmp_path / "x.lmdb", tmp_path / "parts.lmdb", tmp_path / "more"
    for path in tree.rglob("*.jpg"):
        new = more / path.parent.name / f"new-{path.name}"
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(path.read_bytes())
    lines = {
        "convert": [tree, pack],
        "convert --parts 2": [tree, parts],
        "append": [parts, more, "--codec", "keep"],
        "index": [tree, tmp_path / "x.index"],
        "scan": [tree, tmp_path / "x.scan"],
        "merge": [pack, tmp_path / "merged.h5"],
        "verify": [pack],
        "export": [pack, tmp_path / "files"],
        "info": [pack],
        "warm": [pack],
        "stage": [pack, tmp_path / "staged"],
        "unstage": [pack, tmp_path / "staged"],
        "cache info": [tmp_path / "cache"],
        "cache clear": [tmp_path / "cache"],
        "estimate": [tree, tmp_path / "y.lmdb", "--seconds", 0.1],
    }
    prepare(str(tmp_path / "cache"), 1)
    results = packer_many([[*name.split(), *places, "--json-progress"] for name, places in lines.items()])
    for name, result in zip(lines, results, strict=True):
        assert result.returncode == 0, (name, result.stderr)
        shown = objects(result)
        assert all(list(one) == KEYS for one in shown), name
        assert shown[-1]["state"] == "done", name
        assert all(one["state"] == "running" for one in shown[:-1]), name
    last = objects(results[0])[-1]
    assert (last["what"], last["phase"], last["unit"]) == ("x.lmdb", None, "images")
    assert (last["done"], last["total"], last["skipped"]) == (8, 8, 0)
    assert objects(results[list(lines).index("warm")])[-1]["unit"] == "bytes"


def test_quiet_leaves_the_objects_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    (bad := tmp_path / "bad" / "a").mkdir(parents=True)
    (bad / "x.jpg").write_bytes(b"no image")
    good, failed, silent = packer_many(
        [
            ["convert", tree, tmp_path / "x.lmdb", "--quiet", "--json-progress"],
            ["convert", bad.parent, tmp_path / "y.lmdb", "--quiet", "--json-progress"],
            ["convert", tree, tmp_path / "z.lmdb", "--quiet"],
        ]
    )
    assert good.stdout == ""
    assert objects(good)[-1]["state"] == "done"
    *shown, message = failed.stderr.splitlines()
    assert json.loads(shown[-1])["state"] == "failed"
    assert message.startswith("packer: ")
    assert (silent.stdout, silent.stderr) == ("", "")


def test_a_phase_without_news_shows_that_it_lives(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, a line appears after two seconds, with the phase and the elapsed time."""
    with ProgressDisplay("x.lmdb") as display:
        display.phase("listing photos")
        while not (shown := capsys.readouterr().err):
            time.sleep(0.05)
        display.phase(None)
        display.update(0, 10)
        display.update(10, 10, read=5_000_000, skipped=2)
        while not (ending := capsys.readouterr().err):
            time.sleep(0.05)
    assert shown.startswith("x.lmdb, listing photos: ")
    assert shown.endswith(" so far\n")
    assert ending.startswith("x.lmdb: 10 of 10, ")
    assert "2 skipped, ending for " in ending


def test_work_of_a_certain_time_says_how_much_of_it_is_over_and_what_is_done() -> None:
    progress = _Progress("bench", None, "seconds", began=time.monotonic() - 12)
    progress.update(10, 10, 0, 0, {"now": "starting a.lmdb: DataLoader"})
    progress.updated -= 9
    assert _line(progress) == "12.0 s of 10.0 s, starting a.lmdb: DataLoader"


def test_every_command_that_shows_progress_can_show_it_in_json() -> None:
    for name, known in every_command(cli):
        if name == "completion":  # it ends at once
            continue
        assert "--json-progress" in {option for one in known.params for option in one.opts}, name


def test_an_estimate_is_printed_for_people_and_for_programs(tree: Path, tmp_path: Path) -> None:
    plain = packer("estimate", tree, tmp_path / "x.lmdb", "--seconds", 0.5, "--jobs", 2, "--limit", 6)
    assert plain.returncode == 0, plain.stderr
    assert "6 images" in plain.stdout
    assert f"\n  packer convert {tree} {tmp_path / 'x.lmdb'} --limit 6\n" in plain.stdout
    assert "--parts 2 --part K    # in each job, K from 0\n" in plain.stdout
    found = json.loads(packer("estimate", tree, tmp_path / "x.lmdb", "--seconds", 0.5, "--json").stdout)
    assert found["images"] == 8
    assert found["size"]["low"] <= found["size"]["value"] <= found["size"]["high"]
    assert found["command"] == f"packer convert {tree} {tmp_path / 'x.lmdb'}"
    assert list(tmp_path.iterdir()) == []
