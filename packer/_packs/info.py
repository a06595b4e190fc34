"""Figures about a pack, and its digest: packs with equal digests yield the same samples in the same order.

The digest does not depend on formats, parts, settings or versions, so it compares conversions that were made in
different ways. It is the SHA-256 of a sequence of hashes, each a SHA-256 too: first the hash of the classes, as `Names`
stores them (`ends` as int64, then `blob`), then the hashes of the samples in their order. The hash of a sample covers
five int64 (length of the name, label, height, width, length of the data), the name and the data. Numbers are
little-endian. If labels are numbers and not class ids, the name of their type, "int" or "float", precedes all hashes,
and a float label is hashed as a float64 in place of the int64.

If there are fields, the hash of their descriptions follows the hash of the classes. It covers a JSON array with each
field's entry in the manifest, without the member `file`. The JSON is ASCII without spaces, and members of objects are
sorted by name. After the data, the hash of a sample then also covers, for each field, the length of the value in bytes,
as int64, and the value. A number has the form that it has in its column. A missing value is only the int64 -1.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from packer._conversion import words
from packer._display import Bar, Block, Displayable, Heading, TextTable, count, counted, here
from packer._fields import KINDS, NO_VALUE, Field
from packer._formats import Reader, open_pack
from packer._formats.index import IndexReader
from packer._manifest import TILED
from packer._packs.walk import blobs_of, over_samples
from packer._storage.progress import shown_progress
from packer._storage.system import in_units, require_count
from packer._table import Buffer, Names, Table
from packer.errors import spelled

_NAMED = 5  # classes of a field
_MOST_CLASSES = 12  # up to this number, all classes are listed; otherwise the first and the last ones
_ALL_CLASSES, _ALL_SKIPPED = "⟨classes¦--classes⟩", "⟨skipped¦--json⟩"
"""The attributes that list all classes and all skipped images, and the command's options that do the same."""

_EDGES = [0, 32, 64, 128, 192, 224, 256, 320, 384, 512, 768, 1024, 2048, 4096, 1 << 31]


def info(path: str | os.PathLike[str]) -> PackInfo:
    """Return the figures of a pack, as `packer info` does. The samples are not read.

    Parameters
    ----------
    path : path
        The pack.

    Returns
    -------
    PackInfo

    Raises
    ------
    PackError
        If the path is not a pack, or the pack is too damaged to read its figures.
    """
    with open_pack(path) as reader:
        return _info(reader)


@dataclass(frozen=True, repr=False)
class PackInfo(Displayable):
    """The figures of a pack.

    Attributes
    ----------
    path, format : str
    parts : int
        The number of parts of a joined pack; 0 for an ordinary pack.
    schema : int
        The version of the format's specification.
    samples : int
    codec : str
    settings, source, versions : dict
        Members of the manifest: the settings and the source of the samples, and the versions of the libraries that
        encoded the samples.
    bytes, bytes_of_samples : int
        The size of the pack on the disk, and the size of the images alone, in bytes.
    label_type : {"class", "int", "float"}
        Whether the labels are class ids, or numbers without classes.
    classes : list of ClassCount
        The classes and their counts, in the order of their ids.
    least_label, most_label : int or float, optional
        The lowest and the highest label, if labels are numbers without classes; otherwise None.
    unlabeled : int
        Number of samples without a label.
    shorter_side : list of SideCount
        Numbers of samples by the shorter side of their images.
    without_class : int
        Number of samples whose label is impossible in this pack; above 0 only if the pack is damaged.
    tiled : int
        Number of samples that are tiled JPEGs.
    findings : dict of str to int
        The number of images with each finding (an unusual property, such as "CMYK") that the conversion recorded,
        without findings about tiles.
    skipped : list of dict
        ``{"name", "reason"}`` of every image that was left out.
    account : list of dict, optional
        What became of the files, rows and other entries of the source: for each group of entries with the same fate, a
        dict ``{"fate", "what", "why", "count", "names"}``, losses first. None if the pack was made by an older version
        of packer, which did not record this.
    fields : list of FieldInfo
        The fields other than image and label, in the order of the pack.
    base : str, optional
        The directory of the files that an index lists; None for other packs.
    files : int
        The number of files that an index lists.
    checksums : bool
        Whether the samples have checksums.
    """

    path: str
    format: str
    parts: int
    schema: int
    samples: int
    codec: str
    settings: dict[str, Any]
    source: dict[str, Any]
    versions: dict[str, str]
    bytes: int
    bytes_of_samples: int
    label_type: str
    classes: list[ClassCount]
    least_label: int | float | None
    most_label: int | float | None
    unlabeled: int
    shorter_side: list[SideCount]
    without_class: int
    tiled: int
    findings: dict[str, int]
    skipped: list[dict[str, str]]
    fields: list[FieldInfo]
    base: str | None = None
    files: int = 0
    checksums: bool = True
    account: list[dict[str, Any]] | None = None

    def _blocks(self) -> Iterable[Block]:
        return description(self)


