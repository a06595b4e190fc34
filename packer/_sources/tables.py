"""Tables in files: CSV, one JSON object a line, and Parquet, some thousand rows at a time."""

from __future__ import annotations

import csv
import io
import os
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy.typing as npt

from packer._account import BadSamples
from packer._fields.values import parsed_json
from packer._sources.textfiles import encoding_of, what_else
from packer._storage.opening import open_regular
from packer.errors import MissingDependencyError, OptionError, SourceError, pip_install, printable

__all__ = ["Cells", "Chunk", "Images", "Table", "default_delimiter", "open_table", "some_columns"]

Cells = Sequence[Any] | npt.NDArray[Any]
"""The cells of a column: texts of a CSV file; else what Python has for them, or an array without missing values."""

_CHUNK = 16384  # rows
_SHOWN = 20  # columns in a message
_MOST_OF_A_CELL = 1 << 26  # characters
_AT_ONCE = 64  # rows
_LIMITING = Lock()


class Images(NamedTuple):
    """Which paths of a column are images that are there."""

    column: str
    has: Callable[[str], bool]


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, one or more.

    Attributes
    ----------
    lines : sequence of int
        The line that each row ends in; or the row's number from 1, in Parquet.
    columns : mapping
        The cells of the columns that were asked for.
    """

    lines: Sequence[int]
    columns: Mapping[str, Cells]


class Table(ABC):
    """A table in a file, which is read anew each time.

    Attributes
    ----------
    path : Path
    unit : str
        What a message calls a row's number.
    of_texts : bool
        Whether cells are texts, and an empty one is missing.
    has_header : bool
        Whether the file names the columns.
    bad : BadSamples
        What takes the rows that cannot be used.
    left : dict of int to dict
        The rows that were left out, by their lines, as `bad` has them.
    images : Images, optional
        Tells which paths are images, so that a path may hold the delimiter.
    joined : list of str
        The paths of the rows that were read last which hold the delimiter.
    """

    unit = "line"
    of_texts = False
    has_header = True

    def __init__(self, path: Path, bad: BadSamples | None = None) -> None:
        self.path = path
        self.bad = bad or BadSamples()
        self.left: dict[int, dict[str, str]] = {}
        self.images: Images | None = None
        self.joined: list[str] = []

    @abstractmethod
    def header(self) -> list[str]:
        """Return the names of the columns; SourceError where the file cannot be read."""

    @abstractmethod
    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield the rows, of some columns of the header; SourceError where the file cannot be read."""

    def leave_out(self, line: int, error: SourceError) -> None:
        """Leave a row out, which may have been left out before; or raise the error."""
        if line not in self.left:
            self.left[line] = self.bad.add(f"{self.path.name}, {self.unit} {line}", error)

    def refused(self, line: int, problem: str) -> SourceError:
        """Return the error on a row."""
        return SourceError(f"{printable(self.path)}, {self.unit} {line}: {problem}")

    def unreadable(self, reason: object) -> SourceError:
        """Return the error on the file."""
        return SourceError(f"{printable(self.path)}: cannot be read: {printable(reason)}")


class CsvTable(Table):
    """A CSV file in UTF-8, whose bytes that are no UTF-8 become surrogates; or in UTF-16 with a byte order mark.

    Parameters
    ----------
    path : Path
    delimiter : str, optional
    bad : BadSamples, optional
    has_header : bool
        Whether the first line names the columns; else these are called ``"1"``, ``"2"`` and so on.
    """

    of_texts = True

    def __init__(
        self, path: Path, delimiter: str | None = None, bad: BadSamples | None = None, *, has_header: bool = True
    ) -> None:
        super().__init__(path, bad)
        self._delimiter = delimiter or default_delimiter(path)
        self.has_header = has_header

    def header(self) -> list[str]:
        for header, _, _ in self._rows():
            return header
        raise SourceError(f"{printable(self.path)}: the file is empty. Its first line names the columns.")

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        rows: list[list[str]] = []
        lines = array("q")
        places: list[int] = []
        for header, row, line in self._rows():
            if row is None:
                places = [header.index(column) for column in columns]
                continue
            rows.append(row)
            lines.append(line)
            if len(rows) == _CHUNK:
                yield _chunk(columns, places, rows, lines)
                rows, lines = [], array("q")
        if rows:
            yield _chunk(columns, places, rows, lines)

    def _rows(self) -> Iterator[tuple[list[str], list[str] | None, int]]:
        """Yield the header alone; then with each row that is not blank, as long as the header, and its line."""
        try:
            with open(open_regular(self.path), "rb") as file:
                head = file.peek(64)
                if said := what_else(head):
                    raise SourceError(f"{printable(self.path)}: {said}.")
                encoding = encoding_of(head)
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
                if not any(map(str.strip, row)):  # a blank line, or one of delimiters alone
                    continue
                if any(map(str.strip, row[len(header) :])):
                    self.leave_out(line, self._too_long(header, row, line))
                    continue
                row = [*row, *[""] * len(header)][: len(header)]
            yield header, row, line

    def _with_whole_path(self, row: list[str], header: list[str] | None) -> list[str]:
        """Return a row whose path holds the delimiter, with its path whole, where exactly one image is called so."""
        if self.images is None:
            return row
        column, has = self.images
        try:
            place = int(column) - 1 if header is None else header.index(column)
        except ValueError:
            return row
        ends = range(place + 1, len(row) + 1) if header is None else [place + 1 + len(row) - len(header)]
        paths = {end: path for end in ends if 0 <= place < end and has(path := self._delimiter.join(row[place:end]))}
        if len(paths) != 1:
            return row
        ((end, path),) = paths.items()
        self.joined += [path] if end > place + 1 else []
        return [*row[:place], path, *row[end:]]

    def _too_long(self, header: list[str], row: list[str], line: int) -> SourceError:
        names = f"the header names {len(header)} columns" if self.has_header else f"the first row has {len(header)}"
        return self.refused(line, f"has {len(row)} cells, and {names}. Put cells that hold the delimiter into quotes.")


