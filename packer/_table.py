"""The table of a pack, with one row for each sample, and the class `Sample`. Only `Vector` does I/O.

The table consists of one array for each column, and two arrays for the names. So a pack of millions of samples never
becomes millions of Python objects. A `Vector` is a column in a file. It is read when it is first needed, into memory
that this process shares with its forks. `formats.md` specifies the columns.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._codecs import LABEL_TYPES
from packer._fields import KINDS, NO_VALUE, Field, Stored
from packer.errors import CorruptPackError, PackError

_SHARED_FROM = 1 << 16  # bytes; a smaller vector is not worth a mapping of its own, and is read at once
_STEP = 1 << 16  # bytes that are read at a time; few enough to be still in the processor's caches when they are copied
_READ = b"\1"


class _Bytes(Protocol):
    """An open file; every method raises PackError if the file has been cut short."""

    def read(self, offset: int, size: int) -> bytes: ...
    def mapping(self, start: int, size: int) -> mmap.mmap: ...
    def require_whole(self) -> None: ...
    def stamp(self) -> tuple[int, int]: ...
    def overwritten(self) -> PackError: ...


class Vector:
    """A vector in a file. A small vector is read at once, a larger one when it is first needed.

    The elements are copied into memory and not memory-mapped. Access to a mapping of a file that has been cut short
    kills the process, and a mapping shows later writes to the file. Forked processes share the memory, whichever of
    them reads the vector. So all workers of a DataLoader together need no more memory than one worker.

    Vectors of very large tables are not held in memory. For such a vector, `array` checks the file and returns a
    mapping, which must be used at once and never be returned to users. All other methods read from the file each time.

    Parameters
    ----------
    file : FileBytes
    offset : int
        The offset of the vector in the file.
    count : int
        Number of elements.
    dtype : str
    held : bool
        Whether the vector can be held in memory.

    Attributes
    ----------
    checksum : int, optional
        The CRC-32C of the vector. It is compared if the file has changed since it was opened. `cp` may have overwritten
        the file with another pack, whose rows must not be mistaken for the rows of this pack.

    Raises
    ------
    PackError
        If elements are accessed after the file has been cut short, or if the disk fails or memory is exhausted.
    """

    def __init__(self, file: _Bytes, offset: int, count: int, dtype: str, *, held: bool = True) -> None:
        self._opened: _Bytes | None = file
        self._offset, self._count, self.dtype = offset, count, np.dtype(dtype)
        self._size, self.held = count * self.dtype.itemsize, held
        self.checksum: int | None = None
        self._memory: Any = None
        self._fits = file.stamp()  # the file's stamp when it was last known to contain these elements
        if self._size < _SHARED_FROM:
            self.held, self._memory, self._opened = True, file.read(offset, self._size), None
        elif held:
            self._memory = _shared(self._size + len(_READ))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: int | slice) -> Any:
        """Return one element; for a slice, return its elements as an array in memory."""
        if self.held:
            return self.array()[which]
        if not isinstance(which, slice):
            index = range(self._count)[which]
            return self._part(index, index + 1)[0]
        start, stop, step = which.indices(self._count)
        return self._part(start, stop) if step == 1 else self.array()[which].copy()

    def array(self) -> npt.NDArray[Any]:
        """Return the whole vector, read-only. If it is not held in memory, the result is a mapping; see `Vector`."""
        if not self.held:
            self._file.require_whole()
            self._require_same(self._file)
            return self._mapped()
        opened = self._opened
        if opened is not None:  # another thread may set it to None meanwhile
            self._fill(opened)
            self._opened = None  # so that the file is closed when its reader is closed
        return _read_only(np.frombuffer(self._memory, self.dtype, self._count))

    def copy(self) -> npt.NDArray[Any]:
        """Return the whole vector, read-only, as an array in memory that stays valid."""
        if self.held:
            return self.array()
        try:
            found = np.empty(self._count, self.dtype)
        except MemoryError as error:
            raise PackError(f"{self._size:,} bytes of the table do not fit into memory") from error
        for start in range(0, self._count, _STEP):
            block = self[start : start + _STEP]
            found[start : start + len(block)] = block
        return _read_only(found)

    @property
    def _file(self) -> _Bytes:
        assert self._opened is not None  # a vector that is in memory does not need its file
        return self._opened

    def _part(self, start: int, stop: int) -> npt.NDArray[Any]:
        self._require_same(self._file)
        size, count = self.dtype.itemsize, max(0, stop - start)
        return np.frombuffer(self._file.read(self._offset + size * start, size * count), self.dtype)

    def _require_same(self, file: _Bytes) -> None:
        """Raise CorruptPackError if the vector in the file has changed since the file was opened."""
        if self.checksum is None or (stamp := file.stamp()) == self._fits:
            return
        checksum = 0
        for start in range(0, self._size, _STEP):
            data = file.read(self._offset + start, min(_STEP, self._size - start))
            checksum = google_crc32c.extend(checksum, data)
        if checksum != self.checksum:
            raise file.overwritten()
        self._fits = stamp

    def _mapped(self) -> npt.NDArray[Any]:
        start = self._offset - self._offset % mmap.ALLOCATIONGRANULARITY
        if self._memory is None:
            self._memory = self._file.mapping(start, self._offset + self._size - start)
        return np.frombuffer(self._memory, self.dtype, self._count, self._offset - start)

    def _fill(self, file: _Bytes) -> None:
        """Read the vector, unless this process or a fork has read it already.

        There is no lock, because a lock that is held during a fork could stay locked forever. If two processes read at
        the same time, they read the same elements.
        """
        for start in range(0, self._size, _STEP):
            if self._memory[-1:] == _READ:
                return
            data = file.read(self._offset + start, min(_STEP, self._size - start))
            if self._memory[-1:] == _READ:  # others use the elements already, and the file may have changed meanwhile
                return
            self._memory[start : start + len(data)] = data
        self._require_same(file)
        self._memory[-1:] = _READ


def _shared(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size)
    except (OSError, MemoryError) as error:
        raise PackError(f"{size:,} bytes of the table do not fit into memory: {error}") from error


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


_BLOCK = 1 << 16  # elements of a piece


def blocks(column: npt.NDArray[Any] | Vector) -> Iterator[npt.NDArray[Any]]:
    """Yield a vector piece by piece, so that a copy of each piece needs little memory, however long the vector is."""
    return (column[part] for part in spans(len(column)))


def spans(length: int, overlap: int = 0) -> Iterator[slice]:
    """Yield slices that cover a vector; each includes the first `overlap` elements of the next slice."""
    return (slice(start, min(start + _BLOCK + overlap, length)) for start in range(0, length, _BLOCK))


def column_checksum(column: npt.NDArray[Any] | Vector) -> int:
    """Return the CRC-32C of a vector's bytes."""
    return functools.reduce(google_crc32c.extend, (block.tobytes() for block in blocks(column)), 0)


