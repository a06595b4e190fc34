"""Conditions choose the rows that Python chooses; errors in conditions have the reason and the position."""

from __future__ import annotations

import contextlib
import fnmatch
import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from packer._fields import Column, Condition
from packer.errors import OptionError

Row = dict[str, Any]
Said = tuple[str, Callable[[Row], bool | None]]
"""A condition, and the same test in Python: True, False, or None for unknown."""

CLASSES = {"cat": 0, "dog": 1, "a b": 7}
DTYPES = {"age": np.int8, "id": np.int64, "score": np.float32, "weight": np.float64}
NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "age": st.integers(-128, 127),
    "id": st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
    "score": st.floats(width=32, allow_nan=False) | st.sampled_from([0.5, 0.10000000149011612]),
    "weight": st.floats(allow_nan=False) | st.sampled_from([0.5, 2.0**53]),
}
TEXTS = st.sampled_from(["", "train", "val", "tr*", "a/b.jpg", 'say "a" \\', "ü\n"]) | st.text(max_size=3)
VALUES = {
    **NUMBERS,
    "split": TEXTS,
    "caption": TEXTS,
    "kind": st.sampled_from(sorted(CLASSES.values())),
    "label": st.sampled_from(sorted(CLASSES.values())),
    "ok": st.booleans(),
    "odd one": st.booleans(),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=6)
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def columns_of(rows: list[Row]) -> dict[str, Column]:
    columns = {}
    for name in VALUES:
        values = [row[name] for row in rows]
        present = np.array([value is not None for value in values], bool)
        ids = CLASSES if name in ("kind", "label") else None
        dtype = DTYPES.get(name, np.int64 if ids else bool if name in ("ok", "odd one") else object)
        blank: Any = "" if dtype is object else 0
        stored = np.array([blank if value is None else value for value in values], dtype)
        columns[name] = Column(stored, present, ids)
    return columns


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def comparing(name: str, how: str, literal: str, value: Any) -> list[Said]:
    """Return a comparison, and the same one with its sides exchanged."""
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(how, how)

    def said(row: Row) -> bool | None:
        return None if row[name] is None else bool(OPERATORS[how](row[name], value))

    return [(f"{name} {how} {literal}", said), (f"{literal}{mirrored}{name}", said)]


def rounded(name: str, number: float) -> Any:
    """Return a number as a column compares it: a fraction in the column's precision, unless that is infinite."""
    if name not in ("score", "weight") or float(number).is_integer():
        return number
    with np.errstate(over="ignore"):
        near = float(np.array(float(number)).astype(DTYPES[name]))
    return near if math.isfinite(near) else number


@st.composite
def comparisons(draw: Any) -> Said:
    how = draw(st.sampled_from(sorted(OPERATORS)))
    equal = draw(st.sampled_from(["==", "!="]))
    name = draw(st.sampled_from(sorted(NUMBERS)))
    number = draw(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | NUMBERS[name])
    number = number if abs(number) < 2**71 or math.isfinite(number) else 1
    text, label = draw(TEXTS), draw(st.sampled_from(sorted(CLASSES)))
    choices = [
        *comparing(name, how, repr(number), rounded(name, number)),
        *comparing("split", how, quoted(text), text),
        *comparing("kind", equal, quoted(label), CLASSES[label]),
        *comparing("kind", how, str(CLASSES[label]), CLASSES[label]),
        *comparing("ok", equal, "true", True),
        ("ok", lambda row: row["ok"]),
        ("`odd one`", lambda row: row["odd one"]),
    ]
    for one, other in (("split", "caption"), ("age", "id"), ("kind", "label"), ("id", "weight"), ("score", "id")):
        sign = equal if one == "kind" else how

        def said(row: Row, one: str = one, other: str = other, sign: str = sign) -> bool | None:
            return None if None in (row[one], row[other]) else bool(OPERATORS[sign](row[one], row[other]))

        choices.append((f"{one} {sign} {other}", said))
    return choices[draw(st.integers(0, len(choices) - 1))]


