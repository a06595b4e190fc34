"""Descriptors of containers and formats, including those that other packages register.

A package registers its containers and formats in its metadata, as packages do with codecs for numcodecs and zarr::

    [project.entry-points."packer.containers"]
    toy = "toypack.descriptors:CONTAINER"

    [project.entry-points."packer.formats"]
    toyfile = "toypack.descriptors:FORMAT"

Each entry point refers to a small descriptor, which tells how files are recognised, and in which module the class is.
The class is imported when a file matches. packer's own containers and formats have the same descriptors, in the tables
`CONTAINERS` and `FORMATS`, so that they work even if packer's metadata are missing or outdated. A descriptor names a
class and does not import it, so that `packer convert --help` can list plug-ins without importing NumPy.
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
"""The groups of entry points in which packages register containers and formats."""

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
    """Describes how files of one kind are recognised, and names the classes that read or write them.

    Attributes
    ----------
    name : str
        The name of the container or format in messages and manifests, and the name of its entry point.
    suffixes : tuple of str
        The suffixes of file names, in lower case and with the dot. The first one is the usual one.
    help : str
        A description in one line.
    magic : bytes
        A regular expression that the first bytes of a file match, where a dot matches any byte. Empty if files of this
        kind have no signature.
    needs : str
        The packages that the user has to install if the classes cannot be imported.
    plugin : str
        The package that registered the descriptor, with its version; packer sets it. Empty for packer's own.
    """

    what: ClassVar[str]
    """The noun for these descriptors in messages, such as ``container``."""

    name: str
    suffixes: tuple[str, ...]
    help: str = ""
    magic: bytes = b""
    needs: str = ""
    plugin: str = ""

    def begins(self, head: bytes | None) -> bool:
        """Tell whether the first bytes of a file match `magic`; `head` is None if there is no file."""
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
    """Describes how a container is recognised before its module is imported.

    A file may belong to the container if its name has one of the suffixes or matches `names`, or if its first bytes
    match `magic`. A directory may belong to the container if the name of an entry has one of the suffixes or matches
    `names`, or if a subdirectory contains a file named in `below`. Then the class is imported, and its method
    `recognise_file` or `recognise_directory` decides.

    Attributes
    ----------
    target : str
        ``"module:class"`` of the `Container`, whose `kind` must be equal to `name`.
    names : str
        A regular expression that matches the whole name of a file or a directory.
    below : tuple of str
        Names of files to look for in the subdirectories of a directory. Only the directory's first 64 entries, sorted
        by name, are examined.
    last : bool
        True if the container accepts files that no other container recognises; such a container is tried last.
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
        """Tell by its name and its first bytes whether a file may belong to this container."""
        return self.fits_name(path.name) or self.begins(head)

    def fits_name(self, names: str) -> bool:
        """Tell whether one of these names, one on each line, has one of the suffixes or matches `self.names`."""
        return self._pattern.search(names) is not None

    def fits_below(self, path: Path, names: Collection[str]) -> bool:
        """Tell whether one of the first entries of a directory is a subdirectory with a file named in `below`."""
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


_LOOKED_AT = 64  # entries of a directory in which files are searched


@dataclass(frozen=True)
class Format(PluginDescriptor):
    """A format of packs.

    Attributes
    ----------
    writer, reader : str
        ``"module:class"``. The writer is empty if packs of this format are not written sample by sample.
    signs : tuple of str
        Names of files; a directory that contains one of these files has this format.
    files : tuple of str
        For packs that are directories, the names of their files, except those with samples' data.
    dataset : str
        The name in `packer`, such as ``LMDBImageDataset``, with which users should open packs of this format.
    shards : bool
        Whether users can choose the size of the files that contain the samples.
    parts : bool
        Whether packs of this format can be parts of a joined pack.
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
    """Maps names to descriptors: packer's own first, in their order in `rows`, then other packages', sorted by name.

    The metadata of installed packages are read once in a process, when packer's own descriptors do not suffice.

    Parameters
    ----------
    group : str
        The group of entry points.
    type : type
        The type that the objects at these entry points must have.
    rows : iterable of PluginDescriptor
        packer's own descriptors.

    Attributes
    ----------
    own : dict of str to PluginDescriptor
        packer's own descriptors by name.
    broken : dict of str to str
        For each entry point without a valid descriptor, its name and the reason.
    """

    def __init__(self, group: str, type: type[_D], rows: Iterable[_D]) -> None:
        self.group, self.type = group, type
        self.own = {row.name: row for row in rows}
        self.broken: dict[str, str] = {}
        self._plugins: dict[str, _D] | None = None
        self._lock = threading.RLock()  # reentrant, because an entry point may use the registry while it is loaded

    @property
    def plugins(self) -> dict[str, _D]:
        """The descriptors of other packages, by name. A defective descriptor causes a warning and is left out."""
        with self._lock:
            if self._plugins is None:
                found: dict[str, _D] = {}
                for entry in sorted(_entry_points(self.group), key=lambda entry: entry.name):
                    self._add(entry, found)
                self._plugins = found
            return self._plugins

    def why_missing(self, name: str) -> str:
        """Return the reason why there is no descriptor with this name, and the remedy, for a message."""
        what = f"the plug-in {name!r}, which no installed package has ({self.group})"
        if name in self.broken:
            return f"the plug-in {name!r}, which cannot be used: {self.broken[name]}"
        return f"{what}. Install the package that it comes from"

    def _add(self, entry: EntryPoint, plugins: dict[str, _D]) -> None:
        try:
            if entry.name in self.own or entry.name in plugins:
                raise ValueError("another plug-in or packer itself has this name")
            row = entry.load()
            if not isinstance(row, self.type):
                raise TypeError(f"is not a {self.type.__name__}")
            if row.name != entry.name:
                raise ValueError(f"its descriptor has the name {row.name!r}")
            row.check()
            plugins[entry.name] = replace(row, plugin=_package(entry))
        except Exception as error:  # modules of other packages can raise any error
            self.broken[entry.name] = f"{_package(entry)}: {entry.value}: {str(error) or type(error).__name__}"
            warn(f"the plug-in {entry.name!r} ({self.group}) of {self.broken[entry.name]}. packer ignores this plug-in")

    def __getitem__(self, name: str) -> _D:
        return self.own[name] if name in self.own else self.plugins[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.plugins

    def __len__(self) -> int:
        return len(self.own) + len(self.plugins)


def _entry_points(group: str) -> list[EntryPoint]:
    from importlib import metadata  # imported here, because that takes longer than to import all of this module

    return [*metadata.entry_points(group=group)]


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"


OWN_INDEX = ".packer.index/files.bin"
"""The file with packer's index, in a pack whose layout is that of another tool."""

