"""A file with the list of a source's images: `packer scan` writes it, and all tasks of a conversion in parts read it.

The file has a header of 32 bytes (magic, length of the JSON, its CRC-32C), the JSON, zeros up to a multiple of 64, and
then columns:

stamps      three int64 for each file: size, time, and the CRC-32C of these two; none for samples of a pack
labels      an int64 or a float64 for each image; the JSON has the type
name ends   an int64 for each image
checksums   a uint32 for every 4096 images: the CRC-32C of their labels, then of their ends, then of their names
names       bytes; labels, ends and names are as in `Source`
fields      if there are any; see below

Numbers are little-endian. A stamp has its own checksum because the stamp `MENDABLE` can replace it later. A task reads
only those blocks of the list that contain images of its part, and compares the checksums of these blocks.

An interrupted conversion that continues, and the tasks of a conversion in parts, use the list to detect files that have
changed since the listing.

The JSON also contains the account of the source, which has the outcome for every file. Lists with fields have version
5, all others version 4. Lists of earlier versions contain less and are refused; `packer scan` makes new ones.

Fields have these columns, each of which begins at a multiple of 8 bytes:

a scalar or a class     its values, in the field's dtype or int64; then a byte for each value, 1 if it is missing
bytes, or files         an int64 for each value, its offset; an int64, its size, -1 if missing; then all values,
                        which are paths where the values are files

After these columns comes a uint32 for every 4096 images: the CRC-32C of the bytes that `Column.content` yields for
these images, first for the first field, then for the second field, and so on."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._account import REPORTED, Account
from packer._codecs import LABEL_TYPES
from packer._fields import DTYPES, Field
from packer._sources.base import (
    SIZE_FIELDS,
    BlobColumn,
    Column,
    FileColumn,
    NumberColumn,
    OtherFiles,
    RangeColumn,
    Rows,
    Source,
)
from packer._storage.files import AppendFile, PatchFile, replacing
from packer._storage.packfile import PackFile
from packer._storage.place import place_of
from packer._storage.remote.urls import is_url
from packer._storage.stamps import MENDABLE, Stamps, same_stamp, stamp_in
from packer._table import Labels, Names, encode_name
from packer.errors import PackError, SourceError, option, printable

KIND = b"packer scan "
_MAGIC = KIND + b"4\n\0\0"
_WITH_FIELDS = KIND + b"5\n\0\0"
_HEADER = struct.Struct("<16sQQ")
_ALIGNMENT = 64
_MOST = 1 << 48  # limits on images and bytes of names, so that offsets fit into 64 bits


def packed_header(header: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """Return the three pieces that a list begins with: the header of 32 bytes, the JSON, and the zeros after it."""
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    magic = _WITH_FIELDS if "fields" in header else _MAGIC
    return _HEADER.pack(magic, len(text), google_crc32c.value(text)), text, bytes(_padding(len(text)))


def read_header(file: PackFile) -> tuple[dict[str, Any], int]:
    """Return the parsed JSON of a list, and the offset of its stamps; SourceError if it is damaged."""
    magic, length, crc = _HEADER.unpack(file.read(0, _HEADER.size))
    known = magic in (_MAGIC, _WITH_FIELDS)
    shown = printable(file.path)
    if magic.startswith(KIND) and not known:
        raise SourceError(f"{shown}: another version of packer wrote the list. {advice(file.path)}")
    text = file.read(_HEADER.size, length)
    if not known or google_crc32c.value(text) != crc:
        raise SourceError(f"{shown}: the list is damaged. {advice(file.path)}")
    try:
        header = json.loads(text)
        if magic != _WITH_FIELDS:
            header["fields"] = []
        _require_types(header)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(f"{shown}: the list is damaged: {printable(str(error))}. {advice(file.path)}") from error
    return header, _HEADER.size + length + _padding(length)


def _require_types(header: dict[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError if a member of the JSON is missing or invalid."""
    kinds = {"kind": str, "root": str, "count": int, "names": int, "stamps": int}
    kinds |= {"classes": list, "notes": list, "sha256": str, "label_type": str, "others": dict, "fields": list}
    wrong = [name for name, kind in kinds.items() if type(header[name]) is not kind]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: wrong type")
    count, classes, notes = header["count"], header["classes"], header["notes"]
    counts, names = header["others"]["counts"], header["others"]["names"]
    if type(counts) is not dict or type(names) not in (list, type(None)) or header["label_type"] not in LABEL_TYPES:
        raise ValueError("the label type, or the list of files that were not looked at, is invalid")
    if not (0 <= count < _MOST and 0 <= header["names"] < _MOST and header["stamps"] in (0, count)):
        raise ValueError(f"{count} images do not fit {header['names']} bytes of names and {header['stamps']} stamps")
    if not all(type(text) is str for text in [*classes, *notes, *(names or ())]):
        raise ValueError("a member has elements of the wrong type")
    for text in (header["kind"], header["root"], header["sha256"], *classes, *notes):
        encode_name(text)  # UnicodeEncodeError is a ValueError
    if not all(type(entry) is dict for entry in header.get("about", ())):
        raise ValueError("the annotations without an image are invalid")
    for doubt in header.get("doubts", ()):
        encode_name(f"{doubt['name']}{doubt['reason']}")  # UnicodeEncodeError is a ValueError
    if not all(type(number) is int for number in counts.values()):
        raise ValueError("a member has elements of the wrong type")
    if "account" in header:
        Account.from_json(header["account"])  # ValueError if it is invalid
    if "\0" in header["root"]:
        raise ValueError("the root contains a NUL")


