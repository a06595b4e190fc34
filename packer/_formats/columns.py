"""The columns of a pack as conditions take them: fields, labels and sizes, with what is not there marked as such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Column, Field
from packer._formats.reader import Reader
from packer._table import Ints, Labels
from packer.errors import CorruptPackError

__all__ = ["PackColumns"]

_SIZES = ("height", "width", "size")
_OWN = ("label", "name", *_SIZES)
_CALLED = {
    "labels": "lists of ids",
    "json": "JSON",
    "bytes": "bytes",
    "array": "arrays",
    "image": "images",
    "mask": "masks",
    "boxes": "boxes",
    "keypoints": "keypoints",
    "segmentation": "segmentations",
}
"""What the values are called that are neither numbers nor texts."""


class PackColumns(Mapping[str, Column]):
    """The columns of samples of a pack, each compared with its checksum, and read, when it is asked for.

    They are the fields and packer's own: ``label``, an id or the class of that name, not there where the sample is
    unlabeled; ``name``; ``height`` and ``width``, in pixels; ``size``, of the image, in bytes. No field has such a
    name. For fields that are neither numbers, ids nor texts, it is only known where there is a value.

    Parameters
    ----------
    reader : Reader
    rows : (N,) int64 array, optional
        Which samples of the pack these are; by default all.
    labels : (N,) int64 or float64 array, optional
        Labels in place of the pack's.
    classes : sequence of str, optional
        Names of the classes that labels are ids of, in place of the pack's.

    Raises
    ------
    CorruptPackError
        From asking for a column that is damaged.
    """

    def __init__(
        self,
        reader: Reader,
        rows: Ints | None = None,
        labels: Labels | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._reader = reader
        self._rows = np.arange(len(reader)) if rows is None else rows
        self._which: slice | Ints = slice(None) if rows is None else rows
        self._labels = labels
        self._classes = reader.manifest.classes if classes is None else classes

    def __iter__(self) -> Iterator[str]:
        yield from (*self._reader.fields, *_OWN)

    def __len__(self) -> int:
        return len(self._reader.fields) + len(_OWN)

    def __getitem__(self, name: str) -> Column:
        if name in self._reader.fields:
            return self._field(self._reader.fields[name])
        if name == "label":
            return self._label()
        if name == "name":
            return _complete(_texts(self._names()))
        if name in _SIZES:
            return _complete(self._own(name))
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._reader.fields or name in _OWN

    def _own(self, name: str) -> npt.NDArray[Any]:
        self._reader.require_column(name)
        return self._reader.table.kept(name)[self._which]

    def _label(self) -> Column:
        manifest = self._reader.manifest
        labels = self._own("label") if self._labels is None else self._labels
        if manifest.label_type != "class" or labels.dtype.kind == "f":
            return _complete(labels)
        return Column(labels, labels >= 0, {name: label for label, name in enumerate(self._classes)})

    def _field(self, field: Field) -> Column:
        if not field.is_blob:
            values, present = self._reader.column(field.name)
            values, present = values[self._which], present[self._which]
            if field.kind == "class":
                return Column(
                    values, present, dict(zip(field.classes, field.ids or range(len(field.classes)), strict=True))
                )
            return Column(values.view(bool) if field.dtype == "bool" else values, present)
        if field.kind != "text":
            present = self._own(f"field.{field.name}.size") >= 0
            return Column(present, present, of=_CALLED[field.kind])
        texts = self._read(field)
        present = np.fromiter((text is not None for text in texts), bool, len(texts))
        return Column(_texts([text or "" for text in texts]), present)

    def _read(self, field: Field) -> list[str | None]:
        blobs = self._reader.blobs(self._rows, field.name)
        try:
            return [field.decode(blob) for blob in blobs]
        except ValueError as error:
            raise CorruptPackError(f"field {field.name!r}: {error}", self._reader.path) from error

    def _names(self) -> list[str]:
        for column in ("names", "name_end"):
            self._reader.require_column(column)
        names = self._reader.names
        return list(names) if isinstance(self._which, slice) else [names[row] for row in self._rows.tolist()]


def _complete(values: npt.NDArray[Any]) -> Column:
    return Column(values, np.ones(len(values), bool))


def _texts(texts: Sequence[str]) -> npt.NDArray[Any]:
    column = np.empty(len(texts), object)
    column[:] = texts
    return column
