"""An index of a source: where its images and the values of its fields lie, and what a table says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import __version__
from packer._fields import Stored
from packer._formats.index import as_stored, base_from, write_index
from packer._manifest import Manifest
from packer._sources.base import Source
from packer._sources.pack import PackSource
from packer._sources.places import Places
from packer._sources.survey import Surveyed, survey
from packer._storage.ahead import in_order
from packer._storage.spool import Spool, TableBuilder
from packer._table import Buffer, Names, Table, column_types, decode_name
from packer.errors import ImageError, OptionError, SourceError, printable

__all__ = ["build_index", "none_readable"]

_BLOCK, _SMALL_BLOCK = 1024, 64  # images; where values are copied, which wait in memory
_PIECE = 1 << 24  # bytes

ProgressCallback = Callable[[int, int], None]


def build_index(
    source: Source,
    directory: Path,
    destination: Path,
    *,
    checksums: bool = True,
    exif: str = "ignore",
    on_error: str = "fail",
    keys: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Write the index of a source into an empty directory, and return its manifest once all is on the disk.

    Parameters
    ----------
    source : Source
        Files, or samples of a container.
    directory : Path
    destination : Path
        Where the directory will be, from which relative paths are counted.
    checksums : bool
        Whether each sample is read, and its checksum kept.
    exif : {"ignore", "apply"}
        Whether images are shown as their EXIF orientation says.
    on_error : {"fail", "skip", "keep"}
        What to do with an image that cannot be read: stop; leave it out and list it in the manifest; or take it with a
        size of 1 x 1, so that whoever reads it is told.
    keys : mapping, optional
        With which keys a container was opened, which the manifest's settings keep.
    progress : callable, optional
        Called with how many images were looked at, and how many there are.

    Raises
    ------
    ImageError
        With ``on_error="fail"``, for the first image that cannot be read.
    OptionError
        If the source is a pack, or takes annotations that are computed.
    SourceError
        If the disk fails, not one image can be read, or two samples share bytes.
    """
    if isinstance(source, PackSource):
        raise OptionError(f"{printable(source.root)}: is a pack already, which needs no index")
    places = Places.of(source)
    own = Spool()
    for start in range(0, len(places.copied), _PIECE):
        own.append(places.copied[start : start + _PIECE].tobytes())
    types = column_types(source.label_type, source.fields, apart=True)
    builder = TableBuilder(types=types)
    rows = _Rows(source, places, builder, own)
    size = _BLOCK if places.holds_all(source.fields) else _SMALL_BLOCK
    blocks = (range(start, min(start + size, len(source))) for start in range(0, len(source), size))
    for found in in_order(lambda block: survey(source, places, block, exif, checksums=checksums), blocks):
        if found.skipped and on_error == "fail":
            index, reason = found.skipped[0]
            error = ImageError(reason, source.names[index])
            error.index = index
            raise error
        if on_error == "keep":
            found.keep_all()
        rows.add(found)
        if progress is not None:
            progress(found.rows.stop, len(source))
    if not len(builder):
        raise none_readable(source.root, len(source), rows.skipped)
    table = builder.build()
    _require_apart(table, places)
    account = source.complete_account()
    manifest = Manifest(
        "index",
        len(builder),
        source.classes,
        source.label_type,
        source.fields,
        "keep" if places.pixels is None else "raw",
        {"codec": "keep", "exif": exif, **({"keys": dict(keys)} if keys else {})},
        list(map(dict, source.about)),
        source.describe(),
        [*map(dict, source.doubts), *rows.skipped],
        dict(sorted(rows.findings.items())),
        {"packer": __version__},
        schema=2,
        account=None if account is None else account.to_json(),
    )
    return write_index(
        directory,
        manifest,
        table,
        places.files,
        base=base_from(places.files.root, destination),
        checksums=checksums,
        pixels=places.pixels,
        data=_pieces(own.array(np.uint8)),
    )


def _require_apart(table: Table, places: Places) -> None:
    """Refuse samples that share bytes, which a dictionary or a forged list may have: in a pack they are damage."""
    for index in as_stored(table, places.pixels).overlapping():
        name = printable(decode_name(table.row(index).name or b""))
        raise SourceError(
            f"{printable(places.files.root)}: the bytes of {name} are another sample's, too, and an index lists none "
            "twice. Convert it, which writes them for each"
        )


def none_readable(root: Path, count: int, skipped: Sequence[Mapping[str, str]]) -> SourceError:
    """Return the error for a source of whose images each was left out, with the first reason."""
    first = f", such as {printable(skipped[0]['name'])}: {printable(skipped[0]['reason'])}" if skipped else ""
    return SourceError(f"{printable(root)}: not one of its {count} images can be read{first}")


class _Rows:
    """Makes rows of the table of what was found."""

    def __init__(self, source: Source, places: Places, builder: TableBuilder, own: Spool) -> None:
        self._source, self._places, self._builder, self._own = source, places, builder, own
        self._end = len(places.copied)
        self.skipped: list[dict[str, str]] = []
        self.findings: Counter[str] = Counter()

    def add(self, found: Surveyed) -> None:
        """Add the rows of a block of images."""
        source, places, kept = self._source, self._places, found.kept
        part = slice(found.rows.start, found.rows.stop)
        self.skipped += [{"name": source.names[index], "reason": reason} for index, reason in found.skipped]
        self.findings.update(found.findings)
        pixels = places.pixels is not None
        columns = {
            "label": source.labels[part],
            "height": found.height,
            "width": found.width,
            "offset": places.offsets(places.images, part),
            "size": found.height * found.width * 3 if pixels else places.images.size[part],
            "crc32c": found.crc32c,
            **self._of_fields(found, part),
        }
        names = source.names.between(part.start, part.stop)
        if not kept.all():
            columns = {name: column[kept] for name, column in columns.items()}
            names = Names.of(names[place] for place in np.flatnonzero(kept).tolist())
        self._builder.extend(columns, names)

    def _of_fields(self, found: Surveyed, part: slice) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the fields; of each blob that lies nowhere, a copy is added to the index's own data."""
        columns: dict[str, npt.NDArray[Any]] = {}
        rows, copied = iter(zip(*found.more, strict=True)), iter(zip(*found.values, strict=True))
        for field in self._source.fields:
            columns |= {name: np.array(next(rows), dtype) for name, dtype in field.columns().items()}
            if field.is_blob:
                ranges = self._places.ranges.get(field.name)
                offsets = (
                    np.array([*map(self._copy, next(copied))]) if ranges is None else self._places.offsets(ranges, part)
                )
                columns[f"field.{field.name}.offset"] = offsets
        return columns

    def _copy(self, stored: Stored) -> int:
        """Add a value to the index's own data; return where it begins."""
        begin = int(self._places.starts[-1]) + self._end
        if stored is not None:
            assert not isinstance(stored, (int, float))
            self._own.append(bytes(stored))
            self._end += len(stored)
        return begin


def _pieces(data: npt.NDArray[np.uint8]) -> Iterator[Buffer]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE].tobytes()
