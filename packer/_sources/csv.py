"""A CSV file that names images and their labels, instead of directories."""

from __future__ import annotations

import csv
import os
from array import array
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from packer._sources.base import Source
from packer._sources.labels import meaning_of, quoted
from packer._storage.opening import open_regular
from packer._storage.paths import name_problem
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = ["csv_source", "default_delimiter"]

_SHOWN = 20  # columns in a message
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, read as UTF-8


def csv_source(
    root: Path,
    table: Path,
    *,
    path_column: str = "path",
    label_column: str = "label",
    delimiter: str | None = None,
    label_type: str | None = None,
    unlabeled: bool = False,
    classes: Sequence[str] | None = None,
) -> Source:
    """List the images that a CSV file names, in its order.

    Parameters
    ----------
    root : Path
        The paths are relative to `root`, or absolute and below it.
    table : Path
        UTF-8, with a header line.
    path_column, label_column : str
        What the header line calls the two columns.
    delimiter : str, optional
        The character that separates columns; by default a tab in a ``.tsv`` file, and a comma in others.
    label_type : {"class", "int", "float"}, optional
        See `packer._sources.labels.meaning_of`.
    unlabeled : bool
        Whether rows without a label are kept, with the label -1.
    classes : sequence of str, optional
        Class names in the order of their ids. By default whole numbers are ids, and the ids of names follow the sorted
        names.

    Raises
    ------
    SourceError
        If the file or a column is missing, a row has no label, names a path twice or one outside of `root`,
        or has a label that is not in `classes`; or if it cannot be known what the labels mean.
    """
    if not os.path.isdir(root):
        raise SourceError(f"{printable(root)}: no such directory")
    rows = _Rows(root, table, unlabeled)
    try:
        fd = open_regular(table)
        with open(fd, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            rows.read(csv.reader(file, delimiter=delimiter or default_delimiter(table)), path_column, label_column)
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{printable(table)}: cannot be read: {reason}") from error
    rows.require_sound()
    meaning = meaning_of(rows.labels, label_type, classes, rows.refused_label)
    notes = [*rows.notes, *meaning.notes]
    names = Names.of(rows.names)
    lines = np.array(rows.lines, np.int64)
    return Source(
        "csv", root, names, meaning.labels, meaning.classes, notes, label_type=meaning.label_type, lines=lines
    )


def default_delimiter(table: Path | None) -> str:
    """Return what separates the columns of a file of this name where nobody says it."""
    return "\t" if table is not None and table.suffix.lower() == ".tsv" else ","


class _Rows:
    """The rows of a table: the images' names, their labels as text, and the lines that the rows end in."""

    def __init__(self, root: Path, table: Path, unlabeled: bool) -> None:
        self._tops = os.path.abspath(root), os.path.realpath(root)
        self._table = table
        self._unlabeled = unlabeled
        self.lines = array("q")
        self.names: list[str] = []
        self.labels: list[str] = []
        self.notes: list[str] = []

    def read(self, reader: Any, path_column: str, label_column: str) -> None:
        """Read the header and the rows of a `csv.reader`."""
        header: list[str] = next(filter(None, reader), [])
        _require_columns(self._table, header, path_column, label_column)
        at_path, at_label = header.index(path_column), header.index(label_column)
        if unused := [name or "''" for place, name in enumerate(header) if place not in (at_path, at_label)]:
            columns = "1 column of the file is" if len(unused) == 1 else f"{len(unused)} columns of the file are"
            self.notes.append(f"{columns} not used: {_some([printable(name) for name in unused[: _SHOWN + 1]])}")
        for row in reader:
            if not any(map(str.strip, row)):  # a blank line, or one of delimiters alone
                continue
            if any(map(str.strip, row[len(header) :])):
                raise self._refused(
                    reader.line_num,
                    f"has {len(row)} cells, and the header names {len(header)} columns. "
                    "Put cells that hold the delimiter into quotes.",
                )
            cells = [*row, *[""] * len(header)]
            self._add(cells[at_path], cells[at_label], reader.line_num)

    def _add(self, name: str, label: str, line: int) -> None:
        if not name:
            raise self._refused(line, "the path is missing")
        if not label.strip():
            label = ""
            if not self._unlabeled:
                raise self._refused(line, "the label is missing. Say --unlabeled to keep such rows, with the label -1.")
        self.names.append(_relative(name, self._tops, self._table, line))
        self.labels.append(label)
        self.lines.append(line)

    def require_sound(self) -> None:
        """Raise SourceError where there are no rows, or two name one image."""
        if not self.names:
            raise SourceError(f"{printable(self._table)}: no rows in it")
        seen: set[str] = set()
        for name, line in zip(self.names, self.lines, strict=True):
            if name in seen:
                raise self._refused(line, f"{printable(name)} is named twice")
            seen.add(name)

    def refused_label(self, row: int | None, problem: str) -> SourceError:
        """Return the error on the label of a row, or on all labels."""
        if row is None:
            return SourceError(f"{printable(self._table)}: {problem}")
        return self._refused(self.lines[row], f"the label {quoted(self.labels[row])} {problem}")

    def _refused(self, line: int, problem: str) -> SourceError:
        return SourceError(f"{printable(self._table)}, line {line}: {problem}")


def _require_columns(table: Path, present: Sequence[str], *wanted: str) -> None:
    if not present:
        raise SourceError(f"{printable(table)}: the file is empty. Its first line names the columns.")
    if present[0].startswith(_UTF_16):
        raise SourceError(f"{printable(table)}: the text is UTF-16. Save it as UTF-8.")
    for column in wanted:
        if column not in present:
            others = [delimiter for delimiter in ",;\t|" if len(present) == 1 and delimiter in present[0]]
            advice = "say which with --path-column and --label-column."
            if others:
                advice = f"if they are separated by {others[0]!r}, say --delimiter {_quoted(others[0])}."
            columns = _some([repr(name) for name in present[: _SHOWN + 1]])
            raise SourceError(f"{printable(table)}: no column {column!r}. It has {columns}; {advice}")
        if present.count(column) > 1:
            raise SourceError(f"{printable(table)}: {present.count(column)} columns have the name {column!r}")


def _some(columns: Sequence[str]) -> str:
    return ", ".join(columns[:_SHOWN]) + (", …" if len(columns) > _SHOWN else "")


def _quoted(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else f"'{delimiter}'"


def _relative(name: str, tops: Sequence[str], table: Path, line: int) -> str:
    """Return a path relative to the source, whose directory has the absolute paths `tops`."""
    path = PurePosixPath(name.replace(os.sep, "/"))
    if os.path.isabs(name):
        for top in tops:
            if Path(name).is_relative_to(top):
                path = PurePosixPath(Path(name).relative_to(top).as_posix())
                break
    elif PureWindowsPath(name).drive:
        path = PurePosixPath("/")
    if name_problem(str(path)):
        raise SourceError(f"{printable(table)}, line {line}: {printable(name)} is not a path inside SRC")
    return str(path)
