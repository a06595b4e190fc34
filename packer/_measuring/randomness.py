"""The random numbers of the program that asks: measuring draws none of them.

How much is measured depends on the time that it takes. If the program's generators moved on meanwhile, no two of its
runs would be the same, whatever seeds they set.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

__all__ = ["keeping_random_states"]


@contextlib.contextmanager
def keeping_random_states() -> Iterator[None]:
    """Let the program draw the random numbers after this block that it would have drawn without the block."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = random.getstate(), numpy and numpy.random.get_state(), torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy is not None and states[1] is not None:
            numpy.random.set_state(states[1])
        if torch is not None and states[2] is not None:
            torch.set_rng_state(states[2])
