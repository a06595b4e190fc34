"""`packer.doctor` reports the figures of the system; small limits are findings; disks are measured, not changed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import packer
from packer._cli import EXIT_STATUS
from packer._images.extension import _native
from packer._measuring.doctor import DiskReadings, _listing, file_system, read_disk
from packer.errors import SourceError
from tests.command import packer as run, packer_many, without_root_powers
from tests.conftest import Trees
from tests.samples import content

if sys.platform != "linux":
    pytest.skip("compared with what Linux says", allow_module_level=True)


def by_topic(diagnosis: packer.Diagnosis) -> dict[str, packer.Finding]:
    return {finding.topic: finding for finding in diagnosis.findings}


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=2, per_class=8, size=(64, 64))


def test_what_is_said_of_the_machine_is_what_others_say() -> None:
    found = by_topic(packer.doctor())
    assert found["processors"].values["count"] == psutil.cpu_count()
    assert found["processors"].values["affinity"] == len(psutil.Process().cpu_affinity() or [])
    memory = psutil.virtual_memory()
    assert found["memory"].values["total"] == memory.total
    assert abs(found["memory"].values["available"] - memory.available) < 0.2 * memory.total
    shared = psutil.disk_usage("/dev/shm")
    assert found["/dev/shm"].values["size"] == shared.total
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["ulimit -n"].values == {"soft": soft, "hard": hard}
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    assert found["ulimit -l"].values["soft"] in (locked, None)
    assert found["decoder"].values["own"] is (_native is not None)
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    assert found["decoder"].values["avx2"] is ("avx2" in flags)
    assert found["libraries"].values["numpy"] == __import__("numpy").__version__
    assert ("GPU" in found) or ("torch and GPU" in found)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_found_with_its_name_and_its_link() -> None:
    found = {finding.topic: finding for finding in packer.doctor().findings}
    name = torch.cuda.get_device_name(0)
    assert found["GPU"].values["name"] == name
    assert name in found["torch and GPU"].values["torch_cuda"]
    assert f"PCIe {found['GPU'].values['pcie_generation']}" in found["GPU"].found


LIMITED = """
import json, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ["SLURM_CPUS_PER_TASK"] = "1"
import packer
print(json.dumps(packer.doctor().to_json()))
"""


def test_small_limits_are_findings_with_advice() -> None:
    result = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    found = {finding["topic"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert found["processors"]["values"]["usable"] == 1
    if (os.cpu_count() or 1) > 1:
        assert "num_workers=1" in found["processors"]["advice"]
    assert found["ulimit -n"]["values"] == {"soft": 256, "hard": 1024}
    assert "ulimit -n 4096, which an administrator must allow" in found["ulimit -n"]["advice"]


def test_the_disk_is_read_within_its_time_and_nothing_is_written(tree: Path) -> None:
    before = content(tree)
    diagnosis = packer.doctor(tree, seconds=0.5)
    found = by_topic(diagnosis)
    assert content(tree) == before
    assert found["file system"].values["kind"] == next(
        part.fstype
        for part in sorted(psutil.disk_partitions(all=True), key=lambda part: -len(part.mountpoint))
        if str(tree.resolve()).startswith(part.mountpoint)
    )
    assert found["listing"].values["entries"] == 18
    assert found["reading"].values["random"] > 0
    mean = sum(path.stat().st_size for path in tree.rglob("*.jpg")) / 16
    assert 0.5 * mean < found["reading"].values["bytes"] < 2 * mean
    assert json.loads(json.dumps(diagnosis.to_json()))["path"] == str(tree)
    assert "reads a second" in str(diagnosis)


def test_a_pack_is_read_in_order_and_at_random(tmp_path: Path) -> None:
    pack = tmp_path / "large.lmdb"
    with pack.open("wb") as file:
        file.truncate(64 << 20)
    readings = read_disk(pack, 0.5)
    assert readings.in_order > 0
    assert readings.size == 112 << 10
    assert readings.together > 0
    fitting = by_topic(packer.doctor(pack, seconds=0.2))["in memory"]
    assert fitting.is_fine


def test_a_path_that_is_not_there_or_is_empty_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing").write_bytes(b"")
    missing, empty, nothing = packer_many(
        [["doctor", tmp_path / name, "--seconds", "0.2"] for name in ("missing", "empty", "nothing")]
    )
    assert missing.returncode == EXIT_STATUS["error"]
    assert "no such file or directory" in missing.stderr
    assert empty.returncode == nothing.returncode == EXIT_STATUS["ok"], (empty, nothing)
    assert "the directory is empty" in empty.stdout
    assert "nothing was measured" in nothing.stdout
    with pytest.raises(ValueError, match="a number above 0"):
        packer.doctor(seconds=0)
    with pytest.raises(SourceError):
        packer.doctor(tmp_path / "missing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a system with FIFOs")
def test_a_fifo_is_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SourceError, match="is a FIFO"):
        packer.doctor(tmp_path / "fifo", seconds=0.2)


@without_root_powers
def test_a_directory_that_may_not_be_read_is_told(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "half" / "closed").mkdir(parents=True)
    (tmp_path / "half" / "open.bin").write_bytes(bytes(9000))
    (tmp_path / "half" / "closed").chmod(0o000)
    for name, status in (("closed", "error"), ("half", "ok")):
        result = run("doctor", tmp_path / name, "--seconds", "0.2", powerless=True)
        assert result.returncode == EXIT_STATUS[status], result
        assert "Traceback" not in result.stderr
        if status == "error":
            assert "Permission denied" in result.stderr
        else:
            assert "1 could not be read" in result.stdout


def test_file_systems_are_told_apart() -> None:
    shared: Any = file_system(Path("/dev/shm"))
    assert shared.is_memory
    assert not shared.is_network
    assert file_system(Path("/proc/self")).kind == "proc"


def test_the_time_of_a_long_listing_has_its_unit() -> None:
    for seconds, said in ((1e-6, "1 s"), (1e-3, "17 min")):
        finding = _listing(DiskReadings(listed=10, listing=seconds))
        assert finding.means == f"listing a million files takes {said}, each time training starts"
