"""The list of a source in one file: made once, and shared by all who convert a part of it.

A header of 32 bytes (magic, length of the JSON, its CRC-32C), the JSON, zeros up to a multiple of 64, then columns:

stamps      three int64 a file: size, time, and the CRC-32C of these two; none where the samples are a pack's
labels      an int64 an image, or a float64, as the JSON says
name ends   an int64 an image
checksums   a uint32 for every 4096 images: the CRC-32C of their labels, then of their ends, then of their names
names       bytes; labels, ends and names are as in `Source`
fields      where there are any; see `packer._sources.listedfields`

Numbers are little-endian. A stamp has a checksum of its own because it may be replaced by `MENDABLE`. The images of a
part are compared with the checksums of their blocks, so that a task reads no more of the list than it needs.

By this list an interrupted conversion, and the tasks of a job, recognise files that have changed since.

The JSON has the account of the source, which lists of older packers lack. Lists with fields are of version 5, all
others of version 4. Lists of version 3 have class ids for labels, and say nothing of files that were not looked at.
Lists of version 2 have no checksums either, and two int64 a stamp. Their labels and names are compared with the digest
in the JSON, all of them whichever part is wanted; their stamps cannot be compared with anything.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._account import REPORTED, Account
from packer._sample import LABEL_TYPES
from packer._sources.base import Source, listing_digest
from packer._sources.fieldvalues import Column
from packer._sources.listedfields import (
    block_checksum,
    described_columns,
    listed_columns,
    padding,
    stored_columns,
)
from packer._sources.listheader import KIND, advice, packed_header, read_header
from packer._sources.others import OtherFiles
from packer._storage.files import AppendFile, PatchFile, replacing
from packer._storage.packfile import PackFile
from packer._storage.place import place_of
from packer._storage.remote.urls import is_url
from packer._storage.stamps import MENDABLE, Stamps, same_stamp, stamp_in
from packer._table import Ints, Labels, Names
from packer.errors import PackError, SourceError, printable

__all__ = ["ListedSource", "is_listing", "let_mend", "listed_source", "write_listing"]

_STAMP = struct.Struct("<qq")
_CHECKED_STAMP = struct.Struct("<qqq")
_BLOCK = 4096  # images
_WRITTEN = 8 << 20  # bytes at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class ListedSource(Source):
    """A source that was listed before, or some of its images.

    Attributes
    ----------
    listing : Listing
        The whole list.
    first : int
        Which image of the list is the first of this source.
    """

    listing: Listing
    first: int = 0

    def between(self, start: int, stop: int) -> ListedSource:
        self.listing.require_undamaged(self.first + start, self.first + stop)
        names, labels = self.names.between(start, stop), self.labels[start:stop]
        stamps = None if self.stamps is None else self.stamps[start:stop]
        columns = tuple(column.taken(slice(start, stop)) for column in self.columns)
        return replace(self, names=names, labels=labels, stamps=stamps, columns=columns, first=self.first + start)

    def taken(self, indices: Ints) -> Source:
        self.require_undamaged()
        return Source(**{own.name: getattr(self, own.name) for own in fields(Source)}).taken(indices)

    def require_undamaged(self) -> None:
        self.listing.require_undamaged(self.first, self.first + len(self))

    def describe(self) -> dict[str, str]:
        whole = len(self) == len(self.listing.labels)
        return {"kind": self.kind, "sha256": self.listing.sha256} if whole else super().describe()


@dataclass(frozen=True, eq=False)
class Listing:
    """The columns of a list, and what they are compared with.

    Attributes
    ----------
    path : str
    file : PackFile
        The list, open; of very large lists the columns are mapped.
    classes : list of str
    names : Names
    labels : (N,) int64 or float64 array
    label_type : str
    stamps : (N, 3) int64 array, or (N, 2) in lists of version 2, optional
        Size, time and CRC-32C.
    checksums : (B,) uint32 array, optional
        CRC-32C of every block of images; None in lists of version 2.
    sha256 : str
        The digest of classes, names, labels and fields, taken when they were listed.
    columns : tuple of Column
        The values of fields.
    of_columns : (B,) uint32 array, optional
        CRC-32C of the values of every block of images; None where there are no fields.
    """

    path: str
    file: PackFile
    classes: list[str]
    names: Names
    labels: Labels
    label_type: str
    stamps: npt.NDArray[np.int64] | None
    checksums: npt.NDArray[np.uint32] | None
    sha256: str
    columns: tuple[Column, ...] = ()
    of_columns: npt.NDArray[np.uint32] | None = None

    def require_undamaged(self, start: int, stop: int) -> None:
        """Compare images `start` to `stop` - 1 with their checksums; SourceError where these do not fit."""
        try:
            self.file.require_whole()
        except PackError as error:
            raise SourceError(f"{printable(error)}. {advice(self.path)}") from error
        if self.checksums is None:
            fits = listing_digest(self.classes, self.names, self.labels, self.label_type) == self.sha256
        else:
            blocks = range(start // _BLOCK, -(-stop // _BLOCK))
            fits = all(_block_checksum(self.names, self.labels, block) == self.checksums[block] for block in blocks)
            fits = fits and (self.stamps is None or _fit(self.stamps[start:stop]))
            if self.of_columns is not None:
                sums = self.of_columns[blocks.start : blocks.stop]
                fits = fits and np.array_equal([_checksum_of_fields(self.columns, block) for block in blocks], sums)
        if not fits:
            raise SourceError(f"{printable(self.path)}: the list is damaged. {advice(self.path)}")


def write_listing(source: Source, path: Path) -> None:
    """Write the list of a source, with the stamps of its files; it appears at `path` when it is complete.

    Raises
    ------
    SourceError
        If the disk with the files fails.
    DestinationError
        If the list cannot be written.
    """
    source.require_undamaged()
    source = source.stamped()
    stamps = np.empty((0, 2), np.int64) if source.stamps is None else source.stamps
    blocks = range(_blocks(len(source)))
    checksums = np.array([_block_checksum(source.names, source.labels, block) for block in blocks], np.uint32)
    description = source.describe()
    header = {
        "kind": source.kind,
        # A URL is listed without its secrets: others may read the list, and nobody opens it to read from that source.
        "root": str(source.root) if is_url(source.root) else os.path.abspath(source.root),
        "count": len(source),
        "names": len(source.names.blob),
        "stamps": len(stamps),
        "classes": source.classes,
        "notes": source.notes,
        "label_type": source.label_type,
        "others": {"counts": source.others.counts, "names": source.others.names},
        "sha256": description["sha256"],
    }
    if source.columns:
        header["fields"] = described_columns(source.columns)
    if source.about:
        header["about"] = source.about
    if source.doubts:
        header["doubts"] = source.doubts
    if source.account is not None:
        header["account"] = source.account.to_json(REPORTED)
    with replacing(path) as file:
        file.append(*packed_header(header))
        for start in range(0, len(stamps), _BLOCK):
            block = stamps[start : start + _BLOCK]
            _append(file, np.column_stack([block, _stamp_checksums(block)]))
        for column in (source.labels, source.names.ends, checksums, source.names.blob):
            _append(file, column)
        if source.columns:
            of_columns = np.array([_checksum_of_fields(source.columns, block) for block in blocks], np.uint32)
            for column in (*stored_columns(source.columns), of_columns):
                file.append(bytes(padding(file.size)))
                _append(file, column)


def is_listing(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is the list of a source at `path`."""
    try:
        with PackFile(path) as file:
            return file.size >= len(KIND) and file.read(0, len(KIND)) == KIND
    except PackError:
        return False


