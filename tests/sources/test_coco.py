"""Annotations in COCO's format: the fields have all content of the files, and give it back unchanged."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

import packer
from packer._account import BadSamples
from packer._fields.coco import drawn as painted
from packer._sources.base import ReadBuffer, Source
from packer._sources.coco import coco_source
from packer.errors import ImageError, SourceError
from tests.cocodocument import annotations_of, captions_of, image_of
from tests.cocoset import draw_coco

BUFFER = ReadBuffer()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return draw_coco(tmp_path_factory.mktemp("coco"))


@pytest.fixture(scope="module")
def source(drawn: dict[str, Path]) -> Source:
    return coco_source(drawn["instances"].parent / "images", list(drawn.values()), masks=True)


@pytest.fixture(scope="module")
def theirs(drawn: dict[str, Path]) -> COCO:
    return COCO(drawn["instances"])


def values_of(source: Any, index: int) -> dict[str, Any]:
    stored = source.values(index, BUFFER)
    return {field.name: field.decode(one) for field, one in zip(source.fields, stored, strict=True)}


def test_images_come_in_the_order_of_their_ids_without_labels(source: Source, theirs: COCO) -> None:
    ids = sorted(theirs.imgs)
    assert list(source.names) == [theirs.imgs[id]["file_name"] for id in ids]
    assert set(source.labels.tolist()) == {-1}
    assert source.classes == []
    assert [values_of(source, index)["image_id"] for index in range(len(source))] == ids


def test_every_member_of_every_annotation_comes_back(source: Source, drawn: dict[str, Path]) -> None:
    documents = {what: json.loads(path.read_text()) for what, path in drawn.items()}
    values = [values_of(source, index) for index in range(len(source))]
    by_id = {one["id"]: one for own in values for one in annotations_of(own)}
    expected = {one["id"]: one for one in documents["instances"]["annotations"]}
    for person in documents["people"]["annotations"]:
        expected[person["id"]] = person
    assert by_id == expected
    assert len(expected) > 300
    captions = [one for own in values for one in captions_of(own)]
    assert sorted(captions, key=lambda one: one["id"]) == documents["captions"]["annotations"]
    images = [image_of(own, name) for own, name in zip(values, source.names, strict=True)]
    assert sorted(images, key=lambda one: -one["id"]) == documents["instances"]["images"]
    for entry, (what, document) in zip(source.about, documents.items(), strict=True):
        members = {name: value for name, value in document.items() if name not in ("images", "annotations")}
        assert entry == {"file": f"{what}.json", "members": members}


def test_fields_have_the_numbers_that_training_takes(source: Source, theirs: COCO) -> None:
    for index in range(0, len(source), 7):
        values = values_of(source, index)
        expected = theirs.imgToAnns[values["image_id"]]
        boxes = np.array([one["bbox"] for one in expected], np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_array_equal(values["boxes"], boxes)
        assert values["category"].tolist() == [one["category_id"] for one in expected]
        assert values["annotation_id"].tolist() == [one["id"] for one in expected]
        assert values["area"].tolist() == [one["area"] for one in expected]
        assert values["iscrowd"].tolist() == [one["iscrowd"] for one in expected]
        assert len(values["captions"]) == 2
    category = next(field for field in source.fields if field.name == "category")
    assert dict(zip(category.ids, category.classes, strict=True)) == {1: "person", 18: "dog", 90: "toothbrush"}


def test_ids_may_be_texts_as_pycocotools_takes_them(drawn: dict[str, Path], tmp_path: Path) -> None:
    """Ids of images, categories and annotations may be strings; everything else is the same as with numbers."""
    files = [drawn["instances"], drawn["captions"]]
    for path in files:
        document = json.loads(path.read_text())
        for name in ("images", "categories", "annotations"):
            for entry in document.get(name, []):
                entry |= {key: f"n{entry[key]}" for key in ("id", "image_id", "category_id") if key in entry}
        (tmp_path / path.name).write_text(json.dumps(document))
    root, texts = drawn["instances"].parent / "images", [tmp_path / path.name for path in files]
    made, numbered = coco_source(root, texts, masks=True), coco_source(root, files, masks=True)
    theirs = COCO(texts[0])
    assert list(made.names) == [theirs.imgs[id]["file_name"] for id in sorted(theirs.imgs)]
    own = {name: values_of(numbered, index) for index, name in enumerate(numbered.names)}
    places = {1: 1, 18: 2, 90: 3}
    found = []
    for index, name in enumerate(made.names):
        values, expected = values_of(made, index), own[name]
        assert values["image_id"] == f"n{expected['image_id']}"
        assert annotations_of(values) == theirs.imgToAnns[values["image_id"]]
        assert values["category"].tolist() == [places[id] for id in expected["category"].tolist()]
        np.testing.assert_array_equal(values["boxes"], expected["boxes"])
        masks = [np.asarray(Image.open(io.BytesIO(one["mask"]))) for one in (values, expected)]
        np.testing.assert_array_equal(masks[0], np.select([masks[1] == id for id in places], list(places.values())))
        found += values["annotation_id"].tolist()
        assert [f"n{one['id']}" for one in captions_of(expected)] == [one["id"] for one in captions_of(values)]
    assert len(set(found)) == len(theirs.anns)
    assert (
        "ids of categories are strings; they are numbered in the order of the file: n1: 1, n18: 2, n90: 3" in made.notes
    )
    category = next(field for field in made.fields if field.name == "category")
    assert dict(zip(category.ids, category.classes, strict=True)) == {1: "person", 2: "dog", 3: "toothbrush"}


def test_whole_numbers_with_a_fraction_are_ids(tmp_path: Path) -> None:
    """1.0 equals 1 in Python, and so in the dictionaries of pycocotools."""
    annotation = {**ONE, "id": 8.0, "image_id": 3.0, "category_id": 1.0}
    values = values_of(coco_source(*in_a_list(small(tmp_path, annotations=[annotation]))), 0)
    assert (values["image_id"], values["category"].tolist(), values["annotation_id"].tolist()) == (3, [1], [8])


def in_a_list(made: tuple[Path, Path]) -> tuple[Path, list[Path]]:
    return made[0], [made[1]]


def test_masks_have_crowds_below_and_small_ones_on_top(source: Source, theirs: COCO) -> None:
    for index in range(len(source)):
        values = values_of(source, index)
        mask = np.asarray(Image.open(io.BytesIO(values["mask"])))
        own = theirs.imgToAnns[values["image_id"]]
        own.sort(key=lambda one: (not one["iscrowd"], -int(theirs.annToMask(one).sum())))
        expected = np.zeros_like(mask)
        for one in own:
            expected[theirs.annToMask(one) == 1] = one["category_id"]
        np.testing.assert_array_equal(mask, expected)
        assert mask.shape == (values["image_info"]["height"], values["image_info"]["width"])


def test_part_of_the_images_keep_their_own_values(source: Source) -> None:
    some = source.between(50, 60).sampled(3)
    for index in range(len(some)):
        whole = next(place for place, name in enumerate(source.names) if name == some.names[index])
        assert some.values(index, BUFFER) == source.values(whole, BUFFER)


def test_what_decides_the_values_decides_the_digest(source: Source, drawn: dict[str, Path]) -> None:
    root = drawn["instances"].parent / "images"
    digests = {
        coco_source(root, [drawn[name] for name in names], masks=masks).describe()["sha256"]
        for names, masks in ((["instances"], False), (["instances"], True), (["instances", "captions"], False))
    }
    assert len(digests) == 3
    assert coco_source(root, list(drawn.values()), masks=True).describe() == source.describe()


def small(tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    """Write a set of one image and one annotation, with changes; return the images and the file."""
    images = tmp_path / "images"
    images.mkdir(exist_ok=True)
    Image.new("RGB", (20, 10)).save(images / "a.png")
    document: dict[str, Any] = {
        "images": [{"id": 3, "file_name": "a.png", "width": 20, "height": 10}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 8, "image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4], **changes.pop("also", {})}],
        **changes,
    }
    (tmp_path / "instances.json").write_text(json.dumps(document))
    return images, tmp_path / "instances.json"


IMAGE = {"id": 3, "file_name": "a.png", "width": 20, "height": 10}
ONE = {"id": 8, "image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"also": {"bbox": [15, 2, 7, 4]}}, r"annotation 8 of a.png: its box \[15, 2, 7, 4\].*outside the image"),
        ({"also": {"bbox": [-3, 2, 7, 4]}}, "outside the image of 20 x 10 pixels. Correct"),
        ({"also": {"bbox": [1, 2, -3, 4]}}, "a negative side"),
        ({"also": {"bbox": [1, 2, 3]}}, "not a list of four numbers"),
        ({"also": {"category_id": 5}}, "annotation 8 of a.png: its category 5 is not in the list of categories"),
        ({"also": {"category_id": None}}, "no category_id"),
        ({"also": {"image_id": 4}}, "annotation 8 belongs to the image 4, which is not in the list of images"),
        ({"also": {"iscrowd": 2}}, "iscrowd must be 0 or 1"),
        ({"also": {"area": "big"}}, "area 'big' is not a number"),
        ({"also": {"area": float("nan")}}, "annotation 8 of a.png: its area nan is not a number"),
        ({"also": {"score": float("inf")}}, "field 'members' of annotation 8"),
        ({"info": {"year": float("nan")}}, "its member 'info': NaN is not a JSON number"),
        ({"licenses": [{"year": float("inf")}]}, "its member 'licenses': Infinity is not a JSON number"),
        ({"info": json.loads("[" * 500 + "]" * 500)}, "its member 'info': it is nested too deeply"),
        ({"also": {"keypoints": [1, 2]}}, "keypoints are not a list"),
        ({"also": {"segmentation": [[1, 2, 3]]}}, "annotation 8 of a.png: a polygon must have three points"),
        ({"also": {"segmentation": {"size": [2, 3], "counts": [6]}}}, "run lengths have the size"),
        ({"also": {"id": 2**63}}, "an id beyond 64 bits"),
        (
            {"also": {"id": 1.5}},
            "entry 0 of annotations, counted from 0, has no id, which must be a whole number or a string",
        ),
        ({"also": {"image_id": "3"}}, "annotation 8 belongs to the image '3', which is not in the list of images"),
        ({"also": {"category_id": "1"}}, "its category 1 is not in the list of categories"),
        (
            {"annotations": [ONE, {**ONE, "id": "9"}]},
            "annotations are numbers and others are strings; entry 1.*all as strings",
        ),
        ({"categories": [], "also": {"category_id": "cat"}}, "its category cat is not in the list of categories"),
        ({"annotations": [ONE, ONE]}, "the id 8 occurs twice in annotations"),
        ({"annotations": [ONE, {"id": 9, "image_id": 3, "category_id": 1}]}, "1 annotations have no bbox.*9"),
        ({"images": [IMAGE, IMAGE]}, "the id 3 occurs twice in images"),
        ({"images": [IMAGE, {**IMAGE, "id": 4}]}, "3 and 4 have the same file_name, a.png"),
        ({"images": [{**IMAGE, "file_name": "../a.png"}]}, "not a plain relative path"),
        (
            {"images": [{**IMAGE, "file_name": "b.png"}], "annotations": []},
            "1 of 1 images is not in .*: b.png",
        ),
        ({"images": [{**IMAGE, "height": "10"}]}, "image 3 has the height '10'"),
        ({"images": [], "annotations": []}, "no images in it"),
        ({"images": {}}, '"images" is not a list'),
        ({"categories": [{"id": 1}]}, "category 1 has no name"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    images, file = small(tmp_path, **changes)
    with pytest.raises(SourceError, match=message) as caught:
        coco_source(images, [file])
    assert "\n" not in str(caught.value)
    assert "instances.json" in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", 'no list "images"'), (b"\xff", "not JSON")])
def test_a_file_that_is_no_annotations_is_refused(text: str | bytes, message: str, tmp_path: Path) -> None:
    images, file = small(tmp_path)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError, match=message):
        coco_source(images, [file])
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        coco_source(images, [tmp_path / "none.json"])


def test_boxes_may_end_a_fraction_of_a_pixel_outside_as_cocos_do(tmp_path: Path) -> None:
    images, file = small(tmp_path, also={"bbox": [-0.25, 2, 20.75, 8.5]})
    assert values_of(coco_source(images, [file]), 0)["boxes"].tolist() == [[-0.25, 2, 20.5, 10.5]]


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    images, file = small(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = small(tmp_path / "other", also={"category_id": 1, "area": 3, "bbox": [1, 2, 3, 5]})
    with pytest.raises(SourceError, match="annotation 8: its bbox differs from that in an earlier file"):
        coco_source(images, [file, other])


@pytest.mark.parametrize(
    ("first", "second", "masks", "problem"),
    [
        (ONE, {**ONE, "bbox": [1, 2, 3, 5]}, False, "its bbox differs"),
        ({**IMAGE, "license": 1}, {**IMAGE, "license": 2}, False, "its license differs from that"),
        ({"id": 3, "file_name": "a.png"}, {"id": 3, "file_name": "a.png"}, True, "no height and width"),
    ],
)
def test_an_image_that_files_contradict_or_leave_without_a_size_is_left_out(
    first: dict[str, Any], second: dict[str, Any], masks: bool, problem: str, tmp_path: Path
) -> None:
    polygon = {"segmentation": [[1, 1, 5, 1, 5, 5]]}
    files = []
    for number, entry in enumerate((first, second)):
        image, one = (IMAGE, entry) if "bbox" in entry else (entry, ONE)
        annotations = [{**one, **polygon}, {**ONE, **polygon, "id": 9, "image_id": 4}]
        (tmp_path / str(number)).mkdir()
        entries = [image, {**IMAGE, "id": 4, "file_name": "b.png"}]
        images, file = small(tmp_path / str(number), images=entries, annotations=annotations)
        Image.new("RGB", (20, 10)).save(images / "b.png")
        files.append(file)
    with pytest.raises(SourceError, match=rf"{problem}.*on_error='skip'"):
        coco_source(images, files, masks=masks)
    bad = BadSamples(skip=True)
    source = coco_source(images, files, masks=masks, bad=bad)
    assert (list(source.names), [entry["name"] for entry in bad.found]) == (["b.png"], ["a.png"])


@pytest.mark.parametrize("change", [{"file_name": "b.png"}, {"file_name": "b.png", "height": 0}, {"file_name": None}])
def test_an_image_left_out_for_a_second_file_has_the_name_of_the_first(change: dict[str, Any], tmp_path: Path) -> None:
    images, file = small(tmp_path, images=[IMAGE, {**IMAGE, "id": 4, "file_name": "b.png"}])
    Image.new("RGB", (20, 10)).save(images / "b.png")
    other = tmp_path / "captions.json"
    other.write_text(json.dumps({"images": [{**IMAGE, **change}], "annotations": []}))
    bad = BadSamples(skip=True)
    source = coco_source(images, [file, other], bad=bad)
    assert (list(source.names), [entry["name"] for entry in bad.found]) == (["b.png"], ["a.png"])


def test_images_that_are_not_there_are_left_out_on_request_and_files_without_entry_are_counted(tmp_path: Path) -> None:
    images, file = small(tmp_path, images=[IMAGE, {**IMAGE, "id": 1, "file_name": "gone.png"}])
    Image.new("RGB", (20, 10)).save(images / "more.png")
    source = coco_source(images, [file], on_missing="skip")
    assert list(source.names) == ["a.png"]
    assert source.remarks()[:2] == [
        "left out: 1 image (more.png): it has no entry in the annotations",
        "left out: 1 image (gone.png): it does not exist; --on-missing skip",
    ]


def test_what_is_called_segmentation_elsewhere_is_unchanged(tmp_path: Path) -> None:
    polygons: list[Any] = [[[1, 1, 5, 1, 5, 5]], [[1, 2]], "none", True]
    others = [{"id": number, "segmentation": one} for number, one in enumerate(polygons)]
    members = {"info": {"image_id": 3, "segmentation": [[1, 2]]}, "licenses": others, "segmentation": polygons[0]}
    categories = [{"id": 1, "name": "cat", "segmentation": "yes"}]
    image = {**IMAGE, "segmentation": [[1, 2]]}
    also = {"segmentation": polygons[0], "source": {"segmentation": polygons}}
    images, file = small(tmp_path, **members, categories=categories, images=[image], also=also)
    source = coco_source(images, [file])
    assert source.about == ({"file": file.name, "members": {"categories": categories, **members}},)
    values = values_of(source, 0)
    assert image_of(values, "a.png") == image
    assert annotations_of(values) == [{**ONE, **also}]


def test_an_error_says_why_no_image_can_be_used(tmp_path: Path) -> None:
    images, file = small(tmp_path, also={"score": float("nan")})
    with pytest.raises(SourceError, match=r"no image can be used: .*field 'members' of annotation 8"):
        coco_source(images, [file], bad=BadSamples(skip=True))


def test_a_file_of_captions_says_nothing_of_objects(tmp_path: Path) -> None:
    images, file = small(tmp_path)
    Image.new("RGB", (20, 10)).save(images / "b.png")
    entries = [IMAGE, {**IMAGE, "id": 4, "file_name": "b.png"}]
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps({"images": entries, "annotations": [{"id": 1, "image_id": 4, "caption": "x"}]}))
    values = values_of(coco_source(images, [file, captions]), 1)
    assert values["boxes"] is None
    assert values["captions"] == ["x"]
    assert values_of(coco_source(images, [file, captions]), 0)["captions"] == []
    assert annotations_of(values) == []


def test_keypoints_of_several_numbers_and_of_float64_come_back(tmp_path: Path) -> None:
    annotations = [
        {**ONE, "iscrowd": 0, "keypoints": [1.1, 2.7, 2]},
        {**ONE, "id": 9, "iscrowd": 0, "keypoints": [1, 2, 1, 3, 4, 2], "num_keypoints": 2},
        {**ONE, "id": 10, "iscrowd": 0},
    ]
    images, file = small(tmp_path, annotations=annotations)
    values = values_of(coco_source(images, [file]), 0)
    assert values["keypoints"].shape == (3, 2, 3)
    assert annotations_of(values) == annotations
    values["boxes"] = values["boxes"] / 2
    values["keypoints"] = values["keypoints"] / 2
    moved = annotations_of(values)
    assert moved[1]["keypoints"] == [0.5, 1, 0.5, 1.5, 2, 1]
    assert moved[1]["bbox"] == [0.5, 1, 1.5, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "no annotation has one"),
        ({"categories": [{"id": 1, "name": "cat"}, {"id": 0, "name": "sky"}]}, r"category 0 \(sky\) cannot be drawn"),
        ({"images": [{"id": 3, "file_name": "a.png"}]}, "1 images have no height and width"),
    ],
)
def test_masks_that_cannot_be_drawn_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    also = {"segmentation": [[1, 1, 5, 1, 5, 5]]} if changes else {}
    images, file = small(tmp_path, also=also, **changes)
    with pytest.raises(SourceError, match=message):
        coco_source(images, [file], masks=True)


def test_masks_of_many_categories_have_16_bits(tmp_path: Path) -> None:
    images, file = small(
        tmp_path, also={"category_id": 300, "segmentation": [[1, 1, 5, 1, 5, 5]]}, categories=[{"id": 300, "name": "x"}]
    )
    mask = Image.open(io.BytesIO(values_of(coco_source(images, [file], masks=True), 0)["mask"]))
    assert np.asarray(mask).max() == 300


def test_drawing_many_masks_holds_one_at_a_time() -> None:
    side, count = 500, 200
    shapes = [[[1, 1, 5 + number, 1, 5, 5 + number]] for number in range(count)]
    tracemalloc.start()
    pixels = painted(shapes, range(1, count + 1), [0] * count, side, side)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * side * side < count * side * side
    assert pixels[2, 3] == 1


def test_a_wrong_size_is_compared_before_a_mask_of_that_size_is_drawn(tmp_path: Path) -> None:
    also = {"segmentation": [[1, 1, 5, 1, 5, 5]]}
    image = {"id": 3, "file_name": "a.png", "height": 300_000, "width": 300_000}
    images, file = small(tmp_path, also=also, images=[image])
    with pytest.raises(ImageError, match="300000"):
        packer.convert(images, tmp_path / "pack.lmdb", coco=[file], masks=True)
