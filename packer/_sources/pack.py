"""Packs as a source: the samples of one pack, or of several, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from packer._account import Account
from packer._fields import Condition, Stored
from packer._formats import Reader
from packer._formats.columns import PackColumns
from packer._manifest import Manifest
from packer._sources.base import ReadBuffer, Source, StoredSample
from packer._storage.paths import name_problem
from packer._storage.stamps import Stamp
from packer._table import Ints, Names
from packer.errors import CorruptPackError, ImageError, OptionError, PackError, SourceError, printable

__all__ = ["PackSource"]


@dataclass(frozen=True, eq=False, kw_only=True)
class PackSource(Source):
    """The samples of packs. Every one is compared with its checksum when it is read.

    Attributes
    ----------
    readers : list of Reader
    starts : (P,) int64 array
        Which index of all samples is the first of each pack.
    first : int
        Which index of all samples is the first of this source.
    repeated : frozenset of int
        Which of all samples have the name of an earlier one. Several packs have none such.
    overlapping : frozenset of int
        Which of all samples share bytes with an earlier one: of a few bytes any number of samples could be made.
    united : Manifest
        What the packs' manifests say together.
    chosen : (N,) int64 array, optional
        Which of all samples this source has, where these are no neighbours.
    condition : str
        What these samples were chosen by; empty where nobody asked.
    """

    readers: list[Reader]
    starts: npt.NDArray[np.int64]
    first: int
    repeated: frozenset[int]
    overlapping: frozenset[int]
    united: Manifest
    chosen: npt.NDArray[np.int64] | None = None
    condition: str = ""

    def between(self, start: int, stop: int) -> PackSource:
        """Return a source of samples `start` to `stop` - 1; the classes stay."""
        part = replace(
            self,
            names=self.names.between(start, stop),
            labels=self.labels[start:stop],
            first=self.first + start,
            chosen=None if self.chosen is None else self.chosen[start:stop],
        )
        united = replace(self.united, source=part.describe())
        if part.first:  # else the parts of a pack would repeat them
            united = replace(united, skipped=[], findings={}, account=None if united.account is None else [])
        return replace(part, united=united)

    def limited(self, count: int) -> PackSource:
        """Return a source of the first `count` samples; the classes stay."""
        if count >= len(self):
            return self
        part = self.between(0, count)  # what was counted and left out was of all samples
        return replace(part, united=replace(part.united, skipped=[], findings={}))

    def where(self, condition: str) -> PackSource:
        """Return a source of the samples that meet a condition, in their order; the classes stay.

        The condition speaks of labels as the packs have them.

        Raises
        ------
        OptionError
            If the text is no condition on the packs' columns, or no sample meets it.
        CorruptPackError
            If a column that the condition names is damaged.
        """
        meets = Condition(condition).chosen
        met = np.concatenate([meets(PackColumns(reader)) for reader in self.readers])
        places = np.flatnonzero(met[self._all_samples()])
        if not len(places):
            raise OptionError(f"--where chooses none of the {len(self):,} samples of {printable(self.root)}")
        account = Account()
        account.left_out("sample", "--where does not choose them", count=len(self) - len(places), chosen=True)
        return replace(self, condition=condition, account=account).taken(places)

    def taken(self, indices: Ints) -> PackSource:
        """Return a source of the samples of some indices, in their order; the classes stay."""
        names, labels = Names.of(self.names.get(index) for index in indices.tolist()), self.labels[indices]
        united = replace(self.united, skipped=[], findings={})  # what was counted and left out was of all samples
        chosen = self._all_samples()[indices]
        part = replace(self, names=names, labels=labels, chosen=chosen, first=0, united=united)
        return replace(part, united=replace(united, source=part.describe()))

    def _all_samples(self) -> Ints:
        """Return which of all samples those of this source are."""
        return np.arange(self.first, self.first + len(self)) if self.chosen is None else self.chosen

    def describe(self) -> dict[str, str]:
        """Return kind and digest of names, labels and classes, and the condition, for the manifest."""
        return super().describe() | ({"where": self.condition} if self.condition else {})

    def sizes(self) -> Ints:
        """Return how many bytes the image of each sample has."""
        return np.concatenate([reader.table.size for reader in self.readers])[self._all_samples()]

    def stamped(self) -> PackSource:
        """Return the source: its samples have checksums, and its packs identities."""
        return self

    @property
    def origin(self) -> Manifest:
        return self.united

    def identities(self) -> list[str]:
        return [reader.manifest.identity() for reader in self.readers]

    def path(self, index: int) -> str:
        """Return the pack that sample `index` lies in."""
        return self._place(index)[0].path

    def ahead(self, indices: range) -> None:
        places: dict[int, list[int]] = {}
        for index in indices if any(reader.remote for reader in self.readers) else ():
            whole = self._whole(index)
            places.setdefault(int(np.searchsorted(self.starts, whole, side="right")) - 1, []).append(whole)
        for number, some in places.items():
            self.readers[number].ahead_whole([whole - int(self.starts[number]) for whole in some])

    def read(self, index: int, buffer: ReadBuffer) -> tuple[memoryview, Stamp]:
        """Read sample `index`; ImageError where it or its row is damaged, SourceError where the disk fails."""
        reader, place = self._place(index)
        try:
            data = reader.read(place)
            self._require_row(index, reader, place)
        except CorruptPackError as error:
            where = f"{printable(reader.path)}, sample {place}"
            raise ImageError(f"{where}: {error.reason}", self.names.get(index)) from error
        except PackError as error:
            raise SourceError(str(error)) from error
        return memoryview(data), (len(data), int(reader.table.crc32c[place]))

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        """Return the values of sample `index`; errors as for `read`, which name the field."""
        return tuple(self.value(index, field.name) for field in self.fields)

    def value(self, index: int, name: str) -> Stored:
        """Return the value of one field of sample `index`; errors as for `values`."""
        reader, place = self._place(index)
        try:
            stored = reader.value(place, name)
            if reason := reader.fields[name].misfit(stored):
                raise CorruptPackError(f"field {name!r}: {reason}", reader.path, place, self.names.get(index))
            return stored
        except CorruptPackError as error:
            where = f"{printable(reader.path)}, sample {place}"
            raise ImageError(f"{where}: {error.reason}", self.names.get(index)) from error
        except PackError as error:
            raise SourceError(str(error)) from error

    def stamp(self, index: int) -> Stamp:
        """Return the size and the checksum of sample `index`."""
        reader, place = self._place(index)
        return int(reader.table.size[place]), int(reader.table.crc32c[place])

    def sample_of(self, index: int) -> StoredSample:
        """Return what the pack knows of sample `index`."""
        reader, place = self._place(index)
        height, width = int(reader.table.height[place]), int(reader.table.width[place])
        return StoredSample(reader.manifest.codec, height, width, reader.manifest.exif)

    def _require_row(self, index: int, reader: Reader, place: int) -> None:
        """Raise CorruptPackError where no sample has such a label, size or name, whatever its checksum says."""
        row, name = reader.table.row(place), self.names.get(index)
        reason = ""
        if not reader.manifest.fits(row.label):
            reason = reader.manifest.misfit(row.label)
        elif row.height < 1 or row.width < 1:
            reason = f"its row in the table says {row.width} x {row.height} pixels"
        elif self._whole(index) in self.repeated:
            reason = "another sample has the same name"
        elif self._whole(index) in self.overlapping:
            reason = "its bytes overlap another sample's"
        else:
            reason = name_problem(name) or ""
        if reason:
            raise CorruptPackError(reason, reader.path, place, name)

    def _place(self, index: int) -> tuple[Reader, int]:
        whole = self._whole(index)
        number = int(np.searchsorted(self.starts, whole, side="right")) - 1
        return self.readers[number], whole - int(self.starts[number])

    def _whole(self, index: int) -> int:
        """Return which of all samples sample `index` of this source is."""
        return self.first + index if self.chosen is None else int(self.chosen[index])
