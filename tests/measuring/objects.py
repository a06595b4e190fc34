"""Objects that tests measure in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable


class Reader:
    """Pretends to read 30 images, fails, dies or hangs."""

    note = "as asked"

    def __init__(self, how: str = "well") -> None:
        if how == "missing":
            raise ImportError("no module named 'quick'")
        if how == "badly":
            raise ValueError("a wrong pack")

    def read(self, seconds: float) -> tuple[int, float]:
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            count += 1
        return 30, time.perf_counter() - begin

    def fail(self) -> None:
        raise OSError("the disk is gone")

    def die(self) -> None:
        os._exit(3)

    def give_function(self) -> Callable[[], int]:
        return lambda: 30

    def start_child(self, fifo: str) -> None:
        """Start a process that holds a named pipe open for writing, as a DataLoader starts its workers."""
        with open(fifo, "w") as pipe:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=pipe)

    def hang(self) -> None:
        threading.Event().wait()
