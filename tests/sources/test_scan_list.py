"""The file of `packer scan`, which lists a source: what is read back, and which files are refused."""

from __future__ import annotations

import json
import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, strategies as st

from packer._conversion.convert import convert
from packer._sources.base import ReadBuffer, Source
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer._sources.scan_list import is_listing, let_mend, listed_source, write_listing
from packer._table import Names
from packer.errors import DestinationError, ImageChangedError, SourceError


def names() -> st.SearchStrategy[str]:
    """Return a strategy of any text, and of bytes that are not UTF-8, as `os.fsdecode` decodes them."""
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
    write_listing(source, path)
    assert is_listing(path)
    assert os.listdir(tmp_path) == ["photos.scan"]
    scanned = listed_source(path)
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
    write_listing(source, path)
    assert_same(listed_source(path), source)


def test_what_is_no_list(tmp_path: Path, photo_tree: Path) -> None:
    path = tmp_path / "list"
    write_listing(imagefolder_source(photo_tree), path)
    whole = path.read_bytes()
    for length in (0, 10, 31, 40, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(SourceError, match="packer scan"):
            listed_source(path)
    for at in (0, 20, 25, 60, 100):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SourceError, match="packer scan"):
            listed_source(path)
    assert not is_listing(tmp_path)
    assert not is_listing(tmp_path / "missing")


def test_it_knows_the_files_by_size_and_time(photo_tree: Path, tmp_path: Path) -> None:
    tree, path = tmp_path / "tree", tmp_path / "list"
    shutil.copytree(photo_tree, tree)
    source = imagefolder_source(tree)
    write_listing(source, path)
    expected = [(os.stat(tree / name).st_size, os.stat(tree / name).st_mtime_ns) for name in source.names]
    os.utime(tree / source.names[3], (1, 1))
    scanned = listed_source(path)
    assert scanned.stamps is not None
    assert list(map(tuple, scanned.stamps.tolist())) == expected
    write_listing(scanned, tmp_path / "copy")  # keeps the stamps
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    with pytest.raises(ImageChangedError, match=r"its modification time was .* and is now 1970-01-01 00:00:01"):
        scanned.read(3, ReadBuffer())


def test_what_may_be_mended(photo_tree: Path, tmp_path: Path) -> None:
    """`let_mend` allows the replacement of a file only if it is still as listed; only its entry is changed."""
    tree, path = tmp_path / "tree", tmp_path / "list"
    shutil.copytree(photo_tree, tree)
    write_listing(imagefolder_source(tree), path)
    before, source = path.read_bytes(), listed_source(path)
    (tree / source.names[2]).write_bytes(b"changed")
    let_mend(path, source, 2)
    assert path.read_bytes() == before
    let_mend(path, source, 3)
    after = path.read_bytes()
    assert len(after) == len(before)
    assert 1 <= sum(map(int.__ne__, before, after)) <= 24
    (tree / source.names[3]).write_bytes(b"mended")
    mended = listed_source(path)
    assert bytes(mended.read(3, ReadBuffer())[0]) == b"mended"
    with pytest.raises(ImageChangedError):
        mended.read(2, ReadBuffer())
    assert_same(mended, source)


def test_the_list_of_a_pack_has_no_stamps(photo_tree: Path, tmp_path: Path) -> None:
    convert(imagefolder_source(photo_tree), tmp_path / "pack.lmdb")
    source = pack_source(tmp_path / "pack.lmdb")
    write_listing(source, tmp_path / "list")
    scanned = listed_source(tmp_path / "list")
    assert scanned.stamps is None
    assert_same(scanned, source)
    let_mend(tmp_path / "list", source, 0)  # nothing to do


@pytest.mark.parametrize("version", [b"2", b"3", b"9"])
def test_another_version_s_list_is_known_as_one(photo_tree: Path, tmp_path: Path, version: bytes) -> None:
    path = tmp_path / "list"
    write_listing(imagefolder_source(photo_tree), path)
    path.write_bytes(path.read_bytes().replace(b"packer scan 4", b"packer scan " + version, 1))
    assert is_listing(path)
    with pytest.raises(SourceError, match=r"another version of packer .* `packer scan` again"):
        listed_source(path)


