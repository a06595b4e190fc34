"""A table in a file that names images, with labels and fields, instead of directories."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from packer._sample import UNLABELED
from packer._sources.base import Source
from packer._sources.beside import looked_up, paths_inside
from packer._sources.classlist import class_ids
from packer._sources.fieldvalues import Files
from packer._sources.imagefolder import FilesOf, class_directories
from packer._sources.labels import Meaning, meaning_of, quoted
from packer._sources.tablecolumns import ColumnSpec, Reading, reading_of
from packer._sources.tables import Cells, Table, open_table, some_columns
from packer._storage.paths import name_problem
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = ["Rows", "csv_source"]

_SHOWN = 20  # columns in a message
_PLAIN = re.compile(r"[^/\0:\\]+(/[^/\0:\\]+)*")
_PATH, _LABEL = "path", "label"


def csv_source(
    root: Path,
    table: Path,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    delimiter: str | None = None,
    label_type: str | None = None,
    unlabeled: bool = False,
    classes: Sequence[str] | None = None,
    columns: Sequence[ColumnSpec] = (),
    has_labels: bool = True,
    on_missing: str = "error",
    files_of: FilesOf | None = None,
) -> Source:
    """List the images that a table names, in its order.

    Parameters
    ----------
    root : Path
        The paths are relative to `root`, or absolute and below it.
    table : Path
        A CSV file in UTF-8, with a header line; or ``.jsonl``, or ``.parquet``.
    path_column, label_column : str, optional
        What the two columns are called; by default ``"path"`` and ``"label"``. Where `columns` are wanted and there is
        no column of labels, and nobody said its name, the directories are the classes, as for ImageFolder.
    delimiter : str, optional
        The character that separates columns; by default a tab in a ``.tsv`` file, and a comma in others.
    label_type : {"class", "int", "float"}, optional
        See `packer._sources.labels.meaning_of`.
    unlabeled : bool
        Whether rows without a label are kept, with the label -1.
    classes : sequence of str, optional
        Class names in the order of their ids. By default whole numbers are ids, and the ids of names follow the sorted
        names.
    columns : sequence of ColumnSpec
        The columns that become fields.
    has_labels : bool
        Whether labels are wanted; else all images have the label -1, and there are no classes.
    on_missing : {"error", "null", "skip"}
        What becomes of images without a file that a column names.
    files_of : callable, optional
        Which files belong to other fields, as for `imagefolder_source`.

    Raises
    ------
    SourceError
        If the file or a column is missing, a row has no label, names a path twice or one outside of `root`,
        has a label that is not in `classes`, or a cell is no value of its field; or if it cannot be known what the
        labels mean.
    MissingDependencyError
        If the file is Parquet, and pyarrow is not installed.
    """
    if not os.path.isdir(root):
        raise SourceError(f"{printable(root)}: no such directory")
    rows = Rows(root, open_table(table, delimiter), unlabeled)
    header = rows.table.header()
    said, labels = label_column is not None, label_column or _LABEL
    by_directory = has_labels and bool(columns) and not said and labels not in header
    rows.read(header, path_column or _PATH, labels if has_labels and not by_directory else None, columns)
    rows.require_sound()
    made = [reading.column(root) for reading in rows.readings]
    if by_directory:
        paths = [path for column in made if isinstance(column, Files) for path in paths_inside(root, column.names())]
        paths += files_of(rows.names) if files_of is not None else ()
        meaning = _by_directory(rows, classes, paths)
    elif has_labels:
        meaning = meaning_of(rows.labels, label_type, classes, rows.refused_label)
    else:
        meaning = Meaning(np.full(len(rows.names), UNLABELED, np.int64))
    notes = [*rows.notes, *meaning.notes]
    names = Names.of(rows.names)
    source = Source(
        "csv",
        root,
        names,
        meaning.labels,
        meaning.classes,
        notes,
        label_type=meaning.label_type,
        lines=np.array(rows.lines, np.int64),
    )
    source = source.having(*(column for column in made if not isinstance(column, Files)))
    files = [column for column in made if isinstance(column, Files)]
    return looked_up(source, files, on_missing) if files else source


def _by_directory(rows: Rows, classes: Sequence[str] | None, files: Iterable[str]) -> Meaning:
    """Return the classes and labels that ImageFolder gives images in such directories, without those of files alone."""
    folder_of = [name.partition("/")[0] if "/" in name else "" for name in rows.names]
    beside = {path.partition("/")[0] for path in files}.difference(folder_of)
    folders = [folder for folder in class_directories(rows.root) if folder not in beside]
    ids = class_ids(folders if classes is None else classes)
    if unknown := [at for at, folder in enumerate(folder_of) if folder not in ids]:
        raise rows.refused(
            unknown[0],
            f"{printable(rows.names[unknown[0]])} lies in no directory of a class, and there is no column {_LABEL!r}. "
            "Say which column has labels with --label-column, or --no-classes.",
        )
    return Meaning(np.array([ids[folder] for folder in folder_of], np.int64), classes=list(ids))


class Rows:
    """The rows of a table: the images' names, their labels as text, and the lines that the rows end in.

    Parameters
    ----------
    root : Path
    table : Table
    unlabeled : bool
        Whether rows may lack a label.

    Attributes
    ----------
    names, labels : list of str
    readings : list of Reading
        The values of fields.
    notes : list of str
    """

    def __init__(self, root: Path, table: Table, unlabeled: bool) -> None:
        self.root = root
        self.table = table
        self._tops = os.path.abspath(root), os.path.realpath(root)
        self._unlabeled = unlabeled
        self.lines = array("q")
        self.names: list[str] = []
        self.labels: list[str] = []
        self.readings: list[Reading] = []
        self.notes: list[str] = []

    def read(
        self, header: Sequence[str], path_column: str, label_column: str | None, columns: Sequence[ColumnSpec] = ()
    ) -> None:
        """Read all rows; the labels where `label_column` is a column."""
        own = [path_column, *([] if label_column is None else [label_column])]
        wanted = [*own, *(spec.column for spec in columns)]
        _require_columns(self.table.path, header, own, [spec.column for spec in columns])
        if unused := [name or "''" for name in header if name not in wanted]:
            said = "1 column of the file is" if len(unused) == 1 else f"{len(unused)} columns of the file are"
            self.notes.append(f"{said} not used: {some_columns([printable(name) for name in unused[: _SHOWN + 1]])}")
        self.readings = [reading_of(spec, self.table) for spec in columns]
        for chunk in self.table.chunks(wanted):
            self.lines.extend(chunk.lines)
            self._add_names(chunk.columns[path_column], chunk.lines)
            if label_column is not None:
                self.labels.extend(self._labels(chunk.columns[label_column], chunk.lines))
            for reading in self.readings:
                reading.add(chunk.columns[reading.spec.column], chunk.lines)

    def require_sound(self) -> None:
        """Raise SourceError where there are no rows, or two name one image."""
        if not self.names:
            raise SourceError(f"{printable(self.table.path)}: no rows in it. Each row names an image.")
        if len(set(self.names)) == len(self.names):
            return
        seen: set[str] = set()
        for row, name in enumerate(self.names):
            if name in seen:
                raise self.refused(row, f"{printable(name)} is named twice. Leave one of the rows out.")
            seen.add(name)

    def refused_label(self, row: int | None, problem: str) -> SourceError:
        """Return the error on the label of a row, or on all labels."""
        if row is None:
            return SourceError(f"{printable(self.table.path)}: {problem}")
        return self.refused(row, f"the label {quoted(self.labels[row])} {problem}")

    def refused(self, row: int, problem: str) -> SourceError:
        """Return the error on a row."""
        return self.table.refused(self.lines[row], problem)

    def _add_names(self, cells: Cells, lines: Sequence[int]) -> None:
        for name, line in zip(cells, lines, strict=True):
            if name is None or name == "":
                raise self.table.refused(line, "the path is missing")
            if not isinstance(name, str):
                raise self.table.refused(line, f"{printable(name)} is no path")
            plain = name.isascii() and "/." not in f"/{name}" and _PLAIN.fullmatch(name)
            self.names.append(name if plain else _relative(name, self._tops, self.table, line))

    def _labels(self, cells: Cells, lines: Sequence[int]) -> Iterable[str]:
        listed: Iterable[Any] = cells.tolist() if isinstance(cells, np.ndarray) else cells
        for cell, line in zip(listed, lines, strict=True):
            label = "" if cell is None else str(cell)
            if isinstance(cell, (bool, list, dict, bytes)) or not _is_text(label):
                raise self.table.refused(
                    line, f"the label {quoted(label)} is neither text nor a number. Lists are fields: say --column."
                )
            if not label.strip():
                label = ""
                if not self._unlabeled:
                    raise self.table.refused(
                        line, "the label is missing. Say --unlabeled to keep such rows, with the label -1."
                    )
            yield label


def _is_text(label: str) -> bool:
    try:
        label.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _require_columns(table: Path, present: Sequence[str], own: Sequence[str], fields: Sequence[str]) -> None:
    """Raise SourceError where the path, the labels or a field has no column, or two have its name."""
    columns = some_columns([repr(name) for name in present[: _SHOWN + 1]])
    for column in [*own, *fields]:
        if column not in present:
            others = [delimiter for delimiter in ",;\t|" if len(present) == 1 and delimiter in present[0]]
            advice = "say which with --path-column and --label-column."
            if others:
                advice = f"if they are separated by {others[0]!r}, say --delimiter {_quoted(others[0])}."
            elif column not in own:
                advice = "'NAME=COLUMN:KIND' of --column says which one is meant."
            raise SourceError(f"{printable(table)}: no column {column!r}. It has {columns}; {advice}")
        if present.count(column) > 1:
            raise SourceError(f"{printable(table)}: {present.count(column)} columns have the name {column!r}")


def _quoted(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else f"'{delimiter}'"


def _relative(name: str, tops: Sequence[str], table: Table, line: int) -> str:
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
        raise table.refused(line, f"{printable(name)} is not a path inside SRC")
    return str(path)
