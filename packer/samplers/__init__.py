"""Orders of samples: pure functions of seed, epoch and place, shared out among ranks, which start anywhere at once.

Every sampler describes one order of all samples, the same on every rank. Rank r of w takes the places r, r + w,
r + 2 w, … of that order. So the position in an epoch is one number: how many places all ranks together have done. An
epoch that was begun on eight ranks goes on at the very next sample on two.

A sampler owns all that decides the order: seed, epoch and position. The crops of an image are the dataset's.
"""

from packer.samplers._orders import (
    BlockShuffleSampler,
    OrderSampler,
    SequentialSampler,
    ShuffleSampler,
    SubsetSampler,
)
from packer.samplers._weighted import BalancedSampler, MixSampler, WeightedSampler

__all__ = [
    "BalancedSampler",
    "BlockShuffleSampler",
    "MixSampler",
    "OrderSampler",
    "SequentialSampler",
    "ShuffleSampler",
    "SubsetSampler",
    "WeightedSampler",
]
