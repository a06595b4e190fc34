"""Conditions on samples, such as ``age > 30 and split == "train"``: parsing, and evaluation on columns of values.

As in SQL, a condition is true, false or unknown, and only samples for which it is true are selected. A comparison with
a missing value is unknown, and so is ``not`` of it. A condition is parsed into a tree; no part of it is ever run as
code.

::

    condition  = both { "or" both }
    both       = negated { "and" negated }
    negated    = "not" negated | "(" condition ")" | comparison
    comparison = operand { ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) operand }
               | operand "is" [ "not" ] "null"
               | operand [ "not" ] "in" "[" literal { "," literal } "]"
               | operand [ "not" ] "glob" text
    operand    = literal | column
    literal    = [ "-" | "+" ] number | text | "true" | "false"
    column     = letters, digits and underscores, or anything between backquotes
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import OptionError, printable

LONGEST = 10_000
"""Characters that a condition may have."""

DEEPEST = 32
"""The deepest nesting of parentheses and ``not``."""

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class ExpressionError(Exception):
    """A condition is invalid; the arguments are the problem and the index of the character."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem, at)
        self.problem, self.at = problem, at


@dataclass(frozen=True)
class Literal:
    """A number, a text or a truth value; a number without a fraction is an int."""

    value: bool | int | float | str
    at: int


@dataclass(frozen=True)
class ColumnName:
    """A column; on its own, a condition with the column's truth values."""

    name: str
    at: int


Operand = Literal | ColumnName


@dataclass(frozen=True)
class Comparison:
    """A comparison of two operands; `how` is one of `COMPARISONS`."""

    left: Operand
    how: str
    right: Operand
    at: int


@dataclass(frozen=True)
class Null:
    """A condition that is true if the value is missing."""

    column: ColumnName


@dataclass(frozen=True)
class Among:
    """A condition that is true if a value is one of several values."""

    column: ColumnName
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Matching:
    """A condition that is true if a text matches a pattern with ``*``, ``?`` and ``[...]``."""

    column: ColumnName
    pattern: str


@dataclass(frozen=True)
class Negated:
    """A condition that is true if another one is false."""

    of: Node


@dataclass(frozen=True)
class Every:
    """A condition that is true if all of several conditions are true."""

    of: Sequence[Node]


@dataclass(frozen=True)
class Some:
    """A condition that is true if at least one of several conditions is true."""

    of: Sequence[Node]


Node = ColumnName | Comparison | Null | Among | Matching | Negated | Every | Some


class _Token(NamedTuple):
    kind: str  # "number", "word", "column", "text", "sign", "end"
    text: str
    at: int


_TOKEN = re.compile(
    r"""(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W0-9]\w*)
    | `(?P<column>[^`]*)`
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|<>|<=|>=|&&|\|\||[][(),<>=+&|!-])""",
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s*")

_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false", "glob")
MEANT = {
    **dict.fromkeys(("&", "&&", "AND", "And"), "and"),
    **dict.fromkeys(("|", "||", "OR", "Or"), "or"),
    **dict.fromkeys(("!", "NOT", "Not"), "not"),
    **dict.fromkeys(("None", "none", "NULL", "Null", "nan", "NaN"), "null"),
    **{"=": "==", "<>": "!=", "IN": "in", "IS": "is", "True": "true", "False": "false", "GLOB": "glob"},
    **dict.fromkeys(("like", "LIKE"), "glob, a pattern with *, ? and [...]"),
}
"""Operators of other languages, and their spelling here."""


def parsed(text: str) -> Node:
    """Parse a condition into a tree; ExpressionError if it is invalid."""
    if len(text) > LONGEST:
        raise ExpressionError(f"it has {len(text):,} characters, and a condition has {LONGEST:,} at most", 0)
    return _Parser(list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[_Token]:
    at = _SPACE.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            what = f"a {text[at]} without its other" if text[at] in "\"'`" else "this character means nothing"
            raise ExpressionError(what, at)
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], at)
        at = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
    yield _Token("end", "", at)


