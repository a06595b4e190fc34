"""A table in a file that names images, with labels and fields, instead of directories."""

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

from packer._account import Account, BadSamples, has_label_name
from packer._sample import IMAGE_SUFFIXES, UNLABELED
from packer._sources.base import Source
from packer._sources.beside import looked_up, paths_inside
from packer._sources.classlist import class_ids
from packer._sources.fieldvalues import Column, Files
from packer._sources.imagefolder import FilesOf, class_directories
from packer._sources.labels import Meaning, meaning_of, quoted, unusable_labels
from packer._sources.tablecolumns import ColumnSpec, Reading, reading_of
from packer._sources.tablenames import FileNames
from packer._sources.tables import Cells, Images, Table, open_table, some_columns
from packer._sources.walking import ImageRule, Walk
from packer._storage.paths import name_problem
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = ["NO_COLUMN", "Rows", "TreeImages", "csv_source"]

NO_COLUMN = "no --column takes it"
"""What an account says of a column that is not read."""

_SHOWN = 20  # columns in a message
_PLAIN = re.compile(r"[^/\0:\\]+(/[^/\0:\\]+)*")
_PATH, _LABEL = "path", "label"
_PATHS = re.compile(r".*(path|file|name|image|img|id)s?", re.IGNORECASE)
_WORDS = re.compile(r"[,;\t| ]")


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
    suffix: str | None = None,
    has_header: bool = True,
    bad: BadSamples | None = None,
) -> Source:
    """List the images that a table names, in its order.

    Parameters
    ----------
    root : Path
        The paths are relative to `root`, or absolute and below it.
    table : Path
        A CSV file in UTF-8, with a header line; or ``.jsonl``, or ``.parquet``.
    path_column, label_column : str, optional
        What the two columns are called; by default ``"path"`` and ``"label"``, and ``"1"`` and ``"2"`` without a
        header. Where `columns` are wanted and there is
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
    suffix : str, optional
        What the paths lack at their end.
    has_header : bool
        Whether the first line names the columns.
    bad : BadSamples, optional
        Takes the rows that cannot be used; by default the first of them is an error.

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
    rows = Rows(root, open_table(table, delimiter, bad, has_header=has_header), unlabeled, suffix or "")
    present = TreeImages(root)
    path, own_label = (_PATH, _LABEL) if has_header else ("1", "2")
    rows.table.images = Images(path_column or path, lambda name: present.has(name + (suffix or "")))
    header = rows.table.header()
    said, labels = label_column is not None, label_column or own_label
    by_directory = has_labels and bool(columns) and not said and labels not in header
    _require_header(rows.table, header, path_column or path, present)
    rows.read(header, path_column or path, labels if has_labels and not by_directory else None, columns)
    rows.match(present)
    rows.settle()
    rows.require_sound()
    if has_labels and not by_directory and rows.table.bad.skip:
        for row, error in unusable_labels(rows.labels, label_type, classes, rows.refused_label):
            rows.table.leave_out(rows.lines[row], error)
        rows.settle()
        rows.require_sound()
    made = rows.columns(root)
    files = [column for column in made if isinstance(column, Files)]
    own = [path for column in files for path in paths_inside(root, column.names())]
    own += files_of(rows.names) if files_of is not None else ()
    if by_directory:
        meaning = _by_directory(rows, classes, own)
    elif has_labels:
        rows.require_labels(header, labels)
        meaning = meaning_of(rows.labels, label_type, classes, rows.refused_label, rows.table.bad)
    else:
        meaning = Meaning(np.full(len(rows.names), UNLABELED, np.int64))
    account = Account()
    unnamed = sorted(present.images.difference(rows.names, own, (one["name"] for one in rows.table.left.values())))
    account.left_out("image", "the table does not name it", unnamed)
    account.not_looked_at("column", NO_COLUMN, rows.unused)
    source = Source(
        "csv",
        root,
        Names.of(rows.names),
        meaning.labels,
        meaning.classes,
        [*present.notes, *rows.notes, *meaning.notes],
        label_type=meaning.label_type,
        lines=np.array(rows.lines, np.int64),
        doubts=tuple(rows.table.bad.found),
        account=account,
    )
    source = source.having(*(column for column in made if not isinstance(column, Files)))
    return looked_up(source, files, on_missing, skip=rows.table.bad.skip) if files else source


class TreeImages:
    """The images below a directory, listed once.

    Parameters
    ----------
    root : Path
    known : iterable of str, optional
        The images, where they are listed already.

    Attributes
    ----------
    notes : list of str
        Why the images are not known, where the directory cannot be listed.
    """

    def __init__(self, root: Path, known: Iterable[str] | None = None) -> None:
        self._root = root
        self._known = known
        self.notes: list[str] = []

    @cached_property
    def images(self) -> frozenset[str]:
        """The paths of the images, relative to the directory; empty where it cannot be listed."""
        if self._known is not None:
            return frozenset(self._known)
        try:
            return frozenset(Walk(self._root, ImageRule()).all_images())
        except (SourceError, OSError) as error:
            self.notes.append(f"which images the table does not name is not known: {error}")
            return frozenset()

    def has(self, name: str) -> bool:
        """Tell whether there is a file of this name."""
        return name in self.images or os.path.isfile(os.path.join(self._root, name))

    def may_be(self, cell: str) -> bool:
        """Tell whether a cell names an image: one that is there, as a name or an id, or by its suffix."""
        if cell.lower().endswith(IMAGE_SUFFIXES) or (cell and self.has(cell)):
            return True
        return bool(cell) and any(name.rpartition("/")[2].startswith(f"{cell}.") for name in self.images)


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
    suffix : str
        What the paths lack at their end.

    Attributes
    ----------
    names, labels : list of str
    readings : list of Reading
        The values of fields.
    notes : list of str
    unused : list of str
        The columns that are not read.
    """

    def __init__(self, root: Path, table: Table, unlabeled: bool, suffix: str = "") -> None:
        self.root = root
        self.table = table
        self._tops = os.path.abspath(root), os.path.realpath(root)
        self._unlabeled = unlabeled
        self._suffix = suffix
        self._outside: set[int] = set()  # rows whose paths are none inside the root
        self._kept: list[int] | None = None  # rows of the table, where not all of them are kept
        self.lines = array("q")
        self.names: list[str] = []
        self.labels: list[str] = []
        self.readings: list[Reading] = []
        self.notes: list[str] = []
        self.unused: list[str] = []

    def read(
        self, header: Sequence[str], path_column: str, label_column: str | None, columns: Sequence[ColumnSpec] = ()
    ) -> None:
        """Read all rows; the labels where `label_column` is a column."""
        own = [path_column, *([] if label_column is None else [label_column])]
        wanted = [*own, *(spec.column for spec in columns)]
        _require_columns(self.table, header, own, [spec.column for spec in columns])
        self.unused = [name for name in header if name not in wanted]
        self.readings = [reading_of(spec, self.table) for spec in columns]
        for chunk in self.table.chunks(wanted):
            self.lines.extend(chunk.lines)
            self._add_names(chunk.columns[path_column], chunk.lines)
            if label_column is not None:
                self.labels.extend(self._labels(chunk.columns[label_column], chunk.lines))
            for reading in self.readings:
                reading.add(chunk.columns[reading.spec.column], chunk.lines)
        if joined := self.table.joined:
            self.notes.append(
                f"{len(joined):,} paths hold the character that separates columns, such as {printable(joined[0])!r}, "
                "and are images that are there"
            )

    def match(self, present: TreeImages) -> None:
        """Give images the names of their files, where the table writes these otherwise."""
        unknown = {name for name in set(self.names) - present.images if name and not present.has(name)}
        rows = enumerate(self.names) if unknown or self._outside else ()
        missing = {row: name for row, name in rows if row in self._outside or name in unknown}
        if missing:
            free = present.images.difference(self.names)
            matched = FileNames(free, missing, alone=len(missing) == len(self.names))
            for row, name in matched.found.items():
                self.names[row] = name
            for row, files in matched.several.items():
                which = ", ".join(map(printable, files[:3])) + (", …" if len(files) > 3 else "")
                self.leave_out(
                    row, f"{printable(self.names[row])} fits {len(files)} images: {which}. Name one of them."
                )
            self.notes += matched.notes()
            self._outside -= matched.found.keys()
        for row in sorted(self._outside):
            self.leave_out(row, _outside(self.names[row]))
        self._outside.clear()

    def settle(self) -> bool:
        """Forget the rows that were left out; tell whether there were any."""
        if not self.table.left:
            return False
        kept = [row for row, line in enumerate(self.lines) if line not in self.table.left]
        for line, name in zip(self.lines, self.names, strict=False):
            if name and line in self.table.left:
                self.table.left[line]["name"] = name
        if len(kept) == len(self.lines):
            return False
        self._keep(kept)
        self._kept = kept if self._kept is None else [self._kept[row] for row in kept]
        self.lines = array("q", (self.lines[row] for row in kept))
        return True

    def columns(self, root: Path) -> list[Column]:
        """Return the values of the fields; the paths of files are relative to `root`."""
        made = [reading.column(root) for reading in self.readings]
        return made if self._kept is None else [column.taken(np.array(self._kept, np.int64)) for column in made]

    def require_sound(self) -> None:
        """Raise SourceError where there are no rows, or two name one image."""
        if not self.names:
            first = f" that can be used: {self.table.bad.found[0]['reason']}" if self.table.left else " in it"
            raise SourceError(f"{printable(self.table.path)}: no rows{first}. Each row names an image.")
        if len(set(self.names)) == len(self.names):
            return
        seen: dict[str, int] = {}
        for row, name in enumerate(self.names):
            first_row = seen.setdefault(name, row)
            if first_row != row:
                self._repeated(row, first_row)
        self.settle()

    def require_labels(self, header: Sequence[str], label_column: str) -> None:
        """Raise SourceError where no row has a label, and another column looks like labels."""
        if any(self.labels):
            return
        for name in header:
            if name != label_column and has_label_name(name):
                raise SourceError(
                    f"{printable(self.table.path)}: all labels in the column {printable(label_column)!r} are missing, "
                    f"and {printable(name)!r} looks like labels: say --label-column {shlex.quote(printable(name))}; or "
                    "--no-classes for images without labels"
                )

    def refused_label(self, row: int | None, problem: str) -> SourceError:
        """Return the error on the label of a row, or on all labels."""
        if row is None:
            return SourceError(f"{printable(self.table.path)}: {problem}")
        return self.refused(row, f"the label {quoted(self.labels[row])} {problem}")

    def refused(self, row: int, problem: str) -> SourceError:
        """Return the error on a row."""
        return self.table.refused(self.lines[row], problem)

    def leave_out(self, row: int, problem: str) -> None:
        """Leave a row out, or raise the error on it."""
        self.table.leave_out(self.lines[row], self.refused(row, problem))

    def _keep(self, rows: Sequence[int]) -> None:
        """Keep some rows."""
        self.names = [self.names[row] for row in rows] if self.names else []
        self.labels = [self.labels[row] for row in rows] if self.labels else []

    def _repeated(self, row: int, first: int) -> None:
        """Leave out a second row of an image, with the first where they contradict each other; or raise the error."""
        left = self.table.left
        if self.lines[first] in left:
            left[self.lines[row]] = left[self.lines[first]]
            return
        named = f"{printable(self.names[row])} is named twice: {self.table.unit} {self.lines[first]} names it too"
        if self.labels and self.labels[row] != self.labels[first]:
            one, other = quoted(self.labels[first]), quoted(self.labels[row])
            self.leave_out(
                row,
                f"{named}, with another label ({one}, {other}). An image has one label here. Where it has several "
                "labels, put all labels of one image into one row with semicolons between them, and take them as a "
                "field: --column NAME=COLUMN:labels --no-classes",
            )
            left[self.lines[first]] = left[self.lines[row]]
            return
        self.leave_out(
            row,
            f"{named}. Leave one of the rows out; or where each row has a box of the image, put all its boxes into one "
            "row, as a list of lists, and take them as a field: --column boxes=COLUMN:boxes",
        )

    def _add_names(self, cells: Cells, lines: Sequence[int]) -> None:
        for cell, line in zip(cells, lines, strict=True):
            name = cell if isinstance(cell, str) else self._name_of(cell)
            if not name:
                missing = "the path is missing" if cell is None or cell == "" else f"{printable(cell)} is no path"
                self.table.leave_out(line, self.table.refused(line, missing))
            if self._suffix and name and not name.endswith(self._suffix):
                name += self._suffix
            plain = name.isascii() and "/." not in f"/{name}" and _PLAIN.fullmatch(name)
            if name and not plain:
                name = self._relative(name)
            self.names.append(name)

    def _name_of(self, cell: Any) -> str:
        """Return the name that a number is, as of ids in JSON or Parquet; an empty one where it is none."""
        return str(cell) if isinstance(cell, (int, np.integer)) and not isinstance(cell, bool) else ""

    def _relative(self, name: str) -> str:
        """Return a path relative to the source; of one that is none inside, take that down."""
        path = PurePosixPath(name.replace(os.sep, "/"))
        if os.path.isabs(name):
            for top in self._tops:
                if Path(name).is_relative_to(top):
                    path = PurePosixPath(Path(name).relative_to(top).as_posix())
                    break
        if name_problem(str(path)) or PureWindowsPath(name).drive:
            self._outside.add(len(self.names))
            return name
        return str(path)

    def _labels(self, cells: Cells, lines: Sequence[int]) -> Iterable[str]:
        listed: Iterable[Any] = cells.tolist() if isinstance(cells, np.ndarray) else cells
        for cell, line in zip(listed, lines, strict=True):
            label = "" if cell is None else str(cell)
            if isinstance(cell, (bool, list, dict, bytes)) or not _is_text(label):
                problem = f"the label {quoted(label)} is neither text nor a number. Lists are fields: say --column."
                self.table.leave_out(line, self.table.refused(line, problem))
            if not label.strip():
                label = ""
                if not self._unlabeled:
                    problem = "the label is missing. Say --unlabeled to keep such rows, with the label -1."
                    self.table.leave_out(line, self.table.refused(line, problem))
            yield label


