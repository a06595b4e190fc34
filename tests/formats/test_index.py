"""Indexes: the contract of every pack, and rules for files that belong to others."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import open_dataset
from packer._containers import ForeignFiles
from packer._formats import INDEX, Format, Reader, open_pack
from packer._formats.index import IndexReader, write_index
from packer._formats.reader import write_manifest
from packer._manifest import Manifest
from packer._packs.verify import verify
from packer._storage.files import TableBuilder
from packer._table import Sample, Table, checksum, column_types, encode_name, field_columns
from packer.errors import CorruptPackError, PackerError
from packer.testing.conformance import Change, assert_holds, draw_samples
from packer.testing.conformance.packs import ReadingConformance, SharingConformance
from packer.testing.samples import CLASSES, fields_of, label_type_of, with_values

CUTS = 3  # files


def write(path: Path, samples: Sequence[Sample], base: Path | None = None, change: Change | None = None) -> Table:
    """Write samples one after the other to several files, by default in the index, and an index of these files."""
    root = path / "files" if base is None else base
    path.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    fields, label_type = fields_of(samples), label_type_of(samples)
    rows, copied, names = TableBuilder(types=column_types(label_type, fields, apart=True)), bytearray(), []
    total, offset = sum(len(sample.data) for sample in samples), 0
    for number in range(CUTS):
        part = samples[number * len(samples) // CUTS : (number + 1) * len(samples) // CUTS]
        names.append(f"ä/{number}.bin")
        (root / names[-1]).parent.mkdir(exist_ok=True)
        (root / names[-1]).write_bytes(b"".join(bytes(sample.data) for sample in part))
        for sample in part:
            name, more = encode_name(sample.name), []
            columns = iter(field_columns(fields, sample.fields or [None] * len(fields), name))
            for field, value in zip(fields, sample.fields or [None] * len(fields), strict=True):
                more += [next(columns) for _ in field.columns()]
                if field.is_blob:
                    more.append(total + len(copied))
                    copied += value or b""  # type: ignore[arg-type]
            crc = checksum(sample.data, sample.label, sample.height, sample.width, name)
            rows.append(
                label=sample.label,
                height=sample.height,
                width=sample.width,
                offset=offset,
                size=len(sample.data),
                crc32c=crc,
                name=name,
                more=more,
            )
            offset += len(sample.data)
    classes = [f"class_{label}" for label in range(CLASSES)] if label_type == "class" else []
    table = rows.build()
    manifest = Manifest("index", len(table), classes, label_type, fields, schema=2)
    if change is not None:
        manifest, table = change(manifest, table)
    files, to = ForeignFiles(root, names), os.path.relpath(root, path)
    write_index(path, manifest, table, files, base=to, data=[bytes(copied)])
    return table


class TestIndex(ReadingConformance, SharingConformance):
    """An index records the times of its files, so it finds damage in another way than other packs: see below."""

    format = "index"

    @property
    def row(self) -> Format:
        return INDEX

    def write(
        self, path: Path, samples: Sequence[Sample], *, written: Table | None = None, change: Change | None = None
    ) -> Table:
        return write(path, samples, change=change)

    def open(self, path: Path, *, check: str = "always") -> Reader:
        return IndexReader(path, check=check)

    def test_manifest_and_table_come_back(self, path: Path, samples: list[Sample]) -> None:
        kept: list[tuple[Manifest, Table]] = []

        def fill(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
            filled = replace(manifest, skipped=[{"name": "a/\udc80.jpg", "reason": "cut"}], findings={"CMYK": 3})
            kept.append((filled, table))
            return filled, table

        self.write(path, samples, change=fill)
        ((manifest, table),) = kept
        with self.open(path) as reader:
            assert replace(reader.manifest, columns={}, layout={}) == manifest
            for name, column in reader.table.columns().items():
                assert np.array_equal(column, table.columns()[name]), name


@pytest.fixture
def samples() -> list[Sample]:
    return with_values(draw_samples([10, 3000, 2500, 2000, 70, 1, 8000, 40, 9]))


@pytest.fixture
def index(tmp_path: Path, samples: list[Sample]) -> Path:
    """An index; its files are in the directory ``base`` next to it."""
    write(tmp_path / "x.index", samples, tmp_path / "base")
    return tmp_path / "x.index"


def touch(path: Path, nanoseconds: int = 10**9) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + nanoseconds))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def overwrite(path: Path) -> None:
    """Overwrite a file with zeros of the same length."""
    path.write_bytes(bytes(path.stat().st_size))
    touch(path)


CHANGES = {
    "cut": cut,
    "longer": lambda p: p.write_bytes(p.read_bytes() + b"x"),
    "gone": Path.unlink,
    "other": overwrite,
}


@pytest.mark.parametrize("opened", [False, True], ids=["before", "while it is open"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_named_and_the_rest_still_reads(
    change: str, opened: bool, index: Path, samples: list[Sample]
) -> None:
    file = index.parent / "base" / "ä" / "1.bin"
    with open_pack(index) as reader:
        if opened:
            assert bytes(reader.read(4)) == samples[4].data
        CHANGES[change](file)
        for number, sample in enumerate(samples):
            if 3 <= number < 6 and not (opened and change == "gone"):  # an open file can still be read
                with pytest.raises(CorruptPackError, match=r"[Ii]ndex it again") as caught:
                    reader.read(number)
                assert "1.bin" in str(caught.value.__cause__)
                assert (caught.value.index, caught.value.name) == (number, sample.name)
            else:
                assert bytes(reader.read(number)) == sample.data
            assert reader.blobs(np.array([number]), "caption")[0] == sample.fields[6]
        located, _held = reader.locate(np.arange(9))
        if not (opened and change == "gone"):
            assert (located["file"][3:6] == -2).all()
    for quick in (False, True):
        (damage,) = [damage for damage in verify(index, quick=quick) if damage.index is None]
        assert "1.bin" in damage.reason


def test_times_that_a_copy_keeps_in_part_are_the_same(index: Path, samples: list[Sample]) -> None:
    for file in (index.parent / "base").rglob("*.bin"):
        seconds = file.stat().st_mtime_ns // 10**9 * 10**9
        os.utime(file, ns=(seconds, seconds))
    with open_pack(index) as reader:
        assert_holds(reader, samples)


def test_it_may_be_moved_with_its_files_and_looked_for_elsewhere(index: Path, samples: list[Sample]) -> None:
    shutil.copytree(index.parent, index.parent / "copy")
    with open_pack(index.parent / "copy" / index.name) as reader:
        assert_holds(reader, samples)
        assert isinstance(reader, IndexReader)
        assert reader.base == str(index.parent / "copy" / "base")
    (index.parent / "base").rename(index.parent / "elsewhere")
    with open_pack(index) as reader, pytest.raises(CorruptPackError, match="--base DIR"):
        reader.read(0)
    (damage,) = [damage for damage in verify(index) if damage.index is None]  # one for all files
    assert "samples in it that cannot be read: 9" in damage.reason


def test_an_index_may_be_reached_through_a_link(index: Path, samples: list[Sample]) -> None:
    link = index.parent / "deep" / "er" / "link.index"
    link.parent.mkdir(parents=True)
    link.symlink_to(index)
    with open_pack(link) as reader:
        assert_holds(reader, samples)


def forge(index: Path, **layout: Any) -> None:
    with open_pack(index) as reader:
        manifest = reader.manifest
    write_manifest(index, replace(manifest, layout={**manifest.layout, **layout}))


@pytest.mark.parametrize("name", ["../x/1.bin", "ä/../1.b", "/etc/host", "ä//1.bin", "./1.bins", "ä/1.b\0n", "ä/1.bi/"])
def test_no_path_leaves_the_base(name: str, index: Path, samples: list[Sample]) -> None:
    files = index / "files.bin"
    old, new = "ä/1.bin".encode(), name.encode()[: len("ä/1.bin".encode())].ljust(8, b"x")
    new = name.encode() if len(name.encode()) == len(old) else new
    files.write_bytes(files.read_bytes().replace(old, new))
    with open_pack(index) as reader:
        located, _held = reader.locate(np.arange(9))
        assert (located["file"][3:6] < 0).all()
        for number in (3, 4, 5):
            with pytest.raises(CorruptPackError):
                reader.read(number)
        assert bytes(reader.read(0)) == samples[0].data
    assert any("files" in damage.reason for damage in verify(index))


@pytest.mark.parametrize("whole", [False, True], ids=["in shards", "whole files"])
def test_c_opens_no_path_that_leaves_the_base(whole: bool, tmp_path: Path) -> None:
    """C refuses the names themselves, although there are images at these paths."""
    from packer._images import native
    from packer._storage.packfile import BY_PATH, by_path

    if not native.PREFERRED:
        pytest.skip("needs C")
    from tests.images.samples import encoded, photo

    data = encoded(photo(40, 56), "JPEG")
    (tmp_path / "base").mkdir()
    for place in ("outside.jpg", "base/in.jpg"):
        (tmp_path / place).write_bytes(data)
    directory = os.open(tmp_path / "base", os.O_RDONLY)
    status = (tmp_path / "base/in.jpg").stat()
    os.utime(tmp_path / "outside.jpg", ns=(0, status.st_mtime_ns))
    names = [
        b"in.jpg",
        b"../outside.jpg",
        os.fsencode(tmp_path / "outside.jpg"),
        b"./in.jpg",
        b"",
        b"in.jpg/",
        b"no.jpg",
    ]
    stamps = np.array([[len(data), status.st_mtime_ns]] * len(names))
    if whole:
        stamps[0, 1] += 1
    position, _held = by_path(directory, names, stamps)
    out = np.empty((len(names), 8, 8, 3), np.uint8)
    from packer._images.geometry import Box

    tasks = np.concatenate(
        [native.task_of(data, (40, 56), Box.of((0, 0, 8, 8), (8, 8)), one.ctypes.data) for one in out]
    )
    tasks["file"], tasks["position"] = BY_PATH, position
    assert native.decode_into(tasks) == [*([0] if whole else []), *range(1, len(names))]
    os.close(directory)


def test_forged_bytes_are_an_error_or_harmless(index: Path, samples: list[Sample]) -> None:
    """Bytes of the table, the list of files, the data and the manifest change; the manifest has a new checksum."""
    fuzz(index, samples, 100, seed=0)


def fuzz(index: Path, samples: list[Sample], count: int, seed: int) -> None:
    """Change an index `count` times, and read it; to fuzz for minutes, call this with a large count."""
    rng = random.Random(seed)
    whole = {file: file.read_bytes() for file in index.iterdir()}
    layout = json.loads(whole[index / "manifest.json"][:-21] + b"}")["layout"]
    numbers = [-1, 0, 1, 2**31, 2**62, 2**63 - 1, 2**64, 10**30, True, None, "x", [], 1.5, "\0", ".."]
    for _ in range(count):
        name = rng.choice(["table.bin", "files.bin", "data.bin", "manifest.json"])
        if name == "manifest.json":
            forge(index, **{rng.choice(list(layout)): rng.choice(numbers)})
        else:
            data = bytearray(whole[index / name])
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at : at + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x7f" * 8, rng.randbytes(8)])
                case 2:
                    del data[at : at + rng.randrange(1, 9)]
            (index / name).write_bytes(data)
        try:
            with open_pack(index) as reader:
                reader.locate(np.arange(len(reader)))
                for number in range(len(reader)):
                    try:
                        assert bytes(reader.read(number)) in [sample.data for sample in samples]
                        reader.blobs_of(np.array([number]), ["caption", "mask"])
                    except (CorruptPackError, PackerError):
                        continue
            verify(index, quick=True)
        except PackerError:
            pass
        for file, data in whole.items():
            file.write_bytes(data)


def work_done() -> tuple[int, int]:
    """Return how many bytes this process has read, and how many pages it has mapped."""
    import resource

    read = Path("/proc/self/io").read_text(encoding="ascii").split("rchar:")[1].split()[0]
    return int(read), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/io, which counts what is read")
def test_a_billion_rows_over_ten_thousand_files_open_without_a_pass_over_them(tmp_path: Path) -> None:
    """All files are sparse."""
    rows, files = 10**9, 10**4
    write(tmp_path / "x.index", draw_samples([8] * 3, ["a", "b", "c"]), tmp_path / "base")
    path = tmp_path / "x.index"
    with open_pack(path) as reader:
        manifest = reader.manifest
    names = b"".join(b"%04d" % number for number in range(files))
    (tmp_path / "base" / "9999").write_bytes(b"12345678")
    size, modified = np.full(files, 8 * rows // files), np.zeros(files, "<i8")
    with (tmp_path / "base" / "9999").open("r+b") as file:
        file.truncate(8 * rows // files)
    os.utime(tmp_path / "base" / "9999", ns=(0, 0))
    listed = [size.astype("<i8"), modified, 4 * np.arange(1, files + 1, dtype="<i8"), np.frombuffer(names, "u1")]
    (path / "files.bin").write_bytes(b"".join(column.tobytes() for column in listed))
    last = {"label": 1, "offset": 8 * (rows - 1), "size": 8, "name_end": 3, "height": 1, "width": 1, "crc32c": 0}
    try:
        with (path / "table.bin").open("r+b") as table:
            table.truncate(44 * rows + 3)
            begin = 0
            for name, value in last.items():
                width = 8 if name in ("label", "offset", "size", "name_end") else 4
                table.seek(begin + width * (rows - 1))
                table.write(value.to_bytes(width, "little"))
                begin += width * rows
    except OSError:
        pytest.skip("the file system allows no such files")
    layout = {**manifest.layout, "files": files, "file_names": 4 * files, "checksums": False, "names": 3, "data": 0}
    write_manifest(path, replace(manifest, count=rows, layout=layout))
    before = work_done()
    dataset = open_dataset(path, output="bytes")
    assert dataset[rows - 1] == (bytes(8), 1)
    read, faults = (now - then for now, then in zip(work_done(), before, strict=True))
    assert read < 1 << 20
    assert faults < 20_000  # a pass over all rows maps ten million pages of the table


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_c_reads_no_file_that_is_another_than_was_listed(tmp_path: Path) -> None:
    """Its size, time or kind differs. Times may differ by less than 100 ns; a disk may store only their seconds."""
    from packer._images import native
    from packer._images.geometry import Box
    from packer._storage.packfile import BY_PATH, by_path

    if not native.PREFERRED:
        pytest.skip("needs C")
    from tests.images.samples import encoded, photo

    data, time = encoded(photo(40, 56), "JPEG"), 1_600_000_000_123_456_700
    for name, stamp in (("fine", time), ("seconds", time // 10**9 * 10**9)):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, ns=(0, stamp))
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    size = len(data)
    listed = [
        (b"fine", size, time, True),
        (b"fine", size, time + 99, True),
        (b"fine", size, time + 100, False),
        (b"fine", size, time - 10**9, False),
        (b"fine", size + 1, time, False),
        (b"fine", size - 1, time, False),
        (b"seconds", size, time, True),
        (b"seconds", size, time + 10**9, False),
        (b"seconds", size, -time, False),
        (b"directory", (tmp_path / "directory").stat().st_size, (tmp_path / "directory").stat().st_mtime_ns, False),
        (b"pipe", 0, (tmp_path / "pipe").stat().st_mtime_ns, False),
    ]
    directory = os.open(tmp_path, os.O_RDONLY)
    stamps = np.array([(size, stamp) for _, size, stamp, _ in listed])
    position, _held = by_path(directory, [name for name, *_ in listed], stamps)
    out = np.empty((len(listed), 8, 8, 3), np.uint8)
    tasks = np.concatenate(
        [native.task_of(data, (40, 56), Box.of((0, 0, 8, 8), (8, 8)), one.ctypes.data) for one in out]
    )
    tasks["file"], tasks["position"] = BY_PATH, position
    assert native.decode_into(tasks) == [number for number, (*_, same) in enumerate(listed) if not same]
    os.close(directory)


def test_a_first_file_with_a_damaged_name_is_listed_by_verify(index: Path) -> None:
    with open(index / "files.bin", "r+b") as file:
        file.seek(16 * CUTS)
        file.write((1 << 40).to_bytes(8, "little"))
    open_pack(index).close()
    for quick in (False, True):
        assert "the list of files: the column 'name_end'" in verify(index, quick=quick)[0].reason
