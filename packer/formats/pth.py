"""Sharded .pth: a directory of files that `torch.load(mmap=True, weights_only=True)` opens.

Every file is what `torch.save` would write of a dict of vectors: an uncompressed zip whose members are the
vectors' bytes. So a sample is a plain range of a file here too. Shards are written as samples arrive; reading
goes through the zip's directory and never through the pickle in it, so opening a stranger's pack runs no code.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import threading
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPackError, DestinationError, NotAPackError, PackError, printable
from packer.formats.base import Reader, Writer, table_from
from packer.formats.files import AppendFile, PackFile, sync_directory
from packer.sample import COLUMNS, Buffer, Manifest, Sample, Table, encode_name

__all__ = ["DEFAULT_SHARD_SIZE", "PthReader", "PthWriter"]

DEFAULT_SHARD_SIZE = 512 << 20
MAX_SHARD_SIZE = 3 << 30  # stays below the 4 GiB where zip needs another kind of header

_ALIGNMENT = 64
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_EPOCH = 0x21  # 1 January 1980, the earliest date that a zip can name: the same input gives the same bytes
_STORAGES = {"|u1": "ByteStorage", "<i4": "IntStorage", "<u4": "IntStorage", "<i8": "LongStorage"}
_OPEN_SHARDS = 64
# What zipfile raises of damaged files; RuntimeError is of members that claim to be encrypted or of a later version.
_ZIP_ERRORS = (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)


class TorchFile:
    """Writes one .pth: a dict of vectors, the first of which may grow as it is written.

    The members are numbered in the order of the dict's keys, which is what lets a reader find them by number.
    """

    def __init__(self, path: Path, written: int = 0, crc: int = 0) -> None:
        self._stem = path.stem
        self._members: list[tuple[bytes, int, int, int]] = []  # name, where its header is, size, CRC-32
        self._keys: dict[str, tuple[str, int]] = {}  # key of the dict: storage and length
        self._first = len(self._header("data/0", 0, 0, at=0))
        self.file = AppendFile(path, keep=self._first + written if written else 0)
        if not written:
            self.file.append(bytes(self._first))
        self.length = written
        self._crc = crc

    def append(self, data: Buffer) -> None:
        """Add bytes to the first vector."""
        self.file.append(data)
        self._crc = zlib.crc32(data, self._crc)
        self.length += len(data)

    def resume_checksum(self) -> None:
        """Take the checksum of the bytes that an earlier run wrote."""
        for start in range(0, self.length, 1 << 20):
            self._crc = zlib.crc32(self.file.read_at(self._first + start, min(1 << 20, self.length - start)), self._crc)

    def finish(self, first: str, vectors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Name the first vector, add the others, and write the zip's directory."""
        self.file.write_at(0, self._header("data/0", self.length, self._crc, at=0))
        self._members.append((self._member("data/0"), 0, self.length, self._crc))
        self._keys[first] = ("ByteStorage", self.length)
        for number, (key, vector) in enumerate(vectors.items(), 1):
            self._add(f"data/{number}", vector.tobytes())
            self._keys[key] = (_STORAGES[vector.dtype.str], len(vector))
        self._add("data.pkl", _pickled(self._keys))
        self._add("byteorder", b"little")
        self._add("version", b"3\n")
        start = self.file.size
        for name, at, size, crc in self._members:
            self.file.append(
                _CENTRAL.pack(b"PK\1\2", 0, 0, 0x800, 0, 0, _EPOCH, crc, size, size, len(name), 0, 0, 0, 0, 0, at), name
            )
        count = len(self._members)
        self.file.append(_END.pack(b"PK\5\6", 0, 0, count, count, self.file.size - start, start, 0))

    def _add(self, name: str, data: bytes) -> None:
        at, crc = self.file.size, zlib.crc32(data)
        self.file.append(self._header(name, len(data), crc, at), data)
        self._members.append((self._member(name), at, len(data), crc))

    def _member(self, name: str) -> bytes:
        return f"{self._stem}/{name}".encode()

    def _header(self, name: str, size: int, crc: int, at: int) -> bytes:
        """Return a member's header, padded as torch pads it so that the data begin at a multiple of 64."""
        member = self._member(name)
        padding = -(at + _LOCAL.size + len(member) + 4) % _ALIGNMENT
        extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        header = _LOCAL.pack(b"PK\3\4", 0, 0x800, 0, 0, _EPOCH, crc, size, size, len(member), len(extra))
        return header + member + extra


