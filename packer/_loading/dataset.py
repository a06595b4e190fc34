"""Packs as PyTorch datasets: drop-in replacements for torchvision's ImageFolder."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import Dataset

from packer._formats import FORMATS, Reader, open_pack
from packer._images import native
from packer._images.decode import decode, decoder_advice, fast_decoder
from packer._images.geometry import Box, affordable, from_corner, require_affordable, touched
from packer._images.probe import MAX_PIXELS
from packer._images.rectangle import RectangleDecoder, require_drawable, resize_into
from packer._loading import staging
from packer._loading.crops import Boxes, Crop, Full, uniforms
from packer._storage.locations import NOWHERE
from packer._table import Buffer, Names, Row
from packer.errors import CorruptPackError, ImageError, NotAPackError, printable

__all__ = [
    "OUTPUTS",
    "HDF5ImageDataset",
    "ImageDataset",
    "LMDBImageDataset",
    "PthImageDataset",
    "Samples",
    "open_dataset",
]

Ints = npt.NDArray[np.int64]

_TOGETHER = 32  # images whose files are held open at a time, and which C draws in one call unless they are very large

_of_a_pool = threading.local()  # has `mark` in the threads of a dataset

OUTPUTS = ("tensor", "numpy", "pil", "bytes")


class Samples(Sequence[tuple[str, int]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for."""

    def __init__(self, names: Names, labels: Ints) -> None:
        self._names = names
        self._labels = labels

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._names[index], int(self._labels[index])

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"


