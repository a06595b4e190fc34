"""Formats: how packs lie on disk; one module each, and one row each in `FORMATS`."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from packer._formats.contract import Writer
from packer._formats.reader import Reader
from packer._manifest import Manifest
from packer._storage.place import Place, choose_reading, place_of
from packer._storage.remote.urls import user_path
from packer._storage.safe_open import StrangeFileError
from packer.errors import (
    CorruptPackError,
    DestinationError,
    MissingDependencyError,
    NotAPackError,
    PackError,
    PackNotFoundError,
    printable,
)

__all__ = [
    "FORMATS",
    "INDEX",
    "PARTS",
    "Format",
    "Reader",
    "Writer",
    "check_readable",
    "format_for",
    "open_pack",
    "recognise",
]


@dataclass(frozen=True)
class Format:
    """One row of `FORMATS`; the module is imported when it is first needed.

    Attributes
    ----------
    name : str
    suffixes : tuple of str
        Suffixes of a pack's name; the first is the usual one.
    magic : (int, bytes), optional
        An offset in a file of this format, and its bytes there.
    signs : tuple of str
        Names of files; a directory that has one of them is of this format.
    writer, reader : str
        ``"module:class"``; no writer where packs are not written sample by sample.
    needs : str
        The package to install if the module's imports fail.
    files : tuple of str
        The files in a pack that is a directory, beside those with the data of samples.
    dataset : str
        The name in `packer` of the dataset that a user is told to read it with.
    shards : bool
        Whether samples lie in files of a size that a user may choose.
    parts : bool
        Whether packs may be parts of a larger one.
    """

    name: str
    suffixes: tuple[str, ...]
    writer: str
    reader: str
    magic: tuple[int, bytes] | None = None
    signs: tuple[str, ...] = ()
    needs: str = ""
    files: tuple[str, ...] = ()
    dataset: str = "open_dataset"
    shards: bool = False
    parts: bool = True

    def open_writer(self) -> type[Writer]:
        """Import and return the writer's class."""
        writer: type[Writer] = self._load(self.writer)
        return writer

    def open_reader(self) -> type[Reader]:
        """Import and return the reader's class."""
        reader: type[Reader] = self._load(self.reader)
        return reader

    def begins(self, head: bytes | None) -> bool:
        """Tell whether a file that begins with these bytes may be a pack of this format; None stands for no file."""
        return head is not None and self.magic is not None and head[self.magic[0] :].startswith(self.magic[1])

    def _load(self, target: str) -> Any:
        module, _, name = target.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise MissingDependencyError(f"the format {self.name} needs {self.needs}: {error}") from error


def _foreign(name: str, suffix: str, writer: str, *, shards: bool = True) -> Format:
    """Return the row of packs in the layout of another tool, all of which are read through the index in them."""
    return Format(
        name,
        (suffix,),
        writer,
        "packer._formats.foreign:FramedReader",
        signs=(".packer.index/files.bin",),
        shards=shards,
        parts=False,
    )


FORMATS: dict[str, Format] = {
    row.name: row
    for row in [
        Format(
            "lmdb",
            (".lmdb",),
            "packer._formats.lmdb:LMDBWriter",
            "packer._formats.lmdb:LMDBReader",
            magic=(16, b"\xde\xc0\xef\xbe"),
            dataset="LMDBImageDataset",
        ),
        Format(
            "hdf5",
            (".h5", ".hdf5"),
            "packer._formats.hdf5:HDF5Writer",
            "packer._formats.hdf5:HDF5Reader",
            magic=(0, b"\x89HDF\r\n\x1a\n"),
            needs="h5py (pip install h5py)",
            dataset="HDF5ImageDataset",
        ),
        Format(
            "pth",
            (".pth",),
            "packer._formats.pth:PthWriter",
            "packer._formats.pth:PthReader",
            signs=("table.pth",),
            files=("manifest.json", "table.pth"),
            dataset="PthImageDataset",
            shards=True,
        ),
        _foreign("wds", ".wds", "packer._formats.wds:WebDatasetWriter"),
        _foreign("tfrecord", ".tfrecord", "packer._formats.tfrecord:TFRecordWriter"),
        _foreign("rec", ".rec", "packer._formats.recordio:RecordIOWriter", shards=False),
        _foreign("mds", ".mds", "packer._formats.mds:MDSWriter"),
        _foreign("caffe", ".caffe", "packer.contrib.caffe:CaffeWriter", shards=False),
        _foreign("n5", ".n5", "packer.contrib.n5:N5Writer"),
        _foreign("parquet", ".parquet", "packer._formats.parquet:ParquetWriter"),
    ]
}


PARTS = Format(
    "parts",
    (),
    "",
    "packer._formats.parts:PartsReader",
    signs=("table.bin",),
    files=("manifest.json", "table.bin"),
)
"""Packs with parts, which are of one of `FORMATS`; `packer._conversion.partition` writes them."""

INDEX = Format(
    "index",
    (".index",),
    "",
    "packer._formats.index:IndexReader",
    signs=("files.bin", ".packer.index/files.bin"),
    files=("manifest.json", "table.bin", "files.bin"),
)
"""Indexes of files that stay where they are, and packs in the layouts of other tools, which have an index in them."""

