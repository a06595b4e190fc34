"""Pictures for the viewer: thumbnails of many samples; and the image, crops and fields of one sample.

Masks and run lengths become coloured pictures, and images in fields become JPEGs. Other fields become shapes that are
drawn over the image, captions, or text.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._datasets.decoder import BatchDecoder
from packer._datasets.description import Picture, thumbnails
from packer._fields import KINDS, Field
from packer._fields.coco import Runs, runs_of, segmentation_problem
from packer._formats import Reader
from packer._images.encode import encode, encode_png
from packer._images.geometry import CROP, Box
from packer._images.modes import decode_as, decode_unchanged
from packer._images.probe import CLIPPED, DEEP, inspect
from packer._storage.system import available_cpus, in_units
from packer._table import Buffer, Ints
from packer._viewing.catalog import Catalog, class_names
from packer.crops import RandomResizedCrop
from packer.errors import ImageError, PackError

_QUALITY = 92


@dataclass(frozen=True)
class Cut:
    """A crop of a sample in an epoch: the rectangle, in pixels of the image, and the network's input as a JPEG."""

    epoch: int
    top: int
    left: int
    height: int
    width: int
    jpeg: bytes


class Pictures:
    """Makes pictures of samples. To limit the memory, only few threads do this at the same time.

    Parameters
    ----------
    catalog : Catalog

    Attributes
    ----------
    turn : threading.BoundedSemaphore
        Limits the number of threads that decode, or do other work that needs much memory.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._decoders = [BatchDecoder(reader) for reader in catalog.readers]
        self.turn = threading.BoundedSemaphore(available_cpus() + 1)

    def small(self, indices: Ints, side: int) -> list[Picture]:
        """Return pictures of samples, each at most `side` pixels wide and high.

        A sample that cannot be read or decoded has an error in place of a picture.
        """
        found: list[Picture] = [Picture(0)] * len(indices)
        with self.turn:
            for share in self._catalog.shares(indices):
                pictures = thumbnails(self._decoders[share.pack], share.rows, side)
                for position, picture in zip(share.positions.tolist(), pictures, strict=True):
                    found[position] = replace(picture, index=int(indices[position]))
        return found

    def whole(self, index: int, side: int) -> Picture:
        """Return a sample's picture, reduced if it is wider or higher than `side` pixels.

        A sample that cannot be read has an error in place of a picture.

        The sample's bytes are checked and decoded as in training.
        """
        pack, row = self._catalog.locate(index)
        with self.turn:
            (picture,) = thumbnails(self._decoders[pack], np.array([row]), side, _QUALITY)
        return replace(picture, index=index)

    def cuts(self, index: int, crop: RandomResizedCrop, seed: int, epochs: Sequence[int]) -> list[Cut]:
        """Return the crops that a dataset with this seed takes of a sample in several epochs.

        Raises PackerError if the sample cannot be read.
        """
        pack, row = self._catalog.locate(index)
        decoder, rows = self._decoders[pack], np.full(len(epochs), row)
        crops = np.zeros(len(epochs), CROP)
        own = self._catalog.seed_of(pack, seed)
        for number, epoch in enumerate(epochs):
            crops[number] = decoder.choose_crops(crop, [row], epoch, own)[0]
        with self.turn:
            images = decoder.decode_crops(rows, crops)
        return [
            Cut(epoch, *Box(*chosen).rectangle, encode(image, "jpeg", _QUALITY))
            for epoch, chosen, image in zip(epochs, crops.tolist(), images, strict=True)
        ]


_MOST_PAINTED = 1 << 29  # most pixels of a picture times its number of objects, because each is painted
_LARGEST_NUMBER = 1e9  # all larger numbers in a mask have the same colour
_IGNORED = 255  # the value of ignored pixels in the masks of many data sets
_GOLDEN_ANGLE = 137.508 / 360
_LIGHTNESS, _CONTRAST = 0.55, 0.765  # lightness and contrast of colours, which have a saturation of 85 %
_LAYER_QUALITY = 90

Numbers = npt.NDArray[Any]


def mask_picture(catalog: Catalog, index: int, name: str, side: int) -> bytes:
    """Return a mask, or a segmentation's run lengths, as a coloured PNG, at most `side` pixels wide and high.

    Pixels of value 0 are transparent, because 0 is the background in nearly all masks. A value has the same colour in
    all samples. The value of a mask with three channels is red + 256 green + 65,536 blue, as in COCO's panoptic masks.

    Raises
    ------
    PackerError
        If the value is damaged.
    ValueError
        If the sample has no such mask.
    """
    reader, row, field = _field_of(catalog, index, name)
    if field.kind == "segmentation":
        height, width = int(reader.table.height[row]), int(reader.table.width[row])
        return _coloured(_painted(field.decode(reader.value(row, name)) or [], height, width, side))
    if field.kind != "mask":
        raise ValueError(f"{name} is not a mask")
    pixels = decode_unchanged(_encoded(reader, row, index, name), exif=reader.manifest.exif)
    return _coloured(_ids(_fewer(pixels, side)))


def further_image(catalog: Catalog, index: int, name: str, side: int) -> bytes:
    """Return the image in a field of a sample as a JPEG. Raises the same errors as `mask_picture`.

    If the image has more than 8 bits, as depth images do, its lowest level becomes black and its highest white.
    """
    reader, row, field = _field_of(catalog, index, name)
    if field.kind != "image":
        raise ValueError(f"{name} is not an image")
    blob, exif = _encoded(reader, row, index, name), reader.manifest.exif
    if {DEEP, CLIPPED} & set(inspect(blob).findings):
        return encode(_levels(_fewer(decode_as(blob, "unchanged", exif=exif), side)), "jpeg", _LAYER_QUALITY)
    image = Image.fromarray(decode_as(blob, "RGB", exif=exif))
    image.thumbnail((side, side))
    return encode(np.asarray(image), "jpeg", _LAYER_QUALITY)


def _field_of(catalog: Catalog, index: int, name: str) -> tuple[Reader, int, Field]:
    pack, row = catalog.locate(index)
    reader = catalog.readers[pack]
    if name not in reader.fields:
        raise ValueError(f"there is no field {name}")
    return reader, row, reader.fields[name]


def _encoded(reader: Reader, row: int, index: int, name: str) -> Buffer:
    blob = reader.value(row, name)
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise ValueError(f"sample {index} has no {name}")
    return blob


def _places(length: int, step: float) -> Ints:
    """Return every `step`-th of `length` rows or columns, where `step` need not be a whole number."""
    return (np.arange(max(int(length / step), 1)) * step).astype(np.int64)


def _step(height: int, width: int, side: int) -> float:
    if min(height, width) < 1:
        raise ImageError("it has no pixels")
    return max(1.0, max(height, width) / side)


def _fewer(pixels: Numbers, side: int) -> Numbers:
    """Reduce an array to at most `side` rows and columns by leaving some out, because ids cannot be interpolated."""
    height, width = pixels.shape[:2]
    step = _step(height, width, side)
    fewer: Numbers = pixels[_places(height, step)][:, _places(width, step)]
    return fewer


def _ids(pixels: Numbers) -> Numbers:
    """Convert the pixels of a mask, (H, W, channels), to (H, W) numbers; see `mask_picture`."""
    if pixels.shape[2] < 3 or pixels.dtype != np.uint8:
        first: Numbers = pixels[..., 0]
        return first
    red, green, blue = (pixels[..., channel].astype(np.int64) for channel in range(3))
    return np.asarray(red + (green << 8) + (blue << 16))


def _levels(pixels: Numbers) -> npt.NDArray[np.uint8]:
    """Return (H, W, channels) numbers as RGB, from black for the lowest to white for the highest; NaN is black."""
    values = pixels[..., :3] if pixels.shape[2] >= 3 else np.repeat(pixels[..., :1], 3, axis=2)
    halves = values.astype(np.float64) / 2  # so that the difference of the extremes is finite
    finite = np.isfinite(halves)
    low, high = (halves[finite].min(), halves[finite].max()) if finite.any() else (0.0, 0.0)
    share = (np.where(finite, halves, low) - low) / (high - low if high > low else 1.0)
    return np.asarray(np.rint(share * 255), np.uint8)


def _painted(segmentations: Sequence[Any], height: int, width: int, side: int) -> Ints:
    """Return, for each pixel of a picture, the number of the last object that covers it, counted from 1; 0 for none.

    No array of the image's full size is allocated. Values that are not run lengths for an image of this size are
    ignored.
    """
    objects = [(number, one) for number, one in enumerate(segmentations, 1) if isinstance(one, dict)]
    step = _step(height, width, min(side, max(math.isqrt(_MOST_PAINTED // max(len(objects), 1)), 1)))
    rows, columns = _places(height, step), _places(width, step)
    numbers = np.zeros((len(columns), len(rows)), np.int64)
    for number, one in objects:
        try:
            runs = runs_of(one, height, width)
        except ValueError:  # `annotations_of` reports this problem
            continue
        before = np.diff(_pixels_before(np.cumsum(runs), rows, columns, height), prepend=0)
        covered = np.repeat(np.arange(len(runs)) % 2 == 1, before)
        numbers[covered.reshape(numbers.shape)] = number
    painted: Ints = numbers.T
    return painted


def _pixels_before(ends: Runs, rows: Ints, columns: Ints, height: int) -> Ints:
    """Return how many pixels of the picture precede each end of a run. Runs go down one column after the other."""
    column, row = np.divmod(ends, height)
    at = np.searchsorted(columns, column)
    within = np.append(columns, -1)[at] == column
    return np.asarray(at * len(rows) + np.where(within, np.searchsorted(rows, row), 0))


def _coloured(numbers: Numbers) -> bytes:
    """Return a PNG in which each number except 0 has its own colour."""
    near = np.clip(np.nan_to_num(numbers), -_LARGEST_NUMBER, _LARGEST_NUMBER)
    present, inverse = np.unique(near, return_inverse=True)
    return encode_png(Image.fromarray(_colours(present)[inverse.reshape(numbers.shape)], "RGBA"))


def _colours(numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Return a colour for each number: red, green, blue and opacity, (N, 4). `overlays.js` uses the same colours."""
    hue = (numbers.astype(np.float64) - 1) * _GOLDEN_ANGLE % 1
    waves = np.clip(np.abs((hue[:, None] * 6 + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1)
    colours = np.full((len(numbers), 4), 255, np.uint8)
    colours[:, :3] = np.rint((_LIGHTNESS + _CONTRAST * (waves - 0.5)) * 255)
    colours[numbers == _IGNORED, :3] = 230
    colours[numbers == 0] = 0
    return colours


_MOST_BYTES = 1 << 22  # most bytes of a sample's values that are read for a page
_MOST_SHAPES = 2_000  # most shapes of a field that a page draws
_LONGEST = 2_000  # most characters of a value that a page shows
_FARTHEST = 1e7  # coordinates are clipped to this distance from the origin, in pixels


def annotations_of(catalog: Catalog, index: int) -> list[dict[str, Any]]:
    """Return the values of a sample's fields for display.

    Returns
    -------
    list of dict
        ``name``, ``kind``, and those of the following that apply: ``text`` (the value in words), ``error`` (why the
        value cannot be read, or which part cannot be drawn), ``boxes`` (x y x y), ``keypoints`` (for each object
        its points: x y visibility), ``polygons`` (for each object a list of x y x y ...), ``labels`` and ``ids`` (the
        name and the id of each object's class), ``picture`` ("mask" or "image" if a picture can be requested).
        Coordinates are in pixels of the image. All values can be serialised as JSON.

    Raises
    ------
    IndexError, CorruptPackError
        For the same reasons as `Catalog.locate`.
    """
    pack, row = catalog.locate(index)
    reader = catalog.readers[pack]
    values: dict[str, Any] = {}
    left = _MOST_BYTES
    for field in reader.fields.values():
        size = int(reader.table.more[f"field.{field.name}.size"][row]) if field.is_blob else 0
        values[field.name] = _value(reader, row, field) if size <= left else _Large(size)
        left -= max(size, 0) if size <= left else 0
    objects = _objects(reader.fields, values)
    shape = int(reader.table.height[row]), int(reader.table.width[row])
    return [_described(field, values[field.name], objects, shape) for field in reader.fields.values()]


class _Large(NamedTuple):
    """Stands for a value that is too large to be read for a page; `size` is in bytes."""

    size: int


def _value(reader: Reader, row: int, field: Field) -> Any:
    """Return a field's value, or the error if the value cannot be read."""
    try:
        return field.decode(reader.value(row, field.name))
    except (PackError, ValueError) as error:
        return error


class _Objects(NamedTuple):
    """The classes of a sample's objects: the names, and the ids, which determine the objects' colours."""

    labels: list[str]
    ids: list[int]


def _objects(fields: Mapping[str, Field], values: Mapping[str, Any]) -> dict[int, _Objects]:
    """Return the classes of a sample's objects, by the number of objects.

    For each number of objects, the classes come from the first field that has this number of class ids.

    A field of shapes, such as boxes, has no classes of its own. So it gets the classes of a field with one id for each
    shape.
    """
    found: dict[int, _Objects] = {}
    for field in fields.values():
        ids = values[field.name]
        if KINDS[field.kind].has_classes and isinstance(ids, np.ndarray) and len(ids) not in found:
            drawn = ids[:_MOST_SHAPES].tolist()
            found[len(ids)] = _Objects(class_names(field, drawn), drawn)
    return found


def _described(field: Field, value: Any, objects: Mapping[int, _Objects], shape: tuple[int, int]) -> dict[str, Any]:
    kind = KINDS[field.kind]
    entry: dict[str, Any] = {"name": field.name, "kind": field.kind}
    picture = {"picture": field.kind} if kind.form == "pixels" else {}
    if value is None:
        return entry | {"text": "none"}
    if isinstance(value, Exception):
        return entry | {"error": str(value)}
    if isinstance(value, _Large):
        return entry | picture | {"text": in_units(value.size) + ("" if picture else ", too large to show here")}
    if isinstance(value, bytes):
        return entry | picture | {"text": in_units(len(value))}
    if kind.is_spatial:
        drawn = value[:_MOST_SHAPES]
        shapes = _segmented(drawn, shape) if isinstance(drawn, list) else {field.kind: _near(drawn)}
        more = f", of which the first {_MOST_SHAPES} are drawn" if len(value) > _MOST_SHAPES else ""
        classes = objects.get(len(value), _Objects([], []))
        return entry | shapes | {"text": f"{len(value)}{more}"} | classes._asdict()
    return entry | {"text": _words(field, value)}


def _near(coordinates: npt.NDArray[Any]) -> Any:
    numbers = np.nan_to_num(coordinates.astype(np.float64))
    return np.round(np.clip(numbers, -_FARTHEST, _FARTHEST), 2).tolist()


def _segmented(value: list[Any], shape: tuple[int, int]) -> dict[str, Any]:
    """Return ``polygons``; ``picture`` if there are run lengths; ``error``, the first problem, if there is one."""
    problems = [_problem(one, shape) for one in value]
    polygons = [
        [points for points in one if points] if isinstance(one, list) and not problem else []
        for one, problem in zip(value, problems, strict=True)
    ]
    entry: dict[str, Any] = {"polygons": polygons}
    if any(isinstance(one, dict) and not problem for one, problem in zip(value, problems, strict=True)):
        entry["picture"] = "mask"
    wrong = next(((number, problem) for number, problem in enumerate(problems) if problem), None)
    return entry if wrong is None else entry | {"error": f"segmentation {wrong[0]}: {wrong[1]}"}


def _problem(segmentation: Any, shape: tuple[int, int]) -> str | None:
    """Return the reason why a segmentation cannot be drawn over an image of this height and width."""
    problem = segmentation_problem(segmentation)
    if problem is None and isinstance(segmentation, dict) and segmentation["size"] != list(shape):
        return f"its size is {segmentation['size']}, but the image's is {list(shape)}"
    return problem


def _words(field: Field, value: Any) -> str:
    """Return the text that a page shows for a value that is not drawn."""
    kind = KINDS[field.kind]
    if not field.is_blob:
        if kind.has_classes or field.dtype == "bool":
            return class_names(field, [value])[0]
        return str(np.float32(value) if field.dtype == "float32" else value)
    if kind.has_classes:
        text = ", ".join(class_names(field, value[:_MOST_SHAPES].tolist())) or "none"
    elif isinstance(value, np.ndarray):
        extremes = f", {value.min()} to {value.max()}" if value.size and value.dtype.kind != "b" else ""
        text = f"{' x '.join(map(str, value.shape))} {value.dtype}{extremes}"
    else:
        text = json.dumps(value, indent=1, ensure_ascii=False) if kind.syntax == "json" else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text):,} characters)"
