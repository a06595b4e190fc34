"""The tree of an LMDB file: where the value of each key lies, found without liblmdb.

liblmdb maps a file and trusts it: a page that leads out of the file ends the process. And it hands out values, but not
where in the file they lie, which is what an index needs. So the tree is read here, page by page, with nothing believed.

The pages of an LMDB file: their layout, building one, taking one apart.

The names of constants are those of liblmdb's mdb.c, which defines the layout.

What containers in LMDB files have in common: files and directories with ``data.mdb``, and their first entries.

An LMDB file whose values are images, each as a file has it, by any keys.

BasicSR has such files (keys are names without suffix), StyleGAN's tool takes any, and LSUN is made of them.

LSUN (https://github.com/fyu/lsun): a directory ``CLASS_SPLIT_lmdb`` with ``data.mdb`` for each class.

The values are images, WebP in the files that are given away, and keys are hashes of them. As torchvision has it, the
classes are sorted by their names; ``test_lmdb`` has no class.

LMDB files of text recognition: images of words, and the text in each.

The key ``num-samples`` has a number as text, N; ``image-000000001`` to N are images, and ``label-000000001`` to N their
texts, in UTF-8. https://github.com/clovaai/deep-text-recognition-benchmark, create_lmdb_dataset.py, writes them, and
most tools of the field read them.

LMDB files with values that no other container knows: they are named as what they are, and refused.

Height and width of a JPEG or a PNG, from as few bytes as it takes: fractions of an image become pixels by them.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from packer._containers.contract import Container, Entry, Piece, head_of, image_name, natural, no_keys, suffix_of
from packer._containers.roles import add_candidates
from packer._containers.safe_pickle import RangeReader
from packer._fields import Field
from packer._storage.packfile import PackFile
from packer._table import Buffer
from packer.errors import CorruptPackError, NotAPackError, PackError, SourceError, printable

__all__ = [
    "COUNTS",
    "DATA",
    "DB",
    "F_BIGDATA",
    "F_DUPDATA",
    "F_SUBDATA",
    "INTEGERKEY",
    "LSUN",
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
    "First",
    "ImageLMDB",
    "LMDBContainer",
    "Node",
    "Page",
    "TextRecognition",
    "Tree",
    "UnreadLMDB",
    "Value",
    "data_version",
    "even",
    "failing",
    "first_of",
    "is_lmdb",
    "nodes_of",
    "shown_key",
    "size_of",
    "text_of",
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


_REVERSED, _SORTED_VALUES, _INTEGERS = 0x02, 0x04, 0x08  # MDB_REVERSEKEY, MDB_DUPSORT, MDB_INTEGERKEY
_PAGES_HELD = 512
_BESIDE = 1 << 17  # bytes before the branches: leaves and a manifest


def data_version(head: bytes) -> int | None:
    """Return the version of a file's layout, by its first bytes; None where it is no LMDB file."""
    if len(head) < PAGE_HEADER.size + META.size:
        return None
    magic, version, _, _ = META.unpack_from(head, PAGE_HEADER.size)
    return int(version) if magic == MAGIC else None


