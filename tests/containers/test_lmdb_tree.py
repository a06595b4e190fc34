"""The tree of an LMDB file, compared with py-lmdb; and trees with cycles."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import lmdb
import pytest

import packer
from packer._storage.lmdb_tree import LMDBTree
from packer._storage.packfile import PackFile
from packer.errors import CorruptPackError, PackerError
from tests.containers.lmdbs import entries_of, write_lmdb


@pytest.fixture(scope="module")
def changed_often(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a tree of three levels, and with free pages: keys were deleted and values replaced."""
    chance, path = random.Random(0), tmp_path_factory.mktemp("tree") / "changed"
    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as environment:
        for _ in range(6):
            with environment.begin(write=True) as writing:
                for _ in range(400):
                    key = bytes(f"{chance.randrange(3000):0{chance.choice([4, 100, 400])}d}", "ascii")
                    if chance.random() < 0.2:
                        writing.delete(key)
                    else:
                        writing.put(key, chance.randbytes(chance.choice([0, 10, 1000, 2030, 5000])))
    return path


def test_walking_and_finding_agree_with_lmdb(changed_often: Path) -> None:
    expected = entries_of(changed_often)
    with PackFile(changed_often) as file:
        tree = LMDBTree(file)
        tree.require_whole()
        tree.require_plain()
        assert [(key, file.read(offset, size)) for key, offset, size in tree.walk()] == expected
        assert tree.entries == len(expected)
        for key, value in expected:
            assert file.read(*tree.find(key) or (0, 0)) == value
            assert tree.find(key + b"0") is None
        for first in (b"", b"0", b"00", expected[500][0], b"9", b"z"):
            assert [key for key, _, _ in tree.walk(first)] == [key for key, _ in expected if key >= first]
        assert tree.find(b"") is tree.find(b"zzz") is None


def root_of(data: bytes) -> int:
    """Return the offset of the root page, which the meta page of the later transaction gives."""
    metas = [
        struct.unpack_from("<QQQ", data, page + 16 + 24 + 48 + 40) for page in (0, 4096)
    ]  # root, pages, transaction
    return max(metas, key=lambda meta: meta[2])[0] * 4096


@pytest.mark.parametrize("target", ["root", "a leaf before", "a page that is none", "a page beyond"])
def test_trees_that_lead_astray_are_refused(tmp_path: Path, target: str) -> None:
    """Cycles are refused even in a file of 1 TiB, whose number of pages hardly limits a walk."""
    image = b"\xff\xd8\xff" * 10
    path = write_lmdb(tmp_path / "images", ((b"%0400d" % number, image) for number in range(100)))
    data = bytearray(path.read_bytes())
    root = root_of(data)
    count = (struct.unpack_from("<H", data, root + 12)[0] - 16) // 2
    pointers = struct.unpack_from(f"<{count}H", data, root + 16)
    first = struct.unpack_from("<H", data, root + pointers[0])[0]
    number = {"root": root // 4096, "a leaf before": first, "a page that is none": 1, "a page beyond": 60_000}[target]
    struct.pack_into("<H", data, root + pointers[-1], number)
    path.write_bytes(data)
    if target != "a page beyond":
        os.truncate(path, 1 << 40)
    with PackFile(path) as file, pytest.raises(CorruptPackError):
        list(LMDBTree(file).walk())
    with pytest.raises(PackerError, match="images"):
        packer.index(path, tmp_path / "out.index")
