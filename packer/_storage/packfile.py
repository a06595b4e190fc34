"""Reads files of packs at any position, without the risk of a crash; tells the C code where bytes are."""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._storage.safe_open import StrangeFileError, cause_of, open_regular
from packer._table import Ints, Vector
from packer.errors import CorruptPackError, PackError, printable

LOCATION = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("file", "position", "size"),
            *("raw", "height", "width"),
            *("checked", "crc32c", "label", "name", "name_size"),
        )
    ]
)
"""The location of a sample's bytes, and the checksum that C compares them with.

``file``, ``position``, ``size``
    The descriptor of a file, the position of the bytes in it, and their number. Three numbers replace a descriptor.
    `MEMORY`: the position is an address in memory. `BY_PATH`: the bytes are a whole file, and the position is the
    address of its `LISTED` record. `NOWHERE`: the file does not have these bytes, or C must not read them.
``raw``, ``height``, ``width``
    Whether the bytes are pixels; the image's size.
``checked``, ``crc32c``, ``label``, ``name``, ``name_size``
    Whether the bytes are compared with a checksum, the checksum, and the other values that it covers; `name` is an
    address.
"""

MEMORY, NOWHERE, BY_PATH = -1, -2, -3

LISTED = np.dtype([(name, np.int64) for name in ("directory", "path", "size", "modified")])
"""A file that C opens by its path, and reads only if its size and time are still those in this record.

``directory``, ``path``
    A directory's descriptor, and the address of the file's path, which is relative to this directory and ends with a
    NUL.
``size``, ``modified``
    The size in bytes, and the time of the last change in nanoseconds.
"""


class PathRecords(NamedTuple):
    """Records of `LISTED`, and the memory that their addresses refer to."""

    records: npt.NDArray[Any]
    paths: npt.NDArray[np.uint8]


def by_path(directory: int, paths: Sequence[bytes], stamps: Ints) -> tuple[Ints, PathRecords]:
    """Return the positions of files for C, to be used with the descriptor `BY_PATH`, and the records of the files.

    A position is the address of the file's record. The caller must keep the records until the files have been read.

    Parameters
    ----------
    directory : int
        A descriptor.
    paths : sequence of bytes
        The paths of the files, relative to the directory. A path that contains a NUL refers to no file.
    stamps : (N, 2) int64 array
        Size and time of each file.
    """
    listed = np.empty(len(paths), LISTED)
    blob = np.frombuffer(b"".join(path + b"\0" for path in paths), np.uint8)
    sizes = np.fromiter(map(len, paths), np.int64, len(paths)) + 1
    listed["directory"] = directory
    listed["path"] = blob.ctypes.data + np.cumsum(sizes) - sizes
    listed["size"], listed["modified"] = stamps.T
    return listed.ctypes.data + LISTED.itemsize * np.arange(len(paths)), PathRecords(listed, blob)


LARGEST_READ = 2 << 30
"""The maximum size of one read, and so of one sample, in bytes: a sparse file must not fill the memory."""

_CHECKED = 1 << 20  # bytes read at a time, only for their checksum
_BEGINNING = 1 << 16  # bytes at the beginning of a file, which arrive when it is opened, even from a URL
MOST_HELD = 256 << 20
"""The size in bytes up to which a table is read into memory (about 3 million samples); larger tables are mapped."""

_seek_lock = threading.Lock()


class Descriptor:
    """A file descriptor that is closed with the last reference to this object."""

    number = -1  # in case of Ctrl-C before a descriptor is set

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone when Python ends
        if self.number >= 0:
            close(self.number)


