"""Read tables (CSV, JSON lines and Parquet), some thousand rows at a time, and make fields from their columns.

If the user does not give the kind of a column, the cells determine it: numbers, which are never rounded, text or JSON.
Files are UTF-8, with or without a byte order mark, or UTF-16 or UTF-32 with a byte order mark. Excel and Windows
Notepad write such marks, and Excel's "Unicode text" is UTF-16.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._fields import DTYPES, KINDS, OF_SCALARS, Field, Stored
from packer._fields.encoding import parsed_json, short
from packer._sources.base import BlobColumn, FileColumn, NumberColumn, TableColumn
from packer._storage.safe_open import open_regular
from packer._table import encode_name
from packer.errors import MissingDependencyError, OptionError, SourceError, option, pip_install, printable

_HEAD = 16  # bytes for recognising a file
_MARKS = {  # UTF-32 comes first, because its mark begins with the mark of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NO_TEXT = {
    b"PK\3\4": "it is an Excel workbook or another zip archive. Save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "it is a workbook of an old version of Excel. Save the sheet as CSV (UTF-8)",
    b"\x1f\x8b": "it is compressed with gzip. Decompress it",
    b"PAR1": "it is Parquet. Give it the suffix .parquet",
    b"version https://": "it is a Git LFS pointer, not the file itself. Fetch the file: git lfs pull",
}


def encoding_of(data: bytes) -> str:
    """Return the encoding of a text that begins with these bytes, by its name in Python's `codecs`."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8-sig")


def text_of(data: bytes) -> str:
    """Decode the bytes of a whole file; UnicodeDecodeError, which is a ValueError, if they are not text."""
    return data.decode(encoding_of(data))


def file_text(path: Path) -> str:
    """Return the text of a file; OSError if it cannot be read, UnicodeDecodeError if it is not text."""
    with open(open_regular(path), "rb") as file:
        return text_of(file.read())


def what_else(data: bytes) -> str | None:
    """Return the type of a binary file and how to convert it, from the file's first bytes; None if it may be text."""
    for magic, problem in _NO_TEXT.items():
        if data.startswith(magic):
            return problem
    head = data[:_HEAD]
    if b"\0" in head and encoding_of(head) == "utf-8-sig":
        return "it contains NUL bytes: it may be UTF-16 without a byte order mark. Save it as UTF-8"
    return None


Cells = Sequence[Any] | npt.NDArray[Any]
"""The cells of a column: texts from CSV, Python values from other files, or an array of numbers if none is missing."""

_Row = TypeVar("_Row")
_CHUNK = 16384  # rows of a chunk
_SHOWN = 20  # columns that a message names
_MOST_OF_A_CELL = 1 << 26  # most characters of a cell
_AT_ONCE = 64  # rows that the CSV reader parses each time its limit is set
_LIMIT_LOCK = Lock()


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes
    ----------
    lines : sequence of int
        The number of the last line of each row; in Parquet, the number of the row, counted from 1.
    columns : mapping
        The cells of each requested column, by the column's name.
    """

    lines: Sequence[int]
    columns: Mapping[str, Cells]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for reading a table: which columns are read, and which rows are refused.

    Attributes
    ----------
    path_column, label_column : str, optional
        The columns of paths and labels; by default ``"path"`` and ``"label"``, or without a header ``"1"`` and ``"2"``.
    delimiter : str, optional
        The character that separates columns; by default a tab in a ``.tsv`` file, and a comma in any other file.
    label_type : {"class", "int", "float"}, optional
        See `packer._sources.labels.LabelTexts`.
    unlabeled : bool
        Whether rows without a label are kept, with the label -1.
    classes : sequence of str, optional
        Class names in the order of their ids. By default, labels that are whole numbers are ids; for names, the ids are
        the positions in sorted order.
    columns : sequence of ColumnSpec
        The columns that become fields.
    has_labels : bool
        Whether labels are read; otherwise all images have the label -1, and there are no classes.
    suffix : str
        The suffix to append to paths that do not end with it.
    has_header : bool
        Whether the first line names the columns.
    bad : BadSamples
        Collects the unusable rows; by default the first of them is an error.
    """

    path_column: str | None = None
    label_column: str | None = None
    delimiter: str | None = None
    label_type: str | None = None
    unlabeled: bool = False
    classes: Sequence[str] | None = None
    columns: Sequence[ColumnSpec] = ()
    has_labels: bool = True
    suffix: str = ""
    has_header: bool = True
    bad: BadSamples = field(default_factory=BadSamples)

    @property
    def path(self) -> str:
        """The name of the column of paths."""
        return self.path_column or ("path" if self.has_header else "1")

    @property
    def label(self) -> str:
        """The name of the column of labels."""
        return self.label_column or ("label" if self.has_header else "2")


