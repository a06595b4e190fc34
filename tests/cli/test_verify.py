"""`packer verify`."""

from __future__ import annotations

from pathlib import Path

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
    assert "damaged in 1 places" in result.stderr
    assert "  sample 4 (class_01/0001.jpg): " in result.stderr
    result = packer("verify", path, "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (4, "", "")
    assert packer("verify", path, "--quick").returncode == 0
    path.write_bytes(path.read_bytes()[:-4096])
    result = packer("verify", path)
    assert result.returncode == 4
    assert result.stderr.startswith(f"packer: {path}: the file has ")
    assert result.stderr.count("\n") == 1


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "x.h5", "hdf5", [Sample(f"../{n}\x1b", 0, b"x", 1, 1) for n in range(50)])
    result = packer("verify", path)
    assert result.returncode == 4
    assert "damaged in 50 places" in result.stderr
    assert "… and 30 more" in result.stderr
    assert r"sample 19 (../19\x1b)" in result.stderr
    assert "sample 20" not in result.stderr
    assert "\x1b" not in result.stderr
