"""Sharded .pth: a directory of files that `torch.load(mmap=True, weights_only=True)` opens.

A shard is a dict of vectors whose first, `data`, holds the samples, one after the other; it is written as they arrive.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packer._formats.contract import NOTHING, Contents, Placed, Writer
from packer._formats.growing import GrowingFiles
from packer._formats.manifestfile import MANIFEST_FILE, read_manifest, write_manifest
from packer._formats.multifile import SpreadData, SpreadReader
from packer._formats.reader import table_from
from packer._formats.torchfile import TorchFile, compare_checksums, member_of, members_of, require_types
from packer._manifest import Manifest
from packer._storage.packfile import PackFile
from packer._storage.place import Place
from packer._storage.spool import TableBuilder
from packer._table import COLUMNS, Sample, Table, blocks, encode_name, spans
from packer.errors import CorruptPackError, DestinationError, PackError, printable

__all__ = ["DEFAULT_SHARD_SIZE", "PthReader", "PthWriter"]

TABLE_FILE = "table.pth"
DEFAULT_SHARD_SIZE = 512 << 20
MAX_SHARD_SIZE = 3 << 30  # stays below the 4 GiB where zip needs another kind of header


class PthWriter(Writer):
    """Fills one shard after the other, then writes the table of all of them.

    Options: ``shard_size``, the most bytes of samples in a shard; a larger sample has a shard of its own.
    """

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._path, self._cached = path, contents.cached
        self.check_options(options)
        self._shard_size = int(options.get("shard_size", DEFAULT_SHARD_SIZE))
        self._files = GrowingFiles(path)
        self._shards: list[list[int]] = []  # the number of samples and of bytes of each
        self._shard: TorchFile | None = None
        self._types = {**COLUMNS, "label": written.label.dtype.str}
        self._rows = TableBuilder(path.parent, self._types)  # the rows of the open shard
        self._end = 0
        path.mkdir(exist_ok=True)
        for part in spans(len(written)):
            for size in written.extent(part).tolist():
                self._place(size)
        if self._shards:
            count, length = self._shards[-1]
            self._require_finished_shards()
            self._shard = TorchFile(self._shard_path(), written=length, cached=self._cached)
            self._files.grow(self._shard.file)
            self._shard.resume_checksum()
            names = written.sample_names()
            for index in range(len(written) - count, len(written)):
                self._add_row(written.label[index].item(), int(written.offset[index]), names.encoded(index))
        keep = {_shard_name(number) for number in range(len(self._shards))}
        for stale in set(os.listdir(path)) - keep:
            (path / stale).unlink()

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        size = options.get("shard_size", DEFAULT_SHARD_SIZE)
        if not 1 <= size <= MAX_SHARD_SIZE:
            raise DestinationError(f"a shard has 1 to {MAX_SHARD_SIZE} bytes, not {size}")

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if rows * sum(np.dtype(dtype).itemsize for dtype in types.values()) + names > MAX_SHARD_SIZE:
            raise DestinationError(
                f"{rows:,} samples are too many for one .pth pack, whose table has 3 GiB at most. "
                "Say --parts, or use HDF5."
            )

    def append(self, sample: Sample) -> Placed:
        size = sum(map(len, sample.parts))
        if size > MAX_SHARD_SIZE:
            raise DestinationError(f"{printable(sample.name)}: {size} bytes are too many for .pth; use LMDB or HDF5")
        offset = self._end
        if self._place(size):
            self._finish_shard()
            self._shard = TorchFile(self._shard_path(), cached=self._cached)
            self._files.grow(self._shard.file)
        assert self._shard is not None
        for part in sample.parts:
            self._shard.append(part)
        self._add_row(sample.label, offset, encode_name(sample.name))
        return Placed(offset)

    def flush(self) -> None:
        self._files.flush()

    def sync(self) -> None:
        self._files.sync()

    def commit(self, manifest: Manifest, table: Table) -> None:
        self._finish_shard()
        index = TorchFile(self._path / TABLE_FILE)
        columns = table.columns()
        for block in blocks(columns.pop("names")):
            index.append(block.tobytes())
        index.finish("names", columns)
        self._files.finish(index.file)
        self.flush()
        self.sync()
        write_manifest(self._path, manifest)

    def close(self) -> None:
        self._files.close()
        self._rows.close()

    def layout(self) -> dict[str, Any]:
        return {"shard_size": self._shard_size, "shards": self._shards}

    def _place(self, size: int) -> bool:
        """Count a sample into the shard it belongs to; return whether that is a new one."""
        opens = not self._shards or self._shards[-1][1] + size > self._shard_size
        if opens:
            self._shards.append([0, 0])
        self._shards[-1][0] += 1
        self._shards[-1][1] += size
        self._end += size
        return opens

    def _require_finished_shards(self) -> None:
        """Raise where a shard before the open one is not whole."""
        for number, (_, length) in enumerate(self._shards[:-1]):
            name = _shard_name(number)
            try:
                file = PackFile(self._path / name)
                _, size = member_of(members_of(file), _member_of_samples(name), file.path)
            except PackError as error:
                raise DestinationError(f"{error}. Start again with --fresh.") from error
            file.close()
            if size != length:
                raise DestinationError(f"{printable(file.path)}: does not fit its journal. Start again with --fresh.")

    def _add_row(self, label: int | float, offset: int, name: bytes) -> None:
        """Note a sample of the open shard, whose `offset` counts from the beginning of the first."""
        begin = self._end - self._shards[-1][1]
        self._rows.append(label=label, height=0, width=0, offset=offset - begin, size=0, crc32c=0, name=name)

    def _finish_shard(self) -> None:
        if self._shard is None:
            return
        rows = self._rows.build()
        offset = np.append(rows.offset, self._shard.length)
        vectors = {"offset": offset, "label": rows.label, "name_end": rows.name_end, "names": rows.names}
        self._shard.finish("data", vectors)
        self._files.finish(self._shard.file)
        self._shard = None
        self._rows.close()
        self._rows = TableBuilder(self._path.parent, self._types)

    def _shard_path(self) -> Path:
        return self._path / _shard_name(len(self._shards) - 1)


class PthReader(SpreadReader):
    """Finds the vectors by the zips' directories, and samples by their offset in the data of all shards."""

    def _open(self) -> tuple[Manifest, Table]:
        manifest = read_manifest(self.place)
        try:
            shards = np.array(manifest.layout["shards"], np.int64).reshape(-1, 2)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise CorruptPackError(f"the manifest does not list the shards: {error}", self.path) from error
        self._data = _Shards(self.place, shards[:, 1].tolist())
        self._table_file = self.place.open(TABLE_FILE)
        path = self._table_file.path
        types = manifest.column_types
        order = ["names", *(name for name in types if name != "names")]  # as the writer numbers them
        members = members_of(self._table_file)
        require_types(self._table_file, member_of(members, "table/data.pkl", path), ["|u1", *types.values()])
        self._table_file.keep_together([(0, self._table_file.size)])
        places = {}
        for number, name in enumerate(order):
            at, size = member_of(members, f"table/data/{number}", path)
            places[name] = at, size // np.dtype(types[name]).itemsize, types[name]
        return manifest, table_from(self._table_file.vectors(places), manifest, path)

    def file_names(self) -> list[str]:
        return [MANIFEST_FILE, TABLE_FILE, *self._data.names()]

    def check_structure(self) -> Iterable[str]:
        """Check the members that neither the table nor the samples' checksums cover against the zips' CRC-32."""
        samples = {name: _member_of_samples(name) for name in self._data.names()}
        for name in [TABLE_FILE, *samples]:
            try:
                with self.place.open(name) as file:
                    compare_checksums(file, leave_out=samples.get(name, ""))
            except CorruptPackError as error:
                yield f"{name}: {error.reason}"


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}.pth"


def _member_of_samples(shard: str) -> str:
    """Return which member of a shard holds the samples, which have checksums of their own."""
    return f"{Path(shard).stem}/data/0"


class _Shards(SpreadData):
    """The `data` of all shards."""

    def __init__(self, place: Place, sizes: Sequence[int]) -> None:
        super().__init__(place, sizes)
        self._begins: dict[int, int] = {}

    def name(self, number: int) -> str:
        return _shard_name(number)

    def open_file(self, number: int) -> tuple[PackFile, int]:
        file = self.place.open(self.name(number))
        if number not in self._begins:
            at, size = member_of(members_of(file), _member_of_samples(self.name(number)), file.path)
            if size != self.starts[number + 1] - self.starts[number]:
                raise CorruptPackError("its data are not as long as the manifest says", file.path)
            self._begins[number] = at
        return file, self._begins[number]
