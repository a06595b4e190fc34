"""A pack as a PyTorch dataset: a drop-in replacement for torchvision's ImageFolder."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import Dataset

from packer._formats import FORMATS, Reader, open_pack
from packer._images.decode import fast_decoder, warn_of_slow_decoding
from packer._images.geometry import CROP, Box, Crops
from packer._limits import require_count
from packer._loading import staging
from packer._loading.crops import Crop, Full
from packer._loading.decoding import BatchDecoder
from packer._loading.pool import Pool
from packer._loading.samples import Samples
from packer._loading.uniforms import seed_of
from packer._table import Buffer, Ints
from packer.errors import NotAPackError, printable

__all__ = ["OUTPUTS", "ImageDataset"]


OUTPUTS = ("tensor", "numpy", "pil", "bytes")


class ImageDataset(Dataset[tuple[Any, Any]]):
    """A pack as a map-style dataset of ``(image, label)``.

    Parameters
    ----------
    path : path
        The pack.
    transform, target_transform : callable, optional
        Applied to each image and to each label.
    output : {"tensor", "numpy", "pil", "bytes"}
        The form of an image:

        * ``tensor``: (3, height, width) uint8 `torch.Tensor`, RGB, 0 to 255; its memory is laid out channels last.
        * ``numpy``: (height, width, 3) uint8 array, RGB, writable.
        * ``pil``: `PIL.Image.Image` of mode RGB, as ImageFolder gives it to its transform.
        * ``bytes``: the stored bytes, undecoded.
    check : {"always", "never"}
        Whether every read is compared with the sample's checksum.
    decoder : {"auto", "turbojpeg", "opencv", "pillow"}
        Which library decodes ordinary JPEGs. The choice changes the speed; the pixels are Pillow's with each.
    crop : packer crop, optional
        Which part of each image is wanted, at which size, such as ``packer.RandomResizedCrop(224)``. The part is chosen
        before decoding, so that the rest is not decoded.
    scaled_decode : bool
        Whether the decoder may halve an image whose crop is at least twice as large as wanted. Faster; the pixels
        differ a little from those of a whole decoding.
    seed : int
        Seed of the crops. A random crop is a function of seed, epoch (`set_epoch`) and index.
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
    targets : (N,) int64 array
        The labels.
    reader : packer.Reader
        The pack itself: its manifest, its table, its bytes.

    Raises
    ------
    NotAPackError, CorruptPackError, UnsupportedVersionError
        If the pack cannot be opened. `targets` and `samples` raise CorruptPackError where the table does not fit its
        checksums.
    TypeError, ValueError
        If a setting is of the wrong kind or out of range. It is refused before anything is copied or read whole.

    Notes
    -----
    Works with any start method of DataLoader workers, with and without `persistent_workers`, and with several
    datasets on one pack. A pickled dataset holds its path and its settings; it opens the pack where it is unpickled.
    """

    _format: str | None = None  # any

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
        if cache not in (None, "ram"):
            raise ValueError(f"cache is None or 'ram', not {cache!r}")
        require_count("threads", threads)
        fast_decoder(decoder)  # refuses an unknown or missing one here rather than in a worker
        self.transform = transform
        self.target_transform = target_transform
        self._output = output
        self._library = decoder
        self._scaled = scaled_decode
        self.crop = crop
        self.seed = seed_of(seed)
        self.threads = threads
        self._pool = Pool()
        # In shared memory, so that the workers of a DataLoader see what `set_epoch` says.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self.reader: Reader = open_pack(path, check=check)
        self._require_format()
        if stage is not None:
            self.reader.close()
            path = staging.stage(path, stage)
            self.reader = open_pack(path, check=check)
        self._kept = staging.keep(path) if cache == "ram" else staging.Kept()
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

        What was read stays valid, and so do `classes` and `targets`. Workers that have the dataset keep their own.
        """
        self._pool.close()
        self._kept.close()
        self.reader.close()

    def __enter__(self) -> ImageDataset:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return image and label; IndexError out of range, CorruptPackError or ImageError on damage."""
        return self._made([self.reader.position(index)], int(self._epoch), self.seed, self.transform)[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return a batch of items, in the order asked for; DataLoader calls this."""
        return self._items(indices, int(self._epoch), self.seed)

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
            raise ValueError("output='bytes' gives the stored bytes, of which no region is read")
        index = self.reader.position(index)
        top, left, height, width = map(operator.index, (top, left, height, width))
        full_height, full_width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        if not (height >= 1 <= width and 0 <= top <= full_height - height and 0 <= left <= full_width - width):
            raise ValueError(
                f"a rectangle of {width} x {height} pixels from ({left}, {top}) does not lie inside of sample {index}, "
                f"which has {full_width} x {full_height}"
            )
        box = Box.of((top, left, height, width), (height, width))
        out = torch.empty((1, height, width, 3), dtype=torch.uint8)
        self._decoder.decode_into([index], np.array([box], CROP), out.permute(0, 3, 1, 2))
        return self._shown(out[0].numpy())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the random crops, also in DataLoader workers that run already."""
        self._epoch.fill_(epoch)

    @property
    def output(self) -> str:
        """The form of an image, as the dataset was opened; open another dataset for another one."""
        return self._output

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
    def crop(self, crop: Crop | None) -> None:
        if crop is not None and not isinstance(crop, Crop):
            raise TypeError(f"crop is one of packer's crops, such as packer.RandomResizedCrop(224), not {crop!r}")
        if crop is not None and self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no crop is made")
        self._crop = crop

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

    @functools.cached_property
    def samples(self) -> Samples:
        for column in ("names", "name_end", "label"):
            self.reader.require_column(column)
        return Samples(self.reader.names, self.reader.table.label)

    @property
    def imgs(self) -> Samples:
        return self.samples

    @functools.cached_property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.reader, self._library, self._scaled)

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of a batch, (N,) of CROP; as `BatchDecoder.choose_crops`, of the dataset's crop."""
        return self._decoder.choose_crops(self.crop if self.crop is not None else Full(), indices, epoch, seed)

    def _labels(self, indices: Ints) -> torch.Tensor:
        """Return the labels of a batch, (N,) int64, after `target_transform`."""
        self.reader.require_table()
        labels = self.reader.table.label[indices]
        if self.target_transform is not None:
            return torch.as_tensor([self.target_transform(label) for label in labels.tolist()])
        return torch.from_numpy(labels)

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Callable[[Any], Any] | None = None
    ) -> list[tuple[Any, Any]]:
        """Return the items of `indices`, with the crops of `epoch` and `seed`; `transform` replaces the dataset's."""
        transform = transform or self.transform
        return self._pool.items(self.threads, lambda part: self._made(part, epoch, seed, transform), indices)

    def _made(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Callable[[Any], Any] | None
    ) -> list[tuple[Any, Any]]:
        """Return the items of `indices`, made by this thread."""
        images: Iterable[Any]
        if self.crop is None:
            stored = self.reader.read_many(indices)
            images = (self._whole(index, data) for index, data in zip(indices, stored, strict=True))
        else:
            images = self._cropped(indices, self._choose_crops(indices, epoch, seed))
        items = []
        for index, image in zip(indices, images, strict=True):
            target: Any = int(self.reader.table.label[index])
            if transform is not None:
                image = transform(image)
            if self.target_transform is not None:
                target = self.target_transform(target)
            items.append((image, target))
        return items

    def _cropped(self, indices: Sequence[int] | Ints, crops: Crops) -> Iterable[Any]:
        sizes = zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True)
        images = [torch.empty((*size, 3), dtype=torch.uint8) for size in sizes]
        self._decoder.decode_into(indices, crops, [image.permute(2, 0, 1) for image in images])
        return (self._shown(image.numpy()) for image in images)

    def _whole(self, index: int, data: Buffer) -> Any:
        return bytes(data) if self.output == "bytes" else self._shown(self._decoder.decode(index, data))

    def _shown(self, pixels: npt.NDArray[np.uint8]) -> Any:
        """Return (height, width, 3) pixels in the form that `output` says."""
        if self.output == "tensor":
            return torch.from_numpy(pixels).permute(2, 0, 1)
        return pixels if self.output == "numpy" else Image.fromarray(pixels)

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("targets", "samples", "class_to_idx", "_decoder")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({printable(self.reader.path)!r}): "
            f"{len(self)} samples, {len(self.classes)} classes, output={self.output!r}"
        )
