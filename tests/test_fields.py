"""Fields: values are stored and read back; invalid values are refused, with the reason."""

from __future__ import annotations

import json
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as drawn

from packer._fields import DTYPES, Field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Field("age", "scalar", "int8"), -128),
        (Field("age", "scalar", "bool"), True),
        (Field("age", "scalar", "float32"), 0.5),
        (Field("age", "scalar", "float64"), 0.1),
        (Field("kind", "class"), 7),
        (Field("kind", "class", classes=("a", "b"), ids=(3, 9)), 9),
        (Field("caption", "text"), "ein Hund 🐕"),
        (Field("caption", "text"), ""),
        (Field("more", "json"), {"a": [1, None, "ü"]}),
        (Field("more", "bytes"), b"\0\xff"),
        (Field("s", "segmentation"), [None, [], [[1, 2, 3, 4, 5.5, 6]], {"size": [2, 3], "counts": [6]}]),
        (Field("s", "segmentation"), []),
    ],
)
def test_values_come_back(field, value):
    assert field.decode(field.encode(value)) == value
    assert field.decode(field.encode(None)) is None
    assert Field.from_json(field.to_json()) == field


@given(st.sampled_from(sorted(DTYPES)).flatmap(lambda dtype: drawn.arrays(dtype, drawn.array_shapes(min_side=0))))
def test_arrays_come_back(array):
    field = Field("x", "array", array.dtype.name, array.ndim)
    found = field.decode(field.encode(array))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@given(st.integers(0, 4), st.integers(0, 4))
def test_boxes_and_keypoints_come_back(count, points):
    corners = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
    found = Field("b", "boxes").decode(Field("b", "boxes").encode(corners))
    assert found.shape == (count, 4)
    np.testing.assert_array_equal(found, corners)
    keypoints = np.arange(count * points * 3, dtype=np.float32).reshape(count, points, 3)
    found = Field("k", "keypoints").decode(Field("k", "keypoints").encode(keypoints))
    np.testing.assert_array_equal(found.reshape(-1, 3), keypoints.reshape(-1, 3))


def test_names_of_classes_are_taken_as_their_ids():
    field = Field("tags", "labels", classes=("cat", "dog"), ids=(17, 18))
    assert field.decode(field.encode(["dog", 17])).tolist() == [18, 17]
    assert field.decode(field.encode([])).tolist() == []
    assert Field("kind", "class", classes=("cat", "dog")).encode("dog") == 1


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        (Field("age", "scalar", "int8"), 128, "does not fit into int8"),
        (Field("age", "scalar", "int8"), 1.5, "not a value of the kind scalar"),
        (Field("age", "scalar", "float32"), float("nan"), "missing value"),
        (Field("age", "scalar", "float32"), 1e300, "too large"),
        (Field("age", "scalar", "bool"), 2, "neither true nor false"),
        (Field("kind", "class", classes=("a",)), 1, "not a class id"),
        (Field("kind", "class"), -1, "not a class id"),
        (Field("kind", "class", classes=("a",)), "b", "not one of the field's 1 class$"),
        (Field("tags", "labels"), 3, "not a value of the kind labels"),
        (Field("caption", "text"), b"x", "is not text"),
        (Field("caption", "text"), "\udcff", "UTF-8"),
        (Field("more", "json"), {1, 2}, "not a value of the kind json"),
        (Field("b", "boxes"), [[5, 5, 4, 6]], "ends before it begins"),
        (Field("b", "boxes"), [[5, 5, np.inf, 6]], "finite"),
        (Field("b", "boxes"), [1, 2, 3, 4], "are not boxes"),
        (Field("k", "keypoints"), [[[1, 2]]], "are not keypoints"),
        (Field("s", "segmentation"), {"size": [2, 3], "counts": [6]}, "not a list of segmentations"),
        (Field("s", "segmentation"), [None, [[1, 2, 3, 4]]], "segmentation 1: a polygon must have three points"),
        (
            Field("s", "segmentation"),
            [[[1, 2, 3, 4, 5, np.nan]]],
            "0: the points of a polygon must be numbers",
        ),
        (Field("s", "segmentation"), [{"size": [2, 3], "counts": [5]}], "the run lengths add up to 5 pixels"),
        (Field("x", "array", "uint8", 1), [[1]], "2 axes"),
        (Field("x", "array", "uint8", 1), [300], "do not fit into uint8"),
        (Field("x", "array", "uint8", 1), [0.5], "cannot be stored as uint8"),
    ],
)
def test_what_is_no_value_of_a_kind_is_refused(field, value, problem):
    with pytest.raises(ValueError, match=problem):
        field.encode(value)


