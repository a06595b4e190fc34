"""What the cells of a column are, where nobody says it: numbers, texts or JSON, without rounding any."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from packer._sources.tables import Cells, Table

__all__ = ["kinds_of"]

_FORMS = {
    "int64": re.compile(r"0|-?[1-9][0-9]{0,17}"),
    "float64": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
    "bool": re.compile(r"[Tt]rue|[Ff]alse"),
}
"""Texts that are taken for numbers: not those with zeros in front, which may be names."""

_WHOLE = re.compile(r"-?[0-9]{1,4000}")
_EXACT = 2**53  # up to here a float64 holds every whole number
_LARGE = "int64 beyond float64"
_WIDER = {
    frozenset(("int64", "float64")): "float64",
    frozenset(("int64", _LARGE)): _LARGE,
}
"""What a column is that is two things in two parts of a table; anything else is JSON."""


def kinds_of(table: Table, header: Sequence[str]) -> dict[str, str]:
    """Return what the cells of each column are: a dtype of scalars, text, json or bytes; nothing where all are null."""
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
        return _of_numbers(kind, (int(cell) for cell in there if len(cell) > 15 and _WHOLE.fullmatch(cell)), "text")
    types = set(map(type, cells)) - {type(None)}
    names = {bool: "bool", int: "int64", float: "float64", str: "text", bytes: "bytes"}
    if types in ({int}, {int, float}):
        kind = "float64" if float in types else "int64"
        return _of_numbers(kind, (cell for cell in cells if type(cell) is int), "json")
    return names.get(types.pop(), "json") if len(types) == 1 else "json" if types else ""


def _of_numbers(kind: str, whole: Iterable[int], exact: str) -> str:
    """Return what a column of numbers is: `exact`, where a whole number of it is none that its kind holds."""
    most = max(map(abs, whole), default=0) if kind in ("int64", "float64") else 0
    if most <= _EXACT:
        return kind
    return _LARGE if kind == "int64" and most < 2**63 else exact
