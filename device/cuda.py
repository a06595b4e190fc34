"""The kernels on a CUDA device: compiled by NVRTC or nvcc, launched through the driver's API, in the memory of torch.

`compile_kernels` needs no device.
"""

from __future__ import annotations

import ctypes
import glob
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from device.stages import STAGES
from device.twin import SOURCES

Array = npt.NDArray[Any]

_OPTIONS = ("--fmad=false", "--std=c++17")
_LIBRARIES = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "torch/lib", "nvidia/cu12/lib", "nvidia/cu13/lib/x86_64")
_SYSTEM = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu")


class Made(NamedTuple):
    """Compiled kernels.

    Attributes
    ----------
    image : bytes
        A cubin, or PTX.
    by : str
        Which compiler made it.
    log : str
        Its messages.
    """

    image: bytes
    by: str
    log: str


def find_nvrtc(places: Sequence[Path] | None = None) -> Path | None:
    """Return NVRTC's library from torch's folder or the system, or None."""
    if places is None:
        places = [Path(entry or ".") / part for entry in sys.path for part in _LIBRARIES] + [
            Path(part) for part in _SYSTEM
        ]
    found = [path for place in places for path in sorted(glob.glob(f"{place}/libnvrtc.so.*")) if "alt" not in path]
    return Path(found[0]) if found else None


def compile_kernels(architecture: str, nvrtc: Path | None = None, sources: Path = SOURCES) -> Made:
    """Compile the kernels.

    Parameters
    ----------
    architecture : str
        ``sm_90`` for a cubin, ``compute_80`` for PTX.
    nvrtc : Path, optional
        The library; otherwise the one that `find_nvrtc` finds, or else nvcc.

    Raises
    ------
    RuntimeError
        If neither is there, or the kernels do not compile; the message has the compiler's.
    """
    nvrtc = nvrtc or find_nvrtc()
    if nvrtc is not None:
        return _by_nvrtc(architecture, nvrtc, sources)
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        raise RuntimeError(
            "neither NVRTC (libnvrtc.so.*, beside torch) nor nvcc is here: the kernels cannot be compiled"
        )
    return _by_nvcc(architecture, nvcc, sources)


def _by_nvrtc(architecture: str, library: Path, sources: Path) -> Made:
    for builtins in sorted(
        library.parent.glob("libnvrtc-builtins.so.*")
    ):  # which NVRTC else looks for by its name alone
        ctypes.CDLL(str(builtins))
    nvrtc = ctypes.CDLL(str(library))
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    by = f"NVRTC {major.value}.{minor.value} ({library})"
    program = ctypes.c_void_p()
    source = (sources / "kernels.c").read_bytes()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    if made:
        raise RuntimeError(f"{by} makes no program: error {made}")
    options = [f"--gpu-architecture={architecture}", *_OPTIONS, f"-I{sources}"]
    if architecture.startswith("sm_"):
        options += ["-lineinfo", "--ptxas-options=-v"]
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), encoded)
    log = _text_of(nvrtc, "ProgramLog", program).decode(errors="replace")
    if status:
        raise RuntimeError(f"{by} refuses the kernels for {architecture}, error {status}:\n{' '.join(options)}\n{log}")
    image = _text_of(nvrtc, "CUBIN" if architecture.startswith("sm_") else "PTX", program)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return Made(image, by, log)


