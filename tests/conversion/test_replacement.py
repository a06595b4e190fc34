"""The option `overwrite` replaces no file that the conversion reads, and only files and directories."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import socket
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

import packer
from packer._conversion import append as appending, workspace
from packer._formats.reader import read_manifest, write_manifest
from packer._storage.files import rename_new
from packer._storage.place import place_of
from packer._table import Sample
from packer.errors import DestinationError
from tests.command import packer as run, packer_many, without_root_powers
from tests.containers.lmdbs import write_lmdb
from tests.samples import content, noise, write_pack


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two trees, packs of their images, and an index of a zip."""
    root = tmp_path_factory.mktemp("made")
    for number in range(4):
        noise(root / "tree/c" / f"{number}.png", number, (8, 8))
        noise(root / "more/c" / f"{number + 4}.png", number, (8, 8))
    packer.convert(root / "tree", root / "t.lmdb")
    packer.convert(root / "tree", root / "t.pth")
    packer.convert(root / "tree", root / "joined.lmdb", parts=2)
    packer.convert(root / "more", root / "more.lmdb")
    with zipfile.ZipFile(root / "images.zip", "w") as file:
        for path in sorted((root / "tree").rglob("*.png")):
            file.write(path, path.relative_to(root / "tree").as_posix())
    packer.index(root / "images.zip", root / "images.index")
    (root / "labels.csv").write_text("path,label\nc/0.png,c\n")
    return root


@pytest.fixture
def room(made: Path, tmp_path: Path) -> Path:
    """Return a copy of these files, with a link to a pack and a link to the copy itself."""
    room = Path(shutil.copytree(made, tmp_path / "room"))
    (room / "link.lmdb").symlink_to("t.lmdb")
    (room / "folder").symlink_to(room, target_is_directory=True)
    return room


def converted(src: str, dst: str, **options: Any) -> Callable[[Path], object]:
    return lambda room: packer.convert(room / src, room / dst, overwrite=True, **options)


READ = {
    "the source": converted("t.lmdb", "t.lmdb", resize=4),
    "in parts": converted("joined.lmdb", "joined.lmdb", parts=2),
    "in a directory": converted("t.pth", "t.pth"),
    "the source through a link": converted("link.lmdb", "t.lmdb"),
    "the destination through a link": converted("t.lmdb", "link.lmdb"),
    "a directory through a link": converted("folder/t.lmdb", "t.lmdb"),
    "a part of the destination": converted("joined.lmdb/part-00000.lmdb", "joined.lmdb"),
    "a part of the source": converted("joined.lmdb", "joined.lmdb/part-00000.lmdb"),
    "a container": converted("images.zip", "images.zip", format="lmdb"),
    "a container, in parts": converted("images.zip", "images.zip", format="lmdb", parts=2),
    "one file of a pattern": converted("image*.zip", "images.zip", format="lmdb"),
    "a file of an index": converted("images.index", "images.zip", format="lmdb"),
    "the labels": lambda room: packer.convert(
        room / "tree", room / "labels.csv", labels=room / "labels.csv", format="lmdb", overwrite=True
    ),
    "a pack to merge": lambda room: packer.merge(
        [room / "t.lmdb", room / "more.lmdb"], room / "t.lmdb", overwrite=True
    ),
}


@pytest.mark.parametrize("case", READ)
def test_nothing_that_is_read_is_replaced(room: Path, case: str) -> None:
    before, names = content(room), sorted(os.listdir(room))
    with pytest.raises(DestinationError, match=r"read|is inside"):
        READ[case](room)
    assert content(room) == before
    assert sorted(os.listdir(room)) == names


@pytest.mark.parametrize("below", ["", "/part-00000.lmdb"])
def test_an_object_that_is_read_is_not_replaced(below: str) -> None:
    """It is refused before any request: there is no such store."""
    url = "s3://bucket.invalid/t.lmdb"
    with pytest.raises(DestinationError, match=rf"^{url}: (cannot be both read and|would replace {url}{below},)"):
        packer.convert(url + below, url, overwrite=True, resize=64)