class Tree:
    """The main database of an LMDB file, as the newer of its two meta pages says.

    Parameters
    ----------
    file : PackFile

    Attributes
    ----------
    entries : int
        How many keys there are, as the file says.

    Raises
    ------
    NotAPackError
        If the file is no LMDB file of data version 1, or an empty one.
    CorruptPackError
        If the meta page is damaged.
    """

    def __init__(self, file: PackFile) -> None:
        self._file = file
        if file.size < PAGE_HEADER.size + META_SIZE:
            raise NotAPackError(f"not an LMDB file ({file.size} bytes)", file.path)
        best = None
        for start in (0, self._meta_page_size(0)):
            if start + PAGE_HEADER.size + META_SIZE > file.size:
                continue
            meta = file.read(start + PAGE_HEADER.size, META_SIZE)
            magic, version, _, _ = META.unpack_from(meta, 0)
            page_size = DB.unpack_from(meta, META.size)[0]
            _, flags, _, branches, _, _, entries, root = DB.unpack_from(meta, META.size + DB.size)
            last_page, transaction = META_END.unpack_from(meta, META_SIZE - META_END.size)
            if magic == MAGIC and version != VERSION:
                raise NotAPackError(f"LMDB data version {version}, and packer reads {VERSION}", file.path)
            if magic == MAGIC and (best is None or transaction > best[0]):
                best = (transaction, page_size, root, last_page, entries, flags, branches)
        if best is None:
            raise NotAPackError("not an LMDB file", file.path)
        _, self._page_size, self.root, self._last_page, self.entries, self._flags, self._branches = best
        if self._page_size not in PAGE_SIZES:
            raise CorruptPackError(f"pages of {self._page_size} bytes", file.path)
        if self.root == NO_PAGE:
            raise NotAPackError("an empty LMDB file", file.path)
        self._held: dict[int, tuple[bool, list[Node], list[bytes]]] = {}

    def require_whole(self) -> None:
        """Raise CorruptPackError where the file does not have all pages that the meta page counts."""
        whole = (self._last_page + 1) * self._page_size
        if whole > self._file.size:
            raise CorruptPackError(
                f"the file has {self._file.size} bytes of {whole}: it was cut short", self._file.path
            )

    def end(self) -> tuple[int, int]:
        """Return offset and size of the file's end, with the branches that packer writes, and some more."""
        size = min((min(self._branches, self._last_page) + 1) * self._page_size + _BESIDE, self._file.size)
        return self._file.size - size, size

    def require_plain(self) -> None:
        """Raise CorruptPackError where keys are in an order of their own, or have several values each."""
        if self._flags & (_REVERSED | _SORTED_VALUES | _INTEGERS):
            raise CorruptPackError("its keys are no texts with a value each, but numbers or sets", self._file.path)

    def walk(self, first: bytes = b"") -> Iterator[tuple[bytes, int, int]]:
        """Yield key, offset and size of every value whose key is `first` or comes after it, in the order of the keys.

        A tree of a stranger may lead in a circle. Each way down ends after `MAX_DEPTH` pages at a leaf, and each leaf
        has keys that are larger than those before: so the tree ends where it leads to a page again.

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
                ends = [*(node.key for node in nodes[1:]), None]  # before which the keys of each child are
                below = [node for node, end in zip(nodes, ends, strict=True) if end is None or end > first]
                pending += [(node.page, depth + 1) for node in reversed(below)]
                continue
            wanted = nodes if begun else [node for node in nodes if node.key >= first]
            begun = True
            for node in wanted:
                key = node.key
                if key <= before or key < first:
                    raise CorruptPackError(f"the keys of page {number} do not ascend", self._file.path)
                before = key
                yield key, *self._value(node)

    def find(self, key: bytes) -> tuple[int, int] | None:
        """Return offset and size of the value of a key; None where there is none. Errors as `walk`."""
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
        """Return the nodes of a page, and whether it is a leaf; CorruptPackError where it is damaged."""
        try:
            return nodes_of(self._file.read(number * self._page_size, self._page_size), number)
        except ValueError as error:
            raise CorruptPackError(f"page {number} is damaged", self._file.path) from error

    def _held_page(self, number: int) -> tuple[bool, list[Node], list[bytes]]:
        """Return what `nodes` returns, and the keys; pages are held, as those of one level are asked for again."""
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
        """Return where the value of a leaf's node begins in the file, and its size."""
        if node.flags & (F_SUBDATA | F_DUPDATA):
            raise CorruptPackError(
                f"the key {node.key!r} has a database of its own, or several values", self._file.path
            )
        own_page = node.page != NO_PAGE
        offset = node.page * self._page_size + OVERFLOW_HEADER.size if own_page else node.end
        if offset + node.size > self._file.size:
            raise CorruptPackError(
                f"the value of the key {node.key!r} does not lie in the file: it was cut short or damaged",
                self._file.path,
            )
        return offset, node.size

    def _meta_page_size(self, start: int) -> int:
        page_size = int(DB.unpack_from(self._file.read(start + PAGE_HEADER.size + META.size, DB.size))[0])
        return page_size if page_size in PAGE_SIZES else PAGE


COUNTS = frozenset({b"__keys__", b"__len__", b"num-samples", b"length", b"__meta__"})
"""Keys whose values say which samples there are, and how many."""

DATA = "data.mdb"
"""The file of an LMDB that is a directory."""

_OWN = b"packer/"  # with which the keys begin that only packer's own packs have
_FEW = 8
_HEAD = 64
_MAGIC = MAGIC.to_bytes(4, "little")


