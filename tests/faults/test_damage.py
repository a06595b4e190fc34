"""Damage anywhere is found: a read returns the bytes that were written or raises CorruptPackError; nothing crashes."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.errors import CorruptPackError, PackError
from tests.command import python
from tests.samples import SUFFIXES, write_pack

formats = pytest.mark.parametrize("format", SUFFIXES)


def files_of(pack: Path) -> list[Path]:
    return sorted(pack.iterdir()) if pack.is_dir() else [pack]


@pytest.fixture
def pack(tree: Path, tmp_path: Path, format: str) -> Path:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    convert(imagefolder_source(tree), path, on_error="skip", options={"shard_size": 9000} if format == "pth" else {})
    return path


@pytest.fixture(scope="module")
def large_packs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that writes a pack with a table so large that columns are read only when they are needed."""

    @functools.cache
    def pack(format: str) -> Path:
        samples = [Sample(f"a/{number:05d}", 0, b"%d" % number, 1, 1) for number in range(20_000)]
        return write_pack(tmp_path_factory.mktemp("large") / f"large{SUFFIXES[format]}", format, samples)

    return pack


@pytest.fixture
def large(large_packs: Callable[[str], Path], tmp_path: Path, format: str) -> Path:
    """A copy of a large pack, to damage."""
    pack = large_packs(format)
    return Path((shutil.copytree if pack.is_dir() else shutil.copy)(pack, tmp_path / pack.name))


def stored(pack: Path) -> list[bytes]:
    with open_pack(pack) as reader:
        return [bytes(reader.read(index)) for index in range(len(reader))]


def require_found_or_harmless(pack: Path, expected: list[bytes]) -> set[int]:
    """Read about 50 samples at most; return the indices of refused ones, or all if the pack cannot be opened."""
    refused = set()
    try:
        reader = open_pack(pack)
    except CorruptPackError as error:
        assert str(pack) in error.path, error  # noqa: PT017
        return set(range(len(expected)))
    with reader:
        for index in range(0, len(expected), 1 + len(expected) // 50):
            try:
                assert bytes(reader.read(index)) == expected[index]
            except CorruptPackError as error:
                assert error.index == index  # noqa: PT017
                assert str(pack) in error.path  # noqa: PT017
                refused.add(index)
    return refused


@formats
def test_flipped_bits(pack: Path, format: str, sweep: int) -> None:
    expected, chance = stored(pack), random.Random(format)
    contents = {file: file.read_bytes() for file in files_of(pack)}
    places = {
        (file, at + position): index
        for index, data in enumerate(expected)
        for file, content in contents.items()
        if (at := content.find(data)) >= 0
        for position in range(len(data))
    }
    assert len(places) == sum(map(len, expected))
    hits = found = 0
    for _ in range(150 * sweep):
        (file,) = chance.choices(list(contents), [len(content) for content in contents.values()])
        position, bit = chance.randrange(len(contents[file])), 1 << chance.randrange(8)
        with open(file, "r+b") as opened:
            opened.seek(position)
            opened.write(bytes([contents[file][position] ^ bit]))
            opened.flush()
            refused = require_found_or_harmless(pack, expected)
            index = places.get((file, position))
            if index is not None:
                hits += 1
                assert refused == {index}
                found += index in {damage.index for damage in verify(pack, workers=1)}
            opened.seek(position)
            opened.write(contents[file][position : position + 1])
    assert hits == found
    assert hits > 30
    assert verify(pack) == []


@formats
@pytest.mark.parametrize("which", ["pack", "large"])
def test_a_pack_cut_short(request: pytest.FixtureRequest, format: str, which: str) -> None:
    pack: Path = request.getfixturevalue(which)
    expected = stored(pack)
    for file in files_of(pack):
        content = file.read_bytes()
        for length in (0, 1, 4096, len(content) // 2, len(content) - 1):
            if length < len(content):
                os.truncate(file, length)
                assert require_found_or_harmless(pack, expected), (file.name, length)
                with contextlib.suppress(CorruptPackError):  # verifying 20,000 samples in a shard takes seconds
                    assert which == "large" or verify(pack), (file.name, length)
                file.write_bytes(content)
    assert require_found_or_harmless(pack, expected) == set()


CUT = """
import os, sys
import numpy as np
from packer import open_dataset
from packer._datasets.concat import readable
from packer.errors import CorruptPackError
path = sys.argv[1]
dataset = open_dataset(path, output="bytes")
reader = dataset.reader
assert bytes(reader.read(19_999)) == b"19999"
for file in [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]:
    os.truncate(file, 1000)
reads = {
    "read": lambda: reader.read(19_999),
    "read_many": lambda: reader.read_many([1, 19_999]),
    "item": lambda: dataset[19_999],
    "items": lambda: dataset.__getitems__([19_999, 5]),
    "labels": lambda: readable(dataset).labels(np.array([19_999])),
    "crops": lambda: readable(dataset).choose(np.array([19_999]), 0, 0),
}
for name, read in reads.items():
    child = os.fork()
    if child == 0:
        try:
            read()
        except CorruptPackError as error:
            os._exit(7 if path in str(error) else 1)
        finally:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 7, (name, status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
@formats
def test_a_pack_cut_short_while_it_is_open(large: Path, format: str) -> None:
    """Reads raise an error. Each runs in its own process: access to a mapping of cut bytes would end it."""
    assert python(CUT, large).stderr == ""


@formats
def test_a_pack_replaced_while_it_is_open_reads_on(pack: Path, tree: Path, format: str) -> None:
    expected = stored(pack)
    with open_pack(pack) as reader:
        options: dict[str, Any] = {"shard_size": 9000} if format == "pth" else {}
        assert bytes(reader.read(0)) == expected[0]
        convert(imagefolder_source(tree).between(5, 8), pack, overwrite=True, options=options)
        for index, data in enumerate(expected):
            # The other shards of a directory are opened when they are first read, and then do not exist any more.
            with contextlib.suppress(PackError) if pack.is_dir() and index else contextlib.nullcontext():
                assert bytes(reader.read(index)) == data
    assert len(stored(pack)) == 3
