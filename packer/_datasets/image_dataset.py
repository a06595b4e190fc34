"""A pack as a PyTorch dataset: a drop-in replacement for torchvision's ImageFolder."""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._codecs import IMAGE_SUFFIXES
from packer._datasets import staging
from packer._datasets.batch_decoder import BatchDecoder
from packer._datasets.description import of_dataset, pictures
from packer._datasets.fields import (
    FieldDecoder,
    in_form,
    mode_of_images,
    parts_of,
    require_used,
    target_parts,
    tensor_dtype,
)
from packer._datasets.image_batches import ImageBatches
from packer._datasets.items import BAD, Pool, replaced_from
from packer._datasets.pipeline import (
    OUTPUTS,
    Compiled,
    ItemDataset,
    ItemSettings,
    Pipeline,
    SettingsChange,
    Transform,
    require_callable,
)
from packer._datasets.sample_view import (
    ColumnArrays,
    Samples,
    SampleView,
    Targets,
    meeting,
    require_known_loader,
    row_of,
    valid_rows,
)
from packer._display import html, text
from packer._formats import FORMATS, Reader, open_pack
from packer._formats.index import IndexReader
from packer._images.decode import fast_decoder, warn_of_slow_decoding
from packer._images.geometry import Box
from packer._images.probe import CLIPPED, bands_not_shown
from packer._manifest import Manifest
from packer._storage.place import choose_reading
from packer._storage.system import require_count
from packer._table import Ints, Labels
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import NotAPackError, OptionError, OptionTypeError, printable, warn
from packer.samplers._random import epoch_of, seed_of, uniforms

_MADE_AGAIN = {"_decoder", "_fields", "_mask_dtypes", "_own_pipeline", "_loaders_pipeline"}
"""The attributes that are made from others when they are needed, and are neither pickled nor copied."""


