"""What is fuzzed: functions of bytes that may raise `PackerError` and nothing else, and whose promises are asserted.

Checksums would keep a fuzzer out of everything behind them, so manifests are sealed anew before they are read.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from packer.errors import ImageError, PackerError
from packer.formats import Reader, open_pack
from packer.formats.base import table_from
from packer.images.decode import DECODERS, decode
from packer.images.inspect import inspect
from packer.images.jpeg import read_header
from packer.sample import COLUMNS, Manifest
from packer.verify import verify

__all__ = ["TARGETS", "joined", "seal"]

_MAX_PIXELS = 1 << 18
_SEAL = b',"crc32c":"'
_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_directory = Path(tempfile.mkdtemp(prefix="packer-fuzz-", dir=_memory))
atexit.register(shutil.rmtree, _directory, ignore_errors=True)
_open_manifest = Manifest.from_json.__func__  # type: ignore[attr-defined]


def seal(text: bytes) -> bytes:
    """Return a manifest with the checksum that fits the rest of it."""
    body = text.rpartition(_SEAL)[0] or text
    return body + _SEAL + b"%08x" % google_crc32c.value(body) + b'"}'


def joined(*parts: bytes) -> bytes:
    """Return several files as one input, behind their lengths."""
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _split(data: bytes, count: int) -> list[bytes]:
    parts = []
    for _ in range(count):
        length = int.from_bytes(data[:4], "little")
        parts.append(data[4 : 4 + length])
        data = data[4 + length :]
    return parts


def _read_pack(path: Path) -> None:
    Manifest.from_json = classmethod(lambda cls, text, where: _open_manifest(cls, seal(text), where))  # type: ignore[method-assign, assignment]
    try:
        with contextlib.suppress(PackerError):
            with open_pack(path, check="never") as reader:
                _read_all(reader)
            verify(path, workers=1)
    finally:
        Manifest.from_json = classmethod(_open_manifest)  # type: ignore[method-assign, assignment]


def _read_all(reader: Reader) -> None:
    list(itertools.islice(reader.check_structure(), 100))
    for index in itertools.chain(range(min(len(reader), 30)), [-1]):
        with contextlib.suppress(PackerError, IndexError):
            assert len(reader.read(index)) == reader.table.size[index]
    names = reader.table.sample_names()
    for index in range(min(len(names), 30)):
        with contextlib.suppress(IndexError):
            assert isinstance(names[index], str)


def lmdb(data: bytes) -> None:
    """Open and read an LMDB pack."""
    path = _directory / "pack.lmdb"
    path.write_bytes(data)
    _read_pack(path)


def hdf5(data: bytes) -> None:
    """Open and read an HDF5 pack."""
    path = _directory / "pack.h5"
    path.write_bytes(data)
    _read_pack(path)


def pth(data: bytes) -> None:
    """Open and read a .pth pack of one shard."""
    path = _directory / "pack.pth"
    path.mkdir(exist_ok=True)
    for name, part in zip(("manifest.json", "table.pth", "shard-00000.pth"), _split(data, 3), strict=True):
        (path / name).write_bytes(part)
    _read_pack(path)


def manifest(data: bytes) -> None:
    """Read a manifest; what is accepted comes back as it was."""
    try:
        read = Manifest.from_json(seal(data), "manifest")
    except PackerError:
        return
    again = Manifest.from_json(read.to_json(), "manifest")
    assert repr(again) == repr(read)  # NaN is not itself
    read.identity()


def table(data: bytes) -> None:
    """Build a table of any bytes and read its rows."""
    parts = dict(zip(COLUMNS, _split(data, len(COLUMNS)), strict=True))
    columns: dict[str, Any] = {}
    for name, dtype in COLUMNS.items():
        size = np.dtype(dtype).itemsize
        columns[name] = np.frombuffer(parts[name][: len(parts[name]) // size * size], dtype)
    try:
        rows = table_from(columns, "table")
    except PackerError:
        return
    for index in range(len(rows)):
        with contextlib.suppress(IndexError):
            rows.matches(index, b"data")
            rows.sample_names()[index].encode("utf-8", "surrogateescape")


def sniff(data: bytes) -> None:
    """Say what an image is, from its bytes."""
    read_header(data)
    try:
        info = inspect(data, _MAX_PIXELS)
    except ImageError:
        return
    assert 0 < info.height * info.width <= _MAX_PIXELS
    assert info.orientation in range(1, 9)


def image(data: bytes) -> None:
    """Decode an image: every decoder gives the same pixels, of the size that was announced, or none does."""
    found = []
    for decoder in DECODERS:
        try:
            found.append(decode(data, decoder=decoder, max_pixels=_MAX_PIXELS))
        except ImageError:
            found.append(None)
    first = found[0]
    for pixels in found[1:]:
        assert (pixels is None) == (first is None), [None if p is None else p.shape for p in found]
        assert first is None or np.array_equal(pixels, first)
    try:
        info = inspect(data, _MAX_PIXELS)
    except ImageError:
        return
    if first is not None:
        assert first.shape == (info.height, info.width, 3)


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function for function in (lmdb, hdf5, pth, manifest, table, sniff, image)
}

warnings.simplefilter("ignore")  # Pillow's remarks about odd images
