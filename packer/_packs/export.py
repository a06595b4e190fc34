"""The way back: a pack as an ImageFolder tree of files."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._formats import Reader, open_pack
from packer._images.encode import encode
from packer._packs.again import command_again
from packer._packs.filenames import FileNames, below_files, known
from packer._packs.layout import FieldFiles, Files, Folded, Layout, layout_of
from packer._packs.metadata import labels_as_csv, metadata_lines
from packer._packs.tree import Tree
from packer._sample import CODECS, UNLABELED
from packer._sources.repeats import repeats
from packer._storage.ahead import in_order
from packer._storage.files import sync_directory, writing_to
from packer._storage.limits import require_count
from packer._storage.locks import held
from packer._storage.paths import folded, longest_path, name_problem, path_problem
from packer._storage.progress import shown_progress
from packer._table import Buffer, Ints, are_pixels, blocks, encode_name, spans
from packer.errors import CorruptPackError, DestinationError, PackLockedError, printable

__all__ = ["export", "export_and_say"]

_SHOWN_EVERY = 100  # files
_BATCH, _BATCH_BYTES = 64, 2 << 20  # the most samples, and bytes, that a thread reads at a time, beside one sample


def export(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> int:
    """Write every sample of a pack to a file of its name below `directory`; return once all are on the disk.

    Kept bytes are written as they are. A sample that was re-encoded, and whose name says another type, gets
    the suffix of its type added; raw pixels become PNG. Classes without samples become empty directories.
    Where the labels do not follow from the names, ``labels.csv`` says them, as `packer convert --labels` reads it; a
    sample without a label has an empty one there. Where no sample has a label, there is no such file.

    Values of fields that came from files become these files again, where the field's template makes a file of its own
    for each. Other images, masks, bytes and arrays (``.npy``) become files in a directory of the field's name. Where
    files lie outside of the directory of the images, as with the template ``../masks/{stem}.png``, the images lie in
    ``images`` below `directory`, and the files beside that: nothing lies outside of `directory`. Scalars, classes,
    labels, text, JSON, boxes and keypoints become a line for each sample in ``metadata.jsonl``, beside the images.

    An export that was interrupted is continued by the same call: files that are there already are kept, and a file
    that is there in part is written anew. No file that holds anything else is touched. While an export runs, the empty
    file ``packer-export.lock`` in the directory keeps other exports out.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        Made where it is missing; must hold nothing but files of this export. ``~`` is the user's home.
    workers : int, optional
        Threads that read and encode; by default the CPUs that affinity, cgroup and SLURM grant.
    progress : bool or callable, optional
        True shows a bar. A callable is called with the number of files written and their total.

    Returns
    -------
    int
        The number of files of samples and fields, with those that were there already.

    Raises
    ------
    TypeError, ValueError
        If `workers` is no whole number of 1 or more.
    CorruptPackError
        If the table or a sample is damaged, or a name would lead out of `directory`.
    PackLockedError
        If another process exports into `directory`.
    DestinationError
        If `directory` holds something else than files of this export, or a file cannot be written.
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
    """Export, as `export` does; return the number of files, and the command that makes a pack with fields again."""
    require_count("workers", workers)
    root = Path(os.path.abspath(os.path.expanduser(directory)))
    with open_pack(path) as reader:
        for column in reader.table.column_names():
            reader.require_column(column)
        labels_follow = _labels_follow(reader)
        _refuse_bad_rows(reader)
        plan = _plan(reader, root, labels=not labels_follow)
        _make_root(root)
        with _locked(root, plan.layout.lock), contextlib.closing(Tree(root)) as tree:
            _write(plan, tree, workers, progress)
        sync_directory(root)  # which the lock has left
        return len(plan.layout.files), command_again(reader, plan.layout, root) if reader.fields else None


@dataclass(frozen=True)
class _Plan:
    """What is written where."""

    reader: Reader
    root: Path
    layout: Layout

    @property
    def classes(self) -> list[str]:
        """The directories of classes; none where a file says the labels."""
        layout = self.layout
        return [] if layout.labels else [layout.files.folder + name for name in self.reader.manifest.classes]

    @property
    def tables(self) -> list[str]:
        """The files that say something of all samples."""
        return [name for name in (self.layout.labels, self.layout.metadata) if name is not None]


