"""The interface of a container, which finds the samples in the files of another tool.

The author of a container writes one class, whose `entries` list samples in the order in which the container's own tools
read them. `packer._containers.listing` collects these entries in columns. Sources, indexes and datasets are built from
the columns.

Authors also find here `Chosen`, which holds the keys that the user chose with ``--key``, and functions that name
unnamed images.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._account import Account
from packer._codecs import IMAGE_SUFFIXES
from packer._containers.blocks import ContainerFile, reading, source_errors
from packer._fields import KINDS, OF_SCALARS, RESERVED, Field, Stored, declared_field
from packer._storage.packfile import PackFile
from packer._storage.safe_open import PointerError, StrangeFileError, cause_of, open_regular
from packer._storage.stamps import ABOUT_THE_FILE
from packer._table import Buffer, Ints
from packer.errors import OptionError, SourceError, printable

if TYPE_CHECKING:
    from typing_extensions import Self

HEAD = 4096
"""The number of leading bytes of a file that are used to recognise its container."""

IMAGE_HEAD = 32
"""The number of leading bytes of an image that are used to recognise its type."""


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file; empty if the file is not regular, or cannot be read.

    Raise SourceError if the file is only a Git LFS pointer.
    """
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(HEAD)
    except PointerError as error:
        raise SourceError(f"{printable(path)}: {error.strerror}") from error
    except StrangeFileError:
        return b""
    except OSError as error:
        if error.errno not in ABOUT_THE_FILE:
            raise SourceError(f"{printable(path)}: reading failed: {cause_of(error)}") from error
        return b""


def natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value: ``part-2`` before ``part-10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split("([0-9]+)", str(path))]


