"""After a power failure, everything recorded as durable is there, and a pack under its name is complete."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import packer._conversion.pipeline
import packer._conversion.workspace
from packer._conversion.convert import Summary, convert
from packer._conversion.partition import Partition, finish
from packer._conversion.request import ConversionRequest
from packer._conversion.workspace import ConversionRecord
from packer._datasets.staging import stage
from packer._formats import FORMATS, format_for
from packer._formats.parts import join_parts
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage.files import rename_new
from tests.faults.disk import Disk
from tests.samples import SUFFIXES, content

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/fd, which names open files")

formats = pytest.mark.parametrize("format", SUFFIXES)

OPTIONS: dict[str, dict[str, Any]] = {"lmdb": {}, "hdf5": {}, "pth": {"shard_size": 9000}}
OPTIONS |= {"wds": {"shard_size": 60_000}, "tfrecord": {"shard_size": 20_000}, "rec": {}}
OPTIONS |= {"mds": {"shard_size": 20_000}, "caffe": {}}
OPTIONS |= {"n5": {"shard_size": 20_000}, "parquet": {"shard_size": 20_000}}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packer._conversion.workspace, "_CHECKPOINT_SAMPLES", 5)
    monkeypatch.setattr(packer._conversion.pipeline, "_MAX_BATCH", 5)


def start(tree: Path, path: Path, **options: Any) -> Summary:
    name = format_for(path).name
    settings: dict[str, Any] = {"on_error": "skip", "workers": 2, "format": name, "options": OPTIONS[name]}
    return convert(imagefolder_source(tree), path, **settings, **options)


def start_slowly(tree: Path, path: Path, **options: Any) -> Summary:
    """Convert so slowly that no checkpoint is skipped because another one is running."""
    return start(tree, path, progress=lambda progress: time.sleep(0.01), **options)


# Only the end differs with overwrite, by whether a file or a directory is replaced; so fewer formats run without it.
@pytest.mark.parametrize(
    ("format", "overwrite"), [*((format, True) for format in OPTIONS), *((format, False) for format in SUFFIXES)]
)
@pytest.mark.usefixtures("small_steps")
def test_the_power_fails_after_any_sync(
    tree: Path, tmp_path: Path, format: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix = FORMATS[format].suffixes[0]
    work, name, reference = tmp_path / "work", f"pack{suffix}", tmp_path / f"reference{suffix}"
    work.mkdir()
    start(tree, reference)
    expected = content(reference)
    previous = None
    if overwrite:
        convert(imagefolder_source(tree).limited(2), work / name)
        previous = content(work / name)
    recorded, states = [0], []

    def keep_state() -> None:
        states.append((tmp_path / f"state-{len(states)}", recorded[-1]))
        disk.restore(states[-1][0])

    def count_recorded(self: ConversionRecord, entries: Any) -> None:
        save(self, entries)
        recorded.append(recorded[-1] + len(entries))

    save, disk = ConversionRecord.save, Disk(work, keep_state)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        patch.setattr(ConversionRecord, "save", count_recorded)
        start_slowly(tree, work / name, overwrite=overwrite)
        keep_state()  # the command has ended: nothing may be lost any more
    assert len(states) >= 12
    assert max(recorded) > 0
    distinct = {tuple(content(state).items()): (state, done) for state, done in states}  # of equal states, the last
    for state, done in distinct.values():
        path = state / name
        finished = path.exists() and content(path) == expected
        assert finished or (content(path) == previous if path.exists() else not overwrite), state.name
        if not finished:
            assert start(tree, path, overwrite=overwrite).continued >= done, state.name
            assert content(path) == expected
            assert sorted(os.listdir(state)) == [name]
    assert content(states[-1][0] / name) == expected
    assert verify(states[-1][0] / name) == []


@formats
@pytest.mark.usefixtures("small_steps")
def test_what_is_synced_before_what(tree: Path, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data are synced before the manifest, the pack before it is renamed, and the directory after that."""
    events: list[str] = []
    real = {"fsync": os.fsync, "replace": rename_new}

    def fsync(fd: int) -> None:
        events.append("sync " + os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path))
        real["fsync"](fd)

    def replace(source: Path, destination: Path) -> None:
        events.append(f"rename {os.path.relpath(source, tmp_path)} {os.path.relpath(destination, tmp_path)}")
        real["replace"](source, destination)

    name = f"pack{SUFFIXES[format]}"
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr("packer._conversion.workspace.rename_new", replace)
    start_slowly(tree, tmp_path / name)
    renamed = events.index(f"rename {name}.partial/pack {name}")
    assert events[renamed + 1 :] == ["sync ."]
    written = [event.removeprefix(f"sync {name}.partial/") for event in events[:renamed]]
    journal = [place for place, event in enumerate(written) if event == "journal.jsonl"]
    assert len(journal) >= 2
    if format == "pth":
        table, manifest = written.index("pack/table.pth"), written.index("pack/manifest.json")
        assert max(i for i, event in enumerate(written) if event.startswith("pack/shard")) < table < manifest
        assert written[manifest + 1 :] == ["pack"]
    else:
        assert written[-2:] == ["pack", "pack"]  # the data, then the structure that makes them valid
    for before, place in itertools.pairwise(journal):  # samples' bytes are synced before a line about samples
        assert any(event.startswith("pack") for event in written[before:place])


