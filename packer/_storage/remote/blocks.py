"""The blocks of a version of an object, as the process that reads has them: from the cache, compared with checksums."""

from __future__ import annotations

import array
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from packer._storage.remote import client, fetcherprocess
from packer._storage.remote.cache import Home, prepare, touch
from packer._storage.remote.client import Version
from packer._storage.remote.memory import SMALL
from packer._storage.remote.orders import Message
from packer._storage.remote.owning import own
from packer._storage.remote.settings import Settings
from packer._storage.remote.stretches import BLOCK, DATA_AT, STRETCH, Stretch
from packer._storage.remote.urls import identity, shown

__all__ = ["Blocks"]

_PER_STRETCH = STRETCH // BLOCK
_OPEN = 256  # stretches, of all objects together
_TRIES = 3
_TOUCH = 60.0  # seconds
_T = TypeVar("_T")


class _Opened:
    """A stretch, which of its blocks were compared with their checksums, and when its use was last marked."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch
        self.compared = bytearray(_PER_STRETCH)
        self.touched = 0.0


_opened: dict[tuple[str, int], _Opened] = {}  # by directory and number; without a lock, which a fork may leave locked


class Blocks:
    """The blocks of a version of an object.

    Parameters
    ----------
    url : str
    version : Version
    settings : Settings

    Attributes
    ----------
    identity : str
        What tells this version from others, and from other objects.
    home : Home or None
        Where it lies in the cache; None: there is none.
    """

    def __init__(self, url: str, version: Version, settings: Settings) -> None:
        self.url, self.version, self.settings = url, version, settings
        unnamed = [] if version.etag or version.modified else [os.urandom(16).hex()]  # nobody knows whether it changes
        self.identity = identity(url, version.etag or version.modified, version.size, *unnamed)
        about = {"url": shown(url), "size": version.size, "etag": version.etag, "modified": version.modified}
        kept = None if unnamed else own(settings.cache_dir)
        self.home = None if kept is None else Home(kept, self.identity, about)
        self._directory = "" if self.home is None else self.home.directory
        self._block = SMALL if self.home is None else BLOCK
        if self.home is not None:
            prepare(self.home.cache_dir, settings.cache_size)
        elif settings.cache_size is not None:
            fetcherprocess.memory().allow(settings.cache_size)

    def keep_first(self, data: bytes) -> None:
        """Keep the first bytes of the object, which came with its version."""
        whole = len(data) if len(data) == self.version.size else len(data) - len(data) % self._block
        fetcherprocess.memory().put(self.identity, 0, memoryview(data)[:whole], self._block)

    def place(self, begin: int, size: int) -> tuple[Stretch, int] | None:
        """Return where bytes lie, if in one stretch: bytes that were fetched for this process, or compared before."""
        number, within = divmod(begin, STRETCH)
        opened = _opened.get((self._directory, number)) or self._open(number)
        if opened is None or within + size > STRETCH:
            return None
        first, last = within // BLOCK, -(-(within + size) // BLOCK)
        if opened.compared.find(0, first, last) >= 0:
            if not opened.stretch.is_marked(first, last, fetcherprocess.mark()):
                return None
            opened.compared[first:last] = b"\1" * (last - first)
        self._touch(opened)
        return opened.stretch, DATA_AT + within

    def there(self, begin: int, size: int) -> bytes | None:
        """Return bytes that are in the cache and are what was fetched; None where some lack."""
        parts = []
        end = begin + size
        while begin < end:
            stop = min(end, begin - begin % STRETCH + STRETCH)
            part = self._in_stretch(begin, stop)
            if part is None:
                part = self._one_by_one(begin, stop)
                if part is None:
                    return None
            parts.append(part)
            begin = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self, begin: int, size: int) -> bytes:
        """Return bytes of the object, wherever they come from; RemoteError where they cannot be had."""
        return self.read_many([(begin, size)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several ranges; what lacks is fetched together."""
        return self._found(ranges, self.there)

    def places(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[Stretch, int] | bytes]:
        """Return where the bytes of several ranges lie, or the bytes; what lacks is fetched together."""
        return self._found(ranges, lambda begin, size: self.place(begin, size) or self.there(begin, size))

    def _found(
        self, ranges: Sequence[tuple[int, int]], find: Callable[[int, int], _T | bytes | None]
    ) -> list[_T | bytes]:
        found = [find(*wanted) for wanted in ranges]
        for attempt in range(_TRIES):
            lacking = [place for place, data in enumerate(found) if data is None]
            if not lacking:
                break
            self._fetch([ranges[place] for place in lacking], again=attempt > 0)
            for place in lacking:
                found[place] = find(*ranges[place])
        return [  # what the cache does not take, or loses at once, is fetched past it
            client.get(self.url, wanted[0], sum(wanted), self.version, self.settings) if data is None else data
            for wanted, data in zip(ranges, found, strict=True)
        ]

    def ahead(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Have ranges fetched, in this order, without waiting for them."""
        runs = [run for run in map(self._unknown, ranges) if run]
        if runs:
            fetcherprocess.tell(self.order("fill", urgent=False, again=False), _packed(runs))

    def order(self, do: str, **more: object) -> Message:
        """Return an order to the fetcher about this object."""
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
            "mark": fetcherprocess.mark(),
            **more,
        }

    def _run(self, wanted: tuple[int, int]) -> tuple[int, int]:
        begin, size = wanted
        return begin // self._block, -(-(begin + size) // self._block)

    def _unknown(self, wanted: tuple[int, int]) -> tuple[int, int] | None:
        """Return the blocks of a range; none where they are there, and none at its ends that lie in memory."""
        if (self._directory, wanted[0] // STRETCH) in _opened and self.place(*wanted) is not None:
            return None
        first, last = self._run(wanted)
        memory = fetcherprocess.memory()
        while first < last and memory.has(self.identity, first, self._block):
            first += 1
        while first < last and memory.has(self.identity, last - 1, self._block):
            last -= 1
        return (first, last) if first < last else None

    def _fetch(self, ranges: Iterable[tuple[int, int]], *, again: bool) -> None:
        runs = {run for run in map(self._run if self.home or again else self._unknown, ranges) if run}
        if again:
            runs = {
                (block, block + 1)
                for run in runs
                for block in range(*run)
                if self.there(block * self._block, min(self._block, self.version.size - block * self._block)) is None
            }
        client.fetched(self.order("fill", urgent=True, again=again), _packed(sorted(runs)), self.url)
        for number in {block // _PER_STRETCH for first, last in runs for block in (first, last - 1)}:
            opened = _opened.get((self._directory, number))
            if opened is not None and not opened.stretch.is_named():  # somebody removed it, and it was made again
                _opened.pop((self._directory, number), None)

    def _in_stretch(self, begin: int, end: int) -> bytes | None:
        """Return bytes of one stretch; None where some lack or are not what was fetched."""
        opened = self._open(begin // STRETCH)
        if opened is None:
            return None
        start = begin - begin % STRETCH
        first, last = (begin - start) // BLOCK, -(-(end - start) // BLOCK)
        data = opened.stretch.read(first, last)
        if data is None:
            return None
        opened.compared[first:last] = b"\1" * (last - first)
        self._touch(opened)
        within = begin - start - first * BLOCK
        return data[within : within + end - begin]

    def _one_by_one(self, begin: int, end: int) -> bytes | None:
        """Return bytes of which some blocks are in the memory of this process; None where some lack there too."""
        parts, memory = [], fetcherprocess.memory()
        for block in range(begin // self._block, -(-end // self._block)):
            data = memory.get(self.identity, block, self._block)
            if data is None:
                at = block * self._block
                data = self._in_stretch(at, min(at + self._block, self.version.size))
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
                found = _Opened(Stretch(self.home.directory, number, self.version.size))
            except OSError:  # not there, or no stretch
                return None
            while len(_opened) >= _OPEN:
                _opened.pop(next(iter(_opened)), None)
            _opened[key] = found
        return found

    def _touch(self, opened: _Opened) -> None:
        now = time.monotonic()
        if now - opened.touched > _TOUCH:
            opened.touched = now
            touch(opened.stretch.path)


def _packed(runs: Iterable[tuple[int, int]]) -> bytes:
    return array.array("q", (block for run in runs for block in run)).tobytes()
