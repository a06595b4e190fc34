"""Samplers: the sample at a position of an epoch is a pure function of seed, epoch and position.

Every sampler describes one order of samples, the same on every rank. Rank r of w takes the samples at the positions
r, r + w, r + 2 w, … of this order. So the progress of an epoch is one number: the number of samples that all ranks
together have completed. An epoch that began on eight ranks can continue on two ranks, exactly at the next sample.

The state of a sampler is everything that determines the order: seed, epoch and position. The dataset chooses the crops.
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
