"""Exports a pack to an ImageFolder tree of files, with tables of labels and field values.

Labels that differ from the directory names are written to a CSV file. Field values that do not get files of their own
are written as a line of JSON for each sample. For a pack with fields, the export returns the command that makes the
pack again.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._codecs import CODECS, UNLABELED
from packer._fields import KINDS, Field
from packer._formats import Reader, open_pack
from packer._images.encode import encode
from packer._packs.export_layout import (
    ExportLayout,
    FieldFiles,
    FileNames,
    Files,
    Folded,
    below_files,
    known,
    layout_of,
    value_suffix,
)
from packer._packs.safe_tree import SafeTree
from packer._packs.walk import blobs_of, over_samples
from packer._storage.files import held, sync_directory, writing_to
from packer._storage.progress import shown_progress
from packer._storage.safe_open import folded, longest_path, name_problem, path_problem
from packer._storage.system import in_order, require_count
from packer._table import Buffer, Ints, are_pixels, blocks, encode_name, repeats, spans
from packer.errors import CorruptPackError, DestinationError, PackLockedError, printable

_SHOWN_EVERY = 100  # files


_BATCH, _BATCH_BYTES = 64, 2 << 20  # a thread reads at most this many samples and bytes at a time


def export(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> int:
    """Write every sample of a pack to a file with the sample's name below `directory`, and sync all files to the disk.

    The stored bytes are written unchanged, except that raw pixels become PNG. If the conversion changed the type of an
    image, the suffix of the new type is added to the name. Classes without samples become empty directories. If the
    labels differ from the directory names, ``labels.csv`` lists the labels for `packer convert --labels`; a sample
    without a label has an empty cell. If no sample has a label, there is no ``labels.csv``.

    Field values that came from files are written to files of the same names, if the field's template of file names
    yields a different file for each sample. Other images, masks, bytes and arrays (``.npy``) become files in a
    directory with the field's name. If a template leads out of the directory of the images, as ``../masks/{stem}.png``
    does, the images are written to ``directory/images``, and the other files next to ``images``, so that nothing is
    written outside `directory`. Scalars, classes, labels, text, JSON, boxes and keypoints become one line for each
    sample in ``metadata.jsonl``, next to the images.

    The same call continues an interrupted export: complete files are kept, and incomplete files are written again. A
    file with any other content is not changed. While an export runs, the empty file ``packer-export.lock`` in the
    directory excludes other exports.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        The directory for the files. It is created if missing, and must contain only files of this export. ``~`` is the
        user's home directory.
    workers : int, optional
        The number of threads that read and encode; by default the number of CPUs that affinity, cgroup and SLURM allow.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the number of files written and their total.

    Returns
    -------
    int
        The number of files of samples and fields, including files that existed already.

    Raises
    ------
    TypeError, ValueError
        If `workers` is not a whole number of 1 or more.
    CorruptPackError
        If the table or a sample is damaged, or a name leads out of `directory`.
    PackLockedError
        If another process is exporting to `directory`.
    DestinationError
        If `directory` contains files that do not belong to this export, or a file cannot be written.
    """
    progress = shown_progress(progress, directory, "files")
    return export_and_say(path, directory, workers=workers, progress=progress)[0]


def export_and_say(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, str | None]:
    """Export a pack like `export`; if the pack has fields, also return the command that makes the pack again."""
    require_count("workers", workers)
    root = Path(os.path.abspath(os.path.expanduser(directory)))
    with open_pack(path) as reader:
        for column in reader.table.column_names():
            reader.require_column(column)
        labels_follow = _labels_follow(reader)
        _refuse_bad_rows(reader)
        layout = _layout(reader, root, labels=not labels_follow)
        _make_root(root)
        with _locked(root, layout.lock), contextlib.closing(SafeTree(root)) as tree:
            _write(reader, layout, tree, workers, progress)
        sync_directory(root)  # again, because the lock was removed from it
        return len(layout.files), command_again(reader, layout, root) if reader.fields else None


def _layout(reader: Reader, root: Path, *, labels: bool) -> ExportLayout:
    """Return the layout; CorruptPackError if a name is not allowed as a file, or two samples have the same name."""
    for index, name in enumerate(reader.names):
        problem = name_problem(name)
        if problem is not None:
            raise _refused(reader, index, problem)
    for index, _ in repeats(reader.names):
        raise _refused(reader, index, "another sample has the same name")
    images = FileNames(reader.names, CODECS[reader.manifest.codec].suffixes)
    room = longest_path() - len(os.fsencode(root)) - 1
    layout = layout_of(reader, images, room, labels=labels)
    _refuse_paths(reader, layout.files, room)
    return layout


def _refuse_paths(reader: Reader, files: Files, room: int) -> None:
    """Raise CorruptPackError if a path is not allowed, or a file would have the path of another file's directory."""
    for number, name in enumerate(files):
        problem = path_problem(name)
        if problem is None and len(encode_name(name)) > room:
            problem = f"its path has more than {longest_path()} bytes; export to a directory with a shorter path"
        if problem is not None:
            raise _refused(reader, files.sample(number), problem)
    for number, other in below_files(files):
        problem = f"another sample's file is {printable(other)}, which would be its directory"
        raise _refused(reader, files.sample(number), problem)


