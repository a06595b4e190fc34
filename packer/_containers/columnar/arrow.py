"""Arrow files of images, as `datasets` keeps them: its cache, and what ``save_to_disk`` writes.

``state.json`` in a directory lists its files, in order, and ``dataset_info.json`` has the features where the schema
has none. A batch has, of each column of images, a buffer with the images one after the other, and one with where each
begins. Where buffers are not compressed, images are read where they lie. pyarrow reads the other columns.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._containers.columnar.arrowbatches import Batches, names_of, schema_of
from packer._containers.columnar.arrowmessages import FILE, batches
from packer._containers.columnar.hfcolumns import columns_of, features_of, names_are_plain
from packer._containers.columnar.tables import TableImages
from packer._containers.contract import Entry
from packer._containers.imagenames import suffix_of
from packer._fields.values import parsed_json
from packer._storage.packfile import PackFile
from packer._storage.paths import name_problem
from packer.errors import SourceError, printable

__all__ = ["ArrowImages"]

_MARK = b"\xff\xff\xff\xff"
_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_MOST_JSON = 1 << 26  # bytes


class ArrowImages(TableImages):
    """Files ``.arrow`` with a column of images."""

    kind = "arrow"
    suffixes = (".arrow",)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return head.startswith((FILE, _MARK)) and path.suffix.lower() in (*cls.suffixes, ".feather", ".ipc")

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        """Return the files that ``state.json`` lists; else all."""
        if _SPLITS in names:
            splits = _json(path / _SPLITS).get("splits")
            shown = ", ".join(printable(name) for name in splits) if isinstance(splits, list) else "none"
            raise SourceError(f"{printable(path)}: has several splits: {shown}. Name one of these directories.")
        if _STATE in names and any(name.endswith(cls.suffixes) for name in names):
            return _saved(path)
        return super().recognise_directory(path, names)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> ArrowImages:
        with PackFile(paths[0]) as file:
            schema = schema_of(file)
            features = features_of(schema.metadata) or _features_beside(paths[0])
            images = [field.name for field in schema if _is_image(field, features, keys.get("image"))]
            images = images or [field.name for field in schema if _begins_with_image(file, schema, field)]
            others = {field.name: field.type for field in schema if field.name not in images}
            columns = columns_of(images, others, features, keys, printable(paths[0]))
        if columns.label is not None and columns.label_type == "float":
            columns = columns.with_whole_labels(_numbers(paths, columns.label))
        return cls.of_columns(paths, columns)

    def entries(self, unit: int) -> Iterator[Entry]:
        columns = self.columns
        with self.opened(unit) as file:
            schema = schema_of(file)
            for column in (columns.image, *columns.pictures, *columns.read()):
                if schema.get_field_index(column) < 0:
                    raise SourceError(
                        f"{printable(file.path)}: has no column {printable(column)}, as the first file has"
                    )
            reader = Batches(file, unit, schema)
            count = sum(batch.rows for batch in batches(file))
            named = columns.name is None and names_are_plain(_paths(reader, file, columns.image))
            stem, digits, number = self.files[unit].rpartition(".")[0], len(str(count)), 0
            for batch in batches(file):
                images = reader.images(batch, columns.image)
                pictures = {of.name: reader.images(batch, column) for column, of in columns.pictures.items()}
                paths = reader.paths(batch, columns.image) if named else []
                for at, row in enumerate(reader.rows(batch, columns.read())):
                    place, path = images[at], paths[at] if named else None
                    further = {of: one for of, lying in pictures.items() if (one := lying[at]) is not None}
                    head = b"" if place is None else reader.head(place)
                    yield columns.entry(row, f"{stem}/{number:0{digits}d}", path, place, head, further)
                    number += 1


def _is_image(field: Any, features: Mapping[str, Any], wanted: str | None) -> bool:
    """Tell whether a column has images: a structure of bytes and path, or bytes that are called images."""
    feature = features.get(field.name)
    called = (isinstance(feature, dict) and feature.get("_type") == "Image") or field.name == wanted
    kind = getattr(field.type, "storage_type", field.type)
    return sorted(names_of(kind)) == ["bytes", "path"] or (called and str(kind) in ("binary", "large_binary"))


def _begins_with_image(file: PackFile, schema: Any, field: Any) -> bool:
    """Tell whether a column of bytes has an image for its first value."""
    if str(field.type) not in ("binary", "large_binary"):
        return False
    reader = Batches(file, 0, schema)
    for batch in batches(file):
        for place in reader.images(batch, field.name):
            if place is not None and (head := reader.head(place)):
                return bool(suffix_of(head))
    return False


def _numbers(paths: Sequence[Path], column: str) -> Iterator[float | None]:
    """Yield the numbers of a column in all files."""
    for path in paths:
        with PackFile(path) as file:
            reader = Batches(file, 0, schema_of(file))
            for batch in batches(file):
                for row in reader.rows(batch, [column]):
                    yield row[column]


def _paths(reader: Batches, file: PackFile, column: str) -> Iterator[str | None]:
    for batch in batches(file):
        yield from reader.paths(batch, column)


def _saved(directory: Path) -> list[Path]:
    """Return the files that ``state.json`` lists."""
    state = _json(directory / _STATE)
    if state.get("_indices_data_files"):
        raise SourceError(
            f"{printable(directory)}: has its order in files of indices: save it again after flatten_indices()"
        )
    listed = state.get("_data_files")
    try:
        names = [one["filename"] for one in listed] if isinstance(listed, list) else []
        if not names or not all(isinstance(name, str) and name_problem(name) is None for name in names):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise SourceError(f"{printable(directory / _STATE)}: does not say which files there are") from None
    return [directory / name for name in names]


def _features_beside(path: Path) -> dict[str, Any]:
    beside = path.with_name(_INFO)
    features = _json(beside).get("features") if os.path.isfile(beside) else None
    return features if isinstance(features, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    with PackFile(path) as file:
        try:
            said = parsed_json(file.read(0, min(file.size, _MOST_JSON)).decode("utf-8"))
        except ValueError as error:
            raise SourceError(f"{printable(path)}: {error}") from error
    if not isinstance(said, dict):
        raise SourceError(f"{printable(path)}: is no object of JSON")
    return said
