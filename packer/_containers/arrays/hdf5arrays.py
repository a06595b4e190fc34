"""HDF5 files of others: images in an array of bytes, or encoded ones as vectors of variable length.

Such as BigGAN's (``imgs``, ``labels``) and Fuel's (``encoded_images``, ``targets``, ``filenames``). libhdf5 says where
an array or its chunks lie, and samples are read there without it. Labels and other datasets of as many rows lie in the
same group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from packer._account import LEFT_OUT, Account, has_label_name
from packer._containers.arrays.hdf5columns import (
    Column,
    column_of,
    described,
    is_elsewhere,
    is_from_matlab,
    label_among,
)
from packer._containers.arrays.hdf5places import Heaps, rows_of
from packer._containers.arrays.pixelarrays import WANTED, matlab_layout, may_be_one_image, pixel_layout, undecided
from packer._containers.contract import Container, Entry, Packed, Piece, PixelLayout
from packer._containers.imagenames import suffix_of
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
_ONE_EACH = (
    "packer does not read that. Write each dataset to a file of its own, and convert the directory; or give the images "
    "to packer.pack"
)
_HEAD = 32  # bytes, by which an image is known
_IMAGES = ("encoded_images", "imgs", "images", "image", "data", "x", "binary_data")


@dataclass(eq=False)
class HDF5Arrays(Container):
    """One file of HDF5 that packer did not write.

    Attributes
    ----------
    group : str
        The group of the images.
    roles : Roles
        What the datasets become, by their names in the group; others begin with a slash.
    columns : dict of str to Column
        The datasets beside the images, by the same names.
    """

    kind = "hdf5"

    group: str = ""
    roles: Roles = field(default_factory=lambda: Roles("", None, None, {}))
    columns: dict[str, Column] = field(default_factory=dict)

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
            keys = {said: name.strip("/") for said, name in keys.items()}
            image = keys.get("image") or _image(datasets, where)
            if image not in datasets:
                raise SourceError(
                    f"{where}: no dataset {printable(image)!r}: there are {', '.join(map(printable, datasets))}"
                )
            container = cls.of_files(paths)
            container.group = image.rpartition("/")[0]
            container.columns = container._columns_beside(datasets, image, keys)
            container._find_roles(image, keys, where)
            if not _is_vlen(datasets[image]):
                container.pixels = container._layout(datasets, image, "image" in keys, where)[0]
            if "split" in file.attrs:
                container.notes.append("the attribute split is left out: samples of all splits are taken")
        container.fields, container.label_type = tuple(container.roles.fields.values()), container.roles.label_type
        return container

    def _columns_beside(
        self, datasets: Mapping[str, h5py.Dataset], image: str, keys: Mapping[str, str]
    ) -> dict[str, Column]:
        """Return the datasets of the images' group, and those that keys name, as columns; account for the others."""
        columns, count = {}, len(datasets[image])
        for name, one in datasets.items():
            inside = name.rpartition("/")[0] == self.group
            if name == image:
                continue
            if inside or name in keys.values():
                columns[self._short(name)] = column_of(name, one, count)
            elif has_label_name(name) and one.shape[0] == count and not keys:
                self.account.looks_like_labels("dataset", name, f"--key label={name}")
            else:
                self.account.not_looked_at("dataset", "it lies in another group than the images", [name])
        return columns

    def _find_roles(self, image: str, keys: Mapping[str, str], where: str) -> None:
        """Say what the columns become, and account for labels that are not taken."""
        types = {self._short(image): ColumnType("image"), **{name: one.type for name, one in self.columns.items()}}
        chosen = {said: self._short(name) for said, name in keys.items()}
        chosen = {**chosen, "image": self._short(image)} if keys else {}
        said = Account()
        self.roles = roles_of(types, chosen, where, said, label=label_among(self.columns))
        for item in said:
            if item.fate == LEFT_OUT:  # all else is known better here
                self.account.left_out("dataset", item.why, item.names, chosen=item.chosen)
        self.notes += self.roles.notes
        if self.roles.label is not None:
            self.account.candidates.clear()  # of other groups
            how = "the label, by the place of the 1" if self.columns[self.roles.label].is_one_hot else "the label"
            self.account.taken("dataset", how, [self.roles.label])
            return
        if keys:
            self.why_unlabeled = "no --key names their label"
            return
        for name, column in self.columns.items():
            if has_label_name(name):
                option = f"--key label={name}" if column.type.kind in ("scalar", "text") else ""
                why = column.type.why or f"has {column.type.kind}s and no labels" * (not option)
                self.account.looks_like_labels("dataset", name, option, why)

    def _layout(
        self, datasets: Mapping[str, h5py.Dataset], image: str, said: bool, where: str
    ) -> tuple[PixelLayout, int, int]:
        """Return how pixels lie; SourceError where the dataset has none, or nobody can tell."""
        dataset, of_many = datasets[image], self._counts_images(datasets, image, said)
        found = _layout_of(dataset, of_many) if dataset.dtype == np.uint8 else None
        if found is not None:
            return found
        what = f"{printable(image)} is {described(dataset)}"
        if dataset.dtype == np.uint8 and may_be_one_image(dataset.shape):
            raise SourceError(f"{where}: {what}, {undecided(dataset.shape)}")
        raise SourceError(f"{where}: {what}, and images are {WANTED}")

    def _counts_images(self, datasets: Mapping[str, h5py.Dataset], image: str, said: bool) -> bool:
        """Tell whether the first axis counts images: other datasets have as many rows, or a person named this one."""
        dataset = datasets[image]
        many = [one for one in datasets.values() if one.ndim < 3 and one.shape[0] == dataset.shape[0]]
        return bool(many) or (said and dataset.shape[-1] not in (1, 3, 4))

    def entries(self, unit: int) -> Iterator[Entry]:
        path = self.root / self.files[unit]
        with _opened(path) as h5, reading(path) as file:
            yield from self._entries(h5, file)

    def _entries(self, h5: h5py.File, file: Reading) -> Iterator[Entry]:
        dataset = h5[self._full(self.roles.image)]
        count, digits = len(dataset), len(str(len(dataset)))
        shape = None if self.pixels is None else _size(dataset, self.pixels)
        columns = {name: self._values(h5, name, file) for name in self.roles.wanted - {self.roles.image}}
        places, heaps = rows_of(dataset, file), Heaps(file)
        for number in range(count):
            try:
                place = next(places)
                image = place if shape is not None else heaps.piece(place)
                if number in (0, count - 1):
                    _require_same(dataset, number, image, file)
                values: dict[str, Value] = {name: next(column) for name, column in columns.items()}
                own = image.piece if isinstance(image, Packed) else image
                entry = self.roles.entry(f"{number:0{digits}d}", {**values, self.roles.image: own}, file.read, shape)
            except ValueError as error:
                raise SourceError(f"{file.path}: sample {number}: {printable(error)}") from error
            yield entry._replace(image=image)

    def _values(self, h5: h5py.File, name: str, file: Reading) -> Iterator[Value]:
        return self.columns[name].values(_within(h5[self._full(name)]), file)

    def _short(self, name: str) -> str:
        """Return a dataset's name within the group of the images; with a slash before it where it lies elsewhere."""
        if name.rpartition("/")[0] == self.group:
            return name.rpartition("/")[2]
        return f"/{name}"

    def _full(self, name: str) -> str:
        return name[1:] if name.startswith("/") else f"{self.group}/{name}" if self.group else name