def _refused(reader: Reader, index: int, problem: str) -> CorruptPackError:
    return CorruptPackError(f"cannot be exported ({printable(reader.names[index])}): {problem}", reader.path, index)


def _refuse_bad_rows(reader: Reader) -> None:
    """Refuse rows outside the data, and rows that share data, because a small pack of such rows could fill a disk."""
    reader.require_distinct_files()
    table, extent = reader.stored(), sum(size for _, _, size in reader.data_files())
    for part in spans(len(table)):
        offset, size = table.offset[part], table.extent(part)
        outside = (table.size[part] < 0) | (offset < 0) | (size > extent) | (offset > extent - size)
        for row in np.flatnonzero(outside).tolist():
            raise CorruptPackError("damaged: its row points outside the data", reader.path, part.start + row)
    for index in table.overlapping():
        raise CorruptPackError("its bytes overlap another sample's", reader.path, index)


def _labels_follow(reader: Reader) -> bool:
    """Tell whether the first directory in every sample's name is the name of its class, or there are no labels.

    Raises CorruptPackError if a sample's label does not fit the manifest.
    """
    label, classes = reader.table.label, reader.manifest.classes
    if reader.manifest.label_type != "class":
        return False
    fitting = range(UNLABELED if reader.manifest.fits(UNLABELED) else 0, len(classes))
    follow = len(set(classes)) == len(classes) and not any(path_problem(name) or "/" in name for name in classes)
    labels = itertools.chain.from_iterable(label[part].tolist() for part in spans(len(label)))
    for index, (own, name) in enumerate(zip(labels, reader.names, strict=True)):
        if own not in fitting:
            raise CorruptPackError(reader.manifest.misfit(own), reader.path, index)
        follow = follow and (name.startswith(classes[own] + "/") if own != UNLABELED else not classes)
    return follow


def _make_root(root: Path) -> None:
    """Create the directory and its parents if they are missing."""
    with writing_to(root):
        missing = [folder for folder in (root, *root.parents) if not os.path.lexists(folder)]
        root.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)


@contextlib.contextmanager
def _locked(root: Path, name: str) -> Iterator[None]:
    """Hold the lock of the export's directory, an empty file that a killed process may leave behind."""

    def refuse_to_wait() -> None:
        raise PackLockedError(f"{printable(root)}: another process is exporting to this directory")

    with writing_to(root), contextlib.suppress(FileNotFoundError):
        if os.lstat(root / name).st_size:
            raise _not_of_export(root, name)
    with held(root / name, refuse_to_wait):
        yield


