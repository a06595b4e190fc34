"""The source whose images, labels and fields a table lists: one row for each image, with the image's path."""

from __future__ import annotations

import os
import re
import shlex
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from packer._account import Account, storable
from packer._codecs import IMAGE_SUFFIXES, UNLABELED
from packer._containers.roles import has_label_name
from packer._sources.base import Column, FileColumn, Source, TableColumn
from packer._sources.file_matching import FileMatcher
from packer._sources.imagefolder import FilesOf, ImageRule, Walk, class_directories
from packer._sources.labels import LabelTexts, Meaning, class_ids, quoted
from packer._sources.sidecar_files import paths_inside, with_columns
from packer._sources.tables import (
    Cells,
    LabelTable,
    TableOptions,
    TableReading,
    open_table,
    reading_of,
    some_columns,
)
from packer._storage.safe_open import name_problem
from packer._table import Names
from packer.errors import SourceError, option, printable

NO_COLUMN = "no --column reads it"
"""The reason that the account of a source states for a column that is not read."""

UNNAMED = "the table does not name it"
"""The reason that the account of a source states for an image without a row."""

_SHOWN = 20  # columns in a message
_PLAIN = re.compile(r"[^/\0:\\]+(/[^/\0:\\]+)*")
_PATHS = re.compile(r".*(path|file|name|image|img|id)s?", re.IGNORECASE)
_WORDS = re.compile(r"[,;\t| ]")


def csv_source(
    root: Path,
    table: Path,
    options: TableOptions | None = None,
    *,
    on_missing: str = "error",
    files_of: FilesOf | None = None,
) -> Source:
    """List the images that a table names, in the table's order.

    The labels are in the label column. If `options` do not name it, and the table has no column with its default name,
    the directories are the classes, as in ImageFolder. This applies only if `options` name columns for fields;
    otherwise the missing label column is an error.

    Parameters
    ----------
    root : Path
        The directory of the images. Paths in the table are relative to it, or absolute and below it.
    table : Path
        A file with the suffix ``.jsonl``, ``.ndjson`` or ``.parquet``; any other file is read as CSV.
    options : TableOptions, optional
    on_missing : {"error", "null", "skip"}
        What happens to an image whose row names a file, such as a mask, that does not exist.
    files_of : callable, optional
        Returns the files of fields that the table does not name; the same as for `imagefolder_source`.

    Raises
    ------
    SourceError
        If the file or a column is missing; if a row has no label, has a label that is not in the classes, or names a
        path outside of `root`; if two rows name the same path; if a cell is not a value of its field; or if the meaning
        of the labels is ambiguous.
    MissingDependencyError
        If the file is Parquet, and pyarrow is not installed.
    """
    if not os.path.isdir(root):
        raise SourceError(f"{printable(root)}: no such directory")
    options, present = options or TableOptions(), TreeImages(root)
    rows = TableRows(root, open_table(table, options, present.has), options)
    header = rows.table.header()
    by_directory = options.has_labels and bool(options.columns) and options.label_column is None
    by_directory = by_directory and options.label not in header
    _require_header(rows.table, header, options.path, present)
    rows.read(header, options.path, options.label if options.has_labels and not by_directory else None)
    rows.match(present)
    rows.require_sound()
    rows.leave_out_unusable()
    own = {**rows.files(rows.columns()), **(files_of(rows.names) if files_of is not None else {})}
    meaning = _by_directory(rows, own) if by_directory else rows.meaning(header)
    account = Account()
    unnamed = sorted(present.images.difference(rows.names, own, (one["name"] for one in rows.table.left.values())))
    account.left_out("image", UNNAMED, unnamed)
    source = Source(**rows.members(meaning, account, present.notes))
    return with_columns(source, rows.columns(), on_missing, skip=rows.table.bad.skip)


