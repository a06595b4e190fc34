from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, strategies as st

from packer._codecs import LABEL_TYPES
from packer._conversion.convert import convert
from packer._formats import FORMATS, open_pack
from packer._formats.pth import MAX_SHARD_SIZE, PthReader, pickled_vectors
from packer._packs.verify import verify
from packer._sources.base import Source
from packer._table import COLUMNS, Names, Sample
from packer.errors import CorruptPackError, DestinationError, NotAPackError, PackError
from packer.testing.conformance import FileFormatConformance, assert_holds, draw_samples, write_pack
from tests.samples import solid

ROW = FORMATS["pth"]


class TestPth(FileFormatConformance):
    format = "pth"
    options = {"shard_size": 5000}  # noqa: RUF012 - read only


class TestPthInOneShard(FileFormatConformance):
    format = "pth"


def write(path: Path, samples: list[Sample], shard_size: int | None = None) -> list[Path]:
    write_pack(ROW, path, samples, {} if shard_size is None else {"shard_size": shard_size})
    return sorted(path.glob("shard-*.pth"))


def load(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, mmap=True, weights_only=True)


@pytest.mark.parametrize("shard_size", [None, 1, 700, 4000, 10_000])
def test_torch_loads_every_shard_and_the_table(tmp_path: Path, shard_size: int | None) -> None:
    names = ["c/ä.jpg", "c/\udcff.jpg", "日本/x.png", *(f"c/{index}.jpg" for index in range(27))]
    samples = draw_samples([1, 100, 2000, 5000, 64, 63, 65, 600, 2, 1000] * 3, names)
    path = tmp_path / "pack.pth"
    shards = write(path, samples, shard_size)
    with PthReader(path) as reader:
        table = reader.table
        loaded = load(path / "table.pth")
        assert set(loaded) == set(COLUMNS)
        for name, column in table.columns().items():
            assert loaded[name].numpy().tobytes() == column.tobytes(), name
            assert loaded[name].dtype == (
                torch.int32 if name == "crc32c" else torch.from_numpy(column[:0].copy()).dtype
            )
        index = offset = 0
        assert [len(shard["label"]) for shard in map(load, shards)] == [n for n, _ in reader.manifest.layout["shards"]]
        for shard in map(load, shards):
            assert list(shard) == ["data", "offset", "label", "name_end", "names"]
            count = len(shard["label"])
            rows = slice(index, index + count)
            assert shard["label"].tolist() == table.label[rows].tolist()
            assert (shard["offset"][:-1] + offset).tolist() == table.offset[rows].tolist()
            assert shard["offset"].diff().tolist() == table.size[rows].tolist()
            assert len(shard["data"]) == int(shard["offset"][-1]) == int(table.size[rows].sum())
            ends = shard["name_end"].tolist()
            blob = shard["names"].numpy().tobytes()
            found = [blob[start:end] for start, end in zip([0, *ends], ends, strict=False)]
            assert found == [os.fsencode(name) for name in names[rows]]
            for row in range(count):
                stored = shard["data"][int(shard["offset"][row]) : int(shard["offset"][row + 1])]
                assert stored.numpy().tobytes() == samples[index + row].data
            index += count
            offset += len(shard["data"])
        assert index == len(samples)


def test_zipfile_finds_no_damage_and_data_are_aligned(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    write(path, draw_samples([1, 5000, 33] * 5), 6000)
    for file in path.glob("*.pth"):
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None
            for info in archive.infolist():
                assert info.compress_type == zipfile.ZIP_STORED
                assert info.filename.startswith(f"{file.stem}/")
                raw = file.read_bytes()[info.header_offset :]
                start = info.header_offset + 30 + int.from_bytes(raw[26:28], "little") + raw[28] + 256 * raw[29]
                assert start % 64 == 0
                assert file.read_bytes()[start : start + info.file_size] == archive.read(info)


def test_the_same_members_as_torch_save_writes(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    (shard,) = write(path, draw_samples([100, 200]))
    stream = io.BytesIO()
    torch.save({key: tensor.clone() for key, tensor in load(shard).items()}, stream)
    with zipfile.ZipFile(shard) as ours, zipfile.ZipFile(stream) as theirs:
        members = {name.partition("/")[2]: theirs.read(name) for name in theirs.namelist()}
        for name in ours.namelist():
            if not name.endswith("data.pkl"):
                assert ours.read(name) == members[name.partition("/")[2]], name
    twice = tmp_path / "twice.pth"
    torch.save(load(shard), twice)
    assert {key: tensor.tolist() for key, tensor in load(twice).items()} == {
        key: tensor.tolist() for key, tensor in load(shard).items()
    }


class _Storage:
    def __init__(self, number: int, kind: str, length: int) -> None:
        self.id = ("storage", getattr(torch, kind), str(number), "cpu", length)


class _Vector:
    def __init__(self, number: int, kind: str, length: int) -> None:
        self.arguments = _Storage(number, kind, length), 0, (length,), (1,), False, OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return torch._utils._rebuild_tensor_v2, self.arguments


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> object:
        return value.id if isinstance(value, _Storage) else None


@given(
    st.dictionaries(
        st.sampled_from(sorted({*COLUMNS, "data"})),
        st.tuples(
            st.sampled_from(["ByteStorage", "IntStorage", "LongStorage"]),
            st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, MAX_SHARD_SIZE, 2**40])
            | st.integers(0, MAX_SHARD_SIZE),
        ),
        min_size=2,
    )
)
def test_the_pickle_is_the_one_that_pickle_writes_with_torch(vectors: dict[str, tuple[str, int]]) -> None:
    stream = io.BytesIO()
    _Pickler(stream, protocol=2).dump(
        {key: _Vector(number, *what) for number, (key, what) in enumerate(vectors.items())}
    )
    assert pickled_vectors(vectors) == stream.getvalue()


