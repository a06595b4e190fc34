"""Parquet files of images, as Hugging Face's `datasets` writes them: a row each sample.

Images that are not compressed are read where they lie. `parquetpages` finds them, without pyarrow,
which reads the columns of labels and fields.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._containers.columnar.arrowbatches import NOT_READ
from packer._containers.columnar.hfcolumns import columns_of, features_of, names_are_plain
from packer._containers.columnar.parquetpages import (
    BYTE_ARRAY,
    Parquet,
    Value,
    byte_strings,
    dictionary_size,
    read_footer,
)
from packer._containers.columnar.rowlists import MOST_ROWS, row_lists
from packer._containers.columnar.tables import TableImages
from packer._containers.contract import Entry, files_in, head_of
from packer._containers.imagenames import suffix_of
from packer._storage.packfile import PackFile
from packer.errors import MissingDependencyError, SourceError, pip_install, printable

__all__ = ["ParquetImages"]

_MAGIC = b"PAR1"
_METADATA = "metadata.parquet"  # of a tree of images: packer._sources.metadata
_LONGEST = 1 << 10  # bytes of a path
_MOST_READ = 1 << 31  # bytes
_MOST_LOOKED_UP = 1 << 26  # bytes of the values of a dictionary, each as often as it is referred to


class ParquetImages(TableImages):
    """Files ``.parquet`` with a column of images."""

    kind = "parquet"
    suffixes = (".parquet",)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        """Return the files of a directory, or of ``data`` in it, where the Hub has them."""
        below = path / "data"
        if "data" in names and not any(name.endswith(cls.suffixes) for name in names) and os.path.isdir(below):
            path, names = below, sorted(os.listdir(below))
        found = files_in(path, names, lambda name: name.lower().endswith(cls.suffixes) and name != _METADATA)
        if not found or not head_of(found[0]).startswith(_MAGIC) or not _has_images(found[0]):
            return None
        return found

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> ParquetImages:
        with PackFile(paths[0]) as file:
            parquet = read_footer(file)
            features = features_of(parquet.metadata)
            images = _image_columns(file, parquet, features, keys.get("image"))
            tops = dict.fromkeys(leaf.path[0] for leaf in parquet.leaves if leaf.path[0] not in images)
            types = _types(file) if tops else {}
            others = {name: types[name] for name in tops if name in types}
            columns = columns_of(images, others, features, keys, printable(paths[0]))
        if columns.label is not None and columns.label_type == "float":
            columns = columns.with_whole_labels(_numbers(paths, columns.label))
        return cls.of_columns(paths, columns)

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file:
            parquet, columns = read_footer(file), self.columns
            stem, digits = self.files[unit].rpartition(".")[0], len(str(sum(count for count, _ in parquet.groups)))
            paths = _leaf(parquet, columns.image, "path")
            plain = columns.name is None and paths is not None and names_are_plain(_texts(file, unit, parquet, paths))
            reader = _pyarrow(file) if columns.read() else None
            number = 0
            for group in range(len(parquet.groups)):
                images = self._images(file, unit, parquet, group, columns.image)
                pictures = {of.name: self._images(file, unit, parquet, group, c) for c, of in columns.pictures.items()}
                names = _texts(file, unit, parquet, paths, group) if paths is not None and plain else None
                others = _rows(file, parquet, reader, group, columns.read())
                for value, row in zip(images, others, strict=True):
                    path = next(names) if names is not None else None
                    further = {of: one.place for of, ones in pictures.items() if (one := next(ones)) is not None}
                    place, head = (None, b"") if value is None else value
                    yield columns.entry(row, f"{stem}/{number:0{digits}d}", path, place, head, further)
                    number += 1

    def _images(self, file: PackFile, unit: int, parquet: Parquet, group: int, column: str) -> Iterator[Value | None]:
        leaf = _leaf(parquet, column, "bytes")
        if leaf is None:
            raise SourceError(f"{printable(file.path)}: has no column {printable(column)}, as the first file has")
        return byte_strings(file, unit, parquet, (group, leaf))


def _has_images(path: Path) -> bool:
    try:
        with PackFile(path) as file:
            parquet = read_footer(file)
            return bool(_image_columns(file, parquet, features_of(parquet.metadata), None))
    except SourceError:
        return True  # whoever opens it says what is wrong


def _image_columns(file: PackFile, parquet: Parquet, features: Mapping[str, Any], wanted: str | None) -> list[str]:
    """Return the columns of images: structures of bytes and path, features, else those that begin with an image."""
    tops = dict.fromkeys(leaf.path[0] for leaf in parquet.leaves)
    found = [name for name in tops if _is_structure(parquet, name)]
    plain = [leaf.path[0] for leaf in parquet.leaves if len(leaf.path) == 1 and leaf.kind == BYTE_ARRAY]
    for name in plain:
        feature = features.get(name)
        if (isinstance(feature, dict) and feature.get("_type") == "Image") or name == wanted:
            found.append(name)
    return found or [name for name in plain if _begins_with_image(file, parquet, name)]


def _is_structure(parquet: Parquet, name: str) -> bool:
    leaves = {leaf.path[1:]: leaf for leaf in parquet.leaves if leaf.path[0] == name}
    return (
        leaves.keys() == {("bytes",), ("path",)}
        and leaves["bytes",].kind == BYTE_ARRAY
        and not leaves["bytes",].repeated
    )


def _begins_with_image(file: PackFile, parquet: Parquet, name: str) -> bool:
    leaf = _leaf(parquet, name, "bytes")
    if leaf is None or parquet.leaves[leaf].repeated:
        return False
    for group in range(len(parquet.groups)):
        for value in byte_strings(file, 0, parquet, (group, leaf)):
            if value is not None and value.head:
                return bool(suffix_of(value.head))
    return False


def _leaf(parquet: Parquet, column: str, part: str) -> int | None:
    """Return the number of a part of a column of images, or of the column where it has no parts; None without it."""
    for number, leaf in enumerate(parquet.leaves):
        if leaf.path == (column, part) or (part == "bytes" and leaf.path == (column,)):
            return number
    return None


def _texts(file: PackFile, unit: int, parquet: Parquet, leaf: int, group: int | None = None) -> Iterator[str | None]:
    """Yield the texts of a column, in one row group or in all; empty ones where they are longer than any name."""
    for number in range(len(parquet.groups)) if group is None else [group]:
        for value in byte_strings(file, unit, parquet, (number, leaf), _LONGEST):
            yield None if value is None else value.head.decode("utf-8", "replace") * (value.place.size <= _LONGEST)


def _pyarrow(file: PackFile) -> Any:
    """Open a file with pyarrow, for the columns that have no images.

    Raises
    ------
    MissingDependencyError
        If pyarrow is not installed.
    SourceError
        If it does not read the file.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependencyError(
            f"{printable(file.path)}: its labels and fields are read by pyarrow: {pip_install('parquet')}"
        ) from error
    try:
        return pq.ParquetFile(pa.PythonFile(file.stream(_MOST_READ), "r"))
    except NOT_READ as error:
        raise _not_read(file, error) from error


