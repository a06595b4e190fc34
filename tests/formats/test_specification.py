"""Readers written from `formats.md` without packer's code read its packs, and the snippets of that page run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import packer
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._fields import KINDS, Field
from packer._formats import FORMATS
from packer._formats.parts import join_parts
from packer._manifest import Manifest
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.testing.conformance import draw_samples, write_pack
from packer.testing.photos import draw_imagefolder
from packer.testing.samples import with_values

PAGE = Path(__file__).parents[2] / "formats.md"
COLUMNS = ["label", "height", "width", "offset", "size", "crc32c", "name_end", "names"]
TYPES = dict(zip(COLUMNS, ["<i8", "<i4", "<i4", "<i8", "<i8", "<u4", "<i8", "u1"], strict=True))


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass
class Pack:
    """The content of a pack, as read by one of the readers below."""

    manifest: dict[str, Any]
    table: dict[str, np.ndarray]
    data: list[bytes]
    blobs: dict[str, list[bytes | None]] = field(default_factory=dict)

    def names(self) -> list[bytes]:
        blob, ends = self.table["names"].tobytes(), self.table["name_end"].tolist()
        return [blob[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def read_manifest(text: bytes) -> dict[str, Any]:
    body, seal = text[:-21], text[-21:]
    assert seal == b',"crc32c":"%08x"}' % crc32c(body)
    assert text.isascii()
    manifest = json.loads(body + b"}")
    assert next(iter(manifest)) == "schema"
    assert manifest["schema"] in (1, 2)
    assert ("label_type" in manifest) == (manifest["schema"] == 2)
    return dict(manifest)


NUMBERS = ["bool", "int8", "int16", "int32", "int64", "float32", "float64"]
STORED = dict(zip(NUMBERS, ["u1", "i1", "<i2", "<i4", "<i8", "<f4", "<f8"], strict=True))


def types_of(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the types of the columns."""
    types = {**TYPES, "label": "<f8" if manifest.get("label_type") == "float" else "<i8"}
    for one in manifest.get("fields", []):
        column = f"field.{one['name']}"
        if one["kind"] == "scalar":
            types |= {column: STORED[one["dtype"]], f"{column}.null": "u1"}
        elif one["kind"] == "class":
            types[column] = "<i8"
        else:
            types |= {f"{column}.size": "<i8", f"{column}.crc32c": "<u4"}
    return types


def blob_columns(table: dict[str, np.ndarray]) -> list[str]:
    return [name for name in table if name.endswith(".size")]


def extents(table: dict[str, np.ndarray]) -> list[int]:
    """Return the length of the range of each sample."""
    return (table["size"] + sum(np.maximum(table[name], 0) for name in blob_columns(table))).tolist()


def split(manifest: dict[str, Any], table: dict[str, np.ndarray], ranges: list[bytes]) -> Pack:
    """Return a pack: split the range of each sample into its data and its blobs."""
    data = [held[:size] for held, size in zip(ranges, table["size"].tolist(), strict=True)]
    pack, ends = Pack(manifest, table, data), table["size"].tolist()
    for column in blob_columns(table):
        blobs = pack.blobs[column.removeprefix("field.").removesuffix(".size")] = []
        for index, size in enumerate(table[column].tolist()):
            begin = ends[index]
            ends[index] += max(size, 0)
            blobs.append(None if size == -1 else ranges[index][begin : begin + size])
    assert ends == list(map(len, ranges))
    return pack


# LMDB.


