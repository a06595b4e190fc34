"""`packer.append`: the new part of a joined pack, open readers, and refusals that name a remedy."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import packer
from packer import append, open_dataset, open_pack
from packer._conversion.workspace import Workspace
from packer._packs.verify import verify
from packer.errors import DestinationError, OptionError, PackError, PackLockedError, SourceError
from tests.command import packer_many, started
from tests.samples import SUFFIXES, content, noise


def draw(root: Path, first: int, count: int, classes: int = 2) -> Path:
    for number in range(first, first + count):
        noise(root / f"class_{number % classes}" / f"{number:03d}.png", number, (8, 8 + number % 5))
    return root


@pytest.fixture(scope="module", params=SUFFIXES.values())
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with three trees of different images, a pack of each, and a joined pack of the first."""
    root = tmp_path_factory.mktemp("append")
    for number, name in enumerate(("tree", "more", "again")):
        draw(root / name, 10 * number, 10)
        packer.convert(root / name, root / f"{name}-alone.lmdb")
    packer.convert(root / "tree", root / f"pack{request.param}", parts=2)
    return root


@pytest.fixture
def pack(drawn: Path, tmp_path: Path) -> Path:
    """A copy of the joined pack, which a test may change."""
    return Path(shutil.copytree(next(drawn.glob("pack.*")), tmp_path / next(drawn.glob("pack.*")).name))


def samples(reader: Any) -> list[tuple[str, bytes, int]]:
    labels = reader.table.label.tolist()
    return [(name, bytes(reader.read(index)), labels[index]) for index, name in enumerate(reader.names)]


def test_an_appended_pack_holds_both_and_is_what_merging_gives(drawn: Path, pack: Path, tmp_path: Path) -> None:
    before = content(pack)
    summary = append(pack, drawn / "more")
    assert (summary.destination, summary.manifest.count, len(summary.manifest.parts)) == (pack, 20, 3)
    append(pack, drawn / "again-alone.lmdb")  # a pack may be appended too
    alone = [drawn / f"{name}-alone.lmdb" for name in ("tree", "more", "again")]
    packer.merge(alone, tmp_path / "merged.lmdb")
    assert packer.digest(pack) == packer.digest(tmp_path / "merged.lmdb")
    assert verify(pack) == []
    after = content(pack)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed == {"manifest.json"}
    assert {name for name in after if name.startswith("table")} == {"table.bin", "table-00003.bin", "table-00004.bin"}


def test_readers_that_have_the_pack_open_go_on(drawn: Path, pack: Path) -> None:
    with open_pack(drawn / "tree-alone.lmdb") as alone:
        first = samples(alone)
    with open_pack(pack) as earlier:  # no part is open yet
        pickled = pickle.dumps(earlier)
        append(pack, drawn / "more")
        with pytest.raises(PackError, match="another pack has replaced the pack that was opened"):
            pickle.loads(pickled)  # as in a process that starts now
        with open_pack(pack) as between:
            append(pack, drawn / "again")
            assert sorted(samples(earlier)) == sorted(first)
            assert len(samples(between)) == 20
        with open_pack(pack) as later:
            assert samples(later)[:10] == samples(earlier)
            assert len(samples(later)) == 30
    assert len(open_dataset(pack).where("label == 'class_1'")) == 15


def test_the_same_call_again_changes_nothing(drawn: Path, pack: Path) -> None:
    append(pack, drawn / "more")
    before = content(pack.parent)
    again = append(pack, drawn / "more")
    assert again.continued == 10
    assert again.notes == ["done already"]
    assert content(pack.parent) == before


def test_copies_of_an_appended_pack_are_whole(drawn: Path, pack: Path, tmp_path: Path) -> None:
    append(pack, drawn / "more")
    append(pack, drawn / "again")
    staged = packer.stage(pack, tmp_path / "disk")
    assert packer.digest(staged) == packer.digest(pack)
    packer.convert(pack, tmp_path / "whole.lmdb")
    assert packer.digest(tmp_path / "whole.lmdb") == packer.digest(pack)


