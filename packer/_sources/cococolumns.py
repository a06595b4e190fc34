"""The fields of images with annotations in COCO's format: which member of an annotation becomes which field.

A field of objects has a row an annotation, in the order of the files. It is null for images of which the files with
objects say nothing, and empty where they say that there is no object. Ids that are texts get numbers, from 1 on in the
order of the files, and are kept in ``members``; images keep theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from packer._fields import Field
from packer._fields.coco import boxes_of, keypoints_of
from packer._sources.cocofile import Id, Joined, Segmentation
from packer._sources.fieldvalues import Blobs, Column, Numbers
from packer.errors import SourceError, printable

__all__ = ["columns_of"]

_OF_OBJECTS = ("id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints")
_OF_CAPTIONS = ("id", "caption")
_IDS = ("id", "category_id")

Annotations = list[dict[str, Any]]
Value = Callable[[Annotations], Any]
"""Gives the value of a field of an image's annotations: bytes as a pack holds them, or what the field encodes."""


def columns_of(
    ids: Sequence[Id],
    joined: Joined,
    shown: str,
    unusable: dict[int, SourceError],
) -> list[Column]:
    """Return the columns of what files say of images.

    Parameters
    ----------
    ids : sequence of Id
        Those of the images.
    joined : Joined
        What the files say.
    shown : str
        What a message calls the files.
    unusable : dict of int to SourceError
        Gets the rows of images with a value that does not fit into its field, and why; it is null there.
    """
    images = [joined.images[id] for id in ids]
    objects = [_with_ids(image.objects) for image in images]
    captions = [_with_ids(image.captions) for image in images]
    members = ([image.members] for image in images)
    info = _column(Field("image_info", "json"), members, lambda one: one[0], shown, unusable)
    columns: list[Column] = [_of_ids(ids), info]
    if any(one is not None for one in objects):
        fields = _of_objects([entry for one in objects for entry in one or ()], joined)
        columns += [_column(field, objects, value, shown, unusable) for field, value in fields]
    if any(one is not None for one in captions):
        fields = _of_captions([entry for one in captions for entry in one or ()])
        columns += [_column(field, captions, value, shown, unusable) for field, value in fields]
    return columns


def _of_ids(ids: Sequence[Id]) -> Column:
    """Return the column of the ids of images."""
    if any(isinstance(id, str) for id in ids):
        field = Field("image_id", "text")
        return Blobs.of(field, (str(id).encode() for id in ids))
    return Numbers(Field("image_id", "scalar", "int64"), np.array(ids, np.int64), np.zeros(len(ids), bool))


def _of_objects(entries: Annotations, joined: Joined) -> list[tuple[Field, Value]]:
    """Return the fields that there are of objects."""
    names = tuple(category["name"] for category in joined.categories.values())
    categories, numbers = joined.category_numbers, _numbers(entries)
    fields: list[tuple[Field, Value]] = []
    if _any_has(entries, "bbox"):
        fields.append((Field("boxes", "boxes"), lambda own: boxes_of([entry["bbox"] for entry in own])))
        fields.append((Field("bbox", "array", "float64", 2), lambda own: _floats(own, "bbox").reshape(-1, 4)))
    fields += [
        (
            Field("category", "labels", classes=names, ids=tuple(categories.values())),
            lambda own: [categories.get(entry["category_id"], entry["category_id"]) for entry in own],
        ),
        (Field("annotation_id", "array", "int64", 1), lambda own: _numbered(own, numbers)),
        (Field("iscrowd", "array", "uint8", 1), lambda own: np.array(_all(own, "iscrowd", 0), np.uint8)),
    ]
    if not all("iscrowd" in entry for entry in entries):
        given = Field("iscrowd_given", "array", "uint8", 1)
        fields.append((given, lambda own: np.array(["iscrowd" in entry for entry in own], np.uint8)))
    if _any_has(entries, "area"):
        fields.append((Field("area", "array", "float64", 1), lambda own: _floats(own, "area")))
    if _any_has(entries, "segmentation"):
        fields.append((Field("segmentation", "segmentation"), _segmentations))
    if _any_has(entries, "keypoints"):
        fields += _of_keypoints(entries)
    if any(_members(entry, _OF_OBJECTS) for entry in entries):
        fields.append((Field("members", "json"), lambda own: [_members(entry, _OF_OBJECTS) for entry in own]))
    return fields