class LabelTable(ABC):
    """A table in a file. Each call of `chunks` reads the file again.

    Attributes
    ----------
    path : Path
    unit : str
        The word for a row's number in messages, such as ``line``.
    of_texts : bool
        True if cells are texts; an empty cell is then a missing value.
    has_header : bool
        Whether the file contains the names of the columns.
    read_by : str
        For messages: the options with which a user can read this table, followed by a space. Empty if the user has
        passed them already.
    bad : BadSamples
        Collects unusable rows.
    left : dict of int to dict
        For each row that was left out, by its line: the row's entry in `bad`.
    joined : list of str
        The paths that contain the delimiter without quotes, found when the rows were last read.
    """

    unit = "line"
    of_texts = False
    has_header = True
    read_by = ""

    def __init__(self, path: Path, bad: BadSamples) -> None:
        self.path = path
        self.bad = bad
        self.left: dict[int, dict[str, str]] = {}
        self.joined: list[str] = []

    @abstractmethod
    def header(self) -> list[str]:
        """Return the names of the columns; SourceError if the file cannot be read."""

    @abstractmethod
    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield the rows, with these columns only; SourceError if the file cannot be read."""

    def leave_out(self, line: int, error: SourceError) -> None:
        """Leave a row out, or raise the error. Only the first call for a row has an effect."""
        if line not in self.left:
            self.left[line] = self.bad.add(f"{self.path.name}, {self.unit} {line}", error)

    def refused(self, line: int, problem: str) -> SourceError:
        """Return the error about a row; the message names the table and the line."""
        return SourceError(f"{printable(self.path)}, {self.unit} {line}: {problem}")

    def encoding(self, head: bytes) -> str:
        """Return the encoding of the file according to its first bytes; SourceError if the file is not text."""
        if problem := what_else(head):
            raise SourceError(f"{printable(self.path)}: {problem}.")
        return encoding_of(head)

    def unreadable(self, reason: object) -> SourceError:
        """Return the error about a file that cannot be read."""
        return SourceError(f"{printable(self.path)}: cannot be read: {printable(reason)}")


class CsvTable(LabelTable):
    """A CSV file in UTF-8, or in UTF-16 or UTF-32 with a byte order mark. Invalid UTF-8 bytes become surrogates.

    Columns without a header are called ``"1"``, ``"2"`` and so on.

    Parameters
    ----------
    path : Path
    options : TableOptions
    is_image : callable, optional
        Tells whether an image with a path exists. With this function, paths can contain the delimiter without quotes.
    """

    of_texts = True

    def __init__(self, path: Path, options: TableOptions, is_image: Callable[[str], bool] | None = None) -> None:
        super().__init__(path, options.bad)
        self._options, self._is_image = options, is_image
        self._delimiter = options.delimiter or default_delimiter(path)
        self.has_header = options.has_header

    def header(self) -> list[str]:
        for header, _, _ in self._rows():
            return header
        raise SourceError(f"{printable(self.path)}: the file is empty. Its first line names the columns.")

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        rows = self._rows()
        header, _, _ = next(rows, ([], None, 0))
        positions = [header.index(column) for column in columns] if header else []
        for some, lines in _by_chunks((row, line) for _, row, line in rows if row is not None):
            cells = list(zip(*some, strict=True))
            yield Chunk(lines, {column: cells[position] for column, position in zip(columns, positions, strict=True)})

    def _rows(self) -> Iterator[tuple[list[str], list[str] | None, int]]:
        """Yield the header, then each row that is not blank, padded to the header's length, with its line number.

        Each item is (header, row, line); the row of the first item is None.
        """
        try:
            with open(open_regular(self.path), "rb") as file:
                encoding = self.encoding(file.peek(64))
                errors = "surrogateescape" if encoding == "utf-8-sig" else "strict"
                text = io.TextIOWrapper(file, encoding, errors, newline="")
                yield from self._rows_in(_rows_of(csv.reader(text, delimiter=self._delimiter)))
        except (OSError, csv.Error, UnicodeError) as error:
            raise self.unreadable(getattr(error, "strerror", None) or error) from error

    def _rows_in(self, rows: Iterator[tuple[list[str], int]]) -> Iterator[tuple[list[str], list[str] | None, int]]:
        first, line = next(((row, line) for row, line in rows if row), ([], 0))
        if not first:
            return
        self.joined = []
        if not self.has_header:
            first = self._with_whole_path(first, None)
        header = first if self.has_header else [str(number) for number in range(1, len(first) + 1)]
        yield header, None, 0
        if not self.has_header:
            yield header, first, line
        for row, line in rows:
            if len(row) > len(header):
                row = self._with_whole_path(row, header)
            if len(row) != len(header) or not row[0].strip():
                if not any(map(str.strip, row)):  # a blank line, or a line that has only delimiters
                    continue
                if any(map(str.strip, row[len(header) :])):
                    self.leave_out(line, self._too_long(header, row, line))
                    continue
                row = [*row, *[""] * len(header)][: len(header)]
            yield header, row, line

    def _with_whole_path(self, row: list[str], header: list[str] | None) -> list[str]:
        """Join the cells of a path that contains the delimiter, if exactly one image has such a path."""
        column = self._options.path
        try:
            position = int(column) - 1 if header is None else header.index(column)
        except ValueError:
            return row
        if self._is_image is None or position < 0:
            return row
        ends = range(position + 1, len(row) + 1) if header is None else [position + 1 + len(row) - len(header)]
        joined = {end: self._delimiter.join(row[position:end]) for end in ends}
        images = [(end, path) for end, path in joined.items() if self._is_image(path + self._options.suffix)]
        if len(images) != 1:
            return row
        end, path = images[0]
        self.joined += [path] if end > position + 1 else []
        return [*row[:position], path, *row[end:]]

    def _too_long(self, header: list[str], row: list[str], line: int) -> SourceError:
        names = f"the header names {len(header)} columns" if self.has_header else f"the first row has {len(header)}"
        return self.refused(line, f"has {len(row)} cells, but {names}. Put cells that contain the delimiter in quotes.")


class JsonLines(LabelTable):
    """A file with a JSON object in each line, in the encodings of `CsvTable`. An absent member is the same as null."""

    def header(self) -> list[str]:
        names: dict[str, None] = {}
        for row, _ in self._rows():
            names.update(dict.fromkeys(row))
        if not names:
            raise SourceError(f"{printable(self.path)}: the file is empty. Each line must be one JSON object.")
        return list(names)

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        for rows, lines in _by_chunks(self._rows()):
            yield Chunk(lines, {column: [row.get(column) for row in rows] for column in columns})

    def _rows(self) -> Iterator[tuple[dict[str, Any], int]]:
        try:
            with open(open_regular(self.path), "rb") as file:
                lines: Iterable[bytes] = file
                if (encoding := self.encoding(file.peek(64))) != "utf-8-sig":
                    lines = map(str.encode, io.TextIOWrapper(file, encoding))
                for number, text in enumerate(lines, 1):
                    if text.strip():
                        try:
                            row = self._row(text, number)
                        except SourceError as error:
                            self.leave_out(number, error)
                        else:
                            yield row, number
        except (OSError, UnicodeError) as error:
            raise self.unreadable(getattr(error, "strerror", None) or error) from error

    def _row(self, text: bytes, number: int) -> dict[str, Any]:
        try:
            row = parsed_json(text.decode("utf-8-sig" if number == 1 else "utf-8"), infinite=True)
        except UnicodeDecodeError as error:
            raise self.refused(number, f"byte {error.start} is not UTF-8. Save the file as UTF-8.") from error
        except ValueError as error:
            raise self.refused(number, f"{printable(error)}. Each line must be one JSON object.") from error
        if not isinstance(row, dict):
            raise self.refused(number, 'is no JSON object. Each line is one, such as {"path": "a.jpg"}.')
        return row


class ParquetTable(LabelTable):
    """A Parquet file, read by pyarrow."""

    unit = "row"

    def header(self) -> list[str]:
        with self._opened() as file:
            return list(file.schema_arrow.names)

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        import pyarrow as pa

        first = 1
        with self._opened() as file:
            batches = file.iter_batches(batch_size=_CHUNK, columns=list(dict.fromkeys(columns)), use_threads=False)
            while True:
                try:
                    batch = next(batches, None)
                    if batch is None:
                        return
                    cells = {column: _arrow_cells(batch.column(column)) for column in columns}
                except (OSError, ValueError, pa.ArrowException) as error:
                    raise self.unreadable(error) from error
                if batch.num_rows:
                    yield Chunk(range(first, first + batch.num_rows), cells)
                first += batch.num_rows

    def _opened(self) -> Any:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise MissingDependencyError(
                f"{printable(self.path)}: Parquet needs pyarrow: {pip_install('parquet')}"
            ) from error
        try:
            os.close(open_regular(self.path))  # an error unless it is a file: pyarrow would wait for data from a FIFO
            return pq.ParquetFile(self.path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self.unreadable(getattr(error, "strerror", None) or error) from error


def open_table(path: Path, options: TableOptions, is_image: Callable[[str], bool] | None = None) -> LabelTable:
    """Open a table; the suffix determines its type: ``.jsonl``, ``.ndjson``, ``.parquet``, or else CSV.

    For `is_image`, see `CsvTable`.

    Raises
    ------
    OptionError
        If the file is not CSV, and an option that is only for CSV is set.
    """
    suffix = path.suffix.lower()
    if suffix not in (".jsonl", ".ndjson", ".parquet"):
        return CsvTable(path, options, is_image)
    if not options.has_header:
        raise OptionError(
            f"{option('no_header', True)} applies only to CSV: {printable(path)} contains the column names"
        )
    if options.delimiter is not None:
        raise OptionError(f"{option('delimiter')} applies only to CSV: {printable(path)} has no delimiter")
    return ParquetTable(path, options.bad) if suffix == ".parquet" else JsonLines(path, options.bad)


def default_delimiter(table: Path | None) -> str:
    """Return the default delimiter of a CSV file with this name."""
    return "\t" if table is not None and table.suffix.lower() == ".tsv" else ","


def some_columns(columns: Sequence[str]) -> str:
    """Format names of columns for messages."""
    return ", ".join(columns[:_SHOWN]) + (", …" if len(columns) > _SHOWN else "")


def _rows_of(reader: Any) -> Iterator[tuple[list[str], int]]:
    """Yield the rows of a `csv` reader, each with its line number.

    The reader needs a larger limit on the size of cells. This limit is global, so it is restored after every few rows.
    """
    while True:
        with _LIMIT_LOCK:
            before = csv.field_size_limit(_MOST_OF_A_CELL)
            try:
                some = [(row, reader.line_num) for row in islice(reader, _AT_ONCE)]
            finally:
                csv.field_size_limit(before)
        if not some:
            return
        yield from some


def _by_chunks(rows: Iterator[tuple[_Row, int]]) -> Iterator[tuple[list[_Row], Sequence[int]]]:
    """Yield lists of some thousand rows, each with the line numbers of its rows."""
    while some := list(islice(rows, _CHUNK)):
        yield [row for row, _ in some], array("q", (line for _, line in some))


def _arrow_cells(column: Any) -> Cells:
    import pyarrow.types

    kind = column.type
    if column.null_count == 0 and (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)):
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers
    listed: list[Any] = column.to_pylist()
    if pyarrow.types.is_date(kind) or pyarrow.types.is_time(kind) or pyarrow.types.is_timestamp(kind):
        return [None if cell is None else cell.isoformat() for cell in listed]
    if pyarrow.types.is_decimal(kind):  # float64 distinguishes all numbers of up to `sys.float_info.dig` digits
        made: type[float] | type[str] = float if kind.precision <= sys.float_info.dig else str
        return [None if cell is None else made(cell) for cell in listed]
    return listed


_WHOLE = re.compile(r"0|[1-9][0-9]*")
_LAST_ID = str(2**63 - 1)
_BETWEEN_LABELS = re.compile(r"[;|]")
_TRUTHS = {"true": 1, "1": 1, "false": 0, "0": 0}
_REMEDY = f"Correct the cell, or pass another kind with {option('columns')}."


@dataclass(frozen=True)
class ColumnSpec:
    """The user's declaration of a field that is read from a column of a table.

    Attributes
    ----------
    name, column : str
        The names of the field and the column.
    kind : str
    dtype : str
        The dtype of a scalar or an array; otherwise empty.
    rank : int, optional
        The number of axes of an array; by default the number of axes of the first value.
    """

    name: str
    column: str
    kind: str
    dtype: str = ""
    rank: int | None = None

    @classmethod
    def of(cls, declared: str) -> ColumnSpec:
        """Parse ``[NAME=]COLUMN:KIND[:DTYPE[:AXES]]``; OptionError if it is malformed. NAME is COLUMN by default."""
        mention = option("columns", repr(printable(declared)))
        name, sign, rest = declared.partition("=")
        parts = (rest if sign else declared).split(":")
        has_rank = len(parts) > 3 and parts[-3] == "array" and parts[-2] in DTYPES and parts[-1].isdecimal()
        rank = int(parts.pop()) if has_rank else None
        dtype = parts.pop() if len(parts) > 2 and parts[-1] in DTYPES and parts[-2] in ("scalar", "array") else ""
        if len(parts) < 2:
            raise OptionError(f"{mention} has no kind: pass NAME:KIND, such as 'caption:text' or 'age:float32'")
        kind = parts.pop()
        if kind in OF_SCALARS:
            kind, dtype = "scalar", kind
        column = ":".join(parts)
        try:
            if kind not in KINDS or (kind == "scalar" and not dtype):
                raise ValueError(f"a kind must be one of {', '.join([*OF_SCALARS, *list(KINDS)[1:]])}, not {kind!r}")
            dtype = dtype or KINDS[kind].dtype
            Field(name if sign else column, kind, dtype, rank or 0)
        except ValueError as error:
            raise OptionError(f"{mention}: {printable(error)}. 'NAME=COLUMN:KIND' gives another name.") from error
        return cls(name if sign else column, column, kind, dtype, rank)


class TableReading(ABC):
    """Builds a field from the cells of a column, chunk by chunk.

    Parameters
    ----------
    spec : ColumnSpec
    table : LabelTable
        The table of the cells; it determines how cells are parsed, and messages name it.
    """

    def __init__(self, spec: ColumnSpec, table: LabelTable) -> None:
        self.spec = spec
        self._table = table
        self._field = Field(spec.name, spec.kind, spec.dtype, spec.rank or 0)

    @abstractmethod
    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        """Add the next cells of the column; leave out rows with an invalid cell, or raise SourceError."""

    def finish(self) -> None:
        """When the column is complete, leave out rows whose cells turn out to be invalid, or raise SourceError."""

    @abstractmethod
    def column(self, root: Path) -> TableColumn:
        """Return the values of the field; paths of files are relative to `root`."""

    def _refused(self, line: int, problem: object) -> SourceError:
        reason = str(problem)
        where = f"column {printable(self.spec.column)!r}"
        if "UTF-8" in reason:
            return self._table.refused(line, f"{where}: the text is not UTF-8. Save the file as UTF-8.")
        stop = "" if reason.endswith(".") else "."
        return self._table.refused(line, f"{where}: {printable(reason)}{stop} {_REMEDY}")

    def _values(self, cells: Cells, lines: Sequence[int], value_of: Callable[[Any], Any]) -> Iterable[Any]:
        """Yield the result of `value_of` for each cell; None for a missing or invalid cell."""
        listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
        for cell, line in zip(listed, lines, strict=True):
            if cell is None or (self._table.of_texts and not cell.strip()):
                yield None
                continue
            try:
                yield value_of(cell)
            except (ValueError, TypeError, OverflowError) as error:
                self._table.leave_out(line, self._refused(line, error))
                yield None


class _Scalars(TableReading):
    """Converts cells to numbers: a chunk with one call of NumPy, or cell by cell if a cell is unusual."""

    def __init__(self, spec: ColumnSpec, table: LabelTable) -> None:
        super().__init__(spec, table)
        self._parts: list[npt.NDArray[Any]] = []
        self._nulls: list[npt.NDArray[np.bool_]] = []

    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        null = np.zeros(len(lines), bool)
        values = self._at_once(cells, null)
        if values is None:
            stored = list(self._values(cells, lines, lambda cell: self._field.encode(self._parsed(cell))))
            null = np.array([value is None for value in stored], bool)
            values = np.array([value or 0 for value in stored], DTYPES[self.spec.dtype])
        self._parts.append(values)
        self._nulls.append(null)

    def column(self, root: Path) -> TableColumn:
        return NumberColumn(self._field, np.concatenate(self._parts), np.concatenate(self._nulls))

    def _at_once(self, cells: Cells, null: npt.NDArray[np.bool_]) -> npt.NDArray[Any] | None:
        """Convert plain numbers, and mark missing cells in `null`; return None if any cell is unusual."""
        dtype, is_float = self.spec.dtype, self.spec.dtype.startswith("float")
        if dtype == "bool":
            return None
        if not isinstance(cells, np.ndarray):
            missing = "" if self._table.of_texts else None
            if missing in cells:
                null[:] = [cell == missing for cell in cells]
                cells = ["0" if cell == "" else 0 if cell is None else cell for cell in cells]
            if not self._table.of_texts and not set(map(type, cells)) <= ({int, float} if is_float else {int}):
                return None
            if self._table.of_texts and "_" in "".join(cells):
                return None
            try:
                cells = np.fromiter(map(float if is_float else int, cells), "<f8" if is_float else "<i8", len(cells))
            except (ValueError, OverflowError):
                return None
        return _cast(cells, dtype)

    def _parsed(self, cell: Any) -> Any:
        """Parse the number in a cell."""
        if not isinstance(cell, str):
            return cell
        text, dtype = cell.strip(), self.spec.dtype
        if not self._table.of_texts or "_" in text:
            raise ValueError(f"{text!r} is not a number")
        if dtype == "bool":
            if text.lower() not in _TRUTHS:
                raise ValueError(f"{text!r} is neither true nor false")
            return _TRUTHS[text.lower()]
        try:
            return float(text) if dtype.startswith("float") else int(re.sub(r"\.0*$", "", text))
        except ValueError:
            whole = "" if dtype.startswith("float") else "whole "
            raise ValueError(f"{text!r} is not a {whole}number. A missing value is an empty cell") from None


def _cast(numbers: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any] | None:
    """Convert numbers to a dtype; return None if a number does not fit the dtype, or is NaN."""
    if not dtype.startswith("float"):
        limits = np.iinfo(dtype)
        fits = numbers.dtype.kind in "iu" and (
            not len(numbers) or (int(numbers.min()) >= limits.min and int(numbers.max()) <= limits.max)
        )
        return numbers.astype(DTYPES[dtype]) if fits else None
    with np.errstate(over="ignore"):
        made = numbers.astype(DTYPES[dtype])
    fits = numbers.dtype.kind in "iuf" and not np.isnan(made).any()
    return made if fits and np.array_equal(np.isinf(made), np.isinf(numbers)) else None


class _Classes(TableReading):
    """Converts cells that contain one or more classes each.

    If all classes are whole numbers, the numbers are the ids. Otherwise the ids are positions in the sorted class
    names.
    """

    def __init__(self, spec: ColumnSpec, table: LabelTable) -> None:
        super().__init__(spec, table)
        self._numbers: dict[str, int] = {}  # a number for each distinct label, in the order of first occurrence
        self._codes = array("q")  # the numbers of the labels of all rows, one row after the other
        self._counts = array("q")  # the number of labels of each row, -1 if they are missing
        self._lines = array("q")

    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        several = self._field.is_blob
        values = self._values(cells, lines, self._several if several else lambda cell: [self._one(cell)])
        for labels in values:
            self._counts.append(-1 if labels is None else len(labels))
            for label in labels or ():
                self._codes.append(self._numbers.setdefault(label, len(self._numbers)))
        self._lines.extend(lines)

    def finish(self) -> None:
        if not self._are_ids:
            return
        large = {number: label for label, number in self._numbers.items() if _is_too_large(label)}
        lines = np.repeat(self._lines, np.maximum(self._counts, 0)) if large else ()
        for line, number in zip(lines, self._codes, strict=False):
            if number in large:
                shown = _shortened(large[number])
                problem = (
                    f"{shown} is not an id: if all labels are whole numbers, they are ids, and ids are at most "
                    f"{_LAST_ID}"
                )
                self._table.leave_out(int(line), self._refused(int(line), problem))

    @property
    def _are_ids(self) -> bool:
        return all(map(_WHOLE.fullmatch, self._numbers))

    def column(self, root: Path) -> TableColumn:
        names = [] if self._are_ids else sorted(self._numbers)
        ids = {name: number for number, name in enumerate(names)}
        if not names:
            ids = {label: 0 if _is_too_large(label) else int(label) for label in self._numbers}
        id_of = np.array([ids[label] for label in self._numbers] or [0], np.int64)
        codes, counts = np.frombuffer(self._codes, np.int64), np.frombuffer(self._counts, np.int64)
        flat = id_of[codes]
        field = Field(self.spec.name, self.spec.kind, classes=tuple(names))
        if field.is_blob:
            blob = np.frombuffer(flat.astype("<i8").tobytes(), np.uint8)
            return BlobColumn.packed(field, blob, np.where(counts < 0, counts, 8 * counts))
        values = np.zeros(len(counts), np.int64)
        values[counts > 0] = flat
        return NumberColumn(field, values, counts < 0)

    def _several(self, cell: Any) -> list[str]:
        if isinstance(cell, str):
            if not cell.strip().startswith("["):
                return [self._one(part) for part in _BETWEEN_LABELS.split(cell) if part.strip()]
            cell = parsed_json(cell)
        if not isinstance(cell, list):
            cell = [cell]
        return [self._one(part) for part in cell]

    def _one(self, cell: Any) -> str:
        if isinstance(cell, bool) or not isinstance(cell, (str, int)):
            raise ValueError(f"{cell!r} is not a label: labels are text or whole numbers")
        text = str(cell).strip()
        text.encode("utf-8")  # if this raises UnicodeEncodeError, the message mentions UTF-8
        if not text or re.fullmatch(r"-[0-9]+", text):
            raise ValueError(
                f"{text!r} is not a label: ids are 0 or more, and a missing label is an empty cell or null"
            )
        return text


def _is_too_large(digits: str) -> bool:
    """Tell whether a whole number with any number of digits is larger than the largest id."""
    return (len(digits), digits) > (len(_LAST_ID), _LAST_ID)


def _shortened(digits: str) -> str:
    return digits if len(digits) <= 40 else f"{digits[:20]}… ({len(digits)} digits)"


class _Blobs(TableReading):
    """Converts cells to values that are stored as bytes."""

    def __init__(self, spec: ColumnSpec, table: LabelTable) -> None:
        super().__init__(spec, table)
        self._blob = bytearray()
        self._sizes = array("q")
        self._ranked = KINDS[spec.kind].form != "array" or spec.rank is not None

    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        for stored in self._values(cells, lines, self._stored):
            self._blob += stored or b""
            self._sizes.append(-1 if stored is None else len(stored))

    def column(self, root: Path) -> TableColumn:
        return self._packed()

    def _packed(self) -> BlobColumn:
        blob, sizes = np.frombuffer(self._blob, np.uint8), np.frombuffer(self._sizes, np.int64)
        return BlobColumn.packed(self._field, blob, sizes)

    def _stored(self, cell: Any) -> Stored:
        if self._table.of_texts and self.spec.kind == "bytes":
            raise ValueError(
                f"a CSV file cannot contain bytes: pass {option('fields')} for separate files, or use Parquet"
            )
        if self._table.of_texts and KINDS[self.spec.kind].syntax != "text":
            cell = parsed_json(cell)
        if not self._ranked:
            self._field = Field(self.spec.name, "array", self.spec.dtype, np.asarray(cell).ndim)
            self._ranked = True
        return self._field.encode(cell)


class _Paths(_Blobs):
    """Collects cells that are paths of images or masks."""

    def column(self, root: Path) -> TableColumn:
        return FileColumn(self._field, root, self._packed())

    def _stored(self, cell: Any) -> Stored:
        if not isinstance(cell, str) or "\0" in cell:
            raise ValueError(f"{short(cell)} is not the path of a file")
        return encode_name(cell.replace(os.sep, "/"))  # UnicodeEncodeError is a ValueError


def reading_of(spec: ColumnSpec, table: LabelTable) -> TableReading:
    """Return the object that builds the field `spec` from the cells of its column."""
    kind = KINDS[spec.kind]
    if kind.has_classes:
        return _Classes(spec, table)
    readings: dict[str, type[TableReading]] = {"number": _Scalars, "pixels": _Paths}
    return readings.get(kind.form, _Blobs)(spec, table)


_FORMS = {
    "int64": re.compile(r"0|-?[1-9][0-9]{0,17}"),
    "float64": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
    "bool": re.compile(r"[Tt]rue|[Ff]alse"),
}
"""For each dtype, the form of its values as text. Leading zeros are not allowed: such a text may be a name."""

_INTEGER = re.compile(r"-?[0-9]{1,4000}")
_EXACT = 2**53  # float64 represents every whole number up to this one
_LARGE = "int64 beyond float64"
_WIDER = {
    frozenset(("int64", "float64")): "float64",
    frozenset(("int64", _LARGE)): _LARGE,
}
"""The kind of a column with cells of two kinds; for two kinds that are not listed it is JSON."""


def kinds_of(table: LabelTable, header: Sequence[str]) -> dict[str, str]:
    """Return the kind of each column's cells: a dtype, ``text``, ``json`` or ``bytes``; empty if all are null."""
    found: dict[str, str] = {}
    for chunk in table.chunks(header):
        for name, cells in chunk.columns.items():
            kind = _kind_of(cells, table.of_texts)
            before = found.setdefault(name, kind)
            if kind and before != kind:
                found[name] = kind if not before else _WIDER.get(frozenset((before, kind)), "json")
                if table.of_texts and found[name] == "json":
                    found[name] = "text"
    return {name: "int64" if kind == _LARGE else kind for name, kind in found.items()}


