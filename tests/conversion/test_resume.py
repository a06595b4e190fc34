"""Interrupted conversions: the same command continues, and the pack equals that of an uninterrupted conversion."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packer._conversion.convert import ConversionProgress, Summary, convert
from packer._conversion.recipe import Recipe
from packer._conversion.workspace import Workspace
from packer._images.resize import ResizeSpec
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer._sources.table_source import csv_source
from packer.errors import DestinationError, ImageChangedError, ImageError, PackLockedError, ResumeError
from packer.testing.photos import draw_imagefolder
from tests.command import packer
from tests.samples import SUFFIXES, content, solid

formats = pytest.mark.parametrize("format", SUFFIXES)
posix = pytest.mark.skipif(os.name == "nt", reason="needs signals")

OPTIONS = {"lmdb": {}, "hdf5": {}, "pth": {"shard_size": 9000}}  # several shards


class InterruptionError(Exception):
    pass


class Stop:
    """A progress callback that raises at its `count`-th call."""

    def __init__(self, count: int, error: type[BaseException] = InterruptionError) -> None:
        self.count = count
        self.error = error
        self.done = 0

    def __call__(self, progress: ConversionProgress) -> None:
        self.count -= 1
        self.done = progress.done
        if self.count == 0:
            raise self.error


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples below and above the size from which LMDB stores them on overflow pages."""
    root = tmp_path_factory.mktemp("tree")
    draw_imagefolder(root, classes=3, per_class=8, size=(32, 40))
    for number in range(60):
        solid(root / "class_01" / f"small{number:02d}.png", (number, 0, 0), size=(33 + number % 5, 40))
    solid(root / "class_02" / "bad.png").write_text("no image")
    return root


def start(tree: Path, path: Path, **options: Any) -> Summary:
    return convert(
        imagefolder_source(tree),
        path,
        **{"on_error": "skip", "workers": 2, "options": OPTIONS[_format(path)], **options},
    )


def _format(path: Path) -> str:
    return next(name for name, suffix in SUFFIXES.items() if suffix == path.suffix)


