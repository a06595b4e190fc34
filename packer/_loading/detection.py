"""The target of a detector, from the fields of an image with annotations: torchvision's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from packer._fields.rle import mask_of, runs_of

__all__ = ["coco_target"]

_MOST_BYTES = 1 << 31  # of the masks of one image


def coco_target(values: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return what torchvision's detectors take as the target of an image.

    The target is that of ``CocoDetection`` wrapped by ``wrap_dataset_for_transforms_v2`` with these keys, each list of
    numbers as ``torch.tensor`` makes it. An image without annotations has tensors of no rows, where torchvision has
    ``image_id`` alone, which no detector takes.

    Parameters
    ----------
    values : mapping
        Values of the fields ``boxes`` and ``category``, and of those that there are of ``image_id``, ``segmentation``,
        ``area`` and ``iscrowd``. None is a value that an image has not.
    size : (int, int)
        Height and width in pixels of the image that boxes and segmentations are of.

    Returns
    -------
    dict
        ``boxes``, (K, 4) float32, x y x y in pixels; ``labels``, (K,) int64, ids of categories; ``masks``, (K, H, W)
        uint8 of 0 and 1; ``image_id``, int; ``area``, (K,) float32 in pixels; ``iscrowd``, (K,) int64 of 0 and 1.
        ``masks``, ``image_id``, ``area`` and ``iscrowd`` are there where `values` has their fields.

    Raises
    ------
    ValueError
        If a segmentation is none, or is of another size; or the masks are more than 2 GiB.
    """
    labels = _rows(values["category"], np.int64)
    boxes = _rows(values["boxes"], np.float32)
    target: dict[str, Any] = {"boxes": torch.from_numpy(boxes.reshape(-1, 4)), "labels": torch.from_numpy(labels)}
    if "segmentation" in values:
        target["masks"] = torch.from_numpy(_masks(values["segmentation"] or (), size))
    if "image_id" in values:
        target["image_id"] = values["image_id"]
    for name, dtype in (("area", np.float32), ("iscrowd", np.int64)):
        if name in values:
            target[name] = torch.from_numpy(_rows(values[name], dtype))
    return target


def _rows(value: Any, dtype: Any) -> Any:
    """Return a field's rows as an array of its own, which a tensor may share; no rows where there is no value."""
    return np.array(() if value is None else value, dtype)


def _masks(segmentations: Any, size: tuple[int, int]) -> Any:
    needed = len(segmentations) * size[0] * size[1]
    if needed > _MOST_BYTES:
        raise ValueError(f"{len(segmentations):,} masks of {size[0]} x {size[1]} pixels are more than 2 GiB")
    masks = np.empty((len(segmentations), *size), np.uint8)
    for mask, segmentation in zip(masks, segmentations, strict=True):
        mask[...] = mask_of(runs_of(segmentation, *size), *size)
    return masks
