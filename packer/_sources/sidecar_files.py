"""Fields whose values are files next to the images, found by templates such as ``../masks/{stem}.png``.

A template turns the path of an image into the path of the image's file for the field.
"""

from __future__ import annotations

import os
import posixpath
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer._account import REPORTED, Account
from packer._codecs import IMAGE_SUFFIXES
from packer._containers.blocks import npy_array
from packer._fields import KINDS, Field, declared_field
from packer._images.png import SIGNATURE
from packer._sources.base import Column, FileColumn, Source
from packer._storage.safe_open import open_regular
from packer.errors import OptionError, SourceError, option, printable

_BY_SUFFIX = {".txt": "text", ".json": "json", ".npy": "array"}
_SHOWN = 5
_TRIED = 100  # number of ``.npy`` files that are tried until one can be read

_GRAY, _PALETTE = 0, 3
"""The color types of PNGs (byte 25) whose pixels may be ids."""


@dataclass(frozen=True)
class FileField:
    """A field whose values are files next to the images.

    Attributes
    ----------
    name, kind : str
    template : str
        A path relative to the source, with placeholders. ``{path}`` is the image's path, ``{dir}`` the directory of
        that path, ``{class}`` the first directory of the path, ``{name}`` the name of the image's file, and ``{stem}``
        this name without its suffix. ``{stem%END}`` is the stem without END at its end, as in a shell. Literal braces
        are doubled.
    """

    name: str
    kind: str
    template: str

    @classmethod
    def of(cls, text: str) -> FileField:
        """Parse ``NAME[:KIND]=TEMPLATE``; OptionError if it is malformed."""
        head, sign, template = text.partition("=")
        name, _, kind = head.partition(":")
        mention = option("fields", repr(printable(text)))
        if not sign or not template:
            raise OptionError(f"{mention} is not a field: pass NAME=TEMPLATE, such as 'mask=../masks/{{stem}}.png'")
        kind = kind or _kind_of_file(name, template)
        able = [name for name, one in KINDS.items() if one.file]
        if kind not in able:
            raise OptionError(f"{mention}: the kind of files must be one of {', '.join(able)}, not {printable(kind)!r}")
        try:
            declared_field(name, kind)
            used = {placeholder.partition("%")[0] for _, placeholder in _pieces(template) if placeholder is not None}
        except ValueError as error:
            raise OptionError(f"{mention}: {printable(error)}") from error
        if unknown := sorted(used.difference(_PLACEHOLDERS)):
            known = ", ".join(f"{{{placeholder}}}" for placeholder in _PLACEHOLDERS)
            raise OptionError(
                f"{mention}: the template has {{{printable(unknown[0])}}}, which is not a placeholder. Placeholders "
                f"are {known}; write literal braces twice."
            )
        if not used:
            raise OptionError(f"{mention}: the template has no placeholder, so all images would have the same file")
        return cls(name, kind, template)

    def paths(self, names: Iterable[str]) -> list[str]:
        """Return the path of the field's file for each image, relative to the source."""
        pieces = [(text, _nothing if of is None else _filled(of)) for text, of in _pieces(self.template)]
        return ["".join([text + part(name) for text, part in pieces]) for name in names]


def with_files(
    source: Source, file_fields: Sequence[FileField], on_missing: str = "error", *, skip: bool = False
) -> Source:
    """Return a source with fields from sidecar files.

    The function lists each directory once to find the files that exist. An image of the
    source that is itself a file of a field, such as a mask among the images, is removed from the source.

    Parameters
    ----------
    source : Source
    file_fields : sequence of FileField
    on_missing : {"error", "null", "skip"}
        What happens to an image without one of the files.
    skip : bool
        True if images with invalid ``.npy`` files become bad samples. If False, an invalid first file raises an error
        immediately.

    Raises
    ------
    SourceError
        If no file of a field exists, if a file is missing and `on_missing` is ``"error"``, if the first ``.npy`` file
        is invalid, or if the source has a field of the same name.
    """
    source = _without_own_files(source, file_fields)
    columns = [
        FileColumn.of(
            replace(declared_field(field.name, field.kind), file=field.template),
            source.root,
            field.paths(source.names),
        )
        for field in file_fields
    ]
    return with_columns(source, columns, on_missing, skip=skip)


