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

    The pack appears at `dst` when it is complete. Until then the unfinished pack is ``dst + ".partial"``; after an
    interruption, the same call continues from there.

    Parameters
    ----------
    src : path
        A directory with one subdirectory for each class, as for torchvision's ImageFolder; a pack, whose samples keep
        their bytes unless an option changes them; a container of another tool, as a file, a directory or a pattern like
        ``shards/*.tar``; or a listing that `packer scan` wrote.
    dst : path
        The path of the new pack. ``~`` is the user's home in all paths. Or a URL, ``s3://``, ``gs://`` or ``az://``:
        the pack is made on this machine and uploaded.
    format : {"lmdb", "hdf5", "pth", "wds", "tfrecord", "rec", "mds", "caffe", "n5", "parquet"}, optional
        By default the suffix of `dst` decides: ``.lmdb``, ``.h5`` or ``.hdf5``, ``.pth``, ``.wds``, ``.tfrecord``,
        ``.rec``, ``.mds``, ``.caffe``, ``.n5``, ``.parquet``.
    resize : int, optional
        The new length, in pixels, of the side or sides that `resize_mode` selects; resizing is anti-aliased. By default
        images keep their size.
    resize_mode : {"short", "long", "exact", "crop", "pad"}, optional
        The side that gets `resize` pixels. ``short`` (the default): the shorter side. ``long``: the longer side.
        ``exact``: both sides. ``crop``: the shorter side; then the centre square is cut out. ``pad``: the longer side;
        then black borders make the image square.
    upscale : bool
        Whether images smaller than `resize` are enlarged.
    interpolation : {"bilinear", "bicubic"}, optional
        The filter of resizing; by default bilinear.
    codec : {"keep", "jpeg", "png", "webp", "bmp", "raw"}, optional
        The stored form of each image: the bytes of its file (``keep``), an encoding, or uint8 RGB pixels (``raw``). By
        default ``keep``; with `resize` ``jpeg``.
    quality : int, optional
        The quality of ``jpeg`` and ``webp``, 1 to 100; by default 90.
    tiles : bool, optional
        Whether JPEGs are stored in tiles, so that a crop is decoded without the rest of the image. By default, JPEGs
        that packer encodes are tiled, and kept files are not.
    recode : bool
        Whether to encode files again that already have the type of `codec` and need no resizing. By default they keep
        their bytes.
    to_8_bit : {"clip", "type", "file"}, optional
        The conversion to 8-bit RGB of an image with more than 8 bits per channel, or with bands that RGB lacks, when
        its pixels are encoded. By default such an image is an error. ``clip``: as Pillow reads it; grey values above
        255 become 255. ``type``: scaled by the range of its type, so 65535 becomes 255; floats range from 0 to 1.
        ``file``: scaled by the lowest and highest value of the file.
    exif : {"ignore", "apply"}
        Whether the image is rotated by its EXIF orientation; ImageFolder ignores the orientation.
    audit : {"structure", "decode"}
        The check of each image: of its type, header, size and end; or of all its pixels.
    max_pixels : int, optional
        Images with more pixels are refused; by default, and at most, 178,956,970.
    labels : path, optional
        A table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``) with paths, relative to `src` or below it, and labels;
        these labels replace the directory names.
    path_column, label_column : str, optional
        The columns of `labels`; by default ``"path"`` and ``"label"``.
    delimiter : str, optional
        The character that separates the columns of `labels`; by default a comma, and a tab in a ``.tsv`` file.
    label_type : {"class", "int", "float"}, optional
        The type of the labels in `labels`. ``class``: class names, whose ids are their positions in sorted order.
        ``int`` and ``float``: numbers without classes, stored as int64 or float64. By default, whole numbers are class
        ids, -1 is an unlabeled image, and other labels are class names.
    suffix : str, optional
        The suffix that the paths in `labels` lack, such as ``".jpg"``. By default, a path without a suffix refers to
        the only image whose name begins with it.
    no_header : bool
        Whether the first line of `labels` is a row instead of a header. The columns are then called ``"1"``, ``"2"``
        and so on; by default the first has the paths and the second the labels.
    unlabeled : bool
        Whether images without labels are accepted and get the label -1: rows of `labels`, or samples of a container.
        From a directory without `labels`, all images below `src` are packed, without classes.
    extensions : str or sequence of str, optional
        The suffixes of images, such as ``(".jpg", ".gif")`` or ``".jpg,.gif"``, instead of ImageFolder's, in upper or
        lower case.
    any_image : bool
        Whether files with other suffixes are opened too, and packed if they have the signature of an image.
    skip_hidden : bool
        Whether files and directories whose names begin with a dot are left out. By default packer, like ImageFolder,
        packs them and makes a hidden directory a class; the notes report this.
    allow_empty : bool
        Whether a class directory may be empty; its class keeps its id. By default this is an error, as in ImageFolder,
        except with `classes_from` or `parts`.
    classes_from : path, optional
        A pack whose class ids are used, such as the training set's for the validation set. `columns` of the same name
        and kind as its fields use the classes of these fields.
    where : str, optional
        A condition that selects samples of a pack by their columns, such as ``'age > 30 and split == "train"'``; see
        `ImageDataset.where`. `limit` and `sample` count only the selected samples.
    limit : int, optional
        The number of images to pack, from the first on.
    sample : int, optional
        The number of images to pack, evenly spread over the list and therefore over the classes, in the same order.
    fields : mapping of str to str, or sequence of str
        Other files of each image that become fields, as a mapping of field names to templates:
        ``{"mask": "../masks/{stem}.png"}``; a name may include a kind, ``"depth:array"``. Or strings as on the command
        line, ``"mask=../masks/{stem}.png"``. Templates are relative to `src` and may contain the placeholders
        ``{path}``, ``{dir}``, ``{name}``, ``{stem}`` and ``{class}``.
    columns : mapping of str to str, or sequence of str
        Columns of `labels` that become fields, as a mapping of names to kinds:
        ``{"caption": "text", "age": "float32"}``; or strings as on the command line, ``"caption=COLUMN:text"``.
    coco : path or sequence of path
        Annotation files in COCO's format for the images: boxes, categories, segmentations, keypoints, captions and all
        other members become fields. ``file_name`` is relative to `src`. Images get the label -1, as with `voc` and
        `yolo`.
    masks : bool
        Whether the annotations of `coco` are also drawn into the field ``mask``, a PNG of category ids: crowds at the
        bottom, smaller objects on top of larger ones.
    voc : path, optional
        A directory in Pascal VOC's layout, such as ``VOCdevkit/VOC2012``, whose ``Annotations`` and
        ``SegmentationClass`` become fields. `src` is this directory, or its ``JPEGImages``.
    yolo : path, optional
        A YOLO ``data.yaml``; the files in ``labels``, next to ``images``, become fields.
    split : str, optional
        The images of `voc` or `yolo` to pack: the name of a list in ``ImageSets``, or of a split in ``data.yaml``.
    on_missing : {"error", "null", "skip"}, optional
        The treatment of an image without the file or the row of a field: an error (the default), a missing value, or
        the image is left out. ``"skip"`` also leaves out images that annotations name but that do not exist.
    keys : mapping of str to str, or sequence of str
        The keys in a container of another tool that hold the image, the label, the name or a field, as a mapping of
        names to keys: ``{"image": "image/encoded", "caption:text": "txt"}``; or strings as on the command line. By
        default, packer chooses by the names of the keys in the container.
    no_classes : bool
        Whether to pack all images below `src`, or all rows of `labels`, with the label -1 and without classes.
    no_metadata : bool
        Whether to ignore ``metadata.csv``, ``.jsonl`` or ``.parquet`` in `src`; otherwise its columns become fields.
    strict : bool
        Whether it is an error, raised before anything is written, if an image, a label or a field is left out, an image
        has no label, or classes are renumbered, unless an argument requests it. Files that packer does not examine do
        not count. Cannot be combined with ``on_error="skip"``.
    on_error : {"fail", "skip"}
        The treatment of an unusable sample: a file that is not a readable image or that changed after it was listed, an
        invalid row of a table, or an invalid annotation. Stop, or leave the sample out and list it in the manifest.
    report : path, optional
        The file to which one JSON line is written for each file with a finding and each file that was left out.
    shard_size : int, optional
        The limit, in bytes, of the images in each file of a ``.pth`` pack, or of each file of a ``.wds``,
        ``.tfrecord``, ``.mds``, ``.n5`` or ``.parquet`` pack; by default 512 MiB, and 64 MiB for ``.n5``, because its
        tools read whole files.
    parts : int, optional
        Make `dst` a directory of this many packs, which is read as one pack.
    workers : int, optional
        The number of threads; by default the number of CPUs that affinity, cgroup and SLURM allow, plus one when images
        are encoded.
    scratch : path, optional
        The directory in which the pack is made if `dst` is a URL; by default ``packer-UID`` in the system's temporary
        directory.
    overwrite : bool
        Whether to replace an existing `dst`, at the end of the conversion.
    fresh : bool
        Whether to start over instead of continuing an interrupted conversion.
    ignore_free_space : bool
        Whether to start although the disk has less free space than the kept files need.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called after every batch with a `ConversionProgress`: `done`, `total`
        and `skipped`, in images, and `bytes_read`.

    Returns
    -------
    Summary
        `destination`, `manifest`, `bytes_in`, `bytes_out`, `seconds`, `continued` (images that an earlier run
        converted), `kept` (samples with the unchanged bytes of their files), `notes`, and `not_looked_at` (the number
        of files for each suffix of other types). If the same call made the complete pack with parts before, everything
        counts as continued.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    OptionError
        If arguments contradict each other or one has no effect; if `where` is not a valid condition, or selects no
        sample.
    SourceError
        If `src` cannot be used, or none of its images can be read.
    ImageError
        With ``on_error="fail"``, for the first file that is not a readable image, or that changed after it was listed.
    PackError
        If an input pack is not a pack, is damaged, or was written by a newer packer.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written, another process is writing it, or the unfinished pack was started with other
        settings or another source.
    RemoteError
        If an object store cannot be reached, or refuses a request.
    MissingDependencyError
        If a dependency is missing: packer's compiled extension for `tiles`, pyarrow for Parquet, PyYAML for `yolo`,
        boto3 or obstore for a URL.
    """
    values = values_of(ConversionRequest, locals())
    progress = shown_progress(progress, dst)
    request = ConversionRequest(src=user_path(src), dst=user_path(dst), **values)
    if is_url(request.dst):
        with UploadedConversion(request, None if scratch is None else user_path(scratch)) as conversion:
            return conversion.upload(conversion.made or _converted(conversion.request, request.dst, progress))
    if scratch is not None:
        raise OptionError(
            f"{option('scratch')} applies only if DST is a URL; otherwise the pack is made at its destination"
        )
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
    """Write samples from an iterable to a pack.

    The pack appears at `dst` when it is complete. Until then the unfinished pack is ``dst + ".partial"``. After an
    interruption, the same call with the same samples in the same order continues: it reads the finished samples from
    the iterable again, compares them, and skips them.

    Parameters
    ----------
    samples : iterable of mappings
        Each has these keys:

        ``"image"`` : bytes of an image file, path, PIL image, or array
            Bytes and files are stored as they are. A PIL image, or an array of (H, W) uint8, uint16 or bool or
            (H, W, 3 or 4) uint8, is stored as a PNG, unless `codec` is another type.
        ``"label"`` : int, float or str, optional
            Of the type `label_type`. With ``"class"``, an id or a name in `classes`, which is required then. Without a
            label, or with -1, a sample is unlabeled.
        ``"name"`` : str, optional
            A unique path with the separator ``/``. By default the number of the sample: ``00000017.jpg``.

        and the names of `fields`; a key that a sample lacks is a missing value. Images and masks have the same forms as
        ``"image"``; other values have the form in which `packer` returns them.
    dst : path
        The path of the new pack.
    fields : mapping of str to str, optional
        The kind of each field: ``"mask"``, ``"image"``, ``"text"``, ``"json"``, ``"bytes"``, ``"boxes"``,
        ``"keypoints"``, ``"segmentation"``, ``"labels"``, ``"class"``; the dtype of numbers: ``"bool"``, ``"int8"`` to
        ``"int64"``, ``"float32"``, ``"float64"``; or the dtype and the number of axes of arrays: ``"array:float32:2"``,
        with one axis by default. A `packer.Field` can also name classes:
        ``{"kind": packer.Field("kind", "class", classes=("cat", "dog"))}``.
    classes : sequence of str, optional
        The class names in the order of their ids, such as ``["cat", "dog"]`` for the labels 0 and 1. Without `classes`,
        samples cannot have class labels; pass ``label_type="int"`` for numbers without names.
    label_type : {"class", "int", "float"}
        Whether labels are class ids, or numbers without classes.
    format, resize, resize_mode, upscale, interpolation, codec, quality, tiles, recode, to_8_bit, exif, audit,
    max_pixels
        As for `packer.convert`.
    on_error, report, shard_size, workers, overwrite, fresh, progress
        As for `packer.convert`; the `total` of the progress is 0, because it is unknown.

    Returns
    -------
    Summary
        As from `packer.convert`.

    Raises
    ------
    TypeError, ValueError
        If an argument or a sample has a wrong type or value.
    OptionError
        If arguments contradict each other.
    SourceError
        If a sample has an unknown key or an invalid name, two samples have the same name, or no sample can be used.
    ImageError
        With ``on_error="fail"``, for the first sample whose image, label or value cannot be used.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written, another process is writing it, or the unfinished pack was started with other
        settings or other samples.

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
