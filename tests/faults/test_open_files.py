"""Errors of the machine are never taken for damage: too many open files, a disk that fails, no memory."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._sources.base import ReadBuffer
from packer._sources.imagefolder import imagefolder_source
from packer.errors import CorruptPackError, ImageError, PackerError
from tests.sourcekinds import SOURCES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no limit of open files")

IMAGES = 4


def _whole(summary: Any) -> None:
    assert summary.manifest.count == IMAGES
    assert not summary.manifest.skipped


def _convert(root: Path) -> None:
    for path in root.glob("out.lmdb*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _whole(packer.convert(root / "tree", root / "out.lmdb", on_error="skip"))


def _convert_fields(root: Path) -> None:
    for path in root.glob("out.pth*"):
        shutil.rmtree(path)
    fields = {"mask": "../masks/{stem}.png"}
    _whole(packer.convert(root / "tree", root / "out.pth", on_error="skip", fields=fields))


def _convert_index(root: Path) -> None:
    for path in root.glob("again.lmdb*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _whole(packer.convert(root / "tree.index", root / "again.lmdb", on_error="skip"))


def _pack(root: Path) -> None:
    for path in root.glob("packed.lmdb*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    samples = ({"image": path} for path in sorted((root / "tree").rglob("*.png")))
    _whole(packer.pack(samples, root / "packed.lmdb", on_error="skip"))


def _index(root: Path) -> None:
    _whole(packer.index(root / "tree", root / "new.index", on_error="skip", overwrite=True))


def _verify(name: str) -> Callable[[Path], None]:
    def verify(root: Path) -> None:
        assert packer.verify(root / name) == []

    return verify


def _quick(root: Path) -> None:
    assert packer.verify(root / "tree.index", quick=True) == []


def _repair(root: Path) -> None:
    assert packer.repair(root / "parts.pth", root / "tree") == packer.Repaired([], [])


def _replace(root: Path) -> None:
    with packer.open_dataset(root / "tree.index", on_error="replace", max_bad=1.0) as dataset:
        for index in range(IMAGES):
            dataset[index]


WORK: dict[str, Callable[[Path], None]] = {
    "convert": _convert,
    "convert with files beside": _convert_fields,
    "convert an index": _convert_index,
    "pack": _pack,
    "index": _index,
    "verify a file": _verify("pack.lmdb"),
    "verify HDF5": _verify("pack.h5"),
    "verify shards": _verify("shards.pth"),
    "verify parts": _verify("parts.pth"),
    "verify wds": _verify("shards.wds"),
    "verify an index": _verify("tree.index"),
    "verify an index quickly": _quick,
    "repair": _repair,
    "replace": _replace,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("files")
    source, _ = SOURCES["masks"](tmp_path)
    for name, options in {
        "pack.lmdb": {},
        "pack.h5": {},
        "shards.pth": {"shard_size": 4000},
        "shards.wds": {"shard_size": 4000},
        "parts.pth": {"parts": 3},
    }.items():
        packer.convert(source, tmp_path / name, **options)  # type: ignore[arg-type]
    packer.index(source, tmp_path / "tree.index")
    return tmp_path


@contextlib.contextmanager
def few_files(more: int) -> Iterator[None]:
    """Let this process open at most `more` files in addition to those that are open."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest number that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", WORK)
def test_too_many_open_files_are_no_damage(name: str, root: Path) -> None:
    """With any limit, the work is complete, or fails with an error that does not blame a sample."""
    WORK[name](root)  # imports what it needs
    failed = 0
    for more in range(14):
        try:
            with few_files(more):
                WORK[name](root)
        except (CorruptPackError, ImageError) as error:
            pytest.fail(f"with {more} files: {type(error).__name__}: {error}")
        except (PackerError, OSError, ImportError):
            failed += 1
    assert failed
    WORK[name](root)


ERRNOS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE]


@pytest.fixture(params=ERRNOS, ids=lambda number: errno.errorcode[number])
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the system fail to open one image of the tree, its mask, and the shards of packs; return what failed."""
    real, failed = os.open, list[str]()

    def fails(path: Any, *arguments: Any, **settings: Any) -> int:
        name = os.fsdecode(path) if not isinstance(path, int) else ""
        if name.endswith(("3.png", ".tar")) or "shard-" in name:
            failed.append(name)
            raise OSError(request.param, os.strerror(request.param), name)
        return real(path, *arguments, **settings)

    monkeypatch.setattr(os, "open", fails)
    return failed


OF_C = ("convert", "index", "verify a file", "verify HDF5", "verify an index quickly")
OF_PYTHON = [name for name in WORK if name not in OF_C]


@pytest.mark.parametrize("name", OF_PYTHON)
def test_errors_of_the_machine_are_no_damage(name: str, root: Path, failing: list[str]) -> None:
    try:
        WORK[name](root)
    except (CorruptPackError, ImageError) as error:
        pytest.fail(f"{type(error).__name__}: {error}")
    except (PackerError, OSError):
        pass
    assert failing


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["verify shards", "verify parts", "verify an index", "repair"])
def test_files_that_may_not_be_read_are_no_damage(name: str, root: Path, tmp_path: Path) -> None:
    for pack in ("shards.pth", "parts.pth", "tree"):
        shutil.copytree(root / pack, tmp_path / pack)
    packer.index(tmp_path / "tree", tmp_path / "tree.index")
    root = tmp_path
    for path in [*root.rglob("shard-*"), *(root / "tree").rglob("*.png")]:
        path.chmod(0)
    with pytest.raises(PackerError, match="Permission denied") as caught:
        WORK[name](root)
    assert not isinstance(caught.value, CorruptPackError)


def test_no_memory_for_a_small_file_leaves_out_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: ReadBuffer, path: str) -> Any:
        raise MemoryError

    monkeypatch.setattr(ReadBuffer, "read", fails)
    with pytest.raises(packer.SourceError, match=r"0\.png: .* bytes do not fit into the free memory"):
        imagefolder_source(root / "tree").read(0, ReadBuffer())
