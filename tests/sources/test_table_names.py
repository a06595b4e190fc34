"""Tables that occur in practice: names in other spellings, no header, several labels, images without a row."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

import packer
from packer._account import Account
from packer._sources.file_matching import FileMatcher
from packer._sources.table_source import csv_source
from packer._sources.tables import TableOptions
from packer.errors import SourceError
from tests.command import packer as run_packer
from tests.samples import solid

COMPOSED, DECOMPOSED = "caf\u00e9/\u00e0.png", unicodedata.normalize("NFD", "caf\u00e9/\u00e0.png")


def tree(root: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        solid(root / name, (number * 20, 9, 9))
    return root


def table(path: Path, rows: list[tuple[str, Any]], head: str = "path,label\n") -> Path:
    path.write_text(head + "".join(f"{name},{label}\n" for name, label in rows), "utf-8")
    return path


SPELLINGS: dict[str, tuple[list[str], list[str]]] = {
    "backslashes": (["cat/0.png", "dog/1.png"], ["cat\\0.png", "dog\\1.png"]),
    "backslashes and a dot": (["cat/0.png", "dog/1.png"], [".\\cat\\0.png", ".\\dog\\1.png"]),
    "a dot": (["cat/0.png", "dog/1.png"], ["./cat/0.png", ".//dog/1.png"]),
    "composed names of decomposed files": ([DECOMPOSED, "x.png"], [COMPOSED, "x.png"]),
    "decomposed names of composed files": ([COMPOSED, "x.png"], [DECOMPOSED, "x.png"]),
    "blanks": (["cat/0.png", "dog/1.png"], [" cat/0.png", "dog/1.png  "]),
    "quoted as in URLs": (["my cat/0.png", "dog/1.png"], ["my%20cat/0.png", "dog/1.png"]),
    "case": (["Cat/IMG_0.PNG", "dog/1.png"], ["cat/img_0.png", "DOG/1.png"]),
    "ids": (["0000.png", "0001.png"], ["0000", "0001"]),
    "ids with dots": (["a.b.png", "c.d.png"], ["a.b", "c.d"]),
    "ids of files in directories": (["cat/0000.png", "dog/0001.png"], ["0000", "0001"]),
    "names of files in directories": (["cat/0000.png", "dog/0001.png"], ["0000.png", "0001.png"]),
    "the directory above": (["cat/0.png", "dog/1.png"], ["train/cat/0.png", "train/dog/1.png"]),
    "another machine": (["cat/0.png", "dog/1.png"], ["/home/x/train/cat/0.png", "/home/x/train/dog/1.png"]),
    "another machine with Windows": (["cat/0.png", "dog/1.png"], ["C:\\x\\cat\\0.png", "C:\\x\\dog\\1.png"]),
    "ids of another machine": (["cat/0.png", "dog/1.png"], ["D:\\x\\cat\\0", "D:\\x\\dog\\1"]),
}


@pytest.mark.parametrize(("files", "names"), SPELLINGS.values(), ids=SPELLINGS)
def test_names_in_other_spellings_are_those_of_the_files(tmp_path: Path, files: list[str], names: list[str]) -> None:
    root = tree(tmp_path / "tree", files)
    labels = table(tmp_path / "t.csv", list(zip(names, ("b", "a"), strict=True)))
    summary = packer.convert(root, tmp_path / "out.lmdb", labels=labels, strict=True)
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert [unicodedata.normalize("NFC", name) for name, _ in dataset.samples] == [
        unicodedata.normalize("NFC", name) for name in files
    ]
    assert [int(target) for target in dataset.targets] == [1, 0]
    plain = [name.removeprefix(".").lstrip("/") if name.startswith("./") else name for name in names]
    assert any("paths of the table match files" in note for note in summary.notes) is (plain != files)


def test_a_file_that_is_there_needs_no_other_spelling(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["a\\b.png", "a/b.png", "X.png", "x.png"])
    labels = table(tmp_path / "t.csv", [("a\\b.png", 0), ("a/b.png", 1), ("X.png", 2), ("x.png", 3)])
    assert list(csv_source(root, labels).names) == ["a\\b.png", "a/b.png", "X.png", "x.png"]


NEVER: dict[str, tuple[list[str], list[str]]] = {
    "a file of a directory for one that is missing": (["0.png", "thumbs/1.png"], ["0.png", "1.png"]),
    "a file above for one that is missing": (["cat/0.png", "1.png"], ["cat/0.png", "dog/1.png"]),
    "a file that another row names": (["0.png", "1.png"], ["0.png", "1.png", "1.PNG"]),
}


@pytest.mark.parametrize(("files", "names"), NEVER.values(), ids=NEVER)
def test_a_missing_file_is_not_replaced_by_another_one(tmp_path: Path, files: list[str], names: list[str]) -> None:
    root = tree(tmp_path / "tree", files)
    labels = table(tmp_path / "t.csv", [(name, 0) for name in names])
    summary = packer.convert(root, tmp_path / "out.lmdb", labels=labels, on_error="skip")
    assert [entry["name"] for entry in summary.manifest.skipped] == [names[-1]]


def test_a_name_that_fits_two_files_is_refused_or_left_out(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["0000.png", "0000.jpg", "0001.png"])
    labels = table(tmp_path / "t.csv", [("0000", "a"), ("0001", "b")])
    with pytest.raises(SourceError, match=r"line 2: 0000 matches 2 images: 0000\.jpg, 0000\.png.*on_error='skip'"):
        csv_source(root, labels)
    summary = packer.convert(root, tmp_path / "out.lmdb", labels=labels, on_error="skip")
    assert [entry["name"] for entry in summary.manifest.skipped] == ["0000"]
    packer.convert(root, tmp_path / "two.lmdb", labels=labels, suffix=".png")
    assert [name for name, _ in packer.open_dataset(tmp_path / "two.lmdb").samples] == ["0000.png", "0001.png"]


@given(
    st.lists(st.text("aAbB\u00e9\u0301\\/ %2.", min_size=1, max_size=6), min_size=1, max_size=6, unique=True), st.data()
)
@settings(max_examples=200)
def test_a_name_means_one_file_or_none(files: list[str], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*files, *map(str.upper, files), "a", "B"]), max_size=6))
    missing = {row: name for row, name in enumerate(names) if name not in files}
    free = set(files) - set(names)
    matched = FileMatcher(free, missing, alone=len(missing) == len(names))
    assert set(matched.found.values()) <= free
    assert not matched.found.keys() & matched.several.keys()
    assert all(len(fitting) > 1 for fitting in matched.several.values())
    assert len(list(matched.notes())) <= len(matched.found)


HEADERLESS = {
    "names": ([("0.png", "a"), ("1.png", "b"), ("2.png", "a")], ""),
    "ids": ([("0", "a"), ("1", "b"), ("2", "a")], ""),
    "a label first": ([("a", "0.png"), ("b", "1.png"), ("a", "2.png")], "--path-column 2 --label-column 1"),
}


@pytest.mark.parametrize(("rows", "columns"), HEADERLESS.values(), ids=HEADERLESS)
def test_the_first_row_of_a_table_without_header_is_not_lost(
    tmp_path: Path, rows: list[tuple[str, str]], columns: str
) -> None:
    root = tree(tmp_path / "tree", ["0.png", "1.png", "2.png"])
    labels = table(tmp_path / "t.csv", rows, "")
    advice = r"looks like a row and not like a header.*no_header=True.*path_column='[12]' label_column='[12]'"
    for options in ({}, {"path_column": rows[0][columns != ""], "label_column": rows[0][columns == ""]}):
        with pytest.raises(SourceError, match=advice):
            packer.convert(root, tmp_path / "out.lmdb", labels=labels, **options)
    result = run_packer("convert", root, tmp_path / "out.lmdb", "--labels", labels, "--no-header", *columns.split())
    assert result.returncode == 0
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert ([int(target) for target in dataset.targets], list(dataset.classes)) == ([0, 1, 0], ["a", "b"])


def test_a_list_with_blanks_and_no_header(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["0.png", "1.png"])
    (tmp_path / "t.txt").write_text("0.png 1\n1.png 0\n")
    with pytest.raises(SourceError, match="no_header=True delimiter=' '"):
        csv_source(root, tmp_path / "t.txt")
    assert csv_source(root, tmp_path / "t.txt", TableOptions(has_header=False, delimiter=" ")).labels.tolist() == [1, 0]


SPREAD = {
    "no header": ("my cat.png 1\nbig red fox.png 0\nowl.png 1\n", {"delimiter": " ", "has_header": False}),
    "equal numbers": (
        "my cat.png 1\nmy dog.png 0\nmy  ox.png 1\n",
        {"delimiter": " ", "has_header": False},
    ),
    "a label first": (
        "1 my cat.png\n0 my dog.png\n1 owl.png\n",
        {"delimiter": " ", "has_header": False, "path_column": "2", "label_column": "1"},
    ),
    "a header": ("path label\nowl.png 1\nmy cat.png 0\nbig red fox.png 1\n", {"delimiter": " "}),
    "no suffix": ("path label\nowl 1\nmy cat 0\nbig red fox 1\n", {"delimiter": " ", "suffix": ".png"}),
    "commas": ("path,label\nowl.png,1\nred, big.png,0\na,b,c.png,1\n", {}),
}
NAMED = ["my cat.png", "my dog.png", "my  ox.png", "owl.png", "big red fox.png", "red, big.png", "a,b,c.png"]


@pytest.mark.parametrize(("text", "options"), SPREAD.values(), ids=SPREAD)
def test_a_path_may_hold_the_delimiter_where_an_image_is_called_so(
    tmp_path: Path, text: str, options: dict[str, Any]
) -> None:
    root = tree(tmp_path / "tree", NAMED)
    (tmp_path / "t.csv").write_text(text)
    source = csv_source(root, tmp_path / "t.csv", TableOptions(**options))
    rows = text.splitlines()[options.get("has_header", True) :]
    assert source.labels.tolist() == [int("1" in row) for row in rows]
    assert [name in row or name[:-4] in row for name, row in zip(source.names, rows, strict=True)] == [True] * 3
    assert any("paths contain the column separator, such as" in note for note in source.notes)


def test_a_row_is_no_longer_where_no_image_is_called_as_its_cells_together(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["owl.png", "my cat.png"])
    (tmp_path / "t.csv").write_text("path label\nowl.png 1 2\nmy cat.png 0\n")
    with pytest.raises(SourceError, match=r"t\.csv, line 2: has 3 cells, but the header names 2 columns"):
        csv_source(root, tmp_path / "t.csv", TableOptions(delimiter=" "))
    (tmp_path / "t.csv").write_text("my cat.png 1\nowl.png 0\n")
    with pytest.raises(SourceError, match=r": my cat\.png names an image.*path_column='1' label_column='2'"):
        csv_source(root, tmp_path / "t.csv")


def test_images_with_labels_that_contradict_each_other_are_left_out_on_wish(tmp_path: Path) -> None:
    """An image is left out with all its rows, because any of them may be wrong; it counts once."""
    root = tree(tmp_path / "tree", ["0.png", "1.png", "2.png"])
    rows = [("0.png", "a"), ("1.png", "b"), ("0.png", "b"), ("0.png", "a"), ("0.png", "c"), ("2.png", "a")]
    labels = table(tmp_path / "t.csv", rows)
    packer.convert(root, tmp_path / "out.lmdb", labels=labels, on_error="skip")
    with packer.open_pack(tmp_path / "out.lmdb") as reader:
        (skipped,) = reader.manifest.skipped
    assert skipped["name"] == "0.png"
    assert "line 4: 0.png is named twice, also in line 2, with another label" in skipped["reason"]
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert [name for name, _ in dataset.samples] == ["1.png", "2.png"]
    assert [dataset.classes[target] for target in dataset.targets] == ["b", "a"]
    table(labels, [("0.png", "a"), ("0.png", "b")])
    with pytest.raises(SourceError, match=r"no rows that can be used: .*several labels"):
        packer.convert(root, tmp_path / "none.lmdb", labels=labels, on_error="skip")


def test_several_labels_of_one_image_are_a_field(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["0.png", "1.png"])
    labels = table(tmp_path / "t.csv", [("0.png", "a"), ("0.png", "b"), ("1.png", "a")])
    with pytest.raises(SourceError, match=r"t\.csv, line 3: 0\.png is named twice.*several labels.*semicolons.*'skip'"):
        packer.convert(root, tmp_path / "out.lmdb", labels=labels)
    table(labels, [("0.png", "a;b"), ("1.png", "a")])
    packer.convert(root, tmp_path / "out.lmdb", labels=labels, columns=["labels=label:labels"], no_classes=True)
    dataset = packer.open_dataset(tmp_path / "out.lmdb", fields=("image", "labels"))
    assert [dataset[index]["labels"].tolist() for index in range(2)] == [[0, 1], [0]]


def test_a_column_that_looks_like_labels_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["0.png", "1.png"])
    for head, advice in (
        ("path,target\n", "such as label_column='target'"),
        ("id,breed\n", "such as path_column='id' label_column='breed'"),
        ("file_name,class_id\n", "such as path_column='file_name' label_column='class_id'"),
    ):
        with pytest.raises(SourceError, match=advice):
            csv_source(root, table(tmp_path / "t.csv", [("0.png", "a"), ("1.png", "b")], head))
    (tmp_path / "t.csv").write_text("path,label,target\n0.png,,a\n1.png,,b\n")
    with pytest.raises(SourceError, match="'target' looks like labels: pass label_column='target'"):
        csv_source(root, tmp_path / "t.csv", TableOptions(unlabeled=True))


def test_files_of_excel_are_read_or_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", ["0.png", "1.png"])
    (tmp_path / "t.tsv").write_bytes("path\tlabel\n0.png\té\n1.png\tb\n".encode("utf-16"))
    assert csv_source(root, tmp_path / "t.tsv").classes == ["b", "é"]
    (tmp_path / "t.jsonl").write_bytes('{"path": "0.png", "label": "é"}\n'.encode("utf-16"))
    assert csv_source(root, tmp_path / "t.jsonl").classes == ["é"]
    for head, said in ((b"PK\3\4 and more", "workbook"), (b"\xd0\xcf\x11\xe0\xa1", "workbook"), (b"\x1f\x8b", "gzip")):
        (tmp_path / "t.csv").write_bytes(head)
        with pytest.raises(SourceError, match=said):
            csv_source(root, tmp_path / "t.csv")


def test_images_that_the_table_does_not_name_are_said(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", [f"{number}.png" for number in range(12)])
    (root / "masks").mkdir()
    Image.new("L", (8, 6)).save(root / "masks" / "0.png")
    labels = table(tmp_path / "k.csv", [(f"{number}.png", number % 2) for number in range(5)])
    summary = packer.convert(root, tmp_path / "out.lmdb", labels=labels, report=tmp_path / "report.jsonl")
    assert summary.notes[0].startswith("left out: 8 images (10.png, 11.png, 5.png, …): the table does not name")
    account = Account.from_json(packer.info(tmp_path / "out.lmdb").account)
    assert [(item.fate, item.count) for item in account] == [("left out", 8)]
    assert '"masks/0.png"' in (tmp_path / "report.jsonl").read_text()
    (root / "fields.csv").write_text("path,label,mask\n" + "".join(f"{n}.png,0,masks/0.png\n" for n in range(12)))
    summary = packer.convert(
        root, tmp_path / "two.lmdb", labels=root / "fields.csv", columns={"mask": "mask"}, strict=True
    )
    assert summary.manifest.count == 12


@pytest.mark.parametrize(
    ("file", "name", "how"),
    [("sub/1.png", "sub\\1.png", "backslashes"), (DECOMPOSED, COMPOSED, "NFC, NFD"), ("1.PNG", "1.png", "case")],
)
def test_annotations_that_call_files_nearly_so_say_it(tmp_path: Path, file: str, name: str, how: str) -> None:
    solid(tmp_path / "im" / file)
    (tmp_path / "a.json").write_text(json.dumps({"images": [{"id": 1, "file_name": name}], "annotations": []}))
    with pytest.raises(SourceError, match=rf"is not in .*: .*\. But 1 paths match files .*{how}"):
        packer.convert(tmp_path / "im", tmp_path / "a.lmdb", coco=[tmp_path / "a.json"])


def test_a_split_of_voc_that_calls_images_nearly_so_says_it(tmp_path: Path) -> None:
    decomposed, composed = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFD", "NFC"))
    solid(tmp_path / "V" / "JPEGImages" / f"{decomposed}.png")
    for directory in ("Annotations", "ImageSets/Main"):
        (tmp_path / "V" / directory).mkdir(parents=True)
    (tmp_path / "V/ImageSets/Main/train.txt").write_text(f"{composed}\n", "utf-8")
    with pytest.raises(SourceError, match=r"do not exist: .*\. But 1 paths match files .*NFC, NFD"):
        packer.convert(tmp_path / "V", tmp_path / "a.lmdb", voc=tmp_path / "V", split="train")


def test_a_list_of_yolo_that_calls_images_nearly_so_says_it(tmp_path: Path) -> None:
    decomposed, composed = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFD", "NFC"))
    solid(tmp_path / "images" / f"{decomposed}.png")
    (tmp_path / "train.txt").write_text(f"./images/{composed}.png\n", "utf-8")
    (tmp_path / "data.yaml").write_text("train: train.txt\nnames: [cat]\n")
    with pytest.raises(SourceError, match=r"do not exist: .*\. But 1 paths match files .*NFC, NFD"):
        packer.convert(tmp_path / "images", tmp_path / "a.lmdb", yolo=tmp_path / "data.yaml", split="train")
