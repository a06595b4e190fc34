"""What the page asks for, and the answers: JSON, pictures, and sheets of many pictures at once.

A sheet is the length of its head as a uint32, little-endian, the head in JSON, a list with an entry for each picture,
and the pictures one after the other. An entry says under ``picture`` how many bytes its JPEG has.
"""

from __future__ import annotations

import functools
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from packer._images.jpeg.tiles import read_tiles
from packer._images.probe import inspect
from packer._manifest import TILED
from packer._viewing.annotations import annotations_of
from packer._viewing.catalog import Catalog
from packer._viewing.damage import Damage
from packer._viewing.drawing import draw
from packer._viewing.duplicates import find_duplicates
from packer._viewing.finding import ORDERS, Finder, Query
from packer._viewing.histograms import histograms
from packer._viewing.layers import further_image, mask_picture
from packer._viewing.names import legible
from packer._viewing.pictures import Picture, Pictures
from packer.crops import RandomResizedCrop
from packer.errors import CorruptPackError, ImageError, PackError

__all__ = ["Answer", "Answers", "Wanted"]

_MOST_PICTURES = 240
_SIDES = (16, 4096)
_MOST_PIXELS = 1 << 26  # of a sheet
_MOST_EPOCHS, _LARGEST_CROP = 64, 1024
_MOST_LISTED = 1000
_SECONDS_OF_CHECKING = 0.3
_CHECKED_AT_ONCE = 16

Wanted = Mapping[str, str]
"""The parameters of an address."""


class Answer(NamedTuple):
    """What is sent: a media type, and bytes."""

    type: str
    body: bytes


