"""NVIDIA's DALI, on the CPU: the outputs of its readers, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def outputs(read: Callable[[], Any], count: int) -> list[tuple[Any, ...]]:
    """Return the outputs of the reader that `read` makes, as arrays for each of `count` samples.

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
