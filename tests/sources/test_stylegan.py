"""Files of labels in a directory of images: StyleGAN's ``dataset.json`` is read; others are only reported."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._sources.imagefolder import imagefolder_source
from packer.errors import SourceError
from tests.command import packer as run_packer
from tests.samples import solid

NAMES = [f"{number // 3:05d}/img{number:08d}.png" for number in range(6)]


def stylegan(tmp_path: Path, labels: Any, names: list[str] = NAMES) -> Path:
    for number, name in enumerate(names):
        solid(tmp_path / "d" / name, (number * 30, 7, 7))
    (tmp_path / "d" / "dataset.json").write_text(json.dumps({"labels": labels}))
    return tmp_path / "d"


def zipped(root: Path) -> Path:
    with zipfile.ZipFile(root.with_suffix(".zip"), "w") as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(root).as_posix())
    return root.with_suffix(".zip")


@pytest.mark.parametrize(
    "labels",
    [
        [[name, number % 2] for number, name in enumerate(NAMES)],
        [[name.replace("/", "\\"), 5 - number] for number, name in enumerate(NAMES)],
        [[name, [number / 2, 1.5]] for number, name in enumerate(NAMES)],
        None,
    ],
    ids=["ids", "backslashes", "vectors", "none"],
)
def test_a_directory_is_read_as_its_zip_is(tmp_path: Path, labels: Any) -> None:
    root = stylegan(tmp_path, labels)
    for number, src in enumerate((root, zipped(root))):
        packer.convert(src, tmp_path / f"{number}.lmdb")
    fields = [packer.info(tmp_path / "0.lmdb").fields, packer.info(tmp_path / "1.lmdb").fields]
    one, other = (packer.open_dataset(tmp_path / f"{number}.lmdb", output="bytes") for number in range(2))
    assert (list(one.samples), one.classes, fields[0]) == (list(other.samples), other.classes, fields[1])


@pytest.mark.parametrize(("text", "classes"), [('{"labels": null}', []), ("[]", ["00000", "00001"])])
def test_parts_are_no_classes_where_there_are_no_labels(tmp_path: Path, text: str, classes: list[str]) -> None:
    root = stylegan(tmp_path, None)
    (root / "dataset.json").write_text(text)
    for number, src in enumerate((root, zipped(root))):
        summary = packer.convert(src, tmp_path / f"{number}.lmdb")
        dataset = packer.open_dataset(tmp_path / f"{number}.lmdb")
        assert (dataset.classes, set(dataset.targets.tolist())) == (classes, {0, 1} if classes else {-1})
        assert any(note.startswith("unlabeled: 6 images") for note in summary.notes) == (not classes)


def test_classes_stay_classes_where_there_are_no_labels(tmp_path: Path) -> None:
    """Another tool may have written a ``dataset.json`` without labels among directories of classes."""
    names = ["cat/0.png", "cat/1.png", "dog/0.png"]
    root = stylegan(tmp_path, None, names)
    for number, src in enumerate((root, zipped(root))):
        summary = packer.convert(src, tmp_path / f"{number}.lmdb")
        dataset = packer.open_dataset(tmp_path / f"{number}.lmdb")
        assert (dataset.classes, dataset.targets.tolist()) == (["cat", "dog"], [0, 0, 1])
        assert any("dataset.json" in note for note in summary.notes)


def test_it_is_said_first_and_read_in_place_too(tmp_path: Path) -> None:
    root = stylegan(tmp_path, [[name, number % 2] for number, name in enumerate(NAMES)])
    result = run_packer("convert", root, tmp_path / "out.lmdb")
    assert "taken: 1 file (dataset.json): it has the labels" in result.stdout + result.stderr
    with pytest.warns(UserWarning, match=r"dataset\.json"):
        assert [int(target) for target in packer.open_dataset(root).targets] == [0, 1, 0, 1, 0, 1]
    packer.convert(root, tmp_path / "plain.lmdb", no_metadata=True)
    assert packer.open_dataset(tmp_path / "plain.lmdb").classes == ["00000", "00001"]


def test_labels_that_lack_or_have_no_image(tmp_path: Path) -> None:
    root = stylegan(tmp_path, [[NAMES[0], 1], [NAMES[1], 0], ["gone.png", 1]])
    summary = packer.convert(root, tmp_path / "out.lmdb")
    assert summary.notes[:2] == [
        "left out: 1 label (gone.png): dataset.json lists it for an image that does not exist",
        "unlabeled: 4 images (00000/img00000002.png, 00001/img00000003.png, 00001/img00000004.png, …): "
        "they have no label",
    ]
    archive = packer.convert(zipped(root), tmp_path / "zip.lmdb")
    assert archive.notes[:2] == summary.notes[:2]
    one, other = (packer.open_dataset(tmp_path / f"{name}.lmdb", output="bytes") for name in ("out", "zip"))
    assert (list(one.samples), one.classes) == (list(other.samples), other.classes)
    with pytest.raises(SourceError, match="strict"):
        packer.convert(root, tmp_path / "two.lmdb", strict=True)


def test_labels_of_other_images_leave_directories_classes(tmp_path: Path) -> None:
    root = stylegan(tmp_path, [["gone.png", 1]])
    for number, src in enumerate((root, zipped(root))):
        summary = packer.convert(src, tmp_path / f"{number}.lmdb")
        assert summary.manifest.classes == ["00000", "00001"]
        assert any("dataset.json" in note for note in summary.notes)


@pytest.mark.parametrize("text", ["", "[]", '{"name": "x"}', '{"labels": [1]}', '{"labels": [["gone", 1]]}'])
def test_another_dataset_json_leaves_directories_classes(tmp_path: Path, text: str) -> None:
    root = stylegan(tmp_path, None)
    (root / "dataset.json").write_text(text)
    summary = packer.convert(root, tmp_path / "out.lmdb")
    assert summary.manifest.classes == ["00000", "00001"]
    assert any("dataset.json" in note for note in summary.notes)


BESIDE = {
    "labels.csv": "--labels",
    "train.csv": "--labels",
    "cat/labels.csv": "--labels",
    "_annotations.coco.json": "--coco",
    "cat/_annotations.coco.json": "--coco",
    "instances_train2017.json": "--coco",
    "data.yaml": "--yolo",
    "labels.txt": "--no-header --labels",
    "classes.txt": "--no-header --labels",
    "cat/metadata.jsonl": "convert the directory",
    "cat/metadata.csv": "convert the directory",
}


@pytest.mark.parametrize(("name", "option"), BESIDE.items(), ids=BESIDE)
def test_a_file_that_may_have_labels_is_named_with_its_option(tmp_path: Path, name: str, option: str) -> None:
    for image in ("cat/0.png", "dog/1.png"):
        solid(tmp_path / image)
    (tmp_path / name).write_text("x")
    assert any(name in line and option in line for line in imagefolder_source(tmp_path).remarks())
    (tmp_path / name).rename(tmp_path / "cat" / "notes.md")
    assert not any("may have the labels" in line for line in imagefolder_source(tmp_path).remarks())


@pytest.mark.parametrize("label", [-5, 10**30, 10_000])
def test_numbers_that_are_no_ids_are_refused(tmp_path: Path, label: int) -> None:
    with pytest.raises(SourceError, match=r"are not class ids\. no_metadata=True ignores the file"):
        packer.convert(stylegan(tmp_path, [[name, label] for name in NAMES]), tmp_path / "x.lmdb")


def test_one_number_that_is_no_id_changes_no_other_label(tmp_path: Path) -> None:
    root = stylegan(tmp_path, [[name, 10**9 if number == 2 else number % 2] for number, name in enumerate(NAMES)])
    for number, src in enumerate((root, zipped(root))):
        with pytest.raises(SourceError, match=rf"{NAMES[2]}: its label is 1000000000, but there are 2 classes"):
            packer.convert(src, tmp_path / f"{number}.lmdb")
        made = packer.convert(src, tmp_path / f"{number}.lmdb", on_error="skip").manifest
        assert ([one["name"] for one in made.skipped], made.classes) == ([NAMES[2]], ["0", "1"])
        dataset = packer.open_dataset(tmp_path / f"{number}.lmdb")
        assert list(dataset.samples) == [(name, at % 2) for at, name in enumerate(NAMES) if at != 2]


def test_numbers_of_which_most_are_too_large_for_ids_have_no_classes(tmp_path: Path) -> None:
    labels = [10**9 + number if number else 1 for number in range(len(NAMES))]
    archive = zipped(stylegan(tmp_path, [list(one) for one in zip(NAMES, labels, strict=True)]))
    made = packer.convert(archive, tmp_path / "out.lmdb").manifest
    assert (made.label_type, made.classes) == ("int", [])
    assert packer.open_dataset(tmp_path / "out.lmdb").targets.tolist() == labels


IMAGES = ["cat/1.png", "cat/2.png", "dog/3.png"]


@pytest.mark.parametrize(
    ("labels", "left", "classes"),
    [
        ([[name, name[:3]] for name in IMAGES], IMAGES, ["cat", "dog"]),  # of another tool
        ([[IMAGES[0], 1], [IMAGES[1], None], [IMAGES[2], 0]], [IMAGES[0], IMAGES[2]], ["0", "1"]),
        ([[IMAGES[0], 1], [IMAGES[1], 1, "x"], [IMAGES[2], 0]], [IMAGES[0], IMAGES[2]], ["0", "1"]),
        ([*([name, 0] for name in IMAGES), ["gone/4.png", None]], IMAGES, ["0"]),
        ([*([name, 0] for name in IMAGES), ["\ud800.png", None], 7], IMAGES, ["0"]),
    ],
    ids=["text", "null", "three members", "image that does not exist", "half of a character"],
)
def test_a_bad_label_costs_its_image_and_no_other(
    labels: list[Any], left: list[str], classes: list[str], tmp_path: Path
) -> None:
    for name in IMAGES:
        solid(tmp_path / "d" / name, (1, 2, 3))
    (tmp_path / "d" / "dataset.json").write_text(json.dumps({"labels": labels}))
    summary = packer.convert(tmp_path / "d", tmp_path / "x.lmdb", on_error="skip")
    pack = packer.open_dataset(summary.destination)
    assert ([name for name, _ in pack.samples], pack.classes) == (left, classes)
    ids = {entry[0]: entry[1] for entry in labels if isinstance(entry, list)}
    if classes != ["cat", "dog"]:
        assert [label for _, label in pack.samples] == [ids[name] for name in left]


@pytest.mark.parametrize("text", ['{"labels": [["cat/1.png", 1], ["cat/2.', '{"labels": [["cat/1.png", NaN]]}'])
def test_labels_that_are_not_json_are_not_replaced_by_directories(text: str, tmp_path: Path) -> None:
    for name in IMAGES:
        solid(tmp_path / "d" / name, (1, 2, 3))
    (tmp_path / "d" / "dataset.json").write_text(text)
    for on_error in ("fail", "skip"):
        with pytest.raises(packer.SourceError, match="no_metadata=True ignores the file"):
            packer.convert(tmp_path / "d", tmp_path / "x.lmdb", on_error=on_error)
    made = packer.convert(tmp_path / "d", tmp_path / "x.lmdb", no_metadata=True)
    assert packer.open_dataset(made.destination).classes == ["cat", "dog"]
