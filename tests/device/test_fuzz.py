"""The kernels' twin reads and writes nothing outside of its memory, whatever tiles and tables hold."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from device.twin import SOURCES
from fuzz.device.__main__ import compile_driver, write_batches
from tests.device.conftest import require_compilers

FAULTS = {
    "more markers than a group has tiles": ("tiles.h", "tile >= group->tiles || !belongs(group, tile, after)", "0"),
    "MCUs beyond the window": (
        "entropy.h",
        "smaller(first + image->interval, image->columns)",
        "first + image->interval",
    ),
    "coefficients beyond the last": ("entropy.h", "(k - 1) & 127", "k - 1 + 64 * (k > 64)"),
}


def fuzzed(sources: Path, directory: Path, tiles: int) -> subprocess.CompletedProcess[str]:
    try:
        program = compile_driver(directory, sources, ["-O0"])  # compiling takes longer than running
    except RuntimeError as error:
        pytest.skip(f"needs a C compiler with sanitizers: {error}")
    return subprocess.run(
        [program, str(tiles), "5", *map(str, write_batches(directory))], capture_output=True, text=True, check=False
    )


def test_changed_tiles_and_tables(tmp_path: Path) -> None:
    require_compilers()
    done = fuzzed(SOURCES, tmp_path, 400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "damaged 0," not in done.stdout


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    require_compilers()
    sources = tmp_path / "device"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    name, right, wrong = FAULTS[fault]
    text = (sources / name).read_text()
    assert right in text
    (sources / name).write_text(text.replace(right, wrong))
    done = fuzzed(sources, tmp_path, 5_000)
    assert done.returncode != 0
    assert "found with: driver 1 " in done.stderr
