"""The datasets that a person opens: one class a format, and one function for packs of any format.

Images that nobody converted, read where they lie: an index of them, made when they are opened.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict, overload

from packer._account import TAKEN
from packer._containers import Container, files_to_name, named_paths, open_container, parse_keys
from packer._datasets.class_union import unite_classes
from packer._datasets.concat import ConcatImageDataset
from packer._datasets.image_dataset import ImageDataset
from packer._formats import FORMATS, open_pack
from packer._formats.index import IndexReader
from packer._sources.base import Source
from packer._sources.container import listed_container
from packer._sources.imagefolder import class_directories, imagefolder_source, refuse_splits, require_images_in_classes
from packer._sources.index import build_index
from packer._sources.stylegan import stylegan_source
from packer._storage.files import remove, writing_to
from packer._storage.locks import held, try_lock
from packer._storage.place import choose_reading, place_of
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import is_url, user_path
from packer._storage.safe_open import NO_LINK, open_regular
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import (
    DestinationError,
    ImageError,
    NotAPackError,
    OptionError,
    PackNotFoundError,
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
    "SHARED_MEMORY",
    "HDF5ImageDataset",
    "ImageDataset",
    "InPlaceOptions",
    "LMDBImageDataset",
    "PthImageDataset",
    "index_of",
    "is_pack",
    "open_dataset",
]

SHARED_MEMORY = Path("/dev/shm")
_PREFIX, _LOCK = "packer-index-", "lock"

ProgressCallback = Callable[[int, int], None]


def is_pack(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is a pack; errors of a damaged one are left to whoever opens it."""
    try:
        open_pack(path).close()
    except (NotAPackError, PackNotFoundError):
        return False
    return True


@dataclass(frozen=True)
class InPlaceOptions:
    """Options of the index that is made of images in place.

    Attributes
    ----------
    keys : dict of str to str
        As `Container.open` takes them.
    unreadable : bool
        Whether images that cannot be read are in it too.
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
    """Return the index of a directory of images, or of a container; None where there is neither.

    The index has no checksums: no more than headers are read.

    Parameters
    ----------
    root : path
        A directory as ImageFolder takes it; or files, a directory or a pattern that `packer.convert` takes.
    path : path, optional
        The file of the index, which is used again while the images are those that it lists. By default the index lies
        in memory, or among temporary files, until this process ends.
    progress : callable, optional
        Called with how many images were looked at, and how many there are.
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
        return _made(_temporary() / f"{paths[0].stem}.index", source, container, options, progress)
    index = Path(os.path.abspath(os.path.expanduser(path)))
    with held(index.with_name(f"{index.name}.lock"), _wait):  # one process makes it for all
        if os.path.lexists(index) and _is_of(index, source, container, options):
            return index
        return _made(index, source, container, options, progress)


def _made(
    index: Path,
    source: Source | None,
    container: Container | None,
    options: InPlaceOptions,
    progress: ProgressCallback | None,
) -> Path:
    """Make an index, which replaces an older one at its path."""
    if source is None:
        assert container is not None
        source = listed_container(container, in_place=True, unlabeled=options.unlabeled)
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
    """Warn of images that are left out or have no label. Files of other types are no loss."""
    tree = source.kind in ("imagefolder", "stylegan")  # in which hidden directories are taken
    losses = [
        item.line()
        for item in source.account or ()
        if item.is_loss or (tree and (item.fate == TAKEN or item.what == "class"))
    ]
    if lines := [*losses, *(note for note in source.notes if note not in map(recorded, source.others.notes()))]:
        warn("\n  ".join([f"What is read of {printable(source.root)}:", *lines]))


def _build(
    source: Source, directory: Path, index: Path, options: InPlaceOptions, progress: ProgressCallback | None
) -> None:
    on_error = "keep" if options.unreadable else "fail"
    try:
        build_index(source, directory, index, checksums=False, on_error=on_error, keys=options.keys, progress=progress)
    except ImageError as error:
        remedy = "To leave out such images: `packer index SRC OUT.index --on-error skip`, and open OUT.index"
        advised = type(error)(f"{error.reason}. {remedy}", error.name)
        advised.index = error.index
        raise advised from error


def _wait() -> None:
    """Wait for the process that makes the index."""


def _tree(root: Path) -> Source | None:
    """List a directory of images; None for another directory, or the remains of a pack."""
    if root.suffix in {suffix for row in FORMATS.values() for suffix in row.suffixes}:
        return None
    if class_directories(root):
        refuse_splits(root)
        with contextlib.suppress(SourceError):  # opening it as a pack raises the error
            return stylegan_source(root) or imagefolder_source(root, allow_empty=True)
    if others := files_to_name(root):
        raise SourceError(f"{printable(root)}: is not a directory of images in classes{others}")
    return None


def _require_images(source: Source) -> None:
    try:
        require_images_in_classes(source)
    except SourceError as error:
        hidden, own = option("skip_hidden", True), "packer.index(..., skip_hidden=True)"
        problem = message_of(error).replace(option("allow_empty", True), "allow_empty=True")
        raise SourceError(problem.replace(hidden, own)) from None


