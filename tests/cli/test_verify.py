"""`packer verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.convert import convert
from packer.sample import Sample
from packer.sources import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.packs import packer, write_pack


def test_intact_and_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.lmdb"
    draw_imagefolder(tmp_path / "root", classes=2, per_class=3, size=(24, 32))
    convert(imagefolder_source(tmp_path / "root"), path)
    result = packer("verify", path)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{path}: intact\n", "")
    result = packer("verify", path, "--quick", "--workers", 1)
    assert (result.returncode, result.stdout) == (0, f"{path}: intact (quick: the samples were not read)\n")
    assert packer("verify", path, "--quiet").stdout == ""
    photo = (tmp_path / "root" / "class_01" / "0001.jpg").read_bytes()
    path.write_bytes(path.read_bytes().replace(photo, photo[:-5] + bytes(5)))
    result = packer("verify", path)
    assert (result.returncode, result.stdout) == (4, "")
    assert "damaged in 1 place\n" in result.stderr
    assert "  sample 4 (class_01/0001.jpg): " in result.stderr
    result = packer("verify", path, "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (4, "", "")
    assert packer("verify", path, "--quick").returncode == 0
    path.write_bytes(path.read_bytes()[:-4096])
    result = packer("verify", path)
    assert result.returncode == 4
    assert result.stderr.startswith(f"packer: {path}: the file has ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["part", "shard"])
def test_a_missing_file_is_one_line(kind: str, tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "root", classes=2, per_class=40, size=(24, 32))
    source = imagefolder_source(tmp_path / "root")
    if kind == "part":
        path, missing = tmp_path / "x.lmdb", "part-00001.lmdb"
        assert packer("convert", source.root, path, "--parts", 2).returncode == 0
    else:
        path, missing = tmp_path / "x.pth", "shard-00001.pth"
        convert(source, path, options={"shard_size": 40_000})
    (path / missing).unlink()
    result = packer("verify", path)
    assert result.returncode == 4
    lines = [line for line in result.stderr.splitlines() if missing in line]
    assert f"  {missing}: the file is missing (samples in it that cannot be read: " in lines[-1]
    assert len(lines) == len(result.stderr.splitlines()) - 1 <= 2


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "x.h5", "hdf5", [Sample(f"../{n}\x1b", 0, b"x", 1, 1) for n in range(50)])
    result = packer("verify", path)
    assert result.returncode == 4
    assert "damaged in 50 places" in result.stderr
    assert "… and 30 more" in result.stderr
    assert r"sample 19 (../19\x1b)" in result.stderr
    assert "sample 20" not in result.stderr
    assert "\x1b" not in result.stderr
