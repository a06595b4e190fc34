"""What is damaged, or too new, is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from packer._formats import Reader
from packer._manifest import SCHEMA, Manifest
from packer._packs.verify import verify
from packer._table import Sample, Table
from packer.errors import CorruptPackError, UnsupportedVersionError
from packer.testing.conformance.case import PackCase
from packer.testing.conformance.samples import (
    found_through,
    with_values,
)

__all__ = ["RefusingConformance"]


class RefusingConformance(PackCase):
    """Each sample that is not what was written raises, and no other sample does."""

    def test_a_sample_that_is_not_what_was_written(self, path: Path, samples: list[Sample]) -> None:
        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            crc = table.crc32c.copy()
            crc[4] ^= 1
            return manifest, dataclasses.replace(table, crc32c=crc)

        self.write(path, samples, change=change)
        with self.open(path) as reader:
            self.require_damage(reader, 4, samples)
            with pytest.raises(CorruptPackError, match=r"sample 4\b"):
                reader.read_many([1, 4])
            with pytest.raises(CorruptPackError, match=r"sample 4\b"):
                reader.read(4 - len(samples))
        with self.open(path, check="never") as reader:
            assert bytes(reader.read(4)) == samples[4].data

    def test_a_label_that_is_not_what_was_written(self, path: Path, samples: list[Sample]) -> None:
        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            label = table.label.copy()
            label[7] += 1
            return manifest, dataclasses.replace(table, label=label)

        self.write(path, samples, change=change)
        with self.open(path) as reader:
            self.require_damage(reader, 7, samples)
            with pytest.raises(CorruptPackError, match="label"):
                reader.require_column("label")
            reader.require_column("size")

    @pytest.mark.parametrize("column", ["offset", "size", "name_end"])
    @pytest.mark.parametrize("value", [-1, -(2**63), 2**63 - 1, 2**40])
    def test_a_row_that_leads_nowhere(self, path: Path, samples: list[Sample], column: str, value: int) -> None:
        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            values = getattr(table, column).copy()
            values[5] = value
            return manifest, dataclasses.replace(table, **{column: values})

        self.write(path, samples, change=change)
        with self.open(path) as reader:
            with pytest.raises(CorruptPackError) as caught:
                reader.read(5)
            assert caught.value.index == 5
            assert bytes(reader.read(3)) == samples[3].data
            stored, _files = reader.locate(np.array([5, 3]))
            assert [found_through(record) for record in stored] == [None, samples[3].data]
        assert verify(path) != []

    @pytest.mark.parametrize("value", [-1, -2, -(2**63), 2**63 - 1, 2**40])
    def test_a_value_whose_row_leads_nowhere(self, path: Path, samples: list[Sample], value: int) -> None:
        samples = with_values(samples)
        index = next(i for i, sample in enumerate(samples) if i > 3 and None not in sample.fields[4:6])

        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            size = table.more["field.mask.size"].copy()
            size[index] = value
            return manifest, dataclasses.replace(table, more={**table.more, "field.mask.size": size})

        self.write(path, samples, change=change)
        with self.open(path) as reader:
            with pytest.raises(CorruptPackError, match="field 'mask'") as caught:
                reader.value(index, "mask")
            assert caught.value.index == index
            assert bytes(reader.read(index)) == samples[index].data
            assert reader.value(index - 1, "mask") == samples[index - 1].fields[4]
            assert reader.value(index, "kind") == samples[index].fields[3]
        assert any("'field.mask.size'" in damage.reason for damage in verify(path, quick=True))

    def test_a_table_of_another_length_than_the_manifest_says(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples, change=lambda manifest, table: (dataclasses.replace(manifest, count=29), table))
        with pytest.raises(CorruptPackError, match=r"30.*29"):
            self.open(path)

    def test_a_newer_schema_is_refused_by_name(self, path: Path, samples: list[Sample]) -> None:
        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            return dataclasses.replace(manifest, schema=SCHEMA + 1), table

        self.write(path, samples, change=change)
        with pytest.raises(UnsupportedVersionError, match=rf"schema {SCHEMA + 1}\b"):
            self.open(path)

    def require_damage(self, reader: Reader, index: int, samples: Sequence[Sample]) -> None:
        """Assert that one sample of a pack is refused by index and name, by `verify` too, and the others are not."""
        with pytest.raises(CorruptPackError) as caught:
            reader.read(index)
        assert caught.value.index == index
        assert samples[index].name in str(caught.value)
        found = [damage for damage in verify(reader.path) if damage.index is not None]
        assert [(damage.index, damage.name) for damage in found] == [(index, samples[index].name)]
        stored, _files = reader.locate(np.arange(len(samples)))
        assert found_through(stored[index]) is None
        for intact in set(range(len(samples))) - {index}:
            assert bytes(reader.read(intact)) == found_through(stored[intact]) == samples[intact].data
