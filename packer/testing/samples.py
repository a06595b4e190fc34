"""Synthetic samples, and functions to write, compare and damage packs of synthetic samples."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings, strategies as st

from packer._codecs import UNLABELED
from packer._fields import Field, Stored
from packer._formats import Format, Reader
from packer._formats.contract import Contents, Placed
from packer._manifest import Manifest, schema_for
from packer._storage.files import TableBuilder
from packer._storage.packfile import BY_PATH, LISTED, MEMORY, NOWHERE
from packer._table import (
    Sample,
    Table,
    checksum,
    column_checksums,
    column_types,
    encode_name,
    field_columns,
    with_offsets,
)

CLASSES = 5

drawn = settings(
    max_examples=25,
    deadline=None,
    # Inherited tests run as methods of several classes. Function-scoped fixtures are safe, as no example changes them.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def sizes() -> st.SearchStrategy[int]:
    """Return a strategy for sizes in bytes: tiny ones, small ones, and those around the limits of LMDB's pages."""
    borders = [1, 2022, 4080, 4096, 4080 + 4096, 4080 + 2 * 4096]
    near = st.builds(lambda border, step: max(1, border + step), st.sampled_from(borders), st.integers(-3, 3))
    return near | st.integers(1, 100) | st.integers(1, 12_000)


def names() -> st.SearchStrategy[str]:
    """Return a strategy for names: arbitrary text, and bytes that are not valid text, as `os.fsdecode` returns them."""
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
    return text | st.binary(min_size=1, max_size=40).map(lambda name: name.decode("utf-8", "surrogateescape"))


def draw_samples(lengths: Sequence[int], sample_names: Sequence[str] | None = None, *, seed: int = 0) -> list[Sample]:
    """Make samples of random bytes."""
    rng = random.Random(seed)
    return [
        Sample(
            name=sample_names[index] if sample_names is not None else f"class_{index % CLASSES}/{index:06d}.jpg",
            label=index % CLASSES,
            data=rng.randbytes(length),
            height=rng.randrange(1, 5000),
            width=rng.randrange(1, 5000),
        )
        for index, length in enumerate(lengths)
    ]


FIELDS = (
    Field("age", "scalar", "float32"),
    Field("small", "scalar", "int8"),
    Field("seen", "scalar", "bool"),
    Field("kind", "class", classes=("red", "green"), ids=(3, 7)),
    Field("mask", "mask", file="../masks/{stem}.png"),
    Field("tags", "labels"),
    Field("caption", "text"),
    Field("embedding", "array", "float16", 1),
    Field("boxes", "boxes"),
)
"""Fields of many kinds, for tests."""


def with_values(samples: Sequence[Sample], *, seed: int = 0) -> list[Sample]:
    """Return these samples with random values for `FIELDS`; some values are missing."""
    rng = random.Random(seed)

    def values() -> list[Any]:
        return [
            rng.choice([0.0, -1.5, 1e30]),
            rng.randrange(-128, 128),
            rng.random() < 0.5,
            rng.choice([3, 7]),
            rng.randbytes(rng.choice([1, 60, 5000])),
            [rng.randrange(-5, 1 << 40) + 10 for _ in range(rng.randrange(4))],
            "ä" * rng.randrange(5),
            np.arange(rng.randrange(9), dtype=np.float16),
            np.arange(4 * rng.randrange(3)).reshape(-1, 4),
        ]

    def stored(field: Field, value: Any) -> Stored:
        return None if rng.random() < 0.2 else field.encode(value)

    return [
        replace(sample, fields=tuple(stored(field, value) for field, value in zip(FIELDS, values(), strict=True)))
        for sample in samples
    ]


Change = Callable[[Manifest, Table], tuple[Manifest, Table]]


def write_pack(
    format: Format,
    path: Path,
    samples: Sequence[Sample],
    options: Mapping[str, Any] | None = None,
    *,
    written: Table | None = None,
    change: Change | None = None,
    fields: Sequence[Field] | None = None,
) -> tuple[Manifest, Table]:
    """Write a pack like a conversion does, and return the manifest and the table that were committed.

    Parameters
    ----------
    format : Format
    path : Path
    samples : sequence of Sample
        All samples of the pack, including those of an earlier run.
    options : mapping, optional
        Options of the format.
    written : Table, optional
        The rows of an earlier run, after which this run continues.
    change : callable, optional
        Takes the manifest and the table, and returns a manifest and a table to commit instead.
    fields : sequence of Field, optional
        The fields of the samples' values; by default `FIELDS` if the samples have values.
    """
    label_type, fields = label_type_of(samples), tuple(fields_of(samples) if fields is None else fields)
    writer_class = format.open_writer()
    rows = rows_for(samples, fields, apart=writer_class.apart)
    kept = rows_for(samples, fields, apart=writer_class.apart).build() if written is None else written
    writer = writer_class(path, options or {}, kept, contents_of(samples, fields))
    try:
        for index, sample in enumerate(samples):
            placed = _placed_before(kept, index, fields) if index < len(kept) else writer.append(sample)
            add_row(rows, sample, placed, fields)
        table = rows.build()
        manifest = Manifest(
            format=format.name,
            count=len(table),
            classes=list(contents_of(samples, fields).classes),
            label_type=label_type,
            columns=column_checksums(table),
            layout=writer.layout(),
            schema=schema_for(label_type, table.label, fields),
            fields=fields,
        )
        if change is not None:
            manifest, table = change(manifest, table)
        writer.flush()
        writer.sync()
        writer.commit(manifest, table)
    finally:
        writer.close()
    return manifest, table