@pytest.fixture
def interrupted(tree: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a copy of the tree, and the destination of an interrupted conversion of it."""
    root, path = tmp_path / "tree", tmp_path / "pack.lmdb"
    shutil.copytree(tree, root)
    with pytest.raises(InterruptionError):
        start(root, path, progress=Stop(8))
    return root, path


@formats
def test_interrupted_anywhere(tree: Path, tmp_path: Path, format: str) -> None:
    reference, path = tmp_path / f"reference{SUFFIXES[format]}", tmp_path / f"pack{SUFFIXES[format]}"
    calls = Stop(0)
    start(tree, reference, progress=calls)
    for count in range(1, -calls.count + 1):
        stop = Stop(count, [InterruptionError, KeyboardInterrupt][count % 2])
        with pytest.raises(stop.error):
            start(tree, path, progress=stop)
        assert not path.exists()
        summary = start(tree, path)
        assert summary.continued == stop.done > 0
        assert content(path) == content(reference)
        assert os.listdir(tmp_path).count(f"{path.name}.partial") == 0
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        start(tree, path, overwrite=True, fresh=True)
        assert content(path) == content(reference)
    assert verify(reference) == []


@pytest.mark.parametrize(("format", "codec"), [("lmdb", "keep"), ("lmdb", "png"), ("hdf5", "raw"), ("pth", "keep")])
def test_interrupted_again_and_again(tree: Path, tmp_path: Path, format: str, codec: str) -> None:
    reference, path = tmp_path / f"reference{SUFFIXES[format]}", tmp_path / f"pack{SUFFIXES[format]}"
    expected = start(tree, reference, recipe=Recipe(codec=codec))
    runs = 0
    while not path.exists():
        runs += 1
        with contextlib.suppress(InterruptionError):
            summary = start(tree, path, recipe=Recipe(codec=codec), progress=Stop(2), workers=1 + runs % 3)
    assert runs > 5
    assert content(path) == content(reference)
    assert summary.continued > 0
    assert summary.bytes_in == expected.bytes_in
    assert summary.manifest == expected.manifest  # with the findings and skipped files of earlier runs


@formats
def test_a_bad_file_is_mended_and_the_conversion_goes_on(tree: Path, tmp_path: Path, format: str) -> None:
    root, path, reference = tmp_path / "tree", tmp_path / f"pack{SUFFIXES[format]}", tmp_path / f"ref{SUFFIXES[format]}"
    shutil.copytree(tree, root)
    with pytest.raises(ImageError, match=r"class_02/bad\.png"):
        start(root, path, on_error="fail", workers=1)
    solid(root / "class_02" / "bad.png", size=(50, 40))
    summary = start(root, path, on_error="fail")
    assert summary.continued > 0
    start(root, reference, on_error="fail")
    assert content(path) == content(reference)


@formats
def test_an_error_between_the_last_sample_and_the_end(tree: Path, tmp_path: Path, format: str) -> None:
    """The report cannot be written after the pack in the partial directory is complete; the next run continues."""
    path, reference = tmp_path / f"pack{SUFFIXES[format]}", tmp_path / f"ref{SUFFIXES[format]}"
    with pytest.raises(DestinationError, match="report"):
        start(tree, path, report=tmp_path / "missing" / "report.jsonl")
    assert not path.exists()
    (tmp_path / "missing").mkdir()
    start(tree, path, report=tmp_path / "missing" / "report.jsonl")
    start(tree, reference)
    assert content(path) == content(reference)


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"recipe": Recipe("png")}, "codec= was keep and is now png"),
        ({"recipe": Recipe(quality=91)}, "quality= was 90 and is now 91"),
        ({"recipe": Recipe(exif="apply")}, "exif= was ignore and is now apply"),
        ({"recipe": Recipe(audit="decode")}, "audit= was structure and is now decode"),
        ({"recipe": Recipe("jpeg", ResizeSpec(20))}, "resize= was not given and is now 20\n"),
        ({"recipe": Recipe("jpeg", recode=True)}, "recode=True was not given and is now on"),
        ({"format": "hdf5", "options": {}}, "the format was lmdb and is now hdf5"),
        ({"options": {"shard_size": 5}}, "shard_size= was not given and is now 5"),
    ],
)
def test_other_settings_are_refused(
    interrupted: tuple[Path, Path], tmp_path: Path, options: dict[str, Any], difference: str
) -> None:
    root, path = interrupted
    before = content(tmp_path / "pack.lmdb.partial")
    with pytest.raises(ResumeError, match=r"fresh=True") as caught:
        start(root, path, **options)
    assert difference in str(caught.value)
    after = content(tmp_path / "pack.lmdb.partial")
    assert {**after, "lock": b""} == {**before, "lock": b""}
    assert start(root, path, workers=5).continued > 0  # the number of workers is no setting of the pack
    assert os.listdir(tmp_path).count("pack.lmdb.partial") == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: solid(root / "class_00" / "0000a.png"), "1 image was added: class_00/0000a.png"),
        (lambda root: solid(root / "class_02" / "zzz.png"), "1 image was added: class_02/zzz.png"),
        (lambda root: (root / "class_00" / "0000.jpg").unlink(), "1 image was removed: class_00/0000.jpg"),
        (lambda root: (root / "zzz\n").mkdir(), "1 class was added: zzz\\n"),
        (
            lambda root: (root / "class_02").rename(root / "class_03"),
            "1 class was removed: class_02\n  1 class was added: class_03\n  9 images were removed: ",
        ),
        (
            lambda root: os.utime(root / "class_00" / "0001.jpg", ns=(5000, 5000)),
            "and is now 1970-01-01 00:00:00.000005 UTC)",
        ),
        (lambda root: solid(root / "class_00" / "0001.jpg"), "1 image was changed: class_00/0001.jpg (its size was "),
        (lambda root: solid(root / "class_02" / "0007.jpg"), "1 image was changed: class_02/0007.jpg (its size was "),
    ],
)
def test_another_source_is_refused(interrupted: tuple[Path, Path], tmp_path: Path, change: Any, message: str) -> None:
    root, path = interrupted
    change(root)
    for _ in range(2):
        with pytest.raises(ResumeError) as caught:
            start(root, path)
        assert message in str(caught.value)
    summary = start(root, path, fresh=True)
    assert summary.continued == 0
    start(root, tmp_path / "reference.lmdb")
    assert content(path) == content(tmp_path / "reference.lmdb")


def done_before(path: Path) -> list[str]:
    """Return the names of the images that an unfinished conversion has done."""
    lines = (path.with_name(f"{path.name}.partial") / "journal.jsonl").read_text().splitlines()[1:]
    return [entry[0] for line in lines for entry in json.loads(line[9:])["entries"]]


def test_whichever_file_changed_it_is_named(interrupted: tuple[Path, Path], tmp_path: Path) -> None:
    """It is named by its size if the time was restored, else by its time, whether it was packed already or not."""
    root, path = interrupted
    names = list(imagefolder_source(root).names)
    assert 0 < len(done_before(path)) < len(names) - 10
    for number, name in enumerate(names):
        file = root / name
        data, status = file.read_bytes(), os.stat(file)
        if number % 2:
            file.write_bytes(data + b"x")
            expected = f"{name} (its size was {len(data)} bytes and is now {len(data) + 1})"
        else:
            file.write_bytes(bytes(len(data)))
            expected = f"{name} (its modification time was "
        os.utime(file, ns=(1, status.st_mtime_ns + (number + 1) % 2 * 10**9))
        with pytest.raises(ResumeError) as caught:
            start(root, path)
        assert f"\n  1 image was changed: {expected}" in str(caught.value)
        file.write_bytes(data)
        os.utime(file, ns=(1, status.st_mtime_ns))
    assert start(root, path).continued > 0  # all is as it was
    start(root, tmp_path / "reference.lmdb")
    assert content(path) == content(tmp_path / "reference.lmdb")


def test_many_changed_files_are_counted(interrupted: tuple[Path, Path]) -> None:
    root, path = interrupted
    for file in root.rglob("*.jpg"):
        os.utime(file, ns=(1, 1))
    with pytest.raises(ResumeError) as caught:
        start(root, path)
    line = str(caught.value).splitlines()[1]
    assert line.startswith("  24 images were changed: class_00/0000.jpg (its modification time was ")
    assert line.endswith(", …")
    assert line.count("UTC") == 5


def test_another_machine_and_another_mount(interrupted: tuple[Path, Path], tmp_path: Path) -> None:
    """The conversion continues if names, sizes and times are equal; some mounts keep times in whole seconds only."""
    root, path = interrupted
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(root, elsewhere / "tree")  # with the times
    shutil.copytree(f"{path}.partial", elsewhere / "pack.lmdb.partial")
    for file in (elsewhere / "tree").rglob("*.*"):
        os.utime(file, ns=(1, os.stat(file).st_mtime_ns // 10**9 * 10**9))
    shutil.rmtree(root)
    assert start(elsewhere / "tree", elsewhere / path.name).continued > 0
    start(elsewhere / "tree", tmp_path / "reference.lmdb")
    assert content(elsewhere / path.name) == content(tmp_path / "reference.lmdb")


@pytest.mark.parametrize("damage", [lambda scan: scan.unlink(), lambda scan: scan.write_bytes(b"")])
def test_what_the_files_were_is_not_guessed(interrupted: tuple[Path, Path], damage: Any) -> None:
    root, path = interrupted
    damage(path.with_name(f"{path.name}.partial") / "source.list")
    with pytest.raises(ResumeError, match=r"source\.list is missing or damaged\n.*fresh=True"):
        start(root, path)
    assert start(root, path, fresh=True).continued == 0


def test_a_file_that_changes_before_it_is_read(tree: Path, tmp_path: Path) -> None:
    """It stops the conversion, which continues after the original file is restored, and not before."""
    root, path = tmp_path / "tree", tmp_path / "pack.lmdb"
    shutil.copytree(tree, root)
    last = root / "class_02" / "0007.jpg"
    kept = shutil.copy2(last, tmp_path / "kept.jpg")
    with pytest.raises(ImageChangedError, match=r"class_02/0007\.jpg: changed since it was listed: its size was \d+"):
        start(root, path, on_error="fail", workers=1, progress=lambda progress: solid(last))
    for _ in range(2):
        with pytest.raises(ResumeError, match=r"1 image was changed: class_02/0007\.jpg \(its size"):
            start(root, path, on_error="skip")
    shutil.copy2(kept, last)
    assert start(root, path).continued > 0
    start(tree, tmp_path / "reference.lmdb")
    assert content(path) == content(tmp_path / "reference.lmdb")


@pytest.mark.parametrize("change", [Path.unlink, solid])
def test_a_file_that_was_left_out_for_it_stays_so(tree: Path, tmp_path: Path, change: Any) -> None:
    root, path, table = tmp_path / "tree", tmp_path / "pack.lmdb", tmp_path / "list.csv"
    shutil.copytree(tree, root)
    table.write_text("path,label\n" + "".join(f"{name},0\n" for name in imagefolder_source(root).names))
    file = root / "class_01" / "small59.png"

    calls: list[int] = []

    def change_and_stop(progress: ConversionProgress) -> None:
        calls.append(progress.done)
        if len(calls) == 1:
            change(file)
        if progress.done > 76:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        convert(csv_source(root, table), path, on_error="skip", workers=1, progress=change_and_stop)
    assert "class_01/small59.png" in done_before(path)
    summary = convert(csv_source(root, table), path, on_error="skip")
    assert summary.continued > 0
    assert [entry["name"] for entry in summary.manifest.skipped] == ["class_01/small59.png", "class_02/bad.png"]
    assert summary.manifest.skipped[0]["reason"].startswith("changed since it was listed: it")


def test_bad_files_are_mended_one_after_the_other(tree: Path, tmp_path: Path) -> None:
    """A file that stopped the conversion may be replaced until it is packed; later changes are refused."""
    root, path = tmp_path / "tree", tmp_path / "pack.lmdb"
    shutil.copytree(tree, root)
    first, second = root / "class_01" / "small30.png", root / "class_02" / "bad.png"
    first.write_text("no image either")
    for file in (first, second):
        with pytest.raises(ImageError, match=file.name):
            start(root, path, on_error="fail", workers=1)
        file.write_text("still no image")
        solid(file, size=(50, 40))
    with pytest.raises(InterruptionError):
        start(root, path, on_error="fail", workers=1, progress=stop_behind(84))
    assert done_before(path)[-1] == "class_02/bad.png"
    kept = shutil.copy2(second, tmp_path / "kept.png")
    solid(second, size=(51, 40))
    with pytest.raises(ResumeError, match=r"1 image was changed: class_02/bad\.png"):
        start(root, path, on_error="fail")
    shutil.copy2(kept, second)
    assert start(root, path, on_error="fail").continued == 85
    start(root, tmp_path / "reference.lmdb", on_error="fail")
    assert content(path) == content(tmp_path / "reference.lmdb")


def stop_behind(count: int) -> Any:
    def progress(now: ConversionProgress) -> None:
        if now.done > count:
            raise InterruptionError

    return progress


def test_a_file_that_became_bad_is_not_mended_but_put_back(tree: Path, tmp_path: Path) -> None:
    root, path = tmp_path / "tree", tmp_path / "pack.lmdb"
    shutil.copytree(tree, root)
    last = root / "class_02" / "0007.jpg"
    (root / "class_02" / "bad.png").unlink()
    kept = shutil.copy2(last, tmp_path / "kept.jpg")
    with pytest.raises(ImageChangedError, match=r"class_02/0007\.jpg: changed since it was listed"):
        start(root, path, on_error="fail", workers=1, progress=lambda progress: last.write_text("bad"))
    solid(last)
    with pytest.raises(ResumeError, match=r"1 image was changed: class_02/0007\.jpg"):
        start(root, path, on_error="fail")
    shutil.copy2(kept, last)
    assert start(root, path, on_error="fail").continued
    start(root, tmp_path / "reference.lmdb", on_error="fail")
    assert content(path) == content(tmp_path / "reference.lmdb")


def test_a_csv_list_is_its_rows_and_the_files(tree: Path, tmp_path: Path) -> None:
    path, table = tmp_path / "pack.lmdb", tmp_path / "list.csv"
    root = tmp_path / "tree"
    shutil.copytree(tree, root)
    rows = [f"{name},{name[:8]}\n" for name in imagefolder_source(root).names]

    def begin(rows: list[str], **options: Any) -> Summary:
        table.write_text("path,label\n" + "".join(rows))
        return convert(csv_source(root, table), path, on_error="skip", workers=1, **options)

    with pytest.raises(InterruptionError):
        begin(rows, progress=Stop(3))
    for changed, message in [
        ([*rows[:-1], rows[-1].replace(",class_02", ",class_00")], "1 image has another class: class_02/bad.png"),
        (rows[:-1], "1 image was removed: class_02/bad.png"),
        ([*rows[:-2], rows[-1], rows[-2]], "\n  the images are in another order\n"),
    ]:
        with pytest.raises(ResumeError, match=message):
            begin(changed)
    solid(root / "class_02" / "0007.jpg")
    with pytest.raises(ResumeError, match=r"1 image was changed: class_02/0007\.jpg"):
        begin(rows)
    shutil.copy2(tree / "class_02" / "0007.jpg", root / "class_02" / "0007.jpg")
    os.utime(table, ns=(1, 1))
    assert begin(rows).continued > 0


def test_a_pack_is_known_by_its_identity(tree: Path, tmp_path: Path) -> None:
    root, source, path = tmp_path / "tree", tmp_path / "source.lmdb", tmp_path / "pack.lmdb"
    shutil.copytree(tree, root)
    start(root, source)
    kept = shutil.copytree(root, tmp_path / "kept")
    with pytest.raises(InterruptionError):
        convert(pack_source(source), path, workers=1, progress=Stop(3))
    solid(root / "class_02" / "0007.jpg")  # another image of the same name
    start(root, source, overwrite=True)
    with pytest.raises(ResumeError, match=r"pack 0 of the source was \w{12} and is now \w{12}, and .* the same names"):
        convert(pack_source(source), path)
    moved = tmp_path / "moved.lmdb"
    start(kept, moved)
    assert convert(pack_source(moved), path).continued > 0  # the same pack, made again elsewhere
    assert content(path) == content(moved)


def test_a_file_that_was_left_out_and_then_mended_is_not_lost(tree: Path, tmp_path: Path) -> None:
    root, path = tmp_path / "tree", tmp_path / "pack.lmdb"
    shutil.copytree(tree, root)
    (root / "class_00" / "0000.jpg").write_text("bad")
    with pytest.raises(InterruptionError):
        start(root, path, progress=Stop(5))
    shutil.copy(tree / "class_00" / "0000.jpg", root / "class_00" / "0000.jpg")
    with pytest.raises(ResumeError, match=r"1 image was changed: class_00/0000\.jpg"):
        start(root, path)
    summary = start(root, path, fresh=True)
    assert [entry["name"] for entry in summary.manifest.skipped] == ["class_02/bad.png"]


def journal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial") / "journal.jsonl"


def test_torn_journals(tree: Path, tmp_path: Path) -> None:
    path, reference = tmp_path / "pack.h5", tmp_path / "reference.h5"
    start(tree, reference)
    for _ in range(3):
        with pytest.raises(InterruptionError):
            start(tree, path, progress=Stop(3))
    saved = tmp_path / "saved"
    shutil.copytree(f"{path}.partial", saved)
    lines = (saved / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    done = [0, *(len(json.loads(line[9:])["entries"]) for line in lines[1:])]
    flipped = bytearray(lines[2])
    flipped[len(flipped) // 2] ^= 1
    cases = [
        (b"".join(lines[:3]) + lines[3][:-1], sum(done[:3])),
        (b"".join(lines[:3]) + lines[3][:20], sum(done[:3])),
        (b"".join(lines[:3]) + lines[3][:3], sum(done[:3])),
        (b"".join(lines) + b"\n", sum(done)),
        (b"".join(lines) + b"\0" * 4096, sum(done)),
        (b"".join(lines) + b"garbage\xff\n", sum(done)),
        (lines[0] + lines[1] + bytes(flipped) + lines[3], done[1]),
        (lines[0], 0),
        (lines[0][:30], 0),
        (b"", 0),
    ]
    for text, continued in cases:
        shutil.copytree(saved, f"{path}.partial", dirs_exist_ok=True)
        journal_of(path).write_bytes(text)
        # A second interruption shows that the journal continues after the last good line.
        with pytest.raises(InterruptionError):
            start(tree, path, progress=Stop(1))
        summary = start(tree, path)
        assert summary.continued > continued
        assert content(path) == content(reference)
        path.unlink()


@formats
def test_bytes_behind_the_last_checkpoint_are_dropped(tree: Path, tmp_path: Path, format: str) -> None:
    path, reference = tmp_path / f"pack{SUFFIXES[format]}", tmp_path / f"ref{SUFFIXES[format]}"
    start(tree, reference)
    with pytest.raises(InterruptionError):
        start(tree, path, progress=Stop(6))
    pack = path.with_name(f"{path.name}.partial") / "pack"
    if pack.is_dir():
        (pack / "manifest.json").write_text("left behind")
        (pack / "shard-09999.pth").write_text("left behind")
        pack = max(pack.glob("shard-000*"))
    with open(pack, "ab") as file:
        file.write(b"x" * 100_000)
    assert start(tree, path).continued > 0
    assert content(path) == content(reference)


@formats
def test_a_partial_that_lost_bytes_is_refused(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    with pytest.raises(InterruptionError):
        start(tree, path, progress=Stop(6))
    pack = path.with_name(f"{path.name}.partial") / "pack"
    os.truncate(min(pack.glob("shard-*")) if pack.is_dir() else pack, 5000)
    with pytest.raises(DestinationError, match="fresh=True"):
        start(tree, path)
    start(tree, path, fresh=True)
    assert verify(path) == []


HOLDER = """
import sys, pathlib
from packer._conversion.convert import convert
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer._sources.table_source import csv_source
def hold(progress):
    print("holding", flush=True)
    sys.stdin.readline()
convert(imagefolder_source(pathlib.Path(sys.argv[1])), sys.argv[2], on_error="skip", workers=2, progress=hold)
"""


@posix
def test_the_lock(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    line = [sys.executable, "-c", HOLDER, str(tree), str(path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        for options in ({}, {"fresh": True}):
            with pytest.raises(PackLockedError, match=rf"pack\.lmdb: process {holder.pid} on .* is writing it"):
                start(tree, path, **options)
        result = packer("convert", tree, path)
        assert result.returncode == 5
        assert result.stderr.startswith(f"packer: {path}: process {holder.pid} on ")
        assert result.stderr.count("\n") == 1
        holder.kill()
    assert (tmp_path / "pack.lmdb.partial" / "lock").exists()
    start(tree, path)
    assert verify(path) == []


@formats
def test_killed_between_the_renaming_and_the_end(tree: Path, tmp_path: Path, format: str) -> None:
    path, saved = tmp_path / f"pack{SUFFIXES[format]}", tmp_path / "saved"
    with pytest.raises(InterruptionError):
        start(tree, path, progress=Stop(6))
    shutil.copytree(f"{path}.partial", saved, ignore=shutil.ignore_patterns("pack"))
    start(tree, path)
    reference = content(path)
    for options in ({}, {"recipe": Recipe("raw")}):
        shutil.copytree(saved, f"{path}.partial")
        start(tree, path, overwrite=True, **options)
        assert (content(path) == reference) == (not options)
        assert not os.path.exists(f"{path}.partial")


@pytest.mark.skipif(os.name == "nt", reason="needs directories that can be moved while a file in them is open")
def test_an_empty_directory_goes_with_its_lock_and_no_other_one(tmp_path: Path) -> None:
    destination = tmp_path / "pack.lmdb"
    first = Workspace(destination)
    first.close()
    assert os.listdir(tmp_path) == []
    second = Workspace(destination)
    first.close()  # again: the directory is the second one's by now
    assert second.directory.is_dir()
    (second.directory / "kept").touch()
    second.close()
    assert sorted(os.listdir(second.directory)) == ["kept", "lock"]
    third = Workspace(destination)
    (third.directory / "kept").unlink()
    os.rename(third.directory, tmp_path / "away")
    fourth = Workspace(destination)
    third.close()  # where its directory was, there is another one
    assert fourth.directory.is_dir()
    fourth.close()
    assert os.listdir(tmp_path) == ["away"]
