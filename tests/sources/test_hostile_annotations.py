"""Malicious annotations are refused with a SourceError, and not with any other exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from packer._containers.blocks import npy_array
from packer._sources.coco import coco_source
from packer._sources.voc import read_annotation
from packer._sources.yolo import yolo_source
from packer.errors import SourceError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("names: [a]\nkpt_shape: [0, 2]", "kpt_shape must be"),
        ("names: [a]\nkpt_shape: [3, 2.0]", "kpt_shape must be"),
        ("names: [a]\nkpt_shape: [1000000000, 3]", "kpt_shape must be"),
        ("names: !!timestamp x", "not YAML"),
        ('names: ["\\uD800"]', "UTF-8|YAML"),
        ("names: !!int x", "not YAML"),
        ("names: !!python/object:os.system x", "not YAML"),
        (f"{BOMB}\nnames: *i", "alias"),
        ("names: [a] #" + "x" * (1 << 22), "more than 4,194,304 characters"),
    ],
)
def test_yaml(said: str, message: str, tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    (tmp_path / "data.yaml").write_text(said)
    with pytest.raises(SourceError, match=message) as caught:
        yolo_source(tmp_path, tmp_path / "data.yaml")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("data", [b"a\0b.png\n", b"\xff\xfe.png\n"])
def test_lists_of_images(data: bytes, tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    (tmp_path / "data.yaml").write_text("names: [a]\ntrain: list.txt")
    (tmp_path / "list.txt").write_bytes(data)
    with pytest.raises(SourceError, match=r"list\.txt"):
        yolo_source(tmp_path, tmp_path / "data.yaml", split="train")


@pytest.mark.parametrize(
    ("head", "side"), [('<?xml version="1.0" encoding="foo"?>', "1"), ("", "1e300"), ("", "nan"), ("", "9" * 400)]
)
def test_voc(head: str, side: str, tmp_path: Path) -> None:
    box = f"<xmin>0</xmin><ymin>0</ymin><xmax>{side}</xmax><ymax>1</ymax>"
    said = f"{head}<annotation><object><name>a</name><bndbox>{box}</bndbox></object></annotation>"
    (tmp_path / "1.xml").write_text(said)
    with pytest.raises(SourceError, match=r"1\.xml"):
        read_annotation(tmp_path / "1.xml")


@pytest.mark.parametrize(
    "changes",
    [
        {"bbox": [0, 0, 10**400, 1]},
        {"bbox": [0, 0, 1e300, 1]},
        {"area": 10**400},
        {"keypoints": [10**400, 0, 1]},
        {"id": 10**30},
    ],
)
def test_coco(changes: dict[str, Any], tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], **changes}
    said = {"images": [{"id": 1, "file_name": "1.png"}], "categories": [{"id": 1, "name": "a"}]}
    (tmp_path / "a.json").write_text(json.dumps({**said, "annotations": [annotation]}))
    with pytest.raises(SourceError, match=r"a\.json"):
        coco_source(tmp_path, [tmp_path / "a.json"])


@pytest.mark.parametrize(
    "header", [b"{'descr': '", b"(((", b"{'descr': ('<f4',), 'fortran_order': False, 'shape': ()}"]
)
def test_headers_of_npy(header: bytes) -> None:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(ValueError, match=r"not a \.npy file"):
        npy_array(memoryview(data))


@pytest.mark.parametrize("category", [{"id": -5, "name": "a"}, {"id": 1, "name": "\ud800"}])
def test_categories_of_coco(category: dict[str, Any], tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    said = {"images": [{"id": 1, "file_name": "1.png"}], "categories": [category], "annotations": []}
    (tmp_path / "a.json").write_text(json.dumps(said))
    with pytest.raises(SourceError, match=r"category -?\d .*ids must be 0 or more"):
        coco_source(tmp_path, [tmp_path / "a.json"])
