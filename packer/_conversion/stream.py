"""`packer.pack`: conversion of a stream of samples that a program yields.

A sample is a dict with an image, a label, a name, and values of fields. The number of samples is unknown, and the
program yields each sample only once. To continue an interrupted conversion, samples that the pack already has are read
from the program again, compared with their entries in the journal, and skipped.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._codecs import LABEL_TYPES, UNLABELED
from packer._conversion.field_values import prepare_values
from packer._conversion.pipeline import Batch, prepare, sample_of
from packer._conversion.recipe import Recipe
from packer._conversion.workspace import RecordEntry
from packer._fields import KINDS, OF_SCALARS, Field, Stored, declared_field
from packer._fields.encoding import short
from packer._images.encode import encode_png
from packer._images.probe import inspect
from packer._sources.base import ReadBuffer, Source
from packer._sources.labels import class_ids
from packer._storage.safe_open import cause_of, name_problem
from packer._storage.stamps import ABOUT_THE_FILE
from packer._storage.system import results
from packer._table import Buffer, Names
from packer.errors import (
    ImageError,
    OptionError,
    OptionTypeError,
    ResumeError,
    SourceError,
    option,
    printable,
    recorded,
)

_OWN = ("image", "label", "name")


_SUFFIXES = {"jpeg": ".jpg", "mpo": ".jpg", "tiff": ".tif"}


_BATCH = 8  # samples


def stream_source(
    destination: Path, fields: Mapping[str, str | Field] | None, classes: Sequence[str] | None, label_type: str
) -> StreamSource:
    """Return the source of a stream of samples; raise ValueError if the declarations are invalid."""
    if label_type not in LABEL_TYPES:
        raise OptionError(f"label_type must be one of {', '.join(LABEL_TYPES)}, not {label_type!r}")
    if classes and label_type != "class":
        raise OptionError(f"label_type={label_type!r} has no classes: leave out classes=")
    labels = np.empty(0, LABEL_TYPES[label_type])
    return StreamSource(
        "samples",
        destination,
        Names.of([]),
        labels,
        list(classes or ()),
        stamps=np.empty((0, 2), np.int64),
        label_type=label_type,
        fields=tuple(_declared_fields(fields)),
    )


def _declared_fields(fields: Mapping[str, str | Field] | None) -> Iterator[Field]:
    """Yield the declared fields. A declaration is a `Field`, a kind, or the dtype of a number.

    ``array:float32:2`` is an array of float32 with two axes; ``array:float32`` has one axis.
    """
    known = [*OF_SCALARS, *(name for name, kind in KINDS.items() if "" in kind.dtypes)]
    for name, declaration in (fields or {}).items():
        if isinstance(declaration, Field):
            if declaration.name != name:
                raise OptionError(
                    f"fields= has the key {name!r} for a field with the name {declaration.name!r}: use the same name"
                )
            yield declaration
            continue
        kind, *more = declaration.split(":")
        if kind == "array" and 1 <= len(more) <= 2 and more[-1].isdecimal() == (len(more) == 2):
            yield Field(name, "array", more[0], int(more[1]) if len(more) == 2 else 1)
        elif kind in known and not more:
            yield declared_field(name, kind)
        else:
            raise OptionError(
                f"field {name!r}: {declaration!r} is not a kind: kinds are {', '.join(known)}, and "
                "array:DTYPE[:AXES], such as 'array:float32:2'"
            )


class StreamSource(Source):
    """The source of a stream of samples: classes, fields and type of labels, which are known before the samples."""

    is_listed = False

    def describe(self) -> dict[str, str]:
        """Return the kind of the source with an empty digest, which is computed when the table is complete."""
        return {"kind": self.kind, "sha256": ""}

    def stamped(self) -> Source:
        """Return the source unchanged, because there are no files."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return the declarations of the stream, as JSON values."""
        fields = {field.name: json.dumps(field.to_json()) for field in self.fields}
        return {"fields": fields, "classes": self.classes, "label_type": self.label_type}


