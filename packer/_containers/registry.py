"""The table of containers, where a new one adds its row; and which container a file or a directory is.

The order of the table is the order in which containers are tried. Those of other packages come after packer's own, or
before these where a name is one of theirs and of none of packer's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeVar

from packer._containers.contract import Container, head_of
from packer.errors import MissingDependencyError, PackerError, SourceError, warn
from packer.plugins import CONTAINER_GROUP, ContainerDescriptor, Registry

_TAR_ENDS = (".tar", *(f".tar.{end}" for end in ("gz", "zst", "bz2", "xz", "lz4")), ".tgz", ".tzst", ".tbz2", ".txz")
_LMDB = rb".{16}\xde\xc0\xef\xbe|.{24}\xde\xc0\xef\xbe|.{16}\xbe\xef\xc0\xde|.{12}(?:\xde\xc0\xef\xbe|\xbe\xef\xc0\xde)"
"""The magic number of LMDB files, also of those that packer refuses: LMDB 1.0, 32 bits, another byte order."""


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
            # the length of a record, below a tebibyte; of an empty one its checksum; or gzip, or zlib
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

_T = TypeVar("_T")


def container_of_file(path: Path) -> type[Container] | None:
    """Return the container that a file is of; None where it is of none.

    Errors as `ContainerDescriptor.container` and `Container.recognise_file`.
    """
    head = head_of(path)
    for row in _fitting(path.name, lambda row: row.fits_file(path, head)):
        if _answer(row, lambda kind: kind.recognise_file(path, head)):
            return row.container()
    return None


def containers_of_directory(
    path: Path, names: Collection[str], *, strict: bool = True
) -> Iterator[tuple[type[Container], list[Path]]]:
    """Yield the containers that a directory with entries of these names may be, and the files that each opens of it.

    Errors as `ContainerDescriptor.container` and `Container.recognise_directory`; unless `strict`, whatever refuses the
    directory is left out.
    """
    lines = "\n".join(names)
    for row in _fitting(lines, lambda row: row.fits_name(lines) or row.fits_below(path, names)):
        try:
            files = _answer(row, lambda kind: kind.recognise_directory(path, names))
        except (SourceError, MissingDependencyError):
            if strict:
                raise
            continue
        if files:
            yield row.container(), files


def _fitting(names: str, fits: Callable[[ContainerDescriptor], bool]) -> Iterator[ContainerDescriptor]:
    """Yield the containers that fit, in the order of the table; `names` has a name a line."""
    own = list(filter(fits, CONTAINERS.own.values()))
    first = []
    if not any(row.fits_name(names) for row in own):
        first = [row for row in CONTAINERS.plugins.values() if row.fits_name(names) and not row.last]
    yield from first
    yield from (row for row in own if not row.last)
    later = [row for row in CONTAINERS.plugins.values() if row not in first and fits(row)]
    yield from (row for row in later if not row.last)
    yield from (row for row in (*own, *later) if row.last)


def _answer(row: ContainerDescriptor, ask: Callable[[type[Container]], _T]) -> _T | None:
    """Return a container's answer; None of one of another package whose code fails, with a warning."""
    kind = row.container()
    if not row.plugin:
        return ask(kind)
    try:
        return ask(kind)
    except PackerError:
        raise
    except Exception as error:
        warn(f"the plug-in {row.name} ({row.plugin}) fails at recognising files: {type(error).__name__}: {error}")
        return None
