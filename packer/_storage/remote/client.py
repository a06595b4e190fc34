"""Sends requests for versions, bytes, listings and blocks to the fetcher, a process that fetches objects.

Each process that reads starts a fetcher of its own at its first request. A forked child must not use the pipes that it
inherits from its parent, so it starts another fetcher. Messages are JSON followed by bytes; unlike pickles, they
execute no code. A message to the fetcher is called an order, as distinct from the requests that the fetcher sends to
stores. If there is no cache directory, blocks are kept in the memory of this process, and the least recently used ones
are dropped first.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import queue
import re
import struct
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from packer._storage.remote.urls import RemoteSettings, chosen, join, parse, redacted
from packer._storage.safe_open import name_problem
from packer._storage.system import available_memory, python_command
from packer.errors import MissingDependencyError, RemoteError, pip_install, printable

if TYPE_CHECKING:
    from packer._storage.remote.s3 import S3Bucket

Message = dict[str, Any]

_HEAD = struct.Struct("<IQ")
_WRITTEN_TOGETHER = 1 << 16  # bytes; a larger body is written separately, instead of copying it behind its head


def send(fd: int, message: Message, payload: bytes | memoryview = b"") -> None:
    """Write a message to a pipe; OSError if no process reads it any more."""
    text = json.dumps(message).encode()
    head = _HEAD.pack(len(text), len(payload)) + text
    if len(payload) <= _WRITTEN_TOGETHER:
        _write(fd, head + payload)
    else:
        _write(fd, head)
        _write(fd, payload)


def receive(fd: int) -> tuple[Message, memoryview] | None:
    """Wait for the next message of a pipe; None if the other side has ended."""
    head = _read(fd, _HEAD.size)
    if head is None:
        return None
    length, size = _HEAD.unpack(head)
    text, payload = _read(fd, length), _read(fd, size)
    if text is None or payload is None:
        return None
    return json.loads(bytes(text)), payload.toreadonly()


def _write(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _read(fd: int, size: int) -> memoryview | None:
    """Return exactly `size` bytes; None if the pipe ends earlier."""
    data = memoryview(bytearray(size))
    begin = 0
    while begin < size:
        piece = os.read(fd, min(size - begin, 1 << 20))
        if not piece:
            return None
        data[begin : begin + len(piece)] = piece
        begin += len(piece)
    return data


SMALL = 4 << 10
"""The size in bytes of a block without a cache directory. It is small, to fetch few bytes of neighbouring samples."""

_SHARE, _MOST, _LEAST = 16, 4 << 30, 64 << 20


def default_limit() -> int:
    """Return the limit on cached bytes in this process: a share of the memory that the process may use."""
    return max(_LEAST, min(_MOST, (available_memory() or _MOST) // _SHARE))


class Memory:
    """An in-memory cache of blocks with a limit on their total size; a key is object, block size and block number.

    Parameters
    ----------
    limit : int
        Bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def allow(self, limit: int) -> None:
        """Raise the limit to at least this number of bytes."""
        self._limit = max(self._limit, limit)

    def put(self, identity: str, first: int, data: memoryview, size: int) -> None:
        """Store blocks of an object, of `size` bytes each, beginning with block `first`."""
        with self._lock:
            for block, begin in enumerate(range(0, len(data), size), first):
                old = self._blocks.pop((identity, size, block), b"")
                piece = self._blocks[identity, size, block] = bytes(data[begin : begin + size])
                self._size += len(piece) - len(old)
            while self._size > self._limit:
                self._size -= len(self._blocks.popitem(last=False)[1])

    def get(self, identity: str, block: int, size: int) -> bytes | None:
        """Return a block of this size; None if it is not in memory."""
        with self._lock:
            found = self._blocks.get((identity, size, block))
            if found is not None:
                self._blocks.move_to_end((identity, size, block))
            return found

    def has(self, identity: str, block: int, size: int) -> bool:
        """Tell whether a block of this size is in memory."""
        return (identity, size, block) in self._blocks


_CODE = "from packer._storage.remote.fetcher import main; main()"
_SILENCE = 60.0  # seconds without a sign of life, after which a fetcher counts as dead
_ENDING = 5.0  # seconds that a fetcher takes to end
_OF_STORES = re.compile(r"(AWS|AZURE|GOOGLE|CLOUDSDK|MSI|IDENTITY|SSL_CERT)_|(HTTPS?|ALL|NO)_PROXY$", re.IGNORECASE)

