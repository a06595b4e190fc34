"""The names of the files that a pack's samples become: no two alike, found without holding every name."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from packer._sources.repeats import Hashes, Texts, hashes_of, repeats
from packer._storage.paths import folded
from packer._table import Names, encode_name

__all__ = ["FileNames", "below_files", "free_name", "known"]

_LONGEST = 255  # bytes, of what Linux and macOS take
_LONGEST_NUMBER = "-999999999999"
_REMEMBERED = 1 << 12  # directories; names mostly come one directory after the other


class FileNames:
    """The name of every sample's file: the sample's own, with a suffix added where it has none that fits.

    Samples such as ``x.jpg`` and ``x.jpg.png`` may have one file name. Then the sample whose unchanged name it is keeps
    the name, else the first does; the others are numbered. Only the numbered names are held in memory.

    Parameters
    ----------
    names : Names
        No two alike.
    suffixes : tuple of str
        Endings that fit; the first is the one that is added. None of them, and the names stay.
    """

    def __init__(self, names: Names, suffixes: tuple[str, ...] = ()) -> None:
        self._names = names
        self._suffixes = suffixes
        self._numbered: dict[int, str] = {}
        if suffixes:
            self._number()

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> str:
        return self._numbered.get(index) or self._plain(self._names[index])

    def __iter__(self) -> Iterator[str]:
        for index, name in enumerate(self._names):
            yield self._numbered.get(index) or self._plain(name)

    def _plain(self, name: str) -> str:
        return name if self._fits(name) else _candidate(name, self._suffixes[0])

    def _fits(self, name: str) -> bool:
        return not self._suffixes or name.lower().endswith(self._suffixes)

    def _number(self) -> None:
        """Number the files that would have another one's name."""
        alike: dict[int, list[int]] = {}
        for index, first in repeats(self):
            alike.setdefault(first, [first]).append(index)
        if not alike:
            return
        taken, chosen = _ordered(self), set[str]()
        following: dict[str, int] = {}  # where long names are cut, several groups try the same numbers
        for indices in alike.values():
            keeper = next((index for index in indices if self._fits(self._names[index])), min(indices))
            for index in sorted({*indices} - {keeper}):
                family = _candidate(self._names[index], _LONGEST_NUMBER + self._suffixes[0])
                for number in itertools.count(following.get(family, 1)):
                    name = _candidate(self._names[index], f"-{number}{self._suffixes[0]}")
                    if name not in chosen and not _holds(taken, hash(name)):
                        break
                following[family] = number + 1
                chosen.add(name)
                self._numbered[index] = name


def known(names: Texts) -> Callable[[str], bool]:
    """Return what tells whether a file has a name: by hashes of 8 bytes, which no other name meets by chance."""
    taken = _ordered(names)
    return lambda name: _holds(taken, hash(name))


def free_name(names: Iterable[str], stem: str, suffix: str) -> str:
    """Return a name that no file and no directory has: `stem` and `suffix`, or the same with a number.

    Nor does one have the name on a file system that ignores case, or how accents are encoded.
    """
    taken = np.fromiter((hash(folded(name.partition("/")[0])) for name in names), np.int64)
    taken.sort()
    return next(name for name in _candidates(stem, suffix) if not _holds(taken, hash(folded(name))))


def below_files(names: Texts) -> Iterator[tuple[int, str]]:
    """Yield the index of every name that lies below another name, as ``x/a/b.jpg`` does below ``x/a``, and the other.

    Takes 8 bytes of memory a name.
    """
    files = _ordered(names)

    @functools.lru_cache(_REMEMBERED)
    def file_above(folder: str) -> str:
        while folder and not _holds(files, hash(folder)):
            folder = folder.rpartition("/")[0]
        return folder

    for index, name in enumerate(names):
        if found := file_above(name.rpartition("/")[0]):
            yield index, found


def _ordered(names: Texts) -> Hashes:
    """Return the hashes of all names, in ascending order."""
    hashes = hashes_of(names)
    hashes.sort()
    return hashes


def _holds(ordered: Hashes, value: int) -> bool:
    place = int(np.searchsorted(ordered, value))
    return place < len(ordered) and int(ordered[place]) == value


def _candidates(stem: str, suffix: str) -> Iterator[str]:
    """Yield the names of `stem` and `suffix`: without a number, which is number 0, and then numbered."""
    return (_candidate(stem, f"-{number}{suffix}" if number else suffix) for number in itertools.count())


def _candidate(stem: str, suffix: str) -> str:
    """Return `stem` and `suffix`, with the stem cut where that would be too long for a file."""
    folder, slash, last = stem.rpartition("/")
    cut = encode_name(last)[: _LONGEST - len(suffix)]
    return folder + slash + (last if cut == encode_name(last) else cut.decode("utf-8", "ignore")) + suffix
