"""`packer.repair`: restores damaged samples from the images of the source, or from a copy of the pack.

Damaged field values are restored from the copy or, if the field has a template, from the field's files. The table has
the offsets and the checksums of samples and values. Only bytes that match the table's checksum are written, so a repair
cannot make anything worse: even if it is interrupted, no sample is more damaged than before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from packer._conversion.field_values import prepare_values
from packer._conversion.pipeline import prepare, prepare_sample
from packer._conversion.recipe import Recipe
from packer._display import Block, Displayable, counted
from packer._fields import Field
from packer._formats import Reader, open_pack
from packer._packs.verify import Damage, listed, verify
from packer._sources.base import FileColumn, ReadBuffer, Source
from packer._sources.pack import PackSource, pack_source
from packer._sources.sidecar_files import FileField
from packer._storage.files import PatchFile
from packer._storage.remote.urls import local_path
from packer._storage.safe_open import cause_of, name_problem
from packer._storage.stamps import ABOUT_THE_FILE
from packer._storage.system import in_order, require_count
from packer._table import Buffer, value_checksum
from packer.errors import (
    CorruptPackError,
    ImageError,
    NotAPackError,
    PackError,
    PackNotFoundError,
    SourceError,
    printable,
)


def repair(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> Repaired:
    """Check a pack, and restore damaged samples from their source.

    Parameters
    ----------
    path : path
        The pack.
    root : path
        The directory that was converted, to which the samples' names are relative; or a pack of any format with samples
        of the same names.
    workers : int, optional
        The number of threads; by default the number of CPUs that affinity, cgroup and SLURM allow.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the numbers of checked and of all samples.

    Returns
    -------
    Repaired

    Raises
    ------
    TypeError, ValueError
        If `workers` is not a whole number of 1 or more.
    PackError
        If the pack is too damaged to be opened, is at a URL, or is an index.
    SourceError
        If `root` is neither a directory nor a pack, or its disk reports an error.
    DestinationError
        If the pack cannot be written.
    """
    require_count("workers", workers)
    with open_pack(path) as reader:
        if reader.place.remote:
            raise PackError(
                f"{printable(reader.path)}: a pack at a URL cannot be repaired, because that changes its file. "
                "Repair a copy on a disk (`packer stage`), and upload this copy"
            )
        if reader.in_place:
            raise PackError(
                f"{printable(reader.path)}: packer does not change the files that an index lists. Restore the files "
                "that `packer verify` names, or create the index again"
            )
    damage = verify(path, workers=workers, progress=progress)
    repaired: list[str] = []
    with open_pack(path, check="never") as reader:
        once = {(item.index, item.field): _DamagedBytes(reader, item) for item in damage if item.index is not None}
        broken = [item for item in once.values() if not item.are_intact()]
        repairable = {item.damage for item in broken}
        left = [item for item in damage if item not in repairable]
        try:
            for column in reader.table.column_names():
                reader.require_column(column)
            reader.require_distinct_files()
        except CorruptPackError:  # offsets and checksums of the samples are unknown
            return Repaired([], damage)
        if any(True for _ in reader.stored().overlapping()):  # writing one sample would change another
            return Repaired([], damage)
        with (
            contextlib.closing(_Origin(reader, local_path(root), broken)) as origin,
            contextlib.closing(_Patches(reader)) as patches,
        ):
            left += [item.damage for item in broken if not patches.has(item)]
            inside = [item for item in broken if patches.has(item)]
            made = in_order(origin.made_again, inside, workers)
            for item, data in zip(inside, made, strict=True):
                if isinstance(data, Damage):
                    left.append(data)
                else:
                    patches.write(item, data)
                    repaired.append(item.damage.name)
    return Repaired(list(dict.fromkeys(repaired)), left)


@dataclass(frozen=True, repr=False)
class Repaired(Displayable):
    """The result of a repair.

    Attributes
    ----------
    samples : list of str
        Names of the samples that were repaired, or whose field values were repaired.
    left : list of Damage
        The defects that remain, each with its reason.
    """

    samples: list[str]
    left: list[Damage]

    def _blocks(self) -> Iterator[Block]:
        yield f"{counted(len(self.samples), 'sample')} repaired"
        yield from listed(self.samples)
        if self.left:
            yield f"still damaged in {counted(len(self.left), 'place')}"
            yield from listed(self.left)


class _DamagedBytes:
    """The bytes of a damaged sample, or of one of its field values.

    Parameters
    ----------
    reader : Reader
        The pack.
    damage : Damage
        The damage of a sample.

    Attributes
    ----------
    damage : Damage
    index : int
        The index of the sample.
    """

    def __init__(self, reader: Reader, damage: Damage) -> None:
        assert damage.index is not None
        self._reader, self.damage, self.index = reader, damage, damage.index

    def row(self) -> tuple[int, int, int]:
        """Return offset, size and checksum of the bytes in the pack's data, as recorded in the table."""
        if not self.damage.field:
            row = self._reader.table.row(self.index)
            return row.offset, row.size, row.crc32c
        offset, size, crc32c = self._reader.locate_blobs(np.array([self.index]), self.damage.field)
        return int(offset[0]), int(size[0]), int(crc32c[0])

    def stored(self) -> Buffer:
        """Return the bytes that are now in the pack."""
        if not self.damage.field:
            return self._reader.read(self.index)
        return self._reader.blobs(np.array([self.index]), self.damage.field)[0] or b""

    def match(self, data: Buffer) -> bool:
        """Tell whether some bytes have the size and the checksum in the table."""
        row = self._reader.table.row(self.index)
        if not self.damage.field:
            return len(data) == row.size and row.matches(data)
        _, size, crc32c = self.row()
        return len(data) == size and row.name is not None and value_checksum(data, row.name) == crc32c

    def are_intact(self) -> bool:
        """Tell whether the bytes in the pack match the table, so that the damage is elsewhere."""
        if self.damage.field and not self._reader.fields[self.damage.field].is_blob:
            return True
        try:
            return self.match(self.stored())
        except (CorruptPackError, IndexError):
            return False


