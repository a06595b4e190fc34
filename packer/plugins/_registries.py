"""The registries of containers and formats: a row for each of packer's own, then those of other packages.

A row names a class and does not import it, so that `packer convert --help` lists plug-ins without NumPy.
"""

from __future__ import annotations

from packer.plugins import CONTAINER_GROUP, FORMAT_GROUP, ContainerDescriptor, Format, Registry

OWN_INDEX = ".packer.index/files.bin"
"""The file in a pack of another tool's layout that holds packer's index."""

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
"""The containers by their names, in the order in which they are tried."""


def _foreign(name: str, suffix: str, help: str, writer: str, *, shards: bool = True) -> Format:
    """Return the row of packs in the layout of another tool, all of which are read through the index in them."""
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
"""The formats by their names: packer's own, then those of other packages."""
