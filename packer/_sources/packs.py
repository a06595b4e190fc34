"""Packs as a source: opened, compared, and their samples one after the other."""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from packer._account import Account
from packer._formats import Reader, open_pack
from packer._manifest import Manifest
from packer._sources.classlist import class_ids, unknown_classes
from packer._sources.pack import PackSource
from packer._sources.repeats import repeats
from packer._sources.samefields import same_fields
from packer._storage.urlpath import user_path
from packer._table import Ints, Labels, Names, blocks, decode_name
from packer.errors import SourceError, printable

__all__ = ["CLASS_MAPS", "pack_source"]

CLASS_MAPS = ("same", "union")


def pack_source(
    *paths: str | os.PathLike[str],
    class_map: str = "same",
    classes: Sequence[str] | None = None,
    prefixes: Sequence[str] = (),
) -> PackSource:
    """Take the samples of packs, one pack after the other.

    Parameters
    ----------
    *paths : path
        One pack or more, of any formats.
    class_map : {"same", "union"}
        Whether the packs must have the same classes, or the first pack's are followed by what others have beyond them.
    classes : sequence of str, optional
        Class names in the order of their ids, instead of the packs'.
    prefixes : sequence of str, optional
        What comes before the names of each pack's samples, and a slash; one for each pack, or none.

    Raises
    ------
    SourceError
        If the classes differ, a class is not in `classes`, two samples have one name, or the packs' bytes mean
        different things.
    PackError
        If a pack cannot be opened, or several of its files are one.
    """
    if class_map not in CLASS_MAPS:
        raise ValueError(f"class_map is one of {', '.join(CLASS_MAPS)}, not {class_map!r}")
    readers = [open_pack(path) for path in paths]
    for reader in readers:
        reader.require_distinct_files()
    _require_same_meaning(readers)
    fields = same_fields(readers)
    if any(prefixes):  # no template leads from such names to the files
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
    starts = np.cumsum([0, *(len(reader) for reader in readers[:-1])])
    source = PackSource(
        "pack",
        user_path(readers[0].path),
        names,
        np.concatenate([_labels(reader, classes) for reader in readers]),
        list(classes),
        readers=readers,
        starts=starts,
        first=0,
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
    return source if len(readers) == 1 else replace(source, united=replace(united, source=source.describe()))


def _account(readers: Sequence[Reader], classes: Sequence[str]) -> Account:
    """Return the account of packs: the classes that have other ids here, as options want it."""
    account, ids = Account(), {name: number for number, name in enumerate(classes)}
    for reader in readers:
        own = enumerate(reader.manifest.classes)
        moved = [name for number, name in own if ids.get(name) != number]
        account.renumbered("class", f"their ids in {Path(reader.path).name} are others", moved, chosen=True)
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
                    f"{printable(first.path)} has the {what} {printable(one)}, and {printable(reader.path)} has "
                    f"{printable(other)}: one pack cannot hold both. Convert one of them first."
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
                "Say --classes union to unite them."
            )


def _labels(reader: Reader, classes: Sequence[str]) -> Labels:
    """Return the labels of a pack, ids as indices into `classes`; -1 also for what reading refuses."""
    own = reader.manifest.classes
    if own == list(classes):
        return reader.table.label
    if reader.manifest.label_type != "class":
        raise SourceError(f"{printable(reader.path)}: its labels are numbers without classes")
    ids = class_ids(classes)
    unknown = [name for name in own if name not in ids]
    if unknown:
        raise SourceError(f"{printable(reader.path)}: {unknown_classes([*map(printable, unknown)])}")
    return np.concatenate(
        [np.empty(0, np.int64), *(_mapped(label, [ids[name] for name in own]) for label in blocks(reader.table.label))]
    )


def _mapped(label: Ints, ids: list[int]) -> Ints:
    inside = (label >= 0) & (label < len(ids))
    return np.where(inside, np.array([*ids, -1], np.int64)[np.where(inside, label, -1)], -1)


class _Distinguished:
    """Names for finding repeats: each damaged name stands as a text of its own that no name equals."""

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
    """Return the names of packs, each with what comes before those of its pack."""
    if not prefixes:
        return list(parts)
    return [
        Names.of(f"{prefix}/{name}" for name in names) if prefix else names
        for names, prefix in zip(parts, prefixes, strict=True)
    ]


def _require_unique(names: Names, readers: Sequence[Reader], prefixes: Sequence[str]) -> None:
    for reader in readers:
        deque(reader.names, maxlen=0)  # raises where a sample has none
    for index, _ in repeats(names):
        which = ", ".join(printable(reader.path) for reader in readers)
        said = " ".join(f"--prefix {shlex.quote(printable(name))}" for name in _distinct_stems(readers))
        advice = "" if prefixes else f". Put a name before those of each pack, in their order: {said}"
        raise SourceError(f"{printable(names[index])}: two samples of {which} have this name{advice}")


def _distinct_stems(readers: Sequence[Reader]) -> list[str]:
    """Return a name for each pack, no two alike: that of its file, and a number where others have the same."""
    stems = [Path(reader.path).stem for reader in readers]
    numbered = [stem if stems.count(stem) == 1 else f"{stem}-{number}" for number, stem in enumerate(stems, 1)]
    if len(set(numbered)) < len(stems):  # such as `train-2` beside two `train`
        return [f"{number}-{stem}" for number, stem in enumerate(stems, 1)]
    return numbered