@st.composite
def others(draw: Any) -> Said:
    column = draw(st.sampled_from(sorted(VALUES)))
    several, numbers = draw(st.lists(TEXTS, min_size=1, max_size=3)), draw(st.lists(NUMBERS["age"], min_size=1))
    low, high = draw(NUMBERS["age"]), draw(NUMBERS["age"])
    pattern = draw(st.sampled_from(["*", "tr*", "?a*", "[tv]*", "*.jpg", ""]))
    matches = re.compile(fnmatch.translate(pattern)).match
    return draw(
        st.sampled_from(
            [
                (f"`{column}` is null", lambda row: row[column] is None),
                (f"`{column}` is  not null", lambda row: row[column] is not None),
                (f"split in [{','.join(map(quoted, several))}]", unless_null("split", lambda x: x in several)),
                (f"age not in {numbers}", unless_null("age", lambda x: x not in numbers)),
                ('kind in ["dog", 7]', unless_null("kind", lambda x: x in (1, 7))),
                (f"split glob {quoted(pattern)}", unless_null("split", lambda x: matches(x) is not None)),
                (f"split not glob '{pattern}'", unless_null("split", lambda x: matches(x) is None)),
                (f"{low} <= age < {high}", unless_null("age", lambda x: low <= x < high)),
            ]
        )
    )


def unless_null(name: str, test: Callable[[Any], bool]) -> Callable[[Row], bool | None]:
    return lambda row: None if row[name] is None else test(row[name])


def joined(parts: list[Said], word: str) -> Said:
    deciding = word == "or"  # the truth value that decides alone

    def said(row: Row) -> bool | None:
        found = [test(row) for _, test in parts]
        return deciding if deciding in found else None if None in found else not deciding

    return f" {word} ".join(f"({text})" for text, _ in parts), said


def negated(part: Said) -> Said:
    text, test = part
    return f"not ({text})", lambda row: None if (found := test(row)) is None else not found


CONDITIONS: st.SearchStrategy[Said] = st.recursive(
    comparisons() | others(),
    lambda inner: (
        st.builds(joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "or"]))
        | st.builds(negated, inner)
    ),
    max_leaves=6,
)


@given(CONDITIONS, ROWS)
def test_what_is_chosen_is_what_python_says_row_by_row(condition: Said, rows: list[Row]) -> None:
    text, test = condition
    assert Condition(text).chosen(columns_of(rows)).tolist() == [test(row) is True for row in rows], text


WHOLE = [2**24, 2**53, 2**63, 2**64]
"""Limits of the integers that float32, float64, int64 and uint64 hold exactly."""
NEAR = st.sampled_from(WHOLE).flatmap(lambda edge: st.integers(edge - 3, edge + 3)) | st.integers(-4, 4)
SIGNED = st.tuples(NEAR, st.sampled_from([1, -1])).map(lambda drawn: drawn[0] * drawn[1])


@st.composite
def number_columns(draw: Any, rows: int) -> np.ndarray[Any, Any]:
    """Return numbers of any dtype, many of them where rounding would make two numbers equal."""
    dtype = np.dtype(draw(st.sampled_from(["i1", "i4", "i8", "u1", "u4", "u8", "f2", "f4", "f8"])))
    if dtype.kind == "f":
        fractions = st.sampled_from([0.5, -0.5, 0.1, math.inf, -math.inf, math.nan])
        with np.errstate(over="ignore"):
            return np.array([draw(SIGNED.map(float) | fractions) for _ in range(rows)]).astype(dtype)
    limits = np.iinfo(dtype)
    inside = SIGNED.filter(lambda number: limits.min <= number <= limits.max)
    edges = st.sampled_from([int(limits.min), int(limits.max)])
    return np.array([draw(inside | edges) for _ in range(rows)], dtype)