def _types(file: PackFile) -> dict[str, Any]:
    schema = _pyarrow(file).schema_arrow
    try:
        return {field.name: field.type for field in schema if str(field.type)}
    except NOT_READ as error:  # a name that is no text
        raise _not_read(file, error) from error


def _numbers(paths: Sequence[Path], column: str) -> Iterator[float | None]:
    """Yield the numbers of a column in all files."""
    for path in paths:
        with PackFile(path) as file:
            parquet, reader = read_footer(file), _pyarrow(file)
            for group in range(len(parquet.groups)):
                for row in _rows(file, parquet, reader, group, [column]):
                    yield row[column]


def _rows(file: PackFile, parquet: Parquet, reader: Any, group: int, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the values of columns in a row group, a row each."""
    count = parquet.groups[group][0]
    if reader is None:
        yield from ({} for _ in range(count))
        return
    left, size = count, _rows_at_once(file, parquet, group, columns)
    try:
        for batch in reader.iter_batches(batch_size=size, row_groups=[group], columns=columns, use_threads=False):
            left -= batch.num_rows
            if left < 0 or sorted(batch.schema.names) != sorted(columns):
                raise ValueError("its columns are not those of the first file")
            for lists in row_lists(batch.columns, batch.num_rows):
                yield from (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*lists, strict=True))
    except NOT_READ as error:
        raise _not_read(file, error) from error
    if left:
        raise _not_read(file, f"{left} of {count} rows are missing")


def _rows_at_once(file: PackFile, parquet: Parquet, group: int, columns: Sequence[str]) -> int:
    """Return of how many rows pyarrow may look up values in dictionaries, each of which may be the longest one."""
    leaves = [number for number, leaf in enumerate(parquet.leaves) if leaf.path[0] in columns]
    looked_up = sum(dictionary_size(file, parquet, (group, leaf)) for leaf in leaves)
    return max(1, min(MOST_ROWS, _MOST_LOOKED_UP // max(1, looked_up)))


def _not_read(file: PackFile, why: object) -> SourceError:
    return SourceError(f"{printable(file.path)}: pyarrow does not read its labels and fields: {printable(why)[:300]}")
