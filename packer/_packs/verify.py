"""`packer.verify`: checks structure, table, samples and field values, optionally with the format's own library."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._codecs import UNLABELED
from packer._conversion.field_values import require_size_of_runs
from packer._conversion.words import losses
from packer._display import Block, Displayable, count, counted
from packer._fields import KINDS, MARGIN, NO_VALUE, Field
from packer._formats import Reader, open_pack
from packer._formats.lmdb import sample_key
from packer._images.probe import inspect
from packer._packs.walk import blobs_or_errors, over_samples
from packer._storage.progress import shown_progress
from packer._storage.safe_open import name_problem
from packer._storage.system import require_count
from packer._table import Buffer, are_pixels, decode_name, repeats, spans
from packer.errors import (
    CorruptPackError,
    ImageError,
    MissingDependencyError,
    OptionError,
    PackError,
    option,
    printable,
)

LIBRARIES = {"liblmdb": "lmdb"}
"""The libraries that can check a pack in addition to packer, and the format that each can read."""


_OWN = b"packer/"


_LISTED = 100  # rows of a table that are wrong in the same way; in a hostile pack, all rows may be wrong


ProgressCallback = Callable[[int, int], None]


def verify(
    path: str | os.PathLike[str],
    *,
    quick: bool = False,
    library: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> Verification:
    """Check a pack: its structure, its table and, unless `quick`, the checksum of every sample.

    Field values in the table are always checked. Unless `quick` is True, every other value is compared with its
    checksum and decoded. Images and masks are checked as in a conversion. A mask must have the size of its image, boxes
    must lie in the image, text and JSON must be valid, and class ids must exist.

    The samples of an index without checksums are not read, because there is nothing to compare them with.

    The check of the names takes 8 bytes of memory for each sample, or 16 if names are repeated. After that, memory use
    does not depend on the number of samples. The result lists every damaged sample, and a limited number of the table's
    wrong rows.

    Parameters
    ----------
    path : path
    quick : bool
        Whether to skip reading the samples.
    library : {"liblmdb"}, optional
        A library with which an LMDB pack is read again if packer finds no damage; packer and the library must read the
        same samples.
    workers : int, optional
        The number of threads; by default the number of CPUs that affinity, cgroup and SLURM allow.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the numbers of checked and of all samples.

    Returns
    -------
    Verification
        A list of `Damage`, empty for an intact pack. Defects of whole columns and whole files come first.

    Raises
    ------
    TypeError, ValueError
        If `workers` is not a whole number of 1 or more, or `library` is unknown.
    OptionError
        If `library` cannot read the format of the pack.
    MissingDependencyError
        If `library` is not installed.
    PackError
        If the pack is too damaged to be opened. The error is also raised if the machine cannot read the pack, for
        example because of a disk error or too many open files; this does not mean that the pack is damaged.
    """
    progress = shown_progress(progress, path)
    require_count("workers", workers)
    if library not in (None, *LIBRARIES):
        raise OptionError(f"library must be {' or '.join(map(repr, LIBRARIES))}, not {library!r}")
    with open_pack(path) as reader:
        damage = [*_check_table(reader), *(Damage(reason) for reason in reader.check_structure())]
        if quick or not reader.has_checksums:
            damage += map(Damage, reader.changed_files())
        else:
            damage += _check_samples(reader, workers, progress)
        if library is not None and not damage:  # the library could crash on a damaged pack
            damage += disagreements(reader, library, progress)
        found = sorted(damage, key=lambda item: item.index is not None)
        return Verification(found, reader.place.as_written, [] if found else notes_of(reader, quick=quick))


@dataclass(frozen=True)
class Damage:
    """One defect of a pack.

    Attributes
    ----------
    reason : str
        The defect. If it is in a field, the text begins with the field's name.
    index : int, optional
        The index of the damaged sample; None if the defect is not in one sample.
    name : str
        The sample's name.
    field : str
        The field with the wrong value; empty if the defect is in the image or elsewhere.
    """

    reason: str
    index: int | None = None
    name: str = ""
    field: str = ""

    def __str__(self) -> str:
        name = f" ({printable(self.name)})" if self.name else ""
        return self.reason if self.index is None else f"sample {self.index}{name}: {self.reason}"


_LISTED_AT_MOST = 20
_LISTED_BESIDE_A_CAUSE = 3


class Verification(Displayable, list[Damage]):
    """The defects of a pack: a list of `Damage`, empty for an intact pack.

    Printing the list shows what `packer verify` prints.

    Parameters
    ----------
    damage : iterable of Damage
    path : str
        The pack.
    notes : sequence of str
        Notes on an intact pack. The first note says why the samples were not read; it is empty if they were read. The
        other notes are the losses from the source.
    """

    def __init__(self, damage: Iterable[Damage] = (), path: str = "", notes: Sequence[str] = ("",)) -> None:
        super().__init__(damage)
        self.path, self.notes = path, list(notes)

    def _blocks(self) -> Iterator[Block]:
        """Yield the damage: first of whole columns and files, then of samples.

        Fewer samples are listed if a column or a file is damaged, because that may be the cause of their damage.
        """
        if not self:
            unread, *lost = self.notes
            yield f"{self.path}: intact{unread}"
            yield from (f"  {line}" for line in lost)
            return
        causes = [item for item in self if item.index is None]
        samples = [item for item in self if item.index is not None]
        yield f"{self.path}: damaged in {counted(len(self), 'place')}"
        yield from listed(causes)
        yield from listed(samples, _LISTED_BESIDE_A_CAUSE if causes else _LISTED_AT_MOST)


def listed(items: Sequence[object], most: int = _LISTED_AT_MOST) -> Iterator[str]:
    """Yield a line for each of the first items, and a line with the number of further items."""
    yield from (f"  {item}" for item in items[:most])
    if len(items) > most:
        yield f"  … and {count(len(items) - most)} more"


def notes_of(reader: Reader, *, quick: bool = False) -> list[str]:
    """Return the notes on an intact pack: why samples were not read, and the losses from the source."""
    unread = " (quick: the samples were not read)" if quick else ""
    if not reader.has_checksums:
        unread = " (without checksums: only the sizes and modification times of its files were compared)"
    manifest = reader.manifest
    unlabeled = int(np.count_nonzero(reader.table.label == UNLABELED)) if manifest.label_type == "class" else 0
    lines = losses(manifest.account, unlabeled)
    if manifest.skipped:
        left_out = counted(len(manifest.skipped), "sample")
        lines.insert(0, f"{left_out} left out as unusable: see `packer info`")
    return [unread, *lines]


def _check_table(reader: Reader) -> Iterator[Damage]:
    """Check the columns' checksums, then the rows of the columns whose checksums match."""
    damaged = set()
    for column in reader.table.column_names():
        try:
            reader.require_column(column)
        except CorruptPackError as error:
            damaged.add(column)
            yield Damage(error.reason)
    checks: list[tuple[Callable[[Reader], Iterator[Damage]], set[str]]] = [
        (_wrong_labels, {"label"}),
        (_wrong_sizes, {"height", "width"}),
        (_wrong_pixels, {"height", "width", "size"}),
        (_overlaps, {"offset", "size", *reader.table.more}),
        (_wrong_names, {"names", "name_end"}),
        (_repeated_names, {"names", "name_end"}),
        *((partial(_wrong_rows, field=field), {*field.columns()}) for field in reader.fields.values()),
    ]
    for check, columns in checks:
        if not damaged & columns:
            yield from _first(check(reader))