def _is_text(label: str) -> bool:
    try:
        label.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _outside(name: str) -> str:
    """Say what is wrong with a path that is none inside the source."""
    said = f"{printable(name)} is not a path inside SRC"
    if os.path.isabs(name) or PureWindowsPath(name).drive:
        said += ". It is absolute, as on the machine that wrote the table: paths are relative to SRC, or lie below it"
    return said


def _require_header(table: Table, header: Sequence[str], path_column: str, present: TreeImages) -> None:
    """Raise SourceError where the first line of a table without a header would be taken for one, and be lost."""
    if not table.of_texts or not table.has_header:
        return
    cells = [cell for name in header for cell in ([name] if len(header) > 1 else _WORDS.split(name))]
    suspects = [path_column] if path_column in header else cells
    if not any(present.may_be(cell) for cell in suspects):
        return
    others = [delimiter for delimiter in ",;\t| " if len(header) == 1 and delimiter in header[0]]
    delimited = f" --delimiter {_quoted(others[0])}" if others else ""
    cells = _with_whole_image(cells, others[0], present) if others else cells
    number = next(number for number, cell in enumerate(cells, 1) if present.may_be(cell))
    label = next((str(at) for at in range(1, len(cells) + 1) if at != number), "2")
    raise SourceError(
        f"{printable(table.path)}: the first line, {some_columns([repr(name) for name in header])}, looks like a row "
        f"and not like a header: {printable(cells[number - 1])} names an image, which would be lost. Where there is no "
        f"header, say --no-header{delimited}: columns are called by their numbers, --path-column {number} "
        f"--label-column {label}"
    )


