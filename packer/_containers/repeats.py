"""What occurs again: containers may have two samples of one name, which a pack has not, and list a file once."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from packer._table import Ints, Names
from packer.errors import SourceError, printable

__all__ = ["numbered", "repeat", "require_distinct_files"]


def require_distinct_files(root: Path, files: Sequence[str]) -> None:
    """Refuse a file that a container lists twice: a short list of one shard could make a full disk of it."""
    if len(set(files)) < len(files):
        ((twice, _),) = Counter(files).most_common(1)
        raise SourceError(f"{printable(root / twice)}: is listed twice. Name each file once")


def repeat(names: Names) -> bool:
    """Tell whether two names may be equal: two of their hashes are."""
    hashes = np.fromiter(map(hash, names), np.int64, len(names))
    hashes.sort()
    return bool((hashes[1:] == hashes[:-1]).any())


def numbered(names: Names, notes: list[str]) -> Names:
    """Return names of which no two are equal: one that occurred before has a number behind its stem, ``a~2.jpg``.

    What is said about that is added to `notes`.
    """
    hashes = np.fromiter(map(hash, names), np.int64, len(names))
    ordered = np.sort(hashes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return names
    suspect = np.isin(hashes, again)
    notes.append(f"names occur again, such as {printable(names[int(suspect.argmax())])}: later ones end in ~2, ~3, ...")
    return Names.of(_with_numbers(names, suspect.tolist(), ordered))


def _with_numbers(names: Names, suspect: Sequence[bool], ordered: Ints) -> Iterator[str]:
    """Yield names; `suspect` tells which ones may be equal to others, and `ordered` are the hashes of all."""
    counts: dict[str, int] = {}
    for name, is_suspect in zip(names, suspect, strict=True):
        number = counts.get(name, 0) + 1 if is_suspect else 1
        unique, (stem, suffix) = name, posixpath.splitext(name)
        while number > 1 and _is_there(unique := f"{stem}~{number}{suffix}", ordered):
            number += 1
        if is_suspect:
            counts[name] = number
        yield unique


def _is_there(name: str, ordered: Ints) -> bool:
    value = hash(name)
    place = int(np.searchsorted(ordered, value))
    return place < len(ordered) and int(ordered[place]) == value
