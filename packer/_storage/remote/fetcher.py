"""The fetcher: a process that fetches objects for its parent process, and ends when its pipe is closed.

The fetcher alone uses obstore, because the threads of obstore do not survive a fork. It imports neither NumPy nor
torch, so that it starts quickly. `RequestQueue` sends many range requests at a time, retries them, and limits their
time. A range is requested with the ETag of the version, and the response is compared with the request: version, offset
and length. `BlockFetcher` fetches the missing blocks of an object into the cache, or sends them to the reading process
if there is no cache directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from packer._storage.remote.cache import BLOCK, SEGMENT, Bound, Home, Segment, TableFile, segment_name
from packer._storage.remote.client import Message, Version, receive, send
from packer._storage.remote.http import PlainClient, PlainRequestError
from packer._storage.remote.obstore import REPLACED, StoreError, error_of, store_of
from packer._storage.remote.urls import server_of

if TYPE_CHECKING:
    from obstore import GetOptions

MOST_AT_ONCE = 32
"""The number of requests that may be under way at a time."""

_RESERVED = 8  # of them, for requests that a thread waits for
_WAITING = 2 * MOST_AT_ONCE  # requests
_CHUNK = 256 << 10  # bytes that are sent together
_SLOWEST = 16 << 10  # bytes a second; a slower server is given up
_ATTEMPTS = 4  # attempts that share the time limit, so that one silent connection does not use up all of it
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts, twice as long each time
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TRIES = {"missing": 1, "changed": 1, "outside": 1, "name": 1, "refused": 1, "denied": 2, "partial": 3, "length": 8}
"""The number of attempts for each kind of failure that is likely to last."""


class Target(NamedTuple):
    """The object from which a request gets bytes, and a time limit.

    Attributes
    ----------
    url : str
    version : Version or None
        The required version. None: the current version, which later requests must match.
    seconds : float
        How long a request may go without receiving bytes.
    """

    url: str
    version: Version | None
    seconds: float


class RangeRequest:
    """A request for a range of an object.

    Parameters
    ----------
    target : Target
    begin, end : int
        The range in bytes; an `end` of None means the end of the object.
    sink : callable
        Called with the position of the first byte, and all bytes.
    fetch : callable, optional
        Called instead of sending a single request, if parts of the range may be in the cache.
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


