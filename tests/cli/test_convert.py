"""`packer convert` on the command line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer import open_pack
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._images.encode import encode
from packer._sources.imagefolder import imagefolder_source
from packer.errors import printable
from packer.testing.photos import draw_imagefolder
from tests.command import command, packer, packer_many, python
from tests.conftest import Trees
from tests.samples import content, solid


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=3, per_class=6, size=(48, 64))


def run(*arguments: object, **options: Any) -> str:
    """Run a command that must succeed; return what it printed."""
    result = packer("convert", *arguments, **options)
    assert result.returncode == 0
    assert all(" of " in line for line in result.stderr.splitlines())  # progress, on a slow machine
    return result.stdout


def test_files_that_are_not_encoded_anew_are_counted(tree: Path, tmp_path: Path) -> None:
    """JPEGs keep their bytes with --codec jpeg, whatever --quality says."""
    options = ["--codec", "jpeg", "--quality", 50]
    solid(tmp_path / "root" / "class_00" / "x.png", size=(40, 40))
    for file in tree.glob("class_00/*.jpg"):
        shutil.copy2(file, tmp_path / "root" / "class_00")
    first, line = run(tmp_path / "root", tmp_path / "x.lmdb", *options).splitlines()[:2]
    assert first.startswith(f"{tmp_path}/x.lmdb: 7 samples")
    assert line.startswith(
        "  6 x stored unchanged, because it was JPEG already and needed no resizing; --recode encodes"
    )
    assert line in run(tmp_path / "root", tmp_path / "y.lmdb", *options, "--parts", 2).splitlines()
    assert "stored unchanged, because it was" not in run(tmp_path / "root", tmp_path / "z.lmdb")
    assert "stored unchanged, because it was" not in run(tree, tmp_path / "r.lmdb", *options, "--resize", 20)


@pytest.mark.parametrize("source", ["tree", "pack"])
def test_files_are_encoded_anew_where_that_is_asked_for(tree: Path, tmp_path: Path, source: str) -> None:
    run(tree, tmp_path / "pack.h5", "--quiet")
    src, made, tiled = tree if source == "tree" else tmp_path / "pack.h5", tmp_path / "x.lmdb", tmp_path / "tiled.lmdb"
    options = ["--codec", "jpeg", "--recode", "--quality", 50]
    assert "stored unchanged, because it was" not in run(src, made, *options, "--no-tiles")
    run(src, tiled, *options, "--quiet")
    with open_pack(made) as reader, open_pack(tmp_path / "pack.h5") as before:
        assert reader.manifest.settings["recode"] is True
        assert "recode" not in before.manifest.settings
        assert int(reader.table.size.sum()) < 0.8 * int(before.table.size.sum())
        for index, name in enumerate(reader.names):
            with Image.open(tree / name) as image:
                expected = encode(np.array(image.convert("RGB")), "jpeg", 50)
            assert bytes(reader.read(index)) == expected
    with open_pack(made) as reader:
        data = bytes(reader.read(0))
    made.write_bytes(made.read_bytes().replace(data, data[:-9] + bytes(9)))
    assert packer("verify", made, "--repair", tree).returncode == 0


@pytest.mark.parametrize("name", ["convert", "info", "verify", "export"])
def test_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = packer(name, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert name in packer("-h").stdout
    if name != "convert":
        return
    options = "format split labels path-column label-column classes-from limit resize resize-mode upscale interpolation"
    options += " codec quality exif audit max-pixels delimiter on-error report workers shard-size overwrite fresh quiet"
    described = dict(part.strip().split(maxsplit=1) for part in result.stdout.split("\n  --")[1:])
    assert set(options.split()) <= set(described)
    text = {name: " ".join(words.split()) for name, words in described.items()}
    defaults = {"resize-mode": "short", "interpolation": "bilinear", "quality": "90", "exif": "ignore"}
    defaults |= {"audit": "structure", "on-error": "fail", "codec": "keep; jpeg with --resize", "path-column": "path"}
    defaults |= {
        "label-column": "label",
        "shard-size": "512MiB",
        "max-pixels": " and maximum: 178956970, Pillow's limit",
    }
    for option, default in defaults.items():
        assert f"[default{default}" in text[option] or f"[default: {default}" in text[option], option


def test_the_two_lines_of_python_read_the_pack(tree: Path, tmp_path: Path) -> None:
    for name, dataset in [
        ("x.lmdb", "LMDBImageDataset"),
        ("x.h5", "HDF5ImageDataset"),
        ("it's.pth", "PthImageDataset"),
    ]:
        output = run(tree, tmp_path / name)
        first, *rest = output.splitlines()
        assert first.startswith(f"{tmp_path}/{name}: 18 samples, 3 classes, ")
        code = "\n".join(line.strip() for line in rest if "import" in line or "dataset =" in line)
        assert f"from packer import {dataset}" in code
        scope: dict[str, Any] = {}
        exec(code, scope)  # the lines as they were printed
        assert len(scope["dataset"]) == 18
        assert "fuse=True" in code
        convert(imagefolder_source(tree), tmp_path / f"reference{Path(name).suffix}")
        assert content(tmp_path / name) == content(tmp_path / f"reference{Path(name).suffix}")


def test_settings(tree: Path, tmp_path: Path) -> None:
    options = (
        "--resize 24 --resize-mode crop --interpolation bicubic --upscale --quality 80 --exif apply --audit decode"
    )
    run(tree, tmp_path / "x.bin", "--format", "hdf5", "--quiet", "--max-pixels", 10**6, *options.split())
    with open_pack(tmp_path / "x.bin") as reader:
        assert reader.manifest.format == "hdf5"
        assert reader.manifest.codec == "jpeg"  # the default with --resize
        assert reader.manifest.settings == {
            "codec": "jpeg",
            "resize": {"size": 24, "mode": "crop", "upscale": True, "interpolation": "bicubic"},
            "quality": 80,
            "exif": "apply",
            "check": "decode",
            "max_pixels": 10**6,
            "tiles": None,
        }
        assert set(reader.table.height.tolist()) == {24}
    run(tree, tmp_path / "y.hdf5", "--quiet", "--workers", 3)
    with open_pack(tmp_path / "y.hdf5") as reader:
        assert reader.manifest.settings == Recipe().settings()


def test_limit_quiet_and_shards(tree: Path, tmp_path: Path) -> None:
    assert run(tree, tmp_path / "x.pth", "--quiet", "--limit", 10, "--shard-size", "9kB") == ""
    with open_pack(tmp_path / "x.pth") as reader:
        assert reader.manifest.count == 10
        assert reader.manifest.classes == ["class_00", "class_01", "class_02"]
        assert reader.manifest.layout["shard_size"] == 9000
        sizes = [size for _, size in reader.manifest.layout["shards"]]
        assert len(sizes) > 1
        assert max(sizes) <= 9000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 1 << 30),
        ("512MB", 512 * 10**6),
        ("1.5kb", 1500),
        ("64KiB", 1 << 16),
        ("123456", 123456),
        (" 7 mb", 7 * 10**6),
    ],
)
def test_sizes(text: str, size: int) -> None:
    from packer._cli.options import Size

    assert Size().convert(text, None, None) == size


def test_labels_from_a_file(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("file,path,kind\nclass_02/0001.jpg,x,dog\nclass_00/0000.jpg,x,cat\n")
    run(tree, tmp_path / "x.lmdb", "--labels", tmp_path / "l.csv", "--path-column", "file", "--label-column", "kind")
    with open_pack(tmp_path / "x.lmdb") as reader:
        assert list(reader.table.sample_names()) == ["class_02/0001.jpg", "class_00/0000.jpg"]
        assert (reader.table.label.tolist(), reader.manifest.classes) == ([1, 0], ["cat", "dog"])
    solid(tmp_path / "val" / "class_02" / "v.png", size=(40, 40))
    run(tmp_path / "val", tmp_path / "val.lmdb", "--classes-from", write_classes(tmp_path, "class_01", "class_02"))
    with open_pack(tmp_path / "val.lmdb") as reader:
        assert (reader.table.label.tolist(), reader.manifest.classes) == ([1], ["class_01", "class_02"])
    result = packer("convert", tree, tmp_path / "y.lmdb", "--classes-from", tmp_path / "val.lmdb")
    assert result.returncode == 1
    assert result.stderr == (
        f"packer: {tree}: 1 of its classes is not in the given class list: class_00. Correct them, or leave out "
        "--classes-from. To leave out such samples and list them: --on-error skip\n"
    )


def write_classes(directory: Path, *classes: str) -> Path:
    for name in classes:
        solid(directory / "classes" / name / "x.png")
    convert(imagefolder_source(directory / "classes"), directory / "classes.h5")
    return directory / "classes.h5"


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    root = tmp_path / "my data"
    for name in ("train/cat", "train/dog", "train/eel", "val/dog"):
        solid(root / name / "x.png", size=(40, 40))
    return root


def test_splits_are_refused_with_commands_that_work(splits: Path, tmp_path: Path) -> None:
    result = packer("convert", splits, tmp_path / "out.lmdb")
    assert result.returncode == 1
    assert not (tmp_path / "out.lmdb.partial").exists()
    commands = [shlex.split(line) for line in result.stderr.splitlines() if line.startswith("  packer convert")]
    assert len(commands) == 2
    run(*commands[0][2:], "--quiet")
    assert {"out-train.lmdb", "out-val.lmdb"} <= set(os.listdir(tmp_path))
    for name, labels in [("out-train.lmdb", [0, 1, 2]), ("out-val.lmdb", [1])]:
        with open_pack(tmp_path / name) as reader:
            assert (reader.manifest.classes, reader.table.label.tolist()) == (["cat", "dog", "eel"], labels)
    before = content(tmp_path / "out-train.lmdb")
    (tmp_path / "out-train.lmdb").unlink()
    run(*commands[1][2:], "--quiet")
    assert content(tmp_path / "out-train.lmdb") == before


def test_some_splits(splits: Path, tmp_path: Path) -> None:
    run(splits, tmp_path / "out.h5", "--split", "train", "--quiet")
    assert sorted(os.listdir(tmp_path)) == ["my data", "out-train.h5"]
    for name in ("nothing", "tra\x1bin"):
        result = packer("convert", splits, tmp_path / "out.h5", "--split", name)
        assert result.returncode == 2
        assert f"has no split {printable(name)} with class directories" in result.stderr
    result = packer("convert", splits / "train", tmp_path / "other.h5", "--split", "all")
    assert (result.returncode, "has no splits such as" in result.stderr) == (2, True)
    result = packer("convert", splits, tmp_path / "out.h5", "--split", "all")
    assert result.returncode == 0
    assert "out-train.h5: done already" in result.stdout
    assert sorted(os.listdir(tmp_path)) == ["my data", "out-train.h5", "out-val.h5"]


def test_findings_and_skipped_files(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(14):
        (root / "a").mkdir(parents=True, exist_ok=True)
        (root / "a" / f"bad{number:02d}.jpg").write_text("bad")
    solid(root / "a" / "tiny\x1b[31m.png")
    with Image.fromarray(np.zeros((40, 40, 4), np.uint8), "CMYK") as image:
        image.save(root / "a" / "cmyk.jpg")
    (root / "a" / "\x1b]0;title\x07.jpg").touch()
    result = packer("convert", root, tmp_path / "x.lmdb")
    assert result.returncode == 1
    assert result.stderr.startswith(
        r"packer: a/\x1b]0;title\x07.jpg: empty file. Replace the file with an image, or pass --on"
    )
    assert result.stderr.endswith(
        "skip, and run the same command to continue. If you remove it from the source, start over with --fresh.\n"
    )
    report = tmp_path / "report.jsonl"
    result = packer("convert", root, tmp_path / "x.lmdb", "--on-error", "skip", "--report", report)
    assert (result.returncode, result.stderr) == (3, "")
    assert "2 samples, 1 class, " in result.stdout
    assert "15 x left out" in result.stdout
    assert "and 5 more; --report" in result.stdout
    assert r"a/\x1b]0;title\x07.jpg: empty file" in result.stdout
    assert "1 x CMYK" in result.stdout
    assert "1 x tiny" in result.stdout
    assert "\x1b" not in result.stdout
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert sum("skipped" in line for line in lines) == 15
    assert {"a/cmyk.jpg", "a/tiny\x1b[31m.png"} == {line["name"] for line in lines if "findings" in line}
    info = packer("info", tmp_path / "x.lmdb")
    assert r"left out: a/\x1b]0;title\x07.jpg: empty file" in info.stdout
    assert "\x1b" not in info.stdout


def test_a_file_that_changed_is_named_with_what_to_do(tmp_path: Path) -> None:
    root, listing, out = tmp_path / "root", tmp_path / "list", tmp_path / "x.lmdb"
    for name in "abcd":
        solid(root / "a" / f"{name}.png", size=(40, 40))
    (root / "a" / "e.png").write_text("bad")
    result = packer("convert", root, out)
    assert result.returncode == 1
    assert "a/e.png: not an image" in result.stderr
    os.utime(root / "a" / "d.png", (1, 1))
    solid(root / "a" / "e.png", size=(40, 40))  # replaced by an image
    result = packer("convert", root, out)
    assert result.returncode == 1
    assert "\n  1 image was changed: a/d.png (its modification time was 20" in result.stderr
    assert "\nUse the earlier settings and files, or pass --fresh to start over.\n" in result.stderr
    assert "5 samples" in run(root, out, "--fresh")
    packer("scan", root, listing)
    solid(root / "a" / "b.png", size=(41, 40))
    result = packer("convert", listing, tmp_path / "y.lmdb")
    assert result.returncode == 1
    assert result.stderr.startswith("packer: a/b.png: changed since it was listed: its ")
    assert "run `packer scan` again, and start over with --fresh." in result.stderr
    result = packer("convert", listing, tmp_path / "y.lmdb", "--fresh", "--on-error", "skip")
    assert result.returncode == 3
    assert "a/b.png: changed since it was listed: " in result.stdout


def test_notes_about_the_source(tmp_path: Path) -> None:
    solid(tmp_path / "root" / "a" / "x.png", size=(40, 40))
    solid(tmp_path / "root" / "out\x1bside.png")
    (tmp_path / "root" / "em\npty").mkdir()
    output = run(tmp_path / "root", tmp_path / "x.lmdb", "--allow-empty")
    assert r"classes without images, which keep their ids: em\npty" in output
    assert r"left out: 1 image (out\x1bside.png): it is not in a class directory" in output


def usage_errors(tree: Path, tmp_path: Path) -> list[tuple[list[object], int, str]]:
    """Return arguments, the exit status (0 stands for 1 or 2), and a part of the message."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "folders" / "a").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "there.lmdb").touch()
    dst = tmp_path / "x.lmdb"
    return [
        ([], 2, "SRC is missing"),
        ([tree], 2, "DST is missing"),
        ([tmp_path / "missing", dst], 1, f"{tmp_path}/missing: no such file or directory"),
        ([tmp_path / "empty", dst], 1, "no subdirectories"),
        ([tmp_path / "file", dst], 1, "a file, not a directory"),
        ([tmp_path / "folders", dst], 1, "no images"),
        ([tree, tmp_path / "missing" / "x.lmdb"], 1, "does not exist. Make it first."),
        (
            [tree, tmp_path / "x.zip"],
            2,
            "the suffix determines the format, but .zip is not one of .lmdb, .h5, .hdf5, .pth",
        ),
        (
            [tree, tmp_path / "noslash"],
            2,
            "this name has none of .lmdb, .h5, .hdf5, .pth, .wds, .tfrecord, .rec, .mds, .caffe, .n5, .parquet. "
            "Change the name, or pass --format",
        ),
        ([tree, tmp_path / "there.lmdb"], 1, "exists already. Choose another name, or pass --overwrite."),
        ([tree, dst, "--codec", "keep", "--resize", 9], 2, "keep"),
        ([tree, dst, "--shard-size", "1GB"], 2, "--shard-size applies only to formats with several files: .pth"),
        ([tree, tmp_path / "x.pth", "--shard-size", "much"], 2, "is not a size such as"),
        ([tree, tmp_path / "x0.pth", "--shard-size", "0"], 2, "size"),
        ([tree, tmp_path / "x1.pth", "--shard-size", "-5MB"], 2, "size"),
        ([tree, tmp_path / "x2.pth", "--shard-size", "nan"], 2, "is not a size such as"),
        ([tree, tmp_path / "x3.pth", "--shard-size", "infGB"], 2, "is not a size such as"),
        ([tree, tmp_path / "x4.pth", "--shard-size", "9GiB"], 2, "shard"),
        ([tree, dst, "--split", "train"], 2, "has no split train with class directories"),
        ([tree, dst, "--split", "all"], 2, "has no splits such as train and val"),
        ([tree, dst, "--quality", 90], 2, "without --codec or --resize, packer stores the files' own bytes"),
        ([tree, dst, "--codec", "raw", "--quality", 90], 2, "jpeg and webp: --codec raw has no quality"),
        ([tree, dst, "--upscale"], 2, "--upscale applies only if images are resized: pass the size with --resize"),
        ([tree, dst, "--resize-mode", "crop", "--codec", "png"], 2, "--resize-mode applies only if images are resized"),
        ([tree, dst, "--resize", "0"], 2, "'0' is not a whole number of 1 or more"),
        ([tree, dst, "--quality", "101"], 2, "'101' is not a whole number from 1 to 100"),
        ([tree, dst, "--workers", "0"], 2, "'0' is not a whole number of 1 or more"),
        ([tree, dst, "--limit", "0"], 2, "'0' is not a whole number of 1 or more"),
        (
            [tree, dst, "--format", "zip"],
            2,
            "--format must be one of lmdb, hdf5, pth, wds, tfrecord, rec, mds, caffe, n5, parquet, not 'zip'",
        ),
        ([tree, dst, "--codec", "gif"], 2, "'gif' is not one of"),
        ([tree, dst, "--nothing"], 2, "--nothing: no such option"),
        ([tree, dst, "--labels", tmp_path / "no.csv"], 1, "no.csv: cannot be read"),
        (
            [tree, dst, "--path-column", "x"],
            2,
            "--path-column applies only to a table: pass the table with",
        ),
        ([tree, dst, "--label-column", "x"], 2, "--label-column applies only to a table"),
        ([tree, dst, "--delimiter", "tab"], 2, "--delimiter applies only to a table"),
        ([tree, dst, "--labels", tmp_path / "no.csv", "--delimiter", "ab"], 2, "'ab' is not one character, or `tab`"),
        ([tree, dst, "--classes-from", tmp_path / "no.lmdb"], 1, "no.lmdb: no such file"),
        ([tree, dst, "--classes-from", tmp_path / "file"], 1, "not a pack"),
        ([tree, dst, "--report", tmp_path / "missing" / "r.jsonl"], 0, "missing"),
        ([tree, "/", "--format", "lmdb", "--split", "train"], 2, "has no split"),
    ]