class ImageDataset(ItemDataset):
    """A drop-in replacement for torchvision's ImageFolder; without a transform, images are uint8 tensors, not PIL.

    A map-style dataset of ``(image, label)``. If your own wrapper applies transforms to ``dataset[i][0]``, pass
    ``output="pil"``: the wrapper then gets PIL images, as it does from ImageFolder.

    Parameters
    ----------
    root : path or URL
        The pack.
    transform, target_transform : callable, optional
        `transform` is applied to each image, and `target_transform` to each label.
    loader : callable, optional
        One of torchvision's loaders, for compatibility with ImageFolder. It is not called, because the images of a pack
        are not files.
    is_valid_file : callable, optional
        Called with the name of every sample (a str); must return whether the sample belongs to the dataset.
    allow_empty : bool
        Whether `is_valid_file` may leave a class without samples. If `root` is a directory of images, also whether a
        class directory may be empty.
    transforms : callable, optional
        Applied to image and label together, instead of `transform` and `target_transform`: ``image, label =
        transforms(image, label)``. With `fields`, it is applied to the dict of an item, as torchvision's v2 transforms
        expect.
    fields : sequence of str or "all", optional
        Makes each item a dict with these keys, in this order. The keys are names of the pack's fields, ``image``,
        ``label``, ``name``, and ``index`` (the row in the pack). ``"all"`` means image, label and all fields. The guide
        describes the form of each kind of field. A missing value is None.
    mode : {"RGB", "L", "unchanged"} or dict of str to these
        The mode in which images are decoded. ``"L"`` is grey; ``"unchanged"`` keeps grey, alpha, palette indices and 16
        bits (uint16). A single mode applies to the sample's image. A dict gives the modes of ``image`` and of image
        fields, which are ``"unchanged"`` by default.
    per_box : sequence of str, or dict of str to sequence of str, optional
        The fields with one entry for each box; when a crop removes a box, it also removes the entries of this box. If
        the pack has several box fields, pass a dict whose keys are their names. Packs made from annotations
        (``--coco``, ``--voc``, ``--yolo``, the Hub's ``objects``) record these fields. For other packs, the argument is
        required with a crop if the pack has both boxes and fields that may have an entry for each box.
    min_visible : float
        The minimum share of a box's area, 0 to 1, that must remain in a crop. Boxes with less are removed, and so are
        boxes that are less than a pixel wide or high.
    fill : dict of str to value, optional
        The value of each field for samples that lack it. For a mask, a number that fills the whole mask, and also the
        border of a padded crop; by default 0.
    target : {"coco"}, optional
        Makes each item an image and a target in the form of torchvision's detectors, from the fields that
        ``packer convert --coco`` makes.
    output : {"tensor", "numpy", "pil", "bytes"}, optional
        The form of an image, also as the input of a transform; ``numpy`` and ``bytes`` apply to fields too. By default,
        images are PIL images if there is a transform, as in ImageFolder. They are tensors if there is no transform, or
        if the transform is one of torchvision's that accept only tensors.

        * ``tensor``: (3, height, width) uint8 `torch.Tensor`, RGB, 0 to 255; its memory is laid out channels last.
        * ``numpy``: (height, width, 3) uint8 array, RGB, writable.
        * ``pil``: `PIL.Image.Image` of mode RGB, as the transform of an ImageFolder gets it.
        * ``bytes``: the stored bytes, undecoded.
    crop : packer crop, optional
        The part of each image to decode, and its new size, such as ``packer.RandomResizedCrop(224)``; or a list of
        crops, applied in turn. The part is chosen before decoding, and the rest of the image is not decoded.
    augment : packer augmentation or list of packer augmentations, optional
        Operations on the pixels of each crop, such as ``[packer.augment.TrivialAugmentWide()]``. They run in C; their
        random numbers come from the same generator as the crop's random numbers.
    views : sequence of packer.View, optional
        Several versions of each image, for self-supervised learning, instead of `crop` and `augment`: each view has its
        own crop and augmentation. An item is ``((view, view, ...), label)``, and a batch is ``[[batch of the first
        view, ...], labels]``. Each sample is read and decoded once for all views. A `transform` is applied to each
        view. `fields` must not include masks, images, boxes or other positions in the image.
    fuse : bool
        Whether packer itself runs the first steps of `transform`, or with `fields` the first steps of `transforms`.
        These steps are crops, resizes, flips and pads of torchvision or timm; in a `transform`, also conversions after
        them, such as ToTensor and Normalize. packer draws the same random numbers as torchvision. Resized pixels equal
        torchvision's result on tensors, which rarely differs by more than one level from its result on PIL images.
        ``repr(dataset)`` shows which steps packer runs.
    seed : int, optional
        Makes random crops and augmentations depend only on seed, epoch (`set_epoch`) and sample, in any process and for
        any number of reads. Without a seed, they are drawn anew from torch's generator each time an image is read.
    check : {"always", "never"}
        Whether every read checks the sample's checksum. With ``"never"``, a crop of a sample stored as ``raw`` pixels
        reads only the rows that it needs.
    decoder : {"auto", "turbojpeg", "pyturbojpeg", "opencv", "pillow"}
        The library that decodes ordinary JPEGs. ``"auto"`` uses packer's own decoder first, which is faster. The choice
        changes only the speed: the pixels are always Pillow's.
    scaled_decode : bool
        Has no effect, because decoding the part that a crop needs is faster than decoding the whole image at half its
        size. The next release removes it.
    threads : int
        The number of threads that decode each batch of torch's DataLoader.
    cache : {"ram"}, optional
        Read the whole pack into memory that all workers and ranks of a node share, and keep it there until the dataset
        is closed or deleted.
    stage : path, optional
        Copy the pack to this directory first, once on each node, and read the copy; see `packer.stage`.
    cache_dir : path, optional
        The cache directory for a pack at a URL, shared by all processes of the node; ``""`` keeps the cache in memory
        only. By default the environment variable PACKER_CACHE_DIR, or ``~/.cache/packer``.
    cache_size : int or str, optional
        The size limit of this cache, in bytes or as a string such as ``"200 GB"``; by default the environment variable
        PACKER_CACHE_SIZE, or a share of the free space.
    timeout : float, optional
        The number of seconds to wait for bytes from a URL before an error is raised; by default the environment
        variable PACKER_TIMEOUT, or 60.
    on_error : {"raise", "replace"}
        What happens at an unreadable sample. ``"raise"`` raises an error. ``"replace"`` returns the next readable
        sample instead, the same one in every run and on every rank, and warns with the name of the unreadable sample;
        the attribute `replaced` lists the errors.
    max_bad : float
        The maximum share of samples, 0 to 1, that a process may replace before an error is raised. One sample may
        always be replaced, unless the share is 0.

    Attributes
    ----------
    classes : list of str
    class_to_idx : dict of str to int
    samples, imgs : sequence of (str, int)
        Name and label of every sample. The names are relative to the converted directory.
    targets : (N,) int64 or float64 array
        The labels: class ids, -1 for an unlabeled sample; or numbers, if the pack has no classes. The operator ``+``
        concatenates them with a list or with the targets of another dataset, as it does with ImageFolder's lists. You
        may assign another array of the same length.
    columns : mapping of str to (N,) array
        The fields that contain numbers, class ids or texts, and packer's own columns; read-only.
    reader : packer.Reader
        The reader of the pack, with its manifest, its table and its bytes.
    root : str
        The path of the pack.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the pack cannot be opened. `targets` and `samples` raise CorruptPackError if the table does not match its
        checksums.
    TypeError, ValueError
        If a setting has a wrong type or value. Settings are checked before anything is copied or read in full.
    FileNotFoundError
        If `is_valid_file` leaves a class without samples.

    Notes
    -----
    The dataset works with any start method of DataLoader workers, and with or without `persistent_workers`. Several
    datasets may read one pack. A pickled dataset contains its path and its settings; unpickling opens the pack. If
    torchvision has been imported, the dataset is a `torchvision.datasets.VisionDataset`.
    """

    extensions = IMAGE_SUFFIXES

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
            raise OptionError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        if cache not in (None, "ram"):
            raise OptionError(f"cache is None or 'ram', not {cache!r}")
        choose_reading([root], cache_dir, cache_size, timeout)
        require_count("threads", threads)
        fast_decoder(decoder)  # refuses an unknown or missing one here rather than in a worker
        require_known_loader(loader)
        if type(self).find_classes is not ImageDataset.find_classes:
            raise OptionTypeError(
                "find_classes of a pack cannot be overridden: its classes were chosen by `packer convert`"
            )
        require_callable("transforms", transforms)
        settings = ItemSettings(output, mode_of_images(mode), fuse, transforms)
        if fuse and settings.mode != "RGB":
            raise OptionError(f"fuse=True supports only RGB images, not mode={mode!r}")
        require_used(fields, target, mode, per_box, fill, min_visible)
        settings = settings.with_transform("transform", transform).with_transform("target_transform", target_transform)
        settings = settings.with_crop(crop)
        self._library = decoder
        if scaled_decode:
            warn(
                "scaled_decode=True has no effect: packer decodes the part of an image that a crop needs, which takes "
                "less time than decoding all of it at half its size. Leave it out: the next release refuses it"
            )
        self.seed = None if seed is None else seed_of(seed)
        self.threads = threads
        self._pool, self._replaced = Pool(), replaced_from(on_error, max_bad)
        self._whole: ImageDataset | None = None  # of which this dataset is a selection
        self.reader: Reader = open_pack(root, check=check)
        self._page_lock = staging.PageLock()
        try:
            self._require_format()
            parts = None
            if target is not None:
                parts = target_parts(self.reader.fields, target, min_visible, output, self._blob_sizes)
            elif fields is not None:
                parts = parts_of(self.reader.fields, fields, mode, per_box, fill, min_visible, output, self._blob_sizes)
            self._settings = replace(settings, parts=parts).with_augment(augment).with_views(views)
            _ = self._pipeline  # says at once where fuse= changes nothing
            if stage is not None:
                self.reader.close()
                root = staging.stage(root, stage)
                self.reader = open_pack(root, check=check)
            if cache == "ram":
                self._page_lock = staging.lock_in_memory(root)
            self._take_samples(is_valid_file, allow_empty)
            self._warn(decoder, output)
        except BaseException:
            self.reader.close()
            raise

    def _take_samples(self, is_valid_file: Callable[[str], bool] | None, allow_empty: bool) -> None:
        """Take all samples of the reader, or those that `is_valid_file` accepts."""
        self._epochs = Epochs(len(self.reader), printable(self.reader.place.given))
        self._view = SampleView(self.reader)
        if is_valid_file is not None:
            rows = valid_rows(self.samples, self.classes, is_valid_file, allow_empty)
            self._view = SampleView(self.reader, rows)

    def _warn(self, decoder: str, output: str | None) -> None:
        """Warn about slow decoding, and about bits or bands of images that the mode discards."""
        if output == "bytes":
            return
        if decoder == "auto":
            warn_of_slow_decoding()
        if (parts := self._settings.parts) is None or "image" in parts.names:
            warn_of_lost_numbers(self.reader, self._settings.mode)

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, index: int | slice) -> Any:
        """Return an item; for a slice, return a dataset of these samples, as `select` does.

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
            raise OptionTypeError(f"an index is an integer, not {index!r}") from None
        return self._item(place, self.seed)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a batch of items, in the order of `indices`; DataLoader calls this."""
        if type(self).__getitem__ is not ImageDataset.__getitem__:  # of a class that adds to the items
            return [self[index] for index in indices]
        return ImageBatches(self).own_items(indices, self.seed)

    def select(self, indices: Sequence[int] | Ints) -> ImageDataset:
        """Return a dataset of some of the samples, in the order of `indices`, on the same open pack.

        It has the same settings and its own `targets` and `samples`; a sample gets the same crop as in this dataset.
        Both share the epoch.
        """
        selection = self._alike()
        selection._view = self._view.selected(indices)
        return selection

    def where(self, condition: str | npt.ArrayLike) -> ImageDataset:
        """Return a dataset of the samples that meet a condition, in their order, on the same open pack; see `select`.

        Parameters
        ----------
        condition : str or (N,) bool array
            A mask, such as ``dataset.columns["age"] > 30``; masked entries of a masked array are not selected. Or a
            string, such as ``'age > 30 and split == "train"'``, with names of `columns`, comparisons, ``in [...]``,
            ``glob "train/*"``, ``is null``, ``and``, ``or``, ``not``. As in SQL, a missing value meets neither a
            comparison nor its opposite.

        Raises
        ------
        OptionError
            If the string is not a valid condition on the dataset's columns; the message names the position of the
            error.
        ValueError
            If `condition` is a mask and does not have N bools.
        CorruptPackError
            If a column that the condition uses is damaged.
        """
        return self.select(meeting(condition, self._view.columns, len(self)))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch on which seeded crops depend, also in DataLoader workers that are already running."""
        self._epochs.move_on(epoch)

    def close(self) -> None:
        """Close the pack's files, end the threads, and unlock the memory that ``cache="ram"`` locked. Later reads fail.

        Data that was read stays valid, and so do `classes` and `targets`. Copies of the dataset in workers stay open.
        On a dataset that `select` or `where` returned, this does nothing: close the dataset on which they were called.
        """
        if self._whole is None:
            self._pool.close()
            self._page_lock.close()
            self.reader.close()

    def __enter__(self) -> ImageDataset:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def root(self) -> str:
        return self.reader.path

    @property
    def classes(self) -> list[str]:
        return self._view.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return self._view.class_to_idx

    def find_classes(self, directory: str | os.PathLike[str] | None = None) -> tuple[list[str], dict[str, int]]:
        """Return `classes` and `class_to_idx` of the pack; `directory` is ignored."""
        return self.classes, self.class_to_idx

    @property
    def targets(self) -> Targets:
        return Targets.of(self._view.labels)

    @targets.setter
    def targets(self, targets: Sequence[float] | Labels) -> None:
        self._view = self._view.with_labels(targets)

    @property
    def samples(self) -> Samples:
        return self._view.samples

    @samples.setter
    def samples(self, samples: object) -> None:
        raise AttributeError(
            "the samples of a pack cannot be replaced. To select some, use dataset[:10], dataset.select(indices) or "
            "a torch.utils.data.Subset; to change labels, assign dataset.targets; to change the order, pass a sampler"
        )

    imgs = samples

    @property
    def columns(self) -> ColumnArrays:
        """The samples' columns by name, as read-only arrays; a column with missing values is a masked array.

        The columns are the scalar, class and text fields, and ``label``, ``name``, ``height``, ``width`` (pixels of the
        stored image) and ``size`` (bytes).
        """
        return ColumnArrays(self._view.columns)

    def _item_settings(self) -> ItemSettings:
        return self._settings

    def _change_settings(self, change: SettingsChange) -> None:
        self._settings = change(self._settings)

    @property
    def output(self) -> str:
        """The form of an image: the argument `output`, or if that is not given, the form that the transform accepts."""
        return self._pipeline.output

    @property
    def decoder(self) -> str:
        """The library that decodes ordinary JPEGs; it was chosen when the dataset was opened."""
        return self._library

    @property
    def scaled_decode(self) -> bool:
        """Always False; see the parameter."""
        return False

    @property
    def randoms(self) -> int:
        """The number of random numbers that the crop and the augmentation of an image need."""
        return self._pipeline.randoms

    @property
    def replaced(self) -> list[str]:
        """The errors of the samples that ``on_error="replace"`` replaced in this process."""
        return [] if self._replaced is None else self._replaced.reasons

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform; its pixels equal those of the whole image.

        In a tiled JPEG, only the tiles that the rectangle touches are decoded, so a small rectangle of a huge image
        takes as little time as a small image.

        Parameters
        ----------
        top, left, height, width : int
            The rectangle, in pixels; it must lie inside the image.

        Returns
        -------
        (C, height, width) tensor, (height, width, C) array or PIL image
            The pixels, in the form that `output` and `mode` select.

        Raises
        ------
        ValueError
            If the rectangle is empty or does not lie inside the image.
        IndexError, CorruptPackError, ImageError
            The same as for ``dataset[index]``.
        """
        output = self.output
        if output == "bytes":
            raise OptionError("output='bytes' returns the stored bytes, from which no region can be read")
        (number,) = self._view.rows_of([index]).tolist()
        row = self.reader.row(number)
        top, left, height, width = map(operator.index, (top, left, height, width))
        if not (height >= 1 <= width and 0 <= top <= row.height - height and 0 <= left <= row.width - width):
            raise OptionError(
                f"a rectangle of {width} x {height} pixels from ({left}, {top}) does not lie inside sample {index}, "
                f"which has {row.width} x {row.height}"
            )
        box = Box.of((top, left, height, width), (height, width))
        return in_form(output, self._decoder.one.cut(row, self.reader.read_row(row), box))

    def loader(self, path: str) -> Image.Image:
        """Return the image of the sample named `path`, without a transform, as ImageFolder's loader does.

        Raises
        ------
        FileNotFoundError
            If no sample of the pack has the name.
        CorruptPackError, ImageError
            If the sample is damaged.
        """
        row = self.reader.row(row_of(self.reader.names, path))
        image: Image.Image = in_form("pil", self._decoder.one.whole(row, self.reader.read_row(row)))
        return image

    def __repr__(self) -> str:
        return text(of_dataset(self))

    def _repr_html_(self) -> str:
        return html([*of_dataset(self), *pictures(self)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_anew, (own_class(type(self)), self._attributes())

    @property
    def _pipeline(self) -> Pipeline:
        """The steps that make an item, compiled again if a setting has changed."""
        return self._compiled("_own_pipeline", self._settings.transform)

    def _pipeline_with(self, transform: Transform) -> Pipeline:
        """Return the steps that make an item; a Loader's transform, if not None, replaces the dataset's own."""
        return self._pipeline if transform is None else self._compiled("_loaders_pipeline", transform)

    def _compiled(self, name: str, transform: Transform) -> Pipeline:
        """Return the compiled steps; compile them again if a setting or a step of a fused transform has changed."""
        settings = self._settings
        known = self.__dict__.get(name)
        if known is None or known.settings is not settings or not known.fits(transform):
            known = self.__dict__[name] = settings.compiled(transform)
        pipeline: Pipeline = known.pipeline
        return pipeline

    def _use(self, pipeline: Pipeline) -> None:
        """Make items with these steps until a setting changes."""
        self.__dict__["_own_pipeline"] = Compiled(self._settings, self._settings.transform, None, pipeline)

    @cached_property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.reader, self._library, self._settings.mode)

    @cached_property
    def _fields(self) -> FieldDecoder | None:
        parts = self._settings.parts
        return None if parts is None else FieldDecoder(self.reader, parts, self._library)

    @cached_property
    def _mask_dtypes(self) -> dict[str, str]:
        parts, fields = self._settings.parts, self._fields
        if parts is None or fields is None:
            return {}
        return {name: tensor_dtype(fields.dtype_of(name)) for name in parts.masks}

    def _item(self, place: int, seed: int | None) -> Any:
        """Return an item. Its crop depends on `seed` and the epoch; without a seed, torch's generator draws it."""
        pipeline = self._pipeline
        if not pipeline.takes_one:
            return ImageBatches(self).own_items([place], seed)[0]
        number = self._view.row_of(place)
        random = None if seed is None or not pipeline.randoms else self._random(number, seed, pipeline.randoms)
        try:
            row = self.reader.row(number)
            label = self._view.label_of(place, row.label)
            return pipeline.sample(self.reader, self._decoder.one, row, label, random)
        except BAD:
            if self._replaced is None:
                raise
        return ImageBatches(self).replaced_items(np.array([place % len(self)]), seed)[0]

    def _random(self, number: int, seed: int, count: int) -> npt.NDArray[np.float64]:
        """Return the random numbers that choose the crop of a row in this epoch."""
        rows = np.array([number])
        self._epochs.read(rows)
        numbers: npt.NDArray[np.float64] = uniforms(seed, self._epochs.epoch, rows, count)[0]
        return numbers

    def _alike(self) -> ImageDataset:
        """Return a copy of the dataset on the same open pack; changes of its settings do not affect the original."""
        alike: ImageDataset = object.__new__(type(self))
        alike.__dict__.update(self._attributes())
        alike._whole = self._whole or self
        return alike

    def _attributes(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _MADE_AGAIN}

    def _require_format(self) -> None:
        """Raise NotAPackError if this class does not read the format of the pack."""
        format = self.reader.manifest.format
        if self._format not in (None, format):
            dataset = FORMATS[format].dataset if format in FORMATS else "open_dataset"
            raise NotAPackError(f"{printable(self.reader.path)}: a pack of the format {format}; read it with {dataset}")

    def _blob_sizes(self, field: str) -> npt.NDArray[np.int64]:
        return np.asarray(self.reader.table.more[f"field.{field}.size"])


def _made_anew(kind: type, attributes: dict[str, Any]) -> Any:
    """Return an unpickled dataset, of the class that suits this process."""
    dataset: Any = object.__new__(as_vision(kind))
    dataset.__dict__.update(attributes)
    return dataset


def as_vision(kind: type) -> type:
    """Return `kind`, as a subclass of `torchvision.datasets.VisionDataset` too if torchvision has been imported.

    Code that calls ``isinstance(dataset, VisionDataset)`` has imported torchvision. For all other code, importing
    torchvision would take as much time as importing torch.
    """
    vision = sys.modules.get("torchvision.datasets.vision")
    base = getattr(vision, "VisionDataset", None)  # missing while torchvision is being imported
    return kind if base is None or issubclass(kind, base) else _joined(kind, base)


def own_class(kind: type) -> type:
    """Return the class that was passed to `as_vision`, which pickle finds by its name."""
    return kind.__dict__.get("_own_class", kind)  # type: ignore[no-any-return]


@functools.cache
def _joined(kind: type, base: type) -> type:
    members: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__, "_own_class": kind}
    members["__qualname__"] = kind.__qualname__
    return type(kind.__name__, (kind, base), members)