def _pickled(keys: Mapping[str, tuple[str, int]]) -> bytes:
    """Return the pickle of a dict of vectors as `torch.save` writes it: the storages stand for themselves by number."""
    import torch

    class Vector:
        def __init__(self, number: int, storage: str, length: int) -> None:
            self.storage = Storage(number, storage, length)
            self.length = length

        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (self.storage, 0, (self.length,), (1,), False, OrderedDict())

    class Storage:
        def __init__(self, number: int, kind: str, length: int) -> None:
            self.id = ("storage", getattr(torch, kind), str(number), "cpu", length)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return value.id if isinstance(value, Storage) else None

    stream = io.BytesIO()
    vectors = {key: Vector(number, *kind) for number, (key, kind) in enumerate(keys.items())}
    Pickler(stream, protocol=2).dump(vectors)
    return stream.getvalue()


class PthWriter(Writer):
    """Fills one shard after the other, then writes the table of all of them.

    Options: ``shard_size``, the most bytes of samples in a shard; a larger sample has a shard of its own.
    """

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table) -> None:
        self._path = path
        self.check_options(options)
        self._shard_size = int(options.get("shard_size", DEFAULT_SHARD_SIZE))
        self._finished: list[AppendFile] = []  # complete since the last `flush`
        self._flushed: list[AppendFile] = []  # complete, for `sync` to sync and close
        self._growing: AppendFile | None = None  # the open shard at the last `flush`
        self._shards: list[list[int]] = []  # of each: its number of samples, its number of bytes
        self._shard: TorchFile | None = None
        self._labels: list[int] = []  # of the open shard, as are the next two
        self._ends: list[int] = []
        self._names: list[bytes] = []
        self._end = 0
        import torch  # noqa: F401 - needed at the end; imported here, its absence shows at the beginning

        path.mkdir(exist_ok=True)
        for size in written.size.tolist():
            self._place(size)
        if self._shards:
            count, length = self._shards[-1]
            self._require_finished_shards()
            self._shard = TorchFile(self._shard_path(), written=length)
            self._shard.resume_checksum()
            names = written.sample_names()
            for index in range(len(written) - count, len(written)):
                self._remember(int(written.label[index]), int(written.size[index]), names.encoded(index))
        keep = {f"shard-{number:05d}.pth" for number in range(len(self._shards))}
        for stale in set(os.listdir(path)) - keep:
            (path / stale).unlink()

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        size = options.get("shard_size", DEFAULT_SHARD_SIZE)
        if not 1 <= size <= MAX_SHARD_SIZE:
            raise DestinationError(f"a shard has 1 to {MAX_SHARD_SIZE} bytes, not {size}")

    def append(self, sample: Sample) -> int:
        size = len(sample.data)
        if size > MAX_SHARD_SIZE:
            raise DestinationError(f"{printable(sample.name)}: {size} bytes are too many for .pth; use LMDB or HDF5")
        offset = self._end
        if self._place(size):
            self._finish_shard()
            self._shard = TorchFile(self._shard_path())
        assert self._shard is not None
        self._shard.append(sample.data)
        self._remember(sample.label, size, encode_name(sample.name))
        return offset

    def flush(self) -> None:
        for file in [*self._finished, *([self._shard.file] if self._shard is not None else [])]:
            file.flush()
        self._flushed += self._finished
        self._finished = []
        self._growing = self._shard.file if self._shard is not None else None

    def sync(self) -> None:
        growing, done = self._growing, []  # `flush` may go on meanwhile: what grows now may be complete below
        while self._flushed:
            done.append(self._flushed.pop(0))
            done[-1].sync()
        if growing is not None and growing not in done:
            growing.sync()
        for file in done:
            file.close()
        sync_directory(self._path)

    def commit(self, manifest: Manifest, table: Table) -> None:
        self._finish_shard()
        index = TorchFile(self._path / "table.pth")
        columns = table.columns()
        index.append(columns["names"].tobytes())
        index.finish("names", {name: column for name, column in columns.items() if name != "names"})
        self._finished.append(index.file)
        self.flush()
        self.sync()
        file = AppendFile(self._path / "manifest.json")  # last: without it, the directory is no pack
        file.append(manifest.to_json())
        self._finished.append(file)
        self.flush()
        self.sync()

    def close(self) -> None:
        for file in [*self._flushed, *self._finished, *([self._shard.file] if self._shard else [])]:
            file.close()

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
            name = f"shard-{number:05d}"
            try:
                file = PackFile(self._path / f"{name}.pth")
                _, size = _member(_members(file), f"{name}/data/0", file.path)
            except PackError as error:
                raise DestinationError(f"{error}. Start again with --fresh.") from error
            file.close()
            if size != length:
                raise DestinationError(f"{printable(file.path)}: does not fit its journal. Start again with --fresh.")

    def _remember(self, label: int, size: int, name: bytes) -> None:
        self._labels.append(label)
        self._ends.append((self._ends[-1] if self._ends else 0) + size)
        self._names.append(name)

    def _finish_shard(self) -> None:
        if self._shard is None:
            return
        name_end = np.cumsum([len(name) for name in self._names], dtype="<i8")
        vectors = {
            "offset": np.array([0, *self._ends], "<i8"),
            "label": np.array(self._labels, "<i8"),
            "name_end": name_end,
            "names": np.frombuffer(b"".join(self._names), "|u1"),
        }
        self._shard.finish("data", vectors)
        self._finished.append(self._shard.file)
        self._shard = None
        self._labels, self._ends, self._names = [], [], []

    def _shard_path(self) -> Path:
        return self._path / f"shard-{len(self._shards) - 1:05d}.pth"


