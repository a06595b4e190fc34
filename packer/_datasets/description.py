"""Descriptions of datasets: a few lines for packs of any content, and pictures of samples for pages and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from packer._datasets.decoder import BatchDecoder
from packer._display import Block, TextTable, Thumbnails, count, counted, here, legible
from packer._formats.index import IndexReader
from packer._images.encode import encode
from packer._images.geometry import CROP, Box, Crops, require_affordable
from packer._storage.system import in_units
from packer._table import Ints
from packer.errors import CorruptPackError, ImageError, PackerError

if TYPE_CHECKING:
    from packer._datasets.concat import ConcatImageDataset
    from packer._datasets.image_dataset import PackItems
    from packer._datasets.pipeline import Pipeline
    from packer._datasets.sample_view import SampleView
    from packer._formats import Reader

_NAMED = 5  # classes, fields or packs that a description lists
_SHOWN = 8  # samples with a picture
_SIDE = 112  # pixels of a picture
_LONGEST = 200  # characters of the repr of another library's object

SMALL_QUALITY = 80
"""The quality of JPEGs in a grid."""


def named(dataset: Any) -> str:
    """Describe a dataset in one line: path and number of samples for packer's datasets, otherwise the repr.

    torch's `Subset` and `ConcatDataset` are described by the datasets that they contain.
    """
    if isinstance(dataset, Subset):
        return f"Subset of {counted(len(dataset), 'sample')} of {named(dataset.dataset)}"
    if isinstance(dataset, ConcatDataset):
        return f"ConcatDataset of {counted(len(dataset), 'sample')}: {'; '.join(map(named, dataset.datasets[:_NAMED]))}"
    own = type(dataset).__module__.partition(".")[0] == "packer"
    return repr(dataset).partition("\n")[0] if own else one_line(dataset)


def one_line(value: object) -> str:
    """Return the repr of a value in one line of bounded length, or its type if the repr is only a memory address."""
    if type(value).__repr__ is object.__repr__:
        return type(value).__qualname__
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def of_pack(items: PackItems) -> Iterator[Block]:
    """Yield path, number of samples, classes, format and size, and the steps from a sample to an item."""
    manifest, whole, classes = items.reader.manifest, len(items.reader), items.view.classes
    selected = "" if len(items) == whole else f" of {count(whole)}"
    is_class = manifest.label_type == "class"
    labels = counted(len(classes), "class") if is_class else f"{manifest.label_type} labels"
    content = f"{count(len(items))}{selected} sample{'s' * (whole != 1)}, {labels}"
    yield f"{items.name}({items.reader.place.as_written!r}): {content}"
    rows = [("pack", _pack(items.reader))]
    if manifest.classes:
        rows.append(("classes", some(classes)))
    if manifest.fields:
        rows.append(("fields", some([field.name for field in manifest.fields])))
    rows += [("items", str(items.pipeline)), ("decoding", _decoding(items))]
    yield TextTable(rows, ("<8", ""))


def of_several(dataset: ConcatImageDataset, pipeline: Pipeline) -> Iterator[Block]:
    """Yield the packs of the joined datasets, and the steps from a sample to an item."""
    packs = [named(one) for one in dataset.datasets[:_NAMED]]
    if len(dataset.datasets) > _NAMED:
        packs.append(f"… and {count(len(dataset.datasets) - _NAMED)} more")
    content = f"{counted(len(dataset.datasets), 'pack')}: {counted(len(dataset), 'sample')}"
    yield f"{type(dataset).__name__} of {content}"
    topics = ["packs", *([""] * (len(packs) - 1))]
    rows = [*zip(topics, packs, strict=True), ("items", str(pipeline))]
    yield TextTable(rows, ("<8", ""))


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of further names."""
    shown = ", ".join(legible(name) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown}, … and {count(len(names) - _NAMED)} more"


