"""One sample as a program gives it: a dict with an image, a label, a name, and values of fields."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import google_crc32c
import numpy as np
from PIL import Image

from packer._fields import PIXELS, Field, Stored
from packer._images.probe import inspect
from packer._sample import UNLABELED
from packer._sources import Source
from packer._sources.base import ReadBuffer
from packer._storage.paths import name_problem
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
        label, label_type = self._sample.get("label"), self._source.label_type
        try:
            if label_type == "class":
                if label is None:
                    return UNLABELED
                number = self._ids[label] if isinstance(label, str) else Field("label_", "class").encode(label)
                assert isinstance(number, int)
                if number >= len(self._source.classes):
                    raise ValueError(f"{number} is no id of the {len(self._source.classes)} classes")
                return number
            stored = Field("label_", "scalar", "int64" if label_type == "int" else "float64").encode(label)
        except KeyError:
            raise ImageError(f"its label {label!r} is none of the classes: say classes=[...]", self.shown()) from None
        except ValueError as error:
            raise ImageError(f"its label: {error}", self.shown()) from error
        if stored is None:
            raise ImageError(f"it has no label, and label_type is {label_type!r}", self.shown())
        assert isinstance(stored, (int, float))
        return stored

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
            crc = google_crc32c.extend(crc, value if isinstance(value, bytes) else repr(value).encode())
        return len(data), int(crc)


def _encoded_image(value: Any, what: str) -> Buffer:
    """Return an image as the bytes of an image file.

    Parameters
    ----------
    value : bytes, path, PIL image or array
        An array is (height, width) uint8, uint16 or bool, or (height, width, 3 or 4) uint8.
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
            raise ImageError(f"{what!r}: {printable(os.fspath(value))} cannot be read: {error.strerror}") from error
    if isinstance(value, np.ndarray):
        try:
            value = Image.fromarray(value)
        except TypeError:
            raise ImageError(f"{what!r}: an array of {value.dtype} {value.shape} is no image") from None
    if not isinstance(value, Image.Image):
        raise ImageError(f"{what!r}: {type(value).__name__} is no image; give bytes, a path, a PIL image or an array")
    stream = io.BytesIO()
    try:
        value.save(stream, "PNG")
    except OSError as error:
        raise ImageError(f"{what!r}: an image of the mode {value.mode} cannot become a PNG: {error}") from error
    return stream.getvalue()
