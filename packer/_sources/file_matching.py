"""Find the files to which the names in tables and lists refer.

Tables and lists may come from a different system than the files. A name in them may have backslashes, another Unicode
form, upper case instead of lower case, or the directories of another machine; or it may be an id. If exactly one file
matches a name, the name refers to that file. Otherwise the name stays unchanged, and reading its file is an error.
"""

from __future__ import annotations

import itertools
import posixpath
import unicodedata
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from packer._account import Account
from packer._codecs import IMAGE_SUFFIXES
from packer._sources.base import some
from packer.errors import SourceError, option, printable

Form = Callable[[str], str]

_BARE = 0.5  # leading directories are dropped from all names if at least this share of the names then matches files


def _slashes(name: str) -> str:
    return str(PurePosixPath(name.replace("\\", "/")))


_FORMS: tuple[tuple[str, Form], ...] = (
    ("with slashes instead of backslashes", _slashes),
    ("without spaces around them", lambda name: "/".join(map(str.strip, name.strip().split("/")))),
    ("in the other Unicode form of accents (NFC, NFD)", lambda name: unicodedata.normalize("NFC", name)),
    ("without percent-encoding", urllib.parse.unquote),
    ("with other upper and lower case", lambda name: unicodedata.normalize("NFC", name.casefold())),
)
"""Differences between names that are ignored: how a note describes each, and the function that removes it.

They are tried in this order. Each function is applied to the result of the previous function.
"""

_WITH_SUFFIX = "with the suffix that the table omits"


class FileMatcher:
    """Finds the file that each name in a table refers to.

    Parameters
    ----------
    files : collection of str
        The files, relative to the source, that are not exactly equal to a name in the table.
    names : mapping of int to str
        The names that are not exactly equal to a file, by row.
    alone : bool
        Whether `names` are all names of the table. If so, two more differences are ignored: leading directories that
        all names share, and directories that all names lack.

    Attributes
    ----------
    found : dict of int to str
        The file of each matched name, by row.
    several : dict of int to list of str
        The files that match a name, by row, if more than one file matches it.
    """

    def __init__(self, files: Collection[str], names: Mapping[int, str], *, alone: bool) -> None:
        self.found: dict[int, str] = {}
        self.several: dict[int, list[str]] = {}
        self._original = names
        self._names = dict(names)
        self._files = {file: file for file in files}  # the form of each file's name
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
        """Yield remarks for the user: how the names differ from the names of their files, with an example."""
        for how, rows in self._how.items():
            first = rows[0]
            yield (
                f"{len(rows):,} paths of the table match files only {how}, such as "
                f"{printable(self._original[first])!r} for {printable(self.found[first])!r}"
            )

    def _match(self, how: str, of_name: Form, of_file: Form | None = None) -> None:
        """Match names and files that become equal by `of_name` and `of_file`; remove the matched names."""
        keys = {of_name(name) for name in self._names.values()}
        fitting: dict[str, list[str]] = {}
        for file, form in self._files.items():
            key = (of_file or of_name)(form)
            if key in keys:
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
        """Match names that have no image suffix with files; the suffix of a file is ignored."""
        rest = self._names
        self._names = {row: name for row, name in rest.items() if not name.endswith(IMAGE_SUFFIXES)}
        self._match(_WITH_SUFFIX, str, _stem)
        self._names = {row: name for row, name in rest.items() if row not in self.found}

    def _match_below(self) -> None:
        """Match names after removing leading directories that all names share, such as those of another machine."""
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
                how = f"without the prefix {printable('/'.join(common[:count]))!r}"
                self._match(how, str)
                self._match(f"{how}, {_WITH_SUFFIX}", str, _stem)
                return

    def _match_by_name(self) -> None:
        """Match names that have no directories with files in any directory."""
        if any("/" in name for name in self._names.values()):
            return
        how = "with the directories that the table omits"
        self._match(how, posixpath.basename)
        self._match(f"{how}, {_WITH_SUFFIX}", str, lambda name: _stem(posixpath.basename(name)))


def called_otherwise(files: Collection[str], names: Sequence[str]) -> str:
    """Return a hint for a message if names without a file nearly match unused files; otherwise an empty text.

    Parameters
    ----------
    files : collection of str
        The files that no name matches.
    names : sequence of str
        The names that match no file.
    """
    note = next(FileMatcher(files, dict(enumerate(names)), alone=False).notes(), "")
    return f" But {note.replace(' of the table', '')}." if note else ""


def account_for_split(  # noqa: PLR0917
    account: Account, split: str, others: Collection[str], missing: Sequence[str], on_missing: str, where: str
) -> None:
    """Record in the account the images outside of a split, and the images of the split that do not exist.

    Parameters
    ----------
    account : Account
    split : str
    others : collection of str
        Existing images that are not in the list of the split.
    missing : sequence of str
        Images in the list of the split that do not exist.
    on_missing : {"error", "skip"}
    where : str
        The directory of the split, or the file that lists it, for messages.

    Raises
    ------
    SourceError
        If images are missing and `on_missing` is ``"error"``.
    """
    account.left_out("image", f"--split {split}", count=len(others), chosen=True)
    if missing and on_missing != "skip":
        named = [posixpath.basename(name.replace("\\", "/")) for name in missing]
        otherwise = called_otherwise(set(map(posixpath.basename, others)), named)
        raise SourceError(
            f"{where}: {len(missing):,} images of the split {printable(split)} do not exist: "
            f"{some(missing)}.{otherwise} {option('on_missing', 'skip')} leaves them out."
        )
    account.left_out("image", "the split lists it, but it does not exist; --on-missing", missing, chosen=True)


def _stem(name: str) -> str:
    return posixpath.splitext(name)[0]
