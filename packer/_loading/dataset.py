"""The datasets that a person opens: one class a format, and one function for packs of any format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from packer._formats import open_pack
from packer._loading.imagedataset import ImageDataset
from packer.crops import Crop

__all__ = [
    "HDF5ImageDataset",
    "ImageDataset",
    "LMDBImageDataset",
    "PthImageDataset",
    "open_dataset",
]


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


def open_dataset(  # noqa: PLR0917
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
    fuse: bool = False,
    seed: int | None = None,
    check: str = "always",
    decoder: str = "auto",
    scaled_decode: bool = False,
    threads: int = 1,
    cache: str | None = None,
    stage: str | os.PathLike[str] | None = None,
) -> ImageDataset:
    """Open a pack of any format as a dataset; the content, not the name, tells the format."""
    with open_pack(root) as reader:
        dataset = _DATASETS.get(reader.manifest.format, ImageDataset)
    return dataset(
        root,
        transform,
        target_transform,
        loader,
        is_valid_file,
        allow_empty,
        transforms=transforms,
        fields=fields,
        mode=mode,
        per_box=per_box,
        min_visible=min_visible,
        fill=fill,
        target=target,
        output=output,
        crop=crop,
        fuse=fuse,
        seed=seed,
        check=check,
        decoder=decoder,
        scaled_decode=scaled_decode,
        threads=threads,
        cache=cache,
        stage=stage,
    )


if open_dataset.__doc__ and ImageDataset.__doc__:  # not so under `python -OO`
    open_dataset.__doc__ += ImageDataset.__doc__.partition(".")[2]  # parameters, errors and notes are the same