def _first(found: Iterator[Damage]) -> Iterator[Damage]:
    """Yield the first rows with one kind of error, and the number of further rows."""
    shown = sorted(itertools.islice(found, _LISTED), key=lambda item: item.index or 0)
    yield from shown
    if more := sum(1 for _ in found):
        yield Damage(f"{more} more rows of the table have the same problem as that of sample {shown[0].index}")


def _wrong_labels(reader: Reader) -> Iterator[Damage]:
    label, manifest = reader.table.stored("label"), reader.manifest
    for index in _where(len(label), lambda part: ~manifest.fits(label[part])):
        yield Damage(manifest.misfit(label[index].item()), index, reader.known_name(index))


def _wrong_sizes(reader: Reader) -> Iterator[Damage]:
    height, width = reader.table.stored("height"), reader.table.stored("width")
    for index in _where(len(height), lambda part: (height[part] < 1) | (width[part] < 1)):
        reason = f"its row in the table says {width[index]} x {height[index]} pixels"
        yield Damage(reason, index, reader.known_name(index))


def _wrong_pixels(reader: Reader) -> Iterator[Damage]:
    height, width, size = map(reader.table.stored, ("height", "width", "size"))
    if reader.manifest.codec != "raw":
        return
    for index in _where(len(size), lambda part: ~are_pixels(size[part], height[part], width[part])):
        reason = f"{size[index]} bytes are not {width[index]} x {height[index]} pixels"
        yield Damage(reason, index, reader.known_name(index))


def _overlaps(reader: Reader) -> Iterator[Damage]:
    for index in reader.stored().overlapping():
        yield Damage("its bytes overlap another sample's", index, reader.known_name(index))


def _wrong_names(reader: Reader) -> Iterator[Damage]:
    for index, name in enumerate(reader.names.each_encoded()):
        problem = "its name is outside of the list of names" if name is None else name_problem(decode_name(name))
        if problem is not None:
            yield Damage(problem, index, decode_name(name or b""))


