"""A fault in a field ends the command with one line: the file, the row and the remedy. No incomplete pack is left."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer import open_pack
from tests.command import packer_many
from tests.samples import solid

Prepare = Callable[[Path], Any]

MASK = "--field mask=../beside/{stem}.png"
CSV = "--labels {root}/l.csv --column "
JSONL = "--labels {root}/l.jsonl --column "
PARQUET = "--labels {root}/l.parquet --column "
FILE = r"Correct the file, or pass --on-error skip, and run the same command to continue\. "
CELL = r"Correct the cell, or pass another kind with --column\.( To leave out .*)?$"


def nothing(root: Path) -> None:
    """Change nothing: there are three images of 8 x 6 pixels, a mask for each, and no table."""


def other(make: Prepare, name: str = "1.png") -> Prepare:
    """Replace a mask by what `make` writes."""

    def prepare(root: Path) -> None:
        (root / "beside" / name).unlink(missing_ok=True)
        make(root / "beside" / name)

    return prepare


def every(suffix: str, *contents: bytes) -> Prepare:
    """Write one file for each image, next to the masks."""

    def prepare(root: Path) -> None:
        for number, content in enumerate(contents):
            (root / "beside" / f"{number}{suffix}").write_bytes(content)

    return prepare


def csv(column: str, *cells: str, more: str = "", encoding: str = "utf-8") -> Prepare:
    lines = [f"path,label,{column}", *(f"a/{number}.png,a,{cell}" for number, cell in enumerate(cells)), more]
    return lambda root: (root / "l.csv").write_bytes("\n".join(lines).encode(encoding))


def jsonl(column: str, *cells: str) -> Prepare:
    lines = [f'{{"path": "a/{number}.png", "label": "a", "{column}": {cell}}}' for number, cell in enumerate(cells)]
    return lambda root: (root / "l.jsonl").write_text("\n".join(lines))


def parquet(cells: Iterable[Any]) -> Prepare:
    def prepare(root: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {"path": [f"a/{number}.png" for number in range(3)], "label": ["a"] * 3, "n": list(cells)}
        parquet.write_table(pyarrow.table(columns), root / "l.parquet")

    return prepare


def arrays(odd: Any) -> Prepare:
    def prepare(root: Path) -> None:
        for number in range(3):
            array = odd if number == 1 else np.zeros((2, 2), np.float32)
            np.save(root / "beside" / f"{number}.npy", array, allow_pickle=True)

    return prepare


def metadata(*rows: dict[str, Any]) -> Prepare:
    return lambda root: (root / "t" / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))


def objects(number: int, box: list[float]) -> dict[str, Any]:
    return {"file_name": f"a/{number}.png", "objects": {"bbox": [box], "categories": [1]}}


def link_to(name: str) -> Prepare:
    return lambda path: path.symlink_to(name)


CASES: dict[str, tuple[str, Prepare, str]] = {
    "no placeholder": (
        "--field mask=../m/{stam}.png",
        nothing,
        r"\{stam\}, which is not a placeholder\. Placeholders are \{path\}",
    ),
    "no directory": (
        "--field mask=../m/{stem}.png",
        nothing,
        "finds no file .* For the first image, a/0.png.*correct it",
    ),
    "reserved": ("--field size=../beside/{stem}.txt", nothing, "cannot have the name 'size'"),
    "reserved column": (CSV + "width:int32", csv("width", "1", "2", "3"), "'NAME=COLUMN:KIND' gives another name"),
    "no file": (MASK, other(nothing), r"a/1.png \(.*beside/1.png\)\. Add the missing ones, or pass --on-missing null"),
    "a directory": (
        MASK,
        other(Path.mkdir),
        f"a/1.png: field 'mask': .*/1.png cannot be read: not a regular file. {FILE}",
    ),
    "a FIFO": (MASK, other(os.mkfifo), f"a/1.png: field 'mask': .*/1.png cannot be read: not a regular file. {FILE}"),
    "a loop": (MASK, other(link_to("1.png")), f"field 'mask': .*/1.png cannot be read: Too many levels.*{FILE}"),
    "size of a mask": (
        MASK,
        other(lambda path: Image.new("L", (7, 6)).save(path)),
        f"a/1.png: field 'mask': the mask has 7 x 6 pixels, but its image has 8 x 6. {FILE}",
    ),
    "lossy mask": (
        MASK,
        other(lambda path: Image.new("L", (8, 6)).save(path, "JPEG")),
        f"a/1.png: field 'mask': the mask is a JPEG, but masks must be stored without loss: save it as PNG. {FILE}",
    ),
    "text file": (
        "--field caption=../beside/{stem}.txt",
        every(".txt", b"x", b"caf\xe9", b"y"),
        f"a/1.png: field 'caption': ../beside/1.txt: the bytes are not UTF-8: byte 3. {FILE}",
    ),
    "JSON file": (
        "--field info=../beside/{stem}.json",
        every(".json", b"{}", b"{", b"{}"),
        f"a/1.png: field 'info': ../beside/1.json: it is not JSON: .* at character 2. {FILE}",
    ),
    "NaN in a JSON file": (
        "--field info=../beside/{stem}.json",
        every(".json", b"{}", b"[NaN]", b"{}"),
        f"a/1.png: field 'info': ../beside/1.json: NaN is not a JSON number; .* {FILE}",
    ),
    "deep JSON file": (
        "--field info=../beside/{stem}.json",
        every(".json", b"{}", b"[" * 10**5 + b"]" * 10**5, b"{}"),
        f"a/1.png: field 'info': ../beside/1.json: it is nested too deeply. {FILE}",
    ),
    "objects": (
        "--field d=../beside/{stem}.npy",
        arrays(np.array([{}, 1], object)),
        f"a/1.png: field 'd': ../beside/1.npy: it is not a .npy file of numbers: .* {FILE}",
    ),
    "column": (
        CSV + "age:int8",
        csv("old", "1", "2", "3"),
        "l.csv: no column 'age'. It has .*'old'.* NAME=COLUMN:KIND",
    ),
    "box of three": (
        JSONL + "b:boxes",
        jsonl("b", "[]", "[[0, 0, 9]]", "[]"),
        f"line 2: column 'b': numbers of .*{CELL}",
    ),
    "box outside": (
        JSONL + "b:boxes",
        jsonl("b", "[]", "[[0, 0, 90, 6]]", "[]"),
        "a/1.png: field 'b': box 0 .* outside",
    ),
    "Latin-1": (
        CSV + "caption:text",
        csv("caption", "x", "café", "z", encoding="latin-1"),
        "l.csv, line 3: column 'caption': the text is not UTF-8. Save the file as UTF-8.",
    ),
    "NaN": (CSV + "age:float32", csv("age", "1", "nan", "2"), f"line 3: column 'age': NaN .*null.*{CELL}"),
    "NaN in jsonl": (JSONL + "age:float32", jsonl("age", "1", "NaN", "2"), "l.jsonl, line 2: NaN is not a JSON number"),
    "NaN as a label": (
        "--labels {root}/l.csv --label-type float",
        lambda root: (root / "l.csv").write_text("path,label\na/0.png,1\na/1.png,nan\n"),
        "l.csv, line 3: the label 'nan' is not a finite number, .* Correct it, or leave the row out.",
    ),
    "no JSON": (
        CSV + "m:json",
        csv("m", "1", "{", "2"),
        f"line 3: column 'm': it is not JSON: .* at character 2. {CELL}",
    ),
    "id": (
        JSONL + "kind:class",
        jsonl("kind", "1", str(2**70), "2"),
        f"line 2: column 'kind': {2**70} is not an id: .*{CELL}",
    ),
    "ids": (
        JSONL + "kind:labels",
        jsonl("kind", "[1]", f"[0, {2**63}]", "[]"),
        f"line 2: .*{2**63} is not an id: .*{CELL}",
    ),
    "digits": (JSONL + "n:int64", jsonl("n", "1", "9" * 5000, "2"), "line 2: a number has too many digits"),
    "nested": (PARQUET + "n:float32", parquet({"x": n} for n in range(3)), f"l.parquet, row 1: column 'n': .*{CELL}"),
    "twice": (
        CSV + "n:int8",
        csv("n", "1", "2", "3", more="a/1.png,a,4"),
        "l.csv, line 5: a/1.png is named twice, also in line 3. Remove one of the rows.",
    ),
    "no image": (
        CSV + "n:int8",
        csv("n", "1", "2", "3", "4"),
        "a/3.png: cannot be read: .*, named in line 5 of the labels",
    ),
    "empty": (
        CSV + "n:int8",
        lambda root: (root / "l.csv").touch(),
        "l.csv: the file is empty. Its first line names the",
    ),
    "empty jsonl": (
        JSONL + "n:int8",
        lambda root: (root / "l.jsonl").touch(),
        "l.jsonl: the file is empty. Each line must be",
    ),
    "no rows": (CSV + "n:int8", csv("n"), "l.csv: no rows in it. Each row must name an image."),
    "table in a loop": (
        CSV + "n:int8",
        lambda root: (root / "l.csv").symlink_to("l.csv"),
        "l.csv: .*: Too many levels of",
    ),
    "no row": (
        "",
        metadata({"file_name": "a/0.png", "n": 1}),
        "a/1.png, a/2.png. Add the missing ones, or pass --on-missing null",
    ),
    "objects of three": (
        "",
        metadata(objects(0, [0, 0, 1])),
        "metadata.jsonl, line 1: column 'objects.bbox': .*not boxes",
    ),
    "one name": (f"{MASK} {MASK}", nothing, "two fields have the same name: mask. Give each field a different name."),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int, str]]:
    """Return for each case its directory, and the command's status and message."""
    roots, lines = [], []
    for arguments, prepare, _ in CASES.values():
        root = tmp_path_factory.mktemp("refused")
        for number in range(3):
            solid(root / "t" / "a" / f"{number}.png")
            (root / "beside").mkdir(exist_ok=True)
            Image.new("L", (8, 6), number).save(root / "beside" / f"{number}.png")
        prepare(root)
        roots.append(root)
        words = arguments.replace("{root}", str(root)).split()
        lines.append(["convert", root / "t", root / "x.lmdb", "--quiet", *words])
    ended = packer_many(lines)
    return {name: (root, one.returncode, one.stderr) for name, root, one in zip(CASES, roots, ended, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_one_line_names_what_is_wrong_where_and_what_to_do(
    refused: dict[str, tuple[Path, int, str]], name: str
) -> None:
    root, status, message = refused[name]
    line, *usage = message.rstrip("\n").split("\n")
    assert line.startswith("packer: "), message
    assert usage == (["Try `packer convert --help`."] if status == 2 else []), message
    assert status in (1, 2), message
    assert re.search(CASES[name][2], line), line
    left = {path.name for path in root.iterdir() if path.name.startswith("x.")}
    assert left == ({"x.lmdb.partial"} if "run the same command to continue" in line else set())


def test_after_the_file_is_corrected_the_same_command_continues(refused: dict[str, tuple[Path, int, str]]) -> None:
    root, _, _ = refused["size of a mask"]
    Image.new("L", (8, 6), 1).save(root / "beside" / "1.png")
    line = ["convert", root / "t", root / "x.lmdb", "--quiet", *MASK.split()]
    (again,) = packer_many([line])
    assert again.returncode == 0, again.stderr
    with open_pack(root / "x.lmdb") as reader:
        assert [reader.value(index, "mask") for index in range(3)] == [
            (root / "beside" / f"{number}.png").read_bytes() for number in range(3)
        ]
