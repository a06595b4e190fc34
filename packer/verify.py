"""Verification: is everything in a pack what was written?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from packer.errors import CorruptPackError, PackError, printable
from packer.executors import available_cpus
from packer.formats import Reader, open_pack
from packer.names import name_problem

__all__ = ["Damage", "verify"]

_BATCH = 64
_LISTED = 10  # of rows that are wrong in the same way; in a hostile table, all may be


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a pack; `index` and `name` where it is one sample."""

    reason: str
    index: int | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.reason if self.index is None else f"sample {self.index} ({printable(self.name)}): {self.reason}"


def verify(
    path: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Damage]:
    """Check a pack: its structure, its table, and unless `quick` the checksum of every sample.

    Parameters
    ----------
    path : path
    quick : bool
        Leave out reading the samples.
    workers : int, optional
        Threads; by default what `available_cpus` counts.
    progress : callable, optional
        Called with the number of samples checked and their total.

    Returns
    -------
    list of Damage
        Empty for an intact pack.

    Raises
    ------
    PackError
        If the pack is damaged so much that it cannot be opened.
    """
    with open_pack(path) as reader:
        damage = [*_check_table(reader), *(Damage(reason) for reason in reader.check_structure())]
        if not quick:
            damage += _check_samples(reader, workers or available_cpus(), progress)
    return damage


def _check_table(reader: Reader) -> Iterator[Damage]:
    table, manifest = reader.table, reader.manifest
    for column in table.columns():
        try:
            reader.require_column(column)
        except CorruptPackError as error:
            yield Damage(error.reason)
    labels = table.label
    for index in np.flatnonzero((labels < 0) | (labels >= len(manifest.classes)))[:_LISTED].tolist():
        yield Damage(f"label {labels[index]} is not one of the {len(manifest.classes)} classes", index)
    for index in table.overlapping()[:_LISTED].tolist():
        yield Damage("its bytes overlap another sample's", index)
    names = table.sample_names()
    seen: set[bytes] = set()
    for index in range(len(table)):
        try:
            name = names.encoded(index)
        except IndexError as error:
            yield Damage(str(error), index)
            return
        problem = "another sample has the same name" if name in seen else name_problem(names[index])
        if problem is not None:
            yield Damage(problem, index, names[index])
        seen.add(name)


def _check_samples(reader: Reader, workers: int, progress: Callable[[int, int], None] | None) -> Iterator[Damage]:
    def check(start: int) -> list[Damage | str]:
        found: list[Damage | str] = []
        for index in range(start, min(start + _BATCH, len(reader))):
            try:
                reader.read(index)
            except PackError as error:
                whole_file = _file_problem(reader, error)
                reason = getattr(error, "reason", str(error))
                found.append(whole_file or Damage(reason, index, _name_of(reader, index)))
        return found

    files: Counter[str] = Counter()
    with ThreadPoolExecutor(workers, thread_name_prefix="packer") as pool:
        for batch, found in enumerate(pool.map(check, range(0, len(reader), _BATCH))):
            files.update(item for item in found if isinstance(item, str))
            yield from (item for item in found if isinstance(item, Damage))
            if progress is not None:
                progress(min((batch + 1) * _BATCH, len(reader)), len(reader))
    for problem, samples in files.items():
        yield Damage(f"{problem} (samples in it that cannot be read: {samples})")


def _file_problem(reader: Reader, error: PackError) -> str | None:
    """Say what is wrong with a file of a pack of several, so that no sample in it can be read; None elsewhere."""
    cause = error.__cause__
    if not isinstance(cause, CorruptPackError) or cause.path == reader.path:
        return None
    return f"{os.path.relpath(cause.path, reader.path)}: {cause.reason}"


def _name_of(reader: Reader, index: int) -> str:
    try:
        return reader.table.sample_names()[index]
    except IndexError:
        return ""