def advice(path: str | os.PathLike[str]) -> str:
    """Return the sentence that tells how to make a list again, whether `packer scan` or a conversion wrote it."""
    unfinished = Path(path).absolute().parent.suffix == ".partial"
    return f"Pass {option('fresh', True)} to start over." if unfinished else "Run `packer scan` again."


def _padding(length: int) -> int:
    return -(_HEADER.size + length) % _ALIGNMENT


_FIELD_ALIGNMENT = 8


def described_columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return a description of each field, in the form that the JSON of a list contains."""
    return [
        {"field": column.field.to_json(), "files": isinstance(column, FileColumn), "bytes": _bytes(column)}
        for column in columns
    ]


def stored_columns(columns: Sequence[Column]) -> Iterator[npt.NDArray[Any]]:
    """Yield the arrays of fields that a scan list stores; the checksums are not included."""
    for column in columns:
        if isinstance(column, NumberColumn):
            yield column.values.astype(_dtype(column.field), copy=False)
            yield column.null.view(np.uint8)
        else:
            blobs = _gathered(_blobs(column))
            yield from (blobs.starts, blobs.sizes, blobs.blob)


class ColumnReader:
    """Reads the columns of a list, one after the other; PackError if the file is too short.

    Parameters
    ----------
    file : PackFile
    position : int
        The offset of the first column.
    """

    def __init__(self, file: PackFile, position: int) -> None:
        self._file, self._position = file, position

    def next(self, count: int, dtype: str) -> npt.NDArray[Any]:
        """Return the next column, of `count` values."""
        values = self._file.array(self._position, count, dtype)
        self._position += values.nbytes
        return values

    def next_of_field(self, count: int, dtype: str) -> npt.NDArray[Any]:
        """Return the next column of `count` values at a multiple of 8 bytes, where columns of fields begin."""
        self._position += _field_padding(self._position)
        return self.next(count, dtype)

    def fields(self, count: int, described: Sequence[Mapping[str, Any]], root: Path) -> tuple[Column, ...]:
        """Return the columns of the fields; ValueError, KeyError or TypeError if a field's description is invalid."""
        columns: list[Column] = []
        for one in described:
            field, size = Field.from_json(one["field"]), one["bytes"]
            if type(size) is not int or size < 0 or type(one["files"]) is not bool:
                raise ValueError(f"the description of the field {field.name!r} has the wrong type")
            if not field.is_blob:
                values, null = self.next_of_field(count, _dtype(field)), self.next_of_field(count, "|u1")
                columns.append(NumberColumn(field, values, null != 0))
                continue
            starts, sizes = self.next_of_field(count, "<i8"), self.next_of_field(count, "<i8")
            blobs = BlobColumn(field, self.next_of_field(size, "|u1"), starts, sizes)
            columns.append(FileColumn(field, root, blobs) if one["files"] else blobs)
        return tuple(columns)


def _field_padding(position: int) -> int:
    """Return the number of zeros between `position` and the column of a field after it."""
    return -position % _FIELD_ALIGNMENT


def _dtype(field: Field) -> str:
    return DTYPES.get(field.dtype, "<i8")


def _bytes(column: Column) -> int:
    if isinstance(column, NumberColumn):
        return 0
    return int(np.maximum(_blobs(column).sizes, 0).sum())


