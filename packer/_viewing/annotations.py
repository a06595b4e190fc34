"""The fields of a sample, in the form that a page draws: shapes over the image, captions, and values in words."""

from __future__ import annotations

import colorsys
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._fields import PIXELS, Field
from packer._fields.rle import mask_of, runs_of
from packer._formats import Reader
from packer._images.encode import encode, encode_png
from packer._images.modes import decode_as, decode_unchanged
from packer._storage.limits import in_units
from packer._viewing.catalog import Catalog
from packer.errors import ImageError, PackError

__all__ = ["annotations_of", "further_image", "mask_picture"]

_MOST_SHAPES = 2_000  # of a field, that a page draws
_LONGEST = 2_000  # characters of a value
_OPAQUE = 255
_GOLDEN_ANGLE = 137.508 / 360


def annotations_of(catalog: Catalog, index: int) -> list[dict[str, Any]]:
    """Return what a sample has in each field.

    Returns
    -------
    list of dict
        ``name``, ``kind``, and what there is of ``text`` (the value in words), ``error`` (why it cannot be read),
        ``boxes`` (x y x y), ``keypoints`` (of each object its points: x y visibility), ``polygons`` (of each object a
        list of x y x y ...), ``labels`` (of each object its class), ``picture`` ("mask" or "image": there is one to ask
        for). Places are in pixels of the image. JSON can say all of it.
    """
    pack, row = catalog.place(index)
    reader = catalog.readers[pack]
    values = {field.name: _value(reader, row, field) for field in reader.fields.values()}
    names = _object_names(reader.fields, values)
    return [_described(field, values[field.name], names) for field in reader.fields.values()]


def mask_picture(catalog: Catalog, index: int, name: str, side: int) -> bytes:
    """Return a mask, or run lengths of a segmentation, as a PNG of colours over nothing; at most `side` pixels a side.

    0 is not coloured, as it is the background in nearly all masks. Values keep their colours in all samples.

    Raises
    ------
    PackerError
        If the value is damaged.
    ValueError
        If the sample has no such mask.
    """
    pack, row = catalog.place(index)
    reader = catalog.readers[pack]
    field = _field(reader, name)
    if field.kind == "segmentation":
        height, width = int(reader.table.height[row]), int(reader.table.width[row])
        return _coloured(_drawn(_stored(reader, row, field) or [], height, width), side)
    if field.kind != "mask":
        raise ValueError(f"{name} is no mask")
    blob = reader.value(row, name)
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise ValueError(f"sample {index} has no {name}")
    return _coloured(decode_unchanged(blob, exif=reader.manifest.exif)[..., 0], side)


def further_image(catalog: Catalog, index: int, name: str, side: int) -> bytes:
    """Return a further image of a sample as a JPEG; errors as of `mask_picture`."""
    pack, row = catalog.place(index)
    reader = catalog.readers[pack]
    blob = reader.value(row, name) if _field(reader, name).kind == "image" else None
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise ValueError(f"sample {index} has no image {name}")
    pixels = decode_as(blob, "unchanged", exif=reader.manifest.exif)
    if pixels.dtype != np.uint8:  # 16 bits, such as depth: all levels that there are, from black to white
        low, high = int(pixels.min()), int(pixels.max())
        pixels = ((pixels - low) * (_OPAQUE / max(high - low, 1))).astype(np.uint8)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] != 3 else pixels).convert("RGB")
    image.thumbnail((side, side))
    return encode(np.asarray(image), "jpeg", 90)


def _field(reader: Reader, name: str) -> Field:
    if name not in reader.fields:
        raise ValueError(f"there is no field {name}")
    return reader.fields[name]


def _stored(reader: Reader, row: int, field: Field) -> Any:
    return field.decode(reader.value(row, field.name))


def _value(reader: Reader, row: int, field: Field) -> Any:
    """Return a value; an error in its place where it cannot be read."""
    try:
        stored = reader.value(row, field.name)
        if field.kind in PIXELS or field.kind == "bytes":
            return stored
        return field.decode(stored)
    except (PackError, ValueError) as error:
        return error