def _plan(reader: Reader, root: Path, *, labels: bool) -> _Plan:
    """Decide what is written where; CorruptPackError where a name must not become a file, or two samples have one."""
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
    return _Plan(reader, root, layout)


def _refuse_paths(reader: Reader, files: Files, room: int) -> None:
    """Raise CorruptPackError where a path must not become a file, or a file would be another one's directory."""
    for place, name in enumerate(files):
        problem = path_problem(name)
        if problem is None and len(encode_name(name)) > room:
            problem = f"its path has more than {longest_path()} bytes; export to a directory of a shorter path"
        if problem is not None:
            raise _refused(reader, files.sample(place), problem)
    for place, other in below_files(files):
        problem = f"another sample's file is {printable(other)}, which would be its directory"
        raise _refused(reader, files.sample(place), problem)


def _write(plan: _Plan, tree: Tree, workers: int | None, progress: Callable[[int, int], None] | None) -> None:
    reader, layout, files = plan.reader, plan.layout, plan.layout.files
    _refuse_other_files(plan, tree)
    if tree.folds_names():
        _refuse_names_that_meet(reader, files)
        _refuse_classes_that_meet(plan)
    for name in plan.classes:
        tree.make(name)
    if layout.labels is not None:
        tree.write_blocks(layout.labels, partial(labels_as_csv, reader, files.images))
    if layout.metadata is not None:
        said = partial(metadata_lines, reader, files, workers, labels=layout.labels is not None)
        tree.write_blocks(layout.metadata, said)
    tree.sync(plan.tables)
    for index, (name, data) in enumerate(zip(files, _contents(reader, files, workers), strict=True), 1):
        tree.write(name, data)
        if progress is not None and (index % _SHOWN_EVERY == 0 or index == len(files)):
            progress(index, len(files))
    tree.sync(files)


@contextlib.contextmanager
def _locked(root: Path, name: str) -> Iterator[None]:
    """Hold the lock of a directory that is exported into: a file without bytes, which a killed process may leave."""

    def refuse_to_wait() -> None:
        raise PackLockedError(f"{printable(root)}: another process exports into this directory")

    with writing_to(root), contextlib.suppress(FileNotFoundError):
        if os.lstat(root / name).st_size:
            raise _not_of_export(root, name)
    with held(root / name, refuse_to_wait):
        yield


def _make_root(root: Path) -> None:
    """Make the directory and those above it where they are missing."""
    with writing_to(root):
        missing = [folder for folder in (root, *root.parents) if not os.path.lexists(folder)]
        root.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)


def _refuse_other_files(plan: _Plan, tree: Tree) -> None:
    """Raise DestinationError where the directory holds something that an interrupted export has not left there."""
    if all(entry == (plan.layout.lock, False) for entry in tree.entries()):
        return
    is_file = known(plan.layout.files)
    folders = set(plan.classes)
    for name in (*plan.tables, *plan.classes, *plan.layout.files):
        while (name := name.rpartition("/")[0]) and name not in folders:
            folders.add(name)
    for name, is_folder in tree.entries():
        others = (*plan.tables, plan.layout.lock)
        if not (name in folders if is_folder else name in others or is_file(name)):
            raise _not_of_export(plan.root, name)


def _not_of_export(root: Path, name: str) -> DestinationError:
    return DestinationError(
        f"{printable(root)}: not empty, and {printable(name)} in it is no file of this pack. "
        "Export goes into an empty or a new directory, or goes on with what it began there."
    )


def _refused(reader: Reader, index: int, problem: str) -> CorruptPackError:
    return CorruptPackError(f"cannot be exported ({printable(reader.names[index])}): {problem}", reader.path, index)