def _with_whole_image(cells: Sequence[str], delimiter: str, present: TreeImages) -> list[str]:
    """Return the cells of a row, of which the longest that is an image may hold the delimiter."""
    parts = [(start, end) for start in range(len(cells)) for end in range(start + 1, len(cells) + 1)]
    for start, end in sorted(parts, key=lambda part: part[0] - part[1]):
        if present.has(name := delimiter.join(cells[start:end])):
            return [*cells[:start], name, *cells[end:]]
    return list(cells)


def _require_columns(table: Table, present: Sequence[str], own: Sequence[str], fields: Sequence[str]) -> None:
    """Raise SourceError where the path, the labels or a field has no column, or two have its name."""
    columns = some_columns([repr(name) for name in present[: _SHOWN + 1]])
    shown = printable(table.path)
    for column in [*own, *fields]:
        if column not in present:
            others = [delimiter for delimiter in ",;\t| " if len(present) == 1 and delimiter in present[0]]
            advice = f"say which with --path-column and --label-column{_such_as(present, own)}."
            if others:
                advice = f"if they are separated by {others[0]!r}, say --delimiter {_quoted(others[0])}."
            elif column not in own:
                advice = "'NAME=COLUMN:KIND' of --column says which one is meant."
            raise SourceError(f"{shown}: no column {column!r}. It has {columns}; {advice}")
        if present.count(column) > 1:
            raise SourceError(f"{shown}: {present.count(column)} columns have the name {column!r}. Rename one.")


def _such_as(present: Sequence[str], own: Sequence[str]) -> str:
    """Return an example of columns that may be meant: those that are named as paths and labels are."""
    paths = [name for name in present if name in own[:1] or _PATHS.fullmatch(name)]
    labels = [name for name in present if name in own[1:] or has_label_name(name)]
    labels = labels or [name for name in present if name not in paths[:1]] if len(present) == 2 else labels
    words = [f"--path-column {shlex.quote(paths[0])}"] if paths and paths[0] not in own else []
    if labels and len(own) > 1 and labels[0] not in own:
        words.append(f"--label-column {shlex.quote(labels[0])}")
    return f", such as {printable(' '.join(words))}" if words else ""


def _quoted(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else f"'{delimiter}'"