STARTS = 2
"""The number of fetchers that may get an order: if the first fetcher dies, a second one gets the order."""

ENDED = "ended"
"""The failure of an order whose fetcher ended; another fetcher may carry out the order."""

LOOK_AGAIN = 1.0
"""Seconds after which a waiting thread checks whether the fetcher still gives signs of life."""

Reply = tuple[Message, memoryview]
Callback = Callable[[Reply], object]


class _FetcherProcess:
    """A fetcher process, and the thread that receives its responses."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the process
        self._environment = _environment()
        try:
            self._process = _start(self._errors.fileno())
        except BaseException:
            self._errors.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._sending = threading.Lock()
        self._waiting: dict[int, Callback] = {}
        self._numbers = itertools.count(1)
        self._heard = time.monotonic()
        self._silent = False
        self.ended = False
        self._listening = threading.Thread(target=self._listen, name="packer remote", daemon=True)
        self._listening.start()

    def order(self, message: Message, payload: bytes, callback: Callback) -> None:
        """Send an order; the listening thread then calls `callback` with each response. See the function `order`."""
        number = next(self._numbers)
        self._waiting[number] = callback
        with self._sending:
            self._tell_environment()
            self._send({**message, "id": number}, payload)
        if self.ended:  # perhaps after the listening thread has notified the waiting threads
            self._end_orders([number])

    def _send(self, message: Message, payload: bytes) -> None:
        try:
            send(self._orders, message, payload)
        except OSError:
            self.ended = True

    def _tell_environment(self) -> None:
        """Send the fetcher the changed environment variables that configure stores, such as renewed credentials."""
        now, before = _environment(), self._environment
        if now != before:
            self._environment = now
            gone = [name for name in before if name not in now]
            self._send({"id": 0, "do": "environment", "set": now, "unset": gone}, b"")

    def require_signs(self) -> None:
        """Kill the fetcher if it has sent nothing for `_SILENCE` seconds; all orders that it has received then fail."""
        if time.monotonic() - self._heard > _SILENCE:
            self._silent = True
            self._process.kill()

    def _listen(self) -> None:
        """Dispatch each response, and store blocks in memory, until the process ends."""
        with contextlib.suppress(OSError):
            while (answer := receive(self._answers)) is not None:
                self._heard = time.monotonic()
                message, payload = answer
                if "object" in message:
                    memory().put(message["object"], message["first"], payload, message["size"])
                    continue
                number = message.get("id", 0)
                callback = self._waiting.get(number) if message.get("more") else self._waiting.pop(number, None)
                if callback is not None:
                    callback(answer)
        self.ended = True
        self._end_orders(list(self._waiting))

    def _end_orders(self, numbers: list[int]) -> None:
        """Notify the waiting threads that their orders have failed."""
        why = self._last_words() if numbers else ""
        for number in numbers:
            callback = self._waiting.pop(number, None)
            if callback is not None:
                callback(({"failed": ENDED, "why": why}, memoryview(b"")))

    def _last_words(self) -> str:
        if self._silent:
            return f"it did not respond for {_SILENCE:g} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        text = b""
        with contextlib.suppress(ValueError):  # closed, as this process ends
            self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2000))
            text = self._errors.read()
        lines = text.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"exit status {self._process.returncode}{last and ': '}{printable(last)}"

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError, AttributeError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listening.join(_ENDING)
        if not self._listening.is_alive():
            for pipe in (self._process.stdout, self._errors):
                pipe.close()  # type: ignore[union-attr]

    def abandon(self) -> None:
        """Close the pipes inherited from the parent process."""
        self._process.returncode = 0  # so that nothing waits for it here
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr] # none has a buffer, which the fork could have left locked


def _start(errors: int) -> subprocess.Popen[bytes]:
    try:
        command = python_command(_CODE, "obstore")
    except ModuleNotFoundError:
        raise MissingDependencyError(f"reading objects at URLs needs obstore: {pip_install('remote')}") from None
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        raise RemoteError(f"the download process cannot be started: {error}") from error


def _environment() -> dict[str, str]:
    """Return the current environment variables that configure stores."""
    names = filter(_OF_STORES.match, list(os.environ))
    return {name: value for name in names if (value := os.environ.get(name)) is not None}  # another thread may unset it


class _State:
    """The state of this process; a forked child starts with a new state."""

    def __init__(self) -> None:
        self.starting = threading.Lock()
        self.ending = False
        self.fetcher: _FetcherProcess | None = None
        self.memory = Memory(default_limit())
        self.mark = int.from_bytes(os.urandom(4), "little") or 1


_state = _State()


def memory() -> Memory:
    """Return the in-memory cache of this process, for blocks without a cache directory."""
    return _state.memory


def mark() -> int:
    """Return the mark, from 1 to 2**32 - 1, that this process's fetcher puts on the blocks of a cache."""
    return _state.mark


