"""A vector in a file, which becomes memory of this process, and of its forks, when it is first needed."""

from __future__ import annotations

import mmap
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer.errors import PackError

__all__ = ["Vector"]

_SHARED_FROM = 1 << 16  # bytes; a smaller vector costs less than a page of address space for itself
_STEP = 1 << 16  # bytes that are read at a time, and copied while the caches of the processor hold them
_READ = b"\1"


class _Bytes(Protocol):
    """An open file; every method raises PackError where that was cut short."""

    def read(self, offset: int, size: int) -> bytes: ...
    def mapping(self, start: int, size: int) -> mmap.mmap: ...
    def require_whole(self) -> None: ...
    def stamp(self) -> tuple[int, int]: ...
    def overwritten(self) -> PackError: ...


class Vector:
    """A vector in a file: small ones are read at once, others when they are needed for the first time.

    What is read is copied into memory. Touching a mapping of a file that was cut short kills the process, and a mapping
    shows what others write into the file. Forks share the memory, whichever process reads the vector, so that the
    workers of a DataLoader together need no more than one of them.

    Vectors of very large tables are not held. `array` then gives a mapping, and looks at the file before: what it gives
    is for this very moment, and goes to no user. All else is read from the file each time.

    Parameters
    ----------
    file : FileBytes
    offset : int
        Where the vector begins in the file.
    count : int
        Number of elements.
    dtype : str
    held : bool
        Whether it may be held in memory.

    Attributes
    ----------
    checksum : int, optional
        The CRC-32C of the vector. It is compared where the file changed since it was opened: `cp` may have written
        another pack into the file, whose rows would be taken for those of this one.

    Raises
    ------
    PackError
        From every way to the elements: if the file was cut short, the disk fails, or there is no memory.
    """

    def __init__(self, file: _Bytes, offset: int, count: int, dtype: str, *, held: bool = True) -> None:
        self._opened: _Bytes | None = file
        self._offset, self._count, self.dtype = offset, count, np.dtype(dtype)
        self._size, self.held = count * self.dtype.itemsize, held
        self.checksum: int | None = None
        self._memory: Any = None
        self._fits = file.stamp()  # of which the elements are those that the vector was made of
        if self._size < _SHARED_FROM:
            self.held, self._memory, self._opened = True, file.read(offset, self._size), None
        elif held:
            self._memory = _shared(self._size + len(_READ))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: int | slice) -> Any:
        """Return an element, or several, which are memory."""
        if self.held:
            return self.array()[which]
        if not isinstance(which, slice):
            index = range(self._count)[which]
            return self._part(index, index + 1)[0]
        start, stop, step = which.indices(self._count)
        return self._part(start, stop) if step == 1 else self.array()[which].copy()

    def array(self) -> npt.NDArray[Any]:
        """Return the whole vector, read-only: memory, or where it is not held a mapping, to be used at once."""
        if not self.held:
            self._file.require_whole()
            self._require_same(self._file)
            return self._mapped()
        opened = self._opened
        if opened is not None:  # which another thread may set to None meanwhile
            self._fill(opened)
            self._opened = None  # so that the file is closed when its reader is
        return _read_only(np.frombuffer(self._memory, self.dtype, self._count))

    def copy(self) -> npt.NDArray[Any]:
        """Return the whole vector, read-only, as memory that nothing can take away."""
        if self.held:
            return self.array()
        try:
            found = np.empty(self._count, self.dtype)
        except MemoryError as error:
            raise PackError(f"{self._size:,} bytes of a table do not fit into memory") from error
        for start in range(0, self._count, _STEP):
            block = self[start : start + _STEP]
            found[start : start + len(block)] = block
        return _read_only(found)

    @property
    def _file(self) -> _Bytes:
        assert self._opened is not None  # of what is memory nothing is read
        return self._opened

    def _part(self, start: int, stop: int) -> npt.NDArray[Any]:
        self._require_same(self._file)
        size, count = self.dtype.itemsize, max(0, stop - start)
        return np.frombuffer(self._file.read(self._offset + size * start, size * count), self.dtype)

    def _require_same(self, file: _Bytes) -> None:
        """Raise CorruptPackError where somebody wrote something else into the file since it was opened."""
        if self.checksum is None or (stamp := file.stamp()) == self._fits:
            return
        checksum = 0
        for start in range(0, self._size, _STEP):
            data = file.read(self._offset + start, min(_STEP, self._size - start))
            checksum = google_crc32c.extend(checksum, data)
        if checksum != self.checksum:
            raise file.overwritten()
        self._fits = stamp

    def _mapped(self) -> npt.NDArray[Any]:
        start = self._offset - self._offset % mmap.ALLOCATIONGRANULARITY
        if self._memory is None:
            self._memory = self._file.mapping(start, self._offset + self._size - start)
        return np.frombuffer(self._memory, self.dtype, self._count, self._offset - start)

    def _fill(self, file: _Bytes) -> None:
        """Read the vector, unless this process or a fork has done so.

        Without a lock, which a fork could leave locked for ever: where two read at the same time, they read the same.
        """
        for start in range(0, self._size, _STEP):
            if self._memory[-1:] == _READ:
                return
            data = file.read(self._offset + start, min(_STEP, self._size - start))
            if self._memory[-1:] == _READ:  # others use it, and the file may have changed meanwhile
                return
            self._memory[start : start + len(data)] = data
        self._require_same(file)
        self._memory[-1:] = _READ


def _shared(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size)
    except (OSError, MemoryError) as error:
        raise PackError(f"{size:,} bytes of a table do not fit into memory: {error}") from error


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
