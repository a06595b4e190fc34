"""Reads and builds the pages of an LMDB file's B-tree, and finds the offset of each key's value, without liblmdb.

liblmdb maps a file and trusts it: a page number beyond the file crashes the process. liblmdb also returns only values,
whereas an index needs their offsets in the file. So this module parses the tree page by page, and trusts nothing in it.
liblmdb's mdb.c defines the pages; the constants have the same names as in that file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from packer._storage.packfile import PackFile
from packer._table import Buffer
from packer.errors import CorruptPackError, NotAPackError

PAGE = 4096
PAGE_HEADER = struct.Struct("<QHHHH")  # pgno, pad, flags, lower, upper; lower and upper are one u32 on overflow pages
OVERFLOW_HEADER = struct.Struct("<QHHI")  # pgno, pad, flags, pages
NODE_HEADER = struct.Struct("<HHHH")  # lo, hi, flags, ksize
META = struct.Struct("<IIQQ")  # magic, version, address, mapsize; two MDB_db and two u64 follow
DB = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch, leaf and overflow pages, entries, root
META_END = struct.Struct("<QQ")  # last_pg, txnid
META_SIZE = META.size + 2 * DB.size + META_END.size

MAGIC, VERSION = 0xBEEFC0DE, 1
P_BRANCH, P_LEAF, P_OVERFLOW, P_META = 0x01, 0x02, 0x04, 0x08
F_BIGDATA, F_SUBDATA, F_DUPDATA = 0x01, 0x02, 0x04
INTEGERKEY = 0x08
NO_PAGE = 2**64 - 1
NODE_MAX = (((PAGE - PAGE_HEADER.size) // 2) & ~1) - 2  # me_nodemax: fits at least twice in a page
PAGE_SIZES = [1 << power for power in range(9, 17)]
MOST_BYTES = 2**32 - 1  # of a value, whose size has 32 bits
MOST_KEY = 511  # MDB_MAXKEYSIZE
MAX_DEPTH = 32  # CURSOR_STACK
_PAGE_NUMBER = struct.Struct("<Q")  # size of a node's reference to a value on overflow pages


class Page:
    """A leaf or branch page, to which nodes are added in key order.

    The nodes fill the page from its end backwards, and the pointers to them from its beginning.
    """

    def __init__(self, number: int, flags: int) -> None:
        self.number = number
        self.flags = flags
        self.pointers: list[int] = []
        self.upper = PAGE
        self._bytes = bytearray(PAGE)

    def has_room_for(self, node_size: int) -> bool:
        return PAGE_HEADER.size + 2 * len(self.pointers) + 2 + even(node_size) <= self.upper

    def add(self, *parts: Buffer) -> int:
        """Add a node; return its offset in the page."""
        at = self.upper = self.upper - even(sum(map(len, parts)))
        self.pointers.append(at)
        for part in parts:
            self._bytes[at : at + len(part)] = part
            at += len(part)
        return self.upper

    def restore(self, page: bytes) -> None:
        """Restore the nodes from an earlier copy of this page."""
        self._bytes[self.upper :] = page[self.upper :]

    def to_bytes(self) -> bytes:
        count = len(self.pointers)
        PAGE_HEADER.pack_into(self._bytes, 0, self.number, 0, self.flags, PAGE_HEADER.size + 2 * count, self.upper)
        struct.pack_into(f"<{count}H", self._bytes, PAGE_HEADER.size, *self.pointers)
        return bytes(self._bytes)


class Node(NamedTuple):
    """A node of a page. In a leaf, it is a key with its value; in a branch, it is the first key of a page below.

    Attributes
    ----------
    key : bytes
    page : int
        In a branch, the number of the page below. In a leaf, the number of the value's first overflow page, or
        `NO_PAGE` if the value follows its key.
    size : int
        The size of the value in bytes; 0 in a branch.
    flags : int
        The kind of the value: bytes, or the flags `F_SUBDATA` and `F_DUPDATA`.
    end : int
        The offset in the file at which the key ends.
    """

    key: bytes
    page: int
    size: int
    flags: int
    end: int


def nodes_of(page: bytes, number: int) -> tuple[bool, list[Node]]:
    """Return whether the page with this number is a leaf, and its nodes; ValueError if the page is damaged."""
    own_number, _, flags, lower, _ = PAGE_HEADER.unpack_from(page)
    count, is_leaf = (lower - PAGE_HEADER.size) // 2, flags == P_LEAF
    if own_number != number or flags not in (P_BRANCH, P_LEAF) or not 0 < count <= len(page) // 4:
        raise ValueError(f"not a page of {count} nodes")
    nodes, room, start = [], len(page) - lower, number * len(page)
    try:
        for pointer in struct.unpack_from(f"<{count}H", page, PAGE_HEADER.size):
            low, high, node_flags, key_size = NODE_HEADER.unpack_from(page, pointer)
            key_at = pointer + NODE_HEADER.size
            end = key_at + key_size
            if end > len(page):
                raise ValueError("a key ends outside the page")
            size = low | high << 16
            if not is_leaf:
                below, size, node_flags, held = size | node_flags << 32, 0, 0, 0
            elif node_flags & F_BIGDATA:
                below, held = _PAGE_NUMBER.unpack_from(page, end)[0], _PAGE_NUMBER.size
            else:
                below, held = NO_PAGE, size
            room -= even(NODE_HEADER.size + key_size + held)
            if key_size > MOST_KEY or room < 0:  # otherwise nodes could overlap, and a page have any number of keys
                raise ValueError("the nodes are larger than a page")
            nodes.append(Node(page[key_at:end], below, size, node_flags, start + end))
    except struct.error as error:
        raise ValueError("a node begins outside the page") from error
    return is_leaf, nodes


def even(size: int) -> int:
    """Return `size`, plus one if it is odd, because nodes begin at even offsets."""
    return size + (size & 1)


_REVERSED, _SORTED_VALUES, _INTEGERS = 0x02, 0x04, 0x08  # MDB_REVERSEKEY, MDB_DUPSORT, MDB_INTEGERKEY
_PAGES_HELD = 512
_BESIDE = 1 << 17  # bytes before the branches: leaves and a manifest


class _Meta(NamedTuple):
    """The values of a meta page that describe the main database."""

    transaction: int
    page_size: int
    flags: int
    root: int
    entries: int
    branches: int
    last_page: int


class LMDBTree:
    """The main database of an LMDB file, according to the newer of its two meta pages.

    Parameters
    ----------
    file : PackFile

    Attributes
    ----------
    entries : int
        Number of keys, according to the file.

    Raises
    ------
    NotAPackError
        If the file is not an LMDB file of data version 1, or is empty.
    CorruptPackError
        If the meta page is damaged.
    """

    def __init__(self, file: PackFile) -> None:
        self._file = file
        if file.size < PAGE_HEADER.size + META_SIZE:
            raise NotAPackError(f"not an LMDB file ({file.size} bytes)", file.path)
        meta = max(self._meta_pages(), key=lambda meta: meta.transaction, default=None)
        if meta is None:
            raise NotAPackError("not an LMDB file", file.path)
        self._meta, self._page_size, self.root, self.entries = meta, meta.page_size, meta.root, meta.entries
        if self._page_size not in PAGE_SIZES:
            raise CorruptPackError(f"invalid page size of {self._page_size} bytes", file.path)
        if self.root == NO_PAGE:
            raise NotAPackError("an empty LMDB file", file.path)
        self._held: dict[int, tuple[bool, list[Node], list[bytes]]] = {}

    def _meta_pages(self) -> Iterator[_Meta]:
        """Yield the meta pages that the file has; NotAPackError if one is of another data version."""
        for start in (0, self._first_page_size()):
            if start + PAGE_HEADER.size + META_SIZE > self._file.size:
                continue
            meta = self._file.read(start + PAGE_HEADER.size, META_SIZE)
            magic, version, _, _ = META.unpack_from(meta, 0)
            page_size = DB.unpack_from(meta, META.size)[0]
            _, flags, _, branches, _, _, entries, root = DB.unpack_from(meta, META.size + DB.size)
            last_page, transaction = META_END.unpack_from(meta, META_SIZE - META_END.size)
            if magic == MAGIC and version != VERSION:
                raise NotAPackError(
                    f"LMDB data version {version}, but packer reads only version {VERSION}", self._file.path
                )
            if magic == MAGIC:
                yield _Meta(transaction, page_size, flags, root, entries, branches, last_page)

    def require_whole(self) -> None:
        """Raise CorruptPackError if the file does not have all pages that the meta page counts."""
        whole = (self._meta.last_page + 1) * self._page_size
        if whole > self._file.size:
            raise CorruptPackError(
                f"the file has only {self._file.size} of {whole} bytes: it was truncated", self._file.path
            )

    def end(self) -> tuple[int, int]:
        """Return offset and size of the last part of the file, which in a pack has the branches and the last leaves."""
        branches = min(self._meta.branches, self._meta.last_page) + 1
        size = min(branches * self._page_size + _BESIDE, self._file.size)
        return self._file.size - size, size

    def require_plain(self) -> None:
        """Raise CorruptPackError if the keys are in a custom order, or if a key may have several values."""
        if self._meta.flags & (_REVERSED | _SORTED_VALUES | _INTEGERS):
            raise CorruptPackError(
                "its keys are integers, or have several values, which packer does not read", self._file.path
            )

    def walk(self, first: bytes = b"") -> Iterator[tuple[bytes, int, int]]:
        """Yield key, offset and size of each value, in key order, beginning at the key `first`.

        A malicious tree may contain cycles, but the walk ends: a path from the root has at most `MAX_DEPTH` pages. The
        keys of each leaf must be larger than those of earlier leaves, so a page that is reached twice raises an error.

        Raises
        ------
        CorruptPackError
            If the tree is damaged, or a value does not lie in the file.
        """
        pending, before, begun = [(self.root, 1)], b"", False
        while pending:
            number, depth = pending.pop()
            is_leaf, nodes = self.nodes(number)
            if not is_leaf:
                self._require_shallow(depth)
                ends = [*(node.key for node in nodes[1:]), None]  # upper bound of the keys of each child
                below = [node for node, end in zip(nodes, ends, strict=True) if end is None or end > first]
                pending += [(node.page, depth + 1) for node in reversed(below)]
                continue
            rest = nodes if begun else [node for node in nodes if node.key >= first]
            begun = True
            for node in rest:
                key = node.key
                if key <= before or key < first:
                    raise CorruptPackError(f"the keys of page {number} are not in ascending order", self._file.path)
                before = key
                yield key, *self._value(node)

    def find(self, key: bytes) -> tuple[int, int] | None:
        """Return offset and size of a key's value; None if the key does not exist. Raises the same errors as `walk`."""
        number = self.root
        for depth in range(1, MAX_DEPTH + 1):
            is_leaf, nodes, keys = self._held_page(number)
            if is_leaf:
                at = bisect_left(keys, key)
                return self._value(nodes[at]) if at < len(keys) and keys[at] == key else None
            self._require_shallow(depth)
            number = nodes[max(0, bisect_right(keys, key, 1) - 1)].page
        raise AssertionError("the depth was compared")

    def nodes(self, number: int) -> tuple[bool, list[Node]]:
        """Return whether a page is a leaf, and its nodes; CorruptPackError if the page is damaged."""
        try:
            return nodes_of(self._file.read(number * self._page_size, self._page_size), number)
        except ValueError as error:
            raise CorruptPackError(f"page {number} is damaged", self._file.path) from error

    def _held_page(self, number: int) -> tuple[bool, list[Node], list[bytes]]:
        """Return the result of `nodes`, and the nodes' keys; both are cached, because searches reread pages."""
        page = self._held.get(number)
        if page is None:
            is_leaf, nodes = self.nodes(number)
            if len(self._held) >= _PAGES_HELD:
                self._held = {}
            page = self._held[number] = is_leaf, nodes, [node.key for node in nodes]
        return page

    def _require_shallow(self, depth: int) -> None:
        if depth == MAX_DEPTH:
            raise CorruptPackError("the tree is too deep", self._file.path)

    def _value(self, node: Node) -> tuple[int, int]:
        """Return where the value of a leaf's node begins in the file, and the value's size."""
        if node.flags & (F_SUBDATA | F_DUPDATA):
            raise CorruptPackError(f"the key {node.key!r} has a nested database or several values", self._file.path)
        own_page = node.page != NO_PAGE
        offset = node.page * self._page_size + OVERFLOW_HEADER.size if own_page else node.end
        if offset + node.size > self._file.size:
            raise CorruptPackError(
                f"the value of the key {node.key!r} is outside the file: the file was truncated or damaged",
                self._file.path,
            )
        return offset, node.size

    def _first_page_size(self) -> int:
        page_size = int(DB.unpack_from(self._file.read(PAGE_HEADER.size + META.size, DB.size))[0])
        return page_size if page_size in PAGE_SIZES else PAGE
