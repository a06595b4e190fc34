"""Functions and classes to open datasets: a class for each format, and `open_dataset` for packs of any format.

Images that were not converted are indexed when they are opened, and then read in place.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, overload

from packer._account import TAKEN
from packer._containers import Container, files_to_name, named_paths, open_container, parse_keys
from packer._datasets.concat import ConcatImageDataset, unite_classes
from packer._datasets.image_dataset import ImageDataset
from packer._formats import FORMATS, is_pack, open_pack
from packer._formats.index import IndexReader
from packer._sources.base import Source
from packer._sources.container import container_source
from packer._sources.imagefolder import class_directories, imagefolder_source, refuse_splits, require_images_in_classes
from packer._sources.index import build_index
from packer._sources.metadata import stylegan_source
from packer._storage.files import held, process_directory, remove, writing_to
from packer._storage.place import choose_reading, place_of
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import is_url, user_path
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import (
    ImageError,
    NotAPackError,
    OptionError,
    SourceError,
    message_of,
    option,
    printable,
    recorded,
    warn,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "HDF5ImageDataset",
    "ImageDataset",
    "InPlaceOptions",
    "LMDBImageDataset",
    "PthImageDataset",
    "index_of",
    "open_dataset",
]

_PREFIX = "packer-index-"
_SKIP = "`packer index SRC OUT.index --on-error skip`, and open OUT.index"

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class InPlaceOptions:
    """Options for an index of images that are read in place.

    Attributes
    ----------
    keys : dict of str to str
        The keys of a container that hold the image, the label, the name or a field, as `Container.open` takes them.
    unreadable : bool
        Whether the index includes images that cannot be read.
    unlabeled : bool
        Whether samples may lack a label.
    allow_empty : bool
        Whether a class directory may have no image.
    """

    keys: dict[str, str] = field(default_factory=dict)
    unreadable: bool = False
    unlabeled: bool = False
    allow_empty: bool = False


def index_of(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
    options: InPlaceOptions | None = None,
) -> Path | None:
    """Return the index of a directory of images or of a container; None if `root` is neither.

    The index has no checksums, because only the headers of images are read.

    Parameters
    ----------
    root : path
        A directory in ImageFolder's layout; or a container's files, directory or pattern, as for `packer.convert`.
    path : path, optional
        The path of the index, a directory. An existing index is used if it lists exactly these images. By default the
        index is kept in a temporary directory, in memory if there is room, until this process ends.
    progress : callable, optional
        Called with the number of images indexed so far, and the number of all images.
    options : InPlaceOptions, optional

    Raises
    ------
    SourceError, ImageError
        If the images cannot be listed, or one cannot be read.
    DestinationError
        If the index cannot be written.
    """
    paths = named_paths(root)
    if not paths:
        return None
    options = options or InPlaceOptions()
    container = open_container(paths, options.keys)
    if container is None and options.keys:
        raise OptionError(f"--key applies only to containers that packer reads, and {printable(root)} is none of them")
    if container is None and not (len(paths) == 1 and os.path.isdir(paths[0])):
        return None
    source = None if container is not None else _tree(paths[0])
    if source is not None and source.kind == "imagefolder" and not options.allow_empty:
        _require_images(source)
    if container is None and source is None:
        return None
    if path is None:
        directory = Path(tempfile.mkdtemp(dir=process_directory(_PREFIX)))
        return _make_index(directory / f"{paths[0].stem}.index", source, container, options, progress)
    index = Path(os.path.abspath(os.path.expanduser(path)))
    with held(index.with_name(f"{index.name}.lock"), _wait):  # other processes wait, and use the same index
        if os.path.lexists(index) and _is_of(index, source, container, options):
            return index
        return _make_index(index, source, container, options, progress)


def _make_index(
    index: Path,
    source: Source | None,
    container: Container | None,
    options: InPlaceOptions,
    progress: ProgressCallback | None,
) -> Path:
    """Make an index at the path `index`, replacing an older index."""
    if source is None:
        assert container is not None
        source = container_source(container, in_place=True, unlabeled=options.unlabeled)
    _warn_of_losses(source)
    partial = index.with_name(f"{index.name}.partial")
    remove(partial)
    with writing_to(partial):
        partial.mkdir()
    try:
        _build(source, partial, index, options, progress)
        remove(index)
        with writing_to(index):
            os.rename(partial, index)
    finally:
        remove(partial)
    return index


def _warn_of_losses(source: Source) -> None:
    """Warn about images that are left out or have no label, but not about files of other types."""
    tree = source.kind in ("imagefolder", "stylegan")  # these take images in hidden directories too
    losses = [
        item.line()
        for item in source.account or ()
        if item.is_loss or (tree and (item.fate == TAKEN or item.what == "class"))
    ]
    if lines := [*losses, *(note for note in source.notes if note not in map(recorded, source.others.notes()))]:
        warn("\n  ".join([f"Notes on reading {printable(source.root)}:", *lines]))


def _build(
    source: Source, directory: Path, index: Path, options: InPlaceOptions, progress: ProgressCallback | None
) -> None:
    on_error = "keep" if options.unreadable else "fail"
    try:
        build_index(source, directory, index, checksums=False, on_error=on_error, keys=options.keys, progress=progress)
    except ImageError as error:
        advised = type(error)(f"{error.reason}. To leave out such images: {_SKIP}", error.name)
        advised.index = error.index
        raise advised from error


@contextlib.contextmanager
def _advice_of_index() -> Iterator[None]:
    """If an error advises to skip samples, make it name a command that can: `open_dataset` cannot skip samples."""
    try:
        yield
    except SourceError as error:
        advice = option("on_error", "skip")
        if advice not in message_of(error):
            raise
        raise type(error)(message_of(error).replace(advice, _SKIP)) from error


def _wait() -> None:
    """Print nothing while this process waits for the lock of another process, which makes the index."""


def _tree(root: Path) -> Source | None:
    """Return the source of a directory of images; None for other directories and for incomplete packs."""
    if root.suffix in {suffix for row in FORMATS.values() for suffix in row.suffixes}:
        return None
    if class_directories(root):
        refuse_splits(root)
        if (labelled := stylegan_source(root)) is not None:
            return labelled
        with contextlib.suppress(SourceError):  # opening the directory as a pack raises a better error
            return imagefolder_source(root, allow_empty=True)
    if others := files_to_name(root):
        raise SourceError(f"{printable(root)}: is not a directory with one subdirectory of images per class{others}")
    return None


def _require_images(source: Source) -> None:
    try:
        require_images_in_classes(source)
    except SourceError as error:
        hidden, own = option("skip_hidden", True), "packer.index(..., skip_hidden=True)"
        problem = message_of(error).replace(option("allow_empty", True), "allow_empty=True")
        raise SourceError(problem.replace(hidden, own)) from None


def _is_of(index: Path, source: Source | None, container: Container | None, options: InPlaceOptions) -> bool:
    """Tell whether an index lists exactly these images with unchanged files; if not, the caller may replace it.

    Raises
    ------
    SourceError
        If the path is not an index, or is an index of another directory. The caller must not replace it.
    """
    try:
        reader = open_pack(index)
    except NotAPackError:
        raise SourceError(f"{printable(index)}: exists, and is not an index. Choose another path.") from None
    with reader:
        if not isinstance(reader, IndexReader) or not reader.in_place or reader.brings_files:
            raise SourceError(f"{printable(index)}: is a pack, not an index. Choose another path.")
        root = source.root if source is not None else container.root if container is not None else None
        if os.path.isdir(reader.base) and os.path.realpath(reader.base) != os.path.realpath(root or ""):
            raise SourceError(
                f"{printable(index)}: is the index of files in {printable(reader.base)}. Choose another path."
            )
        if reader.manifest.settings.get("keys", {}) != options.keys:
            return False
        if source is not None:
            same = os.path.isdir(reader.base) and reader.manifest.source == source.describe()
            return same and not any(reader.changed_files())
        assert container is not None
        own = sorted(os.path.realpath(container.root / name) for name in container.files)
        return own == sorted(map(os.path.realpath, reader.files())) and not any(
            (*reader.check_structure(), *reader.changed_files())
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


_CLASSES = ("same", "union")
_DATASETS = {dataset._format: dataset for dataset in (LMDBImageDataset, HDF5ImageDataset, PthImageDataset)}


class DatasetSettings(TypedDict, total=False):
    """The types of the keyword-only settings of `ImageDataset`, whose signature has the defaults."""

    transforms: Callable[..., Any] | None
    fields: str | Iterable[str] | None
    mode: str | Mapping[str, str]
    per_box: Iterable[str] | Mapping[str, Iterable[str]] | None
    min_visible: float
    fill: Mapping[str, Any] | None
    target: str | None
    output: str | None
    crop: Crop | Sequence[Crop] | None
    augment: Augmentation | Sequence[Augmentation] | None
    views: Sequence[View] | None
    fuse: bool
    seed: int | None
    check: str
    decoder: str
    scaled_decode: bool
    threads: int
    cache: str | None
    stage: str | os.PathLike[str] | None
    cache_dir: str | os.PathLike[str] | None
    cache_size: int | str | None
    timeout: float | None
    on_error: str
    max_bad: float


class OpenOptions(DatasetSettings, total=False):
    """The types of all keyword-only arguments of `open_dataset`."""

    classes: str
    index: str | os.PathLike[str] | None
    keys: Sequence[str] | Mapping[str, str]
    unlabeled: bool
    progress: Callable[[int, int], None] | bool | None


@overload
def open_dataset(
    root: str | os.PathLike[str],
    transform: Callable[[Any], Any] | None = ...,
    target_transform: Callable[[Any], Any] | None = ...,
    loader: Callable[[str], Any] | None = ...,
    is_valid_file: Callable[[str], bool] | None = ...,
    allow_empty: bool = ...,
    **options: Unpack[OpenOptions],
) -> ImageDataset: ...
@overload
def open_dataset(
    root: list[str] | list[Path] | tuple[str | os.PathLike[str], ...],
    transform: Callable[[Any], Any] | None = ...,
    target_transform: Callable[[Any], Any] | None = ...,
    loader: Callable[[str], Any] | None = ...,
    is_valid_file: Callable[[str], bool] | None = ...,
    allow_empty: bool = ...,
    **options: Unpack[OpenOptions],
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
    index: str | os.PathLike[str] | None = None,
    keys: Sequence[str] | Mapping[str, str] = (),
    unlabeled: bool = False,
    progress: Callable[[int, int], None] | bool | None = None,
    **settings: Unpack[DatasetSettings],
) -> ImageDataset | ConcatImageDataset:
    """Open one or more packs of any format as a dataset; without a transform, images are tensors, not PIL images.

    The format is detected by the content of the pack, not by its name.

    Several packs, as in ``open_dataset(["a.lmdb", "b.h5"])``, become a `ConcatImageDataset`, one pack after the other.

    Parameters
    ----------
    root : path or URL, or list or tuple of these
        The pack, or the packs. The settings apply to each pack. Instead of a pack, `root` may be a directory of images
        in ImageFolder's layout. It may also be a container: a dataset in the format of another tool, such as
        ``shards/*.tar``. In both cases, `open_dataset` indexes the images, and the dataset reads them in place.
    classes : {"same", "union"}
        ``same``: several packs must have the same classes. ``union``: the classes of the first pack keep their ids,
        additional classes of the other packs follow, and labels are renumbered accordingly.
    index : path, optional
        The path at which the index of a directory or a container is stored. A stored index is used again as long as the
        images match it. By default the index is kept until the process ends. `open_dataset` makes indexes without
        checksums; `packer.index` makes one with checksums.
    keys : sequence of str, or mapping of str to str
        The keys of a container that hold the image, the label, the name or a field: ``"NAME[:KIND]=KEY"``, or a mapping
        of names to keys.
    unlabeled : bool
        Whether samples of a container may lack a label; such samples get the label -1. By default, `open_dataset`
        raises an error if no sample has a label, but a key or a column of the container seems to contain labels.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the number of images indexed so far, and the number of all
        images.
    """
    for unknown in settings.keys() - DatasetSettings.__annotations__.keys():
        raise TypeError(f"open_dataset() got an unexpected keyword argument {unknown!r}")
    progress = shown_progress(progress, "index")
    if classes not in _CLASSES:
        raise OptionError(f"classes is {' or '.join(map(repr, _CLASSES))}, not {classes!r}")
    reading = settings.pop("cache_dir", None), settings.pop("cache_size", None), settings.pop("timeout", None)
    choose_reading(root if isinstance(root, list | tuple) else [root], *reading)  # it applies to all packs at URLs
    named_keys = dict(keys) if isinstance(keys, Mapping) else parse_keys(keys)
    options = InPlaceOptions(named_keys, settings.get("on_error") == "replace", unlabeled, allow_empty)

    def opened(path: Any, index: Any = None) -> ImageDataset:
        with _advice_of_index():
            pack = _pack_of(path, index, options, progress)
        with open_pack(pack) as reader:
            dataset_class = _DATASETS.get(reader.manifest.format, ImageDataset)
        return dataset_class(pack, transform, target_transform, loader, is_valid_file, allow_empty, **settings)

    if not isinstance(root, list | tuple):
        return opened(root, index)
    if index is not None:
        raise OptionError("index= applies only to a single directory or container")
    with contextlib.ExitStack() as stack:
        datasets = [stack.enter_context(opened(path)) for path in root]
        joined = ConcatImageDataset(datasets)
        unite_classes(datasets, classes)
        stack.pop_all()
    return joined


def _pack_of(root: Any, index: Any, options: InPlaceOptions, progress: Callable[[int, int], None] | None) -> Any:
    """Return the path of the pack at `root`, or of an index of the images at `root`."""
    if is_url(root):
        if options.keys or index is not None:
            raise OptionError(
                f"{'keys' if options.keys else 'index'}= applies only to containers on this machine's disks"
            )
        return place_of(root)  # so that the version of the object is requested only once
    if index is None and is_pack(root):
        if options.keys:
            raise OptionError(
                f"keys= applies only to containers, and {printable(user_path(root))} is a pack, "
                "whose fields already have names"
            )
        return root
    return index_of(root, index, progress, options) or root


def _with_settings(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of `open_dataset` with the settings of a dataset in place of ``**settings``."""
    *own, _ = signature.parameters.values()
    settings = [one for one in inspect.signature(ImageDataset).parameters.values() if one.kind is one.KEYWORD_ONLY]
    end = [one.name for one in own].index("classes") + 1
    return signature.replace(parameters=[*own[:end], *settings, *own[end:]])


_signature = _with_settings(inspect.signature(open_dataset))
vars(open_dataset)["__signature__"] = _signature
open_dataset.__annotations__ = {one.name: one.annotation for one in _signature.parameters.values()} | {
    "return": _signature.return_annotation
}
if open_dataset.__doc__ and ImageDataset.__doc__:  # `python -OO` removes docstrings
    _, _, _rest = ImageDataset.__doc__.partition("The pack.\n")
    open_dataset.__doc__ = open_dataset.__doc__.rstrip() + "\n" + _rest  # parameters, errors and notes are the same
