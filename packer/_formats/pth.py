"""Sharded .pth: a directory of files that `torch.load(mmap=True, weights_only=True)` opens.

A shard is a dict of vectors. The first vector, `data`, holds the samples, one after the other. `torch.save` writes such
a dict as an uncompressed zip whose members are the vectors' bytes; this module writes the same bytes while the first
vector grows. A shard is read through the zip's directory, never through the pickle in it: a vector is a plain range of
the file, and opening a stranger's file runs no code.

The pickle is written opcode by opcode, without torch: `pickle` can name a function only after importing it, and
importing torch takes longer than converting a thousand photos. The opcodes are those of `pickle` for the same dict,
protocol 2.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._formats.contract import AGAIN, NOTHING, Contents, GrowingFiles, Placed, Writer, not_of_journal
from packer._formats.parts import SpreadReader
from packer._formats.reader import MANIFEST_FILE, read_manifest, table_from, write_manifest
from packer._manifest import Manifest
from packer._storage.files import AppendFile, TableBuilder
from packer._storage.packfile import PackFile
from packer._table import COLUMNS, Buffer, Sample, Table, blocks, encode_name, spans
from packer.errors import CorruptPackError, DestinationError, DestinationOptionError, PackError, option, printable


def pickled_vectors(vectors: Mapping[str, tuple[str, int]]) -> bytes:
    """Return the pickle of a dict of vectors, each a view of a storage.

    Parameters
    ----------
    vectors : mapping
        For each key of the dict, the name of the storage's class in `torch`, and the number of elements. There are 2 to
        1000 vectors. The storages are numbered in this order, and are stored next to the pickle.
    """
    opcodes = _Opcodes()
    opcodes.write(pickle.PROTO + b"\2")
    opcodes.remember(pickle.EMPTY_DICT)
    opcodes.write(pickle.MARK)
    for number, (key, (storage, length)) in enumerate(vectors.items()):
        opcodes.remember(_text(key))
        _write_vector(opcodes, number, storage, _integer(length))
    opcodes.write(pickle.SETITEMS + pickle.STOP)
    return bytes(opcodes.written)


def _write_vector(opcodes: _Opcodes, number: int, storage: str, length: bytes) -> None:
    """Write the call ``_rebuild_tensor_v2(storage, 0, (length,), (1,), False, OrderedDict())``."""
    opcodes.recall(_global("torch._utils", "_rebuild_tensor_v2"))
    opcodes.write(pickle.MARK)
    _write_storage(opcodes, number, storage, length)
    opcodes.write(_integer(0))
    opcodes.remember(length + pickle.TUPLE1)
    opcodes.recall(_integer(1) + pickle.TUPLE1)
    opcodes.write(pickle.NEWFALSE)
    opcodes.recall(_global("collections", "OrderedDict"))
    opcodes.remember(pickle.EMPTY_TUPLE + pickle.REDUCE)
    opcodes.remember(pickle.TUPLE)
    opcodes.remember(pickle.REDUCE)


def _write_storage(opcodes: _Opcodes, number: int, storage: str, length: bytes) -> None:
    """Write the persistent id by which torch finds a storage: ``("storage", class, number, "cpu", length)``."""
    opcodes.write(pickle.MARK)
    opcodes.recall(_text("storage"))
    opcodes.recall(_global("torch", storage))
    opcodes.remember(_text(str(number)))
    opcodes.recall(_text("cpu"))
    opcodes.write(length)
    opcodes.remember(pickle.TUPLE)
    opcodes.write(pickle.BINPERSID)


class _Opcodes:
    """A pickle being written, and its memo, which numbers the objects that the pickle creates."""

    def __init__(self) -> None:
        self.written = bytearray()
        self._memo: dict[bytes, int] = {}
        self._remembered = 0

    def write(self, opcodes: bytes) -> None:
        """Write opcodes."""
        self.written += opcodes

    def remember(self, opcodes: bytes) -> None:
        """Write opcodes that make an object, and number the object."""
        self.write(opcodes + _numbered(pickle.BINPUT, pickle.LONG_BINPUT, self._remembered))
        self._remembered += 1

    def recall(self, opcodes: bytes) -> None:
        """Write the opcodes of an object, or its memo number if the object was written before."""
        if opcodes in self._memo:
            self.write(_numbered(pickle.BINGET, pickle.LONG_BINGET, self._memo[opcodes]))
        else:
            self._memo[opcodes] = self._remembered
            self.remember(opcodes)


def _numbered(short: bytes, long: bytes, number: int) -> bytes:
    """Return one of two opcodes with a memo number: the short opcode if the number fits into a byte."""
    return short + bytes([number]) if number < 1 << 8 else long + struct.pack("<I", number)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _integer(value: int) -> bytes:
    """Return the shortest opcode for an integer, which must not be negative."""
    if value < 1 << 8:
        return pickle.BININT1 + struct.pack("<B", value)
    if value < 1 << 16:
        return pickle.BININT2 + struct.pack("<H", value)
    if value < 1 << 31:
        return pickle.BININT + struct.pack("<i", value)
    encoded = pickle.encode_long(value)
    return pickle.LONG1 + struct.pack("<B", len(encoded)) + encoded


_ALIGNMENT = 64
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_EPOCH = 0x21  # 1 January 1980, the earliest date that a zip can name: the same input gives the same bytes
_STORAGES = {
    "|u1": "ByteStorage",
    "|i1": "CharStorage",
    "<i2": "ShortStorage",
    "<i4": "IntStorage",
    "<u4": "IntStorage",
    "<i8": "LongStorage",
    "<f4": "FloatStorage",
    "<f8": "DoubleStorage",
}
_MOST_DIRECTORY = 1 << 17  # bytes: zipfile reads a directory at once, after a comment of up to 64 KiB
_CHUNK, _BLOCK = 1 << 16, 1 << 20  # bytes that are checked at a time: of a member, of a file that is continued
_MOST_PICKLE = 1 << 18  # bytes; a pickle of packer takes a few hundred, plus as many for each column
_STORAGE = re.compile(rb"[A-Z][A-Za-z0-9]*Storage")
# The names of `torch.save`'s members, below a directory of any name; there are fewer than 1000 vectors.
_MEMBER = re.compile(
    r"[^/]+/(data/\d{1,3}|data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id)"
)
# zipfile's errors for damaged files; a member marked as encrypted, or of a later version, is a RuntimeError.
_ZIP_ERRORS = (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)


class TorchFile:
    """Writes one .pth file: a dict of vectors; the first vector grows while the file is written.

    The members are numbered in the order of the dict's keys, so that a reader finds them by number.
    """

    def __init__(self, path: Path, written: int = 0, *, cached: bool = True) -> None:
        self._stem = path.stem
        self._members: list[tuple[bytes, int, int, int]] = []  # name, where its header is, size, CRC-32
        self._keys: dict[str, tuple[str, int]] = {}  # key of the dict: storage and length
        self._first = len(self._header("data/0", 0, 0, at=0))
        self.file = AppendFile(path, keep=self._first + written if written else 0, cached=cached)
        if not written:
            self.file.append(bytes(self._first))
        self.length = written
        self._crc = 0
        for start in range(0, written, _BLOCK):  # of the bytes that an earlier run wrote
            block = self.file.read_at(self._first + start, min(_BLOCK, written - start))
            self._crc = zlib.crc32(block, self._crc)

    def append(self, data: Buffer) -> None:
        """Add bytes to the first vector."""
        self.file.append(data)
        self._crc = zlib.crc32(data, self._crc)
        self.length += len(data)

    def finish(self, first: str, vectors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Name the first vector, add the others, and write the zip's directory."""
        self.file.write_at(0, self._header("data/0", self.length, self._crc, at=0))
        self._members.append((self._member("data/0"), 0, self.length, self._crc))
        self._keys[first] = ("ByteStorage", self.length)
        for number, (key, vector) in enumerate(vectors.items(), 1):
            self._add(f"data/{number}", vector)
            self._keys[key] = (_STORAGES[vector.dtype.str], len(vector))
        for member, data in [("data.pkl", pickled_vectors(self._keys)), ("byteorder", b"little"), ("version", b"3\n")]:
            self._add(member, np.frombuffer(data, np.uint8))
        start = self.file.size
        for name, at, size, crc in self._members:
            self.file.append(
                _CENTRAL.pack(b"PK\1\2", 0, 0, 0x800, 0, 0, _EPOCH, crc, size, size, len(name), 0, 0, 0, 0, 0, at), name
            )
        count = len(self._members)
        self.file.append(_END.pack(b"PK\5\6", 0, 0, count, count, self.file.size - start, start, 0))

    def _add(self, name: str, vector: npt.NDArray[Any]) -> None:
        at, crc = self.file.size, 0
        for block in blocks(vector):
            crc = zlib.crc32(block.tobytes(), crc)
        self.file.append(self._header(name, vector.nbytes, crc, at))
        for block in blocks(vector):
            self.file.append(block.tobytes())
        self._members.append((self._member(name), at, vector.nbytes, crc))

    def _member(self, name: str) -> bytes:
        return f"{self._stem}/{name}".encode()

    def _header(self, name: str, size: int, crc: int, at: int) -> bytes:
        """Return a member's header, padded as torch pads it so that the data begin at a multiple of 64."""
        member = self._member(name)
        padding = -(at + _LOCAL.size + len(member) + 4) % _ALIGNMENT
        extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        header = _LOCAL.pack(b"PK\3\4", 0, 0x800, 0, 0, _EPOCH, crc, size, size, len(member), len(extra))
        return header + member + extra


