"""Containers and formats that other packages give packer, and the names that these are written with.

A package names them in its metadata, as packages do that give numcodecs and zarr codecs::

    [project.entry-points."packer.containers"]
    toy = "toypack.descriptors:CONTAINER"

    [project.entry-points."packer.formats"]
    toyfile = "toypack.descriptors:FORMAT"

Each entry point leads to a descriptor, which is small: it tells how files are recognised, and where the class is. The
class is imported when a file fits. packer's own containers and formats have the same descriptors, in a table, so that
they are there where metadata are old or missing.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from packer.errors import MissingDependencyError, warn

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from packer._containers.contract import (
        Container as Container,
        Entry as Entry,
        Named as Named,
        Packed as Packed,
        Piece as Piece,
        PixelLayout as PixelLayout,
    )
    from packer._fields import Field as Field
    from packer._formats.contract import (
        NOTHING as NOTHING,
        Contents as Contents,
        Frame as Frame,
        Locations as Locations,
        PackAccess as PackAccess,
        Placed as Placed,
        Writer as Writer,
    )
    from packer._formats.foreign import (
        ForeignWriter as ForeignWriter,
        FramedReader as FramedReader,
        ShardWriter as ShardWriter,
    )
    from packer._formats.reader import Reader as Reader, table_from as table_from
    from packer._manifest import Manifest as Manifest
    from packer._storage.files import AppendFile as AppendFile
    from packer._storage.packfile import PackFile as PackFile
    from packer._storage.place import Place as Place
    from packer._table import Buffer as Buffer, Names as Names, Row as Row, Sample as Sample, Table as Table

__all__ = [
    "CONTAINER_GROUP",
    "FORMAT_GROUP",
    "ContainerDescriptor",
    "Format",
    "PluginDescriptor",
    "Registry",
]

CONTAINER_GROUP, FORMAT_GROUP = "packer.containers", "packer.formats"
"""The groups of entry points."""

_CONTRACTS = {
    "packer._containers.contract": ("Container", "Entry", "Named", "Packed", "Piece", "PixelLayout"),
    "packer._fields": ("Field",),
    "packer._formats.contract": ("NOTHING", "Contents", "Frame", "PackAccess", "Locations", "Placed", "Writer"),
    "packer._formats.foreign": ("ForeignWriter", "FramedReader", "ShardWriter"),
    "packer._formats.reader": ("Reader", "table_from"),
    "packer._manifest": ("Manifest",),
    "packer._storage.files": ("AppendFile",),
    "packer._storage.packfile": ("PackFile",),
    "packer._storage.place": ("Place",),
    "packer._table": ("Buffer", "Names", "Row", "Sample", "Table"),
}
_MODULE_OF = {name: module for module, names in _CONTRACTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULE_OF])


@dataclass(frozen=True)
class PluginDescriptor:
    """How files of one kind are recognised, and where the classes are that know them.

    Attributes
    ----------
    name : str
        What messages and manifests call it; the name of the entry point too.
    suffixes : tuple of str
        What names end in, in lower case, with the dot. The first is the usual one.
    help : str
        What it is, in a line.
    magic : bytes
        A regular expression that the first bytes of a file match; empty where these say nothing. A dot stands for any
        byte.
    needs : str
        What to install where the classes cannot be imported.
    plugin : str
        The package that it comes from, with its version; empty of packer's own. packer fills it in.
    """

    what: ClassVar[str]
    """What messages call such things."""

    name: str
    suffixes: tuple[str, ...]
    help: str = ""
    magic: bytes = b""
    needs: str = ""
    plugin: str = ""

    def begins(self, head: bytes | None) -> bool:
        """Tell whether the first bytes of a file are those of this kind; None stands for no file."""
        return bool(self.magic and head) and re.match(self.magic, head or b"", re.DOTALL) is not None

    def check(self) -> None:
        """Raise re.error where a regular expression is none."""
        re.compile(self.magic)

    def load(self, target: str) -> Any:
        """Import what ``module:name`` says; MissingDependencyError where that fails."""
        module, _, name = target.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            origin = f" (of {self.plugin})" if self.plugin else ""
            needs = f"needs {self.needs}" if self.needs else "cannot be imported"
            raise MissingDependencyError(f"the {self.what} {self.name}{origin} {needs}: {error}") from error


@dataclass(frozen=True)
class ContainerDescriptor(PluginDescriptor):
    """How a container is recognised before its module is imported.

    A file whose name has one of the suffixes, whose name is one of `names`, or whose first bytes match `magic` may be
    of this container: then the class is imported, and its `recognise_file` decides. A directory may be one where a name
    in it fits, or a directory in it has one of the files `below`; then `recognise_directory` decides.

    Attributes
    ----------
    target : str
        ``"module:class"`` of the `Container`, whose `kind` is the `name`.
    names : str
        A regular expression that all of a file's or a directory's name matches.
    below : tuple of str
        Names of files, which are looked for in the first directories of a directory.
    last : bool
        Whether it is asked after the containers of others, as it takes whatever nobody else knows.
    """

    what = "container"

    target: str = ""
    names: str = ""
    below: tuple[str, ...] = ()
    last: bool = False

    def check(self) -> None:
        super().check()
        self.fits_name("")

    def fits_file(self, path: Path, head: bytes) -> bool:
        """Tell whether a file may be of this container, by its name and its first bytes."""
        return self.fits_name(path.name) or self.begins(head)

    def fits_name(self, names: str) -> bool:
        """Tell whether one of some names, a line each, has one of the suffixes, or is one of `names`."""
        return self._pattern.search(names) is not None

    def fits_below(self, path: Path, names: Collection[str]) -> bool:
        """Tell whether one of the first directories in a directory with entries of these names has a file `below`."""
        if not self.below:
            return False
        return any(os.path.isfile(path / name / file) for name in sorted(names)[:_LOOKED_AT] for file in self.below)

    def container(self) -> type[Container]:
        """Import and return the class; MissingDependencyError where that fails."""
        kind: type[Container] = self.load(self.target)
        return kind

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        suffixes = "|".join(map(re.escape, self.suffixes))
        choices = [f".*(?i:{suffixes})"] * bool(suffixes) + [f"(?:{self.names})"] * bool(self.names)
        return re.compile(f"^(?:{'|'.join(choices)})$" if choices else "(?!)", re.MULTILINE)


_LOOKED_AT = 64  # directories


@dataclass(frozen=True)
class Format(PluginDescriptor):
    """A format of packs.

    Attributes
    ----------
    writer, reader : str
        ``"module:class"``; no writer where packs are not written sample by sample.
    signs : tuple of str
        Names of files; a directory that has one of them is of this format.
    files : tuple of str
        The files in a pack that is a directory, beside those with the data of samples.
    dataset : str
        The name in `packer` of the dataset that a person is told to read it with.
    shards : bool
        Whether samples lie in files of a size that a person may choose.
    parts : bool
        Whether packs may be parts of a larger one.
    """

    writer: str = ""
    reader: str = ""
    signs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    dataset: str = "open_dataset"
    shards: bool = False
    parts: bool = True

    def open_writer(self) -> type[Writer]:
        """Import and return the writer's class."""
        writer: type[Writer] = self.load(self.writer)
        return writer

    def open_reader(self) -> type[Reader]:
        """Import and return the reader's class."""
        reader: type[Reader] = self.load(self.reader)
        return reader


