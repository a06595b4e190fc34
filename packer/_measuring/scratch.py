"""A directory for what is made to be measured, which goes whatever becomes of this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["scratch_directory"]

_WATCH = """
import shutil, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
sys.stdin.buffer.read()
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""What a process of its own does: it waits until its pipe is closed, which the system does for whoever is killed."""


@contextlib.contextmanager
def scratch_directory(what: str, inside: Path) -> Iterator[Path]:
    """Make a directory, named after what it is for, in `inside`; where nothing can be written there, in the system's.

    A process of its own removes the directory where this one is killed.
    """
    writable = os.path.isdir(inside) and os.access(inside, os.W_OK | os.X_OK)
    made = Path(tempfile.mkdtemp(prefix=f"packer-{what}-", dir=inside if writable else None))
    line = [sys.executable, "-I", "-S", "-c", _WATCH, str(made)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": os.name != "nt"}
    watcher = None
    try:
        with contextlib.suppress(OSError):  # no process is left: then this one alone removes the directory
            watcher = subprocess.Popen(line, stdin=subprocess.PIPE, **quiet)  # type: ignore[call-overload]
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if watcher is not None:
            watcher.kill()  # a fork of this process may hold the pipe open
            watcher.stdin.close()
            watcher.wait()
