"""Staging, warming and locking in memory: one exact copy of a pack on each node, for any number of processes."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import mmap
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from packer import open_dataset
from packer._conversion.convert import convert
from packer._conversion.workspace import Workspace
from packer._datasets import staging
from packer._datasets.staging import lock_in_memory, stage, unstage, warm
from packer._formats import files as copying, open_pack
from packer._formats.parts import join_parts
from packer._packs.repair import repair
from packer._sources.imagefolder import imagefolder_source
from packer._storage.files import try_lock
from packer._table import Sample
from packer.errors import DestinationError, NotAPackError, PackError
from tests.command import python, started
from tests.commandserver import Program
from tests.conftest import Trees
from tests.loader.rank import stage_and_look
from tests.samples import SUFFIXES, write_pack


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=2, per_class=4, size=(40, 48))


@pytest.fixture(params=["lmdb", "h5", "pth"])
def pack(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Path:
    path = tmp_path / f"pack.{request.param}"
    convert(imagefolder_source(tree), path)
    return path


def files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in files(path))


def digest(path: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files(path))).hexdigest()


def test_a_staged_pack_is_the_pack(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"node does not exist\. Make it first"):
        stage(pack, tmp_path / "node" / "disk")
    assert not (tmp_path / "node").exists()
    (tmp_path / "node").mkdir()
    staged = stage(pack, tmp_path / "node" / "disk")
    assert digest(staged) == digest(pack)
    before = os.stat(staged).st_ino
    assert stage(pack, tmp_path / "node" / "disk") == staged
    assert os.stat(staged).st_ino == before
    dataset = open_dataset(pack, stage=tmp_path / "node" / "disk", cache="ram")
    assert dataset.reader.path == str(staged)
    assert dataset[3][1] == open_dataset(pack)[3][1]


def test_another_pack_of_the_same_name_is_staged_beside_it(tree: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "pack.lmdb", tmp_path / "other" / "pack.lmdb"
    second.parent.mkdir()
    convert(imagefolder_source(tree), first)
    convert(imagefolder_source(tree).limited(3), second)
    copies = [stage(path, tmp_path / "disk") for path in (first, second)]
    assert copies[0] != copies[1]
    assert [digest(copy) for copy in copies] == [digest(first), digest(second)]


def test_what_a_killed_process_left_is_replaced(pack: Path, tmp_path: Path) -> None:
    staged = stage(pack, tmp_path / "disk")
    partial = staged.with_name(staged.name + ".staging")
    staged.rename(partial)
    assert stage(pack, tmp_path / "disk") == staged
    assert digest(staged) == digest(pack)
    assert not partial.exists()


def test_what_a_killed_process_left_of_another_pack_is_removed_unless_it_is_being_written(
    pack: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    abandoned, locked, foreign = (
        disk / f"{stem}{pack.suffix}.staging"
        for stem in ("pack-0123456789ab-0123456789ab", "pack-ba9876543210-0123456789ab", "pack-mine")
    )
    abandoned.mkdir()
    (abandoned / "shard").write_bytes(b"half a copy")
    (disk / f"pack-cccccccccccc-cccccccccccc{pack.suffix}.staging.lock").touch()
    locked.write_bytes(b"half a copy")
    foreign.write_bytes(b"of somebody")
    with open(locked.with_name(locked.name + ".lock"), "ab") as lock:
        assert try_lock(lock)
        staged = stage(pack, disk)
    assert {path.name for path in disk.iterdir()} == {
        staged.name,
        locked.name,
        locked.with_name(locked.name + ".lock").name,
        foreign.name,
    }


def test_a_running_conversion_of_a_name_with_a_date_keeps_its_work(tree: Path, tmp_path: Path) -> None:
    """Twelve digits in a name may be a date with a time, and twice twelve a period; they need not be a copy's."""
    convert(imagefolder_source(tree), tmp_path / "train.lmdb")
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    for name in ("train-202411221530.lmdb", "train-202411221530-202411230800.lmdb"):
        with Workspace(disk / name) as workspace:
            workspace.journal.write_bytes(b"hours of work")
            (disk / f"{name}.lock").write_bytes(b"of somebody")
            stage(tmp_path / "train.lmdb", disk)
            assert unstage(tmp_path / "train.lmdb", disk, all_versions=True) > 0
            assert workspace.journal.read_bytes() == b"hours of work"
            assert (disk / f"{name}.lock").read_bytes() == b"of somebody"


