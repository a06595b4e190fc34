"""The twin of the device's kernels, compiled once."""

from __future__ import annotations

import shutil

import pytest

from device.twin import Twin, compiler
from packer._images.extension import _native


@pytest.fixture(scope="session")
def twin() -> Twin:
    require_compilers()
    return Twin()


def require_compilers() -> None:
    """Skip a test without a C compiler or without packer's compiled C."""
    if shutil.which(compiler()[0]) is None:
        pytest.skip("needs a C compiler")
    if _native is None:
        pytest.skip("needs packer's own C, which makes tiled JPEGs and is compared with the twin")
