"""What the tests of a format stand on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer._formats import FORMATS, Format, Reader
from packer._table import Sample, Table
from packer.testing.conformance.samples import (
    Change,
    draw_samples,
    write_pack,
)

__all__ = ["PackCase"]


class PackCase:
    """Which format is tested, how a test writes and opens a pack of it, and when two packs are the same.

    Attributes
    ----------
    format : str
        A key of `packer._formats.FORMATS`.
    options : mapping
        The format's options to test it with.
    """

    format: str
    options: Mapping[str, Any] = {}

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Where a test writes its pack."""
        return tmp_path / f"pack{self.row.suffixes[0]}"

    @pytest.fixture
    def samples(self) -> list[Sample]:
        """Samples of all kinds of sizes, which the pack of `reader` holds."""
        return draw_samples([1, 100, 2021, 2022, 2023, 4079, 4080, 4081, 8176, 8177, 30_000, 7, 500, 1, 2000] * 2)

    @pytest.fixture
    def reader(self, path: Path, samples: list[Sample]) -> Iterator[Reader]:
        """An open pack of `samples`."""
        self.write(path, samples)
        with self.open(path) as reader:
            yield reader

    @property
    def row(self) -> Format:
        return FORMATS[self.format]

    def write(
        self, path: Path, samples: Sequence[Sample], *, written: Table | None = None, change: Change | None = None
    ) -> Table:
        """Write a pack with the options to test, and return its table."""
        return write_pack(self.row, path, samples, self.options, written=written, change=change)[1]

    def open(self, path: Path, *, check: str = "always") -> Reader:
        """Open a pack as one of this format."""
        return self.row.open_reader()(path, check=check)

    def require_same(self, path: Path, other: Path) -> None:
        """Assert that two packs are the same in all that a reader shows."""
        with self.open(path) as one, self.open(other) as two:
            assert one.manifest == two.manifest
            for name, column in one.table.columns().items():
                assert np.array_equal(column, two.table.columns()[name]), name
            assert list(map(bytes, one.read_many(range(len(one))))) == list(map(bytes, two.read_many(range(len(two)))))