_TAR_ENDS = (".tar", *(f".tar.{end}" for end in ("gz", "zst", "bz2", "xz", "lz4")), ".tgz", ".tzst", ".tbz2", ".txz")
_LMDB = rb".{16}\xde\xc0\xef\xbe|.{24}\xde\xc0\xef\xbe|.{16}\xbe\xef\xc0\xde|.{12}(?:\xde\xc0\xef\xbe|\xbe\xef\xc0\xde)"
"""The magic number of LMDB files, also of those that packer refuses: of LMDB 1.0, 32 bits or another byte order."""


def _lmdb(name: str, help: str, target: str, names: str = r"data\.mdb", *, last: bool = False) -> ContainerDescriptor:
    return ContainerDescriptor(name, (), help, _LMDB, target=target, names=names, last=last)


CONTAINERS: Registry[ContainerDescriptor] = Registry(
    CONTAINER_GROUP,
    ContainerDescriptor,
    [
        ContainerDescriptor(
            "tfrecord",
            (),
            "records of TensorFlow with an Example each",
            # the length of a record, below a tebibyte; the length 0 and its checksum; or the signature of gzip or zlib
            rb"(?!\0{5}).{5}\0{3}|\0{8}\)\x03\x98\x07|\x1f\x8b|\x78",
            target="packer._containers.tfrecord:TFRecord",
            names=r".*(?i:\.tfrec(?:ord)?s?\b.*|-\d{5}-of-\d{5})",
        ),
        ContainerDescriptor(
            "recordio",
            (".rec",),
            "records of MXNet",
            rb"\x0a\x23\xd7\xce",
            target="packer._containers.recordio:RecordIO",
        ),
        ContainerDescriptor(
            "webdataset",
            _TAR_ENDS,
            "tars in the way of WebDataset, and lists of these",
            rb'[^\0].{147}(?:[\0 0-7]{8}|\x80)|.*"(?:shardlist|shard_lengths)"',  # the checksum of a tar's header
            target="packer._containers.webdataset:Tar",
        ),
        ContainerDescriptor("zip", (".zip",), "zip archives", rb"PK[\3\5][\4\6]", target="packer._containers.zip:Zip"),
        ContainerDescriptor(
            "parquet",
            (".parquet",),
            "Parquet, as Hugging Face datasets writes it",
            rb"PAR1",
            target="packer._containers.parquet:ParquetImages",
            names=r"data",
        ),
        ContainerDescriptor(
            "arrow",
            (".arrow", ".feather", ".ipc"),
            "Arrow, as save_to_disk of Hugging Face datasets writes it",
            target="packer._containers.arrow:ArrowImages",
            names=r"state\.json|dataset_dict\.json",
        ),
        ContainerDescriptor(
            "mds",
            (".mds", ".mds.zstd"),
            "shards of MosaicML Streaming",
            target="packer._containers.mds:MDS",
            names=r"index\.json",
        ),
        ContainerDescriptor(
            "litdata", (), "chunks of LitData", target="packer._containers.litdata:LitData", names=r"index\.json"
        ),
        ContainerDescriptor(
            "datadings", (".msgpack",), "msgpack of datadings", target="packer.contrib.datadings:Datadings"
        ),
        ContainerDescriptor("beton", (".beton",), "files of FFCV", target="packer._containers.beton:Beton"),
        ContainerDescriptor(
            "n5",
            (),
            "N5: arrays in blocks",
            target="packer.contrib.n5:N5",
            names=r"attributes\.json",
            below=("attributes.json",),
        ),
        ContainerDescriptor("bagz", (".bag", ".bagz"), "records of Bagz", target="packer.contrib.bagz:Bagz"),
        _lmdb("pysodtoolbox lmdb", "LMDB of PySODToolBox", "packer.contrib.pysodtoolbox:PySODToolBox"),
        _lmdb("pyarrow lmdb", "LMDB of pyarrow.serialize", "packer.contrib.arrow_serialize:SerializedLMDB"),
        _lmdb("pickled lmdb", "LMDB of pickled pairs", "packer._containers.pickle_lmdb:PickledLMDB"),
        _lmdb("lmdb of text recognition", "LMDB of words and their images", "packer._containers.lmdb:TextRecognition"),
        _lmdb("lsun", "LMDB of LSUN", "packer._containers.lmdb:LSUN", r"(?:.+_)?lmdb|data\.mdb"),
        _lmdb("lmdb of images", "LMDB whose values are images", "packer._containers.lmdb:ImageLMDB"),
        _lmdb("caffe lmdb", "LMDB of Caffe", "packer.contrib.caffe:Caffe"),
        _lmdb("lmdb", "any other LMDB, which is refused", "packer._containers.lmdb:UnreadLMDB", last=True),
        ContainerDescriptor(
            "cifar",
            (),
            "binary files of CIFAR-10 and CIFAR-100",
            target="packer._containers.arrays:CIFAR",
            names=r"(?:data_batch_[0-9]+|test_batch)(?:\.bin)?|(?:train|test)\.bin",
        ),
        ContainerDescriptor(
            "mnist",
            (),
            "files of MNIST",
            target="packer._containers.arrays:MNIST",
            names=r".*images[-.]idx3-ubyte(?:\.gz)?",
        ),
        ContainerDescriptor("npy", (".npy", ".npz"), "arrays of NumPy", target="packer._containers.arrays:NpyImages"),
        ContainerDescriptor(
            "hdf5",
            (),
            "HDF5 with datasets of images",
            rb"(?:|.{512}|.{1024}|.{2048})\x89HDF\r\n\x1a\n",
            target="packer._containers.hdf5:HDF5Arrays",
        ),
    ],
)
"""The containers by name, in the order in which they are tried."""


