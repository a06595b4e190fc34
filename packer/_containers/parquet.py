"""Parquet files of images, as Hugging Face's `datasets` writes them: one sample in each row.

Uncompressed images are located without pyarrow and read in place. pyarrow reads the columns of labels and fields.

``parquet.thrift`` and ``Encodings.md`` of apache/parquet-format specify the file format. A column that is not a list
has one value for each row of a row group. The values are in pages, each with a header. A byte string is stored as a
length of 4 bytes and the bytes, or as an index into a dictionary of byte strings. The dictionary has a page of its own.
A byte string does not cross the end of a page. A page's header may have the CRC-32 of the page's stored bytes.
Definition levels and indices into a dictionary are stored in the RLE/bit-packing hybrid of ``Encodings.md``: runs of
one number, and groups of eight numbers of a few bits each.

Headers and footer are in Thrift's compact protocol (``doc/specs/thrift-compact-protocol.md`` of Apache Thrift). This
module writes that protocol, and reads each structure as a dict by field number. Fields outside of the schema are
skipped, so that they cost no memory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer._containers.arrow import NOT_READ
from packer._containers.blocks import damage, damaged, errors_in
from packer._containers.compression import MOST_UNPACKED, pyarrow_for, unpack
from packer._containers.contract import IMAGE_HEAD, Packed, Piece, files_in, head_of
from packer._containers.hf_tables import (
    MOST_ROWS,
    RowValues,
    TableColumns,
    TableImages,
    TableRow,
    begin_with_image,
    features_of,
    is_image_feature,
    names_are_plain,
    no_column,
    row_lists,
    rows_in_lists,
)
from packer._containers.protobuf import read_varint, varint
from packer._storage.packfile import PackFile
from packer._table import Ints
from packer.errors import PackError, SourceError, printable


def numbers_in(data: bytes, width: int, count: int) -> Ints:
    """Decode `count` numbers of `width` bits in the RLE/bit-packing hybrid; ValueError if there are fewer."""
    if width > 32:
        raise ValueError(f"packed numbers have {width} bits")
    found, have, at, size = [np.empty(0, np.int64)], 0, 0, (width + 7) // 8
    while have < count:
        try:
            head, at = read_varint(data, at)
        except IndexError:
            raise ValueError(f"only {have} of {count} numbers are present") from None
        if head & 1:
            groups = min(head >> 1, (count - have + 7) // 8)
            packed = np.frombuffer(data[at : at + groups * width], np.uint8)
            if len(packed) < groups * width:
                raise ValueError(f"only {have} of {count} numbers are present")
            bits = np.unpackbits(packed, bitorder="little").reshape(-1, width) if width else np.zeros((8 * groups, 1))
            part = bits.astype(np.int64) @ (1 << np.arange(max(width, 1), dtype=np.int64))
            at += (head >> 1) * width
        else:
            part = np.full(min(head >> 1, count - have), int.from_bytes(data[at : at + size], "little"), np.int64)
            at += size
        if not len(part):
            raise ValueError("a run of numbers is empty")
        found.append(part[: count - have])
        have += len(found[-1])
    numbers: Ints = np.concatenate(found)
    return numbers


Shape = Mapping[int, Any]
"""The type of each field to read in a structure, by field number: int, bytes, bool, a shape, or a list of these."""

_TRUE, _FALSE, _BYTE, _I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_DEEPEST = 32
_LONGEST_LIST = 1 << 20
_LONGEST_VARINT = 10  # bytes


class ThriftError(ValueError):
    """Bytes are not a Thrift structure; `ended` tells whether further bytes might complete the structure."""

    def __init__(self, message: str, *, ended: bool = False) -> None:
        super().__init__(message)
        self.ended = ended


def read_struct(data: bytes, begin: int, shape: Shape) -> tuple[dict[int, Any], int]:
    """Read a Thrift structure: return the fields that `shape` lists, and the offset where the structure ends.

    Raises
    ------
    ThriftError
        If the bytes are not a structure.
    """
    reader = _Reader(data, begin)
    return reader.struct(shape, 0), reader.at


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def struct(self, shape: Shape, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ThriftError(f"structures are nested more than {_DEEPEST} deep")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._zigzag()
            if number in shape:
                found[number] = self._value(kind, shape[number], depth)
            else:
                self._skip(kind, depth)
        return found

    def _value(self, kind: int, type_: Any, depth: int) -> Any:
        if isinstance(type_, list) and kind in (LIST, _SET):
            of, count = self._list_head()
            if count > _LONGEST_LIST:
                raise ThriftError(f"a list has {count} elements, too many")
            return [self._value(of, type_[0], depth) for _ in range(count)]
        if isinstance(type_, Mapping) and kind == STRUCT:
            return self.struct(type_, depth + 1)
        if type_ is bytes and kind == BINARY:
            return self._bytes(self._varint())
        if type_ is int and kind in (_I16, I32, I64):
            return self._zigzag()
        if type_ is bool and kind in (_TRUE, _FALSE):
            return kind == _TRUE
        raise ThriftError("a field has an unexpected type")

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ThriftError(f"structures are nested more than {_DEEPEST} deep")
        if kind in (_TRUE, _FALSE):
            return
        if kind in (_I16, I32, I64):
            self._varint()
        elif kind == BINARY:
            self._advance(self._varint())
        elif kind == STRUCT:
            self.struct({}, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self._advance(1 if kind == _BYTE else 8)
        elif kind in (LIST, _SET):
            of, count = self._list_head()
            for _ in range(count):
                self._skip(_BYTE if of in (_TRUE, _FALSE) else of, depth + 1)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            for _ in range(count):
                for of in (kinds >> 4, kinds & 15):
                    self._skip(_BYTE if of in (_TRUE, _FALSE) else of, depth + 1)
        else:
            raise ThriftError(f"{kind} is not a type")

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        return head & 15, self._varint() if count == 15 else count

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ThriftError("it ends too early", ended=True)
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for index in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return number
        raise ThriftError("a number has too many bytes")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, size: int) -> bytes:
        self._advance(size)
        return self._data[self.at - size : self.at]

    def _advance(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise ThriftError("it ends too early", ended=True)
        self.at += size


Encoded = tuple[int, bytes]


def i32(number: int) -> Encoded:
    """Encode a whole number of 32 bits."""
    return I32, varint(number << 1 if number >= 0 else ~(number << 1))


def i64(number: int) -> Encoded:
    """Encode a whole number of 64 bits."""
    return I64, i32(number)[1]


def binary(data: bytes) -> Encoded:
    """Encode bytes, or a text in UTF-8."""
    return BINARY, varint(len(data)) + data


def listed(kind: int, values: Sequence[Encoded]) -> Encoded:
    """Encode a list of values of one type."""
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return LIST, head + b"".join(data for _, data in values)


def struct(fields: Mapping[int, Encoded]) -> Encoded:
    """Encode a structure from a dict of its fields by number. The field numbers must ascend in steps of at most 15."""
    data, last = bytearray(), 0
    for number, (kind, value) in fields.items():
        data.append((number - last) << 4 | kind)
        data += value
        last = number
    return STRUCT, bytes(data) + b"\0"


_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_MOST_FOOTER = 1 << 27  # bytes
_HEADER, _MOST_HEADER = 1 << 12, 1 << 24  # bytes of a page's header, which may have statistics
_WINDOW = 1 << 12  # bytes
_MOST_VALUES = 1 << 20  # of a page

_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_PLAIN, _OLD_DICTIONARY, _RLE, _DICTIONARY = 0, 2, 3, 8
_DATA, _INDEX, _DICTIONARY_PAGE, _DATA_2 = range(4)
_REQUIRED, _OPTIONAL, _REPEATED = range(3)
BYTE_ARRAY = 6

_COLUMN: Shape = {1: bytes, 3: {4: int, 5: int, 7: int, 9: int, 11: int}, 8: {}}
_FOOTER: Shape = {
    2: [{1: int, 3: int, 4: bytes, 5: int}],
    4: [{1: [_COLUMN], 3: int}],
    5: [{1: bytes, 2: bytes}],
}
_PAGE: Shape = {
    1: int,
    2: int,
    3: int,
    4: int,
    5: {1: int, 2: int, 3: int},
    7: {1: int, 2: int},
    8: {1: int, 4: int, 5: int, 6: int, 7: bool},
}


@dataclass(frozen=True)
class ParquetLeaf:
    """A column of the file: a leaf of the schema's tree.

    Attributes
    ----------
    path : tuple of str
        The names of the enclosing structures, outermost first, and then the column's own name.
    kind : int
        The physical type, such as `BYTE_ARRAY`.
    levels : int
        The number of elements of `path` that are optional.
    repeated : bool
        Whether a row may have several values.
    """

    path: tuple[str, ...]
    kind: int
    levels: int
    repeated: bool


class ParquetValue(NamedTuple):
    """The location of a byte string, and its first bytes."""

    piece: Piece | Packed
    head: bytes


def _leaves(elements: Sequence[dict[int, Any]]) -> list[ParquetLeaf]:
    """Return the leaves of a schema, which lists a tree in depth-first order."""
    leaves = list[ParquetLeaf]()
    above: list[tuple[int, tuple[str, ...], int, bool]] = [
        (elements[0].get(5, 0), (), 0, False)
    ]  # nodes whose children follow
    for element in elements[1:]:
        while above and not above[-1][0]:
            above.pop()
        if not above or len(above) > 64:
            raise ValueError("its schema is not a tree")
        left, names, levels, repeated = above[-1]
        above[-1] = left - 1, names, levels, repeated
        path = (*names, element[4].decode("utf-8"))
        repetition = element.get(3, _REQUIRED)
        levels, repeated = levels + (repetition != _REQUIRED), repeated or repetition == _REPEATED
        if element.get(5):
            above.append((element[5], path, levels, repeated))
        else:
            leaves.append(ParquetLeaf(path, element.get(1, -1), levels, repeated))
    return leaves


class ParquetFile:
    """A reader of a file; pyarrow reads the columns without images.

    Parameters
    ----------
    file : PackFile
        The open file, which is file number `unit` of its container.
    unit : int

    Attributes
    ----------
    file : PackFile
    unit : int
    leaves : list of ParquetLeaf
    groups : list of (int, list of dict)
        For each row group, the number of rows, and the metadata of each leaf.
    features : mapping
        The features of columns, as `features_of` returns them.

    Raises
    ------
    SourceError
        If the file is damaged, cut short or encrypted.
    """

    def __init__(self, file: PackFile, unit: int = 0) -> None:
        self.file, self.unit = file, unit
        if file.size < 12 or file.read(file.size - 4, 4) != _MAGIC:
            end = file.read(max(0, file.size - 4), min(4, file.size))
            why = "it is encrypted" if end == _ENCRYPTED else "it is not a Parquet file, or was cut short"
            raise SourceError(f"{printable(file.path)}: {why}")
        size = int.from_bytes(file.read(file.size - 8, 4), "little")
        if size > min(file.size - 12, _MOST_FOOTER):
            raise damaged(file, file.size - 8, f"its footer has an impossible size of {size} bytes")
        begin = file.size - 8 - size
        with damage(file, begin, LookupError, ValueError):
            footer, _ = read_struct(file.read(begin, size), 0, _FOOTER)
            self.leaves = _leaves(footer[2])
            self.groups: list[tuple[int, list[dict[int, Any]]]] = [(group[3], group[1]) for group in footer[4]]
            self.features = features_of({pair[1]: pair.get(2, b"") for pair in footer.get(5, [])})
        if any(rows < 0 or len(columns) != len(self.leaves) for rows, columns in self.groups):
            raise damaged(file, begin, "a row group has other columns than the file")
        if self.count > file.size:
            raise damaged(file, begin, "it declares more rows than it has bytes")

    @property
    def count(self) -> int:
        """The number of rows in the file."""
        return sum(rows for rows, _ in self.groups)

    def leaf(self, column: str, part: str = "bytes") -> int | None:
        """Return the index of the leaf for a part of an image column, or for a column without parts; None if absent."""
        for number, leaf in enumerate(self.leaves):
            if leaf.path == (column, part) or (part == "bytes" and leaf.path == (column,)):
                return number
        return None

    def image_columns(self, chosen: str | None = None) -> list[str]:
        """Return the columns of images, recognised by features, by bytes with a path, or by their first value."""
        tops = dict.fromkeys(leaf.path[0] for leaf in self.leaves)
        found = [name for name in tops if self._is_structure(name)]
        plain = [leaf.path[0] for leaf in self.leaves if len(leaf.path) == 1 and leaf.kind == BYTE_ARRAY]
        found += [name for name in plain if is_image_feature(self.features.get(name)) or name == chosen]
        return found or [name for name in plain if self._begins_with_image(name)]

    def _is_structure(self, name: str) -> bool:
        leaves = {leaf.path[1:]: leaf for leaf in self.leaves if leaf.path[0] == name}
        return (
            {("bytes",)} <= leaves.keys() <= {("bytes",), ("path",)}
            and leaves["bytes",].kind == BYTE_ARRAY
            and not leaves["bytes",].repeated
        )

    def _begins_with_image(self, name: str) -> bool:
        leaf = self.leaf(name)
        if leaf is None or self.leaves[leaf].repeated:
            return False
        values = (value for group in range(len(self.groups)) for value in self.byte_strings(group, leaf))
        return begin_with_image(value.head for value in values if value is not None)

    def byte_strings(self, group: int, leaf: int, head: int = IMAGE_HEAD) -> Iterator[ParquetValue | None]:
        """Yield each row's value in a column of byte strings, for one row group; None for a missing value.

        Parameters
        ----------
        group, leaf : int
        head : int
            The number of bytes to return from the beginning of each value.

        Raises
        ------
        SourceError
            If the column is damaged, or has an unusual encoding.
        """
        return _Chunk(self, group, leaf, head).values()

    def texts(self, leaf: int, groups: Iterable[int]) -> Iterator[str | None]:
        """Yield the texts of a column in some row groups; an empty text for one that is too long for a name."""
        for group in groups:
            for value in self.byte_strings(group, leaf, _LONGEST):
                yield None if value is None else value.head.decode("utf-8", "replace") * (value.piece.size <= _LONGEST)

    def types(self) -> dict[str, Any]:
        """Return the pyarrow types of all columns."""
        schema = self._pyarrow.schema_arrow
        with self._checked():  # a name may be no text
            return {field.name: field.type for field in schema if str(field.type)}

    def rows(self, group: int, columns: list[str]) -> Iterator[RowValues]:
        """Yield the values of columns without images in a row group, row by row.

        Raises
        ------
        MissingDependencyError
            If pyarrow is not installed.
        SourceError
            If pyarrow cannot read the file.
        """
        count = left = self.groups[group][0]
        if not columns:
            yield from ({} for _ in range(count))
            return
        reader, size = self._pyarrow, self._rows_at_once(group, columns)
        with self._checked():
            for batch in reader.iter_batches(batch_size=size, row_groups=[group], columns=columns, use_threads=False):
                left -= batch.num_rows
                if left < 0 or sorted(batch.schema.names) != sorted(columns):
                    raise ValueError("its columns are not those of the first file")
                for lists in row_lists(batch.columns, batch.num_rows):
                    yield from rows_in_lists(batch.schema.names, lists)
            if left:
                raise ValueError(f"{left} of {count} rows are missing")

    @cached_property
    def _pyarrow(self) -> Any:
        pa = pyarrow_for(f"{printable(self.file.path)}: reading its labels and fields needs pyarrow")
        import pyarrow.parquet as pq

        with self._checked():
            return pq.ParquetFile(pa.PythonFile(self.file.stream(_MOST_READ), "r"))

    def _rows_at_once(self, group: int, columns: Sequence[str]) -> int:
        """Return how many rows pyarrow may read together, even if every value is the longest of its dictionary."""
        leaves = [number for number, leaf in enumerate(self.leaves) if leaf.path[0] in columns]
        looked_up = sum(self._dictionary_size(group, leaf) for leaf in leaves)
        return max(1, min(MOST_ROWS, _MOST_LOOKED_UP // max(1, looked_up)))

    def _dictionary_size(self, group: int, leaf: int) -> int:
        """Return the unpacked size of a column's dictionary in a row group; 0 without a dictionary."""
        metadata = self.groups[group][1][leaf].get(3, {})
        first, data = metadata.get(11, 0), metadata.get(9, 0)
        at = min(first, data) if first else data
        try:
            page, _ = read_struct(self.file.read(at, min(_HEADER, max(0, self.file.size - at))), 0, _PAGE)
        except (PackError, ThriftError):  # pyarrow reports it when it reads the column
            return 0
        return int(max(page.get(2, 0), page.get(3, 0))) if page.get(1) == _DICTIONARY_PAGE else 0

    def _checked(self) -> AbstractContextManager[None]:
        """Turn the errors of pyarrow about a damaged file into SourceErrors."""
        return errors_in(f"{printable(self.file.path)}: pyarrow cannot read its labels and fields", *NOT_READ)