def test_what_does_not_agree_is_refused_and_nothing_changes(drawn: Path, pack: Path, tmp_path: Path) -> None:
    draw(tmp_path / "three", 40, 9, classes=3)
    alone = drawn / "tree-alone.lmdb"
    before = content(pack)
    for target, src, options, problem in [
        (pack, drawn / "more", {"resize": 8}, "resize= was not given and is now 8"),
        (pack, drawn / "more", {"exif": "apply"}, "exif= was ignore and is now apply"),
        (pack, tmp_path / "three", {}, "has no class class_2, and append cannot add classes.* --classes union"),
        (pack, drawn / "tree", {}, "has a sample class_0/000.png already"),
        (pack, drawn / "more", {"unlabeled": True}, "the classes class_0, class_1"),
        (alone, drawn / "more", {}, "packer convert .*tree-alone.lmdb .*tree-alone-parts.lmdb --parts 1`"),
    ]:
        with pytest.raises((OptionError, SourceError, DestinationError), match=problem):
            append(target, src, **options)
    assert content(pack) == before
    assert not list(tmp_path.glob("*.partial"))


def test_arguments_are_those_of_convert_but_what_the_pack_decides(drawn: Path, pack: Path, tmp_path: Path) -> None:
    for options, problem in [
        ({"format": "lmdb"}, "takes no 'format': the pack determines it"),
        ({"sizes": 8}, "takes no 'sizes': packer.convert has no such argument"),
    ]:
        with pytest.raises(TypeError, match=problem):
            append(pack, drawn / "more", **options)
    report = tmp_path / "findings.jsonl"
    assert append(os.fspath(pack), os.fspath(drawn / "more"), report=os.fspath(report)).manifest.count == 20
    assert report.exists()


def test_two_at_once_exclude_each_other(drawn: Path, pack: Path) -> None:
    with Workspace(pack), pytest.raises(PackLockedError, match="is writing it"):
        append(pack, drawn / "more")
    code = "from packer._cli import main; main()"
    both = [started(code, "append", pack, "--quiet", drawn / name) for name in ("more", "again")]
    for process in both:
        process.communicate()
    ends = [process.returncode for process in both]
    assert set(ends) <= {0, 5}
    assert 0 in ends
    with open_pack(pack) as reader:
        assert len(reader) == 10 + 10 * ends.count(0)
    assert verify(pack) == []


def test_an_interrupted_append_is_not_continued_with_other_images(drawn: Path, pack: Path) -> None:
    def stop(progress: packer.ConversionProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append(pack, drawn / "more", progress=stop)
    with pytest.raises(DestinationError, match="fresh=True"):
        append(pack, drawn / "again")
    append(pack, drawn / "again", fresh=True)
    with open_pack(pack) as reader:
        assert {name[-7:-4] for name in reader.names} == {f"{n:03d}" for n in (*range(10), *range(20, 30))}


def test_the_command_says_what_became_of_the_pack(drawn: Path, pack: Path, tmp_path: Path) -> None:
    draw(tmp_path / "broken", 50, 2)
    (tmp_path / "broken" / "class_1" / "051.png").write_bytes(b"")
    done, again, single, broken = packer_many(
        [
            ["append", pack, drawn / "more"],
            ["append", pack, drawn / "more", "--quiet"],
            ["append", drawn / "tree-alone.lmdb", drawn / "more"],
            ["append", pack, tmp_path / "broken", "--quiet"],
        ]
    )
    assert (done.returncode, again.returncode, single.returncode) == (0, 0, 1)
    assert f"20 samples in 3 parts, 10 of them in part-00002{pack.suffix}" in done.stdout
    assert again.stdout == ""
    assert "--parts 1" in single.stderr
    assert re.fullmatch(
        "packer: class_1/051.png: empty file. Replace the file with an image, or pass --on-error skip, .*\n",
        broken.stderr,
    )
