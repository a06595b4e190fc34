"""`packer.index`: indexes images in place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from packer._account import BadSamples
from packer._conversion.convert import Summary
from packer._conversion.options import IndexOptions, SourceOptions, options_of, require_choices, values_of
from packer._conversion.request import SourceRequest
from packer._conversion.workspace import Workspace, check_destination, check_inputs
from packer._formats import INDEX, check_readable
from packer._manifest import Manifest
from packer._sources.base import Source
from packer._sources.index import build_index
from packer._storage.files import disk_size, remove
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import user_path
from packer.errors import DestinationOptionError, OptionTypeError, printable

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class IndexRequest(IndexOptions, SourceRequest):
    """A request to make an index of images; `packer.index` explains each option."""

    in_place: ClassVar[bool] = True

    dst: Path

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self, IndexOptions)
        self.require_strict_policy(self.on_error)

    @property
    def allows_empty(self) -> bool:
        return False

    def bad_samples(self) -> BadSamples:
        return BadSamples(skip=self.on_error == "skip")

    def make(self, progress: ProgressCallback | None = None) -> Summary:
        """Make the index."""
        started, destination = time.monotonic(), Path(os.path.abspath(self.dst))
        if destination.suffix.lower() not in INDEX.suffixes:
            raise DestinationOptionError(f"{printable(self.dst)}: the name of an index ends in {INDEX.suffixes[0]}")
        check_inputs(destination, self.inputs())
        check_destination(destination, overwrite=self.overwrite)
        source = self.open(None, self.classes())
        check_inputs(destination, source.inputs())
        if self.on_error == "fail":
            source.require_whole()
        with Workspace(destination) as workspace:
            remove(workspace.pack)  # left by a process that died; an index is never continued, but made again
            workspace.pack.mkdir()
            try:
                manifest = self._build(source, workspace.pack, destination, progress)
                size = disk_size(workspace.pack)
                workspace.commit(overwrite=self.overwrite)
            except BaseException:
                workspace.drop()
                raise
        check_readable(destination, manifest)
        bytes_in = 0 if source.stamps is None else int(source.stamps[:, 0].clip(0).sum())
        notes, others = source.remarks(), dict(source.others.counts)
        seconds = time.monotonic() - started
        return Summary(destination, manifest, bytes_in, size, seconds, 0, manifest.count, notes, others)

    def _build(self, source: Source, directory: Path, destination: Path, progress: ProgressCallback | None) -> Manifest:
        settings: dict[str, Any] = {"checksums": self.checksums, "exif": self.exif, "on_error": self.on_error}
        return build_index(source, directory, destination, **settings, keys=self.container_keys, progress=progress)


def index(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    checksums: bool = True,
    exif: str = "ignore",
    on_error: str = "fail",
    overwrite: bool = False,
    progress: ProgressCallback | bool | None = None,
    **options: Any,
) -> Summary:
    """Make an index of images without copying them, as `packer index` does.

    An index is a pack without the images: readers of the index read the images from their files. If a file has changed
    since the index was made, readers raise an error with its name.

    Parameters
    ----------
    src : path
        A source, as for `convert`, but not a pack.
    dst : path
        The path of the new index, a directory whose name ends in ``.index``.
    checksums : bool
        Whether to read every sample and store its checksum. If False, only the structure of the files and the headers
        of the images are read, and a change of a sample is detected only by the size and the time of its file.
    exif : {"ignore", "apply"}
        Whether to rotate each image, when it is read, according to its EXIF orientation. ImageFolder ignores the
        orientation.
    on_error : {"fail", "skip"}
        What happens at an unreadable image: ``"fail"`` stops, ``"skip"`` leaves the image out and lists it in the
        manifest.
    overwrite : bool
        Whether to replace `dst` if it is a pack, an empty file or an empty directory. A directory with files that do
        not belong to the pack is not replaced.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the number of images examined so far, and the number of all
        images.
    **options
        The arguments of `convert` that select images, labels and fields.

    Returns
    -------
    Summary
        The summary that `convert` returns; `bytes_out` is the size of the index.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    OptionError, SourceError, PackError, MissingDependencyError
        The same as for `convert`.
    ImageError
        If ``on_error="fail"``, for the first image that cannot be read.
    DestinationError, PackLockedError
        If the index cannot be written.
    """
    values = values_of(IndexOptions, locals())
    progress = shown_progress(progress, dst)
    known = {name for name, _ in options_of(SourceOptions)}
    if unknown := [name for name in options if name not in known]:
        raise OptionTypeError(f"index takes no {unknown[0]!r}: packer.convert has no such argument that selects images")
    values |= values_of(SourceOptions, options)
    return IndexRequest(src=user_path(src), dst=user_path(dst), **values).make(progress)
