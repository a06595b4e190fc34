"""What files of images do not say of an export: labels as CSV, and values of fields as a line of JSON a sample."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from packer._fields import PIXELS, Field
from packer._formats import Reader
from packer._packs.damage import blobs_or_errors
from packer._packs.filenames import FileNames
from packer._packs.layout import FieldFiles, Files
from packer._packs.sweep import over_samples
from packer._sample import UNLABELED
from packer._table import encode_name, spans
from packer.errors import CorruptPackError, PackError

__all__ = ["labels_as_csv", "metadata_lines"]


def labels_as_csv(reader: Reader, names: FileNames) -> Iterator[bytes]:
    """Yield the lines of ``labels.csv``, many at a time."""
    rest = iter(names)
    yield b"path,label\r\n"
    for part in spans(len(names)):
        labels = ["" if label is None else label for label in _labels(reader, range(part.start, part.stop))]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(zip(itertools.islice(rest, len(labels)), labels, strict=True))
        yield encode_name(text.getvalue())


def metadata_lines(reader: Reader, files: Files, workers: int | None, *, labels: bool) -> Iterator[bytes]:
    """Yield the lines of ``metadata.jsonl``, many at a time.

    Each has the image's `file_name`, where `labels` its `label`, the paths of those further images and masks that no
    template leads to, as ``NAME_file_name``, and the values of the fields that are no files. A value that is not there
    is null. A number that is infinite is 1e999.
    """
    are_files = {one.field.name for one in files.fields}
    fields = [field for field in reader.fields.values() if field.name not in are_files]
    beside = [one for one in files.fields if one.field.kind in PIXELS and not one.followed]

    def lines(indices: range) -> bytes:
        columns: dict[str, Sequence[Any]] = {"file_name": [files.images[index] for index in indices]}
        if labels:
            columns["label"] = _labels(reader, indices)
        columns |= {f"{one.field.name}_file_name": _paths(files, one, indices) for one in beside}
        columns |= {field.name: [*_values(reader, field, indices)] for field in fields}
        rows = zip(*columns.values(), strict=True)
        text = "".join(_line(dict(zip(columns, row, strict=True))) for row in rows)
        return text.encode("utf-8", "backslashreplace")  # of a surrogate, that is its escape in JSON

    yield from over_samples(lines, len(reader), workers=workers)


def _labels(reader: Reader, indices: range) -> list[Any]:
    """Return the classes of samples, None where there is none, or their numbers."""
    labels = reader.table.label[indices.start : indices.stop].tolist()
    classes = reader.manifest.classes
    if reader.manifest.label_type != "class":
        return list(labels)
    return [None if label == UNLABELED else classes[label] for label in labels]


def _paths(files: Files, one: FieldFiles, indices: range) -> list[str | None]:
    """Return where the files of a field lie, seen from the images."""
    out = "../" * files.folder.count("/")
    places = np.searchsorted(one.samples, np.arange(indices.start, indices.stop)).tolist()
    return [
        out + one.names[place] if place < len(one.samples) and one.samples[place] == index else None
        for place, index in zip(places, indices, strict=True)
    ]


def _values(reader: Reader, field: Field, indices: range) -> Iterator[Any]:
    """Yield the values of a field as JSON has them."""
    named = dict(zip(field.ids or range(len(field.classes)), field.classes, strict=False))
    if not field.is_blob:
        values, present = reader.column(field.name)
        for index in indices:
            yield _said(field, field.decode(values[index].item()), named) if present[index] else None
        return
    for index, blob in blobs_or_errors(reader, indices, field.name):
        if isinstance(blob, PackError):
            raise blob
        try:
            yield None if blob is None else _said(field, field.decode(blob), named)
        except ValueError as error:
            reason = f"field {field.name!r}: {error}"
            raise CorruptPackError(reason, reader.path, index, reader._name_in_error(index)) from error


def _said(field: Field, value: Any, named: Mapping[int, str]) -> Any:
    """Return a value as JSON has it; an id by the name of its class, where it has one."""
    if field.kind == "class":
        return named.get(value, value)
    if field.kind == "labels":
        return [named.get(label, label) for label in value.tolist()]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _line(row: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {_as_json(value)}" for name, value in row.items()) + "}\n"


def _as_json(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return json.dumps(value, ensure_ascii=False)
