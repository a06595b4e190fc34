"""The list of a source in one file: made once, shared by all who convert a part of it, mapped rather than read.

A header of 32 bytes (magic, length of the JSON, its CRC-32C), the JSON, zeros up to a multiple of 64, then the stamps
of the files (int64 pairs; none where the samples are a pack's), the labels (int64), the names' ends (int64) and the
names, as `Names` holds them; numbers are little-endian.

So an interrupted conversion and the tasks of a job know the files by size and time, as they were when they were listed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer.errors import PackError, SourceError, printable
from packer.formats.files import AppendFile, PatchFile, sync_directory, writing_to
from packer.formats.packfile import PackFile
from packer.sample import Names
from packer.sources.base import Source
from packer.sources.stamps import MENDABLE, same_stamp, stamp_in

__all__ = ["ScannedSource", "is_scan", "let_mend", "scanned_source", "write_scan"]

_KIND = b"packer scan "
_MAGIC = _KIND + b"2\n\0\0"
_STAMP = struct.Struct("<qq")
_HEADER = struct.Struct("<16sQQ")
_ALIGNMENT = 64
_WRITTEN = 8 << 20  # bytes at a time


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
    """Write the list of a source, with the stamps of its files; it appears at `path` when it is complete.

    Raises
    ------
    SourceError
        If the disk with the files fails.
    DestinationError
        If the list cannot be written.
    """
    source = source.stamped()
    stamps = np.empty((0, 2), np.int64) if source.stamps is None else source.stamps
    description = source.describe()
    header = {
        "kind": source.kind,
        "root": os.path.abspath(source.root),
        "count": len(source),
        "names": len(source.names.blob),
        "stamps": len(stamps),
        "classes": source.classes,
        "notes": source.notes,
        "sha256": description["sha256"],
    }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    partial = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.partial")
    file = AppendFile(partial)
    try:
        file.append(_HEADER.pack(_MAGIC, len(text), google_crc32c.value(text)), text, bytes(_padding(len(text))))
        for column in (stamps, source.labels, source.names.ends, source.names.blob):
            _append(file, column)
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
        with PackFile(path) as file:
            return file.size >= len(_KIND) and file.read(0, len(_KIND)) == _KIND
    except PackError:
        return False


def scanned_source(path: str | os.PathLike[str]) -> ScannedSource:
    """Open the list of a source; SourceError where it is damaged."""
    try:
        file = PackFile(path)
        header, start = _read_header(file)
        count, stamped = header["count"], header["stamps"]
        stamps = file.array(start, 2 * stamped, "<i8").reshape(-1, 2) if stamped else None
        start += _STAMP.size * stamped
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
        stamps,
        sha256=header["sha256"],
    )


def let_mend(path: Path, source: Source, index: int) -> None:
    """Write down in the list at `path` that image `index`, which stopped a conversion, may become any other.

    That holds for a file that is as it was listed, and so was bad then. One that changed meanwhile stays a changed one.

    Parameters
    ----------
    path : Path
    source : Source
        That of the list.
    index : int

    Raises
    ------
    PackError, SourceError, DestinationError
        If that fails.
    """
    if source.stamps is None or not same_stamp(stamp_in(source.stamps, index), source.stamp(index)):
        return
    with contextlib.closing(PackFile(path)) as file:
        _, start = _read_header(file)
    with contextlib.closing(PatchFile(path)) as patched:
        patched.write(start + _STAMP.size * index, _STAMP.pack(*MENDABLE))


def _append(file: AppendFile, column: npt.NDArray[Any]) -> None:
    little = column.astype(column.dtype.newbyteorder("<"), copy=False)
    data = np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
    for start in range(0, len(data), _WRITTEN):
        file.append(data[start : start + _WRITTEN])


def _read_header(file: PackFile) -> tuple[dict[str, Any], int]:
    """Return the JSON of a list, and where its stamps begin."""
    magic, length, crc = _HEADER.unpack(file.read(0, _HEADER.size))
    text = file.read(_HEADER.size, length)
    shown = printable(file.path)
    if magic.startswith(_KIND) and magic != _MAGIC:
        raise SourceError(f"{shown}: another version of packer wrote the list. Run `packer scan` again.")
    if magic != _MAGIC or google_crc32c.value(text) != crc:
        raise SourceError(f"{shown}: the list is damaged. Run `packer scan` again.")
    header: dict[str, Any] = json.loads(text)
    return header, _HEADER.size + length + _padding(length)


def _padding(length: int) -> int:
    return -(_HEADER.size + length) % _ALIGNMENT