class _Origin:
    """The images or the copy of the pack from which damaged samples are restored.

    Parameters
    ----------
    reader : Reader
        The pack.
    root : Path
        A directory of images, or a pack.
    wanted : sequence of _DamagedBytes
    """

    def __init__(self, reader: Reader, root: Path, wanted: Sequence[_DamagedBytes]) -> None:
        self._reader = reader
        self._source, self._numbers = _opened(reader, root, {item.index for item in wanted})
        try:
            self._recipe: Recipe | str = Recipe.of(reader.manifest.settings)
        except ValueError as error:
            self._recipe = f"the pack's manifest does not say how its samples were made: {printable(error)}"

    def made_again(self, wanted: _DamagedBytes) -> Buffer | Damage:
        """Return the original bytes of a sample or a value; if there are none, the damage, with the reason added."""
        damage = wanted.damage
        problem = name_problem(damage.name)
        number = self._numbers.get(wanted.index)
        if problem is None and number is None:
            problem = f"{printable(self._source.root)} has no sample of this name"
        if problem is None and number is not None:
            candidates = self._values if damage.field else self._images
            try:
                for data in candidates(number, damage):
                    if wanted.match(data):
                        return data
                problem = (
                    f"{printable(self._source.path(number))} does not give the same bytes: it has changed, or the "
                    "libraries that decode and encode it have"
                )
                if damage.field:
                    problem = f"{printable(self._source.root)} does not give the same value: it has changed"
            except ImageError as error:
                problem = f"in {printable(self._source.root)}: {error.reason}"
        return replace(damage, reason=f"{damage.reason}; {problem}")

    def close(self) -> None:
        """Close the packs that were opened."""
        if isinstance(self._source, PackSource):
            for reader in self._source.readers:
                reader.close()

    def _images(self, number: int, damage: Damage) -> Iterator[Buffer]:
        """Yield candidates for a sample's bytes: the origin's bytes, and the result of converting these bytes."""
        data, _ = self._source.read(number, ReadBuffer())
        yield data
        if isinstance(self._recipe, str):
            raise ImageError(self._recipe)
        stored = self._source.sample_of(number)
        if stored is None:
            yield prepare(data, damage.name, self._recipe).data
        elif stored.codec == "keep":
            yield prepare_sample(data, damage.name, self._recipe, stored).data

    def _values(self, number: int, damage: Damage) -> Iterator[Buffer]:
        """Yield candidates for a value's bytes, from the copy of the pack or from the field's file."""
        field = self._reader.fields[damage.field]
        if isinstance(self._source, PackSource):
            names = [own.name for own in self._source.fields if own.is_blob]
            if field.name not in names:
                raise ImageError(f"there is no field {field.name!r}")
            value = self._source.value(number, field.name)
            if value is None:
                raise ImageError(f"the sample has no value of the field {field.name!r}")
            assert not isinstance(value, (int, float))
            yield value
            return
        if not field.file:
            raise ImageError(f"the file of the field {field.name!r} is unknown: pass a copy of the pack as the source")
        yield from self._of_file(field, number, damage.name)

    def _of_file(self, field: Field, number: int, name: str) -> Iterator[Buffer]:
        """Yield candidates for a value from the field's file: the file's content, and the result of converting it."""
        try:
            (path,) = FileField(field.name, field.kind, field.file).paths([name])
            files = FileColumn.of(field, self._source.root, [path])
            data, _ = ReadBuffer().read(os.path.join(self._source.root, path))
            stored = files.stored(data)
        except OSError as error:
            if error.errno not in ABOUT_THE_FILE:
                raise SourceError(f"{printable(path)}: reading failed: {cause_of(error)}") from error
            raise ImageError(f"{printable(path)} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError) as error:
            raise ImageError(f"{printable(field.file)}: {error}") from error
        assert stored is not None
        assert not isinstance(stored, (int, float))
        yield stored
        if isinstance(self._recipe, str):
            raise ImageError(self._recipe)
        image, _ = self._source.read(number, ReadBuffer())
        (made,) = prepare_values((field,), (stored,), prepare(image, name, self._recipe).change, self._recipe)
        assert made is not None
        assert not isinstance(made, (int, float))
        yield made


def _opened(reader: Reader, root: Path, wanted: set[int]) -> tuple[Source, dict[int, int]]:
    """Open the origin; return it, and the index of each wanted sample in it."""
    try:
        copy = pack_source(root)
    except (NotAPackError, PackNotFoundError):
        if not os.path.isdir(root):
            what = "neither a directory nor a pack" if os.path.lexists(root) else "no such directory or pack"
            raise SourceError(f"{printable(root)}: {what}") from None
        tree = Source("tree", root, reader.names, reader.table.label, reader.manifest.classes)
        return tree, {index: index for index in wanted}
    indices = {name: index for index in wanted if (name := reader.table.row(index).name) is not None}
    found = enumerate(copy.names.each_encoded())
    return copy, {indices[name]: number for number, name in found if name is not None and name in indices}


class _Patches:
    """Writes restored samples into a pack, at the offsets in the pack's table."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._files = reader.data_files()
        self._starts = np.cumsum([0, *(size for _, _, size in self._files)])
        self._open: dict[int, PatchFile] = {}

    def has(self, damaged: _DamagedBytes) -> bool:
        """Tell whether the table's row points to bytes inside the data of one file."""
        offset, size, _ = damaged.row()
        number = self._file_at(offset)
        return 0 <= number < len(self._files) and 0 <= size <= int(self._starts[number + 1]) - offset

    def write(self, damaged: _DamagedBytes, data: Buffer) -> None:
        """Replace damaged bytes, for which `has` must be true."""
        offset, _, _ = damaged.row()
        number = self._file_at(offset)
        name, begin, _ = self._files[number]
        if number not in self._open:
            self._open[number] = PatchFile(Path(self._reader.path), name)
        file, position = self._open[number], begin + offset - int(self._starts[number])
        if file.read(position, len(data)) != damaged.stored():  # the file may have been replaced
            raise CorruptPackError("the pack was replaced while it was repaired", self._reader.path, damaged.index)
        file.write(position, data)

    def _file_at(self, offset: int) -> int:
        return int(np.searchsorted(self._starts, offset, side="right")) - 1

    def close(self) -> None:
        """Sync everything to the disk, and close the files."""
        for file in self._open.values():
            file.close()
