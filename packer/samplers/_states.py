"""States of samplers and Loaders, checked before they are believed."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

__all__ = ["number_in", "require_same", "require_same_seeds", "require_version"]


def require_version(state: Mapping[str, Any], known: int) -> None:
    """Raise ValueError where a state is of a version that this packer does not know."""
    version = number_in(state, "version", 1)
    if version > known:
        raise ValueError(f"a newer packer made the state (version {version}, and this one knows {known}): install it")


def number_in(state: Mapping[str, Any], name: str, least: int | None = None) -> int:
    """Return an integer of a state; ValueError where it is missing or none."""
    try:
        number = operator.index(state[name])
    except (KeyError, TypeError, IndexError):
        raise ValueError(f"this is not a state that `state_dict` gave: it has no number {name!r}: {state!r}") from None
    if least is not None and number < least:
        raise ValueError(f"this is not a state that `state_dict` gave: its {name} is {number}")
    return number


def require_same(state: Mapping[str, Any], name: str, value: Any, advice: str) -> None:
    """Raise ValueError where a state says something else than this run has; older states may not say it."""
    if state.get(name, value) != value:
        raise ValueError(
            f"the state is of another run: its {name} is {state[name]!r}, and here it is {value!r}. {advice}"
        )


def require_same_seeds(state: Mapping[str, Any], order_seed: int | None, crop_seed: int | None) -> None:
    """Raise ValueError where a state of packer 0.1.0, which has one seed, is of another order or of other crops.

    Parameters
    ----------
    state : mapping
        The state.
    order_seed, crop_seed : int or None
        The seeds of the sampler and of the dataset; None where the state decides, or where nothing is random.
    """
    seed, _epoch, _start = (number_in(state, name) for name in ("seed", "epoch", "start"))
    if order_seed is not None and order_seed != seed:
        raise ValueError(
            f"the state of packer 0.1.0 has seed {seed}, and the sampler has seed {order_seed}: nobody can tell which "
            "order the state is of. Where it is this sampler's, give it to the sampler: "
            f"loader.sampler.load_state_dict({{'epoch': {state['epoch']!r}, 'start': {state['start']!r}}}). "
            f"The crops have seed {seed}, which is then to be the dataset's."
        )
    if crop_seed is not None and crop_seed != seed:
        raise ValueError(
            f"the crops of this state have seed {seed}: open the dataset with seed={seed}, not {crop_seed}"
        )
