"""After a kill at any moment, the same command continues a conversion and makes the same pack as without a kill."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from packer._formats import FORMATS, open_pack
from packer._packs.verify import verify
from tests.faults.crashes import CrashServer
from tests.samples import SUFFIXES, content

formats = pytest.mark.parametrize("format", SUFFIXES)

OPTIONS: dict[str, dict[str, Any]] = {
    "lmdb": {},
    "hdf5": {},
    "pth": {"shard_size": 9000},  # several shards
    "wds": {"shard_size": 60_000},
    "tfrecord": {"shard_size": 20_000},
    "rec": {},
    "mds": {"shard_size": 20_000},
    "caffe": {},
    "n5": {"shard_size": 20_000},
    "parquet": {"shard_size": 20_000},
}


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


# A pack that is a file replaces another one in the same way in any format.
@pytest.mark.parametrize(
    ("format", "overwrite"), [*((format, False) for format in SUFFIXES), ("lmdb", True), ("pth", True)]
)
def test_killed_before_and_amid_changes_of_the_disk(
    crash_server: CrashServer, tree: Path, tmp_path: Path, format: str, *, overwrite: bool, sweep: int
) -> None:
    """Kill it at every third call (with --faults, every call) that creates, writes, syncs, cuts, renames or removes."""
    reference, old, path = (tmp_path / f"{name}{SUFFIXES[format]}" for name in ("reference", "old", "pack"))
    settings: dict[str, Any] = {"format": format, "options": OPTIONS[format]}
    whole = crash_server.run(tree, reference, **settings)
    assert whole is not None
    assert whole.continued == 0
    expected, previous = content(reference), None
    if overwrite:
        crash_server.run(tree, old, codec="raw", **settings)
        previous = content(old)
    # A pack replaces another one at the end, so the last changes are tested one by one.
    at, step = (whole.changes - 24, 1) if overwrite else (1, 3 if sweep == 1 else 1)
    kills, continued = 0, set()
    while True:
        if overwrite:
            (shutil.copytree if old.is_dir() else shutil.copyfile)(old, path)
        if crash_server.run(tree, path, at=at, overwrite=overwrite, **settings) is not None:
            break
        kills, at = kills + 1, at + step
        complete = path.exists() and content(path) == expected
        assert complete or not path.exists() or content(path) == previous
        if not complete or os.path.exists(f"{path}.partial"):
            repeated = crash_server.run(tree, path, overwrite=overwrite or complete, **settings)
            assert repeated is not None
            continued.add(repeated.continued)
        assert content(path) == expected, f"killed at change {at - step}"
        assert os.listdir(tmp_path).count(f"{path.name}.partial") == 0
        remove(path)
    assert content(path) == expected
    assert kills >= 20
    checkpoints = {0, 5, 12, 17, 22, 27}
    # The order of the threads' changes varies, so that every third change may miss one checkpoint.
    assert overwrite or (continued <= checkpoints and len(continued) >= len(checkpoints) - (step > 1))
    assert verify(path) == []


@pytest.mark.parametrize("format", OPTIONS)
def test_with_fields_killed_at_several_moments(
    crash_server: CrashServer, tree: Path, tmp_path: Path, format: str, sweep: int
) -> None:
    """Some blobs are larger than a shard, some empty, some missing."""
    reference, path = (tmp_path / f"{name}{FORMATS[format].suffixes[0]}" for name in ("reference", "pack"))
    settings: dict[str, Any] = {"format": format, "options": OPTIONS[format], "fields": True}
    whole = crash_server.run(tree, reference, **settings)
    assert whole is not None
    expected, continued = content(reference), set()
    for at in range(1, whole.changes, whole.changes // (10 if sweep == 1 else 30)):
        ended = crash_server.run(tree, path, at=at, **settings)
        assert ended is None
        if not path.exists() or os.path.exists(f"{path}.partial"):
            ended = crash_server.run(tree, path, overwrite=path.exists(), **settings)
            assert ended is not None
            continued.add(ended.continued)
        assert content(path) == expected, f"killed at change {at}"
        remove(path)
    assert len(continued) > 2
    assert verify(reference) == []
    with open_pack(reference) as reader:
        assert [*reader.fields] == ["age", "raw", "kind", "caption"]
        assert reader.value(9, "raw") == b"\x09" * 6300


def test_killed_while_it_writes_past_the_cache(crash_server: CrashServer, tree: Path, tmp_path: Path) -> None:
    """On a disk, the conversion bypasses the system's cache, if the system supports it."""
    reference, path, continued = tmp_path / "reference.lmdb", tmp_path / "pack.lmdb", set()
    whole = crash_server.run(tree, reference, format="lmdb")
    assert whole is not None
    for at in range(1, whole.changes, 5):
        ended = crash_server.run(tree, path, format="lmdb", large=True, at=at)
        assert ended is None
        if not path.exists() or os.path.exists(f"{path}.partial"):
            ended = crash_server.run(tree, path, format="lmdb", large=True, overwrite=path.exists())
            assert ended is not None
            continued.add(ended.continued)
        assert content(path) == content(reference), f"killed at change {at}"
        remove(path)
    assert len(continued) > 2


@formats
def test_killed_at_random_moments(
    crash_server: CrashServer, many: Path, tmp_path: Path, format: str, sweep: int
) -> None:
    """Each conversion is killed and continued until it is complete."""
    settings: dict[str, Any] = {"format": format, "options": {"shard_size": 1_000_000} if format == "pth" else {}}
    path, half, expected = tmp_path / f"pack{SUFFIXES[format]}", tmp_path / "half", {}
    for label in ("0", "1"):
        shutil.copytree(many / label, half / label, copy_function=os.link)
    for codec in ("keep", "png"):
        crash_server.run(half, path, codec=codec, **settings)
        expected[codec] = content(path)
        remove(path)
    chance, kills, codecs = random.Random(format), 0, itertools.cycle(expected)
    while kills < 4 * sweep:
        codec = next(codecs)
        for attempt in itertools.count():
            seconds = chance.uniform(0.01, 0.15) * 1.1**attempt  # on a busy machine, short runs may never get further
            ended = crash_server.run(half, path, codec=codec, seconds=seconds, overwrite=path.exists(), **settings)
            kills += ended is None
            if path.exists() and not os.path.exists(f"{path}.partial"):
                break
        assert content(path) == expected[codec]
        remove(path)
