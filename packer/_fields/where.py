"""Which samples meet a condition: ``age > 30 and split == "train"``, of columns of values.

As in SQL a condition is true, false or unknown, and only what is true is chosen. Whatever is compared with a value that
is not there is unknown, and so is ``not`` of it.
"""

from __future__ import annotations

import difflib
import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._fields.expression import (
    MEANT,
    Among,
    Comparison,
    Every,
    ExpressionError,
    Literal,
    Matching,
    Named,
    Negated,
    Node,
    Null,
    Some,
    parsed,
)
from packer.errors import OptionError, printable

__all__ = ["Column", "Condition"]

Mask = npt.NDArray[np.bool_]

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNORDERED = ("==", "!=")
_SHOWN = 10


@dataclass(frozen=True, eq=False)
class Column:
    """One value a sample.

    Attributes
    ----------
    values : (N,) array
        bool, integers, floats, or objects that are str. What stands where no value is present says nothing.
    present : (N,) bool array
    ids : mapping of str to int, optional
        The ids of the classes that have names, where the column holds ids. Every id is 0 or more.
    of : str
        What the values are called where only `present` is known, such as ``mask``; else empty.
    """

    values: npt.NDArray[Any]
    present: Mask
    ids: Mapping[str, int] | None = None
    of: str = ""

    @property
    def kind(self) -> str:
        """What the values are called in messages."""
        if self.of:
            return self.of
        if self.ids is not None:
            return "classes"
        return {"b": "truth values", "O": "texts"}.get(self.values.dtype.kind, "numbers")


class _Truth(NamedTuple):
    """Where a condition is true, and where false; it is unknown where neither."""

    yes: Mask
    no: Mask


class Condition:
    """A condition on the columns of samples.

    Parameters
    ----------
    text : str
        See `packer._fields.expression` for what may be said.

    Raises
    ------
    OptionError
        If the text is no condition; the message says at which character.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._node = parsed(text)
        except ExpressionError as error:
            raise self._refused(error) from None

    def chosen(self, columns: Mapping[str, Column]) -> Mask:
        """Return for each of N samples whether the condition is true, as a (N,) bool array.

        A number with a fraction is compared with float32 values after rounding to float32.

        Raises
        ------
        OptionError
            If the condition names a column that is not in `columns`, or compares what cannot be compared.
        """
        try:
            return _evaluated(self._node, columns).yes
        except ExpressionError as error:
            raise self._refused(error) from None

    def _refused(self, error: ExpressionError) -> OptionError:
        rest = printable(self.text[error.at :])
        where = f"{rest[:30]}…" if len(rest) > 30 else rest or "its end"
        return OptionError(f"where: at character {error.at + 1} ({where}): {printable(error.problem)}")


def _evaluated(node: Node, columns: Mapping[str, Column]) -> _Truth:
    if isinstance(node, Negated):
        truth = _evaluated(node.of, columns)
        return _Truth(truth.no, truth.yes)
    if isinstance(node, Every | Some):
        return _together(node, columns)
    return _compared(node, columns) if isinstance(node, Comparison) else _asked(node, columns)


def _asked(node: Named | Null | Among | Matching, columns: Mapping[str, Column]) -> _Truth:
    if isinstance(node, Named):
        column = _column(node, columns)
        if column.kind != "truth values":
            raise ExpressionError(f"{node.name} holds {column.kind}: compare it with something", node.at)
        return _truth(column.values, column.present)
    column = _column(node.column, columns)
    if isinstance(node, Null):
        return _Truth(~column.present, column.present)
    if isinstance(node, Matching):
        _require(column, ("texts",), "glob is for texts", node.column)
        fits = re.compile(fnmatch.translate(node.pattern)).match
        return _truth(_each(column.values, lambda text: fits(text) is not None), column.present)
    return _truth(_among(column, node), column.present)


def _together(node: Every | Some, columns: Mapping[str, Column]) -> _Truth:
    truth = _evaluated(node.of[0], columns)
    for other in node.of[1:]:
        second = _evaluated(other, columns)
        if isinstance(node, Every):
            truth = _Truth(truth.yes & second.yes, truth.no | second.no)
        else:
            truth = _Truth(truth.yes | second.yes, truth.no & second.no)
    return truth


def _truth(found: npt.NDArray[Any], present: Mask) -> _Truth:
    yes = found.astype(bool, copy=False)
    return _Truth(yes & present, ~yes & present)


def _column(named: Named, columns: Mapping[str, Column]) -> Column:
    if named.name in columns:
        try:
            return columns[named.name]
        except OptionError as error:  # packs that are read together differ
            raise ExpressionError(str(error), named.at) from None
    meant = (
        f": say {MEANT[named.name]}"
        if named.name in MEANT
        else f"{_known(named.name, list(columns))}; texts stand in quotes"
    )
    raise ExpressionError(f"there is no column {named.name}{meant}", named.at)


def _known(name: str, known: Sequence[str]) -> str:
    """Return what a message says of the names that there are, those first that are meant most likely."""
    near = difflib.get_close_matches(name, known, 3)
    shown = [*near, *(other for other in known if other not in near)]
    more = f", … ({len(shown)})" if len(shown) > _SHOWN else ""
    return f". There are {', '.join(shown[:_SHOWN])}{more}" if shown else ""


def _compared(node: Comparison, columns: Mapping[str, Column]) -> _Truth:
    left, how, right = node.left, node.how, node.right
    if isinstance(left, Literal):
        left, how, right = right, _MIRRORED.get(how, how), left
    if isinstance(left, Literal):
        raise ExpressionError("two values are compared, and no column", node.at)
    column = _column(left, columns)
    compare = _OPERATORS[how]
    if isinstance(right, Named):
        return _columns_compared(column, compare, _column(right, columns), node)
    value = _comparable(column, right, left)
    if how not in _UNORDERED and (isinstance(value, bool) or (column.ids is not None and isinstance(right.value, str))):
        raise ExpressionError(f"{column.kind} have no order: say == or !=", node.at)
    if isinstance(value, int | float) and column.kind in ("numbers", "classes"):
        return _truth(_numbers_compared(column.values, compare, value), column.present)
    return _truth(compare(column.values, value), column.present)


def _columns_compared(left: Column, compare: Callable[[Any, Any], Any], right: Column, node: Comparison) -> _Truth:
    if left.kind != right.kind or left.of or (left.ids is not None and left.ids != right.ids):
        which = "other classes" if left.kind == right.kind else right.kind
        raise ExpressionError(f"{left.kind} cannot be compared with {which}", node.at)
    if left.kind in ("classes", "truth values") and node.how not in _UNORDERED:
        raise ExpressionError(f"{left.kind} have no order: say == or !=", node.at)
    return _truth(np.asarray(compare(left.values, right.values)), left.present & right.present)


def _require(column: Column, kinds: Iterable[str], problem: str, named: Named) -> None:
    if column.kind not in kinds:
        raise ExpressionError(f"{problem}, and {named.name} holds {column.kind}", named.at)


def _comparable(column: Column, literal: Literal, named: Named) -> bool | int | float | str:
    """Return what a literal is among the values of a column: of a class's name, its id."""
    value = literal.value
    if column.of:
        raise ExpressionError(f"{named.name} holds {column.of}, of which only `is null` can be asked", named.at)
    if column.ids is not None and isinstance(value, str):
        if value not in column.ids:
            raise ExpressionError(f"{named.name} has no class {value}{_known(value, list(column.ids))}", literal.at)
        return column.ids[value]
    if column.ids is not None and isinstance(value, int | float) and value < 0:
        raise ExpressionError(f"ids are 0 or more; for those without a class say {named.name} is null", literal.at)
    said = {bool: "a truth value", str: "a text"}.get(type(value), "a number")
    fits = {"numbers": "a number", "classes": "a number", "texts": "a text", "truth values": "a truth value"}
    if fits[column.kind] != said:
        raise ExpressionError(f"{named.name} holds {column.kind}, and this is {said}", literal.at)
    return value


