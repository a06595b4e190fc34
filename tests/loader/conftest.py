"""The pack that most tests of the Loader read."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

# Where a server forks the workers of a DataLoader, it has imported once what each of them needs.
multiprocessing.set_forkserver_preload(["__main__", "torch", "packer", "torchvision"])


@pytest.fixture(scope="session")
def pack(numbered_pack: Path) -> Path:
    return numbered_pack