class JsonLines(Table):
    """A file with a JSON object a line, in UTF-8. A member that an object has not is missing, as null is."""

    def header(self) -> list[str]:
        names: dict[str, None] = {}
        for row, _ in self._rows():
            names.update(dict.fromkeys(row))
        if not names:
            raise SourceError(f"{printable(self.path)}: the file is empty. Each line is one object.")
        return list(names)

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        rows: list[dict[str, Any]] = []
        lines = array("q")
        for row, line in self._rows():
            rows.append(row)
            lines.append(line)
            if len(rows) == _CHUNK:
                yield Chunk(lines, {column: [row.get(column) for row in rows] for column in columns})
                rows, lines = [], array("q")
        if rows:
            yield Chunk(lines, {column: [row.get(column) for row in rows] for column in columns})

    def _rows(self) -> Iterator[tuple[dict[str, Any], int]]:
        try:
            with open(open_regular(self.path), "rb") as file:
                head = file.peek(64)
                if said := what_else(head):
                    raise SourceError(f"{printable(self.path)}: {said}.")
                lines: Iterable[bytes] = file
                if (encoding := encoding_of(head)) != "utf-8-sig":
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
            raise self.refused(number, f"byte {error.start} is no UTF-8. Save the file as UTF-8.") from error
        except ValueError as error:
            raise self.refused(number, f"{printable(error)}. Each line is one object.") from error
        if not isinstance(row, dict):
            raise self.refused(number, 'is no JSON object. Each line is one, such as {"path": "a.jpg"}.')
        return row


class ParquetTable(Table):
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
            os.close(open_regular(self.path))  # of anything else than a file, pyarrow would wait for data
            return pq.ParquetFile(self.path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self.unreadable(getattr(error, "strerror", None) or error) from error


def open_table(
    path: Path, delimiter: str | None = None, bad: BadSamples | None = None, *, has_header: bool = True
) -> Table:
    """Return the table in a file, of the kind that the suffix says: ``.jsonl``, ``.parquet``; else CSV.

    OptionError where one that always has a header is said to have none.
    """
    suffix = path.suffix.lower()
    if suffix not in (".jsonl", ".ndjson", ".parquet"):
        return CsvTable(path, delimiter, bad, has_header=has_header)
    if not has_header:
        raise OptionError(f"--no-header is for CSV: {printable(path)} names its columns")
    return ParquetTable(path, bad) if suffix == ".parquet" else JsonLines(path, bad)


def default_delimiter(table: Path | None) -> str:
    """Return what separates the columns of a file of this name where nobody says it."""
    return "\t" if table is not None and table.suffix.lower() == ".tsv" else ","


def some_columns(columns: Sequence[str]) -> str:
    """Return the names of columns as a message shows them."""
    return ", ".join(columns[:_SHOWN]) + (", …" if len(columns) > _SHOWN else "")


def _rows_of(reader: Any) -> Iterator[tuple[list[str], int]]:
    """Yield the rows of a reader of `csv` and their lines; the limit on cells is the process's, and is put back."""
    while True:
        with _LIMITING:
            before = csv.field_size_limit(_MOST_OF_A_CELL)
            try:
                some = [(row, reader.line_num) for row in islice(reader, _AT_ONCE)]
            finally:
                csv.field_size_limit(before)
        if not some:
            return
        yield from some


def _chunk(columns: Sequence[str], places: Sequence[int], rows: Sequence[list[str]], lines: Sequence[int]) -> Chunk:
    transposed = list(zip(*rows, strict=True))
    return Chunk(lines, {column: transposed[place] for column, place in zip(columns, places, strict=True)})


def _arrow_cells(column: Any) -> Cells:
    import pyarrow.types

    kind = column.type
    if column.null_count == 0 and (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)):
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers
    listed: list[Any] = column.to_pylist()
    if pyarrow.types.is_date(kind) or pyarrow.types.is_time(kind) or pyarrow.types.is_timestamp(kind):
        return [None if cell is None else cell.isoformat() for cell in listed]
    if pyarrow.types.is_decimal(kind):  # a float64 tells numbers of so many digits apart
        made: type[float] | type[str] = float if kind.precision <= sys.float_info.dig else str
        return [None if cell is None else made(cell) for cell in listed]
    return listed
