"""Packs in the layout of another tool whose samples lie in shards, one after the other.

A layout is a `ShardWriter`: it says how a sample is framed, and this module places frames in shards, and continues what
was interrupted. A shard may have an index of its own, which the other tool knows, and a head that is known when the
shard is complete.
"""

from __future__ import annotations

import abc
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import google_crc32c
import numpy as np

from packer._formats.contract import NOTHING, Contents, Placed
from packer._formats.foreign import AGAIN, COPIED_FROM, MAX_SHARD_SIZE, ForeignWriter, Listed
from packer._formats.frame import Frame
from packer._formats.framing import end_of, framing_checksum, joined_checksum, lying_in, stored_value
from packer._formats.index import DATA_FILE
from packer._storage.files import AppendFile
from packer._storage.packfile import PackFile
from packer._storage.spool import Spool
from packer._table import Sample, Table, encode_name
from packer.errors import DestinationError, PackError, printable

__all__ = ["DEFAULT_SHARD_SIZE", "ShardWriter"]

DEFAULT_SHARD_SIZE = 512 << 20
_PIECE = 1 << 20


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


class ShardWriter(ForeignWriter):
    """Fills one shard after the other with frames.

    Options: ``shard_size``, the most bytes of a shard; a larger sample has a shard of its own.

    An interrupted pack continues after the last of its rows. The shards before that row's are complete, and as they
    are on the disk. The samples of its own shard are read back and framed again, which gives what is known of them.
    """

    shard_name: ClassVar[str]
    """The name of a shard, with a place for its number."""

    index_name: ClassVar[str] = ""
    """The name of a shard's index; empty where shards have none."""

    shard_sizes: ClassVar[tuple[int, int]] = DEFAULT_SHARD_SIZE, MAX_SHARD_SIZE
    """The most bytes of a shard after its head where nobody chose them, and the most that may be chosen."""

    head_size: int = 0
    """How many bytes stand before the first frame of a shard; known before `__init__` of this class."""

    most_samples: int = sys.maxsize
    """How many samples a shard has room for; as `head_size`."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self.check_options(options)
        super().__init__(path, int(options.get("shard_size", self.shard_sizes[0])), written, contents)
        self._shards: list[Listed] = []
        self._indexes: list[Listed] = []
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
            raise DestinationError(f"a shard has 1 to {most} bytes, not {size}")

    @abc.abstractmethod
    def frame(self, sample: Sample) -> Frame:
        """Return what a sample becomes, by nothing but the sample and what holds of all."""

    def gap(self) -> bytes:
        """Return what stands before the next frame of a shard that has some already."""
        return b""

    def index_line(self, frame: Frame, at: int) -> bytes:
        """Return what the shard's index, or its head, says of the last `frame`, which begins at byte `at`.

        It is asked for once of each.
        """
        return b""

    def index_head(self, count: int) -> bytes:
        """Return what the index of a shard with so many samples begins with."""
        return b""

    def head(self, lines: bytes, size: int) -> bytes:
        """Return the `head_size` bytes before the first frame, by all that `index_line` said, and the shard's size."""
        return b""

    def trailer(self, size: int, *, last: bool) -> bytes:
        """Return what follows the last frame of a shard that has so many bytes; `last` is the last shard."""
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

    def complete(self) -> list[Listed]:
        if self._shard is None and not self._shards:
            self._open_shard(self._new_shard())  # an empty one, so that there is a set of theirs
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
        """Count a frame into a shard; return where its image and its blobs lie in the data of all shards."""
        at = shard.size + len(gap)
        begin, copied = self._start + at, COPIED_FROM + self._copied
        shard.take(frame, gap, self.index_line(frame, at))
        self._copied += frame.copied

        def offset(place: int | None) -> int:
            return 0 if place is None else begin + place if place >= 0 else copied + ~place

        return Placed(offset(frame.image), tuple(map(offset, frame.blobs)))

    def _open_shard(self, shard: _Shard) -> None:
        """Open the file of a shard, which lies there already where the shard has frames."""
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
        self._shards.append(Listed(self.shard_name.format(number), size, framing, shard.count))
        if self.index_name:
            pieces = (lines[start : start + _PIECE].tobytes() for start in range(0, len(lines), _PIECE))
            index = itertools.chain([self.index_head(shard.count)], pieces)
            self._indexes.append(self._write(self.index_name.format(number), index))
        shard.lines.close()
        self._start += size
        self._shard = None

    def _resume(self, written: Table) -> None:
        """Find the shard of the last row, and frame its samples again."""
        if not len(written):
            return
        try:
            self._find_shards(written)
            shard = self._new_shard()
            rows = np.flatnonzero(written.offset >= self._start)
            self._copied = end_of(written, int(rows[0]), COPIED_FROM) - COPIED_FROM
            for row, sample in zip(rows.tolist(), self._read_back(written, rows.tolist()), strict=True):
                if self._place(self.frame(sample), self._gap(shard), shard).offset != int(written.offset[row]):
                    raise DestinationError(f"{printable(self._path)}: does not fit its journal. {AGAIN}")
        except PackError as error:
            raise DestinationError(f"{error}. {AGAIN}") from error
        self._open_shard(shard)

    def _find_shards(self, written: Table) -> None:
        """List the complete shards, and find where the last one begins."""
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
                self._shards.append(Listed(name, file.size, framing, samples))
                self._start = end
            if self.index_name:
                with PackFile(self._path, self.index_name.format(number)) as file:
                    listed = Listed(self.index_name.format(number), file.size, framing_checksum(file, []))
                self._indexes.append(listed)

    def _read_back(self, written: Table, rows: Iterable[int]) -> Iterator[Sample]:
        """Yield the samples of rows, which lie in the last shard and among the copies."""
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
