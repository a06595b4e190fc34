"""Blocks of an object that lack, fetched into the cache; where there is none, they are sent to who reads."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator

from packer._storage.remote.cache import Bound, Home
from packer._storage.remote.fetching import Fetching, Piece, Target
from packer._storage.remote.stretches import BLOCK, STRETCH, Stretch, stretch_name

__all__ = ["Filling", "Runs"]

Runs = Iterable[tuple[int, int]]
"""Blocks, from one to before another."""

_REQUEST = 4 << 20  # bytes of one request
_GAP = 2  # blocks between two runs, which are fetched with them
_OPEN = 64  # stretches
_PER_STRETCH = STRETCH // BLOCK
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
        self._under_way: dict[int, Piece] = {}
        self._stretches: dict[int, Stretch] = {}
        self._not_before = 0.0
        self._expected = 0  # orders of which not all pieces are made yet
        self._sent: set[int] = set()  # blocks that were sent meanwhile

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """Remember which blocks are sent, until all runs of an order are wanted: some may be sent before."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            if not self._expected:
                self._sent.clear()

    def want(self, runs: Runs, *, urgent: bool, again: bool) -> list[Piece]:
        """Fetch the blocks that lack; return the pieces under way that have blocks of `runs`.

        With `again`, blocks are fetched that are there. Those that were sent are fetched again where it is urgent: who
        waits for them does not have them any more.
        """
        pieces: dict[Piece, None] = {}
        for run in _joined(runs):
            for first, last in self._lacking(*run, again=again):
                begin = first
                for block in range(first, last + 1):
                    there = self._under_way.get(block) if block < last else None
                    sent = not urgent and block in self._sent
                    if there is None and not sent and block < last and block - begin < self._most:
                        continue
                    if begin < block:
                        pieces[self._fetch(begin, block, urgent=urgent)] = None
                    begin = block
                    if there is not None or sent:
                        begin = block + 1
                    if there is not None:
                        pieces[there] = None
                        if urgent:
                            self._fetching.hasten(there)
        return list(pieces)

    def _fetch(self, first: int, last: int, *, urgent: bool) -> Piece:
        piece = Piece(self._target, first * self._block, min(last * self._block, self._size), self._keep)
        blocks = range(first, last)
        self._under_way.update(dict.fromkeys(blocks, piece))

        def ended(_: object) -> None:
            for block in blocks:
                self._under_way.pop(block, None)

        piece.done.add_done_callback(ended)
        return self._fetching.add(piece, urgent=urgent)

    def _lacking(self, first: int, last: int, *, again: bool) -> Iterator[tuple[int, int]]:
        """Yield the runs of blocks that the cache does not have; none reaches into two stretches."""
        while first < last:
            number = first // _PER_STRETCH
            start = number * _PER_STRETCH
            end = min(last, start + _PER_STRETCH)
            stretch = None if again else self._open(number)
            if stretch is None:
                yield first, end
            else:
                yield from ((start + a, start + b) for a, b in stretch.lacking(first - start, end - start))
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
        if self._expected:
            self._sent.update(range(first, first - (-len(data) // self._block)))

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


def _joined(runs: Runs) -> Iterator[tuple[int, int]]:
    """Yield runs in their order, joined with the one before where they meet it or nearly do."""
    begin = end = -1
    for first, last in runs:
        if 0 <= begin <= first <= end + _GAP:
            end = max(end, last)
            continue
        if begin >= 0:
            yield begin, end
        begin, end = first, last
    if begin >= 0:
        yield begin, end
