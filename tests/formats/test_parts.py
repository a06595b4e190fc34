"""Packs with parts: the contract of every pack, and errors that only parts can have."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from packer._datasets.open import HDF5ImageDataset, LMDBImageDataset, open_dataset
from packer._datasets.staging import stage, warm
from packer._formats import FORMATS, PARTS, Format, open_pack
from packer._formats.files import PackFiles
from packer._formats.parts import TABLE_FILE, join_parts, write_table
from packer._formats.reader import MANIFEST_FILE, write_manifest
from packer._manifest import Manifest
from packer._packs.export import export
from packer._packs.verify import verify
from packer._sources.pack import pack_source
from packer._table import COLUMNS, Sample, Table
from packer.errors import CorruptPackError, NotAPackError, PackError
from packer.testing.conformance import (
    Change,
    FilePackConformance,
    PackConformance,
    assert_holds,
    contents,
    draw_samples,
    write_pack,
)
from tests.samples import SUFFIXES

SOURCE = {"kind": "imagefolder", "sha256": "00"}


def write_parts(path: Path, format: str, parts: Sequence[Sequence[Sample]]) -> Manifest:
    """Write each part as a conversion does, and join them."""
    path.mkdir(exist_ok=True)
    names = []
    for number, samples in enumerate(parts):
        names.append(f"part-{number:05d}{SUFFIXES[format]}")
        write_pack(FORMATS[format], path / names[-1], samples)
    return join_parts(path, names, SOURCE)


class PartsConformance(PackConformance):
    """Writes three parts of unequal length."""

    @property
    def row(self) -> Format:
        return replace(PARTS, suffixes=FORMATS[self.format].suffixes)

    def write(
        self, path: Path, samples: Sequence[Sample], *, written: Table | None = None, change: Change | None = None
    ) -> Table:
        cuts = [0, len(samples) // 4, len(samples) // 2, len(samples)]
        parts = [samples[start:end] for start, end in itertools.pairwise(cuts)]
        manifest = write_parts(path, self.format, parts)
        with open_pack(path) as reader:
            types = reader.manifest.column_types
            table = Table.of({name: column.copy() for name, column in reader.table.columns().items()}, types)
        if change is not None:
            manifest, table = change(replace(manifest, source={}), table)
            write_table(path / TABLE_FILE, len(table), len(table.names), [(table, 0, 0)], types)
            write_manifest(path, manifest)
        return table


class TestPartsOfLMDB(PartsConformance, FilePackConformance):
    format = "lmdb"


class TestPartsOfHDF5(PartsConformance):
    format = "hdf5"


class TestPartsOfPth(PartsConformance):
    format = "pth"


@pytest.fixture
def samples() -> list[Sample]:
    return draw_samples([1, 5000, 30, 2022, 7, 4081, 100, 9000, 12, 3])


@pytest.fixture(params=SUFFIXES)
def pack(request: pytest.FixtureRequest, tmp_path: Path, samples: list[Sample]) -> Path:
    path = tmp_path / f"pack{SUFFIXES[request.param]}"
    write_parts(path, request.param, [samples[:4], [], samples[4:5], samples[5:]])
    return path


def test_it_is_one_pack_of_its_parts(pack: Path, samples: list[Sample]) -> None:
    with open_pack(pack) as reader:
        assert_holds(reader, samples)
        assert reader.manifest.format == next(name for name in SUFFIXES if SUFFIXES[name] == pack.suffix)
        assert reader.manifest.source == SOURCE
        assert [count for _, count, _ in reader.manifest.layout["parts"]] == [4, 0, 1, 5]
    assert verify(pack) == []
    first = sorted(pack.glob("part-*"))[0]
    with open_pack(first) as part:  # each part is a pack of its own
        assert_holds(part, samples[:4])


def test_every_way_to_read_a_pack_reads_it(pack: Path, samples: list[Sample], tmp_path: Path) -> None:
    dataset = open_dataset(pack, output="bytes")
    assert list(dataset) == [(bytes(sample.data), sample.label) for sample in samples]
    assert dataset.targets.tolist() == [sample.label for sample in samples]
    wrong = HDF5ImageDataset if pack.suffix == ".lmdb" else LMDBImageDataset
    with pytest.raises(NotAPackError, match="read it with"):
        wrong(pack, output="bytes")
    staged = stage(pack, tmp_path / "node")
    with open_pack(staged) as reader:
        assert_holds(reader, samples)
    size = sum(file.stat().st_size for file in pack.rglob("*") if file.is_file())
    assert warm(pack) == size == sum(map(len, contents(staged).values()))
    assert export(pack, tmp_path / "files") == len(samples)
    assert (tmp_path / "files" / samples[6].name).read_bytes() == samples[6].data


def test_parts_are_opened_when_they_are_read(pack: Path, samples: list[Sample]) -> None:
    parts = sorted(pack.glob("part-*"))
    away = pack.parent / "away"
    parts[3].rename(away)
    with open_pack(pack) as reader:
        assert bytes(reader.read(4)) == samples[4].data
        with pytest.raises(PackError):
            reader.read(5)
        away.rename(parts[3])
        assert bytes(reader.read(5)) == samples[5].data


def test_a_part_that_was_exchanged_is_found(pack: Path, samples: list[Sample]) -> None:
    part = sorted(pack.glob("part-*"))[0]
    shutil.rmtree(part) if part.is_dir() else part.unlink()
    others = [replace(sample, data=bytes(len(sample.data))) for sample in samples[:4]]
    write_pack(FORMATS[open_format(pack)], part, others)  # as long as before
    assert verify(pack, quick=True) != []
    with open_pack(pack) as reader, pytest.raises(CorruptPackError, match="sample 1"):
        reader.read(1)


def open_format(pack: Path) -> str:
    with open_pack(pack) as reader:
        return reader.manifest.format


def test_verify_names_the_part(pack: Path) -> None:
    part = sorted(pack.glob("part-*"))[3]
    file = part if part.is_file() else part / "table.pth"
    os.truncate(file, file.stat().st_size // 2)
    assert any("part-00003" in str(damage) for damage in verify(pack))


def change_layout(pack: Path, change: Callable[[dict], object]) -> None:
    manifest = Manifest.from_json((pack / MANIFEST_FILE).read_bytes(), str(pack))
    layout = json.loads(json.dumps(manifest.layout))
    change(layout)
    (pack / MANIFEST_FILE).unlink()
    write_manifest(pack, replace(manifest, layout=layout))


@pytest.mark.parametrize(
    "change",
    [
        lambda layout: layout.pop("files"),
        lambda layout: layout.pop("names"),
        lambda layout: layout.update(names=-1),
        lambda layout: layout.update(names=10**12),
        lambda layout: layout.update(parts=[["a"]]),
        lambda layout: layout["parts"][0].__setitem__(1, 11),
        lambda layout: layout["parts"].append(["part-00001.lmdb", 1, "0" * 12]),
        lambda layout: layout.update(parts=[*layout["parts"], ["a", -5, "0" * 12], ["b", 5, "0" * 12]]),
        lambda layout: layout["files"][0].__setitem__(0, "../other"),
        lambda layout: layout["files"][0].__setitem__(0, "/etc/passwd"),
        lambda layout: layout["parts"][0].__setitem__(0, ".."),
        lambda layout: layout["files"][0].__setitem__(3, "much"),
        lambda layout: layout["files"][0].__setitem__(3, 10**30),
    ],
)
def test_a_strangers_manifest_leads_nowhere(
    tmp_path: Path, samples: list[Sample], change: Callable[[dict], None]
) -> None:
    pack = tmp_path / "pack.lmdb"
    write_parts(pack, "lmdb", [samples])
    change_layout(pack, change)
    with pytest.raises(CorruptPackError):
        open_pack(pack)


def test_a_part_that_has_parts(tmp_path: Path, samples: list[Sample]) -> None:
    pack, other = tmp_path / "pack.lmdb", tmp_path / "other.lmdb"
    write_parts(pack, "lmdb", [samples[:5], samples[5:]])
    shutil.copytree(pack, other)
    for part in sorted(pack.glob("part-*")):
        part.unlink()
        shutil.copytree(other, part)
    found = [str(damage) for damage in verify(pack, quick=True)]
    assert found == [
        f"part-0000{number}.lmdb: it is itself a pack with parts, which cannot be a part" for number in range(2)
    ]


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links, which not everyone may make on Windows")
def test_a_pack_that_is_its_own_part(tmp_path: Path, samples: list[Sample]) -> None:
    """A search of its parts, and of their parts, would never end."""
    pack = tmp_path / "pack.lmdb"
    write_parts(pack, "lmdb", [samples[:5], samples[5:]])
    for part in sorted(pack.glob("part-*")):
        part.unlink()
        part.symlink_to(".")
    found = [str(damage) for damage in verify(pack, quick=True)]
    assert len(found) == 2
    assert all("is a symbolic link" in damage for damage in found)


def test_data_that_are_not_where_the_manifest_says(tmp_path: Path, samples: list[Sample]) -> None:
    pack = tmp_path / "pack.lmdb"
    write_parts(pack, "lmdb", [samples[:5], samples[5:]])
    for begin in (-1, 1, 10**12):
        change_layout(pack, lambda layout, begin=begin: layout["files"][1].__setitem__(2, begin))
        with pytest.raises(CorruptPackError, match=r"part-00001\.lmdb has \d+ bytes, but its data would be at"):
            open_pack(pack)


def listed_again(layout: dict, name: str = "part-00000.lmdb") -> None:
    layout["parts"].append([name, 0, "0" * 12])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda layout: layout.update(files=layout["files"] * 1000), "part-00000.lmdb is listed more than once"),
        (listed_again, "part-00000.lmdb is listed more than once"),
        (lambda layout: listed_again(layout, "PART-00000.lmdb"), "part-00000.lmdb is listed more than once"),
        (lambda layout: layout["files"][0].__setitem__(0, "other.lmdb"), "other.lmdb is not in any part"),
        (lambda layout: layout["files"][0].__setitem__(0, "other/part-00000.lmdb"), "is not in any part"),
    ],
)
def test_parts_and_files_are_listed_once(
    tmp_path: Path, samples: list[Sample], change: Callable[[dict], None], reason: str
) -> None:
    """Otherwise a small pack would be exported as a large one, or verified without end."""
    pack = tmp_path / "pack.lmdb"
    write_parts(pack, "lmdb", [samples])
    change_layout(pack, change)
    with pytest.raises(CorruptPackError, match=reason):
        open_pack(pack)


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
def test_parts_that_are_one_file_are_not_exported(tmp_path: Path, samples: list[Sample]) -> None:
    pack = tmp_path / "pack.lmdb"
    write_parts(pack, "lmdb", [samples, samples])
    (pack / "part-00001.lmdb").unlink()
    os.link(pack / "part-00000.lmdb", pack / "part-00001.lmdb")
    with pytest.raises(CorruptPackError, match=r"part-00001\.lmdb: is the same file as .*part-00000\.lmdb"):
        export(pack, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_that_do_not_belong_together(tmp_path: Path, samples: list[Sample]) -> None:
    write_pack(FORMATS["lmdb"], tmp_path / "one", samples)
    write_pack(FORMATS["hdf5"], tmp_path / "two", samples)
    write_pack(
        FORMATS["lmdb"], tmp_path / "three", samples, change=lambda m, t: (replace(m, classes=m.classes[::-1]), t)
    )
    for other, what in [("two", "format"), ("three", "classes")]:
        with pytest.raises(CorruptPackError, match=what):
            join_parts(tmp_path, ["one", other], SOURCE)
    assert not (tmp_path / MANIFEST_FILE).exists()


def test_what_has_no_manifest_is_no_pack(pack: Path) -> None:
    (pack / MANIFEST_FILE).unlink()
    with pytest.raises(NotAPackError):
        open_pack(pack)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to count open files")
def test_a_thousand_parts_need_few_open_files(tmp_path: Path) -> None:
    samples = draw_samples([20] * 1000)
    path = tmp_path / "pack.lmdb"
    one = tmp_path / "one.lmdb"
    path.mkdir()
    names = [f"part-{number:05d}.lmdb" for number in range(1000)]
    write_pack(FORMATS["lmdb"], one, samples[:1])
    for name in names:  # the same sample in each: the test is about open files
        os.link(one, path / name)
    join_parts(path, names, SOURCE)
    before = len(os.listdir("/proc/self/fd"))
    with open_pack(path) as reader:
        assert len(os.listdir("/proc/self/fd")) - before < 20
        for index in np.random.default_rng(0).integers(0, 1000, 3000).tolist():
            assert bytes(reader.read(index)) == samples[0].data
        assert len(os.listdir("/proc/self/fd")) - before < 300
        assert len(reader.table) == 1000
        assert set(reader.table.columns()) == set(COLUMNS)


def test_tables_are_joined_a_block_at_a_time(tmp_path: Path) -> None:
    """A part's table may be larger than the memory."""
    rows = 1_000_000
    columns = {
        name: np.broadcast_to(np.zeros((), dtype), 1 if name == "names" else rows) for name, dtype in COLUMNS.items()
    }
    tracemalloc.start()
    checksums = write_table(tmp_path / "table.bin", 2 * rows, 2, [(Table.of(columns), 0, 0), (Table.of(columns), 7, 1)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20  # a column has 8 MB
    table = np.fromfile(tmp_path / "table.bin", "|u1")
    assert len(table) == (tmp_path / "table.bin").stat().st_size
    expected = np.repeat(np.array([0, 7], "<i8"), rows)
    assert checksums["offset"] == google_crc32c.value(expected.tobytes())
    assert expected.tobytes() in table.tobytes()


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
@pytest.mark.parametrize("format", SUFFIXES)
def test_files_that_are_one_file_are_neither_converted_nor_staged(
    tmp_path: Path, samples: list[Sample], format: str
) -> None:
    pack = tmp_path / "pack"
    write_parts(pack, format, [samples, samples])
    first, second = (part / "shard-00000.pth" if part.is_dir() else part for part in sorted(pack.glob("part-*")))
    second.unlink()
    os.link(first, second)
    for use in (pack_source, PackFiles.of):
        with pytest.raises(CorruptPackError, match=f"{second.name}: is the same file as .*{first.name}"):
            use(pack)


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
def test_a_table_that_is_also_a_shard_is_not_staged(tmp_path: Path, samples: list[Sample]) -> None:
    pack = tmp_path / "pack.pth"
    write_parts(pack, "pth", [samples, samples])
    first, second = (pack / f"part-{number:05d}.pth" / "table.pth" for number in range(2))
    second.unlink()
    os.link(first, second)
    with pytest.raises(CorruptPackError, match=r"is the same file as"):
        PackFiles.of(pack)


LONG_PART = """
import resource, sys
from packer._formats import open_pack
from packer.errors import CorruptPackError
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
try:
    open_pack(sys.argv[1])
except CorruptPackError as error:
    assert "a part of its name has more than 255" in error.reason, error
else:
    raise AssertionError
"""


@pytest.mark.skipif(os.name == "nt", reason="needs limits")
def test_parts_with_names_that_take_hours_to_compare(tmp_path: Path, samples: list[Sample]) -> None:
    """Unicode normalisation sorts the accents on a letter, in a time quadratic in their number."""
    pack = tmp_path / "pack.lmdb"
    write_parts(pack, "lmdb", [samples])
    accents = "a" + "\u0301" * 200_000 + "\u0316" * 200_000
    change_layout(pack, lambda layout: layout["parts"].append([accents, 0, ""]))
    subprocess.run([sys.executable, "-c", LONG_PART, pack], check=True)
