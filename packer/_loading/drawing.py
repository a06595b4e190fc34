"""The generators of random numbers that transforms draw from: torch's, Python's and numpy's, one each a process."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from packer.samplers._uniforms import uniforms

__all__ = ["generators", "seed_generators"]

_APART = 0x5851F42D4C957F2D  # from the seeds of the crops, whose numbers are others


def generators() -> tuple[Any, ...]:
    """Return the states of the generators."""
    _, numbers, place, *_ = np.random.get_state()
    return bytes(torch.get_rng_state().numpy()), random.getstate(), np.asarray(numbers).tobytes(), place


def seed_generators(seed: int, epoch: int, index: int) -> None:
    """Let what is drawn next be a function of seed, epoch and sample."""
    number = int(uniforms(seed + _APART, epoch, np.array([index]), 1)[0, 0] * 2**53)
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)
