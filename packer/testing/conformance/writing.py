"""Tests for the writers of formats, and for formats in another tool's layout with packer's index next to the files."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from packer._formats import open_pack
from packer._formats.contract import Placed
from packer._manifest import Manifest
from packer._packs.verify import verify
from packer._storage.files import TableBuilder
from packer._table import Sample, Table
from packer.errors import CorruptPackError, DestinationError, PackError
from packer.testing.conformance.packs import FilePackConformance, PackConformance
from packer.testing.samples import (
    add_row,
    assert_holds,
    contents,
    contents_of,
    draw_samples,
    drawn,
    files_of,
    rows_for,
    sizes,
    with_values,
)


class InterruptionError(Exception):
    """Stands for an event, such as a crash, that ends the process in the middle of a commit."""


class EndsTheCommit(Manifest):
    def to_json(self) -> bytes:
        raise InterruptionError


def ends_the_commit(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
    return EndsTheCommit(**vars(manifest)), table


class FormatConformance(PackConformance):
    """Adds the tests for writers: the same input gives the same pack, and a writer can continue after any sample."""

    def leave_rubbish(self, path: Path) -> None:
        """Change the bytes after the synced samples of an unfinished pack, as a crash could change them."""

    # Writing is deterministic, and can be interrupted anywhere.

    def test_the_same_input_gives_the_same_pack(self, tmp_path: Path, samples: list[Sample]) -> None:
        paths = [tmp_path / folder / f"pack{self.row.suffixes[0]}" for folder in ("one", "two")]
        for path in paths:
            path.parent.mkdir()
            self.write(path, samples)
        self.require_same(*paths)

    @drawn
    @given(data=st.data(), lengths=st.lists(sizes(), min_size=1, max_size=30))
    def test_continues_from_any_sample(
        self, data: st.DataObject, lengths: list[int], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("continued")
        whole, continued = (folder / f"{name}{self.row.suffixes[0]}" for name in ("whole", "continued"))
        samples = draw_samples(lengths)
        samples = with_values(samples) if data.draw(st.booleans(), "whether there are fields") else samples
        self.write(whole, samples)
        durable = data.draw(st.integers(0, len(samples)), "samples that were synced")
        lost = data.draw(st.integers(0, len(samples) - durable), "samples that were appended after that")
        flushed = data.draw(st.booleans(), "whether those were flushed")
        rubbish = data.draw(st.booleans(), "whether the crash left rubbish")
        kept = self.interrupt(continued, samples, durable, lost, flushed)
        if rubbish:
            self.leave_rubbish(continued)
        self.write(continued, samples, written=kept)
        with self.open(continued) as reader:
            assert_holds(reader, samples)
        self.require_same(whole, continued)

    def interrupt(self, path: Path, samples: Sequence[Sample], durable: int, lost: int, flushed: bool) -> Table:
        """Write only some samples; return the rows of those samples that were synced."""
        writer_class = self.row.open_writer()
        rows, none = (rows_for(samples, apart=writer_class.apart) for _ in range(2))
        writer = writer_class(path, self.options, none.build(), contents_of(samples))
        try:
            for sample in samples[:durable]:
                add_row(rows, sample, writer.append(sample))
            writer.flush()
            writer.sync()
            for sample in samples[durable : durable + lost]:
                writer.append(sample)
            if flushed:
                writer.flush()
        finally:
            writer.close()
        return rows.build()

    @pytest.mark.parametrize("durable", [1, 29])
    def test_continues_with_labels_that_are_floats(self, tmp_path: Path, samples: list[Sample], durable: int) -> None:
        whole, continued = (tmp_path / f"{name}{self.row.suffixes[0]}" for name in ("whole", "continued"))
        samples = [dataclasses.replace(sample, label=index / 7) for index, sample in enumerate(samples)]
        self.write(whole, samples)
        self.write(continued, samples, written=self.interrupt(continued, samples, durable, 1, flushed=True))
        with self.open(continued) as reader:
            assert_holds(reader, samples)
        self.require_same(whole, continued)

    @pytest.mark.parametrize(("complete", "durable"), [(False, 0), (False, 17), (False, 30), (True, 1), (True, 30)])
    def test_continues_after_a_commit(
        self, tmp_path: Path, samples: list[Sample], durable: int, complete: bool
    ) -> None:
        whole, continued = (tmp_path / f"{name}{self.row.suffixes[0]}" for name in ("whole", "continued"))
        table = self.write(whole, samples)
        if complete:  # as if the process had been killed before the pack was renamed
            self.write(continued, samples)
        else:
            with pytest.raises(InterruptionError):
                self.write(continued, samples, change=ends_the_commit)
        rows = TableBuilder()
        for index, sample in enumerate(samples[:durable]):
            add_row(rows, sample, Placed(int(table.offset[index])))
        self.write(continued, samples, written=rows.build())
        self.require_same(whole, continued)

    def test_what_was_not_committed_is_refused(self, path: Path, samples: list[Sample]) -> None:
        for lost in (0, 1, len(samples)):
            self.interrupt(path, samples, 0, lost, flushed=True)
            with pytest.raises(PackError):
                self.open(path)
            with pytest.raises(PackError):
                open_pack(path)

    def test_what_was_committed_in_part_is_refused(self, path: Path, samples: list[Sample]) -> None:
        with pytest.raises(InterruptionError):
            self.write(path, samples, change=ends_the_commit)
        with pytest.raises(PackError):
            self.open(path)

    def test_syncs_while_samples_are_appended(self, tmp_path: Path) -> None:
        plain, synced = (tmp_path / f"{name}{self.row.suffixes[0]}" for name in ("plain", "synced"))
        samples = draw_samples([1500] * 500)
        table = self.write(plain, samples)
        writer = self.row.open_writer()(synced, self.options, TableBuilder().build(), contents_of(samples))
        finished = threading.Event()

        def sync() -> int:
            rounds = 0
            while not finished.is_set():
                writer.sync()
                rounds += 1
            return rounds

        with ThreadPoolExecutor(1) as pool:
            syncing = pool.submit(sync)
            try:
                offsets = [writer.append(sample).offset for sample in samples]
            finally:
                finished.set()
            assert syncing.result() > 0
        assert offsets == table.offset.tolist()
        with self.open(plain) as reader:
            writer.commit(reader.manifest, table)
        writer.close()
        self.require_same(plain, synced)


class FileFormatConformance(FormatConformance, FilePackConformance):
    """Adds the tests for formats on a disk: the same input gives the same bytes."""

    def require_same(self, path: Path, other: Path) -> None:
        super().require_same(path, other)
        assert contents(path) == contents(other)

    def leave_rubbish(self, path: Path) -> None:
        for file in files_of(path)[-1:]:
            with open(file, "ab") as stale:
                stale.write(random.Random(0).randbytes(9999))
        if path.is_dir():
            (path / "stale").write_bytes(b"stale")

    def test_an_unfinished_pack_shorter_than_its_rows_is_refused(self, path: Path, samples: list[Sample]) -> None:
        kept = self.interrupt(path, samples, len(samples), 0, flushed=True)
        last = files_of(path)[-1]
        os.truncate(last, last.stat().st_size - 1)
        with pytest.raises(DestinationError, match="fresh"):
            self.write(path, samples, written=kept)


_INDEX = ".packer.index"
_READ = ("manifest.json", "table.bin", "files.bin")


class ForeignLayoutConformance(FileFormatConformance):
    """Adds the tests for layouts of other tools: `verify` must also check bytes that only the other tool reads."""

    def files_to_read(self, path: Path) -> list[Path]:
        shards = [file for file in files_of(path) if _INDEX not in file.parts and self.holds_samples(file)]
        return [*(path / _INDEX / name for name in _READ), *shards]

    def holds_samples(self, file: Path) -> bool:
        """Tell whether a file of the layout contains samples."""
        raise NotImplementedError

    def others(self, path: Path) -> Iterator[Path]:
        """Yield the files of the layout that contain no samples."""
        read = self.files_to_read(path)
        yield from (file for file in files_of(path) if _INDEX not in file.parts and file not in read)

    @pytest.mark.parametrize("fields", [False, True])
    def test_every_byte_of_the_layout_is_known_to_be_whole(self, path: Path, fields: bool) -> None:
        samples = draw_samples([40, 300, 7])
        self.write(path, with_values(samples) if fields else samples)
        for number, file in enumerate(files_of(path)):
            if _INDEX in file.parts:
                continue
            original = file.read_bytes()
            step = 1 + len(original) // 75
            for at in range((7 * number) % step, len(original), step):
                changed = bytearray(original)
                changed[at] ^= 0x20
                file.write_bytes(changed)
                assert self.is_damaged(path), f"byte {at} of {file.name}"
            file.write_bytes(original)
        assert not self.is_damaged(path)

    def test_continues_after_complete_shards_whose_blobs_were_copied(self, tmp_path: Path) -> None:
        whole, continued = (tmp_path / f"{name}{self.row.suffixes[0]}" for name in ("whole", "continued"))
        samples = with_values(draw_samples([15_000] * 9))
        self.write(whole, samples)
        self.write(continued, samples, written=self.interrupt(continued, samples, 8, 1, flushed=True))
        with self.open(continued) as reader:
            assert_holds(reader, samples)
        self.require_same(whole, continued)

    def is_damaged(self, path: Path) -> bool:
        """Tell whether `verify` would find damage; this takes less time than `verify`."""
        with self.open(path) as reader:
            if any(reader.check_structure()):
                return True
            try:
                for index in range(len(reader)):
                    reader.read(index)
                    for name in reader.fields:
                        reader.value(index, name)
            except CorruptPackError:
                return True
        return False

    def test_other_files_cut_short_or_missing_are_found(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        for file in self.others(path):
            whole = file.read_bytes()
            for length in (0, len(whole) - 1):
                file.write_bytes(whole[:length])
                assert any(file.name in str(damage) for damage in verify(path, quick=True))
            file.unlink()
            assert any(file.name in str(damage) for damage in verify(path, quick=True))
            with self.open(path) as reader:
                assert_holds(reader, samples)
            file.write_bytes(whole)

    def test_a_copy_has_other_times_and_is_the_pack(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        copy = path.with_name("copy" + self.row.suffixes[0])
        shutil.copytree(path, copy, copy_function=shutil.copyfile)
        for file in files_of(copy):
            os.utime(file, (10, 10))
        with self.open(copy) as reader:
            assert_holds(reader, samples)
        assert verify(copy) == []

    def test_a_file_of_another_length_is_named(self, path: Path, samples: list[Sample]) -> None:
        self.write(path, samples)
        last = self.files_to_read(path)[-1]
        with open(last, "ab") as file:
            file.write(bytes(1))
        with self.open(path) as reader, pytest.raises(CorruptPackError, match="when it was written") as caught:
            reader.read(len(samples) - 1)
        assert last.name in str(caught.value.__cause__)