def label_type_of(samples: Sequence[Sample]) -> str:
    """Return the type of the samples' labels."""
    if any(isinstance(sample.label, float) for sample in samples):
        return "float"
    return "class" if all(UNLABELED <= sample.label < CLASSES for sample in samples) else "int"


def fields_of(samples: Sequence[Sample]) -> tuple[Field, ...]:
    """Return the fields for which samples have values: `FIELDS`, or none."""
    return FIELDS if any(sample.fields for sample in samples) else ()


def contents_of(samples: Sequence[Sample], fields: Sequence[Field] | None = None) -> Contents:
    """Return the `Contents` of a pack with these samples: their classes, type of labels, and fields."""
    label_type = label_type_of(samples)
    classes = [f"class_{label}" for label in range(CLASSES)] if label_type == "class" else []
    return Contents(classes, label_type, tuple(fields_of(samples) if fields is None else fields))


def rows_for(samples: Sequence[Sample], fields: Sequence[Field] | None = None, *, apart: bool = False) -> TableBuilder:
    """Return an empty `TableBuilder` for the rows of these samples, by default with the fields of `fields_of`."""
    fields = fields_of(samples) if fields is None else fields
    return TableBuilder(types=column_types(label_type_of(samples), fields, apart=apart))


def _placed_before(kept: Table, index: int, fields: Sequence[Field]) -> Placed:
    """Return the offsets at which an earlier run wrote a sample and its blobs."""
    offsets = [f"field.{field.name}.offset" for field in fields if field.is_blob]
    return Placed(int(kept.offset[index]), tuple(int(kept.more[name][index]) for name in offsets if name in kept.more))


def add_row(rows: TableBuilder, sample: Sample, placed: Placed, fields: Sequence[Field] | None = None) -> None:
    """Add the row of a sample that a writer has written."""
    name = encode_name(sample.name)
    fields = fields_of([sample]) if fields is None else fields
    more = field_columns(fields, sample.fields, name)
    rows.append(
        label=sample.label,
        height=sample.height,
        width=sample.width,
        offset=placed.offset,
        size=len(sample.data),
        crc32c=checksum(sample.data, sample.label, sample.height, sample.width, name),
        name=name,
        more=with_offsets(fields, more, placed.blobs) if placed.blobs else more,
    )


def assert_holds(reader: Reader, samples: Sequence[Sample]) -> None:
    """Assert that a pack contains exactly these samples, in this order."""
    table = reader.table
    assert len(reader) == len(table) == len(samples)
    assert list(table.sample_names()) == [sample.name for sample in samples]
    assert table.label.tolist() == [sample.label for sample in samples]
    assert table.height.tolist() == [sample.height for sample in samples]
    assert table.width.tolist() == [sample.width for sample in samples]
    assert table.size.tolist() == [len(sample.data) for sample in samples]
    stored, _files = reader.locate(np.arange(len(samples)))
    for index, sample in enumerate(samples):
        assert bytes(reader.read(index)) == sample.data
        assert found_through(stored[index]) == sample.data
    for column in table.columns():
        reader.require_column(column)
    for index, sample in enumerate(samples):
        for name, value in zip(reader.fields, sample.fields, strict=True):
            assert reader.value(index, name) == value, name


def found_through(stored: Any) -> bytes | None:
    """Return the bytes that C would read for a LOCATION record; None if they are missing or the checksum differs."""
    file, position, size = (int(stored[column]) for column in ("file", "position", "size"))
    if file == NOWHERE:
        return None
    if file == MEMORY:
        data = ctypes.string_at(position, size)
    elif file == BY_PATH:
        listed = np.frombuffer(ctypes.string_at(position, LISTED.itemsize), LISTED)[0]
        path = ctypes.string_at(int(listed["path"]))
        with open(os.open(path, os.O_RDONLY, dir_fd=int(listed["directory"])), "rb") as opened:
            data = opened.read()
    elif hasattr(os, "pread"):
        data = os.pread(file, size, position)
    else:  # Windows has no `pread`, but also no forks that share the position of a file
        os.lseek(file, position, os.SEEK_SET)
        data = os.read(file, size)
    name = ctypes.string_at(int(stored["name"]), int(stored["name_size"]))
    label, height, width = (int(stored[column]) for column in ("label", "height", "width"))
    fits = len(data) == size and checksum(data, label, height, width, name) == stored["crc32c"]
    return data if fits or not stored["checked"] else None


def files_of(path: Path) -> list[Path]:
    """Return the files of a pack, in the order of their names."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def contents(path: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a pack."""
    return {str(file.relative_to(path)): file.read_bytes() for file in files_of(path)}


def flip(path: Path, wanted: bytes, at: int = 0) -> None:
    """Change byte `at` of every occurrence of `wanted` in the files of a pack; assert that there is an occurrence."""
    found = False
    for file in files_of(path):
        data = bytearray(file.read_bytes())
        start = data.find(wanted)
        while start >= 0:
            data[start + at] ^= 0x40
            found = True
            start = data.find(wanted, start + len(wanted))
        file.write_bytes(data)
    assert found, "the bytes are not in the pack unchanged"
