"""A kill at any moment of appending leaves the old pack or the new one, and the same command continues."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import packer
from packer import open_pack
from packer._packs.verify import verify
from tests.faults.crashes import CrashServer
from tests.samples import SUFFIXES, content, noise


@pytest.mark.parametrize("format", ["lmdb", "pth"])
def test_killed_before_and_amid_changes_of_the_disk(
    crash_server: CrashServer, tmp_path: Path, format: str, sweep: int
) -> None:
    """Kill it at every 25th change of the conversion, which has its own test, and at every fifth change after that."""
    for number in range(60):
        noise(tmp_path / ("more" if number >= 20 else "tree") / f"class_{number % 2}" / f"{number}.png", number, (8, 9))
    old, reference, path = (tmp_path / f"{name}{SUFFIXES[format]}" for name in ("old", "reference", "pack"))
    packer.convert(tmp_path / "tree", old, parts=2)
    shutil.copytree(old, reference)
    whole = crash_server.append(tmp_path / "more", reference)
    assert whole is not None
    expected = content(reference)
    with open_pack(reference) as reader:
        samples = [(name, bytes(reader.read(index))) for index, name in enumerate(reader.names)]
    lengths, continued = set(), set()
    assert whole.joining > 10
    # A write counts twice, prevented and done in part: with odd steps, both occur.
    kills = [{"at": at} for at in range(1, whole.changes - whole.joining, 25 if sweep == 1 else 5)]
    for kill in [*kills, *({"joining": at} for at in range(1, whole.joining + 1, 5 if sweep == 1 else 1))]:
        shutil.copytree(old, path)
        with open_pack(path) as earlier:
            crash_server.append(tmp_path / "more", path, **kill)
            with open_pack(path) as reader:
                lengths.add(len(reader))
                found = [(name, bytes(reader.read(index))) for index, name in enumerate(reader.names)]
                assert found == samples[: len(reader)]
            repeated = crash_server.append(tmp_path / "more", path)
            assert repeated is not None
            continued.add(repeated.continued)
            assert content(path) == expected, f"killed at change {kill}"
            assert not os.path.exists(f"{path}.partial")
            assert [(name, bytes(earlier.read(index))) for index, name in enumerate(earlier.names)] == samples[:20]
        shutil.rmtree(path)
    assert lengths == {20, 60}
    assert {0, 40} <= continued
    assert len(continued) > 2  # there were checkpoints to continue from
    assert verify(reference) == []


def test_killed_while_fields_are_appended(crash_server: CrashServer, tmp_path: Path, sweep: int) -> None:
    rows = {"tree": ["path,label,caption,kind\n"], "more": ["path,label,caption,kind\n"]}
    for number in range(60):
        name, path = "more" if number >= 20 else "tree", f"class_{number % 2}/{number}.png"
        noise(tmp_path / name / path, number, (8, 9))
        (tmp_path / "beside").mkdir(exist_ok=True)
        (tmp_path / "beside" / f"{number}.bin").write_bytes(bytes([number]) * number)
        rows[name].append(f"{path},class_{number % 2},caption {number},{'odd' if number % 2 else 'even'}\n")
    columns, fields = {"caption": "text", "kind": "class"}, {"more:bytes": "../beside/{stem}.bin"}
    for name, lines in rows.items():
        (tmp_path / f"{name}.csv").write_text("".join(lines))
    asked = {"labels": str(tmp_path / "more.csv"), "columns": columns, "fields": fields}
    old, reference, path = (tmp_path / f"{name}.lmdb" for name in ("old", "reference", "pack"))
    packer.convert(tmp_path / "tree", old, parts=2, labels=tmp_path / "tree.csv", columns=columns, fields=fields)
    shutil.copytree(old, reference)
    whole = crash_server.append(tmp_path / "more", reference, options=asked)
    assert whole is not None
    assert verify(reference) == []
    expected, lengths, continued = content(reference), set(), set()
    kills = [{"at": at} for at in range(1, whole.changes - whole.joining, 25 if sweep == 1 else 5)]
    for kill in [*kills, *({"joining": at} for at in range(1, whole.joining + 1, 5 if sweep == 1 else 1))]:
        shutil.copytree(old, path)
        crash_server.append(tmp_path / "more", path, options=asked, **kill)
        with open_pack(path) as reader:
            lengths.add(len(reader))
            for index in range(len(reader)):
                number = int(Path(reader.names[index]).stem)
                assert reader.value(index, "caption") == f"caption {number}".encode()
                assert reader.value(index, "more") == bytes([number]) * number
        repeated = crash_server.append(tmp_path / "more", path, options=asked)
        assert repeated is not None
        continued.add(repeated.continued)
        assert content(path) == expected, f"killed at change {kill}"
        shutil.rmtree(path)
    assert lengths == {20, 60}
    assert len(continued) > 2
