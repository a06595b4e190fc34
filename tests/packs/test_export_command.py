"""The command that an export prints makes a pack of the same digest."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from packer._fields import Field
from packer._packs.export import export_and_say
from packer._packs.info import digest
from tests.command import packer
from tests.packs.test_fields import FIELDS, sample, values_of, written

BY_TEMPLATE = (
    Field("mask", "mask", file="../masks/{stem}.png"),
    Field("caption", "text", file="{dir}/{stem}.txt"),
    Field("embedding", "array", "float16", 1, file="../arrays/{class}/{stem}.npy"),
)
IN_LINES = tuple(field for field in FIELDS if field.kind not in ("image", "mask", "bytes", "array"))
WITHOUT = tuple(replace(field, file="") for field in FIELDS if field.kind in ("bytes", "array"))
NAMED = (Field("depth", "image"),)


def again(path: Path, out: Path) -> Path:
    """Export by the command, and run the line that it prints; return the pack that this line makes."""
    line = packer("export", path, out).stdout.splitlines()[-1].strip()
    words = shlex.split(line)
    assert words[:2] == ["packer", "convert"]
    packer(*words[1:])
    return Path(words[3])


@pytest.mark.parametrize("fields", [BY_TEMPLATE, IN_LINES, (*IN_LINES, *NAMED, *WITHOUT)])
def test_the_printed_command_makes_the_same_pack(tmp_path: Path, fields: tuple[Field, ...]) -> None:
    samples = sorted(
        (sample(index, fields, depth=values_of(index)["mask"]) for index in (3, 0, 5, 2)), key=lambda one: one.name
    )
    samples[1] = replace(samples[1], fields=(None,) * len(fields))
    path = written(tmp_path / "pack.h5", samples, fields)
    assert digest(again(path, tmp_path / "out")) == digest(path)


def test_labels_that_no_directory_says_come_back(tmp_path: Path) -> None:
    samples = [replace(sample(index, IN_LINES), name=f"{9 - index}.png") for index in range(3)]
    samples[2] = replace(samples[2], label=-1)
    path = written(tmp_path / "pack.lmdb", samples, IN_LINES)
    assert digest(again(path, tmp_path / "an out")) == digest(path)


def test_no_command_is_said_where_none_makes_the_pack(tmp_path: Path) -> None:
    fields = (Field("raw", "bytes"),)
    samples = [replace(sample(0, fields), fields=(None,))]
    assert export_and_say(written(tmp_path / "a.h5", samples, fields), tmp_path / "a")[1] is None
