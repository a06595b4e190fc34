"""The epoch of a dataset's crops, and whether somebody forgets to move it on: in memory that all workers share."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._table import Ints
from packer.errors import warn

__all__ = ["Epochs"]

_WATCHED = 1 << 12  # samples, spread over the pack, whose reading is remembered
_FEW = 16  # samples of which nobody can tell passes from single looks
_EPOCH, _READ, _AGAIN, _WARNED, _MOVES, _NUMBERS = range(6)


class Epochs:
    """The epoch of the crops, and what was read in it. DataLoader workers see what `move_on` says.

    Parameters
    ----------
    length : int
        Number of samples of the pack.
    pack : str
        The pack's path, which the warning names.
    """

    def __init__(self, length: int, pack: str) -> None:
        self._pack = pack
        self._step = max(-(-length // _WATCHED), 1)
        count = -(-length // self._step)
        memory = torch.zeros(8 * _NUMBERS + count, dtype=torch.uint8)
        self._look_at(memory.share_memory_())  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {"_pack": self._pack, "_step": self._step, "_memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look_at(self._memory.share_memory_())  # type: ignore[no-untyped-call]

    def _look_at(self, memory: torch.Tensor) -> None:
        """Take memory that is shared, in which everything lies."""
        self._memory, numbers = memory, memory.numpy()
        self._numbers: npt.NDArray[np.int64] = numbers[: 8 * _NUMBERS].view(np.int64)
        self._seen: npt.NDArray[np.uint8] = numbers[8 * _NUMBERS :]

    @property
    def epoch(self) -> int:
        return int(self._numbers[_EPOCH])

    @property
    def moves(self) -> int:
        """How often an epoch was said."""
        return int(self._numbers[_MOVES])

    def move_on(self, epoch: int) -> None:
        """Let the crops be those of `epoch`."""
        moves = self.moves + 1
        self._seen[:] = 0
        self._numbers[:] = 0
        self._numbers[_EPOCH], self._numbers[_MOVES] = operator.index(epoch), moves

    def read(self, rows: Ints) -> None:
        """Remember that samples get the crops of this epoch; warn once where these are crops of a pass before.

        The memory says which of the watched samples were read in this epoch. Where nearly all samples that come were
        read before, this is a second pass. Two processes that count at once may lose a count, and warn a little later.
        """
        watched = rows[rows % self._step == 0] // self._step
        seen, numbers = self._seen, self._numbers
        again = int(np.count_nonzero(seen[watched]))
        seen[watched] = 1
        numbers[_AGAIN] += again
        numbers[_READ] += len(watched) - again
        enough = numbers[_READ] >= min(_FEW, len(seen)) and 4 * numbers[_AGAIN] > 3 * numbers[_READ]
        if enough and not numbers[_WARNED]:
            numbers[_WARNED] = 1
            warn(
                f"{self._pack}: the crops of epoch {self.epoch} are read a second time, the same as before, as the "
                "dataset has a seed=: call dataset.set_epoch(epoch) before each pass over it, or leave out seed="
            )
