"""HDF5: one file; `data` holds all samples, one after the other, and every column of the table is a dataset.

`data` is contiguous: no chunks, no filters, no variable lengths. So a sample is a plain range of the file, and packer
reads it without libhdf5 and its global lock. While writing, packer leaves a gap at the beginning of the file and
appends the samples behind this gap. At the end, libhdf5 writes the file's structure around the samples.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from packer._containers.hdf5 import is_packers
from packer._formats.contract import NOTHING, Contents, Locations, Placed, Writer
from packer._formats.reader import FileReader, table_from
from packer._manifest import Manifest
from packer._storage.files import AppendFile, writing_to
from packer._storage.packfile import NOWHERE, PackFile
from packer._storage.place import Place
from packer._table import Buffer, Ints, Sample, Table, blocks
from packer.errors import CorruptPackError, DestinationError, NotAPackError, printable

_DATA_AT = 4096
_ALIGNED_FROM = 1 << 16  # libhdf5 aligns objects as large as this, and packs smaller ones together
_STRUCTURE = 8192  # bytes that libhdf5 takes for its structure at a time
_MOST_STRUCTURE = 1 << 20  # bytes that libhdf5 reads at once: it reads only the structure, whose parts are small
_BESIDE = 1 << 16  # bytes: the structure, and the manifest after it
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEADER = b"OHDR"  # begins the header of a group or a dataset
_ROOT_AT = 48  # where libhdf5 puts the header of the root group
_MARK = re.compile(rb"format\0\x13.{3}\x06\0{3}.{4}packer", re.DOTALL)
"""The attribute `format`, a text of 6 bytes, which libhdf5 puts at the beginning of the files that are made here."""

_LINKS = tuple(
    re.compile(b"\\x01\\0" + re.escape(bytes([len(name)])) + name + b"(.{8})", re.DOTALL)
    for name in (b"manifest", b"crc32c", b"name_end")
)
"""Each matches a link from the root group to a dataset, and captures the address of the dataset's header.

Only packer's files have all of these datasets.
"""

_LARGEST_END = 1 << 22  # bytes at the end of a file in which links are searched


class HDF5Writer(Writer):
    """Appends samples, then has libhdf5 write the structure around them."""

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._path = path
        self._end = int(written.extent().sum())
        self._file = AppendFile(path, keep=_DATA_AT + self._end if len(written) else 0, cached=contents.cached)
        if not len(written):
            self._file.append(bytes(_DATA_AT))

    def append(self, sample: Sample) -> Placed:
        offset = self._end
        for part in sample.parts:
            self._file.append(part)
            self._end += len(part)
        return Placed(offset)

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        self._file.sync()

    def commit(self, manifest: Manifest, table: Table) -> None:
        # libhdf5 puts a dataset of 64 KiB or more at a multiple of 4096, and the first of them right after its head.
        length = max(self._end, _ALIGNED_FROM)
        self._file.append(bytes(length - self._end))
        self._file.flush()
        self._file.sync()  # the data are on the disk before the header that makes them valid
        with writing_to(self._path), open(self._path, "r+b", buffering=0) as raw:
            frame = _Frame(raw)
            with h5py.File(
                frame,
                "w",
                libver=("v108", "v108"),  # the newest structure that HDF5 1.8 reads, and the oldest with checksums
                alignment_threshold=_ALIGNED_FROM,
                alignment_interval=_DATA_AT,
                meta_block_size=_STRUCTURE,
            ) as file:
                if _reserve(file, length) != _DATA_AT:
                    raise DestinationError(
                        f"{printable(self._path)}: HDF5 {h5py.version.hdf5_version} writes another file layout than "
                        "expected; please report this version"
                    )
                # All of the structure first, which libhdf5 puts into one block before the values.
                values = {"manifest": np.frombuffer(manifest.to_json(), np.uint8), **table.columns()}
                for name, value in values.items():
                    file.create_dataset(name, value.shape, value.dtype, track_times=False)
                file.attrs["format"] = np.bytes_(b"packer")
                file.attrs["schema"] = np.int64(manifest.schema)
                file.flush()  # some of the structure is allocated only now
                for name, value in values.items():
                    start = 0
                    for block in blocks(value):
                        file[name][start : start + len(block)] = block
                        start += len(block)
            if frame.error is not None:
                raise frame.error
            raw.truncate(frame.end)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _reserve(file: h5py.File, length: int) -> int:
    """Create the dataset `data` without writing to it; return its offset."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.CONTIGUOUS)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    settings.set_obj_track_times(False)
    space = h5py.h5s.create_simple((length,))
    dataset = h5py.h5d.create(file.id, b"data", h5py.h5t.STD_U8LE, space, settings)
    return int(dataset.get_offset() or 0)