class FileBytes:
    """The bytes of an open file, which is closed with the last reference to this object.

    Parameters
    ----------
    descriptor : Descriptor
    path : str
        The path of the file, for errors.
    size : int
        The size of the file in bytes when it was opened.
    """

    def __init__(self, descriptor: Descriptor, path: str, size: int) -> None:
        self._descriptor, self._path, self._size = descriptor, path, size

    def __len__(self) -> int:
        return self._size

    @property
    def number(self) -> int:
        """The file descriptor."""
        return self._descriptor.number

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; CorruptPackError if the file ends before them."""
        try:
            data = pread(self.number, size, offset)
            while len(data) < size:
                more = pread(self.number, size - len(data), offset + len(data))
                if not more:
                    raise CorruptPackError("the file became shorter after it was opened", self._path)
                data += more
        except OSError as error:
            raise PackError(f"{printable(self._path)}: reading at byte {offset} failed: {error.strerror}") from error
        except MemoryError as error:
            raise PackError(f"{printable(self._path)}: {size:,} bytes do not fit into memory") from error
        return data

    def mapping(self, start: int, size: int) -> mmap.mmap:
        """Map `size` > 0 bytes from byte `start`, which must be a multiple of `mmap.ALLOCATIONGRANULARITY`."""
        try:
            return mmap.mmap(self.number, size, access=mmap.ACCESS_READ, offset=start)
        except ValueError as error:
            raise CorruptPackError("the file became shorter after it was opened", self._path) from error
        except (OSError, MemoryError) as error:  # no address space, or a file system that maps no files
            raise PackError(f"{printable(self._path)}: {size:,} bytes cannot be mapped into memory: {error}") from error

    def require_whole(self) -> None:
        """Raise CorruptPackError if the file is shorter than when it was opened."""
        if os.fstat(self.number).st_size < self._size:
            raise CorruptPackError("the file became shorter after it was opened", self._path)

    def stamp(self) -> tuple[int, int]:
        """Return the file's current size, and the time of its last change in nanoseconds."""
        status = os.fstat(self.number)
        return status.st_size, status.st_mtime_ns

    def overwritten(self) -> CorruptPackError:
        """Return the error for a file that has been overwritten."""
        return CorruptPackError("the file was overwritten after it was opened", self._path)