_HEAD = 64  # bytes
_DIRECTORIES = (*(row for row in FORMATS.values() if row.files), INDEX, PARTS)


def format_for(path: str | os.PathLike[str], advice: str = "Change the name.") -> Format:
    """Return the format that a pack's name asks for; DestinationError, with `advice`, if there is none."""
    path = user_path(path)
    suffix = path.suffix.lower()
    for row in FORMATS.values():
        if suffix in row.suffixes:
            return row
    if suffix in INDEX.suffixes:
        raise DestinationError(f"{printable(path)}: an index holds no images. Make one: `packer index SRC DST`")
    known = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    raise DestinationError(
        f"{printable(path)}: the suffix decides the format, and "
        f"{f'{suffix} is not one of' if suffix else 'this name has none of'} {known}. "
        f"{advice}"
    )


def recognise(path: str | os.PathLike[str] | Place) -> Format:
    """Return the format of the pack at a path or a URL, by its content.

    Raises
    ------
    PackNotFoundError
        If there is nothing.
    NotAPackError
        If there is something else than a pack.
    PackError
        If the system does not let it be read.
    """
    place = place_of(path)
    rows = (*FORMATS.values(), INDEX, PARTS)  # an index has the files of a pack with parts, and more
    head = _head(place)
    if (row := next((row for row in rows if row.begins(head)), None)) is not None:
        return row
    held = place.holding({sign for row in rows for sign in row.signs})  # also where a server shows a page for it
    if (row := next((row for row in rows if not held.isdisjoint(row.signs)), None)) is not None:
        return row
    if head is None and not place.is_directory():
        raise PackNotFoundError(f"{printable(place.given)}: there is no such object, and no pack below that name.")
    known, given = ", ".join(FORMATS), printable(place.given)
    advice = f"`packer index {given} NAME.index`, or converted"
    if place.remote:
        advice = "by an index that is made where the file is on a disk; then `packer index NAME.index --base URL`"
    reason = (
        f"not a pack of any format that this packer reads ({known}), or damaged at its beginning. A file of "
        f"another tool with images in it is read in place, {advice}"
    )
    raise NotAPackError(_what_it_is(place) if head is None else reason, place.given)


def _what_it_is(place: Place) -> str:
    """Return what a directory that is no pack seems to be, and what to do with it."""
    name = os.path.join(place.given, "").rstrip("/" + os.sep)
    try:
        held = place.names()
    except OSError as error:
        raise PackError(f"{printable(place.given)}: cannot be read: {error.strerror}") from error
    if name.endswith(FORMATS["pth"].suffixes) or any(file in held for row in _DIRECTORIES for file in row.files):
        missing = " or ".join(row.files[-1] for row in _DIRECTORIES)
        return f"a directory without {missing}: a pack that was copied in part, or damaged"
    name = printable(name)
    return (
        f"a directory that is not a pack. If it has images in it: packer convert {name} {name}.lmdb, or to leave them "
        f"where they are: packer index {name} {name}.index"
    )


def _head(place: Place) -> bytes | None:
    try:
        return place.head(_HEAD)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PackNotFoundError(f"{printable(place.given)}: {error.strerror}.{place.why_missing()}") from None
    except StrangeFileError as error:
        raise NotAPackError(str(error.strerror), place.given) from error
    except OSError as error:
        raise PackError(f"{printable(place.given)}: cannot be read: {error.strerror}") from error


def open_pack(
    path: str | os.PathLike[str] | Place,
    *,
    check: str = "always",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    timeout: float | None = None,
) -> Reader:
    """Open a pack of any format for reading. See `Reader`; ``~`` is the user's home in `path`.

    Parameters
    ----------
    path : path or URL
        The pack.
    check : {"always", "never"}
        The same as `Reader` takes.
    cache_dir, cache_size, timeout
        Settings for a pack at a URL; see `open_dataset`.
    """
    choose_reading([path], cache_dir, cache_size, timeout)
    place = path if isinstance(path, Place) else place_of(os.path.expanduser(path))
    row = recognise(place)
    reader = row.open_reader()(place, check=check)
    format = reader.manifest.format
    known = {**FORMATS, INDEX.name: INDEX}
    if format not in known or (row is not PARTS and known[format].reader != row.reader):
        reader.close()
        raise CorruptPackError(
            f"the manifest says that the format is {format!r}, and there is a pack of {row.name}", place.given
        )
    return reader


def check_readable(path: str | os.PathLike[str], manifest: Manifest) -> None:
    """Open what was written as a reader does, and read its ends, before it gets its name.

    Raises
    ------
    PackError
        If it cannot be read, or has another manifest than the one that was written.
    """
    with open_pack(path) as reader:
        if reader.manifest != manifest:
            raise CorruptPackError("what was written reads back differently; the disk or the memory is faulty", path)
        for index in {0, len(reader) // 2, len(reader) - 1} if len(reader) else ():
            reader.read(index)
