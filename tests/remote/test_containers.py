"""Containers of other tools are read at a URL, through an index, as they are on a disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.errors import NotAPackError
from tests.containers import test_arrays, test_beton, test_hdf5
from tests.containers.everywhere import GOLDEN, _seen
from tests.containers.test_golden import EXPECTED
from tests.remote.fileserver import Served

MADE: dict[str, Callable[[Path], Path]] = {
    "FFCV": lambda tmp: test_beton.jpegs(tmp / "train.beton"),
    "FFCV, pixels": lambda tmp: test_beton.beton(
        tmp / "raw.beton", {"label": 1, "image": 2}, [{"label": 1, "image": image} for image in test_beton.PIXELS]
    ),
    "CIFAR-10": lambda tmp: test_arrays.cifar10(tmp / "cifar"),
    "MNIST": lambda tmp: test_arrays.mnist(tmp / "mnist"),
    "HDF5 of Fuel": lambda tmp: test_hdf5.fuel(tmp / "fuel.hdf5"),
    "HDF5, pixels": lambda tmp: test_hdf5.array(tmp / "x.h5"),
    **{
        name: lambda tmp, name=name: copied(GOLDEN / name, tmp)  # type: ignore[misc]
        for name, expected in EXPECTED.items()
        if not expected.get("compressed")
    },
}


def copied(src: Path, directory: Path) -> Path:
    if src.is_dir():
        return shutil.copytree(src, directory / src.name)
    shutil.copytree(src.parent, directory / "there")
    return directory / "there" / src.name


@pytest.mark.parametrize("name", MADE)
def test_a_container_of_another_tool_is_read_at_a_url(name: str, served: Served, tmp_path: Path) -> None:
    src, index = MADE[name](tmp_path), tmp_path / "made.index"
    packer.index(src, index)
    assert _seen(served.url(index), []) == _seen(index, [])
    here, there = packer.open_dataset(index), packer.open_dataset(served.url(index))
    for number in range(len(here)):
        assert np.array_equal(np.asarray(here[number][0]), np.asarray(there[number][0]))
    assert packer.verify(served.url(index)) == []


def test_a_container_without_an_index_is_refused_with_what_to_do(served: Served) -> None:
    with pytest.raises(NotAPackError, match=r"where the file is on a disk; then `packer index NAME\.index --base"):
        packer.open_dataset(served.url(GOLDEN / "zipped" / "stored.zip"))