class Answers:
    """Answers questions about the samples of packs. Safe in many threads at once.

    Parameters
    ----------
    catalog : Catalog
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._finder = Finder(catalog)
        self._pictures = Pictures(catalog)
        self._once = threading.Lock()
        self._damage = Damage(len(catalog))
        self.ways: dict[str, Callable[[Wanted], Answer]] = {
            "packs": self._packs,
            "found": self._found,
            "sheet": self._sheet,
            "sample": self._sample,
            "image": self._image,
            "field": self._field,
            "crops": self._crops,
            "histograms": self._histograms,
            "duplicates": self._duplicates,
            "check": self._check,
        }
        """The answer to each question, by its name in the address."""

    def _packs(self, wanted: Wanted) -> Answer:
        catalog = self._catalog
        pairs = zip(catalog.classes, catalog.class_counts, strict=False)
        return _json(
            {
                "title": catalog.title,
                "paths": catalog.paths,
                "count": len(catalog),
                "facts": catalog.facts(),
                "labels": catalog.label_type,
                "classes": [{"name": legible(name), "count": count} for name, count in pairs],
                "unlabeled": catalog.unlabeled,
                "fields": [{"name": one.name, "kind": one.kind} for one in catalog.fields.values()],
                "orders": ORDERS[1:],
                "findings": [(legible(name), count) for name, count in catalog.findings()[:_MOST_LISTED]],
                "leftOut": [(legible(name), legible(reason)) for name, reason in catalog.left_out()[:_MOST_LISTED]],
                "leftOutCount": len(catalog.left_out()),
            }
        )

    def _found(self, wanted: Wanted) -> Answer:
        found = self._finder.find(_query(wanted))
        return _json({"count": found.count, "complete": found.complete})

    def _sheet(self, wanted: Wanted) -> Answer:
        count = min(_number(wanted, "count", 60), _MOST_PICTURES)
        indices = self._finder.find(_query(wanted)).part(_number(wanted, "start"), count)
        side = min(_side(wanted), math.isqrt(_MOST_PIXELS // max(len(indices), 1)))
        pictures = self._pictures.small(indices, side)
        entries = [{**self._about(one.index), "error": one.error, "picture": len(one.jpeg)} for one in pictures]
        if wanted.get("fields"):
            for entry, one in zip(entries, pictures, strict=True):
                entry["fields"] = [] if one.error else annotations_of(self._catalog, one.index)
        self._note(pictures)
        return _together(entries, [one.jpeg for one in pictures])

    def _note(self, pictures: Iterable[Picture]) -> None:
        for one in pictures:
            if one.is_damaged:
                self._damage.add(one.index, one.error)

    def _about(self, index: int) -> dict[str, Any]:
        """Return what the table says of a sample."""
        catalog = self._catalog
        pack, row = catalog.place(index)
        table = catalog.readers[pack].table
        return {
            "index": index,
            "name": catalog.name(index),
            "label": catalog.label(index),
            "width": int(table.width[row]),
            "height": int(table.height[row]),
            "size": int(table.size[row]),
        }

    def _sample(self, wanted: Wanted) -> Answer:
        catalog, index = self._catalog, _number(wanted, "index")
        pack, row = catalog.place(index)
        reader = catalog.readers[pack]
        crc = f"{int(reader.table.crc32c[row]):08x}" if reader.has_checksums else ""
        number = int(catalog.labels[index]) if catalog.label_type == "class" else None
        about: dict[str, Any] = {**self._about(index), "number": number, "crc32c": crc}
        about |= {"pack": catalog.paths[pack], "row": row, "codec": reader.manifest.codec, "error": "", "findings": []}
        try:
            data = reader.read(row)
            if reader.manifest.codec != "raw":
                held = inspect(data)
                about |= {"type": held.kind, "findings": [name for name in held.findings if name != TILED]}
                about["tiles"] = _tiles(data) if held.kind == "jpeg" else None
        except (PackError, ImageError) as error:
            about["error"] = legible(str(error))
            if isinstance(error, CorruptPackError | ImageError):
                self._damage.add(index, about["error"])
        return _json({**about, "fields": annotations_of(catalog, index)})

    def _image(self, wanted: Wanted) -> Answer:
        picture = self._pictures.whole(_number(wanted, "index"), _side(wanted))
        self._note([picture])
        return _together([{"error": picture.error, "picture": len(picture.jpeg)}], [picture.jpeg])

    def _field(self, wanted: Wanted) -> Answer:
        asked = self._catalog, _number(wanted, "index"), wanted.get("name", ""), _side(wanted)
        with self._pictures.turn:
            if wanted.get("as") == "mask":
                return Answer("image/png", mask_picture(*asked))
            return Answer("image/jpeg", further_image(*asked))

    def _crops(self, wanted: Wanted) -> Answer:
        size, first = _number(wanted, "size", 224), _number(wanted, "epoch")
        crop = RandomResizedCrop(
            min(size, _LARGEST_CROP), scale=(_real(wanted, "least", 0.08), _real(wanted, "most", 1.0))
        )
        epochs = range(first, first + min(_number(wanted, "epochs", 8), _MOST_EPOCHS))
        cuts = self._pictures.cuts(_number(wanted, "index"), crop, _number(wanted, "seed"), epochs)
        entries = [{**asdict(cut), "jpeg": "", "picture": len(cut.jpeg)} for cut in cuts]
        return _together(entries, [cut.jpeg for cut in cuts])

    def _histograms(self, wanted: Wanted) -> Answer:
        found = histograms(self._catalog, self._finder.find(_query(wanted)).indices)
        return _json([{"measure": one.measure, "svg": draw(one)} for one in found])

    def _duplicates(self, wanted: Wanted) -> Answer:
        with self._once:
            return self._all_duplicates

    @functools.cached_property
    def _all_duplicates(self) -> Answer:
        return _json(asdict(find_duplicates(self._catalog)))

    def _check(self, wanted: Wanted) -> Answer:
        """Read and decode samples from one on, for a fraction of a second, and say how far that went."""
        start, until = _number(wanted, "start"), time.monotonic() + _SECONDS_OF_CHECKING
        everything = self._finder.find(Query())
        while start < len(self._catalog) and time.monotonic() < until:
            self._note(self._pictures.small(everything.part(start, _CHECKED_AT_ONCE), _SIDES[0]))
            start += _CHECKED_AT_ONCE
        count, reasons = self._damage.listed()
        damaged = [{"index": index, "error": error} for index, error in reasons]
        return _json({"next": min(start, len(self._catalog)), "damaged": damaged, "count": count})


def _query(wanted: Wanted) -> Query:
    """Return what is looked for, as an address says it."""
    label = wanted.get("class", "")
    return Query(
        label=int(label) if label else None,
        name=wanted.get("name", ""),
        condition=wanted.get("where", ""),
        measure=wanted.get("measure", ""),
        low=_real(wanted, "low", float("-inf")),
        high=_real(wanted, "high", float("inf")),
        order=wanted.get("order", ""),
    )


def _number(wanted: Wanted, name: str, default: int = 0) -> int:
    number = int(wanted.get(name) or default)
    if number < 0:
        raise ValueError(f"{name} is 0 or more, not {number}")
    return number


def _real(wanted: Wanted, name: str, default: float) -> float:
    return float(wanted.get(name) or default)


def _side(wanted: Wanted) -> int:
    return min(max(_number(wanted, "side", 256), _SIDES[0]), _SIDES[1])


def _tiles(data: Any) -> dict[str, int] | None:
    """Return how the tiles of a JPEG lie; None where it has none."""
    tiles = read_tiles(data)
    return None if tiles is None else tiles.grid._asdict()


def _json(value: object) -> Answer:
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Answer("application/json", text.encode("ascii"))


def _together(entries: list[dict[str, Any]], pictures: list[bytes]) -> Answer:
    """Return a sheet."""
    head = _json(entries).body
    return Answer("application/octet-stream", b"".join([len(head).to_bytes(4, "little"), head, *pictures]))