def files_in(path: Path, names: Collection[str], is_of: Callable[[str], bool]) -> list[Path]:
    """Return the files in a directory whose names `is_of` accepts, ordered by the numbers in their names.

    The result is empty if the directory also contains directories or images, because packer then reads the directory
    as an image folder.
    """
    found = sorted((path / name for name in names if is_of(name) and os.path.isfile(path / name)), key=natural)
    if not found or any(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return []
    return [] if any(os.path.isdir(path / name) and not name.startswith(".") for name in names) else found


NO_CRC = -1


class Piece(NamedTuple):
    """A range of bytes in a container's file: the file's number in `Container.files`, the offset and the size."""

    file: int
    offset: int
    size: int


class Packed(NamedTuple):
    """Bytes in a compressed range of a file: all or some bytes of the unpacked range.

    Attributes
    ----------
    piece : Piece
        The compressed range.
    codec : str
        One of `CODECS`.
    unpacked : int
        The size of the unpacked range, at most `MOST_UNPACKED`.
    offset, size : int
        The offset and the size of the bytes in the unpacked range.
    crc32 : int
        The CRC-32 of the unpacked range; -1 if unknown.
    """

    piece: Piece
    codec: str
    unpacked: int
    offset: int
    size: int
    crc32: int = NO_CRC

    @classmethod
    def whole(cls, piece: Piece, codec: str, unpacked: int, crc32: int = NO_CRC) -> Packed:
        """Return the `Packed` that covers the whole unpacked range."""
        return cls(piece, codec, unpacked, 0, unpacked, crc32)


class Named(NamedTuple):
    """A label that gives both the id and the name of a class."""

    id: int
    name: str


class Seal(NamedTuple):
    """A checksum that a file stores for a range of its bytes. The range contains the image."""

    offset: int
    size: int
    checksum: int


class Entry(NamedTuple):
    """One sample of a container.

    Attributes
    ----------
    name : str
        A relative path with forward slashes and the suffix of the image's type. Names are unique within one file of the
        container.
    image : Piece, Packed or bytes
        The encoded image; or, if `shape` is set, the pixels. A `Piece` if the image is a single range of a file, a
        `Packed` if it is a part of one compressed range, otherwise bytes.
    label : int, float, str, Named or None
        A class id, a class name, or both (`Named`). A number if the container's `label_type` is ``"int"`` or
        ``"float"``. None for a sample without a label.
    values : mapping
        The values of fields, by name. A value is a range with the bytes that a pack stores, or the encoded value from
        `Field.encode`. A field that is not in the mapping has no value.
    shape : (height, width), optional
        The size of an image that is stored as pixels in the container's `PixelLayout`. A container in which only some
        images have a shape can be converted but not indexed.
    seal : Seal, optional
        The checksum that the file stores for the image, if the container is `sealed` and the image is a `Piece`. packer
        compares this checksum whenever it reads the whole image.
    problem : str
        The reason why the sample cannot be used, such as ``its image is null``. A sample with a problem raises an
        error; with ``--on-error skip`` the sample is left out and listed by name. Its `image` may be empty bytes.
    """

    name: str
    image: Piece | Packed | bytes
    label: int | float | str | Named | None = None
    values: Mapping[str, Piece | Packed | Stored] = {}
    shape: tuple[int, int] | None = None
    seal: Seal | None = None
    problem: str = ""


@dataclass(frozen=True)
class PixelLayout:
    """How the pixels of an image are arranged in a range; each channel has one byte.

    Attributes
    ----------
    order : {"HWC", "CHW", "CWH"}
        ``HWC``: pixel by pixel. ``CHW``: plane by plane. ``CWH``: plane by plane, each plane column by column, as in
        MATLAB.
    channels : {"RGB", "BGR", "L"}
    """

    order: str = "HWC"
    channels: str = "RGB"

    def __post_init__(self) -> None:
        if self.order not in ("HWC", "CHW", "CWH") or self.channels not in ("RGB", "BGR", "L"):
            raise ValueError(f"{self.channels} channels in the order {self.order} are not supported")

    def size(self, height: int, width: int) -> int:
        """Return the size of an image in bytes."""
        return height * width * len(self.channels)

    def rgb(self, data: Buffer, height: int, width: int) -> npt.NDArray[np.uint8]:
        """Return the (height, width, 3) RGB pixels, row by row; ValueError if `data` has a wrong size."""
        pixels = np.frombuffer(data, np.uint8)
        if self.order == "CHW":
            pixels = pixels.reshape(len(self.channels), height, width).transpose(1, 2, 0)
        elif self.order == "CWH":
            pixels = pixels.reshape(len(self.channels), width, height).transpose(2, 1, 0)
        pixels = pixels.reshape(height, width, len(self.channels))
        if self.channels == "L":
            return np.repeat(pixels, 3, axis=2)
        return np.ascontiguousarray(pixels[..., ::-1] if self.channels == "BGR" else pixels)

    def to_json(self) -> dict[str, str]:
        """Return the layout in the form that a manifest stores."""
        return {"order": self.order, "channels": self.channels}


@dataclass(eq=False)
class Container(abc.ABC):
    """The open files of one tool; `entries` lists the samples in them.

    Attributes
    ----------
    root : Path
        An absolute directory.
    files : sequence of str
        The files of the samples, relative to `root`, with forward slashes; `Piece.file` is an index into them.
    fields : tuple of Field
        The fields of samples, other than image and label.
    classes : sequence of str, optional
        The class names in the order of their ids, if the container has them.
    label_type : {"class", "int", "float"}
        The type of the labels.
    pixels : PixelLayout, optional
        The layout of the pixels, if the images are stored as pixels.
    notes : list of str
        Notes for the user.
    about : tuple of dict
        Data that do not belong to a single sample, such as licenses; a manifest stores them as `about`.
    directories_are_classes : bool
        True if each image's directory is its class. As in ImageFolder, class ids are assigned only when all directories
        are known.
    doubts : dict of str to str
        Reasons why samples may be missing, by file name. `entries` adds to them.
    account : Account
        Records the roles of members, columns and keys, and the samples that were left out. `open` and `entries` fill
        the account.
    retracted : dict of (int, int) to str
        Reasons why samples that `entries` has yielded cannot be used after all, by the file number and the offset of
        their images. `entries` adds to them.
    why_unlabeled : str
        The reason why samples have no label.
    sidecars : int
        How many entries at the end of `files` are files without samples: files of labels, offsets or class names.
    """

    kind: ClassVar[str]
    """The container's name in manifests and messages."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """The suffixes, in lower case, by which the container's files are found in a directory."""

    units_are_files: ClassVar[bool] = True
    """Whether part number i, which can be listed separately, is file number i."""

    sealed: ClassVar[bool] = False
    """Whether the container's files store checksums of samples, so that an `Entry` may have a `seal`."""

    labels_are_ids: ClassVar[bool] = False
    """Whether labels that are numbers are class ids if most of them can be. Then a sample with a larger one is bad."""

    root: Path
    files: Sequence[str]
    fields: tuple[Field, ...] = ()
    classes: Sequence[str] | None = None
    label_type: str = "class"
    pixels: PixelLayout | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    about: tuple[Mapping[str, Any], ...] = ()
    directories_are_classes: bool = False
    doubts: dict[str, str] = dataclasses.field(default_factory=dict)
    account: Account = dataclasses.field(default_factory=Account)
    retracted: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    why_unlabeled: str = "they have no label"
    sidecars: int = 0

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        """Tell whether a file belongs to this container, by its first `HEAD` bytes or its name.

        The default implementation accepts files with one of the `suffixes`, for file types without a signature.
        """
        return path.name.lower().endswith(cls.suffixes)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        """Return the paths to pass to `open` for a directory with these entries; None for a directory of another kind.

        By default, return all files of the directory with one of the `suffixes`, as `files_in` does. The caller refuses
        files of several splits.
        """
        found = files_in(path, names, lambda name: name.lower().endswith(cls.suffixes))
        return found if found and cls.recognise_file(found[0], head_of(found[0])) else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Container:
        """Open a container; the default implementation supports no keys.

        Only the structure of every file is read; samples are not listed yet.

        Parameters
        ----------
        paths : sequence of Path
            The absolute paths of the source: one file or directory, or several files, as recognised by the registry.
        keys : mapping of str to str
            The options ``--key NAME[:KIND]=KEY``, as a mapping from NAME[:KIND] to KEY. NAME is ``image``, ``label``,
            ``name``, or the name of a field; KEY is the container's own key for it. `Chosen.of` parses the options. If
            `keys` is empty, every value of a sample becomes a field, or `notes` has the reason why the value is left
            out.

        Raises
        ------
        SourceError
            If the files are not of this container after all, or a key does not exist.
        OptionError
            If the container does not support keys, or a key does not make a valid field.
        MissingDependencyError
            If a library is missing.
        """
        no_keys(cls.kind, keys)
        return cls.of_files(paths)

    @classmethod
    def of_files(cls, paths: Sequence[Path], sidecars: Sequence[Path] = (), **members: Any) -> Self:
        """Create a container of these files, with paths relative to their common directory."""
        files = [*paths, *sidecars]
        root = Path(os.path.commonpath([path.parent for path in files]))
        names = [path.relative_to(root).as_posix() for path in files]
        return cls(root, names, sidecars=len(sidecars), **members)

    @staticmethod
    def checksum(data: Buffer) -> int:
        """Compute the checksum of bytes with the algorithm of the container's files; only for `sealed` containers."""
        raise NotImplementedError

    @property
    def units(self) -> int:
        """The number of parts of the container that can be listed separately; by default its files with samples."""
        return len(self.files) - self.sidecars

    def opened(self, unit: int) -> PackFile:
        """Open the file of a part; SourceError if it cannot be opened."""
        with source_errors():
            return PackFile(self.root / self.files[unit])

    def reading(self, unit: int) -> AbstractContextManager[ContainerFile]:
        """Open the file of a part for reading in blocks; SourceError if it cannot be opened."""
        return reading(self.root / self.files[unit])

    @abc.abstractmethod
    def entries(self, unit: int) -> Iterator[Entry]:
        """Yield the samples of one part, in order, in bounded memory.

        A sample that cannot be used is yielded with its `problem`, so that the other samples remain usable. No value of
        a file is trusted: a length beyond the end of the file or a cycle in a tree raises a SourceError that names the
        file and the offset in it.

        Raises
        ------
        SourceError
            If the file is damaged or cut short, so that its other samples cannot be found; or if it is not clear which
            parts of the file are samples. The error names the remedy.
        """


def no_keys(kind: str, keys: Mapping[str, str]) -> None:
    """For containers that do not support keys: raise OptionError if there are any."""
    if keys:
        raise OptionError(f"--key applies only to containers whose samples have keys; {kind} has no keys")


_CLOSE, _TOGETHER = 1 << 12, 1 << 20  # bytes: the largest gap between samples that are read together, the largest read


@dataclass(frozen=True, eq=False)
class Ranges:
    """The locations of values in the files of a container.

    Attributes
    ----------
    file, offset, size : (N,) int64 arrays
        The number of the file, the offset of the value in this file, and the size of the value; the size is -1 for a
        missing value. File numbers after the last file are those of compressed ranges. A negative file number ``~n``
        marks a value from file n that was copied to `Listing.copied`, because it is not a single range of the file.
    """

    file: Ints
    offset: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.size)

    def taken(self, rows: slice | Ints) -> Ranges:
        """Return the ranges of the given rows only, in the order of `rows`."""
        return Ranges(self.file[rows], self.offset[rows], self.size[rows])


