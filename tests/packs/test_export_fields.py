"""Fields are exported as files and lines that give the same pack again; nothing is written outside."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer._conversion.convert import convert
from packer._fields import Field
from packer._formats import open_pack
from packer._packs.export import export
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._sources.sidecar_files import FileField, with_files
from packer._sources.table_source import csv_source
from packer._sources.tables import ColumnSpec, TableOptions
from packer.errors import PackError
from tests.command import packer
from tests.packs.test_fields import FIELDS, damaged, png, sample, values_of, written
from tests.samples import SUFFIXES, content

ORDER = (0, 2, 1, 3, 5)  # as ImageFolder sorts them

formats = pytest.mark.parametrize("format", SUFFIXES)

BY_TEMPLATE = (
    Field("mask", "mask", file="../masks/{stem}.png"),
    Field("caption", "text", file="{dir}/{stem}.txt"),
    Field("about", "json", file="../../about/{path}.json"),
    Field("raw", "bytes", file="{path}.bin"),
    Field("embedding", "array", "float16", 1, file="../arrays/{class}/{stem}.npy"),
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@formats
def test_files_come_back_by_their_templates_and_the_same_pack_is_made_of_them(tmp_path: Path, format: str) -> None:
    path = written(tmp_path / f"pack{SUFFIXES[format]}", [sample(i, BY_TEMPLATE) for i in ORDER], BY_TEMPLATE)
    assert export(path, tmp_path / "out") == 30
    names = [f"class_{index % 2}/{index:03d}" for index in ORDER]
    assert sorted(name for name, data in content(tmp_path / "out").items() if data is not None) == sorted(
        [
            *(f"images/images/{name}.{suffix}" for name in names for suffix in ("png", "txt", "png.bin")),
            *(f"images/masks/{name[8:]}.png" for name in names),
            *(f"about/{name}.png.json" for name in names),
            *(f"images/arrays/{name}.npy" for name in names),
        ]
    )
    with open_pack(path) as reader:
        for index, name in enumerate(names):
            mask = (tmp_path / "out" / "images" / "masks" / f"{name[8:]}.png").read_bytes()
            assert mask == reader.value(index, "mask")
    templates = [FileField(field.name, field.kind, field.file) for field in BY_TEMPLATE]
    source = with_files(imagefolder_source(tmp_path / "out" / "images" / "images"), templates)
    convert(source, tmp_path / f"again{SUFFIXES[format]}")
    with open_pack(path) as before, open_pack(tmp_path / f"again{SUFFIXES[format]}") as after:
        assert after.manifest.fields == before.manifest.fields
        assert [after.value(i, n) for n in after.fields for i in range(5)] == [
            before.value(i, n) for n in before.fields for i in range(5)
        ]
        assert [after.read(i) for i in range(5)] == [before.read(i) for i in range(5)]
        assert list(after.names) == list(before.names)
    assert export(path, tmp_path / "out") == 30  # again, which changes nothing


def test_other_values_become_lines_and_files_of_their_fields(tmp_path: Path) -> None:
    path = written(tmp_path / "pack.h5")
    assert export(path, tmp_path / "out") == 11 + 4 * 9
    files = content(tmp_path / "out")
    rows = lines(tmp_path / "out" / "images" / "metadata.jsonl")
    assert [row["file_name"] for row in rows] == [f"class_{index % 2}/{index:03d}.png" for index in range(11)]
    assert files["masks/003.png"] == values_of(3)["mask"]
    assert files["images/class_1/003.png.bin"] == values_of(3)["raw"]
    assert files["depth/class_1/003.png.png"] == values_of(3)["depth"]
    stored = np.load(tmp_path / "out" / "embedding" / "class_1" / "003.png.npy")
    assert stored.dtype == np.float16
    assert stored.tolist() == values_of(3)["embedding"].tolist()
    assert rows[3] == {
        "file_name": "class_1/003.png",
        "depth_file_name": "../depth/class_1/003.png.png",
        "age": 3.5,
        "seen": True,
        "kind": "green",
        "tags": ["a", "c"],
        "caption": "an ä number 3",
        "about": {"index": 3, "words": ["é"]},
        "boxes": [[0, 1, 4, 5.5], [1.5, 0, 8, 6]],
        "points": [[[1, 2, 2], [3, 0, 1]]],
    }
    assert rows[4] == {**dict.fromkeys(rows[3]), "file_name": "class_0/004.png"}


def test_lines_are_read_as_a_table(tmp_path: Path) -> None:
    fields = (
        Field("age", "scalar", "float32"),
        Field("big", "scalar", "int64"),
        Field("seen", "scalar", "bool"),
        Field("kind", "class", classes=("green", "red")),
        Field("tags", "labels", classes=("a", "b", "c")),
        Field("caption", "text"),
        Field("about", "json"),
        Field("boxes", "boxes"),
        Field("points", "keypoints"),
    )
    odd = {"big": -(2**63), "kind": 1, "tags": [0, 2, 1], "caption": 'a "quoted"\nline\x00, \u2028 日本'}
    samples = [sample(0, fields, **odd), sample(1, fields, **{**odd, "age": -math.inf, "kind": 0, "caption": ""})]
    samples.append(replace(samples[0], name="class_0/zzz.png", fields=(None,) * len(fields)))
    path = written(tmp_path / "pack.h5", samples, fields)
    export(path, tmp_path / "out")
    columns = [ColumnSpec(f.name, f.name, f.kind, f.dtype) for f in fields]
    source = csv_source(
        tmp_path / "out", tmp_path / "out" / "metadata.jsonl", TableOptions(path_column="file_name", columns=columns)
    )
    convert(replace(source, classes=[f"class_{n}" for n in range(5)]), tmp_path / "again.lmdb")
    with open_pack(path) as before, open_pack(tmp_path / "again.lmdb") as after:
        assert after.manifest.fields == fields
        values = [[[r.value(i, f.name) for f in fields] for i in range(3)] for r in (before, after)]
    assert values[0] == values[1]
    assert verify(tmp_path / "again.lmdb") == []
    assert "-1e999" in (tmp_path / "out" / "metadata.jsonl").read_text("utf-8")


def test_labels_that_do_not_follow_from_names_are_in_the_lines_too(tmp_path: Path) -> None:
    fields = (Field("age", "scalar", "float32"),)
    samples = [replace(sample(index, fields), name=f"{index}.png") for index in (0, 1)]
    export(written(tmp_path / "pack.h5", samples, fields), tmp_path / "out")
    assert [row["label"] for row in lines(tmp_path / "out" / "metadata.jsonl")] == ["class_0", "class_1"]
    assert (tmp_path / "out" / "labels.csv").read_text().startswith("path,label")


@pytest.mark.parametrize(
    "template",
    [
        "/etc/{stem}.png",
        "../" * 9 + "{stem}.png",
        "..",
        ".",
        "{dir}",
        "../images/{path}/../..",
        "same.png",
        "{path}",
        "{path}/below.png",
        "{unknown}",
        "{stem!r}",
        "{",
        "{path}\0",
        "x" * 5000 + "{stem}",
        "{path}" * 300,
        "y" * 300 + "/{path}",
        "../depth/{path}.png",
        "../packer-export.lock/{stem}",
        "metadata.jsonl/{stem}",
    ],
)
def test_a_template_that_cannot_be_followed_leads_nowhere_else(tmp_path: Path, template: str) -> None:
    """The files are written to a directory named after the field, or inside as the template says."""
    fields = (replace(FIELDS[3], file=template), FIELDS[4])
    path = (
        written(tmp_path / "in" / "pack.h5", [sample(0, fields), sample(1, fields)], fields)
        if ((tmp_path / "in").mkdir() is None)
        else None
    )
    assert path is not None
    before = sorted(os.listdir(tmp_path))
    assert export(path, tmp_path / "deep" / "out") == 6
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "deep"])
    assert os.listdir(tmp_path / "deep") == ["out"]
    files = {name: data for name, data in content(tmp_path / "deep" / "out").items() if data is not None}
    masks = [png("P", index) for index in (0, 1)]
    assert sorted(data for data in files.values() if data in masks) == sorted(masks)
    assert len(files) >= 7
    assert export(path, tmp_path / "deep" / "out") == 6


def test_two_samples_whose_template_makes_one_file_keep_both_values(tmp_path: Path) -> None:
    fields = (FIELDS[3],)
    samples = [sample(0, fields), replace(sample(1, fields), name="class_1/000.png")]
    export(written(tmp_path / "pack.h5", samples, fields), tmp_path / "out")
    files = content(tmp_path / "out")
    assert [files[f"mask/class_{number}/000.png.png"] for number in (0, 1)] == [png("P", 0), png("P", 1)]
    rows = lines(tmp_path / "out" / "images" / "metadata.jsonl")
    assert rows[1]["mask_file_name"] == "../mask/class_1/000.png.png"


def test_an_image_in_the_way(tmp_path: Path) -> None:
    """The directory of the images and the file of lines get names that no exported file has."""
    fields = (replace(FIELDS[3], file="../images/{stem}.png"), FIELDS[0])
    samples = [sample(0, fields), replace(sample(1, fields), name="metadata.jsonl")]
    export(written(tmp_path / "pack.h5", samples, fields), tmp_path / "out")
    files = {name for name, data in content(tmp_path / "out").items() if data is not None}
    assert files == {
        "images/000.png",
        "images/metadata.png",
        "images-1/class_0/000.png",
        "images-1/metadata.jsonl",
        "images-1/metadata-1.jsonl",
        "images-1/labels.csv",
    }


def test_a_damaged_value_is_not_exported(tmp_path: Path) -> None:
    files_of_values = {
        "mask": "masks/003.png",
        "embedding": "embedding/class_1/003.png.npy",
        "boxes": "images/metadata.jsonl",
        "depth": "depth/class_1/003.png.png",
    }
    for name, file in files_of_values.items():
        path = written(tmp_path / f"{name}.h5")
        damaged(path, (3, name))
        with pytest.raises(PackError, match=f"field '{name}'"):
            export(path, tmp_path / "out" / name)
        exported = content(tmp_path / "out").get(f"{name}/{file}") or b""
        assert b"class_1/003.png" not in exported if name == "boxes" else not exported


def test_values_that_lie_outside_or_overlap_are_refused_before_a_file_is_written(tmp_path: Path) -> None:
    from packer._table import column_checksums

    for column, value in [("field.mask.size", 2**62), ("field.mask.size", 1000), ("field.points.size", 10**6)]:

        def change(manifest: Any, table: Any, column: str = column, value: int = value) -> Any:
            more = {name: values.copy() for name, values in table.more.items()}
            more[column][1] = value
            table = replace(table, more=more)
            return replace(manifest, columns=column_checksums(table)), table

        path = written(tmp_path / "x.h5", change=change)
        with pytest.raises(PackError, match=r"overlap|outside"):
            export(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert any("overlap" in item.reason or "outside" in item.reason for item in verify(path))


def test_exporting_again_gives_the_same_digest(tmp_path: Path) -> None:
    path = written(tmp_path / "pack.h5", [sample(i, BY_TEMPLATE[:1]) for i in range(4)], BY_TEMPLATE[:1])
    export(path, tmp_path / "out")
    files = [FileField("mask", "mask", BY_TEMPLATE[0].file)]
    convert(with_files(imagefolder_source(tmp_path / "out" / "images"), files), tmp_path / "again.pth")
    export(tmp_path / "again.pth", tmp_path / "other")
    convert(with_files(imagefolder_source(tmp_path / "other" / "images"), files), tmp_path / "third.lmdb")
    assert digest(tmp_path / "third.lmdb") == digest(tmp_path / "again.pth")


def test_the_command_exports_what_the_command_converts_again(tmp_path: Path) -> None:
    """Masks are read by their template, and the other fields from columns of the lines."""
    fields = (BY_TEMPLATE[0], Field("age", "scalar", "float32"), Field("caption", "text"), Field("boxes", "boxes"))
    path = written(tmp_path / "pack.h5", [sample(i, fields) for i in ORDER], fields)
    columns = ["--column", "age:float32", "--column", "caption:text", "--column", "boxes:boxes"]
    images = tmp_path / "out" / "images"
    ended = [
        packer("export", path, tmp_path / "out"),
        packer(
            *("convert", images, tmp_path / "again.h5", "--labels", images / "metadata.jsonl"),
            *("--path-column", "file_name", *columns, "--field", "mask=../masks/{stem}.png"),
        ),
    ]
    assert [(result.returncode, result.stderr) for result in ended if result.returncode] == []
    with open_pack(path) as before, open_pack(tmp_path / "again.h5") as after:
        assert set(after.manifest.fields) == set(fields)
        assert list(after.names) == list(before.names)
        for index in range(len(before)):
            assert after.read(index) == before.read(index)
            assert [after.value(index, f.name) for f in fields] == [before.value(index, f.name) for f in fields]
