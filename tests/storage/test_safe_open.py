"""A pack's files are opened only if they are regular files inside the pack; nothing else is read or waited for."""

from __future__ import annotations

import ast
import faulthandler
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import packer
from packer import open_dataset
from packer._datasets.staging import lock_in_memory, stage, warm
from packer._formats import FORMATS, open_pack
from packer._packs.verify import verify
from packer._sources.scan_list import is_listing
from packer._storage.files import AppendFile, PatchFile, disk_size
from packer._storage.packfile import LARGEST_READ, Descriptor, PackFile
from packer._table import Sample
from packer.errors import CorruptPackError, DestinationError, NotAPackError, PackError
from tests.command import packer_many
from tests.formats.test_parts import write_parts
from tests.samples import SUFFIXES, write_pack
from tests.syntax import dotted, parsed

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs FIFOs and symbolic links")

SAMPLES = [Sample(f"a/{number}.jpg", 0, b"%d" % number * 400, 8, 8) for number in range(9)]


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """End a test that hangs on any thread, and print the tracebacks."""
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=[*SUFFIXES, *(f"parts of {format}" for format in SUFFIXES)])
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    format = request.param.removeprefix("parts of ")
    path = tmp_path / f"pack{SUFFIXES[format]}"
    if format != request.param:
        write_parts(path, format, [SAMPLES[:4], SAMPLES[4:]])
        return path
    return write_pack(path, format, SAMPLES)


def files(pack: Path) -> list[Path]:
    return sorted(path for path in pack.rglob("*") if path.is_file()) if pack.is_dir() else [pack]


def everything(pack: Path) -> str:
    """Read all of a pack, in every way; return the messages of the errors."""
    said = []

    def attempt(action: Callable[[], object]) -> None:
        try:
            action()
        except PackError as error:
            said.append(str(error))

    attempt(lambda: said.extend(map(str, verify(pack))))
    attempt(lambda: list(open_dataset(pack, output="bytes", check="never")))
    attempt(lambda: open_dataset(pack, output="bytes", check="never").__getitems__(list(range(9))))
    attempt(lambda: warm(pack))
    attempt(lambda: lock_in_memory(pack).close())
    attempt(lambda: stage(pack, pack.parent / "disk"))
    return "\n".join(said)


