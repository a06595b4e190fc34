"""Repeat every command that writes, also after another command with the same destination: A, A, B, A.

Clusters repeat jobs, in any order. A repeated command that is done already changes nothing, whatever ran after it. A
command whose destination exists is refused each time, and changes nothing either.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest

from tests.command import packer_many
from tests.samples import noise

_EXISTS = "exists already. Choose another name, or pass --overwrite."

DONE: dict[str, tuple[list[str], str, str, str]] = {
    "convert --split": (
        [],
        "out-train.lmdb",
        "convert splits out.lmdb --split train",
        "convert splits out.lmdb --split val",
    ),
    "convert --split all": (
        [],
        "out-train.lmdb",
        "convert splits out.lmdb --split all",
        "convert splits out.lmdb --split val",
    ),
    "convert --parts": ([], "out.lmdb", "convert a out.lmdb --parts 2", "convert b out.lmdb --parts 2"),
    "convert --part": (
        [],
        "out.lmdb",
        "convert a out.lmdb --parts 2 --part 0",
        "convert a out.lmdb --parts 2 --part 1",
    ),
    "convert --part of a finished pack": (
        ["convert a out.lmdb --parts 2"],
        "out.lmdb",
        "convert a out.lmdb --parts 2 --part 0",
        "convert b out.lmdb --parts 2 --part 0",
    ),
    "append": (["convert a out.lmdb --parts 2"], "out.lmdb", "append out.lmdb b", "append out.lmdb c"),
    "append to .h5": (["convert a out.h5 --parts 1"], "out.h5", "append out.h5 b", "append out.h5 c"),
    "append to .pth": (["convert a out.pth --parts 1"], "out.pth", "append out.pth b", "append out.pth c"),
    "append what the pack was made of": (
        ["convert a out.lmdb --parts 1"],
        "out.lmdb",
        "append out.lmdb a",
        "append out.lmdb c",
    ),
    "append with a bad image": (
        ["convert a out.lmdb --parts 2"],
        "out.lmdb",
        "append out.lmdb bad --on-error skip",
        "append out.lmdb c",
    ),
    "append a pack": (
        ["convert b b.lmdb", "convert c c.lmdb", "convert a out.lmdb --parts 2"],
        "out.lmdb",
        "append out.lmdb b.lmdb",
        "append out.lmdb c.lmdb",
    ),
    "append, resized": (
        ["convert a out.lmdb --parts 2 --resize 8"],
        "out.lmdb",
        "append out.lmdb b --resize 8",
        "append out.lmdb c --resize 8",
    ),
    "merge --finish": (
        ["convert a out.lmdb --parts 2", "convert b b.lmdb --parts 2"],
        "out.lmdb",
        "merge --finish out.lmdb",
        "merge --finish b.lmdb",
    ),
    "export": (["convert a a.lmdb", "convert b b.lmdb"], "out", "export a.lmdb out", "export b.lmdb out"),
    "stage": (["convert a a.lmdb", "convert b b.lmdb"], "out", "stage a.lmdb out", "stage b.lmdb out"),
    "warm": (["convert a a.lmdb", "convert b b.lmdb"], "a.lmdb", "warm a.lmdb", "warm b.lmdb"),
    "verify --repair": (["convert a a.lmdb"], "a.lmdb", "verify a.lmdb --repair a", "verify a.lmdb --repair b"),
}
"""For each case: the commands before, the path that A writes, A, and B; all in one directory."""

REFUSED: dict[str, tuple[list[str], str, str, str]] = {
    "convert": ([], "out.lmdb", "convert a out.lmdb", "convert b out.lmdb"),
    "convert --resize": ([], "out.pth", "convert a out.pth --resize 8", "convert a out.pth --resize 4"),
    "merge": (
        ["convert a a.lmdb", "convert b b.lmdb"],
        "out.lmdb",
        "merge a.lmdb b.lmdb out.lmdb",
        "merge b.lmdb a.lmdb out.lmdb",
    ),
    "index": ([], "out.index", "index a out.index", "index b out.index"),
    "scan": ([], "out.scan", "scan a out.scan", "scan b out.scan"),
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of trees with different images; one image of the tree `bad` is damaged."""
    root = tmp_path_factory.mktemp("again")
    for tree, number in itertools.product(("a", "b", "c", "bad"), range(6)):
        noise(root / tree / f"class_{number % 2}" / f"{tree}-{number}.png", number, (9, 10 + number))
    (root / "bad" / "class_0" / "bad-0.png").write_bytes(b"no image")
    shutil.copytree(root / "a", root / "splits" / "train")
    shutil.copytree(root / "b", root / "splits" / "val")
    return root


