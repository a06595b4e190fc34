"""The columns of Arrow's record batches: where images lie, and the values of others.

The arrays of a batch lie in the order of the schema, a parent before its children. Each has a node, its length and how
many values are missing, and the buffers of its type: which values are there, where each begins, the values. A column
with a dictionary, as pandas has categories, has the numbers of its values there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._containers.columnar.arrowmessages import Batch, Dictionary, dictionary_ids, schema_message
from packer._containers.columnar.rowlists import row_lists
from packer._containers.unpacking import MOST_UNPACKED, Packed, Piece, unpack
from packer._storage.packfile import PackFile
from packer.errors import MissingDependencyError, PackError, SourceError, pip_install, printable

__all__ = ["NOT_READ", "Batches", "names_of", "schema_of"]

NOT_READ = (ArithmeticError, LookupError, MemoryError, OSError, PackError, RuntimeError, TypeError, ValueError)
"""What pyarrow raises where a file is damaged, and what reading one raises."""

_REPEATING = re.compile(r"(dense_|sparse_)?union|run_end_encoded|(large_)?list_view|(string|binary)_view")
_HEAD = 32  # bytes, by which an image is known
_MOST_NULLS = 1 << 28  # bytes


class _Values(NamedTuple):
    """The array of a dictionary, with the bytes that it took of buffers, and for nulls."""

    of: Dictionary
    array: Any
    taken: int
    nulls: int


class Batches:
    """Reads the columns of record batches.

    Parameters
    ----------
    file : PackFile
        The file `unit` of a container.
    unit : int
    schema : pyarrow.Schema
    """

    def __init__(self, file: PackFile, unit: int, schema: Any) -> None:
        self._file, self._unit, self._schema = file, unit, schema
        self._unpacked: tuple[Piece, bytes] | None = None
        self._ids: list[int | None] | None = None  # of dictionaries
        self._values: dict[int, _Values] = {}
        self._taken = 0  # bytes of the buffers of other columns, some of which may be the same
        self._nulls = 0  # bytes that arrays without a value take, of which the file has none

    def images(self, batch: Batch, column: str) -> list[Piece | Packed | None]:
        """Return where each image of a batch lies; None where there is none."""
        with reading(self._file):
            kind, node, buffer = self._place(batch, column)
            there = self._valid(batch, node, buffer, batch.rows)
            if names_of(kind):
                child = names_of(kind).index("bytes")
                for before in range(child):
                    nodes, buffers = _extent(kind.field(before).type)
                    node, buffer = node + nodes, buffer + buffers
                kind, node, buffer = kind.field(child).type, node + 1, buffer + 1
                there = there & self._valid(batch, node, buffer, batch.rows)
            offsets = self._offsets(batch, buffer + 1, "<i8" if str(kind).startswith("large") else "<i4")
            lying, size = self._lying(batch, buffer + 2)
            sizes = np.diff(offsets)
            if (sizes < 0).any() or offsets[0] < 0 or offsets[-1] > size:
                raise ValueError(f"the images of the column {column!r} do not lie in their buffer")
            places: list[Piece | Packed | None] = []
            for begin, length, present in zip(offsets.tolist(), sizes.tolist(), there.tolist(), strict=False):
                if not present:
                    places.append(None)
                elif isinstance(lying, Piece):
                    places.append(Piece(self._unit, lying.offset + begin, length))
                else:
                    places.append(lying._replace(offset=begin, size=length))
            return places

    def paths(self, batch: Batch, column: str) -> list[str | None]:
        """Return the path of each image of a batch."""
        kind = self._schema.field(column).type
        if not names_of(kind):
            return [None] * batch.rows
        with reading(self._file):
            _, node, buffer = self._place(batch, column)
            node, buffer = node + 1, buffer + 1
            for name in names_of(kind):
                of = kind.field(name).type
                if name == "path":
                    found = _texts(self._array(batch, of, node, buffer)[0])
                    if len(found) != batch.rows:
                        raise ValueError(f"{len(found)} paths of {batch.rows} images")
                    if not all(path is None or isinstance(path, str) for path in found):
                        raise ValueError(f"the paths of the column {column!r} are {of}, and no texts")
                    return found
                nodes, buffers = _extent(of)
                node, buffer = node + nodes, buffer + buffers
        return [None] * batch.rows

    def rows(self, batch: Batch, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of other columns, a row each."""
        with reading(self._file):
            self._taken = sum(values.taken for values in self._values.values())
            self._nulls = sum(values.nulls for values in self._values.values())
            arrays = {column: self._array(batch, *self._place(batch, column))[0] for column in columns}
            if any(len(array) != batch.rows for array in arrays.values()):
                raise ValueError("its columns have different lengths")
        if not arrays:
            yield from ({} for _ in range(batch.rows))
            return
        lists = row_lists(list(arrays.values()), batch.rows)
        while True:
            with reading(self._file):
                some = next(lists, None)
            if some is None:
                return
            yield from (dict(zip(arrays, row, strict=True)) for row in zip(*some, strict=True))

    def head(self, place: Piece | Packed) -> bytes:
        """Return the first bytes of an image."""
        if isinstance(place, Piece):
            return self._file.read(place.offset, min(place.size, _HEAD))
        return self._whole(place)[place.offset : place.offset + min(place.size, _HEAD)]

    def _whole(self, packed: Packed) -> bytes:
        if self._unpacked is None or self._unpacked[0] != packed.piece:
            with reading(self._file):
                data = unpack(packed.codec, self._file.read(packed.piece.offset, packed.piece.size), packed.unpacked)
            self._unpacked = packed.piece, data
        return self._unpacked[1]

    def _place(self, batch: Batch, column: str) -> tuple[Any, int, int]:
        """Return the type of a column, and the numbers of its first node and its first buffer."""
        node = buffer = 0
        for field in self._schema:
            if field.name == column:
                return field.type, node, buffer
            nodes, buffers = _extent(field.type)
            node, buffer = node + nodes, buffer + buffers
        raise ValueError(f"it has no column {column!r}")

    def _lying(self, batch: Batch, number: int) -> tuple[Piece | Packed, int]:
        """Return where a buffer lies, and its size when it is unpacked."""
        offset, size = batch.buffers[number]
        if not batch.codec or not size:
            return Piece(self._unit, offset, size), size
        unpacked = int.from_bytes(self._file.read(offset, min(size, 8)), "little", signed=True)
        if size < 8 or unpacked < -1:
            raise ValueError(f"a compressed buffer of {unpacked} bytes")
        inner = Piece(self._unit, offset + 8, size - 8)
        if unpacked == -1:
            return inner, size - 8
        return Packed.whole(inner, batch.codec, unpacked), unpacked

    def _bytes(self, batch: Batch, number: int) -> bytes:
        lying, _ = self._lying(batch, number)
        if isinstance(lying, Piece):
            return self._file.read(lying.offset, lying.size)
        return unpack(lying.codec, self._file.read(lying.piece.offset, lying.piece.size), lying.unpacked)

    def _own(self, batch: Batch, number: int) -> bytes:
        """Return a buffer that no other array of the batch has; ValueError where they have more than there is."""
        data = self._bytes(batch, number)
        self._taken += len(data)
        if self._taken > (most := MOST_UNPACKED if batch.codec else self._file.size):
            raise ValueError(f"the buffers of its columns have more than {most:,} bytes")
        return data

    def _valid(self, batch: Batch, node: int, number: int, rows: int) -> npt.NDArray[np.bool_]:
        length, nulls = batch.nodes[node]
        if length != rows or rows > 8 * self._file.size:
            raise ValueError(f"an array of {length} values, and not of {rows}")
        bits = self._bytes(batch, number) if nulls else b""
        if not nulls:
            return np.ones(rows, bool)
        if 8 * len(bits) < rows:
            raise ValueError("which values are missing does not lie in its buffer")
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=rows, bitorder="little").astype(bool)

    def _offsets(self, batch: Batch, number: int, dtype: str) -> npt.NDArray[np.int64]:
        data = self._bytes(batch, number)
        size = (batch.rows + 1) * np.dtype(dtype).itemsize
        if not batch.rows and not data:
            return np.zeros(1, np.int64)
        if len(data) < size:
            raise ValueError("where values begin does not lie in its buffer")
        return np.frombuffer(data[:size], dtype).astype(np.int64)

    def _array(self, batch: Batch, kind: Any, node: int, buffer: int) -> tuple[Any, int, int]:
        """Return an array, and the numbers of the node and the buffer after its own."""
        import pyarrow as pa

        kind = getattr(kind, "storage_type", kind)
        if _REPEATING.match(str(kind)):  # values that are there once, and many times in the array
            where = printable(self._file.path)
            raise SourceError(f"{where}: packer does not read columns of {kind}: name others with --key")
        if pa.types.is_dictionary(kind):
            return self._of_dictionary(batch, kind, node, buffer)
        length, nulls = batch.nodes[node]
        count = kind.num_buffers * (not pa.types.is_null(kind))
        has_bytes = any(batch.buffers[number].size for number in range(buffer, buffer + count))
        if length > (8 if has_bytes else 1) * self._file.size:  # nulls and empty structures have no bytes
            raise ValueError(f"an array of {length:,} values in a file of {self._file.size:,} bytes")
        own = [
            None if not batch.buffers[number].size else pa.py_buffer(self._own(batch, number))
            for number in range(buffer, buffer + count)
        ]
        if own and not nulls:
            own[0] = None
        own[1:] = [pa.py_buffer(b"") if part is None else part for part in own[1:]]  # left out of what has no values
        node, buffer, children = node + 1, buffer + len(own), []
        for number in range(kind.num_fields):
            child, node, buffer = self._array(batch, kind.field(number).type, node, buffer)
            children.append(child)
        own = [None] if pa.types.is_null(kind) else own
        if nulls == length and not children and not pa.types.is_null(kind):
            self._nulls += length * _width(kind)
            if self._nulls > _MOST_NULLS:
                raise ValueError(f"its missing values would take {self._nulls:,} bytes")
            return pa.nulls(length, kind), node, buffer
        array = pa.Array.from_buffers(kind, length, own, nulls, children=children)
        array.validate(full=True)
        return array, node, buffer

    def _of_dictionary(self, batch: Batch, kind: Any, node: int, buffer: int) -> tuple[Any, int, int]:
        """Return an array whose values lie in a dictionary, as `_array`."""
        import pyarrow as pa

        if _has_dictionary(kind.value_type):
            where = printable(self._file.path)
            raise SourceError(f"{where}: packer does not read columns of {kind}: name others with --key")
        numbers, next_node, next_buffer = self._array(batch, kind.index_type, node, buffer)
        if self._ids is None:
            self._ids = dictionary_ids(self._file)
        number = self._ids[node] if node < len(self._ids) else None
        if number is not None and number in batch.dictionaries:
            values = self._values_of(number, batch.dictionaries[number], kind.value_type)
        elif numbers.null_count == len(numbers):  # its dictionary may follow, or be left out
            values = pa.array([], kind.value_type)
        else:
            raise ValueError(f"it has no dictionary {number} for the numbers of a column")
        return pa.DictionaryArray.from_arrays(numbers, values, ordered=kind.ordered), next_node, next_buffer

    def _values_of(self, number: int, dictionary: Dictionary, kind: Any) -> Any:
        """Return the values of a dictionary as one array. Those that are known are not read again."""
        import pyarrow as pa

        known = self._values.get(number)
        added: list[Batch] = []
        before: Dictionary | None = dictionary
        while before is not None and (known is None or before is not known.of):
            added.append(before.values)
            before = before.before
        if known is None or before is None:
            known = _Values(dictionary, pa.array([], kind), 0, 0)
        if added:
            taken, nulls = self._taken - known.taken, self._nulls - known.nulls
            arrays = [self._array(batch, kind, 0, 0)[0] for batch in reversed(added)]
            values = (
                arrays[0] if not len(known.array) and len(arrays) == 1 else pa.concat_arrays([known.array, *arrays])
            )
            known = _Values(dictionary, values, self._taken - taken, self._nulls - nulls)
            self._values[number] = known
        return known.array


