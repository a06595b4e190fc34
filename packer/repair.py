"""Repair: damaged samples are made again from the images that the pack was made of.

A pack's samples lie at known places with known checksums. What is made again is written only where its checksum
is the one in the table, so that a repair can make nothing worse: interrupted, it leaves a sample as damaged as it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from packer.errors import CorruptPackError, ImageError, PackError, SourceError, printable
from packer.executors import available_cpus
from packer.formats import Reader, open_pack
from packer.formats.files import PatchFile
from packer.names import name_problem
from packer.prepare import Recipe, prepare
from packer.sample import Buffer
from packer.sources import Source
from packer.sources.base import ReadBuffer
from packer.verify import Damage, verify

__all__ = ["Repaired", "repair", "tree_of"]


@dataclass(frozen=True)
class Repaired:
    """What a repair did.

    Attributes
    ----------
    samples : list of str
        Names of the samples that are whole again.
    left : list of Damage
        What is damaged still, with the reason why it could not be made again.
    """

    samples: list[str]
    left: list[Damage]


def tree_of(reader: Reader, root: Path) -> Source:
    """Return the files below `root` that have the names of a pack's samples."""
    if not root.is_dir():
        raise SourceError(f"{printable(root)}: no such directory")
    return Source("tree", root, reader.table.sample_names(), reader.table.label, reader.manifest.classes)


def repair(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Repaired:
    """Check a pack, and make the damaged samples again.

    Parameters
    ----------
    path : path
        The pack.
    root : path
        What the samples' names are relative to: the directory that was converted.
    workers : int, optional
        Threads; by default what `available_cpus` counts.
    progress : callable, optional
        Called with the number of samples checked and their total.

    Returns
    -------
    Repaired

    Raises
    ------
    PackError
        If the pack is damaged so much that it cannot be opened, or no conversion of this packer wrote it.
    SourceError
        If there is no such directory, or its disk fails.
    DestinationError
        If the pack cannot be written to.
    """
    damage = verify(path, workers=workers, progress=progress)
    repaired: list[str] = []
    with open_pack(path, check="never") as reader:
        broken = {item.index: item for item in damage if item.index is not None and not _fits(reader, item.index)}
        left = [item for item in damage if item.index not in broken]
        try:
            for column in reader.table.columns():
                reader.require_column(column)
        except CorruptPackError:  # where the samples lie, and what they were, is not known
            return Repaired([], damage)
        source, recipe = tree_of(reader, Path(root)), _recipe(reader)
        with (
            ThreadPoolExecutor(workers or available_cpus(), thread_name_prefix="packer") as pool,
            contextlib.closing(_Patches(reader)) as patches,
        ):
            made = pool.map(lambda item: _made_again(reader, source, recipe, item), broken.values())
            for (index, item), data in zip(broken.items(), made, strict=True):
                if isinstance(data, Damage):
                    left.append(data)
                else:
                    patches.write(index, data)
                    repaired.append(item.name)
    return Repaired(repaired, left)


def _recipe(reader: Reader) -> Recipe:
    try:
        return Recipe.of(reader.manifest.settings)
    except ValueError as error:
        raise PackError(f"{printable(reader.path)}: cannot be repaired: {printable(error)}") from error


def _fits(reader: Reader, index: int) -> bool:
    """Tell whether a sample is what its row of the table says."""
    try:
        return reader.table.row(index).matches(reader.read(index))
    except (PackError, IndexError):
        return False


def _made_again(reader: Reader, source: Source, recipe: Recipe, damage: Damage) -> Buffer | Damage:
    """Return the bytes of a sample as they were; the damage, with what prevents it, where they cannot be had."""
    index = damage.index
    assert index is not None
    problem = name_problem(damage.name)
    if problem is not None:
        return replace(damage, reason=f"{damage.reason}; {problem}")
    try:
        data = prepare(source.read(index, ReadBuffer())[0], damage.name, recipe).data
    except ImageError as error:
        return replace(damage, reason=f"{damage.reason}; in {printable(source.root)}: {error.reason}")
    row = reader.table.row(index)
    if len(data) != row.size or not row.matches(data):
        return replace(
            damage,
            reason=f"{damage.reason}; {printable(source.path(index))} does not give the same bytes: it was changed, "
            "or the libraries that decode and encode it were",
        )
    return data


class _Patches:
    """Writes samples to the places that a pack's table says."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._files = reader.data_files()
        self._starts = np.cumsum([0, *(size for _, _, size in self._files)])
        self._open: dict[int, PatchFile] = {}

    def write(self, index: int, data: Buffer) -> None:
        """Replace the bytes of one sample."""
        offset = int(self._reader.table.offset[index])
        number = int(np.searchsorted(self._starts, offset, side="right")) - 1
        name, begin, _ = self._files[number]
        if number not in self._open:
            self._open[number] = PatchFile(Path(self._reader.path), name)
        file, position = self._open[number], begin + offset - int(self._starts[number])
        if file.read(position, len(data)) != self._reader.read(index):  # the file may be another one by now
            raise CorruptPackError("the pack was replaced while it was repaired", self._reader.path, index)
        file.write(position, data)

    def close(self) -> None:
        """Return once everything is on the disk."""
        for file in self._open.values():
            file.close()
