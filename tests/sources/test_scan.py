"""The list of a source in a file: what it gives back, what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.convert import convert
from packer.errors import ImageChangedError, SourceError
from packer.sample import Names
from packer.sources import (
    Source,
    imagefolder_source,
    is_scan,
    let_mend,
    pack_source,
    scanned_source,
    write_scan,
)
from packer.sources.base import ReadBuffer


def names() -> st.SearchStrategy[str]:
    """Any text, and bytes that are no text, as `os.fsdecode` gives them."""
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
    return text | st.binary(min_size=1, max_size=40).map(lambda name: name.decode("utf-8", "surrogateescape"))


def assert_same(one: Source, other: Source) -> None:
    assert list(one.names) == list(other.names)
    assert one.labels.tolist() == other.labels.tolist()
    assert (one.kind, one.root, one.classes, one.notes) == (other.kind, other.root, other.classes, other.notes)
    assert one.describe() == other.describe()


def test_it_is_the_source_that_was_listed(photo_tree: Path, tmp_path: Path) -> None:
    source = imagefolder_source(photo_tree)
    path = tmp_path / "photos.scan"
    write_scan(source, path)
    assert is_scan(path)
    assert os.listdir(tmp_path) == ["photos.scan"]
    scanned = scanned_source(path)
    assert_same(scanned, source)
    for start, stop in [(0, 15), (3, 9), (14, 15), (5, 5)]:
        assert_same(scanned.between(start, stop), source.between(start, stop))
        assert list(scanned.between(start, stop).names) == list(source.names)[start:stop]
    assert scanned.read(4, ReadBuffer())[0] == source.read(4, ReadBuffer())[0]
    assert scanned.stamp(4) == source.stamp(4)


@given(
    listed=st.lists(names(), max_size=20), classes=st.lists(names(), max_size=5), notes=st.lists(st.text(), max_size=2)
)
def test_any_names(
    listed: list[str], classes: list[str], notes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("scan") / "list"
    notes = [note.encode("utf-8", "replace").decode() for note in notes]
    labels = np.arange(len(listed), dtype=np.int64)
    source = Source("csv", Path("/root/\udc80"), Names.of(listed), labels, classes, notes)
    write_scan(source, path)
    assert_same(scanned_source(path), source)


def test_what_is_no_list(tmp_path: Path, photo_tree: Path) -> None:
    path = tmp_path / "list"
    write_scan(imagefolder_source(photo_tree), path)
    whole = path.read_bytes()
    for length in (0, 10, 31, 40, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(SourceError, match="packer scan"):
            scanned_source(path)
    for at in (0, 20, 25, 60, 100):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SourceError, match="packer scan"):
            scanned_source(path)
    assert not is_scan(tmp_path)
    assert not is_scan(tmp_path / "missing")


def test_it_knows_the_files_by_size_and_time(photo_tree: Path, tmp_path: Path) -> None:
    tree, path = tmp_path / "tree", tmp_path / "list"
    shutil.copytree(photo_tree, tree)
    source = imagefolder_source(tree)
    write_scan(source, path)
    expected = [(os.stat(tree / name).st_size, os.stat(tree / name).st_mtime_ns) for name in source.names]
    os.utime(tree / source.names[3], (1, 1))
    scanned = scanned_source(path)
    assert scanned.stamps is not None
    assert list(map(tuple, scanned.stamps.tolist())) == expected
    write_scan(scanned, tmp_path / "copy")  # which takes no stamps anew
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    with pytest.raises(ImageChangedError, match=r"its time was .* and is 1970-01-01 00:00:01"):
        scanned.read(3, ReadBuffer())


def test_what_may_be_mended(photo_tree: Path, tmp_path: Path) -> None:
    """A file that is as it was listed; and then nothing else is written."""
    tree, path = tmp_path / "tree", tmp_path / "list"
    shutil.copytree(photo_tree, tree)
    write_scan(imagefolder_source(tree), path)
    before, source = path.read_bytes(), scanned_source(path)
    (tree / source.names[2]).write_bytes(b"changed")
    let_mend(path, source, 2)
    assert path.read_bytes() == before
    let_mend(path, source, 3)
    after = path.read_bytes()
    assert len(after) == len(before)
    assert 1 <= sum(map(int.__ne__, before, after)) <= 16
    (tree / source.names[3]).write_bytes(b"mended")
    mended = scanned_source(path)
    assert bytes(mended.read(3, ReadBuffer())[0]) == b"mended"
    with pytest.raises(ImageChangedError):
        mended.read(2, ReadBuffer())
    assert_same(mended, source)


def test_the_list_of_a_pack_has_no_stamps(photo_tree: Path, tmp_path: Path) -> None:
    convert(imagefolder_source(photo_tree), tmp_path / "pack.lmdb")
    source = pack_source(tmp_path / "pack.lmdb")
    write_scan(source, tmp_path / "list")
    scanned = scanned_source(tmp_path / "list")
    assert scanned.stamps is None
    assert_same(scanned, source)
    let_mend(tmp_path / "list", source, 0)  # nothing to do


def test_another_version_s_list_is_known_as_one(photo_tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "list"
    write_scan(imagefolder_source(photo_tree), path)
    path.write_bytes(path.read_bytes().replace(b"packer scan 2", b"packer scan 1", 1))
    assert is_scan(path)
    with pytest.raises(SourceError, match=r"another version of packer .* `packer scan` again"):
        scanned_source(path)


def test_a_list_that_cannot_be_written_leaves_nothing(tmp_path: Path, photo_tree: Path) -> None:
    (tmp_path / "list").mkdir()
    with pytest.raises(Exception, match="list"):
        write_scan(imagefolder_source(photo_tree), tmp_path / "list")
    assert os.listdir(tmp_path) == ["list"]
