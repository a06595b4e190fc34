"""What a condition says: ``age > 30 and split == "train"`` as a tree. Nothing of a condition is ever run as code.

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

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "COMPARISONS",
    "DEEPEST",
    "LONGEST",
    "MEANT",
    "Among",
    "Comparison",
    "Every",
    "ExpressionError",
    "Literal",
    "Matching",
    "Named",
    "Negated",
    "Node",
    "Null",
    "Operand",
    "Some",
    "parsed",
]

LONGEST = 10_000
"""Characters that a condition may have."""

DEEPEST = 32
"""How deep parentheses and ``not`` may lie in each other."""

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class ExpressionError(Exception):
    """A condition is wrong at a place: (what is wrong, the number of the character)."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem, at)
        self.problem, self.at = problem, at


@dataclass(frozen=True)
class Literal:
    """A number, a text or a truth value; a number without a fraction is an int."""

    value: bool | int | float | str
    at: int


@dataclass(frozen=True)
class Named:
    """A column; alone, a condition that its truth values are."""

    name: str
    at: int


Operand = Literal | Named


@dataclass(frozen=True)
class Comparison:
    """Two operands, compared; `how` is one of `COMPARISONS`."""

    left: Operand
    how: str
    right: Operand
    at: int


@dataclass(frozen=True)
class Null:
    """Whether there is no value."""

    column: Named


@dataclass(frozen=True)
class Among:
    """Whether a value is one of several."""

    column: Named
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Matching:
    """Whether a text fits a pattern with ``*``, ``?`` and ``[...]``."""

    column: Named
    pattern: str


@dataclass(frozen=True)
class Negated:
    """What is true where another condition is false."""

    of: Node


@dataclass(frozen=True)
class Every:
    """Conditions of which all must be true."""

    of: Sequence[Node]


@dataclass(frozen=True)
class Some:
    """Conditions of which one must be true."""

    of: Sequence[Node]


Node = Named | Comparison | Null | Among | Matching | Negated | Every | Some


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
"""What other languages say, and how it is said here."""


def parsed(text: str) -> Node:
    """Return the tree that a condition is; ExpressionError where it is none."""
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
    """Goes over the tokens once, from left to right."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens, self._next, self._depth = tokens, 0, 0

    def whole(self) -> Node:
        node = self._condition()
        if self._token.kind != "end":
            raise self._wanted("`and`, `or` or the end")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *words: str) -> _Token | None:
        """Return the next token, and go on, where the token is one of the words or signs; else None."""
        token = self._token
        if token.kind in ("word", "sign") and token.text in words:
            self._next += 1
            return token
        return None

    def _require(self, *words: str) -> None:
        if not self._take(*words):
            raise self._wanted(" or ".join(f"`{word}`" for word in words))

    def _wanted(self, what: str) -> ExpressionError:
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
        if isinstance(left, Named) and left.name in MEANT and self._token.kind != "end":
            self._next -= 1
            raise self._wanted("a column or a value")
        return self._column(left)

    def _about(self, column: Named, *, negated: bool) -> Node:
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

    def _column(self, operand: Operand) -> Named:
        if isinstance(operand, Literal):
            raise ExpressionError("a column is wanted here, not a value", operand.at)
        return operand

    def _operand(self) -> Operand:
        token = self._token
        if token.kind == "column" or (token.kind == "word" and token.text not in _WORDS):
            self._next += 1
            return Named(token.text, token.at)
        return self._literal("a column or a value")

    def _literal(self, wanted: str = "a number, a text or a truth value") -> Literal:
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
        raise self._wanted(wanted)


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
