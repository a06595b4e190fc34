"""A pack as a PyTorch dataset: a drop-in replacement for torchvision's ImageFolder.

What a Loader asks of a dataset: crops, pixels, labels and items of a batch.

The methods are those of `packer._datasets.protocol.Readable`.

Datasets that are torchvision's VisionDatasets as well, without importing torchvision for those who do not use it.

The epoch of a dataset's crops, and whether somebody forgets to move it on: in memory that all workers share.

What the images of a pack have that a dataset does not show: more than 8 bits a channel, more bands than RGB.

What a dataset does to the images of its samples; some settings may be changed between two passes.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._datasets import staging
from packer._datasets.batch_decoder import BatchDecoder, Begun, Lookup
from packer._datasets.fields import (
    FieldDecoder,
    Parts,
    Values,
    in_form,
    mode_of_images,
    parts_of,
    require_used,
    target_parts,
    tensor_dtype,
)
from packer._datasets.items import BAD, Pool, Replaced, good, item_maker, replaced_from, slice_of
from packer._datasets.memory import IMAGES, Layout, Part, images_in, view_part
from packer._datasets.preparation import (
    OUTPUTS,
    Preparation,
    Transform,
    followed,
    preparation_of,
    require_callable,
    seeder,
)
from packer._datasets.protocol import ItemsError
from packer._datasets.sample_view import Selection, joint, places_in, require_known_loader, row_of, valid_rows
from packer._formats import FORMATS, Reader, open_pack
from packer._formats.index import IndexReader
from packer._images.decode import fast_decoder, warn_of_slow_decoding
from packer._images.geometry import CROP, Box, Crops
from packer._images.numbers import Numbers
from packer._images.probe import CLIPPED, bands_not_shown
from packer._manifest import Manifest
from packer._storage.place import choose_reading
from packer._storage.system import require_count
from packer._table import Ints, Labels
from packer.augment import Augmentation, View
from packer.augment._affine import interpolations
from packer.augment._base import chain_of
from packer.crops import Compose, Crop
from packer.crops._fuse import Snapshot
from packer.errors import NotAPackError, printable, warn
from packer.samplers._random import seed_of

__all__ = [
    "Batched",
    "Epochs",
    "ImageDataset",
    "LostNumbersWarning",
    "Prepared",
    "as_vision",
    "own_class",
    "remark",
    "warn_of_lost_numbers",
]

_WATCHED = 1 << 12  # samples, spread over the pack, whose reading is remembered
_FEW = 16  # samples of which nobody can tell passes from single looks
_EPOCH, _READ, _AGAIN, _WARNED, _MOVES, _NUMBERS = range(6)


class Epochs:
    """The epoch of the crops, and what was read in it. DataLoader workers see what `move_on` says.

    Parameters
    ----------
    length : int
        Number of samples of the pack.
    pack : str
        The pack's path, which the warning names.
    """

    def __init__(self, length: int, pack: str) -> None:
        self._pack = pack
        self._step = max(-(-length // _WATCHED), 1)
        count = -(-length // self._step)
        memory = torch.zeros(8 * _NUMBERS + count, dtype=torch.uint8)
        self._look_at(memory.share_memory_())  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {"_pack": self._pack, "_step": self._step, "_memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look_at(self._memory.share_memory_())  # type: ignore[no-untyped-call]

    def _look_at(self, memory: torch.Tensor) -> None:
        """Take memory that is shared, in which everything lies."""
        self._memory, numbers = memory, memory.numpy()
        self._numbers: npt.NDArray[np.int64] = numbers[: 8 * _NUMBERS].view(np.int64)
        self._seen: npt.NDArray[np.uint8] = numbers[8 * _NUMBERS :]

    @property
    def epoch(self) -> int:
        return int(self._numbers[_EPOCH])

    @property
    def moves(self) -> int:
        """How often an epoch was said."""
        return int(self._numbers[_MOVES])

    def move_on(self, epoch: int) -> None:
        """Let the crops be those of `epoch`."""
        moves = self.moves + 1
        self._seen[:] = 0
        self._numbers[:] = 0
        self._numbers[_EPOCH], self._numbers[_MOVES] = operator.index(epoch), moves

    def read(self, rows: Ints) -> None:
        """Remember that samples get the crops of this epoch; warn once where these are crops of a pass before.

        The memory says which of the watched samples were read in this epoch. Where nearly all samples that come were
        read before, this is a second pass. Two processes that count at once may lose a count, and warn a little later.
        """
        watched = rows[rows % self._step == 0] // self._step
        seen, numbers = self._seen, self._numbers
        again = int(np.count_nonzero(seen[watched]))
        seen[watched] = 1
        numbers[_AGAIN] += again
        numbers[_READ] += len(watched) - again
        enough = numbers[_READ] >= min(_FEW, len(seen)) and 4 * numbers[_AGAIN] > 3 * numbers[_READ]
        if enough and not numbers[_WARNED]:
            numbers[_WARNED] = 1
            warn(
                f"{self._pack}: the crops of epoch {self.epoch} are read a second time, the same as before, as the "
                "dataset has a seed=: call dataset.set_epoch(epoch) before each pass over it, or leave out seed="
            )


class Prepared(Selection):
    """Samples of a pack, and the steps from each to an item."""

    _crop: Crop | None
    _augment: Augmentation | None
    _views: tuple[View, ...] | None
    _output: str | None
    _fuse: bool
    _library: str
    _scaled: bool
    _transform: Transform
    _target_transform: Transform
    _transforms: Callable[..., Any] | None
    _parts: Parts | None
    _mode: str

    @property
    def transform(self) -> Transform:
        """What is applied to each image; another transform may be set between two passes."""
        return self._transform

    @transform.setter
    def transform(self, transform: Transform) -> None:
        require_callable("transform", transform)
        self._require_one_kind(transform)
        self._transform = transform
        self._forget_preparation()

    @property
    def transforms(self) -> Any:
        """What is applied to image and label together: as given, or `transform` and `target_transform` joined."""
        return self._transforms or joint(self._transform, self.target_transform)

    @property
    def output(self) -> str:
        """The form of an image, which was said when the dataset was opened, or follows from the transform."""
        return self._preparation.output

    @property
    def target_transform(self) -> Transform:
        """What is applied to each label; another transform may be set between two passes."""
        return self._target_transform

    @target_transform.setter
    def target_transform(self, target_transform: Transform) -> None:
        require_callable("target_transform", target_transform)
        self._require_one_kind(target_transform)
        self._target_transform = target_transform
        self._forget_preparation()

    @property
    def decoder(self) -> str:
        """Which library decodes ordinary JPEGs, as the dataset was opened."""
        return self._library

    @property
    def scaled_decode(self) -> bool:
        """Whether the decoder may halve images, as the dataset was opened."""
        return self._scaled

    @property
    def crop(self) -> Crop | None:
        """Which part of each image is wanted; another crop may be set between two passes."""
        return self._crop

    @crop.setter
    def crop(self, crop: Crop | Sequence[Crop] | None) -> None:
        if isinstance(crop, (list, tuple)):
            crop = Compose(crop)
        if crop is not None and not isinstance(crop, Crop):
            raise TypeError(
                f"crop is one of packer's crops, such as packer.RandomResizedCrop(224), not {crop!r}. To take "
                "the crop of a transform, say packer.crops.split(transform)[0], or transform= with fuse=True"
            )
        if crop is not None and self._fuse:
            raise ValueError("fuse=True takes the crop out of transform=, so it goes without crop=: say one of them")
        if crop is not None and self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no crop is made")
        self._require_no_views("crop", crop)
        self._crop = crop
        self._forget_preparation()

    @property
    def augment(self) -> Augmentation | None:
        """What is done to the pixels of each crop; another augmentation may be set between two passes."""
        return self._augment

    @augment.setter
    def augment(self, augment: Augmentation | Sequence[Augmentation] | None) -> None:
        self._require_no_views("augment", augment)
        self._augment = None if augment is None else self._usable(augment)
        self._forget_preparation()

    @property
    def views(self) -> tuple[View, ...] | None:
        """What is made of each image, where that are several images; others may be set between two passes."""
        return self._views

    @views.setter
    def views(self, views: Sequence[View] | None) -> None:
        self._views = None if views is None else self._usable_views(views)
        self._forget_preparation()

    def _require_no_views(self, name: str, value: object) -> None:
        if value is not None and self._views is not None:
            raise ValueError(f"each of views= has a crop and an augmentation of its own, so they go without {name}=")

    def _usable_views(self, views: Sequence[View]) -> tuple[View, ...]:
        """Return views of this dataset's images, or say why there can be none."""
        if not isinstance(views, (list, tuple)) or not views or not all(isinstance(view, View) for view in views):
            raise TypeError(
                f"views is a list of views, such as [packer.View(packer.RandomResizedCrop(224))] * 2, not {views!r}"
            )
        others = {"crop=": self._crop, "augment=": self._augment, "fuse=True": self._fuse or None}
        for name in (name for name, value in others.items() if value is not None):
            raise ValueError(f"each of views= has a crop and an augmentation of its own, so they go without {name}")
        if self._transforms is not None:
            raise ValueError("transforms= takes one image, and views= make several: transform= is applied to each view")
        if self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no views are made")
        if self._parts is not None and self._parts.cropped:
            fields = ", ".join(self._parts.cropped)
            raise ValueError(
                f"views= make several images of a sample, and {fields} would be that of one: leave it out of fields="
            )
        for view in views:
            if view.augment is not None:
                self._usable(view.augment)
            if self._parts is not None:
                self._parts.require_step(view.crop)
        return tuple(views)

    def _usable(self, augment: Augmentation | Sequence[Augmentation]) -> Augmentation:
        """Return an augmentation of this dataset's images, or say why there can be none."""
        chain = chain_of(augment)
        if self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, which are not augmented")
        if self._mode != "RGB":
            raise ValueError(f"augment= changes images in RGB, and goes without mode={self._mode!r}")
        others = self._parts.further_images if self._parts is not None else ()
        if others and "bilinear" in interpolations(chain):
            raise ValueError(
                f"augment= moves further images to the nearest pixel: with {', '.join(others)} say "
                "interpolation='nearest', or leave these out of fields="
            )
        return chain

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform: exactly those pixels of the whole image.

        In a tiled JPEG only the tiles that the rectangle touches are decoded, so a small rectangle of a huge image is
        as cheap as a small image.

        Parameters
        ----------
        top, left, height, width : int
            In pixels; the rectangle lies inside of the image.

        Returns
        -------
        (C, height, width) tensor, (height, width, C) array or PIL image
            As `output` and `mode` say.

        Raises
        ------
        ValueError
            If the rectangle is empty or does not lie inside of the image.
        IndexError, CorruptPackError, ImageError
            As for ``dataset[index]``.
        """
        output = self.output
        if output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no region is read")
        (row,) = self._rows_of([index]).tolist()
        top, left, height, width = map(operator.index, (top, left, height, width))
        full_height, full_width = int(self.reader.table.height[row]), int(self.reader.table.width[row])
        if not (height >= 1 <= width and 0 <= top <= full_height - height and 0 <= left <= full_width - width):
            raise ValueError(
                f"a rectangle of {width} x {height} pixels from ({left}, {top}) does not lie inside of sample {index}, "
                f"which has {full_width} x {full_height}"
            )
        box = Box.of((top, left, height, width), (height, width))
        (pixels,) = self._decoder.cut(np.array([row]), np.array([box], CROP))
        return in_form(output, pixels)

    def loader(self, path: str) -> Image.Image:
        """Return the image of the sample whose name is `path`, as ImageFolder's loader does: without a transform.

        Raises
        ------
        FileNotFoundError
            If no sample of the pack has the name.
        CorruptPackError, ImageError
            If the sample is damaged.
        """
        row = row_of(self.reader.names, path)
        image: Image.Image = in_form("pil", self._decoder.decode(row, self.reader.read(row)))
        return image

    @functools.cached_property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.reader, self._library, self._scaled, self._mode)

    @functools.cached_property
    def _fields(self) -> FieldDecoder | None:
        return None if self._parts is None else FieldDecoder(self.reader, self._parts, self._library)

    @property
    def _preparation(self) -> Preparation:
        return self._prepared_as("_prepared", self._transform)

    @property
    def randoms(self) -> int:
        """How many random numbers the crop of an image needs, and its augmentation."""
        return self._preparation.randoms

    def _in_place(self, transform: Transform) -> Layout | None:
        """Return which pixels can be decoded into their places in a batch; None where items are made."""
        preparation = self._prepared_with(transform)
        sizes = [crop.size for crop in preparation.crops if crop.size is not None]
        fixed = sizes and len(sizes) == len(preparation.crops) and preparation.leaves_pixels
        if not fixed or (self._parts is not None and self._parts.is_target):
            return None
        wanted = self._parts is None or "image" in self._parts.names
        if wanted and self._mode != "RGB":
            return None
        views = [view_part(number, size) for number, size in enumerate(sizes)]
        images = (views if preparation.views else [Part(IMAGES, sizes[0], 3)]) if wanted else []
        parts = (*images, *(Part(name, sizes[0], 1, dtype) for name, dtype in self._mask_dtypes.items()))
        return Layout(parts) if parts else None

    def _in_batches(self) -> Layout:
        """Return the layout of batches of the items' images; ItemsError where each item is made by itself."""
        preparation = self._preparation
        if self._parts is not None:
            raise ItemsError("the items have fields")
        if preparation.lookup is not None and preparation.row_size is not None:
            images = Layout((Part(IMAGES, preparation.row_size, 3),))
            return images.with_numbers(preparation.lookup, beside=False)
        layout = self._in_place(None)
        if layout is None:
            hint = "" if self._fuse or self._transform is None else "; fuse=True lets packer do what it begins with"
            raise ItemsError(preparation.left + hint if self._mode == "RGB" else f"the images have mode={self._mode!r}")
        return layout

    @functools.cached_property
    def _mask_dtypes(self) -> dict[str, str]:
        if self._parts is None or self._fields is None:
            return {}
        return {name: tensor_dtype(self._fields.dtype_of(name)) for name in self._parts.masks}

    def _prepared_with(self, transform: Transform) -> Preparation:
        """Return the steps of an image where a Loader's transform, if any, takes the place of the dataset's."""
        if transform is None:
            return self._preparation
        return self._prepared_as("_other_preparation", transform)

    def _prepared_as(self, name: str, transform: Transform) -> Preparation:
        """Return the steps with a transform, made anew where people changed its settings in place."""
        known: tuple[Transform, Snapshot | None, Preparation] | None = self.__dict__.get(name)
        fused = self._transforms if transform is None and self._parts is not None else transform
        if known is None or known[0] is not transform or not (known[1] is None or known[1].holds(fused)):
            snapshot = Snapshot(fused) if self._fuse and fused is not None else None
            known = self.__dict__[name] = transform, snapshot, self._planned(transform)
        return known[2]

    def _require_one_kind(self, transform: Transform) -> None:
        """Raise ValueError where a transform of images or of labels goes beside one of both."""
        if transform is not None and self._transforms is not None:
            raise ValueError("transforms= takes image and label together: it goes without transform= and its like")

    def _forget_preparation(self) -> None:
        for made in ("_prepared", "_other_preparation"):
            self.__dict__.pop(made, None)

    def _planned(self, transform: Transform) -> Preparation:
        transforms = self._transforms if transform is self._transform else None
        made = preparation_of(
            self._crop,
            self._output,
            transform,
            self.target_transform,
            transforms,
            self._parts,
            self._augment,
            self._views or (),
            fuse=self._fuse,
        )
        if self._parts is not None and transform is not None and "image" not in self._parts.names:
            raise ValueError("transform= is applied to the image, which fields= does not name: say transforms=")
        if self._parts is not None and made.crop is not None:
            self._parts.require_step(made.crop)
        if self._parts is not None and made.augment is not None and interpolations(made.augment):
            self._parts.require_step(made.augment)
        return made


