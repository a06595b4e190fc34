"""The kernels as plain C, on the processor: threads are loops."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from device.batch import STRUCTURES
from device.stages import MOST

SOURCES = Path(__file__).parent
_FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")

_CACHE = Path(__file__).parents[1] / "build" / "device"

Array = npt.NDArray[Any]


def compiler() -> list[str]:
    """Return the command of a C compiler that is here: the one of the environment or of Python, or another."""
    commands = [os.environ.get("CC") or "", sysconfig.get_config_var("CC") or "", "cc", "gcc", "clang"]
    lines = [shlex.split(command) for command in commands if command]
    return next((line for line in lines if shutil.which(line[0])), lines[0])


def _digest(sources: Path = SOURCES) -> str:
    """Return a digest of the kernels."""
    digest = hashlib.sha256()
    for path in sorted([*sources.glob("*.h"), *sources.glob("*.c")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _compiled(sources: Path, flags: Sequence[str]) -> Path:
    """Return the kernels as a shared object; the same sources are compiled once.

    Raises
    ------
    RuntimeError
        If the compiler refuses, or is not there.
    """
    line = [*compiler(), *_FLAGS, *flags]
    name = hashlib.sha256(repr((line, _digest(sources))).encode()).hexdigest()[:16]
    made = _CACHE / f"twin-{name}.so"
    if made.exists():
        return made
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
        new = Path(directory) / "twin.so"
        try:
            done = subprocess.run(
                [*line, str(sources / "kernels.c"), "-o", str(new)], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise RuntimeError(f"the twin needs a C compiler; {line[0]} does not run: {error}") from error
        if done.returncode:
            raise RuntimeError(f"the C compiler refuses the kernels:\n{shlex.join(line)}\n{done.stderr}")
        new.rename(made)
    return made


class Twin:
    """Runs kernels on the processor.

    Parameters
    ----------
    sources : Path
        Where the kernels are.
    flags : sequence of str
        For the C compiler.
    threads : int, optional
        The threads of each block, instead of those that are asked for; or as many as there is room for.
    backwards : bool
        Whether the threads go through each phase from the last to the first.
    """

    def __init__(
        self,
        sources: Path = SOURCES,
        flags: Sequence[str] = (),
        threads: int | None = None,
        backwards: bool = False,
    ) -> None:
        self._library = ctypes.CDLL(str(_compiled(sources, flags)))
        self._threads, self._backwards = threads, int(backwards)
        sizes = (ctypes.c_uint32 * len(STRUCTURES)).in_dll(self._library, "structure_sizes")
        if [*sizes] != [structure.itemsize for structure in STRUCTURES]:
            raise RuntimeError(f"layout.h has structures of {[*sizes]} bytes, batch.py of others")

    def put(self, array: Array) -> Array:
        copied: Array = array.copy()
        return copied

    def zeros(self, count: int, dtype: np.dtype[Any]) -> Array:
        return np.zeros(count, dtype)

    def clear(self, memory: Array) -> None:
        memory[:] = 0

    def fetch(self, memory: Array) -> Array:
        copied: Array = memory.copy()
        return copied

    def replace(self, memory: Array, array: Array) -> None:
        memory[:] = array

    def synchronise(self, name: str = "the kernels") -> None:
        """Do nothing: kernels have run when they were launched."""

    def launch(self, name: str, blocks: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        if self._threads is not None:  # as many threads as before in all, or more
            x, y = blocks
            own = min(self._threads, MOST[name])
            blocks, threads = (-(-x * threads // own) if name in _FLAT else x, y), own
        function = getattr(self._library, name)
        given = [
            ctypes.c_void_p(argument.ctypes.data) if isinstance(argument, np.ndarray) else ctypes.c_uint32(argument)
            for argument in arguments
        ]
        function(*blocks, threads, self._backwards, *given)


_FLAT = ("down",)
"""Kernels whose blocks do as much as they have threads; those of others do all there is, whatever their threads are."""
