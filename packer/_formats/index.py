"""An index: the table and the manifest of samples in files of other tools, which stay where they are.

``manifest.json``   written last
``table.bin``       the columns of the table, one after the other
``files.bin``       for each file the size, the modification time, and the path relative to a directory, the base
``data.bin``        values whose bytes are not one range of a file

A row's offset is a position in the concatenation of all listed files, in the order of the list, and ``data.bin``. A
pack in the layout of another tool has its index in its directory ``.packer.index``, with the pack as the base. If an
index was copied together with its files, the base is the directory ``files`` in the copy. Before a listed file is read,
its size and time are compared with those in the list.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers import ForeignFiles, PixelLayout
from packer._formats.contract import Locations
from packer._formats.parts import TABLE_FILE, SpreadReader, write_table
from packer._formats.reader import MANIFEST_FILE, holds_manifest, read_manifest, write_manifest
from packer._manifest import Manifest
from packer._storage.files import AppendFile, replacing
from packer._storage.packfile import BY_PATH, NOWHERE, Descriptor, PackFile, by_path
from packer._storage.place import Place, place_of
from packer._storage.safe_open import StrangeFileError, name_problem
from packer._storage.stamps import ANY_TIME, Stamps, same_stamp, stamp_in, what_changed
from packer._table import Buffer, Ints, Names, Row, Table, column_checksum, column_checksums
from packer.errors import CorruptPackError, DestinationError, printable

DATA_FILE = "data.bin"
"""The file with the index's own bytes: those that are not one range of a listed file."""

_CHANGED = "Index it again, or restore the original file"
_MOVED = "If it was moved, give its new path: `packer index INDEX --base DIR`"
_BY_DESCRIPTOR = os.open in os.supports_dir_fd


FILES_FILE = "files.bin"
COPIES = "files"
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
        An existing, empty directory.
    manifest : Manifest
        Complete except for `columns` and `layout`.
    table : Table
        Its offsets are positions in the concatenation of all files and then `data`; each field with blobs has a column
        of offsets.
    files : ForeignFiles
    base : str
        The directory that the files' paths are relative to: absolute, or relative to `directory`, with slashes.
    checksums : bool
        Whether the table has checksums of the samples.
    pixels : PixelLayout, optional
        The layout of the samples' pixels in the files, if it is not that of the codec ``raw``.
    data : iterable of bytes-like
        The bytes of values that are not one range of a file.
    """
    names = Names.of(files.names) if not isinstance(files.names, Names) else files.names
    listed = file_columns(names, files.stamps)
    with contextlib.closing(AppendFile(directory / DATA_FILE)) as copied:
        for piece in data:
            copied.append(piece)
        copied.flush()
        copied.sync()
    layout: dict[str, Any] = {
        "names": len(table.names),
        "apart": True,
        "checksums": checksums,
        "base": base,
        "files": len(files),
        "file_names": len(listed[-1]),
        "file_columns": [column_checksum(column) for column in listed],
        "data": copied.size,
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
    """Write the list of files, the table, and last the complete manifest; ``data.bin`` exists already.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    table : Table
    files : sequence of arrays
        As `file_columns` returns them.
    """
    with contextlib.closing(AppendFile(directory / FILES_FILE)) as listed:
        listed.append(*(column.tobytes() for column in files))
        listed.flush()
        listed.sync()
    write_table(directory / TABLE_FILE, len(table), len(table.names), [(table, 0, 0)], manifest.column_types)
    write_manifest(directory, manifest)


def as_stored(table: Table, pixels: PixelLayout | None) -> Table:
    """Return a table with the sizes that the samples have in the files, where pixels may have one channel."""
    return table if pixels is None else replace(table, size=table.size // 3 * len(pixels.channels))


def base_from(root: Path, index: Path) -> str:
    """Return the relative path from an index to a directory; an absolute path if they have no common parent."""
    root, index = Path(os.path.realpath(root)), Path(os.path.realpath(index))
    try:
        common = os.path.commonpath([root, index.parent])
    except ValueError:  # on two drives
        return root.as_posix()
    return root.as_posix() if common == os.path.dirname(common) else Path(os.path.relpath(root, index)).as_posix()


def move_index(path: Path, base: Path) -> Manifest:
    """Change the base of an index to another directory, or a URL; return its new manifest.

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
        if not reader.in_place or reader.brings_files:
            raise DestinationError(f"{printable(path)}: contains its files itself, so it cannot have another base")
    there = place_of(base)
    if first and not there.holding([first]):
        raise DestinationError(f"{printable(there)}: has no {printable(first)}, which the index lists first")
    layout = {**manifest.layout, "base": there.path if there.remote else base_from(base, path)}
    manifest = replace(manifest, layout=layout)
    with replacing(path / MANIFEST_FILE) as file:
        file.append(manifest.to_json())
    return manifest