def members_of(file: PackFile) -> dict[str, tuple[int, int]]:
    """Return the offsets and sizes of the members of a zip."""
    with opened_zip(file) as (_, members):
        return members


def require_types(file: PackFile, span: tuple[int, int], dtypes: Iterable[str]) -> None:
    """Raise CorruptPackError if the pickle in a span of the file names element types that are not in `dtypes`.

    The pickle is not executed: its bytes are searched for the names of storages.
    """
    at, size = span
    if size > _MOST_PICKLE:
        raise CorruptPackError(f"its pickle has {size} bytes; the limit is {_MOST_PICKLE}", file.path)
    found = {name.decode() for name in _STORAGE.findall(file.read(at, size))}
    expected = {_STORAGES[dtype] for dtype in dtypes}
    if found != expected:
        has, wants = (", ".join(sorted(names)) or "none" for names in (found, expected))
        raise CorruptPackError(
            f"the types of its vectors differ from those in the manifest: {has}, not {wants}", file.path
        )


def compare_checksums(file: PackFile, leave_out: str = "") -> None:
    """Read the members of a zip, except `leave_out`; CorruptPackError if one does not match its CRC-32."""
    with opened_zip(file) as (archive, _):
        for info in archive.infolist():
            if info.filename != leave_out:
                with archive.open(info) as member:
                    while member.read(_CHUNK):
                        pass