def _is_of(index: Path, source: Source | None, container: Container | None, options: InPlaceOptions) -> bool:
    """Tell whether an index lists these images, in unchanged files; if not, it may be replaced.

    Raises
    ------
    SourceError
        If there is something else at the path, or the index is of other files.
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


def _temporary() -> Path:
    """Make a directory that goes when this process ends, in memory where there is room for much.

    It has a locked file. A process that is killed leaves the directory, which the next one removes: nobody holds the
    lock any more.
    """
    memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    if memory is not None and shutil.disk_usage(memory).free < 1 << 30:
        memory = None
    _remove_abandoned(memory or Path(tempfile.gettempdir()))
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=memory))
    lock = open(made / f"new-{_LOCK}", "wb")  # noqa: SIM115 - open as long as the process lives
    try_lock(lock)
    if os.name != "nt":  # where an open file cannot be renamed
        os.rename(lock.name, made / _LOCK)
    atexit.register(_remove_own, made, os.getpid(), lock)
    return made


def _remove_abandoned(directory: Path) -> None:
    """Remove the directories of killed processes of this user."""
    for path in directory.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError, DestinationError), open(path, "ab", opener=_open_lock) as lock:
            owner = os.lstat(path.parent)
            if stat.S_ISDIR(owner.st_mode) and owner.st_uid == os.geteuid() and try_lock(lock):
                shutil.rmtree(path.parent)


def _open_lock(path: str, flags: int) -> int:
    return open_regular(path, flags=flags & ~os.O_CREAT | NO_LINK)


def _remove_own(directory: Path, process: int, lock: IO[bytes]) -> None:
    if os.getpid() == process:  # and not a child that was forked
        lock.close()
        shutil.rmtree(directory, ignore_errors=True)


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
_NOT_OF_EACH = {"root", "cache_dir", "cache_size", "timeout"}  # how URLs are read is a setting of the process
_SETTINGS = [name for name in inspect.signature(ImageDataset).parameters if name not in _NOT_OF_EACH]
_DATASETS = {dataset._format: dataset for dataset in (LMDBImageDataset, HDF5ImageDataset, PthImageDataset)}


class DatasetSettings(TypedDict, total=False):
    """The types of the settings that `ImageDataset` and `open_dataset` take by keyword alone; a test compares them.

    The overloads below need types alone. The two signatures spell the settings with their defaults, for `help`.
    """

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
    """The types of all that `open_dataset` takes by keyword alone."""

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
    """Open one or several packs of any format as a dataset; without a transform, images are tensors, not PIL images.

    The format is detected by the content of the pack, not by its name.

    Several packs, as in ``open_dataset(["a.lmdb", "b.h5"])``, become a `ConcatImageDataset`, one pack after the other.

    Parameters
    ----------
    root : path or URL, or list or tuple of these
        The pack, or the packs. The settings apply to each pack. Instead of a pack, a directory of images as for
        ImageFolder, or a container of another tool, such as ``shards/*.tar``: these are indexed at once and read in
        place.
    classes : {"same", "union"}
        ``same``: several packs must have the same classes. ``union``: the classes of the first pack keep their ids,
        additional classes of the other packs follow, and labels are renumbered.
    index : path, optional
        The file for the index of a directory or a container. It is used again as long as the images match it. By
        default the index is kept until the process ends. It has no checksums; `packer.index` makes an index with
        checksums.
    keys : sequence of str, or mapping of str to str
        The keys of a container that hold the image, the label, the name or a field: ``"NAME[:KIND]=KEY"``, or a mapping
        of names to keys.
    unlabeled : bool
        Whether samples of a container may lack a label, and get -1. Otherwise it is an error if no sample has a label
        although something in the container looks like labels.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the number of images indexed and their total.
    """
    arguments = locals()
    settings = {name: arguments[name] for name in _SETTINGS}
    progress = shown_progress(progress, "index")
    if classes not in _CLASSES:
        raise OptionError(f"classes is {' or '.join(map(repr, _CLASSES))}, not {classes!r}")
    choose_reading(root if isinstance(root, list | tuple) else [root], cache_dir, cache_size, timeout)
    named_keys = dict(keys) if isinstance(keys, Mapping) else parse_keys(keys)
    options = InPlaceOptions(named_keys, on_error == "replace", unlabeled, allow_empty)
    if not isinstance(root, list | tuple):
        return _opened(_pack_of(root, index, options, progress), settings)
    if index is not None:
        raise OptionError("index= applies only to a single directory or container")
    with contextlib.ExitStack() as opened:
        datasets = [opened.enter_context(_opened(_pack_of(path, None, options, progress), settings)) for path in root]
        joined = ConcatImageDataset(datasets)
        unite_classes(datasets, classes)
        opened.pop_all()
    return joined


def _pack_of(root: Any, index: Any, options: InPlaceOptions, progress: Callable[[int, int], None] | None) -> Any:
    """Return the pack at a path, or the index of images at that path."""
    if is_url(root):
        if options.keys or index is not None:
            raise OptionError(
                f"{'keys' if options.keys else 'index'}= applies only to containers on this machine's disks"
            )
        return place_of(root)  # the version of the object is requested once
    if index is None and is_pack(root):
        if options.keys:
            raise OptionError(
                f"keys= applies only to containers, and {printable(user_path(root))} is a pack, "
                "whose fields already have names"
            )
        return root
    return index_of(root, index, progress, options) or root


def _opened(path: Any, settings: dict[str, Any]) -> ImageDataset:
    with open_pack(path) as reader:
        kind = _DATASETS.get(reader.manifest.format, ImageDataset)
    return kind(path, **settings)


if open_dataset.__doc__ and ImageDataset.__doc__:  # not so under `python -OO`
    _, _, _rest = ImageDataset.__doc__.partition("The pack.\n")
    open_dataset.__doc__ = open_dataset.__doc__.rstrip() + "\n" + _rest  # parameters, errors and notes are the same