def _layout_of(dataset: h5py.Dataset, of_many: bool = False) -> tuple[PixelLayout, int, int] | None:
    return (matlab_layout if is_from_matlab(dataset) else pixel_layout)(dataset.shape, of_many=of_many)


def _size(dataset: h5py.Dataset, layout: PixelLayout) -> tuple[int, int]:
    """Return height and width of images that lie so."""
    shape = dataset.shape
    if layout.order == "CWH":
        return shape[-1], shape[-2]
    return (shape[2], shape[3]) if layout.order == "CHW" else (shape[1], shape[2])


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
        if _is_vlen(one) or (one.dtype == np.uint8 and len(one.shape) > 2 and _layout_of(one) is not None)
    ]
    likely = [name for word in _IMAGES for name in found if name.rpartition("/")[2].lower() == word]
    if len(found) == 1 or len(likely) == 1:
        return (likely or found)[0]
    if not datasets:
        raise SourceError(f"{where}: no dataset of images in it. Where it has one dataset for each image, {_ONE_EACH}")
    if not found and (single := _one_an_image(datasets)):
        raise SourceError(f"{where}: has one dataset for each image, such as {printable(single)}: {_ONE_EACH}")
    unclear = [name for name, one in datasets.items() if one.dtype == np.uint8 and may_be_one_image(one.shape)]
    if not found and len(unclear) == 1:
        shape = datasets[unclear[0]].shape
        raise SourceError(f"{where}: {printable(unclear[0])} is {described(datasets[unclear[0]])}, {undecided(shape)}")
    what = f"several datasets of images, {', '.join(map(printable, found[:8]))}" if found else "no dataset of images"
    there = ", ".join(f"{printable(name)} ({described(one)})" for name, one in list(datasets.items())[:8])
    known = "" if found else f" ({WANTED}, or vectors of bytes), of {there}"
    raise SourceError(f"{where}: {what}{known}: say which with --key image=DATASET")


def _one_an_image(datasets: Mapping[str, h5py.Dataset]) -> str | None:
    """Return the name of a dataset that holds one image, encoded or as pixels; None without one."""
    pixels = [name for name, one in datasets.items() if one.dtype == np.uint8 and one.ndim in (2, 3)]
    if len(pixels) > 1:
        return pixels[0]
    for name, one in datasets.items():
        if one.dtype == np.uint8 and one.ndim == 1 and not is_elsewhere(one) and suffix_of(bytes(one[:_HEAD])):
            return name
    return None


def _is_vlen(dataset: h5py.Dataset) -> bool:
    import h5py

    return bool(dataset.ndim == 1 and h5py.check_vlen_dtype(dataset.dtype) == np.uint8)


def _within(dataset: h5py.Dataset) -> h5py.Dataset:
    """Return a dataset; ValueError where it is not what it was when the file was opened first."""
    if is_elsewhere(dataset):
        raise ValueError(f"the data of {dataset.name} lie in other files")
    return dataset


def _is_packers(file: h5py.File) -> bool:
    """Tell whether packer wrote a file; libhdf5 reads no heap for that, as it would for a text of variable length."""
    attributes = file.attrs
    return bool(
        "format" in attributes and attributes.get_id("format").dtype == "S6" and attributes["format"] == b"packer"
    )


def _require_same(dataset: h5py.Dataset, number: int, image: Piece | Packed, file: Reading) -> None:
    """Raise ValueError where an image is not what libhdf5 reads: its place was understood wrongly."""
    if isinstance(image, Piece) and file.read(image.offset, image.size) != np.asarray(dataset[number]).tobytes():
        raise ValueError("libhdf5 reads other bytes than lie in its place")
