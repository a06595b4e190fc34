"""The list of a source in a file: what it gives back, what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import SourceError
from packer.sample import Names
from packer.sources import Source, imagefolder_source, is_scan, scanned_source, write_scan
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


def test_a_list_that_cannot_be_written_leaves_nothing(tmp_path: Path, photo_tree: Path) -> None:
    (tmp_path / "list").mkdir()
    with pytest.raises(Exception, match="list"):
        write_scan(imagefolder_source(photo_tree), tmp_path / "list")
    assert os.listdir(tmp_path) == ["list"]