def order(message: Message, payload: bytes, callback: Callback) -> None:
    """Send the fetcher an order without waiting; another thread calls `callback` with each response.

    Every response except the last has the key "more". If the order failed, the last response has the key "failed"; its
    value is `ENDED` if the fetcher died.
    """
    _fetcher().order(message, payload, callback)


def require_signs() -> None:
    """Kill this process's fetcher if it has sent nothing for a minute; threads that wait for it call this regularly."""
    if _state.fetcher is not None:
        _state.fetcher.require_signs()


def ask(message: Message) -> Reply:
    """Send the fetcher an order and wait for the response; RemoteError if two fetchers died while serving it."""
    return next(pages(message))


def pages(message: Message) -> Iterator[Reply]:
    """Send the fetcher an order that has several responses, and yield the responses."""
    begun, why = False, ""
    for _ in range(STARTS):
        answers: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        order(message, b"", answers.put)
        while True:
            try:
                answer = answers.get(timeout=LOOK_AGAIN)
            except queue.Empty:
                require_signs()
                continue
            if answer[0].get("failed") == ENDED:
                why = answer[0]["why"]
                break
            begun = True
            yield answer
            if not answer[0].get("more"):
                return
        if begun:
            break
    raise ended(why)


def ended(why: str) -> RemoteError:
    """Return the error for an order that killed two fetchers, or one fetcher after a partial response."""
    return RemoteError(f"the download process ended twice ({why})")


def _fetcher() -> _FetcherProcess:
    with _state.starting:
        found = _state.fetcher
        if _state.ending:
            raise RemoteError("downloads are not possible while the process ends")
        if found is None or found.ended:
            if found is not None:
                found.close()
            found = _state.fetcher = _FetcherProcess()
        return found


def _after_fork() -> None:
    global _state  # noqa: PLW0603 - the other process's state is not this one's
    if _state.fetcher is not None:
        _state.fetcher.abandon()
    _state = _State()


def _close() -> None:
    _state.ending = True  # threads that no one waits for may still read
    if _state.fetcher is not None:
        _state.fetcher.close()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Version(NamedTuple):
    """The version of an object: its size, ETag and time at one moment.

    Attributes
    ----------
    size : int
        Bytes.
    etag : str
        The store's name for this version; empty if it has none.
    modified : int
        Time of writing, in nanoseconds since 1970; 0 if the store does not report it.
    """

    size: int
    etag: str = ""
    modified: int = 0


class RemoteObject(NamedTuple):
    """An object below a URL.

    Attributes
    ----------
    name : str
        The name relative to the URL, with slashes.
    version : Version
    """

    name: str
    version: Version


def head(url: str, settings: RemoteSettings | None = None) -> Version | None:
    """Return the current version of an object; None if there is no object.

    Raises
    ------
    RemoteError
        If the store does not respond within the time limit of `settings` (by default, the settings chosen for the URL).
    """
    found = look(url, 1, settings)
    return found and found[0]


def look(url: str, size: int, settings: RemoteSettings | None = None) -> tuple[Version, bytes] | None:
    """Return the version of an object and at most its first `size` bytes; None if there is no object."""
    found = _get(url, 0, size, None, settings)
    return found and (Version(*found[0]["version"]), bytes(found[1]))


