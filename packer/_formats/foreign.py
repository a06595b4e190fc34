"""Packs that another tool can read: files as that tool writes them, and packer's own index.

A pack is a directory with the other tool's files and a directory ``.packer.index``. The latter is an index as specified
in `packer._formats.index`, in which all paths are relative to the pack. Each format is a subclass of `ForeignWriter`:
the subclass writes the tool's files, and this module writes the index. `ShardWriter` is for formats that store samples
one after the other in shards. The subclass frames each sample; this module appends the frames to shards, and continues
after an interruption. A shard may have an index in the other tool's form, and a header that is written when the shard
is complete.

For each file, one checksum covers all bytes between the samples, such as headers. packer does not need these bytes to
read samples, but other tools do.
"""

from __future__ import annotations

import abc
import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import google_crc32c
import numpy as np

from packer._fields import KINDS, Field, Stored
from packer._formats.contract import AGAIN, NOTHING, Contents, Frame, GrowingFiles, Placed, Writer, not_of_journal
from packer._formats.index import DATA_FILE, INDEX_DIRECTORY, IndexReader, file_columns, write_files
from packer._manifest import Manifest
from packer._storage.files import AppendFile, Spool, remove, writing_to
from packer._storage.packfile import PackFile
from packer._storage.stamps import ANY_TIME
from packer._table import Ints, Names, Sample, Table, column_checksum, encode_name
from packer.errors import CorruptPackError, DestinationError, DestinationOptionError, PackError

COPIED_FROM = 1 << 60
"""The offset of the first byte of the index's own data. It is fixed, because the files still grow when it is needed."""

MAX_SHARD_SIZE = 1 << 60
_MOST_OPEN = 64  # files


class ShardEntry(NamedTuple):
    """A complete file of the pack, as packer's index lists it.

    Attributes
    ----------
    name : str
    size : int
    framing : int
        The checksum of those bytes in the file that belong to no sample.
    samples : int
        The number of samples that begin in the file.
    """

    name: str
    size: int
    framing: int
    samples: int = 0


