"""Which key has the labels, and which keys only look like labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from packer._account import Account
from packer._containers.roles import RoleNames, add_candidates, one_hot, whole


@pytest.mark.parametrize(
    ("keys", "known", "expected"),
    [
        (["image", "y", "label"], (), "label"),
        (["Category", "TARGET"], (), "TARGET"),
        (["class", "cls"], ("cls", "class"), "cls"),
        (["a/class", "meta.label"], (), "meta.label"),
        (["class_id", "labelled"], (), None),
        ([], ("label",), None),
    ],
)
def test_the_label_is_known_by_its_name(keys: list[str], known: tuple[str, ...], expected: str | None) -> None:
    assert RoleNames(labels=tuple(known)).label_among(keys) == expected


@pytest.mark.parametrize(
    ("key", "values", "looks"),
    [
        ("class_id", [7], True),
        ("LabelName", ["x"], True),
        ("train/label_idx", [1], True),
        ("species", ["a", "b", "a", "b"], True),
        ("species", ["a", "b", "a"], False),  # too few to tell
        ("species", ["a", "b", "c", "d"], False),  # all differ
        ("species", ["a"] * 8, False),  # all are equal
        ("species", ["x" * 100, "y" * 100] * 4, False),
        ("kind", [0, 1] * 4, True),
        ("kind", [-5, 1] * 4, False),
        ("kind", [0.5, 1.5] * 4, False),
        *(
            (name, [0, 1] * 4, False)
            for name in ("width", "imageHeight", "file_name", "caption", "split", "year", "id")
        ),
        ("label", [], False),
    ],
)
def test_keys_look_like_labels_by_name_or_by_values_that_repeat(key: str, values: Sequence[Any], looks: bool) -> None:
    account = Account()
    add_candidates(account, "column", {key: values})
    assert [candidate.option for candidate in account.candidates] == [f"--key label={key}"] * looks


def test_one_hot_vectors_and_whole_numbers() -> None:
    assert [one_hot(values) for values in ([0, 1, 0], [0.0, 1.0], [1], [0, 0], [1, 1], [0, 2], [])] == [
        *(1, 1),
        *[None] * 5,
    ]
    assert [whole(value) for value in (1.0, 1.5, 2)] == [1, 1.5, 2]
    assert whole(float("inf")) == float("inf")
