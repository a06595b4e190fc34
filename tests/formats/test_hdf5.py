from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from packer._formats import FORMATS
from packer._formats.hdf5 import HDF5Reader, HDF5Writer
from packer._manifest import SCHEMA, Manifest
from packer._packs.verify import verify
from packer._storage import packfile
from packer._table import COLUMNS, Sample, Table
from packer.errors import CorruptPackError, NotAPackError, UnsupportedVersionError
from packer.testing.conformance import FileFormatConformance, assert_holds, draw_samples, write_pack
from tests.memory import PEAK

ROW = FORMATS["hdf5"]


class TestHDF5(FileFormatConformance):
    format = "hdf5"


@pytest.fixture
def samples() -> list[Sample]:
    return draw_samples([1, 100, 30_000, 2000, 70_000, 5])


@pytest.fixture
def path(tmp_path: Path, samples: list[Sample]) -> Path:
    path = tmp_path / "pack.h5"
    write_pack(ROW, path, samples)
    return path


@pytest.mark.parametrize("lengths", [[], [1], [65_535], [65_536], [65_537], [100] * 20_000, [300_000] * 3])
def test_h5py_finds_all_of_it(tmp_path: Path, lengths: list[int]) -> None:
    samples = draw_samples(lengths)
    path = tmp_path / "pack.h5"
    manifest, table = write_pack(ROW, path, samples)
    with h5py.File(path, "r") as file:
        assert set(file) == {"data", "manifest", *COLUMNS}
        assert dict(file.attrs) == {"format": b"packer", "schema": 1}
        assert file["manifest"][:].tobytes() == manifest.to_json()
        for name, column in table.columns().items():
            assert file[name].dtype == np.dtype(COLUMNS[name])
            assert np.array_equal(file[name], column), name
        for dataset in file.values():
            assert dataset.chunks is None
            assert dataset.compression is None
        data = file["data"]
        assert (data.dtype, data.id.get_offset()) == (np.uint8, 4096)
        assert data.shape == (max(sum(lengths), 65_536),)
        for offset, sample in zip(table.offset.tolist(), samples, strict=True):
            assert data[offset : offset + len(sample.data)].tobytes() == sample.data
        assert not data[sum(lengths) :].any()


def test_h5py_may_have_it_open_too(path: Path, samples: list[Sample]) -> None:
    with h5py.File(path, "r"), HDF5Reader(path) as reader:
        assert_holds(reader, samples)
    with HDF5Reader(path) as reader, h5py.File(path, "r+") as file:
        assert_holds(reader, samples)
        assert len(file) == len(COLUMNS) + 2


def test_h5dump_reads_it(path: Path) -> None:
    if shutil.which("h5dump") is None:
        pytest.skip("needs h5dump (hdf5-tools)")
    told = subprocess.run(["h5dump", "-H", "-p", str(path)], capture_output=True, text=True, check=True).stdout
    assert told.count("CONTIGUOUS") == len(COLUMNS) + 2
    assert "OFFSET 4096" in told


def test_h5repack_keeps_a_pack_and_a_filter_is_refused(path: Path, samples: list[Sample], tmp_path: Path) -> None:
    if shutil.which("h5repack") is None:
        pytest.skip("needs h5repack (hdf5-tools)")
    plain, compressed = tmp_path / "plain.h5", tmp_path / "compressed.h5"
    subprocess.run(["h5repack", str(path), str(plain)], check=True)
    assert verify(plain) == []
    with HDF5Reader(plain) as reader:
        assert_holds(reader, samples)
    subprocess.run(["h5repack", "-l", "data:CHUNK=4096", "-f", "data:GZIP=1", str(path), str(compressed)], check=True)
    with pytest.raises(CorruptPackError, match="data"):
        HDF5Reader(compressed)


Replace = Callable[[h5py.File, str, Path], None]


def _external_link(file: h5py.File, name: str, other: Path) -> None:
    file[name] = h5py.ExternalLink(str(other), name)


def _soft_link(file: h5py.File, name: str, other: Path) -> None:
    file[f"real {name}"] = np.arange(10)
    file[name] = h5py.SoftLink(f"/real {name}")


def _external_storage(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, (100,), "u1", external=[(str(other), 0, 100)])


def _virtual(file: h5py.File, name: str, other: Path) -> None:
    layout = h5py.VirtualLayout((100,), "u1")
    layout[:] = h5py.VirtualSource(str(other), name, (100,))
    file.create_virtual_dataset(name, layout)


def _chunked(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=np.zeros(100_000, "u1"), chunks=(1000,))


def _compressed(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=np.zeros(100_000, "u1"), compression="gzip")


def _compact(file: h5py.File, name: str, other: Path) -> None:
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_U8LE, h5py.h5s.create_simple((100,)), settings)


def _never_written(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, (100_000,), "u1")


def _group(file: h5py.File, name: str, other: Path) -> None:
    file.create_group(name)


def _matrix(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=np.zeros((10, 10), "u1"))


def _scalar(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=np.uint8(1))


def _null(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=h5py.Empty("u1"))


def _big_endian(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=np.zeros(6, ">i8"))