@dataclass(frozen=True)
class ClassCount:
    """A class, and the number of its samples."""

    name: str
    samples: int


@dataclass(frozen=True)
class SideCount:
    """The number of samples whose shorter side has `start` pixels or more, and fewer than `below`."""

    start: int
    below: int
    samples: int


@dataclass(frozen=True)
class FieldInfo:
    """A field, and figures about its values.

    Attributes
    ----------
    name, kind, dtype, rank, classes, ids, file
        The properties of the field; see `packer._fields.Field`.
    missing : int
        Number of samples that have no value.
    bytes : int
        The size of all values in bytes: of the blobs, or of the numbers in the table.
    """

    name: str
    kind: str
    dtype: str
    rank: int
    classes: tuple[str, ...]
    ids: tuple[int, ...]
    file: str
    missing: int
    bytes: int


def _info(reader: Reader) -> PackInfo:
    manifest, table = reader.manifest, reader.table
    fitting = table.label[manifest.fits(table.label)]
    ids = fitting[fitting >= 0].astype(np.int64) if manifest.label_type == "class" else np.empty(0, np.int64)
    counts = np.bincount(ids, minlength=len(manifest.classes)).tolist()
    numbers = fitting if manifest.label_type != "class" and len(fitting) else None
    histogram = np.histogram(np.minimum(table.height, table.width), _EDGES)[0].tolist()
    return PackInfo(
        path=reader.path,
        format=manifest.format,
        parts=len(manifest.parts),
        schema=manifest.schema,
        samples=manifest.count,
        codec=manifest.codec,
        settings=manifest.settings,
        source=manifest.source,
        versions=manifest.versions,
        bytes=_own_size(reader),
        bytes_of_samples=int(reader.stored().size.sum()),
        label_type=manifest.label_type,
        classes=[ClassCount(name, number) for name, number in zip(manifest.classes, counts, strict=True)],
        least_label=None if numbers is None else numbers.min().item(),
        most_label=None if numbers is None else numbers.max().item(),
        unlabeled=len(fitting) - len(ids) if manifest.label_type == "class" else 0,
        shorter_side=[
            SideCount(start, below, number)
            for start, below, number in zip(_EDGES, _EDGES[1:], histogram, strict=False)
            if number
        ],
        without_class=len(table) - len(fitting),
        tiled=manifest.findings.get(TILED, 0),
        findings={name: number for name, number in manifest.findings.items() if name != TILED},
        skipped=manifest.skipped,
        fields=[_field(one, table) for one in manifest.fields],
        base=reader.base if isinstance(reader, IndexReader) and reader.in_place else None,
        files=len(reader.files()) if isinstance(reader, IndexReader) else 0,
        checksums=reader.has_checksums,
        account=manifest.account,
    )


def _own_size(reader: Reader) -> int:
    """Return the size of a pack in bytes, without the files of other tools that an index lists."""
    return reader.place.size([name for name in reader.file_names() if reader.place_of(name) is None])