class ForeignWriter(Writer):
    """Base of writers for other tools' formats: writes packer's index, and the bytes that are copied into it.

    `shard_size` limits the size of a file with samples, in bytes.
    """

    apart = True

    def __init__(self, path: Path, shard_size: int, written: Table, contents: Contents) -> None:
        self._path, self._contents = path, contents
        self._shard_size = shard_size
        self._blob_fields = {one.name: number for number, one in enumerate(f for f in contents.fields if f.is_blob)}
        self._index = path / INDEX_DIRECTORY
        self._files = GrowingFiles(self._index, path)
        self._others: list[ShardEntry] | None = None  # once all samples are written
        self._names = int(written.name_end[-1]) if len(written) else 0  # bytes
        self._copied = 0  # bytes
        with writing_to(path):
            self._index.mkdir(parents=True, exist_ok=True)

    @abc.abstractmethod
    def complete(self) -> list[ShardEntry]:
        """Complete the files with samples, then the tool's indexes; return the entries of all files in this order."""

    def sidecar_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of further files; by default ``classes.txt``, with one class name on each line."""
        classes = self._contents.classes
        if classes and not any("\n" in name or "\r" in name for name in classes):
            yield "classes.txt", b"".join(encode_name(name) + b"\n" for name in classes)

    def new_frame(self) -> Frame:
        """Return an empty frame for a sample."""
        return Frame(len(self._blob_fields))

    def copy_blobs(self, frame: Frame, sample: Sample) -> None:
        """Copy the blobs of a sample into the index, for a format that does not store blobs itself."""
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is not None and not isinstance(stored, (int, float)):
                frame.copy_blob(self._blob_fields[one.name], stored)

    def flush(self) -> None:
        self._files.flush()

    def sync(self) -> None:
        self._files.sync()

    def layout(self) -> dict[str, Any]:
        listed, columns = self._listed(), self._file_columns()
        return {
            "shard_size": self._shard_size,
            "names": self._names,
            "apart": True,
            "checksums": True,
            "base": "..",
            "files": len(listed),
            "file_names": len(columns[-1]),
            "file_columns": [column_checksum(column) for column in columns],
            "data": self._copied,
            **({"data_at": COPIED_FROM} if self._copied else {}),
            "framing": [file.framing for file in listed],
        }

    def commit(self, manifest: Manifest, table: Table) -> None:
        columns = self._file_columns()  # which completes the files
        self.flush()
        self.sync()
        write_files(self._index, manifest, table, columns)

    def close(self) -> None:
        self._files.close()

    def _open_copies(self, keep: Collection[str]) -> None:
        """Open the file of copied bytes, truncated to those of earlier rows; remove all other files except `keep`."""
        self._copies = AppendFile(self._index / DATA_FILE, keep=self._copied)
        self._files.grow(self._copies)
        own = {self._index, self._index / DATA_FILE, *(self._path / name for name in keep)}
        own |= {path.parent for path in own}
        for directory in sorted(path for path in own if os.path.isdir(path) and path.is_relative_to(self._path)):
            for stale in {directory / name for name in os.listdir(directory)} - own:
                remove(stale)

    def _open(self, name: str, keep: int = 0) -> AppendFile:
        path = self._path / name
        with writing_to(path):
            path.parent.mkdir(exist_ok=True)
        return AppendFile(path, keep=keep, cached=self._contents.cached)

    def _write(self, name: str, pieces: Iterable[bytes]) -> ShardEntry:
        """Write a whole file that contains no sample."""
        file, checksum = self._open(name), 0
        for piece in pieces:
            file.append(piece)
            checksum = google_crc32c.extend(checksum, piece)
        self._files.finish(file)
        return ShardEntry(name, file.size, checksum)

    def _listed(self) -> list[ShardEntry]:
        """Complete all files that the other tool reads, and return them, files with samples first."""
        complete = self.complete()
        if self._others is None:
            self._others = []
            for name, text in self.sidecar_files():
                self._others.append(self._write(name, [text]))
                if not len(self._others) % _MOST_OPEN:
                    self.flush()
                    self.sync()
        return [*complete, *self._others]

    def _file_columns(self) -> list[Any]:
        listed = self._listed()
        stamps = np.array([(file.size, ANY_TIME) for file in listed], np.int64)
        return file_columns(Names.of(file.name for file in listed), stamps)


def one_file(suffix: str, options: Mapping[str, Any]) -> None:
    """Raise DestinationOptionError if `options` limit the size of shards, because the format writes a single file."""
    if options.keys() - {"shard_size"} or options.get("shard_size", MAX_SHARD_SIZE) != MAX_SHARD_SIZE:
        raise DestinationOptionError(f"a {suffix} pack is one file, so it has no shard size")


_PIECE = 1 << 20


def framing_checksum(file: PackFile, ranges: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32C of the bytes of a file outside of some ranges.

    Parameters
    ----------
    file : PackFile
    ranges : iterable of (int, int)
        Begin and end of each range, ascending.
    """
    checksum = at = 0
    for begin, end in [*ranges, (file.size, file.size)]:
        while at < min(begin, file.size):
            piece = file.read(at, min(_PIECE, begin - at, file.size - at))
            checksum = google_crc32c.extend(checksum, piece)
            at += len(piece)
        at = max(at, end)
    return checksum


def joined_checksum(first: int, second: int, size: int) -> int:
    """Return the CRC-32C of a concatenation: bytes with checksum `first`, then `size` bytes with checksum `second`."""
    if not first:  # of no bytes
        return second
    zeros = 0
    for at in range(0, size, _PIECE):  # a CRC is linear: the earlier bytes add their CRC, continued over zeros
        piece = bytes(min(_PIECE, size - at))
        first, zeros = google_crc32c.extend(first, piece), google_crc32c.extend(zeros, piece)
    return first ^ zeros ^ second


