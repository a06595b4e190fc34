"""The source: an ordered list of images with labels and fields, and the methods that read the images.

The base class reads image files. Each field has a column of values: numbers or bytes in memory, separate files, or
byte ranges of a container's files. `OtherFiles` counts the files in a directory tree that have no image suffix, and
`ReadBuffer` is the memory into which files are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from packer._account import Account, BadSamples
from packer._codecs import LABEL_TYPES
from packer._containers import ForeignFiles, Ranges
from packer._containers.blocks import npy_array
from packer._fields import DTYPES, KINDS, Field, Stored
from packer._images.signatures import SUFFIXES
from packer._manifest import Manifest
from packer._storage.packfile import LARGEST_READ
from packer._storage.safe_open import cause_of
from packer._storage.stamps import (
    ABOUT_THE_FILE,
    NO_STAMP,
    Stamp,
    Stamps,
    same_stamp,
    stamp_at,
    stamp_in,
    stamp_of,
    take_stamps,
    together,
    what_changed,
)
from packer._storage.system import available_memory
from packer._table import Ints, Labels, Names, blocks, decode_name, encode_name
from packer.errors import ImageChangedError, ImageError, OptionError, SourceError, option, printable, recorded

if TYPE_CHECKING:
    from typing_extensions import Self

_NAMED = 2000  # a list and a report name at most this number of files; if there are more, only suffixes are counted
_KINDS = 1000  # most suffixes with a count of their own: names such as scan.0001 have a different suffix each
_SHOWN = 10
_WITHOUT, _MORE = "(none)", "(more)"


@dataclass
class OtherFiles:
    """The files of a tree that were ignored because of their suffix.

    Attributes
    ----------
    counts : dict of str to int
        The number of files with each suffix, in lower case; ``"(none)"`` for names without a suffix.
    names : list of str, optional
        Paths relative to the source, unordered; None if there are more files than a report lists.
    """

    counts: dict[str, int] = field(default_factory=dict)
    names: list[str] | None = field(default_factory=list)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, name: str) -> None:
        """Count a file by its suffix."""
        suffix = _suffix(name)
        if suffix not in self.counts and len(self.counts) >= _KINDS:
            suffix = _MORE
        self.counts[suffix] = self.counts.get(suffix, 0) + 1
        if self.names is not None:
            self.names.append(name)
            if len(self.names) > _NAMED:
                self.names = None

    def without(self, name: str) -> OtherFiles:
        """Remove a file that was read after all, and return the remaining files."""
        if self.names is not None and name not in self.names:
            return self
        counts = dict(self.counts)
        counts[_suffix(name)] = counts.get(_suffix(name), 0) - 1
        names = None if self.names is None else [other for other in self.names if other != name]
        return OtherFiles({suffix: number for suffix, number in counts.items() if number > 0}, names)

    def notes(self) -> list[str]:
        """Return a list of one note; an empty list if there are no files.

        The note counts the files by suffix, and names the option with which packer also reads the images among them.
        """
        if not self.counts:
            return []
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{printable(suffix)} {number:,}" for suffix, number in ordered[:_SHOWN])
        more = f", … ({len(ordered)} suffixes)" if len(ordered) > _SHOWN else ""
        files = "1 file of another type was" if len(self) == 1 else f"{len(self):,} files of other types were"
        advice = (
            f". {option('any_image', True)} packs the images among them; {option('extensions')} sets the suffixes of "
            "images"
        )
        return [f"{files} not looked at: {listed}{more}{advice if self._may_be_images() else ''}"]

    def report(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a report: one for each file, or counts by suffix if there are too many files."""
        if self.names is None:
            yield {"not_looked_at": self.counts}
        for name in sorted(self.names or ()):
            yield {"name": name, "not_looked_at": _suffix(name)}

    def _may_be_images(self) -> bool:
        return any(suffix in SUFFIXES or suffix == _WITHOUT for suffix in self.counts)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower() or _WITHOUT


_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a FIFO must not block


