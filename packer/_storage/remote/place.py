"""Packs in object storage: `RemotePlace` is the location of a pack, and `RemoteFile` reads one object."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._storage.packfile import LARGEST_READ, MEMORY, NOWHERE, Descriptor, FileBytes, PackFile
from packer._storage.place import FoundFile, Place
from packer._storage.remote import client
from packer._storage.remote.blocks import Blocks
from packer._storage.remote.cache import trusted_cache
from packer._storage.remote.client import Version
from packer._storage.remote.urls import (
    RemoteSettings,
    choose,
    chosen,
    identity,
    is_url,
    join,
    name as last_part,
    parent,
    parse,
    redacted,
)
from packer._storage.stamps import NO_STAMP, Stamp
from packer._table import Vector
from packer.errors import CorruptPackError, RemoteError

_FIRST = 64 << 10  # bytes fetched together with the version
_WHOLE_FROM = 1 << 16  # bytes; smaller arrays are read
_BETWEEN = 1 << 16  # bytes between two columns that are fetched together


class RemoteFile(PackFile):
    """An object that is read as a file of a pack, by ranges.

    All returned bytes are from the version that the object had when it was opened. Like a `PackFile`, it can be used by
    many threads and forked processes.

    Parameters
    ----------
    url : str
        The object, or the prefix of a pack's objects.
    inside : str, optional
        The object's path below the prefix.
    version : Version, optional
        The version to read, if known; by default it is requested.
    settings : RemoteSettings, optional
        The settings; by default those that were chosen for the URL.

    Attributes
    ----------
    path : str
        The URL as it is shown, without secrets.
    url : str
        The whole URL.
    version : Version
        Size, ETag and time of the object.
    size, modified, mode, links, inode
        As for `PackFile`.

    Raises
    ------
    CorruptPackError
        If there is no such object.
    RemoteError
        If the object cannot be fetched.
    """

    def __init__(
        self, url: str, inside: str = "", *, version: Version | None = None, settings: RemoteSettings | None = None
    ) -> None:
        self.url = join(url, inside) if inside else os.fspath(url)
        self.path = redacted(self.url)
        settings = settings or chosen(self.url)
        first = b""
        if version is None:
            found = client.look(self.url, _FIRST, settings)
            if found is None:
                raise CorruptPackError("the object is missing", self.path)
            version, first = found
        self.version = version
        self._blocks = Blocks(self.url, version, settings)
        self._blocks.keep_first(first)
        self._together: tuple[FileBytes | mmap.mmap, int] | None = None  # a part of the object, and where it begins
        self.size, self.modified, self.mode, self.links = version.size, version.modified, 0o644, 1
        self.inode = (-1, zlib.crc32(self._blocks.identity.encode()))
        self._bytes = FileBytes(Descriptor(-1), self.path, self.size)  # no file: read the blocks

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; CorruptPackError if they do not lie inside the object."""
        self._require(offset, size)
        self._require_open()
        return self._blocks.read(offset, size)

    def locate(
        self, offset: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], object]:
        """Fetch the missing bytes, and return descriptors and positions of all bytes, like `PackFile.locate`."""
        self._require_open()
        inside = (offset >= 0) & (size >= 0) & (size <= LARGEST_READ) & (offset <= self.size - size)
        file, position, held = np.full(len(offset), NOWHERE), offset.copy(), list[object]()
        rows = np.flatnonzero(inside)
        found = self._blocks.locate(list(zip(offset[rows].tolist(), size[rows].tolist(), strict=True)))
        for row, data in zip(rows.tolist(), found, strict=True):
            if isinstance(data, bytes):
                file[row], position[row] = MEMORY, np.frombuffer(data or b"\0", np.uint8).ctypes.data
                held.append(data)
            else:
                segment, position[row] = data
                file[row] = segment.fd
                held.append(segment)
        return file, position, held

    def duplicate(self) -> Descriptor | None:
        return None

    def ahead(self, ranges: Iterable[tuple[int, int]], *, urgent: bool = False) -> None:
        """Request ranges of the object, in their sequence, without waiting for them.

        A range is joined with the one before it if the gap between them is small. Ranges that were requested before are
        not requested again.

        Parameters
        ----------
        ranges : iterable of (int, int)
            Offset and size of each. Bytes outside of the object are ignored.
        urgent : bool
            Whether the ranges are about to be read. If so, they are fetched before others, so that a read does not wait
            for the others.
        """
        self._require_open()
        inside = [(begin, size) for begin, size in ranges if 0 <= begin < begin + size <= self.size]
        self._blocks.ahead(inside, urgent=urgent)

    def keep_together(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Cache ranges with small gaps, such as the columns of a table, in one file on this node."""
        self._require_open()
        if not any(size >= _WHOLE_FROM for _, size in ranges):
            return
        begin, end = min(ranges)[0], max(map(sum, ranges))
        self._require(begin, end - begin, most=self.size)
        if end - begin <= sum(size for _, size in ranges) + _BETWEEN * len(ranges):
            found, at = self._blocks.whole(begin, end - begin)
            self._together = found, begin - at

    def _vector(self, offset: int, count: int, dtype: str, *, held: bool) -> Vector | npt.NDArray[Any]:
        """Fetch a vector now; store it in the cache if there is one."""
        self._require_open()
        size = count * np.dtype(dtype).itemsize
        self._require(offset, size, most=self.size)
        together = self._in_together(offset, size)
        if together is None and size < _WHOLE_FROM:
            return np.frombuffer(self.read(offset, size), dtype)
        found, begin = together or self._blocks.whole(offset, size)
        if isinstance(found, FileBytes):
            return Vector(found, begin, count, dtype, held=held)
        values = np.frombuffer(found, dtype, count, begin)
        values.flags.writeable = False
        return values

    def _in_together(self, offset: int, size: int) -> tuple[FileBytes | mmap.mmap, int] | None:
        """Return the data that `keep_together` fetched, and where a range begins in them; None if it is elsewhere."""
        if self._together is not None:
            found, first = self._together
            if first <= offset and offset + size <= first + len(found):
                return found, offset - first
        return None

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` with the bytes from `offset` on, up to the object's end; return how many bytes were read."""
        count = max(0, min(len(buffer), self.size - offset))
        buffer[:count] = self.read(offset, count) if count else b""
        return count

    def changed(self) -> bool:
        """Return False: bytes of any other version of the object are refused."""
        self._require_open()
        return False

    def require_whole(self) -> None:
        """Check only that the file is open: an object does not shrink."""
        self._require_open()


_AT_ONCE = 16  # requests for the versions of objects
_URL_OF = "PACKER_URL_"  # begins the variables that hand a signed URL to this process's children


class RemotePlace(Place):
    """A location in object storage: an object, or a prefix of object names.

    While this instance exists, each object is read in the version that was seen first, so that a pack never mixes two
    versions.

    A pickled place contains no secret. If its URL has one, such as a signature, child processes get the URL from an
    environment variable.

    Parameters
    ----------
    url : str
    settings : RemoteSettings, optional
        The settings; by default those that were chosen for the URL. Later choices have no effect on this instance.
    """

    remote = True

    def __init__(self, url: str | os.PathLike[str], settings: RemoteSettings | None = None) -> None:
        parts = parse(url)
        self.url = str(parts)
        self.path = self.as_written = parts.redacted()
        self._secret = bool(parts.query or parts.user)
        if self._secret:
            os.environ[_URL_OF + identity(self.url)] = self.url
        self._settings = settings or chosen(self.url)
        self._versions: dict[str, Version] = {}
        self._refusal: RemoteError | None = None

    @property
    def name(self) -> str:
        return last_part(self.url)

    @property
    def kept(self) -> bool:
        return trusted_cache(self._settings.cache_dir) is not None

    def open(self, inside: str = "") -> RemoteFile:
        file = RemoteFile(self.url, inside, version=self._versions.get(inside), settings=self._settings)
        self._versions[inside] = file.version
        return file

    def join(self, inside: str) -> RemotePlace:
        below = RemotePlace(join(self.url, inside), self._settings)
        below._versions = {
            name.removeprefix(f"{inside}/"): version
            for name, version in self._versions.items()
            if name.startswith(f"{inside}/")
        }
        return below

    def follow(self, way: str) -> RemotePlace:
        if is_url(way) or way.startswith("/") or "\\" in way:
            raise ValueError(
                "they are not in the store of the index, but an index in a store can list only files of the same store"
            )
        url = self.url
        for part in way.split("/"):
            if part == ".." and not parse(url).key:
                raise ValueError(f"{way} is outside the store")
            url = parent(url) if part == ".." else join(url, part) if part not in ("", ".") else url
        return RemotePlace(url, self._settings)

    def head(self, size: int) -> bytes | None:
        """Return the first bytes of the object; None if there is no object, or access is refused.

        Stores refuse access to missing objects if the user may not list them, and HTTP servers refuse directories. For
        the URL of a whole bucket, the result is None too.
        """
        parts = parse(self.url)
        if parts.scheme not in ("http", "https") and not parts.key:
            return None
        try:
            with self.open() as file:  # which comes with its first bytes
                return file.read(0, min(size, file.size))
        except CorruptPackError:
            return None
        except RemoteError as error:
            self._refusal = error
            return None

    def is_a_file(self) -> bool:
        return self._version("") is not None

    def is_directory(self) -> bool:
        if self._refusal is not None and not any(self._versions):
            raise self._refusal
        return any(self._versions)

    def holding(self, names: Iterable[str]) -> set[str]:
        paths = list(names)
        if len(paths) < 2:
            return {name for name in paths if self._version(name) is not None}
        with ThreadPoolExecutor(min(len(paths), _AT_ONCE), thread_name_prefix="packer-look") as pool:
            found = pool.map(self._version_or_refusal, paths)
            return {name for name, version in zip(paths, found, strict=True) if version is not None}

    def holds(self, inside: str) -> bool:
        return self._version(inside) is not None

    def has_directory(self, inside: str, first: str) -> bool:
        return bool(first) and self._version(f"{inside}/{first}") is not None

    def files(self, names: Sequence[str]) -> dict[str, FoundFile]:
        held = self.holding(names)
        for name in names:
            if name not in held:
                raise CorruptPackError("the object is missing", self.path_of(name))
        return {name: FoundFile(self._versions[name].size, self._versions[name].modified) for name in names}

    def stamp(self, inside: str) -> Stamp:
        version = self._version(inside)
        return NO_STAMP if version is None else (version.size, version.modified)

    def size(self, names: Sequence[str]) -> int:
        held = self.holding(names)
        return sum(self._versions[name].size for name in held)

    def contains(self, path: str) -> bool:
        return path == self.path or path.startswith(f"{self.path}/")

    def path_of(self, inside: str) -> str:
        return parse(join(self.url, inside)).redacted() if inside else self.path

    def _version(self, inside: str) -> Version | None:
        found = self._versions.get(inside)
        if found is None:
            found = client.head(join(self.url, inside) if inside else self.url, self._settings)
            if found is not None:
                self._versions[inside] = found
        return found

    def _version_or_refusal(self, inside: str) -> Version | None:
        """Return an object's version; None if it is missing, or if access is refused, perhaps because it is missing."""
        try:
            return self._version(inside)
        except RemoteError as error:
            self._refusal = self._refusal or error
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        secret_id = identity(self.url) if self._secret else ""
        return _again, (self.path if secret_id else self.url, secret_id, self._settings)


def _again(url: str, secret_id: str, settings: RemoteSettings) -> RemotePlace:
    """Recreate a pickled place."""
    if secret_id:
        secret_url = os.environ.get(_URL_OF + secret_id)
        if secret_url is None:
            raise RemoteError(
                f"{url}: a pickle does not contain the signature of the URL: pass the URL itself to open_dataset in "
                "this process"
            )
        url = secret_url
    choose(url, settings)
    return RemotePlace(url, settings)
