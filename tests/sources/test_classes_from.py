"""`--classes-from` gives the ids of a pack to the class fields of a table as well as to labels."""

from __future__ import annotations

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
            r"val.csv, line 3: field 'kind': emu is .*; unknown are eel, emu",
        ),
        (["owl", "owl", "owl"], ["a", "", "a;x"], r"val.csv, line 4: field 'tags': x is no class .*train.lmdb"),
        (["3", "2", "1"], ["", "", ""], r"val.csv, line 2: field 'kind': 3 is no class"),
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
    with pytest.raises(SourceError, match=r"no image can be used: .*emu is no class"):
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
    with pytest.raises(SourceError, match=r"more.csv, line 2: field 'kind': cat is no class"):
        converted(drawn(tmp_path, "more", ["cat", "9", ""], ["", "", ""]), classes_from=train, no_classes=True)


def test_the_ids_of_another_pack_are_not_changed(tmp_path: Path) -> None:
    train = converted(drawn(tmp_path, "train", ["cat", "dog", "owl"], ["", "", ""]), label_type="class")
    other = converted(drawn(tmp_path, "other", ["dog", "cat", "dog"], ["", "", ""]), label_type="class")
    with pytest.raises(SourceError, match=r"field 'kind' has other classes than .*train.lmdb"):
        packer.convert(other, tmp_path / "again.lmdb", classes_from=train)


def test_classes_from_decides_nothing_without_labels_and_class_fields(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="with no_classes=True there are no classes"):
        converted(tmp_path / "val", {"kind": "text"}, classes_from=tmp_path / "train.lmdb", no_classes=True)