def pictures(items: PackItems) -> Iterator[Block]:
    """Yield pictures of evenly spread samples; for a pack at a URL yield none, so that nothing is fetched."""
    if not len(items) or items.reader.remote:
        return
    indices = np.unique(np.linspace(0, len(items) - 1, min(_SHOWN, len(items))).astype(np.int64)).tolist()
    try:
        found = thumbnails(BatchDecoder(items.reader), items.view.rows_of(indices), _SIDE)
        captions = [_caption(items.view, index) for index in indices]
    except (PackerError, OSError):  # the table is damaged, or the pack no longer exists: only the text is shown
        return
    yield Thumbnails([(one.jpeg, caption, one.error) for one, caption in zip(found, captions, strict=True)])


def _caption(view: SampleView, index: int) -> str:
    name, label = view.samples[index]
    is_class = view.reader.manifest.label_type == "class" and 0 <= label < len(view.classes)
    return f"{view.classes[int(label)] if is_class else label}: {name.rpartition('/')[2]}"


def _pack(reader: Reader) -> str:
    """Return a pack's format, codec and size as text; the size is left out if the pack no longer exists."""
    if isinstance(reader, IndexReader) and reader.in_place:
        return f"index of {counted(len(reader.files()), 'file')} below {here(reader.base)}, read from their own files"
    try:
        size = f", {in_units(reader.place.size(reader.file_names()))}"
    except (PackerError, OSError):
        size = ""
    return f"{reader.manifest.format}, {reader.manifest.codec}{size}"


def _decoding(items: PackItems) -> str:
    seed = "" if items.seed is None else f", seed={items.seed}"
    return f"mode={items.pipeline.mode!r}, decoder={items.library!r}, {counted(items.threads, 'thread')}{seed}"


@dataclass(frozen=True)
class Picture:
    """A sample as a JPEG, or the reason why it cannot be shown.

    Attributes
    ----------
    index : int
    jpeg : bytes
        The JPEG; empty if the sample cannot be shown.
    error : str
        The reason why the sample cannot be shown; empty if it can.
    is_damaged : bool
        Whether the sample is damaged. False if it could not be read for another reason: too little memory, a failing
        disk or too many open files.
    """

    index: int
    jpeg: bytes = b""
    error: str = ""
    is_damaged: bool = False


def thumbnails(decoder: BatchDecoder, rows: Ints, side: int, quality: int = SMALL_QUALITY) -> list[Picture]:
    """Return pictures of the samples at `rows`, at most `side` pixels wide and high.

    If a picture fails, all are made one by one, so that the other pictures are still shown. A single picture may fail
    for lack of memory, which torch reports as a RuntimeError.
    """
    try:
        images = decoder.decode_crops(rows, _fitting(decoder, rows, side))
        return [Picture(0, encode(image, "jpeg", quality)) for image in images]
    except (PackerError, OSError, ValueError, MemoryError, RuntimeError) as error:
        if len(rows) == 1:
            damaged = isinstance(error, CorruptPackError | ImageError | ValueError)
            return [Picture(0, error=legible(str(error) or type(error).__name__), is_damaged=damaged)]
    return [picture for row in rows for picture in thumbnails(decoder, np.array([row]), side, quality)]


def _fitting(decoder: BatchDecoder, rows: Ints, side: int) -> Crops:
    """Return crops of whole images, resized if they do not fit into a square of `side` pixels.

    Raises PackerError if a size in the table is invalid, or the table was cut short.
    """
    decoder.reader.require_table()
    table = decoder.reader.table
    heights, widths = table.height[rows].astype(np.int64), table.width[rows].astype(np.int64)
    for wrong in np.flatnonzero(np.minimum(heights, widths) < 1)[:1]:
        raise ImageError(f"its row in the table says {widths[wrong]} x {heights[wrong]} pixels")
    scale = np.minimum(1.0, side / np.maximum(heights, widths))
    crops = np.zeros(len(rows), CROP)
    for name, size in (("height", heights), ("width", widths)):
        crops[f"crop_{name}"] = size
        crops[f"scaled_{name}"] = crops[f"out_{name}"] = np.maximum(1, np.rint(size * scale))
    for record in crops.tolist():
        require_affordable(Box(*record))
    return crops
