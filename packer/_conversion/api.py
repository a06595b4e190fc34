"""`packer.convert` and `packer.pack`; `append`, `index` and `merge` have modules of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._conversion.append import append
from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.index import index
from packer._conversion.merge import merge
from packer._conversion.options import ImageOptions, OutputOptions, values_of
from packer._conversion.partition import convert_in_parts
from packer._conversion.request import ConversionRequest
from packer._conversion.stream import stream_source
from packer._conversion.upload import UploadedConversion
from packer._conversion.workspace import check_destination
from packer._fields import Field
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import is_url, local_path, user_path
from packer.errors import OptionError, option

__all__ = ["append", "convert", "index", "merge", "pack"]


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    format: str | None = None,
    resize: int | None = None,
    resize_mode: str | None = None,
    upscale: bool = False,
    interpolation: str | None = None,
    codec: str | None = None,
    quality: int | None = None,
    tiles: bool | None = None,
    recode: bool = False,
    to_8_bit: str | None = None,
    exif: str = "ignore",
    audit: str = "structure",
    max_pixels: int | None = None,
    labels: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    delimiter: str | None = None,
    label_type: str | None = None,
    suffix: str | None = None,
    no_header: bool = False,
    unlabeled: bool = False,
    extensions: str | Sequence[str] | None = None,
    any_image: bool = False,
    skip_hidden: bool = False,
    allow_empty: bool = False,
    classes_from: str | os.PathLike[str] | None = None,
    where: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
    fields: Mapping[str, str] | Sequence[str] = (),
    columns: Mapping[str, str] | Sequence[str] = (),
    coco: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    masks: bool = False,
    voc: str | os.PathLike[str] | None = None,
    yolo: str | os.PathLike[str] | None = None,
    split: str | None = None,
    on_missing: str | None = None,
    keys: Mapping[str, str] | Sequence[str] = (),
    no_classes: bool = False,
    no_metadata: bool = False,
    strict: bool = False,
    on_error: str = "fail",
    report: str | os.PathLike[str] | None = None,
    shard_size: int | None = None,
    parts: int | None = None,
    workers: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    ignore_free_space: bool = False,
    progress: Callable[[ConversionProgress], None] | bool | None = None,
) -> Summary:
    """Convert images to a pack, as `packer convert` does.

    The pack appears at `dst` when it is complete. Until then the work lies in ``dst + ".partial"``, from which the same
    call continues after an interruption.

    Parameters
    ----------
    src : path
        A directory with one subdirectory a class, as for torchvision's ImageFolder; a pack, whose samples keep their
        bytes unless an option says otherwise; a container of another tool, as a file, a directory or a pattern such as
        ``shards/*.tar``; or a listing that `packer scan` wrote.
    dst : path
        Where the pack will be. ``~`` is the user's home in all paths. Or a URL, ``s3://``, ``gs://`` or ``az://``: the
        pack is made on this machine, and uploaded.
    format : {"lmdb", "hdf5", "pth", "wds", "tfrecord", "rec", "mds", "caffe", "n5", "parquet"}, optional
        By default the suffix of `dst` decides: ``.lmdb``, ``.h5`` or ``.hdf5``, ``.pth``, ``.wds``, ``.tfrecord``,
        ``.rec``, ``.mds``, ``.caffe``, ``.n5``, ``.parquet``.
    resize : int, optional
        Pixels that images are resized to, anti-aliased; `resize_mode` says which side gets them. By default images
        keep their size.
    resize_mode : {"short", "long", "exact", "crop", "pad"}, optional
        ``short`` (the default): the shorter side gets `resize` pixels. ``long``: the longer side. ``exact``: both.
        ``crop``: the shorter side, then the centre square. ``pad``: the longer side, then black borders to a square.
    upscale : bool
        Whether images that are smaller than `resize` are enlarged.
    interpolation : {"bilinear", "bicubic"}, optional
        By default it is bilinear.
    codec : {"keep", "jpeg", "png", "webp", "bmp", "raw"}, optional
        What is stored: the files' own bytes, an encoding, or uint8 RGB pixels. By default keep; with `resize` jpeg.
    quality : int, optional
        1 to 100, of jpeg and webp; by default 90.
    tiles : bool, optional
        Whether JPEGs are stored tiled, so that a crop is decoded without the rest. By default those that are encoded
        are tiled, and those that are kept are not.
    recode : bool
        Whether files are encoded anew that are of the type of `codec` already and need no resizing. By default they
        keep their bytes.
    to_8_bit : {"clip", "type", "file"}, optional
        How an image with more than 8 bits a channel, or with bands that RGB does not show, becomes 8-bit RGB where
        pixels are encoded. By default it is refused. ``clip``: as Pillow reads it, which cuts grey off at 255.
        ``type``: scaled by the range of its type, 65535 to 255, and floats from 0 to 1. ``file``: scaled by its own
        lowest and highest value.
    exif : {"ignore", "apply"}
        Whether the EXIF orientation turns the image; ImageFolder ignores it.
    audit : {"structure", "decode"}
        How each image is checked: its type, header, size and end; or all its pixels.
    max_pixels : int, optional
        Images with more pixels are refused; by default, and at most, 178,956,970.
    labels : path, optional
        A table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``) of paths, relative to `src` or below it, and labels; they
        take the place of directory names.
    path_column, label_column : str, optional
        The columns of `labels`; by default ``"path"`` and ``"label"``.
    delimiter : str, optional
        The character that separates the columns of `labels`; by default a comma, and a tab in a ``.tsv`` file.
    label_type : {"class", "int", "float"}, optional
        What the labels in `labels` are. ``class``: names of classes, whose ids are their places when they are sorted as
        text. ``int`` and ``float``: numbers without classes, which are kept as int64 or float64. By default whole
        numbers are class ids as they stand, -1 an unlabeled image, and other texts are names.
    suffix : str, optional
        What the paths in `labels` lack at their end, such as ``".jpg"``. Where nobody says it, a path without a suffix
        is that of the one image whose name it begins.
    no_header : bool
        Whether the first line of `labels` is a row, and no header: the columns are called ``"1"``, ``"2"`` and so on,
        and by default the first has the paths and the second the labels.
    unlabeled : bool
        Whether images without labels are taken, with the label -1: the rows of `labels`, or the samples of a container,
        that have none. Of a directory without `labels`, all images below `src`; there are no classes then.
    extensions : str or sequence of str, optional
        The suffixes of images, such as ``(".jpg", ".gif")`` or ``".jpg,.gif"``, in place of ImageFolder's. Case does
        not count.
    any_image : bool
        Whether files of other suffixes are opened, and taken where they begin as an image does.
    skip_hidden : bool
        Whether files and directories whose names begin with a dot are left out. ImageFolder takes them, and makes a
        class of a hidden directory; by default so does packer, and says it.
    allow_empty : bool
        Whether a class directory may have no image: its class keeps its id. By default it is an error, as of
        ImageFolder, but not with `classes_from` or `parts`.
    classes_from : path, optional
        A pack whose class ids are used: for val, train's. The classes of its fields are used too, for `columns` of
        the same name and kind.
    where : str, optional
        Which samples of a pack are taken: a condition on their columns, such as ``'age > 30 and split == "train"'``, as
        `ImageDataset.where` takes it. `limit` and `sample` count those that meet it.
    limit : int, optional
        How many images are taken, from the first on.
    sample : int, optional
        How many images are taken, evenly spread over the list, and so over the classes. Their order stays.
    fields : mapping of str to str, or sequence of str
        Files beside the images that become fields, templates by names: ``{"mask": "../masks/{stem}.png"}``; a name may
        have a kind, ``"depth:array"``. Or texts as the command line has them, ``"mask=../masks/{stem}.png"``. Templates
        are relative to `src` and have the placeholders ``{path}``, ``{dir}``, ``{name}``, ``{stem}`` and ``{class}``.
    columns : mapping of str to str, or sequence of str
        Columns of `labels` that become fields, kinds by names: ``{"caption": "text", "age": "float32"}``; or texts as
        the command line has them, ``"caption=COLUMN:text"``.
    coco : path or sequence of path
        Files of annotations in COCO's format, of the same images: boxes, categories, segmentations, keypoints, captions
        and all else in them become fields. `src` is the directory that ``file_name`` counts from. Images have the
        label -1, as with `voc` and `yolo`.
    masks : bool
        Whether the annotations of `coco` are drawn into the field ``mask``, a PNG of the ids of categories: crowds
        below others, smaller ones on top.
    voc : path, optional
        A directory in Pascal VOC's layout, such as ``VOCdevkit/VOC2012``, whose ``Annotations`` and
        ``SegmentationClass`` become fields. `src` is this directory, or its ``JPEGImages``.
    yolo : path, optional
        A ``data.yaml`` of YOLO's, with files in ``labels`` beside the images, which become fields.
    split : str, optional
        Which images of `voc` or `yolo`: the name of a list in ``ImageSets``, or of a split in ``data.yaml``.
    on_missing : {"error", "null", "skip"}, optional
        What becomes of an image without the file or the row of a field: an error (the default), no value, or the image
        is left out. ``"skip"`` leaves out images that annotations name and that are not there.
    keys : mapping of str to str, or sequence of str
        What in a container of another tool is the image, the label or the name, or becomes a field: keys by names,
        ``{"image": "image/encoded", "caption:text": "txt"}``; or texts as the command line has them. By default the
        container's own names decide.
    no_classes : bool
        Whether all images below `src`, or all rows of `labels`, are taken with the label -1, without classes.
    no_metadata : bool
        Whether ``metadata.csv``, ``.jsonl`` or ``.parquet`` in `src` is left alone, whose columns are fields otherwise.
    strict : bool
        Whether it is an error, before anything is written, that an image, a label or a field is left out, an image is
        unlabeled, or classes are renumbered, where no argument asked for that. Files that were not looked at are none.
        Not with ``on_error="skip"``.
    on_error : {"fail", "skip"}
        What to do with a sample that cannot be used: a file that is no readable image, or changed after it was listed;
        a bad row of a table, or a bad annotation. Stop, or leave the sample out and list it in the manifest.
    report : path, optional
        Where to write a JSON line for every file with a finding and every file that was left out.
    shard_size : int, optional
        Most bytes of images in a file of a ``.pth`` pack, or of a file of a ``.wds``, ``.tfrecord``, ``.mds``, ``.n5``
        or ``.parquet`` pack; by default 512 MiB, and 64 MiB of ``.n5``, whose tools read such a file whole.
    parts : int, optional
        Make `dst` a directory of so many packs, which is read as one.
    workers : int, optional
        Threads; by default the CPUs that affinity, cgroup and SLURM grant, and one more to encode.
    scratch : path, optional
        Where the pack is made if `dst` is a URL; by default ``packer-UID`` in the system's temporary directory.
    overwrite : bool
        Whether to replace what is at `dst`, at the end.
    fresh : bool
        Whether to start over instead of continuing an interrupted conversion.
    ignore_free_space : bool
        Whether to begin on a disk that has less room than the files take which keep their bytes.
    progress : bool or callable, optional
        True shows a bar. A callable is called after every batch with an object that has `done`, `total` and `skipped`,
        in images, and `bytes_read`.

    Returns
    -------
    Summary
        `destination`, `manifest`, `bytes_in`, `bytes_out`, `seconds`, `continued` (images that an earlier run did),
        `kept` (samples that are the very bytes of their files), `notes`, and `not_looked_at` (files of other types by
        their suffixes). Where the complete pack has parts and the
        same call made it before, everything counts as continued.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.
    OptionError
        If arguments do not fit together, or one would decide nothing; if `where` is no condition, or chooses nothing.
    SourceError
        If `src` cannot be used, or none of its images can be read.
    ImageError
        With ``on_error="fail"``, for the first file that is no readable image, or changed after it was listed.
    PackError
        If a pack that is read is none, damaged, or a newer packer's.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written, another process writes it, or the unfinished pack was started differently.
    RemoteError
        If a store of objects cannot be reached, or refuses.
    MissingDependencyError
        If what is needed is not there: packer's own C for `tiles`, pyarrow for Parquet, PyYAML for `yolo`, boto3 or
        obstore for a URL.
    """
    values = values_of(ConversionRequest, locals())
    progress = shown_progress(progress, dst)
    request = ConversionRequest(src=user_path(src), dst=user_path(dst), **values)
    if is_url(request.dst):
        with UploadedConversion(request, None if scratch is None else user_path(scratch)) as conversion:
            return conversion.upload(conversion.made or _converted(conversion.request, request.dst, progress))
    if scratch is not None:
        raise OptionError(f"{option('scratch')} is for a URL as DST: here, the pack is made where it stays")
    if request.parts is None:
        request.require_destination()
    return _converted(request, request.dst, progress)


def _converted(
    request: ConversionRequest, destination: Path, progress: Callable[[ConversionProgress], None] | None
) -> Summary:
    """Make the pack that is asked for on this machine; messages say that it goes to `destination`."""
    if request.parts is not None:
        return convert_in_parts(request, progress)
    return request.convert(request.open(destination, request.classes()), progress)


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
    to_8_bit: str | None = None,
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
    """Write the samples of an iterable to a pack, one after the other.

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
    format, resize, resize_mode, upscale, interpolation, codec, quality, tiles, recode, to_8_bit, exif, audit,
    max_pixels
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
    values = values_of(OutputOptions, locals()) | values_of(ImageOptions, locals())
    progress, destination = shown_progress(progress, dst), local_path(dst)
    request = ConversionRequest(src=destination, dst=destination, **{**values, "ignore_free_space": True})
    check_destination(destination, overwrite=overwrite)
    return request.convert(stream_source(destination, fields, classes, label_type), progress, samples)
