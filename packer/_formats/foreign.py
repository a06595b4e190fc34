"""Packs in the layout of another tool: files as that tool writes them, and packer's own index beside them.

A pack is a directory with the other tool's files and ``.packer.index``, an index as `packer._formats.index` specifies
it, whose base is the pack. A layout is a `ForeignWriter`: it completes its files, and this module writes the index.

What is no sample's, such as the headers between the images, has a checksum for each file: packer reads none of it, but
other tools do.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from packer._formats.contract import Contents, Writer
from packer._formats.growing import GrowingFiles
from packer._formats.index import DATA_FILE, INDEX_DIRECTORY, file_columns, write_files
from packer._manifest import Manifest
from packer._storage.files import AppendFile, remove, writing_to
from packer._storage.stamps import ANY_TIME
from packer._table import Names, Table, column_checksum, encode_name
from packer.errors import DestinationError

__all__ = ["AGAIN", "COPIED_FROM", "MAX_SHARD_SIZE", "ForeignWriter", "Listed", "one_file"]

AGAIN = "Start again with --fresh."
COPIED_FROM = 1 << 60
"""The offset of the first byte in the index's own data: so that it is known before the end of the files is."""

MAX_SHARD_SIZE = 1 << 60
_MOST_OPEN = 64  # files


class Listed(NamedTuple):
    """A complete file of the pack.

    Attributes
    ----------
    name : str
    size : int
    framing : int
        The checksum of what is no sample's in it.
    samples : int
        How many begin in it.
    """

    name: str
    size: int
    framing: int
    samples: int = 0


class ForeignWriter(Writer):
    """Writes the index of files that a layout completes, and keeps what is copied into it.

    `shard_size` is the most bytes of a file with samples.
    """

    apart = True

    def __init__(self, path: Path, shard_size: int, written: Table, contents: Contents) -> None:
        self._path, self._contents = path, contents
        self._shard_size = shard_size
        self._blob_fields = {one.name: number for number, one in enumerate(f for f in contents.fields if f.is_blob)}
        self._index = path / INDEX_DIRECTORY
        self._files = GrowingFiles(self._index, path)
        self._others: list[Listed] | None = None  # once all samples are written
        self._names = int(written.name_end[-1]) if len(written) else 0  # bytes
        self._copied = 0  # bytes
        with writing_to(path):
            self._index.mkdir(parents=True, exist_ok=True)

    @abc.abstractmethod
    def complete(self) -> list[Listed]:
        """Complete the files with samples, and their indexes, and return them in this order."""

    def beside(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and bytes of the layout's other files: ``classes.txt``, where each class's name is a line."""
        classes = self._contents.classes
        if classes and not any("\n" in name or "\r" in name for name in classes):
            yield "classes.txt", b"".join(encode_name(name) + b"\n" for name in classes)

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
        """Continue the copies after what is known of them; remove all other files but those to keep."""
        self._copies = AppendFile(self._index / DATA_FILE, keep=self._copied)
        self._files.grow(self._copies)
        kept = {self._index, self._index / DATA_FILE, *(self._path / name for name in keep)}
        kept |= {path.parent for path in kept}
        for directory in sorted(path for path in kept if os.path.isdir(path) and path.is_relative_to(self._path)):
            for stale in {directory / name for name in os.listdir(directory)} - kept:
                remove(stale)

    def _open(self, name: str, keep: int = 0) -> AppendFile:
        path = self._path / name
        with writing_to(path):
            path.parent.mkdir(exist_ok=True)
        return AppendFile(path, keep=keep, cached=self._contents.cached)

    def _write(self, name: str, pieces: Iterable[bytes]) -> Listed:
        """Write a whole file that has nothing of a sample in it."""
        file, checksum = self._open(name), 0
        for piece in pieces:
            file.append(piece)
            checksum = google_crc32c.extend(checksum, piece)
        self._files.finish(file)
        return Listed(name, file.size, checksum)

    def _listed(self) -> list[Listed]:
        """Complete the files that other tools read, and return them: those with samples first."""
        complete = self.complete()
        if self._others is None:
            self._others = []
            for name, text in self.beside():
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
    """Raise DestinationError where options choose the size of the one file that a pack of this suffix has."""
    if options.keys() - {"shard_size"} or options.get("shard_size", MAX_SHARD_SIZE) != MAX_SHARD_SIZE:
        raise DestinationError(f"a {suffix} pack is one file, whose size cannot be chosen")
