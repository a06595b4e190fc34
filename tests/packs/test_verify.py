"""Verification finds every change that matters, and finds none in an intact pack."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer._table
from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._packs.verify import Damage, verify
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample, Table
from packer.errors import PackError
from packer.testing.photos import draw_imagefolder
from tests.samples import SUFFIXES, content, solid, write_pack

formats = pytest.mark.parametrize("format", SUFFIXES)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one pack of each format; LMDB keeps some of the samples inside its leaves."""
    root = tmp_path_factory.mktemp("packs")
    draw_imagefolder(root / "tree", classes=3, per_class=5, size=(24, 32))
    for number in range(4):
        solid(root / "tree" / "class_01" / f"small{number}.png", (number, 1, 2), size=(40, 40))
    paths = {format: root / f"pack{suffix}" for format, suffix in SUFFIXES.items()}
    for path in paths.values():
        convert(
            imagefolder_source(root / "tree"), path, options={"shard_size": 12_000} if path.suffix == ".pth" else {}
        )
    return paths


@pytest.fixture
def pack(packs: dict[str, Path], tmp_path: Path, format: str) -> Path:
    """Return a copy of a pack that a test may damage."""
    path = tmp_path / packs[format].name
    (shutil.copytree if packs[format].is_dir() else shutil.copy)(packs[format], path)
    return path


def files_of(pack: Path) -> list[Path]:
    return sorted(pack.iterdir()) if pack.is_dir() else [pack]