def test_bad_usage_is_one_clear_line(tree: Path, tmp_path: Path) -> None:
    """The error comes before an image is read, and no partial directory is left."""
    cases = usage_errors(tree, tmp_path)
    wrong = []
    for (arguments, status, message), result in zip(
        cases, packer_many(["convert", *arguments] for arguments, _, _ in cases), strict=True
    ):
        lines = [line for line in result.stderr.splitlines() if not line.startswith(("Usage:", "Try ")) and line]
        if (
            result.returncode not in ([status] if status else [1, 2])
            or len(lines) != 1
            or message not in lines[0]
            or result.stdout
        ):
            wrong.append((arguments[1:], result.returncode, lines[-3:]))
    assert wrong == []
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "folders", "there.lmdb"]  # not one partial
    assert (tmp_path / "there.lmdb").read_bytes() == b""


def test_output_that_is_not_utf_8(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    solid(root / "日本" / "x.png", size=(40, 40))
    (root / "日本" / "bad.png").write_text("bad")
    for arguments, status, encoding in [
        (["convert", root, tmp_path / "x.lmdb"], 1, "ascii"),
        (["convert", root, tmp_path / "x.lmdb", "--on-error", "skip"], 3, "cp1252:strict"),
        (["info", tmp_path / "x.lmdb"], 0, "ascii"),
        (["info", tmp_path / "x.lmdb"], 0, "latin-1"),
        (["export", tmp_path / "x.lmdb", tmp_path / "é"], 0, "ascii"),
    ]:
        result = packer(*arguments, env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding})
        assert (result.returncode, "Traceback" in result.stderr) == (status, False), result.stderr
        assert encoding != "latin-1" or "  ####" in result.stdout


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images whose conversion takes a moment."""
    root = tmp_path_factory.mktemp("long")
    draw_imagefolder(root / "few", classes=1, per_class=4, size=(150, 200))
    (root / "tree" / "a").mkdir(parents=True)
    for number in range(60):
        os.link(root / "few" / "class_00" / f"{number % 4:04d}.jpg", root / "tree" / "a" / f"{number:04d}.jpg")
    return root / "tree"


def test_progress_where_there_is_no_terminal(tree: Path, tmp_path: Path) -> None:
    """Without a terminal, progress is a line every few seconds; the test sets this interval to 0."""
    code = (
        "from packer._cli import main, output as progress\n"
        "progress._SECONDS_BETWEEN_LINES = progress._SECONDS_TO_THE_FIRST_LINE = 0.0; main()"
    )
    result = python(code, "convert", tree, tmp_path / "x\x1b[31m.lmdb")
    lines = result.stderr.splitlines()
    assert len(lines) > 1
    assert lines[-1].startswith("x")
    assert ".lmdb: 18 of 18, " in lines[-1]
    assert "img/s" in lines[-1]
    assert "MB/s" in lines[-1]
    assert "\x1b" not in result.stderr
    assert "\r" not in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_on_a_terminal(long: Path, tmp_path: Path) -> None:
    import fcntl
    import pty
    import termios

    for quiet in (False, True):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
        arguments = ["convert", long, tmp_path / f"x{quiet}\x1b[31m.lmdb", "--codec", "png", *["--quiet"] * quiet]
        with subprocess.Popen(command(*arguments), stdin=follower, stdout=follower, stderr=follower) as process:
            os.close(follower)
            output = b""
            while True:
                try:
                    read = os.read(leader, 65536)
                except OSError:  # the other end is closed
                    break
                if not read:
                    break
                output += read
        os.close(leader)
        text = output.decode()
        assert process.returncode == 0, text
        if quiet:
            assert text == ""
            continue
        assert "60/60" in text
        assert "img/s" in text
        assert "MB/s" in text
        assert "\x1b[31m" not in text
        assert "60 samples" in text


def test_a_destination_relative_to_where_one_stands(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = time.time()
    monkeypatch.chdir(tmp_path)
    run(tree, "x.lmdb")
    assert os.stat(tmp_path / "x.lmdb").st_mtime >= started - 5
    run(os.path.relpath(tree, tmp_path), "y.pth", "--quiet")
    assert sorted(os.listdir(tmp_path)) == ["x.lmdb", "y.pth"]
