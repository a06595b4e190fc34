"""A pack as a PyTorch dataset: a drop-in replacement for torchvision's ImageFolder."""

from __future__ import annotations

import copy
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
from packer._datasets.decoder import BatchDecoder
from packer._datasets.description import of_pack, pictures
from packer._datasets.fields import FieldDecoder, FieldOptions, Values, in_form, tensor_dtype
from packer._datasets.items import SAMPLE_ERRORS, ItemMaker, Pool, Replaced, replaced_from
from packer._datasets.pipeline import (
    OUTPUTS,
    Compiled,
    ItemDataset,
    ItemSettings,
    Pipeline,
    SettingsChange,
    Transform,
    followed_by_fields,
    require_callable,
)
from packer._datasets.protocol import (
    IMAGES,
    BatchOpener,
    BatchPart,
    Fetching,
    ItemsError,
    Layout,
    Memory,
    SliceDecoder,
    TorchDataset,
    Traits,
    images_in,
    view_part,
)
from packer._datasets.sample_view import (
    ColumnArrays,
    Samples,
    SampleView,
    Targets,
    indices_where,
    normalized_indices,
    require_known_loader,
    row_of,
    valid_rows,
)
from packer._display import html, text
from packer._formats import FORMATS, Reader, open_pack
from packer._formats.index import IndexReader
from packer._images.decode import fast_decoder, warn_of_slow_decoding
from packer._images.geometry import Box, Crops
from packer._images.numbers import Numbers
from packer._images.probe import CLIPPED, bands_not_shown
from packer._manifest import Manifest
from packer._storage.place import choose_reading
from packer._storage.system import require_count
from packer._table import Ints, Labels
from packer.augment import Augmentation, View
from packer.crops import Compose, Crop
from packer.errors import NotAPackError, OptionError, OptionTypeError, printable, warn
from packer.samplers._random import epoch_of, seed_of, seeder, uniforms


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
        Called with the name of every sample, a str; must return True if the sample belongs to the dataset.
    allow_empty : bool
        Whether a class may be left without samples because `is_valid_file` rejects all of them. If `root` is a
        directory of images, also whether a class directory may be empty.
    transforms : callable, optional
        Applied to image and label together, instead of `transform` and `target_transform`: ``image, label =
        transforms(image, label)``. With `fields`, `transforms` is applied to the dict of an item, as torchvision's v2
        transforms expect.
    fields : sequence of str or "all", optional
        Makes each item a dict with these keys, in this order. A key is ``image``, ``label``, ``name``, ``index`` (the
        sample's row in the pack) or the name of a field. ``"all"`` means image, label and all fields. The guide
        describes how each kind of field is returned. A missing value is None.
    mode : {"RGB", "L", "unchanged"} or dict of str to these
        The mode in which images are decoded. ``"L"`` is grey; ``"unchanged"`` keeps grey, alpha, palette indices and 16
        bits (uint16). A single mode applies to the sample's image. A dict sets the modes of ``image`` and of image
        fields; image fields are ``"unchanged"`` by default.
    per_box : sequence of str, or dict of str to sequence of str, optional
        The fields with one entry for each box. When a crop removes a box, the entries of that box are removed too. If
        the pack has several box fields, pass a dict whose keys are their names. Packs made from annotations
        (``--coco``, ``--voc``, ``--yolo``, the Hub's ``objects``) record these fields. For other packs, a crop requires
        this argument if some fields may have an entry for each box.
    min_visible : float
        The minimum share of a box's area, 0 to 1, that must remain in a crop. Boxes with a smaller share are removed,
        and so are boxes that are less than a pixel wide or high.
    fill : dict of str to value, optional
        For each field, the value that replaces a missing value. For a mask, this is the number, by default 0, that
        fills a missing mask and the border of a padded crop.
    target : {"coco"}, optional
        Makes each item a pair: the image, and a target in the form that torchvision's detectors expect. The target is
        made from the fields that ``packer convert --coco`` stores.
    output : {"tensor", "numpy", "pil", "bytes"}, optional
        The form that images have in items, and in which transforms receive them; ``numpy`` and ``bytes`` apply to
        fields too. By default, images are PIL images if there is a transform, as in ImageFolder. They are tensors if
        there is no transform, or if the transform is a torchvision transform that accepts only tensors.

        * ``tensor``: (3, height, width) uint8 `torch.Tensor`, RGB, 0 to 255; its memory is laid out channels last.
        * ``numpy``: (height, width, 3) uint8 array, RGB, writable.
        * ``pil``: `PIL.Image.Image` of mode RGB, as the transform of an ImageFolder gets it.
        * ``bytes``: the stored bytes, undecoded.
    crop : packer crop, optional
        The part of each image to decode, and the size to resize it to, such as ``packer.RandomResizedCrop(224)``; or a
        list of crops, applied one after the other. The part is chosen before decoding, and the rest of the image is not
        decoded.
    augment : packer augmentation or list of packer augmentations, optional
        Operations on the pixels of each crop, such as ``[packer.augment.TrivialAugmentWide()]``. They run in C; their
        random numbers come from the same generator as the crop's random numbers.
    views : sequence of packer.View, optional
        Several versions of each image, for self-supervised learning, instead of `crop` and `augment`: each view has its
        own crop and augmentation. An item is ``((view, view, ...), label)``, and a batch is ``[[batch of the first
        view, ...], labels]``. Each sample is read and decoded once for all views. A `transform` is applied to each
        view. `fields` must not include masks, images, or positions in the image such as boxes.
    fuse : bool
        Whether packer itself runs the first steps of `transform` (of `transforms`, if `fields` is given). These steps
        are crops, resizes, flips and pads of torchvision or timm. In `transform`, but not in `transforms`, packer also
        runs the conversions that follow, such as ToTensor and Normalize. packer draws the same random numbers as
        torchvision. Resized pixels equal torchvision's result on tensors; they rarely differ by more than one level
        from torchvision's result on PIL images. ``repr(dataset)`` shows which steps packer runs.
    seed : int, optional
        Makes random crops and augmentations depend only on seed, epoch (`set_epoch`) and sample: they are the same in
        every process, however often an image is read. Without a seed, they are drawn anew from torch's generator each
        time an image is read.
    check : {"always", "never"}
        Whether every read checks the sample's checksum. With ``"never"``, cropping a sample stored as ``raw`` pixels
        reads only the rows of pixels that the crop needs.
    decoder : {"auto", "turbojpeg", "pyturbojpeg", "opencv", "pillow"}
        The library that decodes ordinary JPEGs. ``"auto"`` uses packer's own decoder first, which is faster. The choice
        changes only the speed: the pixels are always Pillow's.
    scaled_decode : bool
        Has no effect, because decoding the part that a crop needs is faster than decoding the whole image at half its
        size. The next release removes this argument.
    threads : int
        The number of threads that decode each batch of torch's DataLoader.
    cache : {"ram"}, optional
        ``"ram"`` reads the whole pack into memory that all workers and ranks of a node share. The pack stays there
        until the dataset is closed or deleted.
    stage : path, optional
        Copy the pack to this directory first, once on each node, and read the copy; see `packer.stage`.
    cache_dir : path, optional
        The cache directory for a pack at a URL, shared by all processes of the node; ``""`` keeps the cache in memory
        only. By default the environment variable PACKER_CACHE_DIR, or ``~/.cache/packer``.
    cache_size : int or str, optional
        The size limit of the cache directory, in bytes or as a string such as ``"200 GB"``; by default the environment
        variable PACKER_CACHE_SIZE, or a share of the free space.
    timeout : float, optional
        The number of seconds to wait for bytes from a URL before an error is raised; by default the environment
        variable PACKER_TIMEOUT, or 60.
    on_error : {"raise", "replace"}
        What happens at an unreadable sample. ``"raise"`` raises an error. ``"replace"`` warns with the sample's name,
        and returns the next readable sample instead: the same one in every run and on every rank. The attribute
        `replaced` lists the errors.
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
        The labels: class ids, with -1 for an unlabeled sample. If the pack has no classes, the labels are numbers. As
        with ImageFolder's lists, the operator ``+`` concatenates the labels with a list or with the targets of another
        dataset. You may assign another array of the same length.
    columns : mapping of str to (N,) array
        packer's own columns, and the columns of the fields that contain numbers, class ids or texts. The arrays are
        read-only.
    reader : packer.Reader
        The reader of the pack, which gives access to manifest, table and bytes.
    root : str
        The path of the pack.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the pack cannot be opened. Reading `targets` or `samples` raises CorruptPackError if the table does not match
        its checksums.
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

    _format: str | None = None
    """The format that this class reads; None for all formats."""

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
            raise OptionError(f"output must be one of {', '.join(OUTPUTS)}, not {output!r}")
        if cache not in (None, "ram"):
            raise OptionError(f"cache must be None or 'ram', not {cache!r}")
        choose_reading([root], cache_dir, cache_size, timeout)
        _require_threads(threads)
        fast_decoder(decoder)  # raises an error for an unknown or missing library here, and not in a worker
        require_known_loader(loader)
        if type(self).find_classes is not ImageDataset.find_classes:
            raise OptionTypeError(
                "find_classes of a pack cannot be overridden: its classes were chosen by `packer convert`"
            )
        require_callable("transforms", transforms)
        options = FieldOptions(fields, target, mode, per_box, fill, min_visible, output)
        settings = ItemSettings(output, options.image_mode, fuse, transforms)
        if fuse and settings.mode != "RGB":
            raise OptionError(f"fuse=True supports only RGB images, not mode={mode!r}")
        options.require_used()
        settings = settings.with_transform("transform", transform).with_transform("target_transform", target_transform)
        settings = settings.with_crop(crop)
        if scaled_decode:
            warn(
                "scaled_decode=True has no effect: packer decodes the part of an image that a crop needs, which takes "
                "less time than decoding all of it at half its size. Leave it out: the next release refuses it"
            )
        seed, replaced = None if seed is None else seed_of(seed), replaced_from(on_error, max_bad)
        self._whole: ImageDataset | None = None  # the dataset from which this one was selected
        self._page_lock = staging.PageLock()
        reader = open_pack(root, check=check)
        try:
            self._require_format(reader)
            settings = replace(settings, parts=options.parts(reader)).with_augment(augment).with_views(views)
            compiled = settings.compiled(settings.transform)  # here, to warn at once if fuse= has no effect
            if stage is not None:
                reader.close()
                root = staging.stage(root, stage)
                reader = open_pack(root, check=check)
            if cache == "ram":
                self._page_lock = staging.lock_in_memory(root)
            name = type(self).__name__
            self._items = PackItems(
                name, reader, compiled, library=decoder, seed=seed, threads=threads, replaced=replaced
            )
            if is_valid_file is not None:
                rows = valid_rows(self.samples, self.classes, is_valid_file, allow_empty)
                self._items.view = SampleView(reader, rows)
            if output != "bytes":
                self._items.warn_of_losses()
        except BaseException:
            reader.close()
            raise

    @property
    def reader(self) -> Reader:
        return self._items.reader

    @property
    def seed(self) -> int | None:
        return self._items.seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._items.seed = None if seed is None else seed_of(seed)

    @property
    def threads(self) -> int:
        return self._items.threads

    @threads.setter
    def threads(self, threads: int) -> None:
        _require_threads(threads)
        self._items.threads = threads

    def __len__(self) -> int:
        return len(self._items.view)

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
            number = operator.index(index)
        except TypeError:
            raise OptionTypeError(f"an index must be an integer, not {index!r}") from None
        items = self._items
        return items.item(number, items.seed)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a batch of items, in the order of `indices`; DataLoader calls this."""
        if type(self).__getitem__ is not ImageDataset.__getitem__:  # a subclass changes the items
            return [self[index] for index in indices]
        return self._items.items_of_current_epoch(indices, self.seed)

    def select(self, indices: Sequence[int] | Ints) -> ImageDataset:
        """Return a dataset of the samples at `indices`, in this order. It reads the same open pack.

        The new dataset has the same settings and its own `targets` and `samples`; a sample gets the same crop in both
        datasets. `set_epoch` of one dataset sets the epoch of both.
        """
        selection = copy.copy(self)
        selection._items.view = self._items.view.selected(indices)
        return selection

    def where(self, condition: str | npt.ArrayLike) -> ImageDataset:
        """Return a dataset of the samples that meet a condition, in the order of this dataset; see `select`.

        Parameters
        ----------
        condition : str or (N,) bool array
            A string, such as ``'age > 30 and split == "train"'``, or a mask, such as ``dataset.columns["age"] > 30``. A
            string contains names of `columns`, comparisons, ``in [...]``, ``glob "train/*"``, ``is null``, ``and``,
            ``or`` and ``not``. As in SQL, a missing value satisfies neither a comparison nor the opposite comparison.
            Masked entries of a masked array are not selected.

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
        return self.select(indices_where(condition, self._items.view.columns, len(self)))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch on which seeded crops depend, also in DataLoader workers that are already running."""
        self._items.epochs.move_on(epoch)

    def close(self) -> None:
        """Close the pack's files, end the threads, and unlock the memory that ``cache="ram"`` locked. Later reads fail.

        Data that was read stays valid, and so do `classes` and `targets`. Copies of the dataset in workers stay open. A
        dataset that `select` or `where` returned is not closed: close the original dataset instead.
        """
        if self._whole is None:
            self._items.pool.close()
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
        return self._items.view.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return self._items.view.class_to_idx

    def find_classes(self, directory: str | os.PathLike[str] | None = None) -> tuple[list[str], dict[str, int]]:
        """Return `classes` and `class_to_idx` of the pack; `directory` is ignored."""
        return self.classes, self.class_to_idx

    @property
    def targets(self) -> Targets:
        return Targets.of(self._items.view.labels)

    @targets.setter
    def targets(self, targets: Sequence[float] | Labels) -> None:
        self._items.view = self._items.view.with_labels(targets)

    @property
    def samples(self) -> Samples:
        return self._items.view.samples

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
        return ColumnArrays(self._items.view.columns)

    def _item_settings(self) -> ItemSettings:
        return self._items.item_settings

    def _change_settings(self, change: SettingsChange) -> None:
        self._items.item_settings = change(self._items.item_settings)

    @property
    def output(self) -> str:
        """The form that images have in items; by default, the form that the transform accepts."""
        return self._items.pipeline.output

    @property
    def decoder(self) -> str:
        """The library that decodes ordinary JPEGs, chosen when the dataset was opened."""
        return self._items.library

    @property
    def scaled_decode(self) -> bool:
        """Always False; see the parameter `scaled_decode` of the class."""
        return False

    @property
    def randoms(self) -> int:
        """The number of random numbers that the crop and the augmentation of an image need."""
        return self._items.pipeline.randoms

    @property
    def replaced(self) -> list[str]:
        """The errors of the samples that ``on_error="replace"`` replaced in this process."""
        return [] if self._items.replaced is None else self._items.replaced.reasons

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform; the pixels are the same as in the whole image.

        In a tiled JPEG, only the tiles that the rectangle touches are decoded. So a small rectangle of a huge image
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
        (number,) = self._items.view.rows_of([index]).tolist()
        row = self.reader.row(number)
        top, left, height, width = map(operator.index, (top, left, height, width))
        if not (height >= 1 <= width and 0 <= top <= row.height - height and 0 <= left <= row.width - width):
            raise OptionError(
                f"a rectangle of {width} x {height} pixels at ({left}, {top}) does not lie inside sample {index}, "
                f"which has {row.width} x {row.height}"
            )
        box = Box.of((top, left, height, width), (height, width))
        return in_form(output, self._items.decoder.sample_decoder.decode_crop(row, self.reader.read_row(row), box))

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
        image: Image.Image = in_form(
            "pil", self._items.decoder.sample_decoder.decode_whole(row, self.reader.read_row(row))
        )
        return image

    def __repr__(self) -> str:
        return text(of_pack(self._items))

    def _repr_html_(self) -> str:
        return html([*of_pack(self._items), *pictures(self._items)])

    def __copy__(self) -> ImageDataset:
        """Return a copy on the same open pack; changes of its settings do not affect the original."""
        alike: ImageDataset = object.__new__(type(self))
        alike.__dict__.update(self.__dict__)
        alike._items, alike._whole = copy.copy(self._items), self._whole or self
        return alike

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_anew, (own_class(type(self)), dict(self.__dict__))

    def _require_format(self, reader: Reader) -> None:
        """Raise NotAPackError if this class does not read the format of the pack."""
        format = reader.manifest.format
        if self._format not in (None, format):
            dataset = FORMATS[format].dataset if format in FORMATS else "open_dataset"
            raise NotAPackError(f"{printable(reader.path)}: is a pack of the format {format}; read it with {dataset}")


def items_of(dataset: ImageDataset) -> PackItems:
    """Return the samples and item settings of a dataset, which loaders read."""
    return dataset._items


def _require_threads(threads: object) -> None:
    """Raise TypeError or ValueError if a number of threads is not a whole number of 1 or more."""
    if threads is None:  # `require_count` accepts None, which for other options means the default
        raise OptionTypeError("threads must be a whole number, not None")
    require_count("threads", threads)


def _made_anew(cls: type, attributes: dict[str, Any]) -> Any:
    """Return an unpickled dataset with these attributes; its class is the result of `as_vision` in this process."""
    dataset: Any = object.__new__(as_vision(cls))
    dataset.__dict__.update(attributes)
    return dataset


def as_vision(cls: type) -> type:
    """Return `cls`, or a subclass that also is a torchvision `VisionDataset` if torchvision has been imported.

    Code that calls ``isinstance(dataset, VisionDataset)`` has imported torchvision already. Other code does not need
    the import, which would take as much time as importing torch.
    """
    vision = sys.modules.get("torchvision.datasets.vision")
    base = getattr(vision, "VisionDataset", None)  # missing while torchvision is being imported
    return cls if base is None or issubclass(cls, base) else _joined(cls, base)


def own_class(cls: type) -> type:
    """Return the class that was passed to `as_vision`; pickle can find this class by its name."""
    return cls.__dict__.get("_own_class", cls)  # type: ignore[no-any-return]


@functools.cache
def _joined(cls: type, base: type) -> type:
    members: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": cls.__module__, "_own_class": cls}
    members["__qualname__"] = cls.__qualname__
    return type(cls.__name__, (cls, base), members)


_REQUEST = 3 << 17  # bytes of neighbouring samples that one request fetches
_AHEAD, _AHEAD_IN_MEMORY = 1 << 29, 1 << 27  # bytes that are requested ahead, if a cache is on disk or in memory
_SIZES = 1000  # samples from which the mean size is estimated

_CACHED = {"decoder", "fields", "_mask_dtypes"}
"""The attributes that are computed from other attributes when needed, and are neither pickled nor copied."""


class PackItems(TorchDataset):
    """The samples of an open pack and the settings of their items: the part of an `ImageDataset` that loaders read.

    Parameters
    ----------
    name : str
        The name of the dataset's class, for descriptions.
    reader : Reader
    compiled : Compiled
        The settings of items, and the steps compiled from these settings.
    library : str
        The library that decodes ordinary JPEGs.
    seed : int, optional
        The seed of crops and augmentations; without it they are drawn from torch's generator.
    threads : int
        The number of threads that make the items of a batch.
    replaced : Replaced, optional
        The record of unreadable samples, which other samples replace; None if an unreadable sample is an error.

    Attributes
    ----------
    view : SampleView
        The samples; at first all samples of the pack.
    item_settings : ItemSettings
        The settings of items; they may be replaced at any time.
    epochs : Epochs
    pool : Pool
    """

    threads: int = 1  # replaces the abstract property of the base class; each instance has its own value

    def __init__(
        self,
        name: str,
        reader: Reader,
        compiled: Compiled,
        *,
        library: str,
        seed: int | None,
        threads: int,
        replaced: Replaced | None,
    ) -> None:
        self.name, self.reader, self.library = name, reader, library
        self.seed, self.threads, self.replaced = seed, threads, replaced
        self.view, self.pool = SampleView(reader), Pool()
        self.epochs = Epochs(len(reader), printable(reader.place.as_written))
        self.item_settings = compiled.settings
        self._own_steps: Compiled | None = compiled
        self._loaders_steps: Compiled | None = None

    def use_steps(self, pipeline: Pipeline) -> None:
        """Make items with these steps until a setting changes."""
        settings = self.item_settings
        self._own_steps = Compiled(settings, settings.transform, None, pipeline)

    def warn_of_losses(self) -> None:
        """Warn about slow decoding, and about bits or bands of images that the mode discards."""
        if self.library == "auto":
            warn_of_slow_decoding()
        if (parts := self.item_settings.parts) is None or parts.with_image:
            warn_of_lost_numbers(self.reader, self.item_settings.mode)

    def __copy__(self) -> PackItems:
        """Return a copy that shares the open pack, the threads and the epoch, but has its own settings and samples."""
        alike = object.__new__(PackItems)
        alike.__dict__.update(self.__getstate__())
        return alike

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _CACHED}
        return {**state, "_own_steps": None, "_loaders_steps": None}

    def frozen_copy(self) -> PackItems:
        frozen = object.__new__(PackItems)
        _ = self.pipeline, self.decoder, self.fields  # made here, so that the next pass need not make them
        frozen.__dict__.update(self.__dict__)
        return frozen

    @property
    def pipeline(self) -> Pipeline:
        """The steps that make an item, compiled again if a setting or a step of a fused transform has changed."""
        settings, steps = self.item_settings, self._own_steps
        if steps is None or not steps.fits(settings, settings.transform):
            steps = self._own_steps = settings.compiled(settings.transform)
        return steps.pipeline

    def pipeline_with(self, transform: Transform) -> Pipeline:
        """Return the steps that make an item; a Loader's transform, if not None, replaces the dataset's own."""
        if transform is None:
            return self.pipeline
        settings, steps = self.item_settings, self._loaders_steps
        if steps is None or not steps.fits(settings, transform):
            steps = self._loaders_steps = settings.compiled(transform)
        return steps.pipeline

    @cached_property
    def decoder(self) -> BatchDecoder:
        return BatchDecoder(self.reader, self.library, self.item_settings.mode)

    @cached_property
    def fields(self) -> FieldDecoder | None:
        """The decoder of fields if items are dicts or contain the target of a detector; otherwise None."""
        parts = self.item_settings.parts
        return None if parts is None else FieldDecoder(self.reader, parts, self.library)

    @cached_property
    def _mask_dtypes(self) -> dict[str, str]:
        parts, fields = self.item_settings.parts, self.fields
        if parts is None or fields is None:
            return {}
        return {name: tensor_dtype(fields.dtype_of(name)) for name in parts.masks}

    def item(self, index: int, seed: int | None) -> Any:
        """Return an item. The crop depends on `seed` and the epoch; without a seed, on torch's generator."""
        pipeline = self.pipeline
        if not pipeline.takes_one:
            return self.items_of_current_epoch([index], seed)[0]
        number = self.view.row_of(index)
        random = None if seed is None or not pipeline.randoms else self._random(number, seed, pipeline.randoms)
        try:
            row = self.reader.row(number)
            label = self.view.label_of(index, row.label)
            return pipeline.sample(self.reader, self.decoder.sample_decoder, row, label, random)
        except SAMPLE_ERRORS:
            if self.replaced is None:
                raise
        return self.replaced_items(np.array([index % len(self)]), seed)[0]

    def _random(self, number: int, seed: int, count: int) -> npt.NDArray[np.float64]:
        """Return the random numbers that choose the crop of a row in this epoch."""
        rows = np.array([number])
        self.epochs.read(rows)
        numbers: npt.NDArray[np.float64] = uniforms(seed, self.epochs.epoch, rows, count)[0]
        return numbers

    def __len__(self) -> int:
        return len(self.view)

    def __repr__(self) -> str:
        return text(of_pack(self)).partition("\n")[0]

    def traits(self, transform: Transform = None) -> Traits:
        pipeline = self.pipeline_with(transform)
        steps = pipeline.transform, pipeline.target_transform, pipeline.transforms
        return Traits(
            seed=self.seed,
            random=self.pipeline.randoms > 0,
            transforms=any(step is not None for step in steps),
            views=len(self.item_settings.views or ()),
            parts=pipeline.parts,
        )

    def settings(self) -> dict[str, str]:
        settings = {name: getattr(self.item_settings, name) for name in ("crop", "augment", "views")}
        return {name: " ".join(repr(value).split()) for name, value in settings.items() if value is not None}

    def identity(self) -> str:
        return self.view.identity()

    def describe(self, index: int) -> str:
        return self.view.describe(index)

    def layout(self, transform: Transform = None) -> Layout | None:
        """Return the layout of batches into which images are decoded directly; None if items are made one by one."""
        pipeline = self.pipeline_with(transform)
        sizes, parts = [crop.size for crop in pipeline.crops if crop.size is not None], pipeline.parts
        fixed = sizes and len(sizes) == len(pipeline.crops) and pipeline.leaves_pixels
        if not fixed or (parts is not None and parts.is_target):
            return None
        with_images = parts is None or parts.with_image
        if with_images and pipeline.mode != "RGB":
            return None
        views = [view_part(number, size) for number, size in enumerate(sizes)]
        images = (views if pipeline.views else [BatchPart(IMAGES, sizes[0], 3)]) if with_images else []
        masks = [BatchPart(name, sizes[0], 1, dtype) for name, dtype in self._mask_dtypes.items()]
        return Layout((*images, *masks)) if images or masks else None

    def labels(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of a batch after `target_transform`, which may return any objects."""
        labels, transform = self.view.labels_of(indices), self.item_settings.target_transform
        return labels if transform is None else [transform(label) for label in labels.tolist()]

    def choose(self, indices: Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of N samples; return an (N,) array of CROP, or an (N, V) array for V views."""
        rows, keys = self.view.rows_and_keys(indices)
        return self._crops(self.pipeline, rows, epoch, seed, keys)

    def begin(
        self, indices: Ints, choices: Crops, batch: int, step: int, numbers: Numbers | None = None
    ) -> BatchOpener:
        if self.fields is not None:
            return functools.partial(self._open_with_fields, indices, choices, step, numbers)
        prepared = self.decoder.prepare(self.view.rows_in_turns(indices), choices, batch, step, numbers)
        return lambda some, memory: prepared.batch(some, images_in(memory))

    def _open_with_fields(  # noqa: PLR0917
        self, indices: Ints, choices: Crops, step: int, numbers: Numbers | None, some: slice, memory: Memory
    ) -> SliceDecoder:
        """Return the function that decodes a slice of a batch whose items are dicts."""
        own, crops = indices[some], choices[some]
        rows, pixels, decode_images = self.view.rows_in_turns(own), images_in(memory), None
        if pixels is not None:
            decode_images = self.decoder.prepare(rows, crops, len(rows), step, numbers).batch(slice(None), pixels)
        fields = self.fields
        assert fields is not None

        def decode(part: slice) -> list[Values]:
            if decode_images is not None:
                decode_images(part)
            targets = self.labels(own[part]) if "label" in fields.parts.names else [None] * len(rows[part])
            labels = targets.tolist() if isinstance(targets, np.ndarray) else targets
            share = {name: tensors[part] for name, tensors in memory.items()}
            return fields.samples(rows[part], labels, *followed_by_fields(crops[part]), share)

        return decode

    def items(
        self, indices: Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        rows, keys = self.view.rows_and_keys(indices)
        labels = self.view.labels_of(np.asarray(indices, np.int64))
        before = seeder(seed, epoch, keys) if seeding else None
        return self._make_items(rows, keys, labels, epoch, seed, self.pipeline_with(transform), before)

    def items_of_current_epoch(self, indices: Sequence[int] | Ints, seed: int | None) -> list[Any]:
        """Return items with the crops of the dataset's current epoch.

        The crops depend on `seed` and the epoch; without a seed they are drawn from torch's generator.
        """
        pipeline, indices = self.pipeline, normalized_indices(indices, len(self))
        rows = self.view.rows_in_turns(indices)
        if seed is not None and pipeline.randoms:
            self.epochs.read(rows)
        try:
            return self._make_items(rows, rows, self.view.labels_of(indices), self.epochs.epoch, seed, pipeline)
        except SAMPLE_ERRORS:
            if self.replaced is None:
                raise
        return self.replaced_items(indices, seed)

    def replaced_items(self, indices: Ints, seed: int | None) -> list[Any]:
        """Return items like `items_of_current_epoch`, but with other samples in place of unreadable ones."""
        view, epoch = self.view, self.epochs.epoch
        chosen = self._readable(indices, epoch, seed)
        rows, keys = view.rows_and_keys(chosen)
        keys = np.where(chosen == indices, rows, keys)
        return self._make_items(rows, keys, view.labels_of(chosen), epoch, seed, self.pipeline)

    def replacements(self, indices: Ints, epoch: int, seed: int) -> Ints | None:
        return None if self.replaced is None else self._readable(indices, epoch, seed)

    def require_readable(self, index: int, epoch: int, seed: int | None) -> None:
        """Make an item without transforms; raises one of the errors in `SAMPLE_ERRORS` if the sample cannot be read."""
        view, indices = self.view, np.array([index])
        rows, keys = view.rows_and_keys(indices)
        self._make_items(rows, keys, view.labels_of(indices), epoch, seed, self.pipeline.without_transforms())

    def fetching(self, block: int) -> Fetching | None:
        reader = self.reader
        if not reader.remote:
            return None
        sizes, kept = reader.table.size[:: len(reader) // _SIZES + 1], reader.place.kept
        mean = int(sizes.mean()) + 1 if len(sizes) else 1
        together = max(1, min(_REQUEST // mean, block)) if kept else 1
        return Fetching(together, (_AHEAD if kept else _AHEAD_IN_MEMORY) // mean)

    def ahead(self, indices: Ints) -> None:
        if self.reader.remote:
            self._request(self.view.rows_in_turns(indices), urgent=False)

    def batch_layout(self) -> Layout:
        pipeline, settings = self.pipeline, self.item_settings
        if pipeline.parts is not None:
            raise ItemsError("the items have fields")
        if pipeline.lookup is not None and pipeline.row_size is not None:
            images = Layout((BatchPart(IMAGES, pipeline.row_size, 3),))
            return images.with_numbers(pipeline.lookup, keep_levels=False)
        layout = self.layout()
        if layout is None:
            unfused = not settings.fuse and settings.transform is not None
            hint = "; with fuse=True packer does the first steps of the transform itself" if unfused else ""
            raise ItemsError(
                pipeline.left + hint if pipeline.mode == "RGB" else f"the images have mode={pipeline.mode!r}"
            )
        return layout

    @property
    def seeded(self) -> bool:
        return self.seed is not None

    @property
    def crop_epoch(self) -> tuple[int, int]:
        return self.epochs.epoch, self.epochs.moves

    def _readable(self, indices: Ints, epoch: int, seed: int | None) -> Ints:
        assert self.replaced is not None
        return self.replaced.substitutes(indices, len(self), lambda index: self.require_readable(index, epoch, seed))

    def _make_items(  # noqa: PLR0917
        self,
        rows: Ints,
        keys: Ints,
        labels: Labels,
        epoch: int,
        seed: int | None,
        pipeline: Pipeline,
        before: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Return the items of the samples at `rows`. With a seed, crops depend only on seed, epoch and `keys`."""
        if self.reader.remote:
            self._request(np.sort(rows), urgent=True)

        def choose(part: slice) -> Crops:
            return self._crops(pipeline, rows[part], epoch, seed, keys[part])

        maker = ItemMaker(
            self.decoder,
            rows,
            labels.tolist(),
            pipeline,
            choose,
            self.fields,
            seeded=seed is not None,
            before=before,
        )
        return self.pool.items(self.threads, maker.make, range(len(rows)))

    def _crops(self, pipeline: Pipeline, rows: Ints, epoch: int, seed: int | None, keys: Ints) -> Crops:
        if pipeline.views:
            return self.decoder.choose_views(pipeline.views, rows, epoch, seed, keys)
        return self.decoder.choose_crops(pipeline.crop or Compose([]), rows, epoch, seed, keys, pipeline.augment)

    def _request(self, rows: Ints, *, urgent: bool) -> None:
        """Request all bytes of several samples together; a single image is requested when it is read."""
        reader, parts = self.reader, self.item_settings.parts
        names = () if parts is None else parts.names
        blobs = [name for name in names if name in reader.fields and reader.fields[name].is_blob]
        if len(rows) > 1 or blobs or not urgent:
            reader.ahead(rows, parts is None or parts.with_image, blobs, urgent=urgent)


_WATCHED = 1 << 12  # samples, spread over the pack, whose reading is recorded
_FEW = 16  # samples; with fewer, a second pass looks the same as reading single samples again
_EPOCH, _READ, _AGAIN, _WARNED, _MOVES, _NUMBERS = range(6)


class Epochs:
    """The epoch that determines crops, and a record of the samples read in this epoch, in memory shared with workers.

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
        self._use(memory.share_memory_())  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {"_pack": self._pack, "_step": self._step, "_memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._use(self._memory.share_memory_())  # type: ignore[no-untyped-call]

    def _use(self, memory: torch.Tensor) -> None:
        """Use shared memory that holds the whole state."""
        self._memory, numbers = memory, memory.numpy()
        self._numbers: npt.NDArray[np.int64] = numbers[: 8 * _NUMBERS].view(np.int64)
        self._seen: npt.NDArray[np.uint8] = numbers[8 * _NUMBERS :]

    @property
    def epoch(self) -> int:
        return int(self._numbers[_EPOCH])

    @property
    def moves(self) -> int:
        """The number of calls that set the epoch."""
        return int(self._numbers[_MOVES])

    def move_on(self, epoch: int) -> None:
        """Set the epoch, on which crops depend, and forget which samples were read."""
        epoch, moves = epoch_of(epoch), self.moves + 1
        self._seen[:] = 0
        self._numbers[:] = 0
        self._numbers[_EPOCH], self._numbers[_MOVES] = epoch, moves

    def read(self, rows: Ints) -> None:
        """Record the samples that get crops of this epoch; warn once if an earlier pass had the same crops.

        Some of the samples are watched: the shared memory records which of them were read in this epoch. If most of the
        watched samples are read again, a second pass is running. If two processes count at the same time, a count may
        be lost, and the warning comes a little later.
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
                f"{self._pack}: the dataset is read a second time in epoch {self.epoch}, and because it has a seed=, "
                "all crops are the same: call dataset.set_epoch(epoch) before each pass, or leave out seed="
            )


class LostNumbersWarning(UserWarning):
    """Warns that the images of a pack have more bits or bands than the items of the dataset contain."""


def warn_of_lost_numbers(reader: Reader, mode: str) -> None:
    """Warn if the pack's findings show that some images turn white or black in this mode, or lose bands."""
    lost = remark(reader.manifest, mode)
    if lost is not None:
        warn(
            f"{printable(reader.base if isinstance(reader, IndexReader) else reader.place.as_written)}: {lost}",
            LostNumbersWarning,
        )


def remark(manifest: Manifest, mode: str) -> str | None:
    """Return a sentence about the bits and bands of a pack's images that a mode discards; None if it discards none."""
    clipped = manifest.findings.get(CLIPPED, 0) if mode == "RGB" else 0
    bands = _with_more_bands(manifest.findings) if mode != "unchanged" else 0
    if manifest.codec != "keep":
        if not clipped:
            return None
        return (  # such a pack was made by an earlier version of packer, which did not refuse these images
            f"{_images(clipped)} 16 bits or floats per pixel, which became white or black when they were stored as "
            "8-bit RGB. Convert the files again, with --to-8-bit type or --to-8-bit file"
        )
    remarks = []
    if clipped:
        remarks.append(f"{_images(clipped)} 16 bits or floats per pixel, which turn white or black as 8-bit RGB")
    if bands:
        remarks.append(f"{_images(bands)} more bands (channels) than the three of RGB")
    if not remarks:
        return None
    return f"{'; '.join(remarks)}, as with ImageFolder. mode='unchanged' returns the numbers as they are stored"


def _with_more_bands(findings: Mapping[str, int]) -> int:
    return sum(count for finding, count in findings.items() if bands_not_shown(finding))


def _images(count: int) -> str:
    return "1 image has" if count == 1 else f"{count:,} images have"
