"""Items of a pack's samples: read, decoded, and given to the transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._images.geometry import Crops
from packer._loading.decoding import BatchDecoder
from packer._loading.preparation import Preparation
from packer._table import Ints
from packer.crops import Crop

__all__ = ["in_form", "item_maker"]

Maker = Callable[[Sequence[int]], list[tuple[Any, Any]]]


def item_maker(  # noqa: PLR0917
    decoder: BatchDecoder, rows: Ints, labels: Sequence[Any], preparation: Preparation, epoch: int, seed: int | None
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
    steps : Preparation
    epoch : int
    seed : int or None
        Of the crops; None to draw them from torch's generator.

    Returns
    -------
    callable
        Takes places in `rows`, and returns a list of items.
    """
    crop = preparation.crop
    if crop is None:

        def images(places: Sequence[int]) -> Iterable[Any]:
            return _whole(decoder, rows[places], preparation.output)

    elif seed is None and preparation.interleaved:

        def images(places: Sequence[int]) -> Iterable[Any]:
            return (_drawn(decoder, crop, rows[[place]], epoch, preparation.output) for place in places)

    else:
        crops = decoder.choose_crops(crop, rows, epoch, seed)

        def images(places: Sequence[int]) -> Iterable[Any]:
            return _cropped(decoder, rows[places], crops[places], preparation.output)

    def make(places: Sequence[int]) -> list[tuple[Any, Any]]:
        return [preparation.item(image, labels[place]) for image, place in zip(images(places), places, strict=True)]

    return make


def in_form(output: str, pixels: npt.NDArray[np.uint8]) -> Any:
    """Return (height, width, 3) uint8 pixels in the form that a dataset's `output` says."""
    if output == "tensor":
        return torch.from_numpy(pixels).permute(2, 0, 1)
    return pixels if output == "numpy" else Image.fromarray(pixels)


def _whole(decoder: BatchDecoder, rows: Ints, output: str) -> Iterable[Any]:
    for row, data in zip(rows.tolist(), decoder.reader.read_many(rows), strict=True):
        yield bytes(data) if output == "bytes" else in_form(output, decoder.decode(row, data))


def _drawn(decoder: BatchDecoder, crop: Crop, rows: Ints, epoch: int, output: str) -> Any:
    """Return the image of one sample, whose crop is drawn now."""
    (image,) = _cropped(decoder, rows, decoder.choose_crops(crop, rows, epoch, None), output)
    return image


def _cropped(decoder: BatchDecoder, rows: Ints, crops: Crops, output: str) -> list[Any]:
    sizes = zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True)
    images = [torch.empty((*size, 3), dtype=torch.uint8) for size in sizes]
    decoder.decode_into(rows, crops, [image.permute(2, 0, 1) for image in images])
    return [in_form(output, image.numpy()) for image in images]
