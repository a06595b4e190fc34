"""A malformed entry of annotations is an error that names `on_error="skip"`, with which only its image is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.errors import SourceError
from tests import sourcekinds
from tests.sourcekinds import Source, draw

Make = Callable[[Path], Source]


def coco(change: Callable[[dict[str, Any]], Any], kind: Make = sourcekinds.coco) -> Make:
    """Return a maker of a source whose annotations `change` makes invalid."""

    def make(root: Path) -> Source:
        source, options = kind(root)
        document = json.loads(options["coco"].read_text())
        change(document)
        options["coco"].write_text(json.dumps(document))
        return source, options

    return make


def entry(name: str, position: int, **members: Any) -> Make:
    """Return a maker of COCO's annotations in which an entry of a list has changed members."""
    return coco(lambda document: document[name][position].update(members))


def caption(**members: Any) -> Make:
    """Return a maker of captions in which that of the second image has changed members."""
    return coco(lambda document: document["annotations"][1].update(members), sourcekinds.captions)


def voc_of_one_stem(root: Path) -> Source:
    source, options = sourcekinds.voc(root)
    draw(source / "JPEGImages" / "1.bmp")
    return source, options


def voc_with_a_line_twice(root: Path) -> Source:
    source, options = sourcekinds.voc(root)
    (source / "ImageSets" / "Main").mkdir(parents=True)
    (source / "ImageSets" / "Main" / "train.txt").write_text("2\n0\n2\n")
    return source, {**options, "split": "train"}


def voc_with_a_line_of_two_words(root: Path) -> Source:
    source, options = sourcekinds.voc(root)
    (source / "ImageSets" / "Main").mkdir(parents=True)
    (source / "ImageSets" / "Main" / "train.txt").write_text("2\n0\n1 -1\n")
    return source, {**options, "split": "train"}


def image_twice(*more: dict[str, Any]) -> Make:
    """Return a maker of COCO's annotations with two images of one file.

    For each dict in `more`, the second image has the annotation of the first one, changed by the dict.
    """

    def change(document: dict[str, Any]) -> None:
        document["images"].append({**document["images"][1], "id": 7})
        own = {**document["annotations"][2], "image_id": 7}
        document["annotations"] += [{**own, "id": id, **one} for id, one in enumerate(more, 9)]

    return coco(change)


def annotated_without_height(document: dict[str, Any]) -> None:
    """Add a second entry, without a valid height, for the file of an image, and an annotation of this entry."""
    document["images"].append({**document["images"][1], "id": 7, "height": 0})
    document["annotations"].append({**document["annotations"][2], "id": 9, "image_id": 7})


def metadata_and(row: str) -> Make:
    """Return a maker of images with a table of the Hub that has a further row."""

    def make(root: Path) -> Source:
        source, options = sourcekinds.hub_text(root)
        with (source / "metadata.jsonl").open("a") as file:
            file.write(f"\n{row}")
        return source, options

    return make


def metadata(row: str) -> Make:
    """Return a maker of images with a table of the Hub whose second row is `row`."""

    def make(root: Path) -> Source:
        source, options = sourcekinds.hub_text(root)
        lines = (source / "metadata.jsonl").read_text().splitlines()
        (source / "metadata.jsonl").write_text("\n".join([lines[0], row, *lines[2:]]))
        return source, options

    return make


