"""How many CPUs and how much memory a process may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from packer._storage.system import available_cpus, available_memory, cgroup_cpus, cgroup_memory, require_seconds

UNLIMITED = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}


def counted(environment: dict[str, str], cpus: set[int] | None = None) -> int:
    """Return the number of CPUs that a process of its own counts."""
    pin = f"os.sched_setaffinity(0, {cpus});" if cpus else ""
    code = f"import os; {pin} from packer._storage.system import available_cpus; print(available_cpus())"
    return int(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system with CPU affinity")
def test_affinity_and_slurm() -> None:
    free = counted(UNLIMITED)
    assert 1 <= free <= len(os.sched_getaffinity(0))
    assert counted(UNLIMITED, {min(os.sched_getaffinity(0))}) == 1
    assert counted({**UNLIMITED, "SLURM_CPUS_PER_TASK": "1", "SLURM_CPUS_ON_NODE": "64"}) == 1
    assert counted({**UNLIMITED, "SLURM_CPUS_ON_NODE": "1"}) == 1
    for value in ("100000", "0x", "", "2(x3)"):
        assert counted({**UNLIMITED, "SLURM_CPUS_PER_TASK": value}) == free


def test_slurm_never_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "0")
    assert available_cpus() == 1


def quota(root: Path, membership: str, **files: str) -> int | None:
    for name, text in files.items():
        path = root / "cgroup" / name.replace("__", "/").replace("cpu_max", "cpu.max").replace("cfs_", "cpu.cfs_")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "membership").write_text(membership)
    return cgroup_cpus(root / "cgroup", root / "membership")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("max 100000\n", None),
        ("200000 100000\n", 2),
        ("250000 100000\n", 3),
        ("50000 100000\n", 1),
        ("1000 100000\n", 1),
        ("6400000 100000", 64),
        ("", None),
    ],
)
def test_cgroup_v2(tmp_path: Path, text: str, cpus: int | None) -> None:
    assert quota(tmp_path, "0::/user/job\n", user__job__cpu_max=text) == cpus


def test_cgroup_v2_above(tmp_path: Path) -> None:
    """The limit of every group above applies too."""
    files = {"cpu_max": "max 100000", "user__cpu_max": "300000 100000", "user__job__cpu_max": "800000 100000"}
    assert quota(tmp_path, "0::/user/job/step\n", **files) == 3
    assert quota(tmp_path, "0::/user/job\n") == 3
    assert quota(tmp_path, "0::/\n") is None
    assert quota(tmp_path, "0::/../elsewhere\n") is None
    assert quota(tmp_path, "") is None


def test_cgroup_v1(tmp_path: Path) -> None:
    membership = "12:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/job\n"
    assert quota(tmp_path, membership, cpu__job__cfs_quota_us="-1\n", cpu__job__cfs_period_us="100000\n") is None
    assert quota(tmp_path, membership, cpu__job__cfs_quota_us="150000\n") == 2
    assert quota(tmp_path, "12:cpuset:/job\n3:cpuacct:/job\n") is None


def test_no_cgroup(tmp_path: Path) -> None:
    assert cgroup_cpus(tmp_path, tmp_path / "missing") is None
    assert cgroup_memory(tmp_path, tmp_path / "missing") is None


def test_memory_is_at_most_the_machines() -> None:
    memory = available_memory()
    assert memory is None or 0 < memory <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("membership", "files", "memory"),
    [
        ("0::/user/job\n", {"user/job/memory.max": "max\n"}, None),
        ("0::/user/job\n", {"user/job/memory.max": "max\n", "user/memory.max": "1073741824\n"}, 1 << 30),
        ("0::/user/job\n", {"user/job/memory.max": "4096\n", "user/memory.max": "1073741824\n"}, 4096),
        ("4:memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": "8192\n"}, 8192),
        ("4:cpu:/job\n", {"memory/job/memory.limit_in_bytes": "8192\n"}, None),
    ],
)
def testcgroup_memory(tmp_path: Path, membership: str, files: dict[str, str], memory: int | None) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "membership").write_text(membership)
    assert cgroup_memory(tmp_path / "cgroup", tmp_path / "membership") == memory


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan")])
def test_a_time_that_never_ends_or_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="span must be a number above 0"):
        require_seconds("span", wrong)
