"""Kill processes while they write to a cache: ``python -m tests.remote.crashes 100`` kills 100 of each kind.

``fetcher``: the fetcher kills itself right before one of its calls that change a file or answer, or halfway through
it. The reader lives, and must get the right bytes. ``reader``, ``both``: the reader, or both processes, are killed at
a random moment within half a second, about the time of a read. The next reader of the same cache must get the right
bytes within a minute. Every other round begins without a cache. The round after it uses the same cache, with a limit
that is too small for the object.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from packer._storage.remote import blocks, client
from packer._storage.remote.place import RemoteFile
from packer._storage.remote.urls import RemoteSettings
from tests.storage.remote.objects import ObjectServer, serving

KINDS = ("fetcher", "reader", "both")
_STEP, _SECONDS = 100_000, 60
_TABLE = (200_000, 700_000)  # a part that is mapped as a whole: its offset and its size
_BOUNDS = (1 << 30, 1 << 20)


def kill(  # noqa: PLR0917
    kind: str, moment: float, url: str, data: bytes, directory: Path, bound: int
) -> bool:
    """Kill at a moment from 0 to 1; return whether a process died; fail if a read returns wrong bytes."""

    def read() -> None:
        _read(url, data, directory, bound)

    died = _kill_fetcher(moment, read, directory, bound) if kind == "fetcher" else _kill_reader(kind, moment, read)
    _soon(read)
    return died


def _kill_fetcher(moment: float, read: Callable[[], None], directory: Path, bound: int) -> bool:
    for name in ("count", "dies"):
        (directory / name).unlink(missing_ok=True)
    calls = directory / f"calls-{bound}"
    most = int(calls.read_text()) if calls.is_file() else 60
    (directory / "die").write_text(str(1 + int(moment * most)))
    usual, client._CODE = client._CODE, _dying(directory)
    _end_fetcher()
    try:
        _soon(read)
    finally:
        client._CODE = usual
        _end_fetcher()
    number, made = int((directory / "dies").read_text()), (directory / "count").stat().st_size
    calls.write_text(str(max(made, most)))
    return made >= number


def _end_fetcher() -> None:
    client._close()
    client._state = client._State()


def _dying(directory: Path) -> str:
    before, after = "from packer._storage.remote.fetcher import main", "; main()"
    code = client._CODE
    assert before + after in code
    return code.replace(after, f"; from tests.remote.crash import die_at; die_at({str(directory)!r}){after}")


def _kill_reader(kind: str, moment: float, read: Callable[[], None]) -> bool:
    begun = time.monotonic()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        try:
            read()
        finally:
            os._exit(0)
    with contextlib.suppress(OSError):  # the child has done it
        os.setpgid(child, child)
    time.sleep(moment * 0.5)
    (os.killpg if kind == "both" else os.kill)(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert time.monotonic() - begun < _SECONDS
    return os.WIFSIGNALED(status)


def _read(url: str, data: bytes, directory: Path, bound: int) -> None:
    """Read the whole object as a new process does, and compare it."""
    blocks._opened.clear()
    client._state.memory = client.Memory(client.default_limit())
    file = RemoteFile(url, settings=RemoteSettings(str(directory / "cache"), bound, 20.0))
    begin, size = _TABLE
    table = bytes(file.array(begin, size, "u1"))
    parts = [file.read(at, min(_STEP, len(data) - at)) for at in range(0, len(data), _STEP)]
    if table != data[begin : begin + size] or b"".join(parts) != data:
        raise AssertionError("other bytes than the object has")


def _soon(work: Callable[[], None]) -> None:
    """Fail if the work takes longer than a minute."""

    def late(*_: object) -> None:
        raise AssertionError("a reader hangs")

    usual = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        work()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)


def many(kind: str, kills: int, draw: random.Random, server: ObjectServer, data: bytes) -> int:
    """Kill until `kills` processes have died; return the number of rounds."""
    rounds = died = 0
    with tempfile.TemporaryDirectory() as directory:
        url = f"{server.url}/object"
        while died < kills:
            if rounds % 2 == 0:  # nothing would be written to a complete cache
                shutil.rmtree(Path(directory) / "cache", ignore_errors=True)
            died += kill(kind, draw.random(), url, data, Path(directory), _BOUNDS[rounds % 2])
            rounds += 1
    return rounds


def main(kills: int, seed: int) -> None:
    data = random.Random(seed).randbytes(3_000_001)
    with serving({"object": data}) as server:
        for kind in KINDS:
            begun = time.monotonic()
            rounds = many(kind, kills, random.Random(seed), server, data)
            took = time.monotonic() - begun
            print(f"{kind}: {kills} killed in {rounds} rounds, {took:.0f} s: the right bytes after each")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
