"""`packer index`, and the other commands on an index."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import packer
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many
from tests.sources.test_index import bag


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images") / "photos"
    draw_imagefolder(root, classes=2, per_class=3, size=(40, 56))
    return root


def test_what_the_commands_say_of_an_index(tree: Path, tmp_path: Path) -> None:
    index, quick = tmp_path / "x.index", tmp_path / "quick.index"
    answers = packer_many(
        [
            ("index", tree, index),
            ("info", index),
            ("verify", index),
            ("index", tree, quick, "--no-checksums", "--quiet"),
            ("info", quick),
            ("verify", quick),
            ("warm", index),
            ("stage", index, tmp_path / "fast"),
            ("convert", index, tmp_path / "x.lmdb", "--quiet"),
            ("verify", index, "--digest", "--quiet"),
            ("verify", tmp_path / "x.lmdb", "--digest", "--quiet"),
        ]
    )
    assert [answer.returncode for answer in answers] == [0] * 11, [answer.stderr for answer in answers]
    size = sum(file.stat().st_size for file in tree.rglob("*.jpg"))
    made, info, verified, _, info_quick, verified_quick, warmed, _, _, *digests = (a.stdout for a in answers)
    assert "6 samples, 2 classes, read from their own files" in made
    assert f"6 samples, 2 classes, {size / 1000:.1f} kB ({size / 6000:.1f} kB a sample)" in info
    assert f"in 6 files below {tree}" in info
    assert "with checksums" in info
    assert verified == f"{index}: intact\n"
    assert "without checksums" in info_quick
    assert "without checksums: only the sizes and modification times of its files were compared" in verified_quick
    assert "kB read" in warmed
    assert digests[0] == digests[1]


def test_changed_files_end_with_status_4_and_are_listed(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(tree, root)
    index, quick = tmp_path / "x.index", tmp_path / "quick.index"
    packer_many([("index", root, index), ("index", root, quick, "--no-checksums")])
    gone, longer, *_ = sorted(root.rglob("*.jpg"))
    gone.unlink()
    longer.write_bytes(longer.read_bytes() + b"x")
    for answer in packer_many([("verify", index), ("verify", index, "--quick"), ("verify", quick)]):
        assert answer.returncode == 4
        assert "damaged in 2 places" in answer.stderr
        assert gone.name in answer.stderr
        assert f"its size was {longer.stat().st_size - 1}" in answer.stderr


def test_what_is_not_done_with_an_index_is_refused_in_a_line(tree: Path, tmp_path: Path) -> None:
    index = tmp_path / "x.index"
    shards = bag(tmp_path / "x.bag", [file.read_bytes() for file in tree.rglob("*.jpg")])
    refused = {
        ("append", index, tree): "Make a new index of all images",
        ("verify", index, "--repair", tree): "packer does not change the files that an index lists",
        ("index", index, tmp_path / "y.index"): "is already a pack",
        ("index", tree, index): "--overwrite",
        ("index", tree, tmp_path / "y.lmdb"): "ends in .index",
        ("index", index, "--base", tmp_path): "has no class_00/0000.jpg",
        ("index", index, tmp_path / "y.index", "--base", tree): "leave out OUT.index",
        ("index", index): "OUT.index is missing",
        ("scan", index, tmp_path / "list.csv"): "is a pack",
        ("scan", shards, tmp_path / "list.csv"): "packer index SRC OUT.index",
        ("convert", shards, tmp_path / "y.lmdb", "--parts", 2): "packer index SRC OUT.index",
        ("convert", tree, tmp_path / "y.index"): "packer index",
        ("merge", index, index, tmp_path / "y.index"): "packer index",
    }
    first, *answers = packer_many([("index", tree, index), *refused])
    assert first.returncode == 0
    for arguments, answer in zip(refused, answers, strict=True):
        assert answer.returncode in (1, 2, 3, 4, 5), arguments
        assert refused[arguments] in answer.stderr, arguments
        assert "Traceback" not in answer.stderr


def test_an_index_of_what_was_moved_is_told_the_new_base(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "here"
    shutil.copytree(tree, root)
    packer.index(root, tmp_path / "x.index")
    root.rename(tmp_path / "there")
    answers = packer_many(
        [
            ("verify", tmp_path / "x.index"),
            ("index", tmp_path / "x.index", "--base", tmp_path / "there"),
            ("verify", tmp_path / "x.index"),
            ("index", tmp_path / "there", tmp_path / "x.index", "--overwrite"),
            ("verify", tmp_path / "x.index"),
        ]
    )
    assert [answer.returncode for answer in answers] == [4, 0, 0, 0, 0]
    assert "packer index INDEX --base DIR" in answers[0].stderr
    assert f"6 samples below {tmp_path / 'there'}" in answers[1].stdout
