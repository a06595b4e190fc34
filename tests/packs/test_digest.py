"""The digest: the same for the same samples in the same order, and different for anything else."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from packer._packs.info import digest
from packer._table import Sample
from packer.errors import CorruptPackError
from tests.command import packer
from tests.samples import SUFFIXES, write_pack

SAMPLES = [
    Sample(f"x/{index}\udc80.jpg", index % 2, bytes([index]) * (100 * index + 1), 5 + index, 7) for index in range(150)
]


def test_it_is_what_its_description_says(tmp_path: Path) -> None:
    whole = hashlib.sha256(hashlib.sha256(struct.pack("<qq", 1, 3) + "aé".encode()).digest())
    for sample in SAMPLES:
        name = sample.name.encode("utf-8", "surrogateescape")
        numbers = (len(name), sample.label, sample.height, sample.width, len(sample.data))
        whole.update(hashlib.sha256(struct.pack("<qqqqq", *numbers) + name + sample.data).digest())
    for format, suffix in SUFFIXES.items():
        path = write_pack(tmp_path / f"pack{suffix}", format, SAMPLES, classes=["a", "é"])
        for workers in (1, 3):
            assert digest(path, workers=workers) == whole.hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        lambda samples: samples[::-1],
        lambda samples: samples[:-1],
        lambda samples: [replace(samples[0], label=1), *samples[1:]],
        lambda samples: [replace(samples[0], name="y"), *samples[1:]],
        lambda samples: [replace(samples[0], data=b"?"), *samples[1:]],
        lambda samples: [replace(samples[0], height=7, width=5), *samples[1:]],
    ],
)
def test_any_difference_changes_it(tmp_path: Path, change: Callable[[list[Sample]], list[Sample]]) -> None:
    one = write_pack(tmp_path / "one.lmdb", "lmdb", SAMPLES)
    other = write_pack(tmp_path / "other.lmdb", "lmdb", change(SAMPLES))
    assert digest(one) != digest(other)


def test_so_do_other_classes(tmp_path: Path) -> None:
    one = write_pack(tmp_path / "one.lmdb", "lmdb", SAMPLES, classes=["a", "bc"])
    other = write_pack(tmp_path / "other.lmdb", "lmdb", SAMPLES, classes=["ab", "c"])
    assert digest(one) != digest(other)


def test_a_damaged_pack_has_none(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES)
    data = bytes(SAMPLES[140].data)
    path.write_bytes(path.read_bytes().replace(data, data[:-1] + b"?"))
    with pytest.raises(CorruptPackError, match="sample 140"):
        digest(path)
    result = packer("verify", "--digest", path)
    assert result.returncode == 4
    assert result.stdout == ""


def test_the_command_prints_it(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", SAMPLES)
    result = packer("verify", "--digest", path)
    assert (result.returncode, result.stdout) == (0, f"{digest(path)}  {path}\n")
    assert packer("verify", "--digest", "--quick", path).returncode == 2
