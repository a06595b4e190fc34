"""Fields in the file of `packer scan`, and in the comparison of a source with its earlier state."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from packer._conversion.request import SourceRequest
from packer._conversion.resume import compare_source
from packer._sources.base import ReadBuffer, Source
from packer._sources.scan_list import ListedSource, listed_source, write_listing
from packer.errors import ImageChangedError, SourceError
from tests.command import packer_many


def draw(root: Path, count: int = 5) -> SourceRequest:
    """Write images with masks, and a table with the other fields."""
    rows = ["path,label,caption,age,split,tags"]
    for number in range(count):
        for folder in ("images/c", "masks"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / f"{number}.png").write_bytes(f"{folder} {number}".encode())
        rows.append(f"c/{number}.png,{number % 2},text {number},{number or ''},{'ab'[number % 2]},x;y")
    (root / "table.csv").write_text("\n".join(rows))
    columns = ("caption:text", "age:float32", "split:class", "tags:labels")
    return SourceRequest(
        src=root / "images", labels=root / "table.csv", columns=columns, fields={"mask": "../masks/{stem}.png"}
    )


def opened(request: SourceRequest) -> Source:
    return request.open(request.src, None)


def listed(source: Source, path: Path) -> ListedSource:
    write_listing(source, path)
    return listed_source(path)


def values(source: Source) -> list[list[object]]:
    return [
        [bytes(value) if isinstance(value, memoryview) else value for value in source.values(index, ReadBuffer())]
        for index in range(len(source))
    ]


def test_a_list_gives_the_fields_back(tmp_path: Path) -> None:
    source = opened(draw(tmp_path))
    found = listed(source, tmp_path / "x.scan")
    found.require_undamaged()
    assert (found.fields, values(found)) == (source.fields, values(source))
    assert found.describe() == source.describe()
    part = found.between(1, 4)
    assert values(part) == values(source)[1:4]
    assert part.describe() == source.between(1, 4).describe()
    assert values(found.sampled(2)) == values(source.sampled(2))
    again = listed(found.limited(3), tmp_path / "y.scan")  # its columns are slices of longer ones
    assert values(again) == values(source)[:3]


def test_a_list_without_fields_stays_as_it_was(tmp_path: Path) -> None:
    draw(tmp_path)
    write_listing(SourceRequest(src=tmp_path / "images").open(tmp_path, None), tmp_path / "x.scan")
    data = (tmp_path / "x.scan").read_bytes()
    assert data.startswith(b"packer scan 4\n")
    assert b'"fields"' not in data


def test_a_list_with_any_byte_of_its_fields_changed_is_damaged(tmp_path: Path) -> None:
    source = opened(draw(tmp_path, 3))
    path = tmp_path / "x.scan"
    listed(source, path)
    good = path.read_bytes()
    begin = good.index(b"c/0.pngc/1.png") + len(b"c/0.png") * 3
    noticed = []
    for place in range(begin, len(good), 3):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with contextlib.suppress(SourceError):
            found = listed_source(path)
            found.require_undamaged()
            assert values(found) == values(source)  # the byte was padding between columns
            continue
        noticed.append(place)
    assert len(noticed) > (len(good) - begin) / 4
    path.write_bytes(good[:-1])
    with pytest.raises(SourceError, match="packer scan"):
        listed_source(path)


def test_what_changed_is_named_when_a_conversion_continues(tmp_path: Path) -> None:
    request = draw(tmp_path)
    source = opened(request).stamped()
    write_listing(source, tmp_path / "source.list")
    before = {"source": source.describe(), "packs": []}

    def differences(now: SourceRequest) -> list[str]:
        return compare_source(tmp_path / "source.list", before, opened(now))[1]

    assert differences(request) == []
    settings = {"src": request.src, "labels": request.labels}
    fewer = SourceRequest(**settings, columns=request.columns)
    assert differences(fewer) == ["1 field was removed: mask"]
    other = SourceRequest(**settings, columns=["caption:text", "age:float64", "split:class", "tags:labels"])
    assert differences(other) == ["1 field was removed: mask", "1 field has another definition: age"]
    (tmp_path / "masks" / "2.png").write_bytes(b"another mask")
    (changed,) = differences(request)
    assert changed.startswith("1 image was changed: c/2.png (together with its files of 'mask' it had ")
    (tmp_path / "masks" / "2.png").write_bytes(b"masks 2")
    os.utime(tmp_path / "masks" / "2.png", ns=(0, 0))
    with pytest.raises(ImageChangedError, match="files of 'mask'"):
        source.read(2, ReadBuffer())
    text = (tmp_path / "table.csv").read_text()
    (tmp_path / "table.csv").write_text(text.replace("text 3", "text 4"))
    assert differences(request) == ["the field 'caption' has other values"]


def test_scan_lists_fields(tmp_path: Path) -> None:
    request = draw(tmp_path)
    said = ["--labels", tmp_path / "table.csv", "--column", "caption:text", "--column", "age:float32"]
    lines = [
        ["scan", request.src, tmp_path / "x.scan", *said, "--field", "mask=../masks/{stem}.png"],
        ["scan", request.src, tmp_path / "y.scan", "--field", "mask=../{stem}.png"],
        ["convert", tmp_path / "x.scan", tmp_path / "x.lmdb", "--field", "mask=../masks/{stem}.png"],
    ]
    scanned, nowhere, twice = packer_many(lines)
    assert scanned.returncode == 0, scanned.stderr
    found = listed_source(tmp_path / "x.scan")
    assert [field.name for field in found.fields] == ["caption", "age", "mask"]
    assert values(found)[4] == [b"text 4", 4.0, b"masks 4"]
    assert nowhere.returncode == 1
    assert "--field 'mask=../{stem}.png' finds no file" in nowhere.stderr
    assert not (tmp_path / "y.scan").exists()
    assert "--field cannot be used with" in twice.stderr
