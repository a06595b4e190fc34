"""LMDB: one file, a B-tree of 8-byte big-endian keys, the value of key i being the data of sample i.

The pages are laid out here rather than by liblmdb. Samples arrive in key order and are never changed, which
needs a small part of what LMDB can do: values are appended as overflow pages, leaf pages fill up beside them,
and the branch pages and the meta page are written once, at the end. That makes writing as fast as appending to
a file, the same input give the same bytes, an interrupted conversion continue by cutting the file, and network
disks safe to write to. Reading goes by the table's offsets, so a damaged page is an error, where liblmdb, which
trusts its file, would crash; and a pack can be opened twice, across forks, and by any number of threads.

Any LMDB 0.9 (data version 1) opens the file. Names below are those of liblmdb's mdb.c, which defines the layout.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from packer._formats.base import Ints, Places, Reader, Writer, table_from
from packer._manifest import Manifest
from packer._storage.files import AppendFile
from packer._storage.packfile import PackFile
from packer._storage.spool import Spool
from packer._table import COLUMNS, Buffer, Sample, Table, blocks
from packer.errors import CorruptPackError, DestinationError, NotAPackError, printable

__all__ = ["LMDBReader", "LMDBWriter"]

_PAGE = 4096
_PAGE_HEADER = struct.Struct("<QHHHH")  # pgno, pad, flags, lower, upper; lower and upper are one u32 on overflow pages
_OVERFLOW_HEADER = struct.Struct("<QHHI")  # pgno, pad, flags, pages
_NODE_HEADER = struct.Struct("<HHHH")  # lo, hi, flags, ksize
_META = struct.Struct("<IIQQ")  # magic, version, address, mapsize; two MDB_db and two u64 follow
_DB = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch, leaf and overflow pages, entries, root
_META_END = struct.Struct("<QQ")  # last_pg, txnid
_META_SIZE = _META.size + 2 * _DB.size + _META_END.size

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_P_BRANCH, _P_LEAF, _P_OVERFLOW, _P_META = 0x01, 0x02, 0x04, 0x08
_F_BIGDATA = 0x01
_INTEGERKEY = 0x08
_NO_PAGE = 2**64 - 1
_NODE_MAX = (((_PAGE - _PAGE_HEADER.size) // 2) & ~1) - 2  # me_nodemax: what fits at least twice in a page
_PAGE_SIZES = [1 << power for power in range(9, 17)]
_MOST_BYTES = 2**32 - 1  # of a value, whose size has 32 bits
_MAX_DEPTH = 32  # CURSOR_STACK

_MANIFEST_KEY = b"packer/manifest"

_LEAF = struct.Struct("<24pQ")  # of a leaf page, in the spool: its first key and its number


def sample_key(index: int) -> bytes:
    """Return the key of sample `index`: 8 bytes, big-endian."""
    return struct.pack(">Q", index)


def _column_key(column: str) -> bytes:
    return b"packer/" + column.encode()


class _Page:
    """A leaf or branch page: nodes are added in key order, their pointers from the front, the nodes from the end."""

    def __init__(self, number: int, flags: int) -> None:
        self.number = number
        self.flags = flags
        self.pointers: list[int] = []
        self.upper = _PAGE
        self._bytes = bytearray(_PAGE)

    def has_room_for(self, node_size: int) -> bool:
        return _PAGE_HEADER.size + 2 * len(self.pointers) + 2 + _even(node_size) <= self.upper

    def add(self, *parts: Buffer) -> int:
        """Add a node; return where in the page it begins."""
        at = self.upper = self.upper - _even(sum(map(len, parts)))
        self.pointers.append(at)
        for part in parts:
            self._bytes[at : at + len(part)] = part
            at += len(part)
        return self.upper

    def restore(self, page: bytes) -> None:
        """Take the nodes' bytes from an earlier copy of this page."""
        self._bytes[self.upper :] = page[self.upper :]

    def to_bytes(self) -> bytes:
        count = len(self.pointers)
        _PAGE_HEADER.pack_into(self._bytes, 0, self.number, 0, self.flags, _PAGE_HEADER.size + 2 * count, self.upper)
        struct.pack_into(f"<{count}H", self._bytes, _PAGE_HEADER.size, *self.pointers)
        return bytes(self._bytes)


def _even(size: int) -> int:
    return size + (size & 1)


