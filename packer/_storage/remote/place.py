"""Places on object storage: an object, or a name that others begin with, which is all that a directory is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from packer._storage.place import FoundFile, Place
from packer._storage.remote import client
from packer._storage.remote.client import Version
from packer._storage.remote.owning import own
from packer._storage.remote.remotefile import RemoteFile
from packer._storage.remote.settings import Settings, choose, chosen
from packer._storage.remote.urls import identity, is_url, join, parent, parse
from packer._storage.remote.urls import name as last_part
from packer._storage.stamps import NO_STAMP, Stamp
from packer.errors import CorruptPackError, RemoteError

__all__ = ["RemotePlace"]

_AT_ONCE = 16  # questions
_URL_OF = "PACKER_URL_"  # begins the variables that hand a signed URL to this process's children


class RemotePlace(Place):
    """A place on object storage.

    What was looked at is the version that is read, for as long as this lives: a pack is not mixed of two.

    A pickled place has no secret in it. Where a URL has one, such as a signature, the processes that this one starts
    get the URL by a variable of the environment.

    Parameters
    ----------
    url : str
    settings : Settings, optional
        How it is read; by default as was chosen for the URL. What is chosen later changes nothing here.
    """

    remote = True

    def __init__(self, url: str | os.PathLike[str], settings: Settings | None = None) -> None:
        parts = parse(url)
        self.url = str(parts)
        self.path = self.given = parts.shown()
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
        return own(self._settings.cache_dir) is not None

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
            raise ValueError("they lie elsewhere, and the files of an index on a store lie on that store")
        url = self.url
        for part in way.split("/"):
            if part == ".." and not parse(url).key:
                raise ValueError(f"{way} leads out of the store")
            url = parent(url) if part == ".." else join(url, part) if part not in ("", ".") else url
        return RemotePlace(url, self._settings)

    def head(self, size: int) -> bytes | None:
        """Return the first bytes of the object; None where there is none, or it is refused.

        Stores refuse what they do not have to those who may not list it, and servers of HTTP a directory. A bucket is
        no object.
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
        wanted = list(names)
        if len(wanted) < 2:
            return {name for name in wanted if self._version(name) is not None}
        with ThreadPoolExecutor(min(len(wanted), _AT_ONCE), thread_name_prefix="packer-look") as pool:
            found = pool.map(self._version_or_refusal, wanted)
            return {name for name, version in zip(wanted, found, strict=True) if version is not None}

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
        return parse(join(self.url, inside)).shown() if inside else self.path

    def _version(self, inside: str) -> Version | None:
        found = self._versions.get(inside)
        if found is None:
            found = client.head(join(self.url, inside) if inside else self.url, self._settings)
            if found is not None:
                self._versions[inside] = found
        return found

    def _version_or_refusal(self, inside: str) -> Version | None:
        """Return a version; None also where the object is refused, while what is refused may be missing."""
        try:
            return self._version(inside)
        except RemoteError as error:
            self._refusal = self._refusal or error
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        told = identity(self.url) if self._secret else ""
        return _again, (self.path if told else self.url, told, self._settings)


def _again(url: str, told: str, settings: Settings) -> RemotePlace:
    """Return a place that was pickled."""
    if told:
        known = os.environ.get(_URL_OF + told)
        if known is None:
            raise RemoteError(f"{url}: what a pickle does not have, its signature, is unknown here: open the URL here")
        url = known
    choose(url, settings)
    return RemotePlace(url, settings)
