"""The fields of a sample, in the form that a page draws: shapes over the image, captions, and values in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from packer._fields import PIXELS, Field
from packer._fields.rle import segmentation_problem
from packer._formats import Reader
from packer._storage.limits import in_units
from packer._viewing.catalog import Catalog
from packer._viewing.names import legible
from packer.errors import PackError

__all__ = ["annotations_of"]

_MOST_BYTES = 1 << 22  # of all values of a sample that are read, and drawn or put into words
_MOST_SHAPES = 2_000  # of a field, that a page draws
_LONGEST = 2_000  # characters of a value
_FARTHEST = 1e7  # pixels: no shape is drawn farther away


def annotations_of(catalog: Catalog, index: int) -> list[dict[str, Any]]:
    """Return what a sample has in each field.

    Returns
    -------
    list of dict
        ``name``, ``kind``, and what there is of ``text`` (the value in words), ``error`` (why it cannot be read, or
        what of it cannot be drawn), ``boxes`` (x y x y), ``keypoints`` (of each object its points: x y visibility),
        ``polygons`` (of each object a list of x y x y ...), ``labels`` (of each object its class), ``picture`` ("mask"
        or "image": there is one to ask for). Places are in pixels of the image. JSON can say all of it.

    Raises
    ------
    IndexError, CorruptPackError
        As from `Catalog.place`.
    """
    pack, row = catalog.place(index)
    reader = catalog.readers[pack]
    values: dict[str, Any] = {}
    left = _MOST_BYTES
    for field in reader.fields.values():
        size = int(reader.table.more[f"field.{field.name}.size"][row]) if field.is_blob else 0
        values[field.name] = _value(reader, row, field) if size <= left else _Large(size)
        left -= max(size, 0) if size <= left else 0
    names = _object_names(reader.fields, values)
    shape = int(reader.table.height[row]), int(reader.table.width[row])
    return [_described(field, values[field.name], names, shape) for field in reader.fields.values()]


class _Large(NamedTuple):
    """A value that is too large to be read for a page."""

    size: int


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
        if field.kind == "labels" and isinstance(ids, np.ndarray) and len(ids) not in found:
            found[len(ids)] = _classes(field, ids[:_MOST_SHAPES].tolist())
    return found


def _classes(field: Field, ids: list[int]) -> list[str]:
    """Return what the classes with some ids are called; of those without a name, the ids."""
    wanted = set(ids)
    known = zip(field.ids or range(len(field.classes)), field.classes, strict=True)
    names = {number: legible(name) for number, name in known if number in wanted}
    return [names.get(number, str(number)) for number in ids]


def _described(field: Field, value: Any, names: Mapping[int, list[str]], shape: tuple[int, int]) -> dict[str, Any]:
    said: dict[str, Any] = {"name": field.name, "kind": field.kind}
    picture = {"picture": field.kind} if field.kind in PIXELS else {}
    if value is None:
        return said | {"text": "none"}
    if isinstance(value, Exception):
        return said | {"error": str(value)}
    if isinstance(value, _Large):
        return said | picture | {"text": in_units(value.size) + ("" if picture else ", too much to be shown here")}
    if field.kind in PIXELS or field.kind == "bytes":
        return said | picture | {"text": in_units(len(value))}
    if field.kind in ("boxes", "keypoints", "segmentation"):
        drawn = value[:_MOST_SHAPES]
        shapes = _segmented(drawn, shape) if field.kind == "segmentation" else _placed(field.kind, drawn)
        more = f", of which {_MOST_SHAPES} are drawn" if len(value) > _MOST_SHAPES else ""
        return said | shapes | {"text": f"{len(value)}{more}", "labels": names.get(len(value), [])}
    return said | {"text": _words(field, value)}


def _placed(kind: str, value: Any) -> dict[str, Any]:
    numbers = np.nan_to_num(value.astype(np.float64))
    return {kind: np.round(np.clip(numbers, -_FARTHEST, _FARTHEST), 2).tolist()}


def _segmented(value: list[Any], shape: tuple[int, int]) -> dict[str, Any]:
    """Return the polygons of objects, whether there are run lengths to paint, and what is wrong with the first one."""
    problems = [_problem(one, shape) for one in value]
    polygons = [
        [points for points in one if points] if isinstance(one, list) and not problem else []
        for one, problem in zip(value, problems, strict=True)
    ]
    said: dict[str, Any] = {"polygons": polygons}
    if any(isinstance(one, dict) and not problem for one, problem in zip(value, problems, strict=True)):
        said["picture"] = "mask"
    wrong = next(((place, problem) for place, problem in enumerate(problems) if problem), None)
    return said if wrong is None else said | {"error": f"segmentation {wrong[0]}: {wrong[1]}"}


def _problem(segmentation: Any, shape: tuple[int, int]) -> str | None:
    """Say why a segmentation cannot be drawn over an image of a height and a width."""
    problem = segmentation_problem(segmentation)
    if problem is None and isinstance(segmentation, dict) and segmentation["size"] != list(shape):
        return f"its size is {segmentation['size']}, and the image's is {list(shape)}"
    return problem


def _words(field: Field, value: Any) -> str:
    """Return a value that is drawn nowhere in words."""
    if field.kind == "class":
        return _classes(field, [value])[0]
    if field.dtype == "float32" and field.kind == "scalar":
        return str(np.float32(value))
    if field.kind == "labels":
        text = ", ".join(_classes(field, value[:_MOST_SHAPES].tolist())) or "none"
    elif field.kind == "array":
        extremes = f", {value.min()} to {value.max()}" if value.size and value.dtype.kind != "b" else ""
        text = f"{' x '.join(map(str, value.shape))} {value.dtype}{extremes}"
    else:
        text = json.dumps(value, indent=1, ensure_ascii=False) if field.kind == "json" else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text):,} characters)"