class Stream:
    """Prepares the samples of an iterable on an executor, and yields them in order.

    Parameters
    ----------
    samples : iterable of mappings
        See `packer.pack`.
    source : Source
        The source that has the fields, the classes and the label type.
    recipe : Recipe
    on_error : {"fail", "skip"}
        ``"fail"``: an unusable sample raises an error. ``"skip"``: only its entry is yielded, with the reason.
    done : iterable of RecordEntry
        The journal entries of the first samples, which an earlier run packed.

    Attributes
    ----------
    recipe : Recipe
    bytes_read : int
        Size in bytes of the images in the batches that were yielded so far.
    """

    def __init__(
        self,
        samples: Iterable[Mapping[str, Any]],
        source: Source,
        recipe: Recipe,
        on_error: str,
        done: Iterable[RecordEntry],
    ) -> None:
        self._samples = enumerate(samples)
        self._source = source
        self.recipe = recipe
        self._on_error = on_error
        self._ids = class_ids(source.classes)
        self._names: set[int] = set()  # hashes of the names
        self._entries = done
        self.bytes_read = 0

    def run(self, executor: Executor, *, ahead: int) -> Generator[Batch, None, None]:
        """Yield batches, while `ahead` further batches are in progress."""
        self._pass_over()
        batches = iter(lambda: self._drawn(_BATCH), [])
        for batch in results((executor.submit(self._prepare, samples) for samples in batches), ahead):
            for entry, _ in batch:
                self._require_new(entry.name)
                self.bytes_read += entry.stamp[0]
            yield batch

    def _drawn(self, count: int) -> list[tuple[int, Mapping[str, Any]]]:
        return list(islice(self._samples, count))

    def _pass_over(self) -> None:
        """Skip the samples that the pack already has; raise ResumeError if the iterable yields other samples."""
        for entry in self._entries:
            drawn = self._drawn(1)
            if not drawn:
                raise ResumeError(
                    f"there are fewer samples than an earlier run packed. Pass {option('fresh', True)} to start over."
                )
            (index, sample), *_ = drawn
            own = StreamSample(index, sample, self._source, self._ids)
            if own.stamp() != tuple(entry.stamp):
                raise ResumeError(
                    f"sample {index} ({printable(entry.name)}) is not the sample that an earlier run packed here. "
                    f"Samples must come in the same order in each run. Pass {option('fresh', True)} to start over."
                )
            self._require_new(entry.name)

    def _require_new(self, name: str) -> None:
        number = hash(name)
        if number in self._names:
            raise SourceError(f"{printable(name)}: two samples have this name")
        self._names.add(number)

    def _prepare(self, some: Sequence[tuple[int, Mapping[str, Any]]]) -> Batch:
        batch: Batch = []
        for index, sample in some:
            own = StreamSample(index, sample, self._source, self._ids)
            try:
                prepared = prepare(own.image, own.name(), self.recipe)
                fields = self._source.fields
                values = prepare_values(fields, own.values, prepared.change, self.recipe)
                made = sample_of(own.name(), own.label(), prepared, own.stamp(), fields, values)
            except ImageError as error:
                error.name = error.name or own.display_name()
                if self._on_error == "fail":
                    raise
                batch.append((RecordEntry(own.display_name(), stamp=own.stamp(), reason=recorded(error.args[0])), None))
            else:
                batch.append(made)
        return batch