@dataclass(frozen=True, eq=False)
class Seals:
    """The checksums that a container's files store for their bytes, one for each sample.

    Attributes
    ----------
    offset, size : (N,) int64 arrays
        The range of the image's file that the checksum covers; the range includes the image. -1 without a checksum.
    checksum : (N,) int64 array
    of : callable
        Returns the checksum of bytes.
    """

    offset: Ints
    size: Ints
    checksum: Ints
    of: Callable[[Buffer], int]

    def taken(self, rows: slice | Ints) -> Seals:
        """Return these checksums, limited to the given rows."""
        return Seals(self.offset[rows], self.size[rows], self.checksum[rows], self.of)

    def runs(self, files: Ints) -> Iterator[tuple[int, int, int, list[int]]]:
        """Yield each range to read with one call: its file, offset and size, and the rows in it.

        `files` has the file of each row. Neighbouring ranges are merged into one.
        """
        there = np.flatnonzero(self.size >= 0)
        order = there[np.lexsort((self.offset[there], files[there]))]
        columns = np.stack([order, files[order], self.offset[order], self.size[order]], 1)
        run: list[int] = []
        of = begin = end = -1
        for row, file, offset, size in columns.tolist():
            if file != of or offset - end > _CLOSE or offset + size - begin > _TOGETHER:
                if run:
                    yield of, begin, end - begin, run
                run, of, begin, end = [], file, offset, offset
            run.append(row)
            end = max(end, offset + size)
        if run:
            yield of, begin, end - begin, run


