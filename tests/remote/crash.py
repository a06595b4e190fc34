"""Lets a process kill itself in the middle of a write; imports little, so that the process starts quickly."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHANGING = ("open", "write", "pwrite", "link", "replace", "ftruncate", "makedirs", "unlink", "utime")


def die_at(directory: str) -> None:
    """Kill this process at the call whose number is in a file, unless another process took the file; count calls."""
    counts, number = os.path.join(directory, "count"), -1
    try:
        os.rename(os.path.join(directory, "die"), os.path.join(directory, "dies"))
        number = int(Path(directory, "dies").read_text())
    except FileNotFoundError:
        pass
    counting, calls = os.open(counts, os.O_WRONLY | os.O_CREAT | os.O_APPEND), [0]
    write = os.write

    def wrapped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            write(counting, b".")
            if calls[0] == number:
                if name in ("write", "pwrite"):
                    fd, data, *rest = arguments
                    original(fd, memoryview(data)[: len(data) // 2], *rest)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call

    for name in _CHANGING:
        setattr(os, name, wrapped(name, getattr(os, name)))