def _kind_of(cells: Cells, of_texts: bool) -> str:
    if isinstance(cells, np.ndarray):
        return "int64" if cells.dtype.kind in "iu" else "float64"
    if of_texts:
        there = [cell for cell in cells if cell.strip()]
        if not there:
            return ""
        matching = (kind for kind, form in _FORMS.items() if all(map(form.fullmatch, there)))
        kind = next(matching, "text")
        return _of_numbers(kind, (int(cell) for cell in there if len(cell) > 15 and _INTEGER.fullmatch(cell)), "text")
    types = set(map(type, cells)) - {type(None)}
    names = {bool: "bool", int: "int64", float: "float64", str: "text", bytes: "bytes"}
    if types in ({int}, {int, float}):
        kind = "float64" if float in types else "int64"
        return _of_numbers(kind, (cell for cell in cells if type(cell) is int), "json")
    return names.get(types.pop(), "json") if len(types) == 1 else "json" if types else ""


def _of_numbers(kind: str, whole: Iterable[int], exact: str) -> str:
    """Return `kind` for a column of numbers, or `exact` if `kind` would round one of the `whole` numbers."""
    most = max(map(abs, whole), default=0) if kind in ("int64", "float64") else 0
    if most <= _EXACT:
        return kind
    return _LARGE if kind == "int64" and most < 2**63 else exact
