"""`packer.pack`: samples that a program gives become a pack."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.request import ConversionRequest
from packer._conversion.spoken import speaking_of_arguments
from packer._conversion.streaming import stream_source
from packer._conversion.workspace import check_destination
from packer._fields import Field
from packer._storage.progress import shown_progress
from packer._storage.urlpath import local_path

__all__ = ["pack"]


@speaking_of_arguments
def pack(
    samples: Iterable[Mapping[str, Any]],
    dst: str | os.PathLike[str],
    *,
    fields: Mapping[str, str | Field] | None = None,
    classes: Sequence[str] | None = None,
    label_type: str = "class",
    format: str | None = None,
    resize: int | None = None,
    resize_mode: str | None = None,
    upscale: bool = False,
    interpolation: str | None = None,
    codec: str | None = None,
    quality: int | None = None,
    tiles: bool | None = None,
    recode: bool = False,
    exif: str = "ignore",
    audit: str = "structure",
    max_pixels: int | None = None,
    on_error: str = "fail",
    report: str | os.PathLike[str] | None = None,
    shard_size: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    progress: Callable[[ConversionProgress], None] | bool | None = None,
) -> Summary:
    """Write samples that a program gives, one after the other, to a pack.

    The pack appears at `dst` when it is complete. Until then the work lies in ``dst + ".partial"``. The same call with
    the same samples in the same order continues after an interruption: the samples that are packed already are drawn
    again, compared, and passed over.

    Parameters
    ----------
    samples : iterable of mappings
        Each has the keys

        ``"image"`` : bytes of an image file, path, PIL image, or array
            Bytes and files are stored as they are. A PIL image, or an array of (H, W) uint8, uint16 or bool or
            (H, W, 3 or 4) uint8, is stored as a PNG, unless `codec` says otherwise.
        ``"label"`` : int, float or str, optional
            As `label_type` says; of ``"class"``, an id or a name of `classes`, which has to be given then. Without a
            label, or with -1, a sample is unlabeled.
        ``"name"`` : str, optional
            A path with ``/`` between its parts, unique. By default the number of the sample: ``00000017.jpg``.

        and those of `fields`, of which each sample may lack some: they have no value there. Images and masks are given
        as ``"image"`` is; other values as `packer` gives them back.
    dst : path
        Where the pack will be.
    fields : mapping of str to str, optional
        The kind of each field: ``"mask"``, ``"image"``, ``"text"``, ``"json"``, ``"bytes"``, ``"boxes"``,
        ``"keypoints"``, ``"segmentation"``, ``"labels"``, ``"class"``; the dtype of numbers: ``"bool"``, ``"int8"`` to
        ``"int64"``, ``"float32"``, ``"float64"``; or dtype and number of axes of arrays: ``"array:float32:2"``, of
        one axis without the number. `packer.Field` also names classes:
        ``{"kind": packer.Field("kind", "class", classes=("cat", "dog"))}``.
    classes : sequence of str, optional
        The classes' names in the order of their ids, such as ``["cat", "dog"]`` for the labels 0 and 1. Without
        `classes`, samples have no class labels: say ``label_type="int"`` for numbers that have no names.
    label_type : {"class", "int", "float"}
        Whether labels are class ids, or numbers without classes.
    format, resize, resize_mode, upscale, interpolation, codec, quality, tiles, recode, exif, audit, max_pixels
        As for `packer.convert`.
    on_error, report, shard_size, workers, overwrite, fresh, progress
        As for `packer.convert`; the `total` of the progress is 0, as nobody knows it.

    Returns
    -------
    Summary
        What `packer.convert` returns.

    Raises
    ------
    TypeError, ValueError
        If an argument, or a sample, is of the wrong kind.
    OptionError
        If arguments do not fit together.
    SourceError
        If a sample has an unknown key or a name that cannot be one, two have one name, or none can be used.
    ImageError
        With ``on_error="fail"``, for the first sample whose image, label or value cannot be used.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written, another process writes it, or the unfinished pack was started differently, or
        with other samples.

    Examples
    --------
    >>> def samples():
    ...     for path in sorted(Path("photos").glob("*.jpg")):
    ...         yield {"image": path, "caption": path.with_suffix(".txt").read_text(), "age": 3.5}
    >>> packer.pack(samples(), "photos.lmdb", fields={"caption": "text", "age": "float32"})  # doctest: +SKIP
    """
    progress = shown_progress(progress, dst)
    destination = local_path(dst)
    request = ConversionRequest(
        src=destination,
        dst=destination,
        format=format,
        resize=resize,
        resize_mode=resize_mode,
        upscale=upscale,
        interpolation=interpolation,
        codec=codec,
        quality=quality,
        tiles=tiles,
        recode=recode,
        exif=exif,
        audit=audit,
        max_pixels=max_pixels,
        on_error=on_error,
        report=None if report is None else Path(os.path.expanduser(report)),
        shard_size=shard_size,
        workers=workers,
        overwrite=overwrite,
        fresh=fresh,
        ignore_free_space=True,
    )
    check_destination(destination, overwrite=overwrite)
    return request.convert(stream_source(destination, fields, classes, label_type), progress, samples)
