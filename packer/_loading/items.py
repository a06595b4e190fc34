"""Items of a pack's samples: read, decoded, and given to the transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._loading.decoding import BatchDecoder
from packer._loading.fields import FieldDecoder
from packer._loading.lookup import Lookup
from packer._loading.memory import IMAGES
from packer._loading.preparation import Preparation, followed
from packer._loading.rows import Item, empty_rows
from packer._table import Ints

__all__ = ["item_maker", "slice_of"]

Maker = Callable[[range], list[Any]]


def item_maker(  # noqa: PLR0917
    decoder: BatchDecoder,
    rows: Ints,
    labels: Sequence[Any],
    preparation: Preparation,
    choose: Callable[[range], Crops],
    fields: FieldDecoder | None = None,
    *,
    seeded: bool,
    before: Callable[[int], None] | None = None,
) -> Maker:
    """Return what makes the items of some of N samples, which several threads may ask for theirs.

    Random crops are drawn here, in the order of the samples. Only where a transform draws random numbers, too, and
    without a seed, each crop is drawn just before its image is transformed: as torchvision's transforms would draw.

    Parameters
    ----------
    decoder : BatchDecoder
    rows : (N,) int64 array
        Places of the samples in the pack.
    labels : sequence of N labels
    preparation : Preparation
    choose : callable
        Takes such places as well, and returns crops.
    fields : FieldDecoder, optional
        Where items are dicts.
    seeded : bool
        Whether the crops are a function of their places, whenever they are chosen.
    before : callable, optional
        Called with each place before transforms make the item.

    Returns
    -------
    callable
        Takes places in `rows` that follow one another, a range, and returns a list of items.
    """
    if preparation.lookup is not None and preparation.row_size is not None and len(rows) > 1:
        batch = empty_rows(len(rows), (3, *preparation.row_size))
        return _row_maker(
            decoder, rows, labels, preparation, preparation.lookup, choose(range(len(rows))), batch, before
        )
    if not preparation.crops:

        def groups(places: range) -> Iterable[tuple[range, Crops | None]]:
            return [(places, None)]

    elif not seeded and preparation.interleaved:

        def groups(places: range) -> Iterable[tuple[range, Crops | None]]:
            return ((one, choose(one)) for one in (range(place, place + 1) for place in places))

    else:
        crops = choose(range(len(rows)))

        def groups(places: range) -> Iterable[tuple[range, Crops | None]]:
            return [(places, crops[slice_of(places)])]

    def make(places: range) -> list[Any]:
        made: list[Any] = []
        for some, chosen in groups(places):
            part = slice_of(some)
            items = _items(decoder, fields, rows[part], labels[part], chosen, preparation)
            if before is None:
                made += items
                continue
            for place in some:
                before(place)
                made.append(next(items))
        return made

    return make


def slice_of(places: range) -> slice:
    """Return places that follow one another as a slice, of which NumPy and torch copy nothing."""
    return slice(places.start, places.stop)


def _row_maker(  # noqa: PLR0917
    decoder: BatchDecoder,
    rows: Ints,
    labels: Sequence[Any],
    preparation: Preparation,
    lookup: Lookup,
    crops: Crops,
    batch: torch.Tensor,
    before: Callable[[int], None] | None,
) -> Maker:
    """Return what makes items whose images are the rows of one batch."""

    def make(places: range) -> list[tuple[Any, Any]]:
        part = slice_of(places)
        made: list[tuple[Any, Any]] = []
        decoder.decode_into(rows[part], crops[part], batch[part], lookup)
        for place, image in zip(places, lookup.images(batch[part]), strict=True):
            if before is not None:
                before(place)
            made.append(Item(*preparation.item(image, labels[place])))
        return made

    return make


def _items(  # noqa: PLR0917
    decoder: BatchDecoder,
    fields: FieldDecoder | None,
    rows: Ints,
    labels: Sequence[Any],
    crops: Crops | None,
    preparation: Preparation,
) -> Iterator[Any]:
    """Yield items of samples. The transforms of each are called when that item is asked for."""
    bare, operations = followed(crops, preparation)
    if fields is not None and fields.makes_targets:
        labels = fields.targets(rows, bare, operations)
    if fields is None or fields.makes_targets:
        for image, label in zip(_images(decoder, rows, crops, preparation), labels, strict=True):
            yield preparation.item(image, label)
        return
    sizes = fields.sizes(rows, bare)
    values = fields.samples(rows, labels, bare, operations, encoded=preparation.output == "bytes")
    images = _images(decoder, rows, crops, preparation) if fields.with_images else [None] * len(rows)
    for image, of_sample, size in zip(images, values, sizes, strict=True):
        yield preparation.dict_item({**of_sample, IMAGES: image}, size)


def _images(decoder: BatchDecoder, rows: Ints, crops: Crops | None, preparation: Preparation) -> Iterable[Any]:
    """Return images as the transforms take them."""
    if crops is not None:
        pixels = decoder.cut(rows, crops)
        if preparation.views:
            for views in pixels:
                yield tuple(map(preparation.shown, views))
        elif isinstance(pixels, np.ndarray) and preparation.output == "tensor" and preparation.lookup is None:
            yield from torch.from_numpy(pixels).permute(0, 3, 1, 2).unbind(0)
        else:
            yield from map(preparation.shown, pixels)
        return
    for row, data in zip(rows.tolist(), decoder.reader.read_many(rows), strict=True):
        yield bytes(data) if preparation.output == "bytes" else preparation.shown(decoder.decode(row, data))