def get(
    url: str,
    begin: int = 0,
    end: int | None = None,
    version: Version | None = None,
    settings: RemoteSettings | None = None,
) -> bytes:
    """Return the bytes `begin` to `end` - 1 of an object.

    May be called on many threads at once.

    Parameters
    ----------
    url : str
    begin, end : int
        Offsets; an `end` of None stands for the end of the object.
    version : Version, optional
        The expected version; RemoteError if the object has another one.
    settings : RemoteSettings, optional
        The settings; by default those that were chosen for the URL.

    Raises
    ------
    RemoteError
        If the bytes cannot be fetched within the time limit of the settings.
    FileNotFoundError
        If there is no such object.
    """
    if end is not None and begin >= end:
        return b""
    found = _get(url, begin, end, version, settings)
    if found is None:
        raise FileNotFoundError(f"{redacted(url)}: no such object")
    return bytes(found[1])


def list_objects(url: str) -> Iterator[RemoteObject]:
    """Yield the objects below a URL, in the store's order.

    Raises
    ------
    RemoteError
        If the store does not list its objects. No HTTP server lists them.
    """
    if parse(url).scheme in ("http", "https"):
        raise RemoteError(f"{redacted(url)}: an HTTP server does not list its files. Pass a list of URLs")
    for message, _ in pages({"do": "list", "url": url, "seconds": chosen(url).timeout}):
        _require(message, url)
        for name, *version in message.get("page", ()):
            yield RemoteObject(name, Version(*version))


_LISTING_THREADS = 32


def list_in_parallel(url: str) -> list[RemoteObject]:
    """Return the objects below a URL, in no order; RemoteError if the store does not list them.

    A response of S3 has at most a thousand names. So the folders of `url` are listed first, and then their contents in
    parallel. obstore fails if a name is not a valid path; then boto3, which is slower, lists the objects.
    """
    folders = _folders_of(url)
    try:
        if not folders:
            return list(list_objects(url))
        with ThreadPoolExecutor(min(_LISTING_THREADS, len(folders)), thread_name_prefix="packer-list") as pool:
            return [entry for entries in pool.map(lambda folder: _below(url, folder), folders) for entry in entries]
    except _NameError:
        bucket, prefix = _bucket_of(url)
        with contextlib.suppress(RemoteError):
            if bucket is not None:
                objects = bucket.objects_below(prefix)
                return [RemoteObject(key[len(prefix) :], Version(size, etag, at)) for key, size, etag, at in objects]
        raise


class _NameError(RemoteError):
    """The name of an object is not a valid path."""


def _below(url: str, folder: str) -> list[RemoteObject]:
    return [RemoteObject(f"{folder}/{name}", version) for name, version in list_objects(join(url, folder))]


def _folders_of(url: str) -> list[str]:
    """Return the names of the folders directly below a URL; none if it also has objects, or cannot be listed."""
    bucket, prefix = _bucket_of(url)
    try:
        prefixes, has_objects = ([], True) if bucket is None else bucket.folders_in(prefix)
    except RemoteError:  # such as a public bucket, for which there are no credentials
        return []
    folders = [folder[len(prefix) : -1] for folder in prefixes]
    return [] if has_objects or any(map(name_problem, folders)) else folders


def _bucket_of(url: str) -> tuple[S3Bucket | None, str]:
    """Return the S3 bucket of a URL, and the prefix of all keys below the URL.

    The bucket is None if the URL is not of S3, or if boto3 is not installed.
    """
    from packer._storage.remote.s3 import S3Bucket

    base = parse(url)
    with contextlib.suppress(MissingDependencyError, RemoteError):
        if base.scheme == "s3":
            return S3Bucket(base.host, chosen(url)), f"{base.key.rstrip('/')}/" if base.key.strip("/") else ""
    return None, ""


def ask_about(message: Message, url: str) -> Message:
    """Send the fetcher an order about an object, and return its response; RemoteError if it failed."""
    answer, _ = ask(message)
    _require(answer, url)
    return answer


def _get(
    url: str, begin: int, end: int | None, version: Version | None, settings: RemoteSettings | None
) -> Reply | None:
    """Return the response with bytes of an object and its version; None if there is no object."""
    seconds = (settings or chosen(url)).timeout
    message = {"do": "get", "url": url, "begin": begin, "end": end, "version": version, "seconds": seconds}
    answer, payload = ask(message)
    if answer.get("failed") == "missing":
        return None
    _require(answer, url)
    return answer, payload


def _require(answer: Message, url: str) -> None:
    """Raise RemoteError if a response says that the request failed."""
    if "failed" in answer:
        kind = _NameError if answer["failed"] == "name" else RemoteError
        raise kind(f"{redacted(url)}: {answer['why']}")