_SUFFIXES = {
    ".jpg": re.compile(rb"\xff\xd8\xff"),
    ".png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    ".webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    ".bmp": re.compile(rb"BM"),
    ".gif": re.compile(rb"GIF8[79]a"),
    ".tif": re.compile(rb"II\*\0|MM\0\*"),
}

_ENDINGS = (*_SUFFIXES, ".jpeg", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")


def suffix_of(head: bytes) -> str:
    """Return the file suffix for an image that begins with these bytes; empty if packer does not recognise the type."""
    return next((suffix for suffix, signature in _SUFFIXES.items() if signature.match(head)), "")


def suffix_at(read: Callable[[int, int], bytes], offset: int, size: int) -> str:
    """Read the first bytes of a range with `read`, and return the suffix for its image; see `suffix_of`."""
    return suffix_of(read(offset, min(IMAGE_HEAD, size)))


def image_name(name: str, suffix: str) -> str:
    """Return the name of an image; `suffix` is added to a name without the suffix of an image."""
    return name if is_image_name(name) else name + suffix


def is_image_name(name: str) -> bool:
    """Tell whether a name ends with the suffix of an image type."""
    return name.lower().endswith(_ENDINGS)


_ROLES = ("image", "label", "name")


class ChosenField(NamedTuple):
    """A field that the user chose.

    Attributes
    ----------
    name : str
    kind : str
        A kind of field, or the dtype of a scalar; empty if the option gives no kind.
    key : str
        The container's own key.
    """

    name: str
    kind: str
    key: str

    def __str__(self) -> str:
        return f"--key {self.name}{':' * bool(self.kind)}{self.kind}={self.key}"

    def of_kind(self) -> Field:
        """Return the field that the kind describes; ValueError if the kind alone does not determine the field."""
        if self.kind == "scalar":
            raise ValueError(f"state its dtype, such as --key {self.name}:int64={self.key}: {', '.join(OF_SCALARS)}")
        if self.kind == "array":
            raise ValueError("its values are not arrays")
        return declared_field(self.name, self.kind)


def field_name(key: str, taken: Collection[str]) -> str:
    """Return a field name for a container's key, different from the names in `taken`."""
    name = re.sub(r"\W|^(?=[0-9])", "_", key, flags=re.ASCII)[:56] or "_"
    name += "_" * (name in RESERVED)
    numbers = itertools.count(2)
    unique = name
    while unique in taken:
        unique = f"{name}_{next(numbers)}"
    return unique


def parse_keys(texts: Iterable[str]) -> dict[str, str]:
    """Parse options ``NAME[:KIND]=KEY`` into a dict from NAME[:KIND] to KEY; OptionError if an option is malformed."""
    keys: dict[str, str] = {}
    for text in texts:
        name, sign, key = text.partition("=")
        if not (name and sign and key):
            raise OptionError(f"--key {text}: expected NAME=KEY or NAME:KIND=KEY, such as image=image/encoded")
        if name in keys:
            raise OptionError("--key gives one name twice")
        keys[name] = key
    return keys


@dataclass(frozen=True)
class Chosen:
    """The keys that the user chose; everything else in a sample is left out.

    Attributes
    ----------
    image, label, name : str, optional
        The container's keys of the image, the label and the name.
    fields : tuple of ChosenField
        The chosen fields; no two have the same name.
    """

    image: str | None = None
    label: str | None = None
    name: str | None = None
    fields: tuple[ChosenField, ...] = ()

    @classmethod
    def of(cls, keys: Mapping[str, str]) -> Chosen:
        """Parse the `keys` argument of `Container.open`.

        Raises
        ------
        OptionError
            If a kind does not exist, or a name is invalid or used twice.
        """
        roles = {name: keys[name] for name in _ROLES if name in keys}
        fields = [ChosenField(*name.partition(":")[::2], key) for name, key in keys.items() if name not in roles]
        for number, field in enumerate(fields):
            if field.name in _ROLES:
                raise OptionError(f"{field}: only fields have a kind, and the {field.name} is not a field")
            if field.kind and field.kind not in (*KINDS, *OF_SCALARS):
                raise OptionError(f"{field}: a kind must be one of {', '.join([*KINDS, *OF_SCALARS])}")
            if field.name in [other.name for other in fields[:number]]:
                raise OptionError(f"{field}: the field {field.name} is named twice")
            try:
                Field(field.name, "bytes")
            except ValueError as error:
                raise OptionError(f"{field}: {error}") from error
        return cls(**roles, fields=tuple(fields))

    def all_keys(self) -> list[str]:
        """Return all keys that the user chose."""
        roles = (key for key in (self.image, self.label, self.name) if key is not None)
        return [*roles, *(field.key for field in self.fields)]

    def by_key(self) -> dict[str, ChosenField]:
        """Return the fields by key, for containers that allow one field per key; OptionError if a key is used twice."""
        found: dict[str, ChosenField] = {}
        for field in self.fields:
            if (other := found.setdefault(field.key, field)) is not field:
                raise OptionError(f"{field}: {field.key} is already the field {other.name}")
        return found
