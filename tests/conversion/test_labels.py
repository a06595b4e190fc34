"""Labels that are not class ids, from a table to the dataset, through every format and command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
import pytest
import torch

import packer
from packer._manifest import Manifest
from packer._table import checksum
from packer.errors import OptionError, SourceError
from packer.testing.conformance import draw_samples, flip
from tests.command import packer_many
from tests.samples import SUFFIXES, content, noise, solid, write_pack

FLOATS = [0.1, -2.5, 1e-300, 3.0, 1 / 3]
INTS = [7, -3, 2**62 + 1, 20231105, 0]
VALUES: dict[str, list[Any]] = {"float": FLOATS, "int": INTS}

formats = pytest.mark.parametrize("format", SUFFIXES)
label_types = pytest.mark.parametrize("label_type", list(VALUES))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("labels")
    for index in range(5):
        noise(root / "flat" / f"{index}.png", index, (9, 7))
    for label_type, values in VALUES.items():
        rows = "".join(f"{index}.png,{value!r}\n" for index, value in enumerate(values))
        (root / f"{label_type}.csv").write_text(f"path,label\n{rows}")
    (root / "some.csv").write_text("path,label\n0.png,cat\n1.png,\n2.png,dog\n3.png,\n4.png,cat\n")
    return root


def converted(tree: Path, destination: Path, label_type: str, **options: Any) -> packer.Summary:
    labels = tree / f"{label_type}.csv"
    return packer.convert(tree / "flat", destination, labels=labels, label_type=label_type, **options)


@formats
@label_types
def test_numbers_are_kept_to_the_bit(tree: Path, tmp_path: Path, format: str, label_type: str) -> None:
    path, values = tmp_path / f"pack{SUFFIXES[format]}", VALUES[label_type]
    manifest = converted(tree, path, label_type).manifest
    assert (manifest.schema, manifest.label_type, manifest.classes) == (2, label_type, [])
    dtype = np.float64 if label_type == "float" else np.int64
    with packer.open_dataset(path, output="bytes") as dataset:
        assert dataset.targets.dtype == dtype
        assert dataset.targets.tobytes() == np.array(values, dtype).tobytes()
        assert [target for _, target in dataset] == values
        assert {type(target) for _, target in dataset} == {type(values[0])}
        assert [target for _, target in dataset.samples] == values
        assert dataset.classes == []
    assert packer.verify(path) == []
    held = packer.info(path)
    assert (held.label_type, held.least_label, held.most_label) == (label_type, min(values), max(values))
    assert (held.unlabeled, held.without_class) == (0, 0)


def test_other_programs_see_floats(tree: Path, tmp_path: Path) -> None:
    for suffix in (".h5", ".pth"):
        converted(tree, tmp_path / f"pack{suffix}", "float")
    with h5py.File(tmp_path / "pack.h5") as file:
        assert file["label"][:].tolist() == FLOATS
        assert file.attrs["schema"] == 2
    for name in ("table", "shard-00000"):
        assert torch.load(tmp_path / "pack.pth" / f"{name}.pth", mmap=True)["label"].tolist() == FLOATS


@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_the_loader_gives_floats(tree: Path, tmp_path: Path, suffix: str) -> None:
    converted(tree, tmp_path / f"pack{suffix}", "float")
    dataset = packer.open_dataset(tmp_path / f"pack{suffix}")
    with packer.Loader(dataset, 2, shuffle=False, drop_last=False) as loader:
        labels = torch.cat([labels for _, labels in loader])
    assert labels.dtype == torch.float64
    assert labels.tolist() == FLOATS


@label_types
def test_numbers_survive_conversions_parts_and_merging(tree: Path, tmp_path: Path, label_type: str) -> None:
    first = tmp_path / "first.lmdb"
    converted(tree, first, label_type)
    digest = packer.digest(first)
    packer.convert(first, tmp_path / "second.h5")
    converted(tree, tmp_path / "parts.pth", label_type, parts=2)
    packer.merge(sorted((tmp_path / "parts.pth").glob("part-*")), tmp_path / "merged.lmdb")
    packer.convert(first, tmp_path / "anew.pth", codec="raw")
    for name in ("second.h5", "parts.pth", "merged.lmdb", "anew.pth"):
        assert packer.verify(tmp_path / name) == []
        with packer.open_pack(tmp_path / name) as reader:
            assert reader.table.label.tolist() == VALUES[label_type]
            assert (reader.manifest.schema, reader.manifest.label_type) == (2, label_type)
        assert name == "anew.pth" or packer.digest(tmp_path / name) == digest


def test_digests_of_an_id_and_of_a_number_differ(tmp_path: Path, tree: Path) -> None:
    (tmp_path / "ids.csv").write_text("path,label\n0.png,-1\n")
    found = set()
    for name, options in {"class": {}, "int": {"label_type": "int"}, "float": {"label_type": "float"}}.items():
        packer.convert(tree / "flat", tmp_path / f"{name}.lmdb", labels=tmp_path / "ids.csv", **options)
        found.add(packer.digest(tmp_path / f"{name}.lmdb"))
    assert len(found) == 3


@label_types
def test_exported_numbers_come_back(tree: Path, tmp_path: Path, label_type: str) -> None:
    converted(tree, tmp_path / "pack.lmdb", label_type)
    packer.export(tmp_path / "pack.lmdb", tmp_path / "out")
    with open(tmp_path / "out" / "labels.csv", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == list(map(repr, VALUES[label_type]))
    packer.convert(
        tmp_path / "out", tmp_path / "again.lmdb", labels=tmp_path / "out" / "labels.csv", label_type=label_type
    )
    assert content(tmp_path / "again.lmdb") == content(tmp_path / "pack.lmdb")


def test_types_of_labels_do_not_mix(tree: Path, tmp_path: Path) -> None:
    converted(tree, tmp_path / "a.lmdb", "float")
    converted(tree, tmp_path / "b.lmdb", "int")
    with pytest.raises(SourceError, match=r"a\.lmdb has the label type float, but .*b\.lmdb has int"):
        packer.merge([tmp_path / "a.lmdb", tmp_path / "b.lmdb"], tmp_path / "c.lmdb")
    with pytest.raises(OptionError, match=r"its labels are numbers, but classes_from= needs a pack with classes"):
        packer.convert(tree / "flat", tmp_path / "c.lmdb", labels=tree / "some.csv", classes_from=tmp_path / "a.lmdb")


def test_a_continued_conversion_is_that_of_the_same_labels(tree: Path, tmp_path: Path) -> None:
    noise(tmp_path / "src" / "1.png", 1)
    (tmp_path / "src" / "2.png").write_bytes(b"no image")
    (tmp_path / "list.csv").write_text("path,label\n1.png,0.5\n2.png,0.25\n")
    options: dict[str, Any] = {"labels": tmp_path / "list.csv", "label_type": "float"}
    with pytest.raises(packer.ImageError):
        packer.convert(tmp_path / "src", tmp_path / "pack.h5", **options)
    with pytest.raises(packer.ResumeError, match="label_type= was float and is now class"):
        packer.convert(tmp_path / "src", tmp_path / "pack.h5", **{**options, "label_type": "class"})
    noise(tmp_path / "src" / "2.png", 2)
    packer.convert(tmp_path / "src", tmp_path / "pack.h5", **options)
    with packer.open_pack(tmp_path / "pack.h5") as reader:
        assert reader.table.label.tolist() == [0.5, 0.25]
    (tmp_path / "list.csv").write_text("path,label\n1.png,0.5\n2.png,0.125\n")
    with pytest.raises(packer.DestinationError):
        packer.convert(tmp_path / "src", tmp_path / "pack.h5", **options)


@formats
def test_unlabeled_rows_stay_unlabeled(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    summary = packer.convert(tree / "flat", path, labels=tree / "some.csv", unlabeled=True)
    assert "2 of 5 rows have no label, and get the label -1" in summary.notes
    assert (summary.manifest.schema, summary.manifest.classes) == (2, ["cat", "dog"])
    with packer.open_dataset(path) as dataset:
        assert dataset.targets.tolist() == [0, -1, 1, -1, 0]
    assert packer.verify(path) == []
    held = packer.info(path)
    assert (held.unlabeled, held.without_class, [c.samples for c in held.classes]) == (2, 0, [2, 1])
    packer.export(path, tmp_path / "out")
    again = tmp_path / f"again{SUFFIXES[format]}"
    packer.convert(tmp_path / "out", again, labels=tmp_path / "out" / "labels.csv", unlabeled=True)
    assert packer.digest(again) == packer.digest(path)


def test_packs_of_classes_alone_are_of_schema_1(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("path,label\n0.png,1.0\n1.png,0.0\n")
    manifest = packer.convert(tree / "flat", tmp_path / "pack.lmdb", labels=tmp_path / "ids.csv").manifest
    assert b"label_type" not in manifest.to_json()
    assert manifest.to_json().startswith(b'{"schema":1,')
    part = packer.convert(tree / "flat", tmp_path / "u.lmdb", labels=tree / "some.csv", unlabeled=True, limit=1)
    assert part.manifest.schema == 1


def test_verify_takes_minus_one_and_refuses_other_ids(tmp_path: Path) -> None:
    samples = draw_samples([10, 20, 30])

    def relabel(to: int) -> Any:
        def change(index: int, row: dict[str, Any]) -> None:
            if index == 1:
                row["label"] = to
                row["crc32c"] = checksum_of(row, samples[1].data)

        return change

    def checksum_of(row: dict[str, Any], data: Any) -> int:
        return checksum(data, row["label"], row["height"], row["width"], row["name"])

    classes = [f"class_{n}" for n in range(5)]
    for label, schema, fine in [(-1, 2, True), (-2, 2, False), (5, 2, False), (-1, 1, False)]:
        path = tmp_path / f"{label},{schema}.lmdb"
        write_pack(path, "lmdb", samples, classes=classes, change=relabel(label), schema=schema)
        found = [str(damage) for damage in packer.verify(path)]
        assert found == ([] if fine else [f"sample 1 ({samples[1].name}): label {label} is not one of the 5 classes"])


@pytest.mark.parametrize(
    "change",
    [{"label_type": "double"}, {"label_type": "float"}, {"label_type": None}, {"label_type": 1}],
    ids=str,
)
def test_a_manifest_with_other_labels_is_refused(change: dict[str, Any]) -> None:
    document = json.loads(Manifest("lmdb", 0, ["a"], schema=2).to_json()) | change
    del document["crc32c"]
    body = json.dumps({k: v for k, v in document.items() if v is not None}, separators=(",", ":"))[:-1].encode()
    with pytest.raises(packer.CorruptPackError, match=r"label_type|label type"):
        Manifest.from_json(body + b',"crc32c":"%08x"}' % google_crc32c.value(body), "pack")


def test_images_without_labels(tmp_path: Path) -> None:
    for name in ("b.jpg", "a/2.jpg", "a/1.jpg", "a-b/x.png", "C.PNG"):
        solid(tmp_path / "src" / name)
    (tmp_path / "src" / "notes.txt").touch()
    summary = packer.convert(tmp_path / "src", tmp_path / "pack.lmdb", unlabeled=True)
    assert summary.not_looked_at == {".txt": 1}
    assert summary.manifest.source["kind"] == "files"
    with packer.open_dataset(tmp_path / "pack.lmdb") as dataset:
        assert dataset.targets.tolist() == [-1] * 5
        assert dataset.classes == []
        assert [name for name, _ in dataset.samples] == ["C.PNG", "a-b/x.png", "a/1.jpg", "a/2.jpg", "b.jpg"]
    assert packer.verify(tmp_path / "pack.lmdb") == []
    packer.export(tmp_path / "pack.lmdb", tmp_path / "out")
    assert not (tmp_path / "out" / "labels.csv").exists()
    packer.convert(tmp_path / "out", tmp_path / "again.lmdb", unlabeled=True)
    assert packer.digest(tmp_path / "again.lmdb") == packer.digest(tmp_path / "pack.lmdb")


def test_unlabeled_and_labeled_packs_are_united(tree: Path, tmp_path: Path) -> None:
    solid(tmp_path / "src" / "cat" / "x.png")
    packer.convert(tmp_path / "src", tmp_path / "cats.lmdb")
    packer.convert(tree / "flat", tmp_path / "none.lmdb", unlabeled=True)
    packer.merge([tmp_path / "none.lmdb", tmp_path / "cats.lmdb"], tmp_path / "all.lmdb", classes="union")
    with packer.open_dataset(tmp_path / "all.lmdb") as dataset:
        assert (dataset.targets.tolist(), dataset.classes) == ([-1] * 5 + [0], ["cat"])


def test_what_does_not_fit_together_is_refused(tree: Path, tmp_path: Path) -> None:
    flat, labels = tree / "flat", tree / "float.csv"
    packer.convert(flat, tmp_path / "p.lmdb", unlabeled=True)
    for options, said in [
        ({"label_type": "float"}, "label_type= applies only to a table"),
        ({"labels": labels, "label_type": "float", "unlabeled": True}, "unlabeled=True applies only to class ids"),
        ({"classes_from": tmp_path / "p.lmdb", "unlabeled": True}, "classes_from= applies only to class ids"),
        ({"labels": labels, "any_image": True}, "any_image=True applies only to directories"),
        ({"labels": labels, "extensions": [".png"]}, "extensions= applies only to directories"),
    ]:
        with pytest.raises(OptionError, match=said):
            packer.convert(flat, tmp_path / "x.lmdb", **options)  # type: ignore[arg-type]
    for options, said in [({"no_classes": True}, "no_classes=True"), ({"any_image": True}, "any_image=True")]:
        with pytest.raises(OptionError, match=f"{said} cannot be used with .*p.lmdb, which already determines"):
            packer.convert(tmp_path / "p.lmdb", tmp_path / "x.lmdb", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label_type must be one of class, int, float, not 'double'"):
        packer.convert(flat, tmp_path / "x.lmdb", labels=labels, label_type="double")


def test_the_command_says_what_labels_became(tree: Path, tmp_path: Path) -> None:
    flat, pack = tree / "flat", tmp_path / "p.lmdb"
    asked, flatly, made, info, scan, from_scan, unlabeled = packer_many(
        [
            ["convert", flat, pack, "--labels", tree / "float.csv"],
            ["convert", flat, pack],
            ["convert", flat, pack, "--labels", tree / "float.csv", "--label-type", "float"],
            ["info", pack],
            ["scan", flat, tmp_path / "list", "--labels", tree / "float.csv", "--label-type", "float"],
            ["convert", tmp_path / "list", tmp_path / "q.lmdb"],
            ["convert", flat, tmp_path / "u.lmdb", "--unlabeled"],
        ]
    )
    assert asked.returncode == 1
    assert "float.csv, line 2: the label '0.1' is not a class id. Pass --label-type float" in asked.stderr
    assert "for images without labels, pass --unlabeled" in flatly.stderr
    assert "5 samples, float labels, " in made.stdout
    assert "5 samples, float labels, " in info.stdout
    assert "labels are numbers without classes (float), -2.5 to 3.0" in info.stdout
    assert "5 images, float labels" in scan.stdout
    assert from_scan.returncode == 0, from_scan.stderr
    assert packer.digest(tmp_path / "q.lmdb") == packer.digest(pack)
    assert "every label is -1, and there are no classes" in unlabeled.stdout


@formats
def test_a_damaged_sample_with_a_float_is_found_and_repaired(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    converted(tree, path, "float")
    whole = content(path)
    flip(path, (tree / "flat" / "3.png").read_bytes(), 50)
    (damage,) = packer.verify(path)
    assert (damage.index, damage.name) == (3, "3.png")
    packer.repair(path, tree / "flat")
    assert content(path) == whole
    flip(path, np.array(FLOATS).tobytes(), 8)
    assert "the table's column 'label' does not match its checksum" in [str(damage) for damage in packer.verify(path)]
    with packer.open_dataset(path) as dataset, pytest.raises(packer.CorruptPackError, match="label"):
        _ = dataset.targets
