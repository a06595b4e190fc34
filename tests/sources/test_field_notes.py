"""Notes of a conversion about its fields: their kinds, and properties that a user may not expect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import packer
from packer._conversion.request import SourceRequest
from packer.errors import SourceError
from tests.command import packer as command
from tests.samples import noise


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with one image; next to the tree are files of the same name in several pixel modes."""
    noise(tmp_path / "tree" / "a.png", 1, (8, 9))
    for mode in ("L", "P", "1", "RGB", "I;16"):
        (tmp_path / mode[0]).mkdir()
        Image.new(mode, (9, 8)).save(tmp_path / mode[0] / "a.png")
    return tmp_path / "tree"


def notes(src: Path, **options: object) -> list[str]:
    return SourceRequest(src=src, **options).open(src / "x.lmdb", None).notes  # type: ignore[arg-type]


def test_the_command_names_the_fields_with_their_kinds(tree: Path) -> None:
    row = {"path": "a.png", "caption": "x", "age": 1.5, "tags": ["a"]}
    tree.with_name("t.jsonl").write_text(json.dumps(row))
    said = ["--labels", tree.with_name("t.jsonl"), "--no-classes", "--field", "mask=../L/{stem}.png"]
    said += ["--column", "caption:text", "--column", "age:float32", "--column", "tags:labels"]
    line = "\n  fields: caption (text), age (float32), tags (labels), mask (mask)\n"
    assert line in command("convert", tree, tree.with_name("p.lmdb"), *said).stdout
    assert line in command("scan", tree, tree.with_name("p.scan"), *said).stdout + "\n"


@pytest.mark.parametrize(("directory", "is_said"), [("L", True), ("P", True), ("1", True), ("R", False), ("I", False)])
def test_an_image_by_default_whose_first_file_is_gray_is_said(tree: Path, directory: str, is_said: bool) -> None:
    said = (
        "gt is an image, whose pixels are interpolated when it is cropped; for a mask of ids pass "
        f"--field gt:mask=../{directory}/{{stem}}.png"
    )
    template = f"../{directory}/{{stem}}.png"
    assert (said in notes(tree, unlabeled=True, fields={"gt": template})) == is_said
    assert said not in notes(tree, unlabeled=True, fields={"gt:image": template})


def test_a_table_that_is_read_is_no_file_that_was_not_looked_at(tree: Path) -> None:
    table = tree / "metadata.jsonl"
    table.write_text(json.dumps({"file_name": "a.png", "age": 3}))
    (tree / "class").mkdir()
    assert "metadata.jsonl: fields age" in notes(tree)
    assert not any("not looked at" in note for note in notes(tree))
    (tree / "other.jsonl").write_text("")
    assert any("1 file of another type was not looked at: .jsonl 1" in note for note in notes(tree))
    table.write_text(json.dumps({"file": "a.png"}))
    assert any("2 files of other types" in note for note in notes(tree, unlabeled=True))


@pytest.mark.parametrize("is_csv", [False, True])
def test_boxes_and_categories_of_objects_are_equally_many(tree: Path, is_csv: bool) -> None:
    objects = {"bbox": [[0, 0, 2, 2], [1, 1, 3, 3]], "categories": [5]}
    if is_csv:
        quoted = json.dumps(objects).replace('"', '""')
        (tree / "metadata.csv").write_text(f'file_name,objects\na.png,"{quoted}"\n')
    else:
        (tree / "metadata.jsonl").write_text(json.dumps({"file_name": "a.png", "objects": objects}))
    said = rf"metadata.*, line {1 + is_csv}: column 'objects': it has 2 bbox and 1 categories"
    with pytest.raises(SourceError, match=said):
        notes(tree)


def test_boxes_without_an_area_are_kept_and_counted(tree: Path) -> None:
    boxes = [[0, 0, 0, 2], [1, 1, 3, 3], [1, 1, 3, 0]]
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 9, "height": 8}],
        "annotations": [{"id": at, "image_id": 1, "category_id": 1, "bbox": box} for at, box in enumerate(boxes, 1)],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tree / "coco.json").write_text(json.dumps(document))
    summary = packer.convert(tree, tree.with_name("c.lmdb"), coco=[tree / "coco.json"])
    said = "2 boxes have no width or no height; they are stored, but torchvision's detectors refuse them in training"
    assert said in summary.notes
    with packer.open_pack(summary.destination) as reader:
        assert len(reader.fields["boxes"].decode(reader.value(0, "boxes"))) == 3