class PackFile:
    """A file of a pack, open for reading.

    Each read specifies its position, so threads and forked processes can share one open file. Samples are read with
    `pread`, not through a mapping: if the disk fails or the file was truncated, `pread` raises an error, but access to
    a mapping kills the process with SIGBUS. Tables are also read with `pread`, except very large ones: see `Vector`.

    Parameters
    ----------
    path : path
        The file, or the directory of a pack.
    inside : str, optional
        The file's path below that directory; see `open_regular`.

    Attributes
    ----------
    path : str
        The path of the file.
    size : int
        Its size in bytes when it was opened.
    modified : int
        The time of its last change before it was opened, in nanoseconds.
    mode : int
        Its permissions.
    links : int
        Number of its hard links.
    inode : (int, int)
        The file's device and its inode number, which are the same for all hard links to a file.
    """

    def __init__(self, path: str | os.PathLike[str], inside: str = "") -> None:
        self.path = os.path.join(path, *inside.split("/")) if inside else os.fspath(path)
        try:
            descriptor = Descriptor(open_regular(path, inside))
        except FileNotFoundError as error:
            raise CorruptPackError("the file is missing", self.path) from error
        except StrangeFileError as error:
            raise CorruptPackError(str(error.strerror), self.path) from error
        except OSError as error:
            raise PackError(f"{printable(self.path)}: cannot be opened: {cause_of(error)}") from error
        status = os.fstat(descriptor.number)
        self.size, self.modified, self.mode = status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode)
        self.links, self.inode = status.st_nlink, (status.st_dev, status.st_ino)
        self._bytes: FileBytes | None = FileBytes(descriptor, self.path, self.size)

    def __enter__(self) -> PackFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; CorruptPackError if they do not lie inside the file."""
        self._require(offset, size)
        return self._require_open().read(offset, size)

    def crc32(self, offset: int, size: int) -> int:
        """Return the CRC-32 (as in zlib) of `size` bytes from `offset`."""
        found = 0
        for begin in range(offset, offset + size, _CHECKED):
            found = zlib.crc32(self.read(begin, min(_CHECKED, offset + size - begin)), found)
        return found

    def locate(
        self, offset: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], object]:
        """Return descriptors and positions of bytes for reads in C; NOWHERE for bytes outside the file.

        The descriptors are duplicates: if this file is closed while C reads, the system may use its descriptor number
        for another file. The caller must keep the third value while C reads. When it is released, the duplicates are
        closed, and bytes in MEMORY become invalid.
        """
        descriptor = self.duplicate()
        if descriptor is None:
            return np.full(len(offset), NOWHERE), offset, None
        inside = (offset >= 0) & (size >= 0) & (size <= LARGEST_READ) & (offset <= self.size - size)
        return np.where(inside, descriptor.number, NOWHERE), offset, descriptor

    def duplicate(self) -> Descriptor | None:
        """Return a duplicate of the descriptor; None if C cannot read the whole file with a single descriptor."""
        number = self._fd
        try:
            return Descriptor(os.dup(number)) if hasattr(os, "pread") else None
        except OSError:  # too many open files: without a duplicate, Python reads the samples one by one
            return None

    def keep_together(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges (offset, size) from which arrays will be read; does nothing for a file on a disk."""

    def ahead(self, ranges: Iterable[tuple[int, int]], *, urgent: bool = False) -> None:
        """Fetch ranges (offset, size) without waiting; does nothing on a disk, where the system reads ahead."""

    def vectors(self, ranges: Mapping[str, tuple[int, int, str]]) -> Mapping[str, Vector | npt.NDArray[Any]]:
        """Return vectors of the file, such as the columns of a table; each is read when it is first used.

        If their total size is at most `MOST_HELD`, they are read into memory, otherwise mapped. All stay valid after
        `close`.

        Parameters
        ----------
        ranges : mapping of str to (int, int, str)
            For each vector the offset of its first byte, the number of its elements, and their dtype.
        """
        total = sum(count * np.dtype(dtype).itemsize for _, count, dtype in ranges.values())
        return {name: self._vector(*one, held=total <= MOST_HELD) for name, one in ranges.items()}

    def _vector(self, offset: int, count: int, dtype: str, *, held: bool) -> Vector | npt.NDArray[Any]:
        self._require(offset, count * np.dtype(dtype).itemsize, most=self.size)
        return Vector(self._require_open(), offset, count, dtype, held=held)

    def array(self, offset: int, count: int, dtype: str) -> npt.NDArray[Any]:
        """Return a read-only array of `count` elements from byte `offset`; see `Vector.array`."""
        vector = self.vectors({"": (offset, count, dtype)})[""]
        return vector.array() if isinstance(vector, Vector) else vector

    def mapping(self) -> mmap.mmap:
        """Map the file, which must not be empty.

        If the file is truncated later, touching the lost bytes kills the process.
        """
        return self._require_open().mapping(0, self.size)

    def stream(self, most: int, beside: int = 0) -> io.RawIOBase:
        """Return a file object for Python's libraries that reads through this open file, not through its path.

        Parameters
        ----------
        most : int
            The size limit of one read in bytes. A larger read, which a malicious file may cause, raises
            CorruptPackError.
        beside : int
            How many bytes before and after a read are likely to be read too.
        """
        return _Stream(self, most, beside)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` with the bytes from `offset` on; return how many bytes were read.

        Only bytes that the file had when it was opened are read.
        """
        number, room = self._fd, buffer[: max(0, self.size - offset)]
        if not len(room):  # perhaps the offset is beyond the limit of the system
            return 0
        try:
            if hasattr(os, "preadv"):
                return os.preadv(number, [room], offset)
            data = pread(number, len(room), offset)
        except OSError as error:
            raise PackError(f"{printable(self.path)}: reading at byte {offset} failed: {error.strerror}") from error
        room[: len(data)] = data
        return len(data)

    def changed(self) -> bool:
        """Tell whether size or time of the file have changed since it was opened."""
        status = os.fstat(self._fd)
        return (status.st_size, status.st_mtime_ns) != (self.size, self.modified)

    def require_whole(self) -> None:
        """Raise CorruptPackError if the file is shorter than when it was opened."""
        self._require_open().require_whole()

    def close(self) -> None:
        """Close the file as soon as none of its vectors is in use; other reads fail from now on."""
        self._bytes = None

    @property
    def _fd(self) -> int:
        return self._require_open().number

    def _require_open(self) -> FileBytes:
        found = self._bytes
        if found is None:
            raise ValueError(f"{printable(self.path)}: is closed")
        return found

    def _require(self, offset: int, size: int, most: int = LARGEST_READ) -> None:
        """Raise CorruptPackError for a range that is not in the file, or has more than `most` bytes."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise CorruptPackError(
                f"bytes {offset} to {offset + size} are outside the file of {self.size} bytes: it was truncated or "
                "changed",
                self.path,
            )
        if size > most:
            raise CorruptPackError(f"{size} bytes are too many to read at once: at most {most} are allowed", self.path)


class _Stream(io.RawIOBase):
    """A stream of a file with its own position."""

    def __init__(self, file: PackFile, most: int, beside: int) -> None:
        self._file, self._most, self._beside, self._position = file, most, beside, 0
        self._near = range(0)  # the range that was fetched ahead

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "before the beginning of the file")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        self._require_few(length)
        data = self._file.read(self._position, length)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        self._require_few(len(room))
        count = self._file.read_into(room, self._position)
        self._position += count
        return count

    def _require_few(self, length: int) -> None:
        if length > self._most:
            raise CorruptPackError(f"{length} bytes of metadata are more than a pack can have here", self._file.path)
        if self._beside and self._position >= _BEGINNING and self._position not in self._near:
            end = min(self._position + length + self._beside, self._file.size)
            self._near = range(max(0, self._position - self._beside), end)
            self._file.ahead([(self._near.start, max(0, end - self._near.start))], urgent=True)


def pread(fd: int, size: int, offset: int) -> bytes:
    """Return `size` bytes of a file from `offset` on, or fewer at the end of the file."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    with _seek_lock:  # Windows
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)
