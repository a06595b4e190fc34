"""Tests for every pack (reading it unchanged, sharing it, detecting damage), and more tests for packs on a disk."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import multiprocessing
import operator
import os
import pickle
import random
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._codecs import LABEL_TYPES
from packer._formats import FORMATS, Format, Reader, open_pack, shows_mark
from packer._manifest import SCHEMA, Manifest
from packer._packs.verify import verify
from packer._table import COLUMNS, Buffer, Sample, Table
from packer.errors import CorruptPackError, PackError, PackNotFoundError, UnsupportedVersionError
from packer.testing.samples import (
    Change,
    assert_holds,
    contents,
    draw_samples,
    drawn,
    files_of,
    flip,
    found_through,
    names,
    sizes,
    with_values,
    write_pack,
)

_written: dict[type, tuple[list[Sample], Path]] = {}


class PackCase:
    """The base class of all tests: the name of the tested format, and methods to write, open and compare packs.

    Attributes
    ----------
    format : str
        The name of the format, such as ``"lmdb"``.
    options : mapping
        The options of the format for the tests.
    """

    format: str
    options: Mapping[str, Any] = {}

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """The path to which a test writes its pack."""
        return tmp_path / f"pack{self.row.suffixes[0]}"

    @pytest.fixture
    def samples(self) -> list[Sample]:
        """The samples of the pack that `reader` reads; they have many sizes."""
        return draw_samples([1, 100, 2021, 2022, 2023, 4079, 4080, 4081, 8176, 8177, 30_000, 7, 500, 1, 2000] * 2)

    @pytest.fixture
    def pack(self, samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The path of a pack of `samples`, which is written once for all tests of a class: they only read it."""
        earlier, path = _written.get(type(self), ([], Path()))
        if earlier != samples:
            path = tmp_path_factory.mktemp("read") / f"pack{self.row.suffixes[0]}"
            self.write(path, samples)
            _written[type(self)] = samples, path
        return path

    @pytest.fixture
    def reader(self, pack: Path) -> Iterator[Reader]:
        """The opened `pack`."""
        with self.open(pack) as reader:
            yield reader

    @property
    def row(self) -> Format:
        return FORMATS[self.format]

    def write(
        self, path: Path, samples: Sequence[Sample], *, written: Table | None = None, change: Change | None = None
    ) -> Table:
        """Write a pack with `options`, and return its table."""
        return write_pack(self.row, path, samples, self.options, written=written, change=change)[1]

    def open(self, path: Path, *, check: str = "always") -> Reader:
        """Open a pack of this format."""
        return self.row.open_reader()(path, check=check)

    def _own_name(self, name: str) -> str:
        """Return the name of a pack that all tests of this class share, but no other class."""
        return f"{name}-{type(self).__module__}-{type(self).__qualname__}{self.row.suffixes[0]}"

    def require_same(self, path: Path, other: Path) -> None:
        """Assert that two packs are equal in everything that a reader returns."""
        with self.open(path) as one, self.open(other) as two:
            assert one.manifest == two.manifest
            for name, column in one.table.columns().items():
                assert np.array_equal(column, two.table.columns()[name]), name
            assert list(map(bytes, one.read_many(range(len(one))))) == list(map(bytes, two.read_many(range(len(two)))))


class ReadingConformance(PackCase):
    """Tests that samples, table and manifest are read unchanged, with every kind of index."""

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
        samples = draw_samples([index % 3 + 1 for index in range(1500)])
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

    def test_what_is_no_integer_is_no_index(self, reader: Reader) -> None:
        indices: list[Any] = [1.0, "1", None]
        for index in indices:
            with pytest.raises(TypeError, match="an index must be an integer"):
                reader.read(index)
            with pytest.raises(TypeError, match="an index must be an integer"):
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
        assert shows_mark(renamed)
        with open_pack(renamed) as reader:
            assert type(reader) is self.row.open_reader()
            assert_holds(reader, samples)
        assert verify(renamed) == []


