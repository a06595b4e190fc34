"""LMDB: one file, a B-tree with 8-byte big-endian keys; the value of key i is the data of sample i.

Every LMDB 0.9 (data version 1) can open the file, but packer writes the pages itself, without liblmdb. Values arrive in
the order of their keys and never change. So each value is appended as overflow pages, leaf pages are filled between the
values, and the branch pages and the meta page are written once, at the end. Writing is as fast as appending to a file,
the same input gives the same bytes, an interrupted conversion truncates the file and continues, and writing to network
disks is safe. Samples are read by their offsets in the table, without liblmdb. So a damaged page raises an error,
whereas liblmdb, which trusts its file, would crash. Any number of threads and forked processes can use a pack, and a
process can open it twice.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packer._formats.contract import NOTHING, Contents, Placed, Writer, not_of_journal
from packer._formats.reader import FileReader, table_from
from packer._manifest import Manifest
from packer._storage.files import AppendFile, Spool
from packer._storage.lmdb_tree import (
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
    LMDBTree,
    Page,
    even,
    nodes_of,
)
from packer._storage.place import Place
from packer._table import COLUMNS, Buffer, Sample, Table, blocks, spans
from packer.errors import CorruptPackError, DestinationError, NotAPackError, option

_LEAF = struct.Struct("<HQ")  # a leaf page in the spool: length of its first key, number of the page; then the key

_ZEROS = memoryview(bytes(PAGE))

_Child = tuple[bytes, int]
"""A page below another: its first key and its number."""


class TreeWriter:
    """Writes the B-tree of an LMDB file.

    To continue a file, call `put` for the values that the file already has, and then `open`.

    Parameters
    ----------
    scratch : Path
        The directory for temporary files, which are used instead of memory.
    """

    def __init__(self, scratch: Path) -> None:
        self._file: AppendFile | None = None
        self._pages = 2  # the two meta pages come first
        self._overflow_pages = 0
        self._entries = 0
        self._leaf: Page | None = None
        self._leaves = Spool(scratch)

    def open(self, path: Path, *, cached: bool = True) -> None:
        """Open the file, and drop the bytes after the values that were put so far; `cached` is as for `AppendFile`."""
        self._file = AppendFile(path, keep=self._pages * PAGE if self._entries else 0, cached=cached)
        if self._leaf is None:
            self._file.append(bytes(2 * PAGE))
        else:
            self._leaf.restore(self._file.read_at(self._leaf.number * PAGE, PAGE))

    def put(self, key: bytes, size: int, data: Iterable[Buffer] = ()) -> int:
        """Allocate space for a value, and write its parts if the file is open; return its offset.

        Parameters
        ----------
        key : bytes
            Greater than all earlier keys, and at most 511 bytes long.
        size : int
            The size of the value in bytes.
        data : iterable of bytes-like
            The parts of the value.
        """
        inline = _is_inline(key, size)
        leaf = self._leaf_for(key, NODE_HEADER.size + len(key) + (size if inline else 8))
        if not inline:
            self._add_node(leaf, key, size, self._pages)
            return self._put_overflow(size, data)
        return self._add_inline(leaf, key, size, data)

    def put_last(self, prefix: bytes, values: Sequence[tuple[bytes, int, Iterable[Buffer]]]) -> None:
        """Write the last values, and then their leaves, so that both are close to the branches at the file's end.

        A single request for the end of the file then fetches all pages that are needed to find these values.

        Parameters
        ----------
        prefix : bytes
            The common prefix of the keys of these values; no earlier key begins with it. The branch page stores this
            prefix instead of the first of these keys, so that a search for keys with the prefix need not read the
            previous leaf.
        values : sequence of (bytes, int, iterable of bytes-like)
            Key, size and parts, as for `put`. The keys may be in any order, but must be greater than all earlier keys.
        """
        placed = {}
        for key, size, data in values:
            if not _is_inline(key, size):
                placed[key] = self._pages
                self._put_overflow(size, data)
        self._begin_leaf(prefix)
        for key, size, data in sorted(values, key=lambda value: value[0]):
            if key in placed:
                self._add_node(self._leaf_for(key, NODE_HEADER.size + len(key) + 8), key, size, placed[key])
            else:
                self._add_inline(self._leaf_for(key, NODE_HEADER.size + len(key) + size), key, size, data)

    def _add_inline(self, leaf: Page, key: bytes, size: int, data: Iterable[Buffer]) -> int:
        """Add a node that contains its value; return where the value begins."""
        self._entries += 1
        header = NODE_HEADER.pack(size & 0xFFFF, size >> 16, 0, len(key))
        at = leaf.add(header, key, *([bytes(size)] if self._file is None else data))
        return leaf.number * PAGE + at + len(header) + len(key)

    def _add_node(self, leaf: Page, key: bytes, size: int, page: int) -> None:
        """Add a node for a value that is stored on overflow pages, the first of which is `page`."""
        self._entries += 1
        leaf.add(NODE_HEADER.pack(size & 0xFFFF, size >> 16, F_BIGDATA, len(key)), key, struct.pack("<Q", page))

    def _put_overflow(self, size: int, data: Iterable[Buffer]) -> int:
        """Write a value to overflow pages; return its offset."""
        page, count = self._pages, -(-(OVERFLOW_HEADER.size + size) // PAGE)
        self._pages += count
        self._overflow_pages += count
        if self._file is not None:
            self._file.append(OVERFLOW_HEADER.pack(page, 0, P_OVERFLOW, count))
            for part in data:
                self._file.append(part)
            self._file.append(_ZEROS[: count * PAGE - OVERFLOW_HEADER.size - size])
        return page * PAGE + OVERFLOW_HEADER.size

    def flush(self) -> None:
        """Pass everything to the operating system."""
        if self._file is not None:
            self._file.flush()
            if self._leaf is not None:
                self._file.write_at(self._leaf.number * PAGE, self._leaf.to_bytes())

    def sync(self) -> None:
        """Return once the flushed bytes are on the disk."""
        if self._file is not None:
            self._file.sync()

    def finish(self) -> int:
        """Complete the file; return its size once it is on the disk."""
        assert self._file is not None
        self.flush()
        leaves = self._leaves.array(np.uint8).tobytes()
        root, depth, leaf_pages, branch_pages = self._write_branches(self._file, leaves)
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
        return self._file.size

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._leaves.close()

    def _leaf_for(self, key: bytes, size: int) -> Page:
        """Return a leaf with room for a node of this size: the last one, or a new one."""
        if self._leaf is None or not self._leaf.has_room_for(size):
            return self._begin_leaf(key)
        return self._leaf

    def _begin_leaf(self, key: bytes) -> Page:
        """Return a new leaf; `key` is a lower bound of its keys, and greater than the keys of all other leaves."""
        self.flush()
        self._leaf = Page(self._pages, P_LEAF)
        self._leaves.append(_LEAF.pack(len(key), self._pages) + key)
        self._pages += 1
        if self._file is not None:
            self._file.append(bytes(PAGE))  # reserved for the leaf, until it is full
        return self._leaf

    def _write_branches(self, file: AppendFile, leaves: bytes) -> tuple[int, int, int, int]:
        """Write all branch pages; return the root's page number, the depth, and the counts of leaves and branches."""
        leaf_pages = count = sum(1 for _ in _children(leaves))
        if not count:
            return NO_PAGE, 0, 0, 0
        depth, written, level, longest = 1, 0, _children(leaves), _longest_key(_children(leaves))
        while count > 1:
            # A branch page must hold two nodes or more, so the children are spread evenly.
            parents = -(-count // ((PAGE - PAGE_HEADER.size) // even(NODE_HEADER.size + longest + 2)))
            bounds = [i * count // parents for i in range(parents + 1)]
            above = [
                self._write_branch(file, itertools.islice(level, end - start))
                for start, end in itertools.pairwise(bounds)
            ]
            level, longest = iter(above), _longest_key(above)
            count, depth, written = parents, depth + 1, written + parents
        return next(level)[1], depth, leaf_pages, written

    def _write_branch(self, file: AppendFile, children: Iterable[_Child]) -> _Child:
        """Write the branch page above some pages; return its first key and its page number."""
        page, first = Page(self._pages, P_BRANCH), b""
        for key, child in children:
            first = first or key
            node_key = key if page.pointers else b""  # the first is less than every key
            lo, hi, top = child & 0xFFFF, child >> 16 & 0xFFFF, child >> 32
            page.add(NODE_HEADER.pack(lo, hi, top, len(node_key)), node_key)
        file.append(page.to_bytes())
        self._pages += 1
        return first, page.number


def _is_inline(key: bytes, size: int) -> bool:
    return NODE_HEADER.size + len(key) + size <= NODE_MAX


def _children(leaves: bytes) -> Iterator[_Child]:
    at = 0
    while at < len(leaves):
        size, page = _LEAF.unpack_from(leaves, at)
        at += _LEAF.size + size
        yield leaves[at - size : at], page


def _longest_key(children: Iterable[_Child]) -> int:
    return max(len(key) for key, _ in children)


_PREFIX = b"packer/"
_MANIFEST_KEY = _PREFIX + b"manifest"
_LARGEST_END = 1 << 22  # bytes fetched together at the end of a remote file


def sample_key(index: int) -> bytes:
    """Return the key of sample `index`: 8 bytes, big-endian."""
    return struct.pack(">Q", index)


def _column_key(column: str) -> bytes:
    return _PREFIX + column.encode()


def _has_manifest_key(page: bytes, number: int) -> bool:
    try:
        is_leaf, nodes = nodes_of(page, number)
    except (ValueError, struct.error):  # of a value that contains the same bytes, or damaged
        return False
    return is_leaf and any(node.key == _MANIFEST_KEY for node in nodes)


def _has_manifest_near_end(place: Place) -> bool:
    """Tell whether a leaf near the end of a file has the manifest's key."""
    with place.open() as file:
        begin = max(0, file.size - _LARGEST_END) // PAGE * PAGE
        end = file.read(begin, file.size - begin)
    leaves = (at for at in range(0, len(end), PAGE) if _MANIFEST_KEY in end[at : at + PAGE])
    return any(_has_manifest_key(end[at : at + PAGE], (begin + at) // PAGE) for at in leaves)


class LMDBWriter(Writer):
    """Writes the samples, and after them the table."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._tree = TreeWriter(path.parent)
        self._count = 0
        for part in spans(len(written)):
            for size, offset in zip(written.extent(part).tolist(), written.offset[part].tolist(), strict=True):
                if self._put(size) != offset:
                    raise not_of_journal(path)
        self._tree.open(path, cached=contents.cached)

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if max(8 * rows, names) > MOST_BYTES:
            raise DestinationError(
                f"{rows:,} samples are too many for one LMDB file, whose columns have less than 4 GiB each. Pass "
                f"{option('parts')}, or use HDF5."
            )

    def append(self, sample: Sample) -> Placed:
        parts = sample.parts
        return Placed(self._put(sum(map(len, parts)), parts))

    def flush(self) -> None:
        self._tree.flush()

    def sync(self) -> None:
        self._tree.sync()

    def commit(self, manifest: Manifest, table: Table) -> None:
        values = {_column_key(name): column for name, column in table.columns().items()}
        values[_MANIFEST_KEY] = np.frombuffer(manifest.to_json(), np.uint8)  # last: near the pages that lead to it
        parts = [(key, value.nbytes, (block.tobytes() for block in blocks(value))) for key, value in values.items()]
        self._tree.put_last(_PREFIX, parts)  # after the samples, whose keys begin with a zero byte
        self._tree.finish()

    def close(self) -> None:
        self._tree.close()

    def _put(self, size: int, parts: Iterable[Buffer] = ()) -> int:
        self._count += 1
        return self._tree.put(sample_key(self._count - 1), size, parts)


class LMDBReader(FileReader):
    """Reads the table through the B-tree and the samples through the table."""

    @classmethod
    def shows_mark(cls, place: Place) -> bool:
        """Tell whether packer wrote a file, even if the file is damaged.

        A truncated file has no tree. Therefore, if the pack cannot be opened, its end is searched for the manifest's
        key.
        """
        try:
            return super().shows_mark(place) or _has_manifest_near_end(place)
        except CorruptPackError:
            if _has_manifest_near_end(place):
                return True
            raise

    def _open(self) -> tuple[Manifest, Table]:
        if not self.place.is_a_file():
            raise NotAPackError("not an LMDB file (packs are single files, not directories)", self.path)
        self._file = self.place.open()
        self._data_size = self._file.size
        self._tree = LMDBTree(self._file)
        self._tree.require_whole()
        begin, size = self._tree.end()
        if size <= _LARGEST_END:
            self._file.ahead([(begin, size)], urgent=True)
        own = {}
        for key, offset, size in self._tree.walk(_PREFIX):
            if not key.startswith(_PREFIX):
                break
            own[key] = offset, size
        self._file.keep_together(list(own.values()))
        if _MANIFEST_KEY not in own:
            raise NotAPackError("an LMDB file that packer did not write, or did not finish", self.path)
        manifest = Manifest.from_json(self._file.read(*own[_MANIFEST_KEY]), self.path)
        ranges = {}
        for name, dtype in manifest.column_types.items():
            found = own.get(_column_key(name))
            if found is None:
                raise CorruptPackError(f"the table has no column {name!r}", self.path)
            offset, size = found
            ranges[name] = offset, size // np.dtype(dtype).itemsize, dtype
        return manifest, table_from(self._file.vectors(ranges), manifest, self.path)

    def check_structure(self) -> Iterable[str]:
        """Compare the B-tree, which other programs use, with the table, which packer uses."""
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
            yield f"the LMDB tree contains {found} samples, but the table {len(self)}"
