"""Descriptions of datasets: a few lines for packs of any content, and pictures of samples in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from packer._datasets.batch_decoder import BatchDecoder
from packer._datasets.thumbnails import thumbnails
from packer._display import Block, TextTable, Thumbnails, count, counted, here, legible
from packer._formats.index import IndexReader
from packer._storage.system import in_units
from packer.errors import PackerError

if TYPE_CHECKING:
    from packer._datasets.concat import ConcatImageDataset
    from packer._datasets.image_dataset import ImageDataset

_NAMED = 5  # classes, fields or packs that are named
_SHOWN = 8  # samples that have a picture
_SIDE = 112  # pixels of a picture
_LONGEST = 200  # characters of the repr of an object that is not packer's


def named(dataset: Any) -> str:
    """Return a one-line description: the first line for packer's datasets, with path and samples; else the repr.

    torch's `Subset` and `ConcatDataset` are described by what they contain.
    """
    if isinstance(dataset, Subset):
        return f"Subset of {counted(len(dataset), 'sample')} of {named(dataset.dataset)}"
    if isinstance(dataset, ConcatDataset):
        return f"ConcatDataset of {counted(len(dataset), 'sample')}: {'; '.join(map(named, dataset.datasets[:_NAMED]))}"
    own = type(dataset).__module__.partition(".")[0] == "packer"
    return repr(dataset).partition("\n")[0] if own else one_line(dataset)


def one_line(value: object) -> str:
    """Return the repr of a value in one line of bounded length; its type if the repr is an address in memory."""
    if type(value).__repr__ is object.__repr__:
        return type(value).__qualname__
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def of_dataset(dataset: ImageDataset) -> Iterator[Block]:
    """Yield path, number of samples, classes, format and size, and the steps from a sample to an item."""
    manifest, whole = dataset.reader.manifest, len(dataset.reader)
    selected = "" if len(dataset) == whole else f" of {count(whole)}"
    is_class = manifest.label_type == "class"
    labels = counted(len(dataset.classes), "class") if is_class else f"{manifest.label_type} labels"
    held = f"{count(len(dataset))}{selected} sample{'s' * (whole != 1)}, {labels}"
    yield f"{type(dataset).__name__}({dataset.reader.place.given!r}): {held}"
    rows = [("pack", _pack(dataset))]
    if manifest.classes:
        rows.append(("classes", some(dataset.classes)))
    if manifest.fields:
        rows.append(("fields", some([field.name for field in manifest.fields])))
    rows += [("items", str(dataset._pipeline)), ("decoding", _decoding(dataset))]
    yield TextTable(rows, ("<8", ""))


def of_several(dataset: ConcatImageDataset) -> Iterator[Block]:
    """Yield the packs of the joined datasets, and the steps from a sample to an item."""
    packs = [named(one) for one in dataset.datasets[:_NAMED]]
    if len(dataset.datasets) > _NAMED:
        packs.append(f"… and {count(len(dataset.datasets) - _NAMED)} more")
    held = f"{counted(len(dataset.datasets), 'pack')}: {counted(len(dataset), 'sample')}"
    yield f"{type(dataset).__name__} of {held}"
    topics = ["packs", *([""] * (len(packs) - 1))]
    rows = [*zip(topics, packs, strict=True), ("items", str(dataset.datasets[0]._pipeline))]
    yield TextTable(rows, ("<8", ""))


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of further names."""
    shown = ", ".join(legible(name) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown}, … and {count(len(names) - _NAMED)} more"


def pictures(dataset: ImageDataset) -> Iterator[Block]:
    """Yield pictures of evenly spread samples; for a pack at a URL yield none, so that nothing is fetched."""
    if not len(dataset) or dataset.reader.remote:
        return
    places = np.unique(np.linspace(0, len(dataset) - 1, min(_SHOWN, len(dataset))).astype(np.int64))
    try:
        rows = dataset._view.rows_of(places.tolist())
        found = thumbnails(BatchDecoder(dataset.reader), rows, _SIDE)
        captions = [_caption(dataset, place) for place in places.tolist()]
    except (PackerError, OSError):  # a table that is damaged, or a pack that is gone: the text is shown all the same
        return
    yield Thumbnails([(one.jpeg, caption, one.error) for one, caption in zip(found, captions, strict=True)])


def _caption(dataset: ImageDataset, place: int) -> str:
    name, label = dataset.samples[place]
    is_class = dataset.reader.manifest.label_type == "class" and 0 <= label < len(dataset.classes)
    return f"{dataset.classes[int(label)] if is_class else label}: {name.rpartition('/')[2]}"


def _pack(dataset: ImageDataset) -> str:
    """Return format, codec and size; no size if the pack no longer exists."""
    reader = dataset.reader
    if isinstance(reader, IndexReader) and reader.in_place:
        return f"index of {counted(len(reader.files()), 'file')} below {here(reader.base)}, read where they lie"
    try:
        size = f", {in_units(reader.place.size(reader.file_names()))}"
    except (PackerError, OSError):
        size = ""
    return f"{reader.manifest.format}, {reader.manifest.codec}{size}"


def _decoding(dataset: ImageDataset) -> str:
    mode, threads = dataset._pipeline.mode, dataset.threads
    seed = "" if dataset.seed is None else f", seed={dataset.seed}"
    return f"mode={mode!r}, decoder={dataset.decoder!r}, {counted(threads, 'thread')}{seed}"