class Value(NamedTuple):
    """A value of an LMDB file.

    Attributes
    ----------
    unit : int
        The number of the file in its container.
    file : PackFile
    key : bytes
    offset, size : int
        Where in the file the value lies.
    """

    unit: int
    file: PackFile
    key: bytes
    offset: int
    size: int

    def head(self, size: int = _HEAD) -> bytes:
        """Return the first bytes."""
        return self.file.read(self.offset, min(size, self.size))


class First(NamedTuple):
    """What a file is recognised by.

    Attributes
    ----------
    path : Path
    tree : Tree
    values : list of Value
        The first ones, in the order of their keys.
    """

    path: Path
    tree: Tree
    values: list[Value]


class LMDBContainer(Container):
    """Samples of which each is one value of an LMDB file, or one file of such values a class."""

    @classmethod
    @abc.abstractmethod
    def is_of(cls, first: First) -> bool:
        """Tell whether a file is of this container; ValueError says as well that it is not."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if not is_lmdb(path, head):
            return False
        try:
            with first_of(path) as first:
                return not _is_own(first.tree) and bool(first.values) and cls.is_of(first)
        except (ValueError, PackError):  # damaged: whoever opens it as a pack says so
            return False

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        data = path / DATA
        return [data] if DATA in names and cls.recognise_file(data, head_of(data)) else None

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file, failing(file.path):
            tree = Tree(file)
            tree.require_plain()
            for value in self.ordered(Path(file.path), Value(unit, file, b"", 0, 0), tree):
                try:
                    entry = self.entry(value)
                except ValueError as error:
                    entry = Entry(text_of(value.key), b"", problem=printable(error))
                if entry is not None:
                    yield entry

    def ordered(self, path: Path, blank: Value, tree: Tree) -> Iterator[Value]:
        """Yield the values of the samples of one file in their order: by default all, in the order of the keys."""
        unit, file = blank.unit, blank.file
        for key, offset, size in tree.walk():
            yield Value(unit, file, key, offset, size)

    @abc.abstractmethod
    def entry(self, value: Value) -> Entry | None:
        """Return the sample that a value is; None where it is left out; ValueError where it is none."""


def is_lmdb(path: Path, head: bytes) -> bool:
    """Tell whether a file is an LMDB file, by its first bytes.

    Raises
    ------
    SourceError
        If it is one of another version, of another byte order, or of a machine with 32 bits.
    """
    if head[16:20] == _MAGIC:
        version, of = int.from_bytes(head[20:24], "little"), ""
    elif head[24:28] == _MAGIC:  # whose pages begin with 24 bytes
        version, of = int.from_bytes(head[28:32], "little"), " of LMDB 1.0"
    elif head[16:20] == _MAGIC[::-1] or head[12:16] in (_MAGIC, _MAGIC[::-1]):
        version, of = 0, " of a machine with another byte order or with 32 bits"
    else:
        return False
    if version != VERSION:
        data = f"data version {version}{of}" if version else f"the layout{of}"
        raise SourceError(
            f"{printable(path)}: an LMDB file with {data}, which packer does not read. "
            "Copy it: mdb_dump with the LMDB that wrote it, and mdb_load with LMDB 0.9 on this machine"
        )
    return True


def _is_own(tree: Tree) -> bool:
    """Tell whether a tree has keys as packs of packer's own have them."""
    return any(key.startswith(_OWN) for key, _, _ in itertools.islice(tree.walk(_OWN), 1))


@contextlib.contextmanager
def first_of(path: Path) -> Iterator[First]:
    """Open a file and find its first values.

    Raises
    ------
    PackError
        If it is damaged.
    """
    with PackFile(path) as file:
        tree = Tree(file)
        tree.require_plain()
        found = itertools.islice(tree.walk(), _FEW)
        yield First(path, tree, [Value(0, file, key, offset, size) for key, offset, size in found])