def listed_names(directory: Place) -> list[str]:
    """Return the names in an index's list of files, without reading the manifest, which may be damaged.

    Raises
    ------
    CorruptPackError
        If the list is damaged too.
    """
    with directory.open(FILES_FILE) as file:
        data = np.frombuffer(bytes(file.read(0, file.size)), np.uint8)
    numbers = data[: len(data) // 8 * 8].view("<i8")
    counts = np.arange(1, len(data) // 24 + 1)
    # The last of the ends is the size of all names, so the manifest's count of files is not needed.
    counts = counts[numbers[3 * counts - 1] == len(data) - 24 * counts]
    lists = [Names(data[24 * count :], numbers[2 * count : 3 * count], file.path) for count in counts.tolist()]
    whole = [list(names) for names in lists if (np.diff(names.ends, prepend=0) > 0).all()]
    if len(whole) != 1 or any(map(name_problem, whole[0])):
        raise CorruptPackError("its list of files is damaged", file.path)
    return whole[0]


class IndexReader(SpreadReader):
    """Reads the table of an index, and through it the samples in files of other tools."""

    _pixels: PixelLayout | None = None
    _directory: Descriptor | None = None

    @classmethod
    def shows_mark(cls, place: Place) -> bool:
        return holds_manifest(place.join(INDEX_DIRECTORY)) or super().shows_mark(place)

    def _open(self) -> tuple[Manifest, Table]:
        inner = self.place.join(INDEX_DIRECTORY)
        self._own = bool(inner.holding([FILES_FILE]))
        self._index = inner if self._own else self.place
        manifest = read_manifest(self._index)
        layout = manifest.layout
        try:
            names, files, file_names, data = (_count(layout[name]) for name in ("names", "files", "file_names", "data"))
            data_at = _count(layout["data_at"]) if "data_at" in layout else None
            self._file_columns = [_count(crc) for crc in layout["file_columns"]]
            if "pixels" in layout:
                self._pixels = PixelLayout(**layout["pixels"])
            base = _text(layout["base"])
            if self._own and base != os.pardir:
                raise ValueError(f"{base!r} is not the pack, which contains them")
            self._has_checksums = layout["checksums"] is True
            if not self._has_checksums:
                self.check = "never"  # there is nothing to compare with
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptPackError(f"the manifest does not say where the files are: {error}", self.path) from error
        _, table = self._open_table(self._index.open(TABLE_FILE), manifest, names)
        self._files_file = self._index.open(FILES_FILE)
        if self._files_file.size != 24 * files + file_names:
            raise CorruptPackError("it is not as long as the manifest says", self._files_file.path)
        counts, starts = (files, files, files, file_names), [0, 8 * files, 16 * files, 24 * files]
        listed = zip(_FILE_COLUMNS.items(), starts, counts, strict=True)
        self._listed = self._files_file.vectors({name: (at, count, dtype) for (name, dtype), at, count in listed})
        size, modified, ends, blob = self._listed.values()
        size, modified = size.copy(), modified.copy()
        if (size < -1).any() or size.astype(float).sum() + data >= 1 << 62:
            raise CorruptPackError("it contains impossible file sizes", self._files_file.path)
        self._file_names = Names(blob, ends, self._files_file.path)
        self._base = self._base_of(base)
        if self._base.remote:  # a remote file has the time of its upload
            modified = np.full(files, ANY_TIME)
        self._stamps = np.stack([size, modified], 1)
        self._spread(np.append(np.maximum(size, 0), data))
        if data_at is not None:  # larger than any file, so that offsets in the gap belong to no file
            self._starts[-2:] = max(data_at, self._starts[-2]) + np.array([0, data])
        return manifest, table

    def _base_of(self, base: str) -> Place:
        """Return the base of the listed files: the manifest's, or ``files`` if the files were copied with the index."""
        first = self._file_names.get(0) if len(self._file_names) else ""  # `packer verify` reports a damaged name
        self._brings_files = not self._own and self.place.has_directory(COPIES, first)
        if self._brings_files:
            try:
                self.place.require_no_link(COPIES)
            except StrangeFileError as error:
                why = "it is a link, but a copied index must contain its files"
                raise CorruptPackError(why, f"{self.path}/{COPIES}") from error
        try:
            return self._index.follow(COPIES if self._brings_files else base)
        except ValueError as error:
            raise CorruptPackError(f"the manifest does not say where the files are: {error}", self.path) from error

    @property
    def remote(self) -> bool:
        return self.place.remote or self._base.remote

    @property
    def in_place(self) -> bool:
        return not self._own

    @property
    def has_checksums(self) -> bool:
        return self._has_checksums

    @property
    def _owns_files(self) -> bool:
        """Whether the files belong to the pack, and so must not be links; files of other tools may be links."""
        return self._own or self._brings_files

    @property
    def brings_files(self) -> bool:
        """Whether the files are in the index itself, because it was copied together with them."""
        return self._brings_files

    @property
    def base(self) -> str:
        """The directory of the samples' files, or its URL."""
        return self._base.path

    def files(self) -> list[str]:
        """Return the paths or URLs of the listed files."""
        return [self._base.path_of(name) for name in self._file_names]

    def first_file(self) -> str:
        """Return the path of the first listed file, relative to the base; empty if there are no files."""
        return self._file_names[0] if len(self._file_names) else ""

    def stored(self) -> Table:
        return as_stored(self.table, self._pixels)

    def _fetch_image(self, row: Row) -> Buffer:
        if self._pixels is None:
            return super()._fetch_image(row)
        size = self._pixels.size(row.height, row.width)
        if size * 3 != row.size * len(self._pixels.channels):
            raise CorruptPackError(f"{row.size} bytes are not the size of {row.width} x {row.height} pixels", self.path)
        return self._pixels.rgb(self._fetch(row.offset, size), row.height, row.width).tobytes()

    def _data_name(self, number: int) -> str:
        return DATA_FILE if number == len(self._file_names) else self._file_names[number]

    def _open_data_file(self, number: int) -> tuple[PackFile, int]:
        if number == len(self._file_names):
            return self._index.open(DATA_FILE), 0
        self._require_name(number)
        base, name = self._base, self._file_names[number]
        where = base.path_of(name)
        if not base.holds(name):
            if not base.is_directory():
                raise CorruptPackError(
                    f"the directory of its files does not exist, or cannot be reached. {_MOVED}", base.path
                )
            raise CorruptPackError(f"does not exist, or cannot be reached. {_CHANGED}", where)
        file = base.open(name) if self._owns_files else base.join(name).open()
        before, now = stamp_in(self._stamps, number), (file.size, file.modified)
        if not same_stamp(before, now):
            file.close()
            if before[1] == ANY_TIME:
                when = "written" if self._owns_files else "indexed"
                raise CorruptPackError(f"it has {now[0]} bytes, but had {before[0]} when it was {when}", where)
            raise CorruptPackError(f"changed since it was indexed: {what_changed(before, now)}. {_CHANGED}", where)
        return file, 0

    def _data_file(self, number: int) -> tuple[PackFile, int]:
        """Return the file with this number, which may be open already; open it again if it has changed."""
        found = super()._data_file(number)
        if not found[0].changed():
            return found
        self._opened.pop(number, None)
        return super()._data_file(number)  # the error describes the change

    def _require_name(self, number: int) -> None:
        """Raise CorruptPackError if the name of a file leads out of the base."""
        name = self._file_names[number]
        if problem := name_problem(name):
            raise CorruptPackError(f"the list of files names {printable(name)}: {problem}", self._index.path)

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        """Return the locations of samples. A file that is one whole sample is opened only when it is read."""
        if self._pixels is not None:  # not supported in C
            return Locations(np.full(len(offset), NOWHERE), offset, None)
        numbers = np.clip(np.searchsorted(self._starts, offset, side="right") - 1, 0, len(self._starts) - 2)
        whole = (offset == self._starts[numbers]) & (size == self._starts[numbers + 1] - offset) & (size > 0)
        whole &= numbers < len(self._file_names)
        may_be_links = not self._owns_files  # C follows links
        if not (_BY_DESCRIPTOR and may_be_links and whole.any()) or self._base.remote:
            return super()._locate(offset, size)
        rest = super()._locate(np.where(whole, -1, offset), size)
        try:
            directory, paths = self._open_base(), [self._path(number) for number in numbers[whole].tolist()]
        except OSError:  # reading the sample reports it
            return rest
        position, held = by_path(directory.number, paths, self._stamps[numbers[whole]])
        rest.file[whole], rest.position[whole] = BY_PATH, position
        return Locations(rest.file, rest.position, (rest.held, held, directory))

    def _open_base(self) -> Descriptor:
        """Return a descriptor of the base. Takes no lock, for the reason that `SpreadReader._data_file` gives."""
        if self._closed:
            raise ValueError(f"{printable(self.path)}: is closed")
        found = self._directory
        if found is None:
            found = self._directory = Descriptor(os.open(self._base.path, os.O_RDONLY))
        return found

    def _path(self, number: int) -> bytes:
        """Return the path of a file below the base; if its name is damaged, an empty path, at which no file exists."""
        try:
            return self._file_names.encoded(number)
        except CorruptPackError:
            return b""

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        sizes = size if self._pixels is None else size // 3 * len(self._pixels.channels)
        super()._ahead(offset, sizes, urgent=urgent)

    def data_files(self) -> list[tuple[str, int, int]]:
        return [(name, 0, size) for name, size in zip(self._data_names(), np.diff(self._starts).tolist(), strict=True)]

    def require_distinct_files(self) -> None:
        """Do nothing: hard links are allowed, because the files are the user's own, and each is listed once."""

    def file_names(self) -> list[str]:
        """Return the paths of the index's own files, then those of the listed files in a complete copy of the pack."""
        own = [MANIFEST_FILE, TABLE_FILE, FILES_FILE, DATA_FILE]
        for number in range(len(self._file_names)):
            self._require_name(number)
        if self.in_place:
            return [*own, *(f"{COPIES}/{name}" for name in self._file_names)]
        return [*(f"{INDEX_DIRECTORY}/{name}" for name in own), *self._file_names]

    def place_of(self, name: str) -> Place | None:
        top, _, below = name.partition("/")
        return self._base.join(below) if self.in_place and not self._brings_files and top == COPIES else None

    def require_table(self) -> None:
        self._table_file.require_whole()
        self._files_file.require_whole()

    def close(self) -> None:
        super().close()
        self._files_file.close()
        self._directory = None

    def check_structure(self) -> Iterable[str]:
        """Compare the list of files with its checksums, and check the names in it."""
        for (name, column), expected in zip(self._listed.items(), self._file_columns, strict=False):
            if column_checksum(column) != expected:
                yield f"the list of files: the column {name!r} does not match its checksum"
                return
        seen = set()
        for name in self._file_names:
            if problem := name_problem(name):
                yield f"the list of files names {printable(name)}: {problem}"
            elif name in seen:
                yield f"the list of files names {printable(name)} twice"
            seen.add(name)

    def changed_files(self) -> Iterable[str]:
        for number in range(len(self._file_names)):
            name = self._file_names.get(number)
            if name_problem(name):  # `check_structure` reports it
                continue
            before, now = stamp_in(self._stamps, number), self._base.stamp(name)
            if not same_stamp(before, now):
                self._base.holds(name)  # raises if the file cannot be inspected
                where = self._base.path_of(name)
                yield f"{printable(where)}: changed since it was indexed: {what_changed(before, now)}"


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a count")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or "\0" in value:
        raise ValueError(f"{value!r} is not a path")
    return value