def lying_in(table: Table, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the ranges of images and blobs that begin between `start` and `stop`, relative to `start`."""
    begins, ends = list[Ints](), list[Ints]()
    for offset, size in _places(table):
        inside = (offset >= start) & (offset < stop) & (size > 0)
        begins.append(offset[inside] - start)
        ends.append(begins[-1] + size[inside])
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(begin, kind="stable")
    return list(zip(begin[order].tolist(), end[order].tolist(), strict=True))


def end_of(table: Table, rows: int, start: int) -> int:
    """Return the offset at which the last image or blob of the first `rows` rows ends; at least `start`."""
    ends = [start]
    for offset, size in _places(table):
        inside = (offset[:rows] >= start) & (size[:rows] > 0)
        ends.append(int((offset[:rows] + size[:rows])[inside].max(initial=start)))
    return max(ends)


def _places(table: Table) -> Iterator[tuple[Ints, Ints]]:
    """Yield offsets and sizes of the images, then those of the blobs of each field."""
    yield table.offset, table.size
    for name, offset in table.more.items():
        if name.endswith(".offset"):
            yield offset, table.more[f"{name.removesuffix('.offset')}.size"]


def stored_value(written: Table, one: Field, index: int, read: Callable[[int, int], bytes]) -> Stored:
    """Return the stored value of a field in one row of the table."""
    row = [written.more[column][index] for column in one.columns()]
    if KINDS[one.kind].missing(row):
        return None
    value: int | float = row[0].item()
    return read(int(written.more[f"field.{one.name}.offset"][index]), int(value)) if one.is_blob else value


class FramedReader(IndexReader):
    """Reads a pack in another tool's format, through packer's index in the pack."""

    def check_structure(self) -> Iterable[str]:
        """Compare the files with the index's list, and the bytes between samples with the recorded checksums."""
        damaged = False
        for problem in super().check_structure():
            damaged = True
            yield problem
        framing = self.manifest.layout.get("framing")
        starts = self._starts.tolist()
        if not isinstance(framing, list) or len(framing) != len(starts) - 2:
            yield "the manifest does not contain a checksum for each file"
        elif not damaged:
            for number, expected in enumerate(framing):
                yield from self._check_framing(number, expected, starts[number], starts[number + 1])

    def _check_framing(self, number: int, expected: object, start: int, stop: int) -> Iterable[str]:
        name = self._data_name(number)
        try:
            file, _ = self._open_data_file(number)
            with file:
                if framing_checksum(file, lying_in(self.table, start, stop)) != expected:
                    yield (
                        f"{name}: the bytes between the samples do not match their checksum, and other tools read "
                        "these bytes"
                    )
        except CorruptPackError as error:
            yield f"{name}: {error.reason}"


DEFAULT_SHARD_SIZE = 512 << 20


@dataclass
class _Shard:
    """The shard being written.

    `framing` is the checksum of the bytes between samples, without the shard's head; `framed` is the number of these
    bytes.
    """

    lines: Spool
    size: int
    count: int = 0
    framing: int = 0
    framed: int = 0
    file: AppendFile | None = field(default=None, repr=False)

    def take(self, frame: Frame, gap: bytes, line: bytes) -> None:
        self.size += len(gap) + frame.size
        self.count += 1
        self.lines.append(line)
        self.frame(gap, *frame.framing)

    def frame(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.framing = google_crc32c.extend(self.framing, piece)
            self.framed += len(piece)


class ShardWriter(ForeignWriter):
    """Base of writers for formats with shards: appends the frames of samples to successive shards.

    Options: ``shard_size``, the size limit of a shard in bytes; a larger sample gets its own shard.

    An interrupted conversion continues after the last row. All shards before the one that contains this row are
    complete on the disk. The samples of this shard are read back and framed again, to compute their entries in the
    shard's index.
    """

    shard_name: ClassVar[str]
    """The name of a shard, with a placeholder for its number."""

    index_name: ClassVar[str] = ""
    """The name of a shard's index; empty if shards have none."""

    shard_sizes: ClassVar[tuple[int, int]] = DEFAULT_SHARD_SIZE, MAX_SHARD_SIZE
    """The default size limit of a shard after its head, in bytes, and the largest value of the option."""

    head_size: int = 0
    """Number of bytes before the first frame of a shard; must be known before `__init__` of this class."""

    most_samples: int = sys.maxsize
    """The largest number of samples in a shard; must be known as early as `head_size`."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self.check_options(options)
        super().__init__(path, int(options.get("shard_size", self.shard_sizes[0])), written, contents)
        self._shards: list[ShardEntry] = []
        self._indexes: list[ShardEntry] = []
        self._shard: _Shard | None = None
        self._start = 0  # of the open shard, in the data of all
        self._resume(written)
        shards = len(self._shards) + (self._shard is not None)
        names = {self.shard_name.format(number) for number in range(shards)}
        self._open_copies(names | {file.name for file in self._indexes})

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        default, most = cls.shard_sizes
        size = options.get("shard_size", default)
        if not 1 <= size <= most:
            raise DestinationOptionError(f"a shard must have 1 to {most} bytes, not {size}")

    @abc.abstractmethod
    def frame(self, sample: Sample) -> Frame:
        """Return the frame of a sample, which may depend only on the sample and on what all samples share."""

    def gap(self) -> bytes:
        """Return the bytes between the previous frame of a shard and the next one."""
        return b""

    def index_line(self, frame: Frame, at: int) -> bytes:
        """Return the entry for `frame` in the shard's index or head; the frame begins at byte `at` of the shard.

        Called once for each frame, in the order of the frames.
        """
        return b""

    def index_head(self, count: int) -> bytes:
        """Return the beginning of the index of a shard with this number of samples."""
        return b""

    def head(self, lines: bytes, size: int) -> bytes:
        """Return a shard's head, `head_size` bytes before the first frame; `lines` are all lines of its index."""
        return b""

    def trailer(self, size: int, *, last: bool) -> bytes:
        """Return the bytes after the last frame of a shard of this size; `last` marks the last shard."""
        return b""

    def append(self, sample: Sample) -> Placed:
        frame, gap = self.frame(sample), self._gap(self._shard)
        if self._shard is None or not self._has_room(self._shard, len(gap) + frame.size):
            self._finish_shard(last=False)
            self._open_shard(self._new_shard())
            gap = b""
        assert self._shard is not None
        assert self._shard.file is not None
        placed = self._place(frame, gap, self._shard)
        self._shard.file.append(gap, *frame.pieces)
        self._copies.append(*frame.copies)
        self._names += len(encode_name(sample.name))
        return placed

    def complete(self) -> list[ShardEntry]:
        if self._shard is None and not self._shards:
            self._open_shard(self._new_shard())  # an empty shard, so that the other tool finds a valid data set
        self._finish_shard(last=True)
        return [*self._shards, *self._indexes]

    def close(self) -> None:
        super().close()
        if self._shard is not None:
            self._shard.lines.close()

    def _new_shard(self) -> _Shard:
        return _Shard(Spool(self._path.parent), self.head_size)

    def _has_room(self, shard: _Shard, size: int) -> bool:
        fits = shard.size - self.head_size + size <= self._shard_size and shard.count < self.most_samples
        return fits or not shard.count

    def _gap(self, shard: _Shard | None) -> bytes:
        return self.gap() if shard is not None and shard.count else b""

    def _place(self, frame: Frame, gap: bytes, shard: _Shard) -> Placed:
        """Assign a frame to a shard; return the offsets of its image and blobs in the data of all shards."""
        at = shard.size + len(gap)
        begin, copied = self._start + at, COPIED_FROM + self._copied
        shard.take(frame, gap, self.index_line(frame, at))
        self._copied += frame.copied

        def offset(at: int | None) -> int:
            return 0 if at is None else begin + at if at >= 0 else copied + ~at

        return Placed(offset(frame.image), tuple(map(offset, frame.blobs)))

    def _open_shard(self, shard: _Shard) -> None:
        """Open the file of a shard, which exists already if the shard has frames."""
        file = self._open(self.shard_name.format(len(self._shards)), shard.size if shard.count else 0)
        if not shard.count:
            file.append(bytes(self.head_size))  # until it is known
        self._files.grow(file)
        self._shard, shard.file = shard, file

    def _finish_shard(self, *, last: bool) -> None:
        if self._shard is None:
            return
        shard, number, trailer = self._shard, len(self._shards), self.trailer(self._shard.size, last=last)
        assert shard.file is not None
        shard.file.append(trailer)
        shard.frame(trailer)
        size, lines, head = shard.size + len(trailer), shard.lines.array(np.uint8), b""
        if self.head_size:
            head = self.head(lines.tobytes(), size)
            shard.file.write_at(0, head)
        self._files.finish(shard.file)
        framing = joined_checksum(google_crc32c.value(head), shard.framing, shard.framed)
        self._shards.append(ShardEntry(self.shard_name.format(number), size, framing, shard.count))
        if self.index_name:
            pieces = (lines[start : start + _PIECE].tobytes() for start in range(0, len(lines), _PIECE))
            index = itertools.chain([self.index_head(shard.count)], pieces)
            self._indexes.append(self._write(self.index_name.format(number), index))
        shard.lines.close()
        self._start += size
        self._shard = None

    def _resume(self, written: Table) -> None:
        """Find the shard that contains the last row, and frame the samples of that shard again."""
        if not len(written):
            return
        try:
            self._find_shards(written)
            shard = self._new_shard()
            rows = np.flatnonzero(written.offset >= self._start)
            self._copied = end_of(written, int(rows[0]), COPIED_FROM) - COPIED_FROM
            for row, sample in zip(rows.tolist(), self._read_back(written, rows.tolist()), strict=True):
                if self._place(self.frame(sample), self._gap(shard), shard).offset != int(written.offset[row]):
                    raise not_of_journal(self._path)
        except PackError as error:
            raise DestinationError(f"{error}. {AGAIN}") from error
        self._open_shard(shard)

    def _find_shards(self, written: Table) -> None:
        """List the complete shards, and find where the shard after them begins."""
        last = int(written.offset[written.offset < COPIED_FROM].max(initial=0))
        while True:
            number = len(self._shards)
            name = self.shard_name.format(number)
            with PackFile(self._path, name) as file:
                end = self._start + file.size
                if last < end:
                    return
                framing = framing_checksum(file, lying_in(written, self._start, end))
                samples = int(np.count_nonzero((written.offset >= self._start) & (written.offset < end)))
                self._shards.append(ShardEntry(name, file.size, framing, samples))
                self._start = end
            if self.index_name:
                with PackFile(self._path, self.index_name.format(number)) as file:
                    listed = ShardEntry(self.index_name.format(number), file.size, framing_checksum(file, []))
                self._indexes.append(listed)

    def _read_back(self, written: Table, rows: Iterable[int]) -> Iterator[Sample]:
        """Yield the samples of the given rows, read back from the last shard and from the file of copied bytes."""
        names, start = written.sample_names(), self._start
        shard = PackFile(self._path, self.shard_name.format(len(self._shards)))
        with shard, PackFile(self._index, DATA_FILE) as copies:

            def read(offset: int, size: int) -> bytes:
                return (
                    copies.read(offset - COPIED_FROM, size)
                    if offset >= COPIED_FROM
                    else shard.read(offset - start, size)
                )

            for index in rows:
                row = written.row(index)
                fields = tuple(stored_value(written, one, index, read) for one in self._contents.fields)
                data = read(row.offset, row.size)
                yield Sample(names[index], row.label, data, row.height, row.width, fields)
