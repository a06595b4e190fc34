"""Duplicates are found even if the hashes of different texts collide."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from packer import _table
from packer._table import repeats


class Alike(str):
    """A text that has the same hash as every other."""

    def __hash__(self) -> int:
        return 7


def expected(texts: list[str]) -> list[tuple[int, int]]:
    return [(index, texts.index(text)) for index, text in enumerate(texts) if text in texts[:index]]


@pytest.mark.parametrize("kind", [str, Alike])
@given(texts=st.lists(st.text("ab", max_size=2), max_size=30))
def test_they_are_those_of_a_comparison_with_each(kind: type[str], texts: list[str]) -> None:
    block, _table._BLOCK = _table._BLOCK, 4
    try:
        assert sorted(repeats([kind(text) for text in texts])) == expected(texts)
    finally:
        _table._BLOCK = block


def test_a_long_list() -> None:
    texts = [str(number) for number in range(200_000)]
    assert list(repeats(texts)) == []
    assert sorted(repeats([*texts, "7", "199999"])) == [(200_000, 7), (200_001, 199_999)]