class TreeImages:
    """The images below a directory. The directory is listed when the images are first needed.

    Parameters
    ----------
    root : Path
    known : iterable of str, optional
        The images, if the caller has listed them already.

    Attributes
    ----------
    notes : list of str
        Has a note with the reason if the directory could not be listed.
    """

    def __init__(self, root: Path, known: Iterable[str] | None = None) -> None:
        self._root = root
        self._known = known
        self.notes: list[str] = []

    @cached_property
    def images(self) -> frozenset[str]:
        """The paths of the images, relative to the directory; empty if the directory cannot be listed."""
        if self._known is not None:
            return frozenset(self._known)
        try:
            return frozenset(Walk(self._root, ImageRule()).all_images())
        except (SourceError, OSError) as error:
            self.notes.append(f"unknown which images the table does not name: {error}")
            return frozenset()

    def has(self, name: str) -> bool:
        """Tell whether a file of this name exists."""
        return name in self.images or os.path.isfile(os.path.join(self._root, name))

    def may_be(self, cell: str) -> bool:
        """Tell whether a cell seems to name an image: it has an image's suffix, or is a file with or without suffix."""
        if cell.lower().endswith(IMAGE_SUFFIXES) or (cell and self.has(cell)):
            return True
        return bool(cell) and any(name.rpartition("/")[2].startswith(f"{cell}.") for name in self.images)


def _by_directory(rows: TableRows, files: Iterable[str]) -> Meaning:
    """Return ImageFolder's classes and labels; directories that contain only files of fields are not classes."""
    beside = {path.partition("/")[0] for path in files}.difference(map(_directory, rows.names))
    folders = [folder for folder in class_directories(rows.root) if folder not in beside]
    classes = rows.options.classes
    ids = class_ids(folders if classes is None else classes)
    for row, name in enumerate(rows.names):
        if _directory(name) not in ids:
            rows.leave_out(
                row,
                f"{printable(name)} is not in a class directory, and there is no column 'label'. Pass the column of "
                f"labels with {option('label_column')}, or pass {option('no_classes', True)}.",
            )
    rows.require_sound()
    return Meaning(np.array([ids[_directory(name)] for name in rows.names], np.int64), classes=list(ids))


def _directory(name: str) -> str:
    """Return the first directory in a path; empty for a path without directories."""
    return name.partition("/")[0] if "/" in name else ""