class RequestQueue:
    """Sends requests, a bounded number at a time. Requests that a thread waits for go before prefetches."""

    def __init__(self) -> None:
        self._urgent: deque[RangeRequest] = deque()
        self._later: deque[RangeRequest] = deque()
        self._taken = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._stores: dict[tuple[str, float], tuple[Any, str]] = {}
        self._reached: set[str] = set()
        self._plain = PlainClient(self._store)

    def add(self, request: RangeRequest, *, urgent: bool) -> RangeRequest:
        """Queue a request; it is sent when the number of requests under way allows."""
        (self._urgent if urgent else self._later).append(request)
        self._start()
        return request

    async def room(self) -> None:
        """Wait until only a few requests for prefetching are queued."""
        while len(self._later) >= _WAITING:
            self._taken.clear()
            await self._taken.wait()

    def hasten(self, request: RangeRequest) -> None:
        """Send a request before others, because a thread waits for it now."""
        if not request.started:
            self._urgent.append(request)
            self._start()

    def forget_stores(self) -> None:
        """Reconnect to stores with the current credentials; requests under way continue."""
        self._stores.clear()
        self._plain.forget()

    def _start(self) -> None:
        while True:
            if self._urgent and len(self._running) < MOST_AT_ONCE:
                request = self._urgent.popleft()
            elif self._later and len(self._running) < MOST_AT_ONCE - _RESERVED:
                request = self._later.popleft()
                self._taken.set()
            else:
                return
            if not request.started:
                request.started = True
                task = asyncio.create_task(self._run(request))
                self._running.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    async def _run(self, request: RangeRequest) -> None:
        try:
            await (self.send(request) if request.fetch is None else request.fetch())
            request.done.set_result(None)
        except Exception as error:
            request.done.set_exception(error)
            request.done.exception()  # perhaps nothing waits for it

    async def send(self, request: RangeRequest) -> None:
        """Send a request now, with retries; StoreError if its range cannot be fetched within the time limit."""
        request.progressed = begun = time.monotonic()
        tries = 0
        while True:
            size = (request.end or request.at + (64 << 20)) - request.at
            left = begun + request.seconds + size / _SLOWEST - time.monotonic()
            try:
                await asyncio.wait_for(self._attempt(request), max(left, 0.01))
                return
            except asyncio.TimeoutError:
                failure = StoreError("again", "the server was too slow")
            except StoreError as found:
                failure = found
            tries += 1
            pause = min(_LONGEST_PAUSE, _PAUSE * 2**tries) * (0.5 + os.urandom(1)[0] / 512)
            if tries >= _TRIES.get(failure.kind, 1 << 30) or (
                failure.kind == "away" and server_of(request.url) not in self._reached
            ):
                raise failure
            late = time.monotonic() + pause - request.progressed > request.seconds
            if late or left <= 0:
                raise StoreError(
                    failure.kind,
                    f"no data arrived within {request.seconds:g} s ({failure}). To wait longer, set timeout= or "
                    "PACKER_TIMEOUT",
                )
            if failure.kind == "denied":  # credentials may have been renewed in their file meanwhile
                self.forget_stores()
            await asyncio.sleep(pause)

    async def _attempt(self, request: RangeRequest) -> None:
        """Send a request once, and pass the bytes on; StoreError if they are incomplete."""
        plainly = request.plainly and request.end is not None and self._plain.may_ask(request.url)
        request.plainly = False  # after a failure obstore fetches it, because its errors name causes
        if plainly:
            try:
                await self._ask_plainly(request)
            except PlainRequestError:
                await self._ask_obstore(request)
                if request.end:  # every server refuses ranges of an object without bytes
                    self._plain.leave(request.url)
        else:
            await self._ask_obstore(request)

    async def _ask_plainly(self, request: RangeRequest) -> None:
        assert request.end is not None
        then, seconds = request.version, request.seconds / _ATTEMPTS
        etag = _strong(then)
        try:
            answer, connection = await self._plain.ask(request.url, request.at, request.end, etag, seconds)
        except StoreError as failure:
            request.progressed = max(request.progressed, failure.last_received)
            raise
        now = Version(answer.size, answer.etag, answer.modified)
        if then is not None and _is_another(now, then):
            connection.close()
            raise PlainRequestError
        self._reached.add(server_of(request.url))
        if then is None:
            request.version, request.end = now, request.at + len(answer.data)
        request.progressed = time.monotonic()
        try:
            request.sink(request.at, answer.data)
        finally:
            self._plain.put_back(connection)

    async def _ask_obstore(self, request: RangeRequest) -> None:
        import obstore
        import obstore.exceptions

        try:
            store, path = self._store(request.url, request.seconds / _ATTEMPTS)
            result = await obstore.get_async(store, path, options=_options(request))
            self._reached.add(server_of(request.url))
            _compare(request, result)
            await _hand_on(request, result)
        except (obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
            failure = error_of(error, request.url)
            if failure.kind != "outside" or request.version is not None or request.at:
                raise failure from None
            request.end = None  # an object without bytes has no ranges
            await self._ask_obstore(request)

    def _store(self, url: str, seconds: float) -> tuple[Any, str]:
        key = url, seconds
        if key not in self._stores:
            if len(self._stores) > 1000:
                self._stores.clear()
            self._stores[key] = store_of(url, seconds)
        return self._stores[key]


def version_of(meta: dict[str, Any]) -> Version:
    """Return the version of an object from obstore's metadata."""
    written = meta.get("last_modified") or _EPOCH
    return Version(meta["size"], meta.get("e_tag") or "", (written - _EPOCH) // timedelta(microseconds=1) * 1000)


def _options(request: RangeRequest) -> GetOptions:
    options: GetOptions = {}
    if request.end is not None:
        options["range"] = (request.at, request.end)
    elif request.at:
        options["range"] = {"offset": request.at}
    if etag := _strong(request.version):
        options["if_match"] = etag
    return options


def _strong(version: Version | None) -> str:
    """Return the ETag for a conditional request; empty for a weak ETag."""
    return "" if version is None or version.etag.startswith("W/") else version.etag


def _compare(request: RangeRequest, result: Any) -> None:
    """Raise StoreError if a response does not match its request."""
    now = version_of(result.meta)
    if request.version is None:
        request.version = now
        request.end = now.size if request.end is None else min(request.end, now.size)
    if _is_another(now, request.version):
        raise StoreError("changed", REPLACED)
    if tuple(result.range) != (request.at, request.end):
        raise StoreError("again", "the server sent another range than requested")


def _is_another(now: Version, then: Version) -> bool:
    return now.size != then.size or now.etag != then.etag or (not then.etag and now.modified != then.modified)


async def _hand_on(request: RangeRequest, result: Any) -> None:
    """Pass a body on when all of it has arrived: if its length is wrong, even its first bytes may be wrong."""
    assert request.end is not None
    parts, size, expected = [], 0, request.end - request.at
    async for chunk in result.stream(min_chunk_size=_CHUNK):
        parts.append(bytes(chunk))
        size += len(parts[-1])
        request.progressed = time.monotonic()
        if size > expected:
            raise StoreError("length", "the server sent more bytes than requested")
    if size < expected:
        raise StoreError("length", "the server sent fewer bytes than requested")
    request.sink(request.at, memoryview(b"".join(parts)))


Runs = Sequence[tuple[int, int]]
"""Runs of consecutive blocks: for each run the first block, and the block after the last."""

_REQUEST = 4 << 20  # bytes of one request
_OPEN = 64  # segments
_PER_SEGMENT = SEGMENT // BLOCK
_LOOK_AGAIN = 0.02  # seconds between two looks, while another process fetches the same blocks
_REMOVED_MEANWHILE = 2  # retries if others remove a new file, such as `packer cache clear`
_SECONDS_WITHOUT = 30.0  # until the next attempt to write to a disk that failed


class BlockFetcher:
    """Fetches blocks of one version of an object into the cache.

    Parameters
    ----------
    order : Message
        The first order for blocks of this version.
    queue : RequestQueue
    bound : Bound
        The limit of the cache.
    send : callable
        Called with the first block, and the bytes of blocks that the cache cannot store.
    """

    def __init__(
        self, order: Message, queue: RequestQueue, bound: Bound, send: Callable[[int, memoryview], None]
    ) -> None:
        self._target, self._home = _target(order), _home(order)
        assert self._target.version is not None
        self._size = self._target.version.size
        self._queue, self._bound, self._send = queue, bound, send
        self._block, self._mark = order["block"], order["mark"]
        self._most = _REQUEST // self._block
        self._under_way: dict[int, tuple[RangeRequest, range]] = {}
        self._segments: dict[int, Segment] = {}
        self._not_before = 0.0
        self._expected: set[int] = set()  # ordered blocks that are not yet divided into requests

    @property
    def idle(self) -> bool:
        """Whether no order is outstanding."""
        return not self._expected and not self._under_way

    def expect(self, runs: Runs) -> None:
        """Register the new blocks of an order. `want` requests them later, for this order or a more urgent one."""
        self._expected.update(block for run in runs for block in range(*run))

    def want(self, runs: Runs, *, urgent: bool, again: bool) -> list[tuple[RangeRequest, range]]:
        """Fetch missing blocks.

        Return each request under way that includes blocks of `runs`, and all blocks of that request. A block that is no
        longer expected is skipped, because an earlier order has fetched and sent it. If `again` is True, blocks in the
        cache are fetched again.
        """
        requests: dict[RangeRequest, range] = {}
        for run in runs:
            new = list[int]()
            for block in self._lacking(*run, again=again):
                under_way = self._under_way.get(block)
                if under_way is not None:
                    requests[under_way[0]] = under_way[1]
                    if urgent:
                        self._queue.hasten(under_way[0])
                elif again or block in self._expected:
                    new.append(block)
            self._expected.difference_update(range(*run))
            for blocks in _runs_of(new, self._most):
                requests[self._fetch(blocks, urgent=urgent, again=again)] = blocks
        return list(requests.items())

    def _fetch(self, blocks: range, *, urgent: bool, again: bool) -> RangeRequest:
        fetch = None if self._home is None else partial(self._share, blocks, again)
        request = self._range_request(blocks, fetch)
        self._under_way.update(dict.fromkeys(blocks, (request, blocks)))

        def ended(_: object) -> None:
            for block in blocks:
                self._under_way.pop(block, None)

        request.done.add_done_callback(ended)
        return self._queue.add(request, urgent=urgent)

    def _range_request(self, blocks: range, fetch: Callable[[], Awaitable[None]] | None = None) -> RangeRequest:
        begin, end = blocks.start * self._block, min(blocks.stop * self._block, self._size)
        return RangeRequest(self._target, begin, end, self._keep, fetch)

    async def _share(self, blocks: range, again: bool) -> None:
        """Fetch the blocks that are still missing, and wait for those that another process is fetching.

        The time limit of this wait is the same as for a server.
        """
        left, until = list(blocks), time.monotonic() + self._target.seconds
        number, start = blocks.start // _PER_SEGMENT, blocks.start - blocks.start % _PER_SEGMENT
        while left:
            segment = self._open(number, writing=True)
            if segment is None or time.monotonic() > until:
                await self._request(left)
                return
            claimed = list(_claimed(segment, left))
            missing = segment.lacking(left[0] - start, left[-1] - start + 1)
            lacking = {*left} if again else {start + block for block in missing}
            try:
                await self._request([block for run in claimed for block in run if block in lacking])
            finally:
                for run in claimed:
                    segment.release(run.start - start, run.stop - start)
            left = [block for block in left if block in lacking and not any(block in run for run in claimed)]
            if left:
                await asyncio.sleep(_LOOK_AGAIN)

    async def _request(self, blocks: Sequence[int]) -> None:
        """Request blocks, one request for each run; raise the first failure when all requests have ended."""
        requests = [self._queue.send(self._range_request(run)) for run in _runs_of(blocks, self._most)]
        if len(requests) == 1:
            await requests[0]
            return
        for failure in await asyncio.gather(*requests, return_exceptions=True):
            if failure is not None:
                raise failure

    def _lacking(self, first: int, last: int, *, again: bool) -> Iterator[int]:
        """Yield the blocks that the cache does not have."""
        while first < last:
            number = first // _PER_SEGMENT
            start = number * _PER_SEGMENT
            end = min(last, start + _PER_SEGMENT)
            segment = None if again else self._open(number)
            if segment is None:
                yield from range(first, end)
            else:
                yield from (start + block for block in segment.lacking(first - start, end - start))
            first = end

    def _keep(self, position: int, data: memoryview) -> None:
        """Write blocks to the cache; if it cannot store them, send them to the reading process."""
        first = position // self._block
        number, within = divmod(first, _PER_SEGMENT)
        for attempt in range(2):
            segment = self._open(number, writing=True)
            if segment is None:
                break
            try:
                segment.write(within, data, self._mark)
            except OSError:  # mostly a full disk
                if attempt:
                    self._give_up()
                else:
                    self._bound.make_room(segment.path, least=64 << 20)
            else:
                self._bound.wrote(len(data), segment.path)
                return
        self._send(first, data)

    def _open(self, number: int, *, writing: bool = False) -> Segment | None:
        """Return a segment that is still in the cache; None if it is missing and cannot be created."""
        if self._home is None or time.monotonic() < self._not_before:
            return None
        found = self._segments.get(number)
        if found is not None and found.is_named():
            return found
        self._segments.pop(number, None)
        if not writing and not os.path.exists(os.path.join(self._home.directory, segment_name(number))):
            return None
        try:
            found = self._made(self._home, number)
        except OSError:
            self._give_up()
            return None
        if len(self._segments) >= _OPEN:
            self._segments.clear()
        self._segments[number] = found
        return found

    def _made(self, home: Home, number: int) -> Segment:
        """Open a segment for writing; make it if it is missing."""
        for _ in range(_REMOVED_MEANWHILE):
            with contextlib.suppress(FileNotFoundError):
                home.make()
                return Segment(home.directory, number, self._size, writing=True)
        home.make()
        return Segment(home.directory, number, self._size, writing=True)

    def _give_up(self) -> None:
        self._segments.clear()
        self._not_before = time.monotonic() + _SECONDS_WITHOUT


def _claimed(segment: Segment, blocks: Sequence[int]) -> Iterator[range]:
    """Claim the blocks that nobody has claimed yet, and yield these blocks in runs."""
    for run in _runs_of(blocks, len(blocks)):
        first = run.start % _PER_SEGMENT
        if segment.claim(first, first + len(run)):
            yield run
            continue
        alone = [block for block in run if segment.claim(block % _PER_SEGMENT, block % _PER_SEGMENT + 1)]
        yield from _runs_of(alone, len(blocks))


def _runs_of(blocks: Sequence[int], most: int) -> Iterator[range]:
    """Yield runs of at most `most` consecutive blocks; each run is in one segment."""
    begin = 0
    for at in range(1, len(blocks) + 1):
        ends = at == len(blocks) or blocks[at] != blocks[at - 1] + 1 or blocks[at] % _PER_SEGMENT == 0
        if ends or at - begin == most:
            yield range(blocks[begin], blocks[at - 1] + 1)
            begin = at


BEAT = 2.0
"""Seconds between two signs of life, while a thread waits."""

_PART = 4 << 20  # bytes of each request, if a range is fetched by several at once
_STEP = 128  # runs that become requests at a time
_PAGE = 1000  # objects in one answer
_OBJECTS = 64  # versions of objects that are remembered


def main() -> None:
    """Serve the process at the other end of standard input and output, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reading process decides on an interruption
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # output of a library must not mix with the responses
    asyncio.run(_Fetcher(answers).serve(orders))


class _Fetcher:
    """Serves orders, each in a separate task.

    Parameters
    ----------
    answers : int
        The pipe for answers.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._queue = RequestQueue()
        self._block_fetchers: dict[tuple[Any, ...], BlockFetcher] = {}
        self._bounds: dict[tuple[str, int | None], Bound] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_turn = asyncio.Lock()

    async def serve(self, orders: int) -> None:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[Message, memoryview]]()

        def listen() -> None:
            with contextlib.suppress(OSError):
                while (order := receive(orders)) is not None:
                    loop.call_soon_threadsafe(queue.put_nowait, order)
            os._exit(0)  # whatever is under way: no process reads it any more, and the cache is valid at any moment

        threading.Thread(target=listen, daemon=True).start()
        living = asyncio.create_task(self._live())
        while not living.done():
            order, payload = await queue.get()
            task = asyncio.create_task(self._obey(order, payload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _live(self) -> None:
        """Send signs of life; exit when the parent process has ended, even if a fork of it holds the pipe open."""
        parent = os.getppid()
        while True:
            await asyncio.sleep(BEAT)
            if os.getppid() != parent:
                os._exit(0)
            if self._tasks:
                self._answer({"beat": True})

    def _answer(self, message: Message, payload: bytes | memoryview = b"") -> None:
        try:
            send(self._answers, message, payload)
        except OSError:
            os._exit(0)

    async def _obey(self, order: Message, payload: memoryview) -> None:
        try:
            await getattr(self, f"_do_{order['do']}")(order, payload)
        except Exception as error:
            self._answer({"id": order["id"], **_failed(error)})

    async def _do_get(self, order: Message, payload: memoryview) -> None:
        """Respond with bytes, and with the version of their object."""
        target, begin, end, parts = _target(order), order["begin"], order["end"], list[bytes]()
        if target.version is not None and end is not None:
            found = memoryview(bytearray(end - begin))

            def sink(at: int, data: memoryview) -> None:
                found[at - begin : at - begin + len(data)] = data

            await self._fetch_all(target, begin, end, sink)
            self._answer({"id": order["id"], "version": target.version}, found)
            return
        request = RangeRequest(target, begin, end, lambda _, data: parts.append(bytes(data)))
        await self._queue.add(request, urgent=True).done
        self._answer({"id": order["id"], "version": request.version}, b"".join(parts))

    async def _fetch_all(self, target: Target, begin: int, end: int, sink: Callable[[int, memoryview], None]) -> None:
        """Fetch a range in several requests; raise the first failure."""
        parts = [RangeRequest(target, at, min(at + _PART, end), sink) for at in range(begin, end, _PART)]
        for part in parts:
            self._queue.add(part, urgent=True)
        await asyncio.gather(*(asyncio.shield(part.done) for part in parts))

    async def _do_fill(self, order: Message, payload: memoryview) -> None:
        """Fetch blocks into the cache, or send them; respond as they arrive, and when all have arrived."""
        blocks = payload.cast("q").tolist()
        runs = list(zip(blocks[::2], blocks[1::2], strict=True))
        filling, requests = self._block_fetcher(order), list[RangeRequest]()

        def want(some: Runs) -> None:
            for request, blocks in filling.want(some, urgent=order["urgent"], again=order["again"]):
                requests.append(request)
                request.done.add_done_callback(partial(self._answer_blocks, order["id"], blocks))

        filling.expect(runs[: order["new"]])
        if order["urgent"]:
            want(runs)
        else:
            async with self._in_turn:  # the requests of a prefetch are made when the queue has room for them
                for begin in range(0, len(runs), _STEP):
                    await self._queue.room()
                    want(runs[begin : begin + _STEP])
        await asyncio.gather(*(request.done for request in requests), return_exceptions=True)
        self._answer({"id": order["id"]})

    def _answer_blocks(self, number: int, blocks: range, done: asyncio.Future[None]) -> None:
        """Respond that some blocks of an order arrived or failed."""
        failure = done.exception()
        self._answer({"id": number, "more": True, "blocks": [blocks.start, blocks.stop], **_failed(failure)})

    def _block_fetcher(self, order: Message) -> BlockFetcher:
        key = order["url"], tuple(order["version"]), order["cache_dir"], order["cache_size"], order["seconds"]
        found = self._block_fetchers.pop(key, None)
        if found is None:
            identity, size = order["identity"], order["block"]

            def give(first: int, data: memoryview) -> None:
                self._answer({"object": identity, "first": first, "size": size}, data)

            found = BlockFetcher(order, self._queue, self._bound(order), give)
        self._block_fetchers[key] = found
        if len(self._block_fetchers) > _OBJECTS:
            for one in [one for one, filling in self._block_fetchers.items() if filling.idle and one != key][:1]:
                del self._block_fetchers[one]
        return found

    def _bound(self, order: Message) -> Bound:
        key = order["cache_dir"] or "", order["cache_size"]
        return self._bounds.setdefault(key, Bound(*key))

    async def _do_table(self, order: Message, payload: memoryview) -> None:
        """Store a range of an object in a separate file; respond with its path, or None if the disk cannot store it."""
        home, begin, size = _home(order), order["begin"], order["size"]
        assert home is not None
        try:
            with TableFile(home, begin, size) as table:
                await self._fetch_all(_target(order), begin, begin + size, table.write)
                path = table.finish()
        except OSError:
            self._answer({"id": order["id"], "path": None})
            return
        self._bound(order).wrote(size, path)
        self._answer({"id": order["id"], "path": path})

    async def _do_environment(self, order: Message, payload: memoryview) -> None:
        """Use the environment of the requesting process for stores from now on."""
        for name in order["unset"]:
            os.environ.pop(name, None)
        os.environ.update(order["set"])
        self._queue.forget_stores()

    async def _do_list(self, order: Message, payload: memoryview) -> None:
        """Respond with the objects below a URL, in pages."""
        async for page in _listed(order["url"], order["seconds"]):
            self._answer({"id": order["id"], "more": True, "page": page})
        self._answer({"id": order["id"]})


def _failed(error: BaseException | None) -> Message:
    """Return the part of a response that reports a failure; empty without a failure."""
    if error is None:
        return {}
    if isinstance(error, StoreError):
        return {"failed": error.kind, "why": str(error)}
    return {"failed": "internal", "why": type(error).__name__}  # its text may have a URL in it


def _target(order: Message) -> Target:
    return Target(order["url"], Version(*order["version"]) if order["version"] else None, order["seconds"])


def _home(order: Message) -> Home | None:
    """Return the directory of the object's version in the cache; None without a cache."""
    return None if order["cache_dir"] is None else Home(order["cache_dir"], order["identity"], order["about"])


async def _listed(url: str, seconds: float) -> AsyncIterator[list[list[Any]]]:
    """Yield pages of [path below the URL, size, ETag, time]."""
    import obstore
    import obstore.exceptions

    store, prefix = store_of(url, seconds / 4)
    prefix = prefix.rstrip("/")
    try:
        pages = obstore.list(store, prefix or None, chunk_size=_PAGE).__aiter__()
        while True:
            try:
                page = await asyncio.wait_for(pages.__anext__(), seconds)
            except StopAsyncIteration:
                return
            yield [[meta["path"][len(prefix) :].lstrip("/"), *version_of(dict(meta))] for meta in page]
    except asyncio.TimeoutError:
        raise StoreError("again", f"no data arrived within {seconds:g} s") from None
    except (obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
        raise error_of(error, url) from None
