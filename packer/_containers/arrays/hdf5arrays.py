"""HDF5 files of others: images in an array of bytes, or encoded ones as vectors of variable length.

Such as BigGAN's (``imgs``, ``labels``) and Fuel's (``encoded_images``, ``targets``, ``filenames``). libhdf5 says where
an array or its chunks lie, and samples are read there without it. Labels and other datasets of as many rows lie in the
same group.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from packer._containers.arrays.hdf5places import Heaps, rows_of
from packer._containers.arrays.pixelarrays import WANTED, pixel_layout
from packer._containers.contract import Container, Entry, Packed, Piece
from packer._containers.shards.reading import Reading, reading
from packer._containers.shards.roles import ColumnType, Roles, Value, roles_of
from packer._storage.packfile import PackFile
from packer.errors import MissingDependencyError, PackerError, PackError, SourceError, printable

if TYPE_CHECKING:
    import h5py

__all__ = ["HDF5Arrays"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BEGINNINGS = (0, 512, 1024, 2048)  # after what others wrote before it, as MATLAB does
_MOST_AT_ONCE = 1 << 26  # bytes that libhdf5 reads at once
_MOST_OBJECTS, _DEEPEST = 1000, 4
_BLOCK = 1 << 12
_LONGEST = 1 << 14  # bytes of a text; so a block of texts has 64 MiB
_LARGEST_CHUNK = 1 << 28  # bytes, which libhdf5 unpacks at once
_IMAGES = ("encoded_images", "imgs", "images", "image", "data", "x", "binary_data")
_LABELS = re.compile(r"(.*_)?(labels?|targets?|y)(_.*)?", re.IGNORECASE)


@dataclass(eq=False)
class HDF5Arrays(Container):
    """One file of HDF5 that packer did not write."""

    kind = "hdf5"

    group: str = ""
    roles: Roles = field(default_factory=lambda: Roles("", None, None, {}))

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if not any(head.startswith(_SIGNATURE, begin) for begin in _BEGINNINGS):
            return False
        try:
            with _opened(path) as file:
                return not _is_packers(file)
        except (SourceError, MissingDependencyError):
            return False

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> HDF5Arrays:
        if len(paths) > 1:
            raise SourceError(f"{printable(paths[1])}: a file of HDF5 is given alone")
        path, where = paths[0], printable(paths[0])
        with _opened(path) as file:
            datasets = dict(_datasets(file, "", 0, set()))
            image = keys.get("image") or _image(datasets, where)
            if image not in datasets:
                raise SourceError(
                    f"{where}: no dataset {printable(image)!r}: there are {', '.join(map(printable, datasets))}"
                )
            group, count = image.rpartition("/")[0], len(datasets[image])
            columns = {_short(image, group): ColumnType("image")}
            for name, one in datasets.items():
                if name.rpartition("/")[0] == group and name != image:
                    columns[_short(name, group)] = _type(one, count)
            chosen = {said: _short(name, group) for said, name in keys.items()}
            labels = [name for name, type in columns.items() if type.kind == "scalar" and _LABELS.fullmatch(name)]
            chosen = {**chosen, "image": _short(image, group)} if keys else {}
            container = cls.of_files(paths)
            container.group = group
            container.roles = roles_of(columns, chosen, where, label=labels[0] if len(labels) == 1 else None)
            if not _is_vlen(datasets[image]):
                found = pixel_layout(datasets[image].shape) if datasets[image].dtype == np.uint8 else None
                if found is None:
                    raise SourceError(
                        f"{where}: {printable(image)} is {_described(datasets[image])}, and images are {WANTED}"
                    )
                container.pixels = found[0]
            if "split" in file.attrs:
                container.notes.append("the attribute split is left out: samples of all splits are taken")
        container.fields, container.label_type = tuple(container.roles.fields.values()), container.roles.label_type
        container.notes += container.roles.notes
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        path = self.root / self.files[unit]
        with _opened(path) as h5, reading(path) as file:
            yield from self._entries(h5, file)

    def _entries(self, h5: h5py.File, file: Reading) -> Iterator[Entry]:
        dataset = h5[self._full(self.roles.image)]
        count, digits = len(dataset), len(str(len(dataset)))
        found = None if self.pixels is None else pixel_layout(dataset.shape)
        shape = None if found is None else found[1:]
        columns = {name: _within(h5[self._full(name)]) for name in self.roles.wanted - {self.roles.image}}
        places, heaps = rows_of(dataset, file), Heaps(file)
        for first in range(0, count, _BLOCK):
            blocks = {name: column[first : first + _BLOCK] for name, column in columns.items()}
            for number in range(first, min(first + _BLOCK, count)):
                try:
                    place = next(places)
                    image = place if shape is not None else heaps.piece(place)
                    if number in (0, count - 1):
                        _require_same(dataset, number, image, file)
                    values: dict[str, Value] = {name: _plain(block[number - first]) for name, block in blocks.items()}
                    if isinstance(image, Packed):  # whose head is not read, as pixels have none
                        entry = self.roles.entry(
                            f"{number:0{digits}d}", {**values, self.roles.image: image.piece}, file.read, shape
                        )
                        entry = entry._replace(image=image)
                    else:
                        entry = self.roles.entry(
                            f"{number:0{digits}d}", {**values, self.roles.image: image}, file.read, shape
                        )
                except ValueError as error:
                    raise SourceError(f"{file.path}: sample {number}: {printable(error)}") from error
                yield entry

    def _full(self, name: str) -> str:
        return f"{self.group}/{name}" if self.group else name


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open a file with libhdf5, which reads it through packer's own file, a little at once."""
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(f"{printable(path)}: is read with h5py (pip install h5py): {error}") from error
    try:
        with PackFile(path) as file, h5py.File(file.stream(most=_MOST_AT_ONCE), "r") as found:
            yield found
    except PackError as error:
        raise SourceError(str(error)) from error
    except PackerError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise SourceError(f"{printable(path)}: libhdf5 cannot read it: {printable(error)}") from error