def test_any_changed_byte_is_found_before_an_image_is_packed(photo_tree: Path, tmp_path: Path) -> None:
    """Whichever byte it is: of the stamps, labels, ends, checksums or names, and of the header."""
    path, source = tmp_path / "list", imagefolder_source(photo_tree)
    write_listing(source, path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[16:24], "little")
    columns = -(-(32 + length) // 64) * 64
    for at in (*range(0, 32 + length, 7), *range(columns, len(whole))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(SourceError, match=r"list|packer scan"):
            listed_source(path).require_undamaged()
    at = columns + 24 * len(source)
    path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])  # another label of the first image
    for build in (convert, write_listing):
        with pytest.raises(SourceError, match=r"list: the list is damaged\. Run `packer scan` again\."):
            build(listed_source(path), tmp_path / "pack.lmdb")
    assert os.listdir(tmp_path) == ["list"]


def test_damage_is_found_in_the_images_that_are_wanted(tmp_path: Path) -> None:
    """A task checks only the blocks of its own images."""
    path, count = tmp_path / "list", 3 * 4096 + 10
    source = Source("csv", tmp_path, Names.of(map(str, range(count))), np.arange(count), ["a"])
    write_listing(replace(source, stamps=np.arange(2 * count).reshape(-1, 2)), path)
    whole = path.read_bytes()
    at = whole.index(np.arange(5000, 5010).tobytes())  # among the labels
    path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
    scanned = listed_source(path)
    for start, stop in [(0, 4096), (8192, count), (10000, 10000)]:
        part = scanned.between(start, stop)
        part.require_undamaged()
        assert part.labels.tolist() == list(range(start, stop))
        assert part.describe() == source.between(start, stop).describe()
    for start, stop in [(0, 4097), (8191, 8192), (0, count), (5000, 5001)]:
        with pytest.raises(SourceError, match="the list is damaged"):
            scanned.between(start, stop)


def test_a_list_that_cannot_be_written_leaves_nothing(tmp_path: Path, photo_tree: Path) -> None:
    (tmp_path / "list").mkdir()
    with pytest.raises(DestinationError, match=r"list: cannot be written: Is a directory"):
        write_listing(imagefolder_source(photo_tree), tmp_path / "list")
    assert os.listdir(tmp_path) == ["list"]


@pytest.mark.parametrize(
    "changed",
    [
        *({name: ...} for name in ("kind", "root", "count", "names", "stamps", "classes", "notes", "sha256")),
        *({"count": value} for value in (-1, "x", 1.5, None, True, 1 << 62, 1 << 70)),
        *({"names": value} for value in (-1, "x", 1 << 62, 10**30)),
        *({"stamps": value} for value in (-1, 3, "x", 1 << 62, 6.0)),
        *({"classes": value} for value in ("ab", None, [1, 2], [["a"], {}], ["\ud800"])),
        *({"notes": value} for value in (5, None, {"a": 3}, [3])),
        *({"root": value} for value in (5, None, "\0", "\ud800")),
        *({"kind": value} for value in (5, None, [])),
        *({"sha256": value} for value in (5, None, [])),
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
    ],
    ids=lambda changed: repr(changed)[:30],
)
def test_a_header_that_was_forged_with_its_checksum_is_damage(changed, tmp_path: Path, photo_tree: Path) -> None:
    path = tmp_path / "photos.scan"
    write_listing(imagefolder_source(photo_tree), path)
    data = path.read_bytes()
    magic, length, _ = struct.unpack_from("<16sQQ", data)
    if isinstance(changed, bytes):
        text = changed
    else:
        header = json.loads(data[32 : 32 + length]) | changed
        text = json.dumps({name: value for name, value in header.items() if value is not ...}).encode()
    start = struct.pack("<16sQQ", magic, len(text), google_crc32c.value(text)) + text
    path.write_bytes(start + bytes(-len(start) % 64) + data[32 + length + -(32 + length) % 64 :])
    with pytest.raises(SourceError, match=r"the list is damaged: .*Run `packer scan` again"):
        listed_source(path)