class RefusingConformance(PackCase):
    """Tests that reading a damaged sample raises an error, and that other samples can still be read."""

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
    def test_a_row_that_leads_nowhere(self, path: Path, samples: list[Sample], column: str) -> None:
        bad = {5: -1, 9: -(2**63), 13: 2**63 - 1, 17: 2**40}

        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            values = getattr(table, column).copy()
            values[list(bad)] = list(bad.values())
            return manifest, dataclasses.replace(table, **{column: values})

        self.write(path, samples, change=change)
        with self.open(path) as reader:
            for index in bad:
                with pytest.raises(CorruptPackError) as caught:
                    reader.read(index)
                assert caught.value.index == index
                assert bytes(reader.read(index - 2)) == samples[index - 2].data
                stored, _files = reader.locate(np.array([index, index - 2]))
                assert [found_through(record) for record in stored] == [None, samples[index - 2].data]
        assert bad.keys() <= {damage.index for damage in verify(path)}

    def test_a_value_whose_row_leads_nowhere(self, path: Path, samples: list[Sample]) -> None:
        samples = with_values(samples)
        given = [i for i, sample in enumerate(samples) if i > 3 and None not in sample.fields[4:6]]
        bad = dict(zip(given[::2], [-1, -2, -(2**63), 2**63 - 1, 2**40], strict=False))
        assert len(bad) == 5

        def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            size = table.more["field.mask.size"].copy()
            size[list(bad)] = list(bad.values())
            return manifest, dataclasses.replace(table, more={**table.more, "field.mask.size": size})

        self.write(path, samples, change=change)
        with self.open(path) as reader:
            for index in bad:
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
        assert shows_mark(path)

    def require_damage(self, reader: Reader, index: int, samples: Sequence[Sample]) -> None:
        """Assert that readers and `verify` raise errors, with index and name, for one sample and for no other."""
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


