"""Repair restores the original bytes, and writes nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._formats import open_pack
from packer._images.resize import ResizeSpec
from packer._packs.repair import repair
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.errors import PackNotFoundError, SourceError
from packer.testing.photos import draw_imagefolder
from tests.command import packer, packer_many
from tests.samples import SUFFIXES, content, solid, write_pack

formats = pytest.mark.parametrize("format", SUFFIXES)

RECIPES = [Recipe(), Recipe("jpeg", ResizeSpec(16)), Recipe("png"), Recipe("webp", quality=70), Recipe("raw")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    draw_imagefolder(root, classes=3, per_class=4, size=(32, 40))
    solid(root / "class_01" / "small.png", size=(33, 40))
    return root


def packed(tree: Path, path: Path, recipe: Recipe | None = None) -> Path:
    options: dict[str, Any] = {"shard_size": 6000} if path.suffix == ".pth" else {}
    convert(imagefolder_source(tree), path, recipe=recipe, options=options)
    return path


def flip(pack: Path, wanted: bytes, at: int) -> None:
    """Change a byte of `wanted` in whichever files of the pack hold it."""
    for file in sorted(pack.iterdir()) if pack.is_dir() else [pack]:
        data = bytearray(file.read_bytes())
        start = data.find(wanted)
        if start >= 0:
            data[start + at] ^= 1
            file.write_bytes(data)


def damage(pack: Path, *indices: int) -> None:
    with open_pack(pack) as reader:
        stored = [bytes(reader.read(index)) for index in indices]
    for data in stored:
        flip(pack, data, len(data) // 2)


@formats
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.codec)
def test_damaged_samples_are_made_again(tree: Path, tmp_path: Path, format: str, recipe: Recipe) -> None:
    path = packed(tree, tmp_path / f"pack{SUFFIXES[format]}", recipe)
    whole = content(path)
    damage(path, 0, 5, 12)
    assert len(verify(path)) >= 3
    repaired = repair(path, tree)
    names = imagefolder_source(tree).names
    assert sorted(repaired.samples) == sorted(names[index] for index in (0, 5, 12))
    assert not [item for item in repaired.left if item.index is not None]
    assert content(path) == whole
    assert verify(path) == []
    assert repair(path, tree).samples == []


@formats
def test_only_what_fits_is_written(tree: Path, tmp_path: Path, format: str) -> None:
    root, path = tmp_path / "tree", tmp_path / f"pack{SUFFIXES[format]}"
    shutil.copytree(tree, root)
    packed(root, path)
    damage(path, 0, 1, 2, 3, 4)
    before = content(path)
    names = imagefolder_source(root).names
    shutil.copy(root / names[5], root / names[0])  # another image
    (root / names[1]).unlink()
    (root / names[2]).write_bytes(b"no image")
    (root / names[3]).write_bytes((root / names[3]).read_bytes() + b"\0")
    repaired = repair(path, root)
    assert repaired.samples == [names[4]]
    reasons = {item.index: item.reason for item in repaired.left}
    assert "does not give the same bytes" in reasons[0]
    assert "cannot be read: No such file" in reasons[1]
    assert "not an image that Pillow can read" in reasons[2]
    assert "does not give the same bytes" in reasons[3]
    after = content(path)
    assert after != before
    with open_pack(path) as reader:
        assert bytes(reader.read(4)) == (root / names[4]).read_bytes()
    for name, number in ((names[index], index) for index in range(4)):
        shutil.copy(tree / name, root / name)
        assert repair(path, root).samples[:1] == [name], number
    assert verify(path) == []


@formats
def test_a_damaged_table_is_not_trusted(tree: Path, tmp_path: Path, format: str) -> None:
    path = packed(tree, tmp_path / f"pack{SUFFIXES[format]}")
    damage(path, 3)
    with open_pack(path) as reader:
        flip(path, reader.table.label.tobytes(), 8)
    before = content(path)
    repaired = repair(path, tree)
    assert repaired.samples == []
    assert any(item.index is None for item in repaired.left)
    assert content(path) == before


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.codec)
def test_a_copy_in_any_format_and_order_has_them(tree: Path, tmp_path: Path, recipe: Recipe) -> None:
    path, copy = packed(tree, tmp_path / "pack.pth", recipe), tmp_path / "copy.h5"
    whole = content(path)
    with open_pack(path) as reader:
        samples = [reader.table.row(index) for index in range(len(reader))]
        turned = [
            Sample(row.name.decode(), row.label, bytes(reader.read(row.number)), row.height, row.width)
            for row in samples[::-1]
            if row.name is not None
        ]
        write_pack(copy, "hdf5", turned[:-1], classes="abc", codec=recipe.codec)  # without the first
    damage(path, 0, 5, 12)
    repaired = repair(path, copy)
    assert len(repaired.samples) == 2
    assert ["has no sample of this name" in item.reason for item in repaired.left if item.index is not None] == [True]
    assert repair(path, tree).samples == ["class_00/0000.jpg"]
    assert content(path) == whole


def test_a_pack_of_the_originals_is_converted_as_they_were(tree: Path, tmp_path: Path) -> None:
    originals, path = packed(tree, tmp_path / "originals.lmdb"), packed(tree, tmp_path / "pack.h5", RECIPES[1])
    whole = content(path)
    damage(path, 3, 7)
    assert len(repair(path, originals).samples) == 2
    assert content(path) == whole


def test_a_copy_that_is_damaged_or_another_pack_mends_nothing(tree: Path, tmp_path: Path) -> None:
    path, copy = packed(tree, tmp_path / "pack.h5"), packed(tree, tmp_path / "copy.lmdb")
    other = packed(tree, tmp_path / "other.lmdb", RECIPES[1])
    damage(path, 3)
    damage(copy, 3)
    before = content(path)
    for root, reason in [
        (copy, "checksum does not match"),
        (other, "does not give the same"),
        (path, "does not match"),
    ]:
        repaired = repair(path, root)
        assert repaired.samples == []
        assert reason in next(item.reason.split("; ")[1] for item in repaired.left if item.index == 3)
        assert content(path) == before


def test_names_that_lead_elsewhere_are_not_read(tree: Path, tmp_path: Path) -> None:
    data = (tree / "class_00" / "0000.jpg").read_bytes()
    (tmp_path / "secret.jpg").write_bytes(data)
    (tmp_path / "root").mkdir()
    path = write_pack(
        tmp_path / "x.h5", "hdf5", [Sample("../secret.jpg", 0, data, 32, 40)], settings=Recipe().settings()
    )
    flip(path, data, 100)
    repaired = repair(path, tmp_path / "root")
    assert repaired.samples == []
    assert any("not a plain relative path" in item.reason for item in repaired.left)


def test_from_the_command_line(tree: Path, tmp_path: Path) -> None:
    path = packed(tree, tmp_path / "pack.h5")
    damage(path, 1, 2)
    (tmp_path / "empty").mkdir()
    copy, third = packed(tree, tmp_path / "copy.lmdb"), packed(tree, tmp_path / "third.pth")
    damage(third, 4)
    partly, done, again, usage, missing, copied, neither = packer_many(
        [
            ["verify", path, "--repair", tmp_path / "empty"],
            ["verify", path, "--repair", tree],
            ["verify", path, "--repair", tree],
            ["verify", path, "--repair", tree, "--quick"],
            ["verify", path, "--repair", tmp_path / "missing"],
            ["verify", third, "--repair", copy],
            ["verify", third, "--repair", tree / "class_00" / "0000.jpg"],
        ]
    )
    assert (partly.returncode, done.returncode, again.returncode, usage.returncode) == (4, 0, 0, 2)
    assert "No such file" in partly.stderr
    assert "0 samples restored" in partly.stdout
    assert "2 samples restored" in done.stdout
    assert "class_00/0001.jpg" in done.stdout
    assert "pack.h5: intact" in done.stdout
    assert missing.returncode == 1
    assert "no such directory" in missing.stderr
    assert (copied.returncode, copied.stderr) == (0, "")
    assert f"{third}: 1 sample restored from {copy}" in copied.stdout
    assert neither.returncode == 1
    assert "neither a directory nor a pack" in neither.stderr


def test_what_cannot_be_repaired(tree: Path, tmp_path: Path) -> None:
    path = packed(tree, tmp_path / "pack.lmdb")
    damage(path, 1)
    with pytest.raises(SourceError, match="no such directory"):
        repair(path, tmp_path / "missing")
    with pytest.raises(PackNotFoundError):
        repair(tmp_path / "missing.lmdb", tree)
    os.truncate(path, 5000)
    result = packer("verify", path, "--repair", tree)
    assert result.returncode == 4
    assert result.stderr.endswith("it was truncated. It cannot be repaired: copy or convert it again\n")


@formats
@pytest.mark.parametrize("offset", [-1, -(2**63), 2**40, 2**63 - 1])
def test_rows_that_lead_elsewhere_are_not_written_to(tree: Path, tmp_path: Path, format: str, offset: int) -> None:
    def change(index: int, row: dict[str, int]) -> None:
        if index == 1:
            row["offset"] = offset

    images = [tree / "class_00" / name for name in ("0000.jpg", "0001.jpg")]
    samples = [Sample(f"class_00/{image.name}", 0, image.read_bytes(), 32, 40) for image in images]
    path = write_pack(tmp_path / f"x{SUFFIXES[format]}", format, samples, settings=Recipe().settings(), change=change)
    before = content(path)
    repaired = repair(path, tree)
    assert repaired.samples == []
    assert [item.index for item in repaired.left if item.index is not None] != []
    assert content(path) == before


@formats
def test_nothing_is_written_where_rows_overlap(tree: Path, tmp_path: Path, format: str) -> None:
    """The bytes of the damaged sample would overwrite those of an intact one."""

    def change(index: int, row: dict[str, int]) -> None:
        if index == 0:
            row["offset"] = offsets[1]

    images = [tree / "class_00" / name for name in ("0000.jpg", "0001.jpg")]
    samples = [Sample(f"class_00/{image.name}", 0, image.read_bytes(), 32, 40) for image in images]
    path = tmp_path / f"x{SUFFIXES[format]}"
    with open_pack(write_pack(tmp_path / f"y{SUFFIXES[format]}", format, samples)) as reader:
        offsets = reader.table.offset.tolist()
    write_pack(path, format, samples, settings=Recipe().settings(), change=change)
    before = content(path)
    assert repair(path, tree).samples == []
    assert content(path) == before
