"""Staging and warming: the same pack, once a node, however many ask."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest

from packer import open_dataset
from packer.convert import convert
from packer.errors import DestinationError, NotAPackError
from packer.sources import imagefolder_source
from packer.staging import stage, warm
from packer.testing.photos import draw_imagefolder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("staging") / "tree"
    draw_imagefolder(root, classes=2, per_class=4, size=(40, 48))
    return root


@pytest.fixture(params=["lmdb", "h5", "pth"])
def pack(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Path:
    path = tmp_path / f"pack.{request.param}"
    convert(imagefolder_source(tree), path)
    return path


def digest(path: Path) -> str:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def test_a_staged_pack_is_the_pack(pack: Path, tmp_path: Path) -> None:
    staged = stage(pack, tmp_path / "node" / "disk")
    assert digest(staged) == digest(pack)
    before = os.stat(staged).st_ino
    assert stage(pack, tmp_path / "node" / "disk") == staged
    assert os.stat(staged).st_ino == before
    dataset = open_dataset(pack, stage=tmp_path / "node" / "disk", cache="ram")
    assert dataset.reader.path == str(staged)
    assert dataset[3][1] == open_dataset(pack)[3][1]


def test_another_pack_of_the_same_name_is_staged_beside_it(tree: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "pack.lmdb", tmp_path / "other" / "pack.lmdb"
    second.parent.mkdir()
    convert(imagefolder_source(tree), first)
    convert(imagefolder_source(tree).limited(3), second)
    copies = [stage(path, tmp_path / "disk") for path in (first, second)]
    assert copies[0] != copies[1]
    assert [digest(copy) for copy in copies] == [digest(first), digest(second)]


def test_what_a_killed_process_left_is_replaced(pack: Path, tmp_path: Path) -> None:
    staged = stage(pack, tmp_path / "disk")
    partial = staged.with_name(staged.name + ".partial")
    staged.rename(partial)
    assert stage(pack, tmp_path / "disk") == staged
    assert digest(staged) == digest(pack)
    assert not partial.exists()


def _stage(arguments: tuple[str, str]) -> tuple[str, int]:
    staged = stage(*arguments)
    return str(staged), os.stat(staged).st_ino


def test_several_ranks_that_start_at_once_make_one_copy(pack: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map(_stage, [(str(pack), str(tmp_path / "disk"))] * 8)
    assert len(set(found)) == 1
    assert digest(Path(found[0][0])) == digest(pack)


def test_warming_reads_every_byte(pack: Path) -> None:
    seen: list[tuple[int, int]] = []
    size = sum(file.stat().st_size for file in (pack.iterdir() if pack.is_dir() else [pack]))
    assert warm(pack, progress=lambda done, total: seen.append((done, total))) == size
    assert seen[-1] == (size, size)


def test_errors_are_those_of_packs(tmp_path: Path) -> None:
    (tmp_path / "file.lmdb").write_bytes(b"no pack")
    for function in (warm, lambda path: stage(path, tmp_path / "disk")):
        with pytest.raises(NotAPackError):
            function(tmp_path / "file.lmdb")


def test_a_disk_that_is_too_small_is_refused_before_copying(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(DestinationError, match="are needed"):
        stage(pack, tmp_path / "disk")
    assert [name for name in os.listdir(tmp_path / "disk") if not name.endswith(".lock")] == []
