"""Images and packs made by hand, and packs compared byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from packer._fields import Field, Stored
from packer._formats import FORMATS
from packer._manifest import Manifest
from packer._sources.base import ReadBuffer, Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage.files import TableBuilder
from packer._table import Sample, Table, checksum, column_checksums, column_types, encode_name, field_columns

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


def content(path: Path) -> dict[str, bytes | None]:
    """Return every file below `path`, or `path` itself, with its bytes; directories are None."""
    if not path.is_dir():
        return {"": path.read_bytes()}
    return {
        str(p.relative_to(path)): p.read_bytes() if p.is_file() else None
        for p in sorted(path.rglob("*"), key=os.fsencode)
    }


class Walked(list[str]):
    """A list of names that counts how often it was iterated."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


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
    """Write a pack with a format's own writer, without the checks of a conversion."""
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
