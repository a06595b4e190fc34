"""One sample as a program gives it: a dict with an image, a label, a name, and values of fields."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._fields import PIXELS, Field, Stored
from packer._fields.values import short
from packer._images.encode import encode_png
from packer._images.probe import inspect
from packer._sample import UNLABELED
from packer._sources import Source
from packer._sources.base import ReadBuffer
from packer._storage.opening import cause_of
from packer._storage.paths import name_problem
from packer._storage.stamps import ABOUT_THE_FILE
from packer._table import Buffer
from packer.errors import ImageError, SourceError, printable

__all__ = ["GivenSample"]

_OWN = ("image", "label", "name")
_SUFFIXES = {"jpeg": ".jpg", "mpo": ".jpg", "tiff": ".tif"}


class GivenSample:
    """One sample as a program gave it."""

    def __init__(self, index: int, sample: Mapping[str, Any], source: Source, ids: Mapping[str, int]) -> None:
        if not isinstance(sample, Mapping):
            raise TypeError(f"sample {index}: a sample is a dict with an 'image', not {type(sample).__name__}")
        known = [*_OWN, *(field.name for field in source.fields)]
        if unknown := [key for key in sample if key not in known]:
            raise SourceError(
                f"sample {index}: no field {unknown[0]!r} is known. Say fields={{{unknown[0]!r}: ...}}, or leave it "
                f"out; known are {', '.join(known)}"
            )
        self._index = index
        self._sample = sample
        self._source = source
        self._ids = ids

    @cached_property
    def image(self) -> Buffer:
        """The encoded image; an array or a PIL image becomes a PNG, which loses nothing; ImageError for others."""
        return _encoded_image(self._sample.get("image"), "image")

    def name(self) -> str:
        """Return the sample's name: that given, or its number with the suffix of the image's type."""
        name = self._sample.get("name")
        if name is None:
            kind = inspect(self.image).kind
            return f"{self._index:08d}{_SUFFIXES.get(kind, f'.{kind}')}"
        if not isinstance(name, str) or (problem := name_problem(name)):
            reason = problem if isinstance(name, str) else f"is {type(name).__name__}"
            raise SourceError(f"sample {self._index}: the name {name!r} {reason}")
        return name

    def shown(self) -> str:
        """Return a name for messages, also of a sample that cannot have one."""
        try:
            return self.name()
        except ImageError:
            return f"{self._index:08d}"

    def label(self) -> int | float:
        """Return the label; ImageError says which argument of `packer.pack` takes a label such as this one."""
        label, label_type = self._sample.get("label"), self._source.label_type
        if label_type == "class":
            return UNLABELED if label is None else self._class_id(label)
        if label is None:
            raise ImageError(f"it has no label, and label_type is {label_type!r}", self.shown())
        try:
            stored = Field("label_", "scalar", "int64" if label_type == "int" else "float64").encode(label)
        except ValueError as error:
            raise self._no_label(f": {error}. label_type is {label_type!r}") from error
        assert isinstance(stored, (int, float))
        return stored

    def _class_id(self, label: Any) -> int:
        classes = self._source.classes
        if isinstance(label, str):
            self._require_classes(f"{label!r} names a class")
            if (known := self._ids.get(label)) is None:
                raise self._no_label(f" {label!r} is none of the classes: add it to classes=[...]")
            return known
        try:
            number = operator.index(label)
        except TypeError:
            of_numbers = isinstance(label, (float, np.floating))
            kind = "label_type='float' is for numbers" if of_numbers else "Labels are ids or names of classes"
            raise self._no_label(f" {short(label)} is no class. {kind}; other values are fields=") from None
        if number != UNLABELED:
            self._require_classes(f"{number} is a class id")
        if not UNLABELED <= number < len(classes):
            ids = f"ids are 0 to {len(classes) - 1}, and -1 is an unlabeled sample"
            raise self._no_label(
                f": {number} is no id of the {len(classes)} classes: {ids}; label_type='int' is for other numbers"
            )
        return number

    def _require_classes(self, what: str) -> None:
        """Raise SourceError where labels come without classes: no sample with a label could be used."""
        if not self._source.classes:
            raise SourceError(
                f"sample {self._index}: its label {what}, and there are no classes. Say classes=[...], names of "
                "classes in the order of their ids; or label_type='int' for numbers that have no names"
            )

    def _no_label(self, reason: str) -> ImageError:
        return ImageError(f"its label{reason}", self.shown())

    @cached_property
    def values(self) -> tuple[Stored, ...]:
        """The values of the fields as a pack holds them; ImageError names the field whose value is none."""
        stored = []
        for field in self._source.fields:
            value = self._sample.get(field.name)
            try:
                if field.kind in PIXELS and value is not None:
                    value = _encoded_image(value, field.name)
                stored.append(field.encode(value))
            except ValueError as error:
                raise ImageError(f"field {field.name!r}: {error}", self.shown()) from error
        return tuple(stored)

    def stamp(self) -> tuple[int, int]:
        """Return the size of the image and a checksum of all that was given, by which a sample is known again."""
        try:
            data = bytes(self.image)
            crc = google_crc32c.value(data)
            rest = [self._sample.get("label"), self._sample.get("name"), *self.values]
        except ImageError:
            return 0, 0
        for value in rest:
            kind = b"bytes" if isinstance(value, (bytes, bytearray, memoryview)) else b"value"
            content = bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else repr(value).encode()
            head = b"%b %d " % (kind, len(content))  # without which "ab", "c" would be as "a", "bc"
            crc = google_crc32c.extend(crc, head + content)
        return len(data), int(crc)


def _encoded_image(value: Any, what: str) -> Buffer:
    """Return an image as the bytes of an image file.

    Parameters
    ----------
    value : bytes, path, PIL image or array
        An array is (height, width) uint8, uint16 or bool, or (height, width, 3 or 4) uint8. Whole numbers of another
        dtype, (height, width), become uint8 or uint16 where all of them are of its range.
    what : str
        What the image is called, for messages.

    Raises
    ------
    ImageError
        If `value` is no image, or a path that cannot be read.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value
    if isinstance(value, (str, os.PathLike)):
        try:
            return ReadBuffer(1 << 10).read(os.fspath(value))[0]
        except OSError as error:
            if error.errno not in ABOUT_THE_FILE:
                raise SourceError(f"{printable(os.fspath(value))}: reading failed: {cause_of(error)}") from error
            raise ImageError(f"{what!r}: {printable(os.fspath(value))} cannot be read: {error.strerror}") from error
    if isinstance(value, np.ndarray):
        value = _image_of(value, what)
    if not isinstance(value, Image.Image):
        raise ImageError(f"{what!r}: {type(value).__name__} is no image; give bytes, a path, a PIL image or an array")
    if value.mode == "I":  # of which Pillow would keep what 16 bits hold, and clip the rest
        value = _image_of(np.asarray(value), what)
    try:
        return encode_png(value)
    except OSError as error:
        raise ImageError(f"{what!r}: an image of the mode {value.mode} cannot become a PNG: {error}") from error


