"""Packs as a source: the samples of one pack, or of several packs with the same fields, one after the other."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from packer._account import Account, BadSamples
from packer._codecs import UNLABELED
from packer._fields import Condition, Field, Stored
from packer._formats import Reader, open_pack
from packer._formats.reader import PackColumns
from packer._manifest import Manifest
from packer._sources.base import ReadBuffer, Rows, Source, StoredSample
from packer._sources.labels import class_ids, unknown_classes
from packer._storage.remote.urls import user_path
from packer._storage.safe_open import name_problem
from packer._storage.stamps import Stamp
from packer._table import Ints, Labels, Names, blocks, decode_name, repeats
from packer.errors import CorruptPackError, ImageError, OptionError, PackError, SourceError, option, printable

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False, kw_only=True)
class PackSource(Source):
    """The samples of packs. The checksum of each sample is checked when the sample is read.

    Attributes
    ----------
    readers : list of Reader
    starts : (P,) int64 array
        The index of the first sample of each pack among all samples.
    samples : range or (N,) int64 array
        The indices of this source's samples, counted over all packs.
    repeated : frozenset of int
        The samples that have the same name as an earlier sample. Empty for several packs: repeated names are an error
        there.
    overlapping : frozenset of int
        The samples that share bytes with an earlier sample. Reading such a sample is an error, because otherwise a few
        bytes could become any number of samples.
    united : Manifest
        The combined manifest of the packs.
    condition : str
        The condition that `where` was called with; empty for all samples.
    """

    _by_row: ClassVar[tuple[str, ...]] = (*Source._by_row, "samples")

    readers: list[Reader]
    starts: npt.NDArray[np.int64]
    samples: range | Ints
    repeated: frozenset[int]
    overlapping: frozenset[int]
    united: Manifest
    condition: str = ""

    def taken(self, rows: Rows) -> PackSource:
        """Return a source with only the samples in these rows, and with the same classes."""
        part = super().taken(rows)
        assert isinstance(part, PackSource)
        united = replace(self.united, source=part.describe())
        if not isinstance(rows, slice):  # counts and skipped images of the manifest refer to all samples
            united = replace(united, skipped=[], findings={})
        elif rows.indices(len(self))[0]:  # only the first part of a conversion has them, for all parts
            united = replace(united, skipped=[], findings={}, account=None if united.account is None else [])
        return replace(part, united=united)

    def without_bad(self, rows: Sequence[int], bad: BadSamples) -> PackSource:
        remaining = super().without_bad(rows, bad)
        assert isinstance(remaining, PackSource)
        if remaining is self:
            return self
        return replace(remaining, united=replace(remaining.united, skipped=self.united.skipped))

    def limited(self, count: int) -> PackSource:
        """Return a source with only the first `count` samples, and with the same classes."""
        if count >= len(self):
            return self
        part = self.taken(slice(0, count))
        return replace(part, united=replace(part.united, skipped=[], findings={}))

    def where(self, condition: str) -> PackSource:
        """Return a source with only the samples that meet a condition, in the same order and with the same classes.

        The condition refers to labels as they are in the packs, before classes are renumbered.

        Raises
        ------
        OptionError
            If the condition is invalid for the packs' columns, or no sample meets it.
        CorruptPackError
            If a column that the condition refers to is damaged.
        """
        meets = Condition(condition).chosen
        met = np.concatenate([meets(PackColumns(reader)) for reader in self.readers])
        rows = np.flatnonzero(met[np.asarray(self.samples)])
        if not len(rows):
            raise OptionError(f"{option('where')} selects none of the {len(self):,} samples of {printable(self.root)}")
        account = Account()
        account.left_out("sample", "--where does not select them", count=len(self) - len(rows), chosen=True)
        return replace(self, condition=condition, account=account).taken(rows)

    def describe(self) -> dict[str, str]:
        """Return the same as `Source.describe`, and the condition if `where` was called, for the manifest."""
        return super().describe() | ({"where": self.condition} if self.condition else {})

    def sizes(self) -> Ints:
        """Return the number of bytes of each sample's image."""
        sizes: Ints = np.concatenate([reader.table.size for reader in self.readers])[np.asarray(self.samples)]
        return sizes

    def stamped(self) -> PackSource:
        """Return the source unchanged, because its samples have checksums and its packs have identities."""
        return self

    @property
    def origin(self) -> Manifest:
        return self.united

    def inputs(self) -> Iterator[str]:
        """Yield the paths or URLs of the packs and of their files."""
        for reader in self.readers:
            yield reader.place.path
            for name in filter(None, reader.file_names()):
                yield (reader.place_of(name) or reader.place.join(name)).path

    def identities(self) -> list[str]:
        return [reader.manifest.identity() for reader in self.readers]

    def path(self, index: int) -> str:
        """Return the path of the pack that contains sample `index`."""
        return self.located(index)[0].path

    def ahead(self, indices: range) -> None:
        by_reader: dict[int, list[int]] = {}
        for index in indices if any(reader.remote for reader in self.readers) else ():
            number, sample = self._reader_of(index)
            by_reader.setdefault(number, []).append(sample)
        for number, samples in by_reader.items():
            self.readers[number].ahead_whole(samples)

    def read(self, index: int, buffer: ReadBuffer) -> tuple[memoryview, Stamp]:
        """Read sample `index`; ImageError if the sample or its row is damaged, SourceError if the disk fails."""

        def read(reader: Reader, number: int) -> tuple[memoryview, Stamp]:
            data = reader.read(number)
            self._require_row(index, reader, number)
            return memoryview(data), (len(data), int(reader.table.crc32c[number]))

        return self._of_pack(index, read)

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        """Return the values of sample `index`. Raises the same errors as `read`; the messages name the field."""
        return tuple(self.value(index, field.name) for field in self.fields)

    def value(self, index: int, name: str) -> Stored:
        """Return the value of one field of sample `index`. Raises the same errors as `values`."""

        def value(reader: Reader, number: int) -> Stored:
            stored = reader.value(number, name)
            if reason := reader.fields[name].misfit(stored):
                raise CorruptPackError(f"field {name!r}: {reason}", reader.path, number, self.names.get(index))
            return stored

        return self._of_pack(index, value)

    def stamp(self, index: int) -> Stamp:
        """Return the size and the checksum of sample `index`."""
        reader, number = self.located(index)
        return int(reader.table.size[number]), int(reader.table.crc32c[number])

    def sample_of(self, index: int) -> StoredSample:
        """Return the properties of sample `index` in its pack."""
        reader, number = self.located(index)
        height, width = int(reader.table.height[number]), int(reader.table.width[number])
        return StoredSample(reader.manifest.codec, height, width, reader.manifest.exif)

    def _require_row(self, index: int, reader: Reader, number: int) -> None:
        """Raise CorruptPackError if the sample's label, size or name is impossible although the checksum matches."""
        row, name = reader.table.row(number), self.names.get(index)
        reason = ""
        if not reader.manifest.fits(row.label):
            reason = reader.manifest.misfit(row.label)
        elif row.height < 1 or row.width < 1:
            reason = f"its row in the table says {row.width} x {row.height} pixels"
        elif self.samples[index] in self.repeated:
            reason = "another sample has the same name"
        elif self.samples[index] in self.overlapping:
            reason = "its bytes overlap another sample's"
        else:
            reason = name_problem(name) or ""
        if reason:
            raise CorruptPackError(reason, reader.path, number, name)

    def _of_pack(self, index: int, read: Callable[[Reader, int], _T]) -> _T:
        """Call `read` with the reader of sample `index`, and the sample's index in the reader; return the result.

        Raises the same errors as the method `read`.
        """
        reader, number = self.located(index)
        try:
            return read(reader, number)
        except CorruptPackError as error:
            where = f"{printable(reader.path)}, sample {number}"
            raise ImageError(f"{where}: {error.reason}", self.names.get(index)) from error
        except PackError as error:
            raise SourceError(str(error)) from error

    def located(self, index: int) -> tuple[Reader, int]:
        """Return the reader of sample `index`, and the sample's index in that reader."""
        number, sample = self._reader_of(index)
        return self.readers[number], sample

    def _reader_of(self, index: int) -> tuple[int, int]:
        sample = int(self.samples[index])
        number = int(np.searchsorted(self.starts, sample, side="right")) - 1
        return number, sample - int(self.starts[number])


