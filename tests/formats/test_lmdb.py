from __future__ import annotations

import importlib
import os
import shutil
import struct
import subprocess
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, strategies as st

from packer._fields import Field
from packer._formats import FORMATS, open_pack
from packer._formats.lmdb import LMDBReader
from packer._packs.verify import verify
from packer._storage.lmdb_tree import NODE_HEADER, P_LEAF, LMDBTree, Page, nodes_of
from packer._table import COLUMNS, Sample
from packer.errors import CorruptPackError, NotAPackError, PackError
from packer.testing.conformance import FileFormatConformance, draw_samples, drawn, sizes, write_pack

ROW = FORMATS["lmdb"]


class TestLMDB(FileFormatConformance):
    format = "lmdb"


def write(path: Path, samples: list[Sample]) -> Path:
    write_pack(ROW, path, samples)
    return path


def stat(path: Path) -> dict[str, int]:
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment:
        return environment.stat()


def problems(path: Path) -> list[str]:
    """Return the problems that py-lmdb's own verifier, which walks over all pages in Python, finds in a file."""
    try:
        module = importlib.import_module("lmdb.verify")
    except ImportError:
        pytest.skip("needs lmdb 3, which has lmdb.verify")
    return list(module.verify(str(path), subdir=False))


def entries(path: Path) -> list[tuple[bytes, bytes]]:
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return list(transaction.cursor())


def test_lmdb_finds_every_key_in_order(tmp_path: Path) -> None:
    samples = draw_samples([1, 2022, 2023, 4080, 4081, 100_000, 50])
    path = tmp_path / "pack.lmdb"
    manifest, table = write_pack(ROW, path, samples)
    found = entries(path)
    expected = {struct.pack(">Q", index): sample.data for index, sample in enumerate(samples)}
    expected |= {b"packer/" + name.encode(): column.tobytes() for name, column in table.columns().items()}
    expected[b"packer/manifest"] = manifest.to_json()
    assert dict(found) == expected
    assert [key for key, _ in found] == sorted(expected)
    assert [key for key, _ in found[: len(samples)]] == [struct.pack(">Q", index) for index in range(len(samples))]
    assert stat(path)["entries"] == len(samples) + len(COLUMNS) + 1
    whole = path.read_bytes()
    for offset, sample in zip(table.offset.tolist(), samples, strict=True):
        assert whole[offset : offset + len(sample.data)] == sample.data


# A leaf has two samples of 2,000 bytes, and a parent has about 200 leaves. The table has its own leaves.
@pytest.mark.parametrize(("count", "size", "depth"), [(2, 100, 2), (60, 2000, 2), (700, 2000, 3), (47_000, 1, 3)])
def test_trees_of_every_depth(tmp_path: Path, count: int, size: int, depth: int) -> None:
    samples = draw_samples([size] * count)
    path = write(tmp_path / "pack.lmdb", samples)
    assert stat(path)["depth"] == depth
    assert problems(path) == []
    found = entries(path)
    assert [value for _, value in found[:count]] == [sample.data for sample in samples]
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment, environment.begin() as reading:
        for index in {0, 1, count // 2, count - 1}:
            assert reading.get(struct.pack(">Q", index)) == samples[index].data
        assert reading.get(struct.pack(">Q", count)) is None
        assert reading.get(b"packer/manifest") is not None
    with LMDBReader(path) as reader:
        assert list(reader.check_structure()) == []


@drawn
@given(lengths=st.lists(sizes(), max_size=60), twos=st.integers(0, 450))
def test_lmdb_finds_nothing_to_complain_about(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], twos: int
) -> None:
    samples = draw_samples(lengths + [2022] * twos)
    path = write(tmp_path_factory.mktemp("lmdb") / "pack.lmdb", samples)
    assert problems(path) == []
    assert [value for _, value in entries(path)[: len(samples)]] == [sample.data for sample in samples]


def test_mdb_stat_and_mdb_dump(tmp_path: Path) -> None:
    if shutil.which("mdb_stat") is None or shutil.which("mdb_dump") is None:
        pytest.skip("needs mdb_stat and mdb_dump (lmdb-utils)")
    samples = draw_samples([5, 3000, 2022])
    path = write(tmp_path / "pack.lmdb", samples)
    told = subprocess.run(["mdb_stat", "-n", str(path)], capture_output=True, text=True, check=True).stdout
    assert f"Entries: {len(samples) + len(COLUMNS) + 1}\n" in told
    dumped = subprocess.run(["mdb_dump", "-n", str(path)], capture_output=True, text=True, check=True).stdout
    lines = dumped[dumped.index("HEADER=END") :].splitlines()[1:-1]
    values = [bytes.fromhex(line.strip()) for line in lines]
    assert list(zip(values[::2], values[1::2], strict=True)) == entries(path)


