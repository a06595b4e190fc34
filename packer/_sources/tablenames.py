"""The names that a table has for files which are called otherwise on the disk.

Tables are written on other systems than the files: with backslashes, another Unicode form, other case, the directories
of another machine, or ids in place of names. Where exactly one file fits a name, the name means it. Anything else is
left to whoever reads the file.
"""

from __future__ import annotations

import itertools
import posixpath
import unicodedata
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from packer._sample import IMAGE_SUFFIXES
from packer.errors import printable

__all__ = ["FileNames", "called_otherwise"]

Form = Callable[[str], str]

_BARE = 0.5  # of the rows have to be found where directories before all names are left out


def _slashes(name: str) -> str:
    return str(PurePosixPath(name.replace("\\", "/")))


_FORMS: tuple[tuple[str, Form], ...] = (
    ("with slashes for backslashes", _slashes),
    ("without the blanks around them", lambda name: "/".join(map(str.strip, name.strip().split("/")))),
    ("in the other Unicode form of accents (NFC, NFD)", lambda name: unicodedata.normalize("NFC", name)),
    ("without the quoting of URLs", urllib.parse.unquote),
    ("in upper or lower case", lambda name: unicodedata.normalize("NFC", name.casefold())),
)
"""What names may differ in, in the order in which it is tried: each form is one of the form before it."""

_WITH_SUFFIX = "with the suffix that the table leaves out"


class FileNames:
    """Finds the files that names mean.

    Parameters
    ----------
    files : collection of str
        The files that no name is exactly, relative to the source.
    names : mapping of int to str
        The names that are exactly no file, by their rows.
    alone : bool
        Whether the table has no other names: then all may lack a directory, or have the same ones too many.

    Attributes
    ----------
    found : dict of int to str
        The files, by rows.
    several : dict of int to list of str
        The files that fit a name where these are more than one.
    """

    def __init__(self, files: Collection[str], names: Mapping[int, str], *, alone: bool) -> None:
        self.found: dict[int, str] = {}
        self.several: dict[int, list[str]] = {}
        self._given = names
        self._names = dict(names)
        self._files = {file: file for file in files}  # with their forms
        self._how: dict[str, list[int]] = {}
        for how, form in _FORMS:
            self._names = {row: form(name) for row, name in self._names.items()}
            self._files = {file: form(name) for file, name in self._files.items()}
            self._match(how, str)
        self._match_ids()
        if alone and not self.found:
            self._match_below()
            self._match_by_name()

    def notes(self) -> Iterator[str]:
        """Yield what a person should know of the names: how they differ from the files', with an example."""
        for how, rows in self._how.items():
            first = rows[0]
            yield (
                f"{len(rows):,} paths of the table are those of files {how}, such as "
                f"{printable(self._given[first])!r} for {printable(self.found[first])!r}"
            )

    def _match(self, how: str, of_name: Form, of_file: Form | None = None) -> None:
        """Match names with files whose forms are equal, and forget the names that are matched."""
        wanted = {of_name(name) for name in self._names.values()}
        fitting: dict[str, list[str]] = {}
        for file, form in self._files.items():
            key = (of_file or of_name)(form)
            if key in wanted:
                fitting.setdefault(key, []).append(file)
        for row, name in list(self._names.items()):
            files = fitting.get(of_name(name), [])
            if len(files) == 1:
                self.found[row] = files[0]
                self._how.setdefault(how, []).append(row)
                self.several.pop(row, None)
                del self._names[row]
            elif files:
                self.several.setdefault(row, sorted(files))

    def _match_ids(self) -> None:
        """Match names without a suffix."""
        rest = self._names
        self._names = {row: name for row, name in rest.items() if not name.endswith(IMAGE_SUFFIXES)}
        self._match(_WITH_SUFFIX, str, _stem)
        self._names = {row: name for row, name in rest.items() if row not in self.found}

    def _match_below(self) -> None:
        """Match names that all begin with the same directories, which are above the source or on another machine."""
        if not self._names:
            return
        parts = {row: name.strip("/").split("/") for row, name in self._names.items()}
        first, last = min(parts.values()), max(parts.values())
        pairs = zip(first[:-1], last[:-1], strict=False)
        common = [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
        keys, stems = set(self._files.values()), set(map(_stem, self._files.values()))
        for count in range(1, len(common) + 1):
            below = {row: "/".join(one[count:]) for row, one in parts.items()}
            if sum(name in keys or name in stems for name in below.values()) >= _BARE * len(below):
                self._names = below
                how = f"without {printable('/'.join(common[:count]))!r} before them"
                self._match(how, str)
                self._match(f"{how}, {_WITH_SUFFIX}", str, _stem)
                return

    def _match_by_name(self) -> None:
        """Match names without any directory with the files of these names, wherever they lie."""
        if any("/" in name for name in self._names.values()):
            return
        how = "in the directories that the table leaves out"
        self._match(how, posixpath.basename)
        self._match(f"{how}, {_WITH_SUFFIX}", str, lambda name: _stem(posixpath.basename(name)))


def called_otherwise(files: Collection[str], names: Sequence[str]) -> str:
    """Return what to say of names that are no file, where files that no name means are called nearly so; else nothing.

    Parameters
    ----------
    files : collection of str
        The files that no name is.
    names : sequence of str
        The names that are no file.
    """
    note = next(FileNames(files, dict(enumerate(names)), alone=False).notes(), "")
    return f" But {note.replace(' of the table', '')}." if note else ""


def _stem(name: str) -> str:
    return posixpath.splitext(name)[0]
