"""Packs that an attacker could make; half of them have matching checksums.

A forgery begins as an ordinary pack of drawn images. Its table and its manifest are changed, and then written by the
format's own writer: so the content is wrong, and the format is valid.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fuzz import lies
from fuzz.fields import with_fields
from fuzz.references import REFERRING, SUFFIXES, forge_references
from fuzz.sections import sealed_manifest
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._formats import FORMATS, Reader, open_pack
from packer._formats.parts import TABLE_FILE, join_parts
from packer._formats.reader import MANIFEST_FILE
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage.files import TableBuilder
from packer._table import COLUMNS, Sample, Table, checksum, column_checksum, value_checksum
from packer.errors import PackerError

CODECS = ("keep", "jpeg", "png", "raw")
FIELDED = ("keep", "png")
"""The codecs whose packs have fields."""

_OWN = tuple(row.name for row in FORMATS.values() if row.parts)
FORGED_FORMATS = (*_OWN, *(f"parts of {format}" for format in _OWN))
KINDS = {"table": 32, "names": 10, "manifest": 30, "layout": 8, "files": 8, "bytes": 6, "images": 6, "values": 12}
"""What is forged, and how often. In packs with parts, ``files often`` takes the place of ``images`` and ``values``."""

REFERENCES = "references"
"""The forgeries of other tools' files, whose formats are `fuzz.references.REFERRING`."""

_REFERRING = 0.4  # of all forgeries
_MANY_TIMES = 500
_OFTEN = 50

Columns = dict[str, npt.NDArray[Any]]


class Forgery(NamedTuple):
    """A forged pack: where it lies, its format (one of `FORGED_FORMATS`), its codec, and what was forged.

    For a file of another tool, the kind is `REFERENCES`, and the format is that of its values.
    """

    path: Path
    format: str
    codec: str
    kind: str


class _Original(NamedTuple):
    """An ordinary pack, opened, with its contents."""

    reader: Reader
    parts: bool
    data: list[list[bytes]]  # for each sample, the image and the values of fields that are bytes
    columns: Columns
    document: dict[str, Any]


class _Text:
    """Takes the place of a manifest for writers, which need only its text."""

    schema = 1

    def __init__(self, text: bytes) -> None:
        self._text = text

    def to_json(self) -> bytes:
        return self._text


class Originals:
    """Ordinary packs of each format and codec, and forgeries of them.

    Parameters
    ----------
    directory : Path
        Where the packs are written.
    tree : Path
        An ImageFolder tree of a few small images.
    outside : Path
        A directory that no forgery may reach; it holds ``secret.bin`` and ``pack``, copies of the packs with parts.
    """

    def __init__(self, directory: Path, tree: Path, outside: Path) -> None:
        self._outside = outside
        self._packs: dict[tuple[str, str], _Original] = {}
        for codec in CODECS:
            for format in _OWN:
                path = directory / f"{codec}{FORMATS[format].suffixes[0]}"
                convert(_images(tree, codec), path, recipe=Recipe(codec), format=format)
                self._packs[format, codec] = _opened(path)
                path = directory / f"{codec}-{format}-parts"
                self._packs[f"parts of {format}", codec] = _opened(_with_parts(path, tree, format, codec))

    def forge(self, directory: Path, stem: str, chance: Random) -> Forgery:
        """Write a forged pack below `directory`; all of it depends on the random numbers alone."""
        if chance.random() < _REFERRING:
            return self._referring(directory, stem, chance)
        format, codec = chance.choice(FORGED_FORMATS), chance.choice(CODECS)
        kind = chance.choices([*KINDS], [*KINDS.values()])[0]
        original = self._packs[format, codec]
        if kind == "values" and not _blob_fields(original.reader):
            kind = "images"
        if kind in ("images", "values") and original.parts:  # its samples are in the files of its parts
            kind = "files often"
        path = directory / (stem if original.parts else stem + FORMATS[format].suffixes[0])
        columns = {name: column.copy() for name, column in original.columns.items()}
        document, data = json.loads(json.dumps(original.document)), [list(parts) for parts in original.data]
        if kind == "files often":
            extent = sum(size for _, _, size in original.reader.data_files())
            lies.list_files_often(document, columns, extent, _OFTEN)
            data *= _OFTEN
        else:
            columns = self._lie(kind, columns, data, chance, _blob_fields(original.reader))
        fits = kind == "files often" or chance.random() < 0.5
        if fits:
            _seal_samples(columns, data if kind in ("images", "values", "files often") else None, original.reader)
        if fits or chance.random() < 0.5:
            document["columns"] = {name: column_checksum(column) for name, column in columns.items()}
            document["count"] = len(columns["label"])
        if kind == "manifest":
            lies.lie_in_document(document, chance)
        elif kind == "layout":
            lies.lie_in_layout(document, os.fspath(self._outside), chance)
        _write(path, original, data, columns, lies.text_of(document))
        if kind == "bytes":
            _change_bytes(path, chance)
        elif kind == "files":
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                lies.lie_in_files(path, self._outside, chance)
        return Forgery(path, format, codec, kind)

    def _referring(self, directory: Path, stem: str, chance: Random) -> Forgery:
        format = chance.choice([*REFERRING, "pickles", "pyarrow"])
        path = directory / (stem + SUFFIXES.get(format, ".lmdb"))
        forge_references(format, path, self._packs["lmdb", "keep"].data[0][0], chance)
        return Forgery(path, format, "keep", REFERENCES)

    def _lie(self, kind: str, columns: Columns, data: list[list[bytes]], chance: Random, fields: list[str]) -> Columns:
        """Forge a table and samples; return the columns, which may be new ones."""
        if kind == "values":
            lies.lie_about_values(data, fields, columns, chance)
        elif kind == "images":
            lies.lie_about_images(data, columns, chance)
        elif kind == "names":
            lies.lie_in_names(columns, os.fspath(self._outside), chance)
        elif kind == "table" or (kind in ("manifest", "layout") and chance.random() < 0.3):
            if chance.random() < 0.03:
                columns = _repeated(columns, _MANY_TIMES)
            lies.lie_in_table(columns, chance)
        return columns


