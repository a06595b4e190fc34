"""A pack with parts: a directory of ordinary packs of one format, and the table and the manifest of all of them.

``part-00000.lmdb``, …   each a pack, complete in itself
``table.bin``            the columns of the whole table, one after the other
``table-00004.bin``      replaces ``table.bin`` in a pack of four parts, if parts were appended
``manifest.json``        the manifest of the whole, written last

In every format, a sample is a plain range of a file, and the manifest lists the files with samples. So a part costs
nothing until one of its samples is read: its file is opened only then. `SpreadReader` is the base class of all readers
of several files.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._formats import FORMATS, PARTS, open_pack
from packer._formats.contract import Locations
from packer._formats.reader import (
    MANIFEST_FILE,
    Reader,
    holds_manifest,
    read_manifest,
    require_distinct,
    table_from,
    write_manifest,
)
from packer._manifest import Manifest
from packer._storage.files import AppendFile, remove, replacing, sync_directory, writing_to
from packer._storage.packfile import NOWHERE, PackFile
from packer._storage.place import LocalPlace, Place
from packer._storage.safe_open import NO_LINK, TOO_MANY_OPEN, StrangeFileError, folded, open_regular, path_problem
from packer._table import COLUMNS, Buffer, Ints, Table, blocks
from packer.errors import CorruptPackError, PackError, PackNotFoundError, UnsupportedVersionError, printable

_OPEN_FILES = 256


class SpreadReader(Reader):
    """Base class of readers for packs that have samples in several files, and the table in another file.

    The files with samples are numbered, and the table's offsets are positions in the concatenated data of all these
    files. A file is opened when one of its samples is read. The number of open files is bounded, not counting those
    from which C reads a batch. A subclass calls `_spread` in its `_open`, and usually `_open_table`.
    """

    _table_file: PackFile
    _starts: Ints

    def _spread(self, sizes: Sequence[int] | Ints) -> None:
        """Set the size of the data in each file, in bytes."""
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._opened: dict[int, tuple[PackFile, int]] = {}
        self._closed = False

    @abc.abstractmethod
    def _data_name(self, number: int) -> str:
        """Return the path, relative to the pack, of file `number` of those that contain samples."""

    @abc.abstractmethod
    def _open_data_file(self, number: int) -> tuple[PackFile, int]:
        """Open a file with samples; return the file, and the offset of the data in it."""

    def _data_names(self) -> list[str]:
        """Return the paths, relative to the pack, of all files with samples."""
        return [self._data_name(number) for number in range(len(self._starts) - 1)]

    @classmethod
    def shows_mark(cls, place: Place) -> bool:
        return holds_manifest(place)

    def _open_table(self, file: PackFile, manifest: Manifest, names: int) -> tuple[int, Table]:
        """Return the number of rows of the table in a file, and the table; `names` is the size of all names in bytes.

        Raises
        ------
        CorruptPackError
            If the file is not as long as its columns.
        """
        self._table_file, types = file, manifest.column_types
        of_a_row = sum(np.dtype(dtype).itemsize for name, dtype in types.items() if name != "names")
        rows, rest = divmod(file.size - names, of_a_row)
        if min(names, rows) < 0 or rest:
            raise CorruptPackError("it is not as long as the manifest says", file.path)
        file.keep_together([(0, file.size)])
        starts = column_offsets(rows, types)
        columns = {name: (at, names if name == "names" else rows, types[name]) for name, at in starts.items()}
        return rows, table_from(file.vectors(columns), manifest, self.path)

    def _fetch(self, offset: int, size: int) -> Buffer:
        number = int(np.searchsorted(self._starts, offset, side="right")) - 1
        if not (0 <= number < len(self._starts) - 1 and 0 <= size <= self._starts[number + 1] - offset):
            raise CorruptPackError("its row points outside the data", self.path)
        file, begin = self._data_file(number)
        return file.read(begin + offset - int(self._starts[number]), size)

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        numbers = np.searchsorted(self._starts, offset, side="right") - 1
        inside = (numbers >= 0) & (numbers < len(self._starts) - 1) & (size >= 0)
        numbers[~inside] = 0
        within = offset - self._starts[numbers]
        files, positions, held = np.full(len(offset), NOWHERE), np.zeros(len(offset), np.int64), []
        for number in np.unique(numbers[inside]).tolist():
            chosen = inside & (numbers == number) & (size <= self._starts[number + 1] - offset)
            try:
                file, begin = self._data_file(number)
            except PackError:  # reading says of which sample
                continue
            if not 0 <= begin <= file.size:
                continue
            files[chosen], positions[chosen], descriptor = file.locate(begin + within[chosen], size[chosen])
            held.append(descriptor)
        return Locations(files, positions, held)

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        numbers = np.searchsorted(self._starts, offset, side="right") - 1
        for number in dict.fromkeys(numbers.tolist()):
            here = (numbers == number) & (size >= 0)
            if not 0 <= number < len(self._starts) - 1:
                continue
            try:
                file, begin = self._data_file(number)
            except PackError:  # reading says of which sample
                continue
            within = begin + offset[here] - int(self._starts[number])
            file.ahead(zip(within.tolist(), size[here].tolist(), strict=True), urgent=urgent)

    def data_files(self) -> list[tuple[str, int, int]]:
        sizes = np.diff(self._starts).tolist()
        return [(self._data_name(number), self._open_data_file(number)[1], size) for number, size in enumerate(sizes)]

    def require_distinct_files(self) -> None:
        def files() -> Iterator[tuple[str, PackFile]]:
            for number in range(len(self._starts) - 1):
                with contextlib.suppress(CorruptPackError):  # reading raises the error for each sample of the file
                    file, _ = self._open_data_file(number)
                    yield file.path, file

        require_distinct(files())

    def require_table(self) -> None:
        self._table_file.require_whole()

    def close(self) -> None:
        self._table_file.close()
        self._closed = True
        for file, _ in list(self._opened.values()):
            file.close()

    def _data_file(self, number: int) -> tuple[PackFile, int]:
        """Return an open file with samples, and the offset of its data.

        The method takes no lock, because a fork on another thread could leave a lock locked for ever; at worst, a file
        is opened twice. A file that is dropped from `_opened` is closed after its last pending read.
        """
        if self._closed:
            raise ValueError(f"{printable(self.path)}: is closed")
        found = self._opened.get(number)
        if found is None:
            found = self._open_within_limit(number)
            if len(self._opened) >= _OPEN_FILES:
                self._opened = {}
            self._opened[number] = found
        return found

    def _open_within_limit(self, number: int) -> tuple[PackFile, int]:
        """Open a file; if the process has reached its limit on open files, close the others first."""
        try:
            return self._open_data_file(number)
        except PackError as error:
            full = isinstance(error.__cause__, OSError) and error.__cause__.errno in TOO_MANY_OPEN
            if not full or not self._opened:
                raise
        self._opened = {}
        return self._open_data_file(number)


TABLE_FILE = "table.bin"

_APPENDED_TABLE = re.compile(r"table-[0-9]{5,9}\.bin")
_ALIKE = ("format", "codec", "classes", "label_type", "fields", "settings")


def join_parts(
    directory: Path, parts: Sequence[str], source: Mapping[str, Any], place: Place | None = None
) -> Manifest:
    """Join several packs: write the table and then the manifest into a directory, and sync both.

    Parameters
    ----------
    directory : Path
    parts : sequence of str
        The names of the packs, in the order of their samples.
    source : mapping
        The source of the joined pack, for its manifest.
    place : Place, optional
        The location of the packs; by default the directory.

    Raises
    ------
    CorruptPackError
        If a part differs from the others in a property that all parts must share, or its table does not match its
        checksums.
    """
    alike, place = (*_ALIKE, "versions"), place or LocalPlace(directory)
    manifest = _joined(place, parts, source, directory / TABLE_FILE, alike)
    write_manifest(directory, manifest)
    return manifest


def append_part(directory: Path, whole: Manifest, part: str, source: Mapping[str, Any]) -> Manifest:
    """Append a pack, already in the directory of a joined pack, as the last part; return the new manifest.

    No existing file changes except the manifest, which is replaced atomically when everything else is on disk. Readers
    that opened the old manifest can continue, because the old table stays until the next part is appended. Two
    processes must not append at the same time.

    Parameters
    ----------
    directory : Path
    whole : Manifest
        The current manifest of the joined pack.
    part : str
        The name of the pack.
    source : mapping
        The source of the extended pack, for its manifest.

    Raises
    ------
    CorruptPackError
        For the same reasons as `join_parts`, except that the versions of libraries may differ.
    """
    parts = [*(str(name) for name, *_ in whole.parts), part]
    for entry in os.listdir(directory):  # older tables, and files of a process that died
        unfinished = entry.startswith(f"{MANIFEST_FILE}.") and entry.endswith(".partial")
        if unfinished or (_APPENDED_TABLE.fullmatch(entry) and entry != whole.layout.get("table")):
            remove(directory / entry)
    table = f"table-{len(parts):05d}.bin"
    manifest = _joined(LocalPlace(directory), parts, source, directory / table, _ALIKE)
    # An older version of packer must not take the old table for that of the new whole.
    manifest = replace(manifest, layout={**manifest.layout, "table": table}, schema=max(2, manifest.schema))
    sync_directory(directory)
    with replacing(directory / MANIFEST_FILE) as file:
        file.append(manifest.to_json())
    return manifest


def _joined(
    place: Place, parts: Sequence[str], source: Mapping[str, Any], table: Path, alike: Sequence[str]
) -> Manifest:
    """Write the joined table of several packs; return the manifest of the whole.

    The manifests of the packs must agree in the members `alike`.
    """
    manifests: list[Manifest] = []
    names: list[int] = []  # bytes, of each part
    data: list[int] = []
    files: list[list[Any]] = []
    for part in parts:
        with open_pack(place.join(part)) as reader:
            manifests.append(_of_the_same_kind(reader, manifests, alike))
            names.append(len(reader.table.names))
            found = reader.data_files()
            sizes = reader.place.files([path for path, _, _ in found])
        data.append(sum(size for _, _, size in found))
        files += [[f"{part}/{path}" if path else part, sizes[path].size, begin, size] for path, begin, size in found]

    def tables() -> Iterator[tuple[Table, int, int]]:
        for number, part in enumerate(parts):
            with open_pack(place.join(part)) as reader:
                _require_columns(reader)
                yield reader.table, sum(data[:number]), sum(names[:number])

    count = sum(manifest.count for manifest in manifests)
    columns = write_table(table, count, sum(names), tables(), Manifest.united(manifests).column_types)
    listed = [[part, own.count, own.identity()] for part, own in zip(parts, manifests, strict=True)]
    layout = {"names": sum(names), "parts": listed, "files": files}
    return replace(Manifest.united(manifests), source=dict(source), columns=columns, layout=layout)


def write_table(
    path: Path,
    count: int,
    names: int,
    tables: Iterable[tuple[Table, int, int]],
    types: Mapping[str, str] = COLUMNS,
) -> dict[str, int]:
    """Write several tables as one, a block of rows at a time; return the checksums of its columns.

    Parameters
    ----------
    path : Path
    count : int
        The number of rows of all tables together.
    names : int
        The size of all names together, in bytes.
    tables : iterable of (Table, int, int)
        Each table; then the size of the data, and the size of the names, of all tables before it, in bytes.
    types : mapping
        The columns of the tables and their dtypes.
    """
    offsets = column_offsets(count, types)
    checksums = dict.fromkeys(types, 0)
    size = offsets["names"] + names
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK
    with writing_to(path), open(open_regular(path, flags=flags), "wb") as empty:
        empty.truncate(size)
    with contextlib.closing(AppendFile(path, keep=size)) as file:
        for table, *before in tables:
            for name in types:
                for values in _shifted(table, name, *before):
                    block = values.tobytes()
                    file.write_at(offsets[name], block)
                    offsets[name] += len(block)
                    checksums[name] = google_crc32c.extend(checksums[name], block)
        file.sync()
    return checksums


def _of_the_same_kind(reader: Reader, before: Sequence[Manifest], alike: Sequence[str]) -> Manifest:
    """Return the manifest of a part, after comparing it with the manifests of earlier parts."""
    if not before:
        return reader.manifest
    for member in alike:
        if getattr(reader.manifest, member) != getattr(before[0], member):
            raise CorruptPackError(f"differs from the part before it in its {member}", reader.path)
    return replace(reader.manifest, classes=before[0].classes)  # one list in memory, however many parts


def _require_columns(reader: Reader) -> None:
    for column in reader.table.column_names():
        reader.require_column(column)


def _shifted(table: Table, column: str, data: int, names: int) -> Iterator[npt.NDArray[Any]]:
    """Yield a column of a part, block by block; offsets grow by the size of the data, or names, before the part."""
    shift = {"offset": data, "name_end": names}.get(column)
    for block in blocks(table.column(column)):
        yield block if shift is None else block + shift


def column_offsets(rows: int, types: Mapping[str, str]) -> dict[str, int]:
    """Return the offset of each column in the file: without gaps, and each a multiple of its element size.

    The names come last, because their length differs from that of the other columns.
    """
    sizes = {name: np.dtype(dtype).itemsize for name, dtype in types.items()}
    order = sorted(types, key=lambda name: (name == "names", -sizes[name]))
    starts = itertools.accumulate((rows * sizes[name] for name in order), initial=0)
    return dict(zip(order, starts, strict=False))


class _ListedFile(NamedTuple):
    """A file with samples, as the manifest lists it: path in the pack, size, and offset and size of the data in it."""

    path: str
    size: int
    begin: int
    data: int


class PartsReader(SpreadReader):
    """Reads the joined table, and through it the samples in the files of the parts."""

    def _open(self) -> tuple[Manifest, Table]:
        manifest = read_manifest(self.place)
        try:
            names = int(manifest.layout["names"])
            self._parts = [(str(part), int(count), str(seal)) for part, count, seal in manifest.layout["parts"]]
            files = [
                _ListedFile(str(path), int(size), int(begin), int(data))
                for path, size, begin, data in manifest.layout["files"]
            ]
            self._table_name = str(manifest.layout.get("table", TABLE_FILE))
            if self._table_name != TABLE_FILE and not _APPENDED_TABLE.fullmatch(self._table_name):
                raise ValueError(f"{printable(self._table_name)} is not the name of a table")
            _require_plain([part for part, _, _ in self._parts], files)
            self._files = files
            self._spread([file.data for file in files])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise CorruptPackError(f"the manifest does not list the parts: {error}", self.path) from error
        rows, table = self._open_table(self.place.open(self._table_name), manifest, names)
        counts = [count for _, count, _ in self._parts]
        if sum(counts) != rows or min(counts, default=0) < 0:
            raise CorruptPackError(
                f"the numbers of samples in its parts do not add up to the {rows} samples in its table", self.path
            )
        return manifest, table

    def file_names(self) -> list[str]:
        data = self._data_names()
        listed = set(data)
        folders = [part for part, _, _ in self._parts if part not in listed]  # the other parts are single files
        sidecars = FORMATS[self.manifest.format].files if self.manifest.format in FORMATS else ()
        inner = [f"{folder}/{name}" for folder in folders for name in sidecars]
        return list(dict.fromkeys([*PARTS.files, self._table_name, *inner, *data]))

    def _data_name(self, number: int) -> str:
        return self._files[number].path

    def _open_data_file(self, number: int) -> tuple[PackFile, int]:
        listed = self._files[number]
        file = self.place.open(listed.path)
        if file.size != listed.size:
            raise CorruptPackError(
                f"it has {file.size} bytes, but had {listed.size} when the parts were joined", file.path
            )
        return file, listed.begin

    def _begins(self) -> dict[str, int]:
        """Return the offset of each part's data in the joined data; parts without files are left out."""
        found: dict[str, int] = {}
        for file, start in zip(self._files, self._starts.tolist(), strict=False):
            found.setdefault(file.path.partition("/")[0], start)
        return found

    def check_structure(self) -> Iterable[str]:
        """Compare the joined table with the tables of the parts, and check the structure of each part."""
        first, begins = 0, self._begins()
        for part, count, identity in self._parts:
            rows = range(first, first + count)
            try:
                yield from (
                    f"{part}: {reason}" for reason in self._check_part(part, rows, begins.get(part, 0), identity)
                )
            except (CorruptPackError, PackNotFoundError, UnsupportedVersionError) as error:  # but not a disk's errors
                yield f"{part}: {getattr(error, 'reason', error)}"
            first += count

    def _check_part(self, part: str, rows: range, data: int, identity: str) -> Iterator[str]:
        """Yield the defects of a part.

        The part's table is compared with `rows` of the joined table, and its structure is checked. `data` is the offset
        of the part's data in the joined data.
        """
        names = int(self.table.name_end[rows.start - 1]) if rows.start else 0
        try:
            self.place.require_no_link(part)
        except StrangeFileError as error:
            yield str(error.strerror)
            return
        with open_pack(self.place.join(part)) as reader:
            if isinstance(reader, PartsReader):  # perhaps this very pack, through a link
                yield "it is itself a pack with parts, which cannot be a part"
                return
            if reader.manifest.identity() != identity:
                yield "it is not the pack that was joined"
            _require_columns(reader)
            if set(reader.table.column_names()) != set(self.table.column_names()):
                yield "its fields differ from those of the joined pack"
                return
            for column in self.table.column_names():
                own = self.table.column(column)
                start = names if column == "names" else rows.start
                for values in _shifted(reader.table, column, data, names):
                    if not np.array_equal(own[start : start + len(values)], values):
                        yield f"its column {column!r} differs from the table of the joined pack"
                        break
                    start += len(values)
            yield from reader.check_structure()


def _require_plain(parts: Sequence[str], files: Sequence[_ListedFile]) -> None:
    """Raise ValueError if a manifest repeats a part or a file, or lists a file outside of the parts.

    Two names count as equal if a file system may treat them as equal.
    """
    paths = [file.path for file in files]
    for path in [*parts, *paths]:
        if problem := path_problem(path):
            raise ValueError(f"{printable(path)}: {problem}")
    for listed in (parts, paths):
        twice = [name for name, count in Counter(map(folded, listed)).items() if count > 1]
        if twice:
            raise ValueError(f"{printable(twice[0])} is listed more than once")
    known = set(parts)
    for path, size, begin, data in files:
        if path.partition("/")[0] not in known:
            raise ValueError(f"{printable(path)} is not in any part")
        if not (0 <= begin <= size and 0 <= data <= size - begin):
            raise ValueError(f"{printable(path)} has {size} bytes, but its data would be at {begin} to {begin + data}")
