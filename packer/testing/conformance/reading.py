"""Reading gives what was written."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer._formats import Reader, open_pack
from packer._manifest import Manifest
from packer._packs.verify import verify
from packer._sample import LABEL_TYPES
from packer._table import COLUMNS, Buffer, Sample, Table
from packer.testing.conformance.case import PackCase
from packer.testing.conformance.samples import (
    assert_holds,
    draw_samples,
    drawn,
    names,
    sizes,
)

__all__ = ["ReadingConformance"]


class ReadingConformance(PackCase):
    """Samples, table and manifest come back, by every index that there is."""

    @drawn
    @given(lengths=st.lists(sizes(), min_size=1, max_size=40), seed=st.integers(0, 1000))
    def test_gives_back_what_was_written(
        self, lengths: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.mktemp("written") / f"pack{self.row.suffixes[0]}"
        samples = draw_samples(lengths, seed=seed)
        self.write(path, samples)
        with self.open(path) as reader:
            assert_holds(reader, samples)
            assert list(reader.check_structure()) == []

    @drawn
    @given(sample_names=st.lists(names(), min_size=1, max_size=20, unique=True))
    def test_gives_back_any_name(self, sample_names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
        path = tmp_path_factory.mktemp("names") / f"pack{self.row.suffixes[0]}"
        samples = draw_samples([10] * len(sample_names), sample_names)
        self.write(path, samples)
        with self.open(path) as reader:
            assert_holds(reader, samples)

    def test_takes_any_buffer(self, path: Path) -> None:
        kinds: list[Callable[[bytes], Buffer]] = [bytes, bytearray, memoryview, lambda b: memoryview(b"xx" + b)[2:]]
        samples = draw_samples([3000] * 4)
        given_samples = [
            dataclasses.replace(sample, data=kind(bytes(sample.data)))
            for kind, sample in zip(kinds, samples, strict=True)
        ]
        self.write(path, given_samples)
        with self.open(path) as reader:
            assert_holds(reader, samples)

    @pytest.mark.parametrize(
        ("label_type", "labels"),
        [
            ("class", [-1, 0, 4, 3]),
            ("int", [2**63 - 1, -(2**63), -7, 99]),
            ("float", [0.5, -1.0, 1.7976931348623157e308, 5e-324]),
        ],
        ids=str,
    )
    def test_gives_back_labels_of_every_type(self, path: Path, label_type: str, labels: list[int | float]) -> None:
        lengths = [100, 3000, 7, 2022, 2023, 50, 1, 4096]
        samples = [
            dataclasses.replace(sample, label=labels[index % 4]) for index, sample in enumerate(draw_samples(lengths))
        ]
        self.write(path, samples)
        with self.open(path) as reader:
            assert_holds(reader, samples)
            assert (reader.manifest.schema, reader.manifest.label_type) == (2, label_type)
            assert reader.table.label.dtype == np.dtype(LABEL_TYPES[label_type])
            assert [row.label for row in reader.table.rows(np.arange(8))] == labels * 2
            assert list(reader.check_structure()) == []
        assert verify(path) == []

    def test_an_empty_pack(self, path: Path) -> None:
        self.write(path, [])
        with self.open(path) as reader:
            assert_holds(reader, [])
            assert reader.read_many([]) == []
            with pytest.raises(IndexError):
                reader.read(0)
            with pytest.raises(IndexError):
                reader.read_many([0])

    def test_columns_larger_than_a_page(self, path: Path) -> None:
        samples = draw_samples([index % 3 + 1 for index in range(5000)])
        self.write(path, samples)
        with self.open(path) as reader:
            assert_holds(reader, samples)
            assert list(reader.check_structure()) == []

    def test_negative_indices_count_from_the_end(self, reader: Reader, samples: list[Sample]) -> None:
        for index in range(-len(samples), 0):
            assert bytes(reader.read(index)) == samples[index].data

    def test_an_index_out_of_range_is_refused(self, reader: Reader, samples: list[Sample]) -> None:
        count = len(samples)
        for index in (count, count + 1, -count - 1, 2**40, -(2**40)):
            with pytest.raises(IndexError, match=str(index)):
                reader.read(index)
            with pytest.raises(IndexError, match=str(index)):
                reader.read_many([0, index])

    def test_numpy_integers_are_indices(self, reader: Reader, samples: list[Sample]) -> None:
        assert bytes(reader.read(np.int64(3))) == samples[3].data
        indices = np.array([5, -1, 5], np.int32)
        assert list(map(bytes, reader.read_many(indices))) == [samples[i].data for i in (5, -1, 5)]  # type: ignore[arg-type]

    @pytest.mark.parametrize("index", [1.0, "1", None])
    def test_what_is_no_integer_is_no_index(self, reader: Reader, index: Any) -> None:
        with pytest.raises(TypeError, match="an index is an integer"):
            reader.read(index)
        with pytest.raises(TypeError, match="an index is an integer"):
            reader.read_many([0, index])

    def test_read_many_keeps_the_order_asked_for(self, reader: Reader, samples: list[Sample]) -> None:
        rng = random.Random(1)
        for count in (0, 1, 2, 50):
            indices = [rng.randrange(-len(samples), len(samples)) for _ in range(count)]
            assert list(map(bytes, reader.read_many(indices))) == [samples[i].data for i in indices]

    def test_manifest_and_table_come_back(self, path: Path, samples: list[Sample]) -> None:
        def fill(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            filled = dataclasses.replace(
                manifest,
                classes=["katze", "犬", 'quo"te\\', "\udcff\n"],
                codec="jpeg",
                settings={"resize": {"size": 256, "mode": "short"}, "exif": "ignore", "none": None, "quality": 0.5},
                source={"kind": "imagefolder", "digest": "00ff"},
                skipped=[{"name": "a/\udc80.jpg", "reason": "truncated"}],
                findings={"cmyk": 3},
                versions={"packer": "0.1.0"},
            )
            committed.append((filled, table))
            return filled, table

        committed: list[tuple[Manifest, Table]] = []
        self.write(path, samples, change=fill)
        manifest, table = committed[0]
        with self.open(path) as reader:
            assert reader.manifest == manifest
            for name, column in reader.table.columns().items():
                assert column.dtype == np.dtype(COLUMNS[name])
                assert np.array_equal(column, table.columns()[name]), name

    def test_columns_are_read_only(self, reader: Reader) -> None:
        for name, column in reader.table.columns().items():
            with pytest.raises(ValueError, match="read-only"):
                column[:] = 0
            reader.require_column(name)

    def test_is_recognised_by_its_content(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        renamed = path.rename(path.with_name("no suffix"))
        with open_pack(renamed) as reader:
            assert type(reader) is self.row.open_reader()
            assert_holds(reader, samples)
        assert verify(renamed) == []