@pytest.mark.parametrize("count", [3, 60, 700])
def test_lmdb_changes_a_copy_and_verify_reports_it(tmp_path: Path, count: int) -> None:
    samples = draw_samples([2000] * count)
    path = write(tmp_path / "pack.lmdb", samples)
    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as environment:
        with environment.begin(write=True) as transaction:
            assert transaction.put(b"zzz", b"another's" * 1000)
            assert transaction.put(struct.pack(">Q", 1), b"changed")
            assert transaction.delete(struct.pack(">Q", 0))
        with environment.begin(write=True) as transaction:
            for index in range(2, count, 2):
                assert transaction.delete(struct.pack(">Q", index))
        with environment.begin() as transaction:
            assert transaction.get(struct.pack(">Q", 1)) == b"changed"
            assert transaction.get(struct.pack(">Q", count - 1 - count % 2)) is not None
            assert transaction.stat()["entries"] == count - 1 - len(range(2, count, 2)) + len(COLUMNS) + 2
    assert problems(path) == []
    assert any("another program changed the file" in damage.reason for damage in verify(path))


def test_a_plain_copy_is_a_pack_and_a_compacted_one_is_reported(tmp_path: Path) -> None:
    samples = draw_samples([2000, 5000, 3] * 20)
    path = write(tmp_path / "pack.lmdb", samples)
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment:
        for name, compact in (("plain", False), ("compact", True)):
            environment.copy(str(tmp_path / name), compact=compact)
    assert verify(tmp_path / "plain") == []
    compacted = tmp_path / "compact"
    assert any("another program changed the file" in damage.reason for damage in verify(compacted))
    with LMDBReader(compacted) as reader:
        damaged = 0
        for index, sample in enumerate(samples):
            try:
                assert reader.read(index) == sample.data
            except CorruptPackError:
                damaged += 1
        assert damaged


def test_a_pack_that_is_open_opens_in_lmdb_too(tmp_path: Path) -> None:
    samples = draw_samples([2000] * 10)
    path = write(tmp_path / "pack.lmdb", samples)
    with LMDBReader(path) as reader:
        assert len(entries(path)) == 10 + len(COLUMNS) + 1
        assert reader.read(9) == samples[9].data


def test_files_of_other_programs(tmp_path: Path) -> None:
    for name, keys in (("other.lmdb", [b"0", b"1"]), ("empty.lmdb", []), ("similar.lmdb", [struct.pack(">Q", 0)])):
        with lmdb.open(str(tmp_path / name), subdir=False) as environment, environment.begin(write=True) as transaction:
            for key in keys:
                transaction.put(key, b"value")
        with pytest.raises(NotAPackError):
            LMDBReader(tmp_path / name)
    with lmdb.open(str(tmp_path / "directory.lmdb")) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"packer/manifest", b"{}")
    with pytest.raises(NotAPackError):
        LMDBReader(tmp_path / "directory.lmdb")


@pytest.mark.parametrize("value", [b"", b"{}", b'{"schema":1,"crc32c":"00000000"}', bytes(10_000)])
def test_a_manifest_of_another_program(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "other.lmdb"
    with lmdb.open(str(path), subdir=False) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"packer/manifest", value)
    with pytest.raises(CorruptPackError):
        LMDBReader(path)


@pytest.mark.parametrize("page_size", [0, 1, 15, 16, 17, 512, 4095, 4097, 8192, 2**32 - 1])
def test_a_page_size_that_is_wrong(tmp_path: Path, page_size: int) -> None:
    path = write(tmp_path / "pack.lmdb", draw_samples([100] * 5))
    changed = bytearray(path.read_bytes())
    for page in (0, 4096):
        struct.pack_into("<I", changed, page + 16 + 24, page_size)
    path.write_bytes(changed)
    with pytest.raises(PackError):
        LMDBReader(path)


@pytest.mark.parametrize("root", [0, 1, 2, 3, 2**20, 2**63, 2**64 - 2])
def test_a_root_that_is_wrong(tmp_path: Path, root: int) -> None:
    path = write(tmp_path / "pack.lmdb", draw_samples([2000] * 40))
    changed = bytearray(path.read_bytes())
    struct.pack_into("<Q", changed, 4096 + 16 + 24 + 48 + 40, root)
    path.write_bytes(changed)
    with pytest.raises(PackError):
        LMDBReader(path)


