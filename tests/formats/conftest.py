"""How often the tests of every format fork."""

from __future__ import annotations

import pytest

from packer.testing.conformance.packs import SharingConformance


@pytest.fixture(autouse=True)
def _quick(quick_spawn: None) -> None:
    """Let the process of each of many classes start quickly; that of the package in tests/plugins is spawned."""


@pytest.fixture(scope="session", autouse=True)
def _few_forks(sweep: int) -> None:
    """Fork less often in each of many classes: where a lock is held while threads read, most forks find it locked."""
    SharingConformance.forks = 2 * sweep
