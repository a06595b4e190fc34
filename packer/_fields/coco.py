"""Annotations in COCO's format and the values of fields that they become, and annotations again. No I/O.

An annotation of an object is a row of each field of objects, and a caption a row of each field of captions. What COCO's
format does not know, and numbers that a field would round, stay as they are in ``members``, so nothing is lost.
Polygons are kept as they are given, because a mask can be drawn from them and they cannot be had from a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields.rle import mask_of, runs_of

__all__ = ["annotations_of", "boxes_of", "captions_of", "drawn", "image_of", "keypoints_of"]

_MOST_PIXELS = 178_956_970  # as an image may have

Boxes = npt.NDArray[np.float32]


def boxes_of(given: Any) -> Boxes:
    """Return boxes x y width height as (K, 4) float32 x y x y, computed in float32 as torchvision does."""
    boxes: Boxes = np.array(given, np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def keypoints_of(given: Sequence[Sequence[float] | None], points: int) -> Boxes:
    """Return keypoints x y visibility x y visibility ... as (K, points, 3) float32: zeros where there are fewer."""
    keypoints: Boxes = np.zeros((len(given), 3 * points), np.float32)
    for row, numbers in zip(keypoints, given, strict=True):
        row[: len(numbers or ())] = numbers or ()
    return keypoints.reshape(-1, points, 3)


def annotations_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the annotations of the objects of one image, equal to those that the values came from.

    Numbers in pixels are those of the file that was annotated while ``boxes`` are that file's. Where a conversion moved
    the boxes, boxes and keypoints are of the image as it is in the pack.

    Parameters
    ----------
    values : mapping
        Values by the names of fields. ``annotation_id`` may be missing or None: there are no annotations then.
    """
    there = {name: value for name, value in values.items() if value is not None}
    if "annotation_id" not in there:
        return []
    count = len(there["annotation_id"])
    found: list[dict[str, Any]] = [{} for _ in range(count)]
    crowds = zip(there["iscrowd"].tolist(), there.get("iscrowd_given", [True] * count), strict=True)
    rows: dict[str, Sequence[Any]] = {
        "id": there["annotation_id"].tolist(),
        "image_id": [there["image_id"]] * count,
        "category_id": there["category"].tolist(),
        "iscrowd": [crowd if given else None for crowd, given in crowds],
        "segmentation": there.get("segmentation", [None] * count),
        "keypoints": _keypoints_given(there, count),
        "area": [None if np.isnan(area) else area for area in there["area"].tolist()] if "area" in there else [],
        "bbox": _boxes_given(there),
    }
    for name, column in rows.items():
        for annotation, value in zip(found, column, strict=False):
            if value is not None:
                annotation[name] = value
    for annotation, more in zip(found, there.get("members") or [None] * count, strict=True):
        exact = (more or {}).get("keypoints")
        if exact and np.array(exact, np.float32).tolist() != annotation.get("keypoints"):
            more = {name: value for name, value in more.items() if name != "keypoints"}  # they were moved
        annotation.update(more or {})
    return found


def captions_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the annotations with captions of one image, equal to those that the values came from."""
    if values.get("captions") is None:
        return []
    ids = values["caption_id"].tolist()
    more = values.get("caption_members") or [None] * len(ids)
    return [
        {"id": id, "image_id": values["image_id"], "caption": caption, **(members or {})}
        for id, caption, members in zip(ids, values["captions"], more, strict=True)
    ]


def image_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the entry of one image, whose sample has a name, in the list of images."""
    return {"id": values["image_id"], "file_name": name, **(values.get("image_info") or {})}


def drawn(
    segmentations: Sequence[Any], categories: Sequence[int], crowds: Sequence[int], height: int, width: int
) -> npt.NDArray[np.int64]:
    """Return the category of each pixel, (height, width) int64; 0 where there is none.

    Crowds lie below other annotations, and larger masks below smaller ones; of equals the later one is on top.
    ValueError where a segmentation is none, or the image has more pixels than an image may have.
    """
    if height * width > _MOST_PIXELS:
        raise ValueError(f"a mask of {height} x {width} pixels is more than the {_MOST_PIXELS:,} allowed")
    runs = [runs_of(one, height, width) for one in segmentations]
    order = sorted(range(len(runs)), key=lambda place: (not crowds[place], -int(runs[place][1::2].sum())))
    pixels = np.zeros((height, width), np.int64)
    for place in order:
        pixels[mask_of(runs[place], height, width).astype(bool)] = categories[place]
    return pixels


def _boxes_given(there: Mapping[str, Any]) -> list[Any]:
    boxes, given = there.get("boxes"), there.get("bbox")
    if given is not None and (boxes is None or np.array_equal(boxes_of(given), boxes)):
        return list(given.tolist())
    if boxes is None:
        return []
    moved = boxes.astype(np.float64)
    moved[:, 2:] -= moved[:, :2]
    return list(moved.tolist())


def _keypoints_given(there: Mapping[str, Any], count: int) -> list[Any]:
    if "keypoints" not in there:
        return []
    size = there["keypoints"].shape[1]
    keypoints = there["keypoints"].reshape(count, 3 * size).tolist()
    points = there["keypoint_count"].tolist() if "keypoint_count" in there else [size] * count
    return [row[: 3 * known] if known else None for row, known in zip(keypoints, points, strict=True)]
