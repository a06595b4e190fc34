"""What several test modules share: packs made by hand, packs compared byte for byte, the command run for real."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from packer._fields import Field, Stored
from packer._formats import FORMATS
from packer._manifest import Manifest
from packer._sources import Source, imagefolder_source
from packer._sources.base import ReadBuffer
from packer._storage.files import TableBuilder
from packer._table import Sample, Table, checksum, column_checksums, column_types, encode_name, field_columns
from tests.commandserver import CommandServer

SUFFIXES = {"lmdb": ".lmdb", "hdf5": ".h5", "pth": ".pth"}

ROWS = st.fixed_dictionaries(
    {
        "label": st.integers(-(2**63), 2**63 - 1),
        "height": st.integers(-(2**31), 2**31 - 1),
        "width": st.integers(-(2**31), 2**31 - 1),
        "offset": st.integers(-(2**63), 2**63 - 1),
        "size": st.integers(-(2**63), 2**63 - 1),
        "crc32c": st.integers(0, 2**32 - 1),
        "name": st.binary(max_size=20),
    }
)
"""Rows of a table, as `TableBuilder` takes them."""

without_root_powers = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("setpriv") is None,
    reason="permissions do not bind root; needs another user, or setpriv to give root's powers up",
)


def every_command(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group, and those of the groups in it, with their names."""
    for name, known in group.commands.items():
        if isinstance(known, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in every_command(known))
        else:
            yield name, known


def content(path: Path) -> dict[str, bytes | None]:
    """Return every file below `path`, or `path` itself, with its bytes; directories are None."""
    if not path.is_dir():
        return {"": path.read_bytes()}
    return {
        str(p.relative_to(path)): p.read_bytes() if p.is_file() else None
        for p in sorted(path.rglob("*"), key=os.fsencode)
    }


def write_pack(
    path: Path,
    format: str,
    samples: Iterable[Sample],
    *,
    classes: Sequence[str] = ("a", "b"),
    fields: Sequence[Field] = (),
    change: Callable[[int, dict[str, Any]], None] = lambda index, row: None,
    **manifest: Any,
) -> Path:
    """Write a pack with a format's own writer, without any of the checks that stand before it."""
    types = column_types(manifest.get("label_type", "class"), fields)
    writer = FORMATS[format].open_writer()(path, {}, TableBuilder(types=types).build())
    rows = TableBuilder(types=types)
    for index, sample in enumerate(samples):
        name = encode_name(sample.name)
        row: dict[str, Any] = {
            "label": sample.label,
            "height": sample.height,
            "width": sample.width,
            "offset": writer.append(sample).offset,
            "size": len(sample.data),
            "name": name,
            "crc32c": checksum(sample.data, sample.label, sample.height, sample.width, name),
            "more": field_columns(fields, sample.fields, name),
        }
        change(index, row)
        rows.append(**row)
    table = rows.build()
    writer.commit(
        Manifest(
            format=format,
            count=len(table),
            classes=list(classes),
            columns=column_checksums(table),
            fields=tuple(fields),
            **{"layout": writer.layout(), **({"schema": 2} if fields else {}), **manifest},
        ),
        table,
    )
    writer.close()
    return path


def table_of(rows: Iterable[dict[str, Any]]) -> Table:
    """Return the table of some rows."""
    builder = TableBuilder()
    for row in rows:
        builder.append(**row)
    return builder.build()


@dataclass(frozen=True, eq=False, kw_only=True)
class FilesWithFields(Source):
    """Files of images, with the values of their fields."""

    rows: Sequence[Sequence[Any]]

    def between(self, start: int, stop: int) -> Source:
        return replace(super().between(start, stop), rows=self.rows[start:stop])

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        return tuple(field.encode(value) for field, value in zip(self.fields, self.rows[index], strict=True))


def files_with_fields(tree: Path, fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> FilesWithFields:
    """Return the images of a tree as a source, each with a value or None for each field."""
    source = imagefolder_source(tree)
    assert len(rows) == len(source)
    return FilesWithFields(**{**vars(source), "fields": tuple(fields)}, rows=rows)


def solid(path: Path, colour: tuple[int, int, int] = (10, 200, 30), size: tuple[int, int] = (8, 6)) -> Path:
    """Write an image of one colour, of the type that the suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def noise(path: Path, seed: int, size: tuple[int, int] = (40, 56)) -> Path:
    """Write an image that compresses badly, of the type that the suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)).save(path)
    return path


def command(*arguments: object, powerless: bool = False) -> list[str]:
    """Return the command line of `packer`; `powerless` makes permissions bind root too."""
    return [
        *_line(powerless),
        "-m",
        "packer",
        *(os.fspath(a) if isinstance(a, Path) else str(a) for a in arguments),
    ]


def _line(powerless: bool) -> list[str]:
    dropped = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    return [*(dropped if powerless and os.geteuid() == 0 else []), sys.executable]


def packer(*arguments: object, powerless: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `packer` to its end; its output is text. With `options`, of `subprocess.run`, Python is started for it."""
    line = command(*arguments, powerless=powerless)
    if not options and (server := _command_server(powerless)):
        return server.run(line[line.index("packer") + 1 :])
    settings = {"capture_output": True, "encoding": "utf-8", "errors": "surrogateescape", "timeout": 120, **options}
    return subprocess.run(line, check=False, **settings)


def packer_many(
    commands: Iterable[Sequence[object]], *, powerless: bool = False
) -> list[subprocess.CompletedProcess[str]]:
    """Run several commands, one after the other, in one other process: starting a process costs more than most do."""
    lines = [[str(argument) for argument in arguments] for arguments in commands]
    if server := _command_server(powerless):
        result = server.run_many(lines)
    else:
        code = "import json, sys; from tests.commandserver import run_many; run_many(json.load(sys.stdin))"
        line = [*_line(powerless), "-c", code]
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
        told = os.environ | {"PYTHONPATH": path}  # `tests` is no part of what is installed
        result = subprocess.run(line, input=json.dumps(lines), capture_output=True, text=True, check=False, env=told)
    assert result.returncode == 0, result.stderr
    return [
        subprocess.CompletedProcess(arguments, *json.loads(answer))
        for arguments, answer in zip(lines, result.stdout.splitlines(), strict=True)
    ]


def _read_by_python() -> dict[str, str]:
    """Return the variables of the environment that Python reads when it starts."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LANG", "LC_"))}


_READ_BY_SERVERS = _read_by_python()
_servers: dict[bool, CommandServer] = {}
"""Servers with and without root's powers."""


def _command_server(powerless: bool) -> CommandServer | None:
    """Return a server for commands; None where processes do not fork, or a test changed how Python starts."""
    if not hasattr(os, "fork") or _read_by_python() != _READ_BY_SERVERS:
        return None
    if powerless not in _servers:
        _servers[powerless] = CommandServer(_line(powerless))
        atexit.register(_servers[powerless].close)
    return _servers[powerless]
