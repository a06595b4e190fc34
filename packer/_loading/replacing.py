"""Samples that cannot be read while a network is trained, and those that take their places.

The next sample that can be read takes the place. So the choice is the same in every run and on every rank. Its crop is
another one than it has by itself in that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from packer._table import Ints
from packer.errors import CorruptPackError, ImageError, PackError, printable, warn

__all__ = ["BAD", "Replaced", "good", "replaced_from"]

BAD = CorruptPackError, ImageError
"""What is raised of a sample that cannot be read, and of no other reason."""

_TURN = 1 << 20  # of a sample that takes another's place: see `in_turns`


class Replaced:
    """The samples of a dataset that could not be read in this process.

    Parameters
    ----------
    most : float
        Which share of the dataset's samples may be such: one at least, unless it is 0.

    Attributes
    ----------
    reasons : list of str
        What is wrong with each, in the order of finding them.
    """

    def __init__(self, most: float) -> None:
        if not 0 <= most <= 1:
            raise ValueError(f"max_bad is a share of the samples, 0 to 1, not {most!r}")
        self.most = most
        self.reasons: list[str] = []

    def note(self, error: Exception, length: int) -> None:
        """Note a sample of a dataset of `length`, and warn of it once; PackError where there are too many."""
        if str(error) in self.reasons:
            return
        self.reasons.append(str(error))
        if len(self.reasons) > (max(1, self.most * length) if self.most else 0):
            some = "; ".join(map(printable, self.reasons[:3]))
            raise PackError(
                f"{len(self.reasons)} of {length} samples cannot be read, and max_bad={self.most:g} of them are "
                f"replaced at most: {some}"
            ) from error
        warn(f"{error} Another sample takes its place, as on_error='replace' says")


def replaced_from(on_error: str, max_bad: float) -> Replaced | None:
    """Return where replaced samples are noted; None where a bad sample is an error."""
    if on_error not in ("raise", "replace"):
        raise ValueError(f"on_error is 'raise' or 'replace', not {on_error!r}")
    replaced = Replaced(max_bad)  # which refuses what is no share
    return replaced if on_error == "replace" else None


def good(indices: Sequence[int] | Ints, length: int, require: Callable[[int], None], replaced: Replaced) -> Ints:
    """Return indices of samples that can be read, others in the places of those that cannot.

    Parameters
    ----------
    indices : (N,) int64 array
        As `in_turns` gives them.
    length : int
        How many samples the dataset has.
    require : callable
        Takes an index, and raises one of `BAD` where the sample cannot be read.
    replaced : Replaced

    Raises
    ------
    PackError
        If there are too many bad samples, or no good one.
    """
    return np.array([_good(int(index), length, require, replaced) for index in indices], np.int64)


def _good(index: int, length: int, require: Callable[[int], None], replaced: Replaced) -> int:
    for step in range(length):
        candidate = index if step == 0 else (index + step) % length + _TURN * length
        try:
            require(candidate)
        except BAD as error:
            replaced.note(error, length)
        else:
            return candidate
    raise PackError("not one of the samples can be read")