_WATCHED = 1 << 12  # samples, spread over the pack, whose reading is remembered
_FEW = 16  # samples of which nobody can tell passes from single looks
_EPOCH, _READ, _AGAIN, _WARNED, _MOVES, _NUMBERS = range(6)


class Epochs:
    """The epoch on which crops depend, and a record of the samples read in it; DataLoader workers see each `move_on`.

    Parameters
    ----------
    length : int
        Number of samples of the pack.
    pack : str
        The path of the pack, for the warning.
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
        """Use `memory`, which is shared and holds the whole state."""
        self._memory, numbers = memory, memory.numpy()
        self._numbers: npt.NDArray[np.int64] = numbers[: 8 * _NUMBERS].view(np.int64)
        self._seen: npt.NDArray[np.uint8] = numbers[8 * _NUMBERS :]

    @property
    def epoch(self) -> int:
        return int(self._numbers[_EPOCH])

    @property
    def moves(self) -> int:
        """The number of times that an epoch was set."""
        return int(self._numbers[_MOVES])

    def move_on(self, epoch: int) -> None:
        """Set the epoch on which crops depend to `epoch`."""
        epoch, moves = epoch_of(epoch), self.moves + 1
        self._seen[:] = 0
        self._numbers[:] = 0
        self._numbers[_EPOCH], self._numbers[_MOVES] = epoch, moves

    def read(self, rows: Ints) -> None:
        """Record the samples that get crops of this epoch; warn once if an earlier pass had the same crops.

        The shared memory records which of the watched samples were read in this epoch. If nearly all samples that are
        read now were read before, this is a second pass. If two processes count at the same time, a count may be lost,
        and the warning comes a little later.
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
                f"{self._pack}: the crops of epoch {self.epoch} are read a second time without a change, because the "
                "dataset has a seed=: call dataset.set_epoch(epoch) before each pass over it, or leave out seed="
            )


