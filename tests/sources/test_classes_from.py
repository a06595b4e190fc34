"""`--classes-from` gives the ids of a pack to the class fields of a table as well as to labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.errors import OptionError, SourceError
from tests.samples import noise

COLUMNS = {"kind": "class", "tags": "labels"}


def drawn(root: Path, name: str, kinds: list[str], tags: list[str]) -> Path:
    """Draw a tree and its table."""
    rows = ["path,label,kind,tags\n"]
    for number, (kind, tag) in enumerate(zip(kinds, tags, strict=True)):
        noise(root / name / f"{number}.png", number, (8, 9))
        rows.append(f"{number}.png,{number / 2},{kind},{tag}\n")
    (root / f"{name}.csv").write_text("".join(rows))
    return root / name


def converted(src: Path, columns: dict[str, str] = COLUMNS, **options: object) -> Path:
    dst = src.with_suffix(".lmdb")
    packer.convert(src, dst, labels=src.with_suffix(".csv"), columns=columns, **options)  # type: ignore[arg-type]
    return dst


@pytest.mark.parametrize("labels", [{"no_classes": True}, {"label_type": "float"}])
def test_fields_of_train_and_val_have_the_same_ids(tmp_path: Path, labels: dict[str, object]) -> None:
    train = converted(drawn(tmp_path, "train", ["cat", "dog", "owl"], ["a", "b;c", ""]), **labels)
    val = drawn(tmp_path, "val", ["owl", "", "dog"], ["c;b", "", "c"])
    with packer.open_pack(converted(val, classes_from=train, **labels)) as reader:
        assert reader.fields["kind"].classes == ("cat", "dog", "owl")
        assert [reader.value(index, "kind") for index in range(3)] == [2, None, 1]
        tags = [reader.value(index, "tags") for index in range(3)]
        assert [tag if tag is None else np.frombuffer(tag, "<i8").tolist() for tag in tags] == [[2, 1], None, [2]]


@pytest.mark.parametrize(
    ("kinds", "tags", "problem"),
    [
        (
            ["owl", "emu", "eel"],
            ["", "", ""],
            r"val.csv, line 3: field 'kind': emu is .*; all unknown classes: eel, emu",
        ),
        (["owl", "owl", "owl"], ["a", "", "a;x"], r"val.csv, line 4: field 'tags': x is not a class.*train.lmdb"),
        (["3", "2", "1"], ["", "", ""], r"val.csv, line 2: field 'kind': 3 is not a class"),
    ],
)
def test_an_unknown_class_is_refused_by_name_and_line(
    tmp_path: Path, kinds: list[str], tags: list[str], problem: str
) -> None:
    train = converted(drawn(tmp_path, "train", ["cat", "dog", "owl"], ["a", "b;c", ""]), no_classes=True)
    with pytest.raises(SourceError, match=problem):
        converted(drawn(tmp_path, "val", kinds, tags), classes_from=train, no_classes=True)


def test_images_of_an_unknown_class_of_a_field_are_left_out(tmp_path: Path) -> None:
    train = converted(drawn(tmp_path, "train", ["cat", "dog", "owl"], ["a", "b;c", ""]), no_classes=True)
    val = drawn(tmp_path, "val", ["owl", "emu", "cat"], ["x;a", "x", "c"])
    with packer.open_pack(converted(val, classes_from=train, no_classes=True, on_error="skip")) as reader:
        assert list(reader.names) == ["2.png"]
        assert [entry["name"] for entry in reader.manifest.skipped] == ["0.png", "1.png"]
        assert (reader.value(0, "kind"), reader.fields["kind"].classes) == (0, ("cat", "dog", "owl"))
    others = drawn(tmp_path, "others", ["emu", "emu", "emu"], ["", "", ""])
    with pytest.raises(SourceError, match=r"no image can be used: .*emu is not a class"):
        converted(others, classes_from=train, no_classes=True, on_error="skip")


def test_names_of_digits_stay_names_where_the_pack_has_them(tmp_path: Path) -> None:
    train = converted(drawn(tmp_path, "train", ["1", "x", "5"], ["", "", ""]), no_classes=True)
    val = converted(drawn(tmp_path, "val", ["5", "1", "5"], ["", "", ""]), classes_from=train, no_classes=True)
    with packer.open_pack(val) as reader:
        assert [reader.value(index, "kind") for index in range(3)] == [1, 0, 1]


def test_ids_without_names_stay_and_names_are_refused(tmp_path: Path) -> None:
    train = converted(drawn(tmp_path, "train", ["7", "2", "5"], ["", "", ""]), no_classes=True)
    val = converted(drawn(tmp_path, "val", ["5", "9", ""], ["", "", ""]), classes_from=train, no_classes=True)
    with packer.open_pack(val) as reader:
        assert [reader.value(index, "kind") for index in range(3)] == [5, 9, None]
    with pytest.raises(SourceError, match=r"more.csv, line 2: field 'kind': cat is not a class"):
        converted(drawn(tmp_path, "more", ["cat", "9", ""], ["", "", ""]), classes_from=train, no_classes=True)


def test_the_ids_of_another_pack_are_not_changed(tmp_path: Path) -> None:
    train = converted(drawn(tmp_path, "train", ["cat", "dog", "owl"], ["", "", ""]), label_type="class")
    other = converted(drawn(tmp_path, "other", ["dog", "cat", "dog"], ["", "", ""]), label_type="class")
    with pytest.raises(SourceError, match=r"field 'kind' has other classes than .*train.lmdb"):
        packer.convert(other, tmp_path / "again.lmdb", classes_from=train)


@pytest.mark.parametrize("name", COLUMNS)
def test_samples_of_a_pack_whose_ids_mean_other_classes_are_left_out(tmp_path: Path, name: str) -> None:
    options: dict[str, object] = {"columns": {name: COLUMNS[name]}, "label_type": "class"}
    train = converted(drawn(tmp_path, "train", ["cat", "dog", "owl"], ["cat", "dog", "owl"]), **options)
    other = converted(drawn(tmp_path, "other", ["cat", "emu", ""], ["cat", "emu", ""]), **options)
    again = tmp_path / "again.lmdb"
    with pytest.raises(SourceError, match=rf"field '{name}' has other classes than .*on_error='skip'"):
        packer.convert(other, again, classes_from=train)
    report = tmp_path / "report.jsonl"
    packer.convert(other, again, classes_from=train, on_error="skip", report=report)
    with packer.open_pack(again) as reader:
        assert list(reader.names) == ["0.png", "2.png"]
        assert [entry["name"] for entry in reader.manifest.skipped] == ["1.png"]
        assert reader.fields[name].classes == ("cat", "dog", "owl")
        assert [reader.fields[name].decode(reader.value(index, name)) for index in range(2)] in ([0, None], [[0], None])
    assert f"field '{name}': emu has the id 1, which means another class or no class" in report.read_text()
    emus = converted(drawn(tmp_path, "emus", ["emu"], ["emu"]), **options)
    with pytest.raises(SourceError, match=r"no image can be used: .*emu has the id 0"):
        packer.convert(emus, tmp_path / "none.lmdb", classes_from=train, on_error="skip")


def test_lists_of_classes_in_parquet_get_the_ids_of_the_pack(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    arrow = pytest.importorskip("pyarrow")
    train = converted(drawn(tmp_path, "train", ["x", "x", "x"], ["a", "b;c", ""]), no_classes=True)
    noise(tmp_path / "one.png", 0, (8, 9))
    features = {"image": {"_type": "Image"}, "tags": {"feature": {"_type": "ClassLabel", "names": ["c", "d", "a"]}}}
    features["tags"]["_type"] = "Sequence"
    image = {"bytes": (tmp_path / "one.png").read_bytes(), "path": None}
    table = arrow.table({"image": [image] * 3, "tags": [[0, 2], [1], None]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "tags.parquet")
    pack = tmp_path / "tags.lmdb"
    with pytest.raises(SourceError, match=r"field 'tags': d is not a class.*on_error='skip'"):
        packer.convert(tmp_path / "tags.parquet", pack, classes_from=train)
    packer.convert(tmp_path / "tags.parquet", pack, classes_from=train, on_error="skip")
    with packer.open_pack(pack) as reader:
        values = [reader.value(index, "tags") for index in range(2)]
        assert [value if value is None else np.frombuffer(value, "<i8").tolist() for value in values] == [[2, 0], None]


def test_classes_from_decides_nothing_without_labels_and_class_fields(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="with no_classes=True there are no classes"):
        converted(tmp_path / "val", {"kind": "text"}, classes_from=tmp_path / "train.lmdb", no_classes=True)
