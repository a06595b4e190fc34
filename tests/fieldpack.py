"""A drawn pack with fields, whose pixels encode their positions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import packer

COUNT = 14
CLASSES = ["a", "b", "c"]
KINDS = {
    "mask": "mask",
    "depth": "image",
    "boxes": "boxes",
    "category": "labels",
    "area": "array:float32:1",
    "points": "keypoints",
    "age": "float32",
    "seen": "bool",
    "caption": "text",
    "embedding": "array:float32:1",
}


def size_of(number: int) -> tuple[int, int]:
    """Return height and width of an image; no two images have the same size."""
    return 60 + number, 90 - 2 * number


def places(height: int, width: int) -> Any:
    """Return an image whose red is its row and whose green is its column, (height, width, 3) uint8."""
    rows, columns = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([rows, columns, rows ^ columns], -1)


def sample(number: int) -> dict[str, Any]:
    """Return a sample as it was given to `packer.pack`; some have no box, and sample 5 has no age and no mask."""
    height, width = size_of(number)
    rng, pixels = np.random.default_rng(number), places(height, width)
    corners = rng.random((number % 4, 2, 2)) * (width, height)
    boxes = np.concatenate([corners.min(1), corners.max(1)], 1)
    given = {
        "image": pixels,
        "label": number % len(CLASSES),
        "name": f"{number:02d}.png",
        "mask": pixels[..., 0] // 2 + pixels[..., 1] // 2,
        "depth": pixels[..., 0].astype(np.uint16) * 256 + pixels[..., 1],
        "boxes": boxes,
        "category": np.arange(len(boxes)) + 10 * number,
        "area": (boxes[:, 2:] - boxes[:, :2]).prod(1),
        "points": np.dstack([boxes[:, ::2], boxes[:, 1::2], np.full((len(boxes), 2), 2)]),
        "age": number / 2,
        "seen": number % 2 == 0,
        "caption": f"sample {number}",
        "embedding": np.arange(4) + number,
    }
    return given if number != 5 else {key: value for key, value in given.items() if key not in ("age", "mask")}


def samples() -> Iterator[dict[str, Any]]:
    return (sample(number) for number in range(COUNT))


def packed(path: Path) -> Path:
    """Write the samples to a pack; the suffix determines the format."""
    packer.pack(samples(), path, fields=KINDS, classes=CLASSES)
    return path
