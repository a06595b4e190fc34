"""Orders of samples: pure functions of seed, epoch and position, which ranks share and which can start anywhere.

Every sampler describes one order of all samples, the same on every rank. Rank r of w takes the samples at the positions
r, r + w, r + 2 w, … of that order. So the progress of an epoch is one number: the number of samples that all ranks
together have completed. An epoch that began on eight ranks can continue on two ranks, exactly at the next sample.

A sampler holds everything that determines the order: seed, epoch and position. The dataset determines the crops.
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
