"""LMDB files whose values are pickles, or of ``pyarrow.serialize``: one sample each, by the keys 0, 1, 2, ...

Efficient-PyTorch and its many relatives write them (``folder2lmdb.py``): a value is ``(image, label)``, and the image
the bytes of its file. Image2LMDB has the image alone, tensorpack an array of bytes, and others have dicts.
``__keys__`` has the keys in their order, ``__len__`` how many there are. Nothing is unpickled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._containers.budget import MOST_THINGS, Budget
from packer._containers.contract import Entry, Piece
from packer._containers.imagenames import image_name, suffix_of
from packer._containers.lmdbs.arrowrecords import deserialized, is_serialized
from packer._containers.lmdbs.lmdbfiles import (
    DATA,
    First,
    LMDBContainer,
    Value,
    failing,
    shown_key,
    text_of,
)
from packer._containers.lmdbs.lmdbpages import MOST_KEY
from packer._containers.lmdbs.lmdbtree import Tree
from packer._containers.lmdbs.located import Blob
from packer._containers.lmdbs.members import Members, image_of, members_of
from packer._containers.lmdbs.opcodes import is_pickle, unpickled
from packer._containers.lmdbs.rangereader import PIECE
from packer._storage.opening import open_regular
from packer._storage.packfile import PackFile
from packer.errors import SourceError, printable

__all__ = ["PickledLMDB"]

_KEYS, _LEN = b"__keys__", b"__len__"
_MOST_KEYS = 1 << 27
_SIDECAR = "_images_idx.txt"


class PickledLMDB(LMDBContainer):
    """Samples in the order of ``__keys__``; else of the numbers that the keys are, or of the keys."""

    kind = "pickled lmdb"
    members: Members
    names: Mapping[bytes, str]

    @classmethod
    def is_of(cls, first: First) -> bool:
        values = [value for value in first.values if value.key not in (_KEYS, _LEN)]
        heads = [value.head() for value in values]
        if any(is_serialized(head) or (is_pickle(head) and head.startswith(b"\x80")) for head in heads):
            return True
        if not heads or not is_pickle(heads[0]):
            return False
        return first.tree.find(_KEYS) is not None or any(
            image_of(member) is not None for member in _members(values[0]).values()
        )

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> PickledLMDB:
        found = []
        for path in dict.fromkeys((paths[0], paths[len(paths) // 2], paths[-1])):
            with failing(path), PackFile(path) as file:
                tree = Tree(file)
                tree.require_plain()
                order = _Order(file, tree)
                for number in sorted({0, order.count // 2, max(0, order.count - 1)}):
                    found.append(_sample(order.value(0, number)))
        members = Members.of(found, keys, paths[0])
        container = cls.of_files(paths, fields=members.fields, label_type=members.label_type, notes=members.notes)
        container.members = members
        return container

    def ordered(self, path: Path, blank: Value, tree: Tree) -> Iterator[Value]:
        order = _Order(blank.file, tree)
        samples = sum(1 for key, _, _ in tree.walk() if key not in (_KEYS, _LEN))
        if order.count != samples:
            self.notes.append(f"{printable(path)}: lists {order.count} of {samples} keys; others are left out")
        self.names = _names_beside(path, order.count)
        for number in range(order.count):
            yield order.value(blank.unit, number)

    def entry(self, value: Value) -> Entry:
        members = _members(value)
        found = self.members.image_in(members)
        budget = Budget(value.size)
        budget.spend(found.size if isinstance(found, Blob) else len(found))
        image = Piece(value.unit, found.offset, found.size) if isinstance(found, Blob) else found
        suffix = suffix_of(found.head if isinstance(found, Blob) else found[:16])
        name = image_name(self.names.get(value.key) or text_of(value.key), suffix)
        label = self.members.label_in(members, value.file, budget)
        return Entry(name, image, label, self.members.values_in(members, value.unit, value.file, budget))


class _Order:
    """The samples of one file in their order.

    Attributes
    ----------
    count : int
    """

    def __init__(self, file: PackFile, tree: Tree) -> None:
        self._file, self._tree = file, tree
        held = tree.find(_KEYS)
        self._keys = None if held is None else self._listed(*held)
        meta = sum(tree.find(key) is not None for key in (_KEYS, _LEN))
        self.count = tree.entries - meta if self._keys is None else len(self._keys)
        if self.count < 1:
            raise SourceError(f"{printable(file.path)}: no samples in it")
        self._layout = b"%d"
        if self._keys is None:
            first = next(tree.walk())[0]
            self._layout = b"%%0%dd" % len(first) if len(first) > 1 else b"%d"
            if any(tree.find(self._layout % number) is None for number in (0, self.count - 1)):
                self._keys = [key for key, _, _ in tree.walk() if key not in (_KEYS, _LEN)]
                self.count = len(self._keys)

    def value(self, unit: int, number: int) -> Value:
        """Return the value of a sample."""
        key = self._layout % number if self._keys is None else self._keys[number]
        found = self._tree.find(key)
        if found is None:
            raise SourceError(f"{printable(self._file.path)}: {shown_key(key)}: is not there, as sample {number}")
        return Value(unit, self._file, key, *found)

    def _listed(self, offset: int, size: int) -> list[bytes]:
        """Return the keys that ``__keys__`` lists."""
        most = min(_MOST_KEYS, 8 * max(self._tree.entries, 1) + 1000)
        try:
            listed = _read(Value(0, self._file, _KEYS, offset, size), most)
        except ValueError as error:
            raise SourceError(f"{printable(self._file.path)}: {shown_key(_KEYS)}: {printable(error)}") from error
        listed = listed if isinstance(listed, (list, tuple)) else [None]
        keys = [found for one in listed if (found := _key(one, self._file)) and len(found) <= MOST_KEY]
        if len(keys) < len(listed) or len(set(keys)) < len(keys):
            raise SourceError(f"{printable(self._file.path)}: {shown_key(_KEYS)}: is no list of keys, each once")
        return keys


def _key(listed: Any, file: PackFile) -> bytes:
    """Return a key of a list of such; an empty one where it is none."""
    if isinstance(listed, Blob):
        return listed.data(file) if listed.size <= MOST_KEY else b""
    return listed.encode() if isinstance(listed, str) else listed if isinstance(listed, bytes) else b""


def _read(value: Value, most: int = MOST_THINGS) -> Any:
    """Return what a value holds; ValueError where it is neither a pickle nor of pyarrow."""
    head = value.head(PIECE)
    if is_serialized(head):
        return deserialized(value.file, value.offset, value.size, most)
    if is_pickle(head):
        return unpickled(value.file, value.offset, value.size, most, head)
    raise ValueError(
        "its value is neither a pickle nor of pyarrow.serialize"
        + (": msgpack, which packer does not read" if head[:1] in (b"\x92", b"\x93", b"\x82", b"\x83") else "")
    )


def _members(value: Value) -> dict[str, Any]:
    return members_of(_read(value))


def _sample(value: Value) -> dict[str, Any]:
    try:
        return _members(value)
    except ValueError as error:
        raise SourceError(f"{printable(value.file.path)}: {shown_key(value.key)}: {printable(error)}") from error


def _names_beside(path: Path, count: int) -> dict[bytes, str]:
    """Return the names of images by their keys that Image2LMDB writes beside its file, where no two are the same."""
    base = path.parent if path.name == DATA else path
    beside = base.with_name(base.stem + _SIDECAR)
    names: dict[bytes, str] = {}
    try:
        with open(open_regular(beside), encoding="utf-8", errors="surrogateescape") as lines:
            for line in itertools.islice(lines, count):
                name, _, number = line.rstrip("\n").rpartition(" ")
                names[number.encode("utf-8", "surrogateescape")] = name
    except OSError:
        return {}
    return names if len(set(names.values())) == len(names) == count else {}