class PthReader(Reader):
    """Finds the vectors by the zips' directories, and samples by their offset in the data of all shards."""

    def _open(self) -> tuple[Manifest, Table]:
        manifest_path = os.path.join(self.path, "manifest.json")
        if not os.path.isfile(manifest_path):
            raise NotAPackError(f"{printable(self.path)}: not a finished .pth pack: no manifest.json in it")
        file = PackFile(manifest_path)
        manifest = Manifest.from_json(file.read(0, file.size), manifest_path)
        file.close()
        try:
            shards = np.array(manifest.layout["shards"], np.int64).reshape(-1, 2)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise CorruptPackError(f"the manifest does not list the shards: {error}", self.path) from error
        self._starts = np.concatenate([[0], np.cumsum(shards[:, 1])])
        self._closed = False
        self._open_shards: OrderedDict[int, tuple[PackFile, int]] = OrderedDict()
        self._lock = threading.Lock()
        path = os.path.join(self.path, "table.pth")
        self._table_file = PackFile(path)
        order = ["names", *(name for name in COLUMNS if name != "names")]  # as the writer numbers them
        members = _members(self._table_file)
        columns = {}
        for number, name in enumerate(order):
            at, size = _member(members, f"table/data/{number}", path)
            columns[name] = self._table_file.array(at, size // np.dtype(COLUMNS[name]).itemsize, COLUMNS[name])
        return manifest, table_from(columns, path)

    def _fetch(self, index: int, offset: int, size: int) -> Buffer:
        number = int(np.searchsorted(self._starts, offset, side="right")) - 1
        if not (0 <= number < len(self._starts) - 1 and 0 <= size <= self._starts[number + 1] - offset):
            raise CorruptPackError("its row points outside the data", self.path)
        file, data_at = self._shard(number)
        return file.read(data_at + offset - int(self._starts[number]), size)

    def close(self) -> None:
        self._table_file.close()
        with self._lock:
            self._closed = True
            for file, _ in self._open_shards.values():
                file.close()
            self._open_shards.clear()

    def check_structure(self) -> Iterable[str]:
        """Check the members that neither the table nor the samples' checksums cover against the zips' CRC-32."""
        names = ["table.pth", *(f"shard-{number:05d}.pth" for number in range(len(self._starts) - 1))]
        for name in names:
            try:
                with zipfile.ZipFile(os.path.join(self.path, name)) as archive:
                    for member in archive.namelist():
                        if not (name.startswith("shard") and member.endswith("/data/0")):
                            archive.read(member)
            except (*_ZIP_ERRORS, MemoryError) as error:
                yield f"{name}: {printable(error)}"

    def _shard(self, number: int) -> tuple[PackFile, int]:
        """Return a shard's file and where its data begin; the most recently used ones stay open."""
        with self._lock:
            if self._closed:
                raise PackError(f"{printable(self.path)}: is closed")
            if number in self._open_shards:
                self._open_shards.move_to_end(number)
                return self._open_shards[number]
        name = f"shard-{number:05d}"
        file = PackFile(os.path.join(self.path, f"{name}.pth"))
        at, size = _member(_members(file), f"{name}/data/0", file.path)
        if size != self._starts[number + 1] - self._starts[number]:
            raise CorruptPackError("its data are not as long as the manifest says", file.path)
        with self._lock:
            self._open_shards[number] = file, at
            if len(self._open_shards) > _OPEN_SHARDS:
                self._open_shards.popitem(last=False)  # closed when the last read of it is done
        return file, at


def _members(file: PackFile) -> dict[str, tuple[int, int]]:
    """Return where the members of a zip lie in its file, and their sizes."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            infos = archive.infolist()
    except _ZIP_ERRORS as error:
        raise CorruptPackError(f"not a complete .pth file: {error}", file.path) from error
    members = {}
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise CorruptPackError("its members are compressed", file.path)
        header = _LOCAL.unpack(file.read(info.header_offset, _LOCAL.size))
        members[info.filename] = info.header_offset + _LOCAL.size + header[9] + header[10], info.file_size
    return members


def _member(members: Mapping[str, tuple[int, int]], name: str, path: str) -> tuple[int, int]:
    if name not in members:
        raise CorruptPackError(f"it has no member {name}", path)
    return members[name]
