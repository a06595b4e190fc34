"""Data that grow while a pack is made, and are kept on the disk."""

from __future__ import annotations

import gc
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, strategies as st

from packer._storage.files import Spool, TableBuilder
from packer._table import COLUMNS, Table
from packer.errors import DestinationError
from tests.samples import ROWS, table_of


@given(st.lists(st.binary(max_size=200_000), max_size=5))
def test_bytes_come_back(parts: list[bytes]) -> None:
    spool, whole = Spool(), b""
    for part in parts:
        spool.append(part)
        whole += part
        assert spool.array(np.uint8).tobytes() == whole
    spool.close()


def test_a_vector_stays_what_it_was(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(struct.pack("<3q", 1, 2, 3))
    first = spool.array("<i8")
    spool.append(struct.pack("<q", 4))
    assert spool.array("<i8").tolist() == [1, 2, 3, 4]
    spool.close()
    assert first.tolist() == [1, 2, 3]


@pytest.mark.skipif(os.name == "nt", reason="needs files without names")
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Neither by a spool that was closed, nor by one that was only dropped."""
    gc.collect()  # spools of other tests
    before = psutil.Process().num_fds()
    for closed in (True, False):
        spool = Spool(tmp_path)
        spool.append(bytes(100_000))
        assert len(spool.array(np.uint8)) == 100_000
        assert os.listdir(tmp_path) == []
        if closed:
            spool.close()
    del spool
    gc.collect()
    assert psutil.Process().num_fds() <= before  # a thread of another test may close one


def test_the_error_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="missing: cannot be written: No such file"):
        Spool(tmp_path / "missing")


# The rows of a table.


@given(st.lists(ROWS, max_size=30))
def test_rows_come_back(rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    assert len(table) == len(rows)
    columns = table.columns()
    assert list(columns) == list(COLUMNS)
    for name, column in columns.items():
        assert column.dtype == np.dtype(COLUMNS[name])
        assert column.ndim == 1
        if name not in ("name_end", "names"):
            assert column.tolist() == [row[name] for row in rows]
    assert [table.sample_names().encoded(index) for index in range(len(rows))] == [row["name"] for row in rows]
    assert table.name_end.tolist() == np.cumsum([len(row["name"]) for row in rows], dtype=int).tolist()
    again = Table.of(columns)
    assert all(np.array_equal(again.columns()[name], column) for name, column in columns.items())


@pytest.mark.parametrize(
    ("column", "value"), [("label", 2**63), ("height", 2**31), ("width", -(2**31) - 1), ("crc32c", -1)]
)
def test_a_number_that_does_not_fit_is_refused(column: str, value: int) -> None:
    row = {"label": 0, "height": 0, "width": 0, "offset": 0, "size": 0, "crc32c": 0, "name": b"", column: value}
    with pytest.raises(struct.error):
        table_of([row])


def test_rows_take_no_memory(tmp_path: Path) -> None:
    rows = TableBuilder(tmp_path)
    row = {"height": 1, "width": 2, "offset": 3, "size": 4, "crc32c": 5, "name": b"class/some_image.jpg"}
    tracemalloc.start()
    try:
        for label in range(100_000):
            rows.append(label=label, **row)
        table = rows.build()
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    rows.close()
    assert len(rows) == len(table) == 100_000
    assert np.array_equal(table.label, np.arange(100_000))
    assert table.sample_names()[99_999] == "class/some_image.jpg"
