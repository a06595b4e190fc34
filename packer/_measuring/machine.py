"""Findings about this machine that matter to a data loader: processors, memory, limits, GPUs, libraries."""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from packer._images.extension import VECTORS, _native, shortcoming
from packer._storage.system import available_cpus, cgroup_cpus, cgroup_memory, in_units
from packer.errors import MissingDependencyError


@dataclass(frozen=True)
class Finding:
    """One finding about a machine.

    Attributes
    ----------
    topic : str
        The subject: ``"processors"``, ``"memory"``, ``"/dev/shm"``, ….
    found : str
        The fact.
    means : str
        The meaning of the fact for reading data; empty if it is obvious.
    advice : str
        The remedy; empty if nothing needs to be done.
    values : dict
        The numbers and names behind the finding: sizes in bytes, times in seconds, rates per second.
    """

    topic: str
    found: str
    means: str = ""
    advice: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.advice


_ICE_LAKE = {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl", "_vnni", "_vbmi", "_vbmi2")}
_SMALL_SHARED_MEMORY = 1 << 30  # bytes
_FEW_FILES = 4096
_MOST_FILES = 65_536  # the highest limit of open files that is advised
_UNLIMITED = 1 << 62  # the system may report a number this high if there is no limit
_LITTLE_MEMORY = 4 << 30  # bytes

_LIBRARIES = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "numpy": ("numpy",),
    "Pillow": ("pillow", "pillow-simd"),
    "simplejpeg": ("simplejpeg",),
    "PyTurboJPEG": ("PyTurboJPEG",),
    "OpenCV": ("opencv-python-headless", "opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "h5py": ("h5py",),
    "lmdb": ("lmdb",),
}
"""The libraries that decode, make batches and read packs, each with the distributions that contain it."""

_DECODERS = {"turbojpeg": "simplejpeg", "pyturbojpeg": "PyTurboJPEG", "opencv": "OpenCV", "pillow": "Pillow"}
"""The library behind each decoder's name."""

_AUTOMATIC = ("turbojpeg", "opencv", "pillow")
"""A copy of `packer._images.decode.AUTOMATIC`: importing it would import numpy, which ``packer --version`` avoids."""


def describe_machine() -> Iterator[Finding]:
    """Yield findings on processors, memory, limits, GPUs and libraries. torch is imported only if there is a GPU."""
    yield _processors()
    yield _decoder()
    yield _load()
    yield _memory()
    yield _shared_memory()
    yield from _limits()
    yield from _gpus()
    yield _libraries()


def _processors() -> Finding:
    count, usable = os.cpu_count() or 1, available_cpus()
    name = processor()
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    quota = cgroup_cpus()
    slurm = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE")
    limits = {"affinity": affinity, "cgroup": quota, "SLURM": slurm}
    listed = ", ".join(f"{source} {limit}" for source, limit in limits.items() if limit not in (None, count))
    values = {"count": count, "usable": usable, "affinity": affinity, "cgroup": quota, "slurm": slurm, "name": name}
    found = f"{usable} of {count} usable, {name}"
    if affinity is None:
        found += "; affinity is not available on this system"
    if usable == count:
        return Finding("processors", found, f"up to {usable} threads or workers decode at the same time", "", values)
    means = f"fewer than the machine has ({listed}): programs that use the machine's number start too many threads"
    advice = (
        f"Pass num_workers={usable} or threads={usable}, and OMP_NUM_THREADS={usable}; or ask for more processors "
        "(SLURM: --cpus-per-task, Docker: --cpus)"
    )
    return Finding("processors", found, means, advice, values)


def _decoder() -> Finding:
    from packer._images.decode import LIBJPEG_TURBO, fast_decoder

    flags = set((_cpuinfo("flags") or "").split())
    short = shortcoming()
    values = {
        "own": _native is not None,
        "vectors": VECTORS,
        "avx2": "avx2" in flags,
        "avx512": flags >= _ICE_LAKE,
    }
    if _native is None:
        assert short is not None
        means = "libjpeg-turbo and torch decode and resize instead: the same pixels, on x86-64 at about half the speed"
        if fast_decoder()[0] not in LIBJPEG_TURBO:
            means = "libraries decode crops in full instead: the same pixels, at less than half the speed"
        return Finding("decoder", f"not packer's own: {short.reason}", means, short.cure, values)
    means = "a node without AVX2 or NEON reads the same pixels, at about half the speed"
    if VECTORS:
        return Finding("decoder", f"packer's own, with {VECTORS}", means, "", values)
    why, cure = short or ("it supports no vector instructions of this processor", "")
    return Finding("decoder", f"packer's own, in plain C: {why}", "it takes about twice as long", cure, values)


def _load() -> Finding:
    if not hasattr(os, "getloadavg"):
        return Finding("load", "not available on this system")
    load, usable = os.getloadavg()[0], available_cpus()
    values = {"load": load}
    if load <= max(0.5 * (os.cpu_count() or 1), 0.5):
        return Finding("load", f"{load:.1f} in the last minute", "the processors are free", "", values)
    means = f"other programs use the processors, of which this process may use {usable}; measurements vary now"
    return Finding("load", f"{load:.1f} in the last minute", means, "Measure again when they are done", values)


def _memory() -> Finding:
    total, free, cached, limit = _meminfo("MemTotal"), _meminfo("MemAvailable"), _meminfo("Cached"), cgroup_memory()
    if total is None:
        return Finding("memory", "not available on this system")
    usable = min(total, limit) if limit else total
    values = {"total": total, "available": free, "page_cache": cached, "cgroup": limit}
    found = f"{in_units(total)}, {in_units(free or 0)} available, {in_units(cached or 0)} hold files (page cache)"
    if limit is not None and limit < total:
        found += f"; the cgroup grants {in_units(limit)}"
    means = f"data of up to {in_units(min(free or usable, usable))} is read from memory in the next epoch"
    if usable >= _LITTLE_MEMORY:
        return Finding("memory", found, means, "", values)
    advice = (
        "Ask for more memory; the page cache counts towards the cgroup's limit"
        if limit
        else "Use few workers: each has a copy of the dataset's Python objects"
    )
    return Finding("memory", found, means, advice, values)


def _shared_memory() -> Finding:
    try:
        state = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return Finding("/dev/shm", "missing on this system", "workers pass batches through files or in another way")
    size, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    found = f"{in_units(size)}, {in_units(free)} free"
    means = "a DataLoader's workers pass their batches through it"
    advice = ""
    if free < _SMALL_SHARED_MEMORY:
        means += "; if it is full, they end with a bus error. packer's Loader does not need it"
        advice = "Docker: --shm-size=8g or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm"
    return Finding("/dev/shm", found, means, advice, {"size": size, "free": free})


def _limits() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:
        yield Finding("limits", "this system has no ulimit")
        return
    yield _open_files(*map(_limit, resource.getrlimit(resource.RLIMIT_NOFILE)))
    if hasattr(resource, "RLIMIT_MEMLOCK"):
        yield _locked_memory(*map(_limit, resource.getrlimit(resource.RLIMIT_MEMLOCK)))


def _limit(value: int) -> int | None:
    """Return the value of a resource limit; None if the value means unlimited."""
    return None if value < 0 or value >= _UNLIMITED else value


def _open_files(soft: int | None, hard: int | None) -> Finding:
    current, most = ("unlimited" if limit is None else f"{limit:,}" for limit in (soft, hard))
    means, advice = "workers pass a file descriptor for each tensor", ""
    if soft is not None and soft < _FEW_FILES:
        means += "; if none is left, the error is 'Too many open files' or 'received 0 items of ancdata'"
        advice = f"ulimit -n {_FEW_FILES if hard is None else max(_FEW_FILES, min(hard, _MOST_FILES))}"
        if hard and hard < _FEW_FILES:
            advice += ", which an administrator must allow"
    return Finding("ulimit -n", f"{current} open files, at most {most}", means, advice, {"soft": soft, "hard": hard})


def _locked_memory(soft: int | None, hard: int | None) -> Finding:
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    found = f"{'unlimited memory' if soft is None else in_units(soft)} may be locked"
    means, advice = 'open_dataset(pack, cache="ram") locks the pack in memory', ""
    if soft is not None and is_root:
        found += ", and more by root"
    elif soft is not None and soft < (_meminfo("MemTotal") or 0) // 4:
        means += "; larger packs are refused"
        advice = "ulimit -l unlimited (Docker: --ulimit memlock=-1), or stage the pack in /dev/shm with `packer stage`"
    return Finding("ulimit -l", found, means, advice, {"soft": soft, "hard": hard})


def available_now() -> int | None:
    """Return the memory available to the page cache, in bytes; None if the system does not report it."""
    limits = [value for value in (_meminfo("MemAvailable"), cgroup_memory()) if value is not None]
    return min(limits, default=None)


_GPU_FIELDS = "name,memory.total,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,driver_version"


def _gpus() -> Iterator[Finding]:
    rows = _nvidia_smi()
    sees = _torch_cuda(bool(rows))
    if not rows and not sees:
        yield Finding(
            "GPU", "nvidia-smi and torch find none", "training runs on the processors", "", {"torch_cuda": sees}
        )
        return
    for row in rows:
        name, memory, generation, width, widest, driver = row
        found = f"{name}, {memory}, PCIe {generation} x{width}, driver {driver}"
        narrow = width.isdigit() and widest.isdigit() and int(width) < int(widest)
        means = f"the link uses only {width} of {widest} lanes, which makes copying batches slower" if narrow else ""
        advice = "Move the card to a slot with all lanes" if narrow else ""
        values = {"name": name, "memory": memory, "pcie_generation": generation, "pcie_width": width}
        yield Finding("GPU", found, means, advice, values)
    if rows and not sees:
        version = version_of("torch") or "not installed"
        yield Finding(
            "torch and GPU",
            f"torch {version} does not see the GPU",
            "training runs on the processors",
            "Install a torch that is built for CUDA (pytorch.org/get-started), or check whether CUDA_VISIBLE_DEVICES "
            "is empty",
            {"torch_cuda": False},
        )
    elif sees:
        yield Finding("torch and GPU", f"torch sees {', '.join(sees)}", "", "", {"torch_cuda": sees})


def _nvidia_smi() -> list[list[str]]:
    line = ["nvidia-smi", f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader"]
    try:
        output = subprocess.run(line, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in row.split(",")] for row in output.splitlines()]
    return [row for row in rows if len(row) == _GPU_FIELDS.count(",") + 1]


def _torch_cuda(likely: bool) -> list[str]:
    """Return the names of the devices that torch can use; torch is imported only if there is a sign of a GPU."""
    has_amd_driver = os.path.exists("/dev/kfd")
    if not likely and not has_amd_driver and "torch" not in sys.modules:
        return []
    try:
        import torch
    except ImportError:
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _libraries() -> Finding:
    from packer._images.decode import LIBJPEG_TURBO, fast_decoder

    short = shortcoming()
    versions = {name: version for name, alike in _LIBRARIES.items() if (version := version_of(*alike)) is not None}
    found = ", ".join(
        f"{name} {version}" for name, version in {"Python": platform.python_version(), **versions}.items()
    )
    decoder, _ = fast_decoder()
    file = _system_libjpeg_turbo()
    values = {"python": sys.version.split()[0], "jpeg": decoder, "libturbojpeg": file, **versions}
    jpegs = "JPEGs that packer's own decoder does not support" if short is None else "JPEGs"
    means = f"{jpegs} go to {_DECODERS[decoder]}, and images of other types to Pillow"
    if file is not None:
        means += f"; PyTurboJPEG, which decodes on request, uses {file}"
    missing = [name for name in ("torch",) if name not in versions]
    if decoder not in LIBJPEG_TURBO and short is not None:
        missing.append("simplejpeg")
    return Finding("libraries", found, means, f"pip install {' '.join(missing)}" if missing else "", values)


def libraries_that_decode() -> list[str]:
    """Return the installed libraries that ``decoder="auto"`` chooses from, best first, with their versions.

    No library is imported.
    """
    return [named for name in _AUTOMATIC if (named := _with_version(_DECODERS[name])) is not None]


def libraries_on_request() -> list[str]:
    """Return the installed libraries that packer uses on request, with their versions.

    No library is imported. The system's libjpeg-turbo is not loaded either, so it may turn out not to work;
    `describe_machine` loads it.
    """
    binding, lmdb = _with_version("PyTurboJPEG"), _with_version("lmdb")
    if binding is not None:
        name = ctypes.util.find_library("turbojpeg")
        binding += f" with {name}" if name else ", which needs the system's libturbojpeg (on Debian libturbojpeg0)"
    return [library for library in (binding, lmdb) if library is not None]


def _with_version(library: str) -> str | None:
    """Return a library's name and version; None if it is not installed."""
    version = version_of(*_LIBRARIES[library])
    return None if version is None else f"{library} {version}"


def _system_libjpeg_turbo() -> str | None:
    """Return the file of the system's libjpeg-turbo, if PyTurboJPEG decodes with it."""
    from packer._images.decode import fast_decoder

    try:
        fast_decoder("pyturbojpeg")
    except MissingDependencyError:
        return None
    return _loaded("libturbojpeg") or ctypes.util.find_library("turbojpeg")


def _loaded(name: str) -> str | None:
    """Return the file of a library that this process has loaded; None if the system does not report it."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith(name):
                return path
    return None


def processor() -> str:
    """Return the name of the processor, or its architecture if the system does not report a name."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def version_of(*distributions: str) -> str | None:
    """Return the version of the first of these distributions that is installed; None if none is."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _cpuinfo(name: str) -> str | None:
    """Return a value for the first processor from ``/proc/cpuinfo``."""
    return _line("/proc/cpuinfo", name)


def _meminfo(name: str) -> int | None:
    """Return a number from ``/proc/meminfo``, in bytes."""
    line = _line("/proc/meminfo", name)
    return int(line.split()[0]) * 1024 if line else None


def _line(path: str, name: str) -> str | None:
    """Return the value of the first line ``name: value`` of a file; None without such a line or file."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return None
