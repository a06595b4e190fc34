"""Lists in CSV files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from packer._sources.base import ReadBuffer, Source
from packer._sources.table_source import csv_source
from packer._sources.tables import TableOptions
from packer.errors import ImageError, SourceError


def listed(directory: Path, text: str | bytes, **options: object) -> Source:
    table = directory / "labels.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    return csv_source(directory, table, TableOptions(**options))  # type: ignore[arg-type]


def test_names_as_labels(tmp_path: Path) -> None:
    source = listed(tmp_path, "path,label\nz/1.jpg,dog\na.jpg,cat\n./b.jpg,dog\n")
    assert source.classes == ["cat", "dog"]
    assert list(source.names) == ["z/1.jpg", "a.jpg", "b.jpg"]  # the file's order
    assert source.labels.tolist() == [1, 0, 1]
    assert source.kind == "csv"
    assert source.path(0) == str(tmp_path / "z/1.jpg")


def test_columns(tmp_path: Path) -> None:
    text = "id,file,label,species\n1,a.jpg,9,cat\n2,b.jpg,9,dog\n"
    source = listed(tmp_path, text, path_column="file", label_column="species")
    assert (list(source.names), source.classes) == (["a.jpg", "b.jpg"], ["cat", "dog"])
    with pytest.raises(SourceError, match=r"no column 'path'.*'id', 'file', 'label', 'species'.*path_column="):
        listed(tmp_path, text)
    with pytest.raises(SourceError, match="no column 'kind'"):
        listed(tmp_path, text, path_column="file", label_column="kind")


def test_absolute_paths_below_the_source(tmp_path: Path) -> None:
    root, link = tmp_path / "root", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root, target_is_directory=True)
    (tmp_path / "list.csv").write_text(f"path,label\n{root}/z/1.jpg,x\n{link}/b.jpg,x\n{root}/./a.jpg,y\nc.jpg,y\n")
    source = csv_source(link, tmp_path / "list.csv")
    assert list(source.names) == ["z/1.jpg", "b.jpg", "a.jpg", "c.jpg"]
    for outside in (f"{tmp_path}/rooted/a.jpg", f"{root}/../a.jpg", f"{root}", f"{root}/z/../../a.jpg"):
        (tmp_path / "list.csv").write_text(f"path,label\n{outside},x\n")
        with pytest.raises(SourceError, match=rf"line 2: {outside} is not a path inside SRC"):
            csv_source(root, tmp_path / "list.csv")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    text = "path,label\na.jpg,dog\nb.jpg,cat\n".replace(",", delimiter)
    assert listed(tmp_path, text, delimiter=delimiter).labels.tolist() == [1, 0]
    with pytest.raises(SourceError) as caught:
        listed(tmp_path, text)
    assert f"; if they are separated by {delimiter!r}, pass delimiter={delimiter!r}." in str(caught.value)


def test_spellings_of_csv(tmp_path: Path) -> None:
    assert list(listed(tmp_path, b"\xef\xbb\xbfpath,label\r\na.jpg,x\r\n\r\nb.jpg,x\r\n").names) == ["a.jpg", "b.jpg"]
    quoted = listed(tmp_path, 'label,path\n"x, y","a ""b"".jpg"\nz,"new\nline.jpg"')
    assert list(quoted.names) == ['a "b".jpg', "new\nline.jpg"]
    assert quoted.classes == ["x, y", "z"]
    assert listed(tmp_path, b"path,label\ncaf\xe9.jpg,x\n").names.encoded(0) == b"caf\xe9.jpg"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file is empty\. Its first line names the columns"),
        ("path,label\n", "no rows"),
        ("path,label\na.jpg,\n", r"line 2: the label is missing\. Pass unlabeled=True"),
        ("path,label\na.jpg,x\nb.jpg\n", r"line 3: the label is missing\. Pass unlabeled=True"),
        ("path,label\n,x\n", "line 2: the path is missing"),
        ("path,label\na,b.jpg,x\n", "line 2: has 3 cells, but the header names 2 columns"),
        ("path,label,label\na.jpg,x,y\n", "2 columns have the name 'label'"),
        ("path,label\na.jpg,x\nb.jpg,y\na.jpg,x\n", "line 4: a.jpg is named twice"),
        ("path,label\na.jpg,x\n./a.jpg,x\n", "a.jpg is named twice"),
        ("path,label\n/etc/passwd,x\n", "line 2: /etc/passwd is not a path inside SRC"),
        ("path,label\na.jpg,x\n../b.jpg,x\n", "line 3: ../b.jpg is not a path inside SRC"),
        ("path,label\na/../../b.jpg,x\n", "is not a path inside SRC"),
        ("path,label\n//b.jpg,x\n", "is not a path inside SRC"),
        ("path,label\na\0.jpg,x\n", r"NUL"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        listed(tmp_path, text)
    assert "labels.csv" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"labels\.csv: cannot be read"):
        csv_source(tmp_path, tmp_path / "labels.csv")
    with pytest.raises(SourceError, match="cannot be read"):
        csv_source(tmp_path, tmp_path)
    with pytest.raises(SourceError, match="no such directory"):
        csv_source(tmp_path / "missing", tmp_path / "labels.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "labels.csv")
    code = "import sys, pathlib, packer._sources.table_source as s; s.csv_source(*map(pathlib.Path, sys.argv[1:]))"
    line = [sys.executable, "-c", code, tmp_path, tmp_path / "labels.csv"]
    result = subprocess.run(line, check=False, capture_output=True, text=True, timeout=20)
    assert "labels.csv: cannot be read: is a FIFO, not a regular file" in result.stderr


def test_an_image_that_is_missing_is_named_with_its_line(tmp_path: Path) -> None:
    source = listed(tmp_path, "path,label\n\na.jpg,x\nb.jpg,x\nc.jpg,y\nd.jpg,y\n")
    for part, line in [(source, 3), (source.between(1, 3), 4), (source.sampled(2), 4), (source.limited(1), 3)]:
        with pytest.raises(ImageError, match=rf"No such file or directory, named in line {line} of the labels"):
            part.read(0, ReadBuffer())


def test_given_classes(tmp_path: Path) -> None:
    source = listed(tmp_path, "path,label\na.jpg,dog\nb.jpg,1\n", classes=["dog", "0", "1"])
    assert source.labels.tolist() == [0, 2]
    assert source.classes == ["dog", "0", "1"]
    with pytest.raises(SourceError, match=r"1 of its labels is not in the given class list.*: 'fox'"):
        listed(tmp_path, "path,label\na.jpg,fox\n", classes=["dog"])


def test_of_many_columns_a_message_names_the_first(tmp_path: Path) -> None:
    columns = [f"column {number}" for number in range(5000)]
    with pytest.raises(SourceError, match=r"'column 0', 'column 1'.*'column 19', …; name the columns with") as caught:
        listed(tmp_path, ",".join(columns) + "\n")
    assert "'column 20'" not in str(caught.value)
    with pytest.raises(SourceError, match="'column 19'; name the columns with"):
        listed(tmp_path, ",".join(columns[:20]) + "\n")
