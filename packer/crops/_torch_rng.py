"""Random numbers from torch's default generator: those that torchvision's transforms would draw, image after image.

A call of torch takes a microsecond or two, and a crop needs half a dozen calls. Therefore `Ahead` copies the generator,
and draws many numbers at once from the copy, in every form that may be needed. At the end, `Ahead` advances the
original generator by as many numbers as were used. Once in each process, a test tells whether the installed version of
torch gives the same numbers this way.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

_FEW = 4  # with fewer images than this, copying the generator takes more time than it saves
_EACH = 7  # approximate number of random numbers that a crop needs
_HALF = 2**27  # torch makes an integer below 2**28 from one word of the generator, as a remainder
_locks = [threading.Lock()]


def _renew() -> None:
    """Make a new lock in a fork, because a thread that does not exist in the fork may have held the old lock."""
    _locks[0] = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class NumberSource:
    """Draws one number at a time.

    Parameters
    ----------
    generator : torch.Generator
        A generator on the CPU.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def uniform(self, low: float, high: float) -> float:
        """Return a float32 number, uniform from `low` to `high`."""
        return torch.empty(1).uniform_(low, high, generator=self._generator).item()

    def power(self, low: float, high: float) -> float:
        """Return e to the power of a float32 number that is uniform from `low` to `high`, in float32."""
        return torch.exp(torch.empty(1).uniform_(low, high, generator=self._generator)).item()

    def below(self, end: int) -> int:
        """Return an integer from 0 to `end` - 1."""
        return int(torch.randint(0, end, size=(1,), generator=self._generator).item())

    def end(self) -> None:
        """Set the generator to the state after the last number that was drawn."""


class Ahead(NumberSource):
    """Draws the same numbers as `NumberSource`, but makes thousands at a time.

    Parameters
    ----------
    generator : torch.Generator
        The generator; nothing else may draw from it before `end` is called.
    count : int
        The number of random numbers to make at a time.
    """

    def __init__(self, generator: torch.Generator, count: int) -> None:
        super().__init__(generator)
        self._copy = torch.Generator()
        self._count = count
        self._begin()
        self._first = self._state

    def _begin(self) -> None:
        self._state = self._generator.get_state()
        self._made: dict[tuple[str, float, float], list[float]] = {}
        self._used = 0

    def _next(self, kind: str, low: float = 0, high: float = 0) -> float:
        if self._used == self._count:
            self.end()
            self._begin()
        made = self._made.get((kind, low, high))
        if made is None:
            made = self._made[kind, low, high] = self._all(kind, low, high).tolist()
        self._used += 1
        return made[self._used - 1]

    def _all(self, kind: str, low: float = 0, high: float = 0) -> torch.Tensor:
        """Return the next `count` random numbers in the form that `kind` names."""
        if kind == "word":  # 32 bits, computed from two remainders
            one, other = self._remainders(_HALF), self._remainders(_HALF - 1)
            return one + _HALF * ((other - one) % (_HALF - 1))
        self._copy.set_state(self._state)
        numbers = torch.empty(self._count).uniform_(low, high, generator=self._copy)
        return torch.exp(numbers) if kind == "power" else numbers

    def all(self, kinds: Sequence[tuple[str, float, float]]) -> npt.NDArray[np.float64]:
        """Return the next `count` numbers in each form, a (1 + len(kinds), count) array; row 0 has 32-bit integers."""
        made = np.empty((1 + len(kinds), self._count))
        made[0] = self._all("word").numpy()
        for row, kind in zip(made[1:], kinds, strict=True):
            row[:] = self._all(*kind).numpy()
        return made

    def take(self, count: int) -> None:
        """Set the generator to the state after the first `count` of the numbers that `all` returned."""
        self._used = count
        self.end()
        self._begin()

    def take_back(self) -> None:
        """Reset the generator to its state before this object was made."""
        self._generator.set_state(self._first)
        self._begin()

    def _remainders(self, end: int) -> torch.Tensor:
        self._copy.set_state(self._state)
        return torch.empty(self._count, dtype=torch.int64).random_(0, end, generator=self._copy)

    def uniform(self, low: float, high: float) -> float:
        return self._next("uniform", low, high)

    def power(self, low: float, high: float) -> float:
        return self._next("power", low, high)

    def below(self, end: int) -> int:
        if end <= _HALF:
            return int(self._next("word")) % end
        self.end()
        drawn = super().below(end)
        self._begin()
        return drawn

    def end(self) -> None:
        if self._used:
            torch.empty(self._used).uniform_(generator=self._generator)
            self._used = 0


@contextlib.contextmanager
def drawing(images: int, most: int = 0) -> Iterator[NumberSource]:
    """Yield a source of numbers for `images` images from torch's default generator, for one thread at a time.

    `most` is the largest number of random numbers that an image needs. If numbers are drawn ahead, at least this many
    are drawn at a time.
    """
    with _locks[0]:
        ahead = images >= _FEW and _makes_one_word_a_number()
        source = (
            Ahead(torch.default_generator, _EACH * images + most) if ahead else NumberSource(torch.default_generator)
        )
        try:
            yield source
        finally:
            source.end()


@functools.cache
def _makes_one_word_a_number() -> bool:
    """Tell whether the installed torch draws numbers as `Ahead` assumes."""
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    ahead = Ahead(other, 50)
    same = _some(NumberSource(one), 30) == _some(ahead, 30)
    ahead.end()
    return same and torch.equal(one.get_state(), other.get_state())


def _some(source: NumberSource, count: int) -> list[float]:
    """Draw a number of every kind, `count` times."""
    drawn: list[float] = []
    for _ in range(count):
        drawn += source.uniform(0.08, 1.0), source.power(-0.3, 0.28), source.uniform(0.0, 1.0)
        drawn += (source.below(end) for end in (1, 1000, _HALF, 2**40))
    return drawn
