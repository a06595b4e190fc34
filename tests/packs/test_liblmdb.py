"""A second opinion on an LMDB pack: liblmdb's view of its tree."""

from __future__ import annotations

from pathlib import Path

import pytest

import packer
from packer._formats import open_pack
from packer._formats.lmdb import sample_key
from tests.samples import noise


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    for number in range(60):
        noise(tmp_path / "tree" / f"class_{number % 2}" / f"{number}.png", number, (40, 30))
    (tmp_path / "beside").mkdir()
    for number in range(60):
        (tmp_path / "beside" / f"{number}.txt").write_text("caption " * number)
    packer.convert(tmp_path / "tree", tmp_path / "pack.lmdb", fields={"caption": "../beside/{stem}.txt"})
    return tmp_path / "pack.lmdb"


def test_liblmdb_finds_the_same_samples(pack: Path) -> None:
    seen = []
    assert packer.verify(pack, library="liblmdb", progress=lambda done, total: seen.append((done, total))) == []
    assert seen[-1] == (60, 60)


def test_a_tree_that_leads_elsewhere_is_found_by_liblmdb_too(pack: Path) -> None:
    """Only the tree is changed, and not the table. `disagreements` asks liblmdb alone."""
    from packer._packs.verify import disagreements

    data = bytearray(pack.read_bytes())
    first, second = (data.index(sample_key(index), 8192) for index in (7, 8))
    data[first : first + 8], data[second : second + 8] = data[second : second + 8], data[first : first + 8]
    pack.write_bytes(data)
    with open_pack(pack) as reader:
        (found,) = disagreements(reader, "liblmdb")
    assert found.reason == f"liblmdb finds the key {sample_key(8).hex()}, where sample 7 is expected"
    assert any("the LMDB tree and the table disagree" in item.reason for item in packer.verify(pack, library="liblmdb"))


def test_other_packs_and_libraries_are_refused(pack: Path, tmp_path: Path) -> None:
    packer.convert(pack, tmp_path / "pack.h5")
    with pytest.raises(packer.OptionError, match="library='liblmdb' applies only to a single file of the format lmdb"):
        packer.verify(tmp_path / "pack.h5", library="liblmdb")
    with pytest.raises(ValueError, match="library must be 'liblmdb', not 'mdb'"):
        packer.verify(pack, library="mdb")
