"""What a pack holds, in figures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from packer._fields import Field
from packer._formats import Reader, open_pack
from packer._formats.index import IndexReader
from packer._manifest import TILED
from packer._table import NO_VALUE, Table

__all__ = ["ClassCount", "FieldInfo", "PackInfo", "SideCount", "info"]

_EDGES = [0, 32, 64, 128, 192, 224, 256, 320, 384, 512, 768, 1024, 2048, 4096, 1 << 31]


@dataclass(frozen=True)
class ClassCount:
    """A class, and how many samples it has."""

    name: str
    samples: int


@dataclass(frozen=True)
class SideCount:
    """How many samples have a shorter side of `start` pixels or more, and of fewer than `below`."""

    start: int
    below: int
    samples: int


@dataclass(frozen=True)
class FieldInfo:
    """A field, and what the pack holds of it.

    Attributes
    ----------
    name, kind, dtype, rank, classes, ids, file
        The field's; see `packer._fields.Field`.
    missing : int
        How many samples have no value.
    bytes : int
        Size of all values: of blobs, or in the table.
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


@dataclass(frozen=True)
class PackInfo:
    """What a pack holds.

    Attributes
    ----------
    path, format : str
    parts : int
        How many packs it is joined of; 0 for an ordinary pack.
    schema : int
        The version of the format's specification.
    samples : int
    codec : str
    settings, source, versions : dict
        As in the manifest: how the samples were made, of what, and by which libraries.
    bytes, bytes_of_samples : int
        Size of the pack on the disk, and of the images alone.
    label_type : {"class", "int", "float"}
        What the labels are: ids of classes, or numbers without classes.
    classes : list of ClassCount
        In the order of their ids.
    least_label, most_label : int or float, optional
        The extremes of labels that are numbers without classes; None where there are no such labels.
    unlabeled : int
        Samples without a label.
    shorter_side : list of SideCount
        The samples by the shorter side of their images.
    without_class : int
        Samples whose label is none that the pack may have, which is damage.
    tiled : int
        Samples that are tiled JPEGs.
    findings : dict of str to int
        What the conversion counted, tiles aside.
    skipped : list of dict
        ``{"name", "reason"}`` of every image that was left out.
    account : list of dict, optional
        What became of everything that the source showed: ``{"fate", "what", "why", "count", "names"}``, the losses
        first. None where that was not recorded, as in packs of older versions.
    fields : list of FieldInfo
        What there is beside image and label, in the order of the pack.
    base : str, optional
        The directory below which the files lie that an index lists; None of any other pack.
    files : int
        How many files an index lists.
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


def info(path: str | os.PathLike[str]) -> PackInfo:
    """Say what a pack holds, as `packer info` does. The samples are not read.

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
        If the path is no pack, or the pack is damaged so that this cannot be said.
    """
    with open_pack(path) as reader:
        return _info(reader)


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
    """Return the bytes of a pack, without those of the files of others that an index lists."""
    return reader.place.size([name for name in reader.file_names() if reader.place_of(name) is None])


def _field(field: Field, table: Table) -> FieldInfo:
    values, *others = (table.more[column] for column in field.columns())
    missing = others[0] != 0 if field.kind == "scalar" else values == NO_VALUE
    size = np.maximum(values, 0).sum() if field.is_blob else values.nbytes
    return FieldInfo(**vars(field), missing=int(missing.sum()), bytes=int(size))