def strange(path: Path, kind: str) -> None:
    """Replace a file by something else."""
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.open(path.parent, os.O_RDONLY)  # the names of sockets are short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
    elif kind == "device":
        os.symlink("/dev/zero", path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device", "directory"])
def test_nothing_but_files_is_read(pack: Path, kind: str) -> None:
    if kind == "socket" and not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc")
    whole = {path: path.read_bytes() for path in files(pack)}
    for path, data in whole.items():
        strange(path, kind)
        assert everything(pack), path
        path.rmdir() if kind == "directory" else path.unlink()
        path.write_bytes(data)
    assert everything(pack) == ""


def test_commands_do_not_wait(tmp_path: Path) -> None:
    fifo = tmp_path / "pack.lmdb"
    os.mkfifo(fifo)
    (tmp_path / "tree").mkdir()
    commands = [
        ["info", fifo],
        ["verify", fifo],
        ["warm", fifo],
        ["stage", fifo, tmp_path / "disk"],
        ["export", fifo, tmp_path / "files"],
        ["convert", fifo, tmp_path / "other.lmdb"],
        ["convert", tmp_path / "tree", tmp_path / "other.lmdb", "--classes-from", fifo],
    ]
    for result in packer_many(commands):
        assert result.returncode != 0, result.args
        assert "pack.lmdb" in result.stderr, result.args
        assert "Traceback" not in result.stderr
    with pytest.raises(NotAPackError, match="is a FIFO, not a regular file"):
        open_pack(fifo)
    assert not is_listing(fifo)


def test_no_link_leads_out_of_a_pack(pack: Path, tmp_path: Path) -> None:
    """Not even a link to the right file is followed."""
    away = tmp_path / "away"
    for path in set(files(pack)) - {pack}:
        path.rename(away)
        path.symlink_to(away)
        assert "is a symbolic link" in everything(pack), path
        path.unlink()
        away.rename(path)
    for folder in {path.parent for path in files(pack)} - {pack, tmp_path}:
        folder.rename(away)
        folder.symlink_to(away)
        assert "is a symbolic link" in everything(pack), folder
        folder.unlink()
        away.rename(folder)
    assert everything(pack) == ""


def test_a_secret_beside_a_pack_is_no_sample(tmp_path: Path) -> None:
    pack, secret = tmp_path / "pack.lmdb", tmp_path / "secret"
    write_parts(pack, "lmdb", [SAMPLES[:4], SAMPLES[4:]])
    part = pack / "part-00001.lmdb"
    secret.write_bytes(b"secret" * 10_000)
    os.truncate(secret, part.stat().st_size)
    part.unlink()
    part.symlink_to(secret)
    dataset = open_dataset(pack, output="bytes", check="never")
    assert dataset[0][0] == SAMPLES[0].data
    for index in range(4, 9):
        with pytest.raises(CorruptPackError, match="is a symbolic link"):
            dataset[index]


def test_the_path_of_a_pack_may_be_a_link(pack: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / pack.name
    link.parent.mkdir()
    link.symlink_to(pack)
    assert everything(link) == ""
    with open_pack(link) as reader:
        assert bytes(reader.read(8)) == SAMPLES[8].data
    assert warm(link) == disk_size(link) == sum(path.stat().st_size for path in files(pack))


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    victim, pack = tmp_path / "victim", tmp_path / "pack"
    victim.write_bytes(b"whole")
    pack.mkdir()
    (pack / "part").symlink_to(victim)
    (tmp_path / "folder").symlink_to(tmp_path)
    for write in (
        lambda: PatchFile(pack, "part"),
        lambda: PatchFile(tmp_path, "folder/victim"),
        lambda: AppendFile(pack / "part"),
        lambda: AppendFile(victim, new=True),
    ):
        with pytest.raises(DestinationError, match=r"is a symbolic link|File exists"):
            write()
    assert victim.read_bytes() == b"whole"
    with pytest.raises(CorruptPackError, match="plain relative path"):
        PackFile(pack, "../victim")


def test_links_and_what_vanishes_have_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_bytes(b"12345")
    (folder / "gone").write_bytes(b"123")
    (folder / "link").symlink_to(folder / "below" / "file")
    (folder / "nowhere").symlink_to("nothing")
    assert disk_size(folder) == 8
    walk = os.walk

    def late(path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        found = list(walk(path))
        (folder / "gone").unlink()
        yield from found

    monkeypatch.setattr(os, "walk", late)
    assert disk_size(folder) == 5


def test_a_row_that_claims_the_holes_of_a_file(tmp_path: Path) -> None:
    """A sparse file of a terabyte must not be read into memory."""
    size = LARGEST_READ + 1

    def change(index: int, row: dict[str, int]) -> None:
        if index == 1:
            row["size"] = size

    pack = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES[:2], change=change)
    os.truncate(pack, 1 << 40)
    dataset = open_dataset(pack, output="bytes", check="never")
    assert dataset[0][0] == SAMPLES[0].data
    for read in (lambda: dataset[1], lambda: dataset.__getitems__([0, 1])):
        with pytest.raises(CorruptPackError, match=f"{size} bytes are too many to read at once"):
            read()
    places, _ = dataset.reader.locate(np.array([0, 1]))
    assert (places["file"] >= 0).tolist() == [True, False]


def test_a_sample_that_does_not_fit_into_memory(tmp_path: Path) -> None:
    """Its bytes are a hole of a sparse file, which takes no space on the disk."""

    def change(index: int, row: dict[str, int]) -> None:
        row["size"] = LARGEST_READ - 1

    pack = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES[:1], change=change)
    os.truncate(pack, 1 << 33)
    code = """
import resource, sys
from packer._formats import open_pack
from packer.errors import PackError
reader = open_pack(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    reader.read(0)
except PackError as error:
    assert "do not fit into memory (sample 0)" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code, pack], check=True)


def test_what_is_no_pack_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for path in (tmp_path / "photos", f"{tmp_path}/photos/"):
        with pytest.raises(NotAPackError, match=f"`packer convert {tmp_path}/photos {tmp_path}/photos.lmdb`, or"):
            open_pack(path)


@pytest.mark.parametrize("kind", [FileNotFoundError, packer.PackError, packer.PackNotFoundError])
def test_a_missing_pack_is_a_missing_file_and_no_damaged_pack(tmp_path: Path, kind: type[Exception]) -> None:
    missing, below = tmp_path / "missing.lmdb", tmp_path / "file" / "pack.lmdb"
    (tmp_path / "file").touch()
    for path, reason in ((missing, "no such file or directory"), (below, "not a directory")):
        for use in (open_pack, open_dataset, packer.info, packer.verify, packer.digest, packer.warm):
            with pytest.raises(kind, match=f"{path.name}: {reason}") as caught:
                use(path)
            assert not isinstance(caught.value, packer.CorruptPackError)
        for copy in (packer.export, packer.stage, packer.repair):
            with pytest.raises(kind, match=f"{path.name}: {reason}"):
                copy(path, tmp_path / "out")
        with pytest.raises(kind, match=f"{path.name}: {reason}"):
            packer.merge([path], tmp_path / "out.lmdb")
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_a_directory_that_was_a_pack_says_so(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "pack.pth", "pth", [Sample("a/x", 0, b"x", 1, 1)])
    (path / "table.pth").unlink()
    path = path.rename(tmp_path / "renamed")
    (tmp_path / "empty.pth").mkdir()
    for directory in (path, tmp_path / "empty.pth"):
        with pytest.raises(
            NotAPackError, match=r"a directory without table\.pth or files\.bin or table\.bin: a pack that was copied"
        ):
            open_pack(directory)


@pytest.mark.parametrize("said", ["zip", "hdf5", ""])
def test_a_manifest_that_says_another_format(tmp_path: Path, said: str) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES[:1])
    data = path.read_bytes()
    with open_pack(path) as reader:
        manifest = reader.manifest
    whole, forged = manifest.to_json(), replace(manifest, format=said.ljust(4)[:4]).to_json()
    assert len(whole) == len(forged)
    path.write_bytes(data.replace(whole, forged))
    with pytest.raises(CorruptPackError, match="the manifest says"):
        open_pack(path)


OPENERS = {"open", "os.open", "io.open", "os.fdopen", "np.memmap", "np.fromfile", "zipfile.ZipFile", "Path.open"}
OPEN_BY_PATH = {
    "_storage/safe_open.py": "the one place where files of packs are opened",
    "_storage/files.py": "directories, to sync them; reports, which a person names; files without a name; locks",
    "_storage/place.py": "what `open_regular` has opened",
    "_storage/remote/cache.py": "what `open_regular` has opened, and files of the cache, which it makes",
    "_storage/remote/fetcher.py": "nothing, in the place of what a process has open",
    "_storage/remote/obstore.py": "pieces of a scratch directory, to upload them",
    "_storage/remote/upload.py": "what `open_regular` has opened",
    "_storage/remote/blocks.py": "locks of the cache",
    "_storage/stamps.py": "what `open_regular` has opened",
    "_containers/contract.py": "what `open_regular` has opened",
    "_containers/pickle_lmdb.py": "what `open_regular` has opened",
    "_containers/recordio.py": "what `open_regular` has opened",
    "_formats/index.py": "the directory that C counts paths from",
    "_formats/pth.py": "what PackFile has opened",
    "_formats/hdf5.py": "the file that its writer makes",
    "_formats/parts.py": "the table that is written",
    "_packs/safe_tree.py": "by descriptor, what an export makes",
}
NO_PACKS = {"_cli", "_sources", "testing", "_conversion", "_measuring", "_viewing"}


def test_files_of_packs_are_opened_in_one_place() -> None:
    """The rooms in `NO_PACKS` open sources, lists, journals and outputs: files whose names do not come from packs."""
    root = Path(packer.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] in NO_PACKS:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and dotted(node.func) in OPENERS:
                found.add(name)
    assert found == set(OPEN_BY_PATH)


def test_every_format_says_which_files_it_has(pack: Path, tmp_path: Path) -> None:
    with open_pack(pack) as reader:
        assert sorted(reader.file_names()) == sorted(
            "" if path == pack else path.relative_to(pack).as_posix() for path in files(pack)
        )
    copy = stage(pack, tmp_path / "disk")
    assert {p.relative_to(copy): p.read_bytes() for p in files(copy)} == {
        p.relative_to(pack): p.read_bytes() for p in files(pack)
    }
    assert {row.name for row in FORMATS.values() if row.parts} == set(SUFFIXES)


def test_a_descriptor_that_ctrl_c_kept_from_its_number_closes_nothing() -> None:
    closed: list[int] = []
    Descriptor.__new__(Descriptor).__del__(closed.append)
    assert closed == []
