"""How the tests of every format start processes and fork."""

from __future__ import annotations

import pytest

from packer.testing.conformance.packs import SharingConformance


@pytest.fixture(autouse=True)
def _quick(quick_spawn: None) -> None:
    """Start the process of each test class quickly; only the package in tests/plugins spawns one as usual."""


@pytest.fixture(scope="session", autouse=True)
def _few_forks(sweep: int) -> None:
    """Fork less often, as there are many classes: if threads hold a lock while they read, most forks find it locked."""
    SharingConformance.forks = 2 * sweep