class _Frame(io.RawIOBase):
    """A file object for libhdf5 that looks empty at first, so that libhdf5 creates a structure.

    It never truncates the file on the disk.

    A disk error is stored in `error` for the caller, because libhdf5 cannot handle one while closing.
    """

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw
        self._position = 0
        self.end = 0
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.end}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._raw.seek(self._position)
        count = self._raw.readinto(buffer) or 0
        self._position += count
        return count

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        end = self._position + len(rest)
        try:
            self._raw.seek(self._position)
            while rest:
                rest = rest[self._raw.write(rest) or 0 :]
        except OSError as error:
            self.error = error
        self._position, self.end = end, max(self.end, end)
        return len(memoryview(data).cast("B"))

    def truncate(self, size: int | None = None) -> int:
        self.end = self._position if size is None else size
        return self.end


class HDF5Reader(FileReader):
    """Finds the datasets through libhdf5, and reads them as plain ranges of the file."""

    @classmethod
    def shows_mark(cls, place: Place) -> bool:
        """Tell whether packer wrote a file: the file has packer's attribute `format`, or links to packer's datasets.

        Links are searched only if the file's signature is damaged. libhdf5 is not used, because it does not open a
        damaged file. If the signature is damaged, the position of HDF5's first header is checked too, because a file of
        another kind, such as an archive, may contain a whole pack.
        """
        with place.open() as file:
            head = file.read(0, min(_DATA_AT, file.size))
            marked = _MARK.search(head) is not None
            if not head.startswith(_SIGNATURE):
                marked = (marked and head.startswith(_HEADER, _ROOT_AT)) or _links_to_columns(file)
        return marked or super().shows_mark(place)

    def _open(self) -> tuple[Manifest, Table]:
        if not self.place.is_a_file():
            raise NotAPackError("not an HDF5 file", self.path)
        self._file = self.place.open()
        if self._file.size < len(_SIGNATURE) or self._file.read(0, len(_SIGNATURE)) != _SIGNATURE:
            raise NotAPackError("not an HDF5 file", self.path)
        try:
            # Through the open file: its path may belong to another file by now, and libhdf5 refuses a path that this
            # process has open with other settings.
            with h5py.File(self._file.stream(_MOST_STRUCTURE, _BESIDE), "r") as file:
                if not is_packers(file):
                    raise NotAPackError("an HDF5 file that packer did not write", self.path)
                manifest_at, manifest_size = self._find(file, "manifest", "|u1")
                manifest = Manifest.from_json(self._file.read(manifest_at, manifest_size), self.path)
                types = manifest.column_types
                ranges = {name: self._find(file, name, dtype) for name, dtype in types.items()}
                self._data_at, self._data_size = self._find(file, "data", "|u1")
                if self._data_at + self._data_size > self._file.size:
                    raise CorruptPackError(
                        "the file was cut short, or the dataset 'data' is not stored in it", self.path
                    )
        except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
            raise CorruptPackError(f"libhdf5 cannot read its structure: {error}", self.path) from error
        self._file.keep_together([(at, count * np.dtype(types[name]).itemsize) for name, (at, count) in ranges.items()])
        columns = self._file.vectors({name: (*one, types[name]) for name, one in ranges.items()})
        return manifest, table_from(columns, manifest, self.path)

    def _fetch(self, offset: int, size: int) -> Buffer:
        if offset < 0 or size < 0 or offset + size > self._data_size:
            raise CorruptPackError("its row points outside the data", self.path)
        return self._file.read(self._data_at + offset, size)

    def _locate(self, offset: Ints, size: Ints) -> Locations:
        inside = (offset >= 0) & (size >= 0) & (offset <= self._data_size - size)
        file, position, held = self._file.locate(self._data_at + np.where(inside, offset, 0), size)
        return Locations(np.where(inside, file, NOWHERE), position, held)

    def _find(self, file: h5py.File, name: str, dtype: str) -> tuple[int, int]:
        """Return offset and length of a dataset; refuse a dataset that is not a plain range of this file.

        The identifiers of h5py's low-level interface are used: its objects take twice as long.
        """
        key = name.encode()
        try:
            link = file.id.links.get_info(key).type
        except (KeyError, RuntimeError):  # as h5py's version reports a missing link
            link = None
        dataset = h5py.h5o.open(file.id, key) if link == h5py.h5l.TYPE_HARD else None
        if not isinstance(dataset, h5py.h5d.DatasetID):
            raise CorruptPackError(f"{name!r} is not a dataset in the file itself", self.path)
        created = dataset.get_create_plist()
        plain = created.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT) and not created.get_external_count()
        if not plain or dataset.dtype != np.dtype(dtype) or dataset.rank != 1:
            raise CorruptPackError(f"the dataset {name!r} is not a contiguous vector of {dtype}", self.path)
        offset, (size,) = dataset.get_offset(), dataset.shape
        if offset is None and size:
            raise CorruptPackError(f"the dataset {name!r} is not stored in the file", self.path)
        return offset or 0, int(size)


def _links_to_columns(file: PackFile) -> bool:
    """Tell whether the last 4 MiB of a file have, for each of `_LINKS`, a link that points to a header in the file."""
    begin = max(0, file.size - _LARGEST_END)
    end = file.read(begin, file.size - begin)

    def is_header(address: int) -> bool:
        return address < file.size and file.read(address, min(len(_HEADER), file.size - address)) == _HEADER

    return all(any(is_header(int.from_bytes(found[1], "little")) for found in link.finditer(end)) for link in _LINKS)
