"""Packs in the layout of another tool: files as that tool writes them, and packer's own index beside them.

A pack is a directory with shards, the index of each shard where the other tool knows one, and ``.packer.index``, an
index as `packer._formats.index` specifies it, whose base is the pack. A layout is a `ShardWriter`: it says how a sample
is framed, and this module places frames in shards, continues what was interrupted, and writes the index.

What is no sample's, such as the headers between the images, has a checksum for each file: packer reads none of it, but
other tools do.
"""

from __future__ import annotations

import abc
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import google_crc32c
import numpy as np

from packer._formats.contract import NOTHING, Contents, Placed, Writer
from packer._formats.frame import Frame
from packer._formats.framing import end_of, framing_checksum, joined_checksum, lying_in, stored_value
from packer._formats.growing import GrowingFiles
from packer._formats.index import DATA_FILE, INDEX_DIRECTORY, file_columns, write_files
from packer._manifest import Manifest
from packer._storage.files import AppendFile, remove, writing_to
from packer._storage.packfile import PackFile
from packer._storage.spool import Spool
from packer._storage.stamps import ANY_TIME
from packer._table import Names, Sample, Table, column_checksum, encode_name
from packer.errors import DestinationError, PackError, printable

__all__ = ["DEFAULT_SHARD_SIZE", "MAX_SHARD_SIZE", "ShardWriter"]

DEFAULT_SHARD_SIZE = 512 << 20
MAX_SHARD_SIZE = 1 << 60
_PIECE = 1 << 20
_MOST_OPEN = 64  # files
_AGAIN = "Start again with --fresh."
_COPIED_FROM = 1 << 60  # so that where a copy lies is known before the end of the files is


class _Listed(NamedTuple):
    """A complete file of the pack; `framing` is the checksum of what is no sample's in it."""

    name: str
    size: int
    framing: int


@dataclass
class _Shard:
    """The shard that grows; `framing` is the checksum of `framed` bytes that follow its head and are no sample's."""

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