def _repeated_names(reader: Reader) -> Iterator[Damage]:
    if None in reader.names.each_encoded():  # damaged names, which cannot be compared
        return
    for index, _ in repeats(reader.names):
        yield Damage("another sample has the same name", index, reader.names[index])


def _where(count: int, wrong: Callable[[slice], npt.NDArray[np.bool_]]) -> Iterator[int]:
    """Yield the rows for which `wrong` returns true; `wrong` takes one block of the table at a time."""
    for part in spans(count):
        yield from (part.start + np.flatnonzero(wrong(part))).tolist()


def _wrong_rows(reader: Reader, field: Field) -> Iterator[Damage]:
    """Yield the damage of each row in which the columns of a field have an impossible value."""
    columns = [reader.table.stored(column) for column in field.columns()]
    for part in spans(len(reader)):
        wrong, reason = _wrong(field, [column[part] for column in columns])
        for row in np.flatnonzero(wrong).tolist():
            index = part.start + row
            numbers = tuple(column[index].item() for column in columns)
            problem = f"field {field.name!r}: {reason.format(*numbers)}"
            yield Damage(problem, index, reader.known_name(index), field.name)


def _wrong(field: Field, columns: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.bool_], str]:
    """Return a mask of rows with impossible numbers, and the reason, in which ``{0}`` and ``{1}`` are the numbers."""
    if field.is_blob:
        sizes, checksums = columns
        wrong = (sizes < NO_VALUE) | ((sizes == NO_VALUE) & (checksums != 0))
        return wrong, "its row in the table has the size {0} and the checksum {1}"
    if KINDS[field.kind].has_classes:
        return (columns[0] != NO_VALUE) & ~field.knows(columns[0]), "{0} is not an id of its classes"
    values, missing = columns
    wrong = missing > 1
    if field.dtype == "bool":
        wrong |= (missing == 0) & (values > 1)
    elif values.dtype.kind == "f":
        wrong |= (missing == 0) & np.isnan(values)
    return (
        wrong,
        f"its row in the table has {{0}} and {{1}}, which are neither a value of {field.dtype} nor a missing value",
    )


def _check_samples(
    reader: Reader, workers: int | None, progress: Callable[[int, int], None] | None
) -> Iterator[Damage]:
    def check(indices: range) -> list[tuple[int, Damage | str]]:
        found: list[tuple[int, Damage | str]] = []
        for index in indices:
            try:
                reader.read(index)
            except CorruptPackError as error:  # others are the machine's, such as too many open files
                found.append((index, _damage(reader, error, index)))
        for index, field, problem in _wrong_blobs(reader, indices):
            found.append((index, _damage(reader, problem, index, field.name)))
        return sorted(dict.fromkeys(found), key=itemgetter(0))  # an unreadable file counts once for each sample

    files: Counter[str] = Counter()
    for found in over_samples(check, len(reader), workers=workers, progress=progress, before=reader.ahead_whole):
        files.update(item for _, item in found if isinstance(item, str))
        yield from (item for _, item in found if isinstance(item, Damage))
    for problem, samples in files.items():
        yield Damage(f"{problem} (samples in it that cannot be read: {samples})")


def _damage(reader: Reader, error: PackError, index: int, field: str = "") -> Damage | str:
    """Convert an error to the damage of a sample, or of a whole file of the pack."""
    whole_file = _file_problem(reader, error)
    return whole_file or Damage(getattr(error, "reason", str(error)), index, reader.known_name(index), field)


def _file_problem(reader: Reader, error: PackError) -> str | None:
    """Return the defect of a whole file in a pack of several files; None if the error concerns only a sample."""
    cause = error.__cause__
    if not isinstance(cause, CorruptPackError) or cause.path == reader.path:
        return None
    return f"{_within(reader, cause.path)}: {cause.reason}"


def _within(reader: Reader, path: str) -> str:
    """Return the relative path of a file in a pack."""
    return path.removeprefix(f"{reader.path}/") if reader.place.remote else os.path.relpath(path, reader.path)


def _wrong_blobs(reader: Reader, indices: range) -> Iterator[tuple[int, Field, PackError]]:
    """Yield index, field and error of each value that is unreadable, or invalid for its field."""
    table, exif = reader.table, reader.manifest.exif
    for field in reader.fields.values():
        if not field.is_blob:
            continue
        for index, blob in blobs_or_errors(reader, indices, field.name):
            if isinstance(blob, PackError):
                yield index, field, blob
            elif blob is not None:
                problem = _blob_problem(field, blob, int(table.height[index]), int(table.width[index]), exif)
                if problem is not None:
                    reason = f"field {field.name!r}: {problem}"
                    yield index, field, reader.corrupt(index, reason)


