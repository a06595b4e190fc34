"""The fuzz targets pass with their seeds and with earlier findings, and a short fuzzing run finds nothing."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.images import CONTROLS
from fuzz.seeds import seeds, write_seeds
from fuzz.targets import TARGETS
from packer._images.jpeg_tiles import read_tiles

ROOT = Path(__file__).parents[1]
FOUND = sorted((ROOT / "fuzz" / "found").glob("*/*"))

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, about odd images


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[bytes]]:
    return seeds()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_changes_of_them(corpus: dict[str, list[bytes]], name: str, sweep: int) -> None:
    assert corpus[name]
    chance = random.Random(name)
    for data in corpus[name]:
        TARGETS[name](data)
    for _ in range(100 * sweep):
        changed = bytearray(chance.choice(corpus[name]))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(changed))
            changed[at : at + chance.randrange(3)] = chance.choice([b"", b"\0", b"\xff", b"\xff\xff\xff\x7f", b"\x80"])
        TARGETS[name](bytes(changed))


def test_seeds_of_regions_have_tiles_in_several_groups(corpus: dict[str, list[bytes]]) -> None:
    tiles = [read_tiles(data[CONTROLS:]) for data in corpus["region"]]
    assert {len(found.group_ends) for found in tiles if found is not None} == {1, 2, 4}


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_once(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_there_is_something_found() -> None:
    assert {path.parent.name for path in FOUND} <= set(TARGETS)
    assert FOUND


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris (pip install atheris)")
@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run(name: str, tmp_path: Path, sweep: int) -> None:
    if sweep == 1 and name not in ("lmdb", "image"):
        pytest.skip("needs --faults")
    write_seeds(tmp_path / "corpus")
    line = [sys.executable, "-m", "fuzz", name, tmp_path / "corpus" / name, f"-runs={300 * sweep}", "-seed=1"]
    result = subprocess.run(
        [*line, f"-artifact_prefix={tmp_path}/"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
