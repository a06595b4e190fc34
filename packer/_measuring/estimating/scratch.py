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

_PREFIX = "packer-estimate-"

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
def scratch_directory(beside: Path) -> Iterator[Path]:
    """Make a directory in `beside`, or among the system's temporary files where nothing can be written there.

    A process of its own removes the directory where this one is killed.
    """
    writable = os.path.isdir(beside) and os.access(beside, os.W_OK | os.X_OK)
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside if writable else None))
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
            watcher.stdin.close()
            watcher.wait()
