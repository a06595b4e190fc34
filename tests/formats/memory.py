"""A format that keeps its packs in memory: the complete code of a format, in one file.

The file at a pack's path contains only the number of the pack.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from packer._formats import Format, Reader, Writer
from packer._formats.contract import NOTHING, Contents, Locations, Placed
from packer._formats.reader import table_from
from packer._manifest import Manifest
from packer._storage.packfile import MEMORY, NOWHERE
from packer._table import Buffer, Ints, Sample, Table
from packer.errors import CorruptPackError, DestinationError, NotAPackError

_MAGIC = b"packer in memory "
_blobs: dict[int, bytearray] = {}
_tables: dict[int, tuple[bytes, dict[str, bytes]]] = {}
_numbers = itertools.count()


class MemoryWriter(Writer):
    """Appends samples to a bytearray."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        end = int(written.extent().sum())
        if len(written):
            self._number = _number_of(path)
            if len(_blobs[self._number]) < end:
                raise DestinationError(f"{path}: the file is shorter than its journal says. Start over with --fresh.")
        else:
            self._number = next(_numbers)
            _blobs[self._number] = bytearray()
            path.write_bytes(_MAGIC + b"%d" % self._number)
        self._blob = _blobs[self._number]
        del self._blob[end:]

    def append(self, sample: Sample) -> Placed:
        offset = len(self._blob)
        for part in sample.parts:
            self._blob += part
        return Placed(offset)

    def flush(self) -> None:
        """Do nothing, because no bytes are buffered."""

    def sync(self) -> None:
        pass

    def commit(self, manifest: Manifest, table: Table) -> None:
        columns = {name: column.tobytes() for name, column in table.columns().items()}
        _tables[self._number] = manifest.to_json(), columns

    def close(self) -> None:
        pass


class MemoryReader(Reader):
    """Reads slices of the bytearray."""

    def _open(self) -> tuple[Manifest, Table]:
        number = _number_of(Path(self.path))
        if number not in _tables:
            raise NotAPackError(f"{self.path}: not a finished pack")
        manifest, columns = _tables[number]
        self._blob: bytearray | None = _blobs[number]
        read = Manifest.from_json(manifest, self.path)
        types = read.column_types
        return read, table_from({name: np.frombuffer(columns[name], types[name]) for name in types}, read, self.path)

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        if self._blob is None:
            raise ValueError(f"{self.path}: is closed")
        blob = np.frombuffer(self._blob, np.uint8)
        inside = (offset >= 0) & (size >= 0) & (offset <= len(blob) - size)
        return Locations(np.where(inside, MEMORY, NOWHERE), blob.ctypes.data + offset, blob)

    def _fetch(self, offset: int, size: int) -> Buffer:
        if self._blob is None:
            raise ValueError("the pack is closed")
        if offset < 0 or size < 0 or offset + size > len(self._blob):
            raise CorruptPackError("its row points outside the data", self.path)
        return bytes(self._blob[offset : offset + size])

    def close(self) -> None:
        self._blob = None


def _number_of(path: Path) -> int:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotAPackError(f"{path}: {error.strerror}") from error
    if not content.startswith(_MAGIC):
        raise NotAPackError(f"{path}: no pack in memory")
    return int(content[len(_MAGIC) :])


ROW = Format(
    "memory",
    (".memory",),
    writer=f"{__name__}:MemoryWriter",
    reader=f"{__name__}:MemoryReader",
    magic=re.escape(_MAGIC),
)
