"""Conditions on samples, such as ``age > 30 and split == "train"``: parse them, and evaluate them on columns of values.

As in SQL, a condition is true, false or unknown, and only samples for which it is true are selected. A comparison with
a missing value is unknown, and ``not`` of an unknown condition is unknown too. A condition is parsed into a tree; no
part of it is ever run as code.

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
import functools
import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import OptionError, printable

LONGEST = 10_000
"""The largest number of characters of a condition."""

DEEPEST = 32
"""The deepest nesting of parentheses and ``not``."""

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


class ExpressionError(Exception):
    """Raised for an invalid condition; the arguments are the problem, and the index of the character at fault."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem, at)
        self.problem, self.at = problem, at


class Truth(NamedTuple):
    """Two masks: where a condition is true, and where it is false. For the other samples it is unknown."""

    yes: Mask
    no: Mask

    @classmethod
    def of(cls, found: npt.NDArray[Any], present: Mask) -> Truth:
        """Return the result of a comparison, which is unknown for the samples whose value is not `present`."""
        yes = found.astype(bool, copy=False)
        return cls(yes & present, ~yes & present)


class ConditionNode(ABC):
    """A node of the tree: a condition, or a part of one."""

    @abstractmethod
    def truth(self, columns: Mapping[str, Column]) -> Truth:
        """Evaluate the condition; ExpressionError if a column does not exist, or has values of the wrong type."""


@dataclass(frozen=True)
class Literal:
    """A number, a text or a truth value; a number without a fraction is an int."""

    value: bool | int | float | str
    at: int


@dataclass(frozen=True)
class ColumnName(ConditionNode):
    """The name of a column. A boolean column is also a condition on its own."""

    name: str
    at: int

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        column = self.column(columns)
        if column.kind != "booleans":
            raise ExpressionError(f"{self.name} contains {column.kind}: compare it with a value", self.at)
        return Truth.of(column.values, column.present)

    def column(self, columns: Mapping[str, Column]) -> Column:
        """Return the column of this name; ExpressionError if there is none."""
        if self.name in columns:
            try:
                return columns[self.name]
            except OptionError as error:  # packs that are read together have different columns of this name
                raise ExpressionError(str(error), self.at) from None
        meant = (
            f": use {MEANT[self.name]}"
            if self.name in MEANT
            else f"{_known(self.name, list(columns))}; put text in quotes"
        )
        raise ExpressionError(f"there is no column {self.name}{meant}", self.at)


Operand = Literal | ColumnName


@dataclass(frozen=True)
class Comparison(ConditionNode):
    """A comparison of two operands; `sign` is one of `_OPERATORS`."""

    left: Operand
    sign: str
    right: Operand
    at: int

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        if isinstance(self.left, ColumnName):
            column = self.left.column(columns)
            if isinstance(self.right, ColumnName):
                return self._with_column(column, self.right.column(columns))
            return self._with_literal(self.left, column, self.sign, self.right)
        if isinstance(self.right, Literal):
            raise ExpressionError("this compares two values; one side must be a column", self.at)
        return self._with_literal(
            self.right, self.right.column(columns), _MIRRORED.get(self.sign, self.sign), self.left
        )

    def _with_literal(self, name: ColumnName, column: Column, sign: str, literal: Literal) -> Truth:
        value = _comparable(column, literal, name)
        is_class_name = column.ids is not None and isinstance(literal.value, str)
        if sign not in _UNORDERED and (isinstance(value, bool) or is_class_name):
            raise self._without_order(column)
        compare = _OPERATORS[sign]
        if isinstance(value, int | float) and column.kind in ("numbers", "classes"):
            return Truth.of(_compared_with_number(column.values, compare, value), column.present)
        return Truth.of(compare(column.values, value), column.present)

    def _with_column(self, left: Column, right: Column) -> Truth:
        if left.kind != right.kind or left.of or (left.ids is not None and left.ids != right.ids):
            which = "other classes" if left.kind == right.kind else right.kind
            raise ExpressionError(f"{left.kind} cannot be compared with {which}", self.at)
        if left.kind in ("classes", "booleans") and self.sign not in _UNORDERED:
            raise self._without_order(left)
        compare = _OPERATORS[self.sign]
        if left.values.dtype.kind == right.values.dtype.kind:
            found = np.asarray(compare(left.values, right.values))
        else:
            found = _compared_exactly(left.values, compare, right.values.tolist())
        return Truth.of(found, left.present & right.present)

    def _without_order(self, column: Column) -> ExpressionError:
        return ExpressionError(f"{column.kind} have no order: use == or !=", self.at)


@dataclass(frozen=True)
class Null(ConditionNode):
    """A condition that is true if the value is missing."""

    name: ColumnName

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        column = self.name.column(columns)
        return Truth(~column.present, column.present)


