"""Reads blocks of a remote object from the cache, checks them, and requests missing blocks from the fetcher."""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from packer._storage.files import try_lock
from packer._storage.packfile import Descriptor, FileBytes
from packer._storage.remote import client
from packer._storage.remote.cache import (
    BLOCK,
    DATA_AT,
    SEGMENT,
    CachedTable,
    Home,
    Segment,
    crc32c_of,
    prepare,
    tables_with,
    touch,
    trusted_cache,
)
from packer._storage.remote.client import SMALL, Message, Version
from packer._storage.remote.urls import RemoteSettings, identity, redacted
from packer._storage.safe_open import NO_LINK, open_regular
from packer.errors import PackerError, RemoteError

_PER_SEGMENT = SEGMENT // BLOCK
_OPEN = 256  # segments, of all objects together
_TRIES = 3
_TOUCH = 60.0  # seconds
_GAP = 2  # blocks: a gap of at most this size between two runs is fetched too
_T = TypeVar("_T")


class _Opened:
    """An open segment, the blocks in it that were verified, and the time when the segment was last marked as used."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.compared = bytearray(_PER_SEGMENT)
        self.touched = 0.0


_opened: dict[tuple[str, int], _Opened] = {}  # by directory and number; without a lock, which a fork may leave locked


class _FetchOrder:
    """An order (a message to the fetcher) for blocks of one object; threads can wait for the blocks.

    Parameters
    ----------
    key : str
        The key of the object's blocks in this process.
    urgent : bool
        Whether threads wait for the blocks.

    Attributes
    ----------
    blocks : list of int
        The blocks that no earlier order fetches.
    hastened : list of int
        Urgently needed blocks that belong to an earlier order, which was not urgent.
    failures : dict
        The fetcher's messages about blocks that failed.
    came : threading.Condition
        Notified when blocks arrive or fail.
    """

    def __init__(self, key: str, urgent: bool) -> None:
        self.key, self.urgent = key, urgent
        self.blocks: list[int] = []
        self.hastened: list[int] = []
        self.failures: dict[int, Message] = {}
        self.came = threading.Condition(_due.lock)


class _Due:
    """The blocks that this process has ordered and not yet received, so that no block is ordered twice."""

    def __init__(self) -> None:
        self.sending = threading.Lock()  # orders are sent in the sequence in which they were registered
        self.lock = threading.Lock()
        self.orders: dict[tuple[str, int], _FetchOrder] = {}

    def received(self, order: _FetchOrder, answer: client.Reply) -> None:
        """Handle a response to an order: some of its blocks, or all remaining ones, arrived or failed."""
        message, _ = answer
        failed, more = "failed" in message, "more" in message
        with self.lock:
            changed = {order}
            for block in range(*message["blocks"]) if more else (*order.blocks, *order.hastened):
                key = order.key, block
                found = self.orders.get(key)
                if found is None or (found is not order and (failed or not more)):
                    continue
                del self.orders[key]
                if failed:
                    order.failures[block] = message
                changed.add(found)
            for one in changed:
                one.came.notify_all()

    def wait(self, orders: Mapping[int, _FetchOrder]) -> Message | None:
        """Wait until some blocks have arrived; return the fetcher's message if one failed.

        `orders` maps each block to the order that fetches it.
        """
        with self.lock:
            for block, order in orders.items():
                while self.orders.get((order.key, block)) is order:
                    if not order.came.wait(client.LOOK_AGAIN):
                        client.require_signs()
                if block in order.failures:
                    return order.failures[block]
        return None


_due = _Due()


def _after_fork() -> None:
    global _due  # noqa: PLW0603 - the fetcher of the other process has those orders
    _due = _Due()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Blocks:
    """Reads the blocks of one version of a remote object.

    Parameters
    ----------
    url : str
    version : Version
    settings : RemoteSettings

    Attributes
    ----------
    identity : str
        A name that distinguishes this version from other versions and from other objects.
    home : Home or None
        The version's directory in the cache; None without a cache.
    """

    def __init__(self, url: str, version: Version, settings: RemoteSettings) -> None:
        self.url, self.version, self.settings = url, version, settings
        unnamed = [] if version.etag or version.modified else [os.urandom(16).hex()]  # it may change unnoticed
        self.identity = identity(url, version.etag or version.modified, version.size, *unnamed)
        about = {"url": redacted(url), "size": version.size, "etag": version.etag, "modified": version.modified}
        directory = None if unnamed else trusted_cache(settings.cache_dir)
        self.home = None if directory is None else Home(directory, self.identity, about)
        self._directory = "" if self.home is None else self.home.directory
        self._key = self._directory or self.identity
        self._block = SMALL if self.home is None else BLOCK
        if self.home is not None:
            prepare(self.home.cache_dir, settings.cache_size)
        elif settings.cache_size is not None:
            client.memory().allow(settings.cache_size)

    def keep_first(self, data: bytes) -> None:
        """Store the object's first bytes, which were received together with its version, in memory."""
        whole = len(data) if len(data) == self.version.size else len(data) - len(data) % self._block
        client.memory().put(self.identity, 0, memoryview(data)[:whole], self._block)

    def position(self, begin: int, size: int) -> tuple[Segment, int] | None:
        """Return the segment (a cache file) that has these bytes, and their position in it.

        None if no single segment has all of them, or if they must still be compared with their checksums.
        """
        number, within = divmod(begin, SEGMENT)
        opened = _opened.get((self._directory, number)) or self._open(number)
        if opened is None or within + size > SEGMENT:
            return None
        first, last = within // BLOCK, -(-(within + size) // BLOCK)
        if opened.compared.find(0, first, last) >= 0:
            if not opened.segment.is_marked(first, last, client.mark()):
                return None
            opened.compared[first:last] = b"\1" * (last - first)
        self._touch(opened)
        return opened.segment, DATA_AT + within

    def cached(self, begin: int, size: int) -> bytes | None:
        """Return bytes from the cache; None if some are missing or damaged."""
        parts = []
        end = begin + size
        while begin < end:
            stop = min(end, begin - begin % SEGMENT + SEGMENT)
            part = self._in_segment(begin, stop)
            if part is None:
                part = self._one_by_one(begin, stop)
                if part is None:
                    return None
            parts.append(part)
            begin = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self, begin: int, size: int) -> bytes:
        """Return bytes of the object, from the cache or the store; RemoteError if they cannot be fetched."""
        return self._found([(begin, size)], self.cached)[0]

    def locate(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[Segment, int] | bytes]:
        """Return the positions of several ranges in segments, or their bytes; missing blocks are fetched together."""
        return self._found(ranges, lambda begin, size: self.position(begin, size) or self.cached(begin, size))

    def _found(
        self, ranges: Sequence[tuple[int, int]], find: Callable[[int, int], _T | bytes | None]
    ) -> list[_T | bytes]:
        found = [find(*one) for one in ranges]
        for attempt in range(_TRIES):
            missing = [number for number, data in enumerate(found) if data is None]
            if not missing:
                break
            self._fetch([self._run(*ranges[number]) for number in missing], again=attempt > 0)
            for number in missing:
                found[number] = find(*ranges[number])
        return [  # bytes that the cache cannot store, or loses at once, bypass it
            client.get(self.url, begin, begin + size, self.version, self.settings) if data is None else data
            for (begin, size), data in zip(ranges, found, strict=True)
        ]

    def ahead(self, ranges: Iterable[tuple[int, int]], *, urgent: bool = False) -> None:
        """Order ranges, in their sequence, without waiting; urgent ranges take precedence over other orders."""
        self._fetch_missing([self._run(*one) for one in ranges], urgent=urgent)

    def whole(self, begin: int, size: int) -> tuple[FileBytes | mmap.mmap, int]:
        """Return the cache file or the memory that contains a range of the object, and where in it the range begins.

        The range, such as a table, is fetched once on each node, into one file of the cache.

        Raises
        ------
        RemoteError
            If the range cannot be fetched.
        """
        if self.home is not None:
            found = _cached_table(self.home.directory, begin, size)
            if found is None:
                with _alone(self.home, begin, size, self.settings.timeout):
                    found = _cached_table(self.home.directory, begin, size) or self._fetch_table(begin, size)
            if found is not None:
                return found[0], begin - found[1]
        data = mmap.mmap(-1, size)  # no disk can store it
        data.write(client.get(self.url, begin, begin + size, self.version, self.settings))
        return data, 0

    def _fetch_table(self, begin: int, size: int) -> tuple[FileBytes, int] | None:
        answer = client.ask_about(self._order("table", begin=begin, size=size), self.url)
        path = answer["path"]
        return _cached_table(os.path.dirname(path), begin, size) if path else None

    def _order(self, do: str, **more: object) -> Message:
        """Return an order about this object, to be sent to the fetcher."""
        return {
            "do": do,
            "url": self.url,
            "version": self.version,
            "identity": self.identity,
            "about": self.home and self.home.about,
            "cache_dir": self.home and self.home.cache_dir,
            "cache_size": self.settings.cache_size,
            "seconds": self.settings.timeout,
            "block": self._block,
            "mark": client.mark(),
            **more,
        }

    def _run(self, begin: int, size: int) -> range:
        return range(begin // self._block, -(-(begin + size) // self._block))

    def _fetch(self, runs: Sequence[range], *, again: bool) -> None:
        """Order those blocks of `runs` that are not yet ordered, and wait for all blocks; RemoteError if one fails.

        If `again` is True, blocks that fail their checksum count as missing.
        """
        for _ in range(client.STARTS):
            failed = _due.wait(self._fetch_missing(runs, urgent=True, again=again))
            if failed is None or failed["failed"] != client.ENDED:
                break
        if failed is not None and failed["failed"] == client.ENDED:
            raise client.ended(failed["why"])
        if failed is not None:
            raise RemoteError(f"{redacted(self.url)}: {failed['why']}")
        for number in {block // _PER_SEGMENT for run in runs for block in (run[0], run[-1])}:
            opened = _opened.get((self._directory, number))
            if opened is not None and not opened.segment.is_named():  # it was removed, and made again
                _opened.pop((self._directory, number), None)

    def _fetch_missing(self, runs: Iterable[range], *, urgent: bool, again: bool = False) -> dict[int, _FetchOrder]:
        """Place one order for the missing blocks that are not yet ordered; return the order that fetches each block.

        If the order is urgent, outstanding blocks that were not urgent before are hastened.
        """
        order = _FetchOrder(self._key, urgent)
        callback = partial(_due.received, order)
        try:
            with _due.sending:
                orders = self._remember(order, runs, again)
                if order.blocks or order.hastened:
                    new, hastened = (array.array("q", _ends(some)) for some in (order.blocks, order.hastened))
                    message = self._order("fill", urgent=urgent, again=again, new=len(new) // 2)
                    client.order(message, (new + hastened).tobytes(), callback)
        except BaseException as error:  # otherwise other threads would wait for blocks that nobody fetches
            callback(({"failed": client.ENDED, "why": str(error)}, memoryview(b"")))
            raise
        return orders

    def _remember(self, order: _FetchOrder, runs: Iterable[range], again: bool) -> dict[int, _FetchOrder]:
        """Add to an order the missing blocks that no earlier order fetches; return the order for each missing block."""
        orders = dict[int, _FetchOrder]()
        with _due.lock:
            for run in runs:
                for block in self._lacking(run, again):
                    due = _due.orders.get((self._key, block))
                    if due is None:
                        self._add(order, block)
                    elif order.urgent and not due.urgent:
                        order.hastened.append(block)
                        _due.orders[self._key, block] = order
                    orders[block] = _due.orders[self._key, block]
        return orders

    def _add(self, order: _FetchOrder, block: int) -> None:
        """Add a block to an order; if only a few missing blocks are between it and the previous one, add these too."""
        before = order.blocks[-1] + 1 if order.blocks else block
        between = range(before, block) if before < block <= before + _GAP else range(0)
        if any((self._key, one) in _due.orders for one in between) or len(self._lacking(between, False)) < len(between):
            between = range(0)
        for one in (*between, block):
            _due.orders[self._key, one] = order
            order.blocks.append(one)

    def _lacking(self, run: range, again: bool) -> Sequence[int]:
        """Return the blocks of a run that are neither in the cache nor in memory."""
        if again:
            last = self.version.size
            return [b for b in run if self.cached(b * self._block, min(self._block, last - b * self._block)) is None]
        memory = client.memory()
        lacking = [block for block in run if not memory.has(self.identity, block, self._block)]
        if self.home is None or not lacking:
            return lacking
        found = list[int]()
        for number in range(lacking[0] // _PER_SEGMENT, lacking[-1] // _PER_SEGMENT + 1):
            opened, start = self._open(number), number * _PER_SEGMENT
            some = [block for block in lacking if start <= block < start + _PER_SEGMENT]
            if opened is not None and some:
                missing = set(opened.segment.lacking(some[0] - start, some[-1] - start + 1))
                some = [block for block in some if block - start in missing]
            found += some
        return found

    def _in_segment(self, begin: int, end: int) -> bytes | None:
        """Return bytes of one segment; None if some are missing or fail their checksum."""
        opened = self._open(begin // SEGMENT)
        if opened is None:
            return None
        start = begin - begin % SEGMENT
        first, last = (begin - start) // BLOCK, -(-(end - start) // BLOCK)
        data = opened.segment.read(first, last)
        if data is None:
            return None
        opened.compared[first:last] = b"\1" * (last - first)
        self._touch(opened)
        within = begin - start - first * BLOCK
        return data[within : within + end - begin]

    def _one_by_one(self, begin: int, end: int) -> bytes | None:
        """Collect bytes of blocks from the cache and this process's memory; None if a block is in neither."""
        parts, memory = [], client.memory()
        for block in range(begin // self._block, -(-end // self._block)):
            data = memory.get(self.identity, block, self._block)
            if data is None:
                at = block * self._block
                data = self._in_segment(at, min(at + self._block, self.version.size))
            if data is None:
                return None
            parts.append(data)
        within = begin % self._block
        return b"".join(parts)[within : within + end - begin]

    def _open(self, number: int) -> _Opened | None:
        if self.home is None:
            return None
        key = self._directory, number
        found = _opened.get(key)
        if found is None:
            try:
                found = _Opened(Segment(self.home.directory, number, self.version.size))
            except OSError:  # not there, or no segment
                return None
            for oldest in list(_opened)[: max(0, len(_opened) + 1 - _OPEN)]:  # a list at once: other threads add some
                _opened.pop(oldest, None)
            _opened[key] = found
        return found

    def _touch(self, opened: _Opened) -> None:
        now = time.monotonic()
        if now - opened.touched > _TOUCH:
            opened.touched = now
            touch(opened.segment.path)


def _ends(blocks: Iterable[int]) -> Iterator[int]:
    """Yield the begin and end of each run of consecutive blocks."""
    end = None
    for block in blocks:
        if block != end:
            if end is not None:
                yield end
            yield block
        end = block + 1
    if end is not None:
        yield end


_LOOK_AGAIN = 0.05  # seconds between two looks, while another process fetches the same table


def _cached_table(directory: str, begin: int, size: int) -> tuple[FileBytes, int] | None:
    """Open an intact table file of the cache that contains a range; return the file, and its offset in the object."""
    for table in tables_with(directory, begin, size):
        found = _open_table(table)
        if found is not None:
            touch(table.path)
            return found, table.begin
        with contextlib.suppress(OSError):
            os.unlink(table.path)
    return None


def _open_table(table: CachedTable) -> FileBytes | None:
    """Open a table; None if it is gone or damaged."""
    try:
        descriptor = Descriptor(open_regular(table.path, flags=os.O_RDONLY | NO_LINK))
        fd = descriptor.number
        intact = os.fstat(fd).st_size == table.size and crc32c_of(fd, table.size) == table.checksum
    except OSError:
        return None
    return FileBytes(descriptor, table.path, table.size) if intact else None


@contextlib.contextmanager
def _alone(home: Home, begin: int, size: int, seconds: float) -> Iterator[None]:
    """Before the ``with`` block, wait while another process fetches the same table.

    The wait ends when the table is complete, when that process dies, or after `seconds`.
    """
    path = os.path.join(home.directory, f"{begin}-{size}.lock")
    try:
        home.make()
        lock = open(open_regular(path, flags=os.O_RDWR | os.O_CREAT | NO_LINK), "ab")  # noqa: SIM115 - closed below
    except OSError:
        yield
        return
    until = time.monotonic() + seconds
    with lock:
        with contextlib.suppress(PackerError):  # a file system without locks: then each process fetches it
            while not try_lock(lock) and time.monotonic() < until and not any(tables_with(home.directory, begin, size)):
                time.sleep(_LOOK_AGAIN)
        yield
    with contextlib.suppress(OSError):
        os.unlink(path)
