"""A drawn set of images with annotations in COCO's format: crowds, polygons, run lengths, images without any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as theirs

CATEGORIES = [
    {"id": 1, "name": "person", "supercategory": "human", "keypoints": ["nose", "hand"], "skeleton": [[1, 2]]},
    {"id": 18, "name": "dog", "supercategory": "animal"},
    {"id": 90, "name": "toothbrush", "supercategory": "indoor"},
]


def draw_coco(root: Path, count: int = 200) -> dict[str, Path]:
    """Draw `count` small images below ``root / "images"``; return the annotation files by their content."""
    rng = np.random.default_rng(7)
    (root / "images" / "below").mkdir(parents=True)
    images, objects, people, captions = [], [], [], []
    for number in range(count):
        height, width = rng.integers(24, 64, 2).tolist()
        name = f"{'below/' if number % 5 == 0 else ''}{number:04}.png"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(root / "images" / name)
        id = int(10_000 - 37 * number)  # not the order of the names
        images.append({"id": id, "file_name": name, "height": height, "width": width, "license": number % 3})
        for _ in range((0, 1, 2, 4)[number % 4]):
            one = draw_object(rng, height, width, len(objects) % 4)
            one |= {"id": len(objects) + 500, "image_id": id}
            objects.append(one)
            if one["category_id"] == 1:
                points = [*rng.integers(0, 24, 2).tolist(), 2, 0, 0, 0]
                people.append({**one, "keypoints": points, "num_keypoints": 1})
        captions += [{"id": 500 + 2 * number + k, "image_id": id, "caption": f"{number} ü {k}"} for k in range(2)]
    files = {"instances": (objects, CATEGORIES), "people": (people, CATEGORIES[:1]), "captions": (captions, None)}
    for what, (drawn, categories) in files.items():
        document = {"info": {"year": 2026}, "licenses": [{"id": 0}], "images": images, "annotations": drawn}
        document |= {"categories": categories} if categories else {}
        (root / f"{what}.json").write_text(json.dumps(document))
    return {what: root / f"{what}.json" for what in files}


def draw_object(rng: np.random.Generator, height: int, width: int, sort: int) -> dict[str, Any]:
    """Draw an annotation with one or two polygons, uncompressed or compressed run lengths, or a crowd."""
    corners = rng.uniform(0, 1, (2, 5, 2)) * (width, height)
    polygons = [np.round(points, 2).reshape(-1).tolist() for points in corners[: 1 + sort % 2]]
    rle = theirs.merge(theirs.frPyObjects(polygons, height, width))
    box = [round(value, 2) for value in theirs.toBbox(rle).tolist()]
    segmentation: Any = polygons
    if sort == 2:
        segmentation = {"size": [height, width], "counts": rle["counts"].decode()}
    elif sort == 3:
        pixels = theirs.decode(rle).T.ravel()
        ends = np.flatnonzero(np.diff(pixels, prepend=0, append=2))
        segmentation = {"size": [height, width], "counts": np.diff(ends, prepend=0).tolist()}
    return {
        "segmentation": segmentation,
        "bbox": box,
        "area": float(theirs.area(rle)) + 0.125,
        "iscrowd": int(sort == 3),
        "category_id": CATEGORIES[int(rng.integers(3))]["id"],
    }