class ReadBuffer:
    """Reusable memory for reading batches of files, because allocating fresh memory costs more than reading."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._memory = np.empty(size, np.uint8).data
        self._used = 0

    def reset(self) -> None:
        """Release the memory for new reads, which overwrite everything that `read` returned before."""
        self._used = 0

    def read(self, path: str) -> tuple[memoryview, Stamp]:
        """Read a whole regular file; OSError if that fails. The view is read-only and valid until `reset`."""
        fd = os.open(path, _OPEN_FLAGS)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "not a regular file")
            if status.st_size > LARGEST_READ:
                raise OSError(0, f"has {status.st_size} bytes, but a sample can have at most {LARGEST_READ}")
            room = self._free(status.st_size + 1)  # one byte more tells whether the file grew
            count = 0
            while count < len(room):
                got = _read_some(fd, room[count:], status.st_size)
                if not got:
                    break
                count += got
            changed = os.fstat(fd).st_mtime_ns != status.st_mtime_ns
        finally:
            os.close(fd)
        if changed or count != status.st_size:
            raise OSError(0, "the file changed while it was read")
        self._used += count
        return room[:count].toreadonly(), stamp_of(status)

    def room(self, size: int) -> memoryview:
        """Return memory of this size, valid until `reset`."""
        room = self._free(size)
        self._used += size
        return room

    def _free(self, size: int) -> memoryview:
        if self._used + size > len(self._memory):
            # Views of the old memory keep it alive.
            self._memory = np.empty(max(size, 2 * len(self._memory)), np.uint8).data
            self._used = 0
        return self._memory[self._used : self._used + size]


def _read_some(fd: int, room: memoryview, size: int) -> int:
    """Read part of a file of `size` bytes in one system call; OSError if that fails."""
    try:
        return _read_into(fd, room)
    except OSError as error:
        if size:
            raise
        # The system generates such files, for example in /proc, so the error does not mean that a disk has failed.
        raise OSError(0, f"it has 0 bytes, and reading fails: {error.strerror}") from error


def _read_into(fd: int, room: memoryview) -> int:
    if hasattr(os, "readv"):
        return os.readv(fd, [room])
    data = os.read(fd, len(room))
    room[: len(data)] = data
    return len(data)


Rows = slice | Ints
_NO_BYTES = -1


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """The values of a scalar or class field, in memory.

    Attributes
    ----------
    field : Field
    values : (N,) array
        The numbers, in the field's dtype; for a class field, int64 ids. Zero where the value is missing.
    null : (N,) bool array
        True where the value is missing.
    """

    field: Field
    values: npt.NDArray[Any]
    null: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    def taken(self, rows: Rows) -> NumberColumn:
        """Return this column, limited to the given rows."""
        return replace(self, values=self.values[rows], null=self.null[rows])

    def with_missing(self, rows: npt.NDArray[np.bool_]) -> NumberColumn:
        """Return this column, with missing values in the rows where the mask `rows` is True."""
        return replace(self, null=self.null | rows)

    def get(self, index: int) -> Stored:
        """Return value `index`, in the form that a pack stores."""
        return None if self.null[index] else self.values[index].item()

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the values of rows `start` to `stop` - 1 as bytes, for a digest or a comparison."""
        yield self.values[start:stop].astype(DTYPES.get(self.field.dtype, "<i8"), copy=False).tobytes()
        yield self.null[start:stop].tobytes()