@contextlib.contextmanager
def failing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Make errors of reading a file SourceErrors that name the file."""
    try:
        yield
    except CorruptPackError as error:
        raise SourceError(f"{printable(path)}: {error.reason}") from error
    except PackError as error:
        raise SourceError(str(error)) from error


def shown_key(key: bytes) -> str:
    """Return a key as a message has it."""
    return f"key {printable(key.decode('utf-8', 'surrogateescape'))[:200]!r}"


def text_of(key: bytes) -> str:
    """Return a key as text: in hex where it is none."""
    text = key.decode("utf-8", "surrogateescape")
    return text if text.isprintable() else key.hex()


_IMAGE_HEAD = 16
_LOOKED_AT = 3  # values
_LONGEST = 64  # bytes of a text or a number beside images


class ImageLMDB(LMDBContainer):
    """Samples in the order of their keys, which are their names; there are no labels."""

    kind = "lmdb of images"

    @classmethod
    def is_of(cls, first: First) -> bool:
        values = [value for value in first.values if value.key not in COUNTS]
        return bool(values) and all(suffix_of(value.head(_IMAGE_HEAD)) for value in values[:_LOOKED_AT])

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> ImageLMDB:
        no_keys(cls.kind, keys)
        return cls.of_files(paths)

    def entry(self, value: Value) -> Entry | None:
        suffix = suffix_of(value.head(_IMAGE_HEAD))
        if not suffix:
            self._leave_out(value)
            return None
        return Entry(image_name(text_of(value.key), suffix), Piece(value.unit, value.offset, value.size))

    def _leave_out(self, value: Value) -> None:
        """Say of a key that its value is a text or a number beside the images; ValueError where it may be an image."""
        key, data = text_of(value.key), value.head()
        if value.key in COUNTS:
            self.account.not_looked_at("key", "it counts the samples", [key])
            return
        if value.size > _LONGEST or not (data.isascii() or data.startswith(b"\x80")):  # a pickle of a number
            raise ValueError("its value is no image, as those of the first keys are")
        if not self.account.candidates:
            add_candidates(self.account, "key", {key: [0]}, "")
        self.account.left_out("key", "their values are texts or numbers, and no images", [key])


_DIRECTORY = re.compile(r"(?:(?P<name>.+?)_)??(?:(?P<split>train|val|test)_)?lmdb")


class LSUN(ImageLMDB):
    """Directories of classes: several of one split, or the directory that they lie in, or one alone."""

    kind = "lsun"

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return path.name == DATA and bool(_DIRECTORY.fullmatch(path.parent.name)) and super().recognise_file(path, head)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        if DATA in names:
            return super().recognise_directory(path, names)
        inner = [path / name / DATA for name in names if _DIRECTORY.fullmatch(name)]
        inner = sorted(filter(os.path.isfile, inner), key=natural)
        return inner if inner and cls.recognise_file(inner[0], head_of(inner[0])) else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> LSUN:
        no_keys(cls.kind, keys)
        found = [(_DIRECTORY.fullmatch(path.parent.name), path) for path in paths]
        splits = {match["split"] or "" for match, _ in found if match}
        if len(splits) > 1 or not all(match for match, _ in found):
            raise SourceError(
                f"{printable(paths[0].parent.parent)}: has the splits {', '.join(sorted(splits))}. Say which: "
                f"{printable(paths[0].parent.parent / '*_train_lmdb')}"
            )
        for path in paths:
            if not cls.recognise_file(path, head_of(path)):
                raise SourceError(f"{printable(path)}: is no LMDB file of images, as {printable(paths[0])} is")
        classes = sorted({match["name"] for match, _ in found if match and match["name"]})
        if len(paths) == 1 and not splits - {""}:
            classes = []  # one directory of images, which need not be a class
        if classes and len(classes) != len(paths):
            raise SourceError(f"{printable(paths[0].parent.parent)}: a class has several directories, or one has none")
        return cls.of_files(paths, classes=classes or None)

    def entry(self, value: Value) -> Entry | None:
        entry = super().entry(value)
        match = _DIRECTORY.fullmatch(Path(value.file.path).parent.name)
        if entry is None or self.classes is None or match is None:
            return entry
        return entry._replace(name=f"{match['name']}/{entry.name}", label=match["name"])


_COUNT = b"num-samples"
_IMAGE = re.compile(rb"image-([0-9]{9})")
_OF_A_SAMPLE = re.compile(rb"(?:image|label)-([0-9]{9})")
_TEXT = Field("text", "text")
_TEXT_HEAD = 16
_DIGITS = 9


class TextRecognition(LMDBContainer):
    """Samples in the order of their numbers, whose texts are a field; there are no classes."""

    kind = "lmdb of text recognition"
    tree: Tree

    @classmethod
    def is_of(cls, first: First) -> bool:
        return first.tree.find(_COUNT) is not None and any(_IMAGE.fullmatch(value.key) for value in first.values)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> TextRecognition:
        no_keys(cls.kind, keys)
        return cls.of_files(paths, fields=(_TEXT,), why_unlabeled="their labels are texts: the field text")

    def ordered(self, path: Path, blank: Value, tree: Tree) -> Iterator[Value]:
        self.tree, file = tree, blank.file
        place = tree.find(_COUNT)
        said = file.read(place[0], min(place[1], _DIGITS + 1)).strip() if place is not None else b""
        if not said.isdigit() or len(said) > _DIGITS or int(said) > tree.entries:
            raise SourceError(
                f"{printable(path)}: {text_of(_COUNT)} is {printable(text_of(said))}, and no count of samples"
            )
        count, beyond = int(said), list[str]()
        for key, _, _ in tree.walk():
            match = _OF_A_SAMPLE.fullmatch(key)
            if key != _COUNT and not (match and 1 <= int(match[1]) <= count):
                beyond.append(text_of(key))
        self.account.left_out("key", f"they are none of the {count:,} samples that {text_of(_COUNT)} counts", beyond)
        for number in range(1, count + 1):
            key = b"image-%09d" % number
            offset, size = tree.find(key) or (0, 0)  # where it is missing, it has no image
            yield Value(blank.unit, file, key, offset, size)

    def entry(self, value: Value) -> Entry:
        suffix = suffix_of(value.head(_TEXT_HEAD))
        if not suffix:
            raise ValueError("it has no image")
        name = image_name(text_of(value.key), suffix)
        text = self.tree.find(b"label-" + value.key.partition(b"-")[2])
        values = {} if text is None else {_TEXT.name: Piece(value.unit, *text)}
        return Entry(name, Piece(value.unit, value.offset, value.size), None, values)


_READ = "images, pickles, values of pyarrow.serialize, and Caffe's Datum"


class UnreadLMDB(LMDBContainer):
    """Any LMDB file that is no pack of packer's; the last container that is asked."""

    kind = "lmdb"

    @classmethod
    def is_of(cls, first: First) -> bool:
        return True

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> NoReturn:
        with failing(paths[0]), first_of(paths[0]) as first:
            value = first.values[0]
            raise SourceError(
                f"{printable(paths[0])}: is an LMDB file, and the value of its {shown_key(value.key)} is "
                f"{_guess(value.head())}. Of LMDB files packer reads those of {_READ}. Write the images to files, or "
                "to such an LMDB, with the tool that made it"
            )

    def entry(self, value: Value) -> Entry:
        raise AssertionError("an LMDB file that nobody reads is not opened")


