"""An index: the table and the manifest of samples that lie in files of others, which stay where they are.

``manifest.json``   written last
``table.bin``       the columns of the table, one after the other
``files.bin``       of each file its size, when it was changed last, and its path below the base
``data.bin``        bytes that are no range of a file

A row's offset counts through all files in their order, and then through ``data.bin``. A pack in the layout of another
tool has its index in the directory ``.packer.index`` of its own, and its base is itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers import ForeignFiles, PixelLayout
from packer._formats.contract import Places
from packer._formats.joined import column_places, write_table
from packer._formats.manifestfile import MANIFEST_FILE, read_manifest, write_manifest
from packer._formats.multifile import SpreadData, SpreadReader
from packer._formats.reader import table_from
from packer._manifest import Manifest
from packer._storage.files import AppendFile, replacing
from packer._storage.locations import NOWHERE
from packer._storage.packfile import PackFile
from packer._storage.paths import name_problem
from packer._storage.stamps import Stamps, same_stamp, stamp_at, stamp_in, what_changed
from packer._table import Buffer, Ints, Names, Row, Table, column_checksum, column_checksums
from packer.errors import CorruptPackError, DestinationError, printable

__all__ = [
    "DATA_FILE",
    "INDEX_DIRECTORY",
    "IndexReader",
    "base_from",
    "file_columns",
    "move_index",
    "write_files",
    "write_index",
]

TABLE_FILE, FILES_FILE, DATA_FILE = "table.bin", "files.bin", "data.bin"
INDEX_DIRECTORY = ".packer.index"

_FILE_COLUMNS = {"size": "<i8", "modified": "<i8", "name_end": "<i8", "names": "|u1"}


def write_index(
    directory: Path,
    manifest: Manifest,
    table: Table,
    files: ForeignFiles,
    *,
    base: str,
    checksums: bool = True,
    pixels: PixelLayout | None = None,
    data: Iterable[Buffer] = (),
) -> Manifest:
    """Write an index, and return its manifest once all is on the disk.

    Parameters
    ----------
    directory : Path
        Is there, and empty.
    manifest : Manifest
        All but `columns` and `layout`.
    table : Table
        Its offsets count through all files, and then through `data`; each blob has the column of an offset.
    files : ForeignFiles
    base : str
        The directory that the files' paths are relative to: absolute, or relative to `directory`, with slashes.
    checksums : bool
        Whether the table has checksums of the samples.
    pixels : PixelLayout, optional
        How the samples' pixels lie in the files, where that is not as in the codec ``raw``.
    data : iterable of bytes-like
        What is no range of a file.
    """
    names = Names.of(files.names) if not isinstance(files.names, Names) else files.names
    listed = file_columns(names, files.stamps)
    copied, count = AppendFile(directory / DATA_FILE), 0
    for piece in data:
        copied.append(piece)
        count += len(piece)
    _finish(copied)
    layout: dict[str, Any] = {
        "names": len(table.names),
        "apart": True,
        "checksums": checksums,
        "base": base,
        "files": len(files),
        "file_names": len(listed[-1]),
        "file_columns": [column_checksum(column) for column in listed],
        "data": count,
    }
    if pixels is not None:
        layout["pixels"] = pixels.to_json()
    manifest = replace(manifest, columns=column_checksums(table), layout=layout)
    write_files(directory, manifest, table, listed)
    return manifest


def file_columns(names: Names, stamps: Stamps) -> list[npt.NDArray[Any]]:
    """Return the columns of ``files.bin``; `stamps` are size and time of each file."""
    return [stamps[:, 0].astype("<i8"), stamps[:, 1].astype("<i8"), names.ends.astype("<i8"), names.blob]


def write_files(directory: Path, manifest: Manifest, table: Table, files: Sequence[npt.NDArray[Any]]) -> None:
    """Write the list of files, the table, and last the manifest, which is complete; ``data.bin`` is there already.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    table : Table
    files : sequence of arrays
        As `file_columns` gives.
    """
    listed = AppendFile(directory / FILES_FILE)
    listed.append(*(column.tobytes() for column in files))
    _finish(listed)
    write_table(directory / TABLE_FILE, len(table), len(table.names), [(table, 0, 0)], manifest.column_types)
    write_manifest(directory, manifest)


def base_from(root: Path, index: Path) -> str:
    """Return the way from an index to a directory; its absolute path where the two have nothing in common."""
    root, index = Path(os.path.realpath(root)), Path(os.path.realpath(index))
    try:
        common = os.path.commonpath([root, index.parent])
    except ValueError:  # on two drives
        return root.as_posix()
    return root.as_posix() if common == os.path.dirname(common) else Path(os.path.relpath(root, index)).as_posix()


def move_index(path: Path, base: Path) -> Manifest:
    """Make an index look for its files below another directory; return its new manifest.

    Raises
    ------
    PackError
        If there is no index.
    DestinationError
        If the index cannot be written, or the first of its files is not below `base`.
    """
    reader = IndexReader(path)
    with reader:
        manifest, first = reader.manifest, reader.first_file()
    if first and not os.path.isfile(base / first):
        raise DestinationError(f"{printable(base)}: has no {printable(first)}, which the index lists first")
    manifest = replace(manifest, layout={**manifest.layout, "base": base_from(base, path)})
    with replacing(path / MANIFEST_FILE) as file:
        file.append(manifest.to_json())
    return manifest


def _finish(file: AppendFile) -> None:
    try:
        file.flush()
        file.sync()
    finally:
        file.close()


class IndexReader(SpreadReader):
    """Reads the table of an index, and through it the files of others."""

    _data: _IndexedFiles
    _pixels: PixelLayout | None = None

    def _open(self) -> tuple[Manifest, Table]:
        inner = os.path.join(self.path, INDEX_DIRECTORY)
        self._directory = inner if os.path.isdir(inner) else self.path
        manifest = read_manifest(self._directory)
        layout = manifest.layout
        try:
            names, files, file_names, data = (_count(layout[name]) for name in ("names", "files", "file_names", "data"))
            data_at = _count(layout["data_at"]) if "data_at" in layout else None
            self._file_columns = [_count(crc) for crc in layout["file_columns"]]
            if "pixels" in layout:
                self._pixels = PixelLayout(**layout["pixels"])
            self._base = os.path.join(self._directory, _text(layout["base"]))
            if layout["checksums"] is not True:
                self.check = "never"  # there is nothing to compare with
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptPackError(f"the manifest does not say where the files are: {error}", self.path) from error
        self._table_file = PackFile(self._directory, TABLE_FILE)
        types = manifest.column_types
        of_a_row = sum(np.dtype(dtype).itemsize for name, dtype in types.items() if name != "names")
        rows, rest = divmod(self._table_file.size - names, of_a_row)
        if rows < 0 or rest:
            raise CorruptPackError("it is not as long as the manifest says", self._table_file.path)
        columns = {
            name: self._table_file.array(at, names if name == "names" else rows, types[name])
            for name, at in column_places(rows, types).items()
        }
        self._files_file = PackFile(self._directory, FILES_FILE)
        counts = (files, files, files, file_names)
        if self._files_file.size != 24 * files + file_names:
            raise CorruptPackError("it is not as long as the manifest says", self._files_file.path)
        starts = np.cumsum([0, *(8 * count for count in counts[:3])]).tolist()
        self._listed: list[npt.NDArray[Any]] = [
            self._files_file.array(start, count, dtype)
            for start, count, dtype in zip(starts, counts, _FILE_COLUMNS.values(), strict=True)
        ]
        size, modified, ends, blob = self._listed
        if (size < -1).any():
            raise CorruptPackError("a file has no such size", self._files_file.path)
        listed = ForeignFiles(self._base, Names(blob, ends, self._files_file.path), np.stack([size, modified], 1))
        self._data = _IndexedFiles(self._directory, listed, data, data_at)
        return manifest, table_from(columns, manifest, self.path)

    @property
    def base(self) -> str:
        """The directory below which the files of the samples lie."""
        return os.path.normpath(self._base)

    def files(self) -> list[str]:
        """Return the paths of the files."""
        return [os.path.join(self._base, name) for name in self._data.files_below()]

    def first_file(self) -> str:
        """Return the path below the base of the first file; empty where there is none."""
        names = self._data.files_below()
        return names[0] if names else ""

    def stored(self) -> Table:
        if self._pixels is None:
            return self.table
        return replace(self.table, size=self.table.size // 3 * len(self._pixels.channels))

    def _fetch_image(self, row: Row) -> Buffer:
        if self._pixels is None:
            return super()._fetch_image(row)
        size = self._pixels.size(row.height, row.width)
        if size * 3 != row.size * len(self._pixels.channels):
            raise CorruptPackError(f"{row.size} bytes are not those of {row.width} x {row.height} pixels", self.path)
        return self._pixels.rgb(self._fetch(row.offset, size), row.height, row.width).tobytes()

    def _locate(self, offset: Ints, size: Ints) -> Places:
        if self._pixels is not None:  # which C does not know
            return Places(np.full(len(offset), NOWHERE), offset, None)
        return super()._locate(offset, size)

    def data_files(self) -> list[tuple[str, int, int]]:
        sizes = np.diff(self._data.starts).tolist()
        return [(self._data.name(number), 0, size) for number, size in enumerate(sizes)]

    def require_distinct_files(self) -> None:
        """Accept links: the files are somebody's tree, and each is listed once."""

    def file_names(self) -> list[str]:
        """Return the index's own files; and, where the pack has the layout of another tool, that tool's files."""
        own = [MANIFEST_FILE, TABLE_FILE, FILES_FILE, DATA_FILE]
        if self._directory == self.path:
            return own
        return [*(f"{INDEX_DIRECTORY}/{name}" for name in own), *self._data.files_below()]

    def require_table(self) -> None:
        self._table_file.require_whole()
        self._files_file.require_whole()

    def close(self) -> None:
        super().close()
        self._files_file.close()

    def check_structure(self) -> Iterable[str]:
        """Compare the list of files with its checksums, and the files with the list."""
        for name, column, expected in zip(_FILE_COLUMNS, self._listed, self._file_columns, strict=False):
            if column_checksum(column) != expected:
                yield f"the list of files: the column {name!r} does not fit its checksum"
                return
        yield from self._data.changed()