class LostNumbersWarning(UserWarning):
    """Images have more bits or bands than the items of a dataset contain."""


def warn_of_lost_numbers(reader: Reader, mode: str) -> None:
    """Warn if, by the findings of a pack, some images turn white or black in this mode, or lose bands."""
    lost = remark(reader.manifest, mode)
    if lost is not None:
        warn(
            f"{printable(reader.base if isinstance(reader, IndexReader) else reader.place.given)}: {lost}",
            LostNumbersWarning,
        )


def remark(manifest: Manifest, mode: str) -> str | None:
    """Return a sentence about the bits and bands of a pack's images that a mode discards; None if it discards none."""
    clipped = manifest.findings.get(CLIPPED, 0) if mode == "RGB" else 0
    bands = _with_more_bands(manifest.findings) if mode != "unchanged" else 0
    if manifest.codec != "keep":
        if not clipped:
            return None
        return (  # a packer stored them that did not refuse them yet
            f"{_images(clipped)} 16 bits or floats a pixel, stored as 8-bit RGB, white or black. Convert the files "
            "again, with --to-8-bit type or --to-8-bit file"
        )
    remarks = []
    if clipped:
        remarks.append(f"{_images(clipped)} 16 bits or floats a pixel, which turn white or black as 8-bit RGB")
    if bands:
        remarks.append(f"{_images(bands)} more bands (channels) than are shown")
    if not remarks:
        return None
    return f"{'; '.join(remarks)}, as with ImageFolder. mode='unchanged' gives the numbers as they are stored"


def _with_more_bands(findings: Mapping[str, int]) -> int:
    return sum(count for finding, count in findings.items() if bands_not_shown(finding))


def _images(count: int) -> str:
    return "1 image has" if count == 1 else f"{count:,} images have"