def _blob_problem(field: Field, blob: Buffer, height: int, width: int, exif: str) -> str | None:
    """Return the reason why bytes are not a valid value of a field for an image of this size; None if they are valid.

    Image fields and masks are checked like images in a conversion. These, and masks that run lengths encode, must have
    the size of the image. With ``exif="apply"``, image fields must have this size after their rotation. Boxes and
    visible keypoints must lie in the image, or at most `MARGIN` outside it.
    """
    kind = KINDS[field.kind]
    if kind.form == "pixels":
        return _pixels_problem(field, blob, (height, width), exif)
    problem = field.misfit(blob)
    return _FITS[field.kind](field.decode(blob), height, width) if problem is None and kind.is_spatial else problem


def _pixels_problem(field: Field, blob: Buffer, size: tuple[int, int], exif: str) -> str | None:
    try:
        info = inspect(blob)
    except ImageError as error:
        return error.reason
    is_mask = field.kind == "mask"
    found = (info.height, info.width) if is_mask else info.size_shown(exif)
    if found == size:
        return None
    kind = "a mask" if is_mask else "an image"
    return f"{kind} of {found[1]} x {found[0]} pixels, but its image has {size[1]} x {size[0]}"


def _runs_problem(segmentations: Sequence[Any], height: int, width: int) -> str | None:
    try:
        require_size_of_runs(segmentations, (height, width))
    except ImageError as error:
        return error.reason
    return None


def _boxes_problem(boxes: npt.NDArray[np.float32], height: int, width: int) -> str | None:
    wrong = (boxes[:, :2] < -MARGIN) | (boxes[:, 2:] > (width + MARGIN, height + MARGIN))
    for box in boxes[wrong.any(axis=1)][:1].tolist():
        return f"the box {box} (x y x y) is not inside of the image, which has {width} x {height} pixels"
    return None


def _keypoints_problem(keypoints: npt.NDArray[np.float32], height: int, width: int) -> str | None:
    points = keypoints.reshape(-1, 3)
    visible = points[points[:, 2] > 0, :2]
    wrong = (visible < -MARGIN) | (visible > (width + MARGIN, height + MARGIN))
    for x, y in visible[wrong.any(axis=1)][:1].tolist():
        return f"the visible keypoint at {x:g}, {y:g} is not inside of the image, which has {width} x {height} pixels"
    return None


_FITS: Mapping[str, Callable[[Any, int, int], str | None]] = {
    "boxes": _boxes_problem,
    "keypoints": _keypoints_problem,
    "segmentation": _runs_problem,
}


def disagreements(reader: Reader, library: str, progress: ProgressCallback | None = None) -> Iterator[Damage]:
    """Read a pack with another library after packer found no damage in it, and yield the differences.

    Parameters
    ----------
    reader : Reader
    library : str
        One of `LIBRARIES`.
    progress : callable, optional
        Called with the number of samples compared so far and their total.

    Raises
    ------
    OptionError
        If the library does not read packs of this format.
    MissingDependencyError
        If the library is not installed.
    PackError
        If the library cannot read the pack on this machine, which does not mean that the pack is damaged.
    """
    if reader.manifest.format != LIBRARIES[library] or reader.manifest.parts:
        raise OptionError(
            f"{option('library', library)} applies only to a single file of the format {LIBRARIES[library]}"
        )
    if reader.place.remote:
        raise OptionError(
            f"{option('library', library)} applies only to a pack on a disk: copy it first (`packer stage`)"
        )
    try:
        import lmdb
    except ImportError as error:
        raise MissingDependencyError(f"{option('library', library)} needs lmdb (pip install lmdb)") from error
    try:
        with (
            lmdb.open(reader.path, subdir=False, lock=False, readonly=True) as environment,
            environment.begin(buffers=True) as transaction,
        ):
            yield from _compared(reader, iter(transaction.cursor()), progress)
    except lmdb.CorruptedError as error:
        yield Damage(f"liblmdb cannot read it: {error}")
    except lmdb.Error as error:
        raise PackError(f"{printable(reader.path)}: liblmdb cannot read it on this system: {error}") from error


def _compared(
    reader: Reader, entries: Iterator[tuple[memoryview, memoryview]], progress: ProgressCallback | None
) -> Iterator[Damage]:
    extent, index = reader.table.extent(), 0
    for key, value in entries:
        if bytes(key[: len(_OWN)]) == _OWN:
            continue
        if index == len(reader) or bytes(key) != sample_key(index):
            yield Damage(f"liblmdb finds the key {bytes(key).hex()}, where sample {index} is expected")
            return
        row = reader.table.row(index)
        if len(value) != extent[index] or not row.matches(value[: row.size]):
            yield Damage("liblmdb finds other bytes", index, reader.known_name(index))
        index += 1
        if progress is not None and (index % 1000 == 0 or index == len(reader)):
            progress(index, len(reader))
    if index < len(reader):
        yield Damage(f"liblmdb finds {index} samples, but the table has {len(reader)}")
