"""`packer.convert` and `packer.pack`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.options import ImageOptions, OutputOptions, values_of
from packer._conversion.request import ConversionRequest
from packer._conversion.stream import stream_source
from packer._conversion.workspace import check_destination
from packer._fields import Field
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import is_url, local_path, user_path
from packer.errors import OptionError, option


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
        A directory, a pack, a container or a listing. A directory has one subdirectory for each class, as for
        torchvision's ImageFolder. The samples of a pack keep their bytes unless another argument changes them. A
        container is a dataset in the format of another tool: a file, a directory, or a pattern such as
        ``shards/*.tar``. A listing is a file that `packer scan` wrote.
    dst : path
        The path of the new pack, or a URL that begins with ``s3://``, ``gs://`` or ``az://``. For a URL, the pack is
        made on this machine and then uploaded. In all paths, ``~`` is the user's home directory.
    format : {"lmdb", "hdf5", "pth", "wds", "tfrecord", "rec", "mds", "caffe", "n5", "parquet"}, optional
        The format of the pack. By default the suffix of `dst` decides: ``.lmdb``, ``.h5`` or ``.hdf5``, ``.pth``,
        ``.wds``, ``.tfrecord``, ``.rec``, ``.mds``, ``.caffe``, ``.n5``, ``.parquet``.
    resize : int, optional
        The new length, in pixels, of the side or sides that `resize_mode` selects; resizing is anti-aliased. By default
        images keep their size.
    resize_mode : {"short", "long", "exact", "crop", "pad"}, optional
        The side to resize to `resize` pixels. ``short`` (the default): the shorter side. ``long``: the longer side.
        ``exact``: both sides. ``crop``: the shorter side; then the centre square is cut out. ``pad``: the longer side;
        then black borders make the image square.
    upscale : bool
        Whether images smaller than `resize` are enlarged.
    interpolation : {"bilinear", "bicubic"}, optional
        The filter for resizing; by default bilinear.
    codec : {"keep", "jpeg", "png", "webp", "bmp", "raw"}, optional
        The stored form of each image: the bytes of its file (``keep``), an encoding, or uint8 RGB pixels (``raw``). The
        default is ``keep``; with `resize`, it is ``jpeg``.
    quality : int, optional
        The quality of ``jpeg`` and ``webp``, 1 to 100; by default 90.
    tiles : bool, optional
        Whether JPEGs are stored in tiles, so that a crop is decoded without the rest of the image. By default, JPEGs
        that packer encodes are tiled, and kept files are not.
    recode : bool
        Whether to re-encode files that already have the type of `codec` and need no resizing. By default such files
        keep their bytes.
    to_8_bit : {"clip", "type", "file"}, optional
        How an image with more than 8 bits per channel, or with bands other than red, green and blue, is converted to
        8-bit RGB when its pixels are encoded. By default such an image is an error. ``clip``: as Pillow converts it;
        grey values above 255 become 255. ``type``: values are scaled by the range of their data type, so 65535 becomes
        255; floats must be from 0 to 1. ``file``: values are scaled so that the lowest value in the file becomes 0 and
        the highest becomes 255.
    exif : {"ignore", "apply"}
        Whether to rotate each image according to its EXIF orientation. ImageFolder ignores the orientation.
    audit : {"structure", "decode"}
        How each image is checked. ``structure``: its type, header and size, and whether the end of its file is missing.
        ``decode``: all its pixels are decoded as well.
    max_pixels : int, optional
        Images with more pixels than this are refused. The default is 178,956,970, which is also the largest allowed
        value.
    labels : path, optional
        A table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``) with the path and the label of each image; these labels
        replace the directory names. A path is relative to `src`, or absolute but below `src`.
    path_column : str, optional
        The name of the column of `labels` that has the paths: ``"path"`` (the default) or another name.
    label_column : str, optional
        The name of the column of `labels` that has the labels: ``"label"`` (the default) or another name.
    delimiter : str, optional
        The character that separates the columns of `labels`; by default a comma, and a tab in a ``.tsv`` file.
    label_type : {"class", "int", "float"}, optional
        The type of the labels in `labels`. ``class``: class names, whose ids are their positions in sorted order.
        ``int`` and ``float``: numbers without classes, stored as int64 or float64. By default, whole numbers are class
        ids, -1 marks an unlabeled image, and other labels are class names.
    suffix : str, optional
        The suffix to add to the paths in `labels`, such as ``".jpg"``. By default, a path without a suffix refers to
        the image with this path and any suffix, if there is exactly one such image.
    no_header : bool
        Whether the first line of `labels` is an ordinary row and not a header. The columns are then called ``"1"``,
        ``"2"`` and so on; by default the first column has the paths and the second column the labels.
    unlabeled : bool
        Whether rows of `labels`, or samples of a container, may lack a label; images without a label get the label -1.
        If `src` is a directory and there are no `labels`, all images below `src` are packed without classes.
    extensions : str or sequence of str, optional
        The suffixes of image files, such as ``(".jpg", ".gif")`` or ``".jpg,.gif"``, which replace ImageFolder's list.
        The case of letters is ignored.
    any_image : bool
        Whether files with other suffixes are opened too, and packed if their first bytes are those of an image.
    skip_hidden : bool
        Whether files and directories whose names begin with a dot are left out. By default packer, like ImageFolder,
        packs them and makes a hidden directory a class; the `notes` of the result report this.
    allow_empty : bool
        Whether a class directory may be empty; the class of an empty directory keeps its id. By default an empty
        directory is an error, as in ImageFolder, except with `classes_from` or `parts`.
    classes_from : path, optional
        A pack whose class ids the new pack uses, for example the pack of the training set when converting the
        validation set. A column in `columns` also uses the class ids of that pack, if the pack has a field of the same
        name and kind.
    where : str, optional
        A condition that selects samples of a pack by their columns, such as ``'age > 30 and split == "train"'``; see
        `ImageDataset.where`. `limit` and `sample` count only the selected samples.
    limit : int, optional
        The number of images to pack, starting with the first.
    sample : int, optional
        The number of images to pack. They are evenly spread over the list of images, and therefore over the classes,
        and keep their order.
    fields : mapping of str to str, or sequence of str
        Other files that belong to each image, such as its mask; they are stored as fields. Pass a mapping of field
        names to path templates, such as ``{"mask": "../masks/{stem}.png"}``; a name may include a kind, as in
        ``"depth:array"``. Strings as on the command line, such as ``"mask=../masks/{stem}.png"``, are accepted too.
        Templates are relative to `src` and may contain the placeholders ``{path}``, ``{dir}``, ``{name}``, ``{stem}``
        and ``{class}``.
    columns : mapping of str to str, or sequence of str
        Columns of `labels` that are stored as fields. Pass a mapping of column names to kinds, for example
        ``{"caption": "text", "age": "float32"}``; each field is named like its column. Strings as on the command line,
        such as ``"caption=COLUMN:text"``, are accepted too.
    coco : path or sequence of path
        Annotation files of the images, in COCO's format. Boxes, categories, segmentations, keypoints, captions and all
        other keys of the annotations become fields. ``file_name`` is relative to `src`. Images get the label -1, as
        with `voc` and `yolo`.
    masks : bool
        Whether the segmentations of `coco` are also drawn as a mask, a PNG of category ids, and stored in the field
        ``mask``. Crowd regions are painted first, then large objects, then small ones over
        them.
    voc : path, optional
        A directory in Pascal VOC's layout, such as ``VOCdevkit/VOC2012``, whose ``Annotations`` and
        ``SegmentationClass`` become fields. `src` is this directory, or its ``JPEGImages``.
    yolo : path, optional
        A YOLO ``data.yaml``; the label files in the directory ``labels``, next to ``images``, become fields.
    split : str, optional
        The split to pack: for `voc`, the name of a list in ``ImageSets``; for `yolo`, the name of a split in
        ``data.yaml``.
    on_missing : {"error", "null", "skip"}, optional
        What happens to an image that has no file or row for a field: ``"error"`` (the default) raises an error,
        ``"null"`` stores a missing value, and ``"skip"`` leaves the image out. ``"skip"`` also leaves out images that
        annotations name but that do not exist.
    keys : mapping of str to str, or sequence of str
        For a container of another tool, the keys that hold the image, the label, the name or a field. Pass a mapping of
        names to keys, such as ``{"image": "image/encoded", "caption:text": "txt"}``, or strings as on the command line.
        By default, packer chooses the keys by their names.
    no_classes : bool
        Whether to pack all images below `src`, or all rows of `labels`, with the label -1 and without classes.
    no_metadata : bool
        Whether to ignore ``metadata.csv``, ``.jsonl`` or ``.parquet`` in `src`, and StyleGAN's ``dataset.json``. By
        default the columns of ``metadata`` become fields, and ``dataset.json`` provides the labels.
    strict : bool
        Whether to raise an error, before anything is written, if an image, a label or a field is left out, if an image
        has no label, or if classes are renumbered. It is no error if another argument, such as `limit`, leaves out
        images, or if files do not have the suffix of an image. Cannot be combined with ``on_error="skip"``.
    on_error : {"fail", "skip"}
        What happens at an unusable sample: a file that is not a readable image or that changed after it was listed, an
        invalid row of a table, or an invalid annotation. ``"fail"`` stops the conversion; ``"skip"`` leaves the sample
        out and lists it in the manifest.
    report : path, optional
        A file for the report: one line of JSON for each file with a finding, and for each file that was left out.
    shard_size : int, optional
        The size limit, in bytes, of each file of a ``.wds``, ``.tfrecord``, ``.mds``, ``.n5`` or ``.parquet`` pack, or
        of the images in each file of a ``.pth`` pack. By default 512 MiB, but 64 MiB for ``.n5``, because programs that
        read N5 read whole files.
    parts : int, optional
        Make `dst` a directory of this number of packs, which readers open as one pack.
    workers : int, optional
        The number of threads; by default the number of CPUs that CPU affinity, cgroup and SLURM allow, plus one if
        images are encoded.
    scratch : path, optional
        The directory in which the pack is made if `dst` is a URL; by default ``packer-UID`` in the system's temporary
        directory.
    overwrite : bool
        Whether to replace `dst`, at the end of the conversion, if it is a pack, an empty file or an empty directory. A
        directory with files that do not belong to the pack is not replaced.
    fresh : bool
        Whether to start over instead of continuing an interrupted conversion.
    ignore_free_space : bool
        Whether to start even if the disk has too little free space for the files that are stored unchanged.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called after every batch with a `ConversionProgress`: `done`, `total`
        and `skipped`, in images, and `bytes_read`.

    Returns
    -------
    Summary
        `destination`, `manifest`, `bytes_in`, `bytes_out`, `seconds`, `continued` (images that an earlier run
        converted), `kept` (samples whose files were stored unchanged), `notes`, and `not_looked_at` (for each suffix
        that packer ignored, the number of files). If an earlier run of the same call already completed a pack with
        parts, `continued` counts all images.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    OptionError
        If arguments contradict each other; if an argument has no effect; or if `where` is not a valid condition, or
        selects no sample.
    SourceError
        If `src` cannot be used, or none of its images can be read.
    ImageError
        If ``on_error="fail"``, for the first file that is not a readable image, or that changed after it was listed.
    PackError
        If `classes_from` is not a pack; or if a pack that is read is damaged, or was written by a newer packer.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written; if another process is writing it; or if the unfinished pack was started with
        other settings or another source.
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
        from packer._conversion.upload import UploadedConversion

        with UploadedConversion(request, None if scratch is None else user_path(scratch)) as conversion:
            return conversion.upload(conversion.made or _converted(conversion.request, request.dst, progress))
    if scratch is not None:
        raise OptionError(
            f"{option('scratch')} applies only if DST is a URL; otherwise packer makes the pack at its destination"
        )
    if request.parts is None:
        request.require_destination()
    return _converted(request, request.dst, progress)


def _converted(
    request: ConversionRequest, destination: Path, progress: Callable[[ConversionProgress], None] | None
) -> Summary:
    """Make the requested pack on this machine; `destination` is the path of the pack that messages show."""
    if request.parts is not None:
        from packer._conversion.partition import convert_in_parts

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
    interruption, repeat the call with the same samples in the same order: it reads the finished samples again, compares
    their checksums, skips them, and continues with the remaining samples.

    Parameters
    ----------
    samples : iterable of mappings
        Each mapping has these keys:

        ``"image"`` : bytes of an image file, path, PIL image, or array
            Bytes and files are stored as they are. A PIL image or an array is stored as a PNG, unless `codec` is
            another type. An array has the shape (H, W) and the dtype uint8, uint16 or bool, or the shape (H, W, 3 or 4)
            and the dtype uint8.
        ``"label"`` : int, float or str, optional
            A label of the type `label_type`. For ``"class"``, which requires `classes`: an id, or a name in `classes`.
            A sample without a label, or with the label -1, is unlabeled.
        ``"name"`` : str, optional
            A unique path with the separator ``/``; by default the number of the sample, such as ``00000017.jpg``.

        Further keys are the names of `fields`; if a sample lacks the key of a field, the field has no value for this
        sample. Values of image and mask fields may have the same forms as ``"image"``; values of other fields have the
        form in which `packer` returns them.
    dst : path
        The path of the new pack.
    fields : mapping of str to str, optional
        The kind of each field: ``"mask"``, ``"image"``, ``"text"``, ``"json"``, ``"bytes"``, ``"boxes"``,
        ``"keypoints"``, ``"segmentation"``, ``"labels"`` or ``"class"``. For numbers, pass their dtype: ``"bool"``,
        ``"int8"`` to ``"int64"``, ``"float32"`` or ``"float64"``. For arrays, pass their dtype and number of axes, such
        as ``"array:float32:2"``; the default is one axis. To name the classes of a field, pass a `packer.Field`:
        ``{"animal": packer.Field("animal", "class", classes=("cat", "dog"))}``.
    classes : sequence of str, optional
        The class names in the order of their ids, such as ``["cat", "dog"]`` for the labels 0 and 1. Without `classes`,
        samples cannot have class labels; pass ``label_type="int"`` for numbers without names.
    label_type : {"class", "int", "float"}
        Whether labels are class ids (``class``), or numbers without classes.
    format, resize, resize_mode, upscale, interpolation, codec, quality, tiles, recode, to_8_bit, exif, audit,
    max_pixels
        The same as for `packer.convert`.
    on_error, report, shard_size, workers, overwrite, fresh, progress
        The same as for `packer.convert`, but the `total` of a `ConversionProgress` is 0, because the number of samples
        is unknown.

    Returns
    -------
    Summary
        The same as `packer.convert` returns.

    Raises
    ------
    TypeError, ValueError
        If an argument or a sample has a wrong type or value.
    OptionError
        If arguments contradict each other.
    SourceError
        If a sample has an unknown key or an invalid name; if two samples have the same name; or if no sample can be
        used.
    ImageError
        If ``on_error="fail"``, for the first sample whose image, label or value cannot be used.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written; if another process is writing it; or if the unfinished pack was started with
        other settings or other samples.

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
