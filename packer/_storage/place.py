"""Locations of packs, on a disk or in object storage; readers open the files of a pack by relative path."""

from __future__ import annotations

import abc
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from packer._storage.files import disk_size
from packer._storage.packfile import PackFile
from packer._storage.remote.urls import RemoteSettings, choose, is_url
from packer._storage.safe_open import open_regular, require_no_link
from packer._storage.stamps import Stamp, stamp_at
from packer.errors import CorruptPackError, OptionError, PackError, printable


class FoundFile(NamedTuple):
    """The status of a regular file when it was found.

    Attributes
    ----------
    size : int
        Bytes.
    modified : int
        The time of the last change, in nanoseconds.
    links : int
        Number of the file's hard links.
    inode : (int, int)
        The file's device and its inode number.
    """

    size: int
    modified: int
    links: int = 1
    inode: tuple[int, int] = (0, 0)


class Place(abc.ABC):
    """The location of a pack: a file or a directory on a disk, or a URL.

    In each method, `inside` is the path of a file below the directory, with the separator ``/``.

    Attributes
    ----------
    path : str
        The location for messages: an absolute path, or a URL without secrets.
    as_written : str
        The path or URL as the user wrote it.
    remote : bool
        Whether the pack is on another machine.
    """

    path: str
    as_written: str
    remote: ClassVar[bool] = False

    @property
    def kept(self) -> bool:
        """Whether fetched bytes are kept on a disk of this machine."""
        return True

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The last part of the path."""

    @abc.abstractmethod
    def open(self, inside: str = "") -> PackFile:
        """Open the file, or a file below the directory. Raises the same errors as `PackFile`."""

    @abc.abstractmethod
    def join(self, inside: str) -> Place:
        """Return the location of a file or a directory below this directory."""

    @abc.abstractmethod
    def follow(self, way: str) -> Place:
        """Return the location at an absolute path or URL, or at a path relative to this location, possibly with ``..``.

        Raise ValueError if the path is invalid.
        """

    @abc.abstractmethod
    def head(self, size: int) -> bytes | None:
        """Return the first bytes of the file; None if this is not a file, but may be a directory.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            If nothing exists there.
        StrangeFileError
            If the path is neither a file nor a directory.
        OSError
            If the system refuses to read the file.
        """

    @abc.abstractmethod
    def is_a_file(self) -> bool:
        """Tell whether this is a regular file."""

    @abc.abstractmethod
    def is_directory(self) -> bool:
        """Tell whether this is a directory; in an object store, tell whether an object below it was found earlier."""

    @abc.abstractmethod
    def holding(self, names: Iterable[str]) -> set[str]:
        """Return the paths in `names`, relative to this directory, at which regular files exist."""

    @abc.abstractmethod
    def holds(self, inside: str) -> bool:
        """Tell whether a path below this directory exists."""

    @abc.abstractmethod
    def has_directory(self, inside: str, first: str) -> bool:
        """Tell whether the directory `inside` exists; in an object store, tell whether it contains the file `first`."""

    @abc.abstractmethod
    def files(self, names: Sequence[str]) -> dict[str, FoundFile]:
        """Return the status of the files of a pack with these names; an empty name stands for the location itself.

        Raises
        ------
        PackError
            If a file is missing, or is not a regular file.
        """

    @abc.abstractmethod
    def stamp(self, inside: str) -> Stamp:
        """Return the current size and time of a file below this directory."""

    @abc.abstractmethod
    def size(self, names: Sequence[str]) -> int:
        """Return the total size in bytes of a pack's files with these names."""

    @abc.abstractmethod
    def contains(self, path: str) -> bool:
        """Tell whether a path from an error message is this location, or one below it."""

    def names(self) -> list[str]:
        """Return the names in this directory; an empty list if it is in an object store."""
        return []

    def why_missing(self) -> str:
        """Return a possible reason why nothing exists here; an empty string if none is known."""
        return ""

    def require_no_link(self, inside: str = "") -> None:
        """Raise StrangeFileError if a part of the path below this directory is a symbolic link."""

    def path_of(self, inside: str) -> str:
        """Return the path or URL of a file as messages show it."""
        return self.join(inside).path if inside else self.path

    def __str__(self) -> str:
        return self.path