_D = TypeVar("_D", bound=PluginDescriptor)


class Registry(Mapping[str, _D], Generic[_D]):
    """Descriptors by their names: packer's own in their order, then those of other packages by their names.

    The metadata of packages are read when one of packer's own does not fit, and once in a process.

    Parameters
    ----------
    group : str
        The group of entry points.
    type : type
        What each of them leads to.
    rows : iterable of PluginDescriptor
        packer's own.

    Attributes
    ----------
    own : dict of str to PluginDescriptor
    broken : dict of str to str
        Why an entry point gave no descriptor, by its name.
    """

    def __init__(self, group: str, type: type[_D], rows: Iterable[_D]) -> None:
        self.group, self.type = group, type
        self.own = {row.name: row for row in rows}
        self.broken: dict[str, str] = {}
        self._plugins: dict[str, _D] | None = None
        self._lock = threading.RLock()  # an entry point may ask for the plug-ins while it is loaded

    @property
    def plugins(self) -> dict[str, _D]:
        """The descriptors of other packages, by their names; what is wrong with one is a warning."""
        with self._lock:
            if self._plugins is None:
                found: dict[str, _D] = {}
                for entry in sorted(_entry_points(self.group), key=lambda entry: entry.name):
                    self._add(entry, found)
                self._plugins = found
            return self._plugins

    def why_missing(self, name: str) -> str:
        """Return why there is no descriptor of a name, and what to do."""
        what = f"the plug-in {name!r}, which no installed package has ({self.group})"
        if name in self.broken:
            return f"the plug-in {name!r}, which cannot be used: {self.broken[name]}"
        return f"{what}. Install the package that it comes from"

    def _add(self, entry: EntryPoint, plugins: dict[str, _D]) -> None:
        try:
            if entry.name in self.own or entry.name in plugins:
                raise ValueError("there is another of that name")
            row = entry.load()
            if not isinstance(row, self.type):
                raise TypeError(f"is no {self.type.__name__}")
            if row.name != entry.name:
                raise ValueError(f"calls itself {row.name!r}")
            row.check()
            plugins[entry.name] = replace(row, plugin=_package(entry))
        except Exception as error:  # whatever another's module raises
            self.broken[entry.name] = f"{_package(entry)}: {entry.value}: {str(error) or type(error).__name__}"
            warn(f"the plug-in {entry.name!r} ({self.group}) of {self.broken[entry.name]}. It is left out")

    def __getitem__(self, name: str) -> _D:
        return self.own[name] if name in self.own else self.plugins[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.plugins

    def __len__(self) -> int:
        return len(self.own) + len(self.plugins)


def _entry_points(group: str) -> list[EntryPoint]:
    from importlib import metadata  # which takes longer to import than all of this module

    return [*metadata.entry_points(group=group)]


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
