"""Links that somebody else put where packer will write: nothing is written, or removed, where they lead."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.errors import DestinationError
from tests.samples import content, noise

WITHIN = ("lock", "pack", "journal.jsonl", "source.list", "reserve", "parts.json")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("links")
    for number in range(3):
        noise(root / "tree/c" / f"{number}.png", number, (8, 8))
        noise(root / "more/c" / f"{number + 3}.png", number + 3, (8, 8))
    packer.convert(root / "tree", root / "joined.pth", parts=1)
    packer.convert(root / "more", root / "more.pth")
    return root


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory of other files, which must stay as they are."""
    place = tmp_path / "elsewhere"
    (place / "pack").mkdir(parents=True)
    for name in ("notes", "pack/shard-00007.pth", "parts.json"):
        (place / name).write_text("mine")
    return place


def write(what: str, tree: Path, at: Path) -> Any:
    """Write a pack at a path in one of the ways that packer has."""
    match what:
        case "append":
            return packer.append(at.parent, tree / "more")
        case "merge":
            return packer.merge([tree / "more.pth"], at)
        case "parts":
            return packer.convert(tree / "tree", at, parts=2)
    return packer.convert(tree / "tree", at)


def place_of(what: str, tree: Path, root: Path) -> Path:
    if what != "append":
        return root / "new.pth"
    shutil.copytree(tree / "joined.pth", root / "joined.pth")
    return root / "joined.pth" / "part-00001.pth"


@pytest.mark.parametrize("what", ["convert", "parts", "merge", "append"])
def test_a_link_at_the_directory_of_work_is_refused(what: str, tree: Path, elsewhere: Path, tmp_path: Path) -> None:
    place = place_of(what, tree, tmp_path)
    before = content(elsewhere)
    (place.parent / f"{place.name}.partial").symlink_to(elsewhere)
    with pytest.raises(
        DestinationError, match=r"partial: is not a directory, but packer needs this path for the unfinished pack"
    ):
        write(what, tree, place)
    assert content(elsewhere) == before
    assert not os.path.lexists(place)


@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize("what", ["convert", "parts", "append"])
def test_links_within_it_are_refused(what: str, name: str, tree: Path, elsewhere: Path, tmp_path: Path) -> None:
    place = place_of(what, tree, tmp_path)
    before = content(elsewhere)
    directory = place.parent / f"{place.name}.partial"
    directory.mkdir()
    (directory / name).symlink_to(elsewhere / "pack" if name == "pack" else elsewhere / "notes")
    with pytest.raises(DestinationError, match=f"partial.*{name}|partial.* is a symbolic link"):
        write(what, tree, place)
    assert content(elsewhere) == before


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("joined.pth.partial", "is not a directory"),
        ("joined.pth/part-00001.pth", "contains an unfinished part of other images"),
    ],
)
def test_append_refuses_links_at_its_other_places(
    name: str, problem: str, tree: Path, elsewhere: Path, tmp_path: Path
) -> None:
    place_of("append", tree, tmp_path)
    packer.convert(tree / "more", elsewhere / "own.pth")
    target = elsewhere / "own.pth" if name.endswith("00001.pth") else elsewhere
    (tmp_path / name).symlink_to(target)
    before = content(tmp_path)
    with pytest.raises(DestinationError, match=problem):
        packer.append(tmp_path / "joined.pth", tree / "more")
    assert content(tmp_path) == before
    assert (tmp_path / name).is_symlink()


def test_append_replaces_links_at_the_names_of_tables_and_manifests(
    tree: Path, elsewhere: Path, tmp_path: Path
) -> None:
    place_of("append", tree, tmp_path)
    pack = tmp_path / "joined.pth"
    for name in ("table-00002.bin", "manifest.json.host-1.partial"):
        (pack / name).symlink_to(elsewhere / "notes")
    packer.append(pack, tree / "more")
    assert (elsewhere / "notes").read_text() == "mine"
    assert not (pack / "table-00002.bin").is_symlink()
    assert packer.open_pack(pack).manifest.count == 6
