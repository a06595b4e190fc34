"""The files that `torch.save` writes of a dict of vectors: uncompressed zips whose members are the vectors' bytes.

They are written here as their first vector grows, and read through the zip's directory, never through the pickle in
it: so a vector is a plain range of the file, and opening a stranger's file runs no code.
"""

from __future__ import annotations

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

from packer._formats.torchpickle import pickled_vectors
from packer._storage.files import AppendFile
from packer._storage.packfile import PackFile
from packer._table import Buffer, blocks
from packer.errors import CorruptPackError, printable

__all__ = ["TorchFile", "compare_checksums", "member_of", "members_of", "require_types"]

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
_CHUNK = 1 << 16  # bytes
_MOST_PICKLE = 1 << 18  # bytes; one of packer's takes some hundred, and as many a column
_STORAGE = re.compile(rb"[A-Z][A-Za-z0-9]*Storage")
# What `torch.save` names its members, below a directory of any name; there are fewer than 1000 vectors.
_MEMBER = re.compile(
    r"[^/]+/(data/\d{1,3}|data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id)"
)
# What zipfile raises of damaged files. A member that claims to be encrypted, or of a later version, is a RuntimeError.
_ZIP_ERRORS = (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)


class TorchFile:
    """Writes one .pth: a dict of vectors, the first of which may grow as it is written.

    The members are numbered in the order of the dict's keys, which is what lets a reader find them by number.
    """

    def __init__(self, path: Path, written: int = 0, crc: int = 0, *, cached: bool = True) -> None:
        self._stem = path.stem
        self._members: list[tuple[bytes, int, int, int]] = []  # name, where its header is, size, CRC-32
        self._keys: dict[str, tuple[str, int]] = {}  # key of the dict: storage and length
        self._first = len(self._header("data/0", 0, 0, at=0))
        self.file = AppendFile(path, keep=self._first + written if written else 0, cached=cached)
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
    """Return where the members of a zip lie in its file, and their sizes."""
    with opened_zip(file) as (_, members):
        return members


def require_types(file: PackFile, place: tuple[int, int], dtypes: Iterable[str]) -> None:
    """Raise CorruptPackError where the pickle at a place speaks of other types of elements than `dtypes`.

    The pickle is not run: the storages that it names are looked for in its bytes.
    """
    at, size = place
    if size > _MOST_PICKLE:
        raise CorruptPackError(f"its pickle has {size} bytes, and {_MOST_PICKLE} at most", file.path)
    found = {name.decode() for name in _STORAGE.findall(file.read(at, size))}
    wanted = {_STORAGES[dtype] for dtype in dtypes}
    if found != wanted:
        has, wants = (", ".join(sorted(names)) or "none" for names in (found, wanted))
        raise CorruptPackError(f"its vectors are of other types than the manifest says: {has}, not {wants}", file.path)


def compare_checksums(file: PackFile, leave_out: str = "") -> None:
    """Read the members of a zip but the one of this name; CorruptPackError where one does not fit its CRC-32."""
    with opened_zip(file) as (archive, _):
        for info in archive.infolist():
            if info.filename != leave_out:
                with archive.open(info) as member:
                    while member.read(_CHUNK):
                        pass


@contextmanager
def opened_zip(file: PackFile) -> Iterator[tuple[zipfile.ZipFile, dict[str, tuple[int, int]]]]:
    """Open a zip, and give where its members lie; CorruptPackError where it is not as `torch.save` writes one."""
    try:
        with zipfile.ZipFile(file.stream(most=_MOST_DIRECTORY)) as archive:
            yield archive, _placed(archive.infolist(), file)
    except _ZIP_ERRORS as error:
        raise CorruptPackError(f"not a complete .pth file: {error}", file.path) from error


def _placed(infos: Sequence[zipfile.ZipInfo], file: PackFile) -> dict[str, tuple[int, int]]:
    """Return where members lie; CorruptPackError where one is compressed, unknown, or in the place of another."""
    members: dict[str, tuple[int, int]] = {}
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise CorruptPackError("its members are compressed", file.path)
        if not _MEMBER.fullmatch(info.filename):
            raise CorruptPackError(f"it has a member that no pack has: {printable(info.filename)}", file.path)
        if info.filename in members or info.header_offset < end:
            raise CorruptPackError(f"its member {printable(info.filename)} is listed twice, or overlaps", file.path)
        header = _LOCAL.unpack(file.read(info.header_offset, _LOCAL.size))
        at = info.header_offset + _LOCAL.size + header[9] + header[10]
        members[info.filename] = at, info.file_size
        end = at + info.file_size
    return members


def member_of(members: Mapping[str, tuple[int, int]], name: str, path: str) -> tuple[int, int]:
    if name not in members:
        raise CorruptPackError(f"it has no member {name}", path)
    return members[name]