@contextlib.contextmanager
def reading(file: PackFile) -> Iterator[None]:
    """Make errors of what lies in a file, which Arrow's are too, one that names it."""
    try:
        yield
    except NOT_READ as error:
        raise SourceError(f"{printable(file.path)}: damaged: {printable(error)[:300]}") from error


def schema_of(file: PackFile) -> Any:
    """Return the schema of a file.

    Raises
    ------
    MissingDependencyError
        If pyarrow is not installed.
    SourceError
        If there is none.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingDependencyError(
            f"{printable(file.path)}: its table of Arrow is read with pyarrow: {pip_install('parquet')}"
        ) from error
    message = schema_message(file)
    with reading(file):
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        for field in schema:
            _require_text(field)
        return schema


def _require_text(field: Any) -> None:
    """Raise ValueError where the name of a column, or of what is in it, is no text: pyarrow reads them when asked."""
    if not isinstance(field.name, str):
        raise ValueError("a column has no name")
    for number in range(field.type.num_fields):
        _require_text(field.type.field(number))


def names_of(kind: Any) -> list[str]:
    """Return the names of the members of a structure; none of any other type."""
    return [kind.field(number).name for number in range(kind.num_fields)] if str(kind).startswith("struct") else []


def _has_dictionary(kind: Any) -> bool:
    """Tell whether a type is one of a dictionary, or has one in it."""
    kind = getattr(kind, "storage_type", kind)
    return str(kind).startswith("dictionary<") or any(
        _has_dictionary(kind.field(number).type) for number in range(kind.num_fields)
    )


def _texts(array: Any) -> list[Any]:
    """Return the values of an array of texts. Of a dictionary each is made once, however often it is referred to."""
    if not str(array.type).startswith("dictionary<"):
        return list(array.to_pylist())
    values = array.dictionary.to_pylist()
    return [None if number is None else values[number] for number in array.indices.to_pylist()]


def _width(kind: Any) -> int:
    """Return how many bytes a missing value of a type takes in memory, about."""
    import pyarrow.types

    if pyarrow.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    return 16  # of the longest numbers, and more than a place takes where values have lengths of their own


def _extent(kind: Any) -> tuple[int, int]:
    """Return how many nodes and buffers an array of a type has, with its children."""
    kind = getattr(kind, "storage_type", kind)
    nodes, buffers = 1, 0 if str(kind) == "null" else kind.num_buffers
    for number in range(kind.num_fields):
        of_child = _extent(kind.field(number).type)
        nodes, buffers = nodes + of_child[0], buffers + of_child[1]
    return nodes, buffers
