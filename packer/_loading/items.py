"""Items of a pack's samples: read, decoded, and given to the transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from packer._images.geometry import Crops
from packer._loading.decoding import BatchDecoder
from packer._loading.lookup import Lookup
from packer._loading.preparation import Preparation
from packer._loading.rows import Item, empty_rows
from packer._table import Ints

__all__ = ["item_maker"]

_AT_A_TIME = 8  # images whose pixels stay in the cache until they have become numbers

Maker = Callable[[Sequence[int]], list[tuple[Any, Any]]]


def item_maker(
    decoder: BatchDecoder,
    rows: Ints,
    labels: Sequence[Any],
    preparation: Preparation,
    choose: Callable[[Sequence[int]], Crops],
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

        def images(places: Sequence[int]) -> Iterable[Any]:
            return _whole(decoder, rows[places], preparation)

    elif preparation.interleaved and not seeded:

        def images(places: Sequence[int]) -> Iterable[Any]:
            return (
                image for place in places for image in _cropped(decoder, rows[[place]], choose([place]), preparation)
            )

    else:
        crops = choose(range(len(rows)))

        def images(places: Sequence[int]) -> Iterable[Any]:
            return _cropped(decoder, rows[places], crops[places], preparation)

    def make(places: Sequence[int]) -> list[tuple[Any, Any]]:
        made = []
        for image, place in zip(images(places), places, strict=True):
            if before is not None:
                before(place)
            made.append(preparation.item(image, labels[place]))
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


def _whole(decoder: BatchDecoder, rows: Ints, preparation: Preparation) -> Iterable[Any]:
    for row, data in zip(rows.tolist(), decoder.reader.read_many(rows), strict=True):
        yield bytes(data) if preparation.output == "bytes" else preparation.shown(decoder.decode(row, data))


def _cropped(decoder: BatchDecoder, rows: Ints, crops: Crops, preparation: Preparation) -> list[Any]:
    sizes = zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True)
    images = [torch.empty((*size, 3), dtype=torch.uint8) for size in sizes]
    decoder.decode_into(rows, crops, [image.permute(2, 0, 1) for image in images])
    return [preparation.shown(image.numpy()) for image in images]