@dataclass(frozen=True)
class _Section:
    """The values of a page, as a range of the file or of an unpacked range."""

    piece: Piece
    codec: str
    data: bytes  # unpacked
    begin: int  # in the file, or in data
    end: int


class _Chunk:
    """The reader of one column in one row group."""

    def __init__(self, parquet: ParquetFile, group: int, number: int, head: int) -> None:
        rows, columns = parquet.groups[group]
        file, leaf, column = parquet.file, parquet.leaves[number], columns[number]
        self._file, self._unit, self._leaf, self._rows, self._head = file, parquet.unit, leaf, rows, head
        metadata = column.get(3)
        shown = printable(".".join(leaf.path))
        if metadata is None or 8 in column or 1 in column:
            raise SourceError(f"{printable(file.path)}: column {shown} is encrypted, or is in another file")
        if leaf.kind != BYTE_ARRAY or leaf.repeated:
            raise SourceError(f"{printable(file.path)}: column {shown} does not have one byte string for each row")
        codec, count, size, data = (metadata.get(number, -1) for number in (4, 5, 7, 9))
        first = metadata.get(11, 0)
        if min(codec, count, size, data, first) < 0:
            raise damaged(file, 0, f"column {shown} has no valid offset")
        if codec not in _CODECS:
            raise SourceError(f"{printable(file.path)}: column {shown}: {_rewrite('compression', codec)}")
        self._codec = _CODECS[codec]
        self._at = min(first, data) if first else data
        self._end = self._at + size
        if self._end > file.size or count != rows:
            raise damaged(file, self._at, f"column {shown} is outside of the file, or has another number of rows")
        self._dictionary: list[ParquetValue] | None = None

    def values(self) -> Iterator[ParquetValue | None]:
        left = self._rows
        while left:
            header, at = self._header()
            kind, size = header.get(1), header.get(3, -1)
            if not 0 <= size <= self._end - at:
                raise damaged(self._file, at, "a page extends beyond its column")
            self._at = at + size
            if 4 in header and header[4] & 0xFFFFFFFF != self._file.crc32(at, size):
                raise damaged(self._file, at, f"a page of {size:,} bytes does not match its checksum")
            if kind == _DICTIONARY_PAGE:
                self._read_dictionary(header, at, size)
            elif kind in (_DATA, _DATA_2):
                count = header.get(5 if kind == _DATA else 8, {}).get(1, -1)
                if not 0 <= count <= min(left, _MOST_VALUES):
                    raise damaged(self._file, at, f"a page has {count} values, but the column has {left} left")
                left -= count
                yield from self._page(header, at, size, count)
            elif kind != _INDEX:
                raise damaged(self._file, at, f"a page has the unexpected type {kind}")

    def _header(self) -> tuple[dict[int, Any], int]:
        """Return the page header at the current offset, and the offset where the header ends."""
        for most in (_HEADER, _MOST_HEADER):
            size = min(most, self._end - self._at)
            try:
                header, end = read_struct(self._file.read(self._at, size), 0, _PAGE)
                return header, self._at + end
            except ThriftError as error:
                if not error.ended or size < most or most == _MOST_HEADER:
                    raise damaged(self._file, self._at, f"invalid page header: {error}") from error
        raise AssertionError

    def _page(self, header: dict[int, Any], at: int, size: int, count: int) -> Iterator[ParquetValue | None]:
        with damage(self._file, at, KeyError, ValueError):
            if header[1] == _DATA:
                encoding = header[5][2]
                if self._leaf.levels and header[5][3] != _RLE:
                    raise ValueError(_rewrite("encoding of levels", header[5][3]))
                section = self._section(at, size, header[2], self._codec)
                present, section = self._levels_in(section, count)
            else:
                page = header[8]
                encoding, levels, others = page[4], page[5], page[6]
                if levels < 0 or others or levels > size:
                    raise ValueError("levels extend beyond their page")
                present = self._present(self._file.read(at, levels), count)
                codec = self._codec if page.get(7, True) else ""
                section = self._section(at + levels, size - levels, header[2] - levels, codec)
            there = int(present.sum())
            if encoding == _PLAIN:
                values = self._plain(section, there)
            elif encoding in (_DICTIONARY, _OLD_DICTIONARY):
                values = self._looked_up(section, there)
            else:
                raise ValueError(_rewrite("encoding", encoding))
            for here in present.tolist():
                yield next(values) if here else None

    def _section(self, at: int, size: int, unpacked: int, codec: str) -> _Section:
        piece = Piece(self._unit, at, size)
        if not codec or not size:
            return _Section(piece, "", b"", at, at + size)
        data = unpack(codec, self._file.read(at, size), unpacked)
        return _Section(piece, codec, data, 0, len(data))

    def _read(self, section: _Section, begin: int, size: int) -> bytes:
        """Return bytes of a section; fewer at its end."""
        size = max(0, min(size, section.end - begin))
        return section.data[begin : begin + size] if section.codec else self._file.read(begin, size)

    def _levels_in(self, section: _Section, count: int) -> tuple[Ints, _Section]:
        """Decode the definition levels; return a mask of present values, and the section of the values that follow."""
        if not self._leaf.levels:
            return np.ones(count, np.int64), section
        size = int.from_bytes(self._read(section, section.begin, 4), "little")
        begin = section.begin + 4
        if size > section.end - begin:
            raise ValueError("levels extend beyond their page")
        present = self._present(self._read(section, begin, size), count)
        return present, _Section(section.piece, section.codec, section.data, begin + size, section.end)

    def _present(self, data: bytes, count: int) -> Ints:
        if not self._leaf.levels:
            return np.ones(count, np.int64)
        levels = numbers_in(data, self._leaf.levels.bit_length(), count)
        return np.asarray(levels == self._leaf.levels, np.int64)

    def _plain(self, section: _Section, count: int) -> Iterator[ParquetValue]:
        at, window, begin = section.begin, b"", 0
        for _ in range(count):
            if not 0 <= at - begin <= len(window) - 4 - self._head:
                window, begin = self._read(section, at, max(_WINDOW, 8 * self._head)), at
            size = int.from_bytes(window[at - begin : at - begin + 4], "little")
            at += 4
            if at > section.end or size > section.end - at:
                raise ValueError(f"a value at byte {at} has {size} bytes and extends beyond its page")
            head = window[at - begin : at - begin + min(size, self._head)]
            if section.codec:
                piece = Packed(section.piece, section.codec, len(section.data), at, size)
                yield ParquetValue(piece, head)
            else:
                yield ParquetValue(Piece(self._unit, at, size), head)
            at += size

    def _looked_up(self, section: _Section, count: int) -> Iterator[ParquetValue]:
        if self._dictionary is None:
            raise ValueError("there is no dictionary")
        data = self._read(section, section.begin, MOST_UNPACKED)
        if count and not data:
            raise ValueError("a page has no values")
        numbers = numbers_in(data[1:], data[0], count) if count else np.empty(0, np.int64)
        if count and int(numbers.max()) >= len(self._dictionary):
            raise ValueError(
                f"a row refers to value {int(numbers.max())} of a dictionary of {len(self._dictionary)} values"
            )
        return map(self._dictionary.__getitem__, numbers.tolist())

    def _read_dictionary(self, header: dict[int, Any], at: int, size: int) -> None:
        with damage(self._file, at, KeyError, ValueError):
            count, encoding = header[7][1], header[7][2]
            if encoding not in (_PLAIN, _OLD_DICTIONARY) or not count >= 0:
                raise ValueError(_rewrite("encoding", encoding))
            section = self._section(at, size, header[2], self._codec)
            if 4 * count > section.end - section.begin:
                raise ValueError(f"a dictionary of {count} values does not fit into its page")
            if count > max(self._rows, _MOST_VALUES):
                raise ValueError(f"a dictionary has {count} values for {self._rows} rows")
            self._dictionary = list(self._plain(section, count))


