"""Lists the samples of a container in columns, which grow on disk instead of in memory.

Names that occur twice are numbered, and a file that is listed twice is refused. `ForeignFiles` opens files when they
are needed, and checks that each file's size and time are still those at the time of listing.
"""

from __future__ import annotations

import itertools
import math
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._codecs import LABEL_TYPES, UNLABELED, are_few, largest_id
from packer._containers.compression import PackedRanges, PackedSpool
from packer._containers.contract import Container, Entry, Named, Packed, Piece, Ranges, Seal, Seals
from packer._containers.discovery import above_classes, account_for_layout, by_class, numbered_classes, splits_among
from packer._fields import DTYPES, Field
from packer._fields.encoding import parsed_json
from packer._storage.files import Spool
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer._storage.stamps import Stamps, filled, same_stamp, stamp_in, take_stamps, what_changed
from packer._table import LONGEST_NAME, Buffer, Ints, Labels, Names, encode_name
from packer.errors import CorruptPackError, SourceError, printable


def require_distinct_files(root: Path, files: Sequence[str]) -> None:
    """Refuse a container that lists a file twice: otherwise a short list that repeats one shard could fill the disk."""
    if len(set(files)) < len(files):
        ((twice, _),) = Counter(files).most_common(1)
        raise SourceError(f"{printable(root / twice)}: is listed twice. Name each file once")


def repeat(names: Iterable[str]) -> bool:
    """Tell whether any two names may be equal, by comparing hashes."""
    hashes = np.fromiter(map(hash, names), np.int64)
    hashes.sort()
    return bool((hashes[1:] == hashes[:-1]).any())


def numbered(names: Names, notes: list[str]) -> Names:
    """Make names unique: a repeated name gets a number after its stem, as in ``a~2.jpg``.

    If a name was changed, `notes` gets a note that says so.
    """
    hashes = np.fromiter(map(hash, names), np.int64, len(names))
    ordered = np.sort(hashes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return names
    suspect = np.isin(hashes, again)
    notes.append(
        f"several samples have the same name, such as {printable(names[int(suspect.argmax())])}: the names "
        "of later ones end in ~2, ~3, ..."
    )
    return Names.of(_with_numbers(names, suspect.tolist(), ordered))


def _with_numbers(names: Names, suspect: Sequence[bool], ordered: Ints) -> Iterator[str]:
    """Yield unique names.

    `suspect` marks the names that may equal another name; `ordered` has the hashes of all names in ascending order.
    """
    counts: dict[str, int] = {}
    for name, is_suspect in zip(names, suspect, strict=True):
        number = counts.get(name, 0) + 1 if is_suspect else 1
        unique, (stem, suffix) = name, posixpath.splitext(name)
        while number > 1 and _is_there(unique := f"{stem}~{number}{suffix}", ordered):
            number += 1
        if is_suspect:
            counts[name] = number
        yield unique


def _is_there(name: str, ordered: Ints) -> bool:
    value = hash(name)
    index = int(np.searchsorted(ordered, value))
    return index < len(ordered) and int(ordered[index]) == value


_BLOCK, _BLOCK_BYTES = 4096, 1 << 26  # samples, and bytes that they hold
_NO_BYTES = -1
_NO_SEAL = 0, -1, 0
_RANGE = np.dtype([(name, "<i8") for name in Piece._fields])
_SEAL = [(name, "<i8") for name in Seal._fields]
_FEW = 1 << 20  # samples that are allowed even if the files have fewer bytes
_SHARED = (
    1 << 27,
    100,
)  # limit of the bytes to which samples refer: a constant plus a multiple of the size of the files
_NAMED = -2  # class name number n has the label -2 - n until all samples are known
_JSON_BEGINS = ("{", "[")  # objects and lists, which name no class


@dataclass(frozen=True, eq=False)
class Listing:
    """All samples of a container in order, as columns.

    Attributes
    ----------
    container : Container
    names : Names
    labels : (N,) int64 or float64 array
        If `label_type` is ``"class"``, the class ids, with -1 for a sample without a label; otherwise the labels
        themselves, which are numbers.
    classes : list of str
    label_type : str
    images : Ranges
    shapes : (N, 2) int64 array
        Height and width of an image that is stored as pixels; 0 for an encoded image.
    seals : Seals, optional
    ranges : dict of str to Ranges
        The locations of the values of fields that hold bytes, by the name of the field.
    numbers : dict of str to (array, array)
        For each other field, by name: its values, and a mask of the missing values.
    copied : (B,) uint8 array
        Copies of all values that are not a single range of a file.
    packed : PackedRanges
        The compressed ranges that contain values.
    notes : list of str
    """

    container: Container
    names: Names
    labels: Labels
    classes: list[str]
    label_type: str
    images: Ranges
    shapes: Ints
    seals: Seals | None
    ranges: dict[str, Ranges]
    numbers: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]]
    copied: npt.NDArray[np.uint8]
    packed: PackedRanges
    notes: list[str]

    def __len__(self) -> int:
        return len(self.names)


