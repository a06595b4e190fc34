"""Items of a pack's samples: read, decoded, and given to the transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from packer._images.geometry import Crops
from packer._loading.decoding import BatchDecoder
from packer._loading.preparation import Preparation
from packer._table import Ints

__all__ = ["item_maker"]

Maker = Callable[[Sequence[int]], list[tuple[Any, Any]]]


def item_maker(
    decoder: BatchDecoder,
    rows: Ints,
    labels: Sequence[Any],
    preparation: Preparation,
    choose: Callable[[Sequence[int]], Crops],
    *,
    seeded: bool,
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

    Returns
    -------
    callable
        Takes places in `rows`, and returns a list of items.
    """
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
        return [preparation.item(image, labels[place]) for image, place in zip(images(places), places, strict=True)]

    return make


def _whole(decoder: BatchDecoder, rows: Ints, preparation: Preparation) -> Iterable[Any]:
    for row, data in zip(rows.tolist(), decoder.reader.read_many(rows), strict=True):
        yield bytes(data) if preparation.output == "bytes" else preparation.shown(decoder.decode(row, data))


def _cropped(decoder: BatchDecoder, rows: Ints, crops: Crops, preparation: Preparation) -> list[Any]:
    sizes = zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True)
    images = [torch.empty((*size, 3), dtype=torch.uint8) for size in sizes]
    decoder.decode_into(rows, crops, [image.permute(2, 0, 1) for image in images])
    return [preparation.shown(image.numpy()) for image in images]