@pytest.mark.parametrize(
    "members",
    [
        *({"name": name, "kind": "text"} for name in ("label", "name", "height", "width", "size")),
        {"name": "a b", "kind": "text"},
        {"name": "a", "kind": "film"},
        {"name": "a", "kind": "scalar"},
        {"name": "a", "kind": "scalar", "dtype": "float16"},
        {"name": "a", "kind": "text", "rank": 1},
        {"name": "a", "kind": "array", "dtype": "int8", "rank": True},
        {"name": "a", "kind": "class", "classes": ["x"], "ids": [1, 2]},
        {"name": "a", "kind": "class", "classes": [1]},
        {"name": "a", "kind": "text", "colour": "red"},
        {"kind": "text"},
        [],
    ],
)
def test_what_is_no_field_is_refused(members):
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own message
        Field.from_json(members)


@pytest.mark.parametrize(
    ("kind", "data"),
    [("labels", b"123"), ("boxes", b"123"), ("keypoints", b"1"), ("text", b"\xff"), ("segmentation", b"{}")],
)
def test_bytes_that_are_no_value_are_refused(kind, data):
    with pytest.raises(ValueError, match="bytes"):
        Field("x", kind).decode(data)


@pytest.mark.parametrize("shape", [(0, 17, 3), (5, 0, 3), (0, 0, 3)])
def test_keypoints_without_any_keep_how_many_there_would_be(shape):
    field = Field("k", "keypoints")
    assert field.decode(field.encode(np.zeros(shape))).shape == shape
    assert field.decode(field.encode([])).shape == (0, 0, 3)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e400", "[-1E+0309]", "9" * 400 + ".0", '"\\ud800"'])
def test_what_json_cannot_say_is_neither_encoded_nor_decoded(text):
    field = Field("x", "json")
    with pytest.raises(ValueError, match=r"number|UTF-8"):
        field.decode(text.encode())
    with pytest.raises(ValueError, match=r"JSON|UTF-8|number"):
        field.encode(json.loads(text))
    assert field.misfit(text.encode())


def test_large_numbers_of_json_come_back():
    field = Field("x", "json")
    for value in (1.7e308, 1e-400, 10**400, "1e999", "\\ud800", "😀", {"deadbee123": [1e300]}):
        assert field.decode(field.encode(value)) == value


def test_a_box_that_ends_before_it_begins_is_a_misfit():
    assert "ends before" in str(Field("x", "boxes").misfit(np.array([4, 0, 2, 3], "<f4").tobytes()))


@pytest.mark.parametrize("field", [Field("x", "array", "float32", 1), Field("x", "text")])
def test_a_large_value_that_decoding_proves_is_not_encoded_again(field: Field) -> None:
    stored = field.encode({"array": np.zeros(1 << 20, np.float32), "text": "a" * (4 << 20)}[field.kind])
    assert isinstance(stored, bytes)
    tracemalloc.start()
    try:
        assert field.misfit(stored) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * len(stored)  # at most the decoded value


@pytest.mark.parametrize(("dtype", "number"), [("float16", 1e5), ("float32", -1e300)])
def test_an_array_with_a_number_that_is_too_large_is_refused_and_infinity_is_kept(dtype: str, number: float) -> None:
    field = Field("array", "array", dtype, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=f"is too large for {dtype}"):
            field.encode([1.0, number])
        assert field.decode(field.encode([np.inf, 2.0])).tolist() == [np.inf, 2.0]


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")])
def test_json_has_100_levels_at_most(open_, close):
    field = Field("about", "json")
    for depth, sound in ((100, True), (101, False), (600, False)):
        data = (open_ * depth + ("1" if close == "}" else "") + close * depth).encode()
        value = json.loads(data)
        if sound:
            assert field.decode(field.encode(value)) == value
            continue
        for refused in (lambda data=data: field.decode(data), lambda value=value: field.encode(value)):
            with pytest.raises(ValueError, match="nested too deeply"):
                refused()
        assert field.misfit(data) == "it is nested too deeply"