class TableRows:
    """Reads the rows of a table: the names of images, their labels as text, the values of fields, and line numbers.

    Parameters
    ----------
    root : Path
    table : LabelTable
    options : TableOptions

    Attributes
    ----------
    names, labels : list of str
    readings : list of TableReading
        One for each field; each builds the values of its field.
    notes : list of str
    unused : list of str
        The names of the columns that are not read.
    left : dict of int to str
        The images of the rows that were dropped, by line. Another row may have the same image.
    """

    def __init__(self, root: Path, table: LabelTable, options: TableOptions) -> None:
        self.root = root
        self.table = table
        self.options = options
        self._label_column: str | None = None
        self._tops = os.path.abspath(root), os.path.realpath(root)
        self._outside: set[str] = set()  # the names that are paths outside of the root
        self._count = 0  # the rows of the table, including those that are left out
        self._remaining: list[int] | None = None  # if rows were left out, the indices in the table of the other rows
        self.left: dict[int, str] = {}
        self.lines = array("q")
        self.names: list[str] = []
        self.labels: list[str] = []
        self.readings: list[TableReading] = []
        self.notes: list[str] = []
        self.unused: list[str] = []

    def read(self, header: Sequence[str], path_column: str, label_column: str | None) -> None:
        """Read all rows; without labels if `label_column` is None."""
        columns, self._label_column = self.options.columns, label_column
        own = [path_column, *([] if label_column is None else [label_column])]
        needed = [*own, *(spec.column for spec in columns)]
        _require_columns(self.table, header, own, [spec.column for spec in columns])
        self.unused = [name for name in header if name not in needed]
        self.readings = [reading_of(spec, self.table) for spec in columns]
        for chunk in self.table.chunks(needed):
            self.lines.extend(chunk.lines)
            self._count = len(self.lines)
            self._add_names(chunk.columns[path_column], chunk.lines)
            if label_column is not None:
                self.labels.extend(self._labels(chunk.columns[label_column], chunk.lines))
            for reading in self.readings:
                reading.add(chunk.columns[reading.spec.column], chunk.lines)
        for reading in self.readings:
            reading.finish()
        if joined := self.table.joined:
            self.notes.append(
                f"{len(joined):,} paths contain the column separator, such as {printable(joined[0])!r}; they are read "
                "as paths of existing images"
            )

    def match(self, present: TreeImages) -> None:
        """Replace each name that is not an image by the name of the file that it matches."""
        unknown = {name for name in set(self.names) - present.images if name and not present.has(name)}
        unknown |= self._outside
        missing = {row: name for row, name in enumerate(self.names) if name in unknown} if unknown else {}
        if missing:
            free = present.images.difference(self.names)
            matched = FileMatcher(free, missing, alone=len(missing) == len(self.names))
            for row, name in matched.found.items():
                self.names[row] = name
            for row, files in matched.several.items():
                which = ", ".join(map(printable, files[:3])) + (", …" if len(files) > 3 else "")
                self.leave_out(
                    row, f"{printable(self.names[row])} matches {len(files)} images: {which}. Name one of them."
                )
            self.notes += matched.notes()
        for row in missing:
            if self.names[row] in self._outside:
                self.leave_out(row, _outside(self.names[row]))

    def columns(self) -> list[TableColumn]:
        """Return the columns of the fields, for the rows that were not left out; paths are relative to the root."""
        columns = [reading.column(self.root) for reading in self.readings]
        if self._remaining is None:
            return columns
        return [column.taken(np.array(self._remaining, np.int64)) for column in columns]

    def files(self, columns: Iterable[Column]) -> dict[str, str]:
        """Return the paths below the root that these columns name, each with the image of its row."""
        return {
            path: name
            for column in columns
            if isinstance(column, FileColumn)
            for name, path in zip(self.names, paths_inside(self.root, column.names()), strict=True)
            if path
        }

    def require_sound(self) -> None:
        """Drop the rows that were left out; raise SourceError if no row remains, or if two rows name the same image."""
        self.drop_left()
        if not self.names:
            first = (
                f" that can be used: {self.table.bad.found[0]['reason'].rstrip('.')}" if self.table.left else " in it"
            )
            raise SourceError(f"{printable(self.table.path)}: no rows{first}. Each row must name an image.")
        if len(set(self.names)) == len(self.names):
            return
        seen: dict[str, int] = {}
        columns = self.columns()
        for row, name in enumerate(self.names):
            first_row = seen.setdefault(name, row)
            if first_row != row:
                self._repeated(row, first_row, columns)
        self.require_sound()

    def leave_out_unusable(self) -> None:
        """Leave out the rows with unusable labels, if the user allows this."""
        if self._label_column is None or not self.table.bad.skip:
            return
        while unusable := list(self._label_texts().unusable()):  # again: without these rows all labels may be numbers
            for row, error in unusable:
                self.table.leave_out(self.lines[row], error)
            self.require_sound()

    def drop_left(self) -> None:
        """Remove the rows with errors from this table, and add the names of their images to the skipped samples.

        An image is added only once, and only if no other row has it.
        """
        left = self.table.left
        if not left:
            return
        named = [(line, name) for line, name in zip(self.lines, self.names, strict=False) if name]
        elsewhere = {name for line, name in named if line not in left}
        for line, name in named:
            if line in left:
                self.left[line] = name
                if name not in elsewhere:
                    left[line]["name"] = storable(name)
                    elsewhere.add(name)
        remaining = [row for row, line in enumerate(self.lines) if line not in left]
        if len(remaining) < len(self.lines):
            self._keep(remaining)
            self._remaining = remaining if self._remaining is None else [self._remaining[row] for row in remaining]

    def meaning(self, header: Sequence[str]) -> Meaning:
        """Interpret the labels; without a label column all are -1. Raises the same errors as `LabelTexts`."""
        if self._label_column is None:
            return Meaning(np.full(len(self.names), UNLABELED, np.int64))
        if not any(self.labels):
            self._require_labels(header, self._label_column)
        return self._label_texts().meaning(self.table.bad)

    def _label_texts(self) -> LabelTexts:
        return LabelTexts(self.labels, self.options.label_type, self.options.classes, self._refused_label, self._count)

    def members(self, meaning: Meaning, account: Account, notes: Iterable[str]) -> dict[str, Any]:
        """Return the attributes of a source with these rows, except its fields, as keyword arguments."""
        account.not_looked_at("column", NO_COLUMN, self.unused)
        return {
            "kind": "csv",
            "root": self.root,
            "names": Names.of(self.names),
            "labels": meaning.labels,
            "classes": meaning.classes,
            "notes": [*notes, *self.notes, *meaning.notes],
            "label_type": meaning.label_type,
            "lines": np.array(self.lines, np.int64),
            "doubts": tuple(self.table.bad.found),
            "account": account,
        }

    def _require_labels(self, header: Sequence[str], label_column: str) -> None:
        """For a table in which no row has a label: raise SourceError if another column looks like labels."""
        for name in header:
            if name != label_column and has_label_name(name):
                raise SourceError(
                    f"{printable(self.table.path)}: all labels in the column {printable(label_column)!r} are missing, "
                    f"and {printable(name)!r} looks like labels: pass "
                    f"{option('label_column', shlex.quote(printable(name)))}; or "
                    f"{option('no_classes', True)} for images without labels"
                )

    def _refused_label(self, row: int | None, problem: str) -> SourceError:
        """Return the error about the label of a row, or about all labels if `row` is None."""
        if row is None:
            return SourceError(f"{printable(self.table.path)}: {problem}")
        problem = problem.replace("Pass ", f"Pass {self.table.read_by}")
        return self.refused(row, f"the label {quoted(self.labels[row])} {problem}")

    def refused(self, row: int, problem: str) -> SourceError:
        """Return the error about a row; the message names the table and the line."""
        return self.table.refused(self.lines[row], problem)

    def leave_out(self, row: int, problem: str) -> None:
        """Leave a row out, or raise the error about it."""
        self.table.leave_out(self.lines[row], self.refused(row, problem))

    def _keep(self, rows: Sequence[int]) -> None:
        """Drop all rows except those with these indices."""
        self.lines = array("q", (self.lines[row] for row in rows))
        self.names = [self.names[row] for row in rows] if self.names else []
        self.labels = [self.labels[row] for row in rows] if self.labels else []

    def _repeated(self, row: int, first: int, columns: Sequence[TableColumn]) -> None:
        """Leave out row `row`, because row `first` names the same image. If the two rows differ, leave out both.

        Raise the error if unusable rows are errors.
        """
        left = self.table.left
        if self.lines[first] in left:
            left[self.lines[row]] = left[self.lines[first]]
            return
        differs = bool(self.labels) and self.labels[row] != self.labels[first]
        if differs:
            one, other = quoted(self.labels[first]), quoted(self.labels[row])
            problem = (
                f", with another label ({one}, {other}). An image can have only one label. If it has several labels, "
                "put all labels of an image into one row, separated by semicolons, and read them as a field: "
                f"{option('columns', 'NAME=COLUMN:labels')} {option('no_classes', True)}"
            )
        else:
            problem = (
                ". Remove one of the rows; or if each row has a box of the image, put all boxes of an image into one "
                f"row, as a list of lists, and read them as a field: {option('columns', 'boxes=COLUMN:boxes')}"
            )
        also = f"also in {self.table.unit} {self.lines[first]}"
        self.leave_out(row, f"{printable(self.names[row])} is named twice, {also}{problem}")
        if differs or any(column.get(row) != column.get(first) for column in columns):
            left[self.lines[first]] = left[self.lines[row]]

    def _add_names(self, cells: Cells, lines: Sequence[int]) -> None:
        for cell, line in zip(cells, lines, strict=True):
            name = cell if isinstance(cell, str) else self._name_of(cell)
            if not name:
                missing = "the path is missing" if cell is None or cell == "" else f"{printable(cell)} is not a path"
                self.table.leave_out(line, self.table.refused(line, missing))
            if name and not name.endswith(self.options.suffix):
                name += self.options.suffix
            plain = name.isascii() and "/." not in f"/{name}" and _PLAIN.fullmatch(name)
            if name and not plain:
                name = self._relative(name)
            self.names.append(name)

    def _name_of(self, cell: Any) -> str:
        """Return a cell that is a whole number as text, because it is an id; empty if the cell is anything else."""
        return str(cell) if isinstance(cell, (int, np.integer)) and not isinstance(cell, bool) else ""

    def _relative(self, name: str) -> str:
        """Return a path relative to the source; record a path outside of the source, and return it unchanged."""
        path = PurePosixPath(name.replace(os.sep, "/"))
        if os.path.isabs(name):
            for top in self._tops:
                if Path(name).is_relative_to(top):
                    path = PurePosixPath(Path(name).relative_to(top).as_posix())
                    break
        if name_problem(str(path)) or PureWindowsPath(name).drive:
            self._outside.add(name)
            return name
        return str(path)

    def _labels(self, cells: Cells, lines: Sequence[int]) -> Iterable[str]:
        listed: Iterable[Any] = cells.tolist() if isinstance(cells, np.ndarray) else cells
        for cell, line in zip(listed, lines, strict=True):
            label = "" if cell is None else str(cell)
            if isinstance(cell, (bool, list, dict, bytes)) or not _is_text(label):
                problem = (
                    f"the label {quoted(label)} is neither text nor a number. To read lists as a field, pass "
                    f"{self.table.read_by}{option('columns', f'NAME={self._label_column}:labels')} "
                    f"{option('no_classes', True)}."
                )
                self.table.leave_out(line, self.table.refused(line, problem))
            if not label.strip():
                label = ""
                if not self.options.unlabeled:
                    problem = (
                        f"the label is missing. Pass {option('unlabeled', True)} to keep such rows, with the label -1."
                    )
                    self.table.leave_out(line, self.table.refused(line, problem))
            yield label