def listed_source(path: str | os.PathLike[str]) -> ListedSource:
    """Open the list of a source, at a path or a URL, in constant time.

    Raises
    ------
    SourceError
        If the list is damaged so that it cannot be opened. All other damage is found by `Source.require_undamaged`.
    """
    try:
        file = place_of(path).open()
        header, start, checked = read_header(file)
        count, stamped, width = header["count"], header["stamps"], 3 if checked else 2
        stamps = file.array(start, width * stamped, "<i8").reshape(-1, width) if stamped else None
        start += 8 * width * stamped
        labels = file.array(start, count, LABEL_TYPES[header["label_type"]])
        ends = file.array(start + 8 * count, count, "<i8")
        start += 16 * count
        checksums = file.array(start, _blocks(count), "<u4") if checked else None
        start += 4 * _blocks(count) if checked else 0
        names = Names(file.array(start, header["names"], "|u1"), ends)
        start += header["names"]
        columns, start = listed_columns(file, start, count, header["fields"], Path(header["root"]))
        of_columns = file.array(start, _blocks(count), "<u4") if columns else None
    except (PackError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{printable(error)}. {advice(path)}") from error
    classes, label_type = header["classes"], header["label_type"]
    listing = Listing(
        os.fspath(path),
        file,
        classes,
        names,
        labels,
        label_type,
        stamps,
        checksums,
        header["sha256"],
        columns,
        of_columns,
    )
    return ListedSource(
        header["kind"],
        Path(header["root"]),
        names,
        labels,
        classes,
        header["notes"],
        None if stamps is None else stamps[:, :2],
        label_type,
        OtherFiles(header["others"]["counts"], header["others"]["names"]),
        tuple(column.field for column in columns),
        columns,
        about=tuple(header.get("about", ())),
        doubts=tuple(header.get("doubts", ())),
        account=Account.from_json(header["account"]) if "account" in header else None,
        listing=listing,
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
        _, start, checked = read_header(file)
    stamp = _STAMP.pack(*MENDABLE)
    if checked:
        stamp = _CHECKED_STAMP.pack(*MENDABLE, google_crc32c.value(stamp))
    with contextlib.closing(PatchFile(path)) as patched:
        patched.write(start + len(stamp) * index, stamp)


def _blocks(count: int) -> int:
    return -(-count // _BLOCK)


def _block_checksum(names: Names, labels: Labels, block: int) -> int:
    """Return the CRC-32C of a block of images; of any number, where the list is damaged."""
    rows = slice(block * _BLOCK, (block + 1) * _BLOCK)
    ends = names.ends[rows]
    first = int(names.ends[rows.start - 1]) if block else 0
    crc = google_crc32c.value(labels[rows].view("<i8").tobytes())
    crc = google_crc32c.extend(crc, ends.astype("<i8", copy=False).tobytes())
    return int(google_crc32c.extend(crc, names.blob[first : int(ends[-1])].tobytes()))


def _checksum_of_fields(columns: Sequence[Column], block: int) -> int:
    return block_checksum(columns, block * _BLOCK, (block + 1) * _BLOCK)


def _stamp_checksums(stamps: Stamps) -> npt.NDArray[np.int64]:
    """Return the CRC-32C of each stamp."""
    data, size = stamps.astype("<i8").tobytes(), _STAMP.size
    return np.array([google_crc32c.value(data[at : at + size]) for at in range(0, len(data), size)], np.int64)


def _fit(stamps: npt.NDArray[np.int64]) -> bool:
    """Tell whether stamps, (N, 3), fit their checksums."""
    blocks = (stamps[start : start + _BLOCK] for start in range(0, len(stamps), _BLOCK))
    return all(np.array_equal(_stamp_checksums(block[:, :2]), block[:, 2]) for block in blocks)


def _append(file: AppendFile, column: npt.NDArray[Any]) -> None:
    little = column.astype(column.dtype.newbyteorder("<"), copy=False)
    data = np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
    for start in range(0, len(data), _WRITTEN):
        file.append(data[start : start + _WRITTEN])