def _blobs(column: BlobColumn | FileColumn | RangeColumn) -> BlobColumn:
    """Return the values that a list stores for a column: its values, paths of files, or locations in a container."""
    if isinstance(column, RangeColumn):
        where = np.frombuffer(b"".join(column.content(0, len(column))), "<i8").reshape(3, -1).T
        return BlobColumn.packed(
            column.field, np.ascontiguousarray(where).reshape(-1).view(np.uint8), np.full(len(column), 24)
        )
    return column.paths if isinstance(column, FileColumn) else column


def _gathered(blobs: BlobColumn) -> BlobColumn:
    """Return the same values, concatenated in their order without gaps."""
    packed = BlobColumn.packed(blobs.field, blobs.blob, blobs.sizes)
    if np.array_equal(packed.starts, blobs.starts):
        return BlobColumn.packed(blobs.field, blobs.blob[: _bytes(blobs)], blobs.sizes)
    return BlobColumn.of(blobs.field, (blobs.get(index) for index in range(len(blobs))))


_STAMP = struct.Struct("<qq")
_CHECKED_STAMP = struct.Struct("<qqq")
_BLOCK = 4096  # images with one checksum
_WRITTEN = 8 << 20  # bytes that are written at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class ListedSource(Source):
    """A source that was read from a list, or a range of its images.

    Attributes
    ----------
    listing : ScanList
        The whole list.
    first : int
        The index of this source's first image in the list.
    """

    listing: ScanList
    first: int = 0

    def taken(self, rows: Rows) -> Source:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            self.listing.require_undamaged(self.first + start, self.first + stop)
            return replace(super().taken(rows), first=self.first + start)  # type: ignore[call-arg]
        self.require_undamaged()
        return Source(**_members(self)).taken(rows)

    def require_undamaged(self) -> None:
        self.listing.require_undamaged(self.first, self.first + len(self))

    def describe(self) -> dict[str, str]:
        whole = len(self) == len(self.listing.whole)
        return {"kind": self.kind, "sha256": self.listing.sha256} if whole else super().describe()


