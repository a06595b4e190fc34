"""YOLO's layout: relative coordinates of the upright image become pixels of the stored one; label files are kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from packer._fields.coco import mask_of, runs_of
from packer._sources.base import ReadBuffer, Source
from packer._sources.yolo import yolo_source
from packer.errors import ImageError, MissingDependencyError, SourceError


def write(root: Path, labels: dict[str, str | None], yaml: str = "names: [cat, dog]\n") -> tuple[Path, Path]:
    """Write images of 40 x 20 pixels with labels; return the images and ``data.yaml``."""
    for name, text in labels.items():
        image, label = root / "images" / f"{name}.png", root / "labels" / f"{name}.txt"
        image.parent.mkdir(parents=True, exist_ok=True)
        label.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20)).save(image)
        if text is not None:
            label.write_text(text)
    (root / "data.yaml").write_text(yaml)
    return root / "images", root / "data.yaml"


def values_of(source: Source, index: int) -> dict[str, Any]:
    stored = source.values(index, ReadBuffer(1))
    return {field.name: field.decode(one) for field, one in zip(source.fields, stored, strict=True)}


def test_boxes_are_pixels_and_the_text_is_kept(tmp_path: Path) -> None:
    text = "1 0.5 0.5 0.25 0.5\r\n\r\n0 0.1 0.2 0.2 0.4"
    source = yolo_source(*write(tmp_path, {"train/a": text, "b": "", "c": None}))
    assert list(source.names) == ["b.png", "c.png", "train/a.png"]
    assert set(source.labels.tolist()) == {-1}
    values = values_of(source, 2)
    np.testing.assert_allclose(values["boxes"], [[15, 5, 25, 15], [0, 0, 8, 8]], atol=1e-5)
    assert values["category"].tolist() == [1, 0]
    assert values["yolo"].encode() == (tmp_path / "labels" / "train" / "a.txt").read_bytes()
    assert values_of(source, 0)["boxes"].shape == (0, 4)
    assert values_of(source, 1) == {"boxes": None, "category": None, "yolo": None}
    assert source.account is not None
    assert any("they have no label file" in item.why and item.count == 1 for item in source.account.losses())


def test_polygons_become_pixels_with_boxes_around_them(tmp_path: Path) -> None:
    source = yolo_source(*write(tmp_path, {"a": "1 0.1 0.1 0.5 0.1 0.5 0.9\n0 0.5 0.5 1 1"}, "names: {0: a, 1: b}"))
    values = values_of(source, 0)
    np.testing.assert_allclose(values["boxes"], [[4, 2, 20, 18], [0, 0, 40, 20]], atol=1e-5)
    assert values["segmentation"] == [[[4, 2, 20, 2, 20, 18]], None]
    assert mask_of(runs_of(values["segmentation"][0], 20, 40), 20, 40).sum() == pytest.approx(128, abs=16)


@pytest.mark.parametrize(
    ("shape", "numbers", "expected"),
    [
        ("[2, 3]", "0.5 0.5 1 0 0 0", [[20, 10, 1], [0, 0, 0]]),
        ("[2, 2]", "0.5 0.5 -1 0.5", [[20, 10, 2], [-40, 10, 0]]),
    ],
)
def test_keypoints_become_pixels(shape: str, numbers: str, expected: Any, tmp_path: Path) -> None:
    yaml = f"names: [cat]\nkpt_shape: {shape}\n"
    values = values_of(yolo_source(*write(tmp_path, {"a": f"0 0.5 0.5 1 1 {numbers}"}, yaml)), 0)
    assert values["keypoints"].tolist() == [expected]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_positions_are_those_of_the_image_as_it_lies_in_its_file(orientation: int, tmp_path: Path) -> None:
    images, data = write(tmp_path, {"a": "0 0.3 0.2 0.2 0.1"})
    (images / "a.png").unlink()
    pixels = np.zeros((40, 80), np.uint8)
    stored = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x112] = orientation
    stored.save(images / "a.jpg", exif=exif)
    left, top, right, bottom = values_of(yolo_source(images, data), 0)["boxes"][0].round().astype(int)
    pixels[top:bottom, left:right] = 255
    marked = Image.fromarray(pixels)
    marked.getexif()[0x112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(marked))
    height, width = upright.shape
    expected = np.zeros_like(upright)
    expected[round(0.15 * height) : round(0.25 * height), round(0.2 * width) : round(0.4 * width)] = 255
    np.testing.assert_array_equal(upright, expected)


def test_splits_are_directories_and_lists(tmp_path: Path) -> None:
    one = "0 0.5 0.5 1 1"
    yaml = "path: .\ntrain: images/train\nval: [images/val, more.txt]\ntest: no\nnames: [cat]\n"
    images, data = write(tmp_path, dict.fromkeys(["train/a", "val/b", "c", "d"], one), yaml)
    (tmp_path / "more.txt").write_text("./images/c.png\n\nimages/gone.png\n")
    assert list(yolo_source(images, data, split="train").names) == ["train/a.png"]
    with pytest.raises(SourceError, match=r"1 images of the split val do not exist: images/gone.png"):
        yolo_source(images, data, split="val")
    source = yolo_source(images, data, split="val", on_missing="skip")
    assert list(source.names) == ["c.png", "val/b.png"]
    assert any("images/gone.png" in remark for remark in source.remarks())
    Image.new("L", (40, 20)).save(images / "c.bmp")  # its label file is that of c.png, as Ultralytics reads it
    assert list(yolo_source(images, data, split="val", on_missing="skip").names) == ["c.png", "val/b.png"]
    source = yolo_source(images, data)
    assert [name for name in source.names if name.startswith("c.")] == ["c.bmp", "c.png"]
    assert [note for note in source.remarks() if "same label file" in note] == [
        "images have the same label file: c.bmp and c.png"
    ]
    with pytest.raises(SourceError, match="no split test: it has train, val"):
        yolo_source(images, data, split="test")
    with pytest.raises(SourceError, match=r"train: no images of images/train are below"):
        yolo_source(images / "val", data, split="train")
    data.write_text(yaml.replace("images/train", "images/other"))
    with pytest.raises(SourceError, match=r"train: there is no directory or list of images .*other"):
        yolo_source(images, data, split="train")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2 0.5 0.5 1 1", r"class 2 is not one of the 2 names in .*data.yaml"),
        ("0 0.5 0.5 1", "line 2: it has 4 numbers, but a box has 5, a polygon 7, 9"),
        ("0 0.5 0.5 1 1 1", "line 2: it has 6 numbers"),
        ("0 0.5 0.5 1.2 1", "line 2: it lies outside its image"),
        ("0 15 5 25 15", "line 2: it lies outside its image"),
        ("0 0.5 0.5 -1 1", "line 2: a box has a negative side"),
        ("0 0.5 nan 1 1", "line 2: numbers must be finite"),
        ("0.5 0.5 0.5 1 1", "line 2: numbers must be finite, and the first must be"),
        ("cat 0.5 0.5 1 1", "line 2: a word is not a number"),
    ],
)
def test_what_is_wrong_in_a_line_is_said_with_its_number(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        yolo_source(*write(tmp_path, {"a": f"0 0.5 0.5 1 1\n{line}\n"}))
    assert "a.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("names: [cat", "it is not YAML: while parsing"),
        ("- cat", "no class names"),
        ("nc: x", "no class names"),
        ("names: [cat, yes]", "names must be text"),
        ("names: {cat: 0}", "names must be text"),
        ("names: [cat]\nkpt_shape: 17", "kpt_shape must be"),
        ("!!python/object/apply:os.getcwd []", "it is not YAML"),
    ],
)
def test_what_is_wrong_in_the_description_is_said(yaml: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        yolo_source(*write(tmp_path, {"a": ""}, yaml))
    assert "\n" not in str(caught.value)


def test_a_tree_without_any_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none of the 1 images has a label file.*labels.*a.txt"):
        yolo_source(*write(tmp_path, {"a": None}))


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    images, data = write(tmp_path, {"a": "0 0.5 0.5 1 1"})
    (images / "a.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"^a.png: "):
        yolo_source(images, data).values(0, ReadBuffer(1))


def test_without_pyyaml_its_command_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'packer-images\[yolo\]'"):
        yolo_source(*write(tmp_path, {"a": ""}))


def test_a_box_may_end_a_pixel_outside_of_its_image_as_in_any_conversion(tmp_path: Path) -> None:
    source = yolo_source(*write(tmp_path, {"a": "0 0.5 0.5 1.04 1.08"}))  # of 40 x 20 pixels: 0.8 on each side
    np.testing.assert_allclose(values_of(source, 0)["boxes"], [[-0.8, -0.8, 40.8, 20.8]], atol=1e-5)
    with pytest.raises(SourceError, match="line 1: it lies outside its image of 40 x 20 pixels"):
        yolo_source(*write(tmp_path, {"a": "0 0.5 0.5 1.06 1"}))
    Image.new("RGB", (4000, 20)).save(tmp_path / "images" / "a.png")
    (tmp_path / "labels" / "a.txt").write_text("0 0.5 0.5 1.005 1")  # 10 pixels on each side, and less than 1 %
    with pytest.raises(SourceError, match="line 1: it lies outside"):
        yolo_source(tmp_path / "images", tmp_path / "data.yaml")
