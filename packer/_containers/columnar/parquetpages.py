"""Parquet files: what the footer says, and where in the pages of a column each of its byte strings lies.

The layout is that of apache/parquet-format: ``parquet.thrift`` and ``Encodings.md``. A column that is no list has one
value a row in every row group, in pages with a header each. A byte string is its length in 4 bytes, and its bytes; or
a number in a dictionary of such, which is a page of its own. It never crosses a page. A header may have the CRC-32 of
its page as it lies in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from packer._containers.columnar.parquetruns import numbers_in
from packer._containers.columnar.thrift import Shape, ThriftError, read_struct
from packer._containers.unpacking import MOST_UNPACKED, Packed, Piece, unpack
from packer._storage.packfile import PackFile
from packer._table import Ints
from packer.errors import PackError, SourceError, printable

__all__ = ["Leaf", "Parquet", "Value", "byte_strings", "dictionary_size", "read_footer"]

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_MOST_FOOTER = 1 << 27  # bytes
_HEADER, _MOST_HEADER = 1 << 12, 1 << 24  # bytes of a page's header, which may have statistics
_WINDOW = 1 << 12  # bytes
_MOST_VALUES = 1 << 20  # of a page
_HEAD = 32  # bytes, by which an image is known

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
class Leaf:
    """A column as it lies in the file.

    Attributes
    ----------
    path : tuple of str
        Its name, and those of the structures that it is part of, the outermost first.
    kind : int
        Its type, such as `BYTE_ARRAY`.
    levels : int
        How many of these may be missing.
    repeated : bool
        Whether a row may have several values.
    """

    path: tuple[str, ...]
    kind: int
    levels: int
    repeated: bool


class Parquet(NamedTuple):
    """What the footer of a file says.

    Attributes
    ----------
    leaves : list of Leaf
    groups : list of (int, list of dict)
        The rows of every row group, and what is said of each leaf in it.
    metadata : dict of bytes to bytes
    """

    leaves: list[Leaf]
    groups: list[tuple[int, list[dict[int, Any]]]]
    metadata: dict[bytes, bytes]


class Value(NamedTuple):
    """Where a byte string lies, and the first bytes of it."""

    place: Piece | Packed
    head: bytes


def read_footer(file: PackFile) -> Parquet:
    """Return what the footer says; SourceError where the file is damaged, cut short or encrypted."""
    if file.size < 12 or file.read(file.size - 4, 4) != _MAGIC:
        end = file.read(max(0, file.size - 4), min(4, file.size))
        why = "it is encrypted" if end == _ENCRYPTED else "it is no Parquet file, or was cut short"
        raise SourceError(f"{printable(file.path)}: {why}")
    size = int.from_bytes(file.read(file.size - 8, 4), "little")
    if size > min(file.size - 12, _MOST_FOOTER):
        raise _damaged(file, file.size - 8, f"its footer should have {size} bytes")
    try:
        footer, _ = read_struct(file.read(file.size - 8 - size, size), 0, _FOOTER)
        leaves = _leaves(footer[2])
        groups = [(group[3], group[1]) for group in footer[4]]
        metadata = {pair[1]: pair.get(2, b"") for pair in footer.get(5, [])}
    except (LookupError, ValueError) as error:
        raise _damaged(file, file.size - 8 - size, f"its footer is none: {printable(error)}") from error
    if any(rows < 0 or len(columns) != len(leaves) for rows, columns in groups):
        raise _damaged(file, file.size - 8 - size, "a row group has other columns than the file")
    if sum(rows for rows, _ in groups) > file.size:
        raise _damaged(file, file.size - 8 - size, "it should have more rows than bytes")
    return Parquet(leaves, groups, metadata)


def _leaves(elements: Sequence[dict[int, Any]]) -> list[Leaf]:
    """Return the leaves of a schema, which lists a tree from its root on, children after their parent."""
    leaves = list[Leaf]()
    above: list[tuple[int, tuple[str, ...], int, bool]] = [
        (elements[0].get(5, 0), (), 0, False)
    ]  # with children to come
    for element in elements[1:]:
        while above and not above[-1][0]:
            above.pop()
        if not above or len(above) > 64:
            raise ValueError("its schema is no tree")
        left, names, levels, repeated = above[-1]
        above[-1] = left - 1, names, levels, repeated
        path = (*names, element[4].decode("utf-8"))
        repetition = element.get(3, _REQUIRED)
        levels, repeated = levels + (repetition != _REQUIRED), repeated or repetition == _REPEATED
        if element.get(5):
            above.append((element[5], path, levels, repeated))
        else:
            leaves.append(Leaf(path, element.get(1, -1), levels, repeated))
    return leaves


def byte_strings(
    file: PackFile, unit: int, parquet: Parquet, chunk: tuple[int, int], head: int = _HEAD
) -> Iterator[Value | None]:
    """Yield the values of a column of byte strings in a row group, a row each; None where there is none.

    Parameters
    ----------
    file : PackFile
        The file `unit` of a container.
    unit : int
    parquet : Parquet
    chunk : (int, int)
        The row group and the column, from 0 on.
    head : int
        How many of the first bytes of each value come with it.

    Raises
    ------
    SourceError
        If the column is damaged, or encoded as nobody encodes images.
    """
    return _Chunk(file, unit, parquet, chunk, head).values()


def dictionary_size(file: PackFile, parquet: Parquet, chunk: tuple[int, int]) -> int:
    """Return how many bytes the dictionary of a column in a row group has, unpacked; 0 where it has none."""
    group, number = chunk
    said = parquet.groups[group][1][number].get(3, {})
    first, data = said.get(11, 0), said.get(9, 0)
    at = min(first, data) if first else data
    try:
        page, _ = read_struct(file.read(at, min(_HEADER, max(0, file.size - at))), 0, _PAGE)
    except (PackError, ThriftError):  # which pyarrow will say, who reads the column
        return 0
    return int(max(page.get(2, 0), page.get(3, 0))) if page.get(1) == _DICTIONARY_PAGE else 0


@dataclass(frozen=True)
class _Section:
    """Values of a page: where they lie in the file, or in what a compressed range gives."""

    place: Piece
    codec: str
    data: bytes  # what was unpacked
    begin: int  # in the file, or in data
    end: int


class _Chunk:
    """A column in a row group."""

    def __init__(self, file: PackFile, unit: int, parquet: Parquet, chunk: tuple[int, int], head: int) -> None:
        group, number = chunk
        rows, columns = parquet.groups[group]
        leaf, column = parquet.leaves[number], columns[number]
        self._file, self._unit, self._leaf, self._rows, self._head = file, unit, leaf, rows, head
        said = column.get(3)
        shown = printable(".".join(leaf.path))
        if said is None or 8 in column or 1 in column:
            raise SourceError(f"{printable(file.path)}: column {shown} is encrypted, or lies in another file")
        if leaf.kind != BYTE_ARRAY or leaf.repeated:
            raise SourceError(f"{printable(file.path)}: column {shown} has no byte string a row")
        codec, count, size, data = (said.get(number, -1) for number in (4, 5, 7, 9))
        first = said.get(11, 0)
        if min(codec, count, size, data, first) < 0:
            raise _damaged(file, 0, f"column {shown} lies nowhere")
        if codec not in _CODECS:
            raise SourceError(f"{printable(file.path)}: column {shown}: {_rewrite('compression', codec)}")
        self._codec = _CODECS[codec]
        self._at = min(first, data) if first else data
        self._end = self._at + size
        if self._end > file.size or count != rows:
            raise _damaged(file, self._at, f"column {shown} does not lie in the file")
        self._dictionary: list[Value] | None = None

    def values(self) -> Iterator[Value | None]:
        left = self._rows
        while left:
            header, at = self._header()
            kind, size = header.get(1), header.get(3, -1)
            if not 0 <= size <= self._end - at:
                raise _damaged(self._file, at, "a page does not lie in its column")
            self._at = at + size
            if 4 in header and header[4] & 0xFFFFFFFF != self._file.crc32(at, size):
                raise _damaged(self._file, at, f"the checksum of a page of {size:,} bytes does not fit")
            if kind == _DICTIONARY_PAGE:
                self._read_dictionary(header, at, size)
            elif kind in (_DATA, _DATA_2):
                count = header.get(5 if kind == _DATA else 8, {}).get(1, -1)
                if not 0 <= count <= min(left, _MOST_VALUES):
                    raise _damaged(self._file, at, f"a page has {count} of {left} values")
                left -= count
                yield from self._page(header, at, size, count)
            elif kind != _INDEX:
                raise _damaged(self._file, at, f"a page of the type {kind}")

    def _header(self) -> tuple[dict[int, Any], int]:
        """Return the header at the present place, and where it ends."""
        for most in (_HEADER, _MOST_HEADER):
            size = min(most, self._end - self._at)
            try:
                header, end = read_struct(self._file.read(self._at, size), 0, _PAGE)
                return header, self._at + end
            except ThriftError as error:
                if not error.ended or size < most or most == _MOST_HEADER:
                    raise _damaged(self._file, self._at, f"no header of a page: {error}") from error
        raise AssertionError

    def _page(self, header: dict[int, Any], at: int, size: int, count: int) -> Iterator[Value | None]:
        try:
            if header[1] == _DATA:
                encoding = header[5][2]
                if self._leaf.levels and header[5][3] != _RLE:
                    raise ValueError(_rewrite("encoding of levels", header[5][3]))
                section = self._section(at, size, header[2], self._codec)
                present, section = self._levels_in(section, count)
            else:
                said = header[8]
                encoding, levels, others = said[4], said[5], said[6]
                if levels < 0 or others or levels > size:
                    raise ValueError("levels do not lie in their page")
                present = self._present(self._file.read(at, levels), count)
                codec = self._codec if said.get(7, True) else ""
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
        except (KeyError, ValueError) as error:
            raise _damaged(self._file, at, printable(error)) from error

    def _section(self, at: int, size: int, unpacked: int, codec: str) -> _Section:
        place = Piece(self._unit, at, size)
        if not codec or not size:
            return _Section(place, "", b"", at, at + size)
        data = unpack(codec, self._file.read(at, size), unpacked)
        return _Section(place, codec, data, 0, len(data))

    def _read(self, section: _Section, begin: int, size: int) -> bytes:
        """Return some bytes, fewer at the end of a section."""
        size = max(0, min(size, section.end - begin))
        return section.data[begin : begin + size] if section.codec else self._file.read(begin, size)

    def _levels_in(self, section: _Section, count: int) -> tuple[Ints, _Section]:
        """Return which values are there, and where the values begin after the levels that say it."""
        if not self._leaf.levels:
            return np.ones(count, np.int64), section
        size = int.from_bytes(self._read(section, section.begin, 4), "little")
        begin = section.begin + 4
        if size > section.end - begin:
            raise ValueError("levels do not lie in their page")
        present = self._present(self._read(section, begin, size), count)
        return present, _Section(section.place, section.codec, section.data, begin + size, section.end)

    def _present(self, data: bytes, count: int) -> Ints:
        if not self._leaf.levels:
            return np.ones(count, np.int64)
        levels = numbers_in(data, self._leaf.levels.bit_length(), count)
        return np.asarray(levels == self._leaf.levels, np.int64)

    def _plain(self, section: _Section, count: int) -> Iterator[Value]:
        at, window, begin = section.begin, b"", 0
        for _ in range(count):
            if not 0 <= at - begin <= len(window) - 4 - self._head:
                window, begin = self._read(section, at, max(_WINDOW, 8 * self._head)), at
            size = int.from_bytes(window[at - begin : at - begin + 4], "little")
            at += 4
            if at > section.end or size > section.end - at:
                raise ValueError(f"a value at byte {at} has {size} bytes, and does not lie in its page")
            head = window[at - begin : at - begin + min(size, self._head)]
            if section.codec:
                place = Packed(section.place, section.codec, len(section.data), at, size)
                yield Value(place, head)
            else:
                yield Value(Piece(self._unit, at, size), head)
            at += size

    def _looked_up(self, section: _Section, count: int) -> Iterator[Value]:
        if self._dictionary is None:
            raise ValueError("there is no dictionary")
        data = self._read(section, section.begin, MOST_UNPACKED)
        if count and not data:
            raise ValueError("a page has no values")
        numbers = numbers_in(data[1:], data[0], count) if count else np.empty(0, np.int64)
        if count and int(numbers.max()) >= len(self._dictionary):
            raise ValueError(f"value {int(numbers.max())} of a dictionary of {len(self._dictionary)}")
        return map(self._dictionary.__getitem__, numbers.tolist())

    def _read_dictionary(self, header: dict[int, Any], at: int, size: int) -> None:
        try:
            count, encoding = header[7][1], header[7][2]
            if encoding not in (_PLAIN, _OLD_DICTIONARY) or not count >= 0:
                raise ValueError(_rewrite("encoding", encoding))
            section = self._section(at, size, header[2], self._codec)
            if 4 * count > section.end - section.begin:
                raise ValueError(f"a dictionary of {count} values does not lie in its page")
            if count > max(self._rows, _MOST_VALUES):
                raise ValueError(f"a dictionary of {count} values, for {self._rows} rows")
            self._dictionary = list(self._plain(section, count))
        except (KeyError, ValueError) as error:
            raise _damaged(self._file, at, printable(error)) from error


def _rewrite(what: str, number: Any) -> str:
    return f"packer does not know the {what} {number}: write the file anew, with pyarrow's own settings"


def _damaged(file: PackFile, at: int, what: str) -> SourceError:
    return SourceError(f"{printable(file.path)}, byte {at}: damaged: {what}")