def _refuse_bad_rows(reader: Reader) -> None:
    """Refuse rows that point outside of the data, and rows that share data: a small pack could fill a disk."""
    reader.require_distinct_files()
    table, extent = reader.stored(), sum(size for _, _, size in reader.data_files())
    for part in spans(len(table)):
        offset, size = table.offset[part], table.extent(part)
        outside = (table.size[part] < 0) | (offset < 0) | (size > extent) | (offset > extent - size)
        for row in np.flatnonzero(outside).tolist():
            raise CorruptPackError("damaged: its row points outside the data", reader.path, part.start + row)
    for index in table.overlapping():
        raise CorruptPackError("its bytes overlap another sample's", reader.path, index)


def _refuse_names_that_meet(reader: Reader, files: Files) -> None:
    """Raise where two names are one on a file system that ignores case, or how accents are encoded."""
    for place, first in repeats(Folded(files)):
        problem = f"to this file system its name is that of {printable(files[first])}"
        raise _refused(reader, files.sample(place), problem)
    for place, other in below_files(Folded(files)):
        problem = f"to this file system another sample's file, {printable(other)}, is its directory"
        raise _refused(reader, files.sample(place), problem)


def _refuse_classes_that_meet(plan: _Plan) -> None:
    """Raise where the directories of two classes are one to the file system: labels follow from the directories."""
    first: dict[str, str] = {}
    for name in plan.reader.manifest.classes if plan.classes else ():
        if (other := first.setdefault(folded(name), name)) != name:
            raise DestinationError(
                f"{printable(plan.root)}: to this file system the classes {printable(other)} and {printable(name)} "
                "have one directory. Export to a file system that tells them apart."
            )


def _labels_follow(reader: Reader) -> bool:
    """Tell whether every sample's first directory is the name of its class, or there are no labels at all.

    CorruptPackError where a sample has no such label as the manifest says.
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


def _contents(reader: Reader, files: Files, workers: int | None) -> Iterator[Buffer]:
    """Yield what is in each of the files."""
    images = in_order(partial(_images, reader), _asked_for(reader, _batches(reader.table.size)), workers)
    yield from itertools.chain.from_iterable(images)
    for one in files.fields:
        sizes = reader.table.more[f"field.{one.field.name}.size"][one.samples]
        values = in_order(partial(_values, reader, one), _batches(sizes), workers)
        yield from itertools.chain.from_iterable(values)


def _asked_for(reader: Reader, batches: Iterable[range]) -> Iterator[range]:
    """Yield batches; what is not on a disk is fetched from now on, the fields too, which lie beside the images."""
    for places in batches:
        reader.ahead_whole(places)
        yield places


def _batches(sizes: Ints) -> Iterator[range]:
    """Yield the places of samples that are read at a time: few where they are large, for all are held in memory."""
    start = held = 0
    for place, size in enumerate(itertools.chain.from_iterable(part.tolist() for part in blocks(sizes))):
        if place > start and (place - start == _BATCH or held + size > _BATCH_BYTES):
            yield range(start, place)
            start, held = place, 0
        held += size
    yield range(start, len(sizes))


def _images(reader: Reader, indices: range) -> list[Buffer]:
    return [_content(reader, index) for index in indices]


def _values(reader: Reader, files: FieldFiles, places: range) -> list[Buffer]:
    samples = files.samples[places.start : places.stop]
    values = [blob or b"" for blob in reader.blobs(samples, files.field.name)]
    if files.field.kind != "array":
        return values
    try:
        return [_npy(files.field.decode(value)) for value in values]
    except ValueError as error:
        raise CorruptPackError(f"field {files.field.name!r}: {error}", reader.path, int(samples[0])) from error


def _npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def _content(reader: Reader, index: int) -> Buffer:
    data = reader.read(index)
    if reader.manifest.codec != "raw":
        return data
    height, width = int(reader.table.height[index]), int(reader.table.width[index])
    if not are_pixels(len(data), height, width):
        raise CorruptPackError(f"{len(data)} bytes are not {width} x {height} pixels", reader.path, index)
    return encode(np.frombuffer(data, np.uint8).reshape(height, width, 3), "png", 0)