_SHOWN = 5


def same_fields(readers: Sequence[Reader]) -> tuple[Field, ...]:
    """Return the fields that all packs have, in the order of the first pack.

    A field may have a template, from which the paths of its files were made. If the packs have different templates for
    a field, it gets no template.

    Raises
    ------
    SourceError
        If a pack lacks a field of another pack, or two packs define a field differently.
    """
    fields = list(readers[0].manifest.fields)
    for reader in readers[1:]:
        _require_same_names(readers[0], reader)
        for position, one in enumerate(fields):
            other = reader.fields[one.name]
            if one != other:
                fields[position] = replace(one, file="")
                _require_same_kind(readers[0], one, reader, other)
    return tuple(fields)


def _require_same_names(first: Reader, other: Reader) -> None:
    for has, lacks in ((first, other), (other, first)):
        missing = [name for name in has.fields if name not in lacks.fields]
        if missing:
            which = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
            raise SourceError(
                f"{printable(has.path)} has the fields {which}, which {printable(lacks.path)} does not have: a pack "
                "needs the same fields for all samples. Convert the images of the second again, with these fields."
            )


def _require_same_kind(first: Reader, one: Field, reader: Reader, other: Field) -> None:
    where = f"{printable(first.path)} and {printable(reader.path)} differ in field {one.name!r}"
    for what in ("kind", "dtype", "rank"):
        mine, theirs = getattr(one, what), getattr(other, what)
        if mine != theirs:
            raise SourceError(
                f"{where}: its {what} is {mine or 'none'} in the first and {theirs or 'none'} in the second. Convert "
                f"one of them again, with the {what} of the other."
            )
    if (one.classes, one.ids) != (other.classes, other.ids):
        differing = sorted({*one.classes} ^ {*other.classes})
        which = ", ".join(map(printable, differing[:_SHOWN])) or "the same names with other ids"
        raise SourceError(
            f"{where}: its classes differ ({which}), so an id would have two meanings. Convert both again, with the "
            "same list of classes."
        )


