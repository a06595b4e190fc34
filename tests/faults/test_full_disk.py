"""If a write fails, the error names the path and the remedy, an earlier pack stays, the same command continues."""

from __future__ import annotations

import errno
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import packer._conversion.convert
import packer._conversion.pipeline
import packer._conversion.workspace
from packer._conversion.convert import convert
from packer._conversion.partition import Partition
from packer._conversion.recipe import Recipe
from packer._conversion.request import ConversionRequest
from packer._datasets.staging import stage
from packer._formats import hdf5
from packer._sources.imagefolder import imagefolder_source
from packer._storage import files
from packer._storage.files import disk_size
from packer._table import Sample
from packer.errors import DestinationError
from tests.command import packer as run_packer
from tests.samples import SUFFIXES, content, write_pack

formats = pytest.mark.parametrize("format", SUFFIXES)

LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
runpy.run_module("packer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs limits on the size of files")
def test_a_limit_on_the_size_of_files(many: Path, tmp_path: Path) -> None:
    """The same calls fail as on a full disk, and the system also sends a signal."""
    path, reference = tmp_path / "pack.lmdb", tmp_path / "reference.lmdb"
    convert(imagefolder_source(many).limited(3), path)
    old = content(path)
    arguments = ["convert", str(many), str(path), "--overwrite"]
    result = subprocess.run([sys.executable, "-c", LIMITED, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"packer: {path}.partial/pack")
    assert "cannot be written: File too large. The limit on the size of files (ulimit -f) is too low" in line
    assert content(path) == old
    assert "continued after" in run_packer(*arguments).stdout
    convert(imagefolder_source(many), reference)
    assert content(path) == content(reference)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 30 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(directory)]
    if (
        sys.platform != "linux"
        or os.geteuid() != 0
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs to be root on Linux, and allowed to mount")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a conversion begin however little space is free."""
    monkeypatch.setattr(packer._conversion.convert, "_free", lambda directory: None)


@formats
def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    many: Path, small_disk: Path, format: str
) -> None:
    path = small_disk / f"pack{SUFFIXES[format]}"
    other = small_disk / "other"
    needed = sum(file.stat().st_size for file in many.rglob("*.*"))
    free = shutil.disk_usage(small_disk).free
    other.write_bytes(bytes(free - int(0.95 * needed)))
    with pytest.raises(DestinationError, match=rf"the images need {needed / 1e6:,.1f} MB, but the disk has .* MB left"):
        convert(imagefolder_source(many), path)
    assert os.listdir(small_disk) == ["other"]
    job = Partition(ConversionRequest(src=many, dst=path, parts=3))
    with pytest.raises(DestinationError, match="but the disk has"):
        job.begin(lambda: imagefolder_source(many), {})
    assert os.listdir(small_disk) == ["other"]
    for parts in ([], ["--parts", 3]):
        result = run_packer("convert", many, path, "--ignore-free-space", *parts)
        assert result.returncode == 1
        assert "No space left on device" in result.stderr
        shutil.rmtree(f"{path}.partial")
    other.write_bytes(bytes(free - 2 * needed))
    assert convert(imagefolder_source(many), path).continued == 0


def test_an_estimate_for_a_full_disk_predicts_the_lack_of_room(many: Path, small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free - 40_000))
    result = run_packer("estimate", many, small_disk / "pack.lmdb", "--seconds", "0.5")
    assert (result.returncode, os.listdir(small_disk)) == (0, ["other"])
    assert re.search(r"room +[\d.]+ kB free: up to [\d.]+ [kM]B too little", result.stdout)
    assert "the disk of DST has no space for the trials: they ran in" in result.stdout


@formats
@pytest.mark.usefixtures("unaware")
def test_a_full_disk(many: Path, small_disk: Path, tmp_path: Path, format: str) -> None:
    path, reference = small_disk / f"pack{SUFFIXES[format]}", tmp_path / f"reference{SUFFIXES[format]}"
    convert(imagefolder_source(many), reference)
    convert(imagefolder_source(many).limited(3), path)
    old = content(path)
    other = small_disk / "other"
    for fraction in (0.4, 0.8):
        free = shutil.disk_usage(small_disk).free + (disk_size(f"{path}.partial/pack") if fraction > 0.5 else 0)
        other.write_bytes(bytes(int(free - fraction * disk_size(reference))))
        with pytest.raises(DestinationError, match=r"No space left on device. Free some .* MB more are") as caught:
            convert(imagefolder_source(many), path, overwrite=True)
        assert str(caught.value).startswith(f"{path}.partial/")
        assert content(path) == old
        other.unlink()
    assert convert(imagefolder_source(many), path, overwrite=True).continued > 0
    assert content(path) == content(reference)
    assert os.listdir(small_disk) == [path.name]


@formats
@pytest.mark.usefixtures("unaware")
def test_what_was_done_is_recorded_wherever_the_disk_was_full(
    many: Path, small_disk: Path, tmp_path: Path, format: str, sweep: int
) -> None:
    """The journal's last line needs space too, after the samples have taken all of it."""
    path, reference = small_disk / f"pack{SUFFIXES[format]}", tmp_path / f"reference{SUFFIXES[format]}"
    convert(imagefolder_source(many), reference)
    other = small_disk / "other"
    for percent in range(40, 80, 16 if sweep == 1 else 2):  # before the first checkpoint
        free = shutil.disk_usage(small_disk).free
        other.write_bytes(bytes(int(free - percent / 100 * disk_size(reference))))
        with pytest.raises(DestinationError, match="No space left on device"):
            convert(imagefolder_source(many), path)
        other.unlink()
        assert convert(imagefolder_source(many), path).continued > 0, percent
        assert content(path) == content(reference)
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_disk_that_fills_up_while_a_pack_is_staged(small_disk: Path, tmp_path: Path) -> None:
    """The next copy may use the space of the unfinished one."""
    pack, disk = write_pack(tmp_path / "pack.lmdb", "lmdb", [Sample("a/b", 0, bytes(20 << 20), 1, 1)]), small_disk / "d"
    other = small_disk / "other"

    def fill(done: int, total: int) -> None:
        if not other.exists():
            other.write_bytes(bytes(shutil.disk_usage(small_disk).free - (2 << 20)))

    with pytest.raises(DestinationError, match="No space left on device") as failed:
        stage(pack, disk, progress=fill)
    os.truncate(other, 1 << 20)
    staged = stage(pack, disk)
    assert failed.tb is not None  # keeps its frames, and all that they left open, alive
    assert staged.read_bytes() == pack.read_bytes()
    assert os.listdir(disk) == [staged.name]


