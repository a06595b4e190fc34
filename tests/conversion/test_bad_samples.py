"""A sample that cannot be used is an error; with `on_error="skip"`, every kind of source leaves it out and lists it."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer._account import BadSamples
from packer._containers import list_samples
from packer._containers.contract import Container, Entry
from packer._conversion.partition import Partition, SharedSource, begin, finish
from packer._conversion.request import ConversionRequest
from packer.errors import ImageError, PackerError, SourceError
from tests.command import packer as run_packer
from tests.samples import solid


class Entries(Container):
    """A container whose entries a test sets."""

    kind = "entries"
    given: Sequence[Entry] = ()

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return False

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Any) -> Container:
        raise NotImplementedError

    def entries(self, unit: int) -> Iterator[Entry]:
        yield from self.given


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    (tmp_path / "a.bin").write_bytes(bytes(100))
    container = Entries(tmp_path, ["a.bin"])
    container.given = [
        Entry("a.jpg", b"1", "cat"),
        Entry("b.jpg", b"", "dog", problem="its image is null"),
        Entry("c.jpg", b"3", "dog"),
    ]
    return container


def test_an_entry_with_a_problem_is_an_error(entries: Entries) -> None:
    with pytest.raises(SourceError, match=r"b\.jpg: its image is null\. .*on_error='skip'"):
        list_samples(entries)


def test_an_entry_with_a_problem_is_left_out(entries: Entries) -> None:
    bad = BadSamples(skip=True)
    listed = list_samples(entries, bad=bad)
    assert (list(listed.names), listed.labels.tolist(), listed.classes) == (["a.jpg", "c.jpg"], [0, 1], ["cat", "dog"])
    assert [one["name"] for one in bad.found] == ["b.jpg"]


ROWS = {
    "no path": ",0",
    "a path outside": "../1.png,0",
    "an absolute path": "/nowhere/1.png,0",
    "no label": "1.png,",
    "too many cells": "1.png,0,1,2,3",
    "a field that is no number": "1.png,0,x",
    "a row that occurs twice": "0.png,0,1",
    "a file that is not there": "gone.png,0",
    "a file that is no image": "text.png,0",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(3):
        solid(tmp_path / "tree" / f"{number}.png")
    (tmp_path / "tree" / "text.png").write_text("no image")
    return tmp_path / "tree"


def table(directory: Path, row: str) -> Path:
    """Write a table whose second row is `row`."""
    path = directory / "t.csv"
    path.write_text(f"path,label,age\n0.png,0,1\n{row}\n2.png,1,2\n", "latin-1")
    return path


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_that_cannot_be_used_is_left_out_or_an_error_that_says_how(tree: Path, tmp_path: Path, row: str) -> None:
    options: dict[str, Any] = {"labels": table(tmp_path, row), "columns": {"age": "int64"}}
    with pytest.raises(PackerError) as caught:
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    if not isinstance(caught.value, ImageError):  # to an ImageError, the command adds the option
        assert "on_error='skip'" in str(caught.value)
    for parts in (None, 2):
        pack = tmp_path / f"{parts}.lmdb"
        packer.convert(tree, pack, on_error="skip", parts=parts, **options)
        dataset = packer.open_dataset(pack)
        assert ([name for name, _ in dataset.samples], list(dataset.targets)) == (["0.png", "2.png"], [0, 1])
        assert len(packer.info(pack).skipped) == 1
    packer.index(tree, tmp_path / "out.index", on_error="skip", **options)
    assert len(packer.info(tmp_path / "out.index").skipped) == 1


@pytest.mark.parametrize(
    ("label_type", "label"), [("int", "x"), ("float", "nan"), ("class", "\xff")], ids=["int", "float", "class"]
)
def test_a_label_that_is_none_is_left_out(tree: Path, tmp_path: Path, label_type: str, label: str) -> None:
    options = {"labels": table(tmp_path, f"1.png,{label}"), "label_type": label_type}
    with pytest.raises(SourceError, match=r"line 3.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]


@pytest.mark.parametrize("label", ["-5", "1000000000", "9" * 30, "0.25", "nan"])
@pytest.mark.parametrize("kind", ["table", "metadata"])
def test_a_label_that_is_no_id_among_ids_is_left_out(tree: Path, tmp_path: Path, kind: str, label: str) -> None:
    (tree / "text.png").unlink()
    path = table(tmp_path, f"1.png,{label}")
    options: dict[str, Any] = {"labels": path}
    if kind == "metadata":
        (tree / "metadata.csv").write_text(path.read_text().replace("path", "file_name"))
        options = {}
    advice = "" if options else r"Pass labels='.*metadata\.csv' path_column='file_name' label_type=.*"
    with pytest.raises(SourceError, match=rf"line 3: the label '{label}' .*{advice}on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    made = packer.convert(tree, tmp_path / "out.lmdb", on_error="skip", **options).manifest
    assert ([one["name"] for one in made.skipped], made.classes) == (["1.png"], ["0", "1"])
    assert list(packer.open_dataset(tmp_path / "out.lmdb").samples) == [("0.png", 0), ("2.png", 1)]


@pytest.mark.parametrize("labels", ["-5 7 -3", "0.5 1 0.25", "0.5 1 0.25 1 2 1", "010 1 2"])
def test_labels_of_which_many_are_no_ids_or_some_may_be_names_are_an_error(
    tree: Path, tmp_path: Path, labels: str
) -> None:
    rows = [f"{number}.png,{label}\n" for number, label in enumerate(labels.split())]
    (tmp_path / "t.csv").write_text(f"path,label\n{''.join(rows)}")
    with pytest.raises(SourceError, match=r"line 2: .* Pass label_type='(?!.*on_error)"):
        packer.convert(tree, tmp_path / "out.lmdb", labels=tmp_path / "t.csv", on_error="skip")


def test_a_row_that_is_left_out_makes_no_other_label_too_large(tree: Path, tmp_path: Path) -> None:
    for number in (3, 4):
        solid(tree / f"{number}.png")
    (tmp_path / "t.csv").write_text("path,label\n0.png,1050\n1.png,1051\n2.png,1\n3.png,2\n4.png,1\n")
    packer.convert(tree, tmp_path / "out.lmdb", labels=tmp_path / "t.csv", on_error="skip")
    assert [one["name"] for one in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    assert packer.open_dataset(tmp_path / "out.lmdb").targets.tolist() == [1050, 1, 2, 1]


@pytest.mark.parametrize(
    ("column", "label", "problem"),
    [
        ("label", [1, 2], r"line 2: the label '\[1, 2\]' .* columns='NAME=label:labels' no_classes=True.*"),
        ("labels", [1, 2], r"line 2: the label '\[1, 2\]' .* columns='NAME=labels:labels' no_classes=True.*"),
        ("label", {"id": 1}, "line 2: the label .*"),
        ("label", True, "line 2: the label 'True' .*"),
        ("label", 10**30, "line 2: the label '10+' is too large .*"),
    ],
)
def test_a_label_of_metadata_that_is_none_leaves_out_its_image_only(
    tree: Path, tmp_path: Path, column: str, label: Any, problem: str
) -> None:
    (tree / "text.png").unlink()
    lines = [{"file_name": f"{number}.png", column: label if number == 1 else number} for number in range(3)]
    (tree / "metadata.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(SourceError, match=rf"metadata\.jsonl, {problem}on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb")
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip")
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    assert list(packer.open_dataset(tmp_path / "out.lmdb").samples) == [("0.png", 0), ("2.png", 2)]


def test_a_path_of_metadata_that_is_no_unicode_leaves_out_its_row_only(tree: Path, tmp_path: Path) -> None:
    (tree / "text.png").unlink()
    names = ["0.png", "\ud800.png", "2.png"]
    (tree / "metadata.jsonl").write_text("".join(f"{json.dumps({'file_name': name})}\n" for name in names))
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip")
    skipped = [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped]
    assert skipped == ["\\ud800.png", "1.png"]  # the row may be that of 1.png


def test_a_path_of_metadata_that_is_none_leaves_out_its_image_only(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    paths = ["depth/0.png", 7, "depth/2.png"]
    for name in ("0.png", "1.png", "2.png", paths[0], paths[2]):
        solid(root / str(name))
    lines = [{"file_name": f"{number}.png", "depth_file_name": path} for number, path in enumerate(paths)]
    (root / "metadata.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(SourceError, match=r"line 2: column 'depth_file_name': 7 is not the path.*on_error='skip'"):
        packer.convert(root, tmp_path / "out.lmdb")
    made = packer.convert(root, tmp_path / "out.lmdb", on_error="skip").manifest
    assert ([one["name"] for one in made.skipped], [field.name for field in made.fields]) == (["1.png"], ["depth"])


def test_labels_of_metadata_may_be_numbers_and_texts(tree: Path, tmp_path: Path) -> None:
    (tree / "text.png").unlink()
    lines = [{"file_name": f"{number}.png", "label": label} for number, label in enumerate((0, "1", 2))]
    (tree / "metadata.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    packer.convert(tree, tmp_path / "out.lmdb")
    assert packer.open_dataset(tmp_path / "out.lmdb").targets.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["table", "metadata"])
@pytest.mark.parametrize(
    ("rows", "names", "skipped"),
    [
        ("0,a,1 0,a,1 1,b,2", ["0.png", "1.png"], ["line 3"]),  # the row is only repeated
        ("0,a,1 0,a,2 1,b,2", ["1.png"], ["0.png"]),  # either row may be the right one
        ("0,a,1 0,b,1 1,b,2", ["1.png"], ["0.png"]),
        ("0,a,x 0,a,1 1,b,2", ["0.png", "1.png"], ["line 2"]),  # the image has the good row
        ("0,a,1 0,a,x 1,b,2", ["0.png", "1.png"], ["line 3"]),
        ("0,a,x 0,a,y 1,b,2", ["1.png"], ["0.png", "line 3"]),  # the name of an image is listed once
    ],
)
def test_a_row_of_an_image_that_another_row_has_is_listed_by_its_line(
    tmp_path: Path, rows: str, names: list[str], skipped: list[str], kind: str
) -> None:
    for number in range(2):
        solid(tmp_path / "tree" / f"{number}.png")
    path, options = tmp_path / "tree" / "metadata.csv", {}
    if kind == "table":
        path, options = tmp_path / "t.csv", {"labels": tmp_path / "t.csv", "columns": {"objects": "json"}}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name" if kind == "metadata" else "path", "label", "objects"])
        for name, label, width in (row.split(",") for row in rows.split()):
            box = f'{{"bbox": [[0, 0, {width}, 1]], "categories": [1]}}'  # no JSON if the width is a letter
            writer.writerow([f"{name}.png", label, box])
    packer.convert(tmp_path / "tree", tmp_path / "out.lmdb", on_error="skip", **options)
    assert [name for name, _ in packer.open_dataset(tmp_path / "out.lmdb").samples] == names
    expected = [name.replace("line", f"{path.name}, line") for name in skipped]
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == expected


def test_a_label_of_no_given_class_is_left_out(tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "first.lmdb", labels=table(tmp_path, "1.png,1"))
    options = {"labels": table(tmp_path, "1.png,7"), "classes_from": tmp_path / "first.lmdb"}
    with pytest.raises(SourceError, match=r"given class list.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]


@pytest.mark.parametrize(
    ("own", "labels", "classes", "problem"),
    [
        (None, ["cat", "dog", "cat"], ["cat"], "classes that are not in the given class list: dog"),
        (["dog", "cat"], [1, 0, 1], ["cat"], "classes that are not in the given class list: dog"),
        (["0", "1"], [0, 1, 0], ["0"], r"1\.jpg: its label is 1, but there are 1 classes"),
        (None, [0, 1, 0], ["cat"], r"1\.jpg: its label is 1, but there are 1 classes"),
        (["cat"], [0, 1, 0], None, r"1\.jpg: its label is 1, but there are 1 classes"),
    ],
    ids=["names", "named ids", "numbers", "ids", "own classes"],
)
def test_a_sample_of_an_unknown_class_in_a_container_is_left_out(
    entries: Entries, own: list[str] | None, labels: list[Any], classes: list[str] | None, problem: str
) -> None:
    entries.classes, entries.given = own, [Entry(f"{at}.jpg", b"1", label) for at, label in enumerate(labels)]
    with pytest.raises(SourceError, match=f"{problem}.*on_error='skip'"):
        list_samples(entries, classes)
    bad = BadSamples(skip=True)
    listed = list_samples(entries, classes, bad=bad)
    assert (list(listed.names), listed.labels.tolist(), len(listed.images)) == (["0.jpg", "2.jpg"], [0, 0], 2)
    assert [one["name"] for one in bad.found] == ["1.jpg"]


@pytest.mark.parametrize(
    ("labels", "left", "problem"),
    [
        ([3, "cat", 0, None, 3], [3, 0, -1, 3], "1.jpg: its label is cat, but most labels are numbers"),
        (["cat", 7, "ant", "cat"], [1, 0, 1], "1.jpg: its label is 7, but most labels are class names"),
    ],
)
def test_the_few_labels_of_another_kind_in_a_container_are_left_out(
    entries: Entries, labels: list[Any], left: list[int], problem: str
) -> None:
    entries.given = [Entry(f"{at}.jpg", b"1", label) for at, label in enumerate(labels)]
    with pytest.raises(SourceError, match=f"{problem}.*on_error='skip'"):
        list_samples(entries)
    bad = BadSamples(skip=True)
    assert list_samples(entries, bad=bad).labels.tolist() == left
    assert [one["name"] for one in bad.found] == ["1.jpg"]
    for mixed, counts in [(["cat", 0], "1 labels are numbers, 1 are"), ([0, 1, 0, "a", "b"], "3 .*, 2 are")]:
        entries.given = [Entry(f"{at}.jpg", b"1", label) for at, label in enumerate(mixed)]
        with pytest.raises(SourceError, match=f"{counts} class names. Use labels of one kind"):
            list_samples(entries, bad=bad)


def test_samples_of_classes_that_the_given_pack_lacks_are_left_out(tmp_path: Path) -> None:
    for name in ("cat/0.png", "owl/1.png"):
        solid(tmp_path / "tree" / name)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in sorted((tmp_path / "tree").rglob("*.png")):
            archive.write(path, path.relative_to(tmp_path / "tree").as_posix())
    packer.pack([{"image": tmp_path / "tree/cat/0.png", "label": "cat"}], tmp_path / "cats.lmdb", classes=["cat"])
    options: dict[str, Any] = {"classes_from": tmp_path / "cats.lmdb", "on_error": "skip"}
    packer.convert(tmp_path / "tree", tmp_path / "b.lmdb")
    packer.index(tmp_path / "tree", tmp_path / "b.index")
    for name, file, text in (
        ("metadata", "metadata.csv", "file_name,age\ncat/0.png,1\nowl/1.png,2\n"),
        ("stylegan", "dataset.json", json.dumps({"labels": [["cat/0.png", 0], ["owl/1.png", 1]]})),
    ):
        shutil.copytree(tmp_path / "tree", tmp_path / name)
        (tmp_path / name / file).write_text(text)
    for source in ("a.zip", "tree", "b.lmdb", "b.index", "metadata", "stylegan"):
        pack = tmp_path / f"{source}-cats.lmdb"
        with pytest.raises(SourceError, match=r"given class list: (owl|1)\..*on_error='skip'"):
            packer.convert(tmp_path / source, pack, classes_from=tmp_path / "cats.lmdb")
        packer.convert(tmp_path / source, pack, **options)
        assert [entry["name"] for entry in packer.info(pack).skipped] == ["owl/1.png"]
        assert list(packer.open_dataset(pack).samples) == [("cat/0.png", 0)]
        assert run_packer("verify", pack).returncode == 0
    packer.convert(tmp_path / "b.lmdb", tmp_path / "parts.lmdb", parts=1, **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "parts.lmdb").skipped] == ["owl/1.png"]
    solid(tmp_path / "owls" / "owl" / "1.png")
    packer.convert(tmp_path / "owls", tmp_path / "owls.lmdb")
    with pytest.raises(SourceError, match=r"no image can be used: .*its class owl is not one of the given classes"):
        packer.convert(tmp_path / "owls.lmdb", tmp_path / "out.lmdb", **options)
    with pytest.raises(SourceError, match=r"no image can be used: .*its class owl is not one of the given classes"):
        packer.convert(tmp_path / "owls", tmp_path / "out.lmdb", **options)


def test_labels_that_skipping_does_not_mend_do_not_name_it(tree: Path, tmp_path: Path) -> None:
    """All rows are valid here, but the meaning of the labels is ambiguous."""
    with pytest.raises(SourceError, match="may be a number or a name") as caught:
        packer.convert(tree, tmp_path / "out.lmdb", labels=table(tmp_path, "1.png,01"))
    assert "on_error" not in str(caught.value)


def test_an_estimate_with_skip_does_not_advise_it(tree: Path, tmp_path: Path) -> None:
    said = ["estimate", tree, tmp_path / "out.lmdb", "--labels", table(tmp_path, "1.png,"), "--seconds", "0.1"]
    (tree / "2.png").write_bytes(b"no image")
    skipping = run_packer(*said, "--on-error", "skip")
    lines = [line for line in skipping.stdout.splitlines() if "cannot be used" in line or "unreadable" in line]
    assert len(lines) == 2
    assert not any("--on-error" in line for line in lines)
    plain = run_packer("estimate", tree, tmp_path / "out.lmdb", "--unlabeled", "--seconds", "0.1")
    assert "unless you pass --on-error skip" in plain.stdout


def test_a_bad_row_of_metadata_leaves_its_image_out(tree: Path, tmp_path: Path) -> None:
    (tree / "text.png").unlink()
    lines = [
        {"file_name": f"{number}.png", "objects": {"bbox": [[0, 0, 2, 2]], "categories": [1]}} for number in range(3)
    ]
    lines[1]["objects"] = {"bbox": [[0, 0, 2]], "categories": [1]}
    (tree / "metadata.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(SourceError, match=r"line 2.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb")
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip")
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    assert [name for name, _ in packer.open_dataset(tmp_path / "out.lmdb").samples] == ["0.png", "2.png"]


def test_a_list_keeps_bad_rows_for_the_conversion_to_decide(tree: Path, tmp_path: Path) -> None:
    scanned = run_packer("scan", tree, tmp_path / "list", "--labels", table(tmp_path, "1.png,"))
    assert (scanned.returncode, "cannot be used: 1.png" in scanned.stdout) == (0, True)
    with pytest.raises(SourceError, match=r"t\.csv, line 3: the label is missing.*on_error='skip'"):
        packer.convert(tmp_path / "list", tmp_path / "out.lmdb")
    result = run_packer("convert", tmp_path / "list", tmp_path / "out.lmdb", "--on-error", "skip", "--parts", "2")
    assert result.returncode == 3
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]


def test_a_bad_first_array_is_one_bad_sample(tree: Path, tmp_path: Path) -> None:
    (tree / "text.png").unlink()
    for number in range(3):
        np.save(tree / f"{number}.npy", np.zeros(3, np.float32))
    (tree / "0.npy").write_bytes(b"no array")
    options: dict[str, Any] = {"fields": {"flow:array": "{stem}.npy"}, "no_classes": True}
    with pytest.raises(SourceError, match=r"0\.npy.*stores any file"):
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["0.png"]


@pytest.mark.parametrize(
    ("suffix", "objects"),
    [
        (".jsonl", {"bbox": [[0, 0, 2, 2]], "categories": [1, 2]}),
        (".csv", {"bbox": [[0, 0, 2, 2]], "categories": [1, 2]}),
        (".csv", "no JSON"),
    ],
)
def test_a_row_of_metadata_with_bad_objects_leaves_its_image_out(
    tree: Path, tmp_path: Path, suffix: str, objects: Any
) -> None:
    (tree / "text.png").unlink()
    good = {"bbox": [[0, 0, 2, 2]], "categories": [1]}
    rows = [(f"{number}.png", objects if number == 1 else good) for number in range(3)]
    with (tree / f"metadata{suffix}").open("w", newline="") as file:
        if suffix == ".csv":
            texts = [one if isinstance(one, str) else json.dumps(one) for _, one in rows]
            csv.writer(file).writerows([("file_name", "objects"), *zip([name for name, _ in rows], texts, strict=True)])
        else:
            file.writelines(f"{json.dumps({'file_name': name, 'objects': one})}\n" for name, one in rows)
    with pytest.raises(SourceError, match=r"column 'objects'.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb")
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip")
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    assert len(packer.open_dataset(tmp_path / "out.lmdb", fields=("image", "boxes"))) == 2


def test_bad_rows_before_a_path_outside_leave_out_only_themselves(tree: Path, tmp_path: Path) -> None:
    (tree / "text.png").unlink()
    (tree / "metadata.csv").write_text("file_name,objects\n0.png,bad\n1.png,{}\n../elsewhere.png,{}\n2.png,{}\n")
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip")
    skipped = [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped]
    assert skipped == ["0.png", "../elsewhere.png"]
    assert [name for name, _ in packer.open_dataset(tmp_path / "out.lmdb").samples] == ["1.png", "2.png"]


def test_a_row_outside_of_the_directories_of_classes_is_left_out(tree: Path, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        solid(tree / name / "0.png")
    (tmp_path / "t.csv").write_text("path,age\ncat/0.png,1\n1.png,2\ndog/0.png,3\n")
    options: dict[str, Any] = {"labels": tmp_path / "t.csv", "columns": {"age": "int64"}}
    with pytest.raises(SourceError, match=r"line 3: 1\.png is not in a class.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert [(name, dataset.classes[label]) for name, label in dataset.samples] == [
        ("cat/0.png", "cat"),
        ("dog/0.png", "dog"),
    ]


@pytest.mark.parametrize("kind", ["class", "labels"])
def test_a_row_with_too_large_an_id_is_left_out(tree: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "t.csv").write_text(f"path,kind\n0.png,3\n1.png,{2**63}\n2.png,{2**63 - 1}\n")
    options: dict[str, Any] = {"labels": tmp_path / "t.csv", "no_classes": True, "columns": {"kind": kind}}
    with pytest.raises(SourceError, match=rf"line 3: column 'kind': {2**63} is not an id.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb", **options)
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    dataset = packer.open_dataset(tmp_path / "out.lmdb", fields=("kind",), output="numpy")
    assert [np.atleast_1d(item["kind"]).tolist() for item in dataset] == [[3], [2**63 - 1]]


def test_a_label_of_stylegan_that_is_no_vector_is_left_out(tree: Path, tmp_path: Path) -> None:
    (tree / "text.png").unlink()
    labels = [["0.png", [1.0]], ["1.png", ["x"]], ["2.png", [3.0]]]
    (tree / "dataset.json").write_text(json.dumps({"labels": labels}))
    with pytest.raises(SourceError, match=r"1\.png: its label is not a list of numbers.*on_error='skip'"):
        packer.convert(tree, tmp_path / "out.lmdb")
    packer.convert(tree, tmp_path / "out.lmdb", on_error="skip")
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["1.png"]
    dataset = packer.open_dataset(tmp_path / "out.lmdb", fields=("labels",), output="numpy")
    assert [item["labels"].tolist() for item in dataset] == [[1.0], [3.0]]


@pytest.fixture
def two_packs(tmp_path: Path) -> tuple[Path, Path]:
    """Return a pack with a field of the classes cat and dog, and a pack whose second sample is an emu."""
    for name, kinds in (("one", "cat dog cat"), ("two", "cat emu cat dog dog cat")):
        rows = ["path,label,kind"]
        for number, kind in enumerate(kinds.split()):
            solid(tmp_path / name / f"{number}.png")
            rows.append(f"{number}.png,a,{kind}")
        (tmp_path / f"{name}.csv").write_text("\n".join(rows))
        options: dict[str, Any] = {"labels": tmp_path / f"{name}.csv", "columns": ["kind:class"]}
        packer.convert(tmp_path / name, tmp_path / f"{name}.lmdb", **options)
    return tmp_path / "one.lmdb", tmp_path / "two.lmdb"


@pytest.mark.parametrize("choice", [{}, {"limit": 3}, {"sample": 3}, {"where": "height > 0"}, {"parts": 2}])
def test_a_bad_sample_of_a_pack_is_listed_whatever_is_chosen(
    two_packs: tuple[Path, Path], tmp_path: Path, choice: dict[str, Any]
) -> None:
    one, two = two_packs
    out = tmp_path / "out.lmdb"
    packer.convert(two, out, classes_from=one, on_error="skip", **choice)
    assert [entry["name"] for entry in packer.info(out).skipped] == ["1.png"]
    packer.convert(out, tmp_path / "again.lmdb", classes_from=one)
    assert [entry["name"] for entry in packer.info(tmp_path / "again.lmdb").skipped] == ["1.png"]


@pytest.mark.parametrize("choice", [{}, {"limit": 2}, {"where": "height > 0"}])
def test_a_sample_of_a_class_that_a_given_pack_lacks_is_listed_whatever_is_chosen(
    tmp_path: Path, choice: dict[str, Any]
) -> None:
    for name in ("cat/0.png", "cat/1.png", "dog/2.png", "owl/3.png"):
        solid(tmp_path / "tree" / name)
    packer.convert(tmp_path / "tree", tmp_path / "all.lmdb")
    shutil.rmtree(tmp_path / "tree" / "owl")
    packer.convert(tmp_path / "tree", tmp_path / "some.lmdb")
    options: dict[str, Any] = {"classes_from": tmp_path / "some.lmdb", "on_error": "skip", **choice}
    packer.convert(tmp_path / "all.lmdb", tmp_path / "out.lmdb", **options)
    assert [entry["name"] for entry in packer.info(tmp_path / "out.lmdb").skipped] == ["owl/3.png"]


def test_tasks_leave_out_the_samples_that_the_whole_conversion_leaves_out(
    two_packs: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = two_packs
    whole = tmp_path / "whole.lmdb"
    packer.convert(two, whole, classes_from=one, on_error="skip")
    request = ConversionRequest(src=two, dst=tmp_path / "out.lmdb", parts=2, classes_from=one, on_error="skip")
    partition = Partition(request)
    source = begin(partition, share=True)
    shared = pickle.loads(pickle.dumps(SharedSource.of(partition, source)))
    one.unlink()  # workers on other machines do not need it
    for number in partition.missing():
        partition.convert(shared.open(), number)
    made, expected = finish(partition.destination), packer.open_pack(whole).manifest
    assert (made.count, made.fields, made.skipped) == (expected.count, expected.fields, expected.skipped)
    assert made.fields[0].classes == ("cat", "dog")