def _foreign(name: str, suffix: str, help: str, writer: str, *, shards: bool = True) -> Format:
    """Return the descriptor of a format in another tool's layout, whose packs are read through packer's index."""
    return Format(
        name,
        (suffix,),
        help,
        writer=writer,
        reader="packer._formats.foreign:FramedReader",
        signs=(OWN_INDEX,),
        shards=shards,
        parts=False,
    )


FORMATS: Registry[Format] = Registry(
    FORMAT_GROUP,
    Format,
    [
        Format(
            "lmdb",
            (".lmdb",),
            "one LMDB file",
            rb".{16}\xde\xc0\xef\xbe",
            writer="packer._formats.lmdb:LMDBWriter",
            reader="packer._formats.lmdb:LMDBReader",
            dataset="LMDBImageDataset",
        ),
        Format(
            "hdf5",
            (".h5", ".hdf5"),
            "one HDF5 file",
            rb"\x89HDF\r\n\x1a\n",
            needs="h5py (pip install h5py)",
            writer="packer._formats.hdf5:HDF5Writer",
            reader="packer._formats.hdf5:HDF5Reader",
            dataset="HDF5ImageDataset",
        ),
        Format(
            "pth",
            (".pth",),
            "a directory of shards of tensors",
            writer="packer._formats.pth:PthWriter",
            reader="packer._formats.pth:PthReader",
            signs=("table.pth",),
            files=("manifest.json", "table.pth"),
            dataset="PthImageDataset",
            shards=True,
        ),
        _foreign("wds", ".wds", "WebDataset", "packer._formats.wds:WebDatasetWriter"),
        _foreign("tfrecord", ".tfrecord", "TensorFlow", "packer._formats.tfrecord:TFRecordWriter"),
        _foreign("rec", ".rec", "MXNet", "packer._formats.recordio:RecordIOWriter", shards=False),
        _foreign("mds", ".mds", "MosaicML Streaming", "packer._formats.mds:MDSWriter"),
        _foreign("caffe", ".caffe", "Caffe", "packer.contrib.caffe:CaffeWriter", shards=False),
        _foreign("n5", ".n5", "N5", "packer.contrib.n5:N5Writer"),
        _foreign("parquet", ".parquet", "Hugging Face datasets", "packer._formats.parquet:ParquetWriter"),
    ],
)
"""The formats by name: packer's own, then those of other packages."""