CLASS_MAPS = ("same", "union")


def pack_source(
    *paths: str | os.PathLike[str],
    class_map: str = "same",
    classes: Sequence[str] | None = None,
    prefixes: Sequence[str] = (),
    bad: BadSamples | None = None,
) -> PackSource:
    """Return a source with the samples of packs, one pack after the other.

    Parameters
    ----------
    *paths : path
        One or more packs, of any formats.
    class_map : {"same", "union"}
        ``same``: the packs must have the same classes. ``union``: additional classes of the other packs follow those of
        the first pack.
    classes : sequence of str, optional
        Class names in the order of their ids, which then replace the ids in the packs.
    prefixes : sequence of str, optional
        For each pack, a directory to put before its sample names.
    bad : BadSamples, optional
        Collects the samples of classes that are not in `classes`; by default such a class is an error.

    Raises
    ------
    SourceError
        If the packs have no samples, if the classes differ, if a class is not in `classes`, if two samples have the
        same name, or if the packs differ in codec, EXIF policy, label type or fields.
    PackError
        If a pack cannot be opened, or several of its files are the same file.
    """
    if class_map not in CLASS_MAPS:
        raise OptionError(f"class_map must be one of {', '.join(CLASS_MAPS)}, not {class_map!r}")
    readers = [open_pack(path) for path in paths]
    for reader in readers:
        reader.require_distinct_files()
    if not any(map(len, readers)):
        raise SourceError(f"{', '.join(printable(reader.path) for reader in readers)}: contains no samples")
    _require_same_meaning(readers)
    fields = same_fields(readers)
    if any(prefixes):  # applied to a name with a prefix, a template does not give the path of the file
        fields = tuple(replace(field, file="") for field in fields)
    if classes is None:
        if class_map == "same":
            _require_same_classes(readers)
        classes = list(dict.fromkeys(name for reader in readers for name in reader.manifest.classes))
    if len(readers) == 1 and not prefixes:
        names = readers[0].names
        repeated = frozenset(index for index, _ in repeats(_Distinguished(names)))
    else:
        names, repeated = Names.joined(_prefixed([reader.names for reader in readers], prefixes)), frozenset[int]()
        _require_unique(names, readers, prefixes)
    united = readers[0].manifest if len(readers) == 1 else Manifest.united([reader.manifest for reader in readers])
    bad = bad or BadSamples()
    starts = np.cumsum([0, *(len(reader) for reader in readers[:-1])])
    labels, unknown = zip(*(_labels(reader, classes, bad) for reader in readers), strict=True)
    source = PackSource(
        "pack",
        user_path(readers[0].path),
        names,
        np.concatenate(labels),
        list(classes),
        readers=readers,
        starts=starts,
        samples=range(len(names)),
        repeated=repeated,
        overlapping=frozenset(
            start + index
            for start, reader in zip(starts.tolist(), readers, strict=True)
            for index in reader.stored().overlapping()
        ),
        united=united,
        label_type=readers[0].manifest.label_type,
        fields=fields,
        about=tuple(united.about),
        account=_account(readers, classes),
    )
    if len(readers) > 1:
        source = replace(source, united=replace(united, source=source.describe()))
    return _of_known_classes(source, np.concatenate(unknown), bad)


def _of_known_classes(source: PackSource, unknown: npt.NDArray[np.bool_], bad: BadSamples) -> PackSource:
    """Return a source without the samples that `unknown` marks. They have unknown classes, and become bad samples."""
    rows = np.flatnonzero(unknown).tolist()
    for row in rows:
        reader, number = source.located(row)
        name = reader.manifest.classes[int(reader.table.label[number])]
        bad.add(source.names[row], SourceError(f"its class {printable(name)} is not one of the given classes"))
    return source.without_bad(rows, bad)


