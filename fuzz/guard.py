"""Watching a process that reads a stranger's pack: the files that it opens, the programs it starts, its memory.

A process is watched by Python's audit events, and by the content of a directory that it must not touch.
"""

from __future__ import annotations

import functools
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PLACES = {
    "os.mkdir": 0,
    "os.rename": 1,
    "os.link": 1,
    "os.symlink": 1,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
}
"""Which argument of an audit event is the path that is changed."""

_TRUSTED = ("packer.", "torch", "numpy", "collections", "_codecs")


class Guard:
    """Records accesses outside of a directory.

    Parameters
    ----------
    inside : Path
        Where files may be written.
    outside : Path
        A directory whose files must neither be read nor changed.
    trusted : tuple of str
        The prefixes of modules that a pickle may import.
    """

    def __init__(self, inside: Path, outside: Path, trusted: tuple[str, ...] = _TRUSTED) -> None:
        self._trusted = trusted
        self._inside, self._outside = os.path.realpath(inside), os.path.realpath(outside)
        self._watching = False
        self._found: list[str] = []
        _add_hook()

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Yield a list, which has the forbidden actions after the block."""
        before = self._content()
        self._found, self._watching = [], True
        _guards.append(self)
        try:
            yield self._found
        finally:
            _guards.remove(self)
            self._watching = False
            changed = sorted({path for path, _ in before ^ self._content()})
            self._found += [f"changed outside of the directory: {path}" for path in changed]

    def _content(self) -> set[tuple[str, tuple[int, int, int]]]:
        found = set()
        for folder, _, names in os.walk(self._outside):
            for name in ["", *names]:
                path = os.path.join(folder, name)
                stat = os.lstat(path)
                found.add((os.path.relpath(path, self._outside), (stat.st_mode, stat.st_size, stat.st_mtime_ns)))
        return found

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event in _PROGRAMS:
            self._found.append(f"a program was started: {arguments[0]!r}")
        elif event == "pickle.find_class" and not str(arguments[0]).startswith(self._trusted):
            self._found.append(f"unpickled: {arguments!r}")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            self._judge(os.fsdecode(arguments[0]), bool((arguments[2] or 0) & _WRITING))
        elif event in _PLACES and isinstance(arguments[_PLACES[event]], str | bytes | os.PathLike):
            self._judge(os.fsdecode(arguments[_PLACES[event]]), True)

    def _judge(self, path: str, writes: bool) -> None:
        if not os.path.isabs(path):  # below a descriptor: what it changes outside is seen afterwards
            return
        self._watching = False  # `realpath` may be heard too
        try:
            real = os.path.realpath(path) if not writes else os.path.join(os.path.realpath(os.path.dirname(path)), "x")
        finally:
            self._watching = True
        beyond = real.startswith(self._outside) or real in ("/etc/passwd", "/dev/zero")
        if beyond or (writes and not real.startswith((self._inside, "/dev/", "/proc/"))):
            self._found.append(f"opened outside of the directory{' for writing' if writes else ''}: {real}")


_guards: list[Guard] = []
"""Those that watch."""


@functools.cache
def _add_hook() -> None:
    """Pass audit events to the guards until the process ends: an audit hook cannot be removed."""

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        for guard in _guards:
            guard._hear(event, arguments)

    sys.addaudithook(hear)


def limit_memory(size: int) -> None:
    """Limit this process to `size` bytes more than it has now, if the system supports that."""
    if sys.platform == "linux":
        had = 1024 * _status("VmData")
        resource.setrlimit(resource.RLIMIT_DATA, (had + size, had + size))


def reset_peak_memory() -> None:
    """Let `peak_memory` count from now on, if the system supports that."""
    if sys.platform == "linux":
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")


def peak_memory() -> int:
    """Return the most bytes that were in memory at a time."""
    return 1024 * (_status("VmHWM") if sys.platform == "linux" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _status(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))
