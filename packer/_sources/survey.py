"""What a table says of images, found from their bytes: height and width, and the checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packer._fields import Stored
from packer._images.probe import inspect
from packer._sources.base import Source
from packer._sources.container import ContainerSource
from packer._sources.readbuffer import ReadBuffer
from packer._table import Buffer, checksum, encode_name, field_columns
from packer.errors import ImageError

__all__ = ["Surveyed", "survey"]


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a row of the table says of an image beside its name, its label and where it lies.

    Attributes
    ----------
    height, width : int
        Pixels.
    crc32c : int
        0 without checksums.
    values : tuple of Stored
        Of each field.
    more : tuple of numbers
        The columns of the fields.
    reason : str
        Why the image cannot be used; empty where it can.
    findings : tuple of str
    """

    height: int = 0
    width: int = 0
    crc32c: int = 0
    values: tuple[Stored, ...] = ()
    more: tuple[int | float, ...] = ()
    reason: str = ""
    findings: tuple[str, ...] = ()


def survey(source: Source, rows: range, exif: str, *, checksums: bool) -> Iterator[Surveyed]:
    """Look at images of a source.

    Parameters
    ----------
    source : Source
    rows : range
    exif : {"ignore", "apply"}
        Whether an EXIF orientation has a say in height and width.
    checksums : bool
        Whether checksums are taken.

    Raises
    ------
    SourceError
        If the disk fails.
    """
    buffer = ReadBuffer()
    for index in rows:
        buffer.reset()
        name = source.names[index]
        try:
            data, height, width, findings = _looked_at(source, index, buffer, exif)
            values = source.values(index, buffer)
        except ImageError as error:
            yield Surveyed(reason=error.reason)
            continue
        encoded, label = encode_name(name), source.labels[index].item()
        crc32c = checksum(data, label, height, width, encoded) if checksums else 0
        yield Surveyed(height, width, crc32c, values, field_columns(source.fields, values, encoded), "", findings)


def _looked_at(source: Source, index: int, buffer: ReadBuffer, exif: str) -> tuple[Buffer, int, int, tuple[str, ...]]:
    """Return an image's data, its height and width, and what is unusual about it."""
    if isinstance(source, ContainerSource) and source.is_pixels(index):
        pixels = source.read_pixels(index)
        return pixels.tobytes(), pixels.shape[0], pixels.shape[1], ()
    data, _ = source.read(index, buffer)
    info = inspect(data)
    return data, *info.size_shown(exif), info.findings
