"""Files of this machine served by HTTP, so that tests can read them at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.fileserver import FilesOfThisMachine, Served
from tests.storage.remote.objects import serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve all files of this machine."""
    with serving(FilesOfThisMachine()) as server:
        yield Served(server)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache directory of a test."""
    pytest.importorskip("obstore", reason="needs obstore")
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PACKER_CACHE_SIZE", "1 GB")
    monkeypatch.setenv("PACKER_TIMEOUT", "20")
    return tmp_path / "cache"
