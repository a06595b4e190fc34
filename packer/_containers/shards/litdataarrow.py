"""The rows of LitData's chunks that are a table of Arrow, as it writes them where pyarrow is installed.

Samples that are dicts of bytes, texts and numbers then follow the table of offsets, whose samples are empty, as a file
of Arrow's IPC format; its size, u32, and a signature end the chunk. See `append_arrow_row_footer` in
https://github.com/Lightning-AI/litData/blob/main/src/litdata/streaming/item_loader.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from packer._containers.columnar.arrowbatches import Batches, names_of, schema_of
from packer._containers.columnar.arrowmessages import batches
from packer._containers.unpacking import Packed, Piece
from packer._fields import Field
from packer.errors import SourceError

if TYPE_CHECKING:
    from packer._containers.shards.reading import Reading
    from packer._containers.shards.roles import Value
    from packer._storage.packfile import PackFile

__all__ = ["Section", "arrow_rows", "arrow_section"]

_SIGNATURE = b"LDARW01\0"
_END = 12  # bytes of the size and the signature
_JSON = Field("json", "json")


class Section:
    """A part of a file, read as a file of its own.

    Parameters
    ----------
    file : Reading
    begin, size : int

    Attributes
    ----------
    path : str
    begin : int
        Where in the file it begins.
    size : int
    """

    def __init__(self, file: Reading, begin: int, size: int) -> None:
        self.path, self.begin, self.size = file.path, begin, size
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        """Return a range; SourceError where it does not lie in the file."""
        return self._file.read(self.begin + offset, size)


def arrow_section(file: Reading) -> Section | None:
    """Return the table of Arrow in a chunk; None where it has none. SourceError where the table does not lie in it."""
    if file.size < _END or file.read(file.size - 8, 8) != _SIGNATURE:
        return None
    size = int.from_bytes(file.read(file.size - _END, 4), "little")
    if not 0 < size <= file.size - _END:
        raise SourceError(f"{file.path}: damaged: a table of Arrow of {size} bytes does not lie in it")
    return Section(file, file.size - _END - size, size)


def arrow_rows(section: Section, unit: int, names: Sequence[str]) -> Iterator[dict[str, Value]]:
    """Yield the samples of a table: the values of the parts of these names, whose keys are joined by dots.

    Raises
    ------
    MissingDependencyError
        If pyarrow is not installed.
    SourceError
        If the table is damaged, or a part of a sample is compressed.
    """
    file = cast("PackFile", section)
    schema = schema_of(file)
    reader = Batches(file, unit, schema)
    columns = {name: name if schema.get_field_index(name) >= 0 else name.partition(".")[0] for name in names}
    if missing := [name for name, column in columns.items() if schema.get_field_index(column) < 0]:
        raise SourceError(f"{section.path}: its table of Arrow has no column {missing[0]!r}")
    lying = [name for name, column in columns.items() if _is_binary(schema.field(column).type, name, column)]
    others = [name for name in columns if name not in lying]
    read = [*dict.fromkeys(columns[name] for name in others)]
    for batch in batches(file):
        places = {name: reader.images(batch, columns[name]) for name in lying}
        for at, row in enumerate(reader.rows(batch, read)):
            values = {name: _plain(row[columns[name]], name[len(columns[name]) + 1 :]) for name in others}
            yield values | {name: _moved(of[at], section) for name, of in places.items()}


def _is_binary(kind: Any, name: str, column: str) -> bool:
    """Tell whether the bytes of a part lie in a buffer of a column of their own, or of ``bytes`` in its structures."""
    inner = "bytes" in names_of(kind) and name == f"{column}.bytes"
    return str(kind.field("bytes").type if inner else kind) in ("binary", "large_binary")


def _moved(place: Piece | Packed | None, section: Section) -> Value:
    if isinstance(place, Packed):
        raise SourceError(f"{section.path}: its table of Arrow is compressed. Write it without compression")
    return None if place is None else place._replace(offset=section.begin + place.offset)


def _plain(value: Any, path: str) -> Value:
    """Return a value of a table, or one in it, as other chunks have it."""
    for key in path.split(".") if path else ():
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, (bytes, int, float)):
        return value
    return bytes(cast("bytes", _JSON.encode(value)))