def _text_of(nvrtc: ctypes.CDLL, name: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{name}")(program, text)
    return text.raw if name == "CUBIN" else text.raw.rstrip(b"\0")


def _by_nvcc(architecture: str, nvcc: str, sources: Path) -> Made:
    kind = "cubin" if architecture.startswith("sm_") else "ptx"
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / f"kernels.{kind}"
        line = [nvcc, f"--{kind}", f"-arch={architecture}", "--fmad=false", "-std=c++17", "-lineinfo", "-x", "cu"]
        line += ["-Xptxas", "-v", str(sources / "kernels.c"), "-o", str(made)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"nvcc refuses the kernels for {architecture}:\n{' '.join(line)}\n{done.stderr}{done.stdout}"
            )
        return Made(made.read_bytes(), f"nvcc ({nvcc})", done.stderr)


class Facts(NamedTuple):
    """The needs of a kernel: registers of a thread, bytes of a thread beside them, shared bytes of a block."""

    registers: int
    local: int
    shared: int


def facts_in(log: str) -> dict[str, Facts]:
    """Return the needs of each kernel, read from the log of a compiler that made a cubin."""
    found = {}
    for entry in log.split("Compiling entry function '")[1:]:
        registers, shared = re.search(r"Used (\d+) registers", entry), re.search(r"(\d+) bytes smem", entry)
        spilt = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", entry)
        assert registers is not None
        name = entry.partition("'")[0]
        found[name] = Facts(int(registers[1]), sum(map(int, spilt)), int(shared[1]) if shared else 0)
    return found


def _check(driver: ctypes.CDLL, status: int, action: str) -> None:
    if status:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        driver.cuGetErrorString(status, ctypes.byref(text))
        said = f"{(name.value or b'?').decode()}: {(text.value or b'?').decode()}"
        raise RuntimeError(f"{action}: CUDA error {status}, {said}; start a new process to use the device again")


class Device:
    """Runs kernels on torch's current CUDA device and stream.

    Raises
    ------
    RuntimeError
        If there is no such device, or the kernels do not compile for it.
    """

    def __init__(self, sources: Path = SOURCES, architecture: str | None = None) -> None:
        try:
            import torch
        except ImportError as error:
            raise RuntimeError(f"the device needs torch: {error}") from error
        if not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
        self.torch = torch
        self._anchor = torch.zeros(1, device="cuda")  # makes torch's context, and makes it current
        capability = torch.cuda.get_device_capability()
        self.architecture = architecture or f"sm_{capability[0]}{capability[1]}"
        self.made = compile_kernels(self.architecture, sources=sources)
        self.driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        module = ctypes.c_void_p()
        _check(
            self.driver,
            self.driver.cuModuleLoadData(ctypes.byref(module), self.made.image),
            f"loading the kernels that {self.made.by} made for {self.architecture}",
        )
        self._functions: dict[str, ctypes.c_void_p] = {}
        for name in STAGES:
            function = ctypes.c_void_p()
            status = self.driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
            _check(self.driver, status, f"finding the kernel {name}")
            self._functions[name] = function

    def facts(self) -> dict[str, Facts]:
        """Return the needs of each kernel."""
        return {
            name: Facts(*(self._attribute(function, number) for number in (4, 3, 1)))
            for name, function in self._functions.items()
        }

    def _attribute(self, function: ctypes.c_void_p, number: int) -> int:
        value = ctypes.c_int()
        _check(
            self.driver,
            self.driver.cuFuncGetAttribute(ctypes.byref(value), number, function),
            "asking for an attribute",
        )
        return value.value

    def blocks_at_once(self, name: str, threads: int) -> int:
        """Return how many blocks of a kernel a multiprocessor runs at once."""
        value = ctypes.c_int()
        status = self.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(value), self._functions[name], ctypes.c_int(threads), ctypes.c_size_t(0)
        )
        _check(self.driver, status, "asking for the occupancy")
        return value.value

    def put(self, array: Array) -> Any:
        return self.torch.from_numpy(np.array(array).view(np.uint8)).cuda()

    def zeros(self, count: int, dtype: np.dtype[Any]) -> Any:
        return self.torch.zeros(count * dtype.itemsize, dtype=self.torch.uint8, device="cuda")

    def clear(self, memory: Any) -> None:
        memory.zero_()

    def fetch(self, memory: Any) -> Array:
        """Return the bytes of memory."""
        bytes_of: Array = memory.cpu().numpy()
        return bytes_of

    def replace(self, memory: Any, array: Array) -> None:
        """Copy an array into memory of as many bytes."""
        memory.copy_(self.put(array))

    def launch(self, name: str, blocks: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        held = [
            ctypes.c_uint32(argument) if isinstance(argument, int) else ctypes.c_void_p(argument.data_ptr())
            for argument in arguments
        ]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(argument) for argument in held))
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        status = self.driver.cuLaunchKernel(
            self._functions[name], *(ctypes.c_uint(blocks[0]), ctypes.c_uint(blocks[1]), ctypes.c_uint(1)),
            *(ctypes.c_uint(threads), ctypes.c_uint(1), ctypes.c_uint(1)), ctypes.c_uint(0), stream, pointers, None,
        )  # fmt: skip
        _check(self.driver, status, f"launching {name} on {blocks} blocks of {threads} threads")

    def synchronise(self, name: str = "the kernels") -> None:
        """Wait for all that was launched.

        Raises
        ------
        RuntimeError
            If a kernel failed.
        """
        _check(self.driver, self.driver.cuCtxSynchronize(), f"waiting for {name}")
