"""The datasets that a person opens: one class a format, and one function for packs of any format."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from packer._containers import keys_said
from packer._formats import open_pack
from packer._loading.concat import ConcatImageDataset
from packer._loading.imagedataset import ImageDataset
from packer._loading.inplace import Wanted, index_of, is_pack
from packer._loading.uniting import unite_classes
from packer._storage.place import choose_reading, place_of
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import is_url
from packer._storage.urlpath import user_path
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import printable

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


_CLASSES = ("same", "union")
_DATASETS = {dataset._format: dataset for dataset in (LMDBImageDataset, HDF5ImageDataset, PthImageDataset)}


@overload
def open_dataset(
    root: str | os.PathLike[str],
    transform: Callable[[Any], Any] | None = ...,
    target_transform: Callable[[Any], Any] | None = ...,
    loader: Callable[[str], Any] | None = ...,
    is_valid_file: Callable[[str], bool] | None = ...,
    allow_empty: bool = ...,
    *,
    classes: str = ...,
    transforms: Callable[..., Any] | None = ...,
    fields: str | Iterable[str] | None = ...,
    mode: str | Mapping[str, str] = ...,
    per_box: Iterable[str] | Mapping[str, Iterable[str]] | None = ...,
    min_visible: float = ...,
    fill: Mapping[str, Any] | None = ...,
    target: str | None = ...,
    output: str | None = ...,
    crop: Crop | Sequence[Crop] | None = ...,
    augment: Augmentation | Sequence[Augmentation] | None = ...,
    views: Sequence[View] | None = ...,
    fuse: bool = ...,
    seed: int | None = ...,
    check: str = ...,
    decoder: str = ...,
    scaled_decode: bool = ...,
    threads: int = ...,
    cache: str | None = ...,
    stage: str | os.PathLike[str] | None = ...,
    cache_dir: str | os.PathLike[str] | None = ...,
    cache_size: int | str | None = ...,
    timeout: float | None = ...,
    on_error: str = ...,
    max_bad: float = ...,
    index: str | os.PathLike[str] | None = ...,
    keys: Sequence[str] | Mapping[str, str] = ...,
    unlabeled: bool = ...,
    progress: Callable[[int, int], None] | bool | None = ...,
) -> ImageDataset: ...
@overload
def open_dataset(
    root: list[str] | list[Path] | tuple[str | os.PathLike[str], ...],
    transform: Callable[[Any], Any] | None = ...,
    target_transform: Callable[[Any], Any] | None = ...,
    loader: Callable[[str], Any] | None = ...,
    is_valid_file: Callable[[str], bool] | None = ...,
    allow_empty: bool = ...,
    *,
    classes: str = ...,
    transforms: Callable[..., Any] | None = ...,
    fields: str | Iterable[str] | None = ...,
    mode: str | Mapping[str, str] = ...,
    per_box: Iterable[str] | Mapping[str, Iterable[str]] | None = ...,
    min_visible: float = ...,
    fill: Mapping[str, Any] | None = ...,
    target: str | None = ...,
    output: str | None = ...,
    crop: Crop | Sequence[Crop] | None = ...,
    augment: Augmentation | Sequence[Augmentation] | None = ...,
    views: Sequence[View] | None = ...,
    fuse: bool = ...,
    seed: int | None = ...,
    check: str = ...,
    decoder: str = ...,
    scaled_decode: bool = ...,
    threads: int = ...,
    cache: str | None = ...,
    stage: str | os.PathLike[str] | None = ...,
    cache_dir: str | os.PathLike[str] | None = ...,
    cache_size: int | str | None = ...,
    timeout: float | None = ...,
    on_error: str = ...,
    max_bad: float = ...,
    index: str | os.PathLike[str] | None = ...,
    keys: Sequence[str] | Mapping[str, str] = ...,
    unlabeled: bool = ...,
    progress: Callable[[int, int], None] | bool | None = ...,
) -> ConcatImageDataset: ...
def open_dataset(  # noqa: PLR0917
    root: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    transform: Callable[[Any], Any] | None = None,
    target_transform: Callable[[Any], Any] | None = None,
    loader: Callable[[str], Any] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
    *,
    classes: str = "same",
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
    index: str | os.PathLike[str] | None = None,
    keys: Sequence[str] | Mapping[str, str] = (),
    unlabeled: bool = False,
    progress: Callable[[int, int], None] | bool | None = None,
) -> ImageDataset | ConcatImageDataset:
    """Open a pack of any format as a dataset, or packs as one; without a transform, images are tensors, not PIL images.

    The content, not the name, tells the format.

    Several packs, as ``open_dataset(["a.lmdb", "b.h5"])``, are a `ConcatImageDataset`, with the samples of one pack
    after the other.

    Parameters
    ----------
    root : path or URL, or list or tuple of such
        The pack, or the packs. The settings are those of each pack. Instead of a pack, a directory of images as
        ImageFolder takes it, or a container of another tool, such as ``shards/*.tar``: these are indexed at once, and
        read where they lie.
    classes : {"same", "union"}
        Whether several packs must have the same classes; or the first pack's classes keep their ids, classes that other
        packs have beyond them follow, and labels are renumbered.
    index : path, optional
        Where the index of a directory or a container is kept for the next time; it is used as long as the images are
        those that it lists. By default there is one for as long as the process lives. It has no checksums;
        `packer.index` makes one that has.
    keys : sequence of str, or mapping of str to str
        What in a container is the image, the label, the name or a field: ``"NAME[:KIND]=KEY"``, or keys by names.
    unlabeled : bool
        Whether samples of a container that have no label are wanted, with the label -1. Where none has one, and
        something in the container looks like the labels, that is an error otherwise.
    progress : bool or callable, optional
        True shows a bar. A callable is called with how many images an index has, and will have.
    """
    progress = shown_progress(progress, "index")
    if classes not in _CLASSES:
        raise ValueError(f"classes is {' or '.join(map(repr, _CLASSES))}, not {classes!r}")
    settings = {
        "transform": transform,
        "target_transform": target_transform,
        "loader": loader,
        "is_valid_file": is_valid_file,
        "allow_empty": allow_empty,
        "transforms": transforms,
        "fields": fields,
        "mode": mode,
        "per_box": per_box,
        "min_visible": min_visible,
        "fill": fill,
        "target": target,
        "output": output,
        "crop": crop,
        "augment": augment,
        "views": views,
        "fuse": fuse,
        "seed": seed,
        "check": check,
        "decoder": decoder,
        "scaled_decode": scaled_decode,
        "threads": threads,
        "cache": cache,
        "stage": stage,
        "on_error": on_error,
        "max_bad": max_bad,
    }
    choose_reading(root if isinstance(root, list | tuple) else [root], cache_dir, cache_size, timeout)
    said = dict(keys) if isinstance(keys, Mapping) else keys_said(keys)
    wanted = Wanted(said, on_error == "replace", unlabeled, allow_empty)
    if not isinstance(root, list | tuple):
        return _opened(_pack_of(root, index, wanted, progress), settings)
    if index is not None:
        raise ValueError("index= is for one directory or container; each of several has an index of its own")
    with contextlib.ExitStack() as opened:
        datasets = [opened.enter_context(_opened(_pack_of(path, None, wanted, progress), settings)) for path in root]
        joined = ConcatImageDataset(datasets)
        unite_classes(datasets, classes)
        opened.pop_all()
    return joined


def _pack_of(root: Any, index: Any, wanted: Wanted, progress: Callable[[int, int], None] | None) -> Any:
    """Return the pack at a path; or the index of what lies there, where that is no pack."""
    if is_url(root):
        if wanted.keys or index is not None:
            raise ValueError(f"{'keys' if wanted.keys else 'index'}= is for containers on this machine's disks")
        return place_of(root)  # asked once which version there is
    if index is None and is_pack(root):
        if wanted.keys:
            raise ValueError(
                f"keys= is for containers, and {printable(user_path(root))} is a pack, which has names for its fields"
            )
        return root
    return index_of(root, index, progress, wanted) or root


def _opened(path: Any, settings: dict[str, Any]) -> ImageDataset:
    with open_pack(path) as reader:
        kind = _DATASETS.get(reader.manifest.format, ImageDataset)
    return kind(path, **settings)


if open_dataset.__doc__ and ImageDataset.__doc__:  # not so under `python -OO`
    _, _, _rest = ImageDataset.__doc__.partition("The pack.\n")
    open_dataset.__doc__ = open_dataset.__doc__.rstrip() + "\n" + _rest  # parameters, errors and notes are the same
