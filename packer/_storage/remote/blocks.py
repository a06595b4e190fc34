"""The blocks of a version of an object, as the process that reads has them: from the cache, compared with checksums."""

from __future__ import annotations

import array
import os
import time
from collections.abc import Iterable, Sequence

from packer._storage.remote import client, fetcherprocess
from packer._storage.remote.cache import Home, prepare, touch
from packer._storage.remote.client import Version
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


class _Opened:
    """A stretch, which of its blocks were compared with their checksums, and when its use was last marked."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch
        self.compared = bytearray(_PER_STRETCH)
        self.touched = 0.0


_opened: dict[tuple[str, int], _Opened] = {}  # used without a lock, which a fork could leave locked


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
        if self.home is not None:
            prepare(self.home.cache_dir, settings.cache_size)
        elif settings.cache_size is not None:
            fetcherprocess.memory().allow(settings.cache_size)

    def keep_first(self, data: bytes) -> None:
        """Keep the first bytes of the object, which came with its version."""
        whole = len(data) if len(data) == self.version.size else len(data) - len(data) % BLOCK
        fetcherprocess.memory().put(self.identity, 0, memoryview(data)[:whole])

    def place(self, begin: int, size: int) -> tuple[Stretch, int] | None:
        """Return where bytes lie, if they do in one stretch and were compared with their checksums before."""
        number, within = divmod(begin, STRETCH)
        opened = _opened.get((self.identity, number))
        if opened is None or within + size > STRETCH:
            return None
        if opened.compared.find(0, within // BLOCK, -(-(within + size) // BLOCK)) >= 0:
            return None
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
        found = [self.there(*wanted) for wanted in ranges]
        for attempt in range(_TRIES):
            lacking = [place for place, data in enumerate(found) if data is None]
            if not lacking:
                break
            self._fetch([ranges[place] for place in lacking], again=attempt > 0)
            for place in lacking:
                found[place] = self.there(*ranges[place])
        return [  # what the cache does not take, or loses at once, is fetched past it
            client.get(self.url, wanted[0], sum(wanted), self.version) if data is None else data
            for wanted, data in zip(ranges, found, strict=True)
        ]

    def ahead(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Have ranges fetched, without waiting for them."""
        runs = [run for run in map(_run, ranges) if not self._is_known(*run)]
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
            **more,
        }

    def _is_known(self, first: int, last: int) -> bool:
        """Tell whether blocks were compared before, or lie in memory."""
        memory = fetcherprocess.memory()
        for block in range(first, last):
            number, within = divmod(block, _PER_STRETCH)
            opened = _opened.get((self.identity, number))
            if not (opened is not None and opened.compared[within]) and not memory.has(self.identity, block):
                return False
        return True

    def _fetch(self, ranges: Iterable[tuple[int, int]], *, again: bool) -> None:
        runs = {_run(wanted) for wanted in ranges}
        if again:
            runs = {
                (block, block + 1)
                for run in runs
                for block in range(*run)
                if self.there(block * BLOCK, min(BLOCK, self.version.size - block * BLOCK)) is None
            }
        client.fetched(self.order("fill", urgent=True, again=again), _packed(sorted(runs)), self.url)
        for number in {block // _PER_STRETCH for first, last in runs for block in (first, last - 1)}:
            opened = _opened.get((self.identity, number))
            if opened is not None and not opened.stretch.is_named():  # somebody removed it, and it was made again
                _opened.pop((self.identity, number), None)

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
        for block in range(begin // BLOCK, -(-end // BLOCK)):
            data = memory.get(self.identity, block)
            if data is None:
                at = block * BLOCK
                data = self._in_stretch(at, min(at + BLOCK, self.version.size))
            if data is None:
                return None
            parts.append(data)
        within = begin % BLOCK
        return b"".join(parts)[within : within + end - begin]

    def _open(self, number: int) -> _Opened | None:
        if self.home is None:
            return None
        key = self.identity, number
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


def _run(wanted: tuple[int, int]) -> tuple[int, int]:
    begin, size = wanted
    return begin // BLOCK, -(-(begin + size) // BLOCK)


def _packed(runs: Iterable[tuple[int, int]]) -> bytes:
    return array.array("q", (block for run in runs for block in run)).tobytes()
