"""Documents in COCO's format, made again from the fields of a pack: a pack loses nothing of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from packer._fields.coco import boxes_of
from packer._formats import Reader

_OF_IMAGES = ("image_id", "image_info")
_OF_OBJECTS = (
    *("annotation_id", "category", "iscrowd", "iscrowd_given", "boxes", "bbox", "area", "segmentation"),
    *("keypoints", "keypoint_count", "members"),
)
_OF_CAPTIONS = ("captions", "caption_id", "caption_members")


def coco_document(reader: Reader, *, captions: bool = False) -> dict[str, Any]:
    """Return the annotations of a pack made from files in COCO's format; they equal those in the files.

    Images and annotations have the order of the pack, which is the order of the images' ids. Coordinates, heights and
    widths refer to the images in the pack, which may have been resized; ``area`` keeps the number from the file. With
    `captions`, they are the captions, which have their own ids.
    """
    names_of, id = (_OF_CAPTIONS, "caption_id") if captions else (_OF_OBJECTS, "annotation_id")
    fields = [name for name in (*_OF_IMAGES, *names_of) if name in reader.fields]
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(len(reader)):
        values = {name: reader.fields[name].decode(reader.value(index, name)) for name in fields}
        if id in fields and values[id] is None:
            continue
        images.append(_image(reader, index, values))
        annotations += (captions_of if captions else annotations_of)(values)
    document: dict[str, Any] = {**_members(reader, captions), "images": images}
    return {**document, "annotations": annotations} if id in fields else document


def _image(reader: Reader, index: int, values: dict[str, Any]) -> dict[str, Any]:
    image = image_of(values, reader.names[index])
    sides = {"height": int(reader.table.height[index]), "width": int(reader.table.width[index])}
    return image | {name: side for name, side in sides.items() if image.get(name) is not None}


def _members(reader: Reader, captions: bool) -> dict[str, Any]:
    """Return the members that belong to no image, from the files with objects or from those with captions."""
    every = [entry["members"] for entry in reader.manifest.about]
    about = [members for members in every if bool(members.get("categories")) != captions] or every
    found: dict[str, Any] = {}
    for members in about:
        found = {**members, **found}
    if not captions and "category" in reader.fields:
        found["categories"] = _categories(reader, about)
    return found


def _categories(reader: Reader, about: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the categories with their members in the files; at least their ids and names."""
    field = reader.fields["category"]
    known: dict[int, dict[str, Any]] = {
        id: {"id": id, "name": name} for id, name in zip(field.ids, field.classes, strict=True)
    }
    numbers: dict[str, int] = {}  # of ids that are texts, in the order of the files
    for category in (one for members in about for one in members.get("categories") or ()):
        id = category.get("id") if isinstance(category, dict) else None
        number = numbers.setdefault(id, len(numbers) + 1) if isinstance(id, str) else id
        if number in known:
            own = known[number]
            own["id"] = id
            own.update({name: value for name, value in category.items() if name not in own})
    return list(known.values())


def annotations_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the annotations of one image's objects, equal to those from which the values were made.

    Numbers in pixels are those in the annotation file if ``boxes`` are unchanged. If a conversion moved the boxes,
    boxes and keypoints refer to the image in the pack.

    Parameters
    ----------
    values : mapping
        Values by the names of fields. If ``annotation_id`` is missing or None, there are no annotations.
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
        "iscrowd": [crowd if present else None for crowd, present in crowds],
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
    """Return the annotations with captions of one image, equal to those from which the values were made."""
    if values.get("captions") is None:
        return []
    ids = values["caption_id"].tolist()
    more = values.get("caption_members") or [None] * len(ids)
    return [
        {"id": id, "image_id": values["image_id"], "caption": caption, **(members or {})}
        for id, caption, members in zip(ids, values["captions"], more, strict=True)
    ]


def image_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the entry of one image in the list of images; `name` is the name of its sample."""
    return {"id": values["image_id"], "file_name": name, **(values.get("image_info") or {})}


def _boxes_given(there: Mapping[str, Any]) -> list[Any]:
    boxes, bbox = there.get("boxes"), there.get("bbox")
    if bbox is not None and (boxes is None or np.array_equal(boxes_of(bbox), boxes)):
        return list(bbox.tolist())
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
