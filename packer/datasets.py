"""Packs as PyTorch datasets: drop-in replacements for torchvision's ImageFolder."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import Dataset

from packer.errors import CorruptPackError, ImageError, NotAPackError, printable
from packer.formats import Reader, recognise
from packer.images.decode import decode, decoder_advice, fast_decoder
from packer.sample import Buffer, Names

__all__ = [
    "OUTPUTS",
    "HDF5ImageDataset",
    "ImageDataset",
    "LMDBImageDataset",
    "PthImageDataset",
    "Samples",
    "open_dataset",
]

OUTPUTS = ("tensor", "numpy", "pil", "bytes")


class Samples(Sequence[tuple[str, int]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for."""

    def __init__(self, names: Names, labels: npt.NDArray[np.int64]) -> None:
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

    Attributes
    ----------
    classes : list of str
    class_to_idx : dict of str to int
    samples, imgs : sequence of (str, int)
        Name and label of every sample. The names are relative to the converted directory.
    targets : (N,) int64 array
        The labels.
    reader : packer.formats.Reader
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
    ) -> None:
        if output not in OUTPUTS:
            raise ValueError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        self.transform = transform
        self.target_transform = target_transform
        self.output = output
        self.decoder = decoder
        fast_decoder(decoder)  # refuses an unknown or missing one here rather than in a worker
        row = recognise(path)
        if self._format not in (None, row.name):
            raise NotAPackError(
                f"{printable(os.fspath(path))}: a pack of the format {row.name}; read it with {row.dataset}"
            )
        self.reader: Reader = row.open_reader()(path, check=check)
        advice = decoder_advice() if decoder == "auto" and output != "bytes" else None
        if advice is not None:
            warnings.warn(advice, stacklevel=2)

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return image and label; IndexError out of range, CorruptPackError or ImageError on damage."""
        index = int(index)
        return self._item(index, self.reader.read(index))

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return a batch of items, in the order asked for; DataLoader calls this."""
        stored = self.reader.read_many(indices)
        return [self._item(int(index), data) for index, data in zip(indices, stored, strict=True)]

    @property
    def classes(self) -> list[str]:
        return self.reader.manifest.classes

    @functools.cached_property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    @functools.cached_property
    def targets(self) -> npt.NDArray[np.int64]:
        self.reader.require_column("label")
        return self.reader.table.label

    @property
    def samples(self) -> Samples:
        return Samples(self.reader.table.sample_names(), self.reader.table.label)

    @property
    def imgs(self) -> Samples:
        return self.samples

    def _item(self, index: int, data: Buffer) -> tuple[Any, Any]:
        try:
            image = self._image(index, data)
        except ImageError as error:
            name = self.reader.table.sample_names()[index]
            where = f"{printable(self.reader.path)}, sample {index % len(self)} ({printable(name)})"
            raise ImageError(f"{where}: {error.reason}") from error
        target: Any = int(self.reader.table.label[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def _image(self, index: int, data: Buffer) -> Any:
        if self.output == "bytes":
            return bytes(data)
        manifest = self.reader.manifest
        exif = manifest.settings.get("exif", "ignore") if manifest.codec == "keep" else "ignore"
        if manifest.codec == "raw":
            pixels = self._raw_pixels(index, data)
        else:
            pixels = decode(data, exif=exif, decoder=self.decoder)
        if self.output == "tensor":
            return torch.from_numpy(pixels).permute(2, 0, 1)
        return pixels if self.output == "numpy" else Image.fromarray(pixels)

    def _raw_pixels(self, index: int, data: Buffer) -> npt.NDArray[np.uint8]:
        height, width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        if height < 0 or width < 0 or height * width * 3 != len(data):
            raise CorruptPackError(f"{len(data)} bytes are not {width} x {height} pixels", self.reader.path, index)
        return np.array(np.frombuffer(data, np.uint8).reshape(height, width, 3))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("targets", "class_to_idx")}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({printable(self.reader.path)!r}): "
            f"{len(self)} samples, {len(self.classes)} classes, output={self.output!r}"
        )


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
    return _DATASETS.get(recognise(path).name, ImageDataset)(path, *args, **kwargs)
