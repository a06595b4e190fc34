"""Failures of a store, a disk or a process: right bytes, or one line that names the object and the remedy."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from packer._storage.packfile import FileBytes
from packer._storage.remote import blocks, cache, client, client as fetcherprocess
from packer._storage.remote.cache import BLOCK, DATA_AT, SEGMENT, Segment
from packer._storage.remote.place import RemoteFile
from packer._storage.remote.urls import RemoteSettings, choose
from packer.errors import RemoteError
from tests.command import python, started
from tests.storage.remote.objects import Asked, ObjectServer, _Handler, serving

pytest.importorskip("obstore", reason="needs obstore")

DATA = np.random.default_rng(1).bytes(3_000_001)
NAME = "b/train.lmdb"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with serving({NAME: DATA}) as served:
        yield served


@pytest.fixture
def kept(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def opened(server: ObjectServer, cache_dir: str | None, seconds: float = 10.0) -> RemoteFile:
    return RemoteFile(f"{server.url}/{NAME}", settings=RemoteSettings(cache_dir, 1 << 30, seconds))


def forget() -> None:
    """Make this process like a new one: nothing is open, and no checksum was compared."""
    blocks._opened.clear()
    fetcherprocess._state.memory = fetcherprocess.Memory(fetcherprocess.default_limit())
    fetcherprocess._state.mark ^= 2


def once(fault: Callable[[_Handler, Asked], None], times: int = 2) -> Callable[[_Handler, Asked], bool]:
    """Fail the first `times` requests, and let the server answer the others."""
    left = [times]

    def fails(handler: _Handler, asked: Asked) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            fault(handler, asked)
        return left[0] >= 0

    return fails


PASSING = {
    "503": lambda h, a: h.refuse(503, "ServiceUnavailable"),
    "SlowDown": lambda h, a: h.refuse(503, "SlowDown"),
    "429": lambda h, a: h.refuse(429, "TooManyRequests"),
    "500": lambda h, a: h.refuse(500, "InternalError"),
    "cut": lambda h, a: h.give(a, body=DATA[:70_000], says=900_000, cut=True),
    "whole": lambda h, a: h.give(a, whole=True),
    "short": lambda h, a: h.give(a, body=DATA[a.begin : a.begin + 40_000]),
    "long": lambda h, a: h.give(a, body=DATA + DATA),
    "closed": lambda h, a: h.cut(),
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("disk", [True, False], ids=["disk", "memory"])
def test_what_passes_is_tried_again(server: ObjectServer, kept: str, fault: str, disk: bool) -> None:
    file = opened(server, kept if disk else None)
    server.faults.append(once(PASSING[fault]))
    assert file.read(100_000, 900_000) == DATA[100_000:1_000_000]
    forget()


def test_a_signed_url_is_tried_again(server: ObjectServer, kept: str) -> None:
    """The URL contains the word Credential, and so do its errors; they are not errors about credentials."""
    url = f"{server.url}/{NAME}?X-Amz-Credential=key&X-Amz-Signature=00"
    file = RemoteFile(url, settings=RemoteSettings(kept, 1 << 30, 10.0))
    server.faults.append(once(PASSING["503"], 4))
    assert file.read(500_000, 70_000) == DATA[500_000:570_000]


STAYING = {
    "403": (lambda h, a: h.refuse(403, "ExpiredToken"), "access is denied .403 ExpiredToken..*"),
    "401": (lambda h, a: h.refuse(401, "Unauthorized"), "access is denied"),
    "404": (lambda h, a: h.refuse(404, "NoSuchKey"), "no such object"),
    "400": (lambda h, a: h.refuse(400, "BadRequest"), "the server refuses the request: 400"),
    "whole": (lambda h, a: h.give(a, whole=True), "sends only whole objects"),
    "503": (lambda h, a: h.refuse(503, "SlowDown"), "503 SlowDown.*PACKER_TIMEOUT"),
    "silence": (lambda h, a: h.silent(30), "no data arrived within 1 s .*PACKER_TIMEOUT"),
    "cut": (lambda h, a: h.cut(), "no data arrived within 1 s"),
}


@pytest.mark.parametrize("fault", STAYING)
def test_what_stays_is_one_line_within_the_time_limit(server: ObjectServer, kept: str, fault: str) -> None:
    answer, said = STAYING[fault]
    file = opened(server, kept, 1.0)
    server.faults.append(lambda h, a: answer(h, a) is None)
    begun = time.monotonic()
    with pytest.raises(RemoteError, match=said) as caught:
        file.read(500_000, 100)
    assert time.monotonic() - begun < 60  # and not for ever
    assert file.path in str(caught.value)
    assert "\n" not in str(caught.value)
    server.faults.clear()
    assert file.read(500_000, 100) == DATA[500_000:500_100], "what failed once is fetched when it can be"


def test_a_host_that_is_not_there(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that never answered is given up at once; one that has answered may come back within the time limit."""
    with serving({NAME: DATA}) as server:
        file = opened(server, kept, 2.0)
        url = f"{server.url}/{NAME}"
    with pytest.raises(RemoteError, match=r"no data arrived within 2 s \(the host cannot be reached\)"):
        file.read(1_000_000, 100)
    monkeypatch.setenv("PACKER_TIMEOUT", "600")
    with pytest.raises(RemoteError, match="the host cannot be reached") as caught:
        client.get(url.replace("127.0.0.1", "127.0.0.2"))
    assert "no data arrived" not in str(caught.value)