def flip(file: Path, position: int, bit: int = 0) -> None:
    with open(file, "r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([byte ^ 1 << bit]))


def places(pack: Path, wanted: bytes) -> list[tuple[Path, int]]:
    """Return the files and offsets of some bytes in a pack."""
    found = []
    for file in files_of(pack):
        data, at = file.read_bytes(), -1
        while (at := data.find(wanted, at + 1)) >= 0:
            found.append((file, at))
    return found


def everything(pack: Path) -> tuple[Any, ...]:
    with open_pack(pack, check="never") as reader:
        columns = {name: column.tobytes() for name, column in reader.table.columns().items()}
        return reader.manifest, columns, [bytes(reader.read(index)) for index in range(len(reader))]


@formats
def test_an_intact_pack(pack: Path) -> None:
    calls: list[tuple[int, int]] = []
    assert verify(pack, progress=lambda done, total: calls.append((done, total))) == []
    assert calls[-1] == (19, 19)
    assert verify(pack, quick=True) == []
    assert verify(pack, workers=1) == verify(pack, workers=9) == []


@formats
def test_a_flipped_bit_in_each_sample(pack: Path) -> None:
    _, _, samples = everything(pack)
    for index, data in enumerate(samples):
        ((file, at),) = places(pack, data)
        for position in (0, len(data) // 2, len(data) - 1):
            flip(file, at + position, index % 8)
            damage = verify(pack)
            assert index in [item.index for item in damage]
            (named,) = (item for item in damage if item.index == index)
            with open_pack(pack) as reader:
                assert named.name == reader.table.sample_names()[index]
                assert all(item.index in (index, None) for item in damage)
            flip(file, at + position, index % 8)
    assert verify(pack) == []


@formats
@pytest.mark.parametrize("column", ["label", "height", "width", "offset", "size", "crc32c", "name_end", "names"])
def test_a_flipped_bit_in_each_column(pack: Path, column: str, sweep: int) -> None:
    _, columns, _ = everything(pack)
    found = [place for place in places(pack, columns[column]) if "shard" not in place[0].name]
    assert found
    for file, at in found:
        for position in range(0, len(columns[column]), 41 if sweep == 1 else 3):
            flip(file, at + position, position % 8)
            for quick in (False, True):
                assert any(f"'{column}'" in item.reason for item in verify(pack, quick=quick))
            flip(file, at + position, position % 8)
    assert verify(pack) == []


@formats
def test_a_flipped_bit_anywhere(packs: dict[str, Path], pack: Path, format: str, sweep: int) -> None:
    """It is found, or it changes nothing that a reader returns."""
    expected = everything(packs[format])
    rng = np.random.default_rng(0)
    total = sum(file.stat().st_size for file in files_of(pack))
    for file in files_of(pack):
        size = file.stat().st_size
        some = rng.integers(0, size, (10 + 60 * size // total) * sweep).tolist()
        for position in {*range(0, min(size, 300), 7 if sweep == 1 else 1), *some, size - 1}:
            flip(file, position, position % 8)
            try:
                damage = verify(pack)
            except PackError:
                damage = [Damage("cannot be opened")]
            if not damage:
                assert everything(pack) == expected, (file.name, position)
            flip(file, position, position % 8)
    assert verify(pack) == []
    assert content(pack) == content(packs[format])


@formats
def test_a_pack_cut_short_anywhere(packs: dict[str, Path], pack: Path, format: str) -> None:
    originals = {file: file.read_bytes() for file in files_of(pack)}
    for file, data in originals.items():
        for size in {0, 1, 100, 4096, len(data) // 2, len(data) - 4096, len(data) - 1}:
            if 0 <= size < len(data):
                file.write_bytes(data[:size])
                assert problems(pack), (file.name, size)
        file.unlink()
        assert problems(pack), file.name
        file.write_bytes(data)
    assert problems(pack) == []


def problems(pack: Path) -> list[str]:
    """Return the damage that `verify` reports, or its error if the pack cannot be opened."""
    try:
        return [str(damage) for damage in verify(pack)]
    except PackError as error:
        message = str(error)
    assert str(pack) in message
    return [message]


def sample(name: str, label: int = 0, data: bytes = b"data") -> Sample:
    return Sample(name, label, data, 1, 1)


def made(path: Path, format: str, samples: list[Sample], **options: Any) -> list[str]:
    return [str(damage) for damage in verify(write_pack(path / f"made{SUFFIXES[format]}", format, samples, **options))]


@formats
def test_labels_and_names_that_cannot_be(tmp_path: Path, format: str) -> None:
    names = ["a/ok", "../x", "/etc/x", "a/../../x", "a/./x", "a//x", "", "a\0b", "a/ok", "b/\x1b[2J"]
    damage = made(tmp_path, format, [sample(name, label) for label, name in enumerate(names)], classes=["x"] * 9)
    for index in range(1, 8):
        assert any(line.startswith((f"sample {index} (", f"sample {index}:")) for line in damage), index
    assert any(line.startswith("sample 8 (a/ok): another sample has the same name") for line in damage)
    assert any(line.startswith("sample 9 (") and "label 9 is not one of the 9 classes" in line for line in damage)
    assert not any(line.startswith("sample 0 (") for line in damage)
    assert all(line.isprintable() for line in damage)


def test_negative_labels(tmp_path: Path) -> None:
    (line,) = made(tmp_path, "hdf5", [sample("a/x"), sample("a/y", -1)])
    assert "label -1" in line


def overlaps(tmp_path: Path, offsets: list[int], sizes: list[int]) -> set[int]:
    """Verify a pack with this table, in HDF5, where offsets are free."""
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir()

    def change(index: int, row: dict[str, Any]) -> None:
        row["offset"], row["size"] = offsets[index], sizes[index]

    samples = [sample(f"a/{number}", data=bytes(100)) for number in range(len(offsets))]
    path = write_pack(tmp_path / "x.h5", "hdf5", samples, change=change)
    return {item.index for item in verify(path, quick=True) if "overlap" in item.reason and item.index is not None}


def test_samples_that_overlap(tmp_path: Path) -> None:
    assert overlaps(tmp_path / "t", [0, 100, 200], [100, 100, 100]) == set()
    assert overlaps(tmp_path / "t", [0, 100, 200], [100, 101, 100]) == {2}
    assert overlaps(tmp_path / "t", [200, 100, 0], [100, 101, 100]) == {0}
    assert overlaps(tmp_path / "t", [0, 0], [10, 10]) == {1}
    assert overlaps(tmp_path / "t", [0, 10, 10], [10, 0, 10]) == set()
    assert overlaps(tmp_path / "t", [0, 10, 20], [100, 0, 10]) != set()
    assert overlaps(tmp_path / "t", [0, 10, 50], [100, 10, 10]) >= {1}


@formats
@pytest.mark.parametrize(
    "row",
    [
        {"offset": 2**62},
        {"offset": -1},
        {"size": -1},
        {"size": 2**62},
        {"offset": 2**63 - 1, "size": 2**63 - 1},
        {"height": -1},
        {"label": -(2**63)},
        {"crc32c": 0},
    ],
)
def test_rows_of_a_stranger(tmp_path: Path, format: str, row: dict[str, int]) -> None:
    def change(index: int, values: dict[str, Any]) -> None:
        if index == 1:
            values.update(row)

    damage = made(tmp_path, format, [sample("a/x"), sample("a/y"), sample("a/z")], change=change)
    assert any(line.startswith("sample 1 (a/y)") for line in damage)


@pytest.mark.parametrize("ends", [[5, 3, 9], [-1, 3, 9], [3, 6, 2**62], [2**63 - 1] * 3, [-(2**63), 6, 9]])
def test_ends_of_names_of_a_stranger(ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pack(tmp_path / "x.h5", "hdf5", [sample("a/x"), sample("a/y"), sample("a/z")])
    table = path.read_bytes()
    old = np.array([3, 6, 9], "<i8").tobytes()
    assert table.count(old) == 1
    path.write_bytes(table.replace(old, np.array(ends, "<i8").tobytes()))
    damage = verify(path)
    assert any("name" in item.reason for item in damage)
    assert len(damage) >= 2


def test_wrong_rows_without_number(tmp_path: Path) -> None:
    """All rows of a hostile table may be wrong: the first ones are listed, and the others counted."""
    samples = [sample(f"a/{number:03d}", -1) for number in range(150)] + [sample("a/000", -1)] * 150
    lines = made(tmp_path, "hdf5", samples)
    assert [line for line in lines if "200 more rows" in line] == [
        "200 more rows of the table have the same problem as that of sample 0"
    ]
    assert len([line for line in lines if "label -1" in line]) == 100
    assert len([line for line in lines if "another sample has the same name" in line]) == 100
    assert len([line for line in lines if "50 more rows" in line]) == 1
    assert len(lines) == 202


@formats
def test_damaged_names_are_not_judged(pack: Path) -> None:
    """The column of names is reported, and the samples by their checksums alone."""
    _, columns, _ = everything(pack)
    (file, at) = next(place for place in places(pack, columns["names"]) if "shard" not in place[0].name)
    with open(file, "r+b") as opened:
        opened.seek(at)
        opened.write(b"\x91\xcf//" * (len(columns["names"]) // 8))
    damage = [item for item in verify(pack) if not item.reason.startswith("table.pth")]
    assert "column 'names'" in damage[0].reason
    assert damage[0].index is None
    assert {item.reason for item in damage[1:]} == {"damaged: the checksum does not match"}


def test_memory_does_not_hold_what_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifying keeps 8 bytes of each name for a while, and nothing of the samples."""
    monkeypatch.setattr(packer._table, "_BLOCK", 1000)
    count = 20_000
    path = write_pack(tmp_path / "x.h5", "hdf5", (sample(f"a/{'n' * 40}{number}") for number in range(count)))
    verify(write_pack(tmp_path / "y.h5", "hdf5", [sample("a/x")]), workers=2)  # imports all modules
    tracemalloc.start()
    try:
        assert verify(path, workers=2) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * count


def test_too_few_columns() -> None:
    zero = np.zeros(1, "<i8")
    with pytest.raises(ValueError, match="no column"):
        Table.of({"label": zero})


@formats
def test_quick_reads_no_samples(pack: Path) -> None:
    _, _, samples = everything(pack)
    ((file, at),) = places(pack, samples[0])
    flip(file, at)
    assert verify(pack, quick=True) == []
    assert [item.index for item in verify(pack)] == [0]


def test_what_is_no_pack(tmp_path: Path) -> None:
    checks: list[Callable[[Path], object]] = [
        lambda p: p.mkdir(),
        lambda p: p.touch(),
        lambda p: p.write_text("x" * 99),
    ]
    for number, make in enumerate([*checks, lambda p: None]):
        path = tmp_path / f"{number}.lmdb"
        make(path)
        with pytest.raises(PackError, match=str(path)):
            verify(path)
