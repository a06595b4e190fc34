"""The ranks of `torch.distributed`: which this process is, and what all of them must agree on."""

from __future__ import annotations

from typing import Any

__all__ = ["agreed", "gathered", "rank_and_world"]


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the number of ranks: 0 and 1 where `torch.distributed` is not initialised."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def agreed(value: Any) -> Any:
    """Return rank 0's value on every rank. All ranks call this, each with its own."""
    if rank_and_world()[1] == 1:
        return value
    import torch.distributed as dist

    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def gathered(value: Any) -> list[Any]:
    """Return the values of all ranks, in their order. All ranks call this, each with its own."""
    world = rank_and_world()[1]
    if world == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * world
    dist.all_gather_object(values, value)
    return values
