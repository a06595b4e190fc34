"""`packer verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.testing.photos import draw_imagefolder
from tests.command import packer, packer_many
from tests.samples import write_pack


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


def test_what_is_no_pack_is_not_a_damaged_one(tmp_path: Path) -> None:
    """Only a path with a pack's suffix or a pack's content has the status of a damaged pack."""
    draw_imagefolder(tmp_path / "photos", classes=2, per_class=1, size=(24, 32))
    convert(imagefolder_source(tmp_path / "photos"), tmp_path / "a.pth")
    (tmp_path / "a.pth").rename(tmp_path / "renamed")
    (tmp_path / "renamed" / "manifest.json").unlink()
    (tmp_path / "README.md").write_text("x" * 100)
    (tmp_path / "emptied.LMDB").touch()
    (tmp_path / "emptied.pth").mkdir()
    statuses = {"photos": 1, "README.md": 1, "missing.lmdb": 1, "emptied.LMDB": 4, "emptied.pth": 4, "renamed": 4}
    for name, result in zip(statuses, packer_many(["verify", tmp_path / name] for name in statuses), strict=True):
        assert result.returncode == statuses[name], name
        assert result.stderr.startswith(f"packer: {tmp_path / name}: "), name
        assert result.stderr.count("\n") == 1


def test_a_damaged_column_comes_before_what_follows_of_it(tmp_path: Path) -> None:
    samples = [Sample(f"a/{number:04d}", 0, b"%d" % number, 1, 1) for number in range(2000)]
    path = write_pack(tmp_path / "x.h5", "hdf5", samples)
    path.write_bytes(path.read_bytes().replace(b"a/0100a/0101a/0102a/0103a/0104", b"\xcf" * 30))
    name = r"\udccf" * 6
    assert packer("verify", path).stderr.splitlines() == [
        f"packer: {path}: damaged in 6 places",
        "  the table's column 'names' does not match its checksum",
        *(f"  sample {index} ({name}): damaged: the checksum does not match" for index in (100, 101, 102)),
        "  … and 2 more",
    ]


def test_quiet_with_digest_is_the_hash_alone(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "x.h5", "hdf5", [Sample("a/x", 0, b"x", 1, 1)])
    damaged = write_pack(tmp_path / "d.h5", "hdf5", [Sample("a/x", 7, b"x", 1, 1)])
    (tmp_path / "cut.h5").write_bytes(path.read_bytes()[:3000])
    runs = [["verify", pack, "--digest", "--quiet"] for pack in (path, damaged, tmp_path / "cut.h5")]
    loud, *quiet = packer_many([["verify", path, "--digest"], *runs])
    assert loud.stdout == f"{quiet[0].stdout.strip()}  {path}\n"
    assert [(len(result.stdout), result.stderr, result.returncode) for result in quiet] == [
        (65, "", 0),
        (0, "", 4),
        (0, "", 4),
    ]
