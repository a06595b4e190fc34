"""Paths that cannot be read, written or reached: every command reports each of its paths in one line."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import pytest

import packer
from packer._cli import EXIT_STATUS
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many, without_root_powers


def commands(good: Path, bad: object) -> list[list[object]]:
    """Return every command several times: each time, `bad` takes the place of another of its paths."""
    photos, pack, out = good / "photos", good / "pack.lmdb", good / "out"
    made = good / "out.lmdb"
    job = good / f"{str(bad).replace(os.sep, '-')[-30:]}.lmdb"  # another for each path, so that the part is made
    return [
        ["info", bad],
        ["info", "--json", bad],
        ["verify", bad],
        ["verify", "--digest", bad],
        ["verify", bad, "--repair", photos],
        ["verify", pack, "--repair", bad],
        ["export", bad, out],
        ["export", pack, bad],
        ["stage", bad, out],
        ["stage", pack, bad],
        ["warm", bad],
        ["cache", "info", bad],
        ["cache", "clear", bad],
        ["merge", bad, made],
        ["merge", pack, bad],
        ["merge", "--finish", bad],
        ["scan", bad, good / "out.scan"],
        ["scan", photos, bad],
        ["scan", photos, good / "out.scan", "--labels", bad],
        ["convert", bad, made],
        ["convert", photos, bad, "--format", "lmdb"],
        ["convert", photos, bad, "--format", "pth", "--overwrite"],
        ["convert", photos, bad, "--format", "lmdb", "--parts", 2],
        ["convert", photos, made, "--labels", bad],
        ["convert", photos, made, "--classes-from", bad],
        ["convert", photos, made, "--report", bad],
        ["convert", bad, made, "--split", "all"],
        ["convert", bad, made, "--parts", 2],
        ["convert", photos, job, "--parts", 2, "--part", 0, "--scratch", bad],
    ]


def bad_paths(bad: Path, good: Path) -> list[Path]:
    """Make unusable paths: without permissions, of another user, below a file, in a loop of links, or too long."""
    bad.mkdir()
    for name in ("pack.lmdb", "pack.h5", "labels.csv"):
        shutil.copy(good / name, bad)
        (bad / name).chmod(0)
    for name in ("closed", "listed"):
        for tree in ("pack.pth", "photos"):
            shutil.copytree(good / tree, bad / name / tree)
        (bad / name / "empty").mkdir()
    shutil.copytree(good / "pack.pth", bad / "table.pth")
    (bad / "table.pth" / "table.pth").chmod(0)
    shutil.copytree(good / "photos", bad / "class")
    (bad / "class" / "class_00").chmod(0)
    for closed, mode in ((bad / "closed", 0), (bad / "listed", 0o444)):
        for path in (closed / "photos", closed):
            path.chmod(mode)
    (bad / "others").mkdir(mode=0o555)
    if os.geteuid() == 0:
        os.chown(bad / "others", 65534, 65534)
    (bad / "file").write_text("no pack")
    (bad / "loop").symlink_to("loop")
    inside = [bad / name / path for name in ("closed", "listed") for path in ("pack.pth", "photos", "empty", "empty/x")]
    return [*bad.iterdir(), *inside, bad / "others" / "x", bad / "file" / "x", bad / "loop" / "x", bad / ("n" * 300)]


@without_root_powers
@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_every_unusable_path_is_reported_in_one_line(tmp_path: Path) -> None:
    """A conversion of a part continues without its scratch, and says so."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    draw_imagefolder(good / "photos", classes=2, per_class=2, size=(24, 32))
    for name in ("pack.lmdb", "pack.h5", "pack.pth"):
        packer.convert(good / "photos", good / name)
    (good / "labels.csv").write_text("path,label\nclass_00/0000.jpg,a\n")
    lines = [(path, line) for path in bad_paths(bad, good) for line in commands(good, path)]
    accepted = set()
    for (path, line), result in zip(lines, packer_many([line for _, line in lines], powerless=True), strict=True):
        assert result.returncode in EXIT_STATUS.values(), result
        assert "Traceback" not in result.stderr, result
        if result.returncode == EXIT_STATUS["error"]:
            assert result.stderr.startswith("packer: "), result
            assert result.stderr.count("\n") == 1, result
        if result.returncode == EXIT_STATUS["ok"] and "packer: made at the destination" not in result.stderr:
            accepted.add((str(line[0]), path.relative_to(bad).as_posix()))
    assert accepted == {  # directories that may be listed, or written to
        ("stage", "class"),
        ("stage", "table.pth"),
        ("convert", "class"),
        ("convert", "table.pth"),
        *(("verify", name) for name in ("class", "listed", "others")),  # an intact pack needs no file of them
    }
    for path in (bad / "closed", bad / "listed"):
        path.chmod(0o755)


@without_root_powers
@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_what_may_not_be_read_is_neither_missing_nor_damaged(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "photos", classes=1, per_class=1, size=(24, 32))
    pack, closed = tmp_path / "pack.lmdb", tmp_path / "closed"
    packer.convert(tmp_path / "photos", pack)
    pack.chmod(0)
    closed.mkdir(mode=0)
    reading = packer_many([["info", pack], ["verify", pack], ["convert", pack, tmp_path / "x.h5"]], powerless=True)
    writing = packer_many(
        [
            ["convert", tmp_path / "photos", closed / "below" / "x.h5"],
            ["convert", tmp_path / "photos", tmp_path / "x.h5", "--report", closed / "below" / "x.jsonl"],
        ],
        powerless=True,
    )
    assert {(r.returncode, r.stderr) for r in reading} == {(1, f"packer: {pack}: cannot be read: Permission denied\n")}
    assert [(r.returncode, r.stderr) for r in writing] == [
        (1, f"packer: {closed}/below/{name}: cannot be written: Permission denied.\n") for name in ("x.h5", "x.jsonl")
    ]


def test_an_empty_path_is_not_the_present_directory(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "photos", classes=1, per_class=1, size=(24, 32))
    for name in ("photos", "pack.lmdb", "out"):
        assert not (tmp_path / name).is_file()
    packer.convert(tmp_path / "photos", tmp_path / "pack.lmdb")
    (tmp_path / "pack.h5").touch()
    for result in packer_many(commands(tmp_path, "")):
        assert result.returncode == EXIT_STATUS["usage"], result
        assert "the path is empty. Is a shell variable not set?" in result.stderr, result


def test_paths_are_asked_for_by_functions_that_raise_nothing() -> None:
    """Before Python 3.14, `Path.exists` and similar methods raise if a directory of the path cannot be entered."""
    asking = {"exists", "is_dir", "is_file", "is_symlink", "resolve"}
    found = []
    for file in Path(packer.__file__).parent.rglob("*.py"):
        if "testing" in file.parts:
            continue
        text = file.read_text()
        if not any(f".{name}" in text for name in asking):  # parsing all of packer takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in asking:
                owner = ast.unparse(node.value)
                if owner not in ("os.path", "entry"):  # an entry of a directory that was listed
                    found.append(f"{file}:{node.lineno}: {owner}.{node.attr}")
    assert not found