def _opened(path: Path) -> _Original:
    reader = open_pack(path, check="never")
    columns = {name: column.copy() for name, column in reader.table.columns().items()}
    document = json.loads(reader.manifest.to_json())
    del document["crc32c"]
    data = [
        [bytes(reader.read(index)), *(bytes(reader.value(index, name) or b"") for name in _blob_fields(reader))]  # type: ignore[arg-type]
        for index in range(len(reader))
    ]
    return _Original(reader, (path / TABLE_FILE).exists(), data, columns, document)


def _blob_fields(reader: Reader) -> list[str]:
    return [name for name, field in reader.fields.items() if field.is_blob]


def _images(tree: Path, codec: str) -> Source:
    source = imagefolder_source(tree)
    return with_fields(source) if codec in FIELDED else source


def _with_parts(path: Path, tree: Path, format: str, codec: str) -> Path:
    source = _images(tree, codec)
    path.mkdir()
    parts = [f"part-{number:05d}{FORMATS[format].suffixes[0]}" for number in range(2)]
    for number, part in enumerate(parts):
        half = source.between(number * len(source) // 2, (number + 1) * len(source) // 2)
        convert(half, path / part, recipe=Recipe(codec), format=format)
    join_parts(path, parts, source.describe())
    return path


def _repeated(columns: Columns, times: int) -> Columns:
    """Repeat the rows of a table many times; all of them refer to the same few samples."""
    rows, names = len(columns["label"]), len(columns["names"])
    repeated = {name: np.tile(column, times) for name, column in columns.items()}
    repeated["name_end"] += np.repeat(np.arange(times) * names, rows)
    return repeated


def _seal_samples(columns: Columns, data: list[list[bytes]] | None, reader: Reader) -> None:
    """Compute the checksums of samples and values anew, for the changed rows and data."""
    try:
        rows = _table(columns).rows(np.arange(len(columns["crc32c"])))
    except IndexError:  # columns of different lengths
        return
    fields = _blob_fields(reader)
    for row in rows:
        parts = data[row.number] if data is not None else None
        with contextlib.suppress(PackerError):
            found = reader._fetch(row.offset, row.size) if parts is None else parts[0]
            if row.name is not None:
                columns["crc32c"][row.number] = checksum(found, row.label, row.height, row.width, row.name)
        with contextlib.suppress(PackerError, IndexError, OverflowError):
            offset = row.offset + row.size
            for place, name in enumerate(fields, 1):
                size = int(columns[f"field.{name}.size"][row.number])
                if size >= 0 and row.name is not None:
                    blob = (reader._fetch(offset, size) if size else b"") if parts is None else parts[place]
                    columns[f"field.{name}.crc32c"][row.number] = value_checksum(blob, row.name)
                offset += max(size, 0)


def _table(columns: Columns) -> Table:
    """Return a table of columns that may not fit together."""
    own = {name: columns[name] for name in COLUMNS}
    return Table(**own, more={name: column for name, column in columns.items() if name not in COLUMNS})


def _write(path: Path, original: _Original, data: list[list[bytes]], columns: Columns, body: bytes) -> None:
    text = sealed_manifest(body[:-1])
    if original.parts:
        shutil.copytree(original.reader.path, path)
        sizes = {name: np.dtype(dtype).itemsize for name, dtype in original.reader.manifest.column_types.items()}
        order = sorted(sizes, key=lambda name: (name == "names", -sizes[name]))
        (path / TABLE_FILE).write_bytes(b"".join(columns[name].tobytes() for name in order))
        (path / MANIFEST_FILE).write_bytes(text)
        return
    types = original.reader.manifest.column_types
    writer = FORMATS[original.document["format"]].open_writer()(path, {}, TableBuilder(types=types).build())
    for number, parts in enumerate(data):
        offset = writer.append(Sample("a/b", 0, parts[0], 1, 1, tuple(parts[1:]))).offset
        if parts != original.data[number]:
            columns["offset"][number] = offset
    if data != original.data:  # later samples have moved, too: offsets and the checksums of columns change
        text = _relocated(columns, data, original, body)
    writer.commit(_Text(text), _table(columns))  # type: ignore[arg-type]
    writer.close()


def _relocated(columns: Columns, data: list[list[bytes]], original: _Original, body: bytes) -> bytes:
    document = json.loads(body)
    lengths = [sum(map(len, parts)) for parts in data]
    if original.document["format"] != "lmdb":
        columns["offset"][: len(data)] = np.cumsum([0, *lengths[:-1]])
    if "shards" in document["layout"]:
        document["layout"]["shards"] = [[len(data), sum(lengths)]]
    document["columns"] = {name: column_checksum(column) for name, column in columns.items()}
    return sealed_manifest(lies.text_of(document)[:-1])


def _change_bytes(path: Path, chance: Random) -> None:
    file = chance.choice([*_files(path)])
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 8, 30])):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(1, 9)] = chance.choice([b"\0", b"\xff" * 8, b"\x7f", chance.randbytes(4)])
    file.write_bytes(data)


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())