def test_silence_on_one_connection_costs_a_part_of_the_time(server: ObjectServer, kept: str) -> None:
    file = opened(server, kept, 4.0)
    server.faults.append(once(lambda h, a: h.silent(60), 1))
    assert file.read(500_000, 100) == DATA[500_000:500_100]


def test_a_body_without_an_end_is_left(server: ObjectServer, kept: str) -> None:
    def endless(handler: _Handler, asked: Asked) -> bool:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {asked.begin}-{asked.end - 1}/{len(DATA)}")
        handler.send_header("ETag", server.etag(NAME))
        handler.send_header("Content-Length", str(1 << 60))
        handler.end_headers()
        while not server.closing.is_set():
            handler.wfile.write(bytes(1 << 16))
            asked.sent += 1 << 16
        return True

    file = opened(server, kept, 30.0)  # a busy machine takes longer than a second to send the excess bytes
    server.faults.append(endless)
    with pytest.raises(RemoteError, match="more bytes than"):
        file.read(500_000, 100)


@pytest.mark.parametrize("etags", [True, False], ids=["etag", "date"])
def test_a_replaced_object_is_refused(server: ObjectServer, kept: str, etags: bool) -> None:
    server.etags = etags
    file = opened(server, kept)
    server.objects[NAME] = DATA[::-1]
    server.modified += 1
    with pytest.raises(RemoteError, match="it was replaced after it was opened"):
        file.read(1_000_000, 1000)
    with pytest.raises(RemoteError, match="replaced"):
        file.array(1_000_000, 100_000, "u1")
    assert opened(server, kept).read(1_000_000, 1000) == DATA[::-1][1_000_000:1_001_000]


def test_a_server_that_ignores_if_match_is_found_out(server: ObjectServer, kept: str) -> None:
    file = opened(server, kept)
    server.objects[NAME] = DATA[::-1]

    def ignores(handler: _Handler, asked: Asked) -> bool:
        asked.headers.pop("if-match", None)
        handler.give(asked)
        return True

    server.faults.append(ignores)
    with pytest.raises(RemoteError, match="replaced"):
        file.read(1_000_000, 1000)


def stretch_of(kept: str) -> Path:
    (found,) = Path(kept).glob("*/*.stretch")
    return found


