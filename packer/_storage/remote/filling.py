"""Blocks of an object that lack, fetched into the cache; where there is none, they are sent to who reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from packer._storage.remote.cache import Bound, Home
from packer._storage.remote.fetching import Fetching, Piece, Target
from packer._storage.remote.stretches import BLOCK, STRETCH, Stretch, stretch_name

__all__ = ["Filling", "Runs"]

Runs = Sequence[tuple[int, int]]
"""Blocks, from one to before another."""

_REQUEST = 4 << 20  # bytes of one request
_OPEN = 64  # stretches
_PER_STRETCH = STRETCH // BLOCK
_LOOK_AGAIN = 0.02  # seconds between two looks, while another process fetches the same
_REMOVED_MEANWHILE = 2  # times that somebody may remove what is being made, such as `packer cache clear`
_SECONDS_WITHOUT = 30.0  # how long nobody tries again to write to a disk that failed


class Filling:
    """The blocks of one version of an object.

    Parameters
    ----------
    target : Target
    fetching : Fetching
    home : Home or None
        Where it lies in the cache; None: there is none.
    bound : Bound
        That of the cache.
    send : callable
        Given the first block, and the bytes of blocks that the cache does not take.
    block : int
        Bytes of a block; `BLOCK` where there is a cache.
    mark : int
        That of the process that reads.
    """

    def __init__(  # noqa: PLR0917
        self,
        target: Target,
        fetching: Fetching,
        home: Home | None,
        bound: Bound,
        send: Callable[[int, memoryview], None],
        block: int,
        mark: int,
    ) -> None:
        assert target.version is not None
        self._target, self._size = target, target.version.size
        self._fetching, self._home, self._bound, self._send = fetching, home, bound, send
        self._block, self._mark = block, mark
        self._most = _REQUEST // block
        self._under_way: dict[int, tuple[Piece, range]] = {}
        self._stretches: dict[int, Stretch] = {}
        self._not_before = 0.0
        self._expected: set[int] = set()  # blocks that are ordered, of which no pieces are made yet

    @property
    def idle(self) -> bool:
        """Whether nothing is ordered that has not come."""
        return not self._expected and not self._under_way

    def expect(self, runs: Runs) -> None:
        """Say which blocks are ordered, and will be given to `want`: by this order, or by one that hastens them."""
        self._expected.update(block for run in runs for block in range(*run))

    def want(self, runs: Runs, *, urgent: bool, again: bool) -> list[tuple[Piece, range]]:
        """Fetch the blocks that lack; return the pieces under way that have blocks of `runs`, and all blocks of each.

        A block is fetched where it is still expected: else an order before this one has fetched it, and it was sent.
        With `again`, blocks are fetched that are there.
        """
        pieces: dict[Piece, range] = {}
        for run in runs:
            new = list[int]()
            for block in self._lacking(*run, again=again):
                under_way = self._under_way.get(block)
                if under_way is not None:
                    pieces[under_way[0]] = under_way[1]
                    if urgent:
                        self._fetching.hasten(under_way[0])
                elif again or block in self._expected:
                    new.append(block)
            self._expected.difference_update(range(*run))
            for blocks in _runs_of(new, self._most):
                pieces[self._fetch(blocks, urgent=urgent, again=again)] = blocks
        return list(pieces.items())

    def _fetch(self, blocks: range, *, urgent: bool, again: bool) -> Piece:
        fetch = None if self._home is None else partial(self._share, blocks, again)
        piece = self._piece(blocks, fetch)
        self._under_way.update(dict.fromkeys(blocks, (piece, blocks)))

        def ended(_: object) -> None:
            for block in blocks:
                self._under_way.pop(block, None)

        piece.done.add_done_callback(ended)
        return self._fetching.add(piece, urgent=urgent)

    def _piece(self, blocks: range, fetch: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Piece:
        begin, end = blocks.start * self._block, min(blocks.stop * self._block, self._size)
        return Piece(self._target, begin, end, self._keep, fetch)

    async def _share(self, blocks: range, again: bool) -> None:
        """Fetch blocks that lack by now, and wait for those that another process fetches at this moment.

        Nobody is waited for longer than for a server.
        """
        left, until = list(blocks), time.monotonic() + self._target.seconds
        number, start = blocks.start // _PER_STRETCH, blocks.start - blocks.start % _PER_STRETCH
        while left:
            stretch = self._open(number, writing=True)
            if stretch is None or time.monotonic() > until:
                await self._request(left)
                return
            claimed = list(_claimed(stretch, left))
            missing = stretch.lacking(left[0] - start, left[-1] - start + 1)
            lacking = {*left} if again else {start + block for block in missing}
            try:
                await self._request([block for run in claimed for block in run if block in lacking])
            finally:
                for run in claimed:
                    stretch.release(run.start - start, run.stop - start)
            left = [block for block in left if block in lacking and not any(block in run for run in claimed)]
            if left:
                await asyncio.sleep(_LOOK_AGAIN)

    async def _request(self, blocks: Sequence[int]) -> None:
        """Request blocks, those together that follow one another; the first failure counts when all have ended."""
        requests = [self._fetching.request(self._piece(run)) for run in _runs_of(blocks, self._most)]
        if len(requests) == 1:
            await requests[0]
            return
        for failure in await asyncio.gather(*requests, return_exceptions=True):
            if failure is not None:
                raise failure

    def _lacking(self, first: int, last: int, *, again: bool) -> Iterator[int]:
        """Yield the blocks that the cache does not have."""
        while first < last:
            number = first // _PER_STRETCH
            start = number * _PER_STRETCH
            end = min(last, start + _PER_STRETCH)
            stretch = None if again else self._open(number)
            if stretch is None:
                yield from range(first, end)
            else:
                yield from (start + block for block in stretch.lacking(first - start, end - start))
            first = end

    def _keep(self, position: int, data: memoryview) -> None:
        """Write blocks to the cache, or send them."""
        first = position // self._block
        number, within = divmod(first, _PER_STRETCH)
        for attempt in range(2):
            stretch = self._open(number, writing=True)
            if stretch is None:
                break
            try:
                stretch.write(within, data, self._mark)
            except OSError:  # the disk is full, most of all
                if attempt:
                    self._give_up()
                else:
                    self._bound.make_room(stretch.path, least=64 << 20)
            else:
                self._bound.wrote(len(data), stretch.path)
                return
        self._send(first, data)

    def _open(self, number: int, *, writing: bool = False) -> Stretch | None:
        """Return a stretch that is still in the cache; None where there is none, or none can be made."""
        if self._home is None or time.monotonic() < self._not_before:
            return None
        found = self._stretches.get(number)
        if found is not None and found.is_named():
            return found
        self._stretches.pop(number, None)
        if not writing and not os.path.exists(os.path.join(self._home.directory, stretch_name(number))):
            return None
        try:
            found = self._made(self._home, number)
        except OSError:
            self._give_up()
            return None
        if len(self._stretches) >= _OPEN:
            self._stretches.clear()
        self._stretches[number] = found
        return found

    def _made(self, home: Home, number: int) -> Stretch:
        """Open a stretch for writing; make it where it is missing."""
        for _ in range(_REMOVED_MEANWHILE):
            with contextlib.suppress(FileNotFoundError):
                home.make()
                return Stretch(home.directory, number, self._size, writing=True)
        home.make()
        return Stretch(home.directory, number, self._size, writing=True)

    def _give_up(self) -> None:
        self._stretches.clear()
        self._not_before = time.monotonic() + _SECONDS_WITHOUT


def _claimed(stretch: Stretch, blocks: Sequence[int]) -> Iterator[range]:
    """Claim blocks of a stretch, those that nobody else has claimed; yield them in runs."""
    for run in _runs_of(blocks, len(blocks)):
        first = run.start % _PER_STRETCH
        if stretch.claim(first, first + len(run)):
            yield run
            continue
        alone = [block for block in run if stretch.claim(block % _PER_STRETCH, block % _PER_STRETCH + 1)]
        yield from _runs_of(alone, len(blocks))


def _runs_of(blocks: Sequence[int], most: int) -> Iterator[range]:
    """Yield runs of blocks that follow one another, `most` at most in each, and none in two stretches."""
    begin = 0
    for at in range(1, len(blocks) + 1):
        ends = at == len(blocks) or blocks[at] != blocks[at - 1] + 1 or blocks[at] % _PER_STRETCH == 0
        if ends or at - begin == most:
            yield range(blocks[begin], blocks[at - 1] + 1)
            begin = at