def _of_keypoints(entries: Annotations) -> list[tuple[Field, Value]]:
    counts = {_points(entry) for entry in entries}
    most = max(counts)
    fields: list[tuple[Field, Value]] = [
        (Field("keypoints", "keypoints"), lambda own: keypoints_of([entry.get("keypoints") for entry in own], most))
    ]
    if len(counts) > 1:
        count = Field("keypoint_count", "array", "int64", 1)
        fields.append((count, lambda own: np.array(list(map(_points, own)), np.int64)))
    return fields


def _of_captions(entries: Annotations) -> list[tuple[Field, Value]]:
    numbers = _numbers(entries)
    fields: list[tuple[Field, Value]] = [
        (Field("captions", "json"), lambda own: _all(own, "caption")),
        (Field("caption_id", "array", "int64", 1), lambda own: _numbered(own, numbers)),
    ]
    if any(_members(entry, _OF_CAPTIONS) for entry in entries):
        members = Field("caption_members", "json")
        fields.append((members, lambda own: [_members(entry, _OF_CAPTIONS) for entry in own]))
    return fields


def _column(
    field: Field,
    rows: Iterable[Annotations | None],
    value: Value,
    shown: str,
    unusable: dict[int, SourceError],
) -> Column:
    def stored(row: int, own: Annotations | None) -> Any:
        try:
            one = None if own is None else value(own)
            return one if isinstance(one, bytes) else field.encode(one)
        except (ValueError, OverflowError) as error:
            of = f" of annotation {own[0]['id']}, or of another of its image" if own and "id" in own[0] else ""
            unusable.setdefault(row, SourceError(f"{shown}: field {field.name!r}{of}: {printable(error)}"))
            return None

    return Blobs.of(field, (stored(row, own) for row, own in enumerate(rows)))


def _numbers(entries: Annotations) -> dict[Id, int]:
    """Return the numbers of annotations whose ids are texts."""
    return {id: place for place, entry in enumerate(entries, 1) if isinstance(id := entry["id"], str)}


def _numbered(own: Annotations, numbers: Mapping[Id, int]) -> Any:
    return np.array([numbers.get(entry["id"], entry["id"]) for entry in own], np.int64)


def _with_ids(annotations: dict[Id, dict[str, Any]] | None) -> Annotations | None:
    if annotations is None:
        return None
    for id, entry in annotations.items():
        entry["id"] = id
    return list(annotations.values())


def _members(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any] | None:
    """Return what no field has of an annotation.

    That are members that are not known, or null, ids that are texts, and keypoints that float32 rounds.
    """
    more = {name: value for name, value in entry.items() if name not in known or value is None}
    if isinstance(own := more.get("segmentation"), Segmentation):  # of a caption
        more["segmentation"] = json.loads(own.text)
    more |= {name: id for name in _IDS if name in known and isinstance(id := entry[name], str)}
    keypoints = entry.get("keypoints")
    if keypoints is not None and (not keypoints or np.array(keypoints, np.float32).tolist() != keypoints):
        more["keypoints"] = keypoints
    return more or None


def _segmentations(own: Annotations) -> bytes:
    texts = (b"null" if entry.get("segmentation") is None else entry["segmentation"].text for entry in own)
    return b"[" + b",".join(texts) + b"]"


def _points(entry: Mapping[str, Any]) -> int:
    return len(entry.get("keypoints") or ()) // 3


def _any_has(entries: Annotations, name: str) -> bool:
    return any(entry.get(name) is not None for entry in entries)


def _all(own: Annotations, name: str, default: Any = None) -> list[Any]:
    return [default if entry.get(name) is None else entry[name] for entry in own]


def _floats(own: Annotations, name: str) -> Any:
    return np.array(_all(own, name, np.nan), np.float64)
