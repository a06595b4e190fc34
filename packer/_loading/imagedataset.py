"""A pack as a PyTorch dataset: a drop-in replacement for torchvision's ImageFolder."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._formats import FORMATS, Reader, open_pack
from packer._images.decode import fast_decoder, warn_of_slow_decoding
from packer._loading import staging
from packer._loading.batched import Batched
from packer._loading.depth import warn_of_lost_numbers
from packer._loading.epochs import Epochs
from packer._loading.folder import require_known_loader, valid_rows
from packer._loading.parts import mode_of_images, parts_of, require_used, target_parts
from packer._loading.pool import Pool
from packer._loading.preparation import OUTPUTS, require_callable
from packer._loading.replacing import replaced_from
from packer._loading.vision import as_vision, own_class
from packer._storage.limits import require_count
from packer._storage.place import choose_reading
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import NotAPackError, printable
from packer.samplers._uniforms import seed_of

__all__ = ["ImageDataset"]

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