LONGEST_NAME = 1 << 16
"""The largest number of bytes of a name. Without a limit, damaged ends could yield a long name again and again."""

_MOST_TOGETHER = 1 << 26  # most bytes of names that are read at a time


class Names(Sequence[str]):
    """An immutable sequence of strings, stored in two arrays.

    If a name is not inside of the blob, or is longer than `LONGEST_NAME`, access to it raises CorruptPackError with the
    name's index.

    Parameters
    ----------
    blob : (B,) uint8 array or vector
        All names in UTF-8, one after the other. Bytes that are not UTF-8 are decoded to surrogates.
    ends : (N,) int64 array or vector
        The end of each name in `blob`.
    path : str
        The path of the pack, for messages.
    first : int
        The start of the first name in `blob`: 0, except for a slice of a damaged table whose ends do not ascend.
    """

    __slots__ = ("_blob", "_ends", "_first", "path")

    def __init__(
        self, blob: npt.NDArray[np.uint8] | Vector, ends: npt.NDArray[np.int64] | Vector, path: str = "", first: int = 0
    ) -> None:
        self._blob, self._ends, self._first = blob, ends, first
        self.path = path

    @property
    def blob(self) -> npt.NDArray[np.uint8]:
        """All names in one array. It must be used at once if names are not held in memory; see `Vector.array`."""
        return self._blob.array() if isinstance(self._blob, Vector) else self._blob

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The end of each name in `blob`."""
        return self._ends.array() if isinstance(self._ends, Vector) else self._ends

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Return an instance that stores `names`."""
        blob, ends = bytearray(), array("q")
        for name in names:
            blob += encode_name(name)
            ends.append(len(blob))
        return cls(np.frombuffer(blob, np.uint8), np.frombuffer(ends, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Names]) -> Names:
        """Return the names of all `parts`, one after the other; a name that is invalid in its part stays invalid."""
        blobs = []
        for part in parts:  # the first name of a part begins where the last name of the previous part ends
            last = int(part.ends[-1]) if len(part) else 0
            is_end = 0 <= last <= len(part.blob)
            blobs.append(part.blob[: last if is_end else _furthest(part.ends, len(part.blob))])
        starts = np.cumsum([0, *map(len, blobs)])
        ends = [
            np.where((part.ends < 0) | (part.ends > len(blob)), -1, part.ends + start)
            for part, blob, start in zip(parts, blobs, starts[:-1], strict=True)
        ]
        return cls(np.concatenate(blobs), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return decode_name(self.encoded(index))

    def __iter__(self) -> Iterator[str]:
        for index, name in enumerate(self.each_encoded()):
            if name is None:
                raise self._missing(index)
            yield decode_name(name)

    def get(self, index: int) -> str:
        """Return name `index` for a message; empty if the name is invalid."""
        return decode_name(self._between_ends(range(len(self))[index]) or b"")

    def between(self, start: int, stop: int) -> Names:
        """Return names `start` to `stop` - 1: the same names as in the whole sequence, even if ends are damaged."""
        size, ends = len(self._blob), self._ends[start:stop]
        first, last = self._start(start), _furthest(ends, size)
        begin = int(ends.min(initial=first if 0 <= first <= size else size, where=(ends >= 0) & (ends <= size)))
        return Names(self._blob[begin : max(begin, last)], ends - begin, self.path, first - begin)

    def taken(self, rows: slice | Ints) -> Names:
        """Return the names of these rows. An invalid name stays invalid if `rows` is a slice; otherwise it is empty."""
        if isinstance(rows, slice):
            return self.between(*rows.indices(len(self))[:2])
        return Names.of(map(self.get, rows.tolist()))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of name `index`."""
        index = range(len(self))[index]
        name = self._between_ends(index)
        if name is None:
            raise self._missing(index)
        return name

    def each_encoded(self) -> Iterator[bytes | None]:
        """Yield the bytes of every name; None for an invalid name."""
        start, size = self._first, len(self._blob)
        for ends in blocks(self._ends):
            begin, blob = self._around(start, ends)
            for end in ends.tolist():
                fits = 0 <= start <= end <= min(size, start + LONGEST_NAME)
                yield bytes(blob[start - begin : end - begin]) if fits else None
                start = end

    def _around(self, start: int, ends: npt.NDArray[np.int64]) -> tuple[int, memoryview]:
        """Return the offset and the bytes of a part of the blob that contains the names from `start` to `ends`."""
        if not isinstance(self._blob, Vector):
            return 0, self._blob.data
        begin, end = max(0, min(start, int(ends.min()))), min(len(self._blob), int(ends.max()))
        if end - begin > _MOST_TOGETHER:  # the ends are damaged, and do not ascend
            return 0, self.blob.data
        return begin, self._blob[begin : max(begin, end)].data

    def _between_ends(self, index: int) -> bytes | None:
        return cut_name(self._blob, self._start(index), int(self._ends[index]))

    def _start(self, index: int) -> int:
        return int(self._ends[index - 1]) if index else self._first

    def _missing(self, index: int) -> CorruptPackError:
        return CorruptPackError(
            f"the name of sample {index} is outside the stored names, or is too long", self.path, index
        )


def _furthest(ends: npt.NDArray[np.int64], size: int) -> int:
    """Return the largest end that is at most `size`: the last end may be damaged, and then too large."""
    return int(ends.max(initial=0, where=(ends >= 0) & (ends <= size)))


def cut_name(blob: npt.NDArray[np.uint8] | Vector, start: int, end: int) -> bytes | None:
    """Return the bytes of the name from `start` to `end` in the blob; None if this range cannot be a name."""
    return blob[start:end].tobytes() if 0 <= start <= end <= min(len(blob), start + LONGEST_NAME) else None


class Texts(Protocol):
    """A sequence of texts that can be read repeatedly."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> str: ...
    def __iter__(self) -> Iterator[str]: ...


def repeats(texts: Texts) -> Iterator[tuple[int, int]]:
    """Yield, for each text that equals an earlier text, its index and the index of the first equal text.

    Texts with equal hashes are compared. This takes 8 bytes of memory for each text, and 16 if there are equal hashes.
    The order of the results is undefined.

    Parameters
    ----------
    texts : Texts
        Iterated over once, or twice if there are equal hashes. Texts with equal hashes are then read by index.
    """
    hashes = hashes_of(texts)
    hashes.sort()
    if not any((hashes[part][1:] == hashes[part][:-1]).any() for part in spans(len(hashes), overlap=1)):
        return
    hashes = hashes_of(texts)
    order = np.argsort(hashes, kind="stable")
    first: dict[str, int] = {}
    before = -1
    for part in spans(len(order), overlap=1):
        indices = order[part]
        ordered = hashes[indices]
        for position in np.flatnonzero(ordered[1:] == ordered[:-1]).tolist():
            earlier, index = int(indices[position]), int(indices[position + 1])
            if earlier != before:  # a new group of texts with the same hash, which nearly always are equal
                first = {texts[earlier]: earlier}
            found = first.setdefault(texts[index], index)
            if found != index:
                yield index, found
            before = index


def hashes_of(texts: Texts) -> Ints:
    """Return an 8-byte hash of each text. Hashes can be compared only within this process."""
    return np.fromiter(map(hash, texts), np.int64, len(texts))


def encode_name(name: str) -> bytes:
    """Encode a name in UTF-8, and each surrogate as the byte that it represents."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    """Decode the bytes of a name; the inverse of `encode_name`."""
    return name.decode("utf-8", "surrogateescape")


Buffer = bytes | bytearray | memoryview
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.float64]

COLUMNS: Mapping[str, str] = {
    "label": "<i8",
    "height": "<i4",
    "width": "<i4",
    "offset": "<i8",
    "size": "<i8",
    "crc32c": "<u4",
    "name_end": "<i8",
    "names": "|u1",
}
"""The table's columns and their dtypes. `names` contains all names, one after the other; name i ends at `name_end[i]`.

Labels of the type ``float`` are float64, and fields have more columns: see `column_types`.
"""


def column_types(label_type: str, fields: Iterable[Field] = (), *, apart: bool = False) -> dict[str, str]:
    """Return the table's columns with their dtypes, for a pack with this type of labels and these fields.

    If the blobs of fields are stored `apart` from the images, each field with blobs also has a column of offsets.
    """
    types = {**COLUMNS, "label": LABEL_TYPES[label_type]}
    for one in fields:
        types |= one.columns()
        if apart and one.is_blob:
            types[f"field.{one.name}.offset"] = "<i8"
    return types


@dataclass(frozen=True, slots=True)
class Sample:
    """One image with its label and field values, in the form that a pack stores.

    Attributes
    ----------
    name : str
        Path relative to the source, with forward slashes. Bytes that are not UTF-8 are decoded to surrogates
        (`os.fsdecode`).
    label : int or float
        A class id (an index into the manifest's `classes`), or -1 for an unlabeled image. In a pack without classes,
        any number.
    data : bytes-like
        The encoded image; with the codec ``raw``, height * width * 3 bytes of uint8 RGB pixels, from the top row on.
    height, width : int
        Size of the decoded image in pixels.
    fields : tuple
        The values of the sample's fields, in the order of the fields, as `Field.encode` returns them.
    """

    name: str
    label: int | float
    data: Buffer
    height: int
    width: int
    fields: tuple[Stored, ...] = ()

    @property
    def parts(self) -> list[Buffer]:
        """The consecutive parts of the sample in a pack: the image, then the blobs of its fields."""
        blobs = (stored for stored in self.fields if stored is not None and not isinstance(stored, (int, float)))
        return [self.data, *blobs]


_LARGEST = 1 << 61

_CHECKED_FIELDS, _CHECKED_WITH_FLOAT = struct.Struct("<qii"), struct.Struct("<dii")


def checksum(data: Buffer, label: int | float, height: int, width: int, name: bytes) -> int:
    """Return the checksum of a sample: the CRC-32C of its data, label, height, width and name, in this order.

    Numbers are little-endian: the label is an int64 or a float64, height and width are int32. The checksum covers
    everything that a reader returns, so a damaged label is detected as reliably as a damaged byte of the image.
    """
    if not isinstance(data, bytes):  # google_crc32c takes bytes or a read-only array
        view = np.frombuffer(data, np.uint8)
        view.flags.writeable = False
        crc = google_crc32c.value(view)
    else:
        crc = google_crc32c.value(data)
    fields = _CHECKED_WITH_FLOAT if isinstance(label, float) else _CHECKED_FIELDS
    return int(google_crc32c.extend(crc, fields.pack(label, height, width) + name))


def value_checksum(blob: Buffer, name: bytes) -> int:
    """Return the CRC-32C of a field's blob followed by the sample's name, so that no other sample's blob matches."""
    return int(google_crc32c.extend(google_crc32c.value(bytes(blob)), name))


def field_columns(fields: Sequence[Field], values: Sequence[Stored], name: bytes) -> tuple[int | float, ...]:
    """Return the values that a sample has in the table's columns of the fields, in the order of `column_types`."""
    row: list[int | float] = []
    for one, stored in zip(fields, values, strict=True):
        if KINDS[one.kind].has_null:
            row += (0, 1) if stored is None else (stored, 0)  # type: ignore[arg-type]
        elif not one.is_blob:
            row.append(NO_VALUE if stored is None else int(stored))
        elif stored is None:
            row += (NO_VALUE, 0)
        else:
            assert not isinstance(stored, (int, float))
            row += (len(stored), value_checksum(stored, name))
    return tuple(row)


def with_offsets(
    fields: Sequence[Field], row: Sequence[int | float], offsets: Sequence[int]
) -> tuple[int | float, ...]:
    """Insert each blob's offset into a row, after the columns of its field, as in `column_types` with ``apart=True``.

    Parameters
    ----------
    fields : sequence of Field
    row : sequence
        The row that `field_columns` returned.
    offsets : sequence of int
        One offset for each field whose values are blobs.
    """
    columns, begins, joined = iter(row), iter(offsets), list[int | float]()
    for one in fields:
        joined += itertools.islice(columns, len(one.columns()))
        if one.is_blob:
            joined.append(next(begins))
    return tuple(joined)


def are_pixels(size: npt.ArrayLike, height: npt.ArrayLike, width: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Tell whether `size` bytes are raw RGB pixels of this height and width; for arrays, tell it for each element."""
    size, height, width = np.asarray(size, np.int64), np.asarray(height, np.int64), np.asarray(width, np.int64)
    # `size` is divided by 3, because 3 * height * width may exceed int64.
    return np.asarray((height > 0) & (width > 0) & (size % 3 == 0) & (height * width == size // 3))


class Row(NamedTuple):
    """The row of one sample, as plain Python numbers: its index, `number`, and its values in the columns of `Table`.

    `name` is bytes; None if the start or the end of the name in the table is damaged.
    """

    number: int
    label: int | float
    height: int
    width: int
    offset: int
    size: int
    crc32c: int
    name: bytes | None

    def matches(self, data: Buffer) -> bool:
        """Tell whether the row's checksum fits `data` and the row's label, height, width and name."""
        return self.name is not None and checksum(data, self.label, self.height, self.width, self.name) == self.crc32c


class _ReadLater(Mapping[str, npt.NDArray[Any]]):
    """A mapping of columns by name that reads each column from its file at the first access.

    Attributes
    ----------
    stored : dict of str to array or Vector
        The columns. Columns that have not been read yet, or that are not held in memory, are of the type Vector.
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any] | Vector]) -> None:
        self.stored = dict(columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        column = self.stored[name]
        if not isinstance(column, Vector):
            return column
        found = column.array()
        if column.held:
            self.stored[name] = found
        return found


@dataclass(frozen=True, eq=False)
class Table:
    """The table of a pack: one row for each sample, one array for each column. Arrays need not be contiguous.

    Attributes
    ----------
    label : (N,) int64 or float64
        Class ids, with -1 for unlabeled images; in a pack without classes, any numbers.
    offset, size : (N,) int64
        The offset of each sample's data, counted from an origin that the format defines, and the number of bytes of
        these data.
    height, width : (N,) int32
        Size of each decoded image in pixels.
    crc32c : (N,) uint32
        The checksum of each sample; see `checksum`.
    name_end : (N,) int64
    names : (B,) uint8
        See `Names`.
    more : mapping
        The columns of the fields, by name; see `Field.columns`.

    Raises
    ------
    PackError
        If a column that was passed to `Table.of` as a `Vector` is accessed after its file has been cut short.
    """

    label: Labels
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    crc32c: npt.NDArray[np.uint32]
    name_end: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]
    more: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[Any] | Vector], types: Mapping[str, str] = COLUMNS) -> Table:
        """Build a table from columns of these `types`; ValueError if a column is missing or lengths differ."""
        for name, dtype in types.items():
            if name not in columns:
                raise ValueError(f"the table has no column {name!r}")
            column = columns[name]
            if column.dtype != np.dtype(dtype) or (isinstance(column, np.ndarray) and column.ndim != 1):
                raise ValueError(f"the table's column {name!r} is not a vector of {dtype}")
        if len({len(columns[name]) for name in types if name != "names"}) != 1:
            raise ValueError("the table's columns differ in length")
        table = object.__new__(cls)
        table.__dict__.update(
            more=_ReadLater({name: columns[name] for name in types if name not in COLUMNS}),
            _own=_ReadLater({name: columns[name] for name in COLUMNS}),
            _count=len(columns["label"]),
        )
        return table

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> npt.NDArray[Any]:
            """Read and return a column that has not been accessed before, or that is not held in memory."""
            own = self.__dict__.get("_own")
            if own is None or name not in own:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            column = own[name]
            if own.stored[name] is column:
                self.__dict__[name] = column
            return column

    def __len__(self) -> int:
        count: int | None = self.__dict__.get("_count")
        return len(self.label) if count is None else count

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column by name, possibly as a temporary array (see `Vector.array`); KeyError if there is none."""
        found: npt.NDArray[Any] = getattr(self, name) if name in COLUMNS else self.more[name]
        return found

    def stored(self, name: str) -> npt.NDArray[Any] | Vector:
        """Return a column by name; if it is not held in memory, return its Vector."""
        columns = self.__dict__.get("_own") if name in COLUMNS else self.more
        found = columns.stored[name] if isinstance(columns, _ReadLater) else self.column(name)
        return self.column(name) if isinstance(found, Vector) and found.held else found

    def kept(self, name: str) -> npt.NDArray[Any]:
        """Return a column by name, as an array in memory that stays valid."""
        found = self.stored(name)
        return found.copy() if isinstance(found, Vector) else found

    def checksum(self, name: str) -> int:
        """Return the CRC-32C of a column."""
        return column_checksum(self.stored(name))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by name: first those in `COLUMNS`, in that order, then those of the fields."""
        return {name: self.column(name) for name in self.column_names()}

    def column_names(self) -> list[str]:
        """Return the names of the columns in the order of `columns`, without reading them."""
        return [*COLUMNS, *self.more]

    def extent(self, rows: slice | Ints = slice(None)) -> Ints:
        """Return the size in bytes of each sample in these rows: the sum of its image and the blobs of its fields.

        Blobs that are stored apart from the image do not count. Impossibly large sizes are clipped, so that their sum
        does not overflow.
        """
        total = self.size[rows]
        for name in self.more:
            if name.endswith(".size") and f"{name.removesuffix('.size')}.offset" not in self.more:
                total = np.minimum(total, _LARGEST) + np.clip(self.more[name][rows], 0, _LARGEST)
        return total

    def sample_names(self, path: str = "") -> Names:
        """Return the names as a sequence of strings; `path` is the path of the pack, for messages."""
        return Names(self.stored("names"), self.stored("name_end"), path)

    def overlapping(self) -> Iterator[int]:
        """Yield each row whose data overlap the data of a row that is earlier in the file; an intact pack has none.

        If rows are not in the order of their data, this needs 8 bytes of memory for each row.
        """
        order = None if _ascends(self.offset) else np.argsort(self.offset, kind="stable")
        end = np.int64(np.iinfo(np.int64).min)
        for part in spans(len(self)):
            rows = np.arange(part.start, part.stop) if order is None else order[part]
            extent = self.extent(rows)
            rows, extent = rows[extent > 0], extent[extent > 0]
            offset = self.offset[rows]
            ends = np.maximum.accumulate(np.concatenate([[end], offset + extent]))
            yield from rows[offset < ends[:-1]].tolist()
            end = ends[-1]

    def row(self, index: int) -> Row:
        """Return row `index`, which must not be negative."""
        start = int(self.name_end[index - 1]) if index else 0
        return Row(
            index,
            self.label[index].item(),
            int(self.height[index]),
            int(self.width[index]),
            int(self.offset[index]),
            int(self.size[index]),
            int(self.crc32c[index]),
            cut_name(self.names, start, int(self.name_end[index])),
        )

    def rows(self, indices: npt.NDArray[np.int64]) -> list[Row]:
        """Return the rows with these indices, which must not be negative."""
        if not len(indices):
            return []
        starts = np.where(indices > 0, self.name_end[indices - 1], 0).tolist()
        names = map(cut_name, itertools.repeat(self.names), starts, self.name_end[indices].tolist())
        numbers = self.label, self.height, self.width, self.offset, self.size, self.crc32c
        return list(map(Row, indices.tolist(), *(column[indices].tolist() for column in numbers), names))


def column_checksums(table: Table) -> dict[str, int]:
    """Return the CRC-32C of every column of a table."""
    return {name: table.checksum(name) for name in table.column_names()}


def _ascends(column: npt.NDArray[Any]) -> bool:
    return not any((column[part][1:] < column[part][:-1]).any() for part in spans(len(column), overlap=1))