def _field(field: Field, table: Table) -> FieldInfo:
    columns = [table.more[column] for column in field.columns()]
    missing, values = KINDS[field.kind].missing(columns), columns[0]
    size = np.maximum(values, 0).sum() if field.is_blob else values.nbytes
    return FieldInfo(**vars(field), missing=int(missing.sum()), bytes=int(size))


_NUMBERS, _LENGTH = struct.Struct("<qqqqq"), struct.Struct("<q")


def digest(
    path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> str:
    """Return the digest of a pack, as 64 hexadecimal digits, after checking the checksum of every sample.

    Parameters
    ----------
    path : path
    workers : int, optional
        The number of threads; by default the number of CPUs that affinity, cgroup and SLURM allow.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the number of samples read and their total.

    Raises
    ------
    TypeError, ValueError
        If `workers` is not a whole number of 1 or more.
    PackError
        If the pack or one of its samples is damaged.
    """
    progress = shown_progress(progress, path)
    require_count("workers", workers)
    with open_pack(path) as reader:
        classes = Names.of(reader.manifest.classes)
        whole = hashlib.sha256()
        if reader.manifest.label_type != "class":  # otherwise an id and an equal number would have the same hash
            whole.update(reader.manifest.label_type.encode("ascii"))
        whole.update(hashlib.sha256(classes.ends.astype("<i8").tobytes() + classes.blob.tobytes()).digest())
        if reader.fields:
            whole.update(hashlib.sha256(_described(reader.manifest.fields)).digest())
        hashing, before = partial(_hashes, reader), reader.ahead_whole
        for hashes in over_samples(hashing, len(reader), workers=workers, progress=progress, before=before):
            whole.update(hashes)
    return whole.hexdigest()


def _described(fields: Sequence[Field]) -> bytes:
    """Return the descriptions of fields for the digest, without the templates of their files."""
    members = [replace(field, file="").to_json() for field in fields]
    return json.dumps(members, separators=(",", ":"), sort_keys=True).encode("ascii")


def _hashes(reader: Reader, indices: range) -> bytes:
    table, names = reader.table, reader.names
    hashes = []
    values = [_values(reader, field, indices) for field in reader.fields.values()]
    for index in indices:
        data, name = reader.read(index), names.encoded(index)
        label, height, width = int(table.label[index].view(np.int64)), int(table.height[index]), int(table.width[index])
        sample = hashlib.sha256(_NUMBERS.pack(len(name), label, height, width, len(data)))
        sample.update(name)
        sample.update(data)
        for field in values:
            value = next(field)
            sample.update(_LENGTH.pack(NO_VALUE if value is None else len(value)))
            sample.update(b"" if value is None else value)
        hashes.append(sample.digest())
    return b"".join(hashes)


def _values(reader: Reader, field: Field, indices: range) -> Iterator[Buffer | None]:
    """Yield the bytes of a field's value for each sample; None if it is missing."""
    if not field.is_blob:
        values, present = reader.column(field.name)
        for index in indices:
            yield values[index].tobytes() if present[index] else None
        return
    yield from blobs_of(reader, indices, field.name)


def description(pack: PackInfo, *, all_classes: bool = False) -> Iterator[Block]:
    """Yield the output of `packer info`: settings, sizes, classes with their counts, fields, source, and findings."""
    yield f"{here(pack.path)}: {pack.format} {_kind(pack)}, schema {pack.schema}"
    yield from _sizes(pack)
    yield from (f"  {line}" for line in words.settings_in_words(pack.settings, pack.codec))
    if pack.tiled:
        yield f"  {pack.tiled / max(pack.samples, 1):.1%} of the samples are tiled JPEGs"
    yield "  made by " + ", ".join(f"{name} {version}" for name, version in pack.versions.items())
    yield ""
    yield Heading("shorter side")
    yield _sides(pack)
    yield ""
    yield from _labels(pack, all_classes)
    if pack.fields:
        yield ""
        yield Heading("fields")
        yield _fields(pack.fields, all_classes)
    if pack.without_class:
        of_none = "whose label is not a class" if pack.label_type == "class" else "whose label is not a number"
        yield f"  {counted(pack.without_class, 'sample')} {of_none}: `packer verify` names them"
    yield ""
    yield Heading("source")
    yield from (f"  {line}" for line in words.account(pack.account, pack.unlabeled))
    yield from _findings(pack)


def _kind(pack: PackInfo) -> str:
    parts = f" of {counted(pack.parts, 'part')}" if pack.parts else ""
    if pack.format != "index":
        return f"pack{parts}"
    return f"{'of files in their original place' if pack.base else 'of its own files'}{parts}"


def _sizes(pack: PackInfo) -> Iterator[str]:
    size = pack.bytes if pack.base is None else pack.bytes_of_samples
    mean = in_units(pack.bytes_of_samples / max(pack.samples, 1))
    labels = words.labels(pack.label_type, len(pack.classes))
    yield f"  {counted(pack.samples, 'sample')}, {labels}, {in_units(size)} ({mean} a sample)"
    if pack.base is not None:
        checks = "with" if pack.checksums else "without"
        files = f"in {counted(pack.files, 'file')} below {pack.base}"
        yield f"  {files}; {in_units(pack.bytes)} of index {checks} checksums"


def _sides(pack: PackInfo) -> TextTable:
    most = max((row.samples for row in pack.shorter_side), default=1)
    rows = [
        (
            f"{row.start} to {row.below - 1}" if row.below < 1 << 31 else f"{row.start} or more",
            Bar(row.samples, most),
            count(row.samples),
        )
        for row in pack.shorter_side
    ]
    return TextTable(rows, (">14", "30", ""))


def _labels(pack: PackInfo, all_classes: bool) -> Iterator[Block]:
    if pack.label_type != "class":
        between = "" if pack.least_label is None else f", {pack.least_label} to {pack.most_label}"
        yield f"  labels are numbers without classes ({pack.label_type}){between}"
        return
    yield Heading("classes")
    yield _classes(pack.classes, all_classes)
    if pack.unlabeled:
        yield f"  {counted(pack.unlabeled, 'sample')} without a label (-1)"


def _classes(classes: Sequence[ClassCount], all_classes: bool) -> TextTable:
    rows = [(str(label), one.name, count(one.samples)) for label, one in enumerate(classes)]
    if not all_classes and len(rows) > _MOST_CLASSES:
        rows[5:-3] = [("…", f"{len(rows) - 8} more ({spelled(_ALL_CLASSES)} lists all)", "")]
    return TextTable(rows, (">14", "", ""))


def _fields(fields: Sequence[FieldInfo], all_classes: bool) -> TextTable:
    width = max(14, *(len(field.name) for field in fields))
    return TextTable([(field.name, _field_in_words(field, all_classes)) for field in fields], (f">{width}", ""))


def _field_in_words(field: FieldInfo, all_classes: bool) -> str:
    what = [" ".join(filter(None, [field.dtype, field.kind]))]
    if field.kind == "array":
        what.append(f"{field.rank} axes" if field.rank != 1 else "1 axis")
    if field.classes:
        names = field.classes if all_classes else field.classes[:_NAMED]
        more = ", …" if len(names) < len(field.classes) else ""
        what.append(f"{counted(len(field.classes), 'class')} ({', '.join(names)}{more})")
    if field.file:
        what.append(f"of {field.file}")
    what.append(in_units(field.bytes))
    if field.missing:
        what.append(f"{count(field.missing)} missing")
    return ", ".join(what)


def _findings(pack: PackInfo) -> Iterator[Block]:
    if pack.findings or pack.skipped:
        yield ""
        yield Heading("findings")
    yield from (f"  {line}" for line in words.findings(pack.findings, pack.codec, pack.settings))
    yield from (f"  left out: {entry['name']}: {entry['reason']}" for entry in pack.skipped[:10])
    if len(pack.skipped) > 10:
        yield f"  … and {len(pack.skipped) - 10} more left out ({spelled(_ALL_SKIPPED)} lists all)"