class SharingConformance(PackCase):
    """Tests that many threads and processes can read a pack at once, with the same reader and with several readers."""

    forks = 3
    """The number of processes to fork while threads read."""

    def test_a_pickled_reader_is_its_path(self, reader: Reader, samples: list[Sample]) -> None:
        pickled = pickle.dumps(reader)
        assert len(pickled) < 1000
        with pickle.loads(pickled) as copy:
            assert (copy.path, copy.check) == (reader.path, reader.check)
            assert_holds(copy, samples)

    def test_two_readers_do_not_disturb_each_other(self, pack: Path, reader: Reader, samples: list[Sample]) -> None:
        with self.open(pack) as other:
            for index, sample in enumerate(samples):
                assert bytes(reader.read(index)) == bytes(other.read(index)) == sample.data
        assert_holds(reader, samples)

    def test_many_threads_read_at_once(self, reader: Reader, samples: list[Sample]) -> None:
        start = threading.Barrier(8)

        def read(seed: int) -> bool:
            indices = list(range(len(samples))) * 5
            random.Random(seed).shuffle(indices)
            start.wait()
            return all(bytes(reader.read(index)) == samples[index].data for index in indices)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(8)))

    def test_fields_are_read_through_a_pickled_reader_and_by_many_threads(
        self, path: Path, samples: list[Sample]
    ) -> None:
        samples = with_values(samples)
        self.write(path, samples)
        with self.open(path) as reader, pickle.loads(pickle.dumps(reader)) as copy, ThreadPoolExecutor(4) as pool:
            assert_holds(copy, samples)
            for _ in pool.map(lambda _: assert_holds(reader, samples), range(4)):
                pass

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
    def test_reads_on_both_sides_of_a_fork(self, reader: Reader, samples: list[Sample]) -> None:
        assert bytes(reader.read(0)) == samples[0].data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork while there are other threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(2):
                    assert_holds(reader, samples)
                status = 0
            finally:
                os._exit(status)
        try:
            for _ in range(2):
                assert_holds(reader, samples)
        finally:
            _, status = os.waitpid(child, 0)
        assert status == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
    def test_forks_while_threads_read(self, reader: Reader, samples: list[Sample]) -> None:
        """No lock may be held during a fork: a lock held by another thread would stay locked in the child forever."""
        stop = threading.Event()

        def read_on() -> None:
            while not stop.is_set():
                reader.read(0)

        threads = [threading.Thread(target=read_on) for _ in range(3)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for _ in range(self.forks):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
                if child == 0:
                    signal.alarm(20)  # kills a child that hangs
                    os._exit(0 if bytes(reader.read(1)) == samples[1].data else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            sys.setswitchinterval(interval)
            stop.set()
            for thread in threads:
                thread.join()

    def test_a_closed_reader_reads_no_more(self, path: Path, samples: list[Sample], tmp_path: Path) -> None:
        self.write(path, samples)
        reader = self.open(path, check="never")
        reader.read(0)
        label = reader.table.label
        reader.close()
        reader.close()
        assert label.tolist() == [sample.label for sample in samples]
        (tmp_path / "other").write_bytes(bytes(1 << 20))
        with open(tmp_path / "other", "rb"):  # this file gets the descriptor of the closed pack
            for index in range(len(samples)):
                with pytest.raises((PackError, ValueError)):
                    reader.read(index)
            with pytest.raises((PackError, ValueError)):
                reader.locate(np.arange(len(samples)))


class PackConformance(ReadingConformance, SharingConformance, RefusingConformance):
    """The tests for every pack, however it was written."""


class FilePackConformance(PackConformance):
    """Adds the tests for packs on a disk. Most of these tests change bytes of the files, and require an error."""

    @pytest.fixture
    def foreign(self, tmp_path: Path) -> Callable[[bytes], Path]:
        """A function that writes any bytes to a file with the name of a pack."""

        def write(data: bytes) -> Path:
            path = tmp_path / f"foreign{self.row.suffixes[0]}"
            path.write_bytes(data)
            return path

        return write

    def test_reading_leaves_the_pack_as_it_is(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        before = contents(path), sorted(path.parent.iterdir())
        for file in files_of(path):
            file.chmod(0o444)
        with self.open(path) as reader:
            assert_holds(reader, samples)
            assert verify(path) == []
        assert (contents(path), sorted(path.parent.iterdir())) == before

    def test_a_pack_may_be_moved_and_copied(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        copy = path.with_name("copy" + self.row.suffixes[0])
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copy)
        with self.open(path.rename(path.with_name("moved"))) as moved, self.open(copy) as copied:
            assert_holds(moved, samples)
            assert_holds(copied, samples)

    def test_a_pickled_reader_opens_in_a_new_process(self, reader: Reader, samples: list[Sample]) -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(operator.methodcaller("read_many", range(len(samples))), reader).result()
        assert list(map(bytes, found)) == [sample.data for sample in samples]

    # Damage.

    @pytest.mark.parametrize("at", [0, 999, -1])
    def test_a_changed_byte_of_a_sample(self, path: Path, samples: list[Sample], at: int) -> None:
        self.write(path, samples)
        data = bytes(samples[4].data)
        flip(path, data, at % len(data))
        with self.open(path) as reader:
            self.require_damage(reader, 4, samples)

    def test_a_changed_byte_of_the_labels(self, path: Path, samples: list[Sample]) -> None:
        table = self.write(path, samples)
        flip(path, table.label.tobytes(), 7 * 8)
        with self.open(path) as reader:
            with pytest.raises(CorruptPackError, match="label"):
                reader.require_column("label")
            with pytest.raises(CorruptPackError) as caught:
                reader.read(7)
            assert caught.value.index == 7
            assert samples[7].name in str(caught.value)
            assert bytes(reader.read(6)) == samples[6].data

    @settings(drawn, max_examples=50)
    @given(data=st.data())
    def test_any_changed_byte_is_found_or_harmless(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        more = data.draw(st.booleans(), "whether there are fields")
        path = tmp_path_factory.getbasetemp() / self._own_name(f"changed-{more}")
        samples = draw_samples([10, 3000, 50, 1])
        samples = with_values(samples) if more else samples
        if not path.exists():
            self.write(path, samples)
            with self.open(path) as reader:
                assert_holds(reader, samples)
        file = data.draw(st.sampled_from([file for file in files_of(path) if file.stat().st_size]))
        original = file.read_bytes()
        # Not in the middle of runs of zeros, which are padding, so that many changes are in other bytes.
        is_zero = np.frombuffer(b"\1" + original, np.uint8) == 0
        positions = np.flatnonzero(~(is_zero[1:] & is_zero[:-1])).tolist()
        at = data.draw(st.sampled_from(positions) | st.integers(0, len(original) - 1))
        changed = bytearray(original)
        changed[at] ^= data.draw(st.sampled_from([0x01, 0x10, 0x80, 0xFF]) | st.integers(1, 255))
        file.write_bytes(changed)
        try:
            with contextlib.suppress(PackError), self.open(path) as reader:
                list(reader.check_structure())
                for index, sample in enumerate(samples):
                    with contextlib.suppress(PackError):
                        assert bytes(reader.read(index)) == sample.data
                    for name, value in zip(reader.fields, sample.fields, strict=False):
                        with contextlib.suppress(PackError):
                            assert reader.value(index, name) == value
                for column in reader.table.columns():
                    reader.require_column(column)
                assert_holds(reader, samples)
        finally:
            file.write_bytes(original)

    def test_a_damaged_value_is_found_and_named_and_the_others_are_read(self, path: Path) -> None:
        samples = with_values(draw_samples([500] * 12))
        index = next(i for i, sample in enumerate(samples) if len(str(sample.fields[4])) > 200)
        mask = samples[index].fields[4]
        assert isinstance(mask, bytes)
        self.write(path, samples)
        flip(path, mask[-40:], 7)
        with self.open(path) as reader:
            with pytest.raises(CorruptPackError, match="field 'mask': the checksum does not match") as caught:
                reader.value(index, "mask")
            assert caught.value.index == index
            assert bytes(reader.read(index)) == samples[index].data
            for name, value in zip(reader.fields, samples[index].fields, strict=True):
                assert name == "mask" or reader.value(index, name) == value
            assert reader.value(index - 1, "mask") == samples[index - 1].fields[4]

    def files_to_read(self, path: Path) -> list[Path]:
        """Return those files of a pack that are read completely when all samples are read."""
        return files_of(path)

    def test_a_file_cut_short(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        for file in self.files_to_read(path):
            whole = file.read_bytes()
            lengths = {*range(0, 200, 13), 4095, 4096, 4097, 8191, 8192, len(whole) // 2}
            lengths |= {len(whole) - cut for cut in (1, 2, 21, 22, 100, 4095, 4096, 5000)}
            for length in sorted(length for length in lengths if 0 <= length < len(whole)):
                file.write_bytes(whole[:length])
                with pytest.raises(PackError), self.open(path) as reader:
                    assert_holds(reader, samples)
            file.unlink()
            with pytest.raises(PackError), self.open(path) as reader:
                assert_holds(reader, samples)
            file.write_bytes(whole)

    def test_a_file_cut_short_while_it_is_open(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        with self.open(path) as reader:
            for file in files_of(path):
                os.truncate(file, 100)
            for index in range(len(samples)):
                with pytest.raises(PackError):
                    reader.read(index)
            with contextlib.suppress(PackError):  # which is raised if the file also contains the table
                stored, _files = reader.locate(np.arange(len(samples)))
                assert not any(map(found_through, stored))

    # Files that are not packs.

    def test_files_that_are_no_packs(self, foreign: Callable[[bytes], Path]) -> None:
        image = io.BytesIO()
        Image.new("RGB", (64, 64)).save(image, "JPEG")
        rng = random.Random(0)
        files = [b"", b"\0", bytes(20_000), image.getvalue(), b"packer", b"{}"]
        files += [rng.randbytes(length) for length in (1, 15, 100, 5000, 100_000)]
        for data in files:
            self.require_refused(foreign(data))

    @drawn
    @given(body=st.binary(max_size=300))
    def test_files_that_begin_like_packs(self, body: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.getbasetemp()
        pack, foreign = (folder / self._own_name(name) for name in ("begins", "like"))
        if not pack.exists():
            self.write(pack, draw_samples([10, 3000]))
        beginning = files_of(pack)[-1].read_bytes()[:64]
        for data in (beginning + body, beginning + body * 100):
            foreign.write_bytes(data)
            self.require_refused(foreign)

    def test_directories_and_missing_files_are_no_packs(self, tmp_path: Path) -> None:
        empty = tmp_path / f"empty{self.row.suffixes[0]}"
        empty.mkdir()
        self.require_refused(empty)
        self.require_refused(tmp_path / f"missing{self.row.suffixes[0]}")

    def require_refused(self, path: Path) -> None:
        """Assert that every function raises an error for this path."""
        with pytest.raises((CorruptPackError, PackNotFoundError)):
            self.open(path)
        with pytest.raises(CorruptPackError if path.exists() else PackNotFoundError):
            open_pack(path)
