"""Columns of tables that become fields: what a person says of them, and their cells as values."""

from __future__ import annotations

import abc
import os
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import DTYPES, KINDS, OF_SCALARS, PIXELS, Field, Stored
from packer._fields.values import parsed_json, short
from packer._sources.fieldvalues import Blobs, Column, Files, Numbers
from packer._sources.tables import Cells, Table
from packer._table import encode_name
from packer.errors import OptionError, SourceError, printable

__all__ = ["ColumnSpec", "Reading", "reading_of"]

_JSON = ("json", "array", "boxes", "keypoints", "segmentation")
_WHOLE = re.compile(r"0|[1-9][0-9]*")
_LAST_ID = str(2**63 - 1)
_BETWEEN_LABELS = re.compile(r"[;|]")
_TRUTHS = {"true": 1, "1": 1, "false": 0, "0": 0}
_REMEDY = "Correct the cell, or name another kind with --column."


@dataclass(frozen=True)
class ColumnSpec:
    """A field that a column of a table becomes.

    Attributes
    ----------
    name, column : str
        What the field and the column are called.
    kind : str
    dtype : str
        The dtype of a scalar or an array; else empty.
    rank : int, optional
        How many axes an array has; by default as many as the first value.
    """

    name: str
    column: str
    kind: str
    dtype: str = ""
    rank: int | None = None

    @classmethod
    def of(cls, said: str) -> ColumnSpec:
        """Return what ``NAME:KIND[:DTYPE[:AXES]]``, or with ``NAME=COLUMN``, says; OptionError where that says none."""
        option = f"--column {printable(said)!r}"
        name, sign, rest = said.partition("=")
        parts = (rest if sign else said).split(":")
        has_rank = len(parts) > 3 and parts[-3] == "array" and parts[-2] in DTYPES and parts[-1].isdecimal()
        rank = int(parts.pop()) if has_rank else None
        dtype = parts.pop() if len(parts) > 2 and parts[-1] in DTYPES and parts[-2] in ("scalar", "array") else ""
        if len(parts) < 2:
            raise OptionError(f"{option} has no kind: say NAME:KIND, such as 'caption:text' or 'age:float32'")
        kind = parts.pop()
        if kind in OF_SCALARS:
            kind, dtype = "scalar", kind
        column = ":".join(parts)
        try:
            if kind not in KINDS or (kind == "scalar" and not dtype):
                raise ValueError(f"a kind is one of {', '.join([*OF_SCALARS, *KINDS[1:]])}, not {kind!r}")
            dtype = dtype or ("float32" if kind == "array" else "")
            Field(name if sign else column, kind, dtype, rank or 0)
        except ValueError as error:
            raise OptionError(f"{option}: {printable(error)}. 'NAME=COLUMN:KIND' gives another name.") from error
        return cls(name if sign else column, column, kind, dtype, rank)


class Reading(abc.ABC):
    """Takes the cells of a column, chunk by chunk, and makes a field of them.

    Parameters
    ----------
    spec : ColumnSpec
    table : Table
        For messages, and for what its cells are.
    """

    def __init__(self, spec: ColumnSpec, table: Table) -> None:
        self.spec = spec
        self._table = table
        self._field = Field(spec.name, spec.kind, spec.dtype, spec.rank or 0)

    @abc.abstractmethod
    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        """Take the next cells. A row whose cell is no value is left out of the table, or is a SourceError."""

    @abc.abstractmethod
    def column(self, root: Path) -> Column:
        """Return the field's values; the paths of files are relative to `root`."""

    def _refused(self, line: int, problem: object) -> SourceError:
        said = str(problem)
        where = f"column {printable(self.spec.column)!r}"
        if "UTF-8" in said:
            return self._table.refused(line, f"{where}: the text is no UTF-8. Save the file as UTF-8.")
        stop = "" if said.endswith(".") else "."
        return self._table.refused(line, f"{where}: {printable(said)}{stop} {_REMEDY}")

    def _values(self, cells: Cells, lines: Sequence[int], value_of: Callable[[Any], Any]) -> Iterable[Any]:
        """Yield what `value_of` makes of each cell; None where it is missing."""
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


class _Scalars(Reading):
    """Cells that become numbers: whole chunks at once, and one by one where any is odd."""

    def __init__(self, spec: ColumnSpec, table: Table) -> None:
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

    def column(self, root: Path) -> Column:
        return Numbers(self._field, np.concatenate(self._parts), np.concatenate(self._nulls))

    def _at_once(self, cells: Cells, null: npt.NDArray[np.bool_]) -> npt.NDArray[Any] | None:
        """Return the values of plain numbers, and note in `null` which are missing; None where any cell is odd."""
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
        """Return the number that a cell says."""
        if not isinstance(cell, str):
            return cell
        text, dtype = cell.strip(), self.spec.dtype
        if not self._table.of_texts or "_" in text:
            raise ValueError(f"{text!r} is no number")
        if dtype == "bool":
            if text.lower() not in _TRUTHS:
                raise ValueError(f"{text!r} is neither true nor false")
            return _TRUTHS[text.lower()]
        try:
            return float(text) if dtype.startswith("float") else int(re.sub(r"\.0*$", "", text))
        except ValueError:
            whole = "" if dtype.startswith("float") else "whole "
            raise ValueError(f"{text!r} is no {whole}number. A missing value is an empty cell") from None