_REQUEST = 3 << 17  # bytes that are fetched together, where neighbours are wanted soon
_AHEAD, _AHEAD_IN_MEMORY = 1 << 29, 1 << 27  # bytes that are asked for ahead: on the disk of a cache, or in memory
_LOOKED_AT = 1000  # samples whose sizes stand for all


class Batched(Prepared):
    """Samples of a pack, many at a time."""

    threads: int
    seed: int | None
    _epochs: Epochs
    _pool: Pool
    _replaced: Replaced | None

    @property
    def replaced(self) -> list[str]:
        """What is wrong with the samples that were replaced in this process, as ``on_error="replace"`` asks."""
        return [] if self._replaced is None else self._replaced.reasons

    def _own_items(self, indices: Sequence[int] | Ints, seed: int | None) -> list[Any]:
        """Return items with the crops that a seed and the dataset's epoch say, or drawn from torch's generator."""
        preparation, wanted = self._preparation, places_in(indices, len(self))
        rows = self._rows_in_turns(wanted)
        if seed is not None and preparation.randoms:
            self._epochs.read(rows)
        epoch = self._epochs.epoch
        try:
            return self._made(rows, rows, self._labels_of(wanted), epoch, seed, preparation)
        except BAD:
            if self._replaced is None:
                raise
        chosen = good(wanted, len(self), lambda index: self._require_good(index, epoch, seed), self._replaced)
        rows, keys = self._rows_and_keys(chosen)
        keys = np.where(chosen == wanted, rows, keys)
        return self._made(rows, keys, self._labels_of(chosen), epoch, seed, preparation)

    @property
    def _remote(self) -> bool:
        return self.reader.remote

    def _together(self, block: int) -> tuple[int, int]:
        sizes = self.reader.table.size[:: len(self.reader) // _LOOKED_AT + 1]
        mean = int(sizes.mean()) + 1 if len(sizes) else 1
        kept = self.reader.place.kept
        return max(1, min(_REQUEST // mean, block)) if kept else 1, (_AHEAD if kept else _AHEAD_IN_MEMORY) // mean

    def _ahead(self, indices: Ints) -> None:
        if self._remote:
            self._order(self._rows_in_turns(indices), urgent=False)

    def _order(self, rows: Ints, *, urgent: bool) -> None:
        """Have all that belongs to samples fetched together; a sample of one part is ordered when it is read."""
        names = None if self._parts is None else self._parts.names
        blobs = [name for name in names or () if name in self.reader.fields and self.reader.fields[name].is_blob]
        if len(rows) > 1 or blobs or not urgent:
            self.reader.ahead(rows, names is None or "image" in names, blobs, urgent=urgent)

    def _made(  # noqa: PLR0917
        self,
        rows: Ints,
        keys: Ints,
        labels: Labels,
        epoch: int,
        seed: int | None,
        preparation: Preparation,
        before: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Return items of places in the pack. With a seed, seed, epoch and `keys` decide on the crops."""
        if self._remote:
            self._order(np.sort(rows), urgent=True)

        def choose(places: range) -> Crops:
            part = slice_of(places)
            return self._chosen(preparation, rows[part], epoch, seed, keys[part])

        seeded = seed is not None
        make = item_maker(
            self._decoder, rows, labels.tolist(), preparation, choose, self._fields, seeded=seeded, before=before
        )
        return self._pool.items(self.threads, make, range(len(rows)))

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        """Return items, with the crops of `epoch` and `seed`; `transform` replaces the dataset's.

        With `seeding` what the transforms draw is a function of `epoch`, `seed` and the sample as well.
        """
        rows, keys = self._rows_and_keys(indices)
        labels = self._labels_of(np.asarray(indices, np.int64))
        before = seeder(seed, epoch, keys) if seeding else None
        return self._made(rows, keys, labels, epoch, seed, self._prepared_with(transform), before)

    def _require_good(self, index: int, epoch: int, seed: int | None) -> None:
        """Make an item without its transforms; one of `BAD` is raised where the sample cannot be read."""
        rows, keys = self._rows_and_keys([index])
        plain = self._preparation._replace(lookup=None, transform=None, target_transform=None, transforms=None)
        self._made(rows, keys, self._labels_of(np.array([index])), epoch, seed, plain)

    @property
    def _threads(self) -> int:
        return self.threads

    @property
    def _seeded(self) -> bool:
        return self.seed is not None

    @property
    def _crop_epoch(self) -> tuple[int, int]:
        return self._epochs.epoch, self._epochs.moves

    def _transforms_items(self, transform: Transform) -> bool:
        """Tell whether something of other people's is applied to what packer made."""
        made = self._prepared_with(transform)
        return any(step is not None for step in (made.transform, made.target_transform, made.transforms))

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of a batch, (N,) of CROP, or (N, V) of V views; as `BatchDecoder` does."""
        rows, keys = self._rows_and_keys(indices)
        return self._chosen(self._preparation, rows, epoch, seed, keys)

    def _chosen(self, preparation: Preparation, rows: Ints, epoch: int, seed: int | None, keys: Ints) -> Crops:
        if preparation.views:
            return self._decoder.choose_views(preparation.views, rows, epoch, seed, keys)
        crop = preparation.crop or Compose([])
        return self._decoder.choose_crops(crop, rows, epoch, seed, keys, preparation.augment)

    def _begun(
        self,
        indices: Ints,
        crops: Crops,
        memory: Mapping[str, torch.Tensor | list[torch.Tensor]],
        step: int,
        numbers: Numbers | Lookup | None = None,
    ) -> Callable[[slice], list[Values]]:
        """Return what decodes slices of a batch into their places; as `BatchDecoder.begun`."""
        rows, images = self._rows_in_turns(indices), images_in(memory)
        decode = None
        if images is not None:
            decode = self._decoder.begun(rows, crops, len(rows), step, numbers)(slice(None), images)

        def make(some: slice) -> list[Values]:
            if decode is not None:
                decode(some)
            if self._fields is None:
                return []
            named = self._parts is not None and "label" in self._parts.names
            targets = self._targets_of(indices[some]) if named else [None] * len(rows[some])
            labels = targets.tolist() if isinstance(targets, np.ndarray) else targets
            followers = followed(crops[some], self._preparation)
            return self._fields.samples(rows[some], labels, *followers, {k: v[some] for k, v in memory.items()})

        return make

    def _begun_ahead(
        self, indices: Ints, crops: Crops, batch: int, step: int, numbers: Numbers | Lookup | None = None
    ) -> Begun | None:
        """Return what begins with batches, and decodes slices of them, as `BatchDecoder.begun`; None with fields."""
        if self._fields is not None:
            return None
        return self._decoder.begun(self._rows_in_turns(indices), crops, batch, step, numbers)

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of a batch, after `target_transform`, which may make anything of them."""
        labels = self._labels_of(indices)
        return labels if self.target_transform is None else [self.target_transform(label) for label in labels.tolist()]


def as_vision(kind: type) -> type:
    """Return a class that is also a `torchvision.datasets.VisionDataset` where torchvision has been imported.

    Whoever asks ``isinstance(dataset, VisionDataset)`` has imported torchvision; for others its import would cost as
    much time as that of torch.
    """
    vision = sys.modules.get("torchvision.datasets.vision")
    base = getattr(vision, "VisionDataset", None)  # missing while torchvision is being imported
    return kind if base is None or issubclass(kind, base) else _joined(kind, base)


def own_class(kind: type) -> type:
    """Return the class that `as_vision` was given: the one that pickle finds by its name."""
    return kind.__dict__.get("_own_class", kind)  # type: ignore[no-any-return]


@functools.cache
def _joined(kind: type, base: type) -> type:
    members: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__, "_own_class": kind}
    members["__qualname__"] = kind.__qualname__
    return type(kind.__name__, (kind, base), members)


class LostNumbersWarning(UserWarning):
    """Images have more bits or bands than a dataset shows."""


def warn_of_lost_numbers(reader: Reader, mode: str) -> None:
    """Warn where the findings of a pack name images that turn white or black in a mode, or lose bands."""
    told = remark(reader.manifest, mode)
    if told is not None:
        warn(
            f"{printable(reader.base if isinstance(reader, IndexReader) else reader.place.given)}: {told}",
            LostNumbersWarning,
        )


def remark(manifest: Manifest, mode: str) -> str | None:
    """Say what images of a pack have that a mode does not show; None where it shows all."""
    clipped = manifest.findings.get(CLIPPED, 0) if mode == "RGB" else 0
    bands = _with_more_bands(manifest.findings) if mode != "unchanged" else 0
    if manifest.codec != "keep":
        if not clipped:
            return None
        return (  # a packer stored them that did not refuse them yet
            f"{_images(clipped)} 16 bits or floats a pixel, stored as 8-bit RGB, white or black. Convert the files "
            "again, with --to-8-bit type or --to-8-bit file"
        )
    said = []
    if clipped:
        said.append(f"{_images(clipped)} 16 bits or floats a pixel, which turn white or black as 8-bit RGB")
    if bands:
        said.append(f"{_images(bands)} more bands (channels) than are shown")
    if not said:
        return None
    return f"{'; '.join(said)}, as with ImageFolder. mode='unchanged' gives the numbers as they are stored"


def _with_more_bands(findings: Mapping[str, int]) -> int:
    return sum(count for finding, count in findings.items() if bands_not_shown(finding))


def _images(count: int) -> str:
    return "1 image has" if count == 1 else f"{count:,} images have"


_MADE_AGAIN = {"class_to_idx", "_decoder", "_earlier", "_fields", "_mask_dtypes", "_prepared", "_other_preparation"}
_MADE_AGAIN |= {"_stored_labels", "_stored_names"}


class ImageDataset(Batched):
    """A drop-in for torchvision's ImageFolder; without a transform, an image is a uint8 tensor, not a PIL image.

    A map-style dataset of ``(image, label)``. A wrapper with transforms of its own for ``dataset[i][0]`` gets PIL
    images, as ImageFolder gives them, by ``output="pil"``.

    Parameters
    ----------
    root : path or URL
        The pack.
    transform, target_transform : callable, optional
        Applied to each image and to each label.
    loader : callable, optional
        One of torchvision's loaders, as ImageFolder takes it. It is not used: the images of a pack are no files.
    is_valid_file : callable, optional
        Asked with the name of every sample, a str, whether the sample belongs to the dataset.
    allow_empty : bool
        Whether `is_valid_file` may leave a class without samples; and, of a directory of images that is read where it
        lies, whether a class directory may have no image.
    transforms : callable, optional
        Applied to image and label together, instead of the two: ``image, label = transforms(image, label)``. With
        `fields`, applied to the dict, as torchvision's v2 transforms take it.
    fields : sequence of str or "all", optional
        What an item has: it is then a dict with these keys in this order, of the pack's fields and of ``image``,
        ``label``, ``name`` and ``index``, the sample's place in the pack. ``"all"`` is image, label and all fields. The
        guide says in which form each kind of field comes. A value that is not there is None.
    mode : {"RGB", "L", "unchanged"} or dict of str to these
        How images are decoded. ``"L"`` is grey; ``"unchanged"`` keeps grey, alpha, the indices of a palette and 16 bits
        (uint16). One mode is that of the sample's image; a dict says those of ``image`` and of fields. Fields of images
        are unchanged by default.
    per_box : sequence of str, or dict of str to sequence of str, optional
        The fields that have an entry for each box, and lose it where a crop leaves out the box; the keys of a dict are
        fields of boxes. Packs of annotations (``--coco``, ``--voc``, ``--yolo``, the Hub's ``objects``) tell by
        themselves. For other packs with a crop it has to be said if there are both boxes and fields that may be such.
    min_visible : float
        The least share of a box's area, 0 to 1, that a crop leaves; it leaves out other boxes, and those that are
        narrower or lower than a pixel.
    fill : dict of str to value, optional
        What stands in the place of a field's value that is not there. For a mask, it is a number that stands in all of
        the mask, and around the image where a crop is padded; else 0 stands there.
    target : {"coco"}, optional
        Items are image and target as torchvision's detectors take it, of the fields that ``packer convert --coco``
        makes.
    output : {"tensor", "numpy", "pil", "bytes"}, optional
        The form of an image, and what a transform gets; with ``numpy`` and ``bytes``, also of fields. By default a PIL
        image where there is a transform, as
        ImageFolder gives to it, or a tensor where there is none, or the transform is one of torchvision's that takes
        tensors only.

        * ``tensor``: (3, height, width) uint8 `torch.Tensor`, RGB, 0 to 255; its memory is laid out channels last.
        * ``numpy``: (height, width, 3) uint8 array, RGB, writable.
        * ``pil``: `PIL.Image.Image` of mode RGB, as ImageFolder gives it to its transform.
        * ``bytes``: the stored bytes, undecoded.
    crop : packer crop, optional
        Which part of each image is wanted, at which size, such as ``packer.RandomResizedCrop(224)``, or a list of crops
        one after the other. The part is chosen before decoding, so that the rest is not decoded.
    augment : packer augmentation or list of such, optional
        What is done to the pixels of each crop, such as ``[packer.augment.TrivialAugmentWide()]``; in C, by random
        numbers that are drawn as those of the crop are.
    views : sequence of packer.View, optional
        Several images of each, for self-supervised learning, instead of `crop` and `augment`: each view has its own. An
        item is ``((view, view, ...), label)``, and a batch ``[[batch of the first view, ...], labels]``. The sample is
        read and decoded once. A `transform` is applied to each view. With `fields`, none of them can be a place or
        pixels.
    fuse : bool
        Whether packer does by itself what `transform` begins with, or with `fields` what `transforms` begins with:
        crops, resizings, mirrorings and paddings of torchvision's or timm's, and after these, of `transform`,
        conversions such as ToTensor and Normalize. The same random numbers are drawn. Resized pixels are those of
        torchvision on tensors, hardly ever more than a level from those on PIL images. ``repr(dataset)`` shows what
        runs where.
    seed : int, optional
        Makes a random crop and its augmentation a function of seed, epoch (`set_epoch`) and sample, whoever reads it,
        and however often. Without a seed they are drawn from torch's generator, others each time an image is read.
    check : {"always", "never"}
        Whether every read is compared with the sample's checksum. With ``"never"`` no more rows of ``raw`` pixels are
        read than the crop needs.
    decoder : {"auto", "turbojpeg", "pyturbojpeg", "opencv", "pillow"}
        Which library decodes ordinary JPEGs. With ``"auto"`` packer's own decoder comes first, which is faster. The
        choice changes the speed; the pixels are Pillow's with each.
    scaled_decode : bool
        Whether the decoder may halve an image whose crop is at least twice as large as wanted. Faster; the pixels
        differ a little from those of a whole decoding.
    threads : int
        How many threads decode a batch that a DataLoader asks for.
    cache : {"ram"}, optional
        Read the whole pack into memory that all workers and ranks of a node share, and keep it there for as long as
        the dataset lives.
    stage : path, optional
        Copy the pack to this directory first, once a node, and read it there; `packer.stage` does the same.
    cache_dir : path, optional
        Where a pack at a URL keeps what was fetched of it, for all processes of the node; ``""`` is memory alone. By
        default the variable PACKER_CACHE_DIR says it, or it is ``~/.cache/packer``.
    cache_size : int or str, optional
        How many bytes are kept there at most, such as ``"200 GB"``; by default PACKER_CACHE_SIZE, or a share of what is
        free.
    timeout : float, optional
        Seconds until waiting for bytes of a URL ends with an error; by default PACKER_TIMEOUT, or 60.
    on_error : {"raise", "replace"}
        What becomes of a sample that cannot be read: an error; or the next one that can be read takes its place, the
        same in every run and on every rank, with a warning that names the bad one. `replaced` lists these.
    max_bad : float
        The share of the samples, 0 to 1, that are replaced at most in a process, and at least one unless it is 0; more
        are an error.

    Attributes
    ----------
    classes : list of str
    class_to_idx : dict of str to int
    samples, imgs : sequence of (str, int)
        Name and label of every sample. The names are relative to the converted directory.
    targets : (N,) int64 or float64 array
        The labels: class ids, -1 for an unlabeled sample; or numbers, where the pack has no classes. Adding those of
        another dataset, or a list, concatenates, as of ImageFolder's lists. Other labels, as many, may be assigned.
    columns : mapping of str to (N,) array
        The fields that are numbers, ids or texts, and packer's own columns, read-only.
    reader : packer.Reader
        The pack itself: its manifest, its table, its bytes.
    root : str
        The path of the pack.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the pack cannot be opened. `targets` and `samples` raise CorruptPackError where the table does not fit its
        checksums.
    TypeError, ValueError
        If a setting is of the wrong kind or out of range. It is refused before anything is copied or read whole.
    FileNotFoundError
        If `is_valid_file` leaves a class without samples.

    Notes
    -----
    Works with any start method of DataLoader workers, with and without `persistent_workers`, and with several
    datasets on one pack. A pickled dataset holds its path and its settings; it opens the pack where it is unpickled.
    Where torchvision has been imported, the dataset is a `torchvision.datasets.VisionDataset`.
    """

    _format: str | None = None  # any

    def __init__(  # noqa: PLR0917
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        transforms: Callable[..., Any] | None = None,
        fields: str | Iterable[str] | None = None,
        mode: str | Mapping[str, str] = "RGB",
        per_box: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
        min_visible: float = 0.0,
        fill: Mapping[str, Any] | None = None,
        target: str | None = None,
        output: str | None = None,
        crop: Crop | Sequence[Crop] | None = None,
        augment: Augmentation | Sequence[Augmentation] | None = None,
        views: Sequence[View] | None = None,
        fuse: bool = False,
        seed: int | None = None,
        check: str = "always",
        decoder: str = "auto",
        scaled_decode: bool = False,
        threads: int = 1,
        cache: str | None = None,
        stage: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        timeout: float | None = None,
        on_error: str = "raise",
        max_bad: float = 0.01,
    ) -> None:
        self.__class__ = as_vision(type(self))
        if output is not None and output not in OUTPUTS:
            raise ValueError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        if cache not in (None, "ram"):
            raise ValueError(f"cache is None or 'ram', not {cache!r}")
        choose_reading([root], cache_dir, cache_size, timeout)
        require_count("threads", threads)
        fast_decoder(decoder)  # refuses an unknown or missing one here rather than in a worker
        require_known_loader(loader)
        if type(self).find_classes is not ImageDataset.find_classes:
            raise TypeError("find_classes of a pack cannot be overridden: its classes were chosen by `packer convert`")
        require_callable("transforms", transforms)
        self._output, self._fuse, self._transforms = output, fuse, transforms
        self._mode, self._parts = mode_of_images(mode), None
        if fuse and self._mode != "RGB":
            raise ValueError(f"fuse=True is for images in RGB, and goes without mode={mode!r}")
        require_used(fields, target, mode, per_box, fill, min_visible)
        self.transform, self.target_transform = transform, target_transform
        self._library = decoder
        self._scaled = scaled_decode
        self._augment, self._views, self.crop = None, None, crop
        self.seed = None if seed is None else seed_of(seed)
        self.threads = threads
        self._pool, self._replaced = Pool(), replaced_from(on_error, max_bad)
        self._whole: ImageDataset | None = None  # of which this dataset is a selection
        self.reader: Reader = open_pack(root, check=check)
        self._require_format()
        if target is not None:
            self._parts = target_parts(self.reader.fields, target, min_visible, output, self._blob_sizes)
        elif fields is not None:
            self._parts = parts_of(
                self.reader.fields, fields, mode, per_box, fill, min_visible, output, self._blob_sizes
            )
        self.augment, self.views = augment, views
        _ = self._preparation  # says at once where fuse= changes nothing
        if stage is not None:
            self.reader.close()
            root = staging.stage(root, stage)
            self.reader = open_pack(root, check=check)
        self._epochs = Epochs(len(self.reader), printable(self.reader.place.given))
        self._kept = staging.keep(root) if cache == "ram" else staging.Kept()
        if is_valid_file is not None:
            self._rows = valid_rows(self.samples, self.classes, is_valid_file, allow_empty)
        if decoder == "auto" and output != "bytes":
            warn_of_slow_decoding()
        if output != "bytes" and (self._parts is None or "image" in self._parts.names):
            warn_of_lost_numbers(self.reader, self._mode)

    def _require_format(self) -> None:
        """Raise NotAPackError where the pack is of another format than this class reads."""
        format = self.reader.manifest.format
        if self._format not in (None, format):
            self.reader.close()
            dataset = FORMATS[format].dataset if format in FORMATS else "open_dataset"
            raise NotAPackError(f"{printable(self.reader.path)}: a pack of the format {format}; read it with {dataset}")

    def _blob_sizes(self, field: str) -> npt.NDArray[np.int64]:
        return np.asarray(self.reader.table.more[f"field.{field}.size"])

    def close(self) -> None:
        """Close the pack's files, end the threads, and unlock what ``cache="ram"`` locked. Nothing is read after that.

        What was read stays valid, and so do `classes` and `targets`. Workers that have the dataset keep their own. A
        selection closes nothing: the dataset that it was selected from does.
        """
        if self._whole is None:
            self._pool.close()
            self._kept.close()
            self.reader.close()

    def __enter__(self) -> ImageDataset:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getitem__(self, index: int | slice) -> Any:
        """Return an item; for a slice, a dataset of these samples, as `select` does.

        Raises
        ------
        IndexError
            If there is no such sample. Negative indices count from the end.
        CorruptPackError, ImageError
            If the sample is damaged.
        """
        if isinstance(index, slice):
            return self.select(range(*index.indices(len(self))))
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(f"an index is an integer, not {index!r}") from None
        return self._own_items([place], self.seed)[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a batch of items, in the order asked for; DataLoader calls this."""
        if type(self).__getitem__ is not ImageDataset.__getitem__:  # of a class that adds to the items
            return [self[index] for index in indices]
        return self._own_items(indices, self.seed)

    def _alike(self) -> ImageDataset:
        """Return a dataset of the same samples and settings, on the same open pack, whose settings may be changed."""
        alike: ImageDataset = object.__new__(type(self))
        alike.__dict__.update(self._settings())
        alike._whole = self._whole or self
        return alike

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the crops that `seed` makes, also in DataLoader workers that run already."""
        self._epochs.move_on(epoch)

    def _settings(self) -> dict[str, Any]:
        """Return the attributes without what is made again when it is asked for."""
        return {name: value for name, value in self.__dict__.items() if name not in _MADE_AGAIN}

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_anew, (own_class(type(self)), self._settings())

    def __repr__(self) -> str:
        samples = f"{len(self)} sample{'s' * (len(self) != 1)}"
        classes = f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
        return f"{type(self).__name__}({printable(self.reader.path)!r}): {samples}, {classes}, {self._preparation}"


def _made_anew(kind: type, settings: dict[str, Any]) -> Any:
    """Return a dataset that was pickled, of the class that suits this process."""
    dataset: Any = object.__new__(as_vision(kind))
    dataset.__dict__.update(settings)
    return dataset
