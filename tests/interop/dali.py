"""NVIDIA's DALI, on the CPU: what its readers give, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def outputs(read: Callable[[], Any], count: int) -> list[tuple[Any, ...]]:
    """Return what the reader that a function makes gives of so many samples, as arrays.

    Raises
    ------
    ImportError
        If DALI is not installed.
    AssertionError
        If the reader has another number of samples.
    """
    from nvidia.dali import pipeline_def

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return tuple(read())

    made = pipeline()
    made.build()
    (size,) = {meta["epoch_size"] for meta in made.reader_meta().values()}
    assert size == count, f"DALI counts {size} samples, and not {count}"
    return [tuple(output.at(0) for output in made.run()) for _ in range(count)]