def list_samples(
    container: Container,
    classes: Sequence[str] | None = None,
    *,
    in_place: bool = False,
    bad: BadSamples | None = None,
) -> Listing:
    """List the samples of a container.

    Parameters
    ----------
    container : Container
    classes : sequence of str, optional
        Class names in the order of their ids; these replace the container's class names.
    in_place : bool
        True if the listing is for an index. An index reads values directly from the files, so compressed values are
        refused.
    bad : BadSamples, optional
        Collects samples that cannot be used: those with a `problem` or an invalid label. Without `bad`, the first such
        sample raises an error.

    Raises
    ------
    SourceError
        For the same reasons as in `Container.entries`; if there are no files, or a file is listed twice; if a sample
        has no name; if a label is invalid; if there are no samples; or, with `in_place`, if a value is compressed.
    """
    if not container.files:
        raise SourceError(
            f"{printable(container.root)}: none of its files has data. It looks like {container.kind}; were all "
            "files copied?"
        )
    require_distinct_files(container.root, container.files)
    rows = _Rows(container, in_place, bad or BadSamples())
    for unit in range(container.units):
        for block in _blocks(container.entries(unit)):
            rows.add(block, unit)
    return rows.listing(classes)


def _blocks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield samples in blocks. The larger their values, the smaller the blocks."""
    block, size = list[Entry](), 0
    for entry in entries:
        block.append(entry)
        size += sum(len(value) for value in (entry.image, *entry.values.values()) if isinstance(value, bytes))
        if len(block) == _BLOCK or size > _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


class _Rows:
    """Collects entries as rows of a structured array."""

    def __init__(self, container: Container, in_place: bool, bad: BadSamples) -> None:
        self._container, self._in_place, self._bad = container, in_place, bad
        self._fields = {field.name: field for field in container.fields}
        self._type = np.dtype([*_own_columns(container), *(column for f in container.fields for column in _columns(f))])
        self._rows, self._names, self._copied = Spool(), Spool(), Spool()
        self._packed = PackedSpool(len(container.files))
        self._name_end = self._copied_end = self._count = 0
        self._most, self._most_held, self._held, self._last_packed = _FEW, _SHARED[0], 0, -1
        self._class_names: dict[str, int] = {}  # in the order of their first occurrence
        self._names_of_ids: dict[int, str] = {}
        self._contradictory = False
        self._left_out = np.zeros(0, bool)  # a mask of the rows, once all are there

    def add(self, entries: Sequence[Entry], unit: int) -> None:
        """Add the samples of one part of the container."""
        entries, labels = self._usable(entries, unit)
        if not entries:
            return
        rows = np.zeros(len(entries), self._type)
        names = [encode_name(entry.name) for entry in entries]
        rows["name end"] = self._name_end + np.cumsum([len(name) for name in names])
        self._name_end = int(rows["name end"][-1])
        self._names.append(b"".join(names))
        rows["label"] = labels
        rows["image"] = self._pieces((entry.image for entry in entries), unit)
        if self._container.pixels is not None:
            rows["height"], rows["width"] = np.array([entry.shape or (0, 0) for entry in entries], np.int64).T
        for name, field in self._fields.items():
            values = [entry.values.get(name) for entry in entries]
            if field.is_blob:
                rows[name] = self._pieces(values, unit)
            else:
                rows[f"{name} null"] = [value is None for value in values]
                rows[name] = [0 if value is None else value for value in values]
        if self._container.sealed:
            rows["image seal"] = [entry.seal or _NO_SEAL for entry in entries]
        self._require_known(entries)
        self._rows.append(rows.tobytes())
        self._count += len(entries)
        if self._count > self._most or self._held > self._most_held:
            self._require_bytes()

    def listing(self, classes: Sequence[str] | None) -> Listing:
        """Return the listing of all samples that were added."""
        container = self._container
        self._require_usable(self._count)
        rows = self._rows.array(self._type)
        names = Names(self._names.array(np.uint8), rows["name end"])
        self._left_out = np.zeros(len(rows), bool)
        labels, known, label_type, notes = self._meaning(rows["label"], names, classes)
        self._leave_out_retracted(names, rows["image"])
        if self._left_out.any():
            usable = ~self._left_out
            names, rows, labels = names.taken(np.flatnonzero(usable)), rows[usable], labels[usable]
            self._require_usable(len(rows))
        numbers = {
            name: (rows[name], rows[f"{name} null"]) for name, field in self._fields.items() if not field.is_blob
        }
        packed = self._packed.ranges()
        return Listing(
            container,
            _distinct(container, names, packed.origins(rows["image"]["file"]), notes),
            labels,
            known,
            label_type,
            _ranges(rows["image"]),
            np.stack([rows["height"], rows["width"]], 1) if container.pixels else np.zeros((len(rows), 2), np.int64),
            _seals(rows["image seal"], container.checksum) if container.sealed else None,
            {name: _ranges(rows[name]) for name, field in self._fields.items() if field.is_blob},
            numbers,
            self._copied.array(np.uint8),
            packed,
            [*container.notes, *notes],
        )

    def _leave_out_retracted(self, names: Names, images: npt.NDArray[np.void]) -> None:
        """Leave out the samples in `Container.retracted`, which later samples have shown to be unusable."""
        retracted = self._container.retracted
        for row, place in enumerate(images[["file", "offset"]].tolist() if retracted else ()):
            if place in retracted and not self._left_out[row]:
                where = f"{_shown(self._container, place[0])}: {printable(names[row])}"
                self._bad.add(names[row], SourceError(f"{where}: {retracted[place]}"))
                self._left_out[row] = True

    def _require_usable(self, count: int) -> None:
        if not count:
            first = f" that can be used: {self._bad.found[0]['reason']}" if self._bad.found else " in it"
            raise SourceError(f"{_shown(self._container)}: no images{first}")

    def _usable(self, entries: Sequence[Entry], unit: int) -> tuple[list[Entry], list[int | float]]:
        """Return the usable samples, with their labels."""
        usable, labels = list[Entry](), list[int | float]()
        for number, entry in enumerate(entries, self._count):
            try:
                if entry.problem:
                    self._refuse(entry, unit, entry.problem)
                self._require_name(entry.name, number, unit)
                label = self._label(entry, unit)
            except SourceError as error:
                self._bad.add(entry.name, error)
            else:
                usable.append(entry)
                labels.append(label)
        return usable, labels

    def _require_name(self, name: str, number: int, unit: int) -> None:
        problem = name_problem(name) or ("its name is too long" if len(name) > LONGEST_NAME // 4 else None)
        if problem:
            raise SourceError(f"{_shown(self._container, unit)}: sample {number}, {printable(name)}: {problem}")

    def _require_bytes(self) -> None:
        """Refuse listings with more samples than bytes, or with far more bytes than the files have.

        A compressed range may declare any unpacked size, and samples may share bytes. Without a limit, either could
        fill the disk.
        """
        container = self._container
        size = sum(filled(container.root / name) for name in container.files)
        if self._count > max(size, _FEW):
            raise SourceError(
                f"{_shown(container)}: lists {self._count:,} samples or more, although its files have only {size:,} "
                "bytes"
            )
        self._most_held = _SHARED[0] + _SHARED[1] * size
        if self._held > self._most_held:
            raise SourceError(
                f"{_shown(container)}: its samples share the same bytes: {self._count:,} samples have "
                f"{self._held:,} bytes together, more than {_SHARED[1]} times the {size:,} bytes of the files. "
                "Write each image once"
            )
        self._most = max(size, _FEW)

    def _require_known(self, entries: Iterable[Entry]) -> None:
        if not all(entry.values.keys() <= self._fields.keys() for entry in entries):
            raise AssertionError(f"{self._container.kind} lists a field that it does not have")

    def _label(self, entry: Entry, unit: int) -> int | float:
        label = entry.label
        if label is None:
            return UNLABELED if self._container.label_type == "class" else self._refuse(entry, unit, "it has no label")
        if isinstance(label, Named):
            label, name = label
            self._contradictory |= self._names_of_ids.setdefault(label, name) != name
        if self._container.label_type != "class":
            if isinstance(label, str) or not math.isfinite(label):
                return self._refuse(entry, unit, f"its label is {printable(label)[:80]}, not a number")
            return label
        if isinstance(label, str):
            if label[:1] in _JSON_BEGINS and _is_json(label):
                return self._refuse(
                    entry,
                    unit,
                    f"its label is JSON, {printable(label)[:40]}, not a class id or a class name. Store it as a field: "
                    "--key NAME:json=KEY and --key image=KEY",
                )
            return _NAMED - self._class_names.setdefault(label, len(self._class_names))
        is_id = UNLABELED <= label < 1 << 62 and label == int(label)
        return label if is_id else self._refuse(entry, unit, f"its label is {label}")

    def _refuse(self, entry: Entry, unit: int, why: str) -> int:
        raise SourceError(f"{_shown(self._container, unit)}: {printable(entry.name)}: {why}")

    def _pieces(self, values: Iterable[Any], unit: int) -> npt.NDArray[np.void]:
        """Return the locations of values. A value that is bytes is first copied, to get a location too."""
        numbers = np.fromiter(itertools.chain.from_iterable(self._each_piece(values, unit)), np.int64)
        return numbers.view(_RANGE)

    def _each_piece(self, values: Iterable[Any], unit: int) -> Iterator[tuple[int, int, int]]:
        copied = ~(unit if self._container.units_are_files else 0)
        for value in values:
            if value is None:
                yield copied, 0, _NO_BYTES
            elif isinstance(value, Piece):
                self._held += value.size
                yield value
            elif isinstance(value, Packed):
                self._require_may_be_packed(value)
                number = self._packed.add(value)
                self._held += value.piece.size if number != self._last_packed else 0
                self._last_packed = number
                yield number, value.offset, value.size
            else:
                self._copied.append(value)
                self._copied_end += len(value)
                self._held += len(value)
                if self._held > self._most_held:
                    self._require_bytes()
                yield copied, self._copied_end - len(value), len(value)

    def _require_may_be_packed(self, value: Packed) -> None:
        if self._in_place:
            file, offset, _ = value.piece
            where = f"{printable(self._container.root / self._container.files[file])}, byte {offset}"
            raise SourceError(
                f"{where}: is compressed ({value.codec}): convert it, because an index reads bytes in place"
            )

    def _meaning(
        self, labels: Labels, samples: Names, classes: Sequence[str] | None
    ) -> tuple[Labels, list[str], str, list[str]]:
        """Return labels (-1 for samples to leave out), class names, the label type, and notes about the labels."""
        container, notes = self._container, list[str]()
        known = container.classes if classes is None else list(classes)
        if container.label_type != "class":
            return labels, [], container.label_type, notes
        labels = self._of_one_kind(labels, samples)
        if (labels <= _NAMED).any():
            labels = np.where(labels <= _NAMED, _NAMED - labels, UNLABELED)
            names = self._of_directories(samples, notes) if container.directories_are_classes else [*self._class_names]
            if known is None:
                known = sorted(set(names))
                notes += numbered_classes(known)
            ids = {name: number for number, name in enumerate(known)}
            self._leave_out_unknown(
                labels, samples, {index: name for index, name in enumerate(names) if name not in ids}
            )
            table = np.array([*(ids.get(name, UNLABELED) for name in names), UNLABELED], np.int64)
            return table[labels], list(known), "class", notes
        most = int(labels.max(initial=UNLABELED))
        own = container.classes
        if own is None and self._names_of_ids:
            own = self._names_of_classes(most, notes)
        if classes is not None and own is not None:
            return self._renumbered(labels, samples, own, classes), list(classes), "class", notes
        known = own if known is None else known
        if known is None:
            largest = largest_id(len(labels))
            few = container.labels_are_ids and are_few(int((labels > largest).sum()), len(labels))
            if most > largest and not few:
                notes.append(f"labels are numbers without classes, because they reach {most:,}")
                return labels, [], "int", notes
            known = list(map(str, range(int(labels[labels <= largest].max(initial=UNLABELED)) + 1)))
        return self._within(labels, samples, len(known)), list(known), "class", notes

    def _of_one_kind(self, labels: Labels, samples: Names) -> Labels:
        """If labels are partly numbers and partly class names, leave out the samples with the rarer kind of label.

        Raise an error if unusable samples are errors, or if the rarer kind is frequent.
        """
        named, numbers = labels <= _NAMED, labels > UNLABELED
        if not named.any() or not numbers.any():
            return labels
        few, most = (named, "numbers") if named.sum() < numbers.sum() else (numbers, "class names")
        if not are_few(int(few.sum()), int(named.sum() + numbers.sum())):
            raise SourceError(
                f"{_shown(self._container)}: {numbers.sum():,} labels are numbers, {named.sum():,} are class names. "
                "Use labels of one kind."
            )
        names = list(self._class_names)
        reasons = {}
        for label in np.unique(labels[few]).tolist():
            shown = printable(names[_NAMED - label])[:80] if label <= _NAMED else label
            reasons[label] = f"its label is {shown}, but most labels are {most}"
        self._leave_out(labels, samples, reasons)
        return np.where(few, UNLABELED, labels)

    def _renumbered(self, labels: Labels, samples: Names, own: Sequence[str], classes: Sequence[str]) -> Labels:
        """Map labels to the ids of the user's classes, by class name."""
        by_number = any(list(names) == list(map(str, range(len(names)))) for names in (own, classes))
        labels = self._within(labels, samples, len(classes if by_number else own))
        if by_number:
            return labels
        ids, used = {name: number for number, name in enumerate(classes)}, np.unique(labels[labels >= 0]).tolist()
        self._leave_out_unknown(labels, samples, {number: own[number] for number in used if own[number] not in ids})
        moved = [own[number] for number in used if ids.get(own[number], number) != number]
        self._container.account.renumbered("class", "their ids are those in the given class list", moved, chosen=True)
        table = np.full(len(own) + 1, UNLABELED, np.int64)  # the last one is for -1
        table[used] = [ids.get(own[number], UNLABELED) for number in used]
        return table[labels]

    def _within(self, labels: Labels, samples: Names, count: int) -> Labels:
        """Set ids beyond the number of classes to -1, and leave out the samples with such ids."""
        beyond = {
            int(label): f"its label is {label}, but there are {count} classes" for label in labels[labels >= count]
        }
        self._leave_out(labels, samples, beyond)
        return np.where(labels >= count, UNLABELED, labels) if beyond else labels

    def _leave_out_unknown(self, labels: Labels, samples: Names, unknown: Mapping[int, str]) -> None:
        """Leave out the samples of classes that are not in the user's class list, or raise an error."""
        reasons = {
            label: f"its class {printable(name)} is not one of the given classes" for label, name in unknown.items()
        }
        self._leave_out(labels, samples, reasons, _unknown(sorted(set(unknown.values()))))

    def _leave_out(self, labels: Labels, samples: Names, reasons: Mapping[int, str], problem: str = "") -> None:
        """Leave out the samples of some labels, with a reason for each label; or raise an error.

        The error states `problem`, or the reason of the first sample if `problem` is empty. `_left_out` marks the
        samples.
        """
        where = _shown(self._container)
        if reasons and problem:
            self._bad.require_skip(SourceError(f"{where}: {problem}"))
        concerned = np.isin(labels, list(reasons))
        self._left_out |= concerned
        for row in np.flatnonzero(concerned).tolist():
            why = f"{where}: {printable(samples[row])}: {reasons[int(labels[row])]}"
            self._bad.add(samples[row], SourceError(why))

    def _of_directories(self, samples: Names, notes: list[str]) -> list[str]:
        """Return the class that belongs to each directory of images."""
        above = above_classes([directory.split("/") for directory in self._class_names])
        below = [f"{directory}/"[len(above) :] for directory in self._class_names]
        if splits := splits_among([directory.rstrip("/") for directory in below]):
            raise SourceError(
                f"{_shown(self._container)}: has several splits: {', '.join(splits)}. Unpack it and convert one of them"
            )
        notes.append(f"classes are the directories{f' in {printable(above)}' if above else ''}")
        listed = by_class(samples, above)
        account_for_layout(self._container.account, listed, printable(above), "unpack it, and convert")
        names = [directory.partition("/")[0] for directory in below]
        hidden = sorted({name for name in names if name.startswith(".")})
        self._container.account.taken("class", "a hidden directory is a class, as in ImageFolder", hidden)
        return names

    def _names_of_classes(self, most: int, notes: list[str]) -> list[str] | None:
        """Return the class names found in samples; a class without a name gets its id as name."""
        names = self._names_of_ids
        if self._contradictory or len(set(names.values())) < len(names) or most > largest_id(len(names)):
            notes.append("samples give different names to the same class, so classes are named by numbers")
            return None
        known = [names.get(number, str(number)) for number in range(most + 1)]
        return known if len(set(known)) == len(known) else None


