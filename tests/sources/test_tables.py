"""Columns of tables as fields: CSV, JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from packer._sources.base import NumberColumn, ReadBuffer, Source
from packer._sources.table_source import csv_source
from packer._sources.tables import ColumnSpec, TableOptions
from packer.errors import OptionError, SourceError
from tests.command import python


def listed(path: Path, *columns: str, **options: Any) -> Source:
    on_missing, specs = options.pop("on_missing", "error"), [ColumnSpec.of(column) for column in columns]
    return csv_source(path.parent, path, TableOptions(columns=specs, **options), on_missing=on_missing)


def written(directory: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    """Write rows as a table; in CSV and TSV, lists, dicts and booleans are JSON."""
    path = directory / f"table{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    elif suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
            writer.writerow(rows[0])
            for row in rows:
                writer.writerow(
                    json.dumps(cell) if isinstance(cell, list | dict | bool) else cell for cell in row.values()
                )
    return path


def values(source: Source, name: str) -> list[Any]:
    at = [field.name for field in source.fields].index(name)
    stored = [source.values(index, ReadBuffer())[at] for index in range(len(source))]
    decoded = [source.fields[at].decode(value) for value in stored]
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in decoded]


ROWS: list[dict[str, Any]] = [
    {
        "path": f"c/{name}.jpg",
        "label": label,
        "caption": caption,
        "age": age,
        "count": count,
        "good": good,
        "split": split,
        "tags": tags,
        "box": box,
        "more": more,
        "vector": vector,
    }
    for name, label, caption, age, count, good, split, tags, box, more, vector in [
        ("a", "cat", "ein Käfer, rot", 3.5, 7, True, "val", ["x", "y"], [[0, 1, 2, 3.5]], {"k": [1, None]}, [1.5, 2]),
        ("b", "dog", None, None, None, None, None, None, None, None, None),
        ("c", "cat", "naïve", -1.25, -8, False, "train", ["y"], [[1, 1, 1, 1], [0, 0, 9, 9]], {"k": [2]}, [0.25]),
    ]
]
KINDS = ("caption:text", "age:float32", "count:int16", "good:bool", "split:class", "tags:labels", "box:boxes")
KINDS += ("more:json", "vector:array:float64")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_fields(tmp_path: Path, suffix: str) -> None:
    source = listed(written(tmp_path, suffix, ROWS), *KINDS)
    assert (source.classes, source.labels.tolist()) == (["cat", "dog"], [0, 1, 0])
    assert list(source.names) == ["c/a.jpg", "c/b.jpg", "c/c.jpg"]
    for name in ("caption", "age", "count", "good", "box", "more", "vector"):
        assert values(source, name) == [row[name] for row in ROWS], name
    assert values(source, "split") == [1, None, 0]
    assert values(source, "tags") == [[0, 1], None, [1]]
    by_name = {field.name: field for field in source.fields}
    assert by_name["split"].classes == ("train", "val")
    assert by_name["tags"].classes == ("x", "y")
    assert (by_name["vector"].dtype, by_name["vector"].rank) == ("float64", 1)
    assert not source.notes


def test_numbers_stay_in_columns(tmp_path: Path) -> None:
    rows = [{"path": f"{i}.jpg", "label": 0, "a": i, "b": i / 3, "c": i % 2} for i in range(2_000)]
    for suffix in (".csv", ".jsonl", ".parquet"):
        source = listed(written(tmp_path, suffix, rows), "a:int32", "b:float32", "c:int8")
        assert all(isinstance(column, NumberColumn) for column in source.columns)
        a, b, c = (column.values for column in source.columns if isinstance(column, NumberColumn))
        assert (a.dtype, b.dtype, c.dtype) == (np.int32, np.float32, np.int8)
        assert np.array_equal(a, np.arange(2_000))
        assert np.array_equal(b, (np.arange(2_000) / 3).astype(np.float32))
        assert source.between(1_000, 1_700).values(400, ReadBuffer())[0] == 1_400


@pytest.mark.parametrize(
    ("said", "spec"),
    [
        ("age:float32", ColumnSpec("age", "age", "scalar", "float32")),
        ("age:scalar:int8", ColumnSpec("age", "age", "scalar", "int8")),
        ("new=an old: one:text", ColumnSpec("new", "an old: one", "text")),
        ("v:array", ColumnSpec("v", "v", "array", "float32")),
        ("v:array:uint8:3", ColumnSpec("v", "v", "array", "uint8", 3)),
        ("v:array:uint8", ColumnSpec("v", "v", "array", "uint8")),
    ],
)
def test_what_a_column_becomes(said: str, spec: ColumnSpec) -> None:
    assert ColumnSpec.of(said) == spec


@pytest.mark.parametrize(
    "said", ["caption", "caption:", "a:float7", "a:scalar", "two words:text", "label:text", ":text"]
)
def test_a_wrong_column_is_refused(said: str) -> None:
    with pytest.raises(OptionError, match="columns="):
        ColumnSpec.of(said)


@pytest.mark.parametrize(
    ("kind", "cell", "problem"),
    [
        ("float32", "nan", "NaN"),
        ("float32", "1e39", "too large for float32"),
        ("float32", "1_0", "'1_0' is not a number"),
        ("float64", "much", "'much' is not a number. A missing value is an empty cell"),
        ("int8", "128", "does not fit into int8"),
        ("int64", "9223372036854775808", "does not fit into int64"),
        ("int16", "1.5", "'1.5' is not a whole number"),
        ("bool", "yes", "neither true nor false"),
        ("class", "-2", "'-2' is not a label"),
        ("boxes", "[[5,5,1,1]]", "ends before it begins"),
        ("boxes", "[[1,2,3]]", "not boxes"),
        ("json", "{", "Expecting"),
        ("json", '{"a": NaN}', "NaN is not a JSON number"),
        ("array:uint8", "[256]", "do not fit into uint8"),
        ("text", b"\xff", "the text is not UTF-8. Save the file as UTF-8"),
        ("bytes", "x", "a CSV file cannot contain bytes"),
    ],
)
def test_a_cell_that_is_no_value_is_named_by_file_line_and_column(
    tmp_path: Path, kind: str, cell: str | bytes, problem: str
) -> None:
    content = cell if isinstance(cell, bytes) else ('"' + cell.replace('"', '""') + '"').encode()
    (tmp_path / "t.csv").write_bytes(b"path,label,f\na.jpg,1,\nb.jpg,1," + content + b"\n")
    with pytest.raises(SourceError) as caught:
        listed(tmp_path / "t.csv", f"f:{kind}")
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 't.csv'}, line 3: column 'f': ")
    assert problem in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("suffix", "text", "problem"),
    [
        (
            ".jsonl",
            '{"path": "a.jpg", "label": 1}\n{"path"\n',
            "line 2: it is not JSON: Expecting .* at character [0-9]+\\. Each line must be one JSON object",
        ),
        (".jsonl", "[1]\n", "line 1: is no JSON object"),
        (".jsonl", '{"path": "a.jpg", "label": 1, "age": NaN}\n', "line 1: .*write null for a missing value"),
        (".jsonl", '{"path": "a.jpg", "label": 1, "age": "3"}\n', "line 1: column 'age': '3' is not a number"),
        (
            ".jsonl",
            '{"path": "a.jpg", "label": 1, "age": true}\n{"path": 1.5, "label": 1}\n',
            "line 2: 1.5 is not a path",
        ),
        (".jsonl", '{"path": "a.jpg", "label": [1], "age": 2}\n', "line 1: the label '.1.' is neither.*columns="),
        (".jsonl", '{"path": "a.jpg", "label": 1}\n', "no column 'age'. It has 'path', 'label'; name the column"),
        (
            ".csv",
            "path,label\na.jpg,1\n",
            "no column 'age'. It has 'path', 'label'; name the column with columns= NAME=COLUMN:KIND",
        ),
        (".csv", "path,label,age,age\na.jpg,1,2,3\n", "2 columns have the name 'age'"),
        (".parquet", "PAR1", "cannot be read"),
    ],
)
def test_a_wrong_table_is_refused_in_a_line(tmp_path: Path, suffix: str, text: str, problem: str) -> None:
    (tmp_path / f"t{suffix}").write_text(text)
    with pytest.raises(SourceError, match=problem) as caught:
        listed(tmp_path / f"t{suffix}", "age:float32")
    assert "\n" not in str(caught.value)


def test_lines_that_are_no_utf_8_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"path": "a.jpg", "label": 1}\n{"path": "\xff.jpg"}\n')
    with pytest.raises(SourceError, match="line 2: byte 10 is not UTF-8"):
        listed(tmp_path / "t.jsonl")


def test_labels_are_split_by_semicolons_bars_or_as_json(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('path,label,f\na,1,x; y\nb,1,y|z\nc,1,"[""x;y""]"\nd,1,[]\ne,1,\nf,1,z\n')
    source = listed(tmp_path / "t.csv", "f:labels")
    names = source.fields[0].classes
    assert names == ("x", "x;y", "y", "z")
    named = [None if ids is None else [names[one] for one in ids] for ids in values(source, "f")]
    assert named == [["x", "y"], ["y", "z"], ["x;y"], [], None, ["z"]]


def test_whole_numbers_are_ids_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,one,several\na,1,7,9;0\nb,1,0,3\n")
    source = listed(tmp_path / "t.csv", "one:class", "several:labels")
    assert [field.classes for field in source.fields] == [(), ()]
    assert (values(source, "one"), values(source, "several")) == ([7, 0], [[9, 0], [3]])


def test_without_a_column_of_labels_the_directories_are_the_classes(tmp_path: Path) -> None:
    for name in ("dog", "cat", "mouse"):
        (tmp_path / name).mkdir()
    (tmp_path / "t.csv").write_text("path,caption\ndog/1.jpg,one\ncat/2.jpg,two\n")
    source = listed(tmp_path / "t.csv", "caption:text")
    assert (source.classes, source.labels.tolist()) == (["cat", "dog", "mouse"], [1, 0])
    with pytest.raises(SourceError, match="no column 'label'"):
        listed(tmp_path / "t.csv")
    with pytest.raises(SourceError, match="no column 'kind'"):
        listed(tmp_path / "t.csv", "caption:text", label_column="kind")
    (tmp_path / "t.csv").write_text("path,caption\ndog/1.jpg,one\n2.jpg,two\n")
    with pytest.raises(SourceError, match=r"line 3: 2\.jpg is not in a class.*no_classes=True"):
        listed(tmp_path / "t.csv", "caption:text")
    flat = listed(tmp_path / "t.csv", "caption:text", has_labels=False)
    assert (flat.classes, flat.labels.tolist(), values(flat, "caption")) == ([], [-1, -1], ["one", "two"])


def test_cells_may_be_paths_of_files(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,m\na.jpg,1,masks/1.png\nb.jpg,1,\nc.jpg,1,masks/3.png\n")
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "1.png").write_bytes(b"one")
    with pytest.raises(SourceError, match=r"1 of 3 images has no mask file: c.jpg"):
        listed(tmp_path / "t.csv", "mask=m:mask")
    assert values(listed(tmp_path / "t.csv", "mask=m:mask", on_missing="null"), "mask") == [b"one", None, None]
    kept = listed(tmp_path / "t.csv", "mask=m:mask", on_missing="skip")
    assert (list(kept.names), values(kept, "mask")) == (["a.jpg", "b.jpg"], [b"one", None])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path; from packer._sources.table_source import csv_source\n"
        f"csv_source(Path({str(tmp_path)!r}), Path('t.parquet'))"
    )
    (tmp_path / "t.parquet").touch()
    output = python(code, check=False).stderr
    assert output.splitlines()[-1].startswith("packer.errors.MissingDependencyError: t.parquet: Parquet needs pyarrow")
    assert "pip install 'packer-images[parquet]'" in output


def test_the_digest_covers_every_value(tmp_path: Path) -> None:
    digests = set()
    for cells in ("1,", "1,2", ",1", "2,1"):
        first, second = cells.split(",")
        (tmp_path / "t.csv").write_text(f"path,label,f\na.jpg,1,{first}\nb.jpg,1,{second}\n")
        for kind in ("text", "int8", "float32", "class"):
            digests.add(listed(tmp_path / "t.csv", f"f:{kind}").describe()["sha256"])
    assert len(digests) == 16