@dataclass(frozen=True)
class Among(ConditionNode):
    """A condition that is true if a value is one of several values."""

    name: ColumnName
    literals: tuple[Literal, ...]

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        column = self.name.column(columns)
        values = [_comparable(column, literal, self.name) for literal in self.literals]
        return Truth.of(self._found(column, values), column.present)

    def _found(self, column: Column, values: list[Any]) -> npt.NDArray[Any]:
        if column.kind == "texts":
            return _each(column.values, frozenset(values).__contains__)
        if column.kind == "booleans":
            return np.isin(column.values, np.array(values, bool))
        dtype = column.values.dtype
        numbers = [number for value in values if (number := _of_dtype(value, dtype)) is not None]
        return np.isin(column.values, np.array(numbers, dtype))


@dataclass(frozen=True)
class Matching(ConditionNode):
    """A condition that is true if a text matches a pattern with ``*``, ``?`` and ``[...]``."""

    name: ColumnName
    pattern: str

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        column = self.name.column(columns)
        if column.kind != "texts":
            raise ExpressionError(
                f"glob applies only to text, but {self.name.name} contains {column.kind}", self.name.at
            )
        matches = re.compile(fnmatch.translate(self.pattern)).match
        return Truth.of(_each(column.values, lambda text: matches(text) is not None), column.present)


@dataclass(frozen=True)
class Negated(ConditionNode):
    """A condition that is true if another condition is false."""

    node: ConditionNode

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        truth = self.node.truth(columns)
        return Truth(truth.no, truth.yes)


@dataclass(frozen=True)
class Every(ConditionNode):
    """A condition that is true if all of several conditions are true."""

    nodes: Sequence[ConditionNode]

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        truths = (node.truth(columns) for node in self.nodes)
        return functools.reduce(lambda one, other: Truth(one.yes & other.yes, one.no | other.no), truths)


@dataclass(frozen=True)
class Some(ConditionNode):
    """A condition that is true if at least one of several conditions is true."""

    nodes: Sequence[ConditionNode]

    def truth(self, columns: Mapping[str, Column]) -> Truth:
        truths = (node.truth(columns) for node in self.nodes)
        return functools.reduce(lambda one, other: Truth(one.yes | other.yes, one.no & other.no), truths)


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
"""Operators of other languages, each with its spelling in this language, for error messages."""


def parsed(text: str) -> ConditionNode:
    """Parse a condition into a tree; ExpressionError if it is invalid."""
    if len(text) > LONGEST:
        raise ExpressionError(f"it has {len(text):,} characters, but a condition may have at most {LONGEST:,}", 0)
    return _Parser(list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[_Token]:
    at = _SPACE.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            what = f"this {text[at]} is not closed" if text[at] in "\"'`" else "unexpected character"
            raise ExpressionError(what, at)
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], at)
        at = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
    yield _Token("end", "", at)


class _Parser:
    """Parses tokens in one pass from left to right."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens, self._next, self._depth = tokens, 0, 0

    def whole(self) -> ConditionNode:
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
        instead = f"not {token.text}" if token.kind != "end" else "but the condition ends here"
        meant = MEANT.get(token.text, "") if token.kind in ("word", "sign") else ""
        return ExpressionError(f"expected {what}, {instead}" + (f": use {meant}" if meant else ""), token.at)

    def _condition(self) -> ConditionNode:
        nodes = [self._both()]
        while self._take("or"):
            nodes.append(self._both())
        return nodes[0] if len(nodes) == 1 else Some(nodes)

    def _both(self) -> ConditionNode:
        nodes = [self._negated()]
        while self._take("and"):
            nodes.append(self._negated())
        return nodes[0] if len(nodes) == 1 else Every(nodes)

    def _negated(self) -> ConditionNode:
        opening = self._take("not", "(")
        if opening is None:
            return self._comparison()
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(f"more than {DEEPEST} nested parentheses and `not`", opening.at)
        if opening.text == "not":
            node: ConditionNode = Negated(self._negated())
        else:
            node = self._condition()
            self._require(")")
        self._depth -= 1
        return node

    def _comparison(self) -> ConditionNode:
        left = self._operand()
        pairs: list[ConditionNode] = []
        while sign := self._take(*_OPERATORS):
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

    def _about(self, column: ColumnName, *, negated: bool) -> ConditionNode:
        if not negated and self._take("is"):
            inverted = self._take("not")
            self._require("null")
            return Negated(Null(column)) if inverted else Null(column)
        if self._take("glob"):
            pattern = self._literal()
            if not isinstance(pattern.value, str):
                raise ExpressionError('a pattern must be a text, such as "train/*"', pattern.at)
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
            raise ExpressionError("expected a column, not a value", operand.at)
        return operand

    def _operand(self) -> Operand:
        token = self._token
        if token.kind == "column" or (token.kind == "word" and token.text not in _WORDS):
            self._next += 1
            return ColumnName(token.text, token.at)
        return self._literal("a column or a value")

    def _literal(self, expected: str = "a number, a text or a boolean") -> Literal:
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
            raise ExpressionError("null cannot be compared: use `is null` or `is not null`", token.at)
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
            raise ExpressionError(f"a backslash is allowed only before \\, \" and ', not before {found[1]}", token.at)
        return found[1]

    return re.sub(r"\\(.)", meant, token.text[1:-1], flags=re.DOTALL)


@dataclass(frozen=True, eq=False)
class Column:
    """A column with one value for each sample.

    Attributes
    ----------
    values : (N,) array
        The values: bool, integers, floats, or str objects. Entries of missing values are undefined.
    present : (N,) bool array
        False where the value is missing.
    ids : mapping of str to int, optional
        The ids of the classes by name, if the column contains class ids. Ids are never negative.
    of : str
        If only `present` is known, a noun for the values, such as ``masks``; otherwise empty.
    """

    values: npt.NDArray[Any]
    present: Mask
    ids: Mapping[str, int] | None = None
    of: str = ""

    @property
    def kind(self) -> str:
        """The noun for the values in messages."""
        if self.of:
            return self.of
        if self.ids is not None:
            return "classes"
        return {"b": "booleans", "O": "texts"}.get(self.values.dtype.kind, "numbers")


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
            If the condition refers to a column that is not in `columns`, or compares values whose types cannot be
            compared.
        """
        try:
            return self._node.truth(columns).yes
        except ExpressionError as error:
            raise self._refused(error) from None

    def _refused(self, error: ExpressionError) -> OptionError:
        rest = printable(self.text[error.at :])
        where = f"{rest[:30]}…" if len(rest) > 30 else rest or "its end"
        return OptionError(f"where: at character {error.at + 1} ({where}): {printable(error.problem)}")