def _own_columns(container: Container) -> list[tuple[str, Any]]:
    shape = [("height", "<i8"), ("width", "<i8")] if container.pixels else []
    seal: list[tuple[str, Any]] = [("image seal", _SEAL)] if container.sealed else []
    return [("name end", "<i8"), ("label", LABEL_TYPES[container.label_type]), ("image", _RANGE), *shape, *seal]


def _columns(field: Field) -> list[tuple[str, Any]]:
    if field.is_blob:
        return [(field.name, _RANGE)]
    return [(field.name, DTYPES.get(field.dtype, "<i8")), (f"{field.name} null", "?")]


def _ranges(rows: npt.NDArray[Any]) -> Ranges:
    return Ranges(rows["file"], rows["offset"], rows["size"])


def _seals(rows: npt.NDArray[Any], checksum: Callable[[Buffer], int]) -> Seals:
    return Seals(rows["offset"], rows["size"], rows["checksum"], checksum)


def _distinct(container: Container, names: Names, files: Ints, notes: list[str]) -> Names:
    """Make names unique: if some are equal, put the file's name before each name, or number the equal names."""
    if not repeat(names):
        return names
    if container.units < 2 or not container.units_are_files:
        return numbered(names, notes)
    notes.append("several files have samples of the same name, so each name begins with that of its file")
    stems = [name.rpartition(".")[0] or name for name in container.files]
    if len(set(stems)) < len(stems):  # such as a.tfrecord-00000-of-00002 and a.tfrecord-00001-of-00002
        stems = list(container.files)
    below = Names.of(f"{stems[file]}/{name}" for name, file in zip(names, files.tolist(), strict=True))
    return numbered(below, notes)


