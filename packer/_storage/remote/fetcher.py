"""The process that fetches: it owns obstore, whose threads do not survive a fork, and ends when its pipe does.

It imports little, so that it is there soon: no NumPy, no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from packer._storage.remote.cache import Bound, Home
from packer._storage.remote.fetching import Fetching, Piece, Seen, Target, version_of
from packer._storage.remote.filling import Filling, Runs
from packer._storage.remote.orders import Message, receive, send
from packer._storage.remote.stores import StoreError, error_of, store_of
from packer._storage.remote.tablefile import TableFile

__all__ = ["BEAT", "main"]

BEAT = 2.0
"""Seconds between two signs of life, while somebody waits."""

_PART = 4 << 20  # bytes of one request, where many are wanted at once
_STEP = 128  # runs that become pieces at a time
_PAGE = 1000  # objects in one answer
_OBJECTS = 64  # versions of objects that are remembered


def main() -> None:
    """Serve the process at the other end of standard input and output, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who reads decides what an interruption ends
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what a library prints must not stand among the answers
    asyncio.run(_Fetcher(answers).serve(orders))


class _Fetcher:
    """Takes orders, each in a task of its own.

    Parameters
    ----------
    answers : int
        The pipe for answers.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._fetching = Fetching()
        self._fillings: dict[tuple[Any, ...], Filling] = {}
        self._bounds: dict[tuple[str, int | None], Bound] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_turn = asyncio.Lock()

    async def serve(self, orders: int) -> None:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[Message, memoryview]]()

        def listen() -> None:
            with contextlib.suppress(OSError):
                while (order := receive(orders)) is not None:
                    loop.call_soon_threadsafe(queue.put_nowait, order)
            os._exit(0)  # whatever is under way: nobody wants it any more, and the cache is right at any moment

        threading.Thread(target=listen, daemon=True).start()
        living = asyncio.create_task(self._live())
        while not living.done():
            order, payload = await queue.get()
            task = asyncio.create_task(self._obey(order, payload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _live(self) -> None:
        """Give signs of life; end when who started this process did, though a fork of it holds the pipe open."""
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
        """Answer with bytes, and with the version of the object that they are of."""
        target, begin, end, parts = _target(order), order["begin"], order["end"], list[bytes]()
        if target.version is not None and end is not None:
            found = memoryview(bytearray(end - begin))

            def sink(at: int, data: memoryview) -> None:
                found[at - begin : at - begin + len(data)] = data

            await self._fetch_all(target, begin, end, sink)
            self._answer({"id": order["id"], "version": target.version}, found)
            return
        piece = Piece(target, begin, end, lambda _, data: parts.append(bytes(data)))
        await self._fetching.add(piece, urgent=True).done
        self._answer({"id": order["id"], "version": piece.version}, b"".join(parts))

    async def _fetch_all(self, target: Target, begin: int, end: int, sink: Callable[[int, memoryview], None]) -> None:
        """Fetch a range in several pieces."""
        await _all(
            self._fetching.add(Piece(target, at, min(at + _PART, end), sink), urgent=True)
            for at in range(begin, end, _PART)
        )

    async def _do_fill(self, order: Message, payload: memoryview) -> None:
        """Have blocks in the cache, or send them; answer as they come, and when all have."""
        blocks = payload.cast("q").tolist()
        runs = list(zip(blocks[::2], blocks[1::2], strict=True))
        filling, pieces = self._filling(order), list[Piece]()

        def want(some: Runs) -> None:
            for piece, blocks in filling.want(some, urgent=order["urgent"], again=order["again"]):
                pieces.append(piece)
                piece.done.add_done_callback(partial(self._answer_piece, order["id"], blocks))

        filling.expect(runs[: order["new"]])
        if order["urgent"]:
            want(runs)
        else:
            async with self._in_turn:  # pieces of what is wanted later are made when there is room for them
                for begin in range(0, len(runs), _STEP):
                    await self._fetching.room()
                    want(runs[begin : begin + _STEP])
        await asyncio.gather(*(piece.done for piece in pieces), return_exceptions=True)
        self._answer({"id": order["id"]})

    def _answer_piece(self, number: int, blocks: range, done: asyncio.Future[None]) -> None:
        """Answer that some blocks of an order came, or failed."""
        failure = done.exception()
        self._answer({"id": number, "more": True, "blocks": [blocks.start, blocks.stop], **_failed(failure)})

    def _filling(self, order: Message) -> Filling:
        key = order["url"], tuple(order["version"]), order["cache_dir"], order["cache_size"], order["seconds"]
        found = self._fillings.pop(key, None)
        if found is None:
            identity, size = order["identity"], order["block"]

            def give(first: int, data: memoryview) -> None:
                self._answer({"object": identity, "first": first, "size": size}, data)

            home = _home(order) if order["cache_dir"] is not None else None
            bound, sizes = self._bound(order), (order["block"], order["mark"])
            found = Filling(_target(order), self._fetching, home, bound, give, *sizes)
        self._fillings[key] = found
        if len(self._fillings) > _OBJECTS:
            for one in [one for one, filling in self._fillings.items() if filling.idle and one != key][:1]:
                del self._fillings[one]
        return found

    def _bound(self, order: Message) -> Bound:
        key = order["cache_dir"] or "", order["cache_size"]
        return self._bounds.setdefault(key, Bound(*key))

    async def _do_table(self, order: Message, payload: memoryview) -> None:
        """Keep a range of an object in a file of its own; answer with its name, or with none where that cannot be."""
        begin, size = order["begin"], order["size"]
        try:
            with TableFile(_home(order), begin, size) as table:
                await self._fetch_all(_target(order), begin, begin + size, table.write)
                path = table.finish()
        except OSError:
            self._answer({"id": order["id"], "path": None})
            return
        self._bound(order).wrote(size, path)
        self._answer({"id": order["id"], "path": path})

    async def _do_environment(self, order: Message, payload: memoryview) -> None:
        """Reach stores from now on as the environment of who asks says it."""
        for name in order["unset"]:
            os.environ.pop(name, None)
        os.environ.update(order["set"])
        self._fetching.forget_stores()

    async def _do_list(self, order: Message, payload: memoryview) -> None:
        """Answer with the objects below a URL, in pages."""
        async for page in _listed(order["url"], order["seconds"]):
            self._answer({"id": order["id"], "more": True, "page": page})
        self._answer({"id": order["id"]})


def _failed(error: BaseException | None) -> Message:
    """Return what an answer says of a failure."""
    if error is None:
        return {}
    if isinstance(error, StoreError):
        return {"failed": error.kind, "why": str(error)}
    return {"failed": "internal", "why": type(error).__name__}  # its text may have a URL in it


def _target(order: Message) -> Target:
    return Target(order["url"], Seen(*order["version"]) if order["version"] else None, order["seconds"])


def _home(order: Message) -> Home:
    return Home(order["cache_dir"], order["identity"], order["about"])


async def _all(pieces: Any) -> None:
    """Wait for all pieces; the first failure that there is counts."""
    await asyncio.gather(*(asyncio.shield(piece.done) for piece in list(pieces)))


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
        raise StoreError("again", f"nothing came within {seconds:g} s") from None
    except (obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
        raise error_of(error, url) from None