def test_a_disk_that_fills_up_while_a_pack_is_exported(small_disk: Path, tmp_path: Path) -> None:
    samples = [Sample(f"a/{number}", 0, bytes([number]) * (1 << 20), 1, 1) for number in range(8)]
    pack, out, other = write_pack(tmp_path / "pack.lmdb", "lmdb", samples), small_disk / "out", small_disk / "other"
    other.write_bytes(bytes(shutil.disk_usage(small_disk).free - (5 << 20)))
    result = run_packer("export", pack, out)
    assert result.returncode == 1
    assert "No space left on device. Free some space, or use another disk; then run the same command" in result.stderr
    other.unlink()
    assert run_packer("export", pack, out).stdout == f"{out}: 8 files\n"
    assert {name: data for name, data in content(out).items() if data} == {s.name: s.data for s in samples}


class Failing:
    """Makes a system call fail from the n-th time on, as if the disk were gone."""

    def __init__(self, at: int) -> None:
        self._at, self.count = at, 0
        self.failed = False

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.count += 1
            if self.count > self._at:
                self.failed = True
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*arguments)

        return counted

    def open(self, path: Path, mode: str, buffering: int = -1) -> Any:
        """Open a file whose writes are counted."""
        return FailingFile(path, "r+", self) if mode == "r+b" else open(path, mode, buffering)


class FailingFile(io.FileIO):
    def __init__(self, path: Path, mode: str, failing: Failing) -> None:
        super().__init__(path, mode)
        self._counted = failing.wrapped(super().write)

    def write(self, data: Any) -> int:
        return self._counted(data)  # type: ignore[no-any-return]


def failure_of(action: Callable[[], object]) -> str:
    try:
        action()
    except DestinationError as error:
        return str(error)
    return ""


_NEVER = sys.maxsize
RARE = ("pwritev", "ftruncate", "replace")
CALLS = ("writev", "write", "fsync", *RARE)


@pytest.mark.parametrize(
    ("format", "call"), [*((format, call) for format in SUFFIXES for call in CALLS), ("hdf5", "structure")]
)
def test_a_disk_that_fails(  # noqa: PLR0917
    tree: Path, tmp_path: Path, format: str, call: str, monkeypatch: pytest.MonkeyPatch, sweep: int
) -> None:
    """It fails from some call on (with --faults, from each). The same command then makes the pack of a whole run."""
    path, reference = tmp_path / f"pack{SUFFIXES[format]}", tmp_path / f"reference{SUFFIXES[format]}"
    recipe = Recipe("keep" if call == "pwritev" else "raw")
    options = {"on_error": "skip", "workers": 1, "overwrite": True, "recipe": recipe}
    convert(imagefolder_source(tree), reference, **options)
    earlier = tmp_path / "earlier"
    convert(imagefolder_source(tree).limited(2), earlier, format=format)
    old = content(earlier)
    monkeypatch.setattr(packer._conversion.workspace, "_CHECKPOINT_SAMPLES", 5)
    monkeypatch.setattr(packer._conversion.pipeline, "_MAX_BATCH", 5)
    if call == "pwritev":  # writes past the cache
        monkeypatch.setattr(packer._conversion.convert, "available_memory", lambda: 8)
        monkeypatch.setattr(files, "_KNOWN", hasattr(os, "pwritev"))
    if call == "write":  # as on a system without writev
        monkeypatch.delattr(os, "writev", raising=False)

    def attempt(at: int) -> tuple[Failing, str]:
        if path.is_dir():
            shutil.rmtree(path)
        (shutil.copytree if earlier.is_dir() else shutil.copy)(earlier, path)
        failing = Failing(at)
        with monkeypatch.context() as patch:
            if call == "structure":  # libhdf5 writes through a file object
                patch.setattr(hdf5, "open", failing.open, raising=False)
            else:
                patch.setattr(os, call, failing.wrapped(getattr(os, call)))
            return failing, failure_of(lambda: convert(imagefolder_source(tree), path, **options))

    failures, count = 0, attempt(_NEVER)[0].count
    # Two steps in turn, because calls of a few kinds take turns; then all of the commit.
    some = {*itertools.takewhile(lambda at: at < count, itertools.accumulate(itertools.cycle((2, 3)), initial=0))}
    for at in range(count + 3) if call in RARE or sweep > 1 else sorted(some | {*range(max(0, count - 6), count + 3)}):
        failing, said = attempt(at)
        if not failing.failed:
            break
        assert str(tmp_path) in said
        assert "Input/output error" in said
        failures += 1
        # The last sync is that of the directory, after the pack has its name.
        assert content(path) == old or (call == "fsync" and content(path) == content(reference))
        convert(imagefolder_source(tree), path, **options)
        assert content(path) == content(reference), at
        assert not os.path.exists(f"{path}.partial")
    assert failures
    assert content(path) == content(reference)