def _cast(numbers: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any] | None:
    """Return numbers as a dtype; None where one does not fit, or is NaN."""
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


class _Classes(Reading):
    """Cells that become ids: of a class, or of labels. Whole numbers are ids; names get theirs when they are sorted."""

    def __init__(self, spec: ColumnSpec, table: Table) -> None:
        super().__init__(spec, table)
        self._places: dict[str, int] = {}
        self._lines: list[int] = []  # in which each of these came first
        self._codes = array("q")
        self._counts = array("q")  # labels of each row, -1 where they are missing

    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        several = self.spec.kind == "labels"
        values = self._values(cells, lines, self._several if several else lambda cell: [self._one(cell)])
        for labels, line in zip(values, lines, strict=True):
            self._counts.append(-1 if labels is None else len(labels))
            for label in labels or ():
                self._codes.append(self._places.setdefault(label, len(self._places)))
            self._lines.extend([line] * (len(self._places) - len(self._lines)))

    def column(self, root: Path) -> Column:
        whole = all(map(_WHOLE.fullmatch, self._places))
        most = max(self._places, key=_magnitude, default="") if whole else ""
        if _magnitude(most) > _magnitude(_LAST_ID):
            problem = f"{_shortened(most)} is no id: ids are {_LAST_ID} or less, where all labels are whole numbers"
            raise self._refused(self._lines[self._places[most]], problem)
        names = [] if whole else sorted(self._places)
        ids = {name: int(name) for name in self._places} if whole else {name: at for at, name in enumerate(names)}
        id_of = np.array([ids[name] for name in self._places] or [0], np.int64)
        codes, counts = np.frombuffer(self._codes, np.int64), np.frombuffer(self._counts, np.int64)
        flat = id_of[codes]
        field = Field(self.spec.name, self.spec.kind, classes=tuple(names))
        if self.spec.kind == "labels":
            blob = np.frombuffer(flat.astype("<i8").tobytes(), np.uint8)
            return Blobs.packed(field, blob, np.where(counts < 0, counts, 8 * counts))
        values = np.zeros(len(counts), np.int64)
        values[counts > 0] = flat
        return Numbers(field, values, counts < 0)

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
            raise ValueError(f"{cell!r} is no label: labels are texts or whole numbers")
        text = str(cell).strip()
        text.encode("utf-8")  # UnicodeEncodeError speaks of UTF-8
        if not text or re.fullmatch(r"-[0-9]+", text):
            raise ValueError(f"{text!r} is no label: ids are 0 or more, and a missing one is an empty cell, or null")
        return text


def _magnitude(digits: str) -> tuple[int, str]:
    """Return what orders whole numbers by their digits, however many these are."""
    return len(digits), digits


def _shortened(digits: str) -> str:
    return digits if len(digits) <= 40 else f"{digits[:20]}… ({len(digits)} digits)"


class _Bytes(Reading):
    """Cells that become bytes."""

    def __init__(self, spec: ColumnSpec, table: Table) -> None:
        super().__init__(spec, table)
        self._blob = bytearray()
        self._sizes = array("q")
        self._ranked = spec.kind != "array" or spec.rank is not None

    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        for stored in self._values(cells, lines, self._stored):
            self._blob += stored or b""
            self._sizes.append(-1 if stored is None else len(stored))

    def column(self, root: Path) -> Column:
        blob, sizes = np.frombuffer(self._blob, np.uint8), np.frombuffer(self._sizes, np.int64)
        return Blobs.packed(self._field, blob, sizes)

    def _stored(self, cell: Any) -> Stored:
        if self._table.of_texts and self.spec.kind in _JSON:
            cell = parsed_json(cell)
        if self._table.of_texts and self.spec.kind == "bytes":
            raise ValueError("a CSV file holds no bytes: say --field for files beside the images, or use Parquet")
        if not self._ranked:
            self._field = Field(self.spec.name, "array", self.spec.dtype, np.asarray(cell).ndim)
            self._ranked = True
        return self._field.encode(cell)


class _Paths(Reading):
    """Cells that are paths of images or masks."""

    def __init__(self, spec: ColumnSpec, table: Table) -> None:
        super().__init__(spec, table)
        self._paths: list[str | None] = []

    def add(self, cells: Cells, lines: Sequence[int]) -> None:
        self._paths.extend(self._values(cells, lines, self._path))

    def column(self, root: Path) -> Column:
        return Files.of(self._field, root, self._paths)

    def _path(self, cell: Any) -> str:
        if not isinstance(cell, str) or "\0" in cell:
            raise ValueError(f"{short(cell)} is no path of a file")
        encode_name(cell)  # UnicodeEncodeError is a ValueError
        return cell.replace(os.sep, "/")


def reading_of(spec: ColumnSpec, table: Table) -> Reading:
    """Return what takes the cells of a column."""
    if spec.kind == "scalar":
        return _Scalars(spec, table)
    if spec.kind in ("class", "labels"):
        return _Classes(spec, table)
    return _Paths(spec, table) if spec.kind in PIXELS else _Bytes(spec, table)
