"""The pack that most tests of the Loader read."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def pack(numbered_pack: Path) -> Path:
    return numbered_pack
