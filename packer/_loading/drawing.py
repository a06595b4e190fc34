"""The generators of random numbers that transforms draw from: torch's, Python's and numpy's, one each a process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from packer._table import Ints
from packer.samplers._uniforms import uniforms

__all__ = ["generators", "seeder"]

_APART = 0x5851F42D4C957F2D  # from the seeds of the crops, whose numbers are others


def generators() -> tuple[Any, ...]:
    """Return the states of the generators."""
    _, numbers, place, *_ = np.random.get_state()
    return bytes(torch.get_rng_state().numpy()), random.getstate(), np.asarray(numbers).tobytes(), place


def seeder(seed: int, epoch: int, keys: Ints) -> Callable[[int], None]:
    """Return what lets the next numbers be a function of seed, epoch and one of `keys`, whose place it takes."""
    numbers = (uniforms(seed + _APART, epoch, keys, 1)[:, 0] * 2**53).astype(np.int64).tolist()

    def begin(place: int) -> None:
        torch.default_generator.manual_seed(numbers[place])
        random.seed(numbers[place])
        np.random.seed(numbers[place] % 2**32)

    return begin