def test_flipped_bits_in_the_cache_are_fetched_again(server: ObjectServer, kept: str) -> None:
    file = opened(server, kept)
    file.read(0, len(DATA))
    forget()
    with open(stretch_of(kept), "r+b") as stretch:
        for block in (7, 90):
            stretch.seek(DATA_AT + block * BLOCK + 5)
            byte = stretch.read(1)[0]
            stretch.seek(-1, 1)
            stretch.write(bytes([byte ^ 16]))
    first = 65_536  # bytes that come with the version, to each process that opens the object
    before = server.sent()
    assert opened(server, kept).read(0, len(DATA)) == DATA
    assert server.sent() - before == 2 * BLOCK + first
    forget()
    assert opened(server, kept).read(0, len(DATA)) == DATA
    assert server.sent() - before == 2 * BLOCK + 2 * first, "the cache was mended"


@pytest.mark.parametrize("damage", ["removed", "all removed", "cut", "junk"])
def test_files_of_the_cache_that_go_under_a_reader(server: ObjectServer, kept: str, damage: str) -> None:
    file = opened(server, kept)
    file.read(0, 1_000_000)
    stretch = stretch_of(kept)
    if damage == "removed":
        stretch.unlink()
    elif damage == "all removed":
        assert [one.object_size for one in cache.clear(kept)] == [len(DATA)]
        assert [path.name for path in Path(kept).iterdir()] == ["packer-cache.txt"]
    elif damage == "cut":
        os.truncate(stretch, DATA_AT + 3 * BLOCK)
    else:
        stretch.write_bytes(b"junk" * 10_000)
    assert file.read(0, len(DATA)) == DATA
    forget()
    assert file.read(0, len(DATA)) == DATA


def test_a_disk_that_is_full_costs_the_cache_alone(server: ObjectServer, kept: str) -> None:
    """The fetcher inherits the limit."""
    code = (
        "import sys, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "from packer._storage.remote.place import RemoteFile\n"
        "from packer._storage.remote.urls import RemoteSettings\n"
        "file = RemoteFile(sys.argv[1], settings=RemoteSettings(sys.argv[2], None, 10.0))\n"
        "import hashlib\n"
        "print(hashlib.sha256(file.read(0, file.size)).hexdigest(), int(file.array(8, 100_000, '<i8').sum()))"
    )
    result = python(code, f"{server.url}/{NAME}", kept)
    import hashlib

    with np.errstate(over="ignore"):
        total = int(np.frombuffer(DATA, "<i8", 100_000, 8).sum())
    assert result.stdout.split() == [hashlib.sha256(DATA).hexdigest(), str(total)]


