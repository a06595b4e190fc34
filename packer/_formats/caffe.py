"""Caffe's LMDB, as its tool convert_imageset makes it: a Datum each value.

``data.mdb``      the samples, and nothing else: each entry is a sample to NVIDIA's DALI
``classes.txt``   the names of the classes, a line each, where they have names

A key is the number of the sample in eight digits, ``_``, and its name, cut where LMDB's 511 bytes end. A Datum is what
``convert_imageset --encoded`` makes of a file: its bytes, the label, which is an int32, and that it is encoded. A
sample without a label has the label -1, because a Datum that says none has the label 0.

A Datum has no place for fields: packer's index has their values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from packer._containers.lmdbs.lmdbpages import MOST_KEY
from packer._containers.records.message import varint
from packer._formats.contract import NOTHING, Contents, Placed
from packer._formats.foreign import AGAIN, COPIED_FROM, MAX_SHARD_SIZE, ForeignWriter, Listed, one_file
from packer._formats.framing import end_of, framing_checksum
from packer._formats.treewriter import TreeWriter
from packer._storage.packfile import PackFile
from packer._storage.spool import Spool
from packer._table import COLUMNS, Buffer, Sample, Table, encode_name
from packer.errors import DestinationError, printable

__all__ = ["CaffeWriter"]

_DATA = "data.mdb"
_RANGE = struct.Struct("<qq")
_MOST_SAMPLES = 10**8  # whose numbers have eight digits
_MOST_BYTES = 1 << 31  # of a protocol buffer
_DATA_TAG, _LABEL_TAG, _IS_ENCODED = b"\x22", b"\x28", b"\x38\x01"


class CaffeWriter(ForeignWriter):
    """Writes an LMDB file that Caffe reads.

    No options: Caffe opens one file.
    """

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self.check_options(options)
        if contents.codec == "raw":
            raise DestinationError("Caffe has pixels plane after plane, and packer does not. Choose --codec png")
        if contents.label_type == "float":
            raise DestinationError("a label of Caffe's is an int32, and these are floats. Choose another format.")
        super().__init__(path, MAX_SHARD_SIZE, written, contents)
        self._tree, self._count = TreeWriter(path.parent), 0
        self._images = Spool(path.parent)  # where each lies
        self._complete: list[Listed] | None = None
        self._resume(written)
        self._open_copies({_DATA})

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        one_file(".caffe", options)

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if rows > _MOST_SAMPLES:
            raise DestinationError(f"{rows:,} samples are too many for Caffe, whose keys have eight digits")

    def append(self, sample: Sample) -> Placed:
        name = encode_name(sample.name)
        offset = self._put(name, sample.label, len(sample.data), sample.data)
        self._names += len(name)
        return Placed(offset, tuple(self._copy(sample)))

    def flush(self) -> None:
        super().flush()
        self._tree.flush()

    def sync(self) -> None:
        self._tree.sync()
        super().sync()

    def complete(self) -> list[Listed]:
        if self._complete is None:
            size, images = self._tree.finish(), self._images.array("<i8").reshape(-1, 2)
            images = images[np.argsort(images[:, 0], kind="stable")]  # the nodes of a leaf fill it from its end
            with PackFile(self._path, _DATA) as file:
                framing = framing_checksum(file, [(begin, end) for begin, end in images.tolist()])
            self._complete = [Listed(_DATA, size, framing, self._count)]
        return self._complete

    def close(self) -> None:
        super().close()
        self._tree.close()
        self._images.close()

    def _put(self, name: bytes, label: int | float, size: int, data: Buffer | None = None) -> int:
        """Place an image, and write it where it is given; return where it begins."""
        if not -(1 << 31) <= label < 1 << 31:
            raise DestinationError(
                f"{_shown(name)}: a label of Caffe's is an int32, which cannot hold {label}. Choose another format."
            )
        before = _DATA_TAG + varint(size)
        after = _LABEL_TAG + varint(int(label)) + _IS_ENCODED
        whole = len(before) + size + len(after)
        if whole >= _MOST_BYTES:
            raise DestinationError(f"{_shown(name)}: {size} bytes are too many for a Datum")
        key = (b"%08d_" % self._count + name)[:MOST_KEY]
        offset = self._tree.put(key, whole, () if data is None else (before, data, after)) + len(before)
        self._images.append(_RANGE.pack(offset, offset + size))
        self._count += 1
        return offset

    def _copy(self, sample: Sample) -> list[int]:
        """Copy the blobs of a sample; return where they begin."""
        offsets = [0] * len(self._blob_fields)
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is not None and not isinstance(stored, (int, float)):
                offsets[self._blob_fields[one.name]] = COPIED_FROM + self._copied
                self._copies.append(stored)
                self._copied += len(stored)
        return offsets

    def _resume(self, written: Table) -> None:
        """Place the samples of an earlier run where they lie, and find what was copied of them."""
        for index, name in enumerate(written.sample_names()):
            row = written.row(index)
            if self._put(encode_name(name), row.label, row.size) != row.offset:
                raise DestinationError(f"{printable(self._path)}: does not fit its journal. {AGAIN}")
        self._copied = end_of(written, len(written), COPIED_FROM) - COPIED_FROM
        self._tree.open(self._path / _DATA, cached=self._contents.cached)


def _shown(name: bytes) -> str:
    return printable(name.decode("utf-8", "surrogateescape"))