@contextmanager
def opened_zip(file: PackFile) -> Iterator[tuple[zipfile.ZipFile, dict[str, tuple[int, int]]]]:
    """Open a zip, and yield it and its members' locations.

    Raise CorruptPackError if the file is not a zip as `torch.save` writes it.
    """
    try:
        with zipfile.ZipFile(file.stream(most=_MOST_DIRECTORY)) as archive:
            yield archive, _placed(archive.infolist(), file)
    except _ZIP_ERRORS as error:
        raise CorruptPackError(f"not a complete .pth file: {error}", file.path) from error


def _placed(infos: Sequence[zipfile.ZipInfo], file: PackFile) -> dict[str, tuple[int, int]]:
    """Return the locations of members.

    Raise CorruptPackError if a member is compressed, overlaps another one, or has a name that `torch.save` does not
    use.
    """
    members: dict[str, tuple[int, int]] = {}
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise CorruptPackError("its members are compressed", file.path)
        if not _MEMBER.fullmatch(info.filename):
            raise CorruptPackError(f"it has an unexpected member: {printable(info.filename)}", file.path)
        if info.filename in members or info.header_offset < end:
            raise CorruptPackError(
                f"its member {printable(info.filename)} is listed twice, or overlaps another member", file.path
            )
        header = _LOCAL.unpack(file.read(info.header_offset, _LOCAL.size))
        at = info.header_offset + _LOCAL.size + header[9] + header[10]
        members[info.filename] = at, info.file_size
        end = at + info.file_size
    return members