def test_an_index_does_not_replace_its_source(room: Path) -> None:
    (room / "images.index" / "inner.zip").write_bytes((room / "images.zip").read_bytes())
    before = content(room)
    with pytest.raises(DestinationError, match=r"images\.index: would replace .*inner\.zip, which this command reads"):
        packer.index(room / "images.index" / "inner.zip", room / "images.index", overwrite=True)
    assert content(room) == before


def test_the_classes_of_the_pack_before_may_be_used_again(room: Path) -> None:
    """Nothing is lost: the images are in the tree."""
    packer.convert(room / "tree", room / "more.lmdb", classes_from=room / "more.lmdb", overwrite=True)
    assert packer.digest(room / "more.lmdb") == packer.digest(room / "t.lmdb")


def put(kind: str, path: Path) -> None:
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)  # in the working directory, because the path of a socket must be short
    else:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))


@pytest.mark.skipif(os.name == "nt", reason="has no such files")
@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_special_files_are_not_replaced(room: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    monkeypatch.chdir(room)
    for name in ("x.lmdb", "x.index"):
        put(kind, room / name)
    calls: list[Callable[[], object]] = [
        lambda: packer.convert("tree", "x.lmdb", overwrite=True),
        lambda: packer.convert("tree", "x.lmdb", overwrite=True, parts=2),
        lambda: packer.merge(["t.lmdb"], "x.lmdb", overwrite=True),
        lambda: packer.pack(({"image": path} for path in Path("tree").rglob("*.png")), "x.lmdb", overwrite=True),
        lambda: packer.index("tree", "x.index", overwrite=True),
    ]
    for call in calls:
        with pytest.raises(DestinationError, match=rf"x\.\w+: is a {kind}, which packer does not replace"):
            call()
    (scanned,) = packer_many([["scan", room / "tree", room / "x.lmdb", "--overwrite"]])
    assert (scanned.returncode, f"is a {kind}, which packer does not replace" in scanned.stderr) == (1, True)
    assert not any(stat.S_ISREG(os.lstat(name).st_mode) for name in ("x.lmdb", "x.index"))
    assert not [name for name in os.listdir() if name.endswith(".partial")]


@pytest.mark.skipif(os.name == "nt", reason="has no such files")
def test_a_report_is_not_written_to_a_socket(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before the conversion, which would otherwise fail at its end."""
    monkeypatch.chdir(room)
    put("socket", room / "report")
    with pytest.raises(DestinationError, match=re.escape("report: is a socket. Pass the name of a file")):
        packer.convert("tree", "x.lmdb", report="report")


def test_a_list_replaces_lists_only(room: Path) -> None:
    before = content(room)
    first, again, *refused = packer_many(
        [
            ["scan", room / "tree", room / "x.scan"],
            ["scan", room / "tree", room / "x.scan", "--overwrite"],
            ["scan", room / "tree", room / "t.lmdb", "--overwrite"],
            ["scan", room / "tree", room / "t.pth", "--overwrite"],
            ["scan", room / "tree", room / "link.lmdb", "--overwrite"],
            ["scan", room / "tree", room / "labels.csv", "--labels", room / "labels.csv", "--overwrite"],
        ]
    )
    assert (first.returncode, again.returncode) == (0, 0)
    reasons = ("not a list", "is a directory", "is a symbolic link to", "cannot be both read and replaced")
    for result, reason in zip(refused, reasons, strict=True):
        assert (result.returncode, reason in result.stderr) == (1, True), result.stderr
    (room / "x.scan").unlink()
    assert content(room) == before


OTHERS = {
    "a text": lambda path: path.write_text("notes"),
    "an LMDB of another tool": lambda path: write_lmdb(path, [(b"0", b"value")]),
    "a directory of other files": lambda path: noise(path / "c" / "0.png", 0),
}
"""Functions that make, at a path, a file or a directory that packer did not write."""

WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "convert": lambda room, dst: packer.convert(room / "tree", dst.with_suffix(".lmdb"), overwrite=True),
    "parts": lambda room, dst: packer.convert(room / "tree", dst.with_suffix(".lmdb"), parts=2, overwrite=True),
    "merge": lambda room, dst: packer.merge(
        [room / "t.lmdb", room / "more.lmdb"], dst.with_suffix(".lmdb"), overwrite=True
    ),
    "pack": lambda room, dst: packer.pack([{"image": room / "tree/c/0.png"}], dst.with_suffix(".lmdb"), overwrite=True),
    "index": lambda room, dst: packer.index(room / "tree", dst.with_suffix(".index"), overwrite=True),
}
"""The functions with `overwrite`, called with a destination."""


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("other", OTHERS)
def test_what_packer_did_not_write_is_not_replaced(room: Path, writer: str, other: str) -> None:
    dst = room / ("x.index" if writer == "index" else "x.lmdb")
    OTHERS[other](dst)
    before = content(room)
    with pytest.raises(
        DestinationError, match=r"is not a pack, so overwrite=True does not replace it\. Choose another name"
    ):
        WRITERS[writer](room, dst)
    assert content(room) == before


def cut(path: Path, *, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def write_hdf5(path: Path, **attributes: Any) -> None:
    with h5py.File(path, "w") as file:
        file.attrs.update(attributes)
        file["results"] = np.arange(1000)


def cut_lmdb(path: Path) -> None:
    write_lmdb(path, [(b"%d" % number, bytes(5000)) for number in range(9)])
    cut(path, by=4096)


def cut_hdf5(path: Path) -> None:
    write_hdf5(path, format=np.bytes_(b"another"))
    cut(path, by=1000)


def table_of_tensors(path: Path) -> None:
    path.mkdir()
    (path / "table.pth").write_bytes(b"weights")
    (path / "manifest.json").write_text('{"name":"a model"}')


def value_like_a_pack(path: Path) -> None:
    write_lmdb(path, [(b"text", b"packer/manifest"), *((b"x%d" % number, bytes(5000)) for number in range(9))])
    cut(path, by=4096)


def archive_of(format: str) -> Callable[[Path], None]:
    def archive(path: Path) -> None:
        packed = path.with_name("inner")
        write_pack(packed, format, [Sample(f"c/{number}", 0, bytes(5000), 1, 1) for number in range(9)])
        with tarfile.open(path, "w") as tar:
            tar.add(packed)
        packed.unlink()

    return archive


DOUBTFUL = {
    "an LMDB of another tool, cut short": cut_lmdb,
    "such an LMDB with packer's key in a value": value_like_a_pack,
    "an HDF5 file of another tool, cut short": cut_hdf5,
    "another directory with a manifest and a table": table_of_tensors,
    "an archive with an LMDB pack": archive_of("lmdb"),
    "an archive with an HDF5 pack": archive_of("hdf5"),
    "the name of a plug-in that is not installed": lambda path: path.write_text("packer:todo\n- milk\n"),
}
"""Functions that make, at a path, a file or a directory that does not show who wrote it."""


@pytest.mark.parametrize("other", DOUBTFUL)
def test_what_does_not_show_that_packer_wrote_it_is_not_replaced(room: Path, other: str) -> None:
    dst = room / "results.h5"
    DOUBTFUL[other](dst)
    before = content(room)
    with pytest.raises(DestinationError, match=r"results\.h5: exists, and .* overwrite=True does not replace it"):
        packer.convert(room / "tree", dst, overwrite=True)
    assert content(room) == before


@without_root_powers
def test_a_file_that_cannot_be_read_is_not_replaced(room: Path) -> None:
    dst = room / "x.lmdb"
    dst.write_text("notes")
    dst.chmod(0)
    refused = run("convert", room / "tree", dst, "--overwrite", powerless=True)
    assert refused.returncode == 1
    assert "x.lmdb: exists, and cannot be recognised as a pack" in refused.stderr
    assert "Permission denied" in refused.stderr
    assert "--overwrite does not replace it" in refused.stderr
    dst.chmod(0o600)
    assert dst.read_text() == "notes"


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def zero(path: Path, size: int) -> None:
    with open(path, "r+b") as file:
        file.write(bytes(size))


DAMAGED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "LMDB without its last page": (".lmdb", lambda path: cut(path, by=4096)),
    "LMDB with a damaged manifest": (".lmdb", lambda path: change(path, b'"codec":"keep"', b'"codec":"kept"')),
    "LMDB with a damaged beginning": (".lmdb", lambda path: zero(path, 8192)),
    "HDF5 without its second half": (".h5", lambda path: cut(path, by=path.stat().st_size // 2)),
    "HDF5 with a damaged manifest": (".h5", lambda path: change(path, b'"codec":"keep"', b'"codec":"kept"')),
    "HDF5 with a damaged signature": (".h5", lambda path: zero(path, 8)),
    "HDF5 with a damaged beginning": (".h5", lambda path: zero(path, 4096)),
    "pth with a manifest that was cut short": (".pth", lambda path: cut(path / "manifest.json", by=20)),
    "pth with a manifest that begins in zeros": (".pth", lambda path: zero(path / "manifest.json", 64)),
    "pth with a damaged manifest": (
        ".pth",
        lambda path: change(path / "manifest.json", b'"codec":"keep"', b'"codec":"kept"'),
    ),
    "pth without a shard": (".pth", lambda path: (path / "shard-00000.pth").unlink()),
    "pth with a damaged table": (".pth", lambda path: cut(path / "table.pth", by=100)),
    "WebDataset without its files": (".wds", lambda path: [tar.unlink() for tar in path.glob("*.tar")] and None),
}
"""Damage to a pack, by which it no longer opens, and which leaves packer's mark in it."""


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_pack_that_shows_packers_mark_is_replaced(room: Path, case: str) -> None:
    suffix, damage = DAMAGED[case]
    dst = room / f"x{suffix}"
    packer.convert(room / "more", dst)
    damage(dst)
    packer.convert(room / "tree", dst, overwrite=True)
    assert packer.digest(dst) == packer.digest(room / "t.lmdb")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("before", ["an empty file", "an empty directory", "a pack", "an index", "a damaged pack"])
def test_packs_and_empty_files_are_replaced(room: Path, writer: str, before: str) -> None:
    dst = room / ("x.index" if writer == "index" else "x.lmdb")
    if before == "an empty file":
        dst.touch()
    elif before == "an empty directory":
        dst.mkdir()
    elif before == "an index":
        packer.index(room / "more", room / "y.index")
        (room / "y.index").rename(dst)
    else:
        shutil.copy(room / "more.lmdb", dst)
    if before == "a damaged pack":
        cut(dst, by=4096)
    WRITERS[writer](room, dst)
    WRITERS[writer](room, room / "first.x")
    assert packer.digest(dst) == packer.digest(room / f"first{dst.suffix}")


DIRECTORIES: dict[str, tuple[str, dict[str, Any]]] = {
    "pth": ("x.pth", {}),
    "parts": ("x.lmdb", {"parts": 2}),
    "parts of several files": ("x.pth", {"parts": 2}),
    "WebDataset": ("x.wds", {}),
    "MDS": ("x.mds", {}),
    "N5": ("x.n5", {}),
}
"""Packs that are directories: their names, and the options that make them."""

OWN_FILES: dict[str, Callable[[Path], object]] = {
    "notes.txt": lambda path: path.write_text("notes"),
    "photos/0.png": lambda path: noise(path, 0),
    "shard-00007.pth": lambda path: path.write_bytes(b"weights"),
    "._notes": lambda path: path.write_text("notes"),
    "a link": lambda path: path.symlink_to("elsewhere"),
    "a link to a directory": lambda path: path.symlink_to(path.parent, target_is_directory=True),
}
"""Functions that make a file of a user."""


@pytest.mark.parametrize(  # every file in two kinds of packs, and a file and a directory in all
    ("pack", "own"),
    [
        (pack, own)
        for pack in DIRECTORIES
        for own in OWN_FILES
        if pack in ("pth", "parts") or own in ("notes.txt", "photos/0.png")
    ],
)
def test_a_directory_with_files_of_a_user_is_not_replaced(room: Path, pack: str, own: str) -> None:
    if os.name == "nt" and "link" in own:
        pytest.skip("links need a privilege")
    name, options = DIRECTORIES[pack]
    dst = room / name
    packer.convert(room / "more", dst, **options)
    (dst / own).parent.mkdir(exist_ok=True)
    OWN_FILES[own](dst / own)
    before = sorted(os.listdir(dst))
    with pytest.raises(DestinationError, match=rf"do not belong to the pack, and overwrite=True .* them: {own}\. Move"):
        packer.convert(room / "tree", dst, overwrite=True)
    assert sorted(os.listdir(dst)) == before
    assert not os.path.exists(f"{dst}.partial")
    (dst / own).unlink()
    packer.convert(room / "tree", dst, overwrite=True)
    assert packer.digest(dst) == packer.digest(room / "t.lmdb")


def test_a_file_that_a_user_adds_during_the_conversion_is_not_deleted(room: Path) -> None:
    notes = room / "t.pth" / "notes.txt"
    with pytest.raises(DestinationError, match=r"notes\.txt"):
        packer.convert(room / "more", room / "t.pth", overwrite=True, progress=lambda now: notes.write_text("notes"))
    assert notes.read_text() == "notes"
    assert packer.digest(room / "t.pth") == packer.digest(room / "t.lmdb")
    notes.unlink()
    packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert packer.digest(room / "t.pth") == packer.digest(room / "more.lmdb")


def test_a_file_that_a_user_adds_after_the_last_check_is_not_deleted(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, check = room / "t.pth" / "notes.txt", workspace.check_destination

    def check_and_add(destination: Path, *, overwrite: bool) -> None:
        check(destination, overwrite=overwrite)
        notes.write_text("notes")

    monkeypatch.setattr(workspace, "check_destination", check_and_add)
    with pytest.raises(DestinationError, match=r"t\.pth: contains files that do not belong to the pack.*notes\.txt"):
        packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert notes.read_text() == "notes"
    assert packer.digest(room / "t.pth") == packer.digest(room / "t.lmdb")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems replace files")
@pytest.mark.parametrize("name", ["new.lmdb", "new.pth"])
def test_a_file_that_a_user_writes_to_the_destination_last_is_not_replaced(
    room: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_rename(old: Path, new: Path) -> None:
        new.write_text("own")
        rename_new(old, new)

    monkeypatch.setattr(workspace, "rename_new", write_and_rename)
    with pytest.raises(DestinationError, match=rf"{name}: exists already"):
        packer.convert(room / "more", room / name)
    assert (room / name).read_text() == "own"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EACCES], ids=errno.errorcode.get)
def test_a_pack_is_renamed_where_renameat2_is_refused(room: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems and old kernels refuse it, and so do sandboxes with a list of allowed system calls."""

    def refuse(*arguments: object) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *name, **options: SimpleNamespace(renameat2=refuse))
    packer.convert(room / "more", room / "new.lmdb")
    packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert packer.digest(room / "new.lmdb") == packer.digest(room / "t.pth") == packer.digest(room / "more.lmdb")


def test_a_pack_is_replaced_on_disks_where_a_rename_changes_inodes(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renames: list[Path] = []

    def rename(old: Path, new: Path) -> None:
        renames.append(old)
        assert len(renames) < 5
        shutil.copytree(old, new)
        shutil.rmtree(old)

    monkeypatch.setattr(os, "rename", rename)
    packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert packer.digest(room / "t.pth") == packer.digest(room / "more.lmdb")
    assert renames == [room / "t.pth"]


def test_a_directory_with_files_that_systems_and_readers_leave_is_replaced(room: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "lock.mdb"):
        (room / "t.pth" / name).write_bytes(b"left")
    (room / "t.pth/._manifest.json").write_bytes(b"\0\x05\x16\x07" + bytes(100))
    packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert packer.digest(room / "t.pth") == packer.digest(room / "more.lmdb")


def test_an_index_with_files_of_a_user_is_not_replaced(room: Path) -> None:
    (room / "images.index" / "notes.txt").write_text("notes")
    with pytest.raises(DestinationError, match=r"images\.index: contains files .* them: notes\.txt\. Move"):
        packer.index(room / "tree", room / "images.index", overwrite=True)
    assert (room / "images.index" / "notes.txt").read_text() == "notes"


def test_a_damaged_directory_with_files_of_a_user_is_not_replaced(room: Path) -> None:
    change(room / "t.pth" / "manifest.json", b'"codec":"keep"', b'"codec":"kept"')
    (room / "t.pth" / "notes.txt").write_text("notes")
    with pytest.raises(DestinationError, match=r"them: notes\.txt\. Move"):
        packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert (room / "t.pth" / "notes.txt").read_text() == "notes"


@pytest.mark.parametrize("own", ["data.bin", "files.bin", "table-00002.bin", "shard-00007.pth"])
def test_a_damaged_pack_with_a_file_of_a_user_that_another_format_has_is_not_replaced(room: Path, own: str) -> None:
    flip(room / "t.pth/manifest.json")
    (room / "t.pth" / own).write_text("notes")
    with pytest.raises(DestinationError, match=r"do not belong to the pack|cannot be told apart"):
        packer.convert(room / "more", room / "t.pth", overwrite=True)
    assert (room / "t.pth" / own).read_text() == "notes"


def flip(path: Path) -> None:
    """Change a bit of a manifest."""
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)


LAYOUTS = ["wds", "tfrecord", "rec", "mds", "caffe", "n5", "parquet"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_pack_in_the_layout_of_another_tool_is_replaced(room: Path, layout: str) -> None:
    dst = room / f"x.{layout}"
    for damage in (
        lambda: flip(dst / ".packer.index/manifest.json"),
        lambda: cut(dst / ".packer.index/table.bin", by=9),
    ):
        packer.convert(room / "more", dst, overwrite=True)
        damage()
        (dst / "notes.txt").write_text("notes")
        with pytest.raises(DestinationError, match=r"would delete them: notes\.txt\. Move"):
            packer.convert(room / "tree", dst, overwrite=True)
        (dst / "notes.txt").unlink()
        packer.convert(room / "tree", dst, overwrite=True)
        assert packer.digest(dst) == packer.digest(room / "t.lmdb")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pack_in_the_layout_of_another_tool_without_its_list_of_files_is_not_replaced(
    room: Path, layout: str
) -> None:
    dst = room / f"x.{layout}"
    packer.convert(room / "more", dst)
    cut(dst / ".packer.index/files.bin", by=3)
    with pytest.raises(DestinationError, match=r"damaged, and packer cannot tell its files .* does not replace it"):
        packer.convert(room / "tree", dst, overwrite=True)


@pytest.mark.parametrize("name", ["x.lmdb", "x.pth"])
def test_a_damaged_pack_with_parts_is_replaced(room: Path, name: str) -> None:
    """It is not replaced if one of its files is not from packer, even if that file has the name of a part."""
    dst = room / name
    packer.convert(room / "more", dst, parts=2)
    flip(dst / "manifest.json")
    for own in (f"part-00007{dst.suffix}", "data.bin", *(["part-00000.pth/notes.txt"] if dst.suffix == ".pth" else [])):
        (dst / own).write_text("notes")
        with pytest.raises(DestinationError, match=rf"would delete them: {own}\. Move"):
            packer.convert(room / "tree", dst, overwrite=True)
        (dst / own).unlink()
    packer.convert(room / "tree", dst, overwrite=True)
    assert packer.digest(dst) == packer.digest(room / "t.lmdb")


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
@pytest.mark.parametrize("name", ["x.lmdb", "x.pth"])
def test_a_pack_with_a_part_that_an_interrupted_append_left_is_replaced(
    room: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = room / name
    packer.convert(room / "tree", dst, parts=1)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(appending, "append_part", interrupt)
        with pytest.raises(KeyboardInterrupt):
            packer.append(dst, room / "more")
    assert (dst / f"part-00001{dst.suffix}").exists()
    part = dst / f"part-00001{dst.suffix}"
    part.rename(room / part.name)
    part.symlink_to(room / part.name, target_is_directory=dst.suffix == ".pth")
    with pytest.raises(DestinationError, match=r"would delete them: part-00001.*Move"):
        packer.convert(room / "more", dst, overwrite=True)
    part.unlink()
    (room / part.name).rename(part)
    own = dst / f"part-00007{dst.suffix}"
    packer.convert(room / "more", own)
    with pytest.raises(DestinationError, match=r"would delete them: part-00007.*Move"):
        packer.convert(room / "more", dst, overwrite=True)
    own.rename(room / f"own{dst.suffix}")
    packer.convert(room / "more", dst, overwrite=True)
    assert packer.digest(dst) == packer.digest(room / "more.lmdb")


def test_a_pack_with_parts_of_a_format_that_is_not_installed_is_replaced(room: Path) -> None:
    place = place_of(room / "joined.lmdb")
    write_manifest(room / "joined.lmdb", replace(read_manifest(place), format="acme"))
    (room / "joined.lmdb/notes.txt").write_text("notes")
    with pytest.raises(DestinationError, match=r"would delete them: notes\.txt\. Move"):
        packer.convert(room / "more", room / "joined.lmdb", overwrite=True)
    (room / "joined.lmdb/notes.txt").unlink()
    packer.convert(room / "more", room / "joined.lmdb", overwrite=True)
    assert packer.digest(room / "joined.lmdb") == packer.digest(room / "more.lmdb")


def test_a_pack_with_the_table_before_an_appended_part_is_replaced(room: Path) -> None:
    packer.append(room / "joined.lmdb", room / "more")
    assert len(list((room / "joined.lmdb").glob("table*.bin"))) == 2
    packer.convert(room / "tree", room / "joined.lmdb", overwrite=True)
    assert packer.digest(room / "joined.lmdb") == packer.digest(room / "t.lmdb")


JSON_OF_USERS = {
    "a document": '{"name": "a project", "version": 1}',
    "lines of other values": '{"name": "c/0.png", "label": "c"}\n',
    "more than a report": '{"name": "c/0.png", "skipped": "truncated"}\n{"name": "c/1.png", "label": "c"}\n',
    "annotations of COCO": '{\n  "images": [],\n  "annotations": []\n}\n',
    "a member of a report among others": '{"name": "Ada", "account": "savings"}\n',
    "no JSON": "{name}\n",
}
"""Files that begin like a report, and that packer did not write."""


@pytest.mark.parametrize("text", JSON_OF_USERS)
def test_a_report_replaces_reports_only(room: Path, text: str) -> None:
    (room / "report.jsonl").write_text(JSON_OF_USERS[text])
    with pytest.raises(DestinationError, match=r"report\.jsonl: the report would replace a file that is not a report"):
        packer.convert(room / "tree", room / "x.lmdb", report=room / "report.jsonl")
    assert (room / "report.jsonl").read_text() == JSON_OF_USERS[text]


def test_a_report_replaces_an_earlier_report(room: Path) -> None:
    """It has lines for findings, skipped images, losses and unexamined files; a full disk may have truncated it."""
    report = room / "report.jsonl"
    (room / "tree/c/4.png").write_text("no image")
    (room / "tree/c/notes.txt").write_text("notes")
    noise(room / "tree/outside.png", 0)
    options: dict[str, Any] = {"on_error": "skip", "report": report}
    packer.convert(room / "tree", room / "x.lmdb", **options)
    written = report.read_bytes()
    assert all(word in written for word in (b'"findings"', b'"skipped"', b'"account"', b'"not_looked_at"'))
    for name, before in {
        **{"y": written, "z": written[:-9], "v": written[:20], "w": b""},
        "u": written[: written.index(b"\n") + 6],
    }.items():
        report.write_bytes(before)
        packer.convert(room / "tree", room / f"{name}.lmdb", **options)
        assert report.read_bytes() == written
