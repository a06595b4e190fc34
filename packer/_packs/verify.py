"""Verification: is everything in a pack what was written?"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from packer._formats import Reader, open_pack
from packer._packs.damage import Damage
from packer._packs.library import LIBRARIES, disagreements
from packer._packs.sweep import over_samples
from packer._packs.values import wrong_blobs, wrong_rows
from packer._sources.repeats import repeats
from packer._storage.limits import require_count
from packer._storage.paths import name_problem
from packer._storage.progress import shown_progress
from packer._table import are_pixels, decode_name, spans
from packer.errors import CorruptPackError, PackError

__all__ = ["Damage", "verify"]

_LISTED = 100  # rows of a table that are wrong in the same way; in a hostile one, all may be


def verify(
    path: str | os.PathLike[str],
    *,
    quick: bool = False,
    library: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> list[Damage]:
    """Check a pack: its structure, its table, and unless `quick` the checksum of every sample.

    The numbers of fields in the table are looked at. Unless `quick`, every other value is compared with its checksum
    and decoded as its kind: further images and masks as a conversion looks at images, a mask of its image's size, boxes
    in the image, text, JSON, ids of classes that there are.

    The samples of an index without checksums are not read, as there is nothing to compare them with.

    Memory does not grow with the pack while it is read; what it takes at the beginning is 8 bytes a sample, and 16 of
    a pack whose names are not unique. Every damaged sample is in the list, and so many of the table's wrong rows as a
    person may want to see.

    Parameters
    ----------
    path : path
    quick : bool
        Leave out reading the samples.
    library : {"liblmdb"}, optional
        The library that reads an LMDB pack too, where packer finds no damage; it must find the same samples.
    workers : int, optional
        Threads; by default the CPUs that affinity, cgroup and SLURM grant.
    progress : bool or callable, optional
        True shows a bar. A callable is called with the number of samples checked and their total.

    Returns
    -------
    list of Damage
        Empty for an intact pack. What is wrong with a whole column or file comes before what is wrong with samples.

    Raises
    ------
    TypeError, ValueError
        If `workers` is no whole number of 1 or more, or `library` is none of these.
    OptionError
        If the pack is of another format than `library` reads.
    MissingDependencyError
        If `library` is not installed.
    PackError
        If the pack is damaged so much that it cannot be opened, or the machine cannot read it, as where a disk fails or
        too many files are open: that says nothing about the pack.
    """
    progress = shown_progress(progress, path)
    require_count("workers", workers)
    if library not in (None, *LIBRARIES):
        raise ValueError(f"library is {' or '.join(map(repr, LIBRARIES))}, not {library!r}")
    with open_pack(path) as reader:
        damage = [*_check_table(reader), *(Damage(reason) for reason in reader.check_structure())]
        if quick or not reader.has_checksums:
            damage += map(Damage, reader.changed_files())
        else:
            damage += _check_samples(reader, workers, progress)
        if library is not None and not damage:  # which could else crash
            damage += disagreements(reader, library, progress)
    return sorted(damage, key=lambda item: item.index is not None)


def _check_table(reader: Reader) -> Iterator[Damage]:
    """Compare the columns with their checksums, and look for wrong rows in those that fit: in others all may be."""
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
        *((partial(wrong_rows, field=field), {*field.columns()}) for field in reader.fields.values()),
    ]
    for check, columns in checks:
        if not damaged & columns:
            yield from _first(check(reader))


def _first(found: Iterator[Damage]) -> Iterator[Damage]:
    """Yield the first rows that are wrong in one way, and say how many more there are."""
    shown = sorted(itertools.islice(found, _LISTED), key=lambda item: item.index or 0)
    yield from shown
    if more := sum(1 for _ in found):
        yield Damage(f"{more} more rows of the table are wrong in the same way as that of sample {shown[0].index}")


def _wrong_labels(reader: Reader) -> Iterator[Damage]:
    label, manifest = reader.table.stored("label"), reader.manifest
    for index in _where(len(label), lambda part: ~manifest.fits(label[part])):
        yield Damage(manifest.misfit(label[index].item()), index, reader._name_in_error(index))


def _wrong_sizes(reader: Reader) -> Iterator[Damage]:
    height, width = reader.table.stored("height"), reader.table.stored("width")
    for index in _where(len(height), lambda part: (height[part] < 1) | (width[part] < 1)):
        reason = f"its row in the table says {width[index]} x {height[index]} pixels"
        yield Damage(reason, index, reader._name_in_error(index))


def _wrong_pixels(reader: Reader) -> Iterator[Damage]:
    height, width, size = map(reader.table.stored, ("height", "width", "size"))
    if reader.manifest.codec != "raw":
        return
    for index in _where(len(size), lambda part: ~are_pixels(size[part], height[part], width[part])):
        reason = f"{size[index]} bytes are not {width[index]} x {height[index]} pixels"
        yield Damage(reason, index, reader._name_in_error(index))


def _overlaps(reader: Reader) -> Iterator[Damage]:
    for index in reader.stored().overlapping():
        yield Damage("its bytes overlap another sample's", index, reader._name_in_error(index))


def _wrong_names(reader: Reader) -> Iterator[Damage]:
    for index, name in enumerate(reader.names.each_encoded()):
        problem = "its name lies outside of the names" if name is None else name_problem(decode_name(name))
        if problem is not None:
            yield Damage(problem, index, decode_name(name or b""))


def _repeated_names(reader: Reader) -> Iterator[Damage]:
    if None in reader.names.each_encoded():  # damaged names, which cannot be compared
        return
    for index, _ in repeats(reader.names):
        yield Damage("another sample has the same name", index, reader.names[index])


def _where(count: int, wrong: Callable[[slice], npt.NDArray[np.bool_]]) -> Iterator[int]:
    """Yield the rows that `wrong` tells, which is asked of a stretch of the table at a time."""
    for part in spans(count):
        yield from (part.start + np.flatnonzero(wrong(part))).tolist()


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
        for index, field, problem in wrong_blobs(reader, indices):
            found.append((index, _damage(reader, problem, index, field.name)))
        return sorted(dict.fromkeys(found), key=itemgetter(0))  # a file that cannot be read, once of each sample

    files: Counter[str] = Counter()
    for found in over_samples(check, len(reader), workers=workers, progress=progress, before=reader.ahead_whole):
        files.update(item for _, item in found if isinstance(item, str))
        yield from (item for _, item in found if isinstance(item, Damage))
    for problem, samples in files.items():
        yield Damage(f"{problem} (samples in it that cannot be read: {samples})")


def _damage(reader: Reader, error: PackError, index: int, field: str = "") -> Damage | str:
    """Return what an error says of a sample, or of a whole file of the pack."""
    whole_file = _file_problem(reader, error)
    return whole_file or Damage(getattr(error, "reason", str(error)), index, reader._name_in_error(index), field)


def _file_problem(reader: Reader, error: PackError) -> str | None:
    """Say what is wrong with a file of a pack of several, so that no sample in it can be read; None elsewhere."""
    cause = error.__cause__
    if not isinstance(cause, CorruptPackError) or cause.path == reader.path:
        return None
    return f"{_within(reader, cause.path)}: {cause.reason}"


def _within(reader: Reader, path: str) -> str:
    """Return where in a pack a file lies."""
    return path.removeprefix(f"{reader.path}/") if reader.place.remote else os.path.relpath(path, reader.path)
