"""A pack as a PyTorch dataset: a drop-in replacement for torchvision's ImageFolder."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._formats import FORMATS, Reader, open_pack
from packer._images.decode import fast_decoder, warn_of_slow_decoding
from packer._images.geometry import Crops
from packer._limits import require_count
from packer._loading import staging
from packer._loading.drawing import seeder
from packer._loading.epochs import Epochs
from packer._loading.folder import require_known_loader, valid_rows
from packer._loading.items import item_maker
from packer._loading.pool import Pool
from packer._loading.preparation import OUTPUTS, Preparation, Transform, require_callable
from packer._loading.prepared import Prepared
from packer._loading.selection import meeting, places_in
from packer._loading.vision import as_vision, own_class
from packer._table import Ints, Labels
from packer.crops import Compose, Crop
from packer.errors import NotAPackError, printable
from packer.samplers._uniforms import seed_of

__all__ = ["ImageDataset"]


class ImageDataset(Prepared):
    """A pack as a map-style dataset of ``(image, label)``, with the interface of torchvision's ImageFolder.

    Parameters
    ----------
    root : path
        The pack.
    transform, target_transform : callable, optional
        Applied to each image and to each label.
    loader : callable, optional
        One of torchvision's loaders, as ImageFolder takes it. It is not used: the images of a pack are no files.
    is_valid_file : callable, optional
        Asked with the name of every sample, a str, whether the sample belongs to the dataset.
    allow_empty : bool
        Whether `is_valid_file` may leave a class without samples.
    transforms : callable, optional
        Applied to image and label together, instead of the two: ``image, label = transforms(image, label)``.
    output : {"tensor", "numpy", "pil", "bytes"}, optional
        The form of an image, and what a transform gets. By default a PIL image where there is a transform, as
        ImageFolder gives to it, or a tensor where there is none, or the transform is one of torchvision's that takes
        tensors only.

        * ``tensor``: (3, height, width) uint8 `torch.Tensor`, RGB, 0 to 255; its memory is laid out channels last.
        * ``numpy``: (height, width, 3) uint8 array, RGB, writable.
        * ``pil``: `PIL.Image.Image` of mode RGB, as ImageFolder gives it to its transform.
        * ``bytes``: the stored bytes, undecoded.
    crop : packer crop, optional
        Which part of each image is wanted, at which size, such as ``packer.RandomResizedCrop(224)``, or a list of crops
        one after the other. The part is chosen before decoding, so that the rest is not decoded.
    fuse : bool
        Whether packer does by itself what `transform` begins with: crops, resizings, mirrorings and paddings of
        torchvision's or timm's, and after these conversions such as ToTensor and Normalize. The same random numbers are
        drawn. Resized pixels are those of torchvision on tensors, hardly ever more than a level from those on PIL
        images. ``repr(dataset)`` shows what runs where.
    seed : int, optional
        Makes a random crop a function of seed, epoch (`set_epoch`) and sample, whoever reads it, and however often.
        Without a seed crops are drawn from torch's generator, others each time an image is read, as torchvision's
        transforms do.
    check : {"always", "never"}
        Whether every read is compared with the sample's checksum.
    decoder : {"auto", "turbojpeg", "opencv", "pillow"}
        Which library decodes ordinary JPEGs. The choice changes the speed; the pixels are Pillow's with each.
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

    Attributes
    ----------
    classes : list of str
    class_to_idx : dict of str to int
    samples, imgs : sequence of (str, int)
        Name and label of every sample. The names are relative to the converted directory.
    targets : (N,) int64 or float64 array
        The labels: class ids, -1 for an unlabeled sample; or numbers, where the pack has no classes. Other labels, as
        many, may be assigned.
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
        transforms: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        output: str | None = None,
        crop: Crop | Sequence[Crop] | None = None,
        fuse: bool = False,
        seed: int | None = None,
        check: str = "always",
        decoder: str = "auto",
        scaled_decode: bool = False,
        threads: int = 1,
        cache: str | None = None,
        stage: str | os.PathLike[str] | None = None,
    ) -> None:
        self.__class__ = as_vision(type(self))
        if output is not None and output not in OUTPUTS:
            raise ValueError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        if cache not in (None, "ram"):
            raise ValueError(f"cache is None or 'ram', not {cache!r}")
        require_count("threads", threads)
        fast_decoder(decoder)  # refuses an unknown or missing one here rather than in a worker
        require_known_loader(loader)
        if type(self).find_classes is not ImageDataset.find_classes:
            raise TypeError("find_classes of a pack cannot be overridden: its classes were chosen by `packer convert`")
        require_callable("transforms", transforms)
        self._output, self._fuse, self._transforms = output, fuse, transforms
        self.transform, self.target_transform = transform, target_transform
        self._library = decoder
        self._scaled = scaled_decode
        self.crop = crop
        self.seed = None if seed is None else seed_of(seed)
        self.threads = threads
        self._pool = Pool()
        self._whole: ImageDataset | None = None  # of which this dataset is a selection
        self.reader: Reader = open_pack(root, check=check)
        self._require_format()
        if stage is not None:
            self.reader.close()
            root = staging.stage(root, stage)
            self.reader = open_pack(root, check=check)
        self._epochs = Epochs(len(self.reader), printable(root))
        self._kept = staging.keep(root) if cache == "ram" else staging.Kept()
        _ = self._preparation  # which says at once where fuse= changes nothing
        if is_valid_file is not None:
            self._rows = valid_rows(self.samples, self.classes, is_valid_file, allow_empty)
        if decoder == "auto" and output != "bytes":
            warn_of_slow_decoding()

    def _require_format(self) -> None:
        """Raise NotAPackError where the pack is of another format than this class reads."""
        format = self.reader.manifest.format
        if self._format not in (None, format):
            self.reader.close()
            dataset = FORMATS[format].dataset if format in FORMATS else "open_dataset"
            raise NotAPackError(f"{printable(self.reader.path)}: a pack of the format {format}; read it with {dataset}")

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
        """Return image and label; for a slice, a dataset of these samples, as `select` does.

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

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return a batch of items, in the order asked for; DataLoader calls this."""
        if type(self).__getitem__ is not ImageDataset.__getitem__:  # of a class that adds to the items
            return [self[index] for index in indices]
        return self._own_items(indices, self.seed)

    def select(self, indices: Sequence[int] | Ints) -> ImageDataset:
        """Return a dataset of some of the samples, in the order of `indices`, on the same open pack.

        It has the settings of this dataset, and `targets` and `samples` of its own; its crops are those that the same
        samples have here. An epoch that is set counts for both.
        """
        selection = self._alike()
        places = places_in(indices, len(self))
        selection._rows = places if self._rows is None else self._rows[places]
        selection._labels = None if self._labels is None else self._labels[places]
        return selection

    def where(self, condition: str | npt.ArrayLike) -> ImageDataset:
        """Return a dataset of the samples that meet a condition, in their order, on the same open pack, as `select`.

        Parameters
        ----------
        condition : str or (N,) bool array
            A mask, such as ``dataset.columns["age"] > 30``, of which nothing masked is chosen. Or a text such as
            ``'age > 30 and split == "train"'``, of the names in `columns`: comparisons, ``in [...]``,
            ``glob "train/*"``, ``is null``, ``and``, ``or``, ``not``. As in SQL, a value that is not there meets
            neither a comparison nor its opposite.

        Raises
        ------
        OptionError
            If the text is no condition on the dataset's columns; it says at which character.
        ValueError
            If a mask is none of N bools.
        CorruptPackError
            If a column that is read is damaged.
        """
        return self.select(meeting(condition, self._columns, len(self)))

    def _alike(self) -> ImageDataset:
        """Return a dataset of the same samples and settings, on the same open pack, whose settings may be changed."""
        alike: ImageDataset = object.__new__(type(self))
        alike.__dict__.update(self._settings())
        alike._whole = self._whole or self
        return alike

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the crops that `seed` makes, also in DataLoader workers that run already."""
        self._epochs.move_on(epoch)

    def _own_items(self, indices: Sequence[int] | Ints, seed: int | None) -> list[tuple[Any, Any]]:
        """Return items with the crops that a seed and the dataset's epoch say, or drawn from torch's generator."""
        preparation, rows = self._preparation, self._rows_of(indices)
        if seed is not None and preparation.crop is not None and preparation.crop.randoms:
            self._epochs.read(rows)
        return self._made(rows, rows, self._labels_of(indices), self._epochs.epoch, seed, preparation)

    def _made(  # noqa: PLR0917
        self,
        rows: Ints,
        keys: Ints,
        labels: Labels,
        epoch: int,
        seed: int | None,
        preparation: Preparation,
        before: Callable[[int], None] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Return items of places in the pack. With a seed, seed, epoch and `keys` decide on the crops."""
        crop = preparation.crop or Compose([])

        def choose(places: Sequence[int]) -> Crops:
            return self._decoder.choose_crops(crop, rows[places], epoch, seed, keys[places])

        make = item_maker(
            self._decoder, rows, labels.tolist(), preparation, choose, seeded=seed is not None, before=before
        )
        return self._pool.items(self.threads, make, range(len(rows)))

    # What follows is the Loader's: see `Readable`.

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[tuple[Any, Any]]:
        """Return items, with the crops of `epoch` and `seed`; `transform` replaces the dataset's.

        With `seeding` what the transforms draw is a function of `epoch`, `seed` and the sample as well.
        """
        rows, keys = self._rows_and_keys(indices)
        labels = self._labels_of(np.asarray(indices) % len(self))
        before = seeder(seed, epoch, keys) if seeding else None
        return self._made(rows, keys, labels, epoch, seed, self._prepared_with(transform), before)

    def _transforms_items(self, transform: Transform) -> bool:
        """Tell whether something of other people's is applied to what packer made."""
        made = self._prepared_with(transform)
        return any(step is not None for step in (made.transform, made.target_transform, made.transforms))

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of a batch, (N,) of CROP; as `BatchDecoder.choose_crops`, of the dataset's crop."""
        rows, keys = self._rows_and_keys(indices)
        return self._decoder.choose_crops(self._preparation.crop or Compose([]), rows, epoch, seed, keys)

    def _decode_into(self, indices: Ints, crops: Crops, images: torch.Tensor | list[torch.Tensor]) -> None:
        """Decode a batch into its place; as `BatchDecoder.decode_into`."""
        self._decoder.decode_into(self._rows_of(indices % len(self)), crops, images)

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of a batch, after `target_transform`, which may make anything of them."""
        labels = self._labels_of(indices % len(self))
        return labels if self.target_transform is None else [self.target_transform(label) for label in labels.tolist()]

    def _settings(self) -> dict[str, Any]:
        """Return the attributes without what is made again when it is asked for."""
        made_again = (
            "class_to_idx",
            "_decoder",
            "_earlier",
            "_prepared",
            "_other_preparation",
            "_stored_labels",
            "_stored_names",
        )
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

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
