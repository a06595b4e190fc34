"""Which fields have an entry for each box, where the tool that annotated the images tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from packer._fields.field import Field

__all__ = ["BOXES", "Sizes", "fields_of_boxes"]

Sizes = Callable[[str], npt.NDArray[np.int64]]
"""Returns the sizes of a field's blobs in bytes, one a sample; -1 where a sample has no value."""

BOXES = "boxes"

_COCO = {
    "annotation_id": ("array", "int64", 1),
    "area": ("array", "float64", 1),
    "bbox": ("array", "float64", 2),
    "category": ("labels", "", 0),
    "iscrowd": ("array", "uint8", 1),
    "iscrowd_given": ("array", "uint8", 1),
    "keypoint_count": ("array", "int64", 1),
    "keypoints": ("keypoints", "", 0),
    "members": ("json", "", 0),
    "segmentation": ("segmentation", "", 0),
}
_VOC = {
    "category": ("labels", "", 0),
    "difficult": ("array", "int8", 1),
    "occluded": ("array", "int8", 1),
    "truncated": ("array", "int8", 1),
}
_YOLO = {"category": ("labels", "", 0), "keypoints": ("keypoints", "", 0), "segmentation": ("segmentation", "", 0)}
_CAFFE = {
    "category": ("labels", "", 0),
    "difficult": ("array", "uint8", 1),
    "instance": ("array", "int64", 1),
}
_LAYOUTS = (
    ({"image_info": "json", "annotation_id": "array", "bbox": "array"}, _COCO),
    ({"annotation": "json", "category": "labels"}, _VOC),
    ({"yolo": "text", "category": "labels"}, _YOLO),
    ({"category": "labels", "instance": "array", "difficult": "array"}, _CAFFE),
)
"""The fields, with their kinds, by which packer's conversion of a tool's annotations is known; what is of the boxes."""

_HUB = "labels"  # the categories of the Hub's `objects`, whose table is checked to have one for each bbox


def fields_of_boxes(known: Mapping[str, Field], sizes: Sizes) -> tuple[str, ...] | None:
    """Return the names of the fields that have an entry for each of the ``boxes`` of a pack; None where none tells.

    The pack does not record them: they follow from the fields that ``--coco``, ``--voc``, ``--yolo`` and Caffe's
    annotated Datum become. The ``labels`` of the Hub's ``objects`` follow from the table: every sample has as many as
    it has boxes, and one has several.

    Parameters
    ----------
    known : mapping of str to Field
    sizes : callable
    """
    if BOXES not in known or [name for name, field in known.items() if field.kind == "boxes"] != [BOXES]:
        return None
    for marks, of_boxes in _LAYOUTS:
        if all(name in known and known[name].kind == kind for name, kind in marks.items()):
            found = {name: (field.kind, field.dtype, field.rank) for name, field in known.items()}
            return tuple(name for name in known if of_boxes.get(name) == found[name])
    if _HUB in known and known[_HUB].kind == "labels":
        boxes, labels = sizes(BOXES), sizes(_HUB)
        counts = np.where(boxes < 0, -1, boxes // 16)
        if (counts == np.where(labels < 0, -1, labels // 8)).all() and counts.max(initial=0) > 1:
            return (_HUB,)
    return None