def _account(readers: Sequence[Reader], classes: Sequence[str]) -> Account:
    """Return an account of the classes whose ids in a pack differ from those in `classes`."""
    account, ids = Account(), {name: number for number, name in enumerate(classes)}
    for reader in readers:
        own = enumerate(reader.manifest.classes)
        moved = [name for number, name in own if ids.get(name, number) != number]
        account.renumbered("class", f"they have other ids in {Path(reader.path).name}", moved, chosen=True)
    return account


def _require_same_meaning(readers: Sequence[Reader]) -> None:
    first = readers[0]
    for reader in readers[1:]:
        for what, one, other in [
            ("codec", first.manifest.codec, reader.manifest.codec),
            ("EXIF policy", first.manifest.exif, reader.manifest.exif),
            ("label type", first.manifest.label_type, reader.manifest.label_type),
        ]:
            if one != other:
                raise SourceError(
                    f"{printable(first.path)} has the {what} {printable(one)}, but {printable(reader.path)} has "
                    f"{printable(other)}: they cannot be joined. Convert one of them first."
                )


def _require_same_classes(readers: Sequence[Reader]) -> None:
    first = readers[0].manifest.classes
    for reader in readers[1:]:
        classes = reader.manifest.classes
        if classes != first:
            differing = sorted({*first} ^ {*classes})
            which = ", ".join(map(printable, differing[:5])) if differing else "the same names in another order"
            raise SourceError(
                f"{printable(readers[0].path)} and {printable(reader.path)} differ in their classes: {which}. "
                f"Pass {option('classes', 'union')} to unite them."
            )


def _labels(reader: Reader, classes: Sequence[str], bad: BadSamples) -> tuple[Labels, npt.NDArray[np.bool_]]:
    """Return the labels of a pack, and a mask of samples with a class that is not in `classes`.

    Ids become indices into `classes`. The id is -1 where the mask is True. It is also -1 for an invalid label; reading
    the sample then raises an error. A class that is not in `classes` is an error unless `bad` collects its samples.
    """
    own = reader.manifest.classes
    if own == list(classes):
        return reader.table.label, np.zeros(len(reader), bool)
    if reader.manifest.label_type != "class":
        raise SourceError(f"{printable(reader.path)}: its labels are numbers without classes")
    ids = class_ids(classes)
    if unknown := [name for name in own if name not in ids]:
        bad.require_skip(SourceError(f"{printable(reader.path)}: {unknown_classes([*map(printable, unknown)])}"))
    own_ids = np.array([*(ids.get(name, UNLABELED) for name in own), UNLABELED], np.int64)
    is_unknown = np.array([*(name not in ids for name in own), False])
    parts = [_indices(label, len(own)) for label in blocks(reader.table.label)]
    indices = np.concatenate([np.empty(0, np.int64), *parts])
    return own_ids[indices], is_unknown[indices]


def _indices(label: Ints, count: int) -> Ints:
    """Return the labels as indices: a label that is not the id of one of `count` classes becomes `count`."""
    return np.where((label >= 0) & (label < count), label, count)


class _Distinguished:
    """Names for the search for duplicates: each damaged name is replaced by a text that equals no other name."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> str:
        return self._names.get(index) or f"\0{index}"

    def __iter__(self) -> Iterator[str]:
        for index, name in enumerate(self._names.each_encoded()):
            yield decode_name(name) if name else f"\0{index}"


def _prefixed(parts: Sequence[Names], prefixes: Sequence[str]) -> list[Names]:
    """Return the names of all samples, each with the prefix of its pack."""
    if not prefixes:
        return list(parts)
    return [
        Names.of(f"{prefix}/{name}" for name in names) if prefix else names
        for names, prefix in zip(parts, prefixes, strict=True)
    ]


def _require_unique(names: Names, readers: Sequence[Reader], prefixes: Sequence[str]) -> None:
    for reader in readers:
        deque(reader.names, maxlen=0)  # reading the names raises an error if one is damaged
    for index, _ in repeats(names):
        which = ", ".join(printable(reader.path) for reader in readers)
        example = option("prefixes", [printable(name) for name in _distinct_stems(readers)])
        advice = "" if prefixes else f". Pass a prefix for each pack, in their order: {example}"
        raise SourceError(f"{printable(names[index])}: two samples of {which} have this name{advice}")


def _distinct_stems(readers: Sequence[Reader]) -> list[str]:
    """Return a unique name for each pack: the name of its file, with a number if another pack has the same name."""
    stems = [Path(reader.path).stem for reader in readers]
    numbered = [stem if stems.count(stem) == 1 else f"{stem}-{number}" for number, stem in enumerate(stems, 1)]
    if len(set(numbered)) < len(stems):  # for example if a pack is named `train-2`, and two are named `train`
        return [f"{number}-{stem}" for number, stem in enumerate(stems, 1)]
    return numbered