NOT_A_NUMBER = float("nan")
CASES: dict[str, tuple[Make, str, set[str]]] = {
    "image without an id": (entry("images", 1, id=None), "entry 1 of images, .* has no id", {"1.png", "annotation 2"}),
    "image with a list as id": (entry("images", 1, id=[1]), "entry 1 of images, .* no id", {"1.png", "annotation 2"}),
    "image with a large id": (entry("images", 1, id=1 << 63), "beyond 64 bits", {"1.png", "annotation 2"}),
    "image with a text as id": (
        entry("images", 0, id="0"),
        "numbers and others are strings",
        {"0.png", "annotation 0", "annotation 1"},
    ),
    "images with one id": (entry("images", 1, id=0), "the id 0 occurs twice", {"0.png", "1.png", "annotation 2"}),
    "image that is no object": (
        coco(lambda document: document["images"].append(5)),
        "entry 3 of images, .* has no id",
        {"entry 3 of images"},
    ),
    "images with one id and one name": (
        coco(lambda document: document["images"].append(document["images"][1])),
        "the id 1 occurs twice",
        {"1.png"},
    ),
    "entry without an id of an image that another has": (
        coco(lambda document: document["images"].append({"file_name": "1.png"})),
        "entry 3 of images, .* has no id",
        {"entry 3 of images"},
    ),
    "entry without a height of an image that another has": (
        coco(lambda document: document["images"].append({**document["images"][1], "id": 7, "height": 0})),
        "image 7 has the height 0",
        {"image 7"},
    ),
    "annotated entry without a height of an image that another has": (
        coco(annotated_without_height),
        "image 7 has the height 0",
        {"1.png"},
    ),
    "images with one id, one of which has another id too": (
        coco(lambda document: document["images"].append({**document["images"][0], "id": 1})),
        "the id 1 occurs twice",
        {"0.png", "1.png"},  # the annotation of image 1 may belong to either
    ),
    "images of one file with the same annotations": (
        image_twice({}),
        "the images 1 and 7 have the same file_name, 1.png",
        {"image 7"},
    ),
    "images of one file with other annotations": (
        image_twice(),
        "the images 1 and 7 have the same file_name, 1.png",
        {"1.png"},
    ),
    "images of one file, and the second has a bad annotation": (
        image_twice({}, {"category_id": 99}),
        "annotation 10 of 1.png: its category 99",
        {"1.png", "image 7"},
    ),
    "annotation without an id": (entry("annotations", 2, id=None), "entry 2 of annotations, .* no id", {"1.png"}),
    "annotation with a text as id": (entry("annotations", 0, id="0"), "all as strings", {"0.png"}),
    "annotations with one id": (entry("annotations", 2, id=0), "the id 0 occurs twice", {"0.png", "1.png"}),
    "annotation that is no object": (
        coco(lambda document: document["annotations"].append([])),
        "entry 3 of annotations, .* has no id",
        {"entry 3 of annotations"},
    ),
    "annotation of no image": (
        entry("annotations", 2, id=None, image_id=None),
        "entry 2 of annotations, .* has no id",
        {"entry 2 of annotations"},
    ),
    "annotation with NaN in its box": (
        entry("annotations", 2, bbox=[NOT_A_NUMBER, 1, 2, 3]),
        "annotation 2 of 1.png: its bbox",
        {"1.png"},
    ),
    "annotation with NaN elsewhere": (entry("annotations", 2, score=NOT_A_NUMBER), "field 'members'", {"1.png"}),
    "caption without an id": (caption(id=None), "entry 1 of annotations, .* has no id", {"1.png"}),
    "caption that is no text": (caption(caption=7), "its caption is not text", {"1.png"}),
    "images of VOC with one stem": (
        voc_of_one_stem,
        r"1\.bmp and 1\.png have the same annotation file, 1\.xml",
        {"JPEGImages/1.bmp", "JPEGImages/1.png"},
    ),
    "image of VOC that a split names twice": (
        voc_with_a_line_twice,
        r"train\.txt, line 3: 2 is named twice",
        {"train.txt, line 3"},
    ),
    "line of a split of VOC with two words": (
        voc_with_a_line_of_two_words,
        r"train\.txt, line 3: it has more than a name",
        {"train.txt, line 3"},
    ),
    "row of a table that occurs twice": (
        metadata_and('{"file_name": "1.png", "text": "image 1"}'),
        r"line 4: 1\.png is named twice, also in line 2",
        {"metadata.jsonl, line 4"},
    ),
    "rows of one image with two texts": (
        metadata_and('{"file_name": "1.png", "text": "image 7"}'),
        r"line 4: 1\.png is named twice, also in line 2",
        {"1.png"},
    ),
    "row of a table that is no JSON": (metadata("{"), "line 2: .*not JSON", {"metadata.jsonl, line 2", "1.png"}),
    "row of a table without a path": (
        metadata('{"text": "x"}'),
        "line 2: the path",
        {"metadata.jsonl, line 2", "1.png"},
    ),
}


@pytest.mark.parametrize(("make", "problem", "bad"), CASES.values(), ids=CASES)
def test_a_bad_entry_is_an_error_or_leaves_out_its_image(
    tmp_path: Path, make: Make, problem: str, bad: set[str]
) -> None:
    source, options = make(tmp_path)
    with pytest.raises(SourceError, match=f"(?s){problem}.*on_error='skip'"):
        packer.convert(source, tmp_path / "out.lmdb", **options)
    summary = packer.convert(source, tmp_path / "out.lmdb", on_error="skip", **options)
    packer.index(source, tmp_path / "out.index", on_error="skip", **options)
    for pack in (tmp_path / "out.lmdb", tmp_path / "out.index"):
        assert sorted(one["name"] for one in packer.info(pack).skipped) == sorted(bad)
        names = {name for name, _ in packer.open_dataset(pack, output="bytes").samples}
        assert names
        assert names.isdisjoint(bad)
    images = {path.relative_to(source).as_posix() for path in source.rglob("*.*") if path.suffix in (".png", ".bmp")}
    unnamed = {"JPEGImages/1.png"} if "split" in options else set()
    assert names | bad >= images - unnamed
    assert not any(line.startswith("left out") for line in summary.notes if "--split" not in line)


def test_files_whose_ids_are_of_two_kinds_are_not_joined(tmp_path: Path) -> None:
    source, options = sourcekinds.coco(tmp_path)
    document = json.loads(options["coco"].read_text())
    images = [{**image, "id": str(image["id"])} for image in document["images"]]
    captions = [{"id": n, "image_id": image["id"], "caption": "x"} for n, image in enumerate(images)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    files = [options["coco"], tmp_path / "captions.json"]
    for on_error in ("fail", "skip"):
        with pytest.raises(packer.SourceError, match=r"captions\.json: most ids of images are strings"):
            packer.convert(source, tmp_path / "x.lmdb", **{**options, "coco": files}, on_error=on_error)
