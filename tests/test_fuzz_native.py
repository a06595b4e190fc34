"""Fuzzing of packer's C: targets and seeds fit together, and the planted faults fit the current C code."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fuzz.native import __main__ as command, builds
from fuzz.native.seeds import CONTROLS, write_seeds
from fuzz.pngs import drawn_pngs
from packer._images import pillow
from packer.errors import ImageError

ROOT = Path(__file__).parents[1]
HERE = ROOT / "fuzz" / "native"
COMPILER = """#!/bin/sh
[ "$1" != --version ] || {{ echo a compiler; exit; }}
for last; do :; done
printf '#!/bin/sh\\n[ "$1" = -runs=1 ] && exit; echo "Test unit written to {found}" >&2; exit 77\\n' > "$last"
[ "$last" = /dev/null ] || chmod +x "$last"
"""
PLANTED = sorted((HERE / "planted").glob("*.patch"))


@pytest.mark.parametrize("name", CONTROLS)
def test_a_target_reads_as_many_controls_as_stand_before_its_seeds(name: str) -> None:
    found = re.search(r"enum \{ CONTROLS = (\d+)", (HERE / f"{name}.c").read_text())
    assert found is not None
    assert int(found[1]) == CONTROLS[name]


def test_every_target_has_seeds_of_which_none_is_too_long(tmp_path: Path) -> None:
    write_seeds(tmp_path)
    for name in CONTROLS:
        sizes = [path.stat().st_size for path in (tmp_path / name).iterdir()]
        assert len(sizes) > 20
        assert max(sizes) < 1 << 15  # the greatest length of an input


def test_every_target_has_a_planted_fault() -> None:
    assert {path.stem.partition("-")[0] for path in PLANTED} == set(CONTROLS)


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.stem)
def test_a_planted_fault_fits_the_c_of_today(path: Path) -> None:
    line = ["patch", "--dry-run", "--force", "-p1", "-d", ROOT, "-i", path]
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "fuzz" not in result.stdout.replace(str(ROOT), "")  # patch reports it if the context has changed


def test_a_target_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["1", "windw"])
    assert ended.value.code == 2
    assert "no target windw; there are window, whole" in capsys.readouterr().err


def test_a_finding_is_named_and_ends_the_run_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiler is a script; it writes a target that has a finding at once."""
    compiler, found = tmp_path / "clang", tmp_path / "crash-1"
    compiler.write_text(COMPILER.format(found=found))
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for module, place in ((builds, "BUILT"), (command, "BUILT"), (command, "LEARNED"), (command, "FINDINGS")):
        monkeypatch.setattr(module, place, tmp_path / place)
    assert command.main(["1", "inflate"]) == 1
    said = capsys.readouterr().out
    assert "address and undefined sanitizers by a compiler" in said
    assert said.endswith(f"{found}\n{found}\n")


def test_drawn_pngs_are_ones_that_pillow_takes() -> None:
    pngs = drawn_pngs(random.Random(1), 60)
    taken = 0
    for data in pngs:
        try:
            taken += pillow.decode(data).size > 0
        except ImageError:  # some have chunks that Pillow refuses
            continue
    assert taken > 50
