"""Annotations that occur in practice: other encodings, oddities that other tools accept, one bad among thousands."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import packer
from packer._account import Account
from packer._sources.coco import coco_source
from packer._sources.voc import read_annotation, voc_source
from packer._sources.yolo import yolo_source
from packer.errors import SourceError
from tests.command import packer as run_packer

NAMES = ("a", "b", "c")


def images(root: Path, names: tuple[str, ...] = NAMES, suffix: str = ".png") -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (9, 9, len(name))).save(root / f"{name}{suffix}")
    return root


def coco(tmp_path: Path, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """Write images and their annotations; `changes` apply to the annotation of the second image."""
    root, file = images(tmp_path / "im"), tmp_path / "a.json"
    entries = [
        {"id": 10 + number, "image_id": number, "category_id": 1, "bbox": [1, 1, 5, 5], "area": 25, "iscrowd": 0}
        for number in range(3)
    ]
    entries[1] = {name: value for name, value in {**entries[1], **changes}.items() if value is not ...}
    document = {
        "images": [{"id": n, "file_name": f"{name}.png", "height": 10, "width": 20} for n, name in enumerate(NAMES)],
        "annotations": entries,
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }
    file.write_text(json.dumps(document))
    return root, {"coco": file}


XML = (
    "<annotation><size><width>20</width><height>10</height></size>"
    "<object><name>{name}</name><bndbox>{box}</bndbox></object></annotation>"
)
BOX = "<xmin>1</xmin><ymin>1</ymin><xmax>{right}</xmax><ymax>5</ymax>"


def voc(tmp_path: Path, text: str | bytes) -> tuple[Path, dict[str, Any]]:
    root = images(tmp_path / "voc" / "JPEGImages", suffix=".jpg").parent
    (root / "Annotations").mkdir()
    for name in NAMES:
        sound = XML.format(name="cat", box=BOX.format(right=5))
        data = text if name == "b" else sound
        (root / "Annotations" / f"{name}.xml").write_bytes(data if isinstance(data, bytes) else data.encode())
    return root, {"voc": root}


def yolo(tmp_path: Path, text: str | bytes, yaml: str = "names: [cat, dog]\n") -> tuple[Path, dict[str, Any]]:
    root = images(tmp_path / "d" / "images")
    (tmp_path / "d" / "data.yaml").write_text(yaml)
    (tmp_path / "d" / "labels").mkdir()
    for name in NAMES:
        data = text if name == "b" else "0 0.5 0.5 0.5 0.5\n"
        (tmp_path / "d" / "labels" / f"{name}.txt").write_bytes(data if isinstance(data, bytes) else data.encode())
    return root, {"yolo": tmp_path / "d" / "data.yaml"}


BAD = {
    "coco, a box outside": lambda path: coco(path, bbox=[18, 1, 5, 5]),
    "coco, a box of three numbers": lambda path: coco(path, bbox=[1, 1, 5]),
    "coco, a box with a side below 0": lambda path: coco(path, bbox=[1, 1, -5, 5]),
    "coco, no box": lambda path: coco(path, bbox=...),
    "coco, an unknown category": lambda path: coco(path, category_id=7),
    "coco, no category": lambda path: coco(path, category_id=...),
    "coco, a polygon of two points": lambda path: coco(path, segmentation=[[1, 1, 2, 2]]),
    "coco, keypoints that are none": lambda path: coco(path, keypoints=[1, 2]),
    "coco, a category beyond 64 bits": lambda path: coco(path, area="large"),
    "voc, a box outside": lambda path: voc(path, XML.format(name="cat", box=BOX.format(right=25))),
    "voc, no name": lambda path: voc(path, XML.format(name="", box=BOX.format(right=5))),
    "voc, no box": lambda path: voc(path, XML.format(name="cat", box="")),
    "voc, not XML": lambda path: voc(path, "<annotation>"),
    "voc, an empty file": lambda path: voc(path, ""),
    "voc, an unknown encoding": lambda path: voc(path, '<?xml version="1.0" encoding="x-none"?><annotation/>'),
    "yolo, a box outside": lambda path: yolo(path, "0 0.9 0.5 0.5 0.5\n"),
    "yolo, an unknown class": lambda path: yolo(path, "5 0.5 0.5 0.5 0.5\n"),
    "yolo, no number": lambda path: yolo(path, "cat 0.5 0.5 0.5 0.5\n"),
    "yolo, no text": lambda path: yolo(path, b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("build", BAD.values(), ids=BAD)
def test_an_image_with_a_bad_annotation_is_left_out_or_an_error_that_says_how(build: Any, tmp_path: Path) -> None:
    root, options = build(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SourceError, match=r"\bb\.(png|xml|txt).* To leave out .*: on_error='skip'") as raised:
        packer.convert(root, tmp_path / "out.lmdb", **options)
    assert sorted(tmp_path.iterdir()) == before
    report = tmp_path / "report.jsonl"
    (option, path), *_ = options.items()
    result = run_packer(
        *("convert", root, tmp_path / "out.lmdb", f"--{option}", path, "--on-error", "skip", "--report", report)
    )
    assert result.returncode == 3, result.stderr
    (skipped,) = packer.info(tmp_path / "out.lmdb").skipped
    assert Path(skipped["name"]).stem == "b"
    assert str(raised.value).startswith(skipped["reason"])
    assert [json.loads(line)["name"] for line in report.read_text().splitlines() if "skipped" in line] == [
        skipped["name"]
    ]
    names = [Path(name).stem for name, _ in packer.open_dataset(tmp_path / "out.lmdb").samples]
    assert names == ["a", "c"]
    if option == "voc":
        summary = packer.index(root, tmp_path / "out.index", on_error="skip", **options)
        assert (summary.manifest.count, summary.manifest.skipped) == (2, [skipped])


def test_an_annotation_of_no_image_is_left_out(tmp_path: Path) -> None:
    root, options = coco(tmp_path)
    document = json.loads(options["coco"].read_text())
    document["annotations"].append({"id": 99, "image_id": 99, "category_id": 1, "bbox": [1, 1, 2, 2]})
    document["images"][1].pop("file_name")
    options["coco"].write_text(json.dumps(document))
    summary = packer.convert(root, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [entry["name"] for entry in summary.manifest.skipped] == ["image 1", "annotation 99"]
    assert [name for name, _ in packer.open_dataset(tmp_path / "out.lmdb").samples] == ["a.png", "c.png"]


def test_what_annotations_and_images_do_not_have_of_each_other_is_said(tmp_path: Path) -> None:
    root, options = coco(tmp_path)
    images(root, ("more",))
    summary = packer.convert(root, tmp_path / "coco.lmdb", **options)
    assert summary.notes[0] == "left out: 1 image (more.png): it has no entry in the annotations"
    assert any("categories without annotations, which keep their ids: dog" in note for note in summary.notes)
    for build, stray in ((voc, "Annotations/gone.xml"), (yolo, "../labels/gone.txt")):
        root, options = build(tmp_path, XML.format(name="cat", box="") if build is voc else "")
        if build is voc:
            (root / "Annotations" / "b.xml").unlink()
        (root / stray).write_text("")
        summary = packer.convert(root, tmp_path / f"{stray[-3:]}.lmdb", **options)
        account = Account.from_json(packer.info(tmp_path / f"{stray[-3:]}.lmdb").account)
        (item,) = (item for item in account.losses() if item.fate == "left out")
        assert (item.what, [os.path.basename(name) for name in item.names]) == ("file", [os.path.basename(stray)])


@pytest.mark.parametrize("build", [coco, voc])
def test_files_of_fields_are_not_left_out(tmp_path: Path, build: Any) -> None:
    text = () if build is coco else (XML.format(name="cat", box=BOX.format(right=5)),)
    root, options = build(tmp_path, *text)
    folder = "" if build is coco else "JPEGImages/"
    images(root / folder / "other")
    with pytest.raises(SourceError, match=r"strict=True stops here.*\n  left out: 3 images"):
        packer.convert(root, tmp_path / "out.lmdb", strict=True, **options)
    fields = {"other:bytes": f"{folder}other/{{stem}}.png"}
    packer.convert(root, tmp_path / "out.lmdb", strict=True, fields=fields, **options)
    assert not any(item.fate == "left out" for item in Account.from_json(packer.info(tmp_path / "out.lmdb").account))


ENCODINGS = {
    "gb2312": "gb2312",
    "GBK": "gbk",
    "GB18030": "gb18030",
    "Big5": "big5",
    "Shift_JIS": "shift_jis",
    "EUC-JP": "euc-jp",
    "EUC-KR": "euc-kr",
    "CP949": "cp949",
    "windows-1251": "cp1251",
    "windows-1252": "cp1252",
    "ISO-8859-1": "latin-1",
    "UTF-16": "utf-16",
    "utf-8": "utf-8-sig",
    "UTF-32": "utf-32",
}
LETTERS = {"big5": "貓", "shift_jis": "猫", "euc-jp": "猫", "euc-kr": "고양이", "cp949": "뷁", "cp1251": "кот"}


@pytest.mark.parametrize(("declared", "encoding"), ENCODINGS.items(), ids=ENCODINGS)
def test_xml_of_any_encoding_is_read(tmp_path: Path, declared: str, encoding: str) -> None:
    name = LETTERS.get(encoding, "é" if encoding in ("cp1252", "latin-1") else "猫")
    text = f'<?xml version="1.0" encoding="{declared}"?>{XML.format(name=name, box=BOX.format(right=5))}'
    (tmp_path / "a.xml").write_bytes(text.encode(encoding))
    assert read_annotation(tmp_path / "a.xml").names == [name]


def test_xml_that_calls_its_encoding_otherwise(tmp_path: Path) -> None:
    path, text = tmp_path / "a.xml", XML.format(name="猫", box=BOX.format(right=5))
    for data in (
        f'<?xml version="1.0" encoding="utf-16"?>{text}'.encode(),  # as .NET declares text that it saves as UTF-8
        f'<?xml version="1.0" encoding="utf-16"?>{text}'.encode("utf-16-le"),
        f'<?xml version="1.0" encoding="gb2312"?>{text}<!--鎔-->'.encode("gbk"),
    ):
        path.write_bytes(data)
        assert read_annotation(path).names == ["猫"]
    for data, said in (
        (text.replace("猫", "é").encode("latin-1"), "not text in the encoding utf-8"),
        (
            f'<?xml version="1.0" encoding="ebcdic-x"?>{text}'.encode(),
            "declares the encoding ebcdic-x, which Python does not know",
        ),
        (f'<?xml version="1.0" encoding="unicode_escape"?>{text}'.encode(), "which Python does not know"),
        (f'<?xml version="1.0" encoding="zlib"?>{text}'.encode(), "which Python does not know"),
        ('<?xml version="1.0" encoding="gbk"?><!DOCTYPE a [<!ENTITY b "猫">]><a/>'.encode("gbk"), "it has a DTD"),
    ):
        path.write_bytes(data)
        with pytest.raises(SourceError, match=said):
            read_annotation(path)


MARKS = ("utf-8-sig", "utf-16", "utf-32")


@pytest.mark.parametrize("encoding", MARKS)
def test_files_with_a_byte_order_mark_are_read(tmp_path: Path, encoding: str) -> None:
    root, options = coco(tmp_path)
    options["coco"].write_bytes(options["coco"].read_text().encode(encoding))
    assert len(coco_source(root, [options["coco"]])) == 3
    root, options = yolo(tmp_path, "1 0.5 0.5 0.5 0.5\r\n".encode(encoding))
    options["yolo"].write_bytes("train: images.txt\nnames: [cat, dog]\n".encode(encoding))
    (tmp_path / "d" / "images.txt").write_bytes("./images/b.png\n".encode(encoding))
    assert len(yolo_source(root, options["yolo"], split="train")) == 1
    root, options = voc(tmp_path, XML.format(name="cat", box=BOX.format(right=5)))
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "ImageSets" / "Main" / "train.txt").write_bytes("a\nb\n".encode(encoding))
    assert len(voc_source(root, root, split="train")) == 2


COCO_ELSE = {
    "panoptic": ({"images": [], "annotations": [{"image_id": 0, "segments_info": []}]}, "panoptic.*segments_info"),
    "results": ([{"image_id": 0, "category_id": 1, "bbox": [1, 1, 2, 2], "score": 0.5}], "list of results"),
    "neither": ({"labels": []}, 'no list "images"'),
}


@pytest.mark.parametrize(("document", "said"), COCO_ELSE.values(), ids=COCO_ELSE)
def test_what_is_no_file_of_annotations_is_called_what_it_is(tmp_path: Path, document: Any, said: str) -> None:
    root, options = coco(tmp_path)
    options["coco"].write_text(json.dumps(document))
    with pytest.raises(SourceError, match=said):
        coco_source(root, [options["coco"]])


PLACES = {
    "as Roboflow writes it": ("train: ../train/images\n", "d/train/images"),
    "as it stands": ("train: ../train/images\n", "train/images"),
    "with a path": ("path: d2\ntrain: images\n", "d/d2/images"),
    "with a path of another machine": ("path: /content/none\ntrain: train/images\n", "d/train/images"),
    "with backslashes": ("path: d2\\x\ntrain: train\\images\n", "d/d2/x/train/images"),
    "with a path from the present directory": ("path: ./d3\ntrain: images\n", "d3/images"),
}


@pytest.mark.parametrize(("yaml", "place"), PLACES.values(), ids=PLACES)
def test_splits_lie_where_ultralytics_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yaml: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    root = images(tmp_path / place)
    labels = root.parent / "labels"
    labels.mkdir()
    (labels / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "d").mkdir(exist_ok=True)
    (tmp_path / "d" / "data.yaml").write_text(f"{yaml}names: [cat]\n")
    assert len(yolo_source(root, tmp_path / "d" / "data.yaml", split="train")) == 3


def test_names_of_classes_as_ultralytics_takes_them(tmp_path: Path) -> None:
    for number, (yaml, names, said) in enumerate(
        (
            ("nc: 3\nnames: [cat, dog]\n", ("cat", "dog"), "has nc: 3, but 2 names"),
            ("nc: 2\n", ("class_0", "class_1"), "has no names"),
            ("names: {'0': cat, '1': dog}\n", ("cat", "dog"), ""),
            ("nc: 2\nnames: {0: cat, 1: dog}\n", ("cat", "dog"), ""),
        )
    ):
        root, options = yolo(tmp_path / str(number), "1 0.5 0.5 0.5 0.5\n", yaml)
        source = yolo_source(root, options["yolo"])
        (classes,) = (field.classes for field in source.fields if field.name == "category")
        assert classes == names
        assert any(said in note for note in source.notes) if said else not any("nc" in note for note in source.notes)
