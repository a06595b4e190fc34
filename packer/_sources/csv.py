"""A CSV file that names images and their labels, instead of directories."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from packer._sources.base import Source, class_ids
from packer._storage.opening import open_regular
from packer._storage.paths import name_problem
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = ["csv_source"]


def csv_source(
    root: Path,
    table: Path,
    *,
    path_column: str = "path",
    label_column: str = "label",
    delimiter: str = ",",
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
    delimiter : str
        The character that separates columns.
    classes : sequence of str, optional
        Class names in the order of their ids. By default, where every label is a whole number of 0 or more, the
        numbers are the ids; otherwise the ids follow the sorted names.

    Raises
    ------
    SourceError
        If the file or a column is missing, a row has no label, names a path twice or one outside of `root`,
        or has a label that is not in `classes`.
    """
    if not os.path.isdir(root):
        raise SourceError(f"{printable(root)}: no such directory")
    tops = os.path.abspath(root), os.path.realpath(root)
    names: list[str] = []
    values: list[str] = []
    try:
        fd = open_regular(table)
        with open(fd, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            rows = csv.DictReader(file, delimiter=delimiter)
            _require_columns(table, rows.fieldnames or (), path_column, label_column)
            for row in rows:
                name, value = row[path_column], row[label_column]
                if not name or value is None or value == "":
                    raise SourceError(f"{printable(table)}, line {rows.line_num}: the path or the label is missing")
                names.append(_relative(name, tops, table, rows.line_num))
                values.append(value)
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{printable(table)}: cannot be read: {reason}") from error
    if not names:
        raise SourceError(f"{printable(table)}: no rows in it")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SourceError(f"{printable(table)}: {printable(name)} is named twice")
        seen.add(name)
    if classes is None:
        classes = _classes_of(values)
    ids = class_ids(classes)
    unknown = sorted({value for value in values if value not in ids})
    if unknown:
        raise SourceError(
            f"{printable(table)}: {len(unknown)} of its labels are unknown to the given class list: "
            + ", ".join(map(printable, unknown[:5]))
        )
    return Source("csv", root, Names.of(names), np.array([ids[value] for value in values], np.int64), list(classes))


def _require_columns(table: Path, present: Sequence[str], *wanted: str) -> None:
    if not present:
        raise SourceError(f"{printable(table)}: the file is empty. Its first line names the columns.")
    for column in wanted:
        if column not in present:
            others = [delimiter for delimiter in ";\t|" if len(present) == 1 and delimiter in present[0]]
            say = [repr(name) for name in present]
            advice = "say which with --path-column and --label-column."
            if others:
                advice = f"if they are separated by {others[0]!r}, say --delimiter {_quoted(others[0])}."
            raise SourceError(f"{printable(table)}: no column {column!r}. It has {', '.join(say)}; {advice}")


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


def _classes_of(values: Sequence[str]) -> list[str]:
    if all(len(value) < 19 and value.isascii() and value.isdigit() and str(int(value)) == value for value in values):
        highest = max(map(int, values))
        if highest < 10 * len(values) + 1000:  # else they are names that happen to be numbers
            return [str(label) for label in range(highest + 1)]
    return sorted(set(values))
