"""LMDB: one file, a B-tree of 8-byte big-endian keys, the value of key i being the data of sample i.

The pages are laid out here rather than by liblmdb. Samples arrive in key order and are never changed, which
needs a small part of what LMDB can do: values are appended as overflow pages, leaf pages fill up beside them,
and the branch pages and the meta page are written once, at the end. That makes writing as fast as appending to
a file, the same input give the same bytes, an interrupted conversion continue by cutting the file, and network
disks safe to write to. Reading goes by the table's offsets, so a damaged page is an error, where liblmdb, which
trusts its file, would crash; and a pack can be opened twice, across forks, and by any number of threads.

Any LMDB 0.9 (data version 1) opens the file.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from packer._containers.lmdbs.lmdbpages import (
    DB,
    F_BIGDATA,
    INTEGERKEY,
    MAGIC,
    META,
    META_END,
    MOST_BYTES,
    NO_PAGE,
    NODE_HEADER,
    NODE_MAX,
    OVERFLOW_HEADER,
    P_BRANCH,
    P_LEAF,
    P_META,
    P_OVERFLOW,
    PAGE,
    PAGE_HEADER,
    VERSION,
    Page,
    even,
)
from packer._containers.lmdbs.lmdbtree import Tree
from packer._formats.contract import NOTHING, Contents, Placed, Places, Writer
from packer._formats.reader import Reader, table_from
from packer._manifest import Manifest
from packer._storage.files import AppendFile
from packer._storage.packfile import PackFile
from packer._storage.spool import Spool
from packer._table import COLUMNS, Buffer, Ints, Sample, Table, blocks, spans
from packer.errors import CorruptPackError, DestinationError, NotAPackError, printable

__all__ = ["LMDBReader", "LMDBWriter"]

_PREFIX = b"packer/"
_MANIFEST_KEY = _PREFIX + b"manifest"

_LEAF = struct.Struct(
    "<88pQ"
)  # of a leaf page, in the spool: its first key, whose longest is a field's, and its number


def sample_key(index: int) -> bytes:
    """Return the key of sample `index`: 8 bytes, big-endian."""
    return struct.pack(">Q", index)


def _column_key(column: str) -> bytes:
    return _PREFIX + column.encode()


class LMDBWriter(Writer):
    """Writes the B-tree from left to right."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._file: AppendFile | None = None
        self._pages = 2  # the two meta pages come first
        self._overflow_pages = 0
        self._entries = 0
        self._leaf: Page | None = None
        self._leaves = Spool(path.parent)
        for part in spans(len(written)):
            for size, offset in zip(written.extent(part).tolist(), written.offset[part].tolist(), strict=True):
                if self._put(sample_key(self._entries), size) != offset:
                    raise DestinationError(f"{printable(path)}: does not fit its journal. Start again with --fresh.")
        self._file = AppendFile(path, keep=self._pages * PAGE if len(written) else 0)
        if self._leaf is None:
            self._file.append(bytes(2 * PAGE))
        else:
            self._leaf.restore(self._file.read_at(self._leaf.number * PAGE, PAGE))

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if max(8 * rows, names) > MOST_BYTES:
            raise DestinationError(
                f"{rows:,} samples are too many for one LMDB file, whose columns have less than 4 GiB each. "
                "Say --parts, or use HDF5."
            )

    def append(self, sample: Sample) -> Placed:
        parts = sample.parts
        return Placed(self._put(sample_key(self._entries), sum(map(len, parts)), parts))

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            if self._leaf is not None:
                self._file.write_at(self._leaf.number * PAGE, self._leaf.to_bytes())

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def commit(self, manifest: Manifest, table: Table) -> None:
        assert self._file is not None
        values = {_column_key(name): column for name, column in table.columns().items()}
        values[_MANIFEST_KEY] = np.frombuffer(manifest.to_json(), np.uint8)
        for key in sorted(values):  # after the samples, whose keys begin with a zero byte
            self._put(key, values[key].nbytes, (block.tobytes() for block in blocks(values[key])))
        self.flush()
        leaves = self._leaves.array("u1").data
        root, depth, branch_pages = self._write_branches(self._file, leaves)
        leaf_pages = len(leaves) // _LEAF.size
        tree = DB.pack(0, 0, depth, branch_pages, leaf_pages, self._overflow_pages, self._entries, root)
        empty = DB.pack(0, 0, 0, 0, 0, 0, 0, NO_PAGE)
        self._file.flush()
        self._file.sync()  # the tree is on the disk before the page that makes it valid
        # As liblmdb leaves a file after its first transaction: an empty tree in page 0, the real one in page 1.
        for number, (database, last_page) in enumerate([(empty, 1), (tree, self._pages - 1)]):
            self._file.write_at(
                number * PAGE,
                PAGE_HEADER.pack(number, 0, P_META, 0, 0)
                + META.pack(MAGIC, VERSION, 0, self._pages * PAGE)
                + DB.pack(PAGE, INTEGERKEY, 0, 0, 0, 0, 0, NO_PAGE)  # the free pages: none
                + database
                + META_END.pack(last_page, number),
            )
        self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._leaves.close()

    def _put(self, key: bytes, size: int, data: Iterable[Buffer] | None = None) -> int:
        """Place a value, and write it, part after part, unless it is there; return where in the file it begins."""
        inline = NODE_HEADER.size + len(key) + size <= NODE_MAX
        if self._leaf is None or not self._leaf.has_room_for(NODE_HEADER.size + len(key) + (size if inline else 8)):
            if data is not None:
                self.flush()
            self._leaf = Page(self._pages, P_LEAF)
            self._leaves.append(_LEAF.pack(key, self._pages))
            self._pages += 1
            if data is not None and self._file is not None:
                self._file.append(bytes(PAGE))  # the leaf's place, until it is full
        self._entries += 1
        header = NODE_HEADER.pack(size & 0xFFFF, size >> 16, 0 if inline else F_BIGDATA, len(key))
        if inline:
            at = self._leaf.add(header, key, *([bytes(size)] if data is None else data))
            return self._leaf.number * PAGE + at + len(header) + len(key)
        page, count = self._pages, -(-(OVERFLOW_HEADER.size + size) // PAGE)
        self._leaf.add(header, key, struct.pack("<Q", page))
        self._pages += count
        self._overflow_pages += count
        if data is not None and self._file is not None:
            self._file.append(OVERFLOW_HEADER.pack(page, 0, P_OVERFLOW, count))
            for part in data:
                self._file.append(part)
            self._file.append(bytes(count * PAGE - OVERFLOW_HEADER.size - size))
        return page * PAGE + OVERFLOW_HEADER.size

    def _write_branches(self, file: AppendFile, leaves: Buffer) -> tuple[int, int, int]:
        """Write the levels above the leaves; return the root's page, the depth and the number of branch pages."""
        count, depth, written = len(leaves) // _LEAF.size, 1, 0
        level, longest = _LEAF.iter_unpack(leaves), _longest_key(_LEAF.iter_unpack(leaves))
        while count > 1:
            # A branch page must hold two nodes or more, so the children are spread evenly. The longest node
            # has a key of 8 bytes but for the last few, whose keys are the table's.
            parents = -(-count // ((PAGE - PAGE_HEADER.size) // even(NODE_HEADER.size + longest + 2)))
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
        page, first = Page(self._pages, P_BRANCH), b""
        for key, child in children:
            first = first or key
            node_key = key if page.pointers else b""  # the first is less than every key
            lo, hi, top = child & 0xFFFF, child >> 16 & 0xFFFF, child >> 32
            page.add(NODE_HEADER.pack(lo, hi, top, len(node_key)), node_key)
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
        self._tree = Tree(self._file)
        self._tree.require_whole()
        own = {}
        for key, offset, size in self._tree.walk(_PREFIX):
            if not key.startswith(_PREFIX):
                break
            own[key] = offset, size
        if _MANIFEST_KEY not in own:
            raise NotAPackError("an LMDB file that packer did not write, or did not finish", self.path)
        manifest = Manifest.from_json(self._file.read(*own[_MANIFEST_KEY]), self.path)
        columns = {}
        for name, dtype in manifest.column_types.items():
            found = own.get(_column_key(name))
            if found is None:
                raise CorruptPackError(f"the table has no column {name!r}", self.path)
            offset, size = found
            columns[name] = self._file.array(offset, size // np.dtype(dtype).itemsize, dtype)
        return manifest, table_from(columns, manifest, self.path)

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
        expected = zip(self.table.offset.tolist(), self.table.extent().tolist(), strict=True)
        found = 0
        try:
            for key, offset, size in self._tree.walk():
                if key.startswith(_PREFIX):
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