def with_columns(source: Source, columns: Sequence[Column], on_missing: str, *, skip: bool = False) -> Source:
    """Return a source with additional fields, after checking which of their files exist.

    Raises the same errors as `with_files`.
    """
    files = [column for column in columns if isinstance(column, FileColumn)]
    source = source.having(*(column for column in columns if not isinstance(column, FileColumn)))
    present, missing = Present(source.root), Missing(source, on_missing)
    for column in files:
        field, paths = column.field, [column.get(index) for index in range(len(column))]
        there = present.among(paths)
        if field.file and not there.any():
            declared = f"'{field.name}={printable(field.file)}'"
            raise SourceError(
                f"{option('fields', declared)} finds no file for any of the {len(source)} images. For the first "
                f"image, {printable(source.names[0])}, packer looked for {_shown(source.root, paths[0])}. The "
                f"template is relative to {printable(source.root)}: correct it."
            )
        missing.record_files(field.name, paths, there)
        if KINDS[field.kind].file == "npy":
            found_paths = [paths[at] or "" for at in np.flatnonzero(there)[: _TRIED if skip else 1].tolist()]
            field = _as_first(field, (os.path.join(source.root, path) for path in found_paths or [""]))
        found = (path if is_there else None for path, is_there in zip(paths, there.tolist(), strict=True))
        source = source.having(FileColumn.of(field, source.root, found))
    return missing.applied_to(source)


def files_among(root: Path, fields: Sequence[FileField], names: Iterable[str]) -> dict[str, str]:
    """Return the paths below `root` that the templates make from the names of images, each with its image."""
    images = list(names)
    return {
        path: name
        for field in fields
        for name, path in zip(images, paths_inside(root, field.paths(images)), strict=True)
        if path not in ("", name)
    }


def paths_inside(root: Path, paths: Iterable[str | None]) -> Iterator[str]:
    """Yield each path relative to `root`, with ``..`` resolved; an empty text for a path outside of `root`."""
    top = os.path.abspath(root).replace(os.sep, "/").rstrip("/") + "/"
    for path in paths:
        full = posixpath.normpath(posixpath.join(top, path or ""))
        yield full[len(top) :] if full.startswith(top) else ""