def test_the_power_fails_during_a_conversion_in_parts(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When `begin` or `convert` returns, its work is durable: no part is made twice, and none is lost."""
    work, states = tmp_path / "work", []
    work.mkdir()
    start(tree, tmp_path / "whole.lmdb")

    def begun(directory: Path) -> tuple[Partition, Source]:
        job = Partition(ConversionRequest(src=tree, dst=directory / "pack.lmdb", parts=2, on_error="skip"))
        return job, job.begin(lambda: imagefolder_source(tree), {})

    def keep_state(missing: list[int]) -> None:
        states.append((tmp_path / f"state-{len(states)}", missing))
        disk.restore(states[-1][0])

    disk = Disk(work)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        job, source = begun(work)
        keep_state(job.missing())
        for number in range(2):
            job.convert(source, number)
            keep_state(job.missing())
        finish(job.destination)
        keep_state([])
    for state, missing in states[:-1]:
        assert (state / "pack.lmdb.partial" / "parts.json").stat().st_size
        job, source = begun(state)
        assert job.missing() == missing
        for number in missing:
            job.convert(source, number)
        finish(job.destination)
        assert os.listdir(state) == ["pack.lmdb"]
    for state, _ in states:
        assert digest(state / "pack.lmdb") == digest(tmp_path / "whole.lmdb")


@formats
@pytest.mark.parametrize("parts", [False, True])
def test_the_power_fails_while_a_pack_is_staged(
    tree: Path, tmp_path: Path, format: str, parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, disk = tmp_path / f"pack{SUFFIXES[format]}", tmp_path / "disk"
    if parts:
        start(tree, tmp_path / f"part{SUFFIXES[format]}")
        pack.mkdir()
        (tmp_path / f"part{SUFFIXES[format]}").rename(pack / f"part{SUFFIXES[format]}")
        join_parts(pack, [f"part{SUFFIXES[format]}"], {})
    else:
        start(tree, pack)
    disk.mkdir(mode=0o700)
    states: list[Path] = []

    def keep_state() -> None:
        states.append(tmp_path / f"state-{len(states)}")
        model.restore(states[-1])

    model = Disk(disk, keep_state)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", model.fsync)
        staged = stage(pack, disk)
    for state in states:
        assert not (state / staged.name).exists() or content(state / staged.name) == content(pack), state.name
    assert (states[-1] / staged.name).exists()


def test_the_model_forgets_what_was_not_synced(tmp_path: Path) -> None:
    """Check the model that the tests above use."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_bytes(b"old")
    disk = Disk(tmp_path / "work")
    with open(tmp_path / "work" / "new", "wb") as file:
        file.write(b"synced")
        file.flush()
        disk.fsync(file.fileno())
        file.write(b" and not synced")
    (tmp_path / "work" / "old").write_bytes(b"changed")
    disk.restore(tmp_path / "one")
    assert content(tmp_path / "one") == {"old": b"old"}
    here = os.open(tmp_path / "work", os.O_RDONLY)
    disk.fsync(here)
    os.close(here)
    disk.restore(tmp_path / "two")
    assert content(tmp_path / "two") == {"new": b"synced", "old": b"old"}
