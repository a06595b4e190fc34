"""Batches of an ImageDataset: items for a batch of DataLoader, and all methods that a Loader needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from packer._datasets.description import named
from packer._datasets.fields import Values
from packer._datasets.generators import seeder
from packer._datasets.items import BAD, good, item_maker, slice_of
from packer._datasets.lookup import Lookup
from packer._datasets.memory import IMAGES, BatchPart, Layout, images_in, view_part
from packer._datasets.pipeline import Pipeline, Transform
from packer._datasets.protocol import Begin, Fetching, ItemsError, Memory, TorchDataset, Traits
from packer._datasets.sample_view import places_in
from packer._images.geometry import Crops
from packer._images.numbers import NumberFormat
from packer._table import Ints, Labels
from packer.crops import Compose

if TYPE_CHECKING:
    from packer._datasets.image_dataset import ImageDataset

_REQUEST = 3 << 17  # bytes that are fetched together, where neighbours are needed soon
_AHEAD, _AHEAD_IN_MEMORY = 1 << 29, 1 << 27  # bytes that are requested ahead: on the disk of a cache, or in memory
_SIZES = 1000  # samples whose sizes stand for all


class ImageBatches(TorchDataset):
    """Reads many samples of an ImageDataset at a time.

    Parameters
    ----------
    dataset : ImageDataset
    """

    def __init__(self, dataset: ImageDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        return named(self.dataset)

    def traits(self, transform: Transform = None) -> Traits:
        dataset, pipeline = self.dataset, self.dataset._pipeline_with(transform)
        steps = pipeline.transform, pipeline.target_transform, pipeline.transforms
        return Traits(
            seed=dataset.seed,
            random=dataset._pipeline.randoms > 0,
            transforms=any(step is not None for step in steps),
            views=len(dataset.views or ()),
            parts=pipeline.parts,
        )

    def settings(self) -> dict[str, str]:
        settings = {name: getattr(self.dataset, name) for name in ("crop", "augment", "views")}
        return {name: " ".join(repr(value).split()) for name, value in settings.items() if value is not None}

    def identity(self) -> str:
        return self.dataset._view.identity()

    def describe(self, index: int) -> str:
        return self.dataset._view.describe(index)

    def layout(self, transform: Transform = None) -> Layout | None:
        """Return the layout of batches into which images can be decoded directly; None if single items must be made."""
        pipeline = self.dataset._pipeline_with(transform)
        sizes, parts = [crop.size for crop in pipeline.crops if crop.size is not None], pipeline.parts
        fixed = sizes and len(sizes) == len(pipeline.crops) and pipeline.leaves_pixels
        if not fixed or (parts is not None and parts.is_target):
            return None
        with_images = parts is None or "image" in parts.names
        if with_images and pipeline.mode != "RGB":
            return None
        views = [view_part(number, size) for number, size in enumerate(sizes)]
        images = (views if pipeline.views else [BatchPart(IMAGES, sizes[0], 3)]) if with_images else []
        masks = [BatchPart(name, sizes[0], 1, dtype) for name, dtype in self.dataset._mask_dtypes.items()]
        return Layout((*images, *masks)) if images or masks else None

    def labels(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of a batch after `target_transform`, which may return any objects."""
        labels, transform = self.dataset._view.labels_of(indices), self.dataset.target_transform
        return labels if transform is None else [transform(label) for label in labels.tolist()]

    def choose(self, indices: Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of samples: (N,) of CROP, or (N, V) for V views; see `BatchDecoder.choose_crops`."""
        rows, keys = self.dataset._view.rows_and_keys(indices)
        return self._crops(self.dataset._pipeline, rows, epoch, seed, keys)

    def begin(
        self, indices: Ints, choices: Crops, batch: int, step: int, numbers: NumberFormat | Lookup | None = None
    ) -> Begin:
        dataset = self.dataset
        if dataset._fields is not None:
            return self._begin_fields(indices, choices, step, numbers)
        prepared = dataset._decoder.prepare(dataset._view.rows_in_turns(indices), choices, batch, step, numbers)

        def begin(some: slice, memory: Memory) -> Callable[[slice], list[Values]]:
            return _without_values(prepared(some, images_in(memory)))

        return begin

    def _begin_fields(self, indices: Ints, choices: Crops, step: int, numbers: NumberFormat | Lookup | None) -> Begin:
        """Return the function `begin` for items that are dicts; it prepares each batch only when it is called."""
        dataset, pipeline, fields = self.dataset, self.dataset._pipeline, self.dataset._fields
        parts = pipeline.parts
        assert fields is not None
        assert parts is not None

        def begin(some: slice, memory: Memory) -> Callable[[slice], list[Values]]:
            own, crops = indices[some], choices[some]
            rows, images, decode_images = dataset._view.rows_in_turns(own), images_in(memory), None
            if images is not None:
                prepared = dataset._decoder.prepare(rows, crops, len(rows), step, numbers)
                decode_images = prepared(slice(None), images)

            def decode(part: slice) -> list[Values]:
                if decode_images is not None:
                    decode_images(part)
                targets = self.labels(own[part]) if "label" in parts.names else [None] * len(rows[part])
                labels = targets.tolist() if isinstance(targets, np.ndarray) else targets
                share = {name: pixels[part] for name, pixels in memory.items()}
                return fields.samples(rows[part], labels, *pipeline.followed(crops[part]), share)

            return decode

        return begin

    def items(
        self, indices: Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        rows, keys = self.dataset._view.rows_and_keys(indices)
        labels = self.dataset._view.labels_of(np.asarray(indices, np.int64))
        before = seeder(seed, epoch, keys) if seeding else None
        return self._made(rows, keys, labels, epoch, seed, self.dataset._pipeline_with(transform), before)

    def own_items(self, indices: Sequence[int] | Ints, seed: int | None) -> list[Any]:
        """Return items; crops depend on `seed` and the epoch, or are drawn from torch's generator without a seed."""
        dataset, pipeline, places = self.dataset, self.dataset._pipeline, places_in(indices, len(self))
        rows = dataset._view.rows_in_turns(places)
        if seed is not None and pipeline.randoms:
            dataset._epochs.read(rows)
        try:
            return self._made(rows, rows, dataset._view.labels_of(places), dataset._epochs.epoch, seed, pipeline)
        except BAD:
            if dataset._replaced is None:
                raise
        return self.replaced_items(places, seed)

    def replaced_items(self, indices: Ints, seed: int | None) -> list[Any]:
        """Return items of samples like `own_items`, but replace samples that cannot be read."""
        view, epoch = self.dataset._view, self.dataset._epochs.epoch
        chosen = self._readable(indices, epoch, seed)
        rows, keys = view.rows_and_keys(chosen)
        keys = np.where(chosen == indices, rows, keys)
        return self._made(rows, keys, view.labels_of(chosen), epoch, seed, self.dataset._pipeline)

    def replacements(self, indices: Ints, epoch: int, seed: int) -> Ints | None:
        return None if self.dataset._replaced is None else self._readable(indices, epoch, seed)

    def require_readable(self, index: int, epoch: int, seed: int | None) -> None:
        """Make an item without transforms; raises one of the errors in `BAD` if the sample cannot be read."""
        view, indices = self.dataset._view, np.array([index])
        rows, keys = view.rows_and_keys(indices)
        self._made(rows, keys, view.labels_of(indices), epoch, seed, self.dataset._pipeline.without_transforms())

    def fetching(self, block: int) -> Fetching | None:
        reader = self.dataset.reader
        if not reader.remote:
            return None
        sizes, kept = reader.table.size[:: len(reader) // _SIZES + 1], reader.place.kept
        mean = int(sizes.mean()) + 1 if len(sizes) else 1
        together = max(1, min(_REQUEST // mean, block)) if kept else 1
        return Fetching(together, (_AHEAD if kept else _AHEAD_IN_MEMORY) // mean)

    def ahead(self, indices: Ints) -> None:
        if self.dataset.reader.remote:
            self._request(self.dataset._view.rows_in_turns(indices), urgent=False)

    def batch_layout(self) -> Layout:
        pipeline, settings = self.dataset._pipeline, self.dataset._settings
        if pipeline.parts is not None:
            raise ItemsError("the items have fields")
        if pipeline.lookup is not None and pipeline.row_size is not None:
            images = Layout((BatchPart(IMAGES, pipeline.row_size, 3),))
            return images.with_numbers(pipeline.lookup, beside=False)
        layout = self.layout()
        if layout is None:
            unfused = not settings.fuse and settings.transform is not None
            hint = "; fuse=True lets packer do what it begins with" if unfused else ""
            raise ItemsError(
                pipeline.left + hint if pipeline.mode == "RGB" else f"the images have mode={pipeline.mode!r}"
            )
        return layout

    @property
    def threads(self) -> int:
        return self.dataset.threads

    @property
    def seeded(self) -> bool:
        return self.dataset.seed is not None

    @property
    def crop_epoch(self) -> tuple[int, int]:
        return self.dataset._epochs.epoch, self.dataset._epochs.moves

    def _readable(self, indices: Ints, epoch: int, seed: int | None) -> Ints:
        replaced = self.dataset._replaced
        assert replaced is not None
        return good(indices, len(self), lambda index: self.require_readable(index, epoch, seed), replaced)

    def _made(  # noqa: PLR0917
        self,
        rows: Ints,
        keys: Ints,
        labels: Labels,
        epoch: int,
        seed: int | None,
        pipeline: Pipeline,
        before: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Return the items of rows of the pack. If a seed is given, crops depend on seed, epoch and `keys`."""
        dataset = self.dataset
        if dataset.reader.remote:
            self._request(np.sort(rows), urgent=True)

        def choose(places: range) -> Crops:
            part = slice_of(places)
            return self._crops(pipeline, rows[part], epoch, seed, keys[part])

        make = item_maker(
            dataset._decoder,
            rows,
            labels.tolist(),
            pipeline,
            choose,
            dataset._fields,
            seeded=seed is not None,
            before=before,
        )
        return dataset._pool.items(dataset.threads, make, range(len(rows)))

    def _crops(self, pipeline: Pipeline, rows: Ints, epoch: int, seed: int | None, keys: Ints) -> Crops:
        decoder = self.dataset._decoder
        if pipeline.views:
            return decoder.choose_views(pipeline.views, rows, epoch, seed, keys)
        return decoder.choose_crops(pipeline.crop or Compose([]), rows, epoch, seed, keys, pipeline.augment)

    def _request(self, rows: Ints, *, urgent: bool) -> None:
        """Request all bytes of samples together; a sample without separate fields is fetched when it is read."""
        reader, parts = self.dataset.reader, self.dataset._settings.parts
        names = None if parts is None else parts.names
        blobs = [name for name in names or () if name in reader.fields and reader.fields[name].is_blob]
        if len(rows) > 1 or blobs or not urgent:
            reader.ahead(rows, names is None or "image" in names, blobs, urgent=urgent)


def _without_values(decode: Callable[[slice], None]) -> Callable[[slice], list[Values]]:
    def decode_some(part: slice) -> list[Values]:
        decode(part)
        return []

    return decode_some
