"""Removing staged copies: only those of this pack and this user, and none that another process is making."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from packer import DestinationError, PackLockedError, PackNotFoundError, open_dataset, stage, unstage
from packer._storage.files import disk_size
from packer._table import Sample
from tests.command import packer, started
from tests.samples import SUFFIXES, write_pack

SAMPLES = [Sample(f"a/{number}.jpg", 0, b"%d" % number * 4000, 8, 8) for number in range(9)]


@pytest.fixture(params=SUFFIXES)
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_pack(tmp_path / f"pack{SUFFIXES[request.param]}", request.param, SAMPLES)


def test_the_copy_of_this_very_pack_is_removed(pack: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    copy = stage(pack, disk)
    other = copy.with_name(f"other{copy.name}")
    (shutil.copytree if copy.is_dir() else shutil.copyfile)(copy, other)
    assert unstage(pack, disk) == disk_size(other)
    assert os.listdir(disk) == [other.name]
    assert unstage(pack, disk) == 0
    assert stage(pack, disk) == copy


@pytest.mark.parametrize("all_versions", [False, True])
def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path, all_versions: bool) -> None:
    """The cause is more often a misspelt name than a directory without copies."""
    pack = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES)
    (tmp_path / "file").touch()
    for missing in (tmp_path / "missing", tmp_path / "file", tmp_path / "file" / "missing"):
        with pytest.raises(DestinationError, match=f"^{missing}: no such directory"):
            unstage(pack, missing, all_versions=all_versions)
    assert not (tmp_path / "missing").exists()


def test_copies_of_earlier_versions(pack: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    stage(pack, disk)
    file = next(pack.glob("shard*")) if pack.is_dir() else pack
    os.utime(file, ns=(10**18, 10**18))
    copy = stage(pack, disk)
    copy.rename(copy.with_name(f"{copy.name}.staging"))  # as an interrupted process leaves it
    assert unstage(pack, disk) == disk_size(pack)
    (disk / f"{pack.stem}-notes{pack.suffix}").touch()
    assert len(os.listdir(disk)) == 2
    shutil.rmtree(pack) if pack.is_dir() else pack.unlink()
    with pytest.raises(PackNotFoundError):
        unstage(pack, disk)
    assert unstage(pack, disk, all_versions=True) > 0
    assert os.listdir(disk) == [f"{pack.stem}-notes{pack.suffix}"]


def test_packs_that_were_never_staged_stay(pack: Path, tmp_path: Path) -> None:
    """Only a copy has the digits of its manifest in its name."""
    copy = stage(pack, tmp_path / "disk")
    for digits in ("202411221530", "202411221530-202411230800", "0123456789ab-0123456789ab"):
        path = tmp_path / "disk" / f"{pack.stem}-{digits}{pack.suffix}"
        shutil.copytree(pack, path) if pack.is_dir() else shutil.copy(pack, path)
    directory = tmp_path / "disk" / f"{pack.stem}-ba9876543210-ba9876543210{pack.suffix}"
    directory.mkdir()
    (directory / "thesis.tex").touch()
    before = set(os.listdir(tmp_path / "disk"))
    assert unstage(pack, tmp_path / "disk", all_versions=True) == disk_size(pack)
    assert set(os.listdir(tmp_path / "disk")) == before - {copy.name}
    assert (directory / "thesis.tex").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root, to act as two users")
@pytest.mark.parametrize("kind", ["link", "parent"])
def test_a_directory_that_a_stranger_could_exchange_is_refused(tmp_path: Path, kind: str) -> None:
    pack = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES)
    given, copy = tmp_path / "open" / "disk", stage(pack, tmp_path / "disk")
    given.parent.mkdir()
    if kind == "link":
        given.symlink_to(tmp_path / "disk")
        os.lchown(given, 65534, 65534)
    else:
        given.mkdir(mode=0o700)
        copy = Path(shutil.copy(copy, given))
        given.parent.chmod(0o777)
    with pytest.raises(DestinationError, match=r"is a link that belongs to another user|has no sticky bit"):
        unstage(pack, given)
    assert copy.exists()


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_in_a_shared_directory_it_is_ones_own_that_goes(pack: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    copy = stage(pack, shared)
    planted = shared / copy.name
    planted.write_bytes(b"of somebody else, as far as can be known")
    assert unstage(pack, shared, all_versions=True) == disk_size(pack)
    assert (os.listdir(copy.parent), planted.exists()) == ([], True)


def test_a_copy_that_is_being_made_stays(pack: Path, tmp_path: Path) -> None:
    copy = stage(pack, tmp_path / "disk")
    hold = (
        "import sys; from packer._storage.files import try_lock\n"
        "file = open(sys.argv[1], 'ab'); assert try_lock(file); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with started(hold, f"{copy}.staging.lock") as holder:
        holder.stdout.readline()
        with pytest.raises(PackLockedError, match="another process is making this copy"):
            unstage(pack, tmp_path / "disk")
    assert copy.exists()


@pytest.mark.skipif(os.name == "nt", reason="what is open cannot be removed there")
@pytest.mark.parametrize("pack", ["lmdb", "hdf5"], indirect=True)
def test_who_has_the_copy_open_reads_on(pack: Path, tmp_path: Path) -> None:
    with open_dataset(pack, stage=tmp_path / "disk", output="bytes") as dataset:
        assert unstage(pack, tmp_path / "disk") > 0
        assert [bytes(dataset[index][0]) for index in range(len(SAMPLES))] == [sample.data for sample in SAMPLES]


def test_from_the_command_line(tmp_path: Path) -> None:
    pack, disk = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES), tmp_path / "disk"
    assert packer("stage", pack, disk).returncode == 0
    result = packer("unstage", pack, disk)
    assert (result.returncode, result.stdout) == (0, f"{disk}: {os.path.getsize(pack) / 1000:.1f} kB removed\n")
    result = packer("unstage", pack, disk)
    assert result.returncode == 0
    assert result.stdout.startswith(f"{disk}: no copy of {pack}; --all-versions")
    assert packer("unstage", tmp_path / "gone.lmdb", disk, "--all-versions", "--quiet").stdout == ""
    result = packer("unstage", pack, tmp_path / "missing")
    assert (result.returncode, result.stdout) == (1, "")
    assert f"{tmp_path / 'missing'}: no such directory" in result.stderr
