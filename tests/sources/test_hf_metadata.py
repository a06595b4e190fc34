"""Hugging Face's metadata files in a tree of images."""

from __future__ import annotations

import csv
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from packer._conversion.request import SourceRequest
from packer._sources import tables
from packer._sources.base import ReadBuffer, Source
from packer.errors import SourceError


def touch(root: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(root / name)


def opened(root: Path, **options: Any) -> Source:
    request = SourceRequest(src=root, **options)
    return request.open(root / "x.lmdb", request.classes())


def values(source: Source) -> dict[str, list[Any]]:
    stored = [source.values(index, ReadBuffer()) for index in range(len(source))]
    return {
        field.name: [
            value.tolist() if isinstance(value := field.decode(row[at]), np.ndarray) else value for row in stored
        ]
        for at, field in enumerate(source.fields)
    }


def write(root: Path, suffix: str, rows: list[dict[str, Any]]) -> None:
    path = root / f"metadata{suffix}"
    if suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            for row in rows:
                writer.writerow({k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()})


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_columns_are_fields_of_the_kind_that_they_look_like(tmp_path: Path, suffix: str) -> None:
    touch(tmp_path, "2.png", "1.png", "in/3.png")
    rows = [
        {"file_name": "1.png", "caption": "one", "age": 1, "score": 0.5, "code": "007", "none": None},
        {"file_name": "in/3.png", "caption": "three", "age": None, "score": 3, "code": "08", "none": None},
        {"file_name": "2.png", "caption": None, "age": -2, "score": 2.25, "code": "1", "none": None},
    ]
    if suffix == ".parquet":
        rows[1]["score"] = 3.0
    write(tmp_path, suffix, rows)
    source = opened(tmp_path)
    assert list(source.names) == ["1.png", "2.png", "in/3.png"]  # the tree's order
    assert (source.classes, source.labels.tolist()) == ([], [-1, -1, -1])
    assert [(field.name, field.kind, field.dtype) for field in source.fields] == [
        ("caption", "text", ""),
        ("age", "scalar", "int64"),
        ("score", "scalar", "float64"),
        ("code", "text", ""),
    ]
    assert values(source) == {
        "caption": ["one", None, "three"],
        "age": [1, -2, None],
        "score": [0.5, 2.25, 3.0],
        "code": ["007", "1", "08"],
    }
    assert f"metadata{suffix}: fields caption, age, score, code" in source.notes
    plain = opened(tmp_path, no_metadata=True)
    assert (list(plain.names), plain.classes, plain.fields) == (["in/3.png"], ["in"], ())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_objects_are_boxes_and_labels(tmp_path: Path, suffix: str) -> None:
    touch(tmp_path, "a.png", "b.png", "c.png")
    rows = [
        {"file_name": "a.png", "objects": {"bbox": [[1.0, 2.0, 3.0, 4.5]], "categories": [4], "area": [13.5]}},
        {"file_name": "b.png", "objects": {"bbox": [], "categories": [], "area": []}},
        {"file_name": "c.png", "objects": None},
    ]
    write(tmp_path, suffix, rows)
    got = values(opened(tmp_path))
    assert got["boxes"] == [[[1.0, 2.0, 4.0, 6.5]], [], None]
    assert got["labels"] == [[4], [], None]
    more = [json.loads(one) if isinstance(one, str) else one for one in got["objects"]]  # a CSV file's are texts
    assert more == [{"area": [13.5]}, {"area": []}, None]


def test_a_box_of_three_numbers_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    write(tmp_path, ".jsonl", [{"file_name": "a.png", "objects": {"bbox": [[1, 2, 3]], "categories": [1]}}])
    with pytest.raises(SourceError, match=r"metadata.jsonl, line 1: column 'objects.bbox'"):
        opened(tmp_path)


def test_further_files_are_fields_and_no_images(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png", "masks/a.png", "depth/b.png")
    rows = [
        {"file_name": "a.png", "mask_file_name": "masks/a.png", "depth_file_name": None},
        {"file_name": "b.png", "mask_file_name": None, "depth_file_name": "depth/b.png"},
    ]
    write(tmp_path, ".jsonl", rows)
    source = opened(tmp_path)
    assert list(source.names) == ["a.png", "b.png"]
    assert [(field.name, field.kind) for field in source.fields] == [("mask", "mask"), ("depth", "image")]
    assert bytes(source.values(0, ReadBuffer())[0]) == (tmp_path / "masks/a.png").read_bytes()  # type: ignore[arg-type]
    assert source.values(1, ReadBuffer())[0] is None
    (tmp_path / "depth/b.png").unlink()
    with pytest.raises(SourceError, match=r"no depth file: b\.png"):
        opened(tmp_path)


def test_a_tree_with_classes_keeps_its_images_order_and_classes(tmp_path: Path) -> None:
    touch(tmp_path, "dog/1.png", "cat/2.png", "cat/1.png")
    names = ["dog/1.png", "cat/1.png", "cat/2.png"]
    write(tmp_path, ".csv", [{"file_name": name, "caption": f"of {name}"} for name in names])
    plain, source = opened(tmp_path, no_metadata=True), opened(tmp_path)
    assert (plain.fields, list(source.names)) == ((), list(plain.names))
    assert (source.classes, source.labels.tolist()) == (["cat", "dog"], plain.labels.tolist())
    assert values(source)["caption"] == [f"of {name}" for name in source.names]
    flat = opened(tmp_path, no_classes=True)
    assert (flat.classes, flat.labels.tolist(), values(flat)) == ([], [-1] * 3, values(source))


def test_a_row_of_an_image_that_does_not_exist_changes_no_class(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.png", "dog/1.png")
    write(tmp_path, ".csv", [{"file_name": name, "caption": "x"} for name in ("cat/1.png", "dog/1.png", "2.png")])
    source = opened(tmp_path, on_missing="skip")
    assert (source.classes, source.labels.tolist()) == (["cat", "dog"], [0, 1])
    touch(tmp_path, "2.png")
    assert opened(tmp_path).classes == []


@pytest.mark.parametrize("name", ["2", "2.PNG"])
def test_an_image_directly_in_the_tree_may_be_called_otherwise(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "cat/1.png", "dog/1.png", "2.png")
    write(tmp_path, ".csv", [{"file_name": one, "caption": "x"} for one in ("cat/1.png", "dog/1.png", name)])
    source = opened(tmp_path)
    assert (source.classes, list(source.names)) == ([], ["2.png", "cat/1.png", "dog/1.png"])


def test_a_bad_row_of_an_image_directly_in_the_tree_changes_no_class(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.png", "dog/1.png", "2.png")
    objects = [{"bbox": [[0, 0, 1, 1]], "categories": [1] * count} for count in (1, 1, 2)]
    names = ("cat/1.png", "dog/1.png", "2.png")
    write(tmp_path, ".jsonl", [{"file_name": one, "objects": own} for one, own in zip(names, objects, strict=True)])
    source = opened(tmp_path)
    assert (source.classes, list(source.names)) == ([], ["cat/1.png", "dog/1.png"])
    assert [one["name"] for one in source.doubts] == ["2.png"]


@pytest.mark.parametrize("text", ["1", "2"])
def test_a_row_with_the_name_of_another_row_may_be_that_of_an_image_without_a_row(tmp_path: Path, text: str) -> None:
    touch(tmp_path, "0.png", "1.png", "2.png")
    rows = [("0.png", "0"), ("1.png", "1"), ("1.png", text)]  # the last one should name 2.png
    write(tmp_path, ".csv", [{"file_name": name, "caption": one} for name, one in rows])
    source = opened(tmp_path)
    first = "metadata.csv, line 4" if text == "1" else "1.png"
    assert [one["name"] for one in source.doubts] == [first, "2.png"]
    assert list(source.names) == (["0.png", "1.png"] if text == "1" else ["0.png"])


def test_a_column_of_which_most_cells_are_lists_is_a_field(tmp_path: Path) -> None:
    touch(tmp_path, "0.png", "1.png", "2.png")
    cells: list[Any] = [[1, 2], ["a"], "1.png"]
    rows = [{"file_name": f"{at}.png", "labels": cell, "other_file_name": cell} for at, cell in enumerate(cells)]
    write(tmp_path, ".jsonl", rows)
    assert values(opened(tmp_path)) == {"labels": cells, "other_file_name": cells}


def test_a_column_of_labels_is_the_label(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png", "c.png")
    for name in ("label", "labels"):
        write(tmp_path, ".csv", [{"file_name": f"{n}.png", name: label} for n, label in zip("cab", "yxy", strict=True)])
        source = opened(tmp_path)
        assert (source.classes, source.labels.tolist(), source.fields) == (["x", "y"], [0, 1, 1], ())


def test_images_without_a_row_and_rows_without_an_image(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png")
    write(tmp_path, ".jsonl", [{"file_name": "a.png", "caption": "A"}])
    with pytest.raises(SourceError, match=r"1 of 2 images has no row in metadata.jsonl: b.png"):
        opened(tmp_path)
    assert values(opened(tmp_path, on_missing="null")) == {"caption": ["A", None]}
    assert list(opened(tmp_path, on_missing="skip").names) == ["a.png"]
    write(tmp_path, ".jsonl", [{"file_name": f"{n}.png", "caption": n} for n in "abz"])
    with pytest.raises(SourceError, match=r"line 3: z.png is not an image in"):
        opened(tmp_path)
    remarks = opened(tmp_path, on_missing="null").remarks()
    assert any(remark.startswith("left out: 1 row (") and "names no image" in remark for remark in remarks)


def test_metadata_that_names_no_files_is_left_alone(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.png", "y/b.png")
    (tmp_path / "metadata.csv").write_text("title,year\nA set of images,2020\n")
    source = opened(tmp_path)
    assert (source.fields, source.classes) == ((), ["x", "y"])
    (tmp_path / "metadata.csv").write_text("file_name,caption\nx/a.png,a\ny/b.png,b\n")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "x/a.png"}')
    with pytest.raises(SourceError, match=r"metadata.csv, metadata.jsonl exist.*no_metadata=True"):
        opened(tmp_path)
    assert opened(tmp_path, no_metadata=True).fields == ()


def test_metadata_that_cannot_be_read_may_be_left_alone(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.png")
    (tmp_path / "metadata.csv").touch()
    with pytest.raises(SourceError, match=r"metadata.csv: the file is empty.*no_metadata=True"):
        opened(tmp_path)
    assert len(opened(tmp_path, no_metadata=True)) == 1


def test_columns_whose_names_no_field_can_have_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    write(tmp_path, ".jsonl", [{"file_name": "a.png", "a caption": "A", "image": "x", "ok": True}])
    source = opened(tmp_path)
    assert values(source) == {"ok": [True]}
    assert source.account is not None
    (lost,) = (item for item in source.account.losses() if item.what == "column")
    assert lost.line().startswith(
        "left out: 2 columns (a caption, image): its name is not a valid field name; --labels "
    )


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("between", [0, 20])
def test_whole_numbers_that_no_float_holds_are_never_rounded(
    tmp_path: Path, suffix: str, between: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_CHUNK", 16)  # rows that are converted at a time
    large = 9007199254740993
    touch(tmp_path, "a.png", "b.png")
    rows = [{"file_name": "a.png", "number": large, "whole": large, "half": 1}]
    rows += [{"file_name": f"{number}.png", "number": 1, "whole": 1, "half": 1} for number in range(between)]
    rows += [{"file_name": "b.png", "number": 0.5, "whole": 2, "half": 0.5}]
    write(tmp_path, suffix, rows)
    found = values(opened(tmp_path, on_missing="skip"))
    assert found == {
        "number": [str(large), "0.5"] if suffix == ".csv" else [large, 0.5],
        "whole": [large, 2],
        "half": [1.0, 0.5],
    }


def test_numbers_of_many_digits_stay_text(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    write(tmp_path, ".csv", [{"file_name": "a.png", "id": 12345678901234567891}])
    assert values(opened(tmp_path)) == {"id": ["12345678901234567891"]}


def test_cells_may_be_long_and_the_limit_of_the_process_stays(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    before = csv.field_size_limit()
    write(tmp_path, ".csv", [{"file_name": "a.png", "text": "x" * 300_000}])
    assert values(opened(tmp_path)) == {"text": ["x" * 300_000]}
    assert csv.field_size_limit() == before == 131_072


def test_dates_decimals_and_nan_of_parquet(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png")
    columns = {
        "file_name": ["a.png", "b.png"],
        "day": [datetime.date(2020, 1, 2), None],
        "at": [datetime.datetime(2020, 1, 2, 3, 4, 5), None],
        "price": [Decimal("1.10"), None],
        "exact": [Decimal("1.1000000000000000000000001"), None],
        "score": [float("nan"), 0.5],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "metadata.parquet")
    source = opened(tmp_path)
    assert values(source) == {
        "day": ["2020-01-02", None],
        "at": ["2020-01-02T03:04:05", None],
        "price": [1.1, None],
        "exact": ["1.1000000000000000000000001", None],
        "score": [None, 0.5],
    }
    assert any("NaN is read as a missing value" in note and "score (1)" in note for note in source.notes)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_two_columns_of_one_name_are_refused_in_a_line(tmp_path: Path, suffix: str) -> None:
    touch(tmp_path, "a.png")
    if suffix == ".csv":
        (tmp_path / "metadata.csv").write_text("file_name,x,x\na.png,1,2\n")
    else:
        arrays = [pyarrow.array(["a.png"]), pyarrow.array([1]), pyarrow.array([2])]
        parquet.write_table(pyarrow.table(arrays, names=["file_name", "x", "x"]), tmp_path / "metadata.parquet")
    with pytest.raises(SourceError, match="2 columns have the name 'x'"):
        opened(tmp_path)


@pytest.mark.parametrize("path", ["../outside.png", "in/../../outside.png", "{root}/outside.png"])
def test_files_outside_of_the_tree_are_refused(tmp_path: Path, path: str) -> None:
    touch(tmp_path, "outside.png", "tree/1.png")
    write(tmp_path / "tree", ".jsonl", [{"file_name": "1.png", "mask_file_name": path.format(root=tmp_path)}])
    with pytest.raises(SourceError, match=r"line 1.*mask_file_name.*is outside SRC"):
        opened(tmp_path / "tree")


def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "1.png")
    write(tmp_path, ".jsonl", [{"file_name": "1.png", "mask_file_name": "\ud800.png"}])
    with pytest.raises(SourceError, match="line 1"):
        opened(tmp_path)


def test_more_columns_than_fields_are_refused_before_the_work(tmp_path: Path) -> None:
    touch(tmp_path, "1.png")
    write(tmp_path, ".jsonl", [{"file_name": "1.png", **{f"c{number}": number for number in range(201)}}])
    with pytest.raises(SourceError, match="201 columns would be fields, but a pack can have at most 200"):
        opened(tmp_path)


def test_numbers_of_boxes_beyond_all_floats_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "1.png")
    boxes = [[0.5, 0.5, 10**400, 1]]
    write(tmp_path, ".jsonl", [{"file_name": "1.png", "objects": {"bbox": boxes, "categories": [1]}}])
    with pytest.raises(SourceError, match="line 1"):
        opened(tmp_path)
