"""Items of a pack's samples: read, decoded, and given to the transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from packer._images.geometry import Crops
from packer._loading.decoding import BatchDecoder
from packer._loading.fields import FieldDecoder
from packer._loading.lookup import Lookup
from packer._loading.memory import IMAGES
from packer._loading.preparation import Preparation
from packer._loading.rows import Item, empty_rows
from packer._table import Ints

__all__ = ["item_maker"]

_AT_A_TIME = 8  # images whose pixels stay in the cache until they have become numbers

Maker = Callable[[Sequence[int]], list[Any]]


def item_maker(  # noqa: PLR0917
    decoder: BatchDecoder,
    rows: Ints,
    labels: Sequence[Any],
    preparation: Preparation,
    choose: Callable[[Sequence[int]], Crops],
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
        Takes places in `rows`, and returns crops.
    fields : FieldDecoder, optional
        Where items are dicts.
    seeded : bool
        Whether the crops are a function of their places, whenever they are chosen.
    before : callable, optional
        Called with each place before transforms make the item.

    Returns
    -------
    callable
        Takes places in `rows`, and returns a list of items.
    """
    if preparation.lookup is not None and preparation.row_size is not None and len(rows) > 1:
        batch = empty_rows(len(rows), (3, *preparation.row_size))
        return _row_maker(
            decoder, rows, labels, preparation, preparation.lookup, choose(range(len(rows))), batch, before
        )
    if preparation.crop is None:

        def groups(places: Sequence[int]) -> Iterable[tuple[Sequence[int], Crops | None]]:
            return [(places, None)]

    elif preparation.interleaved and not seeded:

        def groups(places: Sequence[int]) -> Iterable[tuple[Sequence[int], Crops | None]]:
            return (([place], choose([place])) for place in places)

    else:
        crops = choose(range(len(rows)))

        def groups(places: Sequence[int]) -> Iterable[tuple[Sequence[int], Crops | None]]:
            return [(places, crops[places])]

    def make(places: Sequence[int]) -> list[Any]:
        made: list[Any] = []
        for some, chosen in groups(places):
            items = _items(decoder, fields, rows[some], [labels[place] for place in some], chosen, preparation)
            if before is None:
                made += items
                continue
            for place in some:
                before(place)
                made.append(next(items))
        return made

    return make


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

    def make(places: Sequence[int]) -> list[tuple[Any, Any]]:
        pixels = torch.empty((min(len(places), _AT_A_TIME), *batch.shape[2:], 3), dtype=torch.uint8)
        made: list[tuple[Any, Any]] = []
        for begin in range(0, len(places), _AT_A_TIME):
            some = places[begin : begin + _AT_A_TIME]
            decoder.decode_into(rows[some], crops[some], pixels[: len(some)].permute(0, 3, 1, 2))
            for place, levels in zip(some, pixels[: len(some)].numpy(), strict=True):
                if before is not None:
                    before(place)
                made.append(Item(*preparation.item(lookup.write(levels, batch[place]), labels[place])))
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
    if fields is not None and fields.makes_targets:
        labels = fields.targets(rows, crops)
    if fields is None or fields.makes_targets:
        for image, label in zip(_images(decoder, rows, crops, preparation), labels, strict=True):
            yield preparation.item(image, label)
        return
    sizes = fields.sizes(rows, crops)
    values = fields.samples(rows, labels, crops, encoded=preparation.output == "bytes")
    images = _images(decoder, rows, crops, preparation) if fields.with_images else [None] * len(rows)
    for image, of_sample, size in zip(images, values, sizes, strict=True):
        yield preparation.dict_item({**of_sample, IMAGES: image}, size)


def _images(decoder: BatchDecoder, rows: Ints, crops: Crops | None, preparation: Preparation) -> Iterable[Any]:
    """Return images as the transforms take them."""
    if crops is not None:
        yield from map(preparation.shown, decoder.cut(rows, crops))
        return
    for row, data in zip(rows.tolist(), decoder.reader.read_many(rows), strict=True):
        yield bytes(data) if preparation.output == "bytes" else preparation.shown(decoder.decode(row, data))
