"""The pages of an LMDB file: their layout, building one, taking one apart.

The names of constants are those of liblmdb's mdb.c, which defines the layout.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from packer._table import Buffer

__all__ = [
    "DB",
    "F_BIGDATA",
    "F_DUPDATA",
    "F_SUBDATA",
    "INTEGERKEY",
    "MAGIC",
    "MAX_DEPTH",
    "META",
    "META_END",
    "META_SIZE",
    "MOST_BYTES",
    "MOST_KEY",
    "NODE_HEADER",
    "NODE_MAX",
    "NO_PAGE",
    "OVERFLOW_HEADER",
    "PAGE",
    "PAGE_HEADER",
    "PAGE_SIZES",
    "P_BRANCH",
    "P_LEAF",
    "P_META",
    "P_OVERFLOW",
    "VERSION",
    "Node",
    "Page",
    "even",
    "nodes_of",
]

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
NODE_MAX = (((PAGE - PAGE_HEADER.size) // 2) & ~1) - 2  # me_nodemax: what fits at least twice in a page
PAGE_SIZES = [1 << power for power in range(9, 17)]
MOST_BYTES = 2**32 - 1  # of a value, whose size has 32 bits
MOST_KEY = 511  # MDB_MAXKEYSIZE
MAX_DEPTH = 32  # CURSOR_STACK
_PAGE_NUMBER = struct.Struct("<Q")  # what a node has in place of a value that lies on pages of its own


class Page:
    """A leaf or branch page: nodes are added in key order, their pointers from the front, the nodes from the end."""

    def __init__(self, number: int, flags: int) -> None:
        self.number = number
        self.flags = flags
        self.pointers: list[int] = []
        self.upper = PAGE
        self._bytes = bytearray(PAGE)

    def has_room_for(self, node_size: int) -> bool:
        return PAGE_HEADER.size + 2 * len(self.pointers) + 2 + even(node_size) <= self.upper

    def add(self, *parts: Buffer) -> int:
        """Add a node; return where in the page it begins."""
        at = self.upper = self.upper - even(sum(map(len, parts)))
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
        PAGE_HEADER.pack_into(self._bytes, 0, self.number, 0, self.flags, PAGE_HEADER.size + 2 * count, self.upper)
        struct.pack_into(f"<{count}H", self._bytes, PAGE_HEADER.size, *self.pointers)
        return bytes(self._bytes)


class Node(NamedTuple):
    """A node of a page: in a leaf a key with its value, in a branch the first key of the page below.

    Attributes
    ----------
    key : bytes
    page : int
        The number of the page below; in a leaf that of the first page which the value has of its own, and `NO_PAGE` of
        a value that follows its key.
    size : int
        The bytes of the value; 0 in a branch.
    flags : int
        What a value is: bytes, or something of `F_SUBDATA` and `F_DUPDATA`.
    end : int
        Where in the file the key ends.
    """

    key: bytes
    page: int
    size: int
    flags: int
    end: int


def nodes_of(page: bytes, number: int) -> tuple[bool, list[Node]]:
    """Return the nodes of page `number`, and whether it is a leaf; ValueError where it is damaged."""
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
                raise ValueError("a key beyond the page")
            size = low | high << 16
            if not is_leaf:
                below, size, node_flags, held = size | node_flags << 32, 0, 0, 0
            elif node_flags & F_BIGDATA:
                below, held = _PAGE_NUMBER.unpack_from(page, end)[0], _PAGE_NUMBER.size
            else:
                below, held = NO_PAGE, size
            room -= even(NODE_HEADER.size + key_size + held)
            if key_size > MOST_KEY or room < 0:  # else nodes overlap, and a page could hold any number of long keys
                raise ValueError("more than a page holds")
            nodes.append(Node(page[key_at:end], below, size, node_flags, start + end))
    except struct.error as error:
        raise ValueError("a node beyond the page") from error
    return is_leaf, nodes


def even(size: int) -> int:
    """Return `size`, or one more where it is odd: nodes begin at even places."""
    return size + (size & 1)