def _is_text(label: str) -> bool:
    try:
        label.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _outside(name: str) -> str:
    """Return the message about a path outside of the source."""
    problem = f"{printable(name)} is not a path inside SRC"
    if os.path.isabs(name) or PureWindowsPath(name).drive:
        problem += ". It is an absolute path, perhaps of another machine: paths must be relative to SRC or below it"
    return problem


def _require_header(table: LabelTable, header: Sequence[str], path_column: str, present: TreeImages) -> None:
    """Raise SourceError if the header names an image: then it is probably the first row of a table without a header."""
    if not table.of_texts or not table.has_header:
        return
    cells = [cell for name in header for cell in ([name] if len(header) > 1 else _WORDS.split(name))]
    suspects = [path_column] if path_column in header else cells
    if not any(present.may_be(cell) for cell in suspects):
        return
    others = [delimiter for delimiter in ",;\t| " if len(header) == 1 and delimiter in header[0]]
    delimited = f" {option('delimiter', _quoted(others[0]))}" if others else ""
    cells = _with_whole_image(cells, others[0], present) if others else cells
    number = next(number for number, cell in enumerate(cells, 1) if present.may_be(cell))
    label = next((str(at) for at in range(1, len(cells) + 1) if at != number), "2")
    raise SourceError(
        f"{printable(table.path)}: the first line, {some_columns([repr(name) for name in header])}, looks like a row "
        f"and not like a header: {printable(cells[number - 1])} names an image, which would be lost. If there is no "
        f"header, pass {option('no_header', True)}{delimited} and name columns by their numbers: "
        f"{option('path_column', str(number))} {option('label_column', label)}"
    )


