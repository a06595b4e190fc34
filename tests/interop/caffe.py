"""Caffe's Datum in LMDB: written through lmdb with protobuf's own encoder, read by DALI and by lmdb."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.dali import outputs
from tests.interop.photos import Photo

KIND = "Caffe LMDB"
SUFFIX = ".caffe"
NAMED = False  # the keys are %08d_NAME

_OPTIONAL = 1
_TYPES = {"channels": (1, 5), "height": (2, 5), "width": (3, 5), "data": (4, 12), "label": (5, 5), "encoded": (7, 8)}


def _datum() -> Any:
    """Return protobuf's class of Datum, as caffe.proto defines it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="datum.proto", package="caffe", syntax="proto2")
    message = file.message_type.add(name="Datum")
    for name, (number, kind) in _TYPES.items():
        message.field.add(name=name, number=number, type=kind, label=_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))


def by_lmdb(directory: Path, photos: Sequence[Photo]) -> Path:
    import lmdb

    datum = _datum()
    path = directory / "train_lmdb"
    with lmdb.open(str(path), map_size=1 << 30) as environment, environment.begin(write=True) as transaction:
        for number, photo in enumerate(photos):
            value = datum(data=photo.data, label=photo.label, encoded=True).SerializeToString()
            transaction.put(f"{number:08d}_{photo.name}".encode(), value)
    return path


def read_by_lmdb(path: Path) -> list[Photo]:
    import lmdb

    datum = _datum()
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        found = [datum.FromString(value) for _, value in transaction.cursor()]
    assert all(one.encoded for one in found)
    return [Photo(one.data, one.label) for one in found]


def read_by_dali(path: Path) -> list[Photo]:
    from nvidia.dali import fn

    count = len(read_by_lmdb(path))
    return [
        Photo(jpeg.tobytes(), int(label[0]))
        for jpeg, label in outputs(lambda: tuple(fn.readers.caffe(path=str(path))), count)
    ]


WRITTEN_BY = {"lmdb": by_lmdb}
READ_BY = {"lmdb": read_by_lmdb, "DALI": read_by_dali}
