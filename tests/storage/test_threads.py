"""Work on many items, on threads: results in order, and not far ahead of the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._packs.walk import in_order, over_samples
from packer._table import Sample
from tests.samples import write_pack


@pytest.mark.parametrize(("workers", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError)])
def test_a_number_of_threads_that_makes_no_sense_is_refused_before_anything_is_done(
    workers: Any, error: type[Exception], tmp_path: Path
) -> None:
    write_pack(pack := tmp_path / "pack.lmdb", "lmdb", [Sample("a/0.png", 0, b"data", 1, 1)])
    for verb, arguments in [
        (packer.verify, (pack,)),
        (packer.digest, (pack,)),
        (packer.repair, (pack, tmp_path)),
        (packer.export, (pack, tmp_path / "tree")),
    ]:
        with pytest.raises(error, match=r"^workers must be"):
            verb(*arguments, workers=workers)  # type: ignore[operator]
    assert not (tmp_path / "tree").exists()


def test_results_come_in_the_order_of_the_items() -> None:
    def work(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    for workers in (1, 3, None):
        assert list(in_order(work, range(50), workers)) == [item * item for item in range(50)]


def test_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(10_000):
            taken.append(item)
            yield item

    results = in_order(str, items(), 2)
    for number in range(100):
        assert next(results) == str(number)
        assert len(taken) <= number + 7
    results.close()


def test_an_error_ends_the_work() -> None:
    threads = threading.active_count()
    done: list[int] = []

    def work(item: int) -> None:
        done.append(item)
        if item == 5:
            raise ValueError("five")

    with pytest.raises(ValueError, match="five"):
        list(in_order(work, range(10_000), 2))
    assert max(done) < 20
    assert threading.active_count() == threads


def test_progress_is_told_after_the_results_were_used() -> None:
    told: list[tuple[int, int]] = []
    for count, indices in enumerate(over_samples(list, 150, workers=2, progress=lambda *at: told.append(at))):
        assert indices == list(range(64 * count, min(64 * count + 64, 150)))
        assert len(told) == count
    assert told == [(64, 150), (128, 150), (150, 150)]
    assert list(over_samples(list, 0)) == []
