"""Pairs of parameters' values instead of the whole product, for parameters that do not depend on each other."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import pytest


def pairwise(*indirect: str, **parameters: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test so that every two values of different parameters meet at least once.

    The values of `indirect` parameters go to the fixtures of their names.

    Rows are chosen one by one. Each begins with the first pair that has not met yet, and has as many other new pairs as
    possible.
    """
    values = [list(given) for given in parameters.values()]
    columns = range(len(values))
    apart = {
        ((one, i), (other, j)): None  # a dict keeps the order
        for one, other in itertools.combinations(columns, 2)
        for i, j in itertools.product(range(len(values[one])), range(len(values[other])))
    }
    rows = []
    while apart:
        row = dict(next(iter(apart)))
        for column in columns:
            if column not in row:
                row[column] = max(
                    range(len(values[column])),
                    key=lambda value: sum(tuple(sorted([(column, value), chosen])) in apart for chosen in row.items()),
                )
        for pair in itertools.combinations(sorted(row.items()), 2):
            apart.pop(pair, None)
        rows.append([values[column][row[column]] for column in columns])
    return pytest.mark.parametrize(list(parameters), rows, indirect=indirect)