def _with_whole_image(cells: Sequence[str], delimiter: str, present: TreeImages) -> list[str]:
    """Join neighbouring cells if they form the path of an existing image; of several paths, choose the longest."""
    parts = [(start, end) for start in range(len(cells)) for end in range(start + 1, len(cells) + 1)]
    for start, end in sorted(parts, key=lambda part: part[0] - part[1]):
        if present.has(name := delimiter.join(cells[start:end])):
            return [*cells[:start], name, *cells[end:]]
    return list(cells)


def _require_columns(table: LabelTable, present: Sequence[str], own: Sequence[str], fields: Sequence[str]) -> None:
    """Raise SourceError if the column of the paths, of the labels or of a field is missing or occurs twice."""
    columns = some_columns([repr(name) for name in present[: _SHOWN + 1]])
    shown = printable(table.path)
    for column in [*own, *fields]:
        if column not in present:
            others = [delimiter for delimiter in ",;\t| " if len(present) == 1 and delimiter in present[0]]
            advice = (
                f"name the columns with {option('path_column')} and {option('label_column')}{_such_as(present, own)}."
            )
            if others:
                advice = f"if they are separated by {others[0]!r}, pass {option('delimiter', _quoted(others[0]))}."
            elif column not in own:
                advice = f"name the column with {option('columns')} NAME=COLUMN:KIND."
            raise SourceError(f"{shown}: no column {column!r}. It has {columns}; {advice}")
        if present.count(column) > 1:
            raise SourceError(f"{shown}: {present.count(column)} columns have the name {column!r}. Rename one.")


def _such_as(present: Sequence[str], own: Sequence[str]) -> str:
    """Return the end of a message: an example of options, with columns whose names sound like paths and labels."""
    paths = [name for name in present if name in own[:1] or _PATHS.fullmatch(name)]
    labels = [name for name in present if name in own[1:] or has_label_name(name)]
    labels = labels or [name for name in present if name not in paths[:1]] if len(present) == 2 else labels
    words = [f"{option('path_column', shlex.quote(paths[0]))}"] if paths and paths[0] not in own else []
    if labels and len(own) > 1 and labels[0] not in own:
        words.append(f"{option('label_column', shlex.quote(labels[0]))}")
    return f", such as {printable(' '.join(words))}" if words else ""


def _quoted(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else f"'{delimiter}'"
