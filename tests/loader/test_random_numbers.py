"""Random numbers: uniform, uncorrelated, a function of seed, epoch and index."""

from __future__ import annotations

import numpy as np

from packer.samplers._random import uniforms
from tests.crops.test_chance import kolmogorov_smirnov


def test_random_numbers_are_a_function_of_seed_epoch_and_index() -> None:
    indices = np.array([5, 0, 10**9, 5])
    numbers = uniforms(7, 3, indices, 4)
    assert (numbers[0] == numbers[3]).all()
    assert (uniforms(7, 3, indices[2:3], 4) == numbers[2]).all()
    for other in (uniforms(8, 3, indices, 4), uniforms(7, 4, indices, 4), uniforms(7, 3, indices + 1, 4)):
        assert not (other[:3] == numbers[:3]).any()


def test_random_numbers_are_uniform_and_uncorrelated() -> None:
    numbers = uniforms(0, 0, np.arange(20000), 8)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for column in numbers.T:
        assert kolmogorov_smirnov(column, np.linspace(0, 1, 20000)) < 1.95 / np.sqrt(20000) + 1e-3
    correlation = np.corrcoef(
        np.concatenate([numbers, uniforms(0, 1, np.arange(20000), 8), np.roll(numbers, 1, 0)], 1).T
    )
    assert np.abs(correlation - np.eye(24)).max() < 5 / np.sqrt(20000)
