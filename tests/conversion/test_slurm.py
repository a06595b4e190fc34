"""SLURM itself, on this machine: job arrays and dask-jobqueue give the pack that one process gives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from packer._packs.info import digest
from tests.command import packer

SCRIPTS = Path(__file__).parents[2] / "scripts"
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv")

_missing = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        bool(_missing) or not hasattr(os, "geteuid") or os.geteuid() != 0 or not SCRIPTS.is_dir(),
        reason="needs root, the repository's scripts, and SLURM (Debian: slurmctld slurmd slurm-client munge)",
    ),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """Start SLURM; return the environment of its commands."""
    directory = Path(tempfile.mkdtemp(prefix="slurm-"))
    directory.chmod(0o755)  # munged runs as a user of its own
    script = SCRIPTS / "slurm-daemons"
    started = subprocess.run([script, "start", directory], capture_output=True, text=True, check=False)
    if started.returncode:
        shutil.rmtree(directory)
        pytest.skip(f"needs a machine on which SLURM's daemons start: {started.stderr.strip()[-300:]}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf"), "PATH": path}
    environment |= {"PYTHONPATH": str(SCRIPTS.parent)}
    yield environment
    subprocess.run(["scancel", "--user", "root"], env=environment, check=False)
    subprocess.run([script, "stop", directory], check=True)
    shutil.rmtree(directory, ignore_errors=True)


def submit(slurm: dict[str, str], folder: Path, *arguments: object, array: str = "0-3") -> str:
    """Submit the script that users copy; return the number of the job."""
    line = ["sbatch", "--parsable", f"--array={array}", "--cpus-per-task=1", "--output=%a.log"]
    line += [str(SCRIPTS / "slurm" / "array.sbatch"), *map(str, arguments), "--codec", "png"]
    return subprocess.run(line, env=slurm, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def wait(slurm: dict[str, str], job: str) -> None:
    """Wait until no task of a job is left; `sbatch --wait` polls only every few seconds."""
    deadline = time.monotonic() + 200
    line = ["squeue", "--noheader", "--job", job]
    while subprocess.run(line, env=slurm, capture_output=True, check=True).stdout.strip():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))


def test_a_job_array_gives_the_same_pack(slurm: dict[str, str], tree: Path, whole: str, tmp_path: Path) -> None:
    assert packer("scan", tree, tmp_path / "tree.scan").returncode == 0
    out = tmp_path / "out.lmdb"
    wait(slurm, submit({**slurm, "SCRATCH_ON_NODE": str(tmp_path / "scratch")}, tmp_path, tmp_path / "tree.scan", out))
    assert out.exists(), logs(tmp_path)
    assert digest(out) == whole
    assert os.listdir(tmp_path / "scratch") == []
    assert logs(tmp_path).count("120 samples") == 1  # the last task finished it
    wait(slurm, submit({**slurm, "PARTS": "4"}, tmp_path, tmp_path / "tree.scan", out, array="2"))
    assert "done already" in logs(tmp_path)
    assert digest(out) == whole


def test_a_cancelled_array_continues(slurm: dict[str, str], tree: Path, whole: str, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    job = submit(slurm, tmp_path, tree, out)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out.h5.partial" / "pack").glob("part-0000?.h5")):
        assert time.monotonic() < deadline, logs(tmp_path)
        time.sleep(0.01)
    subprocess.run(["scancel", "--signal=KILL", job], env=slurm, check=True)
    subprocess.run(["scancel", job], env=slurm, check=True)
    wait(slurm, job)
    made_at = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out.h5.partial" / "pack").glob("*.h5")}
    assert made_at
    assert not out.exists()
    wait(slurm, submit(slurm, tmp_path, tree, out))
    assert out.exists(), logs(tmp_path)
    assert {name: (out / name).stat().st_mtime_ns for name in made_at} == made_at
    assert digest(out) == whole


def test_dask_jobqueue(slurm: dict[str, str], tree: Path, whole: str, tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue", reason="needs Dask: pip install dask-jobqueue")
    out = tmp_path / "out.lmdb"
    settings = {"CORES": "1", "PROCESSES": "1", "MEMORY": "400MB", "WALLTIME": "00:10:00", "INTERFACE": "lo"}
    environment = slurm | {f"DASK_JOBQUEUE__SLURM__{name}": value for name, value in settings.items()}
    result = packer(
        *("convert", tree, out, "--codec", "png", "--parts", 6, "--cluster", "slurm", "--jobs", 2),
        env=environment,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert digest(out) == whole
    assert list(tmp_path.glob("slurm-*.out"))
