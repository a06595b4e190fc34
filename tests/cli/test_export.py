"""`packer export`."""

from __future__ import annotations

from pathlib import Path

from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.testing.photos import draw_imagefolder
from tests.command import packer
from tests.samples import content, write_pack


def test_there_and_back(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "root", classes=2, per_class=3, size=(24, 32))
    convert(imagefolder_source(tmp_path / "root"), tmp_path / "x.h5")
    result = packer("export", tmp_path / "x.h5", tmp_path / "out")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{tmp_path}/out: 6 files\n", "")
    assert content(tmp_path / "out") == content(tmp_path / "root")
    (tmp_path / "out" / "notes.txt").touch()
    result = packer("export", tmp_path / "x.h5", tmp_path / "out")
    assert result.returncode == 1
    assert result.stderr == (
        f"packer: {tmp_path}/out: not empty, and notes.txt does not belong to this pack. "
        "Export to an empty or a new directory, or to one with an interrupted export of this pack.\n"
    )
    assert packer("export", tmp_path / "x.h5", tmp_path / "again", "--quiet").stdout == ""


def test_hostile_names(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "x.lmdb", "lmdb", [Sample("a/x", 0, b"x", 1, 1), Sample("../\x1b[2J", 0, b"x", 1, 1)])
    result = packer("export", path, tmp_path / "out")
    assert result.returncode == 4
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"packer: {path}, sample 1: cannot be exported (../\\x1b[2J)")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.lmdb"]
