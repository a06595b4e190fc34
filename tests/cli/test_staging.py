"""`packer warm` and `packer stage`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packer import open_dataset
from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.command import packer, python, without_root_powers


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    draw_imagefolder(tmp_path / "root", classes=2, per_class=3, size=(24, 32))
    convert(imagefolder_source(tmp_path / "root"), tmp_path / "pack.lmdb")
    return tmp_path / "pack.lmdb"


def test_warm(pack: Path) -> None:
    result = packer("warm", pack)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{pack}: {os.path.getsize(pack) / 1000:.1f} kB read\n"
    assert packer("warm", pack, "--quiet").stdout == ""
    result = packer("warm", pack.with_name("none.lmdb"))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


def test_stage_makes_what_datasets_find(pack: Path, tmp_path: Path) -> None:
    result = packer("stage", pack, tmp_path / "disk")
    assert (result.returncode, result.stderr) == (0, "")
    staged = Path(result.stdout.removesuffix("\n"))
    assert staged.read_bytes() == pack.read_bytes()
    assert open_dataset(pack, stage=tmp_path / "disk").reader.path == str(staged)
    assert packer("stage", pack, tmp_path / "disk", "--quiet").stdout == ""
    result = packer("stage", pack, pack)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


@without_root_powers
@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_a_directory_that_may_not_be_used(pack: Path, tmp_path: Path) -> None:
    locked, closed = tmp_path / "locked", tmp_path / "closed"
    locked.mkdir(mode=0o500)
    (closed / "disk").mkdir(parents=True)
    closed.chmod(0o000)
    for disk in (locked, closed / "disk", closed / "disk" / "below"):
        result = packer("stage", pack, disk, powerless=True)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert result.stderr.startswith(f"packer: {disk}")


@pytest.mark.parametrize("arguments", [["warm"], ["stage", "disk"]])
def test_progress_in_bytes(pack: Path, tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command, *rest = arguments
    code = (
        "from packer._formats import files as copying; copying._CHUNK = 1000\n"
        "from packer._cli import main, output as progress\n"
        "progress._SECONDS_BETWEEN_LINES = progress._SECONDS_TO_THE_FIRST_LINE = 0.0; main()"
    )
    monkeypatch.chdir(tmp_path)
    result = python(code, command, pack, *rest)
    lines = result.stderr.splitlines()
    whole = f"{os.path.getsize(pack) / 1000:.1f} kB"
    assert lines[0] == f"pack.lmdb: 1.0 kB of {whole}"  # no rate yet
    assert lines[-1].startswith(f"pack.lmdb: {whole} of {whole}, ")
    assert "B/s" in lines[-1]
    assert "img" not in result.stderr