def _object_names(fields: Mapping[str, Field], values: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return the classes of objects, by how many objects there are: the first list of ids of that length."""
    found: dict[int, list[str]] = {}
    for field in fields.values():
        ids = values[field.name]
        if field.kind == "labels" and isinstance(ids, np.ndarray):
            found.setdefault(len(ids), [_class(field, number) for number in ids.tolist()])
    return found


def _class(field: Field, number: int) -> str:
    ids: Sequence[int] = field.ids or range(len(field.classes))
    return field.classes[ids.index(number)] if number in ids else str(number)


def _described(field: Field, value: Any, names: Mapping[int, list[str]]) -> dict[str, Any]:
    said: dict[str, Any] = {"name": field.name, "kind": field.kind}
    if value is None:
        return said | {"text": "none"}
    if isinstance(value, Exception):
        return said | {"error": str(value)}
    if field.kind in PIXELS or field.kind == "bytes":
        return said | {"text": in_units(len(value))} | ({"picture": field.kind} if field.kind in PIXELS else {})
    if field.kind in ("boxes", "keypoints", "segmentation"):
        shapes = _shapes(field, value[:_MOST_SHAPES])
        more = f", of which {_MOST_SHAPES} are drawn" if len(value) > _MOST_SHAPES else ""
        return said | shapes | {"text": f"{len(value)}{more}", "labels": names.get(len(value), [])[:_MOST_SHAPES]}
    return said | {"text": _words(field, value)}


def _shapes(field: Field, value: Any) -> dict[str, Any]:
    if field.kind != "segmentation":
        return {field.kind: np.round(np.nan_to_num(value.astype(np.float64)), 2).tolist()}
    polygons = [[shape for shape in one if shape] if isinstance(one, list) else [] for one in value]
    runs = any(isinstance(one, dict) for one in value)
    return {"polygons": polygons} | ({"picture": "mask"} if runs else {})


def _words(field: Field, value: Any) -> str:
    """Return a value that is drawn nowhere in words."""
    if field.kind == "class":
        return _class(field, value)
    if field.dtype == "float32" and field.kind == "scalar":
        return str(np.float32(value))
    if field.kind == "labels":
        text = ", ".join(_class(field, number) for number in value[:_MOST_SHAPES].tolist()) or "none"
    elif field.kind == "array":
        extremes = f", {value.min()} to {value.max()}" if value.size and value.dtype.kind != "b" else ""
        text = f"{' x '.join(map(str, value.shape))} {value.dtype}{extremes}"
    else:
        text = json.dumps(value, indent=1, ensure_ascii=False) if field.kind == "json" else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text):,} characters)"


def _drawn(segmentations: Sequence[Any], height: int, width: int) -> npt.NDArray[np.int64]:
    """Return which object's run lengths cover each pixel, counted from 1; the last where several do."""
    numbers = np.zeros((height, width), np.int64)
    for number, one in enumerate(segmentations[:_MOST_SHAPES], 1):
        if isinstance(one, dict):
            numbers[mask_of(runs_of(one, height, width), height, width) > 0] = number
    return numbers


def _coloured(numbers: npt.NDArray[Any], side: int) -> bytes:
    """Return a PNG in which each number but 0 has a colour of its own."""
    height, width = numbers.shape
    longest = max(height, width)
    if not longest:
        raise ImageError("the mask has no pixels")
    step = max(1.0, longest / side)
    rows = (np.arange(int(height / step) or 1) * step).astype(np.int64)
    columns = (np.arange(int(width / step) or 1) * step).astype(np.int64)
    present, places = np.unique(numbers[rows][:, columns], return_inverse=True)
    palette = np.array([_colour(number) for number in present.tolist()], np.uint8)
    return encode_png(Image.fromarray(palette[places.reshape(len(rows), len(columns))], "RGBA"))


def _colour(number: int) -> tuple[int, int, int, int]:
    """Return red, green, blue and opacity; viewer.js gives the objects of a sample the same colours."""
    if number == 0:
        return 0, 0, 0, 0
    if number == _OPAQUE:  # "do not care" in the masks of many data sets
        return 230, 230, 230, _OPAQUE
    red, green, blue = colorsys.hls_to_rgb((number - 1) * _GOLDEN_ANGLE % 1, 0.55, 0.85)
    return round(red * 255), round(green * 255), round(blue * 255), _OPAQUE