def lmdb_entries(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the key, the offset and the size of every value."""
    metas = []
    for page in (0, 1):
        at = 4096 * page
        number, zero, kind, _, _ = struct.unpack_from("<QHHHH", file, at)
        assert (number, zero, kind) == (page, 0, 8)
        magic, version, address, map_size = struct.unpack_from("<IIQQ", file, at + 16)
        assert (magic, version, address, map_size) == (0xBEEFC0DE, 1, 0, len(file))
        free = struct.unpack_from("<IHHQQQQQ", file, at + 40)
        assert free == (4096, 8, 0, 0, 0, 0, 0, 2**64 - 1)
        main = struct.unpack_from("<IHHQQQQQ", file, at + 88)
        last, transaction = struct.unpack_from("<QQ", file, at + 136)
        metas.append((transaction, main, last))
    assert [transaction for transaction, _, _ in metas] == [0, 1]
    assert metas[0][1] == (0, 0, 0, 0, 0, 0, 0, 2**64 - 1)
    _, (_, _, depth, branches, leaves, overflows, entries, root), last = metas[1]
    assert (last + 1) * 4096 == len(file)
    seen = {1: 0, 2: 0, 4: 0}

    def walk(page: int, level: int) -> Iterator[tuple[bytes, int, int]]:
        start = 4096 * page
        number, zero, kind, lower, upper = struct.unpack_from("<QHHHH", file, start)
        assert (number, zero, kind) == (page, 0, 2 if level == depth else 1)
        seen[kind] += 1
        pointers = struct.unpack_from(f"<{(lower - 16) // 2}H", file, start + 16)
        assert min(pointers) == upper
        assert file[start + lower : start + upper] == bytes(upper - lower)
        for position, pointer in enumerate(pointers):
            assert pointer % 2 == 0
            low, high, flags, length = struct.unpack_from("<HHHH", file, start + pointer)
            at = start + pointer + 8
            key = file[at : at + length]
            at += length
            if kind == 1:
                assert (key == b"") == (position == 0)
                yield from walk(low | high << 16 | flags << 32, level + 1)
                continue
            size = low | high << 16
            assert flags == int(8 + length + size > 2038)
            if flags:
                first = struct.unpack_from("<Q", file, at)[0]
                number, zero, kind_of_page, count = struct.unpack_from("<QHHI", file, 4096 * first)
                assert (number, zero, kind_of_page) == (first, 0, 4)
                seen[4] += count
                at = 4096 * first + 16
                assert not any(file[at + size : 4096 * (first + count)])
                assert 0 <= 4096 * (first + count) - (at + size) < 4096
            yield key, at, size

    found = list(walk(root, 1))
    assert seen == {1: branches, 2: leaves, 4: overflows}
    assert len(found) == entries
    assert [key for key, _, _ in found] == sorted(key for key, _, _ in found)
    return iter(found)


def read_lmdb(path: Path) -> Pack:
    file = path.read_bytes()
    entries = {key: (at, size) for key, at, size in lmdb_entries(file)}

    def value(key: bytes) -> bytes:
        at, size = entries[key]
        return file[at : at + size]

    manifest = read_manifest(value(b"packer/manifest"))
    types = types_of(manifest)
    table = {name: np.frombuffer(value(b"packer/" + name.encode()), types[name]) for name in types}
    count = manifest["count"]
    assert len(entries) == count + 1 + len(types)
    assert list(entries)[:count] == [struct.pack(">Q", index) for index in range(count)]
    places = [entries[struct.pack(">Q", index)] for index in range(count)]
    assert places == list(zip(table["offset"].tolist(), extents(table), strict=True))
    assert manifest["layout"] == {}
    return split(manifest, table, [file[at : at + size] for at, size in places])


# HDF5.


def read_hdf5(path: Path) -> Pack:
    raw = path.read_bytes()
    assert raw[:9] == bytes.fromhex("894844460D0A1A0A 02")
    found = {}
    with h5py.File(path, "r", locking=False) as file:
        assert file.attrs["format"] == b"packer"
        schema = file.attrs["schema"]
        types = types_of(read_manifest(file["manifest"][:].tobytes()))
        assert file.attrs.get_id("schema").dtype == "<i8"
        assert file.attrs.get_id("format").dtype == "S6"
        for name, kind in [*types.items(), ("data", "u1"), ("manifest", "u1")]:
            dataset = file[name]
            assert (dataset.dtype, dataset.ndim, dataset.chunks) == (np.dtype(kind), 1, None)
            at = dataset.id.get_offset()
            assert (at is None) == (dataset.size == 0)
            if dataset.nbytes >= 65_536:
                assert at % 4096 == 0
            found[name] = np.frombuffer(raw, kind, dataset.size, at or 0)
            if name == "data":
                assert at == 4096
        assert len(file) == 2 + len(types)
    manifest = read_manifest(found.pop("manifest").tobytes())
    assert manifest["schema"] == schema
    data = found.pop("data").tobytes()
    sizes = extents(found)
    assert len(data) == max(sum(sizes), 65_536)
    assert not any(data[sum(sizes) :])
    assert found["offset"].tolist() == [sum(sizes[:index]) for index in range(len(sizes))]
    assert manifest["layout"] == {}
    ranges = zip(found["offset"].tolist(), sizes, strict=True)
    return split(manifest, found, [data[at : at + size] for at, size in ranges])


# .pth.


def pth_vectors(path: Path, types: dict[str, str]) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    vectors = {}
    stem = path.name.removesuffix(".pth")
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        order = [*(f"data/{number}" for number in range(len(types))), "data.pkl", "byteorder", "version"]
        assert [info.filename for info in infos] == [f"{stem}/{name}" for name in order]
        assert archive.read(f"{stem}/byteorder") == b"little"
        assert archive.read(f"{stem}/version") == b"3\n"
    end = 0
    for number, info in enumerate(infos):
        h = info.header_offset
        assert h == end
        name_length, extra_length = struct.unpack_from("<HH", raw, h + 26)
        at = h + 30 + name_length + extra_length
        end = at + info.file_size
        assert at % 64 == 0
        assert raw[at - extra_length : at] == b"FB" + struct.pack("<H", extra_length - 4) + b"Z" * (extra_length - 4)
        assert (info.compress_type, info.flag_bits, info.date_time) == (0, 0x800, (1980, 1, 1, 0, 0, 0))
        if number < len(types):
            name, kind = list(types.items())[number]
            vectors[name] = np.frombuffer(raw, kind, info.file_size // np.dtype(kind).itemsize, at)
    return vectors


def read_pth(path: Path) -> Pack:
    manifest = read_manifest((path / "manifest.json").read_bytes())
    types = types_of(manifest)
    table = pth_vectors(path / "table.pth", {"names": "u1", **{n: kind for n, kind in types.items() if n != "names"}})
    layout = manifest["layout"]
    shard_types = {"data": "u1", "offset": "<i8", "label": types["label"], "name_end": "<i8", "names": "u1"}
    shards = [pth_vectors(path / f"shard-{k:05d}.pth", shard_types) for k in range(len(layout["shards"]))]
    assert len(list(path.iterdir())) == len(shards) + 2
    starts, labels = [0], []
    for (count, length), shard in zip(layout["shards"], shards, strict=True):
        assert (len(shard["label"]), len(shard["offset"]), len(shard["data"])) == (count, count + 1, length)
        assert count == 1 or length <= layout["shard_size"]
        labels += shard["label"].tolist()
        starts.append(starts[-1] + length)
    assert labels == table["label"].tolist()
    data = []
    for offset, size in zip(table["offset"].tolist(), extents(table), strict=True):
        number = max(k for k in range(len(shards)) if starts[k] <= offset)
        begin = offset - starts[number]
        assert begin in shards[number]["offset"]
        data.append(shards[number]["data"][begin : begin + size].tobytes())
    return split(manifest, table, data)


READERS: dict[str, Callable[[Path], Pack]] = {"lmdb": read_lmdb, "hdf5": read_hdf5, "pth": read_pth}
NAMES = [b"a/plain.jpg", "b/ünïcode 日本.jpg".encode(), b"c/not \xff\xfe utf-8.jpg", b"c/\xed\xb3\xbf.jpg"]


def require_checksums(pack: Pack) -> None:
    """Assert that all checksums of a pack are right."""
    own = [name for name in pack.manifest["columns"] if not name.endswith(".offset")]  # only indexes have these
    assert own == list(types_of(pack.manifest))
    for name, column in pack.table.items():
        assert pack.manifest["columns"][name] == crc32c(column.tobytes()), name
    rows = zip(*(pack.table[name].tolist() for name in ("label", "height", "width", "crc32c")), strict=True)
    for data, name, (label, height, width, crc) in zip(pack.data, pack.names(), rows, strict=True):
        checked = "<dii" if pack.manifest.get("label_type") == "float" else "<qii"
        assert crc == crc32c(data + struct.pack(checked, label, height, width) + name)
    for field_name, blobs in pack.blobs.items():
        crcs = pack.table[f"field.{field_name}.crc32c"].tolist()
        for blob, name, crc in zip(blobs, pack.names(), crcs, strict=True):
            assert crc == (0 if blob is None else crc32c(blob + name))


@pytest.mark.parametrize("format", list(READERS))
@pytest.mark.parametrize(
    "lengths", [[1], [100, 2022, 2023, 4080], [2000] * 450, [9] * 300, [70_000, 1, 30_000]], ids=lambda x: f"{len(x)}"
)
def test_a_reader_written_from_the_page_reads_what_was_written(tmp_path: Path, format: str, lengths: list[int]) -> None:
    names = [name.decode("utf-8", "surrogateescape") for name in NAMES]
    names += [f"d/{index:05d}.jpg" for index in range(len(lengths))]
    samples: list[Sample] = draw_samples(lengths, names[: len(lengths)])
    path = tmp_path / f"pack{FORMATS[format].suffixes[0]}"
    options = {"shard_size": 50_000} if format == "pth" else {}
    manifest, table = write_pack(FORMATS[format], path, samples, options)
    pack = READERS[format](path)
    assert pack.data == [sample.data for sample in samples]
    assert pack.names() == [sample.name.encode("utf-8", "surrogateescape") for sample in samples]
    assert pack.table["label"].tolist() == [sample.label for sample in samples]
    for name, column in table.columns().items():
        assert np.array_equal(pack.table[name], column), name
    assert {**pack.manifest, "label_type": "class", "fields": (), "about": [], "more": {}, "account": None} == vars(
        manifest
    )
    require_checksums(pack)


@pytest.mark.parametrize("format", list(READERS))
@pytest.mark.parametrize(
    ("label_type", "labels"),
    [("class", [-1, 0, 4, 2]), ("int", [2**63 - 1, -(2**63), 5, 0]), ("float", [0.1, -0.0, 5e-324, 1e308])],
)
def test_it_reads_labels_of_every_type(tmp_path: Path, format: str, label_type: str, labels: list[Any]) -> None:
    samples = [replace(sample, label=label) for sample, label in zip(draw_samples([10] * 4), labels, strict=True)]
    path = tmp_path / f"pack{FORMATS[format].suffixes[0]}"
    write_pack(FORMATS[format], path, samples)
    pack = READERS[format](path)
    assert (pack.manifest["schema"], pack.manifest["label_type"]) == (2, label_type)
    assert pack.table["label"].tobytes() == np.array(labels).tobytes()
    assert (pack.manifest["classes"] == []) == (label_type != "class")
    require_checksums(pack)


@pytest.mark.parametrize("format", list(READERS))
def test_it_reads_fields(tmp_path: Path, format: str) -> None:
    samples = with_values(draw_samples([10, 3000, 40, 40, 40, 900, 2022, 40]))
    path = tmp_path / f"pack{FORMATS[format].suffixes[0]}"
    write_pack(FORMATS[format], path, samples, {"shard_size": 5000} if format == "pth" else {})
    pack = READERS[format](path)
    assert pack.manifest["schema"] == 2
    assert pack.manifest["fields"][3] == {"name": "kind", "kind": "class", "classes": ["red", "green"], "ids": [3, 7]}
    assert pack.data == [sample.data for sample in samples]
    for place, one in enumerate(pack.manifest["fields"]):
        values = [sample.fields[place] for sample in samples]
        column = f"field.{one['name']}"
        if one["kind"] == "scalar":
            found, missing = pack.table[column].tolist(), pack.table[f"{column}.null"].tolist()
            assert [None if null else value for value, null in zip(found, missing, strict=True)] == values
        elif one["kind"] == "class":
            assert [None if value == -1 else value for value in pack.table[column].tolist()] == values
        else:
            assert pack.blobs[one["name"]] == values
    require_checksums(pack)


@pytest.mark.parametrize("format", list(READERS))
def test_it_reads_what_a_conversion_wrote(tmp_path: Path, format: str) -> None:
    root = tmp_path / "images"
    draw_imagefolder(root, classes=3, per_class=3, size=(60, 80))
    path = tmp_path / f"pack{FORMATS[format].suffixes[0]}"
    convert(imagefolder_source(root), path)
    pack = READERS[format](path)
    files = sorted(root.rglob("*.jpg"))
    assert pack.data == [file.read_bytes() for file in files]
    assert pack.names() == [str(file.relative_to(root)).encode() for file in files]
    assert pack.table["label"].tolist() == [int(file.parent.name.removeprefix("class_")) for file in files]
    assert pack.manifest["classes"] == ["class_00", "class_01", "class_02"]
    assert (pack.manifest["format"], pack.manifest["codec"], pack.manifest["count"]) == (format, "keep", 9)
    assert pack.manifest["settings"]["exif"] == "ignore"
    assert "kind" in pack.manifest["source"]
    require_checksums(pack)


def test_the_page_names_the_members_and_columns_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    members = r"^\| `(\w+)` \| (?:integer|string|object|array)"
    manifest_rows = re.findall(members, text[text.index("### Manifest") :], re.MULTILINE)
    full = Manifest("lmdb", 0, [], schema=2, fields=(Field("caption", "text"),), about=[{"file": "a", "members": {}}])
    full = replace(full, account=[])
    assert manifest_rows == [*json.loads(full.to_json())]
    table_rows = re.findall(r"^\| `(\w+)` \| ([iu]\d) \| (?:N|`name_end)", text, re.MULTILINE)
    assert {name: np.dtype(f"<{kind}") for name, kind in table_rows} == {n: np.dtype(k) for n, k in TYPES.items()}
    assert [name for name, _ in table_rows] == list(COLUMNS)
    kinds = re.findall(r"^\| `(\w+)` \| [^|]+ \| a (?:blob|column)", text, re.MULTILINE)
    assert kinds == list(KINDS)


@pytest.mark.parametrize("format", list(READERS))
def test_the_snippets_of_the_page_run(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (snippet,) = [code for code in snippets if f'"pack{FORMATS[format].suffixes[0]}' in code]
    samples = draw_samples([10, 3000, 2500, 2000, 70], [f"c/é{index}.jpg" for index in range(5)])
    options = {"shard_size": 5000} if format == "pth" else {}
    write_pack(FORMATS[format], tmp_path / f"pack{FORMATS[format].suffixes[0]}", samples, options)
    monkeypatch.chdir(tmp_path)
    for index in range(5):
        code, changes = re.subn(r"\bindex = 3$", f"index = {index}", snippet, flags=re.MULTILINE)
        assert changes == 1
        found: dict[str, Any] = {}
        exec(compile(code, str(PAGE), "exec"), found)
        expected = samples[index]
        assert (found["data"], int(found["label"]), found["name"]) == (expected.data, expected.label, expected.name)


def test_the_snippet_for_parts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if '"parts.lmdb/' in code]
    samples = draw_samples([10, 3000, 2500, 2000, 70], [f"c/é{index}.jpg" for index in range(5)])
    monkeypatch.chdir(tmp_path)
    for format in READERS:
        names = [f"part-{number}{FORMATS[format].suffixes[0]}" for number in range(3)]
        Path("parts.lmdb").mkdir()
        for name, part in zip(names, [samples[:1], samples[1:4], samples[4:]], strict=True):
            write_pack(FORMATS[format], Path("parts.lmdb", name), part, {"shard_size": 5000} if format == "pth" else {})
        join_parts(Path("parts.lmdb"), names, {"kind": "csv", "sha256": ""})
        for path, _, identity in json.loads(Path("parts.lmdb", "manifest.json").read_bytes())["layout"]["parts"]:
            body = json.dumps(READERS[format](Path("parts.lmdb", path)).manifest, separators=(",", ":"))[:-1].encode()
            seal = b',"crc32c":"%08x"}' % crc32c(body)
            assert identity == hashlib.sha256(body + seal).hexdigest()[:12]
        for index, expected in enumerate(samples):
            found: dict[str, Any] = {}
            exec(compile(snippet.replace("index = 3\n", f"index = {index}\n"), str(PAGE), "exec"), found)
            assert (found["data"], int(found["label"]), found["name"]) == (expected.data, expected.label, expected.name)
        shutil.rmtree("parts.lmdb")


def read_index(path: Path) -> Pack:
    """Read an index as the page specifies it."""
    manifest = read_manifest((path / "manifest.json").read_bytes())
    layout, count, types = manifest["layout"], manifest["count"], {}
    for name, dtype in types_of(manifest).items():
        types[name] = dtype
        if name.endswith(".crc32c"):
            types[name.removesuffix("crc32c") + "offset"] = "<i8"
    assert layout["apart"] is True
    names = [name for name in types if name != "names"]
    order = [*sorted(names, key=lambda name: -np.dtype(types[name]).itemsize), "names"]
    table, file, at = {}, (path / "table.bin").read_bytes(), 0
    for name in order:
        table[name] = np.frombuffer(file, types[name], layout["names"] if name == "names" else count, at)
        at += table[name].nbytes
        assert crc32c(table[name].tobytes()) == manifest["columns"][name]
    assert at == len(file)
    listed, columns, at = (path / "files.bin").read_bytes(), [], 0
    for elements, dtype, crc in zip(
        [layout["files"]] * 3 + [layout["file_names"]], ["<i8"] * 3 + ["u1"], layout["file_columns"], strict=True
    ):
        columns.append(np.frombuffer(listed, dtype, elements, at))
        at += columns[-1].nbytes
        assert crc32c(columns[-1].tobytes()) == crc
    assert at == len(listed)
    size, modified, ends, blob = columns
    base = path / "files" if (path / "files").is_dir() else path.resolve() / layout["base"]
    joined = b""
    for number, (start, end) in enumerate(zip([0, *ends.tolist()], ends.tolist(), strict=False)):
        part = base / blob[start:end].tobytes().decode()
        assert (part.stat().st_size, part.stat().st_mtime_ns) == (size[number], modified[number])
        joined += part.read_bytes()
    joined += (path / "data.bin").read_bytes()
    assert len(joined) == size.sum() + layout["data"]

    def ranges(offset: np.ndarray, size: np.ndarray) -> list[bytes | None]:
        pairs = zip(offset.tolist(), size.tolist(), strict=True)
        return [None if size == -1 else joined[offset : offset + size] for offset, size in pairs]

    data = [one or b"" for one in ranges(table["offset"], table["size"])]
    blobs = {
        column.removeprefix("field.").removesuffix(".size"): ranges(
            table[column.removesuffix("size") + "offset"], table[column]
        )
        for column in blob_columns(table)
    }
    return Pack(manifest, table, data, blobs)


def test_a_reader_written_from_the_page_reads_indexes(tmp_path: Path) -> None:
    """The tree has fields; some are files, some are copied into the index. It is read in place, and staged."""
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(12, 16))
    files = sorted((tmp_path / "tree").rglob("*.jpg"))
    for number, file in enumerate(files):
        file.with_suffix(".txt").write_text("é" * number)
        np.save(file.with_suffix(".npy"), np.arange(number, dtype=np.int16))
    fields = ["caption={dir}/{stem}.txt", "vector={dir}/{stem}.npy"]
    packer.index(tmp_path / "tree", tmp_path / "x.index", fields=fields)
    pack = packer.convert(tmp_path / "tree", tmp_path / "x.lmdb", fields=fields)
    expected = read_lmdb(pack.destination)
    for path in (tmp_path / "x.index", packer.stage(tmp_path / "x.index", tmp_path / "fast")):
        found = read_index(path)
        require_checksums(found)
        assert (found.data, found.blobs, found.names()) == (expected.data, expected.blobs, expected.names())
        assert found.data == [file.read_bytes() for file in files]
        assert [name for name in found.table if name.endswith(".offset")]
        assert len(found.blobs["vector"]) == 4


def test_the_snippet_for_indexes_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if '"train.index/' in code]
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(12, 16))
    monkeypatch.chdir(tmp_path)
    packer.index("tree", "train.index")
    for index, file in enumerate(sorted(Path("tree").rglob("*.jpg"))):
        found: dict[str, Any] = {}
        exec(compile(snippet.replace("index = 3\n", f"index = {index}\n"), str(PAGE), "exec"), found)
        assert found["data"] == file.read_bytes()
        assert found["label"][index] == index // 2


def test_raw_pixels_lie_as_the_page_says(tmp_path: Path) -> None:
    root = tmp_path / "images"
    draw_imagefolder(root, classes=1, per_class=1, size=(6, 9))
    path = tmp_path / "pack.h5"
    convert(imagefolder_source(root), path, recipe=Recipe(codec="raw"))
    pack = read_hdf5(path)
    height, width = pack.table["height"][0], pack.table["width"][0]
    with Image.open(next(root.rglob("*.jpg"))) as image:
        expected = np.asarray(image.convert("RGB"))
    assert pack.manifest["codec"] == "raw"
    assert np.array_equal(np.frombuffer(pack.data[0], "u1").reshape(height, width, 3), expected)