class ImageDataset(Dataset[tuple[Any, Any]]):
    """A pack as a map-style dataset of ``(image, label)``.

    Parameters
    ----------
    path : path
        The pack.
    transform, target_transform : callable, optional
        Applied to each image and to each label.
    output : {"tensor", "numpy", "pil", "bytes"}
        What an image is:

        * ``tensor``: (3, height, width) uint8 `torch.Tensor`, RGB, 0 to 255; its memory is laid out channels last.
        * ``numpy``: (height, width, 3) uint8 array, RGB, writable.
        * ``pil``: `PIL.Image.Image` of mode RGB, what ImageFolder gives to its transform.
        * ``bytes``: the stored bytes, undecoded.
    check : {"always", "never"}
        Whether every read is compared with the sample's checksum.
    decoder : {"auto", "turbojpeg", "opencv", "pillow"}
        Which library decodes ordinary JPEGs. It decides the speed; the pixels are Pillow's with each.
    crop : packer.Crop, optional
        Which part of each image is wanted, at which size: chosen before decoding, so that the rest is not decoded.
    scaled_decode : bool
        Whether the decoder may halve an image whose crop is at least twice as large as wanted. Faster; the pixels
        differ a little from those of a whole decoding.
    seed : int
        Of the crops. A random crop is a function of seed, epoch (`set_epoch`) and index.
    threads : int
        How many threads decode a batch that a DataLoader asks for.
    cache : {"ram"}, optional
        Read the whole pack into memory that all workers and ranks of a node share, and keep it there for as long as
        the dataset lives; see `packer._loading.staging.keep`.
    stage : path, optional
        Copy the pack to this directory first, once a node, and read it there; see `packer._loading.staging.stage`.

    Attributes
    ----------
    classes : list of str
    class_to_idx : dict of str to int
    samples, imgs : sequence of (str, int)
        Name and label of every sample. The names are relative to the converted directory.
    targets : (N,) int64 array
        The labels.
    reader : packer._formats.Reader
        The pack itself: its manifest, its table, its bytes.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the pack cannot be opened.

    Notes
    -----
    Works with any start method of DataLoader workers, with and without `persistent_workers`, and with several
    datasets on one pack. A pickled dataset holds its path and its settings; it opens the pack where it is unpickled.
    """

    _format: str | None = None  # by default whatever the content is

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        output: str = "tensor",
        check: str = "always",
        decoder: str = "auto",
        crop: Crop | None = None,
        scaled_decode: bool = False,
        seed: int = 0,
        threads: int = 1,
        cache: str | None = None,
        stage: str | os.PathLike[str] | None = None,
    ) -> None:
        if output not in OUTPUTS:
            raise ValueError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        if crop is not None and not isinstance(crop, Crop):
            raise TypeError(f"crop is one of packer._loading.crops, such as RandomResizedCrop(224), not {crop!r}")
        if crop is not None and output == "bytes":
            raise ValueError("a crop is made of pixels, which output='bytes' does not give")
        self.transform = transform
        self.target_transform = target_transform
        self.output = output
        self.decoder = decoder
        self.crop = crop
        self.scaled_decode = scaled_decode
        self.seed = seed
        self.threads = threads
        # In shared memory, so that the workers of a DataLoader see what `set_epoch` says.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        fast_decoder(decoder)  # refuses an unknown or missing one here rather than in a worker
        if cache not in (None, "ram"):
            raise ValueError(f"cache is None or 'ram', not {cache!r}")
        if stage is not None:
            path = staging.stage(path, stage)
        if cache == "ram":
            self._kept = staging.keep(path)  # as long as the dataset is there
        self.reader: Reader = open_pack(path, check=check)
        format = self.reader.manifest.format
        if self._format not in (None, format):
            dataset = FORMATS[format].dataset if format in FORMATS else "open_dataset"
            raise NotAPackError(f"{printable(os.fspath(path))}: a pack of the format {format}; read it with {dataset}")
        advice = decoder_advice() if decoder == "auto" and output != "bytes" else None
        if advice is not None:
            warnings.warn(advice, stacklevel=2)

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return image and label; IndexError out of range, CorruptPackError or ImageError on damage."""
        return self._items([self.reader.position(index)], int(self._epoch), self.seed, self.transform)[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return a batch of items, in the order asked for; DataLoader calls this."""
        return self.items(indices, int(self._epoch), self.seed)

    def items(
        self,
        indices: Sequence[int] | Ints,
        epoch: int,
        seed: int,
        transform: Callable[[Any], Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Return the items of `indices`, whose random crops are those of `epoch` and `seed`.

        `transform` takes the place of the dataset's.
        """
        transform = transform or self.transform
        if self.threads == 1 or len(indices) < 2 or hasattr(_of_a_pool, "mark"):  # a thread would wait for itself
            return self._items(indices, epoch, seed, transform)
        step = -(-len(indices) // self.threads)
        parts = [indices[start : start + step] for start in range(0, len(indices), step)]
        made = [self._pool.submit(self._items, part, epoch, seed, transform) for part in parts]
        try:
            return [item for part in made for item in part.result()]
        finally:
            wait(made)  # after an error as well: nobody reads on behind the caller's back

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform: exactly those pixels of the whole image.

        Of a tiled JPEG only the tiles that the rectangle touches are decoded, so a small rectangle of a huge image is
        as cheap as a small image.

        Parameters
        ----------
        top, left, height, width : int
            In pixels; the rectangle lies inside of the image.

        Returns
        -------
        (3, height, width) uint8 tensor, (height, width, 3) uint8 array or PIL image
            As `output` says.

        Raises
        ------
        ValueError
            If the rectangle is empty or does not lie inside of the image.
        IndexError, CorruptPackError, ImageError
            As for ``dataset[index]``.
        """
        if self.output == "bytes":
            raise ValueError("a region is made of pixels, which output='bytes' does not give")
        index = self.reader.position(index)
        top, left, height, width = map(operator.index, (top, left, height, width))
        full_height, full_width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        if not (height >= 1 <= width and 0 <= top <= full_height - height and 0 <= left <= full_width - width):
            raise ValueError(
                f"a rectangle of {width} x {height} pixels from ({left}, {top}) does not lie inside of sample {index}, "
                f"which has {full_width} x {full_height}"
            )
        plan = np.array([(top, left, height, width, height, width, 0, 0, height, width, False)], np.int64)
        out = torch.empty((1, height, width, 3), dtype=torch.uint8)
        self.draw([index], plan, out.permute(0, 3, 1, 2))
        return self._shown(out[0].numpy())

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the random crops are those of; DataLoader workers that run already learn it too."""
        self._epoch.fill_(epoch)

    def boxes(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Boxes:
        """Choose the crops of a batch.

        Raises
        ------
        CorruptPackError
            If the table says of an image that it has no pixels, or others than there are data of.
        ImageError
            If what is wanted of an image has too many pixels, or needs far too many on the way.
        """
        self.reader.require_table()
        crop = self.crop if self.crop is not None else Full()
        places = self.reader.positions(indices)
        table = self.reader.table
        heights, widths = table.height[places].astype(np.int64), table.width[places].astype(np.int64)
        shorter = np.minimum(heights, widths)
        if shorter.min(initial=1) < 1:  # a stranger's table; a crop divides by it
            place = int(shorter.argmin())
            raise self._impossible(int(places[place]), int(heights[place]), int(widths[place]))
        if self.reader.manifest.codec == "raw":
            for wrong in np.flatnonzero(heights * widths * 3 != table.size[places])[:1]:
                raise self._other_size(int(places[wrong]), int(table.size[places[wrong]]))
        boxes = crop.boxes(heights, widths, uniforms(seed, epoch, places, crop.randoms))
        self._require_affordable(places, boxes)
        return boxes

    def labels(self, indices: Ints) -> torch.Tensor:
        """Return the labels of a batch, (N,) int64, after `target_transform`."""
        self.reader.require_table()
        labels = self.reader.table.label[indices]
        if self.target_transform is not None:
            return torch.as_tensor([self.target_transform(label) for label in labels.tolist()])
        return torch.from_numpy(labels)

    def draw(
        self,
        indices: Sequence[int] | Ints,
        plan: Ints,
        outs: torch.Tensor | Sequence[torch.Tensor],
    ) -> None:
        """Read N images, and decode, crop and resize them into their places.

        Where packer's own decoder is used, C reads, checks and draws dozens of them in one call, without Python's lock.
        What it leaves, which is other and damaged images, is read and drawn one by one.

        Parameters
        ----------
        indices : sequence of N int
        plan : (N, 11) int64 array
            What is wanted of each; see `packer._loading.crops.Boxes.plan`.
        outs : (N, 3, height, width) uint8 tensor or sequence of N (3, height, width) uint8 tensors
            Their memory is channels last.

        Raises
        ------
        ValueError
            If `outs` are other tensors than `plan` needs, or a rectangle does not lie inside of its image.
        IndexError, CorruptPackError, ImageError
            As for ``dataset[index]``.
        """
        positions, addresses = self.reader.positions(indices), _addresses(outs, plan)
        if len(positions) != len(plan):
            raise ValueError(f"{len(positions)} images are to be drawn, and the plan is for {len(plan)}")
        self.reader.require_table()
        decoder, codec = self._rectangle_decoder, self.reader.manifest.codec
        in_c = native.PREFERRED if codec == "raw" else decoder.native and codec in ("keep", "jpeg")
        order = np.argsort(self.reader.table.offset[positions])  # reads go through the file in one direction
        for begin in range(0, len(order), _TOGETHER):
            left = order[begin : begin + _TOGETHER]
            if in_c:
                left = left[self._draw_in_c(positions[left], plan[left], addresses[left])]
            for number, row, data in self.reader.read_rows(positions[left]):
                place = int(left[number])
                self._draw(row, data, Box.of(plan[place].tolist()), outs[place][None], in_c)

    @property
    def classes(self) -> list[str]:
        return self.reader.manifest.classes

    @functools.cached_property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    @functools.cached_property
    def targets(self) -> Ints:
        self.reader.require_column("label")
        return self.reader.table.label

    @property
    def samples(self) -> Samples:
        return Samples(self.reader.names, self.reader.table.label)

    @property
    def imgs(self) -> Samples:
        return self.samples

    @functools.cached_property
    def _rectangle_decoder(self) -> RectangleDecoder:
        return RectangleDecoder(self.reader.manifest.exif, self.decoder)

    @functools.cached_property
    def _pools(self) -> dict[tuple[int, int], ThreadPoolExecutor]:
        return {}

    @property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of this process, which end with the dataset; a fork leaves the threads of its parent behind."""
        key = os.getpid(), self.threads
        if key not in self._pools:
            made = ThreadPoolExecutor(self.threads, "packer", initializer=setattr, initargs=(_of_a_pool, "mark", True))
            return self._pools.setdefault(key, made)
        return self._pools[key]

    def _draw_in_c(self, positions: Ints, plan: Ints, addresses: Ints) -> list[int]:
        """Draw what can be read and drawn without Python's lock; return which are left."""
        stored, _held = self.reader.locate(positions)
        if self.reader.manifest.codec != "raw":
            stored["file"][~self._rectangle_decoder.suits(stored, plan, self.scaled_decode)] = NOWHERE
        jobs = native.tasks(stored, plan, addresses)
        pixels = np.maximum(stored["height"] * stored["width"], plan[:, 2] * plan[:, 9])  # decoded, and while resizing
        return [call.start + left for call in _calls(pixels) for left in native.decode_into(jobs[call])]

    def _draw(self, row: Row, data: Buffer, box: Box, out: torch.Tensor, refused: bool) -> None:
        """Draw a sample, whatever it is, into a (1, 3, height, width) tensor; `refused`: what C was offered before."""
        try:
            if self.reader.manifest.codec == "raw":
                top, left, height, width = from_corner(box, touched(box, out.shape[2], out.shape[3]))
                pixels = self._raw_pixels(row.number, data)
                resize_into(pixels[top : top + height, left : left + width], box, out)
            else:
                size = row.height, row.width
                self._rectangle_decoder.draw(data, size, box, out, self.scaled_decode, refused=refused)
        except ImageError as error:
            raise self._located(row.number, error) from error

    def _require_affordable(self, places: Ints, boxes: Boxes) -> None:
        """Raise ImageError for the first image of which too much is wanted, before there is any memory for it."""
        scaled, out = (boxes.scaled_height, boxes.scaled_width), (boxes.out_height, boxes.out_width)
        for refused in np.flatnonzero(~affordable(boxes.height, boxes.width, scaled, out))[:1]:
            numbers = boxes.plan()[refused].tolist()
            try:
                require_affordable(Box.of(numbers), (numbers[8], numbers[9]))
            except ImageError as error:
                raise self._located(int(places[refused]), error) from error

    def _items(
        self,
        indices: Sequence[int] | Ints,
        epoch: int,
        seed: int,
        transform: Callable[[Any], Any] | None,
    ) -> list[tuple[Any, Any]]:
        images: Iterable[Any]
        if self.crop is None:
            stored = self.reader.read_many(indices)
            images = (self._image(index, data) for index, data in zip(indices, stored, strict=True))
        else:
            images = self._cropped(indices, self.boxes(indices, epoch, seed))
        items = []
        for index, image in zip(indices, images, strict=True):
            target: Any = int(self.reader.table.label[index])
            if transform is not None:
                image = transform(image)
            if self.target_transform is not None:
                target = self.target_transform(target)
            items.append((image, target))
        return items

    def _cropped(self, indices: Sequence[int] | Ints, boxes: Boxes) -> Iterable[Any]:
        sizes = zip(boxes.out_height.tolist(), boxes.out_width.tolist(), strict=True)
        images = [torch.empty((*size, 3), dtype=torch.uint8) for size in sizes]
        self.draw(indices, boxes.plan(), [image.permute(2, 0, 1) for image in images])
        return (self._shown(image.numpy()) for image in images)

    def _image(self, index: int, data: Buffer) -> Any:
        if self.output == "bytes":
            return bytes(data)
        if self.reader.manifest.codec == "raw":
            return self._shown(np.array(self._raw_pixels(index, data)))
        try:
            return self._shown(decode(data, exif=self.reader.manifest.exif, decoder=self.decoder))
        except ImageError as error:
            raise self._located(index, error) from error

    def _shown(self, pixels: npt.NDArray[np.uint8]) -> Any:
        """Return (height, width, 3) pixels as what `output` asks for."""
        if self.output == "tensor":
            return torch.from_numpy(pixels).permute(2, 0, 1)
        return pixels if self.output == "numpy" else Image.fromarray(pixels)

    def _located(self, index: int, error: ImageError) -> ImageError:
        """Say where a damaged image is."""
        if error.name:
            return error
        name = printable(self._name(index))
        return ImageError(error.reason, f"{printable(self.reader.path)}, sample {index % len(self)} ({name})")

    def _impossible(self, index: int, height: int, width: int) -> CorruptPackError:
        """Say that no image has such a size as a row of the table says."""
        reason = f"its row in the table says {width} x {height} pixels"
        return CorruptPackError(reason, self.reader.path, index % len(self), self._name(index))

    def _other_size(self, index: int, size: int) -> CorruptPackError:
        """Say that pixels are others than a row of the table says."""
        height, width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        return CorruptPackError(
            f"{size} bytes are not {width} x {height} pixels", self.reader.path, index, self._name(index)
        )

    def _name(self, index: int) -> str:
        """Return a sample's name for a message; empty where the table has none for it."""
        return self.reader.names.get(index)

    def _raw_pixels(self, index: int, data: Buffer) -> npt.NDArray[np.uint8]:
        height, width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        if height < 1 or width < 1:
            raise self._impossible(index, height, width)
        if height * width * 3 != len(data):
            raise self._other_size(index, len(data))
        return np.frombuffer(data, np.uint8).reshape(height, width, 3)

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("targets", "class_to_idx", "_pools", "_rectangle_decoder")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({printable(self.reader.path)!r}): "
            f"{len(self)} samples, {len(self.classes)} classes, output={self.output!r}"
        )


def _calls(pixels: Ints) -> list[slice]:
    """Divide images of so many pixels among calls of C, as Ctrl-C waits until a call ends.

    One call does for usual images. No call has more pixels than two images of the largest size, some seconds' work.
    """
    total = np.cumsum(np.minimum(pixels, MAX_PIXELS))
    if len(pixels) == 0 or total[-1] <= MAX_PIXELS:
        return [slice(0, len(pixels))]
    bounds = [0, *(np.flatnonzero(np.diff(total // MAX_PIXELS)) + 1).tolist(), len(pixels)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def _addresses(outs: torch.Tensor | Sequence[torch.Tensor], plan: Ints) -> Ints:
    """Return where the memory begins of (3, height, width) uint8 tensors, which is channels last and what a plan needs.

    Raises
    ------
    ValueError
        If it is not.
    """
    batches = [outs] if isinstance(outs, torch.Tensor) else [out[None] for out in outs]
    for batch in batches:
        require_drawable(batch)
    shapes = [shape for batch in batches for shape in [batch.shape[1:]] * len(batch)]
    if shapes != [(3, height, width) for height, width in plan[:, 8:10].tolist()]:
        raise ValueError("images are drawn into tensors of other sizes, or another number, than the crop says")
    if isinstance(outs, torch.Tensor):
        return outs.data_ptr() + math.prod(outs.shape[1:]) * np.arange(len(outs))
    return np.array([out.data_ptr() for out in outs], np.int64)


class LMDBImageDataset(ImageDataset):
    __doc__ = ImageDataset.__doc__
    _format = "lmdb"


class HDF5ImageDataset(ImageDataset):
    __doc__ = ImageDataset.__doc__
    _format = "hdf5"


class PthImageDataset(ImageDataset):
    __doc__ = ImageDataset.__doc__
    _format = "pth"


_DATASETS = {dataset._format: dataset for dataset in (LMDBImageDataset, HDF5ImageDataset, PthImageDataset)}


def open_dataset(path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> ImageDataset:
    """Open a pack of any format as a dataset; the content, not the name, tells which it is.

    The arguments are those of `LMDBImageDataset`.
    """
    with open_pack(path) as reader:
        dataset = _DATASETS.get(reader.manifest.format, ImageDataset)
    return dataset(path, *args, **kwargs)
