"""Masks of polygons and run lengths have the pixels of pycocotools, and its compressed texts."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as drawn
from pycocotools import mask as theirs

from packer._fields import coco

SIDES = st.integers(1, 40)
MASKS = drawn.arrays(np.uint8, st.tuples(SIDES, SIDES), elements=st.integers(0, 1))
POINTS = st.one_of(
    st.integers(-12, 60),
    st.floats(-12, 60, width=32).map(lambda value: round(value, 2)),
    st.sampled_from([0, 0.1, 0.3, 0.5, -0.5, 39.5, 40]),
)
POLYGONS = st.lists(st.lists(st.tuples(POINTS, POINTS), min_size=3, max_size=8), min_size=1, max_size=3)


@settings(max_examples=300)
@given(POLYGONS, SIDES, SIDES)
def test_polygons_are_drawn_as_pycocotools_draws_them(polygons: Any, height: int, width: int) -> None:
    given_ones = [[float(number) for point in polygon for number in point] for polygon in polygons]
    expected = theirs.merge(theirs.frPyObjects(given_ones, height, width))
    assert coco.text_of(coco.runs_of(given_ones, height, width)) == expected["counts"].decode()
    found = coco.mask_of(coco.runs_of(given_ones, height, width), height, width)
    np.testing.assert_array_equal(found, theirs.decode(expected))


FAR = st.one_of(POINTS, st.sampled_from([-1e4, 1e4, -999.5, 20_000]))


@settings(max_examples=100)
@given(st.lists(st.tuples(FAR, FAR), min_size=3, max_size=9), SIDES, SIDES)
def test_polygons_that_leave_their_image_are_drawn_as_pycocotools_draws_them(
    points: Any, height: int, width: int
) -> None:
    polygon = [float(number) for point in points for number in point]
    expected = theirs.frPyObjects([polygon], height, width)[0]
    assert coco.text_of(coco.runs_of([polygon], height, width)) == expected["counts"].decode()


def test_far_corners_take_no_memory() -> None:
    zigzag = [1e6 if (place // 2 + place) % 2 else -1e6 for place in range(6000)]
    tracemalloc.start()
    try:
        coco.runs_of([zigzag], 50, 60)
        assert tracemalloc.get_traced_memory()[1] < 100e6  # walking these edges would take 100 GB
    finally:
        tracemalloc.stop()


def test_more_edges_than_memory_holds_are_refused() -> None:
    zigzag = [1e6 if place % 4 < 2 else -1e6 for place in range(2000)]
    with pytest.raises(ValueError, match="its edges cross pixel columns"):
        coco.runs_of([zigzag], 10, 10_000)


def test_a_polygon_with_a_point_twice_is_drawn_as_pycocotools_draws_it() -> None:
    polygon = [5.0, 5.0, 5.0, 5.0, 20.0, 5.0, 20.0, 17.0, 20.0, 17.0, 5.0, 17.0]
    expected = theirs.merge(theirs.frPyObjects([polygon], 30, 30))["counts"].decode()
    assert coco.text_of(coco.runs_of([polygon], 30, 30)) == expected


@given(MASKS)
def test_masks_and_texts_come_back(mask: Any) -> None:
    expected = theirs.encode(np.asfortranarray(mask))["counts"].decode()
    runs = coco.counts_of_mask(mask)
    assert coco.text_of(runs) == expected
    assert coco.counts_of_text(expected).tolist() == runs.tolist()
    np.testing.assert_array_equal(coco.mask_of(runs, *mask.shape), mask)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_runs_of_any_length_come_back(counts: list[int]) -> None:
    assert coco.counts_of_text(coco.text_of(np.array(counts, np.int64))).tolist() == counts


def test_run_lengths_that_are_not_compressed_become_pycocotools_text() -> None:
    given_one = {"size": [4, 5], "counts": [3, 0, 2, 15]}
    expected = theirs.frPyObjects(given_one, 4, 5)
    assert coco.text_of(coco.runs_of(given_one, 4, 5)) == expected["counts"].decode()


@pytest.mark.parametrize("nothing", [None, [], [[]]])
def test_nothing_is_an_empty_mask(nothing: Any) -> None:
    assert not coco.mask_of(coco.runs_of(nothing, 3, 4), 3, 4).any()


@pytest.mark.parametrize(
    ("segmentation", "problem"),
    [
        ("text", "list of polygons"),
        ([1.0, 2, 3, 4, 5, 6], "list of polygons"),
        ([[1, 2, 3, 4]], "three points"),
        ([[1, 2, 3, 4, 5, 6, 7]], "three points"),
        ([[1, 2, 3, 4, 5, "6"]], "must be numbers"),
        ([[1, 2, 3, 4, 5, 1e9]], "must be numbers"),
        ({"counts": [6]}, "height, width"),
        ({"size": [2, 3], "counts": [5]}, "5 pixels"),
        ({"size": [2, 3], "counts": [7, -1]}, "6 pixels"),
        ({"size": [2, 3], "counts": 6}, "whole numbers or a string"),
        ({"size": [2, 3], "counts": "o"}, "not compressed run lengths"),
        ({"size": [2, 3], "counts": "\u00fc"}, "not compressed run lengths"),
        ({"size": [2, 3], "counts": "o" * 20 + "0"}, "not compressed run lengths"),
        ({"size": [3, 2], "counts": [6]}, "its size is"),
    ],
)
def test_what_is_no_segmentation_is_refused_in_words(segmentation: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        coco.runs_of(segmentation, 2, 3)