def _numbers_compared(
    values: npt.NDArray[Any], compare: Callable[[Any, Any], Any], number: int | float
) -> npt.NDArray[Any]:
    """Compare numbers with one that their dtype may not hold, exactly but for what rounds to a float32."""
    same: Any = _of_dtype(number, values.dtype)
    if same is not None:
        return np.asarray(compare(values, same))
    if values.dtype.kind == "f":  # too large for float32
        return np.asarray(compare(values.astype(np.float64), float(number)))
    if isinstance(number, float):  # with a fraction, so that no int64 is rounded across it
        return np.asarray(compare(values.astype(np.float64), number))
    return np.full(values.shape, compare(0, number))  # too large for any of the integers


def _of_dtype(number: int | float, dtype: np.dtype[Any]) -> Any:
    """Return the number of a dtype that a number is, or rounds to where those are floats; None where there is none."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            rounded = np.array(float(number)).astype(dtype)[()]
        return rounded if np.isfinite(rounded) else None
    limits = np.iinfo(dtype)
    return dtype.type(number) if isinstance(number, int) and limits.min <= number <= limits.max else None


def _among(column: Column, node: Among) -> npt.NDArray[Any]:
    wanted = [_comparable(column, literal, node.column) for literal in node.values]
    if column.kind == "texts":
        return _each(column.values, frozenset(wanted).__contains__)
    if column.kind == "truth values":
        return np.isin(column.values, np.array(wanted, bool))
    numbers = [same for one in wanted if (same := _of_dtype(one, column.values.dtype)) is not None]  # type: ignore[arg-type]
    return np.isin(column.values, np.array(numbers, column.values.dtype))


def _each(values: npt.NDArray[Any], test: Callable[[Any], bool]) -> npt.NDArray[Any]:
    return np.fromiter(map(test, values.tolist()), bool, len(values))
