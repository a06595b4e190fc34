"""What lies beside a file of RecordIO: ``.idx`` with the keys of records, and ``.lst`` with the paths of images.

A line of an index has a key and where the record begins, with a tab between. A line of a list has a key, one or more
labels, and a path, with tabs between; im2rec makes the file of it, and numbers directories in the order of their names.
What does not fit the records is an error, lest images have names that belong to others.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from packer._storage.opening import open_regular
from packer._storage.paths import name_problem
from packer._table import Ints, Names
from packer.errors import SourceError, printable

__all__ = ["Keys", "Paths", "class_names", "numbered_classes"]

_LONGEST_LINE = 1 << 20  # bytes


class Keys:
    """The keys of an index, in the order in which the records lie."""

    def __init__(self, path: Path) -> None:
        self._path = path
        keys, offsets = array("q"), array("q")
        for number, line in _lines(path):
            try:
                key, offset = map(int, line.split(b"\t"))
                keys.append(key)
                offsets.append(offset)
            except (ValueError, OverflowError):
                raise SourceError(f"{printable(path)}: line {number} is no key and place of a record{_MOVE}") from None
        self._offsets = np.frombuffer(offsets, np.int64)
        self._order = np.argsort(self._offsets, kind="stable")
        self._keys = np.frombuffer(keys, np.int64)
        if len(np.unique(self._keys)) < len(self._keys) or min(keys, default=0) < 0:
            raise SourceError(f"{printable(path)}: two records have one key, or one has a negative key{_MOVE}")
        self._next = 0

    @classmethod
    def beside(cls, path: Path) -> Keys | None:
        """Return the keys of a file of records; None where there is no index."""
        found = path.with_suffix(".idx")
        return cls(found) if os.path.isfile(found) else None

    def next(self, offset: int) -> int:
        """Return the key of the next record, which begins at `offset`; SourceError where the index has it elsewhere."""
        if self._next >= len(self._order) or self._offsets[self._order[self._next]] != offset:
            raise SourceError(f"{printable(self._path)}: does not fit: a record is at byte {offset}{_MOVE}")
        key = int(self._keys[self._order[self._next]])
        self._next += 1
        return key

    def end(self) -> None:
        """Raise SourceError where the index has more records than there were."""
        if self._next < len(self._order):
            raise SourceError(
                f"{printable(self._path)}: does not fit: it has {len(self._order)} records, and there are {self._next}"
                f"{_MOVE}"
            )


class Paths:
    """The paths of a list, by key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        keys, labels = array("q"), array("f")

        def names() -> Iterator[str]:
            for key, label, name in _listed(path):
                keys.append(key)
                labels.append(label)
                yield name

        self._names = Names.of(names())
        found = np.frombuffer(keys, np.int64)
        self._order: Ints = np.argsort(found, kind="stable")
        self._keys = found[self._order]
        self._labels = np.frombuffer(labels, np.float32)

    @classmethod
    def beside(cls, path: Path) -> Paths | None:
        """Return the paths of the images in a file of records; None where there is no list."""
        found = path.with_suffix(".lst")
        return cls(found) if os.path.isfile(found) else None

    def of(self, key: int, label: float) -> str:
        """Return the path of an image; SourceError where the list has none of its key and label."""
        place = int(np.searchsorted(self._keys, key))
        row = int(self._order[place]) if place < len(self._keys) and self._keys[place] == key else None
        if row is None or self._labels[row] != np.float32(label):
            what = "no such line" if row is None else f"label {self._labels[row]:g}"
            raise SourceError(
                f"{printable(self._path)}: does not fit: image {key} of label {label:g} has {what} in it{_MOVE}"
            )
        return self._names[row]


def class_names(paths: Sequence[Path]) -> list[str] | None:
    """Return the names of classes by the directories of the images in the lists beside files of records.

    None where there is not a list for each, or images of one directory have several labels, or the other way round.
    """
    by_label: dict[float, str] = {}
    for path in paths:
        found = path.with_suffix(".lst")
        if not os.path.isfile(found):
            return None
        for _, label, name in _listed(found):
            directory = PurePosixPath(name).parent.as_posix()
            if by_label.setdefault(label, directory) != directory:
                return None
    directories = set(by_label.values())
    if len(directories) < len(by_label) or directories & {".", ""}:
        return None
    if sorted(by_label) != list(range(len(by_label))):
        return None
    return [by_label[label] for label in range(len(by_label))]


def numbered_classes(paths: Sequence[Path]) -> list[str] | None:
    """Return the numbers of the classes that insightface's ``property`` counts; None where it is not there."""
    path = paths[0].with_name("property")
    line = next(_lines(path), (0, b""))[1] if os.path.isfile(path) else b""
    count = re.match(rb"([0-9]{1,8}),", line)
    return list(map(str, range(int(count[1])))) if count else None


def _listed(path: Path) -> Iterator[tuple[int, float, str]]:
    """Yield key, first label and path of each line of a list."""
    for number, line in _lines(path):
        try:
            key, label, *_, name = line.decode().split("\t")
            found = int(key), float(label), name.replace("\\", "/").removeprefix("./")
            if not -(1 << 63) <= found[0] < 1 << 63:
                raise ValueError
        except ValueError:
            raise SourceError(f"{printable(path)}: line {number} is no key, label and path{_MOVE}") from None
        if problem := name_problem(found[2]):
            raise SourceError(f"{printable(path)}: line {number}: {problem}{_MOVE}")
        yield found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line that has one."""
    try:
        with open(open_regular(path), "rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if stripped := line.strip():
                    yield number, stripped
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error


_MOVE = ". Correct it, or move it away"
