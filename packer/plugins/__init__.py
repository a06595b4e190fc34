"""Containers and formats from other packages, and the names for writing them.

A package registers them in its metadata, like packages with codecs for numcodecs and zarr::

    [project.entry-points."packer.containers"]
    toy = "toypack.descriptors:CONTAINER"

    [project.entry-points."packer.formats"]
    toyfile = "toypack.descriptors:FORMAT"

Each entry point refers to a small descriptor: how files are recognised, and the module of the class. The class is
imported when a file matches. packer's own containers and formats have the same descriptors, in a table, so that they
work even if the metadata are missing or outdated.
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
    """How files of one kind are recognised, and the classes that handle them.

    Attributes
    ----------
    name : str
        The name in messages and manifests, and of the entry point.
    suffixes : tuple of str
        The suffixes of file names, in lower case, with the dot. The first is the usual one.
    help : str
        A description in one line.
    magic : bytes
        A regular expression that the first bytes of a file match; empty if there is no signature. A dot matches any
        byte.
    needs : str
        The packages to install if the classes cannot be imported.
    plugin : str
        The package that registered it, with its version, set by packer; empty for packer's own descriptors.
    """

    what: ClassVar[str]
    """The noun for these descriptors in messages."""

    name: str
    suffixes: tuple[str, ...]
    help: str = ""
    magic: bytes = b""
    needs: str = ""
    plugin: str = ""

    def begins(self, head: bytes | None) -> bool:
        """Tell whether the first bytes of a file match `magic`; None stands for no file."""
        return bool(self.magic and head) and re.match(self.magic, head or b"", re.DOTALL) is not None

    def check(self) -> None:
        """Raise re.error if a regular expression is invalid."""
        re.compile(self.magic)

    def load(self, target: str) -> Any:
        """Import the object at ``module:name``; MissingDependencyError if this fails."""
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

    If the name of a file has one of the suffixes or matches `names`, or its first bytes match `magic`, the class is
    imported and its `recognise_file` decides. If a name in a directory matches, or one of its subdirectories has a file
    of `below`, `recognise_directory` decides.

    Attributes
    ----------
    target : str
        ``"module:class"`` of the `Container`; its `kind` equals `name`.
    names : str
        A regular expression that matches the whole name of a file or a directory.
    below : tuple of str
        Names of files to look for in the first subdirectories of a directory.
    last : bool
        Whether it is tried last, because it accepts everything that no other container recognises.
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
        """Tell whether a file may belong to this container, by its name and its first bytes."""
        return self.fits_name(path.name) or self.begins(head)

    def fits_name(self, names: str) -> bool:
        """Tell whether one of several names, one on each line, has one of the suffixes or matches `names`."""
        return self._pattern.search(names) is not None

    def fits_below(self, path: Path, names: Collection[str]) -> bool:
        """Tell whether one of the first subdirectories of a directory with these entries has a file of `below`."""
        if not self.below:
            return False
        return any(os.path.isfile(path / name / file) for name in sorted(names)[:_LOOKED_AT] for file in self.below)

    def container(self) -> type[Container]:
        """Import and return the class; MissingDependencyError if this fails."""
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
        ``"module:class"``; the writer is empty if packs are not written sample by sample.
    signs : tuple of str
        Names of files; a directory with one of them has this format.
    files : tuple of str
        The files in a pack that is a directory, other than those with samples' data.
    dataset : str
        The class in `packer` that is recommended to users for reading it.
    shards : bool
        Whether users can choose the size of the files with the samples.
    parts : bool
        Whether packs may be parts of a larger one.
    """

    what = "format"

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
    """Descriptors by name: first packer's own in their order, then those of other packages, sorted by name.

    The metadata of packages are read once in a process, when none of packer's own descriptors matches.

    Parameters
    ----------
    group : str
        The group of entry points.
    type : type
        The type of the objects at these entry points.
    rows : iterable of PluginDescriptor
        packer's own.

    Attributes
    ----------
    own : dict of str to PluginDescriptor
    broken : dict of str to str
        The reason, by the name of the entry point, if it did not provide a descriptor.
    """

    def __init__(self, group: str, type: type[_D], rows: Iterable[_D]) -> None:
        self.group, self.type = group, type
        self.own = {row.name: row for row in rows}
        self.broken: dict[str, str] = {}
        self._plugins: dict[str, _D] | None = None
        self._lock = threading.RLock()  # an entry point may ask for the plug-ins while it is loaded

    @property
    def plugins(self) -> dict[str, _D]:
        """The descriptors of other packages, by name; a defective one gives a warning."""
        with self._lock:
            if self._plugins is None:
                found: dict[str, _D] = {}
                for entry in sorted(_entry_points(self.group), key=lambda entry: entry.name):
                    self._add(entry, found)
                self._plugins = found
            return self._plugins

    def why_missing(self, name: str) -> str:
        """Return why there is no descriptor with a name, and the remedy."""
        what = f"the plug-in {name!r}, which no installed package has ({self.group})"
        if name in self.broken:
            return f"the plug-in {name!r}, which cannot be used: {self.broken[name]}"
        return f"{what}. Install the package that it comes from"

    def _add(self, entry: EntryPoint, plugins: dict[str, _D]) -> None:
        try:
            if entry.name in self.own or entry.name in plugins:
                raise ValueError("there is another one with this name")
            row = entry.load()
            if not isinstance(row, self.type):
                raise TypeError(f"is not a {self.type.__name__}")
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
