"""What containers in LMDB files have in common: files and directories with ``data.mdb``, and their first entries."""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from packer._containers.contract import Container, Entry, head_of
from packer._containers.lmdbs.lmdbpages import MAGIC, VERSION
from packer._containers.lmdbs.lmdbtree import Tree
from packer._storage.packfile import PackFile
from packer.errors import CorruptPackError, PackError, SourceError, printable

__all__ = [
    "COUNTS",
    "DATA",
    "First",
    "LMDBContainer",
    "Value",
    "failing",
    "first_of",
    "is_lmdb",
    "shown_key",
    "text_of",
]

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