class _Parser:
    """Parses the tokens in one pass from left to right."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens, self._next, self._depth = tokens, 0, 0

    def whole(self) -> Node:
        node = self._condition()
        if self._token.kind != "end":
            raise self._expected("`and`, `or` or the end")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *words: str) -> _Token | None:
        """Consume and return the next token if it is one of `words`; otherwise return None."""
        token = self._token
        if token.kind in ("word", "sign") and token.text in words:
            self._next += 1
            return token
        return None

    def _require(self, *words: str) -> None:
        if not self._take(*words):
            raise self._expected(" or ".join(f"`{word}`" for word in words))

    def _expected(self, what: str) -> ExpressionError:
        token = self._token
        instead = f"not {token.text}" if token.kind != "end" else "and nothing is there"
        meant = MEANT.get(token.text, "") if token.kind in ("word", "sign") else ""
        return ExpressionError(f"{what} is wanted, {instead}" + (f": say {meant}" if meant else ""), token.at)

    def _condition(self) -> Node:
        nodes = [self._both()]
        while self._take("or"):
            nodes.append(self._both())
        return nodes[0] if len(nodes) == 1 else Some(nodes)

    def _both(self) -> Node:
        nodes = [self._negated()]
        while self._take("and"):
            nodes.append(self._negated())
        return nodes[0] if len(nodes) == 1 else Every(nodes)

    def _negated(self) -> Node:
        opening = self._take("not", "(")
        if opening is None:
            return self._comparison()
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(f"more than {DEEPEST} parentheses and `not` lie in each other", opening.at)
        if opening.text == "not":
            node: Node = Negated(self._negated())
        else:
            node = self._condition()
            self._require(")")
        self._depth -= 1
        return node

    def _comparison(self) -> Node:
        left = self._operand()
        pairs: list[Node] = []
        while sign := self._take(*COMPARISONS):
            right = self._operand()
            pairs.append(Comparison(left, sign.text, right, sign.at))
            left = right
        if pairs:
            return pairs[0] if len(pairs) == 1 else Every(pairs)
        negated = self._take("not")
        if self._token.text in ("in", "glob", "is") or negated:
            node = self._about(self._column(left), negated=bool(negated))
            return Negated(node) if negated else node
        if isinstance(left, ColumnName) and left.name in MEANT and self._token.kind != "end":
            self._next -= 1
            raise self._expected("a column or a value")
        return self._column(left)

    def _about(self, column: ColumnName, *, negated: bool) -> Node:
        if not negated and self._take("is"):
            inverted = self._take("not")
            self._require("null")
            return Negated(Null(column)) if inverted else Null(column)
        if self._take("glob"):
            pattern = self._literal()
            if not isinstance(pattern.value, str):
                raise ExpressionError('a pattern is a text, such as "train/*"', pattern.at)
            return Matching(column, pattern.value)
        self._require("in", *(["glob"] if negated else []))
        self._require("[")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._require("]")
        return Among(column, tuple(values))

    def _column(self, operand: Operand) -> ColumnName:
        if isinstance(operand, Literal):
            raise ExpressionError("a column is wanted here, not a value", operand.at)
        return operand

    def _operand(self) -> Operand:
        token = self._token
        if token.kind == "column" or (token.kind == "word" and token.text not in _WORDS):
            self._next += 1
            return ColumnName(token.text, token.at)
        return self._literal("a column or a value")

    def _literal(self, expected: str = "a number, a text or a truth value") -> Literal:
        at, sign = self._token.at, self._take("-", "+")
        token = self._token
        if token.kind == "number":
            self._next += 1
            return Literal(_number(token) * (-1 if sign and sign.text == "-" else 1), at)
        if sign is None and token.kind == "text":
            self._next += 1
            return Literal(_unescaped(token), at)
        if sign is None and (word := self._take("true", "false")):
            return Literal(word.text == "true", at)
        if token.kind == "word" and token.text == "null":
            raise ExpressionError("nothing compares with null: say `is null` or `is not null`", token.at)
        raise self._expected(expected)


def _number(token: _Token) -> int | float:
    number = float(token.text)
    if math.isinf(number):
        raise ExpressionError("this number is too large", token.at)
    if token.text.isdecimal():
        return int(token.text)
    return int(number) if number.is_integer() else number


def _unescaped(token: _Token) -> str:
    def meant(found: re.Match[str]) -> str:
        if found[1] not in "\\\"'":
            raise ExpressionError(f"a backslash comes before \\, \" and ' only, not before {found[1]}", token.at)
        return found[1]

    return re.sub(r"\\(.)", meant, token.text[1:-1], flags=re.DOTALL)


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
    """A column with one value for each sample.

    Attributes
    ----------
    values : (N,) array
        The values: bool, integers, floats, or str objects. The entries of missing values are undefined.
    present : (N,) bool array
    ids : mapping of str to int, optional
        The ids of the classes by name, if the column contains class ids. Every id is 0 or more.
    of : str
        The name of the values, such as ``masks``, if only `present` is known; otherwise empty.
    """

    values: npt.NDArray[Any]
    present: Mask
    ids: Mapping[str, int] | None = None
    of: str = ""

    @property
    def kind(self) -> str:
        """The name of the values in messages."""
        if self.of:
            return self.of
        if self.ids is not None:
            return "classes"
        return {"b": "truth values", "O": "texts"}.get(self.values.dtype.kind, "numbers")


class _Truth(NamedTuple):
    """The samples for which a condition is true, and for which it is false; for all others it is unknown."""

    yes: Mask
    no: Mask


class Condition:
    """A condition on the columns of samples.

    Parameters
    ----------
    text : str
        The condition; see `packer._fields.where` for its grammar.

    Raises
    ------
    OptionError
        If the text is not a condition; the message names the position of the error.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._node = parsed(text)
        except ExpressionError as error:
            raise self._refused(error) from None

    def chosen(self, columns: Mapping[str, Column]) -> Mask:
        """Return an (N,) bool array: for each of N samples, whether the condition is true.

        Numbers are compared exactly, except that a number with a fraction is rounded to float32 if the values are
        float32.

        Raises
        ------
        OptionError
            If the condition names a column that is not in `columns`, or compares values of types that cannot be
            compared.
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
    return _compared(node, columns) if isinstance(node, Comparison) else _looked_up(node, columns)


def _looked_up(node: ColumnName | Null | Among | Matching, columns: Mapping[str, Column]) -> _Truth:
    if isinstance(node, ColumnName):
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


def _column(named: ColumnName, columns: Mapping[str, Column]) -> Column:
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
    """Return the end of a message that lists the known names, the most similar ones first."""
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
    if isinstance(right, ColumnName):
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
    if left.kind == "numbers":
        found = compare(_order(left.values, right.values), 0)
    else:
        found = np.asarray(compare(left.values, right.values))
    return _truth(found, left.present & right.present)


def _require(column: Column, kinds: Iterable[str], problem: str, named: ColumnName) -> None:
    if column.kind not in kinds:
        raise ExpressionError(f"{problem}, and {named.name} holds {column.kind}", named.at)


def _comparable(column: Column, literal: Literal, named: ColumnName) -> bool | int | float | str:
    """Convert a literal to the type of a column's values: a class name becomes its id."""
    value = literal.value
    if column.of:
        raise ExpressionError(f"{named.name} holds {column.of}, of which only `is null` can be asked", named.at)
    if column.ids is not None and isinstance(value, str):
        if value not in column.ids:
            raise ExpressionError(f"{named.name} has no class {value}{_known(value, list(column.ids))}", literal.at)
        return column.ids[value]
    if column.ids is not None and isinstance(value, int | float) and value < 0:
        raise ExpressionError(f"ids are 0 or more; for those without a class say {named.name} is null", literal.at)
    kind = {bool: "a truth value", str: "a text"}.get(type(value), "a number")
    fits = {"numbers": "a number", "classes": "a number", "texts": "a text", "truth values": "a truth value"}
    if fits[column.kind] != kind:
        raise ExpressionError(f"{named.name} holds {column.kind}, and this is {kind}", literal.at)
    return value


