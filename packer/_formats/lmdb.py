"""LMDB: one file, a B-tree of 8-byte big-endian keys, the value of key i being the data of sample i.

The pages are laid out here rather than by liblmdb, see `packer._formats.treewriter`. That makes writing as fast as
appending to a file, the same input give the same bytes, an interrupted conversion continue by cutting the file, and
network disks safe to write to. Reading goes by the table's offsets, so a damaged page is an error, where liblmdb, which
trusts its file, would crash; and a pack can be opened twice, across forks, and by any number of threads.

Any LMDB 0.9 (data version 1) opens the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from packer._containers.lmdbs.lmdbpages import MOST_BYTES
from packer._containers.lmdbs.lmdbtree import Tree
from packer._formats.contract import NOTHING, Contents, Placed, Places, Writer
from packer._formats.reader import Reader, table_from
from packer._formats.treewriter import TreeWriter
from packer._manifest import Manifest
from packer._storage.packfile import Descriptor
from packer._table import COLUMNS, Buffer, Ints, Sample, Table, blocks, spans
from packer.errors import CorruptPackError, DestinationError, NotAPackError, printable

__all__ = ["LMDBReader", "LMDBWriter"]

_PREFIX = b"packer/"
_MANIFEST_KEY = _PREFIX + b"manifest"
_LARGEST_END = 1 << 22  # bytes that are fetched at once of a file on a store, with what leads to the table


def sample_key(index: int) -> bytes:
    """Return the key of sample `index`: 8 bytes, big-endian."""
    return struct.pack(">Q", index)


def _column_key(column: str) -> bytes:
    return _PREFIX + column.encode()


class LMDBWriter(Writer):
    """Writes the samples, and after them the table."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._tree = TreeWriter(path.parent)
        self._count = 0
        for part in spans(len(written)):
            for size, offset in zip(written.extent(part).tolist(), written.offset[part].tolist(), strict=True):
                if self._put(size) != offset:
                    raise DestinationError(f"{printable(path)}: does not fit its journal. Start again with --fresh.")
        self._tree.open(path, cached=contents.cached)

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if max(8 * rows, names) > MOST_BYTES:
            raise DestinationError(
                f"{rows:,} samples are too many for one LMDB file, whose columns have less than 4 GiB each. "
                "Say --parts, or use HDF5."
            )

    def append(self, sample: Sample) -> Placed:
        parts = sample.parts
        return Placed(self._put(sum(map(len, parts)), parts))

    def flush(self) -> None:
        self._tree.flush()

    def sync(self) -> None:
        self._tree.sync()

    def commit(self, manifest: Manifest, table: Table) -> None:
        values = {_column_key(name): column for name, column in table.columns().items()}
        values[_MANIFEST_KEY] = np.frombuffer(manifest.to_json(), np.uint8)  # last: near what leads to it
        parts = [(key, value.nbytes, (block.tobytes() for block in blocks(value))) for key, value in values.items()]
        self._tree.put_last(_PREFIX, parts)  # after the samples, whose keys begin with a zero byte
        self._tree.finish()

    def close(self) -> None:
        self._tree.close()

    def _put(self, size: int, parts: Iterable[Buffer] = ()) -> int:
        self._count += 1
        return self._tree.put(sample_key(self._count - 1), size, parts)


class LMDBReader(Reader):
    """Reads the table through the B-tree and the samples through the table."""

    def _open(self) -> tuple[Manifest, Table]:
        if not self.place.is_a_file():
            raise NotAPackError("not an LMDB file (packs are single files, not directories)", self.path)
        self._file = self.place.open()
        self._tree = Tree(self._file)
        self._tree.require_whole()
        begin, size = self._tree.end()
        if size <= _LARGEST_END:
            self._file.ahead([(begin, size)], urgent=True)
        own = {}
        for key, offset, size in self._tree.walk(_PREFIX):
            if not key.startswith(_PREFIX):
                break
            own[key] = offset, size
        self._file.keep_together(list(own.values()))
        if _MANIFEST_KEY not in own:
            raise NotAPackError("an LMDB file that packer did not write, or did not finish", self.path)
        manifest = Manifest.from_json(self._file.read(*own[_MANIFEST_KEY]), self.path)
        places = {}
        for name, dtype in manifest.column_types.items():
            found = own.get(_column_key(name))
            if found is None:
                raise CorruptPackError(f"the table has no column {name!r}", self.path)
            offset, size = found
            places[name] = offset, size // np.dtype(dtype).itemsize, dtype
        return manifest, table_from(self._file.vectors(places), manifest, self.path)

    def _fetch(self, offset: int, size: int) -> Buffer:
        return self._file.read(offset, size)

    def _locate(self, offset: Ints, size: Ints) -> Places:
        return Places(*self._file.locate(offset, size))

    def _one_file(self) -> tuple[Descriptor, int, int] | None:
        descriptor = self._file.duplicate()
        return None if descriptor is None else (descriptor, 0, self._file.size)

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        self._file.ahead(zip(offset.tolist(), size.tolist(), strict=True), urgent=urgent)

    def data_files(self) -> list[tuple[str, int, int]]:
        return [("", 0, self._file.size)]

    def require_table(self) -> None:
        self._file.require_whole()

    def close(self) -> None:
        self._file.close()

    def check_structure(self) -> Iterable[str]:
        """Compare the B-tree, which other programs read, with the table, which this one reads."""
        expected = zip(self.table.offset.tolist(), self.table.extent().tolist(), strict=True)
        found = 0
        try:
            for key, offset, size in self._tree.walk():
                if key.startswith(_PREFIX):
                    continue
                if key != sample_key(found) or (offset, size) != next(expected, None):
                    yield f"the LMDB tree and the table disagree at key {key.hex()}: another program changed the file"
                    return
                found += 1
        except CorruptPackError as error:
            yield f"the LMDB tree is damaged: {error.reason}"
            return
        if found != len(self):
            yield f"the LMDB tree holds {found} samples and the table {len(self)}"
