"""C reads many files at once, with the same results as Python, which reads them one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from packer._conversion.pipeline import FileRead, ManyFiles
from packer._images.geometry import MAX_PIXELS
from packer._images.native.records import CAN_SURVEY
from packer._images.probe import inspect
from packer._sources.base import ReadBuffer, Source
from packer._table import Names, checksum
from tests.images.samples import encoded, jpeg, oriented, photo

pytestmark = pytest.mark.skipif(
    not CAN_SURVEY or os.name == "nt", reason="needs packer's C, which reads no paths there"
)

PIXELS = photo(48, 64)
SEEN = {
    "a/plain.jpg": jpeg(),
    "a/turned.jpg": oriented(PIXELS, 6),
    "b/c/a png.jpg": encoded(PIXELS, "PNG"),
    "b/trailing.jpg": jpeg() + b"more",
    "b/\udcff\u00e4.webp": encoded(PIXELS, "WEBP"),
}
UNSEEN = {"b/strange.gif": encoded(PIXELS, "GIF"), "b/text.jpg": b"no image"}


def source_of(root: Path, files: dict[str, bytes], labels: Sequence[float] | None = None) -> Source:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    numbers = np.arange(len(files)) if labels is None else np.array(labels)
    return Source("files", root, Names.of(files), numbers, ["x"] * len(files)).stamped()


def read_all(
    source: Source, buffer: ReadBuffer, exif: str = "ignore", *, checked: bool = True
) -> list[FileRead | None]:
    names = list(source.names.each_encoded())
    return ManyFiles(source, exif, MAX_PIXELS, checked=checked).read(range(len(source)), names, buffer)


@pytest.mark.parametrize("exif", ["ignore", "apply"])
@pytest.mark.parametrize("labels", [None, [0.5, -2.0, 1e300, 0.0, 3.0, 4.0, 5.0]], ids=["classes", "floats"])
def test_files_and_what_is_seen_of_them_are_pythons(tmp_path: Path, exif: str, labels: Sequence[float] | None) -> None:
    source, one, many = source_of(tmp_path, SEEN | UNSEEN, labels), ReadBuffer(), ReadBuffer(64)
    for index, found in enumerate(read_all(source, many, exif)):
        data, stamp = source.read(index, one)
        assert found is not None
        assert (bytes(found.data), found.stamp) == (bytes(data), stamp)
        if source.names[index] in UNSEEN:
            assert (found.info, found.crc32c) == (None, None)
            continue
        assert found.info == inspect(data)
        height, width = found.info.size_shown(exif)
        label, name = source.labels[index].item(), source.names.encoded(index)
        assert found.crc32c == checksum(data, label, height, width, name)


def test_checksums_are_taken_where_they_are_asked_for(tmp_path: Path) -> None:
    found = read_all(source_of(tmp_path, SEEN), ReadBuffer(), checked=False)
    assert [file.crc32c for file in found if file is not None] == [None] * len(SEEN)


def test_what_is_not_as_it_was_listed_is_left_to_python(tmp_path: Path) -> None:
    files = {name: jpeg() for name in ("same", "longer", "shorter", "touched", "gone", "empty", "fifo", "folder")}
    source = source_of(tmp_path, files)
    (tmp_path / "longer").write_bytes(jpeg() + b"x")
    (tmp_path / "shorter").write_bytes(jpeg()[:-1])
    os.utime(tmp_path / "touched", ns=(0, 12_345_678_901))
    for name in ("gone", "empty", "fifo", "folder"):
        (tmp_path / name).unlink()
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    found = read_all(source, ReadBuffer())
    assert [name for name, file in zip(files, found, strict=True) if file is not None] == ["same"]
    assert read_all(source.stamped().between(4, 5), ReadBuffer()) == [None]


def test_unusual_paths_are_left_to_python(tmp_path: Path) -> None:
    (tmp_path / "other.jpg").write_bytes(jpeg())
    below = source_of(tmp_path / "below", {"own.jpg": jpeg()})
    names = Names.of(["own.jpg", "../other.jpg", str(tmp_path / "other.jpg"), "./own.jpg"])
    source = replace(below, names=names, labels=np.zeros(4, np.int64), stamps=None).stamped()
    assert [file is not None for file in read_all(source, ReadBuffer())] == [True, False, False, False]


def test_without_a_list_or_with_a_limit_of_ones_own_python_reads(tmp_path: Path) -> None:
    source = source_of(tmp_path, SEEN)
    assert read_all(replace(source, stamps=None), ReadBuffer()) == [None] * len(SEEN)
    limited = ManyFiles(source, "ignore", 10**6, checked=True)
    assert limited.read(range(2), [b"a/plain.jpg", b"a/turned.jpg"], ReadBuffer()) == [None] * 2
