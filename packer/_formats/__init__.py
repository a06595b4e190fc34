"""The formats: one module each, and one row each in `FORMATS`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer._formats.contract import Writer
from packer._formats.reader import Reader
from packer._manifest import Manifest
from packer._storage.opening import StrangeFileError, open_regular
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
        What a pack's name ends in; the first is the usual one.
    recognise : callable
        Takes a path and the file's first 64 bytes (none of a directory); whether a pack of this format may be there.
    writer, reader : str
        ``"module:class"``; no writer where packs are not written sample by sample.
    needs : str
        What to install where the module's imports fail.
    files : tuple of str
        The files in a pack that is a directory, beside those with the data of samples.
    dataset : str
        The name in `packer` of the dataset that a person is told to read it with.
    shards : bool
        Whether samples lie in files of a size that a person may choose.
    parts : bool
        Whether packs may be parts of a larger one.
    """

    name: str
    suffixes: tuple[str, ...]
    recognise: Callable[[str, bytes], bool]
    writer: str
    reader: str
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
        lambda path, head: os.path.isfile(os.path.join(path, ".packer.index", "files.bin")),
        f"packer._formats.{writer}",
        "packer._formats.framing:FramedReader",
        shards=shards,
        parts=False,
    )


FORMATS: dict[str, Format] = {
    row.name: row
    for row in [
        Format(
            "lmdb",
            (".lmdb",),
            lambda path, head: head[16:20] == b"\xde\xc0\xef\xbe",
            "packer._formats.lmdb:LMDBWriter",
            "packer._formats.lmdb:LMDBReader",
            dataset="LMDBImageDataset",
        ),
        Format(
            "hdf5",
            (".h5", ".hdf5"),
            lambda path, head: head.startswith(b"\x89HDF\r\n\x1a\n"),
            "packer._formats.hdf5:HDF5Writer",
            "packer._formats.hdf5:HDF5Reader",
            needs="h5py (pip install h5py)",
            dataset="HDF5ImageDataset",
        ),
        Format(
            "pth",
            (".pth",),
            lambda path, head: os.path.isfile(os.path.join(path, "table.pth")),
            "packer._formats.pth:PthWriter",
            "packer._formats.pth:PthReader",
            files=("manifest.json", "table.pth"),
            dataset="PthImageDataset",
            shards=True,
        ),
        _foreign("wds", ".wds", "wds:WebDatasetWriter"),
        _foreign("tfrecord", ".tfrecord", "tfrecord:TFRecordWriter"),
        _foreign("rec", ".rec", "recordio:RecordIOWriter", shards=False),
        _foreign("mds", ".mds", "mds:MDSWriter"),
        _foreign("caffe", ".caffe", "caffe:CaffeWriter", shards=False),
        _foreign("n5", ".n5", "n5:N5Writer"),
        _foreign("parquet", ".parquet", "parquet:ParquetWriter"),
    ]
}


PARTS = Format(
    "parts",
    (),
    lambda path, head: os.path.isfile(os.path.join(path, "table.bin")),
    "",
    "packer._formats.joined:PartsReader",
    files=("manifest.json", "table.bin"),
)
"""Packs with parts, which are of one of `FORMATS`; `packer._conversion.job` writes them."""

INDEX = Format(
    "index",
    (".index",),
    lambda path, head: any(
        os.path.isfile(os.path.join(path, *inner, "files.bin")) for inner in ((), (".packer.index",))
    ),
    "",
    "packer._formats.index:IndexReader",
    files=("manifest.json", "table.bin", "files.bin"),
)
"""Indexes of files that stay where they are, and packs in the layouts of other tools, which have an index in them."""

_DIRECTORIES = (*(row for row in FORMATS.values() if row.files), INDEX, PARTS)


def format_for(path: str | os.PathLike[str], advice: str = "Change the name.") -> Format:
    """Return the format that a pack's name asks for; DestinationError, with `advice`, where there is none."""
    suffix = Path(path).suffix.lower()
    for row in FORMATS.values():
        if suffix in row.suffixes:
            return row
    if suffix in INDEX.suffixes:
        raise DestinationError(
            f"{printable(os.fspath(path))}: an index holds no images. Make one: `packer index SRC DST`"
        )
    known = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    raise DestinationError(
        f"{printable(os.fspath(path))}: the suffix decides the format, and "
        f"{f'{suffix} is not one of' if suffix else 'this name has none of'} {known}. "
        f"{advice}"
    )


def recognise(path: str | os.PathLike[str]) -> Format:
    """Return the format of the pack at `path`, by its content.

    Raises
    ------
    PackNotFoundError
        If there is nothing.
    NotAPackError
        If there is something else than a pack.
    PackError
        If the system does not let it be read.
    """
    path = os.fspath(path)
    is_directory = os.path.isdir(path)
    head = b"" if is_directory else _head(path)
    for row in (*FORMATS.values(), INDEX, PARTS):  # an index has the files of a pack with parts, and more
        if row.recognise(path, head):
            return row
    known = ", ".join(FORMATS)
    reason = (
        f"not a pack of any format that this packer reads ({known}), or damaged at its beginning. A file of "
        f"another tool with images in it is read in place, `packer index {printable(path)} NAME.index`, or converted"
    )
    raise NotAPackError(_what_it_is(path) if is_directory else reason, path)


def _what_it_is(directory: str) -> str:
    """Say what a directory is that is no pack, and what to do with it."""
    name = os.path.join(directory, "").rstrip(os.sep)
    try:
        held = os.listdir(directory)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if name.endswith(FORMATS["pth"].suffixes) or any(file in held for row in _DIRECTORIES for file in row.files):
        missing = " or ".join(row.files[-1] for row in _DIRECTORIES)
        return f"a directory without {missing}: a pack that was copied in part, or damaged"
    name = printable(name)
    return (
        f"a directory that is not a pack. If it has images in it: packer convert {name} {name}.lmdb, or to leave them "
        f"where they are: packer index {name} {name}.index"
    )


def _head(path: str) -> bytes:
    try:
        fd = open_regular(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        unfinished = (
            " Its conversion is not finished: run the same command again." if os.path.isdir(path + ".partial") else ""
        )
        raise PackNotFoundError(f"{printable(path)}: {error.strerror}.{unfinished}") from error
    except StrangeFileError as error:
        raise NotAPackError(str(error.strerror), path) from error
    except OSError as error:
        raise PackError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    with open(fd, "rb", buffering=0) as file:
        return file.read(64)


def open_pack(path: str | os.PathLike[str], *, check: str = "always") -> Reader:
    """Open a pack of any format for reading. See `Reader`; ``~`` is the user's home in `path`."""
    path = os.path.expanduser(path)
    row = recognise(path)
    reader = row.open_reader()(path, check=check)
    format = reader.manifest.format
    known = {**FORMATS, INDEX.name: INDEX}
    if format not in known or (row is not PARTS and known[format].reader != row.reader):
        reader.close()
        raise CorruptPackError(
            f"the manifest says that the format is {format!r}, and there is a pack of {row.name}", path
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
