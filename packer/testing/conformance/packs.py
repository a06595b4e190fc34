"""What every pack must do, and what one that lies on a disk must do as well."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import operator
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from packer._formats import Reader, open_pack
from packer._packs.verify import verify
from packer._table import Sample
from packer.errors import CorruptPackError, PackError, PackNotFoundError
from packer.testing.conformance.reading import ReadingConformance
from packer.testing.conformance.refusing import RefusingConformance
from packer.testing.conformance.samples import (
    assert_holds,
    contents,
    draw_samples,
    drawn,
    files_of,
    flip,
    found_through,
    with_values,
)
from packer.testing.conformance.sharing import SharingConformance

__all__ = ["FilePackConformance", "PackConformance"]


class PackConformance(ReadingConformance, SharingConformance, RefusingConformance):
    """What every pack must do, however it was written."""


class FilePackConformance(PackConformance):
    """What a pack that lies on a disk must do as well: any of its bytes may be damaged."""

    @pytest.fixture
    def foreign(self, tmp_path: Path) -> Callable[[bytes], Path]:
        """Makes a file of any content under a name that says it is a pack."""

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

    @settings(drawn, max_examples=200)
    @given(data=st.data())
    def test_any_changed_byte_is_found_or_harmless(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        more = data.draw(st.booleans(), "whether there are fields")
        path = tmp_path_factory.getbasetemp() / f"changed-{self.format}-{more}{self.row.suffixes[0]}"
        samples = draw_samples([10, 3000, 50, 1])
        samples = with_values(samples) if more else samples
        if not path.exists():
            self.write(path, samples)
        file = data.draw(st.sampled_from([file for file in files_of(path) if file.stat().st_size]))
        original = file.read_bytes()
        # Structure is what the samples are not; it is at the ends, and not where bytes are zero.
        positions = [at for at, byte in enumerate(original) if byte or original[at - 1 : at] != b"\0"]
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
            with pytest.raises(CorruptPackError, match="field 'mask': the checksum does not fit") as caught:
                reader.value(index, "mask")
            assert caught.value.index == index
            assert bytes(reader.read(index)) == samples[index].data
            for name, value in zip(reader.fields, samples[index].fields, strict=True):
                assert name == "mask" or reader.value(index, name) == value
            assert reader.value(index - 1, "mask") == samples[index - 1].fields[4]

    def files_to_read(self, path: Path) -> list[Path]:
        """Return the files of a pack of which reading all samples reads the whole."""
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
            with contextlib.suppress(PackError):  # where it is the table's file
                stored, _files = reader.locate(np.arange(len(samples)))
                assert not any(map(found_through, stored))

    # Files of others.

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
        pack, foreign = (folder / f"{name}-{self.format}{self.row.suffixes[0]}" for name in ("begins", "like"))
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
        """Assert that a path is refused, whoever is asked."""
        with pytest.raises((CorruptPackError, PackNotFoundError)):
            self.open(path)
        with pytest.raises(CorruptPackError if path.exists() else PackNotFoundError):
            open_pack(path)
