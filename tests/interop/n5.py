"""N5: packer's own group of encoded images, written by z5py and by TensorStore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.interop.photos import Photo

KIND = "N5"
SUFFIX = ".n5"

_LEAST = 1 << 10  # bytes of a block


def _write(directory: Path, photos: Sequence[Photo], write: Callable[[Path, str, Any, int], None]) -> Path:
    path = directory / "group.n5"
    data, begins = bytearray(), []
    block = max(_LEAST, 1 << max(len(photo.data) for photo in photos).bit_length())  # large enough for any photo
    for photo in photos:
        if len(data) % block + len(photo.data) > block:
            data += bytes(-len(data) % block)
        begins.append(len(data))
        data += photo.data
    names = [str(photo.name).encode() for photo in photos]
    write(path, "data", np.frombuffer(bytes(data), np.uint8), block)
    write(path, "offsets", np.array(begins, np.uint64), 100)
    write(path, "sizes", np.array([len(photo.data) for photo in photos], np.uint64), 100)
    write(path, "labels", np.array([photo.label for photo in photos], np.int64), 100)
    write(path, "names", np.frombuffer(b"".join(names), np.uint8), 1000)
    write(path, "name_ends", np.cumsum([len(name) for name in names]).astype(np.uint64), 100)
    return path


def by_z5py(directory: Path, photos: Sequence[Photo]) -> Path:
    import z5py

    def write(path: Path, name: str, values: Any, block: int) -> None:
        group = z5py.File(str(path), mode="a", use_zarr_format=False)
        options = {"shape": values.shape, "chunks": (block,), "dtype": str(values.dtype), "compression": "raw"}
        group.create_dataset(name, **options)[:] = values

    return _write(directory, photos, write)


def by_tensorstore(directory: Path, photos: Sequence[Photo]) -> Path:
    import tensorstore

    def write(path: Path, name: str, values: Any, block: int) -> None:
        members = {
            "dimensions": list(values.shape),
            "blockSize": [block],
            "dataType": str(values.dtype),
            "compression": {"type": "raw" if name == "data" else "gzip"},
        }
        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path / name}/"}, "metadata": members}
        tensorstore.open(spec, create=True).result().write(values).result()

    return _write(directory, photos, write)


def _photos(path: Path, read: Callable[[str], Any]) -> list[Photo]:
    data, begins, sizes, labels = (read(name) for name in ("data", "offsets", "sizes", "labels"))
    text, ends = bytes(read("names")), read("name_ends").tolist()
    names = [text[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]
    return [
        Photo(bytes(data[begin : begin + size]), label, name)
        for begin, size, label, name in zip(begins.tolist(), sizes.tolist(), labels.tolist(), names, strict=True)
    ]


def read_by_z5py(path: Path) -> list[Photo]:
    import z5py

    group = z5py.File(str(path), mode="r", use_zarr_format=False)
    return _photos(path, lambda name: group[name][:])


def read_by_tensorstore(path: Path) -> list[Photo]:
    import tensorstore

    def read(name: str) -> Any:
        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path / name}/"}}
        return tensorstore.open(spec).result().read().result()

    return _photos(path, read)


WRITTEN_BY = {"z5py": by_z5py, "tensorstore": by_tensorstore}
READ_BY = {"z5py": read_by_z5py, "tensorstore": read_by_tensorstore}