def _rewrite(what: str, number: Any) -> str:
    return f"packer does not know the {what} {number}: write the file again with pyarrow's default settings"


_FILE_MAGIC = b"PAR1"
_METADATA = "metadata.parquet"  # the metadata of an image folder, which packer._sources.metadata reads
_LONGEST = 1 << 10  # bytes of a path
_MOST_READ = 1 << 31  # bytes
_MOST_LOOKED_UP = 1 << 26  # bytes of dictionary values, each counted once for every reference to it


class ParquetImages(TableImages):
    """Parquet files that have a column of images."""

    kind = "parquet"
    suffixes = (".parquet",)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return head.startswith(_FILE_MAGIC)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        """Return the files of a directory, or of its subdirectory ``data``, as on the Hugging Face Hub."""
        below = path / "data"
        if "data" in names and not any(name.endswith(cls.suffixes) for name in names) and os.path.isdir(below):
            path, names = below, sorted(os.listdir(below))
        found = files_in(path, names, lambda name: name.lower().endswith(cls.suffixes) and name != _METADATA)
        if not found or not head_of(found[0]).startswith(_FILE_MAGIC) or not _has_images(found[0]):
            return None
        return found

    @classmethod
    def columns_in(cls, file: PackFile, image: str | None) -> TableColumns:
        parquet = ParquetFile(file)
        images = parquet.image_columns(image)
        tops = dict.fromkeys(leaf.path[0] for leaf in parquet.leaves if leaf.path[0] not in images)
        types = parquet.types() if tops else {}
        others = {name: types[name] for name in tops if name in types}
        return TableColumns(images, others, parquet.features)

    @classmethod
    def values_in(cls, file: PackFile, column: str) -> Iterator[Any]:
        parquet = ParquetFile(file)
        for group in range(len(parquet.groups)):
            yield from (row[column] for row in parquet.rows(group, [column]) if isinstance(row, dict))

    def rows_in(self, file: PackFile, unit: int) -> tuple[int, Iterator[TableRow]]:
        parquet = ParquetFile(file, unit)
        return parquet.count, self._rows(parquet)

    def _rows(self, parquet: ParquetFile) -> Iterator[TableRow]:
        groups, paths = range(len(parquet.groups)), parquet.leaf(self.image, "path")
        if paths is not None and parquet.leaves[paths].kind != BYTE_ARRAY:  # pyarrow writes nulls alone as int32
            paths = None
        plain = self.name is None and paths is not None and names_are_plain(parquet.texts(paths, groups))
        for group in groups:
            images = self._images(parquet, group, self.image)
            pictures = {of.name: self._images(parquet, group, column) for column, of in self.pictures.items()}
            names = parquet.texts(paths, [group]) if paths is not None and plain else None
            for value, row in zip(images, parquet.rows(group, self.columns_to_read()), strict=True):
                path = next(names) if names is not None else None
                further = {of: one.piece for of, ones in pictures.items() if (one := next(ones)) is not None}
                piece, head = (None, b"") if value is None else value
                yield TableRow(row, path, piece, head, further)

    def _images(self, parquet: ParquetFile, group: int, column: str) -> Iterator[ParquetValue | None]:
        leaf = parquet.leaf(column)
        if leaf is None:
            raise no_column(parquet.file, column)
        return parquet.byte_strings(group, leaf)


def _has_images(path: Path) -> bool:
    try:
        with PackFile(path) as file:
            return bool(ParquetFile(file).image_columns())
    except SourceError:
        return True  # opening it raises the error