@dataclass(frozen=True, eq=False)
class ScanList:
    """The columns of a list, and their checksums.

    Attributes
    ----------
    path : str
    file : PackFile
        The open file; the columns of very large lists are memory-mapped.
    whole : Source
        The source of all images.
    stamps : (N, 3) int64 array, optional
        Size, time and CRC-32C of each image's stamp.
    checksums : (B,) uint32 array
        CRC-32C of every block of images.
    sha256 : str
        The digest of classes, names, labels and fields when the list was written.
    of_columns : (B,) uint32 array, optional
        CRC-32C of all field values in each block of images; None if there are no fields.
    """

    path: str
    file: PackFile
    whole: Source
    stamps: npt.NDArray[np.int64] | None
    checksums: npt.NDArray[np.uint32]
    sha256: str
    of_columns: npt.NDArray[np.uint32] | None = None

    def require_undamaged(self, start: int, stop: int) -> None:
        """Compare images `start` to `stop` - 1 with their checksums; SourceError if they differ."""
        try:
            self.file.require_whole()
        except PackError as error:
            raise SourceError(f"{printable(error)}. {advice(self.path)}") from error
        whole, blocks = self.whole, range(start // _BLOCK, -(-stop // _BLOCK))
        fits = all(_block_checksum(whole.names, whole.labels, block) == self.checksums[block] for block in blocks)
        fits = fits and (self.stamps is None or _fit(self.stamps[start:stop]))
        if self.of_columns is not None:
            sums = self.of_columns[blocks.start : blocks.stop]
            fits = fits and np.array_equal([_checksum_of_fields(whole.columns, block) for block in blocks], sums)
        if not fits:
            raise SourceError(f"{printable(self.path)}: the list is damaged. {advice(self.path)}")


def write_listing(source: Source, path: Path) -> None:
    """Write the list of a source, with the stamps of its files. The file appears at `path` only when it is complete.

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
        # `root` of a URL has no secrets, which other people who read the list must not see. Reading does not use it.
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
                file.append(bytes(_field_padding(file.size)))
                _append(file, column)


def is_listing(path: str | os.PathLike[str]) -> bool:
    """Tell whether the file at `path` is the list of a source."""
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
        If the list is too damaged to open. `Source.require_undamaged` finds all other damage.
    """
    try:
        file = place_of(path).open()
        header, start = read_header(file)
        count, reader = header["count"], ColumnReader(file, start)
        stamps = reader.next(3 * header["stamps"], "<i8").reshape(-1, 3) if header["stamps"] else None
        labels = reader.next(count, LABEL_TYPES[header["label_type"]])
        ends = reader.next(count, "<i8")
        checksums = reader.next(_blocks(count), "<u4")
        names = Names(reader.next(header["names"], "|u1"), ends)
        columns = reader.fields(count, header["fields"], Path(header["root"]))
        of_columns = reader.next_of_field(_blocks(count), "<u4") if columns else None
    except (PackError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{printable(error)}. {advice(path)}") from error
    whole = Source(
        header["kind"],
        Path(header["root"]),
        names,
        labels,
        header["classes"],
        header["notes"],
        None if stamps is None else stamps[:, :2],
        header["label_type"],
        OtherFiles(header["others"]["counts"], header["others"]["names"]),
        tuple(column.field for column in columns),
        columns,
        about=tuple(header.get("about", ())),
        doubts=tuple(header.get("doubts", ())),
        account=Account.from_json(header["account"]) if "account" in header else None,
        size_field=SIZE_FIELDS.get(header["kind"], ""),
    )
    listing = ScanList(os.fspath(path), file, whole, stamps, checksums, header["sha256"], of_columns)
    return ListedSource(**_members(whole), listing=listing)


def _members(source: Source) -> dict[str, Any]:
    return {member.name: getattr(source, member.name) for member in fields(Source)}


def let_mend(path: Path, source: Source, index: int) -> None:
    """Mark in a list that the user may replace the file of image `index`, at which a conversion has stopped.

    A file is marked only if it is unchanged since the listing, and so was already bad when it was listed. A file that
    has changed remains an error.

    Parameters
    ----------
    path : Path
    source : Source
        The source that was read from the list.
    index : int

    Raises
    ------
    PackError, SourceError, DestinationError
        If the list cannot be read or written.
    """
    if source.stamps is None or not same_stamp(stamp_in(source.stamps, index), source.stamp(index)):
        return
    with contextlib.closing(PackFile(path)) as file:
        _, start = read_header(file)
    stamp = _CHECKED_STAMP.pack(*MENDABLE, google_crc32c.value(_STAMP.pack(*MENDABLE)))
    with contextlib.closing(PatchFile(path)) as patched:
        patched.write(start + len(stamp) * index, stamp)


def _blocks(count: int) -> int:
    return -(-count // _BLOCK)


def _block_checksum(names: Names, labels: Labels, block: int) -> int:
    """Return the CRC-32C of the labels, ends and names in a block; an arbitrary number if the list is damaged."""
    rows = slice(block * _BLOCK, (block + 1) * _BLOCK)
    ends = names.ends[rows]
    first = int(names.ends[rows.start - 1]) if block else 0
    crc = google_crc32c.value(labels[rows].view("<i8").tobytes())
    crc = google_crc32c.extend(crc, ends.astype("<i8", copy=False).tobytes())
    return int(google_crc32c.extend(crc, names.blob[first : int(ends[-1])].tobytes()))


def _checksum_of_fields(columns: Sequence[Column], block: int) -> int:
    """Return the CRC-32C of the values of all fields in a block; an arbitrary number if the list is damaged."""
    crc = 0
    for column in columns:
        for piece in column.content(block * _BLOCK, min((block + 1) * _BLOCK, len(column))):
            crc = google_crc32c.extend(crc, piece)
    return int(crc)


def _stamp_checksums(stamps: Stamps) -> npt.NDArray[np.int64]:
    """Return the CRC-32C of each stamp."""
    data, size = stamps.astype("<i8").tobytes(), _STAMP.size
    return np.array([google_crc32c.value(data[at : at + size]) for at in range(0, len(data), size)], np.int64)


def _fit(stamps: npt.NDArray[np.int64]) -> bool:
    """Tell whether stamps, (N, 3), match their checksums."""
    blocks = (stamps[start : start + _BLOCK] for start in range(0, len(stamps), _BLOCK))
    return all(np.array_equal(_stamp_checksums(block[:, :2]), block[:, 2]) for block in blocks)


def _append(file: AppendFile, column: npt.NDArray[Any]) -> None:
    little = column.astype(column.dtype.newbyteorder("<"), copy=False)
    data = np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
    for start in range(0, len(data), _WRITTEN):
        file.append(data[start : start + _WRITTEN])