def test_a_tree_that_leads_in_circles(tmp_path: Path) -> None:
    samples = draw_samples([2000] * 40)
    path = write(tmp_path / "pack.lmdb", samples)
    changed = bytearray(path.read_bytes())
    root = struct.unpack_from("<Q", changed, 4096 + 16 + 24 + 48 + 40)[0]
    lower = struct.unpack_from("<H", changed, root * 4096 + 12)[0]
    for pointer in struct.unpack_from(f"<{(lower - 16) // 2}H", changed, root * 4096 + 16):
        struct.pack_into("<HHH", changed, root * 4096 + pointer, root & 0xFFFF, root >> 16, 0)
    path.write_bytes(changed)
    with pytest.raises(CorruptPackError):
        LMDBReader(path)


def test_a_circle_below_the_samples_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "pack.lmdb", draw_samples([2000] * 40))
    changed = bytearray(path.read_bytes())
    root = struct.unpack_from("<Q", changed, 4096 + 16 + 24 + 48 + 40)[0]
    pointer = struct.unpack_from("<H", changed, root * 4096 + 16)[0]
    struct.pack_into("<HHH", changed, root * 4096 + pointer, root & 0xFFFF, root >> 16, 0)
    path.write_bytes(changed)
    with LMDBReader(path) as reader:
        assert list(reader.check_structure()) != []


@pytest.mark.parametrize(
    ("child", "reason"), [("root", "the tree is too deep"), ("leaf", "are not in ascending order")]
)
def test_a_tree_that_leads_in_a_circle(tmp_path: Path, child: str, reason: str) -> None:
    """Verification ends at the first page that it meets again, however large the file is."""
    path = tmp_path / "pack.lmdb"
    write_pack(FORMATS["lmdb"], path, draw_samples([10] * 1000))
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment:
        assert environment.stat()["depth"] == 2
    with open_pack(path) as reader:
        root = reader._tree.root
    data = bytearray(path.read_bytes())
    pointers = struct.unpack_from("<3H", data, root * 4096 + 16)
    nodes = [root * 4096 + pointer for pointer in pointers]
    first = struct.unpack_from("<H", data, nodes[0])[0]
    struct.pack_into("<H", data, nodes[0 if child == "root" else 1], root if child == "root" else first)
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    assert any(reason in str(damage) for damage in verify(path, quick=True))


def page_of(number: int, pointers: int, key: int) -> bytes:
    """Return a leaf of 64 KiB whose nodes are all at one position, where a key of `key` bytes begins."""
    page = bytearray(1 << 16)
    at = 16 + 2 * pointers
    struct.pack_into("<QHHHH", page, 0, number, 0, 2, at, at)
    struct.pack_into(f"<{pointers}H", page, 16, *[at] * pointers)
    struct.pack_into("<HHHH", page, at, 0, 0, 0, key)
    return bytes(page)


@pytest.mark.parametrize(("pointers", "key"), [(16_000, 30_000), (1, 512), (126, 511)])
def test_nodes_that_share_their_bytes(pointers: int, key: int) -> None:
    """Otherwise a page of 64 KiB could contain a gigabyte of keys."""
    with pytest.raises(ValueError, match="the nodes are larger than a page"):
        nodes_of(page_of(3, pointers, key), 3)


def test_a_page_that_is_full_of_long_keys() -> None:
    page, keys = Page(3, P_LEAF), [b"%d" % number * 511 for number in range(7)]
    for key in keys:
        page.add(NODE_HEADER.pack(4, 0, 0, len(key)), key, b"data")
    is_leaf, nodes = nodes_of(page.to_bytes(), 3)
    assert is_leaf
    assert [node.key for node in nodes] == keys


def test_a_pack_of_many_columns_opens_by_each_leaf_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    nodes = LMDBTree.nodes
    monkeypatch.setattr(LMDBTree, "nodes", lambda tree, number: read.append(number) or nodes(tree, number))
    fields = [Field(f"number{number}", "scalar", "float64") for number in range(200)]
    samples = [Sample("a.png", 0, draw_samples([10])[0].data, 1, 1, (0.5,) * len(fields))]
    write_pack(FORMATS["lmdb"], tmp_path / "pack.lmdb", samples, fields=fields)
    with LMDBReader(tmp_path / "pack.lmdb") as reader:
        assert (
            len(read)
            == len(set(read))
            == sum(stat(tmp_path / "pack.lmdb")[of] for of in ("leaf_pages", "branch_pages")) - 1
        ), "all but the sample's"
        assert len(read) > 4
        assert [reader.value(0, name) for name in reader.fields] == [0.5] * 200