def _unknown(names: Sequence[str]) -> str:
    shown = ", ".join(map(printable, names[:5])) + (", …" if len(names) > 5 else "")
    return f"classes that are not in the given class list: {shown}"


def _shown(container: Container, unit: int | None = None) -> str:
    """Return the name that messages show for a part of a container; without a part, for the container."""
    if not container.units_are_files:
        unit = None
    elif unit is None and container.units == 1:
        unit = 0
    file = container.files[unit] if unit is not None and unit < len(container.files) else ""
    return printable(container.root / file)


def _is_json(text: str) -> bool:
    try:
        parsed_json(text)
    except ValueError:
        return False
    return True


_OPEN_FILES = 256


class ForeignFiles:
    """Opens and reads files of other tools, and detects whether these files have changed.

    Can be used by many threads at once, and after a fork.

    Parameters
    ----------
    root : path
    names : sequence of str
        Absolute paths, or paths relative to `root` with forward slashes.
    stamps : (F, 2) int64 array, optional
        The expected size and time of each file; by default, the current values.
    packed : PackedRanges, optional
        Compressed ranges of these files. The ranges are numbered like files, after the last file.

    Attributes
    ----------
    root : Path
    names : sequence of str
    stamps : (F, 2) int64 array
    packed : PackedRanges
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: Sequence[str],
        stamps: Stamps | None = None,
        packed: PackedRanges | None = None,
    ) -> None:
        self.root = Path(root)
        self.names = names
        self.stamps = take_stamps(self.root, Names.of(names)) if stamps is None else stamps
        self.packed = PackedRanges(len(self.stamps)) if packed is None else packed
        self._open: dict[int, PackFile] = {}

    def __len__(self) -> int:
        return len(self.stamps)

    def path(self, number: int) -> str:
        """Return the path of file `number`."""
        return os.path.join(self.root, self.names[number])

    def open(self, number: int) -> PackFile:
        """Open a file, or return it if it is open; CorruptPackError if the file has changed since it was listed."""
        file = self._open.get(number)
        if file is None:
            file = self._opened(number)
            if len(self._open) >= _OPEN_FILES:
                self._open = {}  # without a lock, which a fork could leave locked: at worst a file is opened twice
            self._open[number] = file
        return file

    def _opened(self, number: int) -> PackFile:
        file = PackFile(self.path(number))
        before, now = stamp_in(self.stamps, number), (file.size, file.modified)
        if not same_stamp(before, now):
            file.close()
            raise CorruptPackError(f"changed since it was listed: {what_changed(before, now)}", file.path)
        return file

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` of a file, or of the decompressed content of a compressed range.

        Raises
        ------
        PackError
            For the same reasons as `open`, or if the range ends beyond the file.
        ImageError
            If a compressed range is damaged.
        """
        if number < self.packed.first:
            return self.open(number).read(offset, size)
        return self.packed.read(self.open(self.packed.file(number)), number, offset, size)

    def close(self) -> None:
        """Close the files that are open."""
        for file in list(self._open.values()):
            file.close()
        self._open = {}

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "names": self.names, "stamps": self.stamps, "packed": self.packed, "_open": {}}