class LocalPlace(Place):
    """A location on a disk of this machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.as_written, self.path = os.fspath(path), os.path.abspath(path)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def open(self, inside: str = "") -> PackFile:
        return PackFile(self.path, inside)

    def join(self, inside: str) -> LocalPlace:
        return LocalPlace(self._below(inside))

    def follow(self, way: str) -> Place:
        return place_of(way) if is_url(way) else LocalPlace(os.path.join(os.path.realpath(self.path), way))

    def head(self, size: int) -> bytes | None:
        if os.path.isdir(self.path):
            return None
        with open(open_regular(self.path), "rb", buffering=0) as file:
            return file.read(size)

    def is_a_file(self) -> bool:
        return os.path.isfile(self.path)

    def is_directory(self) -> bool:
        return os.path.isdir(self.path)

    def holding(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if os.path.isfile(self._below(name))}

    def holds(self, inside: str) -> bool:
        try:
            os.lstat(self._below(inside))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # of the disk, or of a directory without permission: the file may exist
            raise PackError(f"{printable(self._below(inside))}: cannot be accessed: {error.strerror}") from error
        return True

    def has_directory(self, inside: str, first: str) -> bool:
        return os.path.isdir(self._below(inside))

    def files(self, names: Sequence[str]) -> dict[str, FoundFile]:
        return {name: self._file(name) for name in names}

    def _file(self, name: str) -> FoundFile:
        path = self.path_of(name)
        try:
            status = os.lstat(path) if name else os.stat(path)
        except FileNotFoundError as error:
            raise CorruptPackError("the file is missing", path) from error
        except OSError as error:
            raise PackError(f"{printable(path)}: cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise CorruptPackError("is a link or another file that is not regular", path)
        return FoundFile(status.st_size, status.st_mtime_ns, status.st_nlink, (status.st_dev, status.st_ino))

    def stamp(self, inside: str) -> Stamp:
        return stamp_at(self._below(inside))

    def size(self, names: Sequence[str]) -> int:
        return disk_size(self.path)

    def contains(self, path: str) -> bool:
        return Path(os.path.abspath(path)).is_relative_to(self.path)

    def names(self) -> list[str]:
        return os.listdir(self.path)

    def why_missing(self) -> str:
        unfinished = " Its conversion is not finished: run the same command again."
        return unfinished if os.path.isdir(self.path + ".partial") else ""

    def require_no_link(self, inside: str = "") -> None:
        require_no_link(self.path, inside)

    def path_of(self, inside: str) -> str:
        return self._below(inside) if inside else self.path

    def _below(self, inside: str) -> str:
        return os.path.join(self.path, *inside.split("/"))

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalPlace, (self.path,)


def place_of(path: str | os.PathLike[str] | Place) -> Place:
    """Return the location at a path or a URL; RemoteError if the URL cannot be the URL of an object."""
    if isinstance(path, Place):
        return path
    if not is_url(path):
        return LocalPlace(path)
    from packer._storage.remote.place import RemotePlace

    return RemotePlace(path)


def choose_reading(
    places: Iterable[object],
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    timeout: float | None = None,
) -> None:
    """Choose the settings with which this process reads the URLs in `places`; do nothing if all settings are None.

    Raises
    ------
    OptionError
        If a setting is invalid, or none of `places` is a URL.
    """
    options = {"cache_dir": cache_dir, "cache_size": cache_size, "timeout": timeout}
    if all(value is None for value in options.values()):
        return
    urls = [str(place) for place in places if is_url(place) or (isinstance(place, Place) and place.remote)]
    if not urls:
        first = next(name for name, value in options.items() if value is not None)
        raise OptionError(f"{first} applies only to packs at a URL, such as s3://bucket/train.lmdb")
    for url in urls:
        choose(url, RemoteSettings.of(cache_dir, cache_size, timeout))