def _known(name: str, known: Sequence[str]) -> str:
    """Return the end of a message that lists the known names, the most similar ones first."""
    near = difflib.get_close_matches(name, known, 3)
    shown = [*near, *(other for other in known if other not in near)]
    more = f", … ({len(shown)})" if len(shown) > _SHOWN else ""
    return f". There are {', '.join(shown[:_SHOWN])}{more}" if shown else ""


def _comparable(column: Column, literal: Literal, named: ColumnName) -> bool | int | float | str:
    """Convert a literal to the type of a column's values: a class name becomes its id."""
    value = literal.value
    if column.of:
        raise ExpressionError(f"{named.name} contains {column.of}, which can be tested only with `is null`", named.at)
    if column.ids is not None and isinstance(value, str):
        if value not in column.ids:
            raise ExpressionError(f"{named.name} has no class {value}{_known(value, list(column.ids))}", literal.at)
        return column.ids[value]
    if column.ids is not None and isinstance(value, int | float) and value < 0:
        raise ExpressionError(f"ids are 0 or more; for samples without a class use {named.name} is null", literal.at)
    kind = {bool: "a boolean", str: "a text"}.get(type(value), "a number")
    fits = {"numbers": "a number", "classes": "a number", "texts": "a text", "booleans": "a boolean"}
    if fits[column.kind] != kind:
        raise ExpressionError(f"{named.name} contains {column.kind}, but this is {kind}", literal.at)
    return value


def _compared_with_number(
    values: npt.NDArray[Any], compare: Callable[[Any, Any], Any], number: int | float
) -> npt.NDArray[Any]:
    """Compare values with one number exactly.

    If the values are float32, a number with a fraction is first rounded to float32.
    """
    same: Any = _of_dtype(number, values.dtype)
    if same is not None:
        return np.asarray(compare(values, same))
    if values.dtype.kind == "f":
        return _floats_compared(values.astype(np.float64), compare, number)
    if isinstance(number, float):
        # An int64 that is rounded to float64 stays on the same side of a number with a fraction.
        return np.asarray(compare(values.astype(np.float64), number))
    return np.full(values.shape, compare(0, number))  # the number is larger, or smaller, than any value of the dtype


def _floats_compared(
    values: npt.NDArray[np.float64], compare: Callable[[Any, Any], Any], number: int | float
) -> npt.NDArray[Any]:
    """Compare floats with one number exactly, even if it is an integer that no float equals."""
    nearest = float(number)
    if nearest == number:
        return np.asarray(compare(values, nearest))
    below = nearest if nearest < number else np.nextafter(nearest, -np.inf)  # the largest float below the number
    order = np.where(np.isnan(values), np.nan, np.where(values <= below, -1.0, 1.0))
    return np.asarray(compare(order, 0))


def _compared_exactly(
    values: npt.NDArray[Any], compare: Callable[[Any, Any], Any], others: Iterable[int | float]
) -> npt.NDArray[Any]:
    """Compare integers and floats exactly, as Python does; NumPy would first round integers to float64."""
    return np.fromiter(map(compare, values.tolist(), others), bool, len(values))


def _of_dtype(number: int | float, dtype: np.dtype[Any]) -> Any:
    """Convert a number to a dtype. A number with a fraction is rounded; None if the dtype cannot hold the number."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            rounded = np.array(float(number)).astype(dtype)[()]
        same = np.isfinite(rounded) and (isinstance(number, float) or int(rounded) == number)
        return rounded if same else None
    limits = np.iinfo(dtype)
    return dtype.type(number) if isinstance(number, int) and limits.min <= number <= limits.max else None


def _each(values: npt.NDArray[Any], test: Callable[[Any], bool]) -> npt.NDArray[Any]:
    return np.fromiter(map(test, values.tolist()), bool, len(values))
