"""Objects that tests measure in processes of their own."""

from __future__ import annotations

import os
import time


class Reader:
    """Reads 30 images in no time, fails, or dies."""

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