class StreamSample:
    """One sample of a stream: a dict with an image, a label, a name and values of fields."""

    def __init__(self, index: int, sample: Mapping[str, Any], source: Source, ids: Mapping[str, int]) -> None:
        if not isinstance(sample, Mapping):
            raise OptionTypeError(
                f"sample {index}: a sample must be a dict with an 'image', not {type(sample).__name__}"
            )
        known = [*_OWN, *(field.name for field in source.fields)]
        if unknown := [key for key in sample if key not in known]:
            raise SourceError(
                f"sample {index}: unknown field {unknown[0]!r}. Declare it with fields={{{unknown[0]!r}: ...}}, or "
                f"leave it out; known fields are {', '.join(known)}"
            )
        self._index = index
        self._sample = sample
        self._source = source
        self._ids = ids

    @cached_property
    def image(self) -> Buffer:
        """The encoded image; an array or a PIL image becomes a PNG, without loss; ImageError for other values."""
        return _encoded_image(self._sample.get("image"), "image")

    def name(self) -> str:
        """Return the sample's own name, or its number with the suffix of the image's type."""
        name = self._sample.get("name")
        if name is None:
            kind = inspect(self.image).kind
            return f"{self._index:08d}{_SUFFIXES.get(kind, f'.{kind}')}"
        if not isinstance(name, str) or (problem := name_problem(name)):
            reason = problem if isinstance(name, str) else f"is {type(name).__name__}"
            raise SourceError(f"sample {self._index}: the name {name!r} {reason}")
        return name

    def display_name(self) -> str:
        """Return a name for messages, even for a sample with an invalid name."""
        try:
            return self.name()
        except ImageError:
            return f"{self._index:08d}"

    def label(self) -> int | float:
        """Return the label; the ImageError for an invalid label names the argument of `packer.pack` to change."""
        label, label_type = self._sample.get("label"), self._source.label_type
        if label_type == "class":
            return UNLABELED if label is None else self._class_id(label)
        if label is None:
            raise ImageError(f"it has no label, which label_type={label_type!r} requires", self.display_name())
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
                raise self._no_label(f" {label!r} is not one of the classes: add it to classes=[...]")
            return known
        try:
            number = operator.index(label)
        except TypeError:
            of_numbers = isinstance(label, (float, np.floating))
            kind = "Numbers need label_type='float'" if of_numbers else "Labels are class ids or class names"
            raise self._no_label(f" {short(label)} is not a class. {kind}; store other values with fields=") from None
        if number != UNLABELED:
            self._require_classes(f"{number} is a class id")
        if not UNLABELED <= number < len(classes):
            ids = f"ids are 0 to {len(classes) - 1}, and -1 means unlabeled"
            raise self._no_label(
                f": {number} is not an id of the {len(classes)} classes: {ids}; for other numbers pass label_type='int'"
            )
        return number

    def _require_classes(self, what: str) -> None:
        """Raise SourceError if there are no classes, because then no sample with a class label can be used."""
        if not self._source.classes:
            raise SourceError(
                f"sample {self._index}: its label {what}, but there are no classes. Pass classes=[...], the class "
                "names in the order of their ids; or label_type='int' for numbers without class names"
            )

    def _no_label(self, reason: str) -> ImageError:
        return ImageError(f"its label{reason}", self.display_name())

    @cached_property
    def values(self) -> tuple[Stored, ...]:
        """The field values in their stored form; an invalid value raises ImageError with the field's name."""
        stored = []
        for field in self._source.fields:
            value = self._sample.get(field.name)
            try:
                if KINDS[field.kind].form == "pixels" and value is not None:
                    value = _encoded_image(value, field.name)
                stored.append(field.encode(value))
            except ValueError as error:
                raise ImageError(f"field {field.name!r}: {error}", self.display_name()) from error
        return tuple(stored)

    def stamp(self) -> tuple[int, int]:
        """Return the image's size and the sample's checksum, by which a later run recognises the sample."""
        try:
            data = bytes(self.image)
            crc = google_crc32c.value(data)
            rest = [self._sample.get("label"), self._sample.get("name"), *self.values]
        except ImageError:
            return 0, 0
        for value in rest:
            kind = b"bytes" if isinstance(value, (bytes, bytearray, memoryview)) else b"value"
            content = bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else repr(value).encode()
            head = b"%b %d " % (kind, len(content))  # otherwise "ab", "c" would have the checksum of "a", "bc"
            crc = google_crc32c.extend(crc, head + content)
        return len(data), int(crc)


def _encoded_image(value: Any, what: str) -> Buffer:
    """Return an image as the bytes of an image file.

    Parameters
    ----------
    value : bytes, path, PIL image or array
        An array has the shape (height, width) and the dtype uint8, uint16 or bool, or the shape (height, width, 3 or 4)
        and the dtype uint8. A (height, width) array of whole numbers with another dtype becomes uint8 or uint16 if all
        numbers fit.
    what : str
        The name of the value, for messages.

    Raises
    ------
    ImageError
        If `value` is not an image, or is the path of a file that cannot be read.
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
        raise ImageError(
            f"{what!r}: {type(value).__name__} is not an image; pass bytes, a path, a PIL image or an array"
        )
    if value.mode == "I":  # Pillow would clip the numbers to 16 bits
        value = _image_of(np.asarray(value), what)
    try:
        return encode_png(value)
    except OSError as error:
        raise ImageError(f"{what!r}: an image of the mode {value.mode} cannot be stored as PNG: {error}") from error


def _image_of(array: npt.NDArray[Any], what: str) -> Image.Image:
    """Return an array as an image that PNG stores with exactly the same numbers; ImageError if that is impossible."""
    grey, kind = array.ndim == 2, array.dtype.kind
    if not array.size or not (grey or (array.ndim == 3 and array.shape[2] in (3, 4) and array.dtype == np.uint8)):
        raise ImageError(
            f"{what!r}: an array of {array.dtype} {array.shape} is not an image: images are (height, width), or "
            "(height, width, 3 or 4) of uint8. For other arrays declare a field of the kind array"
        )
    if array.dtype in (np.bool_, np.uint8, np.uint16):
        return Image.fromarray(np.ascontiguousarray(array))
    if kind not in "iu":
        raise ImageError(
            f"{what!r}: an array of {array.dtype} is not an image: PNG stores whole numbers of 8 or 16 bits. Declare "
            "a field of the kind array"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > np.iinfo(np.uint16).max:
        raise ImageError(
            f"{what!r}: an array of {array.dtype} from {low} to {high} is not an image: PNG stores numbers from 0 to "
            "65535. Replace the numbers outside this range, such as -1 by 255, or declare a field "
            f"array:{array.dtype}:2"
        )
    return Image.fromarray(array.astype(np.uint8 if high <= np.iinfo(np.uint8).max else np.uint16))