class ShardWriter(Writer):
    """Fills one shard after the other with frames, and then writes the index of all of them.

    Options: ``shard_size``, the most bytes of a shard; a larger sample has a shard of its own.

    An interrupted pack continues after the last of its rows. The shards before that row's are complete, and as they
    are on the disk. The samples of its own shard are read back and framed again, which gives what is known of them.
    """

    apart = True

    shard_name: ClassVar[str]
    """The name of a shard, with a place for its number."""

    index_name: ClassVar[str] = ""
    """The name of its index; empty where the other tool knows none."""

    head_size: ClassVar[int] = 0
    """How many bytes stand before the first frame of a shard."""

    shard_sizes: ClassVar[tuple[int, int]] = DEFAULT_SHARD_SIZE, MAX_SHARD_SIZE
    """The most bytes of a shard where nobody chose them, and the most that may be chosen."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self.check_options(options)
        self._path, self._contents = path, contents
        self._shard_size = int(options.get("shard_size", self.shard_sizes[0]))
        self._blob_fields = {one.name: number for number, one in enumerate(f for f in contents.fields if f.is_blob)}
        self._index = path / INDEX_DIRECTORY
        self._files = GrowingFiles(self._index, path)
        self._shards: list[_Listed] = []
        self._indexes: list[_Listed] = []
        self._others: list[_Listed] | None = None  # once all samples are written
        self._shard: _Shard | None = None
        self._start = 0  # of the open shard, in the data of all
        self._names = int(written.name_end[-1]) if len(written) else 0  # bytes
        self._copied = 0  # bytes
        with writing_to(path):
            self._index.mkdir(parents=True, exist_ok=True)
        self._resume(written)
        self._copies = AppendFile(self._index / DATA_FILE, keep=self._copied)
        self._files.grow(self._copies)
        self._remove_stale()

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        default, most = cls.shard_sizes
        size = options.get("shard_size", default)
        if not 1 <= size <= most:
            raise DestinationError(f"a shard has 1 to {most} bytes, not {size}")

    @abc.abstractmethod
    def frame(self, sample: Sample) -> Frame:
        """Return what a sample becomes, by nothing but the sample and what holds of all."""

    def gap(self) -> bytes:
        """Return what stands before the next frame of a shard that has some already."""
        return b""

    def index_line(self, frame: Frame, at: int) -> bytes:
        """Return what the shard's index says of the last `frame`, which begins at byte `at`; asked for once of each."""
        return b""

    def index_head(self, count: int) -> bytes:
        """Return what the index of a shard with so many samples begins with."""
        return b""

    def trailer(self, size: int, *, last: bool) -> bytes:
        """Return what follows the last frame of a shard that has so many bytes; `last` is the last shard."""
        return b""

    def head(self, size: int) -> bytes:
        """Return the `head_size` bytes before the first frame of a shard that has so many bytes in all."""
        return b""

    def beside(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and bytes of the layout's other files: ``classes.txt``, where each class's name is a line."""
        classes = self._contents.classes
        if classes and not any("\n" in name or "\r" in name for name in classes):
            yield "classes.txt", b"".join(encode_name(name) + b"\n" for name in classes)

    def append(self, sample: Sample) -> Placed:
        frame, gap = self.frame(sample), self._gap(self._shard)
        end = 0 if self._shard is None else self._shard.size - self.head_size + len(gap) + frame.size
        if self._shard is None or (self._shard.count and end > self._shard_size):
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
            **({"data_at": _COPIED_FROM} if self._copied else {}),
            "framing": [file.framing for file in listed],
        }

    def commit(self, manifest: Manifest, table: Table) -> None:
        columns = self._file_columns()  # which completes the shards
        self.flush()
        self.sync()
        write_files(self._index, manifest, table, columns)

    def close(self) -> None:
        self._files.close()
        if self._shard is not None:
            self._shard.lines.close()

    def _gap(self, shard: _Shard | None) -> bytes:
        return self.gap() if shard is not None and shard.count else b""

    def _place(self, frame: Frame, gap: bytes, shard: _Shard) -> Placed:
        """Count a frame into a shard; return where its image and its blobs lie in the data of all shards."""
        at = shard.size + len(gap)
        begin, copied = self._start + at, _COPIED_FROM + self._copied
        shard.take(frame, gap, self.index_line(frame, at))
        self._copied += frame.copied

        def offset(place: int | None) -> int:
            return 0 if place is None else begin + place if place >= 0 else copied + ~place

        return Placed(offset(frame.image), tuple(map(offset, frame.blobs)))

    def _new_shard(self) -> _Shard:
        return _Shard(Spool(self._path.parent), self.head_size)

    def _open_shard(self, shard: _Shard) -> None:
        """Open the file of a shard, which lies there already where the shard has frames."""
        file = self._open(self.shard_name.format(len(self._shards)), shard.size if shard.count else 0)
        if not shard.count:
            file.append(bytes(self.head_size))
        self._files.grow(file)
        self._shard, shard.file = shard, file

    def _finish_shard(self, *, last: bool) -> None:
        if self._shard is None:
            return
        shard, number, trailer = self._shard, len(self._shards), self.trailer(self._shard.size, last=last)
        assert shard.file is not None
        shard.file.append(trailer)
        shard.frame(trailer)
        size = shard.size + len(trailer)
        if head := self.head(size):
            shard.file.write_at(0, head)
        self._files.finish(shard.file)
        framing = joined_checksum(google_crc32c.value(head), shard.framing, shard.framed)
        self._shards.append(_Listed(self.shard_name.format(number), size, framing))
        if self.index_name:
            lines = shard.lines.array(np.uint8)
            pieces = (lines[start : start + _PIECE].tobytes() for start in range(0, len(lines), _PIECE))
            index = itertools.chain([self.index_head(shard.count)], pieces)
            self._indexes.append(self._write(self.index_name.format(number), index))
        shard.lines.close()
        self._start += size
        self._shard = None

    def _open(self, name: str, keep: int = 0) -> AppendFile:
        path = self._path / name
        with writing_to(path):
            path.parent.mkdir(exist_ok=True)
        return AppendFile(path, keep=keep)

    def _write(self, name: str, pieces: Iterable[bytes]) -> _Listed:
        """Write a whole file that has nothing of a sample in it."""
        file, checksum = self._open(name), 0
        for piece in pieces:
            file.append(piece)
            checksum = google_crc32c.extend(checksum, piece)
        self._files.finish(file)
        return _Listed(name, file.size, checksum)

    def _listed(self) -> list[_Listed]:
        """Complete the files that other tools read, and return them: those with samples first."""
        if self._others is None:
            if self._shard is None and not self._shards:
                self._open_shard(self._new_shard())  # an empty one, so that there is a set of theirs
            self._finish_shard(last=True)
            self._others = []
            for name, text in self.beside():
                self._others.append(self._write(name, [text]))
                if not len(self._others) % _MOST_OPEN:
                    self.flush()
                    self.sync()
        return [*self._shards, *self._indexes, *self._others]

    def _file_columns(self) -> list[Any]:
        listed = self._listed()
        stamps = np.array([(file.size, ANY_TIME) for file in listed], np.int64)
        return file_columns(Names.of(file.name for file in listed), stamps)

    def _resume(self, written: Table) -> None:
        """Find the shard of the last row, and frame its samples again."""
        if not len(written):
            return
        try:
            self._find_shards(written)
            shard = self._new_shard()
            rows = np.flatnonzero(written.offset >= self._start)
            self._copied = end_of(written, int(rows[0]), _COPIED_FROM) - _COPIED_FROM
            for row, sample in zip(rows.tolist(), self._read_back(written, rows.tolist()), strict=True):
                if self._place(self.frame(sample), self._gap(shard), shard).offset != int(written.offset[row]):
                    raise DestinationError(f"{printable(self._path)}: does not fit its journal. {_AGAIN}")
        except PackError as error:
            raise DestinationError(f"{error}. {_AGAIN}") from error
        self._open_shard(shard)

    def _find_shards(self, written: Table) -> None:
        """List the complete shards, and find where the last one begins."""
        last = int(written.offset[written.offset < _COPIED_FROM].max(initial=0))
        while True:
            number = len(self._shards)
            name, index = self.shard_name.format(number), self.index_name.format(number)
            with PackFile(self._path, name) as file:
                if last < self._start + file.size:
                    return
                framing = framing_checksum(file, lying_in(written, self._start, self._start + file.size))
                self._shards.append(_Listed(name, file.size, framing))
                self._start += file.size
            if index:
                with PackFile(self._path, index) as file:
                    self._indexes.append(_Listed(index, file.size, framing_checksum(file, [])))

    def _read_back(self, written: Table, rows: Iterable[int]) -> Iterator[Sample]:
        """Yield the samples of rows, which lie in the last shard and among the copies."""
        names, start = written.sample_names(), self._start
        shard = PackFile(self._path, self.shard_name.format(len(self._shards)))
        with shard, PackFile(self._index, DATA_FILE) as copies:

            def read(offset: int, size: int) -> bytes:
                return (
                    copies.read(offset - _COPIED_FROM, size)
                    if offset >= _COPIED_FROM
                    else shard.read(offset - start, size)
                )

            for index in rows:
                row = written.row(index)
                fields = tuple(stored_value(written, one, index, read) for one in self._contents.fields)
                data = read(row.offset, row.size)
                yield Sample(names[index], row.label, data, row.height, row.width, fields)

    def _remove_stale(self) -> None:
        """Remove what an earlier run left that is not continued."""
        shards = len(self._shards) + (self._shard is not None)
        names = [self.shard_name.format(number) for number in range(shards)] + [file.name for file in self._indexes]
        kept = {self._index, self._index / DATA_FILE, *(self._path / name for name in names)}
        kept |= {path.parent for path in kept}
        for directory in sorted(path for path in kept if path.is_dir() and path.is_relative_to(self._path)):
            for stale in {directory / name for name in os.listdir(directory)} - kept:
                remove(stale)