class _IndexedFiles(SpreadData):
    """The files that an index lists, and its own data after them.

    Parameters
    ----------
    path : str
        The directory of the index.
    listed : ForeignFiles
    data : int
        How many bytes of data the index has of its own.
    data_at : int, optional
        Where these begin; by default after the files.
    """

    def __init__(self, path: str, listed: ForeignFiles, data: int, data_at: int | None) -> None:
        super().__init__(path, [])
        self._listed = listed
        sizes = np.maximum(listed.stamps[:, 0], 0)
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64), [0]])
        if data_at is not None:  # no file is as long as that, and what is read of the gap is none of its bytes
            self.starts[-2] = max(data_at, self.starts[-2])
        self.starts[-1] = self.starts[-2] + data

    def name(self, number: int) -> str:
        return DATA_FILE if number == len(self._listed) else self._listed.names[number]

    def open_file(self, number: int) -> tuple[PackFile, int]:
        if number == len(self._listed):
            return PackFile(self.path, DATA_FILE), 0
        name = self._listed.names[number]
        if problem := name_problem(name):
            raise CorruptPackError(f"the list of files names {printable(name)}: {problem}", self.path)
        return self._listed.opened(number), 0

    def files_below(self) -> Sequence[str]:
        """Return the names of the files that are listed."""
        return self._listed.names

    def changed(self) -> Iterator[str]:
        """Yield what is wrong with files: gone, changed, listed twice, or with a name that leads elsewhere."""
        seen = set()
        for number, name in enumerate(self._listed.names):
            before, now = stamp_in(self._listed.stamps, number), stamp_at(self._listed.path(number))
            if problem := name_problem(name):
                yield f"the list of files names {printable(name)}: {problem}"
            elif name in seen:
                yield f"the list of files names {printable(name)} twice"
            elif not same_stamp(before, now):
                where = printable(self._listed.path(number))
                yield f"{where}: changed since it was indexed: {what_changed(before, now)}"
            seen.add(name)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no count")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or "\0" in value:
        raise ValueError(f"{value!r} is no path")
    return value
