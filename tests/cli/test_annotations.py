"""`packer convert --coco`, `--voc` and `--yolo`: packs with their fields, and options that do not fit together."""

from __future__ import annotations

import json
from pathlib import Path

from packer._datasets.fields import coco_target
from packer._formats import open_pack
from tests.cocodocument import annotations_of
from tests.cocoset import draw_coco
from tests.command import packer, packer_many
from tests.sources.test_voc import object_of, write as write_voc
from tests.sources.test_yolo import write as write_yolo


def test_annotations_of_a_pack_are_those_of_the_files(tmp_path: Path) -> None:
    files = draw_coco(tmp_path, 12)
    line = ["convert", tmp_path / "images", tmp_path / "a.lmdb", "--masks"]
    result = packer(*line, *(word for file in files.values() for word in ("--coco", file)))
    assert result.returncode == 0, result.stderr
    expected = json.loads(files["instances"].read_text())["annotations"]
    found = []
    with open_pack(tmp_path / "a.lmdb") as reader:
        for index in range(len(reader)):
            values = {name: field.decode(reader.value(index, name)) for name, field in reader.fields.items()}
            found += annotations_of(values)
            size = values["image_info"]["height"], values["image_info"]["width"]
            assert len(coco_target(values, size)["masks"]) == len(values["category"])
            assert values["mask"].startswith(b"\x89PNG")
    more = ("keypoints", "num_keypoints")
    found = [{name: value for name, value in one.items() if name not in more} for one in found]
    assert sorted(found, key=lambda one: one["id"]) == expected


def test_a_split_of_voc_and_of_yolo_becomes_a_pack(tmp_path: Path) -> None:
    voc = tmp_path / "VOC2012"
    write_voc(voc, "a", object_of("cat", (1, 2, 3, 4)))
    write_voc(voc, "b")
    (voc / "ImageSets" / "Main" / "train.txt").write_text("a\n")
    yaml = "train: images/train\nnames: [cat, dog]\n"
    images, data = write_yolo(tmp_path, dict.fromkeys(("train/a", "val/b"), "1 0.5 0.5 0.5 0.5"), yaml)
    lines = [
        ["convert", voc / "JPEGImages", tmp_path / "voc.lmdb", "--voc", voc, "--split", "train"],
        ["convert", images, tmp_path / "yolo.lmdb", "--yolo", data, "--split", "train"],
    ]
    for result in packer_many(lines):
        assert result.returncode == 0, result.stderr
    with open_pack(tmp_path / "voc.lmdb") as reader:
        assert len(reader) == 1
        assert reader.fields["boxes"].decode(reader.value(0, "boxes")).tolist() == [[1, 2, 3, 4]]
    with open_pack(tmp_path / "yolo.lmdb") as reader:
        assert len(reader) == 1
        assert reader.fields["boxes"].decode(reader.value(0, "boxes")).tolist() == [[10, 5, 30, 15]]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    result = packer("convert", tmp_path / "images", tmp_path / "a.lmdb", "--coco", "none.json")
    assert result.returncode == 1
    assert "none.json: cannot be read: No such file" in result.stderr
    assert not (tmp_path / "a.lmdb").exists()


def test_lists_hold_the_fields_of_annotations_or_are_refused(tmp_path: Path) -> None:
    file = draw_coco(tmp_path, 8)["instances"]
    images = tmp_path / "images"
    yolo, data = write_yolo(tmp_path / "yolo", {"a": "0 0.5 0.5 1 1"})
    whole, scanned, converted, masks, yolos, parts = packer_many(
        [
            ["convert", images, tmp_path / "a.lmdb", "--coco", file],
            ["scan", images, tmp_path / "a.scan", "--coco", file],
            ["convert", tmp_path / "a.scan", tmp_path / "b.lmdb"],
            ["scan", images, tmp_path / "b.scan", "--coco", file, "--masks"],
            ["scan", yolo, tmp_path / "c.scan", "--yolo", data],
            ["convert", yolo, tmp_path / "c.lmdb", "--yolo", data, "--parts", "2"],
        ]
    )
    assert [one.returncode for one in (whole, scanned, converted)] == [0, 0, 0], scanned.stderr
    with open_pack(tmp_path / "a.lmdb") as one, open_pack(tmp_path / "b.lmdb") as other:
        assert one.fields == other.fields
        for index in range(len(one)):
            assert all(one.value(index, name) == other.value(index, name) for name in one.fields)
    for refused in (masks, yolos, parts):
        assert refused.returncode != 0
        assert "which are computed from the annotations" in refused.stderr


def test_a_conversion_that_stopped_goes_on_with_the_same_fields(tmp_path: Path) -> None:
    file = draw_coco(tmp_path, 24)["instances"]
    image = tmp_path / "images" / "0007.png"
    good = image.read_bytes()
    image.write_bytes(b"broken")
    line = ["convert", tmp_path / "images", "--coco", file, "--masks", "--workers", "1"]
    assert packer(*line, tmp_path / "a.lmdb").returncode == 1
    image.write_bytes(good)
    again, whole, verified = packer_many(
        [[*line, tmp_path / "a.lmdb"], [*line, tmp_path / "b.lmdb"], ["verify", tmp_path / "a.lmdb"]]
    )
    assert "continued after" in again.stdout
    assert (whole.returncode, verified.returncode) == (0, 0)
    with open_pack(tmp_path / "a.lmdb") as one, open_pack(tmp_path / "b.lmdb") as other:
        for index in range(24):
            assert all(one.value(index, name) == other.value(index, name) for name in other.fields)