def _numbers_compared(
    values: npt.NDArray[Any], compare: Callable[[Any, Any], Any], number: int | float
) -> npt.NDArray[Any]:
    """Compare numbers with one number exactly, except that a fraction is rounded to float32 for float32 values."""
    same: Any = _of_dtype(number, values.dtype)
    if same is not None:
        return np.asarray(compare(values, same))
    if values.dtype.kind != "f":
        if isinstance(number, float):  # with a fraction, so that no int64 is rounded across it
            return np.asarray(compare(values.astype(np.float64), number))
        return np.full(values.shape, compare(0, number))  # too large for any of the integers
    wide, near = values.astype(np.float64), float(number)
    if near == number:
        return np.asarray(compare(wide, near))
    below = near if near < number else np.nextafter(near, -np.inf)  # the largest float that is less than the number
    return np.asarray(compare(np.where(np.isnan(wide), np.nan, np.where(wide <= below, -1.0, 1.0)), 0))


def _of_dtype(number: int | float, dtype: np.dtype[Any]) -> Any:
    """Return a number in a dtype, with a fraction rounded to it; None if the dtype cannot represent the number."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            rounded = np.array(float(number)).astype(dtype)[()]
        same = np.isfinite(rounded) and (isinstance(number, float) or int(rounded) == number)
        return rounded if same else None
    limits = np.iinfo(dtype)
    return dtype.type(number) if isinstance(number, int) and limits.min <= number <= limits.max else None


def _order(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Compare numbers exactly: return -1, 0 or 1 if left is less, equal or greater, and NaN if either is NaN.

    NumPy would convert 64-bit integers to floats before comparing them with floats, which rounds them.
    """
    if left.dtype.kind == "f":
        return -_order(right, left) if right.dtype.kind != "f" else _sign(left, right)
    if right.dtype.kind == "f":
        return _order_beside_floats(left, right.astype(np.float64))
    if left.dtype.kind == right.dtype.kind:
        return _sign(left, right)
    if left.dtype.kind == "u":
        return -_order(right, left)
    return np.where(left < 0, -1.0, _sign(left.astype(np.uint64), right))


