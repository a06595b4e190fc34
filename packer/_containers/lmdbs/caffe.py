"""Caffe's LMDB (tools/convert_imageset.cpp), a Datum each value, and the one of its fork SSD with boxes.

Keys are ``00000012_folder/name.jpg``. An image is an encoded file, or raw: plane after plane, blue first. A label
that a Datum does not have is 0, as Caffe reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from packer._containers.contract import Entry, Piece, PixelLayout, no_keys
from packer._containers.imagenames import image_name
from packer._containers.lmdbs.datum import Datum, annotated_of, datum_of, is_annotated
from packer._containers.lmdbs.imagesize import size_of
from packer._containers.lmdbs.lmdbfiles import First, LMDBContainer, Value, failing, first_of, text_of
from packer._containers.lmdbs.lmdbtree import Tree
from packer._containers.lmdbs.rangereader import PIECE, RangeReader
from packer._fields import Field, Stored
from packer._storage.paths import name_problem

__all__ = ["Caffe"]

_NUMBERED = re.compile(rb"[0-9]{8,}_(.+)", re.DOTALL)
_BOXES = Field("boxes", "boxes")
_CATEGORY = Field("category", "labels")
_INSTANCE = Field("instance", "array", "int64", 1)
_DIFFICULT = Field("difficult", "array", "uint8", 1)


class Caffe(LMDBContainer):
    """Samples in the order of their keys; their names are the paths in these where no two are the same."""

    kind = "caffe lmdb"
    annotated = False
    unlabeled = False
    whole_keys = False

    @classmethod
    def is_of(cls, first: First) -> bool:
        return _read(first.values[0], first.values[0].head(PIECE)).size >= 0

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Caffe:
        no_keys(cls.kind, keys)
        with failing(paths[0]), first_of(paths[0]) as first:
            head = first.values[0].head(PIECE)
            annotated, datum = is_annotated(head), _read(first.values[0], head)
        fields = (_BOXES, _CATEGORY, _INSTANCE, _DIFFICULT) if annotated else ()
        pixels = None if datum.is_encoded else PixelLayout("CHW", "BGR" if datum.channels == 3 else "L")
        container = cls.of_files(paths, fields=fields, pixels=pixels)
        container.annotated = annotated
        return container

    def ordered(self, path: Path, blank: Value, tree: Tree) -> Iterator[Value]:
        raw = self.pixels is not None  # images whose names lose their suffixes
        paths = (_path_of(key) for key, _, _ in tree.walk())
        hashes = np.fromiter((hash(os.path.splitext(path)[0] if raw else path) for path in paths), np.int64)
        hashes.sort()
        self.whole_keys = bool((hashes[1:] == hashes[:-1]).any())
        if self.whole_keys:
            self.notes.append("paths occur in several keys, so names are the whole keys")
        return super().ordered(path, blank, tree)

    def entry(self, value: Value) -> Entry:
        head = value.head(PIECE)
        if is_annotated(head) != self.annotated:
            raise ValueError("SSD's AnnotatedDatum and Caffe's Datum in one file")
        datum = _read(value, head)
        raw, shape = self.pixels is not None, None
        if datum.is_encoded == raw:
            raise ValueError(
                "raw pixels and encoded images in one file, which packer does not read. "
                "Write it again with one of them (convert_imageset --encoded)"
            )
        if self.pixels is not None:
            datum.require_pixels()
            if datum.channels != len(self.pixels.channels):
                raise ValueError("images of 1 and of 3 channels in one file, which packer does not read")
            shape = datum.height, datum.width
        if not datum.labeled and not self.annotated and not self.unlabeled:
            self.unlabeled = True
            self.notes.append("a Datum without a label has the label 0, as Caffe reads it")
        label = None if self.annotated and not datum.labeled else datum.label
        values = _objects(value, datum) if self.annotated else {}
        return Entry(self._name(value.key, datum), Piece(value.unit, datum.offset, datum.size), label, values, shape)

    def _name(self, key: bytes, datum: Datum) -> str:
        name = text_of(key) if self.whole_keys else _path_of(key)
        if self.pixels is None:
            return image_name(name, datum.suffix)
        return (name if self.whole_keys else os.path.splitext(name)[0]) + ".png"


def _read(value: Value, head: bytes) -> Datum:
    read = annotated_of if is_annotated(head) else datum_of
    return read(value.file, value.offset, value.size, head)


def _path_of(key: bytes) -> str:
    """Return the path in a key; the whole key where that is none that could be a name, such as an absolute one."""
    match = _NUMBERED.fullmatch(key)
    path = text_of(match[1]) if match else ""
    return text_of(key) if name_problem(path) else path


def _objects(value: Value, datum: Datum) -> dict[str, Stored]:
    """Return the values of the fields that the boxes are: corners in pixels, and what belongs to each."""
    boxes = datum.boxes
    if not boxes:
        height = width = 0
    elif datum.is_encoded:
        try:
            height, width = size_of(RangeReader(value.file, datum.offset, datum.size))
        except ValueError as error:
            raise ValueError(f"its boxes are fractions of its size, and {error}") from error
    else:
        height, width = datum.height, datum.width
    corners = [[x0 * width, y0 * height, x1 * width, y1 * height] for _, _, (x0, y0, x1, y1), _ in boxes]
    return {
        "boxes": _BOXES.encode(corners),
        "category": _CATEGORY.encode([box.label for box in boxes]),
        "instance": _INSTANCE.encode(np.array([box.instance for box in boxes], np.int64)),
        "difficult": _DIFFICULT.encode(np.array([box.difficult for box in boxes], np.uint8)),
    }