class Present:
    """Tells which files exist. Each directory is listed only once.

    Parameters
    ----------
    root : Path
        The directory to which paths are relative.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: dict[str, frozenset[str]] = {}

    def among(self, paths: Iterable[str | None]) -> npt.NDArray[np.bool_]:
        """Tell for each path whether the file exists; SourceError if a directory cannot be listed."""
        return np.fromiter((path is not None and self._has(path) for path in paths), bool)

    def _has(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        names = self._listed.get(directory)
        if names is None:
            names = self._listed[directory] = self._names_in(directory if directory or path[:1] != "/" else "/")
        return name in names

    def _names_in(self, directory: str) -> frozenset[str]:
        where = os.path.join(self._root, directory)
        try:
            return frozenset(os.listdir(where))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return frozenset()
        except OSError as error:
            raise SourceError(f"{printable(where)}: cannot be listed: {error.strerror}") from error


class Missing:
    """Collects the images of a source that lack a file or a row, and applies `on_missing` to them.

    Parameters
    ----------
    source : Source
    on_missing : {"error", "null", "skip"}
    """

    def __init__(self, source: Source, on_missing: str) -> None:
        self._names = source.names
        self._root = source.root
        self._on_missing = on_missing
        self._remaining = np.ones(len(source), bool)
        self._account = Account()
        self._notes: list[str] = []

    def record_files(self, field: str, paths: Sequence[str | None], there: npt.NDArray[np.bool_]) -> None:
        """Record which files of a field are missing; SourceError if `on_missing` is ``"error"`` and one is missing.

        A value without a path is null, and does not count as missing.
        """
        lacking = np.flatnonzero(~there & np.array([path is not None for path in paths], bool))
        if not len(lacking):
            return
        named = [f"{printable(self._names[at])} ({_shown(self._root, paths[at])})" for at in lacking[:_SHOWN].tolist()]
        shown = ", ".join(named) + (", …" if len(lacking) > _SHOWN else "")
        self.record(lacking, f"{field} file", shown)

    def record(self, lacking: npt.NDArray[np.int64], what: str, shown: str) -> None:
        """Record which images lack a file or a row; SourceError if `on_missing` is ``"error"``."""
        lack = f"{len(lacking)} of {len(self._names)} images {'has' if len(lacking) == 1 else 'have'} no {what}"
        if self._on_missing == "error":
            raise SourceError(
                f"{lack}: {shown}. Add the missing ones, or pass {option('on_missing', 'null')} to keep these images "
                f"without a value, or {option('on_missing', 'skip')} to leave them out."
            )
        if self._on_missing == "skip":
            names = [self._names[at] for at in lacking[:REPORTED].tolist()]
            self._account.left_out(
                "image", f"it has no {what}; {option('on_missing', 'skip')}", names, count=len(lacking), chosen=True
            )
            self._remaining[lacking] = False
        else:
            self._notes.append(f"{lack}; their value is null: {shown}")

    def applied_to(self, source: Source) -> Source:
        """Return a source with notes on missing files and rows, and without the images that are left out."""
        if not self._remaining.any():
            raise SourceError(
                f"{printable(source.root)}: {option('on_missing', 'skip')} leaves out all images: "
                f"{self._account.lines()[0]}"
            )
        if source.account is not None:
            source.account.update(self._account)
        source = source.noting(*self._notes)
        return source if self._remaining.all() else source.taken(np.flatnonzero(self._remaining))


def notes_on_gray_files(source: Source, texts: Iterable[str]) -> Iterator[str]:
    """Yield a note on each field ``NAME=TEMPLATE`` of the kind image whose first file may be a mask."""
    columns = {column.field.name: column for column in source.columns}
    for text in texts:
        name, _, template = text.partition("=")
        column = columns.get(name)
        if isinstance(column, FileColumn) and column.field.kind == "image" and _is_gray(column):
            yield (
                f"{name} is an image, whose pixels are interpolated when it is cropped; for a mask of ids pass "
                f"--field {name}:mask={printable(template)}"
            )


def _is_gray(column: FileColumn) -> bool:
    """Tell whether the first file is a PNG with a palette, or with one channel of at most 8 bits."""
    path = next((path for path in map(column.path, range(len(column))) if path is not None), None)
    if path is None:
        return False
    try:
        with open(open_regular(path), "rb") as file:
            head = file.read(26)
    except OSError:  # reading the value reports the error
        return False
    return len(head) == 26 and head.startswith(SIGNATURE) and head[24] <= 8 and head[25] in (_GRAY, _PALETTE)


def _kind_of_file(name: str, path: str) -> str:
    """Return the kind of a field, which its name and the suffix of its files determine."""
    suffix = posixpath.splitext(path)[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return "mask" if "mask" in name.lower() else "image"
    return _BY_SUFFIX.get(suffix, "bytes")


def _as_first(field: Field, paths: Iterable[str]) -> Field:
    """Return an array field with the dtype and the rank of the first ``.npy`` file that can be read.

    Images with an invalid earlier file become bad samples later, when the file is read. Raises SourceError if no file
    can be read.
    """
    first: SourceError | None = None
    for path in paths:
        try:
            return _as_in(field, path)
        except SourceError as error:
            first = first or error
    assert first is not None
    raise first


def _as_in(field: Field, path: str) -> Field:
    try:
        with open(open_regular(path), "rb") as file:
            array = npy_array(file.read())
        return replace(field, dtype=array.dtype.name, rank=array.ndim)
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        template = f"'{field.name}:bytes={printable(field.file)}'"
        raise SourceError(
            f"{printable(path)}: {printable(error)}. {option('fields', template)} stores any file unchanged."
        ) from error


def _without_own_files(source: Source, file_fields: Sequence[FileField]) -> Source:
    """Return a source without the images that are themselves files of another image's field."""
    if source.kind not in ("imagefolder", "files"):  # a table decides which files are images
        return source
    own = files_among(source.root, file_fields, source.names).keys() & set(source.names)
    if not own:
        return source
    if len(own) == len(source):
        raise SourceError(f"{printable(source.root)}: every image is the field file of another image")
    return source.without(own).noting(f"{len(own):,} field files are among the images; they are not packed as images")


def _shown(root: Path, path: str | None) -> str:
    return printable(os.path.normpath(os.path.join(root, path or "")))


def _pieces(template: str) -> Iterable[tuple[str, str | None]]:
    """Yield the texts of a template, each with the placeholder after it; ValueError for a single brace."""
    for text, placeholder, form, conversion in string.Formatter().parse(template):
        if form or conversion:
            raise ValueError("a placeholder cannot have a format or a conversion")
        yield text, placeholder


def _filled(placeholder: str) -> Callable[[str], str]:
    """Return the function that replaces a placeholder: it makes a text from an image's path."""
    known, _, end = placeholder.partition("%")
    part = _PLACEHOLDERS[known]
    return (lambda name: part(name).removesuffix(end)) if end else part


def _nothing(name: str) -> str:
    return ""


def _directory(name: str) -> str:
    return name.rpartition("/")[0] or "."


def _base(name: str) -> str:
    return name.rpartition("/")[2]


_PLACEHOLDERS: Mapping[str, Callable[[str], str]] = {
    "path": str,
    "dir": _directory,
    "name": _base,
    "stem": lambda name: posixpath.splitext(_base(name))[0],
    "class": lambda name: name.partition("/")[0] if "/" in name else ".",
}
"""For each placeholder, the function that makes its text from an image's path.

The directory of an image directly in the source is ``.``.
"""