def member_of(members: Mapping[str, tuple[int, int]], name: str, path: str) -> tuple[int, int]:
    if name not in members:
        raise CorruptPackError(f"it has no member {name}", path)
    return members[name]


TABLE_FILE = "table.pth"
DEFAULT_SHARD_SIZE = 512 << 20
MAX_SHARD_SIZE = 3 << 30  # below 4 GiB, where zip needs another kind of header


class PthWriter(Writer):
    """Fills one shard after the other, then writes the table for all shards.

    Options: ``shard_size``, the size limit for the samples in a shard, in bytes; a larger sample gets its own shard.
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
            raise DestinationOptionError(f"a shard must have 1 to {MAX_SHARD_SIZE} bytes, not {size}")

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if rows * sum(np.dtype(dtype).itemsize for dtype in types.values()) + names > MAX_SHARD_SIZE:
            raise DestinationError(
                f"{rows:,} samples are too many for one .pth pack, whose table has 3 GiB at most. Pass "
                f"{option('parts')}, or use HDF5."
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
        """Assign a sample to its shard; return whether this is a new shard."""
        opens = not self._shards or self._shards[-1][1] + size > self._shard_size
        if opens:
            self._shards.append([0, 0])
        self._shards[-1][0] += 1
        self._shards[-1][1] += size
        self._end += size
        return opens

    def _require_finished_shards(self) -> None:
        """Raise an error if a shard before the open one is incomplete."""
        for number, (_, length) in enumerate(self._shards[:-1]):
            name = _shard_name(number)
            try:
                file = PackFile(self._path / name)
                _, size = member_of(members_of(file), _member_of_samples(name), file.path)
            except PackError as error:
                raise DestinationError(f"{error}. {AGAIN}") from error
            file.close()
            if size != length:
                raise not_of_journal(file.path)

    def _add_row(self, label: int | float, offset: int, name: bytes) -> None:
        """Record a sample of the open shard; `offset` counts from the beginning of the first shard."""
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
        self._spread(shards[:, 1])
        self._begins: dict[int, int] = {}
        self._table_file = self.place.open(TABLE_FILE)
        path = self._table_file.path
        types = manifest.column_types
        order = ["names", *(name for name in types if name != "names")]  # as the writer numbers them
        members = members_of(self._table_file)
        require_types(self._table_file, member_of(members, "table/data.pkl", path), ["|u1", *types.values()])
        self._table_file.keep_together([(0, self._table_file.size)])
        ranges = {}
        for number, name in enumerate(order):
            at, size = member_of(members, f"table/data/{number}", path)
            ranges[name] = at, size // np.dtype(types[name]).itemsize, types[name]
        return manifest, table_from(self._table_file.vectors(ranges), manifest, path)

    def _data_name(self, number: int) -> str:
        return _shard_name(number)

    def _open_data_file(self, number: int) -> tuple[PackFile, int]:
        name = _shard_name(number)
        file = self.place.open(name)
        if number not in self._begins:
            at, size = member_of(members_of(file), _member_of_samples(name), file.path)
            if size != self._starts[number + 1] - self._starts[number]:
                raise CorruptPackError("the length of its data is not that in the manifest", file.path)
            self._begins[number] = at
        return file, self._begins[number]

    def file_names(self) -> list[str]:
        return [MANIFEST_FILE, TABLE_FILE, *self._data_names()]

    def check_structure(self) -> Iterable[str]:
        """Check those members that neither the table nor the samples' checksums cover, by their CRC-32 in the zips."""
        samples = {name: _member_of_samples(name) for name in self._data_names()}
        for name in [TABLE_FILE, *samples]:
            try:
                with self.place.open(name) as file:
                    compare_checksums(file, leave_out=samples.get(name, ""))
            except CorruptPackError as error:
                yield f"{name}: {error.reason}"


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}.pth"


def _member_of_samples(shard: str) -> str:
    """Return the name of a shard's member that contains the samples."""
    return f"{Path(shard).stem}/data/0"
