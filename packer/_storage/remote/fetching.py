"""Ranges of objects, fetched many at a time: again where that fails, within a limit of time.

A range is asked for with the ETag of the version that is wanted, and what comes is compared with what was asked for:
its version, where it begins, how much it is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from packer._storage.remote.connection import UnplainError
from packer._storage.remote.plain import Plain
from packer._storage.remote.stores import REPLACED, StoreError, error_of, store_of

if TYPE_CHECKING:
    from obstore import GetOptions

__all__ = ["Fetching", "Piece", "Seen", "Target", "version_of"]

MOST_AT_ONCE = 32
"""Requests that are under way at a time."""

_KEPT_FREE = 8  # of them, for what somebody waits for
_WAITING = 2 * MOST_AT_ONCE  # pieces
_CHUNK = 256 << 10  # bytes that are handed on together
_SLOWEST = 16 << 10  # bytes a second; who sends fewer is given up
_ATTEMPTS = 4  # in so many parts the time limit is divided, lest one silent connection takes all of it
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts, twice as long each time
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TRIES = {"missing": 1, "changed": 1, "outside": 1, "refused": 1, "denied": 2, "partial": 3, "length": 8}
"""How often something is tried that is likely to stay so."""


class Seen(NamedTuple):
    """The version of an object: bytes, ETag, and nanoseconds since 1970."""

    size: int
    etag: str
    modified: int


class Target(NamedTuple):
    """What is fetched, and how long nothing may come.

    Attributes
    ----------
    url : str
    version : Seen or None
        None: whichever is there now, which is the version of a piece from then on.
    seconds : float
    """

    url: str
    version: Seen | None
    seconds: float


class Piece:
    """A range of an object, fetched by one request.

    Parameters
    ----------
    target : Target
    begin, end : int
        Bytes; None: to the end of the object.
    sink : callable
        Given the position of the first byte, and all bytes.
    fetch : callable, optional
        Fetches the range when its turn comes, in place of one request; it may find that some of it is there.
    """

    def __init__(
        self,
        target: Target,
        begin: int,
        end: int | None,
        sink: Callable[[int, memoryview], None],
        fetch: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.url, self.version, self.seconds = target
        self.fetch = fetch
        self.at, self.end, self.sink = begin, end, sink
        self.started = False
        self.plainly = True
        self.progressed = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Fetching:
    """Fetches pieces: those that somebody waits for before those that will be wanted."""

    def __init__(self) -> None:
        self._urgent: deque[Piece] = deque()
        self._later: deque[Piece] = deque()
        self._taken = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._stores: dict[tuple[str, float], tuple[Any, str]] = {}
        self._reached: set[str] = set()
        self._plain = Plain(self._store)

    def add(self, piece: Piece, *, urgent: bool) -> Piece:
        """Fetch a piece when there is room for it."""
        (self._urgent if urgent else self._later).append(piece)
        self._start()
        return piece

    async def room(self) -> None:
        """Wait until few of the pieces wait that will be wanted."""
        while len(self._later) >= _WAITING:
            self._taken.clear()
            await self._taken.wait()

    def hasten(self, piece: Piece) -> None:
        """Have a piece fetched that somebody waits for by now."""
        if not piece.started:
            self._urgent.append(piece)
            self._start()

    def forget_stores(self) -> None:
        """Reach stores anew, with credentials as they are now; what is under way goes on."""
        self._stores.clear()
        self._plain.forget()

    def _start(self) -> None:
        while True:
            if self._urgent and len(self._running) < MOST_AT_ONCE:
                piece = self._urgent.popleft()
            elif self._later and len(self._running) < MOST_AT_ONCE - _KEPT_FREE:
                piece = self._later.popleft()
                self._taken.set()
            else:
                return
            if not piece.started:
                piece.started = True
                task = asyncio.create_task(self._run(piece))
                self._running.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    async def _run(self, piece: Piece) -> None:
        try:
            await (self.request(piece) if piece.fetch is None else piece.fetch())
            piece.done.set_result(None)
        except Exception as error:
            piece.done.set_exception(error)
            piece.done.exception()  # nobody may be waiting for it

    async def request(self, piece: Piece) -> None:
        """Request a range at once, again where that fails; StoreError where it cannot be had within its time."""
        piece.progressed = begun = time.monotonic()
        tries = 0
        while True:
            size = (piece.end or piece.at + (64 << 20)) - piece.at
            left = begun + piece.seconds + size / _SLOWEST - time.monotonic()
            try:
                await asyncio.wait_for(self._attempt(piece), max(left, 0.01))
                return
            except asyncio.TimeoutError:
                failure = StoreError("again", "the server was too slow")
            except StoreError as found:
                failure = found
            tries += 1
            pause = min(_LONGEST_PAUSE, _PAUSE * 2**tries) * (0.5 + os.urandom(1)[0] / 512)
            if tries >= _TRIES.get(failure.kind, 1 << 30) or (failure.kind == "away" and not self._was_reached(piece)):
                raise failure
            late = time.monotonic() + pause - piece.progressed > piece.seconds
            if late or left <= 0:
                raise StoreError(
                    failure.kind,
                    f"nothing came within {piece.seconds:g} s ({failure}). timeout= or PACKER_TIMEOUT waits longer",
                )
            if failure.kind == "denied":  # credentials may have been renewed in their file meanwhile
                self.forget_stores()
            await asyncio.sleep(pause)

    def _was_reached(self, piece: Piece) -> bool:
        """Tell whether a host answered before: then it may come back."""
        return self._host(piece) in self._reached

    def _host(self, piece: Piece) -> str:
        return "/".join(piece.url.split("/", 3)[:3])

    async def _attempt(self, piece: Piece) -> None:
        """Hand on a piece; StoreError where not all of it came."""
        plainly = piece.plainly and piece.end is not None and self._plain.may_ask(piece.url)
        piece.plainly = False  # what failed once is asked for by obstore, which says why
        if plainly:
            try:
                await self._ask_plainly(piece)
            except UnplainError:
                await self._ask_obstore(piece)
                if piece.end:  # an object without bytes is refused by any server
                    self._plain.leave(piece.url)
        else:
            await self._ask_obstore(piece)

    async def _ask_plainly(self, piece: Piece) -> None:
        assert piece.end is not None
        then, seconds = piece.version, piece.seconds / _ATTEMPTS
        etag = _strong(then)
        try:
            answer, connection = await self._plain.ask(piece.url, piece.at, piece.end, etag, seconds)
        except StoreError as failure:
            piece.progressed = max(piece.progressed, failure.heard)
            raise
        now = Seen(answer.size, answer.etag, answer.modified)
        if then is not None and _is_another(now, then):
            connection.close()
            raise UnplainError
        self._reached.add(self._host(piece))
        if then is None:
            piece.version, piece.end = now, piece.at + len(answer.data)
        piece.progressed = time.monotonic()
        try:
            piece.sink(piece.at, answer.data)
        finally:
            self._plain.put_back(connection)

    async def _ask_obstore(self, piece: Piece) -> None:
        import obstore
        import obstore.exceptions

        try:
            store, path = self._store(piece.url, piece.seconds / _ATTEMPTS)
            result = await obstore.get_async(store, path, options=_options(piece))
            self._reached.add(self._host(piece))
            _compare(piece, result)
            await _hand_on(piece, result)
        except (obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
            failure = error_of(error, piece.url)
            if failure.kind != "outside" or piece.version is not None or piece.at:
                raise failure from None
            piece.end = None  # an object without bytes has no range of them
            await self._ask_obstore(piece)

    def _store(self, url: str, seconds: float) -> tuple[Any, str]:
        key = url, seconds
        if key not in self._stores:
            if len(self._stores) > 1000:
                self._stores.clear()
            self._stores[key] = store_of(url, seconds)
        return self._stores[key]


def version_of(meta: dict[str, Any]) -> Seen:
    """Return the version of an object that obstore says."""
    written = meta.get("last_modified") or _EPOCH
    return Seen(meta["size"], meta.get("e_tag") or "", (written - _EPOCH) // timedelta(microseconds=1) * 1000)


def _options(piece: Piece) -> GetOptions:
    options: GetOptions = {}
    if piece.end is not None:
        options["range"] = (piece.at, piece.end)
    elif piece.at:
        options["range"] = {"offset": piece.at}
    if etag := _strong(piece.version):
        options["if_match"] = etag
    return options


def _strong(version: Seen | None) -> str:
    """Return the ETag that a request may insist on; none where it is a weak one."""
    return "" if version is None or version.etag.startswith("W/") else version.etag


def _compare(piece: Piece, result: Any) -> None:
    """Compare what comes with what was asked for."""
    now = version_of(result.meta)
    if piece.version is None:
        piece.version = now
        piece.end = now.size if piece.end is None else min(piece.end, now.size)
    if _is_another(now, piece.version):
        raise StoreError("changed", REPLACED)
    if tuple(result.range) != (piece.at, piece.end):
        raise StoreError("again", "the server sent another range than was asked for")


def _is_another(now: Seen, then: Seen) -> bool:
    return now.size != then.size or now.etag != then.etag or (not then.etag and now.modified != then.modified)


async def _hand_on(piece: Piece, result: Any) -> None:
    """Hand on what comes when all of it is there: what has another length may be something else from its first byte."""
    assert piece.end is not None
    parts, size, wanted = [], 0, piece.end - piece.at
    async for chunk in result.stream(min_chunk_size=_CHUNK):
        parts.append(bytes(chunk))
        size += len(parts[-1])
        piece.progressed = time.monotonic()
        if size > wanted:
            raise StoreError("length", "the server sent more bytes than were asked for")
    if size < wanted:
        raise StoreError("length", "the server sent fewer bytes than were asked for")
    piece.sink(piece.at, memoryview(b"".join(parts)))