def test_shards_rotate_at_their_size(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    samples = draw_samples([400, 600, 1, 999, 1, 1000, 1001, 5000, 10, 990, 500])
    shards = write(path, samples, 1000)
    expected = [[400, 600], [1, 999], [1], [1000], [1001], [5000], [10, 990], [500]]
    assert [load(shard)["offset"].diff().tolist() for shard in shards] == expected
    assert [shard.name for shard in shards] == [f"shard-{number:05d}.pth" for number in range(len(expected))]
    with PthReader(path) as reader:
        assert reader.manifest.layout == {"shard_size": 1000, "shards": [[len(s), sum(s)] for s in expected]}
        assert_holds(reader, samples)


@pytest.mark.parametrize("shard_size", [-1, MAX_SHARD_SIZE + 1])
def test_sizes_of_shards_that_are_refused(tmp_path: Path, shard_size: int) -> None:
    with pytest.raises(DestinationError, match=str(shard_size)):
        write(tmp_path / "pack.pth", [], shard_size)


def test_more_shards_than_stay_open(tmp_path: Path) -> None:
    samples = draw_samples([10] * 300)
    path = tmp_path / "pack.pth"
    write(path, samples, 10)
    with PthReader(path) as reader:
        assert_holds(reader, samples)
        opened = [file.path for file in psutil.Process().open_files()]
        assert sum(name.startswith(f"{path}{os.sep}shard-") for name in opened) <= 256


class _Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("target", ["shard-00000.pth", "table.pth"])
def test_a_pickle_in_a_pack_is_never_run(tmp_path: Path, target: str) -> None:
    samples = draw_samples([100, 5000, 20])
    path, canary = tmp_path / "pack.pth", tmp_path / "canary"
    write(path, samples)
    with zipfile.ZipFile(path / target) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    poison = pickle.dumps({"data": _Canary(canary), "of": ["ByteStorage", "IntStorage", "LongStorage"]})
    with zipfile.ZipFile(path / target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, poison if name.endswith("/data.pkl") else data)
    with PthReader(path) as reader:
        assert_holds(reader, samples)
    assert verify(path) == []
    assert not canary.exists()
    pickle.loads(poison)
    assert canary.exists()  # the canary works


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    (shard,) = write(path, draw_samples([100, 5000, 20]))
    with zipfile.ZipFile(shard) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(shard, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with PthReader(path) as reader, pytest.raises(CorruptPackError, match="compressed"):
        reader.read(0)


def test_directories_of_other_programs(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "model.pth")
    with pytest.raises(NotAPackError):
        PthReader(tmp_path / "model.pth")
    other = tmp_path / "other.pth"
    other.mkdir()
    torch.save({"weight": torch.zeros(3)}, other / "table.pth")
    with pytest.raises(NotAPackError):
        PthReader(other)
    (other / "manifest.json").write_text("{}")
    with pytest.raises(CorruptPackError):
        PthReader(other)


def test_a_table_or_shard_that_torch_saved(tmp_path: Path) -> None:
    samples = draw_samples([100, 5000, 20])
    path = tmp_path / "pack.pth"
    (shard,) = write(path, samples)
    torch.save({"weight": torch.zeros(3)}, shard)
    with PthReader(path) as reader, pytest.raises(CorruptPackError):
        reader.read(0)
    torch.save({"weight": torch.zeros(3)}, path / "table.pth")
    with pytest.raises(CorruptPackError):
        PthReader(path)


def test_a_shard_of_another_pack(tmp_path: Path) -> None:
    samples = draw_samples([1000] * 6)
    path, other = tmp_path / "pack.pth", tmp_path / "other.pth"
    shards = write(path, samples, 2000)
    strange = write(other, draw_samples([1000] * 6, seed=1), 2000)
    shards[1].write_bytes(strange[1].read_bytes())
    with PthReader(path) as reader:
        assert reader.read(0) == samples[0].data
        with pytest.raises(CorruptPackError) as caught:
            reader.read(2)
        assert caught.value.index == 2
    assert [damage.index for damage in verify(path) if damage.index is not None] == [2, 3]
    shards[1].unlink()
    with PthReader(path) as reader, pytest.raises(PackError):
        reader.read(2)


def test_the_columns_are_as_long_as_the_samples_are_many(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    write(path, draw_samples([10] * 7))
    lengths = {key: len(vector) for key, vector in load(path / "table.pth").items() if key != "names"}
    assert lengths == dict.fromkeys(set(COLUMNS) - {"names"}, 7)
    assert np.frombuffer(load(path / "table.pth")["crc32c"].numpy().tobytes(), "<u4").max() > 0


@pytest.mark.parametrize("name", ["shard-00000.pth", "table.pth"])
@pytest.mark.parametrize("change", [0x01, 0x20, 0x80, 0xFF])
def test_any_changed_byte_of_a_zips_directory(tmp_path: Path, name: str, change: int) -> None:
    samples = draw_samples([100, 50])
    path = tmp_path / "pack.pth"
    write(path, samples)
    whole = (path / name).read_bytes()
    first = whole.index(b"PK\1\2")
    for at in (*range(first, first + 46), *range(whole.index(b"PK\5\6"), len(whole))):
        changed = bytearray(whole)
        changed[at] ^= change
        (path / name).write_bytes(changed)
        with contextlib.suppress(PackError), PthReader(path) as reader:
            assert all(isinstance(problem, str) for problem in reader.check_structure())
            for column in COLUMNS:
                reader.require_column(column)
            assert_holds(reader, samples)


def test_a_shard_that_torch_loaded_and_saved(tmp_path: Path) -> None:
    samples = draw_samples([100, 5000, 20])
    path = tmp_path / "pack.pth"
    (shard,) = write(path, samples)
    vectors = {key: tensor.clone() for key, tensor in load(shard).items()}
    torch.save(vectors, shard)
    with PthReader(path) as reader:
        assert_holds(reader, samples)


def test_a_zip_of_many_members_is_refused_before_they_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    write_pack(FORMATS["pth"], path, draw_samples([10]))
    with zipfile.ZipFile(path / "table.pth", "a") as archive:
        for number in range(3000):
            archive.writestr(f"table/data/{number + 100}", b"")
    with pytest.raises(CorruptPackError, match="bytes of metadata are more than a pack can have here"):
        open_pack(path)


def test_compressed_members_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "pack.pth"
    write_pack(FORMATS["pth"], path, draw_samples([10]))
    with zipfile.ZipFile(path / "shard-00000.pth", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("shard-00000/data/9", bytes(1000))
    found = [str(damage) for damage in verify(path, quick=True)]
    assert found == ["shard-00000.pth: its members are compressed"]


def with_entries(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace the last entry of a zip's directory by `change(entry)`, which may be several entries."""
    data = path.read_bytes()
    end = data.rindex(b"PK\5\6")
    _, _, _, _, _, size, start, _ = struct.unpack("<4s4H2IH", data[end:])
    entries = data[start : start + size]
    last = entries.rindex(b"PK\1\2")
    changed = entries[:last] + change(entries[last:])
    count = changed.count(b"PK\1\2")
    path.write_bytes(
        data[:start] + changed + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(changed), start, 0)
    )


@pytest.mark.parametrize("name", ["shard-00000.pth", "table.pth"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda entry: entry * 500, "listed twice, or overlaps"),
        (lambda entry: entry + entry.replace(b"/version", b"/data/77"), "listed twice, or overlaps"),
        (lambda entry: entry.replace(b"/version", b"/strange"), "an unexpected member: .*/strange"),
    ],
)
def test_members_that_no_pack_lists(tmp_path: Path, name: str, change: Callable[[bytes], bytes], reason: str) -> None:
    """Otherwise a member that is listed thousands of times would be read as often."""
    path = tmp_path / "pack.pth"
    write_pack(FORMATS["pth"], path, draw_samples([10]))
    with_entries(path / name, change)
    with pytest.raises(CorruptPackError, match=reason), open_pack(path) as reader:
        reader.read(0)


@pytest.mark.parametrize(("label_type", "forged"), [("class", "float"), ("int", "float"), ("float", "int")])
def test_labels_of_another_type_than_the_manifest_says_are_refused(
    tmp_path: Path, label_type: str, forged: str
) -> None:
    """Otherwise the bits of numbers of one type would be read as numbers of the other."""
    source = Source("csv", tmp_path / "src", Names.of(["x.png"]), np.array([1], LABEL_TYPES[label_type]), ["0", "1"])
    solid(tmp_path / "src" / "x.png")
    path = tmp_path / "x.pth"
    convert(replace(source, label_type=label_type, classes=["0", "1"] if label_type == "class" else []), path)
    with open_pack(path) as reader:
        assert reader.table.label.tolist() == [1]
        manifest = reader.manifest
    (path / "manifest.json").write_bytes(replace(manifest, schema=2, label_type=forged, classes=[]).to_json())
    with pytest.raises(
        CorruptPackError, match=r"table\.pth: the types of its vectors differ from those in the manifest"
    ):
        open_pack(path)
