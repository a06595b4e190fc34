"""The generators of torch, Python and NumPy, from which transforms draw, and their seeds for items and batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from packer._table import Ints
from packer.samplers._random import uniforms

_APART = 0x5851F42D4C957F2D  # from the seeds of the crops, whose numbers are others


def generators() -> tuple[Any, ...]:
    """Return the states of the generators."""
    _, numbers, place, *_ = np.random.get_state()
    return bytes(torch.get_rng_state().numpy()), random.getstate(), np.asarray(numbers).tobytes(), place


def seeder(seed: int, epoch: int, keys: Ints) -> Callable[[int], None]:
    """Return a function that takes an index into `keys`, and seeds the generators with seed, epoch and that key."""
    numbers = (uniforms(seed + _APART, epoch, keys, 1)[:, 0] * 2**53).astype(np.int64).tolist()

    def seed_item(place: int) -> None:
        torch.default_generator.manual_seed(numbers[place])
        random.seed(numbers[place])
        np.random.seed(numbers[place] % 2**32)

    return seed_item


_WITH_GENERATOR = {
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial),
    *(torch.poisson, torch.binomial, torch._standard_gamma, torch._sample_dirichlet),
    *(torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.bernoulli_),
    *(torch.Tensor.exponential_, torch.Tensor.cauchy_, torch.Tensor.geometric_, torch.Tensor.log_normal_),
    *(torch.Tensor.bernoulli, torch.Tensor.multinomial),
}
"""torch's functions that take a generator."""

_FILLED = {torch.rand_like: torch.Tensor.uniform_, torch.randn_like: torch.Tensor.normal_}
"""Functions that take none, and the method that fills new memory as they do."""


class drawing_from(TorchFunctionMode):  # noqa: N801 - it stands in a with statement
    """Make torch's functions draw from this thread's own generator, as after ``torch.manual_seed(seed)``.

    torch's default generator, which all threads share, is unchanged.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FILLED:
            return _FILLED[func](torch.empty_like(*args, **kwargs), generator=self._generator)
        if func in _WITH_GENERATOR and kwargs.get("generator") is None:
            kwargs["generator"] = self._generator
        return func(*args, **kwargs)