def test_a_cache_that_cannot_be_made_costs_nothing_else(server: ObjectServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(cache.CacheNotice, match="Not a directory. Downloads are cached in memory"):
        file = opened(server, str(tmp_path / "file" / "cache"))
    opened(server, str(tmp_path / "file" / "cache"))  # said once
    assert file.read(0, len(DATA)) == DATA
    before = server.sent()
    assert file.read(0, len(DATA)) == DATA
    assert server.sent() == before, "memory keeps it"
    assert file.array(0, 100_000, "<i8").tobytes() == DATA[:800_000]


def test_a_fetcher_that_is_killed_is_started_again(server: ObjectServer, kept: str) -> None:
    file = opened(server, kept)
    for begin in range(100_000, 2_000_000, 400_000):
        assert fetcherprocess._state.fetcher is not None
        os.kill(fetcherprocess._state.fetcher._process.pid, signal.SIGKILL)
        assert file.read(begin, 300_000) == DATA[begin : begin + 300_000]


def test_a_fetcher_that_dies_of_an_order_is_one_line(
    server: ObjectServer, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(server, kept)
    monkeypatch.setattr(fetcherprocess, "_CODE", "import sys; sys.exit('no memory\\nis left')")
    assert fetcherprocess._state.fetcher is not None
    os.kill(fetcherprocess._state.fetcher._process.pid, signal.SIGKILL)
    fetcherprocess._state.fetcher._process.wait()
    with pytest.raises(RemoteError, match=r"ended twice \(exit status 1: is left\)$"):
        file.read(100_000, 10)
    monkeypatch.undo()
    assert file.read(100_000, 10) == DATA[100_000:100_010]


READER = """
import sys
from packer._storage.remote.place import RemoteFile
from packer._storage.remote.urls import RemoteSettings
file = RemoteFile(sys.argv[1], settings=RemoteSettings(sys.argv[2], None, 10.0))
print("open", flush=True)
for begin in range(0, file.size, 50_000):
    file.read(begin, min(50_000, file.size - begin))
    print(begin, flush=True)
"""


def test_readers_killed_amid_writing_leave_a_cache_that_is_right(server: ObjectServer, kept: str) -> None:
    for reads in range(1, 40, 8):
        with started(READER, f"{server.url}/{NAME}", kept) as reader:
            for _ in range(reads):
                reader.stdout.readline()
            os.killpg(reader.pid, signal.SIGKILL)  # and the fetcher with it
        forget()
        assert opened(server, kept).read(0, 500_000) == DATA[:500_000]
    assert opened(server, kept).read(0, len(DATA)) == DATA


def test_two_processes_share_a_cache(server: ObjectServer, kept: str) -> None:
    readers = [started(READER, f"{server.url}/{NAME}", kept) for _ in range(2)]
    for reader in readers:
        reader.communicate()
    assert [reader.returncode for reader in readers] == [0, 0]
    before = server.sent()
    assert opened(server, kept).read(65_536, len(DATA) - 65_536) == DATA[65_536:]
    assert server.sent() - before == 65_536, "the version and the first bytes, and nothing else"


def test_no_secret_is_shown_or_kept(server: ObjectServer, kept: str, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"http://me:hunter2@127.0.0.1:{server.port}/{NAME}?sig=hunter3"
    file = RemoteFile(url, settings=RemoteSettings(kept, 1 << 30, 1.0))
    assert file.read(500_000, 10) == DATA[500_000:500_010]
    assert server.asked[-1].headers["authorization"].startswith("Basic ")
    assert server.asked[-1].query == "sig=hunter3"
    shown = [repr(file), file.path, *map(str, Path(kept).rglob("*"))]
    shown += [path.read_text() for path in Path(kept).rglob("about.json")]
    assert fetcherprocess._state.fetcher is not None
    process = fetcherprocess._state.fetcher._process.pid
    shown.append(Path(f"/proc/{process}/cmdline").read_text())
    choose(url, RemoteSettings(kept, None, 0.5))
    for answer, _ in STAYING.values():
        server.faults[:] = [lambda h, a, answer=answer: answer(h, a) is None]
        with pytest.raises((RemoteError, FileNotFoundError)) as caught:
            client.get(url, 0, 1000, file.version)
        shown.append(str(caught.value))
        shown.append(repr(pickle.loads(pickle.dumps(caught.value))))
    assert "hunter" not in "".join([*shown, *capfd.readouterr()])


ENDING = """
import importlib.util, os, sys, threading
from packer._storage.remote import client
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None
try:
    client.get(sys.argv[1])
except Exception as error:
    print(type(error).__name__, flush=True)
importlib.util.find_spec = find
read = threading.Event()
def again():
    while True:
        client.get(sys.argv[1], 0, 9)
        read.set()
threading.excepthook = lambda error: None
threading.Thread(target=again, daemon=True).start()
read.wait()
child = os.fork()
print(len(client.get(sys.argv[1], 0, 99)), flush=True)
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_process_ends_without_leaving_anything_open(server: ObjectServer) -> None:
    """The process lacks obstore at first, forks later, and still reads on a thread when it ends."""
    words = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", ENDING, f"{server.url}/{NAME}"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["MissingDependencyError", "99", "99"]


def test_a_system_that_cannot_read_at_positions_keeps_in_memory(
    server: ObjectServer, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RemoteSettings.of(kept).cache_dir == kept
    monkeypatch.setattr("packer._storage.remote.urls._KEEPS", False)
    monkeypatch.delenv("PACKER_CACHE_DIR", raising=False)
    assert RemoteSettings.of().cache_dir is None
    with pytest.warns(UserWarning, match=f"cache directory {kept} is not used"):
        assert RemoteSettings.of(kept).cache_dir is None
    assert RemoteSettings.of(kept).cache_dir is None, "said once"
    assert RemoteSettings.of("").cache_dir is None


def test_a_lock_that_is_a_fifo_is_not_waited_for(server: ObjectServer, kept: str) -> None:
    file = opened(server, kept)
    assert file._blocks.home is not None
    file._blocks.home.make()
    os.mkfifo(Path(file._blocks.home.directory) / "0-100000.lock")
    found, begin = file._blocks.whole(0, 100_000)
    assert isinstance(found, FileBytes)
    assert found.read(begin, 100_000) == DATA[:100_000]


def test_a_lock_that_is_a_link_makes_nothing_elsewhere(server: ObjectServer, kept: str, tmp_path: Path) -> None:
    file = opened(server, kept)
    assert file._blocks.home is not None
    file._blocks.home.make()
    (Path(file._blocks.home.directory) / "0-100000.lock").symlink_to(tmp_path / "elsewhere")
    found, begin = file._blocks.whole(0, 100_000)
    assert isinstance(found, FileBytes)
    assert found.read(begin, 100_000) == DATA[:100_000]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners of files")
@pytest.mark.parametrize("whose", ["everybody's", "another's"])
def test_a_cache_that_others_may_write_is_not_believed(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    kept = tmp_path / "cache"
    assert opened(server, str(kept)).read(500_000, 70_000) == DATA[500_000:570_000]
    forget()
    (stretch,) = kept.rglob("*.stretch")
    first = 500_000 // BLOCK
    writable = Segment(str(stretch.parent), 0, len(DATA), writing=True)
    writable.write(first, memoryview(bytes(2 * BLOCK)), 1)  # with right checksums
    if whose == "everybody's":
        kept.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(kept, 12_345, 12_345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.warns(UserWarning, match="is not used: it belongs to another user, or everybody may write to it"):
        file = opened(server, str(kept))
    assert file.read(500_000, 70_000) == DATA[500_000:570_000]


def test_two_stretches(kept: str) -> None:
    data = bytes(SEGMENT - 100) + DATA[:200_000]
    with serving({NAME: data}) as server:
        file = opened(server, kept)
        offset, size = np.array([SEGMENT - 5000, SEGMENT + 10, len(data)]), np.array([10_000, 1000, 1])
        for _ in range(2):
            files, positions, held = file.locate(offset, size)
            import ctypes

            for row in range(2):
                place, count = int(positions[row]), int(size[row])
                found = ctypes.string_at(place, count) if files[row] == -1 else os.pread(files[row], count, place)
                assert found == data[offset[row] : offset[row] + count]
            assert files[2] == -2
            del held


def test_a_cache_stays_within_its_bound(kept: str) -> None:
    data = np.random.default_rng(2).bytes(8 << 20)
    objects = {f"b/{number}": data[number:] for number in range(6)}
    with serving(objects) as server:
        for name, content in objects.items():
            file = RemoteFile(f"{server.url}/{name}", settings=RemoteSettings(kept, 16 << 20, 10.0))
            assert file.read(0, file.size) == content
            total = sum(one.size for one in cache.cached_objects(kept))
            assert total <= 20 << 20, name
        assert cache.cached_objects(kept)[-1].url.endswith("b/5")
        assert cache.clear(kept) != []
        assert cache.cached_objects(kept) == []
        assert file.read(0, file.size) == content