def _variable_length(file: h5py.File, name: str, other: Path) -> None:
    file.create_dataset(name, data=["a", "b"], dtype=h5py.string_dtype())


def _named_type(file: h5py.File, name: str, other: Path) -> None:
    file[name] = np.dtype("u1")


def _missing(file: h5py.File, name: str, other: Path) -> None:
    pass


REPLACED: list[Replace] = [
    _external_link,
    _soft_link,
    _external_storage,
    _virtual,
    _chunked,
    _compressed,
    _compact,
    _never_written,
    _group,
    _matrix,
    _scalar,
    _null,
    _big_endian,
    _variable_length,
    _named_type,
    _missing,
]


@pytest.mark.parametrize(
    ("name", "replace"),
    [
        (name, replace)
        for name in ("data", "manifest", "label", "names")
        for replace in (REPLACED if name in ("data", "label") else [_external_link, _chunked, _missing])
    ],
)
def test_what_is_not_a_plain_range_of_the_file_is_refused(
    path: Path, tmp_path: Path, name: str, replace: Replace
) -> None:
    other = tmp_path / "other.h5"
    shutil.copyfile(path, other)
    with h5py.File(path, "r+") as file:
        del file[name]
        replace(file, name, other)
    with pytest.raises(CorruptPackError, match=name):
        HDF5Reader(path)


def test_files_of_other_programs(tmp_path: Path) -> None:
    path = tmp_path / "other.h5"
    for contents in ({}, {"data": np.zeros(10, "u1")}, {"images": np.zeros((3, 4)), "labels": np.arange(3)}):
        with h5py.File(path, "w") as file:
            for name, values in contents.items():
                file[name] = values
        with pytest.raises(NotAPackError):
            HDF5Reader(path)


@pytest.mark.parametrize("value", [b"other", 1, np.zeros(3), "packer ", h5py.Empty("S6")])
def test_another_format_attribute(path: Path, value: object) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs["format"] = value
    with pytest.raises((NotAPackError, CorruptPackError)):
        HDF5Reader(path)


@pytest.mark.parametrize("name", ["data", "crc32c"])
def test_a_newer_schema_may_have_other_datasets(tmp_path: Path, samples: list[Sample], name: str) -> None:
    def change(manifest: Manifest, table: Table) -> tuple[Manifest, Table]:
        return Manifest(**{**vars(manifest), "schema": SCHEMA + 1}), table

    path = tmp_path / "newer.h5"
    write_pack(ROW, path, samples, change=change)
    with h5py.File(path, "r+") as file:
        file.move(name, f"new {name}")
    with pytest.raises(UnsupportedVersionError):
        HDF5Reader(path)


def test_a_user_block_in_front_is_refused(path: Path, tmp_path: Path) -> None:
    shifted = tmp_path / "shifted.h5"
    shifted.write_bytes(bytes(512) + path.read_bytes())
    with pytest.raises(NotAPackError):
        HDF5Reader(shifted)


HOLES = f"""{PEAK}
import sys
from packer._formats import open_pack
from packer.errors import CorruptPackError
before = peak()
try:
    open_pack(sys.argv[1])
except CorruptPackError as error:
    assert "bytes of metadata" in error.reason, error
else:
    raise AssertionError
grown = peak() - before
assert grown < 100_000_000, grown
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs to know the memory in kB")
def test_structure_that_is_holes_of_a_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    """The names of the datasets are in a heap, whose header claims 400 MB."""
    path, size = tmp_path / "pack.h5", 400_000_000
    with h5py.File(path, "w", libver="earliest") as file:
        file["manifest"] = np.zeros(4, np.uint8)
        file.attrs["format"] = np.bytes_(b"packer")
    data = bytearray(path.read_bytes())
    heap = data.index(b"HEAP")
    old, _, names = struct.unpack_from("<QQQ", data, heap + 8)
    struct.pack_into("<QQQ", data, heap + 8, size, 1, len(data))  # its size, no free block, and where its bytes are
    struct.pack_into("<Q", data, 40, len(data) + size)  # the end of the file, in the superblock
    end = len(data) + size
    path.write_bytes(data + data[names : names + old])
    os.truncate(path, end)
    subprocess.run([sys.executable, "-c", HOLES, path], check=True)


def test_structure_is_read_in_small_pieces_of_a_large_pack_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, path = 1_280_000, tmp_path / "pack.h5"
    columns = {name: np.ones(count, dtype) for name, dtype in COLUMNS.items()}
    table = Table.of({**columns, "name_end": np.arange(1, count + 1)})
    writer = HDF5Writer(path, {}, Table.of({name: column[:0] for name, column in columns.items()}))
    manifest = Manifest(format="hdf5", count=count, classes=[f"n{number:08d}" for number in range(1000)])
    writer.commit(manifest, table)
    writer.close()
    lengths: list[int] = []
    require_few = packfile._Stream._require_few
    monkeypatch.setattr(
        packfile._Stream, "_require_few", lambda *arguments: (lengths.append(arguments[1]), require_few(*arguments))
    )
    with HDF5Reader(path) as reader:
        assert len(reader) == count
        assert reader.manifest.classes == manifest.classes
    assert 0 < sum(lengths) < 1 << 17  # the table has 56 MB
