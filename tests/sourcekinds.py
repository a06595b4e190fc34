"""One small source of every kind that `packer.convert` takes, with the arguments for this kind."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Source = tuple[Path, dict[str, Any]]
WIDTH, HEIGHT = 40, 30
ROWS = [[(0, 4, 4, 10, 10), (1, 20, 10, 15, 12)], [(1, 2, 2, 6, 6)], []]
"""The objects of each image: class, x, y, width, height."""


def draw(path: Path, seed: int = 0) -> Path:
    """Write an image of 40 x 30 pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def imagefolder(root: Path) -> Source:
    for number in range(4):
        draw(root / "tree" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    return root / "tree", {}


def unlabeled(root: Path) -> Source:
    for number in range(3):
        draw(root / "flat" / f"{number}.png", number)
    return root / "flat", {"unlabeled": True}


def table(root: Path, labels: list[Any], **options: Any) -> Source:
    source, _ = unlabeled(root)
    with open(root / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *((f"{n}.png", label) for n, label in enumerate(labels))])
    return source, {"labels": root / "labels.csv", **options}


def masks(root: Path) -> Source:
    source, _ = imagefolder(root)
    for path in source.rglob("*.png"):
        (root / "masks").mkdir(exist_ok=True)
        Image.new("L", (WIDTH, HEIGHT), 3).save(root / "masks" / path.name)
    return source, {"fields": {"mask": "../masks/{stem}.png"}}


def unlabeled_masks(root: Path) -> Source:
    source, options = masks(root)
    return source, {**options, "no_classes": True}


def coco(root: Path, *, boxes: bool = True) -> Source:
    images, annotations = [], []
    for number, rows in enumerate(ROWS):
        draw(root / "images" / f"{number}.png", number)
        images.append({"id": number, "file_name": f"{number}.png", "height": HEIGHT, "width": WIDTH})
        for category, *box in rows:
            one = {"id": len(annotations), "image_id": number, "category_id": category + 1, "iscrowd": 0}
            x, y, width, height = box
            outline = [x, y, x + width, y, x + width, y + height]
            shape = {"bbox": box, "area": width * height, "segmentation": [outline], "keypoints": [x, y, 2]}
            annotations.append({**one, **(shape if boxes else {})})
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "coco.json").write_text(json.dumps(document))
    return root / "images", {"coco": root / "coco.json"}


def coco_masks(root: Path) -> Source:
    source, options = coco(root)
    return source, {**options, "masks": True}


def captions(root: Path) -> Source:
    source, _ = coco(root)
    document = json.loads((root / "coco.json").read_text())
    said = [{"id": n, "image_id": n % 3, "caption": f"image {n}"} for n in range(6)]
    (root / "captions.json").write_text(json.dumps({"images": document["images"], "annotations": said}))
    return source, {"coco": root / "captions.json"}


def voc(root: Path) -> Source:
    for number, rows in enumerate(ROWS):
        draw(root / "VOC2012" / "JPEGImages" / f"{number}.png", number)
        objects = ""
        for category, x, y, width, height in rows:
            sides = zip(("xmin", "ymin", "xmax", "ymax"), (x, y, x + width, y + height), strict=True)
            box = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
            name = ("cat", "dog")[category]
            objects += f"<object><name>{name}</name><difficult>0</difficult><bndbox>{box}</bndbox></object>"
        path = root / "VOC2012" / "Annotations" / f"{number}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"<annotation><filename>{number}.png</filename>{objects}</annotation>")
    return root / "VOC2012", {"voc": root / "VOC2012"}


def yolo(root: Path) -> Source:
    for number, rows in enumerate(ROWS):
        draw(root / "images" / f"{number}.png", number)
        (root / "labels").mkdir(exist_ok=True)
        lines = (
            f"{category} {(x + width / 2) / WIDTH} {(y + height / 2) / HEIGHT} {width / WIDTH} {height / HEIGHT}\n"
            for category, x, y, width, height in rows
        )
        (root / "labels" / f"{number}.txt").write_text("".join(lines))
    (root / "data.yaml").write_text("names: [cat, dog]\n")
    return root / "images", {"yolo": root / "data.yaml"}


def hub_objects(root: Path) -> Source:
    source, _ = unlabeled(root)
    with open(source / "metadata.jsonl", "w") as file:
        for number, rows in enumerate(ROWS):
            objects = {"bbox": [row[1:] for row in rows], "categories": [row[0] for row in rows]}
            file.write(json.dumps({"file_name": f"{number}.png", "objects": objects}) + "\n")
    return source, {"no_classes": True}


def hub_text(root: Path) -> Source:
    source, _ = unlabeled(root)
    lines = (json.dumps({"file_name": f"{n}.png", "text": f"image {n}"}) for n in range(3))
    (source / "metadata.jsonl").write_text("\n".join(lines))
    return source, {"no_classes": True}


SOURCES: dict[str, Callable[[Path], Source]] = {
    "imagefolder": imagefolder,
    "unlabeled": unlabeled,
    "table": lambda root: table(root, ["cat", "dog", "cat"]),
    "table of ints": lambda root: table(root, [5, -7, 5], label_type="int"),
    "table of floats": lambda root: table(root, [0.5, 1.5, -2.25], label_type="float"),
    "table with unlabeled rows": lambda root: table(root, ["cat", "", "dog"], unlabeled=True),
    "masks": masks,
    "masks, unlabeled": unlabeled_masks,
    "coco": coco,
    "coco without boxes": lambda root: coco(root, boxes=False),
    "coco with masks": coco_masks,
    "captions": captions,
    "voc": voc,
    "yolo": yolo,
    "hub, objects": hub_objects,
    "hub, text": hub_text,
}