def _write(
    reader: Reader,
    layout: ExportLayout,
    tree: SafeTree,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Write all files of an export, and sync them."""
    files = layout.files
    _refuse_other_files(layout, tree)
    if tree.folds_names():
        _refuse_equal_names(reader, files)
        if layout.classes:
            _refuse_equal_classes(reader.manifest.classes, tree.root)
    for name in layout.classes:
        tree.make(name)
    if layout.labels is not None:
        tree.write_blocks(layout.labels, partial(labels_as_csv, reader, files.images))
    if layout.metadata is not None:
        lines = partial(metadata_lines, reader, files, workers, labels=layout.labels is not None)
        tree.write_blocks(layout.metadata, lines)
    tree.sync(layout.tables)
    for index, (name, data) in enumerate(zip(files, _contents(reader, files, workers), strict=True), 1):
        tree.write(name, data)
        if progress is not None and (index % _SHOWN_EVERY == 0 or index == len(files)):
            progress(index, len(files))
    tree.sync(files)


def _refuse_other_files(layout: ExportLayout, tree: SafeTree) -> None:
    """Raise DestinationError if the directory contains anything that this export would not write."""
    if all(entry == (layout.lock, False) for entry in tree.entries()):
        return
    is_file = known(layout.files)
    folders = set(layout.classes)
    for name in (*layout.tables, *layout.classes, *layout.files):
        while (name := name.rpartition("/")[0]) and name not in folders:
            folders.add(name)
    for name, is_folder in tree.entries():
        others = (*layout.tables, layout.lock)
        if not (name in folders if is_folder else name in others or is_file(name)):
            raise _not_of_export(tree.root, name)


def _not_of_export(root: Path, name: str) -> DestinationError:
    return DestinationError(
        f"{printable(root)}: not empty, and {printable(name)} does not belong to this pack. Export to an "
        "empty or a new directory, or to one with an interrupted export of this pack."
    )


def _refuse_equal_names(reader: Reader, files: Files) -> None:
    """Raise an error if two names are equal on a file system that ignores case or the encoding of accents."""
    for number, first in repeats(Folded(files)):
        problem = f"on this file system its name equals {printable(files[first])}"
        raise _refused(reader, files.sample(number), problem)
    for number, other in below_files(Folded(files)):
        problem = f"on this file system another sample's file, {printable(other)}, would be its directory"
        raise _refused(reader, files.sample(number), problem)


def _refuse_equal_classes(classes: Sequence[str], root: Path) -> None:
    """Raise an error if the directories of two classes have equal names on the file system."""
    first: dict[str, str] = {}
    for name in classes:
        if (other := first.setdefault(folded(name), name)) != name:
            raise DestinationError(
                f"{printable(root)}: on this file system, the classes {printable(other)} and {printable(name)} "
                "would have the same directory. Export to a file system that distinguishes them."
            )


def _contents(reader: Reader, files: Files, workers: int | None) -> Iterator[Buffer]:
    """Yield the content of each file."""
    images = in_order(partial(_images, reader), _fetched(reader, _batches(reader.table.size)), workers)
    yield from itertools.chain.from_iterable(images)
    for one in files.fields:
        sizes = reader.table.more[f"field.{one.field.name}.size"][one.samples]
        values = in_order(partial(_values, reader, one), _batches(sizes), workers)
        yield from itertools.chain.from_iterable(values)


def _fetched(reader: Reader, batches: Iterable[range]) -> Iterator[range]:
    """Yield batches; for a remote pack, prefetch the images together with the field values next to them."""
    for batch in batches:
        reader.ahead_whole(batch)
        yield batch


def _batches(sizes: Ints) -> Iterator[range]:
    """Yield ranges of samples that are read together; ranges of large samples are short, to limit the memory."""
    start = held = 0
    for number, size in enumerate(itertools.chain.from_iterable(part.tolist() for part in blocks(sizes))):
        if number > start and (number - start == _BATCH or held + size > _BATCH_BYTES):
            yield range(start, number)
            start, held = number, 0
        held += size
    yield range(start, len(sizes))


def _images(reader: Reader, indices: range) -> list[Buffer]:
    return [_content(reader, index) for index in indices]


def _content(reader: Reader, index: int) -> Buffer:
    data = reader.read(index)
    if reader.manifest.codec != "raw":
        return data
    height, width = int(reader.table.height[index]), int(reader.table.width[index])
    if not are_pixels(len(data), height, width):
        raise CorruptPackError(f"{len(data)} bytes are not {width} x {height} pixels", reader.path, index)
    return encode(np.frombuffer(data, np.uint8).reshape(height, width, 3), "png", 0)


def _values(reader: Reader, files: FieldFiles, batch: range) -> list[Buffer]:
    samples = files.samples[batch.start : batch.stop]
    values = [blob or b"" for blob in reader.blobs(samples, files.field.name)]
    if KINDS[files.field.kind].file != "npy":
        return values
    try:
        return [_npy(files.field.decode(value)) for value in values]
    except ValueError as error:
        raise CorruptPackError(f"field {files.field.name!r}: {error}", reader.path, int(samples[0])) from error


def _npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def labels_as_csv(reader: Reader, names: FileNames) -> Iterator[bytes]:
    """Yield the lines of ``labels.csv``, many at a time."""
    rest = iter(names)
    yield b"path,label\r\n"
    for part in spans(len(names)):
        labels = ["" if label is None else label for label in _labels(reader, range(part.start, part.stop))]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(zip(itertools.islice(rest, len(labels)), labels, strict=True))
        yield encode_name(text.getvalue())


def _labels(reader: Reader, indices: range) -> list[Any]:
    """Return the label of each sample: the name of its class, None without a label, or a number."""
    labels = reader.table.label[indices.start : indices.stop].tolist()
    classes = reader.manifest.classes
    if reader.manifest.label_type != "class":
        return list(labels)
    return [None if label == UNLABELED else classes[label] for label in labels]


def metadata_lines(reader: Reader, files: Files, workers: int | None, *, labels: bool) -> Iterator[bytes]:
    """Yield the lines of ``metadata.jsonl``, many at a time.

    Each line has the image's `file_name`, its `label` if `labels` is true, and the values of fields that are not
    exported as files. For image fields and masks without a template, ``NAME_file_name`` is the path of the file. A
    missing value is null. An infinite number is 1e999.
    """
    are_files = {one.field.name for one in files.fields}
    fields = [field for field in reader.fields.values() if field.name not in are_files]
    beside = [one for one in files.fields if KINDS[one.field.kind].form == "pixels" and not one.followed]

    def lines(indices: range) -> bytes:
        columns: dict[str, Sequence[Any]] = {"file_name": [files.images[index] for index in indices]}
        if labels:
            columns["label"] = _labels(reader, indices)
        columns |= {f"{one.field.name}_file_name": _paths(files, one, indices) for one in beside}
        columns |= {field.name: [*_field_values(reader, field, indices)] for field in fields}
        rows = zip(*columns.values(), strict=True)
        text = "".join(_line(dict(zip(columns, row, strict=True))) for row in rows)
        return text.encode("utf-8", "backslashreplace")  # which writes a surrogate as its escape in JSON

    yield from over_samples(lines, len(reader), workers=workers)


def _paths(files: Files, one: FieldFiles, indices: range) -> list[str | None]:
    """Return the paths of a field's files relative to the directory of the images, None if a value is missing."""
    out = "../" * files.folder.count("/")
    rows = np.searchsorted(one.samples, np.arange(indices.start, indices.stop)).tolist()
    return [
        out + one.names[row] if row < len(one.samples) and one.samples[row] == index else None
        for row, index in zip(rows, indices, strict=True)
    ]


def _field_values(reader: Reader, field: Field, indices: range) -> Iterator[Any]:
    """Yield the values of a field in their JSON form."""
    named = dict(zip(field.ids or range(len(field.classes)), field.classes, strict=False))
    if not field.is_blob:
        values, present = reader.column(field.name)
        for index in indices:
            yield _json_value(field, field.decode(values[index].item()), named) if present[index] else None
        return
    for index, blob in zip(indices, blobs_of(reader, indices, field.name), strict=True):
        try:
            yield None if blob is None else _json_value(field, field.decode(blob), named)
        except ValueError as error:
            reason = f"field {field.name!r}: {error}"
            raise reader.corrupt(index, reason) from error


def _json_value(field: Field, value: Any, named: Mapping[int, str]) -> Any:
    """Return a value in its JSON form, with class names in place of ids."""
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    if not KINDS[field.kind].has_classes:
        return plain
    return [named.get(label, label) for label in plain] if isinstance(plain, list) else named.get(plain, plain)


def _line(row: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {_as_json(value)}" for name, value in row.items()) + "}\n"


def _as_json(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return json.dumps(value, ensure_ascii=False)


def command_again(reader: Reader, layout: ExportLayout, root: Path) -> str | None:
    """Return the `packer convert` command that makes a pack with the same values from an export.

    Return None if no command can do this, because the images were converted to PNG or renamed, or a field with files
    has no value at all.

    Parameters
    ----------
    reader : Reader
        The exported pack, whose classes the new pack gets.
    layout : ExportLayout
        The layout of the export.
    root : Path
        The directory of the export.
    """
    files = layout.files
    renamed = any(name != file for name, file in zip(reader.names, files.images, strict=True))
    if renamed or reader.manifest.codec == "raw" or any(not len(one.samples) for one in files.fields):
        return None
    images = root / files.folder
    pack = Path(reader.path)
    words = ["packer", "convert", str(images), str(root.with_name(f"{root.name}-again{pack.suffix}"))]
    words += _of_labels(reader, layout, root)
    words += [word for column in _columns(reader, layout) for word in ("--column", column)]
    words += [word for field in _templates(layout) for word in ("--field", field)]
    if any(len(one.samples) < len(reader) for one in files.fields):
        words += ["--on-missing", "null"]
    if reader.manifest.exif == "apply":
        words += ["--exif", "apply"]
    return " ".join(shlex.quote(printable(word)) for word in words)


def _of_labels(reader: Reader, layout: ExportLayout, root: Path) -> Iterator[str]:
    manifest = reader.manifest
    if layout.metadata is not None:
        yield from ("--labels", str(root / layout.metadata), "--path-column", "file_name")
    elif layout.labels is not None:
        yield from ("--labels", str(root / layout.labels))
    if layout.labels is None and not manifest.classes:
        yield "--no-classes"
    elif manifest.label_type != "class":
        yield from ("--label-type", manifest.label_type)
    elif layout.labels is not None and (reader.table.label == UNLABELED).any():
        yield "--unlabeled"
    if (manifest.label_type == "class" and manifest.classes) or any(field.classes for field in manifest.fields):
        yield from ("--classes-from", str(Path(reader.path).absolute()))


def _columns(reader: Reader, layout: ExportLayout) -> Iterator[str]:
    """Yield the arguments of ``--column`` for the fields that the lines of ``metadata.jsonl`` contain."""
    files = {one.field.name: one for one in layout.files.fields}
    for field in reader.fields.values():
        if field.name not in files:
            yield f"{field.name}:{field.dtype if field.kind == 'scalar' else field.kind}"
        elif KINDS[field.kind].form == "pixels" and not files[field.name].followed:
            yield f"{field.name}={field.name}_file_name:{field.kind}"


def _templates(layout: ExportLayout) -> Iterator[str]:
    """Yield the arguments of ``--field`` for the fields whose values were exported as files."""
    out = "../" * layout.files.folder.count("/")
    for one in layout.files.fields:
        name, kind = one.field.name, one.field.kind
        if one.followed:
            yield f"{name}:{kind}={one.field.file}"
        elif KINDS[kind].form != "pixels":
            yield f"{name}:{kind}={out}{name}/{{path}}{value_suffix(one.field)}"