@given(st.integers(1, 6).flatmap(lambda rows: st.tuples(number_columns(rows), number_columns(rows))), SIGNED)
def test_numbers_compare_as_pythons_do(columns: tuple[Any, Any], number: int) -> None:
    """Python compares whole numbers of any size with floats exactly."""
    one, other = columns
    there = np.ones(len(one), bool)
    named = {"one": Column(one, there), "other": Column(other, there)}
    some = [number, *(int(value) for value in other.tolist() if math.isfinite(value))]
    for how, compare in OPERATORS.items():
        pairs = zip(one.tolist(), other.tolist(), strict=True)
        assert Condition(f"one {how} other").chosen(named).tolist() == [compare(*pair) for pair in pairs]
        for literal in some:
            found = Condition(f"one {how} {literal}").chosen(named).tolist()
            assert found == [compare(value, literal) for value in one.tolist()], (how, literal)
    found = Condition(f"one in {some}").chosen(named).tolist()
    assert found == [value in some for value in one.tolist()]


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        (np.array([5, -(2**63)]), "x < 1e20", [True, True]),
        (np.array([5, 2**63], np.uint64), "x == 1e20", [False, False]),
        (np.array([16777216, 16777218, np.nan], np.float32), "x == 16777217", [False, False, False]),
        (np.array([16777216, 16777218, np.nan], np.float32), "x > 16777217", [False, True, False]),
        (np.array([2.0**53, 2.0**53 + 2, np.nan]), f"x != {2**53 + 1}", [True, True, True]),
    ],
)
def test_no_column_is_compared_row_by_row_with_one_number(
    column: Any, text: str, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("packer._fields.where._compared_exactly")
    present = np.ones(len(column), bool)
    assert Condition(text).chosen({"x": Column(column, present)}).tolist() == expected


@given(st.text(st.sampled_from("()[]\"'`\\,=<>!- \nabc01.e"), max_size=30) | st.text(max_size=20))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with contextlib.suppress(OptionError):
        assert not len(Condition(text).chosen(columns_of([])))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ok or ok and not ok", "ok or (ok and (not ok))"),
        ("not ok and ok", "(not ok) and ok"),
        ("not age == 1", "not (age == 1)"),
        ("-3 < age <= 3 != id", "-3 < age and age <= 3 and 3 != id"),
    ],
)
def test_what_binds_stronger(text: str, same: str) -> None:
    rows = [dict.fromkeys(VALUES) | {"age": age, "id": 3, "ok": ok} for age in (-3, 1, 3) for ok in (0, 1)]
    np.testing.assert_array_equal(Condition(text).chosen(columns_of(rows)), Condition(same).chosen(columns_of(rows)))


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", 1, "but the condition ends here"),
        ("agee > 3", 1, "no column agee. There are age"),
        ("age = 3", 5, "use =="),
        ("age > 3 AND ok", 9, "use and"),
        ("NOT ok", 1, "use not"),
        ("age > 3 && ok", 9, "use and"),
        ("split like 't%'", 7, "use glob"),
        ("split == train", 10, "put text in quotes"),
        ("age == null", 8, "use `is null`"),
        ("age == None", 8, "use null"),
        ("age is 3", 8, "expected `null`"),
        ('age > "x"', 7, "age contains numbers, but this is a text"),
        ("age == true", 8, "this is a boolean"),
        ("split == 3", 10, "split contains texts, but this is a number"),
        ("age", 1, "compare it"),
        ("age glob 'x'", 1, "glob applies only to text"),
        ("split glob 3", 12, "a pattern must be a text"),
        ("age < split", 5, "numbers cannot be compared with texts"),
        ("kind == 'dgo'", 9, "no class dgo. There are dog"),
        ("kind < 'dog'", 6, "have no order"),
        ("kind < label", 6, "have no order"),
        ("ok < true", 4, "have no order"),
        ("kind == -1", 9, "kind is null"),
        ("mask == 3", 1, "only with `is null`"),
        ("'a' == 'b'", 5, "one side must be a column"),
        ("3 is null", 1, "expected a column, not a value"),
        ("true", 1, "expected a column, not a value"),
        ("age in []", 9, "a number, a text or a boolean"),
        ("age in 3", 8, "expected `[`"),
        ("(age > 3", 9, "expected `)`"),
        ("age > 3)", 8, "or the end"),
        ("split == 'tra", 10, "is not closed"),
        (r"split == 'a\n'", 10, "a backslash is allowed only before"),
        ("age > 1e999", 7, "too large"),
        ("age.real > 3", 4, "unexpected character"),
        ("__import__('os')", 11, "or the end"),
        ("ok and " + "(" * 33, 40, "more than 32"),
        ("not " * 40 + "ok", 129, "more than 32"),
        ("ok or " * 2000 + "ok", 1, "at most 10,000"),
    ],
)
def test_what_is_no_condition_is_refused_at_its_place(text: str, place: int, problem: str) -> None:
    columns = columns_of([]) | {"mask": Column(np.zeros(0), np.zeros(0, bool), of="masks")}
    with pytest.raises(OptionError, match=re.escape(problem)) as refused:
        Condition(text).chosen(columns)
    assert str(refused.value).startswith(f"where: at character {place} (")
    assert len(str(refused.value).splitlines()) == 1


def test_presence_can_be_asked_of_what_cannot_be_compared() -> None:
    columns = {"mask": Column(np.zeros(2), np.array([True, False]), of="masks")}
    assert Condition("mask is null").chosen(columns).tolist() == [False, True]
    assert Condition("mask is not null").chosen(columns).tolist() == [True, False]


def test_a_pattern_that_would_take_other_programs_for_ever_is_quick() -> None:
    columns = {"name": Column(np.array(["a" * 5000], object), np.ones(1, bool))}
    assert not Condition(f'name glob "{"*a" * 40}b"').chosen(columns).any()  # backtracking would take years
