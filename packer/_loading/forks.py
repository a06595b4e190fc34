"""Forks of a process have its objects and none of its threads: what waits for a thread there waits for ever."""

from __future__ import annotations

import os

from packer.errors import WorkerError

__all__ = ["require_same_process"]


def require_same_process(process: int) -> None:
    """Raise WorkerError where this is not the process with the given id, but a fork of it."""
    if os.getpid() != process:
        raise WorkerError(
            f"this iterator was begun in process {process}, and this process ({os.getpid()}) is a fork without its "
            "threads. Begin a new one here with iter()."
        )
