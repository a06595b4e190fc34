"""What a format must do whose files are another tool's, with packer's index in ``.packer.index``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from packer._packs.verify import verify
from packer._table import Sample
from packer.errors import CorruptPackError
from packer.testing.conformance.samples import assert_holds, draw_samples, files_of, with_values
from packer.testing.conformance.writing import FileFormatConformance

__all__ = ["ForeignLayoutConformance"]

_INDEX = ".packer.index"
_READ = ("manifest.json", "table.bin", "files.bin")


class ForeignLayoutConformance(FileFormatConformance):
    """What packer never reads of the files, other tools read: all of it is known to be whole."""

    forks = 10  # the reader is that of indexes

    def files_to_read(self, path: Path) -> list[Path]:
        shards = [file for file in files_of(path) if _INDEX not in file.parts and self.holds_samples(file)]
        return [*(path / _INDEX / name for name in _READ), *shards]

    def holds_samples(self, file: Path) -> bool:
        """Tell whether a file of the layout has samples in it."""
        raise NotImplementedError

    def others(self, path: Path) -> Iterator[Path]:
        """Yield the files of the layout that have no samples in them."""
        read = self.files_to_read(path)
        yield from (file for file in files_of(path) if _INDEX not in file.parts and file not in read)

    @pytest.mark.parametrize("fields", [False, True])
    def test_every_byte_of_the_layout_is_known_to_be_whole(self, path: Path, fields: bool) -> None:
        samples = draw_samples([40, 300, 7])
        self.write(path, with_values(samples) if fields else samples)
        for file in files_of(path):
            if _INDEX in file.parts:
                continue
            original = file.read_bytes()
            for at in range(0, len(original), 1 + len(original) // 300):
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
        """Tell what `verify` tells, in less time."""
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