def _datasets(group: Any, prefix: str, depth: int, seen: set[int]) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the datasets of a group that lie in the file itself, by their paths; no more than there are of images.

    A group has as many paths as there are links to it, which may lead in circles: it is looked at by the first one.
    """
    import h5py

    address = h5py.h5o.get_info(group.id).addr
    if address in seen or depth > _DEEPEST or len(group) > _MOST_OBJECTS:
        return
    seen.add(address)
    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            one = group[name]
            if isinstance(one, h5py.Group):
                yield from _datasets(one, f"{prefix}{name}/", depth + 1, seen)
            elif isinstance(one, h5py.Dataset) and one.shape:
                yield f"{prefix}{name}", one


def _image(datasets: Mapping[str, h5py.Dataset], where: str) -> str:
    found = [
        name
        for name, one in datasets.items()
        if _is_vlen(one) or (one.dtype == np.uint8 and len(one.shape) > 2 and pixel_layout(one.shape) is not None)
    ]
    likely = [name for word in _IMAGES for name in found if name.rpartition("/")[2].lower() == word]
    if len(found) == 1 or len(likely) == 1:
        return (likely or found)[0]
    what = f"several datasets of images, {', '.join(map(printable, found[:8]))}" if found else "no dataset of images"
    known = "" if found else f" ({WANTED}, or vectors of bytes), of {', '.join(map(printable, list(datasets)[:8]))}"
    raise SourceError(f"{where}: {what}{known}: say which with --key image=DATASET")


def _is_vlen(dataset: h5py.Dataset) -> bool:
    import h5py

    return bool(dataset.ndim == 1 and h5py.check_vlen_dtype(dataset.dtype) == np.uint8)


def _type(dataset: h5py.Dataset, count: int) -> ColumnType:
    """Return what the rows of a dataset become beside images."""
    if dataset.shape not in ((count,), (count, 1)):
        return ColumnType("", why=f"is {_described(dataset)}")
    if _is_elsewhere(dataset):
        return ColumnType("", why="has its data in other files")
    if dataset.dtype.itemsize * max(1, math.prod(dataset.chunks or ())) > _LARGEST_CHUNK:
        return ColumnType("", why=f"has chunks of {dataset.chunks}")
    kind, size = dataset.dtype.kind, dataset.dtype.itemsize
    if kind in "iu" or (kind == "f" and size in (4, 8)):
        return ColumnType("scalar", {"f4": "float32", "f8": "float64"}.get(f"{kind}{size}", "int64"))
    if kind == "b":
        return ColumnType("scalar", "bool")
    return ColumnType("text" if kind == "S" and size <= _LONGEST else "", why=f"is {_described(dataset)}")


def _is_elsewhere(dataset: h5py.Dataset) -> bool:
    """Tell whether reading a dataset makes libhdf5 open other files."""
    return bool(dataset.external or dataset.is_virtual)


def _within(dataset: h5py.Dataset) -> h5py.Dataset:
    """Return a dataset; ValueError where it is not what it was when the file was opened first."""
    if _is_elsewhere(dataset):
        raise ValueError(f"the data of {dataset.name} lie in other files")
    return dataset


def _is_packers(file: h5py.File) -> bool:
    """Tell whether packer wrote a file; libhdf5 reads no heap for that, as it would for a text of variable length."""
    attributes = file.attrs
    return bool(
        "format" in attributes and attributes.get_id("format").dtype == "S6" and attributes["format"] == b"packer"
    )


def _described(dataset: h5py.Dataset) -> str:
    return f"{dataset.dtype} {' x '.join(map(str, dataset.shape))}"


def _short(name: str, group: str) -> str:
    return name.removeprefix(f"{group}/") if group else name


def _plain(value: Any) -> Value:
    value = value.reshape(-1)[0] if isinstance(value, np.ndarray) else value
    return bytes(value) if isinstance(value, bytes) else value.item()


def _require_same(dataset: h5py.Dataset, number: int, image: Piece | Packed, file: Reading) -> None:
    """Raise ValueError where an image is not what libhdf5 reads: its place was understood wrongly."""
    if isinstance(image, Piece) and file.read(image.offset, image.size) != np.asarray(dataset[number]).tobytes():
        raise ValueError("libhdf5 reads other bytes than lie in its place")
