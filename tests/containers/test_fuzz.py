"""Changed files of every container are listed or refused; ``scripts/fuzz-containers`` does the same for longer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from fuzz.containers import Attack
from fuzz.containerseeds import SEEDS
from packer._containers import CONTAINERS

pytestmark = pytest.mark.filterwarnings("ignore")  # about odd values


@pytest.mark.parametrize("name", SEEDS)
def test_changed_files_are_listed_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: int
) -> None:
    attack = Attack(name, tmp_path, "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "made"))
    attack.try_seeds()
    for _ in range(40 * sweep):
        assert not attack.step(), attack.findings
    assert 2 * sweep <= attack.outcomes["listed"] < 39 * sweep


def test_every_container_has_seeds() -> None:
    assert len(SEEDS) == len(CONTAINERS) - 1  # one container refuses the files that no other recognises
