"""Sides of a measurement, each in a process of its own: none has the memory, the threads or the imports of another.

A side is an object that is made in its process and whose methods are called from here. Its processes form a group,
whose CPU time tells what it spent itself; what else kept the CPUs busy meanwhile was others'.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from packer._measuring.load import HAS_PROC, busy_seconds, others_share
from packer._storage.interrupts import interrupts_held
from packer.errors import PackerError

__all__ = ["Measurement", "Side"]

_PATIENCE = 20  # seconds that a side gets to end
_DIED = "its process died"


class Measurement(NamedTuple):
    """What was measured once."""

    rate: float
    """Images a second."""
    cpu_ms: float | None
    """CPU time of the side's processes in the call, by the images that it counted; None where the system has none."""
    others: float | None
    """Share of the CPUs that other processes took; None where the system does not say."""


class Side:
    """An object in a process and process group of its own.

    Parameters
    ----------
    make : callable
        Makes the object there; a function or class of a module that can be imported. ImportError means that something
        is not installed.
    *arguments
        What `make` is given.
    traces : bool
        Whether a traceback is printed where a call fails.

    Attributes
    ----------
    reason : str or None
        Why the side cannot be measured, or None.
    error : type of PackerError or None
        What kind of error that is, where it is one of packer's.
    note : str
        The object's own `note`.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, traces: bool = False) -> None:
        self.reason: str | None = None
        self.error: type[PackerError] | None = None
        self.note = ""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments, traces))
        with interrupts_held():  # Ctrl-C is for who asks: a side ends with its connection
            self._process.start()
        theirs.close()
        self._ready = self._made = False

    def wait(self) -> None:
        """Wait until the object is made, which goes on meanwhile; every call waits for that."""
        if not self._ready:
            self._ready = True
            self.note = self._receive() or ""
            self._made = True

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method there; None where it fails, or has failed before: `reason` says why."""
        self.wait()
        if self.reason is not None:
            return None
        try:
            self._connection.send((method, *arguments))
        except OSError:
            self.reason = _DIED
            return None
        return self._receive()

    def measure(self, method: str, *arguments: Any) -> tuple[int, Measurement]:
        """Call a method that reads, and returns images and seconds; return the number of images, 0 where it failed."""
        self.wait()
        begin, before, busy = time.perf_counter(), self._cpu_seconds(), busy_seconds()
        images, seconds = self.call(method, *arguments) or (0, 1.0)
        own, all_busy = self._cpu_seconds() - before, busy_seconds() - busy
        whole = time.perf_counter() - begin
        if not images:
            return 0, Measurement(0.0, None, None)
        cost = 1000 * own / images if HAS_PROC else None
        return images, Measurement(images / seconds, cost, others_share(all_busy - own, whole))

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        if not self._made:  # importing torch takes seconds, and nobody waits for it any more
            self._process.kill()
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self) -> Any:
        try:
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            kind, value = "failed", (_DIED, None)
        if kind == "failed":
            self.reason, self.error = value
            return None
        return value

    def _cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the group, and of those of them that ended."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat") if HAS_PROC else ():
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._process.pid:
                    total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK") if HAS_PROC else 0.0


def _serve(connection: Connection, make: Callable[..., Any], arguments: tuple[Any, ...], traces: bool) -> None:
    """Make the object, in the side's process, and answer calls until the connection is closed."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if sys.platform == "linux":  # how DataLoader's workers start by default, until Python 3.14
        multiprocessing.set_start_method("fork", force=True)
    try:
        side = make(*arguments)
    except ImportError as error:
        connection.send(("failed", (f"not installed: {error}", None)))
        return
    except Exception as error:
        connection.send(("failed", _failure(error)))
        return
    connection.send(("done", getattr(side, "note", "")))
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, *given = connection.recv()
            try:
                answer = "done", getattr(side, method)(*given)
            except Exception as error:
                if traces:
                    traceback.print_exc()
                answer = "failed", _failure(error)
            connection.send(answer)


def _failure(error: Exception) -> tuple[str, type[PackerError] | None]:
    """Return an error in words, and its class where it is one of packer's."""
    return (str(error), type(error)) if isinstance(error, PackerError) else (f"{type(error).__name__}: {error}", None)