@dataclass(frozen=True, eq=False)
class BlobColumn:
    """The values of a field that stores bytes; the bytes are in memory.

    Attributes
    ----------
    field : Field
    blob : (B,) uint8 array
        The bytes of all values.
    starts, sizes : (N,) int64 arrays
        Offset and size of each value in `blob`; the size of a missing value is -1.
    """

    field: Field
    blob: npt.NDArray[np.uint8]
    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, field: Field, values: Iterable[bytes | None]) -> BlobColumn:
        """Build the column from values in the form that a pack stores."""
        blob, sizes = bytearray(), []
        for value in values:
            blob += value or b""
            sizes.append(_NO_BYTES if value is None else len(value))
        return cls.packed(field, np.frombuffer(blob, np.uint8), np.array(sizes, np.int64))

    @classmethod
    def packed(cls, field: Field, blob: npt.NDArray[np.uint8], sizes: Ints) -> BlobColumn:
        """Build the column from the concatenated values and the size of each value."""
        ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
        return cls(field, blob, ends - np.maximum(sizes, 0), sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def taken(self, rows: Rows) -> BlobColumn:
        """Return this column, limited to the given rows."""
        return replace(self, starts=self.starts[rows], sizes=self.sizes[rows])

    def with_missing(self, rows: npt.NDArray[np.bool_]) -> BlobColumn:
        """Return this column, with missing values in the rows where the mask `rows` is True."""
        return replace(self, sizes=np.where(rows, _NO_BYTES, self.sizes))

    def get(self, index: int) -> bytes | None:
        """Return value `index`, in the form that a pack stores."""
        start, size = int(self.starts[index]), int(self.sizes[index])
        return None if size < 0 else self.blob[start : start + size].tobytes()

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the values of rows `start` to `stop` - 1 as bytes, for comparison."""
        yield self.sizes[start:stop].astype("<i8", copy=False).tobytes()
        yield b"".join(self.get(index) or b"" for index in range(start, stop))


@dataclass(frozen=True, eq=False)
class FileColumn:
    """The values of a field, each in a separate file.

    Attributes
    ----------
    field : Field
    root : Path
        The directory to which the paths are relative.
    paths : BlobColumn
        The path of each value, with forward slashes.
    """

    field: Field
    root: Path
    paths: BlobColumn

    @classmethod
    def of(cls, field: Field, root: Path, paths: Iterable[str | None]) -> FileColumn:
        """Build the column from paths relative to `root`, with None for an image without a file."""
        return cls(field, root, BlobColumn.of(field, (None if path is None else encode_name(path) for path in paths)))

    def __len__(self) -> int:
        return len(self.paths)

    def taken(self, rows: Rows) -> FileColumn:
        """Return this column, limited to the given rows."""
        return replace(self, paths=self.paths.taken(rows))

    def with_missing(self, rows: npt.NDArray[np.bool_]) -> FileColumn:
        """Return this column, with missing values in the rows where the mask `rows` is True."""
        return replace(self, paths=self.paths.with_missing(rows))

    def get(self, index: int) -> str | None:
        """Return the path of the file of value `index`, relative to `root`; None if the value is missing."""
        path = self.paths.get(index)
        return None if path is None else decode_name(path)

    def path(self, index: int) -> str | None:
        """Return the full path of the file of value `index`; None if the value is missing."""
        path = self.get(index)
        return None if path is None else os.path.join(self.root, path)

    def names(self) -> Names:
        """Return all paths relative to `root`; an empty path stands for a missing value."""
        return Names.of(self.get(index) or "" for index in range(len(self)))

    def stored(self, data: memoryview) -> Stored:
        """Convert a file's bytes to the value that a pack stores; ValueError if they are not a value of the field."""
        kind = KINDS[self.field.kind]
        if kind.file == "npy":
            array = npy_array(data)
            if array.dtype.name != self.field.dtype:
                raise ValueError(
                    f"it is an array of {array.dtype}, but the first file has an array of {self.field.dtype}"
                )
            return self.field.encode(array)
        if kind.syntax:
            self.field.decode(data)
        return data

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the paths of rows `start` to `stop` - 1 as bytes, for a digest or a comparison."""
        return self.paths.content(start, stop)


@dataclass(frozen=True, eq=False)
class RangeColumn:
    """The values of a field, each a byte range of a container's file.

    Attributes
    ----------
    field : Field
    files : ForeignFiles
    ranges : Ranges
    copied : (B,) uint8 array
        The bytes of the values that are not a range of a file.
    """

    field: Field
    files: ForeignFiles
    ranges: Ranges
    copied: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ranges)

    def taken(self, rows: Rows) -> RangeColumn:
        """Return this column, limited to the given rows."""
        return replace(self, ranges=self.ranges.taken(rows))

    def get(self, index: int) -> bytes | None:
        """Return value `index`, in the form that a pack stores.

        Raises CorruptPackError if the value's file has changed, and PackError if reading fails.
        """
        return read_range(self.files, self.ranges, self.copied, index)

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield file number, offset and size of rows `start` to `stop` - 1 as bytes, for a digest or a comparison."""
        part = self.ranges.taken(slice(start, stop))
        yield np.stack([part.file, part.offset, part.size]).astype("<i8", copy=False).tobytes()


def read_range(files: ForeignFiles, ranges: Ranges, copied: npt.NDArray[np.uint8], index: int) -> bytes | None:
    """Return the bytes of value `index`; None if it is missing. Raises the same errors as `ForeignFiles.read`."""
    file, offset, size = int(ranges.file[index]), int(ranges.offset[index]), int(ranges.size[index])
    if size < 0:
        return None
    return copied[offset : offset + size].tobytes() if file < 0 else files.read(file, offset, size)


TableColumn = NumberColumn | BlobColumn | FileColumn
"""The values of one field that were read from a table."""

Column = TableColumn | RangeColumn
"""The values of one field, one for each image."""


_BLOCK = 65536  # rows that are hashed at a time


@dataclass(frozen=True, slots=True)
class StoredSample:
    """The codec, size and EXIF policy of a sample in a pack.

    Attributes
    ----------
    codec : str
        One of `packer._codecs.CODECS`.
    height, width : int
        Size of the decoded image, in pixels.
    exif : {"ignore", "apply"}
        Whether the image's EXIF orientation is ignored or applied.
    """

    codec: str
    height: int
    width: int
    exif: str


@dataclass(frozen=True)
class ComputedFields:
    """Fields computed from a source's columns when an image is read.

    Attributes
    ----------
    fields : tuple of Field
        The computed fields, which are the first of the source's `fields`.
    compute : callable
        Takes the source, the index of an image, its column values by name, and a buffer; returns a value for each
        field. Raises the same errors as `Source.values`.
    """

    fields: tuple[Field, ...]
    compute: Callable[[Source, int, Mapping[str, Stored], ReadBuffer], Sequence[Stored]]

    def digest(self, sha256: str) -> str:
        """Return the digest of a list that has these fields; `sha256` is the digest of the list's columns."""
        described = json.dumps([field.to_json() for field in self.fields], sort_keys=True)
        return hashlib.sha256(f"{sha256}{described}".encode()).hexdigest()


SIZE_FIELDS = {"coco": "image_info"}
"""For a kind of source, the name of the field with the height and width of each image."""


@dataclass(frozen=True, eq=False)
class Source:
    """An ordered list of images with their labels; in this base class, the images are files.

    Attributes
    ----------
    kind : str
        The kind of source, such as ``"imagefolder"``, ``"csv"``, ``"coco"`` or ``"pack"``.
    root : Path
    names : Names
        Paths relative to `root`, with forward slashes, in the order in which a conversion stores the images.
    labels : (N,) int64 or float64 array
        Indices into `classes`, with -1 for an unlabeled image; or numbers without classes, depending on `label_type`.
    classes : list of str
    notes : list of str
        Remarks on the source that commands show to the user.
    stamps : (N, 2) int64 array, optional
        Size and time of every file when it was listed. A file that has changed since then is not read.
    label_type : str
        One of `packer._codecs.LABEL_TYPES`.
    others : OtherFiles
        The files that were ignored because of their suffix.
    fields : tuple of Field
        The fields other than image and label.
    columns : tuple of Column
        The values of the `fields` that are not computed, in the same order.
    lines : (N,) int64 array, optional
        For each image, the number of the line in the table that names it.
    about : tuple of dict
        Annotations that belong to no image, as JSON values, for the manifest's `about`.
    doubts : tuple of dict
        Files from which images may be missing, and unusable samples, in the form of the manifest's `skipped`.
    account : Account, optional
        The outcome for every file and row seen during the listing; None if an older version of packer made the list.
    computed : ComputedFields, optional
        The fields that are computed when an image is read, and so have no column.
    size_field : str
        The field with the image's height and width according to annotations; empty if there is none.
    """

    is_listed: ClassVar[bool] = True
    """Whether all images are known before the first one is read. This is False for a stream of samples."""

    is_local: ClassVar[bool] = True
    """Whether the images are in local files, so that other processes can read them if they have the list of images."""

    _by_row: ClassVar[tuple[str, ...]] = ("names", "labels", "stamps", "columns", "lines")
    """The attributes that have one row for each image."""

    kind: str
    root: Path
    names: Names
    labels: Labels
    classes: list[str]
    notes: list[str] = field(default_factory=list)
    stamps: Stamps | None = None
    label_type: str = "class"
    others: OtherFiles = field(default_factory=OtherFiles)
    fields: tuple[Field, ...] = ()
    columns: tuple[Column, ...] = ()
    lines: Ints | None = None
    about: tuple[Mapping[str, Any], ...] = ()
    doubts: tuple[Mapping[str, str], ...] = ()
    account: Account | None = field(default_factory=Account)
    computed: ComputedFields | None = None
    size_field: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", list(map(recorded, self.notes)))  # because a list of images stores the notes

    def __len__(self) -> int:
        return len(self.names)

    @property
    def place(self) -> Path:
        """The directory or file that messages name as the source."""
        return self.root

    def between(self, start: int, stop: int) -> Source:
        """Return a source with only the images `start` to `stop` - 1, and with the same classes."""
        return self.taken(slice(start, stop))

    def taken(self, rows: Rows) -> Source:
        """Return a source with only the images in these rows, and with the same classes."""
        return replace(self, **{name: _rows_of(getattr(self, name), rows) for name in self._by_row})

    def without(self, names: Container[str]) -> Source:
        """Return a source without the images that have these names."""
        remaining = np.array([name not in names for name in self.names], bool)
        return self if remaining.all() else self.taken(np.flatnonzero(remaining))

    def without_bad(self, rows: Sequence[int], bad: BadSamples) -> Source:
        """Return a source without these rows, whose samples `bad` has collected; SourceError if no row remains."""
        if not len(rows):
            return self
        if len(rows) == len(self):
            raise SourceError(f"{printable(self.root)}: no image can be used: {bad.found[0]['reason']}")
        remaining = self.taken(np.delete(np.arange(len(self)), rows))
        return replace(remaining, doubts=(*self.doubts, *bad.found))

    def empty_classes(self) -> list[str]:
        """Return the classes without an image."""
        counts = np.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))
        return [self.classes[label] for label in np.flatnonzero(counts == 0).tolist()]

    def noting(self, *notes: str) -> Source:
        """Return the source with these notes added."""
        return replace(self, notes=[*self.notes, *notes])

    def having(self, *columns: Column) -> Source:
        """Return a source with additional fields; SourceError if a name exists already."""
        fields = [*self.fields, *(column.field for column in columns)]
        names = [field.name for field in fields]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise SourceError(
                f"two fields have the same name: {', '.join(sorted(set(repeated)))}. Give each field a different name."
            )
        return replace(self, fields=tuple(fields), columns=(*self.columns, *columns))

    def remarks(self) -> list[str]:
        """Return the lines that commands show about the source: its account and its notes."""
        return [*([] if self.account is None else self.account.lines()), *self.notes]

    def unusable(self, *, skip: bool = False) -> list[str]:
        """Return a line about unusable samples, for commands that do not convert; no line if there are none.

        The line ends with the statement that a conversion leaves such samples out; without `skip`, it adds the option
        ``--on-error skip``.
        """
        if not self.doubts:
            return []
        first = f"{printable(self.doubts[0]['name'])}: {printable(self.doubts[0]['reason']).rstrip('.')}"
        more = f", and {len(self.doubts) - 1:,} more" if len(self.doubts) > 1 else ""
        way = (
            "a conversion leaves out such samples"
            if skip
            else "a conversion leaves out such samples with --on-error skip"
        )
        return [f"cannot be used: {first}{more}; {way}"]

    def report(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a report on the source: bad samples, its account, and ignored files."""
        yield from ({"name": doubt["name"], "skipped": doubt["reason"]} for doubt in self.doubts)
        if self.account is not None:
            yield from self.account.report()
        yield from self.others.report()

    def complete_account(self) -> Account | None:
        """Return the account for a manifest. It also counts the files that were ignored because of their suffix."""
        if self.account is None:
            return None
        complete = Account.united([self.account])
        assert complete is not None
        for suffix, count in self.others.counts.items():
            complete.not_looked_at("file", f"its suffix is {suffix}", count=count)
        return complete

    def without_account(self) -> Source:
        """Return the source with an empty account and without `doubts`.

        In a conversion in parts, only the first part stores the account and `doubts` of the whole source.
        """
        return self._with(account=None if self.account is None else Account(), doubts=())

    def limited(self, count: int) -> Source:
        """Return a source with only the first `count` images, and with the same classes."""
        return self.between(0, min(count, len(self)))

    def sampled(self, count: int) -> Source:
        """Return a source with only `count` images, evenly spread over the list and in the same order."""
        return self if count >= len(self) else self.taken(spread_indices(count, len(self)))

    def sizes(self) -> Ints | None:
        """Return the size of each image in bytes; None if the sizes are not known yet."""
        return None if self.stamps is None else self.stamps[:, 0].clip(0)

    def stamped(self) -> Source:
        """Return the source with stamps: its own, or if it has none, the current stamps of its files."""
        return self._with(stamps=self.present_stamps()) if self.stamps is None else self

    def present_stamps(self) -> Stamps:
        """Return the current stamp of each image, combined with the stamps of the files of its fields.

        Raises the same errors as `take_stamps`.
        """
        stamps = take_stamps(self.root, self.names)
        files = [column for column in self.columns if isinstance(column, FileColumn)]
        if not files:
            return stamps
        of_fields = [take_stamps(column.root, column.names()) for column in files]
        for index in range(len(self)):
            there = (
                stamp_in(own, index) for own, file in zip(of_fields, files, strict=True) if file.paths.sizes[index] >= 0
            )
            stamps[index] = together([stamp_in(stamps, index), *there])
        return stamps

    @property
    def whole_files(self) -> bool:
        """Whether each image is a whole file below `root` with the image's name, and the file's stamp is known."""
        beside = any(isinstance(column, FileColumn) for column in self.columns)
        return self.tree is not None and self.stamps is not None and not beside

    @property
    def tree(self) -> Path | None:
        """Return the directory that is searched for images; None if the source does not search a directory."""
        return self.root

    def inputs(self) -> Iterator[str]:
        """Yield the paths or URLs of the files that contain the samples; nothing if each sample is a file in `tree`."""
        yield from ()

    @property
    def origin(self) -> Manifest | None:
        """Return the manifest of the pack that the images come from; None if the images are files."""
        return None

    def identities(self) -> list[str]:
        """Return the identities of the packs that the images come from; an empty list if the images are files."""
        return []

    def sample_of(self, index: int) -> StoredSample | None:
        """Return the properties of image `index` in the pack that it comes from; None if the image is a file."""
        return None

    def path(self, index: int) -> str:
        """Return the path of image `index`."""
        return os.path.join(self.root, self.names[index])

    def ahead(self, indices: range) -> None:
        """Start to fetch remote images that will be read soon, without waiting for them."""

    def read(self, index: int, buffer: ReadBuffer) -> tuple[memoryview, Stamp]:
        """Read image `index`.

        Raises
        ------
        ImageError
            If the image's file cannot be read, or has changed since it was listed; the error has the image's name.
        SourceError
            If the disk fails; the file may be intact.
        """
        data, stamp = self._read(index, self.path(index), buffer)
        stamp = together([stamp, *self._stamps_beside(index)])
        self._require_as_listed(index, stamp)
        return data, stamp

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        """Return the values of all `fields` for image `index`, in order, in the form that a pack stores.

        Positions in pixels refer to the image as it is stored, before any rotation by EXIF.

        Raises
        ------
        ImageError
            If a value cannot be read, or does not fit its field's kind; the error names the field, the file and the
            row.
        SourceError
            If the disk fails.
        """
        if not self.columns:
            return ()
        values = tuple(self._value(column, index, buffer) for column in self.columns)
        if any(isinstance(column, FileColumn) for column in self.columns):
            self._require_as_listed(index, self.stamp(index))  # after reading, to find files replaced before the read
        if self.computed is None:
            return values
        stored = dict(zip((column.field.name for column in self.columns), values, strict=True))
        return (*self.computed.compute(self, index, stored, buffer), *values)

    def expected_size(self, index: int) -> tuple[int, int] | None:
        """Return height and width of image `index` according to annotations, in pixels; None if unknown."""
        if not self.size_field:
            return None
        (column,) = (column for column in self.columns if column.field.name == self.size_field)
        assert isinstance(column, BlobColumn)
        info = column.field.decode(column.get(index))
        height, width = info.get("height"), info.get("width")
        return None if None in (height, width) else (height, width)

    def stamp(self, index: int) -> Stamp:
        """Return the current stamp of image `index` and of its fields' files; SourceError if the disk fails."""
        return together([stamp_at(self.path(index)), *self._stamps_beside(index)])

    def what_changed(self, before: Stamp, now: Stamp) -> str:
        """Describe the difference between two stamps of an image."""
        files = [repr(column.field.name) for column in self.columns if isinstance(column, FileColumn)]
        if not files or NO_STAMP in (before, now):
            return what_changed(before, now)
        if before[0] != now[0]:
            return f"together with its files of {', '.join(files)} it had {before[0]} bytes and now has {now[0]}"
        return f"its modification time, or that of its files of {', '.join(files)}, changed"

    def _stamps_beside(self, index: int) -> Iterator[Stamp]:
        for column in self.columns:
            if isinstance(column, FileColumn) and (path := column.path(index)) is not None:
                yield stamp_at(path)

    def _value(self, column: Column, index: int, buffer: ReadBuffer) -> Stored:
        if not isinstance(column, FileColumn):
            return column.get(index)
        path = column.path(index)
        if path is None:
            return None
        field = f"field {column.field.name!r}: {column.get(index)}"
        data, _ = self._read(index, path, buffer, f"{field} ")
        try:
            return column.stored(data)
        except ValueError as error:
            raise ImageError(f"{field}: {error}", self.names[index]) from error

    def _read(self, index: int, path: str, buffer: ReadBuffer, what: str = "") -> tuple[memoryview, Stamp]:
        """Read a file of image `index`: the image itself, or a field's value. Raises the same errors as `read`."""
        try:
            return buffer.read(path)
        except OSError as error:
            if error.errno not in ABOUT_THE_FILE:
                raise SourceError(f"{printable(path)}: reading failed: {cause_of(error)}") from error
            self._require_as_listed(index, self.stamp(index))
            named = "" if self.lines is None else f", named in line {self.lines[index]} of the labels"
            raise ImageError(f"{what}cannot be read: {error.strerror}{named}", self.names[index]) from error
        except MemoryError as error:
            size, memory = os.stat(path).st_size, available_memory()
            if memory is None or size < memory:
                raise SourceError(f"{printable(path)}: {size:,} bytes do not fit into the free memory") from error
            raise ImageError(f"{what}cannot be read: the file is larger than the memory", self.names[index]) from error

    def _require_as_listed(self, index: int, stamp: Stamp) -> None:
        if self.stamps is not None and not same_stamp(stamp_in(self.stamps, index), stamp):
            what = self.what_changed(stamp_in(self.stamps, index), stamp)
            raise ImageChangedError(f"changed since it was listed: {what}", self.names[index])

    def require_undamaged(self) -> None:
        """Raise SourceError if the list of images is damaged. A list in memory is never damaged."""

    def require_whole(self) -> None:
        """Raise SourceError if unusable images were left out of the list, or if images may be missing from files.

        The message names the option that accepts the remaining images.
        """
        if self.doubts:
            more = f" ({len(self.doubts):,} such samples)" if len(self.doubts) > 1 else ""
            raise SourceError(
                f"{printable(self.doubts[0]['reason']).rstrip('.')}{more}. To leave out such samples and list them: "
                f"{option('on_error', 'skip')}"
            )

    def require_listable(self) -> None:
        """Raise OptionError if the list that `packer scan` writes cannot hold everything in the source."""
        if self.computed is not None:
            names = ", ".join(field.name for field in self.computed.fields)
            raise OptionError(
                f"a list of images cannot contain the fields {names}, which are computed from the annotations: "
                f"convert without `packer scan` and without {option('parts')}"
            )

    def describe(self) -> dict[str, str]:
        """Return the kind of source, and a digest of names, labels, classes and field values, for the manifest."""
        return {"kind": self.kind, "sha256": self._sha256}

    @cached_property
    def _sha256(self) -> str:
        """The digest of the list. It is cached, because it takes a second for a million images."""
        digest = listing_digest(self.classes, self.names, self.labels, self.label_type, self.columns, self.about)
        return digest if self.computed is None else self.computed.digest(digest)

    def _with(self, **changes: Any) -> Self:
        """Return the source with changed members; these must not affect its digest."""
        other = replace(self, **changes)
        if (known := vars(self).get("_sha256")) is not None:
            vars(other)["_sha256"] = known
        return other


def _rows_of(values: Any, rows: Rows) -> Any:
    """Return the given rows of `values`, an attribute of a source: an array, names, ranges, or several columns."""
    if isinstance(values, tuple):
        return tuple(_rows_of(column, rows) for column in values)
    if isinstance(values, range) and not isinstance(rows, slice):
        return np.asarray(values)[rows]
    if isinstance(values, np.ndarray | range):
        return values[rows]
    return None if values is None else values.taken(rows)


def spread_indices(count: int, length: int) -> Ints:
    """Return `count` of the indices below `length`, evenly spread and ascending; all indices if `count` is larger."""
    count = min(count, length)
    return (2 * np.arange(count, dtype=np.int64) + 1) * length // (2 * count)


def some(names: Sequence[str]) -> str:
    """Return the first five names as text, and the total if there are more."""
    return ", ".join(map(printable, names[:5])) + (f", … ({len(names):,})" if len(names) > 5 else "")


def none_readable(root: Path, count: int, skipped: Sequence[Mapping[str, str]]) -> SourceError:
    """Return the error for a source in which no image can be read; the message quotes the first reason."""
    first = f", such as {printable(skipped[0]['name'])}: {printable(skipped[0]['reason'])}" if skipped else ""
    return SourceError(f"{printable(root)}: none of its {count} images can be read{first}")


def listing_digest(  # noqa: PLR0917
    classes: Sequence[str],
    names: Names,
    labels: Labels,
    label_type: str = "class",
    columns: Sequence[Column] = (),
    about: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the SHA-256, in hexadecimal, of a list of images.

    For a field whose values are files, the digest covers the paths and not the contents.
    """
    digest = hashlib.sha256()
    if label_type != "class":
        digest.update(label_type.encode("ascii"))
    digest.update("\0".join(classes).encode("utf-8", "surrogateescape"))
    for column, dtype in ((labels, LABEL_TYPES[label_type]), (names.ends, "<i8"), (names.blob, "|u1")):
        for block in blocks(column):
            digest.update(block.astype(dtype, copy=False).tobytes())
    for values in columns:
        digest.update(json.dumps(values.field.to_json(), sort_keys=True).encode("ascii"))
        for start in range(0, len(values), _BLOCK):
            for piece in values.content(start, min(start + _BLOCK, len(values))):
                digest.update(piece)
    if about:
        digest.update(json.dumps(about, sort_keys=True).encode("ascii"))
    return digest.hexdigest()