def state(path: Path) -> dict[str, tuple[int, bytes]]:
    """Return the files of a pack or a directory: for each path, its modification time and its bytes."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in files if file.is_file()}


def run(root: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[tuple[int, str]]:
    monkeypatch.chdir(root)
    return [
        (result.returncode, result.stdout + result.stderr) for result in packer_many(line.split() for line in lines)
    ]


@pytest.mark.parametrize("name", DONE)
def test_what_is_done_stays_done(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before, made, first, second = DONE[name]
    shutil.copytree(drawn, tmp_path / "at")
    root = tmp_path / "at"
    prepared = run(root, monkeypatch, *before)
    assert not any(code for code, _ in prepared), prepared
    if name == "verify --repair":
        whole, image = (root / made).read_bytes(), (root / "a/class_1/a-1.png").read_bytes()
        (root / made).write_bytes(whole.replace(image, image[:-1] + b"x"))
    ((status, said),) = run(root, monkeypatch, first)
    assert status in (0, 3), said
    if name == "verify --repair":
        assert "1 sample restored" in said
        assert (root / made).read_bytes() == whole
    own = state(root / made)
    ((again, said),) = run(root, monkeypatch, first)
    assert (again, state(root / made)) == (status, own), said
    run(root, monkeypatch, second)
    between = state(root / made)
    ((once_more, said),) = run(root, monkeypatch, first)
    assert (once_more, state(root / made)) == (status, between), said
    assert ("done already" in said) == first.startswith(("convert", "append")), said
    assert {name: one for name, one in between.items() if name in own and not name.endswith("manifest.json")} == {
        name: one for name, one in own.items() if not name.endswith("manifest.json")
    }


@pytest.mark.parametrize("name", REFUSED)
def test_what_lies_there_is_never_replaced(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before, made, first, second = REFUSED[name]
    shutil.copytree(drawn, tmp_path / "at")
    root = tmp_path / "at"
    assert [code for code, _ in run(root, monkeypatch, *before, first)] == [0] * (1 + len(before))
    own = state(root / made)
    for status, said in run(root, monkeypatch, first, second, first):
        assert (status, said.count(_EXISTS)) == (1, 1), said
    assert state(root / made) == own


def test_appended_samples_are_there_once(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(drawn, tmp_path / "at")
    lines = ["append out.lmdb b", "append out.lmdb c", "append out.lmdb b", "append out.lmdb c", "append out.lmdb b"]
    results = run(
        tmp_path / "at", monkeypatch, "convert a out.lmdb --parts 2", *lines, "info out.lmdb", "verify out.lmdb"
    )
    assert [code for code, _ in results] == [0] * 8
    assert [said for _, said in results[3:6]] == ["out.lmdb: done already\n"] * 3
    assert "18" in results[6][1]


REPLACED = {
    "append out.lmdb b": ("b", "has a sample class_0/b-0.png already"),
    "convert a out.lmdb --parts 2": ("a", _EXISTS),
    "convert splits new.lmdb --split val": ("splits/val", _EXISTS),
}


@pytest.mark.parametrize("keeps_time", [False, True])
@pytest.mark.parametrize("first", REPLACED)
def test_an_image_that_was_replaced_is_not_done(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, keeps_time: bool
) -> None:
    """A repeated command must not report "done already", even if the new image has the same size and an older time.

    `cp -p` copies the time of an older file.
    """
    where, problem = REPLACED[first]
    shutil.copytree(drawn, tmp_path / "at")
    root = tmp_path / "at"
    made = run(root, monkeypatch, "convert a out.lmdb --parts 2", first, first)
    assert (made[2][0], "done already" in made[2][1]) == (0, True), made
    image = next((root / where).rglob("*-0.png"))
    if keeps_time and os.name != "nt":  # Windows has no change time (ctime), which shows the replacement
        data, status = bytearray(image.read_bytes()), image.stat()
        data[-20] ^= 1
        image.write_bytes(data)
        os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns - 10**12))
    else:
        noise(image, 7, (30, 30))
    ((status, said),) = run(root, monkeypatch, first)
    assert (status, problem in said) == (1, True), said