def _order_beside_floats(integers: npt.NDArray[Any], floats: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    limits, floor = np.iinfo(integers.dtype), np.floor(floats)
    above, below = floor >= float(limits.max) + 1, floor < float(limits.min)  # of all integers of the dtype
    whole = np.where(above | below | np.isnan(floor), 0, floor).astype(integers.dtype)
    order = np.where(integers == whole, -(floats > floor).astype(np.float64), _sign(integers, whole))
    return np.where(np.isnan(floor), np.nan, np.where(above, -1.0, np.where(below, 1.0, order)))


def _sign(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    order = (left > right).astype(np.float64) - (left < right)
    return np.where((left != left) | (right != right), np.nan, order)  # noqa: PLR0124 - NaN


def _among(column: Column, node: Among) -> npt.NDArray[Any]:
    values = [_comparable(column, literal, node.column) for literal in node.values]
    if column.kind == "texts":
        return _each(column.values, frozenset(values).__contains__)
    if column.kind == "truth values":
        return np.isin(column.values, np.array(values, bool))
    numbers = [same for one in values if (same := _of_dtype(one, column.values.dtype)) is not None]  # type: ignore[arg-type]
    return np.isin(column.values, np.array(numbers, column.values.dtype))


def _each(values: npt.NDArray[Any], test: Callable[[Any], bool]) -> npt.NDArray[Any]:
    return np.fromiter(map(test, values.tolist()), bool, len(values))
