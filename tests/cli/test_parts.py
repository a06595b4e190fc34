"""`packer convert --parts`, `--part`, `packer scan`, `packer merge --finish`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.command import command, packer, packer_many, started
from tests.conftest import Trees


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=4, per_class=20, size=(32, 40))


@pytest.fixture(scope="module")
def whole(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("whole") / "whole.lmdb"
    convert(imagefolder_source(tree), path)
    return digest(path)


def test_parts_and_arrays_give_the_same(tree: Path, whole: str, tmp_path: Path) -> None:
    out, array, listing = tmp_path / "out.lmdb", tmp_path / "array.h5", tmp_path / "tree.scan"
    results = packer_many(
        [
            ["convert", tree, out, "--parts", 3],
            ["convert", tree, out, "--parts", 3],
            ["scan", tree, listing, "--limit", 79],
            ["scan", tree, listing],
            ["scan", tree, listing, "--overwrite"],
            ["convert", listing, array, "--parts", 3, "--part", 2],
            ["convert", listing, array, "--parts", 3, "--part", 0, "--scratch", tmp_path / "scratch"],
            ["convert", listing, array, "--parts", 3, "--part", 0],
            ["merge", "--finish", array],
            ["convert", listing, array, "--parts", 3, "--part", 1],
            ["convert", listing, array, "--parts", 3, "--part", 1],
            ["merge", "--finish", array],
            ["info", array],
            ["verify", out],
            ["merge", out, array, tmp_path / "twice.lmdb"],
        ]
    )
    assert [result.returncode for result in results] == [0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert ", 3 parts, " in results[0].stdout
    assert "LMDBImageDataset" in results[0].stdout
    assert results[1].stdout == f"{out}: done already\n"
    assert "80 images, 4 classes" in results[4].stdout
    assert results[7].stdout == "part 0: 26 images, done already\n"
    assert "1 of 3 parts are missing: 1" in results[8].stderr
    assert "80 samples" in results[9].stdout
    assert "done already" in results[10].stdout
    assert "hdf5 pack of 3 parts" in results[12].stdout
    assert digest(out) == digest(array) == whole


def test_another_conversion_is_not_done_already(tree: Path, tmp_path: Path) -> None:
    other, out, parts, tiled = (tmp_path / name for name in ("other", "x.lmdb", "y.lmdb", "z.lmdb"))
    draw_imagefolder(other, classes=4, per_class=20, size=(32, 40), seed=1)
    (other / "class_00" / "0000.jpg").rename(other / "class_00" / "a.jpg")
    results = packer_many(
        [
            ["convert", tree, out, "--parts", 3],
            *(
                ["convert", src, out, "--parts", 3, *options]
                for src in (tree, other)
                for options in ([], ["--part", 1])
            ),
            ["convert", tree, out, "--parts", 3, "--limit", 79],
            ["convert", tree, out, "--parts", 3, "--check", "decode"],
            ["convert", tree, out, "--parts", 4],
            ["convert", out, parts, "--parts", 2],
            ["convert", out, parts, "--parts", 2],
            ["convert", out, parts, "--parts", 2, "--tiles"],
            ["convert", out, parts, "--parts", 2, "--limit", 79],
            ["convert", out, tiled, "--parts", 2, "--codec", "png"],
            ["convert", out, tiled, "--parts", 2, "--codec", "png"],
        ]
    )
    assert [result.returncode for result in results] == [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0]
    for result in results:
        assert result.returncode == 0 or "exists already" in result.stderr
    assert [number for number, result in enumerate(results) if "done already" in result.stdout] == [1, 2, 9, 13]


def test_what_makes_no_sense(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.lmdb"
    wrong = [
        ["--part", 1],
        ["--parts", 2, "--part", 2],
        ["--parts", 2, "--part", 1, "--fresh"],
        ["--parts", 2, "--split", "train"],
        ["--parts", 2, "--report", tmp_path / "report"],
        ["--parts", 2, "--scratch", tmp_path],
    ]
    results = packer_many(
        [["convert", tree, out, *options] for options in wrong]
        + [["merge", "--finish", out, out], ["merge", out], ["scan", tmp_path, tmp_path / "list"]]
    )
    assert [result.returncode for result in results] == [2] * 8 + [1]
    results = packer_many(
        [["scan", tree, tree / "x.scan"], ["scan", tree, tmp_path / "no" / "x.scan"], ["scan", tree, tmp_path / "x"]]
    )
    assert [result.returncode for result in results] == [1, 1, 0]
    assert "is inside" in results[0].stderr
    assert not (tree / "x.scan").exists()
    labelled = packer("convert", tmp_path / "x", out, "--labels", tmp_path / "any.csv")
    assert (labelled.returncode, "--labels cannot be used with" in labelled.stderr) == (2, True)
    (tmp_path / "x").unlink()
    assert os.listdir(tmp_path) == []


def test_a_job_array_all_at_once(tree: Path, whole: str, tmp_path: Path) -> None:
    """Without `packer scan`, the first task lists the source and the others wait; the last task finishes the pack."""
    out = tmp_path / "out.lmdb"
    code = "from packer._cli import main; main()"
    line = ["convert", tree, out, "--parts", 4, "--workers", 1, "--part"]
    with ExitStack() as running:
        tasks = [running.enter_context(started(code, *line, number)) for number in (0, 1, 2, 3, 3)]
        assert [task.wait() for task in tasks][:3] == [0, 0, 0]
    assert {task.returncode for task in tasks[3:]} <= {0, 5}  # both make part 3: one may find it locked
    assert digest(out) == whole
    assert os.listdir(tmp_path) == ["out.lmdb"]


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_killed_conversion_in_parts_continues(tree: Path, whole: str, tmp_path: Path) -> None:
    out = tmp_path / "out.lmdb"
    line = command("convert", tree, out, "--parts", 20, "--codec", "keep", "--workers", 1, "--quiet")
    process = subprocess.Popen(line)
    while not (tmp_path / "out.lmdb.partial" / "pack" / "part-00002.lmdb").exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made_at = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out.lmdb.partial" / "pack").glob("*.lmdb")}
    assert "part-00002.lmdb" in made_at
    assert not out.exists()
    assert packer(*line[3:]).returncode == 0
    assert {name: (out / name).stat().st_mtime_ns for name in made_at} == made_at
    assert digest(out) == whole
    assert verify(out) == []


def test_files_that_were_left_out_are_said(tree: Path, tmp_path: Path) -> None:
    """The first attempt fails and names the file and the option that skips it; with the option, the job continues."""
    root, out, array, plain = (tmp_path / name for name in ("tree", "out.lmdb", "array.lmdb", "plain.lmdb"))
    draw_imagefolder(root, classes=2, per_class=3, size=(16, 16))
    (root / "class_01" / "bad.jpg").write_text("no image")
    skip = ["--on-error", "skip"]
    results = packer_many(
        [
            ["convert", root, out, "--parts", 2],
            ["convert", root, out, "--parts", 2, *skip],
            ["convert", root, out, "--parts", 2, *skip],
            ["convert", root, array, "--parts", 3, "--part", 2],
            ["convert", root, array, "--parts", 3, "--part", 2, *skip],
            ["convert", root, array, "--parts", 3, "--part", 2],
            ["convert", root, array, "--parts", 3, "--part", 2, *skip],
            ["convert", root, array, "--parts", 3, "--part", 0, *skip],
            ["convert", root, array, "--parts", 3, "--part", 1, *skip],
            ["merge", "--finish", array],
            ["convert", root, plain, *skip],
            ["merge", "--finish", plain],
        ]
    )
    assert [result.returncode for result in results] == [1, 3, 3, 1, 3, 1, 3, 0, 0, 3, 3, 1]
    assert "class_01/bad.jpg" in results[0].stderr
    assert "--on-error skip, and run the same command to continue" in results[0].stderr
    assert results[2].stdout == f"{out}: done already, 1 x left out\n"
    assert "--on-error was skip and is now fail" in results[5].stderr
    for number in (1, 8, 9, 10):
        assert "1 x left out" in results[number].stdout
    assert "is a complete pack without parts" in results[11].stderr
    for path in (out, array):
        assert digest(path) == digest(plain)
        with open_pack(path) as reader:
            assert [entry["name"] for entry in reader.manifest.skipped] == ["class_01/bad.jpg"]