def _guess(head: bytes) -> str:
    """Return what a value may be, by its first bytes."""
    if not head:
        return "empty"
    if head[:1] in (b"{", b"["):
        return "text, perhaps JSON"
    if head[:1] in (b"(", b"]", b"}", b"c") and b"\n" in head:
        return "perhaps a pickle of protocol 0, with Python objects that packer never makes"
    if 0x80 <= head[0] < 0xA0 or 0xDC <= head[0] < 0xE0:
        return "perhaps MessagePack"
    if head.isascii() and head.decode().isprintable():
        return f"the text {printable(head[:20].decode())!r}"
    return f"unknown: it begins with the bytes {head[:8].hex(' ')}"


_PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of frames, which have the size
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers that no length comes after


def size_of(window: RangeReader) -> tuple[int, int]:
    """Return height and width of an image, as it is stored; ValueError where it is no JPEG and no PNG, or cut off."""
    head = window.take(2)
    if head == _PNG[:2]:
        rest = window.take(22)
        if (head + rest).startswith(_PNG):
            return int.from_bytes(rest[18:22], "big"), int.from_bytes(rest[14:18], "big")
    elif head == b"\xff\xd8":
        while True:
            marker = window.byte()
            if marker != 0xFF:
                raise ValueError("its JPEG is damaged")
            while marker == 0xFF:
                marker = window.byte()
            if marker in _ALONE:
                continue
            size = int.from_bytes(window.take(2), "big")
            if marker in _FRAMES:
                frame = window.take(5)
                return int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
            window.skip(size - 2)
    raise ValueError("it is no JPEG and no PNG, and the size of others is not known")