class LMDBWriter(Writer):
    """Writes the B-tree from left to right."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table) -> None:
        self._file: AppendFile | None = None
        self._pages = 2  # the two meta pages come first
        self._overflow_pages = 0
        self._entries = 0
        self._leaf: _Page | None = None
        self._leaves = Spool(path.parent)
        for sizes, offsets in zip(blocks(written.size), blocks(written.offset), strict=True):
            for size, offset in zip(sizes.tolist(), offsets.tolist(), strict=True):
                if self._put(sample_key(self._entries), size) != offset:
                    raise DestinationError(f"{printable(path)}: does not fit its journal. Start again with --fresh.")
        self._file = AppendFile(path, keep=self._pages * _PAGE if len(written) else 0)
        if self._leaf is None:
            self._file.append(bytes(2 * _PAGE))
        else:
            self._leaf.restore(self._file.read_at(self._leaf.number * _PAGE, _PAGE))

    @classmethod
    def check_table(cls, rows: int, names: int) -> None:
        if max(8 * rows, names) > _MOST_BYTES:
            raise DestinationError(
                f"{rows:,} samples are too many for one LMDB file, whose columns have less than 4 GiB each. "
                "Say --parts, or use HDF5."
            )

    def append(self, sample: Sample) -> int:
        return self._put(sample_key(self._entries), len(sample.data), [sample.data])

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            if self._leaf is not None:
                self._file.write_at(self._leaf.number * _PAGE, self._leaf.to_bytes())

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def commit(self, manifest: Manifest, table: Table) -> None:
        assert self._file is not None
        values = {_column_key(name): column for name, column in table.columns().items()}
        values[_MANIFEST_KEY] = np.frombuffer(manifest.to_json(), np.uint8)
        for key in sorted(values):  # behind the samples, whose keys begin with a zero byte
            self._put(key, values[key].nbytes, (block.tobytes() for block in blocks(values[key])))
        self.flush()
        leaves = self._leaves.array("u1").data
        root, depth, branch_pages = self._write_branches(self._file, leaves)
        leaf_pages = len(leaves) // _LEAF.size
        tree = _DB.pack(0, 0, depth, branch_pages, leaf_pages, self._overflow_pages, self._entries, root)
        empty = _DB.pack(0, 0, 0, 0, 0, 0, 0, _NO_PAGE)
        self._file.flush()
        self._file.sync()  # the tree is on the disk before the page that makes it valid
        # As liblmdb leaves a file after its first transaction: an empty tree in page 0, the real one in page 1.
        for number, (database, last_page) in enumerate([(empty, 1), (tree, self._pages - 1)]):
            self._file.write_at(
                number * _PAGE,
                _PAGE_HEADER.pack(number, 0, _P_META, 0, 0)
                + _META.pack(_MAGIC, _VERSION, 0, self._pages * _PAGE)
                + _DB.pack(_PAGE, _INTEGERKEY, 0, 0, 0, 0, 0, _NO_PAGE)  # the free pages: none
                + database
                + _META_END.pack(last_page, number),
            )
        self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._leaves.close()

    def _put(self, key: bytes, size: int, data: Iterable[Buffer] | None = None) -> int:
        """Place a value, and write it, part after part, unless it is there; return where in the file it begins."""
        inline = _NODE_HEADER.size + len(key) + size <= _NODE_MAX
        if self._leaf is None or not self._leaf.has_room_for(_NODE_HEADER.size + len(key) + (size if inline else 8)):
            if data is not None:
                self.flush()
            self._leaf = _Page(self._pages, _P_LEAF)
            self._leaves.append(_LEAF.pack(key, self._pages))
            self._pages += 1
            if data is not None and self._file is not None:
                self._file.append(bytes(_PAGE))  # the leaf's place, until it is full
        self._entries += 1
        header = _NODE_HEADER.pack(size & 0xFFFF, size >> 16, 0 if inline else _F_BIGDATA, len(key))
        if inline:
            at = self._leaf.add(header, key, *([bytes(size)] if data is None else data))
            return self._leaf.number * _PAGE + at + len(header) + len(key)
        page, count = self._pages, -(-(_OVERFLOW_HEADER.size + size) // _PAGE)
        self._leaf.add(header, key, struct.pack("<Q", page))
        self._pages += count
        self._overflow_pages += count
        if data is not None and self._file is not None:
            self._file.append(_OVERFLOW_HEADER.pack(page, 0, _P_OVERFLOW, count))
            for part in data:
                self._file.append(part)
            self._file.append(bytes(count * _PAGE - _OVERFLOW_HEADER.size - size))
        return page * _PAGE + _OVERFLOW_HEADER.size

    def _write_branches(self, file: AppendFile, leaves: Buffer) -> tuple[int, int, int]:
        """Write the levels above the leaves; return the root's page, the depth and the number of branch pages."""
        count, depth, written = len(leaves) // _LEAF.size, 1, 0
        level, longest = _LEAF.iter_unpack(leaves), _longest_key(_LEAF.iter_unpack(leaves))
        while count > 1:
            # A branch page must hold two nodes or more, so the children are spread evenly. The longest node
            # has a key of 8 bytes but for the last few, whose keys are the table's.
            parents = -(-count // ((_PAGE - _PAGE_HEADER.size) // _even(_NODE_HEADER.size + longest + 2)))
            bounds = [i * count // parents for i in range(parents + 1)]
            above = [
                self._write_branch(file, itertools.islice(level, end - start))
                for start, end in itertools.pairwise(bounds)
            ]
            level, longest = iter(above), _longest_key(above)
            count, depth, written = parents, depth + 1, written + parents
        return next(level)[1], depth, written

    def _write_branch(self, file: AppendFile, children: Iterable[tuple[bytes, int]]) -> tuple[bytes, int]:
        """Write the page above some pages, each given by its first key and its number; return its own."""
        page, first = _Page(self._pages, _P_BRANCH), b""
        for key, child in children:
            first = first or key
            node_key = key if page.pointers else b""  # the first is less than every key
            lo, hi, top = child & 0xFFFF, child >> 16 & 0xFFFF, child >> 32
            page.add(_NODE_HEADER.pack(lo, hi, top, len(node_key)), node_key)
        file.append(page.to_bytes())
        self._pages += 1
        return first, page.number


def _longest_key(children: Iterable[tuple[bytes, int]]) -> int:
    return max(len(key) for key, _ in children)


class LMDBReader(Reader):
    """Reads the table through the B-tree and the samples through the table."""

    def _open(self) -> tuple[Manifest, Table]:
        if not os.path.isfile(self.path):
            raise NotAPackError("not an LMDB file (packs are single files, not directories)", self.path)
        self._file = PackFile(self.path)
        self._page_size, self._root = self._read_meta()
        manifest_at = self._find(_MANIFEST_KEY)
        if manifest_at is None:
            raise NotAPackError("an LMDB file that packer did not write, or did not finish", self.path)
        manifest = Manifest.from_json(self._file.read(*manifest_at), self.path)
        columns = {}
        for name, dtype in COLUMNS.items():
            found = self._find(_column_key(name))
            if found is None:
                raise CorruptPackError(f"the table has no column {name!r}", self.path)
            offset, size = found
            columns[name] = self._file.array(offset, size // np.dtype(dtype).itemsize, dtype)
        return manifest, table_from(columns, self.path)

    def _fetch(self, offset: int, size: int) -> Buffer:
        return self._file.read(offset, size)

    def _locate(self, offset: Ints, size: Ints) -> Places:
        file, held = self._file.locate(offset, size)
        return Places(file, offset, held)

    def data_files(self) -> list[tuple[str, int, int]]:
        return [("", 0, self._file.size)]

    def require_table(self) -> None:
        self._file.require_whole()

    def close(self) -> None:
        self._file.close()

    def check_structure(self) -> Iterable[str]:
        """Compare the B-tree, which other programs read, with the table, which this one reads."""
        expected = zip(self.table.offset.tolist(), self.table.size.tolist(), strict=True)
        found = 0
        try:
            for key, offset, size in self._walk():
                if key.startswith(b"packer/"):
                    continue
                if key != sample_key(found) or (offset, size) != next(expected, None):
                    yield f"the LMDB tree and the table disagree at key {key.hex()}: another program changed the file"
                    return
                found += 1
        except CorruptPackError as error:
            yield f"the LMDB tree is damaged: {error.reason}"
            return
        if found != len(self):
            yield f"the LMDB tree holds {found} samples and the table {len(self)}"

    def _read_meta(self) -> tuple[int, int]:
        """Return page size and root page of the newer valid meta page."""
        if self._file.size < _PAGE_HEADER.size + _META_SIZE:
            raise NotAPackError(f"not an LMDB file ({self._file.size} bytes)", self.path)
        best = None
        for start in (0, self._meta_page_size(0)):
            if start + _PAGE_HEADER.size + _META_SIZE > self._file.size:
                continue
            meta = self._file.read(start + _PAGE_HEADER.size, _META_SIZE)
            magic, version, _, _ = _META.unpack_from(meta, 0)
            page_size = _DB.unpack_from(meta, _META.size)[0]
            root = _DB.unpack_from(meta, _META.size + _DB.size)[7]
            last_page, transaction = _META_END.unpack_from(meta, _META_SIZE - _META_END.size)
            if magic == _MAGIC and version != _VERSION:
                raise NotAPackError(f"LMDB data version {version}; packs have {_VERSION}", self.path)
            if magic == _MAGIC and (best is None or transaction > best[0]):
                best = (transaction, page_size, root, last_page)
        if best is None:
            raise NotAPackError("not an LMDB file", self.path)
        _, page_size, root, last_page = best
        if page_size not in _PAGE_SIZES:
            raise CorruptPackError(f"pages of {page_size} bytes", self.path)
        if (last_page + 1) * page_size > self._file.size:
            raise CorruptPackError(
                f"the file has {self._file.size} bytes of {(last_page + 1) * page_size}: it was cut short", self.path
            )
        if root == _NO_PAGE:
            raise NotAPackError("an empty LMDB file", self.path)
        return page_size, root

    def _meta_page_size(self, start: int) -> int:
        page_size = int(_DB.unpack_from(self._file.read(start + _PAGE_HEADER.size + _META.size, _DB.size))[0])
        return page_size if page_size in _PAGE_SIZES else _PAGE

    def _nodes(self, number: int) -> tuple[int, list[tuple[bytes, int, int, int]]]:
        """Return the flags of a page and its nodes: key, low 32 bits, flags, and where in the file the key ends."""
        page = self._file.read(number * self._page_size, self._page_size)
        page_number, _, flags, lower, _ = _PAGE_HEADER.unpack_from(page)
        count = (lower - _PAGE_HEADER.size) // 2
        if page_number != number or flags not in (_P_BRANCH, _P_LEAF) or not 0 < count <= self._page_size // 4:
            raise CorruptPackError(f"page {number} is damaged", self.path)
        nodes = []
        try:
            for pointer in struct.unpack_from(f"<{count}H", page, _PAGE_HEADER.size):
                low, high, node_flags, key_size = _NODE_HEADER.unpack_from(page, pointer)
                key_at = pointer + _NODE_HEADER.size
                if key_at + key_size > len(page):
                    raise struct.error
                key = page[key_at : key_at + key_size]
                nodes.append((key, low | high << 16, node_flags, number * self._page_size + key_at + key_size))
        except struct.error:
            raise CorruptPackError(f"page {number} is damaged", self.path) from None
        return flags, nodes

    def _value(self, node: tuple[bytes, int, int, int]) -> tuple[int, int]:
        """Return where the value of a leaf's node begins in the file, and its size."""
        _, size, flags, at = node
        if not flags & _F_BIGDATA:
            return at, size
        return struct.unpack("<Q", self._file.read(at, 8))[0] * self._page_size + _OVERFLOW_HEADER.size, size

    def _find(self, key: bytes) -> tuple[int, int] | None:
        number = self._root
        for _ in range(_MAX_DEPTH):
            flags, nodes = self._nodes(number)
            if flags == _P_LEAF:
                return next((self._value(node) for node in nodes if node[0] == key), None)
            _, low, top, _ = [nodes[0], *(node for node in nodes[1:] if node[0] <= key)][-1]
            number = low | top << 32
        raise CorruptPackError("the tree has no leaves", self.path)

    def _walk(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield key, offset and size of every value, in the order of the keys."""
        pending, visited = [self._root], 0
        while pending:
            visited += 1
            if visited > self._file.size // self._page_size:
                raise CorruptPackError("the tree has more pages than the file", self.path)
            flags, nodes = self._nodes(pending.pop())
            if flags == _P_LEAF:
                yield from ((node[0], *self._value(node)) for node in nodes)
            else:
                pending += [low | top << 32 for _, low, top, _ in reversed(nodes)]
