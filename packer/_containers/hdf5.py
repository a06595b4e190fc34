"""Reads HDF5 files of other tools: images in an array of bytes, or encoded images as vectors of variable length.

The dataset names of BigGAN (``imgs``, ``labels``) and Fuel (``encoded_images``, ``targets``, ``filenames``) are known.
libhdf5 reports the location of an array or its chunks; packer then reads samples there directly, without libhdf5.
Labels and fields are other datasets in the same group, with the same number of rows. Tools store labels in many shapes:
N, N x 1, N x 1 x 1 x 1, 1 x N (MATLAB), one-hot N x C, and texts of fixed or variable length. packer converts all of
these to one value for each image.

A vector is stored as u32 length, u64 address of a heap, and u32 number of an object in the heap. A heap is ``GCOL``, u8
1, three bytes, u64 size, and its objects. An object is u16 number, u16 references, four bytes, u64 size, and its bytes,
padded to a multiple of eight.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._account import LEFT_OUT, Account
from packer._containers.arrays import WANTED, matlab_layout, may_be_one_image, pixel_layout, undecided
from packer._containers.blocks import ContainerFile, content_error, errors_in
from packer._containers.compression import MOST_UNPACKED
from packer._containers.contract import IMAGE_HEAD, Entry, Packed, Piece, PixelLayout, suffix_of
from packer._containers.roles import (
    NAMES,
    WIDER,
    ColumnContainer,
    ColumnType,
    Value,
    are_one_hot,
    are_whole,
    has_label_name,
    is_label_name,
)
from packer._fields import DTYPES
from packer._storage.packfile import PackFile
from packer.errors import MissingDependencyError, PackerError, PackError, SourceError, printable

if TYPE_CHECKING:
    import h5py

_DEFLATE, _SHUFFLE = 1, 2
_REMEDY = "Rewrite the file: h5repack -f NONE -l CONTI FILE NEW"
_VECTOR = struct.Struct("<IQI")
_HEAP = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_MOST_HEAPS = 64
_RATIO = 1032  # deflate makes data smaller by at most this factor
_FEW = 1024  # rows


def rows_of(dataset: h5py.Dataset, file: ContainerFile) -> Iterator[Piece | Packed | ValueError]:
    """Yield the location of each row of a dataset, or an error for a row in a chunk that is missing or damaged.

    If rows have variable length, the location is that of the row's reference into `Heaps`.

    Raises
    ------
    ValueError
        If rows are in other files, or a row is in several chunks; if the compression is not supported; or if most rows
        have no data.
    """
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"its data are in other files. {_REMEDY}")
    row = _VECTOR.size if is_text(dataset) else dataset.id.get_type().get_size()
    for length in dataset.shape[1:]:
        row *= length
    if dataset.chunks is not None:
        yield from _rows_of_chunks(dataset, file, row)
        return
    begin = dataset.id.get_offset()
    if begin is None:
        raise ValueError(f"its data are not stored contiguously in the file. {_REMEDY}")
    if begin + len(dataset) * row > file.size:
        raise ValueError(f"its data end at byte {begin + len(dataset) * row} of {file.size}: the file was cut short")
    for number in range(len(dataset)):
        yield Piece(0, begin + number * row, row)


def _rows_of_chunks(dataset: h5py.Dataset, file: ContainerFile, row: int) -> Iterator[Piece | Packed | ValueError]:
    per_chunk, *whole = dataset.chunks
    if tuple(whole) != dataset.shape[1:]:
        raise ValueError(f"chunks of {dataset.chunks} contain only parts of a sample. {_REMEDY}")
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    is_deflated = [number for number, code in enumerate(filters) if code == _DEFLATE]
    known = (_DEFLATE, _SHUFFLE) if dataset.dtype.itemsize == 1 else (_DEFLATE,)  # shuffling does not move single bytes
    if any(code not in known for code in filters) or len(is_deflated) > 1:
        raise ValueError(f"it is compressed in a way that packer does not read. {_REMEDY}")
    bad = 0
    for first in range(0, len(dataset), per_chunk):
        count = min(per_chunk, len(dataset) - first)
        chunk = dataset.id.get_chunk_info_by_coord((first, *(0 for _ in whole)))
        is_packed = bool(is_deflated) and not chunk.filter_mask >> is_deflated[0] & 1
        if problem := _chunk_problem(chunk, per_chunk * row, file.size, is_packed=is_packed):
            bad += count
            if 2 * bad > min(len(dataset), file.size) + _FEW:  # each would be listed as a bad image
                raise ValueError(problem)
            yield from (ValueError(problem) for _ in range(count))
            continue
        for number in range(count):
            if is_packed:
                piece = Piece(0, chunk.byte_offset, chunk.size)
                yield Packed(piece, "zlib", per_chunk * row, number * row, row)
            else:
                yield Piece(0, chunk.byte_offset + number * row, row)


def _chunk_problem(chunk: Any, size: int, end: int, *, is_packed: bool) -> str:
    """Return why a chunk of `size` bytes cannot be read from a file of `end` bytes; empty if there is no problem."""
    if chunk.byte_offset is None:
        return f"it was never written. {_REMEDY}"
    if chunk.byte_offset + chunk.size > end:
        return f"its chunk ends at byte {chunk.byte_offset + chunk.size} of {end}: it was cut short"
    if is_packed and size > min(MOST_UNPACKED, chunk.size * _RATIO):
        return f"{size} bytes are too many for a compressed chunk of {chunk.size}. {_REMEDY}"
    return f"a chunk has {chunk.size} bytes instead of {size}" if not is_packed and chunk.size < size else ""


def is_text(dataset: h5py.Dataset) -> bool:
    """Tell whether a dataset has texts of variable length; libhdf5 reports the size of a pointer for these texts."""
    import h5py

    found = h5py.check_string_dtype(dataset.dtype)
    return found is not None and found.length is None


class Heaps:
    """The global heaps of a file; each heap is parsed only once."""

    def __init__(self, file: ContainerFile) -> None:
        self._file = file
        self._known: dict[int, dict[int, Piece] | str] = {}  # by address; for a damaged heap, the reason

    def piece(self, vector: Piece | Packed) -> Piece:
        """Return the location of a vector's bytes; ValueError if the vector is empty or compressed."""
        if isinstance(vector, Packed) or vector.size != _VECTOR.size:
            raise ValueError(f"its offsets are compressed. {_REMEDY}")
        length, address, number = _VECTOR.unpack(self._file.read(vector.offset, vector.size))
        if not length:
            return Piece(0, 0, 0)
        found = self._heap(address).get(number)
        if found is None or found.size < length:
            raise ValueError(f"the heap at byte {address} has no object {number} of {length} bytes")
        return Piece(0, found.offset, length)

    def _heap(self, address: int) -> dict[int, Piece]:
        """Return the locations of a heap's objects; ValueError if the heap is damaged."""
        if address not in self._known:
            if len(self._known) >= _MOST_HEAPS:
                self._known.clear()
            try:
                self._known[address] = dict(self._objects(address))
            except ValueError as error:
                self._known[address] = str(error)
        known = self._known[address]
        if isinstance(known, str):
            raise ValueError(known)
        return known

    def _objects(self, address: int) -> Iterator[tuple[int, Piece]]:
        if address + _HEAP.size > self._file.size:
            raise ValueError(f"there is no heap at byte {address}")
        signature, version, size = _HEAP.unpack(self._file.read(address, _HEAP.size))
        end = address + size
        if signature != b"GCOL" or version != 1 or end > self._file.size:
            raise ValueError(f"there is no heap at byte {address}")
        at = address + _HEAP.size
        while at + _OBJECT.size <= end:
            number, _, length = _OBJECT.unpack(self._file.read(at, _OBJECT.size))
            at += _OBJECT.size
            if not number and at - _OBJECT.size + length == end:  # the free space
                return
            if not number or at + length > end:  # on which libhdf5 would loop forever
                raise ValueError(f"the heap at byte {address} is damaged at byte {at - _OBJECT.size}")
            yield number, Piece(0, at, length)
            at += -(-length // 8) * 8


_BLOCK = 1 << 12  # rows
_MOST_OF_A_BLOCK = 1 << 26  # bytes
_LONGEST = 1 << 14  # bytes of a text
_LARGEST_CHUNK = 1 << 28  # bytes, which libhdf5 unpacks at once
_MOST_AXES = 8


@dataclass(frozen=True)
class DatasetColumn:
    """A dataset that has a value for each of `count` images.

    Attributes
    ----------
    type : ColumnType
        The type of the values; its `kind` is empty if packer does not support the dataset.
    axis : int
        The number of the axis that counts images.
    is_one_hot : bool
        True if each image has a one-hot row; the image's value is then the index of the 1.
    is_whole : bool
        True if the values are floats, but all of them are whole numbers, or NaN for a missing value.
    """

    type: ColumnType
    axis: int = 0
    is_one_hot: bool = False
    is_whole: bool = False

    def blocks(self, dataset: h5py.Dataset) -> Iterator[npt.NDArray[Any] | list[ValueError]]:
        """Yield arrays, (rows, ...), with the values of all images in order; for rows in a damaged chunk, errors."""
        count = dataset.shape[self.axis]
        size = _block(dataset.dtype.itemsize * math.prod(dataset.shape) // max(1, count))
        for first in range(0, count, size):
            yield from self._between(dataset, first, min(first + size, count))

    def _between(self, dataset: h5py.Dataset, first: int, stop: int) -> Iterator[npt.NDArray[Any] | list[ValueError]]:
        """Do the same as `blocks` for images `first` to `stop` - 1."""
        try:
            taken = dataset[(slice(None),) * self.axis + (slice(first, stop),)]
        except OSError as error:
            chunk = dataset.chunks[self.axis] if dataset.chunks else stop
            middle = max((first + stop) // 2 // chunk, first // chunk + 1) * chunk
            if middle >= stop:  # all rows are in one chunk
                yield [ValueError(f"{dataset.name}: libhdf5 cannot read it: {error}")] * (stop - first)
                return
            yield from self._between(dataset, first, middle)
            yield from self._between(dataset, middle, stop)
            return
        rows = np.moveaxis(np.asarray(taken), self.axis, 0)
        yield rows if self.type.kind == "array" or self.is_one_hot else rows.reshape(len(rows), -1)[:, 0]

    def values(self, dataset: h5py.Dataset, file: ContainerFile) -> Iterator[Value | ValueError]:
        """Yield the value of each image, or the error for this value; ValueError if no values can be read."""
        if self.type.kind == "text" and is_text(dataset):
            yield from _texts(dataset, file)
            return
        for block in self.blocks(dataset):
            yield from map(self._value, block)

    def _value(self, value: Any) -> Value | ValueError:
        if isinstance(value, ValueError):
            return value
        if self.is_one_hot:
            return int(np.argmax(value))
        if self.type.kind == "array":
            return np.ascontiguousarray(value)
        if isinstance(value, bytes):
            return bytes(value)
        if self.is_whole:
            return None if np.isnan(value) else int(value)
        return value.item()  # type: ignore[no-any-return]


def _block(row: int) -> int:
    """Return how many rows of `row` bytes are read together."""
    return max(1, min(_BLOCK, _MOST_OF_A_BLOCK // max(1, row)))


def column_of(name: str, dataset: h5py.Dataset, count: int) -> DatasetColumn:
    """Describe how a dataset gives a value to each of `count` images. A dataset named like labels may be one-hot."""
    axis = _axis(dataset, count)
    if axis is None:
        rows = f"{dataset.shape[0]:,} rows for {count:,} images"
        return DatasetColumn(ColumnType("", why=f"is {described(dataset)}, {rows}"))
    if is_elsewhere(dataset):
        return DatasetColumn(ColumnType("", why="has its data in other files"))
    if dataset.dtype.itemsize * max(1, math.prod(dataset.chunks or ())) > _LARGEST_CHUNK:
        return DatasetColumn(ColumnType("", why=f"has chunks of {dataset.chunks}"))
    if math.prod(dataset.shape) == count:
        return _of_labels(DatasetColumn(_of_one(dataset), axis), name, dataset)
    return _of_labels(DatasetColumn(_of_several(dataset), axis), name, dataset)


def label_among(columns: Mapping[str, DatasetColumn]) -> str | None:
    """Return the column named like labels, if there is exactly one; otherwise None."""
    able = [name for name, column in columns.items() if column.type.kind in ("scalar", "text")]
    for is_name in (is_label_name, has_label_name):
        if found := [name for name in able if is_name(name)]:
            return found[0] if len(found) == 1 else None
    return None


def is_elsewhere(dataset: h5py.Dataset) -> bool:
    """Tell whether reading a dataset makes libhdf5 open other files."""
    return bool(dataset.external or dataset.is_virtual)


def is_from_matlab(dataset: h5py.Dataset) -> bool:
    """Tell whether MATLAB wrote a dataset; if so, HDF5 lists its axes in reverse order."""
    return "MATLAB_class" in dataset.attrs


def described(dataset: h5py.Dataset) -> str:
    """Describe a dataset's dtype and shape for messages."""
    return f"{dataset.dtype} {' x '.join(map(str, dataset.shape))}"


def _axis(dataset: h5py.Dataset, count: int) -> int | None:
    """Return the number of the axis that counts images; None if there is no such axis.

    This is the first axis. In a file of MATLAB it may be any axis, if all other axes have the length 1.
    """
    if dataset.shape[0] == count:
        return 0
    if is_from_matlab(dataset) and math.prod(dataset.shape) == count:
        return int(dataset.shape.index(count))
    return None


def _of_one(dataset: h5py.Dataset) -> ColumnType:
    """Return the type of a dataset with one value per image."""
    kind, size = dataset.dtype.kind, dataset.dtype.itemsize
    if kind in "iu" or (kind == "f" and size in (2, 4, 8)):
        return ColumnType("scalar", {"f2": "float32", "f4": "float32", "f8": "float64"}.get(f"{kind}{size}", "int64"))
    if kind == "b":
        return ColumnType("scalar", "bool")
    if is_text(dataset) or (kind == "S" and size <= _LONGEST):
        return ColumnType("text")
    return ColumnType("", why=f"is {described(dataset)}")


def _of_several(dataset: h5py.Dataset) -> ColumnType:
    """Return the type of a dataset with several numbers per image."""
    dtype = WIDER.get(dataset.dtype.name, dataset.dtype.name)
    row = dataset.dtype.itemsize * math.prod(dataset.shape[1:])
    if dtype not in DTYPES or dataset.ndim - 1 > _MOST_AXES or row > _MOST_OF_A_BLOCK:
        return ColumnType("", why=f"is {described(dataset)}")
    return ColumnType("array", dtype, dataset.ndim - 1)


def _of_labels(column: DatasetColumn, name: str, dataset: h5py.Dataset) -> DatasetColumn:
    """Return the column; whole floats and one-hot rows become class ids if the dataset is named like labels."""
    if not has_label_name(name):
        return column
    type, blocks = column.type, (block for block in column.blocks(dataset) if isinstance(block, np.ndarray))
    if type.kind == "scalar" and type.dtype.startswith("float"):
        whole, gaps = are_whole(blocks)
        if whole and (gaps or is_from_matlab(dataset)):  # MATLAB stores numbers as doubles
            return replace(column, type=ColumnType("scalar", "int64"), is_whole=True)
    elif type.kind == "array" and type.rank == 1 and are_one_hot(blocks):
        return replace(column, type=ColumnType("scalar", "int64"), is_one_hot=True)
    return column


def _texts(dataset: h5py.Dataset, file: ContainerFile) -> Iterator[bytes | ValueError]:
    """Yield each text of variable length; for a text that is damaged or too long, yield an error instead.

    A text is in a heap, so its length is known before the text is read.
    """
    heaps = Heaps(file)
    for number, piece in enumerate(rows_of(dataset, file)):
        try:
            if isinstance(piece, ValueError):
                raise piece
            if isinstance(piece, Piece):
                text = heaps.piece(piece)
                _require_modest(text.size)
                data = file.read(text.offset, text.size)
            else:
                data = bytes(dataset[(number,) + (0,) * (dataset.ndim - 1)])
                _require_modest(len(data))
        except ValueError as error:
            yield error
        except OSError as error:
            yield ValueError(f"{dataset.name}: libhdf5 cannot read it: {error}")
        else:
            yield data


def _require_modest(size: int) -> None:
    if size > _LONGEST:
        raise ValueError(f"a text of {size:,} bytes is too long")


_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BEGINNINGS = (0, 512, 1024, 2048)  # offsets of the signature: MATLAB writes a header of its own before it
_MOST_AT_ONCE = 1 << 26  # bytes that libhdf5 reads at once
_MOST_OBJECTS, _DEEPEST = 1000, 4
_ONE_EACH = (
    "packer does not read this layout. Write each dataset to its own image file, and convert the "
    "directory; or pass the images to packer.pack"
)


@dataclass(eq=False)
class HDF5Arrays(ColumnContainer):
    """An HDF5 file that packer did not write.

    Attributes
    ----------
    group : str
        The group of the images.
    columns : dict of str to DatasetColumn
        The other datasets, by name. Names are relative to the group of the images; datasets outside of the group have a
        leading slash.
    """

    kind = "hdf5"

    group: str = ""
    columns: dict[str, DatasetColumn] = field(default_factory=dict)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if not any(head.startswith(_SIGNATURE, begin) for begin in _BEGINNINGS):
            return False
        try:
            with _opened(path) as file:
                return not is_packers(file)
        except (SourceError, MissingDependencyError):
            return False

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> HDF5Arrays:
        if len(paths) > 1:
            raise SourceError(f"{printable(paths[1])}: convert HDF5 files one at a time")
        path, where = paths[0], printable(paths[0])
        with _opened(path) as file:
            datasets = dict(_datasets(file, "", 0, set()))
            keys = {role: name.strip("/") for role, name in keys.items()}
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
                container.pixels = container._layout(datasets, image, "image" in keys, where)
            if "split" in file.attrs:
                container.notes.append("the attribute split is ignored: samples of all splits are read")
        return container

    def _columns_beside(
        self, datasets: Mapping[str, h5py.Dataset], image: str, keys: Mapping[str, str]
    ) -> dict[str, DatasetColumn]:
        """Return columns for the datasets in the images' group, and for other datasets that `keys` names.

        All remaining datasets are recorded in the container's account.
        """
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
                self.account.not_looked_at("dataset", "it is in another group than the images", [name])
        return columns

    def _find_roles(self, image: str, keys: Mapping[str, str], where: str) -> None:
        """Choose the roles of columns; record in the account the columns that look like labels but were not chosen."""
        types = {self._short(image): ColumnType("image"), **{name: one.type for name, one in self.columns.items()}}
        chosen = {role: self._short(name) for role, name in keys.items()}
        chosen = {**chosen, "image": self._short(image)} if keys else {}
        account = Account()
        self.choose_roles(types, chosen, where, label=label_among(self.columns), account=account)
        self.why_unlabeled = "no --key names their label" if keys else "they have no label"
        for item in account:
            if item.fate == LEFT_OUT:  # everything else is already known here
                self.account.left_out("dataset", item.why, item.names, chosen=item.chosen)
        if self.label is not None:
            self.account.candidates.clear()  # those in other groups
            how = "the label: the index of the 1" if self.columns[self.label].is_one_hot else "the label"
            self.account.taken("dataset", how, [self.label])
            return
        for name, column in self.columns.items() if not keys else ():
            if has_label_name(name):
                option = f"--key label={name}" if column.type.kind in ("scalar", "text") else ""
                why = column.type.why or f"contains {column.type.kind}s, not labels" * (not option)
                self.account.looks_like_labels("dataset", name, option, why)

    def _layout(self, datasets: Mapping[str, h5py.Dataset], image: str, chosen: bool, where: str) -> PixelLayout:
        """Return the pixel layout of a dataset.

        Raise SourceError if the dataset has no images, or its layout is ambiguous.
        """
        dataset, of_many = datasets[image], self._counts_images(datasets, image, chosen)
        found = _layout_of(dataset, of_many) if dataset.dtype == np.uint8 else None
        if found is not None:
            return found[0]
        what = f"{printable(image)} is {described(dataset)}"
        if dataset.dtype == np.uint8 and may_be_one_image(dataset.shape):
            raise SourceError(f"{where}: {what}, {undecided(dataset.shape)}")
        raise SourceError(f"{where}: {what}; images must be {WANTED}")

    def _counts_images(self, datasets: Mapping[str, h5py.Dataset], image: str, chosen: bool) -> bool:
        """Tell whether the first axis counts images.

        It does if other datasets have the same length. It also does if the user chose the dataset, unless the last axis
        may count channels.
        """
        dataset = datasets[image]
        many = [one for one in datasets.values() if one.ndim < 3 and one.shape[0] == dataset.shape[0]]
        return bool(many) or (chosen and dataset.shape[-1] not in (1, 3, 4))

    def entries(self, unit: int) -> Iterator[Entry]:
        with _opened(self.root / self.files[unit]) as h5, self.reading(unit) as file:
            yield from self._entries(h5, file)

    def _entries(self, h5: h5py.File, file: ContainerFile) -> Iterator[Entry]:
        dataset = h5[self._full(self.image)]
        count, digits = len(dataset), len(str(len(dataset)))
        shape = None if self.pixels is None else _size(dataset, self.pixels)
        columns = {name: self._values(h5, name, file) for name in self.used - {self.image}}
        pieces, heaps = rows_of(dataset, file), Heaps(file)
        for number in range(count):
            name, where = f"{number:0{digits}d}", f"sample {number}"
            try:  # faster than `errors_in`
                piece = next(pieces)
                values = {column: next(of_column) for column, of_column in columns.items()}
            except ValueError as error:
                raise content_error(f"{file.path}: {where}", error) from error
            try:
                if isinstance(piece, ValueError):
                    raise piece
                image = piece if shape is not None else heaps.piece(piece)
                usable = {column: _usable(value) for column, value in values.items()}
                usable[self.image] = image.piece if isinstance(image, Packed) else image
                entry = self.entry(name, usable, file.read, shape)
            except ValueError as error:
                yield Entry(name, b"", problem=f"{where}: {printable(error)}")
                continue
            if number in (0, count - 1):
                with errors_in(f"{file.path}: {where}"):
                    _require_same(dataset, number, image, file)
            yield entry._replace(image=image)

    def _values(self, h5: h5py.File, name: str, file: ContainerFile) -> Iterator[Value | ValueError]:
        return self.columns[name].values(_within(h5[self._full(name)]), file)

    def _short(self, name: str) -> str:
        """Return a dataset's name in the group of the images; outside of the group, its path with a leading slash."""
        if name.rpartition("/")[0] == self.group:
            return name.rpartition("/")[2]
        return f"/{name}"

    def _full(self, name: str) -> str:
        return name[1:] if name.startswith("/") else f"{self.group}/{name}" if self.group else name


def _layout_of(dataset: h5py.Dataset, of_many: bool = False) -> tuple[PixelLayout, int, int] | None:
    return (matlab_layout if is_from_matlab(dataset) else pixel_layout)(dataset.shape, of_many=of_many)


def _size(dataset: h5py.Dataset, layout: PixelLayout) -> tuple[int, int]:
    """Return height and width of the images in an array with this layout."""
    shape = dataset.shape
    if layout.order == "CWH":
        return shape[-1], shape[-2]
    return (shape[2], shape[3]) if layout.order == "CHW" else (shape[1], shape[2])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open a file with libhdf5, and let libhdf5 read it through packer's own file object, in small pieces."""
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            f"{printable(path)}: reading HDF5 needs h5py (pip install h5py): {error}"
        ) from error
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
    """Yield the datasets of a group that are in the file itself, with their paths; skip groups with too many members.

    Links may form cycles, so a group can have several paths; only the first path is followed.
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
    likely = [name for word in NAMES["hdf5"].images for name in found if name.rpartition("/")[2].lower() == word]
    if len(found) == 1 or len(likely) == 1:
        return (likely or found)[0]
    if not datasets:
        raise SourceError(f"{where}: contains no dataset of images. If it has one dataset for each image, {_ONE_EACH}")
    if not found and (single := _one_an_image(datasets)):
        raise SourceError(f"{where}: has one dataset for each image, such as {printable(single)}: {_ONE_EACH}")
    unclear = [name for name, one in datasets.items() if one.dtype == np.uint8 and may_be_one_image(one.shape)]
    if not found and len(unclear) == 1:
        shape = datasets[unclear[0]].shape
        raise SourceError(f"{where}: {printable(unclear[0])} is {described(datasets[unclear[0]])}, {undecided(shape)}")
    what = f"several datasets of images ({', '.join(map(printable, found[:8]))})" if found else "no dataset of images"
    there = ", ".join(f"{printable(name)} ({described(one)})" for name, one in list(datasets.items())[:8])
    known = "" if found else f" ({WANTED}, or vectors of bytes) among {there}"
    raise SourceError(f"{where}: {what}{known}: choose one with --key image=DATASET")


def _one_an_image(datasets: Mapping[str, h5py.Dataset]) -> str | None:
    """Return the name of a dataset that holds a single image, encoded or as pixels; None if there is none."""
    pixels = [name for name, one in datasets.items() if one.dtype == np.uint8 and one.ndim in (2, 3)]
    if len(pixels) > 1:
        return pixels[0]
    for name, one in datasets.items():
        if one.dtype == np.uint8 and one.ndim == 1 and not is_elsewhere(one) and suffix_of(bytes(one[:IMAGE_HEAD])):
            return name
    return None


def _is_vlen(dataset: h5py.Dataset) -> bool:
    import h5py

    return bool(dataset.ndim == 1 and h5py.check_vlen_dtype(dataset.dtype) == np.uint8)


def _usable(value: Value | ValueError) -> Value:
    if isinstance(value, ValueError):
        raise value
    return value


def _within(dataset: h5py.Dataset) -> h5py.Dataset:
    """Return a dataset; ValueError if its data are in other files.

    `open` refuses such datasets, but the file may have changed since then.
    """
    if is_elsewhere(dataset):
        raise ValueError(f"the data of {dataset.name} are in other files")
    return dataset


def is_packers(file: h5py.File) -> bool:
    """Tell whether packer wrote a file, without reading texts of variable length (which are in heaps)."""
    attributes = file.attrs
    return bool(
        "format" in attributes and attributes.get_id("format").dtype == "S6" and attributes["format"] == b"packer"
    )


def _require_same(dataset: h5py.Dataset, number: int, image: Piece | Packed, file: ContainerFile) -> None:
    """Raise ValueError if libhdf5 reads other bytes for an image than packer: then packer computed a wrong range."""
    if isinstance(image, Piece) and file.read(image.offset, image.size) != np.asarray(dataset[number]).tobytes():
        raise ValueError("libhdf5 reads other bytes than those at its offset")
