"""The list of a source in one file: made once, shared by all who convert a part of it, mapped rather than read.

A header of 32 bytes (magic, length of the JSON, its CRC-32C), the JSON, zeros up to a multiple of 64, then the labels
(int64), the names' ends (int64) and the names, as `Names` holds them; numbers are little-endian.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from packer.errors import PackError, SourceError, printable
from packer.formats.files import AppendFile, PackFile, sync_directory, writing_to
from packer.sample import Names
from packer.sources.base import Source

__all__ = ["ScannedSource", "is_scan", "scanned_source", "write_scan"]

_MAGIC = b"packer scan 1\n\0\0"
_HEADER = struct.Struct("<16sQQ")
_ALIGNMENT = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class ScannedSource(Source):
    """A source that was listed before.

    Attributes
    ----------
    sha256 : str
        The digest of names, labels and classes, taken when it was listed.
    """

    sha256: str

    def describe(self) -> dict[str, str]:
        return {"kind": self.kind, "sha256": self.sha256}


def write_scan(source: Source, path: Path) -> None:
    """Write the list of a source of files; it appears at `path` when it is complete."""
    description = source.describe()
    header = {
        "kind": source.kind,
        "root": os.path.abspath(source.root),
        "count": len(source),
        "names": len(source.names.blob),
        "classes": source.classes,
        "notes": source.notes,
        "sha256": description["sha256"],
    }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    partial = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.partial")
    file = AppendFile(partial)
    try:
        file.append(_HEADER.pack(_MAGIC, len(text), google_crc32c.value(text)), text, bytes(_padding(len(text))))
        for column, dtype in ((source.labels, "<i8"), (source.names.ends, "<i8"), (source.names.blob, "|u1")):
            file.append(column.astype(dtype, copy=False).tobytes())
        file.flush()
        file.sync()
        file.close()
        with writing_to(path):
            os.replace(partial, path)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    sync_directory(path.parent)


def is_scan(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is the list of a source at `path`."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def scanned_source(path: str | os.PathLike[str]) -> ScannedSource:
    """Open the list of a source; SourceError where it is damaged."""
    try:
        file = PackFile(path)
        magic, length, crc = _HEADER.unpack(file.read(0, _HEADER.size))
        text = file.read(_HEADER.size, length)
        if magic != _MAGIC or google_crc32c.value(text) != crc:
            raise SourceError(f"{printable(os.fspath(path))}: the list is damaged. Run `packer scan` again.")
        header = json.loads(text)
        start, count = _HEADER.size + length + _padding(length), header["count"]
        labels = file.array(start, count, "<i8")
        ends = file.array(start + 8 * count, count, "<i8")
        blob = file.array(start + 16 * count, header["names"], "|u1")
    except PackError as error:
        raise SourceError(f"{error}. Run `packer scan` again.") from error
    return ScannedSource(
        header["kind"],
        Path(header["root"]),
        Names(blob, ends),
        labels,
        header["classes"],
        header["notes"],
        sha256=header["sha256"],
    )


def _padding(length: int) -> int:
    return -(_HEADER.size + length) % _ALIGNMENT