def _image_of(array: npt.NDArray[Any], what: str) -> Image.Image:
    """Return an image whose PNG has just the numbers of an array; ImageError where PNG holds no such numbers."""
    grey, kind = array.ndim == 2, array.dtype.kind
    if not array.size or not (grey or (array.ndim == 3 and array.shape[2] in (3, 4) and array.dtype == np.uint8)):
        raise ImageError(
            f"{what!r}: an array of {array.dtype} {array.shape} is no image: images are (height, width), or "
            "(height, width, 3 or 4) of uint8. Declare a field of the kind array for other numbers"
        )
    if array.dtype in (np.bool_, np.uint8, np.uint16):
        return Image.fromarray(np.ascontiguousarray(array))
    if kind not in "iu":
        raise ImageError(
            f"{what!r}: an array of {array.dtype} is no image: PNG has whole numbers of 8 or 16 bits. Declare a field "
            "of the kind array"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > np.iinfo(np.uint16).max:
        raise ImageError(
            f"{what!r}: an array of {array.dtype} from {low} to {high} is no image: PNG has numbers from 0 to 65535. "
            f"Give others in place of those outside, such as 255 for -1, or declare a field array:{array.dtype}:2"
        )
    return Image.fromarray(array.astype(np.uint8 if high <= np.iinfo(np.uint8).max else np.uint16))
