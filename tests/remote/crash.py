"""A process that kills itself amid its own writes; little is imported, so that it starts soon."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHANGING = ("open", "write", "pwrite", "link", "replace", "ftruncate", "makedirs", "unlink", "utime")


def die_at(directory: str) -> None:
    """Have this process die at a call whose number is in a file, unless another one took it; count the calls."""
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