@pytest.mark.usefixtures("quick_spawn")
def test_several_ranks_that_start_at_once_make_one_copy(pack: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.starmap(stage_and_look, [(str(pack), str(tmp_path / "disk"))] * 8)
    assert len(set(found)) == 1
    assert digest(Path(found[0][0])) == digest(pack)


def test_staging_says_how_far_it_is(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_CHUNK", 1000)
    seen: list[tuple[int, int]] = []
    staged = stage(pack, tmp_path / "disk", progress=lambda done, total: seen.append((done, total)))
    assert digest(staged) == digest(pack)
    done = [done for done, _ in seen]
    assert done == sorted(set(done))
    assert len(done) >= size(pack) // 1000
    assert seen[-1] == (size(pack), size(pack))


def test_who_waits_sees_how_far_the_other_is(tree: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack.lmdb"
    convert(imagefolder_source(tree), pack)
    staged = stage(pack, tmp_path / "disk")
    staged.rename(partial := staged.with_name(staged.name + ".staging"))
    os.truncate(partial, 100)
    seen: list[tuple[int, int]] = []
    waited = threading.Event()

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        waited.set()

    with open(staged.with_name(staged.name + ".staging.lock"), "a") as other:
        assert try_lock(other)
        waiting = threading.Thread(target=stage, args=(pack, tmp_path / "disk"), kwargs={"progress": progress})
        waiting.start()
        assert waited.wait(60)
    waiting.join(60)
    assert seen[0] == (100, size(pack))
    assert seen[-1] == (size(pack), size(pack))
    assert digest(staged) == digest(pack)


def test_warming_counts_all_bytes_of_a_pack(pack: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert warm(pack, progress=lambda done, total: seen.append((done, total))) == size(pack)
    assert seen[-1] == (size(pack), size(pack))


def test_errors_are_those_of_packs(tmp_path: Path) -> None:
    (tmp_path / "file.lmdb").write_bytes(b"no pack")
    for function in (warm, lock_in_memory, lambda path: stage(path, tmp_path / "disk")):
        with pytest.raises(NotAPackError):
            function(tmp_path / "file.lmdb")


def test_a_disk_that_is_too_small_is_refused_before_copying(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(DestinationError, match=r"[1-9][0-9.]* kB are needed and 10 B are free"):
        stage(pack, tmp_path / "disk")
    assert os.listdir(tmp_path / "disk") == []


def write_parts(path: Path, parts: Sequence[Sequence[Sample]], format: str = "pth") -> Path:
    path.mkdir()
    names = [f"part-{number:05d}{SUFFIXES[format]}" for number in range(len(parts))]
    for name, samples in zip(names, parts, strict=True):
        write_pack(path / name, format, samples)
    join_parts(path, names, {})
    return path


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files to 10 MB, so that a failing test does not fill the disk."""
    resource = pytest.importorskip("resource", reason="needs limits on the size of files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_only_what_belongs_to_a_pack_is_read(tree: Path, tmp_path: Path) -> None:
    """A pack that was unpacked from a tar may contain links and foreign files."""
    pack, secret = tmp_path / "pack.pth", tmp_path / "secret"
    convert(imagefolder_source(tree), pack)
    parts = write_parts(tmp_path / "parts.pth", [[Sample("a/b", 0, b"data", 1, 1)]])
    secret.write_bytes(b"secret")
    for path in (pack, parts):
        belongs = {file.relative_to(path) for file in path.rglob("*") if file.is_file()}
        total = sum((path / name).stat().st_size for name in belongs)
        (path / "notes.txt").symlink_to(secret)
        (path / "more").symlink_to(tmp_path)
        (path / "endless").symlink_to("/dev/zero")
        (path / "own.txt").write_bytes(b"notes")
        copy = stage(path, tmp_path / "disk")
        assert {file.relative_to(copy) for file in copy.rglob("*") if not file.is_dir()} == belongs
        os.mkfifo(path / "fifo")
        assert warm(path) == total
        lock_in_memory(path).close()


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_a_copy_is_no_more_readable_than_the_pack(pack: Path, tmp_path: Path) -> None:
    for file in files(pack):
        file.chmod(0o600)
    (tmp_path / "disk").mkdir()
    assert {stat.S_IMODE(file.stat().st_mode) for file in files(stage(pack, tmp_path / "disk"))} == {0o600}
    new = tmp_path / "new"
    stage(pack, new)
    assert stat.S_IMODE(new.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_in_a_shared_directory_nothing_is_believed(pack: Path, tmp_path: Path) -> None:
    """The names of copies are predictable: files and links that other users made are neither read nor written."""
    own, shared, victim = tmp_path / "own", tmp_path / "shared", tmp_path / "victim"
    victim.write_bytes(b"whole")
    own.mkdir(mode=0o755)
    shared.mkdir()
    shared.chmod(0o1777)
    copy = stage(pack, own)
    assert copy.parent == own
    before = os.listdir(tmp_path)
    (shared / copy.name).write_bytes(b"evil")
    (shared / f"{copy.name}.staging.lock").symlink_to(victim)
    (shared / f"{copy.name}.staging").symlink_to(victim)
    staged = stage(pack, shared)
    assert staged == shared / f"packer-{os.geteuid()}" / copy.name
    assert stat.S_IMODE(staged.parent.stat().st_mode) == 0o700
    assert digest(staged) == digest(pack)
    assert os.listdir(staged.parent) == [staged.name]
    assert victim.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == before
    assert stage(pack, shared) == staged


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
@pytest.mark.parametrize("kind", ["link", "file", "open to others", "of another user"])
def test_a_directory_that_is_not_ones_own_is_refused(tree: Path, tmp_path: Path, kind: str) -> None:
    pack, shared = tmp_path / "pack.lmdb", tmp_path / "shared"
    convert(imagefolder_source(tree), pack)
    shared.mkdir()
    shared.chmod(0o1777)
    own = shared / f"packer-{os.geteuid()}"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        own.touch()
    else:
        own.mkdir(mode=0o700)
        if kind == "open to others":
            own.chmod(0o770)
        elif os.geteuid() != 0:
            pytest.skip("needs to be root")
        else:
            os.chown(own, 65534, 65534)
    with pytest.raises(DestinationError, match=f"{own}: must be a directory that belongs to you"):
        stage(pack, shared)


STAGE_AS = """
import fcntl, os, sys  # the user may not be allowed to read Python's modules, so they are imported before
from packer._formats import open_pack
from packer._datasets.staging import stage
open_pack(sys.argv[1])
os.setgroups([]), os.setgid(1000), os.setuid(1000)
try: print(stage(sys.argv[1], sys.argv[2]))
except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root, to act as two users")
@pytest.mark.parametrize(
    ("owner", "mode", "kind", "complaint"),
    [
        (0, 0o1777, "directory", None),
        (1000, 0o1777, "directory", None),
        (0, 0o1777, "link", None),
        (65534, 0o1777, "directory", "belongs to somebody else"),
        (65534, 0o1777, "parent", "belongs to somebody else"),
        (0, 0o777, "directory", "no sticky bit"),
        (0, 0o777, "parent", "no sticky bit"),
        (65534, 0o1777, "link", "is a link that belongs to another user"),
        (65534, 0o775, "parent", None),
    ],
)
def test_a_directory_where_others_could_exchange_the_copy_is_refused(
    tree: Path, owner: int, mode: int, kind: str, complaint: str | None
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # pytest's own directories are closed to the other user
        base = Path(place)
        base.chmod(0o755)
        pack = base / "pack.lmdb"
        convert(imagefolder_source(tree), pack)
        pack.chmod(0o644)
        shared = wanted = base / "shared"
        shared.mkdir()
        if kind == "parent":
            wanted = shared / "own"
            wanted.mkdir()
            os.chown(wanted, 1000, 1000)
        if kind == "link":
            wanted = base / "link"
            wanted.symlink_to(shared)
            os.lchown(wanted, owner, owner)
        else:
            os.chown(shared, owner, owner)
        shared.chmod(mode)
        ran = python(STAGE_AS, pack, wanted)
        if complaint is None:
            assert Path(ran.stdout.strip()).parent == (wanted if kind == "parent" else shared / "packer-1000")
        else:
            assert "DestinationError" in ran.stdout
            assert complaint in ran.stdout


def test_a_copy_that_is_not_whole_is_made_again(pack: Path, tmp_path: Path) -> None:
    """Programs that clean up scratch disks delete files that were not read for a long time."""
    staged = stage(pack, tmp_path / "disk")
    for file in files(staged):
        os.truncate(file, file.stat().st_size - 1)
        assert stage(pack, tmp_path / "disk") == staged
        assert digest(staged) == digest(pack)
    if staged.is_dir():
        for file in files(staged):
            file.unlink()
            assert stage(pack, tmp_path / "disk") == staged
            assert digest(staged) == digest(pack)
    assert os.listdir(tmp_path / "disk") == [staged.name]


def test_a_pack_that_was_repaired_is_copied_anew(tree: Path, tmp_path: Path) -> None:
    """Its manifest is the same as before."""
    pack = tmp_path / "pack.lmdb"
    convert(imagefolder_source(tree), pack)
    whole = pack.read_bytes()
    with open_pack(pack) as reader:
        place = int(reader.table.offset[3])
    pack.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    damaged = stage(pack, tmp_path / "disk")
    assert repair(pack, tree).left == []
    assert pack.read_bytes() == whole
    assert stage(pack, tmp_path / "disk").read_bytes() == whole
    assert damaged.exists()  # somebody may be reading it


def test_of_two_packs_with_the_same_manifest_each_has_its_copy(tree: Path, tmp_path: Path) -> None:
    """Anyone who knows a manifest can make another pack with the same manifest, name, size and time."""
    good, evil = tmp_path / "good" / "pack.lmdb", tmp_path / "evil" / "pack.lmdb"
    good.parent.mkdir()
    evil.parent.mkdir()
    convert(imagefolder_source(tree), good)
    data = bytearray(good.read_bytes())
    with open_pack(good) as reader:
        place = int(reader.table.offset[3])
    data[place : place + 4] = b"evil"
    evil.write_bytes(data)
    os.utime(evil, ns=(good.stat().st_atime_ns, good.stat().st_mtime_ns))
    stage(evil, tmp_path / "disk")
    assert digest(stage(good, tmp_path / "disk")) == digest(good)


def test_a_pack_that_grows_while_it_is_copied(pack: Path, tmp_path: Path) -> None:
    """The copy never exceeds the size that was compared with the free space."""
    last = files(pack)[-1]
    grown: list[int] = []

    def grow(done: int, total: int) -> None:
        with open(last, "ab") as file:
            file.write(bytes(1000))
        grown.append(done)

    before = size(pack)
    with pytest.raises(PackError, match="changed while it was read"):
        stage(pack, tmp_path / "disk", progress=grow)
    assert max(grown) <= before
    (left,) = (tmp_path / "disk").iterdir()
    assert left.name.endswith(".staging")


KILLED = """
import os, signal, sys
from packer._formats import files as copying
from packer._datasets.staging import stage
copying._CHUNK = 1000
def kill(done, total):
    if done >= total / 2:
        os.kill(os.getpid(), signal.SIGKILL)
stage(sys.argv[1], sys.argv[2], progress=kill)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_who_is_killed_leaves_nothing_that_the_next_one_does_not_take_away(pack: Path, tmp_path: Path) -> None:
    killed = python(KILLED, pack, tmp_path / "disk", check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(path.suffix for path in (tmp_path / "disk").iterdir()) == [".lock", ".staging"]
    staged = stage(pack, tmp_path / "disk")
    assert digest(staged) == digest(pack)
    assert os.listdir(tmp_path / "disk") == [staged.name]


def test_the_room_of_an_unfinished_copy_is_used_again(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk for one and a half packs has room for the copy, even if a killed process left an unfinished one."""
    staged = stage(pack, tmp_path / "disk")
    staged.rename(staged.with_name(staged.name + ".staging"))

    def usage(path: Path) -> object:
        used = sum(file.stat().st_size for file in (tmp_path / "disk").rglob("*") if file.is_file())
        return types.SimpleNamespace(free=size(pack) * 3 // 2 - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert digest(stage(pack, tmp_path / "disk")) == digest(pack)


def test_an_empty_file_of_a_pack_is_a_file(tmp_path: Path) -> None:
    pack = write_parts(tmp_path / "pack.lmdb", [[]], "lmdb")
    assert (pack / "table.bin").stat().st_size == 0
    lock_in_memory(pack).close()
    with open_pack(stage(pack, tmp_path / "disk")) as reader:
        assert len(reader) == 0


def test_home_is_found(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    convert(imagefolder_source(tree), tmp_path / "pack.lmdb")
    dataset = open_dataset("~/pack.lmdb", stage="~/disk")
    assert Path(dataset.reader.path).parent == tmp_path / "disk"
    assert warm("~/pack.lmdb") == size(tmp_path / "pack.lmdb")


def locked(process: int | None = None) -> int:
    """Return how many bytes a process has locked in memory."""
    status = Path(f"/proc/{process or os.getpid()}/status").read_text()
    return int(re.findall(r"VmLck:\s*(\d+) kB", status)[0]) * 1024


def resident(path: Path) -> bool:
    """Whether the page cache contains the whole pack; the check does not change the cache."""
    library = ctypes.CDLL(None)
    for file in files(path):
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            pages = (ctypes.c_ubyte * -(-len(mapping) // mmap.PAGESIZE))()
            address = np.frombuffer(mapping, np.uint8).ctypes.data
            assert library.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), pages) == 0
        if not all(page & 1 for page in pages):
            return False
    return True


def drop(path: Path) -> None:
    """Ask the system to drop a pack from the page cache."""
    for file in files(path):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def may_lock() -> bool:
    if sys.platform != "linux":
        return False
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return os.geteuid() == 0 or limit == resource.RLIM_INFINITY or limit >= 4 << 20


locks_memory = pytest.mark.skipif(not may_lock(), reason="needs Linux and a limit on locked memory of 4 MB (ulimit -l)")


@locks_memory
def test_what_is_kept_is_locked_and_given_back(pack: Path) -> None:
    before = locked()
    kept = lock_in_memory(pack)
    assert kept.size == size(pack)
    assert locked() >= before + size(pack)
    kept.close()
    assert locked() == before
    assert kept.size == 0


@locks_memory
def test_a_dataset_keeps_its_pack_and_leaks_nothing(pack: Path) -> None:
    open_dataset(pack, cache="ram")
    gc.collect()
    process = psutil.Process()
    before = locked(), process.num_fds(), len(process.memory_maps(grouped=False))
    for _ in range(20):
        dataset = open_dataset(pack, cache="ram")
        assert locked() >= before[0] + size(pack)
        again = pickle.loads(pickle.dumps(dataset))
        del dataset
        assert locked() == before[0]  # a copy in a worker locks nothing
        assert len(again) == 8
        del again
    fds, maps = process.num_fds(), len(process.memory_maps(grouped=False))
    assert locked() == before[0]
    assert fds <= before[1]
    assert maps <= before[2] + 5


@contextmanager
def keeper(pack: Path) -> Iterator[Program]:
    """Start a process that keeps a pack locked in memory until it ends."""
    code = (
        "import sys; from packer._datasets.staging import lock_in_memory\n"
        "kept = lock_in_memory(sys.argv[1]); print(kept.size, flush=True); input()"
    )
    with started(code, pack) as process:
        assert int(process.stdout.readline()) == size(pack)
        yield process


@locks_memory
def test_processes_share_what_the_last_one_frees(pack: Path, disk_tmp: Path) -> None:
    pack = Path(shutil.move(pack, disk_tmp))
    drop(pack)
    if resident(pack):
        pytest.skip("needs a file system that drops pages when asked (TMPDIR=... sets another than a RAM disk)")
    with keeper(pack) as first, keeper(pack) as second:
        drop(pack)
        assert resident(pack)
        assert min(locked(first.pid), locked(second.pid)) >= size(pack)
        first.send_signal(signal.SIGKILL)
        first.wait()
        drop(pack)
        assert resident(pack)
    drop(pack)
    assert not resident(pack)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_system_that_locks_nothing_is_said(tree: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack.lmdb"
    convert(imagefolder_source(tree), pack)
    code = (  # capset takes all of root's powers away: with them the limit does not bind
        "import ctypes, resource, sys, warnings; resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))\n"
        "assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()) == 0\n"
        "from packer import open_dataset\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    dataset = open_dataset(sys.argv[1], cache='ram')\n"
        "print(dataset[3][1], *{str(warning.message) for warning in caught if warning.category is RuntimeWarning})"
    )
    output = python(code, pack).stdout
    assert output.startswith(f"0 {pack}: was read into the page cache but could not be locked there")
    assert f"(ulimit -l) to {-(-size(pack) // 1024)} kB" in output


def test_what_does_not_fit_is_refused_before_reading(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "available_memory", lambda: size(pack))
    monkeypatch.setattr(copying.PackFiles, "chunks", lambda pack, progress: pytest.fail("was read"))
    with pytest.raises(PackError, match=r"too much for .* of memory"):
        lock_in_memory(pack)
