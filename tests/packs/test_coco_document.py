"""COCO annotations survive packing: values and documents of a pack agree with pycocotools and torchvision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO

import packer
from packer._datasets.fields import coco_target
from packer._fields.coco import mask_of, runs_of
from packer.testing.reference import torchvision
from tests.cocodocument import coco_document
from tests.cocoset import draw_coco
from tests.command import packer_many


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coco")


@pytest.fixture(scope="module")
def files(root: Path) -> dict[str, Path]:
    return draw_coco(root)


@pytest.fixture(scope="module")
def pack(root: Path, files: dict[str, Path]) -> Path:
    """A pack of 200 images with all annotations, made by the command."""
    options = [word for file in (files["instances"], files["captions"]) for word in ("--coco", file)]
    (result,) = packer_many([["convert", root / "images", root / "a.lmdb", *options]])
    assert result.returncode == 0, result.stderr
    return root / "a.lmdb"


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    lists = {name: sorted(document[name], key=lambda one: one["id"]) for name in ("images", "annotations")}
    return {**document, **lists}


def values_of(reader: Any, index: int) -> dict[str, Any]:
    return {name: field.decode(reader.value(index, name)) for name, field in reader.fields.items()}


def test_what_a_pack_holds_is_what_pycocotools_reads(pack: Path, files: dict[str, Path]) -> None:
    theirs = COCO(files["instances"])
    with packer.open_pack(pack) as reader:
        assert [values_of(reader, index)["image_id"] for index in range(200)] == sorted(theirs.imgs)
        kinds = set()
        for index in range(200):
            values = values_of(reader, index)
            size = int(reader.table.height[index]), int(reader.table.width[index])
            expected = theirs.loadAnns(theirs.getAnnIds(values["image_id"]))
            assert theirs.imgs[values["image_id"]]["file_name"] == reader.names[index]
            assert values["category"].tolist() == [one["category_id"] for one in expected]
            assert values["iscrowd"].tolist() == [one["iscrowd"] for one in expected]
            assert values["area"].tolist() == [one["area"] for one in expected]
            assert values["bbox"].tolist() == [one["bbox"] for one in expected]
            for own, one in zip(values["segmentation"], expected, strict=True):
                np.testing.assert_array_equal(mask_of(runs_of(own, *size), *size), theirs.annToMask(one))
                kinds.add((type(own), one["iscrowd"], type(own["counts"]) if isinstance(own, dict) else len(own)))
            kinds.add(len(expected))
    assert kinds == {0, 1, 2, 4, (list, 0, 1), (list, 0, 2), (dict, 0, str), (dict, 1, list)}


def test_targets_of_a_pack_are_those_of_torchvisions_wrapped_coco_detection(pack: Path, files: dict[str, Path]) -> None:
    torchvision()
    from torchvision import datasets

    keys = {"boxes", "labels", "masks", "image_id", "area", "iscrowd"}
    theirs = datasets.CocoDetection(pack.parent / "images", files["instances"])
    theirs = datasets.wrap_dataset_for_transforms_v2(theirs, target_keys=keys)
    empty = 0
    with packer.open_pack(pack) as reader:
        for index in range(200):
            image, expected = theirs[index]
            target = coco_target(values_of(reader, index), (image.height, image.width))
            assert target["image_id"] == expected["image_id"]
            if set(expected) == {"image_id"}:
                empty += 1
                assert {len(target[name]) for name in keys - {"image_id"}} == {0}
                continue
            for name in keys - {"image_id"}:
                assert torch.equal(target[name], torch.as_tensor(expected[name]).as_subclass(torch.Tensor)), name
    assert empty == 50


def test_the_documents_come_back(pack: Path, files: dict[str, Path]) -> None:
    given = {what: json.loads(file.read_text()) for what, file in files.items()}
    with packer.open_pack(pack) as reader:
        assert in_order(coco_document(reader)) == in_order(given["instances"])
        assert in_order(coco_document(reader, captions=True)) == in_order(given["captions"])


def test_what_belongs_to_no_image_goes_with_packs(pack: Path, root: Path, files: dict[str, Path]) -> None:
    other = draw_coco(root / "other", 6)["instances"]
    document = json.loads(other.read_text()) | {"info": {"year": 2030}}
    other.write_text(json.dumps(document))
    packer.convert(root / "images", root / "b.lmdb", coco=files["instances"])
    packer.convert(root / "other" / "images", root / "other.lmdb", coco=[other])
    packer.merge([root / "b.lmdb", root / "b.lmdb", root / "other.lmdb"], root / "all.h5", prefixes=["a", "b", "c"])
    packer.convert(pack, root / "parts.h5", parts=2)
    scanned, _ = packer_many(
        [
            ["scan", root / "images", root / "a.scan", "--coco", files["instances"]],
            ["convert", root / "a.scan", root / "listed.lmdb", "--sample", "20", "--parts", "2"],
        ]
    )
    assert scanned.returncode == 0, scanned.stderr
    about = {}
    for name in ("a.lmdb", "b.lmdb", "other.lmdb", "all.h5", "parts.h5", "listed.lmdb"):
        with packer.open_pack(root / name) as reader:
            about[name] = reader.manifest.about
    assert [entry["file"] for entry in about["a.lmdb"]] == ["instances.json", "captions.json"]
    assert about["parts.h5"] == about["a.lmdb"]
    assert about["listed.lmdb"] == about["b.lmdb"]
    assert about["all.h5"] == [*about["b.lmdb"], *about["other.lmdb"]]
    assert about["other.lmdb"][0]["members"] == {name: document[name] for name in ("info", "licenses", "categories")}


def written(root: Path, annotations: list[dict[str, Any]], **changes: Any) -> tuple[Path, Path, dict[str, Any]]:
    """Write one image of 40 x 30 pixels and a document; return the images, the file, and the document."""
    (root / "images").mkdir()
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(root / "images" / "a.png")
    image = {"id": 3, "file_name": "./a.png", "height": 30, "width": 40, **changes}
    document = {"images": [image], "annotations": annotations, "categories": [{"id": 5, "name": "x", "colour": "red"}]}
    (root / "one.json").write_text(json.dumps(document))
    return root / "images", root / "one.json", document


ONE = {"image_id": 3, "category_id": 5, "bbox": [1, 2, 30, 20]}


def test_ids_that_are_texts_come_back(tmp_path: Path) -> None:
    annotations = [
        {"id": "u1", "image_id": "im", "category_id": "b", "bbox": [1, 2, 3, 4]},
        {"id": "u2", "image_id": "im", "category_id": "a", "bbox": [1, 2, 3, 4]},
    ]
    images, file, document = written(tmp_path, annotations, id="im")
    document["categories"] = [{"id": "b", "name": "bird", "colour": "red"}, {"id": "a", "name": "ant"}]
    file.write_text(json.dumps(document))
    packer.convert(images, tmp_path / "a.lmdb", coco=[file])
    with packer.open_pack(tmp_path / "a.lmdb") as reader:
        assert coco_document(reader) == document
    with packer.open_dataset(tmp_path / "a.lmdb", fields=("image", "boxes", "category", "image_id")) as dataset:
        assert (dataset[0]["category"].tolist(), dataset[0]["image_id"]) == ([1, 2], "im")


def test_members_that_are_left_out_null_or_empty_come_back_so(tmp_path: Path) -> None:
    annotations = [
        {"id": 1, **ONE},
        {"id": 2, **ONE, "iscrowd": 0, "area": None, "segmentation": None, "keypoints": []},
        {
            "id": 3,
            **ONE,
            "iscrowd": None,
            "area": 1.5,
            "segmentation": [],
            "keypoints": None,
            "caption": "of an object",
        },
        {"id": 4, **ONE, "iscrowd": 1, "keypoints": [1.1, 2, 2], "extra": {"a": [None]}},
    ]
    captions = [{"id": 1, "image_id": 3, "caption": "", "bbox": [1, 2, 3, 4], "segmentation": [[1, 2, 3, 4, 5, 6]]}]
    images, file, document = written(tmp_path, [*annotations])
    (tmp_path / "captions.json").write_text(json.dumps({"images": document["images"], "annotations": captions}))
    packer.convert(images, tmp_path / "a.lmdb", coco=[file, tmp_path / "captions.json"])
    with packer.open_pack(tmp_path / "a.lmdb") as reader:
        assert coco_document(reader) == document
        assert coco_document(reader, captions=True)["annotations"] == captions


def test_a_resized_pack_gives_a_document_of_its_own_images(tmp_path: Path) -> None:
    one = {"id": 1, **ONE, "iscrowd": 0, "area": 400.0, "segmentation": [[10, 10, 30, 10, 30, 20]]}
    images, file, _ = written(tmp_path, [one])
    packer.convert(images, tmp_path / "a.lmdb", coco=file, resize=15)
    with packer.open_pack(tmp_path / "a.lmdb") as reader:
        document = coco_document(reader)
    assert document["images"] == [{"id": 3, "file_name": "./a.png", "height": 15, "width": 20}]
    moved = {"bbox": [0.5, 1, 15, 10], "segmentation": [[5, 5, 15, 5, 15, 10]]}
    assert document["annotations"] == [{**one, **moved}]


def test_a_file_of_another_size_than_its_annotations_is_refused(tmp_path: Path) -> None:
    images, file, _ = written(tmp_path, [], height=40, width=30)
    problem = "a.png: it has 40 x 30 pixels, but its annotations say 30 x 40. Use the file .*; if the file has an EXIF"
    with pytest.raises(packer.ImageError, match=problem):
        packer.convert(images, tmp_path / "a.lmdb", coco=file)
    scanned, converted = packer_many(
        [["scan", images, tmp_path / "a.scan", "--coco", file], ["convert", tmp_path / "a.scan", tmp_path / "a.lmdb"]]
    )
    assert (scanned.returncode, converted.returncode) == (0, 1)
    assert "its annotations say 30 x 40" in converted.stderr


def test_a_conversion_does_not_go_on_with_other_licenses(tmp_path: Path) -> None:
    images, file, document = written(tmp_path, [{"id": 1, **ONE}])
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(images / "b.png")
    (images / "c.png").write_bytes(b"broken")
    document["images"] += [{"id": id, "file_name": name} for id, name in ((4, "b.png"), (5, "c.png"))]
    file.write_text(json.dumps(document))
    with pytest.raises(packer.ImageError, match=r"c\.png"):
        packer.convert(images, tmp_path / "a.lmdb", coco=file, workers=1)
    file.write_text(json.dumps({**document, "licenses": []}))
    with pytest.raises(packer.ResumeError, match="the part of the annotations that belongs to no image changed"):
        packer.convert(images, tmp_path / "a.lmdb", coco=file, workers=1)
