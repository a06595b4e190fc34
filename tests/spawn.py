"""Processes that start quickly: forked from a process that has imported torch, instead of spawned."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def quick_spawn() -> Iterator[None]:
    """Fork the processes that packer spawns from a server: importing torch takes each of them longer than its work.

    Arguments are still pickled, and changes that a test made in its own process are absent; only the imports are done
    already. A test of the start, the end or the memory of processes needs spawned ones.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        yield
        return
    _start_server()
    real: Any = multiprocessing.get_context

    def context(method: str | None = None) -> Any:
        return real("forkserver" if method == "spawn" else method)

    multiprocessing.get_context = context  # type: ignore[assignment]
    try:
        yield
    finally:
        multiprocessing.get_context = real


def _start_server() -> None:
    """Start the server, if it does not run yet, in the directory that contains `tests`."""
    from multiprocessing import forkserver

    multiprocessing.set_forkserver_preload(["tests.preload"])
    before = os.getcwd()
    os.chdir(Path(__file__).parents[1])
    forkserver.ensure_running()
    os.chdir(before)
